/* pack: images made smaller, or of another format, on their way into a shard.
 *
 * Pixels are those that the loader makes of the file (bilinear, antialiased, as torchvision's Resize), turned
 * as its EXIF says; metadata is left out. The same file, options and libraries give the same bytes. What need
 * not change is kept as it is: an image that is small enough and of the right format.
 *
 * Ownership: results are the caller's, from malloc().   Threads: any.   Blocks: on the processor.
 * Errors: -EBADMSG (cannot be decoded), -EINVAL (cannot become what is asked for), -ENOMEM; with a text. */
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
	uint32_t resize; /* a longer shorter side becomes this; 0: none does */
	enum ps_recode_format to;
	int quality;        /* 1 to 100 */
	const char *images; /* last suffixes of the names of images, with ';' between them */
};

bool ps_recode_acts(const struct ps_recode *options);

/* Whether a file of that name is taken for an image. */
bool ps_recode_wants(const struct ps_recode *options, const char *name, size_t len);

/* The name that it gets then, the last suffix changed if it says another format; NULL: no memory. */
char *ps_recode_name(const struct ps_recode *options, const char *name, size_t len);

/* 1: the result is in *ret_out; 0: it stays as it is. */
int ps_recode_image(const struct ps_recode *options, const uint8_t *data, size_t nbytes, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_load_error *err) PS_MUST_USE;

#endif
