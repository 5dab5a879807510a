/* A stats document in Prometheus' text format: numbers and booleans as "penstock_SECTION_NAME value" lines,
 * those of one name together; those of a mount bear the labels mountpoint and source. Counters end in _total;
 * what is null, and so not known, is left out. Threads: any. */
#ifndef PS_METRICS_H
#define PS_METRICS_H

#include <jansson.h>

/* The caller frees it. NULL: out of memory. */
char *ps_metrics_text(const json_t *document);

#endif
