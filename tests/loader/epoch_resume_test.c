/* A state of any rank is loaded by all ranks of another world size, with another global batch: the rest of
 * the epoch, and the epoch after it, equal the model's. */
#include "config.h"

#include "epoch_fixture.h"

#include <errno.h>

static uint8_t bytes[8192];

/* Runs rank `rank` for some batches of the first epoch and saves a state in `bytes`. Returns its length. */
static int run_and_save(const struct setting *s, uint32_t rank, bool bare, uint32_t batches, int before)
{
	static struct course have;
	struct penstock_loader *l = open_setting(s, rank, bare, before > 0 ? bytes : NULL, (size_t)before);
	struct penstock_error e;
	int n;

	assert_non_null(l);
	have.rows.n = have.sizes.n = 0;
	for (uint32_t i = 0; i < batches; i++)
		assert_true(batch_take(l, &have));
	n = penstock_loader_state_save(l, bytes, sizeof(bytes), &e);
	if (n < 0)
		fail_msg("%s", e.text);
	penstock_loader_close(l);
	return n;
}

/* The course without its first batches. */
static void course_cut(struct course *c, uint32_t batches)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < batches; i++)
		rows += c->sizes.v[i];
	c->rows.n -= rows;
	c->sizes.n -= batches;
	memmove(c->rows.v, c->rows.v + rows, c->rows.n * sizeof(uint32_t));
	memmove(c->sizes.v, c->sizes.v + batches, c->sizes.n * sizeof(uint32_t));
}

/* All ranks of a world resume from the state in `bytes`, given at open or loaded later. False: it was
 * refused. */
static bool world_resumes(const struct setting *s, bool bare, int n, uint32_t batches)
{
	static struct course want, have;
	bool stale = false;

	for (uint32_t rank = 0; rank < s->world; rank++) {
		bool at_open = batches % 2;
		struct penstock_loader *l = open_setting(s, rank, bare, at_open ? bytes : NULL, (size_t)n);
		struct penstock_error e;
		int rc = 0;

		if (!l && at_open)
			return false;
		assert_non_null(l);
		if (!at_open)
			rc = penstock_loader_state_load(l, bytes, (size_t)n, &e);
		if (rc < 0) {
			assert_int_equal(rc, -ESTALE);
			penstock_loader_close(l);
			return false;
		}
		course_model(s, rank, &want);
		if (want.sizes.n < batches) { /* this rank's epoch ended before */
			penstock_loader_close(l);
			continue;
		}
		course_cut(&want, batches);
		have.rows.n = have.sizes.n = 0;
		while (batch_take_or_stale(l, &have, &stale))
			;
		if (!stale)
			same(s, rank, &have, &want);
		penstock_loader_close(l);
		if (stale)
			return false;
	}
	return true;
}

/* All ranks of a setting with `from` resume from the state in `bytes`: the rest of the epoch, then the one
 * after it. */
static void world_goes_on(const struct setting *s, int n, bool at_open)
{
	static struct course want, have;
	struct setting next = *s;

	next.epoch++;
	next.from = 0;
	for (uint32_t rank = 0; rank < s->world; rank++) {
		struct penstock_loader *l = open_setting(s, rank, false, at_open ? bytes : NULL, (size_t)n);
		struct penstock_error e;

		assert_non_null(l);
		if (!at_open && penstock_loader_state_load(l, bytes, (size_t)n, &e) < 0)
			fail_msg("%s", e.text);
		course_model(s, rank, &want);
		have.rows.n = have.sizes.n = 0;
		while (batch_take(l, &have))
			;
		same(s, rank, &have, &want);
		course_model(&next, rank, &want);
		have.rows.n = have.sizes.n = 0;
		while (!is_empty(&next) && batch_take(l, &have))
			;
		if (!is_empty(&next))
			same(&next, rank, &have, &want);
		penstock_loader_close(l);
	}
}

/* The run goes on with another number of ranks and another global batch. */
static void setting_change(struct setting *s, const struct setting *before, uint32_t batches)
{
	*s = *before;
	s->from = rows_model(before, batches);
	setting_world(s, 1 + rnd(6));
	s->batch = 1 + rnd(7);
	s->automatic = rnd(2);
}

/* Any rank saves a state, in an epoch of known counts or in an endless one: a run of any world size and
 * global batch resumes with the next sample, and again in the same epoch. */
