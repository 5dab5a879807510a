#include "config.h"

#include "tools/pack_list.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "random/random.h"
#include "shard/shard.h"
#include "tools/tools.h"

/* Adds a file to the list, which takes ownership of `path` and `name`. Files without a key are counted as
 * ignored. */
static void file_add(struct ps_pack_list *l, char *path, char *name, uint64_t size, int64_t label)
{
	struct ps_name_parts parts;

	if (!ps_name_split(name, strlen(name), &parts) || parts.key_len == 0) {
		l->ignored++;
		free(path);
		free(name);
		return;
	}
	if (l->nfiles == l->files_cap) {
		size_t cap = PS_MAX(l->files_cap * 2, (size_t)1024);

		l->files = ps_need(reallocarray(l->files, cap, sizeof(*l->files)));
		l->files_cap = cap;
	}
	l->files[l->nfiles++] = (struct ps_pack_file){.path = path,
	        .name = name,
	        .name_len = strlen(name),
	        .key_len = parts.key_len,
	        .size = size,
	        .label = label};
}

/* Counts a file that belongs to no sample. Takes ownership of its path. */
static void file_ignore(struct ps_pack_list *l, char *path)
{
	if (l->ignored < PS_ARRAY_LEN(l->shown))
		l->shown[l->ignored] = path;
	else
		free(path);
	l->ignored++;
}

static int key_compare(const struct ps_pack_file *a, const struct ps_pack_file *b)
{
	size_t n = PS_MIN(a->key_len, b->key_len);
	int c = memcmp(a->name, b->name, n);

	return c ? c : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static int file_compare(const void *pa, const void *pb)
{
	const struct ps_pack_file *a = pa, *b = pb;
	int c = key_compare(a, b);

	return c ? c : strcmp(a->name, b->name);
}

/* A folder ----------------------------------------------------------------------------------------------- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The place of the last dot of a path's last component, or of the path's end. */
static size_t stem_len(const char *path)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');

	return dot ? (size_t)(dot - path) : strlen(path);
}

/* A file of a class, whose name is cut at its last dot. */
static void class_file_add(struct ps_pack_list *l, const FTSENT *e, const char *name)
{
	char *path = ps_need(strdup(e->fts_path)), *plain = ps_need(strdup(name));
	size_t n = stem_len(plain);

	if (!plain[n]) {
		free(plain);
		file_ignore(l, path);
		return;
	}
	for (char *p = plain + n; p-- > plain && *p != '/';)
		if (*p == '.')
			*p = '_';
	file_add(l, path, plain, (uint64_t)e->fts_statp->st_size, (int64_t)l->nclasses - 1);
}

static bool has_suffix(const struct ps_pack_file *f, const char *const *suffixes)
{
	while (*suffixes && strcasecmp(f->name + f->key_len + 1, *suffixes) != 0)
		suffixes++;
	return *suffixes;
}

static bool is_image(const struct ps_pack_file *f)
{
	static const char *const decoded[] = {
	        "jpg", "jpeg", "jpe", "jfif", "png", "webp", "ppm", "pgm", "pnm", NULL};

	return has_suffix(f, decoded);
}

/* An image of a format that the loader does not decode. */
static bool is_foreign(const struct ps_pack_file *f)
{
	static const char *const others[] = {
	        "bmp", "gif", "tif", "tiff", "tga", "avif", "heic", "heif", "jxl", "jp2", "ico", "dds", NULL};

	return has_suffix(f, others);
}

static void foreign_count(struct ps_pack_list *l, const struct ps_pack_file *f)
{
	if (l->foreign++ == 0)
		l->foreign_first = ps_need(strdup(f->path));
}

/* Checks the files of one sample: at most one image, and one stem. */
static int stems_check(const struct ps_pack_file *files, size_t n, bool *ret_any, struct ps_error *err)
{
	const struct ps_pack_file *image = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct ps_pack_file *f = &files[i];
		size_t len = stem_len(f->path);

		if (len != stem_len(files->path) || memcmp(f->path, files->path, len) != 0)
			return ps_error_set(err, EEXIST,
			        "%s and %s would be one sample, %.*s, since dots become '_'; rename one",
			        files->path, f->path, (int)f->key_len, f->name);
		if (image && is_image(f))
			return ps_error_set(err, EEXIST,
			        "%s and %s would be two images of one sample; rename one", image->path,
			        f->path);
		image = is_image(f) ? f : image;
	}
	*ret_any = image != NULL;
	return 0;
}

