#include "credentials/credentials.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/thread.h"
#include "credentials/key_source.h"

/* The order of sources ----------------------------------------------------------------------------------- */

#define AMAZON_SOURCES \
	&ps_key_environment, &ps_key_profile, &ps_key_web_identity, &ps_key_container, &ps_key_imds
#define GOOGLE_SOURCES &ps_key_google_hmac, &ps_key_google_file, &ps_key_google_metadata
static const struct ps_key_source *const amazon_sources[] = {AMAZON_SOURCES, NULL};
static const struct ps_key_source *const google_sources[] = {GOOGLE_SOURCES, NULL};
const struct ps_key_source *const ps_key_sources[] = {AMAZON_SOURCES, GOOGLE_SOURCES, NULL};

/* Providers ---------------------------------------------------------------------------------------------- */

#define AHEAD_S \
	(15 * 60) /* how long before its expiry a key is replaced; half of the time left if that is less */
#define NAP_MS 60000u /* limits a wait, since keys expire by the wall clock, which may be set meanwhile */
#define BACKOFF_FIRST_MS 1000u
#define BACKOFF_MAX_MS 60000u
#define WAIT_MS 100u

/* States of a provider's key:
 *
 *   state                        what happens next
 *   NOTHING                      a key is requested: ASKING
 *   ASKING                       loaded: VALID. Failed: FAILED
 *   FAILED                       a key is requested: ASKING
 *   VALID                        15 minutes (or half of its life) are left, or it was refused: REFRESHING.
 *                                A key that does not expire (`expires_s` 0) stays until it is refused
 *   REFRESHING, the old in use   loaded: VALID. Failed: loads again after a back-off, or when the old key is
 *                                refused. If the old key expires before a load succeeds, no key is
 *                                left */
struct ps_credentials {
	bool google;
	struct ps_key_context context; /* once the thread is started, only the thread changes it */
	bool anonymous;

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t cond;
	struct ps_key *key;    /* NULL: none yet; an expired key stays until another one is loaded */
	struct ps_error error; /* of the last load; err 0: success */
	bool asking, wanted;   /* asking: a load is under way; wanted: another must follow */
	uint64_t nloads, wanted_mono_ns, refused_mono_ns;
	bool started, stop;
	pthread_t thread;
};

static bool has_expired(const struct ps_key *key)
{
	return key->expires_s && ps_clock_real_s() >= key->expires_s;
}

/* The thread --------------------------------------------------------------------------------------------- */

/* When to load the next key, in milliseconds from now. If a server still returns the old key, it is asked
 * again after half of the time that is left. */
static uint64_t refresh_ms(const struct ps_key *key)
{
	if (!key->expires_s)
		return UINT64_MAX;
	int64_t left_ms = key->expires_s * 1000 - ps_clock_real_ms();
	int64_t ahead_ms = PS_MIN((int64_t)AHEAD_S * 1000, left_ms / 2);
	if (ahead_ms > 0)
		ahead_ms += (int64_t)ps_clock_jitter((uint64_t)ahead_ms / 10);
	return (uint64_t)PS_MAX(left_ms - ahead_ms, 1000);
}

static uint64_t backoff_ms(unsigned failures)
{
	uint64_t ms = ps_clock_backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS, failures);

	return ms + ps_clock_jitter(ms / 2);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_key(const struct ps_key *a, const struct ps_key *b)
{
	return a && same_text(a->access_key, b->access_key) && same_text(a->secret, b->secret) &&
	       same_text(a->session_token, b->session_token) && same_text(a->bearer, b->bearer) &&
	       a->expires_s == b->expires_s;
}

static const char *utc(int64_t s, char ret[static 32])
{
	time_t t = (time_t)s;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(ret, 32, "%" PRId64, s);
	return ret;
}

/* Tries all sources of the kind until one applies. -EACCES: none does; the text lists the places that were
 * tried, and the last source's reason in parentheses if it gave one. */
