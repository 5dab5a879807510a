/* The entries, one for each data file, and the array of all items for the eviction policy: one for a file,
 * or one for each of its extents. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_private.h"

#define TABLE_FIRST_CAP 64

static int table_grow(struct ps_store *store)
{
	size_t cap = store->items_cap ? 2 * store->items_cap : TABLE_FIRST_CAP;

	if (cap > PS_NO_SLOT)
		return -1;
	/* If one array has grown and the next one cannot, the grown one is kept: items_cap changes only
	 * once all three have that size. */
	void *items = reallocarray(store->items, cap, sizeof(*store->items));
	if (items)
		store->items = items;
	void *places = reallocarray(store->places, cap, sizeof(*store->places));
	if (places)
		store->places = places;
	void *victims = reallocarray(store->victims, cap, sizeof(*store->victims));
	if (victims)
		store->victims = victims;
	if (!items || !places || !victims)
		return -1;
	store->items_cap = cap;
	return 0;
}

/* The member that holds the slot of this place's item. */
static uint32_t *slot_of(const struct ps_place *place)
{
	return place->entry->charges ? &place->entry->charges[place->extent].slot : &place->entry->slot;
}

static struct ps_policy_item *item_add(struct ps_store *store, struct ps_entry *entry, uint32_t extent)
{
	if (store->nitems == store->items_cap && table_grow(store) < 0)
		return NULL;
	struct ps_place place = {.entry = entry, .extent = extent};
	struct ps_policy_item item = {.id = entry->id, .seq = store->open_seq++};
	/* An extent's item has its own id, made from the object's. Ids are hashes, so this id is unique,
	 * too. */
	item.part = entry->charges ? extent + 1 : 0;
	ps_policy_part_id(&item.id, item.part);
	*slot_of(&place) = (uint32_t)store->nitems;
	store->places[store->nitems] = place;
	store->items[store->nitems] = item;
	return &store->items[store->nitems++];
}

static void item_remove(struct ps_store *store, uint32_t slot)
{
	size_t last = --store->nitems;
	uint32_t *gone = slot_of(&store->places[slot]);

	if (slot != last) {
		store->items[slot] = store->items[last];
		store->places[slot] = store->places[last];
		*slot_of(&store->places[slot]) = slot;
	}
	*gone = PS_NO_SLOT;
}

static void charges_free(struct ps_entry *entry)
{
	for (uint32_t i = 0; entry->charges && i < entry->nextents; i++)
		free(entry->charges[i].chunks);
	free(ps_steal_ptr(&entry->charges));
}

static void entry_free(struct ps_entry *entry)
{
	charges_free(entry);
	free(entry);
}

static struct ps_entry *entry_new(struct ps_store *store, const struct ps_id *id, uint32_t nextents)
{
	struct ps_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	entry->id = *id;
	entry->nextents = nextents;
	entry->slot = PS_NO_SLOT;
	HASH_ADD(hh, store->entries, id, sizeof(entry->id), entry);
	if (entry->hh.tbl)
		return entry;
	free(entry);
	return NULL;
}

struct ps_entry *ps_quota_add(
        struct ps_store *store, const struct ps_id *id, uint32_t nextents, uint64_t nbytes)
{
	struct ps_entry *entry = entry_new(store, id, nextents);
	struct ps_policy_item *item = entry ? item_add(store, entry, 0) : NULL;

	if (entry && !item) {
		HASH_DELETE(hh, store->entries, entry);
		free(entry);
	}
	if (!item)
		return NULL;
	item->nbytes = nbytes;
	store->used_nbytes += nbytes;
	entry->nrows = nextents;
	return entry;
}

struct ps_entry *ps_quota_add_by_extent(struct ps_store *store, const struct ps_id *id, uint32_t nextents)
{
	struct ps_charge *charges = calloc(nextents, sizeof(*charges));
	struct ps_entry *entry = charges ? entry_new(store, id, nextents) : NULL;

