/* The origin of file:// sources and local directories: NFS, Lustre, a slow disk.
 *
 * A file's version is size, mtime (ns) and inode, told as a strong ETag, and compared before and after each
 * read. A file that is written to in place within the file system's clock tick of the read may escape it.
 *
 * Blocking: reads run on a few own threads; one that hangs in a dead NFS mount holds its thread, and close,
 * until the kernel lets go of it. */
#ifndef PS_ORIGIN_FILE_H
#define PS_ORIGIN_FILE_H

#include "origin/origin.h"
#include "origin/source.h"

#define PS_FILE_MAX_THREADS 8

/* Takes the source's contents over, also on failure. */
int ps_file_open(struct ps_source *source, struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The objects of a file source; see struct ps_origin_ops.list. */
int ps_file_list(struct ps_origin *o, const struct ps_source *source, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

/* "file:///a%20b" to "/a b". -EINVAL, -ENOMEM. */
int ps_file_path(const char *url, char **ret) PS_MUST_USE;

struct stat;
/* Size and version of a file. */
void ps_file_remote(const struct stat *st, struct ps_remote *ret);

#endif
