/* The library through its public interface. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "make_tar.h"
#include "shard/index.h"

#define SHARDS 6
#define PER_SHARD 20

static struct photo photos[MAX_PHOTOS];
static int nphotos;
static char folder[64];
static const char *const pattern[] = {"t-{0..5}.tar"};

static void sample_add(struct tar *t, int shard, int i)
{
	const struct photo *p = &photos[(shard * PER_SHARD + i) % nphotos];
	char name[64], text[64];

	snprintf(name, sizeof(name), "s%d/%03d.jpg", shard, i);
	tar_add(t, name, p->data, p->len);
	snprintf(name, sizeof(name), "s%d/%03d.cls", shard, i);
	snprintf(text, sizeof(text), "%d\n", shard * 1000 + i);
	tar_add_text(t, name, text);
	snprintf(name, sizeof(name), "s%d/%03d.TXT", shard, i);
	snprintf(text, sizeof(text), "%.*s", i % 7, "caption");
	tar_add_text(t, name, text);
}

static int setup(void **state)
{
	(void)state;
	nphotos = photos_load(photos);
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct tar t = {0};
		char path[32];

		for (int i = 0; i < PER_SHARD; i++)
			sample_add(&t, s, i);
		tar_end(&t);
		snprintf(path, sizeof(path), "t-%d.tar", s);
		tar_save(&t, path);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* Small images, cls and txt; a window that is smaller than the data. */
struct setting {
	struct penstock_options o;
	struct penstock_field f[3];
};

static void setting_init(struct setting *s)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "png;JPG", PENSTOCK_IMAGE);
	s->f[0].image_width = 24;
	s->f[0].image_height = 16;
	s->f[0].dtype = PENSTOCK_U8;
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "cls", PENSTOCK_INT64);
	penstock_field_init(&s->f[2], sizeof(s->f[2]), "txt", PENSTOCK_BYTES);
	s->o.fields = s->f;
	s->o.nfields = 3;
	s->o.batch = 16;
	s->o.epochs = 1;
	s->o.shuffle_window = 32;
	s->o.lanes = 4;
	s->o.threads = 2;
	s->o.memory_budget = 64 << 20;
}

static struct penstock_loader *open_ok(const struct penstock_options *o, const char *const *shards, size_t n)
{
	struct penstock_loader *l;
	struct penstock_error e;

