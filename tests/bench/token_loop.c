/* The least that packed rows of tokens cost: one loop for each tensor (x, y, positions, segments, mask, cu), over parts
 * that are known, from a file in memory to the memory of one batch. And what packing costs, and how it cuts documents.
 *
 *   token_loop FILE.bin LENGTH ROWS SECONDS      u16 tokens, with FILE.idx beside it
 *
 * Prints a line of JSON: tokens written a CPU second, without packing and with it; nanoseconds of packing for each
 * document; and for fit and concat the share of padding and that of the documents of at most LENGTH tokens that are cut. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "shard/tokens/documents.h"
#include "shard/tokens/fit.h"

#define SLACK 8

#pragma GCC optimize("O3") /* vector code for the loops */

struct batch {
	int32_t *x, *y, *positions, *segments, *cu;
	uint8_t *mask;
};

struct bench {
	const uint16_t *tokens;
	uint64_t ntokens;
	struct ps_documents *documents;
	uint32_t length, rows;
	struct batch batch;
	uint64_t ndocuments, npacked; /* packed; tokens written */
	double pack_s, write_s;
};

/* How documents are cut. */
struct cuts {
	uint64_t tokens, padding, documents, cut;
};

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "token_loop: %s\n", what);
	exit(1);
}

/* Writes parts to a batch. Returns the largest token, so that the loop that finds it stays. */
static unsigned parts_write(
        const uint16_t *tokens, const struct ps_fit_part *parts, uint32_t n, struct batch *b)
{
	uint32_t at = 0, most = 0, k;

	for (k = 0; k < n; k++) {
		const uint16_t *t = tokens + parts[k].from;
		int32_t len = (int32_t)parts[k].len;
		uint16_t largest = 0;

		b->cu[k] = (int32_t)at;
		for (int32_t i = 0; i < len; i++)
			b->x[at + (uint32_t)i] = t[i];
		for (int32_t i = 0; i < len; i++)
			b->y[at + (uint32_t)i] = t[i + 1];
		for (int32_t i = 0; i < len; i++)
			largest = t[i] > largest ? t[i] : largest;
		for (int32_t i = 0; i < len; i++)
			b->positions[at + (uint32_t)i] = i;
		for (int32_t i = 0; i < len; i++)
			b->segments[at + (uint32_t)i] = (int32_t)k + 1;
		memset(b->mask + at, 1, (size_t)len);
		if (!parts[k].continues)
			b->mask[at + (uint32_t)len - 1] = 0;
		most = largest > most ? largest : most;
		at += (uint32_t)len;
	}
	b->cu[k] = (int32_t)at;
	return most;
}

static uint64_t piece_tokens(const struct bench *a)
{
	return (uint64_t)PS_MAX((1u << 20) / a->length, 32u) * (a->length - SLACK);
}

static struct ps_document_list list_of(const struct bench *a, uint64_t from, uint64_t to)
{
	struct ps_document_list list;
	struct ps_error err = {0};

	if (ps_documents_read(a->documents, from, to, sizeof(*a->tokens), false, &list, &err) < 0)
		die(err.text);
	return list;
}

static struct ps_fit fit_of(
        const struct bench *a, enum ps_pack pack, uint64_t piece, const struct ps_document_list *list)
{
	struct ps_fit_options o = {.pack = pack,
	        .length = a->length,
	        .rows = (uint32_t)PS_MAX((1u << 20) / a->length, 32u),
	        .key = {.sample = piece}};
	struct ps_error err = {0};
	struct ps_fit fit;

	if (ps_fit_pack(&o, list->lens, list->n, &fit, &err) < 0)
		die(err.text);
	return fit;
}

/* Packs and writes one piece. */
static unsigned piece_run(struct bench *a, uint64_t piece)
{
	uint64_t from = piece * piece_tokens(a);
	struct ps_document_list list = list_of(a, from, from + piece_tokens(a));
	double begin = cpu(), packed;
	struct ps_fit fit = fit_of(a, PS_PACK_FIT, piece, &list);
	unsigned most = 0;

	packed = cpu();
	for (uint32_t row = 0; row + a->rows <= fit.rows; row += a->rows) {
		uint32_t first = fit.begins[row], end = fit.begins[row + a->rows];

		most |= parts_write(a->tokens + from, fit.parts + first, end - first, &a->batch);
		a->npacked += (uint64_t)a->rows * a->length;
	}
	a->write_s += cpu() - packed;
	a->pack_s += packed - begin;
	a->ndocuments += list.n;
	ps_fit_fini(&fit);
	ps_document_list_fini(&list);
	return most;
}

