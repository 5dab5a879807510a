/* One small HTTP request, answered before it returns: to a metadata server, a token endpoint, STS. No
 * redirects, no retries; headers and bodies may be secrets and are wiped.
 *
 * Ownership: an answer is the caller's, until ps_answer_fini(). Threads: any; not one that carries transfers.
 * Blocks: on the network, up to timeout_ms or until *stop. Errors: EHOSTUNREACH, ETIMEDOUT, EPROTO, EFBIG,
 * EIO, ENOMEM, ECANCELED by stop; texts start with the method and the URL. Any status is a success here: the
 * caller judges it. */
#ifndef PS_HTTP_BLOCKING_CALL_H
#define PS_HTTP_BLOCKING_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "http/access.h"

#define PS_CALL_MAX_NBYTES (256u << 10) /* of an answer; a longer one is EFBIG */
#define PS_CALL_MAX_HEADERS 8

struct ps_call {
	const char *method;
	const char *url;                              /* http or https */
	const char *headers[PS_CALL_MAX_HEADERS + 1]; /* "Name: value"; NULL ends them */
	const char *body;                             /* NULL: none */
	uint64_t timeout_ms;
	const struct ps_http_access
	        *access;     /* proxies and CA; NULL: a metadata server of this machine, asked directly */
	const char *ca_file; /* instead of what access says; NULL: as it says */
	const _Atomic bool *stop;
};

struct ps_answer {
	int status;
	char *body; /* NUL-terminated */
	size_t nbytes;
};

int ps_call_run(const struct ps_call *call, struct ps_answer *ret, struct ps_error *err) PS_MUST_USE;
void ps_answer_fini(struct ps_answer *answer);

#define ps_autoanswer __attribute__((cleanup(ps_answer_fini)))

#endif
