#include "fuse/openmode.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hashtable.h"

/* A thread that has not opened again after this time was killed, or the name is gone. */
#define STALE_NS (90 * PS_NS_PER_S)
/* Threads whose id is unknown share this limit: at most one of them is sent to an alias within this
 * time. */
#define STALE_ANYONE_NS PS_NS_PER_S

/* One node id with handles. */
struct alias {
	struct alias *next;
	uint64_t number;           /* the alias: the high bits of the node id */
	unsigned n[PS_MODE_COUNT]; /* handles */
	int backing_id;
	struct ps_keep keep; /* released with the backing id */
	bool mapped;         /* a direct handle of it has been mapped */
};

struct ps_openmode_node {
	uint64_t number;  /* the cache's */
	uint64_t current; /* the alias that lookups are given */
	struct alias *aliases;
	UT_hash_handle hh;
};

void ps_openmode_init(struct ps_openmode_table *table, struct ps_state_head *head)
{
	*table = (struct ps_openmode_table){.head = head};
	pthread_mutex_init(&table->lock, NULL);
}

static void put_keep(struct ps_keep *keep)
{
	if (keep->put)
		keep->put(keep->arg);
	keep->put = NULL;
}

void ps_openmode_fini(struct ps_openmode_table *table)
{
	struct ps_openmode_node *node, *next;

	/* Handles the kernel never released: the connection is gone, and the backing ids with it. */
	HASH_ITER (hh, table->nodes, node, next) {
		HASH_DEL(table->nodes, node);
		while (node->aliases) {
			struct alias *alias = node->aliases;

			node->aliases = alias->next;
			put_keep(&alias->keep);
			free(alias);
		}
		free(node);
	}
	pthread_mutex_destroy(&table->lock);
}

/* The functions below need the table's lock held. -------------------------------------------------------- */

static struct ps_openmode_node *find(struct ps_openmode_table *table, uint64_t number)
{
	struct ps_openmode_node *node;

	HASH_FIND(hh, table->nodes, &number, sizeof(number), node);
	return node;
}

static struct ps_openmode_node *find_or_add(struct ps_openmode_table *table, fuse_ino_t ino)
{
	uint64_t number = ps_node_number(ino);
	struct ps_openmode_node *node = find(table, number);

	if (node)
		return node;
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	node->number = number;
	node->current = ino >> PS_ALIAS_SHIFT; /* any alias would do; the kernel knows this one already */
	HASH_ADD(hh, table->nodes, number, sizeof(node->number), node);
	if (!node->hh.tbl) { /* out of memory inside uthash */
		free(node);
		return NULL;
	}
	return node;
}

static struct alias *find_alias(struct ps_openmode_node *node, uint64_t number)
{
	struct alias *alias = node->aliases;

	while (alias && alias->number != number)
		alias = alias->next;
	return alias;
}

static struct alias *find_or_add_alias(struct ps_openmode_node *node, uint64_t number)
{
	struct alias *alias = find_alias(node, number);

	if (alias)
		return alias;
	alias = calloc(1, sizeof(*alias));
	if (!alias)
		return NULL;
	alias->number = number;
	alias->next = node->aliases;
	node->aliases = alias;
	return alias;
}

/* Frees the alias if it has no handles, and the node if it has no aliases. */
static void tidy(struct ps_openmode_table *table, struct ps_openmode_node *node, struct alias *alias)
{
	if (alias && !alias->n[PS_MODE_CACHED] && !alias->n[PS_MODE_DIRECT] && !alias->n[PS_MODE_PASSED]) {
		struct alias **at = &node->aliases;

		while (*at != alias)
			at = &(*at)->next;
		*at = alias->next;
		free(alias);
	}
	if (!node->aliases) {
		HASH_DEL(table->nodes, node);
		free(node);
	}
}

