/* Delivers a decompressor's plain bytes to the waiting gets and to the data file, so that no frame is
 * decoded twice. Only the decompressor's thread changes the buffer; other threads read it, under the lock,
 * while the decompressor is not RUNNING. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Writes beside decoding --------------------------------------------------------------------------------- */

/* Blocks that are written while the next ones are decoded: writing a block takes as long as decoding it. An
 * idle thread of the stage writes them; while PS_WRITES_MAX are queued or being written, the decompressor's
 * own thread writes. */

/* Queues a copy of a block for writing. False: PS_WRITES_MAX writes are in use, or out of memory: the caller
 * must write the block. After a failed write nothing more of the shard is cached. The lock is not held. */
static bool write_later(
        struct ps_decompressing *shard, struct ps_object *object, uint64_t block, const uint8_t *data)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_write *write = NULL;
	{
		PS_LOCK_SCOPE(&stage->lock);
		for (size_t i = 0; i < PS_WRITES_MAX && !write; i++)
			if (!stage->write_places[i].shard)
				write = &stage->write_places[i];
		if (!write || (!write->data && !(write->data = ps_spare_take(stage, PS_BLOCK_SIZE))))
			return false;
		write->shard = shard;
		shard->nwrites++;
		shard->refs++;
	}
	write->object = ps_object_ref(object);
	write->block = block;
	memcpy(write->data, data, PS_BLOCK_SIZE);
	PS_LOCK_SCOPE(&stage->lock);
	ps_list_append(&stage->writes, &write->link);
	pthread_cond_signal(&stage->cond);
	return true;
}

void ps_write_run(struct ps_decompress *stage, struct ps_list *link)
{
	struct ps_write *write = PS_CONTAINER_OF(link, struct ps_write, link);
	struct ps_decompressing *shard = write->shard;

	ps_list_remove(link);
	bool caches = shard->caches;
	pthread_mutex_unlock(&stage->lock);
	int rc = caches ? ps_object_write_block(write->object, write->block, write->data) : 0;
	ps_fill_stored(
	        stage->fill, write->object, write->block * PS_BLOCK_SIZE, (write->block + 1) * PS_BLOCK_SIZE);
	ps_object_put(ps_steal_ptr(&write->object));
	pthread_mutex_lock(&stage->lock);
	if (rc < 0)
		shard->caches = false; /* the store has logged why */
	write->shard = NULL;
	if (--shard->nwrites == 0)
		pthread_cond_broadcast(&stage->written);
	ps_decompressing_unref(shard);
}

void ps_writes_wait(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;

	PS_LOCK_SCOPE(&stage->lock);
	while (shard->nwrites > 0) {
		struct ps_list *queued = NULL;

		PS_LIST_EACH (struct ps_write, write, &stage->writes, link)
			if (write->shard == shard && !queued)
				queued = &write->link;
		if (queued)
			ps_write_run(stage, queued);
		else
			pthread_cond_wait(&stage->written, &stage->lock);
	}
}

/* The buffer --------------------------------------------------------------------------------------------- */

