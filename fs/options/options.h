/* The options of all commands, once: a table with a row for each (option_table.c), from which come the
 * parser, -o lists and fstab, --help and so completion, the keys of penstock.conf(5), what is passed on to
 * the daemon and what fits which kind of source. tests/fs/options_test.c compares it with the pages.
 *
 * An option is known as --name VALUE, --name=VALUE, -l VALUE and, where its command takes -o, as -o
 * name=VALUE; "-" and "_" are the same. Files, from the top: options_to_cache.c (defaults that depend on the
 * machine; the structs that the cache takes), command_line.c (arguments, lists), option_table.c.
 *
 * Ownership: ps_mount_options_init() ... ps_mount_options_fini(); values are copied into the struct. Threads:
 * one.
 * Errors: -errno and a text for a person. */
#ifndef PS_OPTIONS_OPTIONS_H
#define PS_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/log.h"
#include "cache.h"

#define PS_EXIT_OK 0
#define PS_EXIT_FAILED 1
#define PS_EXIT_USAGE 2
#define PS_EXIT_FINAL 3 /* of warm: another attempt would come to the same */
#define PS_EXIT_BUSY 4  /* of warm: a mount serves the cache */

/* The table ---------------------------------------------------------------------------------------------- */

enum ps_opt_kind {
	PS_OPT_FLAG,   /* bool; takes no value */
	PS_OPT_STRING, /* char * */
	PS_OPT_PATH,   /* char *; made absolute */
	PS_OPT_SIZE,   /* uint64_t, as ps_size_parse() */
	PS_OPT_TIME,   /* uint64_t of milliseconds, as ps_time_parse() */
	PS_OPT_COUNT,  /* unsigned */
	PS_OPT_MODE,   /* mode_t, octal up to 0777 */
	PS_OPT_WORD,   /* an enum: the place of the value among the words of arg, "auto|path|virtual" */
	PS_OPT_CALL,   /* call() decides */
};

/* What it belongs to, and so whether it is sent to the daemon and may stand in penstock.conf. */
enum ps_opt_scope {
	PS_SCOPE_COMMAND, /* this command alone: neither */
	PS_SCOPE_CACHE,   /* which cache, and so which daemon */
	PS_SCOPE_DAEMON,  /* the daemon: those of its first mount hold */
	PS_SCOPE_SOURCE,  /* each source: NAME.OPTION in penstock.conf */
	PS_SCOPE_MOUNT,   /* one mount */
};

enum {
	PS_OPT_SECRET = 1,   /* wiped from argv once read, so that ps does not show it */
	PS_OPT_OPTIONAL = 2, /* the value may be missing; only the form --name=VALUE gives one */
	PS_OPT_AGAIN = 4,    /* may be given again: values add up */
	PS_OPT_CLI_ONLY = 8, /* not through -o */
	PS_OPT_LOCAL = 16,   /* means something to this process only (a name, a file): not passed on */
	PS_OPT_ZERO = 32,    /* 0 is a value, whatever the least is: no limit */
};

/* Commands, as bits of ps_opt.commands. */
enum {
	PS_CMD_MOUNT = 1,
	PS_CMD_UMOUNT = 2,
	PS_CMD_WARM = 4,
	PS_CMD_PLAN = 8,
	PS_CMD_STATUS = 16,
	PS_CMD_REFRESH = 32,
	PS_CMD_METRICS = 64,
	PS_CMD_VERIFY = 128,
	PS_CMD_EVICT = 256,
	PS_CMD_PIN = 512,
	PS_CMD_UNPIN = 1024,
	PS_CMD_REPORT = 2048,
};

