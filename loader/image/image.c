#include "image/image.h"

#include <errno.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/number.h"
#include "base/size.h"
#include "image/picture.h"
#include "image/pixel/pixel.h"

#define SHRINK_MOST 8u

/* A view's state while its image is decoded. */
struct work {
	struct ps_resize *resize;
	struct ps_region region; /* the region of the source that the view needs */
	uint8_t *planes;      /* u8 pixels, if transforms or padding follow; else rows are written to dst */
	struct ps_wide *wide; /* NULL: the spec's pictures are 8-bit RGB */
};

/* Memory for decoding an image. A leader and its followers share one set, so a sample of hundreds of images
 * takes the memory of one. */
struct tools {
	struct ps_image_reader *source;
	uint32_t nworks;
	struct work *works; /* one for each view */
	uint8_t *spare;     /* planes for transforms */
};

struct ps_image_decoder {
	struct ps_image_spec spec;
	struct tools *tools; /* its own, or the leader's */
	bool owns;           /* `tools` is its own */
	const struct ps_image_decoder *leader;
	struct ps_image_size size; /* size of the last image */
	bool truncated;            /* the last image was */
	uint32_t nviews;
	struct ps_image_view *views;
	float scale[3], bias[3];
	float levels[3][256]; /* normalised values by pixel value; `halves` has them in 16 bits */
	uint16_t halves[3][256];
};

void ps_image_levels(const struct ps_image_spec *spec, float ret_scale[static 3], float ret_bias[static 3])
{
	for (int c = 0; c < 3; c++) {
		ret_scale[c] = (float)(1 / (255 * (double)spec->std[c]));
		ret_bias[c] = (float)(-(double)spec->mean[c] / (double)spec->std[c]);
	}
}

static void tools_free(struct tools *t)
{
	if (!t)
		return;
	ps_image_reader_free(t->source);
	for (uint32_t v = 0; v < t->nworks && t->works; v++) {
		ps_resize_free(t->works[v].resize);
		free(t->works[v].planes);
		ps_wide_free(t->works[v].wide);
	}
	free(t->works);
	free(t->spare);
	free(t);
}

/* NULL: no memory. */
static struct tools *tools_new(const struct ps_image_spec *spec)
{
	const struct ps_image_limits limits = {.max_pixels = spec->max_pixels,
	        .max_memory = spec->max_memory,
	        .ticket = spec->ticket,
	        .truncated = spec->truncated};
	struct tools *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	const bool is_wide = ps_image_is_wide(spec);
	t->source = ps_image_reader_new(is_wide ? PS_PIXELS_RGBA16 : PS_PIXELS_RGB, spec->orient, &limits);
	t->nworks = ps_image_views(spec);
	t->works = calloc(t->nworks, sizeof(*t->works));
	bool sound = t->source && t->works;
	for (uint32_t v = 0; v < t->nworks && sound; v++)
		sound = (t->works[v].resize = ps_resize_new(ps_resize_cpu_best())) != NULL &&
		        (!is_wide || (t->works[v].wide = ps_wide_new()) != NULL);
	if (sound)
		return t;
	tools_free(t);
	return NULL;
}

struct ps_image_decoder *ps_image_decoder_new(const struct ps_image_spec *spec, struct ps_error *err)
{
	if (ps_image_spec_check(spec, err) < 0)
		return NULL;
	struct ps_image_decoder *d = calloc(1, sizeof(*d));
	if (d) {
		d->spec = *spec;
		if (ps_dtype_is_float(spec->dtype))
			ps_image_levels(spec, d->scale, d->bias);
		for (uint32_t i = 0; ps_dtype_is_float(spec->dtype) && i < 3 * 256; i++) {
			uint32_t c = i / 256, v = i % 256;
			float level = ps_pixel_normalised(v, d->scale[c], d->bias[c]);
			d->levels[c][v] = level;
			d->halves[c][v] = spec->dtype == PS_F16 ? ps_f16_of(level) : ps_bf16_of(level);
		}
		d->nviews = ps_image_views(spec);
		d->views = calloc(d->nviews, sizeof(*d->views));
		d->tools = tools_new(spec);
		d->owns = true;
	}
	if (d && d->views && d->tools)
		return d;
	ps_image_decoder_free(d);
	ps_error_set(err, ENOMEM, "image: out of memory for a decoder");
	return NULL;
}

