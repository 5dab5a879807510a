#include "fuse/mount_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/secret.h"

#define HEAD_NBYTES 65536
#define CHUNK_NBYTES (PS_STATE_CHUNK * sizeof(struct ps_state_slot))
#define TEXT_AT (UINT64_C(1) << 40) /* the text of slot i: TEXT_AT + i * TEXT_MAX_NBYTES */
#define TEXT_MAX_NBYTES (UINT64_C(16) << 20)
_Static_assert(sizeof(struct ps_state_head) <= HEAD_NBYTES, "the memfd's format");

static const char magic[8] = "pskept";

struct ps_state_chunk {
	struct ps_state_slot *slots;
	void *_Atomic opens[PS_STATE_CHUNK];
};

static uint32_t index_of(uint64_t fh)
{
	return (uint32_t)fh;
}

static uint64_t word_of(uint64_t fh, enum ps_slot_state state)
{
	return (fh & ~(uint64_t)UINT32_MAX) | state;
}

/* Allocates the memory now: if there were none later, a store would raise SIGBUS. */
static void *map(struct ps_mount_state *state, uint64_t at, size_t nbytes)
{
	if (state->fd >= 0 && fallocate(state->fd, 0, (off_t)at, (off_t)nbytes) < 0)
		return NULL;
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE,
	        state->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, state->fd,
	        state->fd >= 0 ? (off_t)at : 0);
	return p == MAP_FAILED ? NULL : p;
}

static int map_chunk(struct ps_mount_state *state, uint32_t i)
{
	struct ps_state_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return -ENOMEM;
	chunk->slots = map(state, HEAD_NBYTES + i * (uint64_t)CHUNK_NBYTES, CHUNK_NBYTES);
	if (!chunk->slots) {
		free(chunk);
		return -ENOMEM;
	}
	atomic_store(&state->chunks[i], chunk);
	return 0;
}

/* The lock is held, or there is one thread. */
static int hold_free(struct ps_mount_state *state, uint32_t nchunks)
{
	uint32_t *v = realloc(state->free, nchunks * (size_t)PS_STATE_CHUNK * sizeof(*v));

	if (!v)
		return -ENOMEM;
	state->free = v;
	return 0;
}

static bool readable(const struct ps_state_head *head)
{
	return memcmp(head->magic, magic, sizeof(magic)) == 0 && head->version == PS_STATE_VERSION &&
	       head->head_nbytes == sizeof(*head) && head->slot_nbytes == sizeof(struct ps_state_slot) &&
	       head->init_nbytes <= sizeof(head->init) && atomic_load(&head->nchunks) <= PS_STATE_CHUNKS;
}

int ps_state_init(struct ps_mount_state *state, int fd)
{
	bool old = fd >= 0;
	struct stat st;

	*state = (struct ps_mount_state){.fd = old ? fd : ps_secret_memfd("penstock-mount")};
	pthread_mutex_init(&state->lock, NULL);
	state->chunks = calloc(PS_STATE_CHUNKS, sizeof(*state->chunks));
	int rc = state->chunks ? 0 : -ENOMEM;
	if (rc == 0 && old && (fstat(fd, &st) < 0 || st.st_size < HEAD_NBYTES))
		rc = -EPROTO;
	if (rc == 0 && !(state->head = map(state, 0, HEAD_NBYTES)))
		rc = -ENOMEM;
	if (rc == 0 && old && !readable(state->head))
		rc = -EPROTO;
	if (rc == 0 && !old) {
		memcpy(state->head->magic, magic, sizeof(magic));
		state->head->version = PS_STATE_VERSION;
		state->head->head_nbytes = sizeof(*state->head);
		state->head->slot_nbytes = sizeof(struct ps_state_slot);
	}
	uint32_t nchunks = rc == 0 ? atomic_load(&state->head->nchunks) : 0;
	if (nchunks > 0)
		rc = hold_free(state, nchunks);
	for (uint32_t i = 0; rc == 0 && i < nchunks; i++)
		rc = map_chunk(state, i);
	if (rc < 0)
		ps_state_fini(state);
	return rc;
}

