/* Parts of blocks: what a random reader asked for, without the rest of the MiB around it.
 *
 *   block    ABSENT ──a chunk──▶ PARTIAL ──the last missing chunk, or a whole write──▶ PRESENT
 *
 * Each chunk that is there has its own CRC32C, in the extent's row like those of whole blocks. With the last
 * one the block's CRC is joined from theirs: from then on it is a block like all others.
 *
 * `unverified` of a partial block means all of its chunks. Readers look without the lock, and here at
 * unverified first, then at the chunks: bad chunks go before the bit is cleared, so whoever sees it cleared
 * sees them gone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "store/block.h"
#include "store/datafile.h"
#include "store/extent.h"

_Static_assert(PS_ROW_CHUNKS == PS_BLOCK_CHUNKS, "rows and blocks");

struct ps_extent_chunks {
	_Atomic uint16_t there[PS_EXTENT_BLOCKS];
	uint32_t *crcs[PS_EXTENT_BLOCKS]; /* PS_BLOCK_CHUNKS each, made when first needed; object->lock */
};

static struct ps_extent_chunks *chunks_of(const struct ps_extent *extent)
{
	return atomic_load_explicit(&extent->chunks, memory_order_acquire);
}

static uint64_t chunk_nbytes(const struct ps_object *object, uint64_t block, unsigned chunk)
{
	return PS_MIN(ps_object_block_nbytes(object, block) - chunk * PS_CHUNK_SIZE, PS_CHUNK_SIZE);
}

uint16_t ps_chunks_all(const struct ps_object *object, uint64_t block)
{
	uint64_t n = (ps_object_block_nbytes(object, block) + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE;

	return (uint16_t)((1u << n) - 1);
}

uint16_t ps_chunks_there(const struct ps_extent *extent, uint64_t block)
{
	const struct ps_extent_chunks *chunks = chunks_of(extent);

	return chunks ? atomic_load_explicit(&chunks->there[block % PS_EXTENT_BLOCKS], memory_order_acquire)
	              : 0;
}

uint16_t ps_object_chunks(struct ps_object *object, uint64_t block)
{
	const struct ps_extent *extent = block < object->nblocks ? ps_extent_of(object, block) : NULL;

	if (!extent || extent->leaving)
		return 0;
	if (ps_object_block(object, block) == PS_BLOCK_PRESENT)
		return ps_chunks_all(object, block);
	/* This order: see above. */
	uint64_t unverified = extent->unverified;
	uint16_t there = ps_chunks_there(extent, block);
	return unverified & ps_block_bit(block) ? 0 : there;
}

void ps_chunks_free(struct ps_extent *extent)
{
	struct ps_extent_chunks *chunks = chunks_of(extent);

	for (unsigned i = 0; chunks && i < PS_EXTENT_BLOCKS; i++)
		free(chunks->crcs[i]);
	free(chunks);
}

/* Changing; object->lock held --------------------------------------------------------------------- */

static uint32_t *crcs_make(struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = chunks_of(extent);

	if (!chunks) {
		chunks = calloc(1, sizeof *chunks);
		if (!chunks)
			return NULL;
		atomic_store_explicit(&extent->chunks, chunks, memory_order_release);
	}
	uint32_t **crcs = &chunks->crcs[block % PS_EXTENT_BLOCKS];
	if (!*crcs)
		*crcs = calloc(PS_BLOCK_CHUNKS, sizeof **crcs);
	return *crcs;
}

static uint64_t set_nbytes(const struct ps_object *object, uint64_t block, uint16_t set)
{
	uint64_t nbytes = 0;

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++)
		nbytes += set >> c & 1 ? chunk_nbytes(object, block, c) : 0;
	return nbytes;
}

uint64_t ps_object_block_cached_nbytes(struct ps_object *object, uint64_t block)
{
	const struct ps_extent *extent = ps_extent_of(object, block);

	if (!extent)
		return 0;
	return extent->present & ps_block_bit(block)
	               ? ps_object_block_nbytes(object, block)
	               : set_nbytes(object, block, ps_chunks_there(extent, block));
}

/* Only while the block is not whole. */
static void set_there(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set)
{
	_Atomic uint16_t *there = &chunks_of(extent)->there[block % PS_EXTENT_BLOCKS];

	object->partial_nbytes += set_nbytes(object, block, set);
	object->partial_nbytes -= set_nbytes(object, block, *there);
	atomic_store_explicit(there, set, memory_order_release);
}

