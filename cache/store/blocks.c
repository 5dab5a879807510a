/* The bytes of an object's blocks: writing, reading and checking. presence.c has their presence. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/checksum.h"
#include "base/log.h"
#include "store/store_private.h"

/* Writing ------------------------------------------------------------------------------------------------ */

static void queue_rows(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);

	ps_object_checksum_look(object);
	ps_commit_queue_locked(object, 1);
}

/* Called after the disk refused a write. Ends the object's admission: this writer and the next ones stream,
 * until the object is admitted again. */
static int write_failed(struct ps_object *object, uint64_t offset, int e)
{
	struct ps_store *store = object->store;

	store->counters.write_errors++;
	ps_disk_refused(store, e, PS_BLOCK_SIZE);
	pthread_mutex_lock(&store->lock);
	bool first = !object->failed;
	object->failed = true;
	object->admitted = false;
	object->refused_until_ns = ps_clock_mono_ns() + PS_STORE_REFUSED_MS * PS_NS_PER_MS;
	store->unwritten -= atomic_exchange(&object->unwritten, 0);
	pthread_mutex_unlock(&store->lock);
	if (first)
		ps_log_error("write: %s: offset %llu: %s; the data is streamed without being cached",
		        object->url, (unsigned long long)offset, strerror(-e));
	return e;
}

static int put_bytes(struct ps_object *object, uint64_t offset, const void *data, size_t nbytes)
{
	/* The room is checked for each write, because other programs write to this disk, too. */
	int rc = ps_disk_room(object->store) < nbytes
	                 ? -ENOSPC
	                 : ps_datafile_write_direct(object->direct_fd, object->fd, data, nbytes, offset);
	uint64_t left = object->unwritten, used;

	if (rc < 0)
		return write_failed(object, offset, rc);
	ps_disk_took(object->store);
	object->unsynced = true;
	do
		used = PS_MIN(left, nbytes);
	while (!atomic_compare_exchange_weak(&object->unwritten, &left, left - used));
	object->store->unwritten -= used;
	return 0;
}

/* Writes n chunks of a block. Preconditions: room for the chunks was taken, and the extent is held if it may
 * be evicted. */
static int write_set(struct ps_object *object, struct ps_extent *extent, uint64_t block, unsigned first,
        unsigned n, const void *data)
{
	uint32_t crcs[PS_BLOCK_CHUNKS];
	const uint8_t *bytes = data;
	uint16_t set = (uint16_t)(((1u << n) - 1) << first);
	size_t nbytes = ps_chunks_nbytes(object, block, set);
	for (unsigned i = 0; i < n; i++)
		crcs[i] = ps_crc32c(bytes + i * PS_CHUNK_SIZE, ps_chunk_nbytes(object, block, first + i));
	int rc = put_bytes(object, block * PS_BLOCK_SIZE + first * PS_CHUNK_SIZE, data, nbytes);
	if (rc < 0)
		return rc;

	pthread_mutex_lock(&object->lock);
	bool whole_before = extent->present & ps_block_bit(block);
	uint32_t *own = whole_before ? NULL : ps_chunks_crcs_make(extent, block);
	if (own) {
		uint16_t there = ps_chunks_there(extent, block);

		if (!there) /* the block's bit is left over from a block that was dropped */
			extent->unverified &= ~ps_block_bit(block);
		memcpy(own + first, crcs, n * sizeof(*crcs));
		ps_chunks_set(object, extent, block, there | set);
		if ((there | set) == ps_chunks_all(object, block))
			ps_chunks_join(object, extent, block);
		ps_extent_touch(object, extent, block);
	}
	bool all = object->npresent == object->nblocks;
	pthread_mutex_unlock(&object->lock);
	if (all)
		ps_datafile_read_ahead(object->fd, true);
	if (own)
		queue_rows(object);
	return own || whole_before ? 0 : -ENOMEM;
}

static int write_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block, const void *data)
{
	size_t nbytes = ps_object_block_nbytes(object, block);
	uint32_t crc = ps_crc32c(data, nbytes);
	int rc = put_bytes(object, block * PS_BLOCK_SIZE, data, nbytes);
	if (rc < 0)
		return rc;

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
	queue_rows(object);
	return 0;
}

int ps_object_write_chunks(
        struct ps_object *object, uint64_t block, unsigned first, unsigned n, const void *data)
{
	struct ps_extent *extent;

	if (block >= object->nblocks || n == 0 || first + n > PS_BLOCK_CHUNKS)
		return -EINVAL;
	uint16_t set = (uint16_t)(((1u << n) - 1) << first), all = ps_chunks_all(object, block);
	if (set & ~all)
		return -EINVAL;
	if (!object->admitted)
		return -ENOSPC;
	if (ps_object_block(object, block) == PS_BLOCK_PRESENT)
		return 0;
	int rc = ps_extent_take(object, block, set, &extent);
	if (rc < 0)
		return rc;
	rc = set == all ? write_whole(object, extent, block, data)
	                : write_set(object, extent, block, first, n, data);
	ps_extent_release(object, extent);
	return rc;
}

int ps_object_write_block(struct ps_object *object, uint64_t block, const void *data)
{
	if (block >= object->nblocks)
		return -EINVAL;
	return ps_object_write_chunks(
	        object, block, 0, (unsigned)__builtin_popcount(ps_chunks_all(object, block)), data);
}

