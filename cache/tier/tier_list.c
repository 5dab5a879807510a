/* The list of tiers: URLs, a file of URLs, or a DNS name whose addresses are the tiers. */
#include "tier/tier_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/url.h"

#define FILE_MAX_NBYTES ((off_t)1 << 20)
#define DNS_PREFIX "dns+"
#define BLANKS ", \t\r\n"

void ps_tier_urls_fini(struct ps_tier_urls *urls)
{
	for (size_t i = 0; i < urls->n; i++)
		free(urls->v[i]);
	free(urls->v);
	*urls = (struct ps_tier_urls){0};
}

enum ps_tier_list_kind ps_tier_list_kind(const char *list)
{
	return list[0] == '@'                                       ? PS_TIER_LIST_FILE
	       : strncmp(list, DNS_PREFIX, strlen(DNS_PREFIX)) == 0 ? PS_TIER_LIST_DNS
	                                                            : PS_TIER_LIST_URLS;
}

/* Takes over url. A URL that is there already is ignored. */
static int add(struct ps_tier_urls *urls, char *url, struct ps_error *err)
{
	ps_autofree char *mine = url;

	for (size_t i = 0; mine && i < urls->n; i++)
		if (strcmp(urls->v[i], mine) == 0)
			return 0;
	if (urls->n >= PS_TIERS_MAX)
		return ps_error_set(err, EINVAL, "more than %d tiers", PS_TIERS_MAX);
	char **more = mine ? reallocarray(urls->v, urls->n + 1, sizeof(*more)) : NULL;
	if (!more)
		return ps_no_memory(err);
	urls->v = more;
	urls->v[urls->n++] = ps_steal_ptr(&mine);
	return 0;
}

/* A tier's URL is scheme, host and port alone: the path of its requests is the origin's. */
static int parse_url(const char *text, struct ps_url *ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];

	if (!strstr(text, "://"))
		return ps_error_set(err, EINVAL, "tier '%.100s' is not a URL such as http://10.0.0.7:8080",
		        ps_url_redact(text, safe));
	int rc = ps_url_parse(text, ret, err);
	if (rc)
		return ps_error_prefix(err, rc, "tier %s", ps_url_redact(text, safe));
	if (strcmp(ret->scheme, "file") == 0)
		return ps_error_set(
		        err, EINVAL, "tier %s: neither http:// nor https://", ps_url_redact(text, safe));
	if (ret->user || ret->signature || ret->query || strcmp(ret->path, "/") != 0)
		return ps_error_set(err, EINVAL,
		        "tier %s: give scheme, host and port alone, without a path, a query or a password",
		        ps_url_redact(text, safe));
	return 0;
}

int ps_tier_list_parse(const char *text, struct ps_tier_urls *urls, struct ps_error *err)
{
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, BLANKS "#");

		if (n == 0) {
			p += *p == '#' ? strcspn(p, "\r\n") : 1;
			continue;
		}
		ps_autofree char *word = strndup(p, n);
		ps_autourl struct ps_url u = {0};
		int rc = word ? parse_url(word, &u, err) : ps_no_memory(err);

		if (!rc)
			rc = add(urls, ps_url_authority(&u), err);
		if (rc)
			return rc;
		p += n;
	}
	return 0;
}

static int read_file(const char *path, struct ps_tier_urls *urls, struct ps_error *err)
{
	struct stat st;
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "list of tiers %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_NBYTES)
		return ps_error_set(err, EINVAL, "list of tiers %s: not a file of up to 1 MiB", path);
	ps_autofree char *text = malloc((size_t)st.st_size + 1);
	if (!text)
		return ps_no_memory(err);
	ssize_t n = read(fd, text, (size_t)st.st_size);
	if (n < 0)
		return ps_error_set(err, errno, "list of tiers %s: %s", path, strerror(errno));
	text[n] = '\0';
	if (memchr(text, '\0', (size_t)n))
		return ps_error_set(err, EINVAL, "list of tiers %s: not a text", path);
	int rc = ps_tier_list_parse(text, urls, err);
	return rc ? ps_error_prefix(err, rc, "%s", path) : 0;
}

