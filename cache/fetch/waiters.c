/* Reads: finds the bytes of a read, and keeps, answers and expires the reads that wait (waiters). */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The first read from `item` on that touches the range. */
static struct ps_read *first_touching(struct ps_tree_item *item, uint64_t from, uint64_t end)
{
	for (; item && item->key < end; item = ps_tree_next(item)) {
		struct ps_read *read = PS_CONTAINER_OF(item, struct ps_read, priv.place);

		if (from < read->offset + read->nbytes)
			return read;
	}
	return NULL;
}

struct ps_read *ps_waiters_first(const struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	/* A read that begins before `soonest` is too short to reach the range. */
	uint64_t soonest = from - PS_MIN(from, PS_READ_MAX_NBYTES);

	return first_touching(ps_tree_from(&file->waiters_by_offset, soonest), from, end);
}

struct ps_read *ps_waiters_next(const struct ps_read *read, uint64_t from, uint64_t end)
{
	return first_touching(ps_tree_next(&read->priv.place), from, end);
}

/* Reads -------------------------------------------------------------------------------------------------- */

enum piece { PIECE_READY, PIECE_WAIT, PIECE_ABSENT, PIECE_UNVERIFIED, PIECE_FAILED };

/* Adds a segment: memory of buf, or (buf NULL) the data file at pos. */
static void add_segment(struct ps_fill_file *file, struct ps_read_bytes *bytes, struct ps_block_memory *buf,
        uint64_t pos, size_t nbytes)
{
	size_t n = bytes->nsegs;
	struct ps_segment *last = n ? &bytes->segs[n - 1] : NULL;
	const uint8_t *data = buf ? buf->data + pos % PS_BLOCK_SIZE : NULL;

	/* Pieces are added in order: two that follow each other in the same buf (or in the file) are
	 * adjacent there. */
	if (last && bytes->bufs[n - 1] == buf) {
		last->nbytes += nbytes;
		return;
	}
	bytes->bufs[n] = buf ? ps_block_memory_ref(buf) : NULL;
	bytes->segs[bytes->nsegs++] = (struct ps_segment){.data = data,
	        .fd = buf ? -1 : ps_object_fd(file->object),
	        .pos = buf ? 0 : pos,
	        .nbytes = nbytes};
}

void ps_fill_found_put(struct ps_read_bytes *bytes)
{
	for (size_t i = 0; i < bytes->nsegs; i++)
		ps_block_memory_unref(bytes->bufs[i]);
	bytes->nsegs = 0;
	ps_object_release(&bytes->hold);
}

/* A range of the file, the bytes of it that were found, and the reason if some were not. */
struct lookup {
	uint64_t offset, end;
	struct ps_read_bytes *bytes;
	bool borrows;     /* the caller keeps a reference to the object as long as it has the bytes */
	enum piece piece; /* of the first missing chunk; PIECE_FAILED if any chunk has failed */
	int errnum;       /* of PIECE_FAILED */
};

/* The reason why a chunk that a read needs is missing. */
static enum piece why_not(struct ps_fill_file *file, struct lookup *look, uint64_t block, uint16_t bit)
{
	const struct ps_block_buffer *buffer = file->buffers[block];

	if (buffer && buffer->failed & bit) {
		look->errnum = buffer->errnum;
		return PIECE_FAILED;
	}
	if (buffer && (buffer->flight & bit || buffer->place == PS_PLACE_VERIFY))
		return PIECE_WAIT;
	if (ps_file_block(file, block) == PS_BLOCK_UNVERIFIED)
		return PIECE_UNVERIFIED;
	if (!file->changed)
		return PIECE_ABSENT;
	look->errnum = ESTALE;
	return PIECE_FAILED;
}

/* Adds the part of the range in `block`, each chunk from memory if it is there, else from disk. After a
 * missing chunk the following ones are still examined: a failed chunk fails the read at once. */
static void gather_block(struct ps_fill_file *file, struct lookup *look, uint64_t block, uint64_t now_ns)
{
	uint64_t base = block * PS_BLOCK_SIZE, at = PS_MAX(look->offset, base);
	uint64_t end = PS_MIN(look->end, base + PS_BLOCK_SIZE);
	struct ps_block_buffer *buffer = ps_block_buffer_find(file, block, now_ns);
	uint16_t stored = ps_file_chunks(file, block);

	for (uint64_t stop; at < end && look->piece != PIECE_FAILED; at = stop) {
		unsigned c = (unsigned)((at - base) / PS_CHUNK_SIZE);
		uint64_t start = base + c * PS_CHUNK_SIZE;

		stop = PS_MIN(end, start + PS_CHUNK_SIZE);
		if (buffer && buffer->have[c] >= stop - start) {
			add_segment(file, look->bytes, buffer->memory, at, stop - at);
		} else if (stored >> c & 1) {
			add_segment(file, look->bytes, NULL, at, stop - at);
		} else {
			enum piece piece = why_not(file, look, block, (uint16_t)(1u << c));

			if (look->piece == PIECE_READY || piece == PIECE_FAILED)
				look->piece = piece;
		}
	}
}

