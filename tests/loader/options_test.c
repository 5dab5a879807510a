/* Compares the table of options with the code: ranges, limits, words, and the options that a state depends
 * on. */
#include "config.h"

#include "loader_fixture.h"

#include <endian.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "image/image.h"
#include "option/option.h"
#include "options.h"
#include "order/order.h"
#include "state.h"

#define VERSIONS 2 /* the word of the print that has libjpeg's version */

/* Sets the option to another value than the default. */
static void change(const struct ps_option *o, void *base)
{
	void *to = (char *)base + o->at;
	uint64_t most = o->words ? 1 : ps_option_most(o);
	uint64_t number = o->words ? o->initial == 0 : (uint64_t)PS_MIN((double)most, o->initial + 2);

	switch (o->type) {
	case PS_OPTION_U32:
		*(uint32_t *)to = (uint32_t)number;
		break;
	case PS_OPTION_U64:
	case PS_OPTION_I64:
		*(uint64_t *)to = number;
		break;
	case PS_OPTION_F64:
		*(double *)to = o->initial / 2 + 0.125;
		break;
	case PS_OPTION_F32X3:
		((float *)to)[2] = 0.75f;
		break;
	case PS_OPTION_TEXT:
		*(const char **)to = "other";
		break;
	case PS_OPTION_SHAPE:
		*(uint32_t *)to = 1;
		((struct penstock_field *)base)->shape[0] = 7;
		break;
	default:
		fail_msg("%s: a test of its own is needed", o->name);
	}
}

static uint64_t hash_u64(uint64_t h, uint64_t v)
{
	v = htole64(v);
	return ps_hash(h, &v, sizeof(v));
}

static uint64_t print_of(const struct penstock_options *o, const char *what)
{
	const char *const shards[] = {"/d/{a,b,c}.tar"};
	struct ps_error err = {0};
	struct ps_state_print print = {0};
	struct ps_options made;
	uint64_t h = PS_HASH_BEGIN;

	if (ps_options_make(&made, o, shards, 1, &err) < 0 || ps_state_print_make(&print, &made, &err) < 0)
		fail_msg("%s: %s", what, err.text);
	ps_options_fini(&made);
	for (size_t i = 0; i < PS_STATE_NPRINT; i++)
		h = i == VERSIONS ? h : hash_u64(h, print.words[i]);
	return h;
}

static void options_base(struct penstock_options *o)
{
	penstock_options_init(o, sizeof(*o));
	o->world = 4;
	o->weights = "column";
}

static void a_state_depends_on_each_option_that_changes_batches(void **state)
{
	struct penstock_options o;
	uint64_t plain, all = PS_HASH_BEGIN;

	(void)state;
	options_base(&o);
	plain = print_of(&o, "none");
	for (size_t i = 0; i < ps_n_loader_options; i++) {
		const struct ps_option *option = &ps_loader_options[i];
		bool never = option->print == PS_PRINT_NEVER ||
		             strcmp(option->name, "mix_end") == 0; /* has an effect only with a mix */
		uint64_t print;

		if (option->gone || option->type > PS_OPTION_SHAPE)
			continue; /* arrays: state_test, numbers_test, select_test */
		options_base(&o);
		change(option, &o);
		if (o.global_batch)
			o.global_batch = 8; /* a multiple of the world */
		print = print_of(&o, option->name);
		if ((print == plain) != never)
			fail_msg("%s: a state %s on it", option->name,
			        print == plain ? "must depend" : "depends");
		if (option->print == PS_PRINT_OWN)
			all = hash_u64(all, print);
	}
	assert_int_equal(all, UINT64_C(0x882fa55a3225ff3b)); /* as in states of the first version */
}

static void a_state_depends_on_each_option_of_the_fields(void **state)
{
	uint64_t all = PS_HASH_BEGIN;

	(void)state;
	for (uint32_t kind = 0; kind <= PENSTOCK_OUTPUT; kind++) {
		struct penstock_options o;
		struct penstock_field field;
		uint64_t plain;

		options_base(&o);
		o.fields = &field;
		o.nfields = 1;
		penstock_field_init(&field, sizeof(field), "x", kind);
		plain = print_of(&o, "none");
		all = hash_u64(all, plain);
		for (size_t i = 0; i < ps_n_field_options; i++) {
			const struct ps_option *option = &ps_field_options[i];
			uint64_t print;

			if (!(option->kinds & 1u << kind))
				continue;
			penstock_field_init(&field, sizeof(field), "x", kind);
			if (option->at == offsetof(struct penstock_field, dtype))
				field.dtype = PENSTOCK_F16;
			else if (option->at == offsetof(struct penstock_field, source_dtype))
				field.source_dtype = PENSTOCK_U32;
			else
				change(option, &field);
			print = print_of(&o, option->name);
			/* arrays follow boxes since 0.4 */
			bool later = option->at == offsetof(struct penstock_field, follow) &&
			             (kind == PENSTOCK_NPY || kind == PENSTOCK_JSON);
			if (option->print != PS_PRINT_IF_SET && !later)
				all = hash_u64(all, print);
			/* An optional image is refused elsewhere. States of no version depend on a mask's
			 * max_pixels. */
			if (print == plain &&
			        !(kind == PENSTOCK_IMAGE && strcmp(option->name, "optional") == 0) &&
			        !(kind == PENSTOCK_MASK && strcmp(option->name, "max_pixels") == 0))
				fail_msg("%s of %s: a state must depend on it", option->name,
				        ps_kind_words[kind]);
		}
	}
	assert_int_equal(all, UINT64_C(0xeebb01601b3086d3));
}

