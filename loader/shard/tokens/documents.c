#include "config.h"

#include "shard/tokens/documents.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/size.h"

#define HEAD 34          /* bytes before the lengths of an .idx */
#define AHEAD 2048       /* numbers that are read at once */
#define SMALL (64 << 10) /* bytes; an index up to this size is read by one read when it is opened */
#define MAX_DOCUMENT (UINT64_C(1) << 31)
#define MOST_EMPTY (UINT64_C(1) << 24) /* documents without a token in one piece */
#define BLOCK 64                       /* tokens that are compared with the end token at once */

struct ps_documents {
	char *path;
	char *loss;         /* path of the losses; NULL: none */
	uint64_t nbytes;    /* of the index */
	uint64_t sequences; /* .idx */
	uint64_t documents;
	uint64_t end; /* of the last document: bytes (.idx) or tokens */
	uint64_t loss_nbytes;
	enum ps_dtype dtype; /* .idx */
	bool idx;
};

/* Numbers in memory -------------------------------------------------------------------------------------- */

static uint64_t le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static uint64_t le32_signed(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return (uint64_t)(int64_t)(int32_t)le32toh(v);
}

/* Opening ------------------------------------------------------------------------------------------------ */

/* Reads n bytes of the index. */
static int index_read(
        const struct ps_documents *d, int fd, void *to, size_t n, uint64_t offset, struct ps_error *err)
{
	ssize_t got = ps_pread_all(fd, to, n, offset);

	if (got < 0)
		return ps_error_set(err, (int)-got, "%s: cannot read: %s", d->path, strerror((int)-got));
	if ((size_t)got < n)
		return ps_error_set(err, ESTALE, "%s: it was cut off while it was read, at %ju of %ju bytes",
		        d->path, (uintmax_t)(offset + (uint64_t)got), (uintmax_t)d->nbytes);
	return 0;
}

static int code_take(struct ps_documents *d, unsigned code, struct ps_error *err)
{
	static const enum ps_dtype types[] = {
	        [1] = PS_U8, PS_I8, PS_I16, PS_I32, PS_I64, PS_F64, PS_F32, PS_U16};

	if (code < 1 || code >= PS_ARRAY_LEN(types))
		return ps_error_set(err, EBADMSG,
		        "%s: its code of the tokens' type is %u; 1 to %zu are known", d->path, code,
		        PS_ARRAY_LEN(types) - 1);
	d->dtype = types[code];
	return 0;
}

/* Takes the header of an .idx. */
static int head_take(struct ps_documents *d, const uint8_t *head, size_t got, struct ps_error *err)
{
	uint64_t version, n, ends, tables;
	int rc;

	if (got >= 3 && memcmp(head, "v1.", 3) == 0)
		return ps_error_set(err, EINVAL,
		        "%s: it is an index of NVIDIA DALI, for tars, and not one of tokens; move it "
		        "elsewhere, or "
		        "give another name to the tokens",
		        d->path);
	if (got < HEAD)
		return ps_error_set(err, EBADMSG, "%s: it has %ju bytes; its header alone takes %d", d->path,
		        (uintmax_t)d->nbytes, HEAD);
	if (memcmp(head, "MMIDIDX\0\0", 9) != 0)
		return ps_error_set(err, EBADMSG,
		        "%s: it does not begin with MMIDIDX, as Megatron's indexes do", d->path);
	version = le64(head + 9);
	if (version != 1)
		return ps_error_set(
		        err, EBADMSG, "%s: its version is %" PRIu64 "; 1 is known", d->path, version);
	rc = code_take(d, head[17], err);
	if (rc < 0)
		return rc;
	n = d->sequences = le64(head + 18);
	ends = le64(head + 26);
	if (ends == 0)
		return ps_error_set(
		        err, EBADMSG, "%s: its list of documents is empty; it begins with 0", d->path);
	d->documents = ends - 1;
	if (n > d->nbytes / 12 || ends > d->nbytes / 8)
		return ps_error_set(err, EBADMSG,
		        "%s: %" PRIu64 " sequences and %" PRIu64 " documents do not fit into its %ju bytes",
		        d->path, n, d->documents, (uintmax_t)d->nbytes);
	tables = HEAD + 12 * n + 8 * ends;
	if (d->nbytes == tables + n && n > 0)
		return ps_error_set(err, EINVAL,
		        "%s: it is of a multimodal dataset, with a mode for each of %" PRIu64
		        " sequences; only text can be packed",
		        d->path, n);
	if (d->nbytes != tables)
		return ps_error_set(err, EBADMSG,
		        "%s: it has %ju bytes, but %" PRIu64 " sequences and %" PRIu64
		        " documents take %" PRIu64,
		        d->path, (uintmax_t)d->nbytes, n, d->documents, tables);
	return 0;
}

