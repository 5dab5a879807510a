/* The rows of the index. One list of fields for each kind of row serves both writing and reading. */
#include "index/index_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define ROW_FORMAT 1 /* of every kind; a kind that changes gets its next number */
#define FLAG_SUPERSEDED 1u
#define FLAG_URL 2u
#define FLAG_CHECKSUM 4u
#define FLAG_SUM_OF_NAME 8u /* only together with FLAG_CHECKSUM */
#define FLAGS_CODING 0x30u  /* only for a file */
#define CODING_SHIFT 4
#define CODING_MAX 3
#define FLAG_BY_EXTENT 1u
#define FLAG_OBJECT_CHECKSUM 2u
#define FLAG_SUM_MATCHED 4u /* only together with FLAG_OBJECT_CHECKSUM */

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

/* Fields ------------------------------------------------------------------------------------------------- */

/* The state of writing a row, or of reading one (out NULL). */
struct fields {
	struct ps_strbuf *out;
	const uint8_t *p;
	size_t left;
	bool bad; /* sticky; every later number is 0 */
	bool no_memory;
	char *strings[2]; /* that were read, for freeing */
	unsigned nstrings;
};

/* Writes or reads a number and returns it. */
static uint64_t number(struct fields *f, uint64_t v, size_t nbytes)
{
	uint8_t bytes[8];

	if (f->out) {
		for (size_t i = 0; i < nbytes; i++)
			bytes[i] = (uint8_t)(v >> (8 * i));
		ps_strbuf_addn(f->out, bytes, nbytes);
		return v;
	}
	if (f->bad || f->left < nbytes) {
		f->bad = true;
		return 0;
	}
	v = 0;
	for (size_t i = 0; i < nbytes; i++)
		v |= (uint64_t)f->p[i] << (8 * i);
	f->p += nbytes;
	f->left -= nbytes;
	return v;
}
#define NUMBER(f, field, nbytes) ((field) = (__typeof__(field))number(f, (uint64_t)(field), nbytes))

static void boolean(struct fields *f, bool *field)
{
	uint64_t v = number(f, *field, 1);

	*field = v == 1;
	f->bad |= v > 1;
}

/* Reads n bytes and adds a NUL. Text that contains a NUL is bad. */
static void get_text(struct fields *f, size_t n, char *ret)
{
	if (f->bad || f->left < n || memchr(f->p, 0, n)) {
		f->bad = true;
		n = 0;
	}
	if (n > 0)
		memcpy(ret, f->p, n);
	ret[n] = '\0';
	f->p += n;
	f->left -= n;
}

/* A text in an array of `cap` bytes. Its length is stored in nlength bytes and must be at least `least`. */
static void text(struct fields *f, char *field, size_t cap, size_t nlength, size_t least)
{
	size_t n = f->out ? strnlen(field, cap - 1) : 0;

	NUMBER(f, n, nlength);
	if (f->out) {
		ps_strbuf_addn(f->out, field, n);
		return;
	}
	if (n < least || n >= cap) {
		f->bad = true;
		n = 0;
	}
	get_text(f, n, field);
}

static void string(struct fields *f, char **field)
{
	uint64_t n = f->out && *field ? strlen(*field) : 0;

	NUMBER(f, n, 4);
	if (f->out) {
		/* A string that is too long to be read back must not be written. */
		if (n > PS_ROW_STRING_MAX_LEN)
			f->out->failed = true;
		if (n > 0)
			ps_strbuf_addn(f->out, *field, (size_t)n);
		return;
	}
	if (f->bad || n > PS_ROW_STRING_MAX_LEN || n > f->left) {
		f->bad = true;
		return;
	}
	*field = malloc((size_t)n + 1);
	if (!*field) {
		f->bad = f->no_memory = true;
		return;
	}
	f->strings[f->nstrings++] = *field;
	get_text(f, (size_t)n, *field);
}

static void id(struct fields *f, struct ps_id *field)
{
	if (f->out) {
		ps_strbuf_addn(f->out, field->bytes, sizeof(field->bytes));
	} else if (f->bad || f->left < sizeof(field->bytes)) {
		f->bad = true;
	} else {
		memcpy(field->bytes, f->p, sizeof(field->bytes));
		f->p += sizeof(field->bytes);
		f->left -= sizeof(field->bytes);
	}
}

static void etag(struct fields *f, char *field)
{
	text(f, field, PS_ETAG_LEN, 1, 0);
}

static void checksum(struct fields *f, char *field)
{
	text(f, field, PS_CHECKSUM_LEN, 1, 1);
}

