#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Values of an image that are counted in each channel. Counting them, cache misses included, takes less
 * than 1 % of the time of decoding the image. */
#define PIXELS 64

#define MAX_LABELS 4096
#define LABEL_SLOTS 8192

struct moments {
	uint64_t n;
	double mean, m2, min, max;
};

struct label {
	int64_t value;
	uint64_t n; /* 0: empty entry */
};

struct column {
	struct moments bytes;     /* bytes of members */
	struct moments items;     /* items of rows, if sizes differ */
	struct moments values[3]; /* by channel; numbers: only the first */
	struct label *labels;     /* hash table of LABEL_SLOTS entries; NULL: labels are not counted */
	uint32_t nlabels;
	uint64_t other_labels; /* values that did not fit into the table */
};

struct ps_profile {
	const struct ps_batch_layout *layout;
	pthread_mutex_t lock; /* guards all below */
	uint64_t samples, bad;
	struct column columns[PS_LAYOUT_MAX_FIELDS];
};

struct ps_profile *ps_profile_new(const struct ps_batch_layout *layout)
{
	struct ps_profile *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->layout = layout;
	pthread_mutex_init(&p->lock, NULL);
	for (uint32_t i = 0; i < layout->nfields; i++) {
		if (layout->fields[i].kind != PENSTOCK_INT64 || ps_dtype_is_float(layout->fields[i].dtype))
			continue;
		p->columns[i].labels = calloc(LABEL_SLOTS, sizeof(struct label));
		if (!p->columns[i].labels) {
			ps_profile_free(p);
			return NULL;
		}
	}
	return p;
}

void ps_profile_free(struct ps_profile *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->layout->nfields; i++)
		free(p->columns[i].labels);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Counting ----------------------------------------------------------------------------------------------- */

/* Welford's algorithm, which never subtracts two large sums. */
static void moments_add(struct moments *m, double v)
{
	double d = v - m->mean;

	if (isnan(v))
		return;
	if (m->n == 0)
		m->min = m->max = v;
	m->min = PS_MIN(m->min, v);
	m->max = PS_MAX(m->max, v);
	m->n++;
	m->mean += d / (double)m->n;
	m->m2 += d * (v - m->mean);
}

/* Plain sums, for a few values of similar size: they lose no precision, and need no division for each
 * value. */
struct sums {
	uint64_t n;
	double sum, squares, min, max;
};

static void sums_add(struct sums *s, double v)
{
	s->n++;
	s->sum += v;
	s->squares += v * v;
	s->min = PS_MIN(s->min, v);
	s->max = PS_MAX(s->max, v);
}

static void moments_merge(struct moments *m, const struct sums *s)
{
	double n = (double)(m->n + s->n), mean = s->sum / (double)s->n, d = mean - m->mean;

	m->min = m->n ? PS_MIN(m->min, s->min) : s->min;
	m->max = m->n ? PS_MAX(m->max, s->max) : s->max;
	m->m2 += PS_MAX(s->squares - s->sum * mean, 0.0) + d * d * (double)m->n * (double)s->n / n;
	m->mean += d * (double)s->n / n;
	m->n += s->n;
}

static double number(const struct ps_layout_field *f, const uint8_t *p)
{
	struct ps_number v;
	float usual;

	if (f->dtype == PS_F32) {
		memcpy(&usual, p, sizeof(usual));
		return (double)usual;
	}
	v = ps_number_load(f->dtype, false, p);
	return v.is_float ? v.value : v.negative ? -(double)v.magnitude : (double)v.magnitude;
}

/* Counts an image. Of several views only the first is counted. */
static void image_count(struct column *c, const struct ps_layout_field *f, const uint8_t *row)
{
	bool planes = f->image.layout == PS_NCHW;
	size_t channels = ps_image_channels(&f->image), size = ps_dtype_nbytes(f->dtype);
	size_t pixels = (size_t)f->image.out_width * f->image.out_height;
	/* odd, so that lines of an even width are sampled at different columns */
	size_t step = (pixels / PIXELS) | 1;

	for (size_t k = 0; k < channels && k < PS_ARRAY_LEN(c->values); k++) { /* without alpha */
		double most = f->dtype == PS_U8 ? 255 : UINT16_MAX;
		double scale = ps_dtype_is_float(f->dtype) ? (double)f->image.std[k] : 1 / most;
		double shift = ps_dtype_is_float(f->dtype) ? (double)f->image.mean[k] : 0;
		struct sums sums = {.min = INFINITY, .max = -INFINITY};

		for (size_t i = 0; i < pixels; i += step)
			sums_add(&sums,
			        number(f, row + (planes ? k * pixels + i : i * channels + k) * size) * scale +
			                shift);
		moments_merge(&c->values[k], &sums);
	}
}

static void number_count(struct column *c, const struct ps_layout_field *f, const uint8_t *p)
{
	struct ps_number v;
	int64_t value;
	size_t at;

	moments_add(&c->values[0], number(f, p));
	if (!c->labels)
		return;
	v = ps_number_load(f->dtype, false, p);
	value = (int64_t)(v.negative ? -v.magnitude : v.magnitude);
	at = (size_t)((uint64_t)value * UINT64_C(0x9e3779b97f4a7c15) >> 51);
	while (c->labels[at].n > 0 && c->labels[at].value != value)
		at = at + 1 == LABEL_SLOTS ? 0 : at + 1;
	if (c->labels[at].n == 0 && c->nlabels == MAX_LABELS) {
		c->other_labels++;
		return;
	}
	c->nlabels += c->labels[at].n == 0;
	c->labels[at].value = value;
	c->labels[at].n++;
}

