/* `penstock report`: an archive with all that a bug report needs, without secrets. */
#include <ctype.h>
#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "base/stats.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/conf_file.h"
#include "cli/report_redact.h"
#include "config.h"
#include "daemon/daemon.h"

static const struct ps_opts opts = {
        .command = "report",
        .id = PS_CMD_REPORT,
        .usage = "[FILE.tar.gz|-]",
        .about = "Writes an archive of what a report of a fault needs: versions, machine, mounts, status, "
                 "the log's\n"
                 "last lines, configuration. Secrets are taken out; look through it before you send it.",
};

#define LOG_NBYTES (256 << 10) /* at most this much of each log's end */
#define LOG_LINES "1000"
#define TAR_BLOCK 512
#define CHILD_SECONDS "20"
#define LOG_FILES_MS 5000

struct report {
	struct ps_redact redact;
	struct ps_strbuf tar, list;
	char folder[64]; /* in the archive */
	time_t now_s;
	bool failed;
};

/* The archive -------------------------------------------------------------------------------------------- */

/* Adds a file with a text that holds no secrets. */
static void add_clean(struct report *r, const char *name, const char *about, const char *text)
{
	char head[TAR_BLOCK] = "";
	size_t nbytes = strlen(text);
	unsigned sum = 0;

	snprintf(head, 100, "%s/%s", r->folder, name);
	strcpy(head + 100, "0000600");
	strcpy(head + 108, "0000000");
	strcpy(head + 116, "0000000");
	snprintf(head + 124, 12, "%011o", (unsigned)nbytes);
	snprintf(head + 136, 12, "%011llo", (unsigned long long)r->now_s);
	memset(head + 148, ' ', 8); /* the checksum field itself counts as blanks */
	head[156] = '0';
	memcpy(head + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(head); i++)
		sum += (unsigned char)head[i];
	snprintf(head + 148, 8, "%06o", sum);
	ps_strbuf_addn(&r->tar, head, sizeof(head));
	ps_strbuf_addn(&r->tar, text, nbytes);
	while (r->tar.len % TAR_BLOCK)
		ps_strbuf_addn(&r->tar, "", 1);
	ps_strbuf_addf(&r->list, "  %-16s %7zu bytes  %s\n", name, nbytes, about);
}

static void add_part(struct report *r, const char *name, const char *about, const char *text)
{
	ps_autostrbuf struct ps_strbuf clean = {0}, lines = {0};

	ps_redact_text(&r->redact, text, &clean);
	for (char *rest = clean.s, *line; (line = strsep(&rest, "\n"));) {
		ps_strbuf_add_printable(&lines, line);
		if (rest)
			ps_strbuf_addc(&lines, '\n');
	}
	r->failed |= clean.failed || lines.failed;
	add_clean(r, name, about, ps_strbuf_peek(&lines));
}

/* Returns the archive as gzip; the caller frees it. NULL: out of memory. */
static uint8_t *compress(const struct ps_strbuf *tar, size_t *ret_n)
{
	size_t room = tar->len + tar->len / 8 + 4096;
	uint8_t *out = malloc(room);
	struct isal_zstream s = {0};

	if (!out)
		return NULL;
	isal_deflate_stateless_init(&s);
	s.gzip_flag = IGZIP_GZIP;
	s.next_in = (uint8_t *)tar->s;
	s.avail_in = (uint32_t)tar->len;
	s.next_out = out;
	s.avail_out = (uint32_t)room;
	s.end_of_stream = 1;
	if (isal_deflate_stateless(&s) != COMP_OK) {
		free(out);
		return NULL;
	}
	*ret_n = s.total_out;
	return out;
}

static int write_all(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t got = write(fd, p, n);

		if (got < 0 && errno != EINTR)
			return -errno;
		p += got > 0 ? got : 0;
		n -= got > 0 ? (size_t)got : 0;
	}
	return 0;
}

/* What is collected -------------------------------------------------------------------------------------- */

