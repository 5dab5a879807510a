/* How requests of a client get to their host: proxies, trusted certificates, our own certificate.
 *
 * The environment is that of whoever mounts: http_proxy, https_proxy, all_proxy and no_proxy (also in capitals, but for
 * HTTP_PROXY, which a CGI's client could set), CURL_CA_BUNDLE, SSL_CERT_FILE and SSL_CERT_DIR.
 *
 * Ownership: its client's. Threads: constant after init. Blocks: init on disk. Errors: -errno and a text without secrets. */
#ifndef PS_HTTP_ACCESS_H
#define PS_HTTP_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/error.h"

/* How to talk to a server; all borrowed during ps_http_client_init() only. Zero means the default. */
struct ps_http_options {
	const char *const
	        *headers; /* "Name: value", NULL-terminated; secret; sent to the source's own host only */
	const char *user_password; /* "user:password" for basic auth; secret; overrides user:password@ in the
	                              URL */
	const char *ca_file;       /* PEM bundle instead of the system's */
	const char *client_cert, *client_key; /* files, shown to the source's own host only; the key may be in the first */
	const char *client_key_password_file;
	const char *proxy;         /* a URL, secret; "none"; NULL: the environment tells, see above */
	const char *netrc_file;    /* "": none; NULL: the environment tells; for http and https alone, see http/netrc.h */
	bool insecure;             /* do not verify TLS; logged once as a warning */
	/* The environment of whoever mounts, "NAME=value", NULL-terminated; secret. NULL: the process's own.
	 * Ask by ps_env_get(), never by getenv(): a daemon mounts for others, too. */
	const char *const *env;
	unsigned max_connections; /* requests at once, HEADs too; 0: no limit */
	uint64_t connect_timeout_ms; /* 10 s */
	uint64_t stall_timeout_ms;   /* an attempt without a byte for so long fails with ETIMEDOUT; 15 s */
	uint64_t reader_timeout_ms;  /* how long readers wait: gets and heads stall after a third of it, if that is less (but
	                                not less than a second), so that there is time for another attempt; 0: no matter */
};

struct ps_http_access {
	char *proxy, *tls_proxy; /* for http and https URLs, secret; NULL: none */
	char *no_proxy;          /* hosts that are asked directly, as curl takes it */
	char *ca_file, *ca_dir;  /* NULL: the system's */
	char *cert, *key;        /* files; key NULL: in the same one */
	char *key_password;      /* secret; NULL: none */
	bool cert_is_p12;
	bool insecure;
};

int ps_http_access_init(
        struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err) PS_MUST_USE;
void ps_http_access_fini(struct ps_http_access *a);

/* Sets up a request for url, by http or https and nothing else. a NULL: no proxy, and the system's
 * certificates. is_own: it may see our certificate. -ENOMEM. */
int ps_http_access_set(const struct ps_http_access *a, CURL *curl, const char *url, bool is_own) PS_MUST_USE;

#endif
