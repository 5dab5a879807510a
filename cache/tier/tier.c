/* The states of tiers: which are asked, which are set aside and for how long, and how many late requests the
 * origin may take over; and their statistics. */
#include "tier/tier.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/figures.h"
#include "base/log.h"
#include "base/size.h"
#include "base/stats.h"
#include "base/thread.h"
#include "tier/tier_private.h"

#define ASIDE_FIRST_MS UINT64_C(1000)
#define ASIDE_DOUBLINGS 6 /* up to 64 s */
#define LATE_FIRST_NS (600 * PS_NS_PER_MS)
#define LATE_MAX_NS (20 * PS_NS_PER_S)
#define CREDIT_FIRST ((int64_t)2 * (int64_t)PS_TIER_TRIAL_NBYTES)
#define CREDIT_MAX ((int64_t)16 * CREDIT_FIRST)
#define PING_NS (PS_TIER_PING_MS * PS_NS_PER_MS)
#define MUTE_NS (450 * PS_NS_PER_MS) /* a tier that has not answered a ping for this long is mute */
#define CREDIT_SHARE 800             /* 1 / CREDIT_SHARE of what tiers answer is credit for trials */
#define LATE_DECAY 256               /* an answer in time takes 1 / LATE_DECAY off the late limit */
/* A tier that answers pings is slow if the origin is this many times faster. A smaller difference may be
 * chance: the requests of one node to a busy origin differ by as much. */
#define SLOWER 2
#define FILE_EVERY_NS (5 * PS_NS_PER_S)
#define DNS_EVERY_NS (30 * PS_NS_PER_S)
#define PPM UINT64_C(1000000)

enum state { UP, ASIDE };

struct ps_tier {
	char *url; /* constant, like the next three members */
	uint64_t name;
	bool protected; /* secrets may be sent to it */
	bool here;      /* it is on this node, and its disk is shared */

	_Atomic uint64_t paced_ns; /* when a request last brought some bytes */
	_Atomic uint64_t heard_ns; /* when the header of an answer last came */
	_Atomic uint64_t asked_ns; /* when it was last pinged */
	_Atomic bool pinging;
	/* tiers.lock: */
	bool listed;
	enum state state;
	bool probing;
	bool barred; /* it was proven wrong: not asked before it has left the list */
	unsigned strikes;
	unsigned nslow; /* slices for which the origin was quicker, since the tier last answered */
	uint64_t until_ns;
	uint64_t answered_ns; /* when it last answered a request whole */
	uint64_t nrequests, nbytes, nstruck, nfailed[PS_TIER_FAILURES];
	char error[160];
	struct ps_histogram latency;
};

struct ps_tiers {
	char *list;
	enum ps_tier_auth auth;
	bool has_cert, here;
	unsigned verify_ppm;

	pthread_mutex_t lock; /* protects what follows, except atomics */
	/* all tiers that were ever listed; only appended to */
	struct ps_tier **v;
	uint64_t *names;
	bool *out; /* used by a choice: tiers that it does not ask */
	size_t n;
	uint64_t late_ns; /* the late limit, of all tiers: the origin's speed decides it */
	int64_t credit;
	bool trying;          /* a trial is under way */
	uint64_t verify_debt; /* bytes still to be compared, times PPM */
	struct ps_tier_counters counters;

	/* The thread tier-names, for lists that change. */
	struct ps_worker worker;
	struct timespec ctime; /* of the file, as it was last read whole */
	bool warned;
};

const char *ps_tier_url(const struct ps_tier *tier)
{
	return tier->url;
}

bool ps_tier_is_here(const struct ps_tier *tier)
{
	return tier->here;
}

/* The list ----------------------------------------------------------------------------------------------- */

