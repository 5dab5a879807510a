#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/conf_file.h"
#include "daemon/daemon.h"

/* How long to wait while a daemon holds the lock of the cache but cannot be joined, because it is just
 * starting or ending. */
#define BUSY_MS 10000
#define RETRY_MS 20

struct mount {
	struct ps_mount_options *options;
	struct ps_mount_request request;
	struct ps_daemonize daemonize;
	char *unnamed; /* why the first argument is not a name in penstock.conf(5); NULL: it cannot be one */
	bool logs;     /* the log is open */
};

static void mount_ready(void *arg)
{
	struct mount *m = arg;

	ps_daemonize_ready(&m->daemonize);
}

/* The store reports "in use by pid N"; this adds the mountpoint. */
static void name_server(struct ps_error *err, const char *cache_dir)
{
	ps_autofree char *mountpoint = err->err == EBUSY ? ps_mounts_of_cache(cache_dir) : NULL;
	char old[PS_ERROR_TEXT_LEN];

	if (!mountpoint)
		return;
	memcpy(old, err->text, sizeof(old));
	ps_error_set(err, EBUSY, "%.300s (it serves %s)", old, mountpoint);
}

static int check_places(struct mount *m, struct ps_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < m->request.nsources; i++)
		rc = ps_mountpoint_apart(
		        m->request.mountpoint, m->request.sources[i].source, m->options->cache_dir, err);
	return rc;
}

/* For a mount with an owner (--owner FD: it ends with that socket), if there is no mount to join: makes the
 * folder to mount on. The folder's lock is released with the inherited descriptors, as soon as the mount is
 * ready. */
static int make_place(void *arg, struct ps_error *err)
{
	struct mount *m = arg;
	int lock_fd;

	if (m->request.mountpoint)
		return 0;
	ps_autofree char *canonical = ps_source_canonical(m->request.sources[0].source, err);
	if (!canonical)
		return -err->err;
	int rc = ps_mountpoint_make(canonical, &m->request.mountpoint, &lock_fd, err);
	if (rc < 0)
		return rc;
	ps_daemonize_let_go_of(&m->daemonize, lock_fd);
	return check_places(m, err);
}

static int owner_of(const struct mount *m)
{
	return m->options->owner ? (int)m->options->owner : -1;
}

static int join(struct mount *m, struct ps_error *err)
{
	const struct ps_control_mount_options options = {.owner = owner_of(m),
	        .allow_other = m->options->allow_other,
	        .flags = m->options->mount_flags,
	        .security = m->options->security,
	        .stay = m->options->foreground,
	        .place = make_place,
	        .ready = mount_ready,
	        .arg = m};

	return ps_control_mount(m->options->cache_dir, &m->request, &options, err);
}

static int serve(struct mount *m, int *ret_exit, struct ps_error *err)
{
	int keeper = -1;
	const char *log = m->options->log ? m->options->log : m->options->foreground ? "stderr" : "syslog";
	int rc = m->logs ? 0 : ps_log_open(log, m->options->log_level, "penstock", err);

	m->logs = rc == 0;
	if (rc == 0 && !m->options->no_keeper)
		rc = ps_keeper_begin(&m->daemonize, m->options, owner_of(m), &keeper, err);
	if (rc < 0)
		return rc;
	const struct ps_daemon_options options = {.options = m->options,
	        .request = m->options->serve ? NULL : &m->request,
	        .daemonize = &m->daemonize,
	        .keeper = keeper,
	        .owner = owner_of(m)};
	rc = ps_daemon_run(&options, ret_exit, err);
	if (rc == -EBUSY && keeper >= 0)
		ps_keeper_busy(keeper, err);
	return rc;
}

/* Joins the daemon of the cache, or becomes it. Other processes may try the same at this moment. */
static int join_or_serve(struct mount *m, int *ret_exit, struct ps_error *err)
{
	uint64_t until_ns = ps_clock_mono_ns() + BUSY_MS * PS_NS_PER_MS;

	for (;;) {
		*err = (struct ps_error){0};
		/* as a client, this process ends together with its parent, which requested the mount */
		ps_daemonize_tie(&m->daemonize, true);
		int rc = join(m, err);
		ps_daemonize_tie(&m->daemonize, false);

		if (rc != -ENOENT || err->err || (rc = make_place(m, err)) < 0)
			return rc;
		rc = serve(m, ret_exit, err);
		if (rc != -EBUSY)
			return rc;
		if (ps_clock_mono_ns() > until_ns || ps_daemonize_abandoned(&m->daemonize)) {
			name_server(err, m->options->cache_dir);
			return rc;
		}
		poll(NULL, 0, RETRY_MS);
	}
}

