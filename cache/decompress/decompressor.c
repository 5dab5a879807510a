#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Frames --------------------------------------------------------------------------------------------- */

/* What decoding comes by: frames that begin and end, damage, the end of the stretch. Called by the decompressor's
 * thread. */

/* Damage ----------------------------------------------------------------------------------------- */

/* Where the damage ends: at the end of its frame, if the map tells where that is. In the middle of a frame
 * what is safe has been handed out: the search begins behind it, or a reader of the next bytes would never
 * be told. The lock is held. */
static uint64_t end_of_damage(const struct ps_decompressor *decompressor)
{
	const struct ps_frame_map *map = &decompressor->inflater->map;
	uint64_t at = decompressor->in_frame ? PS_MAX(decompressor->frame_plain, decompressor->out.safe)
	                                 : decompressor->out.pos; /* no header, where a frame should begin */
	size_t i = map->n ? ps_frame_map_find(map, at) + 1 : 0;

	return decompressor->sizes || i >= map->n ? UINT64_MAX : map->points[i].plain;
}

/* Who waits for what cannot be had from here, up to `end`, hears so; the lock is dropped meanwhile. */
static void ps_decompressor_fail_parts(struct ps_decompressor *decompressor, uint64_t end, const struct ps_error *err);

/* By its thread: it has ended. */
static void ps_decompressor_end(struct ps_decompressor *decompressor);

/* The data is not what it should be. Not held; the decompressor ends. */
static void damaged(struct ps_decompressor *decompressor, int errnum, const char *what)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_decompress *inflate = inflater->inflate;
	struct ps_error err = {0};
	/* A part of this frame was handed out before its end. It is in the cache now, and may be wrong. */
	bool drop = decompressor->in_frame && decompressor->out.safe > decompressor->frame_plain;
	struct ps_object *object;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		object = drop ? ps_decompressing_hold(inflater) : NULL;
	}

	ps_error_set(&err, errnum, "%s: at offset %" PRIu64 " (%" PRIu64 " when decoded): %s", inflater->url,
	        decompressor->input.at, decompressor->out.pos, what);
	ps_log_warning("inflate: %s", err.text);
	atomic_fetch_add(&inflate->errors, 1);
	ps_writes_wait(
	        inflater); /* what comes after an eviction would be refused, as if the disk had failed */
	if (object && ps_object_evict(object, NULL) < 0)
		ps_log_warning("inflate: %s: what is cached of it may be damaged, too", inflater->url);
	ps_object_put(object);
	PS_LOCK_SCOPE(&inflate->lock);
	inflater->bad = err;
	inflater->bad_range = (struct ps_range){
	        .from = decompressor->sizes ? 0 : decompressor->out.safe, .end = end_of_damage(decompressor)};
	inflater->bad_until_ns = ps_clock_mono_ns() + PS_DECOMPRESS_BAD_NS;
	if (decompressor->sizes)
		ps_size_answer(inflater, errnum, err.text);
	ps_decompressor_fail_parts(decompressor, PS_MIN(decompressor->end, inflater->bad_range.end), &err);
	ps_decompressor_end(decompressor);
}

/* Frames ----------------------------------------------------------------------------------------- */

/* Memory for the frame's window. 0; -EAGAIN: not now, the decompressor parks; -E2BIG: never. */
static int take_window(struct ps_decompressor *decompressor)
{
	struct ps_decompress *inflate = decompressor->inflater->inflate;
	uint64_t need = ps_decoder_nbytes(decompressor->decoder);

	PS_LOCK_SCOPE(&inflate->lock);
	decompressor->waits = false;
	if (need > inflate->limit / 2)
		return -E2BIG;
	if (need <= decompressor->window)
		return 0;
	if (!ps_decompress_reserve(inflate, need - decompressor->window)) {
		decompressor->waits = true;
		decompressor->state = PS_DECOMPRESSOR_MEMORY;
		ps_decompress_make_room(inflate, decompressor);
		return -EAGAIN;
	}
	decompressor->charge += need - decompressor->window;
	decompressor->window = need;
	return 0;
}

