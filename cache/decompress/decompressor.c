/* Decompressors: each decodes one stretch of a shard, on one thread at a time, as its compressed bytes
 * arrive. A turn ends by parking, at the end of the stretch, or with a failure; stage.c decides what
 * follows. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

#define SLICE_NBYTES (4 * PS_BLOCK_SIZE) /* limit of a turn's plain bytes while other work is queued */
#define BACKOFF_FIRST_MS UINT64_C(100)
#define BACKOFF_MAX_MS UINT64_C(10000)

/* Failures ----------------------------------------------------------------------------------------------- */

/* The plain offset up to which bytes count as damaged: the end of the damaged frame, or the end of the shard
 * if the map does not have the frame's end. The search in the map begins at out.safe: bytes before it were
 * handed out, and an end before it would leave the following bytes without an error. */
static uint64_t end_of_damage(const struct ps_decompressor *decompressor)
{
	const struct ps_frame_map *map = &decompressor->shard->map;
	uint64_t at = decompressor->in_frame ? PS_MAX(decompressor->frame_plain, decompressor->out.safe)
	                                     : decompressor->out.pos; /* a bad header */
	size_t i = map->n ? ps_frame_map_find(map, at) + 1 : 0;

	return decompressor->sizes || i >= map->n ? UINT64_MAX : map->points[i].plain;
}

/* Records damage as the shard's and the turn's failure. The lock is held, and dropped meanwhile. */
static enum ps_turn damaged(
        struct ps_decompressor *decompressor, int errnum, const char *what, struct ps_failure *ret)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;
	/* True if a part of this frame was handed out before the frame ended: that part is in the cache, and
	 * may be wrong. */
	bool drop = decompressor->in_frame && decompressor->out.safe > decompressor->frame_plain;
	struct ps_object *object = drop ? ps_decompressing_hold(shard) : NULL;

	ps_error_set(&ret->err, errnum, "%s: at offset %" PRIu64 " (%" PRIu64 " when decoded): %s",
	        shard->url, decompressor->input.at, decompressor->out.pos, what);
	pthread_mutex_unlock(&stage->lock);
	ps_log_warning("decompress: %s", ret->err.text);
	atomic_fetch_add(&stage->counters.errors, 1);
	/* Waits for writes first: a write after the eviction would be refused as if the disk had failed. */
	ps_writes_wait(shard);
	if (object && ps_object_evict(object, NULL) < 0)
		ps_log_warning("decompress: %s: its cached bytes may be damaged, too", shard->url);
	ps_object_put(object);
	pthread_mutex_lock(&stage->lock);
	shard->bad = ret->err;
	shard->bad_range.from = decompressor->sizes ? 0 : decompressor->out.safe;
	shard->bad_range.end = end_of_damage(decompressor);
	shard->bad_until_ns = ps_clock_mono_ns() + PS_DECOMPRESS_BAD_NS;
	ret->end = PS_MIN(decompressor->end, shard->bad_range.end);
	return PS_TURN_FAILED;
}

/* Parks the decompressor for another attempt at the same place, if the failure is worth one. The lock is
 * held. */
static enum ps_turn origin_failed(struct ps_decompressor *decompressor, struct ps_failure *ret)
{
	struct ps_decompressing *shard = decompressor->shard;
	const struct ps_error *err = &decompressor->input.err;
	uint64_t ms = PS_MIN(BACKOFF_FIRST_MS << PS_MIN(decompressor->attempts, 10u), BACKOFF_MAX_MS);

	ps_input_cancel(decompressor);
	decompressor->attempts++;
	/* After the last attempt the gets fail; the engine, which knows whether a reader still waits,
	 * repeats them. */
	if (!err->retryable || (decompressor->attempts > PS_DECOMPRESS_ATTEMPTS &&
	                               !(decompressor->sizes && shard->waiters))) {
		*ret = (struct ps_failure){.err = *err, .end = decompressor->end};
		return PS_TURN_FAILED;
	}
	ps_log_debug("decompress: %s: offset %" PRIu64 ": attempt %u failed: %s", shard->url,
	        decompressor->input.at, decompressor->attempts, err->text);
	decompressor->state = PS_DECOMPRESSOR_RETRY;
	decompressor->retry_ns = ps_clock_mono_ns() + PS_MAX(ms, err->retry_after_ms) * PS_NS_PER_MS;
	return PS_TURN_PARKED;
}

/* Frames ------------------------------------------------------------------------------------------------- */

