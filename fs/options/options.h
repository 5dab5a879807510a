/* The options of all commands, in one table with a row for each (option_table.c). The table determines what
 * the parser, -o lists and fstab accept, --help and so completion, the keys of penstock.conf(5), which
 * options are passed on to the daemon, and which fit a kind of source. tests/fs/unit/options_test.c compares the
 * table with the manual pages.
 *
 * An option is written as --name VALUE, --name=VALUE, -l VALUE and, if its command takes -o, -o name=VALUE;
 * "-" and "_" are equivalent. Files, from the top: options_to_cache.c (defaults that depend on the machine;
 * the structs that the cache takes), command_line.c (arguments, lists), option_table.c.
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
#define PS_EXIT_FINAL 3   /* of warm: another attempt would fail in the same way */
#define PS_EXIT_BUSY 4    /* of warm: a mount serves the cache */
#define PS_EXIT_UNKNOWN 3 /* of status --check, as for Nagios; its 2 means critical */
#define PS_ARGS_ANY INT32_MAX

/* The value of cacert that means the system's certificates, whatever the environment names. */
#define PS_CACERT_SYSTEM "system"

/* The table ---------------------------------------------------------------------------------------------- */

enum ps_opt_kind {
	PS_OPT_FLAG,   /* bool; takes no value */
	PS_OPT_STRING, /* char * */
	PS_OPT_PATH,   /* char *; made absolute */
	PS_OPT_SIZE,   /* uint64_t, as ps_size_parse() */
	PS_OPT_TIME,   /* uint64_t of milliseconds, as ps_time_parse() */
	PS_OPT_COUNT,  /* unsigned */
	PS_OPT_MODE,   /* mode_t, octal up to 0777 */
	PS_OPT_WORD,   /* an enum: the index of the value among the words of arg, "auto|path|virtual" */
	PS_OPT_CALL,   /* call() parses the value */
};

/* What an option applies to, which decides whether it is sent to the daemon and allowed in
 * penstock.conf. */
enum ps_opt_scope {
	PS_SCOPE_COMMAND, /* this command only: not sent, not in penstock.conf */
	PS_SCOPE_CACHE,   /* selects the cache, and so the daemon */
	PS_SCOPE_DAEMON,  /* the daemon: its first mount's values apply */
	PS_SCOPE_SOURCE,  /* each source: NAME.OPTION in penstock.conf */
	PS_SCOPE_MOUNT,   /* one mount */
};

enum {
	PS_OPT_SECRET = 1,   /* wiped from argv when it is read, so that ps does not show it */
	PS_OPT_OPTIONAL = 2, /* the value may be missing; only the form --name=VALUE gives one */
	PS_OPT_AGAIN = 4,    /* may be repeated: the values are collected */
	PS_OPT_CLI_ONLY = 8, /* not through -o */
	PS_OPT_LOCAL = 16,   /* meaningful in this process only (a name, a file): not passed on */
	PS_OPT_ZERO = 32,    /* 0 is allowed below the least value: no limit */
	PS_OPT_MADE = 64,    /* passed on as call() has put it into the field, not as it was given */
	PS_OPT_HIDDEN = 128, /* for other programs and for tests: not in --help */
	PS_OPT_LINES = 256, /* @FILE stands for the lines of that file, which only the user's process reads */
	PS_OPT_ONE_KIND = 512, /* the value suits one kind of source only */
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
	PS_CMD_UPGRADE = 4096,
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
	PS_KIND_CREDENTIALS = PS_KIND_GS | PS_KIND_AZ | PS_KIND_HF,
	PS_KIND_TIERED = PS_KIND_HTTP | PS_KIND_BUCKETS | PS_KIND_HF,
	PS_KIND_REMOTE = PS_KIND_HTTP | PS_KIND_STORES | PS_KIND_HF,
};

struct ps_mount_options;
struct ps_opt {
	const char *name; /* without dashes; NULL ends the table */
	char letter;      /* 0: none */
	enum ps_opt_kind kind;
	enum ps_opt_scope scope;
	unsigned commands, flags;
	unsigned kinds;       /* the kinds of source that it applies to; 0: any */
	size_t offset;        /* of the field in struct ps_mount_options */
	uint64_t least, most; /* of a number; 0: the least is 1, or there is no largest */
	/* arg: the value's name in --help and the page; def: the value without the option; or NULL */
	const char *arg, *def;
	const char *help;
	/* describes a valid value for error texts: "a size such as 512M"; NULL: the kind's text */
	const char *form;
	/* What to write instead of an option of 0.3 that users may no longer give (with went_value: of that
	 * value). Daemons take it, from mounts of 0.3. */
	const char *went, *went_value;
	/* value NULL: the option was given without one */
	int (*call)(struct ps_mount_options *o, const char *value, struct ps_error *err);
};
extern const struct ps_opt ps_options[];
/* The option with this name ("-" and "_" are equivalent) and a scope other than PS_SCOPE_COMMAND; NULL:
 * none. */
