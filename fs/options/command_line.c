#include "options/options.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/process.h"
#include "base/secret.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/suggest.h"

#define WAIT_SILENT_MS 5000

#define SUGGESTION_LEN 128
#define LINES_MAX_NBYTES (64 * 1024)

static void *field(struct ps_mount_options *o, const struct ps_opt *opt)
{
	return (char *)o + opt->offset;
}

static const char *form_of(const struct ps_opt *opt)
{
	if (opt->form)
		return opt->form;
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

static int parse_whole(const char *value, int base, uint64_t *ret)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(value, &end, base);
	if (errno || *end || value[0] < '0' || value[0] > '9')
		return -EINVAL;
	*ret = n;
	return 0;
}

static int set_number(void *to, const struct ps_opt *opt, const char *value, struct ps_error *err)
{
	uint64_t n = 0;
	char least[PS_SIZE_TEXT_LEN];
	int rc = opt->kind == PS_OPT_SIZE   ? ps_size_parse(value, &n)
	         : opt->kind == PS_OPT_TIME ? ps_time_parse(value, &n)
	                                    : parse_whole(value, opt->kind == PS_OPT_MODE ? 8 : 10, &n);

	if (rc == 0 && opt->kind == PS_OPT_MODE && n <= 0777) {
		*(mode_t *)to = (mode_t)n;
		return 0;
	}
	bool too_little = n < PS_MAX(opt->least, 1) && !(n == 0 && opt->flags & PS_OPT_ZERO);
	if (rc == 0 && too_little && opt->kind == PS_OPT_SIZE && opt->least)
		return ps_error_set(err, EINVAL, "option %s: '%s' is too small; the minimum is %s", opt->name,
		        value, ps_size_format(opt->least, least));
	if (rc < 0 || too_little || opt->kind == PS_OPT_MODE || (opt->most && n > opt->most))
		return ps_error_set(err, EINVAL, "option %s: '%s' is not %s", opt->name, value, form_of(opt));
	if (opt->kind == PS_OPT_COUNT)
		*(unsigned *)to = (unsigned)n;
	else
		*(uint64_t *)to = n;
	return 0;
}

/* Sets an enum to the index of the value among the words of opt->arg. */
static int set_word(unsigned *to, const struct ps_opt *opt, const char *value, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf all = {0};
	size_t n = strlen(value), len;
	unsigned i = 0;

	for (const char *word = opt->arg;; word += len + 1, i++) {
		len = strcspn(word, "|");
		if (len == n && memcmp(word, value, n) == 0) {
			*to = i;
			return 0;
		}
		ps_strbuf_addf(&all, "%s%.*s", i ? ", " : "", (int)len, word);
		if (!word[len])
			break;
	}
	return ps_error_set(
	        err, EINVAL, "option %s: '%s' is none of %s", opt->name, value, ps_strbuf_peek(&all));
}

static int set_field(
        const struct ps_opt *opt, struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	char **text = field(o, opt);

	if (opt->kind == PS_OPT_FLAG) {
		if (value)
			return ps_error_set(err, EINVAL, "option %s takes no value", opt->name);
		*(bool *)field(o, opt) = true;
		return 0;
	}
	if (!value && !(opt->flags & PS_OPT_OPTIONAL))
		return ps_error_set(err, EINVAL, "option %s needs %s", opt->name, opt->arg);
	if (opt->kind == PS_OPT_CALL)
		return opt->call(o, value, err);
	if (opt->kind == PS_OPT_WORD)
		return set_word(field(o, opt), opt, value, err);
	if (opt->kind != PS_OPT_STRING && opt->kind != PS_OPT_PATH)
		return set_number(field(o, opt), opt, value, err);
	if (!*value)
		return ps_error_set(
		        err, EINVAL, "option %s needs %s; its value is empty", opt->name, opt->arg);
	char *copy = opt->kind == PS_OPT_PATH ? ps_path_absolute(value) : strdup(value);
	if (!copy)
		return ps_no_memory(err);
	ps_secret_free(*text);
	*text = copy;
	return 0;
}

static int set_option(
        const struct ps_opt *opt, struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	int rc = set_field(opt, o, value, err);

	if (rc < 0)
		return rc;
	bool made = opt->kind == PS_OPT_PATH || opt->flags & PS_OPT_MADE;
	return ps_given_add(&o->given, opt->name, made ? *(char **)field(o, opt) : value, err);
}

