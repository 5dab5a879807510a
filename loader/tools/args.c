#include "config.h"

#include "base/utf8.h"
#include "base/suggest.h"
#include "shard/index_auto.h"
#include "shard/index_column.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

static const char *command_name; /* of the command that runs; NULL: none yet */

void ps_command_begin(const char *command)
{
	command_name = command;
}

const char *ps_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

void ps_complain(const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	fprintf(stderr, "penstock-loader%s%s: %s\n", command_name ? " " : "",
	        command_name ? command_name : "", text);
}

/* The flag of an option of the library that stands at the beginning of `text` as a word; NULL: none does. */
static const char *flag_of(const char *text, size_t *ret_len)
{
	static const char *const names[][2] = {{"on_error", "--on-error"}, {"max_bad", "--max-bad"},
	        {"memory_budget", "--memory-budget"}, {"shuffle_window", "--shuffle-window"},
	        {"index_dir", "--index-dir"}, {"gpu_decode", "--gpu-decode"},
	        {"device_pixels", "--device-pixels"}, {"ranks_per_node", "--ranks-per-node"}, {"steps=", "--steps"},
	        {"end=\"uneven\"", "--end uneven"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		size_t len = strlen(names[i][0]);

		if (strncmp(text, names[i][0], len) != 0 || (text[len] && !strchr(" ,;:)", text[len])))
			continue;
		*ret_len = len;
		return names[i][1];
	}
	return NULL;
}

void ps_loader_complain(const char *prefix, const char *text)
{
	char out[2048] = "";
	size_t n = 0, len = 0;

	const char *make = strstr(text, PS_INDEX_AUTO_HINT); /* Python's alone */

	for (const char *p = text; *p && n + 24 < sizeof(out);) {
		if (p == make)
			p += strlen(PS_INDEX_AUTO_HINT);
		const char *flag = p == text || p[-1] == ' ' || p[-1] == '(' ? flag_of(p, &len) : NULL;

		if (flag)
			n += (size_t)snprintf(out + n, sizeof(out) - n, "%s", flag);
		else
			out[n++] = *p;
		p += flag ? len : 1;
	}
	out[n] = 0;
	ps_complain("%s%s", prefix, out);
}

/* "--s": several begin so, which getopt_long() takes for none. */
static bool complain_ambiguous(const char *word, const struct option *longs)
{
	char all[512] = "";
	size_t len = strcspn(word + 2, "="), n = 0;
	unsigned count = 0;

	for (const struct option *o = longs; o->name && n < sizeof(all); o++) {
		if (strncmp(o->name, word + 2, len) != 0)
			continue;
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s--%s", count ? ", " : "", o->name);
		count++;
	}
	if (len == 0 || count < 2)
		return false;
	ps_complain("option '%.*s' may be %s", (int)len + 2, word, all);
	return true;
}

/* word: as it was given; shown: what of it is told. */
static void complain_unknown(const char *word, const char *shown, int shown_len, const struct option *longs)
{
	size_t dashes = strspn(word, "-"), len = strcspn(word, "=");
	struct ps_guess guess = {.word = word + dashes, .len = len > dashes ? len - dashes : 0};

	for (const struct option *o = longs; o->name; o++)
		ps_guess_offer(&guess, o->name);
	if (guess.best)
		ps_complain("unknown option '%.*s'; did you mean '--%s'?", shown_len, shown, guess.best);
	else
		ps_complain("unknown option '%.*s' (see penstock-loader %s --help)", shown_len, shown,
		        command_name);
}

/* The option of "--json=x", if it takes no value. */
static const struct option *flag_of_word(const char *word, const struct option *longs)
{
	if (strncmp(word, "--", 2) != 0 || !strchr(word, '='))
		return NULL;
	for (const struct option *o = longs; o->name; o++)
		if (o->has_arg == no_argument && strncmp(o->name, word + 2, strcspn(word + 2, "=")) == 0)
			return o;
	return NULL;
}

void ps_option_complain(char **argv, const struct option *longs, int c)
{
	const char *last = argv[optind - 1], *cluster = argv[optind];
	char letter[] = {'-', (char)optopt, 0};

	if (c == ':') {
		ps_complain("option %s needs a value", last);
		return;
	}
	/* optopt: 0 after a long option that there is not; that of a long one which takes no value; else a
	 * letter, of a cluster that getopt() may not be through with. */
	const struct option *flag = optopt ? flag_of_word(last, longs) : NULL;
	if (flag && flag->val == optopt) {
		ps_complain("option --%s takes no value", flag->name);
	} else if (optopt != 0) {
		if (!cluster || cluster[0] != '-' || !strchr(cluster, optopt))
			cluster = last;
		complain_unknown(cluster, letter, 2, longs);
	} else if (!complain_ambiguous(last, longs)) {
		complain_unknown(last, last, (int)strcspn(last, "="), longs);
	}
}

void ps_help_print(const char *usage, const struct ps_option_help *options, size_t n, const char *examples)
{
	printf("%s\nOptions:\n", usage);
	for (size_t i = 0; i < n; i++)
		printf("  %-24s %s\n", options[i].name, options[i].text);
	printf("  %-24s %s\n\n%s", "--help", "print this text", examples);
}

int ps_folder_make(const char *path, struct ps_load_error *err)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno == EEXIST && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return ps_load_error_set(err, ENOTDIR, "%s: is not a directory", path);
	if (errno == EEXIST)
		return 0;
	return ps_load_error_set(err, errno, "%s: cannot make this directory: %s%s", path, strerror(errno),
	        errno == ENOENT ? "; make the one above it first (mkdir -p)" : "");
}