/* The lock is held. */
static int add(struct ps_tiers *all, const char *url)
{
	struct ps_tier **v = reallocarray(all->v, all->n + 1, sizeof(*v));
	if (v)
		all->v = v;
	uint64_t *names = v ? reallocarray(all->names, all->n + 1, sizeof(*names)) : NULL;
	if (names)
		all->names = names;
	bool *out = names ? reallocarray(all->out, all->n + 1, sizeof(*out)) : NULL;
	if (out)
		all->out = out;
	struct ps_tier *tier = out ? calloc(1, sizeof(*tier)) : NULL;

	if (!tier || !(tier->url = strdup(url))) {
		free(tier);
		return -ENOMEM;
	}
	tier->name = ps_rendezvous_name(url);
	tier->protected =
	        all->auth == PS_TIER_AUTH_CLEARTEXT ||
	        (all->auth == PS_TIER_AUTH_PROTECTED && ps_tier_url_is_protected(url, all->has_cert));
	tier->here = all->here && ps_tier_url_is_here(url);
	all->v[all->n] = tier;
	all->names[all->n++] = tier->name;
	return 0;
}

static bool has(const struct ps_tier_urls *urls, const char *url)
{
	for (size_t u = 0; u < urls->n; u++)
		if (strcmp(urls->v[u], url) == 0)
			return true;
	return false;
}

/* Makes these URLs the list, or fails and changes nothing. Tiers that are not in it any more stay, but are
 * not asked. */
static int take(struct ps_tiers *all, const struct ps_tier_urls *urls)
{
	PS_LOCK_SCOPE(&all->lock);
	for (size_t u = 0; u < urls->n; u++) {
		size_t i = 0;

		while (i < all->n && strcmp(all->v[i]->url, urls->v[u]) != 0)
			i++;
		if (i == all->n && (all->n >= 4 * (size_t)PS_TIERS_MAX || add(all, urls->v[u]) < 0))
			return -ENOMEM;
	}
	for (size_t i = 0; i < all->n; i++) {
		struct ps_tier *tier = all->v[i];

		tier->listed = has(urls, tier->url);
		if (tier->barred && !tier->listed) {
			tier->barred = false;
			tier->until_ns = 0; /* asked once it is listed again */
		}
	}
	return 0;
}

static int update(struct ps_tiers *all, struct ps_error *err)
{
	struct ps_tier_urls urls = {0};
	struct timespec ctime = all->ctime;
	struct stat st;

	/* A file is read if it was written, or replaced by another one of whatever date, since it was last read
	 * whole; or if it is gone: reading it says why. */
	if (ps_tier_list_kind(all->list) == PS_TIER_LIST_FILE && stat(all->list + 1, &st) == 0) {
		if (st.st_ctim.tv_sec == ctime.tv_sec && st.st_ctim.tv_nsec == ctime.tv_nsec)
			return 0;
		ctime = st.st_ctim;
	}
	int rc = ps_tier_list_read(all->list, &urls, err);
	if (!rc && (rc = take(all, &urls)) < 0)
		ps_error_set(err, -rc, "out of memory");
	if (!rc)
		all->ctime = ctime;
	ps_tier_urls_fini(&urls);
	return rc;
}

static void *watch(void *arg)
{
	struct ps_tiers *all = arg;
	uint64_t every = ps_tier_list_kind(all->list) == PS_TIER_LIST_FILE ? FILE_EVERY_NS : DNS_EVERY_NS;

	for (;;) {
		struct ps_error err = {0};
		{
			uint64_t next = ps_clock_mono_ns() + every;

			PS_LOCK_SCOPE(&all->lock);
			while (!all->worker.stopping && ps_clock_mono_ns() < next)
				ps_cond_wait_until(&all->worker.wake, &all->lock, next);
			if (all->worker.stopping)
				return NULL;
		}
		int rc = update(all, &err);
		if (rc && !all->warned)
			ps_log_warning("tiers: %s; the previous list stays in use", err.text);
		all->warned = rc;
	}
}

