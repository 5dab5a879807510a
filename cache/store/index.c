#include "store/index.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/index_private.h"
#include "store/index_rocksdb.h"
#include "store/index_rows.h"

/* Numbers are taken from the index so many at a time; a kill wastes the rest of the chunk. After a power cut
 * the log may have lost a reservation, but then also every row written after it. */
#define NUMBER_CHUNK 65536
#define DATASET_FIRST 1
#define KEY_MAX_LEN (1 + 8 + 4096)

struct numbers {
	const char *meta; /* its row: the first number not reserved */
	uint64_t next, end;
};

struct ps_index {
	struct ps_kv *kv;
	bool was_clean, same_boot;
	struct ps_stop_row stop; /* as it stands in the index since open */

	/* Over next and end, also while more are reserved: whoever waits wants exactly that. */
	pthread_mutex_t numbers_lock;
	struct numbers nodes, datasets;
};

struct ps_index_batch {
	struct ps_kv_batch *kv;
	struct ps_strbuf value; /* reused for every row */
	bool failed;
};

struct ps_index_children {
	struct ps_kv_iter *it;
	char *name;
	size_t cap;
};

struct key {
	size_t n;
	uint8_t bytes[KEY_MAX_LEN];
};

/* Keys ------------------------------------------------------------------------------------------- */

static void key_add(struct key *key, const void *bytes, size_t n)
{
	n = PS_MIN(n, sizeof key->bytes - key->n);
	memcpy(key->bytes + key->n, bytes, n);
	key->n += n;
}

static void key_add_be(struct key *key, uint64_t v, int nbytes)
{
	uint8_t bytes[8];

	for (int i = 0; i < nbytes; i++)
		bytes[i] = (uint8_t)(v >> (8 * (nbytes - 1 - i)));
	key_add(key, bytes, (size_t)nbytes);
}

static uint64_t be_of(const uint8_t *bytes, int nbytes)
{
	uint64_t v = 0;

	for (int i = 0; i < nbytes; i++)
		v = v << 8 | bytes[i];
	return v;
}

static void key_meta(struct key *key, const char *name)
{
	key->n = 0;
	key_add(key, "M", 1);
	key_add(key, name, strlen(name));
}

static void key_id(struct key *key, char kind, const struct ps_id *id)
{
	key->n = 0;
	key_add(key, &kind, 1);
	key_add(key, id->bytes, PS_ID_LEN);
}

static void key_node(struct key *key, char kind, uint64_t node)
{
	key->n = 0;
	key_add(key, &kind, 1);
	key_add_be(key, node, 8);
}

static void key_child(struct key *key, uint64_t parent, const char *name)
{
	key_node(key, 'C', parent);
	key_add(key, name, strlen(name));
}

static void key_extent(struct key *key, const struct ps_id *id, uint32_t extent)
{
	key_id(key, 'B', id);
	key_add_be(key, extent, 4);
}

