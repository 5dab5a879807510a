/* make-dataset: a small dataset of drawn pictures, for the guides and for first experiments. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "image/image.h"
#include "random/random.h"
#include "shard/shard.h"
#include "tools/tools.h"

#define SHARD_SAMPLES 64u
#define TRAIN_SHARDS 4u
#define VAL_SHARDS 1u
#define PHOTOS 24u
#define QUALITY 90

static const char *const classes[] = {"disc", "square", "triangle"};

static const struct colour {
	const char *name;
	uint8_t rgb[3];
} colours[] = {
        {"red", {214, 39, 40}},
        {"green", {44, 160, 44}},
        {"blue", {31, 119, 220}},
        {"yellow", {240, 200, 40}},
        {"purple", {160, 80, 200}},
        {"white", {240, 240, 240}},
};

static const struct ps_image_size sizes[] = {{320, 240}, {240, 320}, {280, 280}};

/* Pictures ----------------------------------------------------------------------------------------------- */

/* One or two shapes of a class and colour, in pixels, on a background of two colours. */
struct scene {
	uint32_t number, class;
	struct ps_image_size size;
	const struct colour *colour;
	uint8_t top[3], bottom[3]; /* the background, from the upper edge to the lower one */
	uint32_t nshapes;
	struct shape {
		int x, y, r; /* middle, and half of its width and height */
	} shapes[2];
};

/* A number below `bound`, the nth one of that scene. */
static uint32_t draw(const struct scene *s, uint32_t n, uint32_t bound)
{
	const struct ps_rng_key key = {.sample = s->number};

	return (uint32_t)ps_rng_below(&key, PS_RNG_TRANSFORM, n, bound);
}

static void scene_make(uint32_t number, struct scene *ret_scene)
{
	struct scene s = {.number = number, .class = number % PS_ARRAY_LEN(classes)};

	s.size = sizes[draw(&s, 0, PS_ARRAY_LEN(sizes))];
	s.colour = &colours[draw(&s, 1, PS_ARRAY_LEN(colours))];
	s.nshapes = 1 + draw(&s, 2, 2);
	for (uint32_t c = 0; c < 3; c++) {
		s.top[c] = (uint8_t)(30 + draw(&s, 3 + c, 80));
		s.bottom[c] = (uint8_t)(30 + draw(&s, 6 + c, 80));
	}
	/* two shapes have half of the longer side each */
	uint32_t w = s.size.width, h = s.size.height, least = PS_MIN(w, h);
	uint32_t wide = s.nshapes == 2 && w >= h, high = s.nshapes == 2 && w < h;

	w /= 1 + wide;
	h /= 1 + high;
	for (uint32_t i = 0; i < s.nshapes; i++) {
		uint32_t r = least / (s.nshapes == 2 ? 8 : 6);

		r += draw(&s, 10 + 3 * i, r - 1);
		s.shapes[i] = (struct shape){.x = (int)(i * wide * w + r + draw(&s, 11 + 3 * i, w - 2 * r)),
		        .y = (int)(i * high * h + r + draw(&s, 12 + 3 * i, h - 2 * r)),
		        .r = (int)r};
	}
	*ret_scene = s;
}

static bool is_in(const struct scene *s, const struct shape *shape, int x, int y)
{
	int dx = abs(x - shape->x), dy = y - shape->y, r = shape->r;

	switch (s->class) {
	case 0:
		return dx * dx + dy * dy <= r * r;
	case 1:
		return dx <= r && abs(dy) <= r;
	default: /* the tip above, the base below */
		return abs(dy) <= r && 2 * dx <= dy + r;
	}
}

/* Draws the picture, and a label for each pixel: 0, or 1 and the class. */
static void scene_draw(const struct scene *s, uint8_t *rgb, uint8_t *labels)
{
	const struct ps_rng_key key = {.sample = s->number};
	uint64_t grain = ps_rng_u64(&key, PS_RNG_NOISE, 0);

	for (uint32_t y = 0; y < s->size.height; y++) {
		for (uint32_t x = 0; x < s->size.width; x++, rgb += 3, labels++) {
			*labels = 0;
			for (uint32_t i = 0; i < s->nshapes; i++)
				if (is_in(s, &s->shapes[i], (int)x, (int)y))
					*labels = (uint8_t)(1 + s->class);
			for (uint32_t c = 0; c < 3; c++) {
				uint32_t level =
				        *labels ? s->colour->rgb[c]
				                : (s->top[c] * (s->size.height - y) + s->bottom[c] * y) /
				                          s->size.height;

				grain = grain * UINT64_C(6364136223846793005) + 1442695040888963407;
				rgb[c] = (uint8_t)(level + (grain >> 60)); /* at most 240 + 15 */
			}
		}
	}
}

