#include "config.h"

#include "shard/lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shard/source.h"

struct ps_lines {
	struct ps_stream *stream;
	const char *suffix;
	bool skip_blank;
	uint64_t max;
	struct ps_buf key;
	size_t base_len;
	struct ps_buf parts; /* of a line that is not in the stream's buffer as a whole */
};

struct line {
	const uint8_t *p; /* NULL: longer than may be */
	uint64_t n;
	uint64_t offset;
	bool blank;
};

struct ps_lines *ps_lines_new(
        const char *path, struct ps_stream *stream, const struct ps_shard_options *options)
{
	struct ps_lines *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->stream = stream;
	l->suffix = ps_source_line_suffix(path);
	l->skip_blank = strcmp(l->suffix, "json") == 0;
	l->max = options->max_sample_nbytes ? options->max_sample_nbytes : PS_LINES_MAX;
	if (options->wants && !options->wants(options->wants_ctx, l->suffix, strlen(l->suffix)) &&
	        options->wants(options->wants_ctx, "line", 4))
		l->suffix = "line";
	if (ps_source_key(path, &l->key) < 0) {
		ps_lines_free(l);
		return NULL;
	}
	l->base_len = l->key.n;
	return l;
}

void ps_lines_free(struct ps_lines *l)
{
	if (!l)
		return;
	ps_buf_fini(&l->key);
	ps_buf_fini(&l->parts);
	free(l);
}

static bool is_blank(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != ' ' && (p[i] < '\t' || p[i] > '\r'))
			return false;
	return true;
}

/* A piece of a line that goes on. */
static int part_add(struct ps_lines *l, struct line *line, const uint8_t *p, size_t n)
{
	line->blank = line->blank && is_blank(p, n);
	line->n += n;
	return line->n > l->max ? 0 : ps_buf_add(&l->parts, p, n);
}

/* 1 and a line without its end, 0 at the end of the file. It is valid until the stream is read again. */
static int line_read(struct ps_lines *l, struct line *line, struct ps_load_error *err)
{
	const uint8_t *p, *end = NULL;
	size_t n;

	*line = (struct line){.offset = ps_stream_offset(l->stream), .blank = true};
	l->parts.n = 0;
	while (!end) {
		size_t part;
		int r = ps_stream_peek_some(l->stream, &p, &n, err);

		if (r < 0)
			return r;
		if (n == 0 && line->n == 0)
			return 0;
		if (n == 0)
			break;
		end = memchr(p, '\n', n);
		part = end ? (size_t)(end - p) : n;
		if (end && line->n == 0) {
			line->p = p;
			line->n = part;
			line->blank = l->skip_blank && is_blank(p, part);
		} else if (part_add(l, line, p, part) < 0) {
			return -ENOMEM;
		}
		ps_stream_take(l->stream, part + (end != NULL));
	}
	if (!line->p && line->n > 0)
		line->p = l->parts.p;
	if (line->n > l->max)
		line->p = NULL;
	else if (line->n > 0 && line->p[line->n - 1] == '\r')
		line->n--;
	return 1;
}

int ps_lines_next(
        struct ps_lines *l, struct ps_builder *b, uint64_t ordinal, bool hold, struct ps_load_error *err)
{
	char text[128];
	struct line line;
	uint8_t *data = NULL;
	int r;

	do
		r = line_read(l, &line, err);
	while (r == 1 && l->skip_blank && line.blank);
	if (r <= 0)
		return r;
	r = ps_source_key_number(&l->key, l->base_len, ordinal);
	if (r == 0)
		r = ps_builder_begin(b, (const char *)l->key.p, l->key.n, line.offset);
	if (r == 0)
		r = ps_builder_field(b, l->suffix, strlen(l->suffix), line.offset, line.n,
		        hold && line.n <= l->max, &data);
	if (r < 0)
		return r;
	if (line.n > l->max) {
		snprintf(text, sizeof(text),
		        "a line of %ju bytes, more than the memory a sample may take (%ju)",
		        (uintmax_t)line.n, (uintmax_t)l->max);
		return ps_builder_bad(b, EFBIG, text);
	}
	if (data)
		memcpy(data, line.p, (size_t)line.n);
	return 0;
}
