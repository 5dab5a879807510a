#include "fuse/fuse.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/utf8.h"

enum kind { COUNTER, GAUGE, FLAG /* a boolean; or a text, which is empty while all is well */, HISTOGRAM };

struct row {
	const char *path; /* in the daemon's document, or in a mount's */
	enum kind kind;
	const char *help;
};

static const struct row of_cache[] = {
        {"started_at", GAUGE, "When the daemon started, in seconds since 1970."},
        {"restarts", COUNTER, "Daemons that took the mounts over after another one had ended."},
        {"sandbox.active", FLAG, "1 if the daemon has given up its privileges."},
        {"cache.limit_bytes", GAUGE, "Quota of the cache (--cache-size)."},
        {"cache.used_bytes", GAUGE, "Bytes stored in the cache."},
        {"cache.index_bytes", GAUGE, "Disk used by the index and its reserve."},
        {"cache.reachable_bytes", GAUGE, "Of the limit, what the disk has room for."},
        {"cache.reserved_bytes", GAUGE, "Room reserved for files that are being fetched."},
        {"cache.min_free_bytes", GAUGE, "Space that the disk keeps for others (--min-free)."},
        {"cache.objects", GAUGE, "Objects in the cache, whole or in part."},
        {"cache.evicted_objects", COUNTER, "Objects evicted as a whole."},
        {"cache.evicted_extents", COUNTER, "Extents of large objects evicted."},
        {"cache.evicted_bytes", COUNTER, "Bytes evicted."},
        {"cache.pinned_objects", GAUGE, "Objects that are pinned."},
        {"cache.pinned_bytes", GAUGE, "Room that pinned objects take."},
        {"cache.held_bytes", GAUGE, "Bytes of evicted files that programs still have open."},
        {"cache.write_errors", COUNTER, "Writes that the disk of the cache refused."},
        {"cache.crc_errors", COUNTER, "Cached blocks that did not match their CRC; dropped."},
        {"cache.checksum_errors", COUNTER,
                "Objects that did not match the checksum of their origin: reads of them fail."},
        {"cache.checksum_error_at", GAUGE,
                "When an object last did not match its checksum, in seconds since 1970; 0: never."},
        {"cache.disk_error", FLAG, "1 while the disk of the cache takes no data."},
        {"cache.disk_error_at", GAUGE,
                "When that began, in seconds since 1970; 0 while the disk takes data."},
        {"cache.synced", FLAG, "1 if a power cut now would cost nothing of what is cached."},
        {"memory.limit_bytes", GAUGE, "Memory for data in flight, at most (--memory)."},
        {"memory.used_bytes", GAUGE, "Memory for data in flight."},
        {"memory.peak_bytes", GAUGE, "The most memory for data in flight so far."},
        {"origin.bytes", COUNTER, "Bytes received from the origin."},
        {"origin.requests", COUNTER, "Requests to the origin."},
        {"origin.errors", COUNTER, "Requests to the origin that failed."},
        {"origin.retries", COUNTER, "Failed requests that were repeated."},
        {"origin.hedged_requests", COUNTER, "Requests sent a second time because the first was late."},
        {"origin.hedged_bytes", COUNTER, "Bytes received by these."},
        {"origin.connections", GAUGE, "Parallel transfers allowed now; adapted to the throughput."},
        {"origin.timeout_seconds", GAUGE, "How long a read waits (--timeout)."},
        {"origin.latency_seconds", HISTOGRAM, "Time from a request to the first byte of its answer."},
        {"origin.last_error_at", GAUGE,
                "When a read or lookup failed last, in seconds since 1970; 0: never."},
        {"reads.bytes", COUNTER, "Bytes read through the daemon; not those that the kernel reads by itself."},
        {"reads.ready_bytes", COUNTER, "Of these, bytes of reads that did not wait."},
        {"reads.fetched_bytes", COUNTER, "Bytes that reads and read-ahead fetched from the origin."},
        {"reads.hit_bytes", GAUGE, "Bytes read less the bytes that reads and read-ahead fetched."},
        {"reads.hit_ratio", GAUGE,
                "hit_bytes / bytes; absent before the first read, and once a file was passed through or "
                "handed over."},
        {"reads.stalled_seconds", COUNTER, "Time in which at least one read waited."},
        {"reads.waiting", GAUGE, "Reads that wait now."},
        {"reads.latency_seconds", HISTOGRAM, "Duration of reads through the daemon."},
        {"inflate.packed_bytes", COUNTER, "Bytes of compressed shards before decompression."},
        {"inflate.plain_bytes", COUNTER, "Bytes of compressed shards after decompression."},
        {"inflate.unpackers", GAUGE, "Decompressors that run now."},
        {"inflate.memory_bytes", GAUGE, "Memory of the decompressors."},
        {"inflate.errors", COUNTER, "Decompressions that failed."},
        {"plans.active", GAUGE, "Ranks whose plans are known."},
        {"plans.memory_bytes", GAUGE, "Memory of the plans."},
        {"plans.foreseen_opens", COUNTER, "Opens that a plan had announced."},
        {"plans.foreseen_hits", COUNTER, "Of these, opens of files cached at least in part."},
        {"plans.unforeseen_opens", COUNTER, "Opens of files that a plan names for another time."},
        {"plans.expired", COUNTER, "Ranks dropped after a silence."},
        {"plans.refused", COUNTER, "Entries of plans over the limits."},
};

