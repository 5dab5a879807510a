#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TIMER_BUSY_NS (50 * PS_NS_PER_MS) /* how late a deadline may be noticed */
#define TIMER_IDLE_NS PS_NS_PER_S
#define TRIM_AFTER_NS (30 * PS_NS_PER_S)
#define DRAIN_TICK_NS (50 * PS_NS_PER_MS)
#define ORPHANS_PER_TICK 64

/* Files ------------------------------------------------------------------------------------------ */

int ps_fill_file_get(struct ps_fill *fill, struct ps_object *object, struct ps_origin *origin,
	struct ps_fill_file **ret)
{
	uint64_t nblocks = ps_object_nblocks(object);
	struct ps_fill_file *file = calloc(1, sizeof *file);
	struct ps_slot **slots = calloc(nblocks ? nblocks : 1, sizeof *slots);

	if (!file || !slots) {
		free(file);
		free(slots);
		return -ENOMEM;
	}
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *old = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			if (old->refs > 0 && old->object == object && old->origin == origin && !old->draining) {
				old->refs++;
				*ret = old;
				goto found;
			}
		}
		file->fill = fill;
		file->object = ps_object_ref(object);
		file->origin = origin;
		file->refs = 1;
		file->slots = slots;
		file->remote = *ps_object_remote(object);
		ps_list_init(&file->waiters);
		pthread_mutex_init(&file->lock, NULL);
		ps_list_append(&fill->files, &file->link);
	}
	*ret = file;
	return 0;
found:
	free(file);
	free(slots);
	return 0;
}

struct ps_fill_file *ps_fill_file_ref(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	file->refs++;
	return file;
}

void ps_fill_file_put(struct ps_fill_file *file)
{
	if (!file)
		return;
	struct ps_fill *fill = file->fill;
	uint64_t nblocks = ps_object_nblocks(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		if (--file->refs > 0)
			return;
	}
	/* With no reference nobody can get it again, but it stays on the list until the store has its object back:
	 * that is what ps_fill_drain() waits for. */
	ps_object_put(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_list_remove(&file->link);
		pthread_cond_broadcast(&fill->files_cond);
	}
	for (uint64_t b = 0; b < nblocks; b++)
		if (file->slots[b])
			ps_slot_free(file->slots[b]); /* only FAILED ones are left */
	pthread_mutex_destroy(&file->lock);
	free(file->slots);
	free(file);
}

struct ps_object *ps_fill_file_object(struct ps_fill_file *file)
{
	return file->object;
}

struct ps_fill *ps_fill_file_engine(struct ps_fill_file *file)
{
	return file->fill;
}

bool ps_fill_file_changed(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	return file->changed;
}

void ps_fill_file_error(struct ps_fill_file *file, char *ret_text, size_t cap)
{
	PS_LOCK_SCOPE(&file->lock);
	snprintf(ret_text, cap, "%s", file->error);
}

void ps_fill_object_error(struct ps_fill *fill, const struct ps_object *object, char *ret_text, size_t cap)
{
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
		struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

		if (file->object != object)
			continue;
		PS_LOCK_SCOPE(&file->lock);
		if (file->error[0])
			snprintf(ret_text, cap, "%s", file->error);
	}
}

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

static void add_segment(struct ps_read *read, struct ps_buf *buf, const void *data, int fd, uint64_t pos,
	size_t nbytes)
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
static enum piece gather_block(struct ps_fill_file *file, struct ps_read *read, uint64_t block, uint64_t now_ns)
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
static enum piece gather(struct ps_fill_file *file, struct ps_read *read, uint64_t now_ns, uint64_t *ret_block)
{
	uint64_t last = (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE;

	read->priv.nsegs = 0;
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

void ps_fill_collect(struct ps_fill_file *file, uint64_t first, uint64_t end, struct ps_list *ready)
{
	uint64_t now = ps_clock_mono_ns(), block;

	for (struct ps_list *l = file->waiters.next, *next; l != &file->waiters; l = next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);

		next = l->next;
		if (read->offset >= end * PS_BLOCK_SIZE || read->offset + read->nbytes <= first * PS_BLOCK_SIZE)
			continue;
		enum piece piece = gather(file, read, now, &block);
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
				else if (state == PS_BLOCK_UNVERIFIED && (verify[nverify] = begin_verify(file, b)))
					nverify++;
			}
			atomic_fetch_add(&fill->nwaiting, 1);
			ps_list_append(&file->waiters, &read->priv.link);
		} else {
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

/* The file's lock is held. */
static void expire_file(struct ps_fill_file *file, uint64_t now_ns, bool all, struct ps_list *ready)
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
		if (!file->error[0] || strncmp(file->error, "no answer", 9) != 0)
			ps_log_warning("read: %s: offset %" PRIu64 ": no answer from the origin within %" PRIu64
				       " s%s%s", ps_object_url(file->object), read->offset,
				file->fill->timeout_ns / PS_NS_PER_S, file->error[0] ? "; last failure: " : "",
				file->error);
		snprintf(file->error, sizeof file->error, "no answer from the origin within %" PRIu64 " s",
			file->fill->timeout_ns / PS_NS_PER_S);
		for (uint64_t b = read->offset / PS_BLOCK_SIZE;
			b <= (read->offset + read->nbytes - 1) / PS_BLOCK_SIZE; b++)
			mark_failed(file, b, now_ns);
	}
}

