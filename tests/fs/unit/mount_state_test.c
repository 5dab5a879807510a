/* What a daemon leaves to the next one: handles, slots, texts, and the OPENs that may not have been
 * answered. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/mount_state.h"

struct seen {
	struct ps_mount_state *state;
	unsigned nused, nclosing;
	bool keep;
};

static void *see(void *arg, uint64_t fh, struct ps_state_slot *slot)
{
	struct seen *seen = arg;
	bool used = (uint32_t)atomic_load(&slot->word) == PS_SLOT_USED;

	(void)fh;
	seen->nused += used;
	seen->nclosing += !used;
	return used && seen->keep ? slot : NULL;
}

static uint64_t add(struct ps_mount_state *state, uint64_t ino, uint64_t unique, const char *text)
{
	const struct ps_state_slot like = {.ino = ino, .unique = unique, .kind = 2, .backing_id = 7};
	uint64_t fh;

	assert_int_equal(ps_state_add(state, &like, state, text, &fh), 0);
	return fh;
}

static void a_handle_is_found_until_it_is_closed_and_never_after(void **unused)
{
	struct ps_mount_state state;

	(void)unused;
	assert_int_equal(ps_state_init(&state, -1), 0);
	uint64_t fh = add(&state, 5, 0, NULL);
	assert_ptr_equal(ps_state_find(&state, fh), &state);
	ps_state_closing(&state, fh);
	assert_null(ps_state_find(&state, fh));
	ps_state_remove(&state, fh);
	uint64_t next = add(&state, 6, 0, NULL); /* in the same slot */
	assert_int_equal((uint32_t)next, (uint32_t)fh);
	assert_int_not_equal(next, fh);
	assert_null(ps_state_find(&state, fh));
	assert_ptr_equal(ps_state_find(&state, next), &state);
	/* What the kernel never sends. */
	static const uint64_t foreign[] = {1, 4095, 4096, UINT32_MAX, UINT64_MAX, 0x7fff12345678,
	        PS_STATE_CHUNK * (uint64_t)PS_STATE_CHUNKS};
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		assert_null(ps_state_find(&state, foreign[i]));
	ps_state_fini(&state);
}

static void the_next_daemon_finds_what_was_open(void **unused)
{
	struct ps_mount_state first, next;
	uint64_t fhs[PS_STATE_CHUNK + 10], found;

	(void)unused;
	assert_int_equal(ps_state_init(&first, -1), 0);
	for (size_t i = 0; i < PS_STATE_CHUNK + 10; i++)
		fhs[i] = add(&first, i, 2 * i, i % 100 ? NULL : "a text");
	ps_state_answered(&first, fhs[3], 6);
	ps_state_answered(&first, fhs[4], 10); /* another request's number */
	ps_state_remove(&first, fhs[8]);
	ps_state_closing(&first, fhs[9]);
	first.head->init_nbytes = 40;
	int fd = dup(first.fd);
	ps_state_fini(&first); /* as the kernel does when the process is killed */

	assert_int_equal(ps_state_init(&next, fd), 0);
	assert_int_equal(next.head->init_nbytes, 40);
	struct seen seen = {.state = &next, .keep = true};
	ps_state_restore(&next, see, &seen);
	assert_int_equal(seen.nused, PS_STATE_CHUNK + 8);
	assert_int_equal(seen.nclosing, 1);
	assert_ptr_equal(ps_state_find(&next, fhs[20]), ps_state_slot(&next, fhs[20]));
	assert_int_equal(ps_state_slot(&next, fhs[20])->ino, 20);
	assert_int_equal(ps_state_slot(&next, fhs[20])->backing_id, 7);
	assert_null(ps_state_find(&next, fhs[8]));
	assert_null(ps_state_find(&next, fhs[9]));
	char *text = ps_state_text(&next, fhs[200]);
	assert_string_equal(text, "a text");
	free(text);
	assert_null(ps_state_text(&next, fhs[201]));
	/* Which OPENs may not have been answered. */
	assert_false(ps_state_unanswered(&next, 6, &found));
	assert_true(ps_state_unanswered(&next, 8, &found));
	assert_int_equal(found, fhs[4]);
	assert_false(ps_state_unanswered(&next, 18, &found)); /* closing */
	assert_false(ps_state_unanswered(&next, 0, &found));
	/* New handles get free slots only, and differ from the slots' earlier handles. */
	uint64_t a = add(&next, 1, 0, NULL), b = add(&next, 2, 0, NULL);
	assert_true((uint32_t)a == 8 || (uint32_t)a == 9 || (uint32_t)a >= PS_STATE_CHUNK + 10);
	assert_int_not_equal((uint32_t)a, (uint32_t)b);
	assert_int_not_equal(a, fhs[8]);
	assert_int_not_equal(a, fhs[9]);
	ps_state_fini(&next);
}

static void what_the_next_daemon_cannot_restore_is_free(void **unused)
{
	struct ps_mount_state first, next;

	(void)unused;
	assert_int_equal(ps_state_init(&first, -1), 0);
	uint64_t fh = add(&first, 1, 0, "text");
	int fd = dup(first.fd);
	ps_state_fini(&first);
	assert_int_equal(ps_state_init(&next, fd), 0);
	struct seen seen = {.state = &next};
	ps_state_restore(&next, see, &seen);
	assert_null(ps_state_find(&next, fh));
	assert_null(ps_state_text(&next, fh) ? "" : NULL);
	ps_state_fini(&next);
}

static void a_state_of_another_version_is_refused(void **unused)
{
	struct ps_mount_state first, next;

	(void)unused;
	assert_int_equal(ps_state_init(&first, -1), 0);
	first.head->version++;
	int fd = dup(first.fd);
	ps_state_fini(&first);
	assert_int_equal(ps_state_init(&next, fd), -EPROTO);
	assert_int_equal(ps_state_init(&next, open("/dev/null", O_RDWR | O_CLOEXEC)), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_handle_is_found_until_it_is_closed_and_never_after),
	        cmocka_unit_test(the_next_daemon_finds_what_was_open),
	        cmocka_unit_test(what_the_next_daemon_cannot_restore_is_free),
	        cmocka_unit_test(a_state_of_another_version_is_refused),
	};

	return cmocka_run_group_tests_name("mount_state", tests, NULL, NULL);
}