static const struct row of_mount[] = {
        {"mounted_at", GAUGE, "When it was mounted, in seconds since 1970."},
        {"files", GAUGE, "Files that the mount shows."},
        {"cached_bytes", GAUGE, "Bytes of the cache that its files take."},
        {"listed_at", GAUGE, "When the origin was listed last, in seconds since 1970."},
        {"next_listing_at", GAUGE,
                "When it will be listed next, in seconds since 1970; only with --refresh."},
        {"refresh_seconds", GAUGE, "The interval of --refresh; 0: the source is listed on request alone."},
        {"listing", FLAG, "1 while a listing of the origin is under way."},
        {"listing_error", FLAG, "1 if the last listing failed."},
        {"offline", FLAG, "1 while the origin does not answer."},
        {"missing", GAUGE, "Listed files that the origin does not have."},
        {"skipped", GAUGE, "Names of the last listing that are not shown: see status."},
        {"versionless", FLAG, "1 if the origin sends neither ETag nor Last-Modified: see status."},
        {"opens", COUNTER, "Files opened."},
        {"modes.passed.opens", COUNTER, "Opens that the kernel serves straight from the cache."},
        {"modes.passed.open", GAUGE, "Of these, files open now."},
        {"modes.direct.opens", COUNTER, "Opens whose reads all go to the daemon."},
        {"modes.direct.open", GAUGE, "Of these, files open now."},
        {"modes.cached.opens", COUNTER, "Opens that are read through the page cache."},
        {"modes.cached.open", GAUGE, "Of these, files open now."},
        {"modes.upgrades", COUNTER, "Files passed through while older handles stayed as they were."},
        {"modes.handed_over", COUNTER, "Files whose data file a loader was given, to read it itself."},
        {"passthrough.active", FLAG, "1 if the kernel reads complete files by itself."},
        {"tier.known", GAUGE, "Tiers (--tier)."},
        {"tier.aside", GAUGE, "Tiers that are set aside now."},
        {"tier.requests", COUNTER, "Requests to tiers."},
        {"tier.bytes", COUNTER, "Bytes received from tiers."},
        {"tier.fallbacks", COUNTER, "Requests that the origin answered because a tier failed."},
        {"tier.fallback_bytes", COUNTER, "Bytes requested by these."},
        {"tier.withheld", COUNTER, "Requests that went to the origin since they hold a secret."},
        {"tier.verified_bytes", COUNTER, "Bytes of tiers that were compared with the origin."},
        {"tier.mismatches", COUNTER, "Of these comparisons, those that differed."},
        {"members.shards", GAUGE, "Tar shards (--members)."},
        {"members.known", GAUGE, "Shards of which the members are known."},
        {"members.failed", GAUGE, "Shards that could not be read as a tar."},
        {"members.unknown_bytes", GAUGE, "Bytes of the shards of which the members are not known."},
        {"members.files", GAUGE, "Members that are shown."},
        {"members.hidden", GAUGE, "Members that cannot be shown."},
        {"reads.bytes", COUNTER, "Bytes read through the daemon; not those that the kernel reads by itself."},
        {"reads.ready_bytes", COUNTER, "Of these, bytes of reads that did not wait."},
        {"reads.stalled_seconds", COUNTER, "Time in which at least one read waited."},
        {"reads.waiting", GAUGE, "Reads that wait now."},
        {"reads.latency_seconds", HISTOGRAM, "Duration of reads through the daemon."},
};

