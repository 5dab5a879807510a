/* Any bytes as a list of shards: names or an error, within the limits. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_shard_list list = {0};
	struct ps_error err = {0};
	int rc = ps_shard_list_add_text(&list, (const char *)data, size, "fuzz", &err);

	assert(rc == 0 || (list.n == 0 && err.text[0]));
	for (size_t i = 0; i < list.n; i++)
		assert(list.names[i][0]);
	ps_shard_list_fini(&list);
	return 0;
}