/* Room in the buffer for so much, all at once. */
static bool make_room_for(struct ps_decompressor *decompressor, uint64_t nbytes)
{
	const struct ps_out *out = &decompressor->out;

	if (nbytes > out->base + out->cap - out->pos) {
		ps_out_deliver(decompressor);
		(void)ps_out_flush(decompressor, false);
	}
	return ps_out_grow(decompressor, nbytes) == 0;
}

/* Room in the buffer for more. */
static bool make_room(struct ps_decompressor *decompressor)
{
	const struct ps_out *out = &decompressor->out;

	if (out->pos < out->base + out->cap || make_room_for(decompressor, PS_CHUNK_SIZE))
		return true;
	damaged(decompressor, ENOMEM, "not enough memory for a frame that is handed out as a whole");
	return false;
}

/* The size that the first header told is not that of the file: those who have it open are told EIO before
 * they come to its end, the others look it up again and wait until all of it was decoded. */
static void disproved(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	uint64_t node = 0;

	if (ps_index_new_node(ps_store_index(inflater->inflate->store), &node) < 0)
		return;
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	inflater->nodes_below = node;
	inflater->map.n = PS_MIN(inflater->map.n, (size_t)1);
	ps_decompressing_save_disproved(inflater);
}

/* A frame's header was read; again, after it waited for memory for it. */
static bool ps_decompressor_frame_begins(struct ps_decompressor *decompressor)
{
	const struct ps_frame_header *frame = ps_decoder_frame(decompressor->decoder);
	uint64_t content = frame->content_nbytes;

	if (decompressor->in_frame == false) {
		decompressor->frame_plain = decompressor->out.pos;
		decompressor->hold_end = 0;
	}
	decompressor->in_frame = true;
	if (!frame->skippable && decompressor->size != PS_SIZE_UNKNOWN && content != 0 &&
	        (decompressor->out.pos >= decompressor->size ||
	                (content != UINT64_MAX && content > decompressor->size - decompressor->out.pos))) {
		if (decompressor->declared)
			disproved(decompressor);
		damaged(decompressor, EIO,
		        decompressor->declared ? "it has more frames than the first, which told the size: it is "
		                             "found out anew"
		                           : "a frame holds more than its place in the file allows");
		return false;
	}
	int rc = take_window(decompressor);
	if (rc == -E2BIG) {
		char text[160];

		snprintf(text, sizeof text,
		        "decoding takes a window of %" PRIu64
		        " MiB, more than a sixth of the memory; raise --memory",
		        ps_decoder_nbytes(decompressor->decoder) / PS_MIB);
		damaged(decompressor, EFBIG, text);
	}
	if (rc < 0)
		return false;
	if (!frame->skippable && content <= PS_HOLD_NBYTES && make_room_for(decompressor, content + 1)) {
		ps_decoder_in_place(decompressor->decoder);
		if (!decompressor->sizes) /* nobody gets any of it before all of it was right */
			decompressor->hold_end = decompressor->frame_plain + content;
	}
	return true;
}

/* Where the map says that frames begin, there they must. The lock is held. */
static bool agrees(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	const struct ps_frame_map *map = &inflater->map;

	if (!map->n)
		return true;
	/* The last point at this plain offset or before; frames that hold nothing share one. */
	size_t i = ps_frame_map_find(map, decompressor->out.pos);
	while (i > 0 && map->points[i].packed > decompressor->input.at)
		i--;
	if (map->points[i].packed == decompressor->input.at)
		return map->points[i].plain == decompressor->out.pos;
	/* Behind the last point that is known, or beside one: the map, if it is whole, has them all. */
	return !map->whole && i + 1 == map->n;
}

static uint64_t before_last_chunk(const struct ps_decompressor *decompressor)
{
	uint64_t pos = decompressor->out.pos;

	return pos ? (pos - 1) / PS_CHUNK_SIZE * PS_CHUNK_SIZE : 0;
}

