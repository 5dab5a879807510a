#include "web_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(cond)                                                                                       \
	do {                                                                                              \
		if (!(cond)) {                                                                            \
			fprintf(stderr, "# %s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			abort();                                                                          \
		}                                                                                         \
	} while (0)

uint8_t ps_web_server_byte(uint64_t i)
{
	uint64_t x = (i / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)((x ^ x >> 29) >> (8 * (i % 8)));
}

static const char *modules_dir(void)
{
	static const char *const dirs[] = {"/usr/lib/nginx/modules", "/usr/lib64/nginx/modules"};
	char path[128];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/ngx_http_lua_module.so", dirs[i]);
		if (access(path, R_OK) == 0)
			return dirs[i];
	}
	return NULL;
}

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	close(fd);
	return ntohs(a.sin_port);
}

static bool can_connect(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	        .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

	close(fd);
	return ok;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
	FILE *f = fopen(path, "we");

	CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static char *replace_all(char *text, const char *what, const char *with)
{
	char *at;

	while ((at = strstr(text, what))) {
		char *more = NULL;

		*at = '\0';
		CHECK(asprintf(&more, "%s%s%s", text, with, at + strlen(what)) >= 0);
		free(text);
		text = more;
	}
	return text;
}

static void write_conf(const struct ps_web_server *s)
{
	const char *top = getenv("top_srcdir");
	char path[4096], number[16], *text = calloc(1, 65536);

	snprintf(path, sizeof(path), "%s/tests/cache/faults.conf.in", top ? top : ".");
	FILE *f = fopen(path, "re");
	CHECK(f && text);
	CHECK(fread(text, 1, 65535, f) > 0);
	fclose(f);
	text = replace_all(text, "@DIR@", s->dir);
	text = replace_all(text, "@MODULES@", modules_dir());
	snprintf(number, sizeof(number), "%d", s->port);
	text = replace_all(text, "@PORT@", number);
	snprintf(number, sizeof(number), "%d", s->tls_port);
	text = replace_all(text, "@TLSPORT@", number);
	snprintf(path, sizeof(path), "%s/faults.conf", s->dir);
	write_file(path, text, strlen(text));
	free(text);
}

/* Makes a CA, a certificate that the CA signed for localhost only, and an htpasswd file. */
static bool make_certificates(const struct ps_web_server *s)
{
	char command[2048];

	snprintf(command, sizeof(command),
	        "cd %s && exec 2>openssl.log && "
	        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj "
	        "/CN=test-ca && "
	        "openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost "
	        "&& "
	        "printf 'subjectAltName=DNS:localhost' >ext && "
	        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "
	        "ext "
	        "-out server.pem && printf 'user:%%s\\n' \"$(openssl passwd -apr1 pass:word)\" >htpasswd && "
	        "chmod 755 . && chmod 644 server.key htpasswd",
	        s->dir);
	return system(command) == 0;
}

static void spawn(struct ps_web_server *s)
{
	char conf[128];

	snprintf(conf, sizeof(conf), "%s/faults.conf", s->dir);
	s->pid = fork();
	CHECK(s->pid >= 0);
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (!freopen("/dev/null", "we", stderr))
			_exit(127);
		setenv("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", 1);
		unsetenv("LD_PRELOAD");
		execlp("nginx", "nginx", "-p", s->dir, "-c", conf, (char *)NULL);
		_exit(127);
	}
}

bool ps_web_server_start(struct ps_web_server *s)
{
	char path[128];
	uint8_t *object = malloc(PS_TEST_OBJECT_NBYTES);

	memset(s, 0, sizeof(*s));
	CHECK(object);
	if (!modules_dir()) {
		free(object);
		return false;
	}
	snprintf(s->dir, sizeof(s->dir), "/tmp/penstock-web-XXXXXX");
	CHECK(mkdtemp(s->dir));
	for (const char *const *d = (const char *const[]){"www", "tmp", "logs", NULL}; *d; d++) {
		snprintf(path, sizeof(path), "%s/%s", s->dir, *d);
		CHECK(mkdir(path, 0755) == 0);
	}
	for (size_t i = 0; i < PS_TEST_OBJECT_NBYTES; i++)
		object[i] = ps_web_server_byte(i);
	ps_web_server_put(s, "object.bin", object, PS_TEST_OBJECT_NBYTES);
	free(object);
	s->port = free_port();
	s->tls_port = free_port();
	snprintf(s->http, sizeof(s->http), "http://127.0.0.1:%d", s->port);
	snprintf(s->https, sizeof(s->https), "https://localhost:%d", s->tls_port);
	snprintf(s->ca, sizeof(s->ca), "%s/ca.pem", s->dir);
	if (!make_certificates(s)) {
		ps_web_server_stop(s);
		return false;
	}
	write_conf(s);
	spawn(s);
	for (int i = 0; i < 200 && !can_connect(s->port); i++) {
		if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
			s->pid = 0;
			ps_web_server_stop(s);
			return false;
		}
		usleep(50000);
	}
	return true;
}

void ps_web_server_stop(struct ps_web_server *s)
{
	char command[128];

	if (s->pid > 0) {
		kill(s->pid, SIGTERM);
		waitpid(s->pid, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	if (strncmp(s->dir, "/tmp/penstock-web-", 18) == 0 && system(command) != 0)
		fprintf(stderr, "# could not remove %s\n", s->dir);
}

void ps_web_server_put(struct ps_web_server *s, const char *name, const void *bytes, size_t n)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/www/%s", s->dir, name);
	for (char *slash = path + strlen(s->dir) + 5; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	write_file(path, bytes, n);
}

int ps_web_server_seen(const struct ps_web_server *s, const char *a, const char *b)
{
	char path[128], line[4096];
	int n = 0;

	snprintf(path, sizeof(path), "%s/access.log", s->dir);
	/* nginx logs after it has answered. */
	usleep(50000);
	FILE *f = fopen(path, "re");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, a) && strstr(line, b);
	fclose(f);
	return n;
}
