/* What an S3 store's refusals mean: the XML of its error document, and codes to errnos, texts and remedies.
 *
 * Ownership: plain memory of the caller. Threads: any. Blocks: never. */
#ifndef PS_ORIGIN_S3_ERROR_H
#define PS_ORIGIN_S3_ERROR_H

#include <stddef.h>

#include "base/error.h"

struct ps_s3_refusal {
	char code[64]; /* "AccessDenied"; "" if the answer was no error document */
	char message[200];
	char region[64]; /* where the bucket is, if the document says so */
};

/* Of any bytes; takes those three elements alone: others may repeat what we sent. */
void ps_s3_refusal_parse(const char *text, size_t nbytes, struct ps_s3_refusal *ret);

/* What may make the same request succeed, at once. */
enum ps_s3_remedy {
	PS_S3_NO_REMEDY,
	PS_S3_OTHER_REGION, /* sign for the bucket's own, ask there */
	PS_S3_OTHER_CLOCK,  /* sign with the server's */
	PS_S3_OTHER_KEY,    /* it is unknown or has expired */
	PS_S3_OTHER_PLACE,  /* ask where the answer's Location says */
};

/* Fills err (http_status, retryable and retry_after_ms stay where the code says nothing of them) for an
 * answer of this status; listing: it was asked for one. */
enum ps_s3_remedy ps_s3_refusal_judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err);

#endif
