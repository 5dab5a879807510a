/* .netrc: finds the user and password of a host. */
#include "http/http.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/secret.h"

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

/* Reads the next word. False: at the end. */
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

/* Reads the word after "login", "password" or "account" into ret, even if that word looks like a keyword.
 * ret NULL: skips it. */
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
				ps_strbuf_reset(&password); /* of a matching entry that had no login */
			ours = !found &&
			       (is(&scan, "default") ||
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

/* Files -------------------------------------------------------------------------------------------------- */

int ps_netrc_path(const struct ps_http_options *options, char **ret)
{
	const char *file = options->netrc_file ? options->netrc_file : ps_env_get(options->env, "NETRC");
	const char *home = ps_env_get(options->env, "HOME");
	ps_autostrbuf struct ps_strbuf path = {0};

	if (file)
		ps_strbuf_add(&path, file);
	else if (home)
		ps_strbuf_addf(&path, "%s/.netrc", home);
	*ret = path.len ? ps_strbuf_take(&path) : NULL;
	return path.failed ? -ENOMEM : 0;
}

int ps_netrc_user_password(
        const struct ps_http_options *options, const char *host, char **ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {.what = "netrc file", .max_nbytes = PS_NETRC_MAX_NBYTES};
	ps_autofree char *path = NULL;
	ps_autosecret char *text = NULL;
	size_t n = 0;
	ps_autostrbuf struct ps_strbuf found = {0};
	struct ps_error ignored = {0};
	int rc = ps_netrc_path(options, &path);

	*ret = NULL;
	if (rc)
		return ps_no_memory(err);
	if (!path || (!options->netrc_file && !ps_env_get(options->env, "NETRC") && access(path, F_OK) != 0))
		return 0;
	rc = ps_secret_file_read(path, &kind, &text, &n, &ignored);
	if (!rc)
		ps_netrc_find(text, n, host, &found);
	if (rc && !options->netrc_file) {
		/* A file that no option names (from $NETRC or ~/.netrc) need not be readable. */
		ps_log_warning("%s: ignored", ignored.text);
		return 0;
	}
	if (rc && err)
		*err = ignored;
	if (!rc && found.len && !(*ret = ps_strbuf_take(&found)))
		rc = ps_no_memory(err);
	return rc;
}
