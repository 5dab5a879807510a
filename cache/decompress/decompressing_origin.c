/* Decompressing origins, one for each (origin, decoded object): their objects, their rows in the index, and
 * the waiting gets of plain bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

#define VIEW "decoded"

/* Rows of the index -------------------------------------------------------------------------------------- */

static void id_of(const char *route, const char *url, const struct ps_remote *source, struct ps_id *ret)
{
	char view[sizeof(VIEW) + PS_ID_HEX_LEN];

	snprintf(view, sizeof(view), VIEW "%s", route);
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

static int load(struct ps_decompressing *shard)
{
	struct ps_index *index = ps_store_index(shard->stage->store);
	ps_autostrbuf struct ps_strbuf bytes = {0};
	struct ps_view_row row;
	int rc = ps_index_get_view(index, &shard->id, &row);

	if (rc < 0)
		return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
	shard->size = row.size;
	shard->declared = row.declared;
	shard->nodes_below = row.nodes_below;
	if (ps_index_get_frames(index, &shard->id, &bytes) == 0 &&
	        ps_frame_map_decode(bytes.s, bytes.len, &shard->map) == 0)
		shard->nsaved = shard->map.n;
	return 0;
}

void ps_decompressing_save(struct ps_decompressing *shard)
{
	const struct ps_view_row row = {.size = shard->disproved ? PS_SIZE_UNKNOWN : shard->size,
	        .declared = shard->declared && !shard->disproved,
	        .nodes_below = shard->nodes_below};
	struct ps_decompress *stage = shard->stage;
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_autostrbuf struct ps_strbuf bytes = {0};

	if (shard->map.n > shard->nsaved)
		ps_frame_map_encode(&shard->map, &bytes);
	shard->nsaved = shard->map.n;
	ps_index_batch_put_view(batch, &shard->id, &row);
	if (bytes.len && !bytes.failed)
		ps_index_batch_put_frames(batch, &shard->id, bytes.s, bytes.len);
	pthread_mutex_unlock(&stage->lock);
	/* The row is kept in memory if the index refuses it: finding the size again may mean decoding the
	 * whole shard. */
	if (ps_index_batch_commit_or_keep(ps_store_index(stage->store), batch) < 0)
		ps_log_warning("index: %s: its decoded size and its frames cannot be stored", shard->url);
	pthread_mutex_lock(&stage->lock);
}

/* Waiting gets ------------------------------------------------------------------------------------------- */

/* Decompressors deliver the bytes of a get in any order, since several frames are decoded at once; the fill
 * engine receives them in order. */

static void origin_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_decompressing *shard = (struct ps_decompressing *)origin;
	struct ps_waiting_get *waiting = calloc(1, sizeof(*waiting));

	get->nbytes_done = 0;
	get->wire_nbytes = get->first_byte_ns = 0;
	get->seen = PS_REMOTE_UNKNOWN;
	get->priv = NULL;
	if (!waiting) {
		/* A get cannot fail here, since done() must not be called from within get(). */
		PS_LOCK_SCOPE(&shard->stage->lock);
		shard->refs++;
		get->work.request = shard->refused;
		shard->refused = get;
		ps_decompressing_wake(shard);
		return;
	}
	waiting->get = get;
	waiting->submitted_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&shard->stage->lock);
	get->priv = waiting;
	if (!shard->expect.etag[0])
		memcpy(shard->expect.etag, get->expect.etag, sizeof(shard->expect.etag));
	if (shard->aborted)
		ps_error_set(&waiting->err, ECANCELED, "cancelled");
	shard->refs++; /* until done() has returned */
	ps_list_append(&shard->gets, &waiting->link);
	ps_decompressing_wake(shard);
}

static void origin_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct ps_decompressing *shard = (struct ps_decompressing *)origin;

	PS_LOCK_SCOPE(&shard->stage->lock);
	struct ps_waiting_get *waiting = get->priv;
	if (!waiting || waiting->err.err)
		return;
	ps_error_set(&waiting->err, ECANCELED, "cancelled");
	ps_decompressing_wake(shard);
}

