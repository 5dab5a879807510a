/* The PTX interpreter: results of instructions, by the PTX ISA, and reports of what fails or is undefined on
 * a GPU. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx.h"

#define HEAD ".version 7.8\n.target sm_75\n.address_size 64\n"

/* What all kernels of these tests have: arguments `in` and `out`, 64 bytes each, shared memory `room`, and
 * registers. LOADED loads words of `in` to registers. */
#define BODY(name)                                                                   \
	".visible .entry " name "(.param .u64 in, .param .u64 out)\n{\n"             \
	".reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>, %q;\n" \
	".reg .b32 %tid; .reg .b64 %in, %out;\n"                                     \
	".shared .align 16 .b8 room[1024];\n"                                        \
	"ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %tid, %tid.x;\n"
#define BEGIN HEAD BODY("k")
#define LOADED                                                                                 \
	"ld.global.b64 %d1, [%in]; ld.global.b64 %d2, [%in+8]; ld.global.b64 %d3, [%in+16];\n" \
	"ld.global.b32 %r1, [%in]; ld.global.b32 %r2, [%in+8]; ld.global.b32 %r3, [%in+16];\n" \
	"ld.global.b16 %h1, [%in]; ld.global.b16 %h2, [%in+8]; ld.global.b16 %h3, [%in+16];\n"
#define END "\nret;\n}\n"

struct memory {
	uint64_t in[8], out[8];
	void *shadows[2];
};

/* Launches the kernel k. error: the error's text, or "". */
static int launch(
        const char *text, struct memory *m, const struct ptx_launch *how, char error[static PTX_TEXT])
{
	struct ptx_range ranges[] = {{(const char *)m->in, sizeof(m->in), &m->shadows[0]},
	        {(const char *)m->out, sizeof(m->out), &m->shadows[1]}};
	uint64_t params[] = {(uintptr_t)m->in, (uintptr_t)m->out};
	struct ptx_launch l = *how;
	struct ptx_module *module;
	int rc;

	error[0] = '\0';
	rc = ptx_module_parse(text, strlen(text), &module, error);
	if (rc < 0)
		return rc;
	l.params = params;
	l.ranges = ranges;
	l.nranges = 2;
	if (l.shared_most == 0)
		l.shared_most = 48 << 10;
	rc = ptx_launch(ptx_module_find(module, "k"), &l, error);
	ptx_module_free(module);
	free(m->shadows[0]);
	free(m->shadows[1]);
	m->shadows[0] = m->shadows[1] = NULL;
	return rc;
}

/* Results of instructions -------------------------------------------------------------------------------- */

/* The first register with the number 0 has the result: %r0, %d0, %h0 or %p0. a is loaded to %r1, %d1 and
 * %h1, b to %r2 and so on. */
