/* Small things that the store's tests share: a directory of their own (*state is its path), files in it. */
#ifndef PS_TESTS_CACHE_TEST_H
#define PS_TESTS_CACHE_TEST_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int test_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void test_remove_tree(const char *dir)
{
	nftw(dir, test_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline int test_dir_setup(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = NULL;

	if (asprintf(&dir, "%s/penstock-test-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0 || !mkdtemp(dir))
		return -1;
	*state = dir;
	return 0;
}

static inline int test_dir_teardown(void **state)
{
	test_remove_tree(*state);
	free(*state);
	return 0;
}

/* DIR/name holds exactly text afterwards. */
static inline void test_write_file(const char *dir, const char *name, const char *text)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		abort();
}

#endif
