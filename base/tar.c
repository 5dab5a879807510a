#include "config.h"

#include "base/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Fields of a header block. */
enum {
	OFF_NAME = 0,
	LEN_NAME = 100,
	OFF_SIZE = 124,
	LEN_SIZE = 12,
	OFF_MTIME = 136,
	LEN_MTIME = 12,
	OFF_CHKSUM = 148,
	LEN_CHKSUM = 8,
	OFF_TYPE = 156,
	OFF_LINK = 157,
	LEN_LINK = 100,
	OFF_MAGIC = 257,
	OFF_PREFIX = 345,
	LEN_PREFIX = 155,
	OFF_GNU_EXTENDED = 482, /* flag of an old GNU sparse header: more sparse blocks follow */
	OFF_GNU_MORE = 504,     /* the same flag in each of these further blocks */
};

/* A name or the target of a link, from a record that can hold a long one. */
struct text {
	char *p; /* NULL: there was none so far; else PS_TAR_MAX_NAME + 1 bytes, zero-terminated */
	size_t len;
	bool dropped; /* the record's text was too long and was not stored */
};

/* Contents of pax headers. */
struct pax {
	struct text path, link;
	bool has_path;
	bool has_link;
	bool has_size;
	bool has_mtime;
	bool sparse;
	bool is_name; /* path is from GNU.sparse.name: the record `path` of that header has a placeholder */
	uint64_t size;
	int64_t mtime_s;
};

struct ps_tar {
	const struct ps_tar_source *source;
	void *arg;
	bool drops_long_names;
	uint64_t left; /* bytes of the current member's data and padding that were not taken yet */
	uint64_t size; /* of the current member's data */
	bool ended;
	bool cut;          /* it ended without an end mark */
	int failed;        /* -errno that ended the walk */
	struct pax global; /* from g headers, for all members after them */
	struct pax local;  /* from x headers, for the next member */
	bool has_long_name;
	bool has_long_link;
	bool name_dropped;     /* the GNU long name was too long */
	struct text long_link; /* from a GNU long link */
	size_t name_len;
	char link[LEN_LINK + 1];
	char name[PS_TAR_MAX_NAME + 1];
	struct ps_error why; /* the error's text; its code is in `failed` */
};

struct ps_tar *ps_tar_new(const struct ps_tar_source *source, void *arg, bool drops_long_names)
{
	struct ps_tar *t = calloc(1, sizeof(*t));

	if (t) {
		t->source = source;
		t->arg = arg;
		t->drops_long_names = drops_long_names;
	}
	return t;
}

void ps_tar_free(struct ps_tar *t)
{
	if (!t)
		return;
	free(t->global.path.p);
	free(t->global.link.p);
	free(t->local.path.p);
	free(t->local.link.p);
	free(t->long_link.p);
	free(t);
}

static uint64_t offset_of(const struct ps_tar *t)
{
	return t->source->offset(t->arg);
}

static int truncated(struct ps_tar *t, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "truncated: the tar ends at offset %ju, before its end mark",
	        (uintmax_t)offset_of(t));
}

static int damaged(uint64_t offset, const char *what, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "damaged tar at offset %ju: %s", (uintmax_t)offset, what);
}

/* Reports why the first bytes of a file are not a tar header. */
static int no_header(const struct ps_tar *t, const uint8_t *p, size_t n, struct ps_error *err)
{
	return t->source->foreign ? t->source->foreign(t->arg, p, n, err) : damaged(0, "no tar header", err);
}

/* Numbers ------------------------------------------------------------------------------------------------ */

/* Octal digits after spaces, up to a space, a zero byte or the end of the field; an empty field is 0. */
static bool octal_parse(const uint8_t *p, size_t n, uint64_t *ret_value)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 60)
			return false;
		v = v << 3 | (uint64_t)(p[i] - '0');
	}
	if (i < n && p[i] != ' ' && p[i] != 0)
		return false;
	*ret_value = v;
	return true;
}

