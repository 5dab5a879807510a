#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/number.h"
#include "shard/index/format.h"

#define MAX_FILE (UINT64_C(1) << 32)

/* Reports a damaged index by its path: -EBADMSG. */
static int shard_index_damaged(const struct ps_shard_index *x, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "%s: damaged, or not an index; " PS_INDEX_HINT, x->path);
}

/* True if a section's checksum fits; computed once, before the first use. */
static bool shard_index_section_sound(struct ps_shard_index_section *s)
{
	int state = atomic_load_explicit(&s->state, memory_order_relaxed);

	if (state == 0) {
		state = ps_psx_sum(0, s->p, s->n) == s->sum ? 1 : -1;
		atomic_store_explicit(&s->state, state, memory_order_relaxed);
	}
	return state > 0;
}

static int data_load(struct ps_shard_index *x, struct ps_error *err)
{
	ps_autofd int fd = open(x->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t got;

	if (fd < 0 && errno == ENOENT)
		return ps_error_set(err, ENOENT,
		        "%s: no such index; make it with penstock-loader index (for read-only shards with "
		        "--dir DIR, and give index_dir here)",
		        x->path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "%s: cannot read: %s", x->path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size < PS_PSX_HEAD || (uint64_t)st.st_size > MAX_FILE)
		return shard_index_damaged(x, err);
	x->nbytes = (size_t)st.st_size;
	got = (ssize_t)x->nbytes;
	/* On a network file system the index is copied: a mapped page that cannot be read causes a signal,
	 * not an error. */
	x->mapped = !ps_shard_index_fd_is_remote(fd);
	if (x->mapped) {
		void *p = mmap(NULL, x->nbytes, PROT_READ, MAP_SHARED, fd, 0);

		x->mapped = p != MAP_FAILED;
		x->data = x->mapped ? p : NULL;
	}
	if (!x->mapped) {
		x->data = malloc(x->nbytes);
		got = x->data ? ps_pread_all(fd, x->data, x->nbytes, 0) : -ENOMEM;
	}
	if (got < 0)
		return ps_error_set(err, (int)-got, "%s: cannot read: %s", x->path, strerror((int)-got));
	return (size_t)got < x->nbytes ? shard_index_damaged(x, err) : 0;
}

/* Parses the table of sections, which must be contiguous. */
static bool sections_parse(struct ps_shard_index *x, size_t at)
{
	size_t end = at + (size_t)x->nsections * PS_PSX_SECTION;

	for (uint32_t i = 0; i < x->nsections; i++) {
		const uint8_t *entry = x->data + at + (size_t)i * PS_PSX_SECTION;
		uint64_t begin = ps_get_u64(entry + 8), n = ps_get_u64(entry + 16);
		struct ps_shard_index_section *s = &x->sections[i];

		if (begin != end || n > x->nbytes - end)
			return false;
		end = ps_psx_pad8(end + (size_t)n);
		s->kind = ps_get_u32(entry);
		s->detail = ps_get_u32(entry + 4);
		s->p = x->data + begin;
		s->n = (size_t)n;
		s->sum = ps_get_u64(entry + 24);
		if (end > x->nbytes)
			return false;
	}
	return end == x->nbytes;
}

static bool shape_parse(
        struct ps_shard_index *x, struct ps_psx_bytes *b, struct ps_shard_index_shape *shape, uint32_t *n)
{
	uint64_t members, len;

	if (!ps_get_varint(b, &members) || members == 0 || members > PS_PSX_MAX_MEMBERS)
		return false;
	*shape = (struct ps_shard_index_shape){.first = *n, .n = (uint32_t)members};
	for (uint64_t i = 0; i < members; i++) {
		struct ps_shard_index_shape_member *m = &x->members[(*n)++];
		const uint8_t *suffix;

		if (!ps_get_varint(b, &m->lead) || m->lead >> 40 || !ps_get_varint(b, &len) ||
		        len > UINT32_MAX || !ps_get_bytes(b, len + 1, &suffix) || suffix[len] != 0 ||
		        memchr(suffix, 0, len))
			return false;
		m->suffix = (const char *)suffix;
	}
	return true;
}

static int shapes_parse(struct ps_shard_index *x, struct ps_shard_index_section *s, struct ps_error *err)
{
	struct ps_psx_bytes b = {s->p, s->p + s->n};
	uint32_t nmembers = 0;
	uint64_t n;

	/* `members` is allocated for s->n / 3: a member takes at least three bytes */
	if (x->shapes || !shard_index_section_sound(s) || !ps_get_varint(&b, &n) || n > PS_PSX_MAX_SHAPES)
		return shard_index_damaged(x, err);
	x->shapes = calloc((size_t)n + 1, sizeof(*x->shapes));
	x->members = calloc(s->n / 3 + 1 + PS_PSX_MAX_MEMBERS, sizeof(*x->members));
	if (!x->shapes || !x->members)
		return ps_no_memory(err);
	for (uint64_t i = 0; i < n; i++)
		if (!shape_parse(x, &b, &x->shapes[i], &nmembers))
			return shard_index_damaged(x, err);
	x->nshapes = (uint32_t)n;
	return b.p == b.end ? 0 : shard_index_damaged(x, err);
}

/* Parses the head of a column; its bytes are checked when they are first used. */
static bool column_parse(struct ps_shard_index *x, struct ps_shard_index_section *s)
{
	struct ps_psx_bytes b = {s->p, s->p + s->n};
	uint64_t bits = ps_psx_pad8((size_t)(x->count / 8 + (x->count % 8 > 0)));
	struct ps_shard_index_column *c;
	const uint8_t *name;

	if (x->ncolumns == PS_INDEX_MAX_COLUMNS)
		return false;
	c = &x->columns[x->ncolumns];
	c->section = s;
	c->type = (enum ps_column_type)(s->detail & 0xff);
	c->width = s->detail >> 8;
	if (s->n == 0 || !ps_get_bytes(&b, ps_psx_pad8(1u + s->p[0]), &name) ||
	        !ps_get_bytes(&b, bits, &c->present))
		return false;
	c->name = (const char *)name + 1;
	c->name_len = name[0];
	c->values = b.p;
	switch (c->type) {
	case PS_COLUMN_INT:
		if (c->width != 1 && c->width != 2 && c->width != 4 && c->width != 8)
			return false;
		break;
	case PS_COLUMN_FLOAT:
		if (c->width != 4 && c->width != 8)
			return false;
		break;
	case PS_COLUMN_TEXT:
		c->width = 0;
		break;
	default:
		return false;
	}
	x->ncolumns++;
	if (c->type == PS_COLUMN_TEXT)
		return ps_psx_nmarks(x->count) <= (uint64_t)(b.end - b.p) / 8;
	return x->count <= (uint64_t)(b.end - b.p) / c->width;
}

/* Reads the next text of a stream of texts. */
static bool text_take(struct ps_psx_bytes *b, const char **ret_text, size_t *ret_len)
{
	const uint8_t *text;
	uint64_t len;

	if (!ps_get_varint(b, &len) || !ps_get_bytes(b, len, &text))
		return false;
	*ret_text = (const char *)text;
	*ret_len = (size_t)len;
	return true;
}

/* Parses where the columns come from; this section follows those of the columns. */
static bool sources_parse(struct ps_shard_index *x, struct ps_shard_index_section *s)
{
	struct ps_psx_bytes b = {s->p, s->p + s->n};

	if (!shard_index_section_sound(s))
		return false;
	for (uint32_t i = 0; i < x->ncolumns; i++)
		if (!text_take(&b, &x->columns[i].from, &x->columns[i].from_len))
			return false;
	return b.p == b.end;
}

static int head_parse(struct ps_shard_index *x, struct ps_error *err)
{
	const uint8_t *h = x->data;

	if (x->nbytes >= 8 && memcmp(h, PS_PSX_MAGIC, 7) == 0 && h[7] != PS_PSX_MAGIC[7])
		return ps_error_set(
		        err, ESTALE, "%s: belongs to another version of penstock; " PS_INDEX_HINT, x->path);
	if (x->nbytes < PS_PSX_HEAD || memcmp(h, PS_PSX_MAGIC, 8) != 0)
		return shard_index_damaged(x, err);
	x->nsections = ps_get_u16(h + PS_PSX_AT_NSECTIONS);
	if (x->nsections > PS_PSX_MAX_SECTIONS ||
	        x->nbytes < PS_PSX_HEAD + (size_t)x->nsections * PS_PSX_SECTION ||
	        ps_psx_head_sum(h, x->nsections) != ps_get_u64(h + PS_PSX_AT_SUM) ||
	        !sections_parse(x, PS_PSX_HEAD))
		return shard_index_damaged(x, err);
	x->count = ps_get_u64(h + PS_PSX_AT_COUNT);
	x->bad = ps_get_u64(h + PS_PSX_AT_BAD);
	x->flags = ps_get_u32(h + PS_PSX_AT_FLAGS);
	/* a sample takes at least two bytes of the file, so its size limits the counts */
	if (x->count > x->nbytes || x->bad > x->count || x->flags & ~(uint32_t)PS_PSX_FLAGS)
		return shard_index_damaged(x, err);
	if (!(x->flags & PS_PSX_FLAG_LINES) &&
	        !(ps_get_u16(h + PS_PSX_AT_NOTES) & (PS_PSX_NOTE_ALL | PS_PSX_NOTE_LINKS)))
		return ps_error_set(err, ESTALE,
		        "%s: was made by version 0.3, which left out hard links, and may lack "
		        "some; " PS_INDEX_HINT,
		        x->path);
	x->binding.nbytes = ps_get_u64(h + PS_PSX_AT_SIZE);
	x->binding.plain_nbytes = ps_get_u64(h + PS_PSX_AT_PLAIN);
	x->binding.first = ps_get_u64(h + PS_PSX_AT_FIRST);
	memcpy(x->binding.sha256, h + PS_PSX_AT_SHA256, PS_PSX_SHA256);
	return 0;
}

static int parse(struct ps_shard_index *x, struct ps_error *err)
{
	int rc = head_parse(x, err);

	for (uint32_t i = 0; i < x->nsections && rc == 0; i++) {
		struct ps_shard_index_section *s = &x->sections[i];

		switch (s->kind) {
		case PS_PSX_SHAPES:
			rc = shapes_parse(x, s, err);
			break;
		case PS_PSX_SAMPLES: /* two words of each mark, then a stream; of keys one word */
			x->samples = s;
			rc = ps_psx_nmarks(x->count) <= s->n / 16 ? 0 : shard_index_damaged(x, err);
			break;
		case PS_PSX_KEYS:
			x->keys = s;
			rc = ps_psx_nmarks(x->count) <= s->n / 8 ? 0 : shard_index_damaged(x, err);
			break;
		case PS_PSX_COLUMN:
			rc = column_parse(x, s) ? 0 : shard_index_damaged(x, err);
			break;
		case PS_PSX_SOURCES:
			rc = sources_parse(x, s) ? 0 : shard_index_damaged(x, err);
			break;
		default: /* a section of a later version */
			break;
		}
	}
	if (rc == 0 && (!x->samples || !x->keys || !x->shapes))
		rc = shard_index_damaged(x, err);
	return rc;
}

/* Opens the index of `data`, or the file `path` if that is NULL. Takes ownership of `path`; if that is NULL, err
 * is already filled. */
static int index_open(
        char *path, const void *data, size_t nbytes, struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index *x = path ? calloc(1, sizeof(*x)) : NULL;
	int rc = 0;

	if (!x) {
		free(path);
		return path ? ps_no_memory(err) : -ENOMEM;
	}
	x->path = path;
	if (!data)
		rc = data_load(x, err);
	else if (!(x->data = malloc(nbytes + 1)))
		rc = ps_no_memory(err);
	else
		memcpy(x->data, data, x->nbytes = nbytes);
	if (rc == 0)
		rc = parse(x, err);
	if (rc < 0) {
		ps_shard_index_close(x);
		return rc;
	}
	*ret_index = x;
	return 0;
}

int ps_shard_index_open_file(const char *path, const char *shard, uint64_t nbytes,
        struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index *x;
	char *copy = strdup(path);
	int rc = copy ? index_open(copy, NULL, 0, &x, err) : ps_no_memory(err);

	if (rc < 0)
		return rc;
	if (x->flags & PS_PSX_FLAG_COMPRESSED && x->binding.nbytes != nbytes &&
	        x->binding.plain_nbytes == nbytes) {
		/* the shard is shown decompressed: the index's offsets are offsets in the file */
		x->flags &= ~(uint32_t)PS_PSX_FLAG_COMPRESSED;
	} else if (x->binding.nbytes != nbytes) {
		rc = ps_error_set(err, ESTALE,
		        "%s: belongs to a shard of %ju bytes, but %s has %ju: it was changed "
		        "since; " PS_INDEX_HINT,
		        x->path, (uintmax_t)x->binding.nbytes, shard, (uintmax_t)nbytes);
		ps_shard_index_close(x);
		return rc;
	}
	*ret_index = x;
	return 0;
}

/* Opens the index beside a shard. If the shard is shown decompressed, its index may have the compressed
 * name. */
static int beside_open(
        const char *shard, uint64_t nbytes, struct ps_shard_index **ret_index, struct ps_error *err)
{
	static const char *const codings[] = {"", ".zst", ".gz"};
	struct ps_error first = {0};
	int rc = -ENOENT;

	for (size_t i = 0; i < PS_ARRAY_LEN(codings) && rc == -ENOENT; i++) {
		ps_autofree char *path = ps_asprintf(err, "%s%s%s", shard, codings[i], PS_PSX_SUFFIX);

		if (!path)
			return -ENOMEM;
		rc = ps_shard_index_open_file(path, shard, nbytes, ret_index, i == 0 ? &first : err);
	}
	if (rc == -ENOENT || (rc < 0 && first.err != ENOENT))
		return ps_error_set(err, first.err, "%s", first.text);
	return rc;
}

int ps_shard_index_open(
        const char *shard, const char *dir, struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index_version now;
	ps_autofree char *path = NULL;
	uint64_t first;
	int rc = ps_shard_index_version_read(shard, &now, err);

	if (rc < 0)
		return rc;
	if (!dir)
		return beside_open(shard, now.nbytes, ret_index, err);
	rc = ps_shard_index_first_read(shard, &first, err);
	if (rc < 0)
		return rc;
	path = ps_shard_index_path(shard, dir, now.nbytes, first, err);
	return path ? ps_shard_index_open_file(path, shard, now.nbytes, ret_index, err) : -ENOMEM;
}

/* Makes the path of the index of a longer shard; the caller frees it. */
static char *longer_path(const char *shard, const char *dir, uint64_t nbytes)
{
	struct ps_shard_index_folder *folder;
	uint64_t first;
	char *path;

	if (!dir)
		return ps_shard_index_path(shard, NULL, 0, 0, NULL);
	if (ps_shard_index_first_read(shard, &first, NULL) < 0 ||
	        ps_shard_index_folder_read(dir, &folder, NULL) < 0)
		return NULL;
	path = ps_shard_index_folder_find_longer(folder, shard, nbytes, first);
	ps_shard_index_folder_free(folder);
	return path;
}

int ps_shard_index_open_of_longer(
        const char *shard, const char *dir, struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index_version now;
	struct ps_shard_index *x;
	char *path;
	int rc = ps_shard_index_version_read(shard, &now, err);

	if (rc < 0)
		return rc;
	path = longer_path(shard, dir, now.nbytes);
	if (!path)
		return ps_error_set(err, ENOENT, "%s: has no index of a longer shard", shard);
	rc = index_open(path, NULL, 0, &x, err);
	if (rc < 0)
		return rc;
	if (x->binding.nbytes <= now.nbytes) {
		rc = ps_error_set(err, ENOENT, "%s: is not of a longer shard", x->path);
		ps_shard_index_close(x);
		return rc;
	}
	*ret_index = x;
	return 0;
}

int ps_shard_index_open_mem(
        const void *data, size_t nbytes, struct ps_shard_index **ret_index, struct ps_error *err)
{
	char *path = strdup("(memory)");

	return path ? index_open(path, data, nbytes, ret_index, err) : ps_no_memory(err);
}

int ps_shard_index_open_windows(const char *shard, const struct ps_windows *windows,
        struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index_version version;
	struct ps_shard_index *x;
	int rc = ps_shard_index_version_read(shard, &version, err);

	if (rc < 0)
		return rc;
	x = calloc(1, sizeof(*x));
	if (!x || !(x->path = strdup(shard))) {
		free(x);
		return ps_no_memory(err);
	}
	x->windows = *windows;
	x->count = ps_tokens_count(windows, version.nbytes);
	/* an incomplete last token is a bad sample, as when the stream is read */
	x->bad = version.nbytes % windows->item > 0;
	x->count += x->bad;
	*ret_index = x;
	return 0;
}

int ps_shard_index_open_rows(
        const char *unit, uint64_t rows, struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_shard_index *x = calloc(1, sizeof(*x));

	if (!x || !(x->path = strdup(unit))) {
		free(x);
		return ps_no_memory(err);
	}
	x->is_rows = true;
	x->count = rows;
	*ret_index = x;
	return 0;
}

void ps_shard_index_close(struct ps_shard_index *x)
{
	if (!x)
		return;
	if (x->mapped)
		munmap(x->data, x->nbytes);
	else
		free(x->data);
	free(x->path);
	free(x->shapes);
	free(x->members);
	free(x);
}

const struct ps_shard_index_binding *ps_shard_index_binding(const struct ps_shard_index *x)
{
	return &x->binding;
}

const char *ps_shard_index_path_of(const struct ps_shard_index *x)
{
	return x->path;
}

/* Samples ------------------------------------------------------------------------------------------------ */

bool ps_shard_index_is_of_lines(const struct ps_shard_index *x)
{
	return x->flags & PS_PSX_FLAG_LINES;
}

uint64_t ps_shard_index_samples(const struct ps_shard_index *x)
{
	return x->count;
}

uint64_t ps_shard_index_bad(const struct ps_shard_index *x)
{
	return x->bad;
}

static int range_check(const struct ps_shard_index *x, uint64_t sample, struct ps_error *err)
{
	if (sample < x->count)
		return 0;
	return ps_error_set(err, ERANGE, "%s: has no sample %ju, only %ju", x->path, (uintmax_t)sample,
	        (uintmax_t)x->count);
}

/* A walk over the samples after a mark. Offsets beyond 2^62 are damage, so sums cannot overflow. */
struct walk {
	struct ps_psx_bytes b;
	uint64_t end;  /* end of the sample read last */
	uint64_t unit; /* bytes */
};

#define OFFSET_MAX (UINT64_C(1) << 62)

static bool advance(uint64_t *at, uint64_t units, uint64_t unit)
{
	if (*at > OFFSET_MAX || units > OFFSET_MAX / unit || units * unit > OFFSET_MAX - *at)
		return false;
	*at += units * unit;
	return true;
}

/* Reads one sample; its members are stored in `ret` unless that is NULL. */
static bool walk_sample(const struct ps_shard_index *x, struct walk *w, struct ps_shard_index_place *place,
        struct ps_shard_index_member *ret)
{
	uint64_t what, units, at;

	if (!ps_get_varint(&w->b, &what))
		return false;
	if ((what & 1) && (!ps_get_varint(&w->b, &units) || !advance(&w->end, units, w->unit)))
		return false;
	*place = (struct ps_shard_index_place){.offset = w->end, .bad = what & 2};
	what >>= 2;
	if (what > x->nshapes)
		return false;
	if (what == 0)
		return ps_get_varint(&w->b, &units) && advance(&w->end, units, w->unit);
	at = w->end;
	place->nmembers = x->shapes[what - 1].n;
	for (uint32_t i = 0; i < place->nmembers; i++) {
		const struct ps_shard_index_shape_member *m = &x->members[x->shapes[what - 1].first + i];
		uint64_t size;

		if (!advance(&at, m->lead, w->unit) || !ps_get_varint(&w->b, &size) || size > OFFSET_MAX)
			return false;
		if (ret)
			ret[i] = (struct ps_shard_index_member){
			        .suffix = m->suffix, .offset = at, .size = size};
		if (!advance(&at, size / w->unit + (size % w->unit > 0), w->unit))
			return false;
	}
	w->end = at + (w->unit == 1); /* the newline */
	return true;
}

static struct ps_shard_index_place window_place(
        const struct ps_shard_index *x, uint64_t sample, struct ps_shard_index_member *ret_members)
{
	struct ps_shard_index_place place = {.offset = sample * x->windows.stride};

	if (x->bad && sample == x->count - 1) {
		place.bad = true;
		return place;
	}
	place.resume_offset = place.offset;
	place.nmembers = 1;
	if (ret_members)
		*ret_members = (struct ps_shard_index_member){
		        .suffix = x->windows.suffix, .offset = place.offset, .size = x->windows.nbytes};
	return place;
}

/* Begins a walk at the mark before a sample. False: damaged. */
static bool walk_begin(const struct ps_shard_index *x, uint64_t sample, struct walk *ret)
{
	const uint8_t *mark = x->samples->p + sample / PS_PSX_MARK * 16;
	uint64_t at = ps_get_u64(mark + 8);

	*ret = (struct walk){
	        .b = {x->samples->p + ps_psx_nmarks(x->count) * 16, x->samples->p + x->samples->n},
	        .end = ps_get_u64(mark),
	        .unit = x->flags & PS_PSX_FLAG_LINES ? 1 : 512};
	if (ret->end > OFFSET_MAX || at > (uint64_t)(ret->b.end - ret->b.p))
		return false;
	ret->b.p += at;
	return true;
}

int ps_shard_index_place(struct ps_shard_index *x, uint64_t sample, struct ps_shard_index_place *ret_place,
        struct ps_shard_index_member *ret_members, struct ps_error *err)
{
	struct ps_shard_index_place place = {0};
	struct walk w;
	int rc = range_check(x, sample, err);

	if (rc < 0)
		return rc;
	if (x->windows.nbytes > 0) {
		*ret_place = window_place(x, sample, ret_members);
		return 0;
	}
	if (x->is_rows) {
		*ret_place = (struct ps_shard_index_place){.offset = sample};
		return 0;
	}
	if (!shard_index_section_sound(x->samples) || !walk_begin(x, sample, &w))
		return shard_index_damaged(x, err);
	for (uint64_t i = 0; i <= sample % PS_PSX_MARK; i++)
		if (!walk_sample(x, &w, &place, i == sample % PS_PSX_MARK ? ret_members : NULL))
			return shard_index_damaged(x, err);
	if (!place.bad && !(x->flags & (PS_PSX_FLAG_GLOBAL | PS_PSX_FLAG_COMPRESSED)))
		place.resume_offset = place.offset;
	*ret_place = place;
	return 0;
}

/* Begins at the text of the mark before a sample, in a section of marks and a stream of texts. False: damaged. */
static bool texts_begin(const struct ps_shard_index *x, const uint8_t *p, const uint8_t *end, uint64_t sample,
        struct ps_psx_bytes *ret)
{
	uint64_t at = ps_get_u64(p + sample / PS_PSX_MARK * 8);

	*ret = (struct ps_psx_bytes){p + ps_psx_nmarks(x->count) * 8, end};
	if (at > (uint64_t)(ret->end - ret->p))
		return false;
	ret->p += at;
	return true;
}

/* Finds text number `sample` of such a section. */
static bool text_find(const struct ps_shard_index *x, const uint8_t *p, const uint8_t *end, uint64_t sample,
        const char **ret_text, size_t *ret_len)
{
	struct ps_psx_bytes b;
	bool ok = texts_begin(x, p, end, sample, &b);

	for (uint64_t i = 0; i <= sample % PS_PSX_MARK && ok; i++)
		ok = text_take(&b, ret_text, ret_len);
	return ok;
}

int ps_shard_index_key(struct ps_shard_index *x, uint64_t sample, const char **ret_key, size_t *ret_len,
        struct ps_error *err)
{
	int rc = range_check(x, sample, err);

	if (rc < 0)
		return rc;
	if (x->windows.nbytes > 0 || x->is_rows)
		return ps_error_set(err, ENOENT, "%s: %s has no keys", x->path,
		        x->is_rows ? "a unit of rows" : "a token stream");
	if (!shard_index_section_sound(x->keys) ||
	        !text_find(x, x->keys->p, x->keys->p + x->keys->n, sample, ret_key, ret_len))
		return shard_index_damaged(x, err);
	return 0;
}

/* Comparing with the shard ------------------------------------------------------------------------------- */

/* Goes to a sample: on from where the walk ended if that is just before it, else from the sample's mark. */
static bool walk_to(struct ps_shard_index *x, struct ps_shard_index_walk *w, uint64_t sample,
        struct ps_shard_index_place *place, struct ps_shard_index_member *members, const char **ret_key,
        size_t *ret_len)
{
	const uint8_t *end = x->keys->p + x->keys->n;
	struct ps_psx_bytes keys = {w->key, end};
	struct walk at = {.b = {w->place, x->samples->p + x->samples->n},
	        .end = w->end,
	        .unit = x->flags & PS_PSX_FLAG_LINES ? 1 : 512};

	if (!w->ready || w->next != sample) {
		w->next = sample - sample % PS_PSX_MARK;
		if (!walk_begin(x, sample, &at) || !texts_begin(x, x->keys->p, end, sample, &keys))
			return false;
	}
	for (; w->next <= sample; w->next++)
		if (!walk_sample(x, &at, place, members) || !text_take(&keys, ret_key, ret_len))
			return false;
	*w = (struct ps_shard_index_walk){
	        .ready = true, .next = sample + 1, .end = at.end, .place = at.b.p, .key = keys.p};
	return true;
}

#define STALE_HINT                                                                                        \
	PS_INDEX_STALE "; fetch its index again, or make it (penstock-loader index --force; --catalogue " \
	               "where there is a SHARDS.psc)"

static bool members_equal(
        const struct ps_shard_index_member *a, const struct ps_shard_index_member *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].offset != b[i].offset || a[i].size != b[i].size ||
		        strcmp(a[i].suffix, b[i].suffix) != 0)
			return false;
	return true;
}