static void remote(struct fields *f, struct ps_remote *field)
{
	NUMBER(f, field->size, 8);
	NUMBER(f, field->mtime_s, 8);
	etag(f, field->etag);
}

/* Datasets ----------------------------------------------------------------------------------------------- */

static void dataset_fields(struct fields *f, void *arg)
{
	struct ps_dataset_row *row = arg;

	NUMBER(f, row->number, 4);
	NUMBER(f, row->root, 8);
	NUMBER(f, row->listed_ms, 8);
	NUMBER(f, row->nfiles, 8);
	NUMBER(f, row->generation, 8);
	string(f, &row->source);
}

/* Nodes -------------------------------------------------------------------------------------------------- */

static void take_node_flags(struct fields *f, unsigned kind, unsigned flags, struct ps_node_row *row)
{
	if ((kind != PS_NODE_DIR && kind != PS_NODE_FILE) || (kind == PS_NODE_FILE && !(flags & FLAG_URL)) ||
	        (flags & ~(FLAG_SUPERSEDED | FLAG_URL | FLAG_CHECKSUM | FLAG_SUM_OF_NAME | FLAGS_CODING)) ||
	        (flags & FLAGS_CODING && kind != PS_NODE_FILE) ||
	        (flags & FLAGS_CODING) >> CODING_SHIFT > CODING_MAX ||
	        (flags & FLAG_SUM_OF_NAME && !(flags & FLAG_CHECKSUM)))
		f->bad = true;
	else
		row->kind = (enum ps_node_kind)kind;
	row->superseded = flags & FLAG_SUPERSEDED;
	row->sum_of_name = flags & FLAG_SUM_OF_NAME;
	row->coding = (uint8_t)((flags & FLAGS_CODING) >> CODING_SHIFT);
}

static void node_fields(struct fields *f, void *arg)
{
	struct ps_node_row *row = arg;
	bool sum = row->remote.checksum[0];
	unsigned kind = row->kind, flags = (row->superseded ? FLAG_SUPERSEDED : 0) |
	                                   (row->url ? FLAG_URL : 0) | (sum ? FLAG_CHECKSUM : 0) |
	                                   (sum && row->sum_of_name ? FLAG_SUM_OF_NAME : 0) |
	                                   ((unsigned)row->coding << CODING_SHIFT);

	NUMBER(f, kind, 1);
	NUMBER(f, flags, 1);
	if (!f->out)
		take_node_flags(f, kind, flags, row);
	NUMBER(f, row->dataset, 4);
	NUMBER(f, row->ino, 8);
	NUMBER(f, row->parent, 8);
	NUMBER(f, row->generation, 8);
	NUMBER(f, row->checked_ms, 8);
	remote(f, &row->remote);
	string(f, &row->name);
	if (flags & FLAG_URL)
		string(f, &row->url);
	if (flags & FLAG_CHECKSUM)
		checksum(f, row->remote.checksum);
}

/* Objects ------------------------------------------------------------------------------------------------ */

static void object_fields(struct fields *f, void *arg)
{
	struct ps_object_row *row = arg;
	bool sum = row->checksum[0];
	unsigned flags = (row->by_extent ? FLAG_BY_EXTENT : 0) | (sum ? FLAG_OBJECT_CHECKSUM : 0) |
	                 (sum && row->sum_matched ? FLAG_SUM_MATCHED : 0);

	NUMBER(f, row->dataset, 4);
	NUMBER(f, row->nblocks_present, 8);
	NUMBER(f, row->allocated_nbytes, 8);
	NUMBER(f, row->created_s, 8);
	NUMBER(f, row->opened_s, 8);
	NUMBER(f, row->data_mtime_ns, 8);
	NUMBER(f, row->data_ino, 8);
	remote(f, &row->remote);
	string(f, &row->url);
	NUMBER(f, row->partial_nbytes, 8);
	NUMBER(f, flags, 1);
	etag(f, row->learned_etag);
	if (flags & FLAG_OBJECT_CHECKSUM)
		checksum(f, row->checksum);
	NUMBER(f, row->data_ctime_ns, 8);
	row->by_extent = flags & FLAG_BY_EXTENT;
	row->sum_matched = flags & FLAG_SUM_MATCHED;
	if (flags & ~(FLAG_BY_EXTENT | FLAG_OBJECT_CHECKSUM | FLAG_SUM_MATCHED) ||
	        (row->sum_matched && !row->checksum[0]))
		f->bad = true;
}

/* Extents ------------------------------------------------------------------------------------------------ */

