#include "config.h"

#include "shard/index_core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -- Samples ------------------------------------------------------------------------------------------- */

bool ps_index_is_of_lines(const struct ps_index *x)
{
	return x->flags & PS_INDEX_FLAG_LINES;
}

uint64_t ps_index_samples(const struct ps_index *x)
{
	return x->count;
}

uint64_t ps_index_bad(const struct ps_index *x)
{
	return x->bad;
}

static int range_check(const struct ps_index *x, uint64_t sample, struct ps_load_error *err)
{
	if (sample < x->count)
		return 0;
	return ps_load_error_set(err, ERANGE, "%s: has no sample %ju, only %ju", x->path, (uintmax_t)sample,
	        (uintmax_t)x->count);
}

/* The samples of a mark, front to back. Offsets beyond 2^62 are damage, so sums cannot overflow. */
struct walk {
	struct ps_index_bytes b;
	uint64_t end;  /* of the last sample */
	uint64_t unit; /* bytes */
};

#define OFFSET_MAX (UINT64_C(1) << 62)

static bool advance(uint64_t *at, uint64_t units, uint64_t unit)
{
	if (*at > OFFSET_MAX || units > OFFSET_MAX / unit || units * unit > OFFSET_MAX - *at)
		return false;
	*at += units * unit;
	return true;
}

/* One sample; its members go to `ret` if that is not NULL. */
static bool walk_sample(
        const struct ps_index *x, struct walk *w, struct ps_index_place *place, struct ps_index_member *ret)
{
	uint64_t what, units, at;

	if (!ps_get_varint(&w->b, &what))
		return false;
	if ((what & 1) && (!ps_get_varint(&w->b, &units) || !advance(&w->end, units, w->unit)))
		return false;
	*place = (struct ps_index_place){.offset = w->end, .bad = what & 2};
	what >>= 2;
	if (what > x->nshapes)
		return false;
	if (what == 0)
		return ps_get_varint(&w->b, &units) && advance(&w->end, units, w->unit);
	at = w->end;
	place->nmembers = x->shapes[what - 1].n;
	for (uint32_t i = 0; i < place->nmembers; i++) {
		const struct ps_index_shape_member *m = &x->members[x->shapes[what - 1].first + i];
		uint64_t size;

		if (!advance(&at, m->lead, w->unit) || !ps_get_varint(&w->b, &size) || size > OFFSET_MAX)
			return false;
		if (ret)
			ret[i] = (struct ps_index_member){.suffix = m->suffix, .offset = at, .size = size};
		if (!advance(&at, size / w->unit + (size % w->unit > 0), w->unit))
			return false;
	}
	w->end = at + (w->unit == 1); /* a line's end */
	return true;
}

static struct ps_index_place window_place(
        const struct ps_index *x, uint64_t sample, struct ps_index_member *ret_members)
{
	struct ps_index_place place = {.offset = sample * x->windows.stride};

	if (x->bad && sample == x->count - 1) {
		place.bad = true;
		return place;
	}
	place.resume_offset = place.offset;
	place.nmembers = 1;
	if (ret_members)
		*ret_members = (struct ps_index_member){
		        .suffix = x->windows.suffix, .offset = place.offset, .size = x->windows.nbytes};
	return place;
}

static int sample_find(struct ps_index *x, uint64_t sample, struct ps_index_place *ret_place,
        struct ps_index_member *ret_members, struct ps_load_error *err)
{
	const uint8_t *mark;
	struct ps_index_place place = {0};
	struct walk w = {.unit = x->flags & PS_INDEX_FLAG_LINES ? 1 : 512};
	uint64_t at;
	int r = range_check(x, sample, err);

	if (r < 0)
		return r;
	if (x->windows.nbytes > 0) {
		*ret_place = window_place(x, sample, ret_members);
		return 0;
	}
	if (!ps_index_section_sound(x->samples))
		return ps_index_damaged(x, err);
	mark = x->samples->p + sample / PS_INDEX_MARK * 16;
	w.end = ps_get_u64(mark);
	at = ps_get_u64(mark + 8);
	w.b.p = x->samples->p + ps_index_nmarks(x->count) * 16;
	w.b.end = x->samples->p + x->samples->n;
	if (w.end > OFFSET_MAX || at > (uint64_t)(w.b.end - w.b.p))
		return ps_index_damaged(x, err);
	w.b.p += at;
	for (uint64_t i = 0; i <= sample % PS_INDEX_MARK; i++)
		if (!walk_sample(x, &w, &place, i == sample % PS_INDEX_MARK ? ret_members : NULL))
			return ps_index_damaged(x, err);
	if (!place.bad && !(x->flags & (PS_INDEX_FLAG_GLOBAL | PS_INDEX_FLAG_COMPRESSED)))
		place.resume_offset = place.offset;
	*ret_place = place;
	return 0;
}

int ps_index_place(
        struct ps_index *x, uint64_t sample, struct ps_index_place *ret_place, struct ps_load_error *err)
{
	return sample_find(x, sample, ret_place, NULL, err);
}

