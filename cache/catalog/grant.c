#include "catalog/grant.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define FRESH_SHARE 8 /* of its time: one that is no older is not written again */

void ps_grant_id_of_names(const struct ps_catalog *catalog, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	ps_id_hex(&catalog->row.id, hex);
	ps_id_of_strings((const char *[]){"names", hex}, 2, ret);
}

void ps_grant_id_of_file(
        const struct ps_dataset *ds, const char *url, const struct ps_remote *version, struct ps_id *ret)
{
	char hex[PS_ID_HEX_LEN + 1];

	if (!ds->origin->proves_all) {
		ps_object_id(url, version, "grant", ret);
		return;
	}
	ps_id_hex(&ds->catalog->row.id, hex);
	ps_id_of_strings((const char *[]){"all of", hex}, 2, ret);
}

/* The place of this access in the row; row->n: none. */
static unsigned find(const struct ps_dataset *ds, const struct ps_grants_row *row)
{
	unsigned i = 0;

	while (i < row->n && ps_id_cmp(&row->v[i].access, &ds->access) != 0)
		i++;
	return i;
}

static unsigned get(struct ps_dataset *ds, const struct ps_id *of, struct ps_grants_row *ret)
{
	if (ps_index_get_grants(ds->index, of, ret) < 0)
		*ret = (struct ps_grants_row){.n = 0};
	return find(ds, ret);
}

/* A time in the future is of a clock that went back: it tells nothing. */
static bool is_within(int64_t given_ms, uint64_t ms)
{
	int64_t now_ms = ps_clock_real_ms();

	return given_ms <= now_ms && (uint64_t)(now_ms - given_ms) < ms;
}

/* Without credentials there is no right that could be taken from one and left to others: when a version is confirmed is early
 * enough to learn that an object is public no more. */
static uint64_t ttl_ms(const struct ps_dataset *ds)
{
	uint64_t ms = ds->cache->grant_ttl_ms;

	return ds->anonymous && ms != PS_GRANT_TTL_OPEN_MS ? PS_MAX(ms, ds->revalidate_ms) : ms;
}

enum ps_grant ps_grant_look(struct ps_dataset *ds, const struct ps_id *of)
{
	struct ps_grants_row row;
	unsigned i = get(ds, of, &row);

	if (i == row.n)
		return PS_GRANT_NONE;
	bool expired = row.v[i].expires_ms && ps_clock_real_ms() >= row.v[i].expires_ms;
	return !expired && is_within(row.v[i].given_ms, ttl_ms(ds)) ? PS_GRANT_VALID : PS_GRANT_OLD;
}

enum ps_grant ps_grant_of_row(struct ps_dataset *ds, const struct ps_node_row *row)
{
	struct ps_id of;

	if (!ds->origin->proved || row->remote.size == 0)
		return PS_GRANT_VALID;
	ps_grant_id_of_file(ds, row->url, &row->remote, &of);
	return ps_grant_look(ds, &of);
}

void ps_grant_proved(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s)
{
	struct ps_dataset *ds = arg;
	struct ps_id of;

	ps_grant_id_of_file(ds, url, version, &of);
	ps_grant_give(ds, &of, key_expires_s);
}

static void put(struct ps_dataset *ds, const struct ps_id *of, const struct ps_grants_row *row)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	if (row->n)
		ps_index_batch_put_grants(batch, of, row);
	else
		ps_index_batch_del_grants(batch, of);
	if (ps_index_batch_commit_or_keep(ds->index, batch) < 0)
		ps_log_debug("index: a grant cannot be kept: it is asked for again");
}

void ps_grant_give(struct ps_dataset *ds, const struct ps_id *of, int64_t expires_s)
{
	struct ps_grants_row row;

	PS_LOCK_SCOPE(&ds->cache->grants_lock);
	unsigned i = get(ds, of, &row);
	if (i < row.n && row.v[i].expires_ms == expires_s * 1000 &&
	        is_within(row.v[i].given_ms, ds->cache->grant_ttl_ms / FRESH_SHARE))
		return;
	/* To the front; the one that was given first goes where there are too many. */
	if (i == row.n && row.n < PS_GRANTS_KEPT)
		row.n++;
	memmove(&row.v[1], &row.v[0], PS_MIN(i, PS_GRANTS_KEPT - 1u) * sizeof row.v[0]);
	row.v[0].access = ds->access;
	row.v[0].given_ms = ps_clock_real_ms();
	row.v[0].expires_ms = expires_s * 1000;
	put(ds, of, &row);
}

void ps_grant_revoke(struct ps_dataset *ds, const struct ps_id *of)
{
	struct ps_grants_row row;

	PS_LOCK_SCOPE(&ds->cache->grants_lock);
	unsigned i = get(ds, of, &row);
	if (i == row.n)
		return;
	memmove(&row.v[i], &row.v[i + 1], (--row.n - i) * sizeof row.v[0]);
	put(ds, of, &row);
}
