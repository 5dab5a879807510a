#include "config.h"

#include "shard_errors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "shard/file/file.h"

int ps_shard_errors_init(struct ps_shard_errors *l, size_t nshards)
{
	l->is_lost = calloc(nshards + 1, 1);
	if (!l->is_lost)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	return 0;
}

void ps_shard_errors_fini(struct ps_shard_errors *l)
{
	if (!l->is_lost)
		return;
	for (size_t i = 0; i < PENSTOCK_LOST_KEPT; i++)
		free(l->kept[i].reason);
	free(l->is_lost);
	pthread_mutex_destroy(&l->lock);
}

void ps_shard_errors_note(struct ps_shard_errors *l, const struct penstock_batch *b)
{
	for (uint32_t i = 0; i < b->nbad; i++) {
		uint32_t row = b->bad_rows[i];
		const struct ps_shard_file *file = b->rows[row].sample->file;

		if (!b->rows[row].lost)
			continue;
		PS_LOCK_SCOPE(&l->lock);
		if (l->is_lost[file->shard])
			continue;
		l->is_lost[file->shard] = 1;
		if (l->n < PENSTOCK_LOST_KEPT) {
			l->kept[l->n].shard = file->path;
			l->kept[l->n].reason = strdup(ps_batch_reason(b, row));
		}
		l->n++;
	}
}

uint64_t ps_shard_errors_count(struct ps_shard_errors *l)
{
	PS_LOCK_SCOPE(&l->lock);
	return l->n;
}

int ps_shard_errors_get(struct ps_shard_errors *l, uint64_t n, struct penstock_lost *ret_lost)
{
	PS_LOCK_SCOPE(&l->lock);
	if (n >= PS_MIN(l->n, (uint64_t)PENSTOCK_LOST_KEPT))
		return -ENOENT;
	*ret_lost = (struct penstock_lost){
	        .shard = l->kept[n].shard, .reason = l->kept[n].reason ? l->kept[n].reason : "out of memory"};
	return 0;
}

/* Reads an attribute that penstock mounts have. False: there is none, or it is empty. */
static bool attribute(const char *shard, const char *name, char *ret, size_t room)
{
	ssize_t n = getxattr(shard, name, ret, room - 1);

	ret[PS_MAX(n, 0)] = '\0';
	return n > 0;
}

static const char *hint_of(const char *shard, int errnum)
{
	if (errnum == ENOTCONN)
		return "the mount has ended; mount it again";
	if (errnum == ESTALE)
		return "to read the new version, restart the epoch with set_epoch(), or open a new loader";
	if (ps_path_is_on_mount(shard))
		return errnum == ENOENT
		               ? "check the path, and the mount and its origin"
		               : "check the mount and its origin (getfattr -n user.penstock.error FILE)";
	if (errnum == ENOENT)
		return ps_stream_path_hint(shard) ?: "check the path";
	return "check the path, and its disk or network share";
}

void ps_shard_error_explain(const char *shard, int errnum, struct ps_error *err)
{
	char said[PS_ERROR_TEXT_LEN];
	const char *hint = hint_of(shard, errnum);

	if ((errnum == EIO || errnum == EACCES) &&
	        attribute(shard, "user.penstock.error", said, sizeof(said)))
		ps_error_append(err, "; the mount reports: %s", said);
	else if (!strstr(err->text, hint) && !strstr(err->text, PS_INDEX_STALE))
		ps_error_append(err, "; %s", hint);
}

int ps_shard_errno(const char *shard, int errnum)
{
	char text[16];
	int origin =
	        errnum == EIO && attribute(shard, "user.penstock.errno", text, sizeof(text)) ? atoi(text) : 0;

	return origin > 0 ? origin : errnum;
}

/* Missing shards ========================================================================================= */

struct search {
	char *const *shards;
	uint32_t nshards;
	uint8_t *wanted; /* by shard: 1 if it must exist */
	uint32_t nlooked;
	uint64_t until_ns; /* time limit of the search; 0: not begun; 1: exceeded */
	uint64_t nmissing;
	uint32_t first; /* the first missing shard */
};

/* Consecutive names of the list that are in one folder. */
struct run {
	uint32_t from, to;
	size_t folder; /* bytes of the folder's name in each, with its slash; 0: no folder */
};

/* Shards that are needed -------------------------------------------------------------------------------- */

static int lane_want(struct search *s, struct ps_order *order, const struct ps_position *at, uint32_t lane)
{
	uint64_t k = at->lanes && at->batches > 0 ? at->lanes[lane].k : 0, n = ps_order_pass_len(order, lane);
	uint64_t pass;
	uint32_t shard;
	int r = 1;

	if (k == PS_PLACE_UNKNOWN)
		return 0; /* it is not known which shards are done */
	for (k = k < n ? k : 0; k < n && r == 1; k++) {
		r = ps_order_shard(order, at->epoch, lane, k, &shard, &pass);
		if (r == 1)
			s->wanted[shard] = 1;
	}
	return PS_MIN(r, 0);
}

/* Search ------------------------------------------------------------------------------------------------ */

