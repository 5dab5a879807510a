/* Decoding and resizing on a GPU: a part of tests/bench/gpu.
 *
 *   gpu_jpeg resize IMAGES TURNS SECONDS      microseconds an image, 500x375 to 224x224
 *   gpu_jpeg decode TURNS SECONDS BATCH FILE...   images a second of a bare nvjpegDecodeBatched loop, on the
 * GPU's JPEG engine if it has one (files that the engine cannot decode are left out). States take turns, so
 * that a decode does not wait for the one before.
 *
 * Prints one line of JSON; exit code 77: there is no GPU, or no nvJPEG. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "device/kernels/kernels.h"
#include "device/nvjpeg_library.h"
#include "gpu_common.h"
#include "image/picture.h"

#define SOURCE_W 500u
#define SOURCE_H 375u
#define SIDE 224u

/* Copies bytes to the GPU. */
static ps_cu_pointer sent(const void *data, size_t nbytes)
{
	struct ps_error err = {0};
	void *locked = gpu.device->ops->alloc(gpu.device, nbytes, &err);
	ps_cu_pointer p;

	gpu_must_ps(locked ? 0 : -ENOMEM, &err);
	memcpy(locked, data, nbytes);
	p = gpu_memory(nbytes);
	gpu_must(gpu.cu->copy_to_device(p, locked, nbytes, gpu.stream), "copy");
	gpu_must(gpu.cu->event_record(gpu.end, gpu.stream), "event");
	gpu_must(gpu.cu->event_sync(gpu.end), "copy");
	gpu.device->ops->free(gpu.device, locked, nbytes);
	return p;
}

/* Resizing ----------------------------------------------------------------------------------------------- */

struct resize_work {
	struct ps_kernels kernels;
	struct ps_tile_args args;
};

static void resize_give(void *arg, uint64_t i)
{
	const struct resize_work *w = arg;
	uint64_t nblocks = (uint64_t)ps_tile_blocks(w->args.width, w->args.height) * w->args.nimages;

	(void)i;
	gpu_must(ps_kernel_launch(&w->kernels, PS_KERNEL_resize_tile, nblocks, &w->args, gpu.stream),
	        "kernel");
}

static struct ps_tile_axis axis_sent(const struct ps_resize_axis *a, int shift)
{
	return (struct ps_tile_axis){
	        .first = (const uint32_t *)(uintptr_t)sent(a->first, a->n * sizeof(*a->first)),
	        .weights = (const int16_t *)(uintptr_t)sent(
	                a->weights, (size_t)a->n * a->taps * sizeof(*a->weights)),
	        .taps = a->taps,
	        .shift = shift};
}

/* Each image has pixels of its own, as decoded ones have. */
static void images_make(struct resize_work *w, uint32_t n)
{
	const struct ps_resize_geometry g = {.box_w = SOURCE_W,
	        .box_h = SOURCE_H,
	        .scaled_w = SIDE,
	        .scaled_h = SIDE,
	        .window_w = SIDE,
	        .window_h = SIDE};
	const size_t nbytes = (size_t)SOURCE_W * SOURCE_H * 3;
	ps_autofree struct ps_tile_image *images = calloc(n, sizeof(*images));
	ps_autofree uint8_t *pixels = calloc(1, n * nbytes + PS_TILE_SLACK);
	struct ps_error err = {.text = "resize: no memory"};
	struct ps_resize *r = ps_resize_new(PS_RESIZE_PORTABLE);
	struct ps_resize_tables t;
	ps_cu_pointer from, to;

	gpu_must_ps(images && pixels && r && ps_resize_plan(r, &g, PS_BILINEAR) == 0 ? 0 : -ENOMEM, &err);
	ps_resize_tables(r, &t);
	for (size_t i = 0; i < n * nbytes; i++)
		pixels[i] = (uint8_t)(i * 2654435761u >> 11);
	from = sent(pixels, n * nbytes + PS_TILE_SLACK);
	images[0] = (struct ps_tile_image){.pitch = SOURCE_W * 3,
	        .nrows = SOURCE_H,
	        .rows = ps_tile_rows(t.v->first, t.v->taps, t.v->n),
	        .most = 255 << t.fraction,
	        .h = axis_sent(t.h, t.h->bits - t.fraction),
	        .v = axis_sent(t.v, t.v->bits + t.fraction)};
	for (uint32_t i = n; i-- > 0;) {
		images[i] = images[0];
		images[i].from = (const uint8_t *)(uintptr_t)(from + i * nbytes);
		images[i].place = i;
	}
	to = gpu_memory((size_t)n * 3 * SIDE * SIDE);
	w->args = (struct ps_tile_args){
	        .images = (const struct ps_tile_image *)(uintptr_t)sent(images, n * sizeof(*images)),
	        .to = (uint8_t *)(uintptr_t)to,
	        .nimages = n,
	        .width = SIDE,
	        .height = SIDE};
	ps_resize_free(r);
}

