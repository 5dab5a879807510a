/* The files of .penstock/ and their text. */
#include <errno.h>
#include <string.h>

#include "fuse/ops.h"
#include "index/index.h"

static char *stats_json(struct ps_fs *fs, bool owner)
{
	return ps_stats_text(ps_stats_document(fs, owner));
}

static char *stats_plans(struct ps_fs *fs, bool owner)
{
	json_t *doc = ps_stats_document(fs, owner), *plans = json_incref(json_object_get(doc, "plans"));

	json_decref(doc);
	return ps_stats_text(plans);
}

static char *metrics(struct ps_fs *fs, bool owner, unsigned parts)
{
	json_t *docs = json_pack("[o]", ps_stats_document(fs, owner));
	char *text = ps_metrics_text(docs, parts, NULL);

	json_decref(docs);
	return text;
}

static char *stats_metrics(struct ps_fs *fs, bool owner)
{
	return metrics(fs, owner, PS_METRICS_MOUNT);
}

static char *stats_cache_metrics(struct ps_fs *fs, bool owner)
{
	return metrics(fs, owner, PS_METRICS_CACHE);
}

enum { INO_DIR = 2, INO_STATS, INO_METRICS, INO_CACHE_METRICS, INO_PLAN };
_Static_assert(INO_PLAN < PS_NODE_FIRST, "virtual nodes have lower numbers than the cache's");

static const struct {
	const char *name;
	fuse_ino_t ino;
	char *(*text)(struct ps_fs *fs, bool owner);
} files[] = {
        {"stats", INO_STATS, stats_json},
        {"metrics", INO_METRICS, stats_metrics},
        {"cache_metrics", INO_CACHE_METRICS, stats_cache_metrics},
        {"plan", INO_PLAN, stats_plans},
};

bool ps_virtual_is(fuse_ino_t ino)
{
	return ino >= INO_DIR && ino <= INO_PLAN;
}

bool ps_virtual_is_plan(fuse_ino_t ino)
{
	return ino == INO_PLAN;
}

fuse_ino_t ps_virtual_lookup(fuse_ino_t parent, const char *name)
{
	if (parent == FUSE_ROOT_ID)
		return strcmp(name, ".penstock") == 0 ? INO_DIR : 0;
	for (size_t i = 0; parent == INO_DIR && i < PS_ARRAY_LEN(files); i++)
		if (strcmp(name, files[i].name) == 0)
			return files[i].ino;
	return 0;
}

void ps_virtual_attr(fuse_ino_t ino, struct ps_attr *ret)
{
	*ret = (struct ps_attr){.node = ino,
	        .ino = ino,
	        .is_dir = ino == INO_DIR || ino == FUSE_ROOT_ID,
	        .complete_attr = true};
}

const char *ps_virtual_entry(size_t pos, fuse_ino_t *ret_ino)
{
	if (pos >= PS_ARRAY_LEN(files))
		return NULL;
	*ret_ino = files[pos].ino;
	return files[pos].name;
}

int ps_virtual_text(struct ps_fs *fs, fuse_ino_t ino, bool owner, char **ret_text, size_t *ret_len)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
		if (files[i].ino != ino)
			continue;
		char *text = files[i].text(fs, owner);
		if (!text)
			return -ENOMEM;
		*ret_text = text;
		*ret_len = strlen(text);
		return 0;
	}
	return -ENOENT;
}
