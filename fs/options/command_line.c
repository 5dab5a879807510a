#include "options/command_line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/secret.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/suggest.h"

#define SUGGESTION_LEN 128

static void *field(void *ctx, const struct ps_opt *opt)
{
	return (char *)ctx + opt->offset;
}

char *ps_path_absolute(const char *path)
{
	if (path[0] == '/')
		return strdup(path);
	ps_autofree char *cwd = getcwd(NULL, 0);
	if (!cwd)
		return NULL;
	ps_autostrbuf struct ps_strbuf b = {0};
	while (strncmp(path, "./", 2) == 0)
		path += 2;
	ps_strbuf_addf(&b, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, strcmp(path, ".") == 0 ? "" : path);
	return ps_strbuf_take(&b);
}

static int set_number(void *to, const struct ps_opt *opt, const char *value)
{
	uint64_t n = 0;
	char *end;
	int rc;

	switch (opt->kind) {
	case PS_OPT_SIZE:
		rc = ps_size_parse(value, &n);
		break;
	case PS_OPT_TIME:
		rc = ps_time_parse(value, &n);
		break;
	default:
		errno = 0;
		n = strtoull(value, &end, opt->kind == PS_OPT_MODE ? 8 : 10);
		rc = errno || *end || value[0] < '0' || value[0] > '9' ? -EINVAL : 0;
		break;
	}
	if (rc < 0)
		return rc;
	if (opt->kind == PS_OPT_MODE) {
		if (n > 0777)
			return -ERANGE;
		*(mode_t *)to = (mode_t)n;
		return 0;
	}
	if (n == 0)
		return -ERANGE;
	if (opt->kind == PS_OPT_COUNT) {
		if (n > PS_OPT_COUNT_MAX)
			return -ERANGE;
		*(unsigned *)to = (unsigned)n;
	} else {
		*(uint64_t *)to = n;
	}
	return 0;
}

static const char *number_form(const struct ps_opt *opt)
{
	switch (opt->kind) {
	case PS_OPT_SIZE:
		return "a size such as 512M or 200G";
	case PS_OPT_TIME:
		return "a time such as 500ms, 60s or 2h";
	case PS_OPT_MODE:
		return "an octal mode such as 0444";
	default:
		return "a whole number from 1 to 65536";
	}
}

int ps_given_add(struct ps_given *given, const char *name, const char *value, struct ps_error *err)
{
	void *v = reallocarray(given->v, given->n + 1, sizeof *given->v);
	ps_autofree char *name_copy = strdup(name), *value_copy = value ? strdup(value) : NULL;

	if (v)
		given->v = v;
	if (!v || !name_copy || (value && !value_copy))
		return ps_error_set(err, ENOMEM, "out of memory");
	given->v[given->n].name = ps_steal_ptr(&name_copy);
	given->v[given->n++].value = ps_steal_ptr(&value_copy);
	return 0;
}

void ps_given_fini(struct ps_given *given)
{
	for (size_t i = 0; i < given->n; i++) {
		ps_secret_free(given->v[i].value);
		free(given->v[i].name);
	}
	free(given->v);
	*given = (struct ps_given){0};
}

static int set_field(const struct ps_opt *opt, void *ctx, const char *value, struct ps_error *err)
{
	char **text = field(ctx, opt);

	if (opt->kind == PS_OPT_FLAG) {
		if (value)
			return ps_error_set(err, EINVAL, "option %s takes no value", opt->name);
		*(bool *)field(ctx, opt) = true;
		return 0;
	}
	if (!value && !(opt->flags & PS_OPT_OPTIONAL))
		return ps_error_set(err, EINVAL, "option %s needs %s", opt->name, opt->arg);
	if (opt->kind == PS_OPT_CALL)
		return opt->call(ctx, value, err);
	if (!value)
		return 0;
	if (opt->kind == PS_OPT_STRING || opt->kind == PS_OPT_PATH) {
		if (!*value)
			return ps_error_set(
			        err, EINVAL, "option %s needs %s, not an empty text", opt->name, opt->arg);
		char *copy = opt->kind == PS_OPT_PATH ? ps_path_absolute(value) : strdup(value);
		if (!copy)
			return ps_error_set(err, ENOMEM, "out of memory");
		free(*text);
		*text = copy;
		return 0;
	}
	if (set_number(field(ctx, opt), opt, value) < 0)
		return ps_error_set(
		        err, EINVAL, "option %s: '%s' is not %s", opt->name, value, number_form(opt));
	return 0;
}

