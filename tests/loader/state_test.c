/* States: a resumed run gives the same batches as a run that was not interrupted. */
#include "config.h"

#include "penstock.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "make_tar.h"
#include "batches.h"
#include "shard/shard.h"

#define SHARDS 7
#define MAX_EVENTS 200

static struct photo photos[MAX_PHOTOS];
static int nphotos;
static char folder[64];
static const char *const pattern[] = {"t-{0..6}.tar"};

/* Shards of 5, 12, 19, 1, 8, 15, 22 samples; some samples are bad. */
static void shard_make(int shard)
{
	struct tar t = {0};
	char name[64], text[64];

	for (int i = 0; i < (5 + 7 * shard) % 25; i++) {
		const struct photo *p = &photos[(shard * 5 + i) % nphotos];

		snprintf(name, sizeof(name), "s%d/%03d.jpg", shard, i);
		tar_add(&t, name, p->data, i % 9 == 4 ? 100 : p->len);
		snprintf(name, sizeof(name), "s%d/%03d.cls", shard, i);
		snprintf(text, sizeof(text), "%d\n", shard * 1000 + i);
		tar_add_text(&t, name, text);
	}
	tar_end(&t);
	snprintf(name, sizeof(name), "t-%d.tar", shard);
	tar_save(&t, name);
}

static int setup(void **state)
{
	(void)state;
	nphotos = photos_load(photos);
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++)
		shard_make(s);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f[2];
};

static void setting_init(struct setting *s)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "jpg", PENSTOCK_IMAGE);
	s->f[0].image_width = 12;
	s->f[0].image_height = 8;
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "cls", PENSTOCK_INT64);
	s->o.fields = s->f;
	s->o.nfields = 2;
	s->o.batch = 6;
	s->o.epochs = 2;
	s->o.shuffle_window = 12;
	s->o.lanes = 4;
	s->o.memory_budget = 64 << 20;
	s->o.on_error = PENSTOCK_SKIP;
}

/* What next() gives, as a number: a hash of everything in the batch, or 0 for the end of an epoch. */
static uint64_t event(struct penstock_loader *l)
{
	static const char *const names[] = {
	        "jpg", "cls", "txt", "__key__", "__valid__", "__shard__", "__sample__"};
	struct penstock_batch_info info;
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t h = 1;
	int rc = penstock_loader_next(l, &b, &e);

	if (rc < 0)
		fail_msg("%s", e.text);
	if (rc == 0)
		return 0;
	penstock_batch_info(b, &info);
	info.slot = NULL; /* an address */
	h = hash(h, &info, sizeof(info));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct penstock_tensor t;

		if (penstock_batch_field(b, names[i], &t, NULL) < 0)
			continue;
		h = hash(h, t.data, t.nbytes);
		h = hash(h, t.shape, sizeof(t.shape));
	}
	penstock_batch_release(b);
	return h;
}

struct run {
	int n; /* events, the end of the last epoch included */
	uint64_t events[MAX_EVENTS];
	uint8_t states[MAX_EVENTS + 1][1024]; /* before each event, and after the last */
	int nbytes[MAX_EVENTS + 1];
};

static int save(struct penstock_loader *l, uint8_t state[static 1024])
{
	struct penstock_error e;
	int n = penstock_loader_state_save(l, state, 1024, &e);

	if (n < 0)
		fail_msg("%s", e.text);
	return n;
}

static void load(struct penstock_loader *l, const void *state, int n)
{
	struct penstock_error e;

	if (penstock_loader_state_load(l, state, (size_t)n, &e) < 0)
		fail_msg("%s", e.text);
}

/* A whole run, with the state before each event. */
static void run_whole(struct run *run, const struct penstock_options *o, const char *const *shards, size_t n)
{
	struct penstock_loader *l = open_ok(o, shards, n);
	uint64_t epochs = 0;

	run->n = 0;
	while (epochs < o->epochs) {
		assert_true(run->n < MAX_EVENTS);
		run->nbytes[run->n] = save(l, run->states[run->n]);
		run->events[run->n] = event(l);
		epochs += run->events[run->n++] == 0;
	}
	run->nbytes[run->n] = save(l, run->states[run->n]);
	penstock_loader_close(l);
}

