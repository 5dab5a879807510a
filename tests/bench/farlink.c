/* A link to a far origin, for kernels without sch_netem: a TCP proxy on loopback that delays and paces.
 *
 * With a round trip time of R and a rate of B a connection, a client's first bytes are answered after 2 R
 * (handshake and request), later bytes after R. The answer comes at B bytes a second at most; in the first
 * round trips it is as slow as TCP's slow start (ten packets, doubled each R). The whole of R is spent on
 * the way to the server: a client cannot distinguish that from half of R each way. The answer, which is most
 * of the bytes, can then be spliced from socket to socket without being copied, so that the link costs less
 * than the programs that are measured. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 4
#define PIPE_NBYTES (1 << 20)
#define SPLICE_NBYTES (512 << 10)
#define BURST_NS 12000000.0  /* tokens saved up while the other side was not ready */
#define FIRST_WINDOW 14600.0 /* what a Linux server sends before the first acknowledgement */
#define EVENTS 64

struct part { /* bytes on their way to the server */
	struct part *next;
	uint64_t due_ns;
	size_t nbytes, sent;
	char bytes[];
};

struct end {
	struct conn *conn;
	int fd;
	bool readable, writable; /* as far as epoll, which is edge-triggered, has reported */
};

struct conn {
	struct conn *next, **prev;
	struct end client, server;
	int pipe[2];
	size_t in_pipe;
	struct part *first, **last;
	bool shook_hands, server_ended, dead;
	double tokens, window;
	uint64_t filled_ns;
};

static struct {
	int epoll;
	double rtt_ns, bytes_per_ns; /* 0: no limit */
	struct sockaddr_in server;
	struct conn *conns;
} link_;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "farlink: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int watch(struct end *e)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = e};

	return epoll_ctl(link_.epoll, EPOLL_CTL_ADD, e->fd, &ev);
}

static void conn_free(struct conn *c)
{
	int fds[] = {c->client.fd, c->server.fd, c->pipe[0], c->pipe[1]};

	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	while (c->first) {
		struct part *p = c->first;

		c->first = p->next;
		free(p);
	}
	free(c);
}

