#include "config.h"

#include "state.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "image/image.h"

#define MAGIC UINT64_C(0x3654415453534550) /* "PESSTAT6": the last character is the version */
#define MAGIC_5 UINT64_C(0x3554415453534550)
#define MAGIC_NAME(magic) ((magic) << 8)

/* Raise these when the same options give another order (order.h, random.h) or other pixels (image/). */
#define ORDER_VERSION 4
#define ORDER_VERSION_MIX 5 /* with several datasets */
/* The last version that gave the same order but for epoch 0 of PENSTOCK_ORDER_WINDOW, and for mixes. */
#define ORDER_VERSION_LATER_EPOCHS 3
#define PIXELS_VERSION 2

/* Limits of a state: datasets, with those that the run had before; and rows by which one may be off its
 * share. */
#define MOST_SETS (16 * PS_MAX_SETS)
#define MOST_DEVIATION 1024u

/* Words of the fingerprint. */
enum {
	P_SHARDS,
	P_FIELDS,
	P_VERSIONS,
	P_NSHARDS,
	P_SEED,
	P_ORDER,
	P_WINDOW,
	P_LANES,
	P_GLOBAL_BATCH,
	P_END,
	P_STEPS,
	P_REPEAT,
	P_SKIP,
	P_TAKE,
	P_BUCKET,
	P_HOMES,
	P_SAMPLING, /* datasets, filter, weights */
	P_TRANSFORM,
};

/* Words of the state. */
enum {
	W_MAGIC,
	W_SUM, /* checksum of all words after it */
	W_PRINT,
	W_EPOCH = W_PRINT + PS_STATE_NPRINT,
	W_BATCHES,
	W_BAD_RUN,
	W_TURN,
	W_RANK,
	W_WORLD,
	W_KNOWN,
	W_NLANES,
	W_HEAD_5, /* states of version 5 end their head here */
	W_ROWS = W_HEAD_5,
	W_FIRST_BATCH,
	W_MIX_BATCH,
	W_MIX_ROW,
	W_BLOCK_LEN,
	W_NSETS,
	W_HEAD,
};

enum {
	S_NAME,
	S_SHARDS,
	S_LANES,
	S_GIVEN,
	S_SUM, /* two words, the lower first */
	S_BASE_GIVEN = S_SUM + 2,
	S_BASE_SUM,
	S_WORDS = S_BASE_SUM + 2,
};

enum {
	D_SHARE, /* the share; with the bit D_TUNING if it is not frozen */
	D_EPOCH,
	D_BATCH,
	D_DECODER,
	D_WORDS,
};

#define D_TUNING (UINT64_C(1) << 32)

enum {
	L_LANE,
	L_BLOCK,
	L_K,
	L_ORDINAL,
	L_OFFSET,
	L_TAKEN,
	L_COPY,
	L_NBYTES,
	L_WORDS,
};

static uint64_t hash_u64(uint64_t h, uint64_t v)
{
	v = htole64(v);
	return ps_hash(h, &v, sizeof(v));
}

static uint64_t hash_double(uint64_t h, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return hash_u64(h, bits);
}

static uint64_t text_hash(uint64_t h, const char *text)
{
	return text ? ps_hash(h, text, strlen(text) + 1) : hash_u64(h, 0);
}

static uint64_t value_hash(uint64_t h, const struct ps_option *o, const void *base)
{
	const char *from = (const char *)base + o->at, *text;
	double real;

	switch (o->type) {
	case PS_OPTION_F64:
		memcpy(&real, from, sizeof(real));
		return hash_double(h, real);
	case PS_OPTION_TEXT:
		memcpy(&text, from, sizeof(text));
		return text_hash(h, text);
	case PS_OPTION_F32X3:
		return ps_hash(h, from, o->nbytes);
	default: /* arrays: PS_PRINT_OWN */
		return hash_u64(h, ps_option_number(o, base));
	}
}

/* Hashes a group of a field's options (PS_PRINT_*): numbers, reals, then texts. */
static uint64_t group_hash(uint64_t h, const struct penstock_field *f, uint32_t group)
{
	for (int pass = 0; pass < 3; pass++) {
		for (size_t i = 0; i < ps_n_field_options; i++) {
			const struct ps_option *o = &ps_field_options[i];
			int mine = o->type == PS_OPTION_TEXT ? 2 : o->type == PS_OPTION_F64;

			if (o->print & group && mine == pass)
				h = value_hash(h, o, f);
		}
	}
	return h;
}

static bool is_set(const struct ps_option *o, const void *base, const void *defaults)
{
	return memcmp((const char *)base + o->at, (const char *)defaults + o->at, o->nbytes) != 0;
}