static int resize_main(char **argv)
{
	struct resize_work w = {0};
	struct ps_error err = {0};
	double us[GPU_MAX_TURNS], seconds = atof(argv[2]);
	int turns = PS_MIN(atoi(argv[1]), GPU_MAX_TURNS);

	gpu_open();
	gpu_must_ps(ps_kernels_load(gpu.cu, &w.kernels, &err), &err);
	images_make(&w, (uint32_t)atoi(argv[0]));
	(void)gpu_time(resize_give, &w, seconds / 4);
	for (int i = 0; i < turns; i++)
		us[i] = gpu_time(resize_give, &w, seconds) / w.args.nimages * 1e6;
	printf("{");
	gpu_list_print("us", us, turns);
	printf("}\n");
	ps_kernels_unload(&w.kernels);
	gpu_close();
	return EXIT_SUCCESS;
}

/* Decoding ----------------------------------------------------------------------------------------------- */

#define STATES GPU_DEPTH

struct decode_work {
	const struct ps_nvjpeg_library *lib;
	ps_nvj_handle handle;
	bool engine;
	ps_nvj_state states[STATES];
	int n;
	const unsigned char **files;
	size_t *lengths;
	ps_nvj_image *images[STATES]; /* a list for each state: several batches are in flight */
};

static void nvj_must(ps_nvj_status status, const char *what)
{
	if (status == 0)
		return;
	fprintf(stderr, "gpu: nvJPEG: %s: %s\n", what, ps_nvjpeg_status(status));
	exit(EXIT_FAILURE);
}

static void decode_give(void *arg, uint64_t i)
{
	struct decode_work *w = arg;
	ps_nvj_state state = w->states[i % STATES];

	gpu_must(gpu.cu->event_sync(gpu.behind[i % STATES]), "decode");
	nvj_must(w->lib->batched(w->handle, state, w->files, w->lengths, w->images[i % STATES], gpu.stream),
	        "decode");
	gpu_must(gpu.cu->event_record(gpu.behind[i % STATES], gpu.stream), "event");
}

