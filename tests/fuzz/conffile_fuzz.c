/* Any bytes as penstock.conf: a file that parses is applied or refused, and each error names the file. */
#include <stdlib.h>
#include <string.h>

#include "cli/conf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files that a key names must not be opened here: one may be a pipe. */
static bool names_files(const struct ps_conf_section *section)
{
	for (size_t i = 0; i < section->n; i++)
		if (strstr(section->v[i].key, "file") || section->v[i].value[0] == '/')
			return true;
	return false;
}

static void apply(const struct ps_conf *conf, const struct ps_conf_section *section)
{
	struct ps_mount_request request = {0};
	struct ps_conf_mount told = {0};
	struct ps_mount_options o;
	struct ps_error err = {0};

	ps_mount_options_init(&o);
	int rc = ps_conf_apply(conf, section, &o, &request, &told, &err);
	if (rc < 0 && (!err.err || strncmp(err.text, "x.conf:", 7) != 0))
		abort();
	if (rc == 0 && request.nsources == 0)
		abort();
	free(told.mountpoint);
	ps_mount_options_fini(&o);
	ps_request_fini(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_error err = {0};
	struct ps_conf conf;

	if (ps_conf_parse("x.conf", size % 2 ? 0600 : 0644, (const char *)data, size, &conf, &err) < 0) {
		if (strncmp(err.text, "x.conf:", 7) != 0)
			abort();
		return 0;
	}
	const struct ps_conf_section *defaults = ps_conf_find(&conf, "defaults");
	for (size_t i = 0; i < conf.n; i++)
		if (ps_conf_is_mount(&conf.v[i]) && !names_files(&conf.v[i]) &&
		        !(defaults && names_files(defaults)))
			apply(&conf, &conf.v[i]);
	ps_conf_fini(&conf);
	return 0;
}
