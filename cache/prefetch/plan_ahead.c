#include "prefetch/prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "catalog/dataset.h"
#include "policy/policy.h"

/* A planned file is fetched if its version was confirmed within this time, even if each open revalidates: a
 * shorter time would be over before the answer to a revalidation ahead is used. */
#define PLANNED_AGE_MS UINT64_C(5000)

#define LOOK_EVERY_MS 100 /* the shortest time between two looks */
#define IDLE_MS 1000
#define HEAD_BLOCKS 1
/* Of each file that is read now: if it is not known how much is needed (more would delay the others), and at
 * most; read-ahead fetches what comes after. */
#define READ_NBYTES PS_BLOCK_SIZE
#define READ_MAX_NBYTES (8 * PS_BLOCK_SIZE)
#define READ_KEPT_MS 10000 /* what was not requested in this time is left to the readers; ... */
#define READ_LATE_MS 1000  /* ... or could not be */
#define NAMES_AT_ONCE 64

/* A file that is being fetched, or is complete, and that was not opened yet. */
struct begun {
	uint64_t node;
	struct ps_demand head, rest;
	struct ps_fill_file *file; /* a reference while it is fetched; NULL: it is complete */
	uint64_t nbytes;           /* the space it takes in the cache */
	bool to_memory;            /* not admitted, so only its beginning is fetched, to memory */
	bool has_rest;             /* the rest is demanded, too */
	bool seen;                 /* the plans name the file in this look */
};

/* A part of a file that is read now. */
struct part {
	struct ps_demand demand;
	struct ps_fill_file *file;
	uint64_t first, end; /* chunks */
	uint64_t until_ns;
};

struct ps_plan_ahead {
	struct ps_dataset *dataset;
	struct ps_plans *plans; /* NULL: the policy follows none */
	pthread_mutex_t lock;   /* protects what follows */
	pthread_cond_t wake;
	pthread_t thread;
	bool started, look, told;
	struct ps_plan_read reads[PS_PLAN_AHEAD_READS]; /* not demanded yet */
	size_t nreads;
	uint64_t nreads_calls, nreads_served; /* calls of ps_plan_ahead_reads() */
	_Atomic bool stopping;
	_Atomic bool any; /* the dataset had plans at the last look */
	/* Used by the thread alone. */
	struct begun *begun[PS_PLAN_AHEAD_FILES];
	size_t nbegun;
	struct part *parts[PS_PLAN_AHEAD_READS];
	size_t nparts;
	/* reads that no part was made for: tried again at the next looks, when the version may be confirmed */
	struct ps_plan_read late[PS_PLAN_AHEAD_READS];
	size_t nlate;
	uint64_t late_until_ns;
};

/* Cancels the demands, then releases the file. */
static void stop_fetching(struct begun *b)
{
	if (!b->file)
		return;
	ps_demand_cancel(&b->head);
	ps_demand_cancel(&b->rest);
	ps_fill_file_put(ps_steal_ptr(&b->file));
}

static void begun_free(struct begun *b)
{
	stop_fetching(b);
	free(b);
}

/* Ends fetching of files that are complete, and forgets those that were opened or that no plan expects any
 * more. */
static void review(struct ps_plan_ahead *a, const uint64_t *nodes, size_t n)
{
	size_t nleft = 0;

	for (size_t i = 0; i < a->nbegun; i++) {
		struct begun *b = a->begun[i];

		b->seen = false;
		for (size_t k = 0; k < n; k++)
			b->seen |= nodes[k] == b->node;
		if (!b->seen) {
			begun_free(b);
			continue;
		}
		struct ps_object *object = b->file ? ps_fill_file_object(b->file) : NULL;
		if (object && (ps_object_complete(object) || ps_object_gone(object)))
			stop_fetching(b);
		a->begun[nleft++] = b;
	}
	a->nbegun = nleft;
}

static struct begun *find(const struct ps_plan_ahead *a, uint64_t node)
{
	for (size_t i = 0; i < a->nbegun; i++)
		if (a->begun[i]->node == node)
			return a->begun[i];
	return NULL;
}

/* True if nbytes more may be fetched ahead of their open. */
static bool has_share(const struct ps_plan_ahead *a, uint64_t nbytes)
{
	uint64_t limit, used, reserved, lying = 0;
	size_t nlying = 0;

	ps_store_room(a->dataset->cache->store, &limit, &used, &reserved);
	for (size_t i = 0; i < a->nbegun; i++) {
		lying += a->begun[i]->nbytes;
		nlying += a->begun[i]->nbytes > 0;
	}
	return nlying < 2 || lying + nbytes <= limit / PS_PLAN_AHEAD_SHARE ||
	       used + reserved + nbytes <= limit;
}

