/* Compressed bytes of a decompressor: pieces are requested ahead and used in order. When decoding has to wait
 * for one, the number of pieces that are requested ahead is doubled. */
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Pieces that have arrived ------------------------------------------------------------------------------- */

static void drop_head(struct ps_decompressor *decompressor)
{
	struct ps_input *in = &decompressor->input;

	ps_spare_put(decompressor->shard->stage, in->pieces[0]->data, PS_PIECE_NBYTES);
	free(in->pieces[0]);
	in->npieces--;
	memmove(&in->pieces[0], &in->pieces[1], in->npieces * sizeof(in->pieces[0]));
}

size_t ps_input_peek(struct ps_decompressor *decompressor, const uint8_t **ret)
{
	struct ps_input *in = &decompressor->input;

	/* Frees pieces that are used up and whose requests have ended. */
	while (in->npieces && !in->pieces[0]->pending &&
	        in->at == in->pieces[0]->get.offset + in->pieces[0]->get.nbytes)
		drop_head(decompressor);
	if (in->npieces == 0)
		return 0;
	const struct ps_packed_piece *head = in->pieces[0];
	size_t used = (size_t)(in->at - head->get.offset);
	*ret = head->data + used;
	return head->filled - used;
}

void ps_input_cancel(struct ps_decompressor *decompressor)
{
	struct ps_origin *base = decompressor->shard->base;

	for (unsigned i = 0; i < decompressor->input.npieces; i++)
		if (decompressor->input.pieces[i]->pending)
			base->ops->cancel(base, &decompressor->input.pieces[i]->get);
}

void ps_input_reset(struct ps_decompressor *decompressor)
{
	while (decompressor->input.npieces)
		drop_head(decompressor);
	decompressor->input.err = (struct ps_error){0};
	decompressor->input.next = decompressor->input.at;
}

/* Answers of the origin, on its threads ------------------------------------------------------------------ */

/* Bytes of a piece have arrived. Under the lock. */
static void arrived(struct ps_packed_piece *piece, size_t nbytes)
{
	struct ps_decompressor *decompressor = piece->decompressor;
	struct ps_input *in = &decompressor->input;
	char *expect = decompressor->shard->expect.etag;
	const char *seen = piece->get.seen.etag;

	/* The first response gives the ETag that the listing lacked; later ones have to agree. */
	if (!expect[0])
		memcpy(expect, seen, sizeof(decompressor->shard->expect.etag));
	if (seen[0] != '"' || expect[0] != '"' || strcmp(seen, expect) == 0)
		piece->filled = nbytes;
	else if (!in->err.err)
		ps_error_set(
		        &in->err, ESTALE, "%s: the origin has another version", decompressor->shard->url);
	if (decompressor->state == PS_DECOMPRESSOR_INPUT && in->npieces && in->pieces[0] == piece)
		ps_decompressor_wake(decompressor);
}

/* Counts received bytes. Only the thread that receives the piece calls this. */
static void count(struct ps_packed_piece *piece, uint64_t nbytes)
{
	struct ps_decompress *stage = piece->decompressor->shard->stage;
	uint64_t of_tiers = piece->get.work.tier_nbytes - piece->counted_of_tiers;

	if (nbytes <= piece->counted)
		return;
	of_tiers = PS_MIN(of_tiers, nbytes - piece->counted);
	piece->counted_of_tiers += of_tiers;
	ps_fill_count_bytes(stage->fill, nbytes - piece->counted - of_tiers, of_tiers);
	atomic_fetch_add(&stage->counters.packed_bytes, nbytes - piece->counted);
	piece->counted = nbytes;
}

static void on_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	struct ps_packed_piece *piece = (struct ps_packed_piece *)get;

	count(piece, nbytes_so_far);
	PS_LOCK_SCOPE(&piece->decompressor->shard->stage->lock);
	arrived(piece, nbytes_so_far);
}

