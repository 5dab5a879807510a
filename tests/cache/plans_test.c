/* Plans: which files are announced, when they are needed, which uses are over, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "policy/policy.h"

#define DATASET 7

static struct ps_plans *plans;
static const uint32_t datasets[] = {DATASET};
static const struct ps_plan_teller owner = {.feed = 1, .datasets = datasets, .ndatasets = 1};
static const struct ps_plan_teller other = {.feed = 2, .datasets = datasets, .ndatasets = 1};

static int setup(void **state)
{
	(void)state;
	plans = ps_plans_new();
	return plans ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ps_plans_free(plans);
	return 0;
}

static struct ps_plan_file file_of(unsigned i)
{
	struct ps_plan_file file = {.node = i + 1, .dataset = DATASET};
	char text[16];

	snprintf(text, sizeof(text), "%u", i);
	ps_id_of_strings((const char *[]){text}, 1, &file.id);
	return file;
}

static struct ps_plan_who who_of(uint64_t epoch)
{
	return (struct ps_plan_who){.job = "job", .world = 1, .epoch = epoch};
}

/* Announces an epoch with the files [first, first + n). */
static int announce(
        const struct ps_plan_teller *teller, uint64_t epoch, unsigned first, unsigned n, double now_s)
{
	struct ps_plan_file *files = calloc(n, sizeof(*files));
	struct ps_plan_who who = who_of(epoch);

	for (unsigned i = 0; i < n; i++)
		files[i] = file_of(first + i);
	int rc = ps_plans_tell(plans, teller, &who, files, n, now_s);
	free(files);
	return rc;
}

static int position(const struct ps_plan_teller *teller, uint64_t epoch, uint64_t done, double now_s)
{
	struct ps_plan_who who = who_of(epoch);

	return ps_plans_position(plans, teller, &who, done, now_s);
}

static enum ps_policy_need need(unsigned i, double *ret_when)
{
	struct ps_plan_need need;
	struct ps_plan_file file = file_of(i);
	enum ps_policy_need kind = ps_plans_need(plans, &file.id, &need);

	if (ret_when)
		*ret_when = need.when_s;
	return kind;
}

static void open_file(unsigned i)
{
	struct ps_plan_file file = file_of(i);

	ps_plans_opened(plans, &file.id, false);
}

static json_int_t counted(const char *name)
{
	json_t *stats = ps_plans_stats(plans, 0);
	json_int_t n = json_integer_value(json_object_get(stats, name));

	json_decref(stats);
	return n;
}

static void planned_files_are_needed_in_the_order_of_epochs(void **state)
{
	double a, b;

	(void)state;
	assert_int_equal(need(0, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(announce(&owner, 1, 10, 10, 100), 0);
	assert_int_equal(need(0, &a), PS_NEED_PLANNED);
	assert_int_equal(need(15, &b), PS_NEED_PLANNED);
	assert_true(a < b);
	assert_int_equal(need(9, &b), PS_NEED_PLANNED);
	assert_true(a == b); /* within an epoch the place does not matter */
}

static void files_before_the_position_are_over(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(position(&owner, 0, 4, 101), 0);
	assert_int_equal(need(3, NULL), PS_NEED_NEVER);
	assert_int_equal(need(4, NULL), PS_NEED_PLANNED);
	assert_int_equal(position(&owner, 1, 0, 102), 0);
	assert_int_equal(need(9, NULL), PS_NEED_NEVER);
}

static void a_file_opened_in_its_turn_is_over(void **state)
{
	double first, second;

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 100, 100), 0);
	assert_int_equal(announce(&owner, 1, 0, 100, 100), 0);
	assert_int_equal(need(2, &first), PS_NEED_PLANNED);
	open_file(2);
	assert_int_equal(need(2, &second), PS_NEED_PLANNED);
	assert_true(second > first);
	open_file(2); /* once more in the same epoch: the next use stays */
	assert_int_equal(need(2, &first), PS_NEED_PLANNED);
	assert_true(second == first);
	open_file(90); /* of a lane that is far ahead of the others */
	assert_int_equal(need(90, &first), PS_NEED_PLANNED);
	assert_true(first == second);
	assert_int_equal(counted("foreseen_opens"), 2);
	assert_int_equal(counted("unforeseen_opens"), 1);
	/* At the end of an epoch, files of the next one are read ahead. */
	for (unsigned i = 0; i < 95; i++)
		open_file(i);
	assert_int_equal(counted("unforeseen_opens"), 3);
	open_file(3);
	assert_int_equal(need(3, NULL), PS_NEED_NEVER);
	assert_int_equal(need(80, NULL), PS_NEED_PLANNED);
}