/* Leaves out the images of other formats, and the files of samples without an image, if any sample has one. */
static int images_keep(struct ps_pack_list *l, struct ps_error *err)
{
	size_t n = 0, kept = 0;
	bool all = true, any = false;

	for (size_t i = 0; i < l->nfiles && all; i++)
		all = !is_image(&l->files[i]);
	for (size_t i = 0; i < l->nfiles; i++) {
		struct ps_pack_file f = l->files[i];
		bool foreign = is_foreign(&f);

		if (foreign)
			foreign_count(l, &f);
		if (!foreign || all) {
			l->files[n++] = f;
			continue;
		}
		free(f.path);
		free(f.name);
	}
	l->nfiles = n;
	l->foreign_packed = all;
	qsort(l->files, n, sizeof(*l->files), file_compare);
	for (size_t i = 0, end; i < n; i = end) {
		int rc;

		for (end = i + 1; end < n && key_compare(&l->files[end], &l->files[i]) == 0; end++)
			;
		rc = stems_check(&l->files[i], end - i, &any, err);
		if (rc < 0)
			return rc;
		for (size_t k = i; k < end; k++) {
			struct ps_pack_file f = l->files[k];

			l->files[k] = (struct ps_pack_file){0};
			if (all || any) {
				l->files[kept++] = f;
				continue;
			}
			free(f.name);
			file_ignore(l, f.path);
		}
	}
	l->nfiles = kept;
	return 0;
}

static int entry_take(
        struct ps_pack_list *l, FTS *fts, FTSENT *e, size_t root_len, bool classes, struct ps_error *err)
{
	if (e->fts_level > 0 && e->fts_name[0] == '.' && e->fts_info != FTS_DP) {
		fts_set(fts, e, FTS_SKIP);
		return 0;
	}
	switch (e->fts_info) {
	case FTS_D:
		if (classes && e->fts_level == 1) {
			l->classes = ps_need(reallocarray(l->classes, l->nclasses + 1, sizeof(*l->classes)));
			l->classes[l->nclasses++] = ps_need(strdup(e->fts_name));
		}
		return 0;
	case FTS_F: {
		const char *name = e->fts_path + root_len;

		name += strspn(name, "/");
		if (classes && e->fts_level == 1)
			/* a file beside the class folders, such as a list of their names */
			file_ignore(l, ps_need(strdup(e->fts_path)));
		else if (classes)
			class_file_add(l, e, name);
		else
			file_add(l, ps_need(strdup(e->fts_path)), ps_need(strdup(name)),
			        (uint64_t)e->fts_statp->st_size, -1);
		return 0;
	}
	case FTS_DC:
		return ps_error_set(err, ELOOP, "%s: a link leads back to a folder above it", e->fts_path);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return ps_error_set(err, e->fts_errno, "%s: %s", e->fts_path, strerror(e->fts_errno));
	case FTS_SLNONE:
		return ps_error_set(err, ENOENT, "%s: a link to nothing", e->fts_path);
	default:
		return 0;
	}
}

static void fts_cleanup(FTS **fts)
{
	if (*fts)
		fts_close(*fts);
}

int ps_pack_folder(struct ps_pack_list *l, const char *folder, bool classes, struct ps_error *err)
{
	ps_autofree char *root = ps_need(strdup(folder));
	char *const roots[] = {root, NULL};
	int rc = 0;

	__attribute__((cleanup(fts_cleanup))) FTS *fts = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
	if (!fts)
		return ps_error_set(err, errno, "%s: %s", folder, strerror(errno));
	while (rc == 0) {
		errno = 0;
		FTSENT *e = fts_read(fts);

		if (!e) {
			if (errno != 0)
				rc = ps_error_set(err, errno, "%s: %s", folder, strerror(errno));
			break;
		}
		if (e->fts_level == 0 && e->fts_info == FTS_F)
			rc = ps_error_set(err, ENOTDIR,
			        "%s: is not a folder; a list of files is named as @%s", folder, folder);
		else
			rc = entry_take(l, fts, e, strlen(folder), classes, err);
	}
	if (rc == 0 && classes && l->nclasses == 0)
		rc = ps_error_set(err, ENOENT, "%s: holds no folders, so there are no classes", folder);
	if (rc == 0 && classes)
		rc = images_keep(l, err);
	return rc;
}

/* A text ------------------------------------------------------------------------------------------------- */

/* `path`, which is relative to the list's folder unless it is absolute. */
static char *path_join(const char *list, const char *path)
{
	const char *slash = strrchr(list, '/');

	if (path[0] == '/' || !slash)
		return ps_need(strdup(path));
	return ps_text("%.*s%s", (int)(slash - list + 1), list, path);
}

/* Makes a member's name: KEY with the suffix of `path`. */
static char *name_join(const char *key, const char *path)
{
	struct ps_name_parts parts;

	if (!ps_name_split(path, strlen(path), &parts))
		return ps_need(strdup(key));
	return ps_text("%s.%s", key, parts.suffix);
}

