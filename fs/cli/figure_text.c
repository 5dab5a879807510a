#include "cli/figure_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "options/options.h"

#define PATH_LEN 128

static const json_t *value_at(const struct ps_figure_source *source, const char *path)
{
	return *path == '/' ? ps_figures_at(source->doc, path + 1) : ps_figures_at(source->object, path);
}

static const struct ps_figure *row_at(const struct ps_figure_source *source, const char *path)
{
	char of_list[2 * PATH_LEN];

	if (*path == '/')
		return ps_figures_find(PS_IN_DAEMON, path + 1);
	if (!source->list)
		return ps_figures_find(PS_IN_MOUNT, path);
	snprintf(of_list, sizeof(of_list), "%s.%s", source->list, path);
	return ps_figures_find(0, of_list);
}

/* The number at a path, or the sum of several with "+" between them; of a list, how long it is. */
static json_int_t number_at(const struct ps_figure_source *source, const char *paths)
{
	json_int_t sum = 0;

	for (size_t n; *paths; paths += n + (paths[n] == '+')) {
		char path[PATH_LEN];

		n = strcspn(paths, "+");
		snprintf(path, sizeof(path), "%.*s", (int)n, paths);
		const json_t *value = value_at(source, path);
		sum += json_is_array(value) ? (json_int_t)json_array_size(value) : json_integer_value(value);
	}
	return sum;
}

static const char *text_at(const struct ps_figure_source *source, const char *path)
{
	const char *s = json_string_value(value_at(source, path));

	return s ? s : "";
}

/* "5 s", "7 min", "3 h". */
static void add_span(struct ps_strbuf *b, json_int_t s)
{
	s = PS_MAX(s, 0);
	ps_strbuf_addf(b, "%lld %s",
	        (long long)(s < 120    ? s
	                    : s < 7200 ? s / 60
	                               : s / 3600),
	        s < 120    ? "s"
	        : s < 7200 ? "min"
	                   : "h");
}

static void add_plain(struct ps_strbuf *b, const struct ps_figure *row, const json_t *value)
{
	const json_t *one;
	size_t i;

	if (json_is_string(value))
		ps_strbuf_add(b, json_string_value(value));
	else if (json_is_real(value))
		ps_strbuf_addf(b, "%.0f", json_real_value(value));
	else if (json_is_integer(value) || row->kind < PS_FIGURE_FLAG)
		ps_strbuf_addf(b, "%lld", (long long)json_integer_value(value));
	json_array_foreach(value, i, one)
	        ps_strbuf_addf(b, "%s%s", i ? ", " : "", json_is_string(one) ? json_string_value(one) : "");
}

static void add_figure(struct ps_strbuf *b, const struct ps_figure_source *source, char *path)
{
	char *of = strchr(path, '%'), buf[PS_SIZE_TEXT_LEN];
	const json_t *value = value_at(source, path);

	if (*path == '#') {
		ps_strbuf_addf(b, "%lld", (long long)number_at(source, path + 1));
		return;
	}
	if (of) {
		*of = '\0';
		ps_strbuf_addf(b, "%.1f %%",
		        of == path
		                ? 100 * json_number_value(value_at(source, of + 1))
		                : 100 * (double)number_at(source, path) / (double)number_at(source, of + 1));
		return;
	}
	const struct ps_figure *row = row_at(source, path);
	assert(row);
	json_int_t n = json_integer_value(value);
	if (!row->unit)
		add_plain(b, row, value);
	else if (strcmp(row->unit, "B") == 0)
		ps_strbuf_add(b, ps_size_format(n > 0 ? (uint64_t)n : 0, buf));
	else if (strcmp(row->unit, "s") == 0)
		ps_strbuf_addf(b, "%.1f s", json_number_value(value));
	else if (strcmp(row->unit, "in") == 0)
		add_span(b, n - ps_clock_real_s());
	else if (strcmp(row->unit, "ago") != 0)
		ps_strbuf_add(b, PS_COUNTED(n, row->unit));
	else if (n <= 0)
		ps_strbuf_add(b, "never");
	else {
		add_span(b, ps_clock_real_s() - n);
		ps_strbuf_add(b, " ago");
	}
}

static bool holds(const struct ps_figure_source *source, char *condition)
{
	char *sign = strpbrk(condition, "?=<>"), how = sign ? *sign : '\0';

	if (*condition == '!')
		return !holds(source, condition + 1);
	if (sign)
		*sign++ = '\0';
	const json_t *value = value_at(source, condition);
	switch (how) {
	case '?':
		return value && !json_is_null(value);
	case '=':
		return strcmp(text_at(source, condition), sign) == 0;
	case '>':
		return number_at(source, condition) > atoll(sign);
	case '<':
		return number_at(source, condition) < number_at(source, sign);
	}
	return json_is_true(value) || json_integer_value(value) > 0 || json_string_length(value) > 0;
}

/* Adds up to the end of the text, or to the "]" of a part. Returns what follows. */
static const char *add_part(
        struct ps_strbuf *b, const char *text, const struct ps_figure_source *source, bool shown)
{
	while (*text && *text != ']') {
		size_t n = strcspn(text, "[]{");
		char word[PATH_LEN];

		if (shown)
			ps_strbuf_addn(b, text, n);
		text += n;
		if (*text != '[' && *text != '{')
			continue;
		n = strcspn(text + 1, *text == '[' ? ":" : "}");
		snprintf(word, sizeof(word), "%.*s", (int)n, text + 1);
		if (*text == '[')
			text = add_part(b, text + n + 2, source, shown && holds(source, word));
		else {
			if (shown)
				add_figure(b, source, word);
			text += n + 2;
		}
	}
	return *text ? text + 1 : text;
}

void ps_figure_text(struct ps_strbuf *b, const char *text, const struct ps_figure_source *source)
{
	add_part(b, text, source, true);
}