int ps_index_members(struct ps_index *x, uint64_t sample, struct ps_index_place *ret_place,
        struct ps_index_member ret_members[static PS_INDEX_MAX_MEMBERS], struct ps_load_error *err)
{
	return sample_find(x, sample, ret_place, ret_members, err);
}

/* Text number `sample` of marks and a stream of texts. */
static bool text_find(const struct ps_index *x, const uint8_t *p, const uint8_t *end, uint64_t sample,
        const char **ret_text, size_t *ret_len)
{
	uint64_t at = ps_get_u64(p + sample / PS_INDEX_MARK * 8), len = 0;
	struct ps_index_bytes b = {p + ps_index_nmarks(x->count) * 8, end};
	const uint8_t *text = NULL;

	if (at > (uint64_t)(b.end - b.p))
		return false;
	b.p += at;
	for (uint64_t i = 0; i <= sample % PS_INDEX_MARK; i++)
		if (!ps_get_varint(&b, &len) || !ps_get_bytes(&b, len, &text))
			return false;
	*ret_text = (const char *)text;
	*ret_len = (size_t)len;
	return true;
}

int ps_index_key(
        struct ps_index *x, uint64_t sample, const char **ret_key, size_t *ret_len, struct ps_load_error *err)
{
	int r = range_check(x, sample, err);

	if (r < 0)
		return r;
	if (x->windows.nbytes > 0)
		return ps_load_error_set(err, ENOENT, "%s: a token stream has no keys", x->path);
	if (!ps_index_section_sound(x->keys) ||
	        !text_find(x, x->keys->p, x->keys->p + x->keys->n, sample, ret_key, ret_len))
		return ps_index_damaged(x, err);
	return 0;
}

/* -- Comparing with the shard --------------------------------------------------------------------------- */

/* Goes to the sample's mark, or stays where the sample before it ended. */
static bool walk_begin(struct ps_index *x, struct ps_index_walk *w, uint64_t sample, struct walk *at,
        struct ps_index_bytes *keys)
{
	const uint8_t *marks = x->samples->p + sample / PS_INDEX_MARK * 16;
	uint64_t place = ps_get_u64(marks + 8), key = ps_get_u64(x->keys->p + sample / PS_INDEX_MARK * 8);
	const uint8_t *places_begin = x->samples->p + ps_index_nmarks(x->count) * 16;
	const uint8_t *keys_begin = x->keys->p + ps_index_nmarks(x->count) * 8;

	*at = (struct walk){.b = {w->place, x->samples->p + x->samples->n},
	        .end = w->end,
	        .unit = x->flags & PS_INDEX_FLAG_LINES ? 1 : 512};
	*keys = (struct ps_index_bytes){w->key, x->keys->p + x->keys->n};
	if (w->ready && w->next == sample)
		return true;
	w->next = sample - sample % PS_INDEX_MARK;
	at->end = ps_get_u64(marks);
	if (at->end > OFFSET_MAX || place > (uint64_t)(at->b.end - places_begin) ||
	        key > (uint64_t)(keys->end - keys_begin))
		return false;
	at->b.p = places_begin + place;
	keys->p = keys_begin + key;
	return true;
}

static bool walk_to(struct ps_index *x, struct ps_index_walk *w, uint64_t sample, struct ps_index_place *place,
        struct ps_index_member *members, const char **ret_key, size_t *ret_len)
{
	struct ps_index_bytes keys;
	const uint8_t *key = NULL;
	struct walk at;
	uint64_t len = 0;

	if (!walk_begin(x, w, sample, &at, &keys))
		return false;
	for (; w->next <= sample; w->next++)
		if (!walk_sample(x, &at, place, members) || !ps_get_varint(&keys, &len) ||
		        !ps_get_bytes(&keys, len, &key))
			return false;
	*w = (struct ps_index_walk){
	        .ready = true, .next = sample + 1, .end = at.end, .place = at.b.p, .key = keys.p};
	*ret_key = (const char *)key;
	*ret_len = (size_t)len;
	return true;
}

#define STALE_HINT \
	PS_INDEX_STALE "; fetch its index again, or make it (penstock-loader index --force; --catalogue where there is a SHARDS.psc)"

static bool members_equal(const struct ps_index_member *a, const struct ps_index_member *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].offset != b[i].offset || a[i].size != b[i].size || strcmp(a[i].suffix, b[i].suffix) != 0)
			return false;
	return true;
}

