/* penstock-loader bench: the command line. */
#include "config.h"

#include "tools/bench.h"

#include <errno.h>
#include <getopt.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

#include "device/device.h"
#include "tools/tools.h"

static const struct ps_option_help options_help[] = {
        {"--batch N", "samples of a batch (64)"},
        {"--image N", "width and height of the images made, pixels (224)"},
        {"--epochs N", "epochs to run (2)"},
        {"--threads N|auto", "decoding threads (auto: the CPUs that may be used)"},
        {"--readers N|auto", "reading threads (auto: 2 to 8, as threads)"},
        {"--depth N|auto", "batches in memory (auto: 4, fewer if they are large)"},
        {"--memory-budget SIZE", "of batches, read buffers and shuffle window (512M)"},
        {"--device cpu|cuda|cuda:N", "where batches lie (cpu)"},
        {"--gpu-decode SHARE|auto", "device cuda: JPEGs that the GPU decodes, 0 to 1 (0)"},
        {"--field NAME=KIND[:DTYPE]", "a field of the batch, instead of those above; may come again"},
        {"--device-pixels auto|off",
                "finish images on the device, or on the CPU (auto: the device, if it can)"},
        {"--dtype f32|f16|bf16|u8", "values of the images; all but u8 are normalised (f32)"},
        {"--layout nchw|nhwc", "order of the images' dimensions (nchw)"},
        {"--crop random|center|none|random_crop",
                "RandomResizedCrop and flip; Resize and CenterCrop; the whole; RandomCrop and flip (random)"},
        {"--image-option NAME=VALUE",
                "what else is done to the image, as penstock.h names it: jitter=0.8; may come again"},
        {"--order none|shards|window|permutation", "what is shuffled (window)"},
        {"--shuffle-window N", "samples that are shuffled with each other [4096, or 16 global batches if more]"},
        {"--lanes N", "sequences of shards read side by side (by the global batch and the shards)"},
        {"--seed S", "of all that is random (0)"},
        {"--index-dir DIR", "folder of the shards' indexes (index --dir); else beside the shards"},
        {"--rank R", "this process among world (0)"},
        {"--world W", "processes that share the epoch (1)"},
        {"--ranks-per-node K", "of them on one machine; must divide the world (1)"},
        {"--homes H", "homes of shards, for caches that stay warm (1: none)"},
        {"--on-error fail|skip", "what a bad sample does, or a missing shard (fail)"},
        {"--max-bad N", "skip: more bad samples than this in a row end the run (100)"},
        {"--end uneven|drop_last|pad|split", "of the epoch (split)"},
        {"--steps N", "batches of an epoch (0: as the samples make)"},
        {"--step-ms MS",
                "the consumer works so long on each batch: sleeps, or multiplies matrices on the GPU"},
        {"--seconds N", "end a run after so many seconds (0: with its epochs)"},
        {"--sweep", "run threads x batches x devices, and say which are best"},
        {"--sweep-threads LIST", "1,2,4 ... (powers of two up to the CPUs)"},
        {"--sweep-batch LIST", "64,256 ... (32,64,128,256)"},
        {"--sweep-device LIST", "cpu,cuda ... (what --device says)"},
        {"--plot FILE", "sweep: draw it as SVG"},
        {"--profile FILE", "write what the data is like, as JSON"},
        {"--profile-against FILE", "warn where the data differs from a profile, and exit with 3"},
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
	OPT_GPU_DECODE,
	OPT_DEVICE_PIXELS,
	OPT_DTYPE,
	OPT_LAYOUT,
	OPT_CROP,
	OPT_IMAGE_OPTION,
	OPT_ORDER,
	OPT_WINDOW,
	OPT_LANES,
	OPT_SEED,
	OPT_RANK,
	OPT_WORLD,
	OPT_PER_NODE,
	OPT_HOMES,
	OPT_ON_ERROR,
	OPT_MAX_BAD,
	OPT_FIELD,
	OPT_END,
	OPT_STEPS,
	OPT_STEP_MS,
	OPT_SECONDS,
	OPT_SWEEP,
	OPT_SWEEP_THREADS,
	OPT_SWEEP_BATCH,
	OPT_SWEEP_DEVICE,
	OPT_PLOT,
	OPT_PROFILE,
	OPT_PROFILE_AGAINST,
	OPT_INDEX_DIR,
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
        {"gpu-decode", required_argument, NULL, OPT_GPU_DECODE},
        {"device-pixels", required_argument, NULL, OPT_DEVICE_PIXELS},
        {"dtype", required_argument, NULL, OPT_DTYPE},
        {"layout", required_argument, NULL, OPT_LAYOUT},
        {"crop", required_argument, NULL, OPT_CROP},
        {"image-option", required_argument, NULL, OPT_IMAGE_OPTION},
        {"order", required_argument, NULL, OPT_ORDER},
        {"shuffle-window", required_argument, NULL, OPT_WINDOW},
        {"lanes", required_argument, NULL, OPT_LANES},
        {"seed", required_argument, NULL, OPT_SEED},
        {"rank", required_argument, NULL, OPT_RANK},
        {"world", required_argument, NULL, OPT_WORLD},
        {"ranks-per-node", required_argument, NULL, OPT_PER_NODE},
        {"homes", required_argument, NULL, OPT_HOMES},
        {"on-error", required_argument, NULL, OPT_ON_ERROR},
        {"max-bad", required_argument, NULL, OPT_MAX_BAD},
        {"field", required_argument, NULL, OPT_FIELD},
        {"end", required_argument, NULL, OPT_END},
        {"steps", required_argument, NULL, OPT_STEPS},
        {"step-ms", required_argument, NULL, OPT_STEP_MS},
        {"seconds", required_argument, NULL, OPT_SECONDS},
        {"sweep", no_argument, NULL, OPT_SWEEP},
        {"sweep-threads", required_argument, NULL, OPT_SWEEP_THREADS},
        {"sweep-batch", required_argument, NULL, OPT_SWEEP_BATCH},
        {"sweep-device", required_argument, NULL, OPT_SWEEP_DEVICE},
        {"plot", required_argument, NULL, OPT_PLOT},
        {"profile", required_argument, NULL, OPT_PROFILE},
        {"profile-against", required_argument, NULL, OPT_PROFILE_AGAINST},
        {"index-dir", required_argument, NULL, OPT_INDEX_DIR},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
};

