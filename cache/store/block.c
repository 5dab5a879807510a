/* Blocks of an object: state, writing, checking.
 *
 * Parts of blocks are chunk.c's.
 *
 *             write                    verify ok
 *   ABSENT ──────────▶ PRESENT ◀─────────────────── UNVERIFIED ◀── load after a stop that may have lost data
 *      ▲                  │ verify bad                   │ verify bad
 *      └──────────────────┴──────────────────────────────┘
 *
 * Two bits: present, unverified. Readers look without the lock, at present first. Dropping a bad block clears
 * present and leaves unverified; a new write clears unverified and then sets present, both after its pwrite
 * returned. So whoever sees present and not unverified has the right bytes in the file, whatever happened in
 * between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/log.h"
#include "store/block.h"
#include "store/commit.h"
#include "store/datafile.h"
#include "store/disk.h"
#include "store/extent.h"
#include "store/object_checksum.h"

struct ps_extent *ps_extent_of(struct ps_object *object, uint64_t block)
{
	return atomic_load_explicit(&object->extents[block / PS_EXTENT_BLOCKS], memory_order_acquire);
}

enum ps_block_state ps_object_block(struct ps_object *object, uint64_t block)
{
	const struct ps_extent *extent = block < object->nblocks ? ps_extent_of(object, block) : NULL;

	if (!extent || extent->leaving)
		return PS_BLOCK_ABSENT;
	bool present = atomic_load_explicit(&extent->present, memory_order_acquire) & ps_block_bit(block);
	if (!present && !ps_chunks_there(extent, block))
		return PS_BLOCK_ABSENT;
	if (extent->unverified & ps_block_bit(block))
		return PS_BLOCK_UNVERIFIED;
	return present ? PS_BLOCK_PRESENT : PS_BLOCK_PARTIAL;
}

bool ps_object_complete(struct ps_object *object)
{
	return object->npresent == object->nblocks && object->nunverified == 0;
}

uint64_t ps_object_cached_nbytes(struct ps_object *object)
{
	uint64_t nbytes = object->npresent * PS_BLOCK_SIZE;
	uint64_t last = object->nblocks - 1;
	struct ps_extent *extent = object->nblocks > 0 ? ps_extent_of(object, last) : NULL;

	if (extent && extent->present & ps_block_bit(last))
		nbytes -= PS_BLOCK_SIZE - ps_object_block_nbytes(object, last);
	return PS_MIN(nbytes + object->partial_nbytes, object->remote.size);
}

void ps_extent_touch(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	uint32_t number = (uint32_t)(block / PS_EXTENT_BLOCKS);

	extent->dirty = true;
	if (object->dirty_first >= object->dirty_end) {
		object->dirty_first = number;
		object->dirty_end = number + 1;
	} else {
		object->dirty_first = PS_MIN(object->dirty_first, number);
		object->dirty_end = PS_MAX(object->dirty_end, number + 1);
	}
}

void ps_object_queue(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);

	ps_sum_look(object);
	ps_commit_queue_locked(object, 1);
}

void ps_extent_free(struct ps_extent *extent)
{
	if (extent)
		ps_chunks_free(extent);
	free(extent);
}

/* Writing ---------------------------------------------------------------------------------------- */

struct ps_extent *ps_extent_make(struct ps_object *object, uint64_t block)
{
	PS_LOCK_SCOPE(&object->lock);
	struct ps_extent *extent = ps_extent_of(object, block);

	if (!extent) {
		extent = calloc(1, sizeof *extent);
		if (extent)
			atomic_store_explicit(
			        &object->extents[block / PS_EXTENT_BLOCKS], extent, memory_order_release);
	}
	return extent;
}

static void reservation_used(struct ps_object *object, uint64_t nbytes)
{
	uint64_t left = object->unwritten, used;

	do
		used = PS_MIN(left, nbytes);
	while (!atomic_compare_exchange_weak(&object->unwritten, &left, left - used));
	object->store->unwritten -= used;
}

/* The disk refused: the caller streams, and so do the next ones, until room is asked for anew. */
static int write_failed(struct ps_object *object, uint64_t offset, int e)
{
	struct ps_store *store = object->store;

	store->write_errors++;
	ps_disk_refused(store, e, PS_BLOCK_SIZE);
	pthread_mutex_lock(&store->lock);
	bool first = !object->failed;
	object->failed = true;
	object->admitted = false;
	object->refused_until_ns = ps_clock_mono_ns() + PS_STORE_REFUSED_MS * PS_NS_PER_MS;
	store->unwritten -= atomic_exchange(&object->unwritten, 0);
	pthread_mutex_unlock(&store->lock);
	if (first)
		ps_log_error("write: %s: offset %llu: %s; it is streamed without caching", object->url,
		        (unsigned long long)offset, strerror(-e));
	return e;
}

/* Others write to this disk as well. */
static bool below_floor(const struct ps_store *store, uint64_t nbytes)
{
	struct statvfs st;

	return fstatvfs(store->data_fd, &st) == 0 &&
	       (uint64_t)st.f_bavail * st.f_frsize < store->min_free_nbytes + nbytes;
}

