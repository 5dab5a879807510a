/* Runs tests/cloud/cloud_server.py for a test program, in a private directory and on a free port. The server
 * ends with the program. For tests only: any failure here aborts the program. */
#ifndef PS_TEST_CLOUD_H
#define PS_TEST_CLOUD_H

#include <stdbool.h>

struct ps_cloud {
	char dir[64];
	int port, pid;
	char http[64]; /* "http://127.0.0.1:PORT" */
};

/* False: there is no python3. */
bool ps_cloud_start(struct ps_cloud *cloud);
void ps_cloud_stop(struct ps_cloud *cloud);

/* Replaces the file DIR/NAME atomically; text NULL: removes the file. */
void ps_cloud_put(const struct ps_cloud *cloud, const char *name, const char *text);
/* The number of log lines that contain both a and b. */
int ps_cloud_seen(const struct ps_cloud *cloud, const char *a, const char *b);

#endif
