/* The members of the shards of a dataset: over tars in a local folder, whose origin stalls on demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <endian.h>
#include <pthread.h>

#include "base/clock.h"
#include "members/members_private.h"
#include "tests/cache/cache_test.h"
#include "tests/cache/fault_origin.h"
#include "tests/loader/make_tar.h"

#define WAIT_MS 60000

struct fixture {
	char *dir;
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	struct ps_members *members;
	pthread_mutex_t lock;
	char changed[1024]; /* names that the merged tree reported */
};

/* Calls that are replaced -------------------------------------------------------------------------------- */

static struct ps_fault_origin *origin; /* of the dataset; NULL: it is detached */
static _Atomic unsigned nopens;

/* While this is true, an open waits in `stalled`, which has room for one. */
static _Atomic bool opens_stall;
static struct {
	_Atomic(struct ps_dataset *) dataset;
	uint64_t node;
	ps_open_fn fn;
	void *arg;
} stalled;

/* The number of commits of merges that succeed before all others fail, as if the machine had stopped; -1:
 * all succeed. */
static _Atomic int commits_left = -1;
static _Atomic bool commit_failed;
static _Thread_local bool merging;

/* The monotonic clock of this thread is ahead. */
static _Thread_local uint64_t ahead_s;

int __real_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err);
int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err);
int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_origin *inner;
	int rc = __real_ps_origin_open(source, options, &inner, err);

	if (rc < 0)
		return rc;
	origin = ps_fault_origin_new(inner);
	*ret = &origin->origin;
	return 0;
}

void __real_ps_handle_open(struct ps_dataset *dataset, uint64_t node, ps_open_fn fn, void *arg);
void __wrap_ps_handle_open(struct ps_dataset *dataset, uint64_t node, ps_open_fn fn, void *arg);
void __wrap_ps_handle_open(struct ps_dataset *dataset, uint64_t node, ps_open_fn fn, void *arg)
{
	atomic_fetch_add(&nopens, 1);
	if (!atomic_load(&opens_stall)) {
		__real_ps_handle_open(dataset, node, fn, arg);
		return;
	}
	stalled.node = node;
	stalled.fn = fn;
	stalled.arg = arg;
	atomic_store(&stalled.dataset, dataset);
}

/* Lets the waiting open go on. */
static void release_open(void)
{
	atomic_store(&opens_stall, false);
	struct ps_dataset *dataset = atomic_exchange(&stalled.dataset, NULL);
	__real_ps_handle_open(dataset, stalled.node, stalled.fn, stalled.arg);
}

int __real_ps_merged_make(struct ps_members *members);
int __wrap_ps_merged_make(struct ps_members *members);
int __wrap_ps_merged_make(struct ps_members *members)
{
	merging = true;
	int rc = __real_ps_merged_make(members);
	merging = false;
	return rc;
}

int __real_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch);
int __wrap_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch);
int __wrap_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch)
{
	if (merging && atomic_load(&commits_left) >= 0) {
		if (atomic_load(&commits_left) == 0) {
			ps_index_batch_free(batch);
			atomic_store(&commit_failed, true);
			return -EIO;
		}
		atomic_fetch_sub(&commits_left, 1);
	}
	return __real_ps_index_batch_commit(index, batch);
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	int rc = __real_clock_gettime(clock, ret);

	if (clock == CLOCK_MONOTONIC)
		ret->tv_sec += (time_t)ahead_s;
	return rc;
}

/* The fixture -------------------------------------------------------------------------------------------- */

static void merged_changed(void *arg, const char *name)
{
	struct fixture *f = arg;

	PS_LOCK_SCOPE(&f->lock);
	snprintf(f->changed + strlen(f->changed), sizeof(f->changed) - strlen(f->changed), "%s ", name);
}

static void cache_open(struct fixture *f)
{
	char path[4096];
	struct ps_error err = {0};

	snprintf(path, sizeof(path), "%s/cache", f->dir);
	const struct ps_cache_options options = {
	        .store = {.dir = path, .limit_bytes = 1024 * TEST_MIB, .min_free_bytes = 1},
	        .memory_bytes = 64 * TEST_MIB,
	        .timeout_ms = WAIT_MS};
	if (ps_cache_open(&options, &f->cache, &err) < 0)
		fail_msg("%s", err.text);
}

