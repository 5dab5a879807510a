#include "origin/origin.h"

#include "origin/kinds.h"
#include "origin/hub_source.h"
#include "base/bucket_url.h"
#include "origin/source.h"

int ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	static const struct ps_origin_options defaults = {0};
	struct ps_source parsed;

	if (ps_hf_is_source(source))
		return ps_hf_open(source, options ? options : &defaults, ret, err);
	int rc = ps_source_parse(source, &parsed, err);
	if (rc)
		return rc;
	if (parsed.origin == PS_SOURCE_FILE)
		return ps_file_open(&parsed, ret, err);
	if (parsed.origin == PS_SOURCE_S3 && ps_s3_url_is_azure(parsed.first))
		return ps_az_open(&parsed, options ? options : &defaults, ret, err);
	if (parsed.origin == PS_SOURCE_S3)
		return ps_s3_open(&parsed, options ? options : &defaults, ret, err);
	return ps_http_open(&parsed, options ? options : &defaults, ret, err);
}

char *ps_source_canonical(const char *source, struct ps_error *err)
{
	struct ps_source parsed;

	if (ps_hf_is_source(source)) {
		struct ps_hf_source hub;

		if (ps_hf_source_parse(source, &hub, err) < 0)
			return NULL;
		char *spelled = ps_steal_ptr(&hub.canonical);
		ps_hf_source_fini(&hub);
		return spelled;
	}
	if (ps_source_parse(source, &parsed, err) < 0)
		return NULL;
	char *canonical = ps_steal_ptr(&parsed.canonical);
	ps_source_fini(&parsed);
	return canonical;
}
