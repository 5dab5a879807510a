/* A byte array that grows at its end. Ownership: the caller's, until ps_buf_fini(). Threads: one at a
 * time. */
#ifndef PS_BASE_BUF_H
#define PS_BASE_BUF_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"

struct ps_buf {
	uint8_t *p;
	size_t n, cap;
};

/* Makes room for n more bytes; b->n is unchanged. -ENOMEM. */
PS_MUST_USE static inline int ps_buf_reserve(struct ps_buf *b, size_t n)
{
	size_t need, cap;
	uint8_t *p;

	if (!ps_size_add(b->n, n, &need))
		return -ENOMEM;
	if (need <= b->cap)
		return 0;
	cap = PS_MAX(need, b->cap + b->cap / 2 + 256);
	p = realloc(b->p, cap);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->cap = cap;
	return 0;
}

PS_MUST_USE static inline int ps_buf_add(struct ps_buf *b, const void *p, size_t n)
{
	int rc = ps_buf_reserve(b, n);

	if (rc == 0 && n > 0) {
		memcpy(b->p + b->n, p, n);
		b->n += n;
	}
	return rc;
}

PS_MUST_USE static inline int ps_buf_add_zeros(struct ps_buf *b, size_t n)
{
	int rc = ps_buf_reserve(b, n);

	if (rc == 0 && n > 0) {
		memset(b->p + b->n, 0, n);
		b->n += n;
	}
	return rc;
}

static inline void ps_buf_fini(struct ps_buf *b)
{
	free(b->p);
	*b = (struct ps_buf){0};
}

#endif
