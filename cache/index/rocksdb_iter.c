#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "index/rocksdb_private.h"

/* Rows of the index and rows that the disk has not taken yet, of which the latter hide the former, in one
 * order. */
struct ps_kv_iter {
	struct ps_kv *kv;
	rocksdb_iterator_t *it;
	rocksdb_readoptions_t *read;
	struct ps_overlay_rows kept;               /* of the prefix */
	size_t nkept;                              /* of them, those that are passed */
	enum { AT_NOTHING, AT_INDEX, AT_KEPT } at; /* whose row was given last */
	int status;
	size_t nend;
	char end[PS_KV_PREFIX_MAX_LEN]; /* first key past the prefix; RocksDB keeps a pointer to it */
};

/* The smallest key above all that start with the prefix: the prefix plus one, carrying. */
static size_t prefix_end(const void *prefix, size_t n, char *ret)
{
	memcpy(ret, prefix, n);
	while (n > 0 && (uint8_t)ret[n - 1] == 0xff)
		n--;
	if (n > 0)
		ret[n - 1] = (char)((uint8_t)ret[n - 1] + 1);
	return n;
}

/* Under the lock: a row that moves from the kept ones into the index meanwhile would be seen in neither.
 * While no rows are kept, none moves. */
static void open_both(struct ps_kv_iter *it, const void *prefix, size_t nprefix)
{
	bool locked = !ps_overlay_is_empty(it->kv->kept);

	if (locked)
		pthread_mutex_lock(&it->kv->write_lock);
	if (locked && ps_overlay_range(it->kv->kept, prefix, nprefix, it->end, it->nend, &it->kept) < 0)
		it->kept.failed = true;
	it->it = rocksdb_create_iterator(it->kv->db, it->read);
	if (locked)
		pthread_mutex_unlock(&it->kv->write_lock);
	rocksdb_iter_seek(it->it, prefix, nprefix);
}

int ps_kv_iter_open(struct ps_kv *kv, const void *prefix, size_t nprefix, struct ps_kv_iter **ret)
{
	struct ps_kv_iter *it = calloc(1, sizeof *it);
	int e = 0;

	if (!it)
		return -ENOMEM;
	it->kv = kv;
	it->nend = prefix_end(prefix, PS_MIN(nprefix, sizeof it->end), it->end);
	it->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_iterate_upper_bound(it->read, it->end, it->nend);
	rocksdb_readoptions_set_fill_cache(it->read, 0);
	kv->niterators++;
	pthread_rwlock_rdlock(&kv->open_lock);
	if (kv->db)
		open_both(it, prefix, nprefix);
	else
		e = -EIO;
	pthread_rwlock_unlock(&kv->open_lock);
	if (it->kept.failed)
		e = -ENOMEM;
	if (e < 0)
		ps_kv_iter_close(it);
	else
		*ret = it;
	return e;
}

/* No lock: while an iterator is open, reopen refuses. */
void ps_kv_iter_seek(struct ps_kv_iter *it, const void *key, size_t nkey)
{
	rocksdb_iter_seek(it->it, key, nkey);
	it->nkept = ps_overlay_rows_find(&it->kept, key, nkey);
	it->at = AT_NOTHING;
}

/* The end of the index's rows, or an error, which is the end of all. */
static void look_at_end(struct ps_kv_iter *it)
{
	char *text = NULL;

	rocksdb_iter_get_error(it->it, &text);
	if (text)
		it->status = ps_kv_told(it->kv, "index walk", text);
}

/* Past the row that was given last. */
static void step(struct ps_kv_iter *it)
{
	if (it->at == AT_INDEX)
		rocksdb_iter_next(it->it);
	else if (it->at == AT_KEPT)
		it->nkept++;
	it->at = AT_NOTHING;
}

/* Whose row comes next; a row of the index that a kept one hides is passed. */
static void choose(struct ps_kv_iter *it)
{
	const struct ps_overlay_row *row = it->nkept < it->kept.n ? it->kept.v[it->nkept] : NULL;
	bool in_index = rocksdb_iter_valid(it->it);
	int order = in_index ? -1 : 1;

	if (in_index && row) {
		size_t nkey;
		const char *key = rocksdb_iter_key(it->it, &nkey);

		order = ps_overlay_compare(key, nkey, row->bytes, row->nkey);
	}
	if (order == 0)
		rocksdb_iter_next(it->it);
	it->at = order < 0 ? AT_INDEX : row ? AT_KEPT : AT_NOTHING;
}

bool ps_kv_iter_next(struct ps_kv_iter *it, const void **ret_key, size_t *ret_nkey, const void **ret_value,
        size_t *ret_nvalue)
{
	do {
		step(it);
		if (it->status == 0 && !rocksdb_iter_valid(it->it))
			look_at_end(it);
		if (it->status < 0)
			return false;
		choose(it);
	} while (it->at == AT_KEPT && it->kept.v[it->nkept]->deleted);
	if (it->at == AT_INDEX) {
		*ret_key = rocksdb_iter_key(it->it, ret_nkey);
		*ret_value = rocksdb_iter_value(it->it, ret_nvalue);
	} else if (it->at == AT_KEPT) {
		const struct ps_overlay_row *row = it->kept.v[it->nkept];

		*ret_key = row->bytes;
		*ret_nkey = row->nkey;
		*ret_value = row->bytes + row->nkey;
		*ret_nvalue = row->nvalue;
	}
	return it->at != AT_NOTHING;
}

int ps_kv_iter_status(const struct ps_kv_iter *it)
{
	return it->status;
}

void ps_kv_iter_close(struct ps_kv_iter *it)
{
	if (!it)
		return;
	if (it->it)
		rocksdb_iter_destroy(it->it);
	rocksdb_readoptions_destroy(it->read);
	ps_overlay_rows_fini(&it->kept);
	it->kv->niterators--;
	free(it);
}
