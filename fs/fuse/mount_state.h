/* The part of a mount that must outlive its daemon: the INIT exchange, and a slot for each open file or
 * folder. It is in a memfd that the keeper holds, too (docs/design/keeper.md). Each store into it counts at
 * once: the memory stays when the process dies between two instructions.
 *
 *   memfd   | head, 64 KiB | slots, 256 KiB a chunk ...   | texts of virtual files, each in its place
 *
 *   slot    FREE ──add──▶ USED ──closing──▶ CLOSING ──remove──▶ FREE, generation + 1
 *
 * A file handle is the index of its slot and the slot's generation, never a pointer: one that is not valid
 * is not found. A slot is USED before its OPEN is answered, and names that OPEN until the answer was sent:
 * if the kernel sends the same OPEN to the next daemon, the answer was not sent, and the slot is freed.
 * CLOSING: the backing id may be closed already.
 *
 * Ownership: part of a ps_fs. Threads: any, but init, restore and fini. Locks: one, a leaf, for free slots;
 * find takes none: the kernel sends no RELEASE while another request of the handle is in flight. Errors:
 * -errno. Blocks: never. */
#ifndef PS_FUSE_MOUNT_STATE_H
#define PS_FUSE_MOUNT_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PS_STATE_VERSION 2
#define PS_STATE_INIT_NBYTES 256
#define PS_STALE_SLOTS 128
#define PS_STATE_CLOSED_IDS 128 /* PS_BACKING_CLOSES, and one of each thread */
#define PS_STATE_CHUNK 4096     /* slots */
#define PS_STATE_CHUNKS 16384

/* A thread whose last OPEN was answered ESTALE, and which will therefore open again. */
struct ps_stale {
	pid_t tid;
	uint64_t at_ns;
};

struct ps_state_head {
	char magic[8];
	uint32_t version, head_nbytes, slot_nbytes;
	/* the kernel's INIT, and what was agreed on */
	uint32_t init_nbytes;
	_Alignas(8) unsigned char init[PS_STATE_INIT_NBYTES];
	_Atomic bool passthrough, direct_mmap, parallel_dirops, resends;
	int64_t mounted_at_s;
	_Atomic bool names_owed; /* the kernel was not notified yet of all names that have changed */
	_Atomic uint32_t nchunks;
	_Atomic int32_t last_backing_id; /* the largest so far, for ps_fs_restore() */
	/* the ids that were closed last, whose closes may be lost with the daemon and its helper */
	_Atomic uint32_t nclosed;
	_Atomic int32_t closed[PS_STATE_CLOSED_IDS];
	_Atomic uint64_t nsnapshots; /* member_ops.h */
	/* used by openmode.h, with its lock held */
	struct ps_stale stale[PS_STALE_SLOTS];
	uint64_t last_stale_ns;
};

enum ps_slot_state { PS_SLOT_FREE, PS_SLOT_USED, PS_SLOT_CLOSING };

struct ps_state_slot {
	_Atomic uint64_t word;   /* the generation in the high half, enum ps_slot_state in the low one */
	_Atomic uint64_t unique; /* the OPEN whose answer may not have been sent; 0: none */
	uint64_t ino;
	uint64_t number; /* of a snapshot */
	uint64_t text_nbytes;
	int32_t backing_id;
	uint8_t kind, mode; /* enum ps_open_kind; enum ps_open_mode */
	bool in_mode;
	_Atomic bool allowed; /* the mount's credentials may read the file, as the origin has shown */
	int32_t tid;
	uint32_t spare[3];
};
_Static_assert(sizeof(struct ps_state_slot) == 64, "the memfd's format");

struct ps_state_chunk;
struct ps_mount_state {
	struct ps_state_head *head;
	int fd; /* -1: only in memory, so the mount cannot outlive its daemon */
	struct ps_state_chunk *_Atomic *chunks;
	pthread_mutex_t lock; /* free slots, and adding a chunk */
	uint32_t *free;
	size_t nfree;
};

/* fd: the state of an earlier daemon, taken over, also on failure; -1: a new state. -EPROTO: not a state that
 * this version can read. */
int ps_state_init(struct ps_mount_state *state, int fd);
void ps_state_fini(struct ps_mount_state *state);

/* Fills a free slot with the contents of *like, except its word. open: what ps_state_find() returns for the
 * handle. text: kept for the next daemon if there is room. -ENOMEM, -ENFILE. */
int ps_state_add(struct ps_mount_state *state, const struct ps_state_slot *like, void *open, const char *text,
        uint64_t *ret_fh);
/* NULL: not a handle of an open file. */
void *ps_state_find(struct ps_mount_state *state, uint64_t fh);
struct ps_state_slot *ps_state_slot(struct ps_mount_state *state, uint64_t fh);
/* Records that the request was answered. No effect if the slot belongs to another request meanwhile. */
void ps_state_answered(struct ps_mount_state *state, uint64_t fh, uint64_t unique);
void ps_state_closing(struct ps_mount_state *state, uint64_t fh);
void ps_state_remove(struct ps_mount_state *state, uint64_t fh);
void ps_state_note_backing_id(struct ps_state_head *head, int id);
/* Call before the id is closed. */
void ps_state_note_closed_id(struct ps_state_head *head, int id);

/* For the state of an earlier daemon: calls fn for each slot that is not free. ps_state_find() then returns
 * fn's result for the handle; if that is NULL, the slot is freed. */
void ps_state_restore(struct ps_mount_state *state,
        void *(*fn)(void *arg, uint64_t fh, struct ps_state_slot *slot), void *arg);
/* The handle of the slot that waits for the answer to this request; false: none. */
bool ps_state_unanswered(struct ps_mount_state *state, uint64_t unique, uint64_t *ret_fh);
/* The caller frees it; NULL: it was not kept. */
char *ps_state_text(struct ps_mount_state *state, uint64_t fh);

#endif
