/* loader_records [OPTION...]: measures how many small records a second are read from tar shards.
 *
 * Writes shards whose records have one member each (ustar, and pax as webdataset writes it: mtime with a
 * fraction). Prints one line for each way of reading them, with the best of some rounds: read() of all bytes;
 * the walk over the members alone; names (samples without their bytes); samples with their bytes; batches of
 * the C interface (values + offsets). GB/s counts the members' data; for read(), all bytes. */
#include "config.h"

#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "penstock.h"
#include "shard/file/file.h"
#include "shard/shard.h"

#define SHARDS 64

static const char *folder = "/tmp/penstock-records";
static uint32_t per_shard = 8192, record = 1024, threads = 1, readers, batch = 256, rounds = 3;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Shards ------------------------------------------------------------------------------------------------- */

static void header_write(FILE *f, const char *name, size_t n, char type)
{
	char h[512] = {0};
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	memcpy(h + 100, "0000444\0000000000\0000000000", 23);
	snprintf(h + 124, 12, "%011o", (unsigned)n);
	snprintf(h + 136, 12, "%011o", 1700000000u);
	memset(h + 148, ' ', 8);
	h[156] = type;
	memcpy(h + 257, "ustar\00000", 8);
	memcpy(h + 265, "bigdata", 7);
	memcpy(h + 297, "bigdata", 7);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 7, "%06o", sum);
	fwrite(h, 1, 512, f);
}

static void padded_write(FILE *f, const void *p, size_t n)
{
	static const char zeros[512];

	fwrite(p, 1, n, f);
	fwrite(zeros, 1, (512 - n % 512) % 512, f);
}

static void shard_path(char path[static 256], const char *kind, uint32_t shard)
{
	snprintf(path, 256, "%s/%s-%u-%u-%02u.tar", folder, kind, record, per_shard, shard);
}

static void shard_write(const char *kind, uint32_t shard)
{
	char path[256], name[64], pax[64];
	uint8_t *data = malloc(record + 1);
	FILE *f;

	shard_path(path, kind, shard);
	if (access(path, R_OK) == 0) {
		free(data);
		return;
	}
	f = fopen(path, "wb");
	if (!f || !data)
		err(1, "%s", path);
	for (uint32_t i = 0; i < per_shard; i++) {
		memset(data, (int)(i % 251), record);
		snprintf(name, sizeof(name), "%02u/%08u.bin", shard, i);
		if (strcmp(kind, "pax") == 0) {
			int n = snprintf(pax, sizeof(pax), "30 mtime=%.9f\n", 1700000000 + i / 7.0);

			snprintf(pax, sizeof(pax), "%d mtime=%.9f\n", n, 1700000000 + i / 7.0);
			header_write(f, "././@PaxHeader", strlen(pax), 'x');
			padded_write(f, pax, strlen(pax));
		}
		header_write(f, name, record, '0');
		padded_write(f, data, record);
	}
	memset(data, 0, record);
	for (int i = 0; i < 2; i++)
		padded_write(f, "", 0), fseek(f, 511, SEEK_CUR), fwrite("", 1, 1, f);
	if (fclose(f) != 0)
		err(1, "%s", path);
	free(data);
}

/* Rows --------------------------------------------------------------------------------------------------- */

struct count {
	uint64_t samples, nbytes;
};

static struct count row_read(const char *kind, uint32_t shard)
{
	static uint8_t ring[8 << 20];
	char path[256];
	struct count c = {0};
	size_t at = 0;
	ssize_t n;
	int fd;

	shard_path(path, kind, shard);
	fd = open(path, O_RDONLY);
	while ((n = read(fd, ring + at, 1 << 20)) > 0) {
		c.nbytes += (uint64_t)n;
		at = (at + (1 << 20)) % sizeof(ring);
	}
	close(fd);
	return c;
}

static struct count row_walk(const char *kind, uint32_t shard)
{
	struct ps_stream_options o = {.buf_nbytes = 1 << 20, .wake_fd = -1};
	struct ps_error error = {0};
	struct ps_tar_member m;
	struct ps_stream *s;
	struct ps_tar *t;
	struct count c = {0};
	char path[256];

	shard_path(path, kind, shard);
	if (ps_stream_open(path, &o, &s, &error) < 0 || !(t = ps_stream_tar(s)))
		errx(1, "%s", error.text);
	while (ps_tar_next(t, &m, &error) == 1) {
		c.samples++;
		c.nbytes += m.size;
	}
	ps_tar_free(t);
	ps_stream_free(s);
	return c;
}

static struct count samples_count(const char *kind, uint32_t shard, bool never_hold)
{
	struct ps_shard_options o = {
	        .stream = {.buf_nbytes = 1 << 20, .wake_fd = -1}, .never_hold = never_hold};
	struct ps_error error = {0};
	struct ps_sample *s;
	struct ps_shard *t;
	struct count c = {0};
	char path[256];

	shard_path(path, kind, shard);
	t = ps_shard_new(path, shard, &o, &error);
	while (t && ps_shard_next(t, &s, &error) == 1) {
		c.samples++;
		c.nbytes += s->fields[0].size;
		ps_sample_free(s);
	}
	ps_shard_free(t);
	return c;
}

static struct count row_names(const char *kind, uint32_t shard)
{
	return samples_count(kind, shard, true);
}

static struct count row_samples(const char *kind, uint32_t shard)
{
	return samples_count(kind, shard, false);
}

