/* Samples by number, permuted epochs, plans. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include "make_tar.h"
#include "order/order.h"
#include "random/random.h"
#include "shard/index/index.h"
#include "shard/shard.h"

#define SHARDS 3
#define EACH 7

static char folder[64];

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct ps_shard_index_result result;
		struct ps_error err;
		struct tar t = {0};
		char name[64], text[64];

		for (int i = 0; i < EACH; i++) {
			snprintf(name, sizeof(name), "%d.cls", i);
			snprintf(text, sizeof(text), s == 1 && i == 3 ? "bad" : "%d", s * EACH + i);
			tar_add_text(&t, name, text);
		}
		tar_end(&t);
		snprintf(name, sizeof(name), "s-%d.tar", s);
		tar_save(&t, name);
		assert_int_equal(ps_shard_index_make(name, NULL, NULL, 0, NULL, &result, &err), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

static struct penstock_loader *open_with(struct penstock_options *o, struct penstock_error *e)
{
	static const char *const shards[] = {"s-{0..2}.tar"};
	static struct penstock_field field;
	struct penstock_loader *l;

	penstock_field_init(&field, sizeof(field), "cls", PENSTOCK_INT64);
	o->fields = &field;
	o->nfields = 1;
	return penstock_loader_open(o, shards, 1, &l, e) < 0 ? NULL : l;
}

static const int64_t *labels(const struct penstock_batch *b)
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_field(b, "cls", &t, NULL), 0);
	return t.data;
}

static void get_gives_samples_by_number(void **state)
{
	static const uint64_t numbers[] = {20, 0, 7, 6, 7}, bad[] = {10, 2}, none[] = {3, 21};
	struct penstock_options o;
	struct penstock_batch *b, *next;
	struct penstock_batch_info info;
	struct penstock_error e;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.on_error = PENSTOCK_SKIP;
	o.epoch = 5;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	assert_int_equal(penstock_loader_next(l, &next, &e), 1); /* held meanwhile */
	assert_int_equal(penstock_loader_get(l, numbers, 5, &b, &e), 0);
	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, 5);
	assert_int_equal(info.epoch, 5); /* random choices depend on it */
	for (int i = 0; i < 5; i++)
		assert_int_equal(labels(b)[i], numbers[i]);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_get(l, bad, 2, &b, &e), 0);
	penstock_batch_info(b, &info);
	assert_int_equal(info.bad, 1);
	assert_int_equal(labels(b)[0], 2);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_get(l, bad, 1, &b, &e), 0); /* a blank batch */
	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, 1);
	assert_int_equal(info.valid, 0);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_get(l, none, 2, &b, &e), -ERANGE);
	assert_non_null(strstr(e.text, "sample 21: there are 21"));
	assert_int_equal(penstock_loader_get(l, none, 0, &b, &e), -EINVAL);
	penstock_batch_release(next);
	penstock_loader_close(l);
}

static void an_error_of_get_leaves_that_of_the_epoch_as_it_is(void **state)
{
	static const char *const keys[] = {"the-first-bad", "another-bad--"}; /* of one length */
	static const uint64_t second[] = {1};
	struct ps_shard_index_result result;
	struct penstock_error_detail d;
	struct penstock_options o;
	struct penstock_loader *l;
	struct penstock_field f;
	struct penstock_batch *b;
	struct ps_error err;
	struct tar t = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s.cls", keys[i]);
		tar_add_text(&t, name, "bad");
	}
	tar_end(&t);
	tar_save(&t, "two.tar");
	assert_int_equal(ps_shard_index_make("two.tar", NULL, NULL, 0, NULL, &result, &err), 0);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "cls", PENSTOCK_INT64);
	o.fields = &f;
	o.nfields = 1;
	o.order = PENSTOCK_ORDER_NONE;
	assert_int_equal(penstock_loader_open(&o, &(const char *){"two.tar"}, 1, &l, NULL), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(penstock_loader_next(l, &b, NULL), -EBADMSG);
		assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
		assert_string_equal(d.key, keys[0]);
		assert_int_equal(penstock_loader_get(l, second, 1, &b, NULL), -EBADMSG);
		assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
		assert_string_equal(d.key, keys[1]);
	}
	penstock_loader_close(l);
}

