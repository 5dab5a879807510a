/* The HTTP client: options and the way to a host, users and passwords, the engine that carries transfers, a
 * small blocking call; and for origins: requests over that engine, what responses say, whole small bodies.
 *
 * Files, from the top: page.c and request_redirect.c (clients, requests, redirects) use response.c and
 * transfer.c; blocking_call.c uses proxy_tls.c; netrc.c stands alone. Nothing here knows whose credentials a
 * request has. Ownership, threads and errors: each section; no text holds a secret. */
#ifndef PS_HTTP_HTTP_H
#define PS_HTTP_HTTP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/error.h"
#include "base/list.h"
#include "base/packed.h"
#include "base/remote.h"
#include "base/strbuf.h"

/* How requests get to their host ------------------------------------------------------------------------- */

/* How requests of a client get to their host: proxies, trusted certificates, our own certificate.
 *
 * The environment is that of the mounting process: http_proxy, https_proxy, all_proxy and no_proxy (also in
 * capitals, but for HTTP_PROXY, which a CGI's client could set), CURL_CA_BUNDLE, SSL_CERT_FILE and
 * SSL_CERT_DIR.
 *
 * Ownership: its client's. Threads: constant after init. Blocks: init on disk. Errors: -errno and a text
 * without secrets. */

/* How to talk to a server; all borrowed during ps_http_client_init() only. Zero means the default. */
struct ps_http_options {
	/* "Name: value", NULL-terminated; secret; sent to the source's own host only */
	const char *const *headers;
	const char *user_password; /* "user:password" for basic auth; secret; overrides user:password@ in the
	                              URL */
	const char *ca_file;       /* PEM bundle instead of the system's */
	/* files, shown to the source's own host only; the key may be in the first */
	const char *client_cert, *client_key;
	const char *client_key_password_file;
	const char *proxy; /* a URL, secret; "none"; NULL: from the environment, see above */
	/* "": none; NULL: from the environment; for http and https alone, see below */
	const char *netrc_file;
	bool insecure; /* do not verify TLS; logged once as a warning */
	/* The environment of the mounting process, "NAME=value", NULL-terminated; secret. NULL: the process's
	 * own. Ask by ps_env_get(), never by getenv(): a daemon mounts for others, too. */
	const char *const *env;
	unsigned max_connections;    /* requests at once, HEADs too; 0: no limit */
	uint64_t connect_timeout_ms; /* 10 s */
	uint64_t stall_timeout_ms;   /* an attempt without a byte for so long fails with ETIMEDOUT; 15 s */
	/* how long readers wait: gets and heads stall after a third of it, if that is less (but not less than
	 * a second), so that there is time for another attempt; 0: no matter */
	uint64_t reader_timeout_ms;
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

/* .netrc ------------------------------------------------------------------------------------------------- */

/* .netrc: users and passwords for hosts, as ftp, curl and git read them.
 *
 *   machine data.example.org login me password "a b\"c"      default login anonymous password x
 *
 * The first entry that names the host, or "default", is the one; tokens may be quoted, "#" starts a comment
 * where a token could start, macros and accounts are skipped.
 *
 * Ownership: the caller's; what is found is secret. Threads: any. Blocks: ps_netrc_user_password() on
 * disk. */

#define PS_NETRC_MAX_NBYTES 65536

/* True: there is an entry with a login; "login:password" is added to ret. */
bool ps_netrc_find(const char *text, size_t nbytes, const char *host, struct ps_strbuf *ret);

/* From options->netrc_file (it must be readable; "": none), else of the environment $NETRC or ~/.netrc.
 * *ret NULL: nothing is known of the host; else for ps_secret_free(). */
int ps_netrc_user_password(const struct ps_http_options *options, const char *host, char **ret,
        struct ps_error *err) PS_MUST_USE;

/* Transfers ---------------------------------------------------------------------------------------------- */

/* Transfers: a few threads, each driving many requests through its own curl_multi. What a
 * request is (URL, headers, what becomes of the body) is its owner's business: see struct ps_transfer_ops.
 *
 * Ownership: a transfer belongs to its submitter, who keeps it alive until done().
 * Threads: submit and cancel from any thread. begin, end, done and curl's callbacks of one transfer come from
 * one thread of the engine, with no lock held. A CURL handle is touched by that thread alone. Locks: one,
 * over the queues; nothing is called with it held. Blocking: submit and cancel never (the first submits start
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
	/* The transfer is its owner's again: it may be freed or submitted again. */
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

/* A transfer and what an origin keeps beside it: its own part of a get and a head (origin.h), so that handing
 * one over cannot fail. */
struct ps_transfer_work {
	struct ps_transfer transfer;
	void *owner;
	const void *kind;
	void *request;
	uint64_t submitted_ns;
	int rc; /* of one that ended before it began */
	/* of the credential that the answer was given to; 0: none, or it does not expire */
	int64_t key_expires_s;
	unsigned turn; /* what an origin counts for itself, from one submission to the next */
	bool refused;
};

/* Starts the first thread. name is at most 11 characters, shown by ps and top. max: transfers at once; the
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

/* Something came: the stall clock starts again. From curl's callbacks only. */
void ps_transfer_touch(struct ps_transfer *t);

/* flush() comes as soon as the thread has nothing more at hand, or has gone round PS_TRANSFER_ROUNDS times:
 * what comes in small pieces is reported in larger ones. Not if end() comes first. From curl's callbacks
 * only. */
#define PS_TRANSFER_ROUNDS 8
void ps_transfer_later(struct ps_transfer *t);

/* Small calls -------------------------------------------------------------------------------------------- */

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
	const char *url;                                   /* http or https */
	const char *headers[PS_HTTP_CALL_MAX_HEADERS + 1]; /* "Name: value"; NULL ends them */
	const char *body;                                  /* NULL: none */
	uint64_t timeout_ms;
	/* proxies and CA; NULL: a metadata server of this machine, asked directly */
	const struct ps_http_access *access;
	const char *ca_file; /* instead of what access says; NULL: as it says */
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

/* What a response's header says, and whether it may be believed. Pure: no network, no curl handle.
 *
 * Ownership: plain memory of the caller. Threads: one a response. Blocks: never. */

#define PS_RETRY_AFTER_MAX_MS (3600u * 1000) /* a server asking for more gets this */

struct ps_http_response {
	int status;              /* 0: no status line yet */
	uint64_t content_length; /* PS_SIZE_UNKNOWN if not given */
	bool has_range;          /* a well-formed Content-Range; range_nbytes 0: "bytes * / total" */
	uint64_t range_first, range_nbytes, range_total; /* total PS_SIZE_UNKNOWN: "*" */
	bool bad_range;                                  /* a Content-Range that does not parse */
	bool encoded;                                    /* Content-Encoding other than identity */
	bool multipart;                                  /* Content-Type: multipart/byteranges */
	bool html;                                       /* Content-Type: text/html */
	bool is_json;                                    /* Content-Type: application/json */
	int64_t mtime_s;                                 /* -1: not given */
	int64_t date_s;                                  /* -1: not given */
	int64_t retry_at_s;                              /* Retry-After as a date, -1: not given */
	int64_t retry_after_s;                           /* Retry-After as seconds, -1: not given */
	char etag[PS_ETAG_LEN];

