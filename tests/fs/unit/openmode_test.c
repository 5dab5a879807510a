/* The state machine of open modes, with a mock kernel that refuses what the real one refuses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "fuse/openmode.h"

/* The kernel's inode of each node id, by its low number and alias. */
#define NODES 4
#define ALIASES 8
static struct inode {
	int cached, passed, direct;
	int backing; /* while passed */
} inodes[NODES][ALIASES];

static bool active, refuse_backing;
static int next_backing, nbackings;

bool ps_passthrough_active(const struct ps_passthrough *pt)
{
	(void)pt;
	return active;
}

int ps_passthrough_backing_open(struct ps_passthrough *pt, fuse_req_t req, int fd, const char *name)
{
	(void)pt, (void)req, (void)name;
	assert_true(fd >= 0);
	if (refuse_backing)
		return -ENOMEM;
	nbackings++;
	return ++next_backing;
}

void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id)
{
	(void)pt;
	assert_true(backing_id > 0);
	assert_true(--nbackings >= 0);
}

struct fixture {
	struct ps_openmode_table table;
	struct ps_state_head head;
	struct ps_passthrough pt;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	ps_openmode_init(&f->table, &f->head);
	for (size_t i = 0; i < NODES; i++)
		for (size_t k = 0; k < ALIASES; k++)
			inodes[i][k] = (struct inode){0};
	active = true;
	refuse_backing = false;
	next_backing = nbackings = 0;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ps_openmode_fini(&f->table);
	free(f);
	return 0;
}

static struct inode *inode_of(fuse_ino_t ino)
{
	uint64_t number = ps_node_number(ino), alias = ino >> PS_ALIAS_SHIFT;

	assert_true(number < NODES && alias < ALIASES);
	return &inodes[number][alias];
}

/* OPEN of a node id as the kernel does it. What the kernel would refuse with EIO fails the test. */
static int open_once(struct fixture *f, const struct ps_openmode_wish *wish, enum ps_open_mode *ret_mode)
{
	int backing = 0;
	int rc = ps_openmode_enter(&f->table, &f->pt, NULL, wish, ret_mode, &backing);
	struct inode *inode = inode_of(wish->ino);

	if (rc < 0)
		return rc;
	switch (*ret_mode) {
	case PS_MODE_PASSED:
		assert_int_equal(inode->cached, 0);
		assert_int_equal(inode->direct, 0); /* any of them may be mapped, now or later */
		assert_true(backing > 0 && (!inode->passed || inode->backing == backing));
		inode->backing = backing;
		inode->passed++;
		break;
	case PS_MODE_DIRECT:
		assert_int_equal(inode->passed, 0);
		inode->direct++;
		break;
	default:
		assert_int_equal(inode->passed, 0);
		inode->cached++;
	}
	return 0;
}

