/* An index's own data: what opening it and reading it share, and nobody else may see.
 *
 *   index.c        opened, its table of sections parsed, closed
 *   index_read.c   samples, keys and columns of one that is open
 *
 * Threads: any; all but a section's state is settled when the index is open. */
#ifndef PS_SHARD_INDEX_CORE_H
#define PS_SHARD_INDEX_CORE_H

#include <stdatomic.h>

#include "shard/index.h"
#include "shard/index_file.h"
#include "shard/index_format.h"


struct ps_index_section {
	uint32_t kind, detail;
	const uint8_t *p;
	size_t n;
	uint64_t sum;
	_Atomic int state; /* 0: not looked at; 1: sound; -1: damaged. Relaxed: looking twice does no harm */
};

struct ps_index_shape {
	uint32_t first, n; /* in members */
};

struct ps_index_shape_member {
	uint64_t lead; /* units */
	const char *suffix;
};

struct ps_index_column {
	const struct ps_index_section *section;
	const char *name;
	size_t name_len;
	const char *from; /* NULL: the file does not say */
	size_t from_len;
	enum ps_column_type type;
	unsigned width;
	const uint8_t *present;
	const uint8_t *values;
};

struct ps_index {
	uint8_t *data;
	size_t nbytes;
	bool mapped;
	char *path;
	uint64_t count, bad;
	uint32_t flags;
	struct ps_index_binding binding;
	struct ps_index_section sections[PS_INDEX_MAX_SECTIONS];
	uint32_t nsections;
	struct ps_index_section *samples, *keys;
	struct ps_index_shape *shapes;
	uint32_t nshapes;
	struct ps_index_shape_member *members;
	struct ps_windows windows; /* nbytes > 0: a token stream; there is no file then */
	struct ps_index_column columns[PS_INDEX_MAX_COLUMNS];
	uint32_t ncolumns;
};

/* -EBADMSG with the line that names the index. */
int ps_index_damaged(const struct ps_index *index, struct ps_load_error *err) PS_MUST_USE;

/* Whether its bytes are those that were written; looked at once, before their first use. */
bool ps_index_section_sound(struct ps_index_section *section) PS_MUST_USE;

#endif
