/* Runs nginx for a test program with tests/cache/faults.conf.in, in a private directory and on free ports.
 * nginx ends with the program. Failures other than those of ps_web_server_start() abort the program. */
#ifndef PS_TEST_WEB_SERVER_H
#define PS_TEST_WEB_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_TEST_OBJECT_NBYTES 3000000 /* www/object.bin */

struct ps_web_server {
	char dir[64];
	int port, tls_port;
	int pid;
	char http[64], https[64]; /* "http://127.0.0.1:PORT", "https://localhost:PORT" */
	char ca[96];              /* PEM of the CA that signed the server's certificate */
};

/* False: nginx, its lua module or openssl is not installed or fails. */
bool ps_web_server_start(struct ps_web_server *s);
void ps_web_server_stop(struct ps_web_server *s);

/* Writes www/NAME. */
void ps_web_server_put(struct ps_web_server *s, const char *name, const void *bytes, size_t n);
/* The number of lines of the access log that contain both a and b. */
int ps_web_server_seen(const struct ps_web_server *s, const char *a, const char *b);

/* Byte i of www/object.bin. */
uint8_t ps_web_server_byte(uint64_t i);

#endif
