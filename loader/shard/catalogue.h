/* The catalogue of the shards in a folder, as who made them uploads it beside them: how many samples each
 * holds. One file tells the length of an epoch, so none of their indexes has to be fetched for that.
 *
 * A text file, SHARDS.psc:
 *
 *   penstock-shards 1
 *   SHA256 BYTES PLAIN SAMPLES BAD tar|lines NAME      a line a shard, sorted by the bytes of their names
 *   sum SUM                                            16 digits, of all that precedes this line
 *
 * SHA256 is that of the shard as it is stored (- where it is not known), PLAIN its bytes decompressed. Each
 * shard that it names has its index, NAME.psx, beside it. One that is cut or damaged is refused as a whole.
 *
 * Ownership: the caller's, until free; entries are the catalogue's.   Threads: any, but free.   Locks: none.
 * Blocks: reading and writing on the disk.
 * Errors: 0 or -errno with a text. -ENOENT: no such file; -EBADMSG: damaged; -ESTALE: of another version. */
#ifndef PS_SHARD_CATALOGUE_H
#define PS_SHARD_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/index_format.h"

#define PS_CATALOGUE_NAME "SHARDS.psc"
#define PS_CATALOGUE_MAX_FILE (UINT64_C(1) << 30)

struct ps_catalogue_entry {
	char *name; /* without folders */
	uint64_t nbytes, plain_nbytes;
	uint64_t samples, bad;
	bool lines;
	uint8_t sha256[PS_INDEX_SHA256]; /* zeros: not known */
};

struct ps_catalogue {
	char *path;
	struct ps_catalogue_entry *entries; /* sorted by name */
	size_t n;
	char *text; /* where the names are */
};

/* That of a folder. */
int ps_catalogue_read(
        const char *dir, struct ps_catalogue **ret_catalogue, struct ps_load_error *err) PS_MUST_USE;

/* The same of n bytes in memory, which are copied. */
int ps_catalogue_parse(const char *path, const void *data, size_t n, struct ps_catalogue **ret_catalogue,
        struct ps_load_error *err) PS_MUST_USE;

/* NULL: it does not name the shard. */
const struct ps_catalogue_entry *ps_catalogue_find(const struct ps_catalogue *catalogue, const char *name);

/* That of a shard as a reader sees it: also of x.tar.zst or x.tar.gz, where a mount shows it as x.tar, of so
 * many bytes. */
const struct ps_catalogue_entry *ps_catalogue_match(
        const struct ps_catalogue *catalogue, const char *name, uint64_t nbytes);

void ps_catalogue_free(struct ps_catalogue *catalogue); /* NULL is allowed */

/* Puts entries (which it sorts) into the folder's catalogue: those of the same names are replaced, those whose
 * shards are not there any more, with that size, are dropped. One process at a time: the folder is locked (flock). -EINVAL: a name that a
 * catalogue cannot hold. */
int ps_catalogue_update(const char *dir, struct ps_catalogue_entry *entries, size_t n,
        struct ps_load_error *err) PS_MUST_USE;

#endif
