#include "config.h"

#include "pictures_fixture.h"

static char folder[64];
const char *const pattern[1] = {"p.tar"};

uint8_t label_of(uint32_t x, uint32_t y)
{
	return (uint8_t)(y / CELL * COLUMNS + x / CELL + 1);
}

void color_of(uint8_t label, uint8_t rgb[static 3])
{
	rgb[0] = (uint8_t)((label - 1) % COLUMNS * 20);
	rgb[1] = (uint8_t)((label - 1) / COLUMNS * 28);
	rgb[2] = (uint8_t)(255 - label);
}

static void sample_add(struct tar *t, int i, const uint8_t *ppm, size_t nppm, const uint8_t *pgm, size_t npgm)
{
	char name[64], text[256];

	snprintf(name, sizeof(name), "%03d.ppm", i);
	tar_add(t, name, ppm, nppm);
	snprintf(name, sizeof(name), "%03d.next.ppm", i);
	tar_add(t, name, ppm, nppm);
	snprintf(name, sizeof(name), "%03d.seg.pgm", i);
	tar_add(t, name, pgm, npgm);
	snprintf(name, sizeof(name), "%03d.box.txt", i);
	snprintf(text, sizeof(text), "%u %u %u %u\n%u, %u, %u, %u\n", BOX_X * CELL, BOX_Y * CELL,
	        (BOX_X + 1) * CELL, (BOX_Y + 1) * CELL, 0, 0, WIDTH, HEIGHT);
	tar_add_text(t, name, text);
	snprintf(name, sizeof(name), "%03d.box.json", i);
	snprintf(text, sizeof(text), "{\"b\": [[%g, %g, %g, %g]]}", (BOX_X + 0.5) / COLUMNS,
	        (BOX_Y + 0.5) / ROWS, 1.0 / COLUMNS, 1.0 / ROWS);
	tar_add_text(t, name, text);
	snprintf(name, sizeof(name), "%03d.cls", i);
	snprintf(text, sizeof(text), "%d", i);
	tar_add_text(t, name, text);
}

int setup(void **state)
{
	uint8_t *ppm = malloc(64 + WIDTH * HEIGHT * 3), *pgm = malloc(64 + WIDTH * HEIGHT);
	struct tar t = {0};
	int nppm, npgm;

	(void)state;
	assert_true(ppm && pgm);
	nppm = sprintf((char *)ppm, "P6\n%u %u\n255\n", WIDTH, HEIGHT);
	npgm = sprintf((char *)pgm, "P5\n%u %u\n255\n", WIDTH, HEIGHT);
	for (uint32_t y = 0; y < HEIGHT; y++) {
		for (uint32_t x = 0; x < WIDTH; x++, nppm += 3) {
			pgm[npgm] = label_of(x, y);
			color_of(pgm[npgm++], ppm + nppm);
		}
	}
	folder_enter(folder);
	for (int i = 0; i < SAMPLES; i++)
		sample_add(&t, i, ppm, (size_t)nppm, pgm, (size_t)npgm);
	tar_end(&t);
	tar_save(&t, "p.tar");
	free(ppm);
	free(pgm);
	return 0;
}

int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct penstock_field *field_add(struct setting *s, const char *name, uint32_t kind)
{
	struct penstock_field *f = &s->f[s->o.nfields++];

	penstock_field_init(f, sizeof(*f), name, kind);
	if (kind == PENSTOCK_IMAGE) {
		f->image_width = OUT_W;
		f->image_height = OUT_H;
		f->dtype = PENSTOCK_U8;
		f->layout = PENSTOCK_NHWC;
	}
	return f;
}

void setting_init(struct setting *s)
{
	memset(s, 0, sizeof(*s));
	penstock_options_init(&s->o, sizeof(s->o));
	s->o.fields = s->f;
	s->o.batch = BATCH;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.order = PENSTOCK_ORDER_NONE;
}

/* One tensor of all batches of an epoch, concatenated; the caller frees. */
uint8_t *epoch_of(const struct setting *s, const char *name, size_t *ret_nbytes)
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
		assert_int_equal(penstock_batch_field(batch, name, &t, &error), 0);
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

void same_epoch(
        const struct setting *a, const char *name_a, const struct setting *b, const char *name_b, bool same)
{
	size_t n, m;
	uint8_t *p = epoch_of(a, name_a, &n), *q = epoch_of(b, name_b, &m);

	assert_int_equal(n, m);
	assert_int_equal(memcmp(p, q, n) == 0, same);
	free(p);
	free(q);
}

int open_fails(const struct setting *s, struct penstock_error *error)
{
	struct penstock_loader *loader;

	return penstock_loader_open(&s->o, pattern, 1, &loader, error);
}