/* Makes room in the buffer for `nbytes` at once. The lock is not held. */
static bool make_room_for(struct ps_decompressor *decompressor, uint64_t nbytes)
{
	const struct ps_out *out = &decompressor->out;

	if (nbytes > out->base + out->cap - out->pos) {
		{
			PS_LOCK_SCOPE(&decompressor->shard->stage->lock);
			ps_out_deliver(decompressor);
		}
		ps_out_flush(decompressor, false);
	}
	return ps_out_grow(decompressor, nbytes) == 0;
}

/* Reserves memory for the frame's window. 0; -EAGAIN: not now; -E2BIG: never. */
static int take_window(struct ps_decompressor *decompressor)
{
	struct ps_decompress *stage = decompressor->shard->stage;
	uint64_t need = ps_decoder_nbytes(decompressor->decoder);

	if (need > stage->limit / 2)
		return -E2BIG;
	if (need <= decompressor->window)
		return 0;
	if (!ps_decompress_reserve(stage, need - decompressor->window))
		return -EAGAIN;
	decompressor->charge += need - decompressor->window;
	decompressor->window = need;
	return 0;
}

/* The size that the first header declared is wrong. Open handles get EIO before they reach that size; later
 * lookups wait until the whole shard was decoded. The lock is held, and dropped meanwhile. */
static void disproved(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;
	uint64_t node = 0;

	pthread_mutex_unlock(&stage->lock);
	int rc = ps_index_new_node(ps_store_index(stage->store), &node);
	pthread_mutex_lock(&stage->lock);
	if (rc < 0)
		return;
	shard->nodes_below = node;
	shard->map.n = PS_MIN(shard->map.n, (size_t)1);
	shard->disproved = true;
	ps_decompressing_save(shard);
}

/* Prepares a frame whose header was read; called again once memory is free. The lock is held, and dropped
 * meanwhile. */
static enum ps_turn frame_begins(struct ps_decompressor *decompressor, struct ps_failure *ret)
{
	const struct ps_frame_header *frame = ps_decoder_frame(decompressor->decoder);
	uint64_t content = frame->content_nbytes, size = decompressor->size, at = decompressor->out.pos;

	decompressor->frame_plain = at;
	decompressor->hold_end = 0;
	decompressor->in_frame = true;
	if (!frame->skippable && size != PS_SIZE_UNKNOWN && content != 0 &&
	        (at >= size || (content != UINT64_MAX && content > size - at))) {
		if (!decompressor->declared)
			return damaged(decompressor, EIO,
			        "a frame holds more than is left of the decoded size", ret);
		disproved(decompressor);
		return damaged(decompressor, EIO,
		        "more frames follow the first, whose header declared the size; the size is "
		        "determined again",
		        ret);
	}
	int rc = take_window(decompressor);
	if (rc == -EAGAIN) {
		decompressor->state = PS_DECOMPRESSOR_MEMORY;
		return PS_TURN_NO_ROOM;
	}
	if (rc < 0) {
		char text[160];

		snprintf(text, sizeof(text),
		        "decoding takes a window of %" PRIu64
		        " MiB, more than a sixth of the memory; raise --memory",
		        ps_decoder_nbytes(decompressor->decoder) / PS_MIB);
		return damaged(decompressor, EFBIG, text, ret);
	}
	decompressor->header = false;
	if (frame->skippable || content > PS_HOLD_NBYTES)
		return PS_TURN_GOES_ON;
	pthread_mutex_unlock(&decompressor->shard->stage->lock);
	bool whole = make_room_for(decompressor, content + 1);
	pthread_mutex_lock(&decompressor->shard->stage->lock);
	if (whole) {
		ps_decoder_in_place(decompressor->decoder);
		/* while the size is being found, no get is answered before the whole shard was decoded
		 * without error */
		if (!decompressor->sizes)
			decompressor->hold_end = decompressor->frame_plain + content;
	}
	return PS_TURN_GOES_ON;
}

/* True if the map has a frame at this place, or does not reach this far yet. The lock is held. */
static bool agrees(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	const struct ps_frame_map *map = &shard->map;

	if (!map->n)
		return true;
	/* The last point at or before this plain offset; frames without content share an offset. */
	size_t i = ps_frame_map_find(map, decompressor->out.pos);
	while (i > 0 && map->points[i].packed > decompressor->input.at)
		i--;
	if (map->points[i].packed == decompressor->input.at)
		return map->points[i].plain == decompressor->out.pos;
	/* A place after the last known point is accepted, unless the map is complete. */
	return !map->whole && i + 1 == map->n;
}

