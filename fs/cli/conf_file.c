#include "cli/conf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/process.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "base/suggest.h"
#include "base/url.h"

bool ps_conf_is_name(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || (text[n] && strchr("._-", text[n])))
		n++;
	return n > 0 && n <= 64 && !text[n] && text[0] != '.' && text[0] != '-';
}

void ps_conf_fini(struct ps_conf *conf)
{
	for (size_t i = 0; i < conf->n; i++) {
		struct ps_conf_section *s = &conf->v[i];

		for (size_t j = 0; j < s->n; j++) {
			ps_secret_free(s->v[j].value);
			free(s->v[j].key);
		}
		free(s->v);
		free(s->name);
	}
	free(conf->v);
	free(conf->path);
	*conf = (struct ps_conf){0};
}

static int bad_line(const struct ps_conf *conf, unsigned line, struct ps_error *err, const char *why)
{
	return ps_error_set(err, EINVAL, "%s:%u: %s", conf->path, line, why);
}

static int add_section(struct ps_conf *conf, const char *name, unsigned line, struct ps_error *err)
{
	if (!ps_conf_is_name(name))
		return bad_line(conf, line, err,
		        "a name in brackets may have only letters, digits, '.', '_' and '-'");
	if (ps_conf_find(conf, name))
		return ps_error_set(err, EINVAL, "%s:%u: [%s] is defined twice", conf->path, line, name);
	conf->v = ps_need(reallocarray(conf->v, conf->n + 1, sizeof(*conf->v)));
	conf->v[conf->n++] = (struct ps_conf_section){.name = ps_need(strdup(name)), .line = line};
	return 0;
}

static int add_entry(
        struct ps_conf *conf, const char *key, const char *value, unsigned line, struct ps_error *err)
{
	if (conf->n == 0)
		return bad_line(conf, line, err, "a key must come after a [NAME]");
	struct ps_conf_section *s = &conf->v[conf->n - 1];
	s->v = ps_need(reallocarray(s->v, s->n + 1, sizeof(*s->v)));
	s->v[s->n++] = (struct ps_conf_entry){
	        .key = ps_need(strdup(key)), .value = ps_need(strdup(value)), .line = line};
	return 0;
}

/* Removes blanks at both ends, in place. */
static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t\r");
	for (n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

/* True if the key alone means KEY = yes. */
static bool is_yes_or_no(const char *key)
{
	const char *dot = strrchr(key, '.');
	const struct ps_opt *opt = ps_options_find(dot ? dot + 1 : key);

	return strcmp(key, "auto") == 0 || (opt && opt->kind == PS_OPT_FLAG);
}

static int parse_line(struct ps_conf *conf, char *text, unsigned line, struct ps_error *err)
{
	char *s = trim(text), *equals;
	size_t n = strlen(s);

	if (!*s || *s == '#' || *s == ';')
		return 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < ' ' && s[i] != '\t')
			return bad_line(conf, line, err, "a control character is not allowed");
	if (*s == '[') {
		if (s[n - 1] != ']')
			return bad_line(conf, line, err, "the line has no ']' at its end");
		s[n - 1] = '\0';
		return add_section(conf, trim(s + 1), line, err);
	}
	equals = strchr(s, '=');
	if (!equals && is_yes_or_no(s))
		return add_entry(conf, s, "yes", line, err);
	if (!equals || equals == s)
		return bad_line(conf, line, err, "the line is neither [NAME] nor KEY = VALUE");
	*equals = '\0';
	return add_entry(conf, trim(s), trim(equals + 1), line, err);
}

int ps_conf_parse(const char *path, mode_t mode, const char *text, size_t nbytes, struct ps_conf *ret,
        struct ps_error *err)
{
	struct ps_conf conf = {.path = ps_need(strdup(path)), .mode = mode};
	char *copy = ps_need(malloc(nbytes + 1)), *rest = copy, *line;
	int rc = 0;

	memcpy(copy, text, nbytes);
	copy[nbytes] = '\0';
	if (strlen(copy) != nbytes)
		rc = ps_error_set(err, EINVAL, "%s: not a text: it holds a NUL byte", path);
	for (unsigned n = 1; rc == 0 && (line = strsep(&rest, "\n")); n++)
		rc = parse_line(&conf, line, n, err);
	explicit_bzero(copy, nbytes);
	free(copy);
	if (rc < 0)
		ps_conf_fini(&conf);
	else
		*ret = conf;
	return rc;
}

