/* The public function that expands patterns of shards. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "public.h"
#include "shard/shard.h"

int penstock_shards_expand(
        const char *pattern, char **ret_names, size_t *ret_nbytes, struct penstock_error *error)
{
	struct ps_shard_list list = {0};
	struct ps_error err = {0};
	struct ps_buf names = {0};
	int rc = ps_shard_list_add(&list, pattern, &err);

	for (size_t i = 0; i < list.n && rc == 0; i++)
		if (ps_buf_add(&names, list.names[i], strlen(list.names[i]) + 1) < 0)
			rc = ps_no_memory(&err);
	ps_shard_list_fini(&list);
	if (ps_errno_is_lost(-rc)) {
		err.cause = PS_CAUSE_SHARD;
		err.shard = pattern;
	}
	if (rc < 0) {
		ps_buf_fini(&names);
		return ps_give_error(error, rc, &err);
	}
	*ret_names = (char *)names.p;
	*ret_nbytes = names.n;
	return 0;
}