/* Asserts that the loader gives the run's events from event `from` on; at most `count` events. */
static void follows(struct penstock_loader *l, const struct run *run, int from, int count)
{
	for (int i = from; i < run->n && i - from < count; i++)
		if (event(l) != run->events[i])
			fail_msg("resumed at event %d of %d, event %d differs", from, run->n, i);
	if (run->n - from < count)
		assert_int_equal(event(l), 0);
}

static void resumes_everywhere(const struct penstock_options *options, const char *const *shards, size_t n)
{
	static const uint32_t threads[] = {1, 2, 7};
	static struct run run;
	struct penstock_options o = *options;

	run_whole(&run, &o, shards, n);
	for (int i = 0; i <= run.n; i++) {
		struct penstock_loader *l;

		o.threads = threads[i % 3];
		o.depth = 2 + (uint32_t)i % 4;
		o.state = i % 2 ? run.states[i] : NULL; /* NULL: loaded below */
		o.state_nbytes = (size_t)run.nbytes[i];
		l = open_ok(&o, shards, n);
		if (!o.state)
			load(l, run.states[i], run.nbytes[i]);
		follows(l, &run, i, i % 5 == 0 ? MAX_EVENTS : 9);
		penstock_loader_close(l);
	}
}

static void resuming_at_any_batch_gives_the_same_batches(void **state)
{
	static const uint32_t orders[] = {PENSTOCK_ORDER_WINDOW, PENSTOCK_ORDER_SHARDS, PENSTOCK_ORDER_NONE};

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct setting s;

		setting_init(&s);
		s.o.order = orders[i];
		s.o.end = i; /* uneven, drop_last, pad */
		s.o.epoch = 3;
		resumes_everywhere(&s.o, pattern, 1);
	}
}

/* Blocks of 64 samples, which epoch 0 cuts at more places than epoch 1. */
static void resuming_in_the_short_blocks_of_an_epoch_gives_the_same_batches(void **state)
{
	(void)state;
	for (uint32_t epoch = 0; epoch < 2; epoch++) {
		struct setting s;

		setting_init(&s);
		s.o.fields = &s.f[1];
		s.o.nfields = 1;
		s.o.lanes = 1;
		s.o.shuffle_window = 64;
		s.o.batch = 3;
		s.o.epoch = epoch;
		s.o.end = PENSTOCK_END_UNEVEN;
		resumes_everywhere(&s.o, pattern, 1);
	}
}

static void each_rank_resumes_at_any_batch(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct setting s;

		setting_init(&s);
		s.o.world = 2;
		s.o.end = PENSTOCK_END_UNEVEN;
		s.o.rank = rank;
		s.o.shuffle_window = 100;
		resumes_everywhere(&s.o, pattern, 1);
	}
}

static void a_resumed_run_can_be_resumed(void **state)
{
	static struct run run;
	struct setting s;
	uint8_t bytes[1024];

	(void)state;
	setting_init(&s);
	run_whole(&run, &s.o, pattern, 1);
	memcpy(bytes, run.states[0], sizeof(bytes));
	for (int i = 0; i < run.n; i++) {
		struct penstock_loader *l = open_ok(&s.o, pattern, 1);

		load(l, bytes, run.nbytes[i]);
		assert_int_equal(save(l, bytes), run.nbytes[i]);
		assert_memory_equal(bytes, run.states[i], (size_t)run.nbytes[i]);
		assert_true(event(l) == run.events[i]);
		save(l, bytes);
		penstock_loader_close(l);
	}
}

