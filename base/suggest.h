/* Suggests the known word that an unknown word was most likely meant to be: one a few typing errors away,
 * or one with the same beginning. Without a good candidate it suggests nothing.
 *
 *   struct ps_guess guess = {.word = word, .len = strlen(word)};
 *   for each known word: ps_guess_offer(&guess, known);
 *   guess.best: the closest known word, or NULL
 *
 * Ownership: all strings are borrowed. Threads: any, each with its own guess. Blocks: never. */
#ifndef PS_BASE_SUGGEST_H
#define PS_BASE_SUGGEST_H

#include <stddef.h>

struct ps_guess {
	const char *word; /* len bytes */
	size_t len;
	const char *best;
	unsigned rank; /* of best; lower is closer; 0: no candidate yet */
};

void ps_guess_offer(struct ps_guess *guess, const char *known);

#endif
