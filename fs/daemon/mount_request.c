#include "daemon/daemon.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/secret.h"
#include "base/strbuf.h"
#include "base/url.h"

/* Names of the values in a message. */
#define W_MOUNTPOINT "mountpoint"
#define W_OPTION "option"
#define W_FLAG "flag"
#define W_ENV "env"
#define W_VIEW "view"
#define W_NAME "name"
#define W_SOURCE "source"
#define W_IDENTITY "identity"

void ps_request_fini(struct ps_mount_request *r)
{
	for (size_t i = 0; i < r->nsources; i++) {
		free(r->sources[i].name);
		ps_secret_free(r->sources[i].source);
		ps_given_fini(&r->sources[i].given);
	}
	free(r->sources);
	for (char **e = r->env; e && *e; e++)
		ps_secret_free(*e);
	free(r->env);
	ps_given_fini(&r->given);
	free(r->mountpoint);
	*r = (struct ps_mount_request){0};
}

bool ps_source_has_name(const char *arg, size_t *ret_name_len)
{
	size_t n = 0;

	while (isalnum((unsigned char)arg[n]) || arg[n] == '_' || arg[n] == '-' || arg[n] == '.')
		n++;
	*ret_name_len = n;
	return n > 0 && arg[n] == '=' && arg[n + 1];
}

/* The part of a source that is a path in our own file system, or NULL. */
static const char *local_part(const char *source)
{
	if (strncmp(source, "file://", 7) == 0)
		source += 7;
	else if (source[0] == '@')
		source++;
	return source[0] == '/' ? source : NULL;
}

static void identify(const char *source, char ret[static 48])
{
	const char *path = local_part(source);
	struct stat st;

	ret[0] = '\0';
	if (path && stat(path, &st) == 0)
		snprintf(ret, 48, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

int ps_request_same_place(const struct ps_source_request *source, struct ps_error *err)
{
	char here[48];

	if (!source->identity[0])
		return 0;
	identify(source->source, here);
	if (strcmp(here, source->identity) == 0)
		return 0;
	return ps_error_set(err, EXDEV,
	        "%s is another file or folder for the daemon that serves this cache: it runs in another "
	        "mount "
	        "namespace; give this mount a --cache-dir of its own",
	        local_part(source->source));
}

static struct ps_source_request *new_source(struct ps_mount_request *r)
{
	struct ps_source_request *v = reallocarray(r->sources, r->nsources + 1, sizeof(*v));

	if (!v)
		return NULL;
	r->sources = v;
	v[r->nsources] = (struct ps_source_request){0};
	return &v[r->nsources++];
}

int ps_request_add_source(
        struct ps_mount_request *r, const char *name, const char *source, struct ps_error *err)
{
	struct ps_source_request *s = r->nsources < PS_SOURCES_MAX ? new_source(r) : NULL;

	if (r->nsources == PS_SOURCES_MAX && !s)
		return ps_error_set(err, EINVAL, "more than %d sources", PS_SOURCES_MAX);
	if (s) {
		s->name = strdup(name);
		s->source = ps_source_absolute(source);
	}
	if (!s || !s->name || !s->source)
		return ps_no_memory(err);
	if (*name && (name[0] == '.' || strchr(name, '/') || ps_path_check(name) < 0))
		return ps_error_set(err, EINVAL, "'%s' is not a name for a folder", name);
	identify(s->source, s->identity);
	ps_autofree char *canonical = ps_source_canonical(s->source, err);
	return canonical ? 0 : -EINVAL;
}

/* Copies the options that other processes can use (not PS_OPT_LOCAL). */
static int copy_given(struct ps_given *to, const struct ps_given *from)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < from->n; i++) {
		const struct ps_opt *opt = ps_options_find(from->v[i].name);

		if (opt && !(opt->flags & PS_OPT_LOCAL))
			rc = ps_given_add(to, opt->name, from->v[i].value, NULL);
	}
	return rc;
}

int ps_request_give_source(struct ps_source_request *source, const struct ps_mount_options *o)
{
	return copy_given(&source->given, &o->given);
}

static int give_number(struct ps_given *to, const char *name, unsigned n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	return ps_given_add(to, name, text, NULL);
}

static int add_env(struct ps_mount_request *r, size_t n, const char *variable)
{
	char **v = reallocarray(r->env, n + 2, sizeof(*v));

	if (!v)
		return -ENOMEM;
	r->env = v;
	v[n] = variable ? strdup(variable) : NULL;
	if (variable && !v[n])
		return -ENOMEM;
	v[n + 1] = NULL;
	return 0;
}

