/* main() of a fuzz target that was not built by --enable-fuzzing: replays inputs, so that `make check` runs
 * the saved corpus with any compiler and under any sanitizer.
 *
 *   NAME_fuzz [FILE|FOLDER...]     default: $top_srcdir/tests/fuzz/corpus/NAME
 *
 * Prints TAP, a line for each input. An input that crashes ends the program, and thus the test. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUTS_MAX 100000 /* further inputs are ignored; reported for folders only */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static char **inputs;
static int ninputs;

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add(const char *folder, const char *name)
{
	size_t cap = strlen(folder) + strlen(name) + 2;
	char *path = malloc(cap);
	if (!path)
		return -ENOMEM;
	snprintf(path, cap, "%s%s%s", folder, *folder ? "/" : "", name);
	inputs[ninputs++] = path;
	return 0;
}

static int collect(const char *path)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return ninputs < INPUTS_MAX ? add("", path) : 0;
	DIR *dir = opendir(path);
	if (!dir)
		return -errno;
	int rc = 0, begin = ninputs;
	for (struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL;) {
		if (e->d_name[0] == '.')
			continue;
		if (ninputs == INPUTS_MAX) {
			printf("# %s: only the first %d inputs are replayed\n", path, INPUTS_MAX);
			break;
		}
		rc = add(path, e->d_name);
	}
	closedir(dir);
	qsort(inputs + begin, (size_t)(ninputs - begin), sizeof(*inputs), by_name);
	return rc;
}

/* The whole file in memory of exactly its size: a sanitizer then sees a read past the end. */
static int replay(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	size_t nbytes = (size_t)st.st_size, got = 0;
	uint8_t *data = malloc(nbytes ? nbytes : 1);
	while (data && got < nbytes) {
		ssize_t n = read(fd, data + got, nbytes - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	close(fd);
	int rc = !data ? -ENOMEM : got < nbytes ? -EIO : 0;
	if (rc == 0)
		LLVMFuzzerTestOneInput(data, nbytes);
	free(data);
	return rc;
}

/* "/build/tests/fuzz/lt-tar_fuzz" means the corpus "tar". */
static int default_corpus(const char *argv0, char *ret_path, size_t cap)
{
	const char *top = getenv("top_srcdir"), *slash = strrchr(argv0, '/');
	const char *name = slash ? slash + 1 : argv0;
	if (!strncmp(name, "lt-", 3))
		name += 3;
	const char *end = strstr(name, "_fuzz");
	int n = snprintf(ret_path, cap, "%s/tests/fuzz/corpus/%.*s", top ? top : ".",
	        end ? (int)(end - name) : (int)strlen(name), name);
	return n > 0 && (size_t)n < cap ? 0 : -ENAMETOOLONG;
}

int main(int argc, char **argv)
{
	char corpus[4096];
	int failed = 0, rc = 0;
	inputs = calloc(INPUTS_MAX, sizeof(*inputs));
	if (!inputs)
		return 1;
	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	if (argc < 2 && (rc = default_corpus(argv[0], corpus, sizeof(corpus))) == 0)
		rc = collect(corpus);
	for (int i = 1; rc == 0 && i < argc; i++)
		rc = collect(argv[i]);
	if (rc < 0) {
		printf("Bail out! %s: %s\n", argc < 2 ? corpus : "inputs", strerror(-rc));
		return 1;
	}
	printf("1..%d\n", ninputs);
	for (int i = 0; i < ninputs; i++) {
		const char *slash = strrchr(inputs[i], '/');
		fflush(stdout); /* so that a crash shows after which input it came */
		rc = replay(inputs[i]);
		printf("%s %d - %s%s%s\n", rc < 0 ? "not ok" : "ok", i + 1, slash ? slash + 1 : inputs[i],
		        rc < 0 ? ": " : "", rc < 0 ? strerror(-rc) : "");
		failed += rc < 0;
		free(inputs[i]);
	}
	free(inputs);
	return failed > 0;
}
