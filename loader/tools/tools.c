#include "config.h"

#include "tools/tools.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "option/option.h"
#include "shard/index/index.h"
#include "shard/shard.h"

void ps_turned_report(uint64_t turned, uint64_t images)
{
	if (turned > 0)
		ps_complain("%ju of %ju image%s %s rotated by EXIF, and loaded as stored unless orient=1 is "
		            "set: set "
		            "it, or pack with --resize, which rotates the images that it shrinks",
		        (uintmax_t)turned, (uintmax_t)images, ps_plural(images), turned == 1 ? "is" : "are");
}

const char *ps_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

char *ps_text(const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return ps_need(text);
}

static void complain(const char *fmt, va_list ap)
{
	char text[2048];

	vsnprintf(text, sizeof(text), fmt, ap);
	ps_utf8_blank(text);
	fprintf(stderr, "%s: %s\n", ps_command_name(), text);
}

bool ps_complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	return false;
}

int ps_fail(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	return code;
}

static bool word_begins(const char *text, const char *word, size_t len)
{
	return strncmp(text, word, len) == 0 && (!text[len] || strchr(" ,;:)", text[len]));
}

/* Turns an option's name into its flag: "memory_budget" into "--memory-budget", "o" into "-o". */
static void flag_name(const char *option, char ret_name[static 64])
{
	snprintf(ret_name, 64, "-%s%s", option[1] ? "-" : "", option);
	for (char *p = ret_name; *p; p++)
		*p = *p == '_' ? '-' : *p;
}

/* If `text` begins with the name of a library's option: the flag that sets this option. NULL: it does not. */
static const char *flag_of(const char *text, size_t *ret_len)
{
	static const char *const others[][2] = {{"steps=", "--steps"}, {"end=\"uneven\"", "--end uneven"}};
	static char flag[64];

	for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
		*ret_len = strlen(others[i][0]);
		if (word_begins(text, others[i][0], *ret_len))
			return others[i][1];
	}
	for (size_t i = 0; i < ps_n_loader_options; i++) {
		const struct ps_option *o = &ps_loader_options[i];

		*ret_len = strlen(o->name);
		/* Names without an underscore may be ordinary words of the text. */
		if (o->flag && strchr(o->name, '_') && word_begins(text, o->name, *ret_len)) {
			flag_name(o->name, flag);
			return flag;
		}
	}
	return NULL;
}