static int load(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err)
{
	const char *where =
	        c->google
	                ? "no credentials: no HMAC key (GS_ACCESS_KEY_ID), no file (--credentials, "
	                  "GOOGLE_APPLICATION_CREDENTIALS, gcloud's), no metadata server"
	                : "no credentials: none in the environment (AWS_ACCESS_KEY_ID) or in ~/.aws (profile "
	                  "default), and none from a web identity, a container or an instance";
	const struct ps_key_source *const *source = c->google ? google_sources : amazon_sources;
	char why[200];
	int rc = -ENOENT;

	for (; *source && rc == -ENOENT; source++) {
		*err = (struct ps_error){0};
		rc = (*source)->load(&c->context, ret, err);
	}
	if (rc != -ENOENT)
		return rc;
	snprintf(why, sizeof(why), "%.199s", err->text);
	*err = (struct ps_error){0};
	return ps_error_set(err, EACCES, "%s%s%s%s; give --no-sign-request for a public bucket", where,
	        *why ? " (" : "", why, *why ? ")" : "");
}

/* Loads a key. Returns the milliseconds until the next load is due. */
static uint64_t ask(struct ps_credentials *c, unsigned *failures)
{
	ps_autokey struct ps_key *key = NULL, *fresh = NULL;
	struct ps_error err = {0};
	bool has_old, had_any;
	char life[40] = "";
	int rc = load(c, &key, &err);

	if (!rc)
		err = (struct ps_error){0}; /* drops notes about optional files that are missing */
	if (!rc && has_expired(key)) {
		char end[32], now[32];

		rc = ps_error_set(&err, EACCES,
		        "the credentials that were found (%s) have expired: they ended at %s, and this "
		        "machine's clock "
		        "says %s",
		        key->access_key ? key->access_key : "a token", utc(key->expires_s, end),
		        utc(ps_clock_real_s(), now));
		ps_key_unref(ps_steal_ptr(&key));
	}
	*failures = rc ? *failures + 1 : 0;
	uint64_t due_ms = rc ? backoff_ms(*failures) : refresh_ms(key);
	{
		PS_LOCK_SCOPE(&c->lock);
		if (c->stop)
			return 0;
		had_any = c->key;
		has_old = c->key && !has_expired(c->key);
		/* A key that equals the present one does not replace it, since refusals compare pointers. */
		if (key && !same_key(c->key, key)) {
			struct ps_key *old = c->key;

			fresh = ps_key_ref(key);
			c->key = key;
			key = old;
		}
		c->error = err;
		c->asking = false;
		c->nloads++;
		pthread_cond_broadcast(&c->cond);
	}
	if (fresh && fresh->expires_s)
		snprintf(life, sizeof(life), ", valid for %" PRId64 " s",
		        fresh->expires_s - ps_clock_real_s());
	/* A failure that leaves no key is reported by the request that needs one. */
	if (fresh)
		ps_log_info("credentials: %s%s%s", fresh->bearer ? "a token" : "access key ",
		        fresh->bearer ? "" : fresh->access_key, life);
	else if (rc && has_old)
		ps_log_warning("credentials: %s; the current ones are used until they expire", err.text);
	/* Without a key no timer is needed: the next request for one starts a load. */
	return rc && !had_any ? UINT64_MAX : due_ms;
}

/* Under the lock. Waits for `ms` at most, by the monotonic clock. */
static void wait_ms(struct ps_credentials *c, uint64_t ms)
{
	ps_cond_wait_until(&c->cond, &c->lock, ps_clock_mono_ns() + ms * PS_NS_PER_MS);
}

static void *run(void *arg)
{
	struct ps_credentials *c = arg;
	unsigned failures = 0;
	uint64_t due_ms = 0;

	for (;;) {
		/* Waits until due_ms have passed, or until a key is wanted at once. */
		uint64_t due = due_ms == UINT64_MAX ? UINT64_MAX : (uint64_t)ps_clock_real_ms() + due_ms, now;
		{
			PS_LOCK_SCOPE(&c->lock);
			while (!c->stop && !c->wanted && (now = (uint64_t)ps_clock_real_ms()) < due)
				wait_ms(c, PS_MIN(due - now, NAP_MS));
			c->wanted = false;
			c->asking = true;
			if (c->stop)
				return NULL;
		}
		due_ms = ask(c, &failures);
	}
}

/* Under the lock. Requests a load. */
static void want(struct ps_credentials *c)
{
	c->wanted_mono_ns = ps_clock_mono_ns();
	c->wanted = true;
	if (!c->started) {
		c->started = ps_thread_start(&c->thread, "ps-keys", run, c) == 0;
		if (!c->started)
			ps_error_set(&c->error, ENOMEM, "credentials: no thread can be started");
		c->nloads += !c->started;
		c->wanted = c->started;
	}
	pthread_cond_broadcast(&c->cond);
}

