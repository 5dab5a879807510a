#include "metrics.h"

#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"

/* Names that may go down; all others only grow. */
static const char *const gauges[] = {"limit_bytes", "used_bytes", "min_free_bytes", "objects", "files",
        "waiting", "active", "listed_at", "mounted_at", "memory", "memory_bytes", "memory_used_bytes",
        "memory_limit_bytes", "connections", "pid", "listing", "peak_bytes", "open"};

static bool is_gauge(const char *name)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(gauges); i++)
		if (strcmp(name, gauges[i]) == 0)
			return true;
	return false;
}

static void add_label(struct ps_strbuf *b, const char *name, const json_t *value)
{
	ps_strbuf_addf(b, "%s=\"", name);
	for (const char *s = json_string_value(value); s && *s; s++) {
		if (*s == '\n')
			ps_strbuf_add(b, "\\n");
		else {
			if (*s == '"' || *s == '\\')
				ps_strbuf_addc(b, '\\');
			ps_strbuf_addc(b, *s);
		}
	}
	ps_strbuf_addc(b, '"');
}

/* One object's numbers; nested objects add their name to the prefix. */
static void add_numbers(struct ps_strbuf *b, const char *prefix, const char *labels, const json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, name, value)
	{
		bool gauge = is_gauge(name);
		const char *total = gauge ? "" : "_total";

		if (json_is_object(value)) {
			ps_autostrbuf struct ps_strbuf deeper = {0};

			ps_strbuf_addf(&deeper, "%s_%s", prefix, name);
			add_numbers(b, ps_strbuf_peek(&deeper), labels, value);
			continue;
		}
		if (!json_is_number(value) && !json_is_boolean(value))
			continue;
		ps_strbuf_addf(b, "# TYPE %s_%s%s %s\n%s_%s%s%s ", prefix, name, total,
		        gauge ? "gauge" : "counter", prefix, name, total, labels);
		if (json_is_integer(value))
			ps_strbuf_addf(b, "%lld\n", (long long)json_integer_value(value));
		else if (json_is_real(value))
			ps_strbuf_addf(b, "%.6f\n", json_real_value(value));
		else
			ps_strbuf_addf(b, "%d\n", json_is_true(value));
	}
}

char *ps_metrics_text(const json_t *doc)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	const char *name;
	json_t *value, *mount;
	size_t i;

	ps_strbuf_add(&b, "# TYPE penstock_info gauge\npenstock_info{");
	add_label(&b, "version", json_object_get(doc, "version"));
	ps_strbuf_add(&b, "} 1\n");
	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	{
		ps_autostrbuf struct ps_strbuf labels = {0};

		ps_strbuf_addc(&labels, '{');
		add_label(&labels, "mountpoint", json_object_get(mount, "mountpoint"));
		ps_strbuf_addc(&labels, ',');
		add_label(&labels, "source", json_object_get(mount, "source"));
		ps_strbuf_addc(&labels, '}');
		add_numbers(&b, "penstock_mount", ps_strbuf_peek(&labels), mount);
		b.failed |= labels.failed;
	}
	json_object_foreach((json_t *)(uintptr_t)doc, name, value)
	{
		ps_autostrbuf struct ps_strbuf prefix = {0};

		ps_strbuf_addf(&prefix, "penstock_%s", name);
		if (json_is_object(value))
			add_numbers(&b, ps_strbuf_peek(&prefix), "", value);
	}
	return ps_strbuf_take(&b);
}