/* Hashes options of later versions only if they are set, so that older states remain valid. */
static uint64_t set_hash(
        uint64_t h, const struct ps_option *options, size_t n, const void *base, const void *defaults)
{
	for (size_t i = 0; i < n; i++)
		if (options[i].print == PS_PRINT_IF_SET && is_set(&options[i], base, defaults))
			h = value_hash(text_hash(h, options[i].name), &options[i], base);
	return h;
}

static uint64_t field_hash(uint64_t h, const struct penstock_field *given)
{
	struct penstock_field unset, plain = *given;
	const struct penstock_field *f = &plain;
	bool later = false;

	if (plain.source_dtype == 0) /* the default of older versions, whose states stay valid */
		plain.source_dtype = PENSTOCK_U16;
	penstock_field_init(&unset, sizeof(unset), f->name, f->kind);
	for (size_t i = 0; i < ps_n_field_options && !later; i++)
		later = ps_field_options[i].print == PS_PRINT_LATER &&
		        is_set(&ps_field_options[i], f, &unset);
	h = ps_hash(h, f->name, strlen(f->name) + 1);
	h = text_hash(hash_u64(h, f->kind), f->member);
	if (f->kind == PENSTOCK_IMAGE || f->kind == PENSTOCK_MASK || f->kind == PENSTOCK_BOXES) {
		h = group_hash(h, f, PS_PRINT_PICTURE);
		h = later ? group_hash(h, f, PS_PRINT_LATER) : h;
	}
	if (f->kind == PENSTOCK_IMAGE) {
		h = group_hash(h, f, PS_PRINT_IMAGE);
		for (int i = 0; i < 3; i++)
			h = hash_double(hash_double(h, (double)f->mean[i]), (double)f->std[i]);
	} else {
		h = group_hash(h, f, PS_PRINT_COLUMN);
		for (uint32_t i = 0; i < f->ndim && i < PS_ARRAY_LEN(f->shape); i++)
			h = hash_u64(h, f->shape[i]);
		h = f->add_offset_of ? text_hash(h, f->add_offset_of) : h;
		if (f->kind == PENSTOCK_NPY || f->kind == PENSTOCK_JSON)
			h = f->follow ? text_hash(h, f->follow) : h;
	}
	return set_hash(h, ps_field_options, ps_n_field_options, f, &unset);
}

/* Names of shards ---------------------------------------------------------------------------------------- */

/* Writes `name` as an absolute path without empty parts, "." and ".."; links are not resolved. ret_path has
 * room for both names and two more bytes. */
static void path_plain(const char *cwd, const char *name, char *ret_path)
{
	const char *const parts[] = {*name == '/' ? "" : cwd, name};
	size_t n = 0;

	for (size_t i = 0; i < PS_ARRAY_LEN(parts); i++) {
		for (const char *p = parts[i]; *(p += strspn(p, "/"));) {
			size_t len = strcspn(p, "/");

			if (len == 2 && memcmp(p, "..", 2) == 0) {
				while (n > 0 && ret_path[--n] != '/') {
				}
			} else if (len != 1 || *p != '.') {
				ret_path[n++] = '/';
				memcpy(ret_path + n, p, len);
				n += len;
			}
			p += len;
		}
	}
	if (n == 0)
		ret_path[n++] = '/';
	ret_path[n] = 0;
}

/* The last `depth` parts of a path, without its first `common` bytes, the folder that all names share. */
static const char *path_tail(const char *path, size_t common, uint32_t depth)
{
	const char *p = path + strlen(path);

	for (; depth > 0 && p > path + common; depth--)
		while (p > path + common && *--p != '/') {
		}
	return p;
}

static int u64_compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* Hashes the tails of all names, in their order; *ret_distinct is the number of different tails. */
static uint64_t tails_hash(const struct ps_shard_list *list, const char *cwd, char *path, size_t common,
        uint32_t depth, uint64_t *hashes, size_t *ret_distinct)
{
	uint64_t all = PS_HASH_BEGIN;

	for (size_t i = 0; i < list->n; i++) {
		path_plain(cwd, list->names[i], path);
		hashes[i] = text_hash(PS_HASH_BEGIN, path_tail(path, common, depth));
		all = hash_u64(all, hashes[i]);
	}
	qsort(hashes, list->n, sizeof(*hashes), u64_compare);
	*ret_distinct = 1;
	for (size_t i = 1; i < list->n; i++)
		*ret_distinct += hashes[i] != hashes[i - 1];
	return all;
}

