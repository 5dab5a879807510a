#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <stdlib.h>

/* Samples of a shard, ordinals `from` to `to` - 1, that a wrong checksum covers. */
struct run {
	uint32_t shard;
	off_t size;
	struct timespec mtime, ctime;
	uint64_t from, to;
};

static bool is_of(const struct run *run, const struct ps_shard_file *file)
{
	return run->shard == file->shard && run->size == file->was.st_size &&
	       run->mtime.tv_sec == file->was.st_mtim.tv_sec &&
	       run->mtime.tv_nsec == file->was.st_mtim.tv_nsec &&
	       run->ctime.tv_sec == file->was.st_ctim.tv_sec &&
	       run->ctime.tv_nsec == file->was.st_ctim.tv_nsec;
}

void ps_shard_sums_init(struct ps_shard_sums *sums)
{
	pthread_mutex_init(&sums->lock, NULL);
	atomic_init(&sums->n, 0);
	sums->runs = (struct ps_buf){0};
}

void ps_shard_sums_fini(struct ps_shard_sums *sums)
{
	ps_buf_fini(&sums->runs);
	pthread_mutex_destroy(&sums->lock);
}

static struct run *runs_of(const struct ps_shard_sums *sums)
{
	return (struct run *)(void *)sums->runs.p;
}

int ps_shard_sums_add(
        struct ps_shard_sums *sums, const struct ps_shard_file *file, uint64_t from, uint64_t to)
{
	struct run run = {.shard = file->shard,
	        .size = file->was.st_size,
	        .mtime = file->was.st_mtim,
	        .ctime = file->was.st_ctim,
	        .from = from,
	        .to = to};

	PS_LOCK_SCOPE(&sums->lock);
	for (size_t i = 0; i < sums->n; i++) {
		struct run *old = &runs_of(sums)[i];

		if (!is_of(old, file) || to < old->from || from > old->to)
			continue;
		old->from = PS_MIN(old->from, from);
		old->to = PS_MAX(old->to, to);
		return 0;
	}
	if (ps_buf_add(&sums->runs, &run, sizeof(run)) < 0)
		return -ENOMEM;
	atomic_fetch_add(&sums->n, 1);
	return 0;
}

bool ps_shard_sums_has(struct ps_shard_sums *sums, const struct ps_shard_file *file, uint64_t ordinal)
{
	if (atomic_load_explicit(&sums->n, memory_order_relaxed) == 0)
		return false;
	PS_LOCK_SCOPE(&sums->lock);
	for (size_t i = 0; i < sums->n; i++) {
		const struct run *run = &runs_of(sums)[i];

		if (is_of(run, file) && ordinal >= run->from && ordinal < run->to)
			return true;
	}
	return false;
}
