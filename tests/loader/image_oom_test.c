/* Allocations of the image code. Each one fails once: that is an error, leaks nothing, and the decoder still
 * works. After a while a decoder allocates no more. The test is linked with --wrap, so that only the loader's
 * own calls are counted, not libjpeg's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "image/image.h"
#include "tests/loader/image_fixture.h"

void *__real_malloc(size_t nbytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t nbytes);
void *__real_aligned_alloc(size_t align, size_t nbytes);
void *__wrap_malloc(size_t nbytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t nbytes);
void *__wrap_aligned_alloc(size_t align, size_t nbytes);

static int allocations;
static int failing = -1; /* the allocation that fails, counted from 0; -1: none */

static bool fails(void)
{
	return allocations++ == failing;
}

void *__wrap_malloc(size_t nbytes)
{
	return fails() ? NULL : __real_malloc(nbytes);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t nbytes)
{
	return fails() ? NULL : __real_realloc(p, nbytes);
}

void *__wrap_aligned_alloc(size_t align, size_t nbytes)
{
	return fails() ? NULL : __real_aligned_alloc(align, nbytes);
}

static struct ps_error err;

static void a_failed_allocation_is_an_error_and_the_decoder_still_works(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(32);
	struct fixture_jpeg f = {
	        .width = 120, .height = 90, .in = JCS_RGB, .stored = JCS_YCbCr, .h = 2, .v = 2};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 1);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree uint8_t *dst = malloc(ps_image_nbytes(&spec));
	struct ps_rng_key key = {0};
	int failures = 0, rc = -ENOMEM;
	(void)state;
	for (int n = 0; rc != 0; n++) {
		assert_true(n < 100);
		err = (struct ps_error){0};
		allocations = 0;
		failing = n;
		struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
		rc = d ? ps_image_decode(d, data, nbytes, &key, dst, &err) : -err.err;
		failing = -1;
		if (rc < 0) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(err.err, ENOMEM);
			assert_true(err.text[0] != '\0');
			failures++;
		}
		if (d)
			assert_int_equal(ps_image_decode(d, data, nbytes, &key, dst, &err), 0);
		ps_image_decoder_free(d);
	}
	assert_true(failures >= 10);
}

static void a_decoder_reuses_its_buffers(void **state)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(32);
	struct fixture_jpeg f = {.width = 300, .height = 200, .in = JCS_RGB, .stored = JCS_YCbCr};
	ps_autofree uint8_t *pixels = fixture_picture(f.width, f.height, 0, 3);
	size_t nbytes;
	ps_autofree uint8_t *data = fixture_encode(&f, pixels, &nbytes);
	ps_autofree uint8_t *dst = malloc(ps_image_nbytes(&spec));
	struct ps_image_decoder *d = ps_image_decoder_new(&spec, &err);
	int settled = 0;
	(void)state;
	for (uint64_t n = 0; n < 3000; n++) {
		struct ps_rng_key key = {.sample = n};
		assert_int_equal(ps_image_decode(d, data, nbytes, &key, dst, &err), 0);
		if (n == 1500)
			settled = allocations;
	}
	assert_int_equal(allocations, settled);
	ps_image_decoder_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_failed_allocation_is_an_error_and_the_decoder_still_works),
	        cmocka_unit_test(a_decoder_reuses_its_buffers),
	};
	return cmocka_run_group_tests_name("image_oom", tests, NULL, NULL);
}
