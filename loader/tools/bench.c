/* penstock-loader bench: the command line. */
#include "config.h"

#include "tools/bench.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "tools/tools.h"

static const struct ps_option_help options_help[] = {
        {"--batch N", "samples of a batch (64)"},
        {"--image N", "width and height of the images made, pixels (224)"},
        {"--epochs N", "epochs to run (2)"},
        {"--threads N|auto", "decoding threads (auto: the CPUs that may be used)"},
        {"--readers N|auto", "reading threads (auto: 2 to 8, as threads)"},
        {"--depth N|auto", "batches in memory (auto: 4, fewer if they are large)"},
        {"--memory-budget SIZE", "of batches, read buffers and shuffle window (512M)"},
        {"--device DEVICE", "where batches lie: cpu (cpu)"},
        {"--dtype f32|u8", "values of the images; f32 is normalised (f32)"},
        {"--layout nchw|nhwc", "order of the images' dimensions (nchw)"},
        {"--crop random|center", "RandomResizedCrop and flip, or Resize and CenterCrop (random)"},
        {"--order ORDER", "none, shards or window: what is shuffled (window)"},
        {"--shuffle-window N", "samples that are shuffled with each other (4096)"},
        {"--lanes N", "sequences of shards read side by side (64)"},
        {"--seed S", "of all that is random (0)"},
        {"--rank R", "this process among world (0)"},
        {"--world W", "processes that share the epoch (1)"},
        {"--on-error fail|skip", "what a bad sample does (fail)"},
        {"--max-bad N", "skip: more bad samples behind each other fail (100)"},
        {"--json", "print the result as JSON"},
};

enum {
	OPT_BATCH = 256,
	OPT_IMAGE,
	OPT_EPOCHS,
	OPT_THREADS,
	OPT_READERS,
	OPT_DEPTH,
	OPT_MEMORY,
	OPT_DEVICE,
	OPT_DTYPE,
	OPT_LAYOUT,
	OPT_CROP,
	OPT_ORDER,
	OPT_WINDOW,
	OPT_LANES,
	OPT_SEED,
	OPT_RANK,
	OPT_WORLD,
	OPT_ON_ERROR,
	OPT_MAX_BAD,
	OPT_JSON,
};

static const struct option longs[] = {
        {"batch", required_argument, NULL, OPT_BATCH},
        {"image", required_argument, NULL, OPT_IMAGE},
        {"epochs", required_argument, NULL, OPT_EPOCHS},
        {"threads", required_argument, NULL, OPT_THREADS},
        {"readers", required_argument, NULL, OPT_READERS},
        {"depth", required_argument, NULL, OPT_DEPTH},
        {"memory-budget", required_argument, NULL, OPT_MEMORY},
        {"device", required_argument, NULL, OPT_DEVICE},
        {"dtype", required_argument, NULL, OPT_DTYPE},
        {"layout", required_argument, NULL, OPT_LAYOUT},
        {"crop", required_argument, NULL, OPT_CROP},
        {"order", required_argument, NULL, OPT_ORDER},
        {"shuffle-window", required_argument, NULL, OPT_WINDOW},
        {"lanes", required_argument, NULL, OPT_LANES},
        {"seed", required_argument, NULL, OPT_SEED},
        {"rank", required_argument, NULL, OPT_RANK},
        {"world", required_argument, NULL, OPT_WORLD},
        {"on-error", required_argument, NULL, OPT_ON_ERROR},
        {"max-bad", required_argument, NULL, OPT_MAX_BAD},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
};

static void help(void)
{
	ps_help_print("Usage: penstock-loader bench [OPTION...] SHARDS...\n\n"
	              "Loads shards as a training run would: field jpg or jpeg cropped, resized, flipped and "
	              "normalised\n"
	              "into batches, field cls as int64. Says how fast that was and which stage limits.\n",
	        options_help, PS_ARRAY_LEN(options_help),
	        "Examples:\n"
	        "  penstock-loader bench 'train-{000..127}.tar'\n"
	        "  penstock-loader bench --threads 1 --epochs 3 --json train-*.tar\n"
	        "  penstock-loader bench --crop center --dtype u8 --layout nhwc --order none val.tar\n");
}

static bool arg_u32(const char *name, uint64_t least, uint64_t most, uint32_t *ret_value)
{
	uint64_t v;

	if (!ps_arg_u64(name, optarg, least, most, &v))
		return false;
	*ret_value = (uint32_t)v;
	return true;
}

static bool arg_u32_auto(const char *name, uint64_t least, uint64_t most, uint32_t *ret_value)
{
	if (strcmp(optarg, "auto") != 0)
		return arg_u32(name, least, most, ret_value);
	*ret_value = 0;
	return true;
}

