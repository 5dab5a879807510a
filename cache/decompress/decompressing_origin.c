/* Inflaters: one for each (origin, decoded object), as they come and go, and what the index keeps of them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

#define VIEW "decoded"

/* The index -------------------------------------------------------------------------------------- */

static void id_of(const char *route, const char *url, const struct ps_remote *source, struct ps_id *ret)
{
	char view[sizeof VIEW + PS_ID_HEX_LEN];

	snprintf(view, sizeof view, VIEW "%s", route);
	ps_object_id(url, source, view, ret);
}

static const char *route_of(const struct ps_origin *base)
{
	return base->route ? base->route : "";
}

uint64_t ps_inflate_known_size(struct ps_store *store, const char *route, const char *url,
        const struct ps_remote *source, uint64_t *ret_nodes_below)
{
	struct ps_view_row row;
	struct ps_id id;

	id_of(route, url, source, &id);
	*ret_nodes_below = 0;
	if (ps_index_get_view(ps_store_index(store), &id, &row) < 0)
		return PS_SIZE_UNKNOWN;
	*ret_nodes_below = row.nodes_below;
	return row.size;
}

void ps_inflate_forget(
        struct ps_index_batch *batch, const char *route, const char *url, const struct ps_remote *source)
{
	struct ps_id id;

	id_of(route, url, source, &id);
	ps_index_batch_del_view(batch, &id);
}

static int load(struct ps_inflater *inflater)
{
	struct ps_index *index = ps_store_index(inflater->inflate->store);
	ps_autostrbuf struct ps_strbuf bytes = {0};
	struct ps_view_row row;
	int rc = ps_index_get_view(index, &inflater->id, &row);

	if (rc < 0)
		return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
	inflater->size = row.size;
	inflater->declared = row.declared;
	inflater->nodes_below = row.nodes_below;
	if (ps_index_get_frames(index, &inflater->id, &bytes) == 0 &&
	        ps_frame_map_decode(bytes.s, bytes.len, &inflater->map) == 0)
		inflater->nsaved = inflater->map.n;
	return 0;
}

static void save(struct ps_inflater *inflater, const struct ps_view_row *row)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_autostrbuf struct ps_strbuf bytes = {0};

	if (inflater->map.n > inflater->nsaved)
		ps_frame_map_encode(&inflater->map, &bytes);
	inflater->nsaved = inflater->map.n;
	ps_index_batch_put_view(batch, &inflater->id, row);
	if (bytes.len && !bytes.failed)
		ps_index_batch_put_frames(batch, &inflater->id, bytes.s, bytes.len);
	pthread_mutex_unlock(&inflate->lock);
	/* Not only while it is open: finding it out again may take decoding all of it. */
	if (ps_index_batch_commit_or_keep(ps_store_index(inflate->store), batch) < 0)
		ps_log_warning("index: %s: what was found out of it cannot be kept", inflater->url);
	pthread_mutex_lock(&inflate->lock);
}

void ps_inflater_save(struct ps_inflater *inflater)
{
	const struct ps_view_row row = {
	        .size = inflater->size, .declared = inflater->declared, .nodes_below = inflater->nodes_below};

	save(inflater, &row);
}

void ps_inflater_save_disproved(struct ps_inflater *inflater)
{
	const struct ps_view_row row = {.size = PS_SIZE_UNKNOWN, .nodes_below = inflater->nodes_below};

	inflater->disproved = true;
	save(inflater, &row);
}

/* Inflaters -------------------------------------------------------------------------------------- */

static void origin_ref(struct ps_origin *origin)
{
	struct ps_inflater *inflater = (struct ps_inflater *)origin;

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_inflater_ref(inflater);
}

static void origin_unref(struct ps_origin *origin)
{
	ps_inflater_put((struct ps_inflater *)origin);
}

static const struct ps_origin_ops inflater_ops = {
        .name = "inflate",
        .get = ps_inflater_get_bytes,
        .cancel = ps_inflater_cancel,
        .ref = origin_ref,
        .unref = origin_unref,
};

void ps_inflater_ref(struct ps_inflater *inflater)
{
	inflater->refs++;
}

struct ps_object *ps_inflater_hold(struct ps_inflater *inflater)
{
	return inflater->object ? ps_object_ref(inflater->object) : NULL;
}

void ps_inflater_proved(struct ps_inflater *inflater, const struct ps_get *get)
{
	struct ps_origin *base = inflater->base;

	if (base->proved && get->nbytes_done > 0)
		base->proved(base->proved_arg, inflater->url, &inflater->source, get->work.key_expires_s);
}

static void inflater_free(struct ps_inflater *inflater)
{
	if (!inflater)
		return;
	ps_object_put(inflater->object);
	ps_frame_map_fini(&inflater->map);
	ps_headers_free(inflater);
	free(inflater->url);
	free(inflater->object_url);
	free(inflater);
}

