/* Access to rows: get, batches, iteration. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "index/index_private.h"

/* A seek costs about as much as this many steps. */
#define NODES_MAX_STEPS 8

struct ps_index_nodes {
	struct ps_index *index;
	struct ps_kv_iter *it;
	uint64_t asked; /* the node of the last call; 0: there was none */
	uint64_t at;    /* the iterator's node, if value is not NULL */
	const void *value;
	size_t nvalue;
};

struct ps_index_children {
	struct ps_kv_iter *it;
	uint64_t parent;
	char *name;
	size_t cap;
	bool failed; /* out of memory */
};

/* Rows --------------------------------------------------------------------------------------------------- */

static int get(struct ps_index *index, const struct ps_index_key *key, void *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	int rc = ps_kv_get(index->kv, key->bytes, key->n, &value);

	return rc < 0 ? rc : ps_index_bad_row(key, ps_row_decode(key->bytes, value.s, value.len, ret));
}

int ps_index_get_dataset(struct ps_index *index, const struct ps_id *id, struct ps_dataset_row *ret)
{
	struct ps_index_key key;

	return get(index, ps_index_key_id(&key, 'D', id), ret);
}

int ps_index_get_node(struct ps_index *index, uint64_t node, struct ps_node_row *ret)
{
	struct ps_index_key key;

	return get(index, ps_index_key_node(&key, 'N', node), ret);
}

int ps_index_get_child(struct ps_index *index, uint64_t parent, const char *name, uint64_t *ret_node)
{
	struct ps_index_key key;

	return get(index, ps_index_key_child(&key, parent, name), ret_node);
}

int ps_index_get_object(struct ps_index *index, const struct ps_id *id, struct ps_object_row *ret)
{
	struct ps_index_key key;

	return get(index, ps_index_key_id(&key, 'O', id), ret);
}

int ps_index_get_view(struct ps_index *index, const struct ps_id *id, struct ps_view_row *ret)
{
	struct ps_index_key key;

	return get(index, ps_index_key_id(&key, 'V', id), ret);
}

int ps_index_get_grants(struct ps_index *index, const struct ps_id *id, struct ps_grants_row *ret)
{
	struct ps_index_key key;

	return get(index, ps_index_key_id(&key, 'G', id), ret);
}

int ps_index_get_frames(struct ps_index *index, const struct ps_id *id, struct ps_strbuf *ret)
{
	struct ps_index_key key;

	ps_index_key_id(&key, 'F', id);
	return ps_kv_get(index->kv, key.bytes, key.n, ret);
}

int ps_index_get_members(struct ps_index *index, uint64_t node, uint32_t row, struct ps_strbuf *ret)
{
	struct ps_index_key key;

	ps_index_key_members(&key, node, row);
	return ps_kv_get(index->kv, key.bytes, key.n, ret);
}

/* Batches ------------------------------------------------------------------------------------------------ */

static void put_bytes(
        struct ps_index_batch *batch, const struct ps_index_key *key, const void *bytes, size_t nbytes)
{
	if (batch)
		ps_kv_batch_put(batch, key->bytes, key->n, bytes, nbytes);
}

static void put_value(struct ps_index_batch *batch, const struct ps_index_key *key)
{
	if (batch->value.failed)
		batch->failed = true;
	else
		put_bytes(batch, key, batch->value.s, batch->value.len);
}

static void put(struct ps_index_batch *batch, const struct ps_index_key *key, const void *row)
{
	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_row_encode((char)key->bytes[0], row, &batch->value);
	put_value(batch, key);
}

static void del(struct ps_index_batch *batch, const struct ps_index_key *key)
{
	if (batch)
		ps_kv_batch_del(batch, key->bytes, key->n);
}

void ps_index_batch_put_dataset(struct ps_index_batch *batch, const struct ps_dataset_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_id(&key, 'D', &row->id), row);
}

void ps_index_batch_put_node(struct ps_index_batch *batch, const struct ps_node_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_node(&key, 'N', row->node), row);
}

void ps_index_batch_del_node(struct ps_index_batch *batch, uint64_t node)
{
	struct ps_index_key key;

	del(batch, ps_index_key_node(&key, 'N', node));
}

