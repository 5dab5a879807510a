/* penstock-loader shuffle-quality: how far an order is from the list's, beside a full permutation. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <string.h>

#include "order/permutation.h"
#include "penstock.h"
#include "tools/shuffle_ranks.h"
#include "tools/tools.h"

struct quality {
	double neighbours;  /* share of samples whose next one is a neighbour in the list, too */
	double distance;    /* mean way from the place in the list, as a share of a permutation's (N / 3) */
	double correlation; /* of places in the list and in the order (Spearman) */
	double shards;      /* different shards in a batch, on average */
};

/* The order: for each place the sample's place in the list. */
struct places {
	uint64_t *v, n, cap;
	uint32_t *shards; /* of the samples, by their place in the list */
};

static const struct ps_option_help options_help[] = {
        {"--order none|shards|window|permutation", "what is shuffled (window)"},
        {"--shuffle-window N", "samples that are shuffled with each other [4096, or 16 global batches if more]"},
        {"--lanes N", "sequences of shards read side by side (by the global batch and the shards)"},
        {"--batch N", "samples of a batch (64)"},
        {"--world W", "how the epoch is dealt to so many ranks, of which none is run"},
        {"--ranks-per-node K", "with --world: ranks of a machine (1)"},
        {"--homes H", "with --world: homes of shards, for caches that stay warm (1: none)"},
        {"--simulate SxN", "with --world: S shards of N samples that need not exist"},
        {"--spread PERCENT", "with --simulate: the counts differ by so much each way (0)"},
        {"--seed S", "of all that is random (0)"},
        {"--index-dir DIR", "folder of the shards' indexes (index --dir); else beside the shards"},
        {"--json", "print the result as JSON"},
};

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static bool measure(const struct places *p, uint32_t batch, struct quality *q)
{
	uint32_t *shards = malloc(batch * sizeof(*shards));
	double n = (double)p->n, squares = 0, way = 0, different = 0, next = 0;

	if (!shards)
		return false;
	for (uint64_t i = 0; i < p->n; i++) {
		double d = (double)p->v[i] - (double)i;

		way += fabs(d);
		squares += d * d;
		next += i > 0 && (p->v[i] == p->v[i - 1] + 1 || p->v[i] + 1 == p->v[i - 1]);
	}
	for (uint64_t at = 0; at < p->n; at += batch) {
		uint32_t m = (uint32_t)PS_MIN(batch, p->n - at);

		for (uint32_t i = 0; i < m; i++)
			shards[i] = p->shards[p->v[at + i]];
		qsort(shards, m, sizeof(*shards), compare);
		for (uint32_t i = 0; i < m; i++)
			different += i == 0 || shards[i] != shards[i - 1];
	}
	free(shards);
	*q = (struct quality){.neighbours = n > 1 ? next / (n - 1) : 0,
	        .distance = n > 1 ? way / n / (n / 3) : 0,
	        .correlation = n > 1 ? 1 - 6 * squares / (n * (n * n - 1)) : 1,
	        .shards = n > 0 ? different / ceil(n / batch) : 0};
	return true;
}

/* Runs an epoch in the given order, and notes what comes: pairs of shard and sample as one number. */
static int collect(const struct penstock_options *options, char **names, size_t nnames, struct places *p,
        struct penstock_error *error)
{
	struct penstock_loader *l;
	struct penstock_batch *b;
	int r = penstock_loader_open(options, (const char *const *)names, nnames, &l, error);

