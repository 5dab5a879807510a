#include "config.h"

#include "image/jpeg_entropy.h"

#ifdef HAVE_JPEGINT_H

#include <jerror.h>
#include <jpegint.h>

_Static_assert(
        sizeof(JCOEF) == sizeof(int16_t) && sizeof(JBLOCK) == 64 * sizeof(JCOEF), "coefficients of 16 bits");
_Static_assert(D_MAX_BLOCKS_IN_MCU <= PS_HUFFMAN_BLOCKS, "blocks of an MCU");

/* Called by libjpeg for each MCU; without blocks where it is skipped. */
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

/* The library's start of the pass has checked the tables. */
bool ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h)
{
	/* A lossless scan, which libjpeg-turbo 3 decodes, has another decoder behind `entropy`; its Ss is 1
	 * to 7. */
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

bool ps_jpeg_entropy_replace(j_decompress_ptr c, struct ps_huffman *h)
{
	(void)c;
	(void)h;
	return false;
}

#endif