int ps_shard_index_check(struct ps_shard_index *x, struct ps_shard_index_walk *w, uint64_t sample,
        uint64_t offset, const char *key, size_t key_len, const struct ps_shard_index_member *members,
        uint32_t nmembers, struct ps_error *err)
{
	struct ps_shard_index_member want[PS_PSX_MAX_MEMBERS];
	struct ps_shard_index_place place;
	const char *want_key = NULL;
	size_t want_len = 0;

	if (x->windows.nbytes > 0 || x->is_rows)
		return 0; /* a token stream's count is computed from its size: nothing to compare */
	if (sample >= x->count)
		return ps_error_set(err, ESTALE,
		        "has a sample %ju, \"%.*s\", but its index %s counts %ju: " STALE_HINT,
		        (uintmax_t)sample, (int)PS_MIN(key_len, (size_t)100), key, x->path,
		        (uintmax_t)x->count);
	if (!shard_index_section_sound(x->samples) || !shard_index_section_sound(x->keys) ||
	        !walk_to(x, w, sample, &place, want, &want_key, &want_len))
		return shard_index_damaged(x, err);
	if (place.bad) /* the sample could not be read when the index was made */
		return 0;
	if (place.offset == offset && want_len == key_len && memcmp(want_key, key, key_len) == 0 &&
	        (place.nmembers == 0 ||
	                (place.nmembers == nmembers && members_equal(want, members, nmembers))))
		return 0;
	return ps_error_set(err, ESTALE,
	        "sample %ju is \"%.*s\" at offset %ju, and not \"%.*s\" at %ju with its members, as its "
	        "index %s "
	        "says: " STALE_HINT,
	        (uintmax_t)sample, (int)PS_MIN(key_len, (size_t)100), key, (uintmax_t)offset,
	        (int)PS_MIN(want_len, (size_t)100), want_key, (uintmax_t)place.offset, x->path);
}