static char *default_path(void)
{
	const char *env = getenv("PENSTOCK_CONFIG"), *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	ps_autostrbuf struct ps_strbuf b = {0};

	if (env && *env)
		return strdup(env);
	if (geteuid() != 0 && xdg && xdg[0] == '/')
		ps_strbuf_addf(&b, "%s/penstock.conf", xdg);
	else if (geteuid() != 0 && home && home[0] == '/')
		ps_strbuf_addf(&b, "%s/.config/penstock.conf", home);
	if (b.len && access(ps_strbuf_peek(&b), F_OK) == 0)
		return ps_strbuf_take(&b);
	return strdup(PS_CONF_DEFAULT);
}

int ps_conf_read(const char *path, struct ps_conf *ret, struct ps_error *err)
{
	ps_autofree char *where = ps_need(path ? strdup(path) : default_path());
	char *text = ps_need(malloc(PS_CONF_MAX_NBYTES + 1));
	size_t len = 0;
	ssize_t n = 1;
	struct stat st;
	int rc = 0;

	ps_autofd int fd = open(where, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		rc = ps_error_set(err, errno, "%s: %s", where, strerror(errno));
	else if (st.st_mode & S_IWOTH)
		rc = ps_error_set(err, EPERM, "%s: world-writable; chmod o-w it first", where);
	while (rc == 0 && n > 0 && len <= PS_CONF_MAX_NBYTES) {
		n = read(fd, text + len, PS_CONF_MAX_NBYTES + 1 - len);
		if (n < 0)
			rc = ps_error_set(err, errno, "%s: %s", where, strerror(errno));
		len += n > 0 ? (size_t)n : 0;
	}
	if (rc == 0 && len > PS_CONF_MAX_NBYTES)
		rc = ps_error_set(err, EFBIG, "%s: longer than 1 MiB", where);
	if (rc == 0)
		rc = ps_conf_parse(where, st.st_mode & 07777, text, len, ret, err);
	explicit_bzero(text, len);
	free(text);
	return rc;
}

/* What sections mean ------------------------------------------------------------------------------------- */

#define SECRET_FILE_MAX_NBYTES 4096

static const char defaults[] = "defaults";

const struct ps_conf_section *ps_conf_find(const struct ps_conf *conf, const char *name)
{
	for (size_t i = 0; i < conf->n; i++)
		if (strcmp(conf->v[i].name, name) == 0)
			return &conf->v[i];
	return NULL;
}

int ps_conf_no_such(const struct ps_conf *conf, const char *name, struct ps_error *err)
{
	struct ps_guess guess = {.word = name, .len = strlen(name)};

	for (size_t i = 0; i < conf->n; i++)
		if (ps_conf_is_mount(&conf->v[i]))
			ps_guess_offer(&guess, conf->v[i].name);
	return ps_error_set(err, ENOENT,
	        guess.best ? "there is no [%s] in %s; did you mean [%s]?" : "there is no [%s] in %s", name,
	        conf->path, guess.best);
}

bool ps_conf_is_mount(const struct ps_conf_section *section)
{
	return strcmp(section->name, defaults) != 0;
}

/* The context of a key. */
struct context {
	const struct ps_conf *conf;
	const struct ps_conf_section *section;
	const struct ps_conf_entry *entry;
	struct ps_error *err;
};

PS_PRINTF(2, 3) static int complain(const struct context *c, const char *fmt, ...)
{
	char text[PS_ERROR_TEXT_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ps_error_set(c->err, EINVAL, "%s:%u: %s", c->conf->path, c->entry->line, text);
}

/* Reports an error of another module with the entry's file and line, except for out of memory, which is no
 * fault of the file. */
static int complain_of(const struct context *c, const struct ps_error *err)
{
	if (err->err == ENOMEM)
		return ps_error_set(c->err, ENOMEM, "%s", err->text);
	return complain(c, "%s", err->text);
}

static int unknown_key(const struct context *c, const char *key)
{
	static const char *const own[] = {"source", "mountpoint", "auto"};
	struct ps_guess guess = {.word = key, .len = strlen(key)};

	for (size_t i = 0; i < PS_ARRAY_LEN(own); i++)
		ps_guess_offer(&guess, own[i]);
	for (const struct ps_opt *opt = ps_options; opt->name; opt++)
		if (opt->scope != PS_SCOPE_COMMAND && !ps_opt_is_hidden(opt))
			ps_guess_offer(&guess, opt->name);
	return complain(c, guess.best ? "unknown key '%.64s'; did you mean '%s'?" : "unknown key '%.64s'",
	        key, guess.best);
}

static int parse_yes(const struct context *c, bool *ret)
{
	const char *v = c->entry->value;

	if (strcmp(v, "yes") == 0 || strcmp(v, "true") == 0 || strcmp(v, "1") == 0)
		*ret = true;
	else if (strcmp(v, "no") == 0 || strcmp(v, "false") == 0 || strcmp(v, "0") == 0)
		*ret = false;
	else
		return complain(c, "%s is yes or no", c->entry->key);
	return 0;
}

static int check_secret(const struct context *c)
{
	if (!(c->conf->mode & 077))
		return 0;
	return complain(c,
	        "%s holds a secret, and others may read this file (mode %04o): chmod 600 it, or name a file "
	        "of your own "
	        "(penstock.conf(5))",
	        c->entry->key, (unsigned)c->conf->mode);
}

/* The option of this key; *ret_file: the key is NAME-file for a secret option. */
static const struct ps_opt *find_option(const char *key, bool *ret_file)
{
	static const char suffix[] = "file";
	size_t n = strlen(key), tail = sizeof(suffix); /* with the dash before it */
	const struct ps_opt *opt = ps_options_find(key);

	*ret_file =
	        !opt && n > tail && strchr("-_", key[n - tail]) && strcmp(key + n - tail + 1, suffix) == 0;
	for (const struct ps_opt *o = ps_options; *ret_file && o->name; o++)
		if (o->scope != PS_SCOPE_COMMAND && o->flags & PS_OPT_SECRET && ps_opt_is(o, key, n - tail))
			return o;
	return opt;
}

/* True if the option was given on the command line, which has priority. */
static bool was_given(const struct ps_mount_options *o, size_t ngiven, const char *name)
{
	for (size_t i = 0; i < ngiven; i++)
		if (strcmp(o->given.v[i].name, name) == 0)
			return true;
	return false;
}

/* sources: the sources that the option applies to. nsources 0: [defaults], where an option may be for any
 * kind of source. */
static int set_option(const struct context *c, const char *key, const struct ps_source_request *sources,
        size_t nsources, struct ps_mount_options *o)
{
	const char *value = c->entry->value;
	ps_autosecret char *secret = NULL;
	bool file, yes;
	const struct ps_opt *opt = find_option(key, &file);
	int rc = 0;

	if (!opt)
		return unknown_key(c, key);
	if (opt->kind == PS_OPT_FLAG) {
		rc = parse_yes(c, &yes);
		if (rc < 0 || !yes)
			return rc;
		value = NULL;
	} else if (file) {
		static const struct ps_secret_file kind = {.max_nbytes = SECRET_FILE_MAX_NBYTES};
		struct ps_error err = {0};

		rc = ps_secret_file_line(value, &kind, &secret, &err);
		if (rc < 0)
			complain_of(c, &err);
		value = secret;
	} else if (opt->flags & PS_OPT_SECRET && !(opt->flags & PS_OPT_LINES && value[0] == '@')) {
		rc = check_secret(c);
	}
	if (rc == 0) {
		struct ps_error err = {0};

		rc = ps_options_give(o, opt, value, &err);
		if (rc == 0 && nsources)
			rc = ps_option_check_sources(opt, sources, nsources, &err);
		if (rc < 0)
			complain_of(c, &err);
	}
	return rc;
}

/* True if the source contains a password or a signature. */
static bool holds_secret(const char *source)
{
	size_t n = ps_url_authority_len(source);

	return n > 0 && (ps_url_has_user(source) || strchr(source + n, '?'));
}

static int add_source(const struct context *c, const char *name, struct ps_mount_request *request)
{
	struct ps_error err = {0};
	const char *value = c->entry->value;
	int rc = holds_secret(value) ? check_secret(c) : 0;

	if (rc < 0)
		return rc;
	if (!strstr(value, "://") && value[0] != '/' && value[0] != '@')
		return complain(c, "a source is a URL, /DIR/ or @FILE");
	rc = ps_request_add_source(request, name, value, &err);
	return rc < 0 ? complain_of(c, &err) : 0;
}

/* Sets "val.header", an option of the section's source "val". */
static int set_source_option(const struct context *c, const char *dot, struct ps_mount_request *request)
{
	size_t n = (size_t)(dot - c->entry->key);
	struct ps_mount_options o;
	bool file;
	const struct ps_opt *opt = find_option(dot + 1, &file);
	int rc = 0;

	if (!opt)
		return unknown_key(c, dot + 1);
	if (opt->scope != PS_SCOPE_SOURCE)
		return complain(c, "%s cannot be set for one source; write it without '%.*s.'", opt->name,
		        (int)n, c->entry->key);
	for (size_t i = 0; i < request->nsources; i++) {
		struct ps_source_request *s = &request->sources[i];

		if (strlen(s->name) != n || strncmp(s->name, c->entry->key, n) != 0)
			continue;
		ps_mount_options_init(&o);
		rc = set_option(c, dot + 1, s, 1, &o);
		if (rc == 0 && ps_request_give_source(s, &o) < 0)
			ps_need(NULL);
		ps_mount_options_fini(&o);
		return rc;
	}
	return complain(c, "there is no source.%.*s in [%s]", (int)n, c->entry->key, c->section->name);
}

static bool has_key(const struct ps_conf_section *s, const char *key)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].key, key) == 0)
			return true;
	return false;
}

