/* tests/cloud/cloud_server.py for a test program: in a private directory, on a free port, gone with the
 * program. For tests only: what fails here aborts the program. */
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

/* Writes the file DIR/NAME, whole at once. text NULL: removes it. */
void ps_cloud_put(const struct ps_cloud *cloud, const char *name, const char *text);
/* How many lines of the log contain all of a and b. */
int ps_cloud_seen(const struct ps_cloud *cloud, const char *a, const char *b);

#endif
