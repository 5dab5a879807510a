/* An attempt that asks a tier: its URL, its body, pings of the tier, and what a failure says of it. */
#include "http/http_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "base/url.h"

/* If a tier is to be asked instead of the origin, sets *whole (to free()) to the tier's URL: it has the path
 * and query of `url`; the header Host names the origin. The attempt's range then ends with its slice. */
static int turn_to_tier(struct ps_http_request *rq, const char *url, bool is_own, char **whole)
{
	struct ps_http_client *c = rq->client;
	const char *authority = strstr(url, "://");
	ps_autostrbuf struct ps_strbuf to = {0}, host = {0};
	ps_autourl struct ps_url u = {0};

	if ((!is_own && !rq->kind->tiered_away) || (is_own && c->access.cert) || rq->away || !authority ||
	        ps_url_parse(url, &u, NULL) < 0)
		return 0;
	authority += 3;
	size_t n = strcspn(authority, "/?#");
	ps_strbuf_addn(&host, authority, n);
	if (host.failed)
		return -ENOMEM;
	bool secret = rq->secret || u.signature || u.user || (is_own && (c->headers || c->user));
	ps_tiers_pick(c->tiers, ps_tier_object(host.s, u.path, u.query), rq->range_first, secret, &rq->turn);
	if (!rq->turn.tier)
		return 0;
	rq->range_last = PS_MIN(
	        rq->range_last, (rq->range_first / PS_TIER_SLICE_NBYTES + 1) * PS_TIER_SLICE_NBYTES - 1);
	ps_strbuf_addf(
	        &to, "%s%s%s", ps_tier_url(rq->turn.tier), authority[n] == '/' ? "" : "/", authority + n);
	ps_strbuf_reset(&host);
	ps_strbuf_addf(&host, "Host: %.*s", (int)n, authority);
	if (to.failed || host.failed || ps_http_request_header(rq, host.s) < 0)
		return -ENOMEM;
	free(*whole);
	*whole = ps_strbuf_take(&to);
	return 0;
}

int ps_tier_attempt_begin(struct ps_http_request *rq, const char *url, bool is_own, char **whole)
{
	if (!rq->client->tiers || !rq->kind->tiered)
		return 0;
	rq->range_last = rq->range_end;
	/* A trial: the tier was late, but the origin may not be faster. As long as it seems faster, it is
	 * asked for larger and larger parts of the range that the tier was asked for. */
	if (rq->failed.tier && rq->failure == PS_TIER_LATE) {
		uint64_t ndone = rq->range_first - rq->failed_first;

		rq->range_last = PS_MIN(
		        rq->failed_last, rq->range_first + PS_MAX(3 * ndone, PS_TIER_TRIAL_NBYTES) - 1);
	}
	if (rq->direct)
		return 0;
	if (rq->asks && rq->range_end - rq->range_first < PS_HTTP_SHORT_NBYTES) {
		rq->direct = true; /* not worth two requests */
		return 0;
	}
	if (!rq->asks)
		return turn_to_tier(rq, url, is_own, whole);
	rq->is_asking = true;
	rq->range_last = rq->range_first;
	return 0;
}

void ps_tier_attempt_header(struct ps_http_request *rq)
{
	ps_transfer_touch(&rq->work->transfer);
	rq->tier_first_ns = rq->work->transfer.touched_ns - rq->turn.began_ns;
	ps_tiers_heard(rq->turn.tier, rq->work->transfer.touched_ns);
}

size_t ps_tier_attempt_body(struct ps_http_request *rq, const char *bytes, size_t n)
{
	/* After a failure the origin is asked instead, and the rest of the tier's body is not read. */
	if (rq->error.err || !rq->header_done)
		return PS_HTTP_END_TRANSFER;
	rq->work->from_tier = rq->work->from_tier || !rq->wire_nbytes;
	rq->work->kept_here = ps_tier_is_here(rq->turn.tier);
	rq->wire_nbytes += n;
	rq->work->tier_nbytes += n;
	rq->body_nbytes += n;
	if (rq->kind->body(rq, bytes, n) < 0) {
		rq->wire_nbytes -= n;
		rq->work->tier_nbytes -= n;
		return PS_HTTP_END_TRANSFER;
	}
	/* Only each PS_TIER_PACE_NBYTES count as progress: a tier that sends fewer bytes in time is late,
	 * too. */
	if ((rq->tier_nbytes + n) / PS_TIER_PACE_NBYTES != rq->tier_nbytes / PS_TIER_PACE_NBYTES) {
		ps_transfer_touch(&rq->work->transfer);
		ps_tiers_paced(rq->turn.tier, rq->work->transfer.touched_ns);
	}
	rq->tier_nbytes += n;
	return n;
}

/* A request to a tier itself, which the tier does not pass on to an origin: it has no Host header, and a
 * server of HTTP/1.1 must refuse such a request (RFC 9112, 3.2). The answer shows that the tier is alive,
 * even while its other answers wait for the origin. */
struct ping {
	struct ps_transfer transfer;
	struct ps_http_client *client;
	struct ps_tier *tier;
	struct curl_slist *slist;
	struct ps_http_response response;
	bool answered;
};

static size_t ping_header(char *line, size_t size, size_t n, void *arg)
{
	struct ping *p = arg;

	n *= size;
	if (n > 2 || (n && line[0] != '\r' && line[0] != '\n'))
		ps_http_response_line(&p->response, line, n);
	else if (p->response.status >= 200 && !p->answered) {
		p->answered = true;
		ps_tiers_heard(p->tier, ps_clock_mono_ns());
	}
	return n;
}

static size_t ping_body(char *bytes, size_t size, size_t n, void *arg)
{
	(void)bytes, (void)size, (void)n, (void)arg;
	return PS_HTTP_END_TRANSFER;
}