bool ps_waiting_get_gap(const struct ps_waiting_get *waiting, uint64_t from, struct ps_range *ret)
{
	uint64_t at = PS_MAX(from, waiting->get->offset), end = waiting->get->offset + waiting->get->nbytes;
	unsigned i = 0;

	if (waiting->err.err)
		return false;
	for (; i < waiting->nhave && waiting->have[i].from <= at; i++)
		at = PS_MAX(at, waiting->have[i].end);
	if (at >= end)
		return false;
	*ret = (struct ps_range){.from = at, .end = i < waiting->nhave ? waiting->have[i].from : end};
	return true;
}

/* Records a range of the get as filled. False: there is no room for another range. */
static bool note(struct ps_waiting_get *waiting, uint64_t from, uint64_t end)
{
	unsigned i = 0, n;

	while (i < waiting->nhave && waiting->have[i].end < from)
		i++;
	/* Ranges [i, n) touch the new one. */
	for (n = i; n < waiting->nhave && waiting->have[n].from <= end; n++) {
		from = PS_MIN(from, waiting->have[n].from);
		end = PS_MAX(end, waiting->have[n].end);
	}
	if (n == i && waiting->nhave == PS_WAITING_GET_RANGES)
		return false;
	memmove(&waiting->have[i + 1], &waiting->have[n], (waiting->nhave - n) * sizeof(*waiting->have));
	waiting->nhave += 1 - (n - i);
	waiting->have[i] = (struct ps_range){.from = from, .end = end};
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

bool ps_waiting_get_copy(struct ps_waiting_get *waiting, uint64_t from, uint64_t end, const uint8_t *data)
{
	struct ps_range gap;
	uint64_t at = from;
	bool gave = false;

	while (at < end && ps_waiting_get_gap(waiting, at, &gap) && gap.from < end) {
		gap.end = PS_MIN(gap.end, end);
		if (!note(waiting, gap.from, gap.end))
			break;
		copy_in(waiting->get, gap.from, gap.end, data + (gap.from - from));
		if (!waiting->first_ns)
			waiting->first_ns = ps_clock_mono_ns();
		gave = true;
		at = gap.end;
	}
	return gave;
}

void ps_waiting_gets_fail(
        struct ps_decompressing *shard, uint64_t from, uint64_t end, const struct ps_error *err)
{
	struct ps_range gap;

	PS_LIST_EACH (struct ps_waiting_get, waiting, &shard->gets, link) {
		if (ps_waiting_get_gap(waiting, from, &gap) && gap.from < end)
			waiting->err = *err;
	}
}

/* The number of contiguous bytes from the beginning of the get. */
static size_t bytes_in_place(const struct ps_waiting_get *waiting)
{
	if (!waiting->nhave || waiting->have[0].from > waiting->get->offset)
		return 0;
	return (size_t)(waiting->have[0].end - waiting->get->offset);
}

static void report(struct ps_decompressing *shard, struct ps_waiting_get *waiting)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_origin_get *get = waiting->get;
	size_t prefix = bytes_in_place(waiting);
	bool ends = waiting->err.err || prefix == get->nbytes;
	struct ps_error err = waiting->err;

	if (prefix == get->nbytes)
		err = (struct ps_error){0};
	waiting->reporting = true;
	waiting->reported = prefix;
	memcpy(get->seen.etag, shard->expect.etag, sizeof(get->seen.etag));
	get->first_byte_ns = waiting->first_ns ? waiting->first_ns - waiting->submitted_ns : 0;
	if (ends) {
		ps_list_remove(&waiting->link);
		get->nbytes_done = prefix;
		get->priv = NULL;
	}
	pthread_mutex_unlock(&stage->lock);
	if (!ends) {
		get->progress(get, prefix);
	} else {
		get->done(get, &err);
		free(waiting);
	}
	pthread_mutex_lock(&stage->lock);
	if (ends)
		ps_decompressing_unref(shard); /* the caller has another reference */
	else
		waiting->reporting = false;
}

