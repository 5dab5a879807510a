/* Options that are refused, with reasons; structs of programs that were built with older or newer headers. */
#include "config.h"

#include "loader_fixture.h"

static void bad_options_are_refused_with_a_reason(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;
	char long_text[20001];

	(void)state;
	memset(long_text, 'a', 20000);
	long_text[20000] = '\0';
#define REFUSED(want, says, ...)                                                        \
	do {                                                                            \
		setting_init(&s);                                                       \
		__VA_ARGS__;                                                            \
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), want); \
		assert_int_equal(e.code, -(want));                                      \
		if (!strstr(e.text, says))                                              \
			fail_msg("\"%s\" does not contain \"%s\"", e.text, says);       \
	} while (0)
	static const double weights[] = {1, 2, 3};
	REFUSED(-EINVAL, "options were not filled by penstock_options_init()", s.o.size = 0);
	REFUSED(-EINVAL, "field 1 was not filled by penstock_field_init()", s.f[1].size = 0);
	REFUSED(-EINVAL, "bucket 2: needs order window", s.o.bucket = 2,
	        s.o.order = PENSTOCK_ORDER_PERMUTATION);
	REFUSED(-EINVAL, "steps 2199023255552: must be 0 to 1099511627776", s.o.steps = UINT64_C(1) << 41);
	REFUSED(-EINVAL, "nmix 257: must be 0 to 256", s.o.nmix = 257);
	REFUSED(-EINVAL, "mix: 3 weights for 1 strings of shards; each string is a dataset and needs one",
	        s.o.mix = weights, s.o.nmix = 3);
	struct penstock_mix_stage stages[2] = {{.weights = weights}, {.start = 5, .weights = weights}};
#define STAGES s.o.mix_stages = stages, s.o.nmix_stages = 2, s.o.nmix = 1
	REFUSED(-EINVAL, "mix and mix_stages are both given", STAGES, s.o.mix = weights);
	REFUSED(-EINVAL, "mix_stages: there is no stage", STAGES, s.o.nmix_stages = 0);
	REFUSED(-EINVAL, "mix_stages: 65537 stages: at most 65536", STAGES, s.o.nmix_stages = 65537);
	REFUSED(-EINVAL, "mix_names: dataset 0 has no name", STAGES, s.o.mix_names = (const char *[]){""});
	stages[1].flags = 4;
	REFUSED(-EINVAL, "mix_stages: stage 1 has unknown flags 0x4", STAGES);
	stages[1] = (struct penstock_mix_stage){.start = UINT64_C(1) << 60, .weights = weights};
	REFUSED(-EINVAL, "stage 1 begins at 1152921504606846976: must be below 2^60 rows", STAGES);
	stages[1] = (struct penstock_mix_stage){.start = 5, .weights = (const double[]){0}};
	REFUSED(-EINVAL, "all weights of stage 1 are 0", STAGES);
	stages[0].start = 1;
	REFUSED(-EINVAL, "stage 0 begins at 1: the first stage must begin at 0", STAGES);
#undef STAGES
	REFUSED(-EINVAL, "unknown padding_mode, erase_fill, erase_levels or jitter_order",
	        s.f[0].padding_mode = 99);
	REFUSED(-EINVAL, "mean must be finite, std 1e-6 to 1e6", s.f[0].dtype = PENSTOCK_F32,
	        s.f[0].std[1] = 1e-9f);
	REFUSED(-EINVAL, "field png;JPG: unknown dtype 99", s.f[0].kind = PENSTOCK_MASK, s.f[0].dtype = 99);
	REFUSED(-EINVAL, "must follow an image field that is listed before it", s.f[2].kind = PENSTOCK_MASK,
	        s.f[2].follow = "cls");
	REFUSED(-ENODEV, "gpu_decode: device fake: JPEGs are decoded on cuda only", s.o.device = "fake",
	        s.o.gpu_decode = 1);
	REFUSED(-EINVAL, "filter: longer than", s.o.filter = long_text);
	REFUSED(-EINVAL, "filter \"a ==\": at character 5: ", s.o.filter = "a ==");
	REFUSED(-EINVAL, "numbers: need order NUMBERS", s.o.numbers = (const int64_t[]){0}, s.o.nnumbers = 1);
	REFUSED(-EINVAL, "numbers: need order NUMBERS", s.o.batch_ends = (const uint64_t[]){1},
	        s.o.nbatch_ends = 1);
	REFUSED(-EINVAL, "weights: more than 2^40", s.o.sample_weights = weights,
	        s.o.nsample_weights = (UINT64_C(1) << 40) + 1);
	REFUSED(-EINVAL, "batch 0", s.o.batch = 0);
	REFUSED(-EINVAL, "batch 65537", s.o.batch = 65537);
	REFUSED(-EINVAL, "depth 1", s.o.depth = 1);
	REFUSED(-EINVAL, "threads 5000", s.o.threads = 5000);
	REFUSED(-EINVAL, "rank 2 of world 2", s.o.world = s.o.rank = 2);
	REFUSED(-EINVAL, "drop_last", s.o.world = 2, s.o.end = PENSTOCK_END_DROP_LAST);
	REFUSED(-EINVAL, "penstock-loader index", s.o.world = 2); /* the default end is split */
	REFUSED(-EINVAL, "steps=", s.o.world = 2);
	REFUSED(-EINVAL, "end=\"uneven\"", s.o.world = 2);
	REFUSED(-EINVAL, "order 9", s.o.order = 9);
	REFUSED(-EINVAL, "twice", s.f[2].name = "cls");
	REFUSED(-EINVAL, "reserved for the loader", s.f[2].name = "__key__");
	REFUSED(-EINVAL, "suffixes", s.f[2].name = "a;;b");
	REFUSED(-EINVAL, "unknown kind", s.f[2].kind = 77);
	REFUSED(-EINVAL, "field png;JPG", s.f[0].image_width = 0);
	REFUSED(-E2BIG, "memory_budget", s.o.memory_budget = 1000);
	REFUSED(-ENODEV, "device cuda", s.o.device = "cuda:999"); /* no driver, or fewer devices */
	REFUSED(-ENODEV, "no such device", s.o.device = "tpu");
