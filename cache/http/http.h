/* The HTTP client: options, proxies and certificates, users and passwords, the engine that carries
 * transfers, a small blocking call. And for origins: requests over that engine, parsed responses, whole
 * small bodies.
 *
 * Files, from the top: page.c uses request.c, which uses tier_attempt.c, redirects.c, request_headers.c and
 * client.c; these use response.c, pace.c and transfer.c; blocking_call.c uses proxy_tls.c; netrc.c stands alone.
 * No code here knows whose credentials a request has. Each section describes ownership, threads and errors.
 * Error texts hold no secrets. */
#ifndef PS_HTTP_HTTP_H
#define PS_HTTP_HTTP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/packed.h"
#include "base/remote.h"
#include "base/strbuf.h"
#include "tier/tier.h"

/* How requests get to their host ------------------------------------------------------------------------- */

/* How a client's requests get to their host: proxies, trusted certificates, the client certificate.
 *
 * The environment is that of the mounting process: http_proxy, https_proxy, all_proxy and no_proxy (also in
 * capitals, except HTTP_PROXY, which a CGI's client could set), CURL_CA_BUNDLE, SSL_CERT_FILE and
 * SSL_CERT_DIR.
 *
 * Ownership: its client's. Threads: constant after init. Blocking: init blocks on disk. Errors: -errno and
 * a text without secrets. */

/* Options of a client; all are borrowed only during ps_http_client_init(). Zero means the default. */
struct ps_http_options {
	/* "Name: value", NULL-terminated; secret; sent to the source's own host only, and to tiers that
	 * tiers.auth allows */
	const char *const *headers;
	const char *user_password; /* "user:password" for basic auth; secret; overrides user:password@ in the
	                              URL */
	const char *ca_file;       /* PEM bundle instead of the system's */
	/* files, presented to the source's own host only; the certificate's file may also hold the key */
	const char *client_cert, *client_key;
	const char *client_key_password_file;
	const char *proxy; /* a URL, secret; "none"; NULL: from the environment, see above */
	/* "": none; NULL: from the environment; used for http and https only, see below */
	const char *netrc_file;
	bool insecure; /* do not verify TLS; logged once as a warning */
	/* The environment of the mounting process, "NAME=value", NULL-terminated; secret. NULL: this
	 * process's own. Read it by ps_env_get(), never by getenv(): a daemon also mounts for other users. */
	const char *const *env;
	unsigned max_connections;    /* concurrent requests, including HEADs; 0: no limit */
	uint64_t connect_timeout_ms; /* 10 s */
	uint64_t stall_timeout_ms;   /* an attempt without a byte for this time fails with ETIMEDOUT; 15 s */
	/* timeout of readers: for gets and heads, a third of it (but at least a second) replaces a longer
	 * stall_timeout_ms, so that there is time for another attempt; 0: ignored */
	uint64_t reader_timeout_ms;
	struct ps_tier_options tiers;
};

/* Where requests go and which certificates may vouch for a host: what options and environment come to.
 * Borrowed from both. NULL: no proxy, the system's certificates. */
struct ps_http_route {
	const char *proxy, *tls_proxy; /* for http and https URLs, secret */
	const char *no_proxy;
	const char *ca_file, *ca_dir;
};

/* Blocks on disk, to see which certificates can be read. */
void ps_http_route_of(const struct ps_http_options *options, struct ps_http_route *ret);

struct ps_http_access {
	char *proxy, *tls_proxy; /* for http and https URLs, secret; NULL: none */
	char *no_proxy;          /* hosts without a proxy, in curl's form */
	char *ca_file, *ca_dir;  /* NULL: the system's */
	char *cert, *key;        /* files; key NULL: in cert */
	char *key_password;      /* secret; NULL: none */
	bool cert_is_p12;
	bool insecure;
};

int ps_http_access_init(
        struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err) PS_MUST_USE;
void ps_http_access_fini(struct ps_http_access *a);

/* Sets up a request for url, with http and https as the only protocols. a NULL: no proxy, and the system's
 * certificates. is_own: the host may see the client certificate. -ENOMEM. */
