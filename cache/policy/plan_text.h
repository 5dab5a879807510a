/* A line of what a loader tells: JSON, as `man penstock-mount` has it under PLANS.
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *
 * The text is of anybody who may read the mount: nothing is allocated, nothing is deep, the text is
 * overwritten. Threads: any. Blocks: never. */
#ifndef PS_POLICY_PLAN_TEXT_H
#define PS_POLICY_PLAN_TEXT_H

#include "policy/plans.h"

#define PS_PLAN_DEPTH 32 /* of members that are passed over */

enum ps_plan_line_kind {
	PS_PLAN_LINE_OTHER, /* JSON, but of neither kind: a reader ignores it */
	PS_PLAN_LINE_EPOCH,
	PS_PLAN_LINE_POSITION,
};
struct ps_plan_line {
	enum ps_plan_line_kind kind;
	struct ps_plan_who who;
	uint64_t files_done;
	/* Names, each ended by NUL, one behind the other: in the text that was parsed. */
	const char *files;
	size_t nfiles;
};

/* text[0..n) has no NUL. -EINVAL: no JSON object, or one of ours that lacks a member or has a bad one. */
int ps_plan_line_parse(char *text, size_t n, struct ps_plan_line *ret) PS_MUST_USE;

#endif