void ps_chunks_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = chunks_of(extent);
	uint16_t there = chunks ? chunks->there[block % PS_EXTENT_BLOCKS] : 0;

	if (!there || extent->present & ps_block_bit(block))
		return;
	/* The records of chunks stay: who has just seen that the block is not present finds its chunks.
	 * They count with the block from now on. */
	object->partial_nbytes -= set_nbytes(object, block, there);
	atomic_store_explicit(
	        &chunks->there[block % PS_EXTENT_BLOCKS], ps_chunks_all(object, block), memory_order_release);
}

void ps_chunks_drop(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = chunks_of(extent);

	if (!chunks)
		return;
	if (extent->present & ps_block_bit(block))
		atomic_store_explicit(&chunks->there[block % PS_EXTENT_BLOCKS], 0, memory_order_release);
	else
		set_there(object, extent, block, 0);
	free(chunks->crcs[block % PS_EXTENT_BLOCKS]);
	chunks->crcs[block % PS_EXTENT_BLOCKS] = NULL;
}

/* All chunks are there: a block like all others. */
static void complete(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	uint32_t **crcs = &chunks_of(extent)->crcs[block % PS_EXTENT_BLOCKS];
	uint32_t crc = (*crcs)[0];

	for (unsigned c = 1; ps_chunks_all(object, block) >> c & 1; c++)
		crc = ps_crc32c_join(crc, (*crcs)[c], chunk_nbytes(object, block, c));
	free(*crcs);
	*crcs = NULL;
	ps_chunks_whole(object, extent, block);
	extent->crc[block % PS_EXTENT_BLOCKS] = crc;
	object->nunverified += extent->unverified & ps_block_bit(block) ? 1 : 0;
	atomic_fetch_or_explicit(&extent->present, ps_block_bit(block), memory_order_release);
	object->npresent++;
}

/* The index --------------------------------------------------------------------------------------- */

int ps_chunks_load(struct ps_object *object, struct ps_extent *extent, uint32_t number,
        const struct ps_extent_row *row, uint64_t mask)
{
	for (unsigned i = 0; i < PS_EXTENT_BLOCKS; i++) {
		uint64_t block = (uint64_t)number * PS_EXTENT_BLOCKS + i;

		if (!(row->partial & mask & UINT64_C(1) << i))
			continue;
		uint16_t all = ps_chunks_all(object, block);
		uint16_t there = row->chunks[i] & all;

		/* A row of ours never says that all are there and the block is not. */
		if (!there || there == all)
			continue;
		uint32_t *crcs = crcs_make(extent, block);
		if (!crcs)
			return -ENOMEM;
		memcpy(crcs, row->chunk_crc[i], sizeof row->chunk_crc[i]);
		set_there(object, extent, block, there);
	}
	return 0;
}

void ps_chunks_store(const struct ps_extent *extent, struct ps_extent_row *row)
{
	const struct ps_extent_chunks *chunks = chunks_of(extent);

	for (unsigned i = 0; chunks && i < PS_EXTENT_BLOCKS; i++) {
		if (!chunks->there[i] || row->present >> i & 1)
			continue;
		row->partial |= UINT64_C(1) << i;
		row->chunks[i] = chunks->there[i];
		for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++)
			if (row->chunks[i] >> c & 1)
				row->chunk_crc[i][c] = chunks->crcs[i][c];
	}
}

/* Writing and checking ---------------------------------------------------------------------------- */

/* The chunks have their room, and the extent, where it may leave, is held. */
static int write_set(struct ps_object *object, struct ps_extent *extent, uint64_t block, unsigned first,
        unsigned n, const void *data)
{
	uint32_t crcs[PS_BLOCK_CHUNKS];
	const uint8_t *bytes = data;
	uint16_t set = (uint16_t)(((1u << n) - 1) << first);
	size_t nbytes = set_nbytes(object, block, set);
	for (unsigned i = 0; i < n; i++)
		crcs[i] = ps_crc32c(bytes + i * PS_CHUNK_SIZE, chunk_nbytes(object, block, first + i));
	int e = ps_object_put_bytes(object, block * PS_BLOCK_SIZE + first * PS_CHUNK_SIZE, data, nbytes);
	if (e < 0)
		return e;

	pthread_mutex_lock(&object->lock);
	bool whole_before = extent->present & ps_block_bit(block);
	uint32_t *own = whole_before ? NULL : crcs_make(extent, block);
	if (own) {
		uint16_t there = ps_chunks_there(extent, block);

		if (!there) /* left by a block that was dropped */
			extent->unverified &= ~ps_block_bit(block);
		memcpy(own + first, crcs, n * sizeof *crcs);
		set_there(object, extent, block, there | set);
		if ((there | set) == ps_chunks_all(object, block))
			complete(object, extent, block);
		ps_extent_touch(object, extent, block);
	}
	bool all = object->npresent == object->nblocks;
	pthread_mutex_unlock(&object->lock);
	if (all)
		ps_datafile_read_ahead(object->fd, true);
	if (own)
		ps_object_queue(object);
	return own || whole_before ? 0 : -ENOMEM;
}

