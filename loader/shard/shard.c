#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "shard/builder.h"
#include "shard/file/file.h"
#include "shard/index/index.h"

/* Samples after damage ----------------------------------------------------------------------------------- */

/* The samples after damage in a shard, as an index lists them. A walk cannot find how many there were.
 *
 * Ownership: the caller's, until fini.   Threads: one at a time.   Locks: none.   Blocks: on the disk.
 * Errors: 0 or -errno without a text. */
struct ps_recovery {
	struct ps_shard_index *index; /* NULL: none was found */
	bool borrowed;
	int bad;      /* errno of the damage ... */
	char *reason; /* ... and its text */
};

/* Uses an index that the caller owns. */
static void recovery_use(struct ps_recovery *rec, struct ps_shard_index *index)
{
	if (!rec->borrowed)
		ps_shard_index_close(rec->index);
	rec->index = index;
	rec->borrowed = true;
}

/* Looks for an index that was made before the shard was damaged: the caller's if there is one, else one that
 * fits, else one of the same shard when it was longer. It must have sample `ordinal` at `offset`. False:
 * there is none, or no memory. */
static bool recovery_find(struct ps_recovery *rec, struct ps_shard_index *known, const char *shard,
        const char *index_dir, uint64_t ordinal, uint64_t offset)
{
	struct ps_shard_index_place place;

	if (rec->index)
		return true;
	if (known && ps_shard_index_place(known, ordinal, &place, NULL, NULL) == 0 &&
	        place.offset == offset) {
		recovery_use(rec, known);
		return true;
	}
	if (ps_shard_index_open(shard, index_dir, &rec->index, NULL) < 0 &&
	        ps_shard_index_open_of_longer(shard, index_dir, &rec->index, NULL) < 0 &&
	        (!index_dir || ps_shard_index_open(shard, NULL, &rec->index, NULL) < 0))
		return false;
	if (ps_shard_index_place(rec->index, ordinal, &place, NULL, NULL) == 0 && place.offset == offset)
		return true;
	ps_shard_index_close(ps_steal_ptr(&rec->index));
	return false;
}

/* Stores why the samples from here on are bad. */
static int recovery_because(struct ps_recovery *rec, int errnum, const char *reason)
{
	char *copy = strdup(reason);

	if (!copy)
		return -ENOMEM;
	free(rec->reason);
	rec->reason = copy;
	rec->bad = errnum;
	return 0;
}

static void recovery_fini(struct ps_recovery *rec)
{
	if (!rec->borrowed)
		ps_shard_index_close(rec->index);
	free(rec->reason);
	*rec = (struct ps_recovery){0};
}

/* True if the shard has a sample of that number. */
static bool recovery_has(const struct ps_recovery *rec, uint64_t ordinal)
{
	return rec->index && ordinal < ps_shard_index_samples(rec->index);
}

/* True if the builder's open sample has all members that it should have. */
static bool recovery_is_whole(const struct ps_recovery *rec, uint64_t ordinal, const struct ps_builder *b)
{
	struct ps_shard_index_member members[PS_PSX_MAX_MEMBERS];
	struct ps_shard_index_place place;

	if (!b->open || b->bad || ps_shard_index_place(rec->index, ordinal, &place, members, NULL) < 0 ||
	        place.bad || place.nmembers == 0 || place.nmembers != b->nfields)
		return false;
	for (uint32_t i = 0; i < b->nfields; i++)
		if (b->fields[i].offset != members[i].offset || b->fields[i].size != members[i].size)
			return false;
	return true;
}

/* Shards ------------------------------------------------------------------------------------------------- */

struct ps_shard {
	struct ps_shard_options options;
	struct ps_shard_file *file;
	struct ps_stream *stream;
	bool started;
	struct ps_recovery recovery;
	struct ps_shard_index_walk checked; /* position in options.check */
	bool has_first;                     /* the first header was read; ... */
	size_t first_n;
	uint8_t first[PS_PSX_FIRST]; /* ... these bytes */
	int failed;                  /* -errno, until recover() has decided how to continue */
	uint32_t holes;              /* number of samples, from the next one on, that are bad */
	struct ps_tar *tar;          /* one of these four, by the kind of the shard */
	struct ps_lines *lines;
	struct ps_tokens *tokens;
	struct ps_rows *rows;  /* packed rows, which are read without a stream; else NULL */
	struct ps_buf row_key; /* of those: the key, with ... */
	size_t row_base;       /* ... so many bytes before its number */
	struct ps_columns *columns;
	uint64_t ordinal;
	uint64_t start_ordinal, start_offset; /* samples before this one are not handed out */
	bool ended;                           /* nothing more to read */
	uint64_t frame, frame_first; /* compressed: a frame, and the ordinal of the first sample in it */
	bool garbage;                /* there are bytes after the end of the tar */
	bool no_end;                 /* the tar has no end mark */
	struct ps_links *links;      /* the files so far; NULL: no hard link was read yet */
	const char *link_wrong;      /* why the hard link that was read last has no bytes; NULL: it has */
	bool has_pending;            /* `pending` is a member that begins the next sample */
	struct ps_tar_member pending;
	struct ps_name_parts pending_parts;
	struct ps_builder b;
};

