/* Finds the members of a shard in the index beside the shard (NAME.psx), if the dataset has one. Reading the
 * index costs less than reading the shard. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/psx.h"
#include "base/stats.h"
#include "members/members_private.h"

#define INDEX_NBYTES_MAX (UINT64_C(256) << 20)

/* Waiting ------------------------------------------------------------------------------------------------ */

/* A lookup or an open that a thread of the members waits for. If a stop ends the wait, the callback frees
 * the ask. */
struct ask {
	struct ps_members *of;
	bool answered, left; /* left: no thread waits any more */
	int errnum;
	uint64_t node;
	struct ps_handle *handle;
};

static struct ask *ask_new(struct ps_members *m)
{
	struct ask *ask = calloc(1, sizeof(*ask));

	if (!ask)
		return NULL;
	ask->of = m;
	PS_LOCK_SCOPE(&m->lock);
	m->nopening++;
	return ask;
}

static void answer(struct ask *ask, int errnum, uint64_t node, struct ps_handle *handle)
{
	struct ps_members *m = ask->of;

	pthread_mutex_lock(&m->lock);
	ask->answered = true;
	ask->errnum = errnum;
	ask->node = node;
	ask->handle = handle;
	bool left = ask->left;
	pthread_mutex_unlock(&m->lock);
	/* Closed before nopening falls: the members are freed once it is 0, and then no handle of the
	 * dataset may be open. */
	if (left) {
		ps_handle_close(handle);
		free(ask);
	}
	PS_LOCK_SCOPE(&m->lock);
	m->nopening--;
	pthread_cond_broadcast(&m->wake);
}

/* Frees the ask, or leaves that to the callback. -ECANCELED: the members are stopped. */
static int ask_wait(struct ask *ask, uint64_t *ret_node, struct ps_handle **ret_handle)
{
	struct ps_members *m = ask->of;

	PS_LOCK_SCOPE(&m->lock);
	while (!ask->answered && !atomic_load(&m->stopping))
		pthread_cond_wait(&m->wake, &m->lock);
	if (!ask->answered) {
		ask->left = true;
		return -ECANCELED;
	}
	int rc = -ask->errnum;
	if (ret_node)
		*ret_node = ask->node;
	if (ret_handle)
		*ret_handle = ask->handle;
	free(ask);
	return rc;
}

static void looked_up(void *arg, int errnum, const struct ps_attr *attr)
{
	answer(arg, errnum, errnum ? 0 : attr->node, NULL);
}

/* No reader opened the file: what readers will read next does not follow from this open. */
static void opened(void *arg, int errnum, struct ps_handle *handle)
{
	if (!errnum)
		ps_handle_not_read(handle);
	answer(arg, errnum, 0, handle);
}

static int open_node(struct ps_members *m, uint64_t node, struct ps_handle **ret_handle)
{
	struct ask *ask = ask_new(m);

	if (!ask)
		return -ENOMEM;
	ps_handle_open(m->dataset, node, opened, ask);
	return ask_wait(ask, NULL, ret_handle);
}

/* The index ---------------------------------------------------------------------------------------------- */

/* Returns the name of the shard's index, if the shard's folder has one; the caller frees the name. NULL:
 * there is no index, or no memory. The index of x.tar.zst, which is shown as x.tar, is x.tar.zst.psx or
 * x.tar.psx. */
static char *index_name(struct ps_members *m, const struct ps_node_row *shard)
{
	static const char *const codings[] = {"", ".zst", ".gz", ".lz4"};
	size_t n = shard->coding ? PS_ARRAY_LEN(codings) : 1;

	for (size_t i = 0; i < n; i++) {
		char *name;

		if (asprintf(&name, "%s%s" PS_PSX_SUFFIX, shard->name, codings[i]) < 0)
			return NULL;
		if (ps_dataset_has(m->dataset, shard->parent, name))
			return name;
		free(name);
	}
	return NULL;
}

/* Reads the whole file. */
static int read_all(struct ps_scan *scan, struct ps_handle *handle, uint8_t **ret_bytes, size_t *ret_n,
        struct ps_error *err)
{
	uint64_t size = ps_handle_size(handle);
	uint8_t *bytes;
	int rc = 0;

