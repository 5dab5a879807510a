#include "fuse/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

struct ps_fs *ps_fs_new(struct ps_cache *cache, struct ps_fs_source *sources, size_t nsources,
        const struct ps_mount_options *options, const char *mountpoint, int state_fd,
        json_t *(*mounts)(void *arg), void *mounts_arg)
{
	struct ps_fs *fs = aligned_alloc(_Alignof(struct ps_fs), sizeof(*fs));
	struct ps_mount_state state;

	if (!fs && state_fd >= 0)
		close(state_fd);
	if (!fs)
		return NULL;
	int rc = ps_state_init(&state, state_fd);
	if (rc < 0) {
		ps_log_error("mount: %s: its state: %s", mountpoint, strerror(-rc));
		free(fs);
		return NULL;
	}
	*fs = (struct ps_fs){.cache = cache,
	        .sources = sources,
	        .nsources = nsources,
	        .named = sources[0].name[0],
	        .options = options,
	        .mountpoint = mountpoint,
	        .mounts = mounts,
	        .mounts_arg = mounts_arg,
	        .mounted_at_s = ps_clock_real_s(),
	        .state = state,
	        .resumed = state_fd >= 0,
	        .read_ahead_nbytes = 128 * 1024};
	if (fs->resumed)
		fs->mounted_at_s = fs->state.head->mounted_at_s;
	fs->state.head->mounted_at_s = fs->mounted_at_s;
	fs->passthrough.handshake.kept = fs->state.head;
	_Static_assert(offsetof(struct ps_fs, passthrough.handshake) == 0, "handshake.h");
	_Static_assert(PS_FS_READ_NBYTES <= PS_READ_MAX_NBYTES, "a READ is one read of the cache");
	for (size_t i = 0; i < nsources; i++)
		sources[i].fs = fs;
	pthread_mutex_init(&fs->lock, NULL);
	ps_list_init(&fs->opens);
	ps_inflight_table_init(&fs->inflight);
	ps_openmode_init(&fs->openmodes, fs->state.head);
	ps_background_init(&fs->background);
	ps_read_stats_init(&fs->reads);
	return fs;
}

void ps_fs_free(struct ps_fs *fs)
{
	ps_read_stats_fini(&fs->reads);
	ps_background_fini(&fs->background);
	ps_openmode_fini(&fs->openmodes);
	ps_inflight_table_fini(&fs->inflight);
	pthread_mutex_destroy(&fs->lock);
	ps_state_fini(&fs->state);
	free(fs);
}

int ps_fs_state_fd(const struct ps_fs *fs)
{
	return fs->state.fd;
}

void ps_fs_set_kept(struct ps_fs *fs)
{
	fs->kept = fs->state.fd >= 0;
}

void ps_fs_set_backing(struct ps_fs *fs, const struct ps_backing_ops *ops, void *arg)
{
	fs->passthrough.backing = ops;
	fs->passthrough.backing_arg = arg;
}

bool ps_fs_drain(struct ps_fs *fs, unsigned timeout_ms)
{
	return ps_inflight_drain(&fs->inflight, false, timeout_ms);
}

/* Names -------------------------------------------------------------------------------------------------- */

void ps_fs_invalidate(struct ps_fs *fs, fuse_ino_t parent, const char *name, size_t len)
{
	{
		PS_LOCK_SCOPE(&fs->lock);
		if (fs->hushed)
			return;
		fs->nnotifying++;
	}
	/* ENOENT: the kernel does not know the name. It must forget the directory's time all the same. */
	if (len > 0 && fuse_lowlevel_notify_inval_entry(fs->session, parent, name, len) == -ENOENT &&
	        !fs->view)
		(void)fuse_lowlevel_notify_inval_inode(fs->session, parent, -1, 0);
	/* Where OPENDIR is answered ENOSYS (--members), the kernel keeps the folder's listing. It must forget
	 * that, too, even if it does not know the name. */
	if (fs->view)
		(void)fuse_lowlevel_notify_inval_inode(fs->session, parent, 0, 0);
	PS_LOCK_SCOPE(&fs->lock);
	fs->nnotifying--;
}