/* Adds at most the last `most` bytes of a file, from the beginning of a line. */
static void add_file_end(struct ps_strbuf *b, const char *path, off_t most)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	struct stat st;
	char line[4096];

	if (!f) {
		ps_strbuf_addf(b, "%s: %s\n", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > most &&
	        fseeko(f, st.st_size - most, SEEK_SET) == 0 && !fgets(line, sizeof(line), f))
		ps_strbuf_add(b, "");
	for (off_t n = 0; n < 2 * most && fgets(line, sizeof(line), f); n += (off_t)strlen(line))
		ps_strbuf_add(b, line);
	fclose(f);
}

/* Adds the output of a command, whatever its exit status. All commands are constants: no user input reaches
 * the shell. */
static void add_output(struct ps_strbuf *b, const char *command)
{
	FILE *f = popen(command, "re");
	char line[4096];

	if (!f) {
		ps_strbuf_addf(b, "%s: %s\n", command, strerror(errno));
		return;
	}
	while (fgets(line, sizeof(line), f))
		ps_strbuf_add(b, line);
	pclose(f);
}

static void add_versions(struct report *r)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct utsname u;
	char line[256];
	FILE *f;

	ps_strbuf_addf(&b, "penstock %s\n%s\n", PACKAGE_VERSION, curl_version());
	add_output(&b, "fusermount3 --version 2>&1; penstock-loader --version 2>&1");
	if (uname(&u) == 0)
		ps_strbuf_addf(&b, "%s %s %s %s\n", u.sysname, u.release, u.version, u.machine);
	f = fopen("/etc/os-release", "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "PRETTY_NAME=", 12) == 0)
			ps_strbuf_add(&b, line);
	if (f)
		fclose(f);
	ps_strbuf_addf(&b, "uid %u, %ld processors\n", (unsigned)geteuid(), sysconf(_SC_NPROCESSORS_ONLN));
	f = fopen("/proc/meminfo", "re");
	for (int i = 0; f && i < 3 && fgets(line, sizeof(line), f); i++)
		ps_strbuf_add(&b, line);
	if (f)
		fclose(f);
	add_part(r, "versions.txt", "versions, kernel, memory", ps_strbuf_peek(&b));
}

static void add_machine(struct report *r)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	add_output(&b, "timeout " CHILD_SECONDS " penstock-loader doctor --machine . 2>&1");
	add_part(r, "machine.txt", "penstock-loader doctor --machine", ps_strbuf_peek(&b));
}

static void add_mountinfo(struct report *r)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[8192];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, " - fuse.penstock "))
			ps_strbuf_add(&b, line);
	if (f)
		fclose(f);
	add_part(r, "mounts.txt", "the kernel's list of penstock mounts", ps_strbuf_peek(&b));
}

struct log_files {
	pid_t pid;
	const char *cache_dir;
};

/* Writes the ends of the log files that a daemon appends to. The index's own log is in the cache folder, and
 * is left out. Runs in a child: another user's process may pose as a daemon, with files that do not answer. */
static int add_log_files(void *arg, int out)
{
	const struct log_files *l = arg;
	ps_autostrbuf struct ps_strbuf text = {0};
	char path[64], target[4096], line[128];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)l->pid);
	dir = opendir(path);
	if (!dir)
		ps_strbuf_addf(&text, "log of pid %d: %s\n", (int)l->pid, strerror(errno));
	while (dir && (d = readdir(dir))) {
		unsigned flags = 0;
		struct stat st;

		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", (int)l->pid, d->d_name);
		FILE *f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			sscanf(line, "flags: %o", &flags);
		if (f)
			fclose(f);
		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", (int)l->pid, d->d_name);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		if (n < 0 || !(flags & O_APPEND) || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		target[n] = '\0';
		if (strncmp(target, l->cache_dir, strlen(l->cache_dir)) == 0)
			continue;
		ps_strbuf_addf(&text, "-- %s\n", target);
		add_file_end(&text, path, LOG_NBYTES);
	}
	if (dir)
		closedir(dir);
	return text.failed ? -ENOMEM : write_all(out, (const uint8_t *)ps_strbuf_peek(&text), text.len);
}