int ps_object_put_bytes(struct ps_object *object, uint64_t offset, const void *data, size_t nbytes)
{
	int e = below_floor(object->store, nbytes)
	                ? -ENOSPC
	                : ps_datafile_write_direct(object->direct_fd, object->fd, data, nbytes, offset);

	if (e < 0)
		return write_failed(object, offset, e);
	ps_disk_took(object->store);
	object->unsynced = true;
	reservation_used(object, nbytes);
	return 0;
}

static int write_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block, const void *data)
{
	size_t nbytes = ps_object_block_nbytes(object, block);
	uint32_t crc = ps_crc32c(data, nbytes);
	int e = ps_object_put_bytes(object, block * PS_BLOCK_SIZE, data, nbytes);
	if (e < 0)
		return e;

	pthread_mutex_lock(&object->lock);
	bool was_present = extent->present & ps_block_bit(block);
	if (was_present && extent->unverified & ps_block_bit(block))
		object->nunverified--;
	extent->crc[block % PS_EXTENT_BLOCKS] = crc;
	ps_chunks_whole(object, extent, block);
	extent->unverified &= ~ps_block_bit(block);
	atomic_fetch_or_explicit(&extent->present, ps_block_bit(block), memory_order_release);
	object->npresent += !was_present;
	bool whole = object->npresent == object->nblocks;
	ps_extent_touch(object, extent, block);
	pthread_mutex_unlock(&object->lock);
	if (whole)
		ps_datafile_read_ahead(object->fd, true);
	ps_object_queue(object);
	return 0;
}

int ps_object_write_block(struct ps_object *object, uint64_t block, const void *data)
{
	struct ps_extent *extent;

	if (block >= object->nblocks)
		return -EINVAL;
	if (!object->admitted)
		return -ENOSPC;
	if (ps_object_block(object, block) == PS_BLOCK_PRESENT)
		return 0;
	int e = ps_extent_take(object, block, ps_chunks_all(object, block), &extent);
	if (e < 0)
		return e;
	e = write_whole(object, extent, block, data);
	ps_extent_release(object, extent);
	return e;
}

/* Checking --------------------------------------------------------------------------------------- */

void ps_object_log_bad(struct ps_object *object, uint64_t block, const char *why)
{
	/* A power cut can cost thousands. */
	bool first = object->ndropped++ == 0;

	ps_log(first ? PS_LOG_WARNING : PS_LOG_DEBUG, "verify: %s: block %llu: %s; it is fetched again%s",
	        object->url, (unsigned long long)block, why, first ? " (more of this file are not told)" : "");
}

static int drop_block(
        struct ps_object *object, struct ps_extent *extent, uint64_t block, uint32_t crc, int why)
{
	bool dropped = false;

	pthread_mutex_lock(&object->lock);
	/* Written anew while we read: what we saw is no more. */
	if (extent->present & ps_block_bit(block) && extent->crc[block % PS_EXTENT_BLOCKS] == crc) {
		dropped = true;
		if (extent->unverified & ps_block_bit(block))
			object->nunverified--;
		ps_chunks_drop(object, extent, block);
		extent->present &= ~ps_block_bit(block);
		object->npresent--;
		ps_extent_touch(object, extent, block);
	}
	pthread_mutex_unlock(&object->lock);
	if (dropped) {
		ps_datafile_read_ahead(object->fd, false);
		object->store->crc_errors++;
		ps_object_log_bad(object, block, why == 0 ? "its bytes are not what was written" : strerror(-why));
		ps_object_queue(object);
	}
	return -EILSEQ;
}

static int verify_held(struct ps_object *object, struct ps_extent *extent, uint64_t block, void *buf)
{
	if (ps_object_block(object, block) == PS_BLOCK_ABSENT)
		return -ENOENT;
	pthread_mutex_lock(&object->lock);
	bool present = extent->present & ps_block_bit(block);
	uint32_t crc = extent->crc[block % PS_EXTENT_BLOCKS];
	pthread_mutex_unlock(&object->lock);
	if (!present)
		return ps_chunks_verify(object, extent, block, buf);

	size_t nbytes = ps_object_block_nbytes(object, block);
	int e = ps_datafile_read(object->fd, buf, nbytes, block * PS_BLOCK_SIZE);
	if (e < 0 || ps_crc32c(buf, nbytes) != crc)
		return drop_block(object, extent, block, crc, e);

	pthread_mutex_lock(&object->lock);
	bool news = extent->present & extent->unverified & ps_block_bit(block);
	if (news) {
		extent->unverified &= ~ps_block_bit(block);
		object->nunverified--;
		ps_extent_touch(object, extent, block);
	}
	pthread_mutex_unlock(&object->lock);
	if (news)
		ps_object_queue(object);
	return 0;
}

int ps_object_verify_block(struct ps_object *object, uint64_t block, void *buf)
{
	struct ps_extent *extent = block < object->nblocks ? ps_extent_of(object, block) : NULL;
	struct ps_hold hold;

	if (!extent)
		return -ENOENT;
	int e = ps_object_hold(object, block * PS_BLOCK_SIZE, 1, &hold);
	if (e < 0)
		return e;
	e = verify_held(object, extent, block, buf);
	ps_object_release(&hold);
	return e;
}

void ps_object_dirty_extent(struct ps_object *object, uint32_t extent)
{
	PS_LOCK_SCOPE(&object->lock);
	ps_extent_touch(object, object->extents[extent], (uint64_t)extent * PS_EXTENT_BLOCKS);
}
