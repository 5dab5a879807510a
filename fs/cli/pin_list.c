#include "cli/pin_list.h"

#include <errno.h>
#include <jansson.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/json.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "daemon/mounts.h"
#include "cli/walk.h"

#define STATS_TIMEOUT_MS 5000

struct list {
	const char *mountpoint; /* of the walk under way */
	json_t *files;          /* with --json, else NULL */
	uint64_t nfiles, nbytes, cached_nbytes;
	uint64_t most; /* pinned files that the cache of this mount has; none is left to be looked for after them */
	uint64_t found;
};

static int add(struct list *l, const char *path, const char *url, uint64_t nbytes, uint64_t cached_nbytes)
{
	char size[PS_SIZE_TEXT_LEN], state[16] = "cached";
	double share = nbytes ? 100.0 * (double)cached_nbytes / (double)nbytes : 100;

	l->nfiles++;
	l->nbytes += nbytes;
	l->cached_nbytes += cached_nbytes;
	if (!l->files) {
		if (cached_nbytes < nbytes)
			snprintf(state, sizeof state, "%.0f %%", share < 99 ? share : 99);
		printf("%9s  %6s  %s%s%s\n", ps_size_format(nbytes, size), state, path ? l->mountpoint : "", path ? "/" : "",
		        path ? path : url);
		return 0;
	}
	json_t *file = json_pack("{s:o, s:o, s:o, s:I, s:I}", "mountpoint",
	        path ? ps_json_lossy(l->mountpoint) : json_null(), "path", path ? ps_json_lossy(path) : json_null(), "url",
	        ps_json_lossy(url), "bytes", (json_int_t)nbytes, "cached_bytes", (json_int_t)cached_nbytes);
	return json_array_append_new(l->files, file) < 0 ? -ENOMEM : 0;
}

/* Of a list that was made without an error. */
static int finish(struct list *l, int code)
{
	char size[PS_SIZE_TEXT_LEN], cached[PS_SIZE_TEXT_LEN];

	if (l->files) {
		json_t *doc = json_pack("{s:O, s:I, s:I}", "files", l->files, "bytes", (json_int_t)l->nbytes, "cached_bytes",
		        (json_int_t)l->cached_nbytes);

		if (!doc || json_dumpf(doc, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF)
			code = PS_EXIT_FAILED;
		json_decref(doc);
		json_decref(l->files);
	} else if (l->nfiles == 0) {
		puts("nothing is pinned");
	} else {
		printf("%s pinned, %s, of which %s are in the cache\n", PS_COUNTED(l->nfiles, "file"),
		        ps_size_format(l->nbytes, size),
		        ps_size_format(l->cached_nbytes, cached));
	}
	return fflush(stdout) ? PS_EXIT_FAILED : code;
}

/* The value, NUL-terminated; *ret "" if there is none. */
static int attribute(const char *path, const char *name, char *ret, size_t room)
{
	ssize_t n = getxattr(path, name, ret, room - 1);

	if (n < 0 && errno != ENODATA)
		return -errno;
	ret[n < 0 ? 0 : n] = '\0';
	return 0;
}

static int each_file(void *arg, const char *path, uint64_t size)
{
	char pinned[8], cached[24], *url = NULL;
	struct list *l = arg;
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/%s", l->mountpoint, path);
	ps_autofree char *whole = ps_strbuf_take(&b);
	ps_autofree char *room = malloc(XATTR_SIZE_MAX + 1);
	if (!whole || !room)
		return -ENOMEM;
	int rc = attribute(whole, "user.penstock.pinned", pinned, sizeof pinned);
	if (rc < 0 || strcmp(pinned, "yes") != 0)
		return rc;
	rc = attribute(whole, "user.penstock.cached", cached, sizeof cached);
	if (rc == 0)
		rc = attribute(whole, "user.penstock.url", room, XATTR_SIZE_MAX + 1);
	url = room;
	if (rc == 0)
		rc = add(l, path, url, size, strtoull(cached, NULL, 10));
	l->found++;
	return rc == 0 && l->found == l->most ? -ECANCELED : rc;
}

/* How many there are tells when the rest need not be looked at. */
static int pinned_files(const struct ps_mount_info *info, uint64_t *ret)
{
	json_t *stats = NULL;
	int rc = ps_mounts_stats(info, STATS_TIMEOUT_MS, &stats);

	if (rc == 0)
		*ret = (uint64_t)json_integer_value(json_object_get(json_object_get(stats, "cache"), "pinned_objects"));
	json_decref(stats);
	return rc;
}

static int of_mount(struct list *l, const struct ps_mount_info *info, const char *const *globs, size_t nglobs)
{
	struct ps_error err = {0};
	int rc = pinned_files(info, &l->most);

	if (rc < 0)
		return ps_cli_fail("pin", PS_EXIT_FAILED, "%s: %s", info->mountpoint, ps_mounts_why_not(rc));
	l->mountpoint = info->mountpoint;
	l->found = 0;
	rc = l->most > 0 ? ps_walk_mount(info->mountpoint, globs, nglobs, each_file, l, &err) : 0;
	return rc < 0 && rc != -ECANCELED ? ps_cli_fail("pin", PS_EXIT_FAILED, "%s", err.text) : PS_EXIT_OK;
}

int ps_pin_list_mount(const char *arg, const char *const *globs, size_t nglobs, bool json)
{
	struct list l = {.files = json ? json_array() : NULL};
	const struct ps_mount_info *info = NULL;
	struct ps_error err = {0};
	struct ps_mounts mounts;
	int code = PS_EXIT_OK, rc = arg ? ps_mounts_lookup(arg, &mounts, &info, &err) : ps_mounts_read(NULL, false, &mounts);

	if (rc < 0) {
		json_decref(l.files);
		return ps_cli_fail("pin", PS_EXIT_FAILED, "%s", arg ? err.text : strerror(-rc));
	}
	for (size_t i = 0; i < mounts.n; i++)
		if (!info || &mounts.v[i] == info)
			code = of_mount(&l, &mounts.v[i], globs, nglobs) ? PS_EXIT_FAILED : code;
	ps_mounts_fini(&mounts);
	return finish(&l, code);
}

static int each_pin(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes)
{
	return add(arg, NULL, url, nbytes, cached_nbytes);
}

int ps_pin_list_cache(const char *cache_dir, const char *const *globs, size_t nglobs, bool json)
{
	struct list l = {.files = json ? json_array() : NULL};
	struct ps_store *store;
	int code = ps_open_unserved_store("pin", cache_dir, &store);

	if (code) {
		json_decref(l.files);
		return code;
	}
	int rc = ps_store_each_pin(store, globs, nglobs, each_pin, &l);
	ps_store_close(store);
	if (rc < 0)
		code = ps_cli_fail("pin", PS_EXIT_FAILED, "%s: %s", cache_dir, strerror(-rc));
	return finish(&l, code);
}
