/* An index of a shard (base/psx.h) as the list of the shard's members. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/psx.h"
#include "members/members_private.h"

#define OFFSET_MAX (UINT64_C(1) << 62)
#define SHAPE_MEMBERS_MAX ((size_t)PS_PSX_MAX_SHAPES * PS_PSX_MAX_MEMBERS)

struct shape {
	uint32_t first, n; /* range in `members` */
};

struct shape_member {
	uint64_t lead; /* units */
	const char *suffix;
	size_t suffix_len;
};

/* The parts of an index that are needed. */
struct psx {
	struct ps_psx_bytes shapes_bytes, samples, keys; /* samples, keys: what follows the marks */
	uint64_t count;
	struct shape *shapes;
	uint32_t nshapes;
	struct shape_member *members;
};

static int damaged(struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "it is damaged, or not an index");
}

static int not_all(struct ps_error *err, const char *why)
{
	return ps_error_set(err, ENODATA, "%s", why);
}

/* The head and the table --------------------------------------------------------------------------------- */

/* Takes the bytes of a section that follow its marks. A mark has `width` words. */
static bool section_take(
        const uint8_t *p, size_t n, uint64_t sum, uint64_t nmarks, size_t width, struct ps_psx_bytes *ret)
{
	const uint8_t *marks;

	if (ret->p || ps_psx_sum(0, p, n) != sum || nmarks > n / 8)
		return false;
	*ret = (struct ps_psx_bytes){p, p + n};
	return ps_get_bytes(ret, nmarks * width * 8, &marks);
}

static bool sections_take(struct psx *x, const uint8_t *bytes, size_t n, size_t nsections)
{
	uint64_t nmarks = ps_psx_nmarks(x->count);

	for (size_t i = 0; i < nsections; i++) {
		const uint8_t *entry = bytes + PS_PSX_HEAD + i * PS_PSX_SECTION;
		uint64_t at = ps_get_u64(entry + 8), len = ps_get_u64(entry + 16),
		         sum = ps_get_u64(entry + 24);
		uint32_t kind = ps_get_u32(entry);
		bool sound = true;

		if (at > n || len > n - at)
			return false;
		const uint8_t *p = bytes + at;
		if (kind == PS_PSX_SHAPES)
			sound = section_take(p, len, sum, 0, 0, &x->shapes_bytes);
		else if (kind == PS_PSX_SAMPLES)
			sound = section_take(p, len, sum, nmarks, 2, &x->samples);
		else if (kind == PS_PSX_KEYS)
			sound = section_take(p, len, sum, nmarks, 1, &x->keys);
		if (!sound)
			return false;
	}
	return x->shapes_bytes.p && x->samples.p && x->keys.p;
}

/* Compares the head with the shard. */
static int head_check(const uint8_t *h, const struct ps_psx_shard *shard, struct ps_error *err)
{
	uint32_t flags = ps_get_u32(h + PS_PSX_AT_FLAGS);
	uint64_t stored = ps_get_u64(h + PS_PSX_AT_SIZE), plain = ps_get_u64(h + PS_PSX_AT_PLAIN);

	if (flags & ~(uint32_t)PS_PSX_FLAGS)
		return damaged(err);
	if (shard->stored_nbytes != PS_SIZE_UNKNOWN && stored != shard->stored_nbytes)
		return ps_error_set(err, ESTALE,
		        "it belongs to a shard of %" PRIu64 " bytes, but this one has %" PRIu64, stored,
		        shard->stored_nbytes);
	if (plain != shard->nbytes || !(flags & PS_PSX_FLAG_COMPRESSED) != !shard->coded)
		return ps_error_set(err, ESTALE,
		        "it belongs to a shard of %" PRIu64 " bytes%s, but this one shows %" PRIu64, plain,
		        flags & PS_PSX_FLAG_COMPRESSED ? ", compressed" : "", shard->nbytes);
	if (flags & PS_PSX_FLAG_LINES)
		return not_all(err, "it belongs to a file of lines");
	if (flags & PS_PSX_FLAG_GLOBAL)
		return not_all(err, "the tar has global headers");
	if (ps_get_u64(h + PS_PSX_AT_BAD) > 0)
		return not_all(err, "some samples could not be read when it was made");
	if (!(ps_get_u16(h + PS_PSX_AT_NOTES) & PS_PSX_NOTE_ALL))
		return not_all(err,
		        "it does not say that it has all members and their names (the tar has others, or "
		        "suffixes in capital letters, or an older penstock-loader has made it)");
	return 0;
}

