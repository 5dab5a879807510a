#include "module.h"

#include <stdlib.h>
#include <unistd.h>

struct open_loader *open_loader_new(struct penstock_loader *loader, struct map *map)
{
	struct open_loader *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->loader = loader;
	o->map = map;
	o->pid = getpid();
	atomic_init(&o->refs, 1);
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

bool open_loader_unref(struct open_loader *o)
{
	return atomic_fetch_sub(&o->refs, 1) == 1;
}

void open_loader_close(struct open_loader *o)
{
	penstock_loader_close(o->loader);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static void *close_main(void *arg)
{
	struct open_loader *o = arg;
	struct map *m = o->map;

	open_loader_close(o);
	map_closed(m);
	return NULL;
}

/* With a map, a new thread closes the loader and joins the loader's threads: the thread that drops the last
 * reference may be in the map, have the GIL, or hold a lock that the map waits for. */
void open_loader_end(struct open_loader *o)
{
	pthread_attr_t detached;
	pthread_t thread;

	if (!o->map) {
		open_loader_close(o);
		return;
	}
	if (o->pid != getpid()) { /* forked: there is nothing to wait for */
		close_main(o);
		return;
	}
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	/* On failure the loader stays open, which does less harm. */
	(void)!pthread_create(&thread, &detached, close_main, o);
	pthread_attr_destroy(&detached);
}

struct held_batch *held_new(struct open_loader *o, struct penstock_batch *batch)
{
	struct held_batch *h = calloc(1, sizeof(*h));
	struct penstock_batch_info info;

	if (!h)
		return NULL;
	penstock_batch_info(batch, &info);
	h->batch = batch;
	h->of = o;
	h->epoch = info.epoch;
	h->index = info.index;
	atomic_init(&h->refs, 1);
	atomic_fetch_add(&o->refs, 1);
	pthread_mutex_lock(&o->lock);
	atomic_fetch_add(&o->nholds, 1);
	h->next = o->held;
	if (h->next)
		h->next->link = &h->next;
	h->link = &o->held;
	o->held = h;
	pthread_mutex_unlock(&o->lock);
	return h;
}

struct held_batch *held_ref(struct held_batch *h)
{
	atomic_fetch_add(&h->refs, 1);
	atomic_fetch_add(&h->of->nholds, 1);
	return h;
}

struct open_loader *held_unref(struct held_batch *h)
{
	struct open_loader *o = h->of;

	atomic_fetch_sub(&o->nholds, 1);
	if (atomic_fetch_sub(&h->refs, 1) > 1)
		return NULL;
	if (getpid() == o->pid) { /* in a forked child the thread that held the lock may be missing */
		pthread_mutex_lock(&o->lock);
		*h->link = h->next;
		if (h->next)
			h->next->link = h->link;
		pthread_mutex_unlock(&o->lock);
	}
	penstock_batch_release(h->batch);
	free(h);
	return open_loader_unref(o) ? o : NULL;
}

void held_summary(struct open_loader *o, struct held_summary *ret_summary)
{
	struct held_summary s = {0};

	pthread_mutex_lock(&o->lock);
	for (const struct held_batch *h = o->held; h; h = h->next) {
		if (s.nbatches++ == 0 || h->epoch < s.epoch || (h->epoch == s.epoch && h->index < s.index)) {
			s.epoch = h->epoch;
			s.index = h->index;
			s.noldest = atomic_load(&h->refs);
		}
	}
	pthread_mutex_unlock(&o->lock);
	*ret_summary = s;
}

bool let_go_loader(struct open_loader *o)
{
	if (!open_loader_unref(o))
		return false;
	Py_BEGIN_ALLOW_THREADS
	open_loader_end(o);
	Py_END_ALLOW_THREADS
	return true;
}

void let_go(struct held_batch *h)
{
	struct open_loader *last = held_unref(h);

	if (!last)
		return;
	Py_BEGIN_ALLOW_THREADS
	open_loader_end(last);
	Py_END_ALLOW_THREADS
}