/* Finds an alias that can be opened as passed: one that is passed already, or one without handles. */
static bool pick_alias(const struct ps_openmode_node *node, uint64_t *ret)
{
	uint64_t used = 0;
	bool current_held = false;

	for (const struct alias *a = node->aliases; a; a = a->next) {
		if (a->n[PS_MODE_PASSED]) {
			*ret = a->number;
			return true;
		}
		used = PS_MAX(used, a->number);
		current_held |= a->number == node->current;
	}
	if (!current_held)
		*ret = node->current;
	else if (used < PS_ALIAS_MAX)
		*ret = used + 1;
	else
		return false;
	return true;
}

/* Forgets that the thread's last OPEN was answered ESTALE; false: it was not. */
static bool came_again(struct ps_openmode_table *table, pid_t tid)
{
	for (size_t i = 0; tid && i < PS_STALE_SLOTS; i++) {
		if (table->head->stale[i].tid == tid) {
			table->head->stale[i].tid = 0;
			return true;
		}
	}
	return false;
}

/* Records that an OPEN of the thread is answered ESTALE. With `must` false, records nothing and returns
 * false if the table could not recognise the thread's next OPEN: no slot is free, or the thread is unknown
 * and another ESTALE was answered within STALE_ANYONE_NS. */
static bool note_stale(struct ps_openmode_table *table, pid_t tid, bool must)
{
	uint64_t now = ps_clock_mono_ns();
	struct ps_stale *oldest = &table->head->stale[0];
	bool alone = !table->head->last_stale_ns || now - table->head->last_stale_ns > STALE_ANYONE_NS;

	if (!must && !tid && !alone)
		return false;
	for (size_t i = 0; tid && i < PS_STALE_SLOTS && oldest->tid; i++)
		if (!table->head->stale[i].tid || table->head->stale[i].at_ns < oldest->at_ns)
			oldest = &table->head->stale[i];
	if (!must && tid && oldest->tid && now - oldest->at_ns < STALE_NS)
		return false;
	if (tid)
		*oldest = (struct ps_stale){tid, now};
	table->head->last_stale_ns = now;
	return true;
}

static bool send_on(struct ps_openmode_table *table, struct ps_openmode_node *node, pid_t tid)
{
	uint64_t to;

	if (!pick_alias(node, &to) || !note_stale(table, tid, false))
		return false;
	node->current = to;
	atomic_fetch_add(&table->nupgrades, 1);
	return true;
}

/* -------------------------------------------------------------------------------------------------- */

static int enter(struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_req_t req,
        const struct ps_openmode_wish *wish, struct ps_keep *keep, enum ps_open_mode *ret_mode,
        int *ret_backing_id)
{
	PS_LOCK_SCOPE(&table->lock);
	bool again = came_again(table, wish->tid);
	bool pass = wish->complete_fd >= 0 && ps_passthrough_active(pt);
	enum ps_open_mode mode = wish->direct ? PS_MODE_DIRECT : PS_MODE_CACHED;
	struct ps_openmode_node *node = find_or_add(table, wish->ino);
	struct alias *alias = node ? find_or_add_alias(node, wish->ino >> PS_ALIAS_SHIFT) : NULL;

	if (!alias) {
		if (node)
			tidy(table, node, NULL);
		return -ENOMEM;
	}
	if (mode == PS_MODE_DIRECT && alias->mapped)
		mode = PS_MODE_CACHED;
	if (alias->n[PS_MODE_PASSED]) {
		mode = PS_MODE_PASSED;
	} else if (pass && !alias->n[PS_MODE_CACHED] && !alias->n[PS_MODE_DIRECT]) {
		int id = ps_passthrough_backing_open(pt, req, wish->complete_fd, wish->complete_name);

		if (id > 0) {
			ps_state_note_backing_id(table->head, id);
			alias->backing_id = id;
			alias->keep = *keep;
			keep->put = NULL;
			mode = PS_MODE_PASSED;
		}
	} else if (pass && !again && send_on(table, node, wish->tid)) {
		return -ESTALE;
	}
	alias->n[mode]++;
	atomic_fetch_add(&table->nopens[mode], 1);
	atomic_fetch_add(&table->nopen[mode], 1);
	*ret_mode = mode;
	*ret_backing_id = alias->backing_id;
	return 0;
}

