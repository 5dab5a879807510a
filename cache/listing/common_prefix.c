#include <errno.h>
#include <string.h>

#include "listing/names.h"
#include "base/url.h"

int ps_common_key(const char *url, struct ps_strbuf *ret_key)
{
	const char *host = strstr(url, "://");

	if (!host)
		return -EINVAL;
	host += 3;
	size_t nhost = strcspn(host, "/?#");
	const char *path = host + nhost;

	ps_strbuf_reset(ret_key);
	ps_strbuf_addn(ret_key, host, nhost);
	return ps_url_decode(path, strcspn(path, "?#"), ret_key);
}

void ps_common_add(struct ps_common *common, const char *key)
{
	const char *slash = strrchr(key, '/');
	size_t n = slash ? (size_t)(slash - key) + 1 : 0;
	struct ps_strbuf *dir = &common->dir;

	if (!common->any) {
		common->any = true;
		ps_strbuf_addn(dir, key, n);
		return;
	}
	n = PS_MIN(n, dir->len);
	size_t same = 0, cut = 0;
	for (; same < n && dir->s[same] == key[same]; same++)
		if (key[same] == '/')
			cut = same + 1;
	if (dir->s) {
		dir->len = cut;
		dir->s[cut] = '\0';
	}
}

const char *ps_common_below(const struct ps_common *common, const char *key)
{
	return key + common->dir.len;
}

void ps_common_fini(struct ps_common *common)
{
	ps_strbuf_fini(&common->dir);
}
