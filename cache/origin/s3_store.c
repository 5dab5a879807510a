#include "origin/s3_store.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/url.h"

#define FIRST_REGION "us-east-1"

static bool is_region(const char *text)
{
	size_t n = strlen(text);

	for (const char *s = text; *s; s++)
		if ((unsigned char)*s >= 0x80 || !(isalnum((unsigned char)*s) || *s == '-' || *s == '_'))
			return false;
	return n > 0 && n < PS_SIGV4_REGION_LEN;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static int take_endpoint(struct ps_s3_store *store, const char *endpoint, bool own, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf whole = {0}, host = {0};
	ps_autourl struct ps_url u = {0};
	char safe[PS_URL_TEXT_LEN];

	ps_strbuf_addf(&whole, "%s%s", strstr(endpoint, "://") ? "" : "https://", endpoint);
	if (whole.failed)
		return ps_error_set(err, ENOMEM, "out of memory");
	int rc = ps_url_parse(whole.s, &u, err);
	if (rc)
		return ps_error_prefix(err, "endpoint");
	if (strcmp(u.scheme, "file") == 0 || !*u.host || u.user || u.query || u.signature)
		return ps_error_set(err, EINVAL, "endpoint %s: not of the form https://HOST[:PORT]",
		        ps_url_redact(endpoint, safe));
	for (size_t n = strlen(u.path); n && u.path[n - 1] == '/'; n--)
		u.path[n - 1] = '\0';
	ps_strbuf_addf(&host, "%s%s%s", u.host, u.port ? ":" : "", u.port ? u.port : "");
	store->base = ps_steal_ptr(&u.path);
	store->scheme = ps_steal_ptr(&u.scheme);
	store->host = ps_strbuf_take(&host);
	if (own && store->host) {
		ps_strbuf_addf(&host, "%s://%s%s", store->scheme, store->host, store->base);
		store->identity = ps_strbuf_take(&host);
	}
	return store->host && (!own || store->identity) ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

int ps_s3_store_init(struct ps_s3_store *store, const char *endpoint, const char *region,
        const char *default_endpoint, enum ps_s3_addressing addressing, struct ps_error *err)
{
	const char *there = endpoint ? endpoint : default_endpoint;

	*store = (struct ps_s3_store){0};
	pthread_mutex_init(&store->lock, NULL);
	if (region && !is_region(region)) {
		ps_s3_store_fini(store);
		return ps_error_set(err, EINVAL, "region \"%.64s\": not of the form us-east-1", region);
	}
	snprintf(store->region, sizeof store->region, "%s", region ? region : FIRST_REGION);
	int rc = there ? take_endpoint(store, there, endpoint != NULL, err) : 0;
	if (rc) {
		ps_s3_store_fini(store);
		return rc;
	}
	/* Amazon knows all of its buckets by host name; of others many know none. */
	store->virtual_hosts = addressing == PS_S3_ADDRESSING_VIRTUAL ||
	                       (addressing == PS_S3_ADDRESSING_AUTO &&
	                               (!store->host || ends_with(store->host, ".amazonaws.com") ||
	                                       ends_with(store->host, ".amazonaws.com.cn")));
	return 0;
}

void ps_s3_store_fini(struct ps_s3_store *store)
{
	for (size_t i = 0; i < PS_S3_MAX_REGIONS; i++)
		free(store->regions[i].bucket);
	pthread_mutex_destroy(&store->lock);
	free(store->scheme);
	free(store->host);
	free(store->base);
	free(store->identity);
	*store = (struct ps_s3_store){0};
}

/* Regions ----------------------------------------------------------------------------------------- */

/* The lock is held. */
static struct ps_s3_region *find_region(struct ps_s3_store *store, const char *bucket)
{
	for (size_t i = 0; i < PS_S3_MAX_REGIONS; i++)
		if (store->regions[i].bucket && strcmp(store->regions[i].bucket, bucket) == 0)
			return &store->regions[i];
	return NULL;
}

bool ps_s3_store_learn(struct ps_s3_store *store, const char *bucket, const char *region)
{
	if (!is_region(region))
		return false;
	PS_LOCK_SCOPE(&store->lock);
	struct ps_s3_region *r = find_region(store, bucket);
	if (strcmp(r ? r->region : store->region, region) == 0)
		return false;
	if (!r) {
		char *copy = strdup(bucket);

		if (!copy)
			return false;
		r = &store->regions[store->next_region++ % PS_S3_MAX_REGIONS];
		free(r->bucket);
		r->bucket = copy;
	}
	snprintf(r->region, sizeof r->region, "%s", region);
	return true;
}

/* Places ------------------------------------------------------------------------------------------ */

/* Fit to be a part of a host name: TLS certificates name one level below the store's, hence no dots. */
static bool is_label(const char *bucket)
{
	size_t n = strlen(bucket);

	for (const char *s = bucket; *s; s++)
		if (!islower((unsigned char)*s) && !isdigit((unsigned char)*s) && *s != '-')
			return false;
	return n >= 3 && n <= 63 && bucket[0] != '-' && bucket[n - 1] != '-';
}

void ps_s3_place_fini(struct ps_s3_place *place)
{
	ps_strbuf_fini(&place->host);
	ps_strbuf_fini(&place->path);
}

int ps_s3_store_place(struct ps_s3_store *store, const char *bucket, const char *key, struct ps_s3_place *ret)
{
	bool by_host = store->virtual_hosts && is_label(bucket);

	{
		PS_LOCK_SCOPE(&store->lock);
		const struct ps_s3_region *r = find_region(store, bucket);

		memcpy(ret->region, r ? r->region : store->region, sizeof ret->region);
	}
	if (by_host)
		ps_strbuf_addf(&ret->host, "%s.", bucket);
	if (store->host)
		ps_strbuf_add(&ret->host, store->host);
	else
		ps_strbuf_addf(&ret->host, "s3.%s.amazonaws.com%s", ret->region,
		        strncmp(ret->region, "cn-", 3) == 0 ? ".cn" : "");
	ps_strbuf_add(&ret->path, store->base ? store->base : "");
	if (!by_host) {
		ps_strbuf_addc(&ret->path, '/');
		ps_url_encode_strict(bucket, strlen(bucket), false, &ret->path);
	}
	if (by_host || *key)
		ps_strbuf_addc(&ret->path, '/');
	ps_url_encode_strict(key, strlen(key), true, &ret->path);
	return ret->host.failed || ret->path.failed ? -ENOMEM : 0;
}
