#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

/* Scan of the data files --------------------------------------------------------------------------------- */

struct file {
	struct ps_id id;
	uint64_t allocated_nbytes;
};

struct ps_scan {
	pthread_t thread;
	bool running;
	int data_fd, rc;
	struct file *files;
	size_t n, cap;
};

static int take(void *arg, const struct ps_id *id, const struct stat *st)
{
	struct ps_scan *scan = arg;

	if (!ps_grow(&scan->files, scan->n, &scan->cap, sizeof(*scan->files)))
		return -ENOMEM;
	scan->files[scan->n++] = (struct file){.id = *id, .allocated_nbytes = (uint64_t)st->st_blocks * 512};
	return 0;
}

static void *scan_main(void *arg)
{
	struct ps_scan *scan = arg;

	scan->rc = ps_datafile_each(scan->data_fd, take, scan);
	return NULL;
}

static void finish(struct ps_scan *scan)
{
	if (scan->running)
		pthread_join(scan->thread, NULL);
	scan->running = false;
}

struct ps_scan *ps_scan_start(int data_fd)
{
	struct ps_scan *scan = calloc(1, sizeof(*scan));

	if (!scan)
		return NULL;
	scan->data_fd = data_fd;
	scan->running = pthread_create(&scan->thread, NULL, scan_main, scan) == 0;
	if (!scan->running)
		scan_main(scan);
	return scan;
}

void ps_scan_free(struct ps_scan *scan)
{
	if (!scan)
		return;
	finish(scan);
	free(scan->files);
	free(scan);
}

/* At the start ------------------------------------------------------------------------------------------- */

struct recovery {
	struct ps_store *store;
	struct ps_index_batch *deletions;
	bool failed;
	uint64_t nbad_rows, nlost_files, norphans, orphan_nbytes;
};

struct adding {
	struct ps_store *store;
	struct ps_entry *entry;
	const struct ps_object_row *row;
};

static int add_extent(void *arg, uint32_t extent, const struct ps_extent_row *row)
{
	struct adding *a = arg;

	if (extent >= a->entry->nextents)
		return 0;
	a->entry->nrows = extent + 1;
	return ps_extent_add(a->store, a->entry, a->row, extent, row);
}

/* After a reboot, a file that was passed through may be cached by extents again: its readers have ended. */
static bool by_extent(const struct ps_store *store, const struct ps_object_row *row)
{
	return ps_extents_apply(store, row->remote.size) &&
	       (row->by_extent || !ps_index_same_boot(store->index));
}

static int add_row(void *arg, const struct ps_object_row *row)
{
	struct recovery *r = arg;
	struct ps_store *store = r->store;

	if (by_extent(store, row)) {
		struct adding a = {.store = store,
		        .row = row,
		        .entry = ps_quota_add_by_extent(
		                store, &row->id, ps_nextents_of_size(row->remote.size))};
		int rc = a.entry ? ps_index_each_extent(store->index, &row->id, add_extent, &a) : -ENOMEM;
		/* If the rows cannot be read, the extents not counted yet are punched out
		 * (ps_extents_recover()), and eviction deletes the rows of all extents. */
		if (rc == -EIO)
			a.entry->nrows = a.entry->nextents;
		return rc == -EIO ? 0 : rc;
	}
	struct ps_entry *entry = ps_quota_add(store, &row->id, ps_nextents_of_size(row->remote.size), 0);

	if (!entry)
		return -ENOMEM;
	struct ps_policy_item *item = ps_quota_item(store, entry);
	item->dataset = row->dataset;
	item->opened_s = row->opened_s;
	return 0;
}

static int last_extent(void *arg, uint32_t extent, const struct ps_extent_row *row)
{
	uint32_t *nextents = arg;

	(void)row;
	*nextents = extent + 1;
	return 0;
}

/* Deletes a row that does not parse, and the rows of the object's extents: they would claim blocks of the
 * next file with this id. The extents' rows are walked to count them, because only the damaged row had
 * their number. */
static void drop_bad_row(void *arg, const struct ps_id *id)
{
	struct recovery *r = arg;
	uint32_t nextents = 0;

	r->nbad_rows++;
	if (ps_index_each_extent(r->store->index, id, last_extent, &nextents) < 0)
		r->failed = true;
	ps_index_batch_del_object(r->deletions, id, nextents);
}

static int see_file(struct recovery *r, const struct file *file)
{
	struct ps_entry *entry = ps_quota_find(r->store, &file->id);

	if (entry) {
		entry->seen = true;
		if (entry->charges)
			return ps_extents_recover(r->store, entry);
		ps_quota_charge(r->store, entry, file->allocated_nbytes);
		return 0;
	}
	r->norphans++;
	r->orphan_nbytes += file->allocated_nbytes;
	return ps_datafile_unlink(r->store->data_fd, &file->id);
}

static void drop_unseen(struct recovery *r)
{
	struct ps_entry *entry, *next;

	HASH_ITER (hh, r->store->entries, entry, next) {
		if (entry->seen)
			continue;
		r->nlost_files++;
		ps_index_batch_del_object(r->deletions, &entry->id, entry->nrows);
		r->store->used_nbytes -= ps_quota_nbytes(r->store, entry);
		ps_quota_remove(r->store, entry);
	}
}

int ps_recover(struct ps_store *store, struct ps_scan *scan, struct ps_error *err)
{
	struct recovery r = {.store = store, .deletions = ps_index_batch_new()};

	/* quota.c requires the lock. No other thread uses the store yet, so holding it over the disk delays
	 * no thread. */
	pthread_mutex_lock(&store->lock);
	int rc = ps_index_each_object(store->index, add_row, drop_bad_row, &r);
	if (rc == 0 && r.failed)
		rc = -EIO;
	finish(scan);
	if (rc == 0)
		rc = scan->rc;
	for (size_t i = 0; rc == 0 && i < scan->n; i++)
		rc = see_file(&r, &scan->files[i]);
	if (rc == 0)
		drop_unseen(&r);
	if (rc == 0)
		rc = ps_pins_load(store);
	pthread_mutex_unlock(&store->lock);
	if (rc < 0) {
		ps_index_batch_free(r.deletions);
		return ps_error_set(
		        err, -rc, "cache directory %s: cannot be read: %s", store->dir, strerror(-rc));
	}
	rc = ps_index_batch_commit(store->index, r.deletions);
	if (rc < 0)
		return ps_error_set(err, -rc, "cache directory %s: the index cannot be written: %s",
		        store->dir, strerror(-rc));
	if (r.nlost_files + r.norphans + r.nbad_rows > 0)
		/* Expected, and not worth a warning, after a kill, or if the index was set aside. */
		ps_log(store->set_aside || (!ps_index_was_clean(store->index) && r.nbad_rows == 0)
		                ? PS_LOG_INFO
		                : PS_LOG_WARNING,
		        "store: %s: %llu data files without a row deleted (%llu bytes), %llu rows "
		        "without a data "
		        "file and %llu damaged rows dropped",
		        store->dir, (unsigned long long)r.norphans, (unsigned long long)r.orphan_nbytes,
		        (unsigned long long)r.nlost_files, (unsigned long long)r.nbad_rows);
	return 0;
}