static int start(struct ps_tiers *all, struct ps_error *err)
{
	int rc = update(all, err);

	if (rc == -EHOSTUNREACH && ps_tier_list_kind(all->list) == PS_TIER_LIST_DNS) {
		ps_log_warning("%s; the origin is asked until the name is known", err->text);
		rc = 0;
	}
	for (size_t i = 0; !rc && i < all->n && all->auth != PS_TIER_AUTH_NONE; i++)
		if (!all->v[i]->protected)
			return ps_error_set(err, EINVAL,
			        "option tier-auth: credentials would be sent to %s in clear text, or to any "
			        "server that answers there; use https:// with --tier-cert, or say "
			        "--tier-auth=cleartext if that network has no other users",
			        all->v[i]->url);
	if (rc || ps_tier_list_kind(all->list) == PS_TIER_LIST_URLS)
		return rc;
	rc = ps_thread_start(&all->worker.thread, "tier-names", watch, all);
	all->worker.started = rc == 0;
	return rc ? ps_error_set(err, -rc, "cannot start a thread: %s", strerror(-rc)) : 0;
}

int ps_tiers_new(const struct ps_tier_options *options, struct ps_tiers **ret, struct ps_error *err)
{
	struct ps_error mine = {0};

	if (!options->list) {
		*ret = NULL;
		return 0;
	}
	struct ps_tiers *all = calloc(1, sizeof(*all));
	if (!all)
		return ps_no_memory(err);
	pthread_mutex_init(&all->lock, NULL);
	ps_worker_init(&all->worker);
	all->auth = options->auth;
	all->has_cert = options->cert;
	all->here = options->here;
	all->verify_ppm = options->verify_ppm;
	all->credit = CREDIT_FIRST;
	all->late_ns = LATE_FIRST_NS;
	all->list = strdup(options->list);
	int rc = all->list ? start(all, &mine) : ps_no_memory(&mine);
	if (rc) {
		ps_tiers_free(all);
		if (err)
			*err = mine;
		return rc;
	}
	*ret = all;
	return 0;
}

