/* Unpackers: one stretch of a shard is decoded by one thread at a time, as its compressed bytes come. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

#define SLICE_NBYTES (4 * PS_BLOCK_SIZE) /* after so much it is somebody else's turn */
#define BACKOFF_FIRST_MS UINT64_C(100)
#define BACKOFF_MAX_MS UINT64_C(10000)

/* Making and ending ------------------------------------------------------------------------------ */

static uint8_t *out_take(struct ps_inflate *inflate)
{
	uint8_t *data = ps_spare_take(inflate, PS_OUT_NBYTES);

	return data || posix_memalign((void **)&data, 4096, PS_OUT_NBYTES) == 0 ? data : NULL;
}

static void unpacker_free(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;

	ps_input_fini(unpacker);
	ps_decoder_free(unpacker->decoder);
	ps_list_remove(&unpacker->link);
	ps_inflate_release(inflate, unpacker->charge);
	ps_spare_put(inflate, unpacker->out.data, unpacker->out.cap);
	free(unpacker->out.given);
	if (--inflate->nunpackers == 0)
		ps_spares_drop(inflate, PS_OUT_NBYTES);
	free(unpacker);
	ps_inflate_wake_all(inflate);
	ps_inflater_unref(inflater);
}

struct ps_unpacker *ps_unpacker_new(
        struct ps_inflater *inflater, struct ps_frame_point from, uint64_t packed_end, uint64_t end)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (inflate->nunpackers >= inflate->max_unpackers || !ps_inflate_reserve(inflate, PS_UNPACKER_NBYTES))
		return NULL;
	struct ps_unpacker *unpacker = calloc(1, sizeof *unpacker);
	if (unpacker) {
		unpacker->decoder = ps_decoder_new(inflater->coding);
		unpacker->out.data = out_take(inflate);
		unpacker->out.given = calloc(PS_OUT_NBYTES / PS_CHUNK_SIZE, 1);
	}
	if (!unpacker || !unpacker->decoder || !unpacker->out.data || !unpacker->out.given) {
		if (unpacker) {
			ps_decoder_free(unpacker->decoder);
			free(unpacker->out.data);
			free(unpacker->out.given);
		}
		free(unpacker);
		ps_inflate_release(inflate, PS_UNPACKER_NBYTES);
		return NULL;
	}
	unpacker->inflater = inflater;
	unpacker->charge = PS_UNPACKER_NBYTES;
	unpacker->state = PS_UNPACKER_IDLE;
	unpacker->end = end;
	unpacker->size = inflater->size;
	unpacker->declared = inflater->declared;
	unpacker->input = (struct ps_input){
	        .at = from.packed, .next = from.packed, .end = packed_end, .depth = PS_PIECES_FIRST};
	unpacker->out.cap = PS_OUT_NBYTES;
	unpacker->out.base = from.plain / PS_BLOCK_SIZE * PS_BLOCK_SIZE;
	unpacker->out.from = unpacker->out.pos = unpacker->out.safe = unpacker->out.flushed = from.plain;
	ps_list_init(&unpacker->run_link);
	ps_list_append(&inflater->unpackers, &unpacker->link);
	ps_inflate_watch(inflate, &inflate->nunpackers);
	ps_inflater_ref(inflater);
	ps_unpacker_wake(unpacker);
	return unpacker;
}

void ps_unpacker_end(struct ps_unpacker *unpacker)
{
	unpacker->state = PS_UNPACKER_ENDING;
	ps_list_remove(&unpacker->run_link);
	if (unpacker->npending == 0) {
		unpacker_free(unpacker);
		return;
	}
	/* Who ends the last piece wakes the inflater, whose plan frees it. Gets that waited for this one need
	 * not wait for an origin that is slow to give pieces back. */
	ps_input_cancel(unpacker);
	ps_inflater_wake(unpacker->inflater);
}

void ps_unpacker_kill(struct ps_unpacker *unpacker)
{
	unpacker->kill = true;
	ps_unpacker_wake(unpacker);
}

void ps_unpackers_reap(struct ps_inflater *inflater)
{
	for (struct ps_list *l = inflater->unpackers.next, *next; l != &inflater->unpackers; l = next) {
		struct ps_unpacker *unpacker = PS_CONTAINER_OF(l, struct ps_unpacker, link);

		next = l->next;
		if (unpacker->state == PS_UNPACKER_ENDING && unpacker->npending == 0)
			unpacker_free(unpacker);
	}
}

bool ps_unpacker_reserve(struct ps_unpacker *unpacker, uint64_t nbytes)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;

	/* Half of the memory at most: the other half is left for windows, so that the last unpacker that
	 * waits for one gets it. */
	if (unpacker->charge - unpacker->window + nbytes > inflate->limit / 2 ||
	        !ps_inflate_reserve(inflate, nbytes))
		return false;
	unpacker->charge += nbytes;
	return true;
}

/* Failures --------------------------------------------------------------------------------------- */

void ps_unpacker_fail_parts(struct ps_unpacker *unpacker, uint64_t end, const struct ps_error *err)
{
	ps_parts_fail(unpacker->inflater, unpacker->out.safe, end, err);
	ps_parts_settle(unpacker->inflater);
}

/* The origin failed. The unpacker stays where it is and tries again, for as long as that makes sense. The
 * lock is held, and may be dropped meanwhile. */
