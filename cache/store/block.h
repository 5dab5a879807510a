/* What block.c (whole blocks) and chunk.c (parts of them) share of an object's extents. */
#ifndef PS_STORE_BLOCK_H
#define PS_STORE_BLOCK_H

#include "store/store_private.h"

static inline uint64_t ps_block_bit(uint64_t block)
{
	return UINT64_C(1) << (block % PS_EXTENT_BLOCKS);
}

struct ps_extent *ps_extent_of(struct ps_object *object, uint64_t block);   /* NULL: nothing of it is there */
struct ps_extent *ps_extent_make(struct ps_object *object, uint64_t block); /* takes object->lock */
void ps_extent_free(struct ps_extent *extent);                              /* NULL is fine */
/* Its row is to be written; the object's lock is held, ps_object_queue() has to follow without it. */
void ps_extent_touch(struct ps_object *object, struct ps_extent *extent, uint64_t block);
void ps_object_queue(struct ps_object *object);
void ps_object_log_bad(struct ps_object *object, uint64_t block, const char *why);

/* Writes bytes of a block to the data file and takes them off the reservation. A failure ends the admission
 * and is logged. Blocks on disk. */
int ps_object_put_bytes(
        struct ps_object *object, uint64_t offset, const void *data, size_t nbytes) PS_MUST_USE;

/* chunk.c --------------------------------------------------------------------------------------------- */

/* All chunks of the block. */
uint16_t ps_chunks_all(const struct ps_object *object, uint64_t block);
/* Those of the block that are there; 0 if none. Of a whole block it says nothing of use. */
uint16_t ps_chunks_there(const struct ps_extent *extent, uint64_t block);
/* Bytes of the block that are there, checked or not. */
uint64_t ps_object_block_cached_nbytes(struct ps_object *object, uint64_t block);
/* Reads what there is of a block that is not whole and checks it: 0, -ENOENT, or -EILSEQ and the bad ones are
 * dropped. */
int ps_chunks_verify(struct ps_object *object, struct ps_extent *extent, uint64_t block, void *buf);
void ps_chunks_free(struct ps_extent *extent);

/* Below: object->lock is held, or nobody else has the object. ------------------------------------------ */
/* From the row, and into it; blocks that are not in `mask` are left out. */
int ps_chunks_load(struct ps_object *object, struct ps_extent *extent, uint32_t number,
        const struct ps_extent_row *row, uint64_t mask) PS_MUST_USE;
void ps_chunks_store(const struct ps_extent *extent, struct ps_extent_row *row);
/* The block is whole now, or nothing of it is there; before its bit in `present` says so. */
void ps_chunks_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block);
void ps_chunks_drop(struct ps_object *object, struct ps_extent *extent, uint64_t block);

#endif
