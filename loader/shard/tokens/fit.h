/* Packs the documents of one piece of a token file into rows: a pure function of the key and the documents'
 * lengths, in integers, without a table or a state.
 *
 * This text is the definition; states depend on it, so a change needs a new ORDER_VERSION. L is the length of a
 * row, R the number of rows.
 *
 *   random numbers  64 bits at a time: the splitmix64 generator (Steele, Lea, Flood 2014), begun with
 *                   ps_rng_u64(key, PS_RNG_PACK, 0). Below n: the high half of the number times n.
 *   documents       permuted (Fisher-Yates from the last place down). Empty ones are in no row.
 *   CONCAT          the documents one after the other, cut every L tokens.
 *   FIT             1. Whole rows are cut off the front of documents of L or more, in the permuted order.
 *                   2. What is left of them, and the shorter documents, go by class, largest first, in the
 *                      permuted order within a class. The class is the two leading bits of the length.
 *                      Each goes to the row with the least room that holds it, of those the one filled last; if
 *                      none does, to a new row. With R rows begun, it is put aside.
 *                   3. What is still free is more than what was put aside by the slack, R L less all tokens.
 *                      Rows with the least room keep it as padding, while their room together is within the
 *                      slack. What was put aside is cut into the rows with the most room, those filled last first.
 *   WHOLE           as FIT, with as many rows as are needed and the exact length as the class; so the number of
 *                   rows is a function of the lengths alone. First, a document longer than L is split (as in
 *                   step 1), truncated to L, or dropped.
 *   rows            permuted, with the generator's next numbers.
 *
 *     row 3  | document 7       | document 2    | 0 |padding|
 *     row 4  | document 5, from its token 8192 on           |
 *
 * Ownership: a result belongs to the caller, until ps_fit_fini().   Threads: any.   Locks: none.
 * Blocks: never; 30 to 50 ns for each document. Memory: 40 bytes for each document, of which 16 are the
 * result's, at most 64 for each row, and 4 for each token of L.
 * Errors: -ENOMEM; -EOVERFLOW: more than 2^31 tokens in the piece or a document. */
#ifndef PS_SHARD_TOKENS_FIT_H
#define PS_SHARD_TOKENS_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "random/random.h"

/* As enum penstock_pack and penstock_long_documents. */
enum ps_pack {
	PS_PACK_NONE,
	PS_PACK_CONCAT,
	PS_PACK_FIT,
	PS_PACK_WHOLE,
};

enum ps_long_documents {
	PS_LONG_UNSET,
	PS_LONG_SPLIT,
	PS_LONG_TRUNCATE,
	PS_LONG_DROP,
};

#define PS_PACK_MAX_LENGTH (1u << 20) /* tokens of a row */
#define PS_PACK_MAX_TOKENS (1u << 31) /* tokens of a piece's documents */

struct ps_fit_options {
	enum ps_pack pack;
	enum ps_long_documents long_documents; /* WHOLE */
	uint32_t length;                       /* tokens of a row */
	/* rows; CONCAT and FIT. All documents together have at most rows * length tokens. */
	uint32_t rows;
	struct ps_rng_key key; /* seed, epoch, stretch and piece */
};

/* Consecutive tokens of a document in a row. */
struct ps_fit_part {
	uint32_t from;     /* its first token, from the piece's first one on */
	uint32_t len;      /* tokens, at least 1 */
	uint32_t document; /* the nth length, from 0 */
	bool continued;    /* it does not begin with the document's first token */
	bool continues;    /* it does not end with the document's last token */
};

struct ps_fit {
	uint32_t rows;
	uint32_t *
	        begins; /* the first part of each row, and the end: rows + 1; a row's parts follow each other */
	struct ps_fit_part *parts;
	uint32_t left_out; /* WHOLE: tokens that were truncated or dropped */
};

/* Packs documents of `n` lengths, of which the first may be the rest of a document and the last a beginning: the caller
 * knows, and `continued` and `continues` do not count it. */
int ps_fit_pack(const struct ps_fit_options *options, const uint32_t *lens, uint32_t n,
        struct ps_fit *ret_fit, struct ps_error *err) PS_MUST_USE;
void ps_fit_fini(struct ps_fit *fit);

/* WHOLE: the rows that ps_fit_pack() would fill, with any key. */
int ps_fit_count(const struct ps_fit_options *options, const uint32_t *lens, uint32_t n, uint32_t *ret_rows,
        struct ps_error *err) PS_MUST_USE;

#endif
