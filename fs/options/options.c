#include "options/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/secret.h"
#include "base/size.h"
#include "listing/filter.h"
#include "policy/policy.h"

#define HEADERS_MAX 64
#define LEAST_CACHE (16 * PS_MIB)     /* the index takes up to two thirds of so little */
#define LEAST_MEMORY PS_MIB           /* most likely a unit was forgotten */
#define LEAST_BANDWIDTH (64 * PS_KIB) /* a chunk a second; less, and readers run into their timeout */
#define PATTERNS_MAX 64
#define HEADER_FILE_MAX_NBYTES (64 * 1024)

void ps_mount_options_init(struct ps_mount_options *o)
{
	*o = (struct ps_mount_options){.uid = geteuid(),
	        .gid = getegid(),
	        .file_mode = 0444,
	        .dir_mode = 0555,
	        .log_level = PS_LOG_INFO};
}

static void free_patterns(char **patterns)
{
	for (char **p = patterns; p && *p; p++)
		free(*p);
	free(patterns);
}

void ps_mount_options_fini(struct ps_mount_options *o)
{
	for (size_t i = 0; i < o->nheaders; i++)
		ps_secret_free(o->headers[i]);
	free(o->headers);
	ps_secret_free(o->user);
	for (char **e = o->env; e && *e; e++)
		ps_secret_free(*e);
	free(o->env);
	free_patterns(o->include);
	free_patterns(o->exclude);
	ps_given_fini(&o->given);
	free(o->cache_dir);
	free(o->cache_size);
	free(o->policy);
	free(o->cacert);
	free(o->hf_token_file);
	free(o->endpoint);
	free(o->region);
	free(o->profile);
	free(o->client_cert);
	free(o->client_key);
	free(o->client_key_password_file);
	ps_secret_free(o->proxy);
	free(o->netrc_file);
	free(o->gs_credentials);
	free(o->az_sas_file);
	free(o->log);
	*o = (struct ps_mount_options){0};
}

static int least(
        const char *option, const char *value, uint64_t nbytes, uint64_t least_nbytes, struct ps_error *err)
{
	char text[PS_SIZE_TEXT_LEN];

	return nbytes >= least_nbytes ? 0
	                              : ps_error_set(err, EINVAL,
	                                        "option %s: '%s' is too little to work with; the least is %s",
	                                        option, value, ps_size_format(least_nbytes, text));
}

