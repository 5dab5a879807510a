/* The order in which the store changes the disk: a wrong order would go unnoticed until a kill. Whatever is
 * delayed, refused or damaged in between, no index row may name bytes that the data file lacks. With --wrap,
 * this file replaces calls by which the store changes its index and its files. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <rocksdb/c.h>

#include "cache_test.h"
#include "index/index_private.h"

/* Two extents with a row each: a write to one does not change the other's row. */
#define SIZE (66 * TEST_MIB)
#define SECOND 64

static struct ps_id id_of(struct ps_object *o)
{
	return *ps_object_key(o);
}

/* A delayed batch ---------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool hold_next, refuse_then_hold;
static unsigned nheld, nreleased; /* the first held batch is released first */

int __real_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch);
int __wrap_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch);
int __wrap_ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch)
{
	pthread_mutex_lock(&lock);
	if (refuse_then_hold) {
		refuse_then_hold = false;
		hold_next = true;
		pthread_mutex_unlock(&lock);
		ps_index_batch_free(batch);
		return -EIO;
	}
	if (hold_next) {
		unsigned ticket = nheld++;

		hold_next = false;
		pthread_cond_broadcast(&cond);
		while (ticket >= nreleased)
			pthread_cond_wait(&cond, &lock);
	}
	pthread_mutex_unlock(&lock);
	return __real_ps_index_batch_commit(index, batch);
}

static void wait_held(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (nheld < n)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

/* Releases the batch that was held first. */
static void release(void)
{
	pthread_mutex_lock(&lock);
	nreleased++;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

static void hold(void)
{
	pthread_mutex_lock(&lock);
	nheld = nreleased = 0;
	hold_next = true;
	pthread_mutex_unlock(&lock);
}

static void *commit(void *arg)
{
	return ps_store_commit(arg) == 0 ? arg : NULL;
}

static void *evict(void *arg)
{
	return ps_object_evict(arg, NULL) == 0 ? arg : NULL;
}

static void *evict_all(void *arg)
{
	uint64_t nobjects, nbytes;

	return ps_store_evict(arg, NULL, 0, &nobjects, &nbytes) == 0 ? arg : NULL;
}

static void *admit(void *arg)
{
	return ps_object_admit(arg) == 0 ? arg : NULL;
}

static bool ends_within(pthread_t thread, unsigned ms)
{
	struct timespec end;
	void *result = NULL;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += (long)ms * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	return pthread_timedjoin_np(thread, &result, &end) == 0;
}

static void an_eviction_waits_for_the_commit_under_way(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	pthread_t committing, evicting;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	hold();
	assert_int_equal(pthread_create(&committing, NULL, commit, store), 0);
	wait_held(1);
	assert_int_equal(pthread_create(&evicting, NULL, evict, o), 0);
	bool early = ends_within(evicting, 200);
	release();
	if (!early)
		assert_int_equal(pthread_join(evicting, NULL), 0);
	assert_int_equal(pthread_join(committing, NULL), 0);
	ps_object_put(o);
	/* The object is created again under the same id, with other blocks: the old rows must not name its
	 * holes. */
	o = test_object(store, 0, SIZE);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_PRESENT);
	assert_true(test_right(o, SECOND));
	ps_object_put(o);
	ps_store_close(store);
	assert_false(early);
}

/* The batch that follows a refused one has all rows of an object again, except those of extents that are
 * being evicted: the batch may reach the index after the one that deletes their rows. */
static void a_batch_does_not_restore_the_row_of_an_evicted_extent(void **state)
{
	struct ps_store *store = test_store_open(*state, 96 * TEST_MIB, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);
	pthread_t committing, evicting;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	hold();
	assert_int_equal(pthread_create(&evicting, NULL, evict, o), 0);
	wait_held(1); /* the row's deletion */
	assert_int_equal(test_write(o, SECOND), 0);
	refuse_then_hold = true;
	assert_int_equal(ps_store_commit(store), -EIO);
	assert_int_equal(pthread_create(&committing, NULL, commit, store), 0);
	wait_held(2);
	release();
	assert_int_equal(pthread_join(evicting, NULL), 0);
	release();
	assert_int_equal(pthread_join(committing, NULL), 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 96 * TEST_MIB, "lru");
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_PRESENT);
	assert_true(test_right(o, SECOND));
	ps_object_put(o);
	ps_store_close(store);
}

/* Rows at the time a file is deleted --------------------------------------------------------------------- */

