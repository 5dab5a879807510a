#include "config.h"

#include "shard/tokens/fit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define NONE UINT32_MAX

/* Random numbers ----------------------------------------------------------------------------------------- */

static uint32_t below(uint64_t *state, uint32_t n)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return (uint32_t)((unsigned __int128)z * n >> 64);
}

static void permute(uint64_t *state, uint32_t *places, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		places[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = below(state, i + 1), last = places[i];

		places[i] = places[j];
		places[j] = last;
	}
}

/* Rows by their room ------------------------------------------------------------------------------------- */

/* The rooms that some row has, as bits in three levels: a bit of `some[1]` is a word of `some[0]`, and so on.
 * The rows of each room are a list; the one added last is its head. */
struct rooms {
	uint64_t *some[3];
	uint32_t words[3];
	uint32_t *head; /* by room, 0 ... length; NONE: no row */
	uint32_t *next; /* by row */
	uint32_t *room; /* by row */
};

static int rooms_init(struct rooms *s, uint32_t length, uint32_t rows)
{
	uint32_t n = length + 1;

	*s = (struct rooms){0};
	for (int i = 0; i < 3; i++) {
		n = n / 64 + 1;
		s->words[i] = n;
		s->some[i] = calloc(n, sizeof(uint64_t));
	}
	s->head = malloc((length + 1) * sizeof(*s->head));
	s->next = malloc(((size_t)rows + 1) * sizeof(*s->next));
	s->room = malloc(((size_t)rows + 1) * sizeof(*s->room));
	if (!s->some[0] || !s->some[1] || !s->some[2] || !s->head || !s->next || !s->room)
		return -ENOMEM;
	memset(s->head, 0xff, (length + 1) * sizeof(*s->head));
	return 0;
}

static void rooms_fini(struct rooms *s)
{
	for (int i = 0; i < 3; i++)
		free(s->some[i]);
	free(s->head);
	free(s->next);
	free(s->room);
}

static void room_put(struct rooms *s, uint32_t row, uint32_t room)
{
	uint32_t bit = room;

	s->room[row] = room;
	s->next[row] = s->head[room];
	s->head[room] = row;
	for (int i = 0; i < 3; i++, bit /= 64)
		s->some[i][bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Takes the row that was added last of those with that room. */
static uint32_t room_take(struct rooms *s, uint32_t room)
{
	uint32_t row = s->head[room], bit = room;

	s->head[room] = s->next[row];
	if (s->head[room] != NONE)
		return row;
	for (int i = 0; i < 3; i++, bit /= 64) {
		s->some[i][bit / 64] &= ~(UINT64_C(1) << bit % 64);
		if (s->some[i][bit / 64])
			break;
	}
	return row;
}

/* The least room of at least n that a row has; NONE: none. */
static uint32_t room_find(const struct rooms *s, uint32_t n)
{
	int level = 0;

	for (uint64_t word;; level++, n = n / 64 + 1) {
		uint32_t i = n / 64;

		if (i < s->words[level] && (word = s->some[level][i] & ~UINT64_C(0) << n % 64)) {
			n = i * 64 + (uint32_t)__builtin_ctzll(word);
			break;
		}
		if (level < 2)
			continue;
		for (i++; i < s->words[2] && !s->some[2][i];)
			i++;
		if (i >= s->words[2])
			return NONE;
		n = i * 64 + (uint32_t)__builtin_ctzll(s->some[2][i]);
		break;
	}
	while (level-- > 0)
		n = n * 64 + (uint32_t)__builtin_ctzll(s->some[level][n]);
	return n;
}

/* Packing ------------------------------------------------------------------------------------------------ */

/* A part, in the order of packing. */
struct placed {
	uint32_t row, document, skip, len; /* skip: tokens of the document before it */
};

struct pack {
	const struct ps_fit_options *o;
	const uint32_t *lens;
	uint32_t n;
	uint32_t rows;     /* begun */
	uint32_t rows_max; /* with FIT, those there are */
	uint32_t left_out;
	uint32_t *order;  /* documents, permuted */
	uint32_t *sorted; /* those with a rest, by class; then those put aside */
	uint32_t nsorted;
	struct rooms rooms;
	struct placed *placed; /* NULL: rows are only counted */
	uint32_t nplaced;
};

static bool is_whole(const struct pack *p)
{
	return p->o->pack == PS_PACK_WHOLE;
}

/* The tokens of a document that are packed. */
static uint32_t used_of(const struct pack *p, uint32_t document)
{
	uint32_t len = p->lens[document], length = p->o->length;

	if (!is_whole(p) || len <= length || p->o->long_documents == PS_LONG_SPLIT)
		return len;
	return p->o->long_documents == PS_LONG_TRUNCATE ? length : 0;
}

/* What is left of a document after whole rows were cut off. */
static uint32_t rest_of(const struct pack *p, uint32_t document)
{
	return used_of(p, document) % p->o->length;
}

static void place(struct pack *p, uint32_t row, uint32_t document, uint32_t skip, uint32_t len)
{
	if (p->placed)
		p->placed[p->nplaced++] =
		        (struct placed){.row = row, .document = document, .skip = skip, .len = len};
}

static void concat(struct pack *p)
{
	uint32_t free = p->o->length;

	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t document = p->order[i], len = p->lens[document];

		for (uint32_t skip = 0, part; skip < len; skip += part) {
			part = PS_MIN(len - skip, free);
			place(p, p->rows, document, skip, part);
			free -= part;
			if (free == 0) {
				p->rows++;
				free = p->o->length;
			}
		}
	}
}

/* Cuts whole rows off the documents. */
static void whole_rows(struct pack *p)
{
	uint32_t length = p->o->length;

	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t document = p->order[i], used = used_of(p, document);

		p->left_out += p->lens[document] - used;
		for (uint32_t skip = 0; used - skip >= length; skip += length)
			place(p, p->rows++, document, skip, length);
	}
}