/* The length of the longest folder that all names share. */
static size_t common_find(const struct ps_shard_list *list, const char *cwd, char *path, char *first)
{
	size_t n;

	path_plain(cwd, list->names[0], first);
	n = (size_t)(strrchr(first, '/') - first);
	for (size_t i = 1; i < list->n && n > 0; i++) {
		path_plain(cwd, list->names[i], path);
		while (n > 0 && (strncmp(path, first, n) != 0 || path[n] != '/'))
			while (first[--n] != '/') {
			}
	}
	return n;
}

/* Hashes the shortest tails of the names, in whole parts, that distinguish all of them. So the hash is the
 * same for the list under another mount point, or spelled in another way. */
static int shards_hash(const struct ps_shard_list *list, uint64_t *ret_hash)
{
	ps_autofree char *cwd = getcwd(NULL, 0);
	ps_autofree uint64_t *hashes = calloc(list->n, sizeof(*hashes));
	ps_autofree char *path = NULL, *first = NULL;
	size_t longest = 0, all, distinct, common;

	for (size_t i = 0; i < list->n; i++)
		longest = PS_MAX(longest, strlen(list->names[i]));
	longest += (cwd ? strlen(cwd) : 0) + 3;
	path = malloc(longest);
	first = malloc(longest);
	if (!hashes || !path || !first)
		return -ENOMEM;
	common = common_find(list, cwd ? cwd : "", path, first);
	(void)tails_hash(list, cwd ? cwd : "", path, common, UINT32_MAX, hashes, &all);
	for (uint32_t depth = 1;; depth++) {
		*ret_hash = tails_hash(list, cwd ? cwd : "", path, common, depth, hashes, &distinct);
		if (distinct == all)
			return 0;
	}
}

int ps_state_set_hash(const struct ps_options *options, uint32_t d, uint64_t *ret_hash)
{
	size_t first = d > 0 ? options->ends[d - 1] : 0;

	return shards_hash(&(struct ps_shard_list){.names = (char **)(uintptr_t)options->names + first,
	                           .n = options->ends[d] - first},
	        ret_hash);
}

/* The fingerprint --------------------------------------------------------------------------------------- */

/* Hashes the options of sampling that are not plain numbers. */
static uint64_t sampling_hash(const struct ps_options *options, bool version_5)
{
	const char *const texts[] = {options->o.filter, options->o.weights, options->o.balance};
	uint64_t h = hash_u64(PS_HASH_BEGIN, options->o.nmix > 1 ? options->o.mix_end : 0);
	struct penstock_options unset;

	for (uint32_t i = 0; i < options->o.nmix && options->o.nmix > 1 && version_5; i++)
		h = hash_u64(hash_double(h, options->mix[i]), options->ends[i]);
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++)
		h = texts[i] ? ps_hash(hash_u64(h, i), texts[i], strlen(texts[i]) + 1) : h;
	if (options->numbers)
		h = hash_u64(h, ps_numbers_is_feed(options->numbers) ? 0 : options->numbers->hash);
	if (options->sample_weights)
		h = ps_hash(h, options->sample_weights, options->o.nsample_weights * sizeof(double));
	if (options->o.draws)
		h = hash_u64(h, options->o.draws);
	h = hash_u64(h, options->o.replacement);
	penstock_options_init(&unset, sizeof(unset));
	return set_hash(h, ps_loader_options, ps_n_loader_options, &options->o, &unset);
}

static uint64_t versions(uint64_t order)
{
	return order << 48 | (uint64_t)PIXELS_VERSION << 32 | ps_jpeg_version();
}

void ps_state_print_lanes(struct ps_state_print *print, const struct ps_options *options)
{
	const struct penstock_options *o = &options->o;

	print->words[P_WINDOW] = o->order == PENSTOCK_ORDER_WINDOW ? o->shuffle_window : 0;
	if (o->order == PENSTOCK_ORDER_SHARDS || o->order == PENSTOCK_ORDER_WINDOW) {
		print->words[P_LANES] = o->lanes;
		print->words[P_HOMES] = PS_MAX(o->homes, 1u);
	}
}

