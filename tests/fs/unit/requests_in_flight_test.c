/* Requests are answered by the cache, or because their process ends, whichever is first. A mock of libfuse
 * keeps libfuse's locking: the interrupt function runs with the request's lock held. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "fuse/requester.h"
#include "fuse/requests_in_flight.h"

struct fuse_req {
	pthread_mutex_t lock;
	pthread_mutex_t list_lock; /* refs, func, data */
	fuse_interrupt_func_t func;
	void *data;
	bool interrupted;
	int refs;
	_Atomic int *replies, *freed, *ret_errnum;
};

static void req_unref(struct fuse_req *req)
{
	pthread_mutex_lock(&req->list_lock);
	int refs = --req->refs;
	pthread_mutex_unlock(&req->list_lock);
	if (refs > 0)
		return;
	atomic_fetch_add(req->freed, 1);
	pthread_mutex_destroy(&req->lock);
	pthread_mutex_destroy(&req->list_lock);
	free(req);
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
	static const struct fuse_ctx ctx = {.pid = 4711};

	(void)req;
	return &ctx;
}

static _Atomic enum ps_requester requester;
static _Atomic int looks;

enum ps_requester ps_requester_of(pid_t tid)
{
	assert_int_equal(tid, 4711);
	atomic_fetch_add(&looks, 1);
	return atomic_load(&requester);
}

int fuse_reply_err(fuse_req_t req, int err)
{
	if (req->ret_errnum)
		*req->ret_errnum = err;
	atomic_fetch_add(req->replies, 1);
	pthread_mutex_lock(&req->list_lock);
	req->func = NULL;
	pthread_mutex_unlock(&req->list_lock);
	req_unref(req);
	return 0;
}

void fuse_req_interrupt_func(fuse_req_t req, fuse_interrupt_func_t func, void *data)
{
	pthread_mutex_lock(&req->lock);
	pthread_mutex_lock(&req->list_lock);
	req->func = func;
	req->data = data;
	pthread_mutex_unlock(&req->list_lock);
	if (req->interrupted && func)
		func(req, data);
	pthread_mutex_unlock(&req->lock);
}

/* What libfuse does when INTERRUPT comes; the caller holds a reference. */
static void interrupt(struct fuse_req *req)
{
	pthread_mutex_lock(&req->lock);
	pthread_mutex_lock(&req->list_lock);
	req->interrupted = true;
	fuse_interrupt_func_t func = req->func;
	void *data = req->data;
	pthread_mutex_unlock(&req->list_lock);
	if (func)
		func(req, data);
	pthread_mutex_unlock(&req->lock);
}

/* A request in a cache, whose part the test plays. */
struct op {
	struct ps_inflight inflight;
	bool cancellable;
};

static struct ps_inflight_table table;
static _Atomic int replies, freed_reqs, cancels;
static _Atomic int last_errnum;

static void call_back(struct op *op, int errnum)
{
	if (ps_inflight_claim(&op->inflight))
		fuse_reply_err(op->inflight.req, errnum);
	ps_inflight_put(&op->inflight);
}

static void cancel_op(struct ps_inflight *inflight)
{
	atomic_fetch_add(&cancels, 1);
	call_back(PS_CONTAINER_OF(inflight, struct op, inflight), ECANCELED);
}

/* A cancel that comes too late: the callback is already running. */
static void cancel_nothing(struct ps_inflight *inflight)
{
	(void)inflight;
	atomic_fetch_add(&cancels, 1);
}

static struct fuse_req *new_req(int refs)
{
	struct fuse_req *req = calloc(1, sizeof(*req));

	assert_non_null(req);
	pthread_mutex_init(&req->lock, NULL);
	pthread_mutex_init(&req->list_lock, NULL);
	req->refs = refs;
	req->replies = &replies;
	req->freed = &freed_reqs;
	req->ret_errnum = &last_errnum;
	return req;
}

static struct op *new_op(struct fuse_req *req, void (*cancel)(struct ps_inflight *inflight))
{
	struct op *op = ps_inflight_new(sizeof(*op), &table, req, cancel);

