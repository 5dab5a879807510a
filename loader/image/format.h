/* Private to this folder: the formats. */
#ifndef PS_IMAGE_FORMAT_H
#define PS_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "image/image.h"

/* Formats ------------------------------------------------------------------------------------------------ */

/* The interface of an image format: compressed bytes in, rows of a region out. Each format has a table of
 * functions; reader.c chooses a table by a file's first bytes.
 *
 * Life of an image: open, start, rows until all are taken, close. Close is allowed at any time and twice;
 * after an error the image is closed. Between open and close the bytes are borrowed.
 * Ownership: what make() returns belongs to its caller.   Threads: one at a time.   Locks: none.
 * Blocks: open and start may wait for memory, as ps_format_take_memory() does; the others never.
 * Errors: 0, -EBADMSG (damaged, truncated, of an unsupported kind, over a limit) or -ENOMEM, with a text that
 * begins with the format's name. */

struct ps_format {
	const char *name;
	bool has_wide; /* open() takes PS_PIXELS_RGBA16: files of this format may have alpha or 16 bits */

	size_t nbytes;         /* of the state, where it begins with zeros and there is no make() */
	void *(*make)(void);   /* NULL: no memory */
	void (*free)(void *f); /* NULL is allowed */

	int (*open)(void *f, const uint8_t *data, size_t nbytes, enum ps_pixels pixels,
	        const struct ps_image_limits *limits, struct ps_image_size *ret_size, struct ps_error *err);

	/* See ps_image_reader_shrink(). NULL: the format cannot shrink. */
	void (*shrink)(void *f, uint32_t by);

	/* The caller reads slack_nbytes beyond the end of each row (and ignores the values), so the
	 * format's buffers must have room for them. */
	int (*start)(void *f, const struct ps_region *region, size_t slack_nbytes, struct ps_error *err);

	/* The next rows, valid until the next call. Not to be called when all have been taken. */
	int (*rows)(void *f, struct ps_image_rows *ret_rows, struct ps_error *err);

	void (*close)(void *f); /* NULL: nothing is to be closed */

	/* Between open and start: true if a GPU can decode the file's colour space: YCbCr or gray. NULL:
	 * GPUs cannot decode this format. */
	bool (*for_gpu)(const void *f);

	/* Between the last rows and close: true if the file lacks its end, which limits.truncated allowed. NULL:
	 * truncated files of this format are always refused. */
	bool (*truncated)(const void *f);

	/* Writes the name of the format's library and the version that is loaded: "libpng 1.6.39".
	 * libjpeg-turbo does not report the loaded version: its text has the version of the headers. NULL:
	 * the format uses no library. */
	void (*library)(char *buf, size_t n);

	/* The orientation by the file's metadata, 1 to 8, or 0 if the file has none; needs no decoder. EXIF is used
	 * before XMP, as in Pillow's exif_transpose(). NULL: the format has no metadata. -ENOMEM. */
	int (*orientation)(
	        const uint8_t *data, size_t nbytes, uint32_t *ret_orientation, struct ps_error *err);
};

extern const struct ps_format ps_format_jpeg;
extern const struct ps_format ps_format_png;  /* HAVE_PNG */
extern const struct ps_format ps_format_webp; /* HAVE_WEBP */
extern const struct ps_format ps_format_pnm;

/* The orientation in EXIF data (a TIFF structure, with or without "Exif\0\0" before it), or in the text of XMP:
 * 1 to 8, or 0 if the data has none or is damaged. A value that is not defined is 1. Data may be NULL. */
uint32_t ps_exif_orientation(const uint8_t *exif, size_t nbytes);
uint32_t ps_xmp_orientation(const void *xmp, size_t nbytes);

/* -EBADMSG with a text if width x height is over the limits, or empty. */
int ps_format_check_size(const char *name, uint32_t width, uint32_t height,
        const struct ps_image_limits *limits, struct ps_error *err) PS_MUST_USE;

/* Takes nbytes of the memory that all decoders share, with limits->ticket; waits for it, as image.h says.
 * `what` is the purpose of the memory, for the error text. -EBADMSG with a text: more than
 * limits->max_memory. */
int ps_format_take_memory(const char *name, const char *what, uint64_t nbytes,
        const struct ps_image_limits *limits, struct ps_error *err) PS_MUST_USE;

/* Makes a buffer of `cap` bytes at least nbytes long. The new memory is zeroed, since callers read beyond the rows
 * (slack_nbytes); the old contents are lost. False: out of memory. */
bool ps_format_reserve(uint8_t **buf, size_t *cap, size_t nbytes) PS_MUST_USE;

/* Widens the bytes of a row of labels to uint16_t, in place. */
void ps_format_widen(uint8_t *row, uint32_t width);

#endif