static uint64_t before_last_chunk(const struct ps_decompressor *decompressor)
{
	uint64_t pos = decompressor->out.pos;

	return pos ? (pos - 1) / PS_CHUNK_SIZE * PS_CHUNK_SIZE : 0;
}

/* A frame has ended. The lock is held, and dropped after damage. */
static enum ps_turn frame_ends(struct ps_decompressor *decompressor, struct ps_failure *ret)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_out *out = &decompressor->out;

	decompressor->in_frame = false;
	decompressor->hold_end = 0;
	if (!agrees(decompressor))
		return damaged(decompressor, EIO, "a frame ends where the table of frames has no end", ret);
	/* Only a decompressor that runs to the end of the shard extends the map; it began at zero or at a
	 * point of the map. */
	if (!shard->map.whole && decompressor->end == UINT64_MAX)
		ps_frame_map_add(&shard->map, decompressor->input.at, out->pos);
	/* A size that only the first header declared is certain once no frame follows. Until then only the
	 * last chunk is held back; with more held back there might be no room for the next header. */
	if (decompressor->declared && out->pos == decompressor->size)
		out->safe = PS_MAX(out->safe, before_last_chunk(decompressor));
	else
		out->safe = out->pos;
	return PS_TURN_GOES_ON;
}

/* The stretch has no more compressed bytes. The lock is held, and dropped meanwhile. */
static enum ps_turn end_of_input(struct ps_decompressor *decompressor, struct ps_failure *ret)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_out *out = &decompressor->out;
	struct ps_frame_map *map = &shard->map;
	bool to_the_end = decompressor->end == UINT64_MAX;
	uint64_t expect = to_the_end ? decompressor->size : decompressor->end;

	if (!ps_decoder_may_end(decompressor->decoder))
		return damaged(decompressor, EIO,
		        decompressor->input.at == 0 ? "it is empty" : "it ends in the middle of a frame",
		        ret);
	if (expect != PS_SIZE_UNKNOWN && out->pos != expect)
		return damaged(decompressor, EIO, "it holds less than its headers declare", ret);
	out->safe = out->pos;
	if (to_the_end && map->n && !map->whole && !map->gap && map->n < PS_FRAME_MAP_MAX) {
		/* The last point becomes the end of the file: skippable frames or padding may follow the last
		 * frame, for which frame_ends() has added a point. */
		ps_frame_map_add(map, decompressor->input.at, out->pos);
		if (!map->gap) {
			map->points[map->n - 1].packed = decompressor->input.at;
			map->whole = map->n >= 2;
		}
	}
	if (decompressor->sizes)
		return PS_TURN_DECODED;
	ps_out_deliver(decompressor);
	pthread_mutex_unlock(&shard->stage->lock);
	ps_out_flush(decompressor, true);
	pthread_mutex_lock(&shard->stage->lock);
	ps_decompressing_save(shard);
	return PS_TURN_DECODED;
}

/* Turns -------------------------------------------------------------------------------------------------- */

/* One step of the decoder. The lock is held, and dropped meanwhile. */
static enum ps_turn decode(
        struct ps_decompressor *decompressor, const uint8_t *in, size_t nin, struct ps_failure *ret)
{
	struct ps_decompress *stage = decompressor->shard->stage;
	struct ps_out *out = &decompressor->out;
	enum ps_decode_event event = PS_DECODE_MORE;
	enum ps_turn turn = PS_TURN_GOES_ON;
	struct ps_error err = {0};
	size_t used = 0, made = 0;
	int rc = 0;

