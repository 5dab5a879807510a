/* Private to this folder: the format of an index file, its path, and an open index.
 *
 * Little endian. A head, a table of sections, the sections, each at a multiple of 8:
 *
 *   0   "PSINDEX3"
 *   8   u64  bytes of the shard as it is stored
 *   16  u64  decompressed bytes of the shard, as far as it could be read
 *   24  u64  samples
 *   32  u64  bad samples among these
 *   40  u32  flags, PS_INDEX_FLAG_...
 *   44  u16  sections       46  u16  0
 *   48  u64  sum of the shard's first 512 bytes (all, if it is shorter), decompressed: its first header
 *   56  u64  sum of bytes 0 to 55 and 64 to 95, and the table
 *   64  SHA-256 of the shard as it is stored; zeros: not all of it was read
 *   96  the table, 32 bytes a section: u32 kind, u32 detail, u64 at, u64 bytes, u64 sum
 *
 * Sections. A text is a varint, its length, and that many bytes. A unit is 512 bytes in a tar, 1 in lines.
 *
 * SHAPES   shapes of samples: varint number of shapes, then each of them:
 *            varint number of members, then each of them:
 *              varint units from the preceding end (the sample's begin, or the last member's padded
 *                end) to its data
 *              text, its suffix, zero-terminated
 *          Shape 0 is not in the table: a sample whose members are not known.
 *
 * SAMPLES  a mark for each 64 samples, then the stream that the marks point into:
 *            mark: u64 offset in the shard that the next sample's gap is counted from
 *                  u64 place in the stream
 *          The stream has for each sample:
 *            varint shape * 4 + bad * 2 + has_gap
 *            with has_gap: varint units from the previous sample's end to this one's begin
 *            shape 0: varint units of the sample, as far as known
 *            other shapes: varint bytes of each member
 *          In shards of lines each sample is followed by one byte, the line's end.
 *          A sample of image and class takes 6 bytes with all its members. If samples would take more than
 *          15.5 on average, the longest ones get shape 0.
 *
 * KEYS     a mark for each 64 samples: u64 place in the texts; then a text for each sample, its key
 *
 * COLUMN   one each; detail: type, width << 8
 *            u8 length of the name, the name, zeros to a multiple of 8
 *            a bit for each sample: has a value; zeros to a multiple of 8
 *            numbers: values of `width` bytes, integers signed, floats IEEE
 *            texts: marks and texts as in KEYS
 *
 * SOURCES  after the columns: a text for each, the source of its values, as "json:meta.height"; older
 *          files and those without columns have no such section
 */
#ifndef PS_SHARD_INDEX_FORMAT_H
#define PS_SHARD_INDEX_FORMAT_H

#include <endian.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "shard/index/index.h"

#define PS_INDEX_MAGIC "PSINDEX3"
#define PS_INDEX_HEAD 96
#define PS_INDEX_SECTION 32      /* an entry of the table */
#define PS_INDEX_MARK 64         /* samples from mark to mark */
#define PS_INDEX_MAX_SECTIONS 68 /* four, plus the columns */
#define PS_INDEX_MAX_SHAPES 1024 /* samples of further shapes get shape 0 */
#define PS_INDEX_MAX_TEXT 255    /* limit of a column's value, and of its name */

enum {
	PS_INDEX_AT_SIZE = 8,
	PS_INDEX_AT_PLAIN = 16,
	PS_INDEX_AT_COUNT = 24,
	PS_INDEX_AT_BAD = 32,
	PS_INDEX_AT_FLAGS = 40,
	PS_INDEX_AT_NSECTIONS = 44,
	PS_INDEX_AT_FIRST = 48,
	PS_INDEX_AT_SUM = 56,
	PS_INDEX_AT_SHA256 = 64,
};

enum {
	PS_INDEX_SHAPES = 1,
	PS_INDEX_SAMPLES = 2,
	PS_INDEX_KEYS = 3,
	PS_INDEX_COLUMN = 4,
	PS_INDEX_SOURCES = 5,
};

static inline void ps_put_u16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void ps_put_u32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void ps_put_u64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static inline uint16_t ps_get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t ps_get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t ps_get_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* The checksum of an index's head and table. */
static inline uint64_t ps_shard_index_head_sum(const uint8_t *p, size_t nsections)
{
	uint64_t sum = ps_shard_index_sum(0, p, PS_INDEX_AT_SUM);

	return ps_shard_index_sum(
	        sum, p + PS_INDEX_AT_SHA256, PS_INDEX_SHA256 + nsections * PS_INDEX_SECTION);
}

