/* What a mount can be told, and its tables. The same names work as --long options, in -o lists and in fstab.
 *
 * Ownership: ps_mount_options_init() ... ps_mount_options_fini(); strings belong to the struct.
 * Threads: one. Errors: -errno and a text for a person. */
#ifndef PS_OPTIONS_OPTIONS_H
#define PS_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "cache.h"
#include "options/command_line.h"

/* How a file that is not all in the cache is opened; see openmode.h. */
enum ps_cold_reads { PS_COLD_AUTO, PS_COLD_DIRECT, PS_COLD_CACHED };

/* The largest READ: so much can be spliced from a file. More would need a pipe past the usual
 * /proc/sys/fs/pipe-max-size of 1 MiB, and libfuse would copy through memory of its own instead. */
#define PS_FS_READ_NBYTES (512u * 1024)

struct ps_mount_options {
	/* the cache */
	char *cache_dir;  /* NULL: ps_cache_dir_default() */
	char *cache_size; /* "200G", "80%"; NULL: the store's default */
	char *policy;
	uint64_t min_free, memory;
	/* the origin */
	uint64_t timeout_ms, revalidate_ms, grant_ttl_ms, max_bandwidth;
	char **include, **exclude; /* NULL-terminated, or NULL */
	unsigned max_connections;
	char **headers; /* NULL-terminated, or NULL */
	size_t nheaders;
	char *user, *cacert, *hf_token_file;
	char *client_cert, *client_key, *client_key_password_file, *proxy, *netrc_file;
	bool insecure, raw;
	char *endpoint, *region, *profile, *gs_credentials, *az_sas_file; /* of stores with buckets */
	bool no_sign_request, request_payer, pin_versions, follow_redirects;
	enum ps_s3_addressing addressing;
	/* the mount */
	uid_t uid;
	gid_t gid;
	mode_t file_mode, dir_mode;
	bool allow_other, nonempty, foreground, no_passthrough;
	uint64_t refresh_ms;
	bool missing_fail; /* files of a list that are not at the origin make it fail */
	enum ps_cold_reads cold_reads;
	char *log; /* NULL: syslog for a daemon, stderr in the foreground */
	enum ps_log_level log_level;
	/* What was given; ps_mount_options_finish() adds what the environment tells. */
	struct ps_given given;
	char **env;   /* what origins may ask for of this process's environment, "NAME=value", NULL-terminated */
	bool lenient; /* called as mount.penstock: "rw" is mount(8)'s own default and means nothing */
};

/* Defaults: the caller's uid and gid, files 0444, folders 0555, log level info. */
void ps_mount_options_init(struct ps_mount_options *o);
void ps_mount_options_fini(struct ps_mount_options *o);

/* Options of cache and origin, which `warm SOURCE` takes too, and those of the mount alone. */
extern const struct ps_opt ps_options_source[], ps_options_mount[];
/* An option of these tables, or NULL. */
const struct ps_opt *ps_options_find(const char *name);
/* For ps_opts.other: mount(8)'s generic words. -ENOENT: not one of them. */
int ps_options_generic(void *ctx, const char *name, const char *value, struct ps_error *err);

/* Takes what the environment tells (PENSTOCK_USER_PASSWORD; o->env), and checks what no single option can. */
int ps_mount_options_finish(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;

/* The default cache directory, if none was given; the folders above it are made. */
int ps_mount_options_cache_dir(struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* Wipes what of this process's environment is secret, for a process that stays: origins ask in o->env. One thread. */
void ps_environment_forget(void);

/* The options as the cache wants them; pointers into *o. The default cache directory is made, and a share of
 * the disk resolved, here. Blocks on disk. */
int ps_mount_options_cache(
        struct ps_mount_options *o, struct ps_cache_options *ret, struct ps_error *err) PS_MUST_USE;
void ps_mount_options_dataset(const struct ps_mount_options *o, struct ps_dataset_options *ret);

/* $PENSTOCK_CACHE_DIR, else /var/cache/penstock for root, $XDG_CACHE_HOME/penstock or ~/.cache/penstock. The
 * caller frees it. */
char *ps_cache_dir_default(struct ps_error *err);

/* A local folder or @manifest as an absolute path, anything else as it is. The caller frees it. */
char *ps_source_absolute(const char *source);

/* The source of argv may hold a password or a signature: overwrites it with its canonical form, or x. */
void ps_source_wipe(char *arg);

#endif