/* The picture as a JPEG and, with ret_png, its labels as a PNG. The caller frees both. */
static int scene_encode(const struct scene *s, uint8_t **ret_jpeg, size_t *ret_njpeg, uint8_t **ret_png,
        size_t *ret_npng, struct ps_error *err)
{
	size_t n = (size_t)s->size.width * s->size.height;
	ps_autofree uint8_t *rgb = ps_need(malloc(3 * n)), *labels = ps_need(malloc(n));

	scene_draw(s, rgb, labels);
	int rc = ps_jpeg_encode(rgb, s->size, QUALITY, ret_jpeg, ret_njpeg, err);

	return rc < 0 || !ret_png ? rc : ps_png_encode(labels, s->size, 1, ret_png, ret_npng, err);
}

/* Samples ------------------------------------------------------------------------------------------------ */

static char *caption_of(const struct scene *s)
{
	return ps_text("%s %s %s%s", s->nshapes == 2 ? "two" : "a", s->colour->name, classes[s->class],
	        s->nshapes == 2 ? "s" : "");
}

static char *json_of(const struct scene *s, const char *caption)
{
	char boxes[2][64];

	for (uint32_t i = 0; i < s->nshapes; i++) {
		const struct shape *p = &s->shapes[i];

		snprintf(boxes[i], sizeof(boxes[i]), "[%d, %d, %d, %d]", p->x - p->r, p->y - p->r,
		        p->x + p->r, p->y + p->r);
	}
	return ps_text("{\"caption\": \"%s\", \"boxes\": [%s%s%s], \"size\": [%u, %u]}", caption, boxes[0],
	        s->nshapes == 2 ? ", " : "", s->nshapes == 2 ? boxes[1] : "", s->size.width, s->size.height);
}

struct npy {
	char header[128];
	float values[2][3];
};

/* A NumPy array of 2 x 3: the colour in the middle of the background, and the shapes', 0 to 1. */
static void npy_of(const struct scene *s, struct npy *ret_npy)
{
	struct npy n;

	memset(n.header, ' ', sizeof(n.header));
	memcpy(n.header, "\x93NUMPY\1\0\x76\0", 10);
	static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

	memcpy(n.header + 10, text, sizeof(text) - 1);
	n.header[127] = '\n';
	for (uint32_t c = 0; c < 3; c++) {
		n.values[0][c] = (float)(s->top[c] + s->bottom[c]) / 510;
		n.values[1][c] = (float)s->colour->rgb[c] / 255;
	}
	*ret_npy = n;
}

/* 65 tokens of 16 bits: the sample's number, and the numbers after it. */
static void tokens_of(const struct scene *s, uint8_t ret_tokens[static 130])
{
	for (uint32_t i = 0; i < 65; i++) {
		ret_tokens[2 * i] = (uint8_t)(s->number + i);
		ret_tokens[2 * i + 1] = (uint8_t)((s->number + i) >> 8);
	}
}

static int member_add(struct ps_tar_out *out, const struct scene *s, const char *suffix, const void *data,
        size_t n, struct ps_error *err)
{
	char name[32];
	int len = snprintf(name, sizeof(name), "%06u.%s", s->number, suffix);
	int rc = ps_tar_out_member(out, name, (size_t)len, n, err);

	return rc < 0 ? rc : ps_tar_out_data(out, data, n, err);
}

static int sample_add(struct ps_tar_out *out, uint32_t number, struct ps_error *err)
{
	struct scene s;
	struct npy npy;
	uint8_t tokens[130], cls;
	ps_autofree uint8_t *jpeg = NULL, *png = NULL;
	size_t njpeg = 0, npng = 0;

	scene_make(number, &s);
	npy_of(&s, &npy);
	tokens_of(&s, tokens);
	cls = (uint8_t)('0' + s.class);
	ps_autofree char *caption = caption_of(&s), *json = json_of(&s, caption);
	int rc = scene_encode(&s, &jpeg, &njpeg, &png, &npng, err);
	const struct {
		const char *suffix;
		const void *data;
		size_t n;
	} members[] = {{"jpg", jpeg, njpeg}, {"cls", &cls, 1}, {"txt", caption, strlen(caption)},
	        {"json", json, strlen(json)}, {"npy", &npy, sizeof(npy)}, {"seg.png", png, npng},
	        {"bin", tokens, sizeof(tokens)}};

	if (rc == -ENOTSUP) /* no libpng: without masks */
		rc = 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(members) && rc == 0; i++)
		if (members[i].data)
			rc = member_add(out, &s, members[i].suffix, members[i].data, members[i].n, err);
	return rc;
}

/* Folders ------------------------------------------------------------------------------------------------ */

