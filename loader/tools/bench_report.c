/* bench: the report. */
#include "config.h"

#include "tools/bench.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/tools.h"

static double total(const struct penstock_stage *s)
{
	return s->busy + s->waiting_input + s->waiting_output;
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static double per(uint64_t n, double seconds)
{
	return seconds > 0 ? (double)n / seconds : 0;
}

/* How much longer a step takes with the loader than alone, as a share. */
static double slowdown(const struct ps_bench_idle *idle)
{
	return idle->alone_ms > 0 && idle->steps > 0 ? idle->beside_ms / idle->alone_ms - 1 : 0;
}

/* The share of the copies' time that no step waited for. */
static double hidden(const struct ps_bench_result *r)
{
	/* The copying time of `steps` batches: the mean of a batch times the number of steps. */
	double copies = share(r->stats.copy_seconds, (double)r->stats.batches) * (double)r->idle.steps;

	return copies > 0 ? fmax(0, 1 - r->idle.copy / copies) : 1;
}

/* Shares of the consumer's wait; they sum to 1 if it waited. */
static json_t *waits_json(const struct penstock_stats *s)
{
	double all = s->wait_storage + s->wait_read + s->wait_decode;

	return json_pack("{s:f, s:f, s:f}", "storage", share(s->wait_storage, all), "read",
	        share(s->wait_read, all), "decode", share(s->wait_decode, all));
}

/* NULL (so no key) if the GPU was not asked to decode. */
static json_t *gpu_decode_json(const struct penstock_stats *s)
{
	if (s->gpu_share == 0 && s->gpu_engine_images + s->gpu_hybrid_images == 0 && !s->gpu_decode_why[0])
		return NULL;
	return json_pack("{s:f, s:I, s:I, s:I, s:f, s:f, s:s, s:s, s:s}", "share", s->gpu_share,
	        "engine_images", (json_int_t)s->gpu_engine_images, "hybrid_images",
	        (json_int_t)s->gpu_hybrid_images, "cpu_images", (json_int_t)s->cpu_images,
	        "gpu_images_per_second", s->gpu_images_per_second, "cpu_images_per_second",
	        s->cpu_images_per_second, "why_not", s->gpu_decode_why, "library", s->gpu_library, "refused",
	        s->gpu_refused);
}

static void gpu_decode_print(const struct penstock_stats *s)
{
	if (s->gpu_decode_why[0])
		printf("the GPU decodes nothing: %s\n", s->gpu_decode_why);
	else if (s->gpu_share > 0 || s->gpu_engine_images + s->gpu_hybrid_images > 0)
		printf("JPEGs: %.1f%% to the GPU: %ju decoded by its engine, %ju by the GPU and threads "
		       "together, "
		       "%ju by threads; alone the GPU would make %.0f/s, the threads %.0f/s\n",
		        100 * s->gpu_share, (uintmax_t)s->gpu_engine_images, (uintmax_t)s->gpu_hybrid_images,
		        (uintmax_t)s->cpu_images, s->gpu_images_per_second, s->cpu_images_per_second);
	if (s->gpu_library[0])
		printf("nvJPEG: %s\n", s->gpu_library);
	if (s->gpu_refused[0])
		printf("nvJPEG that cannot be used here: %s\n", s->gpu_refused);
}

static json_t *result_json(const struct ps_bench_result *r)
{
	json_t *stages = json_array();

	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		const struct penstock_stage *s = &r->stats.stages[i];

		json_array_append_new(
		        stages, json_pack("{s:s, s:i, s:f, s:f, s:f}", "name", s->name, "threads",
		                        (int)s->threads, "busy", share(s->busy, total(s)), "waiting_input",
		                        share(s->waiting_input, total(s)), "waiting_output",
		                        share(s->waiting_output, total(s))));
	}
	return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:s, "
	                 "s:I, s:f, s:o*}",
	        "epoch", (json_int_t)r->epoch, "samples", (json_int_t)r->stats.samples, "batches",
	        (json_int_t)r->stats.batches, "seconds", r->seconds, "samples_per_second",
	        per(r->stats.samples, r->seconds), "samples_per_cpu_second",
	        per(r->stats.samples, r->cpu_seconds), "first_batch_seconds", r->first_batch_seconds,
	        "bytes_read", (json_int_t)r->stats.bytes_read, "skipped", (json_int_t)r->stats.bad,
	        "blank_batches", (json_int_t)r->stats.blank_batches, "shards_lost",
	        (json_int_t)r->stats.shards_lost, "peak_rss_bytes", (json_int_t)r->peak_rss_nbytes, "stages",
	        stages, "consumer_waits_for", waits_json(&r->stats), "bottleneck", r->stats.bottleneck,
	        "advice", r->stats.advice, "copied_bytes", (json_int_t)r->stats.copied_bytes, "copy_seconds",
	        r->stats.copy_seconds, "gpu_decode", gpu_decode_json(&r->stats));
}

