/* Presence of an object's blocks and chunks: their bits and CRCs, in memory.
 *
 *             write                    verify ok
 *   ABSENT ──────────▶ PRESENT ◀─────────────────── UNVERIFIED ◀── load after a stop that may have lost data
 *      ▲                  │ verify bad                   │ verify bad
 *      └──────────────────┴──────────────────────────────┘
 *
 * A block has two bits: `present` and `unverified`. Readers take no lock, and read `present` first, then
 * `unverified`. Dropping a bad block clears `present` and leaves `unverified`. A new write clears
 * `unverified` and then sets `present`, both after its pwrite returned. So if a thread sees `present` and
 * not `unverified`, the file has the right bytes, whatever happened in between. */
#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"

/* Blocks ------------------------------------------------------------------------------------------------- */

uint64_t ps_object_block_nbytes(const struct ps_object *object, uint64_t block)
{
	return PS_MIN(object->remote.size - block * PS_BLOCK_SIZE, PS_BLOCK_SIZE);
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

void ps_object_dirty_extent(struct ps_object *object, uint32_t extent)
{
	PS_LOCK_SCOPE(&object->lock);
	ps_extent_touch(object, object->extents[extent], (uint64_t)extent * PS_EXTENT_BLOCKS);
}

struct ps_extent *ps_extent_make(struct ps_object *object, uint64_t block)
{
	PS_LOCK_SCOPE(&object->lock);
	struct ps_extent *extent = ps_extent_of(object, block);

	if (!extent) {
		extent = calloc(1, sizeof(*extent));
		if (extent)
			atomic_store_explicit(
			        &object->extents[block / PS_EXTENT_BLOCKS], extent, memory_order_release);
	}
	return extent;
}

/* Chunks ------------------------------------------------------------------------------------------------- */

/* Partial blocks: chunks that random readers needed, without the rest of the block.
 *
 *   block    ABSENT ──a chunk──▶ PARTIAL ──the last missing chunk, or a whole write──▶ PRESENT
 *
 * Each stored chunk has its own CRC32C, in the extent's row, like those of whole blocks. When the last chunk
 * is stored, the block's CRC is computed from those of its chunks, and the block counts as whole.
 *
 * The `unverified` bit of a partial block is for all of its chunks. Readers look without the lock, here at
 * `unverified` first, then at the chunks. Bad chunks are dropped before the bit is cleared, so a thread
 * that sees the bit cleared does not see the bad chunks. */

_Static_assert(PS_ROW_CHUNKS == PS_BLOCK_CHUNKS, "rows and blocks");

struct ps_extent_chunks *ps_chunks_of(const struct ps_extent *extent)
{
	return atomic_load_explicit(&extent->chunks, memory_order_acquire);
}

uint64_t ps_chunk_nbytes(const struct ps_object *object, uint64_t block, unsigned chunk)
{
	return PS_MIN(ps_object_block_nbytes(object, block) - chunk * PS_CHUNK_SIZE, PS_CHUNK_SIZE);
}

uint16_t ps_chunks_all_of(uint64_t size, uint64_t block)
{
	uint64_t nbytes = PS_MIN(size - block * PS_BLOCK_SIZE, PS_BLOCK_SIZE);

	return (uint16_t)((1u << (nbytes + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE) - 1);
}

uint16_t ps_chunks_all(const struct ps_object *object, uint64_t block)
{
	return ps_chunks_all_of(object->remote.size, block);
}

uint16_t ps_chunks_there(const struct ps_extent *extent, uint64_t block)
{
	const struct ps_extent_chunks *chunks = ps_chunks_of(extent);

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
	/* `unverified` first: see above. */
	uint64_t unverified = extent->unverified;
	uint16_t there = ps_chunks_there(extent, block);
	return unverified & ps_block_bit(block) ? 0 : there;
}

void ps_extent_free(struct ps_extent *extent)
{
	struct ps_extent_chunks *chunks = extent ? ps_chunks_of(extent) : NULL;

	for (unsigned i = 0; chunks && i < PS_EXTENT_BLOCKS; i++)
		free(chunks->crcs[i]);
	free(chunks);
	free(extent);
}

/* Changing; object->lock held ---------------------------------------------------------------------------- */

uint32_t *ps_chunks_crcs_make(struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = ps_chunks_of(extent);

	if (!chunks) {
		chunks = calloc(1, sizeof(*chunks));
		if (!chunks)
			return NULL;
		atomic_store_explicit(&extent->chunks, chunks, memory_order_release);
	}
	uint32_t **crcs = &chunks->crcs[block % PS_EXTENT_BLOCKS];
	if (!*crcs)
		*crcs = calloc(PS_BLOCK_CHUNKS, sizeof(**crcs));
	return *crcs;
}

uint64_t ps_chunks_nbytes(const struct ps_object *object, uint64_t block, uint16_t set)
{
	uint64_t nbytes = 0;

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++)
		nbytes += set >> c & 1 ? ps_chunk_nbytes(object, block, c) : 0;
	return nbytes;
}

uint64_t ps_object_block_cached_nbytes(struct ps_object *object, uint64_t block)
{
	const struct ps_extent *extent = ps_extent_of(object, block);

	if (!extent)
		return 0;
	return extent->present & ps_block_bit(block)
	               ? ps_object_block_nbytes(object, block)
	               : ps_chunks_nbytes(object, block, ps_chunks_there(extent, block));
}

void ps_chunks_set(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set)
{
	_Atomic uint16_t *there = &ps_chunks_of(extent)->there[block % PS_EXTENT_BLOCKS];

	object->partial_nbytes += ps_chunks_nbytes(object, block, set);
	object->partial_nbytes -= ps_chunks_nbytes(object, block, *there);
	atomic_store_explicit(there, set, memory_order_release);
}

void ps_chunks_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = ps_chunks_of(extent);
	uint16_t there = chunks ? chunks->there[block % PS_EXTENT_BLOCKS] : 0;

	if (!there || extent->present & ps_block_bit(block))
		return;
	/* The set of stored chunks is not cleared: a thread that looked at `present` before the block
	 * became whole still finds the chunks. Their bytes count with the block from now on. */
	object->partial_nbytes -= ps_chunks_nbytes(object, block, there);
	atomic_store_explicit(
	        &chunks->there[block % PS_EXTENT_BLOCKS], ps_chunks_all(object, block), memory_order_release);
}

