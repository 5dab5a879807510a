/* Views, multi-crop, masks, boxes and transforms, through the public interface. */
#include "config.h"

#include "pictures_fixture.h"

#include <errno.h>
#include <math.h>

static void each_view_has_its_own_random_choices(void **state)
{
	struct setting one, three;
	size_t n, m, view = OUT_W * OUT_H * 3;
	uint8_t *p, *q;

	(void)state;
	setting_init(&one);
	field_add(&one, "ppm", PENSTOCK_IMAGE);
	three = one;
	three.o.fields = three.f;
	three.f[0].views = 3;
	p = epoch_of(&one, "ppm", &n);
	q = epoch_of(&three, "ppm", &m);
	assert_int_equal(n, SAMPLES * view);
	assert_int_equal(m, SAMPLES * view * 3);
	for (size_t i = 0; i < SAMPLES; i++) {
		assert_memory_equal(p + i * view, q + 3 * i * view, view); /* the first view is the same */
		assert_memory_not_equal(q + 3 * i * view, q + (3 * i + 1) * view, view);
		assert_memory_not_equal(q + (3 * i + 1) * view, q + (3 * i + 2) * view, view);
	}
	free(p);
	free(q);
}

static void views_are_a_dimension_of_images_and_masks(void **state)
{
	struct setting s;
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	struct penstock_tensor t;
	static const uint64_t image[] = {BATCH, 2, 3, OUT_H, OUT_W}, mask[] = {BATCH, 2, OUT_H, OUT_W};

	(void)state;
	setting_init(&s);
	field_add(&s, "ppm", PENSTOCK_IMAGE)->views = 2;
	s.f[0].layout = PENSTOCK_NCHW;
	s.f[0].dtype = PENSTOCK_BF16;
	field_add(&s, "seg.pgm", PENSTOCK_MASK);
	assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &loader, &error), 0);
	assert_int_equal(penstock_loader_next(loader, &batch, &error), 1);
	assert_int_equal(penstock_batch_field(batch, "ppm", &t, &error), 0);
	assert_int_equal(t.dtype, PENSTOCK_BF16);
	assert_int_equal(t.ndim, 5);
	assert_memory_equal(t.shape, image, sizeof(image));
	assert_int_equal(penstock_batch_field(batch, "seg.pgm", &t, &error), 0);
	assert_int_equal(t.dtype, PENSTOCK_I64);
	assert_int_equal(t.ndim, 4);
	assert_memory_equal(t.shape, mask, sizeof(mask));
	penstock_loader_close(loader);
}

static void fields_of_one_member_have_their_own_sizes_and_crops(void **state)
{
	struct setting alone, both;
	struct penstock_field *local;
	size_t n;
	uint8_t *p;

	(void)state;
	setting_init(&alone);
	field_add(&alone, "ppm", PENSTOCK_IMAGE)->views = 2;
	both = alone;
	both.o.fields = both.f;
	local = field_add(&both, "local", PENSTOCK_IMAGE);
	local->member = "ppm";
	local->views = 4;
	local->image_width = local->image_height = 20;
	local->scale_max = 0.2;
	same_epoch(&alone, "ppm", &both, "ppm", true);
	p = epoch_of(&both, "local", &n);
	assert_int_equal(n, SAMPLES * 4 * 20 * 20 * 3);
	free(p);
	/* Even with the same options as the first field, the second field has other views. */
	local->views = 2;
	local->image_width = OUT_W;
	local->image_height = OUT_H;
	local->scale_max = 1;
	same_epoch(&both, "ppm", &both, "local", false);
}

/* Where a label and its neighbours agree, the picture must show that label's colour. */
static void check_labels(const uint8_t *rgb, const uint8_t *mask, size_t *checked)
{
	for (uint32_t y = 2; y + 2 < OUT_H; y++) {
		for (uint32_t x = 2; x + 2 < OUT_W; x++) {
			uint8_t want[3], label = mask[y * OUT_W + x];
			bool inside = label > 0;

			for (uint32_t k = 0; k < 25; k++)
				inside = inside && mask[(y + k / 5 - 2) * OUT_W + x + k % 5 - 2] == label;
			if (!inside)
				continue;
			color_of(label, want);
			for (uint32_t c = 0; c < 3; c++) {
				int off = rgb[(y * OUT_W + x) * 3 + c] - want[c];

				if (abs(off) > 1)
					fail_msg("at %u, %u label %u, channel %u off by %d", x, y, label, c,
					        off);
			}
			++*checked;
		}
	}
}