int ps_openmode_enter(struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_req_t req,
        const struct ps_openmode_wish *wish, enum ps_open_mode *ret_mode, int *ret_backing_id)
{
	struct ps_keep keep = wish->keep;
	int rc = enter(table, pt, req, wish, &keep, ret_mode, ret_backing_id);

	put_keep(&keep);
	return rc;
}

/* Returns the backing id to close, or 0. */
static int leave(
        struct ps_openmode_table *table, fuse_ino_t ino, enum ps_open_mode mode, struct ps_keep *ret_keep)
{
	PS_LOCK_SCOPE(&table->lock);
	struct ps_openmode_node *node = find(table, ps_node_number(ino));
	struct alias *alias = node ? find_alias(node, ino >> PS_ALIAS_SHIFT) : NULL;

	if (!alias || !alias->n[mode])
		return 0;
	int id = 0;

	atomic_fetch_sub(&table->nopen[mode], 1);
	if (--alias->n[mode] == 0 && mode == PS_MODE_PASSED) {
		id = alias->backing_id;
		ps_state_note_closed_id(table->head, id);
		*ret_keep = alias->keep;
		alias->keep.put = NULL;
	}
	tidy(table, node, alias);
	return id;
}

void ps_openmode_leave(
        struct ps_openmode_table *table, struct ps_passthrough *pt, fuse_ino_t ino, enum ps_open_mode mode)
{
	struct ps_keep keep = {0};
	int id = leave(table, ino, mode, &keep);

	/* Without the lock, so that no OPEN waits for the ioctl. An OPEN of this node that comes now gets
	 * another id. */
	if (id > 0)
		ps_passthrough_backing_close(pt, id);
	put_keep(&keep);
}

int ps_openmode_restore(struct ps_openmode_table *table, fuse_ino_t ino, enum ps_open_mode mode,
        int backing_id, const struct ps_keep *keep)
{
	struct ps_keep ours = *keep;
	int rc = 0;

	{
		PS_LOCK_SCOPE(&table->lock);
		struct ps_openmode_node *node = find_or_add(table, ino);
		struct alias *alias = node ? find_or_add_alias(node, ino >> PS_ALIAS_SHIFT) : NULL;

		if (alias) {
			alias->n[mode]++;
			atomic_fetch_add(&table->nopen[mode], 1);
		} else {
			rc = -ENOMEM;
		}
		if (alias && mode == PS_MODE_PASSED) {
			node->current = alias->number;
			alias->backing_id = backing_id;
			if (!alias->keep.put) {
				alias->keep = ours;
				ours.put = NULL;
			}
		}
		if (node && !alias)
			tidy(table, node, NULL);
	}
	put_keep(&ours);
	return rc;
}

void ps_openmode_mapped(struct ps_openmode_table *table, fuse_ino_t ino)
{
	PS_LOCK_SCOPE(&table->lock);
	struct ps_openmode_node *node = find(table, ps_node_number(ino));
	struct alias *alias = node ? find_alias(node, ino >> PS_ALIAS_SHIFT) : NULL;

	if (alias)
		alias->mapped = true;
}

void ps_openmode_stale(struct ps_openmode_table *table, pid_t tid)
{
	PS_LOCK_SCOPE(&table->lock);
	came_again(table, tid);
	note_stale(table, tid, true);
}

fuse_ino_t ps_openmode_ino(struct ps_openmode_table *table, uint64_t number)
{
	PS_LOCK_SCOPE(&table->lock);
	const struct ps_openmode_node *node = find(table, number);

	return node ? number | node->current << PS_ALIAS_SHIFT : number;
}