void ps_loader_complain(const char *prefix, const char *text)
{
	char out[2048] = "";
	size_t n = 0, len = 0;

	/* a hint for Python users alone: it is left out */
	const char *make = strstr(text, PS_INDEX_AUTO_HINT);

	for (const char *p = text; *p && n + 24 < sizeof(out);) {
		if (p == make) {
			p += strlen(PS_INDEX_AUTO_HINT);
			make = NULL;
			continue;
		}
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

/* Reports an ambiguous prefix, such as "--s", for which getopt_long() only reports an unknown option. */
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
	ps_complain("option '%.*s' is ambiguous; it could be %s", (int)len + 2, word, all);
	return true;
}

/* Reports an unknown option. word: as it was given; shown: the part that is printed. */
static void complain_unknown(const char *word, const char *shown, int shown_len, const struct option *longs)
{
	size_t dashes = strspn(word, "-"), len = strcspn(word, "=");
	struct ps_guess guess = {.word = word + dashes, .len = len > dashes ? len - dashes : 0};

	for (const struct option *o = longs; o->name; o++)
		ps_guess_offer(&guess, o->name);
	if (guess.best)
		ps_complain("unknown option '%.*s'; did you mean '--%s'?", shown_len, shown, guess.best);
	else
		ps_complain("unknown option '%.*s' (see %s --help)", shown_len, shown, ps_command_name());
}

/* The option of a word such as "--json=x", if it takes no value. */
static const struct option *flag_of_word(const char *word, const struct option *longs)
{
	if (strncmp(word, "--", 2) != 0 || !strchr(word, '='))
		return NULL;
	for (const struct option *o = longs; o->name; o++)
		if (o->has_arg == no_argument && strncmp(o->name, word + 2, strcspn(word + 2, "=")) == 0)
			return o;
	return NULL;
}

/* Reports what getopt_long() just refused. c: what it returned: '?', or ':' for a missing value. */
static void option_complain(char **argv, const struct option *longs, int c)
{
	const char *last = argv[optind - 1], *cluster = argv[optind];
	char letter[] = {'-', (char)optopt, 0};

	if (c == ':') {
		ps_complain("option %s needs a value", last);
		return;
	}
	/* optopt is 0 after an unknown long option, and `val` of a long option that got an argument but takes
	 * none; else it is a letter, possibly of a cluster that getopt() is still reading. */
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

/* The loader's option with the name of a flag. */
static const struct ps_option *option_of(const struct ps_flag *flag)
{
	char name[64];

	snprintf(name, sizeof(name), "%s", flag->name);
	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : *p;
	return ps_loader_option(name, strlen(name));
}

static void flag_help(const struct ps_flag *flag)
{
	bool whole = flag->text && (flag->arg || flag->kind == PS_FLAG_SET);
	const struct ps_option *o = whole ? NULL : option_of(flag);
	char head[128], text[256];
	size_t n = (size_t)snprintf(head, sizeof(head), "-%s%s", flag->name[1] ? "-" : "", flag->name);

	if (flag->arg)
		snprintf(head + n, sizeof(head) - n, " %s", flag->arg);
	else if (o && *o->flag)
		snprintf(head + n, sizeof(head) - n, " %s", o->flag);
	else
		for (size_t i = 0; o && o->words[i] && n < sizeof(head); i++)
			n += (size_t)snprintf(
			        head + n, sizeof(head) - n, "%c%s", i > 0 ? '|' : ' ', o->words[i]);
	if (o && !flag->text)
		ps_option_help(o, text, sizeof(text));
	printf("  %-24s %s\n", head, flag->text ? flag->text : text);
}

static void flags_help(const struct ps_flags *flags)
{
	printf("%s\nOptions:\n", flags->usage);
	for (size_t i = 0; i < flags->n; i++)
		if (flags->flags[i].kind != PS_FLAG_GONE)
			flag_help(&flags->flags[i]);
	printf("  %-24s %s\n\n%s", "--help", "print this text", flags->examples);
}

static void number_put(void *to, size_t nbytes, uint64_t v)
{
	uint32_t u = (uint32_t)v;

	memcpy(to, nbytes == sizeof(u) ? (void *)&u : (void *)&v, nbytes);
}

/* Stores an option's value in the penstock_options at `base`. */
static bool loader_take(const char *flag, const struct ps_option *o, char *value, void *base)
{
	void *to = (char *)base + o->at;
	uint32_t place;
	uint64_t v = 0;
	size_t n = 0;

	if (o->type == PS_OPTION_TEXT) {
		memcpy(to, &value, sizeof(value));
		return true;
	}
	while (o->words && o->words[n])
		n++;
	if (o->words && !ps_arg_choice(flag, value, o->words, n, &place))
		return false;
	if (o->words)
		v = place;
	else if (o->unit && strcmp(o->unit, "bytes") == 0 ? !ps_arg_bytes(flag, value, &v)
	         : strstr(o->flag, "|auto") && strcmp(value, "auto") == 0
	                 ? false
	                 : !ps_arg_u64(flag, value, (uint64_t)o->least, ps_option_most(o), &v))
		return false;
	number_put(to, o->nbytes, v);
	return true;
}

static bool number_parse(const char *text, char **ret_end, uint64_t *ret_value)
{
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret_value = strtoull(text, ret_end, 10);
	return errno == 0;
}

#define PARTS_MAX 1000000u

static bool part_take(const char *option, const char *text, struct ps_part *ret_part)
{
	uint64_t number, of;
	char *slash, *end;

	if (!number_parse(text, &slash, &number) || *slash != '/' || !number_parse(slash + 1, &end, &of) ||
	        *end || number < 1 || number > of || of > PARTS_MAX)
		return ps_complain(
		        "%s %s: must be K/N, part K (1 to N) of N (at most %u)", option, text, PARTS_MAX);
	*ret_part = (struct ps_part){number, of};
	return true;
}

static bool column_take(const char *text, struct ps_columns *columns)
{
	struct ps_error err = {0};

	if (columns->n == PS_INDEX_MAX_COLUMNS)
		return ps_complain("more than %d columns", PS_INDEX_MAX_COLUMNS);
	if (ps_column_spec_parse(text, &columns->v[columns->n], &err) < 0)
		return ps_complain("%s", err.text);
	columns->n++;
	for (size_t i = 0; i + 1 < columns->n; i++)
		if (strcmp(columns->v[i].name, columns->v[columns->n - 1].name) == 0)
			return ps_complain("--column %s: another column has that name; give each column a "
			                   "different name",
			        text);
	return true;
}

void ps_columns_fini(struct ps_columns *columns)
{
	for (size_t i = 0; i < columns->n; i++)
		ps_column_spec_fini(&columns->v[i]);
}

static bool flag_take(const struct ps_flags *flags, const struct ps_flag *flag, void *ctx, char *value)
{
	void *to = (char *)ctx + flag->at;
	char name[64];
	uint64_t v;

	flag_name(flag->name, name);
	switch (flag->kind) {
	case PS_FLAG_LOADER:
		return loader_take(name, option_of(flag), value, (char *)ctx + flags->loader_at);
	case PS_FLAG_SET:
		*(bool *)to = true;
		return true;
	case PS_FLAG_TEXT:
		memcpy(to, &value, sizeof(value));
		return true;
	case PS_FLAG_U32:
	case PS_FLAG_U64:
		if (!ps_arg_u64(name, value, flag->least, flag->most, &v))
			return false;
		number_put(to, flag->kind == PS_FLAG_U32 ? sizeof(uint32_t) : sizeof(v), v);
		return true;
	case PS_FLAG_BYTES:
		return ps_arg_bytes(name, value, to);
	case PS_FLAG_COLUMN:
		return column_take(value, to);
	case PS_FLAG_PART:
		return part_take(name, value, to);
	case PS_FLAG_CALL:
		return flag->take(ctx, value);
	case PS_FLAG_GONE:
		return ps_complain("%s no longer exists: %s", name, flag->text);
	}
	return false;
}

int ps_flags_read(const struct ps_flags *flags, void *ctx, int argc, char **argv)
{
	struct option longs[PS_FLAGS_MAX + 2] = {{0}};
	char letters[2 * PS_FLAGS_MAX + 3] = ":h"; /* options of one letter, which have a value */
	size_t nlong = 0;
	int c;

	assert(flags->n <= PS_FLAGS_MAX);
	for (size_t i = 0; i < flags->n; i++) {
		if (!flags->flags[i].name[1]) {
			strcat(strcat(letters, flags->flags[i].name), ":");
			continue;
		}
		longs[nlong++] = (struct option){.name = flags->flags[i].name,
		        .has_arg = flags->flags[i].kind == PS_FLAG_SET    ? no_argument
		                   : flags->flags[i].kind == PS_FLAG_GONE ? optional_argument
		                                                          : required_argument,
		        .val = UCHAR_MAX + 1 + (int)i};
	}
	longs[nlong] = (struct option){.name = "help", .val = 'h'};
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (c == 'h') {
			flags_help(flags);
			return PS_EXIT_OK;
		}
		for (size_t i = 0; c <= UCHAR_MAX && i < flags->n; i++)
			if (!flags->flags[i].name[1] && flags->flags[i].name[0] == c)
				c = UCHAR_MAX + 1 + (int)i;
		if (c <= UCHAR_MAX) {
			option_complain(argv, longs, c);
			return PS_EXIT_USAGE;
		}
		if (!flag_take(flags, &flags->flags[c - UCHAR_MAX - 1], ctx, optarg))
			return PS_EXIT_USAGE;
	}
	return -1;
}

int ps_folder_make(const char *path, struct ps_error *err)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno == EEXIST && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return ps_error_set(err, ENOTDIR, "%s: is not a directory", path);
	if (errno == EEXIST)
		return 0;
	return ps_error_set(err, errno, "%s: cannot make this directory: %s%s", path, strerror(errno),
	        errno == ENOENT ? "; make the one above it first (mkdir -p)" : "");
}

