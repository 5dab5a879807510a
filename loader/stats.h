/* From the pipeline's times to what the public statistics say. Threads: any. */
#ifndef PS_STATS_H
#define PS_STATS_H

#include "penstock.h"
#include "pipeline/pipeline.h"

/* Fills stages and what follows them; samples must be set. */
void ps_stats_fill(struct penstock_stats *stats, const struct ps_pipeline_stats *from);

/* Bottleneck and advice anew, of stats whose times were changed (differences, as of one epoch). */
void ps_stats_judge(struct penstock_stats *stats);

#endif
