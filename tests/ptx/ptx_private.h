/* What the parts of the PTX interpreter share: decoded instructions, and a launch under way.
 *
 *   text.c       tokens and names                      run.c        blocks, warps, barriers
 *   operands.c   what instructions read and write      compute.c    integers, moves, predicates
 *   parse.c      modules, declarations, statements     float.c      floats and conversions
 *   decode.c     from an opcode to an instruction      memory.c     spaces, alignment, bounds, races, atomics
 *                                                      undefined.c  bits of results that were never written
 *
 * A register is a slot: 64 bits for each of a warp's lanes, values zero-extended. Constants and special
 * registers are slots, too, so that all operands are alike. */
#ifndef TESTS_PTX_PRIVATE_H
#define TESTS_PTX_PRIVATE_H

#include "ptx.h"

#include <stdbool.h>
#include <string.h>

#define PTX_LANES 32u
#define PTX_ALL 0xffffffffu
#define PTX_OPERANDS 8u

enum ptx_type {
	PTX_NONE,
	PTX_PRED,
	PTX_B8,
	PTX_B16,
	PTX_B32,
	PTX_B64,
	PTX_U8,
	PTX_U16,
	PTX_U32,
	PTX_U64,
	PTX_S8,
	PTX_S16,
	PTX_S32,
	PTX_S64,
	PTX_F16,
	PTX_BF16,
	PTX_F32,
	PTX_F64,
	PTX_NTYPES,
};

static inline uint32_t ptx_bits(enum ptx_type type)
{
	static const uint8_t bits[PTX_NTYPES] = {
	        0, 1, 8, 16, 32, 64, 8, 16, 32, 64, 8, 16, 32, 64, 16, 16, 32, 64};

	return bits[type];
}

static inline bool ptx_is_signed(enum ptx_type t)
{
	return t >= PTX_S8 && t <= PTX_S64;
}
static inline bool ptx_is_float(enum ptx_type t)
{
	return t >= PTX_F16;
}
static inline bool ptx_is_bits(enum ptx_type t)
{
	return t >= PTX_B8 && t <= PTX_B64;
}

enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM };

/* Generic addresses: each space has a window; addresses in global memory are those of this process. */
#define PTX_WINDOW(space) ((uint64_t)(space) << 56)
#define PTX_SHARED_BASE 1024u /* first address of shared and local memory, so that 0 is not valid */

/* PTX_AND to PTX_BREV, and PTX_SELP, work on bits, whatever the type. decode.c has the operands of each. */
enum ptx_op {
	PTX_ADD,
	PTX_SUB,
	PTX_MUL,
	PTX_MAD,
	PTX_FMA,
	PTX_DIV,
	PTX_REM,
	PTX_ABS,
	PTX_NEG,
	PTX_MIN,
	PTX_MAX,
	PTX_AND,
	PTX_OR,
	PTX_XOR,
	PTX_NOT,
	PTX_SHL,
	PTX_SHR,
	PTX_SHF,
	PTX_BFE,
	PTX_BFI,
	PTX_PRMT,
	PTX_LOP3,
	PTX_POPC,
	PTX_CLZ,
	PTX_BREV,
	PTX_SAD,
	PTX_DP2A,
	PTX_DP4A,
	PTX_SELP,
	PTX_SETP,
	PTX_RCP,
	PTX_SQRT,
	PTX_RSQRT,
	PTX_EX2,
	PTX_LG2,
	PTX_SIN,
	PTX_COS,
	PTX_CVT,
	PTX_CVTA,
	PTX_MOV,
	PTX_LD,
	PTX_ST,
	PTX_ATOM,
	PTX_RED,
	PTX_BAR,
	PTX_BRA,
	PTX_RET,
	PTX_TRAP,
	PTX_NOP,
};

