/* Readers: what of a read is there, who waits for what, who is answered, and when the time is up. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FOUND_PER_TICK 64
#define READ_MAX_BLOCKS 2 /* that PS_READ_MAX_NBYTES touch */

bool ps_fill_has_waiter(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	for (struct ps_list *l = file->waiters.next; l != &file->waiters; l = l->next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		if (read->offset < end && from < read->offset + read->nbytes)
			return true;
	}
	return false;
}

/* Reads ------------------------------------------------------------------------------------------ */

enum piece { PIECE_READY, PIECE_WAIT, PIECE_ABSENT, PIECE_UNVERIFIED, PIECE_FAILED };

/* Memory of buf, or (NULL) the data file at pos. */
static void add_segment(
        struct ps_fill_file *file, struct ps_read *read, struct ps_buf *buf, uint64_t pos, size_t nbytes)
{
	size_t n = read->priv.nsegs;
	struct ps_segment *last = n ? &read->priv.segs[n - 1] : NULL;
	const uint8_t *data = buf ? buf->data + pos % PS_BLOCK_SIZE : NULL;

	/* What lies behind the last one lies behind it in the same memory, or the same file, too. */
	if (last && read->priv.bufs[n - 1] == buf) {
		last->nbytes += nbytes;
		return;
	}
	read->priv.bufs[n] = buf ? ps_buf_ref(buf) : NULL;
	read->priv.segs[read->priv.nsegs++] = (struct ps_segment){.data = data,
	        .fd = buf ? -1 : ps_object_fd(file->object),
	        .pos = buf ? 0 : pos,
	        .nbytes = nbytes};
}

static void drop_segments(struct ps_read *read)
{
	for (size_t i = 0; i < read->priv.nsegs; i++)
		ps_buf_unref(read->priv.bufs[i]);
	read->priv.nsegs = 0;
	ps_object_release(&read->priv.hold);
}

/* Why a chunk that a read needs is not there. */
static enum piece why_not(struct ps_fill_file *file, struct ps_read *read, uint64_t block, uint16_t bit)
{
	const struct ps_slot *slot = file->slots[block];

	if (slot && slot->failed & bit) {
		read->priv.errnum = slot->errnum;
		return PIECE_FAILED;
	}
	if (slot && (slot->flight & bit || slot->place == PS_PLACE_VERIFY))
		return PIECE_WAIT;
	if (ps_file_block(file, block) == PS_BLOCK_UNVERIFIED)
		return PIECE_UNVERIFIED;
	if (!file->changed)
		return PIECE_ABSENT;
	read->priv.errnum = ESTALE;
	return PIECE_FAILED;
}

/* The part of `read` that lies in `block`: from memory as far as it is there, else from disk. */
static enum piece gather_block(
        struct ps_fill_file *file, struct ps_read *read, uint64_t block, uint64_t now_ns)
{
	uint64_t base = block * PS_BLOCK_SIZE, at = PS_MAX(read->offset, base);
	uint64_t end = PS_MIN(read->offset + read->nbytes, base + PS_BLOCK_SIZE);
	struct ps_slot *slot = ps_slot_find(file, block, now_ns);
	uint16_t stored = ps_file_chunks(file, block);

	while (at < end) {
		unsigned c = (unsigned)((at - base) / PS_CHUNK_SIZE);
		uint64_t start = base + c * PS_CHUNK_SIZE, stop = PS_MIN(end, start + PS_CHUNK_SIZE);

		if (slot && slot->have[c] >= stop - start)
			add_segment(file, read, slot->buf, at, stop - at);
		else if (stored >> c & 1)
			add_segment(file, read, NULL, at, stop - at);
		else
			return why_not(file, read, block, (uint16_t)(1u << c));
		at = stop;
	}
	return PIECE_READY;
}

/* All segments of the read, or the first reason why not. */
static enum piece gather(struct ps_fill_file *file, struct ps_read *read, uint64_t now_ns)
{
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;

