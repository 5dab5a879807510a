#include "config.h"

#include "shard/builder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "shard/file/file.h"

#define SMALL (8UL << 10) /* fields of up to this many bytes are stored in a slab */
#define ROOM (16UL << 10) /* with less room left in the slab, the next sample gets a new slab */
#define FILE_REFS 1024

void ps_builder_init(struct ps_builder *b, const struct ps_shard_options *options, struct ps_shard_file *file)
{
	/* `fields` is left out: clearing it would touch pages that no code reads before writing them */
	memset(b, 0, offsetof(struct ps_builder, fields));
	b->options = options;
	b->file = file;
}

void ps_builder_reset(struct ps_builder *b)
{
	for (uint32_t i = 0; i < b->nfields; i++) {
		struct ps_builder_field *f = &b->fields[i];

		if (!f->data || !f->owned)
			continue;
		if (b->options->budget)
			ps_byte_budget_give(b->options->budget, f->size);
		free(f->data);
	}
	if (b->slab && b->open)
		ps_slab_rewind(b->slab, b->slab_used);
	free(b->reason);
	b->reason = NULL;
	b->open = b->dropped = b->left_out = false;
	b->bad = 0;
	b->held = 0;
	b->names.n = b->key_len = 0;
	b->nfields = b->nwanted = 0;
}

void ps_builder_fini(struct ps_builder *b)
{
	ps_builder_reset(b);
	ps_buf_fini(&b->names);
	ps_slab_retire(b->slab);
	b->slab = NULL;
	ps_shard_file_unref(b->file, b->file_refs);
	b->file_refs = 0;
}

int ps_builder_bad(struct ps_builder *b, int errnum, const char *reason)
{
	if (b->bad)
		return 0;
	b->reason = strdup(reason);
	b->bad = errnum;
	return b->reason ? 0 : -ENOMEM;
}

static int names_add(struct ps_builder *b, const char *text, size_t len)
{
	int rc = ps_buf_reserve(&b->names, len + 1);

	if (rc < 0)
		return rc;
	memcpy(b->names.p + b->names.n, text, len);
	b->names.n += len;
	b->names.p[b->names.n++] = 0;
	return 0;
}

int ps_builder_begin(struct ps_builder *b, const char *key, size_t key_len, uint64_t offset)
{
	if (b->open)
		ps_builder_reset(b);
	if (b->slab && PS_SLAB_NBYTES - ps_slab_used(b->slab) < ROOM)
		ps_slab_retire(ps_steal_ptr(&b->slab));
	if (!b->slab && !b->options->never_hold)
		b->slab = ps_slab_new(b->options->slabs, b->options->budget);
	b->slab_used = b->slab ? ps_slab_used(b->slab) : 0;
	b->open = true;
	b->offset = offset;
	b->key_len = key_len;
	return names_add(b, key, key_len);
}

/* A WebDataset sample has __key__ and __url__ in addition to its fields, so these names count as taken. */
static bool is_taken(const struct ps_builder *b, const char *suffix, size_t len)
{
	if (suffix[0] == '_' && (strcmp(suffix, "__key__") == 0 || strcmp(suffix, "__url__") == 0))
		return true;
	for (uint32_t i = 0; i < b->nfields; i++)
		if (b->fields[i].suffix_len == len &&
		        memcmp(b->names.p + b->fields[i].suffix_at, suffix, len) == 0)
			return true;
	return false;
}

#define PACKED_LEN (sizeof(PS_UNPACK_SUFFIX) - 1)

