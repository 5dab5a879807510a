#include "index/keys.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

static void add(struct ps_key *key, const void *bytes, size_t n)
{
	n = PS_MIN(n, sizeof key->bytes - key->n);
	memcpy(key->bytes + key->n, bytes, n);
	key->n += n;
}

static void add_be(struct ps_key *key, uint64_t v, int nbytes)
{
	uint8_t bytes[8];

	for (int i = 0; i < nbytes; i++)
		bytes[i] = (uint8_t)(v >> (8 * (nbytes - 1 - i)));
	add(key, bytes, (size_t)nbytes);
}

uint64_t ps_key_number(const uint8_t *bytes, int nbytes)
{
	uint64_t v = 0;

	for (int i = 0; i < nbytes; i++)
		v = v << 8 | bytes[i];
	return v;
}

void ps_key_meta(struct ps_key *key, const char *name)
{
	key->n = 0;
	add(key, "M", 1);
	add(key, name, strlen(name));
}

void ps_key_id(struct ps_key *key, char kind, const struct ps_id *id)
{
	key->n = 0;
	add(key, &kind, 1);
	add(key, id->bytes, PS_ID_LEN);
}

void ps_key_node(struct ps_key *key, char kind, uint64_t node)
{
	key->n = 0;
	add(key, &kind, 1);
	add_be(key, node, 8);
}

void ps_key_child(struct ps_key *key, uint64_t parent, const char *name)
{
	ps_key_node(key, 'C', parent);
	add(key, name, strlen(name));
}

void ps_key_extent(struct ps_key *key, const struct ps_id *id, uint32_t extent)
{
	ps_key_id(key, 'B', id);
	add_be(key, extent, 4);
}

/* Says which row is bad; the rest of the index is fine. */
int ps_index_bad_row(const struct ps_key *key, int err)
{
	char hex[2 * (1 + PS_ID_LEN + 4) + 1] = "";

	if (err != -EBADMSG)
		return err;
	for (size_t i = 0; i < key->n && 2 * i + 2 < sizeof hex; i++) {
		hex[2 * i] = "0123456789abcdef"[key->bytes[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[key->bytes[i] & 15];
	}
	ps_log_error("index: key %s: the row is damaged", hex);
	return err;
}
