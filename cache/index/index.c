#include "index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "index/index_private.h"

/* Numbers are reserved in chunks; each restart wastes the rest of a chunk. A power cut may lose a reservation
 * from the log, but then it also loses every row that was written after the reservation. */
#define NUMBER_CHUNK 65536
#define DATASET_FIRST 1
#define SMALL_MEMTABLE_NBYTES PS_MIB

/* Meta rows, schema, open -------------------------------------------------------------------------------- */

/* kind: 'M' for the stop, 'C' for a number. */
static int put_meta(struct ps_index *index, const char *name, char kind, const void *row)
{
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_index_key key;
	int rc = -ENOMEM;

	if (batch)
		ps_row_encode(kind, row, &batch->value);
	if (batch && !batch->value.failed) {
		ps_index_key_meta(&key, name);
		ps_kv_batch_put(batch, key.bytes, key.n, batch->value.s, batch->value.len);
		rc = ps_kv_write(index->kv, batch, 0, NULL);
	}
	ps_index_batch_free(batch);
	return rc;
}

static int get_meta(struct ps_index *index, const char *name, char kind, void *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	const uint8_t letter = (uint8_t)kind;
	struct ps_index_key key;

	ps_index_key_meta(&key, name);
	int rc = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return rc < 0 ? rc : ps_index_bad_row(&key, ps_row_decode(&letter, value.s, value.len, ret));
}

static int check_schema(struct ps_index *index, struct ps_error *err)
{
	uint64_t schema = 0;
	int rc = get_meta(index, "schema", 'C', &schema);

	if (rc == -ENOENT) {
		/* An index without a schema is new if it has no rows at all. */
		struct ps_kv_iter *it = NULL;
		const void *key, *value;
		size_t nkey, nvalue;
		bool any = false;

		for (const char *kind = "MDNCOBPVFGT"; *kind && !any; kind++) {
			rc = ps_kv_iter_open(index->kv, kind, 1, &it);
			if (rc < 0)
				return ps_error_set(err, -rc, "index: cannot be read");
			any = ps_kv_iter_next(it, &key, &nkey, &value, &nvalue);
			ps_kv_iter_close(it);
		}
		if (any)
			return ps_error_set(err, EIO, "index: it has rows, but no schema number");
		schema = PS_INDEX_SCHEMA;
		rc = put_meta(index, "schema", 'C', &schema);
		return rc < 0 ? ps_error_set(err, -rc, "index: cannot be written: %s", strerror(-rc)) : 0;
	}
	if (rc < 0)
		return ps_error_set(
		        err, rc == -EBADMSG ? EIO : -rc, "index: the schema number cannot be read");
	if (schema > PS_INDEX_SCHEMA)
		return ps_error_set(err, EPROTO,
		        "the index has schema %llu, this program knows %d: use a newer penstock, "
		        "or another cache directory",
		        (unsigned long long)schema, PS_INDEX_SCHEMA);
	if (schema < PS_INDEX_SCHEMA)
		return ps_error_set(
		        err, EIO, "index: %llu is not a schema number", (unsigned long long)schema);
	return 0;
}

/* Numbers start after the last reserved chunk: no number after it was ever taken. */
static int load_numbers(struct ps_index *index, struct ps_index_numbers *numbers, uint64_t first)
{
	uint64_t end = first;
	int rc = get_meta(index, numbers->meta, 'C', &end);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	numbers->next = numbers->end = PS_MAX(end, first);
	return 0;
}

/* The number of the mount that the directory is on. 0: not known, because the kernel (before 6.8) reuses
 * mount numbers. */
static uint64_t mount_id(const char *dir)
{
	enum { MNT_ID_UNIQUE = 0x4000 }; /* STATX_MNT_ID_UNIQUE: not in the headers of Debian 12 */
	struct statx st;

	return statx(AT_FDCWD, dir, 0, MNT_ID_UNIQUE, &st) == 0 && st.stx_mask & MNT_ID_UNIQUE ? st.stx_mnt_id
	                                                                                       : 0;
}

