/* Token files whose documents are packed into rows. */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "make_tar.h"
#include "order/order.h"
#include "penstock.h"

#define NDOCUMENTS 4000
#define LENGTH 128
#define END 2000000 /* the token at the end of each document */
#define PAD 77

static char folder[64];
static uint32_t ntokens, nempty;
static int64_t
        of[NDOCUMENTS * 3000]; /* the document of each token; a token's value is its place in the file + 1 */
static uint32_t ends[NDOCUMENTS]; /* where documents end */

/* x.bin with x.idx, and ends.bin, the same with end tokens and without an index. */
static int files_make(void **state)
{
	uint32_t *tokens, *with_ends, random = 1;
	int32_t *lens;
	uint8_t *idx;
	size_t n = 0;

	(void)state;
	folder_enter(folder);
	tokens = malloc(sizeof(of) / sizeof(of[0]) * sizeof(*tokens));
	lens = malloc(NDOCUMENTS * sizeof(*lens));
	idx = calloc(1, 34 + NDOCUMENTS * 12 + (NDOCUMENTS + 1) * 8);
	assert_true(tokens && lens && idx);
	for (uint32_t d = 0; d < NDOCUMENTS; d++) {
		uint32_t len;

		random = random * 1664525 + 1013904223;
		len = random >> 16 & 511;
		len = d % 100 == 50 ? 0
		      : d % 50 == 0 ? len * 5
		                    : len; /* some are empty, some longer than a row */
		lens[d] = (int32_t)len;
		nempty += len == 0;
		for (uint32_t i = 0; i < len; i++, ntokens++) {
			of[ntokens] = d;
			tokens[ntokens] = ntokens + 1;
		}
		ends[d] = ntokens;
	}
	memcpy(idx, "MMIDIDX\0\0", 9);
	idx[9] = 1;
	idx[17] = 4; /* i32 */
	memcpy(idx + 18, &(uint64_t){NDOCUMENTS}, 8);
	memcpy(idx + 26, &(uint64_t){NDOCUMENTS + 1}, 8);
	n = 34;
	memcpy(idx + n, lens, NDOCUMENTS * 4);
	n += NDOCUMENTS * 4;
	for (uint32_t d = 0; d < NDOCUMENTS; d++, n += 8)
		memcpy(idx + n, &(uint64_t){(uint64_t)(ends[d] - (uint32_t)lens[d]) * 4}, 8);
	for (uint64_t d = 0; d <= NDOCUMENTS; d++, n += 8)
		memcpy(idx + n, &d, 8);
	file_write("x.bin", tokens, ntokens * sizeof(*tokens));
	file_write("x.idx", idx, n);
	with_ends = tokens;
	for (uint32_t d = 0; d < NDOCUMENTS; d++)
		if (lens[d] > 0)
			with_ends[ends[d] - 1] = END;
	file_write("ends.bin", with_ends, ntokens * sizeof(*with_ends));
	free(tokens);
	free(lens);
	free(idx);
	return 0;
}

static int files_remove(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f;
};

static void setting_init(struct setting *s, uint32_t pack, const char *parts)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f, sizeof(s->f), "x", PENSTOCK_TOKENS);
	s->f.ndim = 1;
	s->f.shape[0] = LENGTH;
	s->f.dtype = PENSTOCK_I32;
	s->f.pack = pack;
	s->f.parts = parts;
	s->f.pad_value = PAD;
	if (pack == PENSTOCK_PACK_WHOLE)
		s->f.long_documents = PENSTOCK_LONG_SPLIT;
	s->o.fields = &s->f;
	s->o.nfields = 1;
	s->o.batch = 32;
	s->o.epochs = 1;
	s->o.seed = 3;
}

static struct penstock_tensor tensor(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	return t;
}

static bool same_document(int32_t token)
{
	return (uint32_t)token < ntokens && of[token - 1] == of[token];
}

