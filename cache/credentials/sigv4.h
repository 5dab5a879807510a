/* AWS Signature Version 4, the form of S3: paths are signed as they are sent, neither normalised nor encoded
 * twice.
 *
 * What is encoded here is what goes over the wire: signer and server then see the same bytes. Every byte but
 * A-Z a-z 0-9 - . _ ~ is escaped, in upper-case hex, and a query is sorted by its encoded names.
 *
 * Ownership: the caller's memory. Threads: any; a struct ps_sigv4_keys locks itself. Blocks: never.
 * Errors: -ENOMEM. */
#ifndef PS_CREDENTIALS_SIGV4_H
#define PS_CREDENTIALS_SIGV4_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "credentials/credentials.h"

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
		struct ps_key
		        *key; /* a reference, so that the pointer tells it from all others; NULL: free */
		char day[9];
		char region[PS_SIGV4_REGION_LEN], service[8];
		uint8_t bytes[PS_SIGV4_KEY_LEN];
	} derived[PS_SIGV4_KEYS];
};
void ps_sigv4_keys_init(struct ps_sigv4_keys *keys);
void ps_sigv4_keys_fini(struct ps_sigv4_keys *keys);
int ps_sigv4_keys_get(struct ps_sigv4_keys *keys, struct ps_key *key, const struct ps_sigv4_request *request,
        uint8_t ret[static PS_SIGV4_KEY_LEN]) PS_MUST_USE;

#endif
