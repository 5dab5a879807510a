/* Node ids, names, attributes, folders. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "fuse/member_view.h"
#include "fuse/ops.h"

#define NUMBER_BITS ((UINT64_C(1) << PS_SOURCE_SHIFT) - 1)
#define MEMBER_BLKSIZE 4096           /* what programs allocate for a small file's buffer */
#define READDIR_MAX_NBYTES (1u << 20) /* a larger buffer is filled up to this */

/* Places ------------------------------------------------------------------------------------------------- */

int ps_place_of(struct ps_fs *fs, fuse_ino_t ino, struct ps_place *ret)
{
	uint64_t alias =
	        fs->view ? ino >> PS_ALIAS_SHIFT : 0; /* else those of openmode.h, which mean the node */
	struct ps_place place = {.kind = PS_PLACE_NODE, .number = ino & NUMBER_BITS};
	int rc = 0;

	if (ps_virtual_is(ino)) {
		place.kind = PS_PLACE_VIRTUAL;
	} else if (alias == PS_ALIAS_SNAPSHOT) {
		place.kind = PS_PLACE_SNAPSHOT;
	} else if (ps_fs_is_top(fs, ino)) {
		place.kind = PS_PLACE_TOP;
	} else {
		place.source = ps_fs_source(fs, ino);
		place.number = ps_fs_node(fs, ino);
		if (!fs->view) {
			place.kind = PS_PLACE_NODE;
		} else if (alias == PS_ALIAS_SHARD) {
			place.kind = PS_PLACE_SHARD;
		} else if (place.number & PS_MERGED_FOLDER) {
			place.kind = PS_PLACE_MERGED;
		} else if (fs->options->members == PS_SHOW_MEMBERS_MERGED &&
		           place.number == place.source->root) {
			place.kind = PS_PLACE_MERGED;
			rc = ps_merged_root(place.source->members, &place.number);
		} else if ((place.table = ps_members_of(place.source->members, place.number))) {
			place.kind = PS_PLACE_MEMBER;
			place.ordinal = (uint32_t)(place.number - place.table->first);
		}
	}
	*ret = place;
	return rc;
}

/* Entries ------------------------------------------------------------------------------------------------ */

/* An entry for the kernel: a node id, its attributes, and how long they hold. */
struct entry {
	fuse_ino_t ino;
	struct stat st;
	double timeout_s;
};

/* An incomplete attribute is asked for again soon. source NULL: a virtual node. */
static void node_entry(
        struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr, struct entry *ret)
{
	ret->ino = source ? ps_fs_ino(fs, source, attr->node) : attr->node;
	ret->timeout_s = attr->complete_attr ? PS_FS_TIMEOUT_S : PS_FS_NEGATIVE_TIMEOUT_S;
	ps_fs_stat(fs, source, attr, &ret->st);
}

static void shard_entry(struct ps_fs *fs, const struct ps_fs_source *source, uint64_t shard, int64_t mtime_s,
        struct entry *ret)
{
	uint64_t number = ps_alias_ino(PS_ALIAS_SHARD, shard);
	const struct ps_attr attr = {.ino = number, .is_dir = true, .mtime_s = mtime_s};

	ret->ino = ps_fs_source_bits(fs, source) | number;
	ret->timeout_s = PS_FS_TIMEOUT_S;
	ps_fs_stat(fs, source, &attr, &ret->st);
}

static int member_entry(struct ps_fs *fs, const struct ps_fs_source *source,
        const struct ps_member_table *table, const struct ps_member *member, struct entry *ret)
{
	const struct ps_attr attr = {.ino = table->first + member->ordinal,
	        .is_dir = member->kind == PS_MEMBER_FOLDER,
	        .size = member->size,
	        .mtime_s =
	                member->kind == PS_MEMBER_FILE || member->mtime_s ? member->mtime_s : table->mtime_s};

	ret->ino = ps_fs_source_bits(fs, source) | attr.ino;
	ret->timeout_s = PS_FS_TIMEOUT_S;
	ps_fs_stat(fs, source, &attr, &ret->st);
	ret->st.st_blksize = MEMBER_BLKSIZE;
	if (member->kind != PS_MEMBER_LINK)
		return 0;
	char *target;
	int rc = ps_member_link(source->members, table, member->ordinal, &target);
	if (rc < 0)
		return rc;
	ret->st.st_mode = S_IFLNK | 0777;
	ret->st.st_size = (off_t)strlen(target);
	free(target);
	return 0;
}

