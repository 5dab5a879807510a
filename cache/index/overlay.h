/* Rows that a full disk does not take, kept in memory in front of the index until it does; in the order of
 * their keys, so that walks of the index can be laid over them.
 *
 * Ownership: copies of keys and values; rows never change, and are counted: a walk has those that it began
 * with. Threads: any; a lock of its own, a leaf. A list of rows is its caller's alone. Blocks: never. */
#ifndef PS_INDEX_OVERLAY_H
#define PS_INDEX_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

/* Of keys, values and what they cost: some thirty thousand names. Beyond it rows are refused as the disk
 * does. */
#define PS_OVERLAY_MAX_NBYTES ((size_t)8 << 20)

struct ps_overlay_row {
	_Atomic unsigned nrefs;
	bool deleted; /* there is no such key */
	size_t nkey, nvalue;
	char bytes[]; /* key, value */
};

/* Rows on their way in, in the order in which they were put, or what a walk sees, in that of their keys.
 * Starts as {0}. */
struct ps_overlay_rows {
	struct ps_overlay_row **v;
	size_t n, cap;
	size_t nbytes; /* what they cost */
	bool failed;   /* out of memory */
};
void ps_overlay_rows_fini(struct ps_overlay_rows *rows);
/* value NULL: the key is to be deleted. */
void ps_overlay_rows_put(
        struct ps_overlay_rows *rows, const void *key, size_t nkey, const void *value, size_t nvalue);
/* Of what ps_overlay_range() gave: the first row of this key or a later one; rows->n: there is none. */
size_t ps_overlay_rows_find(const struct ps_overlay_rows *rows, const void *key, size_t nkey);

struct ps_overlay;

struct ps_overlay *ps_overlay_new(void); /* NULL: out of memory */
void ps_overlay_free(struct ps_overlay *overlay);

/* Takes all rows, and those of the same keys are gone; or none. -ENOSPC: there is no room. -ENOMEM. */
int ps_overlay_add(struct ps_overlay *overlay, const struct ps_overlay_rows *rows) PS_MUST_USE;
/* 0: *value's content is replaced. -ENOENT: the key is deleted. -ENODATA: it is not kept here. */
int ps_overlay_get(
        struct ps_overlay *overlay, const void *key, size_t nkey, struct ps_strbuf *value) PS_MUST_USE;
/* Adds the rows, those of deleted keys too, of the keys from `from` on and below `to`. -ENOMEM. */
int ps_overlay_range(struct ps_overlay *overlay, const void *from, size_t nfrom, const void *to, size_t nto,
        struct ps_overlay_rows *ret) PS_MUST_USE;
size_t ps_overlay_nbytes(struct ps_overlay *overlay);
bool ps_overlay_is_empty(const struct ps_overlay *overlay);
/* Each of them. Nobody adds meanwhile. */
void ps_overlay_each(
        struct ps_overlay *overlay, void (*fn)(void *arg, const struct ps_overlay_row *row), void *arg);
void ps_overlay_clear(struct ps_overlay *overlay);

/* As memcmp() of the whole keys; a key comes before those that it begins. */
int ps_overlay_compare(const void *a, size_t na, const void *b, size_t nb);

#endif