	if (penstock_loader_open(o, shards, n, &l, &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

static struct penstock_tensor field(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

static uint64_t hash(uint64_t h, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 0x100000001b3u;
	return h;
}

/* Of everything in a batch. */
static uint64_t batch_hash(uint64_t h, const struct penstock_batch *b)
{
	static const char *const names[] = {
	        "jpg", "cls", "txt", "__key__", "__valid__", "__shard__", "__sample__"};
	struct penstock_batch_info info;

	penstock_batch_info(b, &info);
	h = hash(h, &info.epoch, sizeof(info.epoch));
	h = hash(h, &info.index, sizeof(info.index));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct penstock_tensor t = field(b, names[i]);

		h = hash(h, t.data, t.nbytes);
		h = hash(h, t.shape, sizeof(t.shape));
		if (t.offsets)
			h = hash(h, t.offsets, (info.rows + 1) * sizeof(*t.offsets));
	}
	return h;
}

static struct penstock_stats last_stats; /* of the last run_hash() */

/* Hash of all batches until the epochs end; counts them and their rows. */
static uint64_t run_hash(
        const struct penstock_options *o, const char *const *shards, size_t n, uint64_t *ret_rows)
{
	struct penstock_loader *l = open_ok(o, shards, n);
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t h = 0xcbf29ce484222325u, rows = 0;
	int r;

	for (uint64_t epoch = 0; epoch < o->epochs; epoch++) {
		while ((r = penstock_loader_next(l, &b, &e)) == 1) {
			struct penstock_batch_info info;

			penstock_batch_info(b, &info);
			assert_int_equal(info.epoch, o->epoch + epoch);
			rows += info.rows;
			h = batch_hash(h, b);
			penstock_batch_release(b);
		}
		if (r < 0)
			fail_msg("%s", e.text);
	}
	assert_int_equal(penstock_loader_next(l, &b, &e), 0);
	assert_int_equal(penstock_loader_stats(l, &last_stats, sizeof(last_stats), NULL), 0);
	penstock_loader_close(l);
	if (ret_rows)
		*ret_rows = rows;
	return h;
}

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

static void fields_hold_what_the_shards_hold(void **state)
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

static void ranks_share_out_the_epoch(void **state)
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

/* A shard of six samples, of which 1 and 4 cannot be decoded. */
static void bad_shard_make(const char *path)
{
	struct tar t = {0};

	sample_add(&t, 0, 0);
	tar_add_text(&t, "bad/1.jpg", "no image");
	tar_add_text(&t, "bad/1.cls", "1");
	tar_add_text(&t, "bad/1.txt", "");
	sample_add(&t, 0, 2);
	sample_add(&t, 0, 3);
	tar_add(&t, "bad/4.jpg", photos[0].data, photos[0].len);
	tar_add_text(&t, "bad/4.cls", "four");
	tar_add_text(&t, "bad/4.txt", "");
	sample_add(&t, 0, 5);
	tar_end(&t);
	tar_save(&t, path);
}

static void a_bad_row_repeats_the_next_good_one(void **state)
{
	static const char *const shards[] = {"bad.tar"};
	static const int64_t want[] = {0, 2, 2, 3, 5, 5};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	struct penstock_bad bad;
	struct penstock_tensor t;
	struct penstock_stats stats;

	(void)state;
	bad_shard_make("bad.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.on_error = PENSTOCK_SKIP;
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, 6);
	assert_int_equal(info.bad, 2);
	t = field(b, "cls");
	assert_memory_equal(t.data, want, sizeof(want));
	t = field(b, "__valid__");
	assert_memory_equal(t.data, "\1\0\1\1\0\1", 6);
	t = field(b, "jpg");
	assert_memory_equal((const char *)t.data + 1152, (const char *)t.data + 2 * 1152, 1152);
	assert_int_equal(penstock_batch_bad(b, 0, &bad), 0);
	assert_int_equal(bad.row, 1);
	assert_string_equal(bad.shard, "bad.tar");
	assert_string_equal(bad.key, "bad/1");
	assert_true(bad.offset > 0 && bad.offset % 512 == 0);
	assert_non_null(strstr(bad.reason, "jpg"));
	assert_int_equal(penstock_batch_bad(b, 1, &bad), 0);
	assert_non_null(strstr(bad.reason, "cls"));
	assert_int_equal(penstock_batch_bad(b, 2, &bad), -ENOENT);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.bad, 2);
	assert_int_equal(stats.samples, 6);
	penstock_loader_close(l);
}

/* The code and the text that the first next() which fails gives. */
static int first_failure(const struct penstock_options *o, const char *shard, struct penstock_error *e)
{
	struct penstock_loader *l = open_ok(o, &shard, 1);
	struct penstock_batch *b;
	int r, again;

	while ((r = penstock_loader_next(l, &b, e)) == 1)
		penstock_batch_release(b);
	again = penstock_loader_next(l, &b, NULL);
	assert_int_equal(again, r); /* it stays failed */
	penstock_loader_close(l);
	return r;
}

static void bad_samples_fail_as_asked(void **state)
{
	struct setting s;
	struct penstock_error e;
	struct tar t = {0};

	(void)state;
	bad_shard_make("bad.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	assert_int_equal(first_failure(&s.o, "bad.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "bad.tar: sample \"bad/1\" at offset "));

	s.o.on_error = PENSTOCK_SKIP;
	s.o.batch = 1; /* a batch with no good row */
	assert_int_equal(first_failure(&s.o, "bad.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "no sample of the batch is sound"));

	sample_add(&t, 0, 0);
	for (int i = 0; i < 5; i++)
		tar_add_text(&t, (char[]){'x', (char)('0' + i), '.', 'j', 'p', 'g', 0}, "");
	tar_end(&t);
	tar_save(&t, "many.tar");
	s.o.batch = 16;
	s.o.max_bad = 4;
	assert_int_equal(first_failure(&s.o, "many.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "more than 4 bad samples"));
	s.o.max_bad = 5;
	assert_int_equal(first_failure(&s.o, "many.tar", &e), 0);
}

static void a_truncated_shard_is_one_bad_sample_in_its_place(void **state)
{
	static const char *const shards[] = {"cut.tar", "t-1.tar"};
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct penstock_bad bad;
	struct penstock_tensor cls;
	size_t cut;

	(void)state;
	sample_add(&t, 0, 0);
	sample_add(&t, 0, 1);
	cut = t.len + 4000;
	sample_add(&t, 0, 2);
	t.len = cut;
	file_write("cut.tar", t.data, cut);
	tar_free(&t);
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.lanes = 1;
	assert_int_equal(first_failure(&s.o, "cut.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "truncated"));
	s.o.on_error = PENSTOCK_SKIP;
	s.o.batch = 64;
	l = open_ok(&s.o, shards, 2);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	cls = field(b, "cls");
	assert_int_equal(cls.shape[0], 3 + PER_SHARD);
	assert_int_equal(((const int64_t *)cls.data)[1], 1);
	assert_int_equal(((const int64_t *)cls.data)[2], 1000); /* repeats what comes behind the hole */
	assert_int_equal(((const int64_t *)cls.data)[3], 1000);
	assert_int_equal(penstock_batch_bad(b, 0, &bad), 0);
	assert_string_equal(bad.key, "s0/002");
	assert_non_null(strstr(bad.reason, "truncated"));
	penstock_loader_close(l); /* with a batch held */
}

static void holding_all_batches_fails_and_never_hangs(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held[3], *extra;
	struct penstock_error e;
	uint64_t before;

	(void)state;
	setting_init(&s);
	s.o.depth = 3;
	l = open_ok(&s.o, pattern, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(penstock_loader_next(l, &held[i], NULL), 1);
	assert_int_equal(penstock_loader_next(l, &extra, &e), -EBUSY);
	assert_non_null(strstr(e.text, "all 3 batches are held"));
	before = batch_hash(0, held[0]);
	penstock_batch_release(held[1]); /* in any order */
	assert_int_equal(penstock_loader_next(l, &extra, NULL), 1);
	assert_int_equal(batch_hash(0, held[0]), before);
	penstock_loader_close(l);
}

static void end_modes_do_what_they_say(void **state)
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
	assert_int_equal(penstock_loader_set_epoch(l, 7, NULL), 0); /* again: it stands there */
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(batch_hash(0, b), want);
	assert_int_equal(batch_hash(0, kept), kept_hash); /* a held batch survives */
	penstock_loader_close(l);
}

static void closing_at_any_moment_neither_hangs_nor_leaks(void **state)
{
	(void)state;
	for (int n = 0; n < 12; n++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;

		setting_init(&s);
		s.o.threads = 1 + (uint32_t)n % 4;
		s.o.epochs = 0;
		l = open_ok(&s.o, pattern, 1);
		for (int i = 0; i < n; i++) {
			int r = penstock_loader_next(l, &b, NULL);

			assert_true(r >= 0);
			if (r == 1)
				penstock_batch_release(b);
		}
		penstock_loader_close(l);
	}
}

static void a_forked_child_gets_errors_and_can_close(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b, *other;
	int status;
	pid_t pid;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	pid = fork();
	if (pid == 0) {
		struct penstock_error e;
		struct penstock_stats stats;
		int bad = penstock_loader_next(l, &other, &e) != -ECHILD;

		bad = bad || !strstr(e.text, "open a loader in this process");
		bad = bad || penstock_loader_stats(l, &stats, sizeof(stats), NULL) != -ECHILD;
		bad = bad || penstock_loader_set_epoch(l, 0, NULL) != -ECHILD;
		penstock_batch_release(b);
		penstock_loader_close(l);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	penstock_loader_close(l);
}

static void empty_tars_are_empty_epochs(void **state)
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

static void missing_shards_are_named(void **state)
{
	struct setting s;
	struct penstock_error e;

	(void)state;
	setting_init(&s);
	assert_int_equal(first_failure(&s.o, ".", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "folder"));
}

static void a_sample_larger_than_the_budget_is_bad(void **state)
{
	struct tar t = {0};
	struct setting s;
	struct penstock_error e;
	char *big = calloc(1, 3 << 20);

	(void)state;
	assert_non_null(big);
	tar_add(&t, "a.txt", big, 3 << 20);
	sample_add(&t, 0, 0);
	tar_end(&t);
	tar_save(&t, "big.tar");
	free(big);
	setting_init(&s);
	s.o.depth = 2;
	s.o.memory_budget = 4 << 20;
	assert_int_equal(first_failure(&s.o, "big.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "raise memory_budget"));
}

static void ragged_fields_take_no_more_memory_than_they_may(void **state)
{
	struct tar t = {0};
	struct setting s;
	struct penstock_error e;
	char *big = calloc(1, 1 << 20);

	(void)state;
	assert_non_null(big);
	for (int i = 0; i < 24; i++)
		tar_add(&t, (char[]){(char)('a' + i), '.', 't', 'x', 't', 0}, big, 1 << 20);
	tar_end(&t);
	tar_save(&t, "ragged.tar");
	free(big);
	setting_init(&s);
	s.o.fields = &s.f[2];
	s.o.nfields = 1;
	s.o.batch = 24;
	s.o.depth = 2;
	s.o.memory_budget = 64 << 20; /* 16 MiB a batch */
	assert_int_equal(first_failure(&s.o, "ragged.tar", &e), -E2BIG);
	assert_non_null(strstr(e.text, "memory_budget"));
	s.o.batch = 12;
	assert_int_equal(first_failure(&s.o, "ragged.tar", &e), 0);
}

static void want_of_descriptors_is_no_fault_of_the_shards(void **state)
{
	struct setting s;
	struct penstock_error e;
	struct rlimit was, few;
	int first = dup(0);

	(void)state;
	setting_init(&s);
	s.o.on_error = PENSTOCK_SKIP;
	s.o.lanes = SHARDS;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)first + 3, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	close(first);
	assert_int_equal(first_failure(&s.o, *pattern, &e), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_non_null(strstr(e.text, ".tar: "));
	assert_non_null(strstr(e.text, "ulimit -n"));
}

static void errors_name_the_end_of_a_long_path(void **state)
{
	char path[600] = "";
	struct setting s;
	struct penstock_error e;

	(void)state;
	for (int i = 0; i < 100; i++)
		strcat(path, i % 2 ? "no/" : "\xc3\xa9/");
	strcat(path, "the-shard.tar");
	setting_init(&s);
	s.o.on_error = PENSTOCK_SKIP; /* else opening the loader says it */
	assert_int_equal(first_failure(&s.o, path, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "/the-shard.tar: at offset 0: cannot open"));
	assert_non_null(strstr(e.text, "check the path"));
	assert_null(strstr(e.text, "sample \""));
}

static atomic_bool restless_stop;

static void *restless(void *loader)
{
	while (!atomic_load(&restless_stop)) {
		struct penstock_stats stats;

		if (penstock_loader_stats(loader, &stats, sizeof(stats), NULL) < 0)
			return loader;
		for (int i = 0; i < PENSTOCK_NSTAGES; i++)
			if (stats.stages[i].busy > 1e6 || stats.stages[i].waiting_input > 1e6 ||
			        stats.stages[i].waiting_output > 1e6)
				return loader;
	}
	return NULL;
}

static void *releaser(void *batch)
{
	penstock_batch_release(batch);
	return NULL;
}

static void statistics_and_release_may_come_at_any_moment(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	pthread_t watch, other;
	void *wrong;

	(void)state;
	setting_init(&s);
	s.o.epochs = 0;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(pthread_create(&watch, NULL, restless, l), 0);
	for (uint64_t i = 0; i < 20; i++) {
		struct penstock_batch *b;

		assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
		assert_int_equal(pthread_create(&other, NULL, releaser, b), 0);
		assert_int_equal(penstock_loader_set_epoch(l, i, NULL), 0);
		pthread_join(other, NULL);
	}
	atomic_store(&restless_stop, true);
	pthread_join(watch, &wrong);
	assert_null(wrong);
	penstock_loader_close(l);
}

/* The samples and batches that an epoch really has. */
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

static void length_is_known_by_indexes(void **state)
{
	struct ps_index_result result;
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
	assert_non_null(strstr(e.text, ".tar.psx: no such index; make it by penstock-loader index"));
	penstock_loader_close(l);
	for (int i = 0; i < SHARDS; i++) {
		snprintf(name, sizeof(name), "t-%d.tar", i);
		assert_int_equal(ps_index_make(name, i % 2 ? NULL : ".", NULL, 0, &result, NULL), 0);
		assert_int_equal(ps_index_make(name, i % 2 ? "." : NULL, NULL, 0, &result, NULL), 0);
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
	l = open_ok(&s.o, shards, 1); /* nobody writes */
	usleep(20000);
	penstock_loader_close(l);
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

static void bad_options_are_refused_with_a_reason(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;

	(void)state;
#define REFUSED(want, says, ...)                                                        \
	do {                                                                            \
		setting_init(&s);                                                       \
		__VA_ARGS__;                                                            \
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), want); \
		assert_int_equal(e.code, -(want));                                      \
		if (!strstr(e.text, says))                                              \
			fail_msg("\"%s\" says nothing of \"%s\"", e.text, says);        \
	} while (0)
	REFUSED(-EINVAL, "penstock_options_init", s.o.size = 0);
	REFUSED(-EINVAL, "penstock_field_init", s.f[1].size = 0);
	REFUSED(-EINVAL, "batch 0", s.o.batch = 0);
	REFUSED(-EINVAL, "batch 65537", s.o.batch = 65537);
	REFUSED(-EINVAL, "depth 1", s.o.depth = 1);
	REFUSED(-EINVAL, "threads 5000", s.o.threads = 5000);
	REFUSED(-EINVAL, "rank 2 of world 2", s.o.world = s.o.rank = 2);
	REFUSED(-EINVAL, "drop_last", s.o.world = 2, s.o.end = PENSTOCK_END_DROP_LAST);
	REFUSED(-EINVAL, "order 9", s.o.order = 9);
	REFUSED(-EINVAL, "twice", s.f[2].name = "cls");
	REFUSED(-EINVAL, "loader's own", s.f[2].name = "__key__");
	REFUSED(-EINVAL, "suffixes", s.f[2].name = "a;;b");
	REFUSED(-EINVAL, "unknown kind", s.f[2].kind = 77);
	REFUSED(-EINVAL, "field png;JPG", s.f[0].image_width = 0);
	REFUSED(-E2BIG, "memory_budget", s.o.memory_budget = 1000);
	REFUSED(-ENODEV, "device cuda", s.o.device = "cuda:999"); /* no driver, or not so many */
	REFUSED(-ENODEV, "no such device", s.o.device = "tpu");
#undef REFUSED
	setting_init(&s);
	assert_int_equal(penstock_loader_open(&s.o, NULL, 0, &l, &e), -EINVAL);
	assert_string_equal(e.text, "no shards");
}

static void an_older_callers_structs_are_read(void **state)
{
	struct old_field { /* only the first members of today's */
		size_t size;
		const char *name;
		uint32_t kind;
		uint32_t canary;
	} fields[2] = {{.canary = 77}, {.canary = 78}};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;

	(void)state;
	setting_init(&s);
	for (int i = 0; i < 2; i++) {
		penstock_field_init((void *)&fields[i], offsetof(struct old_field, canary), i ? "txt" : "cls",
		        i ? PENSTOCK_BYTES : PENSTOCK_INT64);
		assert_int_equal(fields[i].canary, 77 + i); /* init keeps to the caller's size */
		fields[i].size = sizeof(fields[i]);
	}
	s.o.fields = (const void *)fields;
	s.o.nfields = 2;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(field(b, "cls").shape[0], 16);
	penstock_loader_close(l);
}

/* A program that was built when the options ended with state_nbytes: nothing behind them is read or written. */
static void an_older_callers_options_are_read(void **state)
{
	enum { OLD = offsetof(struct penstock_options, transform) };
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	union {
		struct penstock_options o;
		uint8_t bytes[sizeof(struct penstock_options)];
	} u;

	(void)state;
	setting_init(&s);
	memset(&u, 0xaa, sizeof(u));
	penstock_options_init(&u.o, OLD);
	for (size_t i = OLD; i < sizeof(u); i++)
		assert_int_equal(u.bytes[i], 0xaa);
	u.o.fields = s.f;
	u.o.nfields = 3;
	u.o.epochs = 1;
	l = open_ok(&u.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(field(b, "cls").shape[0], 64);
	penstock_loader_close(l);
}

static void stage_times_add_up(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_stats stats;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	while (penstock_loader_next(l, &b, NULL) == 1)
		penstock_batch_release(b);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.samples, SHARDS * PER_SHARD);
	assert_int_equal(stats.batches, 8);
	assert_true(stats.bytes_read > 1000000);
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		const struct penstock_stage *st = &stats.stages[i];
		double all = st->busy + st->waiting_input + st->waiting_output;

		assert_true(st->busy >= 0 && st->waiting_input >= 0 && st->waiting_output >= 0);
		assert_true(all <= stats.seconds * st->threads * 1.01 + 0.001);
	}
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(batches_are_the_same_for_any_threads),
	        cmocka_unit_test(batches_are_the_same_without_memory_for_the_window),
	        cmocka_unit_test(fields_hold_what_the_shards_hold),
	        cmocka_unit_test(ranks_share_out_the_epoch),
	        cmocka_unit_test(a_bad_row_repeats_the_next_good_one),
	        cmocka_unit_test(bad_samples_fail_as_asked),
	        cmocka_unit_test(a_truncated_shard_is_one_bad_sample_in_its_place),
	        cmocka_unit_test(holding_all_batches_fails_and_never_hangs),
	        cmocka_unit_test(end_modes_do_what_they_say),
	        cmocka_unit_test(set_epoch_begins_that_epoch),
	        cmocka_unit_test(closing_at_any_moment_neither_hangs_nor_leaks),
	        cmocka_unit_test(a_forked_child_gets_errors_and_can_close),
	        cmocka_unit_test(empty_tars_are_empty_epochs),
	        cmocka_unit_test(missing_shards_are_named),
	        cmocka_unit_test(a_sample_larger_than_the_budget_is_bad),
	        cmocka_unit_test(ragged_fields_take_no_more_memory_than_they_may),
	        cmocka_unit_test(want_of_descriptors_is_no_fault_of_the_shards),
	        cmocka_unit_test(errors_name_the_end_of_a_long_path),
	        cmocka_unit_test(statistics_and_release_may_come_at_any_moment),
	        cmocka_unit_test(length_is_known_by_indexes),
	        cmocka_unit_test(pipes_are_read_and_closing_does_not_wait_for_them),
	        cmocka_unit_test(optional_fields_may_be_missing),
	        cmocka_unit_test(bad_options_are_refused_with_a_reason),
	        cmocka_unit_test(an_older_callers_structs_are_read),
	        cmocka_unit_test(an_older_callers_options_are_read),
	        cmocka_unit_test(stage_times_add_up),
	};
	int r;

	r = cmocka_run_group_tests_name("loader", tests, setup, teardown);
	for (int i = 0; i < nphotos; i++)
		free(photos[i].data);
	return r;
}
