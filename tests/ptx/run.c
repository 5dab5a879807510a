/* A launch: checks its limits, and runs its blocks one by one, with their warps and barriers. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "ptx_private.h"

#define STEPS_MOST (UINT64_C(1) << 26) /* steps of all warps of a block: more count as an endless loop */
#define GRID_YZ_MOST 65535u
#define BLOCK_Z_MOST 64u

uint32_t ptx_epoch;

/* Faults ------------------------------------------------------------------------------------------------- */

static void line_say(const struct ptx_kernel *k, uint32_t line, char *to, size_t cap)
{
	const char *at = k->module->text;
	size_t n;

	for (uint32_t i = 1; i < line && at; i++) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		at = "";
	at += strspn(at, " \t");
	n = strcspn(at, "\n");
	snprintf(to, cap, "%.*s", (int)(n < 100 ? n : 100), at);
}

void ptx_fault(struct ptx_run *run, const struct ptx_warp *w, const struct ptx_instr *in, uint32_t lane,
        const char *format, ...)
{
	char what[256], line[128], source[40] = "";
	va_list args;

	if (run->failed)
		return;
	run->failed = true;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	line_say(run->k, in->line, line, sizeof(line));
	if (in->source)
		snprintf(source, sizeof(source), ", line %u of the source", in->source);
	snprintf(run->text, PTX_TEXT, "%s: block %u, thread %u: line %u%s: %s: %s", run->k->name, run->block,
	        w->first + lane, in->line, source, line, what);
}

/* Warps -------------------------------------------------------------------------------------------------- */

/* Lanes of `mask` whose sources are all known. */
static uint32_t known_lanes(const struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	for (uint32_t i = 0; i < in->nsrc; i++)
		mask &= w->defined[in->s[i]];
	return mask;
}

static void compute(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint32_t known = known_lanes(w, in, mask);

	if (known != mask)
		ptx_undefined(w, in, mask & ~known);
	for (uint32_t i = 0; i < in->ndst; i++)
		ptx_define(w, in->d[i], known);
	ptx_compute(run, w, in, mask);
}

/* Lanes of `mask` for which the instruction's guard holds. */
static uint32_t guarded(
        struct ptx_run *run, const struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint64_t *p = ptx_slot(w, in->guard);
	uint32_t holds = 0;

	if (in->guard == 0)
		return mask;
	if (mask & ~w->defined[in->guard]) {
		ptx_fault(run, w, in, (uint32_t)__builtin_ctz(mask & ~w->defined[in->guard]),
		        "the condition depends on what was never written");
		return 0;
	}
	for (uint32_t i = 0; i < PTX_LANES; i++)
		holds |= (uint32_t)(p[i] & 1) << i;
	return mask & (in->guard_not ? ~holds : holds);
}

static void pc_set(struct ptx_warp *w, uint32_t mask, uint32_t pc)
{
	for (; mask; mask &= mask - 1)
		w->pc[__builtin_ctz(mask)] = pc;
}

/* The lanes with the least pc; *ret_limit: the least pc of the others. The lanes with the least pc run first,
 * so diverged lanes converge again. */
static uint32_t behind(const struct ptx_warp *w, uint32_t lanes, uint32_t *ret_pc, uint32_t *ret_limit)
{
	uint32_t least = UINT32_MAX, next = UINT32_MAX, mask = 0;

	for (uint32_t m = lanes; m; m &= m - 1) {
		const uint32_t i = (uint32_t)__builtin_ctz(m), pc = w->pc[i];

		if (pc < least) {
			next = least;
			least = pc;
			mask = 0;
		} else if (pc > least && pc < next) {
			next = pc;
		}
		if (pc == least)
			mask |= 1u << i;
	}
	*ret_pc = least;
	*ret_limit = next;
	return mask;
}

/* Runs lanes from pc until they diverge, reach others at `limit`, wait at a barrier or end. */
static void lanes_run(struct ptx_run *run, struct ptx_warp *w, uint32_t mask, uint32_t pc, uint32_t limit)
{
	while (pc < limit && !run->failed) {
		struct ptx_instr *in = &run->k->code[pc];
		const uint32_t lanes = guarded(run, w, in, mask);

		in->ran = true;
		if (++run->steps > STEPS_MOST)
			ptx_fault(run, w, in, (uint32_t)__builtin_ctz(mask),
			        "the block does not come to an end");
		pc++;
		if (lanes == 0 || run->failed)
			continue;
		switch (in->op) {
		case PTX_BRA:
			if (lanes != mask) {
				pc_set(w, mask & ~lanes, pc);
				pc_set(w, lanes, in->target);
				return;
			}
			pc = in->target;
			break;
		case PTX_RET:
			w->live &= ~lanes;
			pc_set(w, mask & ~lanes, pc);
			return;
		case PTX_BAR:
			w->waiting |= lanes;
			pc_set(w, mask, pc);
			return;
		case PTX_TRAP:
			ptx_fault(run, w, in, (uint32_t)__builtin_ctz(lanes), "a trap");
			break;
		case PTX_NOP:
			break;
		case PTX_LD:
		case PTX_ST:
		case PTX_ATOM:
		case PTX_RED:
			ptx_access(run, w, in, lanes);
			break;
		default:
			compute(run, w, in, lanes);
		}
	}
	pc_set(w, mask, pc);
}

