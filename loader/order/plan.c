#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/thread.h"

/* A copy of the struct in fs/fuse/fuse.h: the loader uses only files, and is built without the mount. */
struct plan_text {
	uint32_t nbytes;
	char text[8184];
};
#define IOC_PLAN _IOW(0xd7, 6, struct plan_text)

struct ps_planner {
	struct ps_planner_options o;
	char *job;
	char *root; /* path of the mount, with a slash at its end */
	int fd;
	bool by_ioctl; /* the kernel mounted the file system read-only */
	struct ps_worker worker;
	pthread_mutex_t lock; /* guards all below, and worker.stopping */
	uint64_t epoch, files_done;
	/* the shards of the fed numbers of an epoch; over[i] is 1 if shard i (its place in the list) is
	 * among them */
	struct ps_uses used;
	uint64_t used_epoch;
};

/* Texts -------------------------------------------------------------------------------------------------- */

static void string_print(FILE *out, const char *text)
{
	putc('"', out);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p);
		else if (*p < 0x20)
			fprintf(out, "\\u%04x", *p);
		else
			putc(*p, out);
	}
	putc('"', out);
}

static FILE *text_begin(const struct ps_planner_options *o, const char *kind, char **text, size_t *len)
{
	FILE *out = open_memstream(text, len);

	if (!out)
		return NULL;
	fprintf(out, "{\"%s\": 1, \"job\": ", kind);
	string_print(out, o->job);
	fprintf(out, ", \"rank\": %u", o->rank);
	return out;
}

static char *text_end(FILE *out, char **text)
{
	bool failed = ferror(out) != 0;

	if (fclose(out) == 0 && !failed)
		return *text;
	free(*text);
	return NULL;
}

/* Prints the name of a shard's file. False: it is not on the mount. */
static bool file_print(
        FILE *out, const struct ps_planner_options *o, const char *root, uint32_t shard, uint32_t *n)
{
	const char *name = o->shards[shard];

	if (strncmp(name, root, strlen(root)) != 0)
		return false;
	fputs((*n)++ > 0 ? ", " : "", out);
	string_print(out, name + strlen(root));
	return true;
}

/* Finds the shard of the rank's repeat in an epoch. False: there is none, lengths are not known, or lanes read samples
 * from any shard. */
static bool repeat_find(struct ps_epochs *epochs, uint64_t number, uint32_t *ret_shard)
{
	const struct ps_epochs_options *o = ps_epochs_options(epochs);
	ps_autofree struct ps_dealt *rows = NULL;
	uint64_t steps, sum = 0, n, pass;
	struct ps_epoch *epoch;
	bool found = false;

	if (o->world < 2 || !o->known || ps_order_mode_scatters(o->mode) ||
	        ps_epochs_get(epochs, number, &epoch, NULL) < 0)
		return false;
	steps = ps_steps_count(&epoch->steps, epoch->rank);
	/* only the last step can have fewer samples than there are ranks */
	if (steps > 0 && steps != PS_ENDLESS && ps_epoch_repeats(epoch, steps - 1)) {
		rows = malloc(o->batch * sizeof(*rows));
		found = rows && ps_deal_step(epoch->deal, steps - 1, rows) == 0;
	}
	for (uint64_t k = 0; found; k++) {
		found = ps_order_shard(o->order, number, rows->lane, k, ret_shard, &pass) == 1 &&
		        o->counts.count(o->counts.ctx, number, pass, *ret_shard, &n, NULL) == 0;
		sum += found ? n : 0;
		if (sum > rows->index)
			break;
	}
	ps_epoch_unref(epoch);
	return found;
}

/* Takes note that the file of a shard is listed; true: it was. `listed` NULL: each shard is a file of its own. */
static bool list(const struct ps_planner_options *o, uint8_t *listed, uint32_t shard)
{
	bool was = listed && listed[o->parts.files[shard]];

	if (listed)
		listed[o->parts.files[shard]] = 1;
	return was;
}

