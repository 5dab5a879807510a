/* How requests get to a host: proxies, trusted certificates, the client certificate. */
#include "http/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/log.h"
#include "base/url.h"

#define PASSWORD_FILE_MAX_NBYTES 4096

void ps_http_access_fini(struct ps_http_access *a)
{
	ps_secret_free(a->proxy);
	ps_secret_free(a->tls_proxy);
	ps_secret_free(a->key_password);
	free(a->no_proxy);
	free(a->ca_file);
	free(a->ca_dir);
	free(a->cert);
	free(a->key);
	*a = (struct ps_http_access){0};
}

static int copy(char **to, const char *text, struct ps_error *err)
{
	if (text && !(*to = strdup(text)))
		return ps_no_memory(err);
	return 0;
}

/* what: what the file is ("CA file"), for the error text. */
static int copy_file(char **to, const char *path, const char *what, struct ps_error *err)
{
	if (path && access(path, R_OK) != 0)
		return ps_error_set(err, errno, "%s %s: %s", what, path, strerror(errno));
	return copy(to, path, err);
}

/* Proxies ------------------------------------------------------------------------------------------------ */

static const char *first_of(const char *const *env, const char *a, const char *b)
{
	const char *value = a ? ps_env_get(env, a) : NULL;

	return value ? value : ps_env_get(env, b);
}

/* Checks a proxy: "host:3128", "http://user:password@host:3128", "socks5h://host". */
static int check_proxy(const char *text, const char *what, struct ps_error *err)
{
	static const char *const schemes[] = {"http", "https", "socks4", "socks4a", "socks5", "socks5h"};
	char safe[PS_URL_TEXT_LEN];
	const char *after = strstr(text, "://");

	if (after) {
		size_t i = 0, n = (size_t)(after - text);

		while (i < PS_ARRAY_LEN(schemes) &&
		        (strlen(schemes[i]) != n || strncasecmp(schemes[i], text, n) != 0))
			i++;
		if (i == PS_ARRAY_LEN(schemes))
			return ps_error_set(err, EINVAL,
			        "%s: %s: not a known kind of proxy (http, https, socks5h)", what,
			        ps_url_redact(text, safe));
		text = after + 3;
	}
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return ps_error_set(err, EINVAL, "%s: the proxy's name contains a blank", what);
	return *text ? 0 : ps_error_set(err, EINVAL, "%s: no proxy is named", what);
}

/* A trusted file or folder that the environment names for all programs. One that cannot be read does not
 * count, since the variable was not set for this program. */
static const char *readable(const char *path)
{
	return path && access(path, R_OK) == 0 ? path : NULL;
}

void ps_http_route_of(const struct ps_http_options *options, struct ps_http_route *ret)
{
	const char *const *env = options->env;

	*ret = (struct ps_http_route){0};
	if (!options->proxy) {
		const char *all = first_of(env, "all_proxy", "ALL_PROXY");
		const char *proxy = ps_env_get(env, "http_proxy");
		const char *tls_proxy = first_of(env, "https_proxy", "HTTPS_PROXY");

		ret->proxy = proxy ? proxy : all;
		ret->tls_proxy = tls_proxy ? tls_proxy : all;
		ret->no_proxy = first_of(env, "no_proxy", "NO_PROXY");
	} else if (strcmp(options->proxy, "none") != 0) {
		ret->proxy = ret->tls_proxy = options->proxy;
	}
	ret->ca_file = options->ca_file;
	if (options->ca_file)
		return;
	ret->ca_file = readable(ps_env_get(env, "CURL_CA_BUNDLE"));
	if (!ret->ca_file)
		ret->ca_file = readable(ps_env_get(env, "SSL_CERT_FILE"));
	ret->ca_dir = readable(ps_env_get(env, "SSL_CERT_DIR"));
}

/* Certificates ------------------------------------------------------------------------------------------- */

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcasecmp(s + n - m, end) == 0;
}