static void line_print(const char *kind, const char *row, struct count c, double seconds, double cpu_seconds)
{
	printf("%-6s %-8s %9.0f samples/s  %6.2f GB/s  %5.2f CPUs\n", kind, row, (double)c.samples / seconds,
	        (double)c.nbytes / seconds / 1e9, cpu_seconds / seconds);
	fflush(stdout);
}

static void row_run(const char *kind, const char *name, struct count (*run)(const char *, uint32_t))
{
	struct count all = {0};
	double best = 1e9, best_cpu = 0;

	for (uint32_t r = 0; r < rounds; r++) {
		double t = now(), u = cpu();

		all = (struct count){0};
		for (uint32_t i = 0; i < SHARDS; i++) {
			struct count c = run(kind, i);

			all.samples += c.samples;
			all.nbytes += c.nbytes;
		}
		t = now() - t;
		if (t < best) {
			best = t;
			best_cpu = cpu() - u;
		}
	}
	line_print(kind, name, all, best, best_cpu);
}

static void row_batches(const char *kind)
{
	char pattern[256];
	const char *shards[] = {pattern};
	struct penstock_field field;
	struct penstock_options o;
	struct penstock_loader *l;
	struct penstock_error e;
	struct penstock_batch *b;
	struct penstock_stats st;
	double best = 1e9, best_cpu = 0;
	struct count c = {0};

	snprintf(pattern, sizeof(pattern), "%s/%s-%u-%u-{00..%02u}.tar", folder, kind, record, per_shard,
	        SHARDS - 1);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&field, sizeof(field), "bin", PENSTOCK_BYTES);
	o.fields = &field;
	o.nfields = 1;
	o.batch = batch;
	o.threads = threads;
	o.readers = readers;
	if (penstock_loader_open(&o, shards, 1, &l, &e) < 0)
		errx(1, "%s", e.text);
	for (uint32_t r = 0; r < rounds; r++) {
		struct count round = {0};
		double t = now(), u = cpu();
		int n;

		while ((n = penstock_loader_next(l, &b, &e)) == 1) {
			struct penstock_batch_info info;
			struct penstock_tensor v;

			penstock_batch_info(b, &info);
			if (penstock_batch_field(b, "bin", &v, &e) < 0)
				errx(1, "%s", e.text);
			round.samples += info.rows;
			round.nbytes += v.nbytes;
			penstock_batch_release(b);
		}
		if (n < 0)
			errx(1, "%s", e.text);
		t = now() - t;
		if (t < best) {
			best = t;
			best_cpu = cpu() - u;
			c = round;
		}
	}
	line_print(kind, "batches", c, best, best_cpu);
	(void)penstock_loader_stats(l, &st, sizeof(st), &e);
	for (int i = 0; i < PENSTOCK_NSTAGES; i++)
		printf("       %-8s %u threads: busy %.2f, waits for input %.2f, for room %.2f\n",
		        st.stages[i].name, st.stages[i].threads, st.stages[i].busy,
		        st.stages[i].waiting_input, st.stages[i].waiting_output);
	penstock_loader_close(l);
}

static void usage(void)
{
	printf("Usage: loader_records [OPTION...]\n\n"
	       "  --dir DIR       where the shards are written, and stay [%s]\n"
	       "  --record N      bytes of a record [%u]\n"
	       "  --samples N     samples of a shard; there are %d shards [%u]\n"
	       "  --threads N     threads that decode [%u]\n"
	       "  --readers N     threads that read; 0: the loader's default [0]\n"
	       "  --batch N       samples of a batch [%u]\n"
	       "  --rounds N      the best round is printed [%u]\n"
	       "  --only ROW      read, walk, names, samples or batches\n"
	       "  --kind KIND     ustar or pax; both if not given\n",
	        folder, record, SHARDS, per_shard, threads, batch, rounds);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"dir", 1, NULL, 'd'}, {"record", 1, NULL, 'r'},
	        {"samples", 1, NULL, 's'}, {"threads", 1, NULL, 't'}, {"readers", 1, NULL, 'R'},
	        {"batch", 1, NULL, 'b'}, {"rounds", 1, NULL, 'n'}, {"only", 1, NULL, 'o'},
	        {"kind", 1, NULL, 'k'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	static const char *const kinds[] = {"ustar", "pax"};
	const char *only = NULL, *kind = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		uint32_t *number = c == 'r'   ? &record
		                   : c == 's' ? &per_shard
		                   : c == 't' ? &threads
		                   : c == 'R' ? &readers
		                   : c == 'b' ? &batch
		                              : &rounds;

		switch (c) {
		case 'd':
			folder = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 'k':
			kind = optarg;
			break;
		case 'h':
			usage();
			return 0;
		case '?':
			return 2;
		default:
			*number = (uint32_t)strtoul(optarg, NULL, 10);
		}
	}
	(void)mkdir(folder, 0700);
	for (int k = 0; k < 2; k++) {
		if (kind && strcmp(kind, kinds[k]) != 0)
			continue;
		for (uint32_t i = 0; i < SHARDS; i++)
			shard_write(kinds[k], i);
		if (!only || strcmp(only, "read") == 0)
			row_run(kinds[k], "read", row_read);
		if (!only || strcmp(only, "walk") == 0)
			row_run(kinds[k], "walk", row_walk);
		if (!only || strcmp(only, "names") == 0)
			row_run(kinds[k], "names", row_names);
		if (!only || strcmp(only, "samples") == 0)
			row_run(kinds[k], "samples", row_samples);
		if (!only || strcmp(only, "batches") == 0)
			row_batches(kinds[k]);
	}
	return 0;
}
