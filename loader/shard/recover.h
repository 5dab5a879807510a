/* What an index tells of the samples behind a damaged place of a shard: a walk cannot know how many there
 * were.
 *
 * Ownership: the caller's, until fini.   Threads: one at a time.   Locks: none.   Blocks: on the disk.
 * Errors: 0 or -errno without a text. */
#ifndef PS_SHARD_RECOVER_H
#define PS_SHARD_RECOVER_H

#include "shard/builder.h"

struct ps_recovery {
	struct ps_index *index; /* NULL: none was found */
	bool borrowed;
	int bad;                /* errno of the damage ... */
	char *reason;           /* ... and its text */
};

/* Takes an index that is the caller's. */
void ps_recovery_use(struct ps_recovery *recovery, struct ps_index *index);

/* Looks for an index that knows the shard as it was before: the caller's if it has one, else one that fits, or
 * that of the same shard when it was longer; it must have sample `ordinal` at `offset`. False: there is none,
 * or no memory. */
bool ps_recovery_find(struct ps_recovery *recovery, struct ps_index *known, const char *shard,
        const char *index_dir, uint64_t ordinal, uint64_t offset);

/* Notes why the samples from here on are bad. */
int ps_recovery_because(struct ps_recovery *recovery, int errnum, const char *reason) PS_MUST_USE;

void ps_recovery_fini(struct ps_recovery *recovery);

/* True if the shard has a sample of that number. */
bool ps_recovery_has(const struct ps_recovery *recovery, uint64_t ordinal);

/* True if the builder's open sample has all members that it should have. */
bool ps_recovery_is_whole(
        const struct ps_recovery *recovery, uint64_t ordinal, const struct ps_builder *builder);

/* Where a walk can begin with that sample; 0: nowhere. */
uint64_t ps_recovery_offset(const struct ps_recovery *recovery, uint64_t ordinal);

/* Begins that sample as a bad one. */
int ps_recovery_hole(
        const struct ps_recovery *recovery, uint64_t ordinal, struct ps_builder *builder) PS_MUST_USE;

#endif
