/* States that a loader must refuse, each with its reason, and states that it must accept. The shards are
 * with and without indexes; ranks share all samples or have lanes of their own. */
#include "config.h"

#include "penstock.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "make_tar.h"

#include "batches.h"
#include "shard/index/index.h"
#include "shard/shard.h"
#include "state.h"

#define SHARDS 4
#define PER_SHARD 12
#define LONGER PER_SHARD /* additional samples in the last shard of l-N.tar */

static char folder[64];
static const char *const even[] = {"s-{0..3}.tar"}, *const uneven[] = {"l-{0..3}.tar"};
static uint8_t bytes[4096];

static void shard_make(char kind, int shard, int n)
{
	struct tar t = {0};
	char name[64], text[32];

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d-%03d.cls", shard, i);
		snprintf(text, sizeof(text), "%d", shard * 100 + i);
		tar_add_text(&t, name, text);
		snprintf(name, sizeof(name), "%d-%03d.w", shard, i);
		tar_add_text(&t, name, "3");
	}
	tar_end(&t);
	snprintf(name, sizeof(name), "%c-%d.tar", kind, shard);
	tar_save(&t, name);
}

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		shard_make('s', s, PER_SHARD);
		shard_make('l', s, PER_SHARD + (s == SHARDS - 1 ? LONGER : 0));
	}
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

static void setting_init(struct setting *s, uint32_t rank, uint32_t world)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "cls", PENSTOCK_INT64);
	s->o.fields = s->f;
	s->o.nfields = 1;
	s->o.rank = rank;
	s->o.world = world;
	s->o.batch = 12 / world;
	s->o.lanes = 4;
	s->o.shuffle_window = 4;
	s->o.end = PENSTOCK_END_UNEVEN;
	s->o.epochs = 2;
}

/* Takes some batches, then saves the state in `bytes`; returns its length. */
static size_t save_after(const struct setting *s, const char *const *shards, int batches)
{
	struct penstock_loader *l = open_ok(&s->o, shards, 1);
	struct penstock_error e;
	struct penstock_batch *b;

	for (int i = 0; i < batches; i++) {
		int rc = penstock_loader_next(l, &b, &e);
		if (rc < 0)
			fail_msg("%s", e.text);
		assert_int_equal(rc, 1);
		penstock_batch_release(b);
	}
	int n = penstock_loader_state_save(l, bytes, sizeof(bytes), &e);
	if (n < 0)
		fail_msg("%s", e.text);
	penstock_loader_close(l);
	return (size_t)n;
}

/* The result and the error of loading the state or, if that succeeds, of the first batch after it. */
static int load(const struct setting *s, const char *const *shards, size_t n, struct penstock_error *e)
{
	struct penstock_loader *l = open_ok(&s->o, shards, 1);
	struct penstock_batch *b;

	memset(e, 0, sizeof(*e));
	int rc = penstock_loader_state_load(l, bytes, n, e);
	if (rc == 0) {
		rc = penstock_loader_next(l, &b, e);
		if (rc == 1)
			penstock_batch_release(b);
		rc = rc > 0 ? 0 : rc;
	}
	penstock_loader_close(l);
	return rc;
}

static void refused(
        const struct setting *s, const char *const *shards, size_t n, int errnum, const char *says)
{
	struct penstock_error e;
	int r = load(s, shards, n, &e);

	if (r != -errnum || !strstr(e.text, says))
		fail_msg("%d, \"%s\", not %d, \"%s\"", r, e.text, -errnum, says);
}

static void taken(const struct setting *s, const char *const *shards, size_t n)
{
	struct penstock_error e;

	if (load(s, shards, n, &e) < 0)
		fail_msg("%s", e.text);
}

/* Makes the indexes of all shards, or removes them. */
static void index_all(bool make)
{
	for (int i = 0; i < 2 * SHARDS; i++) {
		struct ps_column_spec column;
		struct ps_shard_index_result result;
		struct ps_error err;
		char name[64], index[80];

		snprintf(name, sizeof(name), "%c-%d.tar", i % 2 ? 'l' : 's', i / 2);
		snprintf(index, sizeof(index), "%s" PS_PSX_SUFFIX, name);
		(void)remove(index);
		if (!make)
			continue;
		if (ps_column_spec_parse("w", &column, &err) < 0 ||
		        ps_shard_index_make(name, NULL, &column, 1, NULL, &result, &err) < 0)
			fail_msg("%s", err.text);
		ps_column_spec_fini(&column);
	}
}

