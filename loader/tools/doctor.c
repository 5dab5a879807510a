/* penstock-loader doctor: finds what is wrong with shards, and repairs them without losing samples. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "shard/file/file.h"
#include "tools/doctor_find.h"
#include "tools/tools.h"

/* The text of each finding, and what --fix does about it. */
static const struct {
	const char *text;
	bool error; /* a loader fails or loses samples */
	enum {
		STAYS,    /* --fix keeps it as it is */
		REPAIRED, /* --fix repairs it */
		HINDERS,  /* --fix does not write the shard */
	} fix;
} kinds[PS_FOUND_NKINDS] = {
        [PS_FOUND_TRUNCATED] = {"damaged or truncated; --fix keeps the samples before the damage", true,
                REPAIRED},
        [PS_FOUND_NO_END] = {"a tar without an end mark; --fix keeps all members and writes the mark", true,
                REPAIRED},
        [PS_FOUND_NOT_TAR] = {"not a tar that can be read", true, HINDERS},
        [PS_FOUND_REFUSED] = {"samples that loaders refuse", true, HINDERS},
        [PS_FOUND_UNDECODABLE] = {"samples that do not decode; --fix keeps them as they are", true, STAYS},
        [PS_FOUND_SCATTERED] = {"samples whose members are not consecutive", true, REPAIRED},
        [PS_FOUND_DUPLICATE] = {"members that come twice, with the same bytes", true, REPAIRED},
        [PS_FOUND_CLASH] = {"members that come twice, with different bytes; remove the wrong one", true,
                HINDERS},
        [PS_FOUND_PROGRESSIVE] = {"progressive JPEGs, which decode three times slower than baseline ones",
                false, REPAIRED},
        [PS_FOUND_BLOAT] = {"headers that no loader uses", false, REPAIRED},
        [PS_FOUND_HARD_LINK] = {"hard links, which loaders read again from the earlier member; --fix writes "
                                "ordinary files",
                false, REPAIRED},
        [PS_FOUND_MISSING] = {"samples that lack a field that most samples have", false, STAYS},
        [PS_FOUND_NO_SAMPLE] = {"members that belong to no sample; they are left out of a repaired shard",
                false, REPAIRED},
};

struct doctor {
	const char *fix;
	bool decode, json, machine;
	bool unsound; /* a problem remains */
	struct geometry {
		uint64_t tars, of_one,
		        large; /* shards: all tars; those of at most one sample; above LARGE_NBYTES */
		char *first_large;
	} geometry;
	struct ps_tool_progress progress;
};

/* A shard is the unit in which lanes, ranks and a mount's cache take data, and its samples are neighbours in the
 * order. docs/guides/sizing.md has the figures. */
#define LARGE_NBYTES (UINT64_C(8) << 30)

/* A shard that --fix has written. */
struct fixed {
	char *path; /* NULL: none */
	uint64_t samples;
};

/* Reports ------------------------------------------------------------------------------------------------ */

static void report_json(const char *shard, const struct ps_chart *c, const struct fixed *fixed)
{
	bool first = true;

	ps_json_shard(shard);
	printf(", \"samples\": %ju, \"findings\": [", (uintmax_t)(fixed->path ? fixed->samples : c->samples));
	for (int k = 0; k < PS_FOUND_NKINDS; k++) {
		const struct ps_finding *f = &c->findings[k];

		if (f->count == 0)
			continue;
		printf("%s{\"kind\": \"%s\", \"count\": %ju, \"error\": %s, \"first\": ", first ? "" : ", ",
		        ps_finding_names[k], (uintmax_t)f->count, kinds[k].error ? "true" : "false");
		ps_json_print(stdout, f->first ? f->first : "");
		printf("}");
		first = false;
	}
	printf("], \"fixed\": ");
	if (fixed->path)
		ps_json_print(stdout, fixed->path);
	else
		printf("null");
	printf("}\n");
}

