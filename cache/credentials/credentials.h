/* Credentials for s3:// and gs://: where they come from, and how they are kept fresh.
 *
 * A provider hands out keys: reference-counted snapshots that never change. Whoever signs a request takes
 * one, signs, and lets it go; a key that was handed out stays readable while a newer one takes its place. A
 * provider that must ask someone (a metadata server, a command, STS) does so on a thread of its own, well
 * before the key at hand expires.
 *
 * Ownership: ps_credentials_new() ... ps_credentials_free(); a key by get and unref. Threads: any, but new
 * and free; a key may outlive its provider. Blocks: get and refused never; wait on the network, until it is
 * told to stop. Errors: -EAGAIN, retryable: being fetched, try again soon. -EACCES: there are none, or they
 * were refused; the text says where was looked and what to do. No text, log or error ever holds a part of a
 * secret; an access key id may be named. */
#ifndef PS_CREDENTIALS_CREDENTIALS_H
#define PS_CREDENTIALS_CREDENTIALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* One set of credentials. Either a bearer token, or an access key with its secret. */
struct ps_key {
	char *access_key, *secret; /* NULL with a bearer token */
	char *session_token;       /* NULL: none; sent, and signed */
	char *bearer;              /* "Authorization: Bearer" instead of a signature; NULL: none */
	int64_t expires_s;         /* seconds since the epoch; 0: never, as far as anyone knows */
	_Atomic unsigned nrefs;
};

/* A key of its own with one reference; the strings are copied, NULL where there is none. NULL: out of memory.
 */
struct ps_key *ps_key_new(const char *access_key, const char *secret, const char *session_token,
        const char *bearer, int64_t expires_s);
struct ps_key *ps_key_ref(struct ps_key *key);
/* NULL is fine. The last reference wipes the secrets. */
void ps_key_unref(struct ps_key *key);

#define ps_autokey __attribute__((cleanup(ps_cleanup_key)))
static inline void ps_cleanup_key(struct ps_key **key)
{
	ps_key_unref(*key);
}

enum ps_credentials_kind { PS_CREDENTIALS_AWS, PS_CREDENTIALS_GOOGLE };

/* All borrowed during ps_credentials_new() only. */
struct ps_credentials_options {
	enum ps_credentials_kind kind;
	bool no_sign_request;    /* anonymous, whatever else there is */
	const char *profile;     /* --profile; NULL: $AWS_PROFILE, then "default" */
	const char *google_file; /* --gs-credentials; NULL: as the environment says */
	const char *region;      /* for STS; NULL: as the environment and the profile say */
	/* The user's environment, "NAME=value", NULL-terminated: a daemon may mount for another shell than
	 * its own. NULL: the process's own. */
	const char *const *env;
	const char *proxy;   /* as struct ps_http_options has it */
	const char *ca_file; /* for token servers of the user's own; NULL: the system's */
};

struct ps_credentials;

/* Decides by the options which sources are asked, in which order; reads no file and no network yet. -EINVAL:
 * options that contradict each other. */
int ps_credentials_new(const struct ps_credentials_options *options, struct ps_credentials **ret,
        struct ps_error *err) PS_MUST_USE;
/* Ends what is being fetched. */
void ps_credentials_free(struct ps_credentials *c);

/* The key to use now. 0 with NULL: requests go unsigned. -EAGAIN: the first one is still on its way, or the
 * last one has expired and the next is on its way; err says for what. */
int ps_credentials_get(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* Waits until get would not say -EAGAIN; -ECANCELED once *stop is set (stop may be NULL). For threads that
 * may wait. */
int ps_credentials_wait(struct ps_credentials *c, const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

/* The server refused this key (ExpiredToken, InvalidAccessKeyId, 401 ...): a newer one is asked for, unless
 * there is one already. True: a newer one is there or on its way, so the request is worth another attempt. At
 * most one refresh in PS_CREDENTIALS_PAUSE_MS comes of it, however many requests were refused. */
#define PS_CREDENTIALS_PAUSE_MS 5000
bool ps_credentials_refused(struct ps_credentials *c, const struct ps_key *key);

/* The region that the profile names, for those whom nobody told one: NULL if none does. Reads files, once.
 * The caller frees it. */
char *ps_credentials_region(struct ps_credentials *c);

#endif
