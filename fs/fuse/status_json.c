/* The document of `penstock status --json` and .penstock/stats: what a mount and its daemon report. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/stats.h"
#include "base/strbuf.h"
#include "config.h"
#include "fuse/ops.h"
#include "index/index.h"

/* For each mode: handles ever opened, and open now. */
static json_t *modes(const struct ps_fs *fs)
{
	const struct ps_openmode_table *table = &fs->openmodes;
	static const char *const names[PS_MODE_COUNT] = {
	        [PS_MODE_PASSED] = "passed", [PS_MODE_DIRECT] = "direct", [PS_MODE_CACHED] = "cached"};
	json_t *doc = json_object();

	for (size_t i = 0; i < PS_MODE_COUNT; i++)
		json_object_set_new(doc, names[i],
		        json_pack("{s:I, s:I}", "opens", (json_int_t)atomic_load(&table->nopens[i]), "open",
		                (json_int_t)atomic_load(&table->nopen[i])));
	json_object_set_new(doc, "upgrades", json_integer((json_int_t)atomic_load(&table->nupgrades)));
	json_object_set_new(doc, "handed_over", json_integer((json_int_t)atomic_load(&fs->nhanded_over)));
	return doc;
}

static json_t *opens(const struct ps_openmode_table *table)
{
	return json_pack("{s:I, s:I, s:I}", "passed", (json_int_t)atomic_load(&table->nopens[PS_MODE_PASSED]),
	        "direct", (json_int_t)atomic_load(&table->nopens[PS_MODE_DIRECT]), "cached",
	        (json_int_t)atomic_load(&table->nopens[PS_MODE_CACHED]));
}

/* True if a file of a mount that has ended was passed through or handed over. One variable is enough: a
 * process is one daemon, whose sums include all mounts that it ever had. */
static _Atomic bool kernel_has_read;

void ps_stats_mount_ends(const struct ps_fs *fs)
{
	if (atomic_load(&fs->openmodes.nopens[PS_MODE_PASSED]) > 0 || atomic_load(&fs->nhanded_over) > 0)
		atomic_store(&kernel_has_read, true);
}

/* The share of hits among the bytes read. null before the first read, and as soon as a file was passed
 * through or handed over: the bytes that others read of the data file are not known, and the daemon's own
 * reads are then mostly misses. */
static json_t *hit_ratio(const json_t *doc)
{
	const json_t *reads = json_object_get(doc, "reads"), *mount;
	json_int_t bytes = json_integer_value(json_object_get(reads, "bytes"));
	json_int_t hits = json_integer_value(json_object_get(reads, "hit_bytes"));
	size_t i;

	json_array_foreach(json_object_get(doc, "mounts"), i, mount)
	{
		const json_t *of = json_object_get(mount, "modes");

		if (json_integer_value(json_object_get(json_object_get(of, "passed"), "opens")) > 0 ||
		        json_integer_value(json_object_get(of, "handed_over")) > 0)
			return json_null();
	}
	return bytes > 0 && !atomic_load(&kernel_has_read) ? json_real((double)hits / (double)bytes)
	                                                   : json_null();
}

static json_t *members(const struct ps_fs *fs)
{
	json_t *sum = json_object();

	for (size_t i = 0; i < fs->nsources; i++) {
		json_t *one = ps_members_stats(fs->sources[i].members);

		ps_figures_add(PS_SECTION_members, sum, one, fs->nsources > 1);
		json_decref(one);
	}
	return sum;
}

void ps_stats_add_mount(struct ps_fs *fs, json_t *mount)
{
	json_object_set_new(mount, "mountpoint", ps_json_lossy(fs->mountpoint));
	json_object_set_new(mount, "mounted_at", json_integer(fs->mounted_at_s));
	json_object_set_new(mount, "modes", modes(fs));
	json_object_set_new(mount, "passthrough",
	        json_pack("{s:b, s:s}", "active", (int)ps_passthrough_active(&fs->passthrough), "reason",
	                ps_passthrough_reason(&fs->passthrough)));
	if (fs->view)
		json_object_set_new(mount, "members", members(fs));
	json_object_set_new(mount, "reads", ps_read_stats_json(&fs->reads));
}

static _Atomic uint64_t nrestarts;

void ps_stats_set_restarts(uint64_t n)
{
	atomic_store(&nrestarts, n);
}

static bool sandboxed;
static const char *sandbox_lacks = "";

void ps_stats_set_sandbox(bool entered, const char *lacks)
{
	sandboxed = entered;
	sandbox_lacks = lacks;
}

json_t *ps_stats_daemon(struct ps_cache *cache, json_t *mounts)
{
	json_t *doc = json_object(), *parts = ps_cache_stats(cache);

	json_object_set_new(doc, "version", json_string(PACKAGE_VERSION));
	json_object_set_new(doc, "pid", json_integer(getpid()));
	json_object_set_new(doc, "restarts", json_integer((json_int_t)atomic_load(&nrestarts)));
	json_object_set_new(
	        doc, "sandbox", json_pack("{s:b, s:s}", "active", (int)sandboxed, "reason", sandbox_lacks));
	json_object_set_new(doc, "mounts", mounts);
	json_object_update(doc, parts);
	json_object_set_new(json_object_get(doc, "reads"), "hit_ratio", hit_ratio(doc));
	json_decref(parts);
	return doc;
}

/* Removes what names other mounts of the daemon or comes from them. Sums over all mounts stay. */
static void leave_out_others(json_t *doc)
{
	json_t *mounts = json_object_get(doc, "mounts");

	while (json_array_size(mounts) > 1)
		json_array_remove(mounts, json_array_size(mounts) - 1);
	for (size_t i = 0; i < PS_SECTIONS; i++)
		for (const struct ps_figure *f = ps_figures[i].v; f->name; f++)
			if (f->rule == PS_RULE_OTHERS)
				json_object_del(json_object_get(doc, ps_figures[i].path), f->name);
}

json_t *ps_stats_document(struct ps_fs *fs, bool owner)
{
	json_t *doc = ps_stats_daemon(fs->cache, fs->mounts(fs->mounts_arg));

	if (!owner)
		leave_out_others(doc);

	json_object_set_new(doc, "opens", opens(&fs->openmodes));
	/* bytes is null: how much the kernel reads by passthrough is not known. */
	json_object_set_new(doc, "passthrough",
	        json_pack("{s:b, s:s, s:n, s:I, s:I}", "active", (int)ps_passthrough_active(&fs->passthrough),
	                "reason", ps_passthrough_reason(&fs->passthrough), "bytes", "opens",
	                (json_int_t)atomic_load(&fs->openmodes.nopens[PS_MODE_PASSED]), "open",
	                (json_int_t)atomic_load(&fs->openmodes.nopen[PS_MODE_PASSED])));
	return doc;
}

char *ps_stats_text(json_t *doc)
{
	ps_autofree char *text = json_dumps(doc, JSON_ENCODE_ANY | JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	ps_autostrbuf struct ps_strbuf b = {0};

	json_decref(doc);
	if (!text)
		return NULL;
	ps_strbuf_addf(&b, "%s\n", text);
	return ps_strbuf_take(&b);
}