/* Allocates memory for a field's bytes. Returns 0 with *ret_data NULL if the bytes are not held. */
static int field_alloc(struct ps_builder *b, uint64_t size, bool *ret_owned, uint8_t **ret_data)
{
	const struct ps_shard_options *o = b->options;

	*ret_data = b->slab && size <= SMALL ? ps_slab_take(b->slab, (size_t)size) : NULL;
	*ret_owned = !*ret_data;
	if (*ret_data)
		return 0;
	if (o->budget && !ps_byte_budget_take(o->budget, size)) {
		b->left_out = b->can_read_again;
		if (b->left_out)
			return 0;
		/* bytes that cannot be read again are held even beyond the budget */
		ps_byte_budget_force(o->budget, size);
	}
	*ret_data = size <= SIZE_MAX ? malloc((size_t)size) : NULL;
	if (*ret_data)
		return 0;
	if (o->budget)
		ps_byte_budget_give(o->budget, size);
	return -ENOMEM;
}

static void leaves_out(struct ps_builder *b)
{
	if (b->options->index_writer)
		ps_shard_index_writer_facts(b->options->index_writer)->leaves_out = true;
}

int ps_builder_field(struct ps_builder *b, const char *suffix, size_t suffix_len, uint64_t offset,
        uint64_t size, bool hold, uint8_t **ret_data)
{
	const struct ps_shard_options *o = b->options;
	struct ps_builder_field *f = &b->fields[b->nfields];
	size_t at = b->names.n;
	char text[256], *name;
	int rc = names_add(b, suffix, suffix_len);

	*ret_data = NULL;
	if (rc < 0)
		return rc;
	name = (char *)b->names.p + at;
	for (char *p = name; *p; p++) {
		if (*p >= 'A' && *p <= 'Z') {
			*p = (char)(*p - 'A' + 'a');
			leaves_out(b);
		}
	}
	if (is_taken(b, name, suffix_len)) {
		snprintf(text, sizeof(text), "field .%.100s occurs twice", name);
		return ps_builder_bad(b, EBADMSG, text);
	}
	if (b->nfields == PS_SAMPLE_MAX_FIELDS)
		return ps_builder_bad(b, EBADMSG, "more than 1024 fields");
	if (name[0] == '_' && strcmp(name, "__bad__") == 0 && size > 0) {
		b->dropped = true;
		leaves_out(b);
	}
	*f = (struct ps_builder_field){.suffix_at = at,
	        .suffix_len = (uint32_t)suffix_len,
	        .offset = offset,
	        .size = size,
	        .wanted = !o->wants || o->wants(o->wants_ctx, name, suffix_len)};
	if (!f->wanted && suffix_len > PACKED_LEN &&
	        memcmp(name + suffix_len - PACKED_LEN, PS_UNPACK_SUFFIX, PACKED_LEN) == 0 &&
	        o->wants(o->wants_ctx, name, suffix_len - PACKED_LEN))
		f->wanted = f->packed = true; /* "json.zst" where a field wants "json" */
	if (f->wanted && hold && !o->never_hold && !b->bad && size > 0) {
		if (!ps_u64_add(b->held, size, &b->held) ||
		        (o->max_sample_nbytes && b->held > o->max_sample_nbytes))
			rc = ps_builder_bad(
			        b, EFBIG, "larger than the memory a sample may take; raise memory_budget");
		else
			rc = field_alloc(b, size, &f->owned, &f->data);
		if (rc < 0)
			return rc;
	}
	b->nfields++;
	b->nwanted += f->wanted;
	*ret_data = f->data;
	return 0;
}

/* Finishing ---------------------------------------------------------------------------------------------- */

/* Adds the sample to the index. A sample that cannot be indexed is still good: only the index writer fails,
 * and cannot be used again. */
static void index_tell(const struct ps_builder *b)
{
	struct ps_shard_index_member members[PS_PSX_MAX_MEMBERS];
	uint32_t n = b->bad || b->nfields > PS_PSX_MAX_MEMBERS ? 0 : b->nfields;

	for (uint32_t i = 0; i < n; i++)
		members[i] = (struct ps_shard_index_member){
		        .suffix = (const char *)b->names.p + b->fields[i].suffix_at,
		        .offset = b->fields[i].offset,
		        .size = b->fields[i].size};
	(void)!ps_shard_index_writer_add(b->options->index_writer, b->offset, b->bad,
	        (const char *)b->names.p, b->key_len, members, n);
}

