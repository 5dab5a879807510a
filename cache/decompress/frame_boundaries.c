/* What decoding comes by: frames that begin and end, damage, the end of the stretch. Called by the unpacker's
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Damage ----------------------------------------------------------------------------------------- */

/* Where the damage ends: at the end of its frame, if the map tells where that is. In the middle of a frame
 * what is safe has been handed out: the search begins behind it, or a reader of the next bytes would never
 * be told. The lock is held. */
static uint64_t end_of_damage(const struct ps_unpacker *unpacker)
{
	const struct ps_frame_map *map = &unpacker->inflater->map;
	uint64_t at = unpacker->in_frame ? PS_MAX(unpacker->frame_plain, unpacker->out.safe)
	                                 : unpacker->out.pos; /* no header, where a frame should begin */
	size_t i = map->n ? ps_frame_map_find(map, at) + 1 : 0;

	return unpacker->sizes || i >= map->n ? UINT64_MAX : map->points[i].plain;
}

/* The data is not what it should be. Not held; the unpacker ends. */
static void damaged(struct ps_unpacker *unpacker, int errnum, const char *what)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_error err = {0};
	/* A part of this frame was handed out before its end. It is in the cache now, and may be wrong. */
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
	ps_writes_wait(
	        inflater); /* what comes after an eviction would be refused, as if the disk had failed */
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
	ps_unpacker_fail_parts(unpacker, PS_MIN(unpacker->end, inflater->bad_range.end), &err);
	ps_unpacker_end(unpacker);
}

/* Frames ----------------------------------------------------------------------------------------- */

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
		ps_inflate_make_room(inflate, unpacker);
		return -EAGAIN;
	}
	unpacker->charge += need - unpacker->window;
	unpacker->window = need;
	return 0;
}

/* Room in the buffer for so much, all at once. */
static bool make_room_for(struct ps_unpacker *unpacker, uint64_t nbytes)
{
	const struct ps_out *out = &unpacker->out;

	if (nbytes > out->base + out->cap - out->pos) {
		ps_out_deliver(unpacker);
		(void)ps_out_flush(unpacker, false);
	}
	return ps_out_grow(unpacker, nbytes) == 0;
}

/* Room in the buffer for more. */
static bool make_room(struct ps_unpacker *unpacker)
{
	const struct ps_out *out = &unpacker->out;

	if (out->pos < out->base + out->cap || make_room_for(unpacker, PS_CHUNK_SIZE))
		return true;
	damaged(unpacker, ENOMEM, "not enough memory for a frame that is handed out as a whole");
	return false;
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

bool ps_unpacker_frame_begins(struct ps_unpacker *unpacker)
{
	const struct ps_frame_header *frame = ps_decoder_frame(unpacker->decoder);
	uint64_t content = frame->content_nbytes;

	if (unpacker->in_frame == false) {
		unpacker->frame_plain = unpacker->out.pos;
		unpacker->hold_end = 0;
	}
	unpacker->in_frame = true;
	if (!frame->skippable && unpacker->size != PS_SIZE_UNKNOWN && content != 0 &&
	        (unpacker->out.pos >= unpacker->size ||
	                (content != UINT64_MAX && content > unpacker->size - unpacker->out.pos))) {
		if (unpacker->declared)
			disproved(unpacker);
		damaged(unpacker, EIO,
		        unpacker->declared ? "it has more frames than the first, which told the size: it is "
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
	if (!frame->skippable && content <= PS_HOLD_NBYTES && make_room_for(unpacker, content + 1)) {
		ps_decoder_in_place(unpacker->decoder);
		if (!unpacker->sizes) /* nobody gets any of it before all of it was right */
			unpacker->hold_end = unpacker->frame_plain + content;
	}
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

static uint64_t before_last_chunk(const struct ps_unpacker *unpacker)
{
	uint64_t pos = unpacker->out.pos;

	return pos ? (pos - 1) / PS_CHUNK_SIZE * PS_CHUNK_SIZE : 0;
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
		/* A size that only the first header told is certain once nothing follows. Until then the
		 * last chunk is kept back; no more than that, or there might be no room for the next
		 * header. */
		if (good && unpacker->declared && unpacker->out.pos == unpacker->size)
			unpacker->out.safe = PS_MAX(unpacker->out.safe, before_last_chunk(unpacker));
		else if (good)
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
	if (!unpacker->in_frame || unpacker->hold_end)
		return;
	/* All of the frame but its last chunk: if the frame turns out to be damaged, whoever reads to its
	 * end is told so. */
	PS_LOCK_SCOPE(&unpacker->inflater->inflate->lock);
	out->safe = PS_MAX(out->safe, before_last_chunk(unpacker));
}

void ps_unpacker_end_of_input(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;

	if (!ps_decoder_may_end(unpacker->decoder)) {
		damaged(unpacker, EIO,
		        unpacker->input.at == 0 ? "it is empty" : "it ends in the middle of a frame");
		return;
	}
	uint64_t expect = unpacker->end == UINT64_MAX ? unpacker->size : unpacker->end;
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

			/* Where skippable frames pad the end of the file, ps_frame_map_add() makes no
			 * point behind them: the last point moves there. */
			ps_frame_map_add(map, unpacker->input.at, unpacker->out.pos);
			map->points[map->n - 1].packed = unpacker->input.at;
			map->whole = map->n >= 2;
		}
	}
	if (unpacker->sizes) {
		int rc = ps_size_found(unpacker);

		PS_LOCK_SCOPE(&inflate->lock);
		ps_size_answer(inflater, -rc, rc < 0 ? strerror(-rc) : "");
		ps_unpacker_end(unpacker);
		return;
	}
	ps_out_deliver(unpacker);
	(void)ps_out_flush(unpacker, true);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_inflater_save(inflater);
	ps_unpacker_end(unpacker);
}

bool ps_unpacker_decode(struct ps_unpacker *unpacker, const uint8_t *in, size_t nin)
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
	if (out->pos > unpacker->end || (unpacker->size != PS_SIZE_UNKNOWN && out->pos > unpacker->size)) {
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
	if (event == PS_DECODE_HEADER && !ps_unpacker_frame_begins(unpacker))
		return false;
	if (event == PS_DECODE_END && !frame_ends(unpacker))
		return false;
	settle_safe(unpacker);
	return true;
}