/* Octal, or base 256 with the top bit of the first byte set. Negative or beyond 2^63 - 1: false. */
static bool number_parse(const uint8_t *p, size_t n, uint64_t *ret_value)
{
	uint64_t v = p[0] & 0x7f;

	if (!(p[0] & 0x80))
		return octal_parse(p, n, ret_value);
	if (p[0] & 0x40)
		return false;
	for (size_t i = 1; i < n; i++) {
		if (v >> 55)
			return false;
		v = v << 8 | p[i];
	}
	*ret_value = v;
	return true;
}

/* The checksum is the sum of the header's bytes, with its own field as spaces: unsigned, or (old writers)
 * signed. */
static bool checksum_fits(const uint8_t *h)
{
	uint64_t want;
	uint32_t sum = 0, high = 0;

	if (!octal_parse(h + OFF_CHKSUM, LEN_CHKSUM, &want))
		return false;
	for (int i = 0; i < PS_TAR_BLOCK; i++)
		sum += h[i];
	for (int i = OFF_CHKSUM; i < OFF_CHKSUM + LEN_CHKSUM; i++)
		sum += ' ' - (uint32_t)h[i];
	if (want == sum)
		return true;
	for (int i = 0; i < PS_TAR_BLOCK; i++)
		high += h[i] >> 7 && (i < OFF_CHKSUM || i >= OFF_CHKSUM + LEN_CHKSUM);
	return (int64_t)want == (int64_t)sum - 256 * (int64_t)high;
}

bool ps_tar_header_fits(const uint8_t h[static PS_TAR_BLOCK], uint64_t size)
{
	char type = (char)h[OFF_TYPE];
	uint64_t stated;

	if (!checksum_fits(h) || (type != '0' && type != 0 && type != '7'))
		return false;
	return size >> 33 || (number_parse(h + OFF_SIZE, LEN_SIZE, &stated) && stated == size);
}

/* pax ---------------------------------------------------------------------------------------------------- */

static bool decimal_parse(const uint8_t *p, size_t n, uint64_t *ret_value)
{
	uint64_t v = 0;

	if (n == 0 || n > 18)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	*ret_value = v;
	return true;
}

static bool key_is(const uint8_t *key, size_t len, const char *name)
{
	return len == strlen(name) && memcmp(key, name, len) == 0;
}

/* False: out of memory. */
static bool text_reserve(struct text *text)
{
	return text->p || (text->p = malloc(PS_TAR_MAX_NAME + 1));
}

/* Stores n bytes, or, if `dropped`, none. False: out of memory. */
static bool text_set(struct text *text, const uint8_t *p, size_t n, bool dropped)
{
	if (!text_reserve(text))
		return false;
	text->dropped = dropped;
	text->len = dropped ? 0 : n;
	memcpy(text->p, p, text->len);
	text->p[text->len] = 0;
	return true;
}

/* pax_take() compares the address of an error text with this one: -ENOMEM; any other text means a damaged
 * tar. */
static const char out_of_memory[] = "out of memory";

/* Stores one record; returns an error text, or NULL. An empty value resets the key. */
static const char *pax_apply(struct pax *pax, const uint8_t *key, size_t klen, const uint8_t *value,
        size_t vlen, bool drops_long_names)
{
	static const char sparse[] = "GNU.sparse.";

	bool is_name = key_is(key, klen, "GNU.sparse.name");

	if (key_is(key, klen, "path") && pax->is_name) {
		return NULL;
	} else if (key_is(key, klen, "path") || is_name) {
		bool dropped = drops_long_names && vlen > PS_TAR_MAX_NAME;

		if (!dropped && (vlen > PS_TAR_MAX_NAME || memchr(value, 0, vlen)))
			return "a pax path that is too long or has a zero byte";
		if (!text_set(&pax->path, value, vlen, dropped))
			return out_of_memory;
		pax->has_path = vlen > 0;
		pax->is_name = is_name && vlen > 0;
		pax->sparse = pax->sparse || is_name;
	} else if (key_is(key, klen, "linkpath")) {
		/* A bad linkpath is not damage: the data of all members can be read without it. */
		if (!text_set(&pax->link, value, vlen, vlen > PS_TAR_MAX_NAME || memchr(value, 0, vlen)))
			return out_of_memory;
		pax->has_link = vlen > 0;
	} else if (key_is(key, klen, "mtime")) {
		/* seconds, maybe with a fraction; 0: negative or not a number */
		const uint8_t *point = memchr(value, '.', vlen);
		uint64_t v = 0;

		pax->mtime_s =
		        decimal_parse(value, point ? (size_t)(point - value) : vlen, &v) ? (int64_t)v : 0;
		pax->has_mtime = vlen > 0;
	} else if (key_is(key, klen, "size")) {
		if (vlen > 0 && !decimal_parse(value, vlen, &pax->size))
			return "a pax size that is not a number";
		pax->has_size = vlen > 0;
	} else if (klen >= sizeof(sparse) - 1 && memcmp(key, sparse, sizeof(sparse) - 1) == 0) {
		pax->sparse = true;
	}
	return NULL;
}