static const struct {
	const char *code;
	uint64_t a, b, c, want;
} instructions[] = {
        {"add.s32 %r0, %r1, %r2;", 0xffffffff, 2, 0, 1},
        {"add.s16 %h0, %h1, %h2;", 0xffff, 2, 0, 1},
        {"add.s64 %d0, %d1, -1;", 0, 0, 0, UINT64_MAX},
        {"sub.s32 %r0, %r1, %r2;", 1, 2, 0, 0xffffffff},
        {"mul.lo.s32 %r0, %r1, %r2;", 0x10001, 0x10001, 0, 0x20001},
        {"mul.hi.u32 %r0, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
        {"mul.hi.s32 %r0, %r1, %r2;", 0xffffffff, 2, 0, 0xffffffff},
        {"mul.hi.u64 %d0, %d1, %d2;", UINT64_MAX, UINT64_MAX, 0, UINT64_MAX - 1},
        {"mul.hi.s64 %d0, %d1, %d2;", UINT64_MAX, 2, 0, UINT64_MAX},
        {"mul.hi.u16 %h0, %h1, %h2;", 0xffff, 0xffff, 0, 0xfffe},
        {"mul.wide.s32 %d0, %r1, %r2;", 0xffffffff, 3, 0, (uint64_t)-3},
        {"mul.wide.u32 %d0, %r1, %r2;", 0xffffffff, 3, 0, 0x2fffffffd},
        {"mul.wide.s16 %r0, %h1, %h2;", 0x8000, 2, 0, 0xffff0000},
        {"mul.wide.u16 %r0, %h1, %h2;", 0x8000, 2, 0, 0x10000},
        {"mad.lo.s32 %r0, %r1, %r2, %r3;", 3, 5, 0xfffffff0, 0xffffffff},
        {"mad.wide.s32 %d0, %r1, %r2, %d3;", 0xffffffff, 3, 4, 1},
        {"mad.hi.u32 %r0, %r1, %r2, %r3;", 0x80000000, 4, 7, 9},
        {"div.s32 %r0, %r1, %r2;", (uint32_t)-7, 2, 0, (uint32_t)-3},
        {"div.s32 %r0, %r1, %r2;", 0x80000000, 0xffffffff, 0, 0x80000000},
        {"div.u32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, 0x7ffffffc},
        {"rem.s32 %r0, %r1, %r2;", (uint32_t)-7, 2, 0, (uint32_t)-1},
        {"rem.u64 %d0, %d1, %d2;", UINT64_MAX, 10, 0, 5},
        {"abs.s32 %r0, %r1;", (uint32_t)-7, 0, 0, 7},
        {"neg.s16 %h0, %h1;", 1, 0, 0, 0xffff},
        {"min.s32 %r0, %r1, %r2;", 0xffffffff, 1, 0, 0xffffffff},
        {"min.u32 %r0, %r1, %r2;", 0xffffffff, 1, 0, 1},
        {"max.s64 %d0, %d1, %d2;", UINT64_MAX, 1, 0, 1},
        {"and.b32 %r0, %r1, %r2;", 0xff0f, 0xf0ff, 0, 0xf00f},
        {"not.b16 %h0, %h1;", 0xff, 0, 0, 0xff00},
        {"xor.b64 %d0, %d1, %d2;", 5, 3, 0, 6},
        {"shl.b32 %r0, %r1, %r2;", 1, 31, 0, 0x80000000},
        {"shl.b32 %r0, %r1, %r2;", 1, 32, 0, 0},
        {"shr.u32 %r0, %r1, %r2;", 0x80000000, 31, 0, 1},
        {"shr.s32 %r0, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
        {"shr.s16 %h0, %h1, %r2;", 0x8000, 3, 0, 0xf000},
        {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 0x80000000, 1, 1, 3},
        {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 0x80000000, 1, 33, 0xc0000000},
        {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 7, 9, 40, 9},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 0x12345678, 8, 12, 0x456},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 0x00000800, 8, 4, 0xfffffff8},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 0x80000000, 28, 20, 0xfffffff8},
        {"bfi.b32 %r0, %r1, %r2, 8, 4;", 0xab, 0xffffffff, 0, 0xfffffbff},
        {"bfi.b64 %d0, %d1, %d2, 32, 32;", 7, 5, 0, 0x700000005},
        {"prmt.b32 %r0, %r1, %r2, 30212;", 0x33221100, 0x77665544, 0, 0x77660044},
        {"prmt.b32 %r0, %r1, %r2, %r3;", 0x33228000, 0x77665544, 0x4190, 0x4480ff00},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", 0xf0, 0xcc, 0xaa, 0xe8},
        {"popc.b64 %r0, %d1;", 0xf0000000000000ff, 0, 0, 12},
        {"clz.b32 %r0, %r1;", 0x00010000, 0, 0, 15},
        {"clz.b32 %r0, %r1;", 0, 0, 0, 32},
        {"brev.b32 %r0, %r1;", 1, 0, 0, 0x80000000},
        {"sad.u32 %r0, %r1, %r2, %r3;", 3, 10, 5, 12},
        {"dp2a.lo.u32.u32 %r0, %r1, %r2, %r3;", 0x00020003, 0x04030201, 10, 17},
        {"dp2a.hi.s32.u32 %r0, %r1, %r2, %r3;", 0xffff0001, 0x04030201, 10, 9},
        {"dp4a.u32.s32 %r0, %r1, %r2, %r3;", 0x01010102, 0x01ff0203, 0, 8},
        {"selp.b32 %r0, %r1, %r2, %q;", 7, 9, 0, 9},
        {"setp.lt.s32 %p0, %r1, %r2;", 0xffffffff, 0, 0, 1},
        {"setp.lt.u32 %p0, %r1, %r2;", 0xffffffff, 0, 0, 0},
        {"setp.hs.u32 %p0, %r1, %r2;", 3, 3, 0, 1},
        {"setp.eq.or.s32 %p1|%p0, %r1, %r2, !%q;", 3, 3, 0, 1},
        {"setp.ltu.f32 %p0, %r1, %r2;", 0x7fc00000, 0, 0, 1},
        {"setp.ne.f32 %p0, %r1, %r2;", 0x7fc00000, 0, 0, 0},
        {"setp.eq.f32 %p0, %r1, %r2;", 0x80000000, 0, 0, 1},
        {"mov.b64 %d0, {%r1, %r2};", 1, 2, 0, 0x200000001},
        {"mov.b32 {%h1, %h0}, %r1;", 0x12345678, 0, 0, 0x1234},
        {"{ .reg .b32 low; add.u32 low, %r1, 1; mov.b32 %r0, low; }", 8, 0, 0, 9},
        /* 1 + 2^-24 is half way between two floats: it rounds to even, down or up */
        {"add.rn.f32 %r0, %r1, %r2;", 0x3f800000, 0x33800000, 0, 0x3f800000},
        {"add.rp.f32 %r0, %r1, %r2;", 0x3f800000, 0x33800000, 0, 0x3f800001},
        {"add.rz.f32 %r0, %r1, %r2;", 0xbf800000, 0xb3ffffff, 0, 0xbf800000},
        {"add.rm.f32 %r0, %r1, %r2;", 0xbf800000, 0xb3000000, 0, 0xbf800001},
        /* (1 + 2^-12)^2 - 1 - 2^-11: a product that is rounded loses 2^-24 */
        {"fma.rn.f32 %r0, %r1, %r2, %r3;", 0x3f800800, 0x3f800800, 0xbf801000, 0x33800000},
        {"{ mul.rn.f32 %r4, %r1, %r2; add.rn.f32 %r0, %r4, %r3; }", 0x3f800800, 0x3f800800, 0xbf801000, 0},
        {"div.rn.f32 %r0, %r1, %r2;", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
        {"div.rz.f32 %r0, %r1, %r2;", 0x3f800000, 0x40400000, 0, 0x3eaaaaaa},
        {"sqrt.rn.f32 %r0, %r1;", 0x40000000, 0, 0, 0x3fb504f3},
        {"rcp.rn.f32 %r0, %r1;", 0x40800000, 0, 0, 0x3e800000},
        {"sub.rn.f32 %r0, %r1, %r2;", 0x7f800000, 0x7f800000, 0, 0x7fffffff},
        {"min.f32 %r0, %r1, %r2;", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
        {"max.f32 %r0, %r1, %r2;", 0x80000000, 0, 0, 0},
        {"neg.f32 %r0, %r1;", 0x3f800000, 0, 0, 0xbf800000},
        {"abs.f32 %r0, %r1;", 0xbf800000, 0, 0, 0x3f800000},
        {"mul.rn.f64 %d0, %d1, %d2;", 0x4000000000000000, 0x4008000000000000, 0, 0x4018000000000000},
        {"cvt.u16.u32 %h0, %r1;", 0x12345678, 0, 0, 0x5678},
        {"cvt.s32.s16 %r0, %h1;", 0x8000, 0, 0, 0xffff8000},
        {"cvt.u64.u32 %d0, %r1;", 0xffffffff, 0, 0, 0xffffffff},
        {"cvt.s64.s32 %d0, %r1;", 0xffffffff, 0, 0, UINT64_MAX},
        {"cvt.s8.s32 %r0, %r1;", 0x80, 0, 0, 0xffffff80},
        {"cvt.sat.u8.s32 %r0, %r1;", 300, 0, 0, 255},
        {"cvt.sat.u8.s32 %r0, %r1;", 0xffffffff, 0, 0, 0},
        {"cvt.sat.s16.s32 %h0, %r1;", 0xffff0000, 0, 0, 0x8000},
        {"cvt.rn.f32.u32 %r0, %r1;", 0xffffffff, 0, 0, 0x4f800000},
        {"cvt.rz.f32.u32 %r0, %r1;", 0xffffffff, 0, 0, 0x4f7fffff},
        {"cvt.rn.f32.s32 %r0, %r1;", 0xffffffff, 0, 0, 0xbf800000},
        {"cvt.rn.f32.u16 %r0, %h1;", 3, 0, 0, 0x40400000},
        {"cvt.rzi.s32.f32 %r0, %r1;", 0xc0200000, 0, 0, (uint32_t)-2},
        {"cvt.rni.s32.f32 %r0, %r1;", 0x40200000, 0, 0, 2},
        {"cvt.rpi.u32.f32 %r0, %r1;", 0x40200000, 0, 0, 3},
        {"cvt.rzi.u32.f32 %r0, %r1;", 0xc0200000, 0, 0, 0},
        {"cvt.rzi.s32.f32 %r0, %r1;", 0x4f800000, 0, 0, 0x7fffffff},
        {"cvt.rmi.f32.f32 %r0, %r1;", 0xbf000000, 0, 0, 0xbf800000},
        {"cvt.sat.f32.f32 %r0, %r1;", 0x40000000, 0, 0, 0x3f800000},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x3f800000, 0, 0, 0x3c00},
        {"cvt.rn.f16.f32 %h0, %r1;", 0, 0, 0, 0},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x80000000, 0, 0, 0x8000},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0, 0, 0, 0},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x477fefff, 0, 0, 0x7bff}, /* just under 65520 */
        {"cvt.rn.f16.f32 %h0, %r1;", 0x477ff000, 0, 0, 0x7c00},
        {"cvt.rz.f16.f32 %h0, %r1;", 0x477fffff, 0, 0, 0x7bff},
        {"cvt.rz.f16.f32 %h0, %r1;", 0xc9742400, 0, 0, 0xfbff},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x7f7fffff, 0, 0, 0x7f80},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x33000000, 0, 0, 0}, /* 2^-25: half of the least */
        {"cvt.rn.f16.f32 %h0, %r1;", 0x33000001, 0, 0, 1},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x387fe000, 0, 0, 0x0400}, /* a carry out of the subnormals */
        {"cvt.rn.f16.f32 %h0, %r1;", 0xff800000, 0, 0, 0xfc00},
        {"cvt.f32.f16 %r0, %h1;", 0x0001, 0, 0, 0x33800000},
        {"cvt.f32.f16 %r0, %h1;", 0xc000, 0, 0, 0xc0000000},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x3f808000, 0, 0, 0x3f80}, /* half way, to even */
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x3f818000, 0, 0, 0x3f82},
        {"cvt.f64.f32 %d0, %r1;", 0x3f800000, 0, 0, 0x3ff0000000000000},
        {"cvt.rn.f32.f64 %r0, %d1;", 0x3ff0000010000000, 0, 0, 0x3f800000},
        {"ld.global.s8 %r0, [%in+8];", 0, 0x80, 0, 0xffffff80},
        {"ld.global.u8 %h0, [%in+8];", 0, 0x80, 0, 0x80},
        {"ld.global.v2.u16 {%h1, %h0}, [%in];", 0x12345678, 0, 0, 0x1234},
        {"ld.u32 %r0, [%in+8];", 0, 77, 0, 77},
        {"{ st.shared.u32 [room+4], %r1; ld.shared.u16 %r0, [room+6]; }", 0x12345678, 0, 0, 0x1234},
        {"{ mov.u64 %d4, room; cvta.shared.u64 %d4, %d4; st.u32 [%d4], %r1; ld.shared.u32 %r0, [room]; }", 5,
                0, 0, 5},
        {"{ st.shared.u32 [room], %r1; atom.shared.add.u32 %r4, [room], %r2; ld.shared.u32 %r0, [room]; }", 5,
                6, 0, 11},
        {"atom.global.cas.b64 %d0, [%in], %d1, %d2;", 5, 6, 0, 5},
        {"{ red.global.max.s32 [%in], %r2; ld.global.s32 %r0, [%in]; }", 0xffffffff, 3, 0, 3},
};