#undef REFUSED
	setting_init(&s);
	assert_int_equal(penstock_loader_open(&s.o, NULL, 0, &l, &e), -EINVAL);
	assert_string_equal(e.text, "no shards");
}

static void shorter_fields_of_an_older_caller_are_read(void **state)
{
	struct old_field { /* the first members of struct penstock_field */
		size_t size;
		const char *name;
		uint32_t kind;
		uint32_t canary;
	} fields[2] = {{.canary = 77}, {.canary = 78}};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;

	(void)state;
	setting_init(&s);
	for (int i = 0; i < 2; i++) {
		penstock_field_init((void *)&fields[i], offsetof(struct old_field, canary), i ? "txt" : "cls",
		        i ? PENSTOCK_BYTES : PENSTOCK_INT64);
		assert_int_equal(fields[i].canary, 77 + i); /* init writes only the caller's size */
		fields[i].size = sizeof(fields[i]);
		fields[i].canary = 224; /* read as image_width: its default is not refused */
	}
	s.o.fields = (const void *)fields;
	s.o.nfields = 2;
	l = open_ok(&s.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(field(b, "cls").shape[0], 16);
	penstock_loader_close(l);
}

/* A program was built when the options ended with state_nbytes: no byte after that member is read or
 * written. */
static void shorter_options_of_an_older_caller_are_read(void **state)
{
	enum { OLD = offsetof(struct penstock_options, transform) };
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	union {
		struct penstock_options o;
		uint8_t bytes[sizeof(struct penstock_options)];
	} u;

	(void)state;
	setting_init(&s);
	memset(&u, 0xaa, sizeof(u));
	penstock_options_init(&u.o, OLD);
	for (size_t i = OLD; i < sizeof(u); i++)
		assert_int_equal(u.bytes[i], 0xaa);
	u.o.fields = s.f;
	u.o.nfields = 3;
	u.o.epochs = 1;
	l = open_ok(&u.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(field(b, "cls").shape[0], 64);
	penstock_loader_close(l);
}

/* A program was built with a later header, whose structs are longer: members that the library does not know
 * must be zero. */
static void longer_structs_of_a_newer_caller_are_read_if_the_rest_is_zero(void **state)
{
	enum { MORE = 64 };
	union {
		struct penstock_options o;
		uint8_t bytes[sizeof(struct penstock_options) + MORE];
	} u;
	union {
		struct penstock_field f;
		uint8_t bytes[sizeof(struct penstock_field) + MORE];
	} fields[2];
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	uint8_t *const asked[] = {&u.bytes[sizeof(u.o)], &u.bytes[sizeof(u) - 1],
	        &fields[1].bytes[sizeof(struct penstock_field)], &fields[1].bytes[sizeof(*fields) - 1]};

	(void)state;
	memset(&u, 0xaa, sizeof(u));
	penstock_options_init(&u.o, sizeof(u));
	penstock_field_init(&fields[0].f, sizeof(fields[0]), "cls", PENSTOCK_INT64);
	penstock_field_init(&fields[1].f, sizeof(fields[1]), "txt", PENSTOCK_BYTES);
	u.o.fields = &fields[0].f;
	u.o.nfields = 2;
	u.o.batch = 16;
	l = open_ok(&u.o, pattern, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	assert_int_equal(field(b, "cls").shape[0], 16);
	penstock_loader_close(l);
	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
		*asked[i] = 1;
		assert_int_equal(penstock_loader_open(&u.o, pattern, 1, &l, &e), -E2BIG);
		assert_non_null(strstr(e.text, i < 2 ? "options: " : "field 1: "));
		assert_non_null(strstr(e.text, "does not know"));
		*asked[i] = 0;
	}
	u.o.size = 1u << 30; /* too large for any struct */
	assert_int_equal(penstock_loader_open(&u.o, pattern, 1, &l, &e), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(bad_options_are_refused_with_a_reason),
	        cmocka_unit_test(shorter_fields_of_an_older_caller_are_read),
	        cmocka_unit_test(shorter_options_of_an_older_caller_are_read),
	        cmocka_unit_test(longer_structs_of_a_newer_caller_are_read_if_the_rest_is_zero),
	};

	return cmocka_run_group_tests_name("loader_options", tests, shards_make, shards_remove);
}