static int set_cache_size(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	uint64_t nbytes = 0;

	if (ps_size_parse_share(value, PS_GIB, &nbytes) < 0 || nbytes == 0)
		return ps_error_set(err, EINVAL,
		        "option cache-size: '%s' is neither a size such as 200G nor a share such as 80%%",
		        value);
	if (!strchr(value, '%') && least("cache-size", value, nbytes, LEAST_CACHE, err) < 0)
		return -EINVAL;
	free(o->cache_size);
	o->cache_size = strdup(value);
	return o->cache_size ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

static int set_memory(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (ps_size_parse(value, &o->memory) < 0)
		return ps_error_set(err, EINVAL, "option memory: '%s' is not a size such as 512M", value);
	return least("memory", value, o->memory, LEAST_MEMORY, err);
}

static int set_max_bandwidth(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (ps_size_parse(value, &o->max_bandwidth) < 0)
		return ps_error_set(err, EINVAL,
		        "option max-bandwidth: '%s' is not a size such as 100M (bytes a second)", value);
	return o->max_bandwidth == 0 ? 0
	                             : least("max-bandwidth", value, o->max_bandwidth, LEAST_BANDWIDTH, err);
}

static int set_min_free(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (ps_size_parse(value, &o->min_free) < 0)
		return ps_error_set(err, EINVAL, "option min-free: '%s' is not a size such as 10G", value);
	if (o->min_free == 0)
		o->min_free = 1; /* 0 is the store's word for its default; a byte is no floor */
	return 0;
}

static int set_policy(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	char names[128] = "";

	if (!ps_policy_find(value)) {
		for (size_t i = 0; ps_policies[i] && ps_policies[i]->name; i++) {
			size_t n = strlen(names);

			snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", ps_policies[i]->name);
		}
		return ps_error_set(err, EINVAL, "option policy: '%s' is none of %s", value, names);
	}
	free(o->policy);
	o->policy = strdup(value);
	return o->policy ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

static int set_revalidate(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (strcmp(value, "never") == 0)
		o->revalidate_ms = UINT64_MAX;
	else if (strcmp(value, "open") == 0)
		o->revalidate_ms = 1;
	else if (ps_time_parse(value, &o->revalidate_ms) < 0 || o->revalidate_ms == 0)
		return ps_error_set(err, EINVAL,
		        "option revalidate: '%s' is neither 'never', 'open' nor a time such as 1h", value);
	return 0;
}

static int set_grant_ttl(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (strcmp(value, "open") == 0)
		o->grant_ttl_ms = PS_GRANT_TTL_OPEN_MS;
	else if (ps_time_parse(value, &o->grant_ttl_ms) < 0 || o->grant_ttl_ms == 0)
		return ps_error_set(err, EINVAL, "option grant-ttl: '%s' is neither 'open' nor a time such as 15m", value);
	return 0;
}

static int add_header(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	size_t name = strcspn(value, ":");
	bool good = name > 0 && value[name] == ':';

	for (const char *s = value; *s; s++)
		good = good && (unsigned char)*s >= ' ' && *s != 0x7f && (s >= value + name || *s != ' ');
	if (!good)
		return ps_error_set(err, EINVAL, "option header: not of the form 'Name: value'");
	if (o->nheaders >= HEADERS_MAX)
		return ps_error_set(err, EINVAL, "option header: more than %d of them", HEADERS_MAX);
	char **headers = realloc(o->headers, (o->nheaders + 2) * sizeof *headers);
	if (headers)
		o->headers = headers;
	char *copy = headers ? strdup(value) : NULL;
	if (!copy)
		return ps_error_set(err, ENOMEM, "out of memory");
	o->headers[o->nheaders++] = copy;
	o->headers[o->nheaders] = NULL;
	return 0;
}

static int add_pattern(char ***list, const char *option, const char *value, struct ps_error *err)
{
	const char *const both[] = {value, NULL};
	struct ps_filter *filter = NULL;
	size_t n = 0;

	if (ps_filter_new(both, NULL, &filter, err) < 0)
		return ps_error_prefix(err, "option %s", option);
	ps_filter_free(filter);
	while (*list && (*list)[n])
		n++;
	if (n >= PATTERNS_MAX)
		return ps_error_set(err, EINVAL, "option %s: more than %d of them", option, PATTERNS_MAX);
	char **more = realloc(*list, (n + 2) * sizeof *more);
	if (more) {
		*list = more;
		more[n + 1] = NULL;
		more[n] = strdup(value);
	}
	return more && more[n] ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

static int add_include(void *ctx, const char *value, struct ps_error *err)
{
	return add_pattern(&((struct ps_mount_options *)ctx)->include, "include", value, err);
}

static int add_exclude(void *ctx, const char *value, struct ps_error *err)
{
	return add_pattern(&((struct ps_mount_options *)ctx)->exclude, "exclude", value, err);
}

static int set_refresh(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (ps_time_parse(value, &o->refresh_ms) < 0 || o->refresh_ms < 1000)
		return ps_error_set(err, EINVAL, "option refresh: '%s' is not a time of a second or more, such as 10m", value);
	return 0;
}

static int add_header_file(void *ctx, const char *value, struct ps_error *err)
{
	static const struct ps_secret_file kind = {
	        .what = "option header-file:", .max_nbytes = HEADER_FILE_MAX_NBYTES, .may_be_pipe = true};
	ps_autosecret char *text = NULL;
	char *save = NULL;
	size_t n = 0;
	int rc = ps_secret_file_read(value, &kind, &text, &n, err);

	if (rc < 0)
		return rc;
	for (char *line = strtok_r(text, "\r\n", &save); line && rc == 0;
	        line = strtok_r(NULL, "\r\n", &save))
		if (line[0] != '#' && line[strspn(line, " \t")]) {
			rc = add_header(ctx, line, err);
			if (rc == 0)
				rc = ps_given_add(
				        &((struct ps_mount_options *)ctx)->given, "header", line, err);
		}
	explicit_bzero(text, n);
	if (rc < 0)
		ps_error_prefix(err, "%s", value);
	return rc;
}

static int set_user(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (!strchr(value, ':') || value[0] == ':')
		return ps_error_set(err, EINVAL, "option user: not of the form NAME:PASSWORD");
	char *copy = strdup(value);
	if (!copy)
		return ps_error_set(err, ENOMEM, "out of memory");
	ps_secret_free(o->user);
	o->user = copy;
	return 0;
}

/* The largest id is -1, which means "no change" to chown and friends. */
static int parse_id(const char *value, uint32_t *ret_id)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(value, &end, 10);
	if (errno || *end || !isdigit((unsigned char)value[0]) || n >= UINT32_MAX)
		return -EINVAL;
	*ret_id = (uint32_t)n;
	return 0;
}

static int set_uid(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	const struct passwd *pw;

	if (parse_id(value, &o->uid) == 0)
		return 0;
	pw = getpwnam(value);
	if (!pw)
		return ps_error_set(err, EINVAL, "option uid: no user '%s'", value);
	o->uid = pw->pw_uid;
	return 0;
}

static int set_gid(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	const struct group *gr;

	if (parse_id(value, &o->gid) == 0)
		return 0;
	gr = getgrnam(value);
	if (!gr)
		return ps_error_set(err, EINVAL, "option gid: no group '%s'", value);
	o->gid = gr->gr_gid;
	return 0;
}

static int set_log(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;
	bool word = strcmp(value, "stderr") == 0 || strcmp(value, "syslog") == 0;

	if (!*value)
		return ps_error_set(err, EINVAL, "option log: stderr, syslog or a file");
	char *copy = word ? strdup(value) : ps_path_absolute(value);
	if (!copy)
		return ps_error_set(err, ENOMEM, "out of memory");
	free(o->log);
	o->log = copy;
	return 0;
}

static int set_log_level(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	if (ps_log_level_parse(value, &o->log_level) < 0)
		return ps_error_set(
		        err, EINVAL, "option log-level: '%s' is none of error, warning, info, debug", value);
	return 0;
}

/* The place of a value among three; -EINVAL. */
static int one_of(const char *option, const char *value, const char *const names[static 3], struct ps_error *err)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(value, names[i]) == 0)
			return i;
	return ps_error_set(err, EINVAL, "option %s: '%s' is none of %s, %s, %s", option, value, names[0], names[1],
	        names[2]);
}