	pthread_mutex_unlock(&stage->lock);
	bool room = out->pos < out->base + out->cap || make_room_for(decompressor, PS_CHUNK_SIZE);
	if (room)
		rc = ps_decoder_step(decompressor->decoder, in, nin, out->data + (out->pos - out->base),
		        out->base + out->cap - out->pos, &used, &made, &event, &err);
	atomic_fetch_add(&stage->counters.plain_bytes, made);
	pthread_mutex_lock(&stage->lock);
	if (!room)
		return damaged(decompressor, ENOMEM,
		        "not enough memory for a frame that is handed out as a whole", ret);
	out->pos += made;
	decompressor->drained = nin == 0 && made == 0 && event == PS_DECODE_MORE;
	decompressor->input.at += used;
	if (rc < 0)
		return damaged(decompressor, rc == -ENOMEM ? ENOMEM : EIO, err.text, ret);
	if (out->pos > decompressor->end ||
	        (decompressor->size != PS_SIZE_UNKNOWN && out->pos > decompressor->size))
		return damaged(decompressor, EIO, "it holds more than its headers declare", ret);
	if (decompressor->sizes && out->pos > ps_store_limit(stage->store)) {
		char text[160];

		snprintf(text, sizeof(text),
		        "it holds more than the cache's limit of %" PRIu64
		        " MiB; raise --cache-size, or mount with -o raw",
		        ps_store_limit(stage->store) / PS_MIB);
		return damaged(decompressor, EFBIG, text, ret);
	}
	decompressor->header = event == PS_DECODE_HEADER;
	if (event == PS_DECODE_END)
		turn = frame_ends(decompressor, ret);
	if (turn != PS_TURN_GOES_ON)
		return turn;
	if (decompressor->sizes)
		out->safe = out->pos;
	else if (decompressor->in_frame && !decompressor->hold_end)
		/* All of the frame is safe but its last chunk: if the frame turns out to be damaged, readers
		 * of its end get an error. */
		out->safe = PS_MAX(out->safe, before_last_chunk(decompressor));
	return PS_TURN_GOES_ON;
}

/* True if another decompressor of the shard has decoded as far or farther. The lock is held. */
static bool another_is_ahead(const struct ps_decompressor *decompressor)
{
	const struct ps_list *decompressors = &decompressor->shard->decompressors;

	PS_LIST_EACH (const struct ps_decompressor, other, decompressors, link) {
		if (other != decompressor && !other->kill && other->state != PS_DECOMPRESSOR_ENDING &&
		        other->out.pos >= decompressor->out.pos)
			return true;
	}
	return false;
}

/* True if the decompressor must go on. If the cache admits the shard, bytes that no get waits for are
 * decoded, too: otherwise a later reader of these bytes would need a decompressor that begins at an earlier
 * frame again. The lock is held. */
static bool is_needed(const struct ps_decompressor *decompressor)
{
	const struct ps_decompressing *shard = decompressor->shard;
	struct ps_range gap;

	if (decompressor->sizes || decompressor->spans || (shard->caches && !another_is_ahead(decompressor)))
		return true;
	PS_LIST_EACH (const struct ps_waiting_get, waiting, &shard->gets, link) {
		if (ps_waiting_get_gap(waiting, decompressor->out.safe, &gap) && gap.from < decompressor->end)
			return true;
	}
	return false;
}

/* Decodes the bytes that have arrived, or parks. The lock is held. If the lock was dropped, this does not
 * park, and the caller checks everything again: a kill, a get or a piece that came meanwhile has woken no
 * thread, because the decompressor is RUNNING. */
static enum ps_turn go_on(struct ps_decompressor *decompressor, bool *deepened, struct ps_failure *ret)
{
	const struct ps_input *in = &decompressor->input;
	static const uint8_t none;
	const uint8_t *data = &none;

	/* The decoder may hold output for which there was no room. */
	if (in->at == in->end)
		return decompressor->drained ? end_of_input(decompressor, ret)
		                             : decode(decompressor, data, 0, ret);
	if (!is_needed(decompressor)) {
		if (decompressor->shard->stage->wanting)
			return PS_TURN_KILLED;
		decompressor->state = PS_DECOMPRESSOR_IDLE;
		decompressor->idle_ns = ps_clock_mono_ns();
		return PS_TURN_PARKED;
	}
	size_t n = ps_input_peek(decompressor, &data);
	if (ps_input_request(decompressor, n == 0 && !*deepened) && n == 0) {
		*deepened = true;
		return PS_TURN_GOES_ON;
	}
	*deepened = false;
	if (n > 0)
		return decode(decompressor, data, n, ret);
	if (in->err.err && (!in->npieces || !in->pieces[0]->pending))
		return origin_failed(decompressor, ret);
	decompressor->state = PS_DECOMPRESSOR_INPUT;
	return PS_TURN_PARKED;
}

enum ps_turn ps_decompressor_run(struct ps_decompressor *decompressor, struct ps_failure *ret)
{
	const struct ps_decompressing *shard = decompressor->shard;
	const struct ps_out *out = &decompressor->out;
	uint64_t start = out->pos, delivered = out->safe;
	enum ps_turn turn = PS_TURN_GOES_ON;
	bool deepened = false;