/* Checks a batch: each part is consecutive tokens of its document, and all tensors tell so. Counts the tokens. */
static void batch_check(const struct penstock_batch *b, uint8_t *seen, uint64_t *padding)
{
	const int32_t *x = tensor(b, "x").host, *y = tensor(b, "x:y").host, *cu = tensor(b, "x:cu").host;
	const int32_t *positions = tensor(b, "x:positions").host, *segments = tensor(b, "x:segments").host;
	const int64_t *document = tensor(b, "x:document").host, *longest = tensor(b, "x:longest").host;
	const uint8_t *mask = tensor(b, "x:mask").host;
	uint64_t rows = tensor(b, "x").shape[0], n = tensor(b, "x:document").shape[0];
	int32_t most = 0, segment = 0;

	assert_int_equal(tensor(b, "x:cu").shape[0], n + 1);
	assert_int_equal(tensor(b, "x:longest").ndim, 0);
	assert_int_equal(tensor(b, "x:longest").memory, PENSTOCK_MEMORY_HOST);
	assert_int_equal(cu[0], 0);
	assert_int_equal(cu[n], rows * LENGTH);
	for (uint64_t p = 0; p < n; p++) {
		int32_t begin = cu[p], end = cu[p + 1];

		most = end - begin > most ? end - begin : most;
		assert_true(end > begin && begin / LENGTH == (end - 1) / LENGTH);
		segment = begin % LENGTH == 0 ? 1 : segment + 1;
		for (int32_t i = begin; i < end; i++) {
			bool more;

			assert_int_equal(positions[i], i - begin);
			if (document[p] < 0) {
				assert_int_equal(x[i], PAD);
				assert_int_equal(y[i], PAD);
				assert_int_equal(mask[i], 0);
				assert_int_equal(segments[i], 0);
				++*padding;
				continue;
			}
			assert_int_equal(x[i], x[begin] + i - begin);
			assert_int_equal(of[x[i] - 1], document[p]);
			assert_int_equal(segments[i], segment);
			more = same_document(x[i]);
			assert_int_equal(y[i], more ? x[i] + 1 : PAD);
			assert_int_equal(mask[i], more);
			seen[x[i] - 1]++;
		}
	}
	assert_int_equal(*longest, most);
}

static struct penstock_loader *opened(const struct setting *s, const char *path)
{
	struct penstock_loader *l;
	struct penstock_error e;

