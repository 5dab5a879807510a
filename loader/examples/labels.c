/* Counts the labels of a dataset: one epoch of batches, on all CPUs.
 *
 *   cc labels.c $(pkg-config --cflags --libs libpenstock) -o labels
 *   ./labels 'train-{000..127}.tar' */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <penstock.h>

#define MAX_LABEL 1000

static uint64_t counts[MAX_LABEL];

static void count(const struct penstock_batch *batch)
{
	struct penstock_tensor images, labels;

	if (penstock_batch_field(batch, "jpg", &images, NULL) < 0 ||
	        penstock_batch_field(batch, "cls", &labels, NULL) < 0)
		abort(); /* the default fields are always there */
	for (uint64_t i = 0; i < labels.shape[0]; i++) {
		int64_t label = ((const int64_t *)labels.data)[i];

		if (label >= 0 && label < MAX_LABEL)
			counts[label]++;
	}
	/* images.data: float[images.shape[0]][3][224][224], normalised */
}

int main(int argc, char **argv)
{
	struct penstock_options options;
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	int rc;

	penstock_options_init(&options, sizeof(options));
	options.epochs = 1;
	rc = penstock_loader_open(&options, (const char *const *)argv + 1, (size_t)argc - 1, &loader, &error);
	if (rc < 0) {
		fprintf(stderr, "labels: %s\n", error.text);
		return 1;
	}
	while ((rc = penstock_loader_next(loader, &batch, &error)) == 1) {
		count(batch);
		penstock_batch_release(batch);
	}
	if (rc < 0)
		fprintf(stderr, "labels: %s\n", error.text);
	penstock_loader_close(loader);
	for (int i = 0; i < MAX_LABEL; i++)
		if (counts[i] > 0)
			printf("%d %" PRIu64 "\n", i, counts[i]);
	return rc < 0;
}
