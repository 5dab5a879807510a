#include "config.h"

#include "shard/tokens/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "random/random.h"
#include "shard/tokens/documents.h"
#include "shard/tokens/fit.h"

#define CHUNK (1UL << 20) /* of a read, between looks at the stop flag */

struct ps_rows {
	struct ps_rows_options o;
	const struct ps_token_stretch *stretch;
	const struct ps_token_file *file;
	int fd;
	int64_t nbytes;
	uint32_t *pieces; /* of the stretch, in their order of this epoch ... */
	uint32_t *ends;   /* ... and the rows up to the end of each */
	struct ps_token_piece *piece;
	uint32_t place;      /* of `piece`, or of the piece that failed, in `pieces` */
	bool read;           /* that piece was read, or failed */
	uint64_t offset;     /* of the piece given last */
	struct ps_error why; /* why `piece` is not there */
	bool lost;           /* nothing more is read */
};

/* Pieces ------------------------------------------------------------------------------------------------- */

void ps_token_piece_ref(struct ps_token_piece *p)
{
	atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void ps_token_piece_unref(struct ps_token_piece *p)
{
	/* acq_rel: the freeing thread sees the writes of all others */
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (p->budget)
		ps_byte_budget_give(p->budget, p->nbytes);
	ps_token_spare_give(p->spare, p->tokens, p->tokens_nbytes);
	free(p->loss);
	free(p->begins);
	free(p->parts);
	free(p);
}

/* Reads n bytes of the file; fewer are damage. */
static int bytes_read(struct ps_rows *r, void *to, size_t n, uint64_t offset, struct ps_error *err)
{
	for (size_t done = 0; done < n;) {
		size_t want = PS_MIN(n - done, CHUNK);
		uint64_t begin = ps_clock_mono_ns();
		ssize_t got;

		if (r->o.stop && atomic_load(r->o.stop))
			return -ECANCELED;
		got = ps_pread_all(r->fd, (uint8_t *)to + done, want, offset + done);
		if (got < 0)
			return ps_error_set(err, (int)-got, "cannot read: %s", strerror((int)-got));
		if (r->o.meter) {
			r->o.meter->wait_ns += ps_clock_mono_ns() - begin;
			r->o.meter->nbytes += (uint64_t)got;
		}
		if ((size_t)got < want)
			return ps_error_set(err, EBADMSG, "truncated: it had %ju bytes when it was opened",
			        (uintmax_t)r->file->nbytes);
		done += want;
	}
	return 0;
}

/* Adds the documents of the tokens that follow, of which the first one may be the rest of the last one. */
static int list_join(struct ps_document_list *to, struct ps_document_list *more)
{
	uint32_t *lens;

	if (to->n == 0) {
		*to = *more;
		*more = (struct ps_document_list){0};
		return 0;
	}
	lens = reallocarray(to->lens, (size_t)to->n + more->n, sizeof(*lens));
	if (!lens)
		return -ENOMEM;
	to->lens = lens;
	for (uint32_t i = 0; i < more->n; i++) {
		if (i == 0 && to->continues)
			to->lens[to->n - 1] += more->lens[0];
		else
			to->lens[to->n++] = more->lens[i];
	}
	to->continues = more->continues;
	return 0;
}

/* Finds documents by their end tokens, in tokens that are read for that alone. */
static int ends_read(struct ps_rows *r, const struct ps_piece_place *at, struct ps_document_list *list,
        struct ps_error *err)
{
	size_t item = ps_dtype_nbytes(r->file->dtype);
	ps_autofree uint8_t *tokens = malloc(CHUNK);
	int rc = tokens ? 0 : ps_no_memory(err);

	for (uint64_t from = at->from; from < at->to && rc == 0;) {
		uint64_t n = PS_MIN(at->to - from, CHUNK / item);
		struct ps_document_list more = {0};

		rc = bytes_read(r, tokens, (size_t)n * item, r->file->begin + from * item, err);
		if (rc == 0)
			rc = ps_documents_scan(
			        tokens, n, item, (uint64_t)r->o.packing->o.end_token, from == 0, &more, err);
		if (rc == 0 && list_join(list, &more) < 0)
			rc = ps_no_memory(err);
		ps_document_list_fini(&more);
		from += n;
	}
	return rc;
}

/* Finds the documents of a piece. `tokens` NULL: its tokens are not held. */
static int documents_find(struct ps_rows *r, const struct ps_piece_place *at, const uint8_t *tokens,
        struct ps_document_list *list, struct ps_error *err)
{
	const struct ps_packing_options *o = &r->o.packing->o;
	size_t item = ps_dtype_nbytes(r->file->dtype);
	int rc;

	if (r->file->documents)
		return ps_documents_read(
		        r->file->documents, at->from, at->to, item, o->pack == PS_PACK_WHOLE, list, err);
	rc = tokens ? ps_documents_scan(tokens, at->to - at->from, item, (uint64_t)o->end_token,
	                      at->from == 0, list, err)
	            : ends_read(r, at, list, err);
	list->from = at->from;
	list->to = at->to;
	return rc;
}

/* Turns what was packed into the parts of a piece. */
static int parts_make(struct ps_rows *r, const struct ps_document_list *list, struct ps_fit *fit,
        struct ps_token_piece *p, struct ps_error *err)
{
	uint32_t n = fit->begins[fit->rows];
	bool open = list->continues && list->to < r->file->ntokens;
	ps_autofree uint64_t *starts = malloc(((size_t)list->n + 1) * sizeof(*starts));
	uint64_t at = list->from;

	p->parts = malloc(PS_MAX(n, 1u) * sizeof(*p->parts));
	if (!p->parts || !starts)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < list->n; at += list->lens[i++])
		starts[i] = r->file->documents ? list->first + i : at;
	for (uint32_t i = 0; i < n; i++) {
		const struct ps_fit_part *part = &fit->parts[i];

		p->parts[i] = (struct ps_token_part){.at = list->from + part->from,
		        .document = starts[part->document],
		        .len = part->len,
		        .ends = !part->continues && !(open && part->document == list->n - 1)};
	}
	p->nrows = fit->rows;
	p->begins = ps_steal_ptr(&fit->begins);
	return 0;
}

