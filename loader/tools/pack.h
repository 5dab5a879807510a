/* Options of pack, and its mode that makes shards of shards. */
#ifndef PS_TOOLS_PACK_H
#define PS_TOOLS_PACK_H

#include "shard/index/index.h"
#include "tools/recode.h"
#include "tools/tools.h"

#define PS_PACK_MAX_SIZE (UINT64_C(1) << 30) /* default of max_size */

struct ps_pack_options {
	const char *source, *out, *from;
	bool classes, shuffle, index, force, json, repack;
	uint64_t max_size, max_count, seed, threads;
	int level;
	struct ps_part part;
	struct ps_recode recode;
	struct ps_columns columns;
	/* of ps_repack() alone */
	uint64_t parts;
	char *shares; /* is written to */
	const char *key, *field;
	bool lines;
};

#define PS_REPACK_MAX_PARTS 512

/* Writes the samples of shards into other shards, or with `out` "-" to standard output: as a tar, or the
 * bytes of a field. The shards are argv[optind] to argv[argc - 1]. Returns an exit code. */
int ps_repack(const struct ps_pack_options *options, int argc, char **argv);

#endif
