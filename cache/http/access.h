/* How requests of a client get to their host: proxies, trusted certificates, our own certificate.
 *
 * The environment is that of whoever mounts: http_proxy, https_proxy, all_proxy and no_proxy (also in capitals, but for
 * HTTP_PROXY, which a CGI's client could set), CURL_CA_BUNDLE, SSL_CERT_FILE and SSL_CERT_DIR.
 *
 * Ownership: its client's. Threads: constant after init. Blocks: init on disk. Errors: -errno and a text without secrets. */
#ifndef PS_HTTP_ACCESS_H
#define PS_HTTP_ACCESS_H

#include <curl/curl.h>

#include "origin/origin.h"

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
        struct ps_http_access *a, const struct ps_origin_options *options, struct ps_error *err) PS_MUST_USE;
void ps_http_access_fini(struct ps_http_access *a);

/* Sets up a request for url, by http or https and nothing else. a NULL: no proxy, and the system's
 * certificates. is_own: it may see our certificate. -ENOMEM. */
int ps_http_access_set(const struct ps_http_access *a, CURL *curl, const char *url, bool is_own) PS_MUST_USE;

#endif
