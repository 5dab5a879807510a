/* Index values as bytes, and back. The layouts are in HACKING.md; little-endian, a format byte first.
 *
 * Ownership: a decoded row owns its strings (ps_*_row_fini()); encoders append to the caller's buffer.
 * Threads: any. Blocks: never.
 * Errors: encoders by buffer->failed; decoders 0, -EBADMSG for anything that an encoder would not have
 * written (a cut or overlong value, another format, an impossible number), or -ENOMEM. *ret is untouched on
 * error. Ids are not in the values: decoders take them from the key. */
#ifndef PS_INDEX_ROWS_H
#define PS_INDEX_ROWS_H

#include "base/strbuf.h"
#include "index/index.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

/* Longer strings are refused on reading: nobody writes them. */
#define PS_ROW_STRING_MAX_LEN 65536

void ps_dataset_row_encode(const struct ps_dataset_row *row, struct ps_strbuf *b);
void ps_node_row_encode(const struct ps_node_row *row, struct ps_strbuf *b);
void ps_object_row_encode(const struct ps_object_row *row, struct ps_strbuf *b);
void ps_pin_row_encode(const struct ps_pin_row *row, struct ps_strbuf *b);
void ps_number_row_encode(uint64_t number, struct ps_strbuf *b);

void ps_view_row_encode(const struct ps_view_row *row, struct ps_strbuf *b);
void ps_grants_row_encode(const struct ps_grants_row *row, struct ps_strbuf *b);

int ps_view_row_decode(const void *bytes, size_t n, struct ps_view_row *ret) PS_MUST_USE;
int ps_grants_row_decode(const void *bytes, size_t n, struct ps_grants_row *ret) PS_MUST_USE;
int ps_dataset_row_decode(
        const void *bytes, size_t n, const struct ps_id *id, struct ps_dataset_row *ret) PS_MUST_USE;
int ps_node_row_decode(const void *bytes, size_t n, uint64_t node, struct ps_node_row *ret) PS_MUST_USE;
int ps_object_row_decode(
        const void *bytes, size_t n, const struct ps_id *id, struct ps_object_row *ret) PS_MUST_USE;
int ps_pin_row_decode(
        const void *bytes, size_t n, const struct ps_id *url_id, struct ps_pin_row *ret) PS_MUST_USE;
int ps_number_row_decode(const void *bytes, size_t n, uint64_t *ret_number) PS_MUST_USE;

/* `trust` counts the stops after which written data may have been lost: an extent written under an older
 * count comes back with all its blocks unverified. */
void ps_extent_row_encode(const struct ps_extent_row *row, uint64_t trust, struct ps_strbuf *b);
int ps_extent_row_decode(const void *bytes, size_t n, uint64_t trust, struct ps_extent_row *ret) PS_MUST_USE;

/* How the last process stopped. */
struct ps_stop_row {
	bool clean;
	char boot_id[37];
	uint64_t mount_id; /* of the cache directory's file system in that boot; 0: not known */
	uint64_t trust;
};
void ps_stop_row_encode(const struct ps_stop_row *row, struct ps_strbuf *b);
int ps_stop_row_decode(const void *bytes, size_t n, struct ps_stop_row *ret) PS_MUST_USE;

/* Keys of the index, as index.h lists them. Threads: any. Blocks: never. */
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