/* dir NULL: assumes the mount of the last run. */
static int load_meta(struct ps_index *index, const char *dir, const char *boot_id, struct ps_error *err)
{
	struct ps_stop_row stop = {.clean = true}; /* of a new index */

	int rc = load_numbers(index, &index->nodes, PS_NODE_FIRST);
	if (rc == 0)
		rc = load_numbers(index, &index->datasets, DATASET_FIRST);
	if (rc < 0)
		return ps_error_set(err, rc == -EBADMSG ? EIO : -rc, "index: the numbers cannot be read");

	rc = get_meta(index, "stop", 'M', &stop);
	if (rc < 0 && rc != -ENOENT)
		return ps_error_set(err, rc == -EBADMSG ? EIO : -rc, "index: the last stop cannot be read");
	index->was_clean = stop.clean;
	index->same_boot = boot_id[0] != '\0' && strcmp(boot_id, stop.boot_id) == 0;
	index->stop.mount_id = dir ? mount_id(dir) : stop.mount_id;
	/* The page cache keeps what a killed process wrote, but not across a reboot, nor when a failed disk
	 * is mounted again. A private mount namespace also looks like a new mount, which only costs a
	 * check. */
	index->kept = index->same_boot && (!stop.mount_id || stop.mount_id == index->stop.mount_id);
	index->stop.trust = stop.trust + (!index->was_clean && !index->kept);
	memcpy(index->stop.boot_id, boot_id, strnlen(boot_id, sizeof(index->stop.boot_id) - 1));
	rc = put_meta(index, "stop", 'M', &index->stop); /* not a clean stop, so far */
	/* Synced before any other write: if a power cut brought back the row of a clean stop, that row would
	 * vouch for rows that may be lost. */
	if (rc == 0)
		rc = ps_kv_sync(index->kv);
	return rc < 0 ? ps_error_set(err, -rc, "index: cannot be written: %s", strerror(-rc)) : 0;
}

/* Damage must be found at start, when the index can still be moved aside, and not by a later lookup. After a
 * possible power cut all rows are read. Otherwise the rows that can be made again, which are most of the
 * index, are left out: extents (an object whose extents cannot be read is only streamed), tables of members,
 * and the folders of merged trees. A later read of a damaged row returns an error, and the next start moves
 * the index aside. A process that takes mounts over reads no rows: readers wait meanwhile, and without the
 * index the mounts would end. */
#define RANGE(from_, to_)                                                                        \
	{                                                                                        \
		.from = (from_), .nfrom = sizeof(from_) - 1, .to = (to_), .nto = sizeof(to_) - 1 \
	}
#define MERGED_CHILDREN "C\0\0\0\x80" /* the first name in a folder of a merged tree: members/members.h */
#define CHECKS 2                      /* ranges of each half */

static const struct ps_kv_range all_rows[2][CHECKS] = {{RANGE("", "N")}, {RANGE("N", "")}};
static const struct ps_kv_range needed_rows[2][CHECKS] = {
        {RANGE("C", MERGED_CHILDREN), RANGE("D", "N")}, {RANGE("N", "T"), RANGE("U", "")}};

/* Names and nodes of millions of files take seconds to read. If the last stop cannot have lost any of them, a
 * thread reads them, and the start does not wait for it. */
#define LARGE_NBYTES (128 * PS_MIB)
static const struct ps_kv_range few_rows[2][CHECKS] = {{RANGE("D", "N")}, {RANGE("O", "T"), RANGE("U", "")}};
static const struct ps_kv_range later_rows[CHECKS] = {RANGE("C", MERGED_CHILDREN), RANGE("N", "O")};

struct check {
	struct ps_kv *kv;
	const struct ps_kv_range *ranges; /* those after the first may be empty */
	struct ps_error err;
	int rc;
};

static void *check_some(void *arg)
{
	struct check *check = arg;

	for (size_t i = 0; i < CHECKS && check->rc == 0; i++)
		if (i == 0 || check->ranges[i].nfrom)
			check->rc = ps_kv_check(check->kv, &check->ranges[i], &check->err);
	return NULL;
}

/* Checks two halves in parallel, since with many names the mount waits mostly for this. There are about as
 * many names ('C') as nodes. */
static int check_rows(struct ps_index *index, bool later, struct ps_error *err)
{
	const struct ps_kv_range(*ranges)[CHECKS] = later                             ? few_rows
	                                            : index->was_clean || index->kept ? needed_rows
	                                                                              : all_rows;
	struct check low = {.kv = index->kv, .ranges = ranges[0]};
	struct check high = {.kv = index->kv, .ranges = ranges[1]};
	pthread_t thread;
	bool started = pthread_create(&thread, NULL, check_some, &low) == 0;

	if (!started)
		check_some(&low);
	check_some(&high);
	if (started)
		pthread_join(thread, NULL);
	const struct check *bad = low.rc < 0 ? &low : &high;
	if (bad->rc < 0 && err)
		*err = bad->err;
	return bad->rc;
}

static void *check_later(void *arg)
{
	struct ps_index *index = arg;

	for (size_t i = 0; i < CHECKS; i++)
		ps_kv_check_later(index->kv, &later_rows[i], &index->stops_check);
	return NULL;
}

