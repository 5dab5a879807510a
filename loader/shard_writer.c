/* The public functions by which programs and Python write shards. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "public.h"
#include "shard/shard.h"

struct penstock_shard_writer {
	struct ps_tar_out *out;
	char *path;
};

int penstock_shard_writer_open(
        const char *path, int level, struct penstock_shard_writer **ret_writer, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct penstock_shard_writer *w;
	int rc;

	if (level < 0 || level > PS_TAR_OUT_MAX_LEVEL) {
		rc = ps_error_set(&err, EINVAL,
		        "%s: the level must be 1 to %d for zstd, or 0 for no compression, not %d", path,
		        PS_TAR_OUT_MAX_LEVEL, level);
		return ps_give_error(error, rc, &err);
	}
	w = calloc(1, sizeof(*w));
	if (!w || !(w->path = strdup(path)))
		rc = ps_no_memory(&err);
	else
		rc = ps_tar_out_open(path, level, &w->out, &err);
	if (rc < 0) {
		penstock_shard_writer_abort(w);
		return ps_give_error(error, rc, &err);
	}
	*ret_writer = w;
	return 0;
}

/* True if readers split the name into KEY.SUFFIX. */
static bool name_is_sound(const char *name)
{
	struct ps_name_parts parts;

	return name[0] != '/' && ps_name_split(name, strlen(name), &parts) && parts.key_len > 0;
}

int penstock_shard_writer_add(struct penstock_shard_writer *w, const char *name, const void *data,
        size_t nbytes, struct penstock_error *error)
{
	struct ps_error err = {0};
	int rc;

	if (!name_is_sound(name))
		rc = ps_error_set(&err, EINVAL,
		        "%s: the member \"%s\" would belong to no sample: its name must be KEY.SUFFIX",
		        w->path, name);
	else
		rc = ps_tar_out_member(w->out, name, strlen(name), nbytes, &err);
	if (rc == 0)
		rc = ps_tar_out_data(w->out, data, nbytes, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

uint64_t penstock_shard_writer_member_nbytes(const char *name, uint64_t nbytes)
{
	return ps_tar_out_member_nbytes(strlen(name), name, nbytes);
}

int penstock_shard_writer_finish(struct penstock_shard_writer *w, int index, struct penstock_error *error)
{
	struct ps_shard_index_result result;
	struct ps_error err = {0};
	int rc = ps_tar_out_finish(w->out, NULL, &err);

	if (rc == 0) {
		w->out = NULL;
		if (index)
			rc = ps_shard_index_make(w->path, NULL, NULL, 0, NULL, &result, &err);
	}
	penstock_shard_writer_abort(w);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

void penstock_shard_writer_abort(struct penstock_shard_writer *w)
{
	if (!w)
		return;
	ps_tar_out_abort(w->out);
	free(w->path);
	free(w);
}