	if (decompressor->retry_ns && !decompressor->kill) {
		decompressor->retry_ns = 0;
		ps_input_reset(decompressor);
	}
	while (turn == PS_TURN_GOES_ON) {
		if (decompressor->asked || out->safe >= delivered + PS_CHUNK_SIZE ||
		        !decompressor->in_frame) {
			decompressor->asked = false;
			delivered = out->safe;
			ps_out_deliver(decompressor);
		}
		if (decompressor->kill || shard->aborted) {
			turn = PS_TURN_KILLED;
		} else if (decompressor->asked) {
			continue; /* a get came while others were being answered */
		} else if (out->pos - start > SLICE_NBYTES && ps_decompress_is_due(shard->stage)) {
			decompressor->state = PS_DECOMPRESSOR_IDLE;
			ps_decompressor_wake(decompressor); /* queued after the other decompressors */
			turn = PS_TURN_PARKED;
		} else if (decompressor->header) {
			turn = frame_begins(decompressor, ret);
		} else {
			turn = go_on(decompressor, &deepened, ret);
		}
	}
	return turn;
}

/* Making and ending -------------------------------------------------------------------------------------- */

struct ps_decompressor *ps_decompressor_new(
        struct ps_decompressing *shard, struct ps_frame_point from, uint64_t packed_end, uint64_t end)
{
	struct ps_decompress *stage = shard->stage;

	if (stage->ndecompressors >= stage->max_decompressors ||
	        !ps_decompress_reserve(stage, PS_DECOMPRESSOR_NBYTES))
		return NULL;
	struct ps_decompressor *decompressor = calloc(1, sizeof(*decompressor));
	if (decompressor) {
		decompressor->decoder = ps_decoder_new(shard->coding);
		decompressor->out.data = ps_spare_take(stage, PS_OUT_NBYTES);
		decompressor->out.given = calloc(PS_OUT_NBYTES / PS_CHUNK_SIZE, 1);
	}
	if (!decompressor || !decompressor->decoder || !decompressor->out.data || !decompressor->out.given) {
		if (decompressor) {
			ps_decoder_free(decompressor->decoder);
			free(decompressor->out.data);
			free(decompressor->out.given);
		}
		free(decompressor);
		stage->used -= PS_DECOMPRESSOR_NBYTES;
		return NULL;
	}
	decompressor->shard = shard;
	decompressor->charge = PS_DECOMPRESSOR_NBYTES;
	decompressor->state = PS_DECOMPRESSOR_IDLE;
	decompressor->end = end;
	decompressor->size = shard->size;
	decompressor->declared = shard->declared;
	decompressor->input = (struct ps_input){
	        .at = from.packed, .next = from.packed, .end = packed_end, .depth = PS_PIECES_FIRST};
	decompressor->out.cap = PS_OUT_NBYTES;
	decompressor->out.base = from.plain / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	decompressor->out.from = decompressor->out.pos = from.plain;
	decompressor->out.safe = decompressor->out.flushed = from.plain;
	ps_list_init(&decompressor->ready_link);
	ps_list_append(&shard->decompressors, &decompressor->link);
	ps_decompress_watch(stage, &stage->ndecompressors);
	shard->refs++;
	ps_decompressor_wake(decompressor);
	return decompressor;
}

/* May drop the lock, unless the caller has a reference to the shard. */
static void decompressor_free(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;

	ps_decoder_free(decompressor->decoder);
	ps_list_remove(&decompressor->link);
	stage->used -= decompressor->charge;
	ps_input_reset(decompressor);
	ps_spare_put(stage, decompressor->out.data, decompressor->out.cap);
	free(decompressor->out.given);
	if (--stage->ndecompressors == 0)
		ps_spares_drop(stage, 4 * PS_DECOMPRESSOR_NBYTES);
	free(decompressor);
	ps_decompressing_unref(shard);
}

bool ps_decompressor_end(struct ps_decompressor *decompressor)
{
	if (decompressor->npending == 0) {
		decompressor_free(decompressor);
		return true;
	}
	/* When the last request for a piece ends, the shard is woken and frees this decompressor. The gets
	 * that waited for the decompressor are assigned to others at once, since the origin may be slow to
	 * end its requests. */
	decompressor->state = PS_DECOMPRESSOR_ENDING;
	ps_input_cancel(decompressor);
	ps_decompressing_wake(decompressor->shard);
	return false;
}

bool ps_decompressors_reap(struct ps_decompressing *shard)
{
	bool reaped = false;

	PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link) {
		if (decompressor->state == PS_DECOMPRESSOR_ENDING && decompressor->npending == 0) {
			decompressor_free(decompressor);
			reaped = true;
		}
	}
	return reaped;
}
