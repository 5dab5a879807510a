/* Finds what is wrong with a shard, and the order in which its members should be: one pass of the loader's
 * own reader (shard/shard.h). In memory each member takes its name and about 90 bytes. Each bad sample of
 * that reader is a finding that counts as an error, so that doctor and loader agree.
 *
 * Ownership: the chart owns its texts.   Threads: one at a time.   Blocks: on the disk.
 * Errors: -errno with a text if the shard cannot be read at all; damage is a finding. */
#ifndef PS_TOOLS_DOCTOR_FIND_H
#define PS_TOOLS_DOCTOR_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tools/tools.h"

enum ps_finding_kind {
	/* the shard is truncated, or damaged before its end: the sample there is lost */
	PS_FOUND_TRUNCATED,
	PS_FOUND_NO_END,      /* a tar without an end mark: it is whole, or was cut between two members */
	PS_FOUND_NOT_TAR,     /* no part of it can be read */
	PS_FOUND_REFUSED,     /* a sample is bad for any other reason */
	PS_FOUND_UNDECODABLE, /* a field cannot be decoded; only if that was tried */
	PS_FOUND_SCATTERED,   /* members of one key are not consecutive */
	PS_FOUND_DUPLICATE,   /* a member occurs twice with the same bytes */
	PS_FOUND_CLASH,       /* ... with different bytes: it is unknown which is right */
	PS_FOUND_PROGRESSIVE, /* JPEGs that take three times as long to decode as necessary */
	PS_FOUND_BLOAT,       /* headers that a reader does not need */
	PS_FOUND_HARD_LINK,   /* hard links, whose bytes are those of an earlier member */
	PS_FOUND_MISSING,     /* a sample lacks a field that most samples have */
	PS_FOUND_NO_SAMPLE,   /* members that belong to no sample */
	PS_FOUND_NKINDS,
};

extern const char *const ps_finding_names[PS_FOUND_NKINDS];

struct ps_finding {
	uint64_t count;
	char *first; /* the first place, as a text for users */
};

struct ps_chart_member {
	char *name;
	size_t name_len, key_len; /* key_len 0: belongs to no sample */
	uint64_t offset, size;    /* offset and size of its data in the (decompressed) tar */
	uint64_t order;           /* place in the tar; the chart's members are in the order in which they
                                   * should be */
	uint64_t place;           /* number among the members of samples, in the tar's order */
	/* offset of the sample in which a loader has this member; UINT64_MAX: none */
	uint64_t sample;
	uint32_t crc; /* checksum of its data, to find duplicates */
	bool drop;    /* an exact duplicate, or part of the lost sample */
	bool progressive;
	bool sparse;
	/* why the sample that begins with this member is bad; NULL: it is not bad, or begins with another
	 * member */
	char *refused;
};

/* A field of samples; the case of its suffix is ignored. */
struct ps_chart_field {
	char *suffix; /* lower case */
	uint64_t count;
};

#define PS_CHART_MAX_FIELDS 64 /* further fields are not counted */

struct ps_chart {
	struct ps_finding findings[PS_FOUND_NKINDS];
	struct ps_chart_member *members;
	size_t n, cap;
	struct ps_chart_field fields[PS_CHART_MAX_FIELDS];
	size_t nfields;
	uint64_t header_nbytes, needed_nbytes; /* bytes of headers, in all and needed */
	uint64_t samples;                      /* samples that a loader delivers, without bad ones */
	uint64_t keys, nplaced;                /* distinct keys; members of samples */
	uint64_t *refused;                     /* offsets of the bad samples, ascending */
	size_t nrefused;
	bool is_tar; /* false: lines */
};

/* Fills an empty chart. */
int ps_chart_make(const char *path, struct ps_chart *chart, struct ps_tool_progress *progress,
        struct ps_error *err) PS_MUST_USE;

/* Decodes the fields whose kind is known from their suffix, with a loader on all its threads, and adds
 * findings to the chart. */
int ps_chart_decode(const char *path, struct ps_chart *chart, struct ps_tool_progress *progress,
        struct ps_error *err) PS_MUST_USE;

void ps_chart_found(struct ps_chart *chart, enum ps_finding_kind kind, const char *fmt, ...) PS_PRINTF(3, 4);

/* True if two members are the same field of one sample. */
bool ps_chart_same(const struct ps_chart_member *a, const struct ps_chart_member *b);

/* The number of samples that a loader reads from a shard. -EBADMSG: a sample is bad; the text says why. */
int ps_chart_samples(const char *path, uint64_t *ret_samples, struct ps_error *err) PS_MUST_USE;

void ps_chart_fini(struct ps_chart *chart);

/* doctor --machine: finds settings of this machine that impede a loader.
 *
 * Ownership: none.   Threads: the main one.   Blocks: on the folder's disk, about two seconds. */
/* Checks and prints. Returns the exit code: PS_EXIT_FAILED if something impedes a loader. `folder`: a
 * folder on the disk that is measured. */
int ps_doctor_machine(const char *folder, bool json);

/* JPEGs -------------------------------------------------------------------------------------------------- */

/* True if a JPEG is progressive, by its markers. */
bool ps_jpeg_is_progressive(const uint8_t *data, size_t n);

/* Converts a progressive JPEG to a baseline one with the same coefficients, which decodes to the same
 * pixels about three times as fast. Metadata is kept.
 *
 * Both files are decoded and compared. A file that is not a progressive JPEG, or cannot be converted, leaves
 * *ret and *ret_n as they are.
 *
 * Ownership: the caller frees *ret.   Threads: any. */
void ps_jpeg_to_baseline(const uint8_t *data, size_t n, uint8_t **ret, size_t *ret_n);

#endif
