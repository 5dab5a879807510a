/* Opcodes: which parts each may have, and what these mean. */
#include "config.h"

#include "ptx_private.h"

static const char *const types[PTX_NTYPES] = {"", "pred", "b8", "b16", "b32", "b64", "u8", "u16", "u32",
        "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"};

enum ptx_type ptx_type_of(const char *name)
{
	for (uint32_t t = 1; t < PTX_NTYPES; t++)
		if (strcmp(types[t], name) == 0)
			return (enum ptx_type)t;
	return PTX_NONE;
}

/* Operands, in order:
 *
 *   d  written, of the type       w  written, twice as wide         D  written, 32 bits
 *   s  read, of the type          W  read, twice as wide            u  read, 32 bits
 *   f  read, of the second type   v  written, one or several        x  read, one or several
 *   P  written, a predicate, or   p  read, a predicate              a  an address
 *      two: p|q                   l  a label                        0  the number 0
 *
 * A part of an opcode is a type of `types`, where each letter stands for some types, or one of `words`. */
struct ptx_opcode {
	const char *base;
	enum ptx_op op;
	const char *shape, *types, *words;
};

/* Letters of `types`: i u16 to u64 and s16 to s64, w those of i with 32 and 64 bits, 4 those of i with 32
 * bits, b b16 to b64, p pred, f f32 and f64, h f16 and bf16, y types of 8 bits. */
#define ROUNDS "rn rz rm rp"
#define ORDERS "relaxed acquire release acq_rel volatile weak cta gpu sys cluster"
#define CACHES "nc ca cg cs lu cv wb wt v2 v4 v8"
#define SPACES "global shared shared::cta local param"

static const struct ptx_opcode opcodes[] = {
        {"add", PTX_ADD, "dss", "if", ROUNDS},
        {"sub", PTX_SUB, "dss", "if", ROUNDS},
        {"mul", PTX_MUL, "dss", "if", ROUNDS " lo hi wide"},
        {"mad", PTX_MAD, "dsss", "if", ROUNDS " lo hi wide"},
        {"fma", PTX_FMA, "dsss", "f", ROUNDS},
        {"div", PTX_DIV, "dss", "if", ROUNDS " approx full"},
        {"rem", PTX_REM, "dss", "i", ""},
        {"abs", PTX_ABS, "ds", "if", ""},
        {"neg", PTX_NEG, "ds", "if", ""},
        {"min", PTX_MIN, "dss", "if", ""},
        {"max", PTX_MAX, "dss", "if", ""},
        {"and", PTX_AND, "dss", "bp", ""},
        {"or", PTX_OR, "dss", "bp", ""},
        {"xor", PTX_XOR, "dss", "bp", ""},
        {"not", PTX_NOT, "ds", "bp", ""},
        {"shl", PTX_SHL, "dsu", "b", ""},
        {"shr", PTX_SHR, "dsu", "bi", ""},
        {"shf", PTX_SHF, "dssu", "b", "l r wrap clamp"},
        {"bfe", PTX_BFE, "dsuu", "w", ""},
        {"bfi", PTX_BFI, "dssuu", "b", ""},
        {"prmt", PTX_PRMT, "dssu", "b", ""},
        {"lop3", PTX_LOP3, "dsssu", "b", ""},
        {"popc", PTX_POPC, "Ds", "b", ""},
        {"clz", PTX_CLZ, "Ds", "b", ""},
        {"brev", PTX_BREV, "ds", "b", ""},
        {"sad", PTX_SAD, "dsss", "i", ""},
        {"dp2a", PTX_DP2A, "Duuu", "4", "lo hi"},
        {"dp4a", PTX_DP4A, "Duuu", "4", ""},
        {"selp", PTX_SELP, "dssp", "ibf", ""},
        {"setp", PTX_SETP, "Pss", "ibf",
                "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor"},
        {"rcp", PTX_RCP, "ds", "f", ROUNDS " approx"},
        {"sqrt", PTX_SQRT, "ds", "f", ROUNDS " approx"},
        {"rsqrt", PTX_RSQRT, "ds", "f", "approx"},
        {"ex2", PTX_EX2, "ds", "f", "approx"},
        {"lg2", PTX_LG2, "ds", "f", "approx"},
        {"sin", PTX_SIN, "ds", "f", "approx"},
        {"cos", PTX_COS, "ds", "f", "approx"},
        {"cvt", PTX_CVT, "df", "iyfh", ROUNDS " rni rzi rmi rpi sat"},
        {"cvta", PTX_CVTA, "ds", "i", "to " SPACES},
        {"mov", PTX_MOV, "vx", "ibfp", ""},
        {"ld", PTX_LD, "va", "ibfy", SPACES " " ORDERS " " CACHES},
        {"st", PTX_ST, "ax", "ibfy", SPACES " " ORDERS " " CACHES},
        {"atom", PTX_ATOM, "das", "wb", SPACES " " ORDERS " add min max and or xor exch cas"},
        {"red", PTX_RED, "as", "wb", SPACES " " ORDERS " add min max and or xor"},
        {"bar", PTX_BAR, "0", "", "sync cta"},
        {"barrier", PTX_BAR, "0", "", "sync aligned cta"},
        {"membar", PTX_NOP, "", "", "cta gl sys"},
        {"fence", PTX_NOP, "", "", "cta gpu sys sc acq_rel"},
        {"bra", PTX_BRA, "l", "", "uni"},
        {"ret", PTX_RET, "", "", "uni"},
        {"exit", PTX_RET, "", "", ""},
        {"trap", PTX_TRAP, "", "", ""},
};

