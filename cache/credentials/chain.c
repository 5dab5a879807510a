/* Which sources are asked, in which order. */

#include <errno.h>
#include <stdio.h>

#include "credentials/key_source.h"

static int first_of(const ps_key_load *sources, size_t n, struct ps_key_context *x, struct ps_key **ret,
        struct ps_error *err)
{
	int rc = -ENOENT;

	for (size_t i = 0; i < n && rc == -ENOENT; i++) {
		*err = (struct ps_error){0};
		rc = sources[i](x, ret, err);
	}
	return rc;
}

/* What the last one said of its absence is told, too. */
static int none(struct ps_error *err, const char *where)
{
	char why[200];

	snprintf(why, sizeof why, "%.199s", err->text);
	*err = (struct ps_error){0};
	return ps_error_set(err, EACCES, "%s%s%s%s; give --no-sign-request for a public bucket", where,
	        *why ? " (" : "", why, *why ? ")" : "");
}

int ps_key_load_aws(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	static const ps_key_load sources[] = {ps_key_from_env, ps_key_from_profile, ps_key_from_web_identity,
	        ps_key_from_container, ps_key_from_imds};
	int rc = first_of(sources, PS_ARRAY_LEN(sources), x, ret, err);

	if (rc != -ENOENT)
		return rc;
	return none(err, "no credentials: none in the environment (AWS_ACCESS_KEY_ID), in ~/.aws (profile "
	                 "default), of a "
	                 "web identity, a container or an instance");
}

int ps_key_load_google(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	static const ps_key_load sources[] = {
	        ps_key_from_google_hmac, ps_key_from_google_file, ps_key_from_google_metadata};
	int rc = first_of(sources, PS_ARRAY_LEN(sources), x, ret, err);

	if (rc != -ENOENT)
		return rc;
	return none(err, "no credentials: no HMAC key (GS_ACCESS_KEY_ID), no file (--gs-credentials, "
	                 "GOOGLE_APPLICATION_CREDENTIALS, gcloud's), no metadata server");
}