void ps_index_batch_put_child(struct ps_index_batch *batch, uint64_t parent, const char *name, uint64_t node)
{
	struct ps_index_key key;

	put(batch, ps_index_key_child(&key, parent, name), &node);
}

void ps_index_batch_del_child(struct ps_index_batch *batch, uint64_t parent, const char *name)
{
	struct ps_index_key key;

	del(batch, ps_index_key_child(&key, parent, name));
}

void ps_index_batch_put_object(struct ps_index_batch *batch, const struct ps_object_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_id(&key, 'O', &row->id), row);
}

void ps_index_batch_del_object(struct ps_index_batch *batch, const struct ps_id *id, uint32_t nextents)
{
	struct ps_index_key key;

	del(batch, ps_index_key_id(&key, 'O', id));
	for (uint32_t i = 0; i < nextents; i++)
		del(batch, ps_index_key_extent(&key, id, i));
}

void ps_index_batch_put_extent(struct ps_index *index, struct ps_index_batch *batch, const struct ps_id *id,
        uint32_t extent, const struct ps_extent_row *row)
{
	struct ps_index_key key;

	if (!batch)
		return;
	ps_strbuf_reset(&batch->value);
	ps_extent_row_encode(row, index->stop.trust, &batch->value);
	put_value(batch, ps_index_key_extent(&key, id, extent));
}

void ps_index_batch_del_extent(struct ps_index_batch *batch, const struct ps_id *id, uint32_t extent)
{
	struct ps_index_key key;

	del(batch, ps_index_key_extent(&key, id, extent));
}

void ps_index_batch_put_pin(struct ps_index_batch *batch, const struct ps_pin_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_id(&key, 'P', &row->url_id), row);
}

void ps_index_batch_del_pin(struct ps_index_batch *batch, const struct ps_id *url_id)
{
	struct ps_index_key key;

	del(batch, ps_index_key_id(&key, 'P', url_id));
}

void ps_index_batch_put_view(
        struct ps_index_batch *batch, const struct ps_id *id, const struct ps_view_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_id(&key, 'V', id), row);
}

void ps_index_batch_put_frames(
        struct ps_index_batch *batch, const struct ps_id *id, const void *bytes, size_t nbytes)
{
	struct ps_index_key key;

	put_bytes(batch, ps_index_key_id(&key, 'F', id), bytes, nbytes);
}

void ps_index_batch_del_view(struct ps_index_batch *batch, const struct ps_id *id)
{
	struct ps_index_key key;

	del(batch, ps_index_key_id(&key, 'V', id));
	del(batch, ps_index_key_id(&key, 'F', id));
}

void ps_index_batch_put_grants(
        struct ps_index_batch *batch, const struct ps_id *id, const struct ps_grants_row *row)
{
	struct ps_index_key key;

	put(batch, ps_index_key_id(&key, 'G', id), row);
}

void ps_index_batch_del_grants(struct ps_index_batch *batch, const struct ps_id *id)
{
	struct ps_index_key key;

	del(batch, ps_index_key_id(&key, 'G', id));
}

void ps_index_batch_put_members(
        struct ps_index_batch *batch, uint64_t node, uint32_t row, const void *bytes, size_t nbytes)
{
	struct ps_index_key key;

	put_bytes(batch, ps_index_key_members(&key, node, row), bytes, nbytes);
}

void ps_index_batch_del_members(struct ps_index *index, struct ps_index_batch *batch, uint64_t node)
{
	struct ps_kv_iter *it = NULL;
	const void *at, *value;
	struct ps_index_key key;
	size_t nat, nvalue;

	ps_index_key_members(&key, node, PS_MEMBERS_HEAD);
	if (!batch || ps_kv_iter_open(index->kv, key.bytes, key.n, &it) < 0)
		return;
	while (ps_kv_iter_next(it, &at, &nat, &value, &nvalue))
		ps_kv_batch_del(batch, at, nat);
	ps_kv_iter_close(it);
}

