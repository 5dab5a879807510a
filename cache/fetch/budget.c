#include "fetch/budget.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/figures.h"
#include "base/size.h"

/* An arena has the size of a huge page: one page fault instead of 512, and one page to pin for the disk. */
#define ARENA_BUFS 2
#define ARENA_NBYTES (ARENA_BUFS * PS_BLOCK_SIZE)

struct ps_arena {
	uint8_t *data;
	unsigned nfree;
	struct ps_block_memory bufs[ARENA_BUFS];
};

struct ps_budget {
	_Atomic size_t limit; /* in buffers; lowered under the lock */
	pthread_mutex_t lock; /* protects what follows */
	size_t used, peak;
	struct ps_block_memory *free; /* the unused buffers */
};

struct ps_budget *ps_budget_new(uint64_t nbytes)
{
	struct ps_budget *budget = calloc(1, sizeof(*budget));

	if (!budget)
		return NULL;
	budget->limit = PS_MAX(nbytes / PS_BLOCK_SIZE, PS_BUDGET_MIN_BLOCKS);
	pthread_mutex_init(&budget->lock, NULL);
	return budget;
}

static uint8_t *map_aligned(void)
{
	/* mmap, not malloc, because munmap returns the memory to the system. */
	uint8_t *map =
	        mmap(NULL, 2 * ARENA_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	size_t before = (size_t)(-(uintptr_t)map % ARENA_NBYTES);
	if (before)
		munmap(map, before);
	if (before < ARENA_NBYTES)
		munmap(map + before + ARENA_NBYTES, ARENA_NBYTES - before);
	(void)madvise(map + before, ARENA_NBYTES, MADV_HUGEPAGE); /* on failure, small pages are used */
	return map + before;
}

/* Adds an arena of unused buffers. The lock is held. */
static bool add_arena(struct ps_budget *budget)
{
	struct ps_arena *arena = calloc(1, sizeof(*arena));

	if (!arena || !(arena->data = map_aligned())) {
		free(arena);
		return false;
	}
	for (unsigned i = ARENA_BUFS; i-- > 0;) {
		arena->bufs[i] = (struct ps_block_memory){.data = arena->data + i * PS_BLOCK_SIZE,
		        .budget = budget,
		        .arena = arena,
		        .next_free = budget->free};
		budget->free = &arena->bufs[i];
	}
	arena->nfree = ARENA_BUFS;
	return true;
}

void ps_budget_give_up(struct ps_budget *budget, uint64_t nbytes)
{
	size_t n = (size_t)(nbytes / PS_BLOCK_SIZE);

	PS_LOCK_SCOPE(&budget->lock);
	budget->limit = PS_MAX(budget->limit > n ? budget->limit - n : 0, (size_t)PS_BUDGET_MIN_BLOCKS);
}

void ps_budget_free(struct ps_budget *budget)
{
	if (!budget)
		return;
	ps_budget_trim(budget);
	pthread_mutex_destroy(&budget->lock);
	free(budget);
}

static uint64_t read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned long long value = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%llu", &value) != 1)
		value = 0; /* "max" */
	fclose(f);
	return value;
}

/* The smallest memory limit of this process's cgroup and its ancestors; 0: none. */
static uint64_t cgroup_limit(void)
{
	char line[4096], path[4200];
	uint64_t limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return limit;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (char *cut = line + strlen(line); cut; cut = strrchr(line + 3, '/')) {
			*cut = '\0';
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
			uint64_t own = read_number(path);

			if (own && (!limit || own < limit))
				limit = own;
		}
	}
	fclose(f);
	return limit;
}

uint64_t ps_budget_default_bytes(void)
{
	uint64_t whole = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = cgroup_limit();

	if (limit && limit < whole)
		whole = limit;
	return PS_MIN(512 * PS_MIB, whole / 8);
}

uint64_t ps_budget_limit_bytes(const struct ps_budget *budget)
{
	return budget->limit * PS_BLOCK_SIZE;
}

size_t ps_budget_take(
        struct ps_budget *budget, enum ps_budget_class cls, size_t n, struct ps_block_memory **ret)
{
	size_t taken = 0;

	PS_LOCK_SCOPE(&budget->lock);
	size_t limit = budget->limit - budget->limit * (size_t)cls / 4;
	while (taken < n && budget->used < limit) {
		if (!budget->free && !add_arena(budget))
			break;
		struct ps_block_memory *buf = budget->free;

		budget->free = buf->next_free;
		buf->arena->nfree--;
		atomic_store(&buf->refs, 1);
		budget->used++;
		ret[taken++] = buf;
	}
	budget->peak = PS_MAX(budget->peak, budget->used);
	return taken;
}

struct ps_block_memory *ps_block_memory_ref(struct ps_block_memory *buf)
{
	atomic_fetch_add(&buf->refs, 1);
	return buf;
}

void ps_block_memory_unref(struct ps_block_memory *buf)
{
	if (!buf || atomic_fetch_sub(&buf->refs, 1) != 1)
		return;
	struct ps_budget *budget = buf->budget;
	PS_LOCK_SCOPE(&budget->lock);
	buf->next_free = budget->free;
	budget->free = buf;
	buf->arena->nfree++;
	budget->used--;
}

void ps_budget_trim(struct ps_budget *budget)
{
	struct ps_block_memory *unused = NULL;

	{
		PS_LOCK_SCOPE(&budget->lock);
		for (struct ps_block_memory **at = &budget->free; *at;) {
			struct ps_block_memory *buf = *at;

			if (buf->arena->nfree < ARENA_BUFS) { /* the arena's other buffer is in use */
				at = &buf->next_free;
				continue;
			}
			*at = buf->next_free;
			if (buf != &buf->arena->bufs[0])
				continue;
			buf->next_free = unused;
			unused = buf;
		}
	}
	while (unused) {
		struct ps_arena *arena = unused->arena; /* contains `unused` */

		unused = unused->next_free;
		munmap(arena->data, ARENA_NBYTES);
		free(arena);
	}
}

json_t *ps_budget_stats(struct ps_budget *budget)
{
	PS_LOCK_SCOPE(&budget->lock);
	return ps_figures_json(PS_SECTION_memory, NULL, "{s:I,s:I,s:I}", "limit_bytes",
	        (json_int_t)(budget->limit * PS_BLOCK_SIZE), "used_bytes",
	        (json_int_t)(budget->used * PS_BLOCK_SIZE), "peak_bytes",
	        (json_int_t)(budget->peak * PS_BLOCK_SIZE));
}
