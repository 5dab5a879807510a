/* Shared by tests of pictures: a shard p.tar in a folder of its own, with pictures made of cells, each of
 * one colour and one label, with masks and boxes; settings that read the shard, and whole epochs.
 *
 * Threads: one.   Errors: a test fails. */
#ifndef PS_TESTS_LOADER_PICTURES_FIXTURE_H
#define PS_TESTS_LOADER_PICTURES_FIXTURE_H

#include <stdbool.h>

#include "make_tar.h"

#include "penstock.h"

#define SAMPLES 48
#define BATCH 16
#define CELL 16u /* pixels of a cell's side; a picture is 12 x 9 cells */
#define COLUMNS 12u
#define ROWS 9u
#define WIDTH (COLUMNS * CELL)
#define HEIGHT (ROWS * CELL)
#define OUT_W 72u
#define OUT_H 64u
#define BOX_X 4u /* the cell that the box is drawn around */
#define BOX_Y 3u

extern const char *const pattern[1];

/* Setup and teardown of a test group: the folder with its shard. */
int setup(void **state);
int teardown(void **state);

/* The label of the cell around pixel (x, y), and the colour of cells with a label. */
uint8_t label_of(uint32_t x, uint32_t y);
void color_of(uint8_t label, uint8_t rgb[static 3]);

struct setting {
	struct penstock_options o;
	struct penstock_field f[5];
};

void setting_init(struct setting *s);

/* Adds a field; an image field has OUT_W x OUT_H x 3 bytes. */
struct penstock_field *field_add(struct setting *s, const char *name, uint32_t kind);

/* One tensor of all batches of an epoch, concatenated; the caller frees. */
uint8_t *epoch_of(const struct setting *s, const char *name, size_t *ret_nbytes);

/* Asserts that the tensors of two epochs have the same bytes or, without `same`, other bytes. */
void same_epoch(
        const struct setting *a, const char *name_a, const struct setting *b, const char *name_b, bool same);

/* Returns the code and the text of penstock_loader_open(), which must fail. */
int open_fails(const struct setting *s, struct penstock_error *error);

#endif
