/* The disk side of the fill engine: a few threads write received chunks and check unverified blocks, so
 * that neither a transfer nor a reader waits for the disk. Blocks that the disk refuses are held in
 * memory. */
#include "fetch/fill_private.h"

#include <errno.h>

/* Writes the chunks in `set`: as one block if they are the whole block, else as chunks. */
static int write_chunks(struct ps_block_buffer *buffer, const struct ps_block_memory *buf, uint16_t set)
{
	struct ps_object *object = buffer->file->object;
	int rc = ps_object_admit(object);

	if (rc == 0 && set == ps_chunks_of_block(buffer->file, buffer->block))
		return ps_object_write_block(object, buffer->block, buf->data);
	for (unsigned c = 0, n; rc == 0 && c < PS_BLOCK_CHUNKS; c += n) {
		for (n = 0; c + n < PS_BLOCK_CHUNKS && set >> (c + n) & 1; n++)
			;
		if (n > 0)
			rc = ps_object_write_chunks(
			        object, buffer->block, c, n, buf->data + c * PS_CHUNK_SIZE);
		else
			n = 1;
	}
	return rc;
}

/* False: the buffer is held, and keeps its reference of the file. */
static bool write_buffer(struct ps_fill *fill, struct ps_block_buffer *buffer)
{
	struct ps_fill_file *file = buffer->file;
	struct ps_block_memory *buf = buffer->memory; /* not freed while the buffer's place is DISK */
	struct ps_list again;
	bool whole = false, twice;
	uint16_t set;

	ps_list_init(&again);
	{
		PS_LOCK_SCOPE(&file->lock);
		set = buffer->whole & (uint16_t)~buffer->stored;
		/* A tier on this node has the block on the same disk already: the next reader gets it from
		 * there. */
		twice = !buffer->from_afar && buffer->awaited && !file->warmed &&
		        set == ps_chunks_of_block(file, buffer->block);
		if (twice)
			buffer->place = PS_PLACE_RETAINED;
	}
	if (twice) {
		ps_retain_written(fill, buffer);
		return true;
	}
	int rc = write_chunks(buffer, buf, set);
	{
		PS_LOCK_SCOPE(&file->lock);
		if (rc == 0) {
			buffer->stored |= set;
			whole = buffer->stored == ps_chunks_of_block(file, buffer->block);
			buffer->place = whole ? PS_PLACE_RETAINED : PS_PLACE_NONE;
			/* Queues the buffer again if more chunks came meanwhile; else frees it unless chunks
			 * are in flight. */
			ps_block_buffer_settle(buffer, &again);
		} else {
			buffer->place = PS_PLACE_HELD;
		}
	}
	if (rc < 0) {
		ps_retain_held(fill, buffer);
		return false;
	}
	if (whole)
		ps_retain_written(fill, buffer);
	ps_writeback_queue(fill, &again);
	return true;
}

static void verify_block(struct ps_block_buffer *buffer, void *scratch, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = buffer->file;
	uint64_t block = buffer->block;

	int rc = ps_object_verify_block(file->object, block, scratch);
	{
		PS_LOCK_SCOPE(&file->lock);
		ps_block_buffer_free(buffer);
		ps_waiters_look(file, block * PS_BLOCK_SIZE, (block + 1) * PS_BLOCK_SIZE, outcome);
	}
	if (rc < 0) /* the store has logged the reason */
		ps_log_debug("verify: %s: block %llu: the bad chunks count as missing now",
		        ps_object_url(file->object), (unsigned long long)block);
}

struct ps_block_buffer *ps_writeback_next(struct ps_fill *fill)
{
	PS_LOCK_SCOPE(&fill->lock);
	while (ps_list_empty(&fill->disk.queue) && !fill->stopping)
		pthread_cond_wait(&fill->disk.wake, &fill->lock);
	if (ps_list_empty(&fill->disk.queue))
		return NULL;
	struct ps_block_buffer *buffer =
	        PS_CONTAINER_OF(ps_list_take(&fill->disk.queue), struct ps_block_buffer, link);
	fill->disk.nbusy++;
	return buffer;
}

struct ps_fill_file *ps_writeback_do(
        struct ps_fill *fill, struct ps_block_buffer *buffer, void *scratch, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = buffer->file;
	bool referenced = true;

	/* The place of a queued buffer does not change. */
	if (buffer->memory)
		referenced = write_buffer(fill, buffer);
	else
		verify_block(buffer, scratch, outcome);
	PS_LOCK_SCOPE(&fill->lock);
	fill->disk.nbusy--;
	if (referenced)
		file->nparked--;
	return referenced ? file : NULL;
}

void ps_writeback_queue(struct ps_fill *fill, struct ps_list *buffers)
{
	if (ps_list_empty(buffers))
		return;
	PS_LOCK_SCOPE(&fill->lock);
	PS_LIST_EACH (struct ps_block_buffer, buffer, buffers, link) {
		buffer->file->refs++;
		buffer->file->nparked++;
		pthread_cond_signal(&fill->disk.wake);
	}
	ps_list_splice(&fill->disk.queue, buffers);
}