int ps_index_open_at_boot(
        const char *dir, unsigned flags, const char *boot_id, struct ps_index **ret, struct ps_error *err)
{
	struct ps_index *index = calloc(1, sizeof(*index));
	size_t memtable_nbytes = flags & PS_INDEX_SMALL ? SMALL_MEMTABLE_NBYTES : PS_KV_MEMTABLE_NBYTES;
	char now[37] = "";

	if (!index)
		return ps_error_set(err, ENOMEM, "index %s: out of memory", dir);
	if (!boot_id)
		ps_clock_boot_id(now);
	pthread_mutex_init(&index->numbers_lock, NULL);
	index->memtable_nbytes = memtable_nbytes;
	index->nodes.meta = "nodes";
	index->datasets.meta = "datasets";
	int rc = ps_kv_open(dir, memtable_nbytes, &index->kv, err);
	if (rc == 0)
		rc = check_schema(index, err);
	if (rc == 0)
		rc = load_meta(index, boot_id ? NULL : dir, boot_id ? boot_id : now, err);
	if (rc == 0 && !(flags & PS_INDEX_WAS_CHECKED && index->kept)) {
		uint64_t large_nbytes = flags & PS_INDEX_LARGE ? 0 : LARGE_NBYTES;

		index->checks_later =
		        (index->was_clean || index->kept) && ps_kv_live_nbytes(index->kv) >= large_nbytes &&
		        ps_thread_start(&index->checker, "index-check", check_later, index) == 0;
		rc = check_rows(index, index->checks_later, err);
	}
	if (rc < 0)
		ps_index_close(index);
	else
		*ret = index;
	return rc;
}

int ps_index_open(const char *dir, unsigned flags, struct ps_index **ret, struct ps_error *err)
{
	return ps_index_open_at_boot(dir, flags, NULL, ret, err);
}

void ps_index_close(struct ps_index *index)
{
	if (!index)
		return;
	atomic_store(&index->stops_check, true);
	if (index->checks_later)
		pthread_join(index->checker, NULL);
	ps_kv_close(index->kv);
	pthread_mutex_destroy(&index->numbers_lock);
	free(index);
}

bool ps_index_was_clean(const struct ps_index *index)
{
	return index->was_clean;
}

bool ps_index_same_boot(const struct ps_index *index)
{
	return index->same_boot;
}

int ps_index_mark_clean(struct ps_index *index)
{
	index->stop.clean = true;
	int rc = put_meta(index, "stop", 'M', &index->stop);
	return rc < 0 ? rc : ps_kv_sync(index->kv);
}

void ps_index_on_failure(struct ps_index *index, void (*fn)(void *arg, int e), void *arg)
{
	index->failed = fn;
	index->failed_arg = arg;
}

void ps_index_on_growth(struct ps_index *index, int (*room)(void *arg, size_t nbytes), void *arg)
{
	index->room = room;
	index->room_arg = arg;
}

uint64_t ps_index_peak_nbytes(struct ps_index *index, uint64_t sorted_nbytes, size_t nbytes)
{
	uint64_t live = ps_kv_live_nbytes(index->kv);
	uint64_t compacting = live + PS_MIN(live, PS_KV_COMPACTION_NBYTES);

	/* The peak includes the log file of the next memtable, which is allocated ahead (a tenth longer),
	 * and two memtables that are being sorted while their log files still exist. Bytes are written
	 * twice: to a log, and again when they are sorted. */
	return 4 * (uint64_t)index->memtable_nbytes + 2 * (uint64_t)nbytes +
	       (compacting > sorted_nbytes ? compacting - sorted_nbytes : 0);
}

size_t ps_index_slack_nbytes(struct ps_index *index)
{
	return index->memtable_nbytes / 4;
}

int ps_index_sync(struct ps_index *index)
{
	return ps_kv_sync(index->kv);
}

int ps_index_reopen(struct ps_index *index, struct ps_error *err)
{
	int rc = ps_kv_reopen(index->kv, err);

	return rc < 0 ? rc : ps_kv_write_kept(index->kv);
}

/* Numbers ------------------------------------------------------------------------------------------------ */

static int new_numbers(struct ps_index *index, struct ps_index_numbers *numbers, uint64_t n, uint64_t *ret)
{
	PS_LOCK_SCOPE(&index->numbers_lock);

	if (numbers->end - numbers->next < n) {
		uint64_t end = numbers->next + n + NUMBER_CHUNK;
		int rc = put_meta(index, numbers->meta, 'C', &end);
		if (rc < 0)
			return rc;
		numbers->end = end;
	}
	*ret = numbers->next;
	numbers->next += n;
	return 0;
}

int ps_index_new_node(struct ps_index *index, uint64_t *ret_node)
{
	return new_numbers(index, &index->nodes, 1, ret_node);
}

int ps_index_new_nodes(struct ps_index *index, uint64_t n, uint64_t *ret_first)
{
	return new_numbers(index, &index->nodes, n, ret_first);
}

int ps_index_new_dataset(struct ps_index *index, uint32_t *ret_number)
{
	uint64_t number = 0;
	int rc = new_numbers(index, &index->datasets, 1, &number);

	if (rc < 0)
		return rc;
	if (number > UINT32_MAX)
		return -EOVERFLOW;
	*ret_number = (uint32_t)number;
	return 0;
}