static void place_everywhere(struct penstock_field *f)
{
	f->scale_min = 0.3;
	f->hflip = f->vflip = 0.5;
	f->affine = 0.7;
	f->degrees = 40;
	f->translate_x = f->translate_y = 0.1;
	f->zoom_min = 0.9;
	f->zoom_max = 1.4;
	f->shear_x = 10;
}

static void masks_show_the_same_places_as_their_images(void **state)
{
	struct setting s;
	size_t n, m, checked = 0;
	uint8_t *rgb, *mask;

	(void)state;
	setting_init(&s);
	place_everywhere(field_add(&s, "ppm", PENSTOCK_IMAGE));
	field_add(&s, "seg.pgm", PENSTOCK_MASK)->dtype = PENSTOCK_U8;
	rgb = epoch_of(&s, "ppm", &n);
	mask = epoch_of(&s, "seg.pgm", &m);
	assert_int_equal(n, 3 * m);
	for (size_t i = 0; i < SAMPLES; i++)
		check_labels(rgb + i * OUT_W * OUT_H * 3, mask + i * OUT_W * OUT_H, &checked);
	assert_true(checked > SAMPLES * OUT_W * OUT_H / 20);
	free(rgb);
	free(mask);
}

/* way 0: a random crop whose window reaches over the edges of the image; 1: of the resized image; 2: of an
 * image that is resized to less than the window; 3: a letterbox. */
static void crop_beyond_edges(struct penstock_field *f, uint32_t way, uint32_t mode)
{
	if (way == 3) {
		f->crop = PENSTOCK_CROP_LETTERBOX;
		f->padding_mode = mode;
		f->hflip = f->vflip = 0.5;
		return;
	}
	f->crop = PENSTOCK_CROP_RANDOM_CROP;
	f->padding_x = 40;
	f->padding_y = 30;
	f->padding_mode = mode;
	f->hflip = f->vflip = 0.5;
	f->resize_shorter = way == 1 ? 100 : 0;
	f->resize_width = way == 2 ? OUT_W - 20 : 0;
	f->resize_height = way == 2 ? OUT_H : 0;
	f->affine = mode % 2 ? 0.5 : 0;
	f->degrees = mode % 2 ? 20 : 0;
}

static void masks_are_padded_like_their_images(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4 * 4; i++) {
		struct setting s;
		size_t n, m, checked = 0;
		uint8_t *rgb, *mask;

		setting_init(&s);
		crop_beyond_edges(field_add(&s, "ppm", PENSTOCK_IMAGE), i / 4, i % 4);
		s.f[0].views = i % 3;
		field_add(&s, "seg.pgm", PENSTOCK_MASK)->dtype = PENSTOCK_U8;
		rgb = epoch_of(&s, "ppm", &n);
		mask = epoch_of(&s, "seg.pgm", &m);
		for (size_t k = 0; k < m / (OUT_W * OUT_H); k++)
			check_labels(rgb + k * OUT_W * OUT_H * 3, mask + k * OUT_W * OUT_H, &checked);
		assert_true(checked > m / (i / 4 == 2 ? 1000 : 50));
		free(rgb);
		free(mask);
	}
}

/* The box of a cell must be the box around the cell's label in the mask, if the whole cell is inside. */
static void check_box(const float *box, const uint8_t *mask, size_t *checked)
{
	uint8_t label = label_of(BOX_X * CELL, BOX_Y * CELL);
	uint32_t x0 = OUT_W, y0 = OUT_H, x1 = 0, y1 = 0;
	bool edge;

	for (uint32_t i = 0; i < OUT_W * OUT_H; i++) {
		if (mask[i] != label)
			continue;
		x0 = i % OUT_W < x0 ? i % OUT_W : x0;
		x1 = i % OUT_W + 1 > x1 ? i % OUT_W + 1 : x1;
		y0 = i / OUT_W < y0 ? i / OUT_W : y0;
		y1 = i / OUT_W + 1 > y1 ? i / OUT_W + 1 : y1;
	}
	edge = x0 == 0 || y0 == 0 || x1 >= OUT_W || y1 >= OUT_H;
	if (x1 == 0 || edge)
		return;
	if (fabsf(box[0] - (float)x0) > 1.5f || fabsf(box[1] - (float)y0) > 1.5f ||
	        fabsf(box[2] - (float)x1) > 1.5f || fabsf(box[3] - (float)y1) > 1.5f)
		fail_msg("box %g %g %g %g, mask %u %u %u %u", (double)box[0], (double)box[1], (double)box[2],
		        (double)box[3], x0, y0, x1, y1);
	++*checked;
}

