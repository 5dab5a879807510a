#include "base/stats.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/utf8.h"

static const char *const bounds_text[PS_HISTOGRAM_BUCKETS] = {"0.0001", "0.00025", "0.0005", "0.001",
        "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "25", "50",
        "100", "+Inf"};
static const uint64_t bounds_ns[PS_HISTOGRAM_BUCKETS] = {100000, 250000, 500000, 1000000, 2500000, 5000000,
        10000000, 25000000, 50000000, 100000000, 250000000, 500000000, 1000000000, 2500000000, 5000000000,
        10000000000, 25000000000, 50000000000, 100000000000, UINT64_MAX};

/* Relaxed: no other memory access depends on these sums. */
void ps_histogram_add(struct ps_histogram *histogram, uint64_t ns)
{
	size_t i = 0;

	while (ns > bounds_ns[i])
		i++;
	atomic_fetch_add_explicit(&histogram->counts[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&histogram->sum_ns, ns, memory_order_relaxed);
}

json_t *ps_histogram_json(const struct ps_histogram *histogram)
{
	json_t *buckets = json_object();
	json_int_t n = 0;

	for (size_t i = 0; i < PS_HISTOGRAM_BUCKETS; i++) {
		n += (json_int_t)atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
		json_object_set_new(buckets, bounds_text[i], json_integer(n));
	}
	return json_pack("{s:o, s:f, s:I}", "buckets", buckets, "sum",
	        (double)atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed) / (double)PS_NS_PER_S,
	        "count", n);
}

void ps_waits_init(struct ps_waits *waits)
{
	*waits = (struct ps_waits){0};
	pthread_mutex_init(&waits->lock, NULL);
}

void ps_waits_fini(struct ps_waits *waits)
{
	pthread_mutex_destroy(&waits->lock);
}

void ps_waits_begin(struct ps_waits *waits, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&waits->lock);
	if (waits->n++ == 0)
		waits->since_ns = now_ns;
}

void ps_waits_end(struct ps_waits *waits, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&waits->lock);
	/* The order in which threads take the lock may differ from the order in which they read the
	 * clock. */
	if (--waits->n == 0 && now_ns > waits->since_ns)
		waits->total_ns += now_ns - waits->since_ns;
}

uint64_t ps_waits_ns(struct ps_waits *waits, unsigned *ret_n)
{
	uint64_t now_ns = ps_clock_mono_ns();

	PS_LOCK_SCOPE(&waits->lock);
	*ret_n = waits->n;
	return waits->total_ns + (waits->n > 0 && now_ns > waits->since_ns ? now_ns - waits->since_ns : 0);
}

json_t *ps_json_lossy(const char *text)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	json_t *as_it_is = json_string(text);

	if (as_it_is)
		return as_it_is;
	for (; *text; text++) {
		if ((unsigned char)*text < 0x80)
			ps_strbuf_addc(&b, *text);
		else
			ps_strbuf_add(&b, "\xef\xbf\xbd");
	}
	return b.failed ? NULL : json_string(ps_strbuf_peek(&b));
}

static json_t *printable_string(const char *text)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_add_printable(&b, text);
	return b.failed ? NULL : json_string(ps_strbuf_peek(&b));
}

json_t *ps_json_printable(const json_t *json)
{
	const char *key;
	json_t *value, *copy;
	size_t i;

	if (json_is_string(json))
		return printable_string(json_string_value(json));
	if (json_is_array(json)) {
		copy = json_array();
		json_array_foreach(json, i, value) json_array_append_new(copy, ps_json_printable(value));
		return copy;
	}
	if (!json_is_object(json))
		return json_deep_copy(json);
	copy = json_object();
	json_object_foreach((json_t *)(uintptr_t)json, key, value)
	{
		json_t *name = printable_string(key);

		if (name)
			json_object_set_new(copy, json_string_value(name), ps_json_printable(value));
		json_decref(name);
	}
	return copy;
}

char *ps_json_dump(const json_t *json, size_t flags)
{
	ps_autofree char *text = json_dumps(json, flags);
	ps_autostrbuf struct ps_strbuf b = {0};

	/* JSON escapes those below ' '; a line break is layout. */
	size_t n = 0;
	for (const char *s = text; s && *s; s += n) {
		if (ps_utf8_control(s, &n) && (unsigned char)*s >= ' ')
			ps_strbuf_addf(&b, "\\u%04x", (unsigned char)s[n - 1]);
		else
			ps_strbuf_addn(&b, s, n);
	}
	return text ? ps_strbuf_take(&b) : NULL;
}