struct ps_shard *ps_shard_new(
        const char *path, uint32_t shard, const struct ps_shard_options *options, struct ps_error *err)
{
	struct ps_shard *s = malloc(sizeof(*s)); /* not cleared: the builder is large */
	struct ps_shard_file *file = calloc(1, sizeof(*file));

	if (!s || !file) {
		free(s);
		free(file);
		ps_no_memory(err);
		return NULL;
	}
	*file = (struct ps_shard_file){.refs = 1, .fd = -1, .shard = shard, .path = path};
	memset(s, 0, offsetof(struct ps_shard, b));
	s->options = *options;
	s->file = file;
	ps_builder_init(&s->b, &s->options, file);
	if (!options->packing)
		return s;
	s->rows = ps_rows_new(&(struct ps_rows_options){.packing = options->packing,
	        .stretch = options->stretch,
	        .epoch = options->epoch,
	        .pass = options->pass,
	        .single = options->single,
	        .budget = options->budget,
	        .stop = options->stream.stop,
	        .meter = options->stream.meter});
	if (!s->rows || ps_shard_key(path, &s->row_key) < 0) {
		ps_shard_free(s);
		ps_no_memory(err);
		return NULL;
	}
	s->row_base = s->row_key.n;
	file->first = options->packing->stretches[options->stretch].first_row;
	return s;
}

void ps_shard_free(struct ps_shard *s)
{
	if (!s)
		return;
	ps_builder_fini(&s->b);
	recovery_fini(&s->recovery);
	ps_links_free(s->links);
	ps_tar_free(s->tar);
	ps_lines_free(s->lines);
	ps_tokens_free(s->tokens);
	ps_rows_free(s->rows);
	ps_buf_fini(&s->row_key);
	ps_columns_free(s->columns);
	ps_stream_free(s->stream);
	ps_shard_file_unref(s->file, 1);
	free(s);
}

uint64_t ps_shard_offset(const struct ps_shard *s)
{
	return s->rows ? ps_rows_offset(s->rows) : s->stream ? ps_stream_offset(s->stream) : 0;
}

int64_t ps_shard_size(const struct ps_shard *s)
{
	return s->rows ? ps_rows_size(s->rows) : s->stream ? ps_stream_size(s->stream) : -1;
}

int ps_shard_failed(const struct ps_shard *s, bool *ret_garbage)
{
	*ret_garbage = s->garbage;
	return s->failed;
}

static int member_show(struct ps_shard *s, const struct ps_tar_member *m, struct ps_error *err)
{
	return s->options.on_member ? s->options.on_member(s->options.on_member_ctx, s->tar, m, err) : 0;
}

bool ps_shard_has_no_end(const struct ps_shard *s)
{
	return s->no_end;
}

/* Reads the files before a hard link, which is the shard's first. */
static int links_begin(struct ps_shard *s, uint64_t until, struct ps_error *err)
{
	struct ps_stream_options options = s->options.stream;
	struct ps_stream *stream = NULL;
	struct ps_tar *tar = NULL;
	struct ps_tar_member m;
	struct stat ours, its;
	int rc;

	options.buf_nbytes = PS_STREAM_BUF_MIN;
	options.meter = NULL;
	s->links = ps_links_new();
	rc = s->links ? ps_stream_open(s->file->path, &options, &stream, err) : ps_no_memory(err);
	if (rc == 0 && (fstat(ps_stream_fd(s->stream), &ours) < 0 || fstat(ps_stream_fd(stream), &its) < 0 ||
	                       ours.st_dev != its.st_dev || ours.st_ino != its.st_ino))
		/* the places of its files are not those of this one */
		rc = ps_error_set(err, ESTALE, "the shard was replaced while it was read");
	if (rc == 0)
		tar = ps_stream_tar(stream);
	if (rc == 0 && !tar)
		rc = ps_no_memory(err);
	while (rc == 0 && (rc = ps_tar_next(tar, &m, err)) == 1)
		rc = m.header_offset < until ? ps_links_add(s->links, &m) : 1;
	ps_tar_free(tar);
	ps_stream_free(stream);
	return rc < 0 ? rc : 0;
}