static uint64_t padded(uint64_t n)
{
	return (n + PS_TAR_BLOCK - 1) & ~(uint64_t)(PS_TAR_BLOCK - 1);
}

/* Parses the first "LEN KEY=VALUE\n" record of the n bytes at p; `left` bytes of the header are left. Sets *ret_len
 * to the record's bytes if they are all there, or if it is longer than a record can be that says anything: then of
 * its value the bytes that are there are seen. Else *ret_len is 0. Returns an error text, or NULL. */
static const char *pax_parse(
        struct pax *pax, const uint8_t *p, size_t n, uint64_t left, bool drops_long_names, uint64_t *ret_len)
{
	const uint8_t *space = memchr(p, ' ', PS_MIN(n, 20u)), *eq, *end;
	uint64_t len;

	*ret_len = 0;
	if (p[0] == 0) { /* some writers pad with zeros within the body's size */
		*ret_len = left;
		return NULL;
	}
	if (!space && n < 20 && n < left)
		return NULL;
	if (!space || !decimal_parse(p, (size_t)(space - p), &len) || len > left ||
	        len < (uint64_t)(space - p) + 3)
		return "a pax record of the wrong length";
	if (len > n && n < PS_MIN(left, (uint64_t)PS_TAR_PEEK_MAX))
		return NULL;
	end = p + PS_MIN(len - 1, (uint64_t)n);
	if (len <= n && *end != '\n')
		return "a pax record of the wrong length";
	eq = memchr(space + 1, '=', (size_t)(end - (space + 1)));
	if (!eq)
		return "a pax record without '='";
	*ret_len = len;
	return pax_apply(
	        pax, space + 1, (size_t)(eq - space - 1), eq + 1, (size_t)(end - (eq + 1)), drops_long_names);
}

/* False: `size` more bytes, with padding and a header, would end beyond 2^63 - 1, the largest offset. */
static bool size_fits(const struct ps_tar *t, uint64_t size)
{
	const uint64_t most = INT64_MAX - 2 * PS_TAR_BLOCK;
	uint64_t at = offset_of(t);

	return at <= most && size <= most - at;
}

static int size_refuse(uint64_t at, struct ps_error *err)
{
	return damaged(at, "a size that no file can have: it would end beyond 2^63 - 1 bytes", err);
}

/* Reads and parses the body of an x or g header, which may be of any size: a record that is longer than
 * PS_TAR_PEEK_MAX is skipped if nothing depends on it. */