static int set_cold_reads(void *ctx, const char *value, struct ps_error *err)
{
	static const char *const names[] = {"auto", "direct", "cached"}; /* enum ps_cold_reads */
	int i = one_of("cold-reads", value, names, err);

	if (i >= 0)
		((struct ps_mount_options *)ctx)->cold_reads = (enum ps_cold_reads)i;
	return PS_MIN(i, 0);
}

static int set_missing(void *ctx, const char *value, struct ps_error *err)
{
	struct ps_mount_options *o = ctx;

	o->missing_fail = strcmp(value, "fail") == 0;
	return o->missing_fail || strcmp(value, "warn") == 0
	               ? 0
	               : ps_error_set(err, EINVAL, "option missing: '%s' is none of fail, warn", value);
}

static int set_addressing(void *ctx, const char *value, struct ps_error *err)
{
	static const char *const names[] = {"auto", "path", "virtual"}; /* enum ps_s3_addressing */
	int i = one_of("addressing-style", value, names, err);

	if (i >= 0)
		((struct ps_mount_options *)ctx)->addressing = (enum ps_s3_addressing)i;
	return PS_MIN(i, 0);
}

#define FIELD(name) offsetof(struct ps_mount_options, name)

const struct ps_opt ps_options_source[] = {
        {"cache-dir", 0, PS_OPT_PATH, FIELD(cache_dir), "DIR", "folder of the cache, made if missing",
                PS_OPT_LOCAL},
        {"cache-size", 0, PS_OPT_CALL, 0, "SIZE|SHARE", "most bytes in it: 200G, 80% [80% of the disk]",
                PS_OPT_SHARED, set_cache_size},
        {"min-free", 0, PS_OPT_CALL, 0, "SIZE", "leave so much of the disk free [1G, at most 5%]",
                PS_OPT_SHARED, set_min_free},
        {"policy", 0, PS_OPT_CALL, 0, "plan|scan|lru", "what goes when room is needed [plan]", PS_OPT_SHARED,
                set_policy},
        {"memory", 0, PS_OPT_CALL, 0, "SIZE", "data in flight [512M, at most 1/8 of the cgroup's limit]",
                PS_OPT_SHARED, set_memory},
        {"timeout", 0, PS_OPT_TIME, FIELD(timeout_ms), "TIME", "a read fails after so long [60s]",
                PS_OPT_SHARED},
        {"revalidate", 0, PS_OPT_CALL, 0, "TIME|never|open", "how long a version counts as current [1h]", 0,
                set_revalidate},
        {"grant-ttl", 0, PS_OPT_CALL, 0, "TIME|open", "how long the origin's word that one may read holds [15m]",
                PS_OPT_SHARED, set_grant_ttl},
        {"max-connections", 0, PS_OPT_COUNT, FIELD(max_connections), "N",
                "most connections to one origin [64]", PS_OPT_SHARED},
        {"max-bandwidth", 0, PS_OPT_CALL, 0, "SIZE", "bytes a second from all origins [no limit]",
                PS_OPT_SHARED, set_max_bandwidth},
        {"header", 0, PS_OPT_CALL, 0, "'NAME: VALUE'", "send this HTTP header; may be given again",
                PS_OPT_SECRET, add_header},
        {"header-file", 0, PS_OPT_CALL, 0, "FILE", "send the HTTP headers in FILE, one a line", PS_OPT_LOCAL,
                add_header_file},
        {"user", 0, PS_OPT_CALL, 0, "NAME:PASSWORD", "basic authentication; or set PENSTOCK_USER_PASSWORD",
                PS_OPT_SECRET, set_user},
        {"cacert", 0, PS_OPT_PATH, FIELD(cacert), "FILE", "trust these certificates instead of the system's"},
        {"client-cert", 0, PS_OPT_PATH, FIELD(client_cert), "FILE",
                "certificate to show to the origin, PEM or PKCS#12 (.p12)"},
        {"client-key", 0, PS_OPT_PATH, FIELD(client_key), "FILE", "its key [in the same file]"},
        {"client-key-password-file", 0, PS_OPT_PATH, FIELD(client_key_password_file), "FILE",
                "the password of that key"},
        {"proxy", 0, PS_OPT_STRING, FIELD(proxy), "URL|none",
                "ask through this proxy [http_proxy, https_proxy]", PS_OPT_SECRET},
        {"netrc-file", 0, PS_OPT_PATH, FIELD(netrc_file), "FILE",
                "user and password by host [$NETRC or ~/.netrc]"},
        {"hf-token-file", 0, PS_OPT_PATH, FIELD(hf_token_file), "FILE",
                "token of the Hugging Face Hub [HF_TOKEN, or where hf auth login puts it]"},
        {"insecure", 0, PS_OPT_FLAG, FIELD(insecure), NULL, "do not verify TLS certificates"},
        {"endpoint", 0, PS_OPT_STRING, FIELD(endpoint), "URL",
                "where a store is [Amazon, or AWS_ENDPOINT_URL_S3]"},
        {"region", 0, PS_OPT_STRING, FIELD(region), "NAME", "of the bucket [AWS_REGION, else asked for]"},
        {"profile", 0, PS_OPT_STRING, FIELD(profile), "NAME",
                "of ~/.aws/credentials and config [AWS_PROFILE]"},
        {"gs-credentials", 0, PS_OPT_PATH, FIELD(gs_credentials), "FILE",
                "JSON key of a service account or user [GOOGLE_APPLICATION_CREDENTIALS]"},
        {"az-sas-file", 0, PS_OPT_PATH, FIELD(az_sas_file), "FILE",
                "shared access signature for az:// [AZURE_STORAGE_SAS_TOKEN]"},
        {"no-sign-request", 0, PS_OPT_FLAG, FIELD(no_sign_request), NULL,
                "a public bucket: use no credentials"},
        {"follow-redirects", 0, PS_OPT_FLAG, FIELD(follow_redirects), NULL,
                "follow an S3 store's redirects to other hosts, without credentials"},
        {"request-payer", 0, PS_OPT_FLAG, FIELD(request_payer), NULL,
                "pay for what is read of another's bucket"},
        {"addressing-style", 0, PS_OPT_CALL, 0, "auto|path|virtual",
                "buckets by path, or as virtual hosts [auto]", 0, set_addressing},
        {"pin-versions", 0, PS_OPT_FLAG, FIELD(pin_versions), NULL,
                "read the versions that the bucket had when it was listed"},
        {"include", 0, PS_OPT_CALL, 0, "PATTERN", "show these files alone; may be given again", 0, add_include},
        {"exclude", 0, PS_OPT_CALL, 0, "PATTERN", "do not show these files; may be given again", 0, add_exclude},
        {"raw", 0, PS_OPT_FLAG, FIELD(raw), NULL, "show x.tar.zst, .gz and .lz4 as they are, not as x.tar"},
        {0},
};

