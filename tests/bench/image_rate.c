/* Decodes JPEG files in one thread and prints CPU seconds: the C half of loader_vs_torchvision.
 *
 *   image_rate pipeline|scaled|turbojpeg SIZE SEED FILE...
 *
 * pipeline: ps_image_decode (RandomResizedCrop(SIZE), flip, normalise, f32 NCHW) on the best vector unit.
 * scaled: the same, but JPEGs that are to be shrunk are decoded at 1/2, 1/4 or 1/8 (dct_scale).
 * turbojpeg: tjDecompress2 of the whole image to RGB, pitch 0, one reused buffer; libturbojpeg is opened at
 * run time, exit code 77 if there is none. All files are read first, one untimed pass warms up, and the
 * second is timed. Prints one line of JSON. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "image/image.h"

#define BATCH 64 /* images written side by side, as in a batch slot */
#define EXIT_SKIP 77

struct file {
	uint8_t *bytes;
	size_t nbytes;
};

struct work {
	struct file *files;
	int nfiles;
	uint32_t size;
	uint64_t seed;
	bool dct_scale;
};

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int load_file(const char *path, struct file *ret_file)
{
	struct stat st;
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	ret_file->nbytes = (size_t)st.st_size;
	ret_file->bytes = malloc(ret_file->nbytes + 1);
	if (!ret_file->bytes)
		return -ENOMEM;
	size_t got = 0;
	while (got < ret_file->nbytes) {
		ssize_t n = read(fd, ret_file->bytes + got, ret_file->nbytes - got);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		got += (size_t)n;
	}
	return 0;
}

/* CPU seconds of the second pass; *ret_bad counts the files that could not be decoded. */
static double time_pipeline(const struct work *w, int *ret_bad)
{
	struct ps_error err = {0};
	struct ps_image_spec spec = ps_image_spec_imagenet(w->size);
	spec.dct_scale = w->dct_scale;
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
	size_t nbytes = ps_image_nbytes(&spec);
	uint8_t *slot = d ? malloc(nbytes * BATCH) : NULL;
	double begin = 0, seconds = -1;
	for (uint64_t pass = 0; slot && pass < 2; pass++) {
		*ret_bad = 0;
		begin = cpu_seconds();
		for (int i = 0; i < w->nfiles; i++) {
			struct ps_rng_key key = {.seed = w->seed, .epoch = pass, .sample = (uint64_t)i};
			if (ps_image_decode(d, w->files[i].bytes, w->files[i].nbytes, &key,
			            slot + nbytes * (size_t)(i % BATCH), &err) < 0)
				++*ret_bad;
		}
		seconds = cpu_seconds() - begin;
	}
	free(slot);
	ps_image_decoder_free(d);
	return seconds;
}

/* The few functions of libturbojpeg's stable interface that are used. */
struct turbojpeg {
	void *handle;
	int (*header)(void *handle, const unsigned char *jpeg, unsigned long nbytes, int *width, int *height,
	        int *subsampling, int *colorspace);
	int (*decompress)(void *handle, const unsigned char *jpeg, unsigned long nbytes, unsigned char *dst,
	        int width, int pitch, int height, int format, int flags);
};

static int open_turbojpeg(struct turbojpeg *ret_tj)
{
	void *(*init)(void);
	void *lib = dlopen("libturbojpeg.so.0", RTLD_NOW);
	if (!lib)
		return -ENOENT;
	*(void **)&init = dlsym(lib, "tjInitDecompress");
	*(void **)&ret_tj->header = dlsym(lib, "tjDecompressHeader3");
	*(void **)&ret_tj->decompress = dlsym(lib, "tjDecompress2");
	if (!init || !ret_tj->header || !ret_tj->decompress)
		return -ENOENT;
	ret_tj->handle = init();
	return ret_tj->handle ? 0 : -ENOMEM;
}

static double time_turbojpeg(const struct work *w, const struct turbojpeg *tj, int *ret_bad)
{
	size_t most = 0;
	int width, height, subsampling, colorspace;
	for (int i = 0; i < w->nfiles; i++) {
		if (tj->header(tj->handle, w->files[i].bytes, w->files[i].nbytes, &width, &height,
		            &subsampling, &colorspace) == 0)
			most = PS_MAX(most, (size_t)width * (size_t)height * 3);
	}
	uint8_t *rgb = malloc(most + 1);
	double begin = 0, seconds = -1;
	for (int pass = 0; rgb && pass < 2; pass++) {
		*ret_bad = 0;
		begin = cpu_seconds();
		for (int i = 0; i < w->nfiles; i++) {
			const struct file *f = &w->files[i];
			if (tj->header(tj->handle, f->bytes, f->nbytes, &width, &height, &subsampling,
			            &colorspace) ||
			        tj->decompress(tj->handle, f->bytes, f->nbytes, rgb, width, 0, height, 0, 0))
				++*ret_bad;
		}
		seconds = cpu_seconds() - begin;
	}
	free(rgb);
	return seconds;
}

int main(int argc, char **argv)
{
	struct turbojpeg tj = {0};
	struct work w = {0};
	int bad = 0;
	bool pipeline = argc >= 5 && (!strcmp(argv[1], "pipeline") || !strcmp(argv[1], "scaled"));
	if (argc < 5 || (!pipeline && strcmp(argv[1], "turbojpeg"))) {
		fprintf(stderr, "usage: image_rate pipeline|scaled|turbojpeg SIZE SEED FILE...\n");
		return 2;
	}
	w.dct_scale = !strcmp(argv[1], "scaled");
	if (!pipeline && open_turbojpeg(&tj) < 0)
		return EXIT_SKIP;
	w.size = (uint32_t)strtoul(argv[2], NULL, 10);
	w.seed = strtoull(argv[3], NULL, 10);
	w.nfiles = argc - 4;
	w.files = calloc((size_t)w.nfiles, sizeof(*w.files));
	for (int i = 0; w.files && i < w.nfiles; i++) {
		int rc = load_file(argv[4 + i], &w.files[i]);
		if (rc < 0) {
			fprintf(stderr, "image_rate: %s: %s\n", argv[4 + i], strerror(-rc));
			return 1;
		}
	}
	double seconds = !w.files ? -1 : pipeline ? time_pipeline(&w, &bad) : time_turbojpeg(&w, &tj, &bad);
	if (seconds < 0) {
		fprintf(stderr, "image_rate: out of memory, or SIZE is not valid\n");
		return 1;
	}
	printf("{\"images\": %d, \"bad\": %d, \"cpu_seconds\": %.6f}\n", w.nfiles, bad, seconds);
	return 0;
}