static void piece_cuts(const struct bench *a, enum ps_pack pack, uint64_t piece, struct cuts *c)
{
	uint64_t from = piece * piece_tokens(a);
	struct ps_document_list list = list_of(a, from, from + piece_tokens(a));
	struct ps_fit fit = fit_of(a, pack, piece, &list);
	uint8_t *cut = calloc(list.n, 1);

	if (!cut)
		die("out of memory");
	for (uint32_t i = 0; i < fit.begins[fit.rows]; i++)
		cut[fit.parts[i].document] |= fit.parts[i].continues;
	cut[0] |= list.continued;
	cut[list.n - 1] |= list.continues;
	for (uint32_t i = 0; i < list.n; i++) { /* a document that two pieces share counts in the second */
		bool whole = list.lens[i] <= a->length && !(i == list.n - 1 && list.continues);

		c->documents += whole;
		c->cut += whole && cut[i];
	}
	c->tokens += list.to - list.from;
	c->padding += (uint64_t)fit.rows * a->length - (list.to - list.from);
	free(cut);
	ps_fit_fini(&fit);
	ps_document_list_fini(&list);
}

static void bench_open(struct bench *a, const char *path)
{
	struct ps_error err = {0};
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("cannot open the tokens");
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED || ps_documents_open(path, &a->documents, &err) < 0 || !a->documents)
		die(err.text[0] ? err.text : "no index beside the tokens");
	a->tokens = p;
	a->ntokens = (uint64_t)st.st_size / sizeof(*a->tokens);
	if (ps_documents_fit(a->documents, a->ntokens, sizeof(*a->tokens), &err) < 0)
		die(err.text);
	close(fd);
}

int main(int argc, char **argv)
{
	struct bench a = {0};
	struct cuts fit = {0}, concat = {0};
	uint64_t pieces, piece = 0;
	unsigned most = 0;
	size_t items;
	double limit;

	if (argc != 5)
		die("usage: token_loop FILE.bin LENGTH ROWS SECONDS");
	a.length = (uint32_t)atoi(argv[2]);
	a.rows = (uint32_t)atoi(argv[3]);
	limit = atof(argv[4]);
	if (a.length <= SLACK || a.rows == 0)
		die("LENGTH and ROWS are too small");
	bench_open(&a, argv[1]);
	items = (size_t)a.length * a.rows + 1;
	a.batch = (struct batch){malloc(items * 4), malloc(items * 4), malloc(items * 4), malloc(items * 4),
	        malloc(items * 4), malloc(items)};
	pieces = (a.ntokens - 1) / piece_tokens(&a);
	if (pieces == 0)
		die("the file is smaller than a piece");
	while (a.write_s + a.pack_s < limit || piece < 3)
		most |= piece_run(&a, piece++ % pieces);
	for (uint64_t i = 0; i < pieces; i++) {
		piece_cuts(&a, PS_PACK_FIT, i, &fit);
		piece_cuts(&a, PS_PACK_CONCAT, i, &concat);
	}
	printf("{\"tokens_per_cpu_second\": %.0f, \"with_packing\": %.0f, \"pack_ns_per_document\": %.1f, "
	       "\"fit_padding\": %.6f, \"fit_cut\": %.6f, \"concat_cut\": %.6f, \"largest\": %u}\n",
	        (double)a.npacked / a.write_s, (double)a.npacked / (a.write_s + a.pack_s),
	        a.pack_s / (double)a.ndocuments * 1e9,
	        (double)fit.padding / (double)(fit.padding + fit.tokens),
	        (double)fit.cut / (double)fit.documents, (double)concat.cut / (double)concat.documents, most);
	ps_documents_close(a.documents);
	return 0;
}