int ps_request_take_options(
        struct ps_mount_request *r, const struct ps_mount_options *o, struct ps_error *err)
{
	int rc = copy_given(&r->given, &o->given);

	if (rc == 0)
		rc = give_number(&r->given, "uid", o->uid);
	if (rc == 0)
		rc = give_number(&r->given, "gid", o->gid);
	if (rc == 0)
		rc = add_env(r, 0, NULL);
	for (size_t n = 0; rc == 0 && o->env && o->env[n]; n++)
		rc = add_env(r, n, o->env[n]);
	return rc < 0 ? ps_error_set(err, -rc, "out of memory") : 0;
}

int ps_request_take_view(struct ps_mount_request *r, struct ps_error *err)
{
	struct stat namespace, root;

	if (stat("/proc/self/ns/mnt", &namespace) < 0 || stat("/", &root) < 0)
		return ps_error_set(err, errno, "/proc/self/ns/mnt: %s", strerror(errno));
	snprintf(r->view, sizeof(r->view), "%llu %llu:%llu", (unsigned long long)namespace.st_ino,
	        (unsigned long long)root.st_dev, (unsigned long long)root.st_ino);
	return 0;
}

int ps_request_check(const struct ps_mount_request *r, struct ps_error *err)
{
	const char *first = r->sources[0].source;
	size_t n = ps_url_authority_len(first); /* the receiver of the credentials */
	bool one_host = true, secret = false;

	for (size_t i = 0; i < r->nsources; i++) {
		const struct ps_source_request *s = &r->sources[i];

		one_host &= ps_url_authority_len(s->source) == n && strncmp(s->source, first, n) == 0;
		if (r->nsources > 1 && !s->name[0])
			return ps_error_set(err, EINVAL,
			        "several sources need names: train=SOURCE val=SOURCE MOUNTPOINT");
		for (size_t j = 0; j < i; j++)
			if (strcmp(s->name, r->sources[j].name) == 0)
				return ps_error_set(err, EINVAL,
				        "two sources are named '%s'; quote a URL with braces", s->name);
	}
	for (size_t i = 0; i < r->given.n; i++) {
		const struct ps_opt *opt = ps_options_find(r->given.v[i].name);

		secret |= opt && opt->flags & PS_OPT_SECRET;
	}
	if (secret && !one_host)
		return ps_error_set(err, EINVAL,
		        "credentials would be sent to every host of these sources; set them in "
		        "penstock.conf(5), where "
		        "each source has its own");
	return 0;
}

/* As messages of the control protocol -------------------------------------------------------------------- */

static int encode_given(const struct ps_given *given, struct ps_given *to)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < given->n; i++) {
		ps_autostrbuf struct ps_strbuf b = {0};

		ps_strbuf_addf(&b, "%s%s", given->v[i].name, given->v[i].value ? "=" : "");
		if (given->v[i].value)
			ps_strbuf_add(&b, given->v[i].value);
		rc = b.failed ? -ENOMEM
		              : ps_given_add(
		                        to, given->v[i].value ? W_OPTION : W_FLAG, ps_strbuf_peek(&b), NULL);
		if (b.s)
			explicit_bzero(b.s, b.len);
	}
	return rc;
}

int ps_request_encode(const struct ps_mount_request *r, struct ps_given *ret)
{
	int rc = r->view[0] ? ps_given_add(ret, W_VIEW, r->view, NULL)
	                    : ps_given_add(ret, W_MOUNTPOINT, r->mountpoint, NULL);

	if (rc == 0)
		rc = encode_given(&r->given, ret);
	for (size_t i = 0; rc == 0 && r->env[i]; i++)
		rc = ps_given_add(ret, W_ENV, r->env[i], NULL);
	for (size_t i = 0; rc == 0 && i < r->nsources; i++) {
		const struct ps_source_request *s = &r->sources[i];

		rc = ps_given_add(ret, W_NAME, s->name, NULL); /* the name begins a new source */
		if (rc == 0)
			rc = ps_given_add(ret, W_SOURCE, s->source, NULL);
		if (rc == 0)
			rc = ps_given_add(ret, W_IDENTITY, s->identity, NULL);
		if (rc == 0)
			rc = encode_given(&s->given, ret);
	}
	return rc;
}

