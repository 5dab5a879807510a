/* Grants: that an access may read an object version (or list a catalog), as the origin has shown by an answer of 2xx under its
 * credentials. What is in the cache is handed out to who has one; a listing grants no bytes.
 *
 *            2xx                        --grant-ttl is over, or the credential's own time
 *   NONE ─────────▶ VALID ◀──────────────────────────────────────────────▶ OLD
 *     ▲               │ any other answer about this object (401, 403 ..)    │ the same
 *     └───────────────┴─────────────────────────────────────────────────────┘
 *
 * NONE and OLD are asked at the origin when they are needed (revalidation.c). OLD holds while the origin gives no
 * answer; NONE does
 * not. Kept in the index, by keyed hashes of the access and of the version.
 *
 * Threads: any. Locks: cache.grants_lock, held over reading and writing one row of the index. Blocks: on the index. */
#ifndef PS_CATALOG_GRANT_H
#define PS_CATALOG_GRANT_H

#include "catalog/dataset.h"

enum ps_grant { PS_GRANT_NONE, PS_GRANT_OLD, PS_GRANT_VALID };

/* What a grant is of. */
void ps_grant_id_of_names(const struct ps_catalog *catalog, struct ps_id *ret);
void ps_grant_id_of_file(
        const struct ps_dataset *dataset, const char *url, const struct ps_remote *version, struct ps_id *ret);

/* VALID where the origin needs none, and for a file that has no bytes. */
enum ps_grant ps_grant_of_row(struct ps_dataset *dataset, const struct ps_node_row *row);
/* For ps_origin.proved; arg is the dataset. */
void ps_grant_proved(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s);

enum ps_grant ps_grant_look(struct ps_dataset *dataset, const struct ps_id *of);
/* expires_s: when the credential that was used ends; 0: it does not. */
void ps_grant_give(struct ps_dataset *dataset, const struct ps_id *of, int64_t expires_s);
void ps_grant_revoke(struct ps_dataset *dataset, const struct ps_id *of);

#endif
