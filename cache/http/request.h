/* One HTTP request, with its redirects, over the transfer engine. GET of a range, HEAD and GET of a page
 * differ by a table of functions, struct ps_http_kind.
 *
 * Ownership: the client outlives its requests; a request is made and freed here. A piece of work (struct
 * ps_transfer_work) is embedded in what the caller wants done.
 * Threads: submit and cancel from any; the kind's functions are called by the transfer engine's threads.
 * Locks: signatures_lock alone, for a lookup. Errors: those of origin.h; texts start with "GET URL",
 * redacted. */
#ifndef PS_HTTP_REQUEST_H
#define PS_HTTP_REQUEST_H

#include <pthread.h>

#include <curl/curl.h>

#include "base/strbuf.h"
#include "http/transfer.h"
#include "http/access.h"
#include "http/redirects.h"
#include "http/response.h"

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

struct ps_http_request;

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

/* url, canonical, as it goes to the server: with its signature, else (is_own) with the source's. -ENOMEM. */
int ps_http_client_url(struct ps_http_client *c, const char *url, bool is_own, char **ret) PS_MUST_USE;

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

#endif
