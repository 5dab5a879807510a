/* Credentials: keys for S3, Google and the Hub, where they come from, and signatures made with them.
 *
 * Files, from the top: credentials.c (the order of sources; a provider and its thread), google.c, aws.c
 * (containers, EC2, commands, sso, profiles), sts.c, profile_files.c, key_source.c (what all of them use:
 * environment, files, keys); hub_token.c and sigv4.c use none of them. key_source.h is private to this
 * folder. Each section describes ownership, threads and errors; no text holds a secret. */
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

/* Credentials for s3:// and gs://: their sources, and their renewal.
 *
 * A provider hands out keys: reference-counted snapshots that never change. The signer of a request takes a
 * reference, signs, and releases it. A key with references stays valid when a newer one replaces it in the
 * provider. A provider that must ask a server or a command (metadata, STS) does so on a thread of its own,
 * well before its key expires.
 *
 * Ownership: a provider is the caller's until ps_credentials_free(); a reference that ps_credentials_get()
 * returned is the caller's until ps_key_unref(). A key may outlive its provider. Threads: any, except for
 * new and free. Blocking: get and refused never block; wait blocks on the network, at most until *stop is
 * set. Errors: -EAGAIN, retryable: the key is being fetched, try again soon. -EACCES: there are no
 * credentials, or they were refused; the text lists the places that were searched, with advice. No text, log
 * or error holds a part of a secret; an access key id may be printed. */

/* One set of credentials. Either a bearer token, or an access key with its secret. */
struct ps_key {
	char *access_key, *secret; /* NULL with a bearer token */
	char *session_token;       /* NULL: none; sent, and signed */
	char *bearer;              /* "Authorization: Bearer" instead of a signature; NULL: none */
	int64_t expires_s;         /* seconds since 1970; 0: no known expiry */
	_Atomic unsigned nrefs;
};

/* A new key with one reference; the strings are copied, and may be NULL. NULL: out of memory. */
struct ps_key *ps_key_new(const char *access_key, const char *secret, const char *session_token,
        const char *bearer, int64_t expires_s);
struct ps_key *ps_key_ref(struct ps_key *key);
/* NULL is allowed. The last unref wipes the secrets. */
void ps_key_unref(struct ps_key *key);

#define ps_autokey __attribute__((cleanup(ps_cleanup_key)))
static inline void ps_cleanup_key(struct ps_key **key)
{
	ps_key_unref(*key);
}

enum ps_credentials_kind { PS_CREDENTIALS_AWS, PS_CREDENTIALS_GOOGLE };

/* All members are borrowed only during ps_credentials_new(). */
struct ps_credentials_options {
	enum ps_credentials_kind kind;
	bool no_sign_request;    /* anonymous, whatever other credentials exist */
	const char *profile;     /* --profile; NULL: $AWS_PROFILE, then "default" */
	const char *google_file; /* --credentials; NULL: from the environment */
	const char *region;      /* for STS; NULL: from the environment or the profile */
	/* The user's environment, "NAME=value", NULL-terminated: a daemon may mount for another shell.
	 * NULL: this process's own. */
	const char *const *env;
	const char *proxy;   /* as in struct ps_http_options */
	const char *ca_file; /* CA file for token servers that the user names; NULL: the system's */
};

#define PS_CREDENTIALS_FILE_MAX_NBYTES (1u << 20)

/* Inputs: what decides whose credentials sign. Each source of keys reports its own (key_source.h), and can read
 * no others.
 *
 * They are reported in an order that depends on the code only: variables are a set, and are sorted. A file's
 * path counts, and its content, unless it is a token that is renewed. If a profile may name a command or a
 * token file, the whole environment and the working directory count too. */

/* name NULL: more of the input before. */
typedef void (*ps_input_fn)(void *arg, const char *name, const void *bytes, size_t n);

/* Calls add for each input of the credentials that ps_credentials_new() would make of these options; their kind
 * does not matter. Blocks on disk. -ENOMEM. */
int ps_credentials_inputs(
        const struct ps_credentials_options *options, ps_input_fn add, void *arg) PS_MUST_USE;

/* The value of a variable in env if ps_credentials_inputs() reports it, as for ps_env_get(). */
const char *ps_credentials_env(const char *const *env, const char *name);

/* Inputs of other kinds of credentials: the variables whose names have this beginning, sorted; a file's path and
 * content. -ENOMEM. */
int ps_input_env(const char *const *env, const char *beginning, ps_input_fn add, void *arg) PS_MUST_USE;
int ps_input_file(const char *path, ps_input_fn add, void *arg) PS_MUST_USE;

struct ps_credentials;

