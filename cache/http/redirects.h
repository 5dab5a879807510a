/* Where URLs were redirected to, for a while: a dataset behind a redirect to a CDN else pays a round trip, and a request
 * that the hub counts, for each range. What comes from a remembered place is checked against the expected version like
 * everything; a place that refuses is forgotten, and the URL is asked anew.
 *
 * Ownership: a table is its client's. Threads: any. Locks: one, a leaf. Blocks: never. Bounded: PS_REDIRECTS places; a
 * new one takes the place of another. Targets may be signed, and so are secrets. */
#ifndef PS_HTTP_REDIRECTS_H
#define PS_HTTP_REDIRECTS_H

#include <pthread.h>
#include <stdint.h>

#define PS_REDIRECTS 256
#define PS_REDIRECT_MS 60000 /* signed URLs live for minutes at least */

struct ps_redirects {
	pthread_mutex_t lock; /* protects what follows */
	struct ps_redirect {
		char *url, *target;
		uint64_t until_ns;
	} places[PS_REDIRECTS];
};

void ps_redirects_init(struct ps_redirects *all);
void ps_redirects_fini(struct ps_redirects *all);
/* Running out of memory forgets. */
void ps_redirects_note(struct ps_redirects *all, const char *url, const char *target, uint64_t now_ns);
/* A copy for the caller to free, or NULL: nothing is known. */
char *ps_redirects_find(struct ps_redirects *all, const char *url, uint64_t now_ns);
void ps_redirects_forget(struct ps_redirects *all, const char *url);

#endif