/* The ranks had lanes of their own: a state of one rank does not have what the others had delivered. */
static void a_world_that_deals_lanes_differently_refuses_a_state_without_counts(void **state)
{
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s, 0, 2);
	s.o.lanes = 12; /* but there are 4, one for each shard */
	n = save_after(&s, even, 1);
	taken(&s, even, n);
	setting_init(&s, 0, 4);
	s.o.lanes = 12;
	taken(&s, even, n);
	setting_init(&s, 0, 3);
	s.o.lanes = 12;
	refused(&s, even, n, ESTALE, "are dealt differently in the two worlds");
	refused(&s, even, n, ESTALE, "continue with each rank's own state, or index the shards");
}

/* One of the ranks has the longer shard, and continues to read it after its other lane has ended. */
static void another_rank_refuses_a_state_after_the_first_lane_ended(void **state)
{
	unsigned tried = 0;

	(void)state;
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct penstock_batch *b;
		struct setting s;
		char says[96];
		int batches = 0;

		setting_init(&s, rank, 2);
		struct penstock_loader *l = open_ok(&s.o, uneven, 1);
		for (; penstock_loader_next(l, &b, NULL) == 1; batches++)
			penstock_batch_release(b);
		penstock_loader_close(l);
		if (batches * 6 <= 2 * PER_SHARD)
			continue;
		tried++;
		size_t n = save_after(&s, uneven, batches);
		taken(&s, uneven, n);
		setting_init(&s, 1 - rank, 2);
		snprintf(says, sizeof(says),
		        "the state was saved by rank %u of world 2 when lanes had begun to end", rank);
		refused(&s, uneven, n, ESTALE, says);
	}
	assert_int_equal(tried, 1);
}

/* With more ranks than shards, samples are dealt by the counts in the indexes. Such a run refuses a state of
 * ranks that had lanes of their own, and its own state is refused where indexes are missing. */
static void a_state_is_refused_if_indexes_were_added_or_removed(void **state)
{
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s, 0, 2);
	n = save_after(&s, even, 1);
	index_all(true);
	setting_init(&s, 0, 6); /* 4 shards on 6 ranks: samples are dealt by counts */
	refused(&s, even, n, ESTALE,
	        "each rank had its own shards; continue without the shards' indexes, or start the next "
	        "epoch");
	n = save_after(&s, even, 1);
	taken(&s, even, n);
	setting_init(&s, 0, 1);
	taken(&s, even, n);
	index_all(false);
	refused(&s, even, n, ESTALE, "where every shard had an index; this loader needs them, too");
}

/* Corrects the state's checksum. */
static void sum_again(size_t n)
{
	uint64_t h = hash(0xcbf29ce484222325u, bytes + 16, n - 16);

	memcpy(bytes + 8, &h, sizeof(h));
}

static void a_rank_outside_of_its_world_is_damage(void **state)
{
	struct setting s;
	size_t n, at = 0;

	(void)state;
	setting_init(&s, 2, 4);
	n = save_after(&s, even, 0);
	for (size_t i = 0; i + 16 <= n; i += 8)
		if (memcmp(bytes + i, (const uint64_t[]){htole64(2), htole64(4)}, 16) == 0)
			at = i;
	assert_true(at > 0);
	sum_again(n);
	taken(&s, even, n);
	for (uint64_t rank = 4; rank < 7; rank++) {
		memcpy(bytes + at, &(uint64_t){htole64(rank)}, 8);
		sum_again(n);
		refused(&s, even, n, EINVAL, "damaged");
	}
	memcpy(bytes + at, (const uint64_t[]){0, 0}, 16);
	sum_again(n);
	refused(&s, even, n, EINVAL, "damaged");
}

static void an_impossible_number_of_batches_is_damage(void **state)
{
	enum { AT_BATCHES = 8 * (2 + PS_STATE_NPRINT + 1) };
	struct setting s;
	uint64_t batches;
	size_t n;

	(void)state;
	setting_init(&s, 0, 1);
	n = save_after(&s, even, 2);
	memcpy(&batches, bytes + AT_BATCHES, sizeof(batches));
	assert_int_equal(le64toh(batches), 2);
	for (int i = 0; i < 2; i++) {
		batches = htole64(i ? UINT64_MAX : PS_STATE_MAX_BATCHES + 1);
		memcpy(bytes + AT_BATCHES, &batches, sizeof(batches));
		sum_again(n);
		refused(&s, even, n, EINVAL, "damaged");
	}
}

