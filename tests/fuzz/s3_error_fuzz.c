/* Any bytes as the error document of an S3 store: they give an errno and a text of one line. */
#include <stdlib.h>
#include <string.h>

#include "origin/bucket_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int statuses[] = {301, 307, 400, 401, 403, 404, 409, 429, 500, 503};
	struct ps_s3_refusal refusal;

	if (!size)
		return 0;
	int status = statuses[data[0] % (sizeof(statuses) / sizeof(*statuses))];
	ps_s3_refusal_parse((const char *)data + 1, size - 1, &refusal);
	struct ps_error err = {.err = 5, .http_status = status, .retryable = status >= 500, .text = "HTTP"};
	ps_s3_refusal_judge(&refusal, status, data[0] & 1, &err);
	if (!err.err || err.http_status != status || !err.text[0] || strpbrk(err.text, "\n\r\t"))
		abort();
	return 0;
}