/* An entry of the merged tree: a folder, or a member. */
static int merged_entry(
        struct ps_fs *fs, const struct ps_fs_source *source, uint64_t number, struct entry *ret)
{
	const struct ps_attr folder = {.ino = number, .is_dir = true};
	struct ps_member member;

	if (number & PS_MERGED_FOLDER) {
		ret->ino = ps_fs_source_bits(fs, source) | number;
		ret->timeout_s = PS_FS_TIMEOUT_S;
		ps_fs_stat(fs, source, &folder, &ret->st);
		return 0;
	}
	const struct ps_member_table *table = ps_members_of(source->members, number);
	int rc = table ? ps_member_get(source->members, table, (uint32_t)(number - table->first), &member)
	               : -ESTALE;
	return rc < 0 ? rc : member_entry(fs, source, table, &member, ret);
}

/* Virtual folders, and the folder of the sources. */
static void virtual_entry(fuse_ino_t ino, struct entry *ret, struct ps_fs *fs)
{
	struct ps_attr attr;

	ps_virtual_attr(ino, &attr);
	node_entry(fs, NULL, &attr, ret);
}

/* EAGAIN: the merged tree cannot be shown yet. */
static int errno_of(const struct ps_fs *fs, int errnum)
{
	return fs->view && errnum == EAGAIN ? EAGAIN : ps_fs_errno(errnum);
}

static void reply_entry(fuse_req_t req, int rc, const struct entry *entry)
{
	struct fuse_entry_param param = {.entry_timeout = PS_FS_NEGATIVE_TIMEOUT_S};

	if (rc < 0 && rc != -ENOENT) {
		fuse_reply_err(req, errno_of(ps_op_fs(req), -rc));
		return;
	}
	if (rc == 0)
		param = (struct fuse_entry_param){.ino = entry->ino,
		        .attr = entry->st,
		        .attr_timeout = entry->timeout_s,
		        .entry_timeout = entry->timeout_s};
	fuse_reply_entry(req, &param);
}

/* Names -------------------------------------------------------------------------------------------------- */

/* A LOOKUP or GETATTR that may wait for the origin, or for the table of a shard. */
struct name_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	const struct ps_fs_source *source;
	struct ps_dataset *dataset; /* a copy: source->dataset may be gone when a late answer comes */
	uint64_t parent;
	bool as_shard; /* LOOKUP: with ".tar" after the name; GETATTR: of the folder of a shard's members */
	char name[NAME_MAX + 1 + PS_SHARD_SUFFIX_LEN]; /* of a LOOKUP in a mount that shows members */
};

static struct name_op *name_op_new(
        fuse_req_t req, struct ps_fs *fs, const struct ps_place *place, const char *name)
{
	struct name_op *op = ps_inflight_new(sizeof(*op), &fs->inflight, req, NULL);

	if (!op)
		return NULL;
	op->fs = fs;
	op->source = place->source;
	op->dataset = place->source->dataset;
	op->parent = place->number;
	op->as_shard = false;
	op->name[0] = '\0';
	if (fs->view)
		snprintf(op->name, sizeof(op->name), "%s", name);
	return op;
}

static void end_op(struct name_op *op, int rc, const struct entry *entry)
{
	if (ps_inflight_claim(&op->inflight))
		reply_entry(op->inflight.req, rc, entry);
	ps_inflight_put(&op->inflight);
}

/* True if the shard `file` is shown as the folder of its members under this name. shortened: under its name
 * without ".tar"; false: under its whole name, which is used if the dataset has the short name already. */
static bool is_folder_of_members(
        const struct ps_fs *fs, struct ps_dataset *dataset, uint64_t parent, const char *file, bool shortened)
{
	char without[NAME_MAX + 1];

	if (!ps_members_is_shard(file))
		return false;
	snprintf(without, sizeof(without), "%.*s", (int)(strlen(file) - PS_SHARD_SUFFIX_LEN), file);
	bool taken = ps_dataset_has(dataset, parent, without);
	return shortened ? !taken : taken && fs->options->members != PS_SHOW_BOTH;
}

