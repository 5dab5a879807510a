/* The index of a shard as the list of its members: what it says, and when it is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/psx.h"
#include "members/members_private.h"

#define ROOM 65536
#define SECTIONS 3
#define SAMPLES 150
#define MTIME 77

/* An index while it is made. */
struct made {
	uint8_t p[ROOM];
	size_t n;
	uint64_t end; /* of the last member */
};

struct section {
	uint8_t p[ROOM / 4];
	size_t n;
};

static void varint(struct section *s, uint64_t v)
{
	s->n += ps_put_varint(s->p + s->n, v);
}

static void text(struct section *s, const char *t, size_t n)
{
	varint(s, n);
	memcpy(s->p + s->n, t, n);
	s->n += n;
}

static void sums_set(struct made *m)
{
	size_t nsections = ps_get_u16(m->p + PS_PSX_AT_NSECTIONS);

	for (size_t i = 0; i < nsections; i++) {
		uint8_t *entry = m->p + PS_PSX_HEAD + i * PS_PSX_SECTION;
		uint64_t at = ps_get_u64(entry + 8), n = ps_get_u64(entry + 16);

		if (at <= m->n && n <= m->n - at)
			ps_put_u64(entry + 24, ps_psx_sum(0, m->p + at, (size_t)n));
	}
	ps_put_u64(m->p + PS_PSX_AT_SUM, ps_psx_head_sum(m->p, nsections));
}

static void section_put(struct made *m, uint32_t i, const struct section *s)
{
	uint8_t *entry = m->p + PS_PSX_HEAD + i * PS_PSX_SECTION;

	ps_put_u32(entry, i + PS_PSX_SHAPES);
	ps_put_u64(entry + 8, m->n);
	ps_put_u64(entry + 16, s->n);
	memcpy(m->p + m->n, s->p, s->n);
	m->n = ps_psx_pad8(m->n + s->n);
}

static uint64_t size_of(unsigned i)
{
	return i * 7919 % 3000;
}

static uint64_t padded(uint64_t n)
{
	return (n + 511) / 512 * 512;
}

/* What is wrong, for the tests of refused indexes: with sample ODD, the only shape or the last key. */
#define ODD 70
enum odd { NONE, GAP, BAD, SHAPE_0, NO_SHAPE, NO_LEAD, LONG_LEAD, ZERO_IN_KEY, HUGE_SIZE, LAST_KEY };

/* Sample i has the key "d/i"; its members are .jpg, with a header, and .Cls, with three blocks of headers. */
static void make(struct made *m, enum odd odd)
{
	static struct section shapes, samples, keys;
	size_t nmarks = (size_t)ps_psx_nmarks(SAMPLES);

	*m = (struct made){.n = PS_PSX_HEAD + SECTIONS * PS_PSX_SECTION};
	shapes.n = 0;
	memset(samples.p, 0, samples.n = nmarks * 16);
	memset(keys.p, 0, keys.n = nmarks * 8);
	varint(&shapes, 1);
	varint(&shapes, 2);
	varint(&shapes, odd == NO_LEAD ? 0 : odd == LONG_LEAD ? UINT64_C(1) << 60 : 1);
	text(&shapes, "jpg\0", 3);
	shapes.p[shapes.n++] = 0;
	varint(&shapes, 3);
	text(&shapes, "Cls\0", 3);
	shapes.p[shapes.n++] = 0;
	for (unsigned i = 0; i < SAMPLES; i++) {
		enum odd here = i == ODD ? odd : NONE;
		char key[32];

		snprintf(key, sizeof(key), "d/%u", i);
		varint(&samples, (here == SHAPE_0           ? 0
		                         : here == NO_SHAPE ? 2
		                                            : 1)
		                                 << 2 |
		                         (here == BAD ? 2 : 0) | (here == GAP ? 1 : 0));
		if (here == GAP)
			varint(&samples, 1);
		varint(&samples, here == HUGE_SIZE ? UINT64_MAX : size_of(i));
		if (here != SHAPE_0)
			varint(&samples, size_of(i + 1));
		if (here == ZERO_IN_KEY)
			text(&keys, "d\0d", 3);
		else if (odd != LAST_KEY || i < SAMPLES - 1)
			text(&keys, key, strlen(key));
		m->end += 4 * 512 + padded(size_of(i)) + padded(size_of(i + 1));
	}
	memcpy(m->p, PS_PSX_MAGIC, 8);
	ps_put_u64(m->p + PS_PSX_AT_SIZE, m->end + 1024);
	ps_put_u64(m->p + PS_PSX_AT_PLAIN, m->end + 1024);
	ps_put_u64(m->p + PS_PSX_AT_COUNT, SAMPLES);
	ps_put_u16(m->p + PS_PSX_AT_NSECTIONS, SECTIONS);
	ps_put_u16(m->p + PS_PSX_AT_NOTES, PS_PSX_NOTE_ALL);
	ps_put_u64(m->p + PS_PSX_AT_FIRST, 4711);
	section_put(m, 0, &shapes);
	section_put(m, 1, &samples);
	section_put(m, 2, &keys);
	sums_set(m);
}

