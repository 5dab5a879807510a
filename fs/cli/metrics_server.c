#include "cli/metrics_server.h"

#include <errno.h>
#include <grp.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "options/options.h"

#define MAX_CONNECTIONS 8
#define IDLE_S 5 /* a connection without a request is closed */
#define NOBODY 65534
#define MAX_NBYTES ((uint64_t)256 << 20)

#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What the collecting process answers: this header, then the text. */
struct answer {
	uint32_t ok;
	uint64_t nbytes;
};

/* The process that parses HTTP. One of its threads asks for the metrics; others that arrive meanwhile get the same
 * text. */
struct server {
	int fd; /* to the collecting process */
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool asking;
	uint64_t nth; /* of the text */
	char *text;   /* NULL: the metrics could not be collected */
};

static bool write_all(int fd, const void *p, size_t n)
{
	for (ssize_t k; n > 0; p = (const char *)p + k, n -= (size_t)k)
		if ((k = send(fd, p, n, MSG_NOSIGNAL)) < 0 && errno == EINTR)
			k = 0;
		else if (k < 0)
			return false;
	return true;
}

static bool read_all(int fd, void *p, size_t n)
{
	for (ssize_t k; n > 0; p = (char *)p + k, n -= (size_t)k)
		if ((k = read(fd, p, n)) < 0 && errno == EINTR)
			k = 0;
		else if (k <= 0)
			return false;
	return true;
}

/* Asks the collecting process. NULL: it could not collect, or memory is short. */
static char *ask(int fd)
{
	struct answer answer;
	char *text = NULL;

	if (!write_all(fd, "", 1) || !read_all(fd, &answer, sizeof(answer)))
		_exit(PS_EXIT_FAILED); /* the collecting process has ended */
	if (answer.ok && (answer.nbytes > MAX_NBYTES || !(text = malloc(answer.nbytes + 1))))
		_exit(PS_EXIT_FAILED); /* the text would remain in the socket */
	if (text && !read_all(fd, text, answer.nbytes))
		_exit(PS_EXIT_FAILED);
	if (text)
		text[answer.nbytes] = '\0';
	return text;
}

/* A copy of a text that was collected after the call began, or while another request was waiting for it. */
static char *metrics_text(struct server *s)
{
	pthread_mutex_lock(&s->lock);
	if (s->asking) {
		for (uint64_t nth = s->nth; s->nth == nth;)
			pthread_cond_wait(&s->done, &s->lock);
	} else {
		s->asking = true;
		pthread_mutex_unlock(&s->lock);
		char *text = ask(s->fd);
		pthread_mutex_lock(&s->lock);
		free(s->text);
		s->text = text;
		s->asking = false;
		s->nth++;
		pthread_cond_broadcast(&s->done);
	}
	char *copy = s->text ? strdup(s->text) : NULL;
	pthread_mutex_unlock(&s->lock);
	return copy;
}

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, const char *text)
{
	struct MHD_Response *response =
	        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);

	if (!response)
		return MHD_NO; /* closes the connection */
	MHD_add_response_header(response, "Content-Type", CONTENT_TYPE);
	if (status == 405)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	enum MHD_Result result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *upload, size_t *nupload, void **state)
{
	(void)version;
	(void)upload;
	(void)nupload;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return respond(connection, 405, "only GET and HEAD\n"); /* without reading the body */
	if (!*state) { /* the first call has only the headers */
		*state = arg;
		return MHD_YES;
	}
	if (strcmp(url, "/metrics") != 0)
		return respond(connection, 404, "the metrics are at /metrics\n");
	ps_autofree char *text = metrics_text(arg);
	return text ? respond(connection, 200, text)
	            : respond(connection, 503,
	                      "the metrics could not be collected; penstock metrics printed the reason\n");
}

/* Gives up what a parser of requests does not need. */
static bool drop_privileges(void)
{
	if (geteuid() == 0 && (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	                              setresuid(NOBODY, NOBODY, NOBODY)))
		return false;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0) == 0 &&
	       prctl(PR_SET_PDEATHSIG, SIGTERM) == 0;
}

