/* Packing of a piece's documents into rows: each token once, padding within the slack, nothing overlaps, the same
 * everywhere and always. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "shard/tokens/fit.h"

#define N_MAX (1u << 17)

static uint32_t lens[N_MAX];
static uint64_t rng_state;

static uint32_t draw(uint32_t below)
{
	rng_state = rng_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((rng_state >> 33) % below);
}

static uint64_t sum(uint32_t n)
{
	uint64_t tokens = 0;

	for (uint32_t i = 0; i < n; i++)
		tokens += lens[i];
	return tokens;
}

static struct ps_fit pack_lens(const struct ps_fit_options *o, uint32_t n)
{
	struct ps_error err = {0};
	struct ps_fit fit = {0};

	assert_int_equal(ps_fit_pack(o, lens, n, &fit, &err), 0);
	return fit;
}

/* The tokens of each document come once, in parts that say how they are cut, and rows are not longer than they may
 * be. Returns the padding. */
static uint64_t check(const struct ps_fit_options *o, uint32_t n, const struct ps_fit *fit)
{
	uint64_t tokens = sum(n), used = 0;
	uint8_t *seen = calloc(1, tokens + 1);
	uint32_t *starts = malloc((n + 1) * sizeof(*starts));

	assert_non_null(seen);
	assert_non_null(starts);
	starts[0] = 0;
	for (uint32_t i = 0; i < n; i++)
		starts[i + 1] = starts[i] + lens[i];
	assert_int_equal(fit->begins[0], 0);
	for (uint32_t row = 0; row < fit->rows; row++) {
		uint32_t at = 0;

		for (uint32_t i = fit->begins[row]; i < fit->begins[row + 1]; i++) {
			const struct ps_fit_part *part = &fit->parts[i];

			assert_true(part->document < n && part->len > 0);
			assert_true(part->from >= starts[part->document]);
			assert_true(part->from + part->len <= starts[part->document + 1]);
			assert_int_equal(part->continued, part->from > starts[part->document]);
			assert_int_equal(
			        part->continues, part->from + part->len < starts[part->document + 1]);
			for (uint32_t k = 0; k < part->len; k++)
				assert_int_equal(seen[part->from + k]++, 0);
			at += part->len;
		}
		assert_true(at <= o->length);
		used += at;
	}
	assert_true(used + fit->left_out == tokens);
	free(seen);
	free(starts);
	return (uint64_t)fit->rows * o->length - used;
}

/* Ten lists of lengths of which each is unfriendly in a way of its own. */
#define UNFRIENDLY 10

static uint32_t unfriendly(int kind, uint32_t length, uint32_t rows)
{
	uint32_t tokens = rows * (length - 8), n = 0;

	rng_state = 5;
	for (uint32_t i = 0, left = tokens; left > 0; i++) {
		const uint32_t kinds[UNFRIENDLY] = {length * 6 / 10, length + 1, 1, tokens, length - 1,
		        length / 2 + 1, i % 2 ? length - 3 : 7, length / 3 + 1, length,
		        i % 100 ? 1 : 3 * length + 5};
		uint32_t len = kinds[kind] < left ? kinds[kind] : left;

		assert_true(n < N_MAX);
		lens[n++] = len;
		left -= len;
	}
	return n;
}

/* Cuts that are not at multiples of the length: documents of which a row begins within. */
static uint32_t cut_documents(const struct ps_fit *fit, uint32_t length)
{
	uint32_t cuts = 0;

	for (uint32_t i = 0; i < fit->begins[fit->rows]; i++)
		cuts += fit->parts[i].continues && fit->parts[i].len < length;
	return cuts;
}

static void unfriendly_lengths_are_packed_exactly(void **state)
{
	(void)state;
	for (int kind = 0; kind < UNFRIENDLY; kind++) {
		struct ps_fit_options o = {
		        .pack = PS_PACK_FIT, .length = 512, .rows = 64, .key = {.seed = 3}};
		uint32_t n = unfriendly(kind, o.length, o.rows), cuts;
		struct ps_fit fit = pack_lens(&o, n);

		assert_int_equal(fit.rows, 64);
		assert_true(check(&o, n, &fit) == 64 * 8);
		cuts = cut_documents(&fit, o.length);
		ps_fit_fini(&fit);
		o.pack = PS_PACK_CONCAT;
		o.rows = (uint32_t)((sum(n) + o.length - 1) / o.length);
		fit = pack_lens(&o, n);
		assert_true(check(&o, n, &fit) == (uint64_t)o.rows * o.length - sum(n));
		assert_true(cuts <= cut_documents(&fit, o.length));
		ps_fit_fini(&fit);
		o.pack = PS_PACK_WHOLE;
		o.long_documents = PS_LONG_SPLIT;
		fit = pack_lens(&o, n);
		(void)check(&o, n, &fit);
		assert_int_equal(cut_documents(&fit, o.length), 0);
		ps_fit_fini(&fit);
	}
}