	if (!entry) {
		free(charges);
		return NULL;
	}
	for (uint32_t i = 0; i < nextents; i++)
		charges[i].slot = PS_NO_SLOT;
	entry->charges = charges;
	return entry;
}

struct ps_entry *ps_quota_find(struct ps_store *store, const struct ps_id *id)
{
	struct ps_entry *entry = NULL;

	HASH_FIND(hh, store->entries, id, sizeof(*id), entry);
	return entry;
}

void ps_quota_remove(struct ps_store *store, struct ps_entry *entry)
{
	if (entry->slot != PS_NO_SLOT)
		item_remove(store, entry->slot);
	for (uint32_t i = 0; entry->charges && i < entry->nextents; i++)
		if (entry->charges[i].slot != PS_NO_SLOT)
			item_remove(store, entry->charges[i].slot);
	HASH_DELETE(hh, store->entries, entry);
	entry_free(entry);
}

uint64_t ps_quota_nbytes(const struct ps_store *store, const struct ps_entry *entry)
{
	uint64_t sum = entry->slot != PS_NO_SLOT ? store->items[entry->slot].nbytes : 0;

	for (uint32_t i = 0; entry->charges && i < entry->nextents; i++)
		if (entry->charges[i].slot != PS_NO_SLOT)
			sum += store->items[entry->charges[i].slot].nbytes;
	return sum;
}

struct ps_policy_item *ps_quota_item(struct ps_store *store, const struct ps_entry *entry)
{
	return &store->items[entry->slot];
}

void ps_quota_charge(struct ps_store *store, struct ps_entry *entry, uint64_t nbytes)
{
	struct ps_policy_item *item = ps_quota_item(store, entry);

	store->used_nbytes += nbytes - item->nbytes;
	item->nbytes = nbytes;
}

/* Extents ------------------------------------------------------------------------------------------------ */

struct ps_policy_item *ps_quota_extent(struct ps_store *store, const struct ps_entry *entry, uint32_t extent)
{
	uint32_t slot = entry->charges[extent].slot;

	return slot == PS_NO_SLOT ? NULL : &store->items[slot];
}

struct ps_policy_item *ps_quota_extent_make(struct ps_store *store, struct ps_entry *entry, uint32_t extent)
{
	struct ps_policy_item *item = ps_quota_extent(store, entry, extent);

	if (item)
		return item;
	item = item_add(store, entry, extent);
	if (item) {
		item->busy = entry->pinned;
		entry->ncharged++;
		entry->nrows = PS_MAX(entry->nrows, extent + 1);
	}
	return item;
}

void ps_quota_extent_drop(struct ps_store *store, struct ps_entry *entry, uint32_t extent)
{
	struct ps_charge *charge = &entry->charges[extent];

	store->used_nbytes -= store->items[charge->slot].nbytes;
	item_remove(store, charge->slot);
	charge->blocks = 0;
	free(ps_steal_ptr(&charge->chunks));
	entry->ncharged--;
}

int ps_quota_make_whole(struct ps_store *store, struct ps_entry *entry)
{
	uint64_t nbytes = ps_quota_nbytes(store, entry);
	struct ps_charge *charges = entry->charges;
	struct ps_policy_item newest = {.opened_s = 0};

	if (store->nitems == store->items_cap && table_grow(store) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < entry->nextents; i++) {
		if (charges[i].slot == PS_NO_SLOT)
			continue;
		if (store->items[charges[i].slot].opened_s >= newest.opened_s)
			newest = store->items[charges[i].slot];
		item_remove(store, charges[i].slot);
	}
	charges_free(entry);
	entry->ncharged = 0;
	entry->nrows = entry->nextents;
	struct ps_policy_item *item = item_add(store, entry, 0);
	item->dataset = newest.dataset;
	item->opened_s = newest.opened_s;
	item->nbytes = nbytes;
	ps_quota_update_busy(store, entry);
	return 0;
}

