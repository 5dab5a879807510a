/* Two accesses to the same names in one cache: each has its own origin, and reads what that origin lets it
 * read. */
#include "tests/cache/dataset_fixture.h"
#include "tests/faults.h"

#include <errno.h>
#include <unistd.h>

#include "base/thread.h"
#include "catalog/catalog_private.h"

/* The other access's dataset; as_other() makes it the fixture's, as_mine() restores the fixture's own. */
static struct ps_dataset *other, *mine;
static struct ps_names_origin *other_origin;

static void attach_other(struct fixture *f)
{
	const struct ps_dataset_options options = {.origin = {.http.user_password = "other:one"}};
	struct ps_names_origin *o = ps_names_origin_new();

	memcpy(o->entries, f->origin->entries, sizeof(o->entries));
	next_origin = other_origin = o;
	assert_int_equal(ps_dataset_attach(f->cache, "http://names/", &options, &other, &f->err), 0);
	next_origin = f->origin;
	assert_ptr_not_equal(other, f->dataset);
}

static void as_other(struct fixture *f)
{
	mine = f->dataset;
	f->dataset = other;
}

static void as_mine(struct fixture *f)
{
	f->dataset = mine;
}

static int open_as_other(struct fixture *f, struct ps_handle **ret)
{
	struct ps_attr attr = {0};

	as_other(f);
	int errnum = lookup(f, "a", &attr);
	if (errnum == 0)
		errnum = open_node(f, attr.node, ret);
	as_mine(f);
	return errnum;
}

static struct ps_handle *open_as_mine(struct fixture *f)
{
	struct ps_handle *handle;
	struct ps_attr attr;

	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	return handle;
}

static void cache_all(struct ps_handle *handle)
{
	for (uint64_t at = 0; at < SIZE; at += TEST_MIB)
		assert_int_equal(read_at(handle, at, PS_MIN(SIZE - at, TEST_MIB), 1), 0);
	for (int i = 0; i < 500 && ps_handle_complete_fd(handle) < 0; i++)
		usleep(10000);
	assert_true(ps_handle_complete_fd(handle) >= 0);
}

static void begin(struct fixture *f)
{
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	attach_other(f);
}

static void end(struct fixture *f)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(f->handles); i++)
		if (f->handles[i])
			close_handle(f, f->handles[i]);
	ps_dataset_detach(other);
}

static void a_file_cached_by_another_access_is_read_after_one_request(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;

	begin(f);
	cache_all(open_as_mine(f));
	assert_int_equal(open_as_other(f, &handle), 0);
	assert_int_equal(read_at(handle, 0, TEST_MIB, 1), 0);
	assert_true(ps_handle_complete_fd(handle) >= 0);
	assert_int_equal(atomic_load(&other_origin->ngets), 1);
	close_handle(f, handle);
	assert_int_equal(open_as_other(f, &handle), 0);
	assert_int_equal(atomic_load(&other_origin->ngets), 1);
	end(f);
}

static void a_refused_access_gets_no_bytes(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle, *first;

	begin(f);
	first = open_as_mine(f);
	cache_all(first);
	atomic_store(&other_origin->get_errno, EACCES);
	assert_int_equal(open_as_other(f, &handle), EACCES);
	assert_int_equal(read_at(first, 0, TEST_MIB, 1), 0);
	/* Once the origin permits it, the open succeeds. After another refusal the open handle still
	 * reads. */
	atomic_store(&other_origin->get_errno, 0);
	assert_int_equal(open_as_other(f, &handle), 0);
	atomic_store(&other_origin->get_errno, EACCES);
	assert_int_equal(read_at(handle, TEST_MIB, TEST_MIB, 1), 0);
	end(f);
}

/* The other access opens the file while nothing is cached, so no request is needed. What is cached afterwards
 * was fetched with the fixture's own access. */
