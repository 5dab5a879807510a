/* Streams of memory, for tests and fuzzing. Includes the code of streams, since only that knows what is in one. */
#ifndef TESTS_LOADER_STREAM_MEMORY_H
#define TESTS_LOADER_STREAM_MEMORY_H

#include "shard/file/stream.c"

/* NULL: out of memory. The data must outlive the stream. */
static struct ps_stream *stream_of_memory(const void *data, size_t nbytes)
{
	struct ps_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = s->data_fd = -1;
	s->size = -1;
	s->eof = true;
	s->buf = (uint8_t *)(uintptr_t)data; /* never written to: there is nothing more to read */
	s->cap = s->end = nbytes;
	s->options.wake_fd = -1;
	return s;
}

#endif