static int pax_take(struct ps_tar *t, struct pax *pax, uint64_t size, uint64_t at, struct ps_error *err)
{
	if (!size_fits(t, size))
		return size_refuse(at, err);
	for (uint64_t left = size; left > 0;) {
		size_t want = (size_t)PS_MIN(left, (uint64_t)PS_TAR_PEEK_MAX), n, done = 0;
		const uint8_t *p;
		uint64_t len;
		int rc = t->source->peek(t->arg, want, &p, &n, err);

		if (rc == 0 && n < want)
			rc = -ENODATA;
		if (rc < 0)
			return rc;
		for (len = 1; len > 0 && done < n; done += (size_t)PS_MIN(len, (uint64_t)(n - done))) {
			const char *wrong =
			        pax_parse(pax, p + done, n - done, left, t->drops_long_names, &len);

			if (wrong == out_of_memory)
				return ps_no_memory(err);
			if (wrong)
				return damaged(at, wrong, err);
			left -= len;
			if (len > n - done) { /* the rest of a long record */
				t->source->take(t->arg, n);
				rc = t->source->skip(t->arg, len - (n - done), err);
				if (rc < 0)
					return rc;
				done = n = 0;
			}
		}
		t->source->take(t->arg, done);
	}
	return t->source->skip(t->arg, padded(size) - size, err);
}

/* Names -------------------------------------------------------------------------------------------------- */

static void name_append(struct ps_tar *t, const void *p, size_t n)
{
	memcpy(t->name + t->name_len, p, n);
	t->name_len += n;
	t->name[t->name_len] = 0;
}

/* Skips a GNU long name or link that is too long to be held. */
static int long_text_drop(struct ps_tar *t, uint64_t size, uint64_t at, struct ps_error *err)
{
	return size_fits(t, size) ? t->source->skip(t->arg, padded(size), err) : size_refuse(at, err);
}

/* Reads a GNU long name. It is the data of a separate member of type L: the name and a zero byte. */
static int long_name_take(struct ps_tar *t, uint64_t size, uint64_t at, struct ps_error *err)
{
	bool dropped = t->drops_long_names && size > PS_TAR_MAX_NAME;
	int rc;

	if (size == 0 || (size > PS_TAR_MAX_NAME && !dropped))
		return damaged(at, "a long name that is empty or longer than 16 KiB", err);
	t->has_long_name = true;
	t->name_dropped = dropped;
	if (dropped) {
		t->name_len = 0;
		t->name[0] = 0;
		return long_text_drop(t, size, at, err);
	}
	rc = t->source->read(t->arg, t->name, (size_t)size, err);
	if (rc < 0)
		return rc;
	t->name[size] = 0;
	t->name_len = strlen(t->name);
	return t->source->skip(t->arg, padded(size) - size, err);
}

/* Reads a GNU long link. It is the data of a separate member of type K. An empty one counts as none. */
static int long_link_take(struct ps_tar *t, uint64_t size, uint64_t at, struct ps_error *err)
{
	struct text *link = &t->long_link;
	int rc;

	if (size > PS_TAR_MAX_NAME && !t->drops_long_names)
		return damaged(at, "a long link of more than 16 KiB", err);
	t->has_long_link = size > 0;
	link->dropped = size > PS_TAR_MAX_NAME;
	if (link->dropped)
		return long_text_drop(t, size, at, err);
	if (!text_reserve(link))
		return ps_no_memory(err);
	rc = t->source->read(t->arg, link->p, (size_t)size, err);
	if (rc < 0)
		return rc;
	link->p[size] = 0;
	link->len = strlen(link->p);
	return t->source->skip(t->arg, padded(size) - size, err);
}

/* Chooses the member's name. The first that exists is taken: pax path, global pax path, GNU long name,
 * prefix and name of the header. False: it was too long. */
static bool name_choose(struct ps_tar *t, const uint8_t *h)
{
	const struct pax *pax = t->local.has_path ? &t->local : &t->global;

	if (!pax->has_path && t->has_long_name)
		return !t->name_dropped;
	t->name_len = 0;
	if (pax->has_path) {
		name_append(t, pax->path.p, pax->path.len);
		return !pax->path.dropped;
	}
	if (memcmp(h + OFF_MAGIC, "ustar", 6) == 0 && h[OFF_PREFIX]) {
		name_append(t, h + OFF_PREFIX, strnlen((const char *)h + OFF_PREFIX, LEN_PREFIX));
		name_append(t, "/", 1);
	}
	name_append(t, h + OFF_NAME, strnlen((const char *)h + OFF_NAME, LEN_NAME));
	return true;
}