int ps_shard_index_check_first(
        const struct ps_shard_index *x, const uint8_t *p, size_t n, struct ps_error *err)
{
	if (x->windows.nbytes > 0 || x->is_rows || ps_psx_sum(0, p, n) == x->binding.first)
		return 0;
	return ps_error_set(
	        err, ESTALE, "its first header differs from that in its index %s: " STALE_HINT, x->path);
}

size_t ps_shard_index_held(const struct ps_shard_index *x)
{
	return x->mapped ? 0 : x->nbytes;
}

bool ps_shard_index_equals(struct ps_shard_index *a, struct ps_shard_index *b)
{
	if (a->count != b->count || a->bad != b->bad || a->flags != b->flags || a->nsections != b->nsections)
		return false;
	for (uint32_t i = 0; i < a->nsections; i++) {
		struct ps_shard_index_section *s = &a->sections[i], *t = &b->sections[i];

		if (s->kind != t->kind || s->detail != t->detail || s->n != t->n ||
		        !shard_index_section_sound(s) || !shard_index_section_sound(t) ||
		        memcmp(s->p, t->p, s->n) != 0)
			return false;
	}
	return true;
}

/* Columns ------------------------------------------------------------------------------------------------ */

int ps_shard_index_ncolumns(const struct ps_shard_index *x)
{
	return (int)x->ncolumns;
}

