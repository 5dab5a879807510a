#include "cli/busy.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Does the link at `path` below dirfd lead into the mount? */
static bool leads_into(int dirfd, const char *path, const struct ps_mount_info *mount)
{
	struct statx stx;

	if (statx(dirfd, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_MNT_ID, &stx) < 0)
		return false;
	if (stx.stx_dev_major != mount->dev_major || stx.stx_dev_minor != mount->dev_minor)
		return false;
	/* The same device mounted a second time, or in another namespace, does not keep this mount busy. */
	return !(stx.stx_mask & STATX_MNT_ID) || stx.stx_mnt_id == mount->mnt_id;
}

static bool has_open(int proc, const struct ps_mount_info *mount)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool found = false;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && (e = readdir(d)))
		found = e->d_name[0] != '.' && leads_into(fd, e->d_name, mount);
	closedir(d);
	return found;
}

static bool has_mapped(int proc, const struct ps_mount_info *mount)
{
	ps_autofree char *line = NULL;
	size_t cap = 0;
	bool found = false;
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!f) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && getline(&line, &cap, f) > 0) {
		unsigned major, minor;

		found = sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2 && major == mount->dev_major &&
		        minor == mount->dev_minor;
	}
	fclose(f);
	return found;
}

static const char *how_it_holds(int proc, const struct ps_mount_info *mount)
{
	static const struct {
		const char *link, *how;
	} links[] = {{"cwd", "working folder"}, {"root", "root folder"}, {"exe", "program"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(links); i++)
		if (leads_into(proc, links[i].link, mount))
			return links[i].how;
	if (has_open(proc, mount))
		return "open file";
	return has_mapped(proc, mount) ? "mapped file" : NULL;
}

static void read_comm(int proc, char comm[static 32])
{
	ps_autofd int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, comm, 31) : 0;

	comm[n > 0 ? n : 0] = '\0';
	comm[strcspn(comm, "\n")] = '\0';
}

size_t ps_holders_find(const struct ps_mount_info *mount, struct ps_holder holders[static PS_HOLDERS_MAX])
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	size_t n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d))) {
		if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == (int)getpid())
			continue;
		ps_autofd int proc = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		const char *how = proc >= 0 ? how_it_holds(proc, mount) : NULL;

		if (!how)
			continue;
		if (n < PS_HOLDERS_MAX) {
			holders[n] = (struct ps_holder){.pid = (pid_t)atoi(e->d_name), .how = how};
			read_comm(proc, holders[n].comm);
		}
		n++;
	}
	closedir(d);
	return n;
}
