/* A limit on what all decoders of a loader together hold for images that need much memory: progressive and
 * interlaced files, those that must be turned. Who comes when it is reached waits until another is done; one
 * image is always let through, however large.
 *
 * Ownership: a gate belongs to its creator and outlives its tickets; a ticket belongs to one thread.
 * Threads: any; a ticket one at a time.   Locks: the gate's own, a leaf.
 * Blocks: taking waits for other threads' decodes, which never wait themselves while they hold something. */
#ifndef PS_IMAGE_GATE_H
#define PS_IMAGE_GATE_H

#include <pthread.h>
#include <stdint.h>

struct ps_image_gate {
	pthread_mutex_t lock;
	pthread_cond_t room;
	uint64_t limit, used;
};

struct ps_image_ticket {
	struct ps_image_gate *gate; /* NULL: no limit */
	uint64_t held;
};

void ps_image_gate_init(struct ps_image_gate *gate, uint64_t limit);
void ps_image_gate_fini(struct ps_image_gate *gate);

void ps_image_ticket_take(struct ps_image_ticket *ticket, uint64_t nbytes); /* NULL is allowed: no limit */

/* Gives back all that was taken: the image is done. */
void ps_image_ticket_give(struct ps_image_ticket *ticket);

#endif
