/* Where the documents of a token file begin and end: from an index beside it, or from the token that ends each.
 *
 *   x.bin    x.idx         Megatron: sequences and documents, and the type of the tokens
 *   x.ds     x.ds.index    datatrove: ends of documents; x.ds.loss: a byte for each token, 0: its loss is not wanted
 *   others   none          an end token, looked for in the tokens of a piece
 *
 *   x.idx, little-endian, n sequences, d - 1 documents (a document may be several sequences):
 *     "MMIDIDX\0\0" | version u64: 1 | code u8 | n u64 | d u64 | lengths i32[n] | pointers i64[n] | documents i64[d]
 *   Lengths are in tokens, pointers in bytes of x.bin. documents[i] is the first sequence of document i; they begin
 *   with 0 and end with n.
 *
 * Opening reads the header and the ends of an index. The rest is checked where it is read for a piece, so neither
 * time nor memory grows with the corpus. The place of a piece is found by a search that interpolates.
 *
 * Ownership: the caller's.   Threads: any, once open.   Locks: none.   Blocks: on the disk.
 * Errors: -EBADMSG: the index is damaged; -EINVAL: it is of another kind; -ESTALE: it was replaced; -EOVERFLOW: a
 * document has too many tokens, or a piece too many empty documents; or the errno of reading. The text names the
 * index, and the number that is wrong. */
#ifndef PS_SHARD_TOKENS_DOCUMENTS_H
#define PS_SHARD_TOKENS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"

struct ps_documents;

/* Opens the index of a token file. *ret_documents NULL: there is none beside it. */
int ps_documents_open(
        const char *path, struct ps_documents **ret_documents, struct ps_error *err) PS_MUST_USE;
void ps_documents_close(struct ps_documents *documents); /* NULL is allowed */

/* True: the index says of which type the tokens are. */
bool ps_documents_type(const struct ps_documents *documents, enum ps_dtype *ret_dtype);

/* Compares the index with its token file: -EBADMSG unless it ends where the file's `ntokens` tokens end, of `item` bytes
 * each, and likewise for the file of losses. */
int ps_documents_fit(const struct ps_documents *documents, uint64_t ntokens, size_t item,
        struct ps_error *err) PS_MUST_USE;

/* Consecutive documents of a file. */
struct ps_document_list {
	uint64_t from, to; /* their tokens in the file */
	uint64_t first;    /* number of the first one in the file; the others follow; with an end token: 0 */
	uint32_t n;
	uint32_t *lens; /* tokens of each from `from` to `to`; 0: empty */
	bool continued; /* the first one begins before `from` */
	bool continues; /* the last one ends after `to` */
};

/* The documents in tokens `from` to `to` - 1 of the file, as far as they are in there; or, with `whole`, all tokens of
 * those that begin in there. `item`: as for ps_documents_fit(), which must have succeeded. */
int ps_documents_read(const struct ps_documents *documents, uint64_t from, uint64_t to, size_t item,
        bool whole, struct ps_document_list *ret_list, struct ps_error *err) PS_MUST_USE;

/* The same for `ntokens` tokens in memory, of `item` bytes each, which end with `end_token`: it is its document's last
 * token. `begins`: they begin with a document. `from` is 0. */
int ps_documents_scan(const uint8_t *tokens, uint64_t ntokens, size_t item, uint64_t end_token, bool begins,
        struct ps_document_list *ret_list, struct ps_error *err) PS_MUST_USE;

void ps_document_list_fini(struct ps_document_list *list);

/* True: there is a file of losses. */
bool ps_documents_has_loss(const struct ps_documents *documents);

/* Reads the losses of n tokens. */
int ps_documents_loss_read(const struct ps_documents *documents, uint64_t from, size_t n, uint8_t *ret_loss,
        struct ps_error *err) PS_MUST_USE;

#endif
