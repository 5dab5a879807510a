/* The format of the index of a shard, NAME.psx: what is where in the file, for its writers and readers.
 * docs/format.md says which files there are and how their versions change.
 *
 * Little endian. A head, a table of sections, the sections, each at a multiple of 8:
 *
 *   0   "PSINDEX3"
 *   8   u64  bytes of the shard as it is stored
 *   16  u64  decompressed bytes of the shard, as far as it could be read
 *   24  u64  samples
 *   32  u64  bad samples among these
 *   40  u32  flags, PS_PSX_FLAG_...
 *   44  u16  sections
 *   46  u16  notes, PS_PSX_NOTE_...: a reader ignores those that it does not know
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
 *          In shards of lines a sample of another shape than 0 ends one byte after its data: that byte is
 *          the line's end, and no part of a gap.
 *          A sample of image and class takes 6 bytes with all its members. A sample gets shape 0 if, with
 *          its members, the samples so far would take more than 15.5 bytes each on average.
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
 *
 * Threads: any. Blocks: never. Errors: functions that take bytes return false if too few are left. */
#ifndef PS_BASE_PSX_H
#define PS_BASE_PSX_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PS_PSX_SUFFIX ".psx"
#define PS_PSX_MAGIC "PSINDEX3"
#define PS_PSX_HEAD 96
#define PS_PSX_SECTION 32      /* an entry of the table */
#define PS_PSX_MARK 64         /* samples that a mark stands for */
#define PS_PSX_MAX_SECTIONS 68 /* four, plus the columns */
#define PS_PSX_MAX_SHAPES 1024 /* samples of further shapes get shape 0 */
#define PS_PSX_MAX_MEMBERS 64  /* the members of a sample with more are not in the index */
#define PS_PSX_SHA256 32
#define PS_PSX_FIRST 512 /* bytes at the beginning of the shard whose sum is in the head */

enum {
	PS_PSX_AT_SIZE = 8,
	PS_PSX_AT_PLAIN = 16,
	PS_PSX_AT_COUNT = 24,
	PS_PSX_AT_BAD = 32,
	PS_PSX_AT_FLAGS = 40,
	PS_PSX_AT_NSECTIONS = 44,
	PS_PSX_AT_NOTES = 46,
	PS_PSX_AT_FIRST = 48,
	PS_PSX_AT_SUM = 56,
	PS_PSX_AT_SHA256 = 64,
};

enum {
	PS_PSX_SHAPES = 1,
	PS_PSX_SAMPLES = 2,
	PS_PSX_KEYS = 3,
	PS_PSX_COLUMN = 4,
	PS_PSX_SOURCES = 5,
};

enum {
	/* the tar has a global pax header: a walk must begin at the beginning of the tar */
	PS_PSX_FLAG_GLOBAL = 1,
	PS_PSX_FLAG_LINES = 2,      /* a shard of lines: units are of 1 byte */
	PS_PSX_FLAG_COMPRESSED = 4, /* compressed: offsets are in the decompressed bytes */
	PS_PSX_FLAGS = 7,
};

enum {
	/* The tar has no members but the samples'; each is an ordinary file, and its name is the sample's
	 * key, a dot and its suffix. Without this note there may be other members between and after
	 * them, and a suffix may have capital letters in the tar. */
	PS_PSX_NOTE_ALL = 1,
	/* Hard links are members like others. Version 0.3 left them out, without PS_PSX_NOTE_ALL then: an index of
	 * a tar with neither note may lack some. */
	PS_PSX_NOTE_LINKS = 2,
};

/* A checksum against accidental damage, not against attacks. Continues from `sum`; begin with 0. */
uint64_t ps_psx_sum(uint64_t sum, const void *p, size_t n);

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
static inline uint64_t ps_psx_head_sum(const uint8_t *p, size_t nsections)
{
	uint64_t sum = ps_psx_sum(0, p, PS_PSX_AT_SUM);

	return ps_psx_sum(sum, p + PS_PSX_AT_SHA256, PS_PSX_SHA256 + nsections * PS_PSX_SECTION);
}

static inline size_t ps_psx_pad8(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

static inline uint64_t ps_psx_nmarks(uint64_t samples)
{
	return samples / PS_PSX_MARK + (samples % PS_PSX_MARK > 0);
}

/* Seven bits in each byte, the lowest first; the highest bit is set in all bytes except the last. At most 10
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
struct ps_psx_bytes {
	const uint8_t *p, *end;
};

static inline bool ps_get_varint(struct ps_psx_bytes *b, uint64_t *ret_value)
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
static inline bool ps_get_bytes(struct ps_psx_bytes *b, uint64_t n, const uint8_t **ret_p)
{
	if (n > (uint64_t)(b->end - b->p))
		return false;
	*ret_p = b->p;
	b->p += n;
	return true;
}

#endif
