/* penstock-loader cat: samples to standard output, as one tar or as the bytes of a field. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/groups.h"
#include "tools/tools.h"

#define MAX_FIELDS 32 /* existing fields that are listed if the requested one does not exist */

struct cat_options {
	const char *key, *field;
	bool lines;
};

struct cat {
	const struct cat_options *o;
	struct ps_tar_out *out; /* NULL with --field */
	uint64_t found;
	uint64_t matched;         /* samples with the requested key, if one was given */
	char *fields[MAX_FIELDS]; /* fields of these samples, until the requested one is found */
	size_t nfields;
};

static int bytes_write(const struct ps_group_member *m, bool lines, struct ps_error *err)
{
	if (fwrite(m->data, 1, m->size, stdout) == m->size &&
	        (!lines || (m->size > 0 && m->data[m->size - 1] == '\n') || putchar('\n') != EOF))
		return 0;
	return ps_error_set(err, errno ? errno : EIO, "standard output: cannot write: %s", strerror(errno));
}

/* Remembers an existing field, for the error message. */
static void field_note(struct cat *c, const char *suffix)
{
	for (size_t i = 0; i < c->nfields; i++)
		if (strcasecmp(c->fields[i], suffix) == 0)
			return;
	if (c->nfields < MAX_FIELDS && (c->fields[c->nfields] = strdup(suffix)))
		c->nfields++;
}

static int field_write(struct cat *c, const struct ps_group *g, struct ps_error *err)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct ps_group_member *m = &g->members[i];

		if (strcasecmp(m->name + m->suffix_at, c->o->field) != 0) {
			if (c->found == 0)
				field_note(c, m->name + m->suffix_at);
			continue;
		}
		c->found++;
		int rc = bytes_write(m, c->o->lines, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int group_take(void *ctx, const struct ps_group *g, struct ps_error *err)
{
	struct cat *c = ctx;
	const char *key = c->o->key;

	if (key && (!g->key || strlen(key) != g->key_len || memcmp(key, g->key, g->key_len) != 0))
		return 0;
	c->matched += g->key != NULL;
	if (c->o->field)
		return g->key ? field_write(c, g, err) : 0;
	c->found++;
	return ps_group_write(g, c->out, err);
}

/* Reports that the requested key or field does not exist. */
static void nothing_complain(struct cat *c)
{
	char list[1024] = "";
	size_t n = 0;

	for (size_t i = 0; i < c->nfields && n < sizeof(list); i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s.%s", i > 0 ? ", " : "", c->fields[i]);
	if (c->o->key && c->matched == 0)
		ps_complain("no sample %s in these shards", c->o->key);
	else if (c->matched == 0)
		ps_complain("no field .%s: these shards hold no samples", c->o->field);
	else
		ps_complain("no field .%s in %s%s; there are %s", c->o->field,
		        c->o->key ? "sample " : "these shards", c->o->key ? c->o->key : "", list);
}

static int cat_run(struct cat *c, const struct ps_shard_list *shards)
{
	struct ps_error err = {0};
	int rc = c->o->field ? 0 : ps_tar_out_fd(STDOUT_FILENO, "standard output", 0, &c->out, &err);

	for (size_t i = 0; i < shards->n && rc == 0; i++)
		rc = ps_groups_read(shards->names[i], group_take, c, &err);
	if (rc == 0 && c->out && (c->found > 0 || !c->o->key)) {
		rc = ps_tar_out_finish(c->out, NULL, &err);
		if (rc == 0)
			c->out = NULL;
	}
	ps_tar_out_abort(c->out);
	if (rc < 0) {
		ps_complain("%s", err.text);
		return PS_EXIT_FAILED;
	}
	if ((c->o->key || c->o->field) && c->found == 0) {
		nothing_complain(c);
		return PS_EXIT_FAILED;
	}
	return PS_EXIT_OK;
}

static void cat_fini(struct cat *c)
{
	for (size_t i = 0; i < c->nfields; i++)
		free(c->fields[i]);
}

static const struct ps_flag flags[] = {
        {"key", PS_FLAG_TEXT, offsetof(struct cat_options, key), "KEY", "only the samples of that key"},
        {"field", PS_FLAG_TEXT, offsetof(struct cat_options, field), "SUFFIX",
                "the bytes of that field, one sample's after the other's, instead of a tar"},
        {"lines", PS_FLAG_SET, offsetof(struct cat_options, lines),
                .text = "with --field: end each with a newline, unless it has one"},
};

int ps_cmd_cat(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader cat [OPTION...] SHARDS...\n\n"
	        "Writes the samples of all shards to standard output, as one tar, or "
	        "with --field the "
	        "bytes of a\nfield. Compressed shards are read, too.\n",
	        "Examples:\n"
	        "  penstock-loader cat 'train-{000..003}.tar' > small.tar\n"
	        "  penstock-loader cat --key n01440764/9 --field jpg train-000.tar > 9.jpg\n"
	        "  penstock-loader cat --field json --lines train-*.tar | jq .caption\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	struct cat_options o = {0};
	__attribute__((cleanup(cat_fini))) struct cat c = {.o = &o};
	int rc = ps_flags_read(&command, &o, argc, argv);

	if (rc >= 0)
		return rc;
	if (o.lines && !o.field) {
		ps_complain("--lines needs --field");
		return PS_EXIT_USAGE;
	}
	if (!o.field && isatty(STDOUT_FILENO)) {
		ps_complain("standard output is a terminal: redirect it, or name a --field");
		return PS_EXIT_USAGE;
	}
	rc = ps_shards_take(argc, argv, &shards);
	return rc == PS_EXIT_OK ? cat_run(&c, &shards) : rc;
}
