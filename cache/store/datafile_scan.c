#include "store/datafile_scan.h"

#include <errno.h>
#include <stdlib.h>

#include "store/datafile.h"

struct file {
	struct ps_id id;
	uint64_t allocated_nbytes;
};

struct ps_scan {
	pthread_t thread;
	bool running;
	int data_fd, rc;
	struct file *files;
	size_t n, cap;
};

static int take(void *arg, const struct ps_id *id, const struct stat *st)
{
	struct ps_scan *scan = arg;

	if (scan->n == scan->cap) {
		size_t cap = scan->cap ? 2 * scan->cap : 1024;
		struct file *files = realloc(scan->files, cap * sizeof *files);

		if (!files)
			return -ENOMEM;
		scan->files = files;
		scan->cap = cap;
	}
	scan->files[scan->n++] = (struct file){.id = *id, .allocated_nbytes = (uint64_t)st->st_blocks * 512};
	return 0;
}

static void *scan_main(void *arg)
{
	struct ps_scan *scan = arg;

	scan->rc = ps_datafile_each(scan->data_fd, take, scan);
	return NULL;
}

static void finish(struct ps_scan *scan)
{
	if (scan->running)
		pthread_join(scan->thread, NULL);
	scan->running = false;
}

struct ps_scan *ps_scan_start(int data_fd)
{
	struct ps_scan *scan = calloc(1, sizeof *scan);

	if (!scan)
		return NULL;
	scan->data_fd = data_fd;
	scan->running = pthread_create(&scan->thread, NULL, scan_main, scan) == 0;
	if (!scan->running)
		scan_main(scan);
	return scan;
}

int ps_scan_each(struct ps_scan *scan,
        int (*fn)(void *arg, const struct ps_id *id, uint64_t allocated_nbytes), void *arg)
{
	finish(scan);
	int rc = scan->rc;
	for (size_t i = 0; rc == 0 && i < scan->n; i++)
		rc = fn(arg, &scan->files[i].id, scan->files[i].allocated_nbytes);
	return rc;
}

void ps_scan_free(struct ps_scan *scan)
{
	if (!scan)
		return;
	finish(scan);
	free(scan->files);
	free(scan);
}
