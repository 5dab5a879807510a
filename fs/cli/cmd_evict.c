#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include "base/process.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "fuse/fuse.h"
#include "daemon/daemon.h"
#include "options/options.h"
#include "cli/walk.h"

struct evict {
	const char *mountpoint;
	uint64_t nfiles, nbytes, npinned; /* nfiles, nbytes: evicted; npinned: matching files that stay */
};

static int evict_file(void *arg, const char *path, uint64_t size)
{
	struct evict *e = arg;
	ps_autostrbuf struct ps_strbuf b = {0};
	uint64_t nbytes = 0;

	(void)size;
	ps_strbuf_addf(&b, "%s/%s", e->mountpoint, path);
	ps_autofree char *whole = ps_need(ps_strbuf_take(&b));
	if (!ps_walk_is(whole, "cached", "0")) {
		ps_autofd int fd = open(whole, O_RDONLY | O_CLOEXEC | O_NOCTTY);

		if (fd < 0 || ioctl(fd, PS_IOC_EVICT, &nbytes) < 0)
			return -errno;
	}
	e->nfiles += nbytes > 0;
	e->nbytes += nbytes;
	e->npinned += nbytes == 0 && ps_walk_is(whole, "pinned", "yes");
	return 0;
}

static int print(const struct evict *e)
{
	char size[PS_SIZE_TEXT_LEN];

	printf("%s evicted, %s", PS_COUNTED(e->nfiles, "file"), ps_size_format(e->nbytes, size));
	if (e->npinned > 0)
		printf("; %llu pinned %s kept", (unsigned long long)e->npinned,
		        e->npinned == 1 ? "file" : "files");
	putchar('\n');
	return fflush(stdout) ? PS_EXIT_FAILED : PS_EXIT_OK;
}

static int from_mount(struct evict *e, const char *arg, const char *const *globs, size_t nglobs)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};
	int rc = ps_mounts_lookup(arg, &mounts, &info, &err);

	if (rc == 0) {
		e->mountpoint = info->mountpoint;
		rc = ps_walk_mount(info->mountpoint, globs, nglobs, evict_file, e, &err);
	}
	return rc < 0 ? ps_cli_fail("evict", PS_EXIT_FAILED, "%s", err.text) : print(e);
}

static int count_pin(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes)
{
	struct evict *e = arg;

	(void)url;
	(void)nbytes;
	(void)cached_nbytes;
	e->npinned++;
	return 0;
}

static int from_cache(struct evict *e, const char *cache_dir, const char *const *globs, size_t nglobs)
{
	struct ps_store *store;
	int code = ps_open_unserved_store("evict", cache_dir, &store);

	if (code)
		return code;
	int rc = ps_store_evict(store, globs, nglobs, &e->nfiles, &e->nbytes);
	if (rc == 0)
		rc = ps_store_each_pin(store, globs, nglobs, count_pin, e);
	ps_store_close(store);
	if (rc < 0)
		return ps_cli_fail("evict", PS_EXIT_FAILED, "%s: %s", cache_dir, strerror(-rc));
	if (nglobs && e->nfiles + e->npinned == 0)
		return ps_cli_fail("evict", PS_EXIT_FAILED, "nothing in %s matches", cache_dir);
	return print(e);
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	const char *const *globs = (const char *const *)args;
	struct evict e = {0};

	if (o->cache_dir)
		return from_cache(&e, o->cache_dir, globs, (size_t)nargs);
	if (nargs < 1)
		return ps_cli_fail("evict", PS_EXIT_USAGE, "too few arguments; usage: penstock evict %s",
		        ps_cmd_evict.usage);
	return from_mount(&e, args[0], globs + 1, (size_t)nargs - 1);
}

const struct ps_opts ps_cmd_evict = {
        .command = "evict",
        .id = PS_CMD_EVICT,
        .usage = "MOUNTPOINT|--cache-dir DIR [GLOB...]",
        .about = "Drops files from the cache: those that match a GLOB, or all. Open files stay "
                 "readable.\n"
                 "With --cache-dir a GLOB is matched against the URL, or its last part.",
        .words = {{"cache-dir", "drop from this cache, which no mount may be using"}},
        .max = PS_ARGS_ANY,
        .run = run,
};
