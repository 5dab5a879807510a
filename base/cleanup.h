/* Cleanup of locals by attribute, and transfer of ownership by stealing.
 *
 *   ps_autofree char *name = strdup(s);     freed when it goes out of scope
 *   ps_autofd int fd = open(...);           closed when it goes out of scope
 *   PS_LOCK_SCOPE(&cache->lock);            unlocked at the end of the enclosing block
 *   return ps_steal_ptr(&name);             the caller now owns it
 */
#ifndef PS_BASE_CLEANUP_H
#define PS_BASE_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static inline void ps_cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void ps_cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline pthread_mutex_t *ps_cleanup_lock(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

static inline void ps_cleanup_unlock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

#define ps_autofree __attribute__((cleanup(ps_cleanup_free)))
#define ps_autofd __attribute__((cleanup(ps_cleanup_fd)))

#define PS_CONCAT_(a, b) a##b
#define PS_CONCAT(a, b) PS_CONCAT_(a, b)
#define PS_LOCK_SCOPE(lock)                             \
	pthread_mutex_t *PS_CONCAT(ps_scope_, __LINE__) \
	        __attribute__((cleanup(ps_cleanup_unlock), unused)) = ps_cleanup_lock(lock)

#define ps_steal_ptr(p)                             \
	({                                          \
		__typeof__(*(p)) ps_stolen_ = *(p); \
		*(p) = NULL;                        \
		ps_stolen_;                         \
	})

static inline int ps_steal_fd(int *fd)
{
	int stolen = *fd;
	*fd = -1;
	return stolen;
}

#define PS_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define PS_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PS_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PS_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define PS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define PS_MUST_USE __attribute__((warn_unused_result))

#endif
