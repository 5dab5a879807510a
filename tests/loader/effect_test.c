/* An option that would have no effect is refused: the error names the option and what it needs. With what it
 * needs, or if it needs nothing, an option is accepted. */
#include "config.h"

#include "pictures_fixture.h"

#include <errno.h>

static const char *name_of(uint32_t kind)
{
	return kind == PENSTOCK_IMAGE ? "ppm" : kind == PENSTOCK_JSON ? "box.json" : "cls";
}

static int opens(const struct setting *s, struct penstock_error *error)
{
	struct penstock_loader *loader;
	int rc = penstock_loader_open(&s->o, pattern, 1, &loader, error);

	if (rc == 0)
		penstock_loader_close(loader);
	return rc;
}

/* Opens a loader with one field of that kind after `change`. */
#define OPENS(kind, change, ret_error)                                         \
	({                                                                     \
		struct setting s;                                              \
		setting_init(&s);                                              \
		struct penstock_field *f = field_add(&s, name_of(kind), kind); \
		(void)f;                                                       \
		change;                                                        \
		opens(&s, ret_error);                                          \
	})

#define REFUSED_OF(kind, change, what, why)                                                         \
	do {                                                                                        \
		struct penstock_error e = {0};                                                      \
		if (OPENS(kind, change, &e) != -EINVAL || !strstr(e.text, what " has no effect") || \
		        !strstr(e.text, why))                                                       \
			fail_msg("%s: %d, %s", #change, e.code, e.text);                            \
	} while (0)
#define REFUSED(change, what, why) REFUSED_OF(PENSTOCK_IMAGE, change, what, why)

#define TAKEN_OF(kind, change)                                           \
	do {                                                             \
		struct penstock_error e = {0};                           \
		if (OPENS(kind, change, &e) != 0)                        \
			fail_msg("%s: %d, %s", #change, e.code, e.text); \
	} while (0)
#define TAKEN(change) TAKEN_OF(PENSTOCK_IMAGE, change)

static void operations_need_a_probability_and_a_strength(void **state)
{
	(void)state;
	REFUSED(f->noise_sigma = 25, "noise_sigma", "add noise, its probability");
	REFUSED(f->noise_sigma_max = 25, "noise_sigma_max", "add noise");
	REFUSED(f->noise = 1, "noise", "add noise_sigma");
	TAKEN((f->noise = 1, f->noise_sigma = 25));
	TAKEN((f->noise = 1, f->noise_sigma_max = 25));
	REFUSED(f->brightness = 0.4, "brightness", "add jitter, its probability");
	REFUSED(f->contrast = 0.4, "contrast", "add jitter");
	REFUSED(f->saturation = 0.4, "saturation", "add jitter");
	REFUSED(f->hue = 0.1, "hue", "add jitter");
	REFUSED(f->jitter_order = PENSTOCK_JITTER_RANDOM, "jitter_order", "add jitter");
	REFUSED(f->jitter = 1, "jitter", "add brightness, contrast, saturation or hue");
	TAKEN((f->jitter = 1, f->hue = 0.1, f->jitter_order = PENSTOCK_JITTER_RANDOM));
	REFUSED(f->degrees = 10, "degrees", "add affine, its probability");
	REFUSED(f->translate_x = 0.1, "translate_x", "add affine");
	REFUSED(f->translate_y = 0.1, "translate_y", "add affine");
	REFUSED((f->zoom_min = 0.5, f->zoom_max = 2), "zoom_min", "add affine");
	REFUSED(f->shear_x = 1, "shear_x", "add affine");
	REFUSED(f->shear_y = 1, "shear_y", "add affine");
	REFUSED(f->affine = 1, "affine", "add degrees");
	TAKEN((f->affine = 1, f->degrees = 10, f->fill = 9));
	REFUSED(f->blur_size = 3, "blur_size", "add blur, its probability");
	REFUSED(f->blur_size_max = 5, "blur_size_max", "add blur");
	REFUSED((f->blur_sigma_min = 1, f->blur_sigma_max = 2), "blur_sigma_min", "add blur");
	TAKEN((f->blur = 1, f->blur_size = 3, f->blur_size_max = 5, f->blur_sigma_min = 1,
	        f->blur_sigma_max = 2));
	REFUSED((f->erase_scale_min = 0.1, f->erase_scale_max = 0.2), "erase_scale_min",
	        "add erase, its probability");
	REFUSED((f->erase_ratio_min = 0.5, f->erase_ratio_max = 2), "erase_ratio_min", "add erase");
	REFUSED(f->erase_fill = PENSTOCK_ERASE_RANDOM, "erase_fill", "add erase");
	REFUSED((f->erase = 1, f->erase_levels = 0xff), "erase_levels", "erase_fill levels");
	TAKEN((f->erase = 1, f->erase_fill = PENSTOCK_ERASE_LEVELS, f->erase_levels = 0xff));
	TAKEN((f->blur = 1, f->gray = 1, f->erase = 1, f->vflip = 1)); /* these need nothing else */
}

static void crop_options_need_their_kind_of_crop(void **state)
{
	(void)state;
	REFUSED((f->crop = PENSTOCK_CROP_CENTER, f->scale_min = 0.5), "scale_min", "take crop random");
	REFUSED((f->crop = PENSTOCK_CROP_NONE, f->scale_max = 0.5), "scale_max", "take crop random");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->ratio_min = 1), "ratio_min", "take crop random");
	REFUSED((f->crop = PENSTOCK_CROP_CENTER, f->ratio_max = 1), "ratio_max", "take crop random");
	TAKEN((f->scale_min = 0.5, f->ratio_max = 1));
	REFUSED(f->resize_width = f->resize_height = 99, "resize_width", "take crop center or random_crop");
	REFUSED(f->resize_shorter = 99, "resize_shorter", "take crop center or random_crop");
	REFUSED((f->crop = PENSTOCK_CROP_NONE, f->resize_shorter = 99), "resize_shorter", "take crop center");
	REFUSED((f->crop = PENSTOCK_CROP_CENTER, f->resize_shorter = f->resize_width = f->resize_height = 99),
	        "resize_shorter 99", "together with resize_width and resize_height");
	TAKEN((f->crop = PENSTOCK_CROP_CENTER, f->resize_width = f->resize_height = 99));
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->resize_shorter = 99));
	REFUSED(f->padding_x = 4, "padding_x", "take crop random_crop");
	REFUSED((f->crop = PENSTOCK_CROP_CENTER, f->padding_y = 4), "padding_y", "take crop random_crop");
	REFUSED(f->padding_mode = PENSTOCK_PADDING_EDGE, "padding_mode", "take crop letterbox");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_mode = PENSTOCK_PADDING_EDGE,
	                f->resize_shorter = OUT_W),
	        "padding_mode", "with padding or without a resize");
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_mode = PENSTOCK_PADDING_EDGE));
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_mode = PENSTOCK_PADDING_EDGE,
	        f->resize_shorter = OUT_W, f->padding_x = 1));
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_mode = PENSTOCK_PADDING_EDGE,
	        f->resize_shorter = OUT_W - 1)); /* smaller than the crop */
	REFUSED(f->fill = 9, "fill", "add affine, or take crop letterbox or random_crop, padded");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->padding_mode = PENSTOCK_PADDING_EDGE, f->fill = 9),
	        "fill", "with a constant");
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->fill = 9));
	TAKEN((f->crop = PENSTOCK_CROP_LETTERBOX, f->fill = 9, f->interpolation = PENSTOCK_BICUBIC));
	TAKEN((f->crop = PENSTOCK_CROP_LETTERBOX, f->padding_mode = PENSTOCK_PADDING_EDGE));
	REFUSED((f->crop = PENSTOCK_CROP_LETTERBOX, f->padding_x = 4), "padding_x", "take crop random_crop");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->interpolation = PENSTOCK_BICUBIC), "interpolation",
	        "resize");
	REFUSED((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->dct_scale = 1), "dct_scale", "resize");
	TAKEN((f->interpolation = PENSTOCK_BICUBIC, f->dct_scale = 1));
	TAKEN((f->crop = PENSTOCK_CROP_RANDOM_CROP, f->interpolation = PENSTOCK_BICUBIC,
	        f->resize_shorter = 99));
}