/* written: the result of the write to disk. */
static void committed(struct ps_index *index, struct ps_index_batch *batch, int written)
{
	ps_index_batch_free(batch);
	if (written < 0 && written != -ENOMEM && index->failed)
		index->failed(index->failed_arg, written);
}

void ps_index_batch_unasked(struct ps_index_batch *batch)
{
	if (batch)
		batch->unasked = true;
}

static int ask_room(struct ps_index *index, const struct ps_index_batch *batch)
{
	return batch->nput == 0 || batch->unasked || !index->room ? 0
	                                                          : index->room(index->room_arg, batch->nput);
}

int ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch)
{
	int rc = !batch || batch->failed ? -ENOMEM : ask_room(index, batch);

	if (rc == 0)
		rc = ps_kv_write(index->kv, batch, 0, NULL);
	committed(index, batch, rc);
	return rc;
}

int ps_index_batch_commit_or_keep(struct ps_index *index, struct ps_index_batch *batch)
{
	int e = -ENOMEM, refused = 0;

	if (batch && !batch->failed)
		e = ps_kv_write(index->kv, batch, ask_room(index, batch), &refused);
	committed(index, batch, refused ? refused : e);
	return e;
}

/* Walks -------------------------------------------------------------------------------------------------- */

int ps_index_children_open(struct ps_index *index, uint64_t parent, struct ps_index_children **ret)
{
	struct ps_index_children *it = calloc(1, sizeof(*it));
	struct ps_index_key key;

	if (!it)
		return -ENOMEM;
	it->parent = parent;
	ps_index_key_node(&key, 'C', parent);
	int rc = ps_kv_iter_open(index->kv, key.bytes, key.n, &it->it);
	if (rc < 0)
		free(it);
	else
		*ret = it;
	return rc;
}

void ps_index_children_seek_after(struct ps_index_children *it, const char *name)
{
	struct ps_index_key key;

	/* The first key after the child's is that key and a NUL, which no name contains. */
	ps_index_key_child(&key, it->parent, name);
	if (key.n < sizeof(key.bytes))
		key.bytes[key.n++] = 0;
	ps_kv_iter_seek(it->it, key.bytes, key.n);
}

bool ps_index_children_next(struct ps_index_children *it, const char **ret_name, uint64_t *ret_node)
{
	const void *key, *value;
	size_t nkey, nvalue;

	while (ps_kv_iter_next(it->it, &key, &nkey, &value, &nvalue)) {
		size_t n = nkey - 9;
		if (n + 1 > it->cap) {
			char *grown = realloc(it->name, n + 256);
			it->failed = !grown;
			if (!grown)
				return false;
			it->name = grown;
			it->cap = n + 256;
		}
		memcpy(it->name, (const uint8_t *)key + 9, n);
		it->name[n] = '\0';
		if (ps_row_decode(key, value, nvalue, ret_node) < 0) {
			ps_log_error("index: the entry of %s in its directory is damaged", it->name);
			continue;
		}
		*ret_name = it->name;
		return true;
	}
	return false;
}

int ps_index_children_status(const struct ps_index_children *it)
{
	return it->failed ? -ENOMEM : ps_kv_iter_status(it->it);
}

void ps_index_children_close(struct ps_index_children *it)
{
	if (!it)
		return;
	ps_kv_iter_close(it->it);
	free(it->name);
	free(it);
}

int ps_index_nodes_open(struct ps_index *index, struct ps_index_nodes **ret)
{
	struct ps_index_nodes *it = calloc(1, sizeof(*it));

	if (!it)
		return -ENOMEM;
	it->index = index;
	int rc = ps_kv_iter_open(index->kv, "N", 1, &it->it);
	if (rc < 0)
		free(it);
	else
		*ret = it;
	return rc;
}

static void nodes_step(struct ps_index_nodes *it)
{
	const void *key;
	size_t nkey;

	if (!ps_kv_iter_next(it->it, &key, &nkey, &it->value, &it->nvalue))
		it->value = NULL;
	else
		it->at = nkey == 9 ? ps_index_key_number((const uint8_t *)key + 1, 8) : 0;
}

