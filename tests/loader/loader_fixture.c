#include "config.h"

#include "loader_fixture.h"

static char folder[64];
struct photo photos[MAX_PHOTOS];
int nphotos;
const char *const pattern[] = {"t-{0..5}.tar"};
struct penstock_stats last_stats;

void sample_add(struct tar *t, int shard, int i)
{
	const struct photo *p = &photos[(shard * PER_SHARD + i) % nphotos];
	char name[64], text[64];

	snprintf(name, sizeof(name), "s%d/%03d.jpg", shard, i);
	tar_add(t, name, p->data, p->len);
	snprintf(name, sizeof(name), "s%d/%03d.cls", shard, i);
	snprintf(text, sizeof(text), "%d\n", shard * 1000 + i);
	tar_add_text(t, name, text);
	snprintf(name, sizeof(name), "s%d/%03d.TXT", shard, i);
	snprintf(text, sizeof(text), "%.*s", i % 7, "caption");
	tar_add_text(t, name, text);
}

int shards_make(void **state)
{
	(void)state;
	nphotos = photos_load(photos);
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct tar t = {0};
		char path[32];

		for (int i = 0; i < PER_SHARD; i++)
			sample_add(&t, s, i);
		tar_end(&t);
		snprintf(path, sizeof(path), "t-%d.tar", s);
		tar_save(&t, path);
	}
	return 0;
}

int shards_remove(void **state)
{
	(void)state;
	folder_leave(folder);
	for (int i = 0; i < nphotos; i++)
		free(photos[i].data);
	return 0;
}

void setting_init(struct setting *s)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "png;JPG", PENSTOCK_IMAGE);
	s->f[0].image_width = 24;
	s->f[0].image_height = 16;
	s->f[0].dtype = PENSTOCK_U8;
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "cls", PENSTOCK_INT64);
	penstock_field_init(&s->f[2], sizeof(s->f[2]), "txt", PENSTOCK_BYTES);
	s->o.fields = s->f;
	s->o.nfields = 3;
	s->o.batch = 16;
	s->o.epochs = 1;
	s->o.shuffle_window = 32;
	s->o.lanes = 4;
	s->o.threads = 2;
	s->o.memory_budget = 64 << 20;
}

uint64_t batch_hash(uint64_t h, const struct penstock_batch *b)
{
	static const char *const names[] = {
	        "jpg", "cls", "txt", "__key__", "__valid__", "__shard__", "__sample__"};
	struct penstock_batch_info info;

	penstock_batch_info(b, &info);
	h = hash(h, &info.epoch, sizeof(info.epoch));
	h = hash(h, &info.index, sizeof(info.index));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct penstock_tensor t = field(b, names[i]);

		h = hash(h, t.data, t.nbytes);
		h = hash(h, t.shape, sizeof(t.shape));
		if (t.offsets)
			h = hash(h, t.offsets, (info.rows + 1) * sizeof(*t.offsets));
	}
	return h;
}

uint64_t run_hash(const struct penstock_options *o, const char *const *shards, size_t n, uint64_t *ret_rows)
{
	struct penstock_loader *l = open_ok(o, shards, n);
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t h = 0xcbf29ce484222325u, rows = 0;
	int rc;

	for (uint64_t epoch = 0; epoch < o->epochs; epoch++) {
		while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
			struct penstock_batch_info info;

			penstock_batch_info(b, &info);
			assert_int_equal(info.epoch, o->epoch + epoch);
			rows += info.rows;
			h = batch_hash(h, b);
			penstock_batch_release(b);
		}
		if (rc < 0)
			fail_msg("%s", e.text);
	}
	assert_int_equal(penstock_loader_next(l, &b, &e), 0);
	assert_int_equal(penstock_loader_stats(l, &last_stats, sizeof(last_stats), NULL), 0);
	penstock_loader_close(l);
	if (ret_rows)
		*ret_rows = rows;
	return h;
}

int first_failure(const struct penstock_options *o, const char *shard, struct penstock_error *e)
{
	struct penstock_loader *l = open_ok(o, &shard, 1);
	struct penstock_batch *b;
	int r, again;

	while ((r = penstock_loader_next(l, &b, e)) == 1)
		penstock_batch_release(b);
	again = penstock_loader_next(l, &b, NULL);
	assert_int_equal(again, r); /* the loader stays failed */
	penstock_loader_close(l);
	return r;
}
