/* Who serves which get: an unpacker that is on its way there, the data file (another unpacker may have
 * written meanwhile what the engine asked for before), or a new unpacker. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* What stays in the buffer of an unpacker that does not run. */
static void give_kept(struct ps_inflater *inflater, struct ps_part *part)
{
	for (struct ps_list *l = inflater->unpackers.next; l != &inflater->unpackers; l = l->next) {
		struct ps_unpacker *unpacker = PS_CONTAINER_OF(l, struct ps_unpacker, link);
		const struct ps_out *out = &unpacker->out;
		uint64_t from = PS_MAX(out->from, out->base);

		if (unpacker->sizes)
			continue;
		if (unpacker->state == PS_UNPACKER_RUNNING)
			unpacker->asked = true;
		else if (from < out->safe)
			ps_part_give(part, from, out->safe, out->data + (from - out->base));
	}
}

/* An unpacker that has the byte, or comes to it without passing a better place to begin. */
static struct ps_unpacker *on_its_way(struct ps_inflater *inflater, uint64_t plain, uint64_t start)
{
	for (struct ps_list *l = inflater->unpackers.next; l != &inflater->unpackers; l = l->next) {
		struct ps_unpacker *unpacker = PS_CONTAINER_OF(l, struct ps_unpacker, link);
		const struct ps_out *out = &unpacker->out;

		if (unpacker->kill || unpacker->state == PS_UNPACKER_ENDING ||
		        plain < PS_MAX(out->from, out->base) || plain >= unpacker->end)
			continue;
		if (unpacker->spans || start <= PS_MAX(out->pos, out->from))
			return unpacker;
	}
	return NULL;
}

static unsigned count_unpackers(const struct ps_inflater *inflater)
{
	unsigned n = 0;

	for (const struct ps_list *l = inflater->unpackers.next; l != &inflater->unpackers; l = l->next)
		n += PS_CONTAINER_OF(l, struct ps_unpacker, link)->state != PS_UNPACKER_ENDING;
	return n;
}

/* False: not now. */
static bool begin_unpacker(struct ps_inflater *inflater, const struct ps_range *gap)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_frame_map *map = &inflater->map;
	struct ps_unpacker *unpacker = NULL;

	if (map->n == 0)
		ps_frame_map_add(map, 0, 0);
	if (map->n == 0)
		return false;
	if (count_unpackers(inflater) > inflate->nthreads) {
		ps_inflate_make_room(inflate, NULL);
		return false;
	}
	size_t i = ps_frame_map_find(map, gap->from), e = i + 1;
	if (e == map->n) {
		unpacker = ps_unpacker_new(inflater, map->points[i], inflater->source.size, UINT64_MAX);
	} else {
		while (e + 1 < map->n && map->points[e].plain < gap->end &&
		        map->points[e].plain - map->points[i].plain < PS_SPAN_NBYTES &&
		        !on_its_way(inflater, map->points[e].plain, map->points[e].plain))
			e++;
		unpacker = ps_unpacker_new(
		        inflater, map->points[i], map->points[e].packed, map->points[e].plain);
		/* A long frame is decoded to its end if the cache takes the file; else only as far as
		 * somebody reads. */
		if (unpacker)
			unpacker->spans =
			        inflater->caches || unpacker->end - map->points[i].plain <= PS_HOLD_NBYTES;
	}
	if (!unpacker)
		ps_inflate_make_room(inflate, NULL);
	return unpacker != NULL;
}

/* The chunk at `plain`, if the store has it. The lock is dropped meanwhile. */
static bool read_stored(struct ps_inflater *inflater, uint64_t plain, uint8_t *buf, size_t *ret_n)
{
	struct ps_object *object = ps_inflater_hold(inflater);
	uint64_t chunk = plain / PS_CHUNK_SIZE, offset = chunk * PS_CHUNK_SIZE;
	size_t n = (size_t)PS_MIN(PS_CHUNK_SIZE, inflater->size - offset);
	struct ps_hold hold;
	bool good = false;

	pthread_mutex_unlock(&inflater->inflate->lock);
	if (ps_object_hold(object, offset, n, &hold) == 0) {
		good = ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1 &&
		       pread(ps_object_fd(object), buf, n, (off_t)offset) == (ssize_t)n;
		ps_object_release(&hold);
	}
	ps_object_put(object);
	pthread_mutex_lock(&inflater->inflate->lock);
	*ret_n = n;
	return good;
}

