#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/overflow.h"
#include "shard/tar.h"

/* The sample being put together. Its texts live in `names` until it is done: key, then a suffix a field, each
 * with a zero behind it. */
struct builder {
	bool open;
	bool dropped;  /* marked __bad__ by its writer: WebDataset leaves it out */
	bool left_out; /* bytes of a wanted field stay in the file */
	int bad;
	char *reason;
	uint64_t offset;
	uint64_t held; /* bytes of wanted fields */
	char *names;
	size_t names_len, names_cap;
	size_t key_len;
	struct {
		size_t suffix_at;
		uint64_t offset, size;
		uint8_t *data;
		bool wanted;
	} fields[PS_SAMPLE_MAX_FIELDS];
	uint32_t nfields;
};

struct ps_shard {
	struct ps_shard_options options;
	struct ps_shard_file *file;
	struct ps_stream *stream;
	struct ps_tar *tar;
	uint64_t ordinal;
	uint64_t start_ordinal, start_offset; /* samples before this one are not given */
	bool ended;                           /* nothing more to read */
	bool has_pending;                     /* a member that begins the next sample */
	struct ps_tar_member pending;
	struct ps_name_parts pending_parts;
	struct builder b;
};

struct ps_shard *ps_shard_new(
        const char *path, uint32_t shard, const struct ps_shard_options *options, struct ps_load_error *err)
{
	struct ps_shard *s = calloc(1, sizeof(*s));
	struct ps_shard_file *file = calloc(1, sizeof(*file));

	if (!s || !file) {
		free(s);
		free(file);
		ps_load_error_set(err, ENOMEM, "out of memory");
		return NULL;
	}
	*file = (struct ps_shard_file){.refs = 1, .fd = -1, .shard = shard, .path = path};
	s->options = *options;
	s->file = file;
	return s;
}

struct ps_shard *ps_shard_new_stream(struct ps_stream *stream, const struct ps_shard_options *options)
{
	struct ps_shard *s = ps_shard_new("(memory)", 0, options, NULL);

	if (s)
		s->stream = stream;
	else
		ps_stream_free(stream);
	return s;
}

static void builder_reset(struct ps_shard *s)
{
	struct builder *b = &s->b;

	for (uint32_t i = 0; i < b->nfields; i++) {
		if (b->fields[i].data && s->options.budget)
			ps_budget_give(s->options.budget, b->fields[i].size);
		free(b->fields[i].data);
	}
	free(b->reason);
	b->reason = NULL;
	b->open = b->dropped = b->left_out = false;
	b->bad = 0;
	b->held = 0;
	b->names_len = b->key_len = 0;
	b->nfields = 0;
}

void ps_shard_free(struct ps_shard *s)
{
	if (!s)
		return;
	builder_reset(s);
	free(s->b.names);
	ps_tar_free(s->tar);
	ps_stream_free(s->stream);
	ps_shard_file_unref(s->file);
	free(s);
}

uint64_t ps_shard_offset(const struct ps_shard *s)
{
	return s->stream ? ps_stream_offset(s->stream) : 0;
}

/* Marks the open sample bad; the first reason stays. */
static int mark_bad(struct builder *b, int errnum, const char *reason)
{
	if (b->bad)
		return 0;
	b->reason = strdup(reason);
	b->bad = errnum;
	return b->reason ? 0 : -ENOMEM;
}

static int names_add(struct builder *b, const char *text, size_t len)
{
	if (b->names_cap - b->names_len < len + 1) {
		size_t cap = PS_MAX(b->names_cap * 2, b->names_len + len + 1 + 256);
		char *names = realloc(b->names, cap);

		if (!names)
			return -ENOMEM;
		b->names = names;
		b->names_cap = cap;
	}
	memcpy(b->names + b->names_len, text, len);
	b->names_len += len;
	b->names[b->names_len++] = 0;
	return 0;
}

static int builder_begin(struct ps_shard *s, const char *key, size_t key_len, uint64_t offset)
{
	struct builder *b = &s->b;

	builder_reset(s);
	b->open = true;
	b->offset = offset;
	b->key_len = key_len;
	return names_add(b, key, key_len);
}

static bool key_matches(const struct builder *b, const char *key, size_t len)
{
	return b->open && b->key_len == len && memcmp(b->names, key, len) == 0;
}

