/* A compressed shard gives the same samples as the plain shard; damaged data give a bad sample with a
 * reason. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "make_tar.h"
#include "shard_memory.h"

#define SAMPLES 40

static struct tar plain;

static void plain_make(void)
{
	uint8_t data[3000];
	uint32_t x = 1;

	for (int i = 0; i < SAMPLES; i++) {
		char name[32];

		for (size_t k = 0; k < sizeof(data); k++) {
			x = x * 1664525 + 1013904223;
			data[k] = (uint8_t)(x >> 24) & (i % 2 ? 0xff : 0x11);
		}
		snprintf(name, sizeof(name), "%03d.bin", i);
		tar_add(&plain, name, data, (size_t)(i * 71));
		snprintf(name, sizeof(name), "%03d.cls", i);
		tar_add_text(&plain, name, "7");
	}
	tar_end(&plain);
}

struct file {
	uint8_t *data;
	size_t n;
};

static struct file file_load(const char *path)
{
	struct file f = {0};
	FILE *in = fopen(path, "rb");

	assert_non_null(in);
	f.data = malloc(1 << 20);
	assert_non_null(f.data);
	f.n = fread(f.data, 1, 1 << 20, in);
	fclose(in);
	return f;
}

static void file_append(struct file *f, const void *p, size_t n)
{
	memcpy(f->data + f->n, p, n);
	f->n += n;
}

/* Compresses a part of the plain tar with a program. */
static struct file compress(const char *program, size_t from, size_t to)
{
	char command[128];

	file_write("part", plain.data + from, to - from);
	snprintf(command, sizeof(command), "%s -c part >part.out 2>/dev/null", program);
	assert_int_equal(system(command), 0);
	return file_load("part.out");
}

struct result {
	int samples, bad;
	bool same; /* all fields equal the plain tar's */
	struct ps_error why;
};

static struct result shard_check(struct ps_shard *shard)
{
	struct result res = {.same = true};
	struct ps_sample *s;
	int r;

	assert_non_null(shard);
	while ((r = ps_shard_next(shard, &s, NULL)) == 1) {
		res.samples++;
		if (s->bad) {
			res.bad++;
			ps_sample_error_set(&res.why, s, s->reason);
		}
		for (uint32_t i = 0; i < s->nfields; i++) {
			struct ps_sample_field *f = &s->fields[i];

			assert_true(f->offset + f->size <= plain.len);
			assert_true(f->data || f->size == 0);
			res.same = res.same &&
			           (f->size == 0 || memcmp(f->data, plain.data + f->offset, f->size) == 0);
		}
		ps_sample_free(s);
	}
	assert_int_equal(r, 0);
	ps_shard_free(shard);
	return res;
}

static struct result memory_check(const struct file *f, size_t n)
{
	struct ps_shard_options options = {.stream = {.wake_fd = -1}};

	return shard_check(shard_of_memory(f->data, n, &options));
}

static const char *const programs[] = {
        "zstd -q -C", "zstd -q --fast=3 --no-check", "gzip -n", "lz4 -q", "lz4 -q -BD -B4"};

static bool is_there(const char *program)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %.*s >/dev/null", (int)strcspn(program, " "), program);
#ifndef HAVE_LISAL
	if (strncmp(program, "gzip", 4) == 0)
		return false;
#endif
#ifndef HAVE_LZ4
	if (strncmp(program, "lz4", 3) == 0)
		return false;
#endif
	return system(command) == 0;
}

static void each_format_gives_the_samples_of_the_plain_tar(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct ps_shard_options options = {.stream = {.wake_fd = -1}};
		struct file f;
		struct result res;

		if (!is_there(programs[i]))
			continue;
		f = compress(programs[i], 0, plain.len);
		res = memory_check(&f, f.n);
		assert_int_equal(res.samples, SAMPLES);
		assert_int_equal(res.bad, 0);
		assert_true(res.same);
		/* The format is found by the bytes, not by the name. */
		res = shard_check(ps_shard_new("part.out", 0, &options, NULL));
		assert_true(res.samples == SAMPLES && res.bad == 0 && res.same);
		free(f.data);
	}
}

