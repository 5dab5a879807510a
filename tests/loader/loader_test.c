/* The library through its public interface: which batches come, and what is in them. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "loader_fixture.h"
#include "shard/index/index.h"
#include "shard/shard.h"

static void batches_are_the_same_for_any_threads(void **state)
{
	static const uint32_t threads[] = {1, 2, 7}, depths[] = {2, 4, 9}, readers[] = {1, 3, 4};
	uint64_t want = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct setting s;
		uint64_t rows, h;

		setting_init(&s);
		s.o.threads = threads[i];
		s.o.depth = depths[i];
		s.o.readers = readers[i];
		s.o.epochs = 3;
		h = run_hash(&s.o, pattern, 1, &rows);
		assert_int_equal(rows, 3 * SHARDS * PER_SHARD);
		if (i == 0)
			want = h;
		assert_int_equal(h, want);
	}
}

static void batches_are_the_same_without_memory_for_the_window(void **state)
{
	struct setting s;
	uint64_t want;

	(void)state;
	setting_init(&s);
	s.f[0].image_width = s.f[0].image_height = 64;
	want = run_hash(&s.o, pattern, 1, NULL);
	assert_int_equal(last_stats.reread, 0);
	s.o.depth = 2;
	s.o.memory_budget = 2 * 16 * 64 * 64 * 3 + 4 * 65536 + 150000; /* room for one or two photographs */
	assert_int_equal(run_hash(&s.o, pattern, 1, NULL), want);
	assert_true(last_stats.reread > SHARDS * PER_SHARD / 4);
}

static void fields_have_the_values_of_the_shards(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	unsigned char seen[SHARDS * 1000] = {0};

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	while (penstock_loader_next(l, &b, NULL) == 1) {
		struct penstock_tensor cls = field(b, "cls"), txt = field(b, "txt"),
		                       key = field(b, "__key__");
		struct penstock_tensor shard = field(b, "__shard__"), ordinal = field(b, "__sample__"),
		                       jpg = field(b, "png");
		const int64_t *labels = cls.data;

		assert_int_equal(jpg.ndim, 4);
		assert_int_equal(jpg.shape[1], 3);
		assert_int_equal(jpg.shape[2], 16);
		assert_int_equal(jpg.shape[3], 24);
		assert_int_equal(jpg.nbytes, jpg.shape[0] * 3 * 16 * 24);
		for (uint64_t i = 0; i < cls.shape[0]; i++) {
			int s_no = (int)(labels[i] / 1000), i_no = (int)(labels[i] % 1000);
			char want[32];
			size_t n = (size_t)(key.offsets[i + 1] - key.offsets[i]);

			seen[labels[i]]++;
			snprintf(want, sizeof(want), "s%d/%03d", s_no, i_no);
			assert_int_equal(n, strlen(want));
			assert_memory_equal((const char *)key.data + key.offsets[i], want, n);
			assert_int_equal(txt.offsets[i + 1] - txt.offsets[i], i_no % 7);
			assert_memory_equal(
			        (const char *)txt.data + txt.offsets[i], "caption", (size_t)(i_no % 7));
			assert_int_equal(((const int64_t *)shard.data)[i], s_no);
			assert_int_equal(((const int64_t *)ordinal.data)[i], i_no);
		}
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	for (int i = 0; i < SHARDS * 1000; i++)
		assert_int_equal(seen[i], i % 1000 < PER_SHARD);
}

static void two_ranks_read_each_sample_once(void **state)
{
	unsigned char seen[SHARDS * 1000] = {0};

	(void)state;
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;

		setting_init(&s);
		s.o.rank = rank;
		s.o.world = 2;
		s.o.end = PENSTOCK_END_UNEVEN;
		l = open_ok(&s.o, pattern, 1);
		while (penstock_loader_next(l, &b, NULL) == 1) {
			struct penstock_tensor cls = field(b, "cls");

			for (uint64_t i = 0; i < cls.shape[0]; i++)
				seen[((const int64_t *)cls.data)[i]]++;
			penstock_batch_release(b);
		}
		penstock_loader_close(l);
	}
	for (int i = 0; i < SHARDS * 1000; i++)
		assert_int_equal(seen[i], i % 1000 < PER_SHARD);
}