/* The key and the URL stand in a WebDataset sample beside its fields. */
static bool is_taken(const struct builder *b, const char *suffix)
{
	if (strcmp(suffix, "__key__") == 0 || strcmp(suffix, "__url__") == 0)
		return true;
	for (uint32_t i = 0; i < b->nfields; i++)
		if (strcmp(b->names + b->fields[i].suffix_at, suffix) == 0)
			return true;
	return false;
}

/* Memory for a field's bytes; NULL with 0 if they are not held. */
static int field_alloc(struct ps_shard *s, bool wanted, uint64_t size, uint8_t **ret_data)
{
	const struct ps_shard_options *o = &s->options;
	struct builder *b = &s->b;

	*ret_data = NULL;
	if (o->never_hold || b->bad || size == 0 || !wanted || s->ordinal < s->start_ordinal)
		return 0;
	if (!ps_u64_add(b->held, size, &b->held) || (o->max_sample_nbytes && b->held > o->max_sample_nbytes))
		return mark_bad(b, EFBIG, "larger than the memory a sample may take; raise memory_budget");
	if (o->budget && !ps_budget_take(o->budget, size)) {
		b->left_out = ps_stream_fd(s->stream) >= 0;
		if (b->left_out)
			return 0;
		ps_budget_force(o->budget, size); /* a pipe cannot be read again: the window has to hold it */
	}
	*ret_data = size <= SIZE_MAX ? malloc((size_t)size) : NULL;
	if (*ret_data)
		return 0;
	if (o->budget)
		ps_budget_give(o->budget, size);
	return -ENOMEM;
}

/* Adds a member to the open sample. */
static int builder_add(struct ps_shard *s, const struct ps_tar_member *m, const struct ps_name_parts *parts,
        struct ps_load_error *err)
{
	struct builder *b = &s->b;
	size_t at = b->names_len;
	uint8_t *data;
	char text[256];
	bool wanted;
	int r = names_add(b, parts->suffix, parts->suffix_len);

	if (r < 0)
		return r;
	for (char *p = b->names + at; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	if (is_taken(b, b->names + at)) {
		snprintf(text, sizeof(text), "field .%.100s twice", b->names + at);
		return mark_bad(b, EBADMSG, text);
	}
	if (m->kind == PS_TAR_SPARSE) {
		snprintf(text, sizeof(text), "field .%.100s is a sparse file; store it as an ordinary one",
		        b->names + at);
		return mark_bad(b, EBADMSG, text);
	}
	if (b->nfields == PS_SAMPLE_MAX_FIELDS)
		return mark_bad(b, EBADMSG, "more than 1024 fields");
	if (strcmp(b->names + at, "__bad__") == 0 && m->size > 0)
		b->dropped = true;
	wanted = !s->options.wants ||
	         s->options.wants(s->options.wants_ctx, b->names + at, strlen(b->names + at));
	r = field_alloc(s, wanted, m->size, &data);
	if (r < 0)
		return r;
	b->fields[b->nfields].wanted = wanted;
	b->fields[b->nfields].suffix_at = at;
	b->fields[b->nfields].offset = m->offset;
	b->fields[b->nfields].size = m->size;
	b->fields[b->nfields].data = data;
	b->nfields++;
	return data ? ps_tar_read(s->tar, data, err) : 0;
}

#define OPEN_FILES_HINT "; raise `ulimit -n`, or lower lanes"

/* A later reader needs the file if some wanted bytes are not held. Sets errno. */
static int file_keep(struct ps_shard *s)
{
	int fd = ps_stream_fd(s->stream);

	if (s->file->fd >= 0 || fd < 0)
		return 0;
	s->file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return s->file->fd < 0 ? -1 : 0;
}

/* Fields that the sample shall have, and the bytes of their names and the key's. */
static uint32_t wanted_count(const struct builder *b, size_t *ret_names_nbytes)
{
	uint32_t n = 0;

	*ret_names_nbytes = b->key_len + 1;
	for (uint32_t i = 0; i < b->nfields && !b->bad; i++) {
		if (!b->fields[i].wanted)
			continue;
		n++;
		*ret_names_nbytes += strlen(b->names + b->fields[i].suffix_at) + 1;
	}
	return n;
}

static void fields_move(struct builder *b, struct ps_sample *sample, char *names)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->nfields && n < sample->nfields; i++) {
		const char *suffix = b->names + b->fields[i].suffix_at;

		if (!b->fields[i].wanted)
			continue;
		sample->fields[n++] = (struct ps_sample_field){.suffix = strcpy(names, suffix),
		        .offset = b->fields[i].offset,
		        .size = b->fields[i].size,
		        .data = ps_steal_ptr(&b->fields[i].data)};
		names += strlen(suffix) + 1;
	}
}

