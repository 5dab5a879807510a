#include "http/transfer_loop.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define EVENTS 64

/* Curl says what it wants to know of a socket. Level-triggered: what a read leaves behind is told again. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct ps_loop *loop = arg;
	struct epoll_event ev = {.data.fd = fd};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		ev.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		ev.events |= EPOLLOUT;
	if (epoll_ctl(loop->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0 &&
	        epoll_ctl(loop->epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev) < 0)
		ps_log_warning("transfer: epoll: %s", strerror(errno));
	curl_multi_assign(loop->multi, fd, loop); /* any pointer: known from now on */
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct ps_loop *loop = arg;

	(void)multi;
	loop->timer_ns = timeout_ms < 0 ? UINT64_MAX : ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS;
	return 0;
}

int ps_loop_init(struct ps_loop *loop)
{
	struct epoll_event ev = {.events = EPOLLIN};

	*loop = (struct ps_loop){.epoll = -1, .event = -1, .timer_ns = UINT64_MAX};
	loop->multi = curl_multi_init();
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ev.data.fd = loop->event;
	int rc = !loop->multi ? -ENOMEM : loop->epoll < 0 || loop->event < 0 ? -errno : 0;
	if (!rc && epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->event, &ev) < 0)
		rc = -errno;
	if (rc) {
		ps_loop_fini(loop);
		return rc;
	}
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
	return 0;
}

void ps_loop_fini(struct ps_loop *loop)
{
	curl_multi_cleanup(loop->multi); /* closes connections: on_socket() is called */
	if (loop->epoll >= 0)
		close(loop->epoll);
	if (loop->event >= 0)
		close(loop->event);
}

static int act(struct ps_loop *loop, curl_socket_t fd, int what)
{
	int running;
	CURLMcode mc = curl_multi_socket_action(loop->multi, fd, what, &running);

	if (mc == CURLM_OK)
		return 0;
	ps_log_warning("transfer: %s", curl_multi_strerror(mc));
	return -EIO;
}

static int take_event(struct ps_loop *loop, const struct epoll_event *ev)
{
	uint64_t count;
	int what = 0;

	if (ev->data.fd == loop->event)
		return read(loop->event, &count, sizeof count) < 0 && errno != EAGAIN ? -errno : 0;
	if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		what |= CURL_CSELECT_IN;
	if (ev->events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (ev->events & EPOLLERR)
		what |= CURL_CSELECT_ERR;
	return act(loop, ev->data.fd, what);
}

int ps_loop_run(struct ps_loop *loop, uint64_t deadline_ns, bool *ret_idle)
{
	struct epoll_event events[EVENTS];
	uint64_t now = ps_clock_mono_ns(), until = deadline_ns < loop->timer_ns ? deadline_ns : loop->timer_ns;
	uint64_t wait_ms = until > now ? (until - now + PS_NS_PER_MS - 1) / PS_NS_PER_MS : 0;
	int n = epoll_wait(loop->epoll, events, EVENTS, wait_ms > INT_MAX ? INT_MAX : (int)wait_ms);
	int rc = n < 0 && errno != EINTR ? -errno : 0;

	*ret_idle = n <= 0;
	for (int i = 0; i < n && !rc; i++)
		rc = take_event(loop, &events[i]);
	if (!rc && loop->timer_ns <= ps_clock_mono_ns()) {
		loop->timer_ns = UINT64_MAX; /* one-shot: curl may set it anew in here */
		rc = act(loop, CURL_SOCKET_TIMEOUT, 0);
		*ret_idle = false;
	}
	return rc;
}

void ps_loop_wake(struct ps_loop *loop)
{
	uint64_t one = 1;

	if (write(loop->event, &one, sizeof one) < 0 && errno != EAGAIN)
		ps_log_warning("transfer: cannot wake a thread: %s", strerror(errno));
}