int ps_http_access_set(const struct ps_http_access *a, CURL *curl, const char *url, bool is_own) PS_MUST_USE;

/* .netrc ------------------------------------------------------------------------------------------------- */

/* .netrc: users and passwords for hosts, as ftp, curl and git read them.
 *
 *   machine data.example.org login me password "a b\"c"      default login anonymous password x
 *
 * The first entry with a login that names the host, or is "default", counts. Tokens may be quoted, "#"
 * starts a comment where a token could start, macros and accounts are skipped.
 *
 * Ownership: the caller's; results are secret. Threads: any. Blocking: ps_netrc_user_password() blocks on
 * disk. */

#define PS_NETRC_MAX_NBYTES 65536

/* True: there is an entry with a login; "login:password" is appended to ret. */
bool ps_netrc_find(const char *text, size_t nbytes, const char *host, struct ps_strbuf *ret);

/* The file in which hosts are looked up: options->netrc_file ("": none), else the environment's $NETRC or
 * ~/.netrc. *ret NULL: none. -ENOMEM. */
int ps_netrc_path(const struct ps_http_options *options, char **ret) PS_MUST_USE;

/* Looks the host up in that file; one that options->netrc_file names must be readable. *ret: for
 * ps_secret_free(); NULL: no entry for the host. */
int ps_netrc_user_password(const struct ps_http_options *options, const char *host, char **ret,
        struct ps_error *err) PS_MUST_USE;

/* Transfers ---------------------------------------------------------------------------------------------- */

/* Transfers: a few threads, each driving many requests through its own curl_multi. The owner of a transfer
 * defines its URL, headers and use of the body by struct ps_transfer_ops.
 *
 * Ownership: a transfer belongs to its submitter, which keeps it alive until done(). Threads: submit and
 * cancel from any thread. One thread of the engine calls begin, end, done and curl's callbacks of a
 * transfer, with no lock held, and only that thread touches its CURL handle. Locks: one, for the queues; no
 * callback is called with it held. Blocking: submit and cancel never block (the first submits start
 * threads); free cancels all transfers and waits until they have ended. */

#define PS_TRANSFER_MAX_THREADS 4 /* and at most one for each core */

struct ps_transfer;
struct ps_transfers;

struct ps_transfer_ops {
	/* Sets the request up on a CURL handle that is new except for NOSIGNAL, PRIVATE and the like. After
	 * -errno, end() is called with it. */
	int (*begin)(struct ps_transfer *t, void *curl);
	/* Called after ps_transfer_later(); NULL if that is never called. */
	void (*flush)(struct ps_transfer *t);
	/* The attempt has stalled. False: it goes on, and is looked at again soon. NULL: it ends. */
	bool (*stalled)(struct ps_transfer *t);
	/* Called every 100 ms. True: the attempt ends, as after a stall. NULL: not called. */
	bool (*slow)(struct ps_transfer *t, uint64_t now_ns);
	/* Curl has finished this attempt. rc: a CURLcode (>= 0), the -errno of begin, -ECANCELED after
	 * cancel, -ETIMEDOUT after a stall, -ENOMEM (curl is NULL, begin was not called). True: call begin
	 * again (a redirect); not allowed after -ECANCELED. False: done() follows. Data of the response
	 * must be read from curl here. NULL: as false. */
	bool (*end)(struct ps_transfer *t, void *curl, int rc);
	/* The transfer belongs to its owner again, and may be freed or submitted again. */
	void (*done)(struct ps_transfer *t);
};

struct ps_transfer {
	const struct ps_transfer_ops *ops;
	/* an attempt without ps_transfer_touch() for this time ends with -ETIMEDOUT; 0: never */
	uint64_t stall_ns;

	/* The engine's. */
	struct ps_list link, later;
	struct ps_transfer_thread *thread;
	void *curl;
	uint64_t touched_ns;
	bool busy, cancelled;
	bool beyond; /* set by the caller: the limit of concurrent transfers does not apply to this one */
};

/* A transfer and the origin's data of a request. It is embedded in a get and a head (origin.h), so that
 * submitting one cannot fail. */
