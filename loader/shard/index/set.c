/* The indexes of a list of shards. */
#include "config.h"

#include "shard/index/index.h"

#include <errno.h>
#include <string.h>

#include "shard/index/format.h"
#include "shard/tokens/tokens.h"

struct entry {
	struct entry *next;
	uint32_t shard, users;
	struct ps_shard_index *index;
};

/* A folder of shards, which may have a catalogue. */
struct place {
	struct place *next;
	char *dir;
	struct ps_catalogue *catalogue; /* NULL: none */
	struct ps_error err;            /* why not */
};

struct ps_shard_indexes {
	char *const *shards;
	const char *dir;
	enum ps_shard_kind source;
	struct ps_windows windows;
	const struct ps_packing *packing; /* NULL: none */
	/* counts the rows of a unit; NULL: shards are files */
	int (*count_rows)(void *ctx, const char *unit, uint64_t *ret_rows, struct ps_error *err);
	void *count_ctx;

	pthread_mutex_t lock; /* guards the members up to places_lock */
	uint64_t *counts;     /* 1 + the samples of each shard; 0: not known yet */
	struct entry *open;   /* most recently used first */
	uint32_t nidle;

	/* guards the members below; held while a catalogue or the folder of indexes is read */
	pthread_mutex_t places_lock;
	/* the place that was added last is the first: most shards are in one folder with the shard before them */
	struct place *places;
	struct ps_shard_index_folder *folder;
};

struct ps_shard_indexes *ps_shard_indexes_new(char *const *shards, size_t nshards, const char *dir)
{
	struct ps_shard_indexes *xs = calloc(1, sizeof(*xs));

	if (!xs)
		return NULL;
	*xs = (struct ps_shard_indexes){.shards = shards, .dir = dir};
	pthread_mutex_init(&xs->lock, NULL);
	pthread_mutex_init(&xs->places_lock, NULL);
	xs->counts = calloc(nshards + 1, sizeof(*xs->counts));
	if (!xs->counts) {
		ps_shard_indexes_free(xs);
		return NULL;
	}
	return xs;
}

void ps_shard_indexes_set_source(
        struct ps_shard_indexes *xs, enum ps_shard_kind source, const struct ps_windows *windows)
{
	xs->source = source;
	xs->windows = *windows;
}

void ps_shard_indexes_set_packing(struct ps_shard_indexes *xs, const struct ps_packing *packing)
{
	xs->packing = packing;
}

void ps_shard_indexes_set_columns(struct ps_shard_indexes *xs,
        int (*count)(void *ctx, const char *unit, uint64_t *ret_rows, struct ps_error *err), void *ctx)
{
	xs->count_rows = count;
	xs->count_ctx = ctx;
}

static void entry_free(struct entry *e)
{
	if (e)
		ps_shard_index_close(e->index);
	free(e);
}

void ps_shard_indexes_free(struct ps_shard_indexes *xs)
{
	if (!xs)
		return;
	while (xs->open) {
		struct entry *e = xs->open;

		xs->open = e->next;
		entry_free(e);
	}
	while (xs->places) {
		struct place *p = xs->places;

		xs->places = p->next;
		ps_catalogue_free(p->catalogue);
		free(p->dir);
		free(p);
	}
	ps_shard_index_folder_free(xs->folder);
	free(xs->counts);
	pthread_mutex_destroy(&xs->lock);
	pthread_mutex_destroy(&xs->places_lock);
	free(xs);
}

/* Callers of the functions below hold xs->lock ----------------------------------------------------------- */

/* Adds a user to a shard's entry, and moves it to the front; NULL: it is not open. */
static struct entry *entry_use(struct ps_shard_indexes *xs, uint32_t shard)
{
	for (struct entry **p = &xs->open; *p; p = &(*p)->next) {
		struct entry *e = *p;

		if (e->shard != shard)
			continue;
		*p = e->next;
		e->next = xs->open;
		xs->open = e;
		xs->nidle -= e->users++ == 0;
		return e;
	}
	return NULL;
}

/* Callers of the functions below do not hold xs->lock ---------------------------------------------------- */

/* The path of a shard's index in the folder of indexes. The caller frees the path. NULL with err filled;
 * ENOENT: the folder has no index of this shard. */
static char *folder_path(
        struct ps_shard_indexes *xs, const char *shard, uint64_t nbytes, struct ps_error *err)
{
	char *path;

	PS_LOCK_SCOPE(&xs->places_lock);
	if (!xs->folder && ps_shard_index_folder_read(xs->dir, &xs->folder, err) < 0)
		return NULL;
	path = ps_shard_index_folder_find(xs->folder, shard, nbytes, err);
	if (path || err->err != ENOENT || ps_shard_index_folder_is_current(xs->folder))
		return path;
	ps_shard_index_folder_free(ps_steal_ptr(&xs->folder));
	if (ps_shard_index_folder_read(xs->dir, &xs->folder, err) < 0)
		return NULL;
	return ps_shard_index_folder_find(xs->folder, shard, nbytes, err);
}

