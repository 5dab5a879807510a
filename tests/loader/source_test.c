/* Shards that are not tars (lines of text, token streams), indexes that are written while reading, renamed
 * fields, and streams of bytes. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <zstd.h>

#include "make_tar.h"
#include "penstock.h"
#include "shard/shard.h"

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

static struct ps_shard *shard_open(const char *path, const struct ps_shard_options *more)
{
	struct ps_shard_options o = more ? *more : (struct ps_shard_options){0};
	struct ps_shard *shard;

	o.stream.wake_fd = -1;
	shard = ps_shard_new(path, 0, &o, NULL);
	assert_non_null(shard);
	return shard;
}

static void sample_is(struct ps_sample *s, const char *key, const char *suffix, const void *data, size_t n)
{
	assert_int_equal(s->bad, 0);
	assert_string_equal(s->key, key);
	assert_int_equal(s->nfields, 1);
	assert_string_equal(s->fields[0].suffix, suffix);
	assert_int_equal(s->fields[0].size, n);
	if (n > 0)
		assert_memory_equal(s->fields[0].data, data, n);
}

#define LONG 200000

static const char *const lines[] = {"{\"a\": 1}", "", "  \t", "{}", "last, \r inside", NULL};

static void lines_write(const char *path)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	for (int i = 0; lines[i]; i++)
		fprintf(f, "%s%s", lines[i], i == 3 ? "\r\n" : "\n");
	for (int i = 0; i < LONG; i++)
		fputc('a' + i % 26, f);
	fputs("\nno end", f);
	fclose(f);
}

static void lines_check(struct ps_shard *shard, const char *key, bool json, uint64_t from)
{
	struct ps_sample *s;
	uint64_t n = 0;
	int r;

	while ((r = ps_shard_next(shard, &s, NULL)) == 1) {
		static const int places[2][7] = {{0, 1, 2, 3, 4, 5, 6}, {0, 3, 4, 5, 6}};
		int i = places[json][from + n];
		char want[32];

		snprintf(want, sizeof(want), "%s-%ju", key, (uintmax_t)(from + n));
		assert_int_equal(s->ordinal, from + n);
		if (i == 5) {
			assert_int_equal(s->fields[0].size, LONG);
			for (int k = 0; k < LONG; k++)
				assert_int_equal(s->fields[0].data[k], 'a' + k % 26);
		} else {
			const char *text = i == 6 ? "no end" : lines[i];

			sample_is(s, want, json ? "json" : "txt", text, strlen(text));
		}
		ps_sample_free(s);
		n++;
	}
	assert_int_equal(r, 0);
	assert_int_equal(from + n, json ? 5 : 7);
	ps_shard_free(shard);
}

static void a_line_is_a_sample(void **state)
{
	struct ps_shard_index_result result;
	struct ps_shard_index_place place;
	struct ps_shard_index *x;

	(void)state;
	lines_write("a.b.txt");
	lines_write("c.jsonl");
	lines_check(shard_open("a.b.txt", NULL), "a.b", false, 0);
	lines_check(shard_open("c.jsonl", NULL), "c", true, 0);
	assert_int_equal(ps_shard_index_make("c.jsonl", NULL, NULL, 0, NULL, &result, NULL), 0);
	assert_int_equal(result.samples, 5);
	assert_int_equal(ps_shard_index_open("c.jsonl", NULL, &x, NULL), 0);
	assert_true(ps_shard_index_is_of_lines(x));
	for (uint64_t i = 0; i < 5; i++) {
		struct ps_shard *shard = shard_open("c.jsonl", NULL);

		assert_int_equal(ps_shard_index_place(x, i, &place, NULL, NULL), 0);
		ps_shard_start_at(shard, i, place.resume_offset);
		lines_check(shard, "c", true, i);
	}
	ps_shard_index_close(x);
	if (system("command -v zstd >/dev/null && zstd -q c.jsonl") == 0)
		lines_check(shard_open("c.jsonl.zst", NULL), "c", true, 0);
}

static void a_line_that_is_too_long_is_one_bad_sample(void **state)
{
	struct ps_shard_options o = {.max_sample_nbytes = 100000};
	struct ps_shard *shard;
	struct ps_sample *s;

	(void)state;
	lines_write("c.jsonl");
	shard = shard_open("c.jsonl", &o);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
		assert_int_equal(s->bad, i == 3 ? EFBIG : 0);
		ps_sample_free(s);
	}
	assert_int_equal(ps_shard_next(shard, &s, NULL), 0);
	ps_shard_free(shard);
}

/* Tokens ------------------------------------------------------------------------------------------------- */

