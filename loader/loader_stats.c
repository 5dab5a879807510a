/* Statistics of a loader. */
#include "config.h"

#include "loader.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/hash.h"
#include "image/image.h"

enum {
	READ,
	DECODE,
	CONSUMER,
};

/* A consumer that waits for less than this share of its time is not limited by the loader. */
#define IDLE_SHARE 0.10

void ps_stats_judge(struct penstock_stats *s)
{
	const struct penstock_stage *c = &s->stages[CONSUMER];
	double total = c->busy + c->waiting_input + c->waiting_output;
	uint32_t cpus = ps_cpus_usable();
	const char *advice;
	char text[sizeof(s->advice)];

	if (s->samples == 0) {
		s->bottleneck = "none";
		advice = "the shards hold no samples, or (end drop_last) too few for a global batch";
	} else if (c->waiting_input < IDLE_SHARE * total) {
		s->bottleneck = "consumer";
		advice = "the consumer takes batches more slowly than they are made; the loader is not the "
		         "limit";
	} else if (s->wait_decode >= s->wait_read + s->wait_storage) {
		s->bottleneck = "decode";
		advice = "all CPUs decode: use more CPUs, or smaller images in the shards";
		if (s->stages[DECODE].threads < cpus) {
			snprintf(text, sizeof(text),
			        "raise --threads to %u (options.threads): decoding has %u threads, fewer "
			        "than the CPUs that may be used",
			        cpus, s->stages[DECODE].threads);
			advice = text;
		}
	} else if (s->wait_storage >= s->wait_read) {
		s->bottleneck = "storage";
		advice = "storage is slow: raise --readers or --lanes (options.readers, lanes), or use a "
		         "nearer cache";
	} else {
		s->bottleneck = "read";
		advice = "reading takes the time: raise --readers (options.readers)";
	}
	snprintf(s->advice, sizeof(s->advice), "%s", advice);
}

/* Fills `stages` and what depends on it; s->samples must be set. */
static void stats_fill(struct penstock_stats *s, const struct ps_pipeline_stats *p)
{
	static const char *const names[PENSTOCK_NSTAGES] = {"read", "decode", "consumer"};
	const uint32_t threads[PENSTOCK_NSTAGES] = {p->readers, p->workers, 1};
	/* Seconds of an image that the GPU decodes alone. In hybrid decoding all workers do their part. */
	double gpu = p->hybrid_images > p->engine_images ? p->costs.cpu_give / PS_MAX(p->workers, 1u)
	                                                 : p->costs.gpu;

	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		uint64_t in = p->wait_ns[i][PS_WAIT_INPUT], out = p->wait_ns[i][PS_WAIT_OUTPUT];
		uint64_t waited = PS_MIN(in + out, p->total_ns[i]);

		s->stages[i] = (struct penstock_stage){.name = names[i],
		        .threads = threads[i],
		        .busy = (double)(p->total_ns[i] - waited) / 1e9,
		        .waiting_input = (double)in / 1e9,
		        .waiting_output = (double)out / 1e9};
	}
	s->wait_storage = (double)p->blame_ns[PS_BLAME_STORAGE] / 1e9;
	s->wait_read = (double)p->blame_ns[PS_BLAME_READ] / 1e9;
	s->wait_decode = (double)p->blame_ns[PS_BLAME_DECODE] / 1e9;
	s->gpu_engine_images = p->engine_images;
	s->gpu_hybrid_images = p->hybrid_images;
	s->cpu_images = p->cpu_images;
	s->gpu_share = p->offload / (double)PS_OFFLOAD_ALL;
	s->gpu_images_per_second = gpu > 0 ? 1 / gpu : 0;
	s->cpu_images_per_second = p->costs.cpu > 0 ? p->workers / p->costs.cpu : 0;
	ps_stats_judge(s);
}

/* Fills what is known of packed token files. */
static void tokens_fill(struct penstock_stats *s, struct ps_packing *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->nsets; i++) {
		const struct ps_packing_set *set = &p->sets[i];

		s->tokens += set->ntokens;
		s->tokens_left_out += set->left_out;
		if (set->left_out <= set->ntokens / 100)
			continue;
		if (!s->tokens_warning[0])
			snprintf(s->tokens_warning, sizeof(s->tokens_warning),
			        "%.1f %% of the %ju tokens of dataset %u are in no row of %u tokens; %s",
			        100 * (double)set->left_out / (double)set->ntokens, (uintmax_t)set->ntokens,
			        i, p->o.length,
			        p->o.pack == PS_PACK_WHOLE ? "long_documents leaves them out"
			                                   : "join small files, or lower length: each file "
			                                     "loses less than a row");
	}
	s->long_documents = atomic_load_explicit(&p->long_documents, memory_order_relaxed);
	s->empty_documents = atomic_load_explicit(&p->empty_documents, memory_order_relaxed);
}