/* The letter of the first register with the number 0. */
static char result_kind(const char *code)
{
	for (; *code; code++)
		if (code[0] == '%' && code[1] && code[2] == '0')
			return code[1];
	return ' ';
}

static void instructions_give_what_the_isa_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
		const char *code = instructions[i].code, kind = result_kind(code);
		struct memory m = {.in = {instructions[i].a, instructions[i].b, instructions[i].c}};
		const struct ptx_launch one = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
		char text[4096], error[PTX_TEXT];

		snprintf(text, sizeof(text), "%ssetp.ne.s32 %%q, 0, 0;\n%s\n%s%s", BEGIN LOADED, code,
		        kind == 'p'   ? "selp.u32 %r0, 1, 0, %p0; st.global.u32 [%out], %r0;"
		        : kind == 'h' ? "st.global.u16 [%out], %h0;"
		        : kind == 'd' ? "st.global.u64 [%out], %d0;"
		                      : "st.global.u32 [%out], %r0;",
		        END);
		if (launch(text, &m, &one, error) != 0)
			fail_msg("%s: %s", code, error);
		if (m.out[0] != instructions[i].want)
			fail_msg("%s gives 0x%llx, should be 0x%llx", code, (unsigned long long)m.out[0],
			        (unsigned long long)instructions[i].want);
	}
}

