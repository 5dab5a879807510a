/* The state of a run as bytes: where it stands, and a print of all that its order and its pixels come from.
 *
 *   64-bit words, little endian: the head (see state.c), then five a lane of the rank
 *
 * The print is kept as separate words, so that a state which does not fit is refused with what differs.
 *
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: -EINVAL: no state, or damaged; -ESTALE: of another run; the text says which. */
#ifndef PS_STATE_H
#define PS_STATE_H

#include <stddef.h>

#include "options.h"
#include "pipeline/position.h"

#define PS_STATE_NPRINT 12

struct ps_state_print {
	uint64_t words[PS_STATE_NPRINT];
};

/* Makes the print of options that are whole; does nothing if it was made already. Reads all shard names. */
void ps_state_print_make(struct ps_state_print *print, const struct ps_options *options);

size_t ps_state_nbytes(uint32_t nlanes);

/* Writes ps_state_nbytes(position->nlanes) bytes. */
void ps_state_write(const struct ps_state_print *print, const struct ps_position *position, uint32_t bad_run,
        void *ret_state);

/* Fills a position made for the lanes of the rank. */
int ps_state_read(const struct ps_state_print *print, const void *state, size_t nbytes,
        struct ps_position *ret_position, uint32_t *ret_bad_run, struct ps_load_error *err) PS_MUST_USE;

#endif