static bool is_stored(struct ps_inflater *inflater, uint64_t plain)
{
	uint64_t chunk = plain / PS_CHUNK_SIZE;

	return inflater->object &&
	       ps_object_chunks(inflater->object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

static bool is_bad(const struct ps_inflater *inflater, const struct ps_range *gap)
{
	return inflater->bad.err && gap->from >= inflater->bad_range.from &&
	       gap->from < inflater->bad_range.end && ps_clock_mono_ns() < inflater->bad_until_ns;
}

/* The cache takes it, or does not: asked once for all that comes to be decoded now. The lock is dropped
 * meanwhile. */
static void admit(struct ps_inflater *inflater)
{
	if (!inflater->object || inflater->caches || !ps_list_empty(&inflater->unpackers))
		return;
	struct ps_object *object = ps_inflater_hold(inflater);

	pthread_mutex_unlock(&inflater->inflate->lock);
	bool takes = ps_object_fits(object) && ps_object_admit(object) == 0;
	ps_object_put(object);
	pthread_mutex_lock(&inflater->inflate->lock);
	inflater->caches = takes;
}

enum found { FOUND_SERVED, FOUND_STORED, FOUND_NO_ROOM };

/* One gap after the other of a part; *ret_stored: of which the store has the beginning. */
static enum found plan_part(
        struct ps_inflater *inflater, struct ps_part *part, bool look, uint64_t *ret_stored)
{
	struct ps_range gap;
	uint64_t at = part->get->offset;

	give_kept(inflater, part);
	while (ps_part_gap(part, at, &gap)) {
		size_t i = inflater->map.n ? ps_frame_map_find(&inflater->map, gap.from) : 0;
		uint64_t start = inflater->map.n ? inflater->map.points[i].plain : 0;
		struct ps_unpacker *unpacker = on_its_way(inflater, gap.from, start);

		if (is_bad(inflater, &gap)) {
			part->err = inflater->bad;
			return FOUND_SERVED;
		}
		if (!unpacker && look && is_stored(inflater, gap.from)) {
			*ret_stored = gap.from;
			return FOUND_STORED;
		}
		if (unpacker) {
			if (unpacker->state == PS_UNPACKER_IDLE)
				ps_unpacker_wake(unpacker);
			at = unpacker->end;
		} else if (!begin_unpacker(inflater, &gap)) {
			if (inflater->inflate->nunpackers > 0)
				return FOUND_NO_ROOM; /* whoever ends wakes us */
			ps_error_set(&part->err, ENOMEM, "out of memory");
			return FOUND_SERVED;
		}
	}
	return FOUND_SERVED;
}

void ps_inflater_plan(struct ps_inflater *inflater)
{
	ps_autofree uint8_t *buf = NULL;
	bool look = true;
again:
	if (inflater->aborted || ps_list_empty(&inflater->parts))
		return;
	admit(inflater);
	for (struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		uint64_t stored = 0;
		size_t n;
		enum found found =
		        plan_part(inflater, PS_CONTAINER_OF(l, struct ps_part, link), look, &stored);

		if (found == FOUND_NO_ROOM)
			return;
		if (found != FOUND_STORED)
			continue;
		if (!buf && !(buf = malloc(PS_CHUNK_SIZE))) {
			look = false;
			goto again;
		}
		look = read_stored(inflater, stored, buf, &n);
		uint64_t offset = stored / PS_CHUNK_SIZE * PS_CHUNK_SIZE;
		/* Whatever has become of the parts meanwhile. */
		for (struct ps_list *p = inflater->parts.next; look && p != &inflater->parts; p = p->next)
			ps_part_give(PS_CONTAINER_OF(p, struct ps_part, link), offset, offset + n, buf);
		goto again;
	}
}