static int shard_make(const char *path, uint32_t first, struct ps_error *err)
{
	struct ps_shard_index_result result;
	struct ps_tar_out *out;
	int rc = ps_tar_out_open(path, 0, &out, err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < SHARD_SAMPLES && rc == 0; i++)
		rc = sample_add(out, first + i, err);
	if (rc < 0) {
		ps_tar_out_abort(out);
		return rc;
	}
	rc = ps_tar_out_finish(out, NULL, err);
	return rc < 0 ? rc : ps_shard_index_make(path, NULL, NULL, 0, NULL, &result, err);
}

/* Makes a folder that must not exist yet. */
static int new_folder_make(const char *path, struct ps_error *err)
{
	if (mkdir(path, 0777) == 0)
		return 0;
	return ps_error_set(err, errno, "%s: %s", path,
	        errno == EEXIST ? "exists already; remove it, or name another directory" : strerror(errno));
}

static int file_write(const char *path, const void *data, size_t n, struct ps_error *err)
{
	FILE *f = fopen(path, "we");
	bool sound = f && fwrite(data, 1, n, f) == n;

	if (f && fclose(f) == 0 && sound)
		return 0;
	return ps_error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
}

static int shards_make(
        const char *dir, const char *name, uint32_t nshards, uint32_t first, struct ps_error *err)
{
	ps_autofree char *folder = ps_text("%s/%s", dir, name), *list = ps_text("%s/CLASSES.txt", folder);
	ps_autofree char *text = ps_text("%s\n%s\n%s\n", classes[0], classes[1], classes[2]);
	int rc = new_folder_make(folder, err);

	for (uint32_t i = 0; i < nshards && rc == 0; i++) {
		ps_autofree char *path = ps_text("%s/shard-%06u.tar", folder, i);

		rc = shard_make(path, first + i * SHARD_SAMPLES, err);
	}
	if (rc == 0)
		rc = file_write(list, text, strlen(text), err);
	if (rc == 0)
		printf("%s: %u samples in %u shard%s\n", folder, nshards * SHARD_SAMPLES, nshards,
		        ps_plural(nshards));
	return rc;
}

static int photo_make(const char *folder, uint32_t i, struct ps_error *err)
{
	ps_autofree char *class = ps_text("%s/%s", folder, classes[i % PS_ARRAY_LEN(classes)]);
	ps_autofree char *path = ps_text("%s/%02u.jpg", class, i);
	ps_autofree uint8_t *jpeg = NULL;
	size_t njpeg = 0;
	struct scene s;
	int rc = i < PS_ARRAY_LEN(classes) ? new_folder_make(class, err) : 0;

	scene_make(1000 * PS_ARRAY_LEN(classes) + i, &s); /* of class i % 3, and in no shard */
	if (rc == 0)
		rc = scene_encode(&s, &jpeg, &njpeg, NULL, NULL, err);
	return rc < 0 ? rc : file_write(path, jpeg, njpeg, err);
}

static int photos_make(const char *dir, struct ps_error *err)
{
	ps_autofree char *folder = ps_text("%s/photos", dir);
	int rc = new_folder_make(folder, err);

	for (uint32_t i = 0; i < PHOTOS && rc == 0; i++)
		rc = photo_make(folder, i, err);
	if (rc == 0)
		printf("%s: %u pictures in a folder for each of %zu classes\n", folder, PHOTOS,
		        PS_ARRAY_LEN(classes));
	return rc;
}

int ps_cmd_make_dataset(int argc, char **argv)
{
	static const struct ps_flags command = {"Usage: penstock-loader make-dataset DIR\n\n"
	                                        "Draws a small dataset of discs, squares and triangles, "
	                                        "without a network, for first experiments:\n"
	                                        "shards in DIR/train and DIR/val, and folders of pictures in "
	                                        "DIR/photos. The guides use it. It\n"
	                                        "takes about a second and 7 MB.\n",
	        "Examples:\n"
	        "  penstock-loader make-dataset shapes\n",
	        NULL, 0, 0};
	struct ps_error err = {0};
	int rc = ps_flags_read(&command, NULL, argc, argv);

	if (rc >= 0)
		return rc;
	if (argc - optind != 1) {
		ps_complain("needs one directory (see penstock-loader make-dataset --help)");
		return PS_EXIT_USAGE;
	}
	const char *dir = argv[optind];

	rc = ps_folder_make(dir, &err);
	if (rc == 0)
		rc = shards_make(dir, "train", TRAIN_SHARDS, 0, &err);
	if (rc == 0)
		rc = shards_make(dir, "val", VAL_SHARDS, TRAIN_SHARDS * SHARD_SAMPLES, &err);
	if (rc == 0)
		rc = photos_make(dir, &err);
	if (rc == 0)
		return PS_EXIT_OK;
	ps_complain("%s", err.text);
	return PS_EXIT_FAILED;
}
