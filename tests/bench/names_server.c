/* A stand-in for an S3 server with very many names, and a bare loop that lists them.
 *
 *   names_server --keys N [--page-ms MS] [--shape flat|folders] [--port PORT]   serves a bucket; prints its port
 *   names_server --keys N --loop PORT [--chains N]                              lists it, and prints keys a second
 *
 * Keys are functions of their number and in the order of numbers, so no memory is needed for them and a
 * start-after is found by bisection. A page has at most 1,000 keys and comes MS milliseconds after its
 * request at the earliest, as from a store at some distance; so does the answer to a HEAD. Each object's
 * version is a function of its key. Objects have a size, but their bytes cannot be read.
 *
 * The loop is what a listing can cost at least: CHAINS threads, each of an equal part of the names, request
 * page after page and count the keys in them. It knows the parts in advance. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAGE_KEYS 1000
#define KEY_LEN 80
#define REQUEST_NBYTES 16384
#define HEAD_NBYTES 512
#define ENTRY_NBYTES 400
#define FOLDER_KEYS 1300 /* as the classes of a well-known set of photographs */

static uint64_t nkeys = 1000000;
static uint64_t page_ms = 40;
static bool folders;
static int own_port; /* 0: any free one */

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

/* The numbers in keys have gaps of random size, as real names have. */
static void key_of(uint64_t i, char ret[static KEY_LEN])
{
	unsigned long long number = i * 37 + mix(i) % 37;

	if (folders)
		snprintf(ret, KEY_LEN, "data/train/n%08llu/n%08llu_%012llu.JPEG",
		        (unsigned long long)(i / FOLDER_KEYS * 61),
		        (unsigned long long)(i / FOLDER_KEYS * 61), number);
	else
		snprintf(ret, KEY_LEN, "data/train/sample-%012llu.jpg", number);
}

static uint64_t nbytes_of(uint64_t i)
{
	return 100000 + mix(i) % 10000;
}

/* The number of keys that are not greater than text. */
static uint64_t after(const char *text)
{
	uint64_t from = 0, to = nkeys;

	while (from < to) {
		uint64_t mid = from + (to - from) / 2;
		char key[KEY_LEN];

		key_of(mid, key);
		if (strcmp(key, text) <= 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/* The server --------------------------------------------------------------------------------------------- */

static bool parameter(const char *query, const char *name, char *ret, size_t cap)
{
	size_t n = strlen(name), to = 0;

	for (const char *s = query; s && *s; s = strchr(s, '&') ? strchr(s, '&') + 1 : NULL) {
		if (strncmp(s, name, n) != 0 || s[n] != '=')
			continue;
		for (s += n + 1; *s && *s != '&' && *s != ' ' && to + 1 < cap; s++) {
			unsigned c = (unsigned char)*s;

			if (*s == '%' && sscanf(s + 1, "%2x", &c) == 1)
				s += 2;
			ret[to++] = (char)c;
		}
		ret[to] = '\0';
		return true;
	}
	return false;
}

static bool send_all(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		bytes += sent;
		n -= (size_t)sent;
	}
	return true;
}

/* Writes the page to body; returns its length. */
static size_t write_page(const char *query, char *body)
{
	char text[2 * KEY_LEN + 1024] = "", prefix[2 * KEY_LEN + 1024] = "", number[24];
	uint64_t i = 0, end = nkeys, max = PAGE_KEYS;
	char *to = body;

	if (parameter(query, "prefix", prefix, sizeof(prefix)) && *prefix) {
		char past[sizeof(prefix)];

		memcpy(past, prefix, sizeof(past));
		past[strlen(past) - 1]++;
		i = after(prefix);
		end = after(past);
	}
	if (parameter(query, "max-keys", number, sizeof(number)))
		max = strtoull(number, NULL, 10);
	if (parameter(query, "continuation-token", text, sizeof(text)))
		i = strtoull(text, NULL, 10);
	else if (parameter(query, "start-after", text, sizeof(text)) && after(text) > i)
		i = after(text);
	if (max > PAGE_KEYS)
		max = PAGE_KEYS;
	to += sprintf(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
	                  "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>names</Name>");
	for (uint64_t last = i + max; i < end && i < last; i++) {
		char key[KEY_LEN];

		key_of(i, key);
		to += sprintf(to,
		        "<Contents><Key>%s</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
		        "<ETag>&quot;%016llx%016llx&quot;</ETag><Size>%llu</Size>"
		        "<StorageClass>STANDARD</StorageClass></Contents>",
		        key, (unsigned long long)mix(i), (unsigned long long)mix(i + 1),
		        (unsigned long long)nbytes_of(i));
	}
	to += sprintf(to, "<IsTruncated>%s</IsTruncated>", i < end ? "true" : "false");
	if (i < end)
		to += sprintf(
		        to, "<NextContinuationToken>%llu</NextContinuationToken>", (unsigned long long)i);
	to += sprintf(to, "<EncodingType>url</EncodingType></ListBucketResult>");
	return (size_t)(to - body);
}

/* Writes the answer to a HEAD of "/BUCKET/KEY"; returns its length. */
static size_t write_head(const char *path, char *to)
{
	char key[KEY_LEN];
	const char *name = strchr(path + 1, '/');
	uint64_t i = 0;

	snprintf(key, sizeof(key), "%.*s", name ? (int)strcspn(name + 1, " ?") : 0, name ? name + 1 : "");
	i = after(key);
	char last[KEY_LEN] = "";
	if (i > 0)
		key_of(i - 1, last);
	if (strcmp(key, last) != 0)
		return (size_t)sprintf(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
	return (size_t)sprintf(to,
	        "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\nETag: \"%016llx%016llx\"\r\n"
	        "Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\n\r\n",
	        (unsigned long long)nbytes_of(i - 1), (unsigned long long)mix(i - 1),
	        (unsigned long long)mix(i));
}

static bool answer(int fd, const char *request, char *page)
{
	char head[HEAD_NBYTES], *body = page + HEAD_NBYTES;
	struct timespec due;
	const char *query = strchr(request, '?'), *line = strpbrk(request, "\r\n");
	bool lists = query && line && query < line && strncmp(request, "GET ", 4) == 0;
	size_t n = 0, nhead;

	clock_gettime(CLOCK_MONOTONIC, &due);
	due.tv_nsec += (long)(page_ms % 1000) * 1000000;
	due.tv_sec += (time_t)(page_ms / 1000) + due.tv_nsec / 1000000000;
	due.tv_nsec %= 1000000000;
	if (lists) {
		n = write_page(query + 1, body);
		nhead = (size_t)sprintf(head,
		        "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n", n);
	} else {
		nhead = write_head(request + strcspn(request, "/"), head);
	}
	memcpy(body - nhead, head, nhead);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
		;
	return send_all(fd, body - nhead, nhead + n);
}

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char request[REQUEST_NBYTES], *page = malloc(HEAD_NBYTES + 1024 + PAGE_KEYS * ENTRY_NBYTES);
	size_t n = 0;

	while (page) {
		ssize_t got = recv(fd, request + n, sizeof(request) - 1 - n, 0);

		if (got <= 0)
			break;
		n += (size_t)got;
		request[n] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		n = 0;
		if (!answer(fd, request, page))
			break;
	}
	free(page);
	close(fd);
	return NULL;
}

static void serve(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
	        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	        .sin_port = htons((uint16_t)own_port)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	        listen(listener, 128) < 0 || getsockname(listener, (struct sockaddr *)&at, &len) < 0)
		fail("listen");
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		pthread_t thread;

		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd) != 0)
			fail("thread");
		pthread_detach(thread);
	}
}