struct ps_transfer_work {
	struct ps_transfer transfer;
	void *owner;
	const void *kind;
	void *request;
	uint64_t submitted_ns;
	int rc; /* result of a request that was cancelled in the queue, or for which there was no memory */
	/* expiry of the credential that signed the answered request; 0: no credential, or it does not
	 * expire */
	int64_t key_expires_s;
	unsigned turn; /* a counter of the origin's own, kept from one submission to the next */
	bool refused;
	/* A reader has waited for the bytes for long. Set by the caller while the request runs. */
	_Atomic bool overdue;
	bool resend; /* ended because a new connection should be faster: to be sent again at once */
	/* the first answer came from a tier: it proves no right to read the object */
	bool from_tier;
	uint64_t tier_nbytes; /* body bytes that came from tiers */
	bool kept_here;       /* the bytes that arrive now are stored by a tier on this node's disk */
};

/* Starts the first thread. name is at most 11 characters, shown by ps and top. max: concurrent transfers,
 * the others wait in the order of submission; 0: no limit. */
int ps_transfers_new(
        const char *name, unsigned max, struct ps_transfers **ret, struct ps_error *err) PS_MUST_USE;
void ps_transfers_free(struct ps_transfers *all);

void ps_transfer_submit(struct ps_transfers *all, struct ps_transfer *t);

/* Ends a transfer soon, with -ECANCELED unless it was ending already. No effect on one that is not
 * submitted (zeroed, or done); its memory must be valid until this returns. */
void ps_transfer_cancel(struct ps_transfers *all, struct ps_transfer *t);

/* Cancels all transfers, also those that are submitted later. */
void ps_transfers_abort(struct ps_transfers *all);

/* Restarts the stall timeout because data came. From curl's callbacks only. */
void ps_transfer_touch(struct ps_transfer *t);

/* Has flush() called once curl has no more data at hand, or after PS_TRANSFER_ROUNDS rounds of the thread's
 * loop: so small pieces are reported together. Not called if end() comes first. From curl's callbacks
 * only. */
#define PS_TRANSFER_ROUNDS 8
void ps_transfer_later(struct ps_transfer *t);

/* Small calls -------------------------------------------------------------------------------------------- */

/* One small HTTP request, answered before it returns: to a metadata server, a token endpoint, STS. No
 * redirects, no retries; headers and bodies may be secrets and are wiped.
 *
 * Ownership: an answer is the caller's, until ps_answer_fini(). Threads: any, except those of transfers.
 * Blocks on the network, up to timeout_ms or until *stop. Errors: EHOSTUNREACH, ETIMEDOUT, EPROTO, EFBIG,
 * EIO, ENOMEM, EINVAL for a URL that is not valid, ECANCELED by stop; texts start with the method and the
 * URL. Any HTTP status is a success: the caller checks it. */

#define PS_HTTP_CALL_MAX_NBYTES (256u << 10) /* maximum length of an answer; a longer one is EFBIG */
#define PS_HTTP_CALL_MAX_HEADERS 8

struct ps_http_call {
	const char *method;
	const char *url;                                   /* http or https */
	const char *headers[PS_HTTP_CALL_MAX_HEADERS + 1]; /* "Name: value"; terminated by NULL */
	const char *body;                                  /* NULL: none */
	uint64_t timeout_ms;
	/* proxies and CA; NULL: for a metadata server of this machine, without a proxy */
	const struct ps_http_access *access;
	const char *ca_file; /* replaces the CA of access; NULL: use that */
	const _Atomic bool *stop;
};

struct ps_answer {
	int status;
	char *body; /* NUL-terminated */
	size_t nbytes;
};

int ps_http_call_run(
        const struct ps_http_call *call, struct ps_answer *ret, struct ps_error *err) PS_MUST_USE;
void ps_answer_fini(struct ps_answer *answer);

#define ps_autoanswer __attribute__((cleanup(ps_answer_fini)))

/* Responses ---------------------------------------------------------------------------------------------- */

/* Parsing and checking a response's header. Pure: no network, no curl handle.
 *
 * Ownership: plain memory of the caller. Threads: one at a time for each response. Never blocks. */

