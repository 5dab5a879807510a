/* The figures of the statistics: base/figure_table.h lists each once. From its row come: the counter itself, a
 * member of the struct of its section; its place in the JSON document; how the figures of a mount's sources
 * become those of the mount; how `penstock status` shows it; its metric; and its paragraph in penstock(1).
 *
 * Ownership: counters are memory of whoever counts; JSON is the caller's. Threads: any. Blocks: never. */
#ifndef PS_BASE_FIGURES_H
#define PS_BASE_FIGURES_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_figure_kind {
	PS_FIGURE_COUNTER, /* a member of struct ps_SECTION_counters; as a metric: a counter, as TOTAL */
	PS_FIGURE_TOTAL,   /* a counter whose value ps_figures_json() is given */
	PS_FIGURE_GAUGE,
	PS_FIGURE_FLAG, /* a boolean; or a text, which is empty while all is well */
	PS_FIGURE_HISTOGRAM,
	PS_FIGURE_PLAIN, /* no metric: a text, a list */
};

/* What becomes of the figures of a mount's sources. */
enum ps_figure_rule {
	PS_RULE_NONE,   /* sources do not have it */
	PS_RULE_OTHERS, /* NONE; may name other mounts of the daemon, so that other users are not told */
	PS_RULE_ADD,
	PS_RULE_SOONEST, /* the least; 0 and null do not count */
	PS_RULE_ANY,     /* true if one is */
	PS_RULE_EVERY,   /* true if all are */
	PS_RULE_FIRST,   /* the first text that is not empty */
	PS_RULE_LAST,    /* the last text that is not empty */
	PS_RULE_JOIN,    /* one list of all */
	PS_RULE_EACH,    /* JOIN; left out if the sources have names, as each has its own */
	PS_RULE_NEST,    /* an object; its own figures say */
};

/* Documents that a section is a part of, in which it is a metric. */
enum { PS_IN_DAEMON = 1, PS_IN_MOUNT = 2 };

struct ps_figure {
	const char *name;
	enum ps_figure_kind kind;
	enum ps_figure_rule rule;
	/* how status shows it: "B", a size; "s", seconds; "ago" and "in", a time; else what is counted, in the
	 * singular; NULL: the number alone, or a text */
	const char *unit;
	const char *help;
	size_t offset; /* of a COUNTER in its struct */
};

/* struct ps_SECTION_counters: the COUNTERs of a section. */
/* clang-format off */
#define SECTION(section, place, path) struct ps_##section##_counters {
#define COUNTER(section, name, rule, unit, help) _Atomic uint64_t name;
#define FIGURE(section, name, kind, rule, unit, help)
#define END() };
#include "base/figure_table.h"

enum ps_section {
#define SECTION(section, place, path) PS_SECTION_##section,
#define COUNTER(section, name, rule, unit, help)
#define FIGURE(section, name, kind, rule, unit, help)
#define END()
#include "base/figure_table.h"
	PS_SECTIONS
};
/* clang-format on */

struct ps_figures {
	const char *path;          /* of the section's object in the document; "": the document */
	unsigned place;            /* PS_IN_... */
	const struct ps_figure *v; /* the last has no name */
};
extern const struct ps_figures ps_figures[PS_SECTIONS];

/* The section's object, in the order of the table: its COUNTERs, of `counters`, and what json_pack() makes of the
 * rest. Every name must be in the table. NULL: out of memory. */
json_t *ps_figures_json(enum ps_section section, const void *counters, const char *format, ...);

/* Adds the figures of one source to *sum, which is empty before the first. named: the sources have names. */
void ps_figures_add(enum ps_section section, json_t *sum, const json_t *one, bool named);

/* Borrowed; NULL: there is none. path: "cache.used_bytes". */
const json_t *ps_figures_at(const json_t *document, const char *path);

/* The row of a path in the documents of a place; 0: of a list's entry. NULL: there is none. */
const struct ps_figure *ps_figures_find(unsigned place, const char *path);

#endif
