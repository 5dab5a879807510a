/* Index rows from a damaged or hostile index. The first byte is the kind of row, the rest is the value. A
 * value that is accepted must be what the encoder writes, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "index/index_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TRUST 1

static void must_equal(const struct ps_strbuf *b, const uint8_t *bytes, size_t n)
{
	if (b->failed || b->len != n || memcmp(b->s, bytes, n) != 0)
		abort();
}

static void try_texts(char kind, const uint8_t *bytes, size_t n, struct ps_strbuf *b)
{
	struct ps_id id = {{0}};
	struct ps_dataset_row dataset;
	struct ps_node_row node;
	struct ps_object_row object;
	struct ps_pin_row pin;

	if (kind == 'D' && ps_dataset_row_decode(bytes, n, &id, &dataset) == 0) {
		ps_dataset_row_encode(&dataset, b);
		must_equal(b, bytes, n);
		ps_dataset_row_fini(&dataset);
	} else if (kind == 'N' && ps_node_row_decode(bytes, n, 1, &node) == 0) {
		if (!node.name || (node.kind == PS_NODE_FILE && !node.url))
			abort();
		ps_node_row_encode(&node, b);
		must_equal(b, bytes, n);
		ps_node_row_fini(&node);
	} else if (kind == 'O' && ps_object_row_decode(bytes, n, &id, &object) == 0) {
		ps_object_row_encode(&object, b);
		must_equal(b, bytes, n);
		ps_object_row_fini(&object);
	} else if (kind == 'P' && ps_pin_row_decode(bytes, n, &id, &pin) == 0) {
		ps_pin_row_encode(&pin, b);
		must_equal(b, bytes, n);
		ps_pin_row_fini(&pin);
	}
}

static void try_numbers(char kind, const uint8_t *bytes, size_t n, struct ps_strbuf *b)
{
	struct ps_extent_row extent;
	struct ps_stop_row stop;
	struct ps_grants_row grants;
	uint64_t number;

	if (kind == 'G' && ps_grants_row_decode(bytes, n, &grants) == 0) {
		ps_grants_row_encode(&grants, b);
		must_equal(b, bytes, n);
	} else if (kind == 'C' && ps_number_row_decode(bytes, n, &number) == 0) {
		ps_number_row_encode(number, b);
		must_equal(b, bytes, n);
	} else if (kind == 'M' && ps_stop_row_decode(bytes, n, &stop) == 0) {
		ps_stop_row_encode(&stop, b);
		must_equal(b, bytes, n);
	} else if (kind == 'B' && ps_extent_row_decode(bytes, n, TRUST, &extent) == 0) {
		if (extent.unverified & ~(extent.present | extent.partial) || extent.present & extent.partial)
			abort();
		ps_extent_row_encode(&extent, TRUST, b);
		/* The blocks of an extent with an older trust are all unverified: only the length of the row
		 * stays. */
		if (b->failed || b->len != n)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	if (size == 0)
		return 0;
	try_texts((char)data[0], data + 1, size - 1, &b);
	try_numbers((char)data[0], data + 1, size - 1, &b);
	return 0;
}
