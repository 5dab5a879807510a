#include "config.h"

#include "tools/groups.h"

#include <errno.h>
#include <string.h>

#include "shard/file/file.h"
#include "shard/shard.h"
#include "tools/tools.h"

struct groups {
	const char *path;
	struct ps_stream *stream;
	struct ps_tar *tar;
	struct ps_links *links; /* NULL: more files than it can have, so no hard link is read */
	struct ps_group group;
	struct ps_group_member ahead; /* already read, but part of the next group; name NULL: none */
	bool ended;
	uint64_t checked; /* compressed: no wrong checksum is known of the bytes before this offset */
};

static void member_fini(struct ps_group_member *m)
{
	free(m->name);
	free(m->data);
	*m = (struct ps_group_member){0};
}

static void group_clear(struct ps_group *g)
{
	for (size_t i = 0; i < g->n; i++)
		member_fini(&g->members[i]);
	g->n = g->key_len = 0;
	g->key = NULL;
	g->tar_nbytes = 0;
}

/* Takes note of a member, and gives a hard link the place of its target. */
static int link_follow(struct groups *g, struct ps_tar_member *t, struct ps_error *err)
{
	bool is_link = t->kind == PS_TAR_HARDLINK, again = ps_stream_fd(g->stream) >= 0;
	struct ps_name_parts parts;
	int rc = g->links ? ps_links_add(g->links, t) : 0;

	if (rc == -E2BIG) {
		ps_links_free(ps_steal_ptr(&g->links));
		rc = 0;
	}
	ps_need(rc == -ENOMEM ? NULL : g);
	if (!is_link || (g->links && t->kind == PS_TAR_HARDLINK && again))
		return rc;
	t->kind = PS_TAR_OTHER;
	if (!ps_name_split(t->name, t->name_len, &parts))
		return rc; /* of no sample */
	return ps_error_set(err, EBADMSG,
	        "%s: a hard link to \"%s\", whose bytes cannot be read%s; store it as an ordinary file",
	        t->name, t->link, again ? "" : " again in a pipe or a compressed shard");
}

/* Reads the next file with its bytes: 1, or 0 at the end. */
static int member_read(struct groups *g, struct ps_group_member *m, struct ps_error *err)
{
	struct ps_tar_member t;
	int rc;

	do {
		rc = ps_tar_next(g->tar, &t, err);
		if (rc <= 0)
			return rc;
		rc = link_follow(g, &t, err);
		if (rc < 0)
			return rc;
	} while (!ps_tar_is_data(t.kind) && t.kind != PS_TAR_HARDLINK);
	if (t.kind == PS_TAR_SPARSE)
		return ps_error_set(err, EBADMSG,
		        "%s: a file with holes, which is not read: unpack it, and pack it "
		        "without --sparse",
		        t.name);
	if (t.size > PS_GROUP_MAX_NBYTES)
		return ps_error_set(
		        err, E2BIG, "%s: %ju bytes are too many for one member", t.name, (uintmax_t)t.size);
	*m = (struct ps_group_member){.name = ps_need(strdup(t.name)),
	        .name_len = t.name_len,
	        .size = t.size,
	        .data = ps_need(malloc(t.size ? t.size : 1))};
	rc = t.kind == PS_TAR_HARDLINK ? ps_stream_read_at(g->stream, m->data, t.size, t.offset, err)
	                               : ps_tar_read(g->tar, m->data, err);
	if (rc < 0)
		member_fini(m);
	return rc < 0 ? rc : 1;
}

static int member_push(struct ps_group *g, struct ps_group_member *m, struct ps_error *err)
{
	if (g->n == g->cap) {
		size_t cap = PS_MAX(g->cap * 2, (size_t)8);

		g->members = ps_need(reallocarray(g->members, cap, sizeof(*g->members)));
		g->cap = cap;
	}
	g->tar_nbytes += ps_tar_out_member_nbytes(m->name_len, m->name, m->size);
	if (g->tar_nbytes > PS_GROUP_MAX_NBYTES)
		return ps_error_set(err, E2BIG, "%s: the sample is larger than %ju bytes", m->name,
		        (uintmax_t)PS_GROUP_MAX_NBYTES);
	g->members[g->n++] = *m;
	*m = (struct ps_group_member){0};
	return 0;
}

