/* Credentials: keys for S3, Google and the Hub, where they come from, and signatures made with them.
 *
 * Files, from the top: credentials.c (the order of sources; a provider and its thread), google.c, aws.c
 * (containers, EC2, commands, sso, profiles), sts.c, profile.c, key_source.c (what all of them use:
 * environment, files, keys); hub_token.c and sigv4.c stand alone.
 * key_source.h is the folder's own. Ownership, threads and errors: each section; no text holds a secret. */
#ifndef PS_CREDENTIALS_CREDENTIALS_H
#define PS_CREDENTIALS_CREDENTIALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Keys and their provider -------------------------------------------------------------------------------- */

/* Credentials for s3:// and gs://: where they come from, and how they are kept fresh.
 *
 * A provider hands out keys: reference-counted snapshots that never change. The signer of a request takes
 * one, signs, and lets it go; a key that was handed out stays readable while a newer one takes its place. A
 * provider that must ask someone (a metadata server, a command, STS) does so on a thread of its own, well
 * before the key at hand expires.
 *
 * Ownership: ps_credentials_new() ... ps_credentials_free(); a key by get and unref. Threads: any, but new
 * and free; a key may outlive its provider. Blocks: get and refused never; wait on the network, until it is
 * told to stop. Errors: -EAGAIN, retryable: being fetched, try again soon. -EACCES: there are none, or they
 * were refused; the text says where was looked and what to do. No text, log or error ever holds a part of a
 * secret; an access key id may be named. */

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

#define PS_CREDENTIALS_FILE_MAX_NBYTES (1u << 20)
/* Where a path that the environment names leads: "~/x" below $HOME, "x" below cwd, if that is not NULL. NULL:
 * out of memory. The caller frees it. */
char *ps_credentials_path(const char *const *env, const char *cwd, const char *path);

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

/* The region that the profile names, for a source without one: NULL if none does. Reads files, once.
 * The caller frees it. */
char *ps_credentials_region(struct ps_credentials *c);

/* AWS Signature Version 4 -------------------------------------------------------------------------------- */

/* AWS Signature Version 4, the form of S3: paths are signed as they are sent, neither normalised nor encoded
 * twice.
 *
 * What is encoded here is what goes over the wire: signer and server then see the same bytes. Every byte but
 * A-Z a-z 0-9 - . _ ~ is escaped, in upper-case hex, and a query is sorted by its encoded names.
 *
 * Ownership: the caller's memory. Threads: any; a struct ps_sigv4_keys locks itself. Blocks: never.
 * Errors: -ENOMEM. */

#define PS_SIGV4_KEY_LEN 32
#define PS_SIGV4_REGION_LEN 64 /* with NUL */
#define PS_SIGV4_TIME_LEN 17   /* "20130524T000000Z" with NUL */
#define PS_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

struct ps_sigv4_pair {
	const char *name, *value;
};
#define PS_SIGV4_MAX_PAIRS 16

/* "a=1&b=" of pairs as they are, which are put in order; at most PS_SIGV4_MAX_PAIRS. */
void ps_sigv4_query(struct ps_sigv4_pair *pairs, size_t n, struct ps_strbuf *out);

/* Seconds since the epoch in UTC. Past year 9999 it is that year's end. */
void ps_sigv4_time(int64_t unix_s, char ret[static PS_SIGV4_TIME_LEN]);

struct ps_sigv4_request {
	const char *method;
	const char *path;  /* encoded, as sent; "" counts as "/" */
	const char *query; /* encoded and sorted, "" if there is none */
	/* Sorted by name, names in lower case, values without blanks around them; host, x-amz-date and all
	 * x-amz-* headers that are sent. */
	const struct ps_sigv4_pair *headers;
	size_t nheaders;
	const char *payload; /* PS_SIGV4_UNSIGNED, or the SHA-256 of the body in hex */
	const char *time;    /* ps_sigv4_time() */
	const char *region, *service;
};

/* What a day's signatures begin with: four HMACs. */
int ps_sigv4_derive(const char *secret, const char *time, const char *region, const char *service,
        uint8_t ret[static PS_SIGV4_KEY_LEN]) PS_MUST_USE;

/* Adds the value of the Authorization header. */
int ps_sigv4_sign(const struct ps_sigv4_request *request, const char *access_key,
        const uint8_t signing_key[static PS_SIGV4_KEY_LEN], struct ps_strbuf *out) PS_MUST_USE;

/* Remembers the last derived keys, one a region: a signature then costs two hashes. */
#define PS_SIGV4_KEYS 4
struct ps_sigv4_keys {
	pthread_mutex_t lock;
	unsigned next;
	struct ps_sigv4_derived {
		struct ps_key *key; /* a reference, so that the pointer differs from all others; NULL: free */
		char day[9];
		char region[PS_SIGV4_REGION_LEN], service[8];
		uint8_t bytes[PS_SIGV4_KEY_LEN];
	} derived[PS_SIGV4_KEYS];
};
void ps_sigv4_keys_init(struct ps_sigv4_keys *keys);
void ps_sigv4_keys_fini(struct ps_sigv4_keys *keys);
int ps_sigv4_keys_get(struct ps_sigv4_keys *keys, struct ps_key *key, const struct ps_sigv4_request *request,
        uint8_t ret[static PS_SIGV4_KEY_LEN]) PS_MUST_USE;

/* The Hub's token ---------------------------------------------------------------------------------------- */

/* Where huggingface_hub keeps a user's token: the same places count here. And which endpoint it asks.
 *
 * Ownership: strings handed out are the caller's; a token is for ps_secret_free(). env: as
 * for ps_env_get(). Threads: any. Blocks: on disk. Errors: a text without the token. */

#define PS_HF_ENDPOINT "https://huggingface.co"
#define PS_HF_TOKEN_MAX_NBYTES 4096

/* file, if given (then it must be readable); else HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH,
 * $HF_HOME/token, $XDG_CACHE_HOME/huggingface/token or ~/.cache/huggingface/token. *ret NULL: there is none.
 * -EINVAL: what is there is no token. */
int ps_hf_token_find(const char *const *env, const char *file, char **ret, struct ps_error *err) PS_MUST_USE;

/* An endpoint as in HF_ENDPOINT (NULL or "": the usual one), canonical, without "/" at its end. -EINVAL: no
 * http or https URL. */
int ps_hf_endpoint_parse(const char *text, char **ret, struct ps_error *err) PS_MUST_USE;

#endif
