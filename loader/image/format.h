/* What an image format is to the rest: compressed bytes in, rows of a region out. One table of functions for
 * each format; source.h chooses among them by a file's first bytes.
 *
 * Life of an image: open, start, rows until all are taken, close. Close is allowed at any time and twice;
 * after an error the image is closed. Between open and close the bytes are borrowed.
 * Ownership: what make() returns belongs to its caller.   Threads: one at a time.   Locks: none.
 * Blocks: on the processor only.
 * Errors: 0, -EBADMSG (damaged, truncated, of an unsupported kind, over a limit) or -ENOMEM, with a text that
 * begins with the format's name. */
#ifndef PS_LOADER_IMAGE_FORMAT_H
#define PS_LOADER_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/load_error.h"
#include "image/gate.h"

/* What a pixel is in the rows handed out. */
enum ps_pixels {
	PS_PIXELS_RGB = 0,    /* three uint8_t; alpha is dropped, 16 bits lose their lower eight */
	PS_PIXELS_LABELS = 1, /* one uint16_t: the number as stored (gray value or place in the palette) */
};

static inline size_t ps_pixels_nbytes(enum ps_pixels pixels)
{
	return pixels == PS_PIXELS_RGB ? 3 : sizeof(uint16_t);
}

struct ps_image_limits {
	uint64_t max_pixels; /* by the header: checked before anything is decoded */
	uint32_t max_scans;  /* of a progressive JPEG */
	uint64_t max_memory; /* bytes that one image may need beyond a few rows: a progressive JPEG's
	                      * coefficients, an interlaced PNG, a WebP, an image that must be turned */
	struct ps_image_ticket
	        *ticket; /* that such memory is taken by, until the image is done; NULL: none */
};

/* As stored; never empty. */
struct ps_region {
	uint32_t x, y, width, height;
};

/* Rows of the region, top down: row i at first + i * stride. */
struct ps_image_rows {
	const uint8_t *first;
	size_t stride;
	uint32_t n; /* 1 or more */
};

struct ps_image_size {
	uint32_t width, height;
};

struct ps_format {
	const char *name;

	void *(*make)(void);   /* NULL: no memory */
	void (*free)(void *f); /* NULL is allowed */

	int (*open)(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
	        const struct ps_image_limits *limits, struct ps_image_size *ret_size,
	        struct ps_load_error *err);

	/* See ps_source_shrink(). NULL: the format cannot. */
	void (*shrink)(void *f, uint32_t by);

	/* slack_nbytes behind the end of each row will be readable; their values do not matter. */
	int (*start)(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_load_error *err);

	/* The next rows, valid until the next call. Not to be called when all have been taken. */
	int (*rows)(void *f, struct ps_image_rows *ret_rows, struct ps_load_error *err);

	void (*close)(void *f);

	/* Between open and start: whether GPUs' decoders know the colours: YCbCr or gray. NULL: never. */
	bool (*for_gpu)(const void *f);

	/* The TIFF structure of the file's EXIF data, or NULL; needs no decoder. */
	const uint8_t *(*exif)(const uint8_t *data, size_t nbytes, size_t *ret_nbytes);
};

extern const struct ps_format ps_format_jpeg;
extern const struct ps_format ps_format_png;  /* HAVE_PNG */
extern const struct ps_format ps_format_webp; /* HAVE_WEBP */
extern const struct ps_format ps_format_pnm;

/* -EBADMSG with a text if width x height is over the limits, or empty. */
int ps_format_check_size(const char *name, uint32_t width, uint32_t height,
        const struct ps_image_limits *limits, struct ps_load_error *err) PS_MUST_USE;

/* Takes nbytes for the whole of `what` by the ticket, which may wait. -EBADMSG with a text: over max_memory.
 */
int ps_format_check_memory(const char *name, const char *what, uint64_t nbytes,
        const struct ps_image_limits *limits, struct ps_load_error *err) PS_MUST_USE;

#endif
