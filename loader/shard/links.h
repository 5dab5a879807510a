/* Private to the readers of a shard. */
#ifndef PS_SHARD_LINKS_H
#define PS_SHARD_LINKS_H

#include "shard/file/file.h"

/* The files of a tar by their names, so that hard links find their targets. As for tar(1), a link leads to the last
 * earlier member of that name; ".", empty parts and a slash at the beginning of a name do not count.
 *
 * Ownership: the creator's.   Threads: one at a time.   Locks: none.   Blocks: never.
 * Errors: -ENOMEM; -E2BIG: more than PS_LINKS_MAX members or PS_LINKS_MAX_TEXT bytes of names. */

#define PS_LINKS_MAX (UINT32_C(4) << 20)
#define PS_LINKS_MAX_TEXT (256UL << 20)

struct ps_links;

struct ps_links *ps_links_new(void);        /* NULL: out of memory */
void ps_links_free(struct ps_links *links); /* NULL is allowed */

/* Takes note of a member, in the order of the tar. A hard link gets offset and size of its target; kind becomes
 * PS_TAR_OTHER if it has none, that is not an ordinary file before it. */
int ps_links_add(struct ps_links *links, struct ps_tar_member *member) PS_MUST_USE;

#endif