static struct ps_psx_shard shard_of(const struct made *m)
{
	return (struct ps_psx_shard){
	        .stored_nbytes = m->end + 1024, .nbytes = m->end + 1024, .mtime_s = MTIME};
}

struct seen {
	unsigned n;
	uint64_t at;
	int rc; /* of member number `stop` */
	unsigned stop;
};

static int see(void *arg, const struct ps_tar_member *m)
{
	struct seen *s = arg;
	unsigned i = s->n / 2, second = s->n % 2;
	char name[32];

	if (s->rc && s->n == s->stop)
		return s->rc;
	snprintf(name, sizeof(name), "d/%u.%s", i, second ? "Cls" : "jpg");
	assert_string_equal(m->name, name);
	assert_int_equal(m->name_len, strlen(name));
	assert_int_equal(m->kind, PS_TAR_FILE);
	assert_int_equal(m->mtime_s, MTIME);
	assert_int_equal(m->header_offset, s->at);
	assert_int_equal(m->offset, s->at + (second ? 3 * 512 : 512));
	assert_int_equal(m->size, size_of(i + second));
	assert_string_equal(m->link, "");
	assert_false(m->name_too_long);
	s->at = m->offset + padded(m->size);
	s->n++;
	return 0;
}

static int walk(const struct made *m, const struct ps_psx_shard *shard, struct seen *seen,
        struct ps_psx_end *end, struct ps_error *err)
{
	ps_error_clear(err);
	int rc = ps_psx_members(m->p, m->n, shard, see, seen, end, err);

	if (rc < 0) {
		assert_true(err->text[0]);
		assert_int_equal(err->err, -rc);
	}
	return rc;
}

static struct made *made_new(enum odd odd)
{
	struct made *m = malloc(sizeof(*m));

	assert_non_null(m);
	make(m, odd);
	return m;
}

static void all_members_are_shown_in_their_order(void **state)
{
	struct made *m = made_new(NONE);
	struct ps_psx_shard shard = shard_of(m);

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ps_error err;
		struct ps_psx_end end;
		struct seen seen = {0};

		assert_int_equal(walk(m, &shard, &seen, &end, &err), 0);
		assert_int_equal(seen.n, 2 * SAMPLES);
		assert_int_equal(seen.at, m->end);
		assert_true(end.any);
		assert_int_equal(end.first_sum, 4711);
		assert_string_equal(end.name, "d/149.Cls");
		assert_int_equal(end.size, size_of(SAMPLES));
		assert_int_equal(end.offset, m->end - padded(end.size));
		assert_int_equal(end.header, end.offset - 3 * 512);
		free(end.name);
		shard.stored_nbytes = PS_SIZE_UNKNOWN;
	}
	free(m);
}

static void what_the_receiver_refuses_ends_the_walk(void **state)
{
	struct made *m = made_new(NONE);
	struct ps_psx_shard shard = shard_of(m);
	struct seen seen = {.rc = -E2BIG, .stop = 5};
	struct ps_error err;
	struct ps_psx_end end;

	(void)state;
	assert_int_equal(walk(m, &shard, &seen, &end, &err), -E2BIG);
	assert_int_equal(seen.n, 5);
	free(m);
}

static void indexes_with_gaps_or_damaged_samples_are_refused(void **state)
{
	static const struct {
		enum odd odd;
		int rc;
		const char *why;
	} cases[] = {
	        {GAP, -ENODATA, "something between two samples"},
	        {BAD, -ENODATA, "a sample is bad"},
	        {SHAPE_0, -ENODATA, "does not have the members of some sample"},
	        {NO_SHAPE, -EBADMSG, "damaged"},
	        {NO_LEAD, -EBADMSG, "damaged"},
	        {LONG_LEAD, -EBADMSG, "damaged"},
	        {ZERO_IN_KEY, -EBADMSG, "damaged"},
	        {HUGE_SIZE, -EBADMSG, "damaged"},
	        {LAST_KEY, -EBADMSG, "damaged"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct made *m = made_new(cases[i].odd);
		struct ps_psx_shard shard = shard_of(m);
		struct ps_error err;
		struct ps_psx_end end;
		struct seen seen = {0};

		assert_int_equal(walk(m, &shard, &seen, &end, &err), cases[i].rc);
		assert_non_null(strstr(err.text, cases[i].why));
		free(m);
	}
}

static void the_shard_must_be_that_of_the_index(void **state)
{
	struct made *m = made_new(NONE);
	struct ps_psx_shard good = shard_of(m), others[4] = {good, good, good, good};
	struct ps_error err;
	struct ps_psx_end end;

	(void)state;
	others[0].stored_nbytes++;
	others[1].nbytes += 512;
	others[2].coded = true;
	others[3].nbytes = 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
		struct seen seen = {0};

		assert_int_equal(walk(m, &others[i], &seen, &end, &err), -ESTALE);
		assert_int_equal(seen.n, 0);
	}
	free(m);
}