static void a_loader_loads_its_own_earlier_and_later_states(void **state)
{
	static struct run run;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held;

	(void)state;
	setting_init(&s);
	run_whole(&run, &s.o, pattern, 1);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &held, NULL), 1);
	follows(l, &run, 1, 5);
	load(l, run.states[3], run.nbytes[3]);
	follows(l, &run, 3, 2);
	load(l, run.states[run.n], run.nbytes[run.n]); /* the end of the run */
	assert_int_equal(event(l), 0);
	load(l, run.states[1], run.nbytes[1]);
	follows(l, &run, 1, MAX_EVENTS);
	assert_int_equal(penstock_loader_set_epoch(l, 0, NULL), 0);
	follows(l, &run, 0, 3);
	penstock_batch_release(held);
	penstock_loader_close(l);
}

static void resuming_reads_only_the_shard_of_the_state(void **state)
{
	static struct run run;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_stats stats;
	struct tar t = {0};
	const char *const shards[] = {"gone.tar", "long.tar"};
	char name[64];

	(void)state;
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "%03d.jpg", i);
		tar_add(&t, name, photos[i % nphotos].data, photos[i % nphotos].len);
		snprintf(name, sizeof(name), "%03d.cls", i);
		tar_add_text(&t, name, "1");
	}
	tar_end(&t);
	file_write("gone.tar", t.data, t.len);
	tar_save(&t, "long.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.epochs = 1;
	run_whole(&run, &s.o, shards, 2);
	assert_int_equal(unlink("gone.tar"), 0);
	s.o.state = run.states[run.n - 2]; /* the last batch */
	s.o.state_nbytes = (size_t)run.nbytes[run.n - 2];
	l = open_ok(&s.o, shards, 2);
	follows(l, &run, run.n - 2, 3);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	uint64_t most = 0;
	for (int i = 0; i < nphotos; i++)
		most = photos[i].len > most ? photos[i].len : most;
	assert_true(stats.bytes_read < (16 + 6) * (most + 2048));
	penstock_loader_close(l);
}

/* A member whose header says 0 bytes and whose size comes from the global pax header. */
static void sized_globally_add(struct tar *t, const char *name, const char *text)
{
	tar_add(t, name, "", 0);
	tar_put(t, text, strlen(text));
}

static void pax_global_headers_apply_after_a_resume(void **state)
{
	static const char *const shards[] = {"global.tar"};
	struct setting s;
	struct tar t = {0};
	char name[32], text[32];
	unsigned sum = 0;

	(void)state;
	tar_add_text(&t, "pax", "10 size=4\n");
	t.data[156] = 'g';
	memset(t.data + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += t.data[i];
	snprintf((char *)t.data + 148, 7, "%06o", sum);
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "%03d.cls", i);
		snprintf(text, sizeof(text), "%04d", i);
		sized_globally_add(&t, name, text);
	}
	tar_end(&t);
	tar_save(&t, "global.tar");
	setting_init(&s);
	s.o.on_error = PENSTOCK_FAIL;
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	resumes_everywhere(&s.o, shards, 1);
}