void ps_waiting_gets_answer(struct ps_decompressing *shard)
{
	const struct ps_error none = {.err = ENOMEM, .text = "out of memory"};

	while (shard->refused) {
		struct ps_origin_get *get = shard->refused;

		shard->refused = get->work.request;
		pthread_mutex_unlock(&shard->stage->lock);
		get->done(get, &none);
		pthread_mutex_lock(&shard->stage->lock);
		ps_decompressing_unref(shard);
	}
again:
	PS_LIST_EACH (struct ps_waiting_get, waiting, &shard->gets, link) {
		if (!waiting->reporting &&
		        (waiting->err.err || bytes_in_place(waiting) > waiting->reported)) {
			report(shard, waiting);
			goto again; /* the list may have changed */
		}
	}
}

/* Origins ------------------------------------------------------------------------------------------------ */

static void origin_ref(struct ps_origin *origin)
{
	struct ps_decompressing *shard = (struct ps_decompressing *)origin;

	PS_LOCK_SCOPE(&shard->stage->lock);
	shard->refs++;
}

static void origin_unref(struct ps_origin *origin)
{
	ps_decompressing_put((struct ps_decompressing *)origin);
}

static const struct ps_origin_ops shard_ops = {
        .name = "decompress",
        .get = origin_get,
        .cancel = origin_cancel,
        .ref = origin_ref,
        .unref = origin_unref,
};

struct ps_object *ps_decompressing_hold(struct ps_decompressing *shard)
{
	return shard->object ? ps_object_ref(shard->object) : NULL;
}

static struct ps_told *find_told(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;

	for (size_t i = 0; i < PS_ARRAY_LEN(stage->told); i++)
		if (stage->told[i].err && memcmp(&stage->told[i].id, &shard->id, sizeof(shard->id)) == 0)
			return &stage->told[i];
	return NULL;
}

/* True if the log does not have this cause yet. Each open makes a new decompressing origin, so the stage keeps
 * the causes. Under the lock. */
static bool is_news(struct ps_decompressing *shard, const struct ps_error *err)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_told *told = find_told(shard);

	if (told && told->err == err->err && told->http_status == err->http_status)
		return false;
	if (!told)
		told = &stage->told[stage->next_told++ % PS_ARRAY_LEN(stage->told)];
	*told = (struct ps_told){.id = shard->id, .err = err->err, .http_status = err->http_status};
	return true;
}

void ps_decompressing_untell(struct ps_decompressing *shard)
{
	struct ps_told *told = find_told(shard);

	if (told)
		told->err = 0;
}

void ps_decompressing_note(struct ps_decompressing *shard, const struct ps_error *err)
{
	bool news;

	if (err->err == ECANCELED)
		return;
	{
		PS_LOCK_SCOPE(&shard->stage->lock);
		shard->trouble = *err;
		news = err->err && shard->size == PS_SIZE_UNKNOWN && is_news(shard, err);
	}
	if (!news)
		return;
	ps_log_warning("decompress: %s: its size %s: %s", shard->url,
	        err->retryable ? "is not known yet" : "cannot be found", err->text);
	ps_fill_note_error(shard->stage->fill, err->text);
}

void ps_decompressing_proved(struct ps_decompressing *shard, const struct ps_origin_get *get)
{
	struct ps_origin *base = shard->base;

	if (base->proved && get->nbytes_done > 0 && !get->work.from_tier)
		base->proved(base->proved_arg, shard->url, &shard->source, get->work.key_expires_s);
}

static void shard_free(struct ps_decompressing *shard)
{
	if (!shard)
		return;
	ps_object_put(shard->object);
	ps_frame_map_fini(&shard->map);
	free(shard->url);
	free(shard->object_url);
	free(shard);
}

void ps_decompressing_unref(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;

	if (--shard->refs > 0)
		return;
	/* The shard stays on the list until its object is put, since ps_decompress_drain() must wait for
	 * that, too. ps_decompressing_get() skips shards without references. */
	pthread_mutex_unlock(&stage->lock);
	ps_object_put(ps_steal_ptr(&shard->object));
	pthread_mutex_lock(&stage->lock);
	ps_list_remove(&shard->link);
	pthread_cond_broadcast(&stage->gone);
	shard_free(shard);
}

void ps_decompressing_put(struct ps_decompressing *shard)
{
	if (!shard)
		return;
	PS_LOCK_SCOPE(&shard->stage->lock);
	ps_decompressing_unref(shard);
}