/* Chooses the target of a link, in the order of name_choose(). False: it was too long. */
static bool link_choose(struct ps_tar *t, const uint8_t *h, struct ps_tar_member *m)
{
	const struct pax *pax = t->local.has_link ? &t->local : &t->global;
	const struct text *text = pax->has_link ? &pax->link : t->has_long_link ? &t->long_link : NULL;

	if (text && text->dropped)
		return false;
	if (text) {
		m->link = text->p;
		m->link_len = text->len;
		return true;
	}
	m->link = t->link;
	m->link_len = strnlen((const char *)h + OFF_LINK, LEN_LINK);
	memcpy(t->link, h + OFF_LINK, m->link_len);
	t->link[m->link_len] = 0;
	return true;
}

/* Members ------------------------------------------------------------------------------------------------ */

/* Skips the sparse maps after an old GNU sparse header. */
static int sparse_maps_skip(struct ps_tar *t, bool more, struct ps_error *err)
{
	while (more) {
		const uint8_t *p;
		size_t n;
		int rc = t->source->peek(t->arg, PS_TAR_BLOCK, &p, &n, err);

		if (rc < 0)
			return rc;
		if (n < PS_TAR_BLOCK)
			return -ENODATA;
		more = p[OFF_GNU_MORE] != 0;
		t->source->take(t->arg, PS_TAR_BLOCK);
	}
	return 0;
}

/* Makes the member of header `h`, which is still in the source's buffer. */
static int member_make(struct ps_tar *t, const uint8_t *h, uint64_t size, uint64_t first,
        bool *ret_sparse_more, struct ps_tar_member *m, struct ps_error *err)
{
	static const enum ps_tar_kind of_type[] = {
	        PS_TAR_HARDLINK, PS_TAR_SYMLINK, PS_TAR_OTHER, PS_TAR_OTHER, PS_TAR_FOLDER, PS_TAR_OTHER};
	char type = (char)h[OFF_TYPE];
	bool fits = name_choose(t, h);
	uint64_t time;

	if (t->local.has_size || t->global.has_size)
		size = t->local.has_size ? t->local.size : t->global.size;
	*ret_sparse_more = false;
	*m = (struct ps_tar_member){.name = t->name,
	        .name_len = t->name_len,
	        .kind = PS_TAR_OTHER,
	        .link = "",
	        .mtime_s = t->local.has_mtime                              ? t->local.mtime_s
	                   : t->global.has_mtime                           ? t->global.mtime_s
	                   : number_parse(h + OFF_MTIME, LEN_MTIME, &time) ? (int64_t)time
	                                                                   : 0,
	        .header_offset = first};
	if (type == 'S') {
		m->kind = PS_TAR_SPARSE;
		*ret_sparse_more = h[OFF_GNU_EXTENDED] != 0;
	} else if (type == '0' || type == 0 || type == '7') {
		/* v7 has no type for folders */
		bool folder = type == 0 && t->name_len > 0 && t->name[t->name_len - 1] == '/';

		m->kind = folder ? PS_TAR_FOLDER : PS_TAR_FILE;
		if (t->local.sparse || t->global.sparse)
			m->kind = PS_TAR_SPARSE;
		if (folder)
			size = 0;
	} else if (type >= '1' && type <= '6') {
		size = 0; /* links, devices, folders: no data follows, whatever their size field has */
		m->kind = of_type[type - '1'];
		if (type <= '2')
			fits = link_choose(t, h, m) && fits;
	}
	if (!fits && t->drops_long_names) {
		m->name_too_long = true;
		m->name = m->link = "";
		m->name_len = m->link_len = 0;
	}
	if (!size_fits(t, size))
		return size_refuse(first, err);
	m->size = size;
	return 0;
}

