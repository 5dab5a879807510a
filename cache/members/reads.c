/* The shards that reads of members keep open. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "members/members_private.h"

#define OPEN_MAX 256
#define AGE_MAX_NS (60 * PS_NS_PER_S)
#define AGE_MIN_NS PS_NS_PER_S

struct waiter {
	struct ps_list link;
	ps_member_open_fn fn;
	void *arg;
};

struct ps_member_shard {
	struct ps_shards_open *of;
	struct ps_tree_item by_node; /* while it can be found */
	struct ps_list link;         /* of->used, while it can be found and is open */
	struct ps_handle *handle;    /* NULL: it is being opened */
	struct ps_list waiters;
	unsigned nrefs;
	uint64_t opened_ns;
};

struct ps_shards_open {
	struct ps_dataset *dataset;
	pthread_mutex_t lock; /* protects what follows, and the shards */
	struct ps_tree by_node;
	struct ps_list used; /* the least recently used first */
	unsigned n;
	bool closing; /* a shard is closed with its last reference */
};

int ps_shards_open_new(struct ps_dataset *dataset, struct ps_shards_open **ret)
{
	struct ps_shards_open *open = calloc(1, sizeof(*open));

	if (!open)
		return -ENOMEM;
	open->dataset = dataset;
	pthread_mutex_init(&open->lock, NULL);
	ps_list_init(&open->used);
	*ret = open;
	return 0;
}

/* From now on the shard is not found any more. The caller frees it if it has no references. The lock is
 * held. */
static void forget(struct ps_member_shard *shard)
{
	ps_tree_remove(&shard->of->by_node, &shard->by_node);
	ps_list_remove(&shard->link);
	shard->of->n--;
}

static void shard_free(struct ps_member_shard *shard)
{
	if (shard && shard->handle)
		ps_handle_close(shard->handle);
	free(shard);
}

static void free_list(struct ps_list *unused)
{
	while (!ps_list_empty(unused)) {
		struct ps_member_shard *shard =
		        PS_CONTAINER_OF(ps_list_take(unused), struct ps_member_shard, link);
		shard_free(shard);
	}
}

void ps_shards_open_close(struct ps_shards_open *open)
{
	struct ps_list unused;

	ps_list_init(&unused);
	pthread_mutex_lock(&open->lock);
	open->closing = true;
	while (!ps_list_empty(&open->used)) {
		struct ps_member_shard *shard =
		        PS_CONTAINER_OF(open->used.next, struct ps_member_shard, link);

		forget(shard);
		if (shard->nrefs == 0)
			ps_list_append(&unused, &shard->link);
	}
	pthread_mutex_unlock(&open->lock);
	free_list(&unused);
}

void ps_shards_open_free(struct ps_shards_open *open)
{
	if (!open)
		return;
	pthread_mutex_destroy(&open->lock);
	free(open);
}

/* An open checks the grant and confirms the version. A shard that stayed open for longer than a grant lasts
 * would evade these checks. */
static bool too_old(const struct ps_member_shard *shard)
{
	uint64_t ttl_ns = shard->of->dataset->cache->grant_ttl_ms * PS_NS_PER_MS;
	uint64_t age_ns = PS_MAX(PS_MIN(ttl_ns, AGE_MAX_NS), AGE_MIN_NS);

	return ps_clock_mono_ns() - shard->opened_ns > age_ns;
}

static struct ps_member_shard *find(struct ps_shards_open *open, uint64_t node)
{
	struct ps_tree_item *item = ps_tree_from(&open->by_node, node);

	return item && item->key == node ? PS_CONTAINER_OF(item, struct ps_member_shard, by_node) : NULL;
}

/* Returns the shard with a new reference if it is open, else NULL. *ret_unused: a shard that the caller
 * frees without the lock, or NULL. The lock is held. */
static struct ps_member_shard *use(
        struct ps_shards_open *open, uint64_t node, struct ps_member_shard **ret_unused)
{
	struct ps_member_shard *shard = find(open, node);

	*ret_unused = NULL;
	if (!shard || !shard->handle)
		return NULL;
	if (too_old(shard)) {
		forget(shard);
		*ret_unused = shard->nrefs ? NULL : shard;
		return NULL;
	}
	shard->nrefs++;
	ps_list_remove(&shard->link);
	ps_list_append(&open->used, &shard->link);
	return shard;
}

