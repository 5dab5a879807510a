/* The checksum of an object whose listing told none, where HEADs tell it (struct ps_origin): asked for beside
 * the first bytes that are fetched of it, so that it is known by the time all are there. Without an answer,
 * or with one that has none, there is nothing to compare, as with any other object. Not of small objects: of
 * those a HEAD each would be most of the requests. Nor where a store has none to tell. */
#include "fetch/fill_private.h"

#include <stdlib.h>

#define ASK_MIN_BYTES (8 << 20)
#define ASK_IN_VAIN 8 /* HEADs behind each other without a checksum: the store has none */

struct ask {
	struct ps_head head;       /* first: done() gets back to the ask from it */
	struct ps_fill_file *file; /* a reference */
	struct ps_remote expect;
};

static void asked(struct ps_head *head, const struct ps_error *err)
{
	struct ask *ask = (struct ask *)head;
	struct ps_origin *origin = ask->file->origin;

	if (!err->err && ps_remote_same_version(&ask->expect, &head->seen))
		ps_object_expect(ask->file->object, head->seen.checksum, false);
	if (!err->err)
		atomic_store(&origin->sumless_heads,
		        head->seen.checksum[0] ? 0 : atomic_load(&origin->sumless_heads) + 1);
	ps_fill_file_put(ask->file);
	free(ask);
}

void ps_fill_ask_sum(struct ps_fill_file *file)
{
	struct ps_origin *origin = file->origin;
	struct ask *ask;

	if (!origin->heads_tell_sums || atomic_load(&origin->sumless_heads) >= ASK_IN_VAIN ||
	        ps_object_size(file->object) < ASK_MIN_BYTES || ps_object_sum(file->object) != PS_SUM_NONE)
		return;
	ask = calloc(1, sizeof *ask);
	if (!ask)
		return;
	ask->file = ps_fill_file_ref(file);
	{
		PS_LOCK_SCOPE(&file->lock);
		ask->expect = file->remote;
	}
	ask->head = (struct ps_head){
	        .url = ps_object_url(file->object), .done = asked, .seen = PS_REMOTE_UNKNOWN};
	atomic_fetch_add(&file->fill->origin_requests, 1);
	origin->ops->head(origin, &ask->head);
}