static int set_option(const struct ps_opts *opts, const struct ps_opt *opt, void *ctx, const char *value,
        struct ps_error *err)
{
	struct ps_given *given = opts->given ? opts->given(ctx) : NULL;
	int rc = set_field(opt, ctx, value, err);

	if (rc < 0 || !given)
		return rc;
	return ps_given_add(
	        given, opt->name, opt->kind == PS_OPT_PATH ? *(char **)field(ctx, opt) : value, err);
}

/* "-" and "_" are the same, as in penstock.conf(5): --allow-other, cache_dir. */
static bool is_name(const struct ps_opt *opt, const char *word, size_t len)
{
	bool same = strlen(opt->name) == len;

	for (size_t i = 0; i < len && same; i++)
		same = opt->name[i] == word[i] || (strchr("-_", word[i]) && strchr("-_", opt->name[i]));
	return same;
}

static const struct ps_opt *find(const struct ps_opts *opts, const char *name, size_t len, char letter)
{
	for (size_t t = 0; opts->tables[t]; t++) {
		for (const struct ps_opt *o = opts->tables[t]; o->name; o++) {
			if (letter ? o->letter == letter : is_name(o, name, len))
				return o;
		}
	}
	return NULL;
}

/* Cuts the next item off a -o list, with its escapes resolved in place: "name" or "name=value". */
static char *next_item(char **list)
{
	char *item = *list, *in = item, *out = item;

	if (!*in)
		return NULL;
	while (*in && *in != ',') {
		if (*in == '\\' && (in[1] == ',' || in[1] == '\\'))
			in++;
		*out++ = *in++;
	}
	*list = *in ? in + 1 : in;
	*out = '\0';
	return item;
}

const struct ps_opt *ps_opts_find(const struct ps_opts *opts, const char *name)
{
	return find(opts, name, strlen(name), 0);
}

int ps_opts_set(
        const struct ps_opts *opts, void *ctx, const char *name, const char *value, struct ps_error *err)
{
	const struct ps_opt *opt = ps_opts_find(opts, name);

	if (!opt || opt->flags & PS_OPT_CLI_ONLY)
		return ps_error_set(err, EINVAL, "unknown option '%s'", name);
	return set_option(opts, opt, ctx, value, err);
}

/* Of an option, with "--" before it if it stands on a command line, that is in no table. "" where nothing is
 * like it. */
static void suggest(const struct ps_opts *opts, const char *word, size_t len, unsigned without_flags,
        const char *dashes, char ret[static SUGGESTION_LEN])
{
	struct ps_guess guess = {.word = word, .len = len};

	for (size_t t = 0; opts->tables[t]; t++)
		for (const struct ps_opt *o = opts->tables[t]; o->name; o++)
			if (!(o->flags & (without_flags | PS_OPT_HIDDEN)))
				ps_guess_offer(&guess, o->name);
	if (*dashes)
		ps_guess_offer(&guess, "help");
	if (guess.best)
		snprintf(ret, SUGGESTION_LEN, "; did you mean '%s%s'?", dashes, guess.best);
	else
		snprintf(ret, SUGGESTION_LEN, " (see penstock %s --help)", opts->command);
}