/* Sets the option once for each line of the file. */
static int set_lines(
        const struct ps_opt *opt, struct ps_mount_options *o, const char *path, struct ps_error *err)
{
	const struct ps_secret_file kind = {
	        .what = "option header:", .max_nbytes = LINES_MAX_NBYTES, .may_be_pipe = true};
	ps_autosecret char *text = NULL;
	char *save = NULL;
	size_t n = 0;
	int rc = ps_secret_file_read(path, &kind, &text, &n, err);

	if (rc < 0)
		return rc;
	for (char *line = strtok_r(text, "\r\n", &save); line && rc == 0;
	        line = strtok_r(NULL, "\r\n", &save))
		if (line[0] != '#' && line[strspn(line, " \t")])
			rc = set_option(opt, o, line, err);
	explicit_bzero(text, n);
	return rc < 0 ? ps_error_prefix(err, rc, "%s", path) : 0;
}

int ps_options_give(
        struct ps_mount_options *o, const struct ps_opt *opt, const char *value, struct ps_error *err)
{
	if (opt->went && !opt->went_value)
		return ps_error_set(err, EINVAL, "option %s no longer exists: %s", opt->name, opt->went);
	if (opt->went && value && strcmp(value, opt->went_value) == 0)
		return ps_error_set(
		        err, EINVAL, "option %s: '%s' no longer exists: %s", opt->name, value, opt->went);
	if (opt->flags & PS_OPT_LINES && value && value[0] == '@')
		return set_lines(opt, o, value + 1, err);
	return set_option(opt, o, value, err);
}

int ps_options_set(struct ps_mount_options *o, const char *name, const char *value, struct ps_error *err)
{
	const struct ps_opt *opt = ps_options_find(name);

	return opt ? set_option(opt, o, value, err) : ps_error_set(err, EINVAL, "unknown option '%s'", name);
}

/* Finds an option of the command, by its letter, or by its name if letter is 0. */
static const struct ps_opt *find(const struct ps_opts *opts, const char *name, size_t len, char letter)
{
	for (const struct ps_opt *opt = ps_options; opt->name; opt++)
		if (opt->commands & opts->id && (letter ? opt->letter == letter : ps_opt_is(opt, name, len)))
			return opt;
	return NULL;
}

/* Options of mount(8) and fstab that are ignored: they hold for every mount of ours, or are for other
 * programs. */
static const char *const ignored[] = {"ro", "defaults", "auto", "noauto", "nofail", "_netdev", "nouser",
        "owner", "group", "noowner", "nogroup", "nosuid", "nodev", "default_permissions", "intr", "comment"};
/* mount(8) adds these unless "ro" was given; the mount is read-only all the same. */
static const char *const lenient[] = {"rw", "suid", "dev"};

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif
#define ATIMES (MS_NOATIME | MS_RELATIME | MS_STRICTATIME)

/* Options that become flags of mount(2); a later one has priority. "user" and "users" imply noexec. */
static const struct {
	const char *name;
	unsigned long clear, set;
} flags_of[] = {{"noexec", 0, MS_NOEXEC}, {"exec", MS_NOEXEC, 0}, {"user", 0, MS_NOEXEC},
        {"users", 0, MS_NOEXEC}, {"noatime", ATIMES, MS_NOATIME}, {"atime", MS_NOATIME, 0},
        {"relatime", ATIMES, MS_RELATIME}, {"norelatime", ATIMES, MS_STRICTATIME},
        {"strictatime", ATIMES, MS_STRICTATIME}, {"nostrictatime", MS_STRICTATIME, 0},
        {"nodiratime", 0, MS_NODIRATIME}, {"diratime", MS_NODIRATIME, 0}, {"sync", 0, MS_SYNCHRONOUS},
        {"async", MS_SYNCHRONOUS, 0}, {"dirsync", 0, MS_DIRSYNC}, {"lazytime", 0, MS_LAZYTIME},
        {"nolazytime", MS_LAZYTIME, 0}, {"nosymfollow", 0, MS_NOSYMFOLLOW}, {"symfollow", MS_NOSYMFOLLOW, 0}};

static const char *const security[] = {"context", "fscontext", "defcontext", "rootcontext"};

static bool is_security(const char *name, size_t len)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(security); i++)
		if (strlen(security[i]) == len && memcmp(name, security[i], len) == 0)
			return true;
	return false;
}