/* Checks the first and last numbers of the tables. */
static int ends_take(struct ps_documents *d, const uint8_t *length, const uint8_t *pointers[2],
        const uint8_t *documents[2], struct ps_error *err)
{
	uint64_t n = d->sequences, item = ps_dtype_nbytes(d->dtype), len, last;

	if (le64(documents[0]) != 0 || le64(documents[1]) != n)
		return ps_error_set(err, EBADMSG,
		        "%s: its list of documents is from %" PRId64 " to %" PRId64
		        "; it must be from 0 to %" PRIu64 ", the number of sequences",
		        d->path, (int64_t)le64(documents[0]), (int64_t)le64(documents[1]), n);
	if (n == 0)
		return 0;
	len = le32_signed(length);
	last = le64(pointers[1]);
	if (le64(pointers[0]) != 0)
		return ps_error_set(err, EBADMSG,
		        "%s: the pointer of sequence 0 is %" PRId64 "; it must be 0", d->path,
		        (int64_t)le64(pointers[0]));
	if (len > INT32_MAX)
		return ps_error_set(err, EBADMSG, "%s: the length of sequence %" PRIu64 " is %" PRId64,
		        d->path, n - 1, (int64_t)len);
	if (last > INT64_MAX - len * item)
		return ps_error_set(err, EBADMSG, "%s: the pointer of sequence %" PRIu64 " is %" PRId64,
		        d->path, n - 1, (int64_t)last);
	d->end = last + len * item;
	return 0;
}

/* Reads the header of an .idx and the ends of its tables: a small one with a single read. */
static int idx_open(struct ps_documents *d, int fd, struct ps_error *err)
{
	size_t nbytes = (size_t)PS_MIN(d->nbytes, (uint64_t)SMALL);
	ps_autofree uint8_t *small = malloc(nbytes + 1);
	uint8_t *head = small, length[12], pointer[16], document[8];
	uint64_t n, lengths = HEAD, pointers, documents, last;
	int rc;

	if (!small)
		return ps_no_memory(err);
	if (d->nbytes > SMALL)
		nbytes = HEAD;
	rc = index_read(d, fd, head, nbytes, 0, err);
	if (rc == 0)
		rc = head_take(d, head, nbytes, err);
	if (rc < 0)
		return rc;
	n = d->sequences;
	pointers = lengths + 4 * n;
	documents = pointers + 8 * n;
	last = documents + 8 * d->documents;
	if (d->nbytes <= SMALL) /* without sequences, what is not there is not looked at */
		return ends_take(d, n ? head + pointers - 4 : head,
		        (const uint8_t *[]){head + (n ? pointers : 0), head + (n ? documents - 8 : 0)},
		        (const uint8_t *[]){head + documents, head + last}, err);
	memset(length, 0, sizeof(length));
	memset(pointer, 0, sizeof(pointer));
	/* the last length stands before the first pointer, and the last pointer before the first document */
	if (n > 0)
		rc = index_read(d, fd, length, sizeof(length), pointers - 4, err);
	if (rc == 0)
		rc = index_read(d, fd, pointer, sizeof(pointer), documents - 8, err);
	if (rc == 0)
		rc = index_read(d, fd, document, sizeof(document), last, err);
	if (rc < 0)
		return rc;
	return ends_take(d, length, (const uint8_t *[]){length + 4, pointer},
	        (const uint8_t *[]){pointer + 8, document}, err);
}

