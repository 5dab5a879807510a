/* Any bytes as the index of a datatrove token file. */
#include <stdint.h>
#include <string.h>

#include "index_documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t end = 0;

	if (size >= sizeof(end))
		memcpy(&end, data + size - sizeof(end), sizeof(end)); /* little-endian */
	documents_fuzz("t.ds", "t.ds.index", data, size, end);
	return 0;
}