/* open(2) of a name: the kernel tries again after ESTALE, but only once. */
static fuse_ino_t open_name(struct fixture *f, struct ps_openmode_wish wish, enum ps_open_mode expected)
{
	enum ps_open_mode mode;
	uint64_t number = wish.ino;

	wish.ino = ps_openmode_ino(&f->table, number);
	int rc = open_once(f, &wish, &mode);
	if (rc == -ESTALE) {
		wish.ino = ps_openmode_ino(&f->table, number);
		rc = open_once(f, &wish, &mode);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(mode, expected);
	return wish.ino;
}

static void release(struct fixture *f, fuse_ino_t ino, enum ps_open_mode mode)
{
	struct inode *inode = inode_of(ino);

	/* The kernel leaves the mode first, and sends RELEASE afterwards. */
	if (mode == PS_MODE_PASSED)
		inode->passed--;
	else if (mode == PS_MODE_DIRECT)
		inode->direct--;
	else
		inode->cached--;
	ps_openmode_leave(&f->table, &f->pt, ino, mode);
}

#define COLD_DIRECT(tid_) \
	((struct ps_openmode_wish){.ino = 1, .tid = (tid_), .complete_fd = -1, .direct = true})
#define COLD_CACHED(tid_) ((struct ps_openmode_wish){.ino = 1, .tid = (tid_), .complete_fd = -1})
#define COMPLETE(tid_) ((struct ps_openmode_wish){.ino = 1, .tid = (tid_), .complete_fd = 3})

static void each_state_gives_its_mode(void **state)
{
	struct fixture *f = *state;

	static const struct {
		const char *why;
		bool held;
		enum ps_open_mode holder;
		bool passthrough, complete, direct;
		enum ps_open_mode mode;
		bool alias;
	} rows[] = {
	        {"cold", false, 0, true, false, true, PS_MODE_DIRECT, false},
	        {"cold, read in small pieces", false, 0, true, false, false, PS_MODE_CACHED, false},
	        {"complete", false, 0, true, true, false, PS_MODE_PASSED, false},
	        {"complete, no passthrough", false, 0, false, true, false, PS_MODE_CACHED, false},
	        {"cold beside direct", true, PS_MODE_DIRECT, true, false, true, PS_MODE_DIRECT, false},
	        {"cold beside direct", true, PS_MODE_DIRECT, true, false, false, PS_MODE_CACHED, false},
	        {"cold beside cached", true, PS_MODE_CACHED, true, false, true, PS_MODE_DIRECT, false},
	        {"complete beside direct", true, PS_MODE_DIRECT, true, true, false, PS_MODE_PASSED, true},
	        {"complete beside cached", true, PS_MODE_CACHED, true, true, false, PS_MODE_PASSED, true},
	        {"the same without passthrough", true, PS_MODE_DIRECT, false, true, false, PS_MODE_CACHED,
	                false},
	        {"complete beside passed", true, PS_MODE_PASSED, true, true, false, PS_MODE_PASSED, false},
	        {"evicted beside passed", true, PS_MODE_PASSED, true, false, true, PS_MODE_PASSED, false},
	        {"passthrough turned off meanwhile", true, PS_MODE_PASSED, false, false, true, PS_MODE_PASSED,
	                false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fuse_ino_t holder = 0;

		print_message("# %s\n", rows[i].why);
		active = true;
		if (rows[i].held)
			holder = open_name(f,
			        rows[i].holder == PS_MODE_PASSED   ? COMPLETE(7)
			        : rows[i].holder == PS_MODE_DIRECT ? COLD_DIRECT(7)
			                                           : COLD_CACHED(7),
			        rows[i].holder);
		active = rows[i].passthrough;
		fuse_ino_t ino = open_name(f,
		        rows[i].complete ? COMPLETE(8)
		        : rows[i].direct ? COLD_DIRECT(8)
		                         : COLD_CACHED(8),
		        rows[i].mode);
		assert_int_equal(ino != 1, rows[i].alias);
		assert_int_equal(ps_node_number(ino), 1);
		release(f, ino, rows[i].mode);
		if (rows[i].held)
			release(f, holder, rows[i].holder);
		assert_int_equal(nbackings, 0);
		assert_int_equal(ps_openmode_ino(&f->table, 1), 1);
	}
}

static void an_alias_serves_all_later_opens(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t old = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT), first, second;

	first = open_name(f, COMPLETE(7), PS_MODE_PASSED);
	second = open_name(f, COMPLETE(8), PS_MODE_PASSED);
	assert_int_equal(first, second);
	assert_int_equal(nbackings, 1);
	assert_int_equal(atomic_load(&f->table.nupgrades), 1);
	/* Evicted while the alias is passed, then closed, and read again: cold handles on the old inode and
	 * on the alias, then complete. */
	release(f, first, PS_MODE_PASSED);
	release(f, second, PS_MODE_PASSED);
	first = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT);
	second = open_name(f, COMPLETE(7), PS_MODE_PASSED);
	assert_int_not_equal(second, first);
	assert_int_not_equal(second, old);
	release(f, first, PS_MODE_DIRECT);
	release(f, second, PS_MODE_PASSED);
	release(f, old, PS_MODE_DIRECT);
}

static void count(void *n)
{
	++*(int *)n;
}

static void a_data_file_is_kept_until_its_last_passed_handle_is_gone(void **state)
{
	struct fixture *f = *state;
	int nput[3] = {0};
	struct ps_openmode_wish wish = COMPLETE(7);

	wish.keep = (struct ps_keep){&nput[0], count};
	fuse_ino_t ino = open_name(f, wish, PS_MODE_PASSED);
	/* The second handle uses the first one's file: its own, which may be a newer one, is not needed. */
	wish.keep.arg = &nput[1];
	assert_int_equal(open_name(f, wish, PS_MODE_PASSED), ino);
	assert_int_equal(nput[1], 1);
	release(f, ino, PS_MODE_PASSED);
	assert_int_equal(nput[0], 0);
	release(f, ino, PS_MODE_PASSED);
	assert_int_equal(nput[0], 1);
	struct ps_openmode_wish cold = COLD_CACHED(7);
	cold.keep = (struct ps_keep){&nput[2], count};
	ino = open_name(f, cold, PS_MODE_CACHED);
	assert_int_equal(nput[2], 1);
	release(f, ino, PS_MODE_CACHED);
	assert_int_equal(nput[0] + nput[1] + nput[2], 3);
}

static void an_inode_that_is_not_opened_by_name_gets_estale_once(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t old = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT);
	struct ps_openmode_wish wish = COMPLETE(8);
	enum ps_open_mode mode;

	wish.ino = old;
	assert_int_equal(open_once(f, &wish, &mode), -ESTALE);
	assert_int_equal(open_once(f, &wish, &mode), 0);
	assert_int_equal(mode, PS_MODE_CACHED);
	release(f, old, PS_MODE_CACHED);
	release(f, old, PS_MODE_DIRECT);
}

static void no_open_gets_estale_right_after_the_cache_reported_estale(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t old = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT);
	struct ps_openmode_wish wish = COMPLETE(8);
	enum ps_open_mode mode;

	ps_openmode_stale(&f->table, 8);
	wish.ino = old;
	assert_int_equal(open_once(f, &wish, &mode), 0);
	assert_int_equal(mode, PS_MODE_CACHED);
	release(f, old, PS_MODE_CACHED);
	release(f, old, PS_MODE_DIRECT);
}