/* Finds all bytes of the range. If some are missing, returns why, and look->bytes is empty. The file's lock
 * is held. */
static enum piece gather(struct ps_fill_file *file, struct lookup *look, uint64_t now_ns)
{
	uint64_t last = (look->end - 1) / PS_BLOCK_SIZE;

	look->bytes->nsegs = 0;
	look->bytes->hold = (struct ps_hold){0};
	look->errnum = 0;
	look->piece = PIECE_READY;
	if (ps_object_corrupt(file->object)) {
		look->errnum = EIO;
		return PIECE_FAILED;
	}
	/* The hold keeps everything that is found on disk until the read is answered. */
	uint64_t nbytes = look->end - look->offset;
	int rc = look->borrows
	                 ? ps_object_hold_borrowed(file->object, look->offset, nbytes, &look->bytes->hold)
	                 : ps_object_hold(file->object, look->offset, nbytes, &look->bytes->hold);
	if (rc < 0) {
		look->errnum = -rc;
		return PIECE_FAILED;
	}
	for (uint64_t b = look->offset / PS_BLOCK_SIZE; b <= last; b++)
		gather_block(file, look, b, now_ns);
	if (look->piece != PIECE_READY)
		ps_fill_found_put(look->bytes);
	return look->piece;
}

static enum piece gather_read(struct ps_fill_file *file, struct ps_read *read, uint64_t now_ns)
{
	struct lookup look = {
	        .offset = read->offset, .end = read->offset + read->nbytes, .bytes = &read->priv.bytes};
	enum piece piece = gather(file, &look, now_ns);

	read->priv.errnum = look.errnum;
	return piece;
}

/* Marks the blocks that this read has read to their end: they need not be retained for this reader. */
static void note_read(struct ps_fill_file *file, uint64_t offset, uint64_t end)
{
	uint64_t size = ps_object_size(file->object);
	uint64_t past = end == size ? (end + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE : end / PS_BLOCK_SIZE;

	for (uint64_t b = offset / PS_BLOCK_SIZE; b < past; b++)
		if (file->buffers[b])
			ps_block_buffer_was_read(file->buffers[b]);
}

void ps_waiters_answer(struct ps_fill *fill, struct ps_list *reads)
{
	while (!ps_list_empty(reads)) {
		struct ps_read *read = PS_CONTAINER_OF(reads->next, struct ps_read, priv.link);
		struct ps_read_bytes bytes;
		int errnum = read->priv.errnum;

		ps_list_remove(&read->priv.link);
		ps_fill_count_read(fill, read);
		bytes.nsegs = errnum ? 0 : read->priv.bytes.nsegs;
		bytes.hold = read->priv.bytes.hold;
		memcpy(bytes.segs, read->priv.bytes.segs, bytes.nsegs * sizeof(*bytes.segs));
		memcpy(bytes.bufs, read->priv.bytes.bufs, bytes.nsegs * sizeof(*bytes.bufs));
		read->done(read, errnum, bytes.segs, bytes.nsegs); /* done() may have freed the read */
		ps_fill_found_put(&bytes);
	}
}

bool ps_fill_find(struct ps_fill_file *file, uint64_t offset, size_t nbytes, struct ps_read_stats *stats,
        struct ps_read_bytes *ret)
{
	uint64_t now = ps_clock_mono_ns();
	struct lookup look = {.offset = offset, .end = offset + nbytes, .bytes = ret, .borrows = true};
	{
		PS_LOCK_SCOPE(&file->lock);
		if (gather(file, &look, now) != PIECE_READY)
			return false;
		note_read(file, offset, offset + nbytes);
	}
	ps_fill_count_hit(file->fill, stats, nbytes, now);
	return true;
}

/* Waiting ------------------------------------------------------------------------------------------------ */

/* A reader waits only for things that end, and each end checks the reader again (ps_waiters_look()):
 *
 *   a reader waits for                    until
 *   chunks in flight                      they arrive (also in part), or fail: range_request.c
 *   a queued demand                       it becomes requests, or is not needed: schedule.c
 *   a block in VERIFY                     it is checked: writeback.c
 *
 *   bytes that another part stores        ps_fill_stored() reports them
 *
 * ps_fill_look_later() reports other changes that concern readers (access to the file is granted, or in
 * doubt). */

/* Adds to the outcome the requests and checks that a waiting read needs. The file's lock is held. */
static void find_needs(
        struct ps_fill_file *file, const struct ps_read *read, uint64_t now_ns, struct ps_outcome *outcome)
{
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;
	uint64_t from = UINT64_MAX, end = 0;
	bool verifies = false;

	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b <= last; b++) {
		uint16_t missing = ps_block_buffer_missing(file, b, now_ns) &
		                   ps_chunks_touched(b, read->offset, read->offset + read->nbytes);

		if (missing) {
			from = PS_MIN(from, b * PS_BLOCK_CHUNKS + (unsigned)__builtin_ctz(missing));
			end = b * PS_BLOCK_CHUNKS + 32 - (unsigned)__builtin_clz(missing);
		}
		if (ps_file_block(file, b) == PS_BLOCK_UNVERIFIED) {
			struct ps_block_buffer *buffer =
			        file->buffers[b] ? file->buffers[b] : ps_block_buffer_new(file, b);

			if (!buffer || !ps_block_buffer_is_idle(buffer))
				continue;
			buffer->place = PS_PLACE_VERIFY;
			ps_list_append(&outcome->disk, &buffer->link);
			verifies = true;
		}
	}
	/* A stream needs the rest of the block next; requesting it now saves a request. */
	if (end && (read->priv.access == PS_ACCESS_STREAM || read->whole_blocks))
		end = (last + 1) * PS_BLOCK_CHUNKS;
	if (end && read->whole_blocks)
		from = from / PS_BLOCK_CHUNKS * PS_BLOCK_CHUNKS;
	if (end && !file->changed)
		ps_outcome_demand(outcome, from, end);
	/* nothing was arranged: the store has changed meanwhile, memory ran out, or the file changed at the
	 * origin */
	else if (!verifies)
		outcome->again = true;
}

