/* What the engine tells of itself: figures, and the last failure. */
#include "fetch/fill_private.h"

#include <stdio.h>

#include "base/json.h"

void ps_fill_count_request(struct ps_fill *fill, bool failed)
{
	atomic_fetch_add(&fill->origin_requests, 1);
	atomic_fetch_add(&fill->origin_errors, failed);
}

void ps_fill_note_error(struct ps_fill *fill, const char *text)
{
	PS_LOCK_SCOPE(&fill->lock);
	snprintf(fill->last_error, sizeof fill->last_error, "%s", text);
	fill->last_error_s = ps_clock_real_s();
}

json_t *ps_fill_origin_stats(struct ps_fill *fill)
{
	PS_LOCK_SCOPE(&fill->lock);

	/* A name in it need not be UTF-8. */
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:f,s:o,s:I}", "bytes", (json_int_t)atomic_load(&fill->origin_bytes),
	        "requests", (json_int_t)atomic_load(&fill->origin_requests), "errors",
	        (json_int_t)atomic_load(&fill->origin_errors), "retries",
	        (json_int_t)atomic_load(&fill->origin_retries), "hedged_requests",
	        (json_int_t)atomic_load(&fill->hedged_requests), "hedged_bytes",
	        (json_int_t)atomic_load(&fill->hedged_bytes), "connections",
	        (int)atomic_load(&fill->connections), "timeout_seconds", (double)fill->timeout_ns / PS_NS_PER_S,
	        "last_error", ps_json_lossy(fill->last_error),
	        "last_error_at", (json_int_t)fill->last_error_s);
}

json_t *ps_fill_read_stats(struct ps_fill *fill)
{
	uint64_t bytes = atomic_load(&fill->read_bytes), fetched = atomic_load(&fill->origin_bytes);

	return json_pack("{s:I,s:I,s:f,s:I}", "bytes", (json_int_t)bytes, "hit_bytes",
	        (json_int_t)(bytes > fetched ? bytes - fetched : 0), "stalled_seconds",
	        (double)atomic_load(&fill->stalled_ns) / 1e9, "waiting",
	        (json_int_t)atomic_load(&fill->nwaiting));
}

void ps_fill_count_bytes(struct ps_fill *fill, uint64_t nbytes)
{
	atomic_fetch_add(&fill->origin_bytes, nbytes);
}