static int take_sources(struct context *c, struct ps_mount_request *request)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < c->section->n; i++) {
		c->entry = &c->section->v[i];
		if (strcmp(c->entry->key, "source") == 0)
			rc = add_source(c, "", request);
		else if (strncmp(c->entry->key, "source.", 7) == 0)
			rc = add_source(c, c->entry->key + 7, request);
	}
	return rc;
}

/* Options that may be repeated on the command line may be repeated here. */
static int check_repeated(const struct context *c, size_t i)
{
	const char *dot = strrchr(c->entry->key, '.');
	bool file;
	const struct ps_opt *opt = find_option(dot ? dot + 1 : c->entry->key, &file);

	if (opt && opt->flags & PS_OPT_AGAIN && !file)
		return 0;
	for (size_t j = 0; j < i; j++)
		if (strcmp(c->section->v[j].key, c->entry->key) == 0)
			return complain(c, "%s is in line %u already", c->entry->key, c->section->v[j].line);
	return 0;
}

static int take_entry(const struct context *c, size_t ngiven, struct ps_mount_options *o,
        struct ps_mount_request *request, struct ps_conf_mount *ret)
{
	const char *key = c->entry->key, *dot = strchr(key, '.');
	bool file;

	if (strcmp(key, "source") == 0 || strncmp(key, "source.", 7) == 0)
		return ps_conf_is_mount(c->section) ? 0 : complain(c, "[defaults] has no sources");
	if (strcmp(key, "auto") == 0)
		return parse_yes(c, &ret->automatic);
	if (strcmp(key, "mountpoint") == 0) {
		if (!ps_conf_is_mount(c->section) || c->entry->value[0] != '/')
			return complain(c, ps_conf_is_mount(c->section) ? "mountpoint is an absolute path"
			                                                : "[defaults] has no mountpoint");
		free(ret->mountpoint);
		ret->mountpoint = ps_need(strdup(c->entry->value));
		return 0;
	}
	if (dot)
		return set_source_option(c, dot, request);
	const struct ps_opt *opt = find_option(key, &file);
	if (opt && was_given(o, ngiven, opt->name))
		return 0;
	return set_option(c, key, request->sources, ps_conf_is_mount(c->section) ? request->nsources : 0, o);
}

