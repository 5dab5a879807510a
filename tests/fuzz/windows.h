/* Feeds a text to a parser as it comes from a server: window by window. */
#ifndef PS_FUZZ_WINDOWS_H
#define PS_FUZZ_WINDOWS_H

#include <stdlib.h>

#include "base/packed.h"

/* Calls fn with at most three windows. Each begins with what fn did not use of the previous one. */
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