static bool frame_ends(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	bool good;

	decompressor->in_frame = false;
	decompressor->hold_end = 0;
	{
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		good = agrees(decompressor);
		/* The first decompressor that comes by writes the map; one that began at zero, or at a point of
		 * it. */
		if (good && !inflater->map.whole && decompressor->end == UINT64_MAX)
			ps_frame_map_add(&inflater->map, decompressor->input.at, decompressor->out.pos);
		/* A size that only the first header told is certain once nothing follows. Until then the
		 * last chunk is kept back; no more than that, or there might be no room for the next
		 * header. */
		if (good && decompressor->declared && decompressor->out.pos == decompressor->size)
			decompressor->out.safe = PS_MAX(decompressor->out.safe, before_last_chunk(decompressor));
		else if (good)
			decompressor->out.safe = decompressor->out.pos;
	}
	if (!good)
		damaged(decompressor, EIO, "a frame ends where the table of frames has none");
	return good;
}

/* Bytes that are safe to hand out before the frame has ended. */
static void settle_safe(struct ps_decompressor *decompressor)
{
	struct ps_out *out = &decompressor->out;

	if (decompressor->sizes) {
		out->safe = out->pos;
		return;
	}
	if (!decompressor->in_frame || decompressor->hold_end)
		return;
	/* All of the frame but its last chunk: if the frame turns out to be damaged, whoever reads to its
	 * end is told so. */
	PS_LOCK_SCOPE(&decompressor->inflater->inflate->lock);
	out->safe = PS_MAX(out->safe, before_last_chunk(decompressor));
}

/* The compressed bytes of the stretch are used up. The decompressor ends. */
static void ps_decompressor_end_of_input(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_decompress *inflate = inflater->inflate;

	if (!ps_decoder_may_end(decompressor->decoder)) {
		damaged(decompressor, EIO,
		        decompressor->input.at == 0 ? "it is empty" : "it ends in the middle of a frame");
		return;
	}
	uint64_t expect = decompressor->end == UINT64_MAX ? decompressor->size : decompressor->end;
	if (expect != PS_SIZE_UNKNOWN && decompressor->out.pos != expect) {
		damaged(decompressor, EIO, "it holds less than its headers tell of");
		return;
	}
	{
		PS_LOCK_SCOPE(&inflate->lock);
		decompressor->out.safe = decompressor->out.pos;
		if (decompressor->end == UINT64_MAX && inflater->map.n && !inflater->map.whole &&
		        inflater->map.n < PS_FRAME_MAP_MAX) {
			struct ps_frame_map *map = &inflater->map;

			/* Where skippable frames pad the end of the file, ps_frame_map_add() makes no
			 * point behind them: the last point moves there. */
			ps_frame_map_add(map, decompressor->input.at, decompressor->out.pos);
			map->points[map->n - 1].packed = decompressor->input.at;
			map->whole = map->n >= 2;
		}
	}
	if (decompressor->sizes) {
		int rc = ps_size_found(decompressor);

		PS_LOCK_SCOPE(&inflate->lock);
		ps_size_answer(inflater, -rc, rc < 0 ? strerror(-rc) : "");
		ps_decompressor_end(decompressor);
		return;
	}
	ps_out_deliver(decompressor);
	(void)ps_out_flush(decompressor, true);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_decompressing_save(inflater);
	ps_decompressor_end(decompressor);
}

/* One step of the decoder. False, of this and the next: the decompressor has parked or ended. */
static bool ps_decompressor_decode(struct ps_decompressor *decompressor, const uint8_t *in, size_t nin)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_out *out = &decompressor->out;
	enum ps_decode_event event;
	struct ps_error err = {0};
	size_t used, made;

	if (!make_room(decompressor))
		return false;
	int rc = ps_decoder_step(decompressor->decoder, in, nin, out->data + (out->pos - out->base),
	        out->base + out->cap - out->pos, &used, &made, &event, &err);
	{
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		out->pos += made;
		decompressor->drained = nin == 0 && made == 0 && event == PS_DECODE_MORE;
		ps_input_consume(decompressor, used);
	}
	atomic_fetch_add(&inflater->inflate->plain_bytes, made);
	if (rc < 0) {
		damaged(decompressor, rc == -ENOMEM ? ENOMEM : EIO, err.text);
		return false;
	}
	if (out->pos > decompressor->end || (decompressor->size != PS_SIZE_UNKNOWN && out->pos > decompressor->size)) {
		damaged(decompressor, EIO, "it holds more than its headers tell of");
		return false;
	}
	if (decompressor->sizes && out->pos > ps_store_limit(inflater->inflate->store)) {
		char text[160];

		snprintf(text, sizeof text,
		        "it holds more than the cache's limit of %" PRIu64
		        " MiB; raise --cache-size, or mount with -o raw",
		        ps_store_limit(inflater->inflate->store) / PS_MIB);
		damaged(decompressor, EFBIG, text);
		return false;
	}
	if (event == PS_DECODE_HEADER && !ps_decompressor_frame_begins(decompressor))
		return false;
	if (event == PS_DECODE_END && !frame_ends(decompressor))
		return false;
	settle_safe(decompressor);
	return true;
}