/* Says which row is bad; the rest of the index is fine. */
static int bad_row(const struct key *key, int err)
{
	char hex[2 * (1 + PS_ID_LEN + 4) + 1] = "";

	if (err != -EBADMSG)
		return err;
	for (size_t i = 0; i < key->n && 2 * i + 2 < sizeof hex; i++) {
		hex[2 * i] = "0123456789abcdef"[key->bytes[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[key->bytes[i] & 15];
	}
	ps_log_error("index: key %s: the row is damaged", hex);
	return err;
}

/* Meta rows, schema, open ------------------------------------------------------------------------ */

static int put_meta(struct ps_index *index, const char *name, const struct ps_strbuf *value)
{
	struct ps_kv_batch *batch = ps_kv_batch_new();
	struct key key;

	if (!batch || value->failed) {
		ps_kv_batch_free(batch);
		return -ENOMEM;
	}
	key_meta(&key, name);
	ps_kv_batch_put(batch, key.bytes, key.n, value->s, value->len);
	int e = ps_kv_write(index->kv, batch);
	ps_kv_batch_free(batch);
	return e;
}

static int put_meta_number(struct ps_index *index, const char *name, uint64_t number)
{
	ps_autostrbuf struct ps_strbuf value = {0};

	ps_number_row_encode(number, &value);
	return put_meta(index, name, &value);
}

static int get_meta_number(struct ps_index *index, const char *name, uint64_t *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_meta(&key, name);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_number_row_decode(value.s, value.len, ret));
}

static int put_stop(struct ps_index *index, bool clean)
{
	ps_autostrbuf struct ps_strbuf value = {0};

	index->stop.clean = clean;
	ps_stop_row_encode(&index->stop, &value);
	return put_meta(index, "stop", &value);
}

/* What turns a schema into the next one. Runs before anything else reads the index. */
static const struct upgrade {
	uint64_t from;
	int (*run)(struct ps_index *index, struct ps_error *err);
} upgrades[] = {
        {0, NULL}, /* the end: schema 1 is the first */
};

static int upgrade_from(struct ps_index *index, uint64_t schema, struct ps_error *err)
{
	while (schema < PS_INDEX_SCHEMA) {
		const struct upgrade *u = upgrades;
		while (u->run && u->from != schema)
			u++;
		if (!u->run)
			return ps_error_set(err, EIO, "index: no way from schema %llu to %d",
			        (unsigned long long)schema, PS_INDEX_SCHEMA);
		int e = u->run(index, err);
		if (e == 0)
			e = put_meta_number(index, "schema", ++schema);
		if (e < 0)
			return e;
	}
	return 0;
}

static int check_schema(struct ps_index *index, struct ps_error *err)
{
	uint64_t schema = 0;
	int e = get_meta_number(index, "schema", &schema);

	if (e == -ENOENT) {
		/* New, if it is empty. */
		struct ps_kv_iter *it = NULL;
		const void *key, *value;
		size_t nkey, nvalue;
		bool any = false;

		for (const char *kind = "MDNCOB"; *kind && !any; kind++) {
			e = ps_kv_iter_open(index->kv, kind, 1, &it);
			if (e < 0)
				return ps_error_set(err, -e, "index: cannot be read");
			any = ps_kv_iter_next(it, &key, &nkey, &value, &nvalue);
			ps_kv_iter_close(it);
		}
		if (any)
			return ps_error_set(err, EIO, "index: rows, but no schema number");
		e = put_meta_number(index, "schema", PS_INDEX_SCHEMA);
		return e < 0 ? ps_error_set(err, -e, "index: cannot be written: %s", strerror(-e)) : 0;
	}
	if (e < 0)
		return ps_error_set(err, e == -EBADMSG ? EIO : -e, "index: the schema number cannot be read");
	if (schema > PS_INDEX_SCHEMA)
		return ps_error_set(err, EPROTO,
		        "the index has schema %llu, this program knows %d: use a newer penstock, or another "
		        "cache "
		        "directory",
		        (unsigned long long)schema, PS_INDEX_SCHEMA);
	return upgrade_from(index, schema, err);
}

/* The end of a chunk that nobody ever got a number from. */
static int load_numbers(struct ps_index *index, struct numbers *numbers, uint64_t first)
{
	uint64_t end = first;
	int e = get_meta_number(index, numbers->meta, &end);

	if (e < 0 && e != -ENOENT)
		return e;
	numbers->next = numbers->end = PS_MAX(end, first);
	return 0;
}

static int load_meta(struct ps_index *index, const char *boot_id, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct ps_stop_row stop = {.clean = true}; /* of an index that is new */
	struct key key;

	int e = load_numbers(index, &index->nodes, PS_NODE_FIRST);
	if (e == 0)
		e = load_numbers(index, &index->datasets, DATASET_FIRST);
	if (e < 0)
		return ps_error_set(err, e == -EBADMSG ? EIO : -e, "index: the numbers cannot be read");

	key_meta(&key, "stop");
	e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	if (e == 0)
		e = bad_row(&key, ps_stop_row_decode(value.s, value.len, &stop));
	if (e < 0 && e != -ENOENT)
		return ps_error_set(err, e == -EBADMSG ? EIO : -e, "index: the last stop cannot be read");
	index->was_clean = stop.clean;
	index->same_boot = boot_id[0] != '\0' && strcmp(boot_id, stop.boot_id) == 0;
	index->stop.trust = stop.trust + (!index->was_clean && !index->same_boot);
	memcpy(index->stop.boot_id, boot_id, strnlen(boot_id, sizeof index->stop.boot_id - 1));
	e = put_stop(index, false);
	return e < 0 ? ps_error_set(err, -e, "index: cannot be written: %s", strerror(-e)) : 0;
}

int ps_index_open_at_boot(const char *dir, const char *boot_id, struct ps_index **ret, struct ps_error *err)
{
	struct ps_index *index = calloc(1, sizeof *index);

	if (!index)
		return ps_error_set(err, ENOMEM, "index %s: out of memory", dir);
	pthread_mutex_init(&index->numbers_lock, NULL);
	index->nodes.meta = "nodes";
	index->datasets.meta = "datasets";
	int e = ps_kv_open(dir, &index->kv, err);
	if (e == 0)
		e = check_schema(index, err);
	if (e == 0)
		e = load_meta(index, boot_id, err);
	if (e < 0)
		ps_index_close(index);
	else
		*ret = index;
	return e;
}

int ps_index_open(const char *dir, struct ps_index **ret, struct ps_error *err)
{
	char boot_id[37];

	ps_clock_boot_id(boot_id);
	return ps_index_open_at_boot(dir, boot_id, ret, err);
}

void ps_index_close(struct ps_index *index)
{
	if (!index)
		return;
	ps_kv_close(index->kv);
	pthread_mutex_destroy(&index->numbers_lock);
	free(index);
}

int ps_index_set_schema(struct ps_index *index, uint64_t schema)
{
	return put_meta_number(index, "schema", schema);
}

bool ps_index_was_clean(const struct ps_index *index)
{
	return index->was_clean;
}

bool ps_index_same_boot(const struct ps_index *index)
{
	return index->same_boot;
}

int ps_index_mark_clean(struct ps_index *index)
{
	return put_stop(index, true);
}

int ps_index_reopen(struct ps_index *index, struct ps_error *err)
{
	return ps_kv_reopen(index->kv, err);
}

/* Numbers ---------------------------------------------------------------------------------------- */

static int new_number(struct ps_index *index, struct numbers *numbers, uint64_t *ret)
{
	PS_LOCK_SCOPE(&index->numbers_lock);

	if (numbers->next == numbers->end) {
		int e = put_meta_number(index, numbers->meta, numbers->end + NUMBER_CHUNK);
		if (e < 0)
			return e;
		numbers->end += NUMBER_CHUNK;
	}
	*ret = numbers->next++;
	return 0;
}

int ps_index_new_node(struct ps_index *index, uint64_t *ret_node)
{
	return new_number(index, &index->nodes, ret_node);
}

int ps_index_new_dataset(struct ps_index *index, uint32_t *ret_number)
{
	uint64_t number = 0;
	int e = new_number(index, &index->datasets, &number);

	if (e < 0)
		return e;
	if (number > UINT32_MAX)
		return -EOVERFLOW;
	*ret_number = (uint32_t)number;
	return 0;
}

/* Rows ------------------------------------------------------------------------------------------- */

int ps_index_get_dataset(struct ps_index *index, const struct ps_id *id, struct ps_dataset_row *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_id(&key, 'D', id);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_dataset_row_decode(value.s, value.len, id, ret));
}

