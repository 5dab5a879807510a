#include "tests/cache/dataset_fixture.h"

struct ps_names_origin *next_origin, *origin_after_next;

int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err);
int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	(void)source, (void)options, (void)err;
	*ret = &next_origin->origin;
	if (origin_after_next)
		next_origin = ps_steal_ptr(&origin_after_next);
	return 0;
}

static int setup_with(void **state, uint64_t limit_bytes, uint64_t timeout_ms)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[4096];

	if (!f || test_dir_setup((void **)&f->dir) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/cache", f->dir);
	struct ps_cache_options options = {.store = {.dir = path,
	                                           .limit_bytes = limit_bytes,
	                                           .min_free_bytes = 1,
	                                           .checksum_retry_ms = 1000},
	        .memory_bytes = 32 * TEST_MIB,
	        .timeout_ms = timeout_ms};
	if (ps_cache_open(&options, &f->cache, &f->err) < 0)
		return -1;
	f->origin = next_origin = ps_names_origin_new();
	*state = f;
	return 0;
}

int attach(struct fixture *f)
{
	struct ps_dataset_options options = {0};

	f->err = (struct ps_error){0};
	return ps_dataset_attach(f->cache, "http://names/", &options, &f->dataset, &f->err);
}

int setup(void **state)
{
	return setup_with(state, 1024 * TEST_MIB, TIMEOUT_MS);
}

int setup_patient(void **state)
{
	return setup_with(state, 1024 * TEST_MIB, PATIENT_MS);
}

/* The limit is so small that files of 20 MiB are cached by extents. */
int setup_small(void **state)
{
	return setup_with(state, 16 * TEST_MIB, TIMEOUT_MS);
}

/* The detach that follows closes the origin; the next origin has the same names. */
void take_origin(struct fixture *f)
{
	struct ps_names_origin *old = f->origin, *o = ps_names_origin_new();

	memcpy(o->entries, old->entries, sizeof(o->entries));
	atomic_store(&o->list_sizes, atomic_load(&old->list_sizes));
	f->origin = next_origin = o;
}

void detach(struct fixture *f)
{
	take_origin(f);
	ps_dataset_detach(f->dataset);
	f->dataset = NULL;
}

int attach_fails(struct fixture *f)
{
	struct ps_names_origin *o = ps_names_origin_new(), *old = f->origin;

	memcpy(o->entries, old->entries, sizeof(o->entries));
	atomic_store(&o->list_sizes, atomic_load(&old->list_sizes));
	int rc = attach(f);
	f->origin = next_origin = o;
	return rc;
}

void close_handle(struct fixture *f, struct ps_handle *handle)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(f->handles); i++) {
		if (f->handles[i] == handle) {
			f->handles[i] = NULL;
			break;
		}
	}
	ps_handle_close(handle);
}

int teardown(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < PS_ARRAY_LEN(f->handles); i++)
		ps_handle_close(f->handles[i]);
	if (f->dataset)
		ps_dataset_detach(f->dataset);
	else
		f->origin->origin.ops->close(&f->origin->origin);
	ps_cache_close(f->cache);
	test_dir_teardown((void **)&f->dir);
	free(f);
	return 0;
}

int wait_for(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->cond, &a->lock);
	return a->errnum;
}

bool is_answered(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	return a->done;
}

static void answered(struct answer *a, int errnum)
{
	PS_LOCK_SCOPE(&a->lock);
	a->errnum = errnum;
	a->done = true;
	pthread_cond_signal(&a->cond);
}

void attr_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct answer *a = arg;

	if (attr)
		a->attr = *attr;
	answered(a, errnum);
}

int lookup_in(struct fixture *f, uint64_t dir, const char *name, struct ps_attr *ret)
{
	struct answer a = ANSWER_INIT;

	ps_dataset_lookup(f->dataset, dir, name, attr_done, &a);
	int errnum = wait_for(&a);
	*ret = a.attr;
	return errnum;
}

int lookup(struct fixture *f, const char *name, struct ps_attr *ret)
{
	return lookup_in(f, ps_dataset_root(f->dataset), name, ret);
}

int getattr(struct fixture *f, uint64_t node, struct ps_attr *ret)
{
	struct answer a = ANSWER_INIT;

	ps_dataset_getattr(f->dataset, node, attr_done, &a);
	int errnum = wait_for(&a);
	*ret = a.attr;
	return errnum;
}

void row_of(struct fixture *f, const char *name, struct ps_node_row *ret)
{
	struct ps_attr attr;

	assert_int_equal(lookup(f, name, &attr), 0);
	assert_int_equal(ps_index_get_node(ps_store_index(ps_cache_store(f->cache)), attr.node, ret), 0);
}

static void refreshed(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result)
{
	struct refreshing *r = PS_CONTAINER_OF(refresh, struct refreshing, refresh);

	r->result = *result;
	answered(&r->answer, errnum);
}

void refresh_begin(struct refreshing *r, struct ps_watch *watch)
{
	*r = (struct refreshing){.refresh = {.watch = watch, .done = refreshed}, .answer = ANSWER_INIT};
	ps_dataset_refresh(&r->refresh);
}

static void not_told(void *arg, uint64_t parent, const char *name)
{
	(void)arg, (void)parent, (void)name;
}

int refresh(struct fixture *f, struct ps_refreshed *ret)
{
	struct ps_watch watch = {.dataset = f->dataset, .changed = not_told};
	struct refreshing r;

	ps_dataset_watch(&watch);
	refresh_begin(&r, &watch);
	int errnum = wait_for(&r.answer);
	ps_dataset_unwatch(&watch);
	if (ret)
		*ret = r.result;
	return errnum;
}

void open_done(void *arg, int errnum, struct ps_handle *handle)
{
	struct answer *a = arg;

	a->handle = handle;
	answered(a, errnum);
}

int open_node(struct fixture *f, uint64_t node, struct ps_handle **ret)
{
	struct answer a = ANSWER_INIT;

	ps_handle_open(f->dataset, node, open_done, &a);
	int errnum = wait_for(&a);
	*ret = a.handle;
	for (size_t i = 0; a.handle && i < PS_ARRAY_LEN(f->handles); i++) {
		if (!f->handles[i]) {
			f->handles[i] = a.handle;
			break;
		}
	}
	return errnum;
}

uint8_t expected_add;

void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct answer *a = PS_CONTAINER_OF(read, struct answer, read);
	uint64_t at = read->offset;

	a->right = true;
	for (size_t i = 0; i < nsegs; i++) {
		uint8_t *copy = malloc(segs[i].nbytes);

		if (segs[i].data)
			memcpy(copy, segs[i].data, segs[i].nbytes);
		else if (pread(segs[i].fd, copy, segs[i].nbytes, (off_t)segs[i].pos) !=
		         (ssize_t)segs[i].nbytes)
			a->right = false;
		for (size_t k = 0; k < segs[i].nbytes; k++, at++)
			a->right = a->right && copy[k] == (uint8_t)(ps_pattern_byte(at) + expected_add);
		free(copy);
	}
	answered(a, errnum);
}

/* Reads, and expects bytes of this version. */
int read_at(struct ps_handle *handle, uint64_t offset, size_t nbytes, uint64_t version)
{
	struct answer a = ANSWER_INIT;

	expected_add = (uint8_t)version;
	a.read = (struct ps_read){.handle = handle, .offset = offset, .nbytes = nbytes, .done = read_done};
	ps_handle_read(&a.read);
	int errnum = wait_for(&a);
	if (!errnum)
		assert_true(a.right);
	return errnum;
}
