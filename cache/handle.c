/* Open files: the version check at open, reads, read-ahead. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache.h"
#include "catalog/dataset.h"
#include "prefetch/prefetch.h"

#define NOT_SHOWN "the origin has not shown yet that these credentials may read it, and does not answer now"

struct ps_handle {
	struct ps_dataset *dataset;
	struct ps_object *object; /* the object of `file` */
	struct ps_fill_file *file;
	uint64_t node, size;
	atomic_uint refs; /* the caller's, and each read being issued */
	struct ps_readahead *readahead;
	bool whole; /* the option --whole names the file */
};

static void handle_put(struct ps_handle *handle)
{
	if (atomic_fetch_sub(&handle->refs, 1) != 1)
		return;
	if (ps_readahead_is_whole(handle->readahead))
		ps_whole_file_closed(handle->dataset, handle->node, handle->file);
	ps_readahead_put(handle->readahead);
	ps_fill_file_put(handle->file);
	free(handle);
}

/* Opening ------------------------------------------------------------------------------------------------ */

static int handle_new(
        struct ps_dataset *ds, const struct ps_node_row *row, bool granted, struct ps_handle **ret)
{
	struct ps_handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return -ENOMEM;
	int rc = ps_view_file(ds, row, true, granted, &handle->file);
	if (rc == 0 && (rc = ps_readahead_get(handle->file, &handle->readahead)) < 0)
		ps_fill_file_put(handle->file);
	if (rc < 0) {
		free(handle);
		return rc;
	}
	handle->dataset = ds;
	handle->object = ps_fill_file_object(handle->file);
	handle->node = row->node;
	handle->whole = ps_whole_file_named(ds, row->name);
	handle->size = ps_object_size(handle->object);
	atomic_init(&handle->refs, 1);
	*ret = handle;
	return 0;
}

/* Replaces the object of a file after a reader met another version that the index cannot tell from the old
 * one. There are two cases. If the listing had no ETag, a response's ETag may differ from the one that came
 * with the first bytes, while the origin confirms size and time. And if the first bytes stand for the
 * version (ps_remote_is_marked()), they may have changed, and then the version of the other cached bytes is
 * unknown. Bytes of two versions must not be mixed, neither in the cache nor in the kernel's pages. So the
 * name gets a new node first (the open fails with ESTALE, and the name is looked up again), and then the
 * object is retired. In this order, a caller that gets the old object by the new node finds its file
 * doubted, and a caller that gets the next object by the old node finds that node superseded. Older handles
 * keep the old object, for which nothing more is fetched. */
static int begin_anew(struct ps_dataset *ds, const struct ps_node_row *row, struct ps_handle *handle)
{
	char etag[PS_ETAG_LEN];

	ps_object_learned_etag(handle->object, etag);
	if (!etag[0] && !ps_remote_is_marked(&row->remote))
		return 0;
	ps_fill_file_doubt(handle->file);
	int rc = ps_dataset_renew(ds, row);
	if (rc == 0)
		rc = ps_object_retire(handle->object);
	return rc < 0 ? rc : -ESTALE;
}

/* After data failed its checksum, the kernel may have pages of it. They must not be mixed with the data
 * that is fetched next, so the name gets a new node. -ESTALE: it has one now. */
static int renew_refused(struct ps_dataset *ds, const struct ps_node_row *row, struct ps_handle *handle)
{
	struct ps_refusal refusal;

	if (!ps_object_refusal(handle->object, &refusal) || row->node >= refusal.nodes_below)
		return 0;
	int rc = ps_dataset_renew(ds, row);
	return rc < 0 ? rc : -ESTALE;
}

static bool is_superseded(struct ps_dataset *ds, uint64_t node)
{
	struct ps_node_row row;

	if (ps_index_get_node(ds->index, node, &row) < 0)
		return true;
	bool superseded = row.superseded;
	ps_node_row_fini(&row);
	return superseded;
}

/* Decides whether this access may read the cached bytes of the file. 0: see *ret_granted; if it is false,
 * nothing is cached, and the answer to the first request with these credentials decides. -EAGAIN: the
 * origin must be asked first. -EACCES, -EIO: the origin was asked, and has not shown that the access may
 * read the file. */