static void on_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_packed_piece *piece = (struct ps_packed_piece *)get;
	struct ps_decompressor *decompressor = piece->decompressor;
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;
	struct ps_input *in = &decompressor->input;

	count(piece, get->wire_nbytes);
	ps_fill_count_request(stage->fill, err->err && err->err != ECANCELED);
	ps_fill_count_answer(stage->fill, get->first_byte_ns);
	ps_decompressing_proved(shard, get);
	ps_decompressing_note(shard, err);
	PS_LOCK_SCOPE(&stage->lock);
	piece->pending = false;
	decompressor->npending--;
	if (get->nbytes_done > 0)
		arrived(piece, get->nbytes_done);
	if (get->nbytes_done == get->nbytes)
		decompressor->attempts = 0;
	else if (!in->err.err)
		in->err = *err;
	if (get->nbytes_done < get->nbytes && !in->err.err) {
		ps_error_set(&in->err, EPROTO, "%s: the origin ended early", shard->url);
		in->err.retryable = true;
	}
	if (decompressor->state == PS_DECOMPRESSOR_INPUT)
		ps_decompressor_wake(decompressor);
	/* One of the stage's threads frees the decompressor. */
	if (decompressor->state == PS_DECOMPRESSOR_ENDING && decompressor->npending == 0)
		ps_decompressing_wake(shard);
}

/* Requests ----------------------------------------------------------------------------------------------- */

/* Requests a piece. Drops the lock. */
static void request(struct ps_decompressor *decompressor, struct ps_packed_piece *piece)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_input *in = &decompressor->input;
	uint64_t nbytes = PS_MIN(PS_PIECE_NBYTES, in->end - in->next);

	piece->decompressor = decompressor;
	piece->pending = true;
	piece->iov = (struct iovec){.iov_base = piece->data, .iov_len = nbytes};
	piece->get = (struct ps_origin_get){.url = shard->url,
	        .expect = shard->expect,
	        .offset = in->next,
	        .nbytes = nbytes,
	        .iov = &piece->iov,
	        .niov = 1,
	        .progress = on_progress,
	        .done = on_done};
	in->pieces[in->npieces++] = piece;
	in->next += nbytes;
	decompressor->npending++;
	/* The decompressor is RUNNING until this returns, so no other thread cancels a piece that is not
	 * submitted. */
	pthread_mutex_unlock(&shard->stage->lock);
	shard->base->ops->get(shard->base, &piece->get);
	pthread_mutex_lock(&shard->stage->lock);
}

/* Requests as many pieces as are allowed. True: the lock was dropped meanwhile. */
static bool fill(struct ps_decompressor *decompressor)
{
	struct ps_input *in = &decompressor->input;
	bool dropped = false;

	while (in->npieces < in->depth && in->next < in->end && !in->err.err &&
	        !decompressor->shard->aborted) {
		struct ps_packed_piece *piece = calloc(1, sizeof(*piece));

		if (piece && !(piece->data = ps_spare_take(decompressor->shard->stage, PS_PIECE_NBYTES)))
			free(ps_steal_ptr(&piece));
		if (piece) {
			request(decompressor, piece);
			dropped = true;
			continue;
		}
		/* Without any piece under way nothing would wake the decompressor: this is a retryable
		 * failure, so that the timer of the next attempt does. */
		if (in->npieces == 0) {
			ps_error_set(&in->err, ENOMEM, "out of memory");
			in->err.retryable = true;
		}
		break;
	}
	return dropped;
}

bool ps_input_request(struct ps_decompressor *decompressor, bool deeper)
{
	struct ps_input *in = &decompressor->input;
	bool dropped = fill(decompressor);

	if (deeper && in->npieces && in->pieces[0]->pending) {
		unsigned more = PS_MIN(in->depth, PS_PIECES_MAX - in->depth);

		if (in->npieces >= in->depth && more > 0 &&
		        ps_decompressor_reserve(decompressor, more * PS_PIECE_NBYTES))
			in->depth += more;
		dropped = fill(decompressor) || dropped;
	}
	return dropped;
}