static void lookup_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct name_op *op = arg;
	struct entry entry;

	if (!ps_member_view_enter(op->fs)) {
		end_op(op, -EINTR, NULL);
		return;
	}
	if (errnum == ENOENT && !op->as_shard && op->fs->view) {
		struct ps_fs *fs = op->fs; /* the callback may free op */

		op->as_shard = true;
		strcat(op->name, ".tar");
		ps_dataset_lookup(op->dataset, op->parent, op->name, lookup_done, op);
		ps_member_view_leave(fs);
		return;
	}
	bool shard = op->fs->view && !errnum && !attr->is_dir && ps_members_is_shard(op->name);
	if (shard && is_folder_of_members(op->fs, op->dataset, op->parent, op->name, op->as_shard))
		shard_entry(op->fs, op->source, attr->node, attr->mtime_s, &entry);
	else if (!errnum && (op->as_shard || (shard && op->fs->options->members != PS_SHOW_BOTH)))
		errnum = ENOENT;
	else if (!errnum)
		node_entry(op->fs, op->source, attr, &entry);
	ps_member_view_leave(op->fs);
	end_op(op, -errnum, &entry);
}

static void lookup_table(void *arg, int errnum, const struct ps_member_table *table)
{
	struct name_op *op = arg;
	struct ps_member member;
	struct entry entry;
	int rc = -errnum;

	if (rc == 0)
		rc = ps_member_find(op->source->members, table, 0, op->name, &member);
	if (rc == 0)
		rc = member_entry(op->fs, op->source, table, &member, &entry);
	end_op(op, rc, &entry);
}

static void source_entry(struct ps_fs *fs, const struct ps_fs_source *source, struct entry *ret)
{
	struct ps_attr attr;

	ps_fs_root_attr(source, &attr);
	node_entry(fs, source, &attr, ret);
}

/* Where members are shown, each LOOKUP of a virtual file makes a snapshot, with a node id of its own. */
static void lookup_snapshot(fuse_req_t req, struct ps_fs *fs, fuse_ino_t file)
{
	uint64_t number;
	struct ps_snapshot *snapshot = ps_snapshot_new(fs, file, ps_op_is_owner(req), &number);
	struct fuse_entry_param param = {.ino = ps_alias_ino(PS_ALIAS_SNAPSHOT, number)};

	if (!snapshot) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ps_snapshot_stat(fs, snapshot, number, &param.attr);
	param.attr_timeout = PS_FS_TIMEOUT_S;
	if (fuse_reply_entry(req, &param) == -ENOENT) /* the caller was killed: no FORGET comes */
		ps_snapshot_forget(fs, number);
}

void ps_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ps_fs *fs = ps_op_fs(req);
	fuse_ino_t virtual = ps_virtual_lookup(parent, name);
	struct ps_place place;
	struct ps_member member;
	struct entry entry;
	uint64_t number;
	int rc;

	if (virtual && parent != FUSE_ROOT_ID && fs->view) {
		lookup_snapshot(req, fs, virtual);
		return;
	}
	if (virtual || ps_virtual_is(parent)) {
		if (virtual)
			virtual_entry(virtual, &entry, fs);
		reply_entry(req, virtual ? 0 : -ENOENT, &entry);
		return;
	}
	rc = fs->view && strlen(name) > NAME_MAX ? -ENAMETOOLONG : ps_place_of(fs, parent, &place);
	if (rc < 0) {
		reply_entry(req, rc, NULL);
		return;
	}
	if (place.kind == PS_PLACE_SHARD || place.kind == PS_PLACE_NODE) {
		struct name_op *op = name_op_new(req, fs, &place, name);

		if (!op)
			return;
		if (place.kind == PS_PLACE_SHARD)
			ps_members_table(place.source->members, place.number, lookup_table, op);
		else
			ps_dataset_lookup(place.source->dataset, place.number, name, lookup_done, op);
		ps_inflight_issued(&op->inflight);
		return;
	}
	rc = place.kind == PS_PLACE_TOP ? -ENOENT : -ENOTDIR;
	if (place.kind == PS_PLACE_TOP) {
		for (size_t i = 0; rc < 0 && i < fs->nsources; i++) {
			if (strcmp(fs->sources[i].name, name) != 0)
				continue;
			source_entry(fs, &fs->sources[i], &entry);
			rc = 0;
		}
	} else if (place.kind == PS_PLACE_MERGED) {
		rc = ps_merged_find(place.source->members, place.number, name, &number);
		if (rc == 0)
			rc = merged_entry(fs, place.source, number, &entry);
	} else if (place.kind == PS_PLACE_MEMBER) {
		rc = ps_member_find(place.source->members, place.table, place.ordinal, name, &member);
		if (rc == 0)
			rc = member_entry(fs, place.source, place.table, &member, &entry);
	}
	reply_entry(req, rc, &entry);
}

/* Attributes --------------------------------------------------------------------------------------------- */