static struct ps_store *watched;
static struct ps_id watched_id;
static unsigned nunlinked, nvouched;
static _Atomic int unlink_held; /* 1: the next unlink of the watched file will be held; 2: it is held */
static void hold_unlink(void);

int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags)
{
	char hex[PS_ID_HEX_LEN + 1];
	struct ps_object_row row;
	struct ps_extent_row extent;
	const char *base = strrchr(name, '/');

	ps_id_hex(&watched_id, hex);
	if (unlink_held == 1 && strcmp(base ? base + 1 : name, hex) == 0)
		hold_unlink();
	if (watched && strcmp(base ? base + 1 : name, hex) == 0) {
		nunlinked++;
		if (ps_index_get_object(ps_store_index(watched), &watched_id, &row) == 0) {
			ps_object_row_fini(&row);
			nvouched++;
		}
		nvouched += index_get_extent(ps_store_index(watched), &watched_id, 0, &extent) == 0;
	}
	return __real_unlinkat(dir, name, flags);
}

static void rows_are_deleted_before_their_file(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	struct ps_extent_row extent;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	watched_id = id_of(o);
	assert_int_equal(index_get_extent(ps_store_index(store), &watched_id, 0, &extent), 0);
	watched = store;
	assert_int_equal(ps_object_evict(o, NULL), 0);
	watched = NULL;
	assert_int_equal(nunlinked, 1);
	assert_int_equal(nvouched, 0);
	ps_object_put(o);
	ps_store_close(store);
}

/* A delayed unlink --------------------------------------------------------------------------------------- */

static void *make_again(void *arg)
{
	struct ps_object *o = test_object(arg, 0, SIZE);
	bool made = ps_object_admit(o) == 0 && test_write(o, 0) == 0;

	ps_object_put(o);
	return made ? arg : NULL;
}

static void hold_unlink(void)
{
	pthread_mutex_lock(&lock);
	unlink_held = 2;
	pthread_cond_broadcast(&cond);
	while (unlink_held == 2)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_unlink_held(void)
{
	pthread_mutex_lock(&lock);
	while (unlink_held != 2)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

static void release_unlink(void)
{
	pthread_mutex_lock(&lock);
	unlink_held = 0;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

/* If the object were created earlier, it would write to the file that is being evicted: readers would find
 * the blocks cached, and the next start would lose them. */
static void an_object_is_created_again_after_its_file_is_deleted(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);
	pthread_t evicting, making;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	watched_id = id_of(o);
	ps_object_put(o);
	unlink_held = 1;
	assert_int_equal(pthread_create(&evicting, NULL, evict_all, store), 0);
	wait_unlink_held();
	assert_int_equal(pthread_create(&making, NULL, make_again, store), 0);
	bool early = ends_within(making, 200);
	release_unlink();
	if (!early)
		assert_int_equal(pthread_join(making, NULL), 0);
	assert_int_equal(pthread_join(evicting, NULL), 0);
	ps_store_close(store);
	store = test_store_open(*state, 0, "lru");
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_ABSENT);
	assert_true(test_right(o, 0));
	ps_object_put(o);
	ps_store_close(store);
	assert_false(early);
}

/* The same for an object of which the start has only read the row. */
static void an_unopened_object_is_created_again_after_its_file_is_deleted(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);
	pthread_t evicting, making;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	watched_id = id_of(o);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, "lru");
	unlink_held = 1;
	assert_int_equal(pthread_create(&evicting, NULL, evict_all, store), 0);
	wait_unlink_held();
	assert_int_equal(pthread_create(&making, NULL, make_again, store), 0);
	bool early = ends_within(making, 200);
	release_unlink();
	if (!early)
		assert_int_equal(pthread_join(making, NULL), 0);
	assert_int_equal(pthread_join(evicting, NULL), 0);
	ps_store_close(store);
	store = test_store_open(*state, 0, "lru");
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_ABSENT);
	assert_true(test_right(o, 0));
	ps_object_put(o);
	ps_store_close(store);
	assert_false(early);
}

struct filling {
	struct ps_store *store;
	unsigned object;
	int result;
};

static void *fill(void *arg)
{
	struct filling *f = arg;
	struct ps_object *o = test_object(f->store, f->object, 3 * TEST_MIB);

	f->result = test_write_all(o);
	ps_object_put(o);
	return NULL;
}

/* A writer that needs no more than what is being evicted waits for the end of that eviction before it causes
 * another. */
