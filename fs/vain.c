#include "vain.h"

#include <errno.h>
#include <string.h>

enum { HTTP = 1, S3 = 2, GS = 4, HF = 8, FILES = 16, BUCKETS = S3 | GS, REMOTE = HTTP | S3 | GS | HF };

static const struct {
	const char *option;
	unsigned kinds;
} options[] = {
        {"endpoint", BUCKETS},
        {"region", BUCKETS},
        {"profile", BUCKETS},
        {"no-sign-request", BUCKETS},
        {"request-payer", BUCKETS},
        {"addressing-style", BUCKETS},
        {"pin-versions", BUCKETS},
        {"gs-credentials", GS},
        {"hf-token-file", HF},
        {"header", REMOTE},
        {"header-file", REMOTE},
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
	} prefixes[] = {{"@", ~0u}, {"http:", HTTP}, {"https:", HTTP}, {"s3:", S3}, {"gs:", GS}, {"hf:", HF}};

	for (size_t i = 0; i < PS_ARRAY_LEN(prefixes); i++)
		if (strncmp(source, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0)
			return prefixes[i].kind;
	return FILES;
}

static const char *name_of(unsigned kinds)
{
	return kinds == BUCKETS ? "buckets (s3://, gs://)"
	       : kinds == GS    ? "gs:// sources"
	       : kinds == HF    ? "hf:// sources"
	                        : "sources that are not local";
}

int ps_options_in_vain(const struct ps_given *given, const struct ps_source_request *sources, size_t nsources,
        struct ps_error *err)
{
	unsigned kinds = 0;

	for (size_t i = 0; i < nsources; i++)
		kinds |= kind_of(sources[i].source);
	for (size_t i = 0; i < given->n; i++)
		for (size_t k = 0; k < PS_ARRAY_LEN(options); k++)
			if (strcmp(given->v[i].name, options[k].option) == 0 && !(options[k].kinds & kinds))
				return ps_error_set(err, EINVAL, "option %s: it is for %s; leave it out",
				        options[k].option, name_of(options[k].kinds));
	return 0;
}
