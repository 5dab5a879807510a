#include "cli/option_scope.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum { HTTP = 1, S3 = 2, GS = 4, HF = 8, FILES = 16, AZ = 32, BUCKETS = S3 | GS, STORES = BUCKETS | AZ, REMOTE = HTTP | STORES | HF };

static const struct {
	const char *option;
	unsigned kinds;
} options[] = {
        {"endpoint", STORES},
        {"region", BUCKETS},
        {"profile", BUCKETS},
        {"no-sign-request", STORES},
        {"request-payer", BUCKETS},
        {"follow-redirects", S3},
        {"addressing-style", BUCKETS},
        {"pin-versions", BUCKETS},
        {"gs-credentials", GS},
        {"az-sas-file", AZ},
        {"hf-token-file", HF},
        {"header-file", REMOTE}, /* before "header", as which its lines are given, too */
        {"header", REMOTE},
        {"user", REMOTE},
        {"cacert", REMOTE},
        {"client-cert", REMOTE},
        {"client-key", REMOTE},
        {"client-key-password-file", REMOTE},
        {"proxy", REMOTE},
        {"netrc-file", REMOTE},
        {"insecure", REMOTE},
};

static unsigned kind_of(const char *source)
{
	static const struct {
		const char *prefix;
		unsigned kind;
	} prefixes[] = {{"@", ~0u}, {"http:", HTTP}, {"https:", HTTP}, {"s3:", S3}, {"gs:", GS}, {"az:", AZ}, {"hf:", HF}};

	for (size_t i = 0; i < PS_ARRAY_LEN(prefixes); i++)
		if (strncasecmp(source, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0)
			return prefixes[i].kind;
	return FILES;
}

static const char *name_of(unsigned kinds)
{
	return kinds == BUCKETS ? "buckets (s3://, gs://)"
	       : kinds == STORES ? "buckets (s3://, gs://, az://)"
	       : kinds == AZ    ? "az:// sources"
	       : kinds == S3    ? "s3:// sources"
	       : kinds == GS    ? "gs:// sources"
	       : kinds == HF    ? "hf:// sources"
	                        : "sources that are not local";
}

static int refuse(const char *option, unsigned kinds, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err)
{
	ps_autofree char *safe = nsources ? ps_source_canonical(sources[0].source, NULL) : NULL;
	const char *first = safe ? safe : "the source";

	if (nsources == 1)
		return ps_error_set(err, EINVAL, "option %s: it is for %s, which %.200s is not; leave it out",
		        option, name_of(kinds), first);
	return ps_error_set(err, EINVAL,
	        "option %s: it is for %s, which none of %zu sources is (%.200s, ...); leave it out", option,
	        name_of(kinds), nsources, first);
}

int ps_option_in_vain(
        const char *option, const struct ps_source_request *sources, size_t nsources, struct ps_error *err)
{
	unsigned kinds = 0;

	for (size_t i = 0; i < nsources; i++)
		kinds |= kind_of(sources[i].source);
	for (size_t k = 0; k < PS_ARRAY_LEN(options); k++)
		if (strcmp(option, options[k].option) == 0 && !(options[k].kinds & kinds))
			return refuse(option, options[k].kinds, sources, nsources, err);
	return 0;
}

int ps_options_in_vain(const struct ps_given *given, size_t ngiven, const struct ps_source_request *sources,
        size_t nsources, struct ps_error *err)
{
	int rc = 0;

	for (size_t k = 0; rc == 0 && k < PS_ARRAY_LEN(options); k++)
		for (size_t i = 0; rc == 0 && i < ngiven; i++)
			if (strcmp(given->v[i].name, options[k].option) == 0)
				rc = ps_option_in_vain(given->v[i].name, sources, nsources, err);
	return rc;
}

int ps_options_without_source(const struct ps_given *given, const char *mountpoint, struct ps_error *err)
{
	const char *option = NULL;

	for (size_t i = 0; i < given->n; i++)
		if (ps_options_find(given->v[i].name) &&
		        (!option || strcmp(given->v[i].name, "header-file") == 0))
			option = given->v[i].name;
	return option ? ps_error_set(err, EINVAL,
	                        "option %s: it is for a SOURCE, and %s is a mount, which has its own; leave "
	                        "it out",
	                        option, mountpoint)
	              : 0;
}