/* The bare loop ------------------------------------------------------------------------------------------ */

static int port;
static uint64_t nchains = 1;
static _Atomic uint64_t nlisted;

/* Receives an answer whole into buffer, and returns its length. */
static size_t receive(int fd, char *buffer, size_t cap)
{
	size_t n = 0, whole = SIZE_MAX;

	while (n < whole) {
		ssize_t got = recv(fd, buffer + n, cap - 1 - n, 0);

		if (got <= 0)
			fail("recv");
		n += (size_t)got;
		buffer[n] = '\0';
		const char *end = strstr(buffer, "\r\n\r\n"), *length = strcasestr(buffer, "Content-Length:");

		if (whole == SIZE_MAX && end && length)
			whole = (size_t)(end + 4 - buffer) + strtoull(length + 15, NULL, 10);
	}
	return n;
}

static void *chain(void *arg)
{
	uint64_t number = (uint64_t)(intptr_t)arg, i = nkeys * number / nchains,
	         end = nkeys * (number + 1) / nchains;
	struct sockaddr_in at = {.sin_family = AF_INET,
	        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	        .sin_port = htons((uint16_t)port)};
	size_t cap = HEAD_NBYTES + 2048 + PAGE_KEYS * ENTRY_NBYTES;
	char *buffer = malloc(cap), request[HEAD_NBYTES];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (!buffer || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		fail("connect");
	while (i < end) {
		int n = sprintf(request,
		        "GET /names?list-type=2&continuation-token=%llu&max-keys=%llu HTTP/1.1\r\n\r\n",
		        (unsigned long long)i, (unsigned long long)(end - i));
		uint64_t before = i;

		if (!send_all(fd, request, (size_t)n))
			fail("send");
		receive(fd, buffer, cap);
		for (const char *s = buffer; (s = strstr(s, "<Key>")); s += 5)
			i++;
		if (i == before)
			break;
		atomic_fetch_add(&nlisted, i - before);
	}
	close(fd);
	free(buffer);
	return NULL;
}

static void loop(void)
{
	pthread_t threads[64];
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (uint64_t i = 0; i < nchains; i++)
		if (pthread_create(&threads[i], NULL, chain, (void *)(intptr_t)i) != 0)
			fail("thread");
	for (uint64_t i = 0; i < nchains; i++)
		pthread_join(threads[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
	printf("{\"keys\": %llu, \"seconds\": %.3f, \"keys_per_s\": %.0f}\n", (unsigned long long)nlisted,
	        seconds, (double)nlisted / seconds);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"keys", required_argument, NULL, 'k'},
	        {"page-ms", required_argument, NULL, 'm'}, {"shape", required_argument, NULL, 's'},
	        {"loop", required_argument, NULL, 'l'}, {"chains", required_argument, NULL, 'c'},
	        {"port", required_argument, NULL, 'p'}, {0}};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 'k')
			nkeys = strtoull(optarg, NULL, 10);
		else if (c == 'm')
			page_ms = strtoull(optarg, NULL, 10);
		else if (c == 's')
			folders = strcmp(optarg, "folders") == 0;
		else if (c == 'l')
			port = atoi(optarg);
		else if (c == 'p')
			own_port = atoi(optarg);
		else if (c == 'c')
			nchains = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	if (nchains == 0 || nchains > 64)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	if (port)
		loop();
	else
		serve();
	return 0;
}