	if (penstock_loader_open(&s->o, &path, 1, &l, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	return l;
}

static void every_token_comes_once(void **state)
{
	const char *all = "positions,segments,mask,cu,document";

	(void)state;
	for (uint32_t pack = PENSTOCK_PACK_CONCAT; pack <= PENSTOCK_PACK_WHOLE; pack++) {
		uint8_t *seen = calloc(ntokens, 1);
		uint64_t padding = 0, missing = 0, rows = 0;
		struct penstock_stats stats;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_error e;
		struct setting s;
		int rc;

		assert_non_null(seen);
		setting_init(&s, pack, all);
		l = opened(&s, "x.bin");
		while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
			batch_check(b, seen, &padding);
			rows += tensor(b, "x").shape[0];
			penstock_batch_release(b);
		}
		if (rc < 0)
			fail_msg("%s", e.text);
		for (uint32_t i = 0; i < ntokens; i++) {
			assert_true(seen[i] <= 1);
			missing += !seen[i];
		}
		assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
		assert_int_equal(stats.tokens, ntokens);
		assert_int_equal(stats.tokens_left_out, missing);
		assert_string_equal(stats.tokens_warning, "");
		assert_int_equal(stats.empty_documents, nempty);
		assert_true(stats.long_documents > 0);
		assert_true(pack == PENSTOCK_PACK_WHOLE ? missing == 0 : missing < LENGTH);
		if (pack == PENSTOCK_PACK_CONCAT)
			assert_int_equal(padding, 0);
		if (pack == PENSTOCK_PACK_FIT) /* L / 64 tokens a row */
			assert_int_equal(padding, rows * (LENGTH / 64));
		assert_int_equal(rows * LENGTH, ntokens - missing + padding);
		penstock_loader_close(l);
		free(seen);
	}
}

/* A hash of x, y and mask of all batches from the `from`-th on; *state: one after `from` batches. */
static uint64_t run(const struct setting *s, const char *path, uint64_t from, void *state, int *nstate)
{
	struct penstock_loader *l = opened(s, path);
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t h = 1;
	int rc;

	for (uint64_t n = 0; (rc = penstock_loader_next(l, &b, &e)) == 1; n++) {
		static const char *const names[] = {"x", "x:y", "x:mask"};

		for (size_t k = 0; k < 3 && n >= from; k++) {
			struct penstock_tensor t = tensor(b, names[k]);

			for (uint64_t i = 0; i < t.nbytes; i++)
				h = (h ^ ((const uint8_t *)t.host)[i]) * UINT64_C(0x100000001b3);
		}
		penstock_batch_release(b);
		if (state && n + 1 == from) {
			*nstate = penstock_loader_state_save(l, state, 1 << 20, &e);
			assert_true(*nstate > 0);
		}
	}
	if (rc < 0)
		fail_msg("%s", e.text);
	penstock_loader_close(l);
	return h;
}

/* Without memory for pieces, rows are read part by part; and they go on from any state. */
static void memory_and_resume_do_not_change_rows(void **state)
{
	uint8_t *saved = malloc(1 << 20);

	(void)state;
	assert_non_null(saved);
	for (int with_index = 0; with_index < 2; with_index++) {
		const char *path = with_index ? "x.bin" : "ends.bin";
		struct setting s, little;
		uint64_t whole;

		setting_init(&s, PENSTOCK_PACK_FIT, "mask");
		if (!with_index) {
			s.f.end_token = END;
			s.f.source_dtype = PENSTOCK_U32;
		}
		whole = run(&s, path, 0, NULL, NULL);
		little = s;
		little.o.fields = &little.f;
		little.o.memory_budget = 2 << 20;
		assert_true(run(&little, path, 0, NULL, NULL) == whole);
		for (uint64_t from = 1; from < 200; from += 61) {
			int n = 0;
			uint64_t rest = run(&s, path, from, saved, &n);
			struct setting on = s;

			on.o.fields = &on.f;
			on.o.state = saved;
			on.o.state_nbytes = (size_t)n;
			assert_true(run(&on, path, 0, NULL, NULL) == rest);
		}
	}
	free(saved);
}

/* Rows of one file come from all of it at once. */
static void a_large_file_is_many_lanes(void **state)
{
	uint16_t *tokens = calloc(4 << 20, sizeof(*tokens));
	uint32_t pieces = 0, per_piece = (1 << 20) / LENGTH;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	const int64_t *sample;
	struct setting s;

	(void)state;
	assert_non_null(tokens);
	file_write("large.npy.bin", tokens, (4 << 20) * sizeof(*tokens));
	free(tokens);
	setting_init(&s, PENSTOCK_PACK_CONCAT, NULL);
	s.f.end_token = 1;
	s.f.source_dtype = PENSTOCK_U16;
	l = opened(&s, "large.npy.bin");
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	sample = tensor(b, "__sample__").host;
	for (uint64_t i = 0; i < tensor(b, "__sample__").shape[0]; i++) {
		assert_int_equal(((const int64_t *)tensor(b, "__shard__").host)[i], 0);
		pieces |= 1u << sample[i] / per_piece;
	}
	assert_int_equal(pieces, 15);
	penstock_batch_release(b);
	penstock_loader_close(l);
}

/* A row has the same tokens when it is asked for by its number, or comes in a permutation. */
static void rows_by_number_are_those_of_the_epoch(void **state)
{
	int32_t *rows = malloc(64 * LENGTH * sizeof(*rows));
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct setting s;

	(void)state;
	assert_non_null(rows);
	setting_init(&s, PENSTOCK_PACK_FIT, "document");
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.batch = 64;
	l = opened(&s, "x.bin");
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	memcpy(rows, tensor(b, "x").host, 64 * LENGTH * sizeof(*rows));
	penstock_batch_release(b);
	if (penstock_loader_get(l, (const uint64_t[]){7, 63, 0}, 3, &b, &e) < 0)
		fail_msg("%s", e.text);
	assert_memory_equal(tensor(b, "x").host, rows + 7 * LENGTH, LENGTH * sizeof(*rows));
	assert_memory_equal(
	        (const int32_t *)tensor(b, "x").host + LENGTH, rows + 63 * LENGTH, LENGTH * sizeof(*rows));
	assert_memory_equal((const int32_t *)tensor(b, "x").host + 2 * LENGTH, rows, LENGTH * sizeof(*rows));
	penstock_batch_release(b);
	penstock_loader_close(l);
	s.o.order = PENSTOCK_ORDER_PERMUTATION;
	l = opened(&s, "x.bin");
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	for (uint64_t i = 0; i < 64; i++) {
		int64_t n = ((const int64_t *)tensor(b, "__sample__").host)[i];

		if (n < 64)
			assert_memory_equal((const int32_t *)tensor(b, "x").host + i * LENGTH,
			        rows + n * LENGTH, LENGTH * sizeof(*rows));
	}
	penstock_batch_release(b);
	penstock_loader_close(l);
	free(rows);
}

static void cu_pad_fixes_the_number_of_parts(void **state)
{
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct setting s;
	const int32_t *cu;

	(void)state;
	setting_init(&s, PENSTOCK_PACK_FIT, "cu,document");
	s.f.cu_pad = 1000;
	l = opened(&s, "x.bin");
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	cu = tensor(b, "x:cu").host;
	assert_int_equal(tensor(b, "x:cu").shape[0], 1001);
	assert_int_equal(cu[1000], 32 * LENGTH);
	assert_int_equal(cu[999], 32 * LENGTH);
	assert_int_equal(((const int64_t *)tensor(b, "x:document").host)[999], -1);
	penstock_batch_release(b);
	penstock_loader_close(l);
	s.f.cu_pad = 10;
	l = opened(&s, "x.bin");
	assert_int_equal(penstock_loader_next(l, &b, &e), -E2BIG);
	assert_non_null(strstr(e.text, "cu_pad is 10"));
	assert_non_null(strstr(e.text, "parts"));
	penstock_loader_close(l);
}

static void a_token_beyond_vocab_is_named(void **state)
{
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct setting s;
	char want[128];
	int rc;

	(void)state;
	setting_init(&s, PENSTOCK_PACK_CONCAT, NULL);
	s.f.vocab = ntokens - 300; /* the first that is too large is token vocab - 1 of the file */
	s.o.order = PENSTOCK_ORDER_NONE;
	l = opened(&s, "x.bin");
	while ((rc = penstock_loader_next(l, &b, &e)) == 1)
		penstock_batch_release(b);
	assert_int_equal(rc, -EBADMSG);
	assert_non_null(strstr(e.text, "x.bin"));
	snprintf(want, sizeof(want), "but vocab is %u", ntokens - 300);
	assert_non_null(strstr(e.text, want));
	assert_non_null(strstr(e.text, "document "));
	assert_non_null(strstr(e.text, "token "));
	penstock_loader_close(l);
	s.o.on_error = PENSTOCK_SKIP;
	s.o.max_bad = 1000;
	l = opened(&s, "x.bin");
	for (uint64_t bad = 0; (rc = penstock_loader_next(l, &b, &e)) >= 0; penstock_batch_release(b)) {
		struct penstock_batch_info info;

		if (rc == 0) {
			assert_true(bad >= 300 / LENGTH && bad <= 300 / LENGTH + 12);
			break;
		}
		penstock_batch_info(b, &info);
		bad += info.bad;
	}
	penstock_loader_close(l);
}

/* The rows of a file that changed after it was opened are bad, and the count of rows holds. */
static void a_file_that_changes_gives_bad_rows(void **state)
{
	uint32_t tokens[LENGTH * 40];
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t bad = 0, all = 0;
	struct setting s;
	int rc;

	(void)state;
	for (uint32_t i = 0; i < LENGTH * 40; i++)
		tokens[i] = i % 50 == 49 ? END : i;
	file_write("changes-0.bin", tokens, sizeof(tokens));
	file_write("changes-1.bin", tokens, sizeof(tokens));
	setting_init(&s, PENSTOCK_PACK_CONCAT, "cu");
	s.f.end_token = END;
	s.f.source_dtype = PENSTOCK_U32;
	s.o.on_error = PENSTOCK_SKIP;
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.lanes = 2;
	s.o.batch = 8;
	s.o.epochs = 2;
	l = opened(&s, "changes-{0,1}.bin");
	file_write("changes-1.bin", tokens, sizeof(tokens) - LENGTH * 4);
	if (penstock_loader_set_epoch(l, 1, &e) < 0) /* drops what was read before the change */
		fail_msg("%s", e.text);
	while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
		struct penstock_batch_info info;
		struct penstock_bad why;

		penstock_batch_info(b, &info);
		all += info.rows;
		bad += info.bad;
		for (uint32_t i = 0; i < info.bad; i++) {
			assert_int_equal(penstock_batch_bad(b, i, &why), 0);
			assert_non_null(strstr(why.shard, "changes-1.bin"));
			assert_non_null(strstr(why.reason, "replaced"));
		}
		penstock_batch_release(b);
	}
	if (rc < 0)
		fail_msg("%s", e.text);
	assert_int_equal(all, 80);
	assert_int_equal(bad, 40);
	penstock_loader_close(l);
}

