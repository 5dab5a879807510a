/* penstock-loader pack: files into shards. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpus.h"
#include "base/io.h"
#include "base/process.h"
#include "image/image.h"
#include "shard/file/file.h"
#include "shard/shard.h"
#include "tools/pack.h"
#include "tools/pack_list.h"

#define MAX_THREADS 256
#define BUF_NBYTES (1UL << 20)

/* A shard to be written: samples [first, first + n) of the list. */
struct job {
	size_t first, n;
};

struct pack {
	const struct ps_pack_options *o;
	const struct ps_pack_list *list;
	struct job *jobs;
	size_t njobs;
	size_t first, end; /* the range of jobs that this process writes */
	/* one for each shard, with --index; written by the shard's thread alone */
	struct ps_catalogue_entry *entries;
	atomic_size_t next;
	atomic_bool failed;
	atomic_size_t images, turned; /* written so far; those that EXIF data rotates */
	struct ps_tool_progress progress;
	pthread_mutex_t lock; /* guards the output and `nbytes` */
	uint64_t nbytes;
};

/* Distributes the samples to shards. That depends on the list and the limits alone, not on threads. */
static void jobs_plan(struct pack *p)
{
	uint64_t nbytes = 0;

	p->jobs = ps_need(calloc(p->list->nsamples, sizeof(*p->jobs)));
	for (size_t i = 0; i < p->list->nsamples; i++) {
		const struct ps_pack_sample *s = &p->list->samples[i];
		struct job *job = p->njobs ? &p->jobs[p->njobs - 1] : NULL;
		uint64_t n = 0;

		for (size_t k = s->first; k < s->first + s->n; k++) {
			const struct ps_pack_file *f = &p->list->files[k];

			n += ps_tar_out_member_nbytes(f->name_len, f->name, f->size);
		}
		if (!job || nbytes + n > p->o->max_size || job->n == p->o->max_count) {
			job = &p->jobs[p->njobs++];
			job->first = i;
			nbytes = 0;
		}
		job->n++;
		nbytes += n;
	}
	p->entries = ps_need(calloc(p->njobs, sizeof(*p->entries)));
}

/* Reads the whole file, which may be empty; NULL with err. */
static uint8_t *file_read(const struct ps_pack_file *f, struct ps_error *err)
{
	ps_autofd int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	ps_autofree uint8_t *bytes = NULL;
	ssize_t n;

	if (fd < 0) {
		ps_error_set(err, errno, "%s: %s", f->path, strerror(errno));
		return NULL;
	}
	bytes = ps_need(malloc((size_t)f->size + 1));
	n = ps_pread_all(
	        fd, bytes, (size_t)f->size + 1, 0); /* one byte more, to detect a file that has grown */
	if (n >= 0 && (uint64_t)n == f->size)
		return ps_steal_ptr(&bytes);
	if (n < 0)
		ps_error_set(err, (int)-n, "%s: cannot read: %s", f->path, strerror((int)-n));
	else
		ps_error_set(err, EIO, "%s: it changed while it was packed", f->path);
	return NULL;
}

/* Counts a file by its beginning, if it is an image. */
static void image_count(struct pack *p, const void *data, size_t nbytes)
{
	uint32_t orientation = ps_image_orientation(data, nbytes);

	atomic_fetch_add(&p->images, orientation > 0);
	atomic_fetch_add(&p->turned, orientation > 1);
}

/* Writes an image, resized or converted to another format if need be. */
static int image_copy(
        struct pack *p, struct ps_tar_out *out, const struct ps_pack_file *f, struct ps_error *err)
{
	ps_autofree uint8_t *bytes = file_read(f, err), *made = NULL;
	size_t nbytes = 0;
	int rc;

	if (!bytes)
		return -err->err;
	rc = ps_recode_image(&p->o->recode, bytes, (size_t)f->size, &made, &nbytes, err);
	if (rc < 0)
		return ps_error_prefix(err, rc, "%s", f->path);
	if (rc == 0)
		nbytes = (size_t)f->size;
	image_count(p, made ? made : bytes, nbytes);
	rc = ps_tar_out_member(out, f->name, f->name_len, nbytes, err);
	if (rc == 0)
		rc = ps_tar_out_data(out, made ? made : bytes, nbytes, err);
	ps_tool_progress_add(&p->progress, 0, f->size);
	return rc;
}

