#include "listing/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/url.h"

#define FIRST_SLOTS 32
#define NAME_MAX_NBYTES 255
#define PATH_MAX_NBYTES 4095

int ps_path_check(const char *path)
{
	size_t part = 0, n = 0;

	if (strncmp(path, ".penstock", 9) == 0 && (path[9] == '/' || !path[9]))
		return -EINVAL;
	for (;; n++) {
		unsigned char c = (unsigned char)path[n];

		if (c == '/' || !c) {
			const char *start = path + n - part;

			if (part == 0 || part > NAME_MAX_NBYTES || (part == 1 && start[0] == '.') ||
			        (part == 2 && start[0] == '.' && start[1] == '.'))
				return -EINVAL;
			if (!c)
				break;
			part = 0;
			continue;
		}
		if (c < ' ' || c == 0x7f)
			return -EINVAL;
		part++;
	}
	return n <= PATH_MAX_NBYTES ? 0 : -EINVAL;
}

void ps_names_init(struct ps_names *names, struct ps_lister *lister, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err)
{
	if (err)
		*err = (struct ps_error){0};
	*names = (struct ps_names){.lister = lister,
	        .filter = lister ? lister->filter : NULL,
	        .fn = fn,
	        .arg = arg,
	        .stop = stop,
	        .err = err};
}

void ps_names_fini(struct ps_names *names)
{
	if (names->nwarnings > PS_NAMES_MAX_WARNINGS && !(names->lister && names->lister->quiet))
		ps_log_warning(
		        "list: %u more entries were skipped", names->nwarnings - PS_NAMES_MAX_WARNINGS);
	if (names->lister)
		atomic_store(&names->lister->nskipped, names->nskipped);
	for (size_t i = 0; i < PS_NAMES_TABLES; i++)
		free(names->tables[i].slots);
	ps_strbuf_fini(&names->last_dir);
}

/* True if the lister is quiet and an earlier listing has logged this warning. Notes the warning as
 * logged. */
static bool was_logged(struct ps_lister *l, const char *what, const char *why)
{
	struct ps_id id;
	uint64_t hash;

	if (!l)
		return false;
	ps_id_of_strings((const char *const[]){what, why}, 2, &id);
	memcpy(&hash, id.bytes, sizeof(hash));
	for (unsigned i = 0; i < PS_MIN(l->nskips_logged, (unsigned)PS_LIST_SKIPS_LOGGED); i++)
		if (l->skips_logged[i] == hash)
			return l->quiet;
	l->skips_logged[l->nskips_logged++ % PS_LIST_SKIPS_LOGGED] = hash;
	return false;
}

void ps_names_warn(struct ps_names *names, const char *what, const char *why)
{
	names->nskipped++;
	if (!names->quiet && names->nwarnings++ < PS_NAMES_MAX_WARNINGS &&
	        !was_logged(names->lister, what, why))
		ps_log_warning("list: %.300s: %s", what, why);
}

int ps_names_stopped(struct ps_names *names)
{
	if (names->stop && atomic_load(names->stop))
		return ps_error_set(names->err, ECANCELED, "the listing was stopped");
	return 0;
}

int ps_names_page(struct ps_names *names, bool brought)
{
	uint64_t now = ps_clock_mono_ns();

	if (brought || names->idle_pages++ == 0)
		names->idle_ns = now;
	if (brought)
		names->idle_pages = 0;
	if (names->idle_pages > PS_LIST_IDLE_PAGES)
		return ps_error_set(names->err, EPROTO,
		        "the listing has %d pages in a row without a new name", PS_LIST_IDLE_PAGES);
	if (now - names->idle_ns > PS_LIST_IDLE_MS * PS_NS_PER_MS)
		return ps_error_set(names->err, ETIMEDOUT, "no page of the listing had a new name for %d s",
		        PS_LIST_IDLE_MS / 1000);
	return 0;
}

int ps_names_no_memory(struct ps_names *names)
{
	return ps_error_set(names->err, ENOMEM, "listing: out of memory");
}

/* The set ------------------------------------------------------------------------------------------------ */

#define IS_FILE UINT64_C(1)

/* SHA-256 cut to 63 bits: two of 10 million names have the same hash with a probability of 5e-6. 0: out of
 * memory. */
static uint64_t hash_of(const char *path, size_t n)
{
	ps_autofree char *copy = strndup(path, n);
	struct ps_id id;
	uint64_t h;

	if (!copy)
		return 0;
	ps_id_of_strings((const char *const[]){copy}, 1, &id);
	memcpy(&h, id.bytes, sizeof(h));
	h &= ~IS_FILE;
	return h ? h : 2;
}

static uint64_t *slot_of(const struct ps_names_table *t, uint64_t hash)
{
	/* The bits below the byte that has chosen the table, as a fraction of its slots. */
	uint64_t i = (hash >> 24 & UINT32_MAX) * t->nslots >> 32;

	while (t->slots[i] && (t->slots[i] & ~IS_FILE) != hash)
		i = i + 1 < t->nslots ? i + 1 : 0;
	return &t->slots[i];
}

static struct ps_names_table *table_of(const struct ps_names *names, uint64_t hash)
{
	return (struct ps_names_table *)&names->tables[hash >> 56];
}