static bool address_text(const struct sockaddr *sa, char ret[static INET6_ADDRSTRLEN])
{
	const void *address =
	        sa->sa_family == AF_INET6
	                ? (const void *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr
	                : (const void *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr;

	return (sa->sa_family == AF_INET || sa->sa_family == AF_INET6) &&
	       inet_ntop(sa->sa_family, address, ret, INET6_ADDRSTRLEN);
}

static int add_address(
        struct ps_tier_urls *urls, const struct ps_url *u, const struct sockaddr *sa, struct ps_error *err)
{
	char text[INET6_ADDRSTRLEN];
	ps_autostrbuf struct ps_strbuf b = {0};

	if (!address_text(sa, text))
		return 0;
	ps_strbuf_addf(&b, sa->sa_family == AF_INET6 ? "%s://[%s]" : "%s://%s", u->scheme, text);
	if (u->port)
		ps_strbuf_addf(&b, ":%s", u->port);
	return add(urls, ps_strbuf_take(&b), err);
}

static int resolve(const char *text, struct ps_tier_urls *urls, struct ps_error *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
	ps_autourl struct ps_url u = {0};
	int rc = parse_url(text, &u, err);

	if (rc)
		return rc;
	if (strcmp(u.scheme, "https") == 0)
		return ps_error_set(err, EINVAL,
		        "tier dns+%s: certificates are for names, not for addresses; list the tiers' URLs, "
		        "or "
		        "name a file of them",
		        text);
	int gai = getaddrinfo(u.host, NULL, &hints, &found);
	if (gai)
		return ps_error_set(err, EHOSTUNREACH, "tiers of %s: %s", u.host, gai_strerror(gai));
	for (const struct addrinfo *ai = found; ai && !rc; ai = ai->ai_next)
		rc = add_address(urls, &u, ai->ai_addr, err);
	freeaddrinfo(found);
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int ps_tier_list_read(const char *list, struct ps_tier_urls *ret, struct ps_error *err)
{
	enum ps_tier_list_kind kind = ps_tier_list_kind(list);
	struct ps_tier_urls urls = {0};
	int rc = kind == PS_TIER_LIST_FILE  ? read_file(list + 1, &urls, err)
	         : kind == PS_TIER_LIST_DNS ? resolve(list + strlen(DNS_PREFIX), &urls, err)
	                                    : ps_tier_list_parse(list, &urls, err);

	if (!rc && urls.n == 0)
		rc = ps_error_set(
		        err, EINVAL, "%s names no tier", kind == PS_TIER_LIST_URLS ? "option tier" : list);
	if (rc) {
		ps_tier_urls_fini(&urls);
		return rc;
	}
	qsort(urls.v, urls.n, sizeof(*urls.v), by_text);
	*ret = urls;
	return 0;
}

bool ps_tier_url_is_here(const char *url)
{
	ps_autourl struct ps_url u = {0};
	struct ifaddrs *all = NULL;
	bool here = false;

	if (ps_url_parse(url, &u, NULL) < 0)
		return false;
	if (ps_url_is_loopback(u.host))
		return true;
	if (getifaddrs(&all) < 0)
		return false;
	size_t skip = u.host[0] == '[', n = strlen(u.host) - 2 * skip;
	for (const struct ifaddrs *a = all; a && !here; a = a->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";

		if (a->ifa_addr && address_text(a->ifa_addr, text))
			here = strlen(text) == n && strncmp(text, u.host + skip, n) == 0;
	}
	freeifaddrs(all);
	return here;
}

bool ps_tier_url_is_protected(const char *url, bool has_cert)
{
	ps_autourl struct ps_url u = {0};

	if (ps_url_parse(url, &u, NULL) < 0)
		return false;
	return ps_url_is_loopback(u.host) || (has_cert && strcmp(u.scheme, "https") == 0);
}