/* Reads the last end of a .ds.index. */
static int ends_open(struct ps_documents *d, int fd, struct ps_error *err)
{
	uint8_t last[8] = {0};
	int rc = 0;

	if (d->nbytes % 8)
		return ps_error_set(err, EBADMSG, "%s: %ju bytes are not a whole number of 8-byte ends",
		        d->path, (uintmax_t)d->nbytes);
	d->documents = d->nbytes / 8;
	if (d->documents > 0)
		rc = index_read(d, fd, last, sizeof(last), d->nbytes - 8, err);
	d->end = le64(last);
	return rc;
}

static int loss_find(struct ps_documents *d, const char *path, struct ps_error *err)
{
	ps_autofree char *loss = ps_asprintf(err, "%s.loss", path);
	struct stat st;

	if (!loss)
		return -ENOMEM;
	if (stat(loss, &st) < 0)
		return errno == ENOENT ? 0 : ps_error_set(err, errno, "%s: %s", loss, strerror(errno));
	d->loss_nbytes = (uint64_t)st.st_size;
	d->loss = ps_steal_ptr(&loss);
	return 0;
}

/* The name of the index that a file of that name would have; NULL without an error: none. */
static int index_name(const char *path, bool *ret_idx, char **ret_name, struct ps_error *err)
{
	size_t n = strlen(path);

	*ret_idx = n > 4 && memcmp(path + n - 4, ".bin", 4) == 0;
	if (*ret_idx)
		*ret_name = ps_asprintf(err, "%.*s.idx", (int)(n - 4), path);
	else if (n > 3 && memcmp(path + n - 3, ".ds", 3) == 0)
		*ret_name = ps_asprintf(err, "%s.index", path);
	else
		return 0;
	return *ret_name ? 0 : -ENOMEM;
}

static int open_index(struct ps_documents *d, const char *path, int fd, struct ps_error *err)
{
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "%s: %s", d->path, strerror(errno));
	d->nbytes = (uint64_t)st.st_size;
	if (d->idx)
		return idx_open(d, fd, err);
	rc = ends_open(d, fd, err);
	return rc == 0 ? loss_find(d, path, err) : rc;
}