static void states_of_other_runs_are_refused_with_what_differs(void **state)
{
	static struct run run;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;
	uint8_t bytes[1024];
	const char *fewer = "t-{0..5}.tar", *swapped[] = {"t-{6..0}.tar"},
	           *renamed[] = {"t-{0..5}.tar::u-6.tar"};

	(void)state;
	setting_init(&s);
	run_whole(&run, &s.o, pattern, 1);
#define REFUSED(want, says, shards, ...)                                             \
	do {                                                                         \
		setting_init(&s);                                                    \
		memcpy(bytes, run.states[5], sizeof(bytes));                         \
		size_t n = (size_t)run.nbytes[5];                                    \
		__VA_ARGS__;                                                         \
		l = open_ok(&s.o, shards, 1);                                        \
		assert_int_equal(penstock_loader_state_load(l, bytes, n, &e), want); \
		assert_int_equal(e.code, -(want));                                   \
		if (!strstr(e.text, says))                                           \
			fail_msg("\"%s\" does not contain \"%s\"", e.text, says);    \
		assert_true(event(l) != 0); /* the loader is unchanged */            \
		penstock_loader_close(l);                                            \
	} while (0)
	REFUSED(-ESTALE, "with 7 shards, but the loader has 6", &fewer, );
	REFUSED(-ESTALE, "another order", swapped, );
	REFUSED(-ESTALE, "other names", renamed, );
	REFUSED(-ESTALE, "seed 0", pattern, s.o.seed = 1);
	REFUSED(-ESTALE, "lanes 4", pattern, s.o.lanes = 3);
	REFUSED(-ESTALE, "shuffle_window 12", pattern, s.o.shuffle_window = 13);
	REFUSED(-ESTALE, "order window", pattern, s.o.order = PENSTOCK_ORDER_SHARDS, s.o.shuffle_window = 12);
	REFUSED(-ESTALE, "bucket 0", pattern, s.o.bucket = 2);
	REFUSED(-ESTALE, "steps 0", pattern, s.o.steps = 2);
	REFUSED(-ESTALE, "end split, but this one has pad; open it with end=split", pattern,
	        s.o.end = PENSTOCK_END_PAD);
	REFUSED(-ESTALE, "other fields", pattern, s.f[0].hflip = 0.25);
	REFUSED(-ESTALE, "transform_version 0, but this one has 7; open it with transform_version=0", pattern,
	        s.o.transform_version = 7);
	REFUSED(-EINVAL, "not the state of a loader", pattern, n = 10);
	REFUSED(-EINVAL, "not the state of a loader", pattern, bytes[0] ^= 1);
	REFUSED(-ESTALE, "format of another version", pattern, bytes[7] = '3');
	REFUSED(-EINVAL, "damaged", pattern, n -= 8);
	REFUSED(-EINVAL, "damaged", pattern, bytes[n - 1] ^= 1);
	REFUSED(-EINVAL, "epoch 0, outside", pattern, s.o.epoch = 5);
#undef REFUSED
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_state_save(l, bytes, 10, &e), -ENOBUFS);
	assert_int_equal(penstock_loader_state_save(l, NULL, 0, &e), 272 + 4 * 64);
	penstock_loader_close(l);
}

/* Version 3 of the order differed in epoch 0 of order window alone, after the epoch's first batch. */
static void states_of_the_order_before_go_on_where_it_was_the_same(void **state)
{
	static const uint32_t orders[] = {PENSTOCK_ORDER_WINDOW, PENSTOCK_ORDER_SHARDS};
	static struct run run;
	unsigned refused = 0;

	(void)state;
	for (uint32_t k = 0; k < 2; k++) {
		struct setting s;

		setting_init(&s);
		s.o.order = orders[k];
		s.o.lanes = 1;
		s.o.shuffle_window = 64;
		run_whole(&run, &s.o, pattern, 1);
		for (int i = 0; i < run.n; i++) {
			uint64_t words[128], versions;
			struct penstock_loader *l = open_ok(&s.o, pattern, 1);
			size_t n = (size_t)run.nbytes[i];
			struct penstock_error e;

			memcpy(words, run.states[i], n);
			bool same = words[20] > 0 || words[21] == 0 || orders[k] != PENSTOCK_ORDER_WINDOW;
			versions = le64toh(words[4]);
			assert_int_equal(versions >> 48, 4);
			words[4] = htole64((versions & UINT64_MAX >> 16) | UINT64_C(3) << 48);
			words[1] = htole64(hash(0xcbf29ce484222325u, &words[2], n - 16));
			assert_int_equal(penstock_loader_state_load(l, words, n, &e), same ? 0 : -ESTALE);
			if (same)
				follows(l, &run, i, 9);
			refused += !same;
			penstock_loader_close(l);
		}
	}
	assert_true(refused > 1);
}

/* Makes a state of version 5 (penstock 0.3) of one of version 6: without the six words at the head's end, and
 * without datasets. Returns its length. */
