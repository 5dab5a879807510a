/* The Hub's origin inside: what hub.c, hub_list.c, hub_file.c and hub_get.c share.
 *
 * Locks: hf.lock is held over ps_http_submit() and ps_http_cancel(), which take the transfer engine's; nobody is called
 * back with it held. */
#ifndef PS_ORIGIN_HUB_PRIVATE_H
#define PS_ORIGIN_HUB_PRIVATE_H

#include <pthread.h>

#include "origin/hub_limit.h"
#include "origin/hub_source.h"
#include "http/request.h"
#include "origin/origin.h"

#define PS_HF_COMMITS 8   /* of a branch that moves, the last so many are remembered */
#define PS_HF_PLACES 2048 /* files whose place is remembered while nobody reads them */

struct ps_hf_place;

struct ps_hf {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_hf_source source;
	char *endpoint;
	bool has_token;
	struct ps_hf_limit limit;

	pthread_mutex_t lock; /* protects what follows */
	char commits[PS_HF_COMMITS][41]; /* of listings of this origin, the newest first */
	unsigned ncommits;
	struct ps_hf_place *places; /* by URL and version */
	struct ps_list idle;        /* of them, those that nobody uses, the longest unused first */
	unsigned nidle;
	bool closing;
};

/* hub.c */
/* The n-th revision to ask for a file: the commits that were listed, or, while there are none, the source's own. False:
 * no more. */
bool ps_hf_revision(struct ps_hf *hf, unsigned n, char ret[static 256]);
/* This commit has been listed. */
void ps_hf_note_commit(struct ps_hf *hf, const char *commit);

/* hub_list.c */
int ps_hf_list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err);

/* hub_file.c: HEAD of a file at the Hub. It tells the version, and leads to the place where the bytes are. */
/* The request for url's n-th revision goes into rq->url. -errno with rq->error, also when the limit is used up. */
int ps_hf_file_ask(struct ps_http_request *rq, const char *url, unsigned n) PS_MUST_USE;
/* True: location is on another host, and so the bytes' place. */
bool ps_hf_file_is_away(struct ps_http_request *rq, const char *location);
/* What the answer, redirect or not, says of the file. */
void ps_hf_file_answer(const struct ps_http_response *r, struct ps_remote *ret);
void ps_hf_head(struct ps_origin *o, struct ps_head *head);

/* hub_get.c: ranges, from the place where the bytes are. Who wants a file whose place is not known waits until one
 * request  * has asked for it. A place that refuses is forgotten, and asked for once more. */
void ps_hf_get(struct ps_origin *o, struct ps_get *get);
void ps_hf_cancel(struct ps_origin *o, struct ps_get *get);
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
