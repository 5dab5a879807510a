/* Turns options into the structs of the cache: defaults that depend on the machine, and the environment. */
#include "options/options.h"

#include <errno.h>
#include <ftw.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "base/size.h"
#include "base/strbuf.h"

#define OWNERS_PERCENT 20
#define LEAST_FOR_OWNERS (64 * PS_MIB)

char *ps_cache_dir_default(struct ps_error *err)
{
	const char *dir = getenv("PENSTOCK_CACHE_DIR"), *home = getenv("HOME"),
	           *xdg = getenv("XDG_CACHE_HOME");
	ps_autostrbuf struct ps_strbuf b = {0};
	char *path;

	if (dir && *dir)
		path = ps_path_absolute(dir);
	else if (geteuid() == 0)
		path = strdup("/var/cache/penstock");
	else if ((xdg && xdg[0] == '/') || (home && home[0] == '/')) {
		ps_strbuf_addf(&b, "%s%s", xdg && xdg[0] == '/' ? xdg : home,
		        xdg && xdg[0] == '/' ? "/penstock" : "/.cache/penstock");
		path = ps_strbuf_take(&b);
	} else {
		ps_error_set(err, EINVAL,
		        "no cache folder: give --cache-dir DIR, or set PENSTOCK_CACHE_DIR or HOME");
		return NULL;
	}
	if (!path)
		ps_no_memory(err);
	return path;
}

/* Makes the folders above `path`; whether that worked shows when the folder itself is made. */
static void make_parents(const char *path)
{
	ps_autofree char *copy = strdup(path);

	for (char *s = copy ? strchr(copy + 1, '/') : NULL; s; s = strchr(s + 1, '/')) {
		*s = '\0';
		mkdir(copy, 0700);
		*s = '/';
	}
}

/* The file system that holds, or will hold, `path`. */
static int disk_of(const char *path, struct statfs *ret)
{
	ps_autofree char *copy = strdup(path);

	while (copy && statfs(copy, ret) < 0) {
		char *slash = strrchr(copy, '/');

		if (errno != ENOENT || !slash || slash == copy)
			return -errno;
		*slash = '\0';
	}
	return copy ? 0 : -ENOMEM;
}

/* Describes a file system that is not suitable for the cache of a mount with owners: remote, or in memory.
 * NULL: a local disk. */