static int check_grant(
        struct ps_dataset *ds, const struct ps_node_row *row, bool was_asked, bool *ret_granted)
{
	enum ps_grant grant = ps_grant_of_row(ds, row);

	*ret_granted = grant == PS_GRANT_VALID || (was_asked && grant == PS_GRANT_OLD);
	/* The content of a compressed shard may be decoded from cached bytes, without a request. */
	if (*ret_granted || (!row->coding && ps_view_cached_nbytes(ds, row) == 0))
		return 0;
	if (!was_asked)
		return -EAGAIN;
	if (row->coding && ps_view_cached_nbytes(ds, row) == 0)
		return -EIO;
	ps_log_warning("open: %s: " NOT_SHOWN, row->url);
	ps_dataset_note_error(ds, row->node, EACCES, NOT_SHOWN);
	return -EACCES;
}

/* What the origin was asked for this open. */
struct asked {
	bool version;  /* the origin has just confirmed the version */
	bool size;     /* the size of a compressed shard's content was asked for */
	bool doubtful; /* the version was asked for because a reader had met another one */
};

struct pending_open {
	struct ps_dataset *dataset;
	uint64_t node;
	struct asked asked;
	ps_open_fn fn;
	void *arg;
};

static void open_confirmed(void *arg, int errnum, const struct ps_attr *attr);

/* Asks the origin for the version and the grant or, if asked.size is set, for the size of a compressed shard's
 * content, which no lookup has found yet. Then opens the row. */
static void open_asking(
        struct ps_dataset *ds, const struct ps_node_row *row, struct asked asked, ps_open_fn fn, void *arg)
{
	struct pending_open *open = calloc(1, sizeof(*open));

	if (!open) {
		fn(arg, ENOMEM, NULL);
		return;
	}
	if (!asked.size)
		asked = (struct asked){.version = true, .doubtful = row->checked_ms == PS_CHECKED_DOUBTFUL};
	*open = (struct pending_open){.dataset = ds, .node = row->node, .asked = asked, .fn = fn, .arg = arg};
	if (asked.size)
		ps_view_ask(ds, row, false, open_confirmed, open);
	else
		ps_revalidate(ds, row, true, open_confirmed, open);
}

static void open_row(
        struct ps_dataset *ds, const struct ps_node_row *row, struct asked asked, ps_open_fn fn, void *arg)
{
	struct ps_handle *handle = NULL;
	bool granted = false;
	int rc = row->superseded             ? -ESTALE
	         : row->kind != PS_NODE_FILE ? -EISDIR
	                                     : check_grant(ds, row, asked.version, &granted);

	if (rc == -EAGAIN) {
		open_asking(ds, row, (struct asked){0}, fn, arg);
		return;
	}

	if (rc == 0 && ps_view_disproved(ds, row)) {
		rc = ps_dataset_renew(ds, row);
		rc = rc < 0 ? rc : -ESTALE;
	}
	if (rc == 0)
		rc = handle_new(ds, row, granted, &handle);
	if (rc == -EAGAIN && !asked.size) {
		asked.size = true;
		open_asking(ds, row, asked, fn, arg);
		return;
	}

	if (!handle) {
		fn(arg, -rc, NULL);
		return;
	}
	/* The file is allowed for an earlier reader, who still has it open, but not for this one: bytes
	 * that are cached for that reader must not be served to this one. */
	bool lent = !granted && ps_fill_file_allowed(handle->file) && ds->origin->proved;
	if (lent && asked.version) {
		handle_put(handle);
		fn(arg, EACCES, NULL);
		return;
	}
	if (lent || ps_fill_file_doubted(handle->file)) {
		/* An earlier reader still has the file open, and was allowed to read it, or has met another
		 * version of it. */
		if (!asked.version) {
			handle_put(handle);
			open_asking(ds, row, (struct asked){0}, fn, arg);
			return;
		}
		asked.doubtful = true;
	}
	rc = renew_refused(ds, row, handle);
	/* Another open may have called begin_anew() meanwhile. */
	if (rc == 0 && is_superseded(ds, row->node))
		rc = -ESTALE;
	if (rc == 0 && asked.doubtful)
		rc = begin_anew(ds, row, handle);
	if (rc < 0) {
		handle_put(handle);
		fn(arg, -rc, NULL);
		return;
	}
	if (asked.doubtful)
		ps_fill_file_trust(handle->file);
	atomic_fetch_add(&ds->counters.opens, 1);
	bool leads = ps_next_shard_begin(ds->sequence, row->node);
	fn(arg, 0, handle);
	if (leads)
		ps_next_shard_opened(ds->sequence, row);
}