static uint32_t random_lens(uint32_t most, uint64_t tokens)
{
	uint32_t n = 0;

	while (tokens > 0) {
		uint32_t len = draw(5) ? draw(most) : draw(20);

		len = (uint32_t)PS_MIN((uint64_t)len, tokens);
		if (n == N_MAX - 1)
			len = (uint32_t)tokens;
		lens[n++] = len;
		tokens -= len;
	}
	return n;
}

static void random_lengths_are_packed_exactly(void **state)
{
	(void)state;
	rng_state = 1;
	for (int i = 0; i < 1500; i++) {
		struct ps_fit_options o = {.pack = PS_PACK_FIT,
		        .length = 1 + draw(i % 50 ? 300 : 9000),
		        .rows = 1 + draw(40),
		        .key = {.seed = (uint64_t)i}};
		uint32_t slack = draw(o.length < 9 ? o.length : 9);
		uint32_t n = random_lens(1 + draw(3 * o.length), (uint64_t)o.rows * (o.length - slack));
		struct ps_fit fit = pack_lens(&o, n);

		assert_int_equal(fit.rows, o.rows);
		assert_true(check(&o, n, &fit) == (uint64_t)o.rows * slack);
		ps_fit_fini(&fit);
		o.pack = PS_PACK_CONCAT;
		fit = pack_lens(&o, n);
		assert_int_equal(fit.rows, o.rows);
		(void)check(&o, n, &fit);
		ps_fit_fini(&fit);
	}
}

/* With whole documents, the rows that are counted at open are those of every epoch. */
static void whole_documents_have_as_many_rows_with_any_key(void **state)
{
	(void)state;
	rng_state = 2;
	for (int i = 0; i < 600; i++) {
		struct ps_fit_options o = {.pack = PS_PACK_WHOLE,
		        .long_documents = (enum ps_long_documents)(PS_LONG_SPLIT + i % 3),
		        .length = 1 + draw(400)};
		uint32_t n = random_lens(1 + draw(2 * o.length), 1 + draw(20000)), rows;
		struct ps_error err = {0};
		uint64_t gone = 0;

		for (uint32_t k = 0; k < n; k++)
			if (lens[k] > o.length && o.long_documents != PS_LONG_SPLIT)
				gone += o.long_documents == PS_LONG_DROP ? lens[k] : lens[k] - o.length;
		assert_int_equal(ps_fit_count(&o, lens, n, &rows, &err), 0);
		for (uint64_t seed = 0; seed < 4; seed++) {
			struct ps_fit fit;

			o.key.seed = seed;
			fit = pack_lens(&o, n);
			assert_int_equal(fit.rows, rows);
			(void)check(&o, n, &fit);
			assert_true(fit.left_out == gone);
			for (uint32_t k = 0; k < fit.begins[rows]; k++)
				assert_true(o.long_documents == PS_LONG_SPLIT
				                    ? lens[fit.parts[k].document] > o.length ||
				                              !fit.parts[k].continues
				                    : !fit.parts[k].continued);
			ps_fit_fini(&fit);
		}
	}
}

/* Lengths like those of the web: hardly a document is cut, and a few tokens of a row are padding. */
static void few_documents_of_the_web_are_cut(void **state)
{
	struct ps_fit_options o = {.pack = PS_PACK_FIT, .length = 8192, .rows = 128};
	uint32_t cuts = 0, documents = 0;

	(void)state;
	rng_state = 4;
	for (uint64_t piece = 0; piece < 20; piece++) {
		uint32_t n = 0, left = o.rows * (o.length - 8);
		struct ps_fit fit;

		while (left > 0) { /* a geometric spread of lengths, with a mean of about 700 */
			uint32_t len = 20u << draw(7);

			len += draw(len);
			len = PS_MIN(len, left);
			lens[n++] = len;
			left -= len;
		}
		o.key.sample = piece;
		fit = pack_lens(&o, n);
		assert_true(check(&o, n, &fit) == 8 * 128);
		cuts += cut_documents(&fit, o.length);
		documents += n;
		ps_fit_fini(&fit);
	}
	print_message("cut: %u of %u documents\n", cuts, documents);
	assert_true(cuts * 1000 <= documents);
}

