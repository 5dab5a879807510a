/* Turns texts into numbers on the loader's own threads, by a transform whose output is padded to the longest
 * text of each batch.
 *
 *   cc bytes.c $(pkg-config --cflags --libs libpenstock) -o bytes
 *   ./bytes 'text-{000..015}.tar'
 *
 * The tokenizer is the simplest there is: a byte is a token. 256 begins a text, 257 ends it, 258 is padding.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <penstock.h>

enum {
	BEGIN = 256,
	END = 257,
	PADDING = 258,
	LONGEST = 512, /* tokens; longer texts are cut */
};

/* Runs on several threads at once, so it keeps no state. */
static int tokenize(void *ctx, struct penstock_sample *sample)
{
	struct penstock_tensor text;
	int32_t *ids = penstock_sample_output(sample, "ids", NULL);
	uint64_t n = 0;

	(void)ctx;
	if (!ids || penstock_sample_field(sample, "txt", &text) < 0)
		return -EINVAL;
	if (text.nbytes == 0)
		return penstock_sample_fail(sample, "the text is empty");
	ids[n++] = BEGIN;
	for (uint64_t i = 0; i < text.nbytes && n < LONGEST - 1; i++)
		ids[n++] = ((const uint8_t *)text.data)[i];
	ids[n++] = END;
	return penstock_sample_set_items(sample, "ids", n);
}

static void print(const struct penstock_batch *batch)
{
	struct penstock_tensor ids, lengths;
	int64_t sum = 0;

	if (penstock_batch_field(batch, "ids", &ids, NULL) < 0 ||
	        penstock_batch_field(batch, "ids:lengths", &lengths, NULL) < 0)
		return;
	for (uint64_t i = 0; i < lengths.shape[0]; i++)
		sum += ((const int64_t *)lengths.data)[i];
	printf("%" PRIu64 " x %" PRIu64 ": %" PRId64 " tokens\n", ids.shape[0], ids.shape[1], sum);
}

int main(int argc, char **argv)
{
	struct penstock_options options;
	struct penstock_field fields[2];
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	int rc;

	penstock_field_init(&fields[0], sizeof(fields[0]), "txt", PENSTOCK_TEXT);
	penstock_field_init(&fields[1], sizeof(fields[1]), "ids", PENSTOCK_OUTPUT);
	fields[1].dtype = PENSTOCK_I32;
	fields[1].pad_to = PENSTOCK_PAD_LONGEST;
	fields[1].pad_multiple = 8;
	fields[1].pad_value = PADDING;
	fields[1].max_bytes = LONGEST * sizeof(int32_t);

	penstock_options_init(&options, sizeof(options));
	options.fields = fields;
	options.nfields = 2;
	options.batch = 16;
	options.epochs = 1;
	options.transform = tokenize;
	options.on_error = PENSTOCK_SKIP; /* a bad row repeats a good one, and has valid = 0 */
	rc = penstock_loader_open(&options, (const char *const *)argv + 1, (size_t)argc - 1, &loader, &error);
	if (rc < 0) {
		fprintf(stderr, "bytes: %s\n", error.text);
		return 1;
	}
	while ((rc = penstock_loader_next(loader, &batch, &error)) == 1) {
		print(batch);
		penstock_batch_release(batch);
	}
	if (rc < 0)
		fprintf(stderr, "bytes: %s\n", error.text);
	penstock_loader_close(loader);
	return rc < 0;
}
