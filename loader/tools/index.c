/* penstock-loader index: makes and verifies indexes and catalogues. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "shard/index/index.h"
#include "shard/shard.h"
#include "tools/tools.h"

/* Entries for the catalogue of one folder, of consecutive shards of the command line. */
struct listed {
	char *dir; /* NULL: none yet */
	struct ps_catalogue_entry *entries;
	size_t n;
	bool is_part; /* other processes write other parts, also on other machines */
};

struct index_options {
	const char *dir;
	bool force, json;
	bool verify, catalogue;
	struct ps_part part;
	struct ps_columns columns;
	struct listed listed;
};

static void line_print(
        const struct index_options *o, const char *shard, uint64_t samples, uint64_t bad, bool made)
{
	if (o->json) {
		ps_json_shard(shard);
		printf(", \"samples\": %ju, \"bad\": %ju, \"written\": %s}\n", (uintmax_t)samples,
		        (uintmax_t)bad, made ? "true" : "false");
		return;
	}
	ps_plain_print(stdout, shard);
	printf("\t%ju sample%s%s\n", (uintmax_t)samples, ps_plural(samples), made ? "" : ", up to date");
}

/* True if the index is not older than the shard, by the rule of make(1). */
static bool is_newer(const char *index, const char *shard)
{
	struct stat a, b;

	return stat(index, &a) == 0 && stat(shard, &b) == 0 &&
	       (a.st_mtim.tv_sec != b.st_mtim.tv_sec ? a.st_mtim.tv_sec > b.st_mtim.tv_sec
	                                             : a.st_mtim.tv_nsec >= b.st_mtim.tv_nsec);
}

/* True if there is a sound index, with all requested columns from their requested sources. */
static bool is_up_to_date(
        const struct index_options *o, const char *shard, uint64_t *ret_samples, uint64_t *ret_bad)
{
	struct ps_shard_index *index;
	uint64_t first;
	bool all;

	if (o->force || o->catalogue || ps_shard_index_open(shard, o->dir, &index, NULL) < 0)
		return false;
	*ret_samples = ps_shard_index_samples(index);
	*ret_bad = ps_shard_index_bad(index);
	all = is_newer(ps_shard_index_path_of(index), shard) &&
	      ps_shard_index_first_read(shard, &first, NULL) == 0 &&
	      first == ps_shard_index_binding(index)->first;
	for (size_t i = 0; i < o->columns.n && all; i++) {
		int column = ps_shard_index_column(index, o->columns.v[i].name);

		all = column >= 0 && ps_shard_index_column_is(index, column, o->columns.v[i].from);
	}
	ps_shard_index_close(index);
	return all;
}

/* Verifying ---------------------------------------------------------------------------------------------- */

static int differs(const char *shard, const char *what, struct ps_error *err)
{
	return ps_error_set(err, ESTALE, "%s: does not match %s: one of the two was changed", shard, what);
}

/* Compares the shard with the SHA-256 in its catalogue entry and with that in its index, where they are
 * known. 1: the one in the index matches; 0: the index has none. */
static int hash_verify(const char *shard, const struct ps_shard_index *index,
        const struct ps_catalogue_entry *e, struct ps_error *err)
{
	const uint8_t *want = ps_shard_index_binding(index)->sha256;
	uint8_t sha256[PS_DIGEST_NBYTES];
	int rc;

	if (!ps_shard_index_sha256_known(want) && !(e && ps_shard_index_sha256_known(e->sha256)))
		return 0;
	rc = ps_digest_file(shard, sha256, err);
	if (rc < 0)
		return rc;
	if (e && ps_shard_index_sha256_known(e->sha256) && memcmp(sha256, e->sha256, sizeof(sha256)) != 0)
		return differs(shard, PS_CATALOGUE_NAME, err);
	if (!ps_shard_index_sha256_known(want))
		return 0;
	return memcmp(sha256, want, sizeof(sha256)) == 0 ? 1
	                                                 : differs(shard, ps_shard_index_path_of(index), err);
}

