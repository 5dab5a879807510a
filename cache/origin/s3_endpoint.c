#include "origin/bucket_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/url.h"

/* The store ---------------------------------------------------------------------------------------------- */

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
		return ps_no_memory(err);
	int rc = ps_url_parse(whole.s, &u, err);
	if (rc)
		return ps_error_prefix(err, rc, "endpoint");
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
	return store->host && (!own || store->identity) ? 0 : ps_no_memory(err);
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
	snprintf(store->region, sizeof(store->region), "%s", region ? region : FIRST_REGION);
	int rc = there ? take_endpoint(store, there, endpoint != NULL, err) : 0;
	if (rc) {
		ps_s3_store_fini(store);
		return rc;
	}
	/* Amazon serves all of its buckets by host name; many other stores serve none that way. */
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

/* Regions ------------------------------------------------------------------------------------------------ */

/* Under the lock. */
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
	snprintf(r->region, sizeof(r->region), "%s", region);
	return true;
}

/* Addresses of buckets ----------------------------------------------------------------------------------- */

/* True if the name may be part of a host name. TLS wildcard certificates cover one level only, hence no
 * dots. */
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

		memcpy(ret->region, r ? r->region : store->region, sizeof(ret->region));
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

/* Temporary redirects ------------------------------------------------------------------------------------ */

#define LABELS_MAX 16

static bool is_amazons(const struct ps_s3_store *store)
{
	return !store->host || ends_with(store->host, ".amazonaws.com") ||
	       ends_with(store->host, ".amazonaws.com.cn");
}

/* Matches [BUCKET.]s3.amazonaws.com, s3-REGION, s3.REGION and s3.dualstack.REGION only, since other names of
 * Amazon's are machines of customers. *ret_region is "" if the name has no region. */
static bool is_amazons_s3(const char *host, char ret_region[static PS_SIGV4_REGION_LEN])
{
	static const char *const domains[] = {".amazonaws.com", ".amazonaws.com.cn"};
	const char *labels[LABELS_MAX];
	size_t n = 0, len = strlen(host), cut = 0;

	for (size_t i = 0; i < PS_ARRAY_LEN(domains); i++)
		if (ends_with(host, domains[i]))
			cut = len - strlen(domains[i]);
	ps_autofree char *name = cut ? strndup(host, cut) : NULL;
	ret_region[0] = '\0';
	if (!name)
		return false;
	char *rest = name;
	for (char *label; (label = strsep(&rest, "."));) {
		if (n == LABELS_MAX)
			return false;
		labels[n++] = label;
	}
	const char *last = labels[n - 1], *before = n > 1 ? labels[n - 2] : "";
	if (strcmp(last, "s3") == 0)
		return true;
	if (strncmp(last, "s3-", 3) == 0 && strncmp(last, "s3-website", 10) != 0) {
		snprintf(ret_region, PS_SIGV4_REGION_LEN, "%s", last + 3);
		return true;
	}
	if (strcmp(before, "s3") != 0 &&
	        (strcmp(before, "dualstack") != 0 || n < 3 || strcmp(labels[n - 3], "s3") != 0))
		return false;
	snprintf(ret_region, PS_SIGV4_REGION_LEN, "%s", last);
	return true;
}

static bool is_stores_host(const struct ps_s3_store *store, const char *host)
{
	size_t n = strlen(host), m = store->host ? strlen(store->host) : 0;

	return m && n >= m && strcmp(host + n - m, store->host) == 0 && (n == m || host[n - m - 1] == '.');
}

static int hex(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Decodes escapes. False: a broken one, or a NUL. */
static bool decode(const char *text, struct ps_strbuf *out)
{
	for (; *text; text++) {
		int high = *text == '%' ? hex(text[1]) : 0,
		    low = *text == '%' && high >= 0 ? hex(text[2]) : 0;

		if (high < 0 || low < 0 || (*text == '%' && high + low == 0))
			return false;
		ps_strbuf_addc(out, *text == '%' ? (char)(high * 16 + low) : *text);
		text += *text == '%' ? 2 : 0;
	}
	return true;
}

/* Sorts the parameters, as the signature needs them. */
static int sort_query(const char *query, struct ps_strbuf *ret)
{
	struct ps_sigv4_pair pairs[PS_SIGV4_MAX_PAIRS];
	struct ps_strbuf texts[2 * PS_SIGV4_MAX_PAIRS] = {0};
	ps_autofree char *copy = strdup(query);
	char *rest = copy;
	size_t n = 0;
	int rc = copy ? 0 : -ENOMEM;

	for (char *value; rc == 0 && (value = strsep(&rest, "&"));) {
		char *name = strsep(&value, "=");

		if (!*name)
			continue;
		if (n == PS_SIGV4_MAX_PAIRS)
			rc = -EACCES;
		else if (!decode(name, &texts[2 * n]) || (value && !decode(value, &texts[2 * n + 1])))
			rc = -EACCES;
		else
			n++;
	}
	for (size_t i = 0; i < n; i++)
		pairs[i] = (struct ps_sigv4_pair){
		        ps_strbuf_peek(&texts[2 * i]), ps_strbuf_peek(&texts[2 * i + 1])};
	if (rc == 0)
		ps_sigv4_query(pairs, n, ret);
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++)
		ps_strbuf_fini(&texts[i]);
	return rc == 0 && ret->failed ? -ENOMEM : rc;
}

int ps_s3_temporary_redirect(struct ps_s3_store *store, const char *bucket, const char *location,
        struct ps_s3_place *ret, struct ps_strbuf *ret_query)
{
	ps_autostrbuf struct ps_strbuf host = {0};
	char region[PS_SIGV4_REGION_LEN] = "";
	ps_autourl struct ps_url u = {0};

	if (ps_url_parse(location, &u, NULL) < 0 || u.user || u.password || u.signature ||
	        strcmp(u.scheme, store->scheme ? store->scheme : "https") != 0)
		return -EACCES;
	ps_strbuf_addf(&host, "%s%s%s", u.host, u.port ? ":" : "", u.port ? u.port : "");
	if (host.failed)
		return -ENOMEM;
	if (!is_stores_host(store, host.s) &&
	        !(is_amazons(store) && !u.port && is_amazons_s3(host.s, region)))
		return -EACCES;
	/* First the usual place of the bucket: its region stays if the host name of the redirect has
	 * none. */
	int rc = ps_s3_store_place(store, bucket, "", ret);
	if (rc == 0 && u.query)
		rc = sort_query(u.query, ret_query);
	if (rc)
		return rc;
	if (region[0])
		memcpy(ret->region, region, sizeof(region));
	ps_strbuf_reset(&ret->host);
	ps_strbuf_reset(&ret->path);
	ps_strbuf_add(&ret->host, host.s);
	ps_strbuf_add(&ret->path, u.path);
	return ret->host.failed || ret->path.failed ? -ENOMEM : 0;
}