static void a_writer_waits_for_room_that_is_being_evicted(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * TEST_MIB, "lru");
	struct filling first = {store, 4, 0}, second = {store, 5, 0};
	pthread_t threads[2];

	for (unsigned i = 0; i < 4; i++) {
		struct ps_object *o = test_object(store, i, 3 * TEST_MIB);

		assert_int_equal(test_write_all(o), 0);
		if (i == 0)
			watched_id = id_of(o);
		ps_object_put(o);
	}
	unlink_held = 1;
	assert_int_equal(pthread_create(&threads[0], NULL, fill, &first), 0);
	wait_unlink_held();
	assert_int_equal(pthread_create(&threads[1], NULL, fill, &second), 0);
	assert_false(ends_within(threads[1], 200));
	assert_int_equal(test_stat(store, "evicted_objects"), 1);
	release_unlink();
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(first.result, 0);
	assert_int_equal(second.result, 0);
	assert_int_equal(test_stat(store, "evicted_objects"), 2);
	ps_store_close(store);
}

static void wait_evicted(struct ps_store *store, uint64_t n)
{
	for (int i = 0; i < 1000 && test_stat(store, "evicted_objects") < n; i++)
		usleep(1000);
}

/* A writer that needs more than what is being evicted causes the eviction of the difference only. */
static void a_writer_evicts_only_what_it_needs_beyond_the_eviction_under_way(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * TEST_MIB, "lru");
	struct filling first = {store, 4, 0};
	pthread_t filling, admitting;

	for (unsigned i = 0; i < 4; i++) {
		struct ps_object *o = test_object(store, i, 3 * TEST_MIB);

		assert_int_equal(test_write_all(o), 0);
		if (i == 0)
			watched_id = id_of(o);
		ps_object_put(o);
	}
	struct ps_object *large = test_object(store, 5, 4 * TEST_MIB);
	unlink_held = 1;
	assert_int_equal(pthread_create(&filling, NULL, fill, &first), 0);
	wait_unlink_held();
	assert_int_equal(pthread_create(&admitting, NULL, admit, large), 0);
	wait_evicted(store, 2);
	bool early = ends_within(admitting, 200);
	uint64_t nevicted = test_stat(store, "evicted_objects");
	release_unlink();
	if (!early)
		assert_int_equal(pthread_join(admitting, NULL), 0);
	assert_int_equal(pthread_join(filling, NULL), 0);
	ps_object_put(large);
	ps_store_close(store);
	assert_false(early);
	assert_int_equal(nevicted, 2);
}

/* A refused batch ---------------------------------------------------------------------------------------- */

static _Atomic int refuse_next;
static _Atomic bool refuse_all;

void __real_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text)
{
	if (!refuse_all && atomic_exchange(&refuse_next, 0) == 0)
		__real_rocksdb_write(db, options, b, text);
	else if (asprintf(text, "IO error: While appending to file: %s", strerror(EIO)) < 0)
		abort();
}

