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

/* Sources on the Hugging Face Hub, and the URLs that they stand for.
 *
 *   hf://datasets/OWNER/NAME[@REV][/PATH]     a dataset repository; hf://OWNER/NAME for short
 *   hf://models/OWNER/NAME[@REV][/PATH]       a model repository
 *
 * REV is a branch (main, if none is given), a tag or a commit; a "/" in it is written %2F, but for
 * refs/convert/NAME and refs/pr/N, which are known. PATH is a folder, a file, or a pattern of braces and
 * globs (see listing.h); it is not percent-encoded. An object's URL names repository and path, not the
 * revision: its version is the file's oid, so that a file that a new commit has not touched is the same
 * object.
 *
 * Ownership: the caller's; strings handed out are to free(). Threads: any. Blocks: never. Errors: -EINVAL,
 * -ENOMEM. */

struct ps_hf_source {
	bool is_model;
	char *repo;      /* "OWNER/NAME" */
	char *rev;       /* decoded */
	char *path;      /* below the repository, without "/" in front or at the end; "" is all of it */
	bool is_pattern; /* path holds braces or globs */
	char *canonical; /* the source, spelled out */
};

bool ps_hf_is_source(const char *text);
int ps_hf_source_parse(const char *text, struct ps_hf_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_hf_source_fini(struct ps_hf_source *s);

/* A full commit id: what it names never changes. */
bool ps_hf_is_commit(const char *rev);

/* {endpoint}/api/datasets/OWNER/NAME/revision/REV: gives the commit of a branch or tag. */
char *ps_hf_url_revision(const struct ps_hf_source *s, const char *endpoint);
/* ../tree/REV[/PATH]: what is below a folder ("" is all). */
char *ps_hf_url_tree(const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path,
        bool recursive);
/* {endpoint}/datasets/OWNER/NAME/resolve/REV/PATH */
char *ps_hf_url_resolve(
        const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path);
/* {endpoint}/datasets/OWNER/NAME: for people. */
char *ps_hf_url_page(const struct ps_hf_source *s, const char *endpoint);

/* hf://datasets/OWNER/NAME/PATH[?endpoint=...]: an object's URL, of any endpoint but the usual one. */
char *ps_hf_url_object(const struct ps_hf_source *s, const char *endpoint, const char *path);
/* The path of such a URL again, decoded. NULL: it is not of this source, or out of memory. */
char *ps_hf_path_of_object(const struct ps_hf_source *s, const char *url);

/* Limits ------------------------------------------------------------------------------------------------- */

/* The Hub's limits: a number of requests of a class ("api" for listings, "resolvers" for files) in a window
 * of some minutes. Each answer says how many are left and when the window ends; what is under way meanwhile
 * is counted here, so that the limit is kept and not run into.
 *
 * Ownership: an origin's. Threads: any. Locks: one, a leaf. Blocks: never. */

enum ps_hf_class { PS_HF_API, PS_HF_RESOLVERS, PS_HF_CLASSES };

struct ps_hf_limit {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_hf_window {
		uint64_t until_ns; /* of CLOCK_MONOTONIC; past it, or 0: nothing is known */
		int64_t left;
		unsigned inflight;
	} windows[PS_HF_CLASSES];
};

void ps_hf_limit_init(struct ps_hf_limit *limit);
void ps_hf_limit_fini(struct ps_hf_limit *limit);

/* 0: a request may go out now, and is counted. Else the milliseconds until it may. */
uint32_t ps_hf_limit_take(struct ps_hf_limit *limit, enum ps_hf_class class, uint64_t now_ns);
/* One that went out has been answered, or not. */
void ps_hf_limit_put(struct ps_hf_limit *limit, enum ps_hf_class class);
/* An answer's RateLimit; refused: it was a 429. Milliseconds after which one may ask again, 0 if one may
 * now. */
uint32_t ps_hf_limit_told(struct ps_hf_limit *limit, const char *class, int64_t left, int64_t reset_s,
        bool refused, uint64_t now_ns);

/* The origin --------------------------------------------------------------------------------------------- */

/* The Hub's origin inside: what hub.c, hub.c, hub_get.c and hub_get.c share.
 *
 * Locks: hf.lock is held over ps_http_submit() and ps_http_cancel(), which take the transfer engine's;
 * nothing is called back with it held. */

#define PS_HF_COMMITS 8   /* of a branch that moves, this many are remembered */
#define PS_HF_PLACES 2048 /* files whose place is remembered while no reader has them */

struct ps_hf_place;

struct ps_hf {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_hf_source source;
	char *endpoint;
	bool has_token;
	struct ps_hf_limit limit;

	pthread_mutex_t lock;            /* protects what follows */
	char commits[PS_HF_COMMITS][41]; /* of listings of this origin, the newest first */
	unsigned ncommits;
	struct ps_hf_place *places; /* by URL and version */
	struct ps_list idle;        /* of them, those that are unused, the longest unused first */
	unsigned nidle;
	bool closing;
};

/* hub_get.c */
/* This commit has been listed. */
void ps_hf_note_commit(struct ps_hf *hf, const char *commit);

/* hub.c */

/* hub_get.c: HEAD of a file at the Hub. It gives the version, and leads to the place where the bytes are. */
/* What the answer, redirect or not, says of the file. */
void ps_hf_head(struct ps_origin *o, struct ps_origin_head *head);

/* hub_get.c: ranges, from the place where the bytes are. Who wants a file whose place is not known waits
 * until one
 * request  * has asked for it. A place that refuses is forgotten, and asked for once more. */
void ps_hf_get(struct ps_origin *o, struct ps_origin_get *get);
void ps_hf_cancel(struct ps_origin *o, struct ps_origin_get *get);
void ps_hf_places_free(struct ps_hf *hf); /* when nothing is in flight */

static inline struct ps_hf *ps_hf_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_hf, origin);
}

static inline struct ps_hf *ps_hf_of_client(struct ps_http_client *c)
{
	return PS_CONTAINER_OF(c, struct ps_hf, client);
}

#endif
