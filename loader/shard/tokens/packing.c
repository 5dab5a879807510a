#include "config.h"

#include "shard/tokens/packing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/npy.h"
#include "base/size.h"
#include "random/random.h"
#include "shard/file/file.h"
#include "shard/tokens/documents.h"

#define PIECE_TOKENS (UINT64_C(1) << 20)
#define PIECE_ROWS 32
#define STRETCH_TOKENS (UINT64_C(1) << 25)
#define STRETCHES 1024
#define SLACK 8
#define OPENERS 64 /* files that are opened at once: each may cost requests */
#define NPY_HEAD 4096
#define WHOLE_MOST 50000000u /* documents whose lengths are read at open: about two seconds */

uint32_t ps_packing_slack(enum ps_pack pack, uint32_t length)
{
	return pack == PS_PACK_FIT ? PS_MIN(SLACK, length / 64) : 0;
}

static uint64_t pieces_of(const struct ps_packing *p, const struct ps_token_file *f)
{
	return (f->ntokens + p->piece_tokens - 1) / p->piece_tokens;
}

/* Memory of pieces --------------------------------------------------------------------------------------- */

struct unused {
	struct unused *next;
	size_t nbytes;
};

struct ps_token_spare {
	pthread_mutex_t lock;
	struct unused *first;
	size_t nbytes;     /* of those in the list */
	size_t used, most; /* bytes in use: now, and at most so far */
};

struct ps_token_spare *ps_token_spare_new(void)
{
	struct ps_token_spare *s = calloc(1, sizeof(*s));

	if (s)
		pthread_mutex_init(&s->lock, NULL);
	return s;
}

