#include "cli/report_redact.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/secret.h"

#define OUT "[out]" /* replaces removed text */
#define LEAST_LEN 6
#define TOKEN_LEN 32 /* a word of this length with letters of both cases and digits counts as a token */

void ps_redact_fini(struct ps_redact *redact)
{
	for (size_t i = 0; i < redact->n; i++)
		ps_secret_free(redact->v[i]);
	free(redact->v);
	*redact = (struct ps_redact){0};
}

void ps_redact_know(struct ps_redact *redact, const char *value)
{
	char **more;

	if (!value || strlen(value) < LEAST_LEN)
		return;
	more = realloc(redact->v, (redact->n + 1) * sizeof(*more));
	if (more)
		redact->v = more;
	if (!more || !(more[redact->n] = strdup(value)))
		redact->failed = true;
	else
		redact->n++;
}

void ps_redact_know_environment(struct ps_redact *redact, char **env)
{
	static const char *const words[] = {
	        "KEY", "TOKEN", "SECRET", "PASS", "SAS", "SIGNATURE", "CREDENTIAL", "PWD", "AUTH"};

	for (; env && *env; env++) {
		const char *value = strchr(*env, '=');
		bool secret = false;

		for (size_t i = 0; value && i < PS_ARRAY_LEN(words); i++) {
			const char *found = strcasestr(*env, words[i]);

			secret |= found && found < value;
		}
		/* a path is not a secret: PWD, OLDPWD, SSH_AUTH_SOCK */
		if (secret && value[1] != '/')
			ps_redact_know(redact, value + 1);
	}
}

static bool ends_url(char c)
{
	return c == '\0' || isspace((unsigned char)c) || c == '"' || c == '\'' || c == '<' || c == '>';
}

/* Redacts the part after "://" of a URL. A password may contain any character, so everything up to the last
 * "@" is removed; but an "@" after a "/", without any ":" before it, stays: it belongs to
 * hf://datasets/OWNER/NAME@REVISION. Returns the rest of the URL. */
static const char *redact_url(const char *p, struct ps_strbuf *out)
{
	const char *end = p, *at = NULL, *colon = NULL, *query;

	for (; !ends_url(*end); end++) {
		if (*end == '@')
			at = end;
		colon = !colon && *end == ':' ? end : colon;
	}
	query = memchr(p, '?', (size_t)(end - p));
	if (at && (!query || at < query || (colon && colon < query)) &&
	        ((colon && colon < at) || !memchr(p, '/', (size_t)(at - p)))) {
		ps_strbuf_add(out, OUT "@");
		p = at + 1;
		query = memchr(p, '?', (size_t)(end - p));
	}
	ps_strbuf_addn(out, p, (size_t)((query ? query : end) - p));
	if (query)
		ps_strbuf_add(out, "?" OUT);
	return end;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '+' || c == '=' || c == '.' ||
	       c == '/';
}

static bool looks_like_token(const char *word, size_t n)
{
	static const char *const begins[] = {"hf_", "AKIA", "ASIA", "ghp_", "eyJ", "ya29.", "sk-"};
	bool upper = false, lower = false, digit = false;
	size_t i, run = 0, longest = 0;

	for (i = 0; i < PS_ARRAY_LEN(begins); i++)
		if (n >= strlen(begins[i]) + 8 && strncmp(word, begins[i], strlen(begins[i])) == 0)
			return true;
	for (i = 0; i < n; i++) {
		upper |= isupper((unsigned char)word[i]) != 0;
		lower |= islower((unsigned char)word[i]) != 0;
		digit |= isdigit((unsigned char)word[i]) != 0;
		/* a "." ends a run: names of files and hosts have dots, tokens have long runs without
		 * one */
		run = word[i] == '.' ? 0 : run + 1;
		longest = PS_MAX(longest, run);
	}
	return upper && lower && digit && longest >= TOKEN_LEN && word[0] != '/';
}

