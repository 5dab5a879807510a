/* Indexes: entries are read as they were written, by number, in any order; sets of indexes; a damaged index
 * gives no wrong values. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "make_tar.h"
#include "shard/index/format.h"
#include "shard/index/index.h"
#include "shard/shard.h"

#define SAMPLES 300

/* Sample i has i % 3 + 1 members, of distinct sizes. */
static uint64_t size_of(uint64_t i, uint32_t m)
{
	return (i * 7919 + m * 104729) % 100000;
}

static const char *const suffixes[] = {"jpg", "cls", "json"};

static void file_make(uint32_t flags, uint8_t **ret_data, size_t *ret_nbytes)
{
	struct ps_shard_index_writer *w = ps_shard_index_writer_new();
	uint64_t at = 0, unit = flags & PS_PSX_FLAG_LINES ? 1 : 512;
	int number, text;

	assert_non_null(w);
	ps_shard_index_writer_facts(w)->flags = flags;
	number = ps_shard_index_writer_column(w, "number", "cls");
	text = ps_shard_index_writer_column(w, "text", "json:t");
	assert_true(number >= 0 && text >= 0);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		struct ps_shard_index_member m[3];
		uint32_t n = unit == 1 ? 1 : (uint32_t)(i % 3) + 1;
		uint64_t begin;
		char key[32];

		at += i % 10 == 9 ? 3 * unit : 0; /* bytes that belong to no sample */
		begin = at;
		for (uint32_t j = 0; j < n; j++) {
			at += unit == 1 ? 0 : 512 + 1024 * (i % 2);
			m[j] = (struct ps_shard_index_member){
			        .suffix = suffixes[j], .offset = at, .size = size_of(i, j)};
			at += (m[j].size + unit - 1) / unit * unit;
		}
		at += unit == 1;
		snprintf(key, sizeof(key), "key-%ju", (uintmax_t)i);
		assert_int_equal(
		        ps_shard_index_writer_add(w, begin, i == 77, key, strlen(key), m, i == 77 ? 0 : n),
		        0);
		if (i % 4 > 0)
			assert_int_equal(ps_shard_index_writer_value(w, number,
			                         &(struct ps_column_value){.type = PS_COLUMN_INT,
			                                 .integer = (int64_t)i * -1000}),
			        0);
		assert_int_equal(
		        ps_shard_index_writer_value(w, text,
		                &(struct ps_column_value){
		                        .type = PS_COLUMN_TEXT, .text = key, .text_len = strlen(key) - 1}),
		        0);
	}
	assert_int_equal(ps_shard_index_writer_finish(w, at, at, ret_data, ret_nbytes, NULL), 0);
	ps_shard_index_writer_free(w);
}

static void sample_check(struct ps_shard_index *x, uint64_t i)
{
	struct ps_shard_index_member m[PS_PSX_MAX_MEMBERS];
	struct ps_shard_index_place place, again;
	struct ps_column_value v;
	const char *key;
	char want[32];
	size_t len;

	assert_int_equal(ps_shard_index_place(x, i, &place, m, NULL), 0);
	assert_int_equal(ps_shard_index_place(x, i, &again, NULL, NULL), 0);
	assert_memory_equal(&place, &again, sizeof(place));
	assert_int_equal(place.bad, i == 77);
	for (uint32_t j = 0; j < place.nmembers; j++) {
		assert_string_equal(m[j].suffix, suffixes[j]);
		assert_int_equal(m[j].size, size_of(i, j));
	}
	snprintf(want, sizeof(want), "key-%ju", (uintmax_t)i);
	assert_int_equal(ps_shard_index_key(x, i, &key, &len, NULL), 0);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(key, want, len);
	assert_int_equal(ps_shard_index_value(x, ps_shard_index_column(x, "number"), i, &v, NULL), 0);
	assert_int_equal(v.missing, i % 4 == 0);
	if (!v.missing)
		assert_true(v.integer == (int64_t)i * -1000 && v.number == (double)v.integer);
	assert_int_equal(ps_shard_index_value(x, ps_shard_index_column(x, "text"), i, &v, NULL), 0);
	assert_int_equal(v.text_len, strlen(want) - 1);
	assert_memory_equal(v.text, want, v.text_len);
}