int ps_state_print_make(struct ps_state_print *print, const struct ps_options *options, struct ps_error *err)
{
	const struct penstock_options *o = &options->o;
	uint64_t *w = print->words;

	if (w[P_NSHARDS] > 0)
		return 0;
	if (shards_hash(&options->shards, &w[P_SHARDS]) < 0)
		return ps_no_memory(err);
	w[P_FIELDS] = PS_HASH_BEGIN;
	for (uint32_t i = 0; i < o->nfields; i++)
		w[P_FIELDS] = field_hash(w[P_FIELDS], &options->fields[i]);
	w[P_FIELDS] = hash_double(hash_double(w[P_FIELDS], o->mixup_alpha), o->cutmix_alpha);
	w[P_FIELDS] = hash_double(hash_double(w[P_FIELDS], o->mix_probability), o->cutmix_share);
	if (o->source || o->token_stride)
		w[P_FIELDS] = hash_u64(hash_u64(w[P_FIELDS], o->source), o->token_stride);
	if (o->rename)
		w[P_FIELDS] = ps_hash(w[P_FIELDS], o->rename, strlen(o->rename));
	w[P_VERSIONS] = versions(o->nmix > 1 ? ORDER_VERSION_MIX : ORDER_VERSION);
	w[P_NSHARDS] = options->nnames;
	w[P_SEED] = o->seed;
	w[P_ORDER] = o->order;
	ps_state_print_lanes(print, options);
	print->world = o->world;
	/* sample numbers are for one rank, and so are the batches made of them */
	w[P_GLOBAL_BATCH] = (uint64_t)o->batch * (options->numbers ? 1 : o->world);
	w[P_END] = o->end;
	w[P_STEPS] = o->steps;
	w[P_REPEAT] = o->repeat;
	w[P_SKIP] = o->skip;
	w[P_TAKE] = o->take;
	w[P_BUCKET] = o->order == PENSTOCK_ORDER_WINDOW ? o->bucket : 0;
	w[P_SAMPLING] = sampling_hash(options, false);
	print->sampling_5 = sampling_hash(options, true);
	w[P_TRANSFORM] = o->transform_version;
	return 0;
}

/* Names of the words: '#' and a name for a hash; else the name of a count or an option. */
static const char *const print_names[PS_STATE_NPRINT] = {[P_SHARDS] = "#names",
        [P_FIELDS] = "#fields",
        [P_VERSIONS] = "#versions",
        [P_NSHARDS] = "shards",
        [P_SEED] = "seed",
        [P_ORDER] = "order",
        [P_WINDOW] = "shuffle_window",
        [P_LANES] = "lanes",
        [P_GLOBAL_BATCH] = "global_batch",
        [P_END] = "end",
        [P_STEPS] = "steps",
        [P_REPEAT] = "repeat",
        [P_SKIP] = "skip",
        [P_TAKE] = "take",
        [P_BUCKET] = "bucket",
        [P_HOMES] = "homes",
        [P_SAMPLING] = "#sampling",
        [P_TRANSFORM] = "transform_version"};

uint64_t ps_state_print_show(const struct ps_state_print *print, FILE *out)
{
	uint64_t h = PS_HASH_BEGIN;

	for (size_t i = 0; i < PS_STATE_NPRINT; i++) {
		uint64_t v = print->words[i];
		const char *name = print_names[i];

		h = hash_u64(h, v);
		if (out && name[0] == '#')
			fprintf(out, "%s\"%s\": \"%016jx\"", i > 0 ? ", " : "", name + 1, (uintmax_t)v);
		else if (out)
			fprintf(out, "%s\"%s\": %ju", i > 0 ? ", " : "", name, (uintmax_t)v);
	}
	return h;
}

static size_t words_before_decoder(uint32_t nlanes, uint32_t nsets)
{
	return W_HEAD + (size_t)nlanes * L_WORDS + (size_t)nsets * S_WORDS;
}

size_t ps_state_nbytes(uint32_t nlanes, uint32_t nsets, bool decodes)
{
	return (words_before_decoder(nlanes, nsets) + (decodes ? D_WORDS : 0)) * sizeof(uint64_t);
}

static void word_put(void *state, size_t i, uint64_t v)
{
	v = htole64(v);
	memcpy((uint8_t *)state + i * sizeof(v), &v, sizeof(v));
}

static uint64_t word_get(const void *state, size_t i)
{
	uint64_t v;

	memcpy(&v, (const uint8_t *)state + i * sizeof(v), sizeof(v));
	return le64toh(v);
}

static uint64_t sum_of(const void *state, size_t nbytes)
{
	size_t from = W_PRINT * sizeof(uint64_t);

	return ps_hash(PS_HASH_BEGIN, (const uint8_t *)state + from, nbytes - from);
}

/* Reads the GPU's share of decoding, and the epoch and batch from which it holds. False: damaged. */
static bool offload_read(const void *state, struct ps_state *s)
{
	size_t w = words_before_decoder(s->nlanes, s->nsets);
	uint64_t share;

	if (!s->decodes)
		return true;
	share = word_get(state, w + D_SHARE);
	s->offload = (struct ps_offload){.tuning = share & D_TUNING,
	        .share = (uint32_t)share,
	        .epoch = word_get(state, w + D_EPOCH),
	        .batch = word_get(state, w + D_BATCH)};
	s->decoder = word_get(state, w + D_DECODER);
	return (share & ~D_TUNING) <= PS_OFFLOAD_ALL;
}