/* A reader whose other block went away again (evicted, or held and reclaimed) waits for something nobody fetches: only
 * while no demand is queued can that be told. The file's lock is held. */
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

static void expire(struct ps_fill *fill, uint64_t now_ns)
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
		bool look = ps_list_empty(&fill->wants[PS_WANT_DEMAND]);

		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			PS_LOCK_SCOPE(&file->lock);
			expire_file(file, now_ns, false, &ready);
			ps_fill_collect(file, 0, UINT64_MAX / PS_BLOCK_SIZE, &ready);
			size_t n = look && file->refs > 0 ? find_orphans(file, now_ns, blocks, ORPHANS_PER_TICK - norphans)
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

static void *timer_main(void *arg)
{
	struct ps_fill *fill = arg;
	uint64_t busy_ns = ps_clock_mono_ns();

	pthread_setname_np(pthread_self(), "fill-timer");
	for (;;) {
		uint64_t now = ps_clock_mono_ns();
		bool busy = atomic_load(&fill->nwaiting) > 0;

		if (busy)
			expire(fill, now);
		uint64_t due = ps_run_retry_due(fill, now);
		{
			PS_LOCK_SCOPE(&fill->lock);
			if (fill->stopping)
				return NULL;
			busy = busy || fill->active || fill->ndisk_busy || !ps_list_empty(&fill->disk_queue);
			uint64_t wake = now + (busy ? TIMER_BUSY_NS : TIMER_IDLE_NS);

			wake = PS_MIN(wake, due);
			if (wake > now) {
				struct timespec ts = {.tv_sec = (time_t)(wake / PS_NS_PER_S),
					.tv_nsec = (long)(wake % PS_NS_PER_S)};
				pthread_cond_timedwait(&fill->timer_cond, &fill->lock, &ts);
			}
		}
		ps_fill_pump(fill); /* max_bytes_per_s opens with time */
		if (busy) {
			busy_ns = now;
		} else if (now - busy_ns > TRIM_AFTER_NS) {
			ps_budget_trim(fill->budget);
			busy_ns = now;
		}
	}
}

/* The engine ------------------------------------------------------------------------------------- */

int ps_fill_new(const struct ps_fill_options *options, struct ps_fill **ret)
{
	struct ps_fill *fill = calloc(1, sizeof *fill);
	pthread_condattr_t attr;

	if (!fill)
		return -ENOMEM;
	fill->budget = ps_budget_new(options->memory_bytes ? options->memory_bytes : ps_budget_default_bytes());
	fill->max_connections = options->max_connections ? options->max_connections : PS_FILL_CONNECTIONS;
	fill->max_bytes_per_s = options->max_bytes_per_s;
	fill->timeout_ns = (options->timeout_ms ? options->timeout_ms : PS_FILL_TIMEOUT_MS) * PS_NS_PER_MS;
	struct ps_list *lists[] = {&fill->files, &fill->wants[0], &fill->wants[1], &fill->wants[2], &fill->running,
		&fill->retries, &fill->disk_queue, &fill->held};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	pthread_mutex_init(&fill->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fill->disk_cond, NULL);
	pthread_cond_init(&fill->timer_cond, &attr);
	pthread_cond_init(&fill->files_cond, &attr);
	pthread_condattr_destroy(&attr);

	int rc = fill->budget ? ps_writeback_start(fill) : -ENOMEM;
	if (rc == 0) {
		rc = -pthread_create(&fill->timer_thread, NULL, timer_main, fill);
		fill->timer_started = rc == 0;
	}
	if (rc < 0) {
		ps_fill_free(fill);
		return rc;
	}
	*ret = fill;
	return 0;
}

