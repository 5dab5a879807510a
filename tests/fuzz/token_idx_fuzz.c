/* Any bytes as the index of a Megatron token file. */
#include <stdint.h>
#include <string.h>

#include "index_documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t items[] = {1, 1, 1, 2, 4, 8, 8, 4, 2};
	uint64_t n = 0, pointer = 0;
	int32_t len = 0;

	/* the tokens that there must be for the index to be read: the last pointer and length say it */
	if (size >= 34 && data[17] < sizeof(items)) {
		memcpy(&n, data + 18, sizeof(n)); /* little-endian */
		if (n > 0 && n <= (size - 34) / 12) {
			memcpy(&len, data + 34 + 4 * (n - 1), sizeof(len));
			memcpy(&pointer, data + 34 + 4 * n + 8 * (n - 1), sizeof(pointer));
		}
		pointer = pointer / items[data[17]] + (uint64_t)(int64_t)len;
	}
	documents_fuzz("t.bin", "t.idx", data, size, pointer);
	return 0;
}
