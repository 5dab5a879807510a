/* Where the parts of a batch lie in its one piece of memory (its slot).
 *
 *   0                                                      fixed_nbytes                     used
 *   | field 0 | ... | field n | offsets and ids            | late field | ... | late field | room |
 *
 * Each array begins at a multiple of PS_SLOT_ALIGN and holds its rows without gaps. Fields in place come in
 * the order of the options, each with its second plane (NAME:y), lengths and mask behind it. Late fields
 * (ragged, or padded to the longest row) follow when the batch is whole and their sizes are known; the memory
 * grows for them and stays so. One copy of [0, used) takes a whole batch to a device, where the same places
 * hold; send.h tells which parts need not go.
 *
 * A field that the device makes (make.h) has u8 planes here, a struct ps_image_ops of each image behind them,
 * and its elements on the device alone, `made` bytes into what the mirror has for that.
 *
 * Threads: any; a layout does not change.   Errors: false: larger than memory can be, or no memory. */
#ifndef PS_BATCH_SLOT_H
#define PS_BATCH_SLOT_H

#include "batch/plan.h"

#define PS_SLOT_ALIGN 256 /* a cache line, any vector, and what CUDA gives its own memory */
#define PS_SLOT_NONE SIZE_MAX

#define PS_SLOT_KEYS(plan) ((plan)->nfields) /* the place of the keys among the late fields: behind all others */

struct ps_slot_field {
	size_t data[2]; /* the rows, by plane; PS_SLOT_NONE for late fields */
	size_t lengths; /* int64 each row; padded fields */
	size_t mask;    /* a byte each item; padded fields; PS_SLOT_NONE for late ones */
	size_t offsets; /* uint64, rows + 1; ragged fields */
	size_t ops;     /* of fields that the device makes and transforms; else PS_SLOT_NONE */
	size_t made;    /* not in the slot: see above */
};

struct ps_slot_layout {
	uint32_t rows;
	struct ps_slot_field *fields; /* of the plan's, and of the keys; the caller frees it */
	size_t valid, shards, samples;
	size_t mix_lambda, mix_row; /* float and int64 each row, where the plan mixes */
	size_t fixed_nbytes;
	size_t made_nbytes;
};

bool ps_slot_layout_make(
        const struct ps_plan *plan, uint32_t rows, struct ps_slot_layout *ret_layout) PS_MUST_USE;

/* Appends an array behind *used. */
bool ps_slot_place(size_t *used, size_t n, size_t nbytes, size_t *ret_at) PS_MUST_USE;

#endif
