#include "config.h"

#include "shard/index_core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "shard/index_file.h"
#include "shard/tokens.h"

#define MAX_FILE (UINT64_C(1) << 32)

int ps_index_damaged(const struct ps_index *x, struct ps_load_error *err)
{
	return ps_load_error_set(err, EBADMSG, "%s: damaged, or no index; " PS_INDEX_HINT, x->path);
}

bool ps_index_section_sound(struct ps_index_section *s)
{
	int state = atomic_load_explicit(&s->state, memory_order_relaxed);

	if (state == 0) {
		state = ps_index_sum(0, s->p, s->n) == s->sum ? 1 : -1;
		atomic_store_explicit(&s->state, state, memory_order_relaxed);
	}
	return state > 0;
}

static int all_read(int fd, uint8_t *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = pread(fd, p + got, n - got, (off_t)got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return -EBADMSG;
		got += (size_t)r;
	}
	return 0;
}

static int data_load(struct ps_index *x, struct ps_load_error *err)
{
	ps_autofd int fd = open(x->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int r = 0;

	if (fd < 0 && errno == ENOENT)
		return ps_load_error_set(err, ENOENT,
		        "%s: no such index, and no catalogue names the shard; make it with penstock-loader index (of "
		        "read-only shards with --dir DIR, and index_dir here)",
		        x->path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_load_error_set(err, errno, "%s: cannot read: %s", x->path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size < PS_INDEX_HEAD || (uint64_t)st.st_size > MAX_FILE)
		return ps_index_damaged(x, err);
	x->nbytes = (size_t)st.st_size;
	/* Over a network it is copied: a mapped page that cannot be read is a signal, not an error. */
	x->mapped = !ps_index_fd_is_remote(fd);
	if (x->mapped) {
		void *p = mmap(NULL, x->nbytes, PROT_READ, MAP_SHARED, fd, 0);

		x->mapped = p != MAP_FAILED;
		x->data = x->mapped ? p : NULL;
	}
	if (!x->mapped) {
		x->data = malloc(x->nbytes);
		r = x->data ? all_read(fd, x->data, x->nbytes) : -ENOMEM;
	}
	if (r == -EBADMSG)
		return ps_index_damaged(x, err);
	if (r < 0)
		return ps_load_error_set(err, -r, "%s: cannot read: %s", x->path, strerror(-r));
	return 0;
}

/* The table of sections; they lie behind each other. */
static bool sections_parse(struct ps_index *x, size_t at)
{
	size_t end = at + (size_t)x->nsections * PS_INDEX_SECTION;

	for (uint32_t i = 0; i < x->nsections; i++) {
		const uint8_t *entry = x->data + at + (size_t)i * PS_INDEX_SECTION;
		uint64_t begin = ps_get_u64(entry + 8), n = ps_get_u64(entry + 16);
		struct ps_index_section *s = &x->sections[i];

		if (begin != end || n > x->nbytes - end)
			return false;
		end = ps_index_pad8(end + (size_t)n);
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
        struct ps_index *x, struct ps_index_bytes *b, struct ps_index_shape *shape, uint32_t *n)
{
	uint64_t members, len;

	if (!ps_get_varint(b, &members) || members == 0 || members > PS_INDEX_MAX_MEMBERS)
		return false;
	*shape = (struct ps_index_shape){.first = *n, .n = (uint32_t)members};
	for (uint64_t i = 0; i < members; i++) {
		struct ps_index_shape_member *m = &x->members[(*n)++];
		const uint8_t *suffix;

		if (!ps_get_varint(b, &m->lead) || m->lead >> 40 || !ps_get_varint(b, &len) ||
		        len > UINT32_MAX || !ps_get_bytes(b, len + 1, &suffix) || suffix[len] != 0 ||
		        memchr(suffix, 0, len))
			return false;
		m->suffix = (const char *)suffix;
	}
	return true;
}

static int shapes_parse(struct ps_index *x, struct ps_index_section *s, struct ps_load_error *err)
{
	struct ps_index_bytes b = {s->p, s->p + s->n};
	uint32_t nmembers = 0;
	uint64_t n;

	/* a member takes three bytes at least */
	if (x->shapes || !ps_index_section_sound(s) || !ps_get_varint(&b, &n) || n > PS_INDEX_MAX_SHAPES)
		return ps_index_damaged(x, err);
	x->shapes = calloc((size_t)n + 1, sizeof(*x->shapes));
	x->members = calloc(s->n / 3 + 1 + PS_INDEX_MAX_MEMBERS, sizeof(*x->members));
	if (!x->shapes || !x->members)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
		if (!shape_parse(x, &b, &x->shapes[i], &nmembers))
			return ps_index_damaged(x, err);
	x->nshapes = (uint32_t)n;
	return b.p == b.end ? 0 : ps_index_damaged(x, err);
}

/* What the head of a column says; its bytes are looked at when they are first used. */
static bool column_parse(struct ps_index *x, struct ps_index_section *s)
{
	struct ps_index_bytes b = {s->p, s->p + s->n};
	uint64_t bits = ps_index_pad8((size_t)(x->count / 8 + (x->count % 8 > 0)));
	struct ps_index_column *c;
	const uint8_t *name;

	if (x->ncolumns == PS_INDEX_MAX_COLUMNS)
		return false;
	c = &x->columns[x->ncolumns];
	c->section = s;
	c->type = (enum ps_column_type)(s->detail & 0xff);
	c->width = s->detail >> 8;
	if (s->n == 0 || !ps_get_bytes(&b, ps_index_pad8(1u + s->p[0]), &name) ||
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
		return ps_index_nmarks(x->count) <= (uint64_t)(b.end - b.p) / 8;
	return x->count <= (uint64_t)(b.end - b.p) / c->width;
}

/* Where the columns come from; they stand in front of it. */
static bool sources_parse(struct ps_index *x, struct ps_index_section *s)
{
	struct ps_index_bytes b = {s->p, s->p + s->n};

	if (!ps_index_section_sound(s))
		return false;
	for (uint32_t i = 0; i < x->ncolumns; i++) {
		const uint8_t *from;
		uint64_t len;

		if (!ps_get_varint(&b, &len) || !ps_get_bytes(&b, len, &from))
			return false;
		x->columns[i].from = (const char *)from;
		x->columns[i].from_len = (size_t)len;
	}
	return b.p == b.end;
}

static int head_parse(struct ps_index *x, struct ps_load_error *err)
{
	const uint8_t *h = x->data;

	if (x->nbytes >= 8 && memcmp(h, PS_INDEX_MAGIC, 7) == 0 && h[7] != PS_INDEX_MAGIC[7])
		return ps_load_error_set(
		        err, ESTALE, "%s: of another version of penstock; " PS_INDEX_HINT, x->path);
	if (x->nbytes < PS_INDEX_HEAD || memcmp(h, PS_INDEX_MAGIC, 8) != 0)
		return ps_index_damaged(x, err);
	x->nsections = ps_get_u16(h + PS_INDEX_AT_NSECTIONS);
	if (x->nsections > PS_INDEX_MAX_SECTIONS ||
	        x->nbytes < PS_INDEX_HEAD + (size_t)x->nsections * PS_INDEX_SECTION ||
	        ps_index_head_sum(h, x->nsections) != ps_get_u64(h + PS_INDEX_AT_SUM) ||
	        !sections_parse(x, PS_INDEX_HEAD))
		return ps_index_damaged(x, err);
	x->count = ps_get_u64(h + PS_INDEX_AT_COUNT);
	x->bad = ps_get_u64(h + PS_INDEX_AT_BAD);
	x->flags = ps_get_u32(h + PS_INDEX_AT_FLAGS);
	/* a sample takes two bytes of the file at least, so counts are within what fits in memory */
	if (x->count > x->nbytes || x->bad > x->count || x->flags & ~(uint32_t)PS_INDEX_FLAGS)
		return ps_index_damaged(x, err);
	x->binding.nbytes = ps_get_u64(h + PS_INDEX_AT_SIZE);
	x->binding.plain_nbytes = ps_get_u64(h + PS_INDEX_AT_PLAIN);
	x->binding.first = ps_get_u64(h + PS_INDEX_AT_FIRST);
	memcpy(x->binding.sha256, h + PS_INDEX_AT_SHA256, PS_INDEX_SHA256);
	return 0;
}

/* Marks of `width` words each stand in front of a stream. */
static bool has_marks(const struct ps_index *x, const struct ps_index_section *s, size_t width)
{
	return ps_index_nmarks(x->count) <= s->n / (width * 8);
}

static int parse(struct ps_index *x, struct ps_load_error *err)
{
	int r = head_parse(x, err);

	for (uint32_t i = 0; i < x->nsections && r == 0; i++) {
		struct ps_index_section *s = &x->sections[i];

		switch (s->kind) {
		case PS_INDEX_SHAPES:
			r = shapes_parse(x, s, err);
			break;
		case PS_INDEX_SAMPLES:
			x->samples = s;
			r = has_marks(x, s, 2) ? 0 : ps_index_damaged(x, err);
			break;
		case PS_INDEX_KEYS:
			x->keys = s;
			r = has_marks(x, s, 1) ? 0 : ps_index_damaged(x, err);
			break;
		case PS_INDEX_COLUMN:
			r = column_parse(x, s) ? 0 : ps_index_damaged(x, err);
			break;
		case PS_INDEX_SOURCES:
			r = sources_parse(x, s) ? 0 : ps_index_damaged(x, err);
			break;
		default: /* of a later version */
			break;
		}
	}
	if (r == 0 && (!x->samples || !x->keys || !x->shapes))
		r = ps_index_damaged(x, err);
	return r;
}

/* Takes `path`, NULL with err filled. */
static int file_open(char *path, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_index *x = path ? calloc(1, sizeof(*x)) : NULL;
	int r;

	if (!x) {
		free(path);
		return path ? ps_load_error_set(err, ENOMEM, "out of memory") : -ENOMEM;
	}
	x->path = path;
	r = data_load(x, err);
	if (r == 0)
		r = parse(x, err);
	if (r < 0) {
		ps_index_close(x);
		return r;
	}
	*ret_index = x;
	return 0;
}

int ps_index_open_file(
        const char *path, const char *shard, uint64_t nbytes, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_index *x;
	char *copy = strdup(path);
	int r = copy ? file_open(copy, &x, err) : ps_load_error_set(err, ENOMEM, "out of memory");

	if (r < 0)
		return r;
	if (x->flags & PS_INDEX_FLAG_COMPRESSED && x->binding.nbytes != nbytes &&
	        x->binding.plain_nbytes == nbytes) {
		/* the shard is shown decompressed: its offsets are those of the file */
		x->flags &= ~(uint32_t)PS_INDEX_FLAG_COMPRESSED;
	} else if (x->binding.nbytes != nbytes) {
		r = ps_load_error_set(err, ESTALE,
		        "%s: of a shard of %ju bytes, but %s has %ju: it was changed since; " PS_INDEX_HINT, x->path,
		        (uintmax_t)x->binding.nbytes, shard, (uintmax_t)nbytes);
		ps_index_close(x);
		return r;
	}
	*ret_index = x;
	return 0;
}

/* Beside a shard; of one that is shown decompressed, beside the compressed name. */
static int beside_open(
        const char *shard, uint64_t nbytes, struct ps_index **ret_index, struct ps_load_error *err)
{
	static const char *const codings[] = {"", ".zst", ".gz"};
	struct ps_load_error first = {0};
	int r = -ENOENT;

	for (size_t i = 0; i < PS_ARRAY_LEN(codings) && r == -ENOENT; i++) {
		ps_autofree char *path = NULL;

		if (asprintf(&path, "%s%s%s", shard, codings[i], PS_INDEX_SUFFIX) < 0) {
			path = NULL;
			return ps_load_error_set(err, ENOMEM, "out of memory");
		}
		r = ps_index_open_file(path, shard, nbytes, ret_index, i == 0 ? &first : err);
	}
	if (r == -ENOENT || (r < 0 && first.err != ENOENT))
		return ps_load_error_set(err, first.err, "%s", first.text);
	return r;
}

int ps_index_open(const char *shard, const char *dir, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_index_version now;
	ps_autofree char *path = NULL;
	uint64_t first;
	int r = ps_index_version_read(shard, &now, err);

	if (r < 0)
		return r;
	if (!dir)
		return beside_open(shard, now.nbytes, ret_index, err);
	r = ps_index_first_read(shard, &first, err);
	if (r < 0)
		return r;
	path = ps_index_path(shard, dir, now.nbytes, first, err);
	return path ? ps_index_open_file(path, shard, now.nbytes, ret_index, err) : -ENOMEM;
}

/* The path of the index of a longer shard, to be freed. */
static char *longer_path(const char *shard, const char *dir, uint64_t nbytes)
{
	struct ps_index_folder *folder;
	uint64_t first;
	char *path;

	if (!dir)
		return ps_index_path(shard, NULL, 0, 0, NULL);
	if (ps_index_first_read(shard, &first, NULL) < 0 || ps_index_folder_read(dir, &folder, NULL) < 0)
		return NULL;
	path = ps_index_folder_find_longer(folder, shard, nbytes, first);
	ps_index_folder_free(folder);
	return path;
}

int ps_index_open_of_longer(
        const char *shard, const char *dir, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_index_version now;
	struct ps_index *x;
	char *path;
	int r = ps_index_version_read(shard, &now, err);

	if (r < 0)
		return r;
	path = longer_path(shard, dir, now.nbytes);
	if (!path)
		return ps_load_error_set(err, ENOENT, "%s: has no index of a longer shard", shard);
	r = file_open(path, &x, err);
	if (r < 0)
		return r;
	if (x->binding.nbytes <= now.nbytes) {
		r = ps_load_error_set(err, ENOENT, "%s: is of no longer shard", x->path);
		ps_index_close(x);
		return r;
	}
	*ret_index = x;
	return 0;
}

int ps_index_open_mem(const void *data, size_t nbytes, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_index *x = calloc(1, sizeof(*x));
	int r = -ENOMEM;

	if (x) {
		x->path = strdup("(memory)");
		x->data = malloc(nbytes + 1);
		x->nbytes = nbytes;
	}
	if (!x || !x->path || !x->data) {
		ps_load_error_set(err, ENOMEM, "out of memory");
	} else {
		memcpy(x->data, data, nbytes);
		r = parse(x, err);
	}
	if (r < 0) {
		ps_index_close(x);
		return r;
	}
	*ret_index = x;
	return 0;
}

int ps_index_open_windows(const char *shard, const struct ps_windows *windows, struct ps_index **ret_index,
        struct ps_load_error *err)
{
	struct ps_index_version version;
	struct ps_index *x;
	int r = ps_index_version_read(shard, &version, err);

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x || !(x->path = strdup(shard))) {
		free(x);
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	x->windows = *windows;
	x->count = ps_tokens_count(windows, version.nbytes);
	/* a rest that is no whole token is a bad sample, as it is when the stream is read */
	x->bad = version.nbytes % windows->item > 0;
	x->count += x->bad;
	*ret_index = x;
	return 0;
}

void ps_index_close(struct ps_index *x)
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

const struct ps_index_binding *ps_index_binding(const struct ps_index *x)
{
	return &x->binding;
}

const char *ps_index_path_of(const struct ps_index *x)
{
	return x->path;
}
