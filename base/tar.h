/* A walk over the members of a tar, front to back, in bounded memory.
 *
 * Reads v7, ustar (with its prefix field), GNU (long names and links, base-256 numbers) and pax (path,
 * linkpath, size, mtime and the name of a sparse file, per file and global). One block of zeros ends the
 * archive. An archive may also end without it after a complete member; ps_tar_has_end() tells the two apart,
 * since a tar that was cut between two members looks like a shorter one.
 *
 * Ownership: borrows its source; a member's name and link are valid until the next call. Threads: one at a
 * time. Locks: none. Errors: -EBADMSG: damaged or truncated, the text names the offset; else errors of the
 * source. After an error every further call fails the same way. Blocks: as the source does. */
#ifndef PS_BASE_TAR_H
#define PS_BASE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

#define PS_TAR_BLOCK 512
#define PS_TAR_MAX_NAME (16UL << 10) /* a longer name or link: see ps_tar_new() */
#define PS_TAR_PEEK_MAX (64UL << 10) /* a walk peeks at no more bytes than this */

/* Where the bytes of a tar come from. Functions return 0 or -errno with a text; -ENODATA: the source ended
 * before the bytes asked for. */
struct ps_tar_source {
	/* Shows the next n bytes (n <= PS_TAR_PEEK_MAX) without taking them; valid until the next call. At
	 * the end of the source they may be fewer: *ret_n is their number. */
	int (*peek)(void *arg, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err);
	void (*take)(void *arg, size_t n); /* takes n of the bytes that were shown */
	int (*read)(void *arg, void *dst, size_t n, struct ps_error *err);
	int (*skip)(void *arg, uint64_t n, struct ps_error *err);
	uint64_t (*offset)(void *arg); /* bytes taken so far */
	/* Fills err with why these first n bytes are not a tar header, and returns -EBADMSG. NULL: a general
	 * text. */
	int (*foreign)(void *arg, const uint8_t *p, size_t n, struct ps_error *err);
};

enum ps_tar_kind {
	PS_TAR_FILE,     /* an ordinary file */
	PS_TAR_SPARSE,   /* a sparse file, whose bytes are not stored contiguously */
	PS_TAR_FOLDER,   /* its name may end in '/' or not */
	PS_TAR_HARDLINK, /* to the earlier member whose name is `link` */
	PS_TAR_SYMLINK,
	PS_TAR_OTHER, /* device, FIFO, unknown */
};

/* The member has bytes of its own: a file, ordinary or sparse. */
static inline bool ps_tar_is_data(enum ps_tar_kind kind)
{
	return kind == PS_TAR_FILE || kind == PS_TAR_SPARSE;
}

struct ps_tar_member {
	const char *name; /* zero-terminated, contains no zero; bytes as in the tar */
	size_t name_len;
	enum ps_tar_kind kind;
	bool name_too_long; /* its name or link is longer than PS_TAR_MAX_NAME: both are "" */
	const char *link;   /* target of a link, bytes as in the tar; "" for other kinds */
	size_t link_len;
	int64_t mtime_s; /* whole seconds; 0 if negative or not a number */
	uint64_t size;   /* bytes of data */
	uint64_t offset; /* offset of the data in the tar */
	/* offset of the member's first header block, which may be a long-name or pax block */
	uint64_t header_offset;
};

/* True if the block is the header of a file of this size. A size of 8 GiB or more is not compared, since it
 * may be in a pax header before this one. */
bool ps_tar_header_fits(const uint8_t block[static PS_TAR_BLOCK], uint64_t size);

struct ps_tar;

/* drops_long_names: a name or link longer than PS_TAR_MAX_NAME sets name_too_long, and the walk continues.
 * Without drops_long_names such a name or link counts as damage, except that a pax linkpath becomes "". The
 * length of a GNU record includes its zero byte. A pax linkpath with a zero byte is treated as too long. A pax
 * header may have any size: long records that say nothing about a member are skipped.
 * Returns NULL if out of memory. */
struct ps_tar *ps_tar_new(const struct ps_tar_source *source, void *arg, bool drops_long_names);

void ps_tar_free(struct ps_tar *tar);

/* 1: the next member (unread data of the last one is skipped); 0: the end of the archive. */
int ps_tar_next(struct ps_tar *tar, struct ps_tar_member *ret_member, struct ps_error *err) PS_MUST_USE;

/* After ps_tar_next() returned 0: true if the archive has an end mark. */
bool ps_tar_has_end(const struct ps_tar *tar);

/* True if a global pax header was read that affects the names, kinds or sizes of the members after it: such
 * an archive can only be read from its beginning. */
bool ps_tar_has_global(const struct ps_tar *tar);

/* Copies to dst all data of the member that ps_tar_next() returned. At most once for each member. */
int ps_tar_read(struct ps_tar *tar, void *dst, struct ps_error *err) PS_MUST_USE;

#endif
