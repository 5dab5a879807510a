/* Compares samples of the tiers' bytes with the origin's (--tier-verify). A comparison is a get of its own
 * that asks the origin itself; no reader waits for it. */
#include "origin/origin_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "base/url.h"

struct comparison {
	struct ps_origin_get get; /* first */
	struct iovec iov;
	struct ps_tiers *tiers;
	struct ps_tier *tier;
	char *url;
	char theirs[PS_TIER_SAMPLE_NBYTES], ours[PS_TIER_SAMPLE_NBYTES];
};

static void compared(struct ps_origin_get *get, const struct ps_error *err)
{
	struct comparison *c = (struct comparison *)get;
	char safe[PS_URL_TEXT_LEN], what[PS_ERROR_TEXT_LEN];

	if (!err->err) {
		snprintf(what, sizeof(what), "other bytes than the origin's under the same ETag, of %s",
		        ps_url_redact(c->url, safe));
		ps_tiers_compared(
		        c->tiers, c->tier, get->nbytes, memcmp(c->theirs, c->ours, get->nbytes) == 0, what);
	}
	free(c->url);
	free(c);
}

/* Copies bytes [from, from + n) of the get. */
static void gather(const struct ps_origin_get *get, uint64_t from, size_t n, char *to)
{
	for (int i = 0; n && i < get->niov; i++) {
		size_t len = get->iov[i].iov_len;

		if (from >= len) {
			from -= len;
			continue;
		}
		size_t part = PS_MIN(n, len - (size_t)from);
		memcpy(to, (const char *)get->iov[i].iov_base + from, part);
		to += part;
		n -= part;
		from = 0;
	}
}

void ps_tier_compare(const struct ps_http_request *rq, const struct ps_origin_get *get)
{
	struct ps_origin *origin = rq->client->owner;
	uint64_t first = rq->sample_first, nbytes = rq->sample_nbytes, at = 0;
	uint32_t noise = 0;

	if (!rq->sample_tier || !ps_tiers_samples(rq->client->tiers, get->work.tier_nbytes))
		return;
	struct comparison *c = calloc(1, sizeof(*c));
	if (!c || !(c->url = strdup(get->url))) {
		free(c);
		return;
	}
	(void)!getrandom(&noise, sizeof(noise), GRND_NONBLOCK);
	if (nbytes > PS_TIER_SAMPLE_NBYTES)
		at = noise % (nbytes - PS_TIER_SAMPLE_NBYTES + 1);
	c->tiers = rq->client->tiers;
	c->tier = rq->sample_tier;
	c->iov =
	        (struct iovec){.iov_base = c->ours, .iov_len = (size_t)PS_MIN(nbytes, PS_TIER_SAMPLE_NBYTES)};
	gather(get, first + at - get->offset, c->iov.iov_len, c->theirs);
	c->get = (struct ps_origin_get){.url = c->url,
	        .expect = get->expect,
	        .offset = first + at,
	        .nbytes = c->iov.iov_len,
	        .iov = &c->iov,
	        .niov = 1,
	        .direct = true,
	        .done = compared};
	origin->ops->get(origin, &c->get);
}