static bool among(const char *word, const char *words)
{
	const size_t n = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

static bool type_allowed(enum ptx_type t, const char *letters)
{
	const bool wide = t == PTX_U32 || t == PTX_U64 || t == PTX_S32 || t == PTX_S64;

	for (; *letters; letters++)
		if ((*letters == 'i' && (wide || t == PTX_U16 || t == PTX_S16)) ||
		        (*letters == 'w' && wide) || (*letters == '4' && (t == PTX_U32 || t == PTX_S32)) ||
		        (*letters == 'b' && t >= PTX_B16 && t <= PTX_B64) ||
		        (*letters == 'p' && t == PTX_PRED) ||
		        (*letters == 'f' && (t == PTX_F32 || t == PTX_F64)) ||
		        (*letters == 'h' && (t == PTX_F16 || t == PTX_BF16)) ||
		        (*letters == 'y' && (t == PTX_U8 || t == PTX_S8 || t == PTX_B8)))
			return true;
	return false;
}

#define FIELD(word, member, value)                              \
	{                                                       \
		word, offsetof(struct ptx_instr, member), value \
	}
static const struct {
	const char *word;
	size_t at; /* offset of a byte */
	uint8_t value;
} words[] = {
        FIELD("rn", round, PTX_RN),
        FIELD("rz", round, PTX_RZ),
        FIELD("rm", round, PTX_RM),
        FIELD("rp", round, PTX_RP),
        FIELD("rni", round, PTX_RNI),
        FIELD("rzi", round, PTX_RZI),
        FIELD("rmi", round, PTX_RMI),
        FIELD("rpi", round, PTX_RPI),
        FIELD("wide", mode, PTX_WIDE),
        FIELD("l", mode, PTX_LEFT),
        FIELD("r", mode, PTX_RIGHT),
        FIELD("clamp", clamp, true),
        FIELD("sat", sat, true),
        FIELD("approx", approximate, true),
        FIELD("full", approximate, true),
        FIELD("to", to, true),
        FIELD("nc", nc, true),
        FIELD("volatile", is_volatile, true),
        FIELD("global", space, PTX_GLOBAL),
        FIELD("shared", space, PTX_SHARED),
        FIELD("shared::cta", space, PTX_SHARED),
        FIELD("local", space, PTX_LOCAL),
        FIELD("param", space, PTX_PARAM),
        FIELD("v2", nvec, 2),
        FIELD("v4", nvec, 4),
        FIELD("v8", nvec, 8),
        FIELD("eq", compare, PTX_EQ),
        FIELD("ne", compare, PTX_NE),
        FIELD("lt", compare, PTX_LT),
        FIELD("le", compare, PTX_LE),
        FIELD("gt", compare, PTX_GT),
        FIELD("ge", compare, PTX_GE),
        FIELD("ls", compare, PTX_LE),
        FIELD("hs", compare, PTX_GE),
        FIELD("equ", compare, PTX_EQU),
        FIELD("neu", compare, PTX_NEU),
        FIELD("ltu", compare, PTX_LTU),
        FIELD("leu", compare, PTX_LEU),
        FIELD("gtu", compare, PTX_GTU),
        FIELD("geu", compare, PTX_GEU),
        FIELD("num", compare, PTX_NUM),
        FIELD("nan", compare, PTX_NAN),
        FIELD("add", atomic, PTX_ATOM_ADD),
        FIELD("min", atomic, PTX_ATOM_MIN),
        FIELD("max", atomic, PTX_ATOM_MAX),
        FIELD("exch", atomic, PTX_ATOM_EXCH),
        FIELD("cas", atomic, PTX_ATOM_CAS),
};

static void word_apply(const char *word, struct ptx_instr *in)
{
	const bool is_setp = in->op == PTX_SETP;

	if (strcmp(word, "lo") == 0 || strcmp(word, "hi") == 0) {
		if (is_setp)
			in->compare = word[0] == 'l' ? PTX_LT : PTX_GT;
		else
			in->mode = word[0] == 'l' ? PTX_LO : PTX_HI;
		return;
	}
	if (strcmp(word, "and") == 0 || strcmp(word, "or") == 0 || strcmp(word, "xor") == 0) {
		if (is_setp)
			in->combine = word[0] == 'a' ? PTX_AND : word[0] == 'o' ? PTX_OR : PTX_XOR;
		else
			in->atomic = word[0] == 'a'   ? PTX_ATOM_AND
			             : word[0] == 'o' ? PTX_ATOM_OR
			                              : PTX_ATOM_XOR;
		return;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].word, word) == 0)
			((uint8_t *)in)[words[i].at] = words[i].value;
}

