#include "config.h"

#include "image/huffman.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "image/image.h"

#ifdef PS_JPEG_ENTROPY

#include <jerror.h>
#include <jpegint.h>

_Static_assert(
        sizeof(JCOEF) == sizeof(int16_t) && sizeof(JBLOCK) == 64 * sizeof(JCOEF), "coefficients of 16 bits");
_Static_assert(D_MAX_BLOCKS_IN_MCU <= PS_HUFFMAN_BLOCKS, "blocks of an MCU");

/* Called by libjpeg for each MCU; `mcu` is NULL where the MCU is skipped. */
static boolean decode_mcu(j_decompress_ptr c, JBLOCKROW *mcu)
{
	struct ps_huffman *h = c->client_data;
	int16_t *blocks[PS_HUFFMAN_BLOCKS];
	for (int i = 0; mcu && i < c->blocks_in_MCU; i++)
		blocks[i] = *mcu[i];
	switch (ps_huffman_mcu(h, mcu ? blocks : NULL)) {
	case PS_HUFFMAN_SOUND:
		break;
	case PS_HUFFMAN_TRUNCATED:
		WARNMS(c, JWRN_HIT_MARKER);
		break;
	case PS_HUFFMAN_BAD_CODE:
		WARNMS(c, JWRN_HUFF_BAD_CODE);
		break;
	}
	return TRUE;
}

static const struct ps_huffman_table *table(j_decompress_ptr c, struct ps_huffman *h, int number, bool ac)
{
	const JHUFF_TBL *t = ac ? c->ac_huff_tbl_ptrs[number] : c->dc_huff_tbl_ptrs[number];
	uint32_t place = (uint32_t)number + (ac ? NUM_HUFF_TBLS : 0);
	ps_huffman_table_make(h, place, t->bits, t->huffval);
	return &h->tables[place];
}

/* Replaces the entropy decoder. The library checked the tables when it started the pass. */
static bool replace(j_decompress_ptr c, struct ps_huffman *h)
{
	/* In a lossless scan (libjpeg-turbo 3) Ss is 1 to 7, and `entropy` points to a decoder of another
	 * type. */
	if (c->Ss != 0 || c->Se != DCTSIZE2 - 1 || c->progressive_mode || c->arith_code ||
	        c->restart_interval > 0 || jpeg_has_multiple_scans(c) || c->blocks_in_MCU > PS_HUFFMAN_BLOCKS)
		return false;
	h->nblocks = (uint32_t)c->blocks_in_MCU;
	for (int i = 0; i < c->blocks_in_MCU; i++) {
		int component = c->MCU_membership[i];
		const jpeg_component_info *p = c->cur_comp_info[component];
		h->blocks[i].component = (uint8_t)component;
		h->blocks[i].dc = table(c, h, p->dc_tbl_no, false);
		h->blocks[i].ac = table(c, h, p->ac_tbl_no, true);
	}
	ps_huffman_begin(h, c->src->next_input_byte, c->src->bytes_in_buffer);
	c->client_data = h;
	c->entropy->decode_mcu = decode_mcu;
	return true;
}

#else

static bool replace(j_decompress_ptr c, struct ps_huffman *h)
{
	(void)c;
	(void)h;
	return false;
}

#endif

/* The check ---------------------------------------------------------------------------------------------- */

/* Three small files of random coefficients, made for this check: gray, 4:2:0, 4:4:4. Their tables have codes
 * of 1 to 16 bits; there are stuffed bytes, runs of 16 zeros, and blocks that end without an end-of-block. */
static const uint8_t tables[] = {0xff, 0xd8, 0xff, 0xdb, 0, 0x43, 0, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
        0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
        0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
        0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
        0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0xff, 0xc4, 0, 0x1b, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0,
        0, 1, 2, 3, 1, 0, 4, 5, 6, 7, 0xff, 0xc4, 0, 0x29, 0x10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 2,
        7, 1, 0, 0x11, 2, 0x21, 0x12, 3, 0x31, 0x41, 0xf0, 4, 0x22, 0x13, 0x51, 5, 0x61, 0x32, 0x71, 0x23,
        0xb1, 6, 0xe1};
