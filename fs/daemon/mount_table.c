#include "daemon/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/strbuf.h"
#include "options/options.h"
#include "store/store.h"

static const char our_fstype[] = "fuse.penstock";

void ps_mounts_unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		        s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

static char *next_field(char **rest)
{
	return strsep(rest, " \n");
}

/* "36 35 98:0 /root /mnt opts optional... - fstype source superopts". False: malformed. */
static bool parse_line(char *line, struct ps_mount_info *ret)
{
	char *rest = line, *id = next_field(&rest), *word;

	next_field(&rest); /* parent */
	char *dev = next_field(&rest);
	next_field(&rest); /* root */
	ret->mountpoint = next_field(&rest);
	while ((word = next_field(&rest)) && strcmp(word, "-") != 0) {
	}
	ret->fstype = next_field(&rest);
	ret->source = next_field(&rest);
	if (!ret->source || !dev || sscanf(dev, "%u:%u", &ret->dev_major, &ret->dev_minor) != 2)
		return false;
	ret->mnt_id = strtoull(id, NULL, 10);
	ret->uid = ret->gid = (uid_t)-1;
	while ((word = strsep(&rest, ",\n"))) {
		sscanf(word, "user_id=%u", &ret->uid);
		sscanf(word, "group_id=%u", &ret->gid);
		ret->allow_other |= strcmp(word, "allow_other") == 0;
	}
	return true;
}

