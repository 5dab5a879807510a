/* Shared by the commands of penstock-loader.
 *
 * Errors: a command returns the program's exit code: PS_EXIT_OK, PS_EXIT_FAILED (the text is on stderr),
 * PS_EXIT_USAGE. Threads: the main one. */
#ifndef PS_TOOLS_TOOLS_H
#define PS_TOOLS_TOOLS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/process.h"
#include "shard/shard.h"

enum {
	PS_EXIT_OK = 0,
	PS_EXIT_FAILED = 1,
	PS_EXIT_USAGE = 2,
	PS_EXIT_DRIFT = 3, /* bench: the data differs from the profile's */
};

int ps_cmd_bench(int argc, char **argv);
int ps_cmd_doctor(int argc, char **argv);
int ps_cmd_index(int argc, char **argv);
int ps_cmd_ls(int argc, char **argv);
int ps_cmd_make_dataset(int argc, char **argv);
int ps_cmd_pack(int argc, char **argv);
int ps_cmd_show(int argc, char **argv);
int ps_cmd_tokenize(int argc, char **argv);

/* One line on stderr: "NAME: TEXT". Control characters become '?', as names in shards are
 * not trusted. ps_complain() returns false, ps_fail() `code`. */
bool ps_complain(const char *fmt, ...) PS_PRINTF(1, 2);
int ps_fail(int code, const char *fmt, ...) PS_PRINTF(2, 3);

/* The same for an error text of the library: names of options are replaced by the flags that set them. */
void ps_loader_complain(const char *prefix, const char *text);

/* asprintf() with ps_need(); the caller frees the text. */
char *ps_text(const char *fmt, ...) PS_PRINTF(1, 2);

/* Options of a command ----------------------------------------------------------------------------------- */

enum ps_flag_kind {
	/* the loader's option of that name; members of the ps_flag that are not set are taken from the
	 * option's row in the table of options (option/option.h) */
	PS_FLAG_LOADER,
	PS_FLAG_SET,  /* bool; without a value */
	PS_FLAG_TEXT, /* const char *, borrowed from argv */
	PS_FLAG_U32,  /* uint32_t or int, from least to most */
	PS_FLAG_U64,
	PS_FLAG_BYTES,  /* uint64_t, as ps_arg_bytes() */
	PS_FLAG_COLUMN, /* struct ps_columns: adds a column */
	PS_FLAG_PART,   /* struct ps_part: "K/N" */
	PS_FLAG_CALL,   /* calls take() */
	PS_FLAG_GONE,   /* of an earlier version: refused; `text` says what to do instead */
};

/* One option: its line of --help, its name for getopt_long(), and where its value goes. */
struct ps_flag {
	const char *name; /* "max-size"; "o": -o, which needs a value */
	enum ps_flag_kind kind;
	size_t at;              /* offset in the command's struct */
	const char *arg, *text; /* "SIZE", "bytes of a shard ..." */
	uint64_t least, most;
	bool (*take)(void *ctx, char *value); /* false: failed, with a message on stderr */
};

#define PS_FLAGS_MAX 64

struct ps_flags {
	const char *usage, *examples; /* text of --help before and after the options */
	const struct ps_flag *flags;
	size_t n;
	size_t loader_at; /* offset of the penstock_options in the command's struct */
};

/* Reads the options into the command's struct; arguments are argv[optind..] afterwards. Returns an exit
 * code (after --help, or an error), or -1: continue. */
int ps_flags_read(const struct ps_flags *flags, void *ctx, int argc, char **argv);

/* Values ------------------------------------------------------------------------------------------------- */

