/* HTTP as those see it who are no clients of it: options and the way to a host, users and passwords, the engine that carries
 * transfers, a small blocking call. request.h is for the origins that are clients: their readers need curl's requests, and
 * nobody else does.
 *
 * Files, from the top: page.c and request_redirect.c (clients, requests, redirects) use response.c and transfer.c; blocking_call.c
 * uses access.c (with .netrc). Nothing here knows whose credentials a request has.
 * Ownership, threads and errors: each section; no text holds a secret. */
#ifndef PS_HTTP_HTTP_H
#define PS_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/error.h"
#include "base/list.h"
#include "base/strbuf.h"

/* How requests get to their host --------------------------------------------------------------------- */

/* How requests of a client get to their host: proxies, trusted certificates, our own certificate.
 *
 * The environment is that of whoever mounts: http_proxy, https_proxy, all_proxy and no_proxy (also in capitals, but for
 * HTTP_PROXY, which a CGI's client could set), CURL_CA_BUNDLE, SSL_CERT_FILE and SSL_CERT_DIR.
 *
 * Ownership: its client's. Threads: constant after init. Blocks: init on disk. Errors: -errno and a text without secrets. */

/* How to talk to a server; all borrowed during ps_http_client_init() only. Zero means the default. */
struct ps_http_options {
	const char *const
	        *headers; /* "Name: value", NULL-terminated; secret; sent to the source's own host only */
	const char *user_password; /* "user:password" for basic auth; secret; overrides user:password@ in the
	                              URL */
	const char *ca_file;       /* PEM bundle instead of the system's */
	const char *client_cert, *client_key; /* files, shown to the source's own host only; the key may be in the first */
	const char *client_key_password_file;
	const char *proxy;         /* a URL, secret; "none"; NULL: the environment tells, see above */
	const char *netrc_file;    /* "": none; NULL: the environment tells; for http and https alone, see http/http.h */
	bool insecure;             /* do not verify TLS; logged once as a warning */
	/* The environment of whoever mounts, "NAME=value", NULL-terminated; secret. NULL: the process's own.
	 * Ask by ps_env_get(), never by getenv(): a daemon mounts for others, too. */
	const char *const *env;
	unsigned max_connections; /* requests at once, HEADs too; 0: no limit */
	uint64_t connect_timeout_ms; /* 10 s */
	uint64_t stall_timeout_ms;   /* an attempt without a byte for so long fails with ETIMEDOUT; 15 s */
	uint64_t reader_timeout_ms;  /* how long readers wait: gets and heads stall after a third of it, if that is less (but
	                                not less than a second), so that there is time for another attempt; 0: no matter */
};

struct ps_http_access {
	char *proxy, *tls_proxy; /* for http and https URLs, secret; NULL: none */
	char *no_proxy;          /* hosts that are asked directly, as curl takes it */
	char *ca_file, *ca_dir;  /* NULL: the system's */
	char *cert, *key;        /* files; key NULL: in the same one */
	char *key_password;      /* secret; NULL: none */
	bool cert_is_p12;
	bool insecure;
};

int ps_http_access_init(
        struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err) PS_MUST_USE;
void ps_http_access_fini(struct ps_http_access *a);

/* Sets up a request for url, by http or https and nothing else. a NULL: no proxy, and the system's
 * certificates. is_own: it may see our certificate. -ENOMEM. */
int ps_http_access_set(const struct ps_http_access *a, CURL *curl, const char *url, bool is_own) PS_MUST_USE;

/* .netrc --------------------------------------------------------------------------------------------- */

/* .netrc: users and passwords for hosts, as ftp, curl and git read them.
 *
 *   machine data.example.org login me password "a b\"c"      default login anonymous password x
 *
 * The first entry that names the host, or "default", is the one; tokens may be quoted, "#" starts a comment where a token
 * could start, macros and accounts are skipped.
 *
 * Ownership: the caller's; what is found is secret. Threads: any. Blocks: ps_netrc_user_password() on disk. */

#define PS_NETRC_MAX_NBYTES 65536

/* True: there is an entry with a login; "login:password" is added to ret. */
bool ps_netrc_find(const char *text, size_t nbytes, const char *host, struct ps_strbuf *ret);

/* From options->netrc_file (it must be readable; "" is no file), else of the environment $NETRC or ~/.netrc.
 * *ret NULL: nothing is known of the host; else for ps_secret_free(). */
int ps_netrc_user_password(const struct ps_http_options *options, const char *host, char **ret,
        struct ps_error *err) PS_MUST_USE;

/* Transfers ------------------------------------------------------------------------------------------ */

/* Transfers: a few threads, each driving many requests through its own curl_multi. What a
 * request is (URL, headers, what becomes of the body) is its owner's business: see struct ps_transfer_ops.
 *
 * Ownership: a transfer belongs to its submitter, who keeps it alive until done().
 * Threads: submit and cancel from any thread. begin, end, done and curl's callbacks of one transfer come from
 * one thread of the engine, with no lock held. A CURL handle is touched by that thread alone. Locks: one,
 * over the queues; nobody is called with it held. Blocking: submit and cancel never (the first submits start
 * threads); free waits until every transfer has ended, which it brings about by cancelling them. */