static void a_file_opened_while_uncached_needs_an_answer_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;

	begin(f);
	assert_int_equal(open_as_other(f, &handle), 0);
	assert_int_equal(atomic_load(&other_origin->ngets), 0);
	cache_all(open_as_mine(f));
	atomic_store(&other_origin->get_errno, EACCES);
	assert_int_equal(ps_handle_complete_fd(handle), -1);
	assert_int_equal(read_at(handle, 0, 4096, 1), EACCES);
	atomic_store(&other_origin->get_errno, 0);
	usleep((PS_FILL_FAILED_MS + 200) * 1000);
	assert_int_equal(read_at(handle, 0, 4096, 1), 0);
	unsigned ngets = atomic_load(&other_origin->ngets);
	assert_int_equal(read_at(handle, 2 * TEST_MIB, 4096, 1), 0); /* from the cache, from now on */
	assert_int_equal(atomic_load(&other_origin->ngets), ngets);
	end(f);
}

static void without_an_answer_only_an_existing_grant_holds(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;
	struct ps_attr attr;

	begin(f);
	cache_all(open_as_mine(f));
	usleep(2000); /* a grant lasts a millisecond */
	atomic_store(&other_origin->get_errno, EHOSTUNREACH);
	atomic_store(&f->origin->get_errno, EHOSTUNREACH);
	assert_int_equal(open_as_other(f, &handle), EACCES);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, TEST_MIB, 1), 0);
	end(f);
}

/* A lookup has asked for the version only. While its answer is being stored, an open comes that needs a
 * grant. */
static void an_open_that_joins_a_lookup_gets_its_grant(void **state)
{
	struct fixture *f = *state;
	struct answer looked = ANSWER_INIT, opened = ANSWER_INIT;
	struct ps_attr attr;

	begin(f);
	cache_all(open_as_mine(f));
	as_other(f);
	assert_int_equal(lookup(f, "a", &attr), 0);
	as_mine(f);
	ps_dataset_doubt(other, attr.node);
	{
		PS_LOCK_SCOPE(&other->catalog->names_lock);
		unsigned nheads = atomic_load(&other_origin->nheads);
		ps_dataset_lookup(other, ps_dataset_root(other), "a", attr_done, &looked);
		assert_int_equal(atomic_load(&other_origin->nheads), nheads + 1);
		usleep(200000); /* the HEAD is answered */
		ps_handle_open(other, attr.node, open_done, &opened);
	}
	assert_int_equal(wait_for(&looked), 0);
	assert_int_equal(wait_for(&opened), 0);
	ps_handle_close(opened.handle);
	end(f);
}

static void not_told(void *arg, uint64_t parent, const char *name)
{
	(void)arg, (void)parent, (void)name;
}

/* Two accounts mount one bucket and share its names. */
static const struct ps_dataset_options unsigned_options = {.origin = {.no_sign_request = true}};

static void *attach_other_account(void *arg)
{
	struct fixture *f = arg;
	struct ps_error err = {0};
	struct ps_dataset *dataset = NULL;

	if (ps_dataset_attach(f->cache, "s3://names/", &unsigned_options, &dataset, &err) < 0)
		return NULL;
	return dataset;
}

/* The other account is shown no names before its own listing, however long that takes: only this shows that
 * the account may list the bucket. */
