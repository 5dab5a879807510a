#include "index/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define ROW_FORMAT 1        /* of every kind; a kind that changes gets its own next number */
/* Of object rows. 2 and 3 are read, for the sake of older indexes; 4 is written. */
#define OBJECT_FORMAT_CHUNKS 2 /* bytes of partial blocks */
#define OBJECT_FORMAT_MORE 3   /* at the end those, flags and a learned ETag */
#define OBJECT_FORMAT_CTIME 4  /* and the data file's ctime */
/* Of extent rows. 2 is read; 3 is written. */
#define EXTENT_FORMAT_CHUNKS 2 /* partial blocks, if there are any */
#define EXTENT_FORMAT_USED 3   /* always, and before all when it was used */
#define STOP_FORMAT_MOUNT 2    /* of the row about the last stop: the mount; 1 is read */
#define FLAG_SUPERSEDED 1u
#define FLAG_URL 2u
#define FLAG_CHECKSUM 4u
#define FLAG_SUM_OF_NAME 8u /* only with it */
#define FLAGS_CODING 0x30u  /* only of a file */
#define CODING_SHIFT 4
#define CODING_MAX 3
#define FLAG_BY_EXTENT 1u
#define FLAG_OBJECT_CHECKSUM 2u
#define FLAG_SUM_MATCHED 4u /* only with it */

void ps_dataset_row_fini(struct ps_dataset_row *row)
{
	free(row->source);
	row->source = NULL;
}

void ps_node_row_fini(struct ps_node_row *row)
{
	free(row->name);
	free(row->url);
	row->name = row->url = NULL;
}

void ps_object_row_fini(struct ps_object_row *row)
{
	free(row->url);
	row->url = NULL;
}

void ps_pin_row_fini(struct ps_pin_row *row)
{
	free(row->url);
	row->url = NULL;
}

/* Writing ---------------------------------------------------------------------------------------- */

