#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "shard/file/file.h"

#define MAX_UNPACKED (UINT64_C(1) << 30) /* where there is no budget */

void ps_shard_file_ref(struct ps_shard_file *file, uint32_t n)
{
	atomic_fetch_add_explicit(&file->refs, n, memory_order_relaxed);
}

static _Atomic uint64_t nkept; /* kept files of all loaders: they share the process's limit of descriptors */

void ps_shard_file_unref(struct ps_shard_file *file, uint32_t n)
{
	/* acq_rel: the freeing thread sees the writes of all others */
	if (n == 0 || atomic_fetch_sub_explicit(&file->refs, n, memory_order_acq_rel) != n)
		return;
	if (file->fd >= 0) {
		close(file->fd);
		atomic_fetch_sub_explicit(&nkept, 1, memory_order_relaxed);
	}
	free(file);
}

int ps_shard_file_keep(struct ps_shard_file *file, int fd)
{
	struct rlimit limit;
	struct stat was;
	uint64_t most = UINT64_MAX;

	if (file->fd >= 0 || file->again)
		return 0;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		most = limit.rlim_cur / 4;
	if (atomic_fetch_add_explicit(&nkept, 1, memory_order_relaxed) >= most && fstat(fd, &was) == 0 &&
	        S_ISREG(was.st_mode)) {
		file->was = was;
		file->again = true;
	} else {
		file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	}
	if (file->fd < 0)
		atomic_fetch_sub_explicit(&nkept, 1, memory_order_relaxed);
	return file->fd >= 0 || file->again ? 0 : -1;
}

int ps_shard_file_open(const struct ps_shard_file *file, int *ret_own, struct ps_error *err)
{
	const struct stat *was = &file->was;
	struct stat is;

	if (!file->again)
		return file->fd;
	*ret_own = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*ret_own < 0 || fstat(*ret_own, &is) < 0)
		return ps_error_set(err, errno, "%s: cannot open again: %s", file->path, strerror(errno));
	if (is.st_dev != was->st_dev || is.st_ino != was->st_ino || is.st_size != was->st_size ||
	        is.st_mtim.tv_sec != was->st_mtim.tv_sec || is.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
		return ps_error_set(err, ESTALE, "%s: the shard was replaced while it was read", file->path);
	return *ret_own;
}

struct ps_sample_field *ps_sample_find(struct ps_sample *s, const char *suffix, size_t len)
{
	for (uint32_t i = 0; i < s->nfields; i++)
		if (s->fields[i].suffix_len == len && memcmp(s->fields[i].suffix, suffix, len) == 0)
			return &s->fields[i];
	return NULL;
}

static int field_read(struct ps_sample *s, struct ps_sample_field *f, struct ps_error *err)
{
	ps_autofree uint8_t *data = NULL;
	ps_autofd int own = -1;
	ssize_t got;
	int fd;

	if (f->data || f->size == 0)
		return 0;
	if (f->size > SIZE_MAX || !(data = malloc((size_t)f->size)))
		return ps_error_set(err, ENOMEM, "no memory for a field of %ju bytes", (uintmax_t)f->size);
	fd = ps_shard_file_open(s->file, &own, err);
	if (s->file->again && fd < 0)
		return fd;
	got = ps_pread_all(fd, data, (size_t)f->size, f->offset);
	if (got < 0)
		return ps_error_set(
		        err, (int)-got, "cannot read field %s again: %s", f->suffix, strerror((int)-got));
	if ((size_t)got < f->size)
		return ps_error_set(err, EBADMSG, "the shard became shorter while it was read");
	if (s->budget)
		ps_byte_budget_force(s->budget, f->size);
	f->data = ps_steal_ptr(&data);
	f->owned = true;
	return 0;
}

int ps_sample_load(struct ps_sample *s, struct ps_sample_field *f, struct ps_error *err)
{
	struct ps_buf bytes = {0};
	int rc = field_read(s, f, err);

	if (rc < 0 || !f->packed)
		return rc;
	rc = ps_unpack(f->data ? f->data : (const uint8_t *)"", f->data ? (size_t)f->size : 0,
	        s->budget ? s->budget->limit : MAX_UNPACKED, &bytes, err);
	if (rc < 0) {
		ps_buf_fini(&bytes);
		return rc;
	}
	ps_sample_drop(s, f);
	if (s->budget)
		ps_byte_budget_force(s->budget, bytes.n);
	f->data = bytes.p;
	f->size = bytes.n;
	f->owned = true;
	f->packed = false;
	return 0;
}

