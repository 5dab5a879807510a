/* Limits of one image, and of the memory of all decoders. */
#include "config.h"

#include <errno.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/cleanup.h"
#include "image/format.h"
#include "image/image.h"

#define SIDE_MAX (1u << 24)

int ps_format_check_size(const char *name, uint32_t width, uint32_t height,
        const struct ps_image_limits *limits, struct ps_error *err)
{
	if (width == 0 || height == 0)
		return ps_error_set(err, EBADMSG, "%s: empty image: %u x %u", name, width, height);
	if (width > SIDE_MAX || height > SIDE_MAX)
		return ps_error_set(err, EBADMSG, "%s: %u x %u: a side has more than %u pixels", name, width,
		        height, SIDE_MAX);
	if ((uint64_t)width * height > limits->max_pixels)
		return ps_error_set(err, EBADMSG, "%s: %u x %u is more than max_pixels=%llu", name, width,
		        height, (unsigned long long)limits->max_pixels);
	return 0;
}

/* Takes memory with a ticket; NULL: no limit. */
static void ticket_take(struct ps_image_ticket *t, uint64_t nbytes)
{
	struct ps_image_gate *g = t ? t->gate : NULL;

	if (!g)
		return;
	PS_LOCK_SCOPE(&g->lock);
	/* a thread that holds memory does not wait: two such threads would wait for each other */
	while (t->held == 0 && g->used > 0 && (nbytes > g->limit || g->used > g->limit - nbytes))
		pthread_cond_wait(&g->room, &g->lock);
	g->used += nbytes;
	t->held += nbytes;
}

int ps_format_take_memory(const char *name, const char *what, uint64_t nbytes,
        const struct ps_image_limits *limits, struct ps_error *err)
{
	if (nbytes <= limits->max_memory) {
		ticket_take(limits->ticket, nbytes);
		return 0;
	}
	return ps_error_set(err, EBADMSG, "%s: needs %llu bytes %s, more than %llu; raise max_pixels", name,
	        (unsigned long long)nbytes, what, (unsigned long long)limits->max_memory);
}

bool ps_format_reserve(uint8_t **buf, size_t *cap, size_t nbytes)
{
	if (nbytes <= *cap)
		return true;
	free(*buf);
	*buf = calloc(1, nbytes);
	*cap = *buf ? nbytes : 0;
	return *buf;
}

void ps_format_widen(uint8_t *row, uint32_t width)
{
	uint16_t *labels = (uint16_t *)(void *)row;
	for (uint32_t i = width; i-- > 0;)
		labels[i] = row[i];
}

/* Memory of all decoders --------------------------------------------------------------------------------- */

#define TRIM_NBYTES (4UL << 20)

void ps_image_gate_init(struct ps_image_gate *g, uint64_t limit)
{
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->room, NULL);
	g->limit = limit;
	g->used = 0;
}

void ps_image_gate_fini(struct ps_image_gate *g)
{
	pthread_cond_destroy(&g->room);
	pthread_mutex_destroy(&g->lock);
}

void ps_image_ticket_give(struct ps_image_ticket *t)
{
	if (!t->gate || t->held == 0)
		return;
#ifdef __GLIBC__
	/* malloc keeps freed memory for this thread alone, unless it is asked to return it */
	if (t->held >= TRIM_NBYTES)
		malloc_trim(TRIM_NBYTES);
#endif
	PS_LOCK_SCOPE(&t->gate->lock);
	t->gate->used -= t->held;
	t->held = 0;
	pthread_cond_broadcast(&t->gate->room);
}
