/* Shards in memory, for tests and fuzzing. Includes the code of the reader, since only that knows where its
 * stream is. */
#ifndef TESTS_LOADER_SHARD_MEMORY_H
#define TESTS_LOADER_SHARD_MEMORY_H

#include "shard/shard.c"
#include "stream_memory.h"

/* NULL: out of memory. The data must outlive the reader. */
static struct ps_shard *shard_of_memory(
        const void *data, size_t nbytes, const struct ps_shard_options *options)
{
	struct ps_stream *stream = stream_of_memory(data, nbytes);
	struct ps_shard *s = stream ? ps_shard_new("(memory)", 0, options, NULL) : NULL;

	if (s)
		s->stream = stream;
	else
		ps_stream_free(stream);
	return s;
}

#endif
