/* What the tests of images that the GPU decodes share: the device's side, shards of JPEGs of all kinds, runs
 * over them. With the mocks of driver and nvJPEG (device_cuda.sh) the pixels are those that the processor
 * makes, to the byte; with a real GPU (make check-gpu) near them, and what only mocks can do is NULL in
 * `gpu`.
 *
 * Threads: one.   Errors: a test fails; gpu_open() ends with 77 where there is no GPU. */
#ifndef TESTS_LOADER_NVJPEG_FIXTURE_H
#define TESTS_LOADER_NVJPEG_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/kernels/cuda_driver.h"
#include "make_tar.h"
#include "penstock.h"

#define BATCH 12
#define WIDTH 112u /* a row of three planes is just longer than PS_SEND_GAP */
#define HEIGHT 98u

extern struct gpu {
	const struct ps_cuda_driver *cu;
	ps_cu_context context;
	ps_cu_result (*copy_from)(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream);
	void (*lose)(void); /* NULL, as what follows: a real GPU */
	long (*leaks)(void);
	void (*copied_to)(const void *p, uint64_t *ret_nbytes, uint64_t *ret_ncopies);
	void (*set)(int no_hardware, int no_flags, int refuse, int lighter);
	void (*fail_batches)(int n);
	void (*fail_launches)(int fail);
	void (*misread)(int wider, int higher);
	int (*call)(ps_cu_stream stream, void (*fn)(void *arg), void *arg);
	uint64_t (*largest)(void);
	long (*nvjpeg_leaks)(void);
} gpu;

void gpu_open(void);

/* Keeps all streams from going on for so long; the mocks' alone. */
void gpu_hold(unsigned ms);

/* A shard of n JPEGs, each with a .cls; of the grey ones each has one level. */
struct fixture_jpeg;
void jpegs_write(const char *shard, const struct fixture_jpeg *kind, uint32_t n);

/* Shards odd.tar, photos.tar, unlabelled.tar (photos of which each third has no number in .cls) and
 * labelled.tar in a folder of their own; for a group. */
int shards_make(void **state);
int shards_remove(void **state);

/* Around each test: the mocks as they are by themselves; and no object of theirs is left. */
int mocks_reset(void **state);
int nothing_left(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, mocks_reset, nothing_left)

struct setting {
	struct penstock_options o;
	struct penstock_field f[4];
	const char *shards[1];
};

/* .jpg as an image and .cls as int64. The setting must stay where it is. */
void setting_init(struct setting *s, const char *shard, const char *device, double gpu_decode);

/* Bytes of tensors; p is the holder's to free. */
struct record {
	uint8_t *p;
	size_t n, cap;
};

void from_device(void *to, const void *from, size_t n);
void record_add(struct record *r, const struct penstock_tensor *t);

struct penstock_loader *loader_open(const struct setting *s);

/* The next batch's tensors, or that named `only`; false: the epoch is over. */
bool batch_record(struct penstock_loader *l, const char *only, struct record *r);

/* All batches of all epochs; *ret_stats (may be NULL) of the end. */
struct record run(const struct setting *s, const char *only, struct penstock_stats *ret_stats);

/* Frees both. */
void same(struct record *a, struct record *b);

/* The run on the processor and the one with a GPU: the same. */
void as_on_the_processor(struct setting *s, struct penstock_stats *ret_stats);

#endif