static int add_source(struct mount *m, char *arg, struct ps_error *err)
{
	ps_autofree char *name = NULL;
	size_t n;
	bool named = ps_source_has_name(arg, &n);

	name = ps_need(named ? strndup(arg, n) : strdup(""));
	return ps_request_add_source(&m->request, name, named ? arg + n + 1 : arg, err);
}

/* Prints the error. Out of memory is not a usage error. */
static int refuse(const struct ps_error *err)
{
	return ps_cli_fail("mount", err->err == ENOMEM ? PS_EXIT_FAILED : PS_EXIT_USAGE, "%s", err->text);
}

/* Mounts the sources of the request. mountpoint NULL: the mount has an owner. */
static int mount_request(struct mount *m, const char *mountpoint)
{
	struct ps_error err = {0};
	int code = PS_EXIT_OK, rc;

	ps_privileges_no_core();
	if (ps_mount_options_finish(m->options, &err) < 0 ||
	        ps_request_take_options(&m->request, m->options, &err) < 0 ||
	        ps_request_check(&m->request, &err) < 0)
		return refuse(&err);
	rc = mountpoint ? ps_mountpoint_check(mountpoint, m->options->nonempty, &m->request.mountpoint, &err)
	                : ps_request_take_view(&m->request, &err);
	if (rc < 0 || ps_mount_options_cache_dir(m->options, &err) < 0 ||
	        (mountpoint && check_places(m, &err) < 0))
		return ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text);
	if (ps_daemonize_start(&m->daemonize, "mount", !m->options->foreground, &err) < 0)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text);
	ps_environment_forget();
	if (join_or_serve(m, &code, &err) < 0)
		return ps_daemonize_failed(&m->daemonize, "mount", err.text);
	return code;
}

/* Becomes the daemon of the cache, for the mounts that other commands make. */
static int serve_cache(struct mount *m)
{
	struct ps_error err = {0};
	int code = PS_EXIT_OK;

	m->options->foreground = true;
	ps_privileges_no_core();
	if (ps_mount_options_finish(m->options, &err) < 0)
		return refuse(&err);
	if (ps_mount_options_cache_dir(m->options, &err) < 0 ||
	        ps_daemonize_start(&m->daemonize, "mount", false, &err) < 0)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text);
	ps_environment_forget();
	int rc = serve(m, &code, &err);
	if (rc == -EBUSY)
		name_server(&err, m->options->cache_dir);
	return rc < 0 ? ps_cli_fail("mount", PS_EXIT_FAILED, "%s", err.text) : code;
}

/* Mounts a section of penstock.conf(5); mountpoint NULL: the section's. */
static int mount_section(struct mount *m, const struct ps_conf *conf, const struct ps_conf_section *section,
        const char *mountpoint)
{
	struct ps_conf_mount found = {0};
	struct ps_error err = {0};
	size_t ngiven = m->options->given.n;

	if (ps_conf_apply(conf, section, m->options, &m->request, &found, &err) < 0)
		return refuse(&err);
	ps_autofree char *where = found.mountpoint;
	if (ps_options_check_sources(
	            &m->options->given, ngiven, m->request.sources, m->request.nsources, &err) < 0)
		return refuse(&err);
	if (!mountpoint && !where)
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "%s:%u: [%s] has no mountpoint; name one: penstock mount %s "
		        "MOUNTPOINT",
		        conf->path, section->line, section->name, section->name);
	return mount_request(m, mountpoint ? mountpoint : where);
}

/* If name is a section of the configuration, mounts it, sets *ret_code and returns true. must: the argument
 * can only be such a name, so an unknown name is reported, and the result is true, too. */
static bool mount_by_name(struct mount *m, const char *name, const char *mountpoint, bool must, int *ret_code)
{
	struct ps_conf conf = {0};
	struct ps_error err = {0};

	if (!ps_conf_is_name(name)) {
		if (must)
			*ret_code = ps_cli_fail("mount", PS_EXIT_USAGE,
			        "too few arguments; usage: penstock mount %s", ps_cmd_mount.usage);
		return must;
	}
	int rc = ps_conf_read(m->options->config, &conf, &err);
	if (rc == -ENOENT && !must && !m->options->config) {
		m->unnamed = ps_need(strdup(err.text));
		return false;
	}
	if (rc == -ENOENT && !m->options->config && !getenv("PENSTOCK_CONFIG"))
		ps_error_set(&err, ENOENT,
		        "there is no mount named %s: no penstock.conf in ~/.config or /etc; to mount a "
		        "source: "
		        "penstock mount SOURCE MOUNTPOINT",
		        name);
	else if (rc == -ENOENT)
		ps_error_prefix(&err, rc, "there is no mount named %s", name);
	if (rc < 0) {
		*ret_code =
		        ps_cli_fail("mount", rc == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED, "%s", err.text);
		return true;
	}
	const struct ps_conf_section *section = ps_conf_find(&conf, name);
	bool found = section && ps_conf_is_mount(section);
	if (!found)
		ps_conf_no_such(&conf, name, &err);
	if (found)
		*ret_code = mount_section(m, &conf, section, mountpoint);
	else if (must)
		*ret_code = refuse(&err);
	else
		m->unnamed = ps_need(strdup(err.text));
	ps_conf_fini(&conf);
	return found || must;
}

