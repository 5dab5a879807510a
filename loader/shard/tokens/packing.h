/* Token files packed into rows: which rows there are, and where. All of it is arithmetic on the sizes of the
 * files, so that an order is known before anything is read.
 *
 *   file     | piece | piece | piece | piece | piece | short piece |
 *   shards   |  stretch              |  stretch                    |        of the order
 *   rows     a piece has a fixed number of rows, made of the documents in it (fit.h)
 *
 * A piece is a fixed number of tokens, so documents at its ends may be cut. A stretch is what the order calls a
 * shard: it is dealt to a lane as a whole, and a large file has many. In a stretch, the seed and the epoch
 * permute the pieces, and in a piece the documents and the rows:
 *
 *   length - slack    tokens for each row of a piece: the slack lets nearly all documents stay whole
 *   rows R            max(2^20 / length, 32) of a piece; the last piece of a file has as many as its tokens
 *                     fill, and what is left then, less than a row, is left out
 *   stretch           2^25 tokens, halved until the set has 1024 of them; a piece at least
 *
 * With PS_PACK_WHOLE, pieces are of the documents that begin in them, and their rows are counted when the
 * files' indexes are read, at open.
 *
 * Ownership: a packing belongs to its creator; it borrows the names of the files.
 * Threads: any, once made.   Locks: none.   Blocks: ps_packing_new() on the disk.
 * Errors: -errno with a text that names the file. */
#ifndef PS_SHARD_TOKENS_PACKING_H
#define PS_SHARD_TOKENS_PACKING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"
#include "shard/tokens/fit.h"

#define PS_PACK_NO_END (-1) /* end_token: none */

struct ps_documents;

struct ps_packing_options {
	enum ps_pack pack;
	enum ps_long_documents long_documents;
	uint32_t length; /* tokens of a row */
	int64_t end_token;
	/* type of tokens in files that do not tell it, and what all others must have; `typed` false: not given */
	enum ps_dtype dtype;
	bool typed;
	bool given; /* files of any name are of tokens; false: .bin, .ds and .npy */
	uint64_t seed;
	const char *suffix; /* of the samples' only member; borrowed */
};

struct ps_token_file {
	const char *path;
	struct ps_documents *documents; /* its index; NULL: its documents end with end_token */
	enum ps_dtype dtype;
	uint64_t nbytes; /* of the file, when it was opened */
	uint64_t begin;  /* offset of its first token */
	uint64_t ntokens;
	uint64_t nrows;
	uint64_t left_out; /* tokens in no row */
	uint32_t *
	        piece_rows; /* PS_PACK_WHOLE: the rows of each piece, before this one; npieces + 1; else NULL */
};

struct ps_token_stretch {
	uint32_t file;
	uint32_t npieces;
	uint64_t first_piece; /* in the file ... */
	uint64_t first_row;   /* ... and the rows before it */
	uint32_t nrows;
};

/* What is left out of a set of files. */
struct ps_packing_set {
	uint64_t ntokens, left_out; /* tokens, and those of them in no row */
	uint64_t nrows;
};

struct ps_token_spare;

struct ps_packing {
	struct ps_packing_options o;
	uint32_t slack;
	uint32_t piece_rows;   /* rows of a piece; PS_PACK_WHOLE: not used */
	uint64_t piece_tokens; /* tokens of a piece */
	struct ps_token_file *files;
	uint32_t nfiles;
	struct ps_token_stretch *stretches; /* by file, and there by place */
	uint32_t nstretches;
	char **names;      /* the file of each stretch; borrowed */
	uint32_t *file_of; /* its number */
	struct ps_packing_set *sets;
	uint32_t nsets;
	struct ps_token_spare *spare; /* memory of pieces that are not used any more */
	_Atomic uint64_t counted;     /* PS_PACK_WHOLE: documents counted so far */
	/* Of the pieces that were read: documents of more than a row, and empty ones. Relaxed atomics: counters. */
	_Atomic uint64_t long_documents, empty_documents;
};

/* Opens the files (with threads, as they may be remote) and counts their rows. `ends`: the end of each set in the
 * list of files, which are replaced by the ends in the list of stretches. -ENODATA: a set has no row. */
int ps_packing_new(const struct ps_packing_options *options, char *const *files, size_t nfiles, size_t *ends,
        uint32_t nsets, struct ps_packing **ret_packing, struct ps_error *err) PS_MUST_USE;
void ps_packing_free(struct ps_packing *packing); /* NULL is allowed */

/* Memory of pieces that are not used any more, for later ones: touching new memory costs more than reading into it. With
 * the pieces in use it is never more than pieces used at once before, which their budget allowed. Threads: any. Locks: its
 * own, a leaf. */
struct ps_token_spare *ps_token_spare_new(void);                                /* NULL: out of memory */
void ps_token_spare_free(struct ps_token_spare *spare);                         /* NULL is allowed */
void *ps_token_spare_take(struct ps_token_spare *spare, size_t nbytes);         /* NULL: out of memory */
void ps_token_spare_give(struct ps_token_spare *spare, void *p, size_t nbytes); /* p NULL is allowed */

/* The tokens of a row that the packing fills beyond `length` - slack in the mean. */
uint32_t ps_packing_slack(enum ps_pack pack, uint32_t length);

/* A piece of a file: its tokens, and its rows. */
struct ps_piece_place {
	uint64_t from, to; /* tokens of the file */
	uint32_t nrows;
};

struct ps_piece_place ps_packing_piece(const struct ps_packing *packing, uint32_t file, uint64_t piece);

/* The order of a stretch's pieces in an epoch: place i has piece ret_pieces[i] of the stretch. `pass` counts the
 * times that the epoch reads the stretch. */
void ps_packing_order(const struct ps_packing *packing, uint32_t stretch, uint64_t epoch, uint64_t pass,
        uint32_t *ret_pieces);

/* The offset of the piece with row `ordinal` of a stretch, in an epoch and pass, and the bytes that are read of it.
 * For ps_planner_parts: `packing` is a struct ps_packing. */
void ps_packing_place(void *packing, uint32_t stretch, uint64_t epoch, uint64_t pass, uint64_t ordinal,
        uint64_t *ret_offset, uint64_t *ret_nbytes);

#endif