void ps_image_decoder_free(struct ps_image_decoder *decoder)
{
	if (!decoder)
		return;
	if (decoder->owns)
		tools_free(decoder->tools);
	free(decoder->views);
	free(decoder);
}

void ps_image_decoder_follow(struct ps_image_decoder *decoder, const struct ps_image_decoder *leader)
{
	const struct ps_image_spec *s = &decoder->spec, *l = &leader->spec;
	decoder->leader = leader;
	if (decoder->nviews != leader->nviews || s->out_width != l->out_width ||
	        s->out_height != l->out_height || s->orient != l->orient || s->max_pixels != l->max_pixels ||
	        s->max_memory != l->max_memory || s->ticket != l->ticket || s->truncated != l->truncated ||
	        ps_image_is_wide(s) != ps_image_is_wide(l))
		return;
	tools_free(decoder->tools);
	decoder->tools = leader->tools;
	decoder->owns = false;
}

/* Before decoding: the region of each view -------------------------------------------------------------- */

static int views_draw(struct ps_image_decoder *d, struct ps_image_size size, const struct ps_rng_key *key,
        struct ps_error *err)
{
	const struct ps_image_spec *s = &d->spec;
	const struct ps_image_decoder *leader = d->leader;
	d->size = size;
	for (uint32_t v = 0; v < d->nviews; v++) {
		struct ps_rng_key own = *key;
		own.view += s->first_view + v;
		if (!leader)
			ps_augment_geometry(s, size.width, size.height, &own, &d->views[v].geometry);
		ps_transform_draw(s, &own, &d->views[v].transform);
	}
	if (!leader)
		return 0;
	if (d->size.width != leader->size.width || d->size.height != leader->size.height)
		return ps_error_set(err, EBADMSG,
		        "image: is %u x %u, but the image that it follows is %u x %u", d->size.width,
		        d->size.height, leader->size.width, leader->size.height);
	for (uint32_t v = 0; v < d->nviews && v < leader->nviews; v++) {
		d->views[v].geometry = leader->views[v].geometry;
		d->views[v].geometry.shrunk = 0;
		d->views[v].transform.affine = leader->views[v].transform.affine;
		d->views[v].transform.map = leader->views[v].transform.map;
	}
	return 0;
}

/* The largest of 1, 2, 4 and 8 such that every crop is shrunk by that factor or more. */
static uint32_t shrinkable(struct ps_image_decoder *const *decoders, uint32_t n)
{
	uint32_t by = SHRINK_MOST;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t v = 0; v < decoders[i]->nviews; v++) {
			const struct ps_resize_geometry *g = &decoders[i]->views[v].geometry;
			while (by > 1 && (g->box_w / by < g->scaled_w || g->box_h / by < g->scaled_h))
				by /= 2;
		}
	}
	return by;
}

static bool transforms_here(const struct ps_image_decoder *d, const struct ps_transform *t)
{
	return !d->spec.deferred && ps_transform_acts(t);
}

/* True if the view needs steps after the resize. */
static bool has_planes(const struct ps_image_decoder *d, const struct ps_image_view *view)
{
	return view->geometry.pad.width > 0 || transforms_here(d, &view->transform);
}

static int planes_reserve(struct ps_image_decoder *d, struct work *w)
{
	size_t nbytes = (size_t)d->spec.out_width * d->spec.out_height * 3;
	if (!w->planes)
		w->planes = malloc(nbytes + 2); /* the blur stores 16-bit numbers in `spare` */
	if (!d->tools->spare)
		d->tools->spare = malloc(nbytes + 2);
	return w->planes && d->tools->spare ? 0 : -ENOMEM;
}

static void region_join(struct ps_region *all, const struct ps_region *r)
{
	uint32_t right = PS_MAX(all->x + all->width, r->x + r->width);
	uint32_t bottom = PS_MAX(all->y + all->height, r->y + r->height);
	if (all->width == 0) {
		*all = *r;
		return;
	}
	all->x = PS_MIN(all->x, r->x);
	all->y = PS_MIN(all->y, r->y);
	all->width = right - all->x;
	all->height = bottom - all->y;
}

