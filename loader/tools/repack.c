/* penstock-loader pack --repack: the samples of shards, into other shards or to standard output. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "shard/file/file.h"
#include "tools/groups.h"
#include "tools/pack.h"

#define MAX_FIELDS 32 /* existing fields that are listed if the requested one does not exist */

/* A sequence of shards that is written, or standard output. */
struct sink {
	char *pattern;
	/* the sink gets the keys whose hash is below share_end, and not below share_end of the sink before */
	double share_end;
	uint64_t number; /* number of the next shard */
	char *name;      /* name of the open shard; NULL: standard output */
	struct ps_tar_out *out;
	uint64_t count, nbytes;
};

struct repack {
	const struct ps_pack_options *o;
	bool to_stdout;
	struct sink sinks[PS_REPACK_MAX_PARTS];
	size_t nsinks;
	uint64_t matched;         /* samples, with --key those with that key */
	uint64_t written, shards; /* samples, with --field fields; shards */
	char *fields[MAX_FIELDS]; /* fields of the samples, until the requested one is found */
	size_t nfields;
	struct ps_tool_progress progress;
};

/* To standard output ------------------------------------------------------------------------------------- */

static int bytes_write(const struct ps_group_member *m, bool lines, struct ps_error *err)
{
	if (fwrite(m->data, 1, m->size, stdout) == m->size &&
	        (!lines || (m->size > 0 && m->data[m->size - 1] == '\n') || putchar('\n') != EOF))
		return 0;
	return ps_error_set(err, errno ? errno : EIO, "standard output: cannot write: %s", strerror(errno));
}

/* Remembers an existing field, for the error message. */
static void field_note(struct repack *r, const char *suffix)
{
	for (size_t i = 0; i < r->nfields; i++)
		if (strcasecmp(r->fields[i], suffix) == 0)
			return;
	if (r->nfields < MAX_FIELDS)
		r->fields[r->nfields++] = ps_need(strdup(suffix));
}

