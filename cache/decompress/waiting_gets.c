/* Gets that wait for plain bytes: what of each is in place, and who is told of it. Unpackers bring bytes in
 * any order (several frames are decoded at once), the engine hears of them in order. */
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

void ps_inflater_get_bytes(struct ps_origin *origin, struct ps_get *get)
{
	struct ps_inflater *inflater = (struct ps_inflater *)origin;
	struct ps_part *part = calloc(1, sizeof *part);

	get->nbytes_done = 0;
	get->wire_nbytes = get->first_byte_ns = 0;
	get->seen = PS_REMOTE_UNKNOWN;
	get->priv = NULL;
	if (!part) {
		/* Handing over cannot fail, and done() must not come from in here. */
		PS_LOCK_SCOPE(&inflater->inflate->lock);
		ps_inflater_ref(inflater);
		get->work.request = inflater->refused;
		inflater->refused = get;
		ps_inflater_wake(inflater);
		return;
	}
	part->get = get;
	part->submitted_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	get->priv = part;
	if (!inflater->expect.etag[0])
		memcpy(inflater->expect.etag, get->expect.etag, sizeof inflater->expect.etag);
	if (inflater->aborted)
		ps_error_set(&part->err, ECANCELED, "cancelled");
	ps_inflater_ref(inflater); /* until it was answered */
	ps_list_append(&inflater->parts, &part->link);
	ps_inflater_wake(inflater);
}

void ps_inflater_cancel(struct ps_origin *origin, struct ps_get *get)
{
	struct ps_inflater *inflater = (struct ps_inflater *)origin;

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	struct ps_part *part = get->priv;
	if (!part || part->err.err)
		return;
	ps_error_set(&part->err, ECANCELED, "cancelled");
	ps_inflater_wake(inflater);
}

bool ps_part_gap(const struct ps_part *part, uint64_t from, struct ps_range *ret)
{
	uint64_t at = PS_MAX(from, part->get->offset), end = part->get->offset + part->get->nbytes;
	unsigned i = 0;

	if (part->err.err)
		return false;
	for (; i < part->nhave && part->have[i].from <= at; i++)
		at = PS_MAX(at, part->have[i].end);
	if (at >= end)
		return false;
	*ret = (struct ps_range){.from = at, .end = i < part->nhave ? part->have[i].from : end};
	return true;
}

/* False: there are too many ranges to remember this one. */
static bool note(struct ps_part *part, uint64_t from, uint64_t end)
{
	unsigned i = 0, n;

	while (i < part->nhave && part->have[i].end < from)
		i++;
	/* [i, n) touch the new one. */
	for (n = i; n < part->nhave && part->have[n].from <= end; n++) {
		from = PS_MIN(from, part->have[n].from);
		end = PS_MAX(end, part->have[n].end);
	}
	if (n == i && part->nhave == PS_PART_RANGES)
		return false;
	memmove(&part->have[i + 1], &part->have[n], (part->nhave - n) * sizeof *part->have);
	part->nhave += 1 - (n - i);
	part->have[i] = (struct ps_range){.from = from, .end = end};
	return true;
}

static void copy_in(struct ps_get *get, uint64_t from, uint64_t end, const uint8_t *data)
{
	uint64_t at = get->offset;

	for (int i = 0; i < get->niov && at < end; i++) {
		uint64_t stop = at + get->iov[i].iov_len;
		uint64_t lo = PS_MAX(at, from), hi = PS_MIN(stop, end);

		if (lo < hi)
			memcpy((uint8_t *)get->iov[i].iov_base + (lo - at), data + (lo - from), hi - lo);
		at = stop;
	}
}

bool ps_part_give(struct ps_part *part, uint64_t from, uint64_t end, const uint8_t *data)
{
	struct ps_range gap;
	uint64_t at = from;
	bool gave = false;

	while (at < end && ps_part_gap(part, at, &gap) && gap.from < end) {
		gap.end = PS_MIN(gap.end, end);
		if (!note(part, gap.from, gap.end))
			break;
		copy_in(part->get, gap.from, gap.end, data + (gap.from - from));
		if (!part->first_ns)
			part->first_ns = ps_clock_mono_ns();
		gave = true;
		at = gap.end;
	}
	return gave;
}

void ps_parts_fail(struct ps_inflater *inflater, uint64_t from, uint64_t end, const struct ps_error *err)
{
	struct ps_range gap;

	for (struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

		if (ps_part_gap(part, from, &gap) && gap.from < end)
			part->err = *err;
	}
}

/* Bytes of its beginning that are there. */
static size_t part_prefix(const struct ps_part *part)
{
	if (!part->nhave || part->have[0].from > part->get->offset)
		return 0;
	return (size_t)(part->have[0].end - part->get->offset);
}

static bool has_news(const struct ps_part *part)
{
	return !part->telling && (part->err.err || part_prefix(part) > part->told);
}

static void tell(struct ps_inflater *inflater, struct ps_part *part)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_get *get = part->get;
	size_t prefix = part_prefix(part);
	bool ends = part->err.err || prefix == get->nbytes;
	struct ps_error err = part->err;

	if (prefix == get->nbytes)
		err = (struct ps_error){0};
	part->telling = true;
	part->told = prefix;
	memcpy(get->seen.etag, inflater->expect.etag, sizeof get->seen.etag);
	get->first_byte_ns = part->first_ns ? part->first_ns - part->submitted_ns : 0;
	if (ends) {
		ps_list_remove(&part->link);
		get->nbytes_done = prefix;
		get->priv = NULL;
	}
	pthread_mutex_unlock(&inflate->lock);
	if (!ends) {
		get->progress(get, prefix);
	} else {
		get->done(get, &err);
		free(part);
	}
	pthread_mutex_lock(&inflate->lock);
	if (ends)
		ps_inflater_unref(inflater); /* the caller has another */
	else
		part->telling = false;
}

static void refuse(struct ps_inflater *inflater)
{
	const struct ps_error none = {.err = ENOMEM, .text = "out of memory"};
	struct ps_get *get = inflater->refused;

	inflater->refused = get->work.request;
	pthread_mutex_unlock(&inflater->inflate->lock);
	get->done(get, &none);
	pthread_mutex_lock(&inflater->inflate->lock);
	ps_inflater_unref(inflater);
}

void ps_parts_settle(struct ps_inflater *inflater)
{
	while (inflater->refused)
		refuse(inflater);
	for (;;) {
		struct ps_part *news = NULL;

		for (struct ps_list *l = inflater->parts.next; l != &inflater->parts && !news; l = l->next) {
			struct ps_part *part = PS_CONTAINER_OF(l, struct ps_part, link);

			if (has_news(part))
				news = part;
		}
		if (!news)
			return;
		tell(inflater, news);
	}
}