static void u8_images_refuse_mean_and_std_unless_erase_uses_them(void **state)
{
	(void)state;
	REFUSED((f->dtype = PENSTOCK_U8, f->mean[1] = 0), "mean", "take dtype f32");
	REFUSED((f->dtype = PENSTOCK_U8, f->std[1] = 1), "std", "take dtype f32");
	REFUSED((f->dtype = PENSTOCK_U8, f->erase = 1, f->std[1] = 1), "std", "take dtype f32");
	TAKEN((f->dtype = PENSTOCK_F16, f->mean[1] = 0, f->std[1] = 1));
	TAKEN((f->dtype = PENSTOCK_U8, f->erase = 1, f->mean[1] = 0)); /* erased pixels get the mean */
	TAKEN((f->dtype = PENSTOCK_U8, f->erase = 1, f->erase_fill = PENSTOCK_ERASE_RANDOM, f->std[1] = 1));
}

static void a_field_that_follows_has_the_geometry_of_the_other(void **state)
{
	(void)state;
#define NEXT(change) (f = field_add(&s, "next.ppm", PENSTOCK_IMAGE), f->follow = "ppm", change)
	REFUSED(NEXT(f->crop = PENSTOCK_CROP_CENTER), "field next.ppm: crop", "this field follows field ppm");
	REFUSED(NEXT(f->hflip = 0), "hflip", "this field follows field ppm; set it there");
	REFUSED(NEXT((f->affine = 1, f->degrees = 9)), "affine", "this field follows field ppm");
	REFUSED(NEXT(f->views = 2), "views", "this field follows field ppm");
	REFUSED(NEXT(f->fill = 9), "fill", "add affine");
	TAKEN(NEXT((f->jitter = 1, f->hue = 0.1, f->blur = 1))); /* colours are its own */
	TAKEN((f->crop = PENSTOCK_CROP_CENTER, f->hflip = 0, NEXT(f->follow = "ppm")));
	TAKEN((f->crop = PENSTOCK_CROP_CENTER, f->hflip = 0,
	        NEXT((f->crop = PENSTOCK_CROP_CENTER, f->hflip = 0))));
	TAKEN((f->affine = 1, f->degrees = 9, NEXT(f->fill = 9)));
	REFUSED(field_add(&s, "seg.pgm", PENSTOCK_MASK)->fill = 9, "field seg.pgm: fill", "add affine");
	TAKEN((f->affine = 1, f->degrees = 9, field_add(&s, "seg.pgm", PENSTOCK_MASK)->fill = 9));
#undef NEXT
}

