/* Token files whose documents are packed into rows.
 *
 *   rows.c       the rows of a stretch of a file, in their order
 *   packing.c    which rows there are, by the sizes of the files
 *   fit.c        the documents of a piece of a file, packed into its rows
 *   documents.c  where the documents of a piece begin and end
 *
 * This header has the first of these, and includes that of the second, for other folders.
 *
 * A row is a list of parts, consecutive tokens of one document each. A piece is read as a whole and packed once
 * (fit.h); its rows are given one after the other. Where the budget has no room for a piece's tokens, only its parts
 * are held, and each row's tokens are read when the row is decoded.
 *
 * Ownership: rows belong to their creator; each given row has a reference to its piece.
 * Threads: rows one at a time; pieces any.   Locks: none.   Blocks: on the disk.
 * Errors: -errno with a text that does not name the file. A piece that cannot be read fails for each of its rows; after
 * an error other than damage nothing more is read of the stretch. */
#ifndef PS_SHARD_TOKENS_TOKENS_H
#define PS_SHARD_TOKENS_TOKENS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shard/file/file.h"
#include "shard/tokens/packing.h"

/* A part of a row. */
struct ps_token_part {
	uint64_t at;       /* its first token in the file */
	uint64_t document; /* number of its document in the file */
	uint32_t len;      /* tokens */
	bool ends;         /* its last token is that of the document */
};

/* A piece that was read and packed. */
struct ps_token_piece {
	_Atomic uint32_t refs;
	struct ps_byte_budget *budget; /* counts `nbytes`; NULL: not counted */
	uint64_t nbytes;
	const struct ps_token_file *file;
	struct ps_token_spare *spare; /* gets the memory of `tokens`, ... */
	size_t tokens_nbytes;         /* ... of so many bytes */
	uint64_t from;                /* the first token of `tokens` in the file */
	uint8_t *tokens; /* from the piece's first token on, and one after its last; NULL: not held */
	uint8_t *loss; /* a byte for each token, 0: it does not count; NULL: not held, or the file has none */
	uint32_t nrows;
	uint32_t *begins; /* by row: its first part; nrows + 1 */
	struct ps_token_part *parts;
};

void ps_token_piece_ref(struct ps_token_piece *piece);
void ps_token_piece_unref(struct ps_token_piece *piece); /* NULL is allowed */

struct ps_rows_options {
	struct ps_packing *packing;
	uint32_t stretch;
	uint64_t epoch, pass;
	bool single; /* one row is read: its piece's tokens are not held, unless documents are found in them */
	struct ps_byte_budget *budget; /* NULL: all is held */
	const atomic_bool *stop;       /* NULL: never stops */
	struct ps_stream_meter *meter; /* NULL: not counted */
};

struct ps_rows;

struct ps_rows *ps_rows_new(const struct ps_rows_options *options); /* NULL: out of memory */
void ps_rows_free(struct ps_rows *rows);                            /* NULL is allowed */

struct ps_rows_row {
	struct ps_token_piece *piece; /* the caller's reference; NULL: not held */
	uint32_t number;              /* of the row in its piece */
	uint64_t offset;              /* of the piece in the file */
	uint64_t nbytes;              /* of the row's tokens */
};

/* The row `ordinal` of the stretch. `hold`: with its piece. *ret_row is set on errors, too, without a piece. */
int ps_rows_get(struct ps_rows *rows, uint64_t ordinal, bool hold, struct ps_rows_row *ret_row,
        struct ps_error *err) PS_MUST_USE;

/* A descriptor of the file, the rows' own; -1: it is not open. */
int ps_rows_fd(const struct ps_rows *rows);

/* The file's size; -1: it is not open. */
int64_t ps_rows_size(const struct ps_rows *rows);

/* The offset of the piece that was given last, or of the stretch. */
uint64_t ps_rows_offset(const struct ps_rows *rows);

/* The tokens of a row, for the thread that decodes it ---------------------------------------------------- */

/* Where a part's tokens are in memory: its `len` tokens, and the document's next one, unless the part ends it. */
struct ps_token_row {
	const struct ps_token_part *parts;
	uint32_t nparts;
	const uint8_t *tokens, *loss; /* loss NULL: all count */
	uint64_t from; /* token `at` of the file is the (at - from)-th of `tokens`; if not `gathered` */
	bool gathered; /* the parts follow each other, each with one token more */
};

/* Finds the tokens of a row. Those that are not held are read from `fd` to `scratch`. -EBADMSG: the file became
 * shorter. */
int ps_token_row_read(const struct ps_token_piece *piece, uint32_t row, int fd, struct ps_buf *scratch,
        struct ps_token_row *ret_row, struct ps_error *err) PS_MUST_USE;

#endif