static size_t state_5_make(uint64_t *words, size_t n)
{
	enum { NLANES = 2 + 18 + 7, HEAD_5 = NLANES + 1, MORE = 6 };
	size_t lanes = (size_t)le64toh(words[NLANES]) * 8;

	assert_true(n >= (HEAD_5 + MORE + lanes) * 8);
	words[0] = htole64((le64toh(words[0]) & UINT64_MAX >> 8) | (uint64_t)'5' << 56);
	memmove(words + HEAD_5, words + HEAD_5 + MORE, lanes * 8);
	n = (HEAD_5 + lanes) * 8;
	words[1] = htole64(hash(0xcbf29ce484222325u, &words[2], n - 16));
	return n;
}

/* States of 0.3 are resumed, at each step, in the middle of an epoch and at its end. */
static void states_of_version_5_are_resumed(void **state)
{
	static struct run run;
	struct setting s;

	(void)state;
	setting_init(&s);
	run_whole(&run, &s.o, pattern, 1);
	for (int i = 0; i < run.n; i++) {
		struct penstock_loader *l;
		struct penstock_error e = {0};
		uint64_t words[256];
		size_t n;

		memcpy(words, run.states[i], (size_t)run.nbytes[i]);
		n = state_5_make(words, (size_t)run.nbytes[i]);
		setting_init(&s);
		l = open_ok(&s.o, pattern, 1);
		if (penstock_loader_state_load(l, words, n, &e) < 0)
			fail_msg("state %d: %s", i, e.text);
		follows(l, &run, i, 9);
		penstock_loader_close(l);
	}
}

/* Such a state has the number of steps, and the rows of a step follow from its global batch, which a world of 97 does
 * not divide. */
static void a_damaged_state_of_version_5_is_refused(void **state)
{
	enum { WORLD = 2 + 18 + 5 };
	static struct run run;
	struct penstock_loader *l;
	struct penstock_error e = {0};
	uint64_t words[256];
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s);
	run_whole(&run, &s.o, pattern, 1);
	memcpy(words, run.states[1], (size_t)run.nbytes[1]);
	words[WORLD] = htole64(97);
	n = state_5_make(words, (size_t)run.nbytes[1]);
	setting_init(&s);
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_state_load(l, words, n, &e), -EINVAL);
	assert_non_null(strstr(e.text, "damaged"));
	penstock_loader_close(l);
}

/* Version 4 of the order had another one for mixes alone. */
static void states_of_the_mixes_before_hold_at_the_beginning_of_an_epoch_alone(void **state)
{
	static const char *const two[] = {"t-{0..3}.tar", "t-{4..6}.tar"};
	const double mix[] = {1, 1};

	(void)state;
	for (uint32_t batches = 0; batches < 2; batches++) {
		uint64_t words[256], first = 0;
		struct penstock_loader *l;
		struct penstock_error e = {0};
		struct setting s;
		size_t n;

		setting_init(&s);
		s.o.mix = mix;
		s.o.nmix = 2;
		l = open_ok(&s.o, two, 2);
		n = (size_t)save(l, (uint8_t *)words);
		first = event(l);
		if (batches > 0)
			n = (size_t)save(l, (uint8_t *)words);
		assert_int_equal(le64toh(words[4]) >> 48, 5);
		words[4] = htole64((le64toh(words[4]) & UINT64_MAX >> 16) | UINT64_C(4) << 48);
		words[1] = htole64(hash(0xcbf29ce484222325u, &words[2], n - 16));
		assert_int_equal(penstock_loader_state_load(l, words, n, &e), batches == 0 ? 0 : -ESTALE);
		if (batches == 0)
			assert_true(event(l) == first);
		else
			assert_non_null(strstr(e.text, "restart the epoch"));
		penstock_loader_close(l);
	}
}

/* Two datasets with names that change places, and another mix: with the flag the run goes on, at open and
 * later. */