/* Ranges and words --------------------------------------------------------------------------------------- */

static void set(const struct ps_option *o, void *base, double value)
{
	struct ps_option as = *o;

	as.initial = value;
	ps_option_init(&as, base);
}

static void values_beyond_the_range_are_refused(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;

	(void)state;
	for (size_t i = 0; i < ps_n_loader_options; i++) {
		const struct ps_option *o = &ps_loader_options[i];
		double most = o->type == PS_OPTION_F64 ? o->most : (double)ps_option_most(o);

		if (o->type > PS_OPTION_F64 || most == 0 ||
		        most >= (o->type == PS_OPTION_U32 ? UINT32_MAX : 0x1p63))
			continue;
		setting_init(&s);
		set(o, &s.o, most * 1.0625 + 1);
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), -EINVAL);
		if (!strstr(e.text, "must be") || !strstr(e.text, o->name))
			fail_msg("%s: %s", o->name, e.text);
	}
	for (size_t i = 0; i < ps_n_field_options; i++) {
		const struct ps_option *o = &ps_field_options[i];

		if (!(o->kinds & 1u << PENSTOCK_IMAGE) || o->words || o->most == 0 ||
		        o->type == PS_OPTION_F32X3)
			continue;
		setting_init(&s);
		penstock_field_init(&s.f[0], sizeof(s.f[0]), "jpg", PENSTOCK_IMAGE);
		s.f[0].blur = 1;
		s.f[0].crop = o->need == PS_NEEDS_CROP ? PENSTOCK_CROP_RANDOM_CROP : PENSTOCK_CROP_RANDOM;
		set(o, &s.f[0], o->type == PS_OPTION_U32 ? o->most + 2 : o->most * 1.0625);
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), -EINVAL);
		if (!strstr(e.text, "must be") && !strstr(e.text, "unknown"))
			fail_msg("%s: %s", o->name, e.text);
	}
}

static void limits_and_words_equal_those_of_the_code(void **state)
{
	static const struct {
		const char *name;
		uint32_t last;
	} words[] = {{"order", PENSTOCK_ORDER_PERMUTATION}, {"end", PENSTOCK_END_GATHER},
	        {"mix_end", PENSTOCK_MIX_LONGEST}, {"source", PENSTOCK_SOURCE_TOKENS},
	        {"index", PENSTOCK_INDEX_MAKE}, {"device_pixels", PENSTOCK_PIXELS_OFF},
	        {"on_error", PENSTOCK_SKIP}, {"dtype", PENSTOCK_BOOL}, {"layout", PENSTOCK_NHWC},
	        {"crop", PENSTOCK_CROP_LETTERBOX}, {"interpolation", PENSTOCK_BICUBIC},
	        {"overflow", PENSTOCK_OVERFLOW_TRUNCATE}, {"source_dtype", PENSTOCK_SOURCE_U8},
	        {"box_format", PENSTOCK_BOX_CXCYWH}, {"padding_mode", PENSTOCK_PADDING_SYMMETRIC},
	        {"jitter_order", PENSTOCK_JITTER_RANDOM}, {"erase_fill", PENSTOCK_ERASE_LEVELS},
	        {"rounding", PENSTOCK_ROUNDING_NEAREST}, {"channels", PENSTOCK_CHANNELS_GRAY},
	        {"pack", PENSTOCK_PACK_WHOLE}, {"long_documents", PENSTOCK_LONG_DROP},
	        {"truncated", PENSTOCK_TRUNCATED_ALLOW}};
	size_t n = 0;

	(void)state;
#define OPTION(name) ps_loader_option(name, strlen(name))
#define FIELD(name) ps_field_option(name, strlen(name))
	for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
		const struct ps_option *o = OPTION(words[i].name) ?: FIELD(words[i].name);

		if (!ps_option_word(o, words[i].last) || ps_option_word(o, words[i].last + 1))
			fail_msg("%s has other words", o->name);
	}
	for (size_t i = 0; i < ps_n_loader_options; i++)
		n += ps_loader_options[i].words != NULL;
	for (size_t i = 0; i < ps_n_field_options; i++)
		n += ps_field_options[i].words != NULL;
	assert_int_equal(n, PS_ARRAY_LEN(words));
	for (uint32_t i = 0; i < PS_NDTYPES; i++)
		assert_string_equal(ps_dtype_words[i], ps_dtype_name((enum ps_dtype)i));
	assert_string_equal(ps_kind_words[PENSTOCK_OUTPUT], "output");
	assert_null(ps_kind_words[PENSTOCK_OUTPUT + 1]);
	assert_int_equal(ps_option_most(OPTION("lanes")), PS_ORDER_MAX_LANES);
	assert_int_equal(ps_option_most(OPTION("homes")), PS_ORDER_MAX_LANES);
	assert_int_equal(ps_option_most(OPTION("shuffle_window")), PS_ORDER_MAX_WINDOW);
	assert_int_equal(ps_option_most(FIELD("image_width")), PS_IMAGE_SIDE_MAX);
	assert_int_equal(ps_option_most(FIELD("views")), PS_IMAGE_VIEWS_MAX);
}

