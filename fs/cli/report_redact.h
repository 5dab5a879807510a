/* Takes secrets out of text that leaves the machine: a second line of defence, since what penstock writes has
 * none. It would rather take out too much:
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
/* Values of fewer than 6 characters are no secrets. */
void ps_redact_know(struct ps_redact *redact, const char *value);
/* What the values of variables are whose name says that they are secret. */
void ps_redact_know_environment(struct ps_redact *redact, char **env);

void ps_redact_text(const struct ps_redact *redact, const char *text, struct ps_strbuf *out);
/* Of each string in it; NULL: out of memory. */
json_t *ps_redact_json(const struct ps_redact *redact, const json_t *doc);

#endif
