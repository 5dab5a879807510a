#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "daemon/daemon.h"
#include "options/options.h"
#include "base/progress.h"

static _Atomic bool stop;

static void on_signal(int signo)
{
	(void)signo;
	stop = true;
}

static void show(void *arg, uint64_t done, uint64_t total)
{
	ps_progress_update(arg, done, total, "");
}

static int print(const struct ps_mount_options *o, const struct ps_verify_result *r)
{
	bool bad = r->bad_blocks || r->missing_files || r->bad_objects;

	if (o->json)
		printf("{\"objects\": %llu, \"blocks\": %llu, \"bytes\": %llu, \"bad_blocks\": %llu, "
		       "\"missing_files\": %llu, \"bad_objects\": %llu}\n",
		        (unsigned long long)r->objects, (unsigned long long)r->blocks,
		        (unsigned long long)r->nbytes, (unsigned long long)r->bad_blocks,
		        (unsigned long long)r->missing_files, (unsigned long long)r->bad_objects);
	else
		printf("%s, %s, %s checked: %s, %s, %s (by the origin's checksum)%s\n",
		        PS_COUNTED(r->objects, "object"), PS_COUNTED(r->blocks, "block"),
		        PS_COUNTED(r->nbytes, "byte"), PS_COUNTED(r->bad_blocks, "bad block"),
		        PS_COUNTED(r->missing_files, "missing file"),
		        PS_COUNTED(r->bad_objects, "bad object"),
		        bad ? "; bad data was discarded, and is fetched again when it is read" : "");
	return fflush(stdout) || bad ? PS_EXIT_FAILED : PS_EXIT_OK;
}

int ps_open_unserved_store(const char *command, const char *cache_dir, struct ps_store **ret)
{
	const struct ps_store_options store_options = {.dir = cache_dir, .must_exist = true};
	struct ps_error err = {0};
	int rc = ps_store_open(&store_options, ret, &err);

	if (rc == 0)
		return PS_EXIT_OK;
	ps_autofree char *mountpoint = rc == -EBUSY ? ps_mounts_of_cache(cache_dir) : NULL;
	if (mountpoint)
		return ps_cli_fail(command, PS_EXIT_FAILED,
		        "the cache %s is served by the mount on %s; unmount it first", cache_dir, mountpoint);
	return ps_cli_fail(command, PS_EXIT_FAILED, "%s", err.text);
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	const struct sigaction act = {.sa_handler = on_signal};
	struct ps_verify_result result = {0};
	struct ps_progress progress;
	struct ps_error err = {0};
	struct ps_store *store;

	(void)args, (void)nargs;
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	if (!o->cache_dir)
		o->cache_dir = ps_cache_dir_default(&err);
	if (!o->cache_dir)
		return ps_cli_fail("verify", PS_EXIT_FAILED, "%s", err.text);
	int code = ps_open_unserved_store("verify", o->cache_dir, &store);
	if (code)
		return code;
	ps_progress_init(&progress, !o->json, 0);
	int rc = ps_store_verify(store, show, &progress, &stop, &result);
	ps_progress_end(&progress);
	if (rc == -ECANCELED)
		code = ps_cli_fail("verify", PS_EXIT_FAILED, "interrupted");
	else if (rc < 0)
		code = ps_cli_fail("verify", PS_EXIT_FAILED, "%s: %s", o->cache_dir, strerror(-rc));
	else
		code = print(o, &result);
	ps_store_close(store);
	return code;
}

const struct ps_opts ps_cmd_verify = {
        .command = "verify",
        .id = PS_CMD_VERIFY,
        .usage = "[OPTION...]",
        .about =
                "Reads every cached block and compares it with its checksum. Bad blocks are discarded, and "
                "fetched again when\n"
                "they are read. Exits with status 1 if there were any. No mount may use the cache meanwhile.",
        .words = {{"cache-dir", "the cache [that of penstock mount]"}},
        .run = run,
};