static void the_earliest_need_of_all_feeds_counts(void **state)
{
	double alone, both;

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 50, 100), 0);
	assert_int_equal(announce(&owner, 1, 50, 50, 100), 0);
	assert_int_equal(need(60, &alone), PS_NEED_PLANNED);
	assert_int_equal(announce(&other, 0, 60, 5, 100), 0);
	assert_int_equal(need(60, &both), PS_NEED_PLANNED);
	assert_true(both < alone);
	ps_plans_drop_feed(plans, other.feed);
	assert_int_equal(need(60, &both), PS_NEED_PLANNED);
	assert_true(both == alone);
}

static void a_plan_ends_with_its_feed_or_without_a_heartbeat(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(announce(&other, 0, 5, 10, 100), 0);
	ps_plans_drop_feed(plans, owner.feed);
	assert_int_equal(need(0, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(need(5, NULL), PS_NEED_PLANNED);
	assert_int_equal(position(&other, 0, 0, 155), 0); /* a heartbeat */
	ps_plans_expire(plans, 170);
	assert_true(ps_plans_any(plans, DATASET));
	ps_plans_expire(plans, 216);
	assert_false(ps_plans_any(plans, DATASET));
	assert_int_equal(need(5, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(counted("expired"), 1);
	assert_int_equal(counted("memory_bytes"), 0);
	assert_int_equal(position(&other, 0, 0, 217), -ESTALE);
}

static void an_epoch_announced_again_replaces_the_old_one(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(announce(&owner, 0, 20, 10, 100), 0);
	assert_int_equal(need(0, NULL), PS_NEED_NEVER);
	assert_int_equal(need(20, NULL), PS_NEED_PLANNED);
	assert_int_equal(announce(&owner, 0, 0, 0, 100), 0);
	assert_int_equal(need(20, NULL), PS_NEED_NEVER);
}

static void files_that_were_read_stay_over_when_their_epoch_is_announced_again(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(position(&owner, 0, 4, 101), 0);
	assert_int_equal(announce(&owner, 0, 0, 10, 102), 0);
	assert_int_equal(need(3, NULL), PS_NEED_NEVER);
	assert_int_equal(need(4, NULL), PS_NEED_PLANNED);
	/* That position is one in epoch 0: no file of another epoch is over. */
	assert_int_equal(announce(&owner, 1, 20, 10, 103), 0);
	assert_int_equal(need(20, NULL), PS_NEED_PLANNED);
}

/* If the file counted each time, lists as long as a plan would be walked for each of the plan's files, and
 * this test would be slow. */
static void a_file_named_many_times_counts_once_per_epoch(void **state)
{
	struct ps_plan_file *files = calloc(PS_PLANS_MAX_FILES, sizeof(*files));
	struct ps_plan_who who = who_of(0);

	(void)state;
	for (unsigned i = 0; i < PS_PLANS_MAX_FILES; i++)
		files[i] = file_of(i % 2);
	for (; who.epoch < 20; who.epoch++)
		assert_int_equal(ps_plans_tell(plans, &owner, &who, files, PS_PLANS_MAX_FILES, 100), 0);
	for (unsigned i = 0; i < 100; i++)
		open_file(0);
	assert_in_range(counted("foreseen_opens"), 1, 20);
	assert_int_equal(need(1, NULL), PS_NEED_PLANNED);
	assert_int_equal(position(&owner, 19, PS_PLANS_MAX_FILES, 101), 0);
	assert_int_equal(need(0, NULL), PS_NEED_NEVER);
	free(files);
}

static void an_early_epoch_announced_late_still_comes_first(void **state)
{
	double late, next;

	(void)state;
	assert_int_equal(announce(&owner, 1, 0, 10, 100), 0);
	assert_int_equal(announce(&owner, 2, 0, 10, 100), 0);
	assert_int_equal(need(3, &next), PS_NEED_PLANNED);
	assert_int_equal(announce(&owner, 0, 3, 1, 100), 0);
	assert_int_equal(need(3, &late), PS_NEED_PLANNED);
	assert_true(late < next);
}

static void the_next_files_are_in_order_and_from_each_rank(void **state)
{
	uint64_t nodes[8];

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 4, 100), 0);
	assert_int_equal(announce(&owner, 1, 4, 4, 100), 0);
	assert_int_equal(announce(&other, 0, 100, 4, 100), 0);
	open_file(0);
	assert_int_equal(ps_plans_next(plans, DATASET, nodes, 8), 8);
	const uint64_t expected[] = {2, 101, 3, 102, 4, 103, 5, 104};
	assert_memory_equal(nodes, expected, sizeof(nodes));
	assert_int_equal(ps_plans_next(plans, DATASET + 1, nodes, 8), 0);
	assert_int_equal(position(&other, 9, 0, 101), 0); /* all that it announced is over */
	assert_int_equal(ps_plans_next(plans, DATASET, nodes, 3), 3);
	assert_int_equal(nodes[2], 4);
}

static void a_planned_file_may_get_its_object_later(void **state)
{
	struct ps_plan_file file = file_of(3), nameless = {.node = file.node, .dataset = DATASET};
	struct ps_plan_who who = who_of(0);
	size_t cursor = 0;
	uint64_t node;

	(void)state;
	assert_int_equal(ps_plans_tell(plans, &owner, &who, &nameless, 1, 100), 0);
	assert_int_equal(need(3, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(ps_plans_nameless(plans, DATASET, &cursor, &node, 1), 1);
	assert_int_equal(node, file.node);
	ps_plans_name(plans, &file);
	assert_int_equal(need(3, NULL), PS_NEED_PLANNED);
	cursor = 0;
	assert_int_equal(ps_plans_nameless(plans, DATASET, &cursor, &node, 1), 0);
}

static void plans_are_bounded(void **state)
{
	struct ps_plan_teller other_user = {
	        .feed = 3, .other_user = true, .datasets = datasets, .ndatasets = 1};
	struct ps_plan_who who = who_of(0);
	struct ps_plan_file file = file_of(0);
	unsigned n = 0;

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, PS_PLANS_MAX_FILES + 1, 100), -E2BIG);
	for (uint64_t epoch = 0; epoch < PS_PLANS_MAX_EPOCHS; epoch++)
		assert_int_equal(announce(&owner, epoch, 0, 1, 100), 0);
	assert_int_equal(announce(&owner, PS_PLANS_MAX_EPOCHS, 0, 1, 100), -E2BIG);
	for (; ps_plans_tell(plans, &other_user, &who, &file, 1, 100) == 0; n++)
		who.rank++;
	assert_int_equal(n, PS_PLANS_MAX_RANKS / PS_PLANS_OTHER_USERS_SHARE);
	ps_plans_drop_feed(plans, other_user.feed);
	for (n = 0; ps_plans_tell(plans, &other, &who, &file, 1, 100) == 0; n++)
		who.rank++;
	assert_int_equal(n, PS_PLANS_MAX_RANKS - 1);
	ps_plans_drop_feed(plans, other.feed);
	for (n = 0; announce(&other_user, n, n * PS_PLANS_MAX_FILES, PS_PLANS_MAX_FILES, 100) == 0; n++)
		assert_true(n < 20);
	assert_true(counted("memory_bytes") <=
	            (json_int_t)(PS_PLANS_MAX_NBYTES / PS_PLANS_OTHER_USERS_SHARE) + (1 << 20));
	assert_int_equal(ps_plans_charge(plans, &other_user, PS_PLANS_MAX_NBYTES / 4), -ENOSPC);
	assert_int_equal(announce(&other, 0, 0, 100, 100), 0); /* other users' plans do not prevent it */
	ps_plans_drop_feed(plans, other_user.feed);
	ps_plans_drop_feed(plans, other.feed);
	/* All plans together have a limit, too. */
	json_int_t used = counted("memory_bytes");
	assert_int_equal(ps_plans_charge(plans, &owner, (int64_t)PS_PLANS_MAX_NBYTES - used), 0);
	assert_int_equal(ps_plans_charge(plans, &owner, 1), -ENOSPC);
	assert_int_equal(announce(&owner, 0, 0, 100, 100), -ENOSPC);
	assert_int_equal(ps_plans_charge(plans, &owner, used - (int64_t)PS_PLANS_MAX_NBYTES), 0);
	assert_int_equal(announce(&owner, 0, 0, 100, 100), 0);
}

static void a_rank_that_ends_with_a_refused_epoch_leaves_no_files(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 100), 0);
	assert_int_equal(position(&owner, 1, 0, 101), 0);
	assert_int_equal(need(0, NULL), PS_NEED_NEVER);
	int64_t room = (int64_t)PS_PLANS_MAX_NBYTES - counted("memory_bytes");
	assert_int_equal(ps_plans_charge(plans, &owner, room), 0);
	assert_int_equal(announce(&owner, 1, 10, 10, 102), -ENOSPC);
	assert_int_equal(counted("active"), 0);
	assert_int_equal(need(0, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(ps_plans_charge(plans, &owner, -room), 0);
}

static void a_rank_that_went_back_announces_its_epoch_again(void **state)
{
	(void)state;
	assert_int_equal(announce(&owner, 5, 0, 10, 100), 0);
	assert_int_equal(position(&owner, 5, 2, 100), 0);
	assert_int_equal(position(&owner, 2, 0, 101), -ESTALE);
	assert_int_equal(announce(&owner, 2, 0, 10, 101), 0);
	assert_int_equal(position(&owner, 2, 0, 101), 0);
	assert_int_equal(need(0, NULL), PS_NEED_PLANNED);
}

/* Plans are announced, opened and dropped in random order: in the end all counts are zero. */
static void any_sequence_of_calls_ends_empty(void **state)
{
	unsigned rng = 5;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		rng = rng * 1103515245 + 12345;
		struct ps_plan_teller teller = {
		        .feed = (rng >> 8) % 5, .datasets = datasets, .ndatasets = (rng >> 8) % 2};
		uint64_t nodes[16];

		switch ((rng >> 16) % 8) {
		case 0:
			ps_plans_drop_feed(plans, teller.feed);
			break;
		case 1:
		case 2:
			(void)!announce(&teller, (rng >> 12) % 6, (rng >> 20) % 40, (rng >> 10) % 60, i);
			break;
		case 3:
			(void)!position(&teller, (rng >> 12) % 6, (rng >> 20) % 80, i);
			break;
		case 4:
			(void)!ps_plans_next(plans, DATASET, nodes, 16);
			break;
		case 5:
			ps_plans_expire(plans, i);
			break;
		default:
			open_file((rng >> 10) % 120);
		}
	}
	for (uint64_t feed = 0; feed < 5; feed++)
		ps_plans_drop_feed(plans, feed);
	for (unsigned i = 0; i < 120; i++)
		assert_int_equal(need(i, NULL), PS_NEED_UNKNOWN);
	assert_int_equal(counted("memory_bytes"), 0);
	assert_int_equal(counted("active"), 0);
}

/* The policy --------------------------------------------------------------------------------------------- */

static size_t choose(struct ps_policy *policy, const struct ps_policy_item *items, size_t n,
        unsigned wants_in, size_t *victims)
{
	struct ps_plan_file file = file_of(wants_in);
	const struct ps_policy_query query = {
	        .items = items, .n = n, .need_nbytes = 1, .now_s = 1000, .id = &file.id, .dataset = DATASET};

	return ps_policy_find("plan")->choose(policy, &query, victims);
}

static void the_file_needed_last_is_evicted_first_and_never_for_a_later_one(void **state)
{
	struct ps_policy *policy = ps_policy_find("plan")->new (plans);
	struct ps_policy_item items[3];
	size_t victims[3];

	(void)state;
	for (uint64_t epoch = 0; epoch < 4; epoch++) /* 0 to 9 in epoch 0, 10 to 19 in 1, ... */
		assert_int_equal(announce(&owner, epoch, (unsigned)epoch * 10, 10, 1000), 0);
	assert_int_equal(announce(&owner, 5, 100, 10, 1000), 0);
	for (unsigned i = 0; i < 3; i++) /* needed in epochs 0, 1, 2 */
		items[i] = (struct ps_policy_item){
		        .id = file_of(10 * i).id, .dataset = DATASET, .nbytes = 1, .opened_s = 990, .seq = i};
	assert_int_equal(choose(policy, items, 3, 5, victims), 1);
	assert_int_equal(victims[0], 2);
	assert_int_equal(choose(policy, items, 3, 15, victims), 1);
	assert_int_equal(victims[0], 2);
	assert_int_equal(choose(policy, items, 2, 15, victims), 0); /* neither is needed later than 15 */
	assert_int_equal(choose(policy, items, 3, 25, victims), 0);
	assert_int_equal(choose(policy, items, 3, 100, victims), 0);
	assert_int_equal(choose(policy, items, 3, 999, victims), 0); /* of no plan */
	/* The epoch of file 0 is over, and no other one names it. */
	items[0].id = file_of(0).id;
	assert_int_equal(position(&owner, 1, 0, 1001), 0);
	assert_int_equal(choose(policy, items, 3, 30, victims), 1);
	assert_int_equal(victims[0], 0);
	items[2].busy = items[0].busy = true;
	assert_int_equal(choose(policy, items, 3, 11, victims), 0);
	ps_policy_find("plan")->free(policy);
}

/* Two runs at the same time: it gains nothing to evict a file that is needed only a little later than the
 * file that takes its room. */
static void a_file_needed_only_a_little_later_stays(void **state)
{
	struct ps_policy *policy = ps_policy_find("plan")->new (plans);
	struct ps_policy_item item = {.dataset = DATASET, .nbytes = 1, .opened_s = 990};
	size_t victims[1];

	(void)state;
	/* File 5 is needed in about 50 s. The margin is 25 s: a quarter of the epoch's 100 s. */
	assert_int_equal(announce(&owner, 0, 0, 100, 1000), 0);
	assert_int_equal(announce(&other, 0, 200, 120, 1000), 0); /* 60 s */
	item.id = file_of(210).id;
	assert_int_equal(choose(policy, &item, 1, 5, victims), 0);
	assert_int_equal(announce(&other, 0, 200, 180, 1000), 0); /* 90 s */
	assert_int_equal(choose(policy, &item, 1, 5, victims), 1);
	ps_policy_find("plan")->free(policy);
}

static void a_file_never_needed_again_evicts_nothing(void **state)
{
	struct ps_policy *policy = ps_policy_find("plan")->new (plans);
	struct ps_policy_item item = {.id = file_of(500).id, .dataset = DATASET, .nbytes = 1, .opened_s = 1};
	size_t victims[1];

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 1000), 0);
	assert_int_equal(announce(&owner, 1, 20, 10, 1000), 0);
	/* The item is in no plan and was opened long ago: any needed object may take its place. */
	item.opened_s = 1000 - 2 * 24 * 3600;
	assert_int_equal(choose(policy, &item, 1, 5, victims), 1);
	assert_int_equal(position(&owner, 1, 0, 1001), 0);
	assert_int_equal(need(5, NULL), PS_NEED_NEVER);
	assert_int_equal(choose(policy, &item, 1, 5, victims), 0);
	assert_int_equal(choose(policy, &item, 1, 25, victims), 1);
	ps_policy_find("plan")->free(policy);
}