	/* What a model and dataset hub says beyond that: of the file that a redirect leads to (X-Linked-Size,
	 * X-Linked-Etag), why it refuses (X-Error-Code), and how many requests of this class are
	 * left until when (RateLimit: "api";r=41;t=55). Absent: PS_SIZE_UNKNOWN, "", -1. */
	uint64_t linked_size;
	char linked_etag[PS_ETAG_LEN];
	char error_code[32];
	char limit_class[16];
	int64_t limit_left, limit_reset_s;

	/* What an S3 store says. */
	char checksum[PS_CHECKSUM_LEN]; /* x-amz-checksum-*, of the whole object; "": not given */
	bool checksum_of_parts;         /* it is none, but one of the parts' checksums */
	bool checksum_is_google;        /* of the stored object as a whole, also in answer to a range */
	char bucket_region[64];         /* x-amz-bucket-region; "": not given */
};

/* One line of header, with or without its line end. A status line resets everything. */
void ps_http_response_line(struct ps_http_response *r, const char *line, size_t n);

/* The size of the whole object, from Content-Range or Content-Length. */
uint64_t ps_http_response_size(const struct ps_http_response *r);

/* Size and version, for struct ps_origin_get.seen and ps_origin_head.seen. */
void ps_http_response_remote(const struct ps_http_response *r, struct ps_remote *ret);

/* For a status that is no success: the errno of origin.h, retryable, Retry-After, a text. 0 for 200 and 206.
 * expect may be NULL (no range was asked). */
int ps_http_response_status(
        const struct ps_http_response *r, const struct ps_remote *expect, struct ps_error *err);

/* A server may answer with the beginning of a range (RFC 9110, 15.3.7), and some CDNs do: the rest is
 * requested again. One that gives less than this where more was requested would cost too many requests. */
#define PS_HTTP_SHORT_NBYTES ((size_t)64 * 1024)

/* May body bytes of this response be taken for [offset, offset + nbytes) of the version `expect`, or, if
 * range_nbytes is less, for its beginning? 0, or -errno with the story. */
int ps_http_response_check_range(const struct ps_http_response *r, const struct ps_remote *expect,
        uint64_t offset, uint64_t nbytes, struct ps_error *err);

/* A validator for If-Match: quoted, not weak. */
bool ps_etag_is_strong(const char *etag);

/* Redirects ---------------------------------------------------------------------------------------------- */

/* Where URLs were redirected to, for a while: otherwise a dataset whose URLs redirect to a CDN pays a round
 * trip, and a request that the hub counts, for each range. What comes from a remembered place is checked
 * against the expected version like everything; a place that refuses is forgotten, and the URL is asked
 * again.
 *
 * Ownership: a table is its client's. Threads: any. Locks: one, a leaf. Blocks: never. Bounded: PS_REDIRECTS
 * places; a new one takes the place of another. Targets may be signed, and so are secrets. */

#define PS_REDIRECTS 256
#define PS_REDIRECT_MS 60000 /* signed URLs live for minutes at least */

struct ps_redirects {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_redirect {
		char *url, *target;
		uint64_t until_ns;
	} places[PS_REDIRECTS];
};

/* Running out of memory forgets. */
void ps_redirects_note(struct ps_redirects *all, const char *url, const char *target, uint64_t now_ns);
/* A copy for the caller to free, or NULL: nothing is known. */
char *ps_redirects_find(struct ps_redirects *all, const char *url, uint64_t now_ns);
void ps_redirects_forget(struct ps_redirects *all, const char *url);

/* Requests ----------------------------------------------------------------------------------------------- */

/* One HTTP request, with its redirects, over the transfer engine. GET of a range, HEAD and GET of a page
 * differ by a table of functions, struct ps_http_kind.
 *
 * Ownership: the client outlives its requests; a request is made and freed here. A piece of work (struct
 * ps_transfer_work) is embedded in what the caller wants done.
 * Threads: submit and cancel from any; the kind's functions are called by the transfer engine's threads.
 * Locks: signatures_lock alone, for a lookup. Errors: those of origin.h; texts start with "GET URL",
 * redacted. */

#define PS_HTTP_MAX_REDIRECTS 8

struct ps_http_request;
struct ps_key;

/* How to talk to one origin. All but the signatures never changes after ps_http_client_init(). */
struct ps_http_client {
	struct ps_transfers *transfers;
	char *own;                  /* scheme://host:port that may see credentials */
	char *signature;            /* the source's signature parameters, for its own host; NULL if none */
	struct curl_slist *headers; /* the user's */
	char *user, *password;      /* NULL: none */
	struct ps_http_access access;
	uint64_t connect_timeout_ms, stall_ns;
	uint64_t attempt_ns; /* stall_ns of what a reader waits for */
	pthread_rwlock_t signatures_lock;
	void *signatures; /* tree: URL without → signature parameters */
	struct ps_redirects redirects;
	_Atomic bool versionless; /* the last HEAD gave neither ETag nor Last-Modified */
	_Atomic bool warned_of_page;
	bool patient; /* pages wait for as long as the server asks to, not for as long as a person would */
	/* Sees the header of every response, redirects too, after accept() has judged it: to learn from it,
	 * or to put rq->error in better words. Called by the transfer's thread. NULL: not called. */
	void (*look)(void *arg, struct ps_http_request *rq);
	void *look_arg;
	/* Objects may be stored with a Content-Encoding, and are wanted as they are stored. */
	bool as_stored;
	const char *accept_encoding;           /* for objects; NULL: "identity" */
	const struct ps_http_dialect *dialect; /* NULL: plain HTTP */
	void *dialect_arg;
};

/* What makes the requests to one kind of store different from plain HTTP. rq->url is then a name of the
 * dialect's own, redirects are refusals, and the body of a refusal is kept. Both are called by the transfer's
 * thread. */
struct ps_http_dialect {
	/* Before each attempt: where it goes (*ret_url, to free()) and, by ps_http_request_header(), with
	 * which headers. 0 or -errno with rq->error. */
	int (*address)(void *arg, struct ps_http_request *rq, char **ret_url);
	/* The attempt was answered, and failed: rq->error says how and may be made clearer. True: once more,
	 * at once. */
	bool (*refused)(void *arg, struct ps_http_request *rq);
	/* The request ends: gives rq->key back. NULL: there never is one. */
	void (*forget)(struct ps_http_request *rq);
};
#define PS_HTTP_REFUSAL_MAX_NBYTES 16384 /* the rest is thrown away */

struct ps_http_kind {
	const char *method; /* "GET", "HEAD": for curl and for errors */
	bool awaited;       /* by a reader who gives up some day */
	/* Sets rq->url (to free()) and the range; once. 0 or -errno with rq->error. */
	int (*prepare)(struct ps_http_request *rq);
	/* A line of header, of whatever response. NULL: of no interest. */
	void (*line)(struct ps_http_request *rq, const char *line, size_t n);
	/* A redirect that would be followed. True: it is not, the redirect was all we wanted. NULL: all
	 * are. */
	bool (*redirected)(struct ps_http_request *rq, const char *location);
	/* The header is complete and no redirect. 0: the body may come. -errno with rq->error: it is thrown
	 * away. */
	int (*accept)(struct ps_http_request *rq);
	/* Some body, after accept() returned 0. 0, or -errno with rq->error: the transfer ends.
	 * NULL: accept() always sets wanted_enough. */
	int (*body)(struct ps_http_request *rq, const char *bytes, size_t n);
	/* After ps_transfer_later(). */
	void (*report)(struct ps_http_request *rq);
	/* The attempt is over, rq->error says how. True: another request is to follow (rq was changed). */
	bool (*again)(struct ps_http_request *rq);
	/* The end is settled: copy out of rq what is wanted. NULL: nothing is. */
	void (*finish)(struct ps_http_request *rq);
	/* The last call; rq is gone, work may be freed or submitted again. */
	void (*done)(struct ps_transfer_work *work, const struct ps_error *err);
};

struct ps_http_request {
	struct ps_http_client *client;
	const struct ps_http_kind *kind;
	struct ps_transfer_work *work;
	char *url;       /* of this attempt: a redirect changes it */
	bool remembered; /* it is where an earlier request was redirected to */
	bool head;       /* a HEAD now; kinds may fall back to GET */
	bool ranged;
	bool fresh; /* not over a connection that was used before */
	uint64_t range_first, range_last;
	const struct ps_remote *expect; /* for If-Match; NULL: no condition */
	bool want_listing;              /* Accept: for directory listings */
	bool wanted_enough;             /* accept(): the header was all we wanted, stop without an error */