/* The class of a length: larger for longer ones. */
static uint32_t class_of(const struct pack *p, uint32_t len)
{
	uint32_t top = 31 - (uint32_t)__builtin_clz(len);

	if (is_whole(p))
		return len;
	return 2 * top + (top > 0 ? len >> (top - 1) & 1 : 0);
}

/* Fills `sorted`: a counting sort. */
static int sort(struct pack *p)
{
	uint32_t top = class_of(p, p->o->length), before = 0;
	ps_autofree uint32_t *counts = calloc((size_t)top + 1, sizeof(*counts));

	if (!counts)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t rest = rest_of(p, p->order[i]);

		if (rest > 0)
			counts[class_of(p, rest)]++;
	}
	for (uint32_t c = top + 1; c-- > 0;) {
		uint32_t count = counts[c];

		counts[c] = before;
		before += count;
	}
	p->nsorted = before;
	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t rest = rest_of(p, p->order[i]);

		if (rest > 0)
			p->sorted[counts[class_of(p, rest)]++] = p->order[i];
	}
	return 0;
}

/* Places the rests where they fit; those that do not are put aside. */
static void best_fit(struct pack *p)
{
	uint32_t n = p->nsorted, length = p->o->length;

	p->nsorted = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t document = p->sorted[i], rest = rest_of(p, document), row;
		uint32_t room = room_find(&p->rooms, rest);

		if (room == NONE && p->rows == p->rows_max) {
			p->sorted[p->nsorted++] = document;
			continue;
		}
		row = room == NONE ? p->rows++ : room_take(&p->rooms, room);
		room = room == NONE ? length : room;
		place(p, row, document, used_of(p, document) - rest, rest);
		if (room > rest)
			room_put(&p->rooms, row, room - rest);
		else
			p->rooms.room[row] = 0;
	}
}

/* Cuts what was put aside into the rows with the most room. */
static void cut(struct pack *p, uint64_t slack)
{
	struct rooms *s = &p->rooms;
	uint32_t room, row = NONE, document, rest;

	while (p->rows < p->rows_max)
		room_put(s, p->rows++, p->o->length);
	while ((room = room_find(s, 1)) != NONE && room <= slack) {
		(void)room_take(s, room);
		slack -= room;
	}
	room = p->o->length;
	for (uint32_t i = 0; i < p->nsorted; i++) {
		document = p->sorted[i];
		rest = rest_of(p, document);
		while (rest > 0) {
			uint32_t len;

			if (row == NONE) {
				while (s->head[room] == NONE)
					room--;
				row = room_take(s, room);
			}
			len = PS_MIN(rest, s->room[row]);
			place(p, row, document, p->lens[document] - rest, len);
			rest -= len;
			s->room[row] -= len;
			if (s->room[row] == 0)
				row = NONE;
		}
	}
}