int ps_conf_apply(const struct ps_conf *conf, const struct ps_conf_section *section,
        struct ps_mount_options *o, struct ps_mount_request *request, struct ps_conf_mount *ret,
        struct ps_error *err)
{
	const struct ps_conf_section *both[] = {ps_conf_find(conf, defaults), section};
	size_t ngiven = o->given.n;
	int rc = 0;

	*ret = (struct ps_conf_mount){.automatic = true};
	for (size_t k = 0; rc == 0 && k < PS_ARRAY_LEN(both); k++) {
		struct context c = {.conf = conf, .section = both[k], .err = err};

		if (!both[k])
			continue;
		rc = k == 1 ? take_sources(&c, request) : 0; /* the sources, before their options */
		for (size_t i = 0; rc == 0 && i < both[k]->n; i++) {
			c.entry = &both[k]->v[i];
			rc = check_repeated(&c, i);
			/* The section's value replaces the default, even if the option collects values. */
			if (rc == 0 && !(k == 0 && has_key(section, c.entry->key)))
				rc = take_entry(&c, ngiven, o, request, ret);
		}
	}
	if (rc == 0 && request->nsources == 0)
		rc = ps_error_set(
		        err, EINVAL, "%s:%u: [%s] has no source", conf->path, section->line, section->name);
	if (rc < 0) {
		free(ret->mountpoint);
		ret->mountpoint = NULL;
	}
	return rc;
}