static void attach(struct fixture *f, bool merges)
{
	const struct ps_dataset_options options = {0};
	struct ps_error err = {0};
	char source[4096];

	snprintf(source, sizeof(source), "file://%s/www/", f->dir);
	if (ps_dataset_attach(f->cache, source, &options, &f->dataset, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(ps_members_new(f->dataset, merges, merged_changed, f, &f->members), 0);
}

static void members_end(struct fixture *f)
{
	if (f->members) {
		ps_members_stop(f->members);
		ps_members_free(ps_steal_ptr(&f->members));
	}
}

static void detach(struct fixture *f)
{
	members_end(f);
	if (f->dataset)
		ps_dataset_detach(ps_steal_ptr(&f->dataset));
	origin = NULL;
}

/* Does what a daemon does that ends and starts again. */
static void start_again(struct fixture *f, bool merges)
{
	detach(f);
	ps_cache_close(f->cache);
	cache_open(f);
	attach(f, merges);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[4096];

	if (!f || test_dir_setup((void **)&f->dir) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/www", f->dir);
	if (mkdir(path, 0755) < 0)
		return -1;
	pthread_mutex_init(&f->lock, NULL);
	atomic_store(&commits_left, -1);
	atomic_store(&opens_stall, false);
	atomic_store(&nopens, 0);
	cache_open(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ahead_s = 0;
	if (origin)
		atomic_store(&origin->stalled, false);
	if (atomic_load(&stalled.dataset))
		release_open();
	detach(f);
	ps_cache_close(f->cache);
	test_dir_teardown((void **)&f->dir);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return 0;
}

/* Shards ------------------------------------------------------------------------------------------------- */

static void write_file(struct fixture *f, const char *name, const void *data, size_t n)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/www/%s", f->dir, name);
	for (char *slash = strstr(path, "/www/") + 5; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		(void)mkdir(path, 0755);
		*slash = '/';
	}
	file_write(path, data, n);
}

/* Writes a shard. Each word of `names` is the name of a member that contains SHARD:NAME. */
static void write_shard(struct fixture *f, const char *shard, const char *names)
{
	char *copy = strdup(names), *rest = copy, *word, text[512];
	struct tar t = {0};

	while ((word = strsep(&rest, " "))) {
		if (!word[0])
			continue;
		snprintf(text, sizeof(text), "%s:%s", shard, word);
		tar_add_text(&t, word, text);
	}
	tar_end(&t);
	write_file(f, shard, t.data, t.len);
	tar_free(&t);
	free(copy);
}

static void remove_file(struct fixture *f, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/www/%s", f->dir, name);
	assert_int_equal(unlink(path), 0);
}

/* The answer of a call that a test waits for. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int errnum;
	uint64_t node;
	const struct ps_member_table *table;
	struct ps_member_shard *shard;
	struct ps_read read;
	char *bytes;
};

#define ANSWER_INIT                                                                 \
	{                                                                           \
		.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER \
	}

static void answered(struct answer *a, int errnum)
{
	PS_LOCK_SCOPE(&a->lock);
	assert_false(a->done);
	a->errnum = errnum;
	a->done = true;
	pthread_cond_signal(&a->cond);
}

static bool is_answered(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	return a->done;
}

static int wait_for(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->cond, &a->lock);
	return a->errnum;
}

static void found(void *arg, int errnum, const struct ps_attr *attr)
{
	((struct answer *)arg)->node = attr ? attr->node : 0;
	answered(arg, errnum);
}

static uint64_t node_of(struct fixture *f, const char *name)
{
	struct answer a = ANSWER_INIT;

	ps_dataset_lookup(f->dataset, ps_dataset_root(f->dataset), name, found, &a);
	assert_int_equal(wait_for(&a), 0);
	return a.node;
}

static void has_table(void *arg, int errnum, const struct ps_member_table *table)
{
	((struct answer *)arg)->table = table;
	answered(arg, errnum);
}

/* Asks for the table of a shard, waits, and returns the errno. */
static int table_of(struct fixture *f, const char *shard, const struct ps_member_table **ret)
{
	struct answer a = ANSWER_INIT;

	ps_members_table(f->members, node_of(f, shard), has_table, &a);
	int errnum = wait_for(&a);
	assert_int_equal(errnum == 0, a.table != NULL);
	*ret = a.table;
	return errnum;
}

static void not_told(void *arg, uint64_t parent, const char *name)
{
	(void)arg, (void)parent, (void)name;
}

static void refreshed(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result)
{
	(void)result;
	answered(refresh->arg, errnum);
}

/* Lists the folder again. */
static void list_again(struct fixture *f)
{
	struct ps_watch watch = {.dataset = f->dataset, .changed = not_told};
	struct answer a = ANSWER_INIT;
	struct ps_refresh refresh = {.watch = &watch, .done = refreshed, .arg = &a};

	ps_dataset_watch(&watch);
	ps_dataset_refresh(&refresh);
	assert_int_equal(wait_for(&a), 0);
	ps_dataset_unwatch(&watch);
	ps_members_look(f->members);
}

/* Reading ------------------------------------------------------------------------------------------------ */

static void opened(void *arg, int errnum, struct ps_member_shard *shard)
{
	((struct answer *)arg)->shard = shard;
	answered(arg, errnum);
}

static void copy_segments(struct answer *a, const struct ps_segment *segs, size_t nsegs)
{
	size_t at = 0;

	for (size_t i = 0; i < nsegs; i++) {
		if (segs[i].data)
			memcpy(a->bytes + at, segs[i].data, segs[i].nbytes);
		else if (pread(segs[i].fd, a->bytes + at, segs[i].nbytes, (off_t)segs[i].pos) !=
		         (ssize_t)segs[i].nbytes)
			abort();
		at += segs[i].nbytes;
	}
	a->bytes[at] = '\0';
}

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct answer *a = PS_CONTAINER_OF(read, struct answer, read);

	copy_segments(a, segs, nsegs);
	answered(a, errnum);
}

/* The bytes of a member are the text that its shard was given. */
static void reads_as(struct fixture *f, const struct ps_member_table *table, const struct ps_member *member,
        const char *text)
{
	struct answer open = ANSWER_INIT, a = ANSWER_INIT;
	char bytes[1024];

	assert_int_equal(member->kind, PS_MEMBER_FILE);
	ps_member_open(f->members, table->shard, opened, &open);
	assert_int_equal(wait_for(&open), 0);
	a.bytes = bytes;
	a.read = (struct ps_read){.handle = ps_member_handle(open.shard),
	        .offset = member->offset,
	        .nbytes = member->size,
	        .done = read_done};
	ps_handle_read(&a.read);
	assert_int_equal(wait_for(&a), 0);
	ps_member_close(open.shard, false);
	assert_string_equal(bytes, text);
}

/* All entries of a table by ordinal, as "d/ d/f ". */
static void table_shows(struct fixture *f, const struct ps_member_table *table, const char *names)
{
	char text[1024] = "";
	struct ps_member member;

	for (uint32_t i = 1; i < table->n; i++) {
		char *path;

		assert_int_equal(ps_member_get(f->members, table, i, &member), 0);
		assert_int_equal(ps_member_path(f->members, table, i, &path), 0);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s ", path,
		        member.kind == PS_MEMBER_FOLDER ? "/" : "");
		free(path);
	}
	assert_int_equal(ps_member_get(f->members, table, table->n, &member), -ENOENT);
	assert_string_equal(text, names);
}

static uint64_t stat_of(struct fixture *f, const char *name)
{
	json_t *stats = ps_members_stats(f->members), *v = json_object_get(stats, name);
	uint64_t n = json_is_true(v) ? 1 : (uint64_t)json_integer_value(v);

	assert_non_null(v);
	json_decref(stats);
	return n;
}

/* Counts the keys of this kind in the index; bit: only those whose number has this bit. */
static unsigned count_keys(struct fixture *f, char kind, uint64_t bit)
{
	struct ps_index *index = ps_store_index(ps_cache_store(f->cache));
	const void *key, *value;
	struct ps_kv_iter *it;
	size_t nkey, nvalue;
	unsigned n = 0;

	assert_int_equal(ps_kv_iter_open(index->kv, &kind, 1, &it), 0);
	while (ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		uint64_t number;

		memcpy(&number, (const char *)key + 1, sizeof(number));
		n += !bit || (be64toh(number) & bit);
	}
	ps_kv_iter_close(it);
	return n;
}

/* Tables ------------------------------------------------------------------------------------------------- */

static void a_table_is_made_once_and_found_again(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table, *again;
	struct ps_member member;

	write_shard(f, "a.tar", "d/x b d/e/y c");
	attach(f, false);
	assert_null(ps_members_known(f->members, node_of(f, "a.tar")));
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	assert_int_equal(table->n, 7);
	assert_int_equal(table->nfiles, 4);
	assert_int_equal(table->nhidden, 0);
	assert_int_equal(table->size, 4 * 1024 + 1024);
	table_shows(f, table, "b c d/ d/e/ d/x d/e/y ");
	assert_int_equal(ps_member_find(f->members, table, 0, "d", &member), 0);
	assert_int_equal(ps_member_find(f->members, table, member.ordinal, "x", &member), 0);
	assert_int_equal(ps_member_find(f->members, table, member.ordinal, "z", &member), -ENOTDIR);
	assert_int_equal(ps_member_find(f->members, table, 0, "dd", &member), -ENOENT);
	assert_int_equal(ps_member_find(f->members, table, 0, "", &member), -ENOENT);
	assert_int_equal(ps_member_find(f->members, table, 0, "c", &member), 0);
	reads_as(f, table, &member, "a.tar:c");
	assert_int_equal(atomic_load(&nopens), 1);

	uint64_t first = table->first, shard = table->shard;
	start_again(f, false);
	assert_int_equal(table_of(f, "a.tar", &again), 0);
	assert_int_equal(again->first, first);
	assert_int_equal(again->shard, shard);
	assert_int_equal(again->n, 7);
	table_shows(f, again, "b c d/ d/e/ d/x d/e/y ");
	assert_int_equal(atomic_load(&nopens), 1);
	assert_int_equal(atomic_load(&origin->ngets), 0);
	assert_ptr_equal(ps_members_of(f->members, first), again);
	assert_ptr_equal(ps_members_of(f->members, first + 6), again);
	assert_null(ps_members_of(f->members, first + 7));
	assert_null(ps_members_of(f->members, first - 1));
	assert_int_equal(ps_member_find(f->members, again, 0, "b", &member), 0);
	reads_as(f, again, &member, "a.tar:b");
}

static void all_who_ask_for_a_table_share_one_scan(void **state)
{
	struct fixture *f = *state;
	struct answer a[20];

	write_shard(f, "a.tar", "x y");
	attach(f, false);
	uint64_t node = node_of(f, "a.tar");
	atomic_store(&opens_stall, true);
	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++) {
		a[i] = (struct answer)ANSWER_INIT;
		ps_members_table(f->members, node, has_table, &a[i]);
	}
	while (!atomic_load(&stalled.dataset))
		usleep(1000);
	assert_int_equal(stat_of(f, "known"), 0);
	release_open();
	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++) {
		assert_int_equal(wait_for(&a[i]), 0);
		assert_ptr_equal(a[i].table, a[0].table);
	}
	assert_int_equal(atomic_load(&nopens), 1);
}

