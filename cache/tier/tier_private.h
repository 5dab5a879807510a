#ifndef PS_TIER_TIER_PRIVATE_H
#define PS_TIER_TIER_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/tier.h"

/* rendezvous.c: the choice. Pure. All nodes compute the same values, so these never change. -------------- */

/* Hash of a tier's URL. */
uint64_t ps_rendezvous_name(const char *url);
uint64_t ps_rendezvous_score(uint64_t name, uint64_t object, uint64_t stripe);
/* The index of the tier with the highest score among those that `out` (may be NULL) does not exclude; of
 * equal scores the one with the greater number in `names`. n: none is left. */
size_t ps_rendezvous_choose(
        const uint64_t *names, size_t n, const bool *out, uint64_t object, uint64_t stripe);

/* tier_list.c: the list. ---------------------------------------------------------------------------------- */

#define PS_TIERS_MAX 4096 /* tiers that one list may name */

enum ps_tier_list_kind { PS_TIER_LIST_URLS, PS_TIER_LIST_FILE, PS_TIER_LIST_DNS };

/* A list of tiers' URLs: scheme://host:port, canonical. */
struct ps_tier_urls {
	char **v;
	size_t n;
};
void ps_tier_urls_fini(struct ps_tier_urls *urls);

enum ps_tier_list_kind ps_tier_list_kind(const char *list);
/* Reads the list: parses the text, or the file that it names, or resolves its name. -EINVAL for an error in
 * it; another -errno if the file cannot be read or the name not resolved. Blocks on disk or DNS. */
int ps_tier_list_read(const char *list, struct ps_tier_urls *ret, struct ps_error *err) PS_MUST_USE;
/* Adds the URLs of a text, separated by commas, blanks or lines; "#" begins a comment. */
int ps_tier_list_parse(const char *text, struct ps_tier_urls *urls, struct ps_error *err) PS_MUST_USE;

/* True if secrets may be sent to this tier. */
bool ps_tier_url_is_protected(const char *url, bool has_cert);
/* True if the URL has an address of this node. Blocks: never. */
bool ps_tier_url_is_here(const char *url);

#endif