static void serve_http(int listener, int fd, pid_t parent)
{
	static struct server s = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

	s.fd = fd;
	if (!drop_privileges() || getppid() != parent) {
		perror("penstock metrics: the process for HTTP cannot give up its privileges");
		_exit(PS_EXIT_FAILED);
	}
	struct MHD_Daemon *daemon = MHD_start_daemon(
	        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, &s,
	        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
	        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_END);
	if (!daemon) {
		fputs("penstock metrics: libmicrohttpd cannot start\n", stderr);
		_exit(PS_EXIT_FAILED);
	}
	for (;;)
		pause();
}

/* Listens at `where`, and prints the URL. -1: the reason was printed. */
static int listen_at(const char *where)
{
	ps_autofree char *text = ps_need(strdup(where));
	char *colon = strrchr(text, ':');
	const char *port = colon ? colon + 1 : text, *host = colon ? text : "127.0.0.1";
	struct addrinfo *found,
	        hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};

	if (colon)
		*colon = '\0';
	if (colon && host[0] == '[' && colon[-1] == ']') {
		host++;
		colon[-1] = '\0';
	}
	/* getaddrinfo() takes 70000 as 4464. */
	bool good =
	        *host && *port && !port[strspn(port, "0123456789")] && strtoul(port, NULL, 10) <= UINT16_MAX;
	int rc = good ? getaddrinfo(host, port, &hints, &found) : EAI_NONAME;
	if (rc) {
		ps_cli_fail("metrics", 0,
		        "--listen %s: not PORT, ADDRESS:PORT or [IPv6]:PORT with a numeric address", where);
		return -1;
	}
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) ||
	        bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 16)) {
		ps_cli_fail("metrics", 0, "--listen %s: %s", where, strerror(errno));
		freeaddrinfo(found);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	freeaddrinfo(found);

	struct sockaddr_storage bound;
	socklen_t nbound = sizeof(bound);
	char name[64] = "", number[16] = "";
	getsockname(fd, (struct sockaddr *)&bound, &nbound);
	getnameinfo((struct sockaddr *)&bound, nbound, name, sizeof(name), number, sizeof(number),
	        NI_NUMERICHOST | NI_NUMERICSERV);
	bool v6 = bound.ss_family == AF_INET6;
	fprintf(stderr, "penstock metrics: listening on http://%s%s%s:%s/metrics\n", v6 ? "[" : "", name,
	        v6 ? "]" : "", number);
	return fd;
}

/* Answers the server's requests until it dies. Returns its status. */
static int collect_on_request(int fd, pid_t server, ps_metrics_fn *fn, void *arg)
{
	int status = 0;
	char byte;

	while (read_all(fd, &byte, 1)) {
		ps_autofree char *text = fn(arg);
		struct answer answer = {.ok = text != NULL, .nbytes = text ? strlen(text) : 0};

		if (!write_all(fd, &answer, sizeof(answer)) ||
		        !write_all(fd, text ? text : "", answer.nbytes))
			break;
		/* Children that asked a mount which hangs were killed, but not awaited. */
		for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
			if (pid == server)
				return status;
	}
	kill(server, SIGKILL);
	waitpid(server, &status, 0);
	return status;
}

int ps_metrics_serve(const char *where, ps_metrics_fn *fn, void *arg)
{
	int listener = listen_at(where), pair[2];
	pid_t parent = getpid();

	if (listener < 0)
		return PS_EXIT_FAILED;
	pid_t child = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 ? fork() : -1;
	if (child < 0)
		return ps_cli_fail("metrics", PS_EXIT_FAILED, "no process for HTTP: %s", strerror(errno));
	if (child == 0) {
		close(pair[0]);
		serve_http(listener, pair[1], parent);
	}
	close(pair[1]);
	close(listener);
	int status = collect_on_request(pair[0], child, fn, arg);
	return ps_cli_fail("metrics", PS_EXIT_FAILED, "the process for HTTP has ended (%s %d)",
	        WIFSIGNALED(status) ? "signal" : "exit code",
	        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
