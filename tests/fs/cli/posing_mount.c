/* A FUSE server that poses as penstock, as any user can: its .penstock/stats has the text of a file, or
 * (STATS "hang") opening it never returns. MOUNTPOINT OPTIONS STATS. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 16];
static size_t nbytes;
static int hangs;

static int get_attr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	memset(st, 0, sizeof(*st));
	st->st_nlink = 1;
	st->st_mode = S_IFDIR | 0755;
	if (strcmp(path, "/") == 0 || strcmp(path, "/.penstock") == 0)
		return 0;
	st->st_mode = S_IFREG | 0444;
	st->st_size = (off_t)nbytes;
	return strcmp(path, "/.penstock/stats") == 0 ? 0 : -ENOENT;
}

static int open_file(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	fi->direct_io = 1;
	while (hangs)
		sleep(1000);
	return 0;
}

static int read_file(const char *path, char *buf, size_t n, off_t pos, struct fuse_file_info *fi)
{
	(void)path;
	(void)fi;
	if ((size_t)pos >= nbytes)
		return 0;
	n = n < nbytes - (size_t)pos ? n : nbytes - (size_t)pos;
	memcpy(buf, text + pos, n);
	return (int)n;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {.getattr = get_attr, .open = open_file, .read = read_file};

	if (argc != 4)
		return 2;
	char f[] = "-f", o[] = "-o";
	char *args[] = {argv[0], f, o, argv[2], argv[1], NULL};
	hangs = strcmp(argv[3], "hang") == 0;
	FILE *file = hangs ? NULL : fopen(argv[3], "r");
	if (file) {
		nbytes = fread(text, 1, sizeof(text), file);
		fclose(file);
	}
	return fuse_main(5, args, &ops, NULL);
}
