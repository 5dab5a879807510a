#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "cli/commands.h"
#include "fuse/fuse.h"
#include "daemon/daemon.h"

#define BEAT_S 15         /* a plan is dropped after 60 s of silence */
#define FILES_MAX 100000U /* the most files that a daemon accepts for an epoch */

/* The job, and the mount that receives the lines of its plan. */
struct sender {
	int fd;
	json_t *job;
	const char *where;
};

static int refuse(const struct sender *t, int errnum)
{
	if (errnum == ENOTTY)
		return ps_cli_fail("plan", PS_EXIT_FAILED,
		        "%s: its --policy does not follow plans; mount it with --policy plan", t->where);
	if (errnum == ENOSPC)
		return ps_cli_fail("plan", PS_EXIT_FAILED,
		        "%s: its plans have used up the memory for plans; end a plan (penstock status lists "
		        "them)",
		        t->where);
	return ps_cli_fail("plan", PS_EXIT_FAILED, "%s: %s", t->where, strerror(errnum));
}

/* Sends a line and frees it. Returns 0 or a positive errno. */
static int send_line(const struct sender *t, json_t *line)
{
	ps_autofree char *text = ps_need(json_dumps(ps_need(line), JSON_COMPACT));
	ps_autofree struct ps_ioc_text *part = ps_need(malloc(sizeof(*part)));
	size_t len = strlen(text) + 1;
	int rc = 0;

	json_decref(line);
	text[len - 1] = '\n'; /* a newline replaces the string's NUL */
	for (size_t done = 0; done < len; done += part->nbytes) {
		part->nbytes = (uint32_t)(len - done < PS_IOC_TEXT_NBYTES ? len - done : PS_IOC_TEXT_NBYTES);
		memcpy(part->text, text + done, part->nbytes);
		if (ioctl(t->fd, PS_IOC_PLAN, part) < 0 && !rc)
			rc = errno;
	}
	return rc;
}

static int send_files(const struct sender *t, json_t *files)
{
	return send_line(t, json_pack("{s:i, s:O, s:i, s:i, s:i, s:O}", "penstock_plan", 1, "job", t->job,
	                            "rank", 0, "world", 1, "epoch", 0, "files", files));
}

static int send_position(const struct sender *t)
{
	return send_line(t, json_pack("{s:i, s:O, s:i, s:i, s:i}", "penstock_position", 1, "job", t->job,
	                            "rank", 0, "epoch", 0, "files_done", 0));
}

struct names {
	size_t nbad, nover;
	char *first_bad;
};

/* The part of the path below the mountpoint; NULL: not below it. */
static const char *below(const char *path, const char *where)
{
	size_t len = strlen(where);

	return strncmp(path, where, len) == 0 && path[len] == '/' ? path + len + strspn(path + len, "/")
	                                                          : NULL;
}

static bool is_file(int root, const char *name)
{
	struct stat st;

	return name && name[0] != '/' && fstatat(root, name, &st, 0) == 0 && S_ISREG(st.st_mode);
}

/* Adds a line of the list: an absolute path, or a path relative to the mountpoint or the current folder. */
static void name_take(struct names *n, json_t *files, int root, const char *where, const char *given)
{
	const char *name = below(given, where) ?: given;
	ps_autofree char *real = is_file(root, name) ? NULL : realpath(given, NULL);

	if (real)
		name = below(real, where);
	if (!is_file(root, name)) {
		if (n->nbad++ == 0)
			n->first_bad = ps_need(strdup(given));
		return;
	}
	if (json_array_size(files) == FILES_MAX) {
		n->nover++;
		return;
	}
	/* json_string() accepts only UTF-8, as does the daemon; other names cannot be sent. */
	json_t *s = json_string(name);
	if (!s && n->nbad++ == 0)
		n->first_bad = ps_need(strdup(name));
	if (s && json_array_append_new(files, s) < 0)
		ps_need(NULL);
}