int ps_shards_take(int argc, char **argv, struct ps_list *shards)
{
	struct ps_load_error err = {0};

	for (int i = optind; i < argc; i++) {
		int r = ps_list_add(shards, argv[i], &err);

		if (r < 0) {
			ps_complain("%s", err.text);
			return r == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED;
		}
	}
	if (shards->n > 0)
		return PS_EXIT_OK;
	ps_complain("no shards (see penstock-loader %s --help)", command_name);
	return PS_EXIT_USAGE;
}

void ps_plain_print(FILE *out, const char *text)
{
	for (; *text; text++)
		putc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
}

static bool number_parse(const char *text, char **ret_end, uint64_t *ret_value)
{
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret_value = strtoull(text, ret_end, 10);
	return errno == 0;
}

bool ps_arg_u64(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret_value)
{
	uint64_t v;
	char *end;

	if (!number_parse(text, &end, &v) || *end || v < least || v > most) {
		ps_complain("%s %s: must be a number from %ju to %ju", option, text, (uintmax_t)least,
		        (uintmax_t)most);
		return false;
	}
	*ret_value = v;
	return true;
}

bool ps_arg_bytes(const char *option, const char *text, uint64_t *ret_value)
{
	static const char units[] = "KMGT";
	uint64_t v;
	char *end;

	if (number_parse(text, &end, &v)) {
		const char *unit = *end ? strchr(units, *end) : NULL;
		unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;

		if ((unit ? end[1] == 0 : *end == 0) && v <= UINT64_MAX >> shift) {
			*ret_value = v << shift;
			return true;
		}
	}
	ps_complain("%s %s: must be a number of bytes, as 64K, 512M or 2G", option, text);
	return false;
}

bool ps_arg_column(const char *text, struct ps_column_spec *columns, size_t *n)
{
	struct ps_load_error err = {0};

	if (*n == PS_INDEX_MAX_COLUMNS) {
		ps_complain("more than %d columns", PS_INDEX_MAX_COLUMNS);
		return false;
	}
	if (ps_column_spec_parse(text, &columns[*n], &err) < 0) {
		ps_complain("%s", err.text);
		return false;
	}
	(*n)++;
	for (size_t i = 0; i + 1 < *n; i++)
		if (strcmp(columns[i].name, columns[*n - 1].name) == 0) {
			ps_complain("--column %s: there is a column of that name already; give each a name of its own",
			        text);
			return false;
		}
	return true;
}

bool ps_arg_choice(
        const char *option, const char *text, const char *const *names, size_t n, uint32_t *ret_place)
{
	char all[256] = "";
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		if (strcmp(names[i], text) == 0) {
			*ret_place = (uint32_t)i;
			return true;
		}
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? "|" : "", names[i]);
	}
	ps_complain("%s %s: must be %s", option, text, all);
	return false;
}

void ps_json_print(FILE *out, const char *text)
{
	const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);

	putc('"', out);
	while (p < end) {
		size_t n = ps_utf8_len(p, (size_t)(end - p));

		if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p++);
		else if (*p < 0x20 || *p == 0x7f)
			fprintf(out, "\\u%04x", *p++);
		else if (n == 0)
			fprintf(out, "\\udc%02x", *p++);
		else
			for (; n > 0; n--)
				putc(*p++, out);
	}
	putc('"', out);
}
