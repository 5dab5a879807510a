/* Extended attributes: the state of a file in the cache.
 *
 *   user.penstock.url     the URL of the object, without credentials
 *   user.penstock.etag    the version, that of the origin or "first64k:..." (origin.h)
 *   user.penstock.size    bytes                  user.penstock.cached   how many of them are in the cache
 *   user.penstock.state   remote, partial, cached
 *   user.penstock.pinned  yes, no
 *   user.penstock.encoding  of a compressed shard whose contents are shown: zstd, gzip; else ""
 *   user.penstock.error   the last failure, "" if none
 *   user.penstock.errno   its errno, as the origin gave it, where read() gives EIO; 0 if none
 *
 * Attributes of a folder:
 *
 *   user.penstock.missing  the number of listed files that the origin lacks, and the first of them */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fuse/ops.h"

static const char prefix[] = "user.penstock.";
static const char names[] =
        "user.penstock.url\0user.penstock.etag\0user.penstock.size\0user.penstock.cached\0"
        "user.penstock.state\0user.penstock.pinned\0user.penstock.encoding\0user.penstock.error\0"
        "user.penstock.errno";

/* The value of one attribute, in `number` or borrowed from info; NULL: no such attribute. */
static const char *value_of(const char *name, const struct ps_node_info *info, char number[static 24])
{
	uint64_t n;

	if (strcmp(name, "url") == 0)
		return info->url;
	if (strcmp(name, "etag") == 0)
		return info->etag ? info->etag : "";
	if (strcmp(name, "state") == 0)
		return info->state;
	if (strcmp(name, "pinned") == 0)
		return info->pinned ? "yes" : "no";
	if (strcmp(name, "encoding") == 0)
		return info->encoding;
	if (strcmp(name, "error") == 0)
		return info->error ? info->error : "";
	if (strcmp(name, "size") == 0)
		n = info->size;
	else if (strcmp(name, "cached") == 0)
		n = info->cached_nbytes;
	else if (strcmp(name, "errno") == 0)
		n = (uint64_t)info->errnum;
	else
		return NULL;
	snprintf(number, 24, "%llu", (unsigned long long)n);
	return number;
}

static const char missing_name[] = "user.penstock.missing";

/* The text about missing files of the node's source, or (top folder) of the first source that has any.
 * False: no missing file is known. */
static bool missing_of(struct ps_fs *fs, fuse_ino_t ino, char ret_text[static PS_ERROR_TEXT_LEN])
{
	if (!ps_fs_is_top(fs, ino))
		return ps_dataset_missing(ps_fs_source(fs, ino)->dataset, 0, NULL, ret_text) > 0;
	for (size_t i = 0; i < fs->nsources; i++) {
		char text[PS_ERROR_TEXT_LEN];

		if (ps_dataset_missing(fs->sources[i].dataset, 0, NULL, text) <= 0)
			continue;
		snprintf(ret_text, PS_ERROR_TEXT_LEN, "%.100s: %.400s", fs->sources[i].name, text);
		return true;
	}
	return false;
}

void ps_op_reply_xattr(fuse_req_t req, const char *bytes, size_t n, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, n);
	else if (size < n)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, bytes, n);
}

void ps_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_node_info info = {0};
	char number[24], text[PS_ERROR_TEXT_LEN];

	/* ls -l asks for a security label and an ACL of each file; after EOPNOTSUPP it stops asking. */
	if (strncmp(name, "user.", 5) != 0) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || ps_virtual_is(ino)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	int rc = ps_fs_is_top(fs, ino)
	                 ? 0
	                 : ps_node_info_get(ps_fs_source(fs, ino)->dataset, ps_fs_node(fs, ino), &info);
	if (rc < 0) {
		fuse_reply_err(req, ps_fs_errno(-rc));
		return;
	}
	const char *value = info.url ? value_of(name + sizeof(prefix) - 1, &info, number) : NULL;
	if (!info.url && strcmp(name, missing_name) == 0 && missing_of(fs, ino, text))
		value = text;
	if (value)
		ps_op_reply_xattr(req, value, strlen(value), size);
	else
		fuse_reply_err(req, ENODATA);
	ps_node_info_fini(&info);
}

void ps_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_node_info info = {0};
	char text[PS_ERROR_TEXT_LEN];
	bool file = false;

	if (!ps_virtual_is(ino) && !ps_fs_is_top(fs, ino)) {
		int rc = ps_node_info_get(ps_fs_source(fs, ino)->dataset, ps_fs_node(fs, ino), &info);
		if (rc < 0) {
			fuse_reply_err(req, ps_fs_errno(-rc));
			return;
		}
		file = info.url;
		ps_node_info_fini(&info);
	}
	if (!file && !ps_virtual_is(ino) && missing_of(fs, ino, text))
		ps_op_reply_xattr(req, missing_name, sizeof(missing_name), size);
	else
		ps_op_reply_xattr(req, names, file ? sizeof(names) : 0, size);
}
