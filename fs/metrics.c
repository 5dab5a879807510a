#include "metrics.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

/* Names that may go down; all others only grow. */
static const char *const gauges[] = {"limit_bytes", "used_bytes", "min_free_bytes", "objects", "files",
        "waiting", "active", "listed_at", "mounted_at", "memory", "memory_bytes", "memory_used_bytes",
        "memory_limit_bytes", "connections", "pid", "listing", "peak_bytes", "open", "pinned_objects",
        "pinned_bytes", "held_bytes", "synced", "missing", "hit_ratio", "timeout_seconds",
        "disk_error_at", "last_error_at", "offline", "unpackers"};

static bool is_gauge(const char *name)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(gauges); i++)
		if (strcmp(name, gauges[i]) == 0)
			return true;
	return false;
}

static void add_label(struct ps_strbuf *b, const char *name, const json_t *value)
{
	ps_strbuf_addf(b, "%s=\"", name);
	for (const char *s = json_string_value(value); s && *s; s++) {
		if (*s == '\n')
			ps_strbuf_add(b, "\\n");
		else {
			if (*s == '"' || *s == '\\')
				ps_strbuf_addc(b, '\\');
			ps_strbuf_addc(b, *s);
		}
	}
	ps_strbuf_addc(b, '"');
}

/* A metric: its lines must stand together, below one TYPE, whichever mounts they are of. */
struct family {
	char *name;
	bool gauge;
	struct ps_strbuf lines;
};

struct families {
	struct family *v;
	size_t n, cap;
	bool failed;
};

static struct family *family(struct families *all, const char *name, bool gauge)
{
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->v[i].name, name) == 0)
			return &all->v[i];
	if (all->n == all->cap) {
		size_t cap = all->cap ? 2 * all->cap : 64;
		struct family *grown = reallocarray(all->v, cap, sizeof *grown);
		if (!grown)
			return NULL;
		all->v = grown;
		all->cap = cap;
	}
	struct family *f = &all->v[all->n];
	*f = (struct family){.name = strdup(name), .gauge = gauge};
	all->n += f->name != NULL;
	return f->name ? f : NULL;
}

static void add_number(
        struct families *all, const char *name, bool gauge, const char *labels, const json_t *value)
{
	ps_autostrbuf struct ps_strbuf whole = {0};

	ps_strbuf_addf(&whole, "%s%s", name, gauge ? "" : "_total");
	struct family *f = whole.failed ? NULL : family(all, ps_strbuf_peek(&whole), gauge);
	if (!f) {
		all->failed = true;
		return;
	}
	ps_strbuf_addf(&f->lines, "%s%s ", f->name, labels);
	if (json_is_integer(value))
		ps_strbuf_addf(&f->lines, "%lld\n", (long long)json_integer_value(value));
	else if (json_is_real(value))
		ps_strbuf_addf(&f->lines, "%.6f\n", json_real_value(value));
	else
		ps_strbuf_addf(&f->lines, "%d\n", json_is_true(value));
}

/* One object's numbers; nested objects add their name to the prefix. What is null is not known: left out. */
static void add_numbers(struct families *all, const char *prefix, const char *labels, const json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, name, value)
	{
		ps_autostrbuf struct ps_strbuf deeper = {0};

		ps_strbuf_addf(&deeper, "%s_%s", prefix, name);
		if (deeper.failed)
			all->failed = true;
		else if (json_is_object(value))
			add_numbers(all, ps_strbuf_peek(&deeper), labels, value);
		else if (json_is_number(value) || json_is_boolean(value))
			add_number(all, ps_strbuf_peek(&deeper), is_gauge(name), labels, value);
	}
}

static void add_mount(struct families *all, const json_t *mount)
{
	ps_autostrbuf struct ps_strbuf labels = {0};

	ps_strbuf_addc(&labels, '{');
	add_label(&labels, "mountpoint", json_object_get(mount, "mountpoint"));
	ps_strbuf_addc(&labels, ',');
	add_label(&labels, "source", json_object_get(mount, "source"));
	ps_strbuf_addc(&labels, '}');
	if (labels.failed)
		all->failed = true;
	else
		add_numbers(all, "penstock_mount", ps_strbuf_peek(&labels), mount);
}

char *ps_metrics_text(const json_t *doc)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct families all = {0};
	const char *name;
	json_t *value, *mount;
	size_t i;

	ps_strbuf_add(&b, "# TYPE penstock_info gauge\npenstock_info{");
	add_label(&b, "version", json_object_get(doc, "version"));
	ps_strbuf_add(&b, "} 1\n");
	json_array_foreach(json_object_get(doc, "mounts"), i, mount) add_mount(&all, mount);
	json_object_foreach((json_t *)(uintptr_t)doc, name, value)
	{
		ps_autostrbuf struct ps_strbuf prefix = {0};

		ps_strbuf_addf(&prefix, "penstock_%s", name);
		if (json_is_object(value))
			add_numbers(&all, ps_strbuf_peek(&prefix), "", value);
	}
	for (i = 0; i < all.n; i++) {
		struct family *f = &all.v[i];

		ps_strbuf_addf(&b, "# TYPE %s %s\n%s", f->name, f->gauge ? "gauge" : "counter",
		        ps_strbuf_peek(&f->lines));
		b.failed |= f->lines.failed;
		ps_strbuf_fini(&f->lines);
		free(f->name);
	}
	free(all.v);
	b.failed |= all.failed;
	return ps_strbuf_take(&b);
}
