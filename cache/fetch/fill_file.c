/* One file: the engine's view of an object through one origin. References, blocks in memory, and failures.
 *
 * A block buffer (struct ps_block_buffer) has the state of each chunk of a block that is in memory or in
 * flight. Two kinds of blocks stay in memory after a disk thread has handled them. RETAINED blocks are on
 * disk, but a reader is expected soon, and the disk is busy with writing. HELD blocks were refused by the
 * disk, and are offered to it again every second. Both are dropped when memory is needed. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* a retry is cheap if nothing has changed, because the store remembers a refusal for this time */
#define RETRY_NS PS_NS_PER_S
#define STALE_NS (10 * PS_NS_PER_S) /* after this time no reader is expected any more */
#define TELL_EVERY_NS (10 * PS_NS_PER_S)

/* Block buffers; the file's lock is held in all ---------------------------------------------------------- */

struct ps_block_buffer *ps_block_buffer_new(struct ps_fill_file *file, uint64_t block)
{
	struct ps_block_buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		return NULL;
	buffer->file = file;
	buffer->block = block;
	ps_list_init(&buffer->link);
	ps_list_init(&buffer->read_link);
	file->buffers[block] = buffer;
	return buffer;
}

void ps_block_buffer_free(struct ps_block_buffer *buffer)
{
	buffer->file->buffers[buffer->block] = NULL;
	ps_block_memory_unref(buffer->memory);
	free(buffer);
}

struct ps_block_buffer *ps_block_buffer_find(struct ps_fill_file *file, uint64_t block, uint64_t now_ns)
{
	struct ps_block_buffer *buffer = file->buffers[block];

	if (!buffer || !buffer->failed || buffer->failed_until_ns > now_ns)
		return buffer;
	buffer->failed = 0;
	if (buffer->memory || buffer->place != PS_PLACE_NONE)
		return buffer;
	ps_block_buffer_free(buffer);
	return NULL;
}

uint16_t ps_block_buffer_missing(struct ps_fill_file *file, uint64_t block, uint64_t now_ns)
{
	const struct ps_block_buffer *buffer = ps_block_buffer_find(file, block, now_ns);
	enum ps_block_state state = ps_file_block(file, block);

	if (state == PS_BLOCK_PRESENT || (buffer && buffer->place == PS_PLACE_VERIFY))
		return 0;
	/* An unverified block is checked as a whole, but only while its buffer is idle. The buffer may be
	 * in use for long: meanwhile the chunks that a reader needs are fetched. */
	if (state == PS_BLOCK_UNVERIFIED && (!buffer || ps_block_buffer_is_idle(buffer)))
		return 0;
	uint16_t missing = ps_chunks_of_block(file, block) & (uint16_t)~ps_file_chunks(file, block);
	return buffer ? missing & (uint16_t) ~(buffer->flight | buffer->whole | buffer->failed) : missing;
}

void ps_block_buffer_settle(struct ps_block_buffer *buffer, struct ps_list *disk)
{
	/* A buffer in another place is looked at again when the disk threads have finished with it. */
	if (buffer->flight || buffer->place != PS_PLACE_NONE)
		return;
	if (buffer->whole & ~buffer->stored) {
		buffer->place = PS_PLACE_DISK;
		ps_list_append(disk, &buffer->link);
	} else if (buffer->failed) {
		ps_block_memory_unref(ps_steal_ptr(&buffer->memory));
		buffer->whole = buffer->stored = 0;
		memset(buffer->have, 0, sizeof(buffer->have));
	} else {
		ps_block_buffer_free(buffer);
	}
}

void ps_block_buffer_fail(struct ps_block_buffer *buffer, uint16_t chunks, int errnum, uint64_t until_ns)
{
	buffer->failed |= chunks;
	buffer->errnum = errnum;
	buffer->failed_until_ns = until_ns;
}

/* Retained blocks ---------------------------------------------------------------------------------------- */

