#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "base/cleanup.h"
#include "base/log.h"

/* In memory ---------------------------------------------------------------------------------------------- */

#define NOEXEC_SEAL 0x0008U /* MFD_NOEXEC_SEAL, which headers before Linux 6.3 lack */

int ps_secret_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void ps_secret_free(char *secret)
{
	if (secret)
		OPENSSL_cleanse(secret, strlen(secret));
	free(secret);
}

void ps_cleanup_secret(char **secret)
{
	ps_secret_free(*secret);
}

/* Files of secrets --------------------------------------------------------------------------------------- */

static int fail(const char *path, const struct ps_secret_file *kind, int errnum, const char *why,
        struct ps_error *err)
{
	return ps_error_set(
	        err, errnum, "%s%s%s: %s", kind->what ? kind->what : "", kind->what ? " " : "", path, why);
}

/* True once for each file and mode, because credentials are read repeatedly. False if the table is full. */
static bool is_news(const struct stat *st)
{
	enum { MAX = 32 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		dev_t dev;
		ino_t ino;
		mode_t mode;
	} seen[MAX];
	static unsigned nseen;

	PS_LOCK_SCOPE(&lock);
	for (unsigned i = 0; i < nseen; i++)
		if (seen[i].dev == st->st_dev && seen[i].ino == st->st_ino && seen[i].mode == st->st_mode)
			return false;
	if (nseen == MAX)
		return false;
	seen[nseen].dev = st->st_dev;
	seen[nseen].ino = st->st_ino;
	seen[nseen++].mode = st->st_mode;
	return true;
}

static void warn(const char *path, const char *what, const struct stat *st)
{
	if ((st->st_mode & (S_IROTH | S_IWOTH)) && is_news(st))
		ps_log_warning("%s%s%s: every user of this machine may %s it: chmod o-rwx ends that",
		        what ? what : "", what ? " " : "", path, st->st_mode & S_IROTH ? "read" : "write");
}

void ps_secret_file_warn(const char *path, const char *what)
{
	struct stat st;

	if (stat(path, &st) == 0)
		warn(path, what, &st);
}

/* Reads up to max bytes. The buffer has its full size from the start: growing it would leave copies of the
 * secret in memory. */
static ssize_t read_all(int fd, char *text, size_t max)
{
	size_t n = 0;
	ssize_t got = 0;

	while (n < max && ((got = read(fd, text + n, max - n)) > 0 || (got < 0 && errno == EINTR)))
		n += got > 0 ? (size_t)got : 0;
	return got < 0 ? -errno : (ssize_t)n;
}

int ps_secret_file_read(const char *path, const struct ps_secret_file *kind, char **ret, size_t *ret_nbytes,
        struct ps_error *err)
{
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (kind->may_be_pipe ? 0 : O_NONBLOCK));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(path, kind, errno, strerror(errno), err);
	if (!S_ISREG(st.st_mode) && !(kind->may_be_pipe && S_ISFIFO(st.st_mode)))
		return fail(path, kind, EINVAL, "not a regular file", err);
	if (S_ISREG(st.st_mode) && !kind->is_shared)
		warn(path, kind->what, &st);
	int rc = 0;
	size_t room = kind->max_nbytes + 2; /* one byte to detect a longer file, and the NUL */
	char *text = malloc(room);
	if (!text)
		return ps_no_memory(err);
	ssize_t n = read_all(fd, text, room - 1);
	if (n < 0) {
		rc = fail(path, kind, (int)-n, strerror((int)-n), err);
	} else if ((size_t)n > kind->max_nbytes) {
		char why[64];

		snprintf(why, sizeof(why), "longer than %zu KiB", kind->max_nbytes / 1024);
		rc = fail(path, kind, EFBIG, why, err);
	} else if (memchr(text, '\0', (size_t)n)) {
		rc = fail(path, kind, EINVAL, "not text: there is a NUL byte in it", err);
	}
	if (rc) {
		OPENSSL_cleanse(text, room);
		free(text);
		return rc;
	}
	text[n] = '\0';
	*ret = text;
	if (ret_nbytes)
		*ret_nbytes = (size_t)n;
	return 0;
}

int ps_secret_file_line(const char *path, const struct ps_secret_file *kind, char **ret, struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	int rc = ps_secret_file_read(path, kind, &text, NULL, err);

	if (rc)
		return rc;
	*ret = strndup(text, strcspn(text, "\r\n"));
	return *ret ? 0 : ps_no_memory(err);
}

int ps_secret_token(const char *text, char **ret)
{
	text += strspn(text, " \t\r\n\v\f");
	size_t n = strlen(text);

	while (n && strchr(" \t\r\n\v\f", text[n - 1]))
		n--;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 0x7f)
			return -EINVAL;
	char *token = n ? strndup(text, n) : NULL;
	if (n && !token)
		return -ENOMEM;
	*ret = token;
	return 0;
}

/* Environments ------------------------------------------------------------------------------------------- */

const char *ps_env_get(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	const char *value = NULL;

	if (!env)
		value = getenv(name);
	for (; !value && env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			value = *env + n + 1;
	return value && *value ? value : NULL;
}