/* The pace predicts when later epochs begin. */
static void the_pace_of_a_run_is_learned_across_epochs(void **state)
{
	double when;

	(void)state;
	for (uint64_t epoch = 0; epoch < 3; epoch++)
		assert_int_equal(announce(&owner, epoch, (unsigned)epoch * 10, 10, 100), 0);
	assert_int_equal(position(&owner, 0, 5, 105), 0); /* one second per file */
	assert_int_equal(position(&owner, 0, 10, 110), 0);
	assert_int_equal(need(25, &when), PS_NEED_PLANNED);
	assert_true(when > 120 && when < 130);
	assert_int_equal(position(&owner, 1, 5, 160), 0); /* ten seconds per file: slower */
	assert_int_equal(need(25, &when), PS_NEED_PLANNED);
	assert_true(when > 185 && when < 260);
}

static void an_extent_is_needed_when_its_object_is(void **state)
{
	struct ps_policy *policy = ps_policy_find("plan")->new (plans);
	struct ps_policy_item items[2];
	size_t victims[2];

	(void)state;
	assert_int_equal(announce(&owner, 0, 0, 10, 1000), 0);
	assert_int_equal(announce(&owner, 1, 10, 10, 1000), 0);
	for (unsigned i = 0; i < 2; i++) {
		items[i] = (struct ps_policy_item){.id = file_of(10 * (1 - i)).id,
		        .part = 70000,
		        .dataset = DATASET,
		        .nbytes = 1,
		        .opened_s = 990,
		        .seq = i};
		ps_policy_part_id(&items[i].id, items[i].part);
	}
	assert_int_equal(choose(policy, items, 2, 1, victims), 1);
	assert_int_equal(victims[0], 0);
	ps_policy_find("plan")->free(policy);
}

