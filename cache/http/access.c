#include "http/http.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/log.h"
#include "base/url.h"

#define PASSWORD_FILE_MAX_NBYTES 4096

static int out_of_memory(struct ps_error *err)
{
	return ps_error_set(err, ENOMEM, "out of memory");
}

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
		return out_of_memory(err);
	return 0;
}

/* what: how the user named it. */
static int copy_file(char **to, const char *path, const char *what, struct ps_error *err)
{
	if (path && access(path, R_OK) != 0)
		return ps_error_set(err, errno, "%s %s: %s", what, path, strerror(errno));
	return copy(to, path, err);
}

/* Proxies ----------------------------------------------------------------------------------------- */

static const char *first_of(const char *const *env, const char *a, const char *b)
{
	const char *value = a ? ps_env_get(env, a) : NULL;

	return value ? value : ps_env_get(env, b);
}

/* "host:3128", "http://user:password@host:3128", "socks5h://host" */
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
			return ps_error_set(err, EINVAL, "%s %s: no proxy of a kind that is known (http, https, socks5h)",
			        what, ps_url_redact(text, safe));
		text = after + 3;
	}
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return ps_error_set(err, EINVAL, "%s: a blank in the name of a proxy", what);
	return *text ? 0 : ps_error_set(err, EINVAL, "%s: no proxy is named", what);
}

static int take_proxies(struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err)
{
	const char *const *env = options->env;
	const char *proxy = options->proxy, *tls_proxy = options->proxy, *what = "option proxy:";
	const char *no_proxy = NULL;

	if (!proxy) {
		const char *all = first_of(env, "all_proxy", "ALL_PROXY");

		what = "the environment's proxy";
		proxy = ps_env_get(env, "http_proxy");
		proxy = proxy ? proxy : all;
		tls_proxy = first_of(env, "https_proxy", "HTTPS_PROXY");
		tls_proxy = tls_proxy ? tls_proxy : all;
		no_proxy = first_of(env, "no_proxy", "NO_PROXY");
	} else if (strcmp(proxy, "none") == 0) {
		return 0;
	}
	int rc = proxy ? check_proxy(proxy, what, err) : 0;
	if (!rc && tls_proxy)
		rc = check_proxy(tls_proxy, what, err);
	if (!rc)
		rc = copy(&a->proxy, proxy, err);
	if (!rc)
		rc = copy(&a->tls_proxy, tls_proxy, err);
	if (!rc)
		rc = copy(&a->no_proxy, no_proxy, err);
	return rc;
}

/* Certificates ------------------------------------------------------------------------------------ */

/* What the environment names for all programs need not be there: then the system's it is. */
static int copy_named(char **to, const char *const *env, const char *name, struct ps_error *err)
{
	const char *path = ps_env_get(env, name);

	if (path && access(path, R_OK) != 0) {
		ps_log_warning("%s: %s: %s: ignored", name, path, strerror(errno));
		return 0;
	}
	return copy(to, path, err);
}

static int take_trusted(struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err)
{
	int rc = copy_file(&a->ca_file, options->ca_file, "CA file", err);

	if (!rc && !a->ca_file)
		rc = copy_named(&a->ca_file, options->env, "CURL_CA_BUNDLE", err);
	if (!rc && !a->ca_file)
		rc = copy_named(&a->ca_file, options->env, "SSL_CERT_FILE", err);
	if (!rc && !options->ca_file)
		rc = copy_named(&a->ca_dir, options->env, "SSL_CERT_DIR", err);
	return rc;
}

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcasecmp(s + n - m, end) == 0;
}

static int take_own(struct ps_http_access *a, const struct ps_http_options *options, struct ps_error *err)
{
	if (!options->client_cert && (options->client_key || options->client_key_password_file))
		return ps_error_set(err, EINVAL, "a client's key needs its certificate: --client-cert");
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
	*a = (struct ps_http_access){.insecure = options->insecure};
	int rc = take_proxies(a, options, err);

	if (!rc)
		rc = take_trusted(a, options, err);
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
	/* "": none, whatever the process's own environment says. */
	int rc = curl_easy_setopt(curl, CURLOPT_PROXY, proxy ? proxy : "");

	if (!rc)
		rc = curl_easy_setopt(curl, CURLOPT_NOPROXY, a->no_proxy ? a->no_proxy : "");
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* What a proxy says to CONNECT is no answer of the host's. */
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
	if (!rc && a->key_password)
		rc = curl_easy_setopt(curl, CURLOPT_KEYPASSWD, a->key_password);
	return rc ? -ENOMEM : 0;
}

/* .netrc --------------------------------------------------------------------------------------------- */

struct scan {
	const char *s, *end;
	struct ps_strbuf token;
};

