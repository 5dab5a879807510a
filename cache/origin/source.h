/* A SOURCE as the user writes it, taken apart.
 *
 *   https://host/dir/x-{000..127}.tar   PS_SOURCE_BRACES   (also without braces: one object)
 *   https://host/dir/                   PS_SOURCE_DIR
 *   https://host/dir/list.txt           PS_SOURCE_MANIFEST, fetched
 *   @list.txt                           PS_SOURCE_MANIFEST, read at once
 *   s3://bucket/dir/  s3://bucket        PS_SOURCE_DIR; also x-{000..127}.tar, list.txt, gs:// and az://
 *   file:///dir/  /dir/  file:///dir/x-{0..9}.tar the same for files (/dir too, if it is a directory)
 *
 * Ownership: the caller's. Threads: any. Blocks: on disk, for a local manifest or path. */
#ifndef PS_ORIGIN_SOURCE_H
#define PS_ORIGIN_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/packed.h"

enum ps_source_kind { PS_SOURCE_BRACES, PS_SOURCE_DIR, PS_SOURCE_MANIFEST };

enum ps_source_origin { PS_SOURCE_HTTP, PS_SOURCE_FILE, PS_SOURCE_S3 /* all with buckets */ };

#define PS_MANIFEST_MAX_NBYTES (UINT64_C(512) << 20)

struct ps_source {
	enum ps_source_kind kind;
	enum ps_source_origin origin;
	bool is_pattern; /* there are braces that expand */
	char *url;       /* the URL as written, whole, with its secrets; NULL for a local manifest */
	char *sas;   /* of az://, the shared access signature that was written behind it; secret; NULL: none */
	char *first; /* the first URL that it stands for, with its secrets: whose host may see credentials */
	char *canonical; /* without them */
	struct ps_packed text; /* a local manifest's, which is not empty; else it is */
	char *base;            /* what relative lines of a manifest are relative to */
	const char *endpoint; /* what is put into the URLs of objects in buckets (base/bucket_url.h); the origin's, or
	                         NULL */
};

int ps_source_parse(const char *text, struct ps_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_source_fini(struct ps_source *s);

/* A manifest that was read from a local path when it was parsed. */
bool ps_source_is_local_list(const struct ps_source *s);
/* Adds what it holds now. */
int ps_source_read_list(const struct ps_source *s, struct ps_packed *ret, struct ps_error *err) PS_MUST_USE;
/* Adds a local list's whole text. -EINVAL: not a regular file, -EFBIG. Blocks on disk. */
int ps_source_read_file(const char *path, struct ps_packed *ret, struct ps_error *err) PS_MUST_USE;

#endif