bool ps_errno_is_lost(int errnum)
{
	static const int lost[] = {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EACCES, EPERM, EIO,
	        EREMOTEIO, ENXIO, ENODEV, ENOTCONN, ESTALE, ETIMEDOUT, ECONNREFUSED, ECONNRESET, ECONNABORTED,
	        EHOSTUNREACH, ENETUNREACH, ENETDOWN};

	for (size_t i = 0; i < PS_ARRAY_LEN(lost); i++)
		if (errnum == lost[i])
			return true;
	return false;
}

/* The last n bytes or fewer, from the start of a UTF-8 character. */
static const char *tail(const char *text, size_t n)
{
	size_t len = strlen(text);

	if (len <= n)
		return text;
	text += len - n;
	while (((unsigned char)*text & 0xc0) == 0x80)
		text++;
	return text;
}

int ps_sample_error_set(struct ps_error *err, const struct ps_sample *s, const char *reason)
{
	enum { MOST = 240 };
	const char *path = tail(s->file->path, MOST), *key = tail(s->key, MOST);
	const char *path_cut = path == s->file->path ? "" : "...", *key_cut = key == s->key ? "" : "...";

	if (s->key_len == 0)
		ps_error_set(err, EBADMSG, "%s%s: at offset %ju: %s", path_cut, path, (uintmax_t)s->offset,
		        reason);
	else
		ps_error_set(err, EBADMSG, "%s%s: sample \"%s%s\" at offset %ju: %s", path_cut, path, key_cut,
		        key, (uintmax_t)s->offset, reason);
	err->cause = PS_CAUSE_SAMPLE;
	err->shard = s->file->path;
	err->key = s->key_len > 0 ? s->key : NULL;
	err->offset = s->offset;
	return -EBADMSG;
}

void ps_sample_drop(struct ps_sample *s, struct ps_sample_field *f)
{
	uint8_t *data = ps_steal_ptr(&f->data);

	if (!data || !f->owned)
		return;
	if (s->budget)
		ps_byte_budget_give(s->budget, f->size);
	free(data);
}

void ps_sample_piece_drop(struct ps_sample *s)
{
	ps_token_piece_unref(ps_steal_ptr(&s->piece));
}

struct ps_sample *ps_sample_copy(const struct ps_sample *s)
{
	size_t head = sizeof(*s) + s->nfields * sizeof(*s->fields), nbytes = head + s->names_nbytes;
	struct ps_sample *copy = calloc(1, nbytes);
	char *names = (char *)copy + head;

	if (!copy)
		return NULL;
	*copy = *s;
	copy->slab = NULL;
	copy->in_slab = false;
	copy->own_nbytes = nbytes;
	copy->reason = NULL;
	copy->nfields = 0;
	ps_shard_file_ref(copy->file, 1);
	if (copy->piece)
		ps_token_piece_ref(copy->piece);
	if (copy->budget)
		ps_byte_budget_force(copy->budget, nbytes);
	copy->key = memcpy(names, s->key, s->names_nbytes);
	if (s->reason && !(copy->reason = strdup(s->reason)))
		goto fail;
	for (uint32_t i = 0; i < s->nfields; i++) {
		struct ps_sample_field *f = &copy->fields[copy->nfields++];

		*f = s->fields[i];
		f->data = NULL;
		f->suffix = names + (f->suffix - s->key);
		if (!s->fields[i].data)
			continue;
		f->data = malloc((size_t)PS_MAX(f->size, 1u));
		if (!f->data)
			goto fail;
		f->owned = true;
		memcpy(f->data, s->fields[i].data, (size_t)f->size);
		if (copy->budget)
			ps_byte_budget_force(copy->budget, f->size);
	}
	return copy;
fail:
	ps_sample_free(copy);
	return NULL;
}