	struct ps_http_response response;
	struct ps_error error; /* verdict of accept() or body() */
	bool header_done;
	unsigned redirects;
	uint64_t mark_crc;    /* of a HEAD's object without versions: of its first bytes so far, ... */
	size_t mark_left;     /* ... and how many are still to come */
	size_t untold_nbytes; /* of the body, since the last report to the caller */
	uint64_t wire_nbytes, thrown_nbytes, first_byte_ns;
	struct curl_slist *slist;
	char curl_text[CURL_ERROR_SIZE];

	/* With a dialect. */
	struct ps_strbuf refusal; /* the body of this attempt's refusal */
	struct ps_key *key;       /* the dialect's: what it was signed with; NULL: nothing */
	int64_t key_expires_s;    /* of that; 0: never */
	unsigned remedies;        /* the dialect's: what was tried already */
	char *location;           /* of a refusal that is a redirect, absolute; NULL: none */
	char *elsewhere;          /* the dialect's: where it asks now instead; NULL: as always */
	/* another host that it was sent to, which may see nothing of ours; NULL: none */
	char *away;
};

/* From the source's URL and the caller's options; checks the header options. */
int ps_http_client_init(struct ps_http_client *c, const char *source_url,
        const struct ps_http_options *options, struct ps_error *err) PS_MUST_USE;
/* Ends all that is in flight. Blocks until their done() has returned. */
void ps_http_client_fini(struct ps_http_client *c);

/* Remembers that url is to be fetched with these signature parameters. */
int ps_http_client_sign(struct ps_http_client *c, const char *url, const char *signature) PS_MUST_USE;

/* May credentials go along with a request for this URL? */
bool ps_http_client_owns(const struct ps_http_client *c, const char *url);

/* Adds "Name: value" to the attempt that is being set up. -ENOMEM. */
int ps_http_request_header(struct ps_http_request *rq, const char *header) PS_MUST_USE;

/* The condition that is sent with the attempt, which a dialect may have to sign: its name and value. False:
 * none is. */
#define PS_HTTP_CONDITION_LEN (PS_ETAG_LEN + 8)
bool ps_http_request_condition(const struct ps_http_request *rq, const char **ret_name,
        char ret_value[static PS_HTTP_CONDITION_LEN]);

void ps_http_submit(struct ps_http_client *c, const struct ps_http_kind *kind, struct ps_transfer_work *work);
void ps_http_cancel(struct ps_http_client *c, struct ps_transfer_work *work);

/* Pages -------------------------------------------------------------------------------------------------- */

/* GET of a whole small body: a directory listing, a manifest. With retries, backoff and a stop flag.
 *
 * Ownership: a page is made by start and freed by free, which ends it first if need be.
 * Threads: the one that started it. Blocks: start never, wait on the network. */

/* A retryable error is final after these many tries, or after this time: a person waits for the
 * mount. */
#define PS_PAGE_MAX_TRIES 6
#define PS_PAGE_UNREACHABLE_TRIES 3 /* of a host that is not there: most likely a mistyped one */
#define PS_PAGE_MAX_MS 20000

struct ps_http_page;

/* NULL: out of memory. max_nbytes: a longer body is EFBIG. */
struct ps_http_page *ps_http_page_start(struct ps_http_client *c, const char *url, uint64_t max_nbytes);
/* One whose text may be very long: it is kept compressed. */
struct ps_http_page *ps_http_page_start_packed(
        struct ps_http_client *c, const char *url, uint64_t max_nbytes);

/* What came of it; the strings are the page's. */
struct ps_page_body {
	const char *text; /* NULL: see packed */
	size_t nbytes;
	const struct ps_packed *packed; /* NULL: see text */
	const char *url;                /* after redirects */
	bool is_json;
	const char *next; /* Link: <...>; rel="next", as it stands; NULL: the last page, or the only one */
};
int ps_http_page_wait(struct ps_http_page *page, const _Atomic bool *stop, struct ps_page_body *ret,
        struct ps_error *err) PS_MUST_USE;
void ps_http_page_free(struct ps_http_page *page);

#endif
