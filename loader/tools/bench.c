/* penstock-loader bench: the command line. */
#include "config.h"

#include "tools/bench.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

#include "device/device.h"
#include "option/option.h"
#include "tools/tools.h"

static bool device_check(const char *option, const char *name)
{
	if (ps_device_is_named(name))
		return true;
	return ps_complain("%s %s: no such device; use cpu, cuda or cuda:N", option, name);
}

static bool device_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;

	o->loader.device = value;
	return device_check("--device", value);
}

/* Reads --gpu-decode: "auto", or a number. */
static bool gpu_decode_take(void *ctx, char *value)
{
	double *share = &((struct ps_bench_options *)ctx)->loader.gpu_decode;
	char *end;

	if (strcmp(value, "auto") == 0) {
		*share = PENSTOCK_GPU_DECODE_AUTO;
		return true;
	}
	*share = strtod(value, &end);
	if (end != value && *end == 0 && *share >= 0 && *share <= 1)
		return true;
	return ps_complain("--gpu-decode %s: must be auto, or 0 to 1", value);
}

/* Options of images ------------------------------------------------------------------------------------- */

static bool dtype_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;

	return o->image_set = ps_arg_choice("--dtype", value, ps_dtype_words, 4, &o->image.dtype);
}

static bool layout_take(void *ctx, char *value)
{
	static const char *const layouts[] = {"nchw", "nhwc"};
	struct ps_bench_options *o = ctx;

	return o->image_set = ps_arg_choice("--layout", value, layouts, 2, &o->image.layout);
}

/* Options of the run ------------------------------------------------------------------------------------ */

static bool step_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;
	char *end;

	o->step_ms = strtod(value, &end);
	if (end != value && !*end && o->step_ms >= 0.1 && o->step_ms <= 60000)
		return true;
	return ps_complain("--step-ms %s: must be milliseconds, from 0.1 to 60000", value);
}

static bool seconds_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;
	uint64_t v = 0;
	bool ok = ps_arg_u64("--seconds", value, 0, 1000000, &v);

	o->max_seconds = (double)v;
	return ok;
}

/* True if a list of n values has room for another; else complains. */
static bool list_has_room(const char *option, uint32_t n)
{
	if (n < PS_BENCH_MAX_SWEEP)
		return true;
	return ps_complain("%s: more than %d values", option, PS_BENCH_MAX_SWEEP);
}

static bool list_take(const char *option, uint64_t most, char *rest,
        uint32_t values[static PS_BENCH_MAX_SWEEP], uint32_t *ret_n)
{
	char *word;

	*ret_n = 0;
	while ((word = strsep(&rest, ","))) {
		uint64_t v;

		if (!list_has_room(option, *ret_n) || !ps_arg_u64(option, word, 1, most, &v))
			return false;
		values[(*ret_n)++] = (uint32_t)v;
	}
	return true;
}

static bool sweep_threads_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;

	return list_take("--sweep-threads", PS_OPTIONS_MAX_THREADS, value, o->threads, &o->nthreads);
}

static bool sweep_batch_take(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;

	return list_take("--sweep-batch", PS_OPTIONS_MAX_BATCH, value, o->batches, &o->nbatches);
}

static bool sweep_device_take(void *ctx, char *rest)
{
	static const char option[] = "--sweep-device";
	struct ps_bench_options *o = ctx;
	char *word;

	o->ndevices = 0;
	while ((word = strsep(&rest, ","))) {
		if (!list_has_room(option, o->ndevices) || !device_check(option, word))
			return false;
		o->devices[o->ndevices++] = word;
	}
	return true;
}

