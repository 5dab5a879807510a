/* HTTP for the origins that are its clients: requests over the transfer engine, what responses say, whole small bodies.
 * http.h has what others need of this folder. Ownership, threads and errors: each section. */
#ifndef PS_HTTP_REQUEST_H
#define PS_HTTP_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/error.h"
#include "base/packed.h"
#include "base/remote.h"
#include "base/strbuf.h"
#include "http/http.h"

/* Responses ------------------------------------------------------------------------------------------ */

/* What a response's header says, and whether it may be believed. Pure: no network, no curl handle.
 *
 * Ownership: plain memory of the caller. Threads: one a response. Blocks: never. */

#define PS_RETRY_AFTER_MAX_MS (3600u * 1000) /* a server asking for more gets this */

struct ps_http_response {
	int status;              /* 0: no status line yet */
	uint64_t content_length; /* PS_SIZE_UNKNOWN if not told */
	bool has_range;          /* a well-formed Content-Range; range_nbytes 0: "bytes * / total" */
	uint64_t range_first, range_nbytes, range_total; /* total PS_SIZE_UNKNOWN: "*" */
	bool bad_range;                                  /* a Content-Range that does not parse */
	bool encoded;                                    /* Content-Encoding other than identity */
	bool multipart;                                  /* Content-Type: multipart/byteranges */
	bool html;                                       /* Content-Type: text/html */
	bool is_json;                                    /* Content-Type: application/json */
	int64_t mtime_s;                                 /* -1: not told */
	int64_t date_s;                                  /* -1: not told */
	int64_t retry_at_s;                              /* Retry-After as a date, -1: not told */
	int64_t retry_after_s;                           /* Retry-After as seconds, -1: not told */
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
	char checksum[PS_CHECKSUM_LEN]; /* x-amz-checksum-*, of the whole object; "": not told */
	bool checksum_of_parts;         /* it is none, but one of the parts' checksums */
	bool checksum_is_google; /* of the stored object as a whole, also in answer to a range */
	char bucket_region[64];         /* x-amz-bucket-region; "": not told */
};

/* One line of header, with or without its line end. A status line starts everything anew. */
void ps_http_response_line(struct ps_http_response *r, const char *line, size_t n);

/* The size of the whole object, from Content-Range or Content-Length. */
uint64_t ps_http_response_size(const struct ps_http_response *r);

/* Size and version, for struct ps_origin_get.seen and ps_origin_head.seen. */
void ps_http_response_remote(const struct ps_http_response *r, struct ps_remote *ret);

/* For a status that is no success: the errno of origin.h, retryable, Retry-After, a text. 0 for 200 and 206.
 * expect may be NULL (no range was asked). */
int ps_http_response_status(
        const struct ps_http_response *r, const struct ps_remote *expect, struct ps_error *err);

/* A server may answer with the beginning of a range (RFC 9110, 15.3.7), and some CDNs do: the rest is requested
 * again. One that gives less than this where more was requested would cost too many requests. */
#define PS_HTTP_SHORT_NBYTES ((size_t)64 * 1024)

/* May body bytes of this response be taken for [offset, offset + nbytes) of the version `expect`, or, if range_nbytes
 * is less, for its beginning? 0, or -errno with the story. */
int ps_http_response_check_range(const struct ps_http_response *r, const struct ps_remote *expect,
        uint64_t offset, uint64_t nbytes, struct ps_error *err);

/* A validator for If-Match: quoted, not weak. */
bool ps_etag_is_strong(const char *etag);

/* Redirects ------------------------------------------------------------------------------------------ */

/* Where URLs were redirected to, for a while: a dataset behind a redirect to a CDN else pays a round trip, and a request
 * that the hub counts, for each range. What comes from a remembered place is checked against the expected version like
 * everything; a place that refuses is forgotten, and the URL is asked anew.
 *
 * Ownership: a table is its client's. Threads: any. Locks: one, a leaf. Blocks: never. Bounded: PS_REDIRECTS places; a
 * new one takes the place of another. Targets may be signed, and so are secrets. */

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

