/* What the parts of the parser share: the position in the text, names, tokens, and operands.
 *
 * Errors: ptx_wrong() reports an error in the text and jumps back to ptx_module_parse(). */
#ifndef TESTS_PTX_PARSER_H
#define TESTS_PTX_PARSER_H

#include <setjmp.h>

#include "ptx_private.h"

#define PTX_WORD 128
#define PTX_NAMES_MOST 16384u

enum ptx_name_kind { PTX_REGISTERS, PTX_ADDRESS, PTX_LABEL };

/* A name that the function's text has declared. */
struct ptx_name {
	char text[80];
	enum ptx_name_kind kind;
	uint32_t slot, n, bits; /* registers: `n` of them, or 0: one, without a number */
	uint64_t value;         /* of an address or a label */
	uint32_t depth;         /* of braces: when these close, the name is dropped */
};

struct ptx_parser {
	const char *at;
	uint32_t line, source, used;
	char word[PTX_WORD]; /* the next token; "" at the end */
	struct ptx_module *module;
	struct ptx_kernel *k;
	struct ptx_name *names;
	uint32_t nnames, depth;
	/* the labels of branches, by target, until the end of the function */
	char (*labels)[80];
	uint32_t nlabels;
	jmp_buf wrong;
	char *error;
};

_Noreturn void ptx_wrong(struct ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns `all`, enlarged if needed so that there is room for more than `n` elements of `one` bytes. */
void *ptx_more(struct ptx_parser *p, void *all, size_t n, size_t *cap, size_t one);

/* Tokens ------------------------------------------------------------------------------------------------- */
void ptx_next(struct ptx_parser *p);
bool ptx_is(const struct ptx_parser *p, const char *word);
bool ptx_take(struct ptx_parser *p, const char *word); /* takes `word` if it is the next token */
void ptx_expect(struct ptx_parser *p, const char *word);
bool ptx_number_of(const char *word, uint64_t *ret); /* floats: their bits */
uint64_t ptx_number(struct ptx_parser *p);

/* Names -------------------------------------------------------------------------------------------------- */
struct ptx_name *ptx_name_add(struct ptx_parser *p, const char *text, enum ptx_name_kind kind);
/* Finds inner names first; NULL: none. *ret_at: which of several registers. */
const struct ptx_name *ptx_name_find(const struct ptx_parser *p, const char *text, uint32_t *ret_at);
uint16_t ptx_slots_new(struct ptx_parser *p, uint32_t n);
uint16_t ptx_constant(struct ptx_parser *p, uint64_t value);
bool ptx_special_find(const char *word, uint16_t *ret_slot);

/* Operands (operands.c) ---------------------------------------------------------------------------------- */
/* A register's slot; its width must be `bits` (0: any). */
uint16_t ptx_reg(struct ptx_parser *p, uint32_t bits, uint32_t *ret_bits);
void ptx_operand(struct ptx_parser *p, struct ptx_instr *in, char shape); /* ptx_opcode_shape()'s letters */

#endif