int ps_index_get_node(struct ps_index *index, uint64_t node, struct ps_node_row *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_node(&key, 'N', node);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_node_row_decode(value.s, value.len, node, ret));
}

int ps_index_get_child(struct ps_index *index, uint64_t parent, const char *name, uint64_t *ret_node)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_child(&key, parent, name);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_number_row_decode(value.s, value.len, ret_node));
}

int ps_index_get_object(struct ps_index *index, const struct ps_id *id, struct ps_object_row *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_id(&key, 'O', id);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_object_row_decode(value.s, value.len, id, ret));
}

int ps_index_get_extent(
        struct ps_index *index, const struct ps_id *id, uint32_t extent, struct ps_extent_row *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct key key;

	key_extent(&key, id, extent);
	int e = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return e < 0 ? e : bad_row(&key, ps_extent_row_decode(value.s, value.len, index->stop.trust, ret));
}

/* Batches ---------------------------------------------------------------------------------------- */

struct ps_index_batch *ps_index_batch_new(void)
{
	struct ps_index_batch *batch = calloc(1, sizeof *batch);

	if (!batch)
		return NULL;
	batch->kv = ps_kv_batch_new();
	if (!batch->kv) {
		free(batch);
		return NULL;
	}
	return batch;
}

void ps_index_batch_free(struct ps_index_batch *batch)
{
	if (!batch)
		return;
	ps_kv_batch_free(batch->kv);
	ps_strbuf_fini(&batch->value);
	free(batch);
}

static void batch_put(struct ps_index_batch *batch, const struct key *key)
{
	if (batch->value.failed)
		batch->failed = true;
	else
		ps_kv_batch_put(batch->kv, key->bytes, key->n, batch->value.s, batch->value.len);
}

void ps_index_batch_put_dataset(struct ps_index_batch *batch, const struct ps_dataset_row *row)
{
	struct key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_dataset_row_encode(row, &batch->value);
	key_id(&key, 'D', &row->id);
	batch_put(batch, &key);
}

void ps_index_batch_put_node(struct ps_index_batch *batch, const struct ps_node_row *row)
{
	struct key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_node_row_encode(row, &batch->value);
	key_node(&key, 'N', row->node);
	batch_put(batch, &key);
}

void ps_index_batch_del_node(struct ps_index_batch *batch, uint64_t node)
{
	struct key key;

	if (!batch)
		return;
	key_node(&key, 'N', node);
	ps_kv_batch_del(batch->kv, key.bytes, key.n);
}

void ps_index_batch_put_child(struct ps_index_batch *batch, uint64_t parent, const char *name, uint64_t node)
{
	struct key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_number_row_encode(node, &batch->value);
	key_child(&key, parent, name);
	batch_put(batch, &key);
}

void ps_index_batch_del_child(struct ps_index_batch *batch, uint64_t parent, const char *name)
{
	struct key key;

	if (!batch)
		return;
	key_child(&key, parent, name);
	ps_kv_batch_del(batch->kv, key.bytes, key.n);
}

