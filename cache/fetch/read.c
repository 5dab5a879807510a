/* Readers: what of a read is there, who waits for what, who is answered, and when the time is up. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ORPHANS_PER_TICK 64

/* Slots; the file's lock is held ------------------------------------------------------------------ */

struct ps_slot *ps_slot_new(struct ps_fill_file *file, uint64_t block, enum ps_slot_state state)
{
	struct ps_slot *slot = calloc(1, sizeof *slot);

	if (!slot)
		return NULL;
	slot->file = file;
	slot->block = block;
	slot->state = state;
	ps_list_init(&slot->link);
	file->slots[block] = slot;
	return slot;
}

void ps_slot_free(struct ps_slot *slot)
{
	slot->file->slots[slot->block] = NULL;
	ps_buf_unref(slot->buf);
	free(slot);
}

bool ps_fill_has_waiter(struct ps_fill_file *file, uint64_t block)
{
	for (struct ps_list *l = file->waiters.next; l != &file->waiters; l = l->next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		if (read->offset / PS_BLOCK_SIZE <= block &&
		        block <= (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE)
			return true;
	}
	return false;
}

/* Reads ------------------------------------------------------------------------------------------ */

enum piece { PIECE_READY, PIECE_WAIT, PIECE_ABSENT, PIECE_UNVERIFIED, PIECE_FAILED };

static void add_segment(
        struct ps_read *read, struct ps_buf *buf, const void *data, int fd, uint64_t pos, size_t nbytes)
{
	struct ps_segment *last = read->priv.nsegs ? &read->priv.segs[read->priv.nsegs - 1] : NULL;

	if (last && !data && !last->data && last->fd == fd && last->pos + last->nbytes == pos) {
		last->nbytes += nbytes;
		return;
	}
	read->priv.bufs[read->priv.nsegs] = buf ? ps_buf_ref(buf) : NULL;
	read->priv.segs[read->priv.nsegs++] =
	        (struct ps_segment){.data = data, .fd = fd, .pos = pos, .nbytes = nbytes};
}

static void drop_segments(struct ps_read *read)
{
	for (size_t i = 0; i < read->priv.nsegs; i++)
		ps_buf_unref(read->priv.bufs[i]);
	read->priv.nsegs = 0;
}

/* The part of `read` that lies in `block`. */
static enum piece gather_block(
        struct ps_fill_file *file, struct ps_read *read, uint64_t block, uint64_t now_ns)
{
	uint64_t start = PS_MAX(read->offset, block * PS_BLOCK_SIZE);
	uint64_t end = PS_MIN(read->offset + read->nbytes, (block + 1) * PS_BLOCK_SIZE);
	struct ps_slot *slot = file->slots[block];

	if (slot && slot->state == PS_SLOT_FAILED && slot->failed_until_ns <= now_ns) {
		ps_slot_free(slot);
		slot = NULL;
	}
	if (!slot) {
		switch (ps_object_block(file->object, block)) {
		case PS_BLOCK_PRESENT:
			add_segment(read, NULL, NULL, ps_object_fd(file->object), start, end - start);
			return PIECE_READY;
		case PS_BLOCK_UNVERIFIED:
			return PIECE_UNVERIFIED;
		case PS_BLOCK_ABSENT:
		case PS_BLOCK_PARTIAL:
			break;
		}
		if (!file->changed)
			return PIECE_ABSENT;
		read->priv.errnum = ESTALE;
		return PIECE_FAILED;
	}
	if (slot->buf && slot->filled >= end - block * PS_BLOCK_SIZE) {
		add_segment(read, slot->buf, slot->buf->data + start % PS_BLOCK_SIZE, -1, 0, end - start);
		return PIECE_READY;
	}
	if (slot->failed_until_ns > now_ns) {
		read->priv.errnum = slot->errnum;
		return PIECE_FAILED;
	}
	return PIECE_WAIT;
}

/* All segments of the read, or the first reason why not; *ret_block tells where. */
static enum piece gather(
        struct ps_fill_file *file, struct ps_read *read, uint64_t now_ns, uint64_t *ret_block)
{
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;

	read->priv.nsegs = 0;
	read->priv.errnum = 0; /* of an earlier look */
	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b <= last; b++) {
		enum piece piece = gather_block(file, read, b, now_ns);

		if (piece != PIECE_READY) {
			drop_segments(read);
			*ret_block = b;
			return piece;
		}
	}
	return PIECE_READY;
}

/* Blocks that the read takes to their end need not be kept for it. */
static void note_read(struct ps_fill_file *file, const struct ps_read *read)
{
	uint64_t end = read->offset + read->nbytes, size = ps_object_size(file->object);
	uint64_t past = end == size ? (end + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE : end / PS_BLOCK_SIZE;

	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b < past; b++)
		if (file->slots[b])
			file->slots[b]->read = true;
}

