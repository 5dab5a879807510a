#include "config.h"

#include "shard/recover.h"

#include <errno.h>
#include <string.h>

#include "shard/index.h"

void ps_recovery_use(struct ps_recovery *rec, struct ps_index *index)
{
	if (!rec->borrowed)
		ps_index_close(rec->index);
	rec->index = index;
	rec->borrowed = true;
}

bool ps_recovery_find(struct ps_recovery *rec, struct ps_index *known, const char *shard, const char *index_dir,
        uint64_t ordinal, uint64_t offset)
{
	struct ps_index_place place;

	if (rec->index)
		return true;
	if (known && ps_index_place(known, ordinal, &place, NULL) == 0 && place.offset == offset) {
		ps_recovery_use(rec, known);
		return true;
	}
	if (ps_index_open(shard, index_dir, &rec->index, NULL) < 0 &&
	        ps_index_open_of_longer(shard, index_dir, &rec->index, NULL) < 0 &&
	        (!index_dir || ps_index_open(shard, NULL, &rec->index, NULL) < 0))
		return false;
	if (ps_index_place(rec->index, ordinal, &place, NULL) == 0 && place.offset == offset)
		return true;
	ps_index_close(ps_steal_ptr(&rec->index));
	return false;
}

int ps_recovery_because(struct ps_recovery *rec, int errnum, const char *reason)
{
	char *copy = strdup(reason);

	if (!copy)
		return -ENOMEM;
	free(rec->reason);
	rec->reason = copy;
	rec->bad = errnum;
	return 0;
}

void ps_recovery_fini(struct ps_recovery *rec)
{
	if (!rec->borrowed)
		ps_index_close(rec->index);
	free(rec->reason);
	*rec = (struct ps_recovery){0};
}

bool ps_recovery_has(const struct ps_recovery *rec, uint64_t ordinal)
{
	return rec->index && ordinal < ps_index_samples(rec->index);
}

bool ps_recovery_is_whole(const struct ps_recovery *rec, uint64_t ordinal, const struct ps_builder *b)
{
	struct ps_index_member members[PS_INDEX_MAX_MEMBERS];
	struct ps_index_place place;

	if (!b->open || b->bad || ps_index_members(rec->index, ordinal, &place, members, NULL) < 0 ||
	        place.bad || place.nmembers == 0 || place.nmembers != b->nfields)
		return false;
	for (uint32_t i = 0; i < b->nfields; i++)
		if (b->fields[i].offset != members[i].offset || b->fields[i].size != members[i].size)
			return false;
	return true;
}

uint64_t ps_recovery_offset(const struct ps_recovery *rec, uint64_t ordinal)
{
	struct ps_index_place place;

	return ps_index_place(rec->index, ordinal, &place, NULL) == 0 ? place.resume_offset : 0;
}

int ps_recovery_hole(const struct ps_recovery *rec, uint64_t ordinal, struct ps_builder *b)
{
	struct ps_index_place place = {0};
	const char *key = "";
	size_t len = 0;
	int r;

	if (ps_index_place(rec->index, ordinal, &place, NULL) < 0 ||
	        ps_index_key(rec->index, ordinal, &key, &len, NULL) < 0)
		key = ""; /* a damaged index: the place in the order is left */
	r = ps_builder_begin(b, key, len, place.offset);
	return r < 0 ? r : ps_builder_bad(b, rec->bad, rec->reason);
}