/* Takes note of the member, and gives a hard link offset and size of its target. */
static int link_follow(struct ps_shard *s, struct ps_tar_member *m, struct ps_error *err)
{
	int rc = 0;

	s->link_wrong = NULL;
	if (m->kind != PS_TAR_HARDLINK && !s->links)
		return 0;
	if (m->kind == PS_TAR_HARDLINK && ps_stream_fd(s->stream) < 0) {
		s->link_wrong =
		        "whose bytes cannot be read again in a pipe or a compressed shard; store it as an "
		        "ordinary file";
		return 0;
	}
	if (!s->links)
		rc = links_begin(s, m->header_offset, err);
	if (rc == 0) {
		enum ps_tar_kind kind = m->kind;

		rc = ps_links_add(s->links, m);
		if (rc == 0 && m->kind != kind) {
			m->kind = kind;
			s->link_wrong = "which is not an ordinary file before it in the tar";
		}
	}
	if (rc == -E2BIG)
		return ps_error_set(err, EBADMSG,
		        "a tar with hard links and more than 4,194,304 members, or 256 MiB of names");
	return rc;
}

/* Adds a member to the open sample. */
static int member_add(struct ps_shard *s, const struct ps_tar_member *m, const struct ps_name_parts *parts,
        struct ps_error *err)
{
	const char *wrong = m->kind == PS_TAR_HARDLINK ? s->link_wrong : NULL;
	char text[256];
	uint8_t *data;
	int rc = ps_builder_field(&s->b, parts->suffix, parts->suffix_len, m->offset, m->size,
	        s->ordinal >= s->start_ordinal && m->kind != PS_TAR_SPARSE && !wrong, &data);

	if (rc == 0)
		rc = member_show(s, m, err);
	if (rc == 0 && wrong) {
		snprintf(text, sizeof(text), "field .%.*s is a hard link to \"%.*s\", %s",
		        (int)PS_MIN(parts->suffix_len, (size_t)40), parts->suffix,
		        (int)PS_MIN(m->link_len, (size_t)80), m->link, wrong);
		return ps_builder_bad(&s->b, EBADMSG, text);
	}
	if (rc == 0 && data && m->kind == PS_TAR_HARDLINK)
		return ps_stream_read_at(s->stream, data, (size_t)m->size, m->offset, err);
	if (rc == 0 && m->kind == PS_TAR_SPARSE) {
		snprintf(text, sizeof(text), "field .%.*s is a sparse file; store it as an ordinary one",
		        (int)PS_MIN(parts->suffix_len, (size_t)100), parts->suffix);
		return ps_builder_bad(&s->b, EBADMSG, text);
	}
	return rc == 0 && data ? ps_tar_read(s->tar, data, err) : rc;
}

#define OPEN_FILES_HINT "; raise `ulimit -n`, or lower lanes"

/* Turns the open sample into the one that is handed out. */
static int sample_finish(struct ps_shard *s, struct ps_sample **ret_sample, struct ps_error *err)
{
	struct ps_builder *b = &s->b;
	bool inflated = s->stream && ps_stream_is_inflated(s->stream),
	     global = s->tar && ps_tar_has_global(s->tar);
	bool can_resume = !b->bad && !inflated && !global;

	/* wanted bytes that are not held are read later */
	if (b->left_out && !b->bad && ps_stream_fd(s->stream) >= 0 &&
	        ps_shard_file_keep(s->file, ps_stream_fd(s->stream)) < 0)
		return ps_error_set(err, errno, "%s: cannot keep it open: %s" OPEN_FILES_HINT, s->file->path,
		        strerror(errno));
	if (s->options.index_writer)
		ps_shard_index_writer_facts(s->options.index_writer)->flags |=
		        (inflated ? PS_PSX_FLAG_COMPRESSED : 0) | (global ? PS_PSX_FLAG_GLOBAL : 0);
	return ps_builder_finish(b, s->ordinal++, can_resume ? b->offset : 0, ret_sample, err);
}

