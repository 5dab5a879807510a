/* penstock-loader index: what is known of shards without reading them. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "shard/dali.h"
#include "shard/index_column.h"
#include "shard/list.h"
#include "tools/tools.h"

static const struct ps_option_help options_help[] = {
        {"--dir DIR", "put the indexes into that directory, made if need be; else beside the shards"},
        {"--column NAME=SUFFIX[:PATH]",
                "keep a value of each sample, from member .SUFFIX, or from PATH inside of its JSON"},
        {"--dali", "write DALI's index instead, NAME.idx"},
        {"--force", "make them anew, also those that are up to date"},
        {"--from-dali", "make them of DALI's, NAME.idx beside the shard, without reading the shard"},
        {"--json", "a JSON object a line: shard, samples, bad, written"},
};

struct index_options {
	const char *dir;
	bool force, json;
	bool dali, from_dali;
	struct ps_column_spec columns[PS_INDEX_MAX_COLUMNS];
	size_t ncolumns;
};

static void line_print(
        const struct index_options *o, const char *shard, uint64_t samples, uint64_t bad, bool made)
{
	if (o->json) {
		printf("{\"shard\": ");
		ps_json_print(stdout, shard);
		printf(", \"samples\": %ju, \"bad\": %ju, \"written\": %s}\n", (uintmax_t)samples,
		        (uintmax_t)bad, made ? "true" : "false");
		return;
	}
	ps_plain_print(stdout, shard);
	printf("\t%ju sample%s%s\n", (uintmax_t)samples, ps_plural(samples), made ? "" : ", up to date");
}

/* True if there is a good index that has all that was asked for, taken from where it was asked for. */
static bool is_up_to_date(
        const struct index_options *o, const char *shard, uint64_t *ret_samples, uint64_t *ret_bad)
{
	struct ps_index *index;
	bool all = true;

	if (o->force || ps_index_open(shard, o->dir, &index, NULL) < 0)
		return false;
	*ret_samples = ps_index_samples(index);
	*ret_bad = ps_index_bad(index);
	for (size_t i = 0; i < o->ncolumns && all; i++) {
		int column = ps_index_column(index, o->columns[i].name);

		all = column >= 0 && ps_index_column_is(index, column, o->columns[i].from);
	}
	ps_index_close(index);
	return all;
}

/* DALI's index of the shard, or ours of DALI's. */
static bool shard_dali(const struct index_options *o, const char *shard)
{
	struct ps_load_error err = {0};
	ps_autofree char *path = ps_dali_path(shard, o->dali ? o->dir : NULL, &err);
	uint64_t samples = 0;
	int r = -ENOMEM;

	if (path && o->dali)
		r = ps_dali_write(shard, path, &samples, &err);
	else if (path)
		r = ps_dali_import(shard, path, o->dir, &samples, &err);
	if (r < 0)
		ps_complain("%s", err.text);
	else
		line_print(o, shard, samples, 0, true);
	return r == 0;
}

/* False if the shard has bad samples, or no index. */
static bool shard_index(const struct index_options *o, const char *shard)
{
	struct ps_load_error err = {0};
	struct ps_index_result res;

	if (is_up_to_date(o, shard, &res.samples, &res.bad)) {
		line_print(o, shard, res.samples, res.bad, false);
		return true;
	}
	if (ps_index_make(shard, o->dir, o->columns, o->ncolumns, &res, &err) < 0) {
		ps_complain("%s%s", err.text, o->dir ? "" : "; --dir puts indexes into a folder of your own");
		return false;
	}
	line_print(o, shard, res.samples, res.bad, true);
	if (res.bad > 0)
		ps_complain("%ju bad sample%s; %s%s", (uintmax_t)res.bad, ps_plural(res.bad),
		        res.bad == 1 ? "" : "the first: ", res.first_bad.text);
	return res.bad == 0;
}

/* The column declared last has another one's name. */
static bool is_named_twice(const struct index_options *o)
{
	for (size_t i = 0; i + 1 < o->ncolumns; i++)
		if (strcmp(o->columns[i].name, o->columns[o->ncolumns - 1].name) == 0)
			return true;
	return false;
}

static void options_fini(struct index_options *o)
{
	for (size_t i = 0; i < o->ncolumns; i++)
		ps_column_spec_fini(&o->columns[i]);
}

int ps_cmd_index(int argc, char **argv)
{
	static const struct option longs[] = {{"dir", required_argument, NULL, 'd'},
	        {"column", required_argument, NULL, 'c'}, {"dali", no_argument, NULL, 'D'},
	        {"from-dali", no_argument, NULL, 'F'}, {"force", no_argument, NULL, 'f'},
	        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	__attribute__((cleanup(ps_list_fini))) struct ps_list shards = {0};
	__attribute__((cleanup(options_fini))) struct index_options o = {0};
	struct ps_load_error err = {0};
	bool sound = true;
	int c, r;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			o.dir = optarg;
			break;
		case 'c':
			if (o.ncolumns == PS_INDEX_MAX_COLUMNS) {
				ps_complain("more than %d columns", PS_INDEX_MAX_COLUMNS);
				return PS_EXIT_USAGE;
			}
			if (ps_column_spec_parse(optarg, &o.columns[o.ncolumns], &err) < 0) {
				ps_complain("%s", err.text);
				return PS_EXIT_USAGE;
			}
			o.ncolumns++;
			if (is_named_twice(&o)) {
				ps_complain("--column %s: there is a column of that name already; give "
				            "each a name of its own",
				        optarg);
				return PS_EXIT_USAGE;
			}
			break;
		case 'D':
			o.dali = true;
			break;
		case 'F':
			o.from_dali = true;
			break;
		case 'f':
			o.force = true;
			break;
		case 'j':
			o.json = true;
			break;
		case 'h':
			ps_help_print(
			        "Usage: penstock-loader index [OPTION...] SHARDS...\n\n"
			        "Writes an index for each shard: how many samples it holds, and where they "
			        "begin.\nWith --column also values of samples: for weights, filters, "
			        "statistics.\n",
			        options_help, PS_ARRAY_LEN(options_help),
			        "Examples:\n"
			        "  penstock-loader index 'train-{000..127}.tar'\n"
			        "  penstock-loader index --dir ~/indexes /mnt/data/train-*.tar\n"
			        "  penstock-loader index --column label=cls --column h=json:height "
			        "train-*.tar\n");
			return PS_EXIT_OK;
		default:
			ps_option_complain(argv, longs, c);
			return PS_EXIT_USAGE;
		}
	}
	if (o.dali + o.from_dali + (o.ncolumns > 0) > 1) {
		ps_complain("--dali, --from-dali and --column exclude each other");
		return PS_EXIT_USAGE;
	}
	r = ps_shards_take(argc, argv, &shards);
	if (r != PS_EXIT_OK)
		return r;
	if (o.dir && ps_folder_make(o.dir, &err) < 0) {
		ps_complain("--dir %s", err.text);
		return PS_EXIT_FAILED;
	}
	for (size_t i = 0; i < shards.n && !ferror(stdout); i++)
		sound = (o.dali || o.from_dali ? shard_dali : shard_index)(&o, shards.names[i]) && sound;
	return sound ? PS_EXIT_OK : PS_EXIT_FAILED;
}