#define TOKENS 1000

static void tokens_write(const char *path, size_t extra)
{
	uint16_t tokens[TOKENS];
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	for (int i = 0; i < TOKENS; i++)
		tokens[i] = (uint16_t)(i * 7);
	fwrite(tokens, 2, TOKENS, f);
	fwrite("x", 1, extra, f);
	fclose(f);
}

static void token_windows_begin_at_each_stride(void **state)
{
	static const uint64_t strides[] = {1, 63, 64, 65, 66, 300, 100000};

	(void)state;
	tokens_write("t.bin", 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(strides); i++) {
		struct ps_shard_options o = {
		        .windows = {
		                .nbytes = 65 * 2, .stride = strides[i] * 2, .item = 2, .suffix = "tokens"}};
		uint64_t n = (TOKENS - 65) / strides[i] + 1, count;
		char *const shards[] = {(char *)(uintptr_t) "t.bin"};
		struct ps_shard_indexes *xs = ps_shard_indexes_new(shards, 1, NULL);

		ps_shard_indexes_set_source(xs, PS_SHARD_KIND_AUTO, &o.windows);
		assert_int_equal(ps_shard_indexes_count(xs, 0, &count, NULL), 0);
		assert_int_equal(count, n);
		for (uint64_t from = 0; from < n; from += 1 + n / 3) {
			struct ps_shard *shard = shard_open("t.bin", &o);
			struct ps_shard_index_place place;
			struct ps_shard_index *x;
			struct ps_sample *s;
			uint64_t k = from;

			assert_int_equal(ps_shard_indexes_get(xs, 0, &x, NULL), 0);
			assert_int_equal(ps_shard_index_place(x, from, &place, NULL, NULL), 0);
			ps_shard_indexes_put(xs, x);
			ps_shard_start_at(shard, from, place.resume_offset);
			for (; ps_shard_next(shard, &s, NULL) == 1; k++) {
				uint16_t want[65];
				char key[32];

				for (uint64_t j = 0; j < 65; j++)
					want[j] = (uint16_t)((k * strides[i] + j) * 7);
				snprintf(key, sizeof(key), "t-%ju", (uintmax_t)k);
				sample_is(s, key, "tokens", want, sizeof(want));
				assert_int_equal(s->ordinal, k);
				ps_sample_free(s);
			}
			assert_int_equal(k, n);
			ps_shard_free(shard);
		}
		ps_shard_indexes_free(xs);
	}
}

static void half_a_token_is_damage(void **state)
{
	struct ps_shard_options o = {
	        .windows = {.nbytes = 65 * 2, .stride = 400 * 2, .item = 2, .suffix = "tokens"}};
	char *const shards[] = {(char *)(uintptr_t) "t.bin"};
	struct ps_shard_indexes *xs = ps_shard_indexes_new(shards, 1, NULL);
	struct ps_shard *shard;
	struct ps_sample *s;
	uint64_t count, n = 0, bad = 0;

	(void)state;
	tokens_write("t.bin", 1);
	ps_shard_indexes_set_source(xs, PS_SHARD_KIND_TOKENS, &o.windows);
	assert_int_equal(ps_shard_indexes_count(xs, 0, &count, NULL), 0);
	shard = shard_open("t.bin", &o);
	for (; ps_shard_next(shard, &s, NULL) == 1; n++) {
		bad += s->bad != 0;
		ps_sample_free(s);
	}
	assert_int_equal(bad, 1);
	assert_int_equal(n, count);
	ps_shard_free(shard);
	ps_shard_indexes_free(xs);
}

/* Through a loader --------------------------------------------------------------------------------------- */