static void place(void *ctx, uint32_t shard, uint64_t epoch, uint64_t pass, uint64_t ordinal,
        uint64_t *ret_offset, uint64_t *ret_nbytes)
{
	(void)ctx;
	(void)epoch;
	(void)pass;
	*ret_offset = 1000 * shard + ordinal;
	*ret_nbytes = 500;
}

/* A plan lists a file with several stretches once, and says where its stretches are read first. */
static void a_plan_lists_a_file_once(void **state)
{
	static char a[] = "/m/a.bin", b[] = "/m/b.bin";
	static char *shards[] = {a, a, b, b};
	static const uint32_t files[] = {0, 0, 1, 1};
	struct ps_error err;
	struct ps_planner_options o = {.shards = shards,
	        .nshards = 4,
	        .parts = {.files = files, .nfiles = 2, .place = place},
	        .job = "j",
	        .world = 1,
	        .epochs = 1};
	char *text;

	(void)state;
	o.order = ps_order_new(
	        &(struct ps_order_options){
	                .mode = PS_ORDER_NONE, .nshards = 4, .lanes = 2, .world = 1, .repeat = 1},
	        &err);
	assert_non_null(o.order);
	text = ps_plan_text(&o, "/m/", 0, 0);
	assert_non_null(strstr(text, "\"files\": [\"a.bin\", \"b.bin\"]"));
	free(text);
	text = ps_plan_reads_text(&o, "/m/",
	        &(struct ps_position){
	                .lanes = &(struct ps_lane_position){.k = 2, .ordinal = 7}, .nlanes = 1});
	assert_non_null(strstr(text, "[\"b.bin\"], \"from\": [2007], \"bytes\": 500"));
	free(text);
	ps_order_free(o.order);
}

