#include "origin/origin_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/url.h"
#include "listing/listing.h"

#define PS_FILE_MAX_THREADS 8

/* Lists the objects of a file source; see struct ps_origin_ops.list. */
static int ps_file_list(struct ps_origin *o, const struct ps_origin_source *source, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

/* Converts a URL to a path: "file:///a%20b" to "/a b". -EINVAL, -ENOMEM. */
static int ps_file_path(const char *url, char **ret) PS_MUST_USE;

struct stat;
/* The size and version of a file. */
static void ps_file_remote(const struct stat *st, struct ps_remote *ret);

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

static int ps_file_path(const char *url, char **ret)
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

static void ps_file_remote(const struct stat *st, struct ps_remote *ret)
{
	*ret = PS_REMOTE_UNKNOWN;
	ret->size = (uint64_t)st->st_size;
	ret->mtime_s = st->st_mtim.tv_sec;
	snprintf(ret->etag, sizeof(ret->etag), "\"%" PRIx64 "-%" PRIx64 ".%09ld-%" PRIx64 "\"",
	        (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
	        (uint64_t)st->st_ino);
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
	int rc = ps_file_path(url, &path);

	if (rc)
		return fail(err, -rc, url);
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(err, errno, path);
	if (!S_ISREG(st.st_mode))
		return fail(err, ENOENT, path);
	ps_file_remote(&st, seen);
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
	ps_file_remote(&st, &seen);
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

/* The origin --------------------------------------------------------------------------------------------- */

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	return ps_file_list(o, &file_of(o)->source, fn, arg, stop, err);
}

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
		return ps_error_set(err, ENOMEM, "out of memory");
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

/* Listing ------------------------------------------------------------------------------------------------ */

struct walk {
	struct ps_names *names;
	const char *root_url;
	struct ps_strbuf path; /* below the root; "", or ends in "/" while between entries */
	struct ps_strbuf url;
};

static void cleanup_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int out_of_memory(struct ps_names *names)
{
	return ps_error_set(names->err, ENOMEM, "listing: out of memory");
}

static int walk_dir(struct walk *walk, int fd, unsigned depth);

static int take_file(struct walk *walk, const struct stat *st)
{
	struct ps_listed listed = {.path = walk->path.s};

	ps_strbuf_reset(&walk->url);
	ps_strbuf_add(&walk->url, walk->root_url);
	ps_url_encode(walk->path.s, walk->path.len, true, &walk->url);
	if (walk->url.failed)
		return out_of_memory(walk->names);
	listed.url = walk->url.s;
	ps_file_remote(st, &listed.remote);
	return ps_names_add(walk->names, &listed);
}

/* A path could not be read. Names at it and below it stay as they are known, as after a web server's 403.
 * The exceptions are a dangling link and an entry that has vanished since the folder was read: these do not
 * exist. */
static int not_seen(struct walk *walk, int errnum)
{
	if (errnum != ENOENT && errnum != ENOTDIR && errnum != ELOOP)
		return ps_names_unread(walk->names, walk->path.s, strerror(errnum));
	ps_names_warn(walk->names, walk->path.s, strerror(errnum));
	return 0;
}

/* Walks a subdirectory. */
static int take_dir(struct walk *walk, int parent, const char *name, unsigned depth)
{
	ps_strbuf_addc(&walk->path, '/');
	if (walk->path.failed)
		return out_of_memory(walk->names);
	if (!ps_names_enters(walk->names, walk->path.s))
		return 0;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return not_seen(walk, errno);
	if (depth > PS_LIST_MAX_DEPTH) {
		close(fd);
		ps_names_warn(walk->names, walk->path.s, "skipped: directories nested too deep");
		return 0;
	}
	return walk_dir(walk, fd, depth);
}

static int take_entry(struct walk *walk, int fd, const char *name, unsigned depth)
{
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	ps_strbuf_add(&walk->path, name);
	if (walk->path.failed)
		return out_of_memory(walk->names);
	/* A link to a file counts as a file. A link to a directory could be a loop and is left out. */
	if (fstatat(fd, name, &st, 0) < 0)
		return not_seen(walk, errno);
	if (S_ISREG(st.st_mode))
		return take_file(walk, &st);
	if (!S_ISDIR(st.st_mode) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	return take_dir(walk, fd, name, depth + 1);
}

/* Walks a directory. Takes ownership of fd. */
static int walk_dir(struct walk *walk, int fd, unsigned depth)
{
	DIR *dir __attribute__((cleanup(cleanup_dir))) = fdopendir(fd);
	size_t len = walk->path.len;
	struct dirent *de;

	if (!dir) {
		close(fd);
		return out_of_memory(walk->names);
	}
	while ((errno = 0, de = readdir(dir))) {
		int rc = take_entry(walk, fd, de->d_name, depth);

		if (rc)
			return rc;
		walk->path.len = len;
		if (walk->path.s)
			walk->path.s[len] = '\0';
	}
	if (errno)
		return ps_error_set(walk->names->err, errno, "listing: %s: %s", ps_strbuf_peek(&walk->path),
		        strerror(errno));
	return 0;
}

static int list_dir(const char *url, struct ps_names *names)
{
	struct walk walk = {.names = names, .root_url = url};
	ps_autofree char *path = NULL;
	int rc = ps_file_path(url, &path);

	if (rc)
		return ps_error_set(names->err, -rc, "%s: %s", url, strerror(-rc));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ps_error_set(names->err, errno, "%s: %s", path, strerror(errno));
	rc = walk_dir(&walk, fd, 0);
	ps_strbuf_fini(&walk.path);
	ps_strbuf_fini(&walk.url);
	return rc;
}

/* Reads a manifest that is given by a file:// URL, in the same way as a local @list.txt. */
static int list_manifest(const struct ps_origin_source *source, struct ps_names *names)
{
	ps_autopacked struct ps_packed text = {0};

	ps_autofree char *path = NULL;
	int rc;

	if (ps_source_is_local_list(source)) {
		rc = ps_source_read_list(source, &text, names->err);
		return rc ? rc : ps_source_expand(source, &text, NULL, NULL, names);
	}
	rc = ps_file_path(source->canonical, &path);
	if (rc)
		return ps_error_set(names->err, -rc, "%s: %s", source->canonical, strerror(-rc));
	rc = ps_source_read_file(path, &text, names->err);
	return rc ? rc : ps_source_expand(source, &text, NULL, NULL, names);
}

static int ps_file_list(struct ps_origin *o, const struct ps_origin_source *source, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_names names;
	struct ps_error mine = {0};
	int rc;

	ps_names_init(&names, &o->lister, fn, arg, stop, err ? err : &mine);
	if (source->kind == PS_SOURCE_DIR)
		rc = list_dir(source->canonical, &names);
	else if (source->kind == PS_SOURCE_MANIFEST)
		rc = list_manifest(source, &names);
	else
		rc = ps_source_expand(source, NULL, NULL, NULL, &names);
	ps_names_fini(&names);
	return rc;
}