	if (r < 0)
		return r;
	while ((r = penstock_loader_next(l, &b, error)) == 1) {
		struct penstock_tensor shards, samples;

		penstock_batch_field(b, "__shard__", &shards, NULL);
		penstock_batch_field(b, "__sample__", &samples, NULL);
		if (p->n + shards.shape[0] > p->cap) {
			uint64_t cap = (p->n + shards.shape[0]) * 2;
			uint64_t *v = realloc(p->v, cap * sizeof(*v));

			if (!v) {
				penstock_loader_close(l);
				return -ENOMEM;
			}
			p->v = v;
			p->cap = cap;
		}
		for (uint64_t i = 0; i < shards.shape[0]; i++)
			p->v[p->n++] = (uint64_t)((const int64_t *)shards.data)[i] << 40 |
			               (uint64_t)((const int64_t *)samples.data)[i];
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	return r;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Makes places in the list of the pairs. */
static bool places_find(struct places *p)
{
	uint64_t *sorted = malloc(PS_MAX(p->n, 1u) * sizeof(*sorted));

	p->shards = malloc(PS_MAX(p->n, 1u) * sizeof(*p->shards));
	if (!sorted || !p->shards) {
		free(sorted);
		return false;
	}
	if (p->n > 0)
		memcpy(sorted, p->v, p->n * sizeof(*sorted));
	qsort(sorted, p->n, sizeof(*sorted), compare_u64);
	for (uint64_t i = 0; i < p->n; i++) {
		uint64_t *at = bsearch(&p->v[i], sorted, p->n, sizeof(*sorted), compare_u64);

		uint32_t shard = (uint32_t)(p->v[i] >> 40);

		p->v[i] = at ? (uint64_t)(at - sorted) : 0; /* it is there */
		p->shards[p->v[i]] = shard;
	}
	free(sorted);
	return true;
}

static void quality_print(const char *name, const struct quality *q, bool json)
{
	printf(json ? "\"%s\": {\"neighbours_kept\": %.6f, \"distance\": %.4f, \"rank_correlation\": %.4f, "
	              "\"shards_in_batch\": %.2f}"
	            : "%-12s %10.4f %% %10.3f %12.4f %10.1f\n",
	        name, json ? q->neighbours : 100 * q->neighbours, q->distance, q->correlation, q->shards);
}

static int run(const struct penstock_options *o, char **names, size_t n, bool json)
{
	struct penstock_error error = {0};
	struct quality mine, full;
	struct places p = {0};
	struct ps_permutation permutation;
	int r = collect(o, names, n, &p, &error);
	bool ok = r == 0 && places_find(&p) && measure(&p, o->batch, &mine);

	if (ok) {
		ps_permutation_init(&permutation, p.n, o->seed, 0, 0);
		for (uint64_t i = 0; i < p.n; i++)
			p.v[i] = ps_permutation_at(&permutation, i);
		ok = measure(&p, o->batch, &full);
	}
	if (ok && json) {
		printf("{\"samples\": %ju, ", (uintmax_t)p.n);
		quality_print("order", &mine, true);
		fputs(", ", stdout);
		quality_print("permutation", &full, true);
		puts("}");
	} else if (ok) {
		printf("%ju samples   neighbours   distance  correlation     shards\n"
		       "                  kept  (1: full)   with list   in a batch\n",
		        (uintmax_t)p.n);
		quality_print("this order", &mine, false);
		quality_print("permutation", &full, false);
	} else {
		ps_loader_complain("", r < 0 && error.text[0] ? error.text : "out of memory");
	}
	free(p.v);
	free(p.shards);
	return ok ? PS_EXIT_OK : PS_EXIT_FAILED;
}

/* -- Many ranks ---------------------------------------------------------------------------------------- */

struct many {
	uint32_t nshards, samples, spread; /* simulated */
	bool simulated;
};

static bool simulate_parse(const char *text, struct many *m)
{
	char x, end;

	m->simulated = sscanf(text, "%u%c%u%c", &m->nshards, &x, &m->samples, &end) == 3 && x == 'x' &&
	               m->nshards > 0 && m->nshards <= 10000000 && m->samples > 0 && m->samples <= 100000000;
	if (!m->simulated)
		ps_complain("--simulate %s: must be SHARDSxSAMPLES, as 512x200", text);
	return m->simulated;
}

/* Counts that differ, the same ones in each run. */
static uint32_t *counts_simulate(const struct many *m)
{
	uint32_t *counts = calloc(m->nshards, sizeof(*counts));
	uint64_t state = 1, spread = (uint64_t)m->samples * m->spread / 100;

	for (uint32_t i = 0; i < m->nshards && counts; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		counts[i] = (uint32_t)(m->samples - spread + (state >> 33) % (2 * spread + 1));
	}
	return counts;
}

/* Counts the samples of the shards by reading them. */
static uint32_t *counts_read(const struct penstock_options *options, char **names, size_t n, uint32_t *ret_nshards)
{
	struct penstock_options o = *options;
	struct penstock_error error = {0};
	struct places p = {0};
	uint32_t *counts = NULL;

	o.order = PENSTOCK_ORDER_NONE;
	o.world = 1;
	o.lanes = o.homes = o.ranks_per_node = 0;
	*ret_nshards = 0;
	if (collect(&o, names, n, &p, &error) == 0 && p.n > 0) {
		for (uint64_t i = 0; i < p.n; i++)
			*ret_nshards = PS_MAX(*ret_nshards, (uint32_t)(p.v[i] >> 40) + 1);
		counts = calloc(*ret_nshards, sizeof(*counts));
		for (uint64_t i = 0; i < p.n && counts; i++)
			counts[p.v[i] >> 40]++;
	}
	if (!counts)
		ps_loader_complain("", error.text[0] ? error.text : p.n == 0 ? "no samples" : "out of memory");
	free(p.v);
	return counts;
}

/* With fewer shards of each rank its batches are of few shards, or each lane is of few and a sample comes at about the
 * same time in every epoch. */
#define SHARDS_A_RANK 32u

static void many_print(const struct penstock_options *o, const struct ps_ranks_quality *q, uint32_t nshards, bool json)
{
	uint64_t global = (uint64_t)o->batch * o->world, advised = (uint64_t)SHARDS_A_RANK * o->world;
	const char *none = json ? "null" : "-";
	char least[24] = "", overlap[24] = "";

	if (q->shards_whole > 0)
		snprintf(least, sizeof(least), "%u", q->shards_whole);
	if (q->overlap >= 0)
		snprintf(overlap, sizeof(overlap), json ? "%.4f" : "%.3f", q->overlap);
	printf(json ? "{\"world\": %u, \"lanes\": %u, \"shuffle_window\": %u, \"shards_in_batch\": %.2f, "
	              "\"shards_in_batch_least\": %s, \"batch_overlap\": %s, \"distance\": %.4f, "
	              "\"epoch_correlation\": %.4f, \"ranks_per_shard\": %.3f, \"samples_held\": %ju, "
	              "\"shards\": %u, \"shards_advised\": %ju}\n"
	            : "world %u: %u lanes, a window of %u samples over all ranks\n"
	              "shards in a batch of rank 0               %10.1f\n"
	              "  at least, while no lane has ended       %10s\n"
	              "of them in the batch before, too          %10s\n"
	              "distance from the list (1: permutation)   %10.3f\n"
	              "a sample's time in two epochs, correlated %10.3f\n"
	              "ranks that read of a shard                %10.2f\n"
	              "samples that a rank holds to shuffle      %10ju\n",
	        o->world, q->lanes, q->window, q->shards, least[0] ? least : none, overlap[0] ? overlap : none,
	        q->distance, q->correlation, q->opens, (uintmax_t)q->held, nshards, (uintmax_t)advised);
	if (!json && nshards < advised && o->world > 1)
		printf("%u shards are fewer than %u a rank: batches are of few shards, or samples come at about the same "
		       "time in every epoch; with %ju shards (smaller ones of the same samples) they do not\n",
		        nshards, SHARDS_A_RANK, (uintmax_t)advised);
	if (!json && q->samples < global)
		printf("%ju samples are less than a global batch of %ju: no batch is full; take a smaller --batch\n",
		        (uintmax_t)q->samples, (uintmax_t)global);
}

static int run_many(const struct penstock_options *o, struct many *m, char **names, size_t n, bool json)
{
	uint32_t *counts = m->simulated ? counts_simulate(m) : counts_read(o, names, n, &m->nshards);
	struct ps_load_error err = {0};
	struct ps_ranks_quality q;
	int r;

	if (!counts)
		return PS_EXIT_FAILED;
	r = ps_ranks_look(o, counts, m->nshards, &q, &err);
	free(counts);
	if (r < 0) {
		ps_loader_complain("", err.text);
		return PS_EXIT_FAILED;
	}
	many_print(o, &q, m->nshards, json);
	return PS_EXIT_OK;
}

static void help(void)
{
	ps_help_print("Usage: penstock-loader shuffle-quality [OPTION...] SHARDS...\n\n"
	              "Runs one epoch without decoding anything, and says how well its order is shuffled, "
	              "beside a full\n"
	              "permutation of the same samples.\n",
	        options_help, PS_ARRAY_LEN(options_help),
	        "Examples:\n"
	        "  penstock-loader shuffle-quality 'train-{000..127}.tar'\n"
	        "  penstock-loader shuffle-quality --shuffle-window 65536 train-*.tar\n"
	        "  penstock-loader shuffle-quality --world 64 --batch 32 --simulate 512x200 --spread 10\n");
}

int ps_cmd_shuffle_quality(int argc, char **argv)
{
	static const struct option longs[] = {{"order", required_argument, NULL, 'o'},
	        {"shuffle-window", required_argument, NULL, 'w'}, {"lanes", required_argument, NULL, 'l'},
	        {"batch", required_argument, NULL, 'b'}, {"world", required_argument, NULL, 'W'},
	        {"ranks-per-node", required_argument, NULL, 'k'}, {"homes", required_argument, NULL, 'H'},
	        {"simulate", required_argument, NULL, 'S'}, {"spread", required_argument, NULL, 'P'}, {"seed", required_argument, NULL, 's'},
	        {"index-dir", required_argument, NULL, 'i'}, {"json", no_argument, NULL, 'j'},
	        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	static const char *const orders[] = {"none", "shards", "window", "permutation"};
	struct penstock_options o;
	struct penstock_field field;
	struct many many = {0};
	uint64_t v = 0;
	bool json = false, ok = true, ranks = false;
	int c;

	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&field, sizeof(field), "no.such.field", PENSTOCK_BYTES);
	field.optional = 1;
	o.fields = &field;
	o.nfields = 1;
	o.epochs = 1;
	o.on_error = PENSTOCK_SKIP;
	opterr = 0;
	while (ok && (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			ok = ps_arg_choice("--order", optarg, orders, 4, &o.order);
			break;
		case 'w':
			ok = ps_arg_u64("--shuffle-window", optarg, 1, 1 << 24, &v);
			o.shuffle_window = (uint32_t)v;
			break;
		case 'l':
			ok = ps_arg_u64("--lanes", optarg, 1, 16384, &v);
			o.lanes = (uint32_t)v;
			break;
		case 'b':
			ok = ps_arg_u64("--batch", optarg, 1, 65536, &v);
			o.batch = (uint32_t)v;
			break;
		case 'W':
			ok = ps_arg_u64("--world", optarg, 1, 65536, &v);
			o.world = (uint32_t)v;
			ranks = true;
			break;
		case 'k':
			ok = ps_arg_u64("--ranks-per-node", optarg, 1, 65536, &v);
			o.ranks_per_node = (uint32_t)v;
			break;
		case 'H':
			ok = ps_arg_u64("--homes", optarg, 1, 16384, &v);
			o.homes = (uint32_t)v;
			break;
		case 'S':
			ok = simulate_parse(optarg, &many);
			break;
		case 'P':
			ok = ps_arg_u64("--spread", optarg, 0, 100, &v);
			many.spread = (uint32_t)v;
			break;
		case 's':
			ok = ps_arg_u64("--seed", optarg, 0, UINT64_MAX, &o.seed);
			break;
		case 'i':
			o.index_dir = optarg;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			help();
			return PS_EXIT_OK;
		default:
			ps_option_complain(argv, longs, c);
			return PS_EXIT_USAGE;
		}
	}
	if (!ok)
		return PS_EXIT_USAGE;
	if ((many.simulated || o.ranks_per_node || o.homes) && !ranks) {
		ps_complain("--simulate, --ranks-per-node and --homes need --world");
		return PS_EXIT_USAGE;
	}
	if (ranks && (o.order == PENSTOCK_ORDER_NONE || o.order == PENSTOCK_ORDER_PERMUTATION)) {
		ps_complain("--world looks at orders window and shards only");
		return PS_EXIT_USAGE;
	}
	if (o.ranks_per_node && o.world % o.ranks_per_node) {
		ps_complain("--ranks-per-node %u: must divide --world %u", o.ranks_per_node, o.world);
		return PS_EXIT_USAGE;
	}
	if (many.simulated && optind < argc) {
		ps_complain("--simulate reads no shards, but %s is given", argv[optind]);
		return PS_EXIT_USAGE;
	}
	if (ranks && (many.simulated || optind < argc))
		return run_many(&o, &many, argv + optind, (size_t)(argc - optind), json);
	if (optind == argc) {
		ps_complain("no shards (see penstock-loader shuffle-quality --help)");
		return PS_EXIT_USAGE;
	}
	return run(&o, argv + optind, (size_t)(argc - optind), json);
}
