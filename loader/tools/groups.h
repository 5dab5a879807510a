/* A shard's samples in their order: runs of members with one key, names and bytes unchanged. For programs
 * that rewrite shards; loaders read shards with shard/shard.h.
 *
 * Ownership: a group is valid during the callback only.
 * Threads: one at a time.   Blocks: on the disk.
 * Errors: -EBADMSG: damaged or truncated; -E2BIG: a sample larger than PS_GROUP_MAX_NBYTES; others as the
 * stream's. The text names the shard, and the offset or the member if one is at fault. Groups passed before
 * the error are complete. */
#ifndef PS_TOOLS_GROUPS_H
#define PS_TOOLS_GROUPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "shard/file/file.h"

#define PS_GROUP_MAX_NBYTES (UINT64_C(4) << 30)

struct ps_group_member {
	char *name;
	size_t name_len, suffix_at; /* suffix_at: offset of the suffix in the name */
	uint64_t size;
	uint8_t *data;
};

struct ps_group {
	const char *key; /* key_len bytes of the first name; NULL: a member that belongs to no sample */
	size_t key_len;
	struct ps_group_member *members;
	size_t n, cap;
	uint64_t tar_nbytes; /* bytes of the group in a rewritten tar */
};

/* Calls `take` with each group of the shard. Stops and returns the error if `take` returns a negative
 * errno. Folders and links are skipped. */
int ps_groups_read(const char *path,
        int (*take)(void *ctx, const struct ps_group *group, struct ps_error *err), void *ctx,
        struct ps_error *err) PS_MUST_USE;

/* Writes all members of a group. */
int ps_group_write(const struct ps_group *group, struct ps_tar_out *out, struct ps_error *err) PS_MUST_USE;

#endif
