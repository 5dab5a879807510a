#ifndef PS_ORIGIN_HUB_PRIVATE_H
#define PS_ORIGIN_HUB_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "http/http.h"
#include "origin/origin.h"

/* Sources ------------------------------------------------------------------------------------------------ */

/* Sources on the Hugging Face Hub, and their URLs.
 *
 *   hf://datasets/OWNER/NAME[@REV][/PATH]     a dataset repository; hf://OWNER/NAME for short
 *   hf://models/OWNER/NAME[@REV][/PATH]       a model repository
 *
 * REV is a branch (main, if none is given), a tag or a commit; a "/" in it is written %2F, except in
 * refs/convert/NAME and refs/pr/N. PATH is a folder, a file, or a pattern of braces and globs (see
 * listing.h); it is not percent-encoded. An object's URL names repository and path, not the revision: its
 * version is the file's oid, so a file that a new commit did not change is the same object.
 *
 * Ownership: the caller's; returned strings are to free(). Threads: any. Never blocks. Errors: -EINVAL,
 * -ENOMEM. */

struct ps_hf_source {
	bool is_model;
	char *repo; /* "OWNER/NAME" */
	char *rev;  /* decoded */
	/* below the repository, without "/" at its beginning or end; "" is the whole repository */
	char *path;
	bool is_pattern; /* path holds braces or globs */
	char *canonical; /* the source in its long form */
};

bool ps_hf_is_source(const char *text);
int ps_hf_source_parse(const char *text, struct ps_hf_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_hf_source_fini(struct ps_hf_source *s);

/* True for a full commit id, whose content never changes. */
bool ps_hf_is_commit(const char *rev);

/* {endpoint}/api/datasets/OWNER/NAME/revision/REV: gives the commit of a branch or tag. */
char *ps_hf_url_revision(const struct ps_hf_source *s, const char *endpoint);
/* ../tree/REV[/PATH]: the entries below a folder ("": all). */
char *ps_hf_url_tree(const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path,
        bool recursive);
/* {endpoint}/datasets/OWNER/NAME/resolve/REV/PATH */
char *ps_hf_url_resolve(
        const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path);
/* {endpoint}/datasets/OWNER/NAME: for users. */
char *ps_hf_url_page(const struct ps_hf_source *s, const char *endpoint);

/* hf://datasets/OWNER/NAME/PATH[?endpoint=...]: an object's URL. It names the endpoint if that is not
 * PS_HF_ENDPOINT. */
char *ps_hf_url_object(const struct ps_hf_source *s, const char *endpoint, const char *path);
/* The decoded path of such a URL. NULL: it is not of this source, or out of memory. */
char *ps_hf_path_of_object(const struct ps_hf_source *s, const char *url);

/* Limits ------------------------------------------------------------------------------------------------- */

/* The Hub limits the number of requests of a class ("api" for listings, "resolvers" for files) in a window
 * of some minutes. Each answer has the number of requests left and the end of the window. Requests in flight
 * are counted here, so that the limit is never exceeded.
 *
 * Ownership: an origin's. Threads: any. Locks: one, a leaf. Never blocks. */

enum ps_hf_class { PS_HF_API, PS_HF_RESOLVERS, PS_HF_CLASSES };

struct ps_hf_limit {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_hf_window {
		/* end of the window, CLOCK_MONOTONIC; after it, or if 0, nothing is known */
		uint64_t until_ns;
		int64_t left;
		unsigned inflight;
	} windows[PS_HF_CLASSES];
};

void ps_hf_limit_init(struct ps_hf_limit *limit);
void ps_hf_limit_fini(struct ps_hf_limit *limit);

/* 0: a request may be sent now, and is counted. Else the milliseconds until then. */
uint32_t ps_hf_limit_take(struct ps_hf_limit *limit, enum ps_hf_class class, uint64_t now_ns);
/* A counted request has ended. */
void ps_hf_limit_put(struct ps_hf_limit *limit, enum ps_hf_class class);
/* Records an answer's RateLimit; refused: the answer was a 429. Returns the milliseconds until the next
 * request may be sent; 0: now. */
uint32_t ps_hf_limit_told(struct ps_hf_limit *limit, const char *class, int64_t left, int64_t reset_s,
        bool refused, uint64_t now_ns);

/* The origin --------------------------------------------------------------------------------------------- */

/* The Hub's origin: types and functions that hub.c and hub_get.c share.
 *
 * Locks: hf.lock is held over ps_http_submit() and ps_http_cancel(), which take the transfer engine's; no
 * callback is called with it held. */

#define PS_HF_COMMITS 8   /* remembered commits of a branch that moves */
#define PS_HF_PLACES 2048 /* remembered places of files that no get uses */

struct ps_hf_place;

struct ps_hf {
	struct ps_origin origin; /* first member */
	struct ps_http_client client;
	struct ps_hf_source source;
	char *endpoint;
	bool has_token;
	struct ps_hf_limit limit;

	pthread_mutex_t lock;            /* protects what follows */
	char commits[PS_HF_COMMITS][41]; /* of this origin's listings, newest first */
	unsigned ncommits;
	struct ps_hf_place *places; /* by URL and version */
	struct ps_list idle;        /* unused places, the longest unused first */
	unsigned nidle;
	bool closing;
};

/* hub_get.c */
/* Records a commit that was listed. */
void ps_hf_note_commit(struct ps_hf *hf, const char *commit);

/* Sends a HEAD for a file to the Hub, and fills in `head` from the answer, whether that is a redirect or
 * not. The answer has the version, and the place where the bytes are. */
void ps_hf_head(struct ps_origin *o, struct ps_origin_head *head);

/* Reads a range from the place where the bytes are. Gets of a file whose place is not known wait for
 * one HEAD that asks for it. A place that refuses is forgotten, and requested again once. */
void ps_hf_get(struct ps_origin *o, struct ps_origin_get *get);
void ps_hf_cancel(struct ps_origin *o, struct ps_origin_get *get);
void ps_hf_places_free(struct ps_hf *hf); /* precondition: no request is in flight */

static inline struct ps_hf *ps_hf_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_hf, origin);
}

static inline struct ps_hf *ps_hf_of_client(struct ps_http_client *c)
{
	return PS_CONTAINER_OF(c, struct ps_hf, client);
}

#endif
