/* What the index and the data file tell of an object when it is taken into memory. */
#include "store/object_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "store/block.h"
#include "store/datafile.h"
#include "store/evict.h"
#include "store/object_checksum.h"

struct loading {
	struct ps_object *object;
	bool unverified; /* all of it */
};

static int load_extent(void *arg, uint32_t number, const struct ps_extent_row *row)
{
	struct loading *loading = arg;
	struct ps_object *object = loading->object;

	if (number >= object->nextents)
		return 0;
	uint64_t in_extent =
	        PS_MIN(object->nblocks - (uint64_t)number * PS_EXTENT_BLOCKS, (uint64_t)PS_EXTENT_BLOCKS);
	uint64_t mask = in_extent == 64 ? UINT64_MAX : (UINT64_C(1) << in_extent) - 1;
	struct ps_extent *extent = calloc(1, sizeof *extent);
	if (!extent)
		return -ENOMEM;
	extent->present = row->present & mask;
	extent->unverified = (loading->unverified ? row->present | row->partial : row->unverified) & mask;
	extent->used_s = extent->saved_used_s = row->used_s;
	memcpy(extent->crc, row->crc, sizeof extent->crc);
	object->npresent += (unsigned)__builtin_popcountll(extent->present);
	object->nunverified += (unsigned)__builtin_popcountll(extent->unverified & extent->present);
	object->extents[number] = extent;
	object->unsure |= extent->unverified != 0;
	int e = ps_chunks_load(object, extent, number, row, mask);
	if (e < 0)
		return e;
	if (loading->unverified) {
		/* The next batch writes the file's time and inode as they are now. With them it must say
		 * that the blocks are not sure. */
		extent->dirty = true;
		object->dirty_first = 0;
		object->dirty_end = object->nextents;
	}
	return 0;
}

static void forget_blocks(struct ps_object *object)
{
	for (uint32_t i = 0; i < object->nextents; i++) {
		ps_extent_free(object->extents[i]);
		object->extents[i] = NULL;
	}
	object->npresent = object->nunverified = object->partial_nbytes = 0;
}

/* Is it the file, in the state, that the row tells of? */
static bool same_file(const struct ps_store *store, const struct ps_object_row *row, const struct stat *st)
{
	int64_t mtime_ns = ps_datafile_mtime_ns(st);

	/* Another inode is a copy. */
	if (row->data_ino != st->st_ino || mtime_ns < row->data_mtime_ns)
		return false;
	/* Newer times are ours only if we were killed between a write and its commit. */
	return !store->exact_mtimes ||
	       (mtime_ns == row->data_mtime_ns &&
	               (!row->data_ctime_ns || ps_datafile_ctime_ns(st) == row->data_ctime_ns));
}

/* -EUCLEAN: row or file are of no use. Other errors: the disk cannot be used now. */
static int load_blocks(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct loading loading = {.object = object};
	struct ps_object_row row;
	struct stat st;
	bool writable = true;
	int fd = -1;

	int e = ps_index_get_object(store->index, &object->id, &row);
	if (e == -ENOENT)
		return 0;
	if (e < 0)
		return e == -EBADMSG ? -EUCLEAN : e;
	object->created_s = row.created_s;
	object->opened_s = row.opened_s;
	object->dataset = row.dataset;
	object->row_by_extent = row.by_extent;
	memcpy(object->learned_etag, row.learned_etag, sizeof object->learned_etag);
	memcpy(object->checksum, row.checksum, sizeof object->checksum);
	object->sum_matched = row.sum_matched;
	e = ps_datafile_open(store->data_fd, &object->id, &fd, &writable);
	if (e == -ENOENT) {
		ps_log_warning("store: %s: its data file is gone; its blocks are fetched again", object->url);
		e = -EUCLEAN;
	}
	if (e == 0 && fstat(fd, &st) < 0)
		e = -errno;
	if (e == 0)
		loading.unverified = !same_file(store, &row, &st);
	if (e == 0 && (uint64_t)st.st_size != object->remote.size) {
		ps_log_warning("store: %s: its data file has another size; its blocks are fetched again",
		        object->url);
		e = -EUCLEAN;
	}
	if (e == 0)
		e = ps_index_each_extent(store->index, &object->id, load_extent, &loading);
	ps_object_row_fini(&row);
	if (e < 0) {
		if (fd >= 0)
			close(fd);
		forget_blocks(object);
		return e;
	}
	object->fd = fd;
	ps_datafile_read_ahead(fd, object->npresent == object->nblocks);
	object->no_disk = !writable;
	return 0;
}

/* The object is LOADING and its id held by us, so nobody makes the file meanwhile. */
static void drop_entry(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_leaving *leaving = NULL;

	pthread_mutex_lock(&store->lock);
	if (!object->entry) /* a row that the recovery left out: its deletion still needs a place */
		object->entry = ps_table_add(store, &object->id, object->nextents, 0);
	if (object->entry) {
		object->entry->object = NULL; /* the object lives on, empty */
		leaving = ps_leaving_begin(store, object->entry);
		object->entry = leaving ? NULL : object->entry;
	}
	object->no_disk = !leaving;
	pthread_mutex_unlock(&store->lock);
	if (leaving)
		ps_leaving_finish(store, leaving);
}

void ps_object_load(struct ps_object *object)
{
	struct ps_store *store = object->store;

	pthread_mutex_lock(&store->lock);
	bool tomb = ps_tomb_find(store, &object->id);
	pthread_mutex_unlock(&store->lock);
	int e = tomb ? -EIO : load_blocks(object);
	if (e == -EUCLEAN)
		drop_entry(object);
	else if (e < 0)
		object->no_disk = true;

	PS_LOCK_SCOPE(&store->lock);
	object->state = PS_OBJECT_READY;
	ps_sum_look(object);
	pthread_cond_broadcast(&store->changed);
}
