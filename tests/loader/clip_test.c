/* Clips: samples of hundreds of frames that share one crop. */
#include "config.h"

#include "make_tar.h"

#include <errno.h>
#include <malloc.h>

#include "tests/loader/image_fixture.h"

#include "penstock.h"

#define CAMERAS 8
#define FRAMES 36
#define N (CAMERAS * FRAMES)
#define CLIPS 4
#define WIDTH 480u
#define HEIGHT 270u
#define SIDE 32u

static char folder[64];
static const char *const pattern[1] = {"clips.tar"};

static int setup(void **state)
{
	struct tar t = {0};

	(void)state;
	folder_enter(folder);
	for (uint32_t clip = 0; clip < CLIPS; clip++) {
		for (uint32_t i = 0; i < N; i++) {
			const struct fixture_jpeg form = {
			        .width = WIDTH, .height = HEIGHT, .in = JCS_RGB, .stored = JCS_YCbCr};
			uint8_t *rgb = fixture_picture(WIDTH, HEIGHT, 0, clip * N + i);
			size_t n;
			uint8_t *jpeg = fixture_encode(&form, rgb, &n);
			char name[64];

			snprintf(name, sizeof(name), "clip%u.c%u.%03u.jpg", clip, i / FRAMES, i % FRAMES);
			tar_add(&t, name, jpeg, n);
			free(jpeg);
			free(rgb);
		}
	}
	tar_end(&t);
	tar_save(&t, pattern[0]);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f[N];
	char names[N][32];
};

/* n fields: frame 0, and the frames from number `from` on, which follow frame 0. */
static void setting_init(struct setting *s, uint32_t from, uint32_t n)
{
	penstock_options_init(&s->o, sizeof(s->o));
	s->o.fields = s->f;
	s->o.nfields = n;
	s->o.batch = 2;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.order = PENSTOCK_ORDER_NONE;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = k == 0 ? 0 : from + k - 1;
		struct penstock_field *f = &s->f[k];

		snprintf(s->names[k], sizeof(s->names[k]), "c%u.%03u.jpg", i / FRAMES, i % FRAMES);
		penstock_field_init(f, sizeof(*f), s->names[k], PENSTOCK_IMAGE);
		f->image_width = f->image_height = SIDE;
		f->dtype = PENSTOCK_U8;
		f->blur = 0.5;
		f->blur_size = 3;
		f->follow = k == 0 ? NULL : s->names[0];
	}
}

/* An epoch's rows of field k; *ret_held: bytes of heap in use at the last batch, when all threads have
 * decoded. */
static uint8_t *epoch_of(const struct setting *s, uint32_t k, size_t *ret_nbytes, size_t *ret_held)
{
	struct penstock_loader *loader;
	struct penstock_batch *batch;
	struct penstock_error error;
	struct penstock_tensor t;
	uint8_t *all = NULL;
	size_t n = 0;
	int rc;

	if (penstock_loader_open(&s->o, pattern, 1, &loader, &error) < 0)
		fail_msg("%s", error.text);
	while ((rc = penstock_loader_next(loader, &batch, &error)) == 1) {
		struct mallinfo2 m = mallinfo2();

		*ret_held = m.uordblks + m.hblkhd;
		assert_int_equal(penstock_batch_field(batch, s->names[k], &t, &error), 0);
		all = realloc(all, n + t.nbytes);
		assert_non_null(all);
		memcpy(all + n, t.data, t.nbytes);
		n += t.nbytes;
		penstock_batch_release(batch);
	}
	if (rc < 0)
		fail_msg("%s", error.text);
	penstock_loader_close(loader);
	*ret_nbytes = n;
	return all;
}

static void all_frames_of_all_cameras_share_one_crop(void **state)
{
	static const uint32_t looked_at[] = {64, 65, N - 1};
	static struct setting all, two;
	size_t n, m, held;

	(void)state;
	setting_init(&all, 1, N);
	for (size_t i = 0; i < PS_ARRAY_LEN(looked_at); i++) {
		uint8_t *p, *q;

		setting_init(&two, looked_at[i], 2);
		p = epoch_of(&all, looked_at[i], &n, &held);
		q = epoch_of(&two, 1, &m, &held);
		assert_int_equal(n, CLIPS * 3 * SIDE * SIDE);
		assert_int_equal(m, n);
		assert_memory_equal(p, q, n);
		free(p);
		free(q);
	}
}

/* Decoders of frames that follow use the memory of the first frame's decoder. */
static void followers_add_less_than_16_kib_of_memory_each(void **state)
{
	static struct setting all, two;
	size_t n, few, many;

	(void)state;
	setting_init(&all, 1, N);
	setting_init(&two, 1, 2);
	free(epoch_of(&two, 1, &n, &few));
	free(epoch_of(&all, 1, &n, &many));
	print_message("%zu bytes with 2 fields, %zu with %d\n", few, many, N);
	/* A field needs its part of the batch layout and, for each of the two threads, a decoder's tables.
	 * With memory of its own a field would need 160 KiB. */
	assert_true(many < few + (size_t)N * 16384);
}

static void more_than_1024_fields_are_refused(void **state)
{
	static struct penstock_field f[1025];
	struct penstock_options o;
	struct penstock_loader *loader;
	struct penstock_error error;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	for (size_t i = 0; i < PS_ARRAY_LEN(f); i++)
		penstock_field_init(&f[i], sizeof(f[i]), "c0.000.jpg", PENSTOCK_IMAGE);
	o.fields = f;
	o.nfields = PS_ARRAY_LEN(f);
	assert_int_equal(penstock_loader_open(&o, pattern, 1, &loader, &error), -EINVAL);
	assert_non_null(strstr(error.text, "1025 fields: must be 1 to 1024"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(all_frames_of_all_cameras_share_one_crop),
	        cmocka_unit_test(followers_add_less_than_16_kib_of_memory_each),
	        cmocka_unit_test(more_than_1024_fields_are_refused),
	};

	mallopt(M_ARENA_MAX, 1); /* mallinfo2() reports the first arena alone */
	return cmocka_run_group_tests_name("clip", tests, setup, teardown);
}