static void refused(struct setting *s, const char *path, int want, const char *text)
{
	struct penstock_loader *l = NULL;
	struct penstock_error e = {0};
	int rc = penstock_loader_open(&s->o, &path, 1, &l, &e);

	if (rc != want || !strstr(e.text, text))
		fail_msg("%d, not %d; \"%s\" has no \"%s\"", rc, want, e.text, text);
}

/* huge.bin, a file without blocks, whose documents have more tokens than a piece can. */
static void huge_make(void)
{
	const int32_t lens[] = {10, INT32_MAX};
	const uint64_t heads[] = {2, 3}, pointers[] = {0, 10}, documents[] = {0, 1, 2};
	uint8_t idx[34 + 2 * 12 + 3 * 8] = "MMIDIDX\0\0\1";

	idx[17] = 1; /* u8 */
	memcpy(idx + 18, heads, sizeof(heads));
	memcpy(idx + 34, lens, sizeof(lens));
	memcpy(idx + 42, pointers, sizeof(pointers));
	memcpy(idx + 58, documents, sizeof(documents));
	file_write("huge.idx", idx, sizeof(idx));
	file_write("huge.bin", "", 0);
	assert_int_equal(truncate("huge.bin", (off_t)INT32_MAX + 10), 0);
}

static void bad_options_and_files_are_refused(void **state)
{
	struct setting s;

	(void)state;
	huge_make();
	file_write("short.bin", "abcdef", 6);
	file_write("odd.bin", "abcdefg", 7);
	setting_init(&s, PENSTOCK_PACK_FIT, NULL);
	refused(&s, "ends.bin", -EINVAL, "source_dtype");
	s.f.source_dtype = PENSTOCK_U16;
	refused(&s, "ends.bin", -EINVAL, "end_token");
	refused(&s, "ends.bin", -EINVAL, ".idx");
	refused(&s, "x.bin", -EINVAL, "i32");
	s.f.end_token = END;
	refused(&s, "short.bin", -ENODATA, "lower length");
	refused(&s, "odd.bin", -EBADMSG, "whole number");
	refused(&s, "none.bin", -ENOENT, "none.bin");
	refused(&s, "x.idx", -EINVAL, "source tokens");
	s.f.pack = PENSTOCK_PACK_WHOLE;
	refused(&s, "ends.bin", -EINVAL, "long_documents");
	s.f.long_documents = PENSTOCK_LONG_DROP;
	refused(&s, "ends.bin", -EINVAL, "index");
	s.f.source_dtype = 0;
	refused(&s, "huge.bin", -EOVERFLOW, "its documents have 2147483657 tokens");
	s.f.source_dtype = PENSTOCK_U16;
	s.f.pack = PENSTOCK_PACK_FIT;
	refused(&s, "ends.bin", -EINVAL, "whole");
	s.f.long_documents = PENSTOCK_LONG_UNSET;
	s.f.parts = "cu,nothing";
	refused(&s, "ends.bin", -EINVAL, "nothing");
	s.f.parts = NULL;
	s.f.cu_pad = 5;
	refused(&s, "ends.bin", -EINVAL, "cu");
	s.f.cu_pad = 0;
	s.f.parts = "cu";
	s.o.batch = 1 << 16;
	s.f.shape[0] = 1 << 15;
	refused(&s, "ends.bin", -EINVAL, "cu counts the tokens of a batch in 32 bits");
	s.o.batch = 32;
	s.f.shape[0] = LENGTH;
	s.f.parts = NULL;
	s.o.token_stride = 5;
	refused(&s, "ends.bin", -EINVAL, "token_stride");
	s.o.token_stride = 0;
	s.f.shape[0] = 1;
	refused(&s, "ends.bin", -EINVAL, "tokens");
	setting_init(&s, PENSTOCK_PACK_NONE, "cu");
	s.f.pad_value = 0;
	refused(&s, "ends.bin", -EINVAL, "pack");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_token_comes_once),
	        cmocka_unit_test(memory_and_resume_do_not_change_rows),
	        cmocka_unit_test(a_large_file_is_many_lanes),
	        cmocka_unit_test(rows_by_number_are_those_of_the_epoch),
	        cmocka_unit_test(cu_pad_fixes_the_number_of_parts),
	        cmocka_unit_test(a_token_beyond_vocab_is_named),
	        cmocka_unit_test(a_file_that_changes_gives_bad_rows),
	        cmocka_unit_test(a_plan_lists_a_file_once),
	        cmocka_unit_test(bad_options_and_files_are_refused),
	};

	return cmocka_run_group_tests(tests, files_make, files_remove);
}