void ps_sample_free(struct ps_sample *s)
{
	struct ps_slab *slab;

	if (!s)
		return;
	for (uint32_t i = 0; i < s->nfields; i++)
		ps_sample_drop(s, &s->fields[i]);
	ps_sample_piece_drop(s);
	if (s->budget && s->own_nbytes)
		ps_byte_budget_give(s->budget, s->own_nbytes);
	ps_shard_file_unref(s->file, 1);
	free(s->reason);
	slab = s->slab;
	if (!s->in_slab)
		free(s);
	ps_slab_put(slab);
}

/* Slabs -------------------------------------------------------------------------------------------------- */

#define ALIGN 16
#define AHEAD 4096 /* references taken at once */

struct ps_slab {
	_Atomic uint32_t refs; /* references of the users, references in hand, and the maker's own */
	/* references that the maker took ahead, to save an atomic operation for each user */
	uint32_t in_hand;
	uint32_t used; /* bytes used; only the maker accesses it */
	struct ps_slab_pool *pool;
	struct ps_byte_budget *budget;
	struct ps_slab *next; /* the next slab of the pool */
	_Alignas(ALIGN) uint8_t bytes[];
};

#define ROOM (PS_SLAB_NBYTES - sizeof(struct ps_slab))

void ps_slab_pool_init(struct ps_slab_pool *pool, uint32_t keep)
{
	*pool = (struct ps_slab_pool){.keep = keep};
	pthread_mutex_init(&pool->lock, NULL);
}

void ps_slab_pool_fini(struct ps_slab_pool *pool)
{
	while (pool->free) {
		struct ps_slab *slab = pool->free;

		pool->free = slab->next;
		free(slab);
	}
	pthread_mutex_destroy(&pool->lock);
}

struct ps_slab *ps_slab_new(struct ps_slab_pool *pool, struct ps_byte_budget *budget)
{
	struct ps_slab *slab = NULL;

	if (budget && !ps_byte_budget_take(budget, PS_SLAB_NBYTES))
		return NULL;
	if (pool) {
		PS_LOCK_SCOPE(&pool->lock);
		slab = pool->free;
		if (slab) {
			pool->free = slab->next;
			pool->nfree--;
		}
	}
	if (!slab)
		slab = malloc(PS_SLAB_NBYTES);
	if (!slab) {
		if (budget)
			ps_byte_budget_give(budget, PS_SLAB_NBYTES);
		return NULL;
	}
	atomic_init(&slab->refs, 1 + AHEAD);
	slab->in_hand = AHEAD;
	slab->used = 0;
	slab->pool = pool;
	slab->budget = budget;
	return slab;
}

void *ps_slab_take(struct ps_slab *slab, size_t n)
{
	uint8_t *p = slab->bytes + slab->used;

	if (n > ROOM - slab->used)
		return NULL;
	slab->used += (uint32_t)PS_MIN((n + ALIGN - 1) & ~(size_t)(ALIGN - 1), ROOM - slab->used);
	return p;
}

size_t ps_slab_used(const struct ps_slab *slab)
{
	return slab->used;
}

void ps_slab_rewind(struct ps_slab *slab, size_t used)
{
	slab->used = (uint32_t)used;
}

void ps_slab_share(struct ps_slab *slab)
{
	if (slab->in_hand == 0) {
		atomic_fetch_add_explicit(&slab->refs, AHEAD, memory_order_relaxed);
		slab->in_hand = AHEAD;
	}
	slab->in_hand--;
}

/* Drops n references; the last one frees the slab, or gives it to its pool. */
static void refs_drop(struct ps_slab *slab, uint32_t n)
{
	struct ps_slab_pool *pool = slab->pool;

	/* acq_rel: the freeing thread sees the writes of all others */
	if (atomic_fetch_sub_explicit(&slab->refs, n, memory_order_acq_rel) != n)
		return;
	if (slab->budget)
		ps_byte_budget_give(slab->budget, PS_SLAB_NBYTES);
	if (pool) {
		PS_LOCK_SCOPE(&pool->lock);
		if (pool->nfree < pool->keep) {
			slab->next = pool->free;
			pool->free = slab;
			pool->nfree++;
			return;
		}
	}
	free(slab);
}

void ps_slab_retire(struct ps_slab *slab)
{
	if (slab)
		refs_drop(slab, slab->in_hand + 1);
}

void ps_slab_put(struct ps_slab *slab)
{
	if (slab)
		refs_drop(slab, 1);
}