/* A block that is on disk but in no row would be fetched again after a restart. */
static void rows_of_a_refused_batch_are_in_the_next(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	int e = -EIO;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	refuse_next = 1;
	assert_int_equal(ps_store_commit(store), -EIO);
	for (int i = 0; i < 200 && (e = ps_store_commit(store)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_PRESENT);
	assert_true(test_right(o, 0) && test_right(o, SECOND));
	ps_object_put(o);
	ps_store_close(store);
}

/* An eviction deletes rows. Rows that it could not delete must not name holes of the file that is created
 * next. */
static void failed_deletions_of_rows_are_repeated_before_the_object_is_created_again(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	int e = -EIO;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	refuse_next = 1;
	(void)ps_object_evict(o, NULL);
	assert_int_equal(refuse_next, 0);
	ps_object_put(o);
	for (int i = 0; i < 200 && (e = ps_store_commit(store)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	o = test_object(store, 0, SIZE);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_PRESENT);
	ps_object_put(o);
	ps_store_close(store);
}

/* While the old rows exist, a holder gets no file for the object, since the rows would count for that file.
 * Once the rows are deleted, this holder may or may not get a file; the next holder gets one. */
static void an_object_with_undeleted_rows_is_created_again_by_its_next_holder(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	int e = -EIO;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	refuse_all = true;
	(void)ps_object_evict(o, NULL);
	ps_object_put(o);
	o = test_object(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	refuse_all = false;
	for (int i = 0; i < 200 && (e = ps_store_commit(store)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	(void)(ps_object_admit(o) == 0 && test_write(o, SECOND) == 0); /* may fail for this holder */
	ps_object_put(o);
	o = test_object(store, 0, SIZE);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_PRESENT);
	assert_true(test_right(o, SECOND));
	ps_object_put(o);
	ps_store_close(store);
}

/* If such an extent were evicted, its row would name a hole. */
static void an_extent_whose_row_could_not_be_deleted_stays(void **state)
{
	struct ps_store *store = test_store_open(*state, 96 * TEST_MIB, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);
	int e = -EIO;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	assert_int_equal(ps_store_commit(store), 0);
	refuse_all = true;
	(void)ps_object_evict(o, NULL);
	refuse_all = false;
	for (int i = 0; i < 200 && (e = ps_store_commit(store)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 96 * TEST_MIB, "lru");
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_true(test_right(o, 0) && test_right(o, SECOND));
	ps_object_put(o);
	ps_store_close(store);
}

/* Blocks that were evicted before their check do not count as unchecked any more. */
static void a_file_is_complete_though_unchecked_parts_were_evicted(void **state)
{
	struct ps_store *store = test_store_open(*state, 96 * TEST_MIB, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);

	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_store_close(store);
	test_cut_the_power(*state);
	store = test_store_open(*state, 96 * TEST_MIB, "lru");
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_UNVERIFIED);
	assert_int_equal(ps_object_evict(o, NULL), 0);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	ps_store_close(store);
}

/* Rows that were put while the disk refused writes can be read until they are written, even if the first
 * retry fails. */
static void rows_kept_in_memory_stay_until_they_are_written(void **state)
{
	enum { FOLDER = 2000, NODE = 2001 };
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_index *index = ps_store_index(store);
	struct ps_index_batch *batch = ps_index_batch_new();
	uint64_t node = 0;
	int e = -EIO;

	refuse_all = true;
	ps_index_batch_put_child(batch, FOLDER, "a", NODE);
	assert_int_equal(ps_index_batch_commit_or_keep(index, batch), 0);
	assert_int_not_equal(ps_index_reopen(index, NULL), 0);
	assert_int_equal(ps_index_get_child(index, FOLDER, "a", &node), 0);
	refuse_all = false;
	for (int i = 0; i < 200 && (e = ps_index_reopen(index, NULL)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	assert_int_equal(ps_index_get_child(index, FOLDER, "a", &node), 0);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	assert_int_equal(ps_index_get_child(ps_store_index(store), FOLDER, "a", &node), 0);
	assert_int_equal(node, NODE);
	ps_store_close(store);
}

/* Syncs -------------------------------------------------------------------------------------------------- */

static _Atomic ino_t synced_ino; /* of the data file that was synced last */

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0)
		synced_ino = st.st_ino;
	return __real_fdatasync(fd);
}

/* A power cut loses what was written in the last seconds, not all that was written in this run. */
static void committed_blocks_are_synced_without_a_request(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	struct stat st;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(fstat(ps_object_fd(o), &st), 0);
	assert_int_equal(ps_store_commit(store), 0);
	for (int i = 0; i < 1000 && synced_ino != st.st_ino; i++)
		usleep(10000);
	assert_int_equal(synced_ino, st.st_ino);
	ps_object_put(o);
	ps_store_close(store);
}

/* Rows of extents ---------------------------------------------------------------------------------------- */

static void write_one(struct ps_store *store, uint64_t block)
{
	struct ps_object *o = test_object(store, 0, SIZE);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, block), 0);
	ps_object_put(o);
}

/* Checks after a restart that block 0 is present and right and that SECOND is absent; closes the store. */
static void only_the_first_is_there(struct ps_store *store)
{
	struct ps_object *o = test_object_look(store, 0, SIZE);

	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_ABSENT);
	assert_true(test_right(o, 0));
	ps_object_put(o);
	ps_store_close(store);
}

/* A row that stays would name holes of the file that is created next. */
static void the_rows_of_all_extents_of_an_evicted_file_are_deleted(void **state)
{
	struct ps_store *store = test_store_open(*state, 96 * TEST_MIB, "lru");
	uint64_t nobjects, nbytes;

	write_one(store, SECOND);
	write_one(store, 0);
	assert_int_equal(ps_store_evict(store, NULL, 0, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 1);
	write_one(store, 0);
	ps_store_close(store);
	only_the_first_is_there(test_store_open(*state, 96 * TEST_MIB, "lru"));
}

static void the_rows_of_all_extents_of_a_lost_file_are_deleted(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);
	char path[4096];

	test_data_path(o, *state, path, sizeof(path));
	ps_object_put(o);
	write_one(store, SECOND);
	ps_store_close(store);
	assert_int_equal(unlink(path), 0);
	store = test_store_open(*state, 0, NULL);
	write_one(store, 0);
	ps_store_close(store);
	only_the_first_is_there(test_store_open(*state, 0, NULL));
}

/* A start punches holes where no row names a block, and leaves the neighbouring blocks as they are. */
static void a_start_punches_exactly_what_no_row_names(void **state)
{
	struct ps_store *store = test_store_open(*state, 96 * TEST_MIB, "lru");
	struct ps_object *o = test_object(store, 0, SIZE);
	char path[4096], *bytes = malloc(TEST_MIB);

	test_fill(o, 1, bytes);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(ps_object_write_chunks(o, 1, 0, 2, bytes), 0);
	assert_int_equal(test_write(o, 3), 0);
	test_data_path(o, *state, path, sizeof(path));
	ps_object_put(o);
	ps_store_close(store);
	int fd = open(path, O_WRONLY);
	for (unsigned b = 0; b < 5; b += 2) /* no row names blocks 0, 2 and 4 */
		assert_int_equal(pwrite(fd, bytes, TEST_MIB, (off_t)(b * TEST_MIB)), TEST_MIB);
	close(fd);
	store = test_store_open(*state, 96 * TEST_MIB, "lru");
	assert_in_range(test_on_disk(*state), TEST_MIB + TEST_MIB / 8, TEST_MIB + TEST_MIB / 4);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_verify_block(o, 1, bytes), 0);
	assert_int_equal(ps_object_verify_block(o, 3, bytes), 0);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_PARTIAL);
	assert_int_equal(ps_object_block(o, 3), PS_BLOCK_PRESENT);
	ps_object_put(o);
	ps_store_close(store);
	free(bytes);
}