/* A retained block has no reference of its file: it is dropped when the file is freed. The engine's lock is
 * held; this takes the file's. */
static void drop_retained(struct ps_fill *fill, struct ps_block_buffer *buffer)
{
	struct ps_fill_file *file = buffer->file;

	ps_list_remove(&buffer->link);
	fill->parked.nretained--;
	file->nretained--;
	PS_LOCK_SCOPE(&file->lock);
	{
		PS_LOCK_SCOPE(&fill->parked.read_lock);
		ps_list_remove(&buffer->read_link);
	}
	ps_block_buffer_free(buffer);
}

void ps_retained_drop(struct ps_fill *fill, struct ps_fill_file *file)
{
	PS_LIST_EACH (struct ps_block_buffer, buffer, &fill->parked.retained, link) {
		if (file && !file->nretained)
			return;
		if (!file || buffer->file == file)
			drop_retained(fill, buffer);
	}
}

void ps_block_buffer_was_read(struct ps_block_buffer *buffer)
{
	struct ps_fill *fill = buffer->file->fill;

	if (buffer->read)
		return;
	buffer->read = true;
	PS_LOCK_SCOPE(&fill->parked.read_lock);
	if (buffer->retained)
		ps_list_append(&fill->parked.read, &buffer->read_link);
}

/* Drops a retained block that was read to its end. False: there is none. The engine's lock is held. */
static bool drop_read(struct ps_fill *fill)
{
	struct ps_block_buffer *buffer = NULL;
	{
		PS_LOCK_SCOPE(&fill->parked.read_lock);
		if (!ps_list_empty(&fill->parked.read))
			buffer = PS_CONTAINER_OF(fill->parked.read.next, struct ps_block_buffer, read_link);
	}
	/* The buffer still exists: retained blocks are dropped only under the engine's lock. */
	if (buffer)
		drop_retained(fill, buffer);
	return buffer;
}

void ps_retained_drop_stale(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	while (!ps_list_empty(&fill->parked.retained)) {
		struct ps_block_buffer *buffer =
		        PS_CONTAINER_OF(fill->parked.retained.next, struct ps_block_buffer, link);

		if (now_ns < buffer->retained_ns + STALE_NS)
			return;
		drop_retained(fill, buffer);
	}
}

/* Retains at most half of the budget, as much as a stream's window. Beyond that the newest block is
 * dropped, because a stream's reader needs the oldest one next. */
void ps_retain_written(struct ps_fill *fill, struct ps_block_buffer *buffer)
{
	uint64_t max_retained = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 2;

	PS_LOCK_SCOPE(&fill->lock);
	while (drop_read(fill))
		;
	{
		PS_LOCK_SCOPE(&buffer->file->lock);
		buffer->retained = !buffer->read && buffer->awaited && fill->parked.nretained < max_retained;
		if (!buffer->retained) {
			ps_block_buffer_free(buffer);
			return;
		}
	}
	buffer->retained_ns = ps_clock_mono_ns();
	ps_list_append(&fill->parked.retained, &buffer->link);
	fill->parked.nretained++;
	buffer->file->nretained++;
}

/* Takes a block off the list of held ones and frees it. A block with chunks in flight is not freed: it is
 * offered to the disk again when they have ended. The engine's lock is held; the caller gets the buffer's
 * reference of the file. */
static struct ps_fill_file *drop_held(struct ps_fill *fill, struct ps_block_buffer *buffer)
{
	struct ps_fill_file *file = buffer->file;

	ps_list_remove(&buffer->link);
	fill->parked.nheld--;
	file->nparked--;
	PS_LOCK_SCOPE(&file->lock);
	if (buffer->flight)
		buffer->place = PS_PLACE_NONE;
	else
		ps_block_buffer_free(buffer);
	return file;
}

