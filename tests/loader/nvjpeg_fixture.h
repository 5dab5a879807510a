/* Shared by the tests of images that the GPU decodes: the device's side, shards of JPEGs of all kinds, runs
 * over them. With the mocks of driver and nvJPEG (device_cuda.sh) the pixels equal the CPU's. With a real
 * GPU (make check-gpu) they are near the CPU's, and functions that only the mocks have are NULL in `gpu`.
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
#define WIDTH 112u /* an image's three planes are just longer than PS_SEND_GAP */
#define HEIGHT 98u

extern struct gpu {
	const struct ps_cuda_driver *cu;
	ps_cu_context context;
	ps_cu_result (*copy_from)(void *to, ps_cu_pointer from, size_t n, ps_cu_stream stream);
	void (*lose)(void); /* this and those below: NULL with a real GPU */
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

/* Stops all streams for `ms` milliseconds; with the mocks alone. */
void gpu_hold(unsigned ms);

/* Writes a shard of n JPEGs, each with a .cls. A grey JPEG is of one level. */
struct fixture_jpeg;
void jpegs_write(const char *shard, const struct fixture_jpeg *kind, uint32_t n);

/* Setup and teardown of a test group: shards odd.tar, photos.tar, unlabelled.tar (photos, every third
 * without a number in .cls) and labelled.tar in a folder of their own. */
int shards_make(void **state);
int shards_remove(void **state);

/* Before each test: reset the mocks. After each test: assert that none of their objects is left. */
int mocks_reset(void **state);
int nothing_left(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, mocks_reset, nothing_left)

struct setting {
	struct penstock_options o;
	struct penstock_field f[4];
	const char *shards[1];
};

/* Reads .jpg as an image and .cls as int64. The setting must not move in memory. */
void setting_init(struct setting *s, const char *shard, const char *device, double gpu_decode);

/* Bytes of tensors; the holder frees p. */
struct record {
	uint8_t *p;
	size_t n, cap;
};

void from_device(void *to, const void *from, size_t n);
void record_add(struct record *r, const struct penstock_tensor *t);

struct penstock_loader *loader_open(const struct setting *s);

/* Adds the next batch's tensors, or the one named `only`; false: the epoch is over. */
bool batch_record(struct penstock_loader *l, const char *only, struct record *r);

/* All batches of all epochs; *ret_stats (may be NULL): statistics at the end. */
struct record run(const struct setting *s, const char *only, struct penstock_stats *ret_stats);

/* Asserts that both are the same, and frees both. */
void same(struct record *a, struct record *b);

/* Asserts that the run with the GPU gives the same bytes as the run on the CPU. */
void same_as_on_the_cpu(struct setting *s, struct penstock_stats *ret_stats);

#endif
