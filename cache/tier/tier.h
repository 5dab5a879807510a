/* Tiers: HTTP caches between this node and the origin. Decides which tier is asked for which bytes, whether a
 * tier may see the secrets of a request, and for how long a tier that fails is set aside.
 * docs/design/tiers.md has the states. No code here sends a request: cache/http/ does.
 *
 * Files, from the top: tier.c (states, figures) uses tier_list.c (the list: from text, a file or DNS) and
 * rendezvous.c (the choice, pure). tier_private.h is private to this folder.
 *
 * Ownership: a set of tiers belongs to its HTTP client; a struct ps_tier lives as long as its set. Threads:
 * any. Locks: one, a leaf. Blocking: new blocks on a local file and on DNS; no other function does. Errors:
 * -errno and a text without secrets. */
#ifndef PS_TIER_TIER_H
#define PS_TIER_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

/* A request to a tier never crosses the end of a slice: the unit that a tier fetches and stores. */
#define PS_TIER_SLICE_NBYTES (UINT64_C(4) << 20)
/* This many bytes in a row are asked of one tier, so that a file is spread over all. A multiple of the
 * slice. */
#define PS_TIER_STRIPE_NBYTES (UINT64_C(16) << 20)
/* An attempt that has not brought this many bytes within the late limit is late. Each of many requests that
 * share a slow origin brings more. The request for which a tier fetches a slice must not be given up: the
 * tier would fetch the slice again. */
#define PS_TIER_PACE_NBYTES (UINT64_C(64) << 10)
#define PS_TIER_CONNECT_MS 500
/* The bytes that the origin is first asked for when a tier is late: enough to see whether it is faster. */
#define PS_TIER_TRIAL_NBYTES (UINT64_C(256) << 10)
/* If a request gets no byte for this long, its tier is pinged. */
#define PS_TIER_PING_MS 250

/* Which tiers may see a request's credentials. */
enum ps_tier_auth {
	PS_TIER_AUTH_NONE,      /* none: requests with a secret go to the origin */
	PS_TIER_AUTH_PROTECTED, /* on this host, or by https with a client certificate */
	PS_TIER_AUTH_CLEARTEXT, /* any tier */
};

/* Options; all are borrowed only during ps_tiers_new(). */
struct ps_tier_options {
	/* "URL,URL,...", "@FILE", "dns+http://NAME:PORT"; NULL: there are no tiers */
	const char *list;
	enum ps_tier_auth auth;
	/* for https:// tiers: trusted certificates (NULL: the system's), and the certificate that they see */
	const char *ca_file, *cert, *key;
	/* there may be a tier on this node, whose disk the store shares: see ps_tier_is_here() */
	bool here;
	unsigned verify_ppm; /* the share of bytes that is compared with the origin, in millionths */
};

struct ps_tiers;
struct ps_tier;

/* -EINVAL for a list with an error, or with tiers to which --tier-auth must not send secrets. */
int ps_tiers_new(
        const struct ps_tier_options *options, struct ps_tiers **ret, struct ps_error *err) PS_MUST_USE;
void ps_tiers_free(struct ps_tiers *all);

/* The tier's URL, without a path: "http://10.0.0.7:8080". */
const char *ps_tier_url(const struct ps_tier *tier);

/* True: the tier is on this node, and keeps what it answers on a disk that the store shares. */
bool ps_tier_is_here(const struct ps_tier *tier);

/* The choice --------------------------------------------------------------------------------------------- */

/* A hash that identifies an object for the choice: of its requests' host, path and query without
 * signatures. */
uint64_t ps_tier_object(const char *authority, const char *path, const char *query);

/* One request to a tier. Filled in by ps_tiers_pick(). */
struct ps_tier_turn {
	struct ps_tier *tier; /* NULL: the origin is to be asked */
	uint64_t began_ns;
	uint64_t late_ns;  /* the late limit when the turn began */
	bool probe;        /* the tier was set aside, and this request shows whether it works again */
	bool mute;         /* the tier was pinged meanwhile, and did not answer */
	uint64_t asked_ns; /* if `mute`: when the tier was pinged */
	bool trial;        /* the request was taken from the tier for a trial; there is one trial at a time */
	uint64_t idle_ns;  /* how long no byte had come when the request was taken from the tier */
};