static void name_changed(void *arg, uint64_t parent, const char *name)
{
	struct ps_fs_source *source = arg;
	struct ps_fs *fs = source->fs;
	fuse_ino_t ino = ps_fs_ino(fs, source, parent);

	ps_fs_invalidate(fs, ino, name, strlen(name));
	if (!source->members)
		return;
	/* A shard is shown without ".tar", unless that name is taken. */
	if (ps_members_is_shard(name))
		ps_fs_invalidate(fs, ino, name, strlen(name) - PS_SHARD_SUFFIX_LEN);
	ps_members_look(source->members);
}

void ps_fs_watch(struct ps_fs *fs)
{
	for (size_t i = 0; i < fs->nsources; i++) {
		struct ps_fs_source *source = &fs->sources[i];

		source->watch = (struct ps_watch){.dataset = source->dataset,
		        .changed = name_changed,
		        .arg = source,
		        .owed = &fs->state.head->names_owed,
		        .resumed_s = fs->resumed ? fs->mounted_at_s : 0,
		        .refresh_ms = fs->options[i].refresh_ms};
		ps_dataset_watch(&source->watch);
	}
}

void ps_fs_unwatch(struct ps_fs *fs)
{
	for (size_t i = 0; i < fs->nsources; i++)
		ps_dataset_unwatch(&fs->sources[i].watch);
}

bool ps_fs_hush(struct ps_fs *fs)
{
	PS_LOCK_SCOPE(&fs->lock);
	fs->hushed = true;
	return fs->nnotifying == 0;
}

/* Open files --------------------------------------------------------------------------------------------- */

static void close_open(struct ps_fs *fs, struct ps_open *open)
{
	if (open->in_mode)
		ps_openmode_leave(&fs->openmodes, &fs->passthrough, open->ino, open->mode);
	if (open->handle)
		ps_handle_close(open->handle);
	if (open->dir)
		ps_dir_close(open->dir);
	ps_plan_feed_free(open->feed);
	free(open->text);
}

bool ps_fs_open_list(struct ps_fs *fs, struct ps_open *open)
{
	pthread_mutex_init(&open->reader, NULL);
	ps_list_init(&open->link);
	PS_LOCK_SCOPE(&fs->lock);
	if (!fs->closing)
		ps_list_append(&fs->opens, &open->link);
	return !fs->closing;
}

struct ps_open *ps_fs_open_new(struct ps_fs *fs, const struct ps_open *like, int backing_id, uint64_t unique)
{
	struct ps_open *open = malloc(sizeof(*open)), copy = *like;
	const struct ps_state_slot slot = {.unique = unique,
	        .ino = like->ino,
	        .backing_id = backing_id,
	        .kind = (uint8_t)like->kind,
	        .mode = (uint8_t)like->mode,
	        .in_mode = like->in_mode,
	        .allowed = like->allowed,
	        .tid = like->reads.tid};
	uint64_t fh;

	if (!open || ps_state_add(&fs->state, &slot, open, like->text, &fh) < 0) {
		free(open);
		close_open(fs, &copy);
		return NULL;
	}
	*open = copy;
	open->fh = fh;
	if (!ps_fs_open_list(fs, open)) {
		ps_fs_open_free(fs, open);
		return NULL;
	}
	return open;
}

void ps_fs_open_answered(struct ps_fs *fs, uint64_t fh, uint64_t unique, int rc)
{
	struct ps_open *open = rc == -ENOENT ? ps_state_find(&fs->state, fh) : NULL;

	/* The kernel sends no release for an open whose caller was killed meanwhile. */
	if (open)
		ps_fs_open_free(fs, open);
	else
		ps_state_answered(&fs->state, fh, unique);
}

void ps_fs_open_again(struct ps_fs *fs, uint64_t unique)
{
	uint64_t fh;
	struct ps_open *open =
	        ps_state_unanswered(&fs->state, unique, &fh) ? ps_state_find(&fs->state, fh) : NULL;

	if (open)
		ps_fs_open_free(fs, open);
}

void ps_fs_open_allowed(struct ps_fs *fs, struct ps_open *open)
{
	if (!ps_handle_allowed(open->handle))
		return;
	atomic_store(&open->allowed, true);
	atomic_store(&ps_state_slot(&fs->state, open->fh)->allowed, true);
}