/* Checking ----------------------------------------------------------------------------------------------- */

static void log_bad(struct ps_object *object, uint64_t block, const char *why)
{
	/* Only the object's first bad block is a warning, because a power cut can cost thousands of
	 * blocks. */
	bool first = object->ndropped++ == 0;

	ps_log(first ? PS_LOG_WARNING : PS_LOG_DEBUG, "verify: %s: block %llu: %s; it is fetched again%s",
	        object->url, (unsigned long long)block, why,
	        first ? " (further bad blocks of this file are not logged)" : "");
}

/* The chunks of `set` that do not match their CRCs. */
static uint16_t find_bad(
        struct ps_object *object, uint64_t block, uint16_t set, const uint32_t *crcs, uint8_t *buf)
{
	uint16_t bad = 0;

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++) {
		uint64_t at = block * PS_BLOCK_SIZE + c * PS_CHUNK_SIZE;
		uint64_t nbytes = set >> c & 1 ? ps_chunk_nbytes(object, block, c) : 0;
		uint8_t *bytes = buf + c * PS_CHUNK_SIZE;

		if (nbytes && (ps_datafile_read(object->fd, bytes, nbytes, at) < 0 ||
		                      ps_crc32c(bytes, nbytes) != crcs[c]))
			bad |= (uint16_t)(1u << c);
	}
	return bad;
}

/* Reads the stored chunks of a partial block and checks them. -ENOENT: none is stored; -EILSEQ: some were
 * bad, and were dropped. */
static int verify_chunks(struct ps_object *object, struct ps_extent *extent, uint64_t block, void *buf)
{
	struct ps_extent_chunks *chunks = ps_chunks_of(extent);
	uint32_t crcs[PS_BLOCK_CHUNKS] = {0};
	uint16_t set = 0;

	pthread_mutex_lock(&object->lock);
	if (chunks && !(extent->present & ps_block_bit(block)) && chunks->crcs[block % PS_EXTENT_BLOCKS]) {
		set = chunks->there[block % PS_EXTENT_BLOCKS];
		memcpy(crcs, chunks->crcs[block % PS_EXTENT_BLOCKS], sizeof(crcs));
	}
	pthread_mutex_unlock(&object->lock);
	if (!set)
		return -ENOENT;
	uint16_t bad = find_bad(object, block, set, crcs, buf), dropped = 0;
	bool news = false;

	pthread_mutex_lock(&object->lock);
	const uint32_t *now = chunks->crcs[block % PS_EXTENT_BLOCKS];
	/* The block may have become whole, or was dropped, since it was read: then it stays as it is. */
	if (now && !(extent->present & ps_block_bit(block))) {
		uint16_t there = chunks->there[block % PS_EXTENT_BLOCKS];

		for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++)
			if ((bad & there) >> c & 1 && now[c] == crcs[c])
				dropped |= (uint16_t)(1u << c);
		if (dropped == there)
			ps_chunks_drop(object, extent, block);
		else if (dropped)
			ps_chunks_set(object, extent, block, there & (uint16_t)~dropped);
		news = dropped || extent->unverified & ps_block_bit(block);
		extent->unverified &= ~ps_block_bit(block);
		if (news)
			ps_extent_touch(object, extent, block);
	}
	pthread_mutex_unlock(&object->lock);
	if (news)
		queue_rows(object);
	if (!dropped)
		return 0;
	object->store->counters.crc_errors++;
	log_bad(object, block, "the bytes of a part are not what was written");
	return -EILSEQ;
}

static int drop_block(
        struct ps_object *object, struct ps_extent *extent, uint64_t block, uint32_t crc, int why)
{
	bool dropped = false;

	pthread_mutex_lock(&object->lock);
	/* If the block was written again since it was read, it stays. */
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
		object->store->counters.crc_errors++;
		log_bad(object, block, why == 0 ? "its bytes are not what was written" : strerror(-why));
		queue_rows(object);
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
		return verify_chunks(object, extent, block, buf);

	size_t nbytes = ps_object_block_nbytes(object, block);
	int rc = ps_datafile_read(object->fd, buf, nbytes, block * PS_BLOCK_SIZE);
	if (rc < 0 || ps_crc32c(buf, nbytes) != crc)
		return drop_block(object, extent, block, crc, rc);

	pthread_mutex_lock(&object->lock);
	bool news = extent->present & extent->unverified & ps_block_bit(block);
	if (news) {
		extent->unverified &= ~ps_block_bit(block);
		object->nunverified--;
		ps_extent_touch(object, extent, block);
	}
	pthread_mutex_unlock(&object->lock);
	if (news)
		queue_rows(object);
	return 0;
}

int ps_object_verify_block(struct ps_object *object, uint64_t block, void *buf)
{
	struct ps_extent *extent = block < object->nblocks ? ps_extent_of(object, block) : NULL;
	struct ps_hold hold;

	if (!extent)
		return -ENOENT;
	int rc = ps_object_hold(object, block * PS_BLOCK_SIZE, 1, &hold);
	if (rc < 0)
		return rc;
	rc = verify_held(object, extent, block, buf);
	ps_object_release(&hold);
	return rc;
}