/* way: as in crop_beyond_edges(); -1: crops inside the image. */
static void boxes_are_checked(int way)
{
	struct setting s;
	size_t n, m, k, checked = 0;
	uint8_t *mask;
	float *text, *json;

	setting_init(&s);
	if (way >= 0)
		crop_beyond_edges(
		        field_add(&s, "ppm", PENSTOCK_IMAGE), (uint32_t)way, PENSTOCK_PADDING_CONSTANT);
	else
		place_everywhere(field_add(&s, "ppm", PENSTOCK_IMAGE));
	s.f[0].erase = 0.5; /* changes neither masks nor boxes */
	field_add(&s, "seg.pgm", PENSTOCK_MASK)->dtype = PENSTOCK_U8;
	field_add(&s, "box.txt", PENSTOCK_BOXES);
	field_add(&s, "box.json:b", PENSTOCK_BOXES)->box_format = PENSTOCK_BOX_CXCYWH;
	s.f[3].box_shares = 1;
	s.f[3].pad_to = 2;
	mask = epoch_of(&s, "seg.pgm", &m);
	text = (float *)(void *)epoch_of(&s, "box.txt", &n);
	json = (float *)(void *)epoch_of(&s, "box.json:b", &k);
	assert_int_equal(n, SAMPLES * 2 * 4 * sizeof(float));
	assert_int_equal(k, SAMPLES * 2 * 4 * sizeof(float));
	for (size_t i = 0; i < SAMPLES; i++) {
		check_box(text + i * 8, mask + i * OUT_W * OUT_H, &checked);
		for (int c = 0; c < 4; c++) {
			assert_true(fabsf(text[i * 8 + (size_t)c] - json[i * 8 + (size_t)c]) < 0.01f);
			assert_true(json[i * 8 + 4 + (size_t)c] == 0);
			assert_true(text[i * 8 + 4 + (size_t)c] >= 0 &&
			            text[i * 8 + 4 + (size_t)c] <= (c % 2 ? OUT_H : OUT_W));
		}
	}
	assert_true(checked > SAMPLES / (way >= 0 ? 12 : 4));
	free(mask);
	free(text);
	free(json);
}

static void boxes_stay_around_their_objects(void **state)
{
	(void)state;
	boxes_are_checked(-1);
	boxes_are_checked(1);
	boxes_are_checked(3);
}

static void a_following_image_has_the_same_crop_and_flip(void **state)
{
	struct setting s, apart;
	struct penstock_field *next;

	(void)state;
	setting_init(&s);
	place_everywhere(field_add(&s, "ppm", PENSTOCK_IMAGE));
	next = field_add(&s, "next.ppm", PENSTOCK_IMAGE);
	apart = s;
	apart.o.fields = apart.f;
	apart.f[1].scale_max = 0.1;
	next->follow = "ppm";
	same_epoch(&s, "ppm", &s, "next.ppm", true);
	same_epoch(&apart, "ppm", &apart, "next.ppm", false);
}

static void every_transform_is_the_same_for_any_threads(void **state)
{
	struct setting plain, s, other;

	(void)state;
	setting_init(&plain);
	field_add(&plain, "ppm", PENSTOCK_IMAGE);
	for (int i = 0; i < 6; i++) {
		struct penstock_field *f;

		s = plain;
		s.o.fields = s.f;
		f = &s.f[0];
		f->brightness = f->contrast = f->saturation = i == 2 ? 0.4 : 0;
		f->hue = i == 2 ? 0.1 : 0;
		f->degrees = i == 1 ? 20 : 0;
		f->noise_sigma = i == 5 ? 9 : 0;
		double *probability[] = {&f->vflip, &f->affine, &f->jitter, &f->gray, &f->blur, &f->noise};

		*probability[i] = 1;
		same_epoch(&plain, "ppm", &s, "ppm", false);
		other = s;
		other.o.fields = other.f;
		other.o.threads = 7;
		same_epoch(&s, "ppm", &other, "ppm", true);
	}
}