static void what_the_head_says_decides(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		int rc;
	} cases[] = {
	        {7, '4', -ESTALE},
	        {0, 'Q', -EBADMSG},
	        {PS_PSX_AT_BAD, 1, -ENODATA},
	        {PS_PSX_AT_NOTES, 0, -ENODATA},
	        {PS_PSX_AT_NOTES, 2, -ENODATA},
	        {PS_PSX_AT_NOTES, 3, 0}, /* a note of a later version */
	        {PS_PSX_AT_FLAGS, PS_PSX_FLAG_GLOBAL, -ENODATA},
	        {PS_PSX_AT_FLAGS, PS_PSX_FLAG_LINES, -ENODATA},
	        {PS_PSX_AT_FLAGS, PS_PSX_FLAG_COMPRESSED, -ESTALE},
	        {PS_PSX_AT_FLAGS, 8, -EBADMSG},
	        {PS_PSX_AT_COUNT, SAMPLES - 1, -EBADMSG},
	        {PS_PSX_AT_COUNT, SAMPLES + 1, -EBADMSG},
	        {PS_PSX_AT_COUNT + 7, 0xff, -EBADMSG},
	        {PS_PSX_AT_NSECTIONS, 2, -EBADMSG},
	        {PS_PSX_AT_NSECTIONS, 60, -EBADMSG},
	        {PS_PSX_HEAD, 99, -EBADMSG},             /* no shapes */
	        {PS_PSX_HEAD, PS_PSX_SAMPLES, -EBADMSG}, /* samples twice */
	        {PS_PSX_HEAD + 8 + 7, 0xff, -EBADMSG},   /* the section is beyond the end */
	        {PS_PSX_HEAD + 16 + 3, 0x7f, -EBADMSG},  /* ends beyond it */
	        {PS_PSX_HEAD + 32 + 16, 0, -EBADMSG},    /* is shorter than it was */
	        {PS_PSX_HEAD + 32 + 16 + 1, 0, -EBADMSG},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct made *m = made_new(NONE);
		struct ps_psx_shard shard = shard_of(m);
		struct ps_error err;
		struct ps_psx_end end = {0};
		struct seen seen = {0};

		m->p[cases[i].at] = cases[i].value;
		sums_set(m);
		assert_int_equal(walk(m, &shard, &seen, &end, &err), cases[i].rc);
		free(end.name);
		free(m);
	}
}

/* Any one byte changed, and any length. */
static void nothing_of_a_damaged_index_is_taken(void **state)
{
	struct made *m = made_new(NONE);
	struct ps_psx_shard shard = shard_of(m);
	size_t n = m->n;

	(void)state;
	for (size_t at = 0; at < n; at++) {
		struct ps_error err;
		struct ps_psx_end end = {0};
		struct seen seen = {0};

		m->p[at] ^= 0x41;
		/* Padding may have any bytes. */
		if (walk(m, &shard, &seen, &end, &err) == 0)
			assert_int_equal(seen.n, 2 * SAMPLES);
		m->p[at] ^= 0x41;
		free(end.name);
	}
	for (m->n = 0; m->n < n - 8; m->n++) {
		struct ps_error err;
		struct ps_psx_end end;
		struct seen seen = {0};

		assert_true(walk(m, &shard, &seen, &end, &err) < 0);
	}
	free(m);
}

static void the_end_mark_must_have_room(void **state)
{
	struct made *m = made_new(NONE);

	(void)state;
	for (uint64_t rest = 0; rest <= 1024; rest += 256) {
		struct ps_psx_shard shard = shard_of(m);
		struct ps_error err;
		struct ps_psx_end end = {0};
		struct seen seen = {0};

		shard.nbytes = shard.stored_nbytes = m->end + rest;
		ps_put_u64(m->p + PS_PSX_AT_SIZE, shard.nbytes);
		ps_put_u64(m->p + PS_PSX_AT_PLAIN, shard.nbytes);
		sums_set(m);
		assert_int_equal(walk(m, &shard, &seen, &end, &err), rest < 512 ? -EBADMSG : 0);
		free(end.name);
	}
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(all_members_are_shown_in_their_order),
	        cmocka_unit_test(what_the_receiver_refuses_ends_the_walk),
	        cmocka_unit_test(indexes_with_gaps_or_damaged_samples_are_refused),
	        cmocka_unit_test(the_shard_must_be_that_of_the_index),
	        cmocka_unit_test(what_the_head_says_decides),
	        cmocka_unit_test(nothing_of_a_damaged_index_is_taken),
	        cmocka_unit_test(the_end_mark_must_have_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