static int decode_option(struct ps_given *to, const char *text, bool flag)
{
	const char *equals = flag ? NULL : strchr(text, '=');
	ps_autofree char *name = equals ? strndup(text, (size_t)(equals - text)) : strdup(text);

	if (!flag && !equals)
		return -EPROTO;
	return name ? ps_given_add(to, name, equals ? equals + 1 : NULL, NULL) : -ENOMEM;
}

static int replace(char **to, const char *text)
{
	ps_secret_free(*to);
	*to = strdup(text);
	return *to ? 0 : -ENOMEM;
}

/* *s: the source that the next pairs belong to; NULL before the first. */
static int decode_pair(struct ps_mount_request *r, struct ps_source_request **s, size_t *nenv,
        const char *name, const char *value)
{
	if (strcmp(name, W_MOUNTPOINT) == 0)
		return value[0] == '/' ? replace(&r->mountpoint, value) : -EPROTO;
	if (strcmp(name, W_VIEW) == 0)
		snprintf(r->view, sizeof(r->view), "%s", value);
	if (strcmp(name, W_ENV) == 0)
		return add_env(r, (*nenv)++, value);
	if (strcmp(name, W_OPTION) == 0 || strcmp(name, W_FLAG) == 0)
		return decode_option(*s ? &(*s)->given : &r->given, value, strcmp(name, W_FLAG) == 0);
	if (strcmp(name, W_NAME) == 0) {
		if (r->nsources == PS_SOURCES_MAX ||
		        (*value && (value[0] == '.' || ps_path_check(value) < 0)) || strchr(value, '/'))
			return -EPROTO;
		*s = new_source(r);
		return *s ? replace(&(*s)->name, value) : -ENOMEM;
	}
	if (*s && strcmp(name, W_SOURCE) == 0)
		return replace(&(*s)->source, value);
	if (*s && strcmp(name, W_IDENTITY) == 0)
		snprintf((*s)->identity, sizeof(*s)->identity, "%s", value);
	return 0; /* unknown names, of later versions, are ignored */
}

int ps_request_decode(const struct ps_given *message, struct ps_mount_request *ret, struct ps_error *err)
{
	struct ps_mount_request r = {0};
	struct ps_source_request *s = NULL;
	size_t nenv = 0;
	int rc = add_env(&r, 0, NULL);

	for (size_t i = 0; rc == 0 && i < message->n; i++)
		rc = decode_pair(&r, &s, &nenv, message->v[i].name, message->v[i].value);
	if (rc == 0 && ((!r.mountpoint && !r.view[0]) || r.nsources == 0))
		rc = -EPROTO;
	for (size_t i = 0; rc == 0 && i < r.nsources; i++)
		rc = r.sources[i].source ? 0 : -EPROTO;
	if (rc == 0)
		rc = ps_request_check(&r, err);
	else
		ps_error_set(err, -rc, rc == -ENOMEM ? "out of memory" : "the request makes no sense");
	if (rc < 0)
		ps_request_fini(&r);
	else
		*ret = r;
	return rc;
}

int ps_request_options(const struct ps_mount_request *r, const struct ps_source_request *source,
        struct ps_mount_options *ret, struct ps_error *err)
{
	const struct ps_given *parts[] = {&r->given, &source->given};
	int rc = 0;

	ps_mount_options_init(ret);
	for (size_t p = 0; rc == 0 && p < PS_ARRAY_LEN(parts); p++) {
		for (size_t i = 0; rc == 0 && i < parts[p]->n; i++) {
			const struct ps_opt *opt = ps_options_find(parts[p]->v[i].name);

			/* In 0.3, credentials had an option for each kind of source. */
			if (!opt || ps_option_applies(opt, source->source))
				rc = ps_options_set(ret, parts[p]->v[i].name, parts[p]->v[i].value, err);
		}
	}
	return rc;
}

int ps_option_check_sources(const struct ps_opt *opt, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err)
{
	const char *texts[PS_SOURCES_MAX];

	for (size_t i = 0; i < nsources; i++)
		texts[i] = sources[i].source;
	return ps_option_check_kinds(opt, texts, nsources, err);
}

int ps_options_check_sources(const struct ps_given *given, size_t ngiven,
        const struct ps_source_request *sources, size_t nsources, struct ps_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < ngiven; i++) {
		const struct ps_opt *opt = ps_options_find(given->v[i].name);

		if (opt && rc == 0)
			rc = ps_option_check_sources(opt, sources, nsources, err);
	}
	return rc;
}