static void nchw_f32_is_u8_normalised_after_transforms(void **state)
{
	struct setting s, u8;
	size_t n, m, plane = OUT_W * OUT_H;
	uint8_t *bytes;
	float *f;

	(void)state;
	setting_init(&u8);
	field_add(&u8, "ppm", PENSTOCK_IMAGE)->jitter = 1;
	u8.f[0].brightness = 0.5;
	s = u8;
	s.o.fields = s.f;
	s.f[0].dtype = PENSTOCK_F32;
	s.f[0].layout = PENSTOCK_NCHW;
	bytes = epoch_of(&u8, "ppm", &n);
	f = (float *)(void *)epoch_of(&s, "ppm", &m);
	assert_int_equal(m, 4 * n);
	for (size_t i = 0; i < n; i++) {
		size_t c = i % 3, pixel = i / 3 % plane, sample = i / 3 / plane;
		float want = ((float)bytes[i] / 255 - s.f[0].mean[c]) / s.f[0].std[c];

		assert_true(fabsf(f[(sample * 3 + c) * plane + pixel] - want) < 1e-5f);
	}
	free(bytes);
	free(f);
}

static void invalid_image_options_are_refused_by_name(void **state)
{
	struct penstock_error error;
	struct setting s;

	(void)state;
#define REFUSED(change, why)                                                     \
	do {                                                                     \
		setting_init(&s);                                                \
		struct penstock_field *f = field_add(&s, "ppm", PENSTOCK_IMAGE); \
		(void)f;                                                         \
		change;                                                          \
		assert_int_equal(open_fails(&s, &error), -EINVAL);               \
		if (!strstr(error.text, why))                                    \
			fail_msg("%s", error.text);                              \
	} while (0)
	REFUSED(f->views = 65, "65 views");
	REFUSED(f->vflip = 1.5, "vflip");
	REFUSED(f->affine = -1, "affine -1");
	REFUSED(f->hue = 0.6, "hue 0.6: must be 0 to 0.5");
	REFUSED(f->degrees = (double)NAN, "degrees nan");
	REFUSED((f->blur = 1, f->blur_size = 4), "blur_size 4");
	REFUSED((f->blur = 1, f->blur_size = 201), "blur_size 201");
	REFUSED(f->zoom_min = 2, "zoom 2 to 0");
	REFUSED((f->blur = 1, f->blur_size = 9, f->blur_size_max = 5), "blur_size 9 to 5");
	REFUSED((f->blur = 1, f->blur_size_max = 8), "blur_size 8");
	REFUSED((f->noise_sigma = 9, f->noise_sigma_max = 5), "noise_sigma 9 to 5");
	REFUSED(f->erase = 2, "erase 2");
	REFUSED(f->erase_scale_max = 2, "erase_scale 0 to 2");
	REFUSED(f->erase_ratio_min = 2, "erase_ratio 2 to 0");
	REFUSED(f->erase_fill = 3, "erase_fill");
	REFUSED(f->jitter_order = 2, "jitter_order");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_x = OUT_W),
	        "padding 72 x 0: must be less than");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->resize_width = 99), "resize 99 x 0");
	REFUSED((f->crop = PENSTOCK_CROP_CENTER, f->resize_width = f->resize_height = 50), "resize 50 x 50");
	REFUSED(f->groups = "some:0.5=blur", "groups \"some:0.5=blur\": must be");
	REFUSED(f->groups = "one:1.5=blur", "must be apply:PROBABILITY");
	REFUSED(f->groups = "one:0.5=blur,", "must be apply:PROBABILITY");
	REFUSED(f->groups = "one:0.5=blur,noise;apply:1=blur", "at most once");
	REFUSED((f->noise = 1, f->groups = "one:0.5=blur,noise"), "groups: blur is in a group, but");
	REFUSED(f->dtype = PENSTOCK_I64, "dtype");
	REFUSED(field_add(&s, "x", PENSTOCK_IMAGE)->follow = "y", "field x: follow y");
	REFUSED(field_add(&s, "x", PENSTOCK_MASK)->dtype = PENSTOCK_F32, "mask: dtype f32");
	REFUSED((f->views = 2, field_add(&s, "x", PENSTOCK_BOXES)), "one view");
	REFUSED(field_add(&s, "x", PENSTOCK_BOXES)->box_format = 3, "box_format 3");
	REFUSED(s.o.mixup_alpha = -1, "mixup_alpha -1");
	REFUSED(s.o.mix_probability = 2, "mix_probability 2");