bool ps_retained_reclaim(struct ps_fill *fill, struct ps_fill_file **ret_unref)
{
	*ret_unref = NULL;
	if (drop_read(fill))
		return true;
	if (!ps_list_empty(&fill->parked.retained))
		drop_retained(
		        fill, PS_CONTAINER_OF(fill->parked.retained.prev, struct ps_block_buffer, link));
	else if (!ps_list_empty(&fill->parked.held))
		*ret_unref = drop_held(
		        fill, PS_CONTAINER_OF(fill->parked.held.next, struct ps_block_buffer, link));
	else
		return false;
	return true;
}

/* Held blocks take at most half of the budget: the rest is for bytes that still arrive. */
void ps_retain_held(struct ps_fill *fill, struct ps_block_buffer *buffer)
{
	uint64_t max_held = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 2;
	struct ps_fill_file *file = buffer->file, *unref = NULL;
	bool full;
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_list_append(&fill->parked.held, &buffer->link);
		fill->parked.nheld++;
		if (file->draining)
			pthread_cond_broadcast(&fill->files_cond);
		/* If the object was evicted and only parked blocks still refer to the file, which is not open
		 * any more, they can neither be written nor served, but they keep the object's room. */
		if (file->refs == file->nparked && ps_object_gone(file->object))
			unref = drop_held(fill, buffer);
	}
	do {
		ps_fill_file_put(unref);
		unref = NULL;
		PS_LOCK_SCOPE(&fill->lock);
		full = fill->parked.nheld > max_held;
		if (full)
			unref = drop_held(
			        fill, PS_CONTAINER_OF(fill->parked.held.next, struct ps_block_buffer, link));
	} while (full);
}

bool ps_retained_retry_held(struct ps_fill *fill, uint64_t now_ns)
{
	bool any = false;

	PS_LOCK_SCOPE(&fill->lock);
	if (fill->stopping || now_ns < fill->parked.held_retry_ns)
		return false;
	fill->parked.held_retry_ns = now_ns + RETRY_NS;
	PS_LIST_EACH (struct ps_block_buffer, buffer, &fill->parked.held, link) {
		if (buffer->file->draining)
			continue;
		ps_list_remove(&buffer->link);
		fill->parked.nheld--;
		{
			PS_LOCK_SCOPE(&buffer->file->lock);
			buffer->place = PS_PLACE_DISK;
		}
		ps_list_append(&fill->disk.queue, &buffer->link); /* with its reference of the file */
		any = true;
	}
	if (any)
		pthread_cond_broadcast(&fill->disk.wake);
	return any;
}

void ps_retained_drop_held(struct ps_fill *fill, struct ps_origin *origin)
{
	for (;;) {
		struct ps_fill_file *file = NULL;
		{
			PS_LOCK_SCOPE(&fill->lock);
			PS_LIST_EACH (struct ps_block_buffer, buffer, &fill->parked.held, link) {
				if (origin && !ps_origin_is(buffer->file->origin, origin))
					continue;
				file = drop_held(fill, buffer);
				break;
			}
		}
		if (!file)
			return;
		ps_fill_file_put(file);
	}
}

/* Files -------------------------------------------------------------------------------------------------- */

static struct ps_fill_file *of_object(struct ps_tree_item *item, const struct ps_object *object)
{
	return item && item->key == (uintptr_t)object ? PS_CONTAINER_OF(item, struct ps_fill_file, place)
	                                              : NULL;
}

struct ps_fill_file *ps_fill_file_first(const struct ps_fill *fill, const struct ps_object *object)
{
	return of_object(ps_tree_from(&fill->files, (uintptr_t)object), object);
}

struct ps_fill_file *ps_fill_file_next(const struct ps_fill_file *file)
{
	return of_object(ps_tree_next(&file->place), file->object);
}

int ps_fill_file_get(
        struct ps_fill *fill, struct ps_object *object, struct ps_origin *origin, struct ps_fill_file **ret)
{
	uint64_t nblocks = ps_object_nblocks(object);
	struct ps_refusal refusal;