/* Lines -------------------------------------------------------------------------------------------------- */

static int parse(const char *text, struct ps_plan_line *ret)
{
	static char copy[1024];

	snprintf(copy, sizeof(copy), "%s", text);
	return ps_plan_line_parse(copy, strlen(copy), ret);
}

static void lines_are_read_as_they_are_written(void **state)
{
	struct ps_plan_line line;

	(void)state;
	assert_int_equal(
	        parse("{\"penstock_plan\": 1, \"job\": \"a b\", \"rank\": 3, \"world\": 8, \"epoch\": 12, "
	              "\"files\": [\"a/x.tar\", \"\\\"\\u00e9\\ud83d\\ude00\\\\\" ,\"z\"], \"new\": [{}]}\r",
	                &line),
	        0);
	assert_int_equal(line.kind, PS_PLAN_LINE_EPOCH);
	assert_string_equal(line.who.job, "a b");
	assert_int_equal(line.who.rank, 3);
	assert_int_equal(line.who.world, 8);
	assert_int_equal(line.who.epoch, 12);
	assert_int_equal(line.nfiles, 3);
	assert_string_equal(line.files, "a/x.tar");
	assert_string_equal(line.files + 8, "\"\xc3\xa9\xf0\x9f\x98\x80\\");
	/* Names of files are bytes, and need not be UTF-8. */
	assert_int_equal(parse("{\"penstock_reads\": 1, \"files\": [\"\xff\xc3.tar\", \"b\"]}", &line), 0);
	assert_int_equal(line.nfiles, 2);
	assert_string_equal(line.files, "\xff\xc3.tar");
	assert_int_equal(
	        parse("{\"files_done\":7,\"epoch\":1,\"rank\":0,\"job\":\"\",\"penstock_position\":1}",
	                &line),
	        0);
	assert_int_equal(line.kind, PS_PLAN_LINE_POSITION);
	assert_int_equal(line.files_done, 7);
	assert_int_equal(parse("{\"penstock_dream\": 1}", &line), 0);
	assert_int_equal(line.kind, PS_PLAN_LINE_OTHER);
}