static struct penstock_loader *loader_open(struct penstock_options *o, const char *shard)
{
	struct penstock_loader *l;
	struct penstock_error e;

	if (penstock_loader_open(o, &shard, 1, &l, &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

static uint64_t samples_count(struct penstock_loader *l)
{
	struct penstock_batch_info info;
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t n = 0;
	int rc;

	while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
		penstock_batch_info(b, &info);
		n += info.rows;
		penstock_batch_release(b);
	}
	if (rc < 0)
		fail_msg("%s", e.text);
	return n;
}

static void a_loader_gives_lines_and_tokens(void **state)
{
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_loader *l;
	uint64_t samples, batches;

	(void)state;
	lines_write("c.jsonl");
	tokens_write("t.bin", 0);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "line", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	l = loader_open(&o, "c.jsonl");
	assert_int_equal(samples_count(l), 5);
	penstock_loader_close(l);
	penstock_field_init(&f, sizeof(f), "tokens", PENSTOCK_TOKENS);
	f.ndim = 1;
	f.shape[0] = 64;
	l = loader_open(&o, "t.bin");
	assert_int_equal(samples_count(l), 15);
	assert_int_equal(penstock_loader_length(l, 0, &samples, &batches, NULL), 0);
	assert_int_equal(samples, 15);
	penstock_loader_close(l);
	o.token_stride = 10;
	l = loader_open(&o, "t.bin");
	assert_int_equal(samples_count(l), 94);
	penstock_loader_close(l);
	f.source_dtype = PENSTOCK_SOURCE_U8; /* PENSTOCK_U8 means that none is given */
	o.token_stride = 0;
	l = loader_open(&o, "t.bin");
	assert_int_equal(samples_count(l), 31);
	penstock_loader_close(l);
}

static void tar_write(const char *path, const char *suffix, int n)
{
	struct tar t = {0};
	char name[32];

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d.%s", i, suffix);
		tar_add_text(&t, name, suffix);
	}
	tar_end(&t);
	tar_save(&t, path);
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#define MANY 40

/* There are more lanes than shards that may be open (a quarter of the descriptors): shards are closed and
 * opened again. */
static void shards_of_which_too_many_are_open_are_closed_meanwhile(void **state)
{
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct rlimit was, few;
	char name[64];
	int before, most = 0;
	uint64_t samples = 0, want = 0;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), i % 4 == 3 ? "many-%02d.jsonl" : "many-%02d.tar", i);
		if (i % 4 == 3)
			lines_write(name);
		else
			tar_write(name, "txt", 30 + i);
		want += i % 4 == 3 ? 5 : 30 + (uint64_t)i;
	}
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "txt;json", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	o.epochs = 1;
	o.batch = 8;
	o.lanes = MANY;
	o.shuffle_window = MANY;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	before = descriptors();
	{
		const char *const shards[] = {"many-*.tar", "many-*.jsonl"};
		struct penstock_error e;
		int rc;

		assert_int_equal(penstock_loader_open(&o, shards, 2, &l, &e), 0);
		while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
			struct penstock_batch_info info;
			int now = descriptors() - before;

			penstock_batch_info(b, &info);
			samples += info.rows;

			most = now > most ? now : most;
			penstock_batch_release(b);
		}
		if (rc < 0)
			fail_msg("%s", e.text);
	}
	penstock_loader_close(l);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	print_message("%d descriptors at most, of %d shards\n", most, MANY);
	assert_true(most <= 64 / 4 + 8); /* each reader has one or two more */
	assert_int_equal(samples, want);
}

/* While shards are closed, other files take their names: opening one again is an error. */
static void a_shard_that_is_replaced_while_it_is_closed_is_refused(void **state)
{
	const char *const shards[] = {"many-*.tar"};
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct rlimit was, few;
	char name[64];
	int r;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many-%02d.tar", i);
		tar_write(name, "txt", 30);
	}
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "txt", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	o.epochs = 1;
	o.batch = 8;
	o.lanes = MANY;
	o.shuffle_window = MANY;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(penstock_loader_open(&o, shards, 1, &l, &e), 0);
	for (int i = 0; i < MANY / 8; i++) { /* a sample of each shard */
		assert_int_equal(penstock_loader_next(l, &b, &e), 1);
		penstock_batch_release(b);
	}
	tar_write("other", "txt", 31);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many-%02d.tar", i);
		assert_int_equal(unlink(name), 0);
		assert_int_equal(link("other", name), 0);
	}
	while ((r = penstock_loader_next(l, &b, &e)) == 1)
		penstock_batch_release(b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(r, -ESTALE);
	assert_non_null(strstr(e.text, "bytes, but had"));
	penstock_loader_close(l);
}