void ps_inflater_unref(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (--inflater->refs > 0)
		return;
	/* Still on the list: a drain waits until the object is back, too. Nobody gets it any more. */
	pthread_mutex_unlock(&inflate->lock);
	ps_object_put(ps_steal_ptr(&inflater->object));
	pthread_mutex_lock(&inflate->lock);
	ps_list_remove(&inflater->link);
	pthread_cond_broadcast(&inflate->gone);
	inflater_free(inflater);
}

void ps_inflater_put(struct ps_inflater *inflater)
{
	if (!inflater)
		return;
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_inflater_unref(inflater);
}

uint64_t ps_inflater_known_size(struct ps_inflater *inflater)
{
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	return inflater->size;
}

struct ps_origin *ps_inflater_origin(struct ps_inflater *inflater)
{
	return &inflater->origin;
}

/* The lock is held. */
static struct ps_inflater *find(
        struct ps_inflate *inflate, const struct ps_origin *base, const struct ps_id *id)
{
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

		if (inflater->refs > 0 && !inflater->disproved && inflater->base == base &&
		        memcmp(&inflater->id, id, sizeof *id) == 0)
			return inflater;
	}
	return NULL;
}

static struct ps_inflater *inflater_new(struct ps_inflate *inflate, struct ps_origin *base, const char *url,
        const char *name, const struct ps_remote *source, enum ps_coding coding)
{
	struct ps_inflater *inflater = calloc(1, sizeof *inflater);

	if (!inflater)
		return NULL;
	inflater->origin = (struct ps_origin){.ops = &inflater_ops, .base = base};
	inflater->inflate = inflate;
	inflater->base = base;
	inflater->refs = 1;
	inflater->coding = coding;
	inflater->source = inflater->expect = *source;
	inflater->size = PS_SIZE_UNKNOWN;
	inflater->url = strdup(url);
	/* No URL of an origin has a fragment, so this is nobody else's. */
	if (asprintf(&inflater->object_url, "%s#%s", url, name) < 0)
		inflater->object_url = NULL;
	struct ps_list *lists[] = {
	        &inflater->link, &inflater->work_link, &inflater->parts, &inflater->unpackers};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	id_of(route_of(base), url, source, &inflater->id);
	if (inflater->url && inflater->object_url)
		return inflater;
	inflater_free(inflater);
	return NULL;
}

int ps_inflater_get(struct ps_inflate *inflate, struct ps_origin *base, const char *url, const char *name,
        const struct ps_remote *source, enum ps_coding coding, struct ps_inflater **ret)
{
	struct ps_inflater *made = inflater_new(inflate, base, url, name, source, coding);
	int rc = made ? load(made) : -ENOMEM;

	if (rc < 0) {
		inflater_free(made);
		return rc;
	}
	pthread_mutex_lock(&inflate->lock);
	ps_inflate_take_memory(inflate);
	struct ps_inflater *found = find(inflate, base, &made->id);
	if (found) {
		found->refs++;
	} else {
		ps_list_append(&inflate->inflaters, &made->link);
		found = ps_steal_ptr(&made);
	}
	pthread_mutex_unlock(&inflate->lock);
	inflater_free(made);
	*ret = found;
	return 0;
}

/* The decoded object, of the size that was found out. One of another length was made to find out the size,
 * by another dataset or by us, and could not be cut to it: it makes way. */
static int get_object(struct ps_inflater *inflater, const struct ps_id *id, uint64_t size, uint32_t dataset,
        bool opened, struct ps_object **ret)
{
	struct ps_object *object;

	for (int attempt = 0; attempt < 3; attempt++) {
		int rc = ps_object_get_view(inflater->inflate->store, inflater->object_url, &inflater->source,
		        id, size, dataset, opened, &object);
		if (rc == 0 && ps_object_size(object) == size)
			*ret = object;
		if (rc < 0 || ps_object_size(object) == size)
			return rc;
		rc = ps_object_retire(object);
		ps_object_put(object);
		if (rc < 0)
			return rc;
	}
	return -EAGAIN;
}

int ps_inflater_object(struct ps_inflater *inflater, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_id id = inflater->id;
	char view[64 + PS_ID_HEX_LEN];
	uint64_t size;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		size = inflater->size;
		/* A declared size may turn out wrong: the object of another size is then another object. */
		if (inflater->declared) {
			snprintf(view, sizeof view, VIEW "%s %llu", route_of(inflater->base), (unsigned long long)size);
			ps_object_id(inflater->url, &inflater->source, view, &id);
		}
	}
	int rc = get_object(inflater, &id, size, dataset, opened, ret);
	if (rc < 0)
		return rc;
	/* An evicted one lives on with those who have it open; what is decoded from now on goes into the new
	 * one. */
	struct ps_object *spare = ps_object_ref(*ret);
	{
		PS_LOCK_SCOPE(&inflate->lock);
		struct ps_object *old = inflater->object;

		inflater->caches = inflater->caches && old == spare;
		inflater->object = spare;
		spare = old;
		if (!inflater->expect.etag[0])
			ps_object_learned_etag(*ret, inflater->expect.etag);
	}
	ps_object_put(spare);
	return 0;
}