static void help_has_range_and_default(void **state)
{
	char text[128];

	(void)state;
#define DESCRIBED(option, want) \
	(ps_option_describe(option, text, sizeof(text)), assert_string_equal(text, want))
	DESCRIBED(OPTION("batch"), "samples per batch, 1 to 65536 (64)");
	DESCRIBED(OPTION("steps"), "batches per epoch, 0 to 2^40 (0: as many as the samples fill)");
	DESCRIBED(OPTION("on_error"), "what to do about a bad sample or a missing shard: fail | skip (fail)");
	DESCRIBED(OPTION("ranks_per_node"), "ranks per machine; must divide world, at least 1 (1)");
	DESCRIBED(OPTION("memory_budget"),
	        "memory for batches, read buffers and the shuffle window, bytes (512M)");
	DESCRIBED(FIELD("optional"), "1: a sample may lack the field (0)");
	DESCRIBED(FIELD("hue"), "maximum hue shift each way, as a share of the colour circle, 0 to 0.5 (0)");
	ps_option_help(OPTION("batch"), text, sizeof(text));
	assert_string_equal(text, "samples per batch (64)");
	ps_option_describe(OPTION("batch"), text, 8);
	assert_string_equal(text, "samples");
}

/* Options that have gone are refused, with what to do instead, unless they have their default. */
static void an_option_that_has_gone_is_refused(void **state)
{
	const char *const shards[] = {"x.tar"};
	struct penstock_loader *l;
	struct penstock_error e;
	int n = 0;

	(void)state;
	for (size_t i = 0; i < ps_n_loader_options + ps_n_field_options; i++) {
		bool is_field = i >= ps_n_loader_options;
		const struct ps_option *option =
		        is_field ? &ps_field_options[i - ps_n_loader_options] : &ps_loader_options[i];
		struct penstock_options o;
		struct penstock_field field;

		if (!option->gone)
			continue;
		n++;
		options_base(&o);
		penstock_field_init(&field, sizeof(field), "jpg", PENSTOCK_IMAGE);
		o.fields = &field;
		o.nfields = 1;
		change(option, is_field ? (void *)&field : (void *)&o);
		assert_int_equal(penstock_loader_open(&o, shards, 1, &l, &e), -EINVAL);
		if (!strstr(e.text, option->name) || !strstr(e.text, option->gone))
			fail_msg("%s: %s", option->name, e.text);
	}
	assert_int_equal(n, 4);
}

/* penstock_options_init(3) has each option of loaders with its range and default, as Python's help() has. */
static void the_man_page_has_a_line_for_each_option(void **state)
{
	static char page[1 << 18];
	char path[4096], text[512], line[600];
	const char *own;
	bool all = true;
	FILE *in;

	(void)state;
	snprintf(path, sizeof(path), "%s/man/penstock_options_init.3", getenv("top_srcdir") ?: ".");
	in = fopen(path, "re");
	assert_non_null(in);
	page[fread(page, 1, sizeof(page) - 1, in)] = 0;
	fclose(in);
	for (size_t i = 0; i < ps_n_loader_options; i++) {
		if (ps_loader_options[i].gone)
			continue;
		ps_option_describe(&ps_loader_options[i], text, sizeof(text));
		own = text + strlen(ps_loader_options[i].text);
		snprintf(line, sizeof(line), "\n\\fI%s\\fR", ps_loader_options[i].name);
		for (const char *p = own; *p; p++)
			snprintf(line + strlen(line), sizeof(line) - strlen(line),
			        *p == '-'                            ? "\\-"
			        : *p == '(' && p == strchr(own, '(') ? "(default "
			                                             : "%c",
			        *p);
		if (strstr(page, *own ? strcat(line, "\n") : line))
			continue;
		all = false;
		print_error("penstock_options_init(3) lacks:%s", line);
	}
	assert_true(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_state_depends_on_each_option_that_changes_batches),
	        cmocka_unit_test(a_state_depends_on_each_option_of_the_fields),
	        cmocka_unit_test(values_beyond_the_range_are_refused),
	        cmocka_unit_test(limits_and_words_equal_those_of_the_code),
	        cmocka_unit_test(help_has_range_and_default),
	        cmocka_unit_test(an_option_that_has_gone_is_refused),
	        cmocka_unit_test(the_man_page_has_a_line_for_each_option),
	};

	return cmocka_run_group_tests_name("options", tests, shards_make, shards_remove);
}