const struct ps_opt *ps_options_find(const char *name);
bool ps_opt_is(const struct ps_opt *opt, const char *name, size_t len);
/* True if --help does not name it. */
bool ps_opt_is_hidden(const struct ps_opt *opt);

/* The options that the user gave, in order, to be passed on to the daemon. The value of a flag is NULL.
 * Values may be secret. */
struct ps_given {
	struct {
		char *name, *value;
	} * v;
	size_t n;
};
int ps_given_add(struct ps_given *given, const char *name, const char *value, struct ps_error *err);
void ps_given_fini(struct ps_given *given);

/* Values ------------------------------------------------------------------------------------------------- */

/* The mode in which an incomplete file is opened; see fuse/openmode.h. */
enum ps_cold_reads { PS_COLD_AUTO, PS_COLD_DIRECT, PS_COLD_CACHED };

/* What happens if a listed file is missing at the origin. */
enum ps_missing { PS_MISSING_FAIL, PS_MISSING_WARN };

/* Whether the members of tar shards are shown as files; see fuse/member_ops.h. */
enum ps_show_members {
	PS_SHOW_SHARDS,         /* not at all: shards are files */
	PS_SHOW_MEMBERS,        /* each shard is a folder */
	PS_SHOW_MEMBERS_MERGED, /* the members of all shards are in one tree */
	PS_SHOW_BOTH,           /* each shard is a file, and a folder beside it */
};

/* The largest READ that can be spliced from a file. A larger one needs a pipe above the usual
 * /proc/sys/fs/pipe-max-size of 1 MiB; without it libfuse copies through its own memory. */
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
	char *user, *cacert, *credentials;
	char *client_cert, *client_key, *client_key_password_file, *proxy, *netrc_file;
	bool insecure, raw;
	char *whole;
	char *tier_cache;
	char *tier, *tier_cacert, *tier_cert, *tier_key;
	enum ps_tier_auth tier_auth;
	unsigned tier_verify_ppm;
	char *endpoint, *region, *profile; /* for stores with buckets */
	bool no_sign_request, request_payer, pin_versions, follow_redirects;
	enum ps_s3_addressing addressing;
	enum ps_version_by { PS_VERSION_BY_VERSION, PS_VERSION_BY_SIZE } version_by;
	enum ps_checksums checksums;
	/* the mount */
	uid_t uid;
	gid_t gid;
	mode_t file_mode, dir_mode;
	bool allow_other, nonempty, foreground, no_passthrough, no_keeper, no_sandbox, serve;
	unsigned long mount_flags; /* generic options of mount(8), as MS_ flags: noexec, noatime, ... */
	char *security;            /* SELinux's: 'context="..."', several with commas; NULL: none */
	uint64_t refresh_ms;
	enum ps_missing missing;
	enum ps_cold_reads cold_reads;
	enum ps_show_members members;
	char *log; /* NULL: syslog for a daemon, stderr in the foreground */
	enum ps_log_level log_level;
	/* of single commands */
	bool all, json, list, watch, check, lazy, force, quiet;
	unsigned jobs;
	uint64_t watch_ms;
	char *config, *job, *output, *listen;
	unsigned owner; /* for mount: a descriptor; 0: none */
	/* The options as given; ps_mount_options_finish() adds those of the environment. */
	struct ps_given given;
	/* the part of this process's environment that origins use, "NAME=value", NULL-terminated */
	char **env;
	bool lenient; /* called as mount.penstock: "rw" is mount(8)'s default and is ignored */
};

/* Defaults: the caller's uid and gid, files 0444, folders 0555, log level info. */
void ps_mount_options_init(struct ps_mount_options *o);
void ps_mount_options_fini(struct ps_mount_options *o);

/* Sets --watch=VALUE; value NULL: --watch without a value. */
int ps_options_watch(struct ps_mount_options *o, const char *value, struct ps_error *err);

/* Sets an option as the user gives it, in a list, say. A flag takes the value NULL. */
int ps_options_give(struct ps_mount_options *o, const struct ps_opt *opt, const char *value,
        struct ps_error *err) PS_MUST_USE;