/* Running, parking, ending --------------------------------------------------------------------------- */

/* Unpackers: one stretch of a shard is decoded by one thread at a time, as its compressed bytes come. */

#define SLICE_NBYTES (4 * PS_BLOCK_SIZE) /* after so much it is somebody else's turn */
#define BACKOFF_FIRST_MS UINT64_C(100)
#define BACKOFF_MAX_MS UINT64_C(10000)

/* Making and ending ------------------------------------------------------------------------------ */

static uint8_t *out_take(struct ps_decompress *inflate)
{
	uint8_t *data = ps_spare_take(inflate, PS_OUT_NBYTES);

	return data || posix_memalign((void **)&data, 4096, PS_OUT_NBYTES) == 0 ? data : NULL;
}

static void decompressor_free(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_decompress *inflate = inflater->inflate;

	ps_input_fini(decompressor);
	ps_decoder_free(decompressor->decoder);
	ps_list_remove(&decompressor->link);
	ps_decompress_release(inflate, decompressor->charge);
	ps_spare_put(inflate, decompressor->out.data, decompressor->out.cap);
	free(decompressor->out.given);
	if (--inflate->ndecompressors == 0)
		ps_spares_drop(inflate, PS_OUT_NBYTES);
	free(decompressor);
	ps_decompress_wake_all(inflate);
	ps_decompressing_unref(inflater);
}

struct ps_decompressor *ps_decompressor_new(
        struct ps_decompressing *inflater, struct ps_frame_point from, uint64_t packed_end, uint64_t end)
{
	struct ps_decompress *inflate = inflater->inflate;

	if (inflate->ndecompressors >= inflate->max_decompressors || !ps_decompress_reserve(inflate,
	        PS_DECOMPRESSOR_NBYTES))
		return NULL;
	struct ps_decompressor *decompressor = calloc(1, sizeof *decompressor);
	if (decompressor) {
		decompressor->decoder = ps_decoder_new(inflater->coding);
		decompressor->out.data = out_take(inflate);
		decompressor->out.given = calloc(PS_OUT_NBYTES / PS_CHUNK_SIZE, 1);
	}
	if (!decompressor || !decompressor->decoder || !decompressor->out.data || !decompressor->out.given) {
		if (decompressor) {
			ps_decoder_free(decompressor->decoder);
			free(decompressor->out.data);
			free(decompressor->out.given);
		}
		free(decompressor);
		ps_decompress_release(inflate, PS_DECOMPRESSOR_NBYTES);
		return NULL;
	}
	decompressor->inflater = inflater;
	decompressor->charge = PS_DECOMPRESSOR_NBYTES;
	decompressor->state = PS_DECOMPRESSOR_IDLE;
	decompressor->end = end;
	decompressor->size = inflater->size;
	decompressor->declared = inflater->declared;
	decompressor->input = (struct ps_input){
	        .at = from.packed, .next = from.packed, .end = packed_end, .depth = PS_PIECES_FIRST};
	decompressor->out.cap = PS_OUT_NBYTES;
	decompressor->out.base = from.plain / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	decompressor->out.from = decompressor->out.pos =
	        decompressor->out.safe = decompressor->out.flushed = from.plain;
	ps_list_init(&decompressor->run_link);
	ps_list_append(&inflater->decompressors, &decompressor->link);
	ps_decompress_watch(inflate, &inflate->ndecompressors);
	ps_decompressing_ref(inflater);
	ps_decompressor_wake(decompressor);
	return decompressor;
}

