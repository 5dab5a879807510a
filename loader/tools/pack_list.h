/* The files to pack, grouped into samples by their keys, in a fixed order.
 *
 * A file's name in the shard is its path below the folder; its key is formed as in shard/shard.h. Hidden
 * files and folders, and files without a suffix, belong to no sample.
 *
 * Ownership: the list owns all texts.   Threads: one at a time.   Blocks: on the file system.
 * Errors: -errno with a text. */
#ifndef PS_TOOLS_PACK_LIST_H
#define PS_TOOLS_PACK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ps_pack_file {
	char *path; /* NULL: the bytes are `text` */
	char *name; /* name in the shard */
	size_t name_len, key_len;
	uint64_t size;
	int64_t label; /* label of its sample; -1: none. Becomes a member KEY.cls */
	char text[24]; /* content of a label's member */
};

struct ps_pack_sample {
	size_t first, n; /* range in `files` */
};

struct ps_pack_list {
	struct ps_pack_file *files; /* sorted by key, then by name */
	size_t nfiles, files_cap;
	struct ps_pack_sample *samples;
	size_t nsamples;
	/* names of classes, from ps_pack_folder() with `classes`; a class's number is its index */
	char **classes;
	size_t nclasses;
	uint64_t ignored; /* files that belong to no sample */
	char *shown[20];  /* paths of the first of these, with `classes` */
	/* with `classes`: images of formats that the loader does not decode, and the first one's path; they are
	 * packed if there are no others, and else belong to no sample */
	uint64_t foreign;
	char *foreign_first;
	bool foreign_packed;
};

/* Adds all files below a folder. classes: each direct subfolder is a class, numbered in the order of names;
 * each of its samples gets the number as a member KEY.cls. Each image is a sample: names are cut at the last dot,
 * and dots before it become '_'. Other files of an image's stem belong to its sample, and files of no image to
 * none; but if there is no image at all, each stem is a sample. Images are those that the loader decodes.
 * -EEXIST: a sample would have two images, or files of two stems. */
int ps_pack_folder(
        struct ps_pack_list *list, const char *folder, bool classes, struct ps_error *err) PS_MUST_USE;

/* Adds the files listed in a text, one on each line: PATH[<tab>KEY[<tab>LABEL]]. A file's name is its path;
 * if KEY is given, it is KEY followed by the path's suffix. Paths are relative to the list's folder. Empty
 * lines and those that start with "#" are skipped. "-": standard input. */
int ps_pack_text(struct ps_pack_list *list, const char *path, struct ps_error *err) PS_MUST_USE;

/* Sorts the files, adds members for labels, and groups all into samples. -EEXIST: two files would have the
 * same name, or a sample would have two labels. */
int ps_pack_group(struct ps_pack_list *list, struct ps_error *err) PS_MUST_USE;

/* Shuffles the samples; the order depends on the seed alone. */
void ps_pack_shuffle(struct ps_pack_list *list, uint64_t seed);

void ps_pack_fini(struct ps_pack_list *list);

#endif