/* Adds the read's wait to those of the file's scattered readers. */
static void note_scattered(struct ps_fill_file *file, const struct ps_read *read)
{
	uint64_t now = ps_clock_mono_ns();

	if (now - file->scattered_since_ns > PS_FILL_SCATTERED_MS * PS_NS_PER_MS) {
		file->scattered_since_ns = now;
		file->scattered_ns = file->nscattered = 0;
	}
	file->nscattered++;
	file->scattered_ns += now - read->priv.issued_ns;
}

static void leave(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome)
{
	if (read->priv.access == PS_ACCESS_RANDOM && !read->alone)
		note_scattered(file, read);
	read->priv.waiting = false;
	ps_tree_remove(&file->waiters_by_offset, &read->priv.place);
	ps_list_remove(&read->priv.link);
	ps_list_append(&outcome->ready, &read->priv.link);
}

void ps_waiters_look(struct ps_fill_file *file, uint64_t from, uint64_t end, struct ps_outcome *outcome)
{
	uint64_t now = ps_list_empty(&file->waiters) ? 0 : ps_clock_mono_ns();

	for (struct ps_read *read = ps_waiters_first(file, from, end), *next; read; read = next) {
		next = ps_waiters_next(read, from, end);
		switch (gather_read(file, read, now)) {
		case PIECE_READY:
			note_read(file, read->offset, read->offset + read->nbytes);
			leave(file, read, outcome);
			break;
		case PIECE_FAILED:
			leave(file, read, outcome);
			break;
		case PIECE_ABSENT:
		case PIECE_UNVERIFIED:
			find_needs(file, read, now, outcome);
			break;
		case PIECE_WAIT:
			break;
		}
	}
}

void ps_waiters_cancel_all(struct ps_fill_file *file, struct ps_outcome *outcome)
{
	while (!ps_list_empty(&file->waiters)) {
		struct ps_read *read = PS_CONTAINER_OF(file->waiters.next, struct ps_read, priv.link);

		read->priv.errnum = ECANCELED;
		leave(file, read, outcome);
	}
}

/* Reading ------------------------------------------------------------------------------------------------ */

bool ps_waiters_join(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome)
{
	struct ps_fill *fill = file->fill;

	read->priv.issued_ns = ps_clock_mono_ns();
	read->priv.overdue_ns = read->priv.issued_ns + fill->timeout_ns / 2;
	read->priv.expires_ns = read->priv.issued_ns + fill->timeout_ns;
	ps_list_init(&read->priv.link);
	read->priv.place = (struct ps_tree_item){0};
	PS_LOCK_SCOPE(&file->lock);
	enum piece piece = gather_read(file, read, read->priv.issued_ns);
	bool waits = piece != PIECE_READY && piece != PIECE_FAILED;

	read->priv.waiting = read->priv.waited = waits;
	if (!waits) {
		if (piece == PIECE_READY)
			note_read(file, read->offset, read->offset + read->nbytes);
		ps_list_append(&outcome->ready, &read->priv.link);
		return false;
	}
	ps_fill_count_wait(fill, read);
	find_needs(file, read, read->priv.issued_ns, outcome);
	/* With PIECE_WAIT the reader is looked at anyway: some of its chunks are in flight. */
	outcome->again = outcome->again && piece != PIECE_WAIT;
	/* The timer needs only the first waiter's times: those of later waiters are later. It notices the new
	 * deadline within a tick, and need not be woken. */
	if (ps_list_empty(&file->waiters))
		(void)ps_fill_file_due(file, read->priv.overdue_ns);
	ps_list_append(&file->waiters, &read->priv.link);
	ps_tree_insert(&file->waiters_by_offset, &read->priv.place, read->offset);
	return true;
}