/* Prints the files of one pass, in the order in which lanes reach them. */
static void files_print(FILE *out, const struct ps_planner_options *o, const char *root, uint64_t epoch)
{
	uint32_t n = 0, shard;
	uint64_t pass;
	bool more = true, repeats = o->repeat;
	ps_autofree uint8_t *listed = o->parts.files ? calloc(o->parts.nfiles + 1, 1) : NULL;

	for (uint32_t i = 0; o->uses && i < o->uses->n && n < PS_PLANNER_MAX_FILES; i++)
		if (!list(o, listed, o->uses->shards[i]))
			(void)file_print(out, o, root, o->uses->shards[i], &n);
	if (o->uses)
		return;
	for (uint64_t k = 0; more && n < PS_PLANNER_MAX_FILES; k++) {
		more = false;
		for (uint32_t lane = 0; lane < ps_order_nlanes(o->order) && n < PS_PLANNER_MAX_FILES;
		        lane++) {
			if (k >= ps_order_pass_len(o->order, lane) || !ps_order_owns(o->order, lane) ||
			        ps_order_shard(o->order, epoch, lane, k, &shard, &pass) != 1)
				continue;
			more = true;
			repeats = repeats && shard != *o->repeat;
			if (list(o, listed, shard))
				continue;
			(void)file_print(out, o, root, shard, &n);
		}
	}
	if (repeats && n < PS_PLANNER_MAX_FILES)
		(void)file_print(out, o, root, *o->repeat, &n);
}

char *ps_plan_text(const struct ps_planner_options *o, const char *root, uint64_t epoch, uint64_t files_done)
{
	char *text = NULL;
	size_t len;
	FILE *out = text_begin(o, "penstock_plan", &text, &len);

	if (!out)
		return NULL;
	fprintf(out, ", \"world\": %u, \"epoch\": %ju, ", o->world, (uintmax_t)epoch);
	if (files_done > 0)
		fprintf(out, "\"files_done\": %ju, ", (uintmax_t)files_done);
	fputs("\"files\": [", out);
	files_print(out, o, root, epoch);
	fputs("]}\n", out);
	return text_end(out, &text);
}

/* About how many bytes the lane must read from its position on before it can give a sample, by the mean of the
 * samples before it in its shard; 0: not known. */
static uint64_t needed_nbytes(const struct ps_order *order, uint64_t epoch, const struct ps_lane_position *at)
{
	uint64_t begin = ps_order_block_begin(order, epoch, at->block);
	uint64_t n = ps_order_block_begin(order, epoch, at->block + 1) - begin;

	if (at->taken >= n) /* the next block is needed, too */
		n = ps_order_block_begin(order, epoch, at->block + 2) - begin;
	return at->ordinal == 0 || at->offset > INT64_MAX / n ? 0 : at->offset * n / at->ordinal;
}

char *ps_plan_reads_text(
        const struct ps_planner_options *o, const char *root, const struct ps_position *position)
{
	uint64_t from[PS_PLANNER_READS], nbytes = 0, needed, pass;
	uint32_t n = 0, shard;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	fputs("{\"penstock_reads\": 1, \"files\": [", out);
	for (uint32_t i = 0; i < ps_order_nlanes(o->order) && n < PS_PLANNER_READS; i++) {
		uint32_t lane = (position->turn + i) % ps_order_nlanes(o->order), place = n;
		struct ps_lane_position at = {0};

		if (lane < position->nlanes)
			at = position->lanes[lane];
		if (at.k == PS_PLACE_UNKNOWN || !ps_order_owns(o->order, lane) ||
		        ps_order_shard(o->order, position->epoch, lane, at.k, &shard, &pass) != 1 ||
		        !file_print(out, o, root, shard, &n))
			continue;
		from[place] = at.offset;
		needed = needed_nbytes(o->order, position->epoch, &at);
		if (o->parts.files)
			o->parts.place(o->parts.ctx, shard, position->epoch, pass, at.ordinal, &from[place],
			        &needed);
		nbytes = PS_MAX(nbytes, needed);
	}
	fputs("], \"from\": [", out);
	for (uint32_t i = 0; i < n; i++)
		fprintf(out, "%s%ju", i > 0 ? ", " : "", (uintmax_t)from[i]);
	fprintf(out, "], \"bytes\": %ju}\n", (uintmax_t)nbytes);
	return text_end(out, &text);
}

char *ps_plan_position_text(const struct ps_planner_options *o, uint64_t epoch, uint64_t files_done)
{
	char *text = NULL;
	size_t len;
	FILE *out = text_begin(o, "penstock_position", &text, &len);

	if (!out)
		return NULL;
	fprintf(out, ", \"epoch\": %ju, \"files_done\": %ju}\n", (uintmax_t)epoch, (uintmax_t)files_done);
	return text_end(out, &text);
}

/* The thread --------------------------------------------------------------------------------------------- */

static int tell_by_ioctl(int fd, const char *text, size_t len)
{
	struct plan_text *part = malloc(sizeof(*part));
	int r = part ? 0 : -ENOMEM;

	/* Sends all parts, even if one fails, since the last one ends the line. */
	for (size_t done = 0; part && done < len; done += part->nbytes) {
		part->nbytes = (uint32_t)(len - done < sizeof(part->text) ? len - done : sizeof(part->text));
		memcpy(part->text, text + done, part->nbytes);
		if (ioctl(fd, IOC_PLAN, part) < 0 && r == 0)
			r = -errno;
	}
	free(part);
	return r;
}