static void a_field_refuses_options_of_other_kinds(void **state)
{
	(void)state;
	REFUSED_OF(PENSTOCK_INT64, f->jitter = 1, "jitter", "int64 fields have no such option");
	REFUSED_OF(PENSTOCK_INT64, f->image_width = 64, "image_width", "int64 fields");
	REFUSED_OF(PENSTOCK_INT64, f->follow = "x", "follow", "int64 fields");
	REFUSED_OF(PENSTOCK_INT64, f->ndim = 1, "shape", "int64 fields");
	REFUSED_OF(PENSTOCK_INT64, f->source_dtype = PENSTOCK_I32, "source_dtype", "int64 fields");
	REFUSED_OF(PENSTOCK_FLOAT, f->missing_value = 3, "missing_value", "float fields");
	TAKEN_OF(PENSTOCK_INT64, (f->missing_value = 3, f->optional = 1, f->dtype = PENSTOCK_U8));
	REFUSED_OF(PENSTOCK_BYTES, f->dtype = PENSTOCK_F32, "dtype", "bytes fields");
	REFUSED_OF(PENSTOCK_BYTES, f->missing_value = 3, "missing_value", "empty");
	REFUSED_OF(PENSTOCK_BYTES, f->overflow = PENSTOCK_OVERFLOW_BAD, "overflow", "add max_bytes");
	REFUSED_OF(PENSTOCK_BYTES, (f->pad_to = PENSTOCK_PAD_LONGEST, f->overflow = PENSTOCK_OVERFLOW_BAD),
	        "overflow", "pad_to with a number");
	REFUSED_OF(PENSTOCK_BYTES, f->pad_value = 3, "pad_value", "add pad_to");
	REFUSED_OF(PENSTOCK_BYTES, (f->pad_to = 9, f->box_shares = 1), "box_shares", "bytes fields");
	TAKEN_OF(PENSTOCK_BYTES, (f->pad_to = 9, f->pad_value = 3, f->overflow = PENSTOCK_OVERFLOW_BAD));
	TAKEN_OF(PENSTOCK_BYTES, (f->max_bytes = 9, f->overflow = PENSTOCK_OVERFLOW_BAD));
	REFUSED_OF(PENSTOCK_JSON, f->dtype = PENSTOCK_F32, "dtype", "name a value in the JSON");
	REFUSED_OF(PENSTOCK_JSON, (f->ndim = 1, f->shape[0] = 4), "shape", "name a value in the JSON");
	TAKEN_OF(PENSTOCK_JSON, (f->name = "box.json:b", f->dtype = PENSTOCK_F32, f->ndim = 2,
	                                f->shape[0] = 2, f->shape[1] = 4));
	REFUSED(field_add(&s, "seg.pgm", PENSTOCK_MASK)->interpolation = PENSTOCK_BICUBIC, "interpolation",
	        "mask fields");
}

/* The options of mixing are the loader's, not a field's: their errors are worded differently. */
static void mix_probability_and_cutmix_share_need_alphas(void **state)
{
	(void)state;
	REFUSED(s.o.mix_probability = 0.5, "mix_probability 0.5", "add mixup_alpha or cutmix_alpha");
	REFUSED((s.o.mixup_alpha = 1, s.o.cutmix_share = 0.7), "cutmix_share 0.7",
	        "add mixup_alpha and cutmix_alpha");
	TAKEN((s.o.mixup_alpha = 1, s.o.mix_probability = 0.5));
	TAKEN((s.o.mixup_alpha = s.o.cutmix_alpha = 1, s.o.cutmix_share = 0.7));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(operations_need_a_probability_and_a_strength),
	        cmocka_unit_test(crop_options_need_their_kind_of_crop),
	        cmocka_unit_test(u8_images_refuse_mean_and_std_unless_erase_uses_them),
	        cmocka_unit_test(a_field_that_follows_has_the_geometry_of_the_other),
	        cmocka_unit_test(a_field_refuses_options_of_other_kinds),
	        cmocka_unit_test(mix_probability_and_cutmix_share_need_alphas),
	};

	return cmocka_run_group_tests_name("effect", tests, setup, teardown);
}
