#include "policy/policy_private.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/hashtable.h"
#include "base/list.h"

#define INUSE_SAMPLES 4
#define INUSE_ROUND_MIN_S 60

struct known {
	UT_hash_handle hh;
	struct ps_list link; /* in the dataset's `recency`, newest first */
	struct ps_id id;
	int64_t opened_s;
	uint64_t round;   /* the last round in which it was opened */
	uint64_t ordinal; /* how many other objects were opened in that round before it */
};

struct dataset {
	UT_hash_handle hh;
	uint32_t number;
	struct known *known;
	struct ps_list recency;
	uint64_t round;
	uint64_t nopened; /* objects opened in this round */
	int64_t round_start_s;
	int64_t samples_s[INUSE_SAMPLES];
	/* number of rounds measured so far; samples_s has the lengths of the last INUSE_SAMPLES */
	unsigned nsamples;
};

struct ps_inuse {
	struct dataset *datasets;
};

struct ps_inuse *ps_inuse_new(void)
{
	return calloc(1, sizeof(struct ps_inuse));
}

static void forget(struct dataset *dataset, struct known *known)
{
	ps_list_remove(&known->link);
	HASH_DELETE(hh, dataset->known, known);
	free(known);
}

void ps_inuse_free(struct ps_inuse *inuse)
{
	struct dataset *dataset, *next;

	HASH_ITER (hh, inuse->datasets, dataset, next) {
		while (dataset->known)
			forget(dataset, dataset->known);
		HASH_DELETE(hh, inuse->datasets, dataset);
		free(dataset);
	}
	free(inuse);
}

static int64_t mean_s(const struct dataset *dataset)
{
	unsigned n = dataset ? PS_MIN(dataset->nsamples, (unsigned)INUSE_SAMPLES) : 0;
	int64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += dataset->samples_s[i];
	return n > 0 ? PS_MAX(sum / n, 1) : 0;
}

static int64_t window_s(const struct dataset *dataset)
{
	int64_t mean = mean_s(dataset);

	return mean > 0 ? PS_INUSE_EPOCHS * mean : PS_INUSE_UNKNOWN_S;
}

static struct dataset *dataset_find(const struct ps_inuse *inuse, uint32_t number)
{
	struct dataset *dataset = NULL;

	HASH_FIND(hh, inuse->datasets, &number, sizeof(number), dataset);
	return dataset;
}

static struct dataset *dataset_make(struct ps_inuse *inuse, uint32_t number)
{
	struct dataset *dataset = dataset_find(inuse, number);

	if (dataset)
		return dataset;
	dataset = calloc(1, sizeof(*dataset));
	if (!dataset)
		return NULL;
	dataset->number = number;
	ps_list_init(&dataset->recency);
	HASH_ADD(hh, inuse->datasets, number, sizeof(dataset->number), dataset);
	if (!dataset->hh.tbl) {
		free(dataset);
		return NULL;
	}
	return dataset;
}

static struct known *known_make(struct dataset *dataset, const struct ps_id *id)
{
	struct known *known = calloc(1, sizeof(*known));

	if (!known)
		return NULL;
	known->id = *id;
	known->round = UINT64_MAX;
	ps_list_init(&known->link);
	HASH_ADD(hh, dataset->known, id, sizeof(known->id), known);
	if (!known->hh.tbl) {
		free(known);
		return NULL;
	}
	return known;
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

/* If memory runs out, the open is ignored. */
void ps_inuse_opened(struct ps_inuse *inuse, uint32_t number, const struct ps_id *id, int64_t now_s)
{
	struct dataset *dataset = dataset_make(inuse, number);
	struct known *known = NULL;

	if (!dataset)
		return;
	int64_t since_s = now_s - window_s(dataset);
	while (!ps_list_empty(&dataset->recency)) {
		struct known *oldest = PS_CONTAINER_OF(dataset->recency.prev, struct known, link);
		if (oldest->opened_s >= since_s)
			break;
		forget(dataset, oldest);
	}
	if (!dataset->known)
		begin_round(dataset, now_s);
	HASH_FIND(hh, dataset->known, id, sizeof(*id), known);
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

		if (2 * since >= others && length_s >= INUSE_ROUND_MIN_S) {
			dataset->samples_s[dataset->nsamples++ % INUSE_SAMPLES] = length_s;
			begin_round(dataset, now_s);
			join_round(dataset, known);
		}
	}
	known->opened_s = now_s;
	ps_list_remove(&known->link);
	ps_list_prepend(&dataset->recency, &known->link);
}

void ps_inuse_times(const struct ps_inuse *inuse, uint32_t number, struct ps_inuse_times *ret)
{
	const struct dataset *dataset = dataset_find(inuse, number);

	*ret = (struct ps_inuse_times){.window_s = window_s(dataset), .epoch_s = mean_s(dataset)};
}
