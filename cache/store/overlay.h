/* Rows that a full disk does not take, kept in memory in front of the index until it does.
 *
 * Ownership: copies of keys and values. Threads: any; a lock of its own, a leaf. Blocks: never. */
#ifndef PS_STORE_OVERLAY_H
#define PS_STORE_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

/* Of keys, values and what they cost: some thirty thousand names. Beyond it rows are refused as the disk
 * does. */
#define PS_OVERLAY_MAX_NBYTES ((size_t)8 << 20)

struct ps_overlay;

struct ps_overlay *ps_overlay_new(void); /* NULL: out of memory */
void ps_overlay_free(struct ps_overlay *overlay);

/* Is there room for so many rows of so many bytes? */
bool ps_overlay_has_room(struct ps_overlay *overlay, size_t nrows, size_t nbytes);
/* value NULL: the key is deleted. 0 or -ENOMEM. */
int ps_overlay_put(struct ps_overlay *overlay, const void *key, size_t nkey, const void *value,
        size_t nvalue) PS_MUST_USE;
/* 0: *value's content is replaced. -ENOENT: the key is deleted. -ENODATA: it is not kept here. */
int ps_overlay_get(
        struct ps_overlay *overlay, const void *key, size_t nkey, struct ps_strbuf *value) PS_MUST_USE;
size_t ps_overlay_nbytes(struct ps_overlay *overlay);
bool ps_overlay_is_empty(const struct ps_overlay *overlay);
/* Each of them, in no order. Nobody puts meanwhile. */
void ps_overlay_each(struct ps_overlay *overlay,
        void (*fn)(void *arg, const void *key, size_t nkey, const void *value, size_t nvalue), void *arg);
void ps_overlay_clear(struct ps_overlay *overlay);

#endif