void ps_quota_update_busy(struct ps_store *store, const struct ps_entry *entry)
{
	bool held = entry->object && entry->object->users > 0;

	if (!entry->charges)
		ps_quota_item(store, entry)->busy = held || entry->pinned;
	for (uint32_t i = 0; entry->charges && i < entry->nextents; i++) {
		uint32_t slot = entry->charges[i].slot;
		if (slot != PS_NO_SLOT)
			store->items[slot].busy = entry->pinned || store->places[slot].leaving;
	}
}

void ps_quota_free(struct ps_store *store)
{
	struct ps_entry *entry, *next;

	HASH_ITER (hh, store->entries, entry, next) {
		HASH_DELETE(hh, store->entries, entry);
		entry_free(entry);
	}
	free(store->items);
	free(store->places);
	free(store->victims);
}

/* Bytes that count --------------------------------------------------------------------------------------- */

#define LARGE_SHARE 4 /* an object is large if it takes more than a quarter of the quota */
/* ext4 and XFS map a file with up to 4 extents in the inode; beyond that, each 4 KiB block maps 340, counted
 * here as 300. */
#define FS_BLOCK UINT64_C(4096)
#define FS_INLINE_EXTENTS 4
#define FS_EXTENTS_A_BLOCK 300

uint64_t ps_object_full_charge(const struct ps_object *object)
{
	uint64_t nbytes = (object->remote.size + FS_BLOCK - 1) / FS_BLOCK * FS_BLOCK;

	if (object->nblocks > FS_INLINE_EXTENTS)
		nbytes += FS_BLOCK * (1 + object->nblocks / FS_EXTENTS_A_BLOCK);
	return nbytes;
}

uint32_t ps_nextents_of_size(uint64_t size)
{
	size = PS_MIN(size, PS_OBJECT_MAX_NBYTES);
	uint64_t nblocks = (size + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE;
	return (uint32_t)((nblocks + PS_EXTENT_BLOCKS - 1) / PS_EXTENT_BLOCKS);
}

bool ps_extents_apply(const struct ps_store *store, uint64_t size)
{
	return store->can_punch && size > store->whole_nbytes / LARGE_SHARE &&
	       (size > PS_EXTENT_NBYTES || size > store->whole_nbytes);
}

uint64_t ps_store_data_limit(const struct ps_store *store)
{
	return store->limit_nbytes - PS_MIN(store->limit_nbytes, atomic_load(&store->room.index_nbytes));
}

uint64_t ps_chunks_disk_nbytes(uint64_t size, uint64_t block, uint16_t set)
{
	uint64_t nbytes = (unsigned)__builtin_popcount(set) * PS_CHUNK_SIZE;
	uint64_t last = (size - 1) / PS_CHUNK_SIZE;

	if (last / PS_BLOCK_CHUNKS == block && set >> (last % PS_BLOCK_CHUNKS) & 1)
		nbytes -= ((last + 1) * PS_CHUNK_SIZE - size) / FS_BLOCK * FS_BLOCK;
	return nbytes;
}

/* Pins, by URL ------------------------------------------------------------------------------------------- */

void ps_pin_id(const char *url, struct ps_id *ret)
{
	ps_id_of_strings((const char *[]){"pin", url}, 2, ret);
}

struct ps_pin *ps_pin_find(const struct ps_store *store, const char *url)
{
	struct ps_pin *pin = NULL;
	struct ps_id id;

	if (!store->pins)
		return NULL;
	ps_pin_id(url, &id);
	HASH_FIND(hh, store->pins, &id, sizeof(id), pin);
	return pin;
}

bool ps_pin_holds(const struct ps_object *object)
{
	const struct ps_pin *pin = ps_pin_find(object->store, object->url);

	return pin && !pin->deleted && ps_id_cmp(&pin->row.object_id, &object->id) == 0;
}

void ps_pin_free(struct ps_store *store, struct ps_pin *pin)
{
	HASH_DELETE(hh, store->pins, pin);
	ps_pin_row_fini(&pin->row);
	free(pin);
}
