#include "daemon/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "store/store_dir.h"

static const char name[] = "control";
#define BACKLOG 128

/* The socket's address by way of an open folder, since paths may be longer than an address. */
static int address(const char *cache_dir, int *ret_dir_fd, struct sockaddr_un *ret, struct ps_error *err)
{
	ps_autofree char *path = NULL;
	int fd;
	int rc = ps_store_dir_find(cache_dir, false, &fd, &path, err);

	if (rc < 0)
		return rc;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", fd, name);
	*ret_dir_fd = fd;
	return 0;
}

int ps_control_listen(const char *cache_dir, int *ret_fd, struct ps_error *err)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;
	int rc = address(cache_dir, &dir, &addr, err);

	if (rc < 0)
		return rc;
	ps_autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return ps_error_set(err, errno, "socket: %s", strerror(errno));
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return ps_error_set(err, errno, "cache %s: %s: %s", cache_dir, name, strerror(errno));
	mode_t old = umask(0177);
	rc = bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(fd, BACKLOG) < 0 ? -errno : 0;
	umask(old);
	if (rc < 0)
		return ps_error_set(err, -rc, "cache %s: %s: %s", cache_dir, name, strerror(-rc));
	*ret_fd = ps_steal_fd(&fd);
	return 0;
}

void ps_control_remove(const char *cache_dir)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;

	if (address(cache_dir, &dir, &addr, NULL) == 0)
		unlinkat(dir, name, 0);
}

bool ps_control_trusts(int sock, struct ucred *ret_peer)
{
	struct ucred peer;
	socklen_t len = sizeof peer;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	if (ret_peer)
		*ret_peer = peer;
	return peer.uid == 0 || peer.uid == geteuid();
}

int ps_control_connect(const char *cache_dir, int *ret_fd, pid_t *ret_pid, struct ps_error *err)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;
	struct ucred peer;
	int rc = address(cache_dir, &dir, &addr, err);

	if (rc == -ENOENT || rc == -ENOTDIR) {
		*err = (struct ps_error){0};
		return -ENOENT; /* whoever makes the cache will tell */
	}
	if (rc == -EACCES)
		return ps_error_set(err, EACCES,
		        "the cache %s belongs to another user; choose another --cache-dir, or ask root to "
		        "mount",
		        cache_dir);
	if (rc < 0)
		return rc;
	ps_autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return ps_error_set(err, errno, "socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return -ENOENT;
		if (errno == EACCES)
			return ps_error_set(err, EACCES,
			        "the cache %s is served for another user; choose another --cache-dir, or ask "
			        "root to "
			        "mount",
			        cache_dir);
		return ps_error_set(err, errno, "cache %s: %s: %s", cache_dir, name, strerror(errno));
	}
	if (!ps_control_trusts(fd, &peer))
		return ps_error_set(err, EACCES,
		        "the cache %s is served by a process of another user (uid %u); choose another "
		        "--cache-dir",
		        cache_dir, (unsigned)peer.uid);
	*ret_fd = ps_steal_fd(&fd);
	*ret_pid = peer.pid;
	return 0;
}
