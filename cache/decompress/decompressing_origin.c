#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Origins of plain bytes ----------------------------------------------------------------------------- */

/* Inflaters: one for each (origin, decoded object), as they come and go, and what the index keeps of them. */

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

uint64_t ps_decompress_known_size(struct ps_store *store, const char *route, const char *url,
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

void ps_decompress_forget(
        struct ps_index_batch *batch, const char *route, const char *url, const struct ps_remote *source)
{
	struct ps_id id;

	id_of(route, url, source, &id);
	ps_index_batch_del_view(batch, &id);
}

static int load(struct ps_decompressing *inflater)
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

static void save(struct ps_decompressing *inflater, const struct ps_view_row *row)
{
	struct ps_decompress *inflate = inflater->inflate;
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

void ps_decompressing_save(struct ps_decompressing *inflater)
{
	const struct ps_view_row row = {
	        .size = inflater->size, .declared = inflater->declared, .nodes_below = inflater->nodes_below};

	save(inflater, &row);
}

void ps_decompressing_save_disproved(struct ps_decompressing *inflater)
{
	const struct ps_view_row row = {.size = PS_SIZE_UNKNOWN, .nodes_below = inflater->nodes_below};

	inflater->disproved = true;
	save(inflater, &row);
}

/* Inflaters -------------------------------------------------------------------------------------- */

static void origin_ref(struct ps_origin *origin)
{
	struct ps_decompressing *inflater = (struct ps_decompressing *)origin;

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_decompressing_ref(inflater);
}

static void origin_unref(struct ps_origin *origin)
{
	ps_decompressing_put((struct ps_decompressing *)origin);
}

/* not held: ps_origin_ops */
static void ps_decompressing_cancel(struct ps_origin *origin, struct ps_origin_get *get);

/* not held: ps_origin_ops */
static void ps_decompressing_get_bytes(struct ps_origin *origin, struct ps_origin_get *get);

static const struct ps_origin_ops inflater_ops = {
        .name = "inflate",
        .get = ps_decompressing_get_bytes,
        .cancel = ps_decompressing_cancel,
        .ref = origin_ref,
        .unref = origin_unref,
};

void ps_decompressing_ref(struct ps_decompressing *inflater)
{
	inflater->refs++;
}

struct ps_object *ps_decompressing_hold(struct ps_decompressing *inflater)
{
	return inflater->object ? ps_object_ref(inflater->object) : NULL;
}

void ps_decompressing_proved(struct ps_decompressing *inflater, const struct ps_origin_get *get)
{
	struct ps_origin *base = inflater->base;

	if (base->proved && get->nbytes_done > 0)
		base->proved(base->proved_arg, inflater->url, &inflater->source, get->work.key_expires_s);
}

static void inflater_free(struct ps_decompressing *inflater)
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

void ps_decompressing_unref(struct ps_decompressing *inflater)
{
	struct ps_decompress *inflate = inflater->inflate;

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

void ps_decompressing_put(struct ps_decompressing *inflater)
{
	if (!inflater)
		return;
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_decompressing_unref(inflater);
}

uint64_t ps_decompressing_known_size(struct ps_decompressing *inflater)
{
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	return inflater->size;
}

struct ps_origin *ps_decompressing_as_origin(struct ps_decompressing *inflater)
{
	return &inflater->origin;
}

/* The lock is held. */
static struct ps_decompressing *find(
        struct ps_decompress *inflate, const struct ps_origin *base, const struct ps_id *id)
{
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

		if (inflater->refs > 0 && !inflater->disproved && inflater->base == base &&
		        memcmp(&inflater->id, id, sizeof *id) == 0)
			return inflater;
	}
	return NULL;
}

static struct ps_decompressing *inflater_new(struct ps_decompress *inflate, struct ps_origin *base, const char *url,
        const char *name, const struct ps_remote *source, enum ps_coding coding)
{
	struct ps_decompressing *inflater = calloc(1, sizeof *inflater);

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
	        &inflater->link, &inflater->work_link, &inflater->parts, &inflater->decompressors};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	id_of(route_of(base), url, source, &inflater->id);
	if (inflater->url && inflater->object_url)
		return inflater;
	inflater_free(inflater);
	return NULL;
}

int ps_decompressing_get(struct ps_decompress *inflate, struct ps_origin *base, const char *url, const char *name,
        const struct ps_remote *source, enum ps_coding coding, struct ps_decompressing **ret)
{
	struct ps_decompressing *made = inflater_new(inflate, base, url, name, source, coding);
	int rc = made ? load(made) : -ENOMEM;

	if (rc < 0) {
		inflater_free(made);
		return rc;
	}
	pthread_mutex_lock(&inflate->lock);
	ps_decompress_take_memory(inflate);
	struct ps_decompressing *found = find(inflate, base, &made->id);
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
static int get_object(struct ps_decompressing *inflater, const struct ps_id *id, uint64_t size, uint32_t dataset,
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

int ps_decompressing_object(struct ps_decompressing *inflater, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_decompress *inflate = inflater->inflate;
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

/* Gets that wait ------------------------------------------------------------------------------------- */

/* Gets that wait for plain bytes: what of each is in place, and who is told of it. Unpackers bring bytes in
 * any order (several frames are decoded at once), the engine hears of them in order. */

static void ps_decompressing_get_bytes(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_decompressing *inflater = (struct ps_decompressing *)origin;
	struct ps_part *part = calloc(1, sizeof *part);

	get->nbytes_done = 0;
	get->wire_nbytes = get->first_byte_ns = 0;
	get->seen = PS_REMOTE_UNKNOWN;
	get->priv = NULL;
	if (!part) {
		/* Handing over cannot fail, and done() must not come from in here. */
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		ps_decompressing_ref(inflater);
		get->work.request = inflater->refused;
		inflater->refused = get;
		ps_decompressing_wake(inflater);
		return;
	}
	part->get = get;
	part->submitted_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	get->priv = part;
	if (!inflater->expect.etag[0])
		memcpy(inflater->expect.etag, get->expect.etag, sizeof inflater->expect.etag);
	if (inflater->aborted)
		ps_error_set(&part->err, ECANCELED, "cancelled");
	ps_decompressing_ref(inflater); /* until it was answered */
	ps_list_append(&inflater->parts, &part->link);
	ps_decompressing_wake(inflater);
}

static void ps_decompressing_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_decompressing *inflater = (struct ps_decompressing *)origin;

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	struct ps_part *part = get->priv;
	if (!part || part->err.err)
		return;
	ps_error_set(&part->err, ECANCELED, "cancelled");
	ps_decompressing_wake(inflater);
}

bool ps_part_gap(const struct ps_part *part, uint64_t from, struct ps_range *ret)
{
	uint64_t at = PS_MAX(from, part->get->offset), end = part->get->offset + part->get->nbytes;
	unsigned i = 0;

	if (part->err.err)
		return false;
	for (; i < part->nhave && part->have[i].from <= at; i++)
		at = PS_MAX(at, part->have[i].end);
	if (at >= end)
		return false;
	*ret = (struct ps_range){.from = at, .end = i < part->nhave ? part->have[i].from : end};
	return true;
}

/* False: there are too many ranges to remember this one. */
static bool note(struct ps_part *part, uint64_t from, uint64_t end)
{
	unsigned i = 0, n;

	while (i < part->nhave && part->have[i].end < from)
		i++;
	/* [i, n) touch the new one. */
	for (n = i; n < part->nhave && part->have[n].from <= end; n++) {
		from = PS_MIN(from, part->have[n].from);
		end = PS_MAX(end, part->have[n].end);
	}
	if (n == i && part->nhave == PS_PART_RANGES)
		return false;
	memmove(&part->have[i + 1], &part->have[n], (part->nhave - n) * sizeof *part->have);
	part->nhave += 1 - (n - i);
	part->have[i] = (struct ps_range){.from = from, .end = end};
	return true;
}

static void copy_in(struct ps_origin_get *get, uint64_t from, uint64_t end, const uint8_t *data)
{
	uint64_t at = get->offset;

	for (int i = 0; i < get->niov && at < end; i++) {
		uint64_t stop = at + get->iov[i].iov_len;
		uint64_t lo = PS_MAX(at, from), hi = PS_MIN(stop, end);

		if (lo < hi)
			memcpy((uint8_t *)get->iov[i].iov_base + (lo - at), data + (lo - from), hi - lo);
		at = stop;
	}
}

bool ps_part_give(struct ps_part *part, uint64_t from, uint64_t end, const uint8_t *data)
{
	struct ps_range gap;
	uint64_t at = from;
	bool gave = false;

	while (at < end && ps_part_gap(part, at, &gap) && gap.from < end) {
		gap.end = PS_MIN(gap.end, end);
		if (!note(part, gap.from, gap.end))
			break;
		copy_in(part->get, gap.from, gap.end, data + (gap.from - from));
		if (!part->first_ns)
			part->first_ns = ps_clock_mono_ns();
		gave = true;
		at = gap.end;
	}
	return gave;
}

void ps_parts_fail(struct ps_decompressing *inflater, uint64_t from, uint64_t end, const struct ps_error *err)
{
	struct ps_range gap;

	for (struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (ps_part_gap(part, from, &gap) && gap.from < end)
			part->err = *err;
	}
}

/* Bytes of its beginning that are there. */
static size_t part_prefix(const struct ps_part *part)
{
	if (!part->nhave || part->have[0].from > part->get->offset)
		return 0;
	return (size_t)(part->have[0].end - part->get->offset);
}

static bool has_news(const struct ps_part *part)
{
	return !part->telling && (part->err.err || part_prefix(part) > part->told);
}

static void tell(struct ps_decompressing *inflater, struct ps_part *part)
{
	struct ps_decompress *inflate = inflater->inflate;
	struct ps_origin_get *get = part->get;
	size_t prefix = part_prefix(part);
	bool ends = part->err.err || prefix == get->nbytes;
	struct ps_error err = part->err;

	if (prefix == get->nbytes)
		err = (struct ps_error){0};
	part->telling = true;
	part->told = prefix;
	memcpy(get->seen.etag, inflater->expect.etag, sizeof get->seen.etag);
	get->first_byte_ns = part->first_ns ? part->first_ns - part->submitted_ns : 0;
	if (ends) {
		ps_list_remove(&part->link);
		get->nbytes_done = prefix;
		get->priv = NULL;
	}
	pthread_mutex_unlock(&inflate->lock);
	if (!ends) {
		get->progress(get, prefix);
	} else {
		get->done(get, &err);
		free(part);
	}
	pthread_mutex_lock(&inflate->lock);
	if (ends)
		ps_decompressing_unref(inflater); /* the caller has another */
	else
		part->telling = false;
}

static void refuse(struct ps_decompressing *inflater)
{
	const struct ps_error none = {.err = ENOMEM, .text = "out of memory"};
	struct ps_origin_get *get = inflater->refused;

	inflater->refused = get->work.request;
	pthread_mutex_unlock(&inflater->inflate->lock);
	get->done(get, &none);
	pthread_mutex_lock(&inflater->inflate->lock);
	ps_decompressing_unref(inflater);
}

void ps_parts_settle(struct ps_decompressing *inflater)
{
	while (inflater->refused)
		refuse(inflater);
	for (;;) {
		struct ps_part *news = NULL;

		for (struct ps_list *l = inflater->parts.next; l != &inflater->parts && !news; l = l->next) {
			struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

			if (has_news(part))
				news = part;
		}
		if (!news)
			return;
		tell(inflater, news);
	}
}