static void another_mix_begins_at_the_place_of_a_state(void **state)
{
	static const char *const ab[] = {"t-{0..3}.tar", "t-{4..6}.tar"}, *const ba[] = {ab[1], ab[0]};
	static const char *const names[] = {"a", "b"}, *const swapped[] = {"b", "a"};
	const double even[] = {1, 1}, last[] = {0, 1};
	const struct penstock_mix_stage stages[] = {{.weights = even},
	        {.start = 6, .flags = PENSTOCK_STAGE_LINEAR | PENSTOCK_STAGE_ROWS, .weights = last}};
	uint64_t words[256];
	struct penstock_loader *l;
	struct penstock_error e = {0};
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s);
	s.o.mix = even;
	s.o.nmix = 2;
	s.o.steps = 20;
	s.o.mix_names = names;
	l = open_ok(&s.o, ab, 2);
	(void)event(l);
	n = (size_t)save(l, (uint8_t *)words);
	penstock_loader_close(l);
	s.o.mix = NULL;
	s.o.mix_stages = stages;
	s.o.nmix_stages = 2;
	s.o.mix_names = swapped;
	l = open_ok(&s.o, ba, 2);
	assert_int_equal(penstock_loader_state_load(l, words, n, &e), -ESTALE);
	assert_int_equal(penstock_loader_state_load_as(l, words, n, 4, &e), -EINVAL);
	assert_non_null(strstr(e.text, "unknown flags 0x4"));
	assert_int_equal(penstock_loader_state_load_as(l, words, n, PENSTOCK_STATE_NEW_MIX, &e), 0);
	for (int i = 0; i < 2; i++) {
		struct penstock_loader *other;
		uint64_t first = event(l);

		s.o.state = words;
		s.o.state_nbytes = n;
		s.o.state_flags = i ? 0 : PENSTOCK_STATE_NEW_MIX;
		other = open_ok(&s.o, ba, 2);
		assert_true(event(other) == first);
		penstock_loader_close(other);
		n = (size_t)save(l, (uint8_t *)words); /* a state of the new mix needs no flag */
	}
	penstock_loader_close(l);
}

/* Whatever numbers a state has, the loader gives batches or errors. */
static void states_with_random_numbers_are_safe(void **state)
{
	static struct run run;
	struct setting s;
	uint64_t words[256], r = 1;

	(void)state;
	setting_init(&s);
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	s.o.epochs = 0;
	for (int i = 0; i < 300; i++) {
		struct penstock_loader *l = open_ok(&s.o, pattern, 1);
		struct penstock_batch *b;

		assert_int_equal(event(l) != 0, 1);
		run.nbytes[0] = save(l, run.states[0]);
		memcpy(words, run.states[0], sizeof(words));
		for (int j = 0; j < 1 + i % 3; j++) {
			size_t w = 20 + (r = r * 6364136223846793005u + 1442695040888963407u) % 40;

			words[w] = i % 2 ? (r >> 33) % 8192 : r >> (r >> 58);
		}
		words[1] = hash(0xcbf29ce484222325u, &words[2], (size_t)run.nbytes[0] - 16);
		if (penstock_loader_state_load(l, words, (size_t)run.nbytes[0], NULL) == 0)
			for (int j = 0; j < 30 && penstock_loader_next(l, &b, NULL) == 1; j++)
				penstock_batch_release(b);
		penstock_loader_close(l);
	}
}

static void shards_that_became_shorter_are_an_error(void **state)
{
	static const char *const shards[] = {"shrunk.tar"};
	static struct run run;
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct tar t = {0};
	char name[32];

	(void)state;
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "%03d.cls", i);
		tar_add_text(&t, name, "1");
	}
	tar_end(&t);
	file_write("shrunk.tar", t.data, t.len);
	setting_init(&s);
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	s.o.on_error = PENSTOCK_FAIL;
	run_whole(&run, &s.o, shards, 1);
	for (size_t samples = 20; samples <= 26; samples += 6) {            /* the block begins at the 25th */
		memset(t.data + samples * 1024, 0, t.len - samples * 1024); /* valid, of the same size */
		file_write("shrunk.tar", t.data, t.len);
		l = open_ok(&s.o, shards, 1);
		load(l, run.states[5], run.nbytes[5]);
		assert_int_equal(penstock_loader_next(l, &b, &e), -ESTALE);
		assert_non_null(strstr(e.text, "fewer samples"));
		penstock_loader_close(l);
	}
	tar_free(&t);
}