static int parse(
        struct psx *x, const uint8_t *bytes, size_t n, const struct ps_psx_shard *shard, struct ps_error *err)
{
	size_t nsections;

	if (n >= 8 && memcmp(bytes, PS_PSX_MAGIC, 7) == 0 && bytes[7] != PS_PSX_MAGIC[7])
		return ps_error_set(err, ESTALE, "it belongs to another version of penstock");
	if (n < PS_PSX_HEAD || memcmp(bytes, PS_PSX_MAGIC, 8) != 0)
		return damaged(err);
	nsections = ps_get_u16(bytes + PS_PSX_AT_NSECTIONS);
	if (nsections > PS_PSX_MAX_SECTIONS || (n - PS_PSX_HEAD) / PS_PSX_SECTION < nsections ||
	        ps_psx_head_sum(bytes, nsections) != ps_get_u64(bytes + PS_PSX_AT_SUM))
		return damaged(err);
	int rc = head_check(bytes, shard, err);
	if (rc < 0)
		return rc;
	x->count = ps_get_u64(bytes + PS_PSX_AT_COUNT);
	return sections_take(x, bytes, n, nsections) ? 0 : damaged(err);
}

/* Shapes ------------------------------------------------------------------------------------------------- */

static bool shape_parse(struct psx *x, struct ps_psx_bytes *b, struct shape *shape, size_t *n)
{
	uint64_t nmembers, len;

	if (!ps_get_varint(b, &nmembers) || nmembers == 0 || nmembers > PS_PSX_MAX_MEMBERS)
		return false;
	*shape = (struct shape){.first = (uint32_t)*n, .n = (uint32_t)nmembers};
	for (uint64_t i = 0; i < nmembers; i++) {
		struct shape_member *m = &x->members[(*n)++];
		const uint8_t *suffix;

		/* `lead` is not 0, because each member has a header. */
		if (!ps_get_varint(b, &m->lead) || m->lead == 0 || m->lead > OFFSET_MAX / PS_TAR_BLOCK ||
		        !ps_get_varint(b, &len) || len > PS_TAR_MAX_NAME ||
		        !ps_get_bytes(b, len + 1, &suffix) || suffix[len] != 0 || memchr(suffix, 0, len))
			return false;
		m->suffix = (const char *)suffix;
		m->suffix_len = len;
	}
	return true;
}

static int shapes_parse(struct psx *x, struct ps_error *err)
{
	struct ps_psx_bytes b = x->shapes_bytes;
	/* a member takes at least three bytes */
	size_t room = PS_MIN((size_t)(b.end - b.p) / 3, SHAPE_MEMBERS_MAX) + PS_PSX_MAX_MEMBERS;
	size_t nmembers = 0;
	uint64_t n;

	if (!ps_get_varint(&b, &n) || n > PS_PSX_MAX_SHAPES)
		return damaged(err);
	x->shapes = calloc((size_t)n + 1, sizeof(*x->shapes));
	x->members = calloc(room, sizeof(*x->members));
	if (!x->shapes || !x->members)
		return ps_no_memory(err);
	for (uint64_t i = 0; i < n; i++)
		if (!shape_parse(x, &b, &x->shapes[i], &nmembers))
			return damaged(err);
	x->nshapes = (uint32_t)n;
	return b.p == b.end ? 0 : damaged(err);
}

/* Members ------------------------------------------------------------------------------------------------ */

struct walk {
	struct psx *x;
	uint64_t end;   /* of the last member, padded */
	uint64_t limit; /* no member ends beyond it */
	ps_psx_member_fn fn;
	void *arg;
	struct ps_tar_member member;
	char name[PS_TAR_MAX_NAME + 1];
};