int ps_index_nodes_get(struct ps_index_nodes *it, uint64_t node, struct ps_node_row *ret)
{
	bool follows = it->asked && node - it->asked - 1 < NODES_MAX_STEPS;
	struct ps_index_key key;

	it->asked = node;
	/* Iterators bypass the block cache, so they are faster only for nodes with successive numbers. */
	if (!follows)
		return ps_index_get_node(it->index, node, ret);
	ps_index_key_node(&key, 'N', node);
	for (int i = 0; i < NODES_MAX_STEPS && it->value && it->at < node; i++)
		nodes_step(it);
	if (!it->value || it->at != node) {
		ps_kv_iter_seek(it->it, key.bytes, key.n);
		nodes_step(it);
	}
	if (!it->value || it->at != node)
		return ps_index_get_node(it->index, node, ret);
	return ps_index_bad_row(&key, ps_row_decode(key.bytes, it->value, it->nvalue, ret));
}

void ps_index_nodes_close(struct ps_index_nodes *it)
{
	if (!it)
		return;
	ps_kv_iter_close(it->it);
	free(it);
}

int ps_index_each_object(struct ps_index *index, int (*fn)(void *arg, const struct ps_object_row *row),
        void (*bad)(void *arg, const struct ps_id *id), void *arg)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;

	int rc = ps_kv_iter_open(index->kv, "O", 1, &it);
	while (rc == 0 && ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		struct ps_object_row row;
		struct ps_id id;

		if (nkey != 1 + PS_ID_LEN)
			continue;
		memcpy(id.bytes, (const uint8_t *)key + 1, PS_ID_LEN);
		rc = ps_row_decode(key, value, nvalue, &row);
		if (rc == -EBADMSG) {
			struct ps_index_key bad_key;
			ps_index_key_id(&bad_key, 'O', &id);
			ps_index_bad_row(&bad_key, rc);
			if (bad)
				bad(arg, &id);
			rc = 0;
		} else if (rc == 0) {
			rc = fn(arg, &row);
			ps_object_row_fini(&row);
		}
	}
	if (rc == 0)
		rc = ps_kv_iter_status(it);
	ps_kv_iter_close(it);
	return rc;
}

int ps_index_each_extent(struct ps_index *index, const struct ps_id *id,
        int (*fn)(void *arg, uint32_t extent, const struct ps_extent_row *row), void *arg)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;
	struct ps_index_key prefix;

	ps_index_key_id(&prefix, 'B', id);
	int rc = ps_kv_iter_open(index->kv, prefix.bytes, prefix.n, &it);
	while (rc == 0 && ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		struct ps_extent_row row;

		if (nkey != prefix.n + 4)
			continue;
		uint32_t extent = (uint32_t)ps_index_key_number((const uint8_t *)key + prefix.n, 4);
		if (ps_extent_row_decode(value, nvalue, index->stop.trust, &row) < 0) {
			struct ps_index_key bad_key;
			ps_index_key_extent(&bad_key, id, extent);
			ps_index_bad_row(&bad_key, -EBADMSG);
			continue;
		}
		rc = fn(arg, extent, &row);
	}
	if (rc == 0)
		rc = ps_kv_iter_status(it);
	ps_kv_iter_close(it);
	return rc;
}

int ps_index_each_pin(struct ps_index *index, int (*fn)(void *arg, const struct ps_pin_row *row), void *arg)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;

	int rc = ps_kv_iter_open(index->kv, "P", 1, &it);
	while (rc == 0 && ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		struct ps_pin_row row;
		struct ps_id id;

		if (nkey != 1 + PS_ID_LEN)
			continue;
		memcpy(id.bytes, (const uint8_t *)key + 1, PS_ID_LEN);
		rc = ps_row_decode(key, value, nvalue, &row);
		if (rc == 0) {
			rc = fn(arg, &row);
			ps_pin_row_fini(&row);
		} else if (rc == -EBADMSG) {
			struct ps_index_key bad_key;
			ps_index_key_id(&bad_key, 'P', &id);
			ps_index_bad_row(&bad_key, rc);
			rc = 0;
		}
	}
	if (rc == 0)
		rc = ps_kv_iter_status(it);
	ps_kv_iter_close(it);
	return rc;
}