void ps_state_fini(struct ps_mount_state *state)
{
	for (uint32_t i = 0; state->chunks && i < PS_STATE_CHUNKS && atomic_load(&state->chunks[i]); i++) {
		struct ps_state_chunk *chunk = atomic_load(&state->chunks[i]);

		munmap(chunk->slots, CHUNK_NBYTES);
		free(chunk);
	}
	free(state->chunks);
	free(state->free);
	if (state->head)
		munmap(state->head, HEAD_NBYTES);
	if (state->fd >= 0)
		close(state->fd);
	pthread_mutex_destroy(&state->lock);
	*state = (struct ps_mount_state){.fd = -1};
}

/* The lock is held. */
static int grow(struct ps_mount_state *state)
{
	uint32_t n = atomic_load(&state->head->nchunks);
	int rc = n < PS_STATE_CHUNKS ? hold_free(state, n + 1) : -ENFILE;

	if (rc == 0)
		rc = map_chunk(state, n);
	if (rc < 0)
		return rc;
	atomic_store(&state->head->nchunks, n + 1);
	for (uint32_t i = PS_STATE_CHUNK; i-- > 0;)
		state->free[state->nfree++] = n * PS_STATE_CHUNK + i;
	return 0;
}

static struct ps_state_chunk *chunk_of(struct ps_mount_state *state, uint32_t index)
{
	uint32_t i = index / PS_STATE_CHUNK;

	return i < PS_STATE_CHUNKS ? atomic_load_explicit(&state->chunks[i], memory_order_acquire) : NULL;
}

struct ps_state_slot *ps_state_slot(struct ps_mount_state *state, uint64_t fh)
{
	struct ps_state_chunk *chunk = atomic_load(&state->chunks[index_of(fh) / PS_STATE_CHUNK]);

	return &chunk->slots[index_of(fh) % PS_STATE_CHUNK];
}

static void set_open(struct ps_mount_state *state, uint32_t index, void *open)
{
	struct ps_state_chunk *chunk = atomic_load(&state->chunks[index / PS_STATE_CHUNK]);

	atomic_store(&chunk->opens[index % PS_STATE_CHUNK], open);
}

/* Text that does not fit is not kept: the next daemon makes the text of a virtual file again, and a snapshot
 * is lost. */
static uint64_t keep_text(struct ps_mount_state *state, uint32_t index, const char *text)
{
	size_t n = text ? strlen(text) : 0;

	if (n == 0 || n > TEXT_MAX_NBYTES || state->fd < 0)
		return 0;
	return pwrite(state->fd, text, n, (off_t)(TEXT_AT + index * TEXT_MAX_NBYTES)) == (ssize_t)n ? n : 0;
}

int ps_state_add(struct ps_mount_state *state, const struct ps_state_slot *like, void *open, const char *text,
        uint64_t *ret_fh)
{
	uint32_t index;
	{
		PS_LOCK_SCOPE(&state->lock);
		int rc = state->nfree == 0 ? grow(state) : 0;

		if (rc < 0)
			return rc;
		index = state->free[--state->nfree];
	}
	struct ps_state_slot *slot = ps_state_slot(state, index);
	uint64_t fh = (atomic_load(&slot->word) & ~(uint64_t)UINT32_MAX) | index;

	atomic_store(&slot->unique, atomic_load(&like->unique));
	slot->ino = like->ino;
	slot->number = like->number;
	slot->backing_id = like->backing_id;
	slot->kind = like->kind;
	slot->mode = like->mode;
	slot->in_mode = like->in_mode;
	slot->tid = like->tid;
	atomic_store(&slot->allowed, atomic_load(&like->allowed));
	slot->text_nbytes = keep_text(state, index, text);
	set_open(state, index, open);
	atomic_store(&slot->word, word_of(fh, PS_SLOT_USED));
	*ret_fh = fh;
	return 0;
}