void ps_fill_collect(struct ps_fill_file *file, uint64_t first, uint64_t end, struct ps_list *ready)
{
	uint64_t now = ps_clock_mono_ns(), block;

	for (struct ps_list *l = file->waiters.next, *next; l != &file->waiters; l = next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		next = l->next;
		if (read->offset >= end * PS_BLOCK_SIZE ||
		        read->offset + read->nbytes <= first * PS_BLOCK_SIZE)
			continue;
		enum piece piece = gather(file, read, now, &block);
		if (piece == PIECE_READY || piece == PIECE_FAILED) {
			if (piece == PIECE_READY)
				note_read(file, read);
			read->priv.waiting = false;
			ps_list_remove(l);
			ps_list_append(ready, l);
		}
	}
}

void ps_fill_answer(struct ps_fill *fill, struct ps_list *reads)
{
	while (!ps_list_empty(reads)) {
		struct ps_read *read = PS_CONTAINER_OF(reads->next, struct ps_read, priv.link);
		struct ps_segment segs[PS_READ_MAX_SEGMENTS];
		struct ps_buf *bufs[PS_READ_MAX_SEGMENTS];
		int errnum = read->priv.errnum;
		size_t nsegs = errnum ? 0 : read->priv.nsegs;

		ps_list_remove(&read->priv.link);
		atomic_fetch_add(&fill->stalled_ns, ps_clock_mono_ns() - read->priv.issued_ns);
		atomic_fetch_sub(&fill->nwaiting, 1);
		if (!errnum)
			atomic_fetch_add(&fill->read_bytes, read->nbytes);
		memcpy(segs, read->priv.segs, sizeof segs);
		memcpy(bufs, read->priv.bufs, sizeof bufs);
		read->done(read, errnum, segs, nsegs); /* the read may be gone now */
		for (size_t i = 0; i < nsegs; i++)
			ps_buf_unref(bufs[i]);
	}
}

/* Makes an unverified block wait for the disk threads; the file's lock is held. */
static struct ps_slot *begin_verify(struct ps_fill_file *file, uint64_t block)
{
	return ps_slot_new(file, block, PS_SLOT_VERIFYING);
}

bool ps_fill_read(struct ps_fill_file *file, struct ps_read *read)
{
	struct ps_fill *fill = file->fill;
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;
	uint64_t block = 0, absent[PS_READ_MAX_SEGMENTS];
	struct ps_slot *verify[PS_READ_MAX_SEGMENTS];
	size_t nabsent = 0, nverify = 0;
	struct ps_segment segs[PS_READ_MAX_SEGMENTS];
	struct ps_buf *bufs[PS_READ_MAX_SEGMENTS];
	size_t nsegs = 0;
	int errnum = 0;

	read->priv.errnum = 0;
	read->priv.issued_ns = ps_clock_mono_ns();
	read->priv.expires_ns = read->priv.issued_ns + fill->timeout_ns;
	ps_list_init(&read->priv.link);
	{
		PS_LOCK_SCOPE(&file->lock);
		enum piece piece = gather(file, read, read->priv.issued_ns, &block);

		read->priv.waiting = piece != PIECE_READY && piece != PIECE_FAILED;
		if (read->priv.waiting) {
			for (uint64_t b = block; b <= last; b++) {
				enum ps_block_state state = ps_object_block(file->object, b);

				if (file->slots[b])
					continue;
				if (state == PS_BLOCK_ABSENT)
					absent[nabsent++] = b;
				else if (state == PS_BLOCK_UNVERIFIED &&
				         (verify[nverify] = begin_verify(file, b)))
					nverify++;
			}
			atomic_fetch_add(&fill->nwaiting, 1);
			ps_list_append(&file->waiters, &read->priv.link);
		} else {
			if (piece == PIECE_READY)
				note_read(file, read);
			errnum = read->priv.errnum;
			nsegs = errnum ? 0 : read->priv.nsegs;
			memcpy(segs, read->priv.segs, sizeof segs);
			memcpy(bufs, read->priv.bufs, sizeof bufs);
		}
	}
	if (!nabsent && !nverify && (nsegs || errnum)) {
		if (!errnum)
			atomic_fetch_add(&fill->read_bytes, read->nbytes);
		read->done(read, errnum, segs, nsegs);
		for (size_t i = 0; i < nsegs; i++)
			ps_buf_unref(bufs[i]);
		return false;
	}
	/* The read may be answered, and gone, from here on; the caller's handle keeps the file. */
	for (size_t i = 0; i < nverify; i++) {
		ps_fill_file_ref(file);
		ps_writeback_queue(fill, verify[i]);
	}
	for (size_t i = 0; i < nabsent; i++)
		ps_fill_demand(file, absent[i]);
	if (nabsent)
		ps_fill_pump(fill);
	return true;
}