void ps_waiters_cancel(struct ps_fill_file *file, struct ps_read *read, struct ps_outcome *outcome)
{
	PS_LOCK_SCOPE(&file->lock);
	if (!read->priv.waiting)
		return;
	read->priv.errnum = ECANCELED;
	leave(file, read, outcome);
}

/* Deadlines ---------------------------------------------------------------------------------------------- */

/* Marks chunks for which a reader timed out as failed: for a while, reads of them fail at once. */
static void mark_failed(struct ps_fill_file *file, const struct ps_read *read, uint64_t now_ns)
{
	uint64_t end = read->offset + read->nbytes;

	for (uint64_t b = read->offset / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++) {
		uint16_t missing = ps_block_buffer_missing(file, b, now_ns);
		struct ps_block_buffer *buffer = file->buffers[b];

		if (!buffer && missing)
			buffer = ps_block_buffer_new(file, b);
		if (buffer)
			ps_block_buffer_fail(buffer,
			        (missing | buffer->flight) & ps_chunks_touched(b, read->offset, end),
			        ETIMEDOUT, now_ns + PS_FILL_FAILED_MS * PS_NS_PER_MS);
	}
}

/* Sets the file's error text, with the last failure that is not a timeout itself. The file's lock is held. */
static void timed_out(struct ps_fill_file *file)
{
	bool first = !file->error_is_timeout;
	char why[PS_ERROR_TEXT_LEN];

	file->errnum = file->attempt[0] ? file->attempt_errnum : first ? ETIMEDOUT : file->errnum;
	if (file->attempt[0] || first)
		snprintf(why, sizeof(why), "%s", file->attempt[0] ? file->attempt : file->error);
	else
		why[0] = '\0';
	int n = snprintf(file->error, sizeof(file->error),
	        "the origin did not deliver within %" PRIu64 " s%s", file->fill->timeout_ns / PS_NS_PER_S,
	        why[0] ? "; last failure: " : "");
	size_t room = sizeof(file->error) - (size_t)n;
	snprintf(file->error + n, room, "%.*s", (int)(room - 1), why);
	file->error_is_timeout = true;
}

bool ps_waiters_expire(
        struct ps_fill_file *file, uint64_t now_ns, struct ps_outcome *outcome, uint64_t *ret_offset)
{
	bool tell = false;

	/* Waiters are in the order of their deadlines. */
	while (!ps_list_empty(&file->waiters)) {
		struct ps_read *read = PS_CONTAINER_OF(file->waiters.next, struct ps_read, priv.link);
		uint64_t from = read->offset / PS_CHUNK_SIZE * PS_CHUNK_SIZE,
		         end = read->offset + read->nbytes;

		if (read->priv.expires_ns > now_ns)
			break;
		read->priv.errnum = ETIMEDOUT;
		leave(file, read, outcome);
		timed_out(file);
		mark_failed(file, read, now_ns);
		if (ps_fill_may_log(file, now_ns)) {
			tell = true;
			*ret_offset = read->offset;
		}
		/* Other readers that wait for the same chunks fail, too. */
		ps_waiters_look(
		        file, from, (end + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE * PS_CHUNK_SIZE, outcome);
	}
	return tell;
}

/* Waiters are in the order of arrival, and all have the same timeout. */
uint64_t ps_waiters_due_ns(const struct ps_fill_file *file)
{
	uint64_t due_ns = UINT64_MAX;

	PS_LIST_EACH (const struct ps_read, read, &file->waiters, priv.link) {
		due_ns = PS_MIN(due_ns, PS_MIN(read->priv.overdue_ns, read->priv.expires_ns));
	}
	return due_ns;
}

bool ps_waiters_overdue(struct ps_fill_file *file, uint64_t now_ns, uint64_t *ret_from, uint64_t *ret_end)
{
	PS_LIST_EACH (struct ps_read, read, &file->waiters, priv.link) {
		if (read->priv.overdue_ns > now_ns)
			continue;
		read->priv.overdue_ns = now_ns + PS_MAX(file->fill->timeout_ns / 4, PS_NS_PER_MS);
		*ret_from = read->offset;
		*ret_end = read->offset + read->nbytes;
		return true;
	}
	return false;
}