static void warp_run(struct ptx_run *run, struct ptx_warp *w)
{
	while ((w->live & ~w->waiting) && !run->failed) {
		uint32_t pc, limit, mask = behind(w, w->live & ~w->waiting, &pc, &limit);

		lanes_run(run, w, mask, pc, limit);
	}
}

/* Blocks ------------------------------------------------------------------------------------------------- */

static void specials_set(const struct ptx_run *run, struct ptx_warp *w, const uint32_t ctaid[3])
{
	const uint32_t *block = run->l->block, *grid = run->l->grid;

	for (uint32_t i = 0; i < PTX_LANES; i++) {
		const uint32_t t = w->first + i;
		const uint32_t tid[3] = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};

		for (uint32_t axis = 0; axis < 3; axis++) {
			ptx_slot(w, PTX_SPECIAL_SLOT + PTX_TID + axis)[i] = tid[axis];
			ptx_slot(w, PTX_SPECIAL_SLOT + PTX_NTID + axis)[i] = block[axis];
			ptx_slot(w, PTX_SPECIAL_SLOT + PTX_CTAID + axis)[i] = ctaid[axis];
			ptx_slot(w, PTX_SPECIAL_SLOT + PTX_NCTAID + axis)[i] = grid[axis];
		}
		ptx_slot(w, PTX_SPECIAL_SLOT + PTX_LANEID)[i] = i;
	}
}

static void warp_begin(
        const struct ptx_run *run, struct ptx_warp *w, uint32_t number, const uint32_t ctaid[3])
{
	const struct ptx_kernel *k = run->k;
	const uint32_t left = run->nthreads - number * PTX_LANES;

	w->first = number * PTX_LANES;
	w->live = left >= PTX_LANES ? PTX_ALL : (1u << left) - 1;
	w->waiting = 0;
	memset(w->pc, 0, sizeof(w->pc));
	memset(w->defined, 0, k->nslots * sizeof(*w->defined));
	memset(w->partly, 0, k->nslots * sizeof(*w->partly));
	for (uint32_t s = 0; s < PTX_NSPECIAL; s++)
		w->defined[PTX_SPECIAL_SLOT + s] = PTX_ALL;
	w->defined[0] = PTX_ALL;
	for (size_t i = 0; i < k->nconstants; i++)
		w->defined[k->constants[i].slot] = PTX_ALL;
	specials_set(run, w, ctaid);
}

/* All live lanes wait. Checks that they wait at one barrier and that no thread has ended before it. */
static void barrier_pass(struct ptx_run *run, uint32_t nwarps)
{
	struct ptx_warp *warps = run->k->warps;
	const uint32_t pc = warps[0].pc[0];

	for (uint32_t i = 0; i < nwarps; i++) {
		struct ptx_warp *w = &warps[i];
		const uint32_t left = run->nthreads - w->first;
		const uint32_t all = left >= PTX_LANES ? PTX_ALL : (1u << left) - 1;

		for (uint32_t m = all; m && !run->failed; m &= m - 1) {
			const uint32_t lane = (uint32_t)__builtin_ctz(m);

			if (!(w->live >> lane & 1))
				ptx_fault(run, w, &run->k->code[pc > 0 ? pc - 1 : 0], lane,
				        "this thread has left, others wait at a barrier");
			else if (w->pc[lane] != pc)
				ptx_fault(run, w, &run->k->code[w->pc[lane] - 1], lane,
				        "this thread waits at this barrier, thread 0 at that of line %u",
				        run->k->code[pc > 0 ? pc - 1 : 0].line);
		}
		w->waiting = 0;
	}
	ptx_epoch++;
}

static void block_run(struct ptx_run *run, const uint32_t ctaid[3])
{
	const uint32_t nwarps = (run->nthreads + PTX_LANES - 1) / PTX_LANES;
	bool any = true;

	run->block = ctaid[0] + run->l->grid[0] * (ctaid[1] + run->l->grid[1] * ctaid[2]);
	run->block_epoch = ++ptx_epoch;
	run->steps = 0;
	memset(run->shared.unknown, 0xff, run->shared.nbytes);
	memset(run->shared.bytes, 0xa5, run->shared.nbytes);
	memset(run->local.unknown, 0xff, run->local.nbytes);
	for (uint32_t i = 0; i < nwarps; i++)
		warp_begin(run, &run->k->warps[i], i, ctaid);
	while (any && !run->failed) {
		any = false;
		for (uint32_t i = 0; i < nwarps && !run->failed; i++) {
			warp_run(run, &run->k->warps[i]);
			any = any || run->k->warps[i].live;
		}
		if (any && !run->failed)
			barrier_pass(run, nwarps);
	}
}

