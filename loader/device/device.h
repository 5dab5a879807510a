/* Where batches lie. A slot (batch/slot.h) is host memory that decoding writes to; on a device with memory of
 * its own each slot has a mirror there, to which the slot is sent: in one copy, or the stretches of it that
 * are needed. The same places hold in both.
 *
 *   alloc, mirror_new                            once a batch of the pipeline
 *   send ──▶ use(stream)... ──▶ leave ──▶ send   of each batch that comes to lie there
 *            └─ the slot may be written again once arrived() says so
 *
 * send() gives the copy to the device and returns. use() makes a stream of the consumer's wait for it;
 * leave() marks what the streams have to do until then, and the next send() comes behind that: nobody waits
 * on the processor.
 *
 * Ownership: a device belongs to its opener, who frees memory and mirrors before.
 * Threads: any; one mirror: send, leave and mirror_free one at a time, use beside use.   Locks: a mirror's
 * own, a leaf.   Errors: 0 or -errno with a text; -ENODEV: there is no such device; -ENOMEM; -EIO: it is
 * lost, or refuses.   Blocks: wait and mirror_free until copies are over; the rest on driver and kernel only.
 */
#ifndef PS_DEVICE_DEVICE_H
#define PS_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "device/make.h"

#define PS_DEVICE_PAGE 4096 /* what alloc aligns to, at least */

struct ps_device {
	const struct ps_device_ops *ops;
	uint32_t ordinal; /* among the devices of its kind */
};

struct ps_mirror {
	struct ps_device *device;
	uint8_t *data; /* of the slot's copy: an address of the device's; send() may move it, and `made` */
	size_t nbytes;
	uint8_t *made; /* of the fields that the device makes */
};

struct ps_mirror_size {
	size_t slot;    /* what slots have at first; more is made room for when it is sent */
	size_t made;    /* of the fields that the device makes; fixed */
	size_t scratch; /* that making them needs */
};

struct ps_stretch {
	size_t at, nbytes; /* in the slot, and in the mirror */
};

/* What is sent of a slot. */
struct ps_sending {
	const void *slot;
	size_t nbytes; /* that the mirror is to have room for: stretches end before */
	const struct ps_stretch
	        *stretches; /* to be copied: at least one, none empty, apart from each other */
	uint32_t nstretches;
	uint32_t nmakes; /* fields to be made of the copy */
	const struct ps_make *makes;
};

/* Of all copies that are over. */
struct ps_device_copies {
	uint64_t nbytes; /* that went over, not those between stretches */
	double seconds;  /* as the device measured, one copy after the other */
};

struct ps_device_ops {
	const char *name;
	uint32_t type; /* as DLPack numbers them */
	int (*open)(uint32_t ordinal, struct ps_device **ret_device, struct ps_load_error *err);
	void (*close)(struct ps_device *device);

	/* Host memory that copies may come from, zeroed, aligned to PS_DEVICE_PAGE. NULL with err. */
	void *(*alloc)(struct ps_device *device, size_t nbytes, struct ps_load_error *err);
	/* Makes it longer, keeping what it holds; it may move. NULL: it is as it was. */
	void *(*resize)(struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes,
	        struct ps_load_error *err);
	void (*free)(struct ps_device *device, void *p, size_t nbytes);

	/* From here on NULL where batches stay in host memory. */

	int (*mirror_new)(struct ps_device *device, const struct ps_mirror_size *size,
	        struct ps_mirror **ret_mirror, struct ps_load_error *err);
	void (*mirror_free)(struct ps_mirror *mirror); /* NULL is allowed */
	/* Copies the stretches of the slot, which must stay as it is until it has arrived, and makes what is
	 * to be made of the copy: then it has arrived. What is between stretches has any value there. */
	int (*send)(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_load_error *err);
	/* 1: the last send is over, or there was none; 0: not yet; -EIO. */
	int (*arrived)(struct ps_mirror *mirror, struct ps_load_error *err);
	int (*wait)(struct ps_mirror *mirror, struct ps_load_error *err); /* until it has */
	int (*use)(struct ps_mirror *mirror, void *stream, struct ps_load_error *err);
	int (*leave)(struct ps_mirror *mirror, struct ps_load_error *err);
	/* The event that the last send records, as the device's interface has it; NULL: none. */
	void *(*event)(struct ps_mirror *mirror);
	void (*copies)(struct ps_device *device, struct ps_device_copies *ret_copies);
	/* NULL: it makes fields of images (make.h); else why it does not, a text. The function may be NULL:
	 * it cannot. */
	const char *(*cannot_make)(struct ps_device *device);
};

/* Whether there is such a kind of device at all, be it here or not: cpu, cuda, cuda:1. */
bool ps_device_is_named(const char *name);

/* "cpu" (NULL means it too), "cuda", "cuda:N". */
int ps_device_open(const char *name, struct ps_device **ret_device, struct ps_load_error *err) PS_MUST_USE;
void ps_device_close(struct ps_device *device); /* NULL is allowed */

/* The device whose memory is the host's; needs no closing. */
struct ps_device *ps_device_host(void);

extern const struct ps_device_ops ps_device_cuda, ps_device_fake;

#endif