/* Sends a text on a descriptor of the plan, and frees it. -ESTALE: the mount has dropped what was sent before. */
static int plan_send(const struct ps_planner *p, int fd, char *text)
{
	size_t len = text ? strlen(text) : 0;
	ssize_t n;
	int rc;

	if (!text)
		return -ENOMEM;
	if (p->by_ioctl) {
		rc = tell_by_ioctl(fd, text, len);
	} else {
		n = write(fd, text, len);
		rc = n < 0 ? -errno : n < (ssize_t)len ? -EIO : 0;
	}
	free(text);
	return rc;
}

/* Sends the files of an epoch. A mount that refuses them as too many has no plan of this epoch, which is valid. */
static int files_send(
        const struct ps_planner *p, const struct ps_planner_options *o, uint64_t epoch, uint64_t done)
{
	int rc = plan_send(p, p->fd, ps_plan_text(o, p->root, epoch, done));

	return rc == -ENOSPC || rc == -E2BIG ? 0 : rc;
}

/* Announces all that is due at this position. `begins`: the epoch was not announced as the current one before. */
static int place_announce(
        const struct ps_planner *p, uint64_t epoch, uint64_t done, bool begins, uint64_t *announced)
{
	struct ps_planner_options o = p->o;
	uint32_t shard;
	int rc = 0;

	/* the run jumped to another epoch */
	*announced = *announced < epoch || *announced - epoch > o.epochs ? epoch : *announced;
	for (; rc == 0 && *announced < o.end_epoch && *announced - epoch < o.epochs; ++*announced)
		rc = plan_send(
		        p, p->fd, ps_plan_text(&o, p->root, *announced, *announced == epoch ? done : 0));
	if (rc == -ENOSPC || rc == -E2BIG)
		rc = 0;
	/* the files of an epoch again, if one of them is that of a repeat */
	if (rc == 0 && begins && o.repeats_of && epoch < o.end_epoch &&
	        repeat_find(o.repeats_of, epoch, &shard)) {
		o.repeat = &shard;
		rc = files_send(p, &o, epoch, done);
	}
	return rc < 0 ? rc : plan_send(p, p->fd, ps_plan_position_text(&p->o, epoch, done));
}

/* Announces the files of the fed numbers; does nothing if there are none. */
static int used_announce(const struct ps_planner *p, const struct ps_uses *used, uint64_t epoch)
{
	struct ps_planner_options o = p->o;
	int rc;

	if (used->n == 0)
		return 0;
	o.uses = used;
	rc = files_send(p, &o, epoch, 0);
	return rc < 0 ? rc : plan_send(p, p->fd, ps_plan_position_text(&o, epoch, 0));
}