/* The command line --------------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct ps_bench_options, member)

static const struct ps_flag flags[] = {
        {.name = "batch"},
        {"image", PS_FLAG_CALL, 0, "N", "width and height of the resulting images, in pixels (224)",
                .take = ps_bench_take_side},
        {"epochs", PS_FLAG_U64, AT(loader.epochs), "N", "number of epochs (2)", 1, PS_BENCH_MAX_EPOCHS},
        {.name = "threads"},
        {.name = "readers"},
        {.name = "depth"},
        {.name = "memory-budget"},
        {"device", PS_FLAG_CALL, .take = device_take},
        {"gpu-decode", PS_FLAG_CALL, .take = gpu_decode_take},
        {"field", PS_FLAG_CALL, 0, "SUFFIX=KIND[:DTYPE]",
                "load this field, such as cls=int, instead of jpg and cls; can be repeated",
                .take = ps_bench_take_field},
        {.name = "device-pixels"},
        {"dtype", PS_FLAG_CALL, 0, "f32|f16|bf16|u8",
                "type of the images' values; all but u8 are normalised (f32)", .take = dtype_take},
        {"layout", PS_FLAG_CALL, 0, "nchw|nhwc", "order of the images' dimensions (nchw)",
                .take = layout_take},
        {"crop", PS_FLAG_CALL, 0, "random|center|none|random_crop|letterbox",
                "RandomResizedCrop and flip; Resize and CenterCrop; complete image, stretched; "
                "RandomCrop and flip; complete image, padded (random)",
                .take = ps_bench_take_crop},
        {"image-option", PS_FLAG_CALL, 0, "NAME=VALUE",
                "another option of images, such as jitter=0.8 (see penstock_field_init(3)); can be repeated",
                .take = ps_bench_take_image_option},
        {.name = "order"},
        {.name = "shuffle-window"},
        {.name = "lanes"},
        {.name = "seed"},
        {.name = "index-dir"},
        {.name = "rank"},
        {.name = "world"},
        {.name = "ranks-per-node"},
        {.name = "homes"},
        {.name = "on-error"},
        {.name = "max-bad"},
        {.name = "end"},
        {.name = "steps"},
        {"step-ms", PS_FLAG_CALL, 0, "MS",
                "simulate a model that works this long on each batch: sleep, or multiply matrices on the GPU",
                .take = step_take},
        {"seconds", PS_FLAG_CALL, 0, "N", "end the run after this many seconds (0: after its epochs)",
                .take = seconds_take},
        {"sweep", PS_FLAG_SET, AT(sweep),
                .text = "try all combinations of threads, batches and devices, and report the best"},
        {"sweep-threads", PS_FLAG_CALL, 0, "LIST",
                "threads to try, such as 1,2,4 (powers of two up to the CPUs)", .take = sweep_threads_take},
        {"sweep-batch", PS_FLAG_CALL, 0, "LIST", "batches to try, such as 64,256 (32,64,128,256)",
                .take = sweep_batch_take},
        {"sweep-device", PS_FLAG_CALL, 0, "LIST", "devices to try, such as cpu,cuda (that of --device)",
                .take = sweep_device_take},
        {"plot", PS_FLAG_TEXT, AT(plot), "FILE", "with --sweep: draw the result as SVG"},
        {"profile", PS_FLAG_TEXT, AT(profile), "FILE", "write statistics of the data as JSON"},
        {"profile-against", PS_FLAG_TEXT, AT(profile_against), "FILE",
                "compare the data with a profile; if it differs, warn and exit with status 3"},
        {"json", PS_FLAG_SET, AT(json), .text = "print the result as JSON"},
};

static const struct ps_flags command = {
        "Usage: penstock-loader bench [OPTION...] SHARDS...\n\n"
        "Loads shards as a training run would, and reports how fast that was and which stage is the "
        "bottleneck.\nBy default it crops, resizes, flips and normalises the image of each sample (jpg, "
        "jpeg, "
        "png or webp),\nand reads the label (cls) as an integer. With --step-ms it also reports how much "
        "time "
        "a model would\nlose by waiting.\n",
        "Examples:\n"
        "  penstock-loader bench 'train-{000..127}.tar'\n"
        "  penstock-loader bench --threads 1 --epochs 3 --json train-*.tar\n"
        "  penstock-loader bench --device cuda --step-ms 50 --batch 256 'train-{000..127}.tar'\n"
        "  penstock-loader bench --crop center --dtype u8 --layout nhwc --order none val.tar\n",
        flags, PS_ARRAY_LEN(flags), AT(loader)};

static int bench_once(struct ps_bench_options *o)
{
	ps_autofree struct ps_bench_result *epochs = ps_need(calloc(o->loader.epochs, sizeof(*epochs)));
	struct ps_bench_result all = {0};
	ps_autofree char *profile = NULL;
	struct penstock_error error;
	int rc;

	rc = ps_bench_run(o, &all, epochs, &error);
	if (rc < 0) {
		ps_loader_complain("", error.text);
		return rc == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED;
	}
	profile = all.profile;
	ps_bench_report(o, &all, epochs);
	if (all.stats.samples == 0 && all.stats.empty_epochs > 0)
		return ps_fail(PS_EXIT_FAILED, "an epoch ended without a batch: %s", all.stats.advice);
	return profile ? ps_bench_profile(o, profile) : PS_EXIT_OK;
}

int ps_cmd_bench(int argc, char **argv)
{
	struct ps_bench_options o = {0};
	int rc;

#ifdef __GLIBC__
	/* Without this setting each thread keeps memory for the largest coefficients that it ever decoded.
	 * Programs that use the library may set this, too (libpenstock(3)). */
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
	penstock_options_init(&o.loader, sizeof(o.loader));
	ps_bench_fields_init(&o);
	o.loader.epochs = 2;
	rc = ps_flags_read(&command, &o, argc, argv);
	if (rc >= 0)
		return rc;
	o.loader.profile = o.profile || o.profile_against;
	if (optind == argc)
		return ps_fail(PS_EXIT_USAGE, "no shards given (see penstock-loader bench --help)");
	if (o.plot && !o.sweep)
		return ps_fail(PS_EXIT_USAGE, "--plot: needs --sweep");
	o.shards = (const char *const *)argv + optind;
	o.nshards = (size_t)(argc - optind);
	if (!ps_bench_fields_finish(&o))
		return PS_EXIT_USAGE;
	return o.sweep ? ps_bench_sweep(&o) : bench_once(&o);
}
