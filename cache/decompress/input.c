/* Compressed bytes of a decompressor: pieces asked for ahead, used in order. Deeper while decoding waits for
 * them. */
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

static void piece_progress(struct ps_origin_get *get, size_t nbytes_so_far);
static void piece_done(struct ps_origin_get *get, const struct ps_error *err);

static struct ps_packed_piece *piece_take(struct ps_decompress *inflate)
{
	struct ps_packed_piece *piece = inflate->free_pieces;

	if (piece) {
		inflate->free_pieces = piece->next_free;
		inflate->nfree_pieces--;
		return piece;
	}
	piece = calloc(1, sizeof *piece);
	if (piece && !(piece->data = malloc(PS_PIECE_NBYTES))) {
		free(piece);
		return NULL;
	}
	return piece;
}

static void piece_put(struct ps_decompress *inflate, struct ps_packed_piece *piece)
{
	piece->next_free = inflate->free_pieces;
	inflate->free_pieces = piece;
	inflate->nfree_pieces++;
}

static void piece_submit(struct ps_decompressor *decompressor, struct ps_packed_piece *piece)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_input *in = &decompressor->input;
	uint64_t nbytes = PS_MIN(PS_PIECE_NBYTES, in->end - in->next);

	piece->decompressor = decompressor;
	piece->filled = piece->counted = 0;
	piece->pending = true;
	piece->iov = (struct iovec){.iov_base = piece->data, .iov_len = nbytes};
	memset(&piece->get, 0, sizeof piece->get);
	piece->get.url = inflater->url;
	piece->get.expect = inflater->expect;
	piece->get.offset = in->next;
	piece->get.nbytes = nbytes;
	piece->get.iov = &piece->iov;
	piece->get.niov = 1;
	piece->get.progress = piece_progress;
	piece->get.done = piece_done;
	in->pieces[in->npieces++] = piece;
	in->next += nbytes;
	decompressor->npending++;
	inflater->base->ops->get(inflater->base, &piece->get);
}

/* Asks for more, as far as it may. */
static void fill(struct ps_decompressor *decompressor)
{
	struct ps_decompress *inflate = decompressor->inflater->inflate;
	struct ps_input *in = &decompressor->input;

	while (in->npieces < in->depth && in->next < in->end && !in->err.err &&
	        !decompressor->inflater->aborted) {
		struct ps_packed_piece *piece = piece_take(inflate);

		if (!piece) {
			/* With none at all nothing would wake the decompressor but the time for another attempt.
			 */
			if (in->npieces == 0) {
				ps_error_set(&in->err, ENOMEM, "out of memory");
				in->err.retryable = true;
			}
			return;
		}
		piece_submit(decompressor, piece);
	}
}

/* More of them at once, if memory allows. */
static void deepen(struct ps_decompressor *decompressor)
{
	struct ps_input *in = &decompressor->input;
	unsigned more = PS_MIN(in->depth, PS_PIECES_MAX - in->depth);

	if (in->npieces < in->depth || more == 0 || !ps_decompressor_reserve(decompressor, more * PS_PIECE_NBYTES))
		return;
	in->depth += more;
}

static void drop_head(struct ps_decompressor *decompressor)
{
	struct ps_input *in = &decompressor->input;

	piece_put(decompressor->inflater->inflate, in->pieces[0]);
	in->npieces--;
	memmove(&in->pieces[0], &in->pieces[1], in->npieces * sizeof in->pieces[0]);
}

/* Pieces that are used up, and of which nothing more is to come. */
static void drop_used(struct ps_decompressor *decompressor)
{
	struct ps_input *in = &decompressor->input;

	while (in->npieces && !in->pieces[0]->pending &&
	        in->at == in->pieces[0]->get.offset + in->pieces[0]->get.nbytes)
		drop_head(decompressor);
	fill(decompressor);
}

size_t ps_input_peek(struct ps_decompressor *decompressor, const uint8_t **ret)
{
	struct ps_input *in = &decompressor->input;

	drop_used(decompressor);
	if (in->npieces == 0)
		return 0;
	const struct ps_packed_piece *head = in->pieces[0];
	size_t used = (size_t)(in->at - head->get.offset);
	if (head->filled == used && head->pending) {
		deepen(decompressor);
		fill(decompressor);
	}
	*ret = head->data + used;
	return head->filled - used;
}