static void sum_put(void *state, size_t w, ps_u128 sum)
{
	word_put(state, w, (uint64_t)sum);
	word_put(state, w + 1, (uint64_t)(sum >> 64));
}

static ps_u128 sum_get(const void *state, size_t w)
{
	return (ps_u128)word_get(state, w + 1) << 64 | word_get(state, w);
}

static void set_write(void *state, size_t w, const struct ps_run_set *set)
{
	word_put(state, w + S_NAME, set->name);
	word_put(state, w + S_SHARDS, set->shards);
	word_put(state, w + S_LANES, set->lanes);
	word_put(state, w + S_GIVEN, set->at.given);
	sum_put(state, w + S_SUM, set->at.sum);
	word_put(state, w + S_BASE_GIVEN, set->base.given);
	sum_put(state, w + S_BASE_SUM, set->base.sum);
}

void ps_state_write(const struct ps_state_print *print, const struct ps_state *s, void *state)
{
	word_put(state, W_MAGIC, MAGIC);
	for (size_t i = 0; i < PS_STATE_NPRINT; i++)
		word_put(state, W_PRINT + i, print->words[i]);
	word_put(state, W_EPOCH, s->epoch);
	word_put(state, W_BATCHES, s->batches);
	word_put(state, W_BAD_RUN, s->bad_run);
	word_put(state, W_TURN, s->turn);
	word_put(state, W_RANK, s->rank);
	word_put(state, W_WORLD, s->world);
	word_put(state, W_KNOWN, s->known);
	word_put(state, W_NLANES, s->nlanes);
	word_put(state, W_ROWS, s->rows);
	word_put(state, W_FIRST_BATCH, s->first_batch);
	word_put(state, W_MIX_BATCH, s->mix_batch);
	word_put(state, W_MIX_ROW, s->mix_row);
	word_put(state, W_BLOCK_LEN, s->block_len);
	word_put(state, W_NSETS, s->nsets);
	for (uint32_t i = 0; i < s->nlanes; i++) {
		const struct ps_lane_position *l = &s->lanes[i].at;
		size_t w = W_HEAD + (size_t)i * L_WORDS;

		word_put(state, w + L_LANE, s->lanes[i].lane);
		word_put(state, w + L_BLOCK, l->block);
		word_put(state, w + L_K, l->k);
		word_put(state, w + L_ORDINAL, l->ordinal);
		word_put(state, w + L_OFFSET, l->offset);
		word_put(state, w + L_TAKEN, l->taken);
		word_put(state, w + L_COPY, l->copy);
		word_put(state, w + L_NBYTES, l->nbytes);
	}
	for (uint32_t i = 0; i < s->nsets; i++)
		set_write(state, W_HEAD + (size_t)s->nlanes * L_WORDS + (size_t)i * S_WORDS, &s->sets[i]);
	if (s->decodes) {
		size_t w = words_before_decoder(s->nlanes, s->nsets);

		word_put(state, w + D_SHARE, s->offload.share | (s->offload.tuning ? D_TUNING : 0));
		word_put(state, w + D_EPOCH, s->offload.epoch);
		word_put(state, w + D_BATCH, s->offload.batch);
		word_put(state, w + D_DECODER, s->decoder);
	}
	word_put(state, W_SUM, sum_of(state, ps_state_nbytes(s->nlanes, s->nsets, s->decodes)));
}

/* The text of an option in the fingerprint: a number, or one of the option's words. */
static const char *number_text(int i, uint64_t value, char buf[static 24])
{
	const struct ps_option *o = ps_loader_option(print_names[i], strlen(print_names[i]));
	const char *word = ps_option_word(o, value);

	if (i == P_ORDER && value == PENSTOCK_ORDER_NUMBERS)
		return "sample numbers";
	if (word)
		return word;
	snprintf(buf, 24, "%ju", (uintmax_t)value);
	return buf;
}

/* Refuses a state; the text names the difference, and what to open the loader with. */
static int number_refuse(const struct ps_state_print *print, int i, uint64_t theirs, struct ps_error *err)
{
	char a[24], b[24], with[96];

	if (i == P_GLOBAL_BATCH && print->words[P_ORDER] == PENSTOCK_ORDER_NUMBERS)
		snprintf(with, sizeof(with), "batch=%ju", (uintmax_t)theirs);
	else if (i == P_ORDER && theirs == PENSTOCK_ORDER_NUMBERS)
		snprintf(with, sizeof(with), "sample numbers");
	else if (i != P_GLOBAL_BATCH)
		snprintf(with, sizeof(with), "%s=%s", print_names[i], number_text(i, theirs, a));
	else if (theirs % print->world == 0)
		snprintf(with, sizeof(with), "global_batch=%ju or batch=%ju", (uintmax_t)theirs,
		        (uintmax_t)theirs / print->world);
	else
		snprintf(with, sizeof(with), "global_batch=%ju on a number of ranks that divides it",
		        (uintmax_t)theirs);
	return ps_error_set(err, ESTALE,
	        "the state was saved by a loader with %s %s, but this one has %s; open it with %s",
	        print_names[i], number_text(i, theirs, a), number_text(i, print->words[i], b), with);
}