static void large_tables_are_found_over_the_borders_of_rows(void **state)
{
	enum { N = 20 * PS_MEMBER_ROW + 3 };
	struct fixture *f = *state;
	const struct ps_member_table *table;
	struct ps_member member;
	struct tar t = {0};
	char name[64], text[64];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%06d.txt", i * 7919 % N * 2);
		tar_add_text(&t, name, name);
	}
	tar_end(&t);
	write_file(f, "large.tar", t.data, t.len);
	tar_free(&t);
	attach(f, false);
	assert_int_equal(table_of(f, "large.tar", &table), 0);
	assert_int_equal(table->nfiles, N);
	for (int i = 0; i < 2 * N; i++) {
		snprintf(name, sizeof(name), "%06d.txt", i);
		int rc = ps_member_find(f->members, table, 0, name, &member);
		assert_int_equal(rc, i % 2 ? -ENOENT : 0);
		if (rc == 0)
			assert_int_equal(member.ordinal, 1 + i / 2);
	}
	snprintf(text, sizeof(text), "%06d.txt", 2 * (N - 1));
	assert_int_equal(ps_member_find(f->members, table, 0, text, &member), 0);
	reads_as(f, table, &member, text);
}

/* Of large members the scan reads only the headers. */
static void large_members_are_skipped(void **state)
{
	enum { BIG = 64 << 20 };
	struct fixture *f = *state;
	const struct ps_member_table *table;
	struct ps_member member;
	struct tar t = {0};
	char *zeros = calloc(1, BIG);

	tar_add_text(&t, "first", "1");
	tar_add(&t, "big", zeros, BIG);
	tar_add_text(&t, "last", "3");
	tar_end(&t);
	free(zeros);
	write_file(f, "big.tar", t.data, t.len);
	tar_free(&t);
	attach(f, false);
	assert_int_equal(table_of(f, "big.tar", &table), 0);
	table_shows(f, table, "big first last ");
	assert_in_range(stat_of(f, "made_bytes"), 1024, 8 * TEST_MIB);
	assert_int_equal(ps_member_find(f->members, table, 0, "last", &member), 0);
	reads_as(f, table, &member, "3");
}