static uint64_t hash_of(const struct ps_fit *fit)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (uint32_t row = 0; row < fit->rows; row++)
		for (uint32_t i = fit->begins[row]; i < fit->begins[row + 1]; i++) {
			const struct ps_fit_part *p = &fit->parts[i];
			const uint32_t words[] = {
			        row, p->from, p->len, p->document, (uint32_t)p->continued * 2 + p->continues};

			for (size_t k = 0; k < PS_ARRAY_LEN(words); k++)
				h = (h ^ words[k]) * UINT64_C(0x100000001b3);
		}
	return h;
}

/* States depend on the packing: another hash needs another ORDER_VERSION. */
static void packing_never_changes_between_versions(void **state)
{
	static const uint64_t golden[3][3] = {
	        {UINT64_C(0xf330c753e14fdc05), UINT64_C(0xb71a062ceb026b41), UINT64_C(0xd9336e3f61bf2be9)},
	        {UINT64_C(0x311403b4154c06e2), UINT64_C(0x18fa3c16b676f7a9), UINT64_C(0x96570089c96ba99f)},
	        {UINT64_C(0x311403b4154c06e2), UINT64_C(0xe1345ecefb24e78b), UINT64_C(0x030f962456c24f6c)},
	};

	(void)state;
	for (int pack = 0; pack < 3; pack++)
		for (int kind = 0; kind < 3; kind++) {
			struct ps_fit_options o = {.pack = (enum ps_pack)(PS_PACK_CONCAT + pack),
			        .long_documents = PS_LONG_SPLIT,
			        .length = 1024,
			        .rows = 32,
			        .key = {.seed = 7, .epoch = 2, .shard = 5, .sample = 3}};
			uint32_t n;
			struct ps_fit fit;

			rng_state = 11 + (uint64_t)kind;
			n = kind == 0 ? unfriendly(9, o.length, o.rows)
			              : random_lens(kind == 1 ? 600 : 5000,
			                        (uint64_t)o.rows * (o.length - (pack == 1 ? 8 : 0)));
			if (pack == 0)
				o.rows = (uint32_t)((sum(n) + o.length - 1) / o.length);
			fit = pack_lens(&o, n);
			print_message("hash %d %d: 0x%016jx\n", pack, kind, (uintmax_t)hash_of(&fit));
			assert_true(golden[pack][kind] == hash_of(&fit));
			ps_fit_fini(&fit);
		}
}

/* Each part of the key makes another order. */
static void other_keys_give_other_rows(void **state)
{
	struct ps_fit_options o = {.pack = PS_PACK_FIT, .length = 512, .rows = 64};
	const struct ps_rng_key keys[] = {
	        {0}, {.seed = 1}, {.epoch = 1}, {.shard = 1}, {.sample = 1}, {.draw = 1}};
	uint64_t hashes[PS_ARRAY_LEN(keys)];
	uint32_t n;

	(void)state;
	rng_state = 9;
	n = random_lens(700, 64 * 504);
	for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++) {
		struct ps_fit fit;

		o.key = keys[i];
		fit = pack_lens(&o, n);
		hashes[i] = hash_of(&fit);
		ps_fit_fini(&fit);
		for (size_t k = 0; k < i; k++)
			assert_true(hashes[k] != hashes[i]);
	}
}

static void nothing_is_packed_to_no_rows(void **state)
{
	struct ps_fit_options o = {.pack = PS_PACK_WHOLE, .long_documents = PS_LONG_DROP, .length = 8};
	struct ps_fit fit = pack_lens(&o, 0);

	(void)state;
	assert_int_equal(fit.rows, 0);
	ps_fit_fini(&fit);
	lens[0] = 9;
	lens[1] = 0;
	fit = pack_lens(&o, 2);
	assert_int_equal(fit.rows, 0);
	assert_int_equal(fit.left_out, 9);
	ps_fit_fini(&fit);
}

static void too_many_tokens_are_an_error(void **state)
{
	struct ps_fit_options o = {.pack = PS_PACK_WHOLE, .long_documents = PS_LONG_DROP, .length = 8};
	struct ps_error err = {0};
	struct ps_fit fit;

	(void)state;
	lens[0] = lens[1] = (1u << 30) + 1;
	assert_int_equal(ps_fit_pack(&o, lens, 2, &fit, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "2147483650"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(unfriendly_lengths_are_packed_exactly),
	        cmocka_unit_test(random_lengths_are_packed_exactly),
	        cmocka_unit_test(whole_documents_have_as_many_rows_with_any_key),
	        cmocka_unit_test(few_documents_of_the_web_are_cut),
	        cmocka_unit_test(packing_never_changes_between_versions),
	        cmocka_unit_test(other_keys_give_other_rows),
	        cmocka_unit_test(nothing_is_packed_to_no_rows),
	        cmocka_unit_test(too_many_tokens_are_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
