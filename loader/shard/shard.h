/* One shard, read as samples, front to back.
 *
 * Ownership: a reader belongs to its creator; samples belong to the caller. The path is borrowed until the
 * last sample is gone. Threads: one at a time; samples may be freed elsewhere.   Locks: none. Errors: what is
 * wrong with a shard comes as a bad sample, in its place, and ends the shard if nothing behind it can be
 * trusted: a sample is whole or bad, never shorter than it was written. Only -ECANCELED and what this process
 * lacks (-ENOMEM, -EMFILE, -ENFILE) are errors: they say nothing of the shard. Blocks: as the stream does. */
#ifndef PS_SHARD_SHARD_H
#define PS_SHARD_SHARD_H

#include "shard/index_writer.h"
#include "shard/sample.h"
#include "shard/source.h"
#include "shard/stream.h"
#include "shard/tar.h"

struct ps_shard_options {
	struct ps_stream_options stream;
	enum ps_source source;
	struct ps_windows windows; /* of token streams */
	/* Which fields' bytes the samples shall hold; NULL: all. Called on the reading thread. */
	bool (*wants)(void *ctx, const char *suffix, size_t len);
	void *wants_ctx;
	/* Memory for held bytes. Past it, fields of files that can be read again are left in the file; NULL:
	 * no limit. */
	struct ps_budget *budget;
	struct ps_slab_pool *slabs; /* where memory of small samples comes from; NULL: malloc */
	uint64_t max_sample_nbytes; /* of wanted fields; a larger sample is bad; 0: no limit */
	const char *index_dir;      /* of write_index; NULL: beside the shard */
	/* What the samples are compared with; one that differs ends the shard: it and those that the index knows
	 * behind it are bad, -ESTALE. Borrowed as long as the reader lives; NULL: nothing. */
	struct ps_index *check;
	bool recover;     /* where an index tells it, samples behind a damaged place are given, too */
	bool write_index; /* once the shard was read as a whole, if it has none that is good */
	bool never_hold;  /* for listing: no bytes at all */
	struct ps_index_writer
	        *index_writer; /* is told of every sample before it is given; NULL: nobody is */
	/* With never_hold: sees each file of a tar (sparse ones and those of no sample, too) before the sample
	 * that it belongs to is given, and may take its data by ps_tar_read(). What it returns below 0 ends the
	 * shard, as damage there does. NULL: nobody looks. */
	int (*on_member)(
	        void *ctx, struct ps_tar *tar, const struct ps_tar_member *member, struct ps_load_error *err);
	void *on_member_ctx;
};

struct ps_shard;

/* NULL: out of memory. Opens the file at the first ps_shard_next(). */
struct ps_shard *ps_shard_new(
        const char *path, uint32_t shard, const struct ps_shard_options *options, struct ps_load_error *err);

/* The same over a stream that the reader then owns; for tests and fuzzing. */
struct ps_shard *ps_shard_new_stream(struct ps_stream *stream, const struct ps_shard_options *options);

/* Before the first ps_shard_next(): begins with the sample of that ordinal. `offset` is its resume_offset, so
 * that nothing before it is read; 0, or a file that cannot seek: found by walking there. If reading fails on
 * the way, that sample is bad. */
void ps_shard_start_at(struct ps_shard *shard, uint64_t ordinal, uint64_t offset);

/* Whether the samples from the next on hold bytes; at first as never_hold says. Others are walked over. */
void ps_shard_hold(struct ps_shard *shard, bool hold);

/* 1 and the next sample, 0 at the end of the shard. */
int ps_shard_next(
        struct ps_shard *shard, struct ps_sample **ret_sample, struct ps_load_error *err) PS_MUST_USE;

/* After a bad sample, until the next call: -errno if reading failed there, 0 if that sample alone is bad.
 * *ret_garbage: the tar was whole; something else follows it. */
int ps_shard_failed(const struct ps_shard *shard, bool *ret_garbage);

/* Bytes that were read or skipped by now, decompressed. */
uint64_t ps_shard_offset(const struct ps_shard *shard);

/* As ps_stream_size(); -1, too, while the file is not open. */
int64_t ps_shard_size(const struct ps_shard *shard);

enum ps_shard_rest {
	PS_SHARD_GOES,  /* it can only be read on, or has not begun */
	PS_SHARD_RESTS, /* a new reader may begin with the next sample at *ret_offset (ps_shard_start_at()) */
	PS_SHARD_OVER,  /* ps_shard_next() would give 0 */
};

/* Whether the shard may be closed behind the sample that was given last. */
enum ps_shard_rest ps_shard_rest(const struct ps_shard *shard, uint64_t *ret_offset);

/* The index of write_index, as far as a shard that rests was read. */
struct ps_shard_byproduct {
	struct ps_index_writer *writer; /* NULL: there is none */
	struct ps_index_version version;
	uint64_t ordinal; /* of the sample that comes next */
};

/* Takes it from a shard that rests, to be given to the reader that goes on there before it begins; one that begins
 * elsewhere frees it. Whoever has it frees the writer. */
void ps_shard_byproduct_take(struct ps_shard *shard, struct ps_shard_byproduct *ret_byproduct);
void ps_shard_byproduct_give(struct ps_shard *shard, struct ps_shard_byproduct *byproduct);

void ps_shard_free(struct ps_shard *shard); /* NULL is allowed */

#endif
