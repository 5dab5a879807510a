/* The hash of names in tables: spread evenly, and an origin cannot choose names that collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hashtable.h"

#define N 1000000
#define LISTS 65536 /* a table of N keys has more */

static unsigned hash_of(const char *name)
{
	return ps_hash_key(name, strlen(name));
}

static void names_are_spread_evenly(void **state)
{
	static uint8_t length[LISTS];
	unsigned longest = 0;

	(void)state;
	memset(length, 0, sizeof(length));
	for (unsigned i = 0; i < N; i++) {
		char name[64];

		snprintf(name, sizeof(name), "train/shard-%06u.tar", i);
		unsigned now = ++length[hash_of(name) % LISTS];
		longest = now > longest ? now : longest;
	}
	/* 15 on average; more than 60 by chance once in 10^12 */
	assert_in_range(longest, 16, 60);
}

/* Pairs with the same FNV-1a hash of 32 bits. */
static void names_that_collide_elsewhere_do_not_here(void **state)
{
	static const char *const pairs[][2] = {
	        {"costarring", "liquid"}, {"declinate", "macallums"}, {"altarage", "zinke"}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(pairs); i++)
		assert_int_not_equal(hash_of(pairs[i][0]), hash_of(pairs[i][1]));
}

static void length_and_each_byte_count(void **state)
{
	unsigned char key[24] = {0};
	unsigned zeros[25];

	(void)state;
	for (size_t n = 0; n < PS_ARRAY_LEN(zeros); n++) {
		zeros[n] = ps_hash_key(key, n);
		for (size_t m = 0; m < n; m++)
			assert_int_not_equal(zeros[m], zeros[n]);
	}
	for (size_t i = 0; i < sizeof(key); i++) {
		key[i] = 1;
		assert_int_not_equal(ps_hash_key(key, sizeof(key)), zeros[sizeof(key)]);
		key[i] = 0;
	}
	assert_int_equal(ps_hash_key(key, sizeof(key)), zeros[sizeof(key)]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_are_spread_evenly),
	        cmocka_unit_test(names_that_collide_elsewhere_do_not_here),
	        cmocka_unit_test(length_and_each_byte_count),
	};

	return cmocka_run_group_tests_name("hashtable", tests, NULL, NULL);
}