#define PS_RETRY_AFTER_MAX_MS (3600u * 1000) /* limit of the server's Retry-After */

struct ps_http_response {
	int status;              /* 0: no status line yet */
	uint64_t content_length; /* PS_SIZE_UNKNOWN if not given */
	bool has_range;          /* a well-formed Content-Range; range_nbytes 0: "bytes * / total" */
	uint64_t range_first, range_nbytes, range_total; /* total PS_SIZE_UNKNOWN: "*" */
	bool bad_range;                                  /* a Content-Range that does not parse */
	/* why it is not certain where the body begins and ends; NULL: it is */
	const char *bad_framing;
	bool chunked; /* Transfer-Encoding */
	bool is_http10;
	bool framing_line;     /* the last line was a header about the body's length */
	bool encoded;          /* Content-Encoding other than identity */
	bool multipart;        /* Content-Type: multipart/byteranges */
	bool html;             /* Content-Type: text/html */
	bool is_json;          /* Content-Type: application/json */
	bool sets_cookie;      /* Set-Cookie */
	bool offers_ranges;    /* Accept-Ranges: bytes */
	int64_t mtime_s;       /* -1: not given */
	int64_t date_s;        /* -1: not given */
	int64_t retry_at_s;    /* Retry-After as a date, -1: not given */
	int64_t retry_after_s; /* Retry-After as seconds, -1: not given */
	char etag[PS_ETAG_LEN];

	/* Headers of the Hub: size and ETag of the file that a redirect leads to (X-Linked-Size,
	 * X-Linked-Etag), the reason of a refusal (X-Error-Code), and the number of requests of this class
	 * that are left, with the seconds until it is reset (RateLimit: "api";r=41;t=55). Absent:
	 * PS_SIZE_UNKNOWN, "", -1. */
	uint64_t linked_size;
	char linked_etag[PS_ETAG_LEN];
	char error_code[32];
	char limit_class[16];
	int64_t limit_left, limit_reset_s;

	/* Headers of an S3 store. */
	char checksum[PS_CHECKSUM_LEN]; /* x-amz-checksum-*, of the whole object; "": not given */
	bool checksum_of_parts;         /* it is a checksum of the parts' checksums, not of the object */
	bool checksum_of_whole;         /* the answer says that it is one of the whole object */
	bool checksum_is_google;        /* it covers the whole stored object, also in answer to a range */
	char bucket_region[64];         /* x-amz-bucket-region; "": not given */
};

/* Parses one line of the header, with or without its line end. The response is all zero before the first line.
 * A status line after an answer of 1xx resets it. */
void ps_http_response_line(struct ps_http_response *r, const char *line, size_t n);

/* The size of the whole object, from Content-Range or Content-Length. */
uint64_t ps_http_response_size(const struct ps_http_response *r);

/* Size and version, for struct ps_origin_get.seen and ps_origin_head.seen. */
void ps_http_response_remote(const struct ps_http_response *r, struct ps_remote *ret);

/* True if the header says how long the body is: then a body that curl reports as complete is complete. */
bool ps_http_response_is_sized(const struct ps_http_response *r);

/* 0 for 200 and 206, -EPROTO if it is not certain where their body ends. For another status: the errno of
 * origin.h, and in err whether to retry, Retry-After and a text. expect may be NULL (no range was
 * requested). */
int ps_http_response_status(
        const struct ps_http_response *r, const struct ps_remote *expect, struct ps_error *err);

/* A server may answer with only the beginning of a range (RFC 9110, 15.3.7), and some CDNs do: the rest is
 * requested again. Shorter answers than this, if more was requested, are refused: they would cost too many
 * requests. */
#define PS_HTTP_SHORT_NBYTES ((size_t)64 * 1024)

/* Checks that the body is [offset, offset + nbytes) of the version `expect` or, if range_nbytes is less,
 * the beginning of that range. 0, or -errno with a text. */
int ps_http_response_check_range(const struct ps_http_response *r, const struct ps_remote *expect,
        uint64_t offset, uint64_t nbytes, struct ps_error *err);