static unsigned char *file_read(const char *path, size_t *ret_nbytes)
{
	struct stat st;
	FILE *f = fopen(path, "re");
	unsigned char *p = NULL;

	if (f && fstat(fileno(f), &st) == 0)
		p = malloc((size_t)st.st_size);
	if (!p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	fclose(f);
	*ret_nbytes = (size_t)st.st_size;
	return p;
}

/* Whether nvJPEG can decode the file in a batch; if so, `file` has its size. */
static bool is_taken(
        const struct decode_work *w, ps_nvj_stream file, const unsigned char *data, size_t nbytes)
{
	int is_not = 1;

	if (w->lib->stream_parse(w->handle, data, nbytes, 0, 0, file) != 0)
		return false;
	return !w->engine || (w->lib->batched_supported(w->handle, file, &is_not) == 0 && !is_not);
}

/* Fills the batch with the files that can be decoded, repeatedly. Returns how many files cannot. */
static int files_take(struct decode_work *w, char **paths, int npaths)
{
	int left_out = 0, n = 0;
	ps_nvj_stream file;

	w->files = calloc((size_t)w->n, sizeof(*w->files));
	w->lengths = calloc((size_t)w->n, sizeof(*w->lengths));
	for (int s = 0; s < STATES; s++)
		w->images[s] = calloc((size_t)w->n, sizeof(*w->images[s]));
	if (!w->files || !w->lengths || !w->images[STATES - 1])
		exit(EXIT_FAILURE);
	nvj_must(w->lib->stream_create(w->handle, &file), "stream");
	for (int i = 0; n < w->n; i++) {
		unsigned width, height;
		size_t nbytes;
		unsigned char *data = file_read(paths[i % npaths], &nbytes);

		if (!is_taken(w, file, data, nbytes)) {
			free(data);
			left_out += i < npaths;
			if (left_out < npaths)
				continue;
			fprintf(stderr, "gpu: nvJPEG's engine takes none of the files\n");
			exit(GPU_SKIP);
		}
		nvj_must(w->lib->stream_size(file, &width, &height), paths[i % npaths]);
		w->files[n] = data;
		w->lengths[n] = nbytes;
		for (int s = 0; s < STATES; s++)
			w->images[s][n] = (ps_nvj_image){.channel = {(unsigned char *)(uintptr_t)gpu_memory(
			                                         (size_t)width * height * 3)},
			        .pitch = {(size_t)width * 3}};
		n++;
	}
	nvj_must(w->lib->stream_destroy(file), "stream");
	return left_out;
}

/* A ps_nvjpeg_starts, so that the library is the one that the loader takes. */
static int decoder_start(void *arg, const struct ps_nvjpeg_library *lib, struct ps_error *err)
{
	struct decode_work *w = arg;
	ps_nvj_status s;

	w->engine = lib->create(PS_NVJ_BACKEND_HARDWARE, NULL, NULL, 0, &w->handle) == 0;
	if (w->engine)
		return 0;
	s = lib->create(PS_NVJ_BACKEND_DEFAULT, NULL, NULL, 0, &w->handle);
	return s == 0 ? 0 : ps_error_set(err, ENODEV, "it does not start: %s", ps_nvjpeg_status(s));
}

static int decode_main(char **argv, int argc)
{
	struct decode_work w = {.n = atoi(argv[2])};
	struct ps_error err = {0};
	double rates[GPU_MAX_TURNS], seconds = atof(argv[1]);
	int turns = PS_MIN(atoi(argv[0]), GPU_MAX_TURNS), left_out;

	gpu_open();
	gpu_must_ps(ps_nvjpeg_library_find(decoder_start, &w, &w.lib, NULL, &err), &err);
	left_out = files_take(&w, argv + 3, argc - 3);
	for (int i = 0; i < STATES; i++) {
		nvj_must(w.lib->state_create(w.handle, &w.states[i]), "state");
		nvj_must(w.lib->batched_init(w.handle, w.states[i], w.n, 1, PS_NVJ_OUTPUT_RGBI), "batch");
	}
	(void)gpu_time(decode_give, &w, seconds / 4);
	for (int i = 0; i < turns; i++)
		rates[i] = w.n / gpu_time(decode_give, &w, seconds);
	printf("{\"engine\": %s, \"library\": \"%s\", \"left_out\": %d, ", w.engine ? "true" : "false",
	        w.lib->path, left_out);
	gpu_list_print("rates", rates, turns);
	printf("}\n");
	for (int i = 0; i < w.n; i++)
		free((void *)(uintptr_t)w.files[i]);
	free(w.files);
	free(w.lengths);
	for (int i = 0; i < STATES; i++) {
		free(w.images[i]);
		nvj_must(w.lib->state_destroy(w.states[i]), "state");
	}
	nvj_must(w.lib->destroy(w.handle), "destroy");
	gpu_close();
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "resize") == 0)
		return resize_main(argv + 2);
	if (argc >= 6 && strcmp(argv[1], "decode") == 0)
		return decode_main(argv + 2, argc - 2);
	fprintf(stderr, "usage: gpu_jpeg resize IMAGES TURNS SECONDS\n"
	                "       gpu_jpeg decode TURNS SECONDS BATCH FILE...\n");
	return 2;
}