#define PS_TRANSFER_MAX_THREADS 4 /* also no more than there are cores */

struct ps_transfer;
struct ps_transfers;

struct ps_transfer_ops {
	/* Sets the request up on a CURL handle that is fresh but for NOSIGNAL, PRIVATE and the like. -errno:
	 * end() follows with it. */
	int (*begin)(struct ps_transfer *t, void *curl);
	/* After ps_transfer_later(). NULL: never asked for. */
	void (*flush)(struct ps_transfer *t);
	/* Curl is done with this attempt. rc: a CURLcode (>= 0), the -errno of begin, -ECANCELED after
	 * cancel, -ETIMEDOUT after a stall, -ENOMEM (curl is NULL, begin was not called). True: begin again
	 * (a redirect); not after -ECANCELED. False: done() follows. The response's facts are to be read from
	 * curl here. */
	bool (*end)(struct ps_transfer *t, void *curl, int rc);
	/* The transfer is its owner's again: it may be freed or submitted anew. */
	void (*done)(struct ps_transfer *t);
};

struct ps_transfer {
	const struct ps_transfer_ops *ops;
	uint64_t stall_ns; /* an attempt untouched for so long ends with -ETIMEDOUT; 0: never */

	/* The engine's. */
	struct ps_list link, later;
	struct ps_transfer_thread *thread;
	void *curl;
	uint64_t touched_ns;
	bool busy, cancelled;
};

/* A transfer and what an origin keeps beside it: its own part of a get and a head (origin.h), so that handing one over cannot
 * fail. */
struct ps_transfer_work {
	struct ps_transfer transfer;
	void *owner;
	const void *kind;
	void *request;
	uint64_t submitted_ns;
	int rc; /* of one that ended before it began */
	int64_t key_expires_s; /* of the credential that the answer was given to; 0: none, or it does not expire */
	unsigned turn; /* what an origin counts for itself, from one submission to the next */
	bool refused;
};

/* Starts the first thread. name is at most 11 characters, shown by ps and top. max: so many transfers at once, the
 * others wait in the order of their submission; 0: no limit. */
int ps_transfers_new(
        const char *name, unsigned max, struct ps_transfers **ret, struct ps_error *err) PS_MUST_USE;
void ps_transfers_free(struct ps_transfers *all);

void ps_transfer_submit(struct ps_transfers *all, struct ps_transfer *t);

/* The end comes soon, with -ECANCELED unless it was on its way. No effect on one that is not submitted
 * (zeroed, or done); the memory must be there until this returns. */
void ps_transfer_cancel(struct ps_transfers *all, struct ps_transfer *t);

/* As cancel, of every transfer that there is and will be. */
void ps_transfers_abort(struct ps_transfers *all);

/* Something came: the stall clock starts anew. From curl's callbacks only. */
void ps_transfer_touch(struct ps_transfer *t);

/* flush() comes as soon as the thread has nothing more at hand, or has gone round PS_TRANSFER_ROUNDS times: what
 * comes in small pieces is told of in larger ones. Not if end() comes first. From curl's callbacks only. */
#define PS_TRANSFER_ROUNDS 8
void ps_transfer_later(struct ps_transfer *t);

/* Small calls ---------------------------------------------------------------------------------------- */

/* One small HTTP request, answered before it returns: to a metadata server, a token endpoint, STS. No
 * redirects, no retries; headers and bodies may be secrets and are wiped.
 *
 * Ownership: an answer is the caller's, until ps_answer_fini(). Threads: any; not one that carries transfers.
 * Blocks: on the network, up to timeout_ms or until *stop. Errors: EHOSTUNREACH, ETIMEDOUT, EPROTO, EFBIG,
 * EIO, ENOMEM, ECANCELED by stop; texts start with the method and the URL. Any status is a success here: the
 * caller judges it. */

#define PS_HTTP_CALL_MAX_NBYTES (256u << 10) /* of an answer; a longer one is EFBIG */
#define PS_HTTP_CALL_MAX_HEADERS 8

struct ps_http_call {
	const char *method;
	const char *url;                              /* http or https */
	const char *headers[PS_HTTP_CALL_MAX_HEADERS + 1]; /* "Name: value"; NULL ends them */
	const char *body;                             /* NULL: none */
	uint64_t timeout_ms;
	const struct ps_http_access
	        *access;     /* proxies and CA; NULL: a metadata server of this machine, asked directly */
	const char *ca_file; /* instead of what access says; NULL: as it says */
	const _Atomic bool *stop;
};

struct ps_answer {
	int status;
	char *body; /* NUL-terminated */
	size_t nbytes;
};

int ps_http_call_run(const struct ps_http_call *call, struct ps_answer *ret, struct ps_error *err) PS_MUST_USE;
void ps_answer_fini(struct ps_answer *answer);

#define ps_autoanswer __attribute__((cleanup(ps_answer_fini)))

#endif