static void members_before_the_damage_are_shown(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;
	char text[PS_ERROR_TEXT_LEN];
	struct tar t = {0};

	tar_add_text(&t, "a", "1");
	tar_add_text(&t, "b", "2");
	tar_add_text(&t, "c", "3");
	tar_end(&t);
	write_file(f, "cut.tar", t.data, 1024 + 512);               /* between b's header and its data */
	write_file(f, "unended.tar", t.data, (size_t)2 * 1024);     /* between two members */
	write_file(f, "padding.tar", t.data, (size_t)2 * 1024 - 7); /* b's bytes are there */
	t.data[1024] ^= 1;
	write_file(f, "flipped.tar", t.data, t.len);
	tar_free(&t);
	attach(f, false);

	assert_int_equal(table_of(f, "flipped.tar", &table), 0);
	table_shows(f, table, "a ");
	assert_string_equal(table->damage, "damaged tar at offset 1024: bad header checksum");
	ps_members_error(f->members, table->shard, text);
	assert_string_equal(text, table->damage);
	assert_int_equal(table_of(f, "unended.tar", &table), 0);
	table_shows(f, table, "a b ");
	assert_string_equal(table->damage, "no end mark: complete up to byte 2048, or cut there");
	assert_int_equal(table_of(f, "padding.tar", &table), 0);
	table_shows(f, table, "a b ");
	assert_int_equal(table_of(f, "cut.tar", &table), 0);
	table_shows(f, table, "a ");
	assert_string_equal(table->damage, "truncated: the shard ends within a member at offset 1536");
	start_again(f, false);
	assert_int_equal(table_of(f, "cut.tar", &table), 0);
	ps_members_error(f->members, table->shard, text);
	assert_string_equal(text, "truncated: the shard ends within a member at offset 1536");
}

static void an_empty_tar_has_no_members(void **state)
{
	static const char zeros[10240];
	struct fixture *f = *state;
	const struct ps_member_table *table;

	write_file(f, "empty.tar", zeros, sizeof(zeros));
	attach(f, false);
	assert_int_equal(table_of(f, "empty.tar", &table), 0);
	assert_int_equal(table->n, 1);
	assert_string_equal(table->damage, "");
}

/* The error is kept for ten seconds: otherwise each request in this time would scan the file again, and
 * read the origin without a result. */
static void a_file_that_is_no_tar_fails_and_is_tried_again_after_ten_seconds(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;
	char text[PS_ERROR_TEXT_LEN];

	write_file(f, "text.tar", "This is a text and no tar.", 26);
	attach(f, false);
	uint64_t node = node_of(f, "text.tar");
	ps_members_error(f->members, node, text);
	assert_string_equal(text, "");
	for (int i = 0; i < 3; i++)
		assert_int_equal(table_of(f, "text.tar", &table), EIO);
	ps_members_error(f->members, node, text);
	assert_string_equal(text, "damaged tar at offset 0: no tar header");
	assert_int_equal(atomic_load(&nopens), 1);
	ahead_s = 9;
	assert_int_equal(table_of(f, "text.tar", &table), EIO);
	assert_int_equal(atomic_load(&nopens), 1);
	ahead_s = 11;
	assert_int_equal(table_of(f, "text.tar", &table), EIO);
	assert_int_equal(atomic_load(&nopens), 2);
	ahead_s = 0;
	assert_int_equal(count_keys(f, 'T', 0), 0);
}

