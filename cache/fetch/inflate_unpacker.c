/* Unpackers: one stretch of a shard is decoded by one thread at a time, as its compressed bytes come. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "fetch/inflate_private.h"

#define SLICE_NBYTES (4 * PS_BLOCK_SIZE) /* after so much another unpacker has its turn */
#define BACKOFF_FIRST_MS UINT64_C(100)
#define BACKOFF_MAX_MS UINT64_C(10000)

/* Making and ending ------------------------------------------------------------------------------ */

static uint8_t *out_take(struct ps_inflate *inflate)
{
	uint8_t *data = NULL;

	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->free_out); i++)
		if (inflate->free_out[i])
			return ps_steal_ptr(&inflate->free_out[i]);
	return posix_memalign((void **)&data, 4096, PS_OUT_NBYTES) == 0 ? data : NULL;
}

static void out_put(struct ps_inflate *inflate, struct ps_out *out)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->free_out) && out->cap == PS_OUT_NBYTES; i++)
		if (!inflate->free_out[i]) {
			inflate->free_out[i] = ps_steal_ptr(&out->data);
			break;
		}
	free(out->data);
	free(out->given);
}

static void unpacker_free(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;

	ps_input_fini(unpacker);
	out_put(inflate, &unpacker->out);
	ps_decoder_free(unpacker->decoder);
	ps_list_remove(&unpacker->link);
	ps_inflate_release(inflate, unpacker->charge);
	inflate->nunpackers--;
	free(unpacker);
	ps_inflate_wake_all(inflate);
	ps_inflater_unref(inflater);
}

struct ps_unpacker *ps_unpacker_new(
        struct ps_inflater *inflater, struct ps_frame_point from, uint64_t packed_end, uint64_t end)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (inflate->nunpackers >= inflate->max_unpackers || !ps_inflate_reserve(inflate, PS_UNPACKER_NBYTES))
		return NULL;
	struct ps_unpacker *unpacker = calloc(1, sizeof *unpacker);
	if (unpacker) {
		unpacker->decoder = ps_decoder_new(inflater->coding);
		unpacker->out.data = out_take(inflate);
		unpacker->out.given = calloc(PS_OUT_NBYTES / PS_CHUNK_SIZE, 1);
	}
	if (!unpacker || !unpacker->decoder || !unpacker->out.data || !unpacker->out.given) {
		if (unpacker) {
			ps_decoder_free(unpacker->decoder);
			free(unpacker->out.data);
			free(unpacker->out.given);
		}
		free(unpacker);
		ps_inflate_release(inflate, PS_UNPACKER_NBYTES);
		return NULL;
	}
	unpacker->inflater = inflater;
	unpacker->charge = PS_UNPACKER_NBYTES;
	unpacker->state = PS_UNPACKER_IDLE;
	unpacker->end = end;
	unpacker->input = (struct ps_input){
	        .at = from.packed, .next = from.packed, .end = packed_end, .depth = PS_PIECES_FIRST};
	unpacker->out.cap = PS_OUT_NBYTES;
	unpacker->out.base = from.plain / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	unpacker->out.from = unpacker->out.pos = unpacker->out.safe = unpacker->out.flushed = from.plain;
	ps_list_init(&unpacker->run_link);
	ps_list_append(&inflater->unpackers, &unpacker->link);
	inflate->nunpackers++;
	ps_inflater_ref(inflater);
	ps_unpacker_wake(unpacker);
	return unpacker;
}

/* The lock is held. */
static void unpacker_end(struct ps_unpacker *unpacker)
{
	unpacker->state = PS_UNPACKER_ENDING;
	ps_list_remove(&unpacker->run_link);
	if (unpacker->npending)
		ps_input_cancel(
		        unpacker); /* who ends the last piece wakes the inflater, whose plan frees it */
	else
		unpacker_free(unpacker);
}

void ps_unpacker_kill(struct ps_unpacker *unpacker)
{
	unpacker->kill = true;
	ps_unpacker_wake(unpacker);
}

void ps_unpackers_reap(struct ps_inflater *inflater)
{
	for (struct ps_list *l = inflater->unpackers.next, *next; l != &inflater->unpackers; l = next) {
		struct ps_unpacker *unpacker = PS_CONTAINER_OF(l, struct ps_unpacker, link);

		next = l->next;
		if (unpacker->state == PS_UNPACKER_ENDING && unpacker->npending == 0)
			unpacker_free(unpacker);
	}
}