static int member_show(struct walk *w, const uint8_t *key, size_t key_len, const struct shape_member *m,
        struct ps_error *err)
{
	uint64_t size, left = w->limit - w->end, lead = m->lead * PS_TAR_BLOCK;

	if (lead > left || !ps_get_varint(&w->x->samples, &size) || size > left - lead ||
	        key_len + 1 + m->suffix_len > PS_TAR_MAX_NAME || memchr(key, 0, key_len))
		return damaged(err);
	memcpy(w->name, key, key_len);
	w->name[key_len] = '.';
	memcpy(w->name + key_len + 1, m->suffix, m->suffix_len + 1);
	w->member.name_len = key_len + 1 + m->suffix_len;
	w->member.header_offset = w->end;
	w->member.offset = w->end + lead;
	w->member.size = size;
	/* The limit is a multiple of a block: the padding ends before it, too. */
	w->end = w->member.offset + (size + PS_TAR_BLOCK - 1) / PS_TAR_BLOCK * PS_TAR_BLOCK;
	int rc = w->fn(w->arg, &w->member);
	return rc < 0 ? ps_error_set(err, -rc, "%s", strerror(-rc)) : 0;
}

static int sample_show(struct walk *w, struct ps_error *err)
{
	uint64_t what, len;
	const uint8_t *key;
	int rc = 0;

	if (!ps_get_varint(&w->x->samples, &what) || !ps_get_varint(&w->x->keys, &len) ||
	        !ps_get_bytes(&w->x->keys, len, &key))
		return damaged(err);
	/* PS_PSX_NOTE_ALL does not hold if there is anything between samples, or if a sample is bad. */
	if (what & 3)
		return not_all(err, what & 1 ? "there is something between two samples" : "a sample is bad");
	what >>= 2;
	if (what == 0)
		return not_all(err,
		        "it does not have the members of some sample, because its samples differ too much");
	if (what > w->x->nshapes)
		return damaged(err);
	for (uint32_t i = 0; rc == 0 && i < w->x->shapes[what - 1].n; i++)
		rc = member_show(w, key, (size_t)len, &w->x->members[w->x->shapes[what - 1].first + i], err);
	return rc;
}

int ps_psx_members(const void *bytes, size_t n, const struct ps_psx_shard *shard, ps_psx_member_fn fn,
        void *arg, struct ps_psx_end *ret, struct ps_error *err)
{
	struct psx x = {0};
	struct walk *w = calloc(1, sizeof(*w));
	int rc = w ? parse(&x, bytes, n, shard, err) : ps_no_memory(err);

	if (rc == 0)
		rc = shapes_parse(&x, err);
	/* The end mark is one block at least. */
	if (rc == 0 && shard->nbytes < PS_TAR_BLOCK)
		rc = damaged(err);
	if (rc == 0) {
		w->x = &x;
		w->limit = PS_MIN(shard->nbytes / PS_TAR_BLOCK - 1, OFFSET_MAX / PS_TAR_BLOCK) * PS_TAR_BLOCK;
		w->fn = fn;
		w->arg = arg;
		w->member = (struct ps_tar_member){
		        .name = w->name, .kind = PS_TAR_FILE, .link = "", .mtime_s = shard->mtime_s};
	}
	for (uint64_t i = 0; rc == 0 && i < x.count; i++)
		rc = sample_show(w, err);
	if (rc == 0 && (x.samples.p != x.samples.end || x.keys.p != x.keys.end))
		rc = damaged(err);
	char *name = rc == 0 ? strdup(w->name) : NULL;
	if (rc == 0 && !name)
		rc = ps_no_memory(err);
	if (rc == 0)
		*ret = (struct ps_psx_end){.first_sum = ps_get_u64((const uint8_t *)bytes + PS_PSX_AT_FIRST),
		        .header = w->member.header_offset,
		        .offset = w->member.offset,
		        .size = w->member.size,
		        .any = x.count > 0,
		        .name = name};
	free(x.shapes);
	free(x.members);
	free(w);
	return rc;
}