/* The length of a word at p after which a secret comes, with its separator ("password=", "Authorization:",
 * "Bearer ", "--header="); 0: there is none. */
static size_t introduces_secret(const char *p)
{
	static const char *const words[] = {"authorization", "password", "passwd", "passphrase", "secret",
	        "token", "signature", "credential", "cookie", "api-key", "apikey", "api_key", "access_key",
	        "access-key", "accountkey", "sig", "--header", "--user", "--proxy"};
	size_t n;

	if (strncasecmp(p, "bearer ", 7) == 0 || strncasecmp(p, "basic ", 6) == 0)
		return strcspn(p, " ") + 1;
	for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
		n = strlen(words[i]);
		if (strncasecmp(p, words[i], n) != 0)
			continue;
		n += strspn(p + n, "\"'");
		if (p[n] == '=' || p[n] == ':' || (words[i][0] == '-' && p[n] == ' '))
			return n + 1;
	}
	return 0;
}

static void redact_line(const char *p, struct ps_strbuf *out)
{
	bool inside = false; /* inside a word */

	while (*p) {
		size_t n = introduces_secret(p);

		if (n > 0) { /* redact up to the end of the line: a header's value may have blanks */
			ps_strbuf_addn(out, p, n);
			ps_strbuf_add(out, " " OUT);
			return;
		}
		if (strncmp(p, "://", 3) == 0) {
			ps_strbuf_add(out, "://");
			p = redact_url(p + 3, out);
			inside = false;
			continue;
		}
		if (!inside && is_word(*p)) {
			for (n = 1; is_word(p[n]); n++) {
			}
			if (looks_like_token(p, n)) {
				ps_strbuf_add(out, OUT);
				p += n;
				continue;
			}
		}
		inside = is_word(*p);
		ps_strbuf_addc(out, *p++);
	}
}

/* A copy of the text without the known values. */
static char *without_known(const struct ps_redact *redact, const char *text)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_add(&b, "");
	while (*text) {
		size_t longest = 0;

		for (size_t i = 0; i < redact->n; i++) {
			size_t n = strlen(redact->v[i]);

			if (n > longest && strncmp(text, redact->v[i], n) == 0)
				longest = n;
		}
		if (longest > 0)
			ps_strbuf_add(&b, OUT);
		else
			ps_strbuf_addc(&b, *text);
		text += longest ? longest : 1;
	}
	return ps_strbuf_take(&b);
}

void ps_redact_text(const struct ps_redact *redact, const char *text, struct ps_strbuf *out)
{
	ps_autosecret char *clean = redact->failed ? NULL : without_known(redact, text);

	if (!clean) {
		out->failed = true;
		return;
	}
	for (char *line = clean, *end; *line; line = end) {
		end = line + strcspn(line, "\n");
		bool more = *end;

		*end = '\0';
		redact_line(line, out);
		if (more)
			ps_strbuf_addc(out, '\n');
		end += more;
	}
}

json_t *ps_redact_json(const struct ps_redact *redact, const json_t *doc)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	const char *key;
	json_t *value, *out;
	size_t i;

	if (json_is_string(doc)) {
		ps_redact_text(redact, json_string_value(doc), &b);
		return b.failed ? NULL : json_string(ps_strbuf_peek(&b));
	}
	if (!json_is_array(doc) && !json_is_object(doc))
		return json_incref((json_t *)doc);
	out = json_is_array(doc) ? json_array() : json_object();
	if (json_is_array(doc)) {
		json_array_foreach(doc, i, value)
		{
			if (json_array_append_new(out, ps_redact_json(redact, value)) < 0)
				goto fail;
		}
	} else {
		json_object_foreach((json_t *)doc, key, value)
		{
			if (json_object_set_new(out, key, ps_redact_json(redact, value)) < 0)
				goto fail;
		}
	}
	return out;
fail:
	json_decref(out);
	return NULL;
}
