/* .netrc: any bytes give an entry with a login, or none. */
#include <stdlib.h>
#include <string.h>

#include "http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_strbuf found = {0};
	bool is_there = ps_netrc_find((const char *)data, size, "h", &found);

	if (is_there != (found.len > 0) || (is_there && !strchr(found.s, ':')))
		abort();
	ps_strbuf_fini(&found);
	return 0;
}