static const uint8_t gray[] = {0xff, 0xc0, 0, 0x0b, 8, 0, 0x13, 0, 0x15, 1, 1, 0x11, 0, 0xff, 0xda, 0, 8, 1,
        1, 0, 0, 0x3f, 0, 0xf9, 0xf7, 0xd0, 0x7f, 0x3f, 0xf6, 0x5e, 0xdf, 0x14, 0x4d, 0, 0x41, 0x45, 1, 0x47,
        0xff, 0, 0x20, 0x28, 0x28, 0x0a, 0x0a, 0x28, 0xa0, 0xaa, 0xa2, 0xad, 0xf6, 0xb2, 0xf8, 0x9e, 0x2f,
        0xe5, 0x7e, 8, 0x73, 0xff, 0, 0xbf, 0xff, 0, 0x93, 0xaf, 0xe7, 0x5f, 0xff, 0, 0x5f, 0xff, 0, 0x3f,
        0xff, 0, 0xbe, 0x71, 0x9f, 0xef, 0xff, 0, 0xd7, 0xe3, 0xff, 0, 0xfb, 0xe7, 0xff, 0, 0xb6, 0xf8, 0xbf,
        0xfc, 0xff, 0, 0xfd, 0xf3, 0x5d, 0xff, 0, 0xe8, 5, 0x45, 0x15, 0x54, 5, 0x14, 5, 0x11, 0x40, 0x71,
        0x7f, 0x88, 0x28, 0xf8, 0x27, 0xff, 0xd9};
static const uint8_t subsampled[] = {0xff, 0xc0, 0, 0x11, 8, 0, 0x11, 0, 0x12, 3, 1, 0x22, 0, 2, 0x11, 0, 3,
        0x11, 0, 0xff, 0xda, 0, 0x0c, 3, 1, 0, 2, 0, 3, 0, 0, 0x3f, 0, 0xf3, 0xff, 0, 0xf7, 0xf4, 0x71, 0xd7,
        0xe3, 0xfb, 0xf3, 0xff, 0, 0xfb, 0x3f, 0xa7, 0xff, 0, 0xf6, 0xcf, 0xf7, 0xdf, 0x3f, 0xdf, 0x7e, 0x3f,
        0xff, 0, 0x69, 0xfd, 0x3f, 0x5f, 0xef, 0xff, 0, 0x77, 0xd2, 0xff, 0, 0xfe, 0x1f, 0xdf, 0xff, 0, 0xe1,
        0x7b, 0xbf, 0x3f, 0xef, 0xb7, 0xc4, 0xff, 0, 0xfb, 0x9f, 0xae, 0xdf, 0x73, 0xbf, 0xff, 0, 0x27, 0xff,
        0, 0xaf, 0xdf, 0xe3, 0x7c, 0x23, 0xff, 0, 0xf9, 0x75, 0xf6, 0x3a, 0xba, 0xf6, 0xfa, 0xc7, 0xcb, 0x45,
        0x45, 0x11, 0xc1, 5, 0x17, 0x44, 0, 0x40, 0x11, 0x15, 0x0f, 0xfe, 0x8d, 0x44, 1, 0x4d, 0xf8, 0xbe,
        0xfb, 0xfb, 0xfb, 0xfd, 0xd7, 0x7f, 0x2f, 0xff, 0, 0x4f, 0xff, 0, 0x33, 0xf3, 0xff, 0, 0xe3, 0xef,
        0xcf, 0xff, 0, 0xb9, 0xc5, 0xd7, 0x5e, 0x74, 0x15, 0x4f, 0xb4, 0x40, 0x5f, 0xd5, 0x5f, 0x10, 0x51,
        0xd0, 0x43, 0xff, 0, 0xd0, 0x11, 1, 0x14, 6, 0xfc, 0x0d, 0x7e, 0x8f, 0xf9, 0x9f, 0xed, 0x73, 0x8f,
        0xaf, 0xff, 0, 0x87, 0xff, 0, 0xd7, 0xfe, 0xfd, 0xb8, 0xff, 0, 0xfc, 0x5d, 0x75, 0xd6, 0x7f, 0x33,
        0x1f, 0xbf, 0xff, 0, 0x2c, 0xf4, 0x51, 0x14, 0x15, 0x3f, 0x10, 0x40, 0x14, 0x55, 0x15, 0x7f, 0x35, 0,
        0x45, 0x51, 0x40, 0x54, 0xff, 0, 0xe4, 0xff, 0xd9};