const struct ps_opt ps_options_mount[] = {
        {"uid", 0, PS_OPT_CALL, 0, "USER", "owner of all files [you]", PS_OPT_LOCAL, set_uid},
        {"gid", 0, PS_OPT_CALL, 0, "GROUP", "group of all files [yours]", PS_OPT_LOCAL, set_gid},
        {"file-mode", 0, PS_OPT_MODE, FIELD(file_mode), "MODE", "permissions of files [0444]"},
        {"dir-mode", 0, PS_OPT_MODE, FIELD(dir_mode), "MODE", "permissions of folders [0555]"},
        {"allow_other", 0, PS_OPT_FLAG, FIELD(allow_other), NULL, "let other users in"},
        {"nonempty", 0, PS_OPT_FLAG, FIELD(nonempty), NULL, "mount over a folder that holds files"},
        {"missing", 0, PS_OPT_CALL, 0, "fail|warn", "when listed files are not at the origin [warn]", 0,
                set_missing},
        {"refresh", 0, PS_OPT_CALL, 0, "INTERVAL", "list the source again so often: 10m, 1h [never]", 0, set_refresh},
        {"no-passthrough", 0, PS_OPT_FLAG, FIELD(no_passthrough), NULL,
                "read complete files through the daemon, not straight from the cache"},
        {"cold-reads", 0, PS_OPT_CALL, 0, "auto|direct|cached",
                "how to read what is not in the cache yet [auto]", 0, set_cold_reads},
        {"log", 0, PS_OPT_CALL, 0, "stderr|syslog|FILE", "where to [syslog; stderr with -f]", PS_OPT_SHARED,
                set_log},
        {"log-level", 0, PS_OPT_CALL, 0, "error|warning|info|debug", "how much [info]", PS_OPT_SHARED,
                set_log_level},
        {"foreground", 'f', PS_OPT_FLAG, FIELD(foreground), NULL, "stay in the foreground", PS_OPT_CLI_ONLY},
        {0},
};