static void report_plain(const char *shard, const struct ps_chart *c, const struct fixed *fixed)
{
	uint64_t samples = fixed->path ? fixed->samples : c->samples;
	bool sound = true;

	for (int k = 0; k < PS_FOUND_NKINDS; k++) {
		const struct ps_finding *f = &c->findings[k];

		if (f->count == 0)
			continue;
		sound = false;
		ps_plain_print(stdout, shard);
		printf(": %s: %s (%ju): %s; first: ", kinds[k].error ? "error" : "hint", ps_finding_names[k],
		        (uintmax_t)f->count, kinds[k].text);
		ps_plain_print(stdout, f->first ? f->first : "?");
		printf("\n");
	}
	if (sound || fixed->path) {
		ps_plain_print(stdout, shard);
		printf(": %ju sample%s%s%s", (uintmax_t)samples, ps_plural(samples), sound ? ", sound" : "",
		        fixed->path ? ", written to " : "");
		if (fixed->path)
			ps_plain_print(stdout, fixed->path);
		printf("\n");
	}
}

/* Repairs ------------------------------------------------------------------------------------------------ */

/* Opens a descriptor from which the tar's bytes can be read at any offset: of the shard itself, or of a
 * decompressed copy in `dir`, which has no name. */
static int tar_open(const char *shard, const char *dir, struct ps_error *err)
{
	static const struct ps_stream_options options = {.buf_nbytes = 1UL << 20, .wake_fd = -1};
	struct ps_stream *stream;
	const uint8_t *p;
	size_t n;
	int fd = -1, r = ps_stream_open(shard, &options, &stream, err);

	if (r < 0)
		return r;
	r = ps_stream_inflate(&stream, err);
	if (r == 0 && ps_stream_fd(stream) >= 0) {
		fd = fcntl(ps_stream_fd(stream), F_DUPFD_CLOEXEC, 0);
	} else if (r == 0) {
		fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		while (fd >= 0 && (r = ps_stream_peek_some(stream, &p, &n, err)) == 0 && n > 0) {
			r = ps_write_all(fd, p, n);
			if (r < 0) {
				r = ps_error_set(err, -r, "%s: cannot write a decompressed copy: %s", dir,
				        strerror(-r));
				break;
			}
			ps_stream_take(stream, n);
		}
		if (r == -EBADMSG)
			/* the shard is cut off: the copy has the bytes before the cut, and the chart lists no
			 * members after it */
			r = 0;
	}
	if (r == 0 && fd < 0)
		r = ps_error_set(err, errno, "%s: cannot read it again: %s", shard, strerror(errno));
	ps_stream_free(stream);
	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

static int bytes_read(int fd, const struct ps_chart_member *m, uint8_t **buf, struct ps_error *err)
{
	ssize_t n;

	*buf = ps_need(realloc(*buf, m->size ? m->size : 1));
	n = ps_pread_all(fd, *buf, m->size, m->offset);
	if (n == (ssize_t)m->size)
		return 0;
	return ps_error_set(err, n < 0 ? (int)-n : EIO, "%s: cannot be read again: it changed", m->name);
}

static int member_write(
        const struct ps_chart_member *m, const uint8_t *data, struct ps_tar_out *out, struct ps_error *err)
{
	ps_autofree uint8_t *baseline = NULL;
	size_t n = m->size;
	int rc;

	if (m->progressive)
		ps_jpeg_to_baseline(data, m->size, &baseline, &n);
	rc = ps_tar_out_member(out, m->name, m->name_len, n, err);
	return rc < 0 ? rc : ps_tar_out_data(out, baseline ? baseline : data, n, err);
}

/* Checks that a member to be left out as a duplicate has the same bytes as the one that is kept. Otherwise
 * the repair stops. */
static int duplicate_check(
        int fd, const struct ps_chart *c, size_t at, const uint8_t *data, struct ps_error *err)
{
	const struct ps_chart_member *m = &c->members[at];
	ps_autofree uint8_t *other = NULL;

	for (size_t i = at; i-- > 0;) {
		const struct ps_chart_member *kept = &c->members[i];

		if (kept->drop || !ps_chart_same(kept, m))
			continue;
		int rc = bytes_read(fd, kept, &other, err);
		if (rc == 0 && memcmp(other, data, m->size) != 0)
			rc = ps_error_set(err, EBADMSG,
			        "%s comes twice, with different bytes; remove the wrong one", m->name);
		return rc;
	}
	return 0; /* no such member is kept: m belongs to the sample that was cut off */
}

static int members_write(
        int fd, const struct ps_chart *c, struct ps_tar_out *out, struct doctor *d, struct ps_error *err)
{
	ps_autofree uint8_t *buf = NULL;

	for (size_t i = 0; i < c->n; i++) {
		const struct ps_chart_member *m = &c->members[i];

		if (m->key_len == 0)
			continue;
		int rc = bytes_read(fd, m, &buf, err);
		if (rc == 0)
			rc = m->drop ? duplicate_check(fd, c, i, buf, err) : member_write(m, buf, out, err);
		if (rc < 0)
			return rc;
		ps_tool_progress_add(&d->progress, 0, m->size);
	}
	return 0;
}

/* Writes the repaired shard into the directory, and reads it as a loader does; a shard that fails this is
 * removed. */
static int shard_fix(struct doctor *d, const char *shard, const struct ps_chart *c, struct fixed *ret_fixed,
        struct ps_error *err)
{
	const char *slash = strrchr(shard, '/'), *base = slash ? slash + 1 : shard;
	size_t len = strlen(base);
	bool zst = len > 4 && strcmp(base + len - 4, ".zst") == 0;
	ps_autofree char *path = NULL;
	struct stat a, b;

	for (int i = 0; i < 2 && !zst; i++) {
		static const char *const other[] = {".gz", ".lz4"};

		if (len > strlen(other[i]) && strcmp(base + len - strlen(other[i]), other[i]) == 0)
			len -= strlen(other[i]); /* written uncompressed: only zstd is supported */
	}
	path = ps_text("%s/%.*s", d->fix, (int)len, base);
	if (stat(shard, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		return ps_error_set(err, EINVAL,
		        "%s: --fix would write over the shard itself: name another folder", shard);
	ps_autofd int fd = tar_open(shard, d->fix, err);
	if (fd < 0)
		return fd;
	struct ps_tar_out *out;
	int rc = ps_tar_out_open(path, zst ? 3 : 0, &out, err);
	if (rc < 0)
		return rc;
	rc = members_write(fd, c, out, d, err);
	if (rc == 0)
		rc = ps_tar_out_finish(out, NULL, err);
	if (rc < 0) {
		ps_tar_out_abort(out);
		return rc;
	}
	rc = ps_chart_samples(path, &ret_fixed->samples, err);
	if (rc < 0)
		unlink(path);
	else
		ret_fixed->path = ps_steal_ptr(&path);
	return rc;
}

/* Geometry ----------------------------------------------------------------------------------------------- */

static void geometry_note(struct geometry *g, const char *shard, const struct ps_chart *c)
{
	struct stat st;

	g->tars += c->is_tar;
	g->of_one += c->is_tar && c->samples <= 1;
	if (stat(shard, &st) < 0 || (uint64_t)st.st_size <= LARGE_NBYTES)
		return;
	g->large++;
	if (!g->first_large)
		g->first_large = ps_text("%s", shard);
}

/* Hints about the shards together; they go to stderr, as JSON has an object for each shard. */
static void geometry_report(const struct geometry *g)
{
	if (g->tars > 1 && g->of_one > g->tars / 2)
		ps_complain("hint: %ju of %ju shards hold at most one sample, and each shard costs an open "
		            "and, from "
		            "far away, a round trip; pack --repack writes larger ones",
		        (uintmax_t)g->of_one, (uintmax_t)g->tars);
	if (g->large > 0)
		ps_complain("hint: %ju shard%s more than %d GiB, the first is %s; few shards mean a weak "
		            "shuffle and "
		            "uneven ranks; pack --repack writes smaller ones",
		        (uintmax_t)g->large, g->large == 1 ? " has" : "s have", (int)(LARGE_NBYTES >> 30),
		        g->first_large);
}

/* The command -------------------------------------------------------------------------------------------- */

/* The reason why --fix cannot write the shard; NULL: none. */
static const char *hindrance(const struct ps_chart *c)
{
	if (!c->is_tar)
		return "a shard of lines";
	for (int k = 0; k < PS_FOUND_NKINDS; k++)
		if (c->findings[k].count > 0 && kinds[k].fix == HINDERS)
			return ps_finding_names[k];
	return NULL;
}

static void shard_see(struct doctor *d, const char *shard)
{
	__attribute__((cleanup(ps_chart_fini))) struct ps_chart chart = {0};
	struct fixed fixed = {0};
	struct ps_error err = {0};
	const char *hinders = NULL;
	int rc = ps_chart_make(shard, &chart, &d->progress, &err);

	if (rc == 0)
		geometry_note(&d->geometry, shard, &chart);
	if (rc == 0 && d->decode)
		rc = ps_chart_decode(shard, &chart, &d->progress, &err);
	if (rc == 0 && d->fix && !(hinders = hindrance(&chart)))
		rc = shard_fix(d, shard, &chart, &fixed, &err);
	ps_tool_progress_wipe(&d->progress);
	if (rc < 0) {
		ps_complain("%s", err.text);
		d->unsound = true;
	} else if (d->json) {
		report_json(shard, &chart, &fixed);
	} else {
		report_plain(shard, &chart, &fixed);
	}
	if (hinders) {
		ps_complain("%s: --fix did not write it: %s", shard, hinders);
		d->unsound = true;
	}
	for (int k = 0; k < PS_FOUND_NKINDS; k++)
		if (chart.findings[k].count > 0 && kinds[k].error &&
		        !(fixed.path && kinds[k].fix == REPAIRED))
			d->unsound = true;
	free(fixed.path);
	ps_tool_progress_add(&d->progress, 1, 0);
}

static const struct ps_flag flags[] = {
        {"decode", PS_FLAG_SET, offsetof(struct doctor, decode),
                .text = "also decode images, .cls, .json, .npy and .txt, on all processors"},
        {"fix", PS_FLAG_TEXT, offsetof(struct doctor, fix), "DIR",
                "write all shards into DIR under their own names, repaired where necessary"},
        {"json", PS_FLAG_SET, offsetof(struct doctor, json), .text = "print one JSON object per shard"},
        {"machine", PS_FLAG_SET, offsetof(struct doctor, machine),
                .text = "check this machine and the disk of FOLDER [.], and print remedies"},
};

int ps_cmd_doctor(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader doctor [OPTION...] SHARDS...|--machine [FOLDER]\n\n"
	        "Reads shards as a loader does, and reports damage and what slows loaders down.\n"
	        "With --fix it writes repaired shards: the same samples with the same bytes, except that\n"
	        "progressive JPEGs become baseline JPEGs with the same pixels.\n"
	        "The exit status is 1 if something is wrong and was not repaired.\n",
	        "Examples:\n"
	        "  penstock-loader doctor 'train-{000..127}.tar'\n"
	        "  penstock-loader doctor --decode --json train-*.tar\n"
	        "  penstock-loader doctor --fix sound/ train-*.tar\n"
	        "  penstock-loader doctor --machine /tmp\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(ps_shard_list_fini))) struct ps_shard_list shards = {0};
	struct doctor d = {0};
	struct ps_error err = {0};
	int rc = ps_flags_read(&command, &d, argc, argv);

	if (rc >= 0)
		return rc;
	if (d.machine && (d.fix || d.decode || argc - optind > 1))
		return ps_fail(PS_EXIT_USAGE, "--machine accepts only --json and one folder");
	if (d.machine)
		return ps_doctor_machine(optind < argc ? argv[optind] : ".", d.json);
	rc = ps_shards_take(argc, argv, &shards);
	if (rc != PS_EXIT_OK)
		return rc;
	if (d.fix && ps_folder_make(d.fix, &err) < 0)
		return ps_fail(PS_EXIT_FAILED, "--fix %s", err.text);
	ps_tool_progress_begin(&d.progress, "doctor", "shards", shards.n);
	for (size_t i = 0; i < shards.n && !ferror(stdout); i++)
		shard_see(&d, shards.names[i]);
	ps_tool_progress_end(&d.progress);
	geometry_report(&d.geometry);
	free(d.geometry.first_large);
	return d.unsound ? PS_EXIT_FAILED : PS_EXIT_OK;
}