static void add_mounts(struct report *r)
{
	ps_autostrbuf struct ps_strbuf logs = {0}, units = {0};
	struct ps_mounts mounts = {0};
	int rc = ps_mounts_read(NULL, false, &mounts);
	if (rc == 0)
		ps_mounts_keep_own(&mounts);
	ps_autofree struct ps_mount_answer *answers =
	        rc == 0 ? ps_mounts_ask(&mounts, PS_TIMED_TIMEOUT_MS) : NULL;
	json_t *all = json_array();
	pid_t last = 0;

	add_output(&logs, "timeout " CHILD_SECONDS " journalctl -q -t penstock -n " LOG_LINES
	                  " -o short-iso --no-hostname --no-pager 2>/dev/null");
	for (size_t i = 0; answers && i < mounts.n; i++) {
		const json_t *doc = answers[i].doc;

		if (answers[i].rc < 0) {
			json_array_append_new(all,
			        json_pack("{s:o, s:s}", "mountpoint", ps_json_lossy(mounts.v[i].mountpoint),
			                "error", ps_mounts_why_not(answers[i].rc)));
			continue;
		}
		pid_t pid = ps_mounts_pid(doc);
		const char *dir = json_string_value(json_object_get(json_object_get(doc, "cache"), "dir"));

		struct log_files files = {.pid = pid, .cache_dir = dir ? dir : "/dev/null"};
		ps_autofree char *lines = NULL;

		if (pid > 0 && pid != last) {
			rc = ps_timed_run(add_log_files, &files, LOG_FILES_MS, &lines);
			if (rc < 0)
				ps_strbuf_addf(&logs, "logs of pid %d: %s\n", (int)pid, strerror(-rc));
			else
				ps_strbuf_add(&logs, lines);
		}
		last = pid;
		json_array_append_new(all, ps_redact_json(&r->redact, doc));
		json_decref(answers[i].doc);
	}
	ps_autofree char *text = ps_json_dump(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	r->failed |= !text || logs.failed;
	add_clean(r, "status.json", "penstock status --json", text ? text : "");
	add_part(r, "log.txt", "last lines of the journal and of daemons' log files", ps_strbuf_peek(&logs));
	json_decref(all);
	ps_mounts_fini(&mounts);
}

static const struct ps_opt *option_of(const char *key)
{
	const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key;

	for (const struct ps_opt *o = ps_options; o->name; o++) {
		size_t i = 0;

		while (name[i] && (name[i] == o->name[i] || (name[i] == '_' && o->name[i] == '-')))
			i++;
		if (!name[i] && !o->name[i])
			return o;
	}
	return NULL;
}

/* Adds the configuration's known keys, with values that are not secret. Comments are left out: they may
 * hold anything. */
static void add_conf(struct report *r)
{
	static const char *const own[] = {"source", "mountpoint", "auto"};
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_error err = {0};
	struct ps_conf conf;
	int rc = ps_conf_read(NULL, &conf, &err);

	if (rc < 0)
		ps_strbuf_addf(&b, "%s\n", rc == -ENOENT ? "there is no penstock.conf" : err.text);
	else
		ps_strbuf_addf(&b, "# %s, mode %04o\n", conf.path, (unsigned)conf.mode & 07777);
	for (size_t i = 0; rc == 0 && i < conf.n; i++) {
		ps_strbuf_addf(&b, "[%s]\n", conf.v[i].name);
		for (size_t j = 0; j < conf.v[i].n; j++) {
			const struct ps_conf_entry *e = &conf.v[i].v[j];
			const struct ps_opt *option = option_of(e->key);
			bool shown = option && !(option->flags & PS_OPT_SECRET);

			for (size_t k = 0; k < PS_ARRAY_LEN(own); k++)
				shown |= strncmp(e->key, own[k], strlen(own[k])) == 0;
			ps_strbuf_addf(&b, "%s = %s\n",
			        option || shown ? e->key : "(a key that is not known)",
			        shown ? e->value : "(left out)");
			if (option && !shown)
				ps_redact_know(&r->redact, e->value);
		}
	}
	if (rc == 0)
		ps_conf_fini(&conf);
	add_part(r, "penstock.conf", "configuration, without secret values and comments", ps_strbuf_peek(&b));
}

/* Adds the values of a few variables, and for others only whether they are set. */
static void add_environment(struct report *r)
{
	static const char *const shown[] = {"LANG", "LC_ALL", "TZ", "TERM", "PENSTOCK_CONFIG", "AWS_REGION",
	        "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED", "HF_HUB_OFFLINE"};
	static const char *const named[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	        "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE",
	        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_KEY",
	        "AZURE_STORAGE_SAS_TOKEN", "HF_TOKEN", "HF_ENDPOINT", "http_proxy", "https_proxy",
	        "all_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "NETRC", "CURL_CA_BUNDLE",
	        "SSL_CERT_FILE", "SSL_CERT_DIR"};
	ps_autostrbuf struct ps_strbuf b = {0};

	for (size_t i = 0; i < PS_ARRAY_LEN(shown); i++)
		if (getenv(shown[i]))
			ps_strbuf_addf(&b, "%s=%s\n", shown[i], getenv(shown[i]));
	for (size_t i = 0; i < PS_ARRAY_LEN(named); i++)
		if (getenv(named[i]))
			ps_strbuf_addf(&b, "%s is set\n", named[i]);
	add_part(r, "environment.txt", "a few environment variables, most of them without the value",
	        ps_strbuf_peek(&b));
}

/* ----------------------------------------------------------------------------------------------------- */

static int save(struct report *r, const char *path)
{
	static const char end[2 * TAR_BLOCK];
	bool to_stdout = strcmp(path, "-") == 0;
	int fd = STDOUT_FILENO, rc;
	size_t n = 0;

	ps_strbuf_addn(&r->tar, end, sizeof(end));
	ps_autofree uint8_t *gz = r->failed || r->tar.failed ? NULL : compress(&r->tar, &n);
	if (!gz)
		return ps_cli_fail("report", PS_EXIT_FAILED, "out of memory");
	if (!to_stdout)
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ps_cli_fail("report", PS_EXIT_FAILED, "%s: %s", path, strerror(errno));
	rc = write_all(fd, gz, n);
	if (!to_stdout && close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc < 0)
		return ps_cli_fail("report", PS_EXIT_FAILED, "%s: %s", path, strerror(-rc));
	fprintf(to_stdout ? stderr : stdout,
	        "%s holds\n%sSecrets were taken out where they were found; names of hosts, folders and files "
	        "were not.\n"
	        "Look through it before you send it.\n",
	        to_stdout ? "The archive" : path, ps_strbuf_peek(&r->list));
	return PS_EXIT_OK;
}

static int collect(const char *given)
{
	struct report r = {.now_s = time(NULL)};
	char path[96];
	struct tm tm;

	strftime(r.folder, sizeof(r.folder), "penstock-report-%Y%m%d-%H%M%S", localtime_r(&r.now_s, &tm));
	snprintf(path, sizeof(path), "%s.tar.gz", r.folder);
	ps_redact_know_environment(&r.redact, environ);
	add_conf(&r); /* first: its secrets are then redacted everywhere */
	add_versions(&r);
	add_machine(&r);
	add_mountinfo(&r);
	add_mounts(&r);
	add_environment(&r);
	int code = save(&r, given ? given : path);
	ps_redact_fini(&r.redact);
	ps_strbuf_fini(&r.tar);
	ps_strbuf_fini(&r.list);
	return code;
}

int ps_cmd_report(int argc, char **argv)
{
	struct ps_mount_options o = {0};
	int nargs, code;

	if (ps_cli_begin(&opts, &o, argc, argv, 0, 1, &nargs, &code)) {
		if (nargs == 1 && strcmp(argv[1], "-") == 0 && isatty(STDOUT_FILENO))
			code = ps_cli_fail(
			        "report", PS_EXIT_USAGE, "the archive is not for a terminal: name a FILE");
		else
			code = collect(nargs ? argv[1] : NULL);
	}
	ps_mount_options_fini(&o);
	return code;
}
