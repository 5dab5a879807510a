/* Files of the index are damaged between two runs: the next start succeeds, serves no wrong byte, logs at
 * most one line, and caches again. */
#include <errno.h>
#include <ftw.h>

#include "base/log.h"
#include "cache_test.h"

#define SIZE (3 * TEST_MIB - 100)
enum { NOBJECTS = 8, NNODES = 3000 };

static char file_found[512];
static const char *suffix_wanted;

static int see(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t n = strlen(path), k = strlen(suffix_wanted);

	(void)st, (void)ftw;
	if (type == FTW_F && n > k && strcmp(path + n - k, suffix_wanted) == 0 && n < sizeof(file_found))
		strcpy(file_found, path);
	return 0;
}

/* A file of the index with this suffix; the test fails if there is none. */
static const char *index_file(const char *dir, const char *suffix)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	file_found[0] = '\0';
	suffix_wanted = suffix;
	nftw(path, see, 16, FTW_PHYS);
	if (!file_found[0])
		fail_msg("no file of the index ends with %s", suffix);
	return file_found;
}

/* Makes an index with rows in tables and the newest rows in a log. */
static void make(const char *dir)
{
	char name[32], url[64];

	for (int run = 0; run < 3; run++) {
		struct ps_store *store = test_store_open(dir, 0, NULL);
		struct ps_index_batch *batch = ps_index_batch_new();

		for (unsigned i = 0; i < NNODES; i++) {
			struct ps_node_row node = {.node = 2000 + i,
			        .kind = PS_NODE_FILE,
			        .generation = (unsigned)run,
			        .name = name,
			        .url = url};
			snprintf(name, sizeof(name), "shard-%06u.tar", i);
			snprintf(url, sizeof(url), "http://h/p/%s", name);
			ps_index_batch_put_node(batch, &node);
			ps_index_batch_put_child(batch, 1024, name, node.node);
		}
		assert_int_equal(ps_index_batch_commit(ps_store_index(store), batch), 0);
		for (unsigned i = 0; i < NOBJECTS; i++) {
			struct ps_object *o = test_object(store, i, SIZE);
			assert_int_equal(ps_object_admit(o), 0);
			assert_int_equal(test_write(o, (unsigned)run), 0);
			ps_object_put(o);
		}
		ps_store_close(store);
	}
}

static unsigned nlines(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned n = 0;

	for (int c; f && (c = fgetc(f)) != EOF;)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* Opens the damaged store, checks every present byte and every name, and writes an object. Returns the
 * number of present blocks. */
static unsigned use(const char *dir)
{
	struct ps_store *store = test_store_open(dir, 0, NULL);
	char *buf = malloc(TEST_MIB);
	unsigned n = 0;

	for (unsigned i = 0; i < NOBJECTS; i++) {
		struct ps_object *o = test_object_look(store, i, SIZE);
		for (unsigned b = 0; b < ps_object_nblocks(o); b++) {
			enum ps_block_state state = ps_object_block(o, b);
			if (state == PS_BLOCK_UNVERIFIED)
				state = ps_object_verify_block(o, b, buf) == 0 ? PS_BLOCK_PRESENT
				                                               : PS_BLOCK_ABSENT;
			if (state == PS_BLOCK_PRESENT)
				assert_true(test_right(o, b));
			n += state == PS_BLOCK_PRESENT;
		}
		ps_object_put(o);
	}
	/* Each name is found or absent: no other error is returned. */
	for (unsigned i = 0; i < NNODES; i++) {
		struct ps_node_row row;
		int rc = ps_index_get_node(ps_store_index(store), 2000 + i, &row);
		if (rc == 0)
			ps_node_row_fini(&row);
		else
			assert_int_equal(rc, -ENOENT);
	}
	struct ps_object *o = test_object(store, NOBJECTS, SIZE);
	assert_int_equal(test_write_all(o), 0);
	assert_true(test_right(o, 1));
	ps_object_put(o);
	assert_int_equal(ps_store_commit(store), 0);
	ps_store_close(store);
	free(buf);
	return n;
}

/* Kinds of damage. */
static void cut_to_half(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size / 2), 0);
}

static void cut_tail(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size - 7), 0);
}

static void flip_in_middle(const char *path)
{
	struct stat st;
	unsigned char c;
	int fd = open(path, O_RDWR);

	assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
	assert_int_equal(pread(fd, &c, 1, st.st_size / 2), 1);
	c ^= 16;
	assert_int_equal(pwrite(fd, &c, 1, st.st_size / 2), 1);
	close(fd);
}

static void fill_with_zeros(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(truncate(path, st.st_size), 0);
}

