#include "origin/az.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "origin/az_request.h"
#include "origin/http_get.h"
#include "origin/s3_list.h"

struct ps_az {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_az_store store;
	struct ps_source source;
};

static struct ps_az *az_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_az, origin);
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	return ps_s3_list(o, &az_of(o)->client, NULL, &az_of(o)->source, false, fn, arg, stop, err);
}

static void head(struct ps_origin *o, struct ps_head *h)
{
	ps_http_head(&az_of(o)->client, h);
}

static void get(struct ps_origin *o, struct ps_get *g)
{
	ps_http_get(&az_of(o)->client, g);
}

static void cancel(struct ps_origin *o, struct ps_get *g)
{
	ps_http_cancel(&az_of(o)->client, &g->work);
}

static void abort_all(struct ps_origin *o)
{
	ps_transfers_abort(az_of(o)->client.transfers);
}

static void az_free(struct ps_az *az)
{
	ps_az_store_fini(&az->store);
	ps_source_fini(&az->source);
	free(az);
}

static void az_close(struct ps_origin *o)
{
	ps_http_client_fini(&az_of(o)->client);
	az_free(az_of(o));
}

static const struct ps_origin_ops az_ops = {
        .name = "az",
        .list = list,
        .head = head,
        .get = get,
        .cancel = cancel,
        .abort = abort_all,
        .close = az_close,
};

/* What goes into the signature is ours. */
static int check_headers(const struct ps_origin_options *options, struct ps_error *err)
{
	for (const char *const *h = options->http.headers; h && *h; h++)
		if (strncasecmp(*h, "x-ms-", 5) == 0 || strncasecmp(*h, "content-", 8) == 0 || strncasecmp(*h, "date:", 5) == 0)
			return ps_error_set(err, EINVAL, "header option: %.*s is set by the mount itself",
			        (int)strcspn(*h, ":"), *h);
	return 0;
}

int ps_az_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_az *az = calloc(1, sizeof *az);
	int rc;

	if (!az) {
		ps_source_fini(source);
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	az->origin.ops = &az_ops;
	az->source = *source;
	*source = (struct ps_source){0};
	rc = ps_az_store_init(&az->store, &az->source, options, err);
	if (rc == 0)
		rc = check_headers(options, err);
	if (rc == 0)
		rc = ps_http_client_init(&az->client, az->store.root, &options->http, err);
	if (rc) {
		az_free(az);
		return rc;
	}
	az->client.as_stored = true;
	az->client.dialect = &ps_az_dialect;
	az->client.dialect_arg = &az->store;
	az->origin.heads_prove = true; /* both need Read */
	az->source.endpoint = az->store.identity;
	*ret = &az->origin;
	return 0;
}