void ps_out_deliver(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_out *out = &decompressor->out;
	uint64_t from = PS_MAX(out->from, out->base);

	if (from >= out->safe)
		return;
	PS_LIST_EACH (struct ps_waiting_get, waiting, &shard->gets, link) {
		if (!ps_waiting_get_copy(waiting, from, out->safe, out->data + (from - out->base)))
			continue;
		/* A get ends at the end of a chunk or of the file. */
		uint64_t lo = PS_MAX(waiting->get->offset, out->base),
		         hi = waiting->get->offset + waiting->get->nbytes;
		for (uint64_t c = (lo + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE;
		        c * PS_CHUNK_SIZE < PS_MIN(hi, out->safe); c++)
			if ((c + 1) * PS_CHUNK_SIZE <= out->safe || hi <= out->safe)
				out->given[c - out->base / PS_CHUNK_SIZE] = 1;
	}
	ps_waiting_gets_answer(shard);
}

/* True if the chunk is in the store, or was delivered to a get, so that the fill engine writes it. */
static bool is_taken(const struct ps_decompressor *decompressor, struct ps_object *object, uint64_t chunk)
{
	const struct ps_out *out = &decompressor->out;

	return chunk * PS_CHUNK_SIZE < out->from || out->given[chunk - out->base / PS_CHUNK_SIZE] ||
	       ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

/* Writes chunks [first, end). Each is whole, or the file's last. */
static int write_chunks(
        struct ps_decompressor *decompressor, struct ps_object *object, uint64_t first, uint64_t end)
{
	const struct ps_out *out = &decompressor->out;
	int rc = 0;

	while (first < end && rc == 0) {
		uint64_t stop = first + 1;
		unsigned at = first % PS_BLOCK_CHUNKS;

		if (is_taken(decompressor, object, first)) {
			first++;
			continue;
		}
		while (stop < end && stop % PS_BLOCK_CHUNKS != 0 && !is_taken(decompressor, object, stop))
			stop++;
		const uint8_t *data = out->data + (first * PS_CHUNK_SIZE - out->base);
		bool whole = at == 0 && stop - first == PS_BLOCK_CHUNKS;
		if (whole && decompressor->sizes &&
		        write_later(decompressor->shard, object, first / PS_BLOCK_CHUNKS, data))
			rc = 0;
		else if (whole)
			rc = ps_object_write_block(object, first / PS_BLOCK_CHUNKS, data);
		else
			rc = ps_object_write_chunks(
			        object, first / PS_BLOCK_CHUNKS, at, (unsigned)(stop - first), data);
		ps_fill_stored(decompressor->shard->stage->fill, object, first * PS_CHUNK_SIZE,
		        stop * PS_CHUNK_SIZE);
		first = stop;
	}
	return rc;
}

void ps_out_flush(struct ps_decompressor *decompressor, bool all)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_out *out = &decompressor->out;
	/* While the file's size is unknown, only blocks that cannot be the last one are written. */
	uint64_t unit = decompressor->sizes ? PS_BLOCK_SIZE : PS_CHUNK_SIZE;
	uint64_t end = (decompressor->sizes && out->safe > 0 ? out->safe - 1 : out->safe) / unit * unit;
	uint64_t from = PS_MAX(out->flushed, out->base);
	struct ps_object *object;
	int rc = 0;

	{
		PS_LOCK_SCOPE(&shard->stage->lock);
		object = shard->caches ? ps_decompressing_hold(shard) : NULL;
	}
	if (all && !decompressor->sizes && out->safe == decompressor->size)
		end = out->safe;
	if (object && from < end)
		rc = write_chunks(decompressor, object, from / PS_CHUNK_SIZE,
		        (end + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE);
	ps_object_put(object);
	PS_LOCK_SCOPE(&shard->stage->lock);
	if (rc < 0)
		shard->caches = false; /* the store has logged why; gets are still answered */
	out->flushed = PS_MAX(out->flushed, end);
	uint64_t base = out->safe / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	if (decompressor->sizes && base == out->safe && base > out->base)
		base -= PS_BLOCK_SIZE; /* may be the last block, which is written once the size is known */
	if (base <= out->base)
		return;
	uint64_t gone = PS_MIN(base, out->pos) - out->base;
	memmove(out->data, out->data + gone, out->pos - out->base - gone);
	size_t nchunks = gone / PS_CHUNK_SIZE, have = out->cap / PS_CHUNK_SIZE;
	memmove(out->given, out->given + nchunks, have - nchunks);
	memset(out->given + have - nchunks, 0, nchunks);
	out->base += gone;
}

int ps_out_grow(struct ps_decompressor *decompressor, uint64_t nbytes)
{
	struct ps_decompress *stage = decompressor->shard->stage;
	struct ps_out *out = &decompressor->out;
	uint64_t need = (out->pos - out->base + nbytes + PS_OUT_NBYTES - 1) / PS_OUT_NBYTES * PS_OUT_NBYTES;
	uint8_t *data;

	if (need <= out->cap)
		return 0;
	{
		PS_LOCK_SCOPE(&stage->lock);
		if (!ps_decompressor_reserve(decompressor, need - out->cap))
			return -EAGAIN;
		data = ps_spare_take(stage, need);
	}
	uint8_t *given = calloc(need / PS_CHUNK_SIZE, 1);
	if (!given || !data) {
		free(given);
		free(data);
		PS_LOCK_SCOPE(&stage->lock);
		stage->used -= need - out->cap;
		decompressor->charge -= need - out->cap;
		return -ENOMEM;
	}
	PS_LOCK_SCOPE(&stage->lock);
	memcpy(data, out->data, out->pos - out->base);
	memcpy(given, out->given, out->cap / PS_CHUNK_SIZE);
	ps_spare_put(stage, out->data, out->cap);
	free(out->given);
	out->data = data;
	out->given = given;
	out->cap = need;
	return 0;
}