/* The shard that the state is in has another size. Its count is known by an index, or not known. */
static void shards_of_another_size_are_an_error_when_they_are_opened(void **state)
{
	static const char *const shards[] = {"sized.tar"};
	static struct run run;
	struct ps_shard_index_result made;

	(void)state;
	for (int counted = 0; counted < 2; counted++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_error e;
		struct tar t = {0};
		char name[32];

		for (int i = 0; i < 60; i++) {
			snprintf(name, sizeof(name), "%03d.cls", i);
			tar_add_text(&t, name, "1");
		}
		tar_end(&t);
		file_write("sized.tar", t.data, t.len);
		setting_init(&s);
		s.o.fields = &s.f[1];
		s.o.nfields = 1;
		s.o.epochs = 1;
		s.o.end = counted ? PENSTOCK_END_DROP_LAST : PENSTOCK_END_UNEVEN;
		if (counted)
			assert_int_equal(
			        ps_shard_index_make("sized.tar", NULL, NULL, 0, NULL, &made, NULL), 0);
		run_whole(&run, &s.o, shards, 1);
		tar_put(&t, "more", 4);
		file_write("sized.tar", t.data, t.len);
		if (counted) /* of the new file */
			assert_int_equal(
			        ps_shard_index_make("sized.tar", NULL, NULL, 0, NULL, &made, NULL), 0);
		l = open_ok(&s.o, shards, 1);
		load(l, run.states[5], run.nbytes[5]);
		assert_int_equal(penstock_loader_next(l, &b, &e), -ESTALE);
		assert_non_null(strstr(e.text, "sized.tar: has "));
		assert_non_null(strstr(e.text, "when the state was saved"));
		load(l, run.states[0], run.nbytes[0]); /* a state before the shard was read */
		assert_true(event(l) != 0);
		penstock_loader_close(l);
		tar_free(&t);
	}
}

/* Asserts that a loader of `shards`, whose files may have moved since, resumes from the run's state or,
 * without `does`, refuses it. */
static void resumes(const char *const *shards, size_t n, const struct run *run, bool does)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;
	int rc;

	setting_init(&s);
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	l = open_ok(&s.o, shards, n);
	rc = penstock_loader_state_load(l, run->states[2], (size_t)run->nbytes[2], &e);
	if (rc != (does ? 0 : -ESTALE))
		fail_msg("%s ...: %d, %s", shards[0], rc, rc < 0 ? e.text : "");
	if (rc == 0)
		follows(l, run, 2, MAX_EVENTS);
	penstock_loader_close(l);
}

static void shard_write(const char *path, const char *cls)
{
	struct tar t = {0};
	char name[32];

	for (int i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "%03d.cls", i);
		tar_add_text(&t, name, cls);
	}
	tar_end(&t);
	tar_save(&t, path);
}

