#include "fuse/fuse.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/strbuf.h"
#include "base/utf8.h"

static void add_label(struct ps_strbuf *b, const char *name, const char *value)
{
	size_t n;

	ps_strbuf_addf(b, "%s%s=\"", b->len ? "," : "", name);
	for (const char *s = value ? value : ""; *s; s += n) {
		bool control = ps_utf8_control(s, &n);

		if (*s == '\n')
			ps_strbuf_add(b, "\\n");
		else if (control) /* may reach a terminal, and Prometheus has no escape for it */
			ps_strbuf_addf(b, "\\\\x%02x", (unsigned char)s[n - 1]);
		else if (*s == '"' || *s == '\\')
			ps_strbuf_addf(b, "\\%c", *s);
		else
			ps_strbuf_addn(b, s, n);
	}
	ps_strbuf_addc(b, '"');
}

static const char *text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* What series are made from: a daemon's document or a mount in it, and the labels. */
struct subject {
	const json_t *object;
	char *labels;
};

struct subjects {
	struct subject *v;
	size_t n;
	bool failed;
};

static void add_subject(struct subjects *all, const json_t *object, struct ps_strbuf *labels)
{
	struct subject *v = reallocarray(all->v, all->n + 1, sizeof(*v));
	char *owned = ps_strbuf_take(labels);

	if (v)
		all->v = v;
	if (!v || !owned) {
		free(owned);
		all->failed = true;
		return;
	}
	all->v[all->n++] = (struct subject){object, owned};
}

static bool same_text(const json_t *a, const json_t *b, const char *name)
{
	const char *s = text(a, name), *t = text(b, name);

	return s && t && strcmp(s, t) == 0;
}

static const json_t *cache_of(const json_t *document)
{
	return json_object_get(document, "cache");
}

static const json_t *first_mount(const json_t *document)
{
	return json_array_get(json_object_get(document, "mounts"), 0);
}

/* True if another document or mount has the same labels: equal paths in different containers may be
 * different folders. */
static bool is_ambiguous(const json_t *documents, const json_t *document, const json_t *mount)
{
	const json_t *other, *its;
	size_t i, j;

	json_array_foreach(documents, i, other)
	{
		if (!same_text(cache_of(other), cache_of(document), "dir"))
			continue;
		if (!mount && other != document)
			return true;
		json_array_foreach(json_object_get(other, "mounts"), j, its)
		{
			if (mount && its != mount && same_text(its, mount, "mountpoint"))
				return true;
		}
	}
	return false;
}

static void find_subjects(
        const json_t *documents, unsigned parts, struct subjects *caches, struct subjects *mounts)
{
	const json_t *document, *mount;
	size_t i, j;

	json_array_foreach(documents, i, document)
	{
		ps_autostrbuf struct ps_strbuf b = {0};

		add_label(&b, "cache_dir", text(cache_of(document), "dir"));
		if (is_ambiguous(documents, document, NULL))
			add_label(&b, "device", text(first_mount(document), "device"));
		if (parts & PS_METRICS_CACHE)
			add_subject(caches, document, &b);
		json_array_foreach(json_object_get(document, "mounts"), j, mount)
		{
			ps_autostrbuf struct ps_strbuf labels = {0};

			if (!(parts & PS_METRICS_MOUNTS) && (j > 0 || !(parts & PS_METRICS_MOUNT)))
				continue;
			add_label(&labels, "cache_dir", text(cache_of(document), "dir"));
			add_label(&labels, "mount", text(mount, "mountpoint"));
			if (is_ambiguous(documents, document, mount))
				add_label(&labels, "device", text(mount, "device"));
			add_subject(mounts, mount, &labels);
		}
	}
}

static void free_subjects(struct subjects *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->v[i].labels);
	free(all->v);
}