/* Kinds of source, as bits of ps_opt.kinds. */
enum {
	PS_KIND_HTTP = 1,
	PS_KIND_S3 = 2,
	PS_KIND_GS = 4,
	PS_KIND_HF = 8,
	PS_KIND_FILES = 16,
	PS_KIND_AZ = 32,
	PS_KIND_BUCKETS = PS_KIND_S3 | PS_KIND_GS,
	PS_KIND_STORES = PS_KIND_BUCKETS | PS_KIND_AZ,
	PS_KIND_REMOTE = PS_KIND_HTTP | PS_KIND_STORES | PS_KIND_HF,
};

struct ps_mount_options;
struct ps_opt {
	const char *name; /* without dashes; NULL ends the table */
	char letter;      /* 0: none */
	enum ps_opt_kind kind;
	enum ps_opt_scope scope;
	unsigned commands, flags;
	unsigned kinds;       /* of source that it is for; 0: any */
	size_t offset;        /* of the field in struct ps_mount_options */
	uint64_t least, most; /* of a number; 0: 1, no limit */
	/* as --help and the page name the value, and what it is without the option; or NULL */
	const char *arg, *def;
	const char *help;
	const char *form; /* what a value is that is none: "a size such as 512M"; NULL: as the kind says */
	/* value NULL: none was given */
	int (*call)(struct ps_mount_options *o, const char *value, struct ps_error *err);
};
extern const struct ps_opt ps_options[];
/* The option of this name, "-" and "_" being one, which a mount can be given: any scope but PS_SCOPE_COMMAND.
 * Or NULL. */
const struct ps_opt *ps_options_find(const char *name);
bool ps_opt_is(const struct ps_opt *opt, const char *name, size_t len);

/* Options as they were given, to be passed on: names, values (NULL for a flag), in order. Secret. */
struct ps_given {
	struct {
		char *name, *value;
	} * v;
	size_t n;
};
int ps_given_add(struct ps_given *given, const char *name, const char *value, struct ps_error *err);
void ps_given_fini(struct ps_given *given);

/* Their values ------------------------------------------------------------------------------------------- */

/* How a file that is not all in the cache is opened; see openmode.h. */
enum ps_cold_reads { PS_COLD_AUTO, PS_COLD_DIRECT, PS_COLD_CACHED };

/* What files of a list do that are not at the origin. */
enum ps_missing { PS_MISSING_FAIL, PS_MISSING_WARN };

/* The largest READ: so much can be spliced from a file. More would need a pipe past the usual
 * /proc/sys/fs/pipe-max-size of 1 MiB, and libfuse would copy through memory of its own instead. */
#define PS_FS_READ_NBYTES (512u * 1024)

struct ps_mount_options {
	/* the cache */
	char *cache_dir;  /* NULL: ps_cache_dir_default() */
	char *cache_size; /* "200G", "80%"; NULL: the store's default */
	char *policy;
	uint64_t min_free, memory;
	/* the origin */
	uint64_t timeout_ms, revalidate_ms, grant_ttl_ms, max_bandwidth;
	char **include, **exclude; /* NULL-terminated, or NULL */
	unsigned max_connections;
	char **headers; /* NULL-terminated, or NULL */
	size_t nheaders;
	char *user, *cacert, *hf_token_file;
	char *client_cert, *client_key, *client_key_password_file, *proxy, *netrc_file;
	bool insecure, raw;
	char *endpoint, *region, *profile, *gs_credentials, *az_sas_file; /* of stores with buckets */
	bool no_sign_request, request_payer, pin_versions, follow_redirects;
	enum ps_s3_addressing addressing;
	/* the mount */
	uid_t uid;
	gid_t gid;
	mode_t file_mode, dir_mode;
	bool allow_other, nonempty, foreground, no_passthrough;
	uint64_t refresh_ms;
	enum ps_missing missing;
	enum ps_cold_reads cold_reads;
	char *log; /* NULL: syslog for a daemon, stderr in the foreground */
	enum ps_log_level log_level;
	/* of single commands */
	bool all, json, list, watch, check, lazy, force, quiet;
	unsigned jobs;
	uint64_t watch_ms;
	char *config, *job, *output;
	unsigned owner; /* of mount: a descriptor; 0: none */
	/* What was given; ps_mount_options_finish() adds what the environment says. */
	struct ps_given given;
	char **env; /* what origins may ask for of this process's environment, "NAME=value", NULL-terminated */
	bool lenient; /* called as mount.penstock: "rw" is mount(8)'s own default and means nothing */
};