int ps_object_write_chunks(
        struct ps_object *object, uint64_t block, unsigned first, unsigned n, const void *data)
{
	struct ps_extent *extent;

	if (block >= object->nblocks || n == 0 || first + n > PS_BLOCK_CHUNKS)
		return -EINVAL;
	uint16_t set = (uint16_t)(((1u << n) - 1) << first);
	if (set & ~ps_chunks_all(object, block))
		return -EINVAL;
	if (!object->admitted)
		return -ENOSPC;
	if (ps_object_block(object, block) == PS_BLOCK_PRESENT)
		return 0;
	int e = ps_extent_take(object, block, set, &extent);
	if (e < 0)
		return e;
	e = write_set(object, extent, block, first, n, data);
	ps_extent_release(object, extent);
	return e;
}

/* The chunks of `set` that are not what was written. */
static uint16_t find_bad(
        struct ps_object *object, uint64_t block, uint16_t set, const uint32_t *crcs, uint8_t *buf)
{
	uint16_t bad = 0;

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++) {
		uint64_t at = block * PS_BLOCK_SIZE + c * PS_CHUNK_SIZE;
		uint64_t nbytes = set >> c & 1 ? chunk_nbytes(object, block, c) : 0;
		uint8_t *bytes = buf + c * PS_CHUNK_SIZE;

		if (nbytes && (ps_datafile_read(object->fd, bytes, nbytes, at) < 0 ||
		                      ps_crc32c(bytes, nbytes) != crcs[c]))
			bad |= (uint16_t)(1u << c);
	}
	return bad;
}

int ps_chunks_verify(struct ps_object *object, struct ps_extent *extent, uint64_t block, void *buf)
{
	struct ps_extent_chunks *chunks = chunks_of(extent);
	uint32_t crcs[PS_BLOCK_CHUNKS] = {0};
	uint16_t set = 0;

	pthread_mutex_lock(&object->lock);
	if (chunks && !(extent->present & ps_block_bit(block)) && chunks->crcs[block % PS_EXTENT_BLOCKS]) {
		set = chunks->there[block % PS_EXTENT_BLOCKS];
		memcpy(crcs, chunks->crcs[block % PS_EXTENT_BLOCKS], sizeof crcs);
	}
	pthread_mutex_unlock(&object->lock);
	if (!set)
		return -ENOENT;
	uint16_t bad = find_bad(object, block, set, crcs, buf), dropped = 0;
	bool news = false;

	pthread_mutex_lock(&object->lock);
	const uint32_t *now = chunks->crcs[block % PS_EXTENT_BLOCKS];
	/* Whole or gone meanwhile: what we saw is no more. */
	if (now && !(extent->present & ps_block_bit(block))) {
		uint16_t there = chunks->there[block % PS_EXTENT_BLOCKS];

		for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++)
			if ((bad & there) >> c & 1 && now[c] == crcs[c])
				dropped |= (uint16_t)(1u << c);
		if (dropped == there)
			ps_chunks_drop(object, extent, block);
		else if (dropped)
			set_there(object, extent, block, there & (uint16_t)~dropped);
		news = dropped || extent->unverified & ps_block_bit(block);
		extent->unverified &= ~ps_block_bit(block);
		if (news)
			ps_extent_touch(object, extent, block);
	}
	pthread_mutex_unlock(&object->lock);
	if (news)
		ps_object_queue(object);
	if (!dropped)
		return 0;
	object->store->crc_errors++;
	ps_object_log_bad(object, block, "the bytes of a part are not what was written");
	return -EILSEQ;
}