/* Several frames, each after skippable frames; for gzip several members, with zeros after the last. */
static void consecutive_frames_are_read(void **state)
{
	static const uint8_t skippable[] = {0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5}, zeros[700];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		bool gzip = strncmp(programs[i], "gzip", 4) == 0;
		struct file all = {.data = malloc(1 << 20)};
		struct result res;

		assert_non_null(all.data);
		for (size_t from = 0; is_there(programs[i]) && from < plain.len;) {
			size_t to = PS_MIN(from + 9999, plain.len);
			struct file f = compress(programs[i], from, to);

			for (size_t k = 0; !gzip && k <= i % 2; k++)
				file_append(&all, skippable, sizeof(skippable));
			file_append(&all, f.data, f.n);
			free(f.data);
			from = to;
		}
		if (gzip)
			file_append(&all, zeros, sizeof(zeros));
		if (is_there(programs[i])) {
			res = memory_check(&all, all.n);
			assert_true(res.samples == SAMPLES && res.bad == 0 && res.same);
		}
		free(all.data);
	}
}

/* zstd and lz4 have the same magic number for skippable frames: the first other frame decides the format. */
static void skippable_frames_do_not_decide_the_format(void **state)
{
	struct ps_shard_options options = {.stream = {.wake_fd = -1}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct file f, all = {.data = calloc(1, 1 << 20), .n = 300000}; /* larger than any buffer */
		struct result res;

		assert_non_null(all.data);
		memcpy(all.data, "\x50\x2a\x4d\x18\xd8\x93\x04", 7); /* 8 + 299992 bytes */
		if (!is_there(programs[i]) || strncmp(programs[i], "gzip", 4) == 0) {
			free(all.data);
			continue;
		}
		f = compress(programs[i], 0, plain.len);
		file_append(&all, f.data, f.n);
		file_write("part.out", all.data, all.n);
		res = shard_check(ps_shard_new("part.out", 0, &options, NULL));
		assert_true(res.samples == SAMPLES && res.bad == 0 && res.same);
		for (size_t n = 8; n < all.n; n += 70001) { /* cut in the skippable frame, and in the data */
			res = memory_check(&all, n);
			assert_int_equal(res.bad, 1);
			assert_non_null(strstr(res.why.text, "truncated"));
		}
		all.n = 300000;
		res = memory_check(&all, all.n);
		assert_true(res.bad == 1 && strstr(res.why.text, "empty file"));
		file_append(&all, plain.data, 9000);
		res = memory_check(&all, all.n);
		assert_true(res.bad == 1 && res.samples == 1);
		free(f.data);
		free(all.data);
	}
}

static void legacy_lz4_is_refused_by_name(void **state)
{
	static const char legacy[] = "\x02\x21\x4c\x18\x05\0\0\0\x40test";
	struct file f;
	struct result res;

	(void)state;
	f = (struct file){.data = (uint8_t *)(uintptr_t)legacy, .n = sizeof(legacy) - 1};
	res = memory_check(&f, f.n);
	assert_int_equal(res.bad, 1);
	assert_non_null(strstr(res.why.text, "legacy format"));
	if (!is_there("lz4"))
		return;
	f = compress("lz4 -q", 0, plain.len);
	file_append(&f, legacy, sizeof(legacy) - 1);
	res = memory_check(&f, f.n);
	assert_int_equal(res.bad, 1);
	assert_non_null(strstr(res.why.text, "legacy format"));
	free(f.data);
}

static void truncated_data_give_whole_samples_and_one_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct file f;

		if (!is_there(programs[i]))
			continue;
		f = compress(programs[i], 0, plain.len);
		for (size_t n = 4; n < f.n; n += 1 + n % 97) {
			struct result res = memory_check(&f, n);

			assert_true(res.same && res.samples <= SAMPLES + 1);
			assert_int_equal(res.bad, 1);
			assert_non_null(strstr(res.why.text, "truncated"));
		}
		free(f.data);
	}
}

static void every_changed_byte_is_detected_or_harmless(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct file f;

		if (!is_there(programs[i]) || strstr(programs[i], "no-check"))
			continue;
		f = compress(programs[i], 0, plain.len);
		for (size_t at = 0; at < f.n; at += 1 + at % 61) {
			struct result res;

			f.data[at] ^= 0x10;
			res = memory_check(&f, f.n);
			/* Some bytes do not matter, such as the time in a gzip header. */
			assert_true(res.bad > 0 || (res.same && res.samples == SAMPLES));
			f.data[at] ^= 0x10;
		}
		free(f.data);
	}
}