static void a_field_may_be_renamed(void **state)
{
	static const char *const wrong[] = {"nosuch=jpg", "picture", "=jpg", "picture=jpg x"};
	const char *shard = "a.tar";
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_loader *l;
	struct penstock_tensor t;
	struct penstock_batch *b;
	struct penstock_error e;

	(void)state;
	tar_write("a.tar", "PNG", 3);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&f, sizeof(f), "picture", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
		o.rename = wrong[i];
		assert_int_equal(penstock_loader_open(&o, &shard, 1, &l, &e), -EINVAL);
	}
	o.rename = " picture=jpg;png ";
	l = loader_open(&o, shard);
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	assert_int_equal(penstock_batch_field(b, "picture", &t, &e), 0);
	assert_int_equal(t.nbytes, 9);
	assert_memory_equal(t.data, "PNGPNGPNG", 9);
	penstock_batch_release(b);
	penstock_loader_close(l);
}

static bool wants_cls(void *ctx, const char *suffix, size_t len)
{
	(void)ctx;
	return len == 3 && memcmp(suffix, "cls", 3) == 0;
}

/* Large members that no field needs are not read. */
static void members_that_no_field_needs_are_not_read(void **state)
{
	enum { LARGE = 1 << 20 };
	struct ps_stream_meter meter = {0};
	struct ps_shard_options o = {.wants = wants_cls, .stream = {.buf_nbytes = 1 << 20, .meter = &meter}};
	uint8_t *data = calloc(1, LARGE);
	struct tar t = {0};
	struct ps_shard *shard;
	struct ps_sample *s;
	char name[32];
	int n = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "%d.mp4", i);
		tar_add(&t, name, data, LARGE);
		snprintf(name, sizeof(name), "%d.cls", i);
		tar_add_text(&t, name, "5");
	}
	tar_end(&t);
	tar_save(&t, "large.tar");
	free(data);
	shard = shard_open("large.tar", &o);
	for (; ps_shard_next(shard, &s, NULL) == 1; n++) {
		assert_int_equal(s->bad, 0);
		assert_memory_equal(s->fields[0].data, "5", 1);
		ps_sample_free(s);
	}
	ps_shard_free(shard);
	assert_int_equal(n, 20);
	assert_true(meter.nbytes < 20 * LARGE / 5);
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Pieces of all sizes that are read, peeked or skipped are the bytes of the file. */
static void a_stream_gives_the_bytes_of_the_file(void **state)
{
	enum { SIZE = 20 << 20 };
	static const uint32_t most[] = {8, 600, 9000, 60000, 300000};
	struct ps_stream_options o = {.buf_nbytes = 1 << 20, .wake_fd = -1};
	uint8_t *data = malloc(SIZE), *out = malloc(300000);
	uint32_t random = 5;
	FILE *f = fopen("stream", "wb");

	(void)state;
	assert_non_null(f);
	for (size_t i = 0; i < SIZE; i++)
		data[i] = (uint8_t)next_random(&random);
	assert_int_equal(fwrite(data, 1, SIZE, f), SIZE);
	fclose(f);
	for (int round = 0; round < 6; round++) {
		struct ps_stream *s;
		size_t at = 0;

		assert_int_equal(ps_stream_open("stream", &o, &s, NULL), 0);
		while (at < SIZE) {
			size_t n = next_random(&random) % most[next_random(&random) % PS_ARRAY_LEN(most)];
			uint32_t what = next_random(&random) % 4;
			const uint8_t *p;

			n = PS_MIN(n, SIZE - at);
			if (what == 0) {
				assert_int_equal(ps_stream_peek(s, n % PS_STREAM_BUF_MIN, &p, &n, NULL), 0);
				assert_memory_equal(p, data + at, n);
				ps_stream_take(s, n);
			} else if (what == 1 && round % 2) {
				assert_int_equal(ps_stream_skip(s, n, NULL), 0);
			} else {
				assert_int_equal(ps_stream_read(s, out, n, NULL), 0);
				assert_memory_equal(out, data + at, n);
			}
			at += n;
			assert_int_equal(ps_stream_offset(s), at);
		}
		assert_int_equal(ps_stream_read(s, out, 1, NULL), -ENODATA);
		ps_stream_free(s);
	}
	free(data);
	free(out);
}