static void what_the_origin_fails_to_give_is_tried_again(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;
	char text[PS_ERROR_TEXT_LEN];

	write_shard(f, "a.tar", "x");
	attach(f, false);
	atomic_store(&origin->fail_every, 1);
	atomic_store(&origin->fail_retryable, false);
	assert_int_equal(table_of(f, "a.tar", &table), EIO);
	ps_members_error(f->members, node_of(f, "a.tar"), text);
	assert_string_equal(text, "reading at offset 0: Input/output error");
	atomic_store(&origin->fail_every, 0);
	ahead_s = 11;
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	ahead_s = 0;
	table_shows(f, table, "x ");
	ps_members_error(f->members, table->shard, text);
	assert_string_equal(text, "");
}

static void damage_row(struct fixture *f, uint64_t node, uint32_t row)
{
	struct ps_index *index = ps_store_index(ps_cache_store(f->cache));
	struct ps_index_batch *batch = ps_index_batch_new();

	ps_index_batch_put_members(batch, node, row, "?", 1);
	assert_int_equal(ps_index_batch_commit(index, batch), 0);
}

static void a_table_with_a_damaged_head_is_made_again(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;

	write_shard(f, "a.tar", "x");
	attach(f, false);
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	uint64_t first = table->first;
	damage_row(f, table->shard, PS_MEMBERS_HEAD);
	start_again(f, false);
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	assert_true(table->first > first);
	table_shows(f, table, "x ");
	assert_int_equal(atomic_load(&nopens), 2);
}

static void a_damaged_row_is_an_error(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;
	struct ps_member member;
	char *text;

	write_shard(f, "a.tar", "x");
	attach(f, false);
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	damage_row(f, table->shard, 0);
	assert_int_equal(ps_member_get(f->members, table, 1, &member), -EIO);
	assert_int_equal(ps_member_find(f->members, table, 0, "x", &member), -EIO);
	assert_int_equal(ps_member_link(f->members, table, 1, &text), -EIO);
	assert_int_equal(ps_member_path(f->members, table, 1, &text), -EIO);
}

/* The rows of the old table are deleted once no reader can have its numbers. */
static void a_shard_that_changes_gets_another_table(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *old, *table;
	struct ps_member member;

	write_shard(f, "a.tar", "x y");
	attach(f, false);
	assert_int_equal(table_of(f, "a.tar", &old), 0);
	assert_int_equal(count_keys(f, 'T', 0), 2);
	write_shard(f, "a.tar", "z y more");
	list_again(f);
	assert_int_equal(table_of(f, "a.tar", &table), 0);
	assert_int_not_equal(table->shard, old->shard);
	assert_true(table->first >= old->first + old->n);
	table_shows(f, table, "more y z ");
	table_shows(f, old, "x y ");
	assert_int_equal(ps_member_find(f->members, table, 0, "y", &member), 0);
	reads_as(f, table, &member, "a.tar:y");
	assert_int_equal(count_keys(f, 'T', 0), 4);
	detach(f);
	assert_int_equal(count_keys(f, 'T', 0), 2);
}

/* Stops -------------------------------------------------------------------------------------------------- */

static void a_stop_answers_those_who_wait_for_an_open(void **state)
{
	struct fixture *f = *state;
	struct answer a = ANSWER_INIT, b = ANSWER_INIT, late = ANSWER_INIT;

	write_shard(f, "a.tar", "x");
	attach(f, false);
	uint64_t node = node_of(f, "a.tar");
	atomic_store(&opens_stall, true);
	ps_members_table(f->members, node, has_table, &a);
	ps_members_table(f->members, node, has_table, &b);
	while (!atomic_load(&stalled.dataset))
		usleep(1000);
	ps_members_stop(f->members);
	assert_true(is_answered(&a) && is_answered(&b));
	assert_int_equal(a.errnum, ECANCELED);
	assert_int_equal(b.errnum, ECANCELED);
	assert_null(a.table);
	ps_members_table(f->members, node, has_table, &late);
	assert_true(is_answered(&late));
	assert_int_equal(late.errnum, ECANCELED);
	release_open();
	ps_members_free(ps_steal_ptr(&f->members));
	assert_int_equal(count_keys(f, 'T', 0), 0);
}

static void a_stop_answers_those_who_wait_for_a_scan(void **state)
{
	struct fixture *f = *state;
	struct answer a[8];

	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++) {
		char name[16];

		snprintf(name, sizeof(name), "%zu.tar", i);
		write_shard(f, name, "x");
	}
	attach(f, false);
	atomic_store(&origin->stalled, true);
	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++) { /* more than there are threads */
		char name[16];

		snprintf(name, sizeof(name), "%zu.tar", i);
		a[i] = (struct answer)ANSWER_INIT;
		ps_members_table(f->members, node_of(f, name), has_table, &a[i]);
	}
	while (atomic_load(&origin->ngets) < PS_MEMBERS_WORKERS)
		usleep(1000);
	ps_members_stop(f->members);
	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++) {
		assert_true(is_answered(&a[i]));
		assert_int_equal(a[i].errnum, ECANCELED);
	}
	atomic_store(&origin->stalled, false);
	ps_members_free(ps_steal_ptr(&f->members));
	assert_int_equal(count_keys(f, 'T', 0), 0);
}

/* Opens of shards ---------------------------------------------------------------------------------------- */

