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
 *   user.penstock.missing  the number of listed files that the origin lacks, and the first of them
 *
 * A member has user.penstock.shard (the shard's URL), key (the path in the shard), offset, size and state
 * (the shard's). The folder of a shard has the attributes that the shard has as a file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fuse/member_view.h"
#include "fuse/ops.h"

static const char prefix[] = "user.penstock.";
static const char names[] =
        "user.penstock.url\0user.penstock.etag\0user.penstock.size\0user.penstock.cached\0"
        "user.penstock.state\0user.penstock.pinned\0user.penstock.encoding\0user.penstock.error\0"
        "user.penstock.errno";
static const char missing_name[] = "user.penstock.missing";
static const char entry_names[] = "user.penstock.shard\0user.penstock.key\0user.penstock.state";
static const char member_names[] = "user.penstock.shard\0user.penstock.key\0user.penstock.offset\0"
                                   "user.penstock.size\0user.penstock.state";

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

/* The text about missing files of the place's source, or (top folder) of the first source that has any.
 * False: no missing file is known. */
static bool missing_of(
        struct ps_fs *fs, const struct ps_place *place, char ret_text[static PS_ERROR_TEXT_LEN])
{
	if (place->source)
		return ps_dataset_missing(place->source->dataset, 0, NULL, ret_text) > 0;
	for (size_t i = 0; i < fs->nsources; i++) {
		char text[PS_ERROR_TEXT_LEN];

		if (ps_dataset_missing(fs->sources[i].dataset, 0, NULL, text) <= 0)
			continue;
		snprintf(ret_text, PS_ERROR_TEXT_LEN, "%.100s: %.400s", fs->sources[i].name, text);
		return true;
	}
	return false;
}

/* The text of a member's attribute; the caller frees it. -ENODATA: it has no such attribute. */
static int member_value(const struct ps_place *place, const char *name, char **ret)
{
	struct ps_node_info info = {0};
	struct ps_member member;
	int rc = ps_member_get(place->source->members, place->table, place->ordinal, &member);

	if (rc < 0)
		return rc;
	bool of_file = member.kind == PS_MEMBER_FILE;
	if (strcmp(name, "key") == 0)
		return ps_member_path(place->source->members, place->table, place->ordinal, ret);
	if (of_file && strcmp(name, "offset") == 0)
		rc = asprintf(ret, "%llu", (unsigned long long)member.offset);
	else if (of_file && strcmp(name, "size") == 0)
		rc = asprintf(ret, "%llu", (unsigned long long)member.size);
	else if (strcmp(name, "shard") != 0 && strcmp(name, "state") != 0)
		return -ENODATA;
	else
		rc = ps_node_info_get(place->source->dataset, place->table->shard, &info);
	if (rc == 0 && info.url)
		*ret = strdup(name[1] == 'h' ? info.url : info.state);
	ps_node_info_fini(&info);
	return rc < 0 ? -ENOMEM : *ret ? 0 : -ENODATA;
}

/* A text that says why the merged tree cannot be shown yet; the caller frees it. */
static char *merged_error(const struct ps_fs *fs, const struct ps_place *place)
{
	json_t *stats = ps_members_stats(place->source->members);
	json_int_t left = json_integer_value(json_object_get(stats, "shards")) -
	                  json_integer_value(json_object_get(stats, "known"));
	char *text = NULL;

	if (asprintf(&text, "the members of %lld shards are not known yet: penstock warm --members %s",
	            (long long)left, fs->mountpoint) < 0)
		text = NULL;
	json_decref(stats);
	return text;
}

/* A folder of the dataset, or that of the sources. */
static bool is_folder(const struct ps_place *place, const struct ps_node_info *info)
{
	return place->kind == PS_PLACE_TOP || (place->kind == PS_PLACE_NODE && !info->url);
}

/* size: the reader's room; 0: it asks for n. */
static void reply_bytes(fuse_req_t req, const char *bytes, size_t n, size_t size)
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
	struct ps_place place;
	struct ps_node_info info = {0};
	char number[24], text[PS_ERROR_TEXT_LEN];
	ps_autofree char *made = NULL;
	const char *value = NULL;

	/* ls -l asks for a security label and an ACL of each file; after EOPNOTSUPP it stops asking. */
	if (strncmp(name, "user.", 5) != 0 || strncmp(name, prefix, sizeof(prefix) - 1) != 0) {
		fuse_reply_err(req, strncmp(name, "user.", 5) != 0 ? EOPNOTSUPP : ENODATA);
		return;
	}
	name += sizeof(prefix) - 1;
	bool error = strcmp(name, "error") == 0;
	int rc = ps_place_of(fs, ino, &place);
	if (rc < 0) {
		value = made = rc == -EAGAIN && error ? merged_error(fs, &place) : NULL;
		rc = 0;
	} else if (place.kind == PS_PLACE_MEMBER) {
		rc = member_value(&place, name, &made);
		value = made;
	} else if (place.kind == PS_PLACE_SHARD && error &&
	           (ps_members_error(place.source->members, place.number, text), text[0])) {
		value = text;
	} else if (place.kind == PS_PLACE_NODE || place.kind == PS_PLACE_SHARD) {
		rc = ps_node_info_get(place.source->dataset, place.number, &info);
		if (rc == 0 && info.url)
			value = value_of(name, &info, number);
	}
	if (rc == 0 && is_folder(&place, &info) && strcmp(name, missing_name + sizeof(prefix) - 1) == 0 &&
	        missing_of(fs, &place, text))
		value = text;
	if (value)
		reply_bytes(req, value, strlen(value), size);
	else
		fuse_reply_err(req, rc < 0 && rc != -ENODATA ? ps_fs_errno(-rc) : ENODATA);
	ps_node_info_fini(&info);
}

void ps_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct ps_node_info info = {0};
	struct ps_member member;
	char text[PS_ERROR_TEXT_LEN];
	int rc = 0;

	if (ps_place_of(fs, ino, &place) < 0)
		place.kind = PS_PLACE_MERGED;
	if (place.kind == PS_PLACE_NODE || place.kind == PS_PLACE_SHARD)
		rc = ps_node_info_get(place.source->dataset, place.number, &info);
	if (rc < 0)
		fuse_reply_err(req, ps_fs_errno(-rc));
	else if (place.kind == PS_PLACE_MEMBER &&
	         ps_member_get(place.source->members, place.table, place.ordinal, &member) == 0 &&
	         member.kind == PS_MEMBER_FILE)
		reply_bytes(req, member_names, sizeof(member_names), size);
	else if (place.kind == PS_PLACE_MEMBER)
		reply_bytes(req, entry_names, sizeof(entry_names), size);
	else if (is_folder(&place, &info) && missing_of(fs, &place, text))
		reply_bytes(req, missing_name, sizeof(missing_name), size);
	else
		reply_bytes(req, names, info.url ? sizeof(names) : 0, size);
	ps_node_info_fini(&info);
}
