#include "config.h"

#include "shard/file/file.h"

#include <string.h>
#include <strings.h>

#define PACK "`penstock-loader pack` makes shards of files"
#define AS_IT_IS                                                                                  \
	" as it is, on a mount, too; for this loader write each sample's values as members of a " \
	"shard; " PACK

static const struct {
	uint8_t offset, len;
	const char *magic;
	const char *suffixes; /* a space after each */
	const char *text;
} kinds[] = {
        {0, 8, "\x89HDF\r\n\x1a\n", ".h5 .hdf5 ", "an HDF5 file" PS_FOREIGN_MARK "h5py reads it" AS_IT_IS},
        {0, 6, "\x93NUMPY", ".npy ",
                "a NumPy array (.npy)" PS_FOREIGN_MARK "numpy.load(FILE, mmap_mode=\"r\") reads it" AS_IT_IS
                " (a .npy of each sample is read by fields of kind npy)"},
        {0, 4, "PK\3\4", ".npz .zip ",
                "a ZIP or .npz file" PS_FOREIGN_MARK "numpy.load() or zipfile read it" AS_IT_IS},
        {16, 4, "\xde\xc0\xef\xbe", ".mdb .lmdb ",
                "an LMDB database" PS_FOREIGN_MARK
                "lmdb.open(FOLDER, readonly=True, lock=False) reads it" AS_IT_IS},
        {0, 4, "PAR1", ".parquet ",
                "a Parquet file" PS_FOREIGN_MARK "pyarrow reads it as it is, on a mount, too; if it names "
                "files, write their paths (and keys and "
                "labels) into a list for `penstock-loader pack @LIST`; if it holds them, write them as "
                "members of a "
                "shard"},
        {0, 6, "ARROW1", ".arrow .feather ", "an Arrow file" PS_FOREIGN_MARK "pyarrow reads it" AS_IT_IS},
        {0, 6, "SQLite", ".sqlite .db ", "an SQLite database" PS_FOREIGN_MARK "sqlite3 reads it" AS_IT_IS},
        {0, 6,
                "\xfd"
                "7zXZ",
                ".xz ",
                "xz data" PS_FOREIGN_MARK
                "shards are compressed by zstd, gzip or lz4: xz -dc FILE | zstd -o FILE.zst"},
        {0, 3, "BZh", ".bz2 ",
                "bzip2 data" PS_FOREIGN_MARK
                "shards are compressed by zstd, gzip or lz4: bzip2 -dc FILE | zstd -o FILE.zst"},
        {0, 3, "\xff\xd8\xff", ".jpg .jpeg ",
                "a picture" PS_FOREIGN_MARK PACK ", `pack --classes` of class folders"},
        {0, 4, "\x89PNG", ".png ", "a picture" PS_FOREIGN_MARK PACK ", `pack --classes` of class folders"},
        {8, 4, "WEBP", ".webp ", "a picture" PS_FOREIGN_MARK PACK ", `pack --classes` of class folders"},
};

const char *ps_foreign_of_bytes(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (n >= (size_t)kinds[i].offset + kinds[i].len &&
		        memcmp(p + kinds[i].offset, kinds[i].magic, kinds[i].len) == 0)
			return kinds[i].text;
	return NULL;
}

static bool ends_in(const char *name, const char *suffixes)
{
	size_t len = strlen(name);

	for (const char *s = suffixes; *s; s += strcspn(s, " ") + 1) {
		size_t n = strcspn(s, " ");

		if (len > n && strncasecmp(name + len - n, s, n) == 0)
			return true;
	}
	return false;
}

const char *ps_foreign_of_name(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (ends_in(name, kinds[i].suffixes))
			return kinds[i].text;
	return NULL;
}