static void opens_without_a_thread_id_get_estale_once_in_a_while(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t old = open_name(f, COLD_DIRECT(0), PS_MODE_DIRECT);
	struct ps_openmode_wish wish = COMPLETE(0);
	enum ps_open_mode mode;

	wish.ino = old;
	assert_int_equal(open_once(f, &wish, &mode), -ESTALE);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(open_once(f, &wish, &mode), 0);
		assert_int_equal(mode, PS_MODE_CACHED);
		release(f, old, PS_MODE_CACHED);
	}
	release(f, old, PS_MODE_DIRECT);
}

static void threads_that_do_not_fit_the_table_get_no_estale(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t old = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT);
	struct ps_openmode_wish wish;
	enum ps_open_mode mode;

	for (int tid = 100; tid < 100 + PS_STALE_SLOTS; tid++) {
		wish = COMPLETE(tid);
		wish.ino = old;
		assert_int_equal(open_once(f, &wish, &mode), -ESTALE);
	}
	wish = COMPLETE(99);
	wish.ino = old;
	assert_int_equal(open_once(f, &wish, &mode), 0);
	assert_int_equal(mode, PS_MODE_CACHED);
	release(f, old, PS_MODE_CACHED);
	release(f, old, PS_MODE_DIRECT);
}

static void a_refused_backing_file_is_read_through_the_cache(void **state)
{
	struct fixture *f = *state;

	refuse_backing = true;
	fuse_ino_t ino = open_name(f, COMPLETE(7), PS_MODE_CACHED);
	release(f, ino, PS_MODE_CACHED);
}

static void beside_a_mapped_direct_handle_others_are_cached(void **state)
{
	struct fixture *f = *state;
	fuse_ino_t mapped = open_name(f, COLD_DIRECT(7), PS_MODE_DIRECT);

	ps_openmode_mapped(&f->table, mapped);
	ps_openmode_mapped(&f->table, 2); /* of a file that is not open */
	fuse_ino_t other = open_name(f, COLD_DIRECT(8), PS_MODE_CACHED);
	release(f, mapped, PS_MODE_DIRECT);
	release(f, other, PS_MODE_CACHED);
	other = open_name(f, COLD_DIRECT(8), PS_MODE_DIRECT);
	release(f, other, PS_MODE_DIRECT);
}

/* Opens names, aliases and old inodes at random: the kernel must never refuse a mode, and no name may be
 * stale twice. */
static void random_opens_and_releases_are_never_refused(void **state)
{
	struct fixture *f = *state;
	unsigned seed = 20260101;
	struct {
		fuse_ino_t ino;
		enum ps_open_mode mode;
	} open[16];
	size_t n = 0;

	for (int i = 0; i < 200000; i++) {
		if (n == 16 || (n > 0 && rand_r(&seed) % 2)) {
			size_t k = (size_t)rand_r(&seed) % n;

			release(f, open[k].ino, open[k].mode);
			open[k] = open[--n];
			continue;
		}
		struct ps_openmode_wish wish = {.ino = (fuse_ino_t)rand_r(&seed) % NODES,
		        .tid = 100 + rand_r(&seed) % 3,
		        .complete_fd = rand_r(&seed) % 2 ? 3 : -1};
		uint64_t number = wish.ino;
		wish.direct = wish.complete_fd < 0 && rand_r(&seed) % 2;
		bool by_name = n == 0 || rand_r(&seed) % 4;
		wish.ino = by_name ? ps_openmode_ino(&f->table, number) : open[rand_r(&seed) % n].ino;
		int rc = open_once(f, &wish, &open[n].mode);
		if (rc == -ESTALE) {
			if (by_name)
				wish.ino = ps_openmode_ino(&f->table, number);
			rc = open_once(f, &wish, &open[n].mode);
		}
		assert_int_equal(rc, 0);
		open[n++].ino = wish.ino;
	}
	while (n > 0) {
		n--;
		release(f, open[n].ino, open[n].mode);
	}
	assert_int_equal(nbackings, 0);
	for (size_t i = 0; i < PS_MODE_COUNT; i++)
		assert_int_equal(atomic_load(&f->table.nopen[i]), 0);
	assert_null(f->table.nodes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(each_state_gives_its_mode),
	        TEST(an_alias_serves_all_later_opens),
	        TEST(a_data_file_is_kept_until_its_last_passed_handle_is_gone),
	        TEST(an_inode_that_is_not_opened_by_name_gets_estale_once),
	        TEST(no_open_gets_estale_right_after_the_cache_reported_estale),
	        TEST(opens_without_a_thread_id_get_estale_once_in_a_while),
	        TEST(threads_that_do_not_fit_the_table_get_no_estale),
	        TEST(a_refused_backing_file_is_read_through_the_cache),
	        TEST(beside_a_mapped_direct_handle_others_are_cached),
	        TEST(random_opens_and_releases_are_never_refused),
	};

	return cmocka_run_group_tests_name("openmode", tests, NULL, NULL);
}
