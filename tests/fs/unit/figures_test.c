/* The table of figures: its metrics, its sums over sources, and its list in penstock(1).
 *
 * --page prints that list, and --paths a line for each figure, for tests/fs/commands/figures.sh. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/figures.h"
#include "base/strbuf.h"
#include "fuse/fuse.h"

static const char *const kinds[] = {"counter", "counter", "gauge", "flag", "histogram", NULL};

static void path_of(const struct ps_figures *s, const struct ps_figure *f, char ret[static 64])
{
	snprintf(ret, 64, "%s%s%s", s->path, *s->path ? "." : "", f->name);
}

/* The list in penstock(1): a paragraph for each figure. */
static char *page(void)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	for (const struct ps_figures *s = ps_figures; s < ps_figures + PS_SECTIONS; s++) {
		for (const struct ps_figure *f = s->v; f->name; f++) {
			char path[64];

			path_of(s, f, path);
			ps_strbuf_addf(&b, ".TP\n.BR %s%s", s->place == PS_IN_MOUNT ? "mounts[]." : "", path);
			if (s->place == (PS_IN_DAEMON | PS_IN_MOUNT))
				ps_strbuf_addf(&b, " \", \" mounts[].%s", path);
			if (kinds[f->kind])
				ps_strbuf_addf(&b, " \" (%s)\"", kinds[f->kind]);
			ps_strbuf_add(&b, "\n");
			for (const char *t = f->help, *option = NULL; *t; t++) {
				option = strncmp(t, "--", 2) == 0 ? t : *t == ' ' ? NULL : option;
				ps_strbuf_addf(&b, "%s%c", option && *t == '-' ? "\\" : "", *t);
			}
			ps_strbuf_add(&b, "\n");
		}
	}
	return ps_strbuf_take(&b);
}

static void test_the_manual_page_lists_every_figure(void **state)
{
	ps_autostrbuf struct ps_strbuf path = {0}, seen = {0};
	ps_autofree char *line = NULL, *want = page();
	bool inside = false;
	size_t room = 0;

	(void)state;
	ps_strbuf_addf(&path, "%s/man/penstock.1", getenv("top_srcdir"));
	FILE *f = fopen(ps_strbuf_peek(&path), "r");
	assert_non_null(f);
	while (getline(&line, &room, f) > 0) {
		if (strcmp(line, ".\\\" end of figures\n") == 0)
			inside = false;
		if (inside)
			ps_strbuf_add(&seen, line);
		if (strcmp(line, ".\\\" figures: make figures-page\n") == 0)
			inside = true;
	}
	fclose(f);
	assert_string_equal(ps_strbuf_peek(&seen), want);
}

/* Sets the value at a path. */
static void set(json_t *object, const char *path, json_t *value)
{
	for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
		ps_autofree char *name = strndup(path, (size_t)(dot - path));

		if (!json_object_get(object, name))
			json_object_set_new(object, name, json_object());
		object = json_object_get(object, name);
	}
	json_object_set_new(object, path, value);
}

static void test_every_figure_is_a_metric_under_its_name(void **state)
{
	json_t *mount = json_pack("{s:s, s:s}", "mountpoint", "/m", "source", "s");
	json_t *doc = json_pack("{s:{s:s}, s:[o]}", "cache", "dir", "/c", "mounts", mount);
	json_t *docs = json_pack("[o]", doc);
	size_t nfamilies = 2, seen = 0; /* penstock_info, penstock_mount_info */
	char path[64];

	(void)state;
	for (const struct ps_figures *s = ps_figures; s < ps_figures + PS_SECTIONS; s++) {
		for (const struct ps_figure *f = s->v; f->name; f++) {
			path_of(s, f, path);
			if (f->kind == PS_FIGURE_PLAIN)
				continue;
			if (s->place & PS_IN_DAEMON)
				set(doc, path, json_integer(7));
			if (s->place & PS_IN_MOUNT)
				set(mount, path, json_integer(7));
			nfamilies += !!(s->place & PS_IN_DAEMON) + !!(s->place & PS_IN_MOUNT);
			assert_true(s->place);
			assert_ptr_equal(ps_figures_find(s->place & -s->place, path), f);
		}
	}
	ps_autofree char *text = ps_metrics_text(docs, PS_METRICS_CACHE | PS_METRICS_MOUNTS, NULL);
	assert_non_null(text);
	for (const char *t = text; (t = strstr(t, "# HELP ")); t++)
		seen++;
	assert_int_equal(seen, nfamilies);
	assert_non_null(
	        strstr(text, "\n# HELP penstock_mount_modes_passed_opens_total Opens that the kernel "
	                     "serves straight from the cache.\n"
	                     "# TYPE penstock_mount_modes_passed_opens_total counter\n"
	                     "penstock_mount_modes_passed_opens_total{cache_dir=\"/c\",mount=\"/m\"} 7\n"));
	json_decref(docs);
}