	assert_non_null(op);
	return op;
}

/* Waits until the watcher has changed the count. */
static void await(_Atomic int *count, int expected)
{
	for (int i = 0; i < 5000 && atomic_load(count) < expected; i++)
		poll(NULL, 0, 1);
	assert_int_equal(atomic_load(count), expected);
}

static int setup(void **state)
{
	(void)state;
	ps_inflight_table_init(&table);
	assert_int_equal(ps_inflight_watch(&table), 0);
	requester = PS_REQUESTER_ENDS;
	looks = 0;
	replies = freed_reqs = cancels = 0;
	last_errnum = -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_true(ps_inflight_drain(&table, false, 1000));
	ps_inflight_unwatch(&table);
	assert_true(ps_list_empty(&table.list));
	assert_int_equal(replies, 1);
	assert_int_equal(freed_reqs, 1);
	assert_int_equal(table.outstanding, 0);
	ps_inflight_table_fini(&table);
	return 0;
}

static void test_answered_while_issued(void **state)
{
	struct op *op = new_op(new_req(1), NULL);

	(void)state;
	call_back(op, 0);
	assert_int_equal(table.outstanding, 1); /* the issuer still holds it */
	ps_inflight_issued(&op->inflight);
	assert_int_equal(last_errnum, 0);
}

static void test_answered_later(void **state)
{
	struct op *op = new_op(new_req(1), NULL);

	(void)state;
	ps_inflight_issued(&op->inflight);
	assert_false(ps_inflight_drain(&table, false, 1));
	call_back(op, EIO);
	assert_int_equal(last_errnum, EIO);
}

static void test_interrupt_answers_at_once(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, NULL);

	(void)state;
	ps_inflight_issued(&op->inflight);
	interrupt(req);
	await(&replies, 1);
	assert_int_equal(last_errnum, EINTR);
	req_unref(req);
	call_back(op, 0); /* the interrupt has answered */
	assert_int_equal(last_errnum, EINTR);
}

static void test_interrupt_cancels(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, cancel_op);

	(void)state;
	ps_inflight_issued(&op->inflight);
	interrupt(req);
	await(&replies, 1);
	assert_int_equal(last_errnum, ECANCELED);
	assert_int_equal(cancels, 1);
	req_unref(req);
}

static void test_interrupt_before_it_was_issued(void **state)
{
	struct fuse_req *req = new_req(1);
	struct op *op = new_op(req, NULL);

	(void)state;
	interrupt(req);
	ps_inflight_issued(&op->inflight);
	await(&replies, 1);
	assert_int_equal(last_errnum, EINTR);
	call_back(op, 0);
}

static void test_interrupt_before_it_was_issued_cancels(void **state)
{
	struct fuse_req *req = new_req(1);
	struct op *op = new_op(req, cancel_op);

	(void)state;
	interrupt(req);
	ps_inflight_issued(&op->inflight);
	await(&replies, 1);
	assert_int_equal(last_errnum, ECANCELED);
}

static void test_interrupt_of_a_thread_that_lives(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, cancel_op);

	(void)state;
	requester = PS_REQUESTER_LIVES;
	ps_inflight_issued(&op->inflight);
	interrupt(req);
	req_unref(req);
	await(&looks, 3);
	assert_int_equal(replies, 0);
	call_back(op, 0);
	assert_int_equal(cancels, 0);
	assert_int_equal(last_errnum, 0);
}

static void test_interrupt_of_a_thread_that_ends_later(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, NULL);

	(void)state;
	requester = PS_REQUESTER_LIVES;
	ps_inflight_issued(&op->inflight);
	interrupt(req);
	req_unref(req);
	await(&looks, 2);
	requester = PS_REQUESTER_ENDS;
	await(&replies, 1);
	assert_int_equal(last_errnum, EINTR);
	call_back(op, 0);
}

static void test_interrupt_of_an_unknown_thread(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, cancel_op);

	(void)state;
	requester = PS_REQUESTER_UNKNOWN;
	ps_inflight_issued(&op->inflight);
	interrupt(req);
	req_unref(req);
	await(&replies, 1);
	assert_int_equal(cancels, 1);
}

