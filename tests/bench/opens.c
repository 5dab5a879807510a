/* Opens, reads and closes many files as programs do, and prints what it cost: one line of JSON. It is in C,
 * so that the file system is measured and not an interpreter. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_NBYTES (1 << 20)

struct job {
	char **paths;
	size_t npaths;
	long passes, readers;
	double limit_s; /* 0: none */
};

struct outcome {
	uint64_t nopens, nbytes;
};

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "opens: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_list(struct job *job)
{
	size_t room = 0, size = 0;
	char *line = NULL;
	ssize_t n;

	while ((n = getline(&line, &size, stdin)) > 0) {
		line[n - (line[n - 1] == '\n')] = '\0';
		if (job->npaths == room) {
			room = room ? room * 2 : 1024;
			if (!(job->paths = realloc(job->paths, room * sizeof(*job->paths))))
				die("memory");
		}
		if (!(job->paths[job->npaths++] = strdup(line)))
			die("memory");
	}
	free(line);
}

/* The shuffle of Fisher and Yates, with the random numbers of xorshift64*. */
static void shuffle(struct job *job, uint64_t state)
{
	for (size_t i = job->npaths; i > 1; i--) {
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		size_t j = (size_t)(state * UINT64_C(2685821657736338717) % i);
		char *path = job->paths[j];

		job->paths[j] = job->paths[i - 1];
		job->paths[i - 1] = path;
	}
}

static void read_file(const char *path, char *buffer, struct outcome *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		die(path);
	while ((n = read(fd, buffer, BUFFER_NBYTES)) > 0)
		out->nbytes += (uint64_t)n;
	if (n < 0)
		die(path);
	close(fd);
	out->nopens++;
}

/* Reads every readers-th file, from the given one on. */
static int child(const struct job *job, size_t from, int to)
{
	struct outcome out = {0};
	char *buffer = malloc(BUFFER_NBYTES);
	double end = job->limit_s > 0 ? seconds() + job->limit_s : 0;

	if (!buffer)
		die("memory");
	for (long pass = 0; pass < job->passes; pass++)
		for (size_t i = from; i < job->npaths && (!(end > 0) || seconds() < end);
		        i += (size_t)job->readers)
			read_file(job->paths[i], buffer, &out);
	return write(to, &out, sizeof(out)) == sizeof(out) ? 0 : 1;
}

static void usage(FILE *f)
{
	fputs("Usage: opens [--passes N] [--readers N] [--seed N] [--seconds S] <LIST\n\n"
	      "Opens, reads and closes the files whose paths are the lines of LIST. --readers N processes "
	      "share the\n"
	      "files; --passes N times over; for at most S seconds. The seed chooses the order\n"
	      "(0: as listed). Prints\n"
	      "{\"opens\", \"bytes\", \"seconds\", \"cpu_seconds\"}.\n",
	        f);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"passes", required_argument, NULL, 'p'},
	        {"readers", required_argument, NULL, 'n'}, {"seed", required_argument, NULL, 's'},
	        {"seconds", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0}};
	struct job job = {.passes = 1, .readers = 1};
	struct outcome out, all = {0};
	struct rusage used;
	uint64_t seed = 0;
	int fds[2], opt, failed = 0;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'p')
			job.passes = strtol(optarg, NULL, 10);
		else if (opt == 'n')
			job.readers = strtol(optarg, NULL, 10);
		else if (opt == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (opt == 't')
			job.limit_s = strtod(optarg, NULL);
		else {
			usage(opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	if (optind != argc || job.passes < 1 || job.readers < 1) {
		usage(stderr);
		return 2;
	}
	read_list(&job);
	if (seed)
		shuffle(&job, seed * UINT64_C(0x9e3779b97f4a7c15) | 1);
	if (pipe(fds) < 0)
		die("pipe");
	double start = seconds();
	for (long i = 0; i < job.readers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0)
			_exit(child(&job, (size_t)i, fds[1]));
	}
	close(fds[1]);
	while (read(fds[0], &out, sizeof(out)) == sizeof(out)) {
		all.nopens += out.nopens;
		all.nbytes += out.nbytes;
	}
	for (int status; wait(&status) > 0;)
		failed |= status;
	double elapsed = seconds() - start;
	getrusage(RUSAGE_CHILDREN, &used);
	printf("{\"opens\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
	        (unsigned long long)all.nopens, (unsigned long long)all.nbytes, elapsed,
	        (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	                (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
	return failed ? 1 : 0;
}