/* Moves the wanted fields to the sample; `names` is its copy of the builder's names. */
static void fields_move(struct ps_builder *b, struct ps_sample *sample, char *names)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->nfields && n < sample->nfields; i++) {
		struct ps_builder_field *f = &b->fields[i];
		size_t len;

		if (!f->wanted)
			continue;
		len = f->suffix_len - (f->packed ? PACKED_LEN : 0);
		memset(names + f->suffix_at + len, 0, f->suffix_len - len);
		sample->fields[n++] = (struct ps_sample_field){.suffix = names + f->suffix_at,
		        .suffix_len = (uint32_t)len,
		        .owned = f->owned,
		        .packed = f->packed,
		        .offset = f->offset,
		        .size = f->size,
		        .data = ps_steal_ptr(&f->data)};
	}
}

int ps_builder_finish(struct ps_builder *b, uint64_t ordinal, uint64_t resume_offset,
        struct ps_sample **ret_sample, struct ps_error *err)
{
	uint32_t nfields = b->bad ? 0 : b->nwanted;
	size_t head = sizeof(struct ps_sample) + nfields * sizeof(struct ps_sample_field);
	size_t nbytes = head + b->names.n;
	struct ps_sample *sample;
	bool in_slab;

	if (b->options->index_writer)
		index_tell(b);
	sample = b->slab ? ps_slab_take(b->slab, nbytes) : NULL;
	in_slab = sample != NULL;
	if (!sample)
		sample = malloc(nbytes);
	if (!sample)
		return ps_error_set(err, ENOMEM, "%s: out of memory", b->file->path);
	if (b->file_refs == 0) {
		ps_shard_file_ref(b->file, FILE_REFS);
		b->file_refs = FILE_REFS;
	}
	b->file_refs--;
	*sample = (struct ps_sample){.file = b->file,
	        .budget = b->options->budget,
	        .slab = b->slab,
	        .in_slab = in_slab,
	        .ordinal = ordinal,
	        .wanted_nbytes = b->held,
	        .offset = b->offset,
	        .resume_offset = resume_offset,
	        .own_nbytes = in_slab ? 0 : nbytes,
	        .key = (char *)sample + head,
	        .key_len = (uint32_t)b->key_len,
	        .names_nbytes = (uint32_t)b->names.n,
	        .bad = b->bad,
	        .reason = ps_steal_ptr(&b->reason),
	        .nfields = nfields};
	memcpy((char *)sample + head, b->names.p, b->names.n);
	fields_move(b, sample, (char *)sample + head);
	if (sample->slab)
		ps_slab_share(sample->slab);
	if (sample->budget && sample->own_nbytes)
		/* the struct and its names must be in memory, even beyond the budget */
		ps_byte_budget_force(sample->budget, sample->own_nbytes);
	b->slab_used = b->slab ? ps_slab_used(b->slab) : 0;
	ps_builder_reset(b);
	*ret_sample = sample;
	return 0;
}

/* Lines of text ------------------------------------------------------------------------------------------ */

struct ps_lines {
	struct ps_stream *stream;
	const char *suffix;
	bool skip_blank;
	uint64_t max;
	struct ps_buf key;
	size_t base_len;
	struct ps_buf parts; /* pieces of a line that is not in the stream's buffer as a whole */
};

