/* What all decompressors share: memory, spare buffers, and the queues that the threads serve. */
#include <stdlib.h>

#include "base/size.h"
#include "base/thread.h"
#include "decompress/decompress_private.h"

/* Memory ------------------------------------------------------------------------------------------------- */

void ps_decompress_take_memory(struct ps_decompress *stage)
{
	if (stage->limit)
		return;
	uint64_t least = 4 * PS_DECOMPRESSOR_NBYTES;
	stage->limit = PS_MAX(ps_fill_memory_bytes(stage->fill) / 3, least);
	ps_fill_give_up_memory(stage->fill, stage->limit + PS_WRITES_MAX * PS_BLOCK_SIZE);
	stage->max_decompressors = (unsigned)PS_MIN(
	        PS_MAX(stage->limit / 2 / PS_DECOMPRESSOR_NBYTES, UINT64_C(1)), 2 * stage->nthreads + 2);
}

bool ps_decompress_reserve(struct ps_decompress *stage, uint64_t nbytes)
{
	if (stage->used + nbytes > stage->limit)
		return false;
	stage->used += nbytes;
	if (stage->used + stage->spare_nbytes > stage->limit)
		ps_spares_drop(stage, 0);
	return true;
}

bool ps_decompressor_reserve(struct ps_decompressor *decompressor, uint64_t nbytes)
{
	struct ps_decompress *stage = decompressor->shard->stage;

	/* The buffers of one decompressor take half of the memory at most. The other half is left for its
	 * window, so that a decompressor that is the only one left can always go on. */
	if (decompressor->charge - decompressor->window + nbytes > stage->limit / 2 ||
	        !ps_decompress_reserve(stage, nbytes))
		return false;
	decompressor->charge += nbytes;
	return true;
}

/* Spare buffers ------------------------------------------------------------------------------------------ */

uint8_t *ps_spare_take(struct ps_decompress *stage, size_t cap)
{
	struct ps_spare **at = &stage->spares;
	void *data;

	while (*at && (*at)->cap != cap)
		at = &(*at)->next;
	if (!*at)
		return posix_memalign(&data, 4096, cap) == 0 ? data : NULL;
	data = *at;
	*at = (*at)->next;
	stage->spare_nbytes -= cap;
	return data;
}

void ps_spare_put(struct ps_decompress *stage, void *data, size_t cap)
{
	struct ps_spare *spare = data;

	if (!data || stage->used + stage->spare_nbytes + cap > stage->limit) {
		free(data);
		return;
	}
	*spare = (struct ps_spare){.next = stage->spares, .cap = cap};
	stage->spares = spare;
	stage->spare_nbytes += cap;
}

void ps_spares_drop(struct ps_decompress *stage, uint64_t keep)
{
	while (stage->spare_nbytes > keep) {
		struct ps_spare *spare = stage->spares;

		stage->spares = spare->next;
		stage->spare_nbytes -= spare->cap;
		free(spare);
	}
}

/* Queues ------------------------------------------------------------------------------------------------- */

void ps_decompress_watch(struct ps_decompress *stage, unsigned *count)
{
	/* Threads sleep without a timeout while there is nothing to watch. All are woken: a thread that is
	 * signalled for other work may decode for long. */
	if (stage->ndecompressors + stage->nwaiters == 0) {
		stage->next_tick_ns = ps_clock_mono_ns() + PS_DECOMPRESS_TICK_NS;
		pthread_cond_broadcast(&stage->cond);
	}
	(*count)++;
}

bool ps_decompress_is_due(const struct ps_decompress *stage)
{
	return stage->stopping || !ps_list_empty(&stage->work) || !ps_list_empty(&stage->ready) ||
	       ps_clock_mono_ns() >= stage->next_tick_ns;
}

void ps_decompressing_wake(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;

	/* Without references the shard is being freed, although it may still be in the list. */
	if (shard->refs == 0 || !ps_list_empty(&shard->work_link))
		return;
	shard->refs++;
	ps_list_append(&stage->work, &shard->work_link);
	pthread_cond_signal(&stage->cond);
}

void ps_decompressor_wake(struct ps_decompressor *decompressor)
{
	struct ps_decompress *stage = decompressor->shard->stage;

	if (decompressor->state == PS_DECOMPRESSOR_READY || decompressor->state == PS_DECOMPRESSOR_RUNNING ||
	        decompressor->state == PS_DECOMPRESSOR_ENDING)
		return;
	decompressor->state = PS_DECOMPRESSOR_READY;
	ps_list_append(&stage->ready, &decompressor->ready_link);
	pthread_cond_signal(&stage->cond);
}