/* How much time the consumer lost, to batches and to copies. */
static json_t *step_json(const struct ps_bench_result *r)
{
	const struct ps_bench_idle *i = &r->idle;

	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "steps", (json_int_t)i->steps,
	        "seconds", i->seconds, "alone_ms", i->alone_ms, "beside_ms", i->beside_ms, "slowdown",
	        slowdown(i), "idle", share(i->gap + i->copy, i->seconds), "idle_for_batches",
	        share(i->gap, i->seconds), "idle_for_copies", share(i->copy, i->seconds), "copies_hidden",
	        hidden(r));
}

static void report_json(const struct ps_bench_options *o, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs)
{
	json_t *list = json_array();
	json_t *root = ps_need(result_json(all));

	for (uint64_t i = 0; i < o->loader.epochs; i++)
		json_array_append_new(list, result_json(&epochs[i]));
	json_object_del(root, "epoch");
	json_object_set_new(
	        root, "next_us", json_pack("{s:f, s:f}", "p50", all->next_p50_us, "p99", all->next_p99_us));
	json_object_set_new(root, "copy_bytes_per_second",
	        json_real(per(all->stats.copied_bytes, all->stats.copy_seconds)));
	json_object_set_new(root, "pixels", json_string(all->stats.pixels));
	json_object_set_new(root, "jpeg_decoder", json_string(all->stats.jpeg_decoder));
	if (all->lost_first[0])
		json_object_set_new(root, "first_lost",
		        json_string(all->lost_first) ?: json_string("(its name is not UTF-8)"));
	if (all->has_idle)
		json_object_set_new(root, "step", step_json(all));
	json_object_set_new(root, "epochs", list);
	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(root);
}

static void row_print(const char *name, const struct ps_bench_result *r)
{
	printf("%-7s %9ju %8ju %9.2f %11.0f %13.0f %9.3f %10.1f %8ju\n", name, (uintmax_t)r->stats.samples,
	        (uintmax_t)r->stats.batches, r->seconds, per(r->stats.samples, r->seconds),
	        per(r->stats.samples, r->cpu_seconds), r->first_batch_seconds,
	        (double)r->stats.bytes_read / 1e6, (uintmax_t)r->stats.bad);
}

static void step_print(const struct ps_bench_result *r)
{
	const struct ps_bench_idle *i = &r->idle;

	printf("%ju steps of %.2f ms (%.2f ms alone, %+.1f%%): idle %.2f%%, %.2f%% for batches and %.2f%% "
	       "for "
	       "copies",
	        (uintmax_t)i->steps, i->beside_ms, i->alone_ms, 100 * slowdown(i),
	        100 * share(i->gap + i->copy, i->seconds), 100 * share(i->gap, i->seconds),
	        100 * share(i->copy, i->seconds));
	if (r->stats.copy_seconds > 0)
		printf("; %.1f%% of copying was hidden", 100 * hidden(r));
	putchar('\n');
}