static void states_depend_on_the_parts_that_distinguish_names_only(void **state)
{
	static struct run run;
	struct setting s;
	char here[256], there[3][300];
	const char *absolute[] = {there[0], there[1], there[2]};

	(void)state;
	setting_init(&s);
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	assert_non_null(getcwd(here, sizeof(here)));
	for (int i = 0; i < 5; i++)
		assert_int_equal(mkdir(((const char *[]){"x", "x/a", "x/b", "y", "w"})[i], 0777), 0);
	shard_write("x/a/0.tar", "1");
	shard_write("x/b/0.tar", "2");
	shard_write("x/0.tar", "3");
#define RESUMES(does, ...)                          \
	resumes((const char *const[]){__VA_ARGS__}, \
	        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), &run, does)
	/* Shards with the same base name: the folders that distinguish them must not change. */
	run_whole(&run, &s.o, (const char *const[]){"x/a/0.tar", "x/b/0.tar", "x/0.tar"}, 3);
	RESUMES(true, "./x/a/0.tar", ".//x/b/../b/./0.tar", "w/../x/0.tar");
	RESUMES(false, "x/b/0.tar", "x/a/0.tar", "x/0.tar");
	for (int i = 0; i < 3; i++)
		snprintf(there[i], sizeof(there[i]), "%s/x/%s", here,
		        ((const char *[]){"a/0.tar", "b/0.tar", "0.tar"})[i]);
	resumes(absolute, 3, &run, true);
	assert_int_equal(chdir("x"), 0);
	RESUMES(true, "a/0.tar", "b/0.tar", "0.tar");
	RESUMES(true, "../x/a/0.tar", there[1], "0.tar");
	assert_int_equal(chdir(".."), 0);
	assert_int_equal(rename("x", "y/deep"), 0);
	RESUMES(true, "y/deep/a/0.tar", "y/deep/b/0.tar", "y/deep/0.tar");
	assert_int_equal(rename("y/deep/a", "y/deep/c"), 0);
	RESUMES(false, "y/deep/c/0.tar", "y/deep/b/0.tar", "y/deep/0.tar");

	/* Shards with different base names: each may move to another folder. */
	assert_int_equal(rename("y/deep/c/0.tar", "y/1.tar"), 0);
	run_whole(&run, &s.o, (const char *const[]){"y/deep/0.tar", "y/1.tar"}, 2);
	assert_int_equal(rename("y/1.tar", "w/1.tar"), 0);
	RESUMES(true, "y/deep/0.tar", "w/1.tar");
	file_write("y/list", "y/deep/0.tar", strlen("y/deep/0.tar"));
	RESUMES(true, "@y/list", "w/1.tar");
	RESUMES(true, "y/deep/0.tar::w/*.tar");
	assert_int_equal(rename("w/1.tar", "w/2.tar"), 0);
	RESUMES(false, "y/deep/0.tar", "w/2.tar");

	/* A single shard, and a shard that is listed twice. */
	run_whole(&run, &s.o, (const char *const[]){"w/2.tar"}, 1);
	assert_int_equal(rename("w", "v"), 0);
	RESUMES(true, "v/2.tar");
	RESUMES(true, "v");
	RESUMES(true, "./v/?.tar");
	run_whole(&run, &s.o, (const char *const[]){"v/2.tar", "v/2.tar"}, 2);
	RESUMES(true, "./v/2.tar", "v/2.tar");
#undef RESUMES
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(resuming_at_any_batch_gives_the_same_batches),
	        cmocka_unit_test(resuming_in_the_short_blocks_of_an_epoch_gives_the_same_batches),
	        cmocka_unit_test(each_rank_resumes_at_any_batch),
	        cmocka_unit_test(a_resumed_run_can_be_resumed),
	        cmocka_unit_test(a_loader_loads_its_own_earlier_and_later_states),
	        cmocka_unit_test(resuming_reads_only_the_shard_of_the_state),
	        cmocka_unit_test(pax_global_headers_apply_after_a_resume),
	        cmocka_unit_test(states_of_other_runs_are_refused_with_what_differs),
	        cmocka_unit_test(states_of_the_order_before_go_on_where_it_was_the_same),
	        cmocka_unit_test(states_of_version_5_are_resumed),
	        cmocka_unit_test(a_damaged_state_of_version_5_is_refused),
	        cmocka_unit_test(states_of_the_mixes_before_hold_at_the_beginning_of_an_epoch_alone),
	        cmocka_unit_test(another_mix_begins_at_the_place_of_a_state),
	        cmocka_unit_test(states_with_random_numbers_are_safe),
	        cmocka_unit_test(shards_that_became_shorter_are_an_error),
	        cmocka_unit_test(shards_of_another_size_are_an_error_when_they_are_opened),
	        cmocka_unit_test(states_depend_on_the_parts_that_distinguish_names_only),
	};
	int rc;

	rc = cmocka_run_group_tests_name("state", tests, setup, teardown);
	for (int i = 0; i < nphotos; i++)
		free(photos[i].data);
	return rc;
}