int ps_shard_index_column(const struct ps_shard_index *x, const char *name)
{
	for (uint32_t i = 0; i < x->ncolumns; i++)
		if (x->columns[i].name_len == strlen(name) &&
		        memcmp(x->columns[i].name, name, x->columns[i].name_len) == 0)
			return (int)i;
	return -1;
}

bool ps_shard_index_column_is(const struct ps_shard_index *x, int column, const char *from)
{
	const struct ps_shard_index_column *c = &x->columns[column];

	return c->from && c->from_len == strlen(from) && memcmp(c->from, from, c->from_len) == 0;
}

char *ps_shard_index_column_text(const struct ps_shard_index *x, int column)
{
	const struct ps_shard_index_column *c = &x->columns[column];

	return c->from ? ps_asprintf(NULL, "%.*s=%.*s", (int)c->name_len, c->name, (int)c->from_len, c->from)
	               : NULL;
}

static int64_t integer_get(const uint8_t *p, unsigned width)
{
	switch (width) {
	case 1:
		return (int8_t)p[0];
	case 2:
		return (int16_t)ps_get_u16(p);
	case 4:
		return (int32_t)ps_get_u32(p);
	default:
		return (int64_t)ps_get_u64(p);
	}
}

int ps_shard_index_value(struct ps_shard_index *x, int column, uint64_t sample, struct ps_column_value *v,
        struct ps_error *err)
{
	const struct ps_shard_index_column *c = &x->columns[column];
	struct ps_shard_index_section *s = &x->sections[c->section - x->sections];
	int rc = range_check(x, sample, err);

	if (rc < 0)
		return rc;
	if (!shard_index_section_sound(s))
		return shard_index_damaged(x, err);
	*v = (struct ps_column_value){
	        .type = c->type, .missing = !(c->present[sample / 8] >> (sample % 8) & 1)};
	if (v->missing)
		return 0;
	switch (c->type) {
	case PS_COLUMN_INT:
		v->integer = integer_get(c->values + sample * c->width, c->width);
		v->number = (double)v->integer;
		break;
	case PS_COLUMN_FLOAT:
		v->number = ps_number_load(c->width == 4 ? PS_F32 : PS_F64,
		        __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__, c->values + sample * c->width)
		                    .value;
		break;
	case PS_COLUMN_TEXT:
		if (!text_find(x, c->values, s->p + s->n, sample, &v->text, &v->text_len))
			return shard_index_damaged(x, err);
		break;
	}
	return 0;
}