void ps_input_consume(struct ps_decompressor *decompressor, size_t nbytes)
{
	decompressor->input.at += nbytes;
	drop_used(decompressor);
}

void ps_input_cancel(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;

	for (unsigned i = 0; i < decompressor->input.npieces; i++)
		if (decompressor->input.pieces[i]->pending)
			inflater->base->ops->cancel(inflater->base, &decompressor->input.pieces[i]->get);
}

void ps_input_again(struct ps_decompressor *decompressor)
{
	ps_input_fini(decompressor);
	decompressor->input.err = (struct ps_error){0};
	decompressor->input.next = decompressor->input.at;
	fill(decompressor);
}

void ps_input_fini(struct ps_decompressor *decompressor)
{
	while (decompressor->input.npieces)
		drop_head(decompressor);
}

/* Where the listing told no ETag, the first response does; later ones have to agree. */
static bool same_version(struct ps_decompressing *inflater, const struct ps_origin_get *get)
{
	const char *seen = get->seen.etag;

	if (!inflater->expect.etag[0])
		memcpy(inflater->expect.etag, seen, sizeof inflater->expect.etag);
	return seen[0] != '"' || inflater->expect.etag[0] != '"' || strcmp(seen, inflater->expect.etag) == 0;
}

/* The lock is held. */
static void arrived(struct ps_packed_piece *piece, size_t nbytes)
{
	struct ps_decompressor *decompressor = piece->decompressor;
	struct ps_input *in = &decompressor->input;

	if (!same_version(decompressor->inflater, &piece->get)) {
		if (!in->err.err)
			ps_error_set(&in->err, ESTALE, "%s: the origin has another version",
			        decompressor->inflater->url);
	} else {
		piece->filled = nbytes;
	}
	if (decompressor->state == PS_DECOMPRESSOR_INPUT && in->npieces && in->pieces[0] == piece)
		ps_decompressor_wake(decompressor);
}

/* So many bytes have come; from the transfer's thread. */
static void count(struct ps_packed_piece *piece, uint64_t nbytes)
{
	struct ps_decompress *inflate = piece->decompressor->inflater->inflate;

	if (nbytes <= piece->counted)
		return;
	ps_fill_count_bytes(inflate->fill, nbytes - piece->counted);
	atomic_fetch_add(&inflate->packed_bytes, nbytes - piece->counted);
	piece->counted = nbytes;
}

static void piece_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	struct ps_packed_piece *piece = (struct ps_packed_piece *)get;

	count(piece, nbytes_so_far);
	PS_LOCK_SCOPE(&piece->decompressor->inflater->inflate->lock);
	arrived(piece, nbytes_so_far);
}

static void piece_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_packed_piece *piece = (struct ps_packed_piece *)get;
	struct ps_decompressor *decompressor = piece->decompressor;
	struct ps_decompress *inflate = decompressor->inflater->inflate;

	count(piece, get->wire_nbytes);
	ps_fill_count_request(inflate->fill, err->err && err->err != ECANCELED);
	ps_fill_count_answer(inflate->fill, get->first_byte_ns);
	ps_decompressing_proved(decompressor->inflater, get);
	PS_LOCK_SCOPE(&inflate->lock);
	piece->pending = false;
	decompressor->npending--;
	if (get->nbytes_done > 0)
		arrived(piece, get->nbytes_done);
	if (get->nbytes_done == get->nbytes)
		decompressor->attempts = 0;
	else if (!decompressor->input.err.err)
		decompressor->input.err = *err;
	if (get->nbytes_done < get->nbytes && !decompressor->input.err.err) {
		ps_error_set(
		        &decompressor->input.err, EPROTO, "%s: the origin ended early", decompressor->inflater->url);
		decompressor->input.err.retryable = true;
	}
	if (decompressor->state == PS_DECOMPRESSOR_INPUT)
		ps_decompressor_wake(decompressor);
	/* Somebody has to free it. */
	if (decompressor->state == PS_DECOMPRESSOR_ENDING && decompressor->npending == 0)
		ps_decompressing_wake(decompressor->inflater);
}
