/* Whole runs of the loader with faults: each allocation fails once, reads come in pieces and are
 * interrupted, a read fails. A run gives the batches of a run without faults, or an error with the reason;
 * never other batches. */
#include "config.h"

#include "loader_fixture.h"
#include "shard/shard.h"
#include "shard/tokens/documents.h"
#include "shard/tokens/fit.h"
#include "tests/faults.h"

static struct setting setting;

/* Makes two shards. The samples of a shard have the same photograph, and fields of other kinds, one of them
 * with rows of different lengths. */
static int make(void **state)
{
	enum { HEAD = 128 };

	if (shards_make(state) < 0)
		return -1;
	for (int s = 0; s < 2; s++) {
		struct tar t = {0};
		char path[32], name[32], text[64];
		char array[HEAD + 4 + 1];

		for (int i = 0; i < 6; i++) {
			snprintf(name, sizeof(name), "%d.jpg", i);
			tar_add(&t, name, photos[s].data, photos[s].len);
			snprintf(name, sizeof(name), "%d.cls", i);
			snprintf(text, sizeof(text), "%d", 10 * s + i);
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%d.txt", i);
			snprintf(text, sizeof(text), "%.*s", 3 * i, "a sentence of some words");
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%d.npy", i);
			memcpy(array, "\x93NUMPY\1\0\x76\0", 10);
			snprintf(array + 10, HEAD - 10 + 1, "%-*s\n", HEAD - 11,
			        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }");
			memcpy(array + HEAD, (const int16_t[]){(int16_t)i, (int16_t)s}, 4);
			tar_add(&t, name, array, HEAD + 4);
		}
		tar_end(&t);
		snprintf(path, sizeof(path), "u-%d.tar", s);
		tar_save(&t, path);
	}
	return 0;
}

static void set_up(unsigned threads)
{
	static struct penstock_field fields[4];

	setting_init(&setting);
	memcpy(fields, setting.f, 3 * sizeof(*fields));
	penstock_field_init(&fields[3], sizeof(fields[3]), "npy", PENSTOCK_NPY);
	fields[3].dtype = PENSTOCK_I64;
	fields[3].ndim = 1;
	fields[3].shape[0] = 2;
	setting.o.fields = fields;
	setting.o.nfields = 4;
	setting.o.batch = 4;
	setting.o.shuffle_window = 6;
	setting.o.lanes = 2;
	setting.o.threads = threads;
	setting.o.memory_budget = 8 << 20;
	setting.o.on_error = PENSTOCK_SKIP; /* no sample is bad */
}