/* The parts by row, each row's in the order they were placed, and rows permuted. */
static int rows_make(struct pack *p, uint64_t *state, struct ps_fit *ret)
{
	ps_autofree uint32_t *begins = calloc((size_t)p->rows + 2, sizeof(*begins));
	ps_autofree struct ps_fit_part *parts = malloc(((size_t)p->nplaced + 1) * sizeof(*parts));
	ps_autofree uint32_t *rows = malloc(((size_t)p->rows + 1) * sizeof(*rows));
	uint32_t *starts = p->order, start = 0; /* not needed any more */

	if (!begins || !parts || !rows)
		return -ENOMEM;
	permute(state, rows, p->rows);
	for (uint32_t i = 0; i < p->n; i++) {
		starts[i] = start;
		start += p->lens[i];
	}
	for (uint32_t i = 0; i < p->nplaced; i++)
		begins[rows[p->placed[i].row] + 2]++;
	for (uint32_t i = 2; i < p->rows + 2; i++)
		begins[i] += begins[i - 1];
	for (uint32_t i = 0; i < p->nplaced; i++) {
		const struct placed *at = &p->placed[i];

		parts[begins[rows[at->row] + 1]++] =
		        (struct ps_fit_part){.from = starts[at->document] + at->skip,
		                .len = at->len,
		                .document = at->document,
		                .continued = at->skip > 0,
		                .continues = at->skip + at->len < p->lens[at->document]};
	}
	*ret = (struct ps_fit){.rows = p->rows,
	        .begins = ps_steal_ptr(&begins),
	        .parts = ps_steal_ptr(&parts),
	        .left_out = p->left_out};
	return 0;
}

static void pack_fini(struct pack *p)
{
	free(p->order);
	free(p->sorted);
	free(p->placed);
	rooms_fini(&p->rooms);
}

/* Packs; with ret NULL, only as far as the rows are counted. */
static int pack_run(struct pack *p, uint64_t tokens, struct ps_fit *ret)
{
	const struct ps_fit_options *o = p->o;
	uint64_t state = ps_rng_u64(&o->key, PS_RNG_PACK, 0);
	uint32_t full = 0;
	int rc;

	for (uint32_t i = 0; i < p->n; i++)
		full += p->lens[i] / o->length;
	p->rows_max = is_whole(p) ? p->n + full : o->rows;
	p->order = malloc(((size_t)p->n + 1) * sizeof(*p->order));
	p->sorted = malloc(((size_t)p->n + 1) * sizeof(*p->sorted));
	if (ret)
		p->placed = malloc(((size_t)p->n + full + p->rows_max + 1) * sizeof(*p->placed));
	rc = rooms_init(&p->rooms, o->length, p->rows_max);
	if (rc < 0 || !p->order || !p->sorted || (ret && !p->placed))
		return -ENOMEM;
	permute(&state, p->order, p->n);
	if (o->pack == PS_PACK_CONCAT) {
		concat(p);
		p->rows = o->rows;
		return rows_make(p, &state, ret);
	}
	whole_rows(p);
	rc = sort(p);
	if (rc < 0)
		return rc;
	best_fit(p);
	if (!is_whole(p))
		cut(p, (uint64_t)o->rows * o->length - tokens);
	return ret ? rows_make(p, &state, ret) : 0;
}

static int pack(const struct ps_fit_options *o, const uint32_t *lens, uint32_t n, struct ps_fit *ret,
        uint32_t *ret_rows, struct ps_error *err)
{
	struct pack p = {.o = o, .lens = lens, .n = n};
	uint64_t tokens = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		tokens += lens[i];
	if (tokens > PS_PACK_MAX_TOKENS)
		return ps_error_set(err, EOVERFLOW, "its documents have %ju tokens; at most %u can be packed",
		        (uintmax_t)tokens, PS_PACK_MAX_TOKENS);
	assert(o->length > 0 && o->length <= PS_PACK_MAX_LENGTH && n < NONE / 4);
	assert(is_whole(&p) || tokens <= (uint64_t)o->rows * o->length);
	rc = pack_run(&p, tokens, ret);
	if (rc == 0)
		*ret_rows = p.rows;
	pack_fini(&p);
	return rc < 0 ? ps_no_memory(err) : 0;
}

int ps_fit_pack(const struct ps_fit_options *o, const uint32_t *lens, uint32_t n, struct ps_fit *ret_fit,
        struct ps_error *err)
{
	uint32_t rows;

	return pack(o, lens, n, ret_fit, &rows, err);
}

int ps_fit_count(const struct ps_fit_options *o, const uint32_t *lens, uint32_t n, uint32_t *ret_rows,
        struct ps_error *err)
{
	return pack(o, lens, n, NULL, ret_rows, err);
}

void ps_fit_fini(struct ps_fit *fit)
{
	free(fit->begins);
	free(fit->parts);
	*fit = (struct ps_fit){0};
}