/* True if the ETag can be used for If-Match: it is quoted and not weak. */
bool ps_etag_is_strong(const char *etag);

/* Redirects ---------------------------------------------------------------------------------------------- */

/* A cache of redirects. Without it a dataset whose URLs redirect to a CDN pays a round trip, and a request
 * that the Hub counts, for each range. Answers from a remembered target are checked against the expected
 * version like all others. A target that refuses is forgotten, and the URL itself is requested again.
 *
 * Ownership: the table is its client's. Threads: any. Locks: one, a leaf. Never blocks. Bounded to
 * PS_REDIRECTS entries; a new one replaces another. Targets may be signed, and so are secrets. */

#define PS_REDIRECTS 256
#define PS_REDIRECT_MS 60000 /* signed URLs live for minutes at least */

struct ps_redirects {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_redirect {
		char *url, *target;
		uint64_t until_ns;
	} places[PS_REDIRECTS];
};

/* Without memory nothing is remembered. */
void ps_redirects_note(struct ps_redirects *all, const char *url, const char *target, uint64_t now_ns);
/* A copy of the target, for the caller to free; NULL: none is known. */
char *ps_redirects_find(struct ps_redirects *all, const char *url, uint64_t now_ns);
void ps_redirects_forget(struct ps_redirects *all, const char *url);

/* Paces -------------------------------------------------------------------------------------------------- */

/* The pace of a request among those of its client. A connection may bring a few bytes a second for hours, while
 * others bring megabytes: its request ends, and is sent again over a new connection for the rest. A request is
 * slow if its rate of the last PS_HTTP_SLOW_NS or more is less than 1 / PS_HTTP_SLOW_FACTOR of the median of
 * the client's requests in that time. If all are equally slow, none is.
 *
 * Ownership: paces are their client's, a pace is its request's. Threads: paces any; a pace has one thread.
 * Locks: one, a leaf. Never blocks. */

#define PS_HTTP_SLOW_NS (5 * PS_NS_PER_S)
#define PS_HTTP_SLOW_FACTOR 10
#define PS_HTTP_SAMPLES 64

struct ps_http_paces {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_http_sample {
		uint64_t at_ns, nbytes;
		bool whole;  /* of a request that was answered */
		double rate; /* bytes a second */
	} samples[PS_HTTP_SAMPLES];
	uint64_t n;        /* samples so far */
	uint64_t tried_ns; /* ps_http_paces_try() last returned true */
};

/* The present period, and the one before it; ns 0: there is none. */
struct ps_http_pace {
	uint64_t since_ns, since_nbytes, before_ns, before_nbytes;
};

void ps_http_paces_init(struct ps_http_paces *all);
void ps_http_paces_fini(struct ps_http_paces *all);
/* nbytes: received so far. begin: the first bytes came. end: the attempt is over; whole: it was answered.
 * is_slow must be called often in between. */
void ps_http_pace_begin(struct ps_http_pace *pace, uint64_t now_ns, uint64_t nbytes);
void ps_http_pace_end(
        struct ps_http_pace *pace, struct ps_http_paces *all, uint64_t now_ns, uint64_t nbytes, bool whole);
bool ps_http_pace_is_slow(
        struct ps_http_pace *pace, struct ps_http_paces *all, uint64_t now_ns, uint64_t nbytes) PS_MUST_USE;
/* A reader waits for long, but no other request shows that a new connection would be faster. True, at most
 * once in PS_HTTP_SLOW_NS: try one. */
bool ps_http_paces_try(struct ps_http_paces *all, uint64_t now_ns) PS_MUST_USE;

/* Requests ----------------------------------------------------------------------------------------------- */

/* One HTTP request, with its redirects, over the transfer engine. GET of a range, HEAD and GET of a page
 * each have a table of functions, struct ps_http_kind.
 *
 * Ownership: the client outlives its requests; a request is made and freed here. The caller embeds a struct
 * ps_transfer_work in its own request. Threads: submit and cancel from any; the transfer engine's threads
 * call the kind's functions. Locks: only signatures_lock, for a lookup. Errors: those of origin.h; texts
 * start with "GET URL", redacted. */