static void ps_decompressor_end(struct ps_decompressor *decompressor)
{
	decompressor->state = PS_DECOMPRESSOR_ENDING;
	ps_list_remove(&decompressor->run_link);
	if (decompressor->npending == 0) {
		decompressor_free(decompressor);
		return;
	}
	/* Who ends the last piece wakes the inflater, whose plan frees it. Gets that waited for this one need
	 * not wait for an origin that is slow to give pieces back. */
	ps_input_cancel(decompressor);
	ps_decompressing_wake(decompressor->inflater);
}

void ps_decompressor_kill(struct ps_decompressor *decompressor)
{
	decompressor->kill = true;
	ps_decompressor_wake(decompressor);
}

void ps_decompressors_reap(struct ps_decompressing *inflater)
{
	for (struct ps_list *l = inflater->decompressors.next, *next; l != &inflater->decompressors; l = next) {
		struct ps_decompressor *decompressor = PS_CONTAINER_OF(l, struct ps_decompressor, link);

		next = l->next;
		if (decompressor->state == PS_DECOMPRESSOR_ENDING && decompressor->npending == 0)
			decompressor_free(decompressor);
	}
}

bool ps_decompressor_reserve(struct ps_decompressor *decompressor, uint64_t nbytes)
{
	struct ps_decompress *inflate = decompressor->inflater->inflate;

	/* Half of the memory at most: the other half is left for windows, so that the last decompressor that
	 * waits for one gets it. */
	if (decompressor->charge - decompressor->window + nbytes > inflate->limit / 2 ||
	        !ps_decompress_reserve(inflate, nbytes))
		return false;
	decompressor->charge += nbytes;
	return true;
}

/* Failures --------------------------------------------------------------------------------------- */

static void ps_decompressor_fail_parts(struct ps_decompressor *decompressor, uint64_t end, const struct ps_error *err)
{
	ps_parts_fail(decompressor->inflater, decompressor->out.safe, end, err);
	ps_parts_settle(decompressor->inflater);
}

/* The origin failed. The decompressor stays where it is and tries again, for as long as that makes sense. The
 * lock is held, and may be dropped meanwhile. */
static void origin_failed(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_error err = decompressor->input.err;
	uint64_t ms = PS_MIN(BACKOFF_FIRST_MS << PS_MIN(decompressor->attempts, 10u), BACKOFF_MAX_MS);

	ps_input_cancel(decompressor);
	decompressor->attempts++;
	if (err.retryable &&
	        (decompressor->attempts <= PS_DECOMPRESS_ATTEMPTS || (decompressor->sizes && inflater->waiters))) {
		ps_log_debug("inflate: %s: offset %" PRIu64 ": attempt %u failed: %s", inflater->url,
		        decompressor->input.at, decompressor->attempts, err.text);
		decompressor->state = PS_DECOMPRESSOR_RETRY;
		decompressor->retry_ns = ps_clock_mono_ns() + PS_MAX(ms, err.retry_after_ms) * PS_NS_PER_MS;
		return;
	}
	if (decompressor->sizes)
		ps_size_answer(inflater, err.err == EAGAIN || err.err == EPROTO ? EIO : err.err, err.text);
	/* Who asked for the bytes knows whether somebody waits for them still, and then asks again. */
	ps_decompressor_fail_parts(decompressor, decompressor->end, &err);
	ps_decompressor_end(decompressor);
}

/* Running ---------------------------------------------------------------------------------------- */

/* Another decompressor of the shard is farther. The lock is held. */
static bool is_behind(const struct ps_decompressor *decompressor)
{
	const struct ps_list *decompressors = &decompressor->inflater->decompressors;

	for (const struct ps_list *l = decompressors->next; l != decompressors; l = l->next) {
		const struct ps_decompressor *other = PS_CONTAINER_OF(l, struct ps_decompressor, link);

		if (other != decompressor && !other->kill && other->state != PS_DECOMPRESSOR_ENDING &&
		        other->out.pos >= decompressor->out.pos)
			return true;
	}
	return false;
}