static int field_write(struct repack *r, const struct ps_group *g, struct ps_error *err)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct ps_group_member *m = &g->members[i];

		if (strcasecmp(m->name + m->suffix_at, r->o->field) != 0) {
			if (r->written == 0)
				field_note(r, m->name + m->suffix_at);
			continue;
		}
		r->written++;
		int rc = bytes_write(m, r->o->lines, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Reports that the requested key or field does not exist. */
static void nothing_complain(const struct repack *r)
{
	const char *key = r->o->key, *field = r->o->field;
	char list[1024] = "";
	size_t n = 0;

	for (size_t i = 0; i < r->nfields && n < sizeof(list); i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s.%s", i > 0 ? ", " : "", r->fields[i]);
	if (key && r->matched == 0)
		ps_complain("no sample %s in these shards", key);
	else if (r->matched == 0)
		ps_complain("no field .%s: these shards hold no samples", field);
	else
		ps_complain("no field .%s in %s%s; the fields are %s", field,
		        key ? "sample " : "these shards", key ? key : "", list);
}

/* To shards ---------------------------------------------------------------------------------------------- */

static int sink_close(struct repack *r, struct sink *sink, struct ps_error *err)
{
	uint64_t nbytes;

	if (!sink->out)
		return 0;
	int rc = ps_tar_out_finish(sink->out, &nbytes, err);
	if (rc < 0)
		return rc;
	sink->out = NULL;
	r->shards++;
	ps_tool_progress_add(&r->progress, 1, 0);
	if (!r->o->json)
		return 0;
	ps_json_shard(sink->name);
	printf(", \"samples\": %ju, \"bytes\": %ju}\n", (uintmax_t)sink->count, (uintmax_t)nbytes);
	return 0;
}

static int sink_open(const struct ps_pack_options *o, struct sink *sink, struct ps_error *err)
{
	free(sink->name);
	sink->name = ps_out_name(sink->pattern, sink->number++);
	int rc = ps_out_prepare(sink->name, o->force, err);
	if (rc < 0)
		return rc;
	sink->count = sink->nbytes = 0;
	return ps_tar_out_open(sink->name, o->level, &sink->out, err);
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

static struct sink *sink_choose(struct repack *r, const struct ps_group *g)
{
	if (r->o->parts > 0)
		return &r->sinks[r->written % r->o->parts];
	double share = r->nsinks > 1 ? key_share(g->key, g->key_len) : 0;
	for (size_t i = 0; i + 1 < r->nsinks; i++)
		if (share < r->sinks[i].share_end)
			return &r->sinks[i];
	return &r->sinks[r->nsinks - 1];
}

static int shards_write(struct repack *r, const struct ps_group *g, struct ps_error *err)
{
	const struct ps_pack_options *o = r->o;
	struct sink *sink = sink_choose(r, g);
	int rc = 0;

	if (sink->out && o->parts == 0 &&
	        (sink->count == o->max_count || sink->nbytes + g->tar_nbytes > o->max_size))
		rc = sink_close(r, sink, err);
	if (rc == 0 && !sink->out)
		rc = sink_open(o, sink, err);
	if (rc == 0)
		rc = ps_group_write(g, sink->out, err);
	r->written++;
	sink->count++;
	sink->nbytes += g->tar_nbytes;
	ps_tool_progress_add(&r->progress, 0, g->tar_nbytes);
	return rc;
}

/* A group without a key is a member that describes the shard that it was in: it is part of no field and no
 * other shard. */
static int group_take(void *ctx, const struct ps_group *g, struct ps_error *err)
{
	struct repack *r = ctx;
	const char *key = r->o->key;

	if (key && (!g->key || strlen(key) != g->key_len || memcmp(key, g->key, g->key_len) != 0))
		return 0;
	r->matched += g->key != NULL;
	if (r->to_stdout && !r->o->field) {
		r->written++;
		return ps_group_write(g, r->sinks[0].out, err);
	}
	if (!g->key)
		return 0;
	return r->o->field ? field_write(r, g, err) : shards_write(r, g, err);
}

static int repack_run(struct repack *r, const struct ps_shard_list *shards)
{
	const struct ps_pack_options *o = r->o;
	struct ps_error err = {0};
	bool nothing;
	int rc = 0;

	if (!r->to_stdout)
		ps_tool_progress_begin(&r->progress, "pack", "shards", 0);
	else if (!o->field)
		rc = ps_tar_out_fd(STDOUT_FILENO, "standard output", 0, &r->sinks[0].out, &err);
	for (size_t i = 0; i < shards->n && rc == 0; i++)
		rc = ps_groups_read(shards->names[i], group_take, r, &err);
	nothing = rc == 0 && (o->key || o->field) && r->written == 0;
	for (size_t i = 0; i < r->nsinks && rc == 0 && !nothing; i++)
		rc = sink_close(r, &r->sinks[i], &err);
	if (!r->to_stdout)
		ps_tool_progress_end(&r->progress);
	if (rc < 0)
		ps_complain("%s", err.text);
	else if (nothing)
		nothing_complain(r);
	else if (!r->to_stdout && !o->json)
		printf("%ju sample%s in %ju shard%s\n", (uintmax_t)r->written, ps_plural(r->written),
		        (uintmax_t)r->shards, ps_plural(r->shards));
	return rc < 0 || nothing ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* Sinks from the options --------------------------------------------------------------------------------- */

static bool share_take(struct repack *r, char *text)
{
	char *equals = strchr(text, '='), *end = NULL;
	double share = equals ? strtod(equals + 1, &end) : 0;
	double before = r->nsinks ? r->sinks[r->nsinks - 1].share_end : 0;

	if (!equals || equals == text || *end || !(share > 0 && share <= 1) || strchr(text, '/'))
		return ps_complain("--shares: %s is not NAME=SHARE with a share above 0 and up to 1", text);
	*equals = 0;
	if (r->nsinks == PS_REPACK_MAX_PARTS || before + share > 1 + 1e-9)
		return ps_complain("--shares: more than %s together",
		        r->nsinks == PS_REPACK_MAX_PARTS ? "512 names" : "1");
	struct sink *sink = &r->sinks[r->nsinks++];
	sink->share_end = before + share;
	const char *out = r->o->out, *braces = strstr(out, "{}");
	sink->pattern = ps_text("%.*s%s%s", (int)(braces - out), out, text, braces + 2);
	for (size_t i = 0; i + 1 < r->nsinks; i++) {
		if (strcmp(r->sinks[i].pattern, sink->pattern) == 0)
			return ps_complain("--shares: %s is given twice", text);
	}
	return ps_out_pattern_check(sink->pattern);
}

static bool shares_take(struct repack *r)
{
	char *rest = r->o->shares, *word;

	if (!strstr(r->o->out, "{}"))
		return ps_complain("--shares: OUT must contain {} for the names, as in '{}-%%06d.tar'");
	while ((word = strsep(&rest, ",")))
		if (!share_take(r, word))
			return false;
	if (r->sinks[r->nsinks - 1].share_end < 1 - 1e-9)
		return ps_complain(
		        "--shares: the shares add up to less than 1, so some samples would be in no set");
	return true;
}

static bool sinks_make(struct repack *r)
{
	if (r->o->shares)
		return shares_take(r);
	r->nsinks = r->o->parts ? r->o->parts : 1;
	for (size_t i = 0; i < r->nsinks; i++) {
		r->sinks[i].number = i;
		r->sinks[i].pattern = ps_need(strdup(r->o->out));
	}
	return r->to_stdout || ps_out_pattern_check(r->o->out);
}

static void repack_free(struct repack **pr)
{
	struct repack *r = *pr;

	for (size_t i = 0; i < r->nsinks; i++) {
		ps_tar_out_abort(r->sinks[i].out);
		free(r->sinks[i].pattern);
		free(r->sinks[i].name);
	}
	for (size_t i = 0; i < r->nfields; i++)
		free(r->fields[i]);
	free(r);
}

/* False: options that exclude each other, with a message on stderr. */
static bool options_check(const struct repack *r)
{
	const struct ps_pack_options *o = r->o;

	if (o->parts && o->shares)
		ps_complain("--parts and --shares cannot be used together");
	else if (r->to_stdout && (o->parts || o->shares || o->force || o->json || o->max_count < UINT64_MAX ||
	                                 o->max_size != PS_PACK_MAX_SIZE))
		ps_complain("if OUT is - (standard output), only --key, --field and --lines can be used");
	else if (o->field && !r->to_stdout)
		ps_complain("--field writes to standard output: use - as OUT instead of %s", o->out);
	else if (o->lines && !o->field)
		ps_complain("--lines needs --field");
	else if (r->to_stdout && !o->field && isatty(STDOUT_FILENO))
		ps_complain("standard output is a terminal; redirect it, or use --field");
	else
		return true;
	return false;
}

int ps_repack(const struct ps_pack_options *o, int argc, char **argv)
{
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	__attribute__((cleanup(repack_free))) struct repack *r = ps_need(calloc(1, sizeof(*r)));
	int rc;

	r->o = o;
	r->to_stdout = strcmp(o->out, "-") == 0;
	if (!options_check(r) || !sinks_make(r))
		return PS_EXIT_USAGE;
	rc = ps_shards_take(argc, argv, &shards);
	return rc == PS_EXIT_OK ? repack_run(r, &shards) : rc;
}
