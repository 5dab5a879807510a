/* Reads files as programs do and prints what the reads cost: one line of JSON. C, so that small reads
 * measure the mount and not an interpreter. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct job {
	char **paths;
	int npaths, first, step; /* of the files, `first` and each `step`-th after it */
	size_t block;
	long random; /* number of reads at random places of each file; 0: the whole file, in order */
	uint64_t seed;
	bool map;         /* the file is mapped, and a byte of each page read */
	long parts, part; /* of as many equal parts of a mapped file, this one is read */
};

struct outcome {
	uint64_t nbytes;
	double first_byte_s; /* from the first open */
};

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *path)
{
	fprintf(stderr, "reader: %s: %s\n", path, strerror(errno));
	_exit(1);
}

/* xorshift64* */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

static void read_file(
        const struct job *job, const char *path, char *buffer, double start, struct outcome *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t state = job->seed | 1;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	uint64_t places = (uint64_t)st.st_size / job->block;
	for (long i = 0; !job->random || i < job->random; i++) {
		if (job->random) {
			uint64_t place = places ? next_random(&state) % places : 0;

			n = pread(fd, buffer, job->block, (off_t)(place * job->block));
		} else {
			n = read(fd, buffer, job->block);
		}
		if (n < 0)
			die(path);
		if (out->first_byte_s < 0)
			out->first_byte_s = seconds() - start;
		if (n == 0)
			break;
		out->nbytes += (uint64_t)n;
	}
	if (!job->random && out->nbytes < (uint64_t)st.st_size) {
		fprintf(stderr, "reader: %s: ended too soon\n", path);
		_exit(1);
	}
	close(fd);
}

/* Reads a byte of each page of a part of the file, or of pages at random places. */
static void map_file(const struct job *job, const char *path, double start, struct outcome *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	volatile unsigned char sink = 0;
	uint64_t state = job->seed | 1;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	size_t nbytes = (size_t)st.st_size;
	size_t part = (nbytes / (size_t)job->parts + page - 1) / page * page;
	size_t from = part * (size_t)job->part;
	size_t end = from + part < nbytes ? from + part : nbytes;
	const unsigned char *data = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);

	if (data == MAP_FAILED)
		die(path);
	if (job->random && madvise((void *)(uintptr_t)data, nbytes, MADV_RANDOM) < 0)
		die(path);
	for (size_t at = from, n = 0; job->random ? n < (size_t)job->random : at < end; at += page, n++) {
		if (job->random)
			at = from + next_random(&state) % ((end - from) / page) * page;
		sink = (unsigned char)(sink + data[at]);
		if (out->first_byte_s < 0)
			out->first_byte_s = seconds() - start;
		out->nbytes += page;
	}
	munmap((void *)(uintptr_t)data, nbytes);
	close(fd);
}

static int child(const struct job *job, int to)
{
	struct outcome out = {.first_byte_s = -1};
	char *buffer = aligned_alloc(4096, (job->block + 4095) / 4096 * 4096);
	double start = seconds();

	if (!buffer)
		die("memory");
	for (int i = job->first; i < job->npaths; i += job->step) {
		if (job->map)
			map_file(job, job->paths[i], start, &out);
		else
			read_file(job, job->paths[i], buffer, start, &out);
	}
	return write(to, &out, sizeof(out)) == sizeof(out) ? 0 : 1;
}

static void usage(FILE *f)
{
	fputs("Usage: reader [--block BYTES] [--readers N] [--random COUNT] [--seed N] [--map] [--parts N] "
	      "[--deal] FILE...\n\n"
	      "N processes read all files from the beginning to the end, or at COUNT random places of each "
	      "(every\n"
	      "reader at others). --map: they map the files and read a byte of each page, or of COUNT\n"
	      "pages at random places, and the kernel is told so (MADV_RANDOM); --parts: of N\n"
	      "equal parts of each mapped file, process I reads part I modulo N. --deal: each file is read\n"
	      "by one process only. Prints {\"bytes\", \"seconds\", \"cpu_seconds\", "
	      "\"first_byte_seconds\"}.\n",
	        f);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"block", required_argument, NULL, 'b'},
	        {"readers", required_argument, NULL, 'n'}, {"random", required_argument, NULL, 'r'},
	        {"seed", required_argument, NULL, 's'}, {"map", no_argument, NULL, 'm'},
	        {"parts", required_argument, NULL, 'p'}, {"deal", no_argument, NULL, 'd'},
	        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct job job = {.block = 1 << 20, .seed = 1, .parts = 1, .step = 1};
	struct outcome out, all = {.first_byte_s = -1};
	long readers = 1;
	bool deal = false;
	int fds[2], opt, failed = 0;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'b')
			job.block = strtoul(optarg, NULL, 10);
		else if (opt == 'n')
			readers = strtol(optarg, NULL, 10);
		else if (opt == 'r')
			job.random = strtol(optarg, NULL, 10);
		else if (opt == 's')
			job.seed = strtoull(optarg, NULL, 10);
		else if (opt == 'm')
			job.map = true;
		else if (opt == 'p')
			job.parts = strtol(optarg, NULL, 10);
		else if (opt == 'd')
			deal = true;
		else {
			usage(opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	job.paths = argv + optind;
	job.npaths = argc - optind;
	if (!job.npaths || !job.block || readers < 1 || job.parts < 1) {
		usage(stderr);
		return 2;
	}
	if (pipe(fds) < 0)
		die("pipe");
	double start = seconds();
	for (long i = 0; i < readers; i++, job.seed += 0x9e3779b97f4a7c15) {
		job.part = i % job.parts;
		job.first = deal ? (int)i : 0;
		job.step = deal ? (int)readers : 1;
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0)
			_exit(child(&job, fds[1]));
	}
	close(fds[1]);
	while (read(fds[0], &out, sizeof(out)) == sizeof(out)) {
		all.nbytes += out.nbytes;
		if (all.first_byte_s < 0 || out.first_byte_s < all.first_byte_s)
			all.first_byte_s = out.first_byte_s;
	}
	for (int status; wait(&status) > 0;)
		failed |= status;
	double elapsed = seconds() - start;
	struct rusage usage_;

	getrusage(RUSAGE_CHILDREN, &usage_);
	printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"first_byte_seconds\": %.6f}\n",
	        (unsigned long long)all.nbytes, elapsed,
	        (double)(usage_.ru_utime.tv_sec + usage_.ru_stime.tv_sec) +
	                (double)(usage_.ru_utime.tv_usec + usage_.ru_stime.tv_usec) / 1e6,
	        all.first_byte_s);
	return failed ? 1 : 0;
}
