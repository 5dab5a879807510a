/* penstock pin, unpin and evict: what stays in the cache, and what does not. */

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include "base/process.h"
#include "base/stats.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/walk.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"
#include "options/options.h"

#define STATS_TIMEOUT_MS 5000

struct pin {
	const char *command;
	unsigned long request; /* the ioctl that the walk in progress sends */
	uint64_t nfiles, nbytes;
	uint64_t npinned; /* of evict: matching files that stay */
};

static int each_file(void *arg, const char *file, const char *path, uint64_t size)
{
	struct pin *p = arg;
	bool evicts = p->request == PS_IOC_EVICT;
	uint64_t nbytes = 0;

	(void)path, (void)size;
	if (!(evicts && ps_walk_is(file, "cached", "0")) &&
	        !(p->request == PS_IOC_UNPIN && ps_walk_is(file, "pinned", "no"))) {
		ps_autofd int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);

		if (fd < 0 || ioctl(fd, p->request, &nbytes) < 0)
			return -errno;
	}
	p->nfiles += nbytes > 0;
	p->nbytes += nbytes;
	p->npinned += evicts && nbytes == 0 && ps_walk_is(file, "pinned", "yes");
	return 0;
}

static int refuse(const struct pin *p, uint64_t pinned, uint64_t limit)
{
	char a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN], c[PS_SIZE_TEXT_LEN];

	return ps_cli_fail(p->command, PS_EXIT_FAILED,
	        "%llu files take %s, %s are pinned already, and the cache holds %s: nothing was pinned",
	        (unsigned long long)p->nfiles, ps_size_format(p->nbytes, a), ps_size_format(pinned, b),
	        ps_size_format(limit, c));
}

static int print(const struct pin *p)
{
	char size[PS_SIZE_TEXT_LEN];

	printf("%s %s%s, %s", PS_COUNTED(p->nfiles, "file"), p->command,
	        p->request == PS_IOC_EVICT ? "ed" : "ned", ps_size_format(p->nbytes, size));
	if (p->npinned > 0)
		printf("; %llu pinned %s kept", (unsigned long long)p->npinned,
		        p->npinned == 1 ? "file" : "files");
	putchar('\n');
	return fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

/* Checks that all files fit, so that all or none are pinned (unless other processes pin at the same
 * time). */
static int check_room(struct pin *p, const struct ps_mount_info *info)
{
	json_t *stats = NULL;
	int rc = ps_mounts_stats(info, STATS_TIMEOUT_MS, &stats);

	if (rc < 0)
		return ps_cli_fail(
		        p->command, PS_EXIT_FAILED, "%s: %s", info->mountpoint, ps_mounts_why_not(rc));
	const json_t *cache = json_object_get(stats, "cache");
	uint64_t limit = (uint64_t)json_integer_value(json_object_get(cache, "limit_bytes"));
	uint64_t pinned = (uint64_t)json_integer_value(json_object_get(cache, "pinned_bytes"));
	json_decref(stats);
	return p->nbytes > limit - PS_MIN(pinned, limit) ? refuse(p, pinned, limit) : PS_EXIT_OK;
}

static int in_mount(struct pin *p, const char *arg, const char *const *globs, size_t nglobs)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};
	int rc = ps_mounts_lookup(arg, &mounts, &info, &err);

	if (rc == 0 && p->request == PS_IOC_PIN) {
		p->request = PS_IOC_PIN_NBYTES;
		rc = ps_walk_mount(info->mountpoint, globs, nglobs, each_file, p, &err);
		int code = rc == 0 ? check_room(p, info) : 0;
		if (code)
			return code;
		p->request = PS_IOC_PIN;
		p->nfiles = p->nbytes = 0;
	}
	if (rc == 0)
		rc = ps_walk_mount(info->mountpoint, globs, nglobs, each_file, p, &err);
	return rc < 0 ? ps_cli_fail(p->command, PS_EXIT_FAILED, "%s", err.text) : print(p);
}

static int count_pin(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes)
{
	struct pin *p = arg;

	(void)url, (void)nbytes, (void)cached_nbytes;
	p->npinned++;
	return 0;
}

static int in_cache(struct pin *p, const char *cache_dir, const char *const *globs, size_t nglobs)
{
	char size[PS_SIZE_TEXT_LEN];
	struct ps_store *store;
	int code = ps_open_unserved_store(p->command, cache_dir, &store), rc;

	if (code)
		return code;
	if (p->request == PS_IOC_EVICT) {
		rc = ps_store_evict(store, globs, nglobs, &p->nfiles, &p->nbytes);
		if (rc == 0)
			rc = ps_store_each_pin(store, globs, nglobs, count_pin, p);
	} else {
		rc = ps_store_pin(store, globs, nglobs, p->request == PS_IOC_PIN, &p->nfiles, &p->nbytes);
	}
	ps_store_close(store);
	if (rc == -ENOSPC && p->request == PS_IOC_PIN)
		return ps_cli_fail(p->command, PS_EXIT_FAILED,
		        "%s: nothing was pinned: all pinned files would take %s, more than the cache can "
		        "hold",
		        cache_dir, ps_size_format(p->nbytes, size));
	if (rc < 0)
		return ps_cli_fail(p->command, PS_EXIT_FAILED, "%s: %s", cache_dir, strerror(-rc));
	if (nglobs && p->nfiles + p->npinned == 0)
		return ps_cli_fail(p->command, PS_EXIT_FAILED, "nothing in %s matches", cache_dir);
	return print(p);
}

