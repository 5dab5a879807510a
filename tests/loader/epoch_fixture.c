#include "config.h"

#include "epoch_fixture.h"

#include <errno.h>
#include <sys/stat.h>

#include "shard/index/index.h"
#include "shard/shard.h"

static char folder[64];

int shards_make(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct ps_shard_index_result result;
		struct ps_column_spec columns[2];
		struct ps_error err;
		struct tar t = {0};
		char name[64], text[64];

		counts[s] = (uint32_t)s * 5 % 13;
		for (uint32_t i = 0; i < counts[s]; i++) {
			int n = snprintf(text, sizeof(text), "%*d", (int)(1 + (s * 31 + i * 17) % 40),
			        (int)(s * 100 + (int)i));

			lengths[s][i] = (uint32_t)n;
			snprintf(name, sizeof(name), "%02u.txt", i);
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%02u.cls", i);
			snprintf(text, sizeof(text), "%u", label_of((uint32_t)s * 100 + i));
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%02u.w", i);
			snprintf(text, sizeof(text), "%.2f", weight_of((uint32_t)s * 100 + i));
			tar_add_text(&t, name, text);
		}
		tar_end(&t);
		snprintf(name, sizeof(name), "s-%d.tar", s);
		tar_save(&t, name);
		if (ps_column_spec_parse("label=cls", &columns[0], &err) < 0 ||
		        ps_column_spec_parse("w", &columns[1], &err) < 0 ||
		        ps_shard_index_make(name, NULL, columns, 2, NULL, &result, &err) < 0)
			fail_msg("%s", err.text);
		ps_column_spec_fini(&columns[0]);
		ps_column_spec_fini(&columns[1]);
	}
	assert_int_equal(mkdir("bare", 0700), 0);
	for (int s = 0; s < SHARDS; s++) {
		char name[64], to[64];

		snprintf(name, sizeof(name), "../s-%d.tar", s);
		snprintf(to, sizeof(to), "bare/s-%d.tar", s);
		assert_int_equal(symlink(name, to), 0);
	}
	return 0;
}

int shards_remove(void **state)
{
	(void)state;
	assert_int_equal(chdir("bare"), 0);
	for (int s = 0; s < SHARDS; s++) {
		char name[64];

		snprintf(name, sizeof(name), "s-%d.tar", s);
		unlink(name);
	}
	assert_int_equal(chdir(".."), 0);
	rmdir("bare");
	folder_leave(folder);
	return 0;
}

static void options_fill(
        const struct setting *s, uint32_t rank, struct penstock_options *o, struct penstock_field *field)
{
	static struct penstock_mix_stage stages[3];

	penstock_options_init(o, sizeof(*o));
	penstock_field_init(field, sizeof(*field), "txt", PENSTOCK_BYTES);
	o->fields = field;
	o->nfields = 1;
	o->batch = s->batch;
	o->order = s->order;
	o->shuffle_window = s->automatic ? 0 : s->window;
	o->lanes = s->automatic ? 0 : s->lanes;
	o->rank = rank;
	o->world = s->world;
	o->end = s->end;
	o->seed = s->seed;
	o->epoch = s->epoch;
	o->epochs = 2;
	o->repeat = s->repeat;
	o->steps = s->steps;
	o->skip = s->skip;
	o->take = s->take;
	o->bucket = s->bucket;
	o->nmix = s->nmix;
	o->mix = s->nstages ? NULL : s->mix;
	if (s->nstages > 0) {
		stages[0] = (struct penstock_mix_stage){.weights = s->mix};
		for (uint32_t k = 0; k < s->nstages; k++)
			stages[k + 1] = (struct penstock_mix_stage){.start = s->starts[k],
			        .flags = PENSTOCK_STAGE_ROWS | (s->linear[k] ? PENSTOCK_STAGE_LINEAR : 0),
			        .weights = s->stages[k]};
		o->mix_stages = stages;
		o->nmix_stages = s->nstages + 1;
	}
	o->mix_end = s->mix_end;
	if (s->select == SELECT_FILTER || s->select == SELECT_BALANCE_FILTERED_AGAIN)
		o->filter = filter_text;
	if (s->select == SELECT_WEIGHTS || s->select == SELECT_WEIGHTS_AGAIN)
		o->weights = "w";
	if (s->select >= SELECT_BALANCE)
		o->balance = "label";
	o->replacement = s->select == SELECT_WEIGHTS_AGAIN || s->select == SELECT_BALANCE_FILTERED_AGAIN;
	o->ranks_per_node = s->ranks_per_node;
	o->homes = s->homes;
	o->threads = 1 + rnd(3);
	o->depth = 2 + rnd(3);
}

