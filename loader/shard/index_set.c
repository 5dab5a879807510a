/* The indexes of a list of shards. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "shard/index.h"

struct entry {
	struct entry *next;
	uint32_t shard, users;
	struct ps_index *index;
};

struct ps_indexes {
	char *const *shards;
	const char *dir;
	enum ps_source source;
	struct ps_windows windows;

	pthread_mutex_t lock; /* all below */
	uint64_t *counts;     /* of each shard, and 1; 0: not known yet */
	struct entry *open;   /* those used last stand first */
	uint32_t nidle;
};

struct ps_indexes *ps_indexes_new(char *const *shards, size_t nshards, const char *dir)
{
	struct ps_indexes *xs = calloc(1, sizeof(*xs));

	if (!xs)
		return NULL;
	*xs = (struct ps_indexes){.shards = shards, .dir = dir};
	pthread_mutex_init(&xs->lock, NULL);
	xs->counts = calloc(nshards + 1, sizeof(*xs->counts));
	if (!xs->counts) {
		ps_indexes_free(xs);
		return NULL;
	}
	return xs;
}

void ps_indexes_source(struct ps_indexes *xs, enum ps_source source, const struct ps_windows *windows)
{
	xs->source = source;
	xs->windows = *windows;
}

static void entry_free(struct entry *e)
{
	if (e)
		ps_index_close(e->index);
	free(e);
}

void ps_indexes_free(struct ps_indexes *xs)
{
	if (!xs)
		return;
	while (xs->open) {
		struct entry *e = xs->open;

		xs->open = e->next;
		entry_free(e);
	}
	free(xs->counts);
	pthread_mutex_destroy(&xs->lock);
	free(xs);
}

/* -- The lock must be held below this line ------------------------------------------------------------- */

/* One more user of a shard's entry, which comes to the front; NULL: it is not open. */
static struct entry *entry_use(struct ps_indexes *xs, uint32_t shard)
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

/* Takes out the idle one that was used longest ago, if there are too many. */
static struct entry *surplus_unlink(struct ps_indexes *xs)
{
	struct entry **oldest = NULL, *e;

	for (struct entry **p = &xs->open; *p; p = &(*p)->next)
		if ((*p)->users == 0)
			oldest = p;
	if (xs->nidle <= PS_INDEXES_MAX_OPEN || !oldest)
		return NULL;
	e = *oldest;
	*oldest = e->next;
	xs->nidle--;
	return e;
}

/* -- No lock is held below this line ------------------------------------------------------------------- */

static int shard_open(
        struct ps_indexes *xs, const char *shard, struct ps_index **ret_index, struct ps_load_error *err)
{
	enum ps_source source = ps_source_of(xs->source, &xs->windows, shard);
	struct ps_index *index;
	int r;

	if (source == PS_SOURCE_TOKENS && xs->windows.nbytes > 0 && !ps_source_is_compressed(shard))
		return ps_index_open_windows(shard, &xs->windows, ret_index, err);
	r = ps_index_open(shard, xs->dir, &index, err);
	if (r == 0 && ps_index_is_of_lines(index) != (source == PS_SOURCE_LINES)) {
		ps_index_close(index);
		return ps_load_error_set(err, ESTALE, "%s: its index is of %s", shard,
		        source == PS_SOURCE_LINES ? "a tar, not of lines" : "lines, not of a tar");
	}
	if (r == 0)
		*ret_index = index;
	return r;
}

int ps_indexes_get(
        struct ps_indexes *xs, uint32_t shard, struct ps_index **ret_index, struct ps_load_error *err)
{
	struct entry *e, *mine;
	int r;

	pthread_mutex_lock(&xs->lock);
	e = entry_use(xs, shard);
	pthread_mutex_unlock(&xs->lock);
	if (e) {
		*ret_index = e->index;
		return 0;
	}
	mine = calloc(1, sizeof(*mine));
	if (!mine)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	r = shard_open(xs, xs->shards[shard], &mine->index, err);
	if (r < 0) {
		free(mine);
		return r;
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
		xs->counts[shard] = ps_index_samples(*ret_index) + 1;
	pthread_mutex_unlock(&xs->lock);
	if (e)
		entry_free(mine);
	return 0;
}

void ps_indexes_put(struct ps_indexes *xs, struct ps_index *index)
{
	struct entry *surplus;

	pthread_mutex_lock(&xs->lock);
	for (struct entry *e = xs->open; e; e = e->next)
		if (e->index == index)
			xs->nidle += --e->users == 0;
	surplus = surplus_unlink(xs);
	pthread_mutex_unlock(&xs->lock);
	entry_free(surplus);
}

int ps_indexes_count(struct ps_indexes *xs, uint32_t shard, uint64_t *ret_count, struct ps_load_error *err)
{
	struct ps_index *x;
	uint64_t known;
	int r;

	pthread_mutex_lock(&xs->lock);
	known = xs->counts[shard];
	pthread_mutex_unlock(&xs->lock);
	if (known > 0) {
		*ret_count = known - 1;
		return 0;
	}
	r = ps_indexes_get(xs, shard, &x, err);
	if (r < 0)
		return r;
	ps_indexes_put(xs, x);
	return ps_indexes_count(xs, shard, ret_count, err); /* now it is known */
}