static int piece_pack(struct ps_rows *r, uint64_t number, const struct ps_piece_place *at,
        const struct ps_document_list *list, struct ps_token_piece *p, struct ps_error *err)
{
	struct ps_packing *packing = r->o.packing;
	uint64_t nlong = 0, nempty = 0;
	const struct ps_fit_options o = {.pack = packing->o.pack,
	        .long_documents = packing->o.long_documents,
	        .length = packing->o.length,
	        .rows = at->nrows,
	        .key = {.seed = packing->o.seed,
	                .epoch = r->o.epoch,
	                .shard = r->o.stretch,
	                .sample = number,
	                .draw = (uint32_t)r->o.pass}};
	struct ps_fit fit = {0};
	int rc = ps_fit_pack(&o, list->lens, list->n, &fit, err);

	for (uint32_t i = 0; i < list->n && rc == 0; i++) {
		nlong += list->lens[i] > o.length;
		nempty += list->lens[i] == 0;
	}
	atomic_fetch_add_explicit(&packing->long_documents, nlong, memory_order_relaxed);
	atomic_fetch_add_explicit(&packing->empty_documents, nempty, memory_order_relaxed);

	if (rc == 0 && fit.rows != at->nrows)
		rc = ps_error_set(err, ESTALE, "its index was changed since the loader was opened");
	if (rc == 0)
		rc = parts_make(r, list, &fit, p, err);
	ps_fit_fini(&fit);
	return rc;
}

/* Takes from the budget what the tokens of a piece need, and allocates it. False: they are not held. */
static bool tokens_hold(struct ps_rows *r, struct ps_token_piece *p, uint64_t ntokens)
{
	bool loss = r->file->documents && ps_documents_has_loss(r->file->documents);
	uint64_t nbytes = ntokens * (ps_dtype_nbytes(r->file->dtype) + loss);

	if (r->o.budget && !ps_byte_budget_take(r->o.budget, nbytes))
		return false;
	p->budget = r->o.budget;
	p->nbytes = nbytes;
	p->spare = r->o.packing->spare;
	p->tokens_nbytes = (size_t)ntokens * ps_dtype_nbytes(r->file->dtype);
	p->tokens = ps_token_spare_take(p->spare, p->tokens_nbytes);
	p->loss = loss ? malloc((size_t)ntokens) : NULL;
	if (p->tokens && (p->loss || !loss))
		return true;
	ps_token_spare_give(p->spare, ps_steal_ptr(&p->tokens), p->tokens_nbytes);
	free(ps_steal_ptr(&p->loss));
	return false;
}