/* True if the state is of an earlier version that has the same order from the state's position on. */
static bool is_of_same_order(const struct ps_state_print *print, const void *state)
{
	uint64_t theirs = word_get(state, W_PRINT + P_VERSIONS);

	if (theirs != versions(ORDER_VERSION) && theirs != versions(ORDER_VERSION_LATER_EPOCHS))
		return false;
	if (word_get(state, W_BATCHES) == 0)
		return true;
	return print->words[P_VERSIONS] == versions(ORDER_VERSION) &&
	       (word_get(state, W_EPOCH) > 0 || print->words[P_ORDER] != PENSTOCK_ORDER_WINDOW ||
	               print->words[P_BUCKET] > 1);
}

/* Refuses a state whose fingerprint differs; the text names the first difference. */
static int print_check(const struct ps_state_print *print, const struct ps_options *options,
        const void *state, uint32_t flags, struct ps_error *err)
{
	const uint64_t *mine = print->words;
	uint64_t theirs[PS_STATE_NPRINT];
	bool new_mix = flags & PENSTOCK_STATE_NEW_MIX, is_5 = word_get(state, W_MAGIC) == MAGIC_5;

	for (size_t i = 0; i < PS_STATE_NPRINT; i++)
		theirs[i] = word_get(state, W_PRINT + i);
	/* What a run keeps of its first opening, unless the caller asks for something else: */
	if (options->auto_lanes && mine[P_LANES] > 0 && theirs[P_LANES] > 0)
		theirs[P_LANES] = mine[P_LANES];
	if (options->auto_window && mine[P_WINDOW] > 0 && theirs[P_WINDOW] > 0)
		theirs[P_WINDOW] = mine[P_WINDOW];
	if (!options->numbers)
		theirs[P_GLOBAL_BATCH] = mine[P_GLOBAL_BATCH];
	if (is_5 && theirs[P_SAMPLING] == print->sampling_5)
		theirs[P_SAMPLING] = mine[P_SAMPLING];
	if (new_mix) {
		theirs[P_NSHARDS] = mine[P_NSHARDS];
		theirs[P_SHARDS] = mine[P_SHARDS];
	}
	if (flags & PENSTOCK_STATE_OTHER_FIELDS) {
		theirs[P_FIELDS] = mine[P_FIELDS];
		theirs[P_TRANSFORM] = mine[P_TRANSFORM];
	}
	if (theirs[P_NSHARDS] != mine[P_NSHARDS])
		return ps_error_set(err, ESTALE,
		        "the state was saved with %ju shards, but the loader has %ju; open the loader with "
		        "the same list",
		        (uintmax_t)theirs[P_NSHARDS], (uintmax_t)mine[P_NSHARDS]);
	if (theirs[P_SHARDS] != mine[P_SHARDS])
		return ps_error_set(err, ESTALE,
		        "the state was saved with shards of other names, or in another order; open the "
		        "loader with the same list (the shards may be in another "
		        "folder)");
	for (int i = P_NSHARDS + 1; i < PS_STATE_NPRINT; i++)
		if (i != P_SAMPLING && theirs[i] != mine[i])
			return number_refuse(print, i, theirs[i], err);
	if (theirs[P_SAMPLING] != mine[P_SAMPLING] && mine[P_ORDER] == PENSTOCK_ORDER_NUMBERS)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %ju of world %ju with other sample numbers as order; "
		        "open the loader with those (a rank's numbers and its state belong together), or "
		        "start the next epoch",
		        (uintmax_t)word_get(state, W_RANK), (uintmax_t)word_get(state, W_WORLD));
	if (theirs[P_SAMPLING] != mine[P_SAMPLING])
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader with another mix_end, filter, weights, draws or "
		        "balance%s; open "
		        "this loader with those of the state",
		        is_5 ? ", or another mix" : "");
	if (theirs[P_FIELDS] != mine[P_FIELDS])
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader with other fields; open this loader with those of "
		        "the "
		        "state, or allow others (ignore=\"fields\", PENSTOCK_STATE_OTHER_FIELDS)");
	if (theirs[P_VERSIONS] != mine[P_VERSIONS] && !is_of_same_order(print, state))
		return ps_error_set(err, ESTALE,
		        "the state was saved by another version of the library or of libjpeg-turbo (%016jx, "
		        "this is "
		        "%016jx), "
		        "which produces other batches; restart the epoch",
		        (uintmax_t)theirs[P_VERSIONS], (uintmax_t)mine[P_VERSIONS]);
	return 0;
}