static void *planner_main(void *arg)
{
	struct ps_planner *p = arg;
	const bool fed = p->o.fed;
	ps_autofree uint32_t *shards = malloc(PS_MAX(p->o.nshards, 1u) * sizeof(*shards));
	struct ps_uses used = {.shards = shards};
	uint64_t announced, epoch = UINT64_MAX, done = 0;
	unsigned quiet_s = 0;
	int rc = shards ? 0 : -ENOMEM;

	pthread_mutex_lock(&p->lock);
	announced = p->epoch;
	while (rc == 0 && !p->worker.stopping) {
		uint64_t now = fed ? p->used_epoch : p->epoch, until;
		bool begins = now != epoch, moved = fed ? p->used.n != used.n : p->files_done != done;
		bool due = begins || moved || ++quiet_s >= PS_PLANNER_BEAT_S;

		epoch = now;
		done = p->files_done;
		used.n = p->used.n;
		if (used.n > 0)
			memcpy(shards, p->used.shards, used.n * sizeof(*shards));
		pthread_mutex_unlock(&p->lock);
		for (int tries = due ? 2 : 0; tries > 0; tries--) {
			quiet_s = 0;
			rc = fed ? used_announce(p, &used, epoch)
			         : place_announce(p, epoch, done, begins, &announced);
			if (rc != -ESTALE)
				break;
			announced = epoch;
			begins = true;
		}
		until = ps_clock_mono_ns() + PS_NS_PER_S;
		pthread_mutex_lock(&p->lock);
		while (!p->worker.stopping && ps_clock_mono_ns() < until)
			ps_cond_wait_until(&p->worker.wake, &p->lock, until);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Opens the plan of the mount that a shard is on, if it takes plans, and returns the descriptor. *ret_root:
 * the root of that mount, as the beginning of the shard's name. */
static int plan_open(const char *shard, char **ret_root, bool *ret_by_ioctl)
{
	ps_autofree char *root = strdup(shard), *plan = NULL;
	struct stat st, above;
	size_t len = 0;
	char *slash;
	int fd;

	if (!root || getxattr(shard, "user.penstock.state", NULL, 0) < 0 || stat(shard, &st) < 0)
		return -1;
	while ((slash = strrchr(root, '/')) && slash > root) {
		*slash = 0;
		if (stat(root, &above) < 0 || above.st_dev != st.st_dev)
			break;
		len = strlen(root);
	}
	if (len == 0 || asprintf(&plan, "%.*s/.penstock/plan", (int)len, shard) < 0)
		return -1;
	*ret_root = strndup(shard, len + 1);
	if (!*ret_root)
		return -1;
	fd = open(plan, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	*ret_by_ioctl = fd < 0;
	return fd >= 0 ? fd : open(plan, O_RDONLY | O_CLOEXEC);
}

static uint64_t files_done(const struct ps_planner *p, const struct ps_position *at)
{
	uint64_t done = 0;

	if (p->o.parts.files && p->o.nshards > p->o.parts.nfiles)
		return 0; /* lanes read several parts of a file */
	if (p->o.uses)
		return ps_uses_over(p->o.uses, at->batches * p->o.batch);
	for (uint32_t i = 0; i < at->nlanes; i++)
		done += at->lanes[i].k == PS_PLACE_UNKNOWN || !ps_order_owns(p->o.order, i) ? 0
		                                                                            : at->lanes[i].k;
	return done;
}

struct ps_planner *ps_planner_new(const struct ps_planner_options *o, const struct ps_position *at)
{
	struct ps_planner *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->o = *o;
	p->epoch = at->epoch;
	pthread_mutex_init(&p->lock, NULL);
	ps_worker_init(&p->worker);
	p->job = strdup(o->job);
	p->o.job = p->job;
	if (o->fed) {
		p->used.shards = calloc(PS_MAX(o->nshards, 1u), sizeof(*p->used.shards));
		p->used.over = calloc(PS_MAX(o->nshards, 1u), sizeof(*p->used.over));
	}
	p->fd = o->nshards > 0 && p->job && (!o->fed || (p->used.shards && p->used.over))
	                ? plan_open(o->shards[0], &p->root, &p->by_ioctl)
	                : -1;
	if (p->fd >= 0) {
		p->files_done = files_done(p, at);
		ps_planner_reads(p, at);
	}
	if (p->fd >= 0 && ps_worker_start(&p->worker, "ps-plan", planner_main, p) == 0)
		return p;
	ps_planner_free(p);
	return NULL;
}

void ps_planner_free(struct ps_planner *p)
{
	if (!p)
		return;
	ps_worker_stop(&p->worker, &p->lock);
	if (p->fd >= 0)
		close(p->fd);
	ps_worker_fini(&p->worker);
	pthread_mutex_destroy(&p->lock);
	free(p->job);
	free(p->root);
	ps_uses_fini(&p->used);
	free(p);
}

/* Otherwise the mount would fetch the read-ahead window of the first file that is read, and only then what is
 * needed of the others. The thread may be sending pieces of a plan, so this line has a descriptor of its own. */
void ps_planner_reads(struct ps_planner *p, const struct ps_position *at)
{
	ps_autofree char *path = NULL;

	if (ps_order_scatters(p->o.order) || at->epoch >= p->o.end_epoch ||
	        asprintf(&path, "%s.penstock/plan", p->root) < 0)
		return;
	ps_autofd int fd = open(path, (p->by_ioctl ? O_RDONLY : O_WRONLY | O_NONBLOCK) | O_CLOEXEC);
	if (fd >= 0)
		(void)plan_send(p, fd, ps_plan_reads_text(&p->o, p->root, at));
}

void ps_planner_at(struct ps_planner *p, const struct ps_position *at)
{
	uint64_t done = files_done(p, at);

	PS_LOCK_SCOPE(&p->lock);
	p->epoch = at->epoch;
	p->files_done = done;
}

void ps_planner_use(
        struct ps_planner *p, uint64_t epoch, const uint64_t *ends, const int64_t *numbers, uint32_t n)
{
	PS_LOCK_SCOPE(&p->lock);
	if (p->used_epoch != epoch) {
		memset(p->used.over, 0, p->o.nshards * sizeof(*p->used.over));
		p->used.n = 0;
		p->used_epoch = epoch;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t shard = ps_shard_of_number(ends, p->o.nshards, (uint64_t)numbers[i]);

		if (p->used.over[shard])
			continue;
		p->used.over[shard] = 1;
		p->used.shards[p->used.n++] = shard;
	}
}