static void add_quoted(struct scan *scan)
{
	for (scan->s++; scan->s < scan->end && *scan->s != '"'; scan->s++) {
		char c = *scan->s;

		if (c == '\\' && scan->s + 1 < scan->end) {
			c = *++scan->s;
			c = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
		}
		ps_strbuf_addc(&scan->token, c);
	}
	scan->s += scan->s < scan->end;
}

static void skip_line(struct scan *scan)
{
	while (scan->s < scan->end && *scan->s != '\n')
		scan->s++;
}

/* False: the end. */
static bool next(struct scan *scan)
{
	ps_strbuf_reset(&scan->token);
	for (;;) {
		while (scan->s < scan->end && isspace((unsigned char)*scan->s))
			scan->s++;
		if (scan->s == scan->end)
			return false;
		if (*scan->s != '#')
			break;
		skip_line(scan);
	}
	if (*scan->s == '"') {
		add_quoted(scan);
		return true;
	}
	for (; scan->s < scan->end && !isspace((unsigned char)*scan->s); scan->s++)
		ps_strbuf_addc(&scan->token, *scan->s);
	return true;
}

static bool is(const struct scan *scan, const char *word)
{
	return strcmp(ps_strbuf_peek(&scan->token), word) == 0;
}

/* A macro ends at an empty line. */
static void skip_macro(struct scan *scan)
{
	bool empty = false;

	for (skip_line(scan); scan->s < scan->end && !empty; skip_line(scan)) {
		scan->s++;
		empty = scan->s < scan->end && *scan->s == '\n';
	}
}

/* The word behind "login" and its like, whatever it is: of other machines' entries, too, it may be one of ours. */
static void take_value(struct scan *scan, struct ps_strbuf *ret)
{
	if (!next(scan) || !ret)
		return;
	ps_strbuf_reset(ret);
	ps_strbuf_add(ret, ps_strbuf_peek(&scan->token));
}

bool ps_netrc_find(const char *text, size_t nbytes, const char *host, struct ps_strbuf *ret)
{
	struct scan scan = {.s = text, .end = text + nbytes};
	struct ps_strbuf login = {0}, password = {0};
	bool ours = false, found = false;

	while (!found && next(&scan)) {
		if (is(&scan, "machine") || is(&scan, "default")) {
			found = ours && login.len;
			if (!found)
				ps_strbuf_reset(&password); /* of an entry without a login */
			ours = !found && (is(&scan, "default") ||
			                         (next(&scan) && strcasecmp(ps_strbuf_peek(&scan.token), host) == 0));
		} else if (is(&scan, "macdef")) {
			skip_macro(&scan);
		} else if (is(&scan, "login")) {
			take_value(&scan, ours ? &login : NULL);
		} else if (is(&scan, "password")) {
			take_value(&scan, ours ? &password : NULL);
		} else if (is(&scan, "account")) {
			take_value(&scan, NULL);
		}
	}
	found = found || (ours && login.len);
	if (found)
		ps_strbuf_addf(ret, "%s:%s", ps_strbuf_peek(&login), ps_strbuf_peek(&password));
	if (password.s)
		explicit_bzero(password.s, password.cap);
	if (scan.token.s)
		explicit_bzero(scan.token.s, scan.token.cap);
	ps_strbuf_fini(&login);
	ps_strbuf_fini(&password);
	ps_strbuf_fini(&scan.token);
	return found;
}

/* Files ------------------------------------------------------------------------------------------- */

static int read_file(const char *path, const char *host, struct ps_strbuf *ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {.what = "netrc file", .max_nbytes = PS_NETRC_MAX_NBYTES};
	ps_autosecret char *text = NULL;
	size_t n = 0;
	int rc = ps_secret_file_read(path, &kind, &text, &n, err);

	if (!rc)
		ps_netrc_find(text, n, host, ret);
	return rc;
}

int ps_netrc_user_password(
        const struct ps_http_options *options, const char *host, char **ret, struct ps_error *err)
{
	const char *file = options->netrc_file, *home = ps_env_get(options->env, "HOME");
	const char *named = ps_env_get(options->env, "NETRC");
	ps_autostrbuf struct ps_strbuf path = {0}, found = {0};
	struct ps_error ignored = {0};

	*ret = NULL;
	if (file && !*file)
		return 0;
	if (file || named)
		ps_strbuf_add(&path, file ? file : named);
	else if (home)
		ps_strbuf_addf(&path, "%s/.netrc", home);
	if (path.failed)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (!path.len || (!file && !named && access(path.s, F_OK) != 0))
		return 0;
	int rc = read_file(path.s, host, &found, &ignored);
	if (rc && !file) {
		/* Nobody asked for it here. */
		ps_log_warning("%s: ignored", ignored.text);
		return 0;
	}
	if (rc && err)
		*err = ignored;
	if (!rc && found.len && !(*ret = ps_strbuf_take(&found)))
		rc = ps_error_set(err, ENOMEM, "out of memory");
	return rc;
}