static void invalid_lines_are_refused(void **state)
{
	static const char *const bad[] = {"", "{", "[]", "{}}", "{\"a\"}", "{\"a\":}", "null",
	        "{\"penstock_plan\": 1}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":{}}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":-1,\"epoch\":0,\"files\":[]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":[1]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":[\"a\",]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":[\"\\u0000\"]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":[\"\\udc00\"]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":0,\"files\":[\"a\\qb\"]}",
	        "{\"penstock_plan\":1,\"job\":\"a\",\"rank\":0,\"epoch\":18446744073709551616,\"files\":[]}",
	        "{\"penstock_plan\":1,\"job\":"
	        "\"0123456789012345678901234567890123456789012345678901234567890123\","
	        "\"rank\":0,\"epoch\":0,\"files\":[]}"};
	struct ps_plan_line line;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
		if (parse(bad[i], &line) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
}

/* The byte after the text cannot be read. */
static void a_line_cut_anywhere_is_refused_and_not_read_beyond_its_end(void **state)
{
	static const char whole[] =
	        "{\"penstock_plan\": 1, \"new\": [true, -1.5], \"job\": \"a\\u00e9\", \"rank\": 3, "
	        "\"epoch\": 12, \"files\": [\"\\ud83d\\ude00\\n\"]}";
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ps_plan_line line;

	(void)state;
	assert_true(pages != MAP_FAILED);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
	for (size_t n = 0; n < sizeof(whole); n++) {
		char *text = pages + page - n;

		memcpy(text, whole, n);
		assert_int_equal(ps_plan_line_parse(text, n, &line), n == sizeof(whole) - 1 ? 0 : -EINVAL);
	}
	munmap(pages, 2 * page);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	static const struct CMUnitTest tests[] = {
	        TEST(planned_files_are_needed_in_the_order_of_epochs),
	        TEST(files_before_the_position_are_over),
	        TEST(a_file_opened_in_its_turn_is_over),
	        TEST(the_earliest_need_of_all_feeds_counts),
	        TEST(a_plan_ends_with_its_feed_or_without_a_heartbeat),
	        TEST(an_epoch_announced_again_replaces_the_old_one),
	        TEST(files_that_were_read_stay_over_when_their_epoch_is_announced_again),
	        TEST(a_file_needed_only_a_little_later_stays),
	        TEST(a_file_named_many_times_counts_once_per_epoch),
	        TEST(an_early_epoch_announced_late_still_comes_first),
	        TEST(the_next_files_are_in_order_and_from_each_rank),
	        TEST(a_planned_file_may_get_its_object_later),
	        TEST(plans_are_bounded),
	        TEST(a_rank_that_ends_with_a_refused_epoch_leaves_no_files),
	        TEST(a_rank_that_went_back_announces_its_epoch_again),
	        TEST(any_sequence_of_calls_ends_empty),
	        TEST(the_file_needed_last_is_evicted_first_and_never_for_a_later_one),
	        TEST(a_file_never_needed_again_evicts_nothing),
	        TEST(the_pace_of_a_run_is_learned_across_epochs),
	        TEST(an_extent_is_needed_when_its_object_is),
	        cmocka_unit_test(lines_are_read_as_they_are_written),
	        cmocka_unit_test(invalid_lines_are_refused),
	        cmocka_unit_test(a_line_cut_anywhere_is_refused_and_not_read_beyond_its_end),
	};

	return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
