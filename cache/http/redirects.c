/* Where redirects lead: the table of targets, and the next URL of a request. */
#include "http/http_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/url.h"

void ps_redirects_init(struct ps_redirects *all)
{
	memset(all->places, 0, sizeof(all->places));
	pthread_mutex_init(&all->lock, NULL);
}

static void empty(struct ps_redirect *place)
{
	free(place->url);
	free(place->target);
	*place = (struct ps_redirect){0};
}

void ps_redirects_fini(struct ps_redirects *all)
{
	for (size_t i = 0; i < PS_REDIRECTS; i++)
		empty(&all->places[i]);
	pthread_mutex_destroy(&all->lock);
}

/* FNV-1a */
static struct ps_redirect *place_of(struct ps_redirects *all, const char *url)
{
	uint32_t hash = 2166136261u;

	for (const char *p = url; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 16777619u;
	return &all->places[hash % PS_REDIRECTS];
}

void ps_redirects_note(struct ps_redirects *all, const char *url, const char *target, uint64_t now_ns)
{
	char *own_url = strdup(url), *own_target = strdup(target);
	{
		PS_LOCK_SCOPE(&all->lock);
		struct ps_redirect *place = place_of(all, url);

		empty(place);
		if (own_url && own_target)
			*place = (struct ps_redirect){.url = ps_steal_ptr(&own_url),
			        .target = ps_steal_ptr(&own_target),
			        .until_ns = now_ns + PS_REDIRECT_MS * PS_NS_PER_MS};
	}
	free(own_url);
	free(own_target);
}

char *ps_redirects_find(struct ps_redirects *all, const char *url, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&all->lock);
	const struct ps_redirect *place = place_of(all, url);

	if (!place->url || strcmp(place->url, url) != 0 || now_ns >= place->until_ns)
		return NULL;
	return strdup(place->target);
}

void ps_redirects_forget(struct ps_redirects *all, const char *url)
{
	PS_LOCK_SCOPE(&all->lock);
	struct ps_redirect *place = place_of(all, url);

	if (place->url && strcmp(place->url, url) == 0)
		empty(place);
}

bool ps_http_is_redirect(const struct ps_http_request *rq)
{
	int status = rq->response.status;

	return !rq->client->dialect && !rq->turn.tier &&
	       (status == 301 || status == 302 || status == 303 || status == 307 || status == 308);
}

int ps_http_follow(struct ps_http_request *rq, CURL *curl)
{
	ps_autourl struct ps_url u = {0};
	char *location = NULL;

	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
	if (!location)
		return ps_http_response_status(&rq->response, NULL, &rq->error);
	rq->sets_cookie = rq->sets_cookie || rq->response.sets_cookie;
	/* Cookies are not kept: this would be repeated without end. */
	bool again = strcmp(location, rq->url) == 0 || rq->redirects >= PS_HTTP_MAX_REDIRECTS;
	if (rq->sets_cookie && again)
		return ps_error_set(&rq->error, EPROTO,
		        "redirected to where it was, with a cookie: the server wants a cookie, such as that "
		        "of a "
		        "login; use --header 'Cookie: NAME=VALUE'");
	if (++rq->redirects > PS_HTTP_MAX_REDIRECTS)
		return ps_error_set(
		        &rq->error, EIO, "more than %d redirects: a loop?", PS_HTTP_MAX_REDIRECTS);
	/* Only raw characters are escaped; the rest stays as the server wrote it, since the order of
	 * parameters may be signed. */
	ps_autofree char *next = ps_url_escape_raw(location);
	if (!next)
		return ps_no_memory(&rq->error);
	if (ps_url_parse(next, &u, NULL) < 0 || strcmp(u.scheme, "file") == 0)
		return ps_error_set(&rq->error, EPROTO, "redirected to a URL that is not http or https");
	if (strncmp(rq->url, "https:", 6) == 0 && strcmp(u.scheme, "https") != 0)
		return ps_error_set(&rq->error, EPROTO, "redirected from https to http: refused");
	if (rq->kind->redirected && rq->kind->redirected(rq, next)) {
		rq->wanted_enough = !rq->error.err;
		return 1;
	}
	free(rq->url);
	rq->url = ps_steal_ptr(&next);
	return 0;
}

void ps_http_note_location(struct ps_http_request *rq, CURL *curl)
{
	char *location = NULL;

	free(ps_steal_ptr(&rq->location));
	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
	if (location && strlen(location) <= PS_URL_MAX_LEN)
		rq->location = strdup(location);
}
