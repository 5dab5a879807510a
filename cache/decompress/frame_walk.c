#include "decompress/frame_walk.h"

#include <errno.h>

#include "base/size.h"

#define BLOCK_MAX_NBYTES (128 * UINT64_C(1024)) /* RFC 8878, 3.1.1.2.4 */
#define BLOCK_HEADER_NBYTES 3
#define CHECKSUM_NBYTES 4

enum block { BLOCK_RAW, BLOCK_REPEATED, BLOCK_COMPRESSED, BLOCK_RESERVED };

static uint32_t le24(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

/* Is there so much of the file from here on? */
static bool fits(const struct ps_frame_walk *walk, uint64_t nbytes)
{
	return nbytes <= walk->file_nbytes - walk->at;
}

static int begin_frame(struct ps_frame_walk *walk, const uint8_t *p, size_t n)
{
	struct ps_frame_header header;
	int rc = ps_frame_header_parse(p, n, &header);

	if (rc == -EAGAIN && n == walk->file_nbytes - walk->at)
		return -EBADMSG;
	if (rc < 0)
		return rc;
	if (!fits(walk, header.header_nbytes))
		return -EBADMSG;
	ps_frame_map_add(&walk->map, walk->at, walk->plain);
	walk->at += header.header_nbytes;
	if (header.skippable) {
		if (!fits(walk, header.content_nbytes))
			return -EBADMSG;
		walk->at += header.content_nbytes;
		return 0;
	}
	if (header.content_nbytes == UINT64_MAX)
		return -ENODATA;
	walk->in_frame = true;
	walk->checksum = header.checksum;
	walk->content = header.content_nbytes;
	walk->least = walk->most = 0;
	return 0;
}

static int end_frame(struct ps_frame_walk *walk)
{
	walk->in_frame = false;
	if (walk->checksum && !fits(walk, CHECKSUM_NBYTES))
		return -EBADMSG;
	walk->at += walk->checksum ? CHECKSUM_NBYTES : 0;
	if (walk->content < walk->least || walk->content > walk->most ||
	        __builtin_add_overflow(walk->plain, walk->content, &walk->plain) || walk->plain > INT64_MAX)
		return -EBADMSG;
	return 0;
}

static int pass_block(struct ps_frame_walk *walk, const uint8_t *p, size_t n)
{
	if (!fits(walk, BLOCK_HEADER_NBYTES))
		return -EBADMSG;
	if (n < BLOCK_HEADER_NBYTES)
		return -EAGAIN;
	uint32_t header = le24(p), nbytes = header >> 3;
	enum block kind = (enum block)(header >> 1 & 3);
	bool last = header & 1;

	if (kind == BLOCK_RESERVED)
		return -EBADMSG;
	walk->at += BLOCK_HEADER_NBYTES;
	if (!fits(walk, kind == BLOCK_REPEATED ? 1 : nbytes))
		return -EBADMSG;
	walk->at += kind == BLOCK_REPEATED ? 1 : nbytes;
	walk->least += kind == BLOCK_COMPRESSED ? 0 : nbytes;
	walk->most += kind == BLOCK_COMPRESSED ? BLOCK_MAX_NBYTES : nbytes;
	return last ? end_frame(walk) : 0;
}

static int end_file(struct ps_frame_walk *walk)
{
	struct ps_frame_map *map = &walk->map;

	if (walk->at == 0)
		return -EBADMSG;
	ps_frame_map_add(map, walk->at, walk->plain);
	map->whole = map->n >= 2 && map->points[map->n - 1].packed == walk->at;
	return 0;
}

int ps_frame_walk_step(struct ps_frame_walk *walk, const uint8_t *bytes, size_t n, uint64_t offset)
{
	for (int rc = 0; rc == 0;) {
		if (!walk->in_frame && walk->at == walk->file_nbytes)
			return end_file(walk);
		size_t skip = (size_t)PS_MIN(walk->at - offset, (uint64_t)n);

		if (walk->in_frame)
			rc = pass_block(walk, bytes + skip, n - skip);
		else
			rc = n == skip ? -EAGAIN : begin_frame(walk, bytes + skip, n - skip);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void ps_frame_walk_fini(struct ps_frame_walk *walk)
{
	ps_frame_map_fini(&walk->map);
}