	read->priv.nsegs = 0;
	read->priv.errnum = 0; /* of an earlier look */
	if (ps_object_corrupt(file->object)) {
		read->priv.errnum = EIO;
		return PIECE_FAILED;
	}
	/* From now on until it is answered nothing that is found on disk goes away. */
	int rc = ps_object_hold(file->object, read->offset, read->nbytes, &read->priv.hold);
	if (rc < 0) {
		read->priv.errnum = -rc;
		return PIECE_FAILED;
	}
	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b <= last; b++) {
		enum piece piece = gather_block(file, read, b, now_ns);

		if (piece != PIECE_READY) {
			drop_segments(read);
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

void ps_fill_collect(struct ps_fill_file *file, uint64_t from, uint64_t end, struct ps_list *ready)
{
	uint64_t now = ps_clock_mono_ns();

	for (struct ps_list *l = file->waiters.next, *next; l != &file->waiters; l = next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		next = l->next;
		if (read->offset >= end || read->offset + read->nbytes <= from)
			continue;
		enum piece piece = gather(file, read, now);
		if (piece == PIECE_READY)
			note_read(file, read);
		if (piece == PIECE_READY || piece == PIECE_FAILED) {
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
		struct ps_hold hold = read->priv.hold;
		int errnum = read->priv.errnum;
		size_t nsegs = errnum ? 0 : read->priv.nsegs;

		ps_list_remove(&read->priv.link);
		ps_fill_count_read(fill, read);
		memcpy(segs, read->priv.segs, nsegs * sizeof *segs);
		memcpy(bufs, read->priv.bufs, nsegs * sizeof *bufs);
		read->done(read, errnum, segs, nsegs); /* the read may be gone now */
		for (size_t i = 0; i < nsegs; i++)
			ps_buf_unref(bufs[i]);
		ps_object_release(&hold);
	}
}

/* What has to be done for a read that is not there; chunks [from, end) are missing. */
struct needs {
	uint64_t from, end;
	struct ps_slot *verify[READ_MAX_BLOCKS];
	size_t nverify;
};

/* The file's lock is held. */
static void find_needs(struct ps_fill_file *file, struct ps_read *read, uint64_t now_ns, struct needs *ret)
{
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;

	*ret = (struct needs){.from = UINT64_MAX};
	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b <= last; b++) {
		uint16_t missing = ps_slot_missing(file, b, now_ns) &
		                   ps_chunks_touched(b, read->offset, read->offset + read->nbytes);

		if (missing) {
			ret->from = PS_MIN(ret->from, b * PS_BLOCK_CHUNKS + (unsigned)__builtin_ctz(missing));
			ret->end = b * PS_BLOCK_CHUNKS + 32 - (unsigned)__builtin_clz(missing);
		}
		if (!file->slots[b] && ps_file_block(file, b) == PS_BLOCK_UNVERIFIED) {
			struct ps_slot *slot = ps_slot_new(file, b);

			if (!slot)
				continue;
			slot->place = PS_PLACE_VERIFY;
			ret->verify[ret->nverify++] = slot;
		}
	}
	/* What follows in the block is wanted next, and costs no request of its own. */
	if (ret->end && read->priv.access == PS_ACCESS_STREAM)
		ret->end = (last + 1) * PS_BLOCK_CHUNKS;
}

bool ps_fill_read(struct ps_fill_file *file, struct ps_read *read)
{
	struct ps_fill *fill = file->fill;
	struct needs needs = {0};
	struct ps_list ready;
	bool waits;

	read->priv.issued_ns = ps_clock_mono_ns();
	read->priv.expires_ns = read->priv.issued_ns + fill->timeout_ns;
	ps_list_init(&read->priv.link);
	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		enum piece piece = gather(file, read, read->priv.issued_ns);

		waits = piece != PIECE_READY && piece != PIECE_FAILED;
		read->priv.waiting = read->priv.waited = waits;
		if (waits) {
			ps_fill_count_wait(fill, read);
			find_needs(file, read, read->priv.issued_ns, &needs);
			ps_list_append(&file->waiters, &read->priv.link);
		} else {
			if (piece == PIECE_READY)
				note_read(file, read);
			ps_list_append(&ready, &read->priv.link);
		}
	}
	/* The read may be answered, and gone, from here on; the caller's handle keeps the file. */
	if (!waits) {
		ps_fill_answer(fill, &ready);
		return false;
	}
	for (size_t i = 0; i < needs.nverify; i++)
		ps_writeback_queue(fill, needs.verify[i]);
	if (needs.end) {
		ps_fill_demand(file, needs.from, needs.end);
		ps_fill_pump(fill);
	}
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

/* What a reader gave up on answers further readers at once for a while. */
static void mark_failed(struct ps_fill_file *file, const struct ps_read *read, uint64_t now_ns)
{
	uint64_t end = read->offset + read->nbytes;

	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++) {
		uint16_t missing = ps_slot_missing(file, b, now_ns);
		struct ps_slot *slot = file->slots[b];

		if (!slot && missing)
			slot = ps_slot_new(file, b);
		if (slot)
			ps_slot_fail(slot, (missing | slot->flight) & ps_chunks_touched(b, read->offset, end),
			        ETIMEDOUT, now_ns + PS_FILL_FAILED_MS * PS_NS_PER_MS);
	}
}

/* Notes why. The file's lock is held. */
static void timed_out(struct ps_fill_file *file)
{
	const char told[] = "the origin did not deliver";
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
}

bool ps_fill_expire_file(
        struct ps_fill_file *file, uint64_t now_ns, bool all, struct ps_list *ready, uint64_t *ret_offset)
{
	bool tell = false;

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
		timed_out(file);
		mark_failed(file, read, now_ns);
		if (ps_fill_may_tell(file, now_ns)) {
			tell = true;
			*ret_offset = read->offset;
		}
	}
	return tell;
}