void ps_fs_open_free(struct ps_fs *fs, struct ps_open *open)
{
	uint64_t fh = open->fh;

	pthread_mutex_lock(&fs->lock);
	ps_list_remove(&open->link);
	pthread_mutex_unlock(&fs->lock);
	/* The kernel may release a file while the thread that answered its last read still returns from the
	 * answer. */
	pthread_mutex_lock(&open->reader);
	pthread_mutex_unlock(&open->reader);
	ps_state_closing(&fs->state, fh);
	close_open(fs, open);
	ps_state_remove(&fs->state, fh);
	pthread_mutex_destroy(&open->reader);
	free(open);
}

void ps_fs_close_all(struct ps_fs *fs)
{
	struct ps_list opens;

	ps_list_init(&opens);
	pthread_mutex_lock(&fs->lock);
	fs->closing = true;
	ps_list_splice(&opens, &fs->opens);
	pthread_mutex_unlock(&fs->lock);
	while (!ps_list_empty(&opens))
		ps_fs_open_free(fs, PS_CONTAINER_OF(opens.next, struct ps_open, link));
}

bool ps_fs_is_top(const struct ps_fs *fs, fuse_ino_t ino)
{
	return fs->named && ino == FUSE_ROOT_ID;
}

const struct ps_fs_source *ps_fs_source(const struct ps_fs *fs, fuse_ino_t ino)
{
	size_t i = ps_node_number(ino) >> PS_SOURCE_SHIFT;

	return &fs->sources[i < fs->nsources ? i : 0]; /* the kernel sends only node ids that it was given */
}

uint64_t ps_fs_node(const struct ps_fs *fs, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? fs->sources[0].root : ino & ((UINT64_C(1) << PS_SOURCE_SHIFT) - 1);
}

uint64_t ps_fs_source_bits(const struct ps_fs *fs, const struct ps_fs_source *source)
{
	return source ? (uint64_t)(source - fs->sources) << PS_SOURCE_SHIFT : 0;
}

fuse_ino_t ps_fs_ino(struct ps_fs *fs, const struct ps_fs_source *source, uint64_t node)
{
	if (!fs->named && node == source->root)
		return FUSE_ROOT_ID;
	return ps_openmode_ino(&fs->openmodes, ps_fs_source_bits(fs, source) | node);
}

void ps_fs_root_attr(const struct ps_fs_source *source, struct ps_attr *ret)
{
	*ret = (struct ps_attr){.node = source->root,
	        .ino = source->root,
	        .is_dir = true,
	        .complete_attr = true,
	        .mtime_s = ps_dataset_root_mtime_s(source->dataset)};
}

void ps_fs_stat(const struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr,
        struct stat *ret)
{
	const struct ps_mount_options *o = fs->options;

	*ret = (struct stat){
	        .st_ino = ps_fs_source_bits(fs, source) | attr->ino,
	        .st_mode = attr->is_dir ? S_IFDIR | o->dir_mode : S_IFREG | o->file_mode,
	        /* 2 would promise that a directory has no subdirectories. */
	        .st_nlink = 1,
	        .st_uid = o->uid,
	        .st_gid = o->gid,
	        .st_blksize = PS_FS_BLKSIZE,
	};
	if (!attr->is_dir) {
		ret->st_size = (off_t)attr->size;
		/* Blocks of the whole file, however little is cached: fewer would look like holes to tar
		 * and cp. */
		ret->st_blocks = (blkcnt_t)(attr->size / 512 + (attr->size % 512 != 0));
	}
	/* 0 (1970) if the origin reports no time: the time of the mount would change with every mount. */
	ret->st_mtim.tv_sec = attr->mtime_s > 0 ? attr->mtime_s : 0;
	ret->st_atim = ret->st_ctim = ret->st_mtim;
}

int ps_fs_errno(int errnum)
{
	switch (errnum) {
	case 0:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ESTALE:
	case EACCES:
	case ENOMEM:
	case EINVAL:
	case ENAMETOOLONG:
	case EMFILE:
	case ENFILE:
		return errnum;
	case ECANCELED:
		return EINTR;
	default: /* also for a timeout: programs expect EIO from read(), few expect ETIMEDOUT */
		return EIO;
	}
}