/* A damaged row ------------------------------------------------------------------------------------------ */

static void damage_object_row(const char *dir, const struct ps_id *id)
{
	char path[4096];
	struct ps_index *index = NULL;
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_index_key key;

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	assert_int_equal(ps_index_open(path, 0, &index, NULL), 0);
	ps_index_key_id(&key, 'O', id);
	ps_kv_batch_put(batch, key.bytes, key.n, "?", 1);
	assert_int_equal(ps_kv_write(index->kv, batch, 0, NULL), 0);
	ps_index_batch_free(batch);
	ps_index_close(index);
}

static void the_extent_rows_of_a_damaged_object_row_are_deleted(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(test_write(o, SECOND), 0);
	struct ps_id id = id_of(o);
	ps_object_put(o);
	ps_store_close(store);
	damage_object_row(*state, &id);

	store = test_store_open(*state, 0, NULL);
	assert_int_equal(test_on_disk(*state), 0);
	o = test_object(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	ps_object_put(o);
	ps_store_close(store);

	store = test_store_open(*state, 0, NULL);
	o = test_object_look(store, 0, SIZE);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_block(o, SECOND), PS_BLOCK_ABSENT);
	ps_object_put(o);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(an_eviction_waits_for_the_commit_under_way),
	        TEST(a_batch_does_not_restore_the_row_of_an_evicted_extent),
	        TEST(rows_are_deleted_before_their_file),
	        TEST(an_object_is_created_again_after_its_file_is_deleted),
	        TEST(an_unopened_object_is_created_again_after_its_file_is_deleted),
	        TEST(a_writer_waits_for_room_that_is_being_evicted),
	        TEST(a_writer_evicts_only_what_it_needs_beyond_the_eviction_under_way),
	        TEST(failed_deletions_of_rows_are_repeated_before_the_object_is_created_again),
	        TEST(an_object_with_undeleted_rows_is_created_again_by_its_next_holder),
	        TEST(an_extent_whose_row_could_not_be_deleted_stays),
	        TEST(a_file_is_complete_though_unchecked_parts_were_evicted),
	        TEST(rows_of_a_refused_batch_are_in_the_next),
	        TEST(rows_kept_in_memory_stay_until_they_are_written),
	        TEST(committed_blocks_are_synced_without_a_request),
	        TEST(the_rows_of_all_extents_of_an_evicted_file_are_deleted),
	        TEST(the_rows_of_all_extents_of_a_lost_file_are_deleted),
	        TEST(a_start_punches_exactly_what_no_row_names),
	        TEST(the_extent_rows_of_a_damaged_object_row_are_deleted),
	};

	return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