struct ps_fill_file *ps_planned_file(struct ps_dataset *ds, uint64_t node, bool planned)
{
	uint64_t max_age_ms = planned ? PS_MAX(ds->revalidate_ms, PLANNED_AGE_MS) : ds->revalidate_ms;
	struct ps_node_row row = {0};
	struct ps_object *object = NULL;
	struct ps_fill_file *file = NULL;

	if (ps_index_get_node(ds->index, node, &row) < 0)
		return NULL;
	bool fresh = ps_dataset_confirmed(ds, &row, max_age_ms);
	if (row.kind == PS_NODE_FILE && !row.superseded && row.remote.size != PS_SIZE_UNKNOWN &&
	        (fresh || planned) && ps_view_object(ds, &row, false, &object) < 0)
		object = NULL;
	if (object && !fresh) {
		if (!ps_object_complete(object))
			ps_revalidate_version_ahead(ds, &row);
		ps_object_put(ps_steal_ptr(&object));
	}
	bool granted = object && ps_grant_of_row(ds, &row) == PS_GRANT_VALID;
	if (object && !granted && ps_object_cached_nbytes(object) > 0) {
		/* Without a grant all of it would be fetched again. */
		ps_revalidate_grant_ahead(ds, &row);
		ps_object_put(ps_steal_ptr(&object));
	}
	if (object && !ps_object_complete(object) && ps_view_file(ds, &row, false, granted, &file) < 0)
		file = NULL;
	ps_object_put(object);
	ps_node_row_fini(&row);
	return file;
}

/* Demands the head of a file. False: no further file may begin in this look. */
static bool begin(struct ps_plan_ahead *a, uint64_t node, unsigned *nto_memory)
{
	struct ps_fill *fill = a->dataset->cache->fill;
	struct ps_fill_file *file = ps_planned_file(a->dataset, node, true);

	if (!file)
		return true;
	struct ps_object *object = ps_fill_file_object(file);
	uint64_t nbytes = ps_object_size(object), nblocks = HEAD_BLOCKS;
	struct begun *b = has_share(a, nbytes) ? calloc(1, sizeof(*b)) : NULL;
	if (!b) {
		ps_fill_file_put(file);
		return false;
	}
	*b = (struct begun){.node = node, .file = file, .nbytes = nbytes};
	ps_demand_init(&b->head, file, PS_DEMAND_NEXT);
	ps_demand_init(&b->rest, file, PS_DEMAND_NEXT);
	if (ps_object_admit(object) < 0 || !ps_object_fits(object)) {
		uint64_t room = ps_fill_memory_bytes(fill) / 8 / PS_BLOCK_SIZE;

		b->to_memory = true;
		b->nbytes = 0;
		nblocks = PS_MAX(room, 1u);
		if (++*nto_memory > PS_PLAN_AHEAD_TO_MEMORY) {
			begun_free(b);
			return false;
		}
	}
	a->begun[a->nbegun++] = b;
	ps_demand_extend(&b->head, 0, nblocks * PS_BLOCK_CHUNKS, 0);
	return true;
}

static void look(struct ps_plan_ahead *a)
{
	uint64_t nodes[PS_PLAN_AHEAD_FILES];
	unsigned nwhole = 0, nto_memory = 0;
	size_t n = ps_plans_next(a->plans, a->dataset->catalog->row.number, nodes, PS_ARRAY_LEN(nodes));

	review(a, nodes, n);
	for (size_t i = 0; i < a->nbegun; i++) {
		nwhole += a->begun[i]->file && a->begun[i]->has_rest;
		nto_memory += a->begun[i]->to_memory;
	}
	for (size_t i = 0; i < n && !a->stopping; i++)
		if (!find(a, nodes[i]) && !begin(a, nodes[i], &nto_memory))
			break;
	for (size_t i = 0; i < a->nbegun && nwhole < PS_PLAN_AHEAD_AT_ONCE; i++) {
		struct begun *b = a->begun[i];

		if (!b->file || b->to_memory || b->has_rest)
			continue;
		b->has_rest = true;
		ps_demand_extend(&b->rest, HEAD_BLOCKS * PS_BLOCK_CHUNKS, UINT64_MAX, 0);
		nwhole++;
	}
	ps_fill_pump(a->dataset->cache->fill);
}

/* What is read now --------------------------------------------------------------------------------------- */

static void part_free(struct part *part)
{
	ps_demand_cancel(&part->demand);
	ps_fill_file_put(part->file);
	free(part);
}

