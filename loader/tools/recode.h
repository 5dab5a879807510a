/* pack: images are resized or converted to another format when they are packed.
 *
 * Pixels are those that the loader gets from the file (bilinear, antialiased, as torchvision's Resize),
 * turned by its EXIF orientation; metadata is dropped. The same file, options and libraries give the same
 * bytes. An image that is small enough and has the right format is kept unchanged.
 *
 * Ownership: the caller frees results, by free().   Threads: any.   Blocks: on the processor.
 * Errors: -EBADMSG (cannot be decoded) or -EINVAL (cannot be converted as requested), with a text. */
#ifndef PS_TOOLS_RECODE_H
#define PS_TOOLS_RECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum ps_recode_format {
	PS_RECODE_SAME = 0,
	PS_RECODE_JPEG,
	PS_RECODE_WEBP,
};

struct ps_recode {
	/* an image whose shorter side is longer than this is shrunk until that side has this length; 0: no
	 * resize */
	uint32_t resize;
	enum ps_recode_format to;
	int quality;        /* 1 to 100 */
	const char *images; /* last suffixes of image names, separated by ';' */
};

bool ps_recode_acts(const struct ps_recode *options);

/* Whether a file with that name counts as an image. */
bool ps_recode_wants(const struct ps_recode *options, const char *name, size_t len);

/* The name after recoding: the last suffix is changed if it names another format. */
char *ps_recode_name(const struct ps_recode *options, const char *name, size_t len);

/* 1: the result is in *ret_out; 0: the image is kept unchanged. */
int ps_recode_image(const struct ps_recode *options, const uint8_t *data, size_t nbytes, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;

#endif
