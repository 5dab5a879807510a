#include "tests/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Fields of eight bytes each; tests/fs/daemon/torturer.py writes the same layout. */
static struct faults {
	struct kind {
		_Atomic int64_t first, last, errnum, count, hit;
	} kinds[FAULTS_NKINDS];
	_Atomic int64_t clock_off_s, trickles;
} own, *faults = &own;
static _Atomic unsigned ntrickled;

/* Maps the file that PENSTOCK_FAULTS names: through it another process controls the faults of a daemon. */
__attribute__((constructor)) static void share(void)
{
	const char *path = getenv("PENSTOCK_FAULTS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		faults = p;
	close(fd);
}

static void set(enum faults_kind kind, long first, long last, int errnum)
{
	faults->kinds[kind].first = faults->kinds[kind].last = 0;
	faults->kinds[kind].hit = false;
	faults->kinds[kind].errnum = errnum;
	faults->kinds[kind].count = 0;
	faults->kinds[kind].last = last;
	faults->kinds[kind].first = first;
}

void faults_end(void)
{
	for (int i = 0; i < FAULTS_NKINDS; i++)
		faults->kinds[i].first = faults->kinds[i].last = 0;
	faults->trickles = false;
	faults->clock_off_s = 0;
}

void faults_fail(enum faults_kind kind, long nth, int errnum)
{
	set(kind, nth, nth, errnum);
}

void faults_fail_from(enum faults_kind kind, long nth, int errnum)
{
	set(kind, nth, INT32_MAX, errnum);
}

long faults_count(enum faults_kind kind)
{
	return faults->kinds[kind].count;
}

bool faults_hit(enum faults_kind kind)
{
	return faults->kinds[kind].hit;
}

void faults_trickle(bool on)
{
	faults->trickles = on;
}

void faults_step_clock(int64_t seconds)
{
	faults->clock_off_s = seconds;
}

long faults_next(long nth)
{
	const char *all = getenv("PENSTOCK_TEST_LONG");

	return nth + 1 + (all && *all == '1' ? 0 : nth / 16);
}

static bool fails(enum faults_kind kind)
{
	struct kind *k = &faults->kinds[kind];
	int64_t n = ++k->count;

	if (!k->first || n < k->first || n > k->last)
		return false;
	k->hit = true;
	errno = (int)k->errnum;
	return true;
}

/* How many of n bytes a call moves; 0: the call is interrupted. */
static size_t some_of(size_t n)
{
	unsigned turn;

	if (!faults->trickles || n <= 1)
		return n;
	turn = ++ntrickled;
	errno = EINTR;
	return turn % 3 == 0 ? 0 : turn % 3 == 1 ? n / 2 + 1 : n < 5000 ? n : 4097;
}

/* Memory ------------------------------------------------------------------------------------------------- */

#define MEMORY(name, parameters, arguments)                                       \
	void *__real_##name parameters;                                           \
	void *__wrap_##name parameters;                                           \
	void *__wrap_##name parameters                                            \
	{                                                                         \
		return fails(FAULTS_ALLOCATION) ? NULL : __real_##name arguments; \
	}

MEMORY(malloc, (size_t nbytes), (nbytes))
MEMORY(calloc, (size_t n, size_t size), (n, size))
MEMORY(realloc, (void *p, size_t nbytes), (p, nbytes))
MEMORY(reallocarray, (void *p, size_t n, size_t size), (p, n, size))
MEMORY(aligned_alloc, (size_t align, size_t nbytes), (align, nbytes))

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
	return fails(FAULTS_ALLOCATION) ? NULL : __real_strdup(text);
}

char *__real_strndup(const char *text, size_t n);
char *__wrap_strndup(const char *text, size_t n);
char *__wrap_strndup(const char *text, size_t n)
{
	return fails(FAULTS_ALLOCATION) ? NULL : __real_strndup(text, n);
}

/* Bytes -------------------------------------------------------------------------------------------------- */

