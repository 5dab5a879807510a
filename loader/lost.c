#include "config.h"

#include "lost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "shard/stream.h"

#define FUSE_SUPER 0x65735546

int ps_lost_init(struct ps_lost *l, size_t nshards)
{
	l->is_lost = calloc(nshards + 1, 1);
	if (!l->is_lost)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	return 0;
}

void ps_lost_fini(struct ps_lost *l)
{
	if (!l->is_lost)
		return;
	for (size_t i = 0; i < PENSTOCK_LOST_KEPT; i++)
		free(l->kept[i].reason);
	free(l->is_lost);
	pthread_mutex_destroy(&l->lock);
}

void ps_lost_note(struct ps_lost *l, const struct penstock_batch *b)
{
	for (uint32_t i = 0; i < b->nbad; i++) {
		uint32_t row = b->bad_rows[i];
		const struct ps_shard_file *file = b->rows[row].sample->file;

		if (!b->rows[row].lost)
			continue;
		PS_LOCK_SCOPE(&l->lock);
		if (l->is_lost[file->shard])
			continue;
		l->is_lost[file->shard] = 1;
		if (l->n < PENSTOCK_LOST_KEPT) {
			l->kept[l->n].shard = file->path;
			l->kept[l->n].reason = strdup(ps_batch_reason(b, row));
		}
		l->n++;
	}
}

uint64_t ps_lost_count(struct ps_lost *l)
{
	PS_LOCK_SCOPE(&l->lock);
	return l->n;
}

int ps_lost_get(struct ps_lost *l, uint64_t n, struct penstock_lost *ret_lost)
{
	PS_LOCK_SCOPE(&l->lock);
	if (n >= PS_MIN(l->n, (uint64_t)PENSTOCK_LOST_KEPT))
		return -ENOENT;
	*ret_lost = (struct penstock_lost){
	        .shard = l->kept[n].shard, .reason = l->kept[n].reason ? l->kept[n].reason : "out of memory"};
	return 0;
}

bool ps_is_on_mount(const char *shard)
{
	ps_autofree char *folder = strdup(shard);
	char *slash = folder ? strrchr(folder, '/') : NULL;
	struct statfs fs;

	if (statfs(shard, &fs) == 0)
		return (uint32_t)fs.f_type == FUSE_SUPER;
	if (errno == ENOTCONN)
		return true;
	if (slash)
		slash[slash == folder] = 0;
	return statfs(slash ? folder : ".", &fs) == 0 ? (uint32_t)fs.f_type == FUSE_SUPER : errno == ENOTCONN;
}

const char *ps_lost_hint(const char *shard, int errnum)
{
	if (errnum == ENOTCONN)
		return "the mount is gone: mount it anew";
	if (errnum == ESTALE)
		return "begin the epoch again to read the new version: set_epoch(), or a new loader";
	if (ps_is_on_mount(shard))
		return errnum == ENOENT
		               ? "check the path, and the mount and its origin"
		               : "check the mount and its origin (getfattr -n user.penstock.error FILE)";
	if (errnum == ENOENT)
		return ps_stream_path_hint(shard) ?: "check the path";
	return "check the path, and the disk or share it is on";
}
