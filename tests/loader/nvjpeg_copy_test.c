/* Which bytes of a batch are copied to the device when the GPU decodes images: all except the rows that the
 * GPU decodes. Runs with the mocks, whose driver counts copies. */
#include "config.h"

#include <errno.h>

#include "batch/batch.h"
#include "batch/parts.h"
#include "nvjpeg_fixture.h"

#define MAX_BATCHES 64
#define ROW_NBYTES ((uint64_t)WIDTH * HEIGHT * 3)

struct sent {
	uint64_t nbytes, ncopies;
	uint32_t nrows;
	int64_t shards[BATCH], samples[BATCH];
};

struct counted {
	struct sent batches[MAX_BATCHES];
	uint32_t n;
	uint64_t sum; /* of nbytes */
	struct penstock_stats stats;
};

static void numbers_get(struct penstock_batch *b, const char *name, int64_t to[static BATCH])
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_field(b, name, &t, NULL), 0);
	assert_true(t.nbytes <= BATCH * sizeof(*to));
	from_device(to, t.data, t.nbytes);
}

/* A batch's tensors and all that is copied from its slot are in one piece of device memory. */
static void batch_count(struct penstock_batch *b, struct sent *s)
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_sync(b, NULL), 0);
	assert_int_equal(penstock_batch_field(b, "cls", &t, NULL), 0);
	s->nrows = (uint32_t)t.shape[0];
	gpu.copied_to(t.data, &s->nbytes, &s->ncopies);
	numbers_get(b, "__shard__", s->shards);
	numbers_get(b, "__sample__", s->samples);
}

static struct counted *count(const struct setting *s)
{
	struct counted *c = calloc(1, sizeof(*c));
	struct penstock_loader *l = loader_open(s);
	struct penstock_batch *b;
	struct penstock_error e;

	assert_non_null(c);
	while (penstock_loader_next(l, &b, &e) == 1) {
		assert_true(c->n < MAX_BATCHES);
		batch_count(b, &c->batches[c->n]);
		c->sum += c->batches[c->n++].nbytes;
		penstock_batch_release(b);
	}
	assert_int_equal(penstock_loader_stats(l, &c->stats, sizeof(c->stats), NULL), 0);
	penstock_loader_close(l);
	return c;
}

static void setting_of(struct setting *s, double share)
{
	setting_init(s, "photos.tar", "cuda", share);
	s->o.fields = s->f;
	s->o.batch = BATCH - 1; /* the last batch has fewer rows */
}

/* Whether row `row` of the slot is not copied if the GPU decodes `share` of the images. */
static bool is_left_out(const struct sent *s, uint32_t row, uint32_t share)
{
	return row >= s->nrows ||
	       ps_offload_takes(share, 5, (uint64_t)s->shards[row], (uint64_t)s->samples[row]);
}

/* Asserts that all bytes except the GPU's rows are copied. Images are the first field of a slot: the fields
 * that follow are copied together with the last rows. */
static void all_but_gpu_rows_are_copied(const struct sent *s, const struct sent *whole, uint32_t share)
{
	uint64_t left_out = 0, ncopies = 1;

	assert_memory_equal(s->samples, whole->samples, s->nrows * sizeof(*s->samples));
	for (uint32_t row = 0; row < BATCH - 1; row++) {
		bool out = is_left_out(s, row, share);

		left_out += out;
		ncopies += row > 0 && out && !is_left_out(s, row - 1, share);
	}
	assert_int_equal(s->nbytes, whole->nbytes - left_out * ROW_NBYTES);
	assert_int_equal(s->ncopies, ncopies);
}

static void rows_that_the_gpu_decodes_are_not_copied(void **state)
{
	static const double shares[] = {0.2, 0.5, 0.8, 1};
	struct counted *whole, *c;
	struct setting s;

	(void)state;
	setting_of(&s, 0);
	whole = count(&s);
	assert_in_range(whole->n, 6, MAX_BATCHES);
	for (size_t i = 0; i < PS_ARRAY_LEN(shares); i++) {
		setting_of(&s, shares[i]);
		c = count(&s);
		assert_int_equal(c->n, whole->n);
		for (uint32_t k = 0; k < c->n; k++)
			all_but_gpu_rows_are_copied(&c->batches[k], &whole->batches[k],
			        (uint32_t)(shares[i] * PS_OFFLOAD_ALL + 0.5));
		assert_int_equal(c->sum, c->stats.copied_bytes);
		free(c);
	}
	assert_int_equal(whole->sum, whole->stats.copied_bytes);
	free(whole);
}

/* If the GPU decodes all rows, one copy has the labels and numbers, and no images. */
static void a_batch_that_the_gpu_decodes_needs_one_copy(void **state)
{
	struct counted *c;
	struct setting s;

	(void)state;
	setting_of(&s, 1);
	c = count(&s);
	for (uint32_t k = 0; k < c->n; k++) {
		assert_int_equal(c->batches[k].ncopies, 1);
		assert_true(c->batches[k].nbytes < ROW_NBYTES);
	}
	assert_int_equal(c->stats.cpu_images, 0);
	free(c);
}

/* The engine refuses every image: the CPU decodes all of them, and they are copied. */
static void rows_that_the_engine_refuses_are_copied(void **state)
{
	struct counted *c, *whole;
	struct setting s;

	(void)state;
	setting_of(&s, 0);
	whole = count(&s);
	gpu.fail_batches(1000);
	gpu.set(0, 0, 1, 0);
	setting_of(&s, 1);
	s.o.end = PENSTOCK_END_DROP_LAST; /* full batches: nothing is left out */
	c = count(&s);
	assert_true(c->n > 0 && c->stats.gpu_engine_images == 0);
	for (uint32_t k = 0; k < c->n; k++)
		assert_int_equal(c->batches[k].nbytes, whole->batches[k].nbytes);
	free(c);
	free(whole);
	setting_of(&s, 1);
	same_as_on_the_cpu(&s, NULL);
}

/* Gaps shorter than PS_SEND_GAP do not split a copy, although the GPU decodes the rows in them. */
static void small_rows_are_copied_together(void **state)
{
	struct counted *c, *whole;
	struct setting s;

	(void)state;
	for (int i = 0; i < 2; i++) {
		setting_of(&s, i ? 0.5 : 0);
		s.f[0].image_width = s.f[0].image_height = 16;
		*(i ? &c : &whole) = count(&s);
	}
	assert_int_equal(c->n, whole->n);
	assert_true(16 * 16 * 3 * (uint64_t)BATCH < PS_SEND_GAP);
	for (uint32_t k = 0; k < c->n; k++) {
		assert_int_equal(c->batches[k].nbytes, whole->batches[k].nbytes);
		assert_int_equal(c->batches[k].ncopies, 1);
	}
	same_as_on_the_cpu(&s, NULL);
	free(c);
	free(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(rows_that_the_gpu_decodes_are_not_copied),
	        TEST(a_batch_that_the_gpu_decodes_needs_one_copy),
	        TEST(rows_that_the_engine_refuses_are_copied),
	        TEST(small_rows_are_copied_together),
	};

	gpu_open();
	return gpu.set ? cmocka_run_group_tests(tests, shards_make, shards_remove) : 77;
}
