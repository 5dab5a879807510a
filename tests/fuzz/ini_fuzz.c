/* Any bytes as a profile file: keys and values are reported with their section, without line ends and
 * without blanks around them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ini.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *arg, const struct ps_ini_entry *entry)
{
	size_t *nentries = arg;
	size_t n = entry->key ? strlen(entry->value) : 0;

	++*nentries;
	if (!entry->section || !*entry->section || strlen(entry->section) >= PS_INI_NAME_LEN)
		abort();
	if (!entry->key)
		return 0;
	if (!*entry->key || strlen(entry->key) >= 2 * PS_INI_NAME_LEN || strpbrk(entry->key, "\n=") ||
	        strchr(entry->value, '\n'))
		abort();
	if (n && (strchr(" \t", entry->value[0]) || strchr(" \t\r", entry->value[n - 1])))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct ps_error err = {0};
	size_t nentries = 0;

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	int rc = ps_ini_parse(text, size, take, &nentries, &err);
	if (rc && (!err.text[0] || err.err != -rc))
		abort();
	free(text);
	return 0;
}