static void each_end_mode_gives_the_right_batches(void **state)
{
	static const struct {
		uint32_t end, batches, last_rows, invalid;
	} rows[] = {{PENSTOCK_END_UNEVEN, 3, 20, 0}, {PENSTOCK_END_DROP_LAST, 2, 50, 0},
	        {PENSTOCK_END_PAD, 3, 50, 30}};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_batch_info info = {0};
		uint32_t n = 0, invalid = 0;

		setting_init(&s);
		s.o.batch = 50;
		s.o.end = rows[i].end;
		s.o.epochs = 2;
		l = open_ok(&s.o, pattern, 1);
		for (int epoch = 0; epoch < 2; epoch++) {
			while (penstock_loader_next(l, &b, NULL) == 1) {
				struct penstock_tensor valid = field(b, "__valid__");

				penstock_batch_info(b, &info);
				n++;
				for (uint32_t j = 0; j < info.rows; j++)
					invalid += !((const uint8_t *)valid.data)[j];
				assert_int_equal(info.bad, 0);
				penstock_batch_release(b);
			}
			assert_int_equal(info.rows, rows[i].last_rows);
			assert_int_equal(info.index + 1, rows[i].batches);
		}
		assert_int_equal(n, 2 * rows[i].batches);
		assert_int_equal(invalid, 2 * rows[i].invalid);
		penstock_loader_close(l);
	}
}

static void set_epoch_begins_that_epoch(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b, *kept;
	uint64_t want, kept_hash;

	(void)state;
	setting_init(&s);
	s.o.epochs = 0;
	s.o.epoch = 7;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	want = batch_hash(0, b);
	penstock_batch_release(b);
	penstock_loader_close(l);

	s.o.epoch = 0;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &kept, NULL), 1);
	kept_hash = batch_hash(0, kept);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_set_epoch(l, 7, NULL), 0); /* in the middle of an epoch */
	assert_int_equal(penstock_loader_set_epoch(l, 7, NULL), 0); /* again, at its beginning */
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(batch_hash(0, b), want);
	assert_int_equal(batch_hash(0, kept), kept_hash); /* a held batch survives */
	penstock_loader_close(l);
}

/* Bytes read in two epochs. The second one begins by itself; with `set`, set_epoch() names it, too. */
static uint64_t bytes_of_two(bool set)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_stats stats;

	setting_init(&s);
	s.o.epochs = 2;
	l = open_ok(&s.o, pattern, 1);
	while (penstock_loader_next(l, &b, NULL) == 1)
		penstock_batch_release(b);
	assert_int_equal(penstock_loader_wait(l, 60000, NULL), 1); /* some of the next epoch was read */
	if (set)
		assert_int_equal(penstock_loader_set_epoch(l, 1, NULL), 0);
	while (penstock_loader_next(l, &b, NULL) == 1)
		penstock_batch_release(b);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.samples, 2 * SHARDS * PER_SHARD);
	penstock_loader_close(l);
	return stats.bytes_read;
}

static void set_epoch_to_the_next_epoch_keeps_what_was_read(void **state)
{
	(void)state;
	assert_int_equal(bytes_of_two(true), bytes_of_two(false));
}

