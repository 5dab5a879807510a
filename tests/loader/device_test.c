/* Batches on a device with its own memory: each stream of the consumer sees the right bytes when it reads
 * them.
 *
 * PENSTOCK_TEST_DEVICE names the device: "fake" (default), or "cuda". With "cuda", libcuda.so.1 is a GPU's
 * driver or the mock of tests/loader/mock_cuda.c (see device_cuda.sh); without either the test exits with
 * 77, skipped.
 */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/device.h"
#include "make_tar.h"

#include "device_consumer.h"

#define SHARDS 6
#define PER_SHARD 40

/* Shards and loaders ------------------------------------------------------------------------------------- */

static char folder[64];
static const char *const pattern[] = {"t-{0..5}.tar"};

/* Fields grow within a shard and from shard to shard, so that slots must grow. */
static void shard_write(int shard)
{
	struct tar t = {0};
	uint8_t bytes[4096];
	char name[64];

	for (int i = 0; i < PER_SHARD; i++) {
		size_t n = (size_t)(1 + i * (shard + 1) * 13 % 4000);

		for (size_t k = 0; k < n; k++)
			bytes[k] = (uint8_t)(k * 7 + (size_t)(i * 31 + shard));
		snprintf(name, sizeof(name), "%d-%02d.bin", shard, i);
		tar_add(&t, name, bytes, n);
		snprintf(name, sizeof(name), "%d-%02d.cls", shard, i);
		tar_add_text(&t, name, i % 2 ? "17" : "4");
	}
	tar_end(&t);
	snprintf(name, sizeof(name), "t-%d.tar", shard);
	tar_save(&t, name);
}

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++)
		shard_write(s);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