int ps_documents_open(const char *path, struct ps_documents **ret_documents, struct ps_error *err)
{
	ps_autofree char *name = NULL;
	ps_autofd int fd = -1;
	struct ps_documents *d;
	bool idx;
	int rc = index_name(path, &idx, &name, err);

	if (rc < 0)
		return rc;
	if (name)
		fd = open(name, O_RDONLY | O_CLOEXEC);
	if (name && fd < 0 && errno != ENOENT)
		return ps_error_set(err, errno, "%s: cannot open: %s", name, strerror(errno));
	if (fd < 0) {
		*ret_documents = NULL;
		return 0;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return ps_no_memory(err);
	d->idx = idx;
	d->path = ps_steal_ptr(&name);
	rc = open_index(d, path, fd, err);
	if (rc < 0) {
		ps_documents_close(d);
		return rc;
	}
	*ret_documents = d;
	return 0;
}

void ps_documents_close(struct ps_documents *d)
{
	if (!d)
		return;
	free(d->path);
	free(d->loss);
	free(d);
}

bool ps_documents_type(const struct ps_documents *d, enum ps_dtype *ret_dtype)
{
	if (d->idx)
		*ret_dtype = d->dtype;
	return d->idx;
}

int ps_documents_fit(const struct ps_documents *d, uint64_t ntokens, size_t item, struct ps_error *err)
{
	uint64_t unit = d->idx ? item : 1, nbytes = ntokens * unit;

	if (d->end != nbytes)
		return ps_error_set(err, EBADMSG,
		        "%s: its last document ends at %s %" PRIu64 ", but the tokens at %" PRIu64
		        ": one of the two files was cut off or replaced%s",
		        d->path, d->idx ? "byte" : "token", d->end, nbytes,
		        d->idx ? "" : ", or source_dtype is wrong");
	if (d->loss && d->loss_nbytes != ntokens)
		return ps_error_set(err, EBADMSG,
		        "%s: it has %" PRIu64 " bytes, but there are %" PRIu64 " tokens", d->loss,
		        d->loss_nbytes, ntokens);
	return 0;
}

/* Numbers in the index ----------------------------------------------------------------------------------- */

/* An array of numbers in an index. What is near the number read last is in memory. */
struct column {
	uint64_t base; /* offset of the first number */
	uint64_t count;
	uint32_t size;  /* bytes of each: 4, signed, or 8 */
	uint64_t begin; /* `bytes` holds `n` numbers from this one on */
	uint32_t n;
	uint8_t bytes[AHEAD * 8];
};

/* An index that is open to be read. */
struct reading {
	const struct ps_documents *d;
	int fd;
	struct column lengths, pointers, documents; /* .ds.index: its ends are `pointers` */
};

static void column_init(struct column *c, uint64_t base, uint64_t count, uint32_t size)
{
	c->base = base;
	c->count = count;
	c->size = size;
	c->n = 0;
}

static int column_fill(const struct reading *r, struct column *c, uint64_t i, struct ps_error *err)
{
	uint32_t n = (uint32_t)PS_MIN(c->count - i, (uint64_t)AHEAD);
	int rc;

	c->n = 0;
	rc = index_read(r->d, r->fd, c->bytes, (size_t)n * c->size, c->base + i * c->size, err);
	if (rc < 0)
		return rc;
	c->begin = i;
	c->n = n;
	return 0;
}

/* Number i. A negative one is returned as at least 2^63. */
static int column_get(
        const struct reading *r, struct column *c, uint64_t i, uint64_t *ret, struct ps_error *err)
{
	const uint8_t *p;

	if (i < c->begin || i - c->begin >= c->n) {
		int rc = column_fill(r, c, i, err);

		if (rc < 0)
			return rc;
	}
	p = c->bytes + (i - c->begin) * c->size;
	*ret = c->size == 4 ? le32_signed(p) : le64(p);
	return 0;
}

/* The numbers of an ascending column, from 0 to `top`, that are at most `key`; those at `lo` and after are above it, up
 * to `hi`. Numbers that do not ascend give some result; the caller checks what it reads there. */
static int column_search(const struct reading *r, struct column *c, uint64_t key, uint64_t top,
        uint64_t *ret_count, struct ps_error *err)
{
	uint64_t lo = 0, hi = c->count, below = 0, above = top;

	for (unsigned tries = 0; hi - lo > AHEAD; tries++) {
		uint64_t guess = lo + (hi - lo) / 2, first, last;
		int rc;

		/* in a file whose documents change a lot, halving bounds the number of reads */
		if (below <= key && key < above && tries % 3 < 2)
			guess = lo +
			        (uint64_t)((unsigned __int128)(hi - lo) * (key - below) / (above - below));
		guess = guess > lo + AHEAD / 2 ? PS_MIN(guess - AHEAD / 2, hi - AHEAD) : lo;
		rc = column_fill(r, c, guess, err);
		if (rc < 0)
			return rc;
		(void)column_get(r, c, guess, &first, err);
		(void)column_get(r, c, guess + AHEAD - 1, &last, err);
		if (first > key) {
			hi = guess;
			above = first;
		} else if (last <= key) {
			lo = guess + AHEAD;
			below = last;
		} else {
			lo = guess;
			hi = guess + AHEAD;
		}
	}
	while (lo < hi) {
		uint64_t middle = lo + (hi - lo) / 2, value;
		int rc = c->n > 0 && lo >= c->begin && hi <= c->begin + c->n ? 0 : column_fill(r, c, lo, err);

		if (rc == 0)
			rc = column_get(r, c, middle, &value, err);
		if (rc < 0)
			return rc;
		if (value <= key)
			lo = middle + 1;
		else
			hi = middle;
	}
	*ret_count = lo;
	return 0;
}

/* Documents of a piece ----------------------------------------------------------------------------------- */

/* A list that grows. */
struct list {
	struct ps_document_list out;
	size_t cap;
	uint64_t most; /* documents */
};

static int list_add(struct list *l, uint64_t len, struct ps_error *err)
{
	if (!ps_grow(&l->out.lens, l->out.n, &l->cap, sizeof(*l->out.lens)))
		return ps_no_memory(err);
	l->out.lens[l->out.n++] = (uint32_t)len;
	return 0;
}

/* What of the file is wanted. */
struct range {
	uint64_t from, to;
	bool whole;
};

/* Adds document `number`, of tokens `begin` to `end` - 1, as far as it is wanted. *ret_done: it was the last one. */
static int document_add(struct list *l, const struct ps_documents *d, const struct range *range,
        uint64_t number, uint64_t begin, uint64_t end, bool *ret_done, struct ps_error *err)
{
	uint64_t from = begin, to = end;

	*ret_done = begin >= range->to;
	if (*ret_done)
		return 0;
	if (!range->whole) {
		from = PS_MAX(begin, range->from);
		to = PS_MIN(end, range->to);
		*ret_done = end >= range->to;
		l->out.continues = end > range->to;
	}
	if (l->out.n == 0) {
		l->out.from = from;
		l->out.first = number;
		l->out.continued = begin < from;
	}
	l->out.to = to;
	if (l->out.n >= l->most)
		return ps_error_set(err, EOVERFLOW,
		        "%s: more than %" PRIu64 " documents, up to document %" PRIu64
		        ", are in the tokens %" PRIu64 " to %" PRIu64
		        "; nearly all of them are empty: make the index again",
		        d->path, l->most, number, range->from, range->to);
	if (to - from >= MAX_DOCUMENT)
		return ps_error_set(err, EOVERFLOW,
		        "%s: document %" PRIu64 " has %" PRIu64 " tokens; at most 2^31 - 1 can be packed",
		        d->path, number, to - from);
	return list_add(l, to - from, err);
}

/* The first document that is wanted. starts[i] <= key counts the starts up to key; see the callers. */
static int search_first(const struct reading *r, struct column *c, const struct range *range, uint64_t at,
        uint64_t top, uint64_t *ret_count, struct ps_error *err)
{
	if (range->whole && at == 0) {
		*ret_count = 0;
		return 0;
	}
	return column_search(r, c, range->whole ? at - 1 : at, top, ret_count, err);
}

static int ds_read(struct reading *r, const struct range *range, struct list *l, struct ps_error *err)
{
	const struct ps_documents *d = r->d;
	uint64_t k, first, begin = 0, end;
	bool done = false;
	int rc;

	column_init(&r->pointers, 0, d->documents, 8);
	rc = search_first(r, &r->pointers, range, range->from, d->end, &k, err);
	if (rc == 0 && range->whole && range->from > 0)
		k++; /* the document after the first end that is not before `from` */
	first = k;
	/* from the end before the one that the first document begins at, as that is checked, too */
	k = k > 1 ? k - 2 : 0;
	for (; rc == 0 && !done && k < d->documents; k++) {
		rc = column_get(r, &r->pointers, k, &end, err);
		if (rc == 0 && (end < begin || end > d->end))
			rc = ps_error_set(err, EBADMSG,
			        "%s: end %" PRIu64 " is %" PRIu64 "; it must be from %" PRIu64
			        ", the end before it, to %" PRIu64 ", the last one",
			        d->path, k, end, begin, d->end);
		if (rc == 0 && k >= first)
			rc = document_add(l, d, range, k, begin, end, &done, err);
		begin = end;
	}
	return rc;
}

/* Length and pointer of a sequence, in tokens, checked. */
static int sequence_get(struct reading *r, uint64_t i, uint64_t item, uint64_t *ret_begin, uint64_t *ret_len,
        struct ps_error *err)
{
	const struct ps_documents *d = r->d;
	uint64_t pointer, len;
	int rc = column_get(r, &r->pointers, i, &pointer, err);

	if (rc == 0)
		rc = column_get(r, &r->lengths, i, &len, err);
	if (rc < 0)
		return rc;
	if (len > INT32_MAX)
		return ps_error_set(err, EBADMSG, "%s: the length of sequence %" PRIu64 " is %" PRId64,
		        d->path, i, (int64_t)len);
	if (pointer % item || pointer > d->end || len * item > d->end - pointer)
		return ps_error_set(err, EBADMSG,
		        "%s: sequence %" PRIu64 ", with pointer %" PRId64 " and length %" PRIu64
		        ", is not within the %" PRIu64 " bytes of the tokens",
		        d->path, i, (int64_t)pointer, len, d->end);
	*ret_begin = pointer / item;
	*ret_len = len;
	return 0;
}

/* Checks that sequence i begins at the token where the one before it ends. */
static int follows_check(const struct reading *r, uint64_t i, uint64_t end, uint64_t begin, uint64_t item,
        struct ps_error *err)
{
	if (begin == end)
		return 0;
	return ps_error_set(err, EBADMSG,
	        "%s: the pointer of sequence %" PRIu64 " is %" PRIu64
	        ", but the sequence before it ends at byte %" PRIu64,
	        r->d->path, i, begin * item, end * item);
}

/* Adds sequences `from` to `last` - 1 to *at, the token at which they begin, until that is after `stop`. */
static int sequences_add(struct reading *r, uint64_t item, uint64_t from, uint64_t last, uint64_t stop,
        uint64_t *at, struct ps_error *err)
{
	for (uint64_t i = from; i < last && *at <= stop; i++) {
		uint64_t begin, len;
		int rc = sequence_get(r, i, item, &begin, &len, err);

		if (rc < 0)
			return rc;
		rc = follows_check(r, i, *at, begin, item, err);
		if (rc < 0)
			return rc;
		*at += len;
	}
	return 0;
}

/* The sequences of a document, checked. */
static int document_get(
        struct reading *r, uint64_t k, uint64_t *ret_first, uint64_t *ret_last, struct ps_error *err)
{
	uint64_t before = 0, first, last;
	int rc = k > 0 ? column_get(r, &r->documents, k - 1, &before, err) : 0;

	if (rc == 0)
		rc = column_get(r, &r->documents, k, &first, err);
	if (rc == 0)
		rc = column_get(r, &r->documents, k + 1, &last, err);
	if (rc < 0)
		return rc;
	if (first < before || last < first || last > r->d->sequences)
		return ps_error_set(err, EBADMSG,
		        "%s: document %" PRIu64 " is of sequences %" PRId64 " to %" PRId64
		        ", after one that begins with %" PRId64 "; there are %" PRIu64 ", in ascending order",
		        r->d->path, k, (int64_t)first, (int64_t)last, (int64_t)before, r->d->sequences);
	*ret_first = first;
	*ret_last = last;
	return 0;
}

/* Where reading begins: with sequence i, at token `at`, of document k, which begins at token `begin`. */
struct place {
	uint64_t k, i, at, begin;
};

static int place_find(
        struct reading *r, const struct range *range, uint64_t item, struct place *ret, struct ps_error *err)
{
	const struct ps_documents *d = r->d;
	uint64_t i, k = 0, first, last, at, len, before;
	int rc = search_first(r, &r->pointers, range, range->from * item, d->end, &i, err);

	/* the count is that of the sequence after the one that has the token, which is the last to begin up to it */
	if (rc == 0 && !range->whole && i-- == 0)
		rc = ps_error_set(err, EBADMSG, "%s: the pointer of sequence 0 is not 0", d->path);
	if (rc == 0)
		rc = search_first(r, &r->documents, range, i, d->sequences, &k, err);
	if (rc == 0 && !range->whole && k-- == 0)
		rc = ps_error_set(err, EBADMSG, "%s: the first sequence of document 0 is not 0", d->path);
	*ret = (struct place){.k = k, .i = d->sequences};
	if (rc < 0 || k >= d->documents)
		return rc;
	rc = document_get(r, k, &first, &last, err);
	if (rc == 0 && range->whole)
		i = first;
	if (rc < 0 || i == d->sequences)
		return rc;
	rc = sequence_get(r, i, item, &at, &len, err);
	if (rc < 0)
		return rc;
	if (i < first || (i >= last && last > first) || (!range->whole && range->from - at >= len))
		return ps_error_set(err, EBADMSG,
		        "%s: token %" PRIu64 " is in no sequence: sequence %" PRIu64 " has tokens %" PRIu64
		        " to %" PRIu64 ", and document %" PRIu64 " sequences %" PRIu64 " to %" PRIu64,
		        d->path, range->from, i, at, at + len, k, first, last);
	*ret = (struct place){.k = k, .i = i, .at = at, .begin = at};
	if (first < i)
		rc = sequence_get(r, first, item, &ret->begin, &len, err);
	else if (range->whole && i > 0) {
		rc = sequence_get(r, i - 1, item, &before, &len, err);
		if (rc == 0)
			rc = follows_check(r, i, before + len, at, item, err);
	}
	return rc;
}

static int idx_read(
        struct reading *r, const struct range *range, uint64_t item, struct list *l, struct ps_error *err)
{
	const struct ps_documents *d = r->d;
	uint64_t pointers = HEAD + 4 * d->sequences, stop = range->whole ? UINT64_MAX : range->to;
	struct place p;
	bool done = false;
	int rc;

	column_init(&r->lengths, HEAD, d->sequences, 4);
	column_init(&r->pointers, pointers, d->sequences, 8);
	column_init(&r->documents, pointers + 8 * d->sequences, d->documents + 1, 8);
	rc = place_find(r, range, item, &p, err);
	for (; rc == 0 && !done && p.k < d->documents && p.i < d->sequences; p.k++) {
		uint64_t first, last;

		if (range->whole && p.at >= range->to)
			break;
		rc = document_get(r, p.k, &first, &last, err);
		if (rc == 0)
			rc = sequences_add(r, item, p.i, last, stop, &p.at, err);
		if (rc == 0)
			rc = document_add(l, d, range, p.k, p.begin, p.at, &done, err);
		p.begin = p.at;
		p.i = last;
	}
	return rc;
}

int ps_documents_read(const struct ps_documents *d, uint64_t from, uint64_t to, size_t item, bool whole,
        struct ps_document_list *ret_list, struct ps_error *err)
{
	const struct range range = {.from = from, .to = to, .whole = whole};
	struct list l = {.out = {.from = from, .to = from}, .most = to - from + MOST_EMPTY};
	ps_autofree struct reading *r = malloc(sizeof(*r));
	ps_autofd int fd = open(d->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "%s: cannot open: %s", d->path, strerror(errno));
	if (!r)
		return ps_no_memory(err);
	if ((uint64_t)st.st_size != d->nbytes)
		return ps_error_set(err, ESTALE,
		        "%s: it has %ju bytes, but had %" PRIu64 " when it was opened: it was replaced",
		        d->path, (uintmax_t)st.st_size, d->nbytes);
	r->d = d;
	r->fd = fd;
	rc = from >= to ? 0 : d->idx ? idx_read(r, &range, item, &l, err) : ds_read(r, &range, &l, err);
	if (rc == 0 && !whole && (l.out.from != from || l.out.to != to))
		rc = ps_error_set(err, EBADMSG,
		        "%s: its documents have tokens %" PRIu64 " to %" PRIu64 ", but not all from %" PRIu64
		        " to %" PRIu64,
		        d->path, l.out.from, l.out.to, from, to);
	if (rc < 0) {
		ps_document_list_fini(&l.out);
		return rc;
	}
	*ret_list = l.out;
	return 0;
}

void ps_document_list_fini(struct ps_document_list *list)
{
	free(list->lens);
	*list = (struct ps_document_list){0};
}

/* End tokens --------------------------------------------------------------------------------------------- */

/* Whether any of BLOCK tokens is `end`, in a form of which compilers make vector code, and the place of the first one at
 * or after i among n. */
#define FIND_END(type)                                                                      \
	static bool block_has_##type(const uint8_t *p, type end)                            \
	{                                                                                   \
		type any = 0;                                                               \
                                                                                            \
		for (size_t i = 0; i < BLOCK; i++) {                                        \
			type v;                                                             \
                                                                                            \
			memcpy(&v, p + i * sizeof(v), sizeof(v));                           \
			any |= (type)(v == end);                                            \
		}                                                                           \
		return any != 0;                                                            \
	}                                                                                   \
                                                                                            \
	static uint64_t end_find_##type(const uint8_t *p, uint64_t i, uint64_t n, type end) \
	{                                                                                   \
		type v;                                                                     \
                                                                                            \
		while (n - i >= BLOCK && !block_has_##type(p + i * sizeof(v), end))         \
			i += BLOCK;                                                         \
		for (; i < n; i++) {                                                        \
			memcpy(&v, p + i * sizeof(v), sizeof(v));                           \
			if (v == end)                                                       \
				break;                                                      \
		}                                                                           \
		return i;                                                                   \
	}
FIND_END(uint8_t)
FIND_END(uint16_t)
FIND_END(uint32_t)
FIND_END(uint64_t)
#undef FIND_END

static uint64_t end_find(const uint8_t *p, uint64_t i, uint64_t n, size_t item, uint64_t end)
{
	switch (item) {
	case 1:
		return end > UINT8_MAX ? n : end_find_uint8_t(p, i, n, (uint8_t)end);
	case 2:
		return end > UINT16_MAX ? n : end_find_uint16_t(p, i, n, htole16((uint16_t)end));
	case 4:
		return end > UINT32_MAX ? n : end_find_uint32_t(p, i, n, htole32((uint32_t)end));
	default:
		return end_find_uint64_t(p, i, n, htole64(end));
	}
}

int ps_documents_scan(const uint8_t *tokens, uint64_t n, size_t item, uint64_t end_token, bool begins,
        struct ps_document_list *ret_list, struct ps_error *err)
{
	struct list l = {.out = {.to = n, .continued = !begins && n > 0}};
	int rc = 0;

	for (uint64_t at = 0, end; at < n && rc == 0; at = end) {
		end = end_find(tokens, at, n, item, end_token);
		l.out.continues = end == n;
		end = PS_MIN(end + 1, n);
		rc = end - at < MAX_DOCUMENT
		             ? list_add(&l, end - at, err)
		             : ps_error_set(err, EOVERFLOW, "a document has more than 2^31 - 1 tokens");
	}
	if (rc < 0) {
		ps_document_list_fini(&l.out);
		return rc;
	}
	*ret_list = l.out;
	return 0;
}

/* Losses ------------------------------------------------------------------------------------------------- */

bool ps_documents_has_loss(const struct ps_documents *d)
{
	return d->loss != NULL;
}

int ps_documents_loss_read(
        const struct ps_documents *d, uint64_t from, size_t n, uint8_t *ret_loss, struct ps_error *err)
{
	ps_autofd int fd = open(d->loss, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return ps_error_set(err, errno, "%s: cannot open: %s", d->loss, strerror(errno));
	got = ps_pread_all(fd, ret_loss, n, from);
	if (got < 0)
		return ps_error_set(err, (int)-got, "%s: cannot read: %s", d->loss, strerror((int)-got));
	if ((size_t)got < n)
		return ps_error_set(err, ESTALE, "%s: it has fewer than the %" PRIu64 " bytes that it had",
		        d->loss, d->loss_nbytes);
	return 0;
}