/* The length of the member's key; 0: it belongs to no sample. */
static size_t key_of(struct ps_group_member *m)
{
	struct ps_name_parts parts;

	if (!ps_name_split(m->name, m->name_len, &parts))
		return 0;
	m->suffix_at = (size_t)(parts.suffix - m->name);
	return parts.key_len;
}

/* Called for a compressed shard after a read that returned r; 0 is the end of the tar, after which the last checksum
 * follows. */
static int sum_check(struct groups *g, int r, struct ps_error *err)
{
	bool garbage = false;
	int rc = r == 0 ? ps_stream_drain(g->stream, &garbage, err) : r;
	uint64_t to = ps_stream_offset(g->stream);
	struct ps_stream_sum sum;

	if (rc < 0 && !garbage)
		return rc;
	sum = ps_stream_sum(g->stream, g->checked, to);
	if (sum.wrong || sum.passed)
		return ps_error_set(err, EBADMSG, "the checksum of its compressed data does not match");
	g->checked = to;
	return r;
}

/* Reads the next group: 1, or 0 at the end of the shard. */
static int groups_next(struct groups *g, const struct ps_group **ret_group, struct ps_error *err)
{
	int r = 1;

	group_clear(&g->group);
	while (!g->ended) {
		struct ps_group_member *m = &g->ahead;

		if (!m->name)
			r = member_read(g, m, err);
		if (r >= 0 && ps_stream_is_inflated(g->stream))
			r = sum_check(g, r, err);
		if (r <= 0) {
			g->ended = true;
			if (r < 0)
				ps_error_prefix(err, r, "%s", g->path);
			break;
		}
		size_t key_len = key_of(m);
		bool same = key_len > 0 && key_len == g->group.key_len &&
		            memcmp(m->name, g->group.key, key_len) == 0;
		if (g->group.n > 0 && !same)
			break;
		r = member_push(&g->group, m, err);
		if (r < 0) {
			g->ended = true;
			ps_error_prefix(err, r, "%s", g->path);
			break;
		}
		g->group.key = key_len > 0 ? g->group.members[0].name : NULL;
		g->group.key_len = key_len;
	}
	*ret_group = &g->group;
	if (r < 0) {
		/* The group that was cut off by damage may lack members. */
		group_clear(&g->group);
		return r;
	}
	return g->group.n > 0;
}

static int groups_init(struct groups *g, struct ps_error *err)
{
	static const struct ps_stream_options options = {.buf_nbytes = 1UL << 20, .wake_fd = -1};
	int rc = ps_stream_open(g->path, &options, &g->stream, err);

	if (rc == 0)
		rc = ps_stream_inflate(&g->stream, err);
	if (rc == 0)
		g->tar = ps_need(ps_stream_tar(g->stream));
	if (rc == 0)
		g->links = ps_need(ps_links_new());
	if (rc < 0)
		ps_error_prefix(err, rc, "%s", g->path);
	return rc;
}

static void groups_fini(struct groups *g)
{
	group_clear(&g->group);
	free(g->group.members);
	member_fini(&g->ahead);
	ps_links_free(g->links);
	ps_tar_free(g->tar);
	ps_stream_free(g->stream);
}

int ps_groups_read(const char *path,
        int (*take)(void *ctx, const struct ps_group *group, struct ps_error *err), void *ctx,
        struct ps_error *err)
{
	struct groups g = {.path = path};
	const struct ps_group *group;
	int rc = groups_init(&g, err);

	while (rc == 0) {
		rc = groups_next(&g, &group, err);
		if (rc <= 0)
			break;
		rc = take(ctx, group, err);
	}
	groups_fini(&g);
	return rc;
}

int ps_group_write(const struct ps_group *g, struct ps_tar_out *out, struct ps_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < g->n && rc == 0; i++) {
		const struct ps_group_member *m = &g->members[i];

		rc = ps_tar_out_member(out, m->name, m->name_len, m->size, err);
		if (rc == 0)
			rc = ps_tar_out_data(out, m->data, m->size, err);
	}
	return rc;
}
