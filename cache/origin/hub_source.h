/* Sources on the Hugging Face Hub, and the URLs that they stand for.
 *
 *   hf://datasets/OWNER/NAME[@REV][/PATH]     a dataset repository; hf://OWNER/NAME for short
 *   hf://models/OWNER/NAME[@REV][/PATH]       a model repository
 *
 * REV is a branch (main, if none is given), a tag or a commit; a "/" in it is written %2F, but for refs/convert/NAME and
 * refs/pr/N, which are known. PATH is a folder, a file, or a pattern of braces and globs (see glob.h); it is not
 * percent-encoded. An object's URL names repository and path, not the revision: its version is the file's oid, so that a
 * file that a new commit has not touched is the same object.
 *
 * Ownership: the caller's; strings handed out are to free(). Threads: any. Blocks: never. Errors: -EINVAL, -ENOMEM. */
#ifndef PS_ORIGIN_HUB_SOURCE_H
#define PS_ORIGIN_HUB_SOURCE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/strbuf.h"


struct ps_hf_source {
	bool is_model;
	char *repo;      /* "OWNER/NAME" */
	char *rev;       /* decoded */
	char *path;      /* below the repository, without "/" in front or at the end; "" is all of it */
	bool is_pattern; /* path holds braces or globs */
	char *canonical; /* the source, spelled out */
};

bool ps_hf_is_source(const char *text);
int ps_hf_source_parse(const char *text, struct ps_hf_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_hf_source_fini(struct ps_hf_source *s);

/* A full commit id: what it names never changes. */
bool ps_hf_is_commit(const char *rev);

/* {endpoint}/api/datasets/OWNER/NAME/revision/REV: tells the commit of a branch or tag. */
char *ps_hf_url_revision(const struct ps_hf_source *s, const char *endpoint);
/* ../tree/REV[/PATH]: what is below a folder ("" is all). */
char *ps_hf_url_tree(const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path,
        bool recursive);
/* {endpoint}/datasets/OWNER/NAME/resolve/REV/PATH */
char *ps_hf_url_resolve(const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path);
/* {endpoint}/datasets/OWNER/NAME: for people. */
char *ps_hf_url_page(const struct ps_hf_source *s, const char *endpoint);

/* hf://datasets/OWNER/NAME/PATH[?endpoint=...]: an object's URL, of any endpoint but the usual one. */
char *ps_hf_url_object(const struct ps_hf_source *s, const char *endpoint, const char *path);
/* The path of such a URL again, decoded. NULL: it is not of this source, or out of memory. */
char *ps_hf_path_of_object(const struct ps_hf_source *s, const char *url);

#endif
