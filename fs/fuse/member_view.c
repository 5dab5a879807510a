/* What a mount that shows members has: the members of its sources, folders that are being read, snapshots. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fuse/member_view.h"
#include "fuse/ops.h"

#define DIR_IDLE_NS (10 * PS_NS_PER_S)

/* The view ----------------------------------------------------------------------------------------------- */

static void merged_name_changed(void *arg, const char *name)
{
	struct ps_fs_source *source = arg;

	ps_fs_invalidate(source->fs, ps_fs_ino(source->fs, source, source->root), name, strlen(name));
}

int ps_member_view_start(struct ps_fs *fs)
{
	bool merges = fs->options->members == PS_SHOW_MEMBERS_MERGED;
	int rc = 0;

	if (fs->options->members == PS_SHOW_SHARDS)
		return 0;
	fs->view = calloc(1, sizeof(*fs->view));
	if (!fs->view)
		return -ENOMEM;
	pthread_mutex_init(&fs->view->lock, NULL);
	pthread_cond_init(&fs->view->left, NULL);
	for (size_t i = 0; rc == 0 && i < fs->nsources; i++)
		rc = ps_members_new(fs->sources[i].dataset, merges, merged_name_changed, &fs->sources[i],
		        &fs->sources[i].members);
	return rc;
}

void ps_member_view_end(struct ps_fs *fs)
{
	struct ps_member_view *view = fs->view;

	if (!view)
		return;
	PS_LOCK_SCOPE(&view->lock);
	view->ending = true;
	while (view->ninside > 0)
		pthread_cond_wait(&view->left, &view->lock);
}

bool ps_member_view_enter(struct ps_fs *fs)
{
	if (!fs->view)
		return true;
	PS_LOCK_SCOPE(&fs->view->lock);
	fs->view->ninside += !fs->view->ending;
	return !fs->view->ending;
}

void ps_member_view_leave(struct ps_fs *fs)
{
	if (!fs->view)
		return;
	PS_LOCK_SCOPE(&fs->view->lock);
	if (--fs->view->ninside == 0)
		pthread_cond_broadcast(&fs->view->left);
}

void ps_member_view_close_old(struct ps_fs *fs)
{
	struct ps_view_dir old[PS_VIEW_DIRS] = {0};
	uint64_t now = ps_clock_mono_ns();

	{
		PS_LOCK_SCOPE(&fs->view->lock);
		for (size_t i = 0; i < PS_VIEW_DIRS; i++) {
			struct ps_view_dir *dir = &fs->view->dirs[i];

			if (!dir->ino || now - dir->used_ns <= DIR_IDLE_NS)
				continue;
			old[i] = *dir;
			*dir = (struct ps_view_dir){0};
		}
	}
	for (size_t i = 0; i < PS_VIEW_DIRS; i++) {
		ps_dir_close(old[i].dir);
		ps_merged_dir_close(old[i].merged);
	}
}

static void snapshot_free(struct ps_snapshot *snapshot)
{
	if (!snapshot)
		return;
	ps_plan_feed_free(snapshot->feed);
	free(snapshot->text);
	free(snapshot);
}

void ps_member_view_stop(struct ps_fs *fs)
{
	struct ps_member_view *view = fs->view;
	struct ps_tree_item *item;

	if (!view)
		return;
	for (size_t i = 0; i < fs->nsources; i++)
		if (fs->sources[i].members)
			ps_members_stop(fs->sources[i].members);
	for (size_t i = 0; i < PS_VIEW_DIRS; i++) {
		ps_dir_close(view->dirs[i].dir);
		ps_merged_dir_close(view->dirs[i].merged);
		view->dirs[i] = (struct ps_view_dir){0};
	}
	while ((item = ps_tree_first(&view->snapshots))) {
		ps_tree_remove(&view->snapshots, item);
		snapshot_free(PS_CONTAINER_OF(item, struct ps_snapshot, by_number));
	}
}

void ps_member_view_free(struct ps_fs *fs)
{
	if (!fs->view)
		return;
	for (size_t i = 0; i < fs->nsources; i++)
		ps_members_free(ps_steal_ptr(&fs->sources[i].members));
	pthread_cond_destroy(&fs->view->left);
	pthread_mutex_destroy(&fs->view->lock);
	free(ps_steal_ptr(&fs->view));
}

/* Snapshots ---------------------------------------------------------------------------------------------- */

struct ps_snapshot *ps_snapshot_new(struct ps_fs *fs, fuse_ino_t file, bool owner, uint64_t *ret_number)
{
	struct ps_snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->file = file;
	snapshot->made_s = ps_clock_real_s();
	if (ps_virtual_text(fs, file, owner, &snapshot->text, &snapshot->len) < 0) {
		free(snapshot);
		return NULL;
	}
	*ret_number = atomic_fetch_add(&fs->state.head->nsnapshots, 1) + 1;
	const struct ps_state_slot slot = {.kind = PS_OPEN_SNAPSHOT, .ino = file, .number = *ret_number};
	snapshot->kept = ps_state_add(&fs->state, &slot, snapshot, snapshot->text, &snapshot->fh) == 0;
	PS_LOCK_SCOPE(&fs->view->lock);
	ps_tree_insert(&fs->view->snapshots, &snapshot->by_number, *ret_number);
	return snapshot;
}

struct ps_snapshot *ps_snapshot_restore(struct ps_fs *fs, uint64_t fh, fuse_ino_t file, uint64_t number)
{
	struct ps_snapshot *snapshot = fs->view ? calloc(1, sizeof(*snapshot)) : NULL;

	if (!snapshot)
		return NULL;
	*snapshot = (struct ps_snapshot){.fh = fh,
	        .kept = true,
	        .file = file,
	        .text = ps_state_text(&fs->state, fh),
	        .made_s = ps_clock_real_s()};
	if (!snapshot->text) {
		free(snapshot);
		return NULL;
	}
	snapshot->len = strlen(snapshot->text);
	PS_LOCK_SCOPE(&fs->view->lock);
	ps_tree_insert(&fs->view->snapshots, &snapshot->by_number, number);
	return snapshot;
}

struct ps_snapshot *ps_snapshot_find(struct ps_fs *fs, uint64_t number)
{
	PS_LOCK_SCOPE(&fs->view->lock);
	struct ps_tree_item *item = ps_tree_from(&fs->view->snapshots, number);

	return item && item->key == number ? PS_CONTAINER_OF(item, struct ps_snapshot, by_number) : NULL;
}

void ps_snapshot_forget(struct ps_fs *fs, uint64_t number)
{
	struct ps_snapshot *snapshot = ps_snapshot_find(fs, number);

	if (!snapshot)
		return;
	pthread_mutex_lock(&fs->view->lock);
	ps_tree_remove(&fs->view->snapshots, &snapshot->by_number);
	pthread_mutex_unlock(&fs->view->lock);
	if (snapshot->kept)
		ps_state_remove(&fs->state, snapshot->fh);
	snapshot_free(snapshot);
}

void ps_snapshot_stat(
        const struct ps_fs *fs, const struct ps_snapshot *snapshot, uint64_t number, struct stat *ret)
{
	const struct ps_attr attr = {.ino = ps_alias_ino(PS_ALIAS_SNAPSHOT, number),
	        .size = snapshot->len,
	        .mtime_s = snapshot->made_s};

	ps_fs_stat(fs, NULL, &attr, ret);
}