#define PS_HTTP_MAX_REDIRECTS 8

struct ps_http_request;
struct ps_key;

/* The client of one origin. After ps_http_client_init() only signatures, redirects and the atomics change. */
struct ps_http_client {
	struct ps_transfers *transfers;
	char *own;                  /* scheme://host:port that may see credentials */
	char *signature;            /* the source's signature parameters, for its own host; NULL if none */
	struct curl_slist *headers; /* the user's */
	char *user, *password;      /* NULL: none */
	struct ps_http_access access;
	uint64_t connect_timeout_ms, stall_ns;
	uint64_t attempt_ns; /* stall_ns of requests that a reader waits for */
	uint64_t page_ns;    /* pages: see PS_PAGE_SLOW_MS */
	pthread_rwlock_t signatures_lock;
	void *signatures; /* tree: from a URL without signature parameters to these parameters */
	struct ps_redirects redirects;
	struct ps_http_paces paces; /* of the origin's answers to ranges */
	_Atomic bool versionless;   /* the last HEAD gave neither ETag nor Last-Modified */
	_Atomic bool warned_of_page;
	_Atomic bool ranged; /* a part was sent in answer to a range */
	_Atomic bool
	        unranged; /* none was, and an answer was of HTTP/1.0 without Accept-Ranges, or the whole object */
	_Atomic bool unsized;       /* the last answer to a range did not say how long its body is */
	_Atomic uint64_t answer_ns; /* the shortest time to the first byte of an answer; 0: none came yet */
	/* retries of pages wait for the server's whole Retry-After, without the limits for a waiting user */
	bool patient;
	/* Gets the header of every response that is not a tier's, including redirects, after accept(): to
	 * record facts, or to improve the text of rq->error. Called by the transfer's thread. May be
	 * NULL. */
	void (*look)(void *arg, struct ps_http_request *rq);
	void *look_arg;
	/* Objects may be stored with a Content-Encoding, and are fetched as they are stored. */
	bool as_stored;
	const char *accept_encoding;           /* for objects; NULL: "identity" */
	const struct ps_http_dialect *dialect; /* NULL: plain HTTP */
	void *dialect_arg;
	struct ps_tiers *tiers; /* NULL: none */
	void *owner;            /* the origin whose client it is; only where there are tiers */
	struct ps_http_access tier_access;
};

/* How requests to one kind of store differ from plain HTTP. With a dialect, rq->url is a name of the
 * dialect's own, redirects are refusals, and the body of a refusal is kept. The transfer's thread calls
 * these functions. */
struct ps_http_dialect {
	/* Called before each attempt: gives its URL (*ret_url, to free()) and, by ps_http_request_header(),
	 * its headers. 0 or -errno with rq->error. */
	int (*address)(void *arg, struct ps_http_request *rq, char **ret_url);
	/* The attempt was answered, and failed: rq->error has the reason, whose text may be improved. True:
	 * repeat the request at once. */
	bool (*refused)(void *arg, struct ps_http_request *rq);
	/* The request ends: releases rq->key. NULL: there is never a key. */
	void (*forget)(struct ps_http_request *rq);
};
#define PS_HTTP_REFUSAL_MAX_NBYTES 16384 /* the rest is discarded */