/* Makes the index again in memory, with its columns, and compares it. */
static int content_verify(const char *shard, struct ps_shard_index *index, struct ps_error *err)
{
	struct ps_column_spec columns[PS_INDEX_MAX_COLUMNS] = {0};
	int n = ps_shard_index_ncolumns(index), r = 0, parsed = 0;
	struct ps_shard_index *now = NULL;

	for (; parsed < n && r == 0; parsed++) {
		ps_autofree char *text = ps_shard_index_column_text(index, parsed);

		r = text ? ps_column_spec_parse(text, &columns[parsed], err)
		         : ps_error_set(err, EINVAL,
		                   "%s: does not say where its columns are from; make it again",
		                   ps_shard_index_path_of(index));
	}
	if (r == 0)
		r = ps_shard_index_make_mem(shard, columns, (size_t)n, &now, err);
	if (r == 0 && !ps_shard_index_equals(index, now))
		r = differs(shard, ps_shard_index_path_of(index), err);
	ps_shard_index_close(now);
	for (int i = 0; i < n; i++)
		ps_column_spec_fini(&columns[i]);
	return r;
}

/* Adds the remedy to the error. On a mount no file can be written beside the shards, and the mount may still
 * show an older version of its origin. */
static void remedy_add(
        const struct index_options *o, const char *shard, bool listed, bool has_columns, struct ps_error *err)
{
	const char *hint = strstr(err->text, "; " PS_INDEX_HINT),
	           *columns = has_columns ? " --column ..." : "";
	int n = hint ? (int)(hint - err->text) : (int)strlen(err->text);
	bool mounted = ps_path_is_on_mount(shard);
	char text[sizeof(err->text)];

	snprintf(text, sizeof(text), "%.*s", n, err->text);
	if (o->dir)
		ps_error_set(err, ESTALE,
		        "%s; make the index again: penstock-loader index --force --dir %s%s %s%s", text,
		        o->dir, columns, shard,
		        mounted ? "; if the mount shows an old shard: penstock evict, or mount with a "
		                  "shorter "
		                  "--revalidate"
		                : "");
	else if (mounted)
		ps_error_set(err, ESTALE,
		        "%s; if the mount shows an old version of one: penstock evict, or mount with a "
		        "shorter --revalidate; if one is old at the origin, make both again there: "
		        "penstock-loader index --catalogue%s",
		        text, columns);
	else
		ps_error_set(err, ESTALE,
		        "%s; fetch the shard again, or make its index again: penstock-loader index "
		        "--%s%s %s",
		        text, listed ? "catalogue" : "force", columns, shard);
}

static bool shard_verify(const struct index_options *o, const char *shard)
{
	struct ps_error err = {0}, why = {0};
	const struct ps_catalogue_entry *e = NULL;
	struct ps_catalogue *catalogue = NULL;
	const char *slash = strrchr(shard, '/');
	ps_autofree char *dir =
	        ps_need(strndup(shard, slash ? PS_MAX((size_t)(slash - shard), (size_t)1) : 0));
	struct ps_shard_index *index = NULL;
	uint64_t samples = 0, bad = 0;
	int rc = ps_shard_index_open(shard, o->dir, &index, &err);
	int c = !o->dir ? ps_catalogue_read(dir, &catalogue, &why) : -ENOENT;

	if (rc == 0 && c == 0)
		e = ps_catalogue_match(
		        catalogue, slash ? slash + 1 : shard, ps_shard_index_binding(index)->nbytes);
	if (rc == 0 && c < 0 && c != -ENOENT)
		rc = ps_error_set(&err, -c, "%s", why.text);
	if (rc == 0) {
		samples = ps_shard_index_samples(index);
		bad = ps_shard_index_bad(index);
		if (e && e->samples != samples)
			rc = differs(shard, PS_CATALOGUE_NAME, &err);
	}
	if (rc == 0)
		rc = hash_verify(shard, index, e, &err);
	if (rc == 0) /* 1: the shard has the bytes that the index was made of: nothing is left to compare */
		rc = content_verify(shard, index, &err);
	if (rc == -ESTALE)
		remedy_add(o, shard, c == 0, index && ps_shard_index_ncolumns(index) > 0, &err);
	ps_catalogue_free(catalogue);
	ps_shard_index_close(index);
	if (rc < 0)
		ps_complain("%s", err.text);
	if (o->json) {
		ps_json_shard(shard);
		printf(", \"samples\": %ju, \"bad\": %ju, \"verified\": %s}\n", (uintmax_t)samples,
		        (uintmax_t)bad, rc < 0 ? "false" : "true");
	} else if (rc >= 0) {
		ps_plain_print(stdout, shard);
		printf("\t%ju sample%s, verified\n", (uintmax_t)samples, ps_plural(samples));
	}
	return rc >= 0;
}

