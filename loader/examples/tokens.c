/* Reads one epoch of packed rows of tokens, and follows cu and longest as an attention kernel would: counts the parts,
 * and the tokens whose loss counts.
 *
 *   cc tokens.c $(pkg-config --cflags --libs libpenstock) -o tokens
 *   ./tokens 'data/*.bin'      with an .idx beside each */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <penstock.h>

struct sums {
	uint64_t rows, tokens, parts, longest;
};

static struct penstock_tensor tensor(const struct penstock_batch *batch, const char *name)
{
	struct penstock_tensor t;

	if (penstock_batch_field(batch, name, &t, NULL) < 0)
		abort(); /* the field asked for it */
	return t;
}

static void follow(const struct penstock_batch *batch, struct sums *sums)
{
	struct penstock_tensor x = tensor(batch, "x"), mask = tensor(batch, "x:mask"),
	                       cu = tensor(batch, "x:cu"), longest = tensor(batch, "x:longest");
	const int32_t *at = cu.host;
	const uint8_t *counts = mask.host;
	int64_t most = 0;

	for (uint64_t i = 0; i + 1 < cu.shape[0]; i++) {
		/* tokens at[i] to at[i + 1] - 1 of the flattened batch attend to each other only */
		most = at[i + 1] - at[i] > most ? at[i + 1] - at[i] : most;
		sums->parts++;
	}
	if (most != *(const int64_t *)longest.host ||
	        (uint64_t)at[cu.shape[0] - 1] != x.shape[0] * x.shape[1])
		abort(); /* cu ends with the batch's last token */
	for (uint64_t i = 0; i < x.shape[0] * x.shape[1]; i++)
		sums->tokens += counts[i];
	sums->rows += x.shape[0];
	sums->longest = (uint64_t)most > sums->longest ? (uint64_t)most : sums->longest;
}

int main(int argc, char **argv)
{
	struct penstock_options options;
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	struct penstock_field field;
	struct sums sums = {0};
	int rc;

	penstock_field_init(&field, sizeof(field), "x", PENSTOCK_TOKENS);
	field.shape[0] = 1024;
	field.ndim = 1;
	field.dtype = PENSTOCK_I32;
	field.pack = PENSTOCK_PACK_FIT;
	field.parts = "mask,cu";
	penstock_options_init(&options, sizeof(options));
	options.epochs = 1;
	options.batch = 8;
	options.end = PENSTOCK_END_UNEVEN;
	options.fields = &field;
	options.nfields = 1;
	rc = penstock_loader_open(&options, (const char *const *)argv + 1, (size_t)argc - 1, &loader, &error);
	if (rc < 0) {
		fprintf(stderr, "tokens: %s\n", error.text);
		return 1;
	}
	while ((rc = penstock_loader_next(loader, &batch, &error)) == 1) {
		follow(batch, &sums);
		penstock_batch_release(batch);
	}
	if (rc < 0)
		fprintf(stderr, "tokens: %s\n", error.text);
	penstock_loader_close(loader);
	printf("%" PRIu64 " rows, %" PRIu64 " parts, the longest of %" PRIu64 " tokens; %" PRIu64
	       " tokens to learn\n",
	        sums.rows, sums.parts, sums.longest, sums.tokens);
	return rc < 0;
}