struct ps_http_kind {
	const char *method; /* "GET", "HEAD": for curl and for errors */
	bool awaited;       /* a reader with a timeout waits for it */
	/* Tiers may answer it (docs/design/tiers.md): it is for a range of one version, and again() requests
	 * the rest of the range. */
	bool tiered;
	bool tiered_away; /* also where a redirect led to another host */
	/* Sets rq->url (to free()) and the range; once. 0 or -errno with rq->error. */
	int (*prepare)(struct ps_http_request *rq);
	/* Gets each line of header, of every response. May be NULL. */
	void (*line)(struct ps_http_request *rq, const char *line, size_t n);
	/* Called before a redirect is followed. True: do not follow it, the request is complete. NULL: all
	 * are followed. */
	bool (*redirected)(struct ps_http_request *rq, const char *location);
	/* The header is complete, and the response is not a redirect that is followed. 0: the body may
	 * come. -errno with rq->error: the body is discarded. */
	int (*accept)(struct ps_http_request *rq);
	/* Gets a part of the body, after accept() returned 0. 0, or -errno with rq->error: the transfer
	 * ends. NULL: accept() always sets wanted_enough. */
	int (*body)(struct ps_http_request *rq, const char *bytes, size_t n);
	/* Called after ps_transfer_later(), and when an attempt at a tier has failed. */
	void (*report)(struct ps_http_request *rq);
	/* The body of this attempt did not end where it should: forgets its bytes. Called only if the answer
	 * is not sized; a kind that is tiered has it. */
	void (*drop)(struct ps_http_request *rq);
	/* The attempt is over, with rq->error. True: send another request (rq was changed). */
	bool (*again)(struct ps_http_request *rq);
	/* The request is over: copies results out of rq. May be NULL. */
	void (*finish)(struct ps_http_request *rq);
	/* The last call. rq is freed; work may be freed or submitted again. */
	void (*done)(struct ps_transfer_work *work, const struct ps_error *err);
};

struct ps_http_request {
	struct ps_http_client *client;
	const struct ps_http_kind *kind;
	struct ps_transfer_work *work;
	char *url;       /* of this attempt; a redirect changes it */
	bool remembered; /* url is the target of an earlier redirect */
	bool head;       /* this attempt is a HEAD; kinds may fall back to GET */
	bool ranged;
	bool fresh; /* use a new connection */
	uint64_t range_first, range_last;
	const struct ps_remote *expect; /* for If-Match; NULL: no condition */
	bool want_listing;              /* send the Accept header for directory listings */
	bool wanted_enough;             /* set by accept(): the header is enough, end without an error */

	struct ps_http_response response;
	struct ps_error error; /* result of accept() or body() */
	bool header_done;
	unsigned redirects;
	bool sets_cookie; /* one of the redirects */
	/* for an object without versions: CRC of its first bytes, as far as they have arrived */
	uint64_t mark_crc;
	size_t mark_left;     /* how many of these first bytes are to come */
	size_t untold_nbytes; /* bytes of the body since the last report to the caller */
	uint64_t began_ns;    /* of this attempt */
	uint64_t body_nbytes; /* of this attempt, given to body() */
	struct ps_http_pace pace;
	uint64_t wire_nbytes, thrown_nbytes, first_byte_ns;
	struct curl_slist *slist;
	char curl_text[CURL_ERROR_SIZE];

	/* Of a tiered kind. Its prepare() sets `direct` and `asks`. */
	bool direct; /* no tier is asked from now on */
	bool moved;  /* its tier was set aside, and the next one is asked: once a request */
	/* the first byte is requested from the origin, to prove a right or to learn the version; reset once
	 * that was done */
	bool asks;
	bool is_asking;           /* this attempt requests that first byte */
	bool secret;              /* the dialect's: the attempt's headers hold a secret besides a signature */
	uint64_t range_end;       /* the last byte of the whole range */
	struct ps_tier_turn turn; /* of this attempt; without a tier, it is the origin's */
	uint64_t tier_nbytes;     /* from this attempt's tier */
	uint64_t tier_first_ns;   /* the time until that tier's header was complete; 0: it did not come */
	/* the tier that failed, and how; the origin is asked instead */
	struct ps_tier_turn failed;
	enum ps_tier_failure failure;
	uint64_t failed_ns;    /* when the origin was first asked instead */
	uint64_t failed_first; /* offset of that request in the file */
	uint64_t failed_last;  /* the last byte that the tier was asked for */
	/* the last tier that answered, and the range that it sent; tier NULL: none did */
	struct ps_tier *sample_tier;
	uint64_t sample_first, sample_nbytes;

	/* Used with a dialect. */
	struct ps_strbuf refusal; /* the body of this attempt's refusal */
	struct ps_key *key;       /* the dialect's: the key that signed it; NULL: none */
	int64_t key_expires_s;    /* of key; 0: never */
	unsigned remedies;        /* the dialect's: remedies that were tried */
	char *location;           /* target of a refusal that is a redirect, absolute; NULL: none */
	/* the dialect's: the place to which the next attempt is sent; NULL: the usual one */
	char *elsewhere;
	/* URL on another host, to which the request was redirected; that host must not see credentials;
	 * NULL: none */
	char *away;
};

