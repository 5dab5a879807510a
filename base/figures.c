#include "base/figures.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* clang-format off */
#define SECTION(section, place, path) static const struct ps_figure section##_figures[] = {
#define COUNTER(section, name, rule, unit, help) \
	{#name, PS_FIGURE_COUNTER, PS_RULE_##rule, unit, help, offsetof(struct ps_##section##_counters, name)},
#define FIGURE(section, name, kind, rule, unit, help) {#name, PS_FIGURE_##kind, PS_RULE_##rule, unit, help, 0},
#define END() {0}};
#include "base/figure_table.h"

const struct ps_figures ps_figures[PS_SECTIONS] = {
#define SECTION(section, place, path) {path, place, section##_figures},
#define COUNTER(section, name, rule, unit, help)
#define FIGURE(section, name, kind, rule, unit, help)
#define END()
#include "base/figure_table.h"
};
/* clang-format on */

json_t *ps_figures_json(enum ps_section section, const void *counters, const char *format, ...)
{
	json_t *doc = json_object(), *given, *value;
	size_t n = 0;
	va_list args;

	va_start(args, format);
	given = json_vpack_ex(NULL, 0, format, args);
	va_end(args);
	if (!given) {
		json_decref(doc);
		return NULL;
	}
	for (const struct ps_figure *f = ps_figures[section].v; f->name; f++) {
		if (f->kind == PS_FIGURE_COUNTER) {
			const _Atomic uint64_t *counter = (const void *)((const char *)counters + f->offset);

			json_object_set_new(doc, f->name,
			        json_integer(
			                (json_int_t)atomic_load_explicit(counter, memory_order_relaxed)));
		} else if ((value = json_object_get(given, f->name))) {
			json_object_set(doc, f->name, value);
			n++;
		}
	}
	assert(n == json_object_size(given));
	json_decref(given);
	return doc;
}

/* The earlier of two times; 0 and null mean none. */
static json_t *sooner(json_t *a, json_t *b)
{
	json_int_t x = json_integer_value(a), y = json_integer_value(b);

	return y == 0 || (x != 0 && x <= y) ? a : b;
}

static enum ps_section section_at(const char *path)
{
	for (size_t i = 0; i < PS_SECTIONS; i++)
		if (strcmp(ps_figures[i].path, path) == 0)
			return (enum ps_section)i;
	return PS_SECTIONS;
}

void ps_figures_add(enum ps_section section, json_t *sum, const json_t *one, bool named)
{
	for (const struct ps_figure *f = ps_figures[section].v; f->name; f++) {
		json_t *value = json_object_get(one, f->name), *so_far = json_object_get(sum, f->name);
		bool replaces = false;

		if (!value || (named && f->rule == PS_RULE_EACH))
			continue;
		if (!so_far) {
			json_object_set_new(sum, f->name, json_deep_copy(value));
			continue;
		}
		switch (f->rule) {
		case PS_RULE_ADD:
			json_integer_set(so_far, json_integer_value(so_far) + json_integer_value(value));
			break;
		case PS_RULE_SOONEST:
			replaces = sooner(so_far, value) == value;
			break;
		case PS_RULE_ANY:
			replaces = json_is_true(value);
			break;
		case PS_RULE_EVERY:
			replaces = json_is_false(value);
			break;
		case PS_RULE_FIRST:
			replaces = json_string_length(so_far) == 0;
			break;
		case PS_RULE_LAST:
			replaces = json_string_length(value) > 0;
			break;
		case PS_RULE_JOIN:
		case PS_RULE_EACH:
			json_array_extend(so_far, value);
			break;
		case PS_RULE_NEST:
			ps_figures_add(section_at(f->name), so_far, value, named);
			break;
		case PS_RULE_NONE:
		case PS_RULE_OTHERS:
			break;
		}
		if (replaces)
			json_object_set(sum, f->name, value);
	}
}

const json_t *ps_figures_at(const json_t *document, const char *path)
{
	for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
		document = json_object_get(document, name);
	}
	return json_object_get(document, path);
}

const struct ps_figure *ps_figures_find(unsigned place, const char *path)
{
	const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
	size_t n = dot ? (size_t)(dot - path) : 0;

	for (size_t i = 0; i < PS_SECTIONS; i++) {
		const struct ps_figures *s = &ps_figures[i];

		if ((place ? !(s->place & place) : s->place != 0) || strlen(s->path) != n ||
		        strncmp(s->path, path, n) != 0)
			continue;
		for (const struct ps_figure *f = s->v; f->name; f++)
			if (strcmp(f->name, name) == 0)
				return f;
	}
	return NULL;
}
