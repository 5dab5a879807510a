#include "origin/kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/secret.h"
#include "origin/enumerate.h"
#include "origin/http_get.h"
#include "origin/http_list.h"
#include "http/netrc.h"
#include "base/url.h"

struct ps_http {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_source source;
};

static struct ps_http *http_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_http, origin);
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	return ps_http_list(o, &http_of(o)->client, &http_of(o)->source, fn, arg, stop, err);
}

static void head(struct ps_origin *o, struct ps_head *h)
{
	ps_http_head(&http_of(o)->client, h);
}

static void get(struct ps_origin *o, struct ps_get *g)
{
	ps_http_get(&http_of(o)->client, g);
}

static void cancel(struct ps_origin *o, struct ps_get *g)
{
	ps_http_cancel(&http_of(o)->client, &g->work);
}

static void abort_all(struct ps_origin *o)
{
	ps_transfers_abort(http_of(o)->client.transfers);
}

static void http_close(struct ps_origin *o)
{
	struct ps_http *http = http_of(o);

	ps_http_client_fini(&http->client);
	ps_source_fini(&http->source);
	free(http);
}

static const struct ps_origin_ops http_ops = {
        .name = "http",
        .list = list,
        .head = head,
        .get = get,
        .cancel = cancel,
        .abort = abort_all,
        .close = http_close,
};

/* A list at hand may sign each of its URLs; they must be known before anyone gets one, also without a
 * listing. */
static int ignore(void *arg, const struct ps_listed *listed)
{
	(void)arg, (void)listed;
	return 0;
}

static int sign(void *arg, const char *url, const char *signature)
{
	return ps_http_client_sign(arg, url, signature);
}

/* -ECANCELED: there is one. */
static int find_query(void *arg, const char *text, size_t n, bool more, size_t *ret_used)
{
	(void)arg, (void)more;
	*ret_used = n;
	return memchr(text, '?', n) ? -ECANCELED : 0;
}

static int learn_signatures(struct ps_http *http, struct ps_error *err)
{
	const struct ps_source *source = &http->source;
	struct ps_names names;

	int rc = ps_packed_each(&source->text, find_query, NULL);

	if (rc != -ECANCELED)
		return rc ? ps_error_set(err, ENOMEM, "out of memory") : 0;
	ps_names_init(&names, NULL, ignore, NULL, NULL, err);
	names.quiet = true;
	rc = ps_expand(source, &source->text, sign, &http->client, &names);
	ps_names_fini(&names);
	return rc;
}

static bool has_authorization(const struct ps_origin_options *options, const struct ps_url *u)
{
	for (const char *const *h = options->http.headers; h && *h; h++)
		if (strncasecmp(*h, "authorization:", 14) == 0)
			return true;
	return options->http.user_password || u->user;
}

/* Who gives no credentials may have them in .netrc. */
static int init_client(struct ps_http *http, const struct ps_origin_options *options, struct ps_error *err)
{
	struct ps_origin_options mine = *options;
	ps_autourl struct ps_url u = {0};
	char *found = NULL;
	int rc = ps_url_parse(http->source.first, &u, err);

	if (!rc && !has_authorization(options, &u))
		rc = ps_netrc_user_password(&options->http, u.host, &found, err);
	if (rc)
		return rc;
	if (found)
		mine.http.user_password = found;
	rc = ps_http_client_init(&http->client, http->source.first, &mine.http, err);
	ps_secret_free(found);
	return rc;
}

int ps_http_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_http *http = calloc(1, sizeof *http);

	if (!http) {
		ps_source_fini(source);
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	http->origin.ops = &http_ops;
	http->source = *source;
	*source = (struct ps_source){0};
	int rc = init_client(http, options, err);
	if (rc) {
		ps_source_fini(&http->source);
		free(http);
		return rc;
	}
	rc = learn_signatures(http, err);
	if (rc) {
		http_close(&http->origin);
		return rc;
	}
	*ret = &http->origin;
	return 0;
}