static void add_label(struct ps_strbuf *b, const char *name, const char *value)
{
	size_t n;

	ps_strbuf_addf(b, "%s%s=\"", b->len ? "," : "", name);
	for (const char *s = value ? value : ""; *s; s += n) {
		bool control = ps_utf8_control(s, &n);

		if (*s == '\n')
			ps_strbuf_add(b, "\\n");
		else if (control) /* may reach a terminal, and Prometheus has no escape for it */
			ps_strbuf_addf(b, "\\\\x%02x", (unsigned char)s[n - 1]);
		else if (*s == '"' || *s == '\\')
			ps_strbuf_addf(b, "\\%c", *s);
		else
			ps_strbuf_addn(b, s, n);
	}
	ps_strbuf_addc(b, '"');
}

static const char *text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static const json_t *at_path(const json_t *object, const char *path)
{
	for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
		object = json_object_get(object, name);
	}
	return json_object_get(object, path);
}

/* What series are made from: a daemon's document or a mount in it, and the labels. */
struct subject {
	const json_t *object;
	char *labels;
};

struct subjects {
	struct subject *v;
	size_t n;
	bool failed;
};

static void add_subject(struct subjects *all, const json_t *object, struct ps_strbuf *labels)
{
	struct subject *v = reallocarray(all->v, all->n + 1, sizeof(*v));
	char *owned = ps_strbuf_take(labels);

	if (v)
		all->v = v;
	if (!v || !owned) {
		free(owned);
		all->failed = true;
		return;
	}
	all->v[all->n++] = (struct subject){object, owned};
}

static bool same_text(const json_t *a, const json_t *b, const char *name)
{
	const char *s = text(a, name), *t = text(b, name);

	return s && t && strcmp(s, t) == 0;
}

static const json_t *cache_of(const json_t *document)
{
	return json_object_get(document, "cache");
}

static const json_t *first_mount(const json_t *document)
{
	return json_array_get(json_object_get(document, "mounts"), 0);
}

/* True if another document or mount has the same labels: equal paths in different containers may be
 * different folders. */
static bool is_ambiguous(const json_t *documents, const json_t *document, const json_t *mount)
{
	const json_t *other, *its;
	size_t i, j;

	json_array_foreach(documents, i, other)
	{
		if (!same_text(cache_of(other), cache_of(document), "dir"))
			continue;
		if (!mount && other != document)
			return true;
		json_array_foreach(json_object_get(other, "mounts"), j, its)
		{
			if (mount && its != mount && same_text(its, mount, "mountpoint"))
				return true;
		}
	}
	return false;
}

static void find_subjects(
        const json_t *documents, unsigned parts, struct subjects *caches, struct subjects *mounts)
{
	const json_t *document, *mount;
	size_t i, j;

	json_array_foreach(documents, i, document)
	{
		ps_autostrbuf struct ps_strbuf b = {0};

		add_label(&b, "cache_dir", text(cache_of(document), "dir"));
		if (is_ambiguous(documents, document, NULL))
			add_label(&b, "device", text(first_mount(document), "device"));
		if (parts & PS_METRICS_CACHE)
			add_subject(caches, document, &b);
		json_array_foreach(json_object_get(document, "mounts"), j, mount)
		{
			ps_autostrbuf struct ps_strbuf labels = {0};

			if (!(parts & PS_METRICS_MOUNTS) && (j > 0 || !(parts & PS_METRICS_MOUNT)))
				continue;
			add_label(&labels, "cache_dir", text(cache_of(document), "dir"));
			add_label(&labels, "mount", text(mount, "mountpoint"));
			if (is_ambiguous(documents, document, mount))
				add_label(&labels, "device", text(mount, "device"));
			add_subject(mounts, mount, &labels);
		}
	}
}

static void free_subjects(struct subjects *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->v[i].labels);
	free(all->v);
}