static int add(struct ps_mounts *mounts, const struct ps_mount_info *seen)
{
	struct ps_mount_info *v = realloc(mounts->v, (mounts->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	mounts->v = v;
	struct ps_mount_info *m = &v[mounts->n++];
	*m = *seen;
	m->mountpoint = strdup(seen->mountpoint);
	m->fstype = strdup(seen->fstype);
	m->source = strdup(seen->source);
	if (!m->mountpoint || !m->fstype || !m->source)
		return -ENOMEM;
	ps_mounts_unescape(m->mountpoint);
	ps_mounts_unescape(m->fstype);
	ps_mounts_unescape(m->source);
	return 0;
}

int ps_mounts_read(const char *mountinfo, bool any, struct ps_mounts *ret)
{
	struct ps_mounts mounts = {0};
	ps_autofree char *line = NULL;
	size_t cap = 0;
	int rc = 0;
	FILE *f = fopen(mountinfo ? mountinfo : "/proc/self/mountinfo", "re");

	if (!f)
		return -errno;
	while (rc == 0 && getline(&line, &cap, f) > 0) {
		struct ps_mount_info seen = {0};

		if (parse_line(line, &seen) && (any || strcmp(seen.fstype, our_fstype) == 0))
			rc = add(&mounts, &seen);
	}
	fclose(f);
	if (rc < 0) {
		ps_mounts_fini(&mounts);
		return rc;
	}
	*ret = mounts;
	return 0;
}

static void info_fini(struct ps_mount_info *m)
{
	free(m->mountpoint);
	free(m->fstype);
	free(m->source);
}

void ps_mounts_fini(struct ps_mounts *mounts)
{
	for (size_t i = 0; i < mounts->n; i++)
		info_fini(&mounts->v[i]);
	free(mounts->v);
	*mounts = (struct ps_mounts){0};
}

size_t ps_mounts_keep_own(struct ps_mounts *mounts)
{
	size_t n = 0, before = mounts->n;
	uid_t self = geteuid();

	for (size_t i = 0; i < before; i++) {
		struct ps_mount_info *m = &mounts->v[i];

		if (self == 0 || m->uid == self || m->uid == (uid_t)-1 || (m->uid == 0 && m->allow_other))
			mounts->v[n++] = *m;
		else
			info_fini(m);
	}
	mounts->n = n;
	return before - n;
}

const struct ps_mount_info *ps_mounts_find(const struct ps_mounts *mounts, const char *path)
{
	for (size_t i = mounts->n; i-- > 0;)
		if (strcmp(mounts->v[i].mountpoint, path) == 0)
			return &mounts->v[i];
	return NULL;
}

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

uint64_t ps_mounts_number(int fd)
{
	char path[48], line[128];
	unsigned long long number = 0;
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID_UNIQUE, &st) == 0 &&
	        st.stx_mask & STATX_MNT_ID_UNIQUE)
		return st.stx_mnt_id;
	/* statx reports nothing on an older kernel, and for mounts of other users. */
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(path, "re");
	while (f && number == 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %llu", &number) != 1)
			number = 0;
	if (f)
		fclose(f);
	return number;
}

struct ps_mount_id ps_mounts_id(const char *mountpoint)
{
	struct ps_mount_id id = {0};
	struct ps_mounts mounts;

	if (ps_mounts_read(NULL, false, &mounts) < 0)
		return id;
	const struct ps_mount_info *info = ps_mounts_find(&mounts, mountpoint);
	if (info) {
		ps_autofd int fd = open(mountpoint, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);

		id.dev = makedev(info->dev_major, info->dev_minor);
		id.number = fd >= 0 ? ps_mounts_number(fd) : 0;
	}
	ps_mounts_fini(&mounts);
	return id;
}

int ps_mounts_resolve(const char *arg, char **ret_path, struct ps_error *err)
{
	ps_autofree char *path = ps_path_absolute(arg);
	ps_autofree char *parent = NULL;
	ps_autostrbuf struct ps_strbuf b = {0};

	if (!path)
		return ps_no_memory(err);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	char *slash = strrchr(path, '/'), *last = slash + 1;
	bool whole = strcmp(last, "..") == 0 || strcmp(last, ".") == 0 || !*last;
	if (!whole)
		*slash = '\0';
	int rc = ps_timed_realpath(*path ? path : "/", PS_TIMED_TIMEOUT_MS, &parent);
	if (rc < 0)
		return ps_error_set(
		        err, -rc, "%s: %s", arg, rc == -ENOENT ? "there is no such folder" : strerror(-rc));
	if (whole) {
		*ret_path = ps_steal_ptr(&parent);
		return 0;
	}
	ps_strbuf_addf(&b, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, last);
	*ret_path = ps_strbuf_take(&b);
	return *ret_path ? 0 : ps_no_memory(err);
}

int ps_mounts_lookup(
        const char *arg, struct ps_mounts *ret, const struct ps_mount_info **ret_info, struct ps_error *err)
{
	ps_autofree char *path = NULL, *real = NULL;
	int rc = ps_mounts_resolve(arg, &path, err);

	if (rc < 0)
		return rc;
	rc = ps_mounts_read(NULL, true, ret);
	if (rc < 0)
		return ps_error_set(err, -rc, "/proc/self/mountinfo: %s", strerror(-rc));
	const struct ps_mount_info *info = ps_mounts_find(ret, path);
	/* The path as given is not a mountpoint; it may be a link to one. */
	if (!info && ps_timed_realpath(path, PS_TIMED_TIMEOUT_MS, &real) == 0)
		info = ps_mounts_find(ret, real);
	if (info && strcmp(info->fstype, our_fstype) == 0) {
		*ret_info = info;
		return 0;
	}
	mode_t mode;
	if (info)
		rc = ps_error_set(err, EINVAL, "%s: this is a mount of type %s, not a penstock mount", arg,
		        info->fstype);
	else if (ps_timed_stat(path, PS_TIMED_TIMEOUT_MS, &mode) == -ENOENT)
		rc = ps_error_set(
		        err, ENOENT, "%s: there is no such folder (penstock status lists the mounts)", arg);
	else
		rc = ps_error_set(
		        err, EINVAL, "%s: not a penstock mount (penstock status lists the mounts)", arg);
	ps_mounts_fini(ret);
	return rc;
}

static int copy_stats(const char *path, int out)
{
	char buf[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			return -EIO;
	return n < 0 ? -errno : 0;
}

/* The name of the child processes that ask this mount. */
static void name_child(const struct ps_mount_info *info, char ret[static 16])
{
	snprintf(ret, 16, "penstock-%x", info->dev_minor & 0xfffff);
}

/* Sets stuck[i] for each mount that a child of an earlier call still asks: one that was killed, and cannot
 * end (state D) before the daemon answers. Without this, each call would add such a process. */
static void find_stuck(const struct ps_mounts *mounts, bool *stuck)
{
	DIR *proc = opendir("/proc");
	const struct dirent *d;

	while (proc && (d = readdir(proc))) {
		char path[300], comm[16], ours[16], state;
		struct stat st;

		if (d->d_name[0] < '1' || d->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", d->d_name);
		FILE *f = fopen(path, "re");
		bool asks = f && fscanf(f, "%*d (%15[^)]) %c", comm, &state) == 2 && state == 'D' &&
		            fstat(fileno(f), &st) == 0;
		for (size_t i = 0; asks && i < mounts->n; i++) {
			name_child(&mounts->v[i], ours);
			stuck[i] |=
			        mounts->v[i].dev_major == 0 && strcmp(comm, ours) == 0 &&
			        (st.st_uid == 0 || st.st_uid == geteuid() || st.st_uid == mounts->v[i].uid);
		}
		if (f)
			fclose(f);
	}
	if (proc)
		closedir(proc);
}

static int is_stuck(void *arg, int out)
{
	(void)arg;
	(void)out;
	return -ETIMEDOUT;
}

/* Runs in a child. If FUSE refuses root, tries again as the mount's owner. */
static int read_stats(void *arg, int out)
{
	const struct ps_mount_info *info = arg;
	ps_autostrbuf struct ps_strbuf path = {0};

	char name[16];

	name_child(info, name);
	prctl(PR_SET_NAME, name);
	ps_strbuf_addf(&path, "%s/.penstock/stats", info->mountpoint);
	if (path.failed)
		return -ENOMEM;
	int rc = copy_stats(ps_strbuf_peek(&path), out);
	if (rc == -EACCES && geteuid() == 0 && info->uid != (uid_t)-1 && setgroups(0, NULL) == 0 &&
	        setresgid(info->gid, info->gid, info->gid) == 0 &&
	        setresuid(info->uid, info->uid, info->uid) == 0)
		rc = copy_stats(ps_strbuf_peek(&path), out);
	return rc;
}

static struct ps_mount_answer take_answer(struct ps_timed_call *call)
{
	ps_autofree char *text = ps_timed_take(call);
	struct ps_mount_answer answer = {.rc = call->rc};

	if (answer.rc < 0)
		return answer;
	answer.doc = json_loads(text, 0, NULL);
	if (json_is_object(answer.doc))
		return answer;
	json_decref(answer.doc);
	return (struct ps_mount_answer){.rc = -EPROTO};
}

struct ps_mount_answer *ps_mounts_ask(const struct ps_mounts *mounts, int timeout_ms)
{
	ps_autofree struct ps_timed_call *calls = calloc(mounts->n + 1, sizeof(*calls));
	struct ps_mount_answer *answers = calloc(mounts->n + 1, sizeof(*answers));
	ps_autofree bool *stuck = calloc(mounts->n + 1, sizeof(*stuck));

	if (!calls || !answers || !stuck) {
		free(answers);
		return NULL;
	}
	find_stuck(mounts, stuck);
	for (size_t i = 0; i < mounts->n; i++)
		calls[i] =
		        (struct ps_timed_call){.fn = stuck[i] ? is_stuck : read_stats, .arg = &mounts->v[i]};
	ps_timed_run_all(calls, mounts->n, timeout_ms);
	for (size_t i = 0; i < mounts->n; i++)
		answers[i] = take_answer(&calls[i]);
	return answers;
}

int ps_mounts_stats(const struct ps_mount_info *info, int timeout_ms, json_t **ret)
{
	const struct ps_mounts one = {.v = (struct ps_mount_info *)(uintptr_t)info, .n = 1};
	ps_autofree struct ps_mount_answer *answer = ps_mounts_ask(&one, timeout_ms);

	if (!answer)
		return -ENOMEM;
	if (answer->rc == 0)
		*ret = answer->doc;
	return answer->rc;
}

const char *ps_mounts_why_not(int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
		return "its daemon does not answer; remove it with penstock umount --force";
	case -ENOTCONN:
	case -ECONNABORTED:
		return "its daemon has died; remove it with penstock umount";
	case -EACCES:
	case -EPERM:
		return "belongs to another user";
	default:
		return strerror(-rc);
	}
}

pid_t ps_mounts_pid(const json_t *stats)
{
	json_int_t pid = json_integer_value(json_object_get(stats, "pid"));
	char path[64], comm[32] = "";

	if (pid <= 1 || pid > INT32_MAX)
		return 0;
	snprintf(path, sizeof(path), "/proc/%lld/comm", (long long)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	/* If the daemon runs in another pid namespace, this is another process. */
	bool ours = fgets(comm, sizeof(comm), f) && strstr(comm, "penstock"); /* also mount.penstock */
	fclose(f);
	return ours ? (pid_t)pid : 0;
}

char *ps_mounts_of_cache(const char *cache_dir)
{
	struct ps_mounts mounts;
	char *found = NULL;
	ps_autofree char *real = NULL;
	ps_autofd int fd = -1;

	if (ps_store_dir_find(cache_dir, false, &fd, &real, NULL) < 0 ||
	        ps_mounts_read(NULL, false, &mounts) < 0)
		return NULL;
	ps_mounts_keep_own(&mounts);
	ps_autofree struct ps_mount_answer *answers = ps_mounts_ask(&mounts, PS_TIMED_TIMEOUT_MS);
	for (size_t i = 0; answers && i < mounts.n; i++) {
		const json_t *cache = json_object_get(answers[i].doc, "cache");
		const char *dir = json_string_value(json_object_get(cache, "dir"));
		ps_autofree char *dir_real = NULL;

		if (!found && dir && ps_timed_realpath(dir, PS_TIMED_TIMEOUT_MS, &dir_real) == 0 &&
		        strcmp(dir_real, real) == 0)
			found = strdup(mounts.v[i].mountpoint);
		json_decref(answers[i].doc);
	}
	ps_mounts_fini(&mounts);
	return found;
}