/* Returns 0 and the hash of all batches, or the first error. */
static int run(uint64_t *ret_hash, uint64_t *ret_rows, struct penstock_error *e)
{
	static const char *const shards[] = {"u-0.tar", "u-1.tar"};
	struct penstock_loader *l = NULL;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	uint64_t h = 0xcbf29ce484222325u;

	*ret_rows = 0;
	memset(e, 0, sizeof(*e));
	int rc = penstock_loader_open(&setting.o, shards, 2, &l, e);
	if (rc < 0)
		return rc;
	while ((rc = penstock_loader_next(l, &b, e)) == 1) {
		struct penstock_tensor t;

		h = batch_hash(h, b);
		assert_int_equal(penstock_batch_field(b, "npy", &t, NULL), 0);
		h = hash(h, t.data, t.nbytes);
		penstock_batch_info(b, &info);
		*ret_rows += info.rows;
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	*ret_hash = h;
	return rc;
}

static uint64_t run_without_faults(void)
{
	struct penstock_error e;
	uint64_t h = 0, rows = 0;
	uint32_t on_error = setting.o.on_error;

	faults_end();
	faults_fail(FAULTS_ALLOCATION, 0, 0);
	faults_fail(FAULTS_READ, 0, 0);
	setting.o.on_error = PENSTOCK_FAIL;
	int rc = run(&h, &rows, &e);
	setting.o.on_error = on_error;
	if (rc != 0)
		fail_msg("%s", e.text);
	assert_int_equal(rows, 2 * 6);
	return h;
}

static void fails_at_each(enum faults_kind kind, int errnum, long least)
{
	uint64_t want = run_without_faults();
	long most = faults_count(kind), nfailed = 0;

	assert_true(most >= least);
	for (long n = 1; n <= most; n = faults_next(n)) {
		struct penstock_error e;
		uint64_t h = 0, rows;

		faults_fail(kind, n, errnum);
		int rc = run(&h, &rows, &e);
		faults_fail(kind, 0, 0);
		if (rc == 0 && h != want)
			fail_msg("with fault %ld the batches differ", n);
		if (rc < 0 && (!e.text[0] || (rc != -errnum && !strstr(e.text, strerror(errnum)))))
			fail_msg("with fault %ld the error is %d, \"%s\"", n, rc, e.text);
		nfailed += rc < 0;
	}
	assert_int_equal(run_without_faults(), want);
	assert_true(nfailed > 0);
	print_message("# %ld places\n", most);
}

static void a_failed_allocation_is_an_error_and_changes_no_batch(void **state)
{
	(void)state;
	set_up(1);
	fails_at_each(FAULTS_ALLOCATION, ENOMEM, 100);
}

static void a_failed_allocation_with_3_threads_changes_no_batch(void **state)
{
	(void)state;
	set_up(3);
	fails_at_each(FAULTS_ALLOCATION, ENOMEM, 100);
}

static void a_failed_read_is_an_error_and_changes_no_batch(void **state)
{
	(void)state;
	set_up(2);
	setting.o.on_error = PENSTOCK_FAIL;
	fails_at_each(FAULTS_READ, EIO, 2);
}

/* Before a shard's first byte is read, no reader can have read two versions of it. */
static void a_shard_that_is_replaced_before_it_is_read_is_opened_again(void **state)
{
	long nsound = 0;

	(void)state;
	set_up(1);
	setting.o.readers = 1; /* so that the nth read is the same one in each run */
	setting.o.on_error = PENSTOCK_FAIL;
	uint64_t want = run_without_faults();
	long most = faults_count(FAULTS_READ);
	for (long n = 1; n <= most; n++) {
		struct penstock_error e;
		uint64_t h = 0, rows;

		faults_fail(FAULTS_READ, n, ESTALE);
		int rc = run(&h, &rows, &e);
		faults_fail(FAULTS_READ, 0, 0);
		if (rc == 0)
			assert_int_equal(h, want);
		nsound += rc == 0;
	}
	assert_true(nsound >= 2);
	/* It is opened again only once: a shard that is stale each time is an error. */
	struct penstock_error e;
	uint64_t h = 0, rows;
	faults_fail_from(FAULTS_READ, 1, ESTALE);
	assert_int_equal(run(&h, &rows, &e), -ESTALE);
	assert_non_null(strstr(e.text, "was replaced after it had been opened; to read the new version"));
	faults_end();
}

static void reads_in_pieces_and_interrupted_give_the_same_batches(void **state)
{
	struct penstock_error e;
	uint64_t h = 0, rows;

	(void)state;
	set_up(2);
	uint64_t want = run_without_faults();
	/* With less memory than a field needs, fields are read again when they are decoded. */
	for (int tight = 0; tight < 2; tight++) {
		setting.o.memory_budget = tight ? 1 << 20 : 8 << 20;
		faults_trickle(true);
		int rc = run(&h, &rows, &e);
		faults_end();
		if (rc != 0)
			fail_msg("%s", e.text);
		assert_int_equal(h, want);
	}
}

/* A field that did not fit into the budget is read again when it is decoded. */
static void a_field_that_is_read_again_in_pieces_is_whole(void **state)
{
	enum { N = 300001 };
	struct ps_byte_budget budget = {.limit = 1000};
	const struct ps_shard_options options = {.stream = {.wake_fd = -1}, .budget = &budget};
	struct tar t = {0};
	struct ps_sample *s;
	struct ps_error err;
	uint8_t *data = malloc(N);

	(void)state;
	for (size_t i = 0; i < N; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	tar_add_text(&t, "a.txt", "first");
	tar_add(&t, "b.bin", data, N);
	tar_end(&t);
	tar_save(&t, "large.tar");
	struct ps_shard *shard = ps_shard_new("large.tar", 0, &options, NULL);
	assert_non_null(shard);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ps_shard_next(shard, &s, &err), 1);
		if (i == 0)
			ps_sample_free(s);
	}
	struct ps_sample_field *f = ps_sample_find(s, "bin", 3);
	assert_null(f->data);
	for (long nth = 0; nth < 4; nth++) {
		faults_fail(FAULTS_READ, nth, EIO);
		faults_trickle(true);
		int r = ps_sample_load(s, f, &err);
		bool hit = faults_hit(FAULTS_READ);
		faults_end();
		if (hit) {
			assert_int_equal(r, -EIO);
			assert_string_equal(err.text, "cannot read field bin again: Input/output error");
			assert_null(f->data);
			continue;
		}
		assert_int_equal(r, 0);
		assert_memory_equal(f->data, data, N);
		ps_sample_drop(s, f);
	}
	assert_int_equal(truncate("large.tar", 2000), 0);
	assert_int_equal(ps_sample_load(s, f, &err), -EBADMSG);
	assert_string_equal(err.text, "the shard became shorter while it was read");
	ps_sample_free(s);
	ps_shard_free(shard);
	assert_int_equal(budget.used, 0);
	free(data);
}