static void getattr_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct name_op *op = arg;
	struct entry entry;

	if (!errnum && op->as_shard)
		shard_entry(op->fs, op->source, attr->node, attr->mtime_s, &entry);
	else if (!errnum)
		node_entry(op->fs, op->source, attr, &entry);
	if (ps_inflight_claim(&op->inflight)) {
		if (errnum)
			fuse_reply_err(op->inflight.req, errno_of(op->fs, errnum));
		else
			fuse_reply_attr(op->inflight.req, &entry.st, entry.timeout_s);
	}
	ps_inflight_put(&op->inflight);
}

void ps_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct ps_member member;
	struct entry entry = {.timeout_s = PS_FS_TIMEOUT_S};
	int rc = ps_place_of(fs, ino, &place);

	(void)fi;
	if (rc == -EAGAIN) { /* the folder is there, though it cannot be read yet */
		const struct ps_attr root = {.ino = place.source->root, .is_dir = true};

		rc = 0;
		entry.timeout_s = 0;
		ps_fs_stat(fs, place.source, &root, &entry.st);
	} else if (place.kind == PS_PLACE_SHARD || place.kind == PS_PLACE_NODE) {
		struct name_op *op = name_op_new(req, fs, &place, "");

		if (!op)
			return;
		op->as_shard = place.kind == PS_PLACE_SHARD;
		ps_dataset_getattr(place.source->dataset, place.number, getattr_done, op);
		ps_inflight_issued(&op->inflight);
		return;
	} else if (place.kind == PS_PLACE_MEMBER) {
		rc = ps_member_get(place.source->members, place.table, place.ordinal, &member);
		if (rc == 0)
			rc = member_entry(fs, place.source, place.table, &member, &entry);
	} else if (place.kind == PS_PLACE_MERGED) {
		const struct ps_attr folder = {
		        .ino = ino == FUSE_ROOT_ID ? place.source->root : place.number, .is_dir = true};

		ps_fs_stat(fs, place.source, &folder, &entry.st);
	} else if (place.kind == PS_PLACE_SNAPSHOT) {
		const struct ps_snapshot *snapshot = ps_snapshot_find(fs, place.number);

		rc = snapshot ? 0 : -ESTALE;
		if (snapshot)
			ps_snapshot_stat(fs, snapshot, place.number, &entry.st);
	} else {
		virtual_entry(ino, &entry, fs);
	}
	if (rc < 0)
		fuse_reply_err(req, errno_of(fs, -rc));
	else
		fuse_reply_attr(req, &entry.st, entry.timeout_s);
}

/* Folders ------------------------------------------------------------------------------------------------ */

/* A READDIR that may wait for the table of a shard. */
struct dir_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	struct ps_place place;
	fuse_ino_t ino;
	size_t size, used;
	off_t off;
	bool plus;
	char buf[];
};

/* Adds an entry, with its attributes if they are complete; false: the buffer is full. */
static bool add_entry(
        struct dir_op *op, const char *name, const struct entry *entry, bool complete, off_t next)
{
	fuse_req_t req = op->inflight.req;
	size_t room = op->size - op->used, n;

	if (op->plus) {
		struct fuse_entry_param param = {.attr = entry->st};

		/* Node 0: the kernel takes the inode number and the type only. */
		if (complete) {
			param.ino = entry->ino;
			param.attr_timeout = param.entry_timeout = entry->timeout_s;
		}
		n = fuse_add_direntry_plus(req, op->buf + op->used, room, name, &param, next);
	} else {
		n = fuse_add_direntry(req, op->buf + op->used, room, name, &entry->st, next);
	}
	if (n > room)
		return false;
	op->used += n;
	return true;
}

/* "." and "..", whose inode number no program uses. False: the buffer is full. */
static bool add_dots(struct dir_op *op, off_t *off)
{
	static const char *const names[] = {".", ".."};
	struct entry entry = {.st = {.st_ino = op->ino, .st_mode = S_IFDIR}};

	for (; *off < 2; ++*off)
		if (!add_entry(op, names[*off], &entry, false, *off + 1))
			return false;
	return true;
}