/* Failures --------------------------------------------------------------------------------------- */

/* Who waits for what cannot be had from here hears so. The lock is held, and dropped meanwhile. */
static void fail_parts(struct ps_unpacker *unpacker, uint64_t end, const struct ps_error *err)
{
	ps_parts_fail(unpacker->inflater, unpacker->out.safe, end, err);
	ps_parts_settle(unpacker->inflater);
}

/* Where what is damaged ends: with its frame, if it is known where that is. The lock is held. */
static uint64_t end_of_damage(const struct ps_unpacker *unpacker)
{
	const struct ps_frame_map *map = &unpacker->inflater->map;
	size_t i = map->n ? ps_frame_map_find(map, unpacker->frame_plain) + 1 : 0;

	return unpacker->sizes || i >= map->n ? UINT64_MAX : map->points[i].plain;
}

/* The data is not what it should be. Not held; the unpacker ends. */
static void damaged(struct ps_unpacker *unpacker, int errnum, const char *what)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_error err = {0};
	/* Of a frame that was handed out before its end something may be wrong that is in the cache now. */
	bool drop = unpacker->in_frame && unpacker->out.safe > unpacker->frame_plain;
	struct ps_object *object;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		object = drop ? ps_inflater_hold(inflater) : NULL;
	}

	ps_error_set(&err, errnum, "%s: at offset %" PRIu64 " (%" PRIu64 " when decoded): %s", inflater->url,
	        unpacker->input.at, unpacker->out.pos, what);
	ps_log_warning("inflate: %s", err.text);
	atomic_fetch_add(&inflate->errors, 1);
	if (object && ps_object_evict(object, NULL) < 0)
		ps_log_warning("inflate: %s: what is cached of it may be damaged, too", inflater->url);
	ps_object_put(object);
	PS_LOCK_SCOPE(&inflate->lock);
	inflater->bad = err;
	inflater->bad_range = (struct ps_range){
	        .from = unpacker->sizes ? 0 : unpacker->out.safe, .end = end_of_damage(unpacker)};
	inflater->bad_until_ns = ps_clock_mono_ns() + PS_INFLATE_BAD_NS;
	if (unpacker->sizes)
		ps_size_answer(inflater, errnum, err.text);
	fail_parts(unpacker, PS_MIN(unpacker->end, inflater->bad_range.end), &err);
	unpacker_end(unpacker);
}

/* The origin failed. The unpacker stays where it is and tries again, for as long as that makes sense. The
 * lock is held, and may be dropped meanwhile. */
static void origin_failed(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_error err = unpacker->input.err;
	uint64_t ms = PS_MIN(BACKOFF_FIRST_MS << PS_MIN(unpacker->attempts, 10u), BACKOFF_MAX_MS);

	ps_input_cancel(unpacker);
	if (err.retryable && ++unpacker->attempts <= PS_INFLATE_ATTEMPTS) {
		ps_log_debug("inflate: %s: offset %" PRIu64 ": attempt %u failed: %s", inflater->url,
		        unpacker->input.at, unpacker->attempts, err.text);
		unpacker->state = PS_UNPACKER_RETRY;
		unpacker->retry_ns = ps_clock_mono_ns() + PS_MAX(ms, err.retry_after_ms) * PS_NS_PER_MS;
		return;
	}
	err.retryable = false;
	if (unpacker->sizes)
		ps_size_answer(inflater, err.err == EAGAIN || err.err == EPROTO ? EIO : err.err, err.text);
	fail_parts(unpacker, unpacker->end, &err);
	unpacker_end(unpacker);
}

/* Running ---------------------------------------------------------------------------------------- */

/* Another unpacker of the shard is farther. The lock is held. */
static bool is_behind(const struct ps_unpacker *unpacker)
{
	const struct ps_list *unpackers = &unpacker->inflater->unpackers;

	for (const struct ps_list *l = unpackers->next; l != unpackers; l = l->next) {
		const struct ps_unpacker *other = PS_CONTAINER_OF(l, struct ps_unpacker, link);

		if (other != unpacker && !other->kill && other->state != PS_UNPACKER_ENDING &&
		        other->out.pos >= unpacker->out.pos)
			return true;
	}
	return false;
}

/* Is it to go on? What nobody waits for is decoded where the cache takes it: sooner or later somebody wants
 * it, and would have to begin anew. The lock is held. */