static void row_count(struct ps_profile *p, const struct penstock_batch *b, uint32_t row)
{
	for (uint32_t i = 0; i < p->layout->nfields; i++) {
		const struct ps_layout_field *f = &p->layout->fields[i];
		struct column *c = &p->columns[i];
		const struct ps_sample_field *in =
		        f->kind == PENSTOCK_OUTPUT ? NULL : ps_layout_find(f, b->rows[row].sample);

		if (f->hidden)
			continue;
		if (in)
			moments_add(&c->bytes, (double)in->size);
		if (f->form != PS_FORM_FIXED)
			moments_add(&c->items, (double)ps_batch_items(b, i, row));
		else if (f->kind == PENSTOCK_IMAGE)
			image_count(c, f, ps_batch_row(b, i, 0, row));
		else if (f->ndim == 0)
			number_count(c, f, ps_batch_row(b, i, 0, row));
	}
}

void ps_profile_batch(struct ps_profile *p, const struct penstock_batch *b)
{
	PS_LOCK_SCOPE(&p->lock);
	for (uint32_t i = 0; i < b->nrows; i++)
		if (!b->rows[i].bad)
			row_count(p, b, i);
	p->samples += b->nrows;
	p->bad += b->nbad;
}

/* JSON --------------------------------------------------------------------------------------------------- */

static void text_print(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
			fprintf(out, "\\u%04x", (unsigned char)*text);
		else
			putc(*text, out);
	}
	putc('"', out);
}

/* Prints a number as JSON: null for infinity, which JSON lacks, and a decimal point in every locale. */
static void number_print(FILE *out, const char *name, double v)
{
	char text[40];

	snprintf(text, sizeof(text), "%.9g", v);
	for (char *p = text; *p; p++)
		if (*p == ',')
			*p = '.';
	fprintf(out, "\"%s\": %s", name, isfinite(v) ? text : "null");
}

static void moments_print(FILE *out, const char *name, const struct moments *m)
{
	if (m->n == 0)
		return;
	if (name)
		fprintf(out, ", \"%s\": ", name);
	putc('{', out);
	number_print(out, "mean", m->mean);
	fputs(", ", out);
	number_print(out, "std", sqrt(m->m2 / (double)m->n));
	fputs(", ", out);
	number_print(out, "min", m->min);
	fputs(", ", out);
	number_print(out, "max", m->max);
	putc('}', out);
}

static int label_order(const void *a, const void *b)
{
	const struct label *x = a, *y = b;

	return x->value < y->value ? -1 : x->value > y->value;
}

static void labels_print(FILE *out, const struct column *c)
{
	struct label *sorted = calloc(c->nlabels + 1, sizeof(*sorted));
	uint32_t n = 0;

	for (uint32_t i = 0; i < LABEL_SLOTS && sorted; i++)
		if (c->labels[i].n > 0)
			sorted[n++] = c->labels[i];
	if (sorted)
		qsort(sorted, n, sizeof(*sorted), label_order);
	fprintf(out, ", \"other_labels\": %ju, \"labels\": {", (uintmax_t)c->other_labels);
	for (uint32_t i = 0; i < n; i++)
		fprintf(out, "%s\"%jd\": %ju", i ? ", " : "", (intmax_t)sorted[i].value,
		        (uintmax_t)sorted[i].n);
	putc('}', out);
	free(sorted);
}

static void column_print(FILE *out, const struct ps_layout_field *f, const struct column *c)
{
	text_print(out, f->name);
	fprintf(out, ": {\"dtype\": \"%s\"", ps_dtype_name(f->dtype));
	moments_print(out, "bytes", &c->bytes);
	moments_print(out, "items", &c->items);
	if (f->kind == PENSTOCK_IMAGE) {
		fputs(", \"channels\": [", out);
		for (size_t k = 0; k < PS_ARRAY_LEN(c->values) && c->values[k].n > 0; k++) {
			fputs(k ? ", " : "", out);
			moments_print(out, NULL, &c->values[k]);
		}
		putc(']', out);
	} else {
		moments_print(out, "values", &c->values[0]);
	}
	if (c->labels)
		labels_print(out, c);
	putc('}', out);
}

int ps_profile_json(struct ps_profile *p, char **ret_text, size_t *ret_nbytes, struct ps_error *err)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (out) {
		PS_LOCK_SCOPE(&p->lock);
		fprintf(out, "{\"version\": 1, \"samples\": %ju, \"bad\": %ju, \"fields\": {",
		        (uintmax_t)p->samples, (uintmax_t)p->bad);
		for (uint32_t i = 0; i < p->layout->nfields; i++) {
			fputs(i ? ", " : "", out);
			column_print(out, &p->layout->fields[i], &p->columns[i]);
		}
		fputs("}}\n", out);
	}
	if (!out || fclose(out) != 0) {
		free(text);
		return ps_error_set(err, ENOMEM, "no memory for the profile");
	}
	*ret_text = text;
	*ret_nbytes = n;
	return 0;
}
