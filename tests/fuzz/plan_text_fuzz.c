/* Parses any bytes as a line of .penstock/plan, which any user of the mount may write. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_plan_line line;
	char *text = malloc(size + 1); /* exactly this size: a sanitizer finds any access after the end */

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (!memchr(text, 0, size) && ps_plan_line_parse(text, size, &line) == 0) {
		const char *name = line.files;

		assert(strlen(line.who.job) < PS_PLANS_JOB_LEN);
		for (size_t i = 0; i < line.nfiles; i++) {
			assert(name >= text && name < text + size);
			name += strlen(name) + 1;
		}
	}
	free(text);
	return 0;
}