/* Launches ----------------------------------------------------------------------------------------------- */

static int warps_make(struct ptx_kernel *k, uint32_t nwarps)
{
	struct ptx_warp *all = k->nwarps < nwarps ? realloc(k->warps, nwarps * sizeof(*all)) : k->warps;

	if (!all)
		return -ENOMEM;
	k->warps = all;
	for (; k->nwarps < nwarps; k->nwarps++) {
		struct ptx_warp *w = &all[k->nwarps];

		*w = (struct ptx_warp){.r = calloc((size_t)k->nslots * PTX_LANES, sizeof(*w->r)),
		        .unknown = calloc((size_t)k->nslots * PTX_LANES, sizeof(*w->unknown)),
		        .defined = calloc(k->nslots, sizeof(*w->defined)),
		        .partly = calloc(k->nslots, sizeof(*w->partly))};
		if (!w->r || !w->unknown || !w->defined || !w->partly) {
			free(w->r);
			free(w->unknown);
			free(w->defined);
			free(w->partly);
			return -ENOMEM;
		}
		for (size_t i = 0; i < k->nconstants; i++)
			for (uint32_t lane = 0; lane < PTX_LANES; lane++)
				ptx_slot(w, k->constants[i].slot)[lane] = k->constants[i].value;
	}
	return 0;
}

/* NULL, or why no GPU of compute capability 7.5 or later accepts the launch. */
static const char *refused(const struct ptx_kernel *k, const struct ptx_launch *l)
{
	const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];

	if (threads == 0 || (uint64_t)l->grid[0] * l->grid[1] * l->grid[2] == 0)
		return "an empty grid or block";
	if (l->grid[0] > INT32_MAX || l->grid[1] > GRID_YZ_MOST || l->grid[2] > GRID_YZ_MOST)
		return "the grid is too large";
	if (l->block[2] > BLOCK_Z_MOST || threads > k->facts.threads_most)
		return "more threads than the kernel or a GPU takes";
	if (k->threads_exact && threads != k->threads_exact)
		return "not the number of threads that .reqntid says";
	if ((uint64_t)k->facts.shared_nbytes + l->dynamic_nbytes > l->shared_most)
		return "more shared memory than a block may have";
	return NULL;
}

static int memory_make(struct ptx_memory *m, size_t nbytes)
{
	*m = (struct ptx_memory){malloc(nbytes + 1), malloc(nbytes + 1), nbytes};
	return m->bytes && m->unknown ? 0 : -ENOMEM;
}

static void blocks_run(struct ptx_run *run)
{
	const uint32_t *grid = run->l->grid;
	uint32_t at[3];

	for (at[2] = 0; at[2] < grid[2]; at[2]++)
		for (at[1] = 0; at[1] < grid[1]; at[1]++)
			for (at[0] = 0; at[0] < grid[0] && !run->failed; at[0]++)
				block_run(run, at);
}

int ptx_launch(struct ptx_kernel *k, const struct ptx_launch *l, char error[static PTX_TEXT])
{
	const char *wrong = refused(k, l);
	struct ptx_run run = {.k = k, .l = l, .text = error};
	const size_t shared = (size_t)k->facts.shared_nbytes + l->dynamic_nbytes;
	int rc = -ENOMEM;

	if (wrong) {
		snprintf(error, PTX_TEXT, "%s: the launch: %s", k->name, wrong);
		return -EINVAL;
	}
	run.nthreads = l->block[0] * l->block[1] * l->block[2];
	run.launch_epoch = ++ptx_epoch;
	run.shared_cells = calloc(shared + 1, sizeof(*run.shared_cells));
	if (run.shared_cells && memory_make(&run.shared, shared) == 0 &&
	        memory_make(&run.local, (size_t)k->local_nbytes * run.nthreads) == 0)
		rc = warps_make(k, (run.nthreads + PTX_LANES - 1) / PTX_LANES);
	if (rc == 0) {
		blocks_run(&run);
		rc = run.failed ? -EFAULT : 0;
	} else {
		snprintf(error, PTX_TEXT, "%s: no memory for the launch", k->name);
	}
	free(run.shared.bytes);
	free(run.shared.unknown);
	free(run.local.bytes);
	free(run.local.unknown);
	free(run.shared_cells);
	return rc;
}