/* Is it to go on? What nobody waits for is decoded where the cache takes it: sooner or later somebody wants
 * it, and would have to begin anew. The lock is held. */
static bool is_wanted(const struct ps_decompressor *decompressor)
{
	const struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_range gap;

	if (decompressor->sizes || decompressor->spans || (inflater->caches && !is_behind(decompressor)))
		return true;
	for (const struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		const struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (ps_part_gap(part, decompressor->out.safe, &gap) && gap.from < decompressor->end)
			return true;
	}
	return false;
}

enum next { NEXT_DECODE, NEXT_DELIVER, NEXT_PARK, NEXT_END_OF_INPUT, NEXT_FAILED, NEXT_KILLED };

/* The lock is held; the state is set where it is to park. */
static enum next what_next(struct ps_decompressor *decompressor, const uint8_t **ret, size_t *ret_n)
{
	const struct ps_input *in = &decompressor->input;

	if (decompressor->kill || decompressor->inflater->aborted)
		return NEXT_KILLED;
	if (decompressor->asked) {
		decompressor->asked = false;
		return NEXT_DELIVER;
	}
	/* The decoder may have more in it than there was room for. */
	if (in->at == in->end) {
		static const uint8_t none;

		*ret = &none;
		*ret_n = 0;
		return decompressor->drained ? NEXT_END_OF_INPUT : NEXT_DECODE;
	}
	if (!is_wanted(decompressor)) {
		if (decompressor->inflater->inflate->wanting)
			return NEXT_KILLED;
		decompressor->state = PS_DECOMPRESSOR_IDLE;
		decompressor->idle_ns = ps_clock_mono_ns();
		return NEXT_PARK;
	}
	*ret_n = ps_input_peek(decompressor, ret);
	if (*ret_n > 0)
		return NEXT_DECODE;
	if (in->err.err && (!in->npieces || !in->pieces[0]->pending))
		return NEXT_FAILED;
	decompressor->state = PS_DECOMPRESSOR_INPUT;
	return NEXT_PARK;
}

static bool is_killed(struct ps_decompressor *decompressor)
{
	PS_LOCK_SCOPE(&decompressor->inflater->inflate->lock);
	return decompressor->kill;
}

void ps_decompressor_run(struct ps_decompressor *decompressor)
{
	struct ps_decompress *inflate = decompressor->inflater->inflate;
	uint64_t start = decompressor->out.pos, delivered = decompressor->out.safe;

	if (decompressor->waits && !is_killed(decompressor) && !ps_decompressor_frame_begins(decompressor))
		return;
	for (;;) {
		const uint8_t *in = NULL;
		size_t nin = 0;
		enum next next;

		if (decompressor->out.safe >= delivered + PS_CHUNK_SIZE || !decompressor->in_frame) {
			ps_out_deliver(decompressor);
			delivered = decompressor->out.safe;
		}
		pthread_mutex_lock(&inflate->lock);
		if (decompressor->out.pos - start > SLICE_NBYTES && ps_decompress_is_due(inflate)) {
			decompressor->state = PS_DECOMPRESSOR_IDLE;
			ps_decompressor_wake(decompressor);
			pthread_mutex_unlock(&inflate->lock);
			return;
		}
		next = what_next(decompressor, &in, &nin);
		if (next == NEXT_KILLED)
			ps_decompressor_end(decompressor);
		if (next == NEXT_FAILED)
			origin_failed(decompressor);
		pthread_mutex_unlock(&inflate->lock);
		if (next == NEXT_DELIVER)
			ps_out_deliver(decompressor);
		else if (next == NEXT_END_OF_INPUT)
			ps_decompressor_end_of_input(decompressor);
		if ((next != NEXT_DELIVER && next != NEXT_DECODE) ||
		        (next == NEXT_DECODE && !ps_decompressor_decode(decompressor, in, nin)))
			return;
	}
}
