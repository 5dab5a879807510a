#include "origin/origin_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/url.h"
#include "listing/listing.h"

#define PS_FILE_MAX_THREADS 8

#define READ_NBYTES PS_MIB /* bytes of one read; after each, cancel is checked and progress called */
#define READ_MAX_IOV 16

/* lock protects queue, the cancelled flags of queued and running jobs, nthreads, nidle, aborted and stop. */
struct ps_file {
	struct ps_origin origin; /* first */
	struct ps_origin_source source;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct ps_list queue; /* of ps_transfer_work.transfer.link */
	unsigned nthreads, nidle;
	bool aborted, stop;
	pthread_t threads[PS_FILE_MAX_THREADS];
};

static struct ps_file *file_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_file, origin);
}

static int file_path(const char *url, char **ret)
{
	struct ps_strbuf b = {0};

	if (strncmp(url, "file:///", 8) != 0)
		return -EINVAL;
	int rc = ps_url_decode(url + 7, strlen(url + 7), &b);
	char *path = ps_strbuf_take(&b);
	if (rc || !path) {
		free(path);
		return rc ? rc : -ENOMEM;
	}
	*ret = path;
	return 0;
}

static void file_remote(const struct stat *st, struct ps_remote *ret)
{
	*ret = PS_REMOTE_UNKNOWN;
	ret->size = (uint64_t)st->st_size;
	ret->mtime_s = st->st_mtim.tv_sec;
	snprintf(ret->etag, sizeof(ret->etag), "\"%" PRIx64 "-%" PRIx64 ".%09ld-%" PRIx64 "\"",
	        (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
	        (uint64_t)st->st_ino);
}

/* Links -------------------------------------------------------------------------------------------------- */

#define LINKS_MAX 40 /* links on the way to one file, as the kernel has it */

/* Opens a path (O_PATH), as the kernel would, but follows only links that it may. Returns a descriptor or
 * -errno; -EPERM: a link that may not be followed. */
static int resolve(int base, const char *path, unsigned *nlinks)
{
	ps_autofd int dir = path[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
	                                   : fcntl(base, F_DUPFD_CLOEXEC, 3);

	for (const char *s = path; dir >= 0 && *(s += strspn(s, "/"));) {
		int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
		char name[NAME_MAX + 1], text[PATH_MAX];
		size_t n = strcspn(s, "/");
		struct stat st, target;

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, s, n);
		name[n] = '\0';
		s += n;
		/* Without O_DIRECTORY, O_PATH does not mount what is mounted on demand (autofs). */
		ps_autofd int fd = openat(dir, name, flags | O_DIRECTORY);
		if (fd < 0 && errno == ENOTDIR)
			fd = openat(dir, name, flags);
		if (fd < 0 || fstat(fd, &st) < 0)
			return -errno;
		if (S_ISLNK(st.st_mode)) {
			ssize_t len = readlinkat(fd, "", text, sizeof(text) - 1);

			if (len < 0 || ++*nlinks > LINKS_MAX)
				return len < 0 ? -errno : -ELOOP;
			text[len] = '\0';
			ps_autofd int to = resolve(dir, text, nlinks);
			if (to < 0)
				return to;
			/* Root's daemon serves files to others. It follows a link only if root has made it, or the
			 * owner of what it leads to: otherwise a user who may write to a mounted folder could show a
			 * file of root, or of another user. */
			if (fstat(to, &target) < 0 ||
			        (geteuid() == 0 && st.st_uid != 0 && st.st_uid != target.st_uid))
				return -EPERM;
			close(fd);
			fd = ps_steal_fd(&to);
		}
		close(dir);
		dir = ps_steal_fd(&fd);
	}
	return dir < 0 ? -errno : ps_steal_fd(&dir);
}

/* As openat(), but root follows only links that it may: EACCES. */
static int open_following(int base, const char *path, int flags)
{
	struct open_how how = {
	        .flags = (uint64_t)flags, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	char itself[32];
	unsigned nlinks = 0;

	if (geteuid() != 0)
		return openat(base, path, flags);
	int fd = (int)syscall(SYS_openat2, base, path, &how, sizeof(how));
	if (fd >= 0 || (errno != ELOOP && errno != ENOSYS))
		return fd;
	ps_autofd int found = resolve(base, path, &nlinks);
	if (found < 0) {
		errno = found == -EPERM ? EACCES : -found;
		return -1;
	}
	snprintf(itself, sizeof(itself), "/proc/self/fd/%d", found);
	return open(itself, flags);
}

/* The status of what a link leads to. 0 or -errno; -EPERM: it may not be followed. */
static int stat_following(int dir, const char *name, struct stat *ret)
{
	unsigned nlinks = 0;

	if (geteuid() != 0)
		return fstatat(dir, name, ret, 0) < 0 ? -errno : 0;
	ps_autofd int fd = resolve(dir, name, &nlinks);
	return fd < 0 ? fd : fstat(fd, ret) < 0 ? -errno : 0;
}

/* One job ------------------------------------------------------------------------------------------------ */

static int fail(struct ps_error *err, int errnum, const char *path)
{
	int known = errnum == ENOENT || errnum == ENOTDIR ? ENOENT
	            : errnum == EACCES || errnum == EPERM ? EACCES
	            : errnum == ENOMEM                    ? ENOMEM
	            : errnum == ESTALE                    ? ESTALE
	                                                  : EIO;
	int rc = ps_error_set(err, known, "%s: %s", path, strerror(errnum));

	err->retryable = known == EIO || known == ENOMEM;
	return rc;
}

/* Opens a file and finds its version. Returns the descriptor or -errno. */
static int open_file(const char *url, struct ps_remote *seen, struct ps_error *err)
{
	ps_autofree char *path = NULL;
	struct stat st;
	int rc = file_path(url, &path);

	if (rc)
		return fail(err, -rc, url);
	ps_autofd int fd = open_following(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(err, errno, path);
	if (!S_ISREG(st.st_mode))
		return fail(err, ENOENT, path);
	file_remote(&st, seen);
	return ps_steal_fd(&fd);
}

static int check_version(const struct ps_origin_get *get, const struct ps_remote *seen, struct ps_error *err)
{
	if (ps_remote_same_version(&get->expect, seen))
		return 0;
	return ps_error_set(err, ESTALE, "%s: the file has changed", get->url);
}

/* Makes vectors for the next part of the range. Returns their number. */
static int next_iov(const struct ps_origin_get *get, struct iovec iov[static READ_MAX_IOV])
{
	size_t skip = get->nbytes_done, room = READ_NBYTES;
	int n = 0;

	for (int i = 0; i < get->niov && n < READ_MAX_IOV && room; i++) {
		size_t len = get->iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		iov[n].iov_base = (char *)get->iov[i].iov_base + skip;
		iov[n].iov_len = PS_MIN(len - skip, room);
		room -= iov[n++].iov_len;
		skip = 0;
	}
	return n;
}

static bool is_cancelled(struct ps_file *file, struct ps_transfer_work *work)
{
	PS_LOCK_SCOPE(&file->lock);
	return work->transfer.cancelled || file->aborted;
}

/* Bytes are reported only once the version was found unchanged after the read. */
static int read_part(struct ps_origin_get *get, int fd, struct ps_error *err)
{
	struct iovec iov[READ_MAX_IOV];
	struct ps_remote seen;
	struct stat st;
	ssize_t n = preadv(fd, iov, next_iov(get, iov), (off_t)(get->offset + get->nbytes_done));

	if (n < 0 && errno == EINTR)
		return 0;
	if (n < 0 || fstat(fd, &st) < 0)
		return fail(err, errno, get->url);
	file_remote(&st, &seen);
	int rc = check_version(get, &seen, err);
	if (rc)
		return rc;
	if (n == 0)
		return fail(err, EIO, get->url); /* end of file although the size has not changed */
	if (!get->first_byte_ns)
		get->first_byte_ns = PS_MAX(ps_clock_mono_ns() - get->work.submitted_ns, 1u);
	get->nbytes_done += (size_t)n;
	get->wire_nbytes += (size_t)n;
	if (get->progress)
		get->progress(get, get->nbytes_done);
	return 0;
}

static void run_get(struct ps_file *file, struct ps_origin_get *get, struct ps_error *err)
{
	ps_autofd int fd = open_file(get->url, &get->seen, err);

	if (fd < 0 || check_version(get, &get->seen, err) < 0)
		return;
	while (!err->err && get->nbytes_done < get->nbytes) {
		if (is_cancelled(file, &get->work))
			ps_error_set(err, ECANCELED, "%s: cancelled", get->url);
		else
			read_part(get, fd, err);
	}
}

/* ps_transfer_work.kind points to one of these. */
static const char kind_get, kind_head;

static void run(struct ps_file *file, struct ps_transfer_work *work)
{
	struct ps_error err = {0};
	bool cancelled = is_cancelled(file, work);

	if (cancelled)
		ps_error_set(&err, ECANCELED, "cancelled");
	if (work->kind == &kind_get) {
		struct ps_origin_get *get = PS_CONTAINER_OF(work, struct ps_origin_get, work);

		if (!cancelled)
			run_get(file, get, &err);
		get->done(get, &err);
	} else {
		struct ps_origin_head *head = PS_CONTAINER_OF(work, struct ps_origin_head, work);

		if (!cancelled) {
			ps_autofd int fd = open_file(head->url, &head->seen, &err);

			(void)fd;
		}
		head->done(head, &err);
	}
}

/* Threads ------------------------------------------------------------------------------------------------ */

static void *thread_main(void *arg)
{
	struct ps_file *file = arg;

	pthread_mutex_lock(&file->lock);
	for (;;) {
		while (ps_list_empty(&file->queue) && !file->stop) {
			file->nidle++;
			pthread_cond_wait(&file->cond, &file->lock);
			file->nidle--;
		}
		if (ps_list_empty(&file->queue))
			break;
		struct ps_transfer *t = PS_CONTAINER_OF(file->queue.next, struct ps_transfer, link);

		ps_list_remove(&t->link);
		pthread_mutex_unlock(&file->lock);
		run(file, PS_CONTAINER_OF(t, struct ps_transfer_work, transfer));
		pthread_mutex_lock(&file->lock);
	}
	pthread_mutex_unlock(&file->lock);
	return NULL;
}

/* Under the lock. Only the first start must succeed: one thread can do all jobs. */
static int thread_start(struct ps_file *file)
{
	int rc = ps_thread_start(&file->threads[file->nthreads], "ps-file", thread_main, file);

	file->nthreads += rc == 0;
	return rc;
}

static void submit(struct ps_file *file, struct ps_transfer_work *work, const void *kind)
{
	work->kind = kind;
	work->submitted_ns = ps_clock_mono_ns();
	PS_LOCK_SCOPE(&file->lock);
	/* `cancelled` is reset under the lock. So a cancel from another thread that comes before this has
	 * no effect, and there is no data race. */
	work->transfer.cancelled = false;
	ps_list_append(&file->queue, &work->transfer.link);
	if (!file->nidle && !file->stop && file->nthreads < PS_FILE_MAX_THREADS)
		thread_start(file);
	pthread_cond_signal(&file->cond);
}

/* Listing ------------------------------------------------------------------------------------------------ */

#define LINKED_MAX 16 /* how often links may show one directory */

/* A directory that a link leads to: how often. */
struct linked {
	dev_t dev;
	ino_t ino;
	unsigned times;
};

struct walk {
	struct ps_names *names;
	const char *root_url;
	struct ps_strbuf raw;  /* the path below the root; "", or ends in "/" while between entries */
	struct ps_strbuf path; /* the same as it is shown */
	struct ps_strbuf url;
	uint64_t nshown;                          /* files and directories so far */
	struct stat above[PS_LIST_MAX_DEPTH + 1]; /* the directories that lead to the present one */
	struct linked *linked;
	size_t nlinked;
};

static void cleanup_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int walk_dir(struct walk *walk, int fd, unsigned depth);

static int take_file(struct walk *walk, const struct stat *st)
{
	struct ps_listed listed = {.path = walk->path.s};

	ps_strbuf_reset(&walk->url);
	ps_strbuf_add(&walk->url, walk->root_url);
	ps_url_encode(walk->raw.s, walk->raw.len, true, &walk->url);
	if (walk->url.failed)
		return ps_names_no_memory(walk->names);
	listed.url = walk->url.s;
	file_remote(st, &listed.remote);
	walk->nshown++;
	return ps_names_add(walk->names, &listed);
}

/* A path could not be read. Names at it and below it stay as they are known, as after a web server's 403.
 * The exceptions are a dangling link and an entry that has vanished since the folder was read: these do not
 * exist. */
static int not_seen(struct walk *walk, int errnum)
{
	if (errnum != ENOENT && errnum != ENOTDIR && errnum != ELOOP) {
		walk->nshown++; /* it may have names */
		return ps_names_unread(walk->names, walk->path.s, strerror(errnum));
	}
	ps_names_warn(walk->names, walk->path.s, strerror(errnum));
	return 0;
}

/* NULL: the directory may be shown here. Otherwise the reason why not: it contains itself, or links show it too
 * often. */
static const char *why_not(struct walk *walk, const struct stat *st, unsigned depth, bool linked, int *ret_rc)
{
	struct linked *l = walk->linked;

	if (depth > PS_LIST_MAX_DEPTH)
		return "skipped: directories nested too deep";
	for (unsigned i = 0; i < depth; i++)
		if (walk->above[i].st_dev == st->st_dev && walk->above[i].st_ino == st->st_ino)
			return "skipped: a link to a directory above it";
	if (!linked)
		return NULL;
	while (l < walk->linked + walk->nlinked && (l->dev != st->st_dev || l->ino != st->st_ino))
		l++;
	if (l == walk->linked + walk->nlinked) {
		l = reallocarray(walk->linked, walk->nlinked + 1, sizeof(*l));
		if (!l) {
			*ret_rc = ps_names_no_memory(walk->names);
			return "";
		}
		walk->linked = l;
		l += walk->nlinked++;
		*l = (struct linked){.dev = st->st_dev, .ino = st->st_ino};
	}
	return l->times++ < LINKED_MAX ? NULL : "skipped: more than 16 links to one directory";
}

/* Walks a subdirectory. */
static int take_dir(struct walk *walk, int parent, const char *name, unsigned depth, bool linked)
{
	struct stat st;
	int rc = 0;

	ps_strbuf_addc(&walk->raw, '/');
	ps_strbuf_addc(&walk->path, '/');
	if (walk->path.failed || walk->raw.failed)
		return ps_names_no_memory(walk->names);
	if (!ps_names_enters(walk->names, walk->path.s))
		return 0;
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	/* Another link may be there by now. */
	int fd = linked ? open_following(parent, name, flags) : openat(parent, name, flags | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = not_seen(walk, errno);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	const char *why = why_not(walk, &st, depth, linked, &rc);
	if (why) {
		close(fd);
		if (rc == 0)
			ps_names_warn(walk->names, walk->path.s, why);
		return rc;
	}
	walk->above[depth] = st;
	return walk_dir(walk, fd, depth);
}

static int take_entry(struct walk *walk, int fd, const char *name, unsigned depth)
{
	struct stat st;

	ps_strbuf_add(&walk->raw, name);
	ps_s3_part(name, depth == 0, &walk->path);
	if (walk->path.failed || walk->raw.failed)
		return ps_names_no_memory(walk->names);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return not_seen(walk, errno);
	bool linked = S_ISLNK(st.st_mode);
	int rc = linked ? stat_following(fd, name, &st) : 0;
	if (rc == -EPERM) {
		ps_names_warn(walk->names, walk->path.s,
		        "skipped: a link that neither root nor the owner of its target has made");
		return 0;
	}
	if (rc < 0)
		return not_seen(walk, -rc);
	if (S_ISREG(st.st_mode))
		return take_file(walk, &st);
	return S_ISDIR(st.st_mode) ? take_dir(walk, fd, name, depth + 1, linked) : 0;
}

static void cut(struct ps_strbuf *b, size_t len)
{
	b->len = len;
	if (b->s)
		b->s[len] = '\0';
}

/* Walks a directory. Takes ownership of fd. */
static int walk_dir(struct walk *walk, int fd, unsigned depth)
{
	DIR *dir __attribute__((cleanup(cleanup_dir))) = fdopendir(fd);
	size_t len = walk->path.len, nraw = walk->raw.len;
	uint64_t before = walk->nshown;
	bool any = false;
	struct dirent *de;

	if (!dir) {
		close(fd);
		return ps_names_no_memory(walk->names);
	}
	while ((errno = 0, de = readdir(dir))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		any = true;
		int rc = take_entry(walk, fd, de->d_name, depth);

		if (rc)
			return rc;
		cut(&walk->path, len);
		cut(&walk->raw, nraw);
	}
	if (errno)
		return ps_error_set(walk->names->err, errno, "listing: %s: %s", ps_strbuf_peek(&walk->path),
		        strerror(errno));
	if (depth == 0 || walk->nshown > before)
		return 0;
	walk->nshown++;
	return ps_names_add_dir(walk->names, walk->path.s, !any);
}

static int list_dir(const char *url, struct ps_names *names)
{
	struct walk walk = {.names = names, .root_url = url};
	ps_autofree char *path = NULL;
	int rc = file_path(url, &path);

	if (rc)
		return ps_error_set(names->err, -rc, "%s: %s", url, strerror(-rc));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(names->err, errno, "%s: %s", path, strerror(errno));
	if (fstat(fd, &walk.above[0]) < 0) {
		rc = ps_error_set(names->err, errno, "%s: %s", path, strerror(errno));
		close(fd);
		return rc;
	}
	rc = walk_dir(&walk, fd, 0);
	free(walk.linked);
	ps_strbuf_fini(&walk.raw);
	ps_strbuf_fini(&walk.path);
	ps_strbuf_fini(&walk.url);
	return rc;
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	const struct ps_origin_source *source = &file_of(o)->source;
	ps_autopacked struct ps_packed text = {0};
	ps_autofree char *path = NULL;
	struct ps_error mine = {0};
	struct ps_names names;
	int rc;

	ps_names_init(&names, &o->lister, fn, arg, stop, err ? err : &mine);
	if (source->kind == PS_SOURCE_DIR) {
		rc = list_dir(source->canonical, &names);
	} else if (source->kind == PS_SOURCE_MANIFEST && source->canonical[0] != '@') {
		rc = file_path(source->canonical, &path);
		if (rc)
			ps_error_set(names.err, -rc, "%s: %s", source->canonical, strerror(-rc));
		else
			rc = ps_source_read_file(path, &text, names.err);
		if (rc == 0)
			rc = ps_source_expand(source, &text, NULL, NULL, &names);
	} else {
		rc = ps_source_expand(source, NULL, NULL, NULL, &names);
	}
	ps_names_fini(&names);
	return rc;
}

/* The origin --------------------------------------------------------------------------------------------- */

static void head(struct ps_origin *o, struct ps_origin_head *h)
{
	h->seen = PS_REMOTE_UNKNOWN;
	submit(file_of(o), &h->work, &kind_head);
}

static void get(struct ps_origin *o, struct ps_origin_get *g)
{
	g->nbytes_done = 0;
	g->wire_nbytes = g->first_byte_ns = 0;
	g->seen = PS_REMOTE_UNKNOWN;
	submit(file_of(o), &g->work, &kind_get);
}

static void cancel(struct ps_origin *o, struct ps_origin_get *g)
{
	PS_LOCK_SCOPE(&file_of(o)->lock);
	g->work.transfer.cancelled = true;
}

static void abort_all(struct ps_origin *o)
{
	PS_LOCK_SCOPE(&file_of(o)->lock);
	file_of(o)->aborted = true;
}

static void file_close(struct ps_origin *o)
{
	struct ps_file *file = file_of(o);

	pthread_mutex_lock(&file->lock);
	file->aborted = file->stop = true;
	pthread_cond_broadcast(&file->cond);
	pthread_mutex_unlock(&file->lock);
	for (unsigned i = 0; i < file->nthreads; i++)
		pthread_join(file->threads[i], NULL);
	pthread_cond_destroy(&file->cond);
	pthread_mutex_destroy(&file->lock);
	ps_source_fini(&file->source);
	free(file);
}

static const struct ps_origin_ops file_ops = {
        .name = "file",
        .list = list,
        .head = head,
        .get = get,
        .cancel = cancel,
        .abort = abort_all,
        .close = file_close,
};

int ps_file_open(struct ps_origin_source *source, struct ps_origin **ret, struct ps_error *err)
{
	struct ps_file *file = calloc(1, sizeof(*file));

	if (!file) {
		ps_source_fini(source);
		return ps_no_memory(err);
	}
	file->origin.ops = &file_ops;
	file->origin.local = true;
	file->source = *source;
	*source = (struct ps_origin_source){0};
	pthread_mutex_init(&file->lock, NULL);
	pthread_cond_init(&file->cond, NULL);
	ps_list_init(&file->queue);
	pthread_mutex_lock(&file->lock);
	int rc = thread_start(file);
	pthread_mutex_unlock(&file->lock);
	if (rc) {
		file_close(&file->origin);
		return ps_error_set(err, -rc, "cannot start a thread: %s", strerror(-rc));
	}
	*ret = &file->origin;
	return 0;
}