/* Reads and packs a piece. Where documents are found by an end token, the tokens are read before these, else after
 * them. */
static int piece_load(struct ps_rows *r, uint64_t number, const struct ps_piece_place *at,
        struct ps_token_piece **ret_piece, struct ps_error *err)
{
	struct ps_token_piece *p = calloc(1, sizeof(*p));
	size_t item = ps_dtype_nbytes(r->file->dtype);
	struct ps_document_list list = {.from = at->from, .to = at->to};
	uint64_t n;
	int rc = 0;

	if (!p)
		return ps_no_memory(err);
	*p = (struct ps_token_piece){.refs = 1, .file = r->file};
	if (r->file->documents)
		rc = documents_find(r, at, NULL, &list, err);
	p->from = list.from;
	n = PS_MIN(list.to + 1, r->file->ntokens) - list.from;
	if (rc == 0 && !(r->o.single && r->file->documents) && tokens_hold(r, p, n))
		rc = bytes_read(r, p->tokens, (size_t)n * item, r->file->begin + p->from * item, err);
	if (rc == 0 && p->loss)
		rc = ps_documents_loss_read(r->file->documents, p->from, (size_t)n, p->loss, err);
	if (rc == 0 && !r->file->documents)
		rc = documents_find(r, at, p->tokens, &list, err);
	if (rc == 0)
		rc = piece_pack(r, number, at, &list, p, err);
	ps_document_list_fini(&list);
	if (rc < 0)
		ps_token_piece_unref(p);
	else
		*ret_piece = p;
	return rc;
}

/* The file ----------------------------------------------------------------------------------------------- */

static int file_open(struct ps_rows *r, struct ps_error *err)
{
	struct stat st;

	if (r->fd >= 0)
		return 0;
	r->fd = open(r->file->path, O_RDONLY | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) < 0)
		return ps_error_set(err, errno, "cannot open: %s", strerror(errno));
	r->nbytes = (int64_t)st.st_size;
	if ((uint64_t)st.st_size != r->file->nbytes)
		return ps_error_set(err, ESTALE,
		        "it has %ju bytes, but had %ju when the loader was opened: the file was replaced",
		        (uintmax_t)st.st_size, (uintmax_t)r->file->nbytes);
	return 0;
}

struct ps_rows *ps_rows_new(const struct ps_rows_options *o)
{
	struct ps_rows *r = calloc(1, sizeof(*r));
	const struct ps_token_stretch *s = &o->packing->stretches[o->stretch];
	uint32_t rows = 0;

	if (!r)
		return NULL;
	*r = (struct ps_rows){.o = *o,
	        .stretch = s,
	        .file = &o->packing->files[s->file],
	        .fd = -1,
	        .nbytes = -1,
	        .pieces = malloc(s->npieces * sizeof(*r->pieces)),
	        .ends = malloc(s->npieces * sizeof(*r->ends))};
	if (!r->pieces || !r->ends) {
		ps_rows_free(r);
		return NULL;
	}
	ps_packing_order(o->packing, o->stretch, o->epoch, o->pass, r->pieces);
	for (uint32_t i = 0; i < s->npieces; i++) {
		rows += ps_packing_piece(o->packing, s->file, s->first_piece + r->pieces[i]).nrows;
		r->ends[i] = rows;
	}
	return r;
}

void ps_rows_free(struct ps_rows *r)
{
	if (!r)
		return;
	ps_token_piece_unref(r->piece);
	if (r->fd >= 0)
		close(r->fd);
	free(r->pieces);
	free(r->ends);
	free(r);
}

int ps_rows_fd(const struct ps_rows *r)
{
	return r->fd;
}

int64_t ps_rows_size(const struct ps_rows *r)
{
	return r->nbytes;
}

uint64_t ps_rows_offset(const struct ps_rows *r)
{
	return r->offset;
}