struct ps_member_shard *ps_member_opened(struct ps_members *members, uint64_t node)
{
	struct ps_shards_open *open = members->open;
	struct ps_member_shard *unused, *shard;

	pthread_mutex_lock(&open->lock);
	shard = use(open, node, &unused);
	pthread_mutex_unlock(&open->lock);
	shard_free(unused);
	return shard;
}

/* If too many shards are open, forgets and returns the least recently used one without references; else
 * NULL. The lock is held. */
static struct ps_member_shard *trim(struct ps_shards_open *open)
{
	if (open->n <= OPEN_MAX)
		return NULL;
	PS_LIST_EACH (struct ps_member_shard, shard, &open->used, link) {
		if (shard->nrefs == 0) {
			forget(shard);
			return shard;
		}
	}
	return NULL;
}

void ps_shards_open_close_old(struct ps_shards_open *open)
{
	struct ps_list unused;

	ps_list_init(&unused);
	pthread_mutex_lock(&open->lock);
	PS_LIST_EACH (struct ps_member_shard, shard, &open->used, link) {
		if (shard->nrefs > 0 || !too_old(shard))
			continue;
		forget(shard);
		ps_list_append(&unused, &shard->link);
	}
	pthread_mutex_unlock(&open->lock);
	free_list(&unused);
}

static void opened(void *arg, int errnum, struct ps_handle *handle)
{
	struct ps_member_shard *shard = arg, *unused = NULL;
	struct ps_shards_open *open = shard->of;
	struct ps_list waiters;

	ps_list_init(&waiters);
	pthread_mutex_lock(&open->lock);
	ps_list_splice(&waiters, &shard->waiters);
	if (errnum) {
		forget(shard);
	} else {
		shard->handle = handle;
		shard->opened_ns = ps_clock_mono_ns();
		ps_list_append(&open->used, &shard->link);
		if (open->closing)
			forget(shard);
		PS_LIST_EACH (struct waiter, waiter, &waiters, link)
			shard->nrefs++;
		unused = trim(open);
	}
	pthread_mutex_unlock(&open->lock);
	shard_free(unused);
	while (!ps_list_empty(&waiters)) {
		struct waiter *w = PS_CONTAINER_OF(ps_list_take(&waiters), struct waiter, link);
		w->fn(w->arg, errnum, errnum ? NULL : shard);
		free(w);
	}
	if (errnum)
		free(shard);
}

void ps_member_open(struct ps_members *members, uint64_t node, ps_member_open_fn fn, void *arg)
{
	struct ps_shards_open *open = members->open;
	struct ps_member_shard *unused, *shard, *opening = NULL;
	struct waiter *w = malloc(sizeof(*w));

	if (!w) {
		fn(arg, ENOMEM, NULL);
		return;
	}
	*w = (struct waiter){.fn = fn, .arg = arg};
	pthread_mutex_lock(&open->lock);
	shard = use(open, node, &unused);
	if (!shard) {
		struct ps_member_shard *found = find(open, node);

		if (!found && (opening = calloc(1, sizeof(*opening)))) {
			opening->of = open;
			ps_list_init(&opening->link);
			ps_list_init(&opening->waiters);
			ps_tree_insert(&open->by_node, &opening->by_node, node);
			open->n++;
			found = opening;
		}
		if (found)
			ps_list_append(&found->waiters, &ps_steal_ptr(&w)->link);
	}
	pthread_mutex_unlock(&open->lock);
	shard_free(unused);
	if (opening)
		ps_handle_open(open->dataset, node, opened, opening);
	if (!w)
		return;
	fn(arg, shard ? 0 : ENOMEM, shard);
	free(w);
}

struct ps_handle *ps_member_handle(struct ps_member_shard *shard)
{
	return shard->handle;
}

void ps_member_close(struct ps_member_shard *shard, bool failed)
{
	struct ps_shards_open *open = shard->of;

	pthread_mutex_lock(&open->lock);
	if (failed && ps_tree_is_linked(&shard->by_node))
		forget(shard);
	bool unused = --shard->nrefs == 0 && !ps_tree_is_linked(&shard->by_node);
	pthread_mutex_unlock(&open->lock);
	if (unused)
		shard_free(shard);
}
