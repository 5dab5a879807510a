/* A program that reads from a mount while signals reach it.
 *
 *   signal_reader storm ORIGINAL FILE HOW NBYTES USEC   reads FILE once, with a handled signal every USEC
 *                                                       microseconds, and prints how many reads failed with
 *                                                       EINTR, failed otherwise, ended short, were wrong
 *   signal_reader stuck FILE HOW [exit|exec]            makes one read; SIGUSR1 is handled. At SIGUSR2 another
 *                                                       thread ends the process, or has it run true(1)
 *   signal_reader names FOLDER/NAME...                  stat() and open() of each name under SIGALRM every ms;
 *                                                       prints the number of calls that failed with EINTR
 *
 * HOW: buffered; direct (O_DIRECT); random (without read-ahead); mapped, mapped-random: through a mapping.
 * `stuck` prints the number of bytes that it got, or the error. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static void handle(int signo)
{
	(void)signo;
}

static void handle_signal(int signo)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};

	sigaction(signo, &action, NULL);
}

static void alarm_every(long usec)
{
	struct itimerval timer = {{0, usec}, {0, usec}};

	handle_signal(SIGALRM);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static int open_file(const char *path, const char *how)
{
	int fd = open(path, O_RDONLY | (strcmp(how, "direct") == 0 ? O_DIRECT : 0));

	if (fd < 0) {
		perror(path);
		exit(1);
	}
	if (strcmp(how, "random") == 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	return fd;
}

static void *map(int fd, size_t nbytes)
{
	void *bytes = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);

	if (bytes == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return bytes;
}

/* Aligned for O_DIRECT; lives as long as the process. */
static void *buffer(size_t nbytes)
{
	void *bytes = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (bytes == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return bytes;
}

static int storm(char **arg)
{
	int original = open_file(arg[0], "buffered"), fd = open_file(arg[1], arg[2]);
	size_t most = strtoul(arg[3], NULL, 10), size = (size_t)lseek(original, 0, SEEK_END);
	const char *expected = map(original, size);
	char *bytes = buffer(most);
	long nreads = 0, neintr = 0, nerrors = 0, nshort = 0, nwrong = 0;

	alarm_every(strtol(arg[4], NULL, 10));
	for (size_t at = 0; at < size;) {
		size_t want = size - at < most ? size - at : most;
		ssize_t n = pread(fd, bytes, want, (off_t)at);

		nreads++;
		if (n <= 0) {
			neintr += n < 0 && errno == EINTR;
			nerrors += !(n < 0 && errno == EINTR);
			if (nerrors + neintr > 100000)
				break;
			continue;
		}
		nshort += (size_t)n != want;
		nwrong += memcmp(bytes, expected + at, (size_t)n) != 0;
		at += (size_t)n;
		if (at % 4096 && at < size)
			at -= at % 4096; /* O_DIRECT */
	}
	printf("%ld EINTR, %ld other errors, %ld short, %ld wrong, %s\n", neintr, nerrors, nshort, nwrong,
	        nreads * (long)most >= (long)size ? "all read" : "not all read");
	return 0;
}

#define AT (8 << 20) /* where a stuck read begins */

static const char *at_usr2;

static void *end_at_usr2(void *arg)
{
	sigset_t set;
	int signo;

	(void)arg;
	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigwait(&set, &signo);
	if (strcmp(at_usr2, "exec") == 0)
		execlp("true", "true", NULL);
	_exit(0);
}

static int stuck(char **arg)
{
	int fd = open_file(arg[0], arg[1]);
	char *bytes = buffer(1 << 20);
	ssize_t n = 1;

	handle_signal(SIGUSR1);
	signal(SIGQUIT, SIG_DFL); /* a shell has its background programs ignore it */
	if (arg[2]) {
		pthread_t thread;
		sigset_t set;

		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		at_usr2 = arg[2];
		pthread_create(&thread, NULL, end_at_usr2, NULL);
	}
	if (strncmp(arg[1], "mapped", 6) == 0) {
		char *mapping = map(fd, AT + 1);

		if (strcmp(arg[1], "mapped-random") == 0)
			madvise(mapping, AT + 1, MADV_RANDOM);
		bytes[0] = *(volatile char *)(mapping + AT);
	} else {
		n = pread(fd, bytes, 1 << 20, AT);
	}
	if (n < 0)
		printf("%s\n", strerror(errno));
	else
		printf("%zd\n", n);
	return 0;
}

static int names(char **arg)
{
	long neintr = 0;

	alarm_every(1000);
	for (; *arg; arg++) {
		struct stat st;
		int fd;

		while (stat(*arg, &st) < 0 && errno == EINTR)
			neintr++;
		while ((fd = open(*arg, O_RDONLY)) < 0 && errno == EINTR)
			neintr++;
		if (fd >= 0)
			close(fd);
		else
			printf("%s: %s\n", *arg, strerror(errno));
	}
	printf("%ld EINTR\n", neintr);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 7 && strcmp(argv[1], "storm") == 0)
		return storm(argv + 2);
	if (argc >= 4 && strcmp(argv[1], "stuck") == 0)
		return stuck(argv + 2);
	if (argc >= 3 && strcmp(argv[1], "names") == 0)
		return names(argv + 2);
	return 2;
}