static void begin_family(struct ps_strbuf *b, const char *name, const char *type, const char *help)
{
	ps_strbuf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_histogram(struct ps_strbuf *b, const char *name, const char *labels, const json_t *value)
{
	json_t *buckets = json_object_get(value, "buckets"), *count;
	const char *bound;

	json_object_foreach(buckets, bound, count)
	{
		ps_autostrbuf struct ps_strbuf le = {0};

		add_label(&le, "le", bound);
		ps_strbuf_addf(b, "%s_bucket{%s,%s} %lld\n", name, labels, ps_strbuf_peek(&le),
		        (long long)json_integer_value(count));
		b->failed |= le.failed;
	}
	ps_strbuf_addf(b, "%s_sum{%s} %.6f\n%s_count{%s} %lld\n", name, labels,
	        json_number_value(json_object_get(value, "sum")), name, labels,
	        (long long)json_integer_value(json_object_get(value, "count")));
}

static void add_row(
        struct ps_strbuf *b, const char *prefix, const struct row *row, const struct subjects *all)
{
	static const char *const types[] = {
	        [COUNTER] = "counter", [GAUGE] = "gauge", [FLAG] = "gauge", [HISTOGRAM] = "histogram"};
	char name[128];
	size_t n = 0;
	bool begun = false;

	for (const char *s = prefix; *s; s++)
		name[n++] = *s;
	for (const char *s = row->path; *s; s++)
		name[n++] = *s == '.' ? '_' : *s;
	strcpy(name + n, row->kind == COUNTER ? "_total" : "");
	for (size_t i = 0; i < all->n; i++) {
		const json_t *value = at_path(all->v[i].object, row->path);
		const char *labels = all->v[i].labels;

		if (!value || json_is_null(value))
			continue;
		if (!begun)
			begin_family(b, name, types[row->kind], row->help);
		begun = true;
		if (row->kind == HISTOGRAM)
			add_histogram(b, name, labels, value);
		else if (row->kind == FLAG)
			ps_strbuf_addf(b, "%s{%s} %d\n", name, labels,
			        json_is_string(value) ? json_string_length(value) > 0 : json_is_true(value));
		else if (json_is_integer(value))
			ps_strbuf_addf(
			        b, "%s{%s} %lld\n", name, labels, (long long)json_integer_value(value));
		else
			ps_strbuf_addf(b, "%s{%s} %.6f\n", name, labels, json_number_value(value));
	}
}

/* Exports values that are not numbers as labels of a series that is always 1. */
static void add_info(
        struct ps_strbuf *b, const char *name, const char *help, const char *key, const struct subjects *all)
{
	for (size_t i = 0; i < all->n; i++) {
		ps_autostrbuf struct ps_strbuf label = {0};

		if (i == 0)
			begin_family(b, name, "gauge", help);
		add_label(&label, key, text(all->v[i].object, key));
		ps_strbuf_addf(b, "%s{%s,%s} 1\n", name, all->v[i].labels, ps_strbuf_peek(&label));
		b->failed |= label.failed;
	}
}

char *ps_metrics_text(const json_t *documents, unsigned parts, const json_t *up)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct subjects caches = {0}, mounts = {0};
	const char *mountpoint;
	json_t *answers;

	find_subjects(documents, parts, &caches, &mounts);
	if (json_object_size(up) > 0)
		begin_family(&b, "penstock_up", "gauge", "1 if the daemon answers at this mount.");
	json_object_foreach((json_t *)(uintptr_t)up, mountpoint, answers)
	{
		ps_autostrbuf struct ps_strbuf label = {0};

		add_label(&label, "mount", mountpoint);
		ps_strbuf_addf(&b, "penstock_up{%s} %d\n", ps_strbuf_peek(&label), json_is_true(answers));
		b.failed |= label.failed;
	}
	add_info(&b, "penstock_info", "Version of the daemon of a cache.", "version", &caches);
	for (size_t i = 0; i < PS_ARRAY_LEN(of_cache); i++)
		add_row(&b, "penstock_", &of_cache[i], &caches);
	add_info(&b, "penstock_mount_info", "What a mount shows.", "source", &mounts);
	for (size_t i = 0; i < PS_ARRAY_LEN(of_mount); i++)
		add_row(&b, "penstock_mount_", &of_mount[i], &mounts);
	ps_strbuf_add(&b, ""); /* not NULL, even without a daemon */
	b.failed |= caches.failed || mounts.failed;
	free_subjects(&caches);
	free_subjects(&mounts);
	return ps_strbuf_take(&b);
}
