/* The policies that policy.c lists. */
#ifndef PS_POLICY_POLICY_PRIVATE_H
#define PS_POLICY_POLICY_PRIVATE_H

#include "policy/policy.h"

extern const struct ps_policy_ops ps_policy_plan, ps_policy_scan, ps_policy_lru;

#endif