static void samples_by_number_and_permutations_need_indexes(void **state)
{
	struct penstock_options o;
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t zero = 0;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.index_dir = "nowhere";
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	assert_int_equal(penstock_loader_get(l, &zero, 1, &b, &e), -ENODATA);
	assert_non_null(strstr(e.text, "nowhere: cannot read the folder of indexes"));
	penstock_loader_close(l);
	o.order = PENSTOCK_ORDER_PERMUTATION;
	assert_null(open_with(&o, &e));
	assert_int_equal(e.code, EINVAL);
	assert_non_null(strstr(e.text, "order permutation needs"));
	o.order = PENSTOCK_ORDER_WINDOW;
	o.world = 2;
	o.end = PENSTOCK_END_SPLIT;
	assert_null(open_with(&o, &e));
	assert_non_null(strstr(e.text, "index"));
	assert_non_null(strstr(e.text, "steps="));
	assert_non_null(strstr(e.text, "uneven"));
}

static void permutation_refuses_shards_that_are_not_in_the_cache(void **state)
{
	struct penstock_options o;
	struct penstock_error e;
	struct penstock_loader *l;

	(void)state;
	if (setxattr("s-1.tar", "user.penstock.state", "partial", 7, 0) < 0)
		return; /* the file system has no attributes */
	penstock_options_init(&o, sizeof(o));
	o.order = PENSTOCK_ORDER_PERMUTATION;
	assert_null(open_with(&o, &e));
	assert_int_equal(e.code, EINVAL);
	assert_non_null(strstr(e.text, "1 of 3 shards are not in the cache"));
	o.permute_remote = 1;
	l = open_with(&o, &e);
	assert_non_null(l);
	penstock_loader_close(l);
	assert_int_equal(removexattr("s-1.tar", "user.penstock.state"), 0);
}

static void a_permutation_gives_each_number_once(void **state)
{
	static uint8_t seen[3000];

	(void)state;
	for (uint64_t n = 1; n < 3000; n = n * 5 / 4 + 1) {
		struct ps_permutation p;

		ps_permutation_init(&p, n, 7, n, 0);
		memset(seen, 0, sizeof(seen));
		for (uint64_t i = 0; i < n; i++) {
			uint64_t x = ps_permutation_at(&p, i);

			assert_true(x < n && !seen[x]);
			seen[x] = 1;
		}
	}
}