static struct place *place_add(struct ps_shard_indexes *xs, const char *dir, size_t len)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p || !(p->dir = strndup(dir, len))) {
		free(p);
		return NULL;
	}
	if (ps_catalogue_read(p->dir, &p->catalogue, &p->err) < 0)
		p->catalogue = NULL;
	p->next = xs->places;
	return xs->places = p;
}

/* Finds a shard in the catalogue of its folder: 1; 0: it is not in there, or there is no catalogue. A
 * catalogue that cannot be read, or has another size of the shard, is an error. */
static int catalogue_ask(struct ps_shard_indexes *xs, const char *shard, uint64_t nbytes,
        const struct ps_catalogue_entry **ret_entry, struct ps_error *err)
{
	const char *slash = strrchr(shard, '/');
	size_t len = slash ? PS_MAX((size_t)(slash - shard), (size_t)1) : 0;
	const struct ps_catalogue_entry *e;
	struct place *p;

	PS_LOCK_SCOPE(&xs->places_lock);
	for (p = xs->places; p && (strncmp(p->dir, shard, len) != 0 || p->dir[len]);)
		p = p->next;
	if (!p)
		p = place_add(xs, shard, len);
	if (!p)
		return ps_no_memory(err);
	if (!p->catalogue)
		return p->err.err == ENOENT ? 0 : ps_error_set(err, p->err.err, "%s", p->err.text);
	e = ps_catalogue_match(p->catalogue, slash ? slash + 1 : shard, nbytes);
	if (!e)
		return 0;
	if (e->nbytes != nbytes && e->plain_nbytes != nbytes)
		return ps_error_set(err, ESTALE,
		        "%s: has %ju bytes, but its catalogue %s says %ju: the shard was changed since; "
		        "fetch or make the "
		        "catalogue again (penstock-loader index --catalogue)",
		        shard, (uintmax_t)nbytes, p->catalogue->path, (uintmax_t)e->nbytes);
	*ret_entry = e;
	return 1;
}

/* Opens the index that is stored beside a shard. -ESTALE: index and catalogue describe different versions
 * of the shard. */
static int beside_open(struct ps_shard_indexes *xs, const char *shard, uint64_t nbytes,
        struct ps_shard_index **ret_index, struct ps_error *err)
{
	const struct ps_catalogue_entry *e;
	const struct ps_shard_index_binding *b;
	struct ps_shard_index *index;
	int asked = catalogue_ask(xs, shard, nbytes, &e, err), r;

	if (asked < 0)
		return asked;
	r = ps_shard_index_open(shard, NULL, &index, err);
	if (r < 0)
		return r;
	b = ps_shard_index_binding(index);
	if (asked > 0 &&
	        (ps_shard_index_samples(index) != e->samples ||
	                (ps_shard_index_sha256_known(b->sha256) && ps_shard_index_sha256_known(e->sha256) &&
	                        memcmp(b->sha256, e->sha256, PS_PSX_SHA256) != 0))) {
		r = ps_error_set(err, ESTALE,
		        "%s: belongs to another version of the shard than " PS_CATALOGUE_NAME
		        " beside it; fetch both again, or make them again with penstock-loader index "
		        "--catalogue",
		        ps_shard_index_path_of(index));
		ps_shard_index_close(index);
		return r;
	}
	*ret_index = index;
	return 0;
}

static bool is_windows(const struct ps_shard_indexes *xs, const char *shard)
{
	return ps_shard_kind_of(xs->source, &xs->windows, shard) == PS_SHARD_KIND_TOKENS &&
	       xs->windows.nbytes > 0 && !ps_shard_is_compressed(shard);
}

/* what: "index", or the entry in the catalogue; for the error text */
static int source_check(const struct ps_shard_indexes *xs, const char *shard, const char *what, bool of_lines,
        struct ps_error *err)
{
	bool lines = ps_shard_kind_of(xs->source, &xs->windows, shard) == PS_SHARD_KIND_LINES;

	if (lines == of_lines)
		return 0;
	return ps_error_set(err, ESTALE, "%s: its %s describes %s", shard, what,
	        lines ? "a tar, not lines" : "lines, not a tar");
}

static int shard_open(struct ps_shard_indexes *xs, const char *shard, struct ps_shard_index **ret_index,
        struct ps_error *err)
{
	ps_autofree char *path = NULL;
	struct ps_error why = {0};
	struct ps_shard_index_version now;
	struct ps_shard_index *index;
	uint64_t rows;
	int rc;

