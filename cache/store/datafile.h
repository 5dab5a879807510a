/* Data files: the bytes of one object each, sparse, at data/ab/abcdef..., offsets equal to the object's own.
 *
 * Ownership: descriptors belong to the caller. Threads: any; one file is created by one thread at a time.
 * Errors: 0 or -errno. Durability: page cache only. Blocks: on disk. */
#ifndef PS_STORE_DATAFILE_H
#define PS_STORE_DATAFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/hash.h"

/* A new file of `size` bytes, all hole. One of that name that is there already is a leftover: it is unlinked,
 * never cut (somebody may still be reading it). */
int ps_datafile_create(int data_fd, const struct ps_id *id, uint64_t size, int *ret_fd) PS_MUST_USE;
/* For reading and writing; only for reading on a read-only file system (*ret_writable). -ENOENT. */
int ps_datafile_open(int data_fd, const struct ps_id *id, int *ret_fd, bool *ret_writable) PS_MUST_USE;
/* A second descriptor, for writing past the page cache: a cold stream then neither fills memory with what its
 * reader has already nor makes the kernel write back behind it (measured: 0.13 CPU s/GB against 0.37, and 2.6
 * where the pages are fresh). -1 where the file system cannot. */
int ps_datafile_open_direct(int data_fd, const struct ps_id *id);
/* While blocks are missing, the kernel must not read ahead into holes: pages of zeros beside a block that a
 * direct write fills are stale after it if somebody holds them at that moment. Whole files are read ahead as
 * usual. */
void ps_datafile_read_ahead(int fd, bool whole);
int ps_datafile_unlink(int data_fd, const struct ps_id *id); /* 0 also if it is not there */

/* Through direct_fd if there is one and the alignment allows it, else through fd. */
int ps_datafile_write_direct(
        int direct_fd, int fd, const void *bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;
/* All of nbytes, or -ENODATA at the end of the file, or -EIO... */
int ps_datafile_read(int fd, void *ret_bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;

/* Frees the blocks of a range; it reads as zeros afterwards. */
int ps_datafile_punch(int fd, uint64_t offset, uint64_t nbytes) PS_MUST_USE;
/* Can files in this folder have holes punched? Makes one to find out. */
bool ps_datafile_can_punch(int data_fd);
int64_t ps_datafile_mtime_ns(const struct stat *st);
int64_t ps_datafile_ctime_ns(const struct stat *st);

/* Every data file. Whatever else lies in data/ is none of ours: left out and left alone. A non-zero return of
 * fn ends the walk. fn may unlink. */
int ps_datafile_each(int data_fd, int (*fn)(void *arg, const struct ps_id *id, const struct stat *st),
        void *arg) PS_MUST_USE;

#endif
