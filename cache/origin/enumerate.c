#include "origin/enumerate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/braces.h"
#include "listing/manifest.h"
#include "base/bucket_url.h"
#include "base/url.h"

struct expansion {
	const struct ps_source *source;
	struct ps_names *names;
	ps_sign_fn sign;
	void *sign_arg;
	struct ps_common common;
	struct ps_strbuf key, url, path;
	bool second; /* pass */
};

static int out_of_memory(struct expansion *x)
{
	return ps_error_set(x->names->err, ENOMEM, "listing: out of memory");
}

/* Pass one. */
static int note(struct expansion *x)
{
	ps_common_add(&x->common, ps_strbuf_peek(&x->key));
	return x->common.dir.failed ? out_of_memory(x) : 0;
}

/* Pass two. */
static int hand_on(struct expansion *x, const char *signature, const char *url, const char *path,
        const struct ps_manifest_entry *entry)
{
	struct ps_listed listed = {
	        .path = path,
	        .url = url,
	        .remote = PS_REMOTE_UNKNOWN,
	        .checksum = entry->checksum,
	};

	listed.remote.size = entry->size;
	if (signature && x->sign && x->sign(x->sign_arg, url, signature) < 0)
		return out_of_memory(x);
	return ps_names_add(x->names, &listed);
}

static int another_origin(struct expansion *x, const char *url)
{
	char safe[PS_URL_TEXT_LEN];

	return ps_error_set(x->names->err, EINVAL,
	        "%s: one list names files, URLs, or objects in buckets, not several of them",
	        ps_url_redact(url, safe));
}

static int take_s3(struct expansion *x, const struct ps_manifest_entry *entry)
{
	ps_autos3url struct ps_s3_url u = {0};
	int rc = ps_s3_url_parse(entry->url, &u, x->names->err);

	if (rc)
		return rc;
	if (u.endpoint)
		return ps_error_set(
		        x->names->err, EINVAL, "%s: endpoint is an option, no part of a source", entry->url);
	u.endpoint = (char *)x->source->endpoint;
	ps_strbuf_reset(&x->key);
	ps_strbuf_addf(&x->key, "%s/%s", u.bucket, u.key);
	ps_strbuf_reset(&x->url);
	ps_s3_url_compose(&u, &x->url);
	u.endpoint = NULL;
	if (x->key.failed || x->url.failed)
		return out_of_memory(x);
	if (!x->second)
		return note(x);
	ps_strbuf_reset(&x->path);
	ps_s3_path(ps_common_below(&x->common, x->key.s), &x->path);
	return x->path.failed ? out_of_memory(x) : hand_on(x, NULL, x->url.s, x->path.s, entry);
}

static int take(void *arg, const struct ps_manifest_entry *entry)
{
	struct expansion *x = arg;
	char safe[PS_URL_TEXT_LEN];
	ps_autourl struct ps_url u = {0};
	int rc = ps_names_stopped(x->names);

	if (rc)
		return rc;
	if (ps_s3_url_is(entry->url) != (x->source->origin == PS_SOURCE_S3))
		return another_origin(x, entry->url);
	if (x->source->origin == PS_SOURCE_S3)
		return take_s3(x, entry);
	rc = ps_url_parse(entry->url, &u, x->names->err);
	if (rc)
		return rc;
	if ((strcmp(u.scheme, "file") == 0) != (x->source->origin == PS_SOURCE_FILE))
		return another_origin(x, entry->url);
	ps_autofree char *url = ps_url_compose(&u);
	if (!url)
		return out_of_memory(x);
	rc = ps_common_key(url, &x->key);
	if (rc == -ENOMEM)
		return out_of_memory(x);
	if (rc) {
		if (x->second)
			ps_names_warn(x->names, ps_url_redact(url, safe), "skipped: a broken %-escape");
		return 0;
	}
	if (!x->second)
		return note(x);
	return hand_on(x, u.signature, url, ps_common_below(&x->common, ps_strbuf_peek(&x->key)), entry);
}

static int expand_braces(struct expansion *x)
{
	struct ps_braces *braces = NULL;
	ps_autostrbuf struct ps_strbuf b = {0};
	int rc = ps_braces_parse(x->source->url, PS_LIST_MAX_ENTRIES, &braces, x->names->err);

	for (uint64_t i = 0; !rc && i < ps_braces_count(braces); i++) {
		struct ps_manifest_entry entry = {.size = PS_SIZE_UNKNOWN};

		ps_strbuf_reset(&b);
		ps_braces_add(braces, i, &b);
		entry.url = ps_strbuf_peek(&b);
		rc = b.failed ? out_of_memory(x) : take(x, &entry);
	}
	ps_braces_free(braces);
	return rc;
}

static int expand_manifest(struct expansion *x, const struct ps_packed *text)
{
	const char *name = x->source->canonical;
	char safe[PS_URL_TEXT_LEN];
	int rc = ps_manifest_parse(text, x->source->base, take, x, x->names->err);

	if (rc == -EINVAL)
		ps_error_prefix(x->names->err, "list %s", ps_url_redact(name + (*name == '@'), safe));
	return rc;
}

int ps_expand(const struct ps_source *source, const struct ps_packed *text, ps_sign_fn sign, void *sign_arg,
        struct ps_names *names)
{
	struct expansion x = {.source = source, .names = names, .sign = sign, .sign_arg = sign_arg};
	int rc = 0;

	for (int pass = 0; pass < 2 && !rc; pass++) {
		x.second = pass == 1;
		if (source->kind == PS_SOURCE_BRACES)
			rc = expand_braces(&x);
		else
			rc = expand_manifest(&x, text);
	}
	ps_common_fini(&x.common);
	ps_strbuf_fini(&x.key);
	ps_strbuf_fini(&x.url);
	ps_strbuf_fini(&x.path);
	return rc;
}