/* Tells the index of the builder's sample. What cannot be indexed costs the index, not the sample: the writer
 * stays failed. */
static void index_tell(struct ps_shard *s)
{
	struct ps_index_member members[PS_INDEX_MAX_MEMBERS];
	const struct builder *b = &s->b;
	uint32_t n = b->bad || b->nfields > PS_INDEX_MAX_MEMBERS ? 0 : b->nfields;

	for (uint32_t i = 0; i < n; i++)
		members[i] = (struct ps_index_member){.suffix = b->names + b->fields[i].suffix_at,
		        .offset = b->fields[i].offset,
		        .size = b->fields[i].size};
	if (s->stream && ps_stream_is_inflated(s->stream))
		ps_index_writer_flag(s->options.index_writer, PS_INDEX_FLAG_COMPRESSED);
	if (s->tar && ps_tar_has_global(s->tar))
		ps_index_writer_flag(s->options.index_writer, PS_INDEX_FLAG_GLOBAL);
	(void)!ps_index_writer_add(
	        s->options.index_writer, b->offset, b->bad, b->names, b->key_len, members, n);
}

/* Makes a sample of the builder and empties it. */
static int builder_finish(struct ps_shard *s, struct ps_sample **ret_sample, struct ps_load_error *err)
{
	struct builder *b = &s->b;
	size_t names_nbytes;
	uint32_t nfields = wanted_count(b, &names_nbytes);
	size_t head = sizeof(struct ps_sample) + nfields * sizeof(struct ps_sample_field);
	struct ps_sample *sample;
	char *names;

	if (b->left_out && !b->bad && file_keep(s) < 0)
		return ps_load_error_set(err, errno, "%s: cannot keep it open: %s" OPEN_FILES_HINT,
		        s->file->path, strerror(errno));
	sample = malloc(head + names_nbytes);
	if (!sample)
		return -ENOMEM;
	if (s->options.index_writer)
		index_tell(s);
	names = (char *)sample + head;
	if (b->key_len > 0)
		memcpy(names, b->names, b->key_len);
	names[b->key_len] = 0;
	*sample = (struct ps_sample){.file = ps_shard_file_ref(s->file),
	        .budget = s->options.budget,
	        .ordinal = s->ordinal++,
	        .wanted_nbytes = b->held,
	        .offset = b->offset,
	        .resume_offset =
	                b->bad || !s->tar || ps_tar_has_global(s->tar) || ps_stream_is_inflated(s->stream)
	                        ? 0
	                        : b->offset,
	        .own_nbytes = head + names_nbytes,
	        .key = names,
	        .key_len = (uint32_t)b->key_len,
	        .bad = b->bad,
	        .reason = ps_steal_ptr(&b->reason),
	        .nfields = nfields};
	fields_move(b, sample, names + b->key_len + 1);
	if (sample->budget)
		ps_budget_force(sample->budget, sample->own_nbytes); /* it cannot be left in the file */
	builder_reset(s);
	*ret_sample = sample;
	return 0;
}

/* The shard ends here because of `err`; what stands in the builder was not whole. */
static int shard_fail(struct ps_shard *s, int r, const struct ps_load_error *why, struct ps_load_error *err)
{
	struct builder *b = &s->b;

	if (r == -ENOMEM || r == -ECANCELED)
		return r;
	if (r == -EMFILE || r == -ENFILE)
		return ps_load_error_set(err, -r, "%s: %s" OPEN_FILES_HINT, s->file->path, why->text);
	s->ended = true;
	if (!b->open && builder_begin(s, "", 0, s->stream ? ps_stream_offset(s->stream) : 0) < 0)
		return -ENOMEM;
	b->dropped = false;
	/* What ended the shard says more than what was wrong with the sample. */
	free(ps_steal_ptr(&b->reason));
	b->bad = 0;
	return mark_bad(b, -r, why->text);
}