int ps_shards_take(int argc, char **argv, struct ps_shard_list *shards)
{
	struct ps_error err = {0};

	for (int i = optind; i < argc; i++) {
		int rc = ps_shard_list_add(shards, argv[i], &err);

		if (rc < 0)
			return ps_fail(rc == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED, "%s", err.text);
	}
	if (shards->n > 0)
		return PS_EXIT_OK;
	return ps_fail(PS_EXIT_USAGE, "no shards given (see %s --help)", ps_command_name());
}

void ps_plain_print(FILE *out, const char *text)
{
	for (; *text; text++)
		putc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
}

bool ps_arg_u64(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret_value)
{
	uint64_t v;
	char *end;

	if (!number_parse(text, &end, &v) || *end || v < least || v > most)
		return ps_complain("%s %s: must be a number from %ju to %ju", option, text, (uintmax_t)least,
		        (uintmax_t)most);
	*ret_value = v;
	return true;
}

void ps_part_of(const struct ps_part *part, size_t n, size_t *ret_first, size_t *ret_end)
{
	uint64_t of = PS_MAX(part->of, UINT64_C(1)), before = PS_MAX(part->number, UINT64_C(1)) - 1;

	/* The first (n modulo `of`) parts have one unit more; n * of might overflow. */
	*ret_first = (size_t)(before * (n / of) + PS_MIN(before, n % of));
	*ret_end = (size_t)((before + 1) * (n / of) + PS_MIN(before + 1, n % of));
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
	return ps_complain("%s %s: must be a number of bytes, such as 64K, 512M or 2G", option, text);
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
	return ps_complain("%s %s: must be %s", option, text, all);
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

void ps_json_shard(const char *name)
{
	printf("{\"shard\": ");
	ps_json_print(stdout, name);
}

/* SHA-256 of a shard ------------------------------------------------------------------------------------- */

#define BUF_NBYTES (1UL << 20)

/* struct ps_digest is libcrypto's EVP_MD_CTX. Its hashes fail only for lack of memory. */
static void crypto_need(int rc)
{
	ps_need(rc == 1 ? &rc : NULL);
}

struct ps_digest *ps_digest_new(void)
{
	EVP_MD_CTX *ctx = ps_need(EVP_MD_CTX_new());

	crypto_need(EVP_DigestInit_ex(ctx, EVP_sha256(), NULL));
	return (struct ps_digest *)ctx;
}

void ps_digest_add(struct ps_digest *d, const void *p, size_t n)
{
	crypto_need(EVP_DigestUpdate((EVP_MD_CTX *)d, p, n));
}

void ps_digest_finish(struct ps_digest *d, uint8_t ret_sha256[static PS_DIGEST_NBYTES])
{
	crypto_need(EVP_DigestFinal_ex((EVP_MD_CTX *)d, ret_sha256, NULL));
}

void ps_digest_free(struct ps_digest *d)
{
	EVP_MD_CTX_free((EVP_MD_CTX *)d);
}

int ps_digest_file(const char *path, uint8_t ret_sha256[static PS_DIGEST_NBYTES], struct ps_error *err)
{
	ps_autofree uint8_t *buf = ps_need(malloc(BUF_NBYTES));
	struct ps_digest *d = ps_digest_new();
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;
	int rc = 0;

	if (fd < 0)
		rc = ps_error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
	while (rc == 0 && n != 0) {
		n = read(fd, buf, BUF_NBYTES);
		if (n < 0 && errno != EINTR)
			rc = ps_error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
		else if (n > 0)
			ps_digest_add(d, buf, (size_t)n);
	}
	if (rc == 0)
		ps_digest_finish(d, ret_sha256);
	ps_digest_free(d);
	return rc;
}

/* Progress ----------------------------------------------------------------------------------------------- */

#define REDRAW_SECONDS 0.2

static double now(void)
{
	return (double)ps_clock_mono_ns() / 1e9;
}

void ps_tool_progress_begin(struct ps_tool_progress *p, const char *what, const char *unit, uint64_t total)
{
	*p = (struct ps_tool_progress){.shown = isatty(STDERR_FILENO) == 1,
	        .what = what,
	        .unit = unit,
	        .total = total,
	        .began = now()};
	pthread_mutex_init(&p->lock, NULL);
}

static void draw(const struct ps_tool_progress *p, double t)
{
	double seconds = t - p->began;
	char of[32] = "";

	if (p->total > 0)
		snprintf(of, sizeof(of), "/%ju", (uintmax_t)p->total);
	fprintf(stderr, "\r%s: %ju%s %s, %.1f MB, %.0f MB/s\033[K", p->what, (uintmax_t)p->done, of, p->unit,
	        (double)p->nbytes / 1e6, seconds > 0 ? (double)p->nbytes / 1e6 / seconds : 0);
}

void ps_tool_progress_add(struct ps_tool_progress *p, uint64_t units, uint64_t nbytes)
{
	if (!p->shown)
		return;
	PS_LOCK_SCOPE(&p->lock);
	double t = now();
	p->done += units;
	p->nbytes += nbytes;
	if (t - p->drawn < REDRAW_SECONDS)
		return;
	p->drawn = t;
	draw(p, t);
}

void ps_tool_progress_wipe(struct ps_tool_progress *p)
{
	if (p->shown)
		fprintf(stderr, "\r\033[K");
}

void ps_tool_progress_end(struct ps_tool_progress *p)
{
	ps_tool_progress_wipe(p);
	pthread_mutex_destroy(&p->lock);
}

/* Names of shards to write ------------------------------------------------------------------------------ */

#define LEVEL_DEFAULT 3

/* Finds the number in a pattern: its '%', its width, and the text after it. NULL: there is none, or it is not
 * supported. */
static const char *number_find(const char *pattern, int *ret_width, const char **ret_rest)
{
	const char *percent = strchr(pattern, '%'), *p = percent;

	if (!p)
		return NULL;
	p++;
	*ret_width = 0;
	if (*p == '0')
		while (isdigit((unsigned char)*p) && *ret_width < 100)
			*ret_width = *ret_width * 10 + (*p++ - '0');
	if (*p != 'd' || *ret_width > 18)
		return NULL;
	*ret_rest = p + 1;
	return percent;
}

bool ps_out_pattern_check(const char *pattern)
{
	const char *rest = "";
	int width;

	if (number_find(pattern, &width, &rest) && !strchr(rest, '%'))
		return true;
	return ps_complain(
	        "%s: the name of the shards must contain one number, as in train-%%06d.tar", pattern);
}

char *ps_out_name(const char *pattern, uint64_t n)
{
	const char *rest = "", *percent;
	int width = 0;

	percent = number_find(pattern, &width, &rest);
	assert(percent);
	return ps_text("%.*s%0*ju%s", (int)(percent - pattern), pattern, width, (uintmax_t)n, rest);
}

bool ps_out_level(const char *pattern, int level, int *ret_level)
{
	size_t len = strlen(pattern);
	bool zst = len > 4 && strcmp(pattern + len - 4, ".zst") == 0;

	if (level > 0 && !zst)
		return ps_complain("--zstd: the name of the shards must end in .zst, but is %s", pattern);
	*ret_level = zst && level == 0 ? LEVEL_DEFAULT : level;
	return true;
}

int ps_out_prepare(const char *name, bool force, struct ps_error *err)
{
	const char *slash = strrchr(name, '/');

	if (slash && slash > name) {
		ps_autofree char *folder = ps_need(strndup(name, (size_t)(slash - name)));
		int rc = ps_folder_make(folder, err);

		if (rc < 0)
			return rc;
	}
	if (force || access(name, F_OK) != 0)
		return 0;
	return ps_error_set(err, EEXIST, "%s exists already; --force overwrites it", name);
}