void ps_token_spare_free(struct ps_token_spare *s)
{
	if (!s)
		return;
	while (s->first) {
		struct unused *p = s->first;

		s->first = p->next;
		free(p);
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void *ps_token_spare_take(struct ps_token_spare *s, size_t nbytes)
{
	void *made;

	nbytes = PS_MAX(nbytes, sizeof(struct unused));
	{
		PS_LOCK_SCOPE(&s->lock);
		for (struct unused **at = &s->first; *at; at = &(*at)->next) {
			struct unused *p = *at;

			if (p->nbytes != nbytes)
				continue;
			*at = p->next;
			s->nbytes -= nbytes;
			s->used += nbytes;
			return p;
		}
	}
	made = malloc(nbytes);
	if (made) {
		PS_LOCK_SCOPE(&s->lock);
		s->used += nbytes;
		s->most = PS_MAX(s->most, s->used);
	}
	return made;
}

void ps_token_spare_give(struct ps_token_spare *s, void *p, size_t nbytes)
{
	struct unused *u = p;

	nbytes = PS_MAX(nbytes, sizeof(*u));
	if (!p)
		return;
	{
		PS_LOCK_SCOPE(&s->lock);
		s->used -= nbytes;
		if (s->used + s->nbytes + nbytes <= s->most) {
			*u = (struct unused){.next = s->first, .nbytes = nbytes};
			s->first = u;
			s->nbytes += nbytes;
			return;
		}
	}
	free(p);
}

/* Opening files ------------------------------------------------------------------------------------------ */

/* Takes type, place and number of the tokens from the header of a .npy file. 0: done, or it has none. */
static int npy_take(struct ps_token_file *f, int fd, bool *ret_typed, struct ps_error *err)
{
	uint8_t head[NPY_HEAD];
	ssize_t got = ps_pread_all(fd, head, sizeof(head), 0);
	struct ps_npy npy;
	size_t len;
	int rc;

	if (got < 0)
		return ps_error_set(err, (int)-got, "cannot read: %s", strerror((int)-got));
	if (got < 12 || memcmp(head, "\x93NUMPY", 6) != 0)
		return 0;
	len = 10 + (head[8] | (size_t)head[9] << 8);
	if (head[6] > 1)
		len += 2 + ((size_t)head[10] << 16 | (size_t)head[11] << 24);
	if (len > (size_t)got)
		return ps_error_set(err, EBADMSG, "the npy file has a header of %zu bytes", len);
	rc = ps_npy_parse(head, f->nbytes, &npy, err); /* it reads the header alone */
	if (rc < 0)
		return rc;
	if (npy.ndim != 1 || npy.swapped)
		return ps_error_set(err, EBADMSG, "the array is %s, but tokens are of one dimension%s",
		        npy.swapped ? "big-endian" : "of several dimensions",
		        npy.swapped ? ", little-endian" : "");
	*ret_typed = true;
	f->dtype = npy.dtype;
	f->begin = len;
	f->ntokens = npy.count;
	return 0;
}

static bool is_type(enum ps_dtype dtype)
{
	return dtype == PS_U8 || dtype == PS_U16 || dtype == PS_U32 || dtype == PS_I32 || dtype == PS_I64;
}

/* Checks the type that the file itself tells against the one that the caller gave. */
static int type_check(const struct ps_packing_options *o, struct ps_token_file *f, bool typed,
        const char *where, struct ps_error *err)
{
	if (typed && o->typed && f->dtype != o->dtype)
		return ps_error_set(err, EINVAL, "source_dtype %s, but %s says that its tokens are %s",
		        ps_dtype_name(o->dtype), where, ps_dtype_name(f->dtype));
	if (!typed && !o->typed)
		return ps_error_set(err, EINVAL,
		        "nothing says what type its tokens are; give source_dtype: u16, u32 or another");
	if (!typed)
		f->dtype = o->dtype;
	if (!is_type(f->dtype))
		return ps_error_set(err, EINVAL, "its tokens are %s; they must be u8, u16, u32, i32 or i64",
		        ps_dtype_name(f->dtype));
	return 0;
}

static bool is_token_file(const char *path)
{
	static const char *const endings[] = {".bin", ".ds", ".npy"};
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot && i < PS_ARRAY_LEN(endings); i++)
		if (strcasecmp(dot, endings[i]) == 0)
			return true;
	return ps_shard_is_compressed(path);
}

static int file_open(const struct ps_packing_options *o, struct ps_token_file *f, struct ps_error *err)
{
	ps_autofd int fd = -1;
	bool typed = false;
	struct stat st;
	size_t item;
	int rc;

	if (!o->given && !is_token_file(f->path))
		return ps_error_set(err, EINVAL,
		        "pack needs files of tokens: .bin, .ds or .npy; for files of other names, give "
		        "source "
		        "tokens");
	if (ps_shard_is_compressed(f->path))
		return ps_error_set(err, EINVAL,
		        "packed rows are of files that are not compressed: a row is read from its place");
	/* A mount may begin to fetch a file that is opened, and the index alone tells what is needed here. */
	if (stat(f->path, &st) < 0 || access(f->path, R_OK) < 0)
		return ps_error_set(err, errno, "cannot open: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ps_error_set(err, EINVAL, "not an ordinary file");
	f->nbytes = (uint64_t)st.st_size;
	rc = ps_documents_open(f->path, &f->documents, err);
	if (rc < 0)
		return rc;
	if (f->documents)
		typed = ps_documents_type(f->documents, &f->dtype);
	if (typed)
		rc = type_check(o, f, true, "the .idx beside it", err);
	else if (!f->documents && (fd = open(f->path, O_RDONLY | O_CLOEXEC)) < 0)
		rc = ps_error_set(err, errno, "cannot open: %s", strerror(errno));
	else if (!f->documents)
		rc = npy_take(f, fd, &typed, err);
	if (rc == 0)
		rc = type_check(o, f, typed, "its header", err);
	if (rc < 0)
		return rc;
	item = ps_dtype_nbytes(f->dtype);
	if (f->begin == 0) {
		f->ntokens = f->nbytes / item;
		if (f->nbytes % item)
			return ps_error_set(err, EBADMSG,
			        "%ju bytes are not a whole number of %zu-byte tokens: truncated, or of "
			        "another "
			        "type",
			        (uintmax_t)f->nbytes, item);
	}
	if (f->documents)
		return ps_documents_fit(f->documents, f->ntokens, item, err);
	if (o->end_token == PS_PACK_NO_END)
		return ps_error_set(err, EINVAL,
		        "pack needs to know where documents end: give end_token, the token after each "
		        "document, or an index beside the file (x.idx for x.bin, x.ds.index for x.ds)");
	if (o->pack == PS_PACK_WHOLE)
		return ps_error_set(err, EINVAL,
		        "pack whole needs an index of documents beside the file (x.idx for x.bin, x.ds.index "
		        "for x.ds), as it counts rows before it reads; take pack fit, or make an index");
	return 0;
}

/* Counts the rows of the file's pieces, and what is left out of them: a pass over the lengths of its documents. */
static int whole_count(struct ps_packing *p, struct ps_token_file *f, struct ps_error *err)
{
	const struct ps_fit_options o = {
	        .pack = p->o.pack, .long_documents = p->o.long_documents, .length = p->o.length};
	uint64_t n = pieces_of(p, f);
	uint32_t rows;
	int rc = 0;

	f->piece_rows = calloc(n + 1, sizeof(*f->piece_rows));
	if (!f->piece_rows)
		return ps_no_memory(err);
	for (uint64_t i = 0; i < n && rc == 0; i++) {
		struct ps_document_list list = {0};

		rc = ps_documents_read(f->documents, i * p->piece_tokens,
		        PS_MIN((i + 1) * p->piece_tokens, f->ntokens), ps_dtype_nbytes(f->dtype), true, &list,
		        err);
		if (rc == 0)
			rc = ps_fit_count(&o, list.lens, list.n, &rows, err);
		if (rc < 0) {
			ps_document_list_fini(&list);
			break;
		}
		for (uint32_t k = 0; k < list.n; k++)
			if (list.lens[k] > p->o.length && p->o.long_documents != PS_LONG_SPLIT)
				f->left_out += list.lens[k] -
				               (p->o.long_documents == PS_LONG_TRUNCATE ? p->o.length : 0);
		if (atomic_fetch_add(&p->counted, list.n) + list.n > WHOLE_MOST)
			rc = ps_error_set(err, EINVAL,
			        "pack whole reads the lengths of all documents before it begins, and there "
			        "are more "
			        "than %u million; take pack fit, which cuts nearly none",
			        WHOLE_MOST / 1000000);
		else if (rows > UINT32_MAX - f->piece_rows[i])
			rc = ps_error_set(err, E2BIG, "more than 2^32 rows");
		else
			f->piece_rows[i + 1] = f->piece_rows[i] + rows;
		ps_document_list_fini(&list);
	}
	f->nrows = f->piece_rows[n];
	return rc;
}

struct opening {
	struct ps_packing *p;
	_Atomic uint32_t next;
	pthread_mutex_t lock; /* guards the members below */
	uint32_t failed;      /* the first file that failed; nfiles: none */
	struct ps_error why;
};

static void *opener(void *ctx)
{
	struct opening *all = ctx;
	uint32_t i;

	while ((i = atomic_fetch_add(&all->next, 1)) < all->p->nfiles) {
		struct ps_error err = {0};
		int rc = file_open(&all->p->o, &all->p->files[i], &err);

		if (rc == 0 && all->p->o.pack == PS_PACK_WHOLE)
			rc = whole_count(all->p, &all->p->files[i], &err);
		if (rc == 0)
			continue;
		pthread_mutex_lock(&all->lock);
		if (i < all->failed) {
			all->failed = i;
			all->why = err;
		}
		pthread_mutex_unlock(&all->lock);
		return NULL;
	}
	return NULL;
}

static int files_open(struct ps_packing *p, struct ps_error *err)
{
	struct opening all = {.p = p, .failed = p->nfiles};
	pthread_t threads[OPENERS];
	uint32_t n = 0;
	int rc;

	pthread_mutex_init(&all.lock, NULL);
	while (n + 1 < PS_MIN(OPENERS, p->nfiles) && pthread_create(&threads[n], NULL, opener, &all) == 0)
		n++;
	(void)opener(&all);
	while (n > 0)
		(void)pthread_join(threads[--n], NULL);
	pthread_mutex_destroy(&all.lock);
	if (all.failed == p->nfiles)
		return 0;
	rc = ps_error_set(err, all.why.err, "%s: %s", p->files[all.failed].path, all.why.text);
	if (rc != -EINVAL && rc != -EBADMSG && rc != -ENOMEM && rc != -EOVERFLOW) {
		err->cause = PS_CAUSE_SHARD;
		err->shard = p->files[all.failed].path;
	}
	return rc;
}

/* Rows and stretches ------------------------------------------------------------------------------------- */

struct ps_piece_place ps_packing_piece(const struct ps_packing *p, uint32_t file, uint64_t piece)
{
	const struct ps_token_file *f = &p->files[file];
	struct ps_piece_place place = {.from = piece * p->piece_tokens};

	place.to = PS_MIN(place.from + p->piece_tokens, f->ntokens);
	if (f->piece_rows) {
		place.nrows = f->piece_rows[piece + 1] - f->piece_rows[piece];
	} else {
		place.nrows = (uint32_t)((place.to - place.from) / (p->o.length - p->slack));
		place.to = place.from + (uint64_t)place.nrows * (p->o.length - p->slack);
	}
	return place;
}

/* The rows of the pieces before this one. */
static uint64_t rows_before(const struct ps_packing *p, const struct ps_token_file *f, uint64_t piece)
{
	return f->piece_rows ? f->piece_rows[piece] : PS_MIN(piece * p->piece_rows, f->nrows);
}

static void file_count(struct ps_packing *p, struct ps_token_file *f, struct ps_packing_set *set)
{
	if (!f->piece_rows) {
		f->nrows = f->ntokens / (p->o.length - p->slack);
		f->left_out = f->ntokens - f->nrows * (p->o.length - p->slack);
	}
	set->nrows += f->nrows;
	set->ntokens += f->ntokens;
	set->left_out += f->left_out;
}

/* Pieces of a stretch, so that the files of a set have enough of them. */
static uint32_t stretch_pieces(const struct ps_packing *p, uint32_t from, uint32_t to)
{
	uint64_t n = PS_MAX(STRETCH_TOKENS / p->piece_tokens, UINT64_C(1)), all;

	for (;; n /= 2) {
		all = 0;
		for (uint32_t i = from; i < to; i++)
			all += (pieces_of(p, &p->files[i]) + n - 1) / n;
		if (n == 1 || all >= STRETCHES)
			return (uint32_t)n;
	}
}

static int stretches_add(struct ps_packing *p, uint32_t file, uint32_t pieces, struct ps_error *err)
{
	const struct ps_token_file *f = &p->files[file];
	uint64_t npieces = pieces_of(p, f), n = (npieces + pieces - 1) / pieces;
	struct ps_token_stretch *grown;

	if (n > UINT32_MAX / 2 - p->nstretches)
		return ps_error_set(err, E2BIG, "more than 2^31 stretches of tokens");
	grown = reallocarray(p->stretches, p->nstretches + n + 1, sizeof(*grown));
	if (!grown)
		return ps_no_memory(err);
	p->stretches = grown;
	for (uint64_t first = 0; first < npieces; first += pieces) {
		uint64_t end = PS_MIN(first + pieces, npieces), row = rows_before(p, f, first);
		uint32_t nrows = (uint32_t)(rows_before(p, f, end) - row);

		if (nrows > 0)
			p->stretches[p->nstretches++] = (struct ps_token_stretch){.file = file,
			        .npieces = (uint32_t)(end - first),
			        .first_piece = first,
			        .first_row = row,
			        .nrows = nrows};
	}
	return 0;
}

static int set_make(
        struct ps_packing *p, uint32_t from, uint32_t to, struct ps_packing_set *set, struct ps_error *err)
{
	uint32_t pieces = stretch_pieces(p, from, to);
	uint64_t longest = 0;
	int rc = 0;

	for (uint32_t i = from; i < to; i++) {
		file_count(p, &p->files[i], set);
		longest = PS_MAX(longest, p->files[i].ntokens);
	}
	if (set->nrows == 0)
		return ps_error_set(err, ENODATA,
		        "no file holds a row of %u tokens: the largest of the %u files from %s on has %ju "
		        "tokens, and what does not fill a row is left out; join the files, or lower length",
		        p->o.length, to - from, p->files[from].path, (uintmax_t)longest);
	for (uint32_t i = from; i < to && rc == 0; i++)
		rc = stretches_add(p, i, pieces, err);
	return rc;
}

static int packing_fill(struct ps_packing *p, char *const *files, size_t *ends, struct ps_error *err)
{
	uint32_t from = 0;
	int rc;

	for (uint32_t i = 0; i < p->nfiles; i++)
		p->files[i].path = files[i];
	rc = files_open(p, err);
	for (uint32_t i = 0; i < p->nsets && rc == 0; i++) {
		uint32_t to = (uint32_t)ends[i];

		rc = set_make(p, from, to, &p->sets[i], err);
		from = to;
		ends[i] = p->nstretches;
	}
	if (rc < 0)
		return rc;
	p->names = malloc(PS_MAX(p->nstretches, 1u) * sizeof(*p->names));
	p->file_of = malloc(PS_MAX(p->nstretches, 1u) * sizeof(*p->file_of));
	if (!p->names || !p->file_of)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < p->nstretches; i++) {
		p->names[i] = files[p->stretches[i].file];
		p->file_of[i] = p->stretches[i].file;
	}
	return 0;
}

int ps_packing_new(const struct ps_packing_options *o, char *const *files, size_t nfiles, size_t *ends,
        uint32_t nsets, struct ps_packing **ret_packing, struct ps_error *err)
{
	struct ps_packing *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return ps_no_memory(err);
	p->o = *o;
	p->spare = ps_token_spare_new();
	p->slack = ps_packing_slack(o->pack, o->length);
	p->piece_rows = (uint32_t)PS_MAX(PIECE_TOKENS / o->length, (uint64_t)PIECE_ROWS);
	p->piece_tokens = (uint64_t)p->piece_rows * (o->length - p->slack);
	p->files = calloc(PS_MAX(nfiles, (size_t)1), sizeof(*p->files));
	p->sets = calloc(nsets, sizeof(*p->sets));
	p->nfiles = (uint32_t)nfiles;
	p->nsets = nsets;
	rc = p->files && p->sets && p->spare ? packing_fill(p, files, ends, err) : ps_no_memory(err);
	if (rc < 0) {
		ps_packing_free(p);
		return rc;
	}
	*ret_packing = p;
	return 0;
}

void ps_packing_free(struct ps_packing *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->nfiles && p->files; i++) {
		ps_documents_close(p->files[i].documents);
		free(p->files[i].piece_rows);
	}
	free(p->files);
	free(p->stretches);
	free(p->names);
	free(p->file_of);
	ps_token_spare_free(p->spare);
	free(p->sets);
	free(p);
}