static void any_world_and_batch_resumes_a_state_of_another(void **state)
{
	uint32_t tried = 0, twice = 0;

	(void)state;
	for (int i = 0; i < TRIES(5000) && tried < TRIES(250); i++) {
		static struct course course;
		struct setting a, b, c;
		uint32_t rank, batches;
		int n;

		setting_random(&a);
		a.first = (uint64_t)a.batch * a.world;
		if (!setting_wanted(&a) || !is_shared(&a) || is_empty(&a))
			continue;
		rank = rnd(a.world);
		course_model(&a, rank, &course);
		if (course.sizes.n < 2)
			continue;
		batches = 1 + rnd(course.sizes.n - 1);
		n = run_and_save(&a, rank, false, batches, 0);
		setting_change(&b, &a, batches);
		if (!setting_wanted(&b) || !is_shared(&b) ||
		        (b.order != PENSTOCK_ORDER_WINDOW && b.order != PENSTOCK_ORDER_SHARDS))
			b.automatic = false;
		if (!setting_wanted(&b) || !is_shared(&b))
			continue;
		world_goes_on(&b, n, rnd(2));
		tried++;
		rank = rnd(b.world);
		course_model(&b, rank, &course);
		if (course.sizes.n < 2)
			continue;
		batches = 1 + rnd(course.sizes.n - 1);
		n = run_and_save(&b, rank, false, batches, n);
		setting_change(&c, &b, batches);
		if (c.order != PENSTOCK_ORDER_WINDOW && c.order != PENSTOCK_ORDER_SHARDS)
			c.automatic = false;
		if (!setting_wanted(&c) || !is_shared(&c))
			continue;
		world_goes_on(&c, n, rnd(2));
		twice++;
	}
	print_message("%u resumed, %u of them twice\n", tried, twice);
	assert_int_equal(tried, TRIES(250));
	assert_true(twice > TRIES(100));
}

/* Without indexes each rank reads its own lanes. All world sizes deal the lanes alike until the first lane
 * ends; after that a state may be refused. */
static void ranks_with_own_lanes_resume_in_another_world_size(void **state)
{
	static const uint32_t worlds[] = {1, 2, 4};
	uint32_t refused = 0, went = 0;

	(void)state;
	for (int i = 0; i < TRIES(120); i++) {
		struct setting a = {.nshards = SHARDS,
		        .order = 1 + rnd(2),
		        .lanes = 4,
		        .window = 1 + rnd(30),
		        .seed = rnd(50),
		        .sets = {0, SHARDS}};
		struct setting b;
		static struct course course;
		uint32_t batches = 1 + rnd(3), rank;
		int n;

		setting_world(&a, worlds[rnd(3)]);
		a.batch = 8 / a.world;
		b = a;
		setting_world(&b, worlds[rnd(3)]);
		b.batch = 8 / b.world;
		rank = rnd(a.world);
		course_model(&a, rank, &course);
		batches = batches < course.sizes.n ? batches : course.sizes.n;
		n = run_and_save(&a, rank, true, batches, 0);
		if (world_resumes(&b, true, n, batches))
			went++;
		else
			refused++;
	}
	print_message("%u resumed, %u were refused\n", went, refused);
	assert_true(went > TRIES(40));
}

/* Lengths are not known. The state is saved when lanes have given few samples, or only skipped ones, or at
 * the end of the epoch. */
static void skip_and_take_hold_after_a_resume(void **state)
{
	uint32_t tried = 0;

	(void)state;
	while (tried < TRIES(120)) {
		struct setting s = {.nshards = 1 + rnd(SHARDS),
		        .order = 1 + rnd(2),
		        .lanes = 1 + rnd(8),
		        .window = 1 + rnd(30),
		        .seed = rnd(50),
		        .skip = rnd(30),
		        .take = rnd(2) * rnd(20),
		        .batch = 1 + rnd(4),
		        .world = 1,
		        .sets = {0, SHARDS}};
		static struct course course;
		uint32_t batches;
		int n;

		s.sets[1] = s.nshards;
		course_model(&s, 0, &course);
		if (course.sizes.n == 0)
			continue;
		batches = rnd(3) == 0 ? course.sizes.n : 1 + rnd(course.sizes.n < 4 ? course.sizes.n : 4);
		n = run_and_save(&s, 0, true, batches, 0);
		assert_true(world_resumes(&s, true, n, batches));
		tried++;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(any_world_and_batch_resumes_a_state_of_another),
	        cmocka_unit_test(ranks_with_own_lanes_resume_in_another_world_size),
	        cmocka_unit_test(skip_and_take_hold_after_a_resume),
	};

	return cmocka_run_group_tests_name("epoch_resume", tests, shards_make, shards_remove);
}
