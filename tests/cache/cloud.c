#include "cloud.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond)                                                                                       \
	do {                                                                                              \
		if (!(cond)) {                                                                            \
			fprintf(stderr, "# %s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			abort();                                                                          \
		}                                                                                         \
	} while (0)

#define PYTHON "/usr/bin/python3"

static void path_of(const struct ps_cloud *cloud, const char *name, char path[static 256])
{
	CHECK(snprintf(path, 256, "%s/%s", cloud->dir, name) < 256);
}

static int read_port(const struct ps_cloud *cloud)
{
	char path[256];
	int port = 0;

	path_of(cloud, "port", path);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	CHECK(fscanf(f, "%d", &port) == 1);
	fclose(f);
	return port;
}

bool ps_cloud_start(struct ps_cloud *cloud)
{
	const char *top = getenv("top_srcdir");
	char script[4096];

	if (access(PYTHON, X_OK) != 0)
		return false;
	strcpy(cloud->dir, "/tmp/penstock-cloud-XXXXXX");
	CHECK(mkdtemp(cloud->dir));
	snprintf(script, sizeof(script), "%s/tests/cloud/cloud_server.py", top ? top : ".");
	cloud->pid = fork();
	CHECK(cloud->pid >= 0);
	if (cloud->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(PYTHON, PYTHON, "-B", script, cloud->dir, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 6000 && !(cloud->port = read_port(cloud)); i++) {
		struct timespec nap = {.tv_nsec = 10000000};

		CHECK(waitpid(cloud->pid, NULL, WNOHANG) == 0);
		nanosleep(&nap, NULL);
	}
	CHECK(cloud->port);
	snprintf(cloud->http, sizeof(cloud->http), "http://127.0.0.1:%d", cloud->port);
	return true;
}

void ps_cloud_stop(struct ps_cloud *cloud)
{
	char command[128];

	kill(cloud->pid, SIGKILL);
	waitpid(cloud->pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", cloud->dir);
	CHECK(system(command) == 0);
}

void ps_cloud_put(const struct ps_cloud *cloud, const char *name, const char *text)
{
	char path[256], next[256];

	path_of(cloud, name, path);
	if (!text) {
		CHECK(unlink(path) == 0 || errno == ENOENT);
		return;
	}
	path_of(cloud, "next", next);
	FILE *f = fopen(next, "we");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
	CHECK(rename(next, path) == 0);
}

int ps_cloud_seen(const struct ps_cloud *cloud, const char *a, const char *b)
{
	char path[256], line[4096];
	int n = 0;

	path_of(cloud, "log", path);
	FILE *f = fopen(path, "re");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, a) && strstr(line, b);
	fclose(f);
	return n;
}
