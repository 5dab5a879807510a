#include "config.h"

#include "fields_fixture.h"

#include <errno.h>

#include "batches.h"

static char folder[64];
const char *const pattern[1] = {"f.tar"};

int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	return 0;
}

int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* n fields; samples come in the order of the shard. */
struct penstock_field *setting_init(struct setting *s, uint32_t n)
{
	penstock_options_init(&s->o, sizeof(s->o));
	s->o.fields = s->f;
	s->o.nfields = n;
	s->o.order = PENSTOCK_ORDER_NONE;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.memory_budget = 32 << 20;
	return s->f;
}

void field_set(struct penstock_field *f, const char *name, uint32_t kind)
{
	penstock_field_init(f, sizeof(*f), name, kind);
}

/* Adds a member `suffix` of sample `i` to the tar. */
void member(struct tar *t, int i, const char *suffix, const void *data, size_t n)
{
	char name[64];

	snprintf(name, sizeof(name), "%02d.%s", i, suffix);
	tar_add(t, name, data, n);
}

void member_text(struct tar *t, int i, const char *suffix, const char *text)
{
	member(t, i, suffix, text, strlen(text));
}

/* Adds a .npy of version 1, with its header as NumPy writes it. */
void member_npy(struct tar *t, int i, const char *suffix, const char *descr, bool fortran, const char *shape,
        const void *data, size_t n)
{
	char head[256], file[4096];
	int len = snprintf(head, sizeof(head), "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr,
	        fortran ? "True" : "False", shape);
	int all = (10 + len + 1 + 63) / 64 * 64;

	memset(file, ' ', sizeof(file));
	memcpy(file, "\x93NUMPY\1", 8);
	file[8] = (char)(all - 10);
	file[9] = 0;
	memcpy(file + 10, head, (size_t)len);
	file[all - 1] = '\n';
	memcpy(file + all, data, n);
	member(t, i, suffix, file, (size_t)all + n);
}

void shard_end(struct tar *t)
{
	tar_end(t);
	tar_save(t, "f.tar");
}

struct penstock_batch *next_ok(struct penstock_loader *l)
{
	struct penstock_batch *b = NULL;
	struct penstock_error e;
	int rc = penstock_loader_next(l, &b, &e);

	if (rc < 0)
		fail_msg("%s", e.text);
	assert_int_equal(rc, 1);
	return b;
}

struct penstock_tensor tensor(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

/* Asserts that the shard's only sample is bad, and that the error contains `says`. */
void bad_because(const struct penstock_options *o, const char *says)
{
	struct penstock_loader *l = open_ok(o, pattern, 1);
	struct penstock_batch *b;
	struct penstock_error e;
	int r = penstock_loader_next(l, &b, &e);

	assert_int_equal(r, -EBADMSG);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not contain \"%s\"", e.text, says);
	penstock_loader_close(l);
}

void one_text(const char *suffix, const char *text)
{
	struct tar t = {0};

	member_text(&t, 0, suffix, text);
	shard_end(&t);
}