const struct ps_opt *ps_options_find(const char *name)
{
	static const struct ps_opts all = {.tables = {ps_options_source, ps_options_mount}};

	return ps_opts_find(&all, name);
}

/* Words of mount(8) and fstab that say nothing to us: either always true here, or for others. */
static const char *const ignored[] = {"ro", "defaults", "auto", "noauto", "nofail", "_netdev", "user",
        "users", "nouser", "owner", "group", "noowner", "nogroup", "nosuid", "nodev", "noexec", "exec",
        "atime", "noatime", "relatime", "norelatime", "strictatime", "lazytime", "nodiratime", "async",
        "sync", "default_permissions", "intr", "comment"};
/* mount(8) adds these for us when nobody asked for "ro"; the mount is what it is all the same. */
static const char *const lenient[] = {"rw", "suid", "dev"};

int ps_options_generic(void *ctx, const char *name, const char *value, struct ps_error *err)
{
	const struct ps_mount_options *o = ctx;

	(void)value;
	for (size_t i = 0; i < PS_ARRAY_LEN(ignored); i++)
		if (strcmp(name, ignored[i]) == 0)
			return 0;
	if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0)
		return 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(lenient); i++) {
		if (strcmp(name, lenient[i]) == 0)
			return o->lenient ? 0
			                  : ps_error_set(err, EINVAL,
			                            "option %s: the mount is read-only, nosuid and nodev; "
			                            "leave it out",
			                            name);
	}
	return -ENOENT;
}