/* A reader whose other chunk went away again (held and reclaimed, or failed) waits for something nobody
 * fetches: only while no demand of the file is queued can that be told. False: there is none. The file's lock
 * is held. */
static bool find_orphan(struct ps_fill_file *file, uint64_t now_ns, uint64_t *ret_from, uint64_t *ret_end)
{
	for (struct ps_list *l = file->waiters.next; l != &file->waiters; l = l->next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);
		enum piece piece = gather(file, read, now_ns);

		if (piece == PIECE_READY)
			drop_segments(read);
		if (piece != PIECE_ABSENT)
			continue;
		*ret_from = read->offset / PS_CHUNK_SIZE;
		*ret_end = (read->offset + read->nbytes - 1) / PS_CHUNK_SIZE + 1;
		return true;
	}
	return false;
}

/* What the timer found in the files, to be dealt with when their locks are free again. */
struct found {
	struct ps_fill_file *file; /* a reference */
	bool orphan, tell;
	uint64_t from, end; /* chunks, of an orphan */
	uint64_t offset;    /* of a reader whose time was up */
};

/* The engine's lock is held. */
static struct found look_at(struct ps_fill_file *file, uint64_t now_ns, struct ps_list *ready)
{
	struct found found = {.file = file};

	PS_LOCK_SCOPE(&file->lock);
	found.tell = ps_fill_expire_file(file, now_ns, false, ready, &found.offset);
	ps_fill_collect(file, 0, UINT64_MAX, ready);
	found.orphan = file->ndemands == 0 && find_orphan(file, now_ns, &found.from, &found.end);
	return found;
}

void ps_fill_expire(struct ps_fill *fill, uint64_t now_ns)
{
	struct found found[FOUND_PER_TICK];
	size_t n = 0;
	struct ps_list ready;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files && n < FOUND_PER_TICK;
		        l = l->next) {
			struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			if (file->refs == 0)
				continue; /* on its way out; no handle, no reader */
			found[n] = look_at(file, now_ns, &ready);
			if (found[n].orphan || found[n].tell) {
				file->refs++;
				n++;
			}
		}
	}
	ps_fill_answer(fill, &ready);
	for (size_t i = 0; i < n; i++) {
		struct ps_fill_file *file = found[i].file;
		char error[PS_ERROR_TEXT_LEN];

		ps_fill_file_error(file, error, sizeof error);
		if (found[i].tell)
			ps_fill_note_error(fill, error);
		if (found[i].tell)
			ps_log_warning("read: %s: offset %" PRIu64 ": %s", ps_object_url(file->object),
			        found[i].offset, error);
		if (found[i].orphan)
			ps_fill_demand(file, found[i].from, found[i].end);
		ps_fill_file_put(file);
	}
}
