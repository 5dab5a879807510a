/* The hidden folder .penstock/ of a mount: not in the listing of the root, but there for who asks by name.
 *
 *   .penstock/stats           JSON, as `penstock status --json` prints it (penstock(1) tells the fields)
 *   .penstock/metrics         the mount's numbers for Prometheus
 *   .penstock/cache_metrics   those that its daemon has once for all its mounts, so that no series comes twice
 *   .penstock/plan            what loaders have told, as in stats; and by ioctl (ioctl.h), the place to tell it
 *
 * A file's content is made when it is opened; its size shows as 0, as in /proc.
 * Threads: any. Blocks: never on the network. */
#ifndef PS_FUSE_VIRTUAL_H
#define PS_FUSE_VIRTUAL_H

#include "fuse/fs.h"

bool ps_virtual_is(fuse_ino_t ino);
bool ps_virtual_is_plan(fuse_ino_t ino);
/* The virtual node of this name in this folder; 0: none. */
fuse_ino_t ps_virtual_lookup(fuse_ino_t parent, const char *name);
/* Also of the folder of the sources' folders. */
void ps_virtual_attr(fuse_ino_t ino, struct ps_attr *ret);
/* The entry of .penstock/ at this position, or NULL past the end. */
const char *ps_virtual_entry(size_t pos, fuse_ino_t *ret_ino);
/* The text of a file; the caller frees it. owner: for root or the mount's owner, with what else the daemon serves; for
 * others nothing is named but this mount. -ENOMEM. */
int ps_virtual_text(struct ps_fs *fs, fuse_ino_t ino, bool owner, char **ret_text, size_t *ret_len);

#endif