/* Reads the words after the fingerprint; false if no state has such words. */
static bool words_read(const void *state, size_t nbytes, struct ps_state *s)
{
	uint64_t nlanes = word_get(state, W_NLANES), nsets = word_get(state, W_NSETS);

	*s = (struct ps_state){.epoch = word_get(state, W_EPOCH),
	        .batches = word_get(state, W_BATCHES),
	        .bad_run = (uint32_t)word_get(state, W_BAD_RUN),
	        .turn = (uint32_t)word_get(state, W_TURN),
	        .rank = (uint32_t)word_get(state, W_RANK),
	        .world = (uint32_t)word_get(state, W_WORLD),
	        .known = word_get(state, W_KNOWN) != 0,
	        .nlanes = (uint32_t)nlanes,
	        .rows = word_get(state, W_ROWS),
	        .first_batch = word_get(state, W_FIRST_BATCH),
	        .mix_batch = word_get(state, W_MIX_BATCH),
	        .mix_row = word_get(state, W_MIX_ROW),
	        .block_len = (uint32_t)word_get(state, W_BLOCK_LEN),
	        .order_lanes = (uint32_t)word_get(state, W_PRINT + P_LANES),
	        .order_window = (uint32_t)word_get(state, W_PRINT + P_WINDOW),
	        .nsets = (uint32_t)nsets};
	s->decodes = nbytes == ps_state_nbytes(s->nlanes, s->nsets, true);
	return nlanes <= PS_ORDER_MAX_LANES * PS_MAX_SETS && nsets <= MOST_SETS &&
	       nbytes == ps_state_nbytes(s->nlanes, s->nsets, s->decodes) && offload_read(state, s) &&
	       (s->rows < PS_SHARES_MAX_ROW || s->rows == PS_STATE_NO_ROWS) &&
	       (s->rows > 0) == (s->batches > 0) && s->first_batch > 0 &&
	       s->first_batch <= UINT64_C(1) << 36 && s->mix_batch <= UINT64_C(1) << 36 &&
	       word_get(state, W_BLOCK_LEN) <= PS_ORDER_MAX_WINDOW && s->mix_row < PS_SHARES_MAX_ROW &&
	       word_get(state, W_PRINT + P_LANES) <= PS_ORDER_MAX_LANES &&
	       word_get(state, W_PRINT + P_WINDOW) <= PS_ORDER_MAX_WINDOW && s->epoch != UINT64_MAX &&
	       s->batches <= PS_STATE_MAX_BATCHES && word_get(state, W_BAD_RUN) <= UINT32_MAX &&
	       word_get(state, W_TURN) <= UINT32_MAX && word_get(state, W_WORLD) <= UINT32_MAX &&
	       word_get(state, W_RANK) < s->world;
}

static bool lane_read(const void *state, uint32_t i, struct ps_state_lane *lane)
{
	size_t w = W_HEAD + (size_t)i * L_WORDS;

	*lane = (struct ps_state_lane){.lane = (uint32_t)word_get(state, w + L_LANE),
	        .at = {.block = word_get(state, w + L_BLOCK),
	                .k = word_get(state, w + L_K),
	                .ordinal = word_get(state, w + L_ORDINAL),
	                .offset = word_get(state, w + L_OFFSET),
	                .taken = (uint32_t)word_get(state, w + L_TAKEN),
	                .copy = (uint32_t)word_get(state, w + L_COPY),
	                .nbytes = word_get(state, w + L_NBYTES)}};
	return word_get(state, w + L_LANE) <= UINT32_MAX && lane->at.block < PS_STATE_MAX_BATCHES &&
	       word_get(state, w + L_TAKEN) <= UINT32_MAX && word_get(state, w + L_COPY) <= UINT16_MAX &&
	       lane->at.offset <= INT64_MAX && lane->at.nbytes <= INT64_MAX;
}