static void report_table(const struct ps_bench_options *o, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs)
{
	const struct penstock_stats *st = &all->stats;
	double waits = st->wait_storage + st->wait_read + st->wait_decode;

	printf("%-7s %9s %8s %9s %11s %13s %9s %10s %8s\n", "epoch", "samples", "batches", "seconds",
	        "samples/s", "samples/CPU s", "first s", "MB read", "skipped");
	for (uint64_t i = 0; i < o->loader.epochs; i++) {
		char name[24];

		snprintf(name, sizeof(name), "%ju", (uintmax_t)epochs[i].epoch);
		row_print(name, &epochs[i]);
	}
	row_print("all", all);
	if (st->shards_lost > 0) {
		printf("\nshards lost: %ju (first: ", (uintmax_t)st->shards_lost);
		ps_plain_print(stdout, all->lost_first);
		puts(")");
	}
	if (st->blank_batches > 0)
		printf("\nbatches without a good sample: %ju (rows of zeros, not valid)\n",
		        (uintmax_t)st->blank_batches);
	printf("\n%-9s %7s %7s %14s %15s\n", "stage", "threads", "busy", "waiting input", "waiting output");
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		const struct penstock_stage *s = &all->stats.stages[i];

		printf("%-9s %7u %6.1f%% %13.1f%% %14.1f%%\n", s->name, s->threads,
		        100 * share(s->busy, total(s)), 100 * share(s->waiting_input, total(s)),
		        100 * share(s->waiting_output, total(s)));
	}
	printf("\nthe consumer waited %.2f s: %.1f%% for storage, %.1f%% for reading, %.1f%% for decoding\n",
	        waits, 100 * share(st->wait_storage, waits), 100 * share(st->wait_read, waits),
	        100 * share(st->wait_decode, waits));
	if (st->copied_bytes > 0)
		printf("images finished by: %s\n", st->pixels);
	if (st->copied_bytes > 0)
		printf("copied to the device: %.1f MB at %.2f GB/s\n", (double)st->copied_bytes / 1e6,
		        per(st->copied_bytes, st->copy_seconds) / 1e9);
	printf("next() took p50 %.3f ms, p99 %.3f ms\n", all->next_p50_us / 1e3, all->next_p99_us / 1e3);
	if (all->has_idle)
		step_print(all);
	gpu_decode_print(st);
	printf("JPEG entropy decoder: %s\n", st->jpeg_decoder);
	printf("peak memory %.0f MB\nbottleneck: %s (%s)\n", (double)all->peak_rss_nbytes / 1e6,
	        st->bottleneck, st->advice);
}

void ps_bench_report(const struct ps_bench_options *o, const struct ps_bench_result *all,
        const struct ps_bench_result *epochs)
{
	if (o->json)
		report_json(o, all, epochs);
	else
		report_table(o, all, epochs);
}

/* Profiles: statistics of the data, and drift ----------------------------------------------------------- */

/* The text of a file, which the caller frees; NULL: complained. */
static char *file_read(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t cap = 0;

	/* A profile has no zero byte, so this reads all of it. */
	if (!in || getdelim(&text, &cap, 0, in) < 0) {
		ps_complain(
		        "--profile-against %s: %s", path, in && !ferror(in) ? "is empty" : strerror(errno));
		free(text);
		text = NULL;
	}
	if (in)
		fclose(in);
	return text;
}

/* Returns an exit code; PS_EXIT_DRIFT: the profiles differ. */
static int compare(const char *path, const char *profile)
{
	ps_autofree char *was = file_read(path), *lines = NULL;
	struct penstock_error error;
	int n;

	if (!was)
		return PS_EXIT_FAILED;
	n = penstock_profile_drift(was, profile, NULL, 0, &error);
	if (n > 0) {
		lines = ps_need(malloc((size_t)n + 1));
		n = penstock_profile_drift(was, profile, lines, (size_t)n + 1, &error);
	}
	if (n < 0)
		return ps_fail(PS_EXIT_FAILED, "--profile-against %s: %s", path, error.text);
	for (char *p = lines, *end; p && *p; p = end + 1) {
		end = strchr(p, '\n');
		*end = 0;
		ps_complain("drift: %s", p);
	}
	return n > 0 ? PS_EXIT_DRIFT : PS_EXIT_OK;
}

int ps_bench_profile(const struct ps_bench_options *o, const char *profile)
{
	int code = o->profile_against ? compare(o->profile_against, profile) : PS_EXIT_OK;

	if (code == PS_EXIT_FAILED || !o->profile)
		return code;
	FILE *out = fopen(o->profile, "we");
	bool ok = out && fputs(profile, out) >= 0;
	if (out && fclose(out) != 0)
		ok = false;
	return ok ? code : ps_fail(PS_EXIT_FAILED, "--profile %s: %s", o->profile, strerror(errno));
}