	if (ps_object_refusal(object, &refusal) && refusal.now)
		return -EIO;
	ps_autofree struct ps_fill_file *file = calloc(1, sizeof(*file));
	ps_autofree struct ps_block_buffer **buffers = calloc(nblocks ? nblocks : 1, sizeof(*buffers));
	if (!file || !buffers)
		return -ENOMEM;
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_fill_file *old = ps_fill_file_first(fill, object); old; old = ps_fill_file_next(old)) {
		if (old->refs > 0 && old->origin == origin && !old->draining) {
			old->refs++;
			*ret = old;
			return 0;
		}
	}
	file->fill = fill;
	file->object = ps_object_ref(object);
	file->origin = origin;
	if (origin->answer_ns && !origin->slice_nbytes) {
		ps_concurrency_expect(&fill->concurrency, ps_clock_mono_ns(), atomic_load(origin->answer_ns));
		ps_fill_publish(fill);
	}
	atomic_init(&file->allowed, !(origin->base ? origin->base : origin)->proved);
	file->refs = 1;
	file->buffers = ps_steal_ptr(&buffers);
	if (origin->ops->ref)
		origin->ops->ref(origin);
	file->remote = *ps_object_remote(object);
	if (!file->remote.etag[0])
		ps_object_learned_etag(object, file->remote.etag);
	ps_list_init(&file->waiters);
	for (int cls = 0; cls < PS_DEMAND_CLASSES; cls++) {
		file->demands[cls].file = file;
		ps_list_init(&file->demands[cls].demands);
	}
	ps_demand_init(&file->warm, file, PS_DEMAND_WARM);
	ps_demand_init(&file->spare, file, PS_DEMAND_READ);
	pthread_mutex_init(&file->lock, NULL);
	ps_list_init(&file->due_link);
	ps_tree_insert(&fill->files, &file->place, (uintptr_t)object);
	*ret = ps_steal_ptr(&file);
	return 0;
}

struct ps_fill_file *ps_fill_file_ref(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	file->refs++;
	return file;
}

void ps_fill_file_put(struct ps_fill_file *file)
{
	if (!file)
		return;
	struct ps_fill *fill = file->fill;
	struct ps_origin *origin = file->origin;
	/* Read now: an origin without references may be closed as soon as the file is off the list. */
	void (*unref)(struct ps_origin *) = origin->ops->unref;
	uint64_t nblocks = ps_object_nblocks(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		if (--file->refs > 0)
			return;
		ps_retained_drop(fill, file);
	}
	/* Without references the file cannot be found any more, but it stays on the list until its object
	 * is put: ps_fill_drain() waits for that. */
	ps_object_put(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_tree_remove(&fill->files, &file->place);
		pthread_cond_broadcast(&fill->files_cond);
		PS_LOCK_SCOPE(&fill->due.lock);
		ps_tree_remove(&fill->due.files, &file->due);
	}
	for (uint64_t b = 0; b < nblocks; b++)
		if (file->buffers[b])
			ps_block_buffer_free(file->buffers[b]); /* only buffers with failed chunks are left */
	pthread_mutex_destroy(&file->lock);
	free(file->buffers);
	free(file);
	if (unref)
		unref(origin);
}

/* State of a file ---------------------------------------------------------------------------------------- */

bool ps_fill_file_due(struct ps_fill_file *file, uint64_t ns)
{
	struct ps_fill *fill = file->fill;

	PS_LOCK_SCOPE(&fill->due.lock);
	if (ps_tree_is_linked(&file->due) && file->due.key <= ns)
		return false;
	ps_tree_remove(&fill->due.files, &file->due);
	ps_tree_insert(&fill->due.files, &file->due, ns);
	atomic_store(&fill->due.first_ns, ps_tree_first(&fill->due.files)->key);
	return true;
}