/* The place of the piece that has row `ordinal`. */
static uint32_t place_of(const struct ps_rows *r, uint64_t ordinal)
{
	uint32_t i = r->place < r->stretch->npieces && r->place > 0 && r->ends[r->place - 1] <= ordinal
	                     ? r->place
	                     : 0;

	while (r->ends[i] <= ordinal)
		i++;
	return i;
}

int ps_rows_get(
        struct ps_rows *r, uint64_t ordinal, bool hold, struct ps_rows_row *ret_row, struct ps_error *err)
{
	uint32_t i = place_of(r, ordinal);
	uint64_t number = r->stretch->first_piece + r->pieces[i];
	struct ps_piece_place at = ps_packing_piece(r->o.packing, r->stretch->file, number);
	size_t item = ps_dtype_nbytes(r->file->dtype);
	int rc = 0;

	r->offset = r->file->begin + at.from * item;
	*ret_row = (struct ps_rows_row){.number = (uint32_t)(ordinal - (i > 0 ? r->ends[i - 1] : 0)),
	        .offset = r->offset,
	        .nbytes = (uint64_t)r->o.packing->o.length * item};
	if (!hold)
		return 0;
	if (!r->read || r->place != i) {
		ps_token_piece_unref(ps_steal_ptr(&r->piece));
		r->read = false;
		if (!r->lost)
			rc = file_open(r, &r->why);
		if (rc == 0 && !r->lost)
			rc = piece_load(r, number, &at, &r->piece, &r->why);
		if (rc == -ENOMEM || rc == -ECANCELED || rc == -EMFILE || rc == -ENFILE) {
			if (err)
				*err = r->why;
			return rc;
		}
		r->lost = r->lost || (rc < 0 && rc != -EBADMSG);
		r->place = i;
		r->read = true;
	}
	if (!r->piece)
		return ps_error_set(err, r->why.err, "%s", r->why.text);
	ps_token_piece_ref(r->piece);
	ret_row->piece = r->piece;
	return 0;
}

/* Rows --------------------------------------------------------------------------------------------------- */

/* Reads the parts of a row one after the other, each with the token after it. */
static int parts_gather(const struct ps_token_piece *p, int fd, struct ps_buf *to, struct ps_token_row *row,
        struct ps_error *err)
{
	size_t item = ps_dtype_nbytes(p->file->dtype);
	bool loss = p->file->documents && ps_documents_has_loss(p->file->documents);
	size_t ntokens = 0;
	ssize_t got;
	int rc;

	to->n = 0;
	for (uint32_t i = 0; i < row->nparts; i++) {
		const struct ps_token_part *part = &row->parts[i];
		size_t n = ((size_t)part->len + !part->ends) * item;

		if (ps_buf_reserve(to, n) < 0)
			return ps_no_memory(err);
		got = ps_pread_all(fd, to->p + to->n, n, p->file->begin + part->at * item);
		if (got < 0)
			return ps_error_set(err, (int)-got, "cannot read again: %s", strerror((int)-got));
		if ((size_t)got < n)
			return ps_error_set(err, EBADMSG, "the file became shorter while it was read");
		to->n += n;
	}
	row->gathered = true;
	for (uint32_t i = 0; i < row->nparts && loss; i++) {
		const struct ps_token_part *part = &row->parts[i];
		size_t n = (size_t)part->len + !part->ends;

		rc = ps_buf_reserve(to, n) < 0
		             ? ps_no_memory(err)
		             : ps_documents_loss_read(p->file->documents, part->at, n, to->p + to->n, err);
		if (rc < 0)
			return rc;
		to->n += n;
		ntokens += n;
	}
	row->tokens = to->p;
	row->loss = loss ? to->p + to->n - ntokens : NULL;
	return 0;
}

int ps_token_row_read(const struct ps_token_piece *p, uint32_t number, int fd, struct ps_buf *scratch,
        struct ps_token_row *ret_row, struct ps_error *err)
{
	uint32_t first = p->begins[number];
	int rc = 0;

	*ret_row = (struct ps_token_row){.parts = p->parts + first,
	        .nparts = p->begins[number + 1] - first,
	        .tokens = p->tokens,
	        .loss = p->loss,
	        .from = p->from};
	if (!p->tokens)
		rc = parts_gather(p, fd, scratch, ret_row, err);
	return rc;
}