/* Catalogues --------------------------------------------------------------------------------------------- */

/* Writes the listed entries into the catalogue, and empties the list. */
static int listed_write(struct listed *l, struct ps_error *err)
{
	int rc = l->n > 0 ? ps_catalogue_update(l->dir, l->entries, l->n, l->is_part, err) : 0;

	for (size_t i = 0; i < l->n; i++)
		free(l->entries[i].name);
	free(l->entries);
	free(l->dir);
	*l = (struct listed){.is_part = l->is_part};
	return rc;
}

/* Lists a shard; entries of another folder are written first. */
static int shard_list(
        struct listed *l, const char *shard, const struct ps_catalogue_entry *e, struct ps_error *err)
{
	const char *slash = strrchr(shard, '/');
	ps_autofree char *dir =
	        ps_need(strndup(shard, slash ? PS_MAX((size_t)(slash - shard), (size_t)1) : 0));
	int rc = 0;

	if (l->dir && strcmp(l->dir, dir) != 0)
		rc = listed_write(l, err);
	if (rc < 0)
		return rc;
	if (!l->dir)
		l->dir = ps_steal_ptr(&dir);
	l->entries = ps_need(reallocarray(l->entries, l->n + 1, sizeof(*l->entries)));
	l->entries[l->n] = *e;
	l->entries[l->n].name = ps_need(strdup(slash ? slash + 1 : shard));
	l->n++;
	return 0;
}

/* Makes the shard's index with a hash of the shard, and its entry for the catalogue. */
static int shard_publish(const struct index_options *o, struct listed *l, const char *shard,
        struct ps_shard_index_result *res, struct ps_error *err)
{
	struct ps_catalogue_entry e = {0};
	struct ps_shard_index *index;
	int rc = ps_digest_file(shard, e.sha256, err);

	if (rc == 0)
		rc = ps_shard_index_make(shard, NULL, o->columns.v, o->columns.n, e.sha256, res, err);
	if (rc == 0)
		rc = ps_shard_index_open(shard, NULL, &index, err);
	if (rc < 0)
		return rc;
	e.nbytes = ps_shard_index_binding(index)->nbytes;
	e.plain_nbytes = res->plain_nbytes;
	e.samples = res->samples;
	e.bad = res->bad;
	e.lines = ps_shard_index_is_of_lines(index);
	ps_shard_index_close(index);
	return shard_list(l, shard, &e, err);
}

/* Makes a shard's index unless it is up to date. False: the index could not be made, or the shard that was
 * read for it has bad samples. */
static bool shard_index(struct index_options *o, const char *shard)
{
	struct ps_error err = {0};
	struct ps_shard_index_result res = {0};
	int rc;

	if (is_up_to_date(o, shard, &res.samples, &res.bad)) {
		line_print(o, shard, res.samples, res.bad, false);
		return true;
	}
	rc = o->catalogue ? shard_publish(o, &o->listed, shard, &res, &err)
	                  : ps_shard_index_make(shard, o->dir, o->columns.v, o->columns.n, NULL, &res, &err);
	if (rc < 0)
		return ps_complain(
		        "%s%s", err.text, o->dir ? "" : "; use --dir to write the indexes to another folder");
	line_print(o, shard, res.samples, res.bad, true);
	if (res.bad > 0)
		ps_complain("%ju bad sample%s; %s%s", (uintmax_t)res.bad, ps_plural(res.bad),
		        res.bad == 1 ? "" : "the first: ", res.first_bad.text);
	return res.bad == 0;
}