/* Options that take one of some names. */
static bool choice_take(struct ps_bench_options *o, int c)
{
	static const char *const dtypes[] = {"u8", "f32"}, *const layouts[] = {"nchw", "nhwc"};
	static const char *const crops[] = {"random", "center"}, *const orders[] = {
	                                                                 "none", "shards", "window"};
	static const char *const on_errors[] = {"fail", "skip"};
	struct penstock_field *image = &o->fields[0];

	switch (c) {
	case OPT_DTYPE:
		return ps_arg_choice("--dtype", optarg, dtypes, 2, &image->dtype);
	case OPT_LAYOUT:
		return ps_arg_choice("--layout", optarg, layouts, 2, &image->layout);
	case OPT_CROP:
		if (!ps_arg_choice("--crop", optarg, crops, 2, &image->crop))
			return false;
		image->hflip = image->crop == PENSTOCK_CROP_CENTER ? 0 : 0.5;
		return true;
	case OPT_ORDER:
		return ps_arg_choice("--order", optarg, orders, 3, &o->loader.order);
	default:
		return ps_arg_choice("--on-error", optarg, on_errors, 2, &o->loader.on_error);
	}
}

static bool option_take(struct ps_bench_options *o, int c)
{
	struct penstock_options *l = &o->loader;
	struct penstock_field *image = &o->fields[0];

	switch (c) {
	case OPT_BATCH:
		return arg_u32("--batch", 1, 65536, &l->batch);
	case OPT_IMAGE:
		if (!arg_u32("--image", 1, 16384, &image->image_width))
			return false;
		image->image_height = image->image_width;
		return true;
	case OPT_EPOCHS:
		return ps_arg_u64("--epochs", optarg, 1, PS_BENCH_MAX_EPOCHS, &l->epochs);
	case OPT_THREADS:
		return arg_u32_auto("--threads", 1, 1024, &l->threads);
	case OPT_READERS:
		return arg_u32_auto("--readers", 1, 64, &l->readers);
	case OPT_DEPTH:
		return arg_u32_auto("--depth", 2, 64, &l->depth);
	case OPT_MEMORY:
		return ps_arg_bytes("--memory-budget", optarg, &l->memory_budget);
	case OPT_DEVICE:
		l->device = optarg;
		return true;
	case OPT_WINDOW:
		return arg_u32("--shuffle-window", 1, 1 << 24, &l->shuffle_window);
	case OPT_LANES:
		return arg_u32("--lanes", 1, 4096, &l->lanes);
	case OPT_SEED:
		return ps_arg_u64("--seed", optarg, 0, UINT64_MAX, &l->seed);
	case OPT_RANK:
		return arg_u32("--rank", 0, UINT32_MAX, &l->rank);
	case OPT_WORLD:
		return arg_u32("--world", 1, UINT32_MAX, &l->world);
	case OPT_MAX_BAD:
		return arg_u32("--max-bad", 0, UINT32_MAX, &l->max_bad);
	case OPT_JSON:
		o->json = true;
		return true;
	default:
		return choice_take(o, c);
	}
}

/* An exit code, or -1: go on. */
static int options_parse(struct ps_bench_options *o, int argc, char **argv)
{
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == 'h') {
			help();
			return PS_EXIT_OK;
		}
		if (c == ':') {
			ps_complain("bench: %s: needs a value", argv[optind - 1]);
			return PS_EXIT_USAGE;
		}
		if (c == '?') {
			ps_option_complain("bench", argv);
			return PS_EXIT_USAGE;
		}
		if (!option_take(o, c))
			return PS_EXIT_USAGE;
	}
	if (optind == argc) {
		ps_complain("bench: no shards; see penstock-loader bench --help");
		return PS_EXIT_USAGE;
	}
	o->shards = (const char *const *)argv + optind;
	o->nshards = (size_t)(argc - optind);
	return -1;
}

int ps_cmd_bench(int argc, char **argv)
{
	struct ps_bench_options o = {0};
	struct ps_bench_result all;
	ps_autofree struct ps_bench_result *epochs = NULL;
	struct penstock_error error;
	int r;

	penstock_options_init(&o.loader, sizeof(o.loader));
	penstock_field_init(&o.fields[0], sizeof(o.fields[0]), "jpg;jpeg", PENSTOCK_IMAGE);
	penstock_field_init(&o.fields[1], sizeof(o.fields[1]), "cls", PENSTOCK_INT64);
	o.fields[1].optional = 1;
	o.loader.fields = o.fields;
	o.loader.nfields = 2;
	o.loader.epochs = 2;
	r = options_parse(&o, argc, argv);
	if (r >= 0)
		return r;
	epochs = calloc(o.loader.epochs, sizeof(*epochs));
	if (!epochs) {
		ps_complain("out of memory");
		return PS_EXIT_FAILED;
	}
	r = ps_bench_run(&o, &all, epochs, &error);
	if (r < 0) {
		ps_complain("%s", error.text);
		return r == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED;
	}
	if (!ps_bench_report(&o, &all, epochs)) {
		ps_complain("out of memory");
		return PS_EXIT_FAILED;
	}
	return PS_EXIT_OK;
}