static int ping_begin(struct ps_transfer *t, void *curl)
{
	struct ping *p = PS_CONTAINER_OF(t, struct ping, transfer);
	const char *url = ps_tier_url(p->tier);

	p->slist = curl_slist_append(NULL, "Host:");
	if (!p->slist || curl_easy_setopt(curl, CURLOPT_URL, url) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)PS_TIER_CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, p->slist);
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
	curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, ping_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, p);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ping_body);
	ps_tiers_asked(p->tier, ps_clock_mono_ns());
	return ps_http_access_set(&p->client->tier_access, curl, url, true);
}

static void ping_done(struct ps_transfer *t)
{
	struct ping *p = PS_CONTAINER_OF(t, struct ping, transfer);

	ps_tiers_pinged(p->tier);
	curl_slist_free_all(p->slist);
	free(p);
}

static void ping(struct ps_http_client *c, struct ps_tier *tier)
{
	static const struct ps_transfer_ops ops = {.begin = ping_begin, .done = ping_done};
	struct ping *p = calloc(1, sizeof(*p));

	if (!p) {
		ps_tiers_asked(tier, 0);
		ps_tiers_pinged(tier);
		return;
	}
	p->transfer = (struct ps_transfer){.ops = &ops, .stall_ns = PS_NS_PER_S, .beyond = true};
	p->client = c;
	p->tier = tier;
	ps_transfer_submit(c->transfers, &p->transfer);
}

bool ps_tier_attempt_stalled(struct ps_http_request *rq, uint64_t idle_ns)
{
	enum ps_tier_advice advice = ps_tiers_waits(rq->client->tiers, &rq->turn, idle_ns);

	if (advice == PS_TIER_PING)
		ping(rq->client, rq->turn.tier);
	return advice == PS_TIER_LEAVE || idle_ns > rq->client->attempt_ns;
}

/* A late request whose tier is set aside goes on at the next tier. All nodes then ask that one, so the origin
 * is asked once; without this, each node would ask the origin. */
static bool may_move(const struct ps_http_request *rq, const struct ps_tier_turn *turn)
{
	return !rq->moved && ps_tiers_is_aside(rq->client->tiers, turn->tier);
}

void ps_tier_attempt_judge(struct ps_http_request *rq)
{
	uint64_t next = rq->range_last + 1;
	const struct ps_tier_trial trial = {.answered = !rq->error.err,
	        .ns = ps_clock_mono_ns() - rq->failed_ns,
	        .nbytes = next - rq->range_first,
	        .ndone = next - rq->failed_first,
	        .nmissing = rq->failed_last + 1 - PS_MIN(next, rq->failed_last + 1)};

	if (ps_tiers_judged(rq->client->tiers, &rq->failed, rq->failure, &trial))
		return;
	/* Tiers get the rest of the range only if this one was late: the next one if this one is set aside,
	 * or this one again if it is alive. */
	bool late = rq->failure == PS_TIER_LATE;
	bool to_next = late && may_move(rq, &rq->failed);
	bool to_same = late && !rq->moved && ps_tiers_answers(&rq->failed);

	rq->direct = !to_next && !to_same;
	rq->moved = rq->moved || to_next;
	rq->failed.tier = NULL;
}

bool ps_tier_attempt_end(struct ps_http_request *rq, int rc)
{
	struct ps_tiers *tiers = rq->client->tiers;
	struct ps_tier_turn turn = rq->turn;
	int status = rq->header_done ? rq->response.status : 0;

	rq->turn.tier = NULL;
	if (rc == -ECANCELED) {
		ps_tiers_left(tiers, &turn);
		return false;
	}
	if (!rq->error.err && ps_http_request_lacking(rq) > 0)
		ps_error_set(&rq->error, EIO, "the body was cut %llu bytes early",
		        (unsigned long long)ps_http_request_lacking(rq));
	if (!rq->error.err) {
		ps_tiers_answered(tiers, &turn, rq->tier_nbytes, rq->tier_first_ns);
		rq->sample_tier = turn.tier;
		rq->sample_first = rq->range_first;
		rq->sample_nbytes = rq->tier_nbytes;
		return rq->kind->again(rq);
	}
	uint64_t next = rq->range_first + rq->tier_nbytes;
	if (rc == -ETIMEDOUT && !turn.probe && next <= rq->range_end && may_move(rq, &turn)) {
		ps_tiers_left(tiers, &turn);
		rq->kind->report(rq);
		rq->moved = true;
		rq->range_first = next;
		rq->range_last = rq->range_end;
		rq->error = (struct ps_error){0};
		return true;
	}
	rq->failure = rc == -ETIMEDOUT                                                  ? PS_TIER_LATE
	              : rq->error.err == EHOSTUNREACH || rc == CURLE_OPERATION_TIMEDOUT ? PS_TIER_DOWN
	              : status >= 300 && status < 400                                   ? PS_TIER_REDIRECTED
	                                                                                : PS_TIER_WRONG;
	rq->failed = turn;
	ps_tiers_failed(tiers, &turn, rq->failure, rq->tier_nbytes, rq->error.text);
	/* What came is good: its header was checked. The origin is asked for the rest of the range. */
	rq->kind->report(rq);
	rq->range_first += rq->tier_nbytes;
	rq->failed_first = rq->range_first;
	rq->failed_last = PS_MAX(rq->range_last, rq->range_first);
	rq->range_last = rq->range_end;
	rq->direct = true;
	rq->failed_ns = ps_clock_mono_ns();
	rq->error = (struct ps_error){0};
	if (rq->range_first <= rq->range_end)
		return true;
	ps_tier_attempt_judge(rq); /* more bytes came than were requested */
	return false;
}