int ps_index_check(struct ps_index *x, struct ps_index_walk *w, uint64_t sample, uint64_t offset, const char *key,
        size_t key_len, const struct ps_index_member *members, uint32_t nmembers, struct ps_load_error *err)
{
	struct ps_index_member want[PS_INDEX_MAX_MEMBERS];
	struct ps_index_place place;
	const char *want_key;
	size_t want_len;

	if (x->windows.nbytes > 0)
		return 0; /* its size says all */
	if (sample >= x->count)
		return ps_load_error_set(err, ESTALE, "has a sample %ju, \"%.*s\", but its index %s counts %ju: " STALE_HINT,
		        (uintmax_t)sample, (int)PS_MIN(key_len, (size_t)100), key, x->path, (uintmax_t)x->count);
	if (!ps_index_section_sound(x->samples) || !ps_index_section_sound(x->keys) ||
	        !walk_to(x, w, sample, &place, want, &want_key, &want_len))
		return ps_index_damaged(x, err);
	if (place.bad) /* what could not be read then */
		return 0;
	if (place.offset == offset && want_len == key_len && memcmp(want_key, key, key_len) == 0 &&
	        (place.nmembers == 0 ||
	                (place.nmembers == nmembers && members_equal(want, members, nmembers))))
		return 0;
	return ps_load_error_set(err, ESTALE,
	        "sample %ju is \"%.*s\" at offset %ju, and not \"%.*s\" at %ju with its members, as its index %s "
	        "says: " STALE_HINT,
	        (uintmax_t)sample, (int)PS_MIN(key_len, (size_t)100), key, (uintmax_t)offset,
	        (int)PS_MIN(want_len, (size_t)100), want_key, (uintmax_t)place.offset, x->path);
}

int ps_index_check_first(const struct ps_index *x, const uint8_t *p, size_t n, struct ps_load_error *err)
{
	if (x->windows.nbytes > 0 || ps_index_sum(0, p, n) == x->binding.first)
		return 0;
	return ps_load_error_set(
	        err, ESTALE, "its first header is not the one that its index %s is of: " STALE_HINT, x->path);
}

size_t ps_index_held(const struct ps_index *x)
{
	return x->mapped ? 0 : x->nbytes;
}

bool ps_index_equals(struct ps_index *a, struct ps_index *b)
{
	if (a->count != b->count || a->bad != b->bad || a->flags != b->flags || a->nsections != b->nsections)
		return false;
	for (uint32_t i = 0; i < a->nsections; i++) {
		struct ps_index_section *s = &a->sections[i], *t = &b->sections[i];

		if (s->kind != t->kind || s->detail != t->detail || s->n != t->n ||
		        !ps_index_section_sound(s) || !ps_index_section_sound(t) || memcmp(s->p, t->p, s->n) != 0)
			return false;
	}
	return true;
}

/* -- Columns ------------------------------------------------------------------------------------------- */

int ps_index_ncolumns(const struct ps_index *x)
{
	return (int)x->ncolumns;
}

int ps_index_column(const struct ps_index *x, const char *name)
{
	for (uint32_t i = 0; i < x->ncolumns; i++)
		if (x->columns[i].name_len == strlen(name) &&
		        memcmp(x->columns[i].name, name, x->columns[i].name_len) == 0)
			return (int)i;
	return -1;
}

bool ps_index_column_is(const struct ps_index *x, int column, const char *from)
{
	const struct ps_index_column *c = &x->columns[column];

	return c->from && c->from_len == strlen(from) && memcmp(c->from, from, c->from_len) == 0;
}

char *ps_index_column_text(const struct ps_index *x, int column)
{
	const struct ps_index_column *c = &x->columns[column];
	char *text;

	if (!c->from || asprintf(&text, "%.*s=%.*s", (int)c->name_len, c->name, (int)c->from_len, c->from) < 0)
		return NULL;
	return text;
}

static int64_t integer_get(const uint8_t *p, unsigned width)
{
	switch (width) {
	case 1:
		return (int8_t)p[0];
	case 2:
		return (int16_t)ps_get_u16(p);
	case 4:
		return (int32_t)ps_get_u32(p);
	default:
		return (int64_t)ps_get_u64(p);
	}
}

static double float_get(const uint8_t *p, unsigned width)
{
	uint32_t u32 = width == 4 ? ps_get_u32(p) : 0;
	uint64_t u64 = width == 8 ? ps_get_u64(p) : 0;
	float f;
	double d;

	memcpy(&f, &u32, sizeof(f));
	memcpy(&d, &u64, sizeof(d));
	return width == 4 ? (double)f : d;
}

int ps_index_value(
        struct ps_index *x, int column, uint64_t sample, struct ps_column_value *v, struct ps_load_error *err)
{
	const struct ps_index_column *c = &x->columns[column];
	struct ps_index_section *s = &x->sections[c->section - x->sections];
	int r = range_check(x, sample, err);

	if (r < 0)
		return r;
	if (!ps_index_section_sound(s))
		return ps_index_damaged(x, err);
	*v = (struct ps_column_value){
	        .type = c->type, .missing = !(c->present[sample / 8] >> (sample % 8) & 1)};
	if (v->missing)
		return 0;
	switch (c->type) {
	case PS_COLUMN_INT:
		v->integer = integer_get(c->values + sample * c->width, c->width);
		v->number = (double)v->integer;
		break;
	case PS_COLUMN_FLOAT:
		v->number = float_get(c->values + sample * c->width, c->width);
		break;
	case PS_COLUMN_TEXT:
		if (!text_find(x, c->values, s->p + s->n, sample, &v->text, &v->text_len))
			return ps_index_damaged(x, err);
		break;
	}
	return 0;
}