/* Values that no loader saves, with a correct checksum. */
static void impossible_values_are_damage(void **state)
{
	enum {
		EPOCH = 2 + PS_STATE_NPRINT,
		TURN = EPOCH + 3,
		LANES = EPOCH + 14,
		BLOCK = LANES + 1,
		COPY = LANES + 6,
	};
	static const struct {
		size_t at;
		uint64_t value;
	} words[] = {
	        {EPOCH, UINT64_MAX}, {TURN, SHARDS}, {BLOCK, PS_STATE_MAX_BATCHES}, {COPY, UINT16_MAX + 1}};
	struct setting s;
	uint64_t was;
	size_t n;

	(void)state;
	setting_init(&s, 0, 1); /* a lane for each shard */
	n = save_after(&s, even, 2);
	for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
		memcpy(&was, bytes + 8 * words[i].at, sizeof(was));
		memcpy(bytes + 8 * words[i].at, &(uint64_t){htole64(words[i].value)}, sizeof(was));
		sum_again(n);
		refused(&s, even, n, EINVAL, "the state is damaged");
		memcpy(bytes + 8 * words[i].at, &was, sizeof(was));
	}
	sum_again(n);
	taken(&s, even, n);
}

/* A folder is not taken for another folder whose name has the same end. */
static void folders_are_compared_by_their_whole_names(void **state)
{
	static const char *const ours[] = {"a/x.tar::ab/x.tar"}, *const theirs[] = {"c/x.tar::cb/x.tar"},
	                         *const all[] = {"a", "ab", "c", "cb"};
	struct setting s;
	char to[32];
	size_t n;

	(void)state;
	setting_init(&s, 0, 1);
	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		assert_int_equal(mkdir(all[i], 0755), 0);
		snprintf(to, sizeof(to), "%s/x.tar", all[i]);
		assert_int_equal(link("s-0.tar", to), 0);
	}
	n = save_after(&s, ours, 1);
	taken(&s, ours, n);
	refused(&s, theirs, n, ESTALE, "other names");
	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		snprintf(to, sizeof(to), "%s/x.tar", all[i]);
		assert_int_equal(unlink(to), 0);
		assert_int_equal(rmdir(all[i]), 0);
	}
}

/* The state is in the middle of each shard. */
static void a_state_is_refused_if_a_shard_was_replaced(void **state)
{
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s, 0, 1);
	n = save_after(&s, even, 2);
	taken(&s, even, n);
	for (int i = 0; i < SHARDS; i++)
		shard_make('s', i, PER_SHARD + LONGER);
	refused(&s, even, n, ESTALE, "when the state was saved; give the shards of that run");
	for (int i = 0; i < SHARDS; i++)
		shard_make('s', i, PER_SHARD);
	taken(&s, even, n);
}

static void a_state_of_another_version_is_refused(void **state)
{
	enum { AT_VERSIONS = 8 * (2 + 2) };
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s, 0, 1);
	n = save_after(&s, even, 1);
	bytes[AT_VERSIONS] ^= 1;
	sum_again(n);
	refused(&s, even, n, ESTALE,
	        "the state was saved by another version of the library or of libjpeg-turbo");
}

static void load_only(const struct setting *s, size_t n, const char *change)
{
	struct penstock_loader *l = open_ok(&s->o, even, 1);
	struct penstock_error e = {0};

	int r = penstock_loader_state_load(l, bytes, n, &e);
	penstock_loader_close(l);
	if (r != -ESTALE || !strstr(e.text, "the state was saved by a loader with other fields"))
		fail_msg("%s: %d, \"%s\"", change, r, e.text);
}