static void origin_failed(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_error err = unpacker->input.err;
	uint64_t ms = PS_MIN(BACKOFF_FIRST_MS << PS_MIN(unpacker->attempts, 10u), BACKOFF_MAX_MS);

	ps_input_cancel(unpacker);
	unpacker->attempts++;
	if (err.retryable &&
	        (unpacker->attempts <= PS_INFLATE_ATTEMPTS || (unpacker->sizes && inflater->waiters))) {
		ps_log_debug("inflate: %s: offset %" PRIu64 ": attempt %u failed: %s", inflater->url,
		        unpacker->input.at, unpacker->attempts, err.text);
		unpacker->state = PS_UNPACKER_RETRY;
		unpacker->retry_ns = ps_clock_mono_ns() + PS_MAX(ms, err.retry_after_ms) * PS_NS_PER_MS;
		return;
	}
	if (unpacker->sizes)
		ps_size_answer(inflater, err.err == EAGAIN || err.err == EPROTO ? EIO : err.err, err.text);
	/* Who asked for the bytes knows whether somebody waits for them still, and then asks again. */
	ps_unpacker_fail_parts(unpacker, unpacker->end, &err);
	ps_unpacker_end(unpacker);
}

/* Running ---------------------------------------------------------------------------------------- */

/* Another unpacker of the shard is farther. The lock is held. */
static bool is_behind(const struct ps_unpacker *unpacker)
{
	const struct ps_list *unpackers = &unpacker->inflater->unpackers;

	for (const struct ps_list *l = unpackers->next; l != unpackers; l = l->next) {
		const struct ps_unpacker *other = PS_CONTAINER_OF(l, struct ps_unpacker, link);

		if (other != unpacker && !other->kill && other->state != PS_UNPACKER_ENDING &&
		        other->out.pos >= unpacker->out.pos)
			return true;
	}
	return false;
}

/* Is it to go on? What nobody waits for is decoded where the cache takes it: sooner or later somebody wants
 * it, and would have to begin anew. The lock is held. */
static bool is_wanted(const struct ps_unpacker *unpacker)
{
	const struct ps_inflater *inflater = unpacker->inflater;
	struct ps_range gap;

	if (unpacker->sizes || unpacker->spans || (inflater->caches && !is_behind(unpacker)))
		return true;
	for (const struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		const struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (ps_part_gap(part, unpacker->out.safe, &gap) && gap.from < unpacker->end)
			return true;
	}
	return false;
}

enum next { NEXT_DECODE, NEXT_DELIVER, NEXT_PARK, NEXT_END_OF_INPUT, NEXT_FAILED, NEXT_KILLED };

/* The lock is held; the state is set where it is to park. */
static enum next what_next(struct ps_unpacker *unpacker, const uint8_t **ret, size_t *ret_n)
{
	const struct ps_input *in = &unpacker->input;

	if (unpacker->kill || unpacker->inflater->aborted)
		return NEXT_KILLED;
	if (unpacker->asked) {
		unpacker->asked = false;
		return NEXT_DELIVER;
	}
	/* The decoder may have more in it than there was room for. */
	if (in->at == in->end) {
		static const uint8_t none;

		*ret = &none;
		*ret_n = 0;
		return unpacker->drained ? NEXT_END_OF_INPUT : NEXT_DECODE;
	}
	if (!is_wanted(unpacker)) {
		if (unpacker->inflater->inflate->wanting)
			return NEXT_KILLED;
		unpacker->state = PS_UNPACKER_IDLE;
		unpacker->idle_ns = ps_clock_mono_ns();
		return NEXT_PARK;
	}
	*ret_n = ps_input_peek(unpacker, ret);
	if (*ret_n > 0)
		return NEXT_DECODE;
	if (in->err.err && (!in->npieces || !in->pieces[0]->pending))
		return NEXT_FAILED;
	unpacker->state = PS_UNPACKER_INPUT;
	return NEXT_PARK;
}

static bool is_killed(struct ps_unpacker *unpacker)
{
	PS_LOCK_SCOPE(&unpacker->inflater->inflate->lock);
	return unpacker->kill;
}

void ps_unpacker_run(struct ps_unpacker *unpacker)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;
	uint64_t start = unpacker->out.pos, delivered = unpacker->out.safe;

	if (unpacker->waits && !is_killed(unpacker) && !ps_unpacker_frame_begins(unpacker))
		return;
	for (;;) {
		const uint8_t *in = NULL;
		size_t nin = 0;
		enum next next;

		if (unpacker->out.safe >= delivered + PS_CHUNK_SIZE || !unpacker->in_frame) {
			ps_out_deliver(unpacker);
			delivered = unpacker->out.safe;
		}
		pthread_mutex_lock(&inflate->lock);
		if (unpacker->out.pos - start > SLICE_NBYTES && ps_inflate_is_due(inflate)) {
			unpacker->state = PS_UNPACKER_IDLE;
			ps_unpacker_wake(unpacker);
			pthread_mutex_unlock(&inflate->lock);
			return;
		}
		next = what_next(unpacker, &in, &nin);
		if (next == NEXT_KILLED)
			ps_unpacker_end(unpacker);
		if (next == NEXT_FAILED)
			origin_failed(unpacker);
		pthread_mutex_unlock(&inflate->lock);
		if (next == NEXT_DELIVER)
			ps_out_deliver(unpacker);
		else if (next == NEXT_END_OF_INPUT)
			ps_unpacker_end_of_input(unpacker);
		if ((next != NEXT_DELIVER && next != NEXT_DECODE) ||
		        (next == NEXT_DECODE && !ps_unpacker_decode(unpacker, in, nin)))
			return;
	}
}
