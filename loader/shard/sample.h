/* Samples: the members of a tar that share a key, grouped as WebDataset groups them.
 *
 * A member's key is its path up to the first dot of its last component, its suffix what follows that dot in
 * lower case. Members without such a dot, and those whose path begins with a component __LIKE_THIS__, belong
 * to no sample. Members of one key that stand behind each other are a sample; a key that comes back later is
 * another sample.
 *
 * Ownership: a sample owns its memory and a reference to its file; free it on any thread.
 * Threads: one at a time for one sample; any for different ones.
 * Errors: a damaged sample is not an error here: it is a sample with bad != 0 and a reason. */
#ifndef PS_SHARD_SAMPLE_H
#define PS_SHARD_SAMPLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/budget.h"
#include "shard/slab.h"

#define PS_SAMPLE_MAX_FIELDS 1024 /* a sample with more is bad */

/* Where a member's name is cut. Both point into the name; the suffix is not lowered yet. */
struct ps_name_parts {
	size_t key_len;
	const char *suffix;
	size_t suffix_len;
};

/* False if the member belongs to no sample. */
bool ps_name_split(const char *name, size_t len, struct ps_name_parts *ret_parts);

/* A shard's file as long as somebody needs it. */
struct ps_shard_file {
	_Atomic uint32_t refs;
	int fd;           /* for pread; -1: it is not kept open, `again` says whether `path` is opened for each read */
	bool again;
	struct stat was;  /* again: what `path` was; another file is refused */
	uint32_t shard;   /* its place in the list of shards */
	const char *path; /* borrowed from that list */
};

/* n references more, or less; the file is closed with the last one. */
void ps_shard_file_ref(struct ps_shard_file *file, uint32_t n);
void ps_shard_file_unref(struct ps_shard_file *file, uint32_t n);

/* Sees to it that samples can be read from the file later, which is open as `fd`. It is kept open while less than a
 * quarter of the process's descriptors is; beyond that an ordinary file is opened again by its path. -1: errno. By the
 * file's one reader, before a sample that needs it is given. */
int ps_shard_file_keep(struct ps_shard_file *file, int fd) PS_MUST_USE;

struct ps_sample_field {
	const char *suffix; /* lower case, ends with a zero */
	uint64_t offset;    /* of its data in the tar */
	uint64_t size;
	uint8_t *data; /* NULL: not held; read it with ps_sample_load() */
	uint32_t suffix_len;
	bool owned;  /* data is memory of its own, else of the sample's slab */
	bool packed; /* the member is zstd data; ps_sample_load() makes of them what the field is */
};

struct ps_sample {
	struct ps_shard_file *file;
	struct ps_slab *slab;     /* in which some of it lies; NULL: none */
	bool in_slab;             /* the sample itself does */
	struct ps_budget *budget; /* of what the sample and its fields hold, NULL: not counted */
	uint64_t own_nbytes;      /* of the sample itself, with its names; 0: they are the slab's */
	uint64_t ordinal;         /* the nth sample of its shard, from 0 */
	uint64_t offset;          /* of its first header */
	uint64_t resume_offset;   /* the same where a walk can begin there; 0: it cannot */
	uint64_t wanted_nbytes;   /* of the fields that were asked for, held or not */
	const char *key;          /* then the suffixes of all members, each with a zero behind it */
	char *reason;             /* why it is bad; with bad 0 NULL */
	uint32_t key_len, names_nbytes;
	int bad;          /* errno, positive; 0: sound */
	uint32_t nfields; /* that were asked for */
	uint32_t draw;    /* the nth time that the sample comes in its epoch, for random numbers */
	struct ps_sample_field fields[];
};

/* The field of that suffix, or NULL. */
struct ps_sample_field *ps_sample_find(struct ps_sample *sample, const char *suffix, size_t len);

/* Reads a field that is not held, and decompresses one that is packed; its size may be another then.
 * -EBADMSG: the file has become shorter, or the compressed bytes are damaged. Blocks on the disk. */
int ps_sample_load(
        struct ps_sample *sample, struct ps_sample_field *field, struct ps_load_error *err) PS_MUST_USE;

/* Lets go of a field's bytes. */
void ps_sample_drop(struct ps_sample *sample, struct ps_sample_field *field);

/* Sets -EBADMSG with the line that names a bad sample: shard, key, offset, reason. Long names keep their
 * ends. */
int ps_sample_error_set(struct ps_load_error *err, const struct ps_sample *sample, const char *reason);

/* True if an errno of a bad sample tells of storage that did not give its shard, not of what the shard holds. */
bool ps_errno_is_lost(int errnum);

/* A copy with memory of its own, or NULL: out of memory. */
struct ps_sample *ps_sample_copy(const struct ps_sample *sample);

/* NULL is allowed. */
void ps_sample_free(struct ps_sample *sample);

#endif