static void names_are_shown_only_after_a_listing_of_the_same_account(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options others = {0};
	struct timespec end;
	pthread_t thread;
	void *got = NULL;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(ps_dataset_attach(f->cache, "s3://names/", &others, &f->dataset, &f->err), 0);
	struct ps_names_origin *o = next_origin = ps_names_origin_new();
	memcpy(o->entries, f->origin->entries, sizeof(o->entries));
	atomic_store(&o->list_stalls, true);
	assert_int_equal(pthread_create(&thread, NULL, attach_other_account, f), 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 1; /* an account that has listed the bucket before waits PS_ATTACH_WAIT_MS only */
	bool early = pthread_timedjoin_np(thread, &got, &end) == 0;
	atomic_store(&o->list_stalls, false);
	if (!early)
		pthread_join(thread, &got);
	next_origin = f->origin;
	assert_non_null(got);
	ps_dataset_detach(got);
	assert_false(early);
}

static void a_refresh_lists_for_the_account_that_asked(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options others = {0};
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(ps_dataset_attach(f->cache, "s3://names/", &others, &f->dataset, &f->err), 0);
	struct ps_names_origin *o = next_origin = ps_names_origin_new();
	memcpy(o->entries, f->origin->entries, sizeof(o->entries));
	other = attach_other_account(f);
	next_origin = f->origin;
	assert_non_null(other);
	assert_ptr_equal(other->catalog, f->dataset->catalog);
	assert_int_equal(refresh(f, NULL), 0);
	ps_names_origin_set(o, "b", SIZE, 1); /* new since the last refresh */
	as_other(f);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(lookup(f, "b", &attr), 0);
	as_mine(f);
	ps_dataset_detach(other);
}

/* Accounts share the names of a bucket. If a dataset ends before a listing that it requested, no other waits
 * for that listing. */
static void no_dataset_waits_for_the_listing_of_an_ended_one(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options others = {0};
	char text[PS_ERROR_TEXT_LEN];

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(ps_dataset_attach(f->cache, "s3://names/", &others, &f->dataset, &f->err), 0);
	struct ps_names_origin *o = next_origin = ps_names_origin_new();
	memcpy(o->entries, f->origin->entries, sizeof(o->entries));
	other = attach_other_account(f);
	next_origin = f->origin;
	assert_non_null(other);
	assert_ptr_equal(other->catalog, f->dataset->catalog);
	assert_int_equal(ps_dataset_missing(f->dataset, 5000, NULL, text), 0);

	struct ps_watch watch = {.dataset = other, .changed = not_told};
	struct refreshing first, second;
	ps_dataset_watch(&watch);
	atomic_store(&o->list_stalls, true);
	refresh_begin(&first, &watch);
	while (atomic_load(&o->nlists) < 2)
		usleep(1000);
	refresh_begin(&second, &watch);
	ps_dataset_unwatch(&watch);
	assert_int_equal(wait_for(&first.answer), ECANCELED);
	assert_int_equal(wait_for(&second.answer), ECANCELED);
	ps_dataset_detach(other);
	assert_int_equal(ps_dataset_missing(f->dataset, 3000, NULL, text), 0);
}

/* HEADs and GETs are answered by servers that do not agree. */
static void an_origin_that_contradicts_itself_is_not_asked_endlessly(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;

	begin(f);
	cache_all(open_as_mine(f));
	other_origin->nserved = 100; /* no answer has the version */
	atomic_store(&other_origin->etag_changes, true);
	assert_int_equal(open_as_other(f, &handle), EACCES);
	usleep(300000);
	assert_in_range(atomic_load(&other_origin->ngets), 1, 3);
	atomic_store(&other_origin->etag_changes, false);
	assert_int_equal(open_as_other(f, &handle), 0);
	end(f);
}

static enum ps_grant grant_of_a(struct fixture *f, struct ps_node_row *ret_row)
{
	struct ps_attr attr;

	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(ps_index_get_node(ps_store_index(f->cache->store), attr.node, ret_row), 0);
	return ps_grant_of_row(f->dataset, ret_row);
}

static void a_grant_outlives_a_node_of_the_same_version(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;
	struct ps_node_row row;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	handle = open_as_mine(f);
	assert_int_equal(read_at(handle, 0, TEST_MIB, 1), 0);
	close_handle(f, handle);
	assert_int_equal(grant_of_a(f, &row), PS_GRANT_VALID);
	assert_int_equal(ps_dataset_renew(f->dataset, &row), 0);
	ps_node_row_fini(&row);
	detach(f);
	assert_int_equal(attach(f), 0);
	assert_int_equal(grant_of_a(f, &row), PS_GRANT_VALID);
	ps_node_row_fini(&row);
	/* The grant of a superseded version is deleted with that version. */
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	detach(f);
	assert_int_equal(attach(f), 0);
	assert_int_equal(grant_of_a(f, &row), PS_GRANT_NONE);
	row.remote.mtime_s = 1;
	strcpy(row.remote.etag, "\"1\"");
	assert_int_equal(ps_grant_of_row(f->dataset, &row), PS_GRANT_VALID);
	detach(f);
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_grant_of_row(f->dataset, &row), PS_GRANT_NONE);
	ps_node_row_fini(&row);
}

