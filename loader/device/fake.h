/* A device for tests: host memory as another's, and a thread that does what streams were given late, and as
 * far as their order allows in any order. What is wrong with waiting shows: a copy is done when its turn
 * comes, not when it was asked for.
 *
 * Each mirror has a stream of its own for its copies, so that they arrive in any order: on real devices only
 * some of that can happen.
 *
 * Ownership: streams belong to their maker, freed before the last device is closed.
 * Threads: any.   Locks: one, a leaf.   Blocks: ps_fake_stream_sync() and _free() until all that the stream
 * was given is done.   Errors: NULL: no memory. */
#ifndef PS_DEVICE_FAKE_H
#define PS_DEVICE_FAKE_H

struct ps_fake_stream;

/* One needs an open device. It is what ops->use() takes. */
struct ps_fake_stream *ps_fake_stream_new(void);
void ps_fake_stream_free(struct ps_fake_stream *stream);

/* fn(arg) is called when the stream comes to it, on the device's thread. */
int ps_fake_stream_call(struct ps_fake_stream *stream, void (*fn)(void *arg), void *arg);
void ps_fake_stream_sync(struct ps_fake_stream *stream);

/* From now on until the last device is closed everything fails with -EIO, and nothing that was given is done;
 * waiting ends. */
void ps_fake_lose(void);

#endif