static const uint8_t whole[] = {0xff, 0xc0, 0, 0x11, 8, 0, 0x0b, 0, 0x12, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11,
        0, 0xff, 0xda, 0, 0x0c, 3, 1, 0, 2, 0, 3, 0, 0, 0x3f, 0, 0x1f, 0xf1, 0xed, 0xf1, 0xaf, 0x15, 0xe3,
        0xbf, 6, 0x3f, 0x5c, 0xf1, 0xef, 0x17, 0xd4, 7, 0xf8, 0x22, 9, 0xfe, 2, 0xa9, 0xff, 0, 0xac, 0x10,
        0x45, 0x41, 0x41, 0x51, 0x44, 0x4f, 0xfd, 0xc3, 0xfa, 0xa2, 0x79, 0xff, 0, 0x7e, 0x6f, 0x38, 0xa3,
        0xff, 0, 0xec, 0x48, 0x0a, 0x22, 0x1d, 0x80, 0xa0, 0x88, 0x20, 0x0f, 0xc0, 0x72, 0x0a, 0xa8, 0x29,
        0x89, 0xc8, 7, 0xd6, 0x3a, 0xfe, 0xef, 0x7f, 0xfb, 0xbf, 0xfc, 0xfb, 0xf5, 0xb9, 0x97, 0xe0, 0xb3,
        0xff, 0, 0xd9, 3, 0xf8, 8, 0xa2, 0x80, 0, 0x80, 0xa0, 0x7c, 0, 0x0a, 0x8a, 0x8a, 0x9a, 0x2a, 0x8a,
        0x42, 0xf8, 0x7f, 0x81, 0xef, 0xbe, 0xef, 0x1b, 0xdf, 0xe0, 0xff, 0, 0xbf, 0xcf, 0xff, 0, 0x87, 0x5f,
        0xdd, 0xb2, 0xf0, 0x7f, 0xfc, 0xbd, 0x3d, 0xfd, 0xde, 0xff, 0, 0xfe, 0x3f, 0xe2, 0xf4, 0x7e, 0xff, 0,
        0xed, 0x1c, 0x6e, 0x38, 0x3f, 0xfe, 0x27, 0xf7, 0x1b, 0xff, 0xd9};

static const struct {
	const uint8_t *data; /* the file after the tables */
	size_t nbytes;
} files[] = {{gray, sizeof(gray)}, {subsampled, sizeof(subsampled)}, {whole, sizeof(whole)}};

#define FILE_MAX 512
#define PIXELS_MAX (32 * 32 * 3)

struct trial {
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	jmp_buf escape;
	struct ps_huffman huffman;
	const uint8_t *scan; /* where the scan began in `file` */
	uint8_t file[FILE_MAX];
	size_t nbytes; /* bytes of the file */
	uint8_t pixels[PIXELS_MAX];
	size_t npixels; /* bytes of `pixels` that were written */
};

static __attribute__((noreturn)) void on_error(j_common_ptr c)
{
	longjmp(PS_CONTAINER_OF(c->err, struct trial, errors)->escape, 1);
}