/* Defaults: the caller's uid and gid, files 0444, folders 0555, log level info. */
void ps_mount_options_init(struct ps_mount_options *o);
void ps_mount_options_fini(struct ps_mount_options *o);

/* As --watch=VALUE; NULL: without one. */
int ps_options_watch(struct ps_mount_options *o, const char *value, struct ps_error *err);

/* Sets one that ps_options_find() finds, as if it stood in a -o list. A flag takes the value NULL. */
int ps_options_set(
        struct ps_mount_options *o, const char *name, const char *value, struct ps_error *err) PS_MUST_USE;

/* -EINVAL and a text, with the option and the source, if the option is for another kind of source than all of
 * these. A list (@FILE) may name any. Blocks: never. */
int ps_option_check_kinds(const struct ps_opt *opt, const char *const *sources, size_t nsources,
        struct ps_error *err) PS_MUST_USE;

/* Takes what the environment says (PENSTOCK_USER_PASSWORD; o->env), and checks what no single option can. */
int ps_mount_options_finish(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;

/* The default cache directory, if none was given; the folders above it are made. */
int ps_mount_options_cache_dir(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* Wipes what of this process's environment is secret, for a process that stays: origins ask in o->env. One
 * thread. */
void ps_environment_forget(void);

/* The options as the cache wants them; pointers into *o. The default cache directory is made, and a share of
 * the disk resolved, here. Blocks on disk. */
int ps_mount_options_cache(
        struct ps_mount_options *o, struct ps_cache_options *ret, struct ps_error *err) PS_MUST_USE;
void ps_mount_options_dataset(const struct ps_mount_options *o, struct ps_dataset_options *ret);

/* $PENSTOCK_CACHE_DIR, else /var/cache/penstock for root, $XDG_CACHE_HOME/penstock or ~/.cache/penstock. The
 * caller frees it. */
char *ps_cache_dir_default(struct ps_error *err);

/* A local folder or @manifest as an absolute path, anything else as it is. The caller frees it. */
char *ps_source_absolute(const char *source);

/* The source of argv may hold a password or a signature: overwrites it with its canonical form, or x. */
void ps_source_wipe(char *arg);

/* Command lines ------------------------------------------------------------------------------------------ */

#define PS_OPTS_MAX_WORDS 2
struct ps_opts {
	const char *command; /* "mount" */
	unsigned id;         /* PS_CMD_MOUNT */
	const char *usage;   /* what follows "penstock mount": "SOURCE MOUNTPOINT [OPTION...]" */
	const char *about;   /* a line or more */
	bool lists;          /* takes -o, and there the generic words of mount(8) */
	/* What --help says of an option here, where the table's words are another command's. */
	struct {
		const char *name, *help;
	} words[PS_OPTS_MAX_WORDS];
};

/* Reads argv[1..), moving what is no option to argv[1..*ret_nargs]. */
int ps_opts_parse(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv,
        int *ret_nargs, struct ps_error *err) PS_MUST_USE;
/* One "name=VALUE,name,..." list; "\," is a comma and "\\" a backslash within a value. */
int ps_opts_parse_list(const struct ps_opts *opts, struct ps_mount_options *o, const char *list,
        struct ps_error *err) PS_MUST_USE;
bool ps_opts_list_has_secret(const struct ps_opts *opts, const char *list);

/* The usual beginning of a command: parses; prints help (returns false, *ret_exit 0) or the error (false, 2);
 * checks that there are min to max arguments. */
bool ps_cli_begin(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv, int min,
        int max, int *ret_nargs, int *ret_exit);

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
