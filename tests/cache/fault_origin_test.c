/* The origin with faults (fault_origin.h) itself, on which other tests rely. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fault_origin.h"

static char path[] = "/tmp/penstock-fault-XXXXXX";
static char url[64];
static struct ps_remote version;

struct call {
	struct ps_origin_get get;
	struct ps_origin_head head;
	struct ps_error err;
	sem_t done;
	char bytes[8];
	struct iovec iov;
};

static void on_get(struct ps_origin_get *get, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	c->err = *err;
	sem_post(&c->done);
}

static void on_head(struct ps_origin_head *head, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)head - offsetof(struct call, head));

	c->err = *err;
	version = head->seen;
	sem_post(&c->done);
}

static void start(struct ps_fault_origin *o, struct call *c)
{
	memset(c, 0, sizeof(*c));
	sem_init(&c->done, 0, 0);
	c->iov = (struct iovec){c->bytes, 5};
	c->get = (struct ps_origin_get){
	        .url = url, .expect = version, .nbytes = 5, .iov = &c->iov, .niov = 1, .done = on_get};
	o->origin.ops->get(&o->origin, &c->get);
}

static int fetch(struct ps_fault_origin *o)
{
	struct call c;

	start(o, &c);
	sem_wait(&c.done);
	if (!c.err.err)
		assert_memory_equal(c.bytes, "bytes", 5);
	return c.err.err;
}

static struct ps_fault_origin *make(void)
{
	struct ps_origin *inner = NULL;

	assert_int_equal(ps_origin_open(path, NULL, &inner, NULL), 0);
	return ps_fault_origin_new(inner);
}

static void gets_fail_as_set(void **state)
{
	struct ps_fault_origin *o = make();

	(void)state;
	assert_int_equal(fetch(o), 0);
	atomic_store(&o->fail_nth, 2);
	assert_int_equal(fetch(o), 0);
	assert_int_equal(fetch(o), EIO);
	assert_int_equal(fetch(o), 0);
	atomic_store(&o->other_version, true);
	assert_int_equal(fetch(o), ESTALE);
	atomic_store(&o->other_version, false);
	assert_int_equal(atomic_load(&o->ngets), 5);
	o->origin.ops->close(&o->origin);
}

static void gets_wait_as_set(void **state)
{
	struct ps_fault_origin *o = make();
	struct call c, d;
	uint64_t before = ps_clock_mono_ns();

	(void)state;
	atomic_store(&o->delay_ms, 50);
	assert_int_equal(fetch(o), 0);
	assert_true(ps_clock_mono_ns() - before >= 50 * PS_NS_PER_MS);
	atomic_store(&o->delay_ms, 0);
	atomic_store(&o->stalled, true);
	start(o, &c);
	start(o, &d);
	usleep(20000);
	assert_int_equal(sem_trywait(&c.done), -1);
	o->origin.ops->cancel(&o->origin, &d.get);
	sem_wait(&d.done);
	assert_int_equal(d.err.err, ECANCELED);
	atomic_store(&o->stalled, false);
	sem_wait(&c.done);
	assert_int_equal(c.err.err, 0);
	atomic_store(&o->stalled, true);
	start(o, &c);
	o->origin.ops->close(&o->origin);
	assert_int_equal(sem_trywait(&c.done), 0);
	assert_int_equal(c.err.err, ECANCELED);
}

/* An origin whose get takes until the test lets it go on. */
static sem_t entered, go, cancelled;
static _Atomic(struct ps_origin_get *) submitted;

static void slow_get(struct ps_origin *o, struct ps_origin_get *get)
{
	(void)o;
	sem_post(&entered);
	sem_wait(&go);
	submitted = get;
}

static void slow_cancel(struct ps_origin *o, struct ps_origin_get *get)
{
	(void)o;
	if (submitted == get) /* else it has no effect */
		sem_post(&cancelled);
}

static void slow_abort(struct ps_origin *o)
{
	(void)o;
}

static void a_get_that_is_cancelled_while_it_begins_is_cancelled(void **state)
{
	static const struct ps_origin_ops slow_ops = {
	        .get = slow_get, .cancel = slow_cancel, .abort = slow_abort, .close = slow_abort};
	struct ps_origin slow = {.ops = &slow_ops};
	struct ps_error err = {.err = ECANCELED};
	struct ps_fault_origin *o = ps_fault_origin_new(&slow);
	struct call c;

	(void)state;
	sem_init(&entered, 0, 0);
	sem_init(&go, 0, 0);
	sem_init(&cancelled, 0, 0);
	start(o, &c);
	sem_wait(&entered);
	o->origin.ops->cancel(&o->origin, &c.get);
	sem_post(&go);
	sem_wait(&cancelled);
	((struct ps_origin_get *)submitted)->done(submitted, &err);
	sem_wait(&c.done);
	assert_int_equal(c.err.err, ECANCELED);
	o->origin.ops->close(&o->origin);
}

static int set_up(void **state)
{
	struct call c = {.head = {.url = url, .done = on_head}};
	int fd = mkstemp(path);

	(void)state;
	if (fd < 0 || write(fd, "bytes", 5) != 5 || close(fd) != 0)
		return -1;
	snprintf(url, sizeof(url), "file://%s", path);
	sem_init(&c.done, 0, 0);
	struct ps_fault_origin *o = make();
	o->origin.ops->head(&o->origin, &c.head);
	sem_wait(&c.done);
	o->origin.ops->close(&o->origin);
	return c.err.err;
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(gets_fail_as_set),
	        cmocka_unit_test(gets_wait_as_set),
	        cmocka_unit_test(a_get_that_is_cancelled_while_it_begins_is_cancelled),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
