/* Shared by the image tests: reproducible noise, files, and JPEGs of any form. Include after cmocka.h. */
#ifndef TESTS_LOADER_IMAGE_FIXTURE_H
#define TESTS_LOADER_IMAGE_FIXTURE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

#include "base/cleanup.h"

static inline uint32_t fixture_noise(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33);
}

/* A random number in [low, high]. */
static inline uint32_t fixture_between(uint64_t *seed, uint32_t low, uint32_t high)
{
	return low + fixture_noise(seed) % (high - low + 1);
}

/* An RGB picture of gradients, edges and noise, followed by `slack` bytes; the caller frees. */
static inline uint8_t *fixture_picture(uint32_t width, uint32_t height, size_t slack, uint64_t seed)
{
	uint8_t *rgb = malloc((size_t)width * height * 3 + slack);
	assert_non_null(rgb);
	uint8_t *p = rgb;
	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++, p += 3) {
			uint32_t noise = fixture_noise(&seed);
			bool edge = (x / 5 + y / 7) % 3 == 0;
			p[0] = edge ? 255 : (uint8_t)(x * 255 / width);
			p[1] = (uint8_t)(noise % 3 == 0 ? noise >> 8 : y * 255 / height);
			p[2] = edge ? (uint8_t)(noise >> 16) : 0;
		}
	}
	memset(p, 0xa5, slack);
	return rgb;
}

static inline uint8_t *fixture_read(const char *path, size_t *ret_nbytes)
{
	struct stat st;
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	/* The memory is as long as the file, so that a sanitizer finds a read past the end. */
	uint8_t *bytes = malloc(st.st_size ? (size_t)st.st_size : 1);
	assert_non_null(bytes);
	assert_true(read(fd, bytes, (size_t)st.st_size) == st.st_size);
	*ret_nbytes = (size_t)st.st_size;
	return bytes;
}

/* The path of a file in the source tree's tests/data. */
static inline void fixture_path(char ret_path[static 1024], const char *name)
{
	const char *top = getenv("top_srcdir");
	assert_true(snprintf(ret_path, 1024, "%s/tests/data/%s", top ? top : ".", name) < 1024);
}

/* Calls `visit` for every .jpg and .jpeg of a folder in tests/data; returns how many there are. */
static inline int fixture_each_jpeg(const char *folder, void (*visit)(const char *, const uint8_t *, size_t))
{
	char dir[1024], path[2048];
	int n = 0;
	fixture_path(dir, folder);
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		const char *dot = strrchr(e->d_name, '.');
		if (!dot || (strcmp(dot, ".jpg") && strcmp(dot, ".jpeg")))
			continue;
		size_t nbytes;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		ps_autofree uint8_t *bytes = fixture_read(path, &nbytes);
		visit(e->d_name, bytes, nbytes);
		n++;
	}
	closedir(d);
	return n;
}

struct fixture_jpeg {
	uint32_t width, height;
	J_COLOR_SPACE in, stored; /* of the pixels, of the file */
	int h, v;                 /* sampling factors of the first component; 0: the library's choice */
	bool progressive;
	int restart; /* MCUs between restart markers, 0 none */
	int quality; /* 0: 90 */
};

/* Encodes `pixels` (as many channels as `in` has); the caller frees. */
static inline uint8_t *fixture_encode(const struct fixture_jpeg *f, const uint8_t *pixels, size_t *ret_nbytes)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	unsigned char *out = NULL;
	unsigned long nbytes = 0;
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &out, &nbytes);
	c.image_width = f->width;
	c.image_height = f->height;
	c.in_color_space = f->in;
	c.input_components = f->in == JCS_CMYK        ? 4
	                     : f->in == JCS_GRAYSCALE ? 1
	                     : f->in == JCS_UNKNOWN   ? 2
	                                              : 3;
	jpeg_set_defaults(&c);
	jpeg_set_colorspace(&c, f->stored);
	jpeg_set_quality(&c, f->quality ? f->quality : 90, TRUE);
	if (f->h) {
		c.comp_info[0].h_samp_factor = f->h;
		c.comp_info[0].v_samp_factor = f->v;
	}
	if (f->progressive)
		jpeg_simple_progression(&c);
	c.restart_interval = (unsigned)f->restart;
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height) {
		JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)c.next_scanline * f->width *
		                                                      (size_t)c.input_components);
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	uint8_t *exact = malloc(nbytes); /* as long as the data: see fixture_read() */
	assert_non_null(exact);
	memcpy(exact, out, nbytes);
	free(out);
	*ret_nbytes = nbytes;
	return exact;
}

#endif