static void test_counters_and_given_figures_come_in_the_order_of_the_table(void **state)
{
	struct ps_inflate_counters counters = {.plain_bytes = 3, .errors = 5};
	json_t *doc = ps_figures_json(
	        PS_SECTION_inflate, &counters, "{s:i, s:i}", "memory_bytes", 2, "unpackers", 1);
	ps_autofree char *text = json_dumps(doc, JSON_COMPACT);

	(void)state;
	assert_string_equal(text,
	        "{\"unpackers\":1,\"memory_bytes\":2,\"plain_bytes\":3,\"packed_bytes\":0,\"errors\":5}");
	json_decref(doc);
}

/* Rows: a figure, its values of two sources, and the mount's. "named": the sources have names. */
static void test_each_rule_makes_the_figure_of_a_mount(void **state)
{
	static const struct {
		enum ps_section section;
		bool named;
		const char *first, *second, *sum;
	} rows[] = {
	        {PS_SECTION_mount, false, "{\"files\": 2}", "{\"files\": 3}", "{\"files\": 5}"},
	        {PS_SECTION_mount, false, "{\"listed_at\": 0}", "{\"listed_at\": 9}", "{\"listed_at\": 9}"},
	        {PS_SECTION_mount, false, "{\"listed_at\": 8}", "{\"listed_at\": 9}", "{\"listed_at\": 8}"},
	        {PS_SECTION_mount, false, "{\"next_listing_at\": 7}", "{\"next_listing_at\": null}",
	                "{\"next_listing_at\": 7}"},
	        {PS_SECTION_mount, false, "{\"next_listing_at\": null}", "{\"next_listing_at\": 7}",
	                "{\"next_listing_at\": 7}"},
	        {PS_SECTION_mount, true, "{\"offline\": true}", "{\"offline\": false}",
	                "{\"offline\": true}"},
	        {PS_SECTION_mount, true, "{\"offline\": false}", "{\"offline\": true}",
	                "{\"offline\": true}"},
	        {PS_SECTION_mount, true, "{\"route\": \"a\"}", "{\"route\": \"\"}", "{\"route\": \"a\"}"},
	        {PS_SECTION_mount, true, "{\"route\": \"a\"}", "{\"route\": \"b\"}", "{\"route\": \"b\"}"},
	        {PS_SECTION_mount, true, "{\"missing_names\": [\"a\"]}", "{\"missing_names\": [\"b\"]}",
	                "{\"missing_names\": [\"a\", \"b\"]}"},
	        {PS_SECTION_mount, true, "{\"include\": [\"a\"]}", "{\"include\": [\"b\"]}", "{}"},
	        {PS_SECTION_mount, false, "{\"include\": [\"a\"]}", "{}", "{\"include\": [\"a\"]}"},
	        {PS_SECTION_mount, true, "{\"tier\": {\"requests\": 1}}", "{}",
	                "{\"tier\": {\"requests\": 1}}"},
	        {PS_SECTION_mount, true, "{\"tier\": {\"requests\": 1, \"tiers\": [{\"url\": \"a\"}]}}",
	                "{\"tier\": {\"requests\": 2, \"tiers\": [{\"url\": \"b\"}]}}",
	                "{\"tier\": {\"requests\": 3, \"tiers\": [{\"url\": \"a\"}, {\"url\": \"b\"}]}}"},
	        {PS_SECTION_members, true, "{\"merged\": true, \"looking\": true, \"hidden_reason\": \"\"}",
	                "{\"merged\": false, \"looking\": false, \"hidden_reason\": \"b\"}",
	                "{\"merged\": false, \"looking\": true, \"hidden_reason\": \"b\"}"},
	        {PS_SECTION_members, true, "{\"hidden_reason\": \"a\"}", "{\"hidden_reason\": \"b\"}",
	                "{\"hidden_reason\": \"a\"}"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		json_t *sum = json_object(), *first = json_loads(rows[i].first, 0, NULL);
		json_t *second = json_loads(rows[i].second, 0, NULL),
		       *want = json_loads(rows[i].sum, 0, NULL);

		ps_figures_add(rows[i].section, sum, first, rows[i].named);
		ps_figures_add(rows[i].section, sum, second, rows[i].named);
		if (!json_equal(sum, want))
			fail_msg("row %zu", i);
		json_decref(first);
		json_decref(second);
		json_decref(sum);
		json_decref(want);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_manual_page_lists_every_figure),
	        cmocka_unit_test(test_every_figure_is_a_metric_under_its_name),
	        cmocka_unit_test(test_counters_and_given_figures_come_in_the_order_of_the_table),
	        cmocka_unit_test(test_each_rule_makes_the_figure_of_a_mount),
	};

	if (argc > 1 && strcmp(argv[1], "--page") == 0) {
		ps_autofree char *text = page();

		return fputs(text, stdout) < 0;
	}
	for (size_t i = 0; argc > 1 && i < PS_SECTIONS; i++) {
		for (const struct ps_figure *f = ps_figures[i].v; f->name; f++) {
			char path[64];

			path_of(&ps_figures[i], f, path);
			if (ps_figures[i].place & PS_IN_DAEMON || !ps_figures[i].place)
				printf("%s\n", path);
			if (ps_figures[i].place & PS_IN_MOUNT)
				printf("mounts[].%s\n", path);
		}
	}
	return argc > 1 ? 0 : cmocka_run_group_tests_name("figures", tests, NULL, NULL);
}