struct line {
	const uint8_t *p; /* NULL: longer than allowed */
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
	l->suffix = ps_shard_line_suffix(path);
	l->skip_blank = strcmp(l->suffix, "json") == 0;
	l->max = options->max_sample_nbytes ? options->max_sample_nbytes : PS_LINES_MAX;
	if (options->wants && !options->wants(options->wants_ctx, l->suffix, strlen(l->suffix)) &&
	        options->wants(options->wants_ctx, "line", 4))
		l->suffix = "line";
	if (ps_shard_key(path, &l->key) < 0) {
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

/* Reads a line, without its line end: 1, or 0 at the end of the file. The line is valid until the stream is
 * read again. */
static int line_read(struct ps_lines *l, struct line *line, struct ps_error *err)
{
	const uint8_t *p, *end = NULL;
	size_t n;

	*line = (struct line){.offset = ps_stream_offset(l->stream), .blank = true};
	l->parts.n = 0;
	while (!end) {
		size_t part;
		int rc = ps_stream_peek_some(l->stream, &p, &n, err);

		if (rc < 0)
			return rc;
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
		} else {
			line->blank = line->blank && is_blank(p, part);
			line->n += part;
			if (line->n <= l->max && ps_buf_add(&l->parts, p, part) < 0)
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

int ps_lines_next(struct ps_lines *l, struct ps_builder *b, uint64_t ordinal, bool hold, struct ps_error *err)
{
	char text[128];
	struct line line;
	uint8_t *data = NULL;
	int rc;

	do
		rc = line_read(l, &line, err);
	while (rc == 1 && l->skip_blank && line.blank);
	if (rc <= 0)
		return rc;
	rc = ps_shard_key_number(&l->key, l->base_len, ordinal);
	if (rc == 0)
		rc = ps_builder_begin(b, (const char *)l->key.p, l->key.n, line.offset);
	if (rc == 0)
		rc = ps_builder_field(b, l->suffix, strlen(l->suffix), line.offset, line.n,
		        hold && line.n <= l->max, &data);
	if (rc < 0)
		return rc;
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

/* Windows of tokens -------------------------------------------------------------------------------------- */

struct ps_tokens {
	struct ps_stream *stream;
	struct ps_windows windows;
	struct ps_buf key;
	size_t base_len;
	bool begun;      /* `window` holds the previous window */
	uint64_t offset; /* offset of the next window in the file */
	uint8_t window[];
};

struct ps_tokens *ps_tokens_new(const char *path, struct ps_stream *stream, const struct ps_windows *windows)
{
	struct ps_tokens *t = calloc(1, sizeof(*t) + (size_t)windows->nbytes);

	if (!t)
		return NULL;
	t->stream = stream;
	t->windows = *windows;
	t->offset = ps_stream_offset(stream);
	if (ps_shard_key(path, &t->key) < 0) {
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

int ps_tokens_next(
        struct ps_tokens *t, struct ps_builder *b, uint64_t ordinal, bool hold, struct ps_error *err)
{
	const struct ps_windows *w = &t->windows;
	/* what the window shares with the previous one is moved */
	uint64_t shared = t->begun && w->stride < w->nbytes ? w->nbytes - w->stride : 0;
	uint8_t *data = NULL;
	int rc = 0;

	if (shared > 0)
		memmove(t->window, t->window + w->stride, (size_t)shared);
	else if (t->begun)
		rc = ps_stream_skip(t->stream, w->stride - w->nbytes, err);
	if (rc == 0)
		rc = ps_stream_read(t->stream, t->window + shared, (size_t)(w->nbytes - shared), err);
	t->begun = true;
	if (rc == -ENODATA) {
		if (ps_stream_offset(t->stream) % w->item == 0)
			return 0;
		return ps_error_set(err, EBADMSG,
		        "%ju bytes are not a whole number of %u-byte tokens: truncated, or of another type",
		        (uintmax_t)ps_stream_offset(t->stream), w->item);
	}
	if (rc == 0)
		rc = ps_shard_key_number(&t->key, t->base_len, ordinal);
	if (rc == 0)
		rc = ps_builder_begin(b, (const char *)t->key.p, t->key.n, t->offset);
	if (rc == 0)
		rc = ps_builder_field(b, w->suffix, strlen(w->suffix), t->offset, w->nbytes, hold, &data);
	if (rc == 0 && data)
		memcpy(data, t->window, (size_t)w->nbytes);
	t->offset += w->stride;
	return rc;
}