static int list_read(struct names *n, json_t *files, int root, const char *where)
{
	ps_autofree char *line = NULL;
	size_t cap = 0;
	ssize_t len;

	while ((len = getline(&line, &cap, stdin)) > 0) {
		if (line[len - 1] == '\n')
			line[--len] = 0;
		if (len > 0 && line[0] != '#')
			name_take(n, files, root, where, line);
	}
	return ferror(stdin) ? -EIO : 0;
}

/* Sends heartbeats until a signal arrives. */
static int hold(const struct sender *t, json_t *files, const sigset_t *signals)
{
	const struct timespec beat = {.tv_sec = BEAT_S};
	int rc = 0;

	while (!rc && sigtimedwait(signals, NULL, &beat) < 0 && (errno == EAGAIN || errno == EINTR)) {
		rc = send_position(t);
		if (rc == ESTALE) /* this process had been stopped (SIGSTOP), and the plan was dropped */
			rc = send_files(t, files);
	}
	return rc;
}

static int plan(const struct ps_mount_info *info, const struct ps_mount_options *o)
{
	ps_autofree char *path = NULL;
	struct names names = {0};
	json_t *files = json_array();
	sigset_t signals;
	ps_autofd int root = open(info->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int e, code = PS_EXIT_OK;

	if (asprintf(&path, "%s/.penstock/plan", info->mountpoint) < 0)
		path = NULL;
	ps_autofd int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct sender t = {.fd = fd,
	        .job = o->job ? json_string(o->job) : json_sprintf("plan-%ld", (long)getpid()),
	        .where = info->mountpoint};

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	e = root < 0 || fd < 0 ? errno
	    : !files || !t.job ? EINVAL
	                       : -list_read(&names, files, root, info->mountpoint);
	if (e)
		code = refuse(&t, e);
	if (code == PS_EXIT_OK && names.nbad > 0)
		code = ps_cli_fail("plan", PS_EXIT_FAILED,
		        "%zu of %zu names are not files of %s, the first: %s; paths must be "
		        "absolute, or relative to %s or the current folder",
		        names.nbad, names.nbad + names.nover + json_array_size(files), info->mountpoint,
		        names.first_bad ? names.first_bad : "", info->mountpoint);
	if (names.nover > 0)
		ps_cli_fail("plan", 0, "only the first %u files are announced; %zu are left out", FILES_MAX,
		        names.nover);
	if (!e && json_array_size(files) > 0) {
		e = send_files(&t, files);
		if (!e) {
			printf("%s announced to %s\n", PS_COUNTED(json_array_size(files), "file"),
			        info->mountpoint);
			(void)fflush(stdout);
			e = hold(&t, files, &signals);
		}
		if (e)
			code = refuse(&t, e);
	} else if (!e && code == PS_EXIT_OK) {
		code = ps_cli_fail("plan", PS_EXIT_FAILED, "the list on standard input is empty");
	}
	json_decref(files);
	json_decref(t.job);
	free(names.first_bad);
	return code;
}

static int run(struct ps_mount_options *o, char **args, int nargs)
{
	const struct ps_mount_info *info;
	struct ps_error err = {0};
	ps_automounts struct ps_mounts mounts = {0};

	(void)nargs;
	if (ps_mounts_lookup(args[0], &mounts, &info, &err) < 0)
		return ps_cli_fail("plan", PS_EXIT_FAILED, "%s", err.text);
	return plan(info, o);
}

const struct ps_opts ps_cmd_plan = {
        .command = "plan",
        .id = PS_CMD_PLAN,
        .usage = "MOUNTPOINT [OPTION...] <LIST",
        .about = "Announces the files that a program is going to read. The daemon fetches them ahead of the "
                 "program and keeps\n"
                 "them until the program has read them. LIST has one path per line, in the order of the "
                 "reads. The plan lasts\n"
                 "until you end the command (kill, Ctrl-C).\n"
                 "\n"
                 "    penstock plan /mnt/train <epoch-3.txt & plan=$!; python3 train.py epoch-3.txt; kill "
                 "$plan",
        .min = 1,
        .max = 1,
        .run = run,
};