/* Reads the datasets' places; false if no state has such. */
static bool sets_read(const void *state, struct ps_state *s)
{
	ps_u128 sums = 0, bases = 0;

	for (uint32_t i = 0; i < s->nsets; i++) {
		size_t w = W_HEAD + (size_t)s->nlanes * L_WORDS + (size_t)i * S_WORDS;
		struct ps_run_set *set = &s->sets[i];

		*set = (struct ps_run_set){.name = word_get(state, w + S_NAME),
		        .shards = word_get(state, w + S_SHARDS),
		        .lanes = (uint32_t)word_get(state, w + S_LANES),
		        .at = {.given = word_get(state, w + S_GIVEN), .sum = sum_get(state, w + S_SUM)},
		        .base = {.given = word_get(state, w + S_BASE_GIVEN),
		                .sum = sum_get(state, w + S_BASE_SUM)}};
		for (int k = 0; k < 2; k++) {
			const struct ps_share_base *b = k ? &set->base : &set->at;
			ps_u128 given = (ps_u128)b->given << 32,
			        off = given > b->sum ? given - b->sum : b->sum - given;

			if (b->given >= PS_SHARES_MAX_ROW || off > (ps_u128)MOST_DEVIATION << 32)
				return false;
		}
		if (word_get(state, w + S_LANES) == 0 || word_get(state, w + S_LANES) > PS_ORDER_MAX_LANES)
			return false;
		sums += set->at.given;
		bases += set->base.given;
	}
	return s->nsets == 0 || (bases == s->mix_row && sums >= s->rows && sums < PS_SHARES_MAX_ROW);
}

/* Makes a state of version 6 of one of version 5. */
static void *state_of_5(const void *state, size_t nbytes)
{
	const size_t head = W_HEAD_5 * sizeof(uint64_t), more = (W_HEAD - W_HEAD_5) * sizeof(uint64_t);
	uint8_t *to = nbytes >= head ? calloc(1, nbytes + more) : NULL;

	if (!to)
		return NULL;
	memcpy(to, state, head);
	memcpy(to + head + more, (const uint8_t *)state + head, nbytes - head);
	word_put(to, W_ROWS, word_get(state, W_BATCHES) > 0 ? PS_STATE_NO_ROWS : 0);
	word_put(to, W_FIRST_BATCH, word_get(state, W_PRINT + P_GLOBAL_BATCH));
	word_put(to, W_MIX_BATCH, word_get(state, W_PRINT + P_GLOBAL_BATCH));
	return to;
}

int ps_state_read(const struct ps_state_print *print, const struct ps_options *options, const void *given,
        size_t nbytes, uint32_t flags, struct ps_state *ret_state, struct ps_error *err)
{
	ps_autofree void *converted = NULL;
	const void *state = given;
	struct ps_state s;
	bool is_5;
	int rc;

	if (nbytes < W_HEAD_5 * sizeof(uint64_t) || MAGIC_NAME(word_get(state, W_MAGIC)) != MAGIC_NAME(MAGIC))
		return ps_error_set(err, EINVAL, "these %zu bytes are not the state of a loader", nbytes);
	is_5 = word_get(state, W_MAGIC) == MAGIC_5;
	if (word_get(state, W_MAGIC) != MAGIC && !is_5)
		return ps_error_set(err, ESTALE,
		        "the state was written in the format of another version of penstock; restart the "
		        "epoch");
	if (nbytes % sizeof(uint64_t) != 0 || word_get(state, W_SUM) != sum_of(state, nbytes))
		return ps_error_set(err, EINVAL, "the state is damaged, or was cut off at %zu bytes", nbytes);
	if (is_5) {
		converted = state_of_5(given, nbytes);
		if (!converted)
			return ps_no_memory(err);
		state = converted;
		nbytes += (W_HEAD - W_HEAD_5) * sizeof(uint64_t);
	}
	rc = print_check(print, options, state, flags, err);
	if (rc < 0)
		return rc;
	if (nbytes < ps_state_nbytes(0, 0, false) || !words_read(state, nbytes, &s))
		return ps_error_set(err, EINVAL, "the state is damaged");
	s.lanes = calloc(PS_MAX(s.nlanes, 1u), sizeof(*s.lanes));
	s.sets = calloc(PS_MAX(s.nsets, 1u), sizeof(*s.sets));
	if (!s.lanes || !s.sets) {
		ps_state_fini(&s);
		return ps_no_memory(err);
	}
	for (uint32_t i = 0; i < s.nlanes; i++)
		rc = lane_read(state, i, &s.lanes[i]) ? rc : -EINVAL;
	if (rc < 0 || !sets_read(state, &s)) {
		ps_state_fini(&s);
		return ps_error_set(err, EINVAL, "the state is damaged");
	}
	*ret_state = s;
	return 0;
}

void ps_state_fini(struct ps_state *s)
{
	free(s->lanes);
	free(s->sets);
	*s = (struct ps_state){0};
}
