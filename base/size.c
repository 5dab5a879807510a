#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Parses a plain decimal number at the beginning of text: strtod alone would take "inf", hex, and leading
 * blanks. */
static int parse_number(const char *text, double *ret_value, const char **ret_end)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) && !(text[0] == '.' && isdigit((unsigned char)text[1])))
		return -EINVAL;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return -EINVAL;
	*ret_value = strtod(text, &end);
	*ret_end = end;
	return isfinite(*ret_value) ? 0 : -ERANGE;
}

int ps_size_parse(const char *text, uint64_t *ret_nbytes)
{
	static const char units[] = "KMGTPE";
	const char *end;
	double value;
	int rc = parse_number(text, &value, &end);

	if (rc < 0)
		return rc;
	if (*end) {
		const char *unit = strchr(units, toupper((unsigned char)*end));

		if (unit) {
			value = ldexp(value, 10 * (int)(unit - units + 1));
			end++;
			if (strcasecmp(end, "ib") == 0)
				end += 2;
		}
		if (strcasecmp(end, "b") == 0)
			end++;
		if (*end)
			return -EINVAL;
	}
	if (value >= 9223372036854775808.0)
		return -ERANGE;
	*ret_nbytes = (uint64_t)value;
	return 0;
}

int ps_size_parse_share(const char *text, uint64_t whole_nbytes, uint64_t *ret_nbytes)
{
	const char *end;
	double value;
	size_t len = strlen(text);

	if (len == 0 || text[len - 1] != '%')
		return ps_size_parse(text, ret_nbytes);
	int rc = parse_number(text, &value, &end);
	if (rc < 0)
		return rc;
	if (strcmp(end, "%") != 0)
		return -EINVAL;
	if (value <= 0 || value > 100)
		return -ERANGE;
	*ret_nbytes = (uint64_t)((double)whole_nbytes * value / 100);
	return 0;
}

int ps_time_parse(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *unit;
		double ms;
	} units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
	const char *end;
	double value;
	int rc = parse_number(text, &value, &end);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		if (value * units[i].ms >= 9e15)
			return -ERANGE;
		*ret_ms = (uint64_t)(value * units[i].ms);
		return 0;
	}
	return -EINVAL;
}

const char *ps_size_format(uint64_t nbytes, char buf[static PS_SIZE_TEXT_LEN])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)nbytes;
	size_t u = 0;

	/* 1023.95 would be shown as 1024.0 */
	while (value >= 1023.95 && u + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		u++;
	}
	snprintf(buf, PS_SIZE_TEXT_LEN, u ? "%.1f %s" : "%.0f %s", value, units[u]);
	return buf;
}