void ps_fill_cancel(struct ps_fill_file *file, struct ps_read *read)
{
	struct ps_list ready;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		if (!read->priv.waiting)
			return;
		read->priv.waiting = false;
		read->priv.errnum = ECANCELED;
		ps_list_remove(&read->priv.link);
		ps_list_append(&ready, &read->priv.link);
	}
	ps_fill_answer(file->fill, &ready);
}

/* Deadlines -------------------------------------------------------------------------------------- */

/* A block whose reader gave up answers further readers at once for a while. */
static void mark_failed(struct ps_fill_file *file, uint64_t block, uint64_t now_ns)
{
	struct ps_slot *slot = file->slots[block];

	if (!slot && ps_object_block(file->object, block) == PS_BLOCK_ABSENT)
		slot = ps_slot_new(file, block, PS_SLOT_FAILED);
	if (!slot || (slot->state != PS_SLOT_FETCHING && slot->state != PS_SLOT_FAILED))
		return;
	slot->errnum = ETIMEDOUT;
	slot->failed_until_ns = now_ns + PS_FILL_FAILED_MS * PS_NS_PER_MS;
}

/* Notes why, and logs it now and then. The file's lock is held. */
static void timed_out(struct ps_fill_file *file, uint64_t offset, uint64_t now_ns)
{
	const char told[] = "no answer from the origin";
	bool first = strncmp(file->error, told, sizeof told - 1) != 0;
	char why[PS_ERROR_TEXT_LEN];

	if (file->attempt[0] || first)
		snprintf(why, sizeof why, "%s", file->attempt[0] ? file->attempt : file->error);
	else
		why[0] = '\0';
	int n = snprintf(file->error, sizeof file->error, "%s within %" PRIu64 " s%s", told,
	        file->fill->timeout_ns / PS_NS_PER_S, why[0] ? "; last failure: " : "");
	size_t room = sizeof file->error - (size_t)n;
	snprintf(file->error + n, room, "%.*s", (int)(room - 1), why);
	if (ps_fill_may_tell(file, now_ns))
		ps_log_warning(
		        "read: %s: offset %" PRIu64 ": %s", ps_object_url(file->object), offset, file->error);
}

void ps_fill_expire_file(struct ps_fill_file *file, uint64_t now_ns, bool all, struct ps_list *ready)
{
	for (struct ps_list *l = file->waiters.next, *next; l != &file->waiters; l = next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		next = l->next;
		if (!all && read->priv.expires_ns > now_ns)
			continue;
		read->priv.waiting = false;
		read->priv.errnum = all ? ECANCELED : ETIMEDOUT;
		ps_list_remove(l);
		ps_list_append(ready, l);
		if (all)
			continue;
		timed_out(file, read->offset, now_ns);
		for (uint64_t b = read->offset / PS_BLOCK_SIZE;
		        b <= (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE; b++)
			mark_failed(file, b, now_ns);
	}
}

/* A reader whose other block went away again (held and reclaimed, or failed) waits for something nobody
 * fetches: only while no demand of the file is queued can that be told. The file's lock is held. */
static size_t find_orphans(struct ps_fill_file *file, uint64_t now_ns, uint64_t *ret_blocks, size_t cap)
{
	size_t n = 0;

	for (struct ps_list *l = file->waiters.next; l != &file->waiters && n < cap; l = l->next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);
		uint64_t block;
		enum piece piece = gather(file, read, now_ns, &block);

		if (piece == PIECE_READY)
			drop_segments(read);
		else if (piece == PIECE_ABSENT)
			ret_blocks[n++] = block;
	}
	return n;
}

void ps_fill_expire(struct ps_fill *fill, uint64_t now_ns)
{
	struct {
		struct ps_fill_file *file;
		uint64_t block;
	} orphans[ORPHANS_PER_TICK];
	uint64_t blocks[ORPHANS_PER_TICK];
	size_t norphans = 0;
	struct ps_list ready;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			PS_LOCK_SCOPE(&file->lock);
			ps_fill_expire_file(file, now_ns, false, &ready);
			ps_fill_collect(file, 0, UINT64_MAX / PS_BLOCK_SIZE, &ready);
			size_t n = file->ndemands == 0 && file->refs > 0
			                   ? find_orphans(file, now_ns, blocks, ORPHANS_PER_TICK - norphans)
			                   : 0;
			for (size_t i = 0; i < n; i++) {
				file->refs++;
				orphans[norphans].file = file;
				orphans[norphans++].block = blocks[i];
			}
		}
	}
	ps_fill_answer(fill, &ready);
	for (size_t i = 0; i < norphans; i++) {
		ps_fill_demand(orphans[i].file, orphans[i].block);
		ps_fill_file_put(orphans[i].file);
	}
}
