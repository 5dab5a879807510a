/* Shard lists: the names a user wrote, made into the list of files to read.
 *
 *   data/train-{000000..001281}.tar     brace expansion, as WebDataset spells it (see ps_list_add)
 *   a.tar::b-{0..3}.tar                 "::" joins several patterns in one string
 *   data/t*.tar, data/                  files that are looked for (shard/list_find.h); not in a text file
 *   @shards.txt                         a text file: a pattern a line; blank lines and '#' lines are skipped
 *
 * Ownership: the list owns its names; they live until ps_list_fini().
 * Threads: none of its own; one thread at a time.
 * Errors: -EINVAL for a bad pattern, -E2BIG past a limit, -ENOMEM, or the errno of reading a list file; `err`
 * says which. */
#ifndef PS_SHARD_LIST_H
#define PS_SHARD_LIST_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/load_error.h"

#define PS_LIST_MAX_NAMES 1000000        /* more: -E2BIG */
#define PS_LIST_MAX_BYTES (512UL << 20)  /* of all names together; more: -E2BIG */
#define PS_LIST_MAX_DEPTH 32             /* of nested braces; deeper: -EINVAL */
#define PS_LIST_MAX_FILE (512UL << 20)   /* a list file; larger: -E2BIG */
#define PS_LIST_MAX_PATTERN (64UL << 10) /* one pattern; longer: -E2BIG */

struct ps_list {
	char **names;
	size_t n;
	size_t cap;
	size_t nbytes; /* of all names, with their ends */
};

/* Appends what `pattern` stands for, in order. Reads a file if it begins with '@', and looks for files where
 * it has wildcards or is a folder. On error the list is as before.
 *
 * Brace expansion: {a,b} alternatives, {3..10} and {a..f} ranges with an optional third number (the step), in
 * both directions; a leading zero pads all numbers of the range to one width; braces nest; a group that is
 * neither stays as it is; a backslash takes the next character literally; unbalanced braces are an error. */
int ps_list_add(struct ps_list *list, const char *pattern, struct ps_load_error *err) PS_MUST_USE;

/* The same for the text of a list file. `name` is for error texts. */
int ps_list_add_text(struct ps_list *list, const char *text, size_t len, const char *name,
        struct ps_load_error *err) PS_MUST_USE;

/* Appends one name of `len` bytes, as it is. take() takes it over, whatever comes of it; NULL: -ENOMEM. */
int ps_list_push(struct ps_list *list, const char *name, size_t len, struct ps_load_error *err) PS_MUST_USE;
int ps_list_take(struct ps_list *list, char *name, size_t len, struct ps_load_error *err) PS_MUST_USE;

/* Shortens the list to its first n names. */
void ps_list_cut(struct ps_list *list, size_t n);

/* Frees the names and zeroes the list. */
void ps_list_fini(struct ps_list *list);

#endif