/* Changes the dataset's access: the tests below give grants directly. */
static void as_access(struct fixture *f, uint8_t number)
{
	memset(&f->dataset->access, number, sizeof(f->dataset->access));
}

static void a_grant_belongs_to_one_access_until_its_key_expires(void **state)
{
	struct fixture *f = *state;
	struct ps_node_row row;
	struct ps_id of;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	const struct ps_id access = f->dataset->access;
	int64_t now_s = ps_clock_real_s();
	f->cache->grant_ttl_ms = 24 * 3600 * 1000;
	memset(&of, 7, sizeof(of));
	as_access(f, 1);
	assert_int_equal(ps_grant_look(f->dataset, &of), PS_GRANT_NONE);
	ps_grant_give(f->dataset, &of, now_s + 3600);
	assert_int_equal(ps_grant_look(f->dataset, &of), PS_GRANT_VALID);
	as_access(f, 2);
	assert_int_equal(ps_grant_look(f->dataset, &of), PS_GRANT_NONE);
	as_access(f, 1);
	faults_step_clock(5400);
	assert_int_equal(ps_grant_look(f->dataset, &of), PS_GRANT_OLD);
	/* Given again with a newer key, the grant lasts as long as that key. */
	faults_step_clock(0);
	ps_grant_give(f->dataset, &of, now_s + 7200);
	faults_step_clock(5400);
	assert_int_equal(ps_grant_look(f->dataset, &of), PS_GRANT_VALID);
	faults_step_clock(0);

	/* A local file needs no grant. */
	f->dataset->access = access;
	assert_int_equal(grant_of_a(f, &row), PS_GRANT_NONE);
	void (*proved)(void *, const char *, const struct ps_remote *, int64_t) = f->origin->origin.proved;
	f->origin->origin.proved = NULL;
	assert_int_equal(ps_grant_of_row(f->dataset, &row), PS_GRANT_VALID);
	f->origin->origin.proved = proved;
	ps_node_row_fini(&row);
	faults_end();
}

/* The other access opens the file twice; the second request gets this error. Returns the grant that is
 * left. */
static enum ps_grant grant_after(struct fixture *f, int errnum, int status)
{
	struct ps_handle *handle;
	struct ps_node_row row;

	attach_other(f);
	assert_int_equal(open_as_other(f, &handle), 0);
	close_handle(f, handle);
	usleep(2000); /* a grant lasts a millisecond */
	atomic_store(&other_origin->get_status, status);
	atomic_store(&other_origin->get_errno, errnum);
	if (open_as_other(f, &handle) == 0)
		close_handle(f, handle);
	assert_int_equal(atomic_load(&other_origin->ngets), 2);
	as_other(f);
	row_of(f, "a", &row);
	enum ps_grant grant = ps_grant_of_row(f->dataset, &row);
	as_mine(f);
	ps_node_row_fini(&row);
	ps_dataset_detach(other);
	return grant;
}