/* Parses a decimal number between least and most. False: failed, with a message on stderr. */
bool ps_arg_u64(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* Parses a number of bytes: 1000, 64K, 512M, 2G (powers of 1024). False: failed, with a message on stderr. */
bool ps_arg_bytes(const char *option, const char *text, uint64_t *ret_value);

/* Columns of an index. */
struct ps_columns {
	struct ps_column_spec v[PS_INDEX_MAX_COLUMNS];
	size_t n;
};

void ps_columns_fini(struct ps_columns *columns);

/* Finds the index of `text` among n names. False: failed, with a message on stderr. */
bool ps_arg_choice(
        const char *option, const char *text, const char *const *names, size_t n, uint32_t *ret_place);

/* Work that is divided among `of` jobs, of which this is job `number`, 1 to `of`. All 0: the work is not
 * divided. */
struct ps_part {
	uint64_t number, of;
};

/* The part of n units: [*ret_first, *ret_end). All parts together are all units, each once. */
void ps_part_of(const struct ps_part *part, size_t n, size_t *ret_first, size_t *ret_end);

/* Makes a directory if it does not exist. Only the last component is made, so that a path on an unmounted
 * disk is an error. Errors: -errno with a text that names the path. */
int ps_folder_make(const char *path, struct ps_error *err) PS_MUST_USE;

/* Adds the arguments after the options to a list of shards. PS_EXIT_OK if there is a shard; else an exit
 * code, with a message on stderr. */
int ps_shards_take(int argc, char **argv, struct ps_shard_list *shards);

/* "s", or "" for 1: for "%ju shard%s". */
const char *ps_plural(uint64_t n);

/* Reports, if any image is turned, that loaders show it as it is stored. */
void ps_turned_report(uint64_t turned, uint64_t images);

/* Prints a text with '?' for control characters, which would garble a table or the terminal. */
void ps_plain_print(FILE *out, const char *text);

/* Prints bytes as a JSON string. Bytes that are not UTF-8 become \udcXX, as in Python's surrogateescape. */
void ps_json_print(FILE *out, const char *text);
/* Begins an object of a shard on stdout: {"shard": "NAME" */
void ps_json_shard(const char *name);

/* SHA-256 of a shard ------------------------------------------------------------------------------------- */

/* The SHA-256, as `sha256sum` prints it.
 *
 * Ownership: the caller's, until free.   Threads: one at a time.   Blocks: ps_digest_file() on the disk.
 * Errors: 0 or -errno with a text that names the file. */
#define PS_DIGEST_NBYTES 32

struct ps_digest;

struct ps_digest *ps_digest_new(void);
void ps_digest_add(struct ps_digest *digest, const void *p, size_t n);
void ps_digest_finish(struct ps_digest *digest, uint8_t ret_sha256[static PS_DIGEST_NBYTES]);
void ps_digest_free(struct ps_digest *digest); /* NULL is allowed */

/* The SHA-256 of a whole file. */
int ps_digest_file(
        const char *path, uint8_t ret_sha256[static PS_DIGEST_NBYTES], struct ps_error *err) PS_MUST_USE;

/* Progress ----------------------------------------------------------------------------------------------- */

/* A progress line on stderr, shown only if stderr is a terminal.
 *
 * Threads: any may count; a thread that finds the line outdated redraws it. */
struct ps_tool_progress {
	bool shown;
	const char *what, *unit; /* "pack", "shards" */
	uint64_t total;          /* number of units; 0: not known */
	pthread_mutex_t lock;    /* guards all below */
	uint64_t done, nbytes;
	double began, drawn;
};

void ps_tool_progress_begin(
        struct ps_tool_progress *progress, const char *what, const char *unit, uint64_t total);
void ps_tool_progress_add(struct ps_tool_progress *progress, uint64_t units, uint64_t nbytes);
/* clears the line, so that other lines can be printed */
void ps_tool_progress_wipe(struct ps_tool_progress *progress);
void ps_tool_progress_end(struct ps_tool_progress *progress); /* also clears the line */

/* Names of output shards --------------------------------------------------------------------------------- */

/* Names of output shards: a pattern with one number, "train-%06d.tar".
 *
 * Threads: any.   Errors: false, with a message on stderr; or -errno. */

/* True if the pattern has exactly one %d or %0Nd, and no other %. */
bool ps_out_pattern_check(const char *pattern);

/* The nth name of a pattern that was checked; the caller frees it. */
char *ps_out_name(const char *pattern, uint64_t n);

/* The zstd level for a name: `level`, or 3 if `level` is 0 and the name ends in .zst. False, with a message
 * on stderr, if name and level contradict each other. */
bool ps_out_level(const char *pattern, int level, int *ret_level);

/* Makes the directory of an output shard, and refuses to overwrite an existing file unless `force`. */
int ps_out_prepare(const char *name, bool force, struct ps_error *err) PS_MUST_USE;

#endif
