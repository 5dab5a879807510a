#include "config.h"

#include "tools/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>

#define BUF_NBYTES (1UL << 20)

struct ps_digest {
	EVP_MD_CTX *ctx;
	bool failed; /* libcrypto had no memory: the digest is zeros, which say that it is not known */
};

struct ps_digest *ps_digest_new(void)
{
	struct ps_digest *d = calloc(1, sizeof(*d));

	if (d)
		d->ctx = EVP_MD_CTX_new();
	if (!d || !d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1) {
		ps_digest_free(d);
		return NULL;
	}
	return d;
}

void ps_digest_add(struct ps_digest *d, const void *p, size_t n)
{
	d->failed = d->failed || EVP_DigestUpdate(d->ctx, p, n) != 1;
}

void ps_digest_finish(struct ps_digest *d, uint8_t ret_sha256[static PS_DIGEST_NBYTES])
{
	if (d->failed || EVP_DigestFinal_ex(d->ctx, ret_sha256, NULL) != 1)
		memset(ret_sha256, 0, PS_DIGEST_NBYTES);
}

void ps_digest_free(struct ps_digest *d)
{
	if (d)
		EVP_MD_CTX_free(d->ctx);
	free(d);
}

int ps_digest_file(const char *path, uint8_t ret_sha256[static PS_DIGEST_NBYTES], struct ps_load_error *err)
{
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ps_autofree uint8_t *buf = malloc(BUF_NBYTES);
	struct ps_digest *d = ps_digest_new();
	ssize_t n = -1;
	int r = 0;

	if (!buf || !d)
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	while (r == 0 && n != 0) {
		n = fd < 0 ? -1 : read(fd, buf, BUF_NBYTES);
		if (n < 0 && (fd < 0 || errno != EINTR))
			r = ps_load_error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
		else if (n > 0)
			ps_digest_add(d, buf, (size_t)n);
	}
	if (r == 0)
		ps_digest_finish(d, ret_sha256);
	ps_digest_free(d);
	return r;
}