static void a_shard_stays_open_for_a_minute(void **state)
{
	struct fixture *f = *state;
	struct answer a = ANSWER_INIT;

	write_shard(f, "a.tar", "x");
	attach(f, false);
	uint64_t node = node_of(f, "a.tar");
	assert_null(ps_member_opened(f->members, node));
	ps_member_open(f->members, node, opened, &a);
	assert_int_equal(wait_for(&a), 0);
	ps_member_close(a.shard, false);
	ahead_s = 59;
	assert_ptr_equal(ps_member_opened(f->members, node), a.shard);
	ahead_s = 61;
	struct ps_member_shard *late = ps_member_opened(f->members, node); /* a.shard is in use */
	ahead_s = 0;
	if (late)
		ps_member_close(late, false);
	ps_member_close(a.shard, false);
	assert_null(late);
	assert_null(ps_member_opened(f->members, node));
}

static void a_shard_is_opened_again_after_a_failed_read(void **state)
{
	struct fixture *f = *state;
	struct answer a = ANSWER_INIT, b = ANSWER_INIT;

	write_shard(f, "a.tar", "x");
	attach(f, false);
	uint64_t node = node_of(f, "a.tar");
	ps_member_open(f->members, node, opened, &a);
	ps_member_open(f->members, node, opened, &b);
	assert_int_equal(wait_for(&a), 0);
	assert_int_equal(wait_for(&b), 0);
	assert_ptr_equal(a.shard, b.shard);
	ps_member_close(a.shard, true);
	assert_null(ps_member_opened(f->members, node));
	ps_member_close(b.shard, true);
	assert_int_equal(atomic_load(&nopens), 1);
	a = (struct answer)ANSWER_INIT;
	ps_member_open(f->members, node, opened, &a);
	assert_int_equal(wait_for(&a), 0);
	ps_member_close(a.shard, false);
	assert_int_equal(atomic_load(&nopens), 2);
}

/* The merged tree ---------------------------------------------------------------------------------------- */

static void merge_all(struct fixture *f)
{
	ps_members_make_all(f->members);
	while (!stat_of(f, "merged") || stat_of(f, "looking"))
		usleep(1000);
}

static void add_merged(struct fixture *f, uint64_t folder, const char *path, char *text, size_t cap)
{
	struct ps_merged_dir *dir;
	const char *name;
	uint64_t node, found_node;
	int rc;

	assert_int_equal(ps_merged_dir_open(f->members, folder, &dir), 0);
	for (uint64_t pos = 0; (rc = ps_merged_dir_read(dir, pos, &name, &node)) > 0; pos++) {
		char below[512];

		assert_int_equal(ps_merged_find(f->members, folder, name, &found_node), 0);
		assert_int_equal(found_node, node);
		if (node & PS_MERGED_FOLDER) {
			snprintf(below, sizeof(below), "%s%s/", path, name);
			snprintf(text + strlen(text), cap - strlen(text), "%s ", below);
			add_merged(f, node, below, text, cap);
			continue;
		}
		const struct ps_member_table *table = ps_members_of(f->members, node);
		struct ps_member member;
		assert_non_null(table);
		assert_int_equal(
		        ps_member_get(f->members, table, (uint32_t)(node - table->first), &member), 0);
		assert_string_equal(member.name, name);
		struct ps_node_info info;
		assert_int_equal(ps_node_info_get(f->dataset, table->shard, &info), 0);
		snprintf(text + strlen(text), cap - strlen(text), "%s%s=%s ", path, name,
		        strstr(info.url, "/www/") + 5);
		ps_node_info_fini(&info);
	}
	assert_int_equal(rc, 0);
	ps_merged_dir_close(dir);
}

/* "d/ d/x=SHARD ": the tree, from the top. */
static void merged_shows(struct fixture *f, const char *names)
{
	char text[2048] = "";
	uint64_t root;

	assert_int_equal(ps_merged_root(f->members, &root), 0);
	assert_true(root & PS_MERGED_FOLDER);
	add_merged(f, root, "", text, sizeof(text));
	assert_string_equal(text, names);
}

static void merged_children_are(struct fixture *f, unsigned n)
{
	assert_int_equal(count_keys(f, 'C', PS_MERGED_FOLDER), n);
}

static void of_files_in_two_shards_the_later_is_merged(void **state)
{
	struct fixture *f = *state;
	uint64_t root;

	write_shard(f, "b.tar", "same d/same only-b d/b");
	write_shard(f, "a.tar", "same d/same only-a");
	write_shard(f, "a/z.tar", "only-z d/b");
	write_file(f, "note.txt", "no shard", 8);
	attach(f, true);
	assert_int_equal(ps_merged_root(f->members, &root), -EAGAIN);
	merge_all(f);
	merged_shows(f, "d/ d/b=b.tar d/same=b.tar only-a=a.tar only-b=b.tar only-z=a/z.tar same=b.tar ");
	assert_int_equal(stat_of(f, "shards"), 3);
	assert_int_equal(stat_of(f, "known"), 3);
	assert_int_equal(stat_of(f, "files"), 9);
	merged_children_are(f, 7);
}

static void a_folder_hides_files_of_its_name_in_all_shards(void **state)
{
	struct fixture *f = *state;

	write_shard(f, "1.tar", "x y z/deep");
	write_shard(f, "2.tar", "x/in x/in2 z");
	write_shard(f, "3.tar", "x y/in w");
	attach(f, true);
	merge_all(f);
	merged_shows(f, "w=3.tar x/ x/in=2.tar x/in2=2.tar y/ y/in=3.tar z/ z/deep=1.tar ");
}