static int read_members(struct dir_op *op, const struct ps_member_table *table, uint32_t folder, off_t off)
{
	struct ps_members *members = op->place.source->members;
	struct ps_member dir, member;
	int rc = ps_member_get(members, table, folder, &dir);

	if (rc == 0 && dir.kind != PS_MEMBER_FOLDER)
		rc = -ENOTDIR;
	for (uint64_t i = (uint64_t)off - 2; rc == 0 && i < dir.nchildren; i++) {
		struct entry entry;

		rc = ps_member_get(members, table, dir.child + (uint32_t)i, &member);
		if (rc == 0)
			rc = member_entry(op->fs, op->place.source, table, &member, &entry);
		if (rc == 0 && !add_entry(op, member.name, &entry, true, (off_t)i + 3))
			break;
	}
	return rc;
}

/* Of an open folder, in a mount that shows no members. */
static int read_open(struct dir_op *op, struct ps_open *open, off_t off)
{
	PS_LOCK_SCOPE(&open->reader);
	const char *name;
	struct ps_attr attr;
	int found = open->dir ? 0 : -EIO; /* this daemon could not open it again */

	for (; open->dir && (found = ps_dir_read(open->dir, (uint64_t)off - 2, op->plus, &name, &attr)) > 0;
	        off++) {
		struct entry entry;

		node_entry(op->fs, op->place.source, &attr, &entry);
		if (!add_entry(op, name, &entry, attr.node && attr.complete_attr, off + 1))
			break;
	}
	return PS_MIN(found, 0);
}

/* Takes from the view the open folder that was read farthest, but not beyond pos. If there is none, opens the
 * folder. */
static int take_dir(struct dir_op *op, uint64_t pos, struct ps_view_dir *ret)
{
	struct ps_member_view *view = op->fs->view;
	struct ps_view_dir *found = NULL;

	ps_member_view_close_old(op->fs);
	{
		PS_LOCK_SCOPE(&view->lock);
		for (size_t i = 0; i < PS_VIEW_DIRS; i++) {
			struct ps_view_dir *dir = &view->dirs[i];

			if (dir->ino == op->ino && dir->folder == op->place.number && dir->pos <= pos &&
			        (!found || dir->pos > found->pos))
				found = dir;
		}
		if (found) {
			*ret = *found;
			*found = (struct ps_view_dir){0};
			return 0;
		}
	}
	*ret = (struct ps_view_dir){.ino = op->ino, .folder = op->place.number};
	if (op->place.kind == PS_PLACE_MERGED)
		return ps_merged_dir_open(op->place.source->members, op->place.number, &ret->merged);
	return ps_dir_open(op->place.source->dataset, op->place.number, &ret->dir);
}

/* Keeps the open folder for the next READDIR, also after its last entry: one more READDIR finds the end. */
static void put_dir(struct ps_fs *fs, struct ps_view_dir *dir)
{
	struct ps_view_dir old;

	{
		PS_LOCK_SCOPE(&fs->view->lock);
		struct ps_view_dir *slot = &fs->view->dirs[0];

		for (size_t i = 1; i < PS_VIEW_DIRS && slot->ino; i++)
			if (!fs->view->dirs[i].ino || fs->view->dirs[i].used_ns < slot->used_ns)
				slot = &fs->view->dirs[i];
		old = *slot;
		*slot = *dir;
		slot->used_ns = ps_clock_mono_ns();
	}
	ps_dir_close(old.dir);
	ps_merged_dir_close(old.merged);
}

/* Positions are 2 + 2 * position in the dataset's folder, and 1 more for the folder beside a shard. */
static int read_names(struct dir_op *op, off_t off)
{
	const struct ps_fs_source *source = op->place.source;
	bool both = op->fs->options->members == PS_SHOW_BOTH, beside = off & 1, full = false;
	uint64_t pos = ((uint64_t)off - 2) / 2;
	struct ps_view_dir dir;
	struct ps_attr attr;
	const char *name;
	int found = 0, rc = take_dir(op, pos, &dir);

	if (rc < 0)
		return rc;
	for (; !full && (found = ps_dir_read(dir.dir, pos, op->plus, &name, &attr)) > 0; pos += !full) {
		bool shard = !attr.is_dir && ps_members_is_shard(name);
		char shown[NAME_MAX + 1];
		struct entry entry;

		snprintf(shown, sizeof(shown), "%s", name);
		if (!beside && (!shard || both)) {
			node_entry(op->fs, source, &attr, &entry);
			full = !add_entry(op, shown, &entry, attr.complete_attr,
			        (off_t)(2 * pos) + 2 + (shard ? 1 : 2));
		}
		if (!full && shard) {
			bool free_name =
			        is_folder_of_members(op->fs, source->dataset, op->place.number, name, true);

			if (free_name)
				shown[strlen(shown) - PS_SHARD_SUFFIX_LEN] = '\0';
			shard_entry(op->fs, source, attr.node, attr.mtime_s, &entry);
			if (free_name || !both)
				full = !add_entry(op, shown, &entry, op->plus, (off_t)(2 * pos) + 4);
		}
		beside = false;
	}
	dir.pos = pos;
	put_dir(op->fs, &dir);
	return PS_MIN(found, 0);
}