static void on_message(j_common_ptr c, int level)
{
	if (level < 0)
		on_error(c);
}

/* Decodes all rows from `row` on, as RGB. False: an error or a warning, or our own decoder was not called. */
static bool decode(struct trial *t, bool own, uint32_t row)
{
	struct jpeg_decompress_struct *c = &t->cinfo;

	t->npixels = 0;
	c->err = jpeg_std_error(&t->errors);
	t->errors.error_exit = on_error;
	t->errors.emit_message = on_message;
	if (setjmp(t->escape)) {
		jpeg_destroy_decompress(c);
		return false;
	}
	jpeg_create_decompress(c);
	jpeg_mem_src(c, t->file, t->nbytes);
	jpeg_read_header(c, TRUE);
	c->out_color_space = JCS_RGB;
	c->dct_method = JDCT_ISLOW;
	jpeg_start_decompress(c);
	if (own && !replace(c, &t->huffman))
		on_error((j_common_ptr)c);
	t->scan = t->huffman.p;
	if (row > 0)
		jpeg_skip_scanlines(c, row);
	while (c->output_scanline < c->output_height) {
		JSAMPROW to = t->pixels + t->npixels;

		if (c->output_width * 3 > sizeof(t->pixels) - t->npixels)
			on_error((j_common_ptr)c);
		jpeg_read_scanlines(c, &to, 1);
		t->npixels += c->output_width * 3;
	}
	jpeg_destroy_decompress(c);
	return !own || t->huffman.p > t->scan;
}

/* Facts about the loaded library; found once a process. */
static struct {
	pthread_once_t once;
	uint64_t version;
	bool same; /* our own decoder gives the same pixels */
} library = {.once = PTHREAD_ONCE_INIT};

static void files_compare(struct trial *own, struct trial *theirs)
{
	library.same = true;
	for (size_t i = 0; i < 2 * PS_ARRAY_LEN(files); i++) {
		uint32_t row = i % 2 ? 9 : 0;

		own->nbytes = sizeof(tables) + files[i / 2].nbytes;
		memcpy(own->file, tables, sizeof(tables));
		memcpy(own->file + sizeof(tables), files[i / 2].data, files[i / 2].nbytes);
		theirs->nbytes = own->nbytes;
		memcpy(theirs->file, own->file, own->nbytes);
		bool read = decode(theirs, false, row);
		library.version = ps_hash(library.version, theirs->pixels, theirs->npixels);
		library.same = library.same && read && decode(own, true, row) &&
		               own->npixels == theirs->npixels &&
		               memcmp(own->pixels, theirs->pixels, own->npixels) == 0;
	}
}

static void library_learn(void)
{
	ps_autofree struct trial *trials = calloc(2, sizeof(*trials));
	struct jpeg_error_mgr e;

	jpeg_std_error(&e);
	library.version = PS_HASH_BEGIN;
	for (int i = 0; i <= e.last_jpeg_message; i++)
		if (e.jpeg_message_table[i])
			library.version = ps_hash(library.version, e.jpeg_message_table[i],
			        strlen(e.jpeg_message_table[i]) + 1);
	if (trials)
		files_compare(&trials[0], &trials[1]);
	library.version = ps_hash(library.version, &library.same, sizeof(library.same));
}

uint32_t ps_jpeg_version(void)
{
	pthread_once(&library.once, library_learn);
	return (uint32_t)(library.version ^ library.version >> 32);
}

const char *ps_jpeg_decoder(void)
{
	pthread_once(&library.once, library_learn);
#ifdef PS_JPEG_ENTROPY
	return library.same ? "penstock"
	                    : "libjpeg: with this libjpeg penstock's own decoder fails its check";
#else
	return "libjpeg: built without penstock's own decoder";
#endif
}

bool ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h)
{
	pthread_once(&library.once, library_learn);
	return library.same && replace(c, h);
}