void ps_chunks_drop(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	struct ps_extent_chunks *chunks = ps_chunks_of(extent);

	if (!chunks)
		return;
	if (extent->present & ps_block_bit(block))
		atomic_store_explicit(&chunks->there[block % PS_EXTENT_BLOCKS], 0, memory_order_release);
	else
		ps_chunks_set(object, extent, block, 0);
	free(chunks->crcs[block % PS_EXTENT_BLOCKS]);
	chunks->crcs[block % PS_EXTENT_BLOCKS] = NULL;
}

void ps_chunks_join(struct ps_object *object, struct ps_extent *extent, uint64_t block)
{
	uint32_t **crcs = &ps_chunks_of(extent)->crcs[block % PS_EXTENT_BLOCKS];
	uint32_t crc = (*crcs)[0];

	for (unsigned c = 1; ps_chunks_all(object, block) >> c & 1; c++)
		crc = ps_crc32c_join(crc, (*crcs)[c], ps_chunk_nbytes(object, block, c));
	free(*crcs);
	*crcs = NULL;
	ps_chunks_whole(object, extent, block);
	extent->crc[block % PS_EXTENT_BLOCKS] = crc;
	object->nunverified += extent->unverified & ps_block_bit(block) ? 1 : 0;
	atomic_fetch_or_explicit(&extent->present, ps_block_bit(block), memory_order_release);
	object->npresent++;
}

/* Rows of the index -------------------------------------------------------------------------------------- */

int ps_chunks_load(struct ps_object *object, struct ps_extent *extent, uint32_t number,
        const struct ps_extent_row *row, uint64_t mask)
{
	for (unsigned i = 0; i < PS_EXTENT_BLOCKS; i++) {
		uint64_t block = (uint64_t)number * PS_EXTENT_BLOCKS + i;

		if (!(row->partial & mask & UINT64_C(1) << i))
			continue;
		uint16_t all = ps_chunks_all(object, block);
		uint16_t there = row->chunks[i] & all;

		/* In a valid row, the chunks of a partial block are never all present. */
		if (!there || there == all)
			continue;
		uint32_t *crcs = ps_chunks_crcs_make(extent, block);
		if (!crcs)
			return -ENOMEM;
		memcpy(crcs, row->chunk_crc[i], sizeof(row->chunk_crc[i]));
		ps_chunks_set(object, extent, block, there);
	}
	return 0;
}

void ps_chunks_store(const struct ps_extent *extent, struct ps_extent_row *row)
{
	const struct ps_extent_chunks *chunks = ps_chunks_of(extent);

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