static void a_merged_folder_is_read_from_anywhere(void **state)
{
	struct fixture *f = *state;
	struct ps_merged_dir *dir;
	const char *name;
	uint64_t node, root;

	write_shard(f, "1.tar", "a c e");
	write_shard(f, "2.tar", "b d");
	attach(f, true);
	merge_all(f);
	assert_int_equal(ps_merged_root(f->members, &root), 0);
	assert_int_equal(ps_merged_dir_open(f->members, root, &dir), 0);
	for (int i = 0; i < 40; i++) {
		uint64_t pos = (uint64_t)(i * 7 % 6);

		assert_int_equal(ps_merged_dir_read(dir, pos, &name, &node), pos < 5);
		if (pos < 5)
			assert_int_equal(name[0], 'a' + (int)pos);
	}
	assert_int_equal(ps_merged_dir_read(dir, 1000, &name, &node), 0);
	ps_merged_dir_close(dir);
	assert_int_equal(ps_merged_find(f->members, root, "f", &node), -ENOENT);
}

static void the_merged_tree_is_there_after_a_start(void **state)
{
	struct fixture *f = *state;
	uint64_t root, again;

	write_shard(f, "1.tar", "a d/x");
	attach(f, true);
	merge_all(f);
	assert_int_equal(ps_merged_root(f->members, &root), 0);
	start_again(f, true);
	ps_members_await(f->members, WAIT_MS);
	assert_int_equal(ps_merged_root(f->members, &again), 0);
	assert_int_equal(again, root);
	merged_shows(f, "a=1.tar d/ d/x=1.tar ");
	assert_int_equal(atomic_load(&nopens), 1);
}

static void wait_for_merge(struct fixture *f, uint64_t old)
{
	uint64_t root = old;

	for (int i = 0; root == old && i < WAIT_MS; i++) {
		usleep(1000);
		assert_int_equal(ps_merged_root(f->members, &root), 0);
	}
	while (stat_of(f, "looking"))
		usleep(1000);
}

/* The rows of the previous tree are kept for programs that walk through it; those of older trees are not. */
static void the_merged_tree_is_made_again_when_a_shard_changes(void **state)
{
	struct fixture *f = *state;
	uint64_t first, root, node;

	write_shard(f, "1.tar", "a d/x d/e/y");
	write_shard(f, "2.tar", "b");
	attach(f, true);
	merge_all(f);
	merged_children_are(f, 6);
	assert_string_equal(f->changed, " "); /* the name "": the first tree is shown */
	assert_int_equal(ps_merged_root(f->members, &root), 0);
	first = root;
	write_shard(f, "1.tar", "new d/x");
	list_again(f);
	wait_for_merge(f, root);
	merged_shows(f, "b=2.tar d/ d/x=1.tar new=1.tar ");
	assert_int_equal(ps_merged_find(f->members, first, "a", &node), 0);
	merged_children_are(f, 4 + 6);
	assert_non_null(strstr(f->changed, "a ")); /* the name was removed */
	assert_non_null(strstr(f->changed, "d ")); /* another folder */

	assert_int_equal(ps_merged_root(f->members, &root), 0);
	remove_file(f, "2.tar");
	write_shard(f, "3.tar", "new");
	list_again(f);
	wait_for_merge(f, root);
	merged_shows(f, "d/ d/x=1.tar new=3.tar ");
	merged_children_are(f, 3 + 4);
	assert_int_equal(ps_merged_find(f->members, first, "b", &node), -ESTALE);
}

static void new_names_of_the_merged_tree_are_reported(void **state)
{
	struct fixture *f = *state;
	uint64_t root;

	write_shard(f, "1.tar", "a");
	attach(f, true);
	merge_all(f);
	assert_int_equal(ps_merged_root(f->members, &root), 0);
	write_shard(f, "1.tar", "a new");
	list_again(f);
	wait_for_merge(f, root);
	assert_non_null(strstr(f->changed, "new "));
}

static void shards_that_fail_are_left_out_of_the_merged_tree(void **state)
{
	struct fixture *f = *state;

	write_shard(f, "1.tar", "a");
	write_file(f, "2.tar", "no tar", 6);
	attach(f, true);
	merge_all(f);
	merged_shows(f, "a=1.tar ");
	assert_int_equal(stat_of(f, "failed"), 1);
	assert_int_equal(stat_of(f, "known"), 1);
	assert_int_equal(stat_of(f, "unknown_bytes"), 6);
}

/* The tree that is to be deleted; 0: none. It is the last number in the row of the merged tree's head. */
static uint64_t doomed(struct fixture *f)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	const struct ps_members like = {.dataset = f->dataset};
	uint64_t v[4];
	int rc = ps_index_get_members(ps_store_index(ps_cache_store(f->cache)), ps_dataset_root(f->dataset),
	        ps_merged_head_row(&like), &b);

	if (rc == -ENOENT)
		return 0;
	assert_int_equal(rc, 0);
	assert_int_equal(b.len, sizeof(v));
	memcpy(v, b.s, sizeof(v));
	return le64toh(v[3]);
}

/* The tables exist; then the commits of a merge fail, from one commit later each time, until all of them
 * succeed. The start that follows shows a whole tree, and leaves only its rows and those of the previous
 * tree. */