/* Chooses the tier for the byte at `offset` of an object. secret: the request carries what a tier must not
 * see without --tier-auth. Each turn with a tier ends with ps_tiers_answered(), ps_tiers_left(),
 * ps_tiers_failed() with PS_TIER_DOWN, or ps_tiers_judged() that returns false. */
void ps_tiers_pick(
        struct ps_tiers *all, uint64_t object, uint64_t offset, bool secret, struct ps_tier_turn *ret);

/* A tier answered all it was asked for. first_byte_ns: the time until its header was complete. */
void ps_tiers_answered(
        struct ps_tiers *all, const struct ps_tier_turn *turn, uint64_t nbytes, uint64_t first_byte_ns);
/* The whole header of an answer has just come, perhaps of a ping's. */
void ps_tiers_heard(struct ps_tier *tier, uint64_t now_ns);
/* True: since the turn began, the tier has answered a request. */
bool ps_tiers_answers(const struct ps_tier_turn *turn);
/* True: the tier is set aside now. */
bool ps_tiers_is_aside(struct ps_tiers *all, const struct ps_tier *tier);
/* A request has just brought another PS_TIER_PACE_NBYTES. */
void ps_tiers_paced(struct ps_tier *tier, uint64_t now_ns);
/* The turn ends without a result: the request was cancelled, or no answer of the origin has judged the
 * tier. */
void ps_tiers_left(struct ps_tiers *all, const struct ps_tier_turn *turn);

/* How a tier failed, as far as that is known before the origin was asked. */
enum ps_tier_failure {
	PS_TIER_DOWN,       /* no connection */
	PS_TIER_WRONG,      /* an answer that does not fit, or that was cut */
	PS_TIER_LATE,       /* nearly nothing within the late limit */
	PS_TIER_REDIRECTED, /* it passed on a redirect of the origin's: no tier follows one */
	PS_TIER_FAILURES
};
/* A tier failed after nbytes good bytes, and the origin is asked for the rest. text: why, for status. */
void ps_tiers_failed(struct ps_tiers *all, const struct ps_tier_turn *turn, enum ps_tier_failure failure,
        uint64_t nbytes, const char *text);
/* The part of the tier's range that the origin has sent. */
struct ps_tier_trial {
	bool answered;
	uint64_t ns;            /* since the origin was first asked */
	uint64_t nbytes, ndone; /* in this answer, and in all of them */
	uint64_t nmissing;      /* still missing of the tier's range */
};
/* The origin answered in the tier's place. True: the tier is not judged yet; ask the origin for more, three
 * times the bytes so far. */
bool ps_tiers_judged(struct ps_tiers *all, const struct ps_tier_turn *turn, enum ps_tier_failure failure,
        const struct ps_tier_trial *trial);

enum ps_tier_advice {
	PS_TIER_STAY,
	PS_TIER_PING, /* stay, and ping the tier; ps_tiers_pinged() once that is over */
	/* leave it: ask the next tier if this one is set aside, else the origin for the next
	 * PS_TIER_TRIAL_NBYTES */
	PS_TIER_LEAVE,
};
/* A request has brought nothing (or nearly nothing) for idle_ns, which are PS_TIER_PING_MS at least. Call it
 * every 100 ms. */
enum ps_tier_advice ps_tiers_waits(struct ps_tiers *all, struct ps_tier_turn *turn, uint64_t idle_ns);
/* asked: a ping is sent now; 0: none could be sent. pinged: it has ended. */
void ps_tiers_asked(struct ps_tier *tier, uint64_t now_ns);
void ps_tiers_pinged(struct ps_tier *tier);

/* Comparing ---------------------------------------------------------------------------------------------- */

#define PS_TIER_SAMPLE_NBYTES ((size_t)64 << 10)

/* True: a sample of these nbytes is to be compared with the origin's. */
bool ps_tiers_samples(struct ps_tiers *all, uint64_t nbytes);
/* The outcome of a comparison. equal false: the tier is set aside until it leaves the list. */
void ps_tiers_compared(
        struct ps_tiers *all, struct ps_tier *tier, uint64_t nbytes, bool equal, const char *what);

/* Figures ------------------------------------------------------------------------------------------------ */

/* The section "tier", with "one_tier" of each; the caller owns it. */
json_t *ps_tiers_stats(struct ps_tiers *all);

#endif