static void empty_tars_give_empty_epochs(void **state)
{
	static const char *const shards[] = {"empty.tar"};
	struct tar t = {0};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;

	(void)state;
	tar_end(&t);
	tar_save(&t, "empty.tar");
	setting_init(&s);
	s.o.epochs = 0;
	l = open_ok(&s.o, shards, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(penstock_loader_next(l, &b, NULL), 0);
	penstock_loader_close(l);
}

static void an_epoch_that_is_known_to_be_empty_is_refused(void **state)
{
	static const char *const empty[] = {"empty.tar", "empty.tar"}, *const full[] = {"t-0.tar"};
	struct ps_shard_index_result result;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;
	struct penstock_stats stats;
	struct penstock_batch *b;
	struct tar t = {0};

	(void)state;
	tar_end(&t);
	tar_save(&t, "empty.tar");
	assert_int_equal(ps_shard_index_make("empty.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	assert_int_equal(ps_shard_index_make("t-0.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		setting_init(&s);
		s.o.world = 2;
		s.o.rank = rank;
		assert_int_equal(penstock_loader_open(&s.o, empty, 2, &l, &e), -ENODATA);
		assert_non_null(strstr(e.text, "the indexes say that all shards are empty"));
		s.o.skip = PER_SHARD;
		assert_int_equal(penstock_loader_open(&s.o, full, 1, &l, &e), -ENODATA);
		assert_non_null(strstr(e.text, "none of the 20 in the shards"));
	}
	setting_init(&s);
	s.o.skip = PER_SHARD;
	assert_int_equal(penstock_loader_open(&s.o, full, 1, &l, &e), -ENODATA);
	setting_init(&s); /* steps that no sample can fill */
	s.o.order = PENSTOCK_ORDER_PERMUTATION;
	s.o.steps = 3;
	assert_int_equal(penstock_loader_open(&s.o, empty, 2, &l, &e), -ENODATA);
	assert_non_null(strstr(e.text, "no shard holds a sample"));
	setting_init(&s); /* a single rank without steps reads the shards and finds no sample */
	l = open_ok(&s.o, empty, 2);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 0);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 0); /* over */
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.empty_epochs, 1);
	penstock_loader_close(l);
	assert_int_equal(unlink("t-0.tar.psx") | unlink("empty.tar.psx"), 0);
}

/* Asserts that penstock_loader_length() gives the samples and batches that really come. */
static void length_is(const struct penstock_options *o, uint64_t epochs)
{
	struct penstock_loader *l = open_ok(o, pattern, 1);

	for (uint64_t epoch = 0; epoch < epochs; epoch++) {
		uint64_t samples, batches, seen = 0, n = 0;
		struct penstock_batch *b;
		struct penstock_error e;

		if (penstock_loader_length(l, epoch, &samples, &batches, &e) < 0)
			fail_msg("%s", e.text);
		while (penstock_loader_next(l, &b, NULL) == 1) {
			struct penstock_batch_info info;

			penstock_batch_info(b, &info);
			seen += info.rows;
			n++;
			penstock_batch_release(b);
		}
		assert_int_equal(n, batches);
		if (o->end == PENSTOCK_END_UNEVEN)
			assert_int_equal(seen, samples);
	}
	penstock_loader_close(l);
}

static void length_is_known_with_indexes(void **state)
{
	struct ps_shard_index_result result;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;
	uint64_t samples, batches, want;
	char name[32];

	(void)state;
	setting_init(&s);
	want = run_hash(&s.o, pattern, 1, NULL);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_length(l, 0, &samples, &batches, &e), -ENODATA);
	assert_non_null(strstr(e.text, ".tar.psx: no such index; make it with penstock-loader index"));
	penstock_loader_close(l);
	for (int i = 0; i < SHARDS; i++) {
		snprintf(name, sizeof(name), "t-%d.tar", i);
		assert_int_equal(
		        ps_shard_index_make(name, i % 2 ? NULL : ".", NULL, 0, NULL, &result, NULL), 0);
		assert_int_equal(
		        ps_shard_index_make(name, i % 2 ? "." : NULL, NULL, 0, NULL, &result, NULL), 0);
		assert_int_equal(result.samples, PER_SHARD);
	}
	for (uint32_t end = 0; end < 3; end++) {
		setting_init(&s);
		s.o.end = end;
		s.o.epochs = 2;
		s.o.index_dir = end == 1 ? "." : NULL;
		length_is(&s.o, 2);
	}
	for (uint32_t rank = 0; rank < 4; rank++) {
		setting_init(&s);
		s.o.world = 4;
		s.o.rank = rank;
		s.o.epochs = 2;
		length_is(&s.o, 2);
	}
	setting_init(&s);
	assert_int_equal(run_hash(&s.o, pattern, 1, NULL), want); /* an index changes no order */
	for (int i = 0; i < SHARDS; i++) {
		snprintf(name, sizeof(name), "t-%d.tar.psx", i);
		assert_int_equal(unlink(name), 0);
	}
}

