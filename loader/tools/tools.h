/* What the commands of penstock-loader share.
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
#include "shard/shard.h"

enum {
	PS_EXIT_OK = 0,
	PS_EXIT_FAILED = 1,
	PS_EXIT_USAGE = 2,
	PS_EXIT_DRIFT = 3, /* of bench: other data than the profile's */
};

int ps_cmd_bench(int argc, char **argv);
int ps_cmd_cat(int argc, char **argv);
int ps_cmd_doctor(int argc, char **argv);
int ps_cmd_index(int argc, char **argv);
int ps_cmd_ls(int argc, char **argv);
int ps_cmd_pack(int argc, char **argv);
int ps_cmd_shuffle_quality(int argc, char **argv);
int ps_cmd_split(int argc, char **argv);

/* Names the command in the lines of the functions below. Borrowed. */
void ps_command_begin(const char *command);

/* One line on stderr: "penstock-loader COMMAND: TEXT". Control characters become '?', as names in shards are
 * not trusted. */
void ps_complain(const char *fmt, ...) PS_PRINTF(1, 2);

/* The same of a text of the library: options that it names become the flags that set them. */
void ps_loader_complain(const char *prefix, const char *text);

/* Options of a command ----------------------------------------------------------------------------------- */

enum ps_flag_kind {
	/* the loader's option of that name (option/option.h), which has what is not said here */
	PS_FLAG_LOADER,
	PS_FLAG_SET,  /* bool; it takes no value */
	PS_FLAG_TEXT, /* const char *, borrowed from argv */
	PS_FLAG_U32,  /* or int; least to most */
	PS_FLAG_U64,
	PS_FLAG_BYTES, /* uint64_t, as ps_arg_bytes() */
	PS_FLAG_CALL,  /* take() */
};

/* One option: its line of --help, its name for getopt_long(), and where its value goes. */
struct ps_flag {
	const char *name; /* "max-size" */
	enum ps_flag_kind kind;
	size_t at;              /* in the command's struct */
	const char *arg, *text; /* "SIZE", "bytes of a shard ..." */
	uint64_t least, most;
	bool (*take)(void *ctx, char *value); /* complains and returns false */
};

#define PS_FLAGS_MAX 64

struct ps_flags {
	const char *usage, *examples; /* of --help, before and after the options */
	const struct ps_flag *flags;
	size_t n;
	size_t loader_at; /* of the penstock_options in the command's struct */
};

/* Reads the options into the command's struct; arguments are argv[optind..] then. An exit code (after --help,
 * or a complaint), or -1: go on. */
int ps_flags_read(const struct ps_flags *flags, void *ctx, int argc, char **argv);

/* Values ------------------------------------------------------------------------------------------------- */

/* A number in decimal, between least and most. Complains and returns false. */
bool ps_arg_u64(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* A number of bytes: 1000, 64K, 512M, 2G (powers of 1024). Complains and returns false. */
bool ps_arg_bytes(const char *option, const char *text, uint64_t *ret_value);

struct ps_column_spec; /* shard/index/index.h */

/* Declares one more column of an index, of PS_INDEX_MAX_COLUMNS. Complains and returns false. */
bool ps_arg_column(const char *text, struct ps_column_spec *columns, size_t *n);

/* The place of `text` among n names. Complains and returns false. */
bool ps_arg_choice(
        const char *option, const char *text, const char *const *names, size_t n, uint32_t *ret_place);

/* Part `number` of `of` of a work that is divided among jobs: 1 to `of`. All 0: there is one part. */
struct ps_part {
	uint64_t number, of;
};

/* "K/N". Complains and returns false. */
bool ps_arg_part(const char *option, const char *text, struct ps_part *ret_part);

/* The part of n units: [*ret_first, *ret_end). All parts together are all units, each once. */
void ps_part_of(const struct ps_part *part, size_t n, size_t *ret_first, size_t *ret_end);

/* Makes a directory if there is none. Only the last component: a path on a disk that is not mounted is an
 * error. Errors: -errno with a text that names it. */
int ps_folder_make(const char *path, struct ps_load_error *err) PS_MUST_USE;

/* Adds the words after the options to a list; PS_EXIT_OK if there is a shard, else complains. */
int ps_shards_take(int argc, char **argv, struct ps_shard_list *shards);

/* "s" but for 1: "%ju shard%s". */
const char *ps_plural(uint64_t n);

/* Bytes with '?' for control characters, which would spoil a table, or the terminal. */
void ps_plain_print(FILE *out, const char *text);

/* Bytes as a JSON string. Those that are not UTF-8 become \udcXX, as Python's surrogateescape reads them. */
void ps_json_print(FILE *out, const char *text);

/* SHA-256 of a shard ------------------------------------------------------------------------------------- */

/* As `sha256sum` prints it.
 *
 * Ownership: the caller's, until free.   Threads: one at a time.   Blocks: of a file, on the disk.
 * Errors: 0 or -errno with a text that names the file. */
#define PS_DIGEST_NBYTES 32

struct ps_digest;

struct ps_digest *ps_digest_new(void); /* NULL: out of memory */
void ps_digest_add(struct ps_digest *digest, const void *p, size_t n);
void ps_digest_finish(struct ps_digest *digest, uint8_t ret_sha256[static PS_DIGEST_NBYTES]);
void ps_digest_free(struct ps_digest *digest); /* NULL is allowed */

/* Of a whole file. */
int ps_digest_file(
        const char *path, uint8_t ret_sha256[static PS_DIGEST_NBYTES], struct ps_load_error *err) PS_MUST_USE;

/* Progress ----------------------------------------------------------------------------------------------- */

/* A line on stderr that shows how far long work has come; only where stderr is a terminal.
 *
 * Threads: any may count; the line is redrawn by the thread that finds it old. */
struct ps_tool_progress {
	bool shown;
	const char *what, *unit; /* "pack", "shards" */
	uint64_t total;          /* units; 0: not known */
	pthread_mutex_t lock;    /* all below */
	uint64_t done, nbytes;
	double began, drawn;
};

void ps_tool_progress_begin(
        struct ps_tool_progress *progress, const char *what, const char *unit, uint64_t total);
void ps_tool_progress_add(struct ps_tool_progress *progress, uint64_t units, uint64_t nbytes);
void ps_tool_progress_wipe(struct ps_tool_progress *progress); /* so that lines can be printed */
void ps_tool_progress_end(struct ps_tool_progress *progress);  /* wipes it, too */

/* Names of shards that are written ----------------------------------------------------------------------- */

/* Names of shards that are written: a pattern with one number in it, "train-%06d.tar".
 *
 * Threads: any.   Errors: complains on stderr and returns false, or NULL when memory is short; or -errno. */

/* True if there is exactly one %d or %0Nd, and no other %. */
bool ps_out_pattern_check(const char *pattern);

/* The nth name, which the caller frees. */
char *ps_out_name(const char *pattern, uint64_t n);

/* The zstd level for a name: `level`, or 3 where that is 0 and the name ends in .zst. Complains if the name
 * and the level contradict each other. */
bool ps_out_level(const char *pattern, int level, int *ret_level);

/* Makes the directory of the nth name, and refuses to write over the name itself unless `force`. */
int ps_out_prepare(const char *name, bool force, struct ps_load_error *err) PS_MUST_USE;

#endif