/* Sets up the resizes of a decoder's views, and extends *all by the regions that they need. */
static int views_begin(
        struct ps_image_decoder *d, uint32_t shrunk, void *dst, struct ps_region *all, size_t *slack)
{
	size_t view_nbytes = ps_image_nbytes(&d->spec) / d->nviews;
	for (uint32_t v = 0; v < d->nviews; v++) {
		struct work *w = &d->tools->works[v];
		struct ps_image_view *view = &d->views[v];
		struct ps_resize_sink sink = {.dst = (uint8_t *)dst + v * view_nbytes,
		        .dtype = d->spec.dtype,
		        .layout = d->spec.layout};
		view->geometry.shrunk = shrunk;
		if (ps_resize_plan(w->resize, &view->geometry, d->spec.interpolation) < 0)
			return -ENOMEM;
		if (w->wide) {
			if (ps_wide_begin(w->wide, &d->spec, &view->geometry, w->resize) < 0)
				return -ENOMEM;
		} else if (has_planes(d, view)) {
			if (planes_reserve(d, w) < 0)
				return -ENOMEM;
			sink = (struct ps_resize_sink){.dst = w->planes, .dtype = PS_U8, .layout = PS_NCHW};
		}
		for (int c = 0; c < 3; c++) {
			sink.scale[c] = d->scale[c];
			sink.bias[c] = d->bias[c];
		}
		ps_resize_begin(w->resize, &sink);
		ps_resize_source(w->resize, &w->region);
		region_join(all, &w->region);
		*slack = PS_MAX(*slack, ps_resize_slack(w->resize));
	}
	return 0;
}

/* After decoding: transforms, and normalising ----------------------------------------------------------- */

static void pack_channel(const struct ps_image_decoder *d, int c, const uint8_t *from, size_t n, void *dst)
{
	const bool planar = d->spec.layout == PS_NCHW;
	const size_t step = planar ? 1 : 3, first = planar ? (size_t)c * n : (size_t)c;
	if (d->spec.dtype == PS_U8) {
		for (size_t i = 0; i < n; i++)
			((uint8_t *)dst)[first + i * step] = from[i];
	} else if (d->spec.dtype == PS_F32) {
		for (size_t i = 0; i < n; i++)
			((float *)dst)[first + i * step] = d->levels[c][from[i]];
	} else {
		for (size_t i = 0; i < n; i++)
			((uint16_t *)dst)[first + i * step] = d->halves[c][from[i]];
	}
}

/* Pads the window to the whole picture. */
static void pad(const struct ps_image_decoder *d, const struct ps_resize_geometry *g,
        struct ps_planes *planes, uint8_t **spare)
{
	const uint8_t fill = (uint8_t)d->spec.transforms.fill;
	uint8_t *to = *spare;
	for (size_t c = 0; c < 3; c++)
		ps_pad_apply(g, 1, planes->p + c * g->window_w * g->window_h, &fill,
		        to + c * planes->width * planes->height);
	*spare = planes->p;
	planes->p = to;
}

static int views_finish(struct ps_image_decoder *d, void *dst, struct ps_error *err)
{
	size_t n = (size_t)d->spec.out_width * d->spec.out_height;
	size_t view_nbytes = ps_image_nbytes(&d->spec) / d->nviews;
	for (uint32_t v = 0; v < d->nviews; v++) {
		const struct ps_transform *t = &d->views[v].transform;
		struct ps_planes planes = {d->tools->works[v].planes, d->spec.out_width, d->spec.out_height};
		if (d->tools->works[v].wide) {
			if (ps_wide_finish(d->tools->works[v].wide, (uint8_t *)dst + v * view_nbytes) < 0)
				return ps_error_set(err, ENOMEM,
				        "image: out of memory for a picture of %u x %u", d->spec.out_width,
				        d->spec.out_height);
			continue;
		}
		if (!has_planes(d, &d->views[v]))
			continue;
		if (d->views[v].geometry.pad.width > 0)
			pad(d, &d->views[v].geometry, &planes, &d->tools->spare);
		if (transforms_here(d, t))
			ps_transform_apply(t, &d->spec.transforms, &planes, &d->tools->spare);
		d->tools->works[v].planes = planes.p;
		for (int c = 0; c < 3; c++)
			pack_channel(d, c, planes.p + (size_t)c * n, n, (uint8_t *)dst + v * view_nbytes);
	}
	return 0;
}

/* The decode --------------------------------------------------------------------------------------------- */