/* pin --list --------------------------------------------------------------------------------------------- */

struct list {
	const char *mountpoint; /* of the walk in progress */
	json_t *files;          /* with --json, else NULL */
	uint64_t nfiles, nbytes, cached_nbytes;
	/* the number of pinned files in the mount's cache: the walk stops when that many are found */
	uint64_t most;
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
			snprintf(state, sizeof(state), "%.0f %%", share < 99 ? share : 99);
		ps_autostrbuf struct ps_strbuf where = {0};

		ps_strbuf_add_printable(&where, path ? l->mountpoint : "");
		ps_strbuf_add(&where, path ? "/" : "");
		ps_strbuf_add_printable(&where, path ? path : url);
		printf("%9s  %6s  %s\n", ps_size_format(nbytes, size), state,
		        (char *)ps_need(where.failed ? NULL : where.s));
		return 0;
	}
	json_t *file = json_pack("{s:o, s:o, s:o, s:I, s:I}", "mountpoint",
	        path ? ps_json_lossy(l->mountpoint) : json_null(), "path",
	        path ? ps_json_lossy(path) : json_null(), "url", ps_json_lossy(url), "bytes",
	        (json_int_t)nbytes, "cached_bytes", (json_int_t)cached_nbytes);
	json_array_append_new(l->files, ps_need(file));
	return 0;
}

/* Prints a list that was made without an error. */
static int finish(struct list *l, int code)
{
	char size[PS_SIZE_TEXT_LEN], cached[PS_SIZE_TEXT_LEN];

	if (l->files) {
		json_t *doc = json_pack("{s:O, s:I, s:I}", "files", l->files, "bytes", (json_int_t)l->nbytes,
		        "cached_bytes", (json_int_t)l->cached_nbytes);

		ps_autofree char *json = doc ? ps_json_dump(doc, JSON_COMPACT) : NULL;

		if (!json || puts(json) == EOF)
			code = PS_EXIT_FAILED;
		json_decref(doc);
		json_decref(l->files);
	} else if (l->nfiles == 0) {
		puts("nothing is pinned");
	} else {
		printf("%s pinned, %s, of which %s are in the cache\n", PS_COUNTED(l->nfiles, "file"),
		        ps_size_format(l->nbytes, size), ps_size_format(l->cached_nbytes, cached));
	}
	return fflush(stdout) ? PS_EXIT_FAILED : code;
}

/* Reads an attribute, NUL-terminated; ret is "" if the file has none. */
static int attribute(const char *path, const char *name, char *ret, size_t room)
{
	ssize_t n = getxattr(path, name, ret, room - 1);

	if (n < 0 && errno != ENODATA)
		return -errno;
	ret[n < 0 ? 0 : n] = '\0';
	return 0;
}

static int list_file(void *arg, const char *file, const char *path, uint64_t size)
{
	char pinned[8], cached[24];
	struct list *l = arg;
	ps_autofree char *url = ps_need(malloc(XATTR_SIZE_MAX + 1));
	int rc = attribute(file, "user.penstock.pinned", pinned, sizeof(pinned));

	if (rc < 0 || strcmp(pinned, "yes") != 0)
		return rc;
	rc = attribute(file, "user.penstock.cached", cached, sizeof(cached));
	if (rc == 0)
		rc = attribute(file, "user.penstock.url", url, XATTR_SIZE_MAX + 1);
	if (rc == 0)
		rc = add(l, path, url, size, strtoull(cached, NULL, 10));
	l->found++;
	return rc == 0 && l->found == l->most ? -ECANCELED : rc;
}

/* The number of pinned files in the cache: after that many the walk can stop. */
static int pinned_files(const struct ps_mount_info *info, uint64_t *ret)
{
	json_t *stats = NULL;
	int rc = ps_mounts_stats(info, STATS_TIMEOUT_MS, &stats);

	if (rc == 0)
		*ret = (uint64_t)json_integer_value(
		        json_object_get(json_object_get(stats, "cache"), "pinned_objects"));
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
	rc = l->most > 0 ? ps_walk_mount(info->mountpoint, globs, nglobs, list_file, l, &err) : 0;
	return rc < 0 && rc != -ECANCELED ? ps_cli_fail("pin", PS_EXIT_FAILED, "%s", err.text) : PS_EXIT_OK;
}

