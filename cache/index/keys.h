/* Keys of the index, as index.h lists them. Threads: any. Blocks: never. */
#ifndef PS_INDEX_KEYS_H
#define PS_INDEX_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* A name past it is cut: ps_path_check() lets none through. */
#define PS_KEY_MAX_LEN (1 + 8 + 4096)

struct ps_key {
	size_t n;
	uint8_t bytes[PS_KEY_MAX_LEN];
};

void ps_key_meta(struct ps_key *key, const char *name);
void ps_key_id(struct ps_key *key, char kind, const struct ps_id *id);
void ps_key_node(struct ps_key *key, char kind, uint64_t node);
void ps_key_child(struct ps_key *key, uint64_t parent, const char *name);
void ps_key_extent(struct ps_key *key, const struct ps_id *id, uint32_t extent);

/* The big-endian number that so many bytes of a key are. */
uint64_t ps_key_number(const uint8_t *bytes, int nbytes);

/* Logs which row is damaged if err is -EBADMSG; the rest of the index is fine. Returns err. */
int ps_index_bad_row(const struct ps_key *key, int err);

#endif