static const char *no_disk(const struct statfs *fs)
{
	static const struct {
		uint32_t magic;
		const char *what;
	} kinds[] = {{NFS_SUPER_MAGIC, "on NFS"}, {TMPFS_MAGIC, "in memory (tmpfs)"},
	        {RAMFS_MAGIC, "in memory (ramfs)"}, {SMB_SUPER_MAGIC, "on a file server (SMB)"},
	        {CIFS_SUPER_MAGIC, "on a file server (CIFS)"}, {SMB2_SUPER_MAGIC, "on a file server (SMB)"},
	        {CEPH_SUPER_MAGIC, "on Ceph"}, {AFS_SUPER_MAGIC, "on AFS"}, {0x0bd00bd0, "on Lustre"},
	        {0x47504653, "on GPFS"}, {0x19830326, "on BeeGFS"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
		if ((uint32_t)fs->f_type == kinds[i].magic)
			return kinds[i].what;
	return NULL;
}

static _Thread_local uint64_t walked_nbytes;

static int walked(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)path, (void)kind, (void)where;
	walked_nbytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

/* The quota for a mount with owners whose program gave no size: a share of the sum of the free space and the
 * space that the cache uses already. */
static int size_for_owners(
        const char *dir, const struct statfs *fs, uint64_t *ret_nbytes, struct ps_error *err)
{
	walked_nbytes = 0;
	nftw(dir, walked, 16, FTW_PHYS | FTW_MOUNT);
	uint64_t nbytes =
	        ((uint64_t)fs->f_bavail * (uint64_t)fs->f_frsize + walked_nbytes) / 100 * OWNERS_PERCENT;
	if (nbytes < LEAST_FOR_OWNERS) {
		char text[PS_SIZE_TEXT_LEN];

		return ps_error_set(err, ENOSPC,
		        "cache %s: %d %% of what is free on its disk is %s, too little; name another folder "
		        "(PENSTOCK_CACHE_DIR, or cache_dir), or give a cache size",
		        dir, OWNERS_PERCENT, ps_size_format(nbytes, text));
	}
	*ret_nbytes = nbytes;
	return 0;
}

/* True for a variable of the mounting user's environment that origins, libcurl or commands of AWS profiles
 * may read. */
static bool of_interest(const char *variable)
{
	static const char *const prefixes[] = {"AWS_", "AZURE_STORAGE_", "GOOGLE_", "CLOUDSDK_", "GS_",
	        "GCE_", "HF_", "HUGGING", "HOME=", "XDG_", "NETRC=", "SSL_CERT_",
	        "CURL_CA_BUNDLE=", "http_proxy=", "https_proxy=", "HTTPS_PROXY=", "all_proxy=", "ALL_PROXY=",
	        "no_proxy=", "NO_PROXY=", "PENSTOCK_", "PATH=",
	        /* For the commands of AWS profiles: */
	        "BOTO_CONFIG=", "NO_GCE_CHECK=", "STORAGE_EMULATOR_HOST=", "USER=", "LOGNAME=", "LANG=",
	        "LC_", "TMPDIR=", "DBUS_SESSION_BUS_ADDRESS=", "SSH_AUTH_SOCK=", "KRB5CCNAME=", "VAULT_",
	        "OP_"};

	for (size_t i = 0; i < PS_ARRAY_LEN(prefixes); i++)
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static bool trusts_system(const struct ps_mount_options *o)
{
	return o->cacert && strcmp(o->cacert, PS_CACERT_SYSTEM) == 0;
}

/* True for a variable that names certificates. */
static bool of_trust(const char *variable)
{
	static const char *const names[] = {
	        "CURL_CA_BUNDLE=", "SSL_CERT_FILE=", "SSL_CERT_DIR=", "AWS_CA_BUNDLE="};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static int take_environment(struct ps_mount_options *o)
{
	size_t n = 0, count = 0;

	while (environ[count])
		count++;
	o->env = calloc(count + 2, sizeof(*o->env));
	/* The current folder, which relative paths in the other variables start from. The inherited PWD may
	 * differ. */
	ps_autofree char *cwd = getcwd(NULL, 0);
	if (o->env && cwd && asprintf(&o->env[n], "PWD=%s", cwd) < 0) {
		o->env[n] = NULL;
		return -ENOMEM;
	}
	n += o->env && cwd;
	for (size_t i = 0; o->env && i < count; i++) {
		if (!of_interest(environ[i]) || (trusts_system(o) && of_trust(environ[i])))
			continue;
		o->env[n] = strdup(environ[i]);
		if (!o->env[n++])
			return -ENOMEM;
	}
	return o->env ? 0 : -ENOMEM;
}

/* Removes a variable. Overwrites its value first, since the environment that a process started with stays
 * readable in /proc. */
static void forget(const char *name)
{
	char *value = getenv(name);

	if (value)
		ps_cli_wipe(value);
	unsetenv(name);
}

void ps_environment_forget(void)
{
	static const char *const names[] = {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	        "AWS_CONTAINER_AUTHORIZATION_TOKEN", "GS_SECRET_ACCESS_KEY", "HF_TOKEN",
	        "HUGGING_FACE_HUB_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
	        "AZURE_STORAGE_CONNECTION_STRING", "VAULT_TOKEN", "OP_SERVICE_ACCOUNT_TOKEN",
	        /* Proxy URLs may contain a password. Origins have a copy. */
	        "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
		forget(names[i]);
}

int ps_mount_options_finish(struct ps_mount_options *o, struct ps_error *err)
{
	char *env = getenv("PENSTOCK_USER_PASSWORD");
	bool to_stderr = o->log && strcmp(o->log, "stderr") == 0;

	if (to_stderr && !o->foreground)
		return ps_error_set(
		        err, EINVAL, "option log: a daemon has no stderr; add -f, or name a file");
	if (!o->user && env && *env) {
		if (!strchr(env, ':') || env[0] == ':')
			return ps_error_set(
			        err, EINVAL, "PENSTOCK_USER_PASSWORD is not of the form NAME:PASSWORD");
		o->user = strdup(env);
		if (!o->user)
			return ps_no_memory(err);
		if (ps_given_add(&o->given, "user", env, err) < 0)
			return -ENOMEM;
	}
	forget("PENSTOCK_USER_PASSWORD");
	return take_environment(o) < 0 ? ps_no_memory(err) : 0;
}

int ps_mount_options_cache_dir(struct ps_mount_options *o, struct ps_error *err)
{
	if (o->cache_dir)
		return 0;
	o->cache_dir = ps_cache_dir_default(err);
	if (!o->cache_dir)
		return -err->err;
	make_parents(o->cache_dir);
	return 0;
}

int ps_mount_options_cache(struct ps_mount_options *o, struct ps_cache_options *ret, struct ps_error *err)
{
	uint64_t limit = 0, disk = 0;
	char asked[PS_SIZE_TEXT_LEN], has[PS_SIZE_TEXT_LEN];
	struct statfs fs;

	if (ps_mount_options_cache_dir(o, err) < 0)
		return -err->err;
	int rc = disk_of(o->cache_dir, &fs);
	const char *what = rc == 0 && o->owner ? no_disk(&fs) : NULL;
	if (what)
		return ps_error_set(err, EINVAL,
		        "cache %s: it would be %s; name a folder on a local disk (PENSTOCK_CACHE_DIR, or "
		        "cache_dir)",
		        o->cache_dir, what);
	if (rc == 0 && __builtin_mul_overflow((uint64_t)fs.f_blocks, (uint64_t)fs.f_frsize, &disk))
		rc = -EOVERFLOW;
	if (rc == 0 && o->min_free > 1 && o->min_free >= disk)
		return ps_error_set(err, EINVAL,
		        "option min-free: %s are to stay free, but the disk of %s has %s in all",
		        ps_size_format(o->min_free, asked), o->cache_dir, ps_size_format(disk, has));
	if (rc == 0 && o->cache_size)
		rc = ps_size_parse_share(o->cache_size, disk, &limit);
	if (rc < 0 && (o->cache_size || o->owner))
		return ps_error_set(err, -rc, "cache %s: %s", o->cache_dir, strerror(-rc));
	if (o->owner && !o->cache_size && (rc = size_for_owners(o->cache_dir, &fs, &limit, err)) < 0)
		return rc;
	*ret = (struct ps_cache_options){
	        .store = {.dir = o->cache_dir,
	                .beside = o->tier_cache,
	                .folder_bytes = limit,
	                .min_free_bytes = o->min_free,
	                .policy = o->policy},
	        .memory_bytes = o->memory,
	        .max_connections = o->max_connections,
	        .max_bytes_per_s = o->max_bandwidth,
	        .timeout_ms = o->timeout_ms,
	        .grant_ttl_ms = o->grant_ttl_ms,
	};
	return 0;
}

void ps_mount_options_dataset(const struct ps_mount_options *o, struct ps_dataset_options *ret)
{
	*ret = (struct ps_dataset_options){
	        .origin = {.http.headers = (const char *const *)o->headers,
	                .http.user_password = o->user,
	                .http.ca_file = trusts_system(o) ? NULL : o->cacert,
	                .http.client_cert = o->client_cert,
	                .http.client_key = o->client_key,
	                .http.client_key_password_file = o->client_key_password_file,
	                .http.proxy = o->proxy,
	                .http.netrc_file = o->netrc_file,
	                .http.insecure = o->insecure,
	                .http.tiers = {.list = o->tier,
	                        .auth = o->tier_auth,
	                        .here = o->tier_cache,
	                        .ca_file = o->tier_cacert,
	                        .cert = o->tier_cert,
	                        .key = o->tier_key,
	                        .verify_ppm = o->tier_verify_ppm},
	                .endpoint = o->endpoint,
	                .region = o->region,
	                .profile = o->profile,
	                .credentials = o->credentials,
	                .no_sign_request = o->no_sign_request,
	                .request_payer = o->request_payer,
	                .pin_versions = o->pin_versions,
	                .follow_redirects = o->follow_redirects,
	                .by_size = o->version_by == PS_VERSION_BY_SIZE,
	                .addressing = o->addressing,
	                .http.env = (const char *const *)o->env},
	        .revalidate_ms = o->revalidate_ms,
	        .raw = o->raw,
	        .whole = o->whole,
	        .checksums = o->checksums,
	        .include = (const char *const *)o->include,
	        .exclude = (const char *const *)o->exclude,
	};
}

char *ps_source_absolute(const char *source)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	if (source[0] == '@' && source[1]) {
		ps_autofree char *path = ps_path_absolute(source + 1);

		if (!path)
			return NULL;
		ps_strbuf_addf(&b, "@%s", path);
		return ps_strbuf_take(&b);
	}
	if (strstr(source, "://") || source[0] == '/')
		return strdup(source);
	/* "photos/" is a folder if there is one; else opening the origin reports what is wrong. */
	struct stat st;
	if (stat(source, &st) < 0 || !S_ISDIR(st.st_mode))
		return strdup(source);
	ps_autofree char *path = ps_path_absolute(source);
	if (!path)
		return NULL;
	ps_strbuf_addf(&b, "%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/");
	return ps_strbuf_take(&b);
}

void ps_source_wipe(char *arg)
{
	ps_autofree char *canonical = ps_source_canonical(arg, NULL);
	size_t room = strlen(arg);

	if (canonical && strlen(canonical) <= room) {
		memset(arg, 0, room);
		memcpy(arg, canonical, strlen(canonical));
	} else {
		ps_cli_wipe(arg);
	}
}