static void delete (const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static const struct {
	const char *suffix, *what;
	void (*damage)(const char *path);
	bool kept; /* at least NOBJECTS blocks stay present */
} damages[] = {
        {"CURRENT", "is deleted", delete, false},
        {"CURRENT", "is zeros", fill_with_zeros, false},
        {"CURRENT", "is cut", cut_to_half, false},
        {".sst", "is deleted", delete, false},
        {".sst", "is cut", cut_to_half, false},
        {".sst", "lost its end", cut_tail, false},
        {".sst", "has a flipped bit", flip_in_middle, false},
        {".sst", "is zeros", fill_with_zeros, false},
        {".log", "is deleted", delete, true}, /* the newest rows */
        {".log", "is cut", cut_to_half, true},
        {".log", "lost its end", cut_tail, true}, /* a torn record */
        {".log", "has a flipped bit", flip_in_middle, true},
        {".log", "is zeros", fill_with_zeros, true},
};

/* MANIFEST-000004 and the like. */
static const char *manifest(const char *dir)
{
	char path[512], name[64] = "";
	static char ret[700];

	snprintf(path, sizeof(path), "%s/cache/index/CURRENT", dir);
	FILE *f = fopen(path, "r");
	if (!f || !fgets(name, sizeof(name), f))
		fail_msg("CURRENT cannot be read");
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	snprintf(ret, sizeof(ret), "%s/cache/index/%s", dir, name);
	return ret;
}

/* Damages a copy of the directory, as left by a clean stop or by a power cut, and uses the copy. */
static void try(const char *dir, const char *what, const char *path_of, void (*damage)(const char *path),
        bool kept, bool power_cut)
{
	char command[1024], copy[300], log[300];

	snprintf(copy, sizeof(copy), "%s/copy", dir);
	snprintf(log, sizeof(log), "%s/log", dir);
	snprintf(command, sizeof(command), "mkdir %s && cp -a --sparse=always %s/cache %s/", copy, dir, copy);
	assert_int_equal(system(command), 0);
	if (power_cut) {
		test_cut_the_power(copy);
		test_cut_the_power(copy);
	}
	damage(strcmp(path_of, "MANIFEST") == 0 ? manifest(copy) : index_file(copy, path_of));
	assert_int_equal(truncate(log, 0), 0); /* drops the lines of earlier starts */
	unsigned n = use(copy);
	unsigned nlogged = nlines(log), again = use(copy);
	print_message("# %s %s%s: %u blocks are there, %u lines\n", path_of, what,
	        power_cut ? ", power cut" : "", n, nlogged);
	assert_in_range(nlogged, 0, 1);
	assert_in_range(n, kept ? NOBJECTS : 0, 3 * NOBJECTS);
	assert_int_equal(again, n);
	test_remove_tree(copy);
}

static void a_damaged_index_gives_no_wrong_bytes_and_does_not_prevent_a_start(void **state)
{
	char log[300];

	snprintf(log, sizeof(log), "%s/log", (char *)*state);
	assert_int_equal(ps_log_open(log, PS_LOG_WARNING, "test", NULL), 0);
	make(*state);
	for (size_t i = 0; i < PS_ARRAY_LEN(damages); i++) {
		try(*state, damages[i].what, damages[i].suffix, damages[i].damage, damages[i].kept, false);
		/* After a power cut the start reads all of the index, including extents; the log has become
		 * a table. */
		if (strcmp(damages[i].suffix, ".sst") == 0)
			try(*state, damages[i].what, damages[i].suffix, damages[i].damage, damages[i].kept,
			        true);
	}
	try(*state, "is deleted", "MANIFEST", delete, false, false);
	try(*state, "is cut", "MANIFEST", cut_to_half, false, false);
	try(*state, "has a flipped bit", "MANIFEST", flip_in_middle, false, false);
}

static unsigned nodes_that_cannot_be_read(struct ps_store *store)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NNODES; i++) {
		struct ps_node_row row;
		int rc = ps_index_get_node(ps_store_index(store), 2000 + i, &row);

		if (rc == 0)
			ps_node_row_fini(&row);
		n += rc == -EIO;
	}
	return n;
}

static int flip_each(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t n = strlen(path);

	(void)st, (void)ftw;
	if (type == FTW_F && n > 4 && strcmp(path + n - 4, ".sst") == 0)
		flip_in_middle(path);
	return 0;
}

/* A run that finds damage leaves a mark, and the next start sets the index aside. */
static void an_index_damaged_while_open_is_set_aside_at_the_next_start(void **state)
{
	char index[300], mark[330], broken[330], log[300];

	snprintf(index, sizeof(index), "%s/cache/index", (char *)*state);
	snprintf(mark, sizeof(mark), "%s/DAMAGED", index);
	snprintf(broken, sizeof(broken), "%s/cache/index.broken-1", (char *)*state);
	snprintf(log, sizeof(log), "%s/log", (char *)*state);
	assert_int_equal(ps_log_open(log, PS_LOG_WARNING, "test", NULL), 0);
	make(*state);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	assert_int_equal(nftw(index, flip_each, 16, FTW_PHYS), 0);
	assert_in_range(nodes_that_cannot_be_read(store), 1, NNODES);
	assert_int_equal(access(mark, F_OK), 0);
	ps_store_close(store);
	assert_int_equal(truncate(log, 0), 0);
	unsigned n = use(*state);
	assert_int_equal(nlines(log), 1);
	assert_int_equal(access(broken, F_OK), 0);
	assert_int_equal(access(mark, F_OK), -1);
	assert_int_equal(use(*state), n);
	assert_int_equal(nlines(log), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_damaged_index_gives_no_wrong_bytes_and_does_not_prevent_a_start),
	        TEST(an_index_damaged_while_open_is_set_aside_at_the_next_start),
	};

	return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
