/* bench --profile and --profile-against: what the data is like, and what became different. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "drift.h"
#include "tools/bench.h"
#include "tools/tools.h"

static bool file_write(const char *path, const char *text)
{
	FILE *out = fopen(path, "we");
	bool ok = out && fputs(text, out) >= 0;

	if (out && fclose(out) != 0)
		ok = false;
	if (!ok)
		ps_complain("--profile %s: %s", path, strerror(errno));
	return ok;
}

/* The text of a file, to be freed; NULL: complained. */
static char *file_read(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t cap = 0;

	/* A profile has no byte 0, so this is all of it. */
	if (!in || getdelim(&text, &cap, 0, in) < 0) {
		ps_complain("--profile-against %s: %s", path, in && !ferror(in) ? "is empty" : strerror(errno));
		free(text);
		text = NULL;
	}
	if (in)
		fclose(in);
	return text;
}

/* PS_EXIT_DRIFT: something differs. */
static int compare(const char *path, const char *profile)
{
	ps_autofree char *was = file_read(path);
	struct ps_load_error err = {0};
	struct ps_buf lines = {0};
	int code = PS_EXIT_OK;

	if (!was)
		return PS_EXIT_FAILED;
	if (ps_drift_find(was, profile, &lines, &err) < 0) {
		ps_complain("--profile-against %s: %s", path, err.text);
		code = PS_EXIT_FAILED;
	} else if (lines.n > 0) {
		code = PS_EXIT_DRIFT;
	}
	for (char *p = (char *)lines.p, *end; code == PS_EXIT_DRIFT && p < (char *)lines.p + lines.n; p = end + 1) {
		end = memchr(p, '\n', (size_t)((char *)lines.p + lines.n - p));
		*end = 0;
		ps_complain("drift: %s", p);
	}
	ps_buf_fini(&lines);
	return code;
}

int ps_bench_profile(const struct ps_bench_options *o, const char *profile)
{
	int code = o->profile_against ? compare(o->profile_against, profile) : PS_EXIT_OK;

	if (code != PS_EXIT_FAILED && o->profile && !file_write(o->profile, profile))
		code = PS_EXIT_FAILED;
	return code;
}