static void samples_in_descending_order_are_refused(void **state)
{
	const struct ps_shard_index_member m = {.suffix = "a", .size = 1};
	struct ps_shard_index_writer *w = ps_shard_index_writer_new();
	struct ps_error err;
	uint8_t *data;
	size_t n;

	(void)state;
	assert_non_null(w);
	assert_int_equal(ps_shard_index_writer_add(w, 512, false, "a", 1, &m, 1), 0);
	assert_int_equal(ps_shard_index_writer_add(w, 0, false, "b", 1, &m, 1), -EINVAL);
	assert_int_equal(ps_shard_index_writer_finish(w, 2048, 2048, &data, &n, &err), -EINVAL);
	assert_non_null(strstr(err.text, "the shard's samples cannot be indexed: "));
	ps_shard_index_writer_free(w);
}

static void a_catalogue_error_names_the_damaged_line(void **state)
{
	static const char good[] = "penstock-shards 1\n- 5 5 1 0 lines a\n", bad[] = "- 5 5 1 2 lines b\n";
	char dir[] = "catalogue-XXXXXX", path[64], text[256];
	struct ps_catalogue *c;
	struct ps_error err;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/" PS_CATALOGUE_NAME, dir);
	for (int i = 0; i < 2; i++) {
		int n = snprintf(text, sizeof(text), "%s%s", good, i ? bad : "");
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fprintf(f, "%ssum %016jx\n", text, (uintmax_t)ps_psx_sum(0, text, (size_t)n));
		fclose(f);
		assert_int_equal(ps_catalogue_read(dir, &c, &err), i ? -EBADMSG : 0);
		if (i)
			assert_non_null(
			        strstr(err.text, PS_CATALOGUE_NAME ": damaged, at line 3; fetch it again"));
		else
			ps_catalogue_free(c);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void index_entries_are_found_by_number(void **state)
{
	(void)state;
	for (uint32_t flags = 0; flags < 4; flags++) {
		struct ps_shard_index_place place;
		struct ps_shard_index *x;
		uint8_t *data;
		size_t n;

		file_make(flags, &data, &n);
		assert_int_equal(ps_shard_index_open_mem(data, n, &x, NULL), 0);
		assert_int_equal(ps_shard_index_samples(x), SAMPLES);
		assert_int_equal(ps_shard_index_bad(x), 1);
		for (uint64_t i = 0; i < SAMPLES; i++)
			sample_check(x, i * 37 % SAMPLES);
		assert_int_equal(ps_shard_index_place(x, SAMPLES, &place, NULL, NULL), -ERANGE);
		assert_int_equal(ps_shard_index_column(x, "nosuch"), -1);
		ps_shard_index_close(x);
		free(data);
	}
}

/* One byte is changed: the file is refused, or the entry is refused, or (in padding) the values are the
 * same. */
static void a_damaged_index_gives_no_wrong_values(void **state)
{
	struct ps_shard_index_member m[PS_PSX_MAX_MEMBERS];
	uint8_t *data;
	size_t n;

	(void)state;
	file_make(0, &data, &n);
	for (size_t at = 0; at < n; at++) {
		struct ps_shard_index *x;

		data[at] ^= 0x41;
		if (ps_shard_index_open_mem(data, n, &x, NULL) == 0) {
			for (uint64_t i = 0; i < SAMPLES; i += 50) {
				struct ps_shard_index_place place;
				struct ps_column_value v;
				const char *key;
				size_t len;

				if (ps_shard_index_place(x, i, &place, m, NULL) == 0 &&
				        ps_shard_index_key(x, i, &key, &len, NULL) == 0 &&
				        ps_shard_index_value(x, 0, i, &v, NULL) == 0 &&
				        ps_shard_index_value(x, 1, i, &v, NULL) == 0)
					sample_check(x, i);
			}
			ps_shard_index_close(x);
		}
		data[at] ^= 0x41;
	}
	for (size_t len = 0; len < n; len++) {
		struct ps_shard_index *x;

		assert_true(ps_shard_index_open_mem(data, len, &x, NULL) < 0);
	}
	free(data);
}

static void shard_make(int i, int samples)
{
	struct tar t = {0};
	char name[32];

	for (int k = 0; k < samples; k++) {
		snprintf(name, sizeof(name), "%d.cls", k);
		tar_add_text(&t, name, "1");
	}
	tar_end(&t);
	snprintf(name, sizeof(name), "s%d.tar", i);
	tar_save(&t, name);
}

static void an_index_of_the_whole_shard_is_not_taken_for_that_of_a_longer_one(void **state)
{
	struct ps_shard_index_result result;
	struct ps_shard_index *x;
	struct ps_error err;

	(void)state;
	shard_make(0, 50);
	assert_int_equal(ps_shard_index_make("s0.tar", NULL, NULL, 0, NULL, &result, &err), 0);
	assert_int_equal(ps_shard_index_open_of_longer("s0.tar", NULL, &x, &err), -ENOENT);
	assert_non_null(strstr(err.text, "s0.tar.psx: is not of a longer shard"));
}

/* A truncated shard: its index is found among those in the folder by the first bytes of the shard. */
static void the_index_of_a_longer_shard_is_found_in_a_folder(void **state)
{
	struct ps_shard_index_result result;
	struct ps_shard_index *x;
	struct ps_error err;
	struct stat st;

	(void)state;
	assert_int_equal(mkdir("indexes", 0700), 0);
	shard_make(0, 50);
	shard_make(1, 60);
	assert_int_equal(ps_shard_index_make("s0.tar", "indexes", NULL, 0, NULL, &result, &err), 0);
	assert_int_equal(ps_shard_index_make("s1.tar", "indexes", NULL, 0, NULL, &result, &err), 0);
	assert_int_equal(ps_shard_index_open_of_longer("s0.tar", "indexes", &x, &err), -ENOENT);
	assert_int_equal(stat("s0.tar", &st), 0);
	assert_int_equal(truncate("s0.tar", st.st_size - 2048), 0);
	if (ps_shard_index_open_of_longer("s0.tar", "indexes", &x, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(ps_shard_index_samples(x), 50);
	ps_shard_index_close(x);
	assert_int_equal(ps_shard_index_open_of_longer("s0.tar", NULL, &x, &err), -ENOENT);
}

/* A shard can be read from the place of any sample in the index. */
static void a_shard_can_be_read_from_an_indexed_place(void **state)
{
	struct ps_shard_index_result result;
	struct ps_shard_index *x;

	(void)state;
	shard_make(0, 100);
	assert_int_equal(ps_shard_index_make("s0.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	assert_int_equal(ps_shard_index_open("s0.tar", NULL, &x, NULL), 0);
	for (uint64_t i = 0; i < 100; i += 9) {
		struct ps_shard_options options = {.stream = {.wake_fd = -1}};
		struct ps_shard *shard = ps_shard_new("s0.tar", 0, &options, NULL);
		struct ps_shard_index_place place;
		struct ps_sample *s;
		const char *key;
		size_t len;

		assert_int_equal(ps_shard_index_place(x, i, &place, NULL, NULL), 0);
		assert_int_equal(ps_shard_index_key(x, i, &key, &len, NULL), 0);
		ps_shard_start_at(shard, i, place.resume_offset);
		assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
		assert_int_equal(s->ordinal, i);
		assert_int_equal(s->offset, place.offset);
		assert_memory_equal(s->key, key, len);
		ps_sample_free(s);
		ps_shard_free(shard);
	}
	ps_shard_index_close(x);
}

/* Damage ------------------------------------------------------------------------------------------------- */

#define WHOLE 20
#define SAMPLE_NBYTES (2 * 1024) /* two members of a header and a block */

/* The samples of shard.tar as letters: . for a good one, x for a bad one. */
static void letters_read(bool recover, char letters[static 64])
{
	struct ps_shard_options o = {.stream = {.wake_fd = -1}, .recover = recover};
	struct ps_shard *shard = ps_shard_new("shard.tar", 0, &o, NULL);
	struct ps_sample *s;
	size_t n = 0;
	char key[32];

	while (ps_shard_next(shard, &s, NULL) == 1) {
		assert_int_equal(s->ordinal, n);
		snprintf(key, sizeof(key), "%03zu", n);
		if (!s->bad) {
			assert_string_equal(s->key, key);
			assert_int_equal(s->nfields, 2);
			assert_memory_equal(s->fields[1].data, key, 3);
		} else if (recover) {
			assert_true(s->key_len == 0 || strcmp(s->key, key) == 0);
			assert_int_equal(s->offset, n * SAMPLE_NBYTES);
		}
		letters[n++] = s->bad ? 'x' : '.';
		ps_sample_free(s);
	}
	letters[n] = 0;
	ps_shard_free(shard);
}

static void damaged_make(uint64_t at, uint64_t cut)
{
	struct ps_shard_index_result result;
	struct tar t = {0};
	struct timespec times[2];
	struct stat st;
	char name[32];
	FILE *f;

	for (int i = 0; i < WHOLE; i++) {
		snprintf(name, sizeof(name), "%03d.a", i);
		tar_add_text(&t, name, "some bytes");
		snprintf(name, sizeof(name), "%03d.b", i);
		tar_add_text(&t, name, name);
	}
	tar_end(&t);
	tar_save(&t, "shard.tar");
	assert_int_equal(ps_shard_index_make("shard.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	assert_int_equal(stat("shard.tar", &st), 0);
	if (at > 0) {
		f = fopen("shard.tar", "r+b");
		fseek(f, (long)at, SEEK_SET);
		fputc('?', f);
		fclose(f);
		times[0] = times[1] = st.st_mtim; /* damage on the disk does not change the date */
		assert_int_equal(utimensat(AT_FDCWD, "shard.tar", times, 0), 0);
	}
	if (cut > 0)
		assert_int_equal(truncate("shard.tar", (off_t)cut), 0);
}

static void an_index_recovers_the_samples_after_damage(void **state)
{
	static const struct {
		uint64_t damaged, cut;
		const char *with, *without;
	} cases[] = {
	        {7 * SAMPLE_NBYTES + 3, 0, ".......x............", "......x"},
	        {0, 20 * SAMPLE_NBYTES, "....................", "...................."}, /* no end mark */
	        {0, 20 * SAMPLE_NBYTES - 1024, "...................x", "...................x"},
	        {7 * SAMPLE_NBYTES + 1024 + 3, 0, ".......x............", ".......x"},
	        {3, 0, "x...................", "x"},
	        {19 * SAMPLE_NBYTES + 3, 0, "...................x", "..................x"},
	        {0, 7 * SAMPLE_NBYTES, ".......xxxxxxxxxxxxx", "......x"},
	        {0, 7 * SAMPLE_NBYTES + 700, ".......xxxxxxxxxxxxx", ".......x"},
	        {0, 7 * SAMPLE_NBYTES + 1024, ".......xxxxxxxxxxxxx", ".......x"},
	        {3 * SAMPLE_NBYTES + 3, 9 * SAMPLE_NBYTES, "...x.....xxxxxxxxxxx", "..x"},
	};
	char letters[64];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		damaged_make(cases[i].damaged, cases[i].cut);
		letters_read(true, letters);
		assert_string_equal(letters, cases[i].with);
		letters_read(false, letters);
		assert_string_equal(letters, cases[i].without);
	}
	/* An index of another shard is not used. */
	damaged_make(0, 0);
	shard_make(0, 50);
	assert_int_equal(rename("shard.tar.psx", "s0.tar.psx"), 0);
	assert_int_equal(rename("s0.tar", "shard.tar"), 0);
	assert_int_equal(rename("s0.tar.psx", "shard.tar.psx"), 0);
	assert_int_equal(truncate("shard.tar", 9 * 1024 + 100), 0);
	{
		struct ps_shard_options o = {.stream = {.wake_fd = -1}, .recover = true};
		struct ps_shard *shard = ps_shard_new("shard.tar", 0, &o, NULL);
		struct ps_sample *s;
		int n = 0;

		for (; ps_shard_next(shard, &s, NULL) == 1; n++)
			ps_sample_free(s);
		assert_int_equal(n, 9);
		ps_shard_free(shard);
	}
}

/* Reads a shard with an older index: the samples from number `from` on were replaced by others. The shard's
 * size stays the same; with `lines`, lengths of lines change. `want`: the samples as letters; x: stale. */
static void replaced_read(int from, bool lines, const char *want)
{
	const char *name = lines ? "r.jsonl" : "r.tar";
	struct ps_shard_index_result result;
	char letters[64];
	struct ps_sample *s;
	struct ps_shard_index *x;
	size_t n = 0;

	for (int round = 0; round < 2; round++) {
		struct tar t = {0};
		FILE *f = lines ? fopen(name, "w") : NULL;

		for (int i = 0; i < 10; i++) {
			char member[32];

			snprintf(
			        member, sizeof(member), "%c%02d.txt", round == 1 && i >= from ? 'b' : 'a', i);
			if (lines)
				fprintf(f, "{\"x\": %0*d}\n", round == 1 && i >= from ? i % 2 + 2 : 3 - i % 2,
				        i);
			else
				tar_add_text(&t, member, member);
		}
		if (lines) {
			fclose(f);
		} else {
			tar_end(&t);
			tar_save(&t, name);
		}
		if (round == 0)
			assert_int_equal(ps_shard_index_make(name, NULL, NULL, 0, NULL, &result, NULL), 0);
	}
	assert_int_equal(ps_shard_index_open(name, NULL, &x, NULL), 0);
	struct ps_shard_options o = {.stream = {.wake_fd = -1}, .check = x};
	struct ps_shard *shard = ps_shard_new(name, 0, &o, NULL);
	while (ps_shard_next(shard, &s, NULL) == 1) {
		assert_int_equal(s->ordinal, n);
		if (s->bad)
			assert_int_equal(s->bad, ESTALE);
		letters[n++] = s->bad ? 'x' : '.';
		ps_sample_free(s);
	}
	letters[n] = 0;
	assert_string_equal(letters, want);
	ps_shard_free(shard);
	/* The same, read from each place in the index. */
	for (uint64_t i = 1; i < 10 && !lines; i++) {
		struct ps_shard_index_place place;

		assert_int_equal(ps_shard_index_place(x, i, &place, NULL, NULL), 0);
		shard = ps_shard_new(name, 0, &o, NULL);
		ps_shard_start_at(shard, i, place.resume_offset);
		assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
		assert_int_equal(s->bad, letters[i] == 'x' ? ESTALE : 0);
		ps_sample_free(s);
		ps_shard_free(shard);
	}
	ps_shard_index_close(x);
}

static void a_replaced_shard_is_stale_where_it_differs(void **state)
{
	(void)state;
	replaced_read(10, false, "..........");
	replaced_read(0, false, "xxxxxxxxxx");
	replaced_read(4, false, "....xxxxxx");
	replaced_read(9, false, ".........x");
	replaced_read(10, true, "..........");
	replaced_read(0, true, "xxxxxxxxxx");
}

/* A shard that begins with another header, and has no header at the indexed place, is another shard, not a
 * damaged one. */
static void a_shard_with_no_header_at_an_indexed_place_is_stale(void **state)
{
	struct ps_shard_index_result result;
	struct ps_shard_index_place place;
	struct tar one = {0}, other = {0};
	char bytes[3 * 512];
	struct ps_sample *s;
	struct ps_shard_index *x;

	(void)state;
	tar_add_text(&one, "a.txt", "text");
	tar_add_text(&one, "b.txt", "text");
	tar_end(&one);
	tar_save(&one, "r.tar");
	assert_int_equal(ps_shard_index_make("r.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	memset(bytes, 'x', sizeof(bytes));
	tar_add(&other, "c.txt", bytes, sizeof(bytes));
	tar_end(&other);
	tar_save(&other, "r.tar");
	assert_int_equal(ps_shard_index_open("r.tar", NULL, &x, NULL), 0);
	assert_int_equal(ps_shard_index_place(x, 1, &place, NULL, NULL), 0);
	for (int check = 0; check < 2; check++) {
		struct ps_shard_options o = {.stream = {.wake_fd = -1}, .check = check ? x : NULL};
		struct ps_shard *shard = ps_shard_new("r.tar", 0, &o, NULL);

		ps_shard_start_at(shard, 1, place.resume_offset);
		assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
		assert_int_equal(s->bad, check ? ESTALE : EBADMSG);
		ps_sample_free(s);
		ps_shard_free(shard);
	}
	ps_shard_index_close(x);
}

#define SHARDS (PS_INDEXES_MAX_OPEN + 40)

static int fds_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int maps_open(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[1024];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, ".psx") != NULL;
	if (f)
		fclose(f);
	return n;
}

static void a_set_keeps_few_indexes_open(void **state)
{
	static char names[SHARDS][32];
	char *shards[SHARDS];
	struct ps_shard_index *held[8];
	struct ps_shard_indexes *xs;
	struct ps_shard_index_result result;
	int before = fds_open();
	uint64_t count;

	(void)state;
	for (int i = 0; i < SHARDS; i++) {
		shard_make(i, i % 5);
		snprintf(names[i], sizeof(names[i]), "s%d.tar", i);
		shards[i] = names[i];
		if (i != 7)
			assert_int_equal(
			        ps_shard_index_make(names[i], NULL, NULL, 0, NULL, &result, NULL), 0);
	}
	xs = ps_shard_indexes_new(shards, SHARDS, NULL);
	for (int i = 0; i < 8; i++)
		assert_int_equal(ps_shard_indexes_get(xs, (uint32_t)(i % 4), &held[i], NULL), 0);
	assert_ptr_equal(held[0], held[4]);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < SHARDS; i++) {
			int rc = ps_shard_indexes_count(xs, i, &count, NULL);

			assert_int_equal(rc, i == 7 ? -ENOENT : 0);
			if (rc == 0)
				assert_int_equal(count, i % 5);
		}
	}
	assert_true(maps_open() <= PS_INDEXES_MAX_OPEN + 4);
	assert_int_equal(fds_open(), before);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(ps_shard_index_samples(held[i]), i % 4 % 5);
		ps_shard_indexes_put(xs, held[i]);
	}
	shard_make(3, 9); /* replaced: the known count stays, a new set finds the index stale */
	assert_int_equal(ps_shard_indexes_count(xs, 3, &count, NULL), 0);
	assert_int_equal(count, 3);
	ps_shard_indexes_free(xs);
	xs = ps_shard_indexes_new(shards, SHARDS, NULL);
	assert_int_equal(ps_shard_indexes_count(xs, 3, &count, NULL), -ESTALE);
	ps_shard_indexes_free(xs);
}

/* A set keeps the counts it has read, so that an epoch has one length even if a shard is replaced
 * meanwhile. */
static void a_set_keeps_the_counts_it_has_read(void **state)
{
	static char names[SHARDS][32];
	struct ps_shard_index_result result;
	struct ps_shard_indexes *xs;
	struct ps_shard_index *index;
	char *shards[SHARDS];
	uint64_t count;

	(void)state;
	for (int i = 0; i < SHARDS; i++) {
		snprintf(names[i], sizeof(names[i]), "s%d.tar", i);
		shards[i] = names[i];
		shard_make(i, 3);
		assert_int_equal(ps_shard_index_make(names[i], NULL, NULL, 0, NULL, &result, NULL), 0);
	}
	xs = ps_shard_indexes_new(shards, SHARDS, NULL);
	for (uint32_t i = 0; i < SHARDS; i++) /* opening the last indexes closes the first */
		assert_int_equal(ps_shard_indexes_count(xs, i, &count, NULL), 0);
	shard_make(0, 9);
	assert_int_equal(ps_shard_index_make(names[0], NULL, NULL, 0, NULL, &result, NULL), 0);
	assert_int_equal(ps_shard_indexes_get(xs, 0, &index, NULL), 0);
	assert_int_equal(ps_shard_index_samples(index), 9);
	ps_shard_indexes_put(xs, index);
	assert_int_equal(ps_shard_indexes_count(xs, 0, &count, NULL), 0);
	assert_int_equal(count, 3);
	ps_shard_indexes_free(xs);
}

static char folder[64];

static int enter(void **state)
{
	(void)state;
	folder_enter(folder);
	return 0;
}

static int leave(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(samples_in_descending_order_are_refused),
	        cmocka_unit_test(a_catalogue_error_names_the_damaged_line),
	        cmocka_unit_test_setup_teardown(
	                the_index_of_a_longer_shard_is_found_in_a_folder, enter, leave),
	        cmocka_unit_test_setup_teardown(
	                an_index_of_the_whole_shard_is_not_taken_for_that_of_a_longer_one, enter, leave),
	        cmocka_unit_test(index_entries_are_found_by_number),
	        cmocka_unit_test(a_damaged_index_gives_no_wrong_values),
	        cmocka_unit_test_setup_teardown(a_shard_can_be_read_from_an_indexed_place, enter, leave),
	        cmocka_unit_test_setup_teardown(an_index_recovers_the_samples_after_damage, enter, leave),
	        cmocka_unit_test_setup_teardown(a_replaced_shard_is_stale_where_it_differs, enter, leave),
	        cmocka_unit_test_setup_teardown(
	                a_shard_with_no_header_at_an_indexed_place_is_stale, enter, leave),
	        cmocka_unit_test_setup_teardown(a_set_keeps_few_indexes_open, enter, leave),
	        cmocka_unit_test_setup_teardown(a_set_keeps_the_counts_it_has_read, enter, leave),
	};

	return cmocka_run_group_tests_name("loader-index", tests, NULL, NULL);
}