/* Sets an option that ps_options_find() finds, as another process passes it on. */
int ps_options_set(
        struct ps_mount_options *o, const char *name, const char *value, struct ps_error *err) PS_MUST_USE;

/* True if the option applies to this source. A list (@FILE) may name sources of any kind. */
bool ps_option_applies(const struct ps_opt *opt, const char *source);
/* -EINVAL and a text with the option and the source, if the option applies to none of these sources, or to
 * several kinds and its value suits one. Blocks: never. */
int ps_option_check_kinds(const struct ps_opt *opt, const char *const *sources, size_t nsources,
        struct ps_error *err) PS_MUST_USE;

/* Takes settings from the environment (PENSTOCK_USER_PASSWORD; o->env), and checks combinations of
 * options. */
int ps_mount_options_finish(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;

/* Sets the default cache directory if none was given, and makes its parent folders. */
int ps_mount_options_cache_dir(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* Wipes the secrets in this process's environment, which a daemon would keep for as long as it lives;
 * origins use o->env. Call while there is one thread. */
void ps_environment_forget(void);

/* The options in the cache's structs, with pointers into *o. Sets the cache directory as
 * ps_mount_options_cache_dir() does, and turns a share of the disk ("80%") into bytes. Blocks on disk. */
int ps_mount_options_cache(
        struct ps_mount_options *o, struct ps_cache_options *ret, struct ps_error *err) PS_MUST_USE;
void ps_mount_options_dataset(const struct ps_mount_options *o, struct ps_dataset_options *ret);

/* $PENSTOCK_CACHE_DIR, else /var/cache/penstock for root, $XDG_CACHE_HOME/penstock or ~/.cache/penstock. The
 * caller frees it. */
char *ps_cache_dir_default(struct ps_error *err);

/* A local folder or @manifest as an absolute path; any other source unchanged. The caller frees it. */
char *ps_source_absolute(const char *source);

/* Overwrites a source in argv, which may hold a password or signature, with its canonical form, or with
 * x. */
void ps_source_wipe(char *arg);

/* Command lines ------------------------------------------------------------------------------------------ */

#define PS_OPTS_MAX_WORDS 2
struct ps_opts {
	const char *command; /* "mount" */
	unsigned id;         /* PS_CMD_MOUNT */
	const char *usage;   /* the text after "penstock mount": "SOURCE MOUNTPOINT [OPTION...]" */
	const char *about;   /* a line or more */
	bool lists;          /* takes -o, with the generic options of mount(8) */
	/* The --help text of an option for this command, if the table's text is for another command. */
	struct {
		const char *name, *help;
	} words[PS_OPTS_MAX_WORDS];
	int min, max; /* how many arguments there may be */
	/* Returns an exit code. */
	int (*run)(struct ps_mount_options *o, char **args, int nargs);
};

/* Parses argv[1..) and moves the arguments that are not options to argv[1..*ret_nargs]. */
int ps_opts_parse(const struct ps_opts *opts, struct ps_mount_options *o, int argc, char **argv,
        int *ret_nargs, struct ps_error *err) PS_MUST_USE;
/* Parses one "name=VALUE,name,..." list; "\," is a comma and "\\" a backslash within a value. */
int ps_opts_parse_list(const struct ps_opts *opts, struct ps_mount_options *o, const char *list,
        struct ps_error *err) PS_MUST_USE;
bool ps_opts_list_has_secret(const struct ps_opts *opts, const char *list);

/* Runs a command, or prints its help or what is wrong with its arguments. Returns its exit code. */
int ps_cli_run(const struct ps_opts *opts, int argc, char **argv);

/* Prints "penstock COMMAND: text" on stderr, always as one line; returns `code`. */
int ps_cli_fail(const char *command, int code, const char *fmt, ...) PS_PRINTF(3, 4);

/* Waits up to 5 s until fd can be read, and then prints what the command waits for. */
void ps_cli_wait(int fd, const char *command, const char *what);

/* Writes "1 file" or "3 files" into buf and returns buf. The plural of the noun must end in s. */
#define PS_CLI_COUNT_LEN 48
const char *ps_cli_count(uint64_t n, const char *noun, char buf[static PS_CLI_COUNT_LEN]);
/* The same in a temporary buffer, for use as an argument. */
#define PS_COUNTED(n, noun) ps_cli_count((uint64_t)(n), noun, (char[PS_CLI_COUNT_LEN]){0})

/* Overwrites a string of argv with x. */
void ps_cli_wipe(char *arg);

/* An absolute form of `path` that need not exist; NULL: out of memory. The caller frees it. */
char *ps_path_absolute(const char *path);

#endif
