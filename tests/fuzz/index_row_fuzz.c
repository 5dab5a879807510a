/* Index rows from a damaged or hostile index. The first byte is the kind of row, the rest is the value. A
 * value that is accepted must be what the encoder writes, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "index/index_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TRUST 1

static void try_kind(char letter, const uint8_t *bytes, size_t n, struct ps_strbuf *b)
{
	const uint8_t key[1 + PS_ID_LEN] = {(uint8_t)letter};
	union {
		struct ps_dataset_row dataset;
		struct ps_node_row node;
		struct ps_object_row object;
		struct ps_pin_row pin;
		struct ps_grants_row grants;
		struct ps_view_row view;
		struct ps_stop_row stop;
		uint64_t number;
	} row;

	if (ps_row_decode(key, bytes, n, &row) < 0)
		return;
	if (letter == 'N' && (!row.node.name || (row.node.kind == PS_NODE_FILE && !row.node.url)))
		abort();
	ps_row_encode(letter, &row, b);
	if (b->failed || b->len != n || memcmp(b->s, bytes, n) != 0)
		abort();
	if (letter == 'D')
		ps_dataset_row_fini(&row.dataset);
	else if (letter == 'N')
		ps_node_row_fini(&row.node);
	else if (letter == 'O')
		ps_object_row_fini(&row.object);
	else if (letter == 'P')
		ps_pin_row_fini(&row.pin);
}

static void try_extent(const uint8_t *bytes, size_t n, struct ps_strbuf *b)
{
	struct ps_extent_row extent;

	if (ps_extent_row_decode(bytes, n, TRUST, &extent) < 0)
		return;
	if (extent.unverified & ~(extent.present | extent.partial) || extent.present & extent.partial)
		abort();
	ps_extent_row_encode(&extent, TRUST, b);
	/* The blocks of an extent with an older trust are all unverified: only the length of the row stays. */
	if (b->failed || b->len != n)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	if (size == 0)
		return 0;
	if (data[0] == 'B')
		try_extent(data + 1, size - 1, &b);
	else if (data[0] && strchr("DNOPGCMV", data[0]))
		try_kind((char)data[0], data + 1, size - 1, &b);
	return 0;
}
