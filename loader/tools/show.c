/* show: the first batch as a picture, as training would get it. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/image.h"
#include "penstock.h"
#include "tools/bench.h"
#include "tools/tools.h"

struct show_options {
	struct ps_bench_options batch; /* first: the takers of bench get this */
	const char *out;
};

#define AT(member) offsetof(struct show_options, member)

static const struct ps_flag flags[] = {
        {"o", PS_FLAG_TEXT, AT(out), "FILE", "the picture: a PNG; - is standard output"},
        {.name = "batch"},
        {"image", PS_FLAG_CALL, 0, "N", "width and height of the images made, pixels [224]",
                .take = ps_bench_take_side},
        {"crop", PS_FLAG_CALL, 0, "random|center|none|random_crop|letterbox", "as with bench [random]",
                .take = ps_bench_take_crop},
        {"image-option", PS_FLAG_CALL, 0, "NAME=VALUE",
                "another option of images, as with bench: jitter=0.8; may be repeated",
                .take = ps_bench_take_image_option},
        {"field", PS_FLAG_CALL, 0, "SUFFIX=KIND[:DTYPE]",
                "a field of the batch, as with bench; may be repeated", .take = ps_bench_take_field},
        {.name = "order"},
        {.name = "seed"},
        {.name = "index-dir"},
        {.name = "on-error"},
        {.name = "memory-budget"},
};

/* Writes the picture; removes what it could not complete. main() checks the standard output. */
static bool picture_write(const char *path, const void *png, size_t n)
{
	struct stat st;

	if (strcmp(path, "-") == 0) {
		fwrite(png, 1, n, stdout);
		return true;
	}
	FILE *f = fopen(path, "we");
	bool sound = f && fwrite(png, 1, n, f) == n;

	if (f && fclose(f) == 0 && sound)
		return true;
	ps_complain("%s: cannot write: %s", path, strerror(errno));
	if (f && stat(path, &st) == 0 && S_ISREG(st.st_mode))
		unlink(path);
	return false;
}

/* Images that EXIF rotates ------------------------------------------------------------------------------- */

#define EXIF_FIELD "show exif"
#define EXIF_NBYTES (128U << 10) /* of each file: more than the segment of a JPEG */
#define EXIF_BATCH 64            /* for larger batches the beginnings take too much memory */

/* Adds a field with the beginnings of the files of the first image field, unless that turns its images. */
static void exif_field_add(struct ps_bench_options *o)
{
	struct penstock_field *f = &o->fields[o->loader.nfields];
	const struct penstock_field *image = o->fields;

	while (image < f && image->kind != PENSTOCK_IMAGE)
		image++;
	if (image == f || image->orient || o->loader.nfields == PS_BENCH_MAX_FIELDS ||
	        o->loader.batch > EXIF_BATCH)
		return;
	penstock_field_init(f, sizeof(*f), EXIF_FIELD, PENSTOCK_BYTES);
	f->member = image->name;
	f->pad_to = EXIF_NBYTES;
	f->overflow = PENSTOCK_OVERFLOW_TRUNCATE;
	o->loader.nfields++;
}

static void exif_report(const struct penstock_batch *batch)
{
	struct penstock_tensor files, valid;
	struct penstock_error error;
	uint64_t turned = 0, images = 0;

	if (penstock_batch_field(batch, EXIF_FIELD, &files, &error) < 0 ||
	        penstock_batch_field(batch, "__valid__", &valid, &error) < 0)
		return; /* the field was not added */
	for (uint64_t i = 0; i < files.shape[0]; i++) {
		const uint8_t *file = (const uint8_t *)files.data + i * EXIF_NBYTES;

		images += ((const uint8_t *)valid.data)[i];
		turned += ((const uint8_t *)valid.data)[i] && ps_image_orientation(file, EXIF_NBYTES) > 1;
	}
	ps_turned_report(turned, images);
}

static int sheet_write(const struct show_options *o, const struct penstock_batch *batch)
{
	struct penstock_error error;
	struct penstock_batch_info info;
	ps_autofree void *png = NULL;
	size_t n;
	int shown = penstock_batch_sheet(batch, 0, &png, &n, &error);

	if (shown < 0) {
		ps_complain("%s", error.text);
		return PS_EXIT_FAILED;
	}
	if (!picture_write(o->out, png, n))
		return PS_EXIT_FAILED;
	penstock_batch_info(batch, &info);
	if (strcmp(o->out, "-") != 0)
		printf("%s: %d of the %u samples of the first batch\n", o->out, shown, info.rows);
	exif_report(batch);
	return PS_EXIT_OK;
}

static int show_run(const struct show_options *o)
{
	struct penstock_loader *loader = NULL;
	struct penstock_batch *batch = NULL;
	struct penstock_error error;
	int code, rc = penstock_loader_open(
	                  &o->batch.loader, o->batch.shards, o->batch.nshards, &loader, &error);

	if (rc == 0)
		rc = penstock_loader_next(loader, &batch, &error);
	if (rc == 1) {
		code = sheet_write(o, batch);
	} else {
		if (rc == 0)
			ps_complain("the shards have no sample");
		else
			ps_loader_complain("", error.text);
		code = rc == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED;
	}
	penstock_batch_release(batch);
	penstock_loader_close(loader);
	return code;
}

int ps_cmd_show(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: penstock-loader show [OPTION...] -o FILE SHARDS...\n\n"
	        "Draws the first batch as training would get it: the images after crop, resize, flip and "
	        "other\n"
	        "augmentation, each with its label and its key, as a PNG of at most 64 samples.\n",
	        "Examples:\n"
	        "  penstock-loader show -o sheet.png 'train-{000..127}.tar'\n"
	        "  penstock-loader show --image 160 --image-option jitter=0.8 --image-option brightness=0.4 "
	        "-o sheet.png train-*.tar\n",
	        flags, PS_ARRAY_LEN(flags), AT(batch.loader)};
	struct show_options o = {0};
	int rc;

	penstock_options_init(&o.batch.loader, sizeof(o.batch.loader));
	ps_bench_fields_init(&o.batch);
	o.batch.image.dtype = PENSTOCK_U8;
	o.batch.loader.epochs = 1;
	rc = ps_flags_read(&command, &o, argc, argv);
	if (rc >= 0)
		return rc;
	if (optind == argc || !o.out) {
		ps_complain(o.out ? "no shards given (see penstock-loader show --help)"
		                  : "needs -o FILE, as -o sheet.png");
		return PS_EXIT_USAGE;
	}
	if (!ps_bench_fields_finish(&o.batch))
		return PS_EXIT_USAGE;
	exif_field_add(&o.batch);
	o.batch.shards = (const char *const *)argv + optind;
	o.batch.nshards = (size_t)(argc - optind);
	return show_run(&o);
}