static void partial_fields(struct fields *f, struct ps_extent_row *row)
{
	NUMBER(f, row->partial, 8);
	f->bad |= (row->partial & row->present) != 0;
	for (int i = 0; i < PS_EXTENT_BLOCKS && !f->bad; i++) {
		if (!(row->partial >> i & 1))
			continue;
		NUMBER(f, row->chunks[i], 2);
		f->bad |= !row->chunks[i];
		for (int c = 0; c < PS_ROW_CHUNKS; c++)
			if (row->chunks[i] >> c & 1)
				NUMBER(f, row->chunk_crc[i][c], 4);
	}
}

/* A row with the trust under which it was written. */
struct trusted {
	struct ps_extent_row row;
	uint64_t trust;
};

static void extent_fields(struct fields *f, void *arg)
{
	struct trusted *t = arg;
	struct ps_extent_row *row = &t->row;

	NUMBER(f, row->used_s, 8);
	NUMBER(f, t->trust, 8);
	NUMBER(f, row->present, 8);
	NUMBER(f, row->unverified, 8);
	for (int i = 0; i < PS_EXTENT_BLOCKS; i++)
		if (row->present >> i & 1)
			NUMBER(f, row->crc[i], 4);
	partial_fields(f, row);
	f->bad |= (row->unverified & ~(row->present | row->partial)) != 0;
}

/* Pins, views, grants, numbers, stops -------------------------------------------------------------------- */

static void pin_fields(struct fields *f, void *arg)
{
	struct ps_pin_row *row = arg;

	id(f, &row->object_id);
	NUMBER(f, row->nbytes, 8);
	string(f, &row->url);
}

static void view_fields(struct fields *f, void *arg)
{
	struct ps_view_row *row = arg;

	NUMBER(f, row->size, 8);
	boolean(f, &row->declared);
	NUMBER(f, row->nodes_below, 8);
}

static void grants_fields(struct fields *f, void *arg)
{
	struct ps_grants_row *row = arg;

	NUMBER(f, row->n, 1);
	if (row->n > PS_GRANTS_KEPT) {
		f->bad = true;
		return;
	}
	for (unsigned i = 0; i < row->n; i++) {
		id(f, &row->v[i].access);
		NUMBER(f, row->v[i].given_ms, 8);
		NUMBER(f, row->v[i].expires_ms, 8);
	}
}

static void number_fields(struct fields *f, void *arg)
{
	uint64_t *v = arg;

	NUMBER(f, *v, 8);
}

static void stop_fields(struct fields *f, void *arg)
{
	struct ps_stop_row *row = arg;

	boolean(f, &row->clean);
	NUMBER(f, row->trust, 8);
	text(f, row->boot_id, sizeof(row->boot_id), 4, 0);
	NUMBER(f, row->mount_id, 8);
}

/* Kinds -------------------------------------------------------------------------------------------------- */

/* A row with room for any kind. */
union any_row {
	struct ps_id id;
	uint64_t number;
	struct ps_dataset_row dataset;
	struct ps_node_row node;
	struct ps_object_row object;
	struct trusted extent;
	struct ps_pin_row pin;
	struct ps_view_row view;
	struct ps_grants_row grants;
	struct ps_stop_row stop;
};

static const struct kind {
	char letter;
	enum {
		NOT_IN_KEY,
		ID_IN_KEY,
		NUMBER_IN_KEY
	} first;                                     /* where the first member of the struct is stored */
	size_t nbytes;                               /* of the struct */
	void (*fields)(struct fields *f, void *row); /* writes and reads the value */
} kinds[] = {
        {'D', ID_IN_KEY, sizeof(struct ps_dataset_row), dataset_fields},
        {'N', NUMBER_IN_KEY, sizeof(struct ps_node_row), node_fields},
        {'C', NOT_IN_KEY, sizeof(uint64_t), number_fields},
        {'O', ID_IN_KEY, sizeof(struct ps_object_row), object_fields},
        {'B', NOT_IN_KEY, sizeof(struct trusted), extent_fields},
        {'P', ID_IN_KEY, sizeof(struct ps_pin_row), pin_fields},
        {'V', NOT_IN_KEY, sizeof(struct ps_view_row), view_fields},
        {'G', NOT_IN_KEY, sizeof(struct ps_grants_row), grants_fields},
        {'M', NOT_IN_KEY, sizeof(struct ps_stop_row), stop_fields},
};

static const struct kind *kind_of(char letter)
{
	const struct kind *kind = kinds;

	while (kind->letter != letter)
		kind++;
	return kind;
}