/* A label of SELinux for all files, which the kernel applies. */
static int add_security(struct ps_mount_options *o, const char *name, const char *value, struct ps_error *err)
{
	size_t n = value ? strlen(value) : 0;
	bool quoted = n >= 2 && value[0] == '"' && value[n - 1] == '"';
	char *text;

	if (quoted) {
		value++;
		n -= 2;
	}
	if (n == 0 || memchr(value, '"', n))
		return ps_error_set(err, EINVAL, "option %s needs a label of SELinux", name);
	if (access("/sys/fs/selinux/enforce", F_OK) < 0)
		return ps_error_set(
		        err, EINVAL, "option %s: SELinux is not enabled here; leave it out", name);
	if (asprintf(&text, "%s%s%s=\"%.*s\"", o->security ? o->security : "", o->security ? "," : "", name,
	            (int)n, value) < 0)
		return ps_no_memory(err);
	free(o->security);
	o->security = text;
	return 0;
}

/* Takes or refuses an option of mount(8). -ENOENT: `name` is none of them. */
static int take_generic(struct ps_mount_options *o, const char *name, const char *value, struct ps_error *err)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(flags_of); i++) {
		if (!value && strcmp(name, flags_of[i].name) == 0) {
			o->mount_flags = (o->mount_flags & ~flags_of[i].clear) | flags_of[i].set;
			return 0;
		}
	}
	if (is_security(name, strlen(name)))
		return add_security(o, name, value, err);
	for (size_t i = 0; i < PS_ARRAY_LEN(ignored); i++)
		if (strcmp(name, ignored[i]) == 0)
			return 0;
	if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0)
		return 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(lenient); i++) {
		if (strcmp(name, lenient[i]) == 0)
			return o->lenient ? 0
			                  : ps_error_set(err, EINVAL,
			                            "option %s: the mount is read-only, nosuid and nodev; "
			                            "leave it out",
			                            name);
	}
	return -ENOENT;
}

/* Cuts the next item off a -o list, with its escapes resolved in place: "name" or "name=value". A label of
 * SELinux may have commas between quotes, as mount(8) allows it. */
static char *next_item(char **list)
{
	char *item = *list, *in = item, *out = item;
	const char *equals = strchr(item, '=');
	bool label = equals && is_security(item, (size_t)(equals - item)), inside = false;

	if (!*in)
		return NULL;
	while (*in && (*in != ',' || inside)) {
		inside ^= label && *in == '"';
		if (*in == '\\' && (in[1] == ',' || in[1] == '\\'))
			in++;
		*out++ = *in++;
	}
	*list = *in ? in + 1 : in;
	*out = '\0';
	return item;
}

/* Writes a text for the error about an unknown option: the most similar option of the command, with
 * `dashes` before it, or a pointer to --help. Options with a flag of without_flags are not suggested. */
static void suggest(const struct ps_opts *opts, const char *word, size_t len, unsigned without_flags,
        const char *dashes, char ret[static SUGGESTION_LEN])
{
	struct ps_guess guess = {.word = word, .len = len};

	for (const struct ps_opt *opt = ps_options; opt->name; opt++)
		if (opt->commands & opts->id && !(opt->flags & without_flags) && !ps_opt_is_hidden(opt))
			ps_guess_offer(&guess, opt->name);
	if (*dashes)
		ps_guess_offer(&guess, "help");
	if (guess.best)
		snprintf(ret, SUGGESTION_LEN, "; did you mean '%s%s'?", dashes, guess.best);
	else
		snprintf(ret, SUGGESTION_LEN, " (see penstock %s --help)", opts->command);
}

int ps_opts_parse_list(
        const struct ps_opts *opts, struct ps_mount_options *o, const char *list, struct ps_error *err)
{
	ps_autofree char *copy = strdup(list);
	char *rest = copy, *item, instead[SUGGESTION_LEN];

	if (!copy)
		return ps_no_memory(err);
	while ((item = next_item(&rest))) {
		char *value = strchr(item, '=');
		int rc;

		if (!*item)
			continue;
		if (value)
			*value++ = '\0';
		const struct ps_opt *opt = find(opts, item, strlen(item), 0);
		if (opt && !(opt->flags & PS_OPT_CLI_ONLY) && !(opt->flags & PS_OPT_SECRET && !value)) {
			rc = ps_options_give(o, opt, value, err);
		} else {
			rc = take_generic(o, item, value, err);
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
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		size_t len = strlen(opt->name);

		if (!(opt->commands & opts->id) || !(opt->flags & PS_OPT_SECRET))
			continue;
		for (const char *s = list; (s = strstr(s, opt->name)); s += len)
			if ((s == list || s[-1] == ',') && s[len] == '=')
				return true;
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

	/* "-cache-dir" is a long option that lacks a dash; "-x" is not similar to any. */
	suggest(opts, arg + dashes, len > dashes + 1 ? len - dashes : 0, 0, "--", instead);
	return ps_error_set(err, EINVAL, "unknown option '%.*s'%s", (int)len, arg, instead);
}

/* Parses the option at argv[*i]. If its value is the next argument, moves *i to the value. */
static int parse_one(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv, int *i,
        struct ps_error *err)
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
	bool is_list = opts->lists && arg[1] == 'o' && arg[0] == '-';
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
		rc = ps_opts_parse_list(opts, o, value, err);
		secret = ps_opts_list_has_secret(opts, value);
	} else {
		rc = ps_options_give(o, opt, value, err);
		secret = opt->flags & PS_OPT_SECRET;
	}
	if (secret && value)
		ps_cli_wipe(value);
	return rc;
}

