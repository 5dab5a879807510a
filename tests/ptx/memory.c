/* Loads, stores and atomics: finds the bytes of an address, and checks bounds, alignment and races. */
#include "config.h"

#include <stdlib.h>

#include "ptx_private.h"

#define ANY_BLOCK 0xffffffffu
#define MANY_ATOMICS 0xfffffffeu /* instead of a block: atomics of several threads, which is no race */
#define ATOMIC_BIT 0x8000u       /* of write_thread: the write was an atomic */
#define ANY_THREAD 0xffffu

/* The bytes of an access. */
struct place {
	uint8_t *bytes;
	uint8_t *unknown;       /* NULL: all bits were written */
	struct ptx_cell *cells; /* NULL: no other thread has access */
	uint32_t since;         /* accesses before this epoch do not count */
};

/* Places ------------------------------------------------------------------------------------------------- */

static bool space_place(const struct ptx_memory *m, uint64_t offset, uint32_t n, struct place *ret)
{
	if (offset < PTX_SHARED_BASE || offset - PTX_SHARED_BASE > m->nbytes ||
	        m->nbytes - (offset - PTX_SHARED_BASE) < n)
		return false;
	ret->bytes = m->bytes + (offset - PTX_SHARED_BASE);
	ret->unknown = m->unknown + (offset - PTX_SHARED_BASE);
	return true;
}

static bool range_has(const struct ptx_range *r, const char *p, uint32_t n)
{
	return p >= r->from && (size_t)(p - r->from) <= r->nbytes && r->nbytes - (size_t)(p - r->from) >= n;
}

static bool global_place(struct ptx_run *run, uint64_t address, uint32_t n, struct place *ret)
{
	const struct ptx_range *ranges = run->l->ranges;
	const char *p = (const char *)(uintptr_t)address;
	size_t at = run->hint;

	if (at >= run->l->nranges || !range_has(&ranges[at], p, n))
		for (at = 0; at < run->l->nranges && !range_has(&ranges[at], p, n); at++)
			;
	if (at == run->l->nranges)
		return false;
	run->hint = at;
	if (!*ranges[at].shadow)
		*ranges[at].shadow = calloc(ranges[at].nbytes, sizeof(struct ptx_cell));
	if (!*ranges[at].shadow) {
		fprintf(stderr, "PTX: no memory to watch %zu bytes\n", ranges[at].nbytes);
		abort();
	}
	ret->bytes = (uint8_t *)(uintptr_t)p;
	ret->cells = (struct ptx_cell *)*ranges[at].shadow + (p - ranges[at].from);
	ret->since = run->launch_epoch;
	return true;
}

static bool place_of(struct ptx_run *run, const struct ptx_warp *w, enum ptx_space space, uint32_t lane,
        uint64_t address, uint32_t n, struct place *ret)
{
	const size_t thread = w->first + lane;
	struct ptx_memory own = {run->local.bytes + thread * run->k->local_nbytes,
	        run->local.unknown + thread * run->k->local_nbytes, run->k->local_nbytes};

	*ret = (struct place){0};
	if (space == PTX_GENERIC) {
		space = address >> 56 == 0 ? PTX_GLOBAL : (enum ptx_space)(address >> 56);
		address &= PTX_WINDOW(1) - 1;
	}
	switch (space) {
	case PTX_GLOBAL:
		return global_place(run, address, n, ret);
	case PTX_LOCAL:
		return space_place(&own, address, n, ret);
	case PTX_PARAM:
		if (address > run->k->facts.params_nbytes || run->k->facts.params_nbytes - address < n)
			return false;
		ret->bytes = (uint8_t *)(uintptr_t)run->l->params + address;
		return true;
	case PTX_SHARED:
		if (!space_place(&run->shared, address, n, ret))
			return false;
		ret->cells = run->shared_cells + (address - PTX_SHARED_BASE);
		ret->since = run->block_epoch;
		return true;
	default:
		return false;
	}
}

/* Races -------------------------------------------------------------------------------------------------- */

static bool written_by_others(
        const struct ptx_run *run, const struct ptx_cell *c, uint32_t since, uint32_t thread)
{
	return c->write_epoch >= since &&
	       (c->write_block != run->block ||
	               (c->write_epoch == ptx_epoch && (c->write_thread & ~ATOMIC_BIT) != thread));
}