#define MOVE(kind, name, parameters, ...)                            \
	ssize_t __real_##name parameters;                            \
	ssize_t __wrap_##name parameters;                            \
	ssize_t __wrap_##name parameters                             \
	{                                                            \
		size_t some;                                         \
                                                                     \
		if (fails(kind))                                     \
			return -1;                                   \
		some = some_of(n);                                   \
		return some || !n ? __real_##name(__VA_ARGS__) : -1; \
	}

MOVE(FAULTS_READ, read, (int fd, void *to, size_t n), fd, to, some)
MOVE(FAULTS_READ, pread, (int fd, void *to, size_t n, off_t at), fd, to, some, at)
MOVE(FAULTS_WRITE, write, (int fd, const void *from, size_t n), fd, from, some)
MOVE(FAULTS_WRITE, pwrite, (int fd, const void *from, size_t n, off_t at), fd, from, some, at)

ssize_t __real_preadv(int fd, const struct iovec *parts, int nparts, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *parts, int nparts, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *parts, int nparts, off_t at)
{
	size_t some;

	if (fails(FAULTS_READ))
		return -1;
	if (!faults->trickles || nparts == 0)
		return __real_preadv(fd, parts, nparts, at);
	some = some_of(parts[0].iov_len);
	if (!some && parts[0].iov_len)
		return -1;
	/* At times all of the first part and half of the second. */
	if (some == parts[0].iov_len && nparts > 1) {
		struct iovec two[2] = {parts[0], parts[1]};

		two[1].iov_len = two[1].iov_len / 2;
		return __real_preadv(fd, two, 2, at);
	}
	return __real_preadv(fd, &(struct iovec){parts[0].iov_base, some}, 1, at);
}

#define MESSAGE(kind, name, type)                                                             \
	ssize_t __real_##name(int fd, type msg, int flags);                                   \
	ssize_t __wrap_##name(int fd, type msg, int flags);                                   \
	ssize_t __wrap_##name(int fd, type msg, int flags)                                    \
	{                                                                                     \
		struct msghdr some = *msg;                                                    \
		struct iovec part = msg->msg_iov[0];                                          \
                                                                                              \
		if (fails(kind) || (part.iov_len && !(part.iov_len = some_of(part.iov_len)))) \
			return -1;                                                            \
		if (!faults->trickles)                                                        \
			return __real_##name(fd, msg, flags);                                 \
		some.msg_iov = &part;                                                         \
		ssize_t n = __real_##name(fd, &some, flags);                                  \
		update(msg, &some);                                                           \
		return n;                                                                     \
	}

static void update_nothing(const struct msghdr *msg, const struct msghdr *some)
{
	(void)msg, (void)some;
}

static void update_lengths(struct msghdr *msg, const struct msghdr *some)
{
	msg->msg_controllen = some->msg_controllen;
	msg->msg_flags = some->msg_flags;
}

#define update update_nothing
MESSAGE(FAULTS_WRITE, sendmsg, const struct msghdr *)
#undef update
#define update update_lengths
MESSAGE(FAULTS_READ, recvmsg, struct msghdr *)
#undef update

#define CALL(kind, name, parameters, arguments)                    \
	int __real_##name parameters;                              \
	int __wrap_##name parameters;                              \
	int __wrap_##name parameters                               \
	{                                                          \
		return fails(kind) ? -1 : __real_##name arguments; \
	}

CALL(FAULTS_WRITE, ftruncate, (int fd, off_t size), (fd, size))
CALL(FAULTS_WRITE, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
CALL(FAULTS_SYNC, fdatasync, (int fd), (fd))
CALL(FAULTS_SYNC, fsync, (int fd), (fd))
CALL(FAULTS_SYNC, syncfs, (int fd), (fd))

/* Time --------------------------------------------------------------------------------------------------- */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int rc = __real_clock_gettime(id, ret);

	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		ret->tv_sec += faults->clock_off_s;
	return rc;
}

time_t __real_time(time_t *ret);
time_t __wrap_time(time_t *ret);
time_t __wrap_time(time_t *ret)
{
	time_t now = __real_time(NULL) + faults->clock_off_s;

	if (ret)
		*ret = now;
	return now;
}
