/* What is wrong with a shard, and in which order its members should stand: one pass over the tar, in memory
 * of a few bytes a member.
 *
 * Ownership: the chart owns its texts.   Threads: one at a time.   Blocks: on the disk.
 * Errors: -errno with a text, where the shard cannot be read at all; damage is a finding. */
#ifndef PS_TOOLS_DOCTOR_FIND_H
#define PS_TOOLS_DOCTOR_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum ps_finding_kind {
	PS_FOUND_TRUNCATED,   /* the shard ends, or is damaged, before its end: the sample there is lost */
	PS_FOUND_NOT_TAR,     /* nothing of it can be read */
	PS_FOUND_SCATTERED,   /* members of one key do not stand behind each other */
	PS_FOUND_DUPLICATE,   /* a member comes twice with the same bytes */
	PS_FOUND_CLASH,       /* ... with other bytes: which is right cannot be told */
	PS_FOUND_PROGRESSIVE, /* JPEGs that decode three times slower than they need */
	PS_FOUND_BLOAT,       /* headers that a reader does not need */
	PS_FOUND_MISSING,     /* a sample lacks a field that most have */
	PS_FOUND_NO_SAMPLE,   /* members that belong to no sample */
	PS_FOUND_NKINDS,
};

extern const char *const ps_finding_names[PS_FOUND_NKINDS];

struct ps_finding {
	uint64_t count;
	char *first; /* where it was seen first, for a person */
};

struct ps_chart_member {
	char *name;
	size_t name_len, key_len; /* key_len 0: it belongs to no sample */
	uint64_t offset, size;    /* of its data in the (decompressed) tar */
	uint64_t order; /* place in the tar; in a chart that is made, members stand as they should */
	uint32_t crc;   /* of its data, to tell duplicates */
	bool drop;      /* an exact duplicate, or of the sample that is lost */
	bool progressive;
};

struct ps_chart {
	struct ps_finding findings[PS_FOUND_NKINDS];
	struct ps_chart_member *members;
	size_t n, cap;
	uint64_t header_nbytes, needed_nbytes; /* of headers */
	uint64_t samples;
};

int ps_chart_make(const char *path, struct ps_chart *chart, struct ps_load_error *err) PS_MUST_USE;
void ps_chart_fini(struct ps_chart *chart);

#endif