enum ptx_mode { PTX_MODE_NONE, PTX_LO, PTX_HI, PTX_WIDE, PTX_LEFT, PTX_RIGHT };
enum ptx_round { PTX_ROUND_NONE, PTX_RN, PTX_RZ, PTX_RM, PTX_RP, PTX_RNI, PTX_RZI, PTX_RMI, PTX_RPI };
enum ptx_compare {
	PTX_EQ,
	PTX_NE,
	PTX_LT,
	PTX_LE,
	PTX_GT,
	PTX_GE,
	PTX_EQU,
	PTX_NEU,
	PTX_LTU,
	PTX_LEU,
	PTX_GTU,
	PTX_GEU,
	PTX_NUM,
	PTX_NAN,
};
enum ptx_atomic {
	PTX_ATOM_ADD,
	PTX_ATOM_MIN,
	PTX_ATOM_MAX,
	PTX_ATOM_AND,
	PTX_ATOM_OR,
	PTX_ATOM_XOR,
	PTX_ATOM_EXCH,
	PTX_ATOM_CAS,
};

struct ptx_instr {
	uint8_t op, type, from; /* from: the type that a cvt reads, or the second type of dp2a and dp4a */
	uint8_t space, mode, round, compare, combine /* PTX_AND, PTX_OR, PTX_XOR; PTX_NOP: none */;
	uint8_t atomic, nvec, ndst, nsrc;
	bool sat, clamp, to, nc, approximate, guard_not, predicate_not, is_volatile;
	uint16_t guard;                            /* slot of the predicate; 0: none */
	uint16_t d[PTX_OPERANDS], s[PTX_OPERANDS]; /* slots; d 0: the result is dropped */
	uint16_t d_bits;                           /* of the registers in d */
	int64_t offset;                            /* of the address s[0] */
	uint32_t target;                           /* of a branch: the number of the instruction */
	/* bit mask of a load's bytes that the program uses */
	uint32_t used;
	/* line of the PTX; line of the CUDA source, from .loc, or 0 */
	uint32_t line, source;
	bool ran;
};

struct ptx_constant {
	uint64_t value;
	uint16_t slot;
};

enum ptx_special {
	PTX_TID,
	PTX_NTID = PTX_TID + 3,
	PTX_CTAID = PTX_NTID + 3,
	PTX_NCTAID = PTX_CTAID + 3,
	PTX_LANEID = PTX_NCTAID + 3,
	PTX_NSPECIAL,
};

/* Slot 0 means none; special registers follow, then registers and constants. */
#define PTX_SPECIAL_SLOT 1u

struct ptx_warp;

struct ptx_kernel {
	char name[96];
	struct ptx_facts facts;
	uint32_t threads_exact; /* .reqntid; 0: none */
	uint32_t local_nbytes;  /* of a thread */
	struct ptx_instr *code;
	size_t ncode, code_cap;
	struct ptx_constant *constants;
	size_t nconstants, constants_cap;
	uint32_t nslots;
	const struct ptx_module *module;
	struct ptx_warp *warps; /* of a block: kept from launch to launch */
	uint32_t nwarps;
};

struct ptx_module {
	char *text;
	struct ptx_kernel *kernels;
	size_t nkernels, cap;
};

struct ptx_warp {
	uint64_t *r;       /* [slot * 32 + lane] */
	uint64_t *unknown; /* same size: masks of the bits that were never written */
	/* by slot: lanes with all bits written; a lane that is in neither mask has no written bit */
	uint32_t *defined;
	/* by slot: lanes whose unwritten bits are in `unknown` */
	uint32_t *partly;
	uint32_t pc[PTX_LANES];
	uint32_t live, waiting; /* lanes */
	uint32_t first;         /* thread */
};

/* The memory of a block or of its threads. */
struct ptx_memory {
	uint8_t *bytes, *unknown; /* unknown: bits that were never written */
	size_t nbytes;
};

/* The last accesses to a byte. Epochs count launches, blocks and barriers. */
struct ptx_cell {
	uint32_t write_epoch, write_block, read_epoch, read_block;
	uint16_t write_thread, read_thread;
};