/* Lanes diverge and converge, warps wait for each other, blocks have their own numbers. */
static void threads_diverge_and_converge(void **state)
{
	static const char text[] =
	        BEGIN "mov.u32 %r1, 0;\n"
	              "mov.u32 %r2, 0;\n"
	              "LOOP: setp.ge.u32 %p1, %r1, %tid;\n" /* thread t adds t times 2 */
	              "@%p1 bra DONE;\n"
	              "add.u32 %r2, %r2, 2;\n"
	              "add.u32 %r1, %r1, 1;\n"
	              "bra LOOP;\n"
	              "DONE: shl.b32 %r3, %tid, 2;\n"
	              "mov.u32 %r4, room; add.u32 %r3, %r3, %r4;\n"
	              "st.shared.u32 [%r3], %r2;\n"
	              "bar.sync 0;\n"
	              "setp.ne.u32 %p2, %tid, 0;\n"
	              "@%p2 ret;\n"
	              "mov.u32 %r5, 0; mov.u32 %r6, 0;\n"
	              "SUM: ld.shared.u32 %r7, [%r4]; add.u32 %r5, %r5, %r7; add.u32 %r4, %r4, 4;\n"
	              "add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 100; @%p3 bra SUM;\n"
	              "mov.u32 %r6, %ctaid.x; mul.wide.u32 %d1, %r6, 4; add.u64 %d1, %out, %d1;\n"
	              "add.u32 %r5, %r5, %r6; st.global.u32 [%d1], %r5;" END;
	const struct ptx_launch how = {.grid = {3, 1, 1}, .block = {100, 1, 1}};
	struct memory m = {0};
	char error[PTX_TEXT];

	(void)state;
	if (launch(text, &m, &how, error) != 0)
		fail_msg("%s", error);
	assert_int_equal(m.out[0], (UINT64_C(9901) << 32) + 9900);
	assert_int_equal(m.out[1], 9902);
}

