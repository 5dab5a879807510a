#include "config.h"

#include "tests/cache/fill_fixture.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

void fixture_start(struct fixture *f, const struct fixture_options *options)
{
	struct ps_error err = {0};
	struct ps_store_options store = {
	        .dir = f->dir, .limit_bytes = OR(options->cache_bytes, 10 * PS_GIB), .min_free_bytes = 1};
	struct ps_fill_options fill = {.memory_bytes = OR(options->memory_bytes, 32 * PS_MIB),
	        .max_connections = OR(options->max_connections, 8),
	        .max_bytes_per_s = options->max_bytes_per_s,
	        .timeout_ms = OR(options->timeout_ms, TIMEOUT_MS)};
	f->nbytes = OR(options->file_nbytes, FIXTURE_FILE_NBYTES);
	struct ps_remote remote = {.size = f->nbytes, .mtime_s = 1, .etag = "\"v1\""};

	if (ps_store_open(&store, &f->store, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(ps_fill_new(&fill, &f->fill), 0);
	f->origin = ps_pattern_origin_new();
	assert_int_equal(ps_object_get(f->store, "http://pattern/x.tar", &remote, 1, true, &f->object), 0);
	assert_int_equal(ps_fill_file_get(f->fill, f->object, &f->origin->origin, &f->file), 0);
}

void fixture_stop(struct fixture *f)
{
	ps_fill_file_put(f->file);
	ps_fill_drain(f->fill, &f->origin->origin);
	ps_object_put(f->object);
	ps_fill_free(f->fill);
	f->origin->origin.ops->close(&f->origin->origin);
	ps_store_close(f->store);
}

void fixture_restart(struct fixture *f, const struct fixture_options *options)
{
	fixture_stop(f);
	fixture_start(f, options);
}

struct fixture *fixture_new(const struct fixture_options *options)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	snprintf(f->dir, sizeof(f->dir), "/tmp/penstock-fill-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	fixture_start(f, options);
	return f;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void fixture_free(struct fixture *f)
{
	fixture_stop(f);
	nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(f);
}

int fixture_setup(void **state)
{
	*state = fixture_new(&(struct fixture_options){0});
	return 0;
}

int fixture_teardown(void **state)
{
	fixture_free(*state);
	return 0;
}

struct ps_fill_file *another_file(struct fixture *f, const char *url)
{
	struct ps_remote remote = {.size = f->nbytes, .mtime_s = 1, .etag = "\"v1\""};
	struct ps_object *object;
	struct ps_fill_file *file;

	assert_int_equal(ps_object_get(f->store, url, &remote, 1, true, &object), 0);
	assert_int_equal(ps_fill_file_get(f->fill, object, &f->origin->origin, &file), 0);
	ps_object_put(object);
	return file;
}

/* Reads -------------------------------------------------------------------------------------------------- */

bool segments_right(
        const struct ps_segment *segs, size_t nsegs, uint64_t from, uint64_t end, bool *ret_in_memory)
{
	static _Thread_local uint8_t buf[PS_READ_MAX_NBYTES];
	uint64_t at = from;
	bool right = true, in_memory = true;

	for (size_t i = 0; i < nsegs; i++) {
		const uint8_t *data = segs[i].data;

		if (!data) {
			in_memory = false;
			assert_int_equal(segs[i].pos, at);
			assert_int_equal(
			        pread(segs[i].fd, buf, segs[i].nbytes, (off_t)segs[i].pos), segs[i].nbytes);
			data = buf;
		}
		for (size_t k = 0; k < segs[i].nbytes; k++, at++)
			right = right && data[k] == ps_pattern_byte(at);
	}
	*ret_in_memory = in_memory;
	return right && at == end;
}

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct waited *w = PS_CONTAINER_OF(read, struct waited, read);
	bool in_memory;
	bool right = segments_right(segs, nsegs, read->offset, read->offset + read->nbytes, &in_memory);

	PS_LOCK_SCOPE(&w->lock);
	w->right = right && !errnum;
	w->in_memory = in_memory;
	w->errnum = errnum;
	w->answered_ns = ps_clock_mono_ns();
	w->done = true;
	pthread_cond_signal(&w->cond);
}

bool begin_of(struct fixture *f, struct ps_fill_file *file, struct waited *w, enum ps_access access,
        uint64_t offset, size_t nbytes)
{
	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->read.offset = offset;
	w->read.nbytes = PS_MIN(nbytes, f->nbytes - offset);
	w->read.done = read_done;
	w->read.priv.access = access;
	return ps_fill_read(file, &w->read);
}

bool begin(struct fixture *f, struct waited *w, uint64_t offset, size_t nbytes)
{
	return begin_of(f, f->file, w, PS_ACCESS_STREAM, offset, nbytes);
}

int end(struct waited *w)
{
	PS_LOCK_SCOPE(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	return w->errnum;
}

static int read_as(struct fixture *f, enum ps_access access, uint64_t offset, size_t nbytes)
{
	struct waited w;

	begin_of(f, f->file, &w, access, offset, nbytes);
	int errnum = end(&w);
	if (!errnum && !w.right)
		fail_msg("wrong bytes at %llu", (unsigned long long)offset);
	return errnum;
}

int read_once(struct fixture *f, uint64_t offset, size_t nbytes)
{
	return read_as(f, PS_ACCESS_STREAM, offset, nbytes);
}

int read_random(struct fixture *f, uint64_t offset, size_t nbytes)
{
	return read_as(f, PS_ACCESS_RANDOM, offset, nbytes);
}