/* The engine's lock is held. */
static void look_now(struct ps_fill_file *file)
{
	atomic_store(&file->look, true);
	/* If the timer need not be woken, it is about to look already, or looks at its next tick. */
	if (ps_fill_file_due(file, 0))
		pthread_cond_signal(&file->fill->timer_cond);
}

void ps_fill_look_later(struct ps_fill_file *file)
{
	struct ps_fill *fill = file->fill;

	PS_LOCK_SCOPE(&fill->lock);
	look_now(file);
}

bool ps_fill_file_is_scattered(struct ps_fill_file *file, uint64_t nbytes)
{
	struct ps_fill *fill = file->fill;
	uint64_t waited_ns;
	{
		PS_LOCK_SCOPE(&file->lock);
		if (file->nscattered < PS_FILL_SCATTERED_READS)
			return false;
		waited_ns = file->scattered_ns;
	}
	PS_LOCK_SCOPE(&fill->lock);
	return waited_ns >= ps_concurrency_time_ns(&fill->concurrency, nbytes, fill->first_byte_ns);
}

struct ps_object *ps_fill_file_object(struct ps_fill_file *file)
{
	return file->object;
}

void ps_fill_file_allow(struct ps_fill_file *file)
{
	/* Chunks that counted as missing are usable now, perhaps for a waiting reader. */
	if (!atomic_exchange(&file->allowed, true))
		ps_fill_look_later(file);
}

bool ps_fill_file_allowed(struct ps_fill_file *file)
{
	return atomic_load(&file->allowed);
}

int ps_fill_file_share(struct ps_fill_file *file, void *(*make)(struct ps_fill_file *file), void **ret)
{
	PS_LOCK_SCOPE(&file->lock);
	if (!file->shared)
		file->shared = make(file);
	if (!file->shared)
		return -ENOMEM;
	file->nshared++;
	*ret = file->shared;
	return 0;
}

void *ps_fill_file_unshare(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	return --file->nshared > 0 ? NULL : ps_steal_ptr(&file->shared);
}

struct ps_fill *ps_fill_file_engine(struct ps_fill_file *file)
{
	return file->fill;
}

bool ps_fill_may_log(struct ps_fill_file *file, uint64_t now_ns)
{
	if (file->told_ns && now_ns - file->told_ns < TELL_EVERY_NS)
		return false;
	file->told_ns = now_ns;
	return true;
}

bool ps_fill_file_doubted(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	return file->doubted;
}

static void doubt(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	file->changed = file->doubted = true;
}

void ps_fill_file_doubt(struct ps_fill_file *file)
{
	doubt(file);
	ps_fill_look_later(file); /* nothing more is fetched for its waiters */
}

void ps_fill_file_trust(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	file->changed = file->doubted = false;
	if (!ps_object_remote(file->object)->etag[0])
		ps_object_learned_etag(file->object, file->remote.etag);
}

int ps_fill_file_error(struct ps_fill_file *file, char *ret_text, size_t cap)
{
	PS_LOCK_SCOPE(&file->lock);
	snprintf(ret_text, cap, "%s", file->error);
	return file->errnum;
}

void ps_fill_object_doubt(struct ps_fill *fill, const struct ps_object *object)
{
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_fill_file *file = ps_fill_file_first(fill, object); file;
	        file = ps_fill_file_next(file)) {
		doubt(file);
		look_now(file);
	}
}

int ps_fill_object_error(struct ps_fill *fill, const struct ps_object *object, const struct ps_origin *origin,
        char *ret_text, size_t cap)
{
	int errnum = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_fill_file *file = ps_fill_file_first(fill, object); file;
	        file = ps_fill_file_next(file)) {
		if (!ps_origin_is(file->origin, origin))
			continue;
		PS_LOCK_SCOPE(&file->lock);
		if (!file->error[0])
			continue;
		errnum = file->errnum;
		snprintf(ret_text, cap, "%s", file->error);
	}
	return errnum;
}