/* Faults ------------------------------------------------------------------------------------------------- */

static const struct {
	const char *code;
	uint32_t blocks, threads;
	const char *wrong; /* NULL: nothing is wrong */
} runs[] = {
        {"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+16];", 1, 1, NULL},
        {"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+8];", 1, 1, "is not aligned to 16"},
        {"ld.global.u16 %h1, [%in+1];", 1, 1, "is not aligned to 2"},
        {"st.shared.v2.u32 [room+4], {%tid, %tid};", 1, 1, "is not aligned to 8"},
        {"st.global.u32 [%out+60], %tid;", 1, 1, NULL},
        {"st.global.u32 [%out+64], %tid;", 1, 1, "not within what the global space has"},
        {"ld.global.u32 %r1, [%in+-4];", 1, 1, "not within what the global space has"},
        {"ld.global.v2.u64 {%d1, %d2}, [%out+64];", 1, 1, "not within"},
        {"mov.u64 %d1, 0; ld.u32 %r1, [%d1];", 1, 1, "not within"},
        {"st.shared.u32 [room+1020], %tid;", 1, 1, NULL},
        {"st.shared.u32 [room+1024], %tid;", 1, 1, "not within what the shared space has"},
        {"ld.param.u32 %r1, [out+8];", 1, 1, "not within what the param space has"},
        {"mov.u64 %d1, in; st.param.u32 [%d1], %tid;", 1, 1, "cannot be written"},
        {"cvta.to.shared.u64 %d1, %in;", 1, 1, "is no address in that space"},
        {"st.shared.u32 [room], %tid;", 1, 2, "a race: written by two threads"},
        {"st.shared.u32 [room], %tid;", 1, 64, "a race: written by two threads"},
        {"st.shared.u8 [room], 1; ld.shared.u8 %r1, [room];", 1, 1, NULL},
        /* each thread writes its word and reads its neighbour's */
        {"shl.b32 %r1, %tid, 2; mov.u32 %r2, room; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %tid;\n"
         "bar.sync 0; xor.b32 %r1, %r1, 4; ld.shared.u32 %r3, [%r1];",
                1, 64, NULL},
        {"shl.b32 %r1, %tid, 2; mov.u32 %r2, room; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %tid;\n"
         "xor.b32 %r1, %r1, 4; ld.shared.u32 %r3, [%r1];",
                1, 64, "a race: read, and written by another thread"},
        {"shl.b32 %r1, %tid, 2; mov.u32 %r2, room; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %tid;\n"
         "bar.sync 0; xor.b32 %r1, %r1, 4; ld.shared.u32 %r3, [%r1]; xor.b32 %r1, %r1, 4;\n"
         "st.shared.u32 [%r1], %tid;",
                1, 64, "a race: written, and read by another thread"},
        {"st.global.u32 [%out], 7;", 2, 1, "a race: written by two threads"},
        {"atom.global.add.u32 %r1, [%out], 1;", 4, 64, NULL},
        {"atom.global.add.u32 %r1, [%out], 1; ld.global.u32 %r2, [%out];", 1, 2, "a race: read, and written"},
        {"mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%out], 7;\n"
         "@!%p1 ld.global.u32 %r2, [%out];",
                2, 1, "a race: read, and written"},
        {"st.global.u32 [%out], 7; ld.global.nc.u32 %r1, [%out];", 1, 1, "as if constant"},
        {"setp.eq.u32 %p1, %tid, 0; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B:", 1, 2,
                "waits at this barrier, thread 0 at that of line"},
        {"setp.eq.u32 %p1, %tid, 40; @%p1 ret; bar.sync 0;", 1, 64, "thread 40: line"},
        {"setp.lt.u32 %p1, %tid, 32; @%p1 ret; bar.sync 0;", 1, 64, "has left, others wait at a barrier"},
        {"ld.shared.u32 %r1, [room]; st.global.u32 [%out], %r1;", 1, 1,
                "stored depends on what was never written"},
        {"ld.shared.u32 %r1, [room]; mul.lo.s32 %r1, %r1, 0; st.global.u32 [%out], %r1;", 1, 1, NULL},
        {"ld.shared.u32 %r1, [room]; and.b32 %r1, %r1, 15; st.global.u32 [%out], %r1;", 1, 1,
                "never written"},
        {"ld.shared.u32 %r1, [room]; shr.u32 %r1, %r1, 8; and.b32 %r1, %r1, 0xff000000;\n"
         "st.global.u32 [%out], %r1;",
                1, 1, NULL},
        {"st.shared.u16 [room], 9; ld.shared.u32 %r1, [room]; cvt.u16.u32 %h1, %r1; st.global.u16 [%out], "
         "%h1;",
                1, 1, NULL},
        {"st.shared.u16 [room], 9; ld.shared.u32 %r1, [room]; add.u32 %r1, %r1, 1; cvt.u16.u32 %h1, %r1;\n"
         "st.global.u16 [%out], %h1;",
                1, 1, NULL},
        {"st.shared.u16 [room], 9; ld.shared.u32 %r1, [room]; shr.u32 %r1, %r1, 8; st.global.u32 [%out], "
         "%r1;",
                1, 1, "never written"},
        {"st.global.u32 [%out], %r1;", 1, 1, "never written"},
        {"setp.eq.u32 %p1, %r1, 0; @%p1 bra A; A:", 1, 1, "the condition depends on what was never written"},
        {"ld.global.u32 %r1, [%d1];", 1, 1, "the address depends on what was never written"},
        {"cvt.u64.u32 %d1, %r1; and.b64 %d1, %d1, 4; add.u64 %d1, %d1, %in; ld.global.u32 %r2, [%d1];", 1, 1,
                "the address depends"},
        {"mov.u32 %r1, 0; div.u32 %r2, %tid, %r1;", 1, 1, "a division by zero"},
        {"A: bra A;", 1, 1, "does not come to an end"},
        {"trap;", 1, 1, "a trap"},
};

