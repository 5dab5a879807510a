/* What a word that is none of the known ones was most likely meant as: a slip or two of the fingers away, or
 * their beginning. Nothing is better than a wild guess.
 *
 *   struct ps_guess guess = {.word = word, .len = strlen(word)};
 *   for each known word: ps_guess_offer(&guess, known);
 *   guess.best: the most like it, or NULL
 *
 * Ownership: borrowed. Threads: any, on a guess of their own. Blocks: never. */
#ifndef PS_BASE_SUGGEST_H
#define PS_BASE_SUGGEST_H

#include <stddef.h>

struct ps_guess {
	const char *word; /* len bytes */
	size_t len;
	const char *best;
	unsigned rank; /* of best, the lower the nearer; 0: none was near yet */
};

void ps_guess_offer(struct ps_guess *guess, const char *known);

#endif