static int take_own(struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err)
{
	if (!options->client_cert && (options->client_key || options->client_key_password_file))
		return ps_error_set(err, EINVAL, "a client key needs its certificate: give --client-cert");
	static const struct ps_secret_file password = {
	        .what = "password file", .max_nbytes = PASSWORD_FILE_MAX_NBYTES};
	int rc = copy_file(&a->cert, options->client_cert, "client certificate", err);
	if (!rc)
		rc = copy_file(&a->key, options->client_key, "client key", err);
	if (!rc && options->client_key_password_file)
		rc = ps_secret_file_line(options->client_key_password_file, &password, &a->key_password, err);
	const char *key = a->key ? a->key : a->cert;
	if (!rc && key)
		ps_secret_file_warn(key, "client key");
	a->cert_is_p12 = a->cert && (ends_in(a->cert, ".p12") || ends_in(a->cert, ".pfx"));
	return rc;
}

int ps_http_access_init(struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err)
{
	static const char *const trusted[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"};
	const char *what = options->proxy ? "option proxy" : "the environment's proxy";
	struct ps_http_route route;

	*a = (struct ps_http_access){.insecure = options->insecure};
	ps_http_route_of(options, &route);
	int rc = route.proxy ? check_proxy(route.proxy, what, err) : 0;
	if (!rc && route.tls_proxy)
		rc = check_proxy(route.tls_proxy, what, err);
	if (!rc)
		rc = copy(&a->proxy, route.proxy, err);
	if (!rc)
		rc = copy(&a->tls_proxy, route.tls_proxy, err);
	if (!rc)
		rc = copy(&a->no_proxy, route.no_proxy, err);
	for (size_t i = 0; !rc && !options->ca_file && i < PS_ARRAY_LEN(trusted); i++) {
		const char *path = ps_env_get(options->env, trusted[i]);

		if (path && !readable(path) && !(i == 1 && route.ca_file))
			ps_log_warning("%s: %s: %s: ignored", trusted[i], path, strerror(errno));
	}
	if (!rc && options->ca_file)
		rc = copy_file(&a->ca_file, options->ca_file, "CA file", err);
	else if (!rc)
		rc = copy(&a->ca_file, route.ca_file, err);
	if (!rc)
		rc = copy(&a->ca_dir, route.ca_dir, err);
	if (!rc)
		rc = take_own(a, options, err);
	if (rc)
		ps_http_access_fini(a);
	return rc;
}

int ps_http_access_set(const struct ps_http_access *a, CURL *curl, const char *url, bool is_own)
{
	static const struct ps_http_access nothing;

	if (!a)
		a = &nothing;
	const char *proxy = strncasecmp(url, "https:", 6) == 0 ? a->tls_proxy : a->proxy;
	/* "" disables proxies; NULL would make curl look at the process's own environment. */
	int rc = curl_easy_setopt(curl, CURLOPT_PROXY, proxy ? proxy : "");

	if (!rc)
		rc = curl_easy_setopt(curl, CURLOPT_NOPROXY, a->no_proxy ? a->no_proxy : "");
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* Hides the proxy's response to CONNECT, which is not the host's response. */
	curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	if (!rc && a->ca_file)
		rc = curl_easy_setopt(curl, CURLOPT_CAINFO, a->ca_file);
	if (!rc && a->ca_dir)
		rc = curl_easy_setopt(curl, CURLOPT_CAPATH, a->ca_dir);
	if (a->insecure) {
		curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	if (!is_own || !a->cert)
		return rc ? -ENOMEM : 0;
	if (!rc)
		rc = curl_easy_setopt(curl, CURLOPT_SSLCERT, a->cert);
	if (!rc && a->cert_is_p12)
		rc = curl_easy_setopt(curl, CURLOPT_SSLCERTTYPE, "P12");
	if (!rc && a->key)
		rc = curl_easy_setopt(curl, CURLOPT_SSLKEY, a->key);
	if (!rc) /* without a password, OpenSSL would ask for one at the terminal */
		rc = curl_easy_setopt(curl, CURLOPT_KEYPASSWD, a->key_password ? a->key_password : "");
	return rc ? -ENOMEM : 0;
}