static void faults_are_reported(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		const struct ptx_launch how = {
		        .grid = {runs[i].blocks, 1, 1}, .block = {runs[i].threads, 1, 1}};
		struct memory m = {0};
		char text[4096], error[PTX_TEXT];
		int r;

		snprintf(text, sizeof(text), "%s%s%s", BEGIN, runs[i].code, END);
		r = launch(text, &m, &how, error);
		if (r != (runs[i].wrong ? -EFAULT : 0) || (runs[i].wrong && !strstr(error, runs[i].wrong)))
			fail_msg("%s\n: %d, \"%s\"; should be \"%s\"", runs[i].code, r, error,
			        runs[i].wrong ? runs[i].wrong : "");
	}
}

/* The text of a fault has the kernel, the block, the thread, the line and the instruction. */
static void a_fault_is_reported_with_its_place(void **state)
{
	static const char text[] =
	        HEAD BODY("first") "bra A; A:" END BODY("k") ".loc 1 42 3\nsetp.eq.u32 %p1, %tid, 35;\n"
	                                                     "mov.u32 %r1, %ctaid.x;\n"
	                                                     "setp.eq.and.u32 %p1, %r1, 2, %p1;\n"
	                                                     "@%p1 st.global.u32 [%out+2], %tid;" END;
	const struct ptx_launch how = {.grid = {4, 1, 1}, .block = {64, 1, 1}};
	struct memory m = {0};
	char error[PTX_TEXT];

	(void)state;
	assert_int_equal(launch(text, &m, &how, error), -EFAULT);
	if (!strstr(error, "k: block 2, thread 35: line 23, line 42 of the source: @%p1 st.global.u32 "
	                   "[%out+2], %tid;: "))
		fail_msg("%s", error);
}

