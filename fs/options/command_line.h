/* Command lines: options from tables, -o lists, --help from the same tables, and one-line errors.
 *
 *   static const struct ps_opt opts[] = {
 *       {"json", 0, PS_OPT_FLAG, offsetof(struct status, json), NULL, "print JSON"}, {0}};
 *
 * An option is known as --name VALUE, --name=VALUE, -l VALUE and, where its command takes -o, as -o
 * name=VALUE. Ownership: values are copied into the command's struct, which ps_opts_fini() frees. Threads:
 * one. Errors: -EINVAL and a text for a person. */
#ifndef PS_OPTIONS_COMMAND_LINE_H
#define PS_OPTIONS_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define PS_EXIT_OK 0
#define PS_EXIT_FAILED 1
#define PS_EXIT_USAGE 2
#define PS_EXIT_FINAL 3 /* of warm: another attempt would come to the same */
#define PS_EXIT_BUSY 4 /* of warm: a mount serves the cache */

enum ps_opt_kind {
	PS_OPT_FLAG,   /* bool; takes no value */
	PS_OPT_STRING, /* char * */
	PS_OPT_PATH,   /* char *; made absolute */
	PS_OPT_SIZE,   /* uint64_t, as ps_size_parse(), not 0 */
	PS_OPT_TIME,   /* uint64_t of milliseconds, as ps_time_parse(), not 0 */
	PS_OPT_COUNT,  /* unsigned, 1 to PS_OPT_COUNT_MAX */
	PS_OPT_MODE,   /* mode_t, octal up to 0777 */
	PS_OPT_CALL,   /* call() decides */
};
#define PS_OPT_COUNT_MAX 65536

enum {
	PS_OPT_SECRET = 1,   /* wiped from argv once read, so that ps does not show it */
	PS_OPT_OPTIONAL = 2, /* the value may be missing; only the form --name=VALUE gives one */
	PS_OPT_HIDDEN = 4,   /* not in --help */
	PS_OPT_CLI_ONLY = 8, /* not through -o */
	PS_OPT_LOCAL = 16,   /* means something to this process only (a name, a file): not passed on */
	PS_OPT_SHARED = 32,  /* of the daemon, not of a mount: those of its first mount hold */
};

struct ps_opt {
	const char *name; /* without dashes; NULL ends the table */
	char letter;      /* 0: none */
	enum ps_opt_kind kind;
	size_t offset; /* of the field in the command's struct */
	const char *arg, *help;
	unsigned flags;
	int (*call)(void *ctx, const char *value, struct ps_error *err); /* value NULL: none was given */
};

#define PS_OPTS_MAX_TABLES 4
/* Options as they were given, to be passed on: names, values (NULL for a flag), in order. Secret. */
struct ps_given {
	struct {
		char *name, *value;
	} * v;
	size_t n;
};
int ps_given_add(struct ps_given *given, const char *name, const char *value, struct ps_error *err);
void ps_given_fini(struct ps_given *given);

struct ps_opts {
	const char *command; /* "mount" */
	const char *usage;   /* what follows "penstock mount": "SOURCE MOUNTPOINT [OPTION...]" */
	const char *about;   /* a line or more */
	const struct ps_opt *tables[PS_OPTS_MAX_TABLES + 1];
	/* -o name=VALUE,...: names in no table are offered here; -ENOENT: unknown. NULL: the command takes no
	 * -o. */
	int (*other)(void *ctx, const char *name, const char *value, struct ps_error *err);
	/* Every option that was set is added to this list of the command's struct, paths made absolute; NULL: no list. */
	struct ps_given *(*given)(void *ctx);
};

/* The option of this name, without dashes, or NULL. */
const struct ps_opt *ps_opts_find(const struct ps_opts *opts, const char *name);
/* Sets one, as if it stood in a -o list. A flag takes the value NULL. */
int ps_opts_set(const struct ps_opts *opts, void *ctx, const char *name, const char *value,
        struct ps_error *err) PS_MUST_USE;

/* Reads argv[1..), moving what is no option to argv[1..*ret_nargs]. */
int ps_opts_parse(const struct ps_opts *opts, void *ctx, int argc, char **argv, int *ret_nargs,
        struct ps_error *err) PS_MUST_USE;
/* One "name=VALUE,name,..." list; "\," is a comma and "\\" a backslash within a value. */
int ps_opts_parse_list(
        const struct ps_opts *opts, void *ctx, const char *list, struct ps_error *err) PS_MUST_USE;
bool ps_opts_list_has_secret(const struct ps_opts *opts, const char *list);
void ps_opts_fini(const struct ps_opts *opts, void *ctx);

/* The usual beginning of a command: parses; prints help (returns false, *ret_exit 0) or the error (false, 2);
 * checks that there are min to max arguments. */
bool ps_cli_begin(const struct ps_opts *opts, void *ctx, int argc, char **argv, int min, int max,
        int *ret_nargs, int *ret_exit);

/* "penstock COMMAND: text" on stderr, one line whatever the text holds; returns `code`. */
int ps_cli_fail(const char *command, int code, const char *fmt, ...) PS_PRINTF(3, 4);

/* "1 file", "3 retries" in buf, which it returns. The noun is one whose plural ends in s. */
#define PS_CLI_COUNT_LEN 48
const char *ps_cli_count(uint64_t n, const char *noun, char buf[static PS_CLI_COUNT_LEN]);
/* The same, for one use as an argument. */
#define PS_COUNTED(n, noun) ps_cli_count((uint64_t)(n), noun, (char[PS_CLI_COUNT_LEN]){0})

/* Overwrites a string of argv with x. */
void ps_cli_wipe(char *arg);

/* An absolute form of `path` that need not exist; NULL: out of memory. The caller frees it. */
char *ps_path_absolute(const char *path);

#endif
