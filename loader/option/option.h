/* The table of all options of a loader and of its fields: the members of penstock_options and
 * penstock_field.
 *
 * A row has an option's name, type, range, unit and default, the kinds of field that have it, what it needs
 * to have an effect, whether a state depends on it, and its text for --help, Python's help and the manual.
 * Users of the table:
 *
 *   open_options.c       defaults (penstock_options_init()), ranges of integers
 *   batch/               defaults (penstock_field_init()); options without an effect are refused (enum
 *                        ps_need)
 *   state.c              what a state compares
 *   tools/               flags of penstock-loader, "--image-option"; flags in the texts of errors
 *   python/options.c     keywords of Loader() and Field(), their words, help(penstock.Loader)
 *
 * Ranges of reals, and what depends on other options, are checked where the option is used;
 * tests/loader/options_test.c compares the table with that code, tests/scripts/options.sh with the pages
 * and tests.
 *
 * To add an option: a member at the end of its struct in penstock.h, a row at the end of its table, the code
 * that uses it, a paragraph in penstock_options_init(3) or penstock_field_init(3), a test. The order of rows
 * must not change: states (PS_PRINT_*) and checks depend on it.
 *
 * This file includes only penstock.h, since the Python module, which links the public library only, has its
 * own copy of the table.
 * Threads: any.   Ownership: all data is static. */
#ifndef PS_OPTION_TABLE_H
#define PS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* Limits that are also used elsewhere. */
#define PS_OPTIONS_MAX_BATCH 65536u
#define PS_OPTIONS_MAX_THREADS 1024u
/* Default number of reading threads on a mount; elsewhere the default is at most this. */
#define PS_OPTIONS_READERS 8u

enum ps_option_type {
	PS_OPTION_U32,
	PS_OPTION_U64,
	PS_OPTION_I64,
	PS_OPTION_F64,
	PS_OPTION_F32X3, /* float[3]: one number for all channels, or one for each */
	PS_OPTION_TEXT,
	PS_OPTION_SHAPE,  /* a field's ndim and shape; the row describes ndim */
	PS_OPTION_MIX,    /* an array of doubles; its length is the uint32_t before it */
	PS_OPTION_STAGES, /* stages of a mix; their number is the uint32_t after them */
	PS_OPTION_NAMES,  /* texts, one for each dataset of a mix */
	PS_OPTION_WORDS,  /* an array of 64-bit words; its length is the uint64_t after it */
	PS_OPTION_BLOB,   /* bytes; their number is the size_t after them */
	PS_OPTION_BUDGET, /* a penstock_budget */
};

/* What an option of a field needs to have an effect, besides its kind. */
enum ps_need {
	PS_NEEDS_NOTHING,
	PS_NEEDS_PATH,
	PS_NEEDS_ARRAY,
	PS_NEEDS_FIXED,
	PS_NEEDS_LONGEST,
	PS_NEEDS_BOUND,
	PS_NEEDS_PADDING,
	PS_NEEDS_RANDOM,
	PS_NEEDS_RANDOM_CROP,
	PS_NEEDS_CROP,
	PS_NEEDS_RESIZE,
	PS_NEEDS_PADDED_CROP,
	PS_NEEDS_OUTSIDE,
	PS_NEEDS_MEAN,
	PS_NEEDS_STD,
	PS_NEEDS_AFFINE,
	PS_NEEDS_MAP,
	PS_NEEDS_JITTER,
	PS_NEEDS_COLOURS,
	PS_NEEDS_BLUR,
	PS_NEEDS_NOISE,
	PS_NEEDS_SIGMA,
	PS_NEEDS_ERASE,
	PS_NEEDS_LEVELS,
	PS_NEEDS_PACK,
	PS_NEEDS_WHOLE,
	PS_NEEDS_CU,
	PS_NNEEDS,
};

/* How the print of a state (its fingerprint of the options, state.h) depends on an option. */
enum ps_option_print {
	/* name and value are hashed if the value is not the default, so that older states stay valid */
	PS_PRINT_IF_SET = 0,
	/* As in states of the first versions: */
	PS_PRINT_OWN = 1, /* state.c has code for it */
	/* the options of images: integers, then reals, then texts. The next three are such groups, too: */
	PS_PRINT_IMAGE = 2,
	PS_PRINT_COLUMN = 4,  /* fields that are not images */
	PS_PRINT_PICTURE = 8, /* images, masks and boxes */
	PS_PRINT_LATER = 16,  /* the same kinds; left out if no option of the group is set */
	PS_PRINT_NEVER = 32,  /* batches do not depend on it */
};

struct ps_option {
	const char *name; /* of the member, and in Python; the flag's name has '-' for '_' */
	enum ps_option_type type;
	size_t at, nbytes;        /* place in its struct */
	const char *const *words; /* names of the values 0, 1, ...; NULL: a plain number */
	double least,
	        most; /* range of numbers; most 0: limited by the type only. The default is always allowed. */
	double initial;
	const char *unit; /* unit of the range; may be set without a range */
	const char *text; /* description */
	/* for an option that no longer exists: any value but the default is refused with this text, which
	 * says what to do instead; NULL: the option exists */
	const char *gone;
	const char *unset; /* what the default means; NULL: `initial` is shown; "": nothing is shown */
	/* how help shows the value of penstock-loader's flag: "N"; PS_FLAG_WORDS: `words`; NULL: no flag */
	const char *flag;
	uint32_t print; /* PS_PRINT_* */
	/* Of fields: */
	uint32_t kinds; /* kinds that have it: bits 1 << enum penstock_kind */
	bool placing;   /* an image that follows another image takes the option from that image */
	enum ps_need need;
};

#define PS_FLAG_WORDS ""

extern const struct ps_option ps_loader_options[], ps_field_options[];
extern const size_t ps_n_loader_options, ps_n_field_options;

extern const char *const ps_kind_words[];  /* names of enum penstock_kind, ends with NULL */
extern const char *const ps_dtype_words[]; /* names of enum penstock_dtype */

/* A loader's option, or a field's, by its name of `n` bytes; NULL: unknown. */
const struct ps_option *ps_loader_option(const char *name, size_t n);
const struct ps_option *ps_field_option(const char *name, size_t n);

/* Writes the default into the option's struct. Arrays and texts are not written: their default is 0. */
void ps_option_init(const struct ps_option *option, void *base);

/* The value in the struct: U32, U64 and SHAPE (ndim); I64 as its bits. */
uint64_t ps_option_number(const struct ps_option *option, const void *base);

/* The largest value of an integer option. */
uint64_t ps_option_most(const struct ps_option *option);

/* The word for a number; NULL: none. */
const char *ps_option_word(const struct ps_option *option, uint64_t number);

/* Writes the range: "1 to 65536", "a | b"; "": none. The text is cut to `size`, as are those of the next two
 * functions. */
void ps_option_range(const struct ps_option *option, char *buf, size_t size);

/* Writes description, range and default as a line of help: "samples of a batch, 1 to 65536 (64)". */
void ps_option_describe(const struct ps_option *option, char *buf, size_t size);

/* The same without the range, for a flag's --help, where the flag's argument shows the values. */
void ps_option_help(const struct ps_option *option, char *buf, size_t size);

#endif