static void plans_name_each_ranks_files_once(void **state)
{
	char a[] = "/m/a.tar", b[] = "/m/b \"q\".tar", c[] = "/elsewhere/c.tar", d[] = "/m/sub/d.tar";
	char *const shards[] = {a, b, c, d};
	struct ps_error err;
	char *text;

	(void)state;
	struct ps_order *order = ps_order_new(
	        &(struct ps_order_options){
	                .mode = PS_ORDER_NONE, .nshards = 4, .lanes = 2, .world = 1, .repeat = PS_ENDLESS},
	        &err);
	struct ps_planner_options o = {
	        .order = order, .shards = shards, .nshards = 4, .job = "j", .world = 1, .epochs = 1};

	text = ps_plan_text(&o, "/m/", 5, 0);
	assert_string_equal(text,
	        "{\"penstock_plan\": 1, \"job\": \"j\", \"rank\": 0, \"world\": 1, \"epoch\": 5, "
	        "\"files\": [\"a.tar\", \"b \\\"q\\\".tar\", \"sub/d.tar\"]}\n");
	free(text);
	text = ps_plan_text(&o, "/m/", 5, 7);
	assert_non_null(strstr(text, "\"epoch\": 5, \"files_done\": 7, \"files\": [\"a.tar\""));
	free(text);
	/* What is read now: at the beginning of an epoch; in a shard after 10 samples of 100 bytes on
	 * average, in a block of 16. */
	struct ps_position at = {.epoch = 5};
	text = ps_plan_reads_text(&o, "/m/", &at);
	assert_string_equal(
	        text, "{\"penstock_reads\": 1, \"files\": [\"a.tar\"], \"from\": [0], \"bytes\": 0}\n");
	free(text);
	assert_int_equal(ps_position_init(&at, 1), 0);
	at.lanes[0] = (struct ps_lane_position){.block = 3, .k = 3, .ordinal = 10, .offset = 1000};
	text = ps_plan_reads_text(&o, "/m/", &at);
	assert_non_null(strstr(text, "\"files\": [\"sub/d.tar\"], \"from\": [1000], \"bytes\": 1600}\n"));
	free(text);
	at.lanes[0].k = PS_PLACE_UNKNOWN;
	text = ps_plan_reads_text(&o, "/m/", &at);
	assert_non_null(strstr(text, "\"files\": [], \"from\": [], \"bytes\": 0}\n"));
	free(text);
	at.lanes[0] = (struct ps_lane_position){.k = 2, .ordinal = 1, .offset = 1}; /* not on the mount */
	text = ps_plan_reads_text(&o, "/m/", &at);
	assert_non_null(strstr(text, "\"files\": [], \"from\": [], \"bytes\": 0}\n"));
	free(text);
	ps_position_fini(&at);
	/* With sample numbers: shards in the order of their first use. */
	o.uses = &(struct ps_uses){.shards = (uint32_t[]){3, 2, 0}, .n = 3};
	text = ps_plan_text(&o, "/m/", 5, 0);
	assert_string_equal(text,
	        "{\"penstock_plan\": 1, \"job\": \"j\", \"rank\": 0, \"world\": 1, \"epoch\": 5, "
	        "\"files\": [\"sub/d.tar\", \"a.tar\"]}\n");
	free(text);
	o.uses = NULL;
	/* The shard of a repeat is last, unless the rank reads it anyway. */
	o.order = ps_order_new(
	        &(struct ps_order_options){
	                .mode = PS_ORDER_NONE, .nshards = 4, .lanes = 2, .world = 2, .repeat = 1},
	        &err);
	o.repeat = &(uint32_t){3};
	text = ps_plan_text(&o, "/m/", 5, 0);
	assert_non_null(strstr(text, "\"files\": [\"a.tar\", \"sub/d.tar\"]"));
	free(text);
	o.repeat = &(uint32_t){0};
	text = ps_plan_text(&o, "/m/", 5, 0);
	assert_non_null(strstr(text, "\"files\": [\"a.tar\"]"));
	free(text);
	ps_order_free(o.order);
	o.order = order;
	o.repeat = NULL;
	text = ps_plan_position_text(&o, 5, 3);
	assert_string_equal(text,
	        "{\"penstock_position\": 1, \"job\": \"j\", \"rank\": 0, \"epoch\": 5, \"files_done\": 3}\n");
	free(text);
	ps_order_free(order);
	assert_null(ps_planner_new(
	        &(struct ps_planner_options){.shards = shards, .nshards = 4, .job = "j"}, &at));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(get_gives_samples_by_number),
	        cmocka_unit_test(an_error_of_get_leaves_that_of_the_epoch_as_it_is),
	        cmocka_unit_test(samples_by_number_and_permutations_need_indexes),
	        cmocka_unit_test(permutation_refuses_shards_that_are_not_in_the_cache),
	        cmocka_unit_test(a_permutation_gives_each_number_once),
	        cmocka_unit_test(plans_name_each_ranks_files_once),
	};

	return cmocka_run_group_tests_name("get", tests, setup, teardown);
}