static bool read_by_others(
        const struct ptx_run *run, const struct ptx_cell *c, uint32_t since, uint32_t thread)
{
	return c->read_epoch >= since &&
	       (c->read_block != run->block || (c->read_epoch == ptx_epoch && c->read_thread != thread));
}

static void read_note(const struct ptx_run *run, struct ptx_cell *c, uint32_t since, uint32_t thread)
{
	const bool again = c->read_epoch >= since;

	if (again && c->read_block != run->block)
		c->read_block = ANY_BLOCK;
	else
		c->read_block = run->block;
	c->read_thread =
	        (uint16_t)(again && c->read_epoch == ptx_epoch && c->read_thread != thread ? ANY_THREAD
	                                                                                   : thread);
	c->read_epoch = ptx_epoch;
}

enum access { READ, WRITE, ATOMIC };

/* Notes an access to a byte. Returns NULL, or the race. */
static const char *touched(const struct ptx_run *run, const struct ptx_instr *in, struct ptx_cell *c,
        uint32_t since, uint32_t thread, enum access how)
{
	const bool others = written_by_others(run, c, since, thread);
	const bool atomics = how == ATOMIC && c->write_epoch >= since &&
	                     (c->write_block == MANY_ATOMICS || c->write_thread & ATOMIC_BIT);

	if (how == READ && in->nc && c->write_epoch >= since)
		return "read as if constant (.nc), but written in this launch";
	if (others && !atomics)
		return how == READ ? "a race: read, and written by another thread, with no barrier between"
		                   : "a race: written by two threads, with no barrier between";
	if (how != READ && read_by_others(run, c, since, thread))
		return "a race: written, and read by another thread, with no barrier between";
	if (how == READ) {
		read_note(run, c, since, thread);
	} else {
		c->write_epoch = ptx_epoch;
		c->write_block = atomics && others ? MANY_ATOMICS : run->block;
		c->write_thread = (uint16_t)(thread | (how == ATOMIC ? ATOMIC_BIT : 0));
	}
	return NULL;
}

/* Accesses ----------------------------------------------------------------------------------------------- */

static const char *const space_names[] = {"generic", "global", "shared", "local", "param"};

/* Checks the access of one lane; false after a fault. */
static bool enter(struct ptx_run *run, const struct ptx_warp *w, const struct ptx_instr *in, uint32_t lane,
        uint32_t n, enum access how, struct place *ret)
{
	const uint64_t address = ptx_slot(w, in->s[0])[lane] + (uint64_t)in->offset;
	const char *wrong = NULL;
	uint32_t i = 0;

	if (ptx_unknown(w, in->s[0], lane)) {
		ptx_fault(run, w, in, lane, "the address depends on what was never written");
		return false;
	}
	if (!place_of(run, w, (enum ptx_space)in->space, lane, address, n, ret)) {
		ptx_fault(run, w, in, lane, "%u bytes at 0x%llx are not within what the %s space has", n,
		        (unsigned long long)address, space_names[in->space]);
		return false;
	}
	if (address % n != 0) {
		ptx_fault(run, w, in, lane, "0x%llx is not aligned to %u", (unsigned long long)address, n);
		return false;
	}
	if (how != READ && !ret->cells && !ret->unknown) {
		ptx_fault(run, w, in, lane, "arguments cannot be written");
		return false;
	}
	if (!ret->cells)
		return true;
	for (; i < n && !wrong; i++)
		if (how != READ || in->used >> i & 1)
			wrong = touched(run, in, &ret->cells[i], ret->since, w->first + lane, how);
	if (wrong)
		ptx_fault(run, w, in, lane, "byte 0x%llx: %s (thread %u's write, %u's read were the last)",
		        (unsigned long long)address + i - 1, wrong,
		        ret->cells[i - 1].write_thread & ~ATOMIC_BIT, ret->cells[i - 1].read_thread);
	return !wrong;
}

/* Reads 1, 2, 4 or 8 bytes by a load of exactly that size: a larger load right after a store to a part of
 * it would stall the CPU. */