	if (xs->count_rows) {
		rc = xs->count_rows(xs->count_ctx, shard, &rows, err);
		return rc < 0 ? rc : ps_shard_index_open_rows(shard, rows, ret_index, err);
	}
	if (is_windows(xs, shard))
		return ps_shard_index_open_windows(shard, &xs->windows, ret_index, err);
	rc = ps_shard_index_version_read(shard, &now, err);
	if (rc < 0)
		return rc;
	path = xs->dir ? folder_path(xs, shard, now.nbytes, &why) : NULL;
	if (path)
		rc = ps_shard_index_open_file(path, shard, now.nbytes, &index, err);
	else if (xs->dir && why.err != ENOENT)
		return ps_error_set(err, why.err, "%s", why.text);
	else
		rc = beside_open(xs, shard, now.nbytes, &index, err);
	if (rc == -ENOENT && xs->dir && !path)
		return ps_error_set(err, ENOENT, "%s", why.text);
	if (rc < 0)
		return rc;
	rc = source_check(xs, shard, "index", ps_shard_index_is_of_lines(index), err);
	if (rc < 0)
		ps_shard_index_close(index);
	else
		*ret_index = index;
	return rc;
}

int ps_shard_indexes_get(
        struct ps_shard_indexes *xs, uint32_t shard, struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct entry *e, *mine;
	int rc;

	if (xs->packing)
		return ps_error_set(
		        err, ENOENT, "%s: packed rows have no index of samples", xs->shards[shard]);
	pthread_mutex_lock(&xs->lock);
	e = entry_use(xs, shard);
	pthread_mutex_unlock(&xs->lock);
	if (e) {
		*ret_index = e->index;
		return 0;
	}
	mine = calloc(1, sizeof(*mine));
	if (!mine)
		return ps_no_memory(err);
	rc = shard_open(xs, xs->shards[shard], &mine->index, err);
	if (rc < 0) {
		free(mine);
		return rc;
	}
	mine->shard = shard;
	mine->users = 1;
	pthread_mutex_lock(&xs->lock);
	e = entry_use(xs, shard); /* another thread may have been faster */
	if (!e) {
		mine->next = xs->open;
		xs->open = mine;
	}
	*ret_index = e ? e->index : mine->index;
	if (xs->counts[shard] == 0)
		xs->counts[shard] = ps_shard_index_samples(*ret_index) + 1;
	pthread_mutex_unlock(&xs->lock);
	if (e)
		entry_free(mine);
	return 0;
}

void ps_shard_indexes_put(struct ps_shard_indexes *xs, struct ps_shard_index *index)
{
	struct entry **oldest = NULL, *surplus = NULL;

	pthread_mutex_lock(&xs->lock);
	for (struct entry *e = xs->open; e; e = e->next)
		if (e->index == index)
			xs->nidle += --e->users == 0;
	for (struct entry **p = &xs->open; *p; p = &(*p)->next)
		if ((*p)->users == 0)
			oldest = p;
	if (xs->nidle > PS_INDEXES_MAX_OPEN && oldest) { /* the idle entry that was used longest ago */
		surplus = *oldest;
		*oldest = surplus->next;
		xs->nidle--;
	}
	pthread_mutex_unlock(&xs->lock);
	entry_free(surplus);
}

/* Finds a count in the catalogue: 1; 0: the index has to be asked. */
static int count_ask(
        struct ps_shard_indexes *xs, const char *shard, uint64_t *ret_count, struct ps_error *err)
{
	const struct ps_catalogue_entry *e;
	ps_autofree char *path = NULL;
	struct ps_error why = {0};
	struct ps_shard_index_version now;
	int rc;

	if (xs->count_rows) {
		rc = xs->count_rows(xs->count_ctx, shard, ret_count, err);
		return rc < 0 ? rc : 1;
	}
	if (is_windows(xs, shard))
		return 0;
	rc = ps_shard_index_version_read(shard, &now, err);
	if (rc < 0)
		return rc;
	path = xs->dir ? folder_path(xs, shard, now.nbytes, &why) : NULL;
	if (path || (xs->dir && why.err != ENOENT))
		return 0; /* the folder of indexes comes before the catalogue */
	rc = catalogue_ask(xs, shard, now.nbytes, &e, err);
	if (rc <= 0)
		return rc;
	*ret_count = e->samples;
	rc = source_check(xs, shard, "entry in " PS_CATALOGUE_NAME, e->lines, err);
	return rc < 0 ? rc : 1;
}

int ps_shard_indexes_count(
        struct ps_shard_indexes *xs, uint32_t shard, uint64_t *ret_count, struct ps_error *err)
{
	struct ps_shard_index *x;
	uint64_t known;
	int rc;

	if (xs->packing) {
		*ret_count = xs->packing->stretches[shard].nrows;
		return 0;
	}
	pthread_mutex_lock(&xs->lock);
	known = xs->counts[shard];
	pthread_mutex_unlock(&xs->lock);
	if (known > 0) {
		*ret_count = known - 1;
		return 0;
	}
	rc = count_ask(xs, xs->shards[shard], &known, err);
	if (rc == 0) {
		rc = ps_shard_indexes_get(xs, shard, &x, err);
		if (rc == 0)
			ps_shard_indexes_put(xs, x);
	} else if (rc > 0) {
		pthread_mutex_lock(&xs->lock);
		if (xs->counts[shard] == 0)
			xs->counts[shard] = known + 1;
		pthread_mutex_unlock(&xs->lock);
	}
	return rc < 0 ? rc : ps_shard_indexes_count(xs, shard, ret_count, err); /* now it is known */
}
