/* bench: fields from the command line. */
#include "config.h"

#include <string.h>

#include "base/dtype.h"
#include "tools/bench.h"
#include "tools/tools.h"

static const struct {
	const char *name;
	uint32_t kind;
} kinds[] = {
        {"image", PENSTOCK_IMAGE},
        {"int64", PENSTOCK_INT64},
        {"float", PENSTOCK_FLOAT},
        {"bytes", PENSTOCK_BYTES},
        {"text", PENSTOCK_TEXT},
        {"json", PENSTOCK_JSON},
        {"npy", PENSTOCK_NPY},
        {"tokens", PENSTOCK_TOKENS},
};

static bool kind_find(const char *text, size_t n, uint32_t *ret_kind)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
		if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, text, n) == 0) {
			*ret_kind = kinds[i].kind;
			return true;
		}
	}
	return false;
}

static bool dtype_find(const char *text, uint32_t *ret_dtype)
{
	for (uint32_t i = 0; i < PS_NDTYPES; i++) {
		if (strcmp(ps_dtype_name((enum ps_dtype)i), text) == 0) {
			*ret_dtype = i;
			return true;
		}
	}
	return false;
}

bool ps_bench_field_take(struct ps_bench_options *o, const char *text)
{
	const char *kind = strrchr(text, '='), *dtype = kind ? strchr(kind, ':') : NULL;
	size_t name_len = kind ? (size_t)(kind - text) : 0;
	struct penstock_field *f = &o->fields[o->nnamed];
	char *name = o->names[o->nnamed];
	uint32_t k;

	if (o->nnamed == PS_BENCH_MAX_FIELDS) {
		ps_complain("--field %s: more than %d fields", text, PS_BENCH_MAX_FIELDS);
		return false;
	}
	if (name_len == 0 || name_len >= sizeof(o->names[0]) ||
	        !kind_find(kind + 1, dtype ? (size_t)(dtype - kind - 1) : strlen(kind + 1), &k)) {
		ps_complain("--field %s: must be NAME=KIND or NAME=KIND:DTYPE, with a KIND of image, int64, "
		            "float, "
		            "bytes, text, json, npy or tokens",
		        text);
		return false;
	}
	memcpy(name, text, name_len);
	name[name_len] = 0;
	penstock_field_init(f, sizeof(*f), name, k);
	if (dtype && !dtype_find(dtype + 1, &f->dtype)) {
		ps_complain("--field %s: no such dtype; as f32, i64, u8", text);
		return false;
	}
	o->nnamed++;
	return true;
}
