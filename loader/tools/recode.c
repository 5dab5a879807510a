#include "config.h"

#include "tools/recode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#ifdef HAVE_WEBP
#include <webp/encode.h>
#endif

#include "base/cleanup.h"
#include "image/image.h"
#include "tools/tools.h"

bool ps_recode_acts(const struct ps_recode *o)
{
	return o->resize > 0 || o->to != PS_RECODE_SAME;
}

/* Names -------------------------------------------------------------------------------------------------- */

/* The text after the last dot. */
static const char *last_suffix(const char *name, size_t len)
{
	const char *dot = memrchr(name, '.', len);

	return dot ? dot + 1 : name + len;
}

static bool is_one_of(const char *suffix, size_t n, const char *list)
{
	for (const char *p = list; *p; p += p[strcspn(p, ";")] ? strcspn(p, ";") + 1 : strcspn(p, ";"))
		if (n > 0 && strcspn(p, ";") == n && strncasecmp(p, suffix, n) == 0)
			return true;
	return false;
}

bool ps_recode_wants(const struct ps_recode *o, const char *name, size_t len)
{
	const char *suffix = last_suffix(name, len);

	return is_one_of(suffix, len - (size_t)(suffix - name), o->images);
}

char *ps_recode_name(const struct ps_recode *o, const char *name, size_t len)
{
	const char *suffix = last_suffix(name, len);
	const char *fits = o->to == PS_RECODE_JPEG ? "jpg;jpeg" : "webp";

	if (o->to == PS_RECODE_SAME || is_one_of(suffix, len - (size_t)(suffix - name), fits))
		return ps_need(strndup(name, len));
	return ps_text("%.*s%s", (int)(suffix - name), name, o->to == PS_RECODE_JPEG ? "jpg" : "webp");
}

/* Encoding ----------------------------------------------------------------------------------------------- */

static int webp_encode(const uint8_t *rgb, struct ps_image_size size, int quality, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err)
{
#ifdef HAVE_WEBP
	uint8_t *out = NULL;
	size_t n = WebPEncodeRGB(
	        rgb, (int)size.width, (int)size.height, (int)size.width * 3, (float)quality, &out);

	*ret_out = n > 0 ? ps_need(malloc(n)) : NULL;
	if (*ret_out)
		memcpy(*ret_out, out, n);
	WebPFree(out);
	*ret_nbytes = n;
	if (*ret_out)
		return 1;
	return ps_error_set(err, EINVAL, "%u x %u: cannot become a WebP (at most %d a side)", size.width,
	        size.height, WEBP_MAX_DIMENSION);
#else
	(void)rgb, (void)size, (void)quality, (void)ret_out, (void)ret_nbytes;
	return ps_error_set(err, EINVAL, "this build has no libwebp, so no WebP can be written");
#endif
}

/* An image ----------------------------------------------------------------------------------------------- */

static enum ps_recode_format format_of(const uint8_t *p, size_t n)
{
	if (n > 2 && p[0] == 0xff && p[1] == 0xd8)
		return PS_RECODE_JPEG;
	return n > 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4) ? PS_RECODE_WEBP : PS_RECODE_SAME;
}

/* The size of the upright image. */
static int size_of(const uint8_t *data, size_t nbytes, struct ps_image_size *ret_size, struct ps_error *err)
{
	const struct ps_image_limits limits = {.max_pixels = PS_IMAGE_MAX_PIXELS_DEFAULT,
	        .max_scans = PS_IMAGE_MAX_SCANS_DEFAULT,
	        .max_memory = PS_IMAGE_MAX_MEMORY_DEFAULT};
	struct ps_image_reader *s = ps_need(ps_image_reader_new(PS_PIXELS_RGB, true, &limits));
	int rc = ps_image_reader_open(s, data, nbytes, ret_size, err);

	ps_image_reader_free(s);
	return rc;
}

static struct ps_image_size resized(const struct ps_recode *o, struct ps_image_size size)
{
	const uint64_t n = o->resize;

	if (n == 0 || PS_MIN(size.width, size.height) <= n)
		return size;
	if (size.width <= size.height)
		return (struct ps_image_size){(uint32_t)n, (uint32_t)(n * size.height / size.width)};
	return (struct ps_image_size){(uint32_t)(n * size.width / size.height), (uint32_t)n};
}

/* Decodes to pixels of that size, which the caller frees; NULL with err. */
static uint8_t *pixels_make(
        const uint8_t *data, size_t nbytes, struct ps_image_size size, struct ps_error *err)
{
	const struct ps_image_spec spec = {.out_width = size.width,
	        .out_height = size.height,
	        .crop = PS_CROP_NONE,
	        .dtype = PS_U8,
	        .layout = PS_NHWC,
	        .orient = true};
	const struct ps_rng_key key = {0};
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, err);
	uint8_t *rgb = d ? ps_need(malloc((size_t)size.width * size.height * 3)) : NULL;

	if (rgb && ps_image_decode(d, data, nbytes, &key, rgb, err) < 0)
		free(ps_steal_ptr(&rgb));
	ps_image_decoder_free(d);
	return rgb;
}

int ps_recode_image(const struct ps_recode *o, const uint8_t *data, size_t nbytes, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err)
{
	enum ps_recode_format from = format_of(data, nbytes), to = o->to == PS_RECODE_SAME ? from : o->to;
	struct ps_image_size size = {0}, small;
	ps_autofree uint8_t *rgb = NULL;
	int rc = size_of(data, nbytes, &size, err);

	if (rc < 0)
		return rc;
	small = resized(o, size);
	if (from == to && small.width == size.width && small.height == size.height)
		return 0;
	if (to == PS_RECODE_SAME)
		return ps_error_set(err, EINVAL,
		        "neither JPEG nor WebP, and no other format is written: --to jpeg or --to webp "
		        "converts it");
	rgb = pixels_make(data, nbytes, small, err);
	if (!rgb)
		return -err->err;
	if (to == PS_RECODE_WEBP)
		return webp_encode(rgb, small, o->quality, ret_out, ret_nbytes, err);
	rc = ps_jpeg_encode(rgb, small, o->quality, ret_out, ret_nbytes, err);
	return rc < 0 ? rc : 1;
}
