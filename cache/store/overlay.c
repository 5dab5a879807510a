#include "store/overlay.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashtable.h"

#define ROW_COST 128 /* of memory besides its bytes */

struct row {
	UT_hash_handle hh;
	bool deleted;
	size_t nkey, nvalue;
	char bytes[]; /* key, value */
};

struct ps_overlay {
	pthread_mutex_t lock;
	struct row *rows;
	size_t nbytes;
	_Atomic size_t nrows; /* so that who reads while there are none takes no lock */
};

struct ps_overlay *ps_overlay_new(void)
{
	struct ps_overlay *overlay = calloc(1, sizeof *overlay);

	if (overlay)
		pthread_mutex_init(&overlay->lock, NULL);
	return overlay;
}

void ps_overlay_free(struct ps_overlay *overlay)
{
	if (!overlay)
		return;
	ps_overlay_clear(overlay);
	pthread_mutex_destroy(&overlay->lock);
	free(overlay);
}

static size_t cost(const struct row *row)
{
	return ROW_COST + row->nkey + row->nvalue;
}

static void drop(struct ps_overlay *overlay, struct row *row)
{
	HASH_DEL(overlay->rows, row);
	overlay->nbytes -= cost(row);
	overlay->nrows--;
	free(row);
}

bool ps_overlay_has_room(struct ps_overlay *overlay, size_t nrows, size_t nbytes)
{
	PS_LOCK_SCOPE(&overlay->lock);
	return overlay->nbytes + nrows * ROW_COST + nbytes <= PS_OVERLAY_MAX_NBYTES;
}

int ps_overlay_put(struct ps_overlay *overlay, const void *key, size_t nkey, const void *value, size_t nvalue)
{
	struct row *old, *row = malloc(sizeof *row + nkey + nvalue);

	if (!row)
		return -ENOMEM;
	*row = (struct row){.deleted = !value, .nkey = nkey, .nvalue = nvalue};
	memcpy(row->bytes, key, nkey);
	if (nvalue)
		memcpy(row->bytes + nkey, value, nvalue);
	PS_LOCK_SCOPE(&overlay->lock);
	HASH_FIND(hh, overlay->rows, key, nkey, old);
	if (old)
		drop(overlay, old);
	HASH_ADD_KEYPTR(hh, overlay->rows, row->bytes, nkey, row);
	if (!row->hh.tbl) {
		free(row);
		return -ENOMEM;
	}
	overlay->nbytes += cost(row);
	overlay->nrows++;
	return 0;
}

int ps_overlay_get(struct ps_overlay *overlay, const void *key, size_t nkey, struct ps_strbuf *value)
{
	struct row *row;

	if (ps_overlay_is_empty(overlay))
		return -ENODATA;
	PS_LOCK_SCOPE(&overlay->lock);
	HASH_FIND(hh, overlay->rows, key, nkey, row);
	if (!row)
		return -ENODATA;
	if (row->deleted)
		return -ENOENT;
	ps_strbuf_reset(value);
	ps_strbuf_addn(value, row->bytes + row->nkey, row->nvalue);
	return value->failed ? -ENOMEM : 0;
}

size_t ps_overlay_nbytes(struct ps_overlay *overlay)
{
	PS_LOCK_SCOPE(&overlay->lock);
	return overlay->nbytes;
}

bool ps_overlay_is_empty(const struct ps_overlay *overlay)
{
	return overlay->nrows == 0;
}

void ps_overlay_each(struct ps_overlay *overlay,
        void (*fn)(void *arg, const void *key, size_t nkey, const void *value, size_t nvalue), void *arg)
{
	PS_LOCK_SCOPE(&overlay->lock);
	for (struct row *row = overlay->rows; row; row = row->hh.next)
		fn(arg, row->bytes, row->nkey, row->deleted ? NULL : row->bytes + row->nkey, row->nvalue);
}

void ps_overlay_clear(struct ps_overlay *overlay)
{
	struct row *row, *next;

	PS_LOCK_SCOPE(&overlay->lock);
	HASH_ITER (hh, overlay->rows, row, next)
		drop(overlay, row);
}