static bool is_wanted(const struct ps_unpacker *unpacker)
{
	const struct ps_inflater *inflater = unpacker->inflater;
	struct ps_range gap;

	if (unpacker->sizes || unpacker->spans || (inflater->caches && !is_behind(unpacker)))
		return true;
	for (const struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		const struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (ps_part_gap(part, unpacker->out.safe, &gap) && gap.from < unpacker->end)
			return true;
	}
	return false;
}

enum next { NEXT_DECODE, NEXT_DELIVER, NEXT_PARK, NEXT_END_OF_INPUT, NEXT_FAILED, NEXT_KILLED };

/* The lock is held; the state is set where it is to park. */
static enum next what_next(struct ps_unpacker *unpacker, const uint8_t **ret, size_t *ret_n)
{
	const struct ps_input *in = &unpacker->input;

	if (unpacker->kill || unpacker->inflater->aborted)
		return NEXT_KILLED;
	if (unpacker->asked) {
		unpacker->asked = false;
		return NEXT_DELIVER;
	}
	/* The decoder may have more in it than there was room for. */
	if (in->at == in->end) {
		static const uint8_t none;

		*ret = &none;
		*ret_n = 0;
		return unpacker->drained ? NEXT_END_OF_INPUT : NEXT_DECODE;
	}
	if (!is_wanted(unpacker)) {
		unpacker->state = PS_UNPACKER_IDLE;
		unpacker->idle_ns = ps_clock_mono_ns();
		return NEXT_PARK;
	}
	*ret_n = ps_input_peek(unpacker, ret);
	if (*ret_n > 0)
		return NEXT_DECODE;
	if (in->err.err && (!in->npieces || !in->pieces[0]->pending))
		return NEXT_FAILED;
	unpacker->state = PS_UNPACKER_INPUT;
	return NEXT_PARK;
}

/* Unpackers that are of less use give their memory back, soon. The lock is held. */
static void make_others_end(struct ps_unpacker *unpacker)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;
	bool works = false;

	for (int round = 0; round < 2; round++) {
		for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
			struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

			for (struct ps_list *s = inflater->unpackers.next; s != &inflater->unpackers;
			        s = s->next) {
				struct ps_unpacker *other = PS_CONTAINER_OF(s, struct ps_unpacker, link);
				bool waits = other->state == PS_UNPACKER_MEMORY;

				if (other == unpacker)
					continue;
				works = works || (!waits && other->state != PS_UNPACKER_IDLE);
				/* Those that wait for memory, too, only where nobody else will end. */
				if (other->state == PS_UNPACKER_IDLE || (waits && round == 1 && !works))
					ps_unpacker_kill(other);
			}
		}
	}
}

/* Memory for the frame's window. 0; -EAGAIN: not now, the unpacker parks; -E2BIG: never. */
static int take_window(struct ps_unpacker *unpacker)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;
	uint64_t need = ps_decoder_nbytes(unpacker->decoder);

	PS_LOCK_SCOPE(&inflate->lock);
	unpacker->waits = false;
	if (need > inflate->limit / 2)
		return -E2BIG;
	if (need <= unpacker->window)
		return 0;
	if (!ps_inflate_reserve(inflate, need - unpacker->window)) {
		unpacker->waits = true;
		unpacker->state = PS_UNPACKER_MEMORY;
		make_others_end(unpacker);
		return -EAGAIN;
	}
	unpacker->charge += need - unpacker->window;
	unpacker->window = need;
	return 0;
}

/* The size that the first header told is not that of the file: those who have it open are told EIO before
 * they come to its end, the others look it up again and wait until all of it was decoded. */
static void disproved(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	uint64_t node = 0;

	if (ps_index_new_node(ps_store_index(inflater->inflate->store), &node) < 0)
		return;
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	inflater->nodes_below = node;
	inflater->map.n = PS_MIN(inflater->map.n, (size_t)1);
	ps_inflater_save_disproved(inflater);
}

