/* What a batch holds: the fields of the options, checked and made ready for use.
 *
 * Ownership: a plan belongs to its creator and keeps nothing of the options'.
 * Threads: any, once made.   Locks: none.   Blocks: never.
 * Errors: -EINVAL with a text that names the field; -ENOMEM. */
#ifndef PS_BATCH_PLAN_H
#define PS_BATCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "image/image.h"
#include "penstock.h"
#include "shard/sample.h"

#define PS_PLAN_MAX_FIELDS 64
#define PS_PLAN_MAX_ALTERNATIVES 16

struct ps_plan_field {
	char *name;  /* as given */
	char *names; /* the alternatives in lower case, each with a zero behind it */
	uint32_t n_names;
	uint32_t name_len[PS_PLAN_MAX_ALTERNATIVES];
	enum penstock_kind kind;
	bool optional;
	int64_t missing_value;
	struct ps_image_spec image; /* PENSTOCK_IMAGE */
	size_t row_nbytes;          /* of a row in place; 0 for ragged fields */
};

struct ps_plan {
	uint32_t nfields;
	struct ps_plan_field fields[PS_PLAN_MAX_FIELDS];
};

/* The fields of the options must be whole structs of this library. */
int ps_plan_new(const struct penstock_options *options, struct ps_plan **ret_plan,
        struct ps_load_error *err) PS_MUST_USE;
void ps_plan_free(struct ps_plan *plan); /* NULL is allowed */

/* True if some field is read from members of that suffix; `plan` is a struct ps_plan. */
bool ps_plan_wants(void *plan, const char *suffix, size_t len);

/* The sample's member for a field: its first alternative that is there, or NULL. */
struct ps_sample_field *ps_plan_find(const struct ps_plan_field *field, struct ps_sample *sample);

/* The field that goes by `name` or has it as an alternative: its place, or -1. */
int ps_plan_lookup(const struct ps_plan *plan, const char *name);

#endif