void ps_index_batch_put_object(struct ps_index_batch *batch, const struct ps_object_row *row)
{
	struct key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_object_row_encode(row, &batch->value);
	key_id(&key, 'O', &row->id);
	batch_put(batch, &key);
}

void ps_index_batch_del_object(struct ps_index_batch *batch, const struct ps_id *id, uint32_t nextents)
{
	struct key key;

	if (!batch)
		return;
	key_id(&key, 'O', id);
	ps_kv_batch_del(batch->kv, key.bytes, key.n);
	for (uint32_t i = 0; i < nextents; i++) {
		key_extent(&key, id, i);
		ps_kv_batch_del(batch->kv, key.bytes, key.n);
	}
}

void ps_index_batch_put_extent(struct ps_index *index, struct ps_index_batch *batch, const struct ps_id *id,
        uint32_t extent, const struct ps_extent_row *row)
{
	struct key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_extent_row_encode(row, index->stop.trust, &batch->value);
	key_extent(&key, id, extent);
	batch_put(batch, &key);
}

int ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch)
{
	int e = !batch || batch->failed ? -ENOMEM : ps_kv_write(index->kv, batch->kv);

	ps_index_batch_free(batch);
	return e;
}

/* Walks ------------------------------------------------------------------------------------------ */

int ps_index_children_open(struct ps_index *index, uint64_t parent, struct ps_index_children **ret)
{
	struct ps_index_children *it = calloc(1, sizeof *it);
	struct key key;

	if (!it)
		return -ENOMEM;
	key_node(&key, 'C', parent);
	int e = ps_kv_iter_open(index->kv, key.bytes, key.n, &it->it);
	if (e < 0)
		free(it);
	else
		*ret = it;
	return e;
}

bool ps_index_children_next(struct ps_index_children *it, const char **ret_name, uint64_t *ret_node)
{
	const void *key, *value;
	size_t nkey, nvalue;

	while (ps_kv_iter_next(it->it, &key, &nkey, &value, &nvalue)) {
		size_t n = nkey - 9;
		if (n + 1 > it->cap) {
			char *grown = realloc(it->name, n + 256);
			if (!grown)
				return false;
			it->name = grown;
			it->cap = n + 256;
		}
		memcpy(it->name, (const uint8_t *)key + 9, n);
		it->name[n] = '\0';
		if (ps_number_row_decode(value, nvalue, ret_node) < 0) {
			ps_log_error("index: the entry of %s in its directory is damaged", it->name);
			continue;
		}
		*ret_name = it->name;
		return true;
	}
	return false;
}

void ps_index_children_close(struct ps_index_children *it)
{
	if (!it)
		return;
	ps_kv_iter_close(it->it);
	free(it->name);
	free(it);
}

int ps_index_each_object(struct ps_index *index, int (*fn)(void *arg, const struct ps_object_row *row),
        void (*bad)(void *arg, const struct ps_id *id), void *arg)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;

	int e = ps_kv_iter_open(index->kv, "O", 1, &it);
	while (e == 0 && ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		struct ps_object_row row;
		struct ps_id id;

		if (nkey != 1 + PS_ID_LEN)
			continue;
		memcpy(id.bytes, (const uint8_t *)key + 1, PS_ID_LEN);
		e = ps_object_row_decode(value, nvalue, &id, &row);
		if (e == -EBADMSG) {
			struct key bad_key;
			key_id(&bad_key, 'O', &id);
			bad_row(&bad_key, e);
			if (bad)
				bad(arg, &id);
			e = 0;
		} else if (e == 0) {
			e = fn(arg, &row);
			ps_object_row_fini(&row);
		}
	}
	if (e == 0)
		e = ps_kv_iter_status(it);
	ps_kv_iter_close(it);
	return e;
}

int ps_index_each_extent(struct ps_index *index, const struct ps_id *id,
        int (*fn)(void *arg, uint32_t extent, const struct ps_extent_row *row), void *arg)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;
	struct key prefix;

	key_id(&prefix, 'B', id);
	int e = ps_kv_iter_open(index->kv, prefix.bytes, prefix.n, &it);
	while (e == 0 && ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		struct ps_extent_row row;

		if (nkey != prefix.n + 4)
			continue;
		uint32_t extent = (uint32_t)be_of((const uint8_t *)key + prefix.n, 4);
		if (ps_extent_row_decode(value, nvalue, index->stop.trust, &row) < 0) {
			struct key bad_key;
			key_extent(&bad_key, id, extent);
			bad_row(&bad_key, -EBADMSG);
			continue;
		}
		e = fn(arg, extent, &row);
	}
	if (e == 0)
		e = ps_kv_iter_status(it);
	ps_kv_iter_close(it);
	return e;
}