/* A failed allocation gives back what it took of the budget: otherwise each failure would leave less of it,
 * until nothing is read ahead any more. */
static void failed_allocations_hold_no_budget(void **state)
{
	enum { N = 300001 };
	struct ps_byte_budget budget = {.limit = 8 << 20};
	const struct ps_shard_options options = {.stream = {.wake_fd = -1}, .budget = &budget};
	struct tar t = {0};
	struct ps_sample *s;
	struct ps_error err;
	uint8_t *data = calloc(N, 1);
	bool hit = true;
	long nfailed = 0;

	(void)state;
	tar_add(&t, "b.bin", data, N);
	tar_end(&t);
	tar_save(&t, "held.tar");
	for (long nth = 1; hit; nth++) {
		faults_fail(FAULTS_ALLOCATION, nth, ENOMEM);
		struct ps_shard *shard = ps_shard_new("held.tar", 0, &options, NULL);
		int rc = shard ? ps_shard_next(shard, &s, &err) : -ENOMEM;
		hit = faults_hit(FAULTS_ALLOCATION);
		faults_end();
		nfailed += rc < 0;
		if (rc == 1)
			ps_sample_free(s);
		ps_shard_free(shard);
		assert_int_equal(budget.used, 0);
	}
	assert_true(nfailed > 3);
	free(data);
}

/* Each allocation of packing, and of finding documents by their end token, is reported when it fails, and nothing leaks. */
static void failed_allocations_of_packing_are_errors(void **state)
{
	static const uint8_t tokens[400] = {[7] = 1, [90] = 1, [91] = 1, [300] = 1};
	bool hit = true;
	long nth = 1;

	(void)state;
	for (; hit; nth = faults_next(nth)) {
		struct ps_fit_options o = {
		        .pack = nth % 2 ? PS_PACK_FIT : PS_PACK_CONCAT, .length = 64, .rows = 7};
		struct ps_document_list list = {0};
		struct ps_error err = {0};
		struct ps_fit fit = {0};
		int rc;

		faults_fail(FAULTS_ALLOCATION, nth, ENOMEM);
		rc = ps_documents_scan(tokens, sizeof(tokens), 1, 1, true, &list, &err);
		if (rc == 0)
			rc = ps_fit_pack(&o, list.lens, list.n, &fit, &err);
		hit = faults_hit(FAULTS_ALLOCATION);
		faults_end();
		assert_int_equal(rc, hit ? -ENOMEM : 0);
		assert_int_equal(err.err, hit ? ENOMEM : 0);
		ps_fit_fini(&fit);
		ps_document_list_fini(&list);
	}
	assert_true(nth > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_failed_allocation_is_an_error_and_changes_no_batch),
	        cmocka_unit_test(a_failed_allocation_with_3_threads_changes_no_batch),
	        cmocka_unit_test(a_failed_read_is_an_error_and_changes_no_batch),
	        cmocka_unit_test(a_shard_that_is_replaced_before_it_is_read_is_opened_again),
	        cmocka_unit_test(reads_in_pieces_and_interrupted_give_the_same_batches),
	        cmocka_unit_test(a_field_that_is_read_again_in_pieces_is_whole),
	        cmocka_unit_test(failed_allocations_hold_no_budget),
	        cmocka_unit_test(failed_allocations_of_packing_are_errors),
	};

	return cmocka_run_group_tests_name("torture", tests, make, shards_remove);
}