static int line_take(struct ps_pack_list *l, const char *list, size_t n, char *line, struct ps_error *err)
{
	char *path = strsep(&line, "\t"), *key = strsep(&line, "\t"), *label = strsep(&line, "\t");
	ps_autofree char *full = path_join(list, path);
	struct stat st;
	int64_t number = -1;

	if (label && *label) {
		char *end;

		errno = 0;
		number = strtoll(label, &end, 10);
		if (errno != 0 || *end || number < 0)
			return ps_error_set(err, EINVAL,
			        "%s: line %zu: label \"%s\" is not a number of 0 or more", list, n, label);
	}
	int rc = stat(full, &st) < 0 ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
	if (rc != 0)
		return ps_error_set(err, rc, "%s: line %zu: %s: %s", list, n, full,
		        rc == EINVAL ? "is not an ordinary file" : strerror(rc));
	const char *bare = path + strspn(path, "/");
	while (strncmp(bare, "./", 2) == 0)
		bare += 2;
	file_add(l, ps_steal_ptr(&full), key && *key ? name_join(key, path) : ps_need(strdup(bare)),
	        (uint64_t)st.st_size, number);
	return 0;
}

static void file_cleanup(FILE **f)
{
	if (*f && *f != stdin)
		fclose(*f);
}

int ps_pack_text(struct ps_pack_list *l, const char *path, struct ps_error *err)
{
	__attribute__((cleanup(file_cleanup))) FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	ps_autofree char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;
	int rc = 0;

	if (!f)
		return ps_error_set(err, errno, "%s: %s", path, strerror(errno));
	while (rc == 0 && (len = getline(&line, &cap, f)) >= 0) {
		n++;
		if (memchr(line, 0, (size_t)len))
			return ps_error_set(err, EINVAL, "%s: line %zu holds a zero byte", path, n);
		line[strcspn(line, "\n")] = 0;
		if (*line && *line != '#')
			rc = line_take(l, path, n, line, err);
	}
	if (rc == 0 && ferror(f))
		rc = ps_error_set(err, EIO, "%s: cannot read", path);
	return rc;
}

/* Samples ------------------------------------------------------------------------------------------------ */

/* Adds a member KEY.cls for each sample with a labelled file. */
static int labels_add(struct ps_pack_list *l, struct ps_error *err)
{
	size_t n = l->nfiles, labelled = n;

	for (size_t i = 0; i < n; i++) {
		const struct ps_pack_file f = l->files[i];

		if (f.label < 0)
			continue;
		if (labelled < n && key_compare(&l->files[labelled], &f) == 0) {
			const struct ps_pack_file *before = &l->files[labelled];

			if (before->label == f.label)
				continue;
			return ps_error_set(err, EEXIST, "sample %.*s has two labels: %jd (%s) and %jd (%s)",
			        (int)f.key_len, f.name, (intmax_t)before->label, before->path,
			        (intmax_t)f.label, f.path);
		}
		labelled = i;
		file_add(l, NULL, ps_text("%.*s.cls", (int)f.key_len, f.name), 0, -1);
		struct ps_pack_file *made = &l->files[l->nfiles - 1];
		made->size = (uint64_t)snprintf(made->text, sizeof(made->text), "%jd", (intmax_t)f.label);
	}
	return 0;
}

int ps_pack_group(struct ps_pack_list *l, struct ps_error *err)
{
	if (l->nfiles == 0)
		return ps_error_set(err, ENOENT, "there is nothing to pack: no file has a suffix");
	qsort(l->files, l->nfiles, sizeof(*l->files), file_compare);
	int rc = labels_add(l, err);
	if (rc < 0)
		return rc;
	qsort(l->files, l->nfiles, sizeof(*l->files), file_compare);
	l->samples = ps_need(calloc(l->nfiles, sizeof(*l->samples)));
	for (size_t i = 0; i < l->nfiles; i++) {
		const struct ps_pack_file *f = &l->files[i], *before = i ? f - 1 : NULL;

		if (before && strcmp(before->name, f->name) == 0)
			return ps_error_set(err, EEXIST, "two files would be called %s: %s and %s", f->name,
			        before->path ? before->path : "a label", f->path ? f->path : "a label");
		if (!before || key_compare(before, f) != 0)
			l->samples[l->nsamples++].first = i;
		l->samples[l->nsamples - 1].n++;
	}
	return 0;
}

void ps_pack_shuffle(struct ps_pack_list *l, uint64_t seed)
{
	const struct ps_rng_key key = {.seed = seed};

	for (size_t i = l->nsamples; i > 1; i--) {
		size_t j = (size_t)ps_rng_below(&key, PS_RNG_SAMPLE_ORDER, (uint32_t)i, i);
		struct ps_pack_sample t = l->samples[i - 1];

		l->samples[i - 1] = l->samples[j];
		l->samples[j] = t;
	}
}

void ps_pack_fini(struct ps_pack_list *l)
{
	for (size_t i = 0; i < l->nfiles; i++) {
		free(l->files[i].path);
		free(l->files[i].name);
	}
	for (size_t i = 0; i < l->nclasses; i++)
		free(l->classes[i]);
	for (size_t i = 0; i < PS_ARRAY_LEN(l->shown); i++)
		free(l->shown[i]);
	free(l->foreign_first);
	free(l->files);
	free(l->samples);
	free(l->classes);
	*l = (struct ps_pack_list){0};
}