void ps_row_encode(char letter, const void *row, struct ps_strbuf *b)
{
	const struct kind *kind = kind_of(letter);
	struct fields f = {.out = b};
	union any_row copy;

	memcpy(&copy, row, kind->nbytes);
	number(&f, ROW_FORMAT, 1);
	kind->fields(&f, &copy);
}

int ps_row_decode(const uint8_t *key, const void *bytes, size_t n, void *ret)
{
	const struct kind *kind = kind_of((char)key[0]);
	struct fields f = {.p = bytes, .left = n};
	union any_row row;

	memset(&row, 0, kind->nbytes);
	if (kind->first == ID_IN_KEY)
		memcpy(row.id.bytes, key + 1, sizeof(row.id.bytes));
	else if (kind->first == NUMBER_IN_KEY)
		row.number = ps_index_key_number(key + 1, 8);
	f.bad = number(&f, 0, 1) != ROW_FORMAT;
	kind->fields(&f, &row);
	if (!f.bad && f.left == 0) {
		memcpy(ret, &row, kind->nbytes);
		return 0;
	}
	for (unsigned i = 0; i < f.nstrings; i++)
		free(f.strings[i]);
	return f.no_memory ? -ENOMEM : -EBADMSG;
}

void ps_extent_row_encode(const struct ps_extent_row *row, uint64_t trust, struct ps_strbuf *b)
{
	struct trusted t = {.row = *row, .trust = trust};

	t.row.unverified &= row->present | row->partial;
	ps_row_encode('B', &t, b);
}

int ps_extent_row_decode(const void *bytes, size_t n, uint64_t trust, struct ps_extent_row *ret)
{
	struct trusted t;
	int rc = ps_row_decode((const uint8_t *)"B", bytes, n, &t);

	if (rc < 0)
		return rc;
	if (t.trust != trust)
		t.row.unverified = t.row.present | t.row.partial;
	*ret = t.row;
	return 0;
}

/* Keys --------------------------------------------------------------------------------------------------- */

static void add(struct ps_index_key *key, const void *bytes, size_t n)
{
	n = PS_MIN(n, sizeof(key->bytes) - key->n);
	memcpy(key->bytes + key->n, bytes, n);
	key->n += n;
}

static void add_be(struct ps_index_key *key, uint64_t v, int nbytes)
{
	uint8_t bytes[8];

	for (int i = 0; i < nbytes; i++)
		bytes[i] = (uint8_t)(v >> (8 * (nbytes - 1 - i)));
	add(key, bytes, (size_t)nbytes);
}

uint64_t ps_index_key_number(const uint8_t *bytes, int nbytes)
{
	uint64_t v = 0;

	for (int i = 0; i < nbytes; i++)
		v = v << 8 | bytes[i];
	return v;
}

const struct ps_index_key *ps_index_key_meta(struct ps_index_key *key, const char *name)
{
	key->n = 0;
	add(key, "M", 1);
	add(key, name, strlen(name));
	return key;
}

const struct ps_index_key *ps_index_key_id(struct ps_index_key *key, char kind, const struct ps_id *id)
{
	key->n = 0;
	add(key, &kind, 1);
	add(key, id->bytes, PS_ID_LEN);
	return key;
}

const struct ps_index_key *ps_index_key_node(struct ps_index_key *key, char kind, uint64_t node)
{
	key->n = 0;
	add(key, &kind, 1);
	add_be(key, node, 8);
	return key;
}

const struct ps_index_key *ps_index_key_child(struct ps_index_key *key, uint64_t parent, const char *name)
{
	ps_index_key_node(key, 'C', parent);
	add(key, name, strlen(name));
	return key;
}

const struct ps_index_key *ps_index_key_extent(
        struct ps_index_key *key, const struct ps_id *id, uint32_t extent)
{
	ps_index_key_id(key, 'B', id);
	add_be(key, extent, 4);
	return key;
}

const struct ps_index_key *ps_index_key_members(struct ps_index_key *key, uint64_t node, uint32_t row)
{
	ps_index_key_node(key, 'T', node);
	if (row != PS_MEMBERS_HEAD)
		add_be(key, row, 4);
	return key;
}

/* Logs which row is bad; the rest of the index stays usable. */
int ps_index_bad_row(const struct ps_index_key *key, int err)
{
	char hex[2 * (1 + PS_ID_LEN + 4) + 1] = "";

	if (err != -EBADMSG)
		return err;
	for (size_t i = 0; i < key->n && 2 * i + 2 < sizeof(hex); i++) {
		hex[2 * i] = "0123456789abcdef"[key->bytes[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[key->bytes[i] & 15];
	}
	ps_log_error("index: key %s: the row is damaged", hex);
	return err;
}