static void help(void)
{
	ps_help_print("Usage: penstock-loader bench [OPTION...] SHARDS...\n\n"
	              "Loads shards as a training run would: field jpg or jpeg cropped, resized, flipped and "
	              "normalised\n"
	              "into batches, field cls as int64. Says how fast that was and which stage limits.\n"
	              "With --step-ms, what a consumer loses that works on each batch, and to what.\n",
	        options_help, PS_ARRAY_LEN(options_help),
	        "Examples:\n"
	        "  penstock-loader bench 'train-{000..127}.tar'\n"
	        "  penstock-loader bench --threads 1 --epochs 3 --json train-*.tar\n"
	        "  penstock-loader bench --device cuda --step-ms 50 --batch 256 'train-{000..127}.tar'\n"
	        "  penstock-loader bench --crop center --dtype u8 --layout nhwc --order none val.tar\n");
}

static bool device_check(const char *option, const char *name)
{
	if (ps_device_is_named(name))
		return true;
	ps_complain("%s %s: no such device; use cpu, cuda or cuda:N", option, name);
	return false;
}

/* "auto", or a number. */
static bool gpu_decode_take(double *ret_share)
{
	char *end;

	if (strcmp(optarg, "auto") == 0) {
		*ret_share = PENSTOCK_GPU_DECODE_AUTO;
		return true;
	}
	*ret_share = strtod(optarg, &end);
	if (end != optarg && *end == 0 && *ret_share >= 0 && *ret_share <= 1)
		return true;
	ps_complain("--gpu-decode %s: must be auto, or 0 to 1", optarg);
	return false;
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
	static const char *const dtypes[] = {"u8", "f32", "f16", "bf16"}, *const layouts[] = {"nchw", "nhwc"};
	static const char *const crops[] = {"random", "center", "none", "random_crop"};
	static const char *const orders[] = {"none", "shards", "window", "permutation"};
	static const char *const ends[] = {"uneven", "drop_last", "pad", "split"};
	static const char *const on_errors[] = {"fail", "skip"}, *const pixels[] = {"auto", "off"};
	struct penstock_field *image = &o->image;

	switch (c) {
	case OPT_DEVICE_PIXELS:
		return ps_arg_choice("--device-pixels", optarg, pixels, 2, &o->loader.device_pixels);
	case OPT_DTYPE:
		return ps_arg_choice("--dtype", optarg, dtypes, 4, &image->dtype);
	case OPT_LAYOUT:
		return ps_arg_choice("--layout", optarg, layouts, 2, &image->layout);
	case OPT_CROP:
		if (!ps_arg_choice("--crop", optarg, crops, 4, &image->crop))
			return false;
		image->hflip = image->crop == PENSTOCK_CROP_CENTER || image->crop == PENSTOCK_CROP_NONE ? 0 : 0.5;
		return true;
	case OPT_ORDER:
		return ps_arg_choice("--order", optarg, orders, 4, &o->loader.order);
	case OPT_END:
		return ps_arg_choice("--end", optarg, ends, 4, &o->loader.end);
	default:
		return ps_arg_choice("--on-error", optarg, on_errors, 2, &o->loader.on_error);
	}
}