/* Requests ------------------------------------------------------------------------------------------- */

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
	_Atomic bool versionless; /* the last HEAD told neither ETag nor Last-Modified */
	_Atomic bool warned_of_page;
	bool patient; /* pages wait for as long as the server asks to, not for as long as a person would */
	/* Sees the header of every response, redirects too, after accept() has judged it: to learn from it, or to
	 * tell rq->error in better words. Called by the transfer's thread. NULL: nobody looks. */
	void (*look)(void *arg, struct ps_http_request *rq);
	void *look_arg;
	/* Objects may be stored with a Content-Encoding, and are wanted as they are stored. */
	bool as_stored;
	const char *accept_encoding; /* for objects; NULL: "identity" */
	const struct ps_http_dialect *dialect; /* NULL: plain HTTP */
	void *dialect_arg;
};

/* What makes the requests to one kind of store different from plain HTTP. rq->url is then a name of the dialect's own,
 * redirects are refusals, and the body of a refusal is kept. Both are called by the transfer's thread. */
struct ps_http_dialect {
	/* Before each attempt: where it goes (*ret_url, to free()) and, by ps_http_request_header(), with which
	 * headers. 0 or -errno with rq->error. */
	int (*address)(void *arg, struct ps_http_request *rq, char **ret_url);
	/* The attempt was answered, and failed: rq->error tells how and may be made clearer. True: once more, at
	 * once. */
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
	/* A redirect that would be followed. True: it is not, the redirect was all we wanted. NULL: all are. */
	bool (*redirected)(struct ps_http_request *rq, const char *location);
	/* The header is complete and no redirect. 0: the body may come. -errno with rq->error: it is thrown
	 * away. */
	int (*accept)(struct ps_http_request *rq);
	/* Some body, after accept() returned 0. 0, or -errno with rq->error: the transfer ends. */
	int (*body)(struct ps_http_request *rq, const char *bytes, size_t n);
	/* After ps_transfer_later(). */
	void (*tell)(struct ps_http_request *rq);
	/* The attempt is over, rq->error tells how. True: another request is to follow (rq was changed). */
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
	char *url; /* of this attempt: a redirect changes it */
	bool remembered; /* it is where an earlier request was redirected to */
	bool head; /* a HEAD now; kinds may fall back to GET */
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
	uint64_t mark_crc; /* of a HEAD's object without versions: of its first bytes so far, ... */
	size_t mark_left;  /* ... and how many are still to come */
	size_t untold_nbytes; /* of the body, since the caller was last told */
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
	char *away;               /* another host that it was sent to, which may see nothing of ours; NULL: none */
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

/* The condition that is sent with the attempt, which a dialect may have to sign: its name and value. False: none is. */
#define PS_HTTP_CONDITION_LEN (PS_ETAG_LEN + 8)
bool ps_http_request_condition(
        const struct ps_http_request *rq, const char **ret_name, char ret_value[static PS_HTTP_CONDITION_LEN]);

void ps_http_submit(struct ps_http_client *c, const struct ps_http_kind *kind, struct ps_transfer_work *work);
void ps_http_cancel(struct ps_http_client *c, struct ps_transfer_work *work);

/* Pages ---------------------------------------------------------------------------------------------- */

/* GET of a whole small body: a directory listing, a manifest. With retries, backoff and a stop flag.
 *
 * Ownership: a page is made by start and freed by free, which ends it first if need be.
 * Threads: the one that started it. Blocks: start never, wait on the network. */

/* A retryable error is one after so many tries, or when so much time has passed: a person waits for the
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
	const char *url; /* after redirects */
	bool is_json;
	const char *next; /* Link: <...>; rel="next", as it stands; NULL: the last page, or the only one */
};
int ps_http_page_wait(struct ps_http_page *page, const _Atomic bool *stop, struct ps_page_body *ret,
        struct ps_error *err) PS_MUST_USE;
void ps_http_page_free(struct ps_http_page *page);

#endif
