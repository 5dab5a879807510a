/* Signs what stdin describes, for s3_signer.py to compare with botocore: lines of hex words
 *
 *   METHOD PATH-KEY ACCESS-KEY SECRET TIME REGION HEADER-NAME HEADER-VALUE ... - QUERY-NAME QUERY-VALUE ...
 *
 * Prints lines "PATH QUERY AUTHORIZATION". An empty word is "=". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "credentials/credentials.h"

static char *decode(const char *word)
{
	size_t n = strcmp(word, "=") == 0 ? 0 : strlen(word) / 2;
	char *text = calloc(1, n + 1);

	for (size_t i = 0; text && i < n; i++) {
		unsigned byte = 0;

		if (sscanf(word + 2 * i, "%2x", &byte) != 1)
			exit(2);
		text[i] = (char)byte;
	}
	return text ? text : (exit(3), NULL);
}

static size_t read_pairs(char **rest, struct ps_sigv4_pair *pairs)
{
	const char *name;
	size_t n = 0;

	while (n < PS_SIGV4_MAX_PAIRS && (name = strsep(rest, " \n")) && *name && strcmp(name, "-") != 0) {
		const char *value = strsep(rest, " \n");

		pairs[n++] = (struct ps_sigv4_pair){decode(name), decode(value ? value : "=")};
	}
	return n;
}

static void free_pairs(struct ps_sigv4_pair *pairs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free((char *)pairs[i].name);
		free((char *)pairs[i].value);
	}
}

static int sign_line(char *line)
{
	enum { METHOD, KEY, ACCESS_KEY, SECRET, TIME, REGION, NWORDS };
	struct ps_sigv4_pair headers[PS_SIGV4_MAX_PAIRS], query[PS_SIGV4_MAX_PAIRS];
	ps_autostrbuf struct ps_strbuf path = {0}, sorted = {0}, out = {0};
	uint8_t key[PS_SIGV4_KEY_LEN];
	char *words[NWORDS];

	for (int i = 0; i < NWORDS; i++) {
		const char *word = strsep(&line, " \n");

		words[i] = decode(word ? word : "=");
	}
	size_t nheaders = read_pairs(&line, headers), nquery = read_pairs(&line, query);
	ps_url_encode_strict(words[KEY], strlen(words[KEY]), true, &path);
	ps_sigv4_query(query, nquery, &sorted);
	const struct ps_sigv4_request request = {.method = words[METHOD],
	        .path = ps_strbuf_peek(&path),
	        .query = ps_strbuf_peek(&sorted),
	        .headers = headers,
	        .nheaders = nheaders,
	        .payload = PS_SIGV4_UNSIGNED,
	        .time = words[TIME],
	        .region = words[REGION],
	        .service = "s3"};
	int rc = ps_sigv4_derive(words[SECRET], words[TIME], words[REGION], "s3", key);
	if (rc == 0)
		rc = ps_sigv4_sign(&request, words[ACCESS_KEY], key, &out);
	printf("%s %s %s\n", ps_strbuf_peek(&path), ps_strbuf_peek(&sorted), ps_strbuf_peek(&out));
	for (int i = 0; i < NWORDS; i++)
		free(words[i]);
	free_pairs(headers, nheaders);
	free_pairs(query, nquery);
	return rc;
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;
	int rc = 0;

	while (rc == 0 && getline(&line, &cap, stdin) > 0)
		rc = sign_line(line);
	free(line);
	return rc ? 1 : 0;
}