struct ptx_run {
	struct ptx_kernel *k;
	const struct ptx_launch *l;
	struct ptx_memory shared, local; /* local: each thread's part, one after another */
	struct ptx_cell *shared_cells;
	uint32_t launch_epoch, block_epoch;
	uint32_t block, nthreads;
	size_t hint; /* the range that was found last */
	uint64_t steps;
	char *text;
	bool failed;
};

/* The present epoch; one launch runs at a time. */
extern uint32_t ptx_epoch;

static inline uint64_t *ptx_slot(const struct ptx_warp *w, uint32_t slot)
{
	return w->r + (size_t)slot * PTX_LANES;
}

static inline uint64_t ptx_low(uint64_t v, uint32_t bits)
{
	return bits >= 64 ? v : v & (((uint64_t)1 << bits) - 1);
}

static inline int64_t ptx_signed(uint64_t v, uint32_t bits)
{
	return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

/* The value, taken as one of the type, extended to 64 bits. */
static inline uint64_t ptx_extended(uint64_t v, enum ptx_type type)
{
	uint32_t bits = ptx_bits(type);

	return ptx_is_signed(type) ? (uint64_t)ptx_signed(v, bits) : ptx_low(v, bits);
}

/* Marks lanes of a slot as written. */
static inline void ptx_define(struct ptx_warp *w, uint32_t slot, uint32_t lanes)
{
	w->defined[slot] |= lanes;
}

static inline uint64_t ptx_unknown(const struct ptx_warp *w, uint32_t slot, uint32_t lane)
{
	return w->defined[slot] >> lane & 1  ? 0
	       : w->partly[slot] >> lane & 1 ? w->unknown[(size_t)slot * PTX_LANES + lane]
	                                     : UINT64_MAX;
}

/* For each lane of `mask`: d[i] = what. */
#define PTX_EACH(mask, what)                                                                 \
	do {                                                                                 \
		if ((mask) == PTX_ALL) {                                                     \
			_Pragma("GCC ivdep") for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = \
			        (uint64_t)(what);                                            \
		} else {                                                                     \
			for (uint32_t m_ = (mask); m_; m_ &= m_ - 1) {                       \
				uint32_t i = (uint32_t)__builtin_ctz(m_);                    \
				d[i] = (uint64_t)(what);                                     \
			}                                                                    \
		}                                                                            \
	} while (0)

/* Ends the launch (run.c); the text of the first fault stays. */
void ptx_fault(struct ptx_run *run, const struct ptx_warp *w, const struct ptx_instr *in, uint32_t lane,
        const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Finds an opcode and sets what its parts say (decode.c). NULL: unknown, with a text. */
struct ptx_opcode;
const struct ptx_opcode *ptx_opcode_find(
        const char *base, char *part[], uint32_t nparts, struct ptx_instr *in, char *error, size_t cap);
const char *ptx_opcode_shape(const struct ptx_opcode *opcode, const struct ptx_instr *in);
enum ptx_type ptx_type_of(const char *name); /* "u32"; PTX_NONE: no type */

/* Each runs an instruction for the lanes of `mask`. */
void ptx_compute(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask);
void ptx_float_compute(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask);
void ptx_convert(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask);
bool ptx_float_compare(enum ptx_type type, enum ptx_compare compare, uint64_t a, uint64_t b);
void ptx_access(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask);

/* Called before an instruction runs, for lanes with sources that are not fully known. */
void ptx_undefined(struct ptx_warp *w, const struct ptx_instr *in, uint32_t lanes);
uint64_t ptx_permuted(uint64_t a, uint64_t b, uint64_t selector);
uint64_t ptx_extracted(enum ptx_type type, uint64_t a, uint64_t at, uint64_t n);
uint64_t ptx_inserted(uint32_t bits, uint64_t a, uint64_t b, uint64_t at, uint64_t n);
uint64_t ptx_funnelled(const struct ptx_instr *in, uint64_t a, uint64_t b, uint64_t n);

#endif
