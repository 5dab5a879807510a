/* What is wrong with a shard, and in which order its members should stand: one pass of the loader's own
 * reader (shard/shard.h), in memory of a few bytes a member. What that reader calls a bad sample is a finding
 * that is an error, so that the verdict is a loader's.
 *
 * Ownership: the chart owns its texts.   Threads: one at a time.   Blocks: on the disk.
 * Errors: -errno with a text, where the shard cannot be read at all; damage is a finding. */
#ifndef PS_TOOLS_DOCTOR_FIND_H
#define PS_TOOLS_DOCTOR_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tools/tools.h"

enum ps_finding_kind {
	PS_FOUND_TRUNCATED,   /* the shard ends, or is damaged, before its end: the sample there is lost */
	PS_FOUND_NOT_TAR,     /* nothing of it can be read */
	PS_FOUND_REFUSED,     /* a sample is bad for a reason that is none of the others */
	PS_FOUND_UNDECODABLE, /* a field does not decode; only where that was tried */
	PS_FOUND_SCATTERED,   /* members of one key are not consecutive */
	PS_FOUND_DUPLICATE,   /* a member comes twice with the same bytes */
	PS_FOUND_CLASH,       /* ... with other bytes: which is right is not known */
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
	uint64_t order;  /* place in the tar; in a chart that is made, members stand as they should */
	uint64_t place;  /* the same among members of samples */
	uint64_t sample; /* offset of the sample that a loader puts it into; UINT64_MAX: none */
	uint32_t crc;    /* of its data, to find duplicates */
	bool drop;       /* an exact duplicate, or of the sample that is lost */
	bool progressive;
	bool sparse;
	/* why the sample that begins here is bad; NULL: it is not, or another member begins it */
	char *refused;
};

/* A field of samples, whatever the case of its suffix. */
struct ps_chart_field {
	char *suffix; /* lower case */
	uint64_t count;
};

#define PS_CHART_MAX_FIELDS 64 /* further ones are not looked at as fields */

struct ps_chart {
	struct ps_finding findings[PS_FOUND_NKINDS];
	struct ps_chart_member *members;
	size_t n, cap;
	struct ps_chart_field fields[PS_CHART_MAX_FIELDS];
	size_t nfields;
	uint64_t header_nbytes, needed_nbytes; /* of headers */
	uint64_t samples;                      /* that a loader gives and that are not bad */
	uint64_t keys, nplaced;                /* different ones; members of samples */
	uint64_t *refused;                     /* offsets of the bad ones, rising */
	size_t nrefused;
	bool is_tar; /* else lines */
};

/* The chart is empty before. */
int ps_chart_make(const char *path, struct ps_chart *chart, struct ps_tool_progress *progress,
        struct ps_load_error *err) PS_MUST_USE;

/* Decodes the fields whose suffix says what they are, by a loader on all its threads, and adds what it finds
 * to the chart. */
int ps_chart_decode(const char *path, struct ps_chart *chart, struct ps_tool_progress *progress,
        struct ps_load_error *err) PS_MUST_USE;

void ps_chart_found(struct ps_chart *chart, enum ps_finding_kind kind, const char *fmt, ...) PS_PRINTF(3, 4);

/* True if two members are the same field of one sample. */
bool ps_chart_same(const struct ps_chart_member *a, const struct ps_chart_member *b);

/* How many samples a loader makes of a shard. -EBADMSG: it refuses one, and why. */
int ps_chart_samples(const char *path, uint64_t *ret_samples, struct ps_load_error *err) PS_MUST_USE;

void ps_chart_fini(struct ps_chart *chart);

/* doctor --machine: what of this machine stands in the way of a loader.
 *
 * Ownership: none.   Threads: the main one.   Blocks: on the folder's disk, about two seconds. */
/* Looks, prints; the exit status: PS_EXIT_FAILED if something stands in the way. `folder`: whose disk is
 * measured. */
int ps_doctor_machine(const char *folder, bool json);

/* JPEGs -------------------------------------------------------------------------------------------------- */

/* By its markers. */
bool ps_jpeg_is_progressive(const uint8_t *data, size_t n);

/* A progressive JPEG as a baseline one, with the same coefficients, so that it decodes to the same pixels,
 * about three times as fast. Metadata is kept.
 *
 * Ownership: *ret is the caller's to free.   Threads: any.
 * Errors: 0: not a JPEG that could be rewritten, or not a progressive one; 1: rewritten, and both were
 * decoded and compared; -ENOMEM. */
int ps_jpeg_to_baseline(const uint8_t *data, size_t n, uint8_t **ret, size_t *ret_n);

#endif
