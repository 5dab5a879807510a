/* Opens again what was open under an earlier daemon of the mount. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fuse/member_view.h"
#include "fuse/ops.h"

/* A daemon that was killed after it opened a backing id and before it stored the id in a slot leaves an id
 * that no slot names. The kernel counts ids upwards: this id is among the last. */
#define IDS_OF_LATE 512
#define IDS_NOT_NOTED 64

static void put_object(void *object)
{
	ps_object_put(object);
}

/* Fills in what the open file's kind has; -errno: reads are answered by an error. */
static int reopen(struct ps_fs *fs, struct ps_open *open)
{
	struct ps_dataset *dataset = ps_fs_source(fs, open->ino)->dataset;
	uint64_t node = ps_fs_node(fs, open->ino);
	bool real = !ps_virtual_is(open->ino) && !ps_fs_is_top(fs, open->ino);

	switch (open->kind) {
	case PS_OPEN_FILE:
		return ps_handle_reopen(dataset, node, atomic_load(&open->allowed), &open->handle);
	case PS_OPEN_DIR:
		return real ? ps_dir_open(dataset, node, &open->dir) : 0;
	default:
		open->text = ps_state_text(&fs->state, open->fh);
		open->text_len = open->text ? strlen(open->text) : 0;
		return open->text ? 0 : ps_virtual_text(fs, open->ino, false, &open->text, &open->text_len);
	}
}

/* The kernel has the file open in this mode, whether it can be read or not. */
static void restore_mode(struct ps_fs *fs, struct ps_open *open, int backing_id)
{
	struct ps_object *object = open->handle && open->mode == PS_MODE_PASSED
	                                   ? ps_object_ref(ps_handle_object(open->handle))
	                                   : NULL;
	const struct ps_keep keep = {object, object ? put_object : NULL};

	open->in_mode = ps_openmode_restore(&fs->openmodes, open->ino, open->mode, backing_id, &keep) == 0;
}

static void *restore(void *arg, uint64_t fh, struct ps_state_slot *slot)
{
	struct ps_fs *fs = arg;
	bool used = (uint32_t)atomic_load(&slot->word) == PS_SLOT_USED;

	/* CLOSING: the RELEASE has come already. If the kernel sends it again, it is answered without a
	 * slot. The slot is freed now, so the id is noted. */
	if (!used && slot->mode == PS_MODE_PASSED)
		ps_state_note_closed_id(fs->state.head, slot->backing_id);
	if (used && slot->kind == PS_OPEN_SNAPSHOT)
		return ps_snapshot_restore(fs, fh, slot->ino, slot->number);
	if (!used || slot->kind > PS_OPEN_VIRTUAL || slot->mode >= PS_MODE_COUNT)
		return NULL;
	struct ps_open *open = calloc(1, sizeof(*open));
	if (!open)
		return NULL;
	*open = (struct ps_open){.fh = fh,
	        .kind = slot->kind,
	        .ino = slot->ino,
	        .mode = slot->mode,
	        .allowed = atomic_load(&slot->allowed),
	        .reads = {.tid = slot->tid}};
	int rc = reopen(fs, open);
	if (rc < 0)
		ps_log_warning("mount: %s: an open file (node %llu) cannot be read any more: %s",
		        fs->mountpoint, (unsigned long long)ps_node_number(open->ino), strerror(-rc));
	if (slot->in_mode)
		restore_mode(fs, open, slot->backing_id);
	(void)ps_fs_open_list(fs, open);
	return open;
}

static void close_unused(struct ps_fs *fs, int id)
{
	for (struct ps_list *l = fs->opens.next; l != &fs->opens; l = l->next) {
		const struct ps_open *open = PS_CONTAINER_OF(l, struct ps_open, link);

		if (open->mode == PS_MODE_PASSED && ps_state_slot(&fs->state, open->fh)->backing_id == id)
			return;
	}
	ps_passthrough_backing_close(&fs->passthrough, id);
}

void ps_fs_restore(struct ps_fs *fs)
{
	int last = atomic_load(&fs->state.head->last_backing_id);

	ps_state_restore(&fs->state, restore, fs);
	if (last == 0)
		return; /* nothing was ever passed through */
	for (size_t i = 0; i < PS_STATE_CLOSED_IDS; i++)
		if (atomic_load(&fs->state.head->closed[i]) > 0)
			close_unused(fs, atomic_load(&fs->state.head->closed[i]));
	for (int id = PS_MAX(1, last - IDS_OF_LATE); id <= last + IDS_NOT_NOTED; id++)
		close_unused(fs, id);
}