/* Keeps a table at most four fifths full. It grows by a quarter, so it is half full at least. */
static int grow(struct ps_names_table *t)
{
	struct ps_names_table grown = {
	        .nused = t->nused, .nslots = t->nslots ? t->nslots + t->nslots / 4 : FIRST_SLOTS};

	if (t->nused * 5 < t->nslots * 4)
		return 0;
	grown.slots = calloc(grown.nslots, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (uint64_t i = 0; i < t->nslots; i++)
		if (t->slots[i])
			*slot_of(&grown, t->slots[i] & ~IS_FILE) = t->slots[i];
	free(t->slots);
	*t = grown;
	return 0;
}

/* 0: added as `kind`; 1: present as that kind; -EEXIST: present as the other kind. */
static int insert(struct ps_names *names, const char *path, size_t n, uint64_t kind)
{
	uint64_t hash = hash_of(path, n);
	struct ps_names_table *t = table_of(names, hash);

	if (!hash || grow(t) < 0)
		return -ENOMEM;
	uint64_t *slot = slot_of(t, hash);
	if (*slot)
		return (*slot & IS_FILE) == kind ? 1 : -EEXIST;
	*slot = hash | kind;
	t->nused++;
	return 0;
}

bool ps_names_is_file(const struct ps_names *names, const char *path, size_t n)
{
	uint64_t hash = hash_of(path, n);
	const struct ps_names_table *t = table_of(names, hash);

	return t->nslots && *slot_of(t, hash) & IS_FILE;
}

/* Adds all parents of a path. -EEXIST: one of them is a file. */
static int insert_parents(struct ps_names *names, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (!slash || (names->last_dir.len == n && memcmp(ps_strbuf_peek(&names->last_dir), path, n) == 0))
		return 0;
	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		int rc = insert(names, path, (size_t)(p - path), 0);

		if (rc < 0)
			return rc;
	}
	ps_strbuf_reset(&names->last_dir);
	ps_strbuf_addn(&names->last_dir, path, n);
	return names->last_dir.failed ? -ENOMEM : 0;
}

int ps_names_add(struct ps_names *names, const struct ps_listed *listed)
{
	int rc = ps_names_stopped(names);

	if (rc)
		return rc;
	if (ps_path_check(listed->path) < 0) {
		ps_names_warn(names, listed->path, "skipped: not a name that can be shown");
		return 0;
	}
	if (!listed->is_dir && !ps_listing_filter_shows(names->filter, listed->path))
		return 0;
	rc = insert_parents(names, listed->path);
	if (rc == 0)
		rc = insert(names, listed->path, strlen(listed->path), listed->is_dir ? 0 : IS_FILE);
	if (rc == 1 && !listed->is_dir && !names->again)
		ps_names_warn(names, listed->path, "skipped: a second object of that name");
	else if (rc == -EEXIST)
		ps_names_warn(names, listed->path, "skipped: a file and a directory of one name");
	else if (rc < 0)
		return ps_names_no_memory(names);
	if (rc)
		return 0;
	if (++names->nfiles > PS_LIST_MAX_ENTRIES)
		return ps_error_set(names->err, E2BIG, "listing: more than %d files", PS_LIST_MAX_ENTRIES);
	rc = names->fn(names->arg, listed);
	if (rc && names->err && !names->err->err)
		ps_error_set(names->err, -rc, "listing: %s", strerror(-rc));
	return rc;
}

int ps_names_add_dir(struct ps_names *names, const char *path, bool at_origin)
{
	size_t n = strlen(path);
	ps_autofree char *plain = strndup(path, n && path[n - 1] == '/' ? n - 1 : n);
	const struct ps_listed listed = {.path = plain, .remote = PS_REMOTE_UNKNOWN, .is_dir = true};

	if (!plain)
		return ps_names_no_memory(names);
	if (names->filter && !at_origin && ps_path_check(plain) == 0)
		return ps_names_stopped(names);
	return ps_names_add(names, &listed);
}

bool ps_names_enters(const struct ps_names *names, const char *dir)
{
	return ps_listing_filter_enters(names->filter, dir);
}

int ps_names_unread(struct ps_names *names, const char *path, const char *why)
{
	size_t n = strlen(path);
	ps_autofree char *plain = strndup(path, n && path[n - 1] == '/' ? n - 1 : n);
	const struct ps_listed unread = {.path = plain, .remote = PS_REMOTE_UNKNOWN, .unread = true};

	ps_names_warn(names, path, why);
	if (!plain)
		return ps_names_no_memory(names);
	/* A path that cannot be shown has no nodes either. */
	return ps_path_check(plain) < 0 ? 0 : names->fn(names->arg, &unread);
}

/* The common prefix of names ----------------------------------------------------------------------------- */

int ps_common_prefix_key(const char *url, struct ps_strbuf *ret_key)
{
	const char *host = strstr(url, "://");

	if (!host)
		return -EINVAL;
	host += 3;
	size_t nhost = strcspn(host, "/?#");
	const char *path = host + nhost;

	ps_strbuf_reset(ret_key);
	ps_strbuf_addn(ret_key, host, nhost);
	return ps_url_decode(path, strcspn(path, "?#"), ret_key);
}

void ps_common_prefix_add(struct ps_common_prefix *common, const char *key)
{
	const char *slash = strrchr(key, '/');
	size_t n = slash ? (size_t)(slash - key) + 1 : 0;
	struct ps_strbuf *dir = &common->dir;

	if (!common->any) {
		common->any = true;
		ps_strbuf_addn(dir, key, n);
		return;
	}
	n = PS_MIN(n, dir->len);
	size_t same = 0, cut = 0;
	for (; same < n && dir->s[same] == key[same]; same++)
		if (key[same] == '/')
			cut = same + 1;
	if (dir->s) {
		dir->len = cut;
		dir->s[cut] = '\0';
	}
}

const char *ps_common_prefix_below(const struct ps_common_prefix *common, const char *key)
{
	return key + common->dir.len;
}

void ps_common_prefix_fini(struct ps_common_prefix *common)
{
	ps_strbuf_fini(&common->dir);
}