static void open_confirmed(void *arg, int errnum, const struct ps_attr *attr)
{
	struct pending_open *open = arg;
	struct ps_node_row row = {0};

	if (!errnum && attr->node != open->node)
		errnum = ESTALE;
	if (errnum == ENOENT)
		errnum = ESTALE; /* the lookup that follows reports that the name is gone */
	if (!errnum)
		errnum = -ps_index_get_node(open->dataset->index, open->node, &row);
	if (errnum)
		open->fn(open->arg, errnum, NULL);
	else
		open_row(open->dataset, &row, open->asked, open->fn, open->arg);
	ps_node_row_fini(&row);
	free(open);
}

void ps_handle_open(struct ps_dataset *ds, uint64_t node, ps_open_fn fn, void *arg)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(ds->index, node, &row);

	if (rc < 0) {
		fn(arg, rc == -ENOENT ? ESTALE : -rc, NULL);
	} else if (row.superseded || row.kind != PS_NODE_FILE ||
	           (ps_dataset_confirmed(ds, &row, ds->revalidate_ms) && ps_dataset_settled(ds, &row))) {
		open_row(ds, &row, (struct asked){0}, fn, arg);
	} else {
		open_asking(ds, &row, (struct asked){0}, fn, arg);
	}
	ps_node_row_fini(&row);
}

int ps_handle_reopen(struct ps_dataset *ds, uint64_t node, bool allowed, struct ps_handle **ret)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(ds->index, node, &row);

	if (rc == 0)
		rc = row.kind == PS_NODE_FILE ? handle_new(ds, &row, allowed, ret) : -EISDIR;
	ps_node_row_fini(&row);
	return rc;
}

bool ps_handle_allowed(const struct ps_handle *handle)
{
	return ps_fill_file_allowed(handle->file);
}

void ps_handle_close(struct ps_handle *handle)
{
	char error[PS_ERROR_TEXT_LEN];

	if (!handle)
		return;
	int errnum = ps_fill_file_error(handle->file, error, sizeof(error));
	if (error[0])
		ps_dataset_note_error(handle->dataset, handle->node, errnum, error);
	/* Only the file records that its version is doubtful, and handle_put() may free the file. */
	if (ps_fill_file_doubted(handle->file))
		ps_dataset_doubt(handle->dataset, handle->node);
	handle_put(handle);
}

uint64_t ps_handle_size(const struct ps_handle *handle)
{
	return handle->size;
}

/* Reading ------------------------------------------------------------------------------------------------ */

bool ps_handle_try_read(struct ps_handle *handle, uint64_t offset, size_t nbytes, struct ps_read_stats *stats,
        ps_hit_fn fn, void *arg)
{
	struct ps_read_bytes bytes;

	if (offset >= handle->size || nbytes == 0) {
		fn(arg, NULL, 0);
		return true;
	}
	nbytes = PS_MIN(PS_MIN(nbytes, PS_READ_MAX_NBYTES), handle->size - offset);
	if (!ps_fill_find(handle->file, offset, nbytes, stats, &bytes))
		return false;
	/* Once answered, the caller may close the handle. */
	atomic_fetch_add(&handle->refs, 1);
	bool wants = ps_readahead_hit(handle->readahead, offset, nbytes);
	fn(arg, bytes.segs, bytes.nsegs);
	ps_fill_found_put(&bytes);
	if (wants)
		ps_fill_pump(ps_fill_file_engine(handle->file));
	handle_put(handle);
	return true;
}

/* After a read had to wait: begins to fetch the whole file, if it is time. One that the cache cannot hold would be
 * fetched for nothing. */