/* A frame begins. True: go on. False: the unpacker has parked, or ended. */
static bool frame_begins(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	const struct ps_frame_header *frame = ps_decoder_frame(unpacker->decoder);
	uint64_t content = frame->content_nbytes;

	if (unpacker->in_frame == false) {
		unpacker->frame_plain = unpacker->out.pos;
		unpacker->hold_end = 0;
	}
	unpacker->in_frame = true;
	if (!frame->skippable && inflater->size != PS_SIZE_UNKNOWN && content != 0 &&
	        (unpacker->out.pos >= inflater->size ||
	                (content != UINT64_MAX && content > inflater->size - unpacker->out.pos))) {
		if (inflater->declared)
			disproved(unpacker);
		damaged(unpacker, EIO,
		        inflater->declared ? "it has more frames than the first, which told the size: it is "
		                             "found out anew"
		                           : "a frame holds more than its place in the file allows");
		return false;
	}
	int rc = take_window(unpacker);
	if (rc == -E2BIG) {
		char text[160];

		snprintf(text, sizeof text,
		        "decoding takes a window of %" PRIu64
		        " MiB, more than a sixth of the memory; raise --memory",
		        ps_decoder_nbytes(unpacker->decoder) / PS_MIB);
		damaged(unpacker, EFBIG, text);
	}
	if (rc < 0)
		return false;
	if (!frame->skippable && content <= PS_HOLD_NBYTES && !unpacker->sizes &&
	        ps_out_grow(unpacker, content + 1) == 0)
		unpacker->hold_end = unpacker->frame_plain + content;
	return true;
}

/* Where the map says that frames begin, there they must. The lock is held. */
static bool agrees(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	const struct ps_frame_map *map = &inflater->map;

	if (!map->n)
		return true;
	/* The last point at this plain offset or before; frames that hold nothing share one. */
	size_t i = ps_frame_map_find(map, unpacker->out.pos);
	while (i > 0 && map->points[i].packed > unpacker->input.at)
		i--;
	if (map->points[i].packed == unpacker->input.at)
		return map->points[i].plain == unpacker->out.pos;
	/* Behind the last point that is known, or beside one: the map, if it is whole, has them all. */
	return !map->whole && i + 1 == map->n;
}

static bool frame_ends(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	bool good;

	unpacker->in_frame = false;
	unpacker->hold_end = 0;
	{
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		good = agrees(unpacker);
		/* The first unpacker that comes by writes the map; one that began at zero, or at a point of
		 * it. */
		if (good && !inflater->map.whole && unpacker->end == UINT64_MAX)
			ps_frame_map_add(&inflater->map, unpacker->input.at, unpacker->out.pos);
		/* A size that only the first header told is certain when nothing follows. */
		if (good && !(inflater->declared && unpacker->out.pos == inflater->size))
			unpacker->out.safe = unpacker->out.pos;
	}
	if (!good)
		damaged(unpacker, EIO, "a frame ends where the table of frames has none");
	return good;
}

/* Bytes that are safe to hand out before the frame has ended. */
static void settle_safe(struct ps_unpacker *unpacker)
{
	struct ps_out *out = &unpacker->out;

	if (unpacker->sizes) {
		out->safe = out->pos;
		return;
	}
	if (!unpacker->in_frame || unpacker->hold_end || out->pos == 0)
		return;
	/* All but the last chunk of it: whoever reads to the end of a frame that turns out to be damaged is
	 * told so. */
	uint64_t safe = (out->pos - 1) / PS_CHUNK_SIZE * PS_CHUNK_SIZE;
	PS_LOCK_SCOPE(&unpacker->inflater->inflate->lock);
	out->safe = PS_MAX(out->safe, safe);
}

/* The compressed bytes of the stretch are used up. The unpacker ends. */
static void end_of_input(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;

	if (!ps_decoder_may_end(unpacker->decoder)) {
		damaged(unpacker, EIO, "it ends in the middle of a frame");
		return;
	}
	uint64_t expect = unpacker->end == UINT64_MAX ? inflater->size : unpacker->end;
	if (expect != PS_SIZE_UNKNOWN && unpacker->out.pos != expect) {
		damaged(unpacker, EIO, "it holds less than its headers tell of");
		return;
	}
	{
		PS_LOCK_SCOPE(&inflate->lock);
		unpacker->out.safe = unpacker->out.pos;
		if (unpacker->end == UINT64_MAX && inflater->map.n && !inflater->map.whole &&
		        inflater->map.n < PS_FRAME_MAP_MAX) {
			struct ps_frame_map *map = &inflater->map;

			/* Behind what pads a file there is no point of its own. */
			ps_frame_map_add(map, unpacker->input.at, unpacker->out.pos);
			map->points[map->n - 1].packed = unpacker->input.at;
			map->whole = map->n >= 2;
		}
	}
	if (unpacker->sizes) {
		int rc = ps_size_found(unpacker);

		PS_LOCK_SCOPE(&inflate->lock);
		ps_size_answer(inflater, -rc, rc < 0 ? strerror(-rc) : "");
		unpacker_end(unpacker);
		return;
	}
	ps_out_deliver(unpacker);
	(void)ps_out_flush(unpacker, true);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_inflater_save(inflater);
	unpacker_end(unpacker);
}