void ps_tiers_free(struct ps_tiers *all)
{
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	all->worker.stopping = true;
	pthread_cond_signal(&all->worker.wake);
	pthread_mutex_unlock(&all->lock);
	if (all->worker.started)
		pthread_join(all->worker.thread, NULL);
	pthread_cond_destroy(&all->worker.wake);
	for (size_t i = 0; i < all->n; i++) {
		free(all->v[i]->url);
		free(all->v[i]);
	}
	free(all->v);
	free(all->names);
	free(all->out);
	free(all->list);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* The choice --------------------------------------------------------------------------------------------- */

void ps_tiers_pick(
        struct ps_tiers *all, uint64_t object, uint64_t offset, bool secret, struct ps_tier_turn *ret)
{
	uint64_t stripe = offset / PS_TIER_STRIPE_NBYTES, now = ps_clock_mono_ns();

	*ret = (struct ps_tier_turn){.began_ns = now};
	PS_LOCK_SCOPE(&all->lock);
	for (size_t i = 0; i < all->n; i++)
		all->out[i] = !all->v[i]->listed;
	for (;;) {
		size_t i = ps_rendezvous_choose(all->names, all->n, all->out, object, stripe);

		if (i == all->n)
			return;
		struct ps_tier *tier = all->v[i];
		if (secret && !tier->protected) {
			all->counters.withheld++;
			return;
		}
		bool due = tier->state == ASIDE && !tier->barred && !tier->probing && now >= tier->until_ns;
		if (tier->state == UP || due) {
			tier->probing = tier->probing || due;
			tier->nrequests++;
			ret->tier = tier;
			ret->late_ns = all->late_ns;
			ret->probe = due;
			return;
		}
		all->out[i] = true;
	}
}

/* Outcomes ----------------------------------------------------------------------------------------------- */

/* The lock is held. */
static void strike(struct ps_tier *tier, const struct ps_tier_turn *turn, unsigned strikes)
{
	/* Requests that were under way when the tier was set aside say nothing new. */
	if (tier->state == ASIDE && !turn->probe)
		return;
	if (tier->state == UP)
		ps_log_warning("tier: %s: %s; set aside", tier->url, tier->error);
	tier->state = ASIDE;
	tier->nstruck++;
	tier->strikes = PS_MAX(tier->strikes + 1, strikes);
	uint64_t ms = ASIDE_FIRST_MS << PS_MIN(tier->strikes - 1, (unsigned)ASIDE_DOUBLINGS);
	tier->until_ns = ps_clock_mono_ns() + (ms + ps_clock_jitter(ms / 4)) * PS_NS_PER_MS;
}

/* The lock is held. */
static void end_turn(struct ps_tiers *all, const struct ps_tier_turn *turn)
{
	if (turn->trial)
		all->trying = false;
	if (turn->probe)
		turn->tier->probing = false;
}

void ps_tiers_answered(
        struct ps_tiers *all, const struct ps_tier_turn *turn, uint64_t nbytes, uint64_t first_byte_ns)
{
	struct ps_tier *tier = turn->tier;

	ps_histogram_add(&tier->latency, first_byte_ns);
	PS_LOCK_SCOPE(&all->lock);
	end_turn(all, turn);
	tier->nbytes += nbytes;
	all->credit = PS_MIN(all->credit + (int64_t)(nbytes / CREDIT_SHARE), CREDIT_MAX);
	tier->answered_ns = ps_clock_mono_ns();
	tier->nslow = 0;
	if (first_byte_ns <= turn->late_ns)
		all->late_ns = PS_MAX(LATE_FIRST_NS, all->late_ns - all->late_ns / LATE_DECAY);
	if (tier->state == ASIDE && turn->probe && !tier->barred) {
		ps_log_info("tier: %s: the tier answers again", tier->url);
		tier->state = UP;
	}
	if (tier->state == UP)
		tier->strikes = 0;
}

void ps_tiers_paced(struct ps_tier *tier, uint64_t now_ns)
{
	atomic_store_explicit(&tier->paced_ns, now_ns, memory_order_relaxed);
}

void ps_tiers_heard(struct ps_tier *tier, uint64_t now_ns)
{
	atomic_store_explicit(&tier->heard_ns, now_ns, memory_order_relaxed);
}

bool ps_tiers_answers(const struct ps_tier_turn *turn)
{
	return atomic_load_explicit(&turn->tier->heard_ns, memory_order_relaxed) >= turn->began_ns;
}

bool ps_tiers_is_aside(struct ps_tiers *all, const struct ps_tier *tier)
{
	PS_LOCK_SCOPE(&all->lock);
	return tier->state == ASIDE;
}

void ps_tiers_left(struct ps_tiers *all, const struct ps_tier_turn *turn)
{
	PS_LOCK_SCOPE(&all->lock);
	end_turn(all, turn);
}

void ps_tiers_failed(struct ps_tiers *all, const struct ps_tier_turn *turn, enum ps_tier_failure failure,
        uint64_t nbytes, const char *text)
{
	struct ps_tier *tier = turn->tier;

	PS_LOCK_SCOPE(&all->lock);
	tier->nbytes += nbytes;
	tier->nfailed[failure]++;
	if (failure != PS_TIER_REDIRECTED && !tier->barred)
		snprintf(tier->error, sizeof(tier->error), "%s", text);
	all->counters.fallbacks++;
	if (failure == PS_TIER_DOWN) {
		strike(tier, turn, 1);
		end_turn(all, turn);
	}
}

/* Decides by the origin's answers whether a late tier that is alive is slow. *ret_slice_ns: the time in which
 * the origin would send the whole range that the tier was asked for. The lock is held. */
enum verdict { SLOW, NOT_SLOW, UNKNOWN };
static enum verdict compare(
        const struct ps_tier_turn *turn, const struct ps_tier_trial *trial, uint64_t *ret_slice_ns)
{
	const struct ps_tier *tier = turn->tier;
	uint64_t paced_ns = atomic_load_explicit(&tier->paced_ns, memory_order_relaxed);
	double parts = (double)(trial->ndone + trial->nmissing) / (double)PS_MAX(trial->ndone, 1u);

	*ret_slice_ns = (uint64_t)PS_MIN((double)trial->ns * parts, (double)LATE_MAX_NS);
	if (tier->answered_ns >= turn->began_ns || paced_ns + turn->late_ns / 2 > ps_clock_mono_ns() ||
	        SLOWER * *ret_slice_ns > turn->idle_ns)
		return NOT_SLOW;
	return trial->nmissing ? UNKNOWN : SLOW;
}

/* The lock is held. */
static bool judge_late(
        struct ps_tiers *all, const struct ps_tier_turn *turn, const struct ps_tier_trial *trial)
{
	struct ps_tier *tier = turn->tier;
	uint64_t slice_ns;

	if (!trial->answered || (tier->state == ASIDE && !turn->probe))
		return false;
	if (turn->mute) {
		/* It has not answered since the ping for which the turn was left. */
		if (atomic_load_explicit(&tier->heard_ns, memory_order_relaxed) < turn->asked_ns) {
			snprintf(tier->error, sizeof(tier->error), "it does not answer");
			strike(tier, turn, 1);
		}
		return false;
	}
	enum verdict verdict = compare(turn, trial, &slice_ns);
	if (verdict == UNKNOWN)
		all->credit -= (int64_t)PS_MIN(3 * trial->ndone, trial->nmissing);
	if (verdict == SLOW) {
		/* A trial that finds a slow tier costs no credit. */
		all->credit = PS_MIN(all->credit + (int64_t)trial->ndone, CREDIT_MAX);
		/* One of many connections to a busy origin may be unlucky, and a single slice late. */
		if (++tier->nslow > 1 || turn->probe || all->late_ns == LATE_FIRST_NS)
			strike(tier, turn, 1);
	}
	if (verdict == NOT_SLOW) {
		/* Long enough that the next late request can be compared with the origin over a whole
		 * slice. */
		uint64_t late_ns = PS_MAX(2 * turn->late_ns, (SLOWER + 1) * slice_ns);

		all->late_ns = PS_MIN(PS_MAX(all->late_ns, late_ns), LATE_MAX_NS);
	}
	return verdict == UNKNOWN;
}

bool ps_tiers_judged(struct ps_tiers *all, const struct ps_tier_turn *turn, enum ps_tier_failure failure,
        const struct ps_tier_trial *trial)
{
	PS_LOCK_SCOPE(&all->lock);
	all->counters.fallback_bytes += trial->nbytes;
	if (failure == PS_TIER_DOWN)
		return false;
	if (failure == PS_TIER_WRONG && trial->answered)
		strike(turn->tier, turn, 1);
	if (failure == PS_TIER_LATE && judge_late(all, turn, trial))
		return true;
	end_turn(all, turn);
	return false;
}

void ps_tiers_asked(struct ps_tier *tier, uint64_t now_ns)
{
	atomic_store_explicit(&tier->asked_ns, now_ns, memory_order_relaxed);
}

void ps_tiers_pinged(struct ps_tier *tier)
{
	atomic_store_explicit(&tier->pinging, false, memory_order_relaxed);
}

enum ps_tier_advice ps_tiers_waits(struct ps_tiers *all, struct ps_tier_turn *turn, uint64_t idle_ns)
{
	struct ps_tier *tier = turn->tier;
	uint64_t now = ps_clock_mono_ns();

	PS_LOCK_SCOPE(&all->lock);
	turn->idle_ns = idle_ns;
	if (tier->state == ASIDE && !turn->probe)
		return PS_TIER_LEAVE;
	uint64_t asked_ns = atomic_load_explicit(&tier->asked_ns, memory_order_relaxed);
	uint64_t heard_ns = atomic_load_explicit(&tier->heard_ns, memory_order_relaxed);
	/* A ping that another turn began may be under way already. */
	bool asked =
	        asked_ns > heard_ns &&
	        (asked_ns >= turn->began_ns || atomic_load_explicit(&tier->pinging, memory_order_relaxed));
	if (asked && now >= asked_ns && now - asked_ns >= MUTE_NS) {
		turn->mute = true;
		turn->asked_ns = asked_ns;
		return PS_TIER_LEAVE;
	}
	if (!asked && heard_ns + PING_NS < now &&
	        !atomic_exchange_explicit(&tier->pinging, true, memory_order_relaxed)) {
		/* At once: the time of an older ping must not count as that of this one. */
		ps_tiers_asked(tier, now);
		return PS_TIER_PING;
	}
	if (asked || idle_ns < all->late_ns || all->trying || all->credit < (int64_t)PS_TIER_TRIAL_NBYTES)
		return PS_TIER_STAY;
	all->credit -= (int64_t)PS_TIER_TRIAL_NBYTES;
	all->trying = turn->trial = true;
	return PS_TIER_LEAVE;
}

/* Comparing ---------------------------------------------------------------------------------------------- */

bool ps_tiers_samples(struct ps_tiers *all, uint64_t nbytes)
{
	if (!all->verify_ppm)
		return false;
	PS_LOCK_SCOPE(&all->lock);
	all->verify_debt += nbytes * all->verify_ppm;
	if (all->verify_debt < PS_TIER_SAMPLE_NBYTES * PPM)
		return false;
	all->verify_debt -= PS_TIER_SAMPLE_NBYTES * PPM;
	return true;
}

void ps_tiers_compared(
        struct ps_tiers *all, struct ps_tier *tier, uint64_t nbytes, bool equal, const char *what)
{
	PS_LOCK_SCOPE(&all->lock);
	all->counters.verified_bytes += nbytes;
	if (equal)
		return;
	all->counters.mismatches++;
	snprintf(tier->error, sizeof(tier->error), "%s", what);
	strike(tier, &(struct ps_tier_turn){.tier = tier, .probe = true}, ASIDE_DOUBLINGS + 1);
	tier->barred = true;
}

/* Figures ------------------------------------------------------------------------------------------------ */

/* The lock is held. */
static json_t *tier_json(const struct ps_tier *tier, uint64_t now_ns)
{
	bool aside = tier->state == ASIDE, waits = aside && tier->until_ns > now_ns;

	return ps_figures_json(PS_SECTION_one_tier, NULL,
	        "{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "url", tier->url, "state",
	        !tier->listed ? "left"
	        : aside       ? "aside"
	                      : "up",
	        "retry_seconds",
	        tier->barred ? json_null()
	                     : json_real(waits ? (double)(tier->until_ns - now_ns) / PS_NS_PER_S : 0.0),
	        "requests", (json_int_t)tier->nrequests, "bytes", (json_int_t)tier->nbytes, "down",
	        (json_int_t)tier->nfailed[PS_TIER_DOWN], "wrong", (json_int_t)tier->nfailed[PS_TIER_WRONG],
	        "late", (json_int_t)tier->nfailed[PS_TIER_LATE], "strikes", (json_int_t)tier->nstruck,
	        "last_error", ps_json_lossy(tier->error), "latency_seconds",
	        ps_histogram_json(&tier->latency));
}

json_t *ps_tiers_stats(struct ps_tiers *all)
{
	uint64_t now = ps_clock_mono_ns(), nrequests = 0, nbytes = 0;
	int known = 0, aside = 0;
	json_t *tiers = json_array();

	PS_LOCK_SCOPE(&all->lock);
	for (size_t i = 0; i < all->n; i++) {
		known += all->v[i]->listed;
		aside += all->v[i]->listed && all->v[i]->state == ASIDE;
		nrequests += all->v[i]->nrequests;
		nbytes += all->v[i]->nbytes;
		json_array_append_new(tiers, tier_json(all->v[i], now));
	}
	return ps_figures_json(PS_SECTION_tier, &all->counters, "{s:i, s:i, s:I, s:I, s:o}", "known", known,
	        "aside", aside, "requests", (json_int_t)nrequests, "bytes", (json_int_t)nbytes, "tiers",
	        tiers);
}