#undef REFUSED
	setting_init(&s);
	field_add(&s, "seg.pgm", PENSTOCK_MASK);
	assert_int_equal(open_fails(&s, &error), -EINVAL);
	assert_non_null(strstr(error.text, "there is no image"));
}

/* A run with other transforms refuses a state; so does a run that sets options which later versions added. */
static void a_run_with_other_transforms_refuses_a_state(void **state)
{
	struct penstock_loader *loader;
	struct penstock_error error;
	struct setting s;
	uint8_t saved[8192];
	int n;

	(void)state;
	setting_init(&s);
	field_add(&s, "ppm", PENSTOCK_IMAGE)->jitter = 0.5;
	s.f[0].brightness = 0.1;
	assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &loader, &error), 0);
	n = penstock_loader_state_save(loader, saved, sizeof(saved), &error);
	assert_true(n > 0);
	assert_int_equal(penstock_loader_state_load(loader, saved, (size_t)n, &error), 0);
	penstock_loader_close(loader);
	s.f[0].brightness = 0.2;
	assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &loader, &error), 0);
	assert_int_equal(penstock_loader_state_load(loader, saved, (size_t)n, &error), -ESTALE);
	penstock_loader_close(loader);
	s.f[0].brightness = 0.1;
	for (int i = 0; i < 5; i++) {
		struct penstock_field f = s.f[0];

		f.jitter_order = i == 0;
		f.erase = i == 1 ? 0.5 : 0;
		f.noise = i == 4;
		f.groups = i == 2 ? "apply:0.5=jitter" : NULL;
		f.crop = i == 3 ? PENSTOCK_CROP_RANDOM_CROP : f.crop;
		f.noise_sigma_max = i == 4 ? 3 : 0;
		s.o.fields = &f;
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &loader, &error), 0);
		assert_int_equal(penstock_loader_state_load(loader, saved, (size_t)n, &error), -ESTALE);
		penstock_loader_close(loader);
	}
}

static void mask_of_another_size_is_a_bad_sample(void **state)
{
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	struct setting s;
	struct tar t = {0};
	static const char *const odd[] = {"odd.tar"};

	(void)state;
	tar_add_text(&t, "a.ppm", "P6 2 1 255\nabcdef");
	tar_add_text(&t, "a.seg.pgm", "P5 1 2 255\nab");
	tar_end(&t);
	tar_save(&t, "odd.tar");
	setting_init(&s);
	field_add(&s, "ppm", PENSTOCK_IMAGE);
	field_add(&s, "seg.pgm", PENSTOCK_MASK);
	assert_int_equal(penstock_loader_open(&s.o, odd, 1, &loader, &error), 0);
	assert_int_equal(penstock_loader_next(loader, &batch, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "mask: is 1 x 2, but the image that it follows is 2 x 1"));
	penstock_loader_close(loader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_view_has_its_own_random_choices),
	        cmocka_unit_test(views_are_a_dimension_of_images_and_masks),
	        cmocka_unit_test(fields_of_one_member_have_their_own_sizes_and_crops),
	        cmocka_unit_test(masks_show_the_same_places_as_their_images),
	        cmocka_unit_test(masks_are_padded_like_their_images),
	        cmocka_unit_test(boxes_stay_around_their_objects),
	        cmocka_unit_test(a_following_image_has_the_same_crop_and_flip),
	        cmocka_unit_test(every_transform_is_the_same_for_any_threads),
	        cmocka_unit_test(nchw_f32_is_u8_normalised_after_transforms),
	        cmocka_unit_test(invalid_image_options_are_refused_by_name),
	        cmocka_unit_test(a_run_with_other_transforms_refuses_a_state),
	        cmocka_unit_test(mask_of_another_size_is_a_bad_sample),
	};

	return cmocka_run_group_tests_name("pictures", tests, setup, teardown);
}