static int read_merged(struct dir_op *op, off_t off)
{
	uint64_t pos = (uint64_t)off - 2, number;
	struct ps_view_dir dir;
	struct entry entry;
	const char *name;
	bool full = false;
	int found = 0, rc = take_dir(op, pos, &dir);

	if (rc < 0)
		return rc;
	while (!full && (found = ps_merged_dir_read(dir.merged, pos, &name, &number)) > 0) {
		/* Skips a member whose shard was replaced a moment ago, and a member named ".penstock",
		 * which the virtual folder hides. */
		bool hidden = ps_virtual_lookup(op->ino, name) != 0;
		if (!hidden && merged_entry(op->fs, op->place.source, number, &entry) == 0)
			full = !add_entry(op, name, &entry, true, (off_t)pos + 3);
		pos += !full;
	}
	dir.pos = pos;
	put_dir(op->fs, &dir);
	return PS_MIN(found, 0);
}

static int read_sources(struct dir_op *op, off_t off)
{
	for (size_t i = (size_t)off - 2; i < op->fs->nsources; i++) {
		const struct ps_fs_source *source = &op->fs->sources[i];
		struct entry entry;

		source_entry(op->fs, source, &entry);
		if (!add_entry(op, source->name, &entry, true, (off_t)i + 3))
			break;
	}
	return 0;
}

static int read_virtual(struct dir_op *op, off_t off)
{
	const char *name;
	fuse_ino_t ino;

	for (size_t i = (size_t)off - 2; (name = ps_virtual_entry(i, &ino)); i++) {
		struct entry entry;

		virtual_entry(ino, &entry, op->fs);
		if (!add_entry(op, name, &entry, !op->fs->view, (off_t)i + 3))
			break;
	}
	return 0;
}

static void end_dir(struct dir_op *op, int rc)
{
	if (ps_inflight_claim(&op->inflight)) {
		/* Entries before an error are returned first; the next READDIR gets the error. */
		if (rc < 0 && op->used == 0)
			fuse_reply_err(op->inflight.req, errno_of(op->fs, -rc));
		else
			fuse_reply_buf(op->inflight.req, op->buf, op->used);
	}
	ps_inflight_put(&op->inflight);
}

static void readdir_table(void *arg, int errnum, const struct ps_member_table *table)
{
	struct dir_op *op = arg;

	end_dir(op, errnum ? -errnum : read_members(op, table, 0, op->off));
}

static void read_dir(
        fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open *open = fs->view ? NULL : ps_op_open(req, fi);
	size_t room = PS_MIN(size, READDIR_MAX_NBYTES);
	bool full = false;

	if (off < 0 || (!open && !fs->view)) {
		fuse_reply_err(req, off < 0 ? EINVAL : EBADF);
		return;
	}
	struct dir_op *op = ps_inflight_new(sizeof(*op) + room, &fs->inflight, req, NULL);
	if (!op)
		return;
	op->fs = fs;
	op->ino = ino;
	op->size = room;
	op->used = 0;
	op->plus = plus;
	int rc = ps_place_of(fs, ino, &op->place);
	if (rc == 0)
		full = !add_dots(op, &off);
	op->off = off;
	if (rc == 0 && !full && op->place.kind == PS_PLACE_SHARD) {
		ps_members_table(op->place.source->members, op->place.number, readdir_table, op);
		ps_inflight_issued(&op->inflight);
		return;
	}
	if (rc == 0 && !full) {
		switch (op->place.kind) {
		case PS_PLACE_MEMBER:
			rc = read_members(op, op->place.table, op->place.ordinal, off);
			break;
		case PS_PLACE_MERGED:
			rc = read_merged(op, off);
			break;
		case PS_PLACE_NODE:
			rc = open ? read_open(op, open, off) : read_names(op, off);
			break;
		case PS_PLACE_TOP:
			rc = read_sources(op, off);
			break;
		case PS_PLACE_VIRTUAL:
			rc = read_virtual(op, off);
			break;
		default:
			rc = -ENOTDIR;
		}
	}
	end_dir(op, rc);
	ps_inflight_issued(&op->inflight);
}

void ps_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

void ps_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}
