/* bench --profile and --profile-against: what the data is like, and what became different. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tools.h"

/* What is worth a warning. A batch of a thousand rows stays below all of these by chance. */
#define MEAN_SHIFT 0.25   /* of a mean, in deviations */
#define SCALE_CHANGE 1.5  /* of a deviation, as a factor */
#define LABELS_MOVED 0.10 /* share of the samples that would have to change their label */

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

static double number(const json_t *moments, const char *name)
{
	return json_number_value(json_object_get(moments, name));
}

static void moments_compare(const char *field, const char *what, const json_t *now, const json_t *was)
{
	double shift, a = number(now, "std"), b = number(was, "std");

	if (!now || !was)
		return;
	shift = fabs(number(now, "mean") - number(was, "mean")) /
	        fmax(b, 1e-6 + 1e-3 * fabs(number(was, "mean")));
	if (shift > MEAN_SHIFT)
		ps_complain("drift: field %s: mean of %s is %.4g, was %.4g (deviation %.4g)", field, what,
		        number(now, "mean"), number(was, "mean"), b);
	if (a > b * SCALE_CHANGE || b > a * SCALE_CHANGE)
		ps_complain("drift: field %s: deviation of %s is %.4g, was %.4g", field, what, a, b);
}

static double sum(json_t *labels)
{
	const char *key;
	json_t *v;
	double n = 0;

	json_object_foreach(labels, key, v) n += json_number_value(v);
	return n;
}

/* Half the sum of differences of shares: how many samples have moved. */
static void labels_compare(const char *field, json_t *now, json_t *was)
{
	double n = sum(now), m = sum(was), moved = 0;
	const char *key;
	json_t *v;

	if (n == 0 || m == 0)
		return;
	json_object_foreach(now, key, v)
	{
		moved += fabs(json_number_value(v) / n - number(was, key) / m);
		if (!json_object_get(was, key))
			ps_complain("drift: field %s: label %s is new", field, key);
	}
	json_object_foreach(was, key, v) if (!json_object_get(now, key)) moved += json_number_value(v) / m;
	if (moved / 2 > LABELS_MOVED)
		ps_complain("drift: field %s: %.0f %% of the samples have other labels", field, 50 * moved);
}

static void field_compare(const char *name, json_t *now, json_t *was)
{
	static const char *const parts[] = {"bytes", "items", "values"};
	json_t *channel;
	size_t i;

	for (i = 0; i < PS_ARRAY_LEN(parts); i++)
		moments_compare(
		        name, parts[i], json_object_get(now, parts[i]), json_object_get(was, parts[i]));
	json_array_foreach(json_object_get(now, "channels"), i, channel)
	{
		char what[32];

		snprintf(what, sizeof(what), "channel %zu", i);
		moments_compare(name, what, channel, json_array_get(json_object_get(was, "channels"), i));
	}
	labels_compare(name, json_object_get(now, "labels"), json_object_get(was, "labels"));
}

static bool compare(const char *path, const char *profile)
{
	json_error_t why;
	json_t *was = json_load_file(path, 0, &why), *now = json_loads(profile, 0, NULL);
	json_t *fields = json_object_get(now, "fields"), *old = json_object_get(was, "fields"), *v;
	const char *name;
	bool ok = json_is_object(fields) && json_is_object(old);

	if (!was)
		ps_complain("--profile-against %s: %s", path, why.text);
	else if (!ok)
		ps_complain("--profile-against %s: no profile; make one by bench --profile", path);
	if (ok) {
		json_object_foreach(fields, name, v)
		{
			if (json_object_get(old, name))
				field_compare(name, v, json_object_get(old, name));
			else
				ps_complain("drift: field %s: the other profile has none", name);
		}
	}
	json_decref(was);
	json_decref(now);
	return ok;
}

bool ps_bench_profile(const struct ps_bench_options *o, const char *profile)
{
	if (o->profile_against && !compare(o->profile_against, profile))
		return false;
	return !o->profile || file_write(o->profile, profile);
}