int ps_opts_parse(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv,
        int *ret_nargs, struct ps_error *err)
{
	int nargs = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			while (++i < argc)
				argv[++nargs] = argv[i];
			break;
		}
		if (argv[i][0] == '-' && argv[i][1]) {
			int rc = parse_one(opts, o, argc, argv, &i, err);
			if (rc < 0)
				return rc;
		} else {
			argv[++nargs] = argv[i];
		}
	}
	*ret_nargs = nargs;
	return 0;
}

static const char *help_of(const struct ps_opts *opts, const struct ps_opt *opt)
{
	for (size_t i = 0; i < PS_OPTS_MAX_WORDS && opts->words[i].name; i++)
		if (strcmp(opts->words[i].name, opt->name) == 0)
			return opts->words[i].help;
	return opt->help;
}

static void print_help(const struct ps_opts *opts)
{
	printf("Usage: penstock %s %s\n\n%s\n\nOptions:\n", opts->command, opts->usage, opts->about);
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		char left[64], letter[8] = "";

		if (!(opt->commands & opts->id) || ps_opt_is_hidden(opt))
			continue;
		if (opt->letter)
			snprintf(letter, sizeof(letter), "-%c, ", opt->letter);
		snprintf(left, sizeof(left), opt->flags & PS_OPT_OPTIONAL ? "%s--%s[=%s]" : "%s--%s%s%s",
		        letter, opt->name, opt->flags & PS_OPT_OPTIONAL ? opt->arg : (opt->arg ? " " : ""),
		        opt->arg ? opt->arg : "");
		printf("  %-28s %s", left, help_of(opts, opt));
		if (opt->def)
			printf(" [%s]", opt->def);
		putchar('\n');
	}
	if (opts->lists)
		printf("  %-28s %s\n", "-o OPTION[=VALUE][,...]", "options in a list, as in fstab");
	printf("  %-28s %s\n", "-h, --help", "print this help");
}

static int parse_and_run(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv)
{
	struct ps_error err = {0};
	int nargs;

	if (ps_opts_parse(opts, o, argc, argv, &nargs, &err) < 0)
		return ps_cli_fail(opts->command,
		        err.err == ENOMEM ? PS_EXIT_FAILED
		        : o->check        ? PS_EXIT_UNKNOWN
		                          : PS_EXIT_USAGE,
		        "%s", err.text);
	if (nargs < opts->min || nargs > opts->max)
		return ps_cli_fail(opts->command, o->check ? PS_EXIT_UNKNOWN : PS_EXIT_USAGE,
		        "too %s arguments; usage: penstock %s %s", nargs < opts->min ? "few" : "many",
		        opts->command, opts->usage);
	return opts->run(o, argv + 1, nargs);
}

int ps_cli_run(const struct ps_opts *opts, int argc, char **argv)
{
	struct ps_mount_options o;
	static char name[32];

	snprintf(name, sizeof(name), "penstock %s", opts->command);
	ps_command_begin(name);
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(opts);
			return fflush(stdout) == 0 ? PS_EXIT_OK : PS_EXIT_FAILED;
		}
	}
	ps_mount_options_init(&o);
	int code = parse_and_run(opts, &o, argc, argv);
	ps_mount_options_fini(&o);
	return code;
}

int ps_cli_fail(const char *command, int code, const char *fmt, ...)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	size_t n = strlen(text);
	if (n > 0 && text[n - 1] == '\n')
		text[n - 1] = '\0';
	ps_strbuf_add_printable(&b, text);
	fprintf(stderr, "penstock%s%s: %s\n", *command ? " " : "", command, ps_strbuf_peek(&b));
	return code;
}

void ps_cli_wait(int fd, const char *command, const char *what)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (poll(&p, 1, WAIT_SILENT_MS) == 0)
		ps_cli_fail(command, 0, "waiting for %s", what);
}