static void feed(struct ps_image_decoder *const *decoders, uint32_t n, const struct ps_region *all,
        uint32_t y, const uint8_t *row)
{
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t v = 0; v < decoders[i]->nviews; v++) {
			const struct work *w = &decoders[i]->tools->works[v];
			if (y < w->region.y || y - w->region.y >= w->region.height)
				continue;
			if (w->wide)
				ps_wide_row(w->wide, (const uint16_t *)(const void *)row +
				                             (size_t)(w->region.x - all->x) * 4);
			else
				ps_resize_row(w->resize, row + (size_t)(w->region.x - all->x) * 3);
		}
	}
}

/* Passes the region's rows through the resizes as they are decoded, while they are in the CPU's cache. */
static int stream_rows(struct ps_image_decoder *const *decoders, uint32_t n, const struct ps_region *all,
        struct ps_error *err)
{
	struct ps_image_rows rows = {0};
	for (uint32_t y = 0; y < all->height; y += rows.n) {
		int rc = ps_image_reader_rows(decoders[0]->tools->source, &rows, err);
		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < rows.n; i++)
			feed(decoders, n, all, all->y + y + i, rows.first + i * rows.stride);
	}
	return 0;
}

int ps_image_decode_shared(struct ps_image_decoder *const *decoders, void *const *dsts, uint32_t n,
        const void *data, size_t nbytes, const struct ps_rng_key *key, struct ps_error *err)
{
	struct ps_image_reader *source = decoders[0]->tools->source;
	struct ps_image_size size;
	struct ps_region all = {0};
	uint32_t shrunk = 1;
	size_t slack = 0;
	int rc = ps_image_reader_open(source, data, nbytes, &size, err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = views_draw(decoders[i], size, key, err);
	if (rc == 0 && decoders[0]->spec.dct_scale)
		shrunk = ps_image_reader_shrink(source, shrinkable(decoders, n));
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		if (views_begin(decoders[i], shrunk, dsts[i], &all, &slack) < 0)
			rc = ps_error_set(err, ENOMEM, "image: out of memory resizing %u x %u", size.width,
			        size.height);
	}
	if (rc == 0)
		rc = ps_image_reader_start(source, &all, slack, err);
	if (rc == 0)
		rc = stream_rows(decoders, n, &all, err);
	decoders[0]->truncated = rc == 0 && ps_image_reader_is_truncated(source);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = views_finish(decoders[i], dsts[i], err);
	ps_image_reader_close(source);
	for (uint32_t i = 0; i < n && rc < 0; i++)
		decoders[i]->size = (struct ps_image_size){0};
	return rc;
}

int ps_image_decode(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_error *err)
{
	return ps_image_decode_shared(&decoder, &dst, 1, data, nbytes, key, err);
}

int ps_image_sketch(struct ps_image_decoder *d, const void *data, size_t nbytes, const struct ps_rng_key *key,
        struct ps_image_outline *ret_outline, struct ps_error *err)
{
	struct ps_image_outline o = {0};
	struct ps_resize *resize = d->tools->works[0].resize;
	struct ps_resize_geometry *g = &d->views[0].geometry;
	int rc = ps_image_reader_open(d->tools->source, data, nbytes, &o.stored, err);
	if (rc == 0)
		rc = views_draw(d, o.stored, key, err);
	/* the CPU decodes images that are padded */
	o.plain_jpeg = rc == 0 && g->pad.width == 0 && ps_image_reader_is_plain_jpeg(d->tools->source);
	if (o.plain_jpeg) {
		g->shrunk = 1;
		if (ps_resize_plan(resize, g, d->spec.interpolation) < 0) {
			rc = ps_error_set(err, ENOMEM, "image: out of memory resizing %u x %u",
			        o.stored.width, o.stored.height);
		} else {
			ps_resize_source(resize, &o.region);
			ps_resize_tables(resize, &o.resize);
		}
	}
	*ret_outline = o;
	ps_image_reader_close(d->tools->source);
	if (rc < 0)
		d->size = (struct ps_image_size){0};
	return rc;
}

bool ps_image_decoder_is_truncated(const struct ps_image_decoder *decoder)
{
	return decoder->truncated;
}

struct ps_image_placement ps_image_decoder_placement(const struct ps_image_decoder *decoder)
{
	return (struct ps_image_placement){.width = decoder->size.width,
	        .height = decoder->size.height,
	        .nviews = decoder->nviews,
	        .views = decoder->views};
}
