#include "index/index_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROW_COST 128 /* memory of a row in addition to its bytes */

/* A sorted array of up to about thirty thousand pointers, so a new row moves a quarter of a megabyte at
 * most. ps_overlay_add() allocates everything before it changes anything, so it fails without an effect. */
struct ps_overlay {
	pthread_mutex_t lock;
	struct ps_overlay_rows rows;
	_Atomic size_t nrows; /* lets readers skip the lock while there are no rows */
};

/* Rows --------------------------------------------------------------------------------------------------- */

static size_t cost(const struct ps_overlay_row *row)
{
	return ROW_COST + row->nkey + row->nvalue;
}

static void unref(struct ps_overlay_row *row)
{
	if (--row->nrefs == 0)
		free(row);
}

int ps_overlay_compare(const void *a, size_t na, const void *b, size_t nb)
{
	size_t n = PS_MIN(na, nb);
	int order = n ? memcmp(a, b, n) : 0;

	return order ? order : (na > nb) - (na < nb);
}

void ps_overlay_rows_fini(struct ps_overlay_rows *rows)
{
	for (size_t i = 0; i < rows->n; i++)
		unref(rows->v[i]);
	free(rows->v);
	*rows = (struct ps_overlay_rows){0};
}

static bool reserve(struct ps_overlay_rows *rows, size_t nmore)
{
	if (nmore <= rows->cap - rows->n)
		return true;
	size_t cap = PS_MAX(rows->n + nmore, 2 * rows->cap);
	struct ps_overlay_row **v = reallocarray(rows->v, cap, sizeof(*v));
	if (!v)
		return false;
	rows->v = v;
	rows->cap = cap;
	return true;
}

void ps_overlay_rows_put(
        struct ps_overlay_rows *rows, const void *key, size_t nkey, const void *value, size_t nvalue)
{
	struct ps_overlay_row *row = NULL;

	if (rows->failed || !reserve(rows, 1) || !(row = malloc(sizeof(*row) + nkey + nvalue))) {
		rows->failed = true;
		return;
	}
	*row = (struct ps_overlay_row){
	        .nrefs = 1, .deleted = !value, .nkey = nkey, .nvalue = value ? nvalue : 0};
	memcpy(row->bytes, key, nkey);
	if (row->nvalue)
		memcpy(row->bytes + nkey, value, nvalue);
	rows->v[rows->n++] = row;
	rows->nbytes += cost(row);
}

size_t ps_overlay_rows_find(const struct ps_overlay_rows *rows, const void *key, size_t nkey)
{
	size_t low = 0, high = rows->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct ps_overlay_row *row = rows->v[middle];

		if (ps_overlay_compare(row->bytes, row->nkey, key, nkey) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_at(const struct ps_overlay_rows *rows, size_t at, const void *key, size_t nkey)
{
	return at < rows->n && ps_overlay_compare(rows->v[at]->bytes, rows->v[at]->nkey, key, nkey) == 0;
}

/* The overlay -------------------------------------------------------------------------------------------- */

struct ps_overlay *ps_overlay_new(void)
{
	struct ps_overlay *overlay = calloc(1, sizeof(*overlay));

	if (overlay)
		pthread_mutex_init(&overlay->lock, NULL);
	return overlay;
}

void ps_overlay_free(struct ps_overlay *overlay)
{
	if (!overlay)
		return;
	ps_overlay_rows_fini(&overlay->rows);
	pthread_mutex_destroy(&overlay->lock);
	free(overlay);
}

/* Adds a row, or replaces that of the same key. The caller has reserved room for it. */
static void insert(struct ps_overlay_rows *rows, struct ps_overlay_row *row)
{
	size_t at = ps_overlay_rows_find(rows, row->bytes, row->nkey);

	if (is_at(rows, at, row->bytes, row->nkey)) {
		rows->nbytes -= cost(rows->v[at]);
		unref(rows->v[at]);
	} else {
		memmove(rows->v + at + 1, rows->v + at, (rows->n - at) * sizeof(*rows->v));
		rows->n++;
	}
	rows->v[at] = row;
	row->nrefs++;
	rows->nbytes += cost(row);
}

int ps_overlay_add(struct ps_overlay *overlay, const struct ps_overlay_rows *rows)
{
	if (rows->failed)
		return -ENOMEM;
	PS_LOCK_SCOPE(&overlay->lock);
	if (overlay->rows.nbytes + rows->nbytes > PS_OVERLAY_MAX_NBYTES)
		return -ENOSPC;
	if (!reserve(&overlay->rows, rows->n))
		return -ENOMEM;
	for (size_t i = 0; i < rows->n; i++)
		insert(&overlay->rows, rows->v[i]);
	overlay->nrows = overlay->rows.n;
	return 0;
}

int ps_overlay_get(struct ps_overlay *overlay, const void *key, size_t nkey, struct ps_strbuf *value)
{
	if (ps_overlay_is_empty(overlay))
		return -ENODATA;
	PS_LOCK_SCOPE(&overlay->lock);
	size_t at = ps_overlay_rows_find(&overlay->rows, key, nkey);
	if (!is_at(&overlay->rows, at, key, nkey))
		return -ENODATA;
	const struct ps_overlay_row *row = overlay->rows.v[at];
	if (row->deleted)
		return -ENOENT;
	ps_strbuf_reset(value);
	ps_strbuf_addn(value, row->bytes + row->nkey, row->nvalue);
	return value->failed ? -ENOMEM : 0;
}

int ps_overlay_range(struct ps_overlay *overlay, const void *from, size_t nfrom, const void *to, size_t nto,
        struct ps_overlay_rows *ret)
{
	if (ps_overlay_is_empty(overlay))
		return 0;
	PS_LOCK_SCOPE(&overlay->lock);
	size_t first = ps_overlay_rows_find(&overlay->rows, from, nfrom);
	size_t end = ps_overlay_rows_find(&overlay->rows, to, nto);
	if (first >= end)
		return 0;
	if (!reserve(ret, end - first))
		return -ENOMEM;
	for (size_t i = first; i < end; i++) {
		ret->v[ret->n++] = overlay->rows.v[i];
		overlay->rows.v[i]->nrefs++;
		ret->nbytes += cost(overlay->rows.v[i]);
	}
	return 0;
}

size_t ps_overlay_nbytes(struct ps_overlay *overlay)
{
	PS_LOCK_SCOPE(&overlay->lock);
	return overlay->rows.nbytes;
}

bool ps_overlay_is_empty(const struct ps_overlay *overlay)
{
	return overlay->nrows == 0;
}

void ps_overlay_each(
        struct ps_overlay *overlay, void (*fn)(void *arg, const struct ps_overlay_row *row), void *arg)
{
	PS_LOCK_SCOPE(&overlay->lock);
	for (size_t i = 0; i < overlay->rows.n; i++)
		fn(arg, overlay->rows.v[i]);
}

void ps_overlay_clear(struct ps_overlay *overlay)
{
	PS_LOCK_SCOPE(&overlay->lock);
	ps_overlay_rows_fini(&overlay->rows);
	overlay->nrows = 0;
}
