/* penstock-loader split: shards into other shards. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "base/hash.h"
#include "shard/file/file.h"
#include "tools/groups.h"
#include "tools/tools.h"

#define MAX_PARTS 512

/* A sequence of shards that is written. */
struct sink {
	char *pattern;
	/* the sink gets the keys whose hash is below share_end, and not below share_end of the sink before */
	double share_end;
	uint64_t number; /* number of the next shard */
	char *name;      /* name of the open shard */
	struct ps_tar_out *out;
	uint64_t count, nbytes;
};

struct split {
	uint64_t max_size, max_count, parts;
	const char *out;
	char *shares;
	int level;
	bool force, json;
	struct sink sinks[MAX_PARTS];
	size_t nsinks;
	uint64_t samples, shards;
	struct ps_tool_progress progress;
};

static int sink_close(struct split *s, struct sink *sink, struct ps_error *err)
{
	uint64_t nbytes;

	if (!sink->out)
		return 0;
	int rc = ps_tar_out_finish(sink->out, &nbytes, err);
	if (rc < 0)
		return rc;
	sink->out = NULL;
	s->shards++;
	ps_tool_progress_add(&s->progress, 1, 0);
	if (!s->json)
		return 0;
	printf("{\"shard\": ");
	ps_json_print(stdout, sink->name);
	printf(", \"samples\": %ju, \"bytes\": %ju}\n", (uintmax_t)sink->count, (uintmax_t)nbytes);
	return 0;
}

static int sink_open(struct split *s, struct sink *sink, struct ps_error *err)
{
	free(sink->name);
	sink->name = ps_need(ps_out_name(sink->pattern, sink->number++));
	int rc = ps_out_prepare(sink->name, s->force, err);
	if (rc < 0)
		return rc;
	sink->count = sink->nbytes = 0;
	return ps_tar_out_open(sink->name, s->level, &sink->out, err);
}

/* A hash of the key in [0, 1), FNV-1a and mixed: the same in every run and on every machine. */
static double key_share(const char *key, size_t len)
{
	uint64_t h = ps_hash(PS_HASH_BEGIN, key, len);

	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	return (double)(h >> 11) * 0x1p-53;
}

static struct sink *sink_choose(struct split *s, const struct ps_group *g)
{
	if (s->parts > 0)
		return &s->sinks[s->samples % s->parts];
	double share = s->nsinks > 1 ? key_share(g->key, g->key_len) : 0;
	for (size_t i = 0; i + 1 < s->nsinks; i++)
		if (share < s->sinks[i].share_end)
			return &s->sinks[i];
	return &s->sinks[s->nsinks - 1];
}

static int group_take(void *ctx, const struct ps_group *g, struct ps_error *err)
{
	struct split *s = ctx;

	if (!g->key)
		return 0; /* such a member describes the shard that it was in */
	struct sink *sink = sink_choose(s, g);
	int rc = 0;

	if (sink->out && s->parts == 0 &&
	        (sink->count == s->max_count || sink->nbytes + g->tar_nbytes > s->max_size))
		rc = sink_close(s, sink, err);
	if (rc == 0 && !sink->out)
		rc = sink_open(s, sink, err);
	if (rc == 0)
		rc = ps_group_write(g, sink->out, err);
	s->samples++;
	sink->count++;
	sink->nbytes += g->tar_nbytes;
	ps_tool_progress_add(&s->progress, 0, g->tar_nbytes);
	return rc;
}

static int split_run(struct split *s, const struct ps_shard_list *shards)
{
	struct ps_error err = {0};
	int rc = 0;

	ps_tool_progress_begin(&s->progress, "split", "shards", 0);
	for (size_t i = 0; i < shards->n && rc == 0; i++)
		rc = ps_groups_read(shards->names[i], group_take, s, &err);
	for (size_t i = 0; i < s->nsinks && rc == 0; i++)
		rc = sink_close(s, &s->sinks[i], &err);
	ps_tool_progress_end(&s->progress);
	if (rc < 0) {
		ps_complain("%s", err.text);
		return PS_EXIT_FAILED;
	}
	if (!s->json)
		printf("%ju sample%s in %ju shard%s\n", (uintmax_t)s->samples, ps_plural(s->samples),
		        (uintmax_t)s->shards, ps_plural(s->shards));
	return PS_EXIT_OK;
}

/* Sinks from the options --------------------------------------------------------------------------------- */

/* OUT with {} replaced by NAME. */
static char *pattern_of(const char *out, const char *name)
{
	const char *braces = strstr(out, "{}");
	char *pattern;

	return asprintf(&pattern, "%.*s%s%s", (int)(braces - out), out, name, braces + 2) < 0 ? NULL
	                                                                                      : pattern;
}