void ps_fill_free(struct ps_fill *fill)
{
	if (!fill)
		return;
	ps_writeback_stop(fill);
	{
		PS_LOCK_SCOPE(&fill->lock);
		fill->stopping = true;
		pthread_cond_broadcast(&fill->timer_cond);
	}
	if (fill->timer_started)
		pthread_join(fill->timer_thread, NULL);
	pthread_cond_destroy(&fill->disk_cond);
	pthread_cond_destroy(&fill->timer_cond);
	pthread_cond_destroy(&fill->files_cond);
	pthread_mutex_destroy(&fill->lock);
	ps_budget_free(fill->budget);
	free(fill);
}

uint64_t ps_fill_timeout_ns(const struct ps_fill *fill)
{
	return fill->timeout_ns;
}

struct ps_budget *ps_fill_budget(struct ps_fill *fill)
{
	return fill->budget;
}

/* Wants of this origin go; what they referred to is returned for a put without the lock. */
static size_t take_wants(struct ps_fill *fill, struct ps_origin *origin, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	for (size_t c = 0; c < PS_ARRAY_LEN(fill->wants); c++) {
		for (struct ps_list *l = fill->wants[c].next, *next; l != &fill->wants[c] && n < cap; l = next) {
			struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

			next = l->next;
			if (want->file->origin != origin)
				continue;
			ps_list_remove(l);
			want->queued = false;
			ret[n++] = want->file;
			if (want->on_heap)
				free(want);
		}
	}
	return n;
}

void ps_fill_drain(struct ps_fill *fill, struct ps_origin *origin)
{
	struct ps_fill_file *unref[64];
	struct ps_list ready;
	size_t n;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			if (file->origin != origin)
				continue;
			file->draining = true;
			PS_LOCK_SCOPE(&file->lock);
			expire_file(file, 0, true, &ready);
		}
	}
	ps_fill_answer(fill, &ready);
	do {
		{
			PS_LOCK_SCOPE(&fill->lock);
			n = take_wants(fill, origin, unref, PS_ARRAY_LEN(unref));
		}
		for (size_t i = 0; i < n; i++)
			ps_fill_file_put(unref[i]);
	} while (n > 0);
	for (;;) {
		/* Again and again: a run may have been between its claim and its submission. */
		ps_run_cancel_all(fill, origin);
		ps_writeback_drop_held(fill, origin);
		uint64_t wake = ps_clock_mono_ns() + DRAIN_TICK_NS;
		struct timespec ts = {.tv_sec = (time_t)(wake / PS_NS_PER_S), .tv_nsec = (long)(wake % PS_NS_PER_S)};

		PS_LOCK_SCOPE(&fill->lock);
		bool left = false;
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next)
			left = left || PS_CONTAINER_OF(l, struct ps_fill_file, link)->origin == origin;
		if (!left)
			return;
		pthread_cond_timedwait(&fill->files_cond, &fill->lock, &ts);
	}
}

void ps_fill_count_request(struct ps_fill *fill, bool failed)
{
	atomic_fetch_add(&fill->origin_requests, 1);
	atomic_fetch_add(&fill->origin_errors, failed);
}

json_t *ps_fill_origin_stats(struct ps_fill *fill)
{
	return json_pack("{s:I,s:I,s:I,s:I}", "bytes", (json_int_t)atomic_load(&fill->origin_bytes), "requests",
		(json_int_t)atomic_load(&fill->origin_requests), "errors", (json_int_t)atomic_load(&fill->origin_errors),
		"retries", (json_int_t)atomic_load(&fill->origin_retries));
}

json_t *ps_fill_read_stats(struct ps_fill *fill)
{
	uint64_t bytes = atomic_load(&fill->read_bytes), fetched = atomic_load(&fill->origin_bytes);

	return json_pack("{s:I,s:I,s:f,s:I}", "bytes", (json_int_t)bytes, "hit_bytes",
		(json_int_t)(bytes > fetched ? bytes - fetched : 0), "stalled_seconds",
		(double)atomic_load(&fill->stalled_ns) / 1e9, "waiting", (json_int_t)atomic_load(&fill->nwaiting));
}
