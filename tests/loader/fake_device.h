/* The device "fake": host memory stands for device memory, and a thread executes the streams late, in any
 * order that the streams allow. A test program that links fake_named.c with --wrap=ps_device_open
 * (FAKE_DEVICE in Makemodule.am) opens it by its name. Missing waits are detected, since a copy is done at its turn in the stream,
 * not at the call.
 *
 * Each mirror has a stream of its own for its copies, so that they arrive in any order: more orders than
 * real devices have.
 *
 * Ownership: streams belong to their creator, and must be freed before the last device is closed.
 * Threads: any.   Locks: one, a leaf.   Blocks: ps_fake_stream_sync() and _free() until all work of the
 * stream is done.
 * Errors: NULL: out of memory. */
#ifndef TESTS_LOADER_FAKE_DEVICE_H
#define TESTS_LOADER_FAKE_DEVICE_H

#include "device/device.h"

extern const struct ps_device_ops ps_device_fake;

struct ps_fake_stream;

/* Creates a stream, as ops->use() takes it. A device must be open. */
struct ps_fake_stream *ps_fake_stream_new(void);
void ps_fake_stream_free(struct ps_fake_stream *stream);

/* Queues a call of fn(arg) on the stream; the device's thread makes the call. */
int ps_fake_stream_call(struct ps_fake_stream *stream, void (*fn)(void *arg), void *arg);
void ps_fake_stream_sync(struct ps_fake_stream *stream);

/* Simulates the loss of all devices: until the last one is closed, every call fails with -EIO, pending work
 * is dropped and waits end. */
void ps_fake_lose(void);

#endif
