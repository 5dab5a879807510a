#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "cli/commands.h"
#include "daemon/mounts.h"
#include "cli/option_scope.h"
#include "cli/warm.h"

#define JOBS_DEFAULT 8

struct warm {
	struct ps_mount_options mount;   /* first: the tables of options.h count from here */
	struct ps_mount_request request; /* its source alone */
	struct ps_warm_options options;
};

static struct ps_given *given_of(void *ctx)
{
	return &((struct warm *)ctx)->mount.given;
}

static const struct ps_opt options[] = {
        {"jobs", 'j', PS_OPT_COUNT, offsetof(struct warm, options.jobs), "N", "files at a time [8]",
                PS_OPT_CLI_ONLY},
        {"quiet", 'q', PS_OPT_FLAG, offsetof(struct warm, options.quiet), NULL, "no progress bar, no summary",
                PS_OPT_CLI_ONLY},
        {0},
};
static const struct ps_opts opts = {
        .command = "warm",
        .usage = "MOUNTPOINT|SOURCE [GLOB...] [OPTION...]",
        .about = "Fetches files into the cache: those that match a GLOB, or all. Goes on where an earlier "
                 "run ended.\n"
                 "With a SOURCE (https://..., s3://BUCKET/PREFIX/ ...) it fills the cache itself, and takes "
                 "the\n"
                 "options of cache and origin below.",
        .tables = {options, ps_options_source},
        .other = ps_options_generic,
        .given = given_of,
};

static volatile sig_atomic_t stop;

static void on_signal(int signo)
{
	(void)signo;
	stop = 1;
}

/* An argument with a scheme or an @ can only be a source; a path is the mount that is there, else a source.
 */
static int run(struct warm *w, char **argv, int nargs)
{
	const char *const *globs = (const char *const *)argv + 2;
	size_t nglobs = (size_t)nargs - 1;
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	struct ps_mounts mounts;

	if (!strstr(argv[1], "://") && argv[1][0] != '@') {
		if (ps_mounts_lookup(argv[1], &mounts, &info, &err) == 0) {
			int code = ps_options_without_source(&w->mount.given, info->mountpoint, &err) < 0
			                   ? ps_cli_fail("warm", PS_EXIT_USAGE, "%s", err.text)
			                   : ps_warm_mount(info, globs, nglobs, &w->options);

			ps_mounts_fini(&mounts);
			return code;
		}
		if (argv[1][strlen(argv[1]) - 1] != '/')
			return ps_cli_fail("warm", PS_EXIT_FAILED, "%s", err.text);
	}
	w->mount.foreground = true; /* logs to stderr */
	int rc = ps_request_add_source(&w->request, "", argv[1], &err);
	ps_source_wipe(argv[1]);
	if (rc == 0)
		rc = ps_options_in_vain(&w->mount.given, w->mount.given.n, w->request.sources, 1, &err);
	if (rc == 0)
		rc = ps_mount_options_finish(&w->mount, &err);
	if (rc < 0)
		return ps_cli_fail("warm", PS_EXIT_USAGE, "%s", err.text);
	return ps_warm_source(w->request.sources[0].source, globs, nglobs, &w->mount, &w->options);
}

int ps_cmd_warm(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = on_signal};
	struct warm w = {.options = {.jobs = JOBS_DEFAULT, .stop = &stop}};
	int nargs, code;

	ps_mount_options_init(&w.mount);
	if (ps_cli_begin(&opts, &w, argc, argv, 1, -1, &nargs, &code)) {
		argv[nargs + 1] = NULL;
		sigaction(SIGINT, &act, NULL);
		sigaction(SIGTERM, &act, NULL);
		code = run(&w, argv, nargs);
	}
	ps_mount_options_fini(&w.mount);
	ps_request_fini(&w.request);
	return code;
}
