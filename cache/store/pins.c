#include "store/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static uint64_t pin_nbytes(const struct ps_object *object)
{
	uint64_t nbytes = ps_object_full_charge(object);

	/* For each extent, its part of the file system's map is counted. */
	return object->by_extent ? nbytes + object->nextents * PS_EXTENT_MAP_NBYTES : nbytes;
}

static void set_entry(struct ps_store *store, const struct ps_id *id, bool pinned)
{
	struct ps_entry *entry = ps_quota_find(store, id);

	if (!entry || entry->pinned == pinned)
		return;
	entry->pinned = pinned;
	ps_quota_update_busy(store, entry);
}

static void touch(struct ps_store *store, struct ps_pin *pin)
{
	pin->dirty = true;
	ps_commit_pins_locked(store);
}

static struct ps_pin *pin_new(struct ps_store *store, const struct ps_pin_row *row)
{
	struct ps_pin *pin = calloc(1, sizeof(*pin));

	if (!pin)
		return NULL;
	pin->row = *row;
	pin->row.url = strdup(row->url);
	if (pin->row.url)
		HASH_ADD(hh, store->pins, row.url_id, sizeof(pin->row.url_id), pin);
	if (pin->row.url && pin->hh.tbl) {
		store->pinned_nbytes += row->nbytes;
		return pin;
	}
	free(pin->row.url);
	free(pin);
	return NULL;
}

static void let_go(struct ps_store *store, struct ps_pin *pin)
{
	pin->deleted = true;
	store->pinned_nbytes -= pin->row.nbytes;
	set_entry(store, &pin->row.object_id, false);
	touch(store, pin);
}

void ps_pin_follow(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_pin *pin = ps_pin_find(store, object->url);

	if (!pin || pin->deleted || ps_id_cmp(&pin->row.object_id, &object->id) == 0)
		return;
	set_entry(store, &pin->row.object_id, false);
	store->pinned_nbytes -= pin->row.nbytes;
	pin->row.object_id = object->id;
	pin->row.nbytes = pin_nbytes(object);
	store->pinned_nbytes += pin->row.nbytes;
	set_entry(store, &object->id, true);
	touch(store, pin);
	if (store->pinned_nbytes > ps_store_data_limit(store))
		ps_log_warning("pin: %s: its new version and the other pinned files exceed the cache's limit",
		        object->url);
}

unsigned ps_pins_count(const struct ps_store *store)
{
	unsigned n = 0;

	for (const struct ps_pin *pin = store->pins; pin; pin = pin->hh.next)
		n += !pin->deleted;
	return n;
}

/* Starting and ending ------------------------------------------------------------------------------------ */

static int load_row(void *arg, const struct ps_pin_row *row)
{
	struct ps_store *store = arg;

	if (!pin_new(store, row))
		return -ENOMEM;
	set_entry(store, &row->object_id, true);
	return 0;
}

int ps_pins_load(struct ps_store *store)
{
	return ps_index_each_pin(store->index, load_row, store);
}

void ps_pins_free(struct ps_store *store)
{
	struct ps_pin *pin, *next;

	HASH_ITER (hh, store->pins, pin, next)
		ps_pin_free(store, pin);
}

/* Pins of objects; without store->lock ------------------------------------------------------------------- */

bool ps_object_pinned(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);
	return ps_pin_holds(object);
}

bool ps_object_url_pinned(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);
	const struct ps_pin *pin = ps_pin_find(object->store, object->url);

	return pin && !pin->deleted;
}

uint64_t ps_object_pin_nbytes(struct ps_object *object)
{
	PS_LOCK_SCOPE(&object->store->lock);
	return ps_pin_holds(object) ? 0 : pin_nbytes(object);
}

static int pin_locked(struct ps_object *object)
{
	struct ps_store *store = object->store;
	struct ps_pin_row row = {.object_id = object->id, .nbytes = pin_nbytes(object), .url = object->url};
	struct ps_pin *pin = ps_pin_find(store, object->url);

	if (pin && !pin->deleted) {
		ps_pin_follow(object);
		return 0;
	}
	if (store->pinned_nbytes + row.nbytes > ps_store_data_limit(store))
		return -ENOSPC;
	ps_pin_id(object->url, &row.url_id);
	if (pin) { /* the URL was unpinned, but the pin's row is not deleted yet: write it instead */
		pin->row.object_id = row.object_id;
		pin->row.nbytes = row.nbytes;
		pin->deleted = false;
		store->pinned_nbytes += row.nbytes;
	} else {
		pin = pin_new(store, &row);
	}
	if (!pin)
		return -ENOMEM;
	set_entry(store, &object->id, true);
	touch(store, pin);
	return 0;
}

int ps_object_pin(struct ps_object *object, uint64_t *ret_nbytes)
{
	struct ps_store *store = object->store;
	bool was_pinned;
	int rc;
	{
		PS_LOCK_SCOPE(&store->lock);
		const struct ps_pin *old = ps_pin_find(store, object->url);
		uint64_t nbytes = ps_pin_holds(object) ? 0 : pin_nbytes(object);
		was_pinned = old && !old->deleted;
		rc = pin_locked(object);
		if (rc == 0)
			*ret_nbytes = nbytes;
	}
	if (rc < 0)
		return rc;
	rc = ps_store_commit(store);
	if (rc == 0)
		return 0;
	/* The pin's row was not written, so the pin is undone, unless the URL was pinned before. */
	PS_LOCK_SCOPE(&store->lock);
	struct ps_pin *pin = ps_pin_find(store, object->url);
	if (pin && !pin->deleted && !was_pinned)
		let_go(store, pin);
	return rc == -ENOMEM ? rc : -EIO; /* not -ENOSPC, which would mean that the quota is exceeded */
}

int ps_object_unpin(struct ps_object *object, uint64_t *ret_nbytes)
{
	struct ps_store *store = object->store;
	{
		PS_LOCK_SCOPE(&store->lock);
		struct ps_pin *pin = ps_pin_find(store, object->url);
		*ret_nbytes = 0;
		if (!pin || pin->deleted)
			return 0;
		*ret_nbytes = pin->row.nbytes;
		let_go(store, pin);
	}
	return ps_store_commit(store);
}

int ps_store_unpin(struct ps_store *store, bool (*matches)(const void *arg, const char *url), const void *arg,
        uint64_t *ret_objects, uint64_t *ret_nbytes)
{
	uint64_t nobjects = 0, nbytes = 0;
	{
		PS_LOCK_SCOPE(&store->lock);
		for (struct ps_pin *pin = store->pins; pin; pin = pin->hh.next) {
			if (pin->deleted || !matches(arg, pin->row.url))
				continue;
			nobjects++;
			nbytes += pin->row.nbytes;
			let_go(store, pin);
		}
	}
	*ret_objects = nobjects;
	*ret_nbytes = nbytes;
	return ps_store_commit(store);
}
