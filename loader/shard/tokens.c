#include "config.h"

#include "shard/tokens.h"

#include <errno.h>
#include <string.h>

#include "shard/source.h"

struct ps_tokens {
	struct ps_stream *stream;
	struct ps_windows windows;
	struct ps_buf key;
	size_t base_len;
	bool begun;      /* `window` holds the last one */
	uint64_t offset; /* of the next window in the file */
	uint8_t window[];
};

uint64_t ps_tokens_count(const struct ps_windows *w, uint64_t nbytes)
{
	return nbytes < w->nbytes ? 0 : (nbytes - w->nbytes) / w->stride + 1;
}

struct ps_tokens *ps_tokens_new(const char *path, struct ps_stream *stream, const struct ps_windows *windows)
{
	struct ps_tokens *t = calloc(1, sizeof(*t) + (size_t)windows->nbytes);

	if (!t)
		return NULL;
	t->stream = stream;
	t->windows = *windows;
	t->offset = ps_stream_offset(stream);
	if (ps_source_key(path, &t->key) < 0) {
		ps_tokens_free(t);
		return NULL;
	}
	t->base_len = t->key.n;
	return t;
}

void ps_tokens_free(struct ps_tokens *t)
{
	if (!t)
		return;
	ps_buf_fini(&t->key);
	free(t);
}

/* Brings the next window into t->window; what it shares with the last one is not read again. -ENODATA: there
 * is none. */
static int window_read(struct ps_tokens *t, struct ps_load_error *err)
{
	const struct ps_windows *w = &t->windows;
	uint64_t shared = t->begun && w->stride < w->nbytes ? w->nbytes - w->stride : 0;
	int r = 0;

	if (shared > 0)
		memmove(t->window, t->window + w->stride, (size_t)shared);
	else if (t->begun)
		r = ps_stream_skip(t->stream, w->stride - w->nbytes, err);
	if (r == 0)
		r = ps_stream_read(t->stream, t->window + shared, (size_t)(w->nbytes - shared), err);
	t->begun = true;
	return r;
}

int ps_tokens_next(
        struct ps_tokens *t, struct ps_builder *b, uint64_t ordinal, bool hold, struct ps_load_error *err)
{
	const struct ps_windows *w = &t->windows;
	uint8_t *data = NULL;
	int r = window_read(t, err);

	if (r == -ENODATA) {
		if (ps_stream_offset(t->stream) % w->item == 0)
			return 0;
		return ps_load_error_set(err, EBADMSG,
		        "%ju bytes are no whole tokens of %u bytes: truncated, or of another type",
		        (uintmax_t)ps_stream_offset(t->stream), w->item);
	}
	if (r == 0)
		r = ps_source_key_number(&t->key, t->base_len, ordinal);
	if (r == 0)
		r = ps_builder_begin(b, (const char *)t->key.p, t->key.n, t->offset);
	if (r == 0)
		r = ps_builder_field(b, w->suffix, strlen(w->suffix), t->offset, w->nbytes, hold, &data);
	if (r == 0 && data)
		memcpy(data, t->window, (size_t)w->nbytes);
	t->offset += w->stride;
	return r;
}