static void put_le(struct ps_strbuf *b, uint64_t v, int nbytes)
{
	uint8_t bytes[8];

	for (int i = 0; i < nbytes; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	ps_strbuf_addn(b, bytes, (size_t)nbytes);
}

static void put_string(struct ps_strbuf *b, const char *s)
{
	size_t n = s ? strlen(s) : 0;

	/* What could not be read back must not be written. */
	if (n > PS_ROW_STRING_MAX_LEN)
		b->failed = true;
	put_le(b, n, 4);
	if (n > 0)
		ps_strbuf_addn(b, s, n);
}

static void put_etag(struct ps_strbuf *b, const char etag[static PS_ETAG_LEN])
{
	size_t n = strnlen(etag, PS_ETAG_LEN - 1);

	put_le(b, n, 1);
	if (n > 0)
		ps_strbuf_addn(b, etag, n);
}

static void put_checksum(struct ps_strbuf *b, const char sum[static PS_CHECKSUM_LEN])
{
	size_t n = strnlen(sum, PS_CHECKSUM_LEN - 1);

	put_le(b, n, 1);
	ps_strbuf_addn(b, sum, n);
}

static void put_remote(struct ps_strbuf *b, const struct ps_remote *remote)
{
	put_le(b, remote->size, 8);
	put_le(b, (uint64_t)remote->mtime_s, 8);
	put_etag(b, remote->etag);
}

void ps_dataset_row_encode(const struct ps_dataset_row *row, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	put_le(b, row->number, 4);
	put_le(b, row->root, 8);
	put_le(b, (uint64_t)row->listed_ms, 8);
	put_le(b, row->nfiles, 8);
	put_le(b, row->generation, 8);
	put_string(b, row->source);
}

void ps_node_row_encode(const struct ps_node_row *row, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	put_le(b, row->kind, 1);
	bool sum = row->remote.checksum[0];

	put_le(b, (row->superseded ? FLAG_SUPERSEDED : 0) | (row->url ? FLAG_URL : 0) | (sum ? FLAG_CHECKSUM : 0) |
	                (sum && row->sum_of_name ? FLAG_SUM_OF_NAME : 0) | ((unsigned)row->coding << CODING_SHIFT),
	        1);
	put_le(b, row->dataset, 4);
	put_le(b, row->ino, 8);
	put_le(b, row->parent, 8);
	put_le(b, row->generation, 8);
	put_le(b, (uint64_t)row->checked_ms, 8);
	put_remote(b, &row->remote);
	put_string(b, row->name);
	if (row->url)
		put_string(b, row->url);
	if (sum)
		put_checksum(b, row->remote.checksum);
}

void ps_object_row_encode(const struct ps_object_row *row, struct ps_strbuf *b)
{
	put_le(b, OBJECT_FORMAT_CTIME, 1);
	put_le(b, row->dataset, 4);
	put_le(b, row->nblocks_present, 8);
	put_le(b, row->allocated_nbytes, 8);
	put_le(b, (uint64_t)row->created_s, 8);
	put_le(b, (uint64_t)row->opened_s, 8);
	put_le(b, (uint64_t)row->data_mtime_ns, 8);
	put_le(b, row->data_ino, 8);
	put_remote(b, &row->remote);
	put_string(b, row->url);
	put_le(b, row->partial_nbytes, 8);
	put_le(b, (row->by_extent ? FLAG_BY_EXTENT : 0) | (row->checksum[0] ? FLAG_OBJECT_CHECKSUM : 0) |
	                (row->checksum[0] && row->sum_matched ? FLAG_SUM_MATCHED : 0),
	        1);
	put_etag(b, row->learned_etag);
	if (row->checksum[0])
		put_checksum(b, row->checksum);
	put_le(b, (uint64_t)row->data_ctime_ns, 8);
}

void ps_pin_row_encode(const struct ps_pin_row *row, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	ps_strbuf_addn(b, row->object_id.bytes, sizeof row->object_id.bytes);
	put_le(b, row->nbytes, 8);
	put_string(b, row->url);
}

void ps_view_row_encode(const struct ps_view_row *row, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	put_le(b, row->size, 8);
	put_le(b, row->declared, 1);
	put_le(b, row->nodes_below, 8);
}

void ps_grants_row_encode(const struct ps_grants_row *row, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	put_le(b, row->n, 1);
	for (unsigned i = 0; i < row->n; i++) {
		ps_strbuf_addn(b, row->v[i].access.bytes, sizeof row->v[i].access.bytes);
		put_le(b, (uint64_t)row->v[i].given_ms, 8);
		put_le(b, (uint64_t)row->v[i].expires_ms, 8);
	}
}

void ps_number_row_encode(uint64_t number, struct ps_strbuf *b)
{
	put_le(b, ROW_FORMAT, 1);
	put_le(b, number, 8);
}

void ps_extent_row_encode(const struct ps_extent_row *row, uint64_t trust, struct ps_strbuf *b)
{
	put_le(b, EXTENT_FORMAT_USED, 1);
	put_le(b, (uint64_t)row->used_s, 8);
	put_le(b, trust, 8);
	put_le(b, row->present, 8);
	put_le(b, row->unverified & (row->present | row->partial), 8);
	for (int i = 0; i < PS_EXTENT_BLOCKS; i++)
		if (row->present >> i & 1)
			put_le(b, row->crc[i], 4);
	put_le(b, row->partial, 8);
	for (int i = 0; i < PS_EXTENT_BLOCKS; i++) {
		if (!(row->partial >> i & 1))
			continue;
		put_le(b, row->chunks[i], 2);
		for (int c = 0; c < PS_ROW_CHUNKS; c++)
			if (row->chunks[i] >> c & 1)
				put_le(b, row->chunk_crc[i][c], 4);
	}
}

void ps_stop_row_encode(const struct ps_stop_row *row, struct ps_strbuf *b)
{
	put_le(b, STOP_FORMAT_MOUNT, 1);
	put_le(b, row->clean, 1);
	put_le(b, row->trust, 8);
	put_string(b, row->boot_id);
	put_le(b, row->mount_id, 8);
}

/* Reading ---------------------------------------------------------------------------------------- */

struct reader {
	const uint8_t *p;
	size_t left;
	uint8_t format;
	bool bad; /* remembered; every later get gives 0 */
	bool no_memory;
};

static struct reader reader_up_to(uint8_t format, const void *bytes, size_t n)
{
	struct reader r = {.p = bytes, .left = n};

	if (n == 0 || r.p[0] < ROW_FORMAT || r.p[0] > format) {
		r.bad = true;
	} else {
		r.format = *r.p++;
		r.left--;
	}
	return r;
}

static struct reader reader_at(const void *bytes, size_t n)
{
	return reader_up_to(ROW_FORMAT, bytes, n);
}

static uint64_t get_le(struct reader *r, size_t nbytes)
{
	uint64_t v = 0;

	if (r->bad || r->left < nbytes) {
		r->bad = true;
		return 0;
	}
	for (size_t i = 0; i < nbytes; i++)
		v |= (uint64_t)r->p[i] << (8 * i);
	r->p += nbytes;
	r->left -= nbytes;
	return v;
}

static void get_bytes(struct reader *r, uint8_t *ret, size_t n)
{
	if (r->bad || r->left < n) {
		r->bad = true;
		return;
	}
	memcpy(ret, r->p, n);
	r->p += n;
	r->left -= n;
}

/* n bytes into ret, with a NUL; a NUL among them is no string of ours. */
static void get_text(struct reader *r, size_t n, char *ret)
{
	if (r->bad || r->left < n || memchr(r->p, 0, n)) {
		r->bad = true;
		n = 0;
	}
	if (n > 0)
		memcpy(ret, r->p, n);
	ret[n] = '\0';
	r->p += n;
	r->left -= n;
}

static char *get_string(struct reader *r)
{
	uint64_t n = get_le(r, 4);

	if (r->bad || n > PS_ROW_STRING_MAX_LEN || n > r->left) {
		r->bad = true;
		return NULL;
	}
	char *s = malloc((size_t)n + 1);
	if (s)
		get_text(r, (size_t)n, s);
	else
		r->bad = r->no_memory = true;
	return s;
}

static void get_etag(struct reader *r, char ret[static PS_ETAG_LEN])
{
	uint64_t n = get_le(r, 1);

	if (n >= PS_ETAG_LEN) {
		r->bad = true;
		n = 0;
	}
	get_text(r, (size_t)n, ret);
}

static void get_checksum(struct reader *r, char ret[static PS_CHECKSUM_LEN])
{
	uint64_t n = get_le(r, 1);

	if (n == 0 || n >= PS_CHECKSUM_LEN) {
		r->bad = true;
		n = 0;
	}
	get_text(r, (size_t)n, ret);
}

static void get_remote(struct reader *r, struct ps_remote *ret)
{
	ret->size = get_le(r, 8);
	ret->mtime_s = (int64_t)get_le(r, 8);
	get_etag(r, ret->etag);
}

static int reader_end(const struct reader *r)
{
	if (r->no_memory)
		return -ENOMEM;
	return r->bad || r->left > 0 ? -EBADMSG : 0;
}

int ps_dataset_row_decode(const void *bytes, size_t n, const struct ps_id *id, struct ps_dataset_row *ret)
{
	struct reader r = reader_at(bytes, n);
	struct ps_dataset_row row = {.id = *id};

	row.number = (uint32_t)get_le(&r, 4);
	row.root = get_le(&r, 8);
	row.listed_ms = (int64_t)get_le(&r, 8);
	row.nfiles = get_le(&r, 8);
	row.generation = get_le(&r, 8);
	row.source = get_string(&r);
	int err = reader_end(&r);
	if (err < 0)
		ps_dataset_row_fini(&row);
	else
		*ret = row;
	return err;
}

int ps_node_row_decode(const void *bytes, size_t n, uint64_t node, struct ps_node_row *ret)
{
	struct reader r = reader_at(bytes, n);
	struct ps_node_row row = {.node = node};

	uint64_t kind = get_le(&r, 1);
	uint64_t flags = get_le(&r, 1);
	if ((kind != PS_NODE_DIR && kind != PS_NODE_FILE) || (kind == PS_NODE_FILE && !(flags & FLAG_URL)) ||
	        (flags & ~(uint64_t)(FLAG_SUPERSEDED | FLAG_URL | FLAG_CHECKSUM | FLAG_SUM_OF_NAME |
	                             FLAGS_CODING)) ||
	        (flags & FLAGS_CODING && kind != PS_NODE_FILE) ||
	        (flags & FLAGS_CODING) >> CODING_SHIFT > CODING_MAX ||
	        (flags & FLAG_SUM_OF_NAME && !(flags & FLAG_CHECKSUM)))
		r.bad = true;
	else
		row.kind = (enum ps_node_kind)kind;
	row.superseded = flags & FLAG_SUPERSEDED;
	row.dataset = (uint32_t)get_le(&r, 4);
	row.ino = get_le(&r, 8);
	row.parent = get_le(&r, 8);
	row.generation = get_le(&r, 8);
	row.checked_ms = (int64_t)get_le(&r, 8);
	get_remote(&r, &row.remote);
	row.name = get_string(&r);
	row.url = flags & FLAG_URL ? get_string(&r) : NULL;
	row.sum_of_name = flags & FLAG_SUM_OF_NAME;
	row.coding = (uint8_t)((flags & FLAGS_CODING) >> CODING_SHIFT);
	if (flags & FLAG_CHECKSUM)
		get_checksum(&r, row.remote.checksum);
	int err = reader_end(&r);
	if (err < 0)
		ps_node_row_fini(&row);
	else
		*ret = row;
	return err;
}

int ps_object_row_decode(const void *bytes, size_t n, const struct ps_id *id, struct ps_object_row *ret)
{
	struct reader r = reader_up_to(OBJECT_FORMAT_CTIME, bytes, n);
	struct ps_object_row row = {.id = *id};

	row.dataset = (uint32_t)get_le(&r, 4);
	row.nblocks_present = get_le(&r, 8);
	if (r.format == OBJECT_FORMAT_CHUNKS) {
		row.partial_nbytes = get_le(&r, 8);
		r.bad = r.bad || row.partial_nbytes == 0;
	}
	row.allocated_nbytes = get_le(&r, 8);
	row.created_s = (int64_t)get_le(&r, 8);
	row.opened_s = (int64_t)get_le(&r, 8);
	row.data_mtime_ns = (int64_t)get_le(&r, 8);
	row.data_ino = get_le(&r, 8);
	get_remote(&r, &row.remote);
	row.url = get_string(&r);
	if (r.format >= OBJECT_FORMAT_MORE) {
		row.partial_nbytes = get_le(&r, 8);
		uint64_t flags = get_le(&r, 1);
		get_etag(&r, row.learned_etag);
		row.by_extent = flags & FLAG_BY_EXTENT;
		row.sum_matched = flags & FLAG_SUM_MATCHED;
		if (flags & FLAG_OBJECT_CHECKSUM)
			get_checksum(&r, row.checksum);
		if (flags & ~(uint64_t)(FLAG_BY_EXTENT | FLAG_OBJECT_CHECKSUM | FLAG_SUM_MATCHED) ||
		        (row.sum_matched && !row.checksum[0]))
			r.bad = true;
	}
	if (r.format >= OBJECT_FORMAT_CTIME)
		row.data_ctime_ns = (int64_t)get_le(&r, 8);
	int err = reader_end(&r);
	if (err < 0)
		ps_object_row_fini(&row);
	else
		*ret = row;
	return err;
}

int ps_pin_row_decode(const void *bytes, size_t n, const struct ps_id *url_id, struct ps_pin_row *ret)
{
	struct reader r = reader_at(bytes, n);
	struct ps_pin_row row = {.url_id = *url_id};

	get_bytes(&r, row.object_id.bytes, sizeof row.object_id.bytes);
	row.nbytes = get_le(&r, 8);
	row.url = get_string(&r);
	int err = reader_end(&r);
	if (err < 0)
		ps_pin_row_fini(&row);
	else
		*ret = row;
	return err;
}

int ps_view_row_decode(const void *bytes, size_t n, struct ps_view_row *ret)
{
	struct reader r = reader_at(bytes, n);
	struct ps_view_row row = {.size = get_le(&r, 8)};
	uint64_t declared = get_le(&r, 1);

	row.declared = declared == 1;
	row.nodes_below = get_le(&r, 8);
	if (declared > 1)
		r.bad = true;
	int err = reader_end(&r);
	if (err == 0)
		*ret = row;
	return err;
}

int ps_grants_row_decode(const void *bytes, size_t n, struct ps_grants_row *ret)
{
	struct reader r = reader_at(bytes, n);
	struct ps_grants_row row = {.n = (unsigned)get_le(&r, 1)};

	if (row.n > PS_GRANTS_KEPT)
		return -EBADMSG;
	for (unsigned i = 0; i < row.n; i++) {
		get_bytes(&r, row.v[i].access.bytes, sizeof row.v[i].access.bytes);
		row.v[i].given_ms = (int64_t)get_le(&r, 8);
		row.v[i].expires_ms = (int64_t)get_le(&r, 8);
	}
	int err = reader_end(&r);
	if (err == 0)
		*ret = row;
	return err;
}

int ps_number_row_decode(const void *bytes, size_t n, uint64_t *ret_number)
{
	struct reader r = reader_at(bytes, n);
	uint64_t number = get_le(&r, 8);
	int err = reader_end(&r);

	if (err == 0)
		*ret_number = number;
	return err;
}

/* What follows the whole blocks, but in a row of the first format. */
static void get_chunks(struct reader *r, struct ps_extent_row *row)
{
	row->partial = get_le(r, 8);
	if (row->partial & row->present)
		r->bad = true;
	for (int i = 0; i < PS_EXTENT_BLOCKS && !r->bad; i++) {
		if (!(row->partial >> i & 1))
			continue;
		row->chunks[i] = (uint16_t)get_le(r, 2);
		if (!row->chunks[i])
			r->bad = true;
		for (int c = 0; c < PS_ROW_CHUNKS; c++)
			if (row->chunks[i] >> c & 1)
				row->chunk_crc[i][c] = (uint32_t)get_le(r, 4);
	}
}

int ps_extent_row_decode(const void *bytes, size_t n, uint64_t trust, struct ps_extent_row *ret)
{
	struct reader r = reader_up_to(EXTENT_FORMAT_USED, bytes, n);
	struct ps_extent_row row = {0};

	if (r.format == EXTENT_FORMAT_USED)
		row.used_s = (int64_t)get_le(&r, 8);
	uint64_t written_under = get_le(&r, 8);
	row.present = get_le(&r, 8);
	row.unverified = get_le(&r, 8);
	for (int i = 0; i < PS_EXTENT_BLOCKS; i++)
		if (row.present >> i & 1)
			row.crc[i] = (uint32_t)get_le(&r, 4);
	if (r.format >= EXTENT_FORMAT_CHUNKS)
		get_chunks(&r, &row);
	if (row.unverified & ~(row.present | row.partial))
		r.bad = true;
	if (written_under != trust)
		row.unverified = row.present | row.partial;
	int err = reader_end(&r);
	if (err == 0)
		*ret = row;
	return err;
}

int ps_stop_row_decode(const void *bytes, size_t n, struct ps_stop_row *ret)
{
	struct reader r = reader_up_to(STOP_FORMAT_MOUNT, bytes, n);
	struct ps_stop_row row = {0};

	uint64_t clean = get_le(&r, 1);
	row.clean = clean == 1;
	row.trust = get_le(&r, 8);
	uint64_t len = get_le(&r, 4);
	if (clean > 1 || len >= sizeof row.boot_id) {
		r.bad = true;
		len = 0;
	}
	get_text(&r, (size_t)len, row.boot_id);
	if (r.format >= STOP_FORMAT_MOUNT)
		row.mount_id = get_le(&r, 8);
	int err = reader_end(&r);
	if (err == 0)
		*ret = row;
	return err;
}

/* Keys -------------------------------------------------------------------------------------------- */

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