static struct penstock_loader *loader_open(const char *device, uint32_t depth, uint32_t threads)
{
	struct penstock_field f[2];
	struct penstock_options o;
	struct penstock_loader *l;
	struct penstock_error e;

	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f[0], sizeof(f[0]), "bin", PENSTOCK_BYTES);
	penstock_field_init(&f[1], sizeof(f[1]), "cls", PENSTOCK_INT64);
	o.fields = f;
	o.nfields = 2;
	o.batch = 8;
	o.epochs = 3;
	o.shuffle_window = 64;
	o.lanes = 4;
	o.depth = depth;
	o.threads = threads;
	o.memory_budget = 64 << 20;
	o.device = device;
	if (penstock_loader_open(&o, pattern, 1, &l, &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

static const char *const tensors[] = {"bin", "cls", "__key__", "__valid__", "__sample__"};
#define NTENSORS (sizeof(tensors) / sizeof(tensors[0]))

/* All bytes of a run, tensor after tensor. */
struct record {
	uint8_t *bytes;
	size_t n, cap;
};

static uint8_t *record_room(struct record *r, size_t n)
{
	uint8_t *p = r->bytes + r->n;

	assert_true(r->n + n <= r->cap); /* the bytes cannot move: streams write to them */
	r->n += n;
	return p;
}

static struct record record_new(void)
{
	struct record r = {.cap = 16 << 20};

	r.bytes = calloc(1, r.cap);
	assert_non_null(r.bytes);
	return r;
}

static struct penstock_tensor tensor(struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

static void use(struct penstock_batch *b, void *stream)
{
	struct penstock_error e;

	if (penstock_batch_use(b, stream, &e) < 0)
		fail_msg("%s", e.text);
}

/* Adds the batch's tensors to the record, copied in the stream's order; without a stream, at once. */
static void batch_record(struct penstock_batch *b, void *stream, struct record *r)
{
	for (size_t i = 0; i < NTENSORS; i++) {
		struct penstock_tensor t = tensor(b, tensors[i]);
		uint8_t *to = record_room(r, t.nbytes);

		if (stream)
			on.copy_out(stream, to, t.data, t.nbytes);
		else if (t.nbytes > 0)
			memcpy(to, t.data, t.nbytes);
	}
}

static struct penstock_batch *next(struct penstock_loader *l)
{
	struct penstock_batch *b;
	struct penstock_error e;
	int rc = penstock_loader_next(l, &b, &e);

	if (rc < 0)
		fail_msg("%s", e.text);
	return rc == 1 ? b : NULL;
}

/* The same run on the host. */
static struct record run_on_host(int epochs)
{
	struct penstock_loader *l = loader_open("cpu", 3, 1);
	struct record r = record_new();
	struct penstock_batch *b;

	for (int e = 0; e < epochs; e++)
		while ((b = next(l))) {
			batch_record(b, NULL, &r);
			penstock_batch_release(b);
		}
	penstock_loader_close(l);
	return r;
}

static void records_same(struct record *a, struct record *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->bytes, b->bytes, a->n);
	free(a->bytes);
	free(b->bytes);
}

/* Tests -------------------------------------------------------------------------------------------------- */

/* A batch is released as soon as its work is given to a stream: its memory is reused only after that work. */
static void streams_see_the_same_bytes_as_the_host(void **state)
{
	(void)state;
	for (uint32_t depth = 2; depth <= 5; depth++) {
		struct record want = run_on_host(3), got = record_new();
		struct penstock_loader *l = loader_open(on.device, depth, depth);
		void *streams[3];
		struct penstock_batch *b;
		size_t n = 0;

		for (int i = 0; i < 3; i++)
			streams[i] = on.stream_new();
		for (int e = 0; e < 3; e++)
			while ((b = next(l))) {
				use(b, streams[n % 3]);
				batch_record(b, streams[n++ % 3], &got);
				penstock_batch_release(b);
			}
		for (int i = 0; i < 3; i++)
			on.sync(streams[i]);
		penstock_loader_close(l);
		for (int i = 0; i < 3; i++)
			on.stream_free(streams[i]);
		records_same(&want, &got);
	}
}

/* Two streams work with one batch: its memory is reused only after the work of both. */
static void memory_is_reused_only_after_all_streams(void **state)
{
	struct record want = run_on_host(1), got = record_new(), again = record_new(), same = run_on_host(1);
	struct penstock_loader *l = loader_open(on.device, 2, 2);
	void *a = on.stream_new(), *z = on.stream_new();
	struct penstock_batch *b;

	(void)state;
	while ((b = next(l))) {
		use(b, a);
		use(b, z);
		use(b, a); /* a second use by the same stream changes nothing */
		batch_record(b, a, &got);
		batch_record(b, z, &again);
		penstock_batch_release(b);
	}
	on.sync(a);
	on.sync(z);
	penstock_loader_close(l);
	on.stream_free(a);
	on.stream_free(z);
	records_same(&want, &got);
	records_same(&same, &again);
}

/* Of 240 samples two are left for the last step of 7 ranks with batch 1: rank 6 repeats that of rank 0, with 0 in
 * __valid__ on the device, too. */
static void a_repeated_row_is_not_valid_on_the_device(void **state)
{
	struct penstock_error e;
	uint8_t valid[2];
	int64_t samples[2];

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		static const char *const names[] = {"__valid__", "__sample__"};
		void *const to[] = {&valid[i], &samples[i]};
		void *stream = on.stream_new();
		struct penstock_field f;
		struct penstock_options o;
		struct penstock_batch *b, *last = NULL;
		struct penstock_loader *l;
		struct penstock_stats stats;

		penstock_options_init(&o, sizeof(o));
		penstock_field_init(&f, sizeof(f), "cls", PENSTOCK_INT64);
		o.fields = &f;
		o.nfields = 1;
		o.batch = 1;
		o.rank = i ? 6 : 0; /* 240 is 34 * 7 + 2, and 6 mod 2 is 0 */
		o.world = 7;
		o.index = PENSTOCK_INDEX_MAKE;
		o.memory_budget = 64 << 20;
		o.device = on.device;
		if (penstock_loader_open(&o, pattern, 1, &l, &e) < 0)
			fail_msg("%s", e.text);
		while ((b = next(l))) {
			penstock_batch_release(last);
			last = b;
		}
		use(last, stream);
		for (size_t k = 0; k < 2; k++)
			on.copy_out(
			        stream, to[k], tensor(last, names[k]).data, tensor(last, names[k]).nbytes);
		on.sync(stream);
		penstock_batch_release(last);
		assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
		assert_int_equal(stats.repeats, i);
		assert_int_equal(stats.samples, 35 - i);
		penstock_loader_close(l);
		on.stream_free(stream);
	}
	assert_int_equal(valid[0], 1);
	assert_int_equal(valid[1], 0);
	assert_int_equal(samples[0], samples[1]);
}

static void device_batches_are_in_host_memory_too(void **state)
{
	struct penstock_loader *l = loader_open(on.device, 3, 2);
	struct record want = run_on_host(1), got = record_new();
	struct penstock_batch *b;

	(void)state;
	while ((b = next(l))) {
		for (size_t i = 0; i < NTENSORS; i++) {
			struct penstock_tensor t = tensor(b, tensors[i]);

			memcpy(record_room(&got, t.nbytes), t.host, t.nbytes);
			assert_true(!t.offsets == !t.host_offsets);
		}
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	records_same(&want, &got);
}

static void after_batch_sync_a_stream_need_not_wait(void **state)
{
	struct penstock_loader *l = loader_open(on.device, 3, 2);
	struct record want = run_on_host(1), got = record_new();
	void *stream = on.stream_new();
	struct penstock_error e;
	struct penstock_stats st;
	struct penstock_batch *b;

	(void)state;
	while ((b = next(l))) {
		assert_non_null(penstock_batch_event(b));
		assert_int_equal(penstock_batch_sync(b, &e), 0);
		batch_record(b, stream, &got); /* the data has arrived: the stream need not wait for it ... */
		on.sync(stream);               /* ... but the release must wait for the stream */
		penstock_batch_release(b);
	}
	assert_int_equal(penstock_loader_stats(l, &st, sizeof(st), &e), 0);
	assert_true(st.copied_bytes >= got.n);
	assert_true(st.copy_seconds >= 0);
	penstock_loader_close(l);
	on.stream_free(stream);
	records_same(&want, &got);
}

static void an_error_reports_that_all_batches_are_held(void **state)
{
	struct penstock_loader *l = loader_open(on.device, 3, 2);
	struct penstock_batch *held[3], *b;
	struct penstock_error e;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_non_null(held[i] = next(l));
	assert_int_equal(penstock_loader_next(l, &b, &e), -EBUSY);
	assert_non_null(strstr(e.text, "all 3 batches are held"));
	for (int i = 0; i < 3; i++)
		penstock_batch_release(held[i]);
	assert_non_null(b = next(l));
	penstock_batch_release(b);
	penstock_loader_close(l);
}

/* Closing waits for the work that streams were given before. */
static void close_waits_for_work_given_to_streams(void **state)
{
	(void)state;
	for (int held = 0; held <= 2; held++) {
		struct record want = run_on_host(1), got = record_new();
		struct penstock_loader *l = loader_open(on.device, 3, 3);
		void *stream = on.stream_new();

		for (int i = 0; i < 5; i++) {
			struct penstock_batch *b = next(l);

			use(b, stream);
			batch_record(b, stream, &got);
			if (i < 5 - held)
				penstock_batch_release(b);
		}
		penstock_loader_close(l);
		on.sync(stream);
		on.stream_free(stream);
		want.n = got.n;
		records_same(&want, &got);
	}
}

static void set_epoch_restarts_an_epoch_in_the_middle(void **state)
{
	struct record want = run_on_host(1), got = record_new();
	struct penstock_loader *l = loader_open(on.device, 3, 2);
	void *stream = on.stream_new();
	struct penstock_batch *b, *held;
	struct penstock_error e;

	(void)state;
	for (int i = 0; i < 7; i++) {
		struct record scrap = record_new();

		b = next(l);
		use(b, stream);
		batch_record(b, stream, &scrap);
		penstock_batch_release(b);
		on.sync(stream);
		free(scrap.bytes);
	}
	held = next(l);
	use(held, stream);
	assert_int_equal(penstock_loader_set_epoch(l, 0, &e), 0);
	while ((b = next(l))) {
		use(b, stream);
		batch_record(b, stream, &got);
		penstock_batch_release(b);
	}
	penstock_batch_release(held);
	on.sync(stream);
	penstock_loader_close(l);
	on.stream_free(stream);
	records_same(&want, &got);
}

/* After the device is lost, next() gives at most a few more batches; then all calls return an error. No
 * thread hangs. */
static void a_lost_device_is_an_error(void **state)
{
	static const struct ps_mirror_size small = {.slot = PS_DEVICE_PAGE};
	static const struct ps_stretch all = {0, PS_DEVICE_PAGE};
	struct ps_sending sending = {.nbytes = PS_DEVICE_PAGE, .stretches = &all, .nstretches = 1};
	struct penstock_loader *l = loader_open(on.device, 3, 2);
	struct ps_error err;
	struct ps_device *d;
	struct ps_mirror *m;
	void *slot;
	struct penstock_batch *b, *held;
	struct penstock_error e;
	int r = 1;

	(void)state;
	held = next(l);
	assert_int_equal(ps_device_open(on.device, &d, NULL), 0);
	assert_non_null(slot = d->ops->alloc(d, PS_DEVICE_PAGE, NULL));
	assert_int_equal(d->ops->mirror_new(d, &small, &m, NULL), 0);
	sending.slot = slot;
	assert_int_equal(d->ops->send(m, &sending, NULL), 0);
	on.lose();
	assert_int_equal(d->ops->arrived(m, &err), -EIO); /* the data never arrives */
	d->ops->mirror_free(m);
	d->ops->free(d, slot, PS_DEVICE_PAGE);
	for (int i = 0; i < 20 && r == 1; i++) {
		r = penstock_loader_next(l, &b, &e);
		if (r == 1)
			penstock_batch_release(b);
	}
	assert_int_equal(r, -EIO);
	assert_non_null(strstr(
	        e.text, strcmp(on.device, "fake") == 0 ? "device fake: the device is lost" : "(CUDA error "));
	assert_int_equal(penstock_loader_next(l, &b, &e), -EIO);
	assert_int_equal(penstock_batch_use(held, NULL, &e), -EIO);
	assert_int_equal(penstock_batch_sync(held, &e), -EIO);
	penstock_batch_release(held);
	penstock_loader_close(l);
	ps_device_close(d);
}

struct gate {
	atomic_bool reached, open;
};

static void gate_wait(void *arg)
{
	struct gate *gate = arg;

	atomic_store(&gate->reached, true);
	while (!atomic_load(&gate->open))
		usleep(1000);
}

static void *lose_main(void *arg)
{
	on.lose();
	return arg;
}

/* The device is lost after the last batch was sent and before it has arrived; the caller has released the
 * batch. No later send can report the loss. */
static void a_device_lost_before_the_last_batch_arrived_is_an_error(void **state)
{
	struct penstock_loader *l;
	struct penstock_batch *held[2], *b;
	struct penstock_error e;
	struct gate gate = {false, false};
	pthread_t thread;
	void *stream;
	int n = 0, r;

	(void)state;
	if (strcmp(on.device, "fake") != 0) /* a driver's device stays lost */
		return;
	l = loader_open(on.device, 2, 2);
	stream = on.stream_new();
	while (n < 3 * SHARDS * PER_SHARD / 8 - 3) {
		b = next(l);
		n += b != NULL;
		if (b)
			penstock_batch_release(b);
	}
	for (int i = 0; i < 2; i++) { /* both slots are held: the last batch is not sent yet */
		assert_non_null(held[i] = next(l));
		assert_int_equal(penstock_batch_sync(held[i], &e), 0);
	}
	assert_int_equal(ps_fake_stream_call(stream, gate_wait, &gate), 0);
	while (!atomic_load(&gate.reached)) /* the device does nothing else from here on */
		usleep(1000);
	penstock_batch_release(held[0]);
	assert_non_null(b = next(l));
	penstock_batch_release(b);
	assert_int_equal(pthread_create(&thread, NULL, lose_main, NULL), 0);
	while (penstock_batch_sync(held[1], &e) == 0)
		usleep(1000);
	atomic_store(&gate.open, true);
	pthread_join(thread, NULL);
	for (int i = 0; i < 5000 && (r = penstock_loader_next(l, &b, &e)) == 0; i++)
		usleep(1000);
	assert_int_equal(r, -EIO);
	penstock_batch_release(held[1]);
	penstock_loader_close(l);
	on.stream_free(stream);
}

static void *run_one(void *arg)
{
	struct record got = record_new();
	struct penstock_loader *l = loader_open(on.device, 2, 2);
	void *stream = on.stream_new();
	struct penstock_batch *b;

	while ((b = next(l))) {
		use(b, stream);
		batch_record(b, stream, &got);
		penstock_batch_release(b);
	}
	on.sync(stream);
	penstock_loader_close(l);
	on.stream_free(stream);
	*(struct record *)arg = got;
	return NULL;
}

static void loaders_share_a_device(void **state)
{
	struct record got[3];
	pthread_t threads[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_one, &got[i]), 0);
	for (int i = 0; i < 3; i++) {
		struct record want = run_on_host(1);

		pthread_join(threads[i], NULL);
		records_same(&want, &got[i]);
	}
}

static void unknown_devices_are_refused_and_tensors_name_their_memory(void **state)
{
	static const char *const wrong[] = {
	        "cudax", "cuda1", "cuda-1", "cuda:", "cuda:x", "cuda:1x", "cuda:99999999999", "gpu", ""};
	struct penstock_options o;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_tensor t;
	struct penstock_error e;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		o.device = wrong[i];
		assert_int_equal(penstock_loader_open(&o, pattern, 1, &l, &e), -ENODEV);
		assert_non_null(strstr(e.text, wrong[i]));
		assert_non_null(strstr(e.text, "use cpu"));
	}
	o.device = "cuda:777";
	assert_int_equal(penstock_loader_open(&o, pattern, 1, &l, &e), -ENODEV);
	assert_non_null(strstr(e.text, "cuda")); /* no driver, or fewer devices */

	l = loader_open(on.device, 2, 1);
	b = next(l);
	t = tensor(b, "cls");
	assert_int_equal(
	        t.memory, strcmp(on.device, "cuda") == 0 ? PENSTOCK_MEMORY_CUDA : PENSTOCK_MEMORY_HOST);
	assert_int_equal(t.device, 0);
	assert_ptr_not_equal(t.data, t.host);
	penstock_batch_release(b);
	penstock_loader_close(l);

	l = loader_open(NULL, 2, 1);
	b = next(l);
	t = tensor(b, "cls");
	assert_int_equal(t.memory, PENSTOCK_MEMORY_HOST);
	assert_ptr_equal(t.data, t.host);
	assert_null(penstock_batch_event(b));
	assert_int_equal(penstock_batch_use(b, NULL, &e), 0);
	assert_int_equal(penstock_batch_sync(b, &e), 0);
	penstock_batch_release(b);
	penstock_loader_close(l);
}

