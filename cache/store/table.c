/* The table of what is cached: an entry a data file, and the policy's view of all of them in one array. */
#include <stdlib.h>

#include "store/store_private.h"

#define TABLE_FIRST_CAP 64

static int table_grow(struct ps_store *store)
{
	size_t cap = store->items_cap ? 2 * store->items_cap : TABLE_FIRST_CAP;

	/* Each array that did grow is kept: the capacity counts only once all three have it. */
	void *items = reallocarray(store->items, cap, sizeof *store->items);
	if (items)
		store->items = items;
	void *slots = reallocarray(store->slots, cap, sizeof(struct ps_entry *));
	if (slots)
		store->slots = slots;
	void *victims = reallocarray(store->victims, cap, sizeof *store->victims);
	if (victims)
		store->victims = victims;
	if (!items || !slots || !victims)
		return -1;
	store->items_cap = cap;
	return 0;
}

struct ps_entry *ps_table_add(
        struct ps_store *store, const struct ps_id *id, uint32_t nextents, uint64_t nbytes)
{
	if (store->nitems == store->items_cap && table_grow(store) < 0)
		return NULL;
	struct ps_entry *entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	entry->id = *id;
	entry->nextents = nextents;
	entry->slot = store->nitems;
	HASH_ADD(hh, store->entries, id, sizeof entry->id, entry);
	if (!entry->hh.tbl) {
		free(entry);
		return NULL;
	}
	store->slots[store->nitems] = entry;
	store->items[store->nitems++] = (struct ps_policy_item){.id = *id, .nbytes = nbytes};
	store->used_nbytes += nbytes;
	return entry;
}

struct ps_entry *ps_table_find(struct ps_store *store, const struct ps_id *id)
{
	struct ps_entry *entry = NULL;

	HASH_FIND(hh, store->entries, id, sizeof *id, entry);
	return entry;
}

void ps_table_remove(struct ps_store *store, struct ps_entry *entry)
{
	size_t last = --store->nitems;

	store->items[entry->slot] = store->items[last];
	store->slots[entry->slot] = store->slots[last];
	store->slots[entry->slot]->slot = entry->slot;
	HASH_DELETE(hh, store->entries, entry);
	free(entry);
}

struct ps_policy_item *ps_table_item(struct ps_store *store, const struct ps_entry *entry)
{
	return &store->items[entry->slot];
}

void ps_table_charge(struct ps_store *store, struct ps_entry *entry, uint64_t nbytes)
{
	struct ps_policy_item *item = ps_table_item(store, entry);

	store->used_nbytes += nbytes - item->nbytes;
	item->nbytes = nbytes;
}

void ps_table_free(struct ps_store *store)
{
	struct ps_entry *entry, *next;

	HASH_ITER (hh, store->entries, entry, next) {
		HASH_DELETE(hh, store->entries, entry);
		free(entry);
	}
	free(store->items);
	free(store->slots);
	free(store->victims);
	store->items = NULL;
	store->slots = NULL;
	store->victims = NULL;
	store->nitems = store->items_cap = 0;
}