/* Gives images the suffixes of their new format. */
static void images_rename(const struct ps_recode *o, struct ps_pack_list *l)
{
	for (size_t i = 0; i < l->nfiles && o->to != PS_RECODE_SAME; i++) {
		struct ps_pack_file *f = &l->files[i];
		char *name;

		if (!f->path || !ps_recode_wants(o, f->name, f->name_len))
			continue;
		name = ps_recode_name(o, f->name, f->name_len);
		free(f->name);
		f->name = name;
		f->name_len = strlen(name);
	}
}

static int file_copy(struct pack *p, struct ps_tar_out *out, const struct ps_pack_file *f, uint8_t *buf,
        struct ps_error *err)
{
	int rc;

	if (f->path && ps_recode_acts(&p->o->recode) && ps_recode_wants(&p->o->recode, f->name, f->name_len))
		return image_copy(p, out, f, err);
	rc = ps_tar_out_member(out, f->name, f->name_len, f->size, err);
	if (rc < 0 || !f->path)
		return rc < 0 ? rc : ps_tar_out_data(out, f->text, f->size, err);
	ps_autofd int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(err, errno, "%s: %s", f->path, strerror(errno));
	for (uint64_t left = f->size;;) {
		/* One byte more than is left, to detect a file that has grown. */
		ssize_t n = read(fd, buf, (size_t)PS_MIN(left + 1, (uint64_t)BUF_NBYTES));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ps_error_set(err, errno, "%s: cannot read: %s", f->path, strerror(errno));
		if (n == 0 && left == 0)
			return 0;
		if (n == 0 || (uint64_t)n > left)
			return ps_error_set(err, EIO, "%s: it changed while it was packed", f->path);
		if (left == f->size)
			image_count(p, buf, (size_t)n);
		rc = ps_tar_out_data(out, buf, (size_t)n, err);
		if (rc < 0)
			return rc;
		left -= (uint64_t)n;
		ps_tool_progress_add(&p->progress, 0, (uint64_t)n);
	}
}

static void bytes_digest(void *ctx, const void *p, size_t n)
{
	ps_digest_add(ctx, p, n);
}

/* Writes the samples of a job into a shard. `digest`: NULL if no hash is wanted. */
static int samples_write(struct pack *p, const struct job *job, const char *name, struct ps_digest *digest,
        uint64_t *ret_nbytes, struct ps_error *err)
{
	ps_autofree uint8_t *buf = ps_need(malloc(BUF_NBYTES));
	struct ps_tar_out *out;
	int rc = ps_tar_out_open(name, p->o->level, &out, err);

	if (rc < 0)
		return rc;
	if (digest)
		ps_tar_out_watch(out, bytes_digest, digest);
	for (size_t s = job->first; s < job->first + job->n && rc == 0; s++) {
		const struct ps_pack_sample *sample = &p->list->samples[s];

		for (size_t i = sample->first; i < sample->first + sample->n && rc == 0; i++)
			rc = atomic_load(&p->failed) ? ps_error_set(err, ECANCELED, "stopped")
			                             : file_copy(p, out, &p->list->files[i], buf, err);
	}
	if (rc == 0)
		rc = ps_tar_out_finish(out, ret_nbytes, err);
	if (rc < 0)
		ps_tar_out_abort(out);
	return rc;
}

/* Writes a shard, and with --index its index and its entry for the catalogue. */
static int shard_write(
        struct pack *p, size_t number, const char *name, uint64_t *ret_nbytes, struct ps_error *err)
{
	const char *slash = strrchr(name, '/');
	struct ps_catalogue_entry *e;
	struct ps_shard_index_result res;
	struct ps_digest *digest;
	int rc;

	if (!p->o->index)
		return samples_write(p, &p->jobs[number], name, NULL, ret_nbytes, err);
	e = &p->entries[number];
	digest = ps_digest_new();
	rc = samples_write(p, &p->jobs[number], name, digest, ret_nbytes, err);
	if (rc == 0)
		ps_digest_finish(digest, e->sha256);
	ps_digest_free(digest);
	if (rc == 0)
		rc = ps_shard_index_make(name, NULL, p->o->columns.v, p->o->columns.n, e->sha256, &res, err);
	if (rc < 0)
		return rc;
	e->name = ps_need(strdup(slash ? slash + 1 : name));
	e->nbytes = *ret_nbytes;
	e->plain_nbytes = res.plain_nbytes;
	e->samples = res.samples;
	e->bad = res.bad;
	return 0;
}