/* A member NAME.zst is decompressed and found as NAME; a field NAME.zst gets its bytes as they are. */
static void a_compressed_member_is_decompressed(void **state)
{
	static const char text[] = "{\"value\": \"some text, some text, some text, some text\"}";
	const char *shard = "a.tar";
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_error e;
	struct tar t = {0};
	uint8_t packed[4096];
	char name[32];
	size_t n;

	(void)state;
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "%d.json.zst", i);
		n = ZSTD_compress(packed, sizeof(packed), text, strlen(text), 3);
		n += ZSTD_compress(packed + n, sizeof(packed) - n, " ", 1, 3); /* another frame */
		if (i == 3)
			n -= 5; /* cut */
		tar_add(&t, name, packed, n);
	}
	tar_end(&t);
	tar_save(&t, shard);
	for (int raw = 0; raw < 2; raw++) {
		struct penstock_batch_info info;
		struct penstock_tensor v;
		struct penstock_batch *b;
		struct penstock_loader *l;

		penstock_options_init(&o, sizeof(o));
		penstock_field_init(&f, sizeof(f), raw ? "json.zst" : "json", PENSTOCK_BYTES);
		o.fields = &f;
		o.nfields = 1;
		o.order = PENSTOCK_ORDER_NONE;
		o.on_error = PENSTOCK_SKIP;
		l = loader_open(&o, shard);
		assert_int_equal(penstock_loader_next(l, &b, &e), 1);
		penstock_batch_info(b, &info);
		assert_int_equal(info.rows, 4);
		assert_int_equal(info.bad, raw ? 0 : 1);
		assert_int_equal(penstock_batch_field(b, f.name, &v, &e), 0);
		assert_int_equal(memcmp(v.data, text, strlen(text)) == 0, !raw);
		if (!raw)
			assert_int_equal(v.offsets[1], strlen(text) + 1);
		penstock_batch_release(b);
		penstock_loader_close(l);
	}
	o.on_error = PENSTOCK_FAIL;
	f.name = "json";
	struct penstock_loader *l = loader_open(&o, shard);
	struct penstock_batch *b;
	assert_int_equal(penstock_loader_next(l, &b, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "damaged zstd data: it is cut off"));
	penstock_loader_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_line_is_a_sample, enter, leave),
	        cmocka_unit_test_setup_teardown(a_line_that_is_too_long_is_one_bad_sample, enter, leave),
	        cmocka_unit_test_setup_teardown(token_windows_begin_at_each_stride, enter, leave),
	        cmocka_unit_test_setup_teardown(half_a_token_is_damage, enter, leave),
	        cmocka_unit_test_setup_teardown(a_loader_gives_lines_and_tokens, enter, leave),
	        cmocka_unit_test_setup_teardown(members_that_no_field_needs_are_not_read, enter, leave),
	        cmocka_unit_test_setup_teardown(a_stream_gives_the_bytes_of_the_file, enter, leave),
	        cmocka_unit_test_setup_teardown(a_compressed_member_is_decompressed, enter, leave),
	        cmocka_unit_test_setup_teardown(
	                shards_of_which_too_many_are_open_are_closed_meanwhile, enter, leave),
	        cmocka_unit_test_setup_teardown(
	                a_shard_that_is_replaced_while_it_is_closed_is_refused, enter, leave),
	        cmocka_unit_test_setup_teardown(a_field_may_be_renamed, enter, leave),
	};

	return cmocka_run_group_tests_name("loader-source", tests, NULL, NULL);
}