/* The provider's functions ------------------------------------------------------------------------------- */

int ps_credentials_new(
        const struct ps_credentials_options *options, struct ps_credentials **ret, struct ps_error *err)
{
	struct ps_credentials *c = calloc(1, sizeof(*c));

	if (!c)
		return ps_no_memory(err);
	int rc = ps_key_context_init(&c->context, options, err);
	if (rc) {
		free(c);
		return rc;
	}
	c->context.sources = ps_key_sources;
	c->anonymous = options->no_sign_request;
	c->google = options->kind == PS_CREDENTIALS_GOOGLE;
	pthread_mutex_init(&c->lock, NULL);
	ps_cond_init(&c->cond);
	*ret = c;
	return 0;
}

void ps_credentials_free(struct ps_credentials *c)
{
	bool started;

	if (!c)
		return;
	{
		PS_LOCK_SCOPE(&c->lock);
		c->stop = true;
		started = c->started;
		pthread_cond_broadcast(&c->cond);
	}
	atomic_store(&c->context.stop, true);
	if (started)
		pthread_join(c->thread, NULL);
	ps_key_unref(c->key);
	ps_key_context_fini(&c->context);
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* True if since_ns is less than PS_CREDENTIALS_PAUSE_MS ago. since_ns 0 means never. */
static bool paused(uint64_t since_ns)
{
	return since_ns && ps_clock_mono_ns() - since_ns < PS_CREDENTIALS_PAUSE_MS * PS_NS_PER_MS;
}

/* Under the lock. */
static int get(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err)
{
	if (c->anonymous) {
		*ret = NULL;
		return 0;
	}
	if (c->key && !has_expired(c->key)) {
		*ret = ps_key_ref(c->key);
		return 0;
	}
	bool pending = c->asking || c->wanted;
	if (!pending && !(paused(c->wanted_mono_ns) && c->error.err))
		want(c);
	if (!c->error.err) {
		int rc = ps_error_set(err, EAGAIN, "%s",
		        c->key ? "the credentials have expired, new ones are being fetched"
		               : "the credentials are being fetched");
		if (err)
			err->retryable = true;
		return rc;
	}
	if (err)
		*err = c->error;
	/* After a temporary failure the caller tries again, for as long as its read may wait. */
	if (!c->error.retryable && !c->asking && !c->wanted)
		return ps_error_set(err, EACCES, "%s", c->error.text);
	if (err) {
		err->err = EAGAIN;
		err->retryable = true;
	}
	return -EAGAIN;
}

int ps_credentials_get(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err)
{
	PS_LOCK_SCOPE(&c->lock);
	return get(c, ret, err);
}

int ps_credentials_wait(struct ps_credentials *c, const _Atomic bool *stop, struct ps_error *err)
{
	PS_LOCK_SCOPE(&c->lock);
	uint64_t nloads = c->nloads;

	for (;;) {
		ps_autokey struct ps_key *key = NULL;
		int rc = get(c, &key, err);
		/* A failed load is the result; the caller may try again. */
		if (!rc || c->nloads != nloads || !(c->asking || c->wanted))
			return rc;
		if (stop && atomic_load(stop))
			return ps_error_set(err, ECANCELED, "cancelled");
		wait_ms(c, WAIT_MS);
	}
}

bool ps_credentials_refused(struct ps_credentials *c, const struct ps_key *key)
{
	PS_LOCK_SCOPE(&c->lock);

	if (c->anonymous || !key)
		return false;
	if (c->key != key)
		return c->key;
	if (c->asking || c->wanted)
		return true;
	if (paused(c->refused_mono_ns))
		return false;
	c->refused_mono_ns = ps_clock_mono_ns();
	want(c);
	return true;
}

char *ps_credentials_region(struct ps_credentials *c)
{
	return ps_profile_region(&c->context);
}

/* Inputs ------------------------------------------------------------------------------------------------- */

int ps_credentials_inputs(const struct ps_credentials_options *options, ps_input_fn add, void *arg)
{
	return ps_key_inputs(ps_key_sources, options, add, arg);
}

const char *ps_credentials_env(const char *const *env, const char *name)
{
	const struct ps_key_context x = {.sources = ps_key_sources, .env = (char **)env};

	return ps_key_env(&x, name);
}