static void optional_fields_may_be_missing(void **state)
{
	static const char *const shards[] = {"opt.tar"};
	struct tar t = {0};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_tensor cls, txt;
	struct penstock_error e;

	(void)state;
	tar_add(&t, "a.jpg", photos[0].data, photos[0].len);
	sample_add(&t, 0, 5);
	tar_end(&t);
	tar_save(&t, "opt.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	assert_int_equal(first_failure(&s.o, "opt.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "no field .cls"));
	s.f[1].optional = s.f[2].optional = 1;
	s.f[1].missing_value = -7;
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	cls = field(b, "cls");
	txt = field(b, "txt");
	assert_int_equal(((const int64_t *)cls.data)[0], -7);
	assert_int_equal(((const int64_t *)cls.data)[1], 5);
	assert_int_equal(txt.offsets[1], 0);
	assert_int_equal(txt.offsets[2], 5);
	assert_int_equal(penstock_batch_field(b, "png2", &txt, &e), -ENOENT);
	penstock_loader_close(l);
}

static void *pipe_feed(void *path)
{
	int in = open("t-0.tar", O_RDONLY), out = open(path, O_WRONLY);
	char buf[10000];
	ssize_t n;

	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) < n)
			break;
	close(in);
	close(out);
	return NULL;
}

static void pipes_are_read_and_closing_does_not_wait_for_them(void **state)
{
	static const char *const shards[] = {"fifo"}, *const file[] = {"t-0.tar"};
	struct setting s;
	struct penstock_loader *l;
	pthread_t thread;

	(void)state;
	setting_init(&s);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(pthread_create(&thread, NULL, pipe_feed, (char *)(uintptr_t)shards[0]), 0);
	assert_int_equal(run_hash(&s.o, shards, 1, NULL), run_hash(&s.o, file, 1, NULL));
	pthread_join(thread, NULL);
	l = open_ok(&s.o, shards, 1); /* no process writes */
	usleep(20000);
	penstock_loader_close(l);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The wait begins after set_epoch(), which wakes the readers: the wake-up must not stay set. */
static void waiting_for_a_pipe_uses_no_cpu_time(void **state)
{
	static const char *const shards[] = {"silent"};
	struct setting s;
	struct penstock_loader *l;
	uint64_t start, used;

	(void)state;
	setting_init(&s);
	s.o.epochs = 0;
	assert_int_equal(mkfifo("silent", 0600), 0);
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_set_epoch(l, 3, NULL), 0);
	start = now_ns(CLOCK_MONOTONIC);
	used = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	while (now_ns(CLOCK_MONOTONIC) - start < 500000000u) {
		usleep(20000);
		assert_true(now_ns(CLOCK_PROCESS_CPUTIME_ID) - used < 100000000u);
	}
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(batches_are_the_same_for_any_threads),
	        cmocka_unit_test(batches_are_the_same_without_memory_for_the_window),
	        cmocka_unit_test(fields_have_the_values_of_the_shards),
	        cmocka_unit_test(two_ranks_read_each_sample_once),
	        cmocka_unit_test(each_end_mode_gives_the_right_batches),
	        cmocka_unit_test(an_epoch_that_is_known_to_be_empty_is_refused),
	        cmocka_unit_test(set_epoch_begins_that_epoch),
	        cmocka_unit_test(set_epoch_to_the_next_epoch_keeps_what_was_read),
	        cmocka_unit_test(empty_tars_give_empty_epochs),
	        cmocka_unit_test(length_is_known_with_indexes),
	        cmocka_unit_test(optional_fields_may_be_missing),
	        cmocka_unit_test(pipes_are_read_and_closing_does_not_wait_for_them),
	        cmocka_unit_test(waiting_for_a_pipe_uses_no_cpu_time),
	};

	return cmocka_run_group_tests_name("loader", tests, shards_make, shards_remove);
}