void ps_shard_start_at(struct ps_shard *s, uint64_t ordinal, uint64_t offset)
{
	s->start_ordinal = ordinal;
	s->start_offset = offset;
}

void ps_shard_hold(struct ps_shard *s, bool hold)
{
	s->options.never_hold = !hold;
}

static int shard_start(struct ps_shard *s, struct ps_load_error *err)
{
	int r;

	if (!s->stream) {
		r = ps_stream_open(s->file->path, &s->options.stream, &s->stream, err);

		if (r < 0)
			return r;
	}
	r = ps_stream_inflate(&s->stream, err);
	if (r < 0)
		return r;
	if (s->start_offset > 0 && ps_stream_fd(s->stream) >= 0) {
		r = ps_stream_skip(s->stream, s->start_offset, err);
		if (r == -ENODATA)
			return ps_load_error_set(
			        err, EBADMSG, "truncated: shorter than when the state was saved");
		if (r < 0)
			return r;
		s->ordinal = s->start_ordinal;
	}
	s->tar = ps_tar_new(s->stream);
	return s->tar ? 0 : -ENOMEM;
}

/* The next member that belongs to a sample: 1, 0 at the end. */
static int member_next(
        struct ps_shard *s, struct ps_tar_member *m, struct ps_name_parts *parts, struct ps_load_error *err)
{
	if (s->has_pending) {
		*m = s->pending;
		*parts = s->pending_parts;
		s->has_pending = false;
		return 1;
	}
	for (;;) {
		int r = ps_tar_next(s->tar, m, err);

		if (r <= 0)
			return r;
		if (m->kind != PS_TAR_OTHER && ps_name_split(m->name, m->name_len, parts))
			return 1;
	}
}

#define DRAIN_MAX (1UL << 20)

/* The tar has ended. What compressed it may have its checksum behind: it is part of what was read, so a wrong
 * one makes the last sample bad. */
static int shard_end(struct ps_shard *s, struct ps_load_error *err)
{
	size_t n = 1;

	s->ended = true;
	for (size_t all = 0; ps_stream_is_inflated(s->stream) && n > 0 && all < DRAIN_MAX; all += n) {
		const uint8_t *p;
		int r = ps_stream_peek_some(s->stream, &p, &n, err);

		if (r < 0)
			return r;
		ps_stream_take(s->stream, n);
	}
	return 0;
}

/* Reads until a sample is whole (or known to be bad, or the shard is at its end). */
static int group_read(struct ps_shard *s, struct ps_load_error *err)
{
	struct builder *b = &s->b;

	for (;;) {
		struct ps_tar_member m;
		struct ps_name_parts parts;
		int r = member_next(s, &m, &parts, err);

		if (r < 0)
			return r;
		if (r == 0)
			return shard_end(s, err);
		if (!key_matches(b, m.name, parts.key_len)) {
			if (b->open) {
				s->has_pending = true;
				s->pending = m;
				s->pending_parts = parts;
				return 0;
			}
			r = builder_begin(s, m.name, parts.key_len, m.header_offset);
			if (r < 0)
				return r;
		}
		r = builder_add(s, &m, &parts, err);
		if (r < 0)
			return r;
	}
}

int ps_shard_next(struct ps_shard *s, struct ps_sample **ret_sample, struct ps_load_error *err)
{
	struct ps_load_error why = {0};

	while (!s->ended) {
		int r = s->tar ? 0 : shard_start(s, &why);

		if (r == 0)
			r = group_read(s, &why);
		if (r < 0)
			r = shard_fail(s, r, &why, err);
		if (r == 0 && s->b.open && !s->b.dropped && s->ordinal < s->start_ordinal) {
			s->ordinal++;
			builder_reset(s);
		} else if (r == 0 && s->b.open && !s->b.dropped) {
			r = builder_finish(s, ret_sample, err);
			r = r == 0 ? 1 : r;
		} else if (r == 0)
			builder_reset(s);
		if (r == -ENOMEM)
			ps_load_error_set(err, ENOMEM, "%s: out of memory", s->file->path);
		if (r != 0)
			return r;
	}
	return 0;
}
