/* Differences between two profiles (penstock_loader_profile()). */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "public.h"

/* Differences above these limits cause a warning. Those that chance alone causes in a batch of a thousand
 * rows are smaller. */
#define MEAN_SHIFT 0.25   /* change of a mean, in standard deviations */
#define SCALE_CHANGE 1.5  /* change of a standard deviation, as a factor */
#define LABELS_MOVED 0.10 /* share of the samples that would have to change their label */

/* Adds a line; without memory the line is left out. */
static void PS_PRINTF(2, 3) found(struct ps_buf *out, const char *format, ...)
{
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	n = PS_MIN(n, (int)sizeof(line) - 2);
	line[n++] = '\n';
	(void)!ps_buf_add(out, line, (size_t)n);
}

static double number(const json_t *moments, const char *name)
{
	return json_number_value(json_object_get(moments, name));
}

static void moments_compare(
        struct ps_buf *out, const char *field, const char *what, const json_t *now, const json_t *was)
{
	double shift, a = number(now, "std"), b = number(was, "std");

	if (!now || !was)
		return;
	shift = fabs(number(now, "mean") - number(was, "mean")) /
	        fmax(b, 1e-6 + 1e-3 * fabs(number(was, "mean")));
	if (shift > MEAN_SHIFT)
		found(out, "field %s: mean of %s is %.4g, was %.4g (deviation %.4g)", field, what,
		        number(now, "mean"), number(was, "mean"), b);
	if (a > b * SCALE_CHANGE || b > a * SCALE_CHANGE)
		found(out, "field %s: deviation of %s is %.4g, was %.4g", field, what, a, b);
}

static double sum(json_t *labels)
{
	const char *key;
	json_t *v;
	double n = 0;

	json_object_foreach(labels, key, v) n += json_number_value(v);
	return n;
}

/* Compares the labels' shares of the samples: half the sum of their differences is the share of samples that
 * moved to another label. LABELS_MOVED is the limit, plus what chance explains: two draws from the same
 * labels differ by at most sqrt(labels * (1/n + 1/m)) / 2 on average. Profiles of the same data are such
 * draws, too, since a profile may end in the middle of an epoch. */
static void labels_compare(struct ps_buf *out, const char *field, json_t *now, json_t *was)
{
	double n = sum(now), m = sum(was), moved = 0, chance;
	const char *key;
	json_t *v;

	if (n == 0 || m == 0)
		return;
	json_object_foreach(now, key, v)
	{
		moved += fabs(json_number_value(v) / n - number(was, key) / m);
		if (!json_object_get(was, key))
			found(out, "field %s: label %s is new", field, key);
	}
	json_object_foreach(was, key, v) if (!json_object_get(now, key)) moved += json_number_value(v) / m;
	chance = sqrt(fmax((double)json_object_size(now), (double)json_object_size(was)) * (1 / n + 1 / m)) /
	         2;
	if (moved / 2 > LABELS_MOVED + chance)
		found(out, "field %s: %.0f %% of the samples have other labels", field, 50 * moved);
}

static void field_compare(struct ps_buf *out, const char *name, json_t *now, json_t *was)
{
	static const char *const parts[] = {"bytes", "items", "values"};
	json_t *channel;
	size_t i;

	for (i = 0; i < PS_ARRAY_LEN(parts); i++)
		moments_compare(
		        out, name, parts[i], json_object_get(now, parts[i]), json_object_get(was, parts[i]));
	json_array_foreach(json_object_get(now, "channels"), i, channel)
	{
		char what[32];

		snprintf(what, sizeof(what), "channel %zu", i);
		moments_compare(
		        out, name, what, channel, json_array_get(json_object_get(was, "channels"), i));
	}
	labels_compare(out, name, json_object_get(now, "labels"), json_object_get(was, "labels"));
}

/* Appends a line, with its newline, for each difference above the limits. */
static int drift_find(const char *was_text, const char *now_text, struct ps_buf *out, struct ps_error *err)
{
	json_t *was = json_loads(was_text, 0, NULL), *now = json_loads(now_text, 0, NULL);
	json_t *fields = json_object_get(now, "fields"), *old = json_object_get(was, "fields"), *v;
	const char *name;
	int rc = 0;

	if (!json_is_object(fields) || !json_is_object(old))
		rc = ps_error_set(
		        err, EINVAL, "not a profile; make one with penstock-loader bench --profile");
	json_object_foreach(fields, name, v)
	{
		if (rc < 0)
			break;
		if (json_object_get(old, name))
			field_compare(out, name, v, json_object_get(old, name));
		else
			found(out, "field %s: the other profile has no such field", name);
	}
	json_decref(was);
	json_decref(now);
	return rc;
}

int penstock_profile_drift(
        const char *was, const char *now, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct ps_buf lines = {0};
	int rc = drift_find(was, now, &lines, &err);

	if (rc == 0 && buf && size <= lines.n)
		rc = ps_error_set(&err, ENOBUFS, "the lines have %zu bytes, but there is room for %zu",
		        lines.n + 1, size);
	if (rc == 0) {
		if (buf && lines.n > 0)
			memcpy(buf, lines.p, lines.n);
		if (buf)
			buf[lines.n] = 0;
		rc = (int)lines.n;
	}
	ps_buf_fini(&lines);
	return rc < 0 ? ps_give_error(error, rc, &err) : rc;
}