/* Without an INTERRUPT, an unknown thread says nothing. */
static void test_silent(void **state)
{
	struct op *op = new_op(new_req(1), cancel_op);

	(void)state;
	requester = PS_REQUESTER_UNKNOWN;
	op->inflight.silent = true;
	ps_inflight_issued(&op->inflight);
	await(&looks, 2);
	assert_int_equal(replies, 0);
	requester = PS_REQUESTER_ENDS;
	await(&replies, 1);
	assert_int_equal(cancels, 1);
}

static void test_interrupt_after_the_answer(void **state)
{
	struct fuse_req *req = new_req(2);
	struct op *op = new_op(req, cancel_op);

	(void)state;
	ps_inflight_issued(&op->inflight);
	call_back(op, 0);
	interrupt(req);
	assert_int_equal(cancels, 0);
	req_unref(req);
}

static void test_cancel_all_leaves_requests_that_cannot_be_cancelled(void **state)
{
	struct op *op = new_op(new_req(1), NULL);

	(void)state;
	ps_inflight_issued(&op->inflight);
	ps_inflight_cancel_all(&table);
	assert_int_equal(replies, 0);
	call_back(op, 0);
}

static void test_cancel_all_cancels(void **state)
{
	struct op *op = new_op(new_req(1), cancel_op);

	(void)state;
	ps_inflight_issued(&op->inflight);
	ps_inflight_cancel_all(&table);
	assert_int_equal(last_errnum, ECANCELED);
}

#define RACES 3000

struct race {
	pthread_barrier_t start;
	struct op *op;
	struct fuse_req *req;
};

static void *race_callback(void *arg)
{
	struct race *race = arg;

	pthread_barrier_wait(&race->start);
	call_back(race->op, 0);
	return NULL;
}

static void *race_interrupt(void *arg)
{
	struct race *race = arg;

	pthread_barrier_wait(&race->start);
	interrupt(race->req);
	req_unref(race->req);
	return NULL;
}

/* Issuer, callback and interrupt run at once, in any order: there is one answer, and all is freed once. */
static void test_races_answer_once(void **state)
{
	(void)state;
	setup(NULL);
	for (int i = 0; i < RACES; i++) {
		struct race race = {.req = new_req(2)};
		pthread_t callback, interrupter;

		requester = (enum ps_requester)(i % 3);
		replies = freed_reqs = 0;
		race.op = new_op(race.req, i % 2 ? cancel_nothing : NULL);
		pthread_barrier_init(&race.start, NULL, 3);
		pthread_create(&callback, NULL, race_callback, &race);
		pthread_create(&interrupter, NULL, race_interrupt, &race);
		pthread_barrier_wait(&race.start);
		ps_inflight_issued(&race.op->inflight);
		pthread_join(callback, NULL);
		pthread_join(interrupter, NULL);
		pthread_barrier_destroy(&race.start);
		assert_true(ps_inflight_drain(&table, false, 1000));
		await(&freed_reqs, 1);
		assert_int_equal(replies, 1);
		assert_int_equal(table.outstanding, 0);
	}
	teardown(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_answered_while_issued),
	        TEST(test_answered_later),
	        TEST(test_interrupt_answers_at_once),
	        TEST(test_interrupt_cancels),
	        TEST(test_interrupt_before_it_was_issued),
	        TEST(test_interrupt_before_it_was_issued_cancels),
	        TEST(test_interrupt_after_the_answer),
	        TEST(test_cancel_all_leaves_requests_that_cannot_be_cancelled),
	        TEST(test_cancel_all_cancels),
	        TEST(test_interrupt_of_a_thread_that_lives),
	        TEST(test_interrupt_of_a_thread_that_ends_later),
	        TEST(test_interrupt_of_an_unknown_thread),
	        TEST(test_silent),
	        cmocka_unit_test(test_races_answer_once),
	};

	return cmocka_run_group_tests_name("requests_in_flight", tests, NULL, NULL);
}