/* Compares the open sample, which is sound, with the index. */
static int sample_check(struct ps_shard *s, struct ps_error *err)
{
	const struct ps_builder *b = &s->b;
	struct ps_shard_index_member members[PS_PSX_MAX_MEMBERS];
	uint32_t n = b->nfields > PS_PSX_MAX_MEMBERS ? 0 : b->nfields;
	int rc = 0;

	if (s->has_first) {
		s->has_first = false;
		rc = ps_shard_index_check_first(s->options.check, s->first, s->first_n, err);
	}
	for (uint32_t i = 0; i < n; i++)
		members[i] = (struct ps_shard_index_member){
		        .suffix = (const char *)b->names.p + b->fields[i].suffix_at,
		        .offset = b->fields[i].offset,
		        .size = b->fields[i].size};
	return rc < 0 ? rc
	              : ps_shard_index_check(s->options.check, &s->checked, s->ordinal, b->offset,
	                        (const char *)b->names.p, b->key_len, members, n, err);
}

/* Called if reading failed in a shard that is compared with an index. True: the shard was replaced, not
 * damaged: its first header is sound, and differs from the one that the index was made of. */
static bool is_replaced(struct ps_shard *s, struct ps_error *err)
{
	struct ps_stream_options options = {.buf_nbytes = PS_STREAM_BUF_MIN, .wake_fd = -1};
	struct ps_tar_member m;
	struct ps_stream *stream;
	struct ps_tar *tar = NULL;
	const uint8_t *p;
	size_t n;
	bool replaced;

	if (ps_stream_open(s->file->path, &options, &stream, NULL) < 0)
		return false;
	replaced = ps_stream_inflate(&stream, NULL) == 0 &&
	           ps_stream_peek(stream, PS_PSX_FIRST, &p, &n, NULL) == 0 &&
	           ps_shard_index_check_first(s->options.check, p, n, err) == -ESTALE;
	if (replaced && !ps_shard_index_is_of_lines(s->options.check)) {
		tar = ps_stream_tar(stream);
		replaced = tar && ps_tar_next(tar, &m, NULL) == 1;
	}
	ps_tar_free(tar);
	ps_stream_free(stream);
	return replaced;
}

