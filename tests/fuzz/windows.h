/* A text as it comes from a server: window by window. */
#ifndef PS_FUZZ_WINDOWS_H
#define PS_FUZZ_WINDOWS_H

#include <stdlib.h>

#include "base/packed.h"

/* Three windows, and more where fn does not use all of one: what is left is given once more, with what
 * follows it. */
static inline void feed_windows(ps_window_fn fn, void *arg, const char *text, size_t size)
{
	size_t step = size / 3 + 1, have = 0, used;
	int rc;

	do {
		have += step < size - have ? step : size - have;
		used = 0;
		rc = fn(arg, text, have, have < size, &used);
		if (used > have)
			abort();
		text += used;
		size -= used;
		have -= used;
	} while (rc == 0 && have < size);
}

#endif