static uint64_t fetched(const uint8_t *p, uint32_t n)
{
	uint64_t v;
	uint32_t v4;
	uint16_t v2;

	switch (n) {
	case 1:
		return *p;
	case 2:
		memcpy(&v2, p, 2);
		return v2;
	case 4:
		memcpy(&v4, p, 4);
		return v4;
	default:
		memcpy(&v, p, 8);
		return v;
	}
}

static void unknown_note(
        struct ptx_warp *w, const struct ptx_instr *in, uint32_t k, uint32_t lane, uint64_t unknown)
{
	const uint32_t slot = in->d[k], bit = 1u << lane;

	if (unknown)
		unknown = ptx_low(ptx_extended(unknown, (enum ptx_type)in->type), in->d_bits);
	if (unknown) {
		w->defined[slot] &= ~bit;
		w->partly[slot] |= bit;
		w->unknown[(size_t)slot * PTX_LANES + lane] = unknown;
	} else {
		w->defined[slot] |= bit;
	}
}

static void load(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint32_t one = ptx_bits(type) / 8, n = one * in->nvec;

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(m);
		struct place at;

		if (!enter(run, w, in, lane, n, READ, &at))
			return;
		for (uint32_t k = 0; k < in->nvec; k++) {
			if (in->d[k] == 0)
				continue;
			ptx_slot(w, in->d[k])[lane] =
			        ptx_low(ptx_extended(fetched(at.bytes + k * one, one), type), in->d_bits);
			unknown_note(w, in, k, lane, at.unknown ? fetched(at.unknown + k * one, one) : 0);
		}
	}
}

static void store(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint32_t one = ptx_bits((enum ptx_type)in->type) / 8, n = one * in->nvec;

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(m);
		struct place at;

		if (!enter(run, w, in, lane, n, WRITE, &at))
			return;
		for (uint32_t k = 0; k < in->nvec; k++) {
			const uint64_t unknown = ptx_low(ptx_unknown(w, in->s[1 + k], lane), 8 * one);

			memcpy(at.bytes + k * one, &ptx_slot(w, in->s[1 + k])[lane], one);
			if (at.unknown)
				memcpy(at.unknown + k * one, &unknown, one);
			else if (unknown) {
				ptx_fault(
				        run, w, in, lane, "what is stored depends on what was never written");
				return;
			}
		}
	}
}

static uint64_t changed(const struct ptx_instr *in, uint64_t old, uint64_t b, uint64_t c)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint64_t x = ptx_extended(old, type), y = ptx_extended(b, type);
	const bool below = ptx_is_signed(type) ? (int64_t)x < (int64_t)y : x < y;

	switch (in->atomic) {
	case PTX_ATOM_ADD:
		return old + b;
	case PTX_ATOM_MIN:
		return below ? old : b;
	case PTX_ATOM_MAX:
		return below ? b : old;
	case PTX_ATOM_AND:
		return old & b;
	case PTX_ATOM_OR:
		return old | b;
	case PTX_ATOM_XOR:
		return old ^ b;
	case PTX_ATOM_EXCH:
		return b;
	default: /* PTX_ATOM_CAS */
		return old == b ? c : old;
	}
}

static void atomic(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint32_t n = ptx_bits((enum ptx_type)in->type) / 8;

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(m);
		uint64_t old, next;
		struct place at;

		if (!enter(run, w, in, lane, n, ATOMIC, &at))
			return;
		for (uint32_t k = 1; k < in->nsrc; k++)
			if (ptx_unknown(w, in->s[k], lane) || (at.unknown && fetched(at.unknown, n))) {
				ptx_fault(run, w, in, lane, "an atomic with what was never written");
				return;
			}
		old = fetched(at.bytes, n);
		next = changed(in, old, ptx_slot(w, in->s[1])[lane], ptx_slot(w, in->s[2])[lane]);
		memcpy(at.bytes, &next, n);
		if (in->op == PTX_ATOM && in->d[0]) {
			ptx_slot(w, in->d[0])[lane] = old;
			ptx_define(w, in->d[0], 1u << lane);
		}
	}
}

void ptx_access(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	if (in->op == PTX_LD)
		load(run, w, in, mask);
	else if (in->op == PTX_ST)
		store(run, w, in, mask);
	else
		atomic(run, w, in, mask);
}