/* The consumer captures a stream to a graph while it takes batches: no call may break the capture, or fail
 * because of it. */
static void a_graph_capture_of_the_consumer_is_not_broken(void **state)
{
	struct penstock_loader *l = loader_open(on.device, 2, 2);
	void *stream = on.stream_new();
	ps_cu_capture_mode mode = PS_CU_CAPTURE_GLOBAL;
	struct penstock_batch *b;

	(void)state;
	if (on.capture)
		on.capture(1);
	while (on.capture && (b = next(l))) {
		use(b, stream);
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	if (on.capture) {
		on.capture(0);
		assert_int_equal(cu->capture_mode(&mode), 0); /* the thread's mode is restored */
		assert_int_equal(mode, PS_CU_CAPTURE_GLOBAL);
	}
	on.stream_free(stream);
}

/* Bytes between the stretches of a slot are not copied to the device. */
static void only_the_stretches_of_a_slot_are_copied(void **state)
{
	enum { N = 3 * PS_DEVICE_PAGE };
	static const struct ps_stretch all = {0, N},
	                               some[] = {{0, 7}, {1000, 1}, {PS_DEVICE_PAGE, N - PS_DEVICE_PAGE}};
	struct ps_sending sending = {.nbytes = N, .stretches = &all, .nstretches = 1};
	struct ps_device_copies before, after;
	struct ps_device *d;
	struct ps_mirror *m;
	uint8_t *slot, *seen = malloc(N);
	void *stream;

	(void)state;
	assert_non_null(seen);
	assert_int_equal(ps_device_open(on.device, &d, NULL), 0);
	slot = d->ops->alloc(d, N, NULL);
	assert_non_null(slot);
	assert_int_equal(d->ops->mirror_new(d, &(struct ps_mirror_size){.slot = N}, &m, NULL), 0);
	stream = on.stream_new();
	sending.slot = slot;
	memset(slot, 'a', N);
	assert_int_equal(d->ops->send(m, &sending, NULL), 0);
	assert_int_equal(d->ops->wait(m, NULL), 0);
	d->ops->copies(d, &before);
	memset(slot, 'b', N);
	sending.stretches = some;
	sending.nstretches = PS_ARRAY_LEN(some);
	assert_int_equal(d->ops->send(m, &sending, NULL), 0);
	assert_int_equal(d->ops->use(m, stream, NULL), 0);
	on.copy_out(stream, seen, m->data, N);
	on.sync(stream);
	assert_int_equal(d->ops->wait(m, NULL), 0);
	d->ops->copies(d, &after);
	assert_int_equal(after.nbytes - before.nbytes, 7 + 1 + N - PS_DEVICE_PAGE);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(seen[i], i < 7 || i == 1000 || i >= PS_DEVICE_PAGE ? 'b' : 'a');
	on.stream_free(stream);
	d->ops->mirror_free(m);
	d->ops->free(d, slot, N);
	ps_device_close(d);
	free(seen);
}

static void a_batch_that_has_grown_gets_a_larger_mirror(void **state)
{
	enum { LARGE = 5 << 20 };
	static const struct ps_mirror_size small = {.slot = PS_DEVICE_PAGE};
	static const struct ps_stretch all = {0, LARGE};
	struct ps_sending sending = {.nbytes = LARGE, .stretches = &all, .nstretches = 1};
	struct ps_device *d;
	struct ps_mirror *m;
	uint8_t *slot, *seen = malloc(LARGE);
	void *stream;

	(void)state;
	assert_non_null(seen);
	assert_int_equal(ps_device_open(on.device, &d, NULL), 0);
	slot = d->ops->alloc(d, LARGE, NULL);
	assert_non_null(slot);
	for (size_t i = 0; i < LARGE; i++)
		slot[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(d->ops->mirror_new(d, &small, &m, NULL), 0);
	stream = on.stream_new();
	sending.slot = slot;
	assert_int_equal(d->ops->send(m, &sending, NULL), 0);
	assert_true(m->nbytes >= LARGE);
	assert_int_equal(d->ops->use(m, stream, NULL), 0);
	on.copy_out(stream, seen, m->data, LARGE);
	on.sync(stream);
	assert_memory_equal(seen, slot, LARGE);
	assert_int_equal(d->ops->wait(m, NULL), 0);
	on.stream_free(stream);
	d->ops->mirror_free(m);
	d->ops->free(d, slot, LARGE);
	ps_device_close(d);
	free(seen);
}

/* The streams of copies have priority over the consumer's. */
static void copies_use_streams_of_high_priority(void **state)
{
	const long before = on.urgent ? on.urgent() : 0;

	(void)state;
	penstock_loader_close(loader_open(on.device, 2, 2));
	if (on.urgent)
		assert_true(on.urgent() > before);
}

static void the_driver_reports_no_leaks(void **state)
{
	(void)state;
	if (on.leaks)
		assert_int_equal(on.leaks(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(streams_see_the_same_bytes_as_the_host),
	        cmocka_unit_test(memory_is_reused_only_after_all_streams),
	        cmocka_unit_test(a_repeated_row_is_not_valid_on_the_device),
	        cmocka_unit_test(device_batches_are_in_host_memory_too),
	        cmocka_unit_test(after_batch_sync_a_stream_need_not_wait),
	        cmocka_unit_test(an_error_reports_that_all_batches_are_held),
	        cmocka_unit_test(close_waits_for_work_given_to_streams),
	        cmocka_unit_test(set_epoch_restarts_an_epoch_in_the_middle),
	        cmocka_unit_test(loaders_share_a_device),
	        cmocka_unit_test(a_graph_capture_of_the_consumer_is_not_broken),
	        cmocka_unit_test(only_the_stretches_of_a_slot_are_copied),
	        cmocka_unit_test(a_batch_that_has_grown_gets_a_larger_mirror),
	        cmocka_unit_test(copies_use_streams_of_high_priority),
	        cmocka_unit_test(unknown_devices_are_refused_and_tensors_name_their_memory),
	        cmocka_unit_test(a_device_lost_before_the_last_batch_arrived_is_an_error),
	        /* The last two are for the fake device and the mock alone. */
	        cmocka_unit_test(the_driver_reports_no_leaks),
	        cmocka_unit_test(a_lost_device_is_an_error), /* last: a driver's device stays lost */
	};

	consumer_choose();
	return _cmocka_run_group_tests(
	        "loader-device", tests, PS_ARRAY_LEN(tests) - (on.lose ? 0 : 2), setup, teardown);
}