/* A change of any option that a batch's bytes depend on is refused. */
static void a_state_is_refused_if_an_option_of_a_field_differs(void **state)
{
	struct penstock_field f[4], sound[4];
	struct setting s;
	size_t n;

	(void)state;
	setting_init(&s, 0, 1);
	penstock_field_init(&sound[0], sizeof(f[0]), "jpg", PENSTOCK_IMAGE);
	penstock_field_init(&sound[1], sizeof(f[1]), "png", PENSTOCK_IMAGE);
	penstock_field_init(&sound[2], sizeof(f[2]), "mask.png", PENSTOCK_MASK);
	penstock_field_init(&sound[3], sizeof(f[3]), "npy", PENSTOCK_NPY);
	for (int i = 0; i < 2; i++)
		sound[i].image_width = sound[i].image_height = 8;
	sound[0].affine = 0.5;
	sound[0].degrees = 10;
	sound[2].follow = "jpg";
	sound[3].ndim = 1;
	sound[3].shape[0] = 2;
	s.o.fields = f;
	s.o.nfields = 4;
	memcpy(f, sound, sizeof(f));
	n = save_after(&s, even, 0);
#define OTHER(change)                        \
	do {                                 \
		memcpy(f, sound, sizeof(f)); \
		change;                      \
		load_only(&s, n, #change);   \
	} while (0)
	OTHER(f[2].follow = "png");
	OTHER(f[0].hflip = 0.25);
	OTHER(f[0].vflip = 0.25);
	OTHER(f[0].image_width = 16);
	OTHER(f[0].layout = PENSTOCK_NHWC);
	OTHER(f[0].dtype = PENSTOCK_F16);
	OTHER(f[0].interpolation = PENSTOCK_BICUBIC);
	OTHER(f[0].scale_min = 0.5);
	OTHER(f[0].ratio_max = 1.5);
	OTHER(f[0].mean[2] += 0.1f);
	OTHER(f[0].std[0] += 1);
	OTHER(f[0].affine = 0.25);
	OTHER(f[0].degrees = 20);
	OTHER((f[0].jitter = 0.5, f[0].hue = 0.1));
	OTHER((f[0].blur = 0.5, f[0].blur_size = 5));
	OTHER(f[0].gray = 0.5);
	OTHER((f[0].noise = 0.5, f[0].noise_sigma = 3));
	OTHER(f[0].fill = 3);
	OTHER(f[0].max_pixels = 1000);
	OTHER(f[2].dtype = PENSTOCK_U8);
	OTHER(f[2].fill = 7);
	OTHER(f[3].shape[0] = 3);
	OTHER(f[3].dtype = PENSTOCK_I64);
	OTHER(f[3].optional = 1);
	OTHER(f[3].name = "npz");
	OTHER(f[3].member = "other.npy");
#undef OTHER
	memcpy(f, sound, sizeof(f));
	struct penstock_loader *l = open_ok(&s.o, even, 1);
	assert_int_equal(penstock_loader_state_load(l, bytes, n, NULL), 0);
	penstock_loader_close(l);
}

#define MAX_ROWS 512

/* Stores the rows of the next batches, up to the epoch's end; returns how many. */
static int rows_of(struct penstock_loader *l, int most_batches, int64_t *ret_rows)
{
	struct penstock_batch *b;
	struct penstock_error e;
	int n = 0, r = 0;

	for (int i = 0; i < most_batches && (r = penstock_loader_next(l, &b, &e)) == 1; i++) {
		struct penstock_tensor t = field(b, "cls");

		assert_true(n + (int)t.shape[0] <= MAX_ROWS);
		memcpy(ret_rows + n, t.data, t.nbytes);
		n += (int)t.shape[0];
		penstock_batch_release(b);
	}
	if (r < 0)
		fail_msg("%s", e.text);
	return n;
}

/* Each sample comes three times in a row, and blocks begin between the three copies. */
static void a_run_resumes_between_the_copies_of_a_sample(void **state)
{
	static int64_t want[MAX_ROWS], have[MAX_ROWS];
	struct setting s;

	(void)state;
	index_all(true);
	for (uint32_t window = 1; window < 12; window += 3) {
		setting_init(&s, 0, 1);
		s.o.weights = "w";
		s.o.replacement = 1;
		s.o.batch = 5;
		s.o.shuffle_window = window;
		struct penstock_loader *l = open_ok(&s.o, even, 1);
		int all = rows_of(l, INT32_MAX, want);
		penstock_loader_close(l);
		assert_true(all >= SHARDS * PER_SHARD * 3 - 5);
		for (int batches = 1; batches * 5 < all; batches++) {
			size_t n = save_after(&s, even, batches);

			l = open_ok(&s.o, even, 1);
			assert_int_equal(penstock_loader_state_load(l, bytes, n, NULL), 0);
			int rest = rows_of(l, INT32_MAX, have);
			penstock_loader_close(l);
			assert_int_equal(rest, all - 5 * batches);
			assert_memory_equal(have, want + 5 * batches, (size_t)rest * sizeof(*have));
		}
	}
	index_all(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_world_that_deals_lanes_differently_refuses_a_state_without_counts),
	        cmocka_unit_test(another_rank_refuses_a_state_after_the_first_lane_ended),
	        cmocka_unit_test(a_state_is_refused_if_indexes_were_added_or_removed),
	        cmocka_unit_test(a_rank_outside_of_its_world_is_damage),
	        cmocka_unit_test(an_impossible_number_of_batches_is_damage),
	        cmocka_unit_test(impossible_values_are_damage),
	        cmocka_unit_test(folders_are_compared_by_their_whole_names),
	        cmocka_unit_test(a_state_of_another_version_is_refused),
	        cmocka_unit_test(a_state_is_refused_if_a_shard_was_replaced),
	        cmocka_unit_test(a_state_is_refused_if_an_option_of_a_field_differs),
	        cmocka_unit_test(a_run_resumes_between_the_copies_of_a_sample),
	};

	return cmocka_run_group_tests_name("state_refused", tests, setup, teardown);
}