static void a_merge_that_is_cut_off_anywhere_leaves_a_whole_tree_and_no_rows(void **state)
{
	struct fixture *f = *state;
	bool cut = true;
	int steps;

	write_shard(f, "0.tar", "same d/x d/e/y");
	attach(f, true);
	merge_all(f);
	for (steps = 0; cut; steps++) {
		const struct ps_member_table *table;
		char name[32], names[64], tree[128];

		/* Another version of one shard, whose table is made without a merge. */
		members_end(f);
		snprintf(names, sizeof(names), "same n%d d/x%d", steps, steps);
		snprintf(name, sizeof(name), "1.tar");
		write_shard(f, name, names);
		start_again(f, false);
		assert_int_equal(table_of(f, name, &table), 0);
		members_end(f);

		atomic_store(&commit_failed, false);
		atomic_store(&commits_left, steps);
		assert_int_equal(ps_members_new(f->dataset, true, merged_changed, f, &f->members), 0);
		ps_members_await(f->members, WAIT_MS);
		cut = atomic_load(&commit_failed);
		members_end(f);
		atomic_store(&commits_left, -1);
		assert_int_equal(doomed(f) != 0, cut && steps > 0);

		start_again(f, true);
		ps_members_await(f->members, WAIT_MS);
		snprintf(tree, sizeof(tree),
		        "d/ d/e/ d/e/y=0.tar d/x=0.tar d/x%d=1.tar n%d=1.tar same=1.tar ", steps, steps);
		merged_shows(f, tree);
		/* The rows of this tree and of the one before it. */
		merged_children_are(f, 7 + (steps ? 7 : 5));
		assert_int_equal(doomed(f), 0);
	}
	assert_true(steps > 4);
}

static void stats_count_shards_and_members(void **state)
{
	struct fixture *f = *state;
	const struct ps_member_table *table;
	struct tar t = {0};

	write_shard(f, "1.tar", "a b");
	tar_add_text(&t, "../up", "1");
	tar_add_text(&t, "d/c", "2");
	tar_end(&t);
	write_file(f, "2.tar", t.data, t.len);
	write_shard(f, "3.tar", "never asked");
	attach(f, false);
	ps_members_await(f->members, WAIT_MS);
	assert_int_equal(table_of(f, "1.tar", &table), 0);
	assert_int_equal(table_of(f, "2.tar", &table), 0);
	json_t *stats = ps_members_stats(f->members);
	assert_false(json_is_true(json_object_get(stats, "merges")));
	assert_int_equal(json_integer_value(json_object_get(stats, "shards")), 3);
	assert_int_equal(json_integer_value(json_object_get(stats, "known")), 2);
	assert_int_equal(json_integer_value(json_object_get(stats, "making")), 0);
	assert_int_equal(json_integer_value(json_object_get(stats, "failed")), 0);
	assert_int_equal(json_integer_value(json_object_get(stats, "files")), 3);
	assert_int_equal(json_integer_value(json_object_get(stats, "hidden")), 1);
	assert_string_equal(json_string_value(json_object_get(stats, "hidden_reason")),
	        "../up: the name has a component \"..\"");
	assert_int_equal(json_integer_value(json_object_get(stats, "unknown_bytes")), 2 * 1024 + 1024);
	assert_int_equal(json_integer_value(json_object_get(stats, "made_bytes")), 3 * 1024 + t.len);
	json_decref(stats);
	assert_true(ps_members_fit(f->members));
	tar_free(&t);
}

static void a_shard_is_known_by_its_name(void **state)
{
	(void)state;
	assert_true(ps_members_is_shard("a.tar"));
	assert_true(ps_members_is_shard("a.b.tar"));
	assert_false(ps_members_is_shard(".tar"));
	assert_false(ps_members_is_shard("tar"));
	assert_false(ps_members_is_shard("a.tar.gz"));
	assert_false(ps_members_is_shard("a.TAR"));
	assert_false(ps_members_is_shard(""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_table_is_made_once_and_found_again),
	        TEST(all_who_ask_for_a_table_share_one_scan),
	        TEST(large_tables_are_found_over_the_borders_of_rows),
	        TEST(large_members_are_skipped),
	        TEST(members_before_the_damage_are_shown),
	        TEST(an_empty_tar_has_no_members),
	        TEST(a_file_that_is_no_tar_fails_and_is_tried_again_after_ten_seconds),
	        TEST(what_the_origin_fails_to_give_is_tried_again),
	        TEST(a_table_with_a_damaged_head_is_made_again),
	        TEST(a_damaged_row_is_an_error),
	        TEST(a_shard_that_changes_gets_another_table),
	        TEST(a_stop_answers_those_who_wait_for_an_open),
	        TEST(a_stop_answers_those_who_wait_for_a_scan),
	        TEST(a_shard_stays_open_for_a_minute),
	        TEST(a_shard_is_opened_again_after_a_failed_read),
	        TEST(of_files_in_two_shards_the_later_is_merged),
	        TEST(a_folder_hides_files_of_its_name_in_all_shards),
	        TEST(a_merged_folder_is_read_from_anywhere),
	        TEST(the_merged_tree_is_there_after_a_start),
	        TEST(the_merged_tree_is_made_again_when_a_shard_changes),
	        TEST(new_names_of_the_merged_tree_are_reported),
	        TEST(shards_that_fail_are_left_out_of_the_merged_tree),
	        TEST(a_merge_that_is_cut_off_anywhere_leaves_a_whole_tree_and_no_rows),
	        TEST(stats_count_shards_and_members),
	        TEST(a_shard_is_known_by_its_name),
	};

	return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
