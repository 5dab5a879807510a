#include "config.h"

#include "stats.h"

#include <stdio.h>

#include "pipeline/cpus.h"

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
		advice = "all CPUs decode: more CPUs, or smaller images in the shards";
		if (s->stages[DECODE].threads < cpus) {
			snprintf(text, sizeof(text),
			        "--threads %u (options.threads): decoding has %u, and that many CPUs may be "
			        "used",
			        cpus, s->stages[DECODE].threads);
			advice = text;
		}
	} else if (s->wait_storage >= s->wait_read) {
		s->bottleneck = "storage";
		advice = "storage is slow: more --readers or --lanes (options.readers, lanes), or a cache "
		         "nearer by";
	} else {
		s->bottleneck = "read";
		advice = "reading takes the time: more --readers (options.readers)";
	}
	snprintf(s->advice, sizeof(s->advice), "%s", advice);
}

/* Of the GPU alone, with all threads where they have a part in it. */
static double gpu_rate(const struct ps_pipeline_stats *p)
{
	bool hybrid = p->hybrid_images > p->engine_images;
	double row = hybrid ? p->costs.cpu_give / PS_MAX(p->workers, 1u) : p->costs.gpu;

	return row > 0 ? 1 / row : 0;
}

void ps_stats_fill(struct penstock_stats *s, const struct ps_pipeline_stats *p)
{
	static const char *const names[PENSTOCK_NSTAGES] = {"read", "decode", "consumer"};
	const uint32_t threads[PENSTOCK_NSTAGES] = {p->readers, p->workers, 1};

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
	s->gpu_images_per_second = gpu_rate(p);
	s->cpu_images_per_second = p->costs.cpu > 0 ? p->workers / p->costs.cpu : 0;
	ps_stats_judge(s);
}