/* Requests to a host whose answers are not sized have at most this length, because the bytes of such an answer
 * are used only once it has ended. */
#define PS_HTTP_UNSIZED_NBYTES ((uint64_t)1 << 20)

/* Sets up a client from the source's URL and the caller's options; checks the header options. */
int ps_http_client_init(struct ps_http_client *c, const char *source_url,
        const struct ps_http_options *options, struct ps_error *err) PS_MUST_USE;
/* Ends all requests in flight. Blocks until their done() has returned. */
void ps_http_client_fini(struct ps_http_client *c);

/* Has url fetched with these signature parameters from now on. */
int ps_http_client_sign(struct ps_http_client *c, const char *url, const char *signature) PS_MUST_USE;

/* True if a request for this URL may carry credentials. */
bool ps_http_client_owns(const struct ps_http_client *c, const char *url);

/* Adds "Name: value" to the attempt that is being set up. -ENOMEM. */
int ps_http_request_header(struct ps_http_request *rq, const char *header) PS_MUST_USE;

/* "Sun, 06 Nov 1994 08:49:37 GMT". False: there is no such date. */
#define PS_HTTP_DATE_LEN 64
bool ps_http_date(int64_t s, char ret[static PS_HTTP_DATE_LEN]);

/* The name and value of the attempt's conditional header, which a dialect may have to sign. False: it has
 * none. */
#define PS_HTTP_CONDITION_LEN (PS_ETAG_LEN + PS_HTTP_DATE_LEN)
bool ps_http_request_condition(const struct ps_http_request *rq, const char **ret_name,
        char ret_value[static PS_HTTP_CONDITION_LEN]);

void ps_http_submit(struct ps_http_client *c, const struct ps_http_kind *kind, struct ps_transfer_work *work);
void ps_http_cancel(struct ps_http_client *c, struct ps_transfer_work *work);

/* Pages -------------------------------------------------------------------------------------------------- */

/* GET of a whole small body: a directory listing, a manifest. With retries, back-off and a stop flag.
 *
 * Ownership: start makes a page, free frees it, and ends it first if necessary. Threads: the one that
 * started it. Blocking: start never blocks, wait blocks on the network. */

/* A retryable error is final after this many tries, or after this time: a user waits for the mount. */
#define PS_PAGE_MAX_TRIES 6
#define PS_PAGE_UNREACHABLE_TRIES 3 /* for an unreachable host, which is probably mistyped */
#define PS_PAGE_MAX_MS 20000
/* A page that has taken PS_PAGE_SLOW_MS (or the readers' timeout, if that is shorter, but at least
 * PS_PAGE_MAX_MS) ends with ETIMEDOUT if it brings fewer bytes a second than this. */
#define PS_PAGE_SLOW_MS 60000
#define PS_PAGE_MIN_RATE 1024

struct ps_http_page;

/* NULL: out of memory. max_nbytes: a longer body is EFBIG. packed: the text may be very long, and is kept
 * compressed. */
struct ps_http_page *ps_http_page_start(
        struct ps_http_client *c, const char *url, uint64_t max_nbytes, bool packed);

/* The result; the strings are the page's. */
struct ps_page_body {
	const char *text; /* NULL: see packed */
	size_t nbytes;
	const struct ps_packed *packed; /* NULL: see text */
	const char *url;                /* after redirects */
	bool is_json;
	const char *next; /* Link: <...>; rel="next", unresolved; NULL: the last page, or the only one */
};
int ps_http_page_wait(struct ps_http_page *page, const _Atomic bool *stop, struct ps_page_body *ret,
        struct ps_error *err) PS_MUST_USE;
/* True if wait would not block on the network, unless the page has failed and is requested again. */
bool ps_http_page_is_done(struct ps_http_page *page);
void ps_http_page_free(struct ps_http_page *page);

#endif