/* Room in the buffer for more. */
static bool make_room(struct ps_unpacker *unpacker)
{
	struct ps_out *out = &unpacker->out;

	if (out->pos < out->base + out->cap)
		return true;
	ps_out_deliver(unpacker);
	(void)ps_out_flush(unpacker, false);
	if (out->pos < out->base + out->cap)
		return true;
	if (ps_out_grow(unpacker, PS_BLOCK_SIZE) == 0)
		return true;
	damaged(unpacker, ENOMEM, "not enough memory for a frame that is handed out as a whole");
	return false;
}

/* One step of the decoder; false: the unpacker has parked or ended. */
static bool decode(struct ps_unpacker *unpacker, const uint8_t *in, size_t nin)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_out *out = &unpacker->out;
	enum ps_decode_event event;
	struct ps_error err = {0};
	size_t used, made;

	if (!make_room(unpacker))
		return false;
	int rc = ps_decoder_step(unpacker->decoder, in, nin, out->data + (out->pos - out->base),
	        out->base + out->cap - out->pos, &used, &made, &event, &err);
	{
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		out->pos += made;
		unpacker->drained = nin == 0 && made == 0 && event == PS_DECODE_MORE;
		ps_input_consume(unpacker, used);
	}
	atomic_fetch_add(&inflater->inflate->plain_bytes, made);
	if (rc < 0) {
		damaged(unpacker, rc == -ENOMEM ? ENOMEM : EIO, err.text);
		return false;
	}
	if (out->pos > unpacker->end || (inflater->size != PS_SIZE_UNKNOWN && out->pos > inflater->size)) {
		damaged(unpacker, EIO, "it holds more than its headers tell of");
		return false;
	}
	if (unpacker->sizes && out->pos > ps_store_limit(inflater->inflate->store)) {
		char text[160];

		snprintf(text, sizeof text,
		        "it holds more than the cache's limit of %" PRIu64
		        " MiB; raise --cache-size, or mount with -o raw",
		        ps_store_limit(inflater->inflate->store) / PS_MIB);
		damaged(unpacker, EFBIG, text);
		return false;
	}
	if (event == PS_DECODE_HEADER && !frame_begins(unpacker))
		return false;
	if (event == PS_DECODE_END && !frame_ends(unpacker))
		return false;
	settle_safe(unpacker);
	return true;
}

void ps_unpacker_run(struct ps_unpacker *unpacker)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;
	uint64_t start = unpacker->out.pos, delivered = unpacker->out.safe;

	if (unpacker->waits && !unpacker->kill && !frame_begins(unpacker))
		return;
	for (;;) {
		const uint8_t *in = NULL;
		size_t nin = 0;
		enum next next;

		if (unpacker->out.safe >= delivered + PS_CHUNK_SIZE || !unpacker->in_frame) {
			ps_out_deliver(unpacker);
			delivered = unpacker->out.safe;
		}
		pthread_mutex_lock(&inflate->lock);
		if (unpacker->out.pos - start > SLICE_NBYTES && !ps_list_empty(&inflate->ready)) {
			unpacker->state = PS_UNPACKER_IDLE;
			ps_unpacker_wake(unpacker);
			pthread_mutex_unlock(&inflate->lock);
			return;
		}
		next = what_next(unpacker, &in, &nin);
		if (next == NEXT_KILLED)
			unpacker_end(unpacker);
		if (next == NEXT_FAILED)
			origin_failed(unpacker);
		pthread_mutex_unlock(&inflate->lock);
		if (next == NEXT_DELIVER)
			ps_out_deliver(unpacker);
		else if (next == NEXT_END_OF_INPUT)
			end_of_input(unpacker);
		if ((next != NEXT_DELIVER && next != NEXT_DECODE) ||
		        (next == NEXT_DECODE && !decode(unpacker, in, nin)))
			return;
	}
}
