/* Sources on a hub, and patterns: the first line is a source, the others are paths. A source is refused, or
 * its canonical form means the same. An object's URL gives its path again. Matching of patterns ends. */
#include <stdlib.h>
#include <string.h>

#include "base/braces.h"
#include "listing/listing.h"
#include "origin/hub_private.h"
#include "credentials/credentials.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool right)
{
	if (!right)
		abort();
}

/* Patterns of millions of names are allowed, but take long. */
static bool stands_for_few(const char *pattern)
{
	struct ps_braces *braces = NULL;
	bool few = ps_braces_parse(pattern, 10000, &braces, NULL) == 0;

	ps_braces_free(braces);
	return few;
}

static void look_at_path(const struct ps_hf_source *s, struct ps_glob *glob, const char *path)
{
	char *url = ps_hf_url_object(s, "http://h:1/x", path);
	char *back = url ? ps_hf_path_of_object(s, url) : NULL;

	must(url && back && strcmp(back, path) == 0);
	free(url);
	free(back);
	free(ps_hf_url_resolve(s, PS_HF_ENDPOINT, s->rev, path));
	if (glob)
		ps_glob_match(glob, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_hf_source s = {0}, again = {0};
	struct ps_glob *glob = NULL;
	char *text = strndup((const char *)data, size), *save = NULL;
	struct ps_strbuf source = {0};
	char *line = strtok_r(text, "\n", &save);

	ps_strbuf_addf(&source, "hf://%s", line ? line : "");
	if (size < 4096 && ps_hf_source_parse(ps_strbuf_peek(&source), &s, NULL) == 0) {
		must(ps_hf_source_parse(s.canonical, &again, NULL) == 0);
		must(strcmp(again.canonical, s.canonical) == 0 && strcmp(again.repo, s.repo) == 0);
		must(strcmp(again.rev, s.rev) == 0 && strcmp(again.path, s.path) == 0);
		if (s.is_pattern && stands_for_few(s.path) && ps_glob_new(s.path, &glob, NULL) < 0)
			glob = NULL;
		for (unsigned n = 0; n < 16 && (line = strtok_r(NULL, "\n", &save)); n++)
			look_at_path(&s, glob, line);
		ps_glob_free(glob);
		ps_hf_source_fini(&s);
		ps_hf_source_fini(&again);
	}
	ps_strbuf_fini(&source);
	free(text);
	return 0;
}
