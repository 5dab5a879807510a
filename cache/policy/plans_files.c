/* The files that plans name, found by node and by object. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plans_private.h"

#define TABLE_MIN 1024

static const struct ps_id no_id;

static uint64_t hash_of_id(const struct ps_id *id)
{
	uint64_t h;

	memcpy(&h, id->bytes, sizeof h); /* it is a hash already */
	return h;
}

static uint64_t hash_of_node(uint64_t node)
{
	node *= UINT64_C(0x9e3779b97f4a7c15);
	return node ^ node >> 32;
}

static void table_add(struct ps_plan_table *t, uint64_t hash, uint32_t place)
{
	size_t i = hash & (t->cap - 1);

	while (t->slots[i])
		i = (i + 1) & (t->cap - 1);
	t->slots[i] = place + 1;
}

static void fill_tables(struct ps_planned_files *f)
{
	memset(f->by_node.slots, 0, f->by_node.cap * sizeof *f->by_node.slots);
	memset(f->by_id.slots, 0, f->by_id.cap * sizeof *f->by_id.slots);
	for (size_t i = 0; i < f->n; i++) {
		if (!f->v[i].node)
			continue;
		table_add(&f->by_node, hash_of_node(f->v[i].node), (uint32_t)i);
		if (f->v[i].named)
			table_add(&f->by_id, hash_of_id(&f->v[i].id), (uint32_t)i);
	}
}

void ps_planned_files_fini(struct ps_planned_files *f)
{
	free(f->v);
	free(f->by_node.slots);
	free(f->by_id.slots);
	*f = (struct ps_planned_files){0};
}

/* At most half full. */
static int tables_grow(struct ps_planned_files *f, size_t want)
{
	size_t cap = PS_MAX(f->by_node.cap, (size_t)TABLE_MIN);

	while (cap / 2 < want)
		cap *= 2;
	if (cap == f->by_node.cap)
		return 0;
	uint32_t *by_node = calloc(cap, sizeof *by_node), *by_id = calloc(cap, sizeof *by_id);
	if (!by_node || !by_id) {
		free(by_node);
		free(by_id);
		return -ENOMEM;
	}
	free(f->by_node.slots);
	free(f->by_id.slots);
	f->by_node = (struct ps_plan_table){by_node, cap};
	f->by_id = (struct ps_plan_table){by_id, cap};
	fill_tables(f);
	return 0;
}

/* After the files moved: their lists point back at them. */
static void mend_links(struct ps_planned_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		if (f->v[i].uses)
			f->v[i].uses->link = &f->v[i].uses;
		else
			f->v[i].tail = &f->v[i].uses;
	}
}

int ps_planned_files_reserve(struct ps_planned_files *f, size_t n)
{
	size_t want = f->n + (n > f->nfree ? n - f->nfree : 0);

	if (want > UINT32_MAX / 4)
		return -ENOMEM;
	if (want > f->cap) {
		size_t cap = PS_MAX(want, f->cap + f->cap / 2);
		struct ps_planned_file *v = reallocarray(f->v, cap, sizeof *v);
		if (!v)
			return -ENOMEM;
		f->v = v;
		f->cap = cap;
		mend_links(f);
	}
	return tables_grow(f, want);
}

struct ps_planned_file *ps_planned_files_by_node(struct ps_planned_files *f, uint64_t node)
{
	if (f->by_node.cap == 0)
		return NULL;
	for (size_t i = hash_of_node(node);; i++) {
		uint32_t place = f->by_node.slots[i & (f->by_node.cap - 1)];
		if (!place)
			return NULL;
		if (f->v[place - 1].node == node)
			return &f->v[place - 1];
	}
}

struct ps_planned_file *ps_planned_files_by_id(
        struct ps_planned_files *f, const struct ps_id *id, size_t *cursor)
{
	if (f->by_id.cap == 0)
		return NULL;
	for (;;) {
		uint32_t place = f->by_id.slots[(hash_of_id(id) + (*cursor)++) & (f->by_id.cap - 1)];
		if (!place)
			return NULL;
		if (ps_id_cmp(&f->v[place - 1].id, id) == 0)
			return &f->v[place - 1];
	}
}

void ps_planned_files_name(struct ps_planned_files *f, struct ps_planned_file *file, const struct ps_id *id)
{
	if (file->named || ps_id_cmp(id, &no_id) == 0)
		return; /* a node shows one object for ever */
	file->id = *id;
	file->named = true;
	f->nnameless--;
	table_add(&f->by_id, hash_of_id(id), (uint32_t)(file - f->v));
}

static uint32_t free_place(struct ps_planned_files *f)
{
	if (f->nfree == 0)
		return (uint32_t)f->n++;
	while (f->v[f->free_from].node)
		f->free_from++;
	f->nfree--;
	return f->free_from++;
}

uint32_t ps_planned_files_add(struct ps_planned_files *f, const struct ps_plan_file *file)
{
	struct ps_planned_file *found = ps_planned_files_by_node(f, file->node);

	if (!found) {
		found = &f->v[free_place(f)];
		*found = (struct ps_planned_file){.node = file->node, .dataset = file->dataset};
		found->tail = &found->uses;
		f->nnameless++;
		table_add(&f->by_node, hash_of_node(file->node), (uint32_t)(found - f->v));
	}
	ps_planned_files_name(f, found, &file->id);
	return (uint32_t)(found - f->v);
}

void ps_planned_files_sweep(
        struct ps_planned_files *f, bool (*gone)(const void *arg, uint64_t serial), const void *arg)
{
	size_t nleft = 0;

	f->free_from = 0;
	for (size_t i = 0; i < f->n; i++) {
		struct ps_planned_file *file = &f->v[i];

		if (!file->node)
			continue;
		if (file->uses || !gone(arg, file->last)) {
			nleft++;
			continue;
		}
		f->nnameless -= !file->named;
		f->nfree++;
		*file = (struct ps_planned_file){0};
	}
	if (nleft == 0)
		ps_planned_files_fini(f);
	else
		fill_tables(f);
}