struct penstock_loader *open_setting(
        const struct setting *s, uint32_t rank, bool bare, const void *state, size_t nbytes)
{
	static char names[3][64 * SHARDS];
	const char *strings[3] = {names[0], names[1], names[2]};
	struct penstock_options o;
	struct penstock_field field;
	struct penstock_loader *l;
	struct penstock_error e;
	uint32_t nsets = s->nmix > 1 ? s->nmix : 1;

	for (uint32_t d = 0; d < nsets; d++) {
		names[d][0] = 0;
		for (uint32_t i = s->sets[d]; i < s->sets[d + 1]; i++)
			snprintf(names[d] + strlen(names[d]), 64, "%s%ss-%u.tar", i > s->sets[d] ? "::" : "",
			        bare ? "bare/" : "", i);
	}
	options_fill(s, rank, &o, &field);
	o.state = state;
	o.state_nbytes = nbytes;
	if (penstock_loader_open(&o, strings, nsets, &l, &e) < 0) {
		print_message("%s\n", e.text);
		return NULL;
	}
	return l;
}

static const void *tensor(struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_field(b, name, &t, NULL), 0);
	return t.data;
}

bool batch_take_or_stale(struct penstock_loader *l, struct course *c, bool *ret_stale)
{
	struct penstock_batch_info info;
	struct penstock_batch *b;
	struct penstock_error e;
	int rc = penstock_loader_next(l, &b, &e);

	if (rc == -ESTALE && ret_stale) {
		*ret_stale = true;
		return false;
	}
	if (rc < 0)
		fail_msg("%s", e.text);
	if (rc == 0)
		return false;
	penstock_batch_info(b, &info);
	const int64_t *shards = tensor(b, "__shard__"), *samples = tensor(b, "__sample__");
	const uint8_t *valid = tensor(b, "__valid__");

	for (uint32_t i = 0; i < info.rows; i++) {
		uint32_t v = shards[i] < 0 ? BLANK : (uint32_t)(shards[i] * 100 + samples[i]);

		add(&c->rows, v == BLANK ? v : v + (valid[i] ? 0 : 100000));
		if (v == BLANK)
			assert_int_equal(valid[i], 0);
	}
	add(&c->sizes, info.rows);
	penstock_batch_release(b);
	return true;
}

bool batch_take(struct penstock_loader *l, struct course *c)
{
	return batch_take_or_stale(l, c, NULL);
}

void setting_print(const struct setting *s)
{
	print_message(
	        "shards %u order %u lanes %u window %u batch %u world %u end %u bucket %u seed %ju epoch %ju "
	        "repeat %ju steps %ju skip %ju take %ju nmix %u mix_end %u select %u per_node %u homes %u\n",
	        s->nshards, s->order, s->lanes, s->window, s->batch, s->world, s->end, s->bucket,
	        (uintmax_t)s->seed, (uintmax_t)s->epoch, (uintmax_t)s->repeat, (uintmax_t)s->steps,
	        (uintmax_t)s->skip, (uintmax_t)s->take, s->nmix, s->mix_end, s->select, s->ranks_per_node,
	        s->homes);
	for (uint32_t d = 0; d < s->nmix; d++)
		print_message("shards %u to %u weigh %g\n", s->sets[d], s->sets[d + 1] - 1, s->mix[d]);
	for (uint32_t k = 0; k < s->nstages; k++)
		print_message("from row %ju on%s %g %g %g\n", (uintmax_t)s->starts[k],
		        s->linear[k] ? ", linearly" : "", s->stages[k][0], s->stages[k][1], s->stages[k][2]);
}

void same(const struct setting *s, uint32_t rank, const struct course *have, const struct course *want)
{
	if (have->rows.n == want->rows.n && have->sizes.n == want->sizes.n &&
	        memcmp(have->rows.v, want->rows.v, have->rows.n * sizeof(uint32_t)) == 0 &&
	        memcmp(have->sizes.v, want->sizes.v, have->sizes.n * sizeof(uint32_t)) == 0)
		return;
	setting_print(s);
	for (uint32_t i = 0; i < have->rows.n || i < want->rows.n; i++)
		if (i >= have->rows.n || i >= want->rows.n || have->rows.v[i] != want->rows.v[i]) {
			print_message("row %u: have %d of %u, want %d of %u\n", i,
			        i < have->rows.n ? (int)have->rows.v[i] : -2, have->rows.n,
			        i < want->rows.n ? (int)want->rows.v[i] : -2, want->rows.n);
			break;
		}
	fail_msg("rank %u: %u batches, want %u", rank, have->sizes.n, want->sizes.n);
}
