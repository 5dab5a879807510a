/* With a libjpeg that our own entropy decoder does not work with, the library decodes, and the pixels are the
 * same. */
#include "config.h"

/* The decoder with a wrapper, linked in place of the loader's. Included before cmocka.h, whose names
 * clash. */
#define ps_huffman_mcu sound_mcu
#include "image/huffman.c"
#undef ps_huffman_mcu
enum ps_huffman_end ps_huffman_mcu(struct ps_huffman *h, int16_t *const *blocks);

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/hash.h"
#include "image/format.h"
#include "image/image.h"
#include "tests/loader/image_fixture.h"

enum damage { NONE, PIXELS, WARNING, NOT_CALLED, DAMAGES };

#define THREADS 8

static enum damage damage;
static atomic_uint ncalls;

enum ps_huffman_end ps_huffman_mcu(struct ps_huffman *h, int16_t *const *blocks)
{
	const uint8_t *p = h->p;
	enum ps_huffman_end end = sound_mcu(h, blocks);

	atomic_fetch_add(&ncalls, 1);
	if (damage == PIXELS && blocks)
		blocks[0][9] ^= 64;
	if (damage == NOT_CALLED)
		h->p = p; /* to the check, as if it had not been called */
	return damage == WARNING ? PS_HUFFMAN_BAD_CODE : end;
}

/* The results of a process with one kind of damage. */
struct seen {
	uint64_t pixels, version;
	unsigned ncalls; /* after the check */
	char decoder[80];
};

static uint64_t pixels;

static void photo_decode(const char *name, const uint8_t *data, size_t nbytes)
{
	static const struct ps_image_limits limits = {
	        .max_pixels = 1 << 24, .max_scans = 100, .max_memory = 64 << 20};
	const struct ps_format *f = &ps_format_jpeg;
	void *jpeg = f->make();
	struct ps_image_size size;
	struct ps_image_rows rows;
	struct ps_error err;
	uint64_t h = PS_HASH_BEGIN;
	bool ok;

	assert_non_null(jpeg);
	ok = f->open(jpeg, data, nbytes, PS_PIXELS_RGB, &limits, &size, &err) == 0;
	const struct ps_region all = {0, 0, size.width, size.height};
	ok = ok && f->start(jpeg, &all, 0, &err) == 0;
	for (uint32_t row = 0; ok && row < size.height; row += rows.n) {
		ok = f->rows(jpeg, &rows, &err) == 0;
		for (uint32_t i = 0; ok && i < rows.n; i++)
			h = ps_hash(h, rows.first + i * rows.stride, (size_t)size.width * 3);
	}
	if (!ok)
		fail_msg("%s: %s", name, err.text);
	f->free(jpeg);
	__atomic_fetch_add(&pixels, h, __ATOMIC_RELAXED);
}

static void *photos_decode(void *start)
{
	pthread_barrier_wait(start);
	assert_true(fixture_each_jpeg("photos", photo_decode) >= 10);
	return NULL;
}

/* Runs in a process of its own, since the result of the check is kept for good. The check is made while
 * several threads decode their first image at once. */
static void decoder_try(enum damage d, struct seen *seen)
{
	pthread_barrier_t start;
	pthread_t threads[THREADS];

	damage = d;
	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, photos_decode, &start), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	seen->pixels = pixels;
	seen->version = ps_jpeg_version();
	snprintf(seen->decoder, sizeof(seen->decoder), "%s", ps_jpeg_decoder());
	atomic_store(&ncalls, 0);
	fixture_each_jpeg("photos", photo_decode);
	seen->ncalls = atomic_load(&ncalls);
}

static void a_decoder_that_fails_its_check_is_not_used(void **state)
{
	struct seen *seen = mmap(
	        NULL, DAMAGES * sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(seen, MAP_FAILED);
	for (int d = 0; d < DAMAGES; d++) {
		int status;

		(void)fflush(stdout); /* the child ends with exit(), so that coverage counts its lines */
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			decoder_try((enum damage)d, &seen[d]);
			exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_true(seen[d].pixels == seen[NONE].pixels);
		assert_true(seen[d].version > 0);
#ifdef PS_JPEG_ENTROPY
		assert_int_equal(seen[d].ncalls > 0, d == NONE);
		/* damaged files are reported differently */
		assert_int_equal(seen[d].version == seen[NONE].version, d == NONE);
		assert_string_equal(seen[d].decoder,
		        d == NONE ? "penstock"
		                  : "libjpeg: with this libjpeg penstock's own decoder fails its check");
#else
		assert_int_equal(seen[d].ncalls, 0);
		assert_true(seen[d].version == seen[NONE].version);
		assert_string_equal(seen[d].decoder, "libjpeg: built without penstock's own decoder");
#endif
	}
	munmap(seen, DAMAGES * sizeof(*seen));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_decoder_that_fails_its_check_is_not_used),
	};
	return cmocka_run_group_tests_name("jpeg_fallback", tests, NULL, NULL);
}
