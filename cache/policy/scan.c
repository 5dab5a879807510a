/* What the current epochs still use stays; what is no longer in use goes, oldest first.
 *
 * In use: opened within the last SCAN_EPOCHS epoch times of its dataset, or SCAN_UNKNOWN_S where none is
 * known yet. If what is not in use does not suffice, nothing goes and the new object is streamed: of a
 * dataset twice the cache, the half that came first hits in every epoch, whatever the order, and a dataset
 * that nobody opens any more makes room.
 *
 * Epoch times are learned from opens alone. A round of a dataset begins with an open, and ends when an object
 * that was opened in it is opened again after at least half of the dataset's other known objects were opened
 * in it for the first time (known: opened within the time that counts as in use). So eight workers that open
 * the same shard within seconds, or a reader that goes back to a few of many, end no round. A round's length
 * is a sample, the mean of the last SCAN_SAMPLES is the epoch time. A round is never shorter than
 * SCAN_ROUND_MIN_S: epochs of seconds need no sharper estimate, and one that is too short would give up what
 * is in use, while one too long only keeps it a little longer. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "policy/oldest.h"
#include "policy/policy_private.h"

#define SCAN_EPOCHS 3
#define SCAN_UNKNOWN_S (24 * 3600)
#define SCAN_SAMPLES 4
#define SCAN_ROUND_MIN_S 60

struct known {
	UT_hash_handle hh;
	struct ps_list link; /* of the dataset's recency, newest first */
	struct ps_id id;
	int64_t opened_s;
	uint64_t round;   /* the last round in which it was opened */
	uint64_t ordinal; /* how many objects were opened in that round before it */
};

struct dataset {
	UT_hash_handle hh;
	uint32_t number;
	struct known *known;
	struct ps_list recency;
	uint64_t round;
	uint64_t nopened; /* objects in this round */
	int64_t round_start_s;
	int64_t samples_s[SCAN_SAMPLES];
	unsigned nsamples; /* ever */
};

struct ps_policy {
	struct dataset *datasets;
};

static struct ps_policy *scan_new(void)
{
	return calloc(1, sizeof(struct ps_policy));
}

static void forget(struct dataset *dataset, struct known *known)
{
	ps_list_remove(&known->link);
	HASH_DELETE(hh, dataset->known, known);
	free(known);
}

static void scan_free(struct ps_policy *policy)
{
	struct dataset *dataset, *next;

	HASH_ITER (hh, policy->datasets, dataset, next) {
		while (dataset->known)
			forget(dataset, dataset->known);
		HASH_DELETE(hh, policy->datasets, dataset);
		free(dataset);
	}
	free(policy);
}

/* Seconds for which an open counts as use. */
static int64_t window_s(const struct dataset *dataset)
{
	unsigned n = dataset ? PS_MIN(dataset->nsamples, (unsigned)SCAN_SAMPLES) : 0;
	int64_t sum = 0;

	if (n == 0)
		return SCAN_UNKNOWN_S;
	for (unsigned i = 0; i < n; i++)
		sum += dataset->samples_s[i];
	return SCAN_EPOCHS * sum / n;
}

static struct dataset *dataset_find(const struct ps_policy *policy, uint32_t number)
{
	struct dataset *dataset = NULL;

	HASH_FIND(hh, policy->datasets, &number, sizeof number, dataset);
	return dataset;
}

static struct dataset *dataset_make(struct ps_policy *policy, uint32_t number)
{
	struct dataset *dataset = dataset_find(policy, number);

	if (dataset)
		return dataset;
	dataset = calloc(1, sizeof *dataset);
	if (!dataset)
		return NULL;
	dataset->number = number;
	ps_list_init(&dataset->recency);
	HASH_ADD(hh, policy->datasets, number, sizeof dataset->number, dataset);
	if (!dataset->hh.tbl) {
		free(dataset);
		return NULL;
	}
	return dataset;
}

static struct known *known_make(struct dataset *dataset, const struct ps_id *id)
{
	struct known *known = calloc(1, sizeof *known);

	if (!known)
		return NULL;
	known->id = *id;
	known->round = UINT64_MAX;
	ps_list_init(&known->link);
	HASH_ADD(hh, dataset->known, id, sizeof known->id, known);
	if (!known->hh.tbl) {
		free(known);
		return NULL;
	}
	return known;
}

static void forget_old(struct dataset *dataset, int64_t now_s)
{
	int64_t since_s = now_s - window_s(dataset);

	while (!ps_list_empty(&dataset->recency)) {
		struct known *oldest = PS_CONTAINER_OF(dataset->recency.prev, struct known, link);
		if (oldest->opened_s >= since_s)
			return;
		forget(dataset, oldest);
	}
}

static void begin_round(struct dataset *dataset, int64_t now_s)
{
	dataset->round++;
	dataset->nopened = 0;
	dataset->round_start_s = now_s;
}

static void join_round(struct dataset *dataset, struct known *known)
{
	known->round = dataset->round;
	known->ordinal = dataset->nopened++;
}

/* Out of memory: this open teaches nothing. */
static void scan_opened(
        struct ps_policy *policy, uint32_t number, const struct ps_id *id, int64_t previous_s, int64_t now_s)
{
	struct dataset *dataset = dataset_make(policy, number);
	struct known *known = NULL;

	(void)previous_s; /* says nothing of what else was opened in between */
	if (!dataset)
		return;
	forget_old(dataset, now_s);
	if (!dataset->known)
		begin_round(dataset, now_s);
	HASH_FIND(hh, dataset->known, id, sizeof *id, known);
	if (!known)
		known = known_make(dataset, id);
	if (!known)
		return;
	if (known->round != dataset->round) {
		join_round(dataset, known);
	} else {
		uint64_t others = HASH_COUNT(dataset->known) - 1;
		uint64_t since = dataset->nopened - 1 - known->ordinal;
		int64_t length_s = now_s - dataset->round_start_s;

		if (2 * since >= others && length_s >= SCAN_ROUND_MIN_S) {
			dataset->samples_s[dataset->nsamples++ % SCAN_SAMPLES] = length_s;
			begin_round(dataset, now_s);
			join_round(dataset, known);
		}
	}
	known->opened_s = now_s;
	ps_list_remove(&known->link);
	ps_list_prepend(&dataset->recency, &known->link);
}

static size_t scan_choose(struct ps_policy *policy, const struct ps_policy_item *items, size_t n,
        uint64_t need_nbytes, int64_t now_s, size_t *victims)
{
	size_t ncandidates = 0;
	uint32_t number = 0;
	int64_t window = window_s(dataset_find(policy, number));

	for (size_t i = 0; i < n; i++) {
		if (items[i].dataset != number) {
			number = items[i].dataset;
			window = window_s(dataset_find(policy, number));
		}
		if (!items[i].busy && items[i].opened_s < now_s - window)
			victims[ncandidates++] = i;
	}
	return ps_oldest_first(items, victims, ncandidates, need_nbytes);
}

const struct ps_policy_ops ps_policy_scan = {
        .name = "scan",
        .summary = "what the current epochs use stays, the rest goes, oldest first",
        .new = scan_new,
        .free = scan_free,
        .opened = scan_opened,
        .choose = scan_choose,
};