static void look_at_whole(struct ps_handle *handle)
{
	bool named = handle->whole && ps_object_admit(handle->object) == 0 && ps_object_fits(handle->object);

	if (!ps_readahead_is_whole(handle->readahead) &&
	        (named || ps_whole_file_due(handle->dataset, handle->node, handle->file)))
		ps_readahead_whole(handle->readahead, named);
}

void ps_handle_read(struct ps_read *read)
{
	struct ps_handle *handle = read->handle;
	uint64_t offset = read->offset, nbytes;

	if (offset >= handle->size || read->nbytes == 0) {
		read->done(read, 0, NULL, 0);
		return;
	}
	nbytes = PS_MIN(PS_MIN(read->nbytes, PS_READ_MAX_NBYTES), handle->size - offset);
	read->nbytes = nbytes;
	/* Once answered, the caller may close the handle; the read-ahead below still needs it. */
	atomic_fetch_add(&handle->refs, 1);
	if (read->alone) {
		read->priv.access = PS_ACCESS_RANDOM;
		ps_fill_read(handle->file, read);
	} else {
		unsigned stream = ps_readahead_saw(handle->readahead, offset, nbytes, &read->priv.access);
		bool random = read->priv.access == PS_ACCESS_RANDOM,
		     waited = ps_fill_read(handle->file, read);

		ps_readahead_go(handle->readahead, stream, waited);
		if (waited && (random || handle->whole))
			look_at_whole(handle);
	}
	handle_put(handle);
}

void ps_read_cancel(struct ps_read *read)
{
	ps_fill_cancel(read->handle->file, read);
}

int ps_handle_complete_fd(struct ps_handle *handle)
{
	return ps_fill_file_allowed(handle->file) ? ps_object_pass_fd(handle->object) : -1;
}

int ps_handle_data_file(struct ps_handle *handle, struct ps_data_file *ret)
{
	struct ps_node_row row;
	struct stat st;
	int fd = ps_handle_complete_fd(handle);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -ENODATA;
	int rc = ps_index_get_node(handle->dataset->index, handle->node, &row);
	if (rc < 0)
		return rc;
	/* Reads of an open file continue after its grant has expired. The data file needs a valid grant,
	 * because the process that gets it can keep it open. */
	bool granted = ps_grant_of_row(handle->dataset, &row) == PS_GRANT_VALID;
	ps_node_row_fini(&row);
	if (!granted)
		return -EACCES;
	struct ps_data_file file = {.dev = st.st_dev, .ino = st.st_ino, .nbytes = (uint64_t)st.st_size};
	rc = ps_object_data_path(handle->object, file.path, sizeof(file.path));
	if (rc == 0)
		*ret = file;
	return rc;
}

struct ps_object *ps_handle_object(struct ps_handle *handle)
{
	return handle->object;
}

int ps_handle_warm(struct ps_handle *handle)
{
	int rc = ps_object_fits(handle->object) ? ps_object_admit(handle->object) : -ENOSPC;

	/* Any other error of the disk may be temporary: the fetch begins, and its progress shows whether
	 * the disk takes the bytes. */
	if (rc == -ENOSPC)
		return rc;
	ps_fill_warm(handle->file);
	return 0;
}

/* Commands open files in order, as a reader does, but read nothing: their opens must not start
 * prefetching. */
void ps_handle_not_read(struct ps_handle *handle)
{
	ps_next_shard_forget(handle->dataset->sequence, handle->node);
}

int ps_handle_evict(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	ps_handle_not_read(handle);
	if (ps_object_pinned(handle->object)) {
		*ret_nbytes = 0;
		return 0;
	}
	int rc = ps_object_evict(handle->object, ret_nbytes);
	if (rc == 0)
		atomic_store(&handle->dataset->catalog->evicted_ms, ps_clock_real_ms());
	return rc;
}

int ps_handle_pin(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	ps_handle_not_read(handle);
	return ps_object_pin(handle->object, ret_nbytes);
}

int ps_handle_unpin(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	ps_handle_not_read(handle);
	return ps_object_unpin(handle->object, ret_nbytes);
}

int ps_handle_pin_nbytes(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	ps_handle_not_read(handle);
	*ret_nbytes = ps_object_pin_nbytes(handle->object);
	return 0;
}