static void options_fini(struct index_options *o)
{
	ps_columns_fini(&o->columns);
}

static const struct ps_flag flags[] = {
        {"dir", PS_FLAG_TEXT, offsetof(struct index_options, dir), "DIR",
                "write the indexes to this folder (created if needed); by default next to the shards"},
        {"column", PS_FLAG_COLUMN, offsetof(struct index_options, columns), "NAME=SUFFIX[:PATH]",
                "also store a value of each sample: its member .SUFFIX, or the value at PATH in its JSON"},
        {"catalogue", PS_FLAG_SET, offsetof(struct index_options, catalogue),
                .text = "for publishers: also hash each shard, and write SHARDS.psc next to the shards"},
        {"force", PS_FLAG_SET, offsetof(struct index_options, force),
                .text = "create indexes again even if they are up to date"},
        {"verify", PS_FLAG_SET, offsetof(struct index_options, verify),
                .text = "write nothing; read each shard completely and compare it with its index and "
                        "catalogue"},
        {"part", PS_FLAG_PART, offsetof(struct index_options, part), "K/N",
                "index only part K of N parts of the shards, so that jobs can share the work"},
        {"json", PS_FLAG_SET, offsetof(struct index_options, json),
                .text = "print one JSON object per shard: shard, samples, bad, written (or verified)"},
        {"dali", PS_FLAG_GONE, .text = "DALI's own wds2idx SHARD INDEX writes its indexes"},
        {"from-dali", PS_FLAG_GONE, .text = "without it, index reads the shards"},
};

int ps_cmd_index(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader index [OPTION...] SHARDS...\n\n"
	        "Writes an index for each shard, which records how many samples it holds and where they "
	        "are.\n"
	        "Loaders then know the length of an epoch and can read single samples. With --column the\n"
	        "index also holds values of the samples, for weights and filters.\n",
	        "Examples:\n"
	        "  penstock-loader index 'train-{000..127}.tar'\n"
	        "  penstock-loader index --dir ~/indexes /mnt/data/train-*.tar\n"
	        "  penstock-loader index --column label=cls --column h=json:height "
	        "train-*.tar\n"
	        "  penstock-loader index --catalogue --part 3/16 train-*.tar\n"
	        "  penstock-loader index --verify --dir ~/indexes /mnt/data/train-*.tar\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	__attribute__((cleanup(options_fini))) struct index_options o = {0};
	struct ps_error err = {0};
	bool sound = true;
	size_t first, end;
	int rc = ps_flags_read(&command, &o, argc, argv);

	if (rc >= 0)
		return rc;
	if ((o.verify && o.columns.n > 0) || ((o.verify || o.catalogue) && o.force))
		return ps_fail(PS_EXIT_USAGE, o.verify ? "--verify cannot be used with --column or --force"
		                                       : "--catalogue cannot be used with --force");
	if (o.catalogue && (o.dir || o.verify))
		return ps_fail(PS_EXIT_USAGE, "--catalogue writes next to the shards; leave out %s",
		        o.dir ? "--dir" : "--verify");
	o.listed.is_part = o.part.of > 0;
	rc = ps_shards_take(argc, argv, &shards);
	if (rc != PS_EXIT_OK)
		return rc;
	if (o.dir && !o.verify && ps_folder_make(o.dir, &err) < 0)
		return ps_fail(PS_EXIT_FAILED, "--dir %s", err.text);
	ps_part_of(&o.part, shards.n, &first, &end);
	for (size_t i = first; i < end && !ferror(stdout); i++)
		sound = (o.verify ? shard_verify(&o, shards.names[i]) : shard_index(&o, shards.names[i])) &&
		        sound;
	if (listed_write(&o.listed, &err) < 0) {
		ps_complain("%s", err.text);
		sound = false;
	}
	return sound ? PS_EXIT_OK : PS_EXIT_FAILED;
}