static void shard_report(struct pack *p, const char *name, const struct job *job, uint64_t nbytes)
{
	PS_LOCK_SCOPE(&p->lock);
	p->nbytes += nbytes;
	if (!p->o->json)
		return;
	ps_json_shard(name);
	printf(", \"samples\": %zu, \"bytes\": %ju}\n", job->n, (uintmax_t)nbytes);
}

static void *worker(void *arg)
{
	struct pack *p = arg;
	size_t i;

	while (!atomic_load(&p->failed) && (i = atomic_fetch_add(&p->next, 1)) < p->end) {
		struct ps_error err = {0};
		uint64_t nbytes = 0;
		ps_autofree char *name = ps_out_name(p->o->out, i);
		int rc = shard_write(p, i, name, &nbytes, &err);

		if (rc < 0) {
			if (!atomic_exchange(&p->failed, true))
				ps_complain("%s", err.text);
			break;
		}
		shard_report(p, name, &p->jobs[i], nbytes);
		ps_tool_progress_add(&p->progress, 1, 0);
	}
	return NULL;
}

/* True if all shards were written. */
static bool shards_write(struct pack *p)
{
	uint64_t n = p->o->threads ? p->o->threads : ps_cpus_usable();
	pthread_t threads[MAX_THREADS];
	uint64_t started = 0;

	n = PS_MIN(PS_MIN(n, (uint64_t)(p->end - p->first)), (uint64_t)MAX_THREADS);
	for (; started + 1 < n; started++)
		if (pthread_create(&threads[started], NULL, worker, p) != 0)
			break;
	worker(p);
	for (uint64_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return !atomic_load(&p->failed);
}

/* Writes the classes' names beside the shards, in the order of their numbers. */
static bool classes_write(const struct ps_pack_options *o, const struct ps_pack_list *l)
{
	const char *slash = strrchr(o->out, '/');
	ps_autofree char *path = ps_text("%.*sCLASSES.txt", slash ? (int)(slash - o->out + 1) : 0, o->out);
	bool sound = true;

	FILE *f = fopen(path, "we");
	for (size_t i = 0; f && i < l->nclasses; i++)
		fprintf(f, "%s\n", l->classes[i]);
	if (f)
		sound = !ferror(f);
	if (!f || fclose(f) != 0 || !sound)
		return ps_complain("%s: cannot write: %s", path, strerror(errno));
	return true;
}

/* Writes the catalogue into the folder of the shards. */
static bool catalogue_write(struct pack *p)
{
	const char *slash = strrchr(p->o->out, '/');
	ps_autofree char *dir =
	        ps_need(strndup(p->o->out, slash ? (size_t)(slash - p->o->out) + (slash == p->o->out) : 0));
	struct ps_error err = {0};
	int rc = ps_catalogue_update(dir, p->entries + p->first, p->end - p->first, p->o->part.of > 0, &err);

	if (rc < 0)
		ps_complain("%s", err.text);
	return rc == 0;
}

static void pack_fini(struct pack *p)
{
	for (size_t i = 0; p->entries && i < p->njobs; i++)
		free(p->entries[i].name);
	free(p->entries);
	free(p->jobs);
	pthread_mutex_destroy(&p->lock);
}

/* Lists the files that --classes left out, and what no loader would decode. */
static void others_report(const struct ps_pack_list *l)
{
	if (l->foreign > 0)
		ps_complain("%s %ju image%s that the loader cannot decode, such as %s; convert %s to JPEG, "
		            "PNG or WebP "
		            "first (mogrify -format jpg of ImageMagick; for HEIC, heif-convert of libheif)%s",
		        l->foreign_packed ? "packed" : "left out", (uintmax_t)l->foreign,
		        ps_plural(l->foreign), l->foreign_first, l->foreign == 1 ? "it" : "them",
		        l->foreign_packed ? ", or read them in Python by decode=" : "");
	if (l->ignored == 0 || !l->shown[0])
		return;
	ps_complain("left out %ju file%s that %s not of an image:", (uintmax_t)l->ignored,
	        ps_plural(l->ignored), l->ignored == 1 ? "is" : "are");
	for (size_t i = 0; i < PS_ARRAY_LEN(l->shown) && l->shown[i]; i++)
		ps_complain("  %s", l->shown[i]);
	if (l->ignored > PS_ARRAY_LEN(l->shown))
		ps_complain("  and %ju more", (uintmax_t)(l->ignored - PS_ARRAY_LEN(l->shown)));
}

static int pack_run(const struct ps_pack_options *o, struct ps_pack_list *l)
{
	__attribute__((cleanup(pack_fini))) struct pack p = {
	        .o = o, .list = l, .lock = PTHREAD_MUTEX_INITIALIZER};
	struct ps_error err = {0};
	size_t nsamples = 0;
	int rc = o->source[0] == '@' ? ps_pack_text(l, o->source + 1, &err)
	                             : ps_pack_folder(l, o->source, o->classes, &err);

	if (rc == 0) {
		images_rename(&o->recode, l);
		rc = ps_pack_group(l, &err);
	}
	if (rc < 0)
		return ps_fail(PS_EXIT_FAILED, "%s", err.text);
	if (o->shuffle)
		ps_pack_shuffle(l, o->seed);
	jobs_plan(&p);
	ps_part_of(&o->part, p.njobs, &p.first, &p.end);
	atomic_init(&p.next, p.first);
	for (size_t i = p.first; i < p.end; i++) {
		nsamples += p.jobs[i].n;
		ps_autofree char *name = ps_out_name(o->out, i);

		if (ps_out_prepare(name, o->force, &err) < 0)
			return ps_fail(PS_EXIT_FAILED, "%s", err.text);
	}
	if (l->ignored > 0 && !o->classes)
		ps_complain(
		        "left out %ju file%s without a suffix", (uintmax_t)l->ignored, ps_plural(l->ignored));
	ps_tool_progress_begin(&p.progress, "pack", "shards", p.end - p.first);
	bool sound = shards_write(&p);
	ps_tool_progress_end(&p.progress);
	if (sound && o->classes && o->part.number <= 1)
		sound = classes_write(o, l);
	if (sound && o->index)
		sound = catalogue_write(&p);
	if (!sound)
		return PS_EXIT_FAILED;
	others_report(l);
	ps_turned_report(p.turned, p.images);
	if (o->json)
		printf("{\"shards\": %zu, \"samples\": %zu, \"bytes\": %ju}\n", p.end - p.first, nsamples,
		        (uintmax_t)p.nbytes);
	else
		printf("%zu sample%s in %zu shard%s, %ju bytes\n", nsamples, ps_plural(nsamples),
		        p.end - p.first, ps_plural(p.end - p.first), (uintmax_t)p.nbytes);
	return PS_EXIT_OK;
}

/* Packs rows of Parquet files: replaces this process by Python, which reads the rows and writes the shards
 * through the library (loader/shard_writer.c). Returns only on failure, with an exit code. */
static int parquet_exec(const struct ps_pack_options *o, int n, char **words)
{
	static const char code[] = "import sys\n"
	                           "try:\n"
	                           "    from penstock.parquet import main\n"
	                           "except ImportError as e:\n"
	                           "    sys.exit('penstock-loader pack: --from needs the Python package "
	                           "penstock, which %s does not '\n"
	                           "             'have (%s): install its wheel there, or name another Python "
	                           "by PENSTOCK_PYTHON'\n"
	                           "             % (sys.executable, e))\n"
	                           "sys.exit(main())\n";
	const char *python = getenv("PENSTOCK_PYTHON") ?: "python3";
	char size[24], count[24], level[24];
	const char *fixed[] = {python, "-c", code, "--from", o->from, "--max-size", size, "--max-count",
	        count, o->index ? "--index" : NULL, o->force ? "--force" : NULL, o->json ? "--json" : NULL,
	        o->level ? "--zstd" : NULL, o->level ? level : NULL, "--"};
	const char **all = ps_need(calloc(PS_ARRAY_LEN(fixed) + (size_t)n + 1, sizeof(*all)));
	size_t at = 0;

	snprintf(size, sizeof(size), "%ju", (uintmax_t)o->max_size);
	snprintf(count, sizeof(count), "%ju", (uintmax_t)o->max_count);
	snprintf(level, sizeof(level), "%d", o->level);
	for (size_t i = 0; i < PS_ARRAY_LEN(fixed); i++)
		if (fixed[i])
			all[at++] = fixed[i];
	for (int i = 0; i < n; i++)
		all[at++] = words[i];
	ps_process_give_back();
	execvp(python, (char **)all);
	ps_complain("--from needs Python: %s: %s", python, strerror(errno));
	free(all);
	return PS_EXIT_FAILED;
}

static bool shuffle_take(void *ctx, char *value)
{
	struct ps_pack_options *o = ctx;

	o->shuffle = true;
	return ps_arg_u64("--shuffle", value, 0, UINT64_MAX, &o->seed);
}

static bool format_take(void *ctx, char *value)
{
	static const char *const formats[] = {"jpeg", "webp"}; /* as enum ps_recode_format, from 1 on */
	struct ps_pack_options *o = ctx;
	uint32_t format;

	if (!ps_arg_choice("--to", value, formats, 2, &format))
		return false;
	o->recode.to = (enum ps_recode_format)(format + 1);
	return true;
}

#define AT(member) offsetof(struct ps_pack_options, member)

static void options_fini(struct ps_pack_options *o)
{
	ps_columns_fini(&o->columns);
}

static const struct ps_flag flags[] = {
        {"classes", PS_FLAG_SET, AT(classes),
                .text = "each folder in SOURCE is a class, and each image in it a sample with the class "
                        "number "
                        "as .cls; writes CLASSES.txt"},
        {"from", PS_FLAG_TEXT, AT(from), "FILE",
                "pack the rows of Parquet files: FILE, a folder or a pattern; COLUMN[=SUFFIX]... OUT follow"},
        {"repack", PS_FLAG_SET, AT(repack), .text = "pack the samples of other shards: SHARDS... OUT follow"},
        {"parts", PS_FLAG_U64, AT(parts), "N",
                "with --repack: distribute the samples in turn over N shards, whatever their size", 1,
                PS_REPACK_MAX_PARTS},
        {"shares", PS_FLAG_TEXT, AT(shares), "NAME=SHARE,...",
                "with --repack: write several sets, such as train=0.95,val=0.05, by a hash of the key; "
                "OUT contains {}"},
        {"key", PS_FLAG_TEXT, AT(key), "KEY", "with --repack: only the samples with this key"},
        {"field", PS_FLAG_TEXT, AT(field), "SUFFIX",
                "with --repack: the bytes of this field of all samples, one after the other; OUT is -"},
        {"lines", PS_FLAG_SET, AT(lines), .text = "with --field: end each with a newline, unless it has one"},
        {"max-size", PS_FLAG_BYTES, AT(max_size), "SIZE",
                "maximum size of a shard before compression, such as 256M [1G]"},
        {"max-count", PS_FLAG_U64, AT(max_count), "N", "maximum number of samples in a shard [no limit]", 1,
                UINT64_MAX},
        {"shuffle", PS_FLAG_CALL, 0, "SEED", "shuffle the samples, with the same result for each SEED",
                .take = shuffle_take},
        {"zstd", PS_FLAG_U32, AT(level), "LEVEL", "compression level, 1 to 19 [3 if OUT ends in .zst]", 1,
                PS_TAR_OUT_MAX_LEVEL},
        {"index", PS_FLAG_SET, AT(index),
                .text = "write the index of each shard next to it, and a catalogue of all shards, "
                        "SHARDS.psc"},
        {"column", PS_FLAG_COLUMN, AT(columns), "NAME=SUFFIX[:PATH]",
                "with --index: also store a value of each sample in the index"},
        {"resize", PS_FLAG_U32, AT(recode.resize), "N",
                "shrink images whose shorter side is longer than N pixels to N", 1, PS_IMAGE_SIDE_MAX},
        {"to", PS_FLAG_CALL, 0, "jpeg|webp",
                "convert images and change their suffix (PNG only with --images)", .take = format_take},
        {"quality", PS_FLAG_U32, AT(recode.quality), "N",
                "quality of the images that are written, 1 to 100 [90]", 1, 100},
        {"images", PS_FLAG_TEXT, AT(recode.images), "SUFFIXES",
                "suffixes of the members that are images [jpg;jpeg;webp]"},
        {"threads", PS_FLAG_U64, AT(threads), "N",
                "shards that are written at the same time [one per processor]", 1, MAX_THREADS},
        {"part", PS_FLAG_PART, AT(part), "K/N",
                "write only part K of N parts of the shards, so that jobs can share the work"},
        {"force", PS_FLAG_SET, AT(force), .text = "overwrite existing shards"},
        {"json", PS_FLAG_SET, AT(json), .text = "print one JSON object per shard, and one for all"},
};

int ps_cmd_pack(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader pack [OPTION...] SOURCE OUT\n"
	        "       penstock-loader pack --from FILE [OPTION...] COLUMN[=SUFFIX]... OUT\n"
	        "       penstock-loader pack --repack [OPTION...] SHARDS... OUT\n\n"
	        "Writes files into shards. SOURCE is a folder, in which files whose paths agree up to the "
	        "first "
	        "dot of\nthe name are one sample, or @LIST (@-: standard input), with one file per line:\n"
	        "PATH[<tab>KEY[<tab>LABEL]]. OUT is the name of the shards: train-%06d.tar, or .tar.zst for\n"
	        "compressed shards. The same files always produce the same bytes.\n\n"
	        "With --repack, pack writes the samples of existing shards, in their order, into shards of "
	        "other\n"
	        "sizes or into several sets. With - as OUT it writes to standard output: one tar, or with "
	        "--field\n"
	        "the bytes of a field.\n",
	        "Examples:\n"
	        "  penstock-loader pack --max-size 256M photos/ 'out/photos-%06d.tar'\n"
	        "  penstock-loader pack --classes --shuffle 1 --index imagenet/train/ 'train-%06d.tar'\n"
	        "  penstock-loader pack --resize 256 --to webp photos/ 'small-%06d.tar'\n"
	        "  penstock-loader pack --from 'data/*.parquet' image.bytes label 'train-%06d.tar'\n"
	        "  find . -name '*.flac' | penstock-loader pack @- 'audio-%05d.tar.zst'\n"
	        "  penstock-loader pack --repack --max-size 256M big.tar 'small-%04d.tar'\n"
	        "  penstock-loader pack --repack --shares train=0.95,val=0.05 all-*.tar '{}-%05d.tar'\n"
	        "  penstock-loader pack --repack 'train-{000..003}.tar' - > small.tar\n"
	        "  penstock-loader pack --repack --field json --lines train-*.tar - | jq .caption\n",
	        flags, PS_ARRAY_LEN(flags), 0};
	__attribute__((cleanup(options_fini))) struct ps_pack_options o = {.max_size = PS_PACK_MAX_SIZE,
	        .max_count = UINT64_MAX,
	        .recode = {.quality = 90, .images = "jpg;jpeg;webp"}};
	__attribute__((cleanup(ps_pack_fini))) struct ps_pack_list list = {0};
	int rc = ps_flags_read(&command, &o, argc, argv);

	if (rc >= 0)
		return rc;
	if (o.from || o.repack ? argc - optind < 2 : argc - optind != 2)
		return ps_fail(PS_EXIT_USAGE,
		        o.from ? "--from needs columns and a name for the shards, as --from x.parquet "
		                 "image.bytes label 'train-%%06d.tar'"
		        : o.repack
		                ? "needs shards and a name for the new ones (see penstock-loader pack --help)"
		                : "needs a source and a name for the shards (see penstock-loader pack "
		                  "--help)");
	o.source = argv[optind];
	o.out = argv[argc - 1];
	if (!o.repack && (o.parts || o.shares || o.key || o.field || o.lines))
		return ps_fail(PS_EXIT_USAGE, "--parts, --shares, --key, --field and --lines need --repack");
	if ((o.from || o.repack) && (o.classes || o.shuffle || o.columns.n > 0 || o.threads || o.part.of ||
	                                    ps_recode_acts(&o.recode) || (o.repack && (o.from || o.index))))
		return ps_fail(PS_EXIT_USAGE,
		        o.repack ? "--repack goes with --max-size, --max-count, --parts, --shares, --zstd, "
		                   "--key, --field, --lines, --force and --json alone"
		                 : "--from goes with --max-size, --max-count, --zstd, --index, --force and "
		                   "--json alone");
	if ((!o.repack && !ps_out_pattern_check(o.out)) || !ps_out_level(o.out, o.level, &o.level))
		return PS_EXIT_USAGE;
	if (o.repack)
		return ps_repack(&o, argc - 1, argv);
	if (o.from)
		return parquet_exec(&o, argc - optind, argv + optind);
	if (o.classes && o.source[0] == '@')
		return ps_fail(PS_EXIT_USAGE, "--classes needs a folder; a list has labels of its own");
	if (o.columns.n > 0 && !o.index)
		return ps_fail(PS_EXIT_USAGE, "--column needs --index");
	return pack_run(&o, &list);
}
