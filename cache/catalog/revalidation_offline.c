#include "catalog/revalidation_offline.h"

#include "base/clock.h"
#include "base/log.h"

#define UNANSWERED_S 5
#define ASK_FIRST_MS 1000
#define ASK_MAX_MS 30000

void ps_offline_begin(struct ps_dataset *ds)
{
	unsigned tries = atomic_fetch_add(&ds->offline_tries, 1);
	uint64_t ms = PS_MIN((uint64_t)ASK_FIRST_MS << PS_MIN(tries, 5u), (uint64_t)ASK_MAX_MS);

	atomic_store(&ds->offline_ask_ns, ps_clock_mono_ns() + ms * PS_NS_PER_MS);
	if (!atomic_exchange(&ds->offline, true))
		ps_log_warning("origin: %s: it does not answer; versions are taken as they are known", ds->catalog->row.source);
}

void ps_offline_over(struct ps_dataset *ds)
{
	atomic_store(&ds->offline_tries, 0);
	if (atomic_exchange(&ds->offline, false))
		ps_log_warning("origin: %s: it answers again", ds->catalog->row.source);
}

static void note(struct ps_dataset *ds, uint64_t node, int errnum, uint64_t for_ns)
{
	size_t i = node % PS_DATASET_UNANSWERED;

	PS_LOCK_SCOPE(&ds->lock);
	ds->unanswered[i].node = node;
	ds->unanswered[i].errnum = errnum;
	ds->unanswered[i].until_ns = ps_clock_mono_ns() + for_ns;
}

/* The dataset's lock is held. */
static bool noted(const struct ps_dataset *ds, uint64_t node)
{
	size_t i = node % PS_DATASET_UNANSWERED;

	return ds->unanswered[i].node == node && ps_clock_mono_ns() < ds->unanswered[i].until_ns;
}

void ps_offline_note(struct ps_dataset *ds, uint64_t node, const struct ps_error *err)
{
	if (!err->http_status) {
		ps_offline_begin(ds);
		return;
	}
	note(ds, node, 0, UNANSWERED_S * PS_NS_PER_S);
}

void ps_offline_failed(struct ps_dataset *ds, uint64_t node, int errnum)
{
	note(ds, node, errnum, PS_FILL_FAILED_MS * PS_NS_PER_MS);
}

int ps_offline_errnum(struct ps_dataset *ds, uint64_t node)
{
	PS_LOCK_SCOPE(&ds->lock);
	return noted(ds, node) ? ds->unanswered[node % PS_DATASET_UNANSWERED].errnum : 0;
}

bool ps_offline_now(struct ps_dataset *ds, uint64_t node, bool *ret_ask)
{
	uint64_t now_ns = ps_clock_mono_ns(), ask_ns = atomic_load(&ds->offline_ask_ns);

	*ret_ask = false;
	if (atomic_load(&ds->offline)) {
		/* The next one may when this one has been answered, or at the latest: */
		*ret_ask = now_ns >= ask_ns && atomic_compare_exchange_strong(&ds->offline_ask_ns, &ask_ns,
		                                       now_ns + ASK_MAX_MS * PS_NS_PER_MS);
		return true;
	}
	PS_LOCK_SCOPE(&ds->lock);
	return noted(ds, node);
}
