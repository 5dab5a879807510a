/* What a dataset says of itself: its root, its numbers, its statistics. */
#include "catalog/catalog_private.h"

#include "base/clock.h"
#include "base/size.h"
#include "base/stats.h"
#include "listing/listing.h"
#include "origin/origin.h"

uint64_t ps_dataset_root(const struct ps_dataset *ds)
{
	return ds->catalog->row.root;
}

int64_t ps_dataset_root_mtime_s(const struct ps_dataset *ds)
{
	struct ps_node_row row;

	if (ps_index_get_node(ds->index, ds->catalog->row.root, &row) < 0)
		return 0;
	int64_t mtime_s = PS_MAX(row.remote.mtime_s, 0);
	ps_node_row_fini(&row);
	return mtime_s;
}

uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *ds)
{
	return ds->revalidate_ms;
}

const char *ps_dataset_source(const struct ps_dataset *ds)
{
	return ds->catalog->row.source;
}

bool ps_dataset_versionless(const struct ps_dataset *ds)
{
	return atomic_load(&ds->catalog->versionless);
}

bool ps_dataset_unranged(const struct ps_dataset *ds)
{
	const struct ps_origin *origin = ds->origin->base ? ds->origin->base : ds->origin;

	return origin->unranged && atomic_load(origin->unranged);
}

static json_t *missing_names(struct ps_catalog *catalog, uint64_t *ret_n)
{
	json_t *names = json_array();

	PS_LOCK_SCOPE(&catalog->lock);
	*ret_n = catalog->nmissing;
	for (size_t i = 0; i < PS_DATASET_MISSING; i++)
		if (catalog->missing[i])
			json_array_append_new(names, ps_json_lossy(catalog->missing[i]));
	return names;
}

/* Names that are looked at one by one: of more, counting would hold up who asks for the statistics. */
#define COUNT_MAX_NAMES 20000
#define COUNT_SHARE 50 /* counting takes at most one part in this many of the time */

/* The sum of a number over the files below a directory. */
static uint64_t sum_below(struct ps_dataset *ds, uint64_t dir, int depth,
        uint64_t (*of)(struct ps_dataset *ds, const struct ps_node_row *row))
{
	struct ps_index_children *it;
	const char *name;
	uint64_t node, sum = 0;

	if (depth > PS_LIST_MAX_DEPTH || ps_index_children_open(ds->index, dir, &it) < 0)
		return 0;
	while (ps_index_children_next(it, &name, &node)) {
		struct ps_node_row row;

		if (ps_index_get_node(ds->index, node, &row) < 0)
			continue;
		if (row.kind == PS_NODE_DIR)
			sum += sum_below(ds, node, depth + 1, of);
		else if (row.remote.size != PS_SIZE_UNKNOWN)
			sum += of(ds, &row);
		ps_node_row_fini(&row);
	}
	ps_index_children_close(it);
	return sum;
}

static uint64_t shown_nbytes(struct ps_dataset *ds, const struct ps_node_row *row)
{
	uint64_t size = ps_view_size(ds, row);

	return size == PS_SIZE_UNKNOWN ? 0 : size;
}

/* Counts again if that is due. Two threads may count at the same time, and come to the same. */
static uint64_t counted(struct ps_dataset *ds, struct ps_counted *c,
        uint64_t (*of)(struct ps_dataset *ds, const struct ps_node_row *row))
{
	uint64_t now_ns = ps_clock_mono_ns();
	{
		PS_LOCK_SCOPE(&ds->lock);
		if (now_ns < c->again_ns)
			return c->nbytes;
	}
	uint64_t nbytes = sum_below(ds, ds->catalog->row.root, 0, of), end_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&ds->lock);
	c->nbytes = nbytes;
	c->again_ns = end_ns + (end_ns - now_ns) * COUNT_SHARE;
	return nbytes;
}

uint64_t ps_dataset_nbytes(struct ps_dataset *ds)
{
	int64_t listed_ms;

	if (ps_dataset_listed_files(ds, &listed_ms) > COUNT_MAX_NAMES)
		return 0;
	return counted(ds, &ds->shown, shown_nbytes);
}

/* The store books each object to the dataset that opened it last, so if there are other datasets, files of this one
 * may be booked to them. */
static bool must_count(struct ps_dataset *ds, uint64_t nfiles)
{
	return nfiles <= COUNT_MAX_NAMES && ps_store_has_others(ds->cache->store, ds->catalog->row.number);
}

void ps_dataset_count(struct ps_dataset *ds)
{
	int64_t listed_ms;

	if (must_count(ds, ps_dataset_listed_files(ds, &listed_ms)))
		(void)counted(ds, &ds->cached, ps_view_cached_nbytes);
}

json_t *ps_dataset_stats(struct ps_dataset *ds)
{
	int64_t listed_ms;
	uint64_t nmissing, nfiles = ps_dataset_listed_files(ds, &listed_ms);
	json_t *names = missing_names(ds->catalog, &nmissing);

	json_t *include = json_array(), *exclude = json_array(), *unmatched = json_array();
	bool excludes, in_vain;
	const char *pattern;
	for (size_t i = 0; (pattern = ps_listing_filter_pattern(ds->filter, i, &excludes, &in_vain)); i++) {
		json_array_append_new(excludes ? exclude : include, ps_json_lossy(pattern));
		if (in_vain)
			json_array_append_new(unmatched, ps_json_lossy(pattern));
	}

	/* What the dataset's files have in the cache, without counting. */
	uint64_t cached = ps_store_dataset_nbytes(ds->cache->store, ds->catalog->row.number);
	bool counts = must_count(ds, nfiles);
	json_t *tier = ds->origin->tiers ? ps_tiers_stats(ds->origin->tiers) : NULL;

	PS_LOCK_SCOPE(&ds->lock);
	if (counts)
		cached = PS_MAX(ds->cached.nbytes, cached);
	uint64_t now_ns = ps_clock_mono_ns(), due = ps_dataset_due_ns(ds);
	json_int_t next = ps_clock_real_s() + (json_int_t)((due > now_ns ? due - now_ns : 0) / PS_NS_PER_S);
	return ps_figures_json(PS_SECTION_mount, &ds->counters,
	        "{s:I,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:I,s:b,s:o,s:b,s:I,s:o,s:b,s:I,s:s,s:o,s:o*}",
	        "cached_bytes", (json_int_t)cached, "include", include, "exclude", exclude, "unmatched",
	        unmatched, "source", ps_json_lossy(ds->catalog->row.source), "files",
	        (json_int_t)(nfiles - PS_MIN(nmissing, nfiles)), "listed_at", (json_int_t)(listed_ms / 1000),
	        "next_listing_at", due == UINT64_MAX ? json_null() : json_integer(next), "refresh_seconds",
	        (json_int_t)(ds->refresh_ms / 1000), "listing", (int)(ds->ended < ds->asked), "listing_error",
	        ps_json_lossy(ds->ended > 0 && !ds->listing_ok ? ds->listing_error.text : ""), "offline",
	        (int)atomic_load(&ds->offline), "missing", (json_int_t)nmissing, "missing_names", names,
	        "versionless", (int)ps_dataset_versionless(ds), "skipped",
	        (json_int_t)atomic_load(&ds->origin->lister.nskipped), "version_by",
	        ds->by_size ? "size" : "version", "route", ps_json_lossy(ds->route_text), "tier", tier);
}