uint64_t ps_decompressing_known_size(struct ps_decompressing *shard)
{
	PS_LOCK_SCOPE(&shard->stage->lock);
	return shard->size;
}

struct ps_origin *ps_decompressing_as_origin(struct ps_decompressing *shard)
{
	return &shard->origin;
}

static struct ps_decompressing *shard_new(struct ps_decompress *stage, struct ps_origin *base,
        const char *url, const char *name, const struct ps_remote *source, enum ps_coding coding)
{
	struct ps_decompressing *shard = calloc(1, sizeof(*shard));

	if (!shard)
		return NULL;
	shard->origin = (struct ps_origin){.ops = &shard_ops, .base = base};
	shard->stage = stage;
	shard->base = base;
	shard->refs = 1;
	shard->coding = coding;
	shard->source = shard->expect = *source;
	shard->size = PS_SIZE_UNKNOWN;
	shard->url = strdup(url);
	/* No URL of an origin has a fragment, so no other object has this one. */
	if (asprintf(&shard->object_url, "%s#%s", url, name) < 0)
		shard->object_url = NULL;
	struct ps_list *lists[] = {&shard->link, &shard->work_link, &shard->gets, &shard->decompressors};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	id_of(route_of(base), url, source, &shard->id);
	if (shard->url && shard->object_url)
		return shard;
	shard_free(shard);
	return NULL;
}

int ps_decompressing_get(struct ps_decompress *stage, struct ps_origin *base, const char *url,
        const char *name, const struct ps_remote *source, enum ps_coding coding,
        struct ps_decompressing **ret)
{
	struct ps_decompressing *made = shard_new(stage, base, url, name, source, coding), *found = NULL;
	int rc = made ? load(made) : -ENOMEM;

	if (rc < 0) {
		shard_free(made);
		return rc;
	}
	pthread_mutex_lock(&stage->lock);
	ps_decompress_take_memory(stage);
	PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link)
		if (shard->refs > 0 && !shard->disproved && shard->base == base && !found &&
		        memcmp(&shard->id, &made->id, sizeof(shard->id)) == 0)
			found = shard;
	if (found) {
		found->refs++;
	} else {
		ps_list_append(&stage->shards, &made->link);
		found = ps_steal_ptr(&made);
	}
	pthread_mutex_unlock(&stage->lock);
	shard_free(made);
	*ret = found;
	return 0;
}

/* Gets the decoded object, with the size that was found. If the store has an object of another length, it was
 * made while the size was being found (here or by another dataset), and could not be truncated. Then it is
 * retired, and a new one is made. */
static int get_object(struct ps_decompressing *shard, const struct ps_id *id, uint64_t size, uint32_t dataset,
        bool opened, struct ps_object **ret)
{
	struct ps_object *object;

	for (int attempt = 0; attempt < 3; attempt++) {
		int rc = ps_object_get_view(shard->stage->store, shard->object_url, &shard->source, id, size,
		        dataset, opened, &object);
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

int ps_decompressing_object(
        struct ps_decompressing *shard, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_id id = shard->id;
	char view[64 + PS_ID_HEX_LEN];
	uint64_t size;
	{
		PS_LOCK_SCOPE(&stage->lock);
		size = shard->size;
		/* A declared size may be wrong, so it is part of the object's id. */
		if (shard->declared) {
			snprintf(view, sizeof(view), VIEW "%s %llu", route_of(shard->base),
			        (unsigned long long)size);
			ps_object_id(shard->url, &shard->source, view, &id);
		}
	}
	int rc = get_object(shard, &id, size, dataset, opened, ret);
	if (rc < 0)
		return rc;
	/* Readers that have an evicted object open go on reading it; bytes that are decoded from now on are
	 * stored in the new one. */
	struct ps_object *spare = ps_object_ref(*ret);
	{
		PS_LOCK_SCOPE(&stage->lock);
		struct ps_object *old = shard->object;

		shard->caches = shard->caches && old == spare;
		shard->object = spare;
		spare = old;
		if (!shard->expect.etag[0])
			ps_object_learned_etag(*ret, shard->expect.etag);
	}
	ps_object_put(spare);
	return 0;
}