/* Forgets parts that were requested, and those that need not be any more. */
static void review_parts(struct ps_plan_ahead *a, uint64_t now_ns)
{
	size_t nleft = 0;

	for (size_t i = 0; i < a->nparts; i++) {
		struct part *part = a->parts[i];

		if (now_ns < part->until_ns && ps_demand_is_queued(&part->demand) &&
		        !ps_object_gone(ps_fill_file_object(part->file)))
			a->parts[nleft++] = part;
		else
			part_free(part);
	}
	a->nparts = nleft;
}

/* NULL: the file is not worth fetching, or its version must be confirmed first; or the cache does not admit it,
 * and its reader fetches it. */
static struct part *part_new(struct ps_plan_ahead *a, const struct ps_plan_read *read, uint64_t now_ns)
{
	struct ps_fill_file *file = ps_planned_file(a->dataset, read->node, true);
	struct ps_object *object = file ? ps_fill_file_object(file) : NULL;
	struct part *part = NULL;

	if (object && ps_object_admit(object) == 0 && ps_object_fits(object))
		part = malloc(sizeof(*part));
	if (!part) {
		if (file)
			ps_fill_file_put(file);
		return NULL;
	}
	uint64_t nbytes = PS_MIN(PS_MAX(read->nbytes, READ_NBYTES), READ_MAX_NBYTES);
	*part = (struct part){.file = file,
	        .first = read->from / PS_CHUNK_SIZE,
	        .until_ns = now_ns + READ_KEPT_MS * PS_NS_PER_MS};
	part->end = part->first + (read->from % PS_CHUNK_SIZE + nbytes + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE;
	ps_demand_init(&part->demand, file, PS_DEMAND_AHEAD);
	return part;
}

/* Demands the parts, which share the connections. */
static void demand_parts(struct ps_plan_ahead *a, const struct ps_plan_read *reads, size_t n)
{
	uint64_t now_ns = ps_clock_mono_ns(), nchunks = 0;

	review_parts(a, now_ns);
	size_t before = a->nparts;
	for (size_t i = 0; i < n && a->nparts < PS_PLAN_AHEAD_READS; i++) {
		struct part *part = part_new(a, &reads[i], now_ns);

		if (!part) {
			if (a->nlate < PS_PLAN_AHEAD_READS)
				a->late[a->nlate++] = reads[i];
			continue;
		}
		a->parts[a->nparts++] = part;
		nchunks += part->end - part->first;
	}
	for (size_t i = before; i < a->nparts; i++) {
		struct part *part = a->parts[i];

		ps_demand_extend(&part->demand, part->first, part->end, nchunks);
	}
	ps_fill_pump(a->dataset->cache->fill);
}

static void demand_late(struct ps_plan_ahead *a, uint64_t now_ns)
{
	struct ps_plan_read reads[PS_PLAN_AHEAD_READS];
	size_t n = now_ns < a->late_until_ns ? a->nlate : 0;

	memcpy(reads, a->late, n * sizeof(*reads));
	a->nlate = 0;
	if (n > 0)
		demand_parts(a, reads, n);
}

/* The lock is held, and dropped meanwhile. */
static void serve_reads(struct ps_plan_ahead *a)
{
	struct ps_plan_read reads[PS_PLAN_AHEAD_READS];
	size_t n = a->nreads;
	uint64_t ncalls = a->nreads_calls;

	memcpy(reads, a->reads, n * sizeof(*reads));
	a->nreads = 0;
	pthread_mutex_unlock(&a->lock);
	a->late_until_ns = ps_clock_mono_ns() + READ_LATE_MS * PS_NS_PER_MS;
	demand_parts(a, reads, n);
	pthread_mutex_lock(&a->lock);
	a->nreads_served = ncalls;
	pthread_cond_broadcast(&a->wake);
}

/* The thread --------------------------------------------------------------------------------------------- */

/* The object of a file, if its size is known. */
static bool object_of(struct ps_dataset *ds, const struct ps_node_row *row, struct ps_id *ret)
{
	struct ps_object *object;

	if (row->kind != PS_NODE_FILE || row->remote.size == PS_SIZE_UNKNOWN)
		return false;
	if (!row->coding) {
		ps_view_raw_id(ds, row, ret);
		return true;
	}
	if (ps_view_object(ds, row, false, &object) < 0)
		return false;
	*ret = *ps_object_key(object);
	ps_object_put(object);
	return true;
}

static void name_files(struct ps_plan_ahead *a)
{
	uint64_t nodes[NAMES_AT_ONCE];
	size_t cursor = 0, n;

	while ((n = ps_plans_nameless(
	                a->plans, a->dataset->catalog->row.number, &cursor, nodes, PS_ARRAY_LEN(nodes))) > 0)
		for (size_t i = 0; i < n; i++) {
			struct ps_plan_file file = {.node = nodes[i]};
			struct ps_node_row row = {0};

			if (ps_index_get_node(a->dataset->index, nodes[i], &row) < 0)
				continue;
			if (object_of(a->dataset, &row, &file.id))
				ps_plans_name(a->plans, &file);
			ps_node_row_fini(&row);
		}
}

static void *plan_ahead_main(void *arg)
{
	struct ps_plan_ahead *a = arg;
	uint64_t looked_ns = 0;

	pthread_mutex_lock(&a->lock);
	while (!a->stopping) {
		uint64_t now_ns = ps_clock_mono_ns();
		uint64_t every_ms = a->look ? LOOK_EVERY_MS : IDLE_MS;

		if (a->nreads > 0) {
			serve_reads(a);
			continue;
		}
		if (now_ns < looked_ns + every_ms * PS_NS_PER_MS) {
			/* Events that come shortly after each other are handled together. */
			ps_cond_wait_until(&a->wake, &a->lock, looked_ns + every_ms * PS_NS_PER_MS);
			continue;
		}
		bool names = a->told || !a->look;
		a->look = a->told = false;
		looked_ns = now_ns;
		pthread_mutex_unlock(&a->lock);
		review_parts(a, now_ns);
		demand_late(a, now_ns);
		ps_plans_expire(a->plans, (double)ps_clock_real_ms() / 1000);
		atomic_store(&a->any, ps_plans_any(a->plans, a->dataset->catalog->row.number));
		if (names)
			name_files(a);
		look(a);
		pthread_mutex_lock(&a->lock);
		a->look = a->look || a->nlate > 0;
	}
	pthread_mutex_unlock(&a->lock);
	for (size_t i = 0; i < a->nbegun; i++)
		begun_free(a->begun[i]);
	review_parts(a, UINT64_MAX);
	return NULL;
}

int ps_plan_ahead_new(struct ps_dataset *dataset, struct ps_plan_ahead **ret)
{
	struct ps_plan_ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->dataset = dataset;
	a->plans = ps_store_plans(dataset->cache->store);
	pthread_mutex_init(&a->lock, NULL);
	ps_cond_init(&a->wake);
	*ret = a;
	return 0;
}

void ps_plan_ahead_free(struct ps_plan_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stopping = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
	if (a->started)
		pthread_join(a->thread, NULL);
	pthread_cond_destroy(&a->wake);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* The lock is held. */
static void start(struct ps_plan_ahead *a)
{
	if (a->started || a->stopping)
		return;
	a->started = ps_thread_start(&a->thread, "dataset-plan", plan_ahead_main, a) == 0;
	if (!a->started)
		ps_log_warning("plan: %s: no thread to fetch ahead", ps_dataset_source(a->dataset));
}

void ps_plan_ahead_told(struct ps_plan_ahead *a)
{
	atomic_store(&a->any, true);
	PS_LOCK_SCOPE(&a->lock);
	start(a);
	a->look = a->told = true;
	pthread_cond_broadcast(&a->wake);
}

void ps_plan_ahead_reads(struct ps_plan_ahead *a, const struct ps_plan_read *reads, size_t n)
{
	PS_LOCK_SCOPE(&a->lock);
	size_t before = a->nreads;
	for (size_t i = 0; i < n && a->nreads < PS_PLAN_AHEAD_READS; i++)
		if (reads[i].dataset == a->dataset->catalog->row.number)
			a->reads[a->nreads++] = reads[i];
	if (a->nreads == before)
		return;
	start(a);
	uint64_t mine = ++a->nreads_calls;
	pthread_cond_broadcast(&a->wake);
	/* The loader opens its first files next: what it needs of them must be demanded before that. */
	uint64_t until_ns = ps_clock_mono_ns() + PS_PLAN_AHEAD_FIRST_MS * PS_NS_PER_MS;
	while (a->started && a->nreads_served < mine && !a->stopping && ps_clock_mono_ns() < until_ns)
		ps_cond_wait_until(&a->wake, &a->lock, until_ns);
}

bool ps_plan_ahead_opened(struct ps_plan_ahead *a)
{
	if (!atomic_load(&a->any))
		return false;
	PS_LOCK_SCOPE(&a->lock);
	a->look = true;
	pthread_cond_signal(&a->wake);
	return true;
}
