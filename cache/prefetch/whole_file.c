#include "prefetch/prefetch.h"

#include <fnmatch.h>
#include <string.h>

#include "base/size.h"
#include "catalog/dataset.h"
#include "policy/policy.h"

/* True if the missing bytes fit without any eviction. */
static bool has_room(struct ps_store *store, struct ps_object *object, uint64_t missing)
{
	uint64_t limit, used, reserved;

	if (ps_object_admit(object) < 0 || !ps_object_fits(object))
		return false;
	if (ps_object_is_reserved(object))
		return true;
	ps_store_room(store, &limit, &used, &reserved);
	return used + reserved + missing <= limit;
}

/* Notes that the file has so many cached bytes. False: it has lost some since it was last noted. */
static bool note(struct ps_dataset *ds, uint64_t node, uint64_t cached)
{
	PS_LOCK_SCOPE(&ds->lock);
	struct ps_noted_whole *slot = &ds->wholes[node % PS_ARRAY_LEN(ds->wholes)];

	if (slot->node == node && cached < slot->nbytes)
		return false;
	*slot = (struct ps_noted_whole){.node = node, .nbytes = cached};
	return true;
}

bool ps_whole_file_due(struct ps_dataset *ds, uint64_t node, struct ps_fill_file *file)
{
	struct ps_store *store = ds->cache->store;
	struct ps_object *object = ps_fill_file_object(file);
	uint64_t cached = ps_object_cached_nbytes(object), missing = ps_object_size(object) - cached;
	struct ps_plans *plans = ps_store_plans(store);

	return missing > 0 && missing <= PS_WHOLE_FILE_NBYTES && ps_fill_file_is_scattered(file, missing) &&
	       !(ds->whole && strcmp(ds->whole, "none") == 0) &&
	       !(plans && ps_plans_any(plans, ds->catalog->row.number)) && has_room(store, object, missing) &&
	       note(ds, node, cached);
}

void ps_whole_file_closed(struct ps_dataset *ds, uint64_t node, struct ps_fill_file *file)
{
	(void)note(ds, node, ps_object_cached_nbytes(ps_fill_file_object(file)));
}

bool ps_whole_file_named(const struct ps_dataset *ds, const char *name)
{
	return ds->whole && strcmp(ds->whole, "none") != 0 && fnmatch(ds->whole, name, 0) == 0;
}