/* Launches and texts ------------------------------------------------------------------------------------- */

static void launches_have_limits(void **state)
{
	static const struct {
		const char *directives;
		struct ptx_launch how;
		bool taken;
	} rows[] = {
	        {"", {.grid = {1, 1, 1}, .block = {1024, 1, 1}}, true},
	        {"", {.grid = {1, 1, 1}, .block = {1025, 1, 1}}, false},
	        {"", {.grid = {1, 1, 1}, .block = {1, 1, 65}}, false},
	        {"", {.grid = {1, 65536, 1}, .block = {1, 1, 1}}, false},
	        {"", {.grid = {0, 1, 1}, .block = {1, 1, 1}}, false},
	        {".maxntid 256, 1, 1", {.grid = {1, 1, 1}, .block = {256, 1, 1}}, true},
	        {".maxntid 256, 1, 1", {.grid = {1, 1, 1}, .block = {257, 1, 1}}, false},
	        {".reqntid 64", {.grid = {1, 1, 1}, .block = {32, 1, 1}}, false},
	        {"", {.grid = {1, 1, 1}, .block = {1, 1, 1}, .dynamic_nbytes = 48 << 10}, true},
	        {"", {.grid = {1, 1, 1}, .block = {1, 1, 1}, .dynamic_nbytes = (48 << 10) + 1}, false},
	        {"",
	                {.grid = {1, 1, 1},
	                        .block = {1, 1, 1},
	                        .dynamic_nbytes = 64 << 10,
	                        .shared_most = 64 << 10},
	                true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[512], error[PTX_TEXT];
		struct memory m = {0};

		snprintf(text, sizeof(text),
		        HEAD ".visible .entry k(.param .u64 a, .param .u64 b) %s { ret; }",
		        rows[i].directives);
		if (launch(text, &m, &rows[i].how, error) != (rows[i].taken ? 0 : -EINVAL))
			fail_msg("launch %zu: %s", i, error);
	}
}

static void unknown_text_is_an_error(void **state)
{
	static const struct {
		const char *code, *wrong;
	} rows[] = {
	        {"foo.u32 %r1, %r2;", "the instruction foo is not known"},
	        {"add.ftz.f32 %r1, %r2, %r3;", "the part .ftz is not known"},
	        {"shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;", "shfl is not known"},
	        {"bar.sync 1;", "a barrier other than 0"},
	        {"add.s32 %r1, %r2, %d1;", "%d1 has 64 bits, not 32"},
	        {"add.s32 %d1, %r2, %r3;", "has 64 bits, not 32"},
	        {"add.s32 %r1, %r2;", "where ',' should be"},
	        {"add.s32 %r1, %r2, %r99;", "where a register should be"},
	        {"ld.global.u32 %h1, [%in];", "a register of 16 bits where 32 are loaded"},
	        {"cvt.f32.u32 %r1, %r2;", "needs a rounding"},
	        {"cvt.s32.f32 %r1, %r2;", "needs a rounding"},
	        {"fma.f32 %r1, %r2, %r3, %r4;", "needs a rounding"},
	        {"mul.s32 %r1, %r2, %r3;", "needs one of .lo"},
	        {"bra NOWHERE;", "there is no label NOWHERE"},
	        {".tex .u64 t;", "the directive .tex is not known"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ptx_launch one = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
		char text[4096], error[PTX_TEXT];
		struct memory m = {0};

		snprintf(text, sizeof(text), "%s%s%s", BEGIN, rows[i].code, END);
		if (launch(text, &m, &one, error) != -EINVAL || !strstr(error, rows[i].wrong))
			fail_msg("%s: \"%s\"; should be \"%s\"", rows[i].code, error, rows[i].wrong);
	}
}

static void floats_that_may_differ_are_counted(void **state)
{
	static const char text[] = BEGIN LOADED
	        "fma.rn.f32 %r1, %r1, %r1, %r1; mul.f32 %r1, %r1, %r1; add.f32 %r1, %r1, %r1;\n"
	        "mul.rn.f32 %r1, %r1, %r1; div.approx.f32 %r1, %r1, %r1; mad.lo.s32 %r1, %r1, %r1, %r1;" END;
	struct ptx_module *m;
	struct ptx_facts f;
	char error[PTX_TEXT];

	(void)state;
	assert_int_equal(ptx_module_parse(text, strlen(text), &m, error), 0);
	assert_null(ptx_module_find(m, "none"));
	f = ptx_kernel_facts(ptx_module_find(m, "k"));
	assert_int_equal(f.nfused, 1);
	assert_int_equal(f.nfree, 2);
	assert_int_equal(f.napproximate, 1);
	assert_int_equal(f.params_nbytes, 16);
	assert_int_equal(f.shared_nbytes, 1024);
	ptx_module_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(instructions_give_what_the_isa_says),
	        cmocka_unit_test(threads_diverge_and_converge),
	        cmocka_unit_test(faults_are_reported),
	        cmocka_unit_test(a_fault_is_reported_with_its_place),
	        cmocka_unit_test(launches_have_limits),
	        cmocka_unit_test(unknown_text_is_an_error),
	        cmocka_unit_test(floats_that_may_differ_are_counted),
	};

	return cmocka_run_group_tests_name("ptx", tests, NULL, NULL);
}