	if (size > INDEX_NBYTES_MAX)
		return ps_error_set(err, EFBIG, "it has more than 256 MiB");
	bytes = malloc((size_t)size + 1);
	if (!bytes)
		return ps_no_memory(err);
	for (uint64_t at = 0; rc == 0 && at < size;) {
		size_t n = 0;

		rc = ps_scan_read(scan, handle, at, (size_t)PS_MIN(size - at, PS_READ_MAX_NBYTES), false,
		        bytes + at, &n);
		if (rc == 0 && n == 0)
			rc = -EIO;
		at += n;
	}
	if (rc < 0) {
		free(bytes);
		return ps_error_set(err, -rc, "it cannot be read: %s", strerror(-rc));
	}
	*ret_bytes = bytes;
	*ret_n = (size_t)size;
	return 0;
}

static int index_read(struct ps_members *m, struct ps_scan *scan, uint64_t folder, const char *name,
        uint8_t **ret_bytes, size_t *ret_n, struct ps_error *err)
{
	struct ps_handle *handle = NULL;
	struct ask *ask = ask_new(m);
	uint64_t node;
	int rc = -ENOMEM;

	if (ask) {
		ps_dataset_lookup(m->dataset, folder, name, looked_up, ask);
		rc = ask_wait(ask, &node, NULL);
	}
	if (rc == 0)
		rc = open_node(m, node, &handle);
	if (rc < 0)
		return ps_error_set(err, -rc, "it cannot be opened: %s", strerror(-rc));
	rc = read_all(scan, handle, ret_bytes, ret_n, err);
	ps_handle_close(handle);
	return rc;
}

/* The shard ---------------------------------------------------------------------------------------------- */

static int add(void *arg, const struct ps_tar_member *member)
{
	return ps_member_tree_add(arg, member);
}

/* Compares both ends of the shard with the index: the first header; and the last member, which the end mark
 * must follow. The end of a compressed shard is not compared, because all bytes before it may have to be
 * decoded. */
static int ends_compare(struct ps_scan *scan, struct ps_handle *handle, bool coded,
        const struct ps_psx_end *end, struct ps_error *err)
{
	const struct ps_tar_member last = {.name = end->name,
	        .name_len = strlen(end->name),
	        .kind = PS_TAR_FILE,
	        .offset = end->offset,
	        .size = end->size};
	uint8_t first[PS_PSX_FIRST];
	size_t n = 0;
	bool ends = true;
	int rc = ps_scan_read(scan, handle, 0, sizeof(first), true, first, &n);

	if (rc < 0)
		return ps_error_set(err, -rc, "the shard cannot be read: %s", strerror(-rc));
	if (ps_psx_sum(0, first, n) != end->first_sum)
		return ps_error_set(err, ESTALE, "the shard begins with another header");
	if (!coded)
		rc = ps_scan_ends(scan, handle, end->header, end->any ? &last : NULL, &ends, err);
	if (rc == 0 && !ends)
		rc = ps_error_set(err, ESTALE, "the shard ends with another member");
	return rc;
}

int ps_by_index(struct ps_members *m, struct ps_scan *scan, const struct ps_node_row *row,
        struct ps_member_tree *tree, uint64_t *ret_size, struct ps_error *err)
{
	ps_autofree char *name = index_name(m, row);
	ps_autofree uint8_t *bytes = NULL;
	struct ps_handle *handle = NULL;
	struct ps_psx_end end = {0};
	size_t n = 0;

	if (!name)
		return -ENOENT;
	int rc = open_node(m, row->node, &handle);
	if (rc < 0)
		return ps_error_set(err, -rc, "the shard cannot be opened: %s", strerror(-rc));
	/* If the shard is complete in the cache, the index is not needed: a scan reads only the shard's
	 * headers. */
	rc = ps_object_complete(ps_handle_object(handle))
	             ? -ENOENT
	             : index_read(m, scan, row->parent, name, &bytes, &n, err);
	const struct ps_psx_shard shard = {.stored_nbytes = row->remote.size,
	        .nbytes = ps_handle_size(handle),
	        .coded = row->coding != 0,
	        .mtime_s = PS_MAX(row->remote.mtime_s, 0)};
	if (rc == 0)
		rc = ps_psx_members(bytes, n, &shard, add, tree, &end, err);
	if (rc == 0)
		rc = ends_compare(scan, handle, shard.coded, &end, err);
	free(end.name);
	ps_handle_close(handle);
	if (rc == 0)
		*ret_size = shard.nbytes;
	return rc;
}
