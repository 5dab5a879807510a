#include "cache.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "catalog/dataset.h"
#include "policy/policy.h"
#include "prefetch/prefetch.h"

#define GRANT_TTL_DEFAULT_MS (15 * 60 * UINT64_C(1000))

static int prefetch_start(struct ps_dataset *ds)
{
	int rc = ps_next_shard_new(ds, &ds->sequence);

	return rc == 0 ? ps_plan_ahead_new(ds, &ds->plan_ahead) : rc;
}

static void prefetch_stop_plans(struct ps_dataset *ds)
{
	ps_plan_ahead_free(ps_steal_ptr(&ds->plan_ahead));
}

static void prefetch_stop(struct ps_dataset *ds)
{
	ps_next_shard_free(ps_steal_ptr(&ds->sequence));
}

static const struct ps_prefetch_ops prefetch = {
        .start = prefetch_start, .stop_plans = prefetch_stop_plans, .stop = prefetch_stop};

int ps_cache_open(const struct ps_cache_options *options, struct ps_cache **ret, struct ps_error *err)
{
	const struct ps_fill_options fill = {
	        .memory_bytes = options->memory_bytes,
	        .max_connections = options->max_connections,
	        .max_bytes_per_s = options->max_bytes_per_s,
	        .timeout_ms = options->timeout_ms,
	};
	struct ps_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return ps_error_set(err, ENOMEM, "out of memory");
	int rc = ps_store_open(&options->store, &cache->store, err);
	if (rc == 0) {
		rc = ps_fill_new(&fill, &cache->fill);
		if (rc == 0 && (rc = ps_decompress_new(cache->store, cache->fill, &cache->decompress)) < 0)
			ps_fill_free(cache->fill);
		if (rc < 0) {
			ps_error_set(err, -rc, "cannot start the fetch engine: %s", strerror(-rc));
			ps_store_close(cache->store);
		}
	}
	if (rc < 0) {
		free(cache);
		return rc;
	}
	cache->prefetch = &prefetch;
	cache->opened_s = ps_clock_real_s();
	cache->grant_ttl_ms = options->grant_ttl_ms ? options->grant_ttl_ms : GRANT_TTL_DEFAULT_MS;
	ps_cond_init(&cache->cond);
	pthread_mutex_init(&cache->lock, NULL);
	pthread_mutex_init(&cache->grants_lock, NULL);
	ps_list_init(&cache->attached);
	ps_list_init(&cache->catalogs);
	ps_list_init(&cache->datasets);
	*ret = cache;
	return 0;
}

void ps_cache_close(struct ps_cache *cache)
{
	if (!cache)
		return;
	ps_decompress_free(cache->decompress);
	ps_fill_free(cache->fill);
	ps_store_close(cache->store);
	pthread_mutex_destroy(&cache->lock);
	pthread_mutex_destroy(&cache->grants_lock);
	pthread_cond_destroy(&cache->cond);
	free(cache);
}

struct ps_store *ps_cache_store(struct ps_cache *cache)
{
	return cache->store;
}

json_t *ps_cache_stats(struct ps_cache *cache)
{
	struct ps_plans *plans = ps_store_plans(cache->store);
	json_t *announced = plans ? ps_plans_stats(plans, (double)ps_clock_real_ms() / 1000) : json_null();

	return json_pack("{s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "started_at", (json_int_t)cache->opened_s, "plans",
	        announced, "cache", ps_store_stats(cache->store), "memory", ps_fill_memory_stats(cache->fill),
	        "origin", ps_fill_origin_stats(cache->fill), "reads", ps_fill_read_stats(cache->fill),
	        "inflate", ps_decompress_stats(cache->decompress));
}
