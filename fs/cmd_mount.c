#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "commands.h"
#include "daemon.h"
#include "mountpoint.h"
#include "mounts.h"
#include "session.h"

static const struct ps_opts opts = {
        .command = "mount",
        .usage = "SOURCE MOUNTPOINT [OPTION...]",
        .about = "Shows the files of SOURCE below the folder MOUNTPOINT, read-only, through a cache.\n"
                 "SOURCE: a URL with {000..999} braces, a URL ending in / (a listing), a manifest (.txt, or "
                 "@FILE),\n"
                 "hf://datasets/OWNER/NAME, file:///DIR/ or /DIR/. penstock-mount(1) tells more.",
        .tables = {ps_options_source, ps_options_mount},
        .other = ps_options_generic,
};

struct mount {
	struct ps_mount_options options;
	const char *source, *canonical; /* canonical: without secrets */
	char *mountpoint;
	struct ps_daemon daemon;
};

static void mount_ready(void *arg)
{
	struct mount *m = arg;

	ps_log_info("mount: %s on %s", m->canonical, m->mountpoint);
	ps_daemon_ready(&m->daemon);
}

/* "in use by pid N" is the store's story; which mount that is, is ours. */
static void name_server(struct ps_error *err, const char *cache_dir)
{
	ps_autofree char *mountpoint = err->err == EBUSY ? ps_mounts_of_cache(cache_dir) : NULL;
	char old[PS_ERROR_TEXT_LEN];

	if (!mountpoint)
		return;
	memcpy(old, err->text, sizeof old);
	ps_error_set(err, EBUSY, "%.300s (it serves %s)", old, mountpoint);
}

/* With cache and dataset open: the life of the mount. */
static int serve_dataset(
        struct mount *m, struct ps_cache *cache, struct ps_dataset *dataset, struct ps_error *err)
{
	const struct ps_session_events events = {.ready = mount_ready, .arg = m};
	struct ps_fs fs;

	ps_fs_init(&fs, cache, dataset, &m->options, m->mountpoint);
	int rc = ps_session_run(&fs, &events, err);
	ps_dataset_detach(dataset);
	ps_cache_close(cache);
	/* Now all that waited has been answered, and the descriptor may go. */
	if (ps_pending_drain(&fs.pending, false, 1000)) {
		ps_session_free(&fs);
		ps_fs_fini(&fs);
	} else {
		ps_log_error("mount: %s: requests unanswered at the end", m->mountpoint);
	}
	ps_log_info("mount: %s: unmounted", m->mountpoint);
	return rc;
}

static int serve(struct mount *m, struct ps_error *err)
{
	struct ps_cache_options cache_options;
	struct ps_dataset_options dataset_options;
	struct ps_dataset *dataset;
	struct ps_cache *cache;
	const char *log = m->options.log ? m->options.log : m->options.foreground ? "stderr" : "syslog";

	int rc = ps_log_open(log, m->options.log_level, "penstock", err);
	if (rc == 0)
		rc = ps_mount_options_cache(&m->options, &cache_options, err);
	if (rc == 0)
		rc = ps_mountpoint_apart(m->mountpoint, m->source, m->options.cache_dir, err);
	if (rc < 0)
		return rc;
	rc = ps_cache_open(&cache_options, &cache, err);
	if (rc < 0) {
		name_server(err, m->options.cache_dir);
		return rc;
	}
	ps_mount_options_dataset(&m->options, &dataset_options);
	rc = ps_dataset_attach(cache, m->source, &dataset_options, &dataset, err);
	if (rc < 0)
		dataset = NULL;
	else if (!ps_daemon_commit(&m->daemon))
		rc = ps_error_set(err, ECANCELED, "interrupted");
	else
		rc = ps_session_signals(err);
	if (rc < 0) {
		ps_dataset_detach(dataset);
		ps_cache_close(cache);
		return rc;
	}
	return serve_dataset(m, cache, dataset, err);
}

static int run(struct mount *m, const char *source, const char *mountpoint)
{
	struct ps_error err = {0};

	if (ps_mount_options_finish(&m->options, &err) < 0)
		return ps_cli_fail("mount", PS_EXIT_USAGE, "%s", err.text);
	ps_autofree char *absolute = ps_source_absolute(source);
	if (!absolute)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "out of memory");
	m->source = absolute;
	/* A source that makes no sense is told of before anything is touched. */
	ps_autofree char *canonical = ps_source_canonical(absolute, &err);
	if (!canonical)
		return ps_cli_fail("mount", PS_EXIT_USAGE, "%s", err.text);
	m->canonical = canonical;
	if (ps_mountpoint_check(mountpoint, m->options.nonempty, &m->mountpoint, &err) < 0)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text);
	if (ps_daemon_start(&m->daemon, "mount", !m->options.foreground, &err) < 0)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text);
	if (serve(m, &err) < 0)
		return ps_daemon_failed(&m->daemon, "mount", err.text);
	return PS_EXIT_OK;
}

static int mount_with(struct mount *m, char **args)
{
	ps_autofree char *source = strdup(args[1]);

	if (!source)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "out of memory");
	ps_source_wipe(args[1]);
	int code = run(m, source, args[2]);
	explicit_bzero(source, strlen(source));
	free(m->mountpoint);
	return code;
}

int ps_cmd_mount(int argc, char **argv)
{
	struct mount m = {0};
	int nargs, code;

	ps_mount_options_init(&m.options);
	if (ps_cli_begin(&opts, &m.options, argc, argv, 2, 2, &nargs, &code))
		code = mount_with(&m, argv);
	ps_mount_options_fini(&m.options);
	return code;
}

/* mount.penstock SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]: mount(8)'s own letters,
 * among which -f means "only pretend". */
int ps_cmd_mount_helper(int argc, char **argv)
{
	struct mount m = {0};
	struct ps_error err = {0};
	bool fake = false;
	int nargs = 0, code = PS_EXIT_OK, c;

	ps_mount_options_init(&m.options);
	m.options.lenient = true;
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		puts("Usage: mount.penstock SOURCE MOUNTPOINT [-o OPTION[=VALUE],...]\n\n"
		     "What mount -t penstock runs. penstock mount --help lists the options.");
		ps_mount_options_fini(&m.options);
		return PS_EXIT_OK;
	}
	opterr = 0;
	while ((c = getopt(argc, argv, "sfnvN:o:t:")) != -1) {
		if (c == 'f') {
			fake = true;
		} else if (c == 'o') {
			if (ps_opts_parse_list(&opts, &m.options, optarg, &err) < 0)
				code = ps_cli_fail("mount", PS_EXIT_USAGE, "%s", err.text);
			if (ps_opts_list_has_secret(&opts, optarg))
				ps_cli_wipe(optarg);
		} else if (c == 'N' || c == '?') {
			code = ps_cli_fail(
			        "mount", PS_EXIT_USAGE, "unknown option -%c", c == '?' ? optopt : c);
		}
		if (code)
			break;
	}
	nargs = argc - optind;
	if (!code && nargs != 2)
		code = ps_cli_fail(
		        "mount", PS_EXIT_USAGE, "usage: mount.penstock SOURCE MOUNTPOINT [-o OPTION,...]");
	if (!code && !fake)
		code = mount_with(&m, argv + optind - 1);
	ps_mount_options_fini(&m.options);
	return code;
}
