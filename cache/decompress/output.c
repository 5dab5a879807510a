/* Where plain bytes go: to the gets that wait for them, and what nobody asked for to the disk, so that no
 * frame is decoded twice. Called by the unpacker's thread, which alone changes the buffer; others read it
 * under the lock while the unpacker does not run. */
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

void ps_out_deliver(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_out *out = &unpacker->out;
	uint64_t from = PS_MAX(out->from, out->base);

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	if (from >= out->safe)
		return;
	for (struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (!ps_part_give(part, from, out->safe, out->data + (from - out->base)))
			continue;
		/* A get ends where its last chunk does, or the file. */
		uint64_t lo = PS_MAX(part->get->offset, out->base),
		         hi = part->get->offset + part->get->nbytes;
		for (uint64_t c = (lo + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE;
		        c * PS_CHUNK_SIZE < PS_MIN(hi, out->safe); c++)
			if ((c + 1) * PS_CHUNK_SIZE <= out->safe || hi <= out->safe)
				out->given[c - out->base / PS_CHUNK_SIZE] = 1;
	}
	ps_parts_settle(inflater);
}

/* The store has it, or somebody else writes it. */
static bool is_taken(const struct ps_unpacker *unpacker, struct ps_object *object, uint64_t chunk)
{
	const struct ps_out *out = &unpacker->out;

	return chunk * PS_CHUNK_SIZE < out->from || out->given[chunk - out->base / PS_CHUNK_SIZE] ||
	       ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

/* Chunks [first, end), all whole (or the file's last). */
static int write_chunks(struct ps_unpacker *unpacker, struct ps_object *object, uint64_t first, uint64_t end)
{
	const struct ps_out *out = &unpacker->out;
	int rc = 0;

	while (first < end && rc == 0) {
		uint64_t stop = first + 1;
		unsigned at = first % PS_BLOCK_CHUNKS;

		if (is_taken(unpacker, object, first)) {
			first++;
			continue;
		}
		while (stop < end && stop % PS_BLOCK_CHUNKS != 0 && !is_taken(unpacker, object, stop))
			stop++;
		const uint8_t *data = out->data + (first * PS_CHUNK_SIZE - out->base);
		bool whole = at == 0 && stop - first == PS_BLOCK_CHUNKS;
		if (whole && unpacker->sizes &&
		        ps_write_later(unpacker->inflater, object, first / PS_BLOCK_CHUNKS, data))
			rc = 0;
		else if (whole)
			rc = ps_object_write_block(object, first / PS_BLOCK_CHUNKS, data);
		else
			rc = ps_object_write_chunks(
			        object, first / PS_BLOCK_CHUNKS, at, (unsigned)(stop - first), data);
		first = stop;
	}
	return rc;
}

int ps_out_flush(struct ps_unpacker *unpacker, bool all)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_out *out = &unpacker->out;
	/* While the end of the file is not known, only what is certain not to be its last block. */
	uint64_t unit = unpacker->sizes ? PS_BLOCK_SIZE : PS_CHUNK_SIZE;
	uint64_t end =
	        unpacker->sizes && out->safe > 0 ? (out->safe - 1) / unit * unit : out->safe / unit * unit;
	uint64_t from = PS_MAX(out->flushed, out->base);
	struct ps_object *object;
	int rc = 0;

	{
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		object = inflater->caches ? ps_inflater_hold(inflater) : NULL;
	}
	if (all && !unpacker->sizes && out->safe == unpacker->size)
		end = out->safe;
	if (object && from < end)
		rc = write_chunks(
		        unpacker, object, from / PS_CHUNK_SIZE, (end + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE);
	ps_object_put(object);
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	if (rc < 0)
		inflater->caches = false; /* the store has told why; who reads goes on reading */
	out->flushed = PS_MAX(out->flushed, end);
	uint64_t keep = out->safe / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	if (unpacker->sizes && keep == out->safe && keep > out->base)
		keep -= PS_BLOCK_SIZE;
	if (keep <= out->base)
		return 0;
	uint64_t gone = PS_MIN(keep, out->pos) - out->base;
	memmove(out->data, out->data + gone, out->pos - out->base - gone);
	size_t nchunks = gone / PS_CHUNK_SIZE, have = out->cap / PS_CHUNK_SIZE;
	memmove(out->given, out->given + nchunks, have - nchunks);
	memset(out->given + have - nchunks, 0, nchunks);
	out->base += gone;
	return 0;
}

int ps_out_grow(struct ps_unpacker *unpacker, uint64_t nbytes)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;
	struct ps_out *out = &unpacker->out;
	uint64_t need = (out->pos - out->base + nbytes + PS_OUT_NBYTES - 1) / PS_OUT_NBYTES * PS_OUT_NBYTES;
	uint8_t *data;

	if (need <= out->cap)
		return 0;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		if (!ps_unpacker_reserve(unpacker, need - out->cap))
			return -EAGAIN;
		data = ps_spare_take(inflate, need);
	}
	uint8_t *given = calloc(need / PS_CHUNK_SIZE, 1);
	if (!data && posix_memalign((void **)&data, 4096, need) != 0)
		data = NULL;
	if (!given || !data) {
		free(given);
		free(data);
		PS_LOCK_SCOPE(&inflate->lock);
		ps_inflate_release(inflate, need - out->cap);
		unpacker->charge -= need - out->cap;
		return -ENOMEM;
	}
	PS_LOCK_SCOPE(&inflate->lock);
	memcpy(data, out->data, out->pos - out->base);
	memcpy(given, out->given, out->cap / PS_CHUNK_SIZE);
	ps_spare_put(inflate, out->data, out->cap);
	free(out->given);
	out->data = data;
	out->given = given;
	out->cap = need;
	return 0;
}