/* An answer that refuses the request revokes a grant; a failure to answer does not. */
static void a_refusal_revokes_a_grant_and_a_temporary_error_does_not(void **state)
{
	static const struct {
		int errnum, status;
		enum ps_grant left;
	} rows[] = {
	        {EHOSTUNREACH, 0, PS_GRANT_OLD},
	        {EIO, 500, PS_GRANT_OLD},
	        {EIO, 503, PS_GRANT_OLD},
	        {EIO, 429, PS_GRANT_OLD},
	        {EIO, 425, PS_GRANT_OLD},
	        {EIO, 408, PS_GRANT_OLD},
	        {EAGAIN, 400, PS_GRANT_OLD}, /* credentials that are being renewed */
	        {EACCES, 403, PS_GRANT_NONE},
	        {EACCES, 0, PS_GRANT_NONE},
	        {EIO, 400, PS_GRANT_NONE},
	        {EIO, 499, PS_GRANT_NONE},
	        {EIO, 302, PS_GRANT_NONE},
	};
	struct fixture *f = *state;
	struct ps_handle *handle;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	cache_all(open_as_mine(f));
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
		if (grant_after(f, rows[i].errnum, rows[i].status) != rows[i].left)
			fail_msg("%d, status %d", rows[i].errnum, rows[i].status);
	/* Without a grant no bytes are served while the origin does not answer. */
	attach_other(f);
	atomic_store(&other_origin->get_errno, EHOSTUNREACH);
	assert_int_equal(open_as_other(f, &handle), EACCES);
	end(f);
}

/* While the grant of a version is requested, a listing supersedes that version. */
static void a_grant_is_for_the_version_that_was_requested(void **state)
{
	struct fixture *f = *state;
	struct answer opened = ANSWER_INIT;
	struct ps_node_row row;

	begin(f);
	cache_all(open_as_mine(f));
	as_other(f);
	row_of(f, "a", &row);
	atomic_store(&other_origin->gets_stall, true);
	ps_handle_open(other, row.node, open_done, &opened);
	ps_node_row_fini(&row);
	ps_names_origin_set(other_origin, "a", SIZE, 2);
	assert_int_equal(refresh(f, NULL), 0);
	ps_names_origin_set(other_origin, "a", SIZE, 1);
	atomic_store(&other_origin->gets_stall, false);
	assert_int_equal(wait_for(&opened), ESTALE);
	row_of(f, "a", &row);
	assert_int_equal(row.remote.mtime_s, 2);
	assert_int_equal(ps_grant_of_row(f->dataset, &row), PS_GRANT_NONE);
	ps_node_row_fini(&row);
	as_mine(f);
	end(f);
}

/* Names and sizes are the same, but the objects are others: the names of one tenant are not shown to the
 * other. */
static void a_bucket_of_another_tenant_is_recognized_by_its_versions(void **state)
{
	static const struct {
		const char *source;
		uint64_t version;
		bool shared;
	} rows[] = {{"s3://one/", 1, true}, {"s3://two/", 2, false}};
	struct fixture *f = *state;
	const struct ps_dataset_options others = {.origin = {.endpoint = "http://store:1"}};
	struct ps_dataset_options options = others;

	options.origin.no_sign_request = true;

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		const char *source = rows[i].source;

		ps_names_origin_set(f->origin, "a", SIZE, 1);
		ps_names_origin_set(f->origin, "b", SIZE, 1);
		assert_int_equal(ps_dataset_attach(f->cache, source, &others, &f->dataset, &f->err), 0);
		next_origin = ps_names_origin_new();
		ps_names_origin_set(next_origin, "a", SIZE, rows[i].version);
		ps_names_origin_set(next_origin, "b", SIZE, rows[i].version);
		/* the second account opens another origin for names of its own */
		if (!rows[i].shared) {
			origin_after_next = ps_names_origin_new();
			memcpy(origin_after_next->entries, next_origin->entries,
			        sizeof(next_origin->entries));
		}
		assert_int_equal(ps_dataset_attach(f->cache, source, &options, &other, &f->err), 0);
		assert_int_equal(other->catalog == f->dataset->catalog, rows[i].shared);
		ps_dataset_detach(other);
		detach(f);
	}
}