/* True if there is time to look for another shard. */
static bool may_look(struct search *s)
{
	uint64_t now;

	if (++s->nlooked <= PS_MISSING_FREE || s->nlooked % 64 != 0)
		return s->until_ns != 1;
	now = ps_clock_mono_ns();
	if (s->until_ns == 0)
		s->until_ns = now + PS_MISSING_MS * UINT64_C(1000000);
	else if (now > s->until_ns)
		s->until_ns = 1;
	return s->until_ns != 1;
}

/* Looks for shards by name. A broken link counts as missing. Other errors are left to the reader: it may
 * succeed, or has a better text. */
static void names_look(struct search *s, const struct run *run)
{
	for (uint32_t i = run->from; i < run->to && may_look(s); i++)
		if (s->wanted[i] && access(s->shards[i], F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR) &&
		        s->nmissing++ == 0)
			s->first = i;
}

struct place {
	uint32_t hash;
	uint32_t number; /* 1 + the shard's number; 0: empty */
};

static uint32_t hash(const char *name)
{
	uint32_t h = 2166136261U;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619U;
	return h ^ h >> 15;
}

/* The place of a name, or the empty place where it would be. Names are far apart in memory, so they are
 * compared only if hashes are equal. */
static struct place *place_of(
        const struct search *s, const struct run *run, struct place *places, uint32_t mask, const char *name)
{
	uint32_t h = hash(name), i = h & mask;

	while (places[i].number &&
	        (places[i].hash != h || strcmp(s->shards[places[i].number - 1] + run->folder, name) != 0))
		i = (i + 1) & mask;
	/* A used place has this hash already. In a free place it has no effect until the number is set. */
	places[i].hash = h;
	return &places[i];
}

/* Lists the folder, marks each listed shard as found, and looks for the others by name. A listing
 * with four times as many names as shards is not read to its end. */
static int folder_look(struct search *s, const struct run *run, const char *folder)
{
	uint32_t n = run->to - run->from, size = 1, seen = 0;
	ps_autofree struct place *places = NULL;
	const struct dirent *e;
	DIR *d;

	while (size < 2 * n)
		size *= 2;
	places = calloc(size, sizeof(*places));
	if (!places)
		return -ENOMEM;
	d = opendir(folder);
	for (uint32_t i = run->from; i < run->to; i++)
		if (s->wanted[i])
			place_of(s, run, places, size - 1, s->shards[i] + run->folder)->number = i + 1;
	while (d && (e = readdir(d)) && seen++ < 4 * n && may_look(s)) {
		const struct place *place = place_of(s, run, places, size - 1, e->d_name);

		if (place->number && e->d_type == DT_REG)
			s->wanted[place->number - 1] = 0;
	}
	if (d)
		closedir(d);
	names_look(s, run);
	return 0;
}

/* Folders ------------------------------------------------------------------------------------------------ */

static size_t folder_len(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? (size_t)(slash - name) + 1 : 0;
}

static int run_look(struct search *s, const struct run *run)
{
	ps_autofree char *folder = run->folder ? strndup(s->shards[run->from], run->folder) : strdup(".");

	if (!folder)
		return -ENOMEM;
	if (ps_path_is_on_mount(folder))
		return 0;
	if (run->to - run->from >= PS_MISSING_LIST)
		return folder_look(s, run, folder);
	names_look(s, run);
	return 0;
}

static int missing_report(const struct search *s, struct ps_error *err)
{
	const char *name = s->shards[s->first], *hint = hint_of(name, ENOENT);

	if (s->nmissing == 1)
		ps_error_set(err, ENOENT, "%s: %s; %s", name, strerror(ENOENT), hint);
	else
		ps_error_set(err, ENOENT, "%s: %s (and %ju more of the shards); %s", name, strerror(ENOENT),
		        (uintmax_t)s->nmissing - 1, hint);
	err->cause = PS_CAUSE_SHARD;
	err->shard = name;
	return -ENOENT;
}

int ps_shards_missing_check(struct ps_order *order, const struct ps_position *at, char *const *shards,
        uint32_t nshards, struct ps_error *err)
{
	ps_autofree uint8_t *wanted = calloc(nshards + 1, 1);
	struct search s = {.shards = shards, .nshards = nshards, .wanted = wanted};
	int rc = wanted ? 0 : -ENOMEM;

	for (uint32_t lane = 0; lane < ps_order_nlanes(order) && rc == 0; lane++)
		if (ps_order_owns(order, lane))
			rc = lane_want(&s, order, at, lane);
	for (uint32_t i = 0; i < nshards && rc == 0 && s.until_ns != 1;) {
		struct run run = {.from = i, .to = i + 1, .folder = folder_len(shards[i])};

		while (run.to < nshards && folder_len(shards[run.to]) == run.folder &&
		        memcmp(shards[run.to], shards[i], run.folder) == 0)
			run.to++;
		rc = run_look(&s, &run);
		i = run.to;
	}
	if (rc < 0)
		return ps_no_memory(err);
	return s.nmissing > 0 ? missing_report(&s, err) : 0;
}