/* Ends the shard because of `why`; the sample in the builder is incomplete, and becomes a bad one. */
static int shard_fail(struct ps_shard *s, int r, struct ps_error *why, struct ps_error *err)
{
	struct ps_builder *b = &s->b;

	if (r == -ENOMEM || r == -ECANCELED)
		return r;
	if (r == -EMFILE || r == -ENFILE)
		return ps_error_set(err, -r, "%s: %s" OPEN_FILES_HINT, s->file->path, why->text);
	if (r == -EBADMSG && s->options.check && !s->options.columns && is_replaced(s, why))
		r = -ESTALE;
	s->ended = true;
	if (!b->open && ps_builder_begin(b, "", 0, s->stream ? ps_stream_offset(s->stream) : s->ordinal) < 0)
		return -ENOMEM;
	s->failed = r;
	if (r == -ESTALE && s->options.check) {
		recovery_use(&s->recovery, s->options.check);
		if (recovery_because(&s->recovery, -r, why->text) < 0)
			return -ENOMEM;
	} else if (s->options.recover && recovery_find(&s->recovery, s->options.check, s->file->path,
	                                         s->options.index_dir, s->ordinal, b->offset)) {
		if (recovery_because(&s->recovery, -r, why->text) < 0)
			return -ENOMEM;
		if (recovery_has(&s->recovery, s->ordinal + 1) &&
		        recovery_is_whole(&s->recovery, s->ordinal, b)) {
			s->holes = 1; /* this sample is whole: the one after it is damaged */
			return 0;
		}
	}
	b->dropped = false;
	/* If the shard failed before the requested start, the loss is reported in place of the first
	 * requested sample. */
	if (!s->recovery.index)
		s->ordinal = PS_MAX(s->ordinal, s->start_ordinal);
	/* The error that ended the shard replaces the sample's own, which says less. */
	free(ps_steal_ptr(&b->reason));
	b->bad = 0;
	return ps_builder_bad(b, -r, why->text);
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

enum ps_shard_rest ps_shard_rest(const struct ps_shard *s, uint64_t *ret_offset)
{
	if (s->rows) {
		*ret_offset = ps_rows_offset(s->rows);
		return s->ended ? PS_SHARD_OVER : PS_SHARD_RESTS;
	}
	if (!s->started || s->columns || s->failed || s->holes > 0 || s->recovery.index ||
	        s->options.index_writer || ps_stream_fd(s->stream) < 0 ||
	        (s->tar && ps_tar_has_global(s->tar)))
		return PS_SHARD_GOES;
	if (s->ended)
		return PS_SHARD_OVER;
	if (s->tar && !s->has_pending)
		return PS_SHARD_GOES;
	*ret_offset = s->tar      ? s->pending.header_offset
	              : s->tokens ? s->ordinal * s->options.windows.stride
	                          : ps_stream_offset(s->stream);
	return *ret_offset > 0 ? PS_SHARD_RESTS : PS_SHARD_GOES;
}

/* Makes the reader for the kind of the shard. */
static int reader_make(struct ps_shard *s, struct ps_error *err)
{
	const struct ps_shard_options *o = &s->options;
	const char *type;
	int rc;

	switch (ps_shard_kind_of(o->source, &o->windows, s->file->path)) {
	case PS_SHARD_KIND_LINES:
		s->lines = ps_lines_new(s->file->path, s->stream, o);
		if (o->index_writer)
			ps_shard_index_writer_facts(o->index_writer)->flags |= PS_PSX_FLAG_LINES;
		break;
	case PS_SHARD_KIND_TOKENS:
		if (o->windows.nbytes == 0)
			return ps_error_set(err, EINVAL,
			        "a token stream needs a field of kind tokens with a fixed length");
		rc = ps_tokens_type(s->file->path, &type, err);
		if (rc < 0)
			return rc;
		if (type && strcmp(type, o->windows.type) != 0)
			return ps_error_set(err, EBADMSG,
			        "the .idx beside it says that its tokens are %s, but the field reads %s",
			        type, o->windows.type);
		s->tokens = ps_tokens_new(s->file->path, s->stream, &o->windows);
		break;
	default:
		s->tar = ps_stream_tar(s->stream);
	}
	s->started = true;
	return s->tar || s->lines || s->tokens ? 0 : -ENOMEM;
}

/* Opens a unit of a source of columns where reading is to begin. */
static int columns_start(struct ps_shard *s, struct ps_error *err)
{
	int rc;

	s->columns = ps_columns_new(s->file->path, &s->options);
	if (!s->columns)
		return -ENOMEM;
	rc = ps_columns_open(s->columns, s->start_ordinal, err);
	if (rc < 0)
		return rc;
	s->ordinal = s->start_ordinal;
	s->started = true;
	return 0;
}

static int shard_start(struct ps_shard *s, struct ps_error *err)
{
	int rc;

	if (s->options.columns)
		return columns_start(s, err);
	if (!s->stream) {
		rc = ps_stream_open(s->file->path, &s->options.stream, &s->stream, err);

		if (rc < 0)
			return rc;
	}
	if (ps_stream_fd(s->stream) >= 0)
		(void)!fstat(ps_stream_fd(s->stream), &s->file->was);
	else /* a pipe has other bytes each time */
		clock_gettime(CLOCK_MONOTONIC, &s->file->was.st_mtim);
	rc = ps_stream_inflate(&s->stream, err);
	if (rc < 0)
		return rc;
	if (s->start_offset > 0 && ps_stream_fd(s->stream) >= 0) {
		rc = ps_stream_skip(s->stream, s->start_offset, err);
		if (rc == -ENODATA)
			return ps_error_set(err, EBADMSG,
			        "truncated: the file ends before byte %ju, where reading was to begin",
			        (uintmax_t)s->start_offset);
		if (rc < 0)
			return rc;
		s->ordinal = s->start_ordinal;
	}
	s->b.can_read_again = ps_stream_fd(s->stream) >= 0;
	if (ps_stream_offset(s->stream) == 0) {
		const uint8_t *p;

		rc = ps_stream_peek(s->stream, PS_PSX_FIRST, &p, &s->first_n, err);
		if (rc < 0)
			return rc;
		memcpy(s->first, p, s->first_n);
		s->has_first = true;
	}
	if (s->options.index_writer && s->has_first)
		ps_shard_index_writer_facts(s->options.index_writer)->first =
		        ps_psx_sum(0, s->first, s->first_n);
	return reader_make(s, err);
}

/* Reads the next member that belongs to a sample: 1, 0 at the end. */
static int member_next(
        struct ps_shard *s, struct ps_tar_member *m, struct ps_name_parts *parts, struct ps_error *err)
{
	if (s->has_pending) {
		*m = s->pending;
		*parts = s->pending_parts;
		s->has_pending = false;
		return 1;
	}
	for (;;) {
		int rc = ps_tar_next(s->tar, m, err);

		if (rc <= 0)
			return rc;
		rc = link_follow(s, m, err);
		if (rc < 0)
			return rc;
		if (m->kind == PS_TAR_HARDLINK && s->options.index_writer)
			ps_shard_index_writer_facts(s->options.index_writer)->leaves_out = true;
		if ((ps_tar_is_data(m->kind) || m->kind == PS_TAR_HARDLINK) &&
		        ps_name_split(m->name, m->name_len, parts))
			return 1;
		if (s->options.index_writer)
			ps_shard_index_writer_facts(s->options.index_writer)->leaves_out = true;
		if (!ps_tar_is_data(m->kind))
			continue;
		rc = member_show(s, m, err);
		if (rc < 0)
			return rc;
	}
}

/* True if an index knows more of a tar without an end mark than was read: it was cut. */
static bool index_names_more(struct ps_shard *s)
{
	struct ps_shard_index_place place;
	bool more = false;

	if (s->b.open && recovery_find(&s->recovery, s->options.check, s->file->path, s->options.index_dir,
	                         s->ordinal, s->b.offset))
		more = recovery_has(&s->recovery, s->ordinal + 1) ||
		       ps_shard_index_place(s->recovery.index, s->ordinal, &place, NULL, NULL) < 0 ||
		       place.nmembers > s->b.nfields;
	if (!more || !s->options.recover)
		recovery_fini(&s->recovery);
	return more;
}

/* Called at the end of the tar. Compressed data may be followed by a checksum of what was read, the last sample
 * included, which is still open. */
static int shard_end(struct ps_shard *s, struct ps_error *err)
{
	int rc = ps_stream_drain(s->stream, &s->garbage, err);

	s->ended = true;
	if (rc == 0 && !ps_tar_has_end(s->tar)) {
		if (s->start_ordinal > 0 && s->ordinal + s->b.open <= s->start_ordinal)
			return ps_error_set(err, EBADMSG,
			        "truncated: the tar ends at offset %ju, before the sample where reading was "
			        "to begin",
			        (uintmax_t)ps_stream_offset(s->stream));
		if (index_names_more(s))
			return ps_error_set(err, EBADMSG,
			        "truncated: the tar ends at offset %ju, and its index has more",
			        (uintmax_t)ps_stream_offset(s->stream));
		s->no_end = true;
		return 0;
	}
	if (rc == 0 && s->options.index_writer)
		ps_shard_index_writer_facts(s->options.index_writer)->ended = true;
	return rc;
}

/* Reads until a sample is whole (or known to be bad, or the shard is at its end). */
static int group_read(struct ps_shard *s, struct ps_error *err)
{
	struct ps_builder *b = &s->b;

	for (;;) {
		struct ps_tar_member m;
		struct ps_name_parts parts;
		int rc = member_next(s, &m, &parts, err);

		if (rc < 0)
			return rc;
		if (rc == 0)
			return shard_end(s, err);
		if (!b->open || b->key_len != parts.key_len ||
		        memcmp(b->names.p, m.name, parts.key_len) != 0) {
			if (b->open) {
				s->has_pending = true;
				s->pending = m;
				s->pending_parts = parts;
				return 0;
			}
			rc = ps_builder_begin(b, m.name, parts.key_len, m.header_offset);
			if (rc < 0)
				return rc;
		}
		rc = member_add(s, &m, &parts, err);
		if (rc < 0)
			return rc;
	}
}

/* Opens the shard again at the next sample. False: it cannot be read. */
static bool reopen(struct ps_shard *s)
{
	struct ps_shard_index_place place;

	/* After an error other than damage, reading each further sample could block as long as this one did. */
	if (s->failed != -EBADMSG ||
	        ps_shard_index_place(s->recovery.index, s->ordinal, &place, NULL, NULL) < 0 ||
	        place.resume_offset == 0)
		return false;
	ps_links_free(ps_steal_ptr(&s->links));
	ps_tar_free(ps_steal_ptr(&s->tar));
	ps_lines_free(ps_steal_ptr(&s->lines));
	ps_tokens_free(ps_steal_ptr(&s->tokens));
	ps_stream_free(ps_steal_ptr(&s->stream));
	s->has_pending = s->started = false;
	return ps_stream_open(s->file->path, &s->options.stream, &s->stream, NULL) == 0 &&
	       ps_stream_skip(s->stream, place.resume_offset, NULL) == 0 && reader_make(s, NULL) == 0;
}

/* After a failed read, continues with the next sample, if the index lists it. */
static void recover(struct ps_shard *s)
{
	if (s->holes > 0 || !recovery_has(&s->recovery, s->ordinal))
		return;
	if (!reopen(s))
		s->holes = UINT32_MAX;
	s->failed = 0;
	s->ended = false;
}

/* Puts the next hole, a bad sample that only the index lists, into the builder; none after the last
 * sample. */
static int hole_make(struct ps_shard *s)
{
	struct ps_recovery *rec = &s->recovery;
	struct ps_shard_index_place place = {0};
	const char *key = "";
	size_t len = 0;
	int rc;

	if (!recovery_has(&s->recovery, s->ordinal)) {
		s->holes = 0;
		s->ended = true;
		s->failed = 0;
		return 0;
	}
	s->holes--;
	if (ps_shard_index_place(rec->index, s->ordinal, &place, NULL, NULL) < 0 ||
	        ps_shard_index_key(rec->index, s->ordinal, &key, &len, NULL) < 0)
		key = ""; /* a damaged index: only the sample's place in the order is known */
	rc = ps_builder_begin(&s->b, key, len, place.offset);
	return rc < 0 ? rc : ps_builder_bad(&s->b, rec->bad, rec->reason);
}

/* Makes the open sample of a compressed shard bad if a checksum that covers it is known to be wrong, or one that
 * covers the samples before it, which was read after them. Without a sample, at the end, that is an error. */
static int sum_check(struct ps_shard *s, struct ps_error *err)
{
	struct ps_builder *b = &s->b;
	bool open = b->open && !b->dropped, known;
	uint64_t from = open ? b->offset : UINT64_MAX;
	uint64_t to = s->has_pending ? s->pending.header_offset : ps_stream_offset(s->stream);
	uint64_t first = s->ordinal;
	struct ps_stream_sum sum;
	char text[256];
	const uint8_t *p;
	size_t n;

	if (open && !s->tar && to > from) /* a checksum that follows is read while what it covers is open */
		(void)!ps_stream_peek_some(s->stream, &p, &n, NULL);
	sum = ps_stream_sum(s->stream, from, open ? PS_MAX(to, from + 1) : from);
	if (!open) /* those that cover a sample were told with it */
		sum.wrong = sum.wrong_before = false;
	if (sum.wrong_before || sum.passed)
		first = PS_MIN(first, s->frame_first);
	if (sum.last != s->frame) {
		s->frame = sum.last;
		s->frame_first = s->ordinal;
	}
	known = s->options.sums && ps_shard_sums_has(s->options.sums, s->file, first);
	if (!sum.wrong && (first == s->ordinal || (open && known))) {
		if (!open || !s->options.sums || !ps_shard_sums_has(s->options.sums, s->file, s->ordinal))
			return 0;
		return ps_builder_bad(b, EBADMSG, PS_SHARD_SUM_REASON);
	}
	snprintf(text, sizeof(text), PS_SHARD_SUM_REASON);
	if (!sum.wrong)
		snprintf(text, sizeof(text),
		        "the checksum of the compressed data before it does not match; it covers the %ju "
		        "samples before this one, which may have been used as good ones",
		        (uintmax_t)(s->ordinal - first));
	else if (first < s->ordinal && !known)
		snprintf(text, sizeof(text),
		        PS_SHARD_SUM_REASON "; it also covers the %ju samples before this one, which may "
		                            "have been used as good ones",
		        (uintmax_t)(s->ordinal - first));
	if (s->options.sums && ps_shard_sums_add(s->options.sums, s->file, first, s->ordinal + sum.wrong) < 0)
		return ps_no_memory(err);
	if (!open)
		return ps_error_set(err, EBADMSG, "%s", text);
	free(ps_steal_ptr(&b->reason));
	b->bad = 0;
	return ps_builder_bad(b, EBADMSG, text);
}

/* Puts the next sample into the builder, recovered or as a hole if need be; none at the end of the shard. */
static int sample_make(struct ps_shard *s, struct ps_error *err)
{
	struct ps_error why;
	int rc;

	why.err = 0;
	why.text[0] = 0;
	if (s->failed)
		recover(s);
	if (s->holes > 0)
		return hole_make(s);
	if (s->ended) {
		s->failed = 0; /* no index lists what follows */
		return 0;
	}
	rc = s->started ? 0 : shard_start(s, &why);
	bool hold = s->ordinal >= s->start_ordinal;
	if (rc == 0 && s->tar)
		rc = group_read(s, &why);
	else if (rc == 0 && s->lines)
		rc = ps_lines_next(s->lines, &s->b, s->ordinal, hold, &why);
	else if (rc == 0 && s->columns)
		rc = ps_columns_next(s->columns, &s->b, s->ordinal, hold, &why);
	else if (rc == 0)
		rc = ps_tokens_next(s->tokens, &s->b, s->ordinal, hold, &why);
	if (!s->tar)
		s->ended = rc == 0 && !s->b.open;
	if (rc == 0 && s->stream && (s->ended || !s->b.dropped) && ps_stream_is_inflated(s->stream))
		rc = sum_check(s, &why);
	if (rc == 0 && s->options.check && !s->columns && s->b.open && !s->b.bad && !s->b.dropped)
		rc = sample_check(s, &why);
	return rc < 0 ? shard_fail(s, rc, &why, err) : rc;
}

/* The next packed row: 1, or 0 after the last. Damage and lost files make bad samples, as the number of rows is
 * known. */
static int row_next(struct ps_shard *s, struct ps_sample **ret_sample, struct ps_error *err)
{
	const struct ps_packing *packing = s->options.packing;
	struct ps_rows_row row;
	struct ps_error why = {0};
	uint8_t *none;
	int rc;

	if (s->ordinal < s->start_ordinal)
		s->ordinal = s->start_ordinal;
	s->ended = s->ordinal >= packing->stretches[s->options.stretch].nrows;
	if (s->ended)
		return 0;
	rc = ps_rows_get(s->rows, s->ordinal, !s->options.never_hold, &row, &why);
	if (rc == -ENOMEM || rc == -ECANCELED)
		return rc == -ENOMEM ? ps_no_memory(err) : rc;
	if (rc == -EMFILE || rc == -ENFILE)
		return ps_error_set(err, -rc, "%s" OPEN_FILES_HINT, why.text);
	/* a row whose tokens are not held is read again when it is decoded */
	if (rc == 0 && row.piece && !row.piece->tokens &&
	        ps_shard_file_keep(s->file, ps_rows_fd(s->rows)) < 0) {
		ps_token_piece_unref(row.piece);
		return ps_error_set(err, errno, "%s: cannot keep it open: %s" OPEN_FILES_HINT, s->file->path,
		        strerror(errno));
	}
	if (ps_shard_key_number(&s->row_key, s->row_base, s->file->first + s->ordinal) < 0 ||
	        ps_builder_begin(&s->b, (const char *)s->row_key.p, s->row_key.n, row.offset) < 0 ||
	        (rc < 0 && ps_builder_bad(&s->b, -rc, why.text) < 0) ||
	        ps_builder_field(&s->b, packing->o.suffix, strlen(packing->o.suffix), row.offset, row.nbytes,
	                false, &none) < 0) {
		ps_token_piece_unref(row.piece);
		return ps_no_memory(err);
	}
	rc = ps_builder_finish(&s->b, s->ordinal++, row.offset, ret_sample, err);
	if (rc < 0) {
		ps_token_piece_unref(row.piece);
		return rc;
	}
	(*ret_sample)->piece = row.piece;
	(*ret_sample)->row = row.number;
	(*ret_sample)->wanted_nbytes = row.nbytes;
	return 1;
}

int ps_shard_next(struct ps_shard *s, struct ps_sample **ret_sample, struct ps_error *err)
{
	int rc = 0;

	if (s->rows)
		return row_next(s, ret_sample, err);

	while (rc == 0 && (!s->ended || s->failed || s->holes > 0)) {
		rc = sample_make(s, err);
		if (rc == 0 && s->b.open && !s->b.dropped) {
			if (s->ordinal >= s->start_ordinal) {
				rc = sample_finish(s, ret_sample, err);
				rc = rc == 0 ? 1 : rc;
			} else {
				s->ordinal++;
			}
		}
		if (rc == 0)
			ps_builder_reset(&s->b);
	}
	if (rc == -ENOMEM)
		ps_error_set(err, ENOMEM, "%s: out of memory", s->file->path);
	return rc;
}