static void only_the_refused_access_loses_its_grant(void **state)
{
	struct fixture *f = *state;
	struct ps_id of;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	const struct ps_id access = f->dataset->access;
	memset(&of, 7, sizeof(of));
	for (uint8_t i = 1; i <= 3; i++) {
		as_access(f, i);
		ps_grant_give(f->dataset, &of, 0);
	}
	as_access(f, 2);
	ps_grant_revoke(f->dataset, &of);
	for (uint8_t i = 1; i <= 3; i++) {
		as_access(f, i);
		assert_int_equal(ps_grant_look(f->dataset, &of), i == 2 ? PS_GRANT_NONE : PS_GRANT_VALID);
	}
	/* Of more than PS_GRANTS_KEPT grants the oldest are dropped. */
	for (uint8_t i = 11; i <= 13 + PS_GRANTS_KEPT; i++) {
		as_access(f, i);
		ps_grant_give(f->dataset, &of, 0);
	}
	for (uint8_t i = 1; i <= 13 + PS_GRANTS_KEPT; i++) {
		as_access(f, i);
		assert_int_equal(ps_grant_look(f->dataset, &of), i > 13 ? PS_GRANT_VALID : PS_GRANT_NONE);
	}
	f->dataset->access = access;
}

static int setup_short(void **state)
{
	int rc = setup(state);

	if (rc == 0)
		((struct fixture *)*state)->cache->grant_ttl_ms = 1;
	return rc;
}

/* The clock steps by a day in both directions: a grant is not valid for longer than intended, and is not
 * requested at every open. */
static void a_grant_is_requested_once_after_a_clock_step(void **state)
{
	static const int64_t to[] = {86400, 0, -86400, 0};
	struct fixture *f = *state;
	struct ps_handle *handle;

	begin(f);
	cache_all(open_as_mine(f));
	assert_int_equal(open_as_other(f, &handle), 0);
	close_handle(f, handle);
	for (size_t i = 0; i < PS_ARRAY_LEN(to); i++) {
		unsigned before = atomic_load(&other_origin->ngets) + atomic_load(&other_origin->nheads);

		faults_step_clock(to[i]);
		for (int k = 0; k < 3; k++) {
			assert_int_equal(open_as_other(f, &handle), 0);
			close_handle(f, handle);
		}
		/* One request for the grant, one for the version. */
		assert_in_range(
		        atomic_load(&other_origin->ngets) + atomic_load(&other_origin->nheads) - before, 1,
		        2);
	}
	/* A right that was revoked is gone after a step in either direction. */
	atomic_store(&other_origin->get_errno, EACCES);
	for (size_t i = 0; i < 3; i += 2) {
		faults_step_clock(to[i]);
		assert_int_equal(open_as_other(f, &handle), EACCES);
	}
	faults_end();
	end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(
	                a_file_cached_by_another_access_is_read_after_one_request, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_refused_access_gets_no_bytes, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_file_opened_while_uncached_needs_an_answer_of_its_own, setup, teardown),
	        cmocka_unit_test_setup_teardown(an_open_that_joins_a_lookup_gets_its_grant, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                an_origin_that_contradicts_itself_is_not_asked_endlessly, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_grant_outlives_a_node_of_the_same_version, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_grant_belongs_to_one_access_until_its_key_expires, setup, teardown),
	        cmocka_unit_test_setup_teardown(only_the_refused_access_loses_its_grant, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_refusal_revokes_a_grant_and_a_temporary_error_does_not, setup_short, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_grant_is_for_the_version_that_was_requested, setup_patient, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_bucket_of_another_tenant_is_recognized_by_its_versions, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                names_are_shown_only_after_a_listing_of_the_same_account, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_refresh_lists_for_the_account_that_asked, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                no_dataset_waits_for_the_listing_of_an_ended_one, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                without_an_answer_only_an_existing_grant_holds, setup_short, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_grant_is_requested_once_after_a_clock_step, setup, teardown),
	};

	return cmocka_run_group_tests_name("grant", tests, NULL, NULL);
}