/* Reads headers up to and including the next member's own. Returns 1: a member, 0: the end. */
static int headers_walk(struct ps_tar *t, struct ps_tar_member *m, struct ps_error *err)
{
	uint64_t first = offset_of(t);
	bool extended = false;

	t->has_long_name = t->has_long_link = false;
	t->local.has_path = t->local.has_size = t->local.sparse = t->local.is_name = false;
	t->local.has_link = t->local.has_mtime = false;
	for (;;) {
		uint64_t at = offset_of(t);
		const uint8_t *h;
		uint64_t size;
		size_t n;
		char type;
		bool more;
		int rc = t->source->peek(t->arg, PS_TAR_BLOCK, &h, &n, err);

		if (rc < 0)
			return rc;
		if (n == 0 && at > 0 && !extended) {
			t->cut = true;
			return 0;
		}
		if (n < PS_TAR_BLOCK)
			return at > 0   ? -ENODATA
			       : n == 0 ? ps_error_set(err, EBADMSG, "an empty file, not a tar")
			                : no_header(t, h, n, err);
		if (h[0] == 0 && h[OFF_CHKSUM] == 0 && memcmp(h, h + 1, PS_TAR_BLOCK - 1) == 0)
			return extended ? damaged(at, "the archive ends after an extended header", err) : 0;
		if (!checksum_fits(h))
			return at ? damaged(at, "bad header checksum", err) : no_header(t, h, n, err);
		if (!number_parse(h + OFF_SIZE, LEN_SIZE, &size) || size > INT64_MAX - PS_TAR_BLOCK)
			return damaged(at, "a size that is not a number, or too large", err);
		type = (char)h[OFF_TYPE]; /* h is invalid once its block is taken */
		switch (type) {
		case 'x':
		case 'X':
		case 'g':
			t->source->take(t->arg, PS_TAR_BLOCK);
			rc = pax_take(t, type == 'g' ? &t->global : &t->local, size, at, err);
			break;
		case 'L':
			t->source->take(t->arg, PS_TAR_BLOCK);
			rc = long_name_take(t, size, at, err);
			break;
		case 'K':
			t->source->take(t->arg, PS_TAR_BLOCK);
			rc = long_link_take(t, size, at, err);
			break;
		default:
			rc = member_make(t, h, size, first, &more, m, err);
			if (rc < 0)
				return rc;
			t->source->take(t->arg, PS_TAR_BLOCK);
			rc = sparse_maps_skip(t, more, err);
			return rc < 0 ? rc : 1;
		}
		if (rc < 0)
			return rc;
		extended = extended || type != 'g';
	}
}

static int fail(struct ps_tar *t, int r, struct ps_error *err)
{
	struct ps_error story = {0};

	if (r == -ENODATA)
		r = truncated(t, &story);
	else if (err)
		story = *err;
	t->why = story;
	t->failed = r;
	if (err)
		*err = story;
	return r;
}

int ps_tar_next(struct ps_tar *t, struct ps_tar_member *ret_member, struct ps_error *err)
{
	int rc;

	if (t->failed) {
		if (err)
			*err = t->why;
		return t->failed;
	}
	if (t->ended)
		return 0;
	rc = t->source->skip(t->arg, t->left, err);
	t->left = 0;
	if (rc == 0)
		rc = headers_walk(t, ret_member, err);
	if (rc < 0)
		return fail(t, rc, err);
	if (rc == 0) {
		t->ended = true;
		return 0;
	}
	t->size = ret_member->size;
	t->left = padded(ret_member->size);
	ret_member->offset = offset_of(t);
	return 1;
}

bool ps_tar_has_end(const struct ps_tar *t)
{
	return t->ended && !t->cut;
}

bool ps_tar_has_global(const struct ps_tar *t)
{
	return t->global.has_path || t->global.has_size || t->global.sparse;
}

int ps_tar_read(struct ps_tar *t, void *dst, struct ps_error *err)
{
	int r = t->failed;

	if (r == 0 && t->size > 0)
		r = t->source->read(t->arg, dst, (size_t)t->size, err);
	if (r < 0)
		return fail(t, r, err);
	t->left -= t->size;
	t->size = 0;
	return 0;
}
