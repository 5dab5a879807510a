#include "config.h"

#include "order/order.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Any sample --------------------------------------------------------------------------------------------- */

struct ps_sequence {
	uint32_t nsets, nlanes;
	uint64_t total;
	struct ps_lane_set *sets;
	const struct ps_shares *shares;
	uint64_t *lengths;
	uint64_t *sorted; /* each set's lengths, ascending, at its first lane's place ... */
	uint64_t *sums;   /* ... and the sums of the lengths before */
};

/* The position of sample j of set d among all sets. */
static uint64_t set_position(const struct ps_sequence *s, uint32_t d, uint64_t j)
{
	return s->shares ? ps_shares_position(s->shares, d, j) : PS_MIN(j, PS_ENDLESS - 1);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t set_total(const struct ps_sequence *s, const struct ps_lane_set *set)
{
	uint64_t last = set->n - 1;

	if (set->n == 0)
		return 0;
	if (s->sorted[set->first + last] == PS_ENDLESS)
		return PS_ENDLESS;
	return s->sums[set->first + last] + s->sorted[set->first + last];
}

int ps_sequence_new(const struct ps_lane_set *sets, uint32_t nsets, const struct ps_shares *shares,
        const uint64_t *lengths, struct ps_sequence **ret_sequence)
{
	struct ps_sequence *s = calloc(1, sizeof(*s));
	uint32_t n = sets[nsets - 1].first + sets[nsets - 1].n;

	if (!s)
		return -ENOMEM;
	*s = (struct ps_sequence){.nsets = nsets,
	        .nlanes = n,
	        .total = PS_ENDLESS,
	        .shares = nsets > 1 ? shares : NULL,
	        .sets = malloc(nsets * sizeof(*s->sets)),
	        .lengths = malloc(PS_MAX(n, 1u) * sizeof(uint64_t)),
	        .sorted = malloc(PS_MAX(n, 1u) * sizeof(uint64_t)),
	        .sums = malloc(PS_MAX(n, 1u) * sizeof(uint64_t))};
	if (!s->sets || !s->lengths || !s->sorted || !s->sums) {
		ps_sequence_free(s);
		return -ENOMEM;
	}
	memcpy(s->sets, sets, nsets * sizeof(*sets));
	memcpy(s->lengths, lengths, n * sizeof(uint64_t));
	memcpy(s->sorted, lengths, n * sizeof(uint64_t));
	for (uint32_t d = 0; d < nsets; d++) {
		uint64_t sum = 0, samples;

		qsort(s->sorted + sets[d].first, sets[d].n, sizeof(uint64_t), compare);
		for (uint32_t i = sets[d].first; i < sets[d].first + sets[d].n; i++) {
			s->sums[i] = sum;
			sum += s->sorted[i] == PS_ENDLESS ? 0 : s->sorted[i];
		}
		samples = set_total(s, &sets[d]);
		if (samples != PS_ENDLESS)
			s->total = PS_MIN(s->total, set_position(s, d, samples));
	}
	*ret_sequence = s;
	return 0;
}

void ps_sequence_free(struct ps_sequence *s)
{
	if (!s)
		return;
	free(s->sets);
	free(s->lengths);
	free(s->sorted);
	free(s->sums);
	free(s);
}

uint64_t ps_sequence_total(const struct ps_sequence *s)
{
	return s->total;
}

uint64_t ps_sequence_position(const struct ps_sequence *s, uint32_t lane, uint64_t index)
{
	uint32_t d = ps_lane_set_of(s->sets, lane);
	const struct ps_lane_set *set = &s->sets[d];
	uint32_t gone = ps_count_up_to(s->sorted + set->first, set->n, index); /* lanes that have ended */
	uint64_t before = lane - set->first;
	uint64_t sum = 0;

	if (gone > 0) {
		sum = s->sums[set->first + gone - 1] + s->sorted[set->first + gone - 1];
		before = 0;
		for (uint32_t l = set->first; l < lane; l++)
			before += s->lengths[l] > index;
	}
	return set_position(s, d, sum + index * (set->n - gone) + before);
}

/* In turn ------------------------------------------------------------------------------------------------ */

struct ps_turns_set {
	struct ps_lane_set o;
	uint32_t nalive;
	uint32_t at; /* place in the list of alive lanes */
	uint64_t round;
	uint64_t next_end; /* the smallest length of alive lanes */
	uint64_t given;
};

int ps_turns_init(struct ps_turns *t, const struct ps_lane_set *sets, uint32_t nsets)
{
	uint32_t n = sets[nsets - 1].first + sets[nsets - 1].n;

	*t = (struct ps_turns){.nsets = nsets,
	        .nlanes = n,
	        .sets = calloc(nsets, sizeof(*t->sets)),
	        .alive = malloc(PS_MAX(n, 1u) * sizeof(uint32_t)),
	        .lengths = malloc(PS_MAX(n, 1u) * sizeof(uint64_t))};
	if (!t->sets || !t->alive || !t->lengths || ps_share_walk_init(&t->walk, nsets) < 0) {
		ps_turns_fini(t);
		return -ENOMEM;
	}
	for (uint32_t d = 0; d < nsets; d++)
		t->sets[d].o = sets[d];
	return 0;
}

void ps_turns_fini(struct ps_turns *t)
{
	free(t->sets);
	free(t->alive);
	free(t->lengths);
	ps_share_walk_fini(&t->walk);
	*t = (struct ps_turns){0};
}

/* Begins a round: drops the lanes that have no sample for it. */
static void round_begin(struct ps_turns *t, struct ps_turns_set *s)
{
	uint32_t *alive = t->alive + s->o.first, n = 0;

	s->at = 0;
	if (s->round < s->next_end)
		return;
	s->next_end = PS_ENDLESS;
	for (uint32_t i = 0; i < s->nalive; i++) {
		uint64_t length = t->lengths[alive[i]];

		if (length <= s->round)
			continue;
		s->next_end = PS_MIN(s->next_end, length);
		alive[n++] = alive[i];
	}
	s->nalive = n;
}

/* Finds the set that is due, and the lane in it. */
static void turn_find(struct ps_turns *t)
{
	uint32_t best = t->shares ? ps_share_walk_next(&t->walk) : 0;

	t->set = best;
	t->over = t->beyond || t->sets[best].nalive == 0;
	if (t->over)
		return;
	t->lane = t->alive[t->sets[best].o.first + t->sets[best].at];
	t->index = t->sets[best].round;
}

/* Skips n samples of a set. */
static void set_skip(struct ps_turns *t, struct ps_turns_set *s, uint64_t n)
{
	s->given += n;
	while (n > 0 && s->nalive > 0) {
		ps_u128 room = (ps_u128)(s->next_end - s->round) * s->nalive - s->at;

		if (n < room) {
			n += s->at;
			s->round += n / s->nalive;
			s->at = (uint32_t)(n % s->nalive);
			return;
		}
		n -= (uint64_t)room;
		s->round = s->next_end;
		round_begin(t, s);
	}
	t->beyond = t->beyond || n > 0;
}

/* Moves the sets of a mix forward to their places at a position. */
static void sets_place(struct ps_turns *t, uint64_t position)
{
	ps_share_walk_begin(&t->walk, t->shares, position);
	for (uint32_t d = 0; d < t->nsets; d++)
		set_skip(t, &t->sets[d], t->walk.given[d] - t->sets[d].given);
	t->position = position;
}

void ps_turns_reset(struct ps_turns *t, const uint64_t *lengths, const struct ps_shares *shares)
{
	t->shares = t->nsets > 1 ? shares : NULL;
	t->beyond = false;
	for (uint32_t l = 0; l < t->nlanes; l++)
		t->lengths[l] = lengths ? lengths[l] : PS_ENDLESS;
	for (uint32_t d = 0; d < t->nsets; d++) {
		struct ps_turns_set *s = &t->sets[d];

		for (uint32_t i = 0; i < s->o.n; i++)
			t->alive[s->o.first + i] = s->o.first + i;
		s->nalive = s->o.n;
		s->round = s->next_end = s->given = 0;
		round_begin(t, s);
	}
	t->position = 0;
	if (t->shares)
		sets_place(t, ps_shares_begin(t->shares));
	turn_find(t);
}

void ps_turns_advance(struct ps_turns *t)
{
	struct ps_turns_set *s = &t->sets[t->set];

	if (t->over)
		return;
	t->position++;
	s->given++;
	if (++s->at >= s->nalive) {
		s->round++;
		round_begin(t, s);
	}
	if (t->shares)
		ps_share_walk_give(&t->walk, t->set);
	if (t->shares || s->nalive == 0) {
		turn_find(t);
		return;
	}
	t->lane = t->alive[s->o.first + s->at];
	t->index = s->round;
}

void ps_turns_skip(struct ps_turns *t, uint64_t n)
{
	if (t->shares) {
		sets_place(t, t->position + n);
	} else {
		set_skip(t, &t->sets[0], n);
		t->position += n;
	}
	turn_find(t);
}

void ps_turns_finish(struct ps_turns *t, bool given)
{
	struct ps_turns_set *s = &t->sets[t->set];
	uint32_t *alive = t->alive + s->o.first;

	if (t->over)
		return;
	t->position += given;
	s->given += given;
	memmove(alive + s->at, alive + s->at + 1, (s->nalive - s->at - 1) * sizeof(*alive));
	s->nalive--;
	if (s->at == s->nalive && s->nalive > 0) {
		s->round++;
		s->at = 0;
	}
	if (t->shares && given)
		ps_share_walk_give(&t->walk, t->set);
	turn_find(t);
}

void ps_turns_set_lane(struct ps_turns *t, uint32_t lane, uint64_t position, uint64_t round)
{
	assert(t->nsets == 1 && t->sets[0].nalive == t->nlanes);
	t->sets[0].at = lane;
	t->sets[0].round = round;
	t->position = position;
	turn_find(t);
}

static const struct ps_turns_set *turns_set_of(const struct ps_turns *t, uint32_t lane)
{
	const struct ps_turns_set *s = t->sets;

	while (lane >= s->o.first + s->o.n)
		s++;
	return s;
}

static struct ps_mark set_mark(const struct ps_turns *t, const struct ps_turns_set *s)
{
	return s->nalive == 0 ? (struct ps_mark){.round = PS_ENDLESS}
	                      : (struct ps_mark){.round = s->round, .lane = t->alive[s->o.first + s->at]};
}

void ps_turns_mark(const struct ps_turns *t, struct ps_mark *ret_marks)
{
	for (uint32_t d = 0; d < t->nsets; d++)
		ret_marks[d] = set_mark(t, &t->sets[d]);
}

uint64_t ps_turns_before(const struct ps_turns *t, uint32_t lane)
{
	struct ps_mark m = set_mark(t, turns_set_of(t, lane));

	return ps_mark_before(&m, lane, t->lengths[lane]);
}

uint64_t ps_turns_round(const struct ps_turns *t, uint32_t lane)
{
	return turns_set_of(t, lane)->round;
}