static void take_client(int fd)
{
	struct conn *c = calloc(1, sizeof(*c));
	int one = 1;

	if (!c)
		die("out of memory");
	c->pipe[0] = c->pipe[1] = -1;
	c->client = (struct end){.conn = c, .fd = fd};
	c->server =
	        (struct end){.conn = c, .fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
	c->last = &c->first;
	c->window = FIRST_WINDOW;
	c->filled_ns = now_ns();
	c->prev = &link_.conns;
	c->next = link_.conns;
	if (c->next)
		c->next->prev = &c->next;
	link_.conns = c;
	if (c->server.fd < 0 || pipe2(c->pipe, O_NONBLOCK | O_CLOEXEC) < 0 || watch(&c->client) < 0 ||
	        (connect(c->server.fd, (struct sockaddr *)&link_.server, sizeof(link_.server)) < 0 &&
	                errno != EINPROGRESS) ||
	        watch(&c->server) < 0) {
		fprintf(stderr, "farlink: a connection: %s\n", strerror(errno));
		conn_free(c);
		return;
	}
	(void)fcntl(c->pipe[1], F_SETPIPE_SZ, PIPE_NBYTES);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(c->server.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Reads what the client sends, and queues it with the time when it may arrive at the server. */
static void take_up(struct conn *c, uint64_t now)
{
	char bytes[16384];

	while (c->client.readable && !c->dead) {
		ssize_t n = read(c->client.fd, bytes, sizeof(bytes));

		if (n <= 0) {
			c->client.readable = false;
			c->dead = n == 0 || errno != EAGAIN;
			return;
		}
		struct part *p = malloc(sizeof(*p) + (size_t)n);
		if (!p)
			die("out of memory");
		*p = (struct part){.due_ns = now + (uint64_t)(link_.rtt_ns * (c->shook_hands ? 1 : 2)),
		        .nbytes = (size_t)n};
		memcpy(p->bytes, bytes, (size_t)n);
		/* (The queue keeps the order: these bytes cannot arrive before the first ones.) */
		c->shook_hands = c->shook_hands || !c->first;
		*c->last = p;
		c->last = &p->next;
	}
}

static void send_up(struct conn *c, uint64_t now)
{
	while (c->first && c->first->due_ns <= now && c->server.writable) {
		struct part *p = c->first;
		ssize_t n = send(c->server.fd, p->bytes + p->sent, p->nbytes - p->sent, MSG_NOSIGNAL);

		if (n < 0) {
			c->server.writable = false;
			c->dead = c->dead || errno != EAGAIN;
			return;
		}
		p->sent += (size_t)n;
		if (p->sent < p->nbytes)
			continue;
		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
		free(p);
	}
}

/* How many bytes may be sent to the client by now. */
static size_t allowance(struct conn *c, uint64_t now)
{
	double rate = link_.bytes_per_ns;

	if (!rate)
		return SPLICE_NBYTES;
	if (link_.rtt_ns && c->window / link_.rtt_ns < rate)
		rate = c->window / link_.rtt_ns;
	c->tokens += rate * (double)(now - c->filled_ns);
	c->filled_ns = now;
	double most = rate * BURST_NS + 1500;
	if (c->tokens > most)
		c->tokens = most;
	return c->tokens < 0 ? 0 : (size_t)c->tokens;
}

static void move_down(struct conn *c, uint64_t now)
{
	size_t may = allowance(c, now);

	while (!c->dead) {
		bool moved = false;

		if (may && c->server.readable && c->in_pipe < PIPE_NBYTES / 2) {
			ssize_t n = splice(c->server.fd, NULL, c->pipe[1], NULL,
			        may < SPLICE_NBYTES ? may : SPLICE_NBYTES, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

			if (n > 0) {
				c->in_pipe += (size_t)n;
				c->tokens -= (double)n;
				c->window += (double)n;
				may -= (size_t)n;
				moved = true;
			} else if (n == 0) {
				c->server_ended = true;
				c->server.readable = false;
			} else if (errno == EAGAIN) {
				c->server.readable =
				        c->in_pipe > 0; /* > 0: the pipe may be full of small pieces */
			} else {
				c->dead = true;
			}
		}
		if (c->in_pipe && c->client.writable) {
			ssize_t n = splice(c->pipe[0], NULL, c->client.fd, NULL, c->in_pipe,
			        SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

			if (n > 0) {
				c->in_pipe -= (size_t)n;
				moved = true;
			} else {
				c->client.writable = false;
				c->dead = n == 0 || errno != EAGAIN;
			}
		}
		if (!moved)
			break;
	}
	c->dead = c->dead || (c->server_ended && !c->in_pipe);
}

/* Moves all bytes that can move. Returns for how many ms nothing else can; -1: until epoll reports an
 * event. */
static int work(void)
{
	uint64_t now = now_ns();
	int wait = -1;

	for (struct conn *c = link_.conns, *next; c; c = next) {
		next = c->next;
		take_up(c, now);
		send_up(c, now);
		move_down(c, now);
		if (c->dead)
			conn_free(c);
		else if (c->first || c->server.readable || c->in_pipe)
			wait = TICK_MS;
	}
	return wait;
}

static void take_event(const struct epoll_event *ev, int listener)
{
	struct end *e = ev->data.ptr;

	if (e) {
		e->readable = e->readable || (ev->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR));
		e->writable = e->writable || (ev->events & EPOLLOUT);
		return;
	}
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		take_client(fd);
	}
}

static int listen_anywhere(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1024) < 0 ||
	        getsockname(fd, (struct sockaddr *)&at, &len) < 0 ||
	        epoll_ctl(link_.epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		die("cannot listen on loopback");
	printf("%u\n", (unsigned)ntohs(at.sin_port));
	fflush(stdout);
	return fd;
}

static void usage(FILE *f)
{
	fputs("Usage: farlink [--rtt-ms N] [--rate BYTES] ADDRESS PORT\n\n"
	      "Forwards connections on loopback (the port is printed) to ADDRESS PORT (IPv4), as over a far "
	      "link:\n"
	      "  --rtt-ms N     round trip time [40]\n"
	      "  --rate BYTES   bytes a second of each connection; 0: no limit [50000000]\n",
	        f);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"rtt-ms", required_argument, NULL, 't'},
	        {"rate", required_argument, NULL, 'r'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct epoll_event events[EVENTS];
	double rtt_ms = 40, rate = 50e6;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 't':
			rtt_ms = atof(optarg);
			break;
		case 'r':
			rate = atof(optarg);
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	link_.rtt_ns = rtt_ms * 1e6;
	link_.bytes_per_ns = rate / 1e9;
	link_.server = (struct sockaddr_in){.sin_family = AF_INET};
	if (argc - optind != 2 || inet_pton(AF_INET, argv[optind], &link_.server.sin_addr) != 1) {
		usage(stderr);
		return 2;
	}
	link_.server.sin_port = htons((uint16_t)atoi(argv[optind + 1]));
	signal(SIGPIPE, SIG_IGN);
	link_.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (link_.epoll < 0)
		die("epoll");
	int listener = listen_anywhere();
	for (int wait = -1;;) {
		int n = epoll_wait(link_.epoll, events, EVENTS, wait);

		if (n < 0 && errno != EINTR)
			die("epoll");
		for (int i = 0; i < n; i++)
			take_event(&events[i], listener);
		wait = work();
	}
}