/* "1,2,4" */
/* Whether one more can be added to a list of n; complains. */
static bool list_has_room(const char *option, uint32_t n)
{
	if (n < PS_BENCH_MAX_SWEEP)
		return true;
	ps_complain("%s: more than %d values", option, PS_BENCH_MAX_SWEEP);
	return false;
}

static bool list_take(
        const char *option, uint64_t most, uint32_t values[static PS_BENCH_MAX_SWEEP], uint32_t *ret_n)
{
	char *rest = optarg, *word;

	*ret_n = 0;
	while ((word = strsep(&rest, ","))) {
		uint64_t v;

		if (!list_has_room(option, *ret_n) || !ps_arg_u64(option, word, 1, most, &v))
			return false;
		values[(*ret_n)++] = (uint32_t)v;
	}
	return true;
}

static bool devices_take(struct ps_bench_options *o)
{
	static const char option[] = "--sweep-device";
	char *rest = optarg, *word;

	o->ndevices = 0;
	while ((word = strsep(&rest, ","))) {
		if (!list_has_room(option, o->ndevices) || !device_check(option, word))
			return false;
		o->devices[o->ndevices++] = word;
	}
	return true;
}

static bool step_take(struct ps_bench_options *o)
{
	char *end;

	o->step_ms = strtod(optarg, &end);
	if (end != optarg && !*end && o->step_ms >= 0.1 && o->step_ms <= 60000)
		return true;
	ps_complain("--step-ms %s: must be milliseconds, from 0.1 to 60000", optarg);
	return false;
}

/* Options of the run as a whole. */
static bool run_take(struct ps_bench_options *o, int c)
{
	uint64_t v;

	switch (c) {
	case OPT_STEP_MS:
		return step_take(o);
	case OPT_SECONDS:
		if (!ps_arg_u64("--seconds", optarg, 0, 1000000, &v))
			return false;
		o->max_seconds = (double)v;
		return true;
	case OPT_SWEEP:
		o->sweep = true;
		return true;
	case OPT_SWEEP_THREADS:
		return list_take("--sweep-threads", 1024, o->threads, &o->nthreads);
	case OPT_SWEEP_BATCH:
		return list_take("--sweep-batch", 65536, o->batches, &o->nbatches);
	case OPT_SWEEP_DEVICE:
		return devices_take(o);
	case OPT_PLOT:
		o->plot = optarg;
		return true;
	case OPT_PROFILE:
		o->profile = optarg;
		break;
	default:
		o->profile_against = optarg;
	}
	o->loader.profile = 1;
	return true;
}

