#include "base/json.h"

#include "base/strbuf.h"

json_t *ps_json_lossy(const char *text)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	json_t *as_it_is = json_string(text);

	if (as_it_is)
		return as_it_is;
	for (; *text; text++) {
		if ((unsigned char)*text < 0x80)
			ps_strbuf_addc(&b, *text);
		else
			ps_strbuf_add(&b, "\xef\xbf\xbd");
	}
	return b.failed ? NULL : json_string(ps_strbuf_peek(&b));
}