void ps_packing_order(
        const struct ps_packing *p, uint32_t stretch, uint64_t epoch, uint64_t pass, uint32_t *pieces)
{
	const struct ps_rng_key key = {
	        .seed = p->o.seed, .epoch = epoch, .shard = stretch, .draw = (uint32_t)pass};
	uint32_t n = p->stretches[stretch].npieces;

	for (uint32_t i = 0; i < n; i++)
		pieces[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = (uint32_t)ps_rng_below(&key, PS_RNG_PIECE_ORDER, i, (uint64_t)i + 1);
		uint32_t last = pieces[i];

		pieces[i] = pieces[j];
		pieces[j] = last;
	}
}

void ps_packing_place(void *packing, uint32_t stretch, uint64_t epoch, uint64_t pass, uint64_t ordinal,
        uint64_t *ret_offset, uint64_t *ret_nbytes)
{
	const struct ps_packing *p = packing;
	const struct ps_token_stretch *s = &p->stretches[stretch];
	const struct ps_token_file *f = &p->files[s->file];
	ps_autofree uint32_t *pieces = malloc(s->npieces * sizeof(*pieces));
	size_t item = ps_dtype_nbytes(f->dtype);

	if (!pieces)
		return;
	ps_packing_order(p, stretch, epoch, pass, pieces);
	for (uint32_t i = 0; i < s->npieces; i++) {
		struct ps_piece_place at = ps_packing_piece(p, s->file, s->first_piece + pieces[i]);

		*ret_offset = f->begin + at.from * item;
		*ret_nbytes = (at.to - at.from + 1) * item;
		if (ordinal < at.nrows)
			return;
		ordinal -= at.nrows;
	}
}