void *ps_state_find(struct ps_mount_state *state, uint64_t fh)
{
	struct ps_state_chunk *chunk = chunk_of(state, index_of(fh));
	uint32_t i = index_of(fh) % PS_STATE_CHUNK;

	if (!chunk || atomic_load_explicit(&chunk->slots[i].word, memory_order_acquire) !=
	                      word_of(fh, PS_SLOT_USED))
		return NULL;
	return atomic_load_explicit(&chunk->opens[i], memory_order_acquire);
}

void ps_state_answered(struct ps_mount_state *state, uint64_t fh, uint64_t unique)
{
	if (unique)
		atomic_compare_exchange_strong(&ps_state_slot(state, fh)->unique, &unique, 0);
}

void ps_state_closing(struct ps_mount_state *state, uint64_t fh)
{
	atomic_store(&ps_state_slot(state, fh)->word, word_of(fh, PS_SLOT_CLOSING));
}

void ps_state_remove(struct ps_mount_state *state, uint64_t fh)
{
	struct ps_state_slot *slot = ps_state_slot(state, fh);
	uint32_t index = index_of(fh);

	if (slot->text_nbytes > 0)
		(void)fallocate(state->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		        (off_t)(TEXT_AT + index * TEXT_MAX_NBYTES), (off_t)TEXT_MAX_NBYTES);
	slot->text_nbytes = 0;
	atomic_store(&slot->unique, 0);
	set_open(state, index, NULL);
	atomic_store(&slot->word, word_of(fh + (UINT64_C(1) << 32), PS_SLOT_FREE));
	PS_LOCK_SCOPE(&state->lock);
	state->free[state->nfree++] = index;
}

void ps_state_note_backing_id(struct ps_state_head *head, int id)
{
	int32_t last = atomic_load(&head->last_backing_id);

	while (id > last && !atomic_compare_exchange_weak(&head->last_backing_id, &last, id)) {
	}
}

void ps_state_note_closed_id(struct ps_state_head *head, int id)
{
	atomic_store(&head->closed[atomic_fetch_add(&head->nclosed, 1) % PS_STATE_CLOSED_IDS], id);
}

void ps_state_restore(struct ps_mount_state *state,
        void *(*fn)(void *arg, uint64_t fh, struct ps_state_slot *slot), void *arg)
{
	uint32_t n = atomic_load(&state->head->nchunks) * PS_STATE_CHUNK;

	for (uint32_t index = n; index-- > 0;) {
		struct ps_state_slot *slot = ps_state_slot(state, index);
		uint64_t word = atomic_load(&slot->word), fh = (word & ~(uint64_t)UINT32_MAX) | index;
		bool used = (uint32_t)word != PS_SLOT_FREE;
		void *open = used ? fn(arg, fh, slot) : NULL;

		if (open)
			set_open(state, index, open);
		else if (used)
			ps_state_remove(state, fh);
		else
			state->free[state->nfree++] = index;
	}
}

bool ps_state_unanswered(struct ps_mount_state *state, uint64_t unique, uint64_t *ret_fh)
{
	uint32_t n = atomic_load(&state->head->nchunks) * PS_STATE_CHUNK;

	for (uint32_t index = 0; unique && index < n; index++) {
		struct ps_state_slot *slot = ps_state_slot(state, index);
		uint64_t word = atomic_load(&slot->word);

		if (atomic_load(&slot->unique) == unique && (uint32_t)word == PS_SLOT_USED) {
			*ret_fh = (word & ~(uint64_t)UINT32_MAX) | index;
			return true;
		}
	}
	return false;
}

char *ps_state_text(struct ps_mount_state *state, uint64_t fh)
{
	const struct ps_state_slot *slot = ps_state_slot(state, fh);
	size_t n = (size_t)slot->text_nbytes;
	char *text = n > 0 && n <= TEXT_MAX_NBYTES && state->fd >= 0 ? malloc(n + 1) : NULL;

	if (!text)
		return NULL;
	if (pread(state->fd, text, n, (off_t)(TEXT_AT + index_of(fh) * TEXT_MAX_NBYTES)) != (ssize_t)n) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}