static void begin_family(struct ps_strbuf *b, const char *name, const char *type, const char *help)
{
	ps_strbuf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_histogram(struct ps_strbuf *b, const char *name, const char *labels, const json_t *value)
{
	json_t *buckets = json_object_get(value, "buckets"), *count;
	const char *bound;

	json_object_foreach(buckets, bound, count)
	{
		ps_autostrbuf struct ps_strbuf le = {0};

		add_label(&le, "le", bound);
		ps_strbuf_addf(b, "%s_bucket{%s,%s} %lld\n", name, labels, ps_strbuf_peek(&le),
		        (long long)json_integer_value(count));
		b->failed |= le.failed;
	}
	ps_strbuf_addf(b, "%s_sum{%s} %.6f\n%s_count{%s} %lld\n", name, labels,
	        json_number_value(json_object_get(value, "sum")), name, labels,
	        (long long)json_integer_value(json_object_get(value, "count")));
}

static void add_figure(struct ps_strbuf *b, const char *prefix, const char *section,
        const struct ps_figure *figure, const struct subjects *all)
{
	static const char *const types[] = {[PS_FIGURE_COUNTER] = "counter",
	        [PS_FIGURE_TOTAL] = "counter",
	        [PS_FIGURE_GAUGE] = "gauge",
	        [PS_FIGURE_FLAG] = "gauge",
	        [PS_FIGURE_HISTOGRAM] = "histogram"};
	char path[64], name[128];
	bool begun = false;

	snprintf(path, sizeof(path), "%s%s%s", section, *section ? "." : "", figure->name);
	snprintf(name, sizeof(name), "%s%s%s", prefix, path,
	        strcmp(types[figure->kind], "counter") == 0 ? "_total" : "");
	for (char *dot = name; (dot = strchr(dot, '.'));)
		*dot = '_';
	for (size_t i = 0; i < all->n; i++) {
		const json_t *value = ps_figures_at(all->v[i].object, path);
		const char *labels = all->v[i].labels;

		if (!value || json_is_null(value))
			continue;
		if (!begun)
			begin_family(b, name, types[figure->kind], figure->help);
		begun = true;
		if (figure->kind == PS_FIGURE_HISTOGRAM)
			add_histogram(b, name, labels, value);
		else if (figure->kind == PS_FIGURE_FLAG)
			ps_strbuf_addf(b, "%s{%s} %d\n", name, labels,
			        json_is_string(value) ? json_string_length(value) > 0 : json_is_true(value));
		else if (json_is_integer(value))
			ps_strbuf_addf(
			        b, "%s{%s} %lld\n", name, labels, (long long)json_integer_value(value));
		else
			ps_strbuf_addf(b, "%s{%s} %.6f\n", name, labels, json_number_value(value));
	}
}

static void add_figures(struct ps_strbuf *b, const char *prefix, unsigned place, const struct subjects *all)
{
	for (size_t i = 0; i < PS_SECTIONS; i++)
		for (const struct ps_figure *f = ps_figures[i].v; (ps_figures[i].place & place) && f->name;
		        f++)
			if (f->kind != PS_FIGURE_PLAIN)
				add_figure(b, prefix, ps_figures[i].path, f, all);
}

/* Exports values that are not numbers as labels of a series that is always 1. */
static void add_info(
        struct ps_strbuf *b, const char *name, const char *help, const char *key, const struct subjects *all)
{
	for (size_t i = 0; i < all->n; i++) {
		ps_autostrbuf struct ps_strbuf label = {0};

		if (i == 0)
			begin_family(b, name, "gauge", help);
		add_label(&label, key, text(all->v[i].object, key));
		ps_strbuf_addf(b, "%s{%s,%s} 1\n", name, all->v[i].labels, ps_strbuf_peek(&label));
		b->failed |= label.failed;
	}
}

char *ps_metrics_text(const json_t *documents, unsigned parts, const json_t *up)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct subjects caches = {0}, mounts = {0};
	const char *mountpoint;
	json_t *answers;

	find_subjects(documents, parts, &caches, &mounts);
	if (json_object_size(up) > 0)
		begin_family(&b, "penstock_up", "gauge", "1 if the daemon answers at this mount.");
	json_object_foreach((json_t *)(uintptr_t)up, mountpoint, answers)
	{
		ps_autostrbuf struct ps_strbuf label = {0};

		add_label(&label, "mount", mountpoint);
		ps_strbuf_addf(&b, "penstock_up{%s} %d\n", ps_strbuf_peek(&label), json_is_true(answers));
		b.failed |= label.failed;
	}
	add_info(&b, "penstock_info", "Version of the daemon of a cache.", "version", &caches);
	add_figures(&b, "penstock_", PS_IN_DAEMON, &caches);
	add_info(&b, "penstock_mount_info", "What a mount shows.", "source", &mounts);
	add_figures(&b, "penstock_mount_", PS_IN_MOUNT, &mounts);
	ps_strbuf_add(&b, ""); /* not NULL, even without a daemon */
	b.failed |= caches.failed || mounts.failed;
	free_subjects(&caches);
	free_subjects(&mounts);
	return ps_strbuf_take(&b);
}