static int pin_list_mount(const char *arg, const char *const *globs, size_t nglobs, bool json)
{
	struct list l = {.files = json ? json_array() : NULL};
	const struct ps_mount_info *info = NULL;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};
	int code = PS_EXIT_OK,
	    rc = arg ? ps_mounts_lookup(arg, &mounts, &info, &err) : ps_mounts_read(NULL, false, &mounts);

	if (rc < 0) {
		json_decref(l.files);
		return ps_cli_fail("pin", PS_EXIT_FAILED, "%s", arg ? err.text : strerror(-rc));
	}
	/* Without an argument, not those of other users, which may not answer. */
	for (size_t i = 0; i < mounts.n; i++)
		if (info ? &mounts.v[i] == info
		         : mounts.v[i].uid == geteuid() || mounts.v[i].uid == (uid_t)-1)
			code = of_mount(&l, &mounts.v[i], globs, nglobs) ? PS_EXIT_FAILED : code;
	return finish(&l, code);
}

static int each_pin(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes)
{
	return add(arg, NULL, url, nbytes, cached_nbytes);
}

static int pin_list_cache(const char *cache_dir, const char *const *globs, size_t nglobs, bool json)
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

/* The commands ------------------------------------------------------------------------------------------- */

static int run_request(
        const struct ps_opts *opts, unsigned long request, struct ps_mount_options *o, char **args, int nargs)
{
	const char *const *globs = (const char *const *)args;
	struct pin p = {.command = opts->command, .request = request};
	size_t n = (size_t)nargs;

	if (o->json && !o->list)
		return ps_cli_fail(opts->command, PS_EXIT_USAGE, "option json: it is for --list; add that");
	if (o->list && o->cache_dir)
		return pin_list_cache(o->cache_dir, globs, n, o->json);
	if (o->list)
		return pin_list_mount(n ? args[0] : NULL, globs + (n > 0), n - (n > 0), o->json);
	if (o->cache_dir)
		return in_cache(&p, o->cache_dir, globs, n);
	if (n < 1)
		return ps_cli_fail(opts->command, PS_EXIT_USAGE, "too few arguments; usage: penstock %s %s",
		        opts->command, opts->usage);
	return in_mount(&p, args[0], globs + 1, n - 1);
}

static int run_pin(struct ps_mount_options *o, char **args, int nargs)
{
	return run_request(&ps_cmd_pin, PS_IOC_PIN, o, args, nargs);
}

static int run_unpin(struct ps_mount_options *o, char **args, int nargs)
{
	return run_request(&ps_cmd_unpin, PS_IOC_UNPIN, o, args, nargs);
}

static int run_evict(struct ps_mount_options *o, char **args, int nargs)
{
	return run_request(&ps_cmd_evict, PS_IOC_EVICT, o, args, nargs);
}

const struct ps_opts ps_cmd_pin = {
        .command = "pin",
        .id = PS_CMD_PIN,
        .usage = "MOUNTPOINT|--cache-dir DIR [GLOB...] [--list [--json]]",
        .about = "Keeps files in the cache, whether they are cached already or not: those that match a GLOB, "
                 "or all. Fetches\n"
                 "nothing. Fails if the pinned files together would exceed the cache. With --cache-dir, a "
                 "GLOB is compared\n"
                 "with the URL, or with its last part.",
        .words = {{"cache-dir", "pin files of this cache, which no mount may use meanwhile"},
                {"json", "with --list: print JSON"}},
        .max = PS_ARGS_ANY,
        .run = run_pin,
};

const struct ps_opts ps_cmd_unpin = {
        .command = "unpin",
        .id = PS_CMD_UNPIN,
        .usage = "MOUNTPOINT|--cache-dir DIR [GLOB...]",
        .about = "Allows pinned files to be evicted again: those that match a GLOB, or all. Evicts nothing "
                 "now.\n"
                 "With --cache-dir, a GLOB is compared with the URL, or with its last part.",
        .words = {{"cache-dir", "unpin files of this cache, which no mount may use meanwhile"}},
        .max = PS_ARGS_ANY,
        .run = run_unpin,
};

const struct ps_opts ps_cmd_evict = {
        .command = "evict",
        .id = PS_CMD_EVICT,
        .usage = "MOUNTPOINT|--cache-dir DIR [GLOB...]",
        .about = "Removes files from the cache: those that match a GLOB, or all. Programs can continue to "
                 "read open files.\n"
                 "With --cache-dir, a GLOB is compared with the URL, or with its last part.",
        .words = {{"cache-dir", "evict from this cache, which no mount may use meanwhile"}},
        .max = PS_ARGS_ANY,
        .run = run_evict,
};
