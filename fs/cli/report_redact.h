/* Removes secrets from text that leaves the machine. This is a second line of defence, since penstock
 * writes no secrets; when in doubt, it removes too much:
 *
 *   userinfo and the query of URLs      what follows words such as "password=", "Authorization:", "Bearer"
 *   words that look like tokens         values that are known to be secret
 *
 * Ownership: the caller's. Threads: one at a time. Blocks: never. */
#ifndef PS_CLI_REPORT_REDACT_H
#define PS_CLI_REPORT_REDACT_H

#include <jansson.h>

#include "base/strbuf.h"

struct ps_redact {
	char **v; /* values that are known to be secret */
	size_t n;
	bool failed; /* out of memory: nothing may be shown */
};

void ps_redact_fini(struct ps_redact *redact);
/* Adds a known secret. Values of fewer than 6 characters are ignored. */
void ps_redact_know(struct ps_redact *redact, const char *value);
/* Adds the values of variables whose names suggest a secret. */
void ps_redact_know_environment(struct ps_redact *redact, char **env);

/* Appends the text to *out, redacted. Out of memory: sets out->failed. */
void ps_redact_text(const struct ps_redact *redact, const char *text, struct ps_strbuf *out);
/* A copy of doc with every string redacted; NULL: out of memory. */
json_t *ps_redact_json(const struct ps_redact *redact, const json_t *doc);

#endif
