/* What the commands of penstock-loader share.
 *
 * Errors: a command returns the program's exit code: PS_EXIT_OK, PS_EXIT_FAILED (the text is on stderr),
 * PS_EXIT_USAGE. Threads: the main one. */
#ifndef PS_TOOLS_TOOLS_H
#define PS_TOOLS_TOOLS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "shard/list.h"

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

/* One line on stderr: "penstock-loader COMMAND: TEXT", control characters as '?': names in shards are not
 * trusted. */
void ps_complain(const char *fmt, ...) PS_PRINTF(1, 2);

/* The same of a text of the library: options that it names become the flags that set them. */
void ps_loader_complain(const char *prefix, const char *text);

/* The line for what getopt_long() just refused with c: '?', or ':' with a short list that begins so. */
void ps_option_complain(char **argv, const struct option *longs, int c);

/* Prints the help of a command: its text up to the options, and the table of options. */
struct ps_option_help {
	const char *name; /* "--batch N" */
	const char *text;
};
void ps_help_print(const char *usage, const struct ps_option_help *options, size_t n, const char *examples);

/* A number in decimal, between least and most. Complains and returns false. */
bool ps_arg_u64(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret_value);

/* A number of bytes: 1000, 64K, 512M, 2G (powers of 1024). Complains and returns false. */
bool ps_arg_bytes(const char *option, const char *text, uint64_t *ret_value);

struct ps_column_spec; /* shard/index_column.h */

/* Declares one more column of an index, of PS_INDEX_MAX_COLUMNS. Complains and returns false. */
bool ps_arg_column(const char *text, struct ps_column_spec *columns, size_t *n);

/* The place of `text` among n names. Complains and returns false. */
bool ps_arg_choice(
        const char *option, const char *text, const char *const *names, size_t n, uint32_t *ret_place);

/* Makes a directory if there is none. Only the last component: a path on a disk that is not mounted is an error.
 * Errors: -errno with a text that names it. */
int ps_folder_make(const char *path, struct ps_load_error *err) PS_MUST_USE;

/* Adds the words behind the options to a list; PS_EXIT_OK if there is a shard, else complains. */
int ps_shards_take(int argc, char **argv, struct ps_list *shards);

/* "s" but for 1: "%ju shard%s". */
const char *ps_plural(uint64_t n);

/* Bytes with '?' for control characters, which would spoil a table, or the terminal. */
void ps_plain_print(FILE *out, const char *text);

/* Bytes as a JSON string. Those that are not UTF-8 become \udcXX, as Python's surrogateescape reads them. */
void ps_json_print(FILE *out, const char *text);

#endif
