/* penstock.conf(5): named mounts with their sources and options.
 *
 *   # comment
 *   [defaults]
 *   cache-dir = /nvme/penstock
 *   [pets]
 *   mountpoint = /data/pets
 *   source.train = https://data.example.org/train/
 *   source.val = s3://bucket/val/
 *   val.header = @/etc/penstock/val.header
 *
 * Keys are source, mountpoint, auto and the options of the table (options/options.h). An option that takes
 * no value on the command line is yes or no here. The file may hold a secret only if no other user can read
 * the file; the key OPTION-file names another file that holds the secret.
 *
 * Ownership: a struct ps_conf is the caller's until ps_conf_fini(), which wipes it. Threads: one. Errors:
 * -errno and a text that begins with FILE or FILE:LINE and has no secret value. */
#ifndef PS_CLI_CONF_FILE_H
#define PS_CLI_CONF_FILE_H

#include <sys/types.h>

#include "daemon/daemon.h"

#define PS_CONF_MAX_NBYTES (1u << 20)
#define PS_CONF_DEFAULT "/etc/penstock.conf"

struct ps_conf_entry {
	char *key, *value;
	unsigned line;
};

struct ps_conf_section {
	char *name;
	unsigned line;
	struct ps_conf_entry *v;
	size_t n;
};

struct ps_conf {
	char *path;
	mode_t mode; /* of the file */
	struct ps_conf_section *v;
	size_t n;
};

/* True if text can be a section's name: 1 to 64 of [a-zA-Z0-9._-], the first neither '.' nor '-'. */
bool ps_conf_is_name(const char *text);

/* Parses text, which need not end with a NUL. Checks the syntax, not the keys. */
int ps_conf_parse(const char *path, mode_t mode, const char *text, size_t nbytes, struct ps_conf *ret,
        struct ps_error *err) PS_MUST_USE;
/* path NULL: $PENSTOCK_CONFIG, ~/.config/penstock.conf, or PS_CONF_DEFAULT; -ENOENT if there is none. */
int ps_conf_read(const char *path, struct ps_conf *ret, struct ps_error *err) PS_MUST_USE;
void ps_conf_fini(struct ps_conf *conf);

const struct ps_conf_section *ps_conf_find(const struct ps_conf *conf, const char *name);
/* Returns -ENOENT with a text that suggests the most similar section name. */
int ps_conf_no_such(const struct ps_conf *conf, const char *name, struct ps_error *err);
bool ps_conf_is_mount(const struct ps_conf_section *section); /* not [defaults] */

struct ps_conf_mount {
	char *mountpoint; /* NULL: the section has none */
	bool automatic;   /* penstock mount --all mounts it */
};

/* Sets the options of [defaults] and of the section in *o, except those that are in o->given already (the
 * command line has priority), and adds the section's sources to *request. The caller frees
 * ret->mountpoint. */
int ps_conf_apply(const struct ps_conf *conf, const struct ps_conf_section *section,
        struct ps_mount_options *o, struct ps_mount_request *request, struct ps_conf_mount *ret,
        struct ps_error *err) PS_MUST_USE;

#endif
