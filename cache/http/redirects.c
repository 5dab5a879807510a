#include "http/redirects.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

void ps_redirects_init(struct ps_redirects *all)
{
	memset(all->places, 0, sizeof all->places);
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