int penstock_loader_stats(struct penstock_loader *l, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_pipeline_stats p;
	struct penstock_stats s = {0};
	int rc = ps_opener_check(l->pid, &err);

	if (rc < 0)
		return ps_give_error(error, rc, &err);
	ps_pipeline_stats(l->pipeline, &p);
	s.samples = atomic_load_explicit(&l->samples, memory_order_relaxed);
	s.batches = atomic_load_explicit(&l->batches, memory_order_relaxed);
	s.bad = atomic_load_explicit(&l->bad, memory_order_relaxed);
	s.blank_batches = atomic_load_explicit(&l->blank, memory_order_relaxed);
	s.repeats = atomic_load_explicit(&l->repeats, memory_order_relaxed);
	s.empty_epochs = p.empty_epochs;
	s.bytes_read = p.nbytes_read;
	s.reread = p.reread;
	tokens_fill(&s, l->packing);
	s.truncated = atomic_load_explicit(&l->truncated, memory_order_relaxed);
	s.shards_lost = ps_shard_errors_count(&l->lost);
	s.jpeg_decoder = ps_jpeg_decoder();
	s.seconds = (double)(ps_clock_mono_ns() - l->open_ns) / 1e9;
	stats_fill(&s, &p);
	if (l->device->ops->copies) {
		struct ps_device_copies copies;

		l->device->ops->copies(l->device, &copies);
		s.copied_bytes = copies.nbytes;
		s.copy_seconds = copies.seconds;
	}
	snprintf(s.pixels, sizeof(s.pixels), "%s%s%s", l->made ? l->device->ops->name : "cpu",
	        l->made_not ? ": " : "", l->made_not ? l->made_not : "");
	if (!l->gpu.nvjpeg)
		snprintf(s.gpu_decode_why, sizeof(s.gpu_decode_why), "%.*s",
		        (int)sizeof(s.gpu_decode_why) - 1, l->gpu.why.text);
	else
		snprintf(s.gpu_library, sizeof(s.gpu_library), "%s", ps_nvjpeg_path(l->gpu.nvjpeg));
	snprintf(s.gpu_refused, sizeof(s.gpu_refused), "%.*s", (int)sizeof(s.gpu_refused) - 1,
	        l->gpu.refused.text);
	memset(ret_stats, 0, size);
	memcpy(ret_stats, &s, PS_MIN(size, sizeof(s)));
	return 0;
}

int penstock_loader_lost(struct penstock_loader *l, uint64_t n, struct penstock_lost *ret_lost)
{
	int rc = ps_opener_check(l->pid, NULL);

	return rc < 0 ? rc : ps_shard_errors_get(&l->lost, n, ret_lost);
}

/* Copies a text, which it frees, into the caller's buffer, unless that is NULL. Returns the text's length. */
static int text_give(char *text, size_t n, const char *what, char *buf, size_t size, struct ps_error *err)
{
	ps_autofree char *owned = text;

	if (buf && size <= n)
		return ps_error_set(
		        err, ENOBUFS, "the %s has %zu bytes, but there is room for %zu", what, n + 1, size);
	if (buf)
		memcpy(buf, owned, n + 1);
	return (int)n;
}

int penstock_loader_profile(struct penstock_loader *l, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_error err = {0};
	char *text = NULL;
	size_t n = 0;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0 && !l->profile)
		rc = ps_error_set(&err, ENODATA, "the loader was opened without options.profile");
	if (rc == 0)
		rc = ps_profile_json(l->profile, &text, &n, &err);
	if (rc == 0)
		rc = text_give(text, n, "profile", buf, size, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : rc;
}

/* Fingerprints: experiment logs show by them whether two runs had the same data ------------------------- */

/* The number of samples, and a hash of all shards' counts, from indexes or catalogues. False: not all counts
 * are known. */
static bool counts_hash(struct penstock_loader *l, uint64_t *ret_samples, uint64_t *ret_hash)
{
	*ret_samples = 0;
	*ret_hash = PS_HASH_BEGIN;
	for (uint32_t i = 0; i < l->schedule.nshards; i++) {
		uint64_t n;

		if (ps_shard_indexes_count(l->indexes, i, &n, NULL) < 0)
			return false;
		*ret_samples += n;
		n = htole64(n);
		*ret_hash = ps_hash(*ret_hash, &n, sizeof(n));
	}
	return true;
}

static int text_make(struct penstock_loader *l, char **ret_text, size_t *ret_n, struct ps_error *err)
{
	uint64_t samples, counts, digest;
	FILE *out;
	int rc = ps_state_print_make(&l->print, &l->options, err);

	if (rc < 0)
		return rc;
	out = open_memstream(ret_text, ret_n);
	if (!out)
		return ps_no_memory(err);
	digest = ps_state_print_show(&l->print, NULL);
	fprintf(out, "{\"digest\": \"%016" PRIx64 "\", \"version\": \"%s\", ", digest, PACKAGE_VERSION);
	if (counts_hash(l, &samples, &counts))
		fprintf(out, "\"samples\": %" PRIu64 ", \"counts\": \"%016" PRIx64 "\", ", samples, counts);
	else
		fputs("\"samples\": null, \"counts\": null, ", out);
	fprintf(out, "\"world\": %u, ", l->options.o.world);
	(void)ps_state_print_show(&l->print, out);
	fputs("}", out);
	if (fclose(out) == 0)
		return 0;
	free(ps_steal_ptr(ret_text));
	return ps_no_memory(err);
}

int penstock_loader_fingerprint(
        struct penstock_loader *l, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_error err = {0};
	char *text = NULL;
	size_t n = 0;
	int rc = ps_opener_check(l->pid, &err);

	if (rc == 0)
		rc = text_make(l, &text, &n, &err);
	if (rc == 0)
		rc = text_give(text, n, "fingerprint", buf, size, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : rc;
}

uint64_t ps_loader_epoch_nbytes(struct penstock_loader *l, uint64_t epoch)
{
	return ps_pipeline_epoch_nbytes(l->pipeline, epoch);
}
