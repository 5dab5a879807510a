#include "base/suggest.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define KNOWN_MAX 64 /* known words of this length or more are not compared */
/* minimum length of a common prefix, which counts only if a single known word has it */
#define PREFIX_LEAST 4
#define PREFIX_RANK 9 /* after all ranks of typing errors */

static bool same(char a, char b)
{
	return strncasecmp(&a, &b, 1) == 0 || (strchr("-_", a) && strchr("-_", b));
}

/* The number of typing errors: an inserted, missing or changed letter, or two neighbours swapped. Case, and
 * "-" for "_", do not count. */
static unsigned distance(const char *word, size_t len, const char *known, size_t nknown)
{
	unsigned rows[3][KNOWN_MAX];
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= nknown; j++)
		row[j] = (unsigned)j;
	for (size_t i = 0; i < len; i++) {
		unsigned *free_row = before;

		before = above;
		above = row;
		row = free_row;
		row[0] = (unsigned)i + 1;
		for (size_t j = 1; j <= nknown; j++) {
			unsigned change = above[j - 1] + !same(word[i], known[j - 1]);

			row[j] = PS_MIN(change, PS_MIN(above[j], row[j - 1]) + 1);
			if (i > 0 && j > 1 && same(word[i], known[j - 2]) && same(word[i - 1], known[j - 1]))
				row[j] = PS_MIN(row[j], before[j - 2] + 1);
		}
	}
	return row[nknown];
}

/* True for the word "cache" and the known "cache-dir", and for "endpoint-url" and the known "endpoint". */
static bool begins_alike(const struct ps_guess *guess, const char *known, size_t n)
{
	size_t len = PS_MIN(guess->len, n);

	return len >= PREFIX_LEAST && strncasecmp(guess->word, known, len) == 0 &&
	       (guess->len <= n || strchr("-_", guess->word[n]));
}

void ps_guess_offer(struct ps_guess *guess, const char *known)
{
	size_t n = strlen(known);

	if (n >= KNOWN_MAX || guess->len == 0)
		return;
	/* Allows one error in words of 2 to 4 letters, two in 5 to 7, three in longer words. A word with
	 * more errors is a different word. */
	unsigned slips = distance(guess->word, guess->len, known, n), found = 0;
	if (slips <= 3 && slips * 3 <= n + 1)
		found = slips + 1;
	else if (begins_alike(guess, known, n))
		found = PREFIX_RANK;
	if (found == PREFIX_RANK && guess->rank == PREFIX_RANK)
		guess->best = NULL; /* several known words have this beginning */
	else if (found && (!guess->rank || found < guess->rank)) {
		guess->best = known;
		guess->rank = found;
	}
}