static bool is_mounted(const char *mountpoint)
{
	struct ps_mounts mounts;
	ps_autofree char *path = NULL;
	json_t *stats = NULL;

	if (!mountpoint || ps_mounts_resolve(mountpoint, &path, NULL) < 0 ||
	        ps_mounts_read(NULL, false, &mounts) < 0)
		return false;
	const struct ps_mount_info *info = ps_mounts_find(&mounts, path);
	bool alive = info && ps_mounts_stats(info, PS_TIMED_TIMEOUT_MS, &stats) == 0;
	json_decref(stats);
	ps_mounts_fini(&mounts);
	return alive;
}

/* Mounts in a child process, since mounting ends the process. */
static int mount_in_child(const struct ps_conf *conf, const struct ps_conf_section *section)
{
	int status = 0;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct ps_mount_options o;
		struct mount own = {.options = &o};

		ps_mount_options_init(&o);
		_exit(mount_section(&own, conf, section, NULL));
	}
	if (pid < 0)
		return ps_cli_fail("mount", PS_EXIT_FAILED, "fork: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : PS_EXIT_FAILED;
}

/* Mounts every section of the configuration, except those with auto = no and those that are mounted already;
 * continues when one fails. */
static int mount_all(struct mount *m)
{
	struct ps_conf conf = {0};
	struct ps_error err = {0};
	int code = PS_EXIT_OK;

	if (m->options->given.n > 1 + (m->options->config != NULL))
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "--all takes no options but --config; write them to [defaults]");
	int rc = ps_conf_read(m->options->config, &conf, &err);
	if (rc < 0)
		return ps_cli_fail("mount", rc == -EINVAL ? PS_EXIT_USAGE : PS_EXIT_FAILED, "%s", err.text);
	for (size_t i = 0; i < conf.n; i++) {
		struct ps_mount_options o;
		struct ps_mount_request request = {0};
		struct ps_conf_mount found = {0};

		if (!ps_conf_is_mount(&conf.v[i]))
			continue;
		ps_mount_options_init(&o);
		err = (struct ps_error){0};
		rc = ps_conf_apply(&conf, &conf.v[i], &o, &request, &found, &err);
		int one = PS_EXIT_OK;
		if (rc < 0)
			one = refuse(&err);
		else if (found.automatic && !is_mounted(found.mountpoint))
			one = mount_in_child(&conf, &conf.v[i]);
		code = code ? code : one;
		free(found.mountpoint);
		ps_mount_options_fini(&o);
		ps_request_fini(&request);
	}
	ps_conf_fini(&conf);
	return code;
}

/* The first nargs arguments are sources. An invalid source is reported before anything is changed. */
static int run_sources(struct mount *m, char **args, int nargs, const char *mountpoint)
{
	struct ps_error err = {0};
	int rc = 0;

	for (int i = 0; rc == 0 && i < nargs; i++) {
		rc = add_source(m, args[i], &err);
		ps_source_wipe(args[i]);
	}
	if (rc < 0 && m->unnamed && err.err != ENOMEM)
		return ps_cli_fail("mount", PS_EXIT_USAGE, "%s, nor a mount of penstock.conf(5): %s",
		        err.text, m->unnamed);
	if (rc == 0)
		rc = ps_options_check_sources(&m->options->given, m->options->given.n, m->request.sources,
		        m->request.nsources, &err);
	return rc < 0 ? refuse(&err) : mount_request(m, mountpoint);
}

/* args: SOURCE... Refuses an owner that is not a socket, since the daemon could not notice its end. */
static int mount_owned(struct mount *m, char **args, int nargs)
{
	int fd = (int)m->options->owner, domain = 0;
	socklen_t len = sizeof(domain);

	if (nargs < 1)
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "too few arguments; usage: penstock mount --owner FD SOURCE...");
	if (m->options->foreground || m->options->nonempty || m->options->mount_flags || m->options->security)
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "--owner cannot be combined with -f, --nonempty and options such as noexec: others "
		        "may join the mount");
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX ||
	        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "option owner: descriptor %d is not one end of a socketpair", fd);
	return run_sources(m, args, nargs, NULL);
}

/* The shell has made several arguments of one. */
static const char quote_it[] = ": quote a URL with braces, as in 'https://HOST/x-{000..127}.tar'";

