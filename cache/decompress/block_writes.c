/* Blocks that are written while the next ones are decoded: for the disk a block takes as long as for the
 * decoder. Written by whatever thread of the stage has nothing else to do; with as many on their way as there
 * may be, by the one that decoded it. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

struct ps_write {
	struct ps_list link;          /* inflate->writes, until a thread takes it */
	struct ps_inflater *inflater; /* a reference */
	struct ps_object *object;     /* a reference */
	uint64_t block;
	uint8_t *data;
};

static void write_free(struct ps_write *write)
{
	if (write)
		free(write->data);
	free(write);
}

/* The lock is held. NULL: not now. */
static struct ps_write *write_take(struct ps_inflate *inflate)
{
	struct ps_write *write = NULL;

	if (inflate->nwrites == PS_WRITES_MAX)
		return NULL;
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->free_writes) && !write; i++)
		write = ps_steal_ptr(&inflate->free_writes[i]);
	if (!write && (write = calloc(1, sizeof *write)) &&
	        posix_memalign((void **)&write->data, 4096, PS_BLOCK_SIZE) != 0) {
		free(write);
		write = NULL;
	}
	inflate->nwrites += write != NULL;
	return write;
}

/* The lock is held. */
static void write_put(struct ps_inflate *inflate, struct ps_write *write)
{
	size_t i = 0;

	while (inflate->free_writes[i])
		i++; /* there are never more of them than places */
	inflate->free_writes[i] = write;
	inflate->nwrites--;
}

bool ps_write_later(
        struct ps_inflater *inflater, struct ps_object *object, uint64_t block, const uint8_t *data)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_write *write;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		write = write_take(inflate);
		if (!write)
			return false;
		inflater->nwrites++;
		ps_inflater_ref(inflater);
	}
	write->inflater = inflater;
	write->object = ps_object_ref(object);
	write->block = block;
	ps_list_init(&write->link);
	memcpy(write->data, data, PS_BLOCK_SIZE);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_list_append(&inflate->writes, &write->link);
	pthread_cond_signal(&inflate->cond);
	return true;
}

void ps_write_run(struct ps_inflate *inflate, struct ps_list *link)
{
	struct ps_write *write = PS_CONTAINER_OF(link, struct ps_write, link);
	struct ps_inflater *inflater = write->inflater;

	ps_list_remove(link);
	pthread_mutex_unlock(&inflate->lock);
	int rc = inflater->caches ? ps_object_write_block(write->object, write->block, write->data) : 0;
	ps_object_put(ps_steal_ptr(&write->object));
	pthread_mutex_lock(&inflate->lock);
	if (rc < 0)
		inflater->caches = false; /* the store has told why */
	write_put(inflate, write);
	if (--inflater->nwrites == 0)
		pthread_cond_broadcast(&inflate->written);
	ps_inflater_unref(inflater);
}

/* The lock is held. */
static struct ps_list *find_write(const struct ps_inflater *inflater)
{
	const struct ps_list *writes = &inflater->inflate->writes;

	for (struct ps_list *l = writes->next; l != writes; l = l->next)
		if (PS_CONTAINER_OF(l, struct ps_write, link)->inflater == inflater)
			return l;
	return NULL;
}

void ps_writes_wait(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_list *link;

	PS_LOCK_SCOPE(&inflate->lock);
	while (inflater->nwrites > 0)
		if ((link = find_write(inflater)))
			ps_write_run(inflate, link);
		else
			pthread_cond_wait(&inflate->written, &inflate->lock);
}

void ps_writes_fini(struct ps_inflate *inflate)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->free_writes); i++)
		write_free(inflate->free_writes[i]);
}