int ps_opts_parse_list(const struct ps_opts *opts, void *ctx, const char *list, struct ps_error *err)
{
	ps_autofree char *copy = strdup(list);
	char *rest = copy, *item, instead[SUGGESTION_LEN];

	if (!copy)
		return ps_error_set(err, ENOMEM, "out of memory");
	while ((item = next_item(&rest))) {
		char *value = strchr(item, '=');
		int rc;

		if (!*item)
			continue;
		if (value)
			*value++ = '\0';
		const struct ps_opt *opt = find(opts, item, strlen(item), 0);
		if (opt && !(opt->flags & PS_OPT_CLI_ONLY) && !(opt->flags & PS_OPT_SECRET && !value)) {
			rc = set_option(opts, opt, ctx, value, err);
		} else {
			rc = opts->other ? opts->other(ctx, item, value, err) : -ENOENT;
			if (rc == -ENOENT) {
				suggest(opts, item, strlen(item), PS_OPT_CLI_ONLY, "", instead);
				rc = ps_error_set(err, EINVAL, "unknown mount option '%s'%s", item, instead);
			}
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

bool ps_opts_list_has_secret(const struct ps_opts *opts, const char *list)
{
	for (size_t t = 0; opts->tables[t]; t++) {
		for (const struct ps_opt *o = opts->tables[t]; o->name; o++) {
			size_t len = strlen(o->name);

			if (!(o->flags & PS_OPT_SECRET))
				continue;
			for (const char *s = list; (s = strstr(s, o->name)); s += len)
				if ((s == list || s[-1] == ',') && s[len] == '=')
					return true;
		}
	}
	return false;
}

const char *ps_cli_count(uint64_t n, const char *noun, char buf[static PS_CLI_COUNT_LEN])
{
	size_t len = strlen(noun);
	bool ends_in_y = n != 1 && len > 0 && noun[len - 1] == 'y';

	snprintf(buf, PS_CLI_COUNT_LEN, "%ju %.*s%s", (uintmax_t)n, (int)(len - ends_in_y), noun,
	        n == 1      ? ""
	        : ends_in_y ? "ies"
	                    : "s");
	return buf;
}

void ps_cli_wipe(char *arg)
{
	memset(arg, 'x', strlen(arg));
}

static int unknown_option(const struct ps_opts *opts, const char *arg, struct ps_error *err)
{
	size_t dashes = strspn(arg, "-"), len = strcspn(arg, "=");
	char instead[SUGGESTION_LEN];

	/* "-cache-dir" is a long one that lacks a dash; "-x" is like none. */
	suggest(opts, arg + dashes, len > dashes + 1 ? len - dashes : 0, 0, "--", instead);
	return ps_error_set(err, EINVAL, "unknown option '%.*s'%s", (int)len, arg, instead);
}

/* One option at argv[*i]; steps *i over a value in the next argument. */
static int parse_one(
        const struct ps_opts *opts, void *ctx, int argc, char **argv, int *i, struct ps_error *err)
{
	char *arg = argv[*i], *value = NULL;
	const struct ps_opt *opt;

	if (arg[1] == '-') {
		size_t len = strcspn(arg + 2, "=");

		opt = find(opts, arg + 2, len, 0);
		if (opt && arg[2 + len])
			value = arg + 2 + len + 1;
	} else {
		opt = find(opts, NULL, 0, arg[1]);
		if (opt && arg[2])
			value = arg + 2;
	}
	bool is_list = opts->other && arg[1] == 'o' && arg[0] == '-';
	if (!opt && !is_list)
		return unknown_option(opts, arg, err);
	if (is_list && arg[2])
		value = arg + 2;
	bool wants = is_list || (opt->kind != PS_OPT_FLAG && !(opt->flags & PS_OPT_OPTIONAL));
	if (wants && !value) {
		if (*i + 1 >= argc)
			return ps_error_set(
			        err, EINVAL, "option %s needs %s", arg, is_list ? "OPTION[,...]" : opt->arg);
		value = argv[++*i];
	}
	int rc;
	bool secret;
	if (is_list) {
		rc = ps_opts_parse_list(opts, ctx, value, err);
		secret = ps_opts_list_has_secret(opts, value);
	} else {
		rc = set_option(opts, opt, ctx, value, err);
		secret = opt->flags & PS_OPT_SECRET;
	}
	if (secret && value)
		ps_cli_wipe(value);
	return rc;
}

int ps_opts_parse(
        const struct ps_opts *opts, void *ctx, int argc, char **argv, int *ret_nargs, struct ps_error *err)
{
	int nargs = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			while (++i < argc)
				argv[++nargs] = argv[i];
			break;
		}
		if (argv[i][0] == '-' && argv[i][1]) {
			int rc = parse_one(opts, ctx, argc, argv, &i, err);
			if (rc < 0)
				return rc;
		} else {
			argv[++nargs] = argv[i];
		}
	}
	*ret_nargs = nargs;
	return 0;
}

void ps_opts_fini(const struct ps_opts *opts, void *ctx)
{
	for (size_t t = 0; opts->tables[t]; t++) {
		for (const struct ps_opt *o = opts->tables[t]; o->name; o++) {
			char **text = field(ctx, o);

			if (o->kind != PS_OPT_STRING && o->kind != PS_OPT_PATH)
				continue;
			if (o->flags & PS_OPT_SECRET)
				ps_secret_free(*text);
			else
				free(*text);
			*text = NULL;
		}
	}
}

static void print_help(const struct ps_opts *opts)
{
	printf("Usage: penstock %s %s\n\n%s\n\nOptions:\n", opts->command, opts->usage, opts->about);
	for (size_t t = 0; opts->tables[t]; t++) {
		for (const struct ps_opt *o = opts->tables[t]; o->name; o++) {
			char left[64], letter[8] = "";

			if (o->flags & PS_OPT_HIDDEN)
				continue;
			if (o->letter)
				snprintf(letter, sizeof letter, "-%c, ", o->letter);
			snprintf(left, sizeof left, o->flags & PS_OPT_OPTIONAL ? "%s--%s[=%s]" : "%s--%s%s%s",
			        letter, o->name, o->flags & PS_OPT_OPTIONAL ? o->arg : (o->arg ? " " : ""),
			        o->arg ? o->arg : "");
			printf("  %-28s %s\n", left, o->help);
		}
	}
	if (opts->other)
		printf("  %-28s %s\n", "-o OPTION[=VALUE][,...]", "the same options, as fstab spells them");
	printf("  %-28s %s\n", "-h, --help", "print this");
}

bool ps_cli_begin(const struct ps_opts *opts, void *ctx, int argc, char **argv, int min, int max,
        int *ret_nargs, int *ret_exit)
{
	struct ps_error err = {0};

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(opts);
			*ret_exit = fflush(stdout) == 0 ? PS_EXIT_OK : PS_EXIT_FAILED;
			return false;
		}
	}
	*ret_exit = PS_EXIT_USAGE;
	if (ps_opts_parse(opts, ctx, argc, argv, ret_nargs, &err) < 0) {
		*ret_exit = ps_cli_fail(opts->command, err.err == ENOMEM ? PS_EXIT_FAILED : PS_EXIT_USAGE, "%s", err.text);
		return false;
	}
	if (*ret_nargs < min || (max >= 0 && *ret_nargs > max)) {
		ps_cli_fail(opts->command, PS_EXIT_USAGE, "too %s arguments; usage: penstock %s %s",
		        *ret_nargs < min ? "few" : "many", opts->command, opts->usage);
		return false;
	}
	*ret_exit = PS_EXIT_OK;
	return true;
}

int ps_cli_fail(const char *command, int code, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (char *s = text; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = *s == '\n' && !s[1] ? '\0' : '?';
	fprintf(stderr, "penstock%s%s: %s\n", *command ? " " : "", command, text);
	return code;
}