/* args: SOURCE... MOUNTPOINT, or NAME [MOUNTPOINT]. */
static int mount_with(struct mount *m, char **args, int nargs)
{
	size_t n;
	int code = PS_EXIT_USAGE;

	if (m->options->all)
		return nargs ? ps_cli_fail("mount", PS_EXIT_USAGE, "--all takes no arguments") : mount_all(m);
	if (m->options->serve)
		return nargs || m->options->owner ? ps_cli_fail("mount", PS_EXIT_USAGE,
		                                            "--serve takes no arguments and no --owner")
		                                  : serve_cache(m);
	if (m->options->owner)
		return mount_owned(m, args, nargs);
	if (nargs < 1)
		return ps_cli_fail("mount", PS_EXIT_USAGE, "too few arguments; usage: penstock mount %s",
		        ps_cmd_mount.usage);
	if (nargs <= 2 && mount_by_name(m, args[0], nargs == 2 ? args[1] : NULL, nargs == 1, &code))
		return code;
	for (int i = 0; nargs > 2 && i < nargs - 1; i++)
		if (!ps_source_has_name(args[i], &n))
			return ps_cli_fail("mount", PS_EXIT_USAGE,
			        "too many arguments%s; several sources need names: train=SOURCE val=SOURCE "
			        "MOUNTPOINT",
			        strchr(args[0], '/') && strchr(args[1], '/') ? quote_it : "");
	if (nargs > 1 && strstr(args[nargs - 1], "://"))
		return ps_cli_fail("mount", PS_EXIT_USAGE,
		        "the MOUNTPOINT comes last, after the sources; usage: penstock mount %s",
		        ps_cmd_mount.usage);
	return run_sources(m, args, nargs - 1, args[nargs - 1]);
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	struct mount m = {.options = o};
	int code = mount_with(&m, args, nargs);

	ps_request_fini(&m.request);
	free(m.unnamed);
	return code;
}

const struct ps_opts ps_cmd_mount = {
        .command = "mount",
        .id = PS_CMD_MOUNT,
        .usage = "SOURCE|NAME=SOURCE... MOUNTPOINT, or NAME [MOUNTPOINT] [OPTION...]",
        .about = "Mounts SOURCE read-only on the empty folder MOUNTPOINT, with a cache on a local disk. "
                 "Exits once the\n"
                 "mount is ready; a daemon in the background serves it. Unmount with penstock umount "
                 "MOUNTPOINT.\n"
                 "\n"
                 "SOURCE is one of:\n"
                 "    https://HOST/x-{000..127}.tar    a URL with braces: one file per number\n"
                 "    https://HOST/PATH/               a directory listing\n"
                 "    s3://BUCKET/PREFIX/              a bucket; also gs:// and "
                 "az://ACCOUNT/CONTAINER/PREFIX/\n"
                 "    hf://datasets/OWNER/NAME         a repository of the Hugging Face Hub\n"
                 "    https://HOST/list.txt, @FILE     a manifest: one URL per line\n"
                 "    /DIR/                            a folder\n"
                 "Several sources, as NAME=SOURCE, each get a folder in the mount. NAME alone is a mount of\n"
                 "penstock.conf(5). penstock-mount(1) describes everything, with examples.",
        .lists = true,
        .max = PS_ARGS_ANY,
        .run = run,
};

/* mount.penstock SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]: mount(8)'s own letters,
 * among which -f means "only pretend". */
int ps_cmd_mount_helper(int argc, char **argv)
{
	struct ps_mount_options o;
	struct ps_error err = {0};
	bool fake = false;
	int nargs = 0, code = PS_EXIT_OK, c;

	ps_mount_options_init(&o);
	o.lenient = true;
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		puts("Usage: mount.penstock SOURCE|NAME MOUNTPOINT [-o OPTION[=VALUE],...]\n\n"
		     "What mount -t penstock runs. penstock mount --help lists the options.");
		ps_mount_options_fini(&o);
		return PS_EXIT_OK;
	}
	opterr = 0;
	while ((c = getopt(argc, argv, "sfnvN:o:t:")) != -1) {
		if (c == 'f') {
			fake = true;
		} else if (c == 'o') {
			if (ps_opts_parse_list(&ps_cmd_mount, &o, optarg, &err) < 0)
				code = refuse(&err);
			if (ps_opts_list_has_secret(&ps_cmd_mount, optarg))
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
		code = ps_cli_fail("mount", PS_EXIT_USAGE,
		        "usage: mount.penstock SOURCE|NAME MOUNTPOINT [-o OPTION,...]");
	if (!code && !fake)
		code = run(&o, argv + optind, nargs);
	ps_mount_options_fini(&o);
	return code;
}
