#include "cli/conf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/secret.h"
#include "base/strbuf.h"

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
		return bad_line(
		        conf, line, err, "a name in brackets is of letters, digits, '.', '_' and '-'");
	if (ps_conf_find(conf, name))
		return ps_error_set(err, EINVAL, "%s:%u: a second [%s]", conf->path, line, name);
	struct ps_conf_section *v = reallocarray(conf->v, conf->n + 1, sizeof *v);
	if (v)
		conf->v = v;
	char *copy = v ? strdup(name) : NULL;
	if (!copy)
		return ps_error_set(err, ENOMEM, "out of memory");
	v[conf->n++] = (struct ps_conf_section){.name = copy, .line = line};
	return 0;
}

static int add_entry(
        struct ps_conf *conf, const char *key, const char *value, unsigned line, struct ps_error *err)
{
	if (conf->n == 0)
		return bad_line(conf, line, err, "a key before the first [NAME]");
	struct ps_conf_section *s = &conf->v[conf->n - 1];
	struct ps_conf_entry *v = reallocarray(s->v, s->n + 1, sizeof *v);
	if (!v)
		return ps_error_set(err, ENOMEM, "out of memory");
	s->v = v;
	v[s->n] = (struct ps_conf_entry){.key = strdup(key), .value = strdup(value), .line = line};
	if (v[s->n].key && v[s->n].value) {
		s->n++;
		return 0;
	}
	free(v[s->n].key);
	free(v[s->n].value);
	return ps_error_set(err, ENOMEM, "out of memory");
}

/* Without blanks at both ends, in place. */
static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t\r");
	for (n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

static int parse_line(struct ps_conf *conf, char *text, unsigned line, struct ps_error *err)
{
	char *s = trim(text), *equals;
	size_t n = strlen(s);

	if (!*s || *s == '#' || *s == ';')
		return 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < ' ' && s[i] != '\t')
			return bad_line(conf, line, err, "a control character");
	if (*s == '[') {
		if (s[n - 1] != ']')
			return bad_line(conf, line, err, "no ']' at the end");
		s[n - 1] = '\0';
		return add_section(conf, trim(s + 1), line, err);
	}
	equals = strchr(s, '=');
	if (!equals || equals == s)
		return bad_line(conf, line, err, "neither [NAME] nor KEY = VALUE");
	*equals = '\0';
	return add_entry(conf, trim(s), trim(equals + 1), line, err);
}

int ps_conf_parse(const char *path, mode_t mode, const char *text, size_t nbytes, struct ps_conf *ret,
        struct ps_error *err)
{
	struct ps_conf conf = {.path = strdup(path), .mode = mode};
	char *copy = malloc(nbytes + 1), *rest = copy, *line;
	int rc = 0;

	if (!copy || !conf.path) {
		rc = ps_error_set(err, ENOMEM, "out of memory");
	} else {
		memcpy(copy, text, nbytes);
		copy[nbytes] = '\0';
		if (strlen(copy) != nbytes)
			rc = ps_error_set(err, EINVAL, "%s: not a text: it holds a NUL byte", path);
	}
	for (unsigned n = 1; rc == 0 && (line = strsep(&rest, "\n")); n++)
		rc = parse_line(&conf, line, n, err);
	if (copy)
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
	ps_autofree char *where = path ? strdup(path) : default_path();
	char *text = malloc(PS_CONF_MAX_NBYTES + 1);
	size_t len = 0;
	ssize_t n = 1;
	struct stat st;
	int rc = 0;

	if (!where || !text) {
		free(text);
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	ps_autofd int fd = open(where, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		rc = ps_error_set(err, errno, "%s: %s", where, strerror(errno));
	else if (st.st_mode & S_IWOTH)
		rc = ps_error_set(err, EPERM, "%s: everybody may write to it; chmod o-w it first", where);
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
