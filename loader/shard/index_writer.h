/* An index being put together in memory, sample by sample, in the order of the shard.
 *
 * Ownership: the writer owns all it was given.   Threads: one at a time.   Locks: none.
 * Blocks: never, but ps_index_writer_save() on the disk.   Errors: 0 or -errno. After -ENOMEM or -EINVAL
 * (samples that do not follow each other) it stays failed, and save fails the same way. */
#ifndef PS_SHARD_INDEX_WRITER_H
#define PS_SHARD_INDEX_WRITER_H

#include "shard/index.h"
#include "shard/index_file.h"

struct ps_index_writer;

/* NULL: out of memory. */
struct ps_index_writer *ps_index_writer_new(void);
void ps_index_writer_free(struct ps_index_writer *writer); /* NULL is allowed */

/* PS_INDEX_FLAG_...; that of lines before the first sample. */
void ps_index_writer_flag(struct ps_index_writer *writer, uint32_t flags);

/* The sum of the shard's first header, and of all its bytes; what is not told is zeros. */
void ps_index_writer_first(struct ps_index_writer *writer, uint64_t first);
void ps_index_writer_sha256(struct ps_index_writer *writer, const uint8_t sha256[static PS_INDEX_SHA256]);

/* `members` in the order of the shard. */
int ps_index_writer_add(struct ps_index_writer *writer, uint64_t offset, bool bad, const char *key,
        size_t key_len, const struct ps_index_member *members, uint32_t nmembers) PS_MUST_USE;

/* Declares a column: its number, or -errno. Before the first sample. `from`: as in a ps_column_spec. */
int ps_index_writer_column(struct ps_index_writer *writer, const char *name, const char *from) PS_MUST_USE;

/* The value of the sample added last; without one it is missing. A column that is given integers and floats
 * is one of floats; one that is given a text, too, one of texts. */
int ps_index_writer_value(
        struct ps_index_writer *writer, int column, const struct ps_column_value *value) PS_MUST_USE;

/* Bytes of the shard decompressed, of which `read` were read. */
uint64_t ps_index_writer_plain(const struct ps_index_writer *writer, uint64_t nbytes, uint64_t read);

/* The file's bytes, to be freed. `nbytes`: of the shard; `read`: of it decompressed. */
int ps_index_writer_finish(struct ps_index_writer *writer, uint64_t nbytes, uint64_t read,
        uint8_t **ret_data, size_t *ret_nbytes, struct ps_load_error *err) PS_MUST_USE;

/* The same, into the shard's index file. -EAGAIN: the shard is no longer of that version. */
int ps_index_writer_save(struct ps_index_writer *writer, const char *shard, const char *dir,
        const struct ps_index_version *version, uint64_t read, struct ps_load_error *err) PS_MUST_USE;

#endif