static bool part_apply(const struct ptx_opcode *o, const char *part, struct ptx_instr *in)
{
	const enum ptx_type t = ptx_type_of(part);
	const bool two = o->op == PTX_CVT || o->op == PTX_DP2A || o->op == PTX_DP4A;

	if (strncmp(part, "L1::", 4) == 0 || strncmp(part, "L2::", 4) == 0)
		return o->op == PTX_LD || o->op == PTX_ST; /* hints */
	if (among(part, o->words)) {
		word_apply(part, in);
		return true;
	}
	if (t == PTX_NONE || !type_allowed(t, o->types))
		return false;
	if (in->type == PTX_NONE)
		in->type = (uint8_t)t;
	else if (two && in->from == PTX_NONE)
		in->from = (uint8_t)t;
	else
		return false;
	return true;
}

/* Checks what no single part shows. NULL, or what is wrong. */
static const char *judged(const struct ptx_opcode *o, const struct ptx_instr *in)
{
	const bool of_floats = ptx_is_float(in->type);

	if (o->types[0] && in->type == PTX_NONE)
		return "has no type";
	if ((o->op == PTX_CVT || o->op == PTX_DP2A || o->op == PTX_DP4A) && in->from == PTX_NONE)
		return "has one type only";
	if ((o->op == PTX_MUL || o->op == PTX_MAD) && (in->mode == PTX_MODE_NONE) != of_floats)
		return "needs one of .lo .hi .wide for integers, and none for floats";
	if (o->op == PTX_DP2A && in->mode == PTX_MODE_NONE)
		return "needs .lo or .hi";
	if (of_floats && !in->approximate && in->round == PTX_ROUND_NONE &&
	        (o->op == PTX_FMA || o->op == PTX_DIV || o->op == PTX_RCP || o->op == PTX_SQRT))
		return "needs a rounding";
	if (o->op == PTX_CVT && of_floats != ptx_is_float(in->from) && in->round == PTX_ROUND_NONE)
		return "needs a rounding";
	if (o->op == PTX_CVT && ptx_is_float(in->from) && !of_floats && in->round < PTX_RNI)
		return "needs one of .rni .rzi .rmi .rpi";
	if (o->op == PTX_CVT && of_floats && ptx_bits(in->from) > ptx_bits(in->type) &&
	        ptx_is_float(in->from) && in->round == PTX_ROUND_NONE)
		return "needs a rounding";
	if ((in->type == PTX_F16 || in->type == PTX_BF16) && in->round != PTX_RN && in->round != PTX_RZ)
		return "to 16 bits rounds by .rn or .rz";
	if (!of_floats && in->round != PTX_ROUND_NONE && o->op != PTX_CVT)
		return "rounds integers";
	if (o->op == PTX_SHF && (in->mode == PTX_MODE_NONE || ptx_bits(in->type) != 32))
		return "needs .l or .r, and 32 bits";
	if ((o->op == PTX_PRMT || o->op == PTX_LOP3) && ptx_bits(in->type) != 32)
		return "has 32 bits";
	if ((o->op == PTX_BFI || o->op == PTX_POPC || o->op == PTX_CLZ || o->op == PTX_BREV) &&
	        ptx_bits(in->type) == 16)
		return "has 32 or 64 bits";
	if ((o->op == PTX_ATOM || o->op == PTX_RED) && ptx_bits(in->type) == 16)
		return "has 32 or 64 bits";
	return NULL;
}

const struct ptx_opcode *ptx_opcode_find(
        const char *base, char *part[], uint32_t nparts, struct ptx_instr *in, char *error, size_t cap)
{
	const struct ptx_opcode *o = NULL;
	const char *wrong;

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]) && !o; i++)
		if (strcmp(opcodes[i].base, base) == 0)
			o = &opcodes[i];
	if (!o) {
		snprintf(error, cap, "the instruction %.40s is not known", base);
		return NULL;
	}
	in->op = (uint8_t)o->op;
	in->combine = PTX_NOP;
	in->nvec = 1;
	in->used = PTX_ALL;
	for (uint32_t i = 0; i < nparts; i++)
		if (!part_apply(o, part[i], in)) {
			snprintf(error, cap, "%.40s: the part .%.40s is not known", base, part[i]);
			return NULL;
		}
	wrong = judged(o, in);
	if (wrong)
		snprintf(error, cap, "%.40s %s", base, wrong);
	return wrong ? NULL : o;
}

const char *ptx_opcode_shape(const struct ptx_opcode *o, const struct ptx_instr *in)
{
	if (in->mode == PTX_WIDE)
		return o->op == PTX_MUL ? "wss" : "wssW";
	if (o->op == PTX_SETP && in->combine != PTX_NOP)
		return "Pssp";
	if (o->op == PTX_ATOM && in->atomic == PTX_ATOM_CAS)
		return "dass";
	return o->shape;
}