static bool share_take(struct split *s, char *text)
{
	char *equals = strchr(text, '='), *end = NULL;
	double share = equals ? strtod(equals + 1, &end) : 0;
	double before = s->nsinks ? s->sinks[s->nsinks - 1].share_end : 0;

	if (!equals || equals == text || *end || !(share > 0 && share <= 1) || strchr(text, '/')) {
		ps_complain("--shares: %s is not NAME=SHARE with a share above 0 and up to 1", text);
		return false;
	}
	*equals = 0;
	if (s->nsinks == MAX_PARTS || before + share > 1 + 1e-9) {
		ps_complain("--shares: more than %s together", s->nsinks == MAX_PARTS ? "512 names" : "1");
		return false;
	}
	struct sink *sink = &s->sinks[s->nsinks++];
	sink->share_end = before + share;
	sink->pattern = pattern_of(s->out, text);
	for (size_t i = 0; sink->pattern && i + 1 < s->nsinks; i++) {
		if (strcmp(s->sinks[i].pattern, sink->pattern) == 0) {
			ps_complain("--shares: %s comes twice", text);
			return false;
		}
	}
	return sink->pattern && ps_out_pattern_check(sink->pattern);
}

static bool shares_take(struct split *s)
{
	char *rest = s->shares, *word;

	if (!strstr(s->out, "{}")) {
		ps_complain("--shares: OUT must hold {}, where the names go: '{}-%%06d.tar'");
		return false;
	}
	while ((word = strsep(&rest, ",")))
		if (!share_take(s, word))
			return false;
	if (s->sinks[s->nsinks - 1].share_end < 1 - 1e-9) {
		ps_complain("--shares: they add up to less than 1, so some samples would be in no set");
		return false;
	}
	return true;
}

static bool sinks_make(struct split *s)
{
	if (s->shares)
		return shares_take(s);
	s->nsinks = s->parts ? s->parts : 1;
	for (size_t i = 0; i < s->nsinks; i++) {
		s->sinks[i].number = i;
		s->sinks[i].pattern = strdup(s->out);
		if (!s->sinks[i].pattern)
			return false;
	}
	return ps_out_pattern_check(s->out);
}

static void split_free(struct split **ps)
{
	struct split *s = *ps;

	for (size_t i = 0; s && i < s->nsinks; i++) {
		ps_tar_out_abort(s->sinks[i].out);
		free(s->sinks[i].pattern);
		free(s->sinks[i].name);
	}
	free(s);
}

#define AT(member) offsetof(struct split, member)

static const struct ps_flag flags[] = {
        {"max-size", PS_FLAG_BYTES, AT(max_size), "SIZE",
                "bytes of a shard before compression, as 256M [1G]"},
        {"max-count", PS_FLAG_U64, AT(max_count), "N", "samples of a shard [no limit]", 1, UINT64_MAX},
        {"parts", PS_FLAG_U64, AT(parts), "N", "deal the samples in turn to N shards, whatever their size", 1,
                MAX_PARTS},
        {"shares", PS_FLAG_TEXT, AT(shares), "NAME=SHARE,...",
                "into several sets by a hash of the key, as train=0.95,val=0.05; OUT holds {}"},
        {"zstd", PS_FLAG_U32, AT(level), "LEVEL", "compress, 1 to 19 [3 where OUT ends in .zst]", 1,
                PS_TAR_OUT_MAX_LEVEL},
        {"force", PS_FLAG_SET, AT(force), .text = "write over shards that are there"},
        {"json", PS_FLAG_SET, AT(json), .text = "a JSON object a line for each shard"},
};

int ps_cmd_split(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader split [OPTION...] SHARDS... OUT\n\n"
	        "Writes the samples of shards, in their order, into shards of other "
	        "sizes, or into several "
	        "sets.\nOUT names them: train-%06d.tar, or .tar.zst. Samples are never "
	        "cut. Compressed "
	        "shards are read, too.\n",
	        "Examples:\n"
	        "  penstock-loader split --max-size 256M big.tar 'small-%04d.tar'\n"
	        "  penstock-loader split --parts 64 'train-{000..009}.tar' 'even-%03d.tar'\n"
	        "  penstock-loader split --shares train=0.95,val=0.05 all-*.tar "
	        "'{}-%05d.tar'\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	__attribute__((cleanup(split_free))) struct split *s = ps_need(calloc(1, sizeof(*s)));
	int rc;

	s->max_size = UINT64_C(1) << 30;
	s->max_count = UINT64_MAX;
	rc = ps_flags_read(&command, s, argc, argv);
	if (rc >= 0)
		return rc;
	if (argc - optind < 2) {
		ps_complain("needs shards and a name for the new ones (see penstock-loader split --help)");
		return PS_EXIT_USAGE;
	}
	s->out = argv[argc - 1];
	if (s->parts && s->shares) {
		ps_complain("--parts and --shares exclude each other");
		return PS_EXIT_USAGE;
	}
	if (!sinks_make(s) || !ps_out_level(s->out, s->level, &s->level))
		return PS_EXIT_USAGE;
	rc = ps_shards_take(argc - 1, argv, &shards);
	return rc == PS_EXIT_OK ? split_run(s, &shards) : rc;
}