static bool option_take(struct ps_bench_options *o, int c)
{
	struct penstock_options *l = &o->loader;
	struct penstock_field *image = &o->image;

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
		return device_check("--device", optarg);
	case OPT_GPU_DECODE:
		return gpu_decode_take(&l->gpu_decode);
	case OPT_WINDOW:
		return arg_u32("--shuffle-window", 1, 1 << 24, &l->shuffle_window);
	case OPT_LANES:
		return arg_u32("--lanes", 0, 16384, &l->lanes);
	case OPT_SEED:
		return ps_arg_u64("--seed", optarg, 0, UINT64_MAX, &l->seed);
	case OPT_RANK:
		return arg_u32("--rank", 0, UINT32_MAX, &l->rank);
	case OPT_WORLD:
		return arg_u32("--world", 1, UINT32_MAX, &l->world);
	case OPT_PER_NODE:
		return arg_u32("--ranks-per-node", 1, UINT32_MAX, &l->ranks_per_node);
	case OPT_HOMES:
		return arg_u32("--homes", 1, 16384, &l->homes);
	case OPT_MAX_BAD:
		return arg_u32("--max-bad", 0, UINT32_MAX, &l->max_bad);
	case OPT_STEPS:
		return ps_arg_u64("--steps", optarg, 0, UINT64_MAX, &l->steps);
	case OPT_INDEX_DIR:
		l->index_dir = optarg;
		return true;
	case OPT_JSON:
		o->json = true;
		return true;
	case OPT_FIELD:
		return ps_bench_field_take(o, optarg);
	case OPT_IMAGE_OPTION:
		return ps_bench_image_take(&o->image, optarg);
	case OPT_STEP_MS:
	case OPT_SECONDS:
	case OPT_SWEEP:
	case OPT_SWEEP_THREADS:
	case OPT_SWEEP_BATCH:
	case OPT_SWEEP_DEVICE:
	case OPT_PLOT:
	case OPT_PROFILE:
	case OPT_PROFILE_AGAINST:
		return run_take(o, c);
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
		if (c == ':' || c == '?') {
			ps_option_complain(argv, longs, c);
			return PS_EXIT_USAGE;
		}
		if (!option_take(o, c))
			return PS_EXIT_USAGE;
		o->image_set |= c == OPT_IMAGE || c == OPT_CROP || c == OPT_DTYPE || c == OPT_LAYOUT ||
		                c == OPT_IMAGE_OPTION;
	}
	if (optind == argc) {
		ps_complain("no shards (see penstock-loader bench --help)");
		return PS_EXIT_USAGE;
	}
	if (o->plot && !o->sweep) {
		ps_complain("--plot: needs --sweep");
		return PS_EXIT_USAGE;
	}
	o->shards = (const char *const *)argv + optind;
	o->nshards = (size_t)(argc - optind);
	return -1;
}

/* The fields of an image training run. */
static void fields_init(struct ps_bench_options *o)
{
	penstock_field_init(&o->image, sizeof(o->image), "jpg;jpeg", PENSTOCK_IMAGE);
	penstock_field_init(&o->fields[1], sizeof(o->fields[1]), "cls", PENSTOCK_INT64);
	o->fields[1].optional = 1;
	o->loader.fields = o->fields;
	o->loader.nfields = 2;
}

static int bench_once(struct ps_bench_options *o)
{
	ps_autofree struct ps_bench_result *epochs = calloc(o->loader.epochs, sizeof(*epochs));
	struct ps_bench_result all = {0};
	ps_autofree char *profile = NULL;
	struct penstock_error error;
	int r;

	if (!epochs) {
		ps_complain("out of memory");
		return PS_EXIT_FAILED;
	}
	r = ps_bench_run(o, &all, epochs, &error);
	if (r < 0) {
		ps_loader_complain("", error.text);
		return r == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED;
	}
	profile = all.profile;
	if (!ps_bench_report(o, &all, epochs)) {
		ps_complain("out of memory");
		return PS_EXIT_FAILED;
	}
	if (all.stats.samples == 0 && all.stats.empty_epochs > 0) {
		ps_complain("no batch in a whole epoch: %s", all.stats.advice);
		return PS_EXIT_FAILED;
	}
	return profile ? ps_bench_profile(o, profile) : PS_EXIT_OK;
}

int ps_cmd_bench(int argc, char **argv)
{
	struct ps_bench_options o = {0};
	int r;

#ifdef __GLIBC__
	/* Otherwise each thread keeps the largest coefficients that it ever had. A program that uses the library
	 * may do the same (libpenstock(3)). */
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
	penstock_options_init(&o.loader, sizeof(o.loader));
	fields_init(&o);
	o.loader.epochs = 2;
	r = options_parse(&o, argc, argv);
	if (r >= 0)
		return r;
	if (!ps_bench_fields_finish(&o))
		return PS_EXIT_USAGE;
	return o.sweep ? ps_bench_sweep(&o) : bench_once(&o);
}