static void bytes_after_the_last_frame_are_damage(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct file f;

		if (!is_there(programs[i]))
			continue;
		f = compress(programs[i], 0, plain.len);
		file_append(&f, "garbage garbage garbage", 23);
		for (size_t less = 0; less <= 20; less += 10) { /* also shorter than any frame header */
			struct result res = memory_check(&f, f.n - less);

			assert_int_equal(res.bad, 1);
			assert_non_null(strstr(res.why.text, "garbage after the end"));
		}
		free(f.data);
	}
}

static void a_zstd_window_over_128_mib_is_refused(void **state)
{
	/* a frame header that asks for a window of 1 GiB */
	static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00};
	struct file f = {.data = (uint8_t *)(uintptr_t)head, .n = sizeof(head)};
	struct result res = memory_check(&f, f.n);

	(void)state;
	assert_int_equal(res.bad, 1);
	assert_non_null(strstr(res.why.text, "window of more than 128 MiB"));
}

static void *pipe_feed(void *path)
{
	int out = open(path, O_WRONLY);
	struct file f = file_load("part.out");

	assert_int_equal(write(out, f.data, f.n), f.n);
	close(out);
	free(f.data);
	return NULL;
}

static void shards_from_pipes_are_decompressed(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct ps_stream_meter meter = {0};
		struct ps_shard_options options = {.stream = {.wake_fd = -1, .meter = &meter}};
		struct file f;
		struct result res;
		pthread_t thread;

		if (!is_there(programs[i]))
			continue;
		f = compress(programs[i], 0, plain.len);
		free(f.data);
		assert_int_equal(mkfifo("fifo", 0600), 0);
		assert_int_equal(pthread_create(&thread, NULL, pipe_feed, (char *)(uintptr_t) "fifo"), 0);
		res = shard_check(ps_shard_new("fifo", 0, &options, NULL));
		pthread_join(thread, NULL);
		assert_true(res.samples == SAMPLES && res.bad == 0 && res.same);
		assert_int_equal(meter.nbytes, plain.len); /* decompressed bytes */
		unlink("fifo");
	}
}

static char folder[64];

/* A decompressor's memory is counted in the budget while the stream is open. */
static void decompressor_memory_counts_in_the_budget(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(programs); i++) {
		struct ps_byte_budget budget = {.limit = 1 << 30};
		struct ps_stream_options options = {.wake_fd = -1, .budget = &budget};
		size_t least = strncmp(programs[i], "gzip", 4) == 0 ? 32UL << 10 : 128UL << 10, n;
		struct ps_stream *s;
		const uint8_t *p;
		struct file f;

		if (!is_there(programs[i]))
			continue;
		f = compress(programs[i], 0, plain.len);
		file_write("shard", f.data, f.n);
		free(f.data);
		assert_int_equal(ps_stream_open("shard", &options, &s, NULL), 0);
		assert_int_equal(ps_stream_inflate(&s, NULL), 0);
		assert_int_equal(ps_stream_peek(s, 512, &p, &n, NULL), 0);
		assert_in_range(atomic_load(&budget.used), least, 64UL << 20);
		ps_stream_free(s);
		assert_int_equal(atomic_load(&budget.used), 0);
	}
}

static int enter(void **state)
{
	(void)state;
	folder_enter(folder);
	plain_make();
	return 0;
}

static int leave(void **state)
{
	(void)state;
	tar_free(&plain);
	folder_leave(folder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_format_gives_the_samples_of_the_plain_tar),
	        cmocka_unit_test(consecutive_frames_are_read),
	        cmocka_unit_test(skippable_frames_do_not_decide_the_format),
	        cmocka_unit_test(legacy_lz4_is_refused_by_name),
	        cmocka_unit_test(truncated_data_give_whole_samples_and_one_bad),
	        cmocka_unit_test(every_changed_byte_is_detected_or_harmless),
	        cmocka_unit_test(bytes_after_the_last_frame_are_damage),
	        cmocka_unit_test(a_zstd_window_over_128_mib_is_refused),
	        cmocka_unit_test(shards_from_pipes_are_decompressed),
	        cmocka_unit_test(decompressor_memory_counts_in_the_budget),
	};

	return cmocka_run_group_tests_name("loader-inflate", tests, enter, leave);
}
