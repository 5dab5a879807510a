/* Tars made in memory or on disk, for the loader's tests. */
#ifndef PS_TESTS_LOADER_MAKE_TAR_H
#define PS_TESTS_LOADER_MAKE_TAR_H

#include <dirent.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct tar {
	uint8_t *data;
	size_t len, cap;
};

static inline void tar_put(struct tar *t, const void *p, size_t n)
{
	size_t padded = (n + 511) & ~(size_t)511;

	if (t->len + padded > t->cap) {
		t->cap = (t->len + padded) * 2;
		t->data = realloc(t->data, t->cap);
		assert_non_null(t->data);
	}
	memset(t->data + t->len, 0, padded);
	if (n > 0)
		memcpy(t->data + t->len, p, n);
	t->len += padded;
}

static inline void tar_add_header(struct tar *t, const char *name, size_t n, char type, const char *link)
{
	char h[512] = {0};
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%07o", 0644u);
	snprintf(h + 124, 12, "%011o", (unsigned)n);
	snprintf(h + 136, 12, "%011o", 0u);
	memset(h + 148, ' ', 8);
	h[156] = type;
	snprintf(h + 157, 100, "%s", link);
	memcpy(h + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 7, "%06o", sum & 0777777);
	tar_put(t, h, sizeof(h));
}

static inline void tar_add(struct tar *t, const char *name, const void *data, size_t n)
{
	tar_add_header(t, name, n, '0', "");
	tar_put(t, data, n);
}

static inline void tar_add_text(struct tar *t, const char *name, const char *text)
{
	tar_add(t, name, text, strlen(text));
}

/* Adds the end mark. */
static inline void tar_end(struct tar *t)
{
	static const char zeros[1024];

	tar_put(t, zeros, sizeof(zeros));
}

static inline void tar_free(struct tar *t)
{
	free(t->data);
	*t = (struct tar){0};
}

static inline void file_write(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static inline void tar_save(struct tar *t, const char *path)
{
	file_write(path, t->data, t->len);
	tar_free(t);
}

struct photo {
	uint8_t *data;
	size_t len;
};

#define MAX_PHOTOS 16

/* Loads the first MAX_PHOTOS photographs of tests/data/photos, sorted by name. Returns how many there are. */
static inline int photos_load(struct photo photos[static MAX_PHOTOS])
{
	const char *src = getenv("top_srcdir");
	char dir[4000];
	struct dirent **names;
	int n, k = 0;

	snprintf(dir, sizeof(dir), "%s/tests/data/photos", src ? src : ".");
	n = scandir(dir, &names, NULL, alphasort);
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		char path[4400];
		FILE *f;
		long size;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (strstr(names[i]->d_name, ".jpg") && k < MAX_PHOTOS) {
			f = fopen(path, "rb");
			assert_non_null(f);
			fseek(f, 0, SEEK_END);
			size = ftell(f);
			rewind(f);
			photos[k].len = (size_t)size;
			photos[k].data = malloc((size_t)size);
			assert_int_equal(fread(photos[k].data, 1, (size_t)size, f), (size_t)size);
			fclose(f);
			k++;
		}
		free(names[i]);
	}
	free(names);
	assert_true(k > 0);
	return k;
}

/* Makes a private folder and changes to it; folder_leave() removes it with all in it. */
static inline void folder_enter(char folder[static 64])
{
	snprintf(folder, 64, "/tmp/penstock-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
}

static inline void folder_leave(const char *folder)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(system(command), 0);
}

#endif
