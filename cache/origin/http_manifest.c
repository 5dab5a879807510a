#include "origin/http_manifest.h"

#include <errno.h>

#include "http/page.h"

int ps_http_manifest_list(struct ps_http_client *c, const struct ps_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names)
{
	struct ps_page_body body;

	if (ps_source_is_local_list(source)) {
		ps_autopacked struct ps_packed text = {0};
		int rc = ps_source_read_list(source, &text, names->err);

		return rc ? rc : ps_expand(source, &text, sign, sign_arg, names);
	}
	struct ps_http_page *page = ps_http_page_start_packed(c, source->canonical, PS_MANIFEST_MAX_NBYTES);
	if (!page)
		return ps_error_set(names->err, ENOMEM, "listing: out of memory");
	int rc = ps_http_page_wait(page, names->stop, &body, names->err);
	if (!rc)
		rc = ps_expand(source, body.packed, sign, sign_arg, names);
	ps_http_page_free(page);
	return rc;
}
