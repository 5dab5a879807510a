#include "origin/hub_limit.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

void ps_hf_limit_init(struct ps_hf_limit *limit)
{
	memset(limit->windows, 0, sizeof limit->windows);
	pthread_mutex_init(&limit->lock, NULL);
}

void ps_hf_limit_fini(struct ps_hf_limit *limit)
{
	pthread_mutex_destroy(&limit->lock);
}

#define MAX_RESET_S (24 * 3600) /* whatever a server says */

/* A second more than told: the reset is rounded. */
static uint32_t wait_ms(const struct ps_hf_window *w, uint64_t now_ns)
{
	return (uint32_t)((w->until_ns - now_ns) / PS_NS_PER_MS + 1000);
}

uint32_t ps_hf_limit_take(struct ps_hf_limit *limit, enum ps_hf_class class, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&limit->lock);
	struct ps_hf_window *w = &limit->windows[class];

	if (w->until_ns && now_ns > w->until_ns + PS_NS_PER_S)
		w->until_ns = 0;
	if (w->until_ns && w->left <= (int64_t)w->inflight)
		return w->left <= 0 && w->until_ns > now_ns ? wait_ms(w, now_ns) : 1000;
	w->inflight++;
	return 0;
}

void ps_hf_limit_put(struct ps_hf_limit *limit, enum ps_hf_class class)
{
	PS_LOCK_SCOPE(&limit->lock);
	limit->windows[class].inflight--;
}

uint32_t ps_hf_limit_told(struct ps_hf_limit *limit, const char *class, int64_t left, int64_t reset_s, bool refused,
        uint64_t now_ns)
{
	static const char *const names[PS_HF_CLASSES] = {"api", "resolvers"};
	reset_s = PS_MIN(PS_MAX(reset_s, 0), MAX_RESET_S);
	uint64_t until_ns = now_ns + (uint64_t)reset_s * PS_NS_PER_S;

	PS_LOCK_SCOPE(&limit->lock);
	for (unsigned i = 0; i < PS_HF_CLASSES; i++) {
		struct ps_hf_window *w = &limit->windows[i];

		if (strcmp(class, names[i]) != 0)
			continue;
		/* Answers overtake each other: within a window the least that was told counts. */
		bool same = w->until_ns && until_ns < w->until_ns + 5 * PS_NS_PER_S;
		w->left = refused ? 0 : same && w->left < left ? w->left : left;
		if (!same)
			w->until_ns = until_ns;
		return w->left ? 0 : wait_ms(w, now_ns < w->until_ns ? now_ns : w->until_ns);
	}
	return refused ? (uint32_t)(reset_s * 1000 + 1000) : 0;
}