/* Chooses the sources and their order by the options; loads no key yet. -EINVAL: an option is not valid. */
int ps_credentials_new(const struct ps_credentials_options *options, struct ps_credentials **ret,
        struct ps_error *err) PS_MUST_USE;
/* Ends a fetch under way. */
void ps_credentials_free(struct ps_credentials *c);

/* The key to use now. 0 with NULL: requests are sent unsigned. -EAGAIN: the first key is being fetched, or
 * the last one has expired and the next is being fetched; err has the reason. */
int ps_credentials_get(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* Waits until there is a key, or until a load has ended without one; then returns what get returns.
 * -ECANCELED: *stop was set (stop may be NULL). For threads that may block. */
int ps_credentials_wait(struct ps_credentials *c, const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

/* The server refused this key (ExpiredToken, InvalidAccessKeyId, 401 ...): fetches a newer one, unless
 * there is one already. True: a newer key is there or being fetched, so the request should be tried again.
 * However many requests are refused, this fetches a key at most once in PS_CREDENTIALS_PAUSE_MS. */
#define PS_CREDENTIALS_PAUSE_MS 5000
bool ps_credentials_refused(struct ps_credentials *c, const struct ps_key *key);

/* The region of the options, the environment or the profile, for a source without one; NULL: none. May read
 * the profile files. The caller frees it. */
char *ps_credentials_region(struct ps_credentials *c);

/* AWS Signature Version 4 -------------------------------------------------------------------------------- */

/* AWS Signature Version 4 in the form for S3: paths are signed as they are sent, neither normalised nor
 * encoded twice.
 *
 * The bytes that are encoded here are sent unchanged, so that signer and server see the same bytes. Every
 * byte except A-Z a-z 0-9 - . _ ~ is escaped in upper-case hex, and a query is sorted by its encoded names.
 *
 * Ownership: the caller's memory. Threads: any; a struct ps_sigv4_keys has a lock of its own. Never blocks.
 * Errors: -ENOMEM. */

#define PS_SIGV4_KEY_LEN 32
#define PS_SIGV4_REGION_LEN 64 /* with NUL */
#define PS_SIGV4_TIME_LEN 17   /* "20130524T000000Z" with NUL */
#define PS_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

struct ps_sigv4_pair {
	const char *name, *value;
};
#define PS_SIGV4_MAX_PAIRS 16

/* Sorts unencoded pairs, PS_SIGV4_MAX_PAIRS at most, and appends them to `out`, encoded: "a=1&b=". */
void ps_sigv4_query(struct ps_sigv4_pair *pairs, size_t n, struct ps_strbuf *out);

/* Seconds since 1970 as UTC time; after the year 9999, the end of that year. */
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

/* Derives the signing key of a day, by four HMACs. */
int ps_sigv4_derive(const char *secret, const char *time, const char *region, const char *service,
        uint8_t ret[static PS_SIGV4_KEY_LEN]) PS_MUST_USE;

/* Appends the value of the Authorization header. */
int ps_sigv4_sign(const struct ps_sigv4_request *request, const char *access_key,
        const uint8_t signing_key[static PS_SIGV4_KEY_LEN], struct ps_strbuf *out) PS_MUST_USE;

/* The signing keys that were derived last, each for one key, day, region and service: with one of them a
 * signature costs two hashes. */
#define PS_SIGV4_KEYS 4
struct ps_sigv4_keys {
	pthread_mutex_t lock;
	unsigned next;
	struct ps_sigv4_derived {
		struct ps_key *key; /* a reference, so that no other key can have this address; NULL: free */
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

/* Finds a user's token and endpoint in the same places as huggingface_hub.
 *
 * Ownership: returned strings are the caller's; a token is for ps_secret_free(). env: as for ps_env_get().
 * Threads: any. Blocks on disk. Errors: a text without the token. */

#define PS_HF_ENDPOINT "https://huggingface.co"
#define PS_HF_TOKEN_MAX_NBYTES 4096

/* Reads the token from `file` if that is given (it must be readable then), else from HF_TOKEN,
 * HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH, $HF_HOME/token, $XDG_CACHE_HOME/huggingface/token or
 * ~/.cache/huggingface/token. *ret NULL: there is no token. -EINVAL: the text found is not a token. */
int ps_hf_token_find(const char *const *env, const char *file, char **ret, struct ps_error *err) PS_MUST_USE;

/* Parses the value of HF_ENDPOINT (NULL or "": the usual endpoint). *ret is the canonical URL without "/" at
 * its end. -EINVAL: not an http or https URL. */
int ps_hf_endpoint_parse(const char *text, char **ret, struct ps_error *err) PS_MUST_USE;

#endif