static inline size_t ps_shard_index_pad8(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

static inline uint64_t ps_shard_index_nmarks(uint64_t samples)
{
	return samples / PS_INDEX_MARK + (samples % PS_INDEX_MARK > 0);
}

/* Seven bits in each byte, the lowest first; the highest bit is set in all bytes but the last. At most 10
 * bytes. */
static inline size_t ps_put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

/* The unread rest of a section of an index. */
struct ps_shard_index_bytes {
	const uint8_t *p, *end;
};

static inline bool ps_get_varint(struct ps_shard_index_bytes *b, uint64_t *ret_value)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && b->p < b->end; shift += 7) {
		uint8_t c = *b->p++;

		if (shift == 63 && c > 1)
			return false;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*ret_value = v;
			return true;
		}
	}
	return false;
}

/* Takes n bytes. */
static inline bool ps_get_bytes(struct ps_shard_index_bytes *b, uint64_t n, const uint8_t **ret_p)
{
	if (n > (uint64_t)(b->end - b->p))
		return false;
	*ret_p = b->p;
	b->p += n;
	return true;
}

/* The path of an index ----------------------------------------------------------------------------------- */

/* The path of a shard's index, the version of the shard that it must have, and how it is written.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: on the disk.
 * Durability: an index is complete or absent: it is written to a temporary name, then renamed. An index
 * truncated by a power cut is refused as damaged.
 * Errors: 0 or -errno with a text. */

/* The path of a shard's index, which the caller frees; NULL on error, with err filled. `dir` NULL: beside
 * the shard; else in that folder, by the shard's base name, size and first header. */
char *ps_shard_index_path(
        const char *shard, const char *dir, uint64_t nbytes, uint64_t first, struct ps_load_error *err);

/* The indexes in a folder -------------------------------------------------------------------------------- */

struct ps_shard_index_folder;

/* Reads the names in a folder. -ENOTDIR: there is no such folder. */
int ps_shard_index_folder_read(
        const char *dir, struct ps_shard_index_folder **ret_folder, struct ps_load_error *err) PS_MUST_USE;
void ps_shard_index_folder_free(struct ps_shard_index_folder *folder); /* NULL is allowed */

/* False if a file was added to or removed from the folder since it was read. */
bool ps_shard_index_folder_is_current(const struct ps_shard_index_folder *folder);

/* The path of the index that fits a shard's base name and size, which the caller frees. NULL on error, with
 * err filled: -ENOENT: none fits; -ENOTUNIQ: two fit, and only the shard's header could decide, but reading
 * it would cost a request. */
char *ps_shard_index_folder_find(const struct ps_shard_index_folder *folder, const char *shard,
        uint64_t nbytes, struct ps_load_error *err);

/* The path of an index of a longer shard with that name and the same first header; NULL: none. */
char *ps_shard_index_folder_find_longer(
        const struct ps_shard_index_folder *folder, const char *shard, uint64_t nbytes, uint64_t first);

/* True if the file is on a file system whose pages come over a network. */
bool ps_shard_index_fd_is_remote(int fd);

/* Writes the file `path`, with the permissions `mode`. */
int ps_shard_index_file_write(const char *path, mode_t mode, const void *data, size_t nbytes,
        struct ps_load_error *err) PS_MUST_USE;

/* An open index ------------------------------------------------------------------------------------------ */

/* Threads: any. Only the state of sections changes after opening. */

struct ps_shard_index_section {
	uint32_t kind, detail;
	const uint8_t *p;
	size_t n;
	uint64_t sum;
	/* 0: not checked; 1: sound; -1: damaged. Relaxed atomic: checking twice does no harm */
	_Atomic int state;
};

struct ps_shard_index_shape {
	uint32_t first, n; /* range in `members` */
};

struct ps_shard_index_shape_member {
	uint64_t lead; /* units */
	const char *suffix;
};

struct ps_shard_index_column {
	const struct ps_shard_index_section *section;
	const char *name;
	size_t name_len;
	const char *from; /* NULL: not in the file */
	size_t from_len;
	enum ps_column_type type;
	unsigned width;
	const uint8_t *present;
	const uint8_t *values;
};

struct ps_shard_index {
	uint8_t *data;
	size_t nbytes;
	bool mapped;
	char *path;
	uint64_t count, bad;
	uint32_t flags;
	struct ps_shard_index_binding binding;
	struct ps_shard_index_section sections[PS_INDEX_MAX_SECTIONS];
	uint32_t nsections;
	struct ps_shard_index_section *samples, *keys;
	struct ps_shard_index_shape *shapes;
	uint32_t nshapes;
	struct ps_shard_index_shape_member *members;
	struct ps_windows windows; /* nbytes > 0: of a token stream, without a file */
	struct ps_shard_index_column columns[PS_INDEX_MAX_COLUMNS];
	uint32_t ncolumns;
};

#endif
