#include "options/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/secret.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/url.h"
#include "listing/listing.h"
#include "policy/policy.h"

#define HEADERS_MAX 64
#define JOBS_DEFAULT 8
#define WATCH_DEFAULT_MS 2000
#define WATCH_LEAST_MS 100
#define COUNT_MAX 65536
#define REFRESH_LEAST_MS 1000
#define LEAST_CACHE (16 * PS_MIB)     /* the index takes up to two thirds of a cache this small */
#define LEAST_MEMORY PS_MIB           /* a smaller value most likely lacks its unit */
#define LEAST_BANDWIDTH (64 * PS_KIB) /* a chunk a second; with less, readers run into their timeout */
#define PATTERNS_MAX 64

void ps_mount_options_init(struct ps_mount_options *o)
{
	*o = (struct ps_mount_options){.uid = geteuid(),
	        .gid = getegid(),
	        .file_mode = 0444,
	        .dir_mode = 0555,
	        .log_level = PS_LOG_INFO,
	        .missing = PS_MISSING_WARN,
	        .jobs = JOBS_DEFAULT};
}

static void free_patterns(char **patterns)
{
	for (char **p = patterns; p && *p; p++)
		free(*p);
	free(patterns);
}

void ps_mount_options_fini(struct ps_mount_options *o)
{
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		char **text = (char **)(void *)((char *)o + opt->offset);

		if (opt->kind == PS_OPT_STRING || opt->kind == PS_OPT_PATH)
			ps_secret_free(*text);
	}
	/* The fields that are set by call(). */
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
	free(o->cache_size);
	free(o->policy);
	free(o->security);
	free(o->cacert);
	free(o->tier);
	free(o->log);
	*o = (struct ps_mount_options){0};
}

/* Given options ------------------------------------------------------------------------------------------ */

int ps_given_add(struct ps_given *given, const char *name, const char *value, struct ps_error *err)
{
	void *v = reallocarray(given->v, given->n + 1, sizeof(*given->v));
	ps_autofree char *name_copy = strdup(name), *value_copy = value ? strdup(value) : NULL;

	if (v)
		given->v = v;
	if (!v || !name_copy || (value && !value_copy))
		return ps_no_memory(err);
	given->v[given->n].name = ps_steal_ptr(&name_copy);
	given->v[given->n++].value = ps_steal_ptr(&value_copy);
	return 0;
}

void ps_given_fini(struct ps_given *given)
{
	for (size_t i = 0; i < given->n; i++) {
		ps_secret_free(given->v[i].value);
		free(given->v[i].name);
	}
	free(given->v);
	*given = (struct ps_given){0};
}

char *ps_path_absolute(const char *path)
{
	if (path[0] == '/')
		return strdup(path);
	ps_autofree char *cwd = getcwd(NULL, 0);
	if (!cwd)
		return NULL;
	ps_autostrbuf struct ps_strbuf b = {0};
	while (strncmp(path, "./", 2) == 0)
		path += 2;
	ps_strbuf_addf(&b, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, strcmp(path, ".") == 0 ? "" : path);
	return ps_strbuf_take(&b);
}

/* Values of single options ------------------------------------------------------------------------------- */

/* Replaces a text, which may be secret, by one that malloc() has made; NULL: out of memory. */
static int replace(char **text, char *by, struct ps_error *err)
{
	if (!by)
		return ps_no_memory(err);
	ps_secret_free(*text);
	*text = by;
	return 0;
}

static int set_cache_size(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	uint64_t nbytes = 0;
	char least[PS_SIZE_TEXT_LEN];

	if (ps_size_parse_share(value, PS_GIB, &nbytes) < 0 || nbytes == 0)
		return ps_error_set(err, EINVAL,
		        "option cache-size: '%s' is neither a size such as 200G nor a share such as 80%%",
		        value);
	if (!strchr(value, '%') && nbytes < LEAST_CACHE)
		return ps_error_set(err, EINVAL, "option cache-size: '%s' is too small; the minimum is %s",
		        value, ps_size_format(LEAST_CACHE, least));
	return replace(&o->cache_size, strdup(value), err);
}

static int set_min_free(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (ps_size_parse(value, &o->min_free) < 0)
		return ps_error_set(err, EINVAL, "option min-free: '%s' is not a size such as 10G", value);
	if (o->min_free == 0)
		o->min_free = 1; /* to the store, 0 means its default; 1 byte is in effect no limit */
	return 0;
}

static int set_policy(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	char names[128] = "";

	if (strcmp(value, "scan") == 0) /* of a mount of 0.3 */
		value = PS_POLICY_DEFAULT;
	if (!ps_policy_find(value)) {
		for (size_t i = 0; ps_policies[i] && ps_policies[i]->name; i++) {
			size_t n = strlen(names);

			snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "", ps_policies[i]->name);
		}
		return ps_error_set(err, EINVAL, "option policy: '%s' is none of %s", value, names);
	}
	return replace(&o->policy, strdup(value), err);
}

static int set_revalidate(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (strcmp(value, "never") == 0)
		o->revalidate_ms = UINT64_MAX;
	else if (strcmp(value, "open") == 0)
		o->revalidate_ms = 1;
	else if (ps_time_parse(value, &o->revalidate_ms) < 0 || o->revalidate_ms == 0)
		return ps_error_set(err, EINVAL,
		        "option revalidate: '%s' is neither 'never', 'open' nor a time such as 1h", value);
	return 0;
}

static int set_grant_ttl(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (strcmp(value, "open") == 0)
		o->grant_ttl_ms = PS_GRANT_TTL_OPEN_MS;
	else if (ps_time_parse(value, &o->grant_ttl_ms) < 0 || o->grant_ttl_ms == 0)
		return ps_error_set(err, EINVAL,
		        "option grant-ttl: '%s' is neither 'open' nor a time such as 15m", value);
	return 0;
}

/* Appends to a list of n texts and a NULL. */
static int append(char ***list, size_t n, const char *value, struct ps_error *err)
{
	char **more = realloc(*list, (n + 2) * sizeof(*more));

	if (!more)
		return ps_no_memory(err);
	*list = more;
	more[n + 1] = NULL;
	more[n] = strdup(value);
	return more[n] ? 0 : ps_no_memory(err);
}

static int add_header(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	size_t name = strcspn(value, ":");
	bool good = name > 0 && value[name] == ':';

	for (const char *s = value; *s; s++)
		good = good && (unsigned char)*s >= ' ' && *s != 0x7f && (s >= value + name || *s != ' ');
	if (!good)
		return ps_error_set(err, EINVAL, "option header: not of the form 'Name: value'");
	if (o->nheaders >= HEADERS_MAX)
		return ps_error_set(err, EINVAL, "option header: given more than %d times", HEADERS_MAX);
	int rc = append(&o->headers, o->nheaders, value, err);
	o->nheaders += rc == 0;
	return rc;
}

static int add_pattern(char ***list, const char *option, const char *value, struct ps_error *err)
{
	const char *const both[] = {value, NULL};
	struct ps_listing_filter *filter = NULL;
	size_t n = 0;

	int rc = ps_listing_filter_new(both, NULL, &filter, err);
	if (rc < 0)
		return ps_error_prefix(err, rc, "option %s", option);
	ps_listing_filter_free(filter);
	while (*list && (*list)[n])
		n++;
	if (n >= PATTERNS_MAX)
		return ps_error_set(err, EINVAL, "option %s: given more than %d times", option, PATTERNS_MAX);
	return append(list, n, value, err);
}

static int add_include(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	return add_pattern(&o->include, "include", value, err);
}

static int add_exclude(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	return add_pattern(&o->exclude, "exclude", value, err);
}

/* The options of 0.3 that --credentials has replaced. */
static int set_old_credentials(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	return replace(&o->credentials, strdup(value), err);
}

static int set_user(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (!strchr(value, ':') || value[0] == ':')
		return ps_error_set(err, EINVAL, "option user: not of the form NAME:PASSWORD");
	return replace(&o->user, strdup(value), err);
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

static int set_uid(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	const struct passwd *pw;

	if (parse_id(value, &o->uid) == 0)
		return 0;
	pw = getpwnam(value);
	if (!pw)
		return ps_error_set(err, EINVAL, "option uid: no user '%s'", value);
	o->uid = pw->pw_uid;
	return 0;
}

static int set_gid(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	const struct group *gr;

	if (parse_id(value, &o->gid) == 0)
		return 0;
	gr = getgrnam(value);
	if (!gr)
		return ps_error_set(err, EINVAL, "option gid: no group '%s'", value);
	o->gid = gr->gr_gid;
	return 0;
}

/* The path in @FILE is made absolute: the daemon has another working directory. */
static int set_tier(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autostrbuf struct ps_strbuf b = {0};

	if (value[0] == '@') {
		ps_autofree char *path = value[1] ? ps_path_absolute(value + 1) : NULL;

		if (!path)
			return ps_error_set(
			        err, value[1] ? ENOMEM : EINVAL, "option tier: @FILE names no file");
		ps_strbuf_addf(&b, "@%s", path);
	} else if (!strstr(value, "://")) {
		return ps_error_set(err, EINVAL,
		        "option tier: '%.100s' is neither a list of URLs such as http://10.0.0.7:8080, nor "
		        "@FILE, nor "
		        "dns+http://NAME:PORT",
		        ps_url_redact(value, safe));
	} else {
		ps_strbuf_add(&b, value);
	}
	return replace(&o->tier, ps_strbuf_take(&b), err);
}

static int set_tier_auth(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (value && strcmp(value, "cleartext") != 0)
		return ps_error_set(err, EINVAL, "option tier-auth: '%s' is not cleartext", value);
	o->tier_auth = value ? PS_TIER_AUTH_CLEARTEXT : PS_TIER_AUTH_PROTECTED;
	return 0;
}

/* "0.1%" */
static int set_tier_verify(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	char *end;
	double percent = strtod(value, &end);

	if (!isdigit((unsigned char)value[0]) || strcmp(end, "%") != 0 || !(percent >= 0 && percent <= 1))
		return ps_error_set(err, EINVAL,
		        "option tier-verify: '%s' is not a share from 0%% to 1%%, such as 0.1%%", value);
	o->tier_verify_ppm = (unsigned)(percent * 10000 + 0.5);
	return 0;
}

/* The words of --members; alone it means "yes". */
static int set_members(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	static const char *const words[] = {[PS_SHOW_SHARDS] = "no",
	        [PS_SHOW_MEMBERS] = "yes",
	        [PS_SHOW_MEMBERS_MERGED] = "merge",
	        [PS_SHOW_BOTH] = "both"};

	for (unsigned i = 0; i < PS_ARRAY_LEN(words); i++) {
		if (strcmp(value ? value : "yes", words[i]) == 0) {
			o->members = (enum ps_show_members)i;
			return 0;
		}
	}
	return ps_error_set(err, EINVAL, "option members: '%s' is none of yes, merge, both, no", value);
}

static int set_log(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	bool word = strcmp(value, "stderr") == 0 || strcmp(value, "syslog") == 0;

	if (!*value)
		return ps_error_set(
		        err, EINVAL, "option log: the value is empty; give stderr, syslog or a file");
	return replace(&o->log, word ? strdup(value) : ps_path_absolute(value), err);
}

/* "system" is no file: the system's certificates, whatever the environment names. */
static int set_cacert(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	if (!*value)
		return ps_error_set(err, EINVAL, "option cacert: the value is empty; give a file, or system");
	bool word = strcmp(value, PS_CACERT_SYSTEM) == 0;
	return replace(&o->cacert, word ? strdup(value) : ps_path_absolute(value), err);
}

int ps_options_watch(struct ps_mount_options *o, const char *value, struct ps_error *err)
{
	o->watch = true;
	o->watch_ms = WATCH_DEFAULT_MS;
	if (value && (ps_time_parse(value, &o->watch_ms) < 0 || o->watch_ms < WATCH_LEAST_MS ||
	                     o->watch_ms > INT32_MAX))
		return ps_error_set(err, EINVAL, "option watch: '%s' is not a time such as 2s", value);
	return 0;
}

#define FIELD(name) .offset = offsetof(struct ps_mount_options, name)
#define FLAG(name) PS_OPT_FLAG, FIELD(name)
#define STRING(name, what) PS_OPT_STRING, FIELD(name), .arg = (what)
#define PATH(name, what) PS_OPT_PATH, FIELD(name), .arg = (what)
#define CALL(fn, what) PS_OPT_CALL, .call = (fn), .arg = (what)
#define WORD(name, words) PS_OPT_WORD, FIELD(name), .arg = (words)

/* An option's scope and commands. */
#define COMMANDS(bits) .scope = PS_SCOPE_COMMAND, .commands = (bits)
#define DAEMON .scope = PS_SCOPE_DAEMON, .commands = PS_CMD_MOUNT | PS_CMD_WARM
#define SOURCE .scope = PS_SCOPE_SOURCE, .commands = PS_CMD_MOUNT | PS_CMD_WARM
#define SOURCE_OF(which) SOURCE, .kinds = PS_KIND_##which
#define MOUNT .scope = PS_SCOPE_MOUNT, .commands = PS_CMD_MOUNT
#define CACHE_COMMANDS                                                                                \
	(PS_CMD_MOUNT | PS_CMD_WARM | PS_CMD_STATUS | PS_CMD_METRICS | PS_CMD_VERIFY | PS_CMD_EVICT | \
	        PS_CMD_PIN | PS_CMD_UNPIN | PS_CMD_UPGRADE)

/* In the order of --help. */
const struct ps_opt ps_options[] = {
        {"lazy", 'l', FLAG(lazy), COMMANDS(PS_CMD_UMOUNT),
                .help = "detach the mount now; programs can continue to read open files"},
        {"force", 0, FLAG(force), COMMANDS(PS_CMD_UMOUNT),
                .help = "end all use immediately, even if the daemon does not answer"},
        {"all", 'a', FLAG(all), COMMANDS(PS_CMD_MOUNT | PS_CMD_UMOUNT), .flags = PS_OPT_CLI_ONLY,
                .help = "mount everything that penstock.conf(5) names"},
        {"config", 0, PATH(config, "FILE"), COMMANDS(PS_CMD_MOUNT | PS_CMD_UMOUNT),
                .help = "read this file instead of ~/.config/penstock.conf or /etc/penstock.conf"},
        {"jobs", 'j', PS_OPT_COUNT, FIELD(jobs), COMMANDS(PS_CMD_WARM), .arg = "N", .most = COUNT_MAX,
                .def = "8", .flags = PS_OPT_CLI_ONLY, .help = "how many files to fetch at the same time"},
        {"quiet", 'q', FLAG(quiet), COMMANDS(PS_CMD_WARM), .flags = PS_OPT_CLI_ONLY,
                .help = "print no progress and no summary"},
        {"job", 0, STRING(job, "NAME"), COMMANDS(PS_CMD_PLAN),
                .help = "the name of the plan in penstock status; plan-PID by default"},
        {"list", 0, FLAG(list), COMMANDS(PS_CMD_PIN),
                .help = "pin nothing, and list the pinned files, of all mounts by default"},
        {"json", 0, FLAG(json), COMMANDS(PS_CMD_STATUS | PS_CMD_VERIFY | PS_CMD_PIN), .help = "print JSON"},
        {"output", 0, PATH(output, "FILE"), COMMANDS(PS_CMD_METRICS),
                .help = "replace this file atomically, for node_exporter's textfile collector"},
        {"listen", 0, STRING(listen, "[ADDRESS:]PORT"), COMMANDS(PS_CMD_METRICS),
                .help = "serve the figures over HTTP at /metrics; the default address is 127.0.0.1"},
        {"watch", 'w', CALL(ps_options_watch, "SECONDS"), COMMANDS(PS_CMD_STATUS), .def = "2",
                .flags = PS_OPT_OPTIONAL, .help = "repeat at this interval, with rates"},
        {"check", 0, FLAG(check), COMMANDS(PS_CMD_STATUS),
                .help = "print one line for monitoring, and exit with a status of Nagios (0 to 3)"},

        {"cache-dir", 0, PATH(cache_dir, "DIR"), .scope = PS_SCOPE_CACHE, .commands = CACHE_COMMANDS,
                .flags = PS_OPT_LOCAL,
                .help = "the cache folder; created if it does not exist, but not its parents"},
        {"cache-size", 0, CALL(set_cache_size, "SIZE|SHARE"), DAEMON, .def = "80% of the disk",
                .help = "maximum size of the cache, such as 200G"},
        {"tier-cache", 0, PATH(tier_cache, "DIR"), DAEMON,
                .help = "folder of this node's own tier; its data counts towards --cache-size"},
        {"min-free", 0, CALL(set_min_free, "SIZE"), DAEMON, .def = "1G, at most 5%",
                .help = "keep this much of the disk free"},
        {"policy", 0, CALL(set_policy, "plan|lru"), DAEMON, .def = "plan", .help = "the eviction policy",
                .went = "plan does the same for files that no plan names", .went_value = "scan"},
        {"memory", 0, PS_OPT_SIZE, FIELD(memory), DAEMON, .arg = "SIZE", .least = LEAST_MEMORY,
                .form = "a size such as 512M", .def = "512M, at most 1/8 of the cgroup's limit",
                .help = "memory for data in flight"},
        {"timeout", 0, PS_OPT_TIME, FIELD(timeout_ms), DAEMON, .arg = "TIME", .def = "60s",
                .help = "how long a read can take before it fails"},
        {"revalidate", 0, CALL(set_revalidate, "TIME|never|open"), SOURCE, .def = "1h",
                .help = "how long a version of a file counts as current"},
        {"grant-ttl", 0, CALL(set_grant_ttl, "TIME|open"), DAEMON, .def = "15m",
                .help = "how long the origin's permission to read a file is valid"},
        {"max-connections", 0, PS_OPT_COUNT, FIELD(max_connections), DAEMON, .arg = "N", .most = COUNT_MAX,
                .def = "64", .help = "maximum number of concurrent requests to one origin"},
        {"max-bandwidth", 0, PS_OPT_SIZE, FIELD(max_bandwidth), DAEMON, .arg = "SIZE",
                .least = LEAST_BANDWIDTH, .flags = PS_OPT_ZERO,
                .form = "a size such as 100M (bytes a second)", .def = "no limit",
                .help = "maximum bytes per second from all origins"},
        {"header", 0, CALL(add_header, "'NAME: VALUE'|@FILE"), SOURCE_OF(REMOTE),
                .flags = PS_OPT_SECRET | PS_OPT_AGAIN | PS_OPT_LINES,
                .help = "send this HTTP header, or those in FILE, one per line; can be repeated"},
        {"user", 0, CALL(set_user, "NAME:PASSWORD"), SOURCE_OF(REMOTE), .flags = PS_OPT_SECRET,
                .help = "use basic authentication; or set PENSTOCK_USER_PASSWORD"},
        {"cacert", 0, CALL(set_cacert, "FILE|system"), FIELD(cacert), SOURCE_OF(REMOTE), .flags = PS_OPT_MADE,
                .help = "trust these certificates; system ignores those that the environment names"},
        {"client-cert", 0, PATH(client_cert, "FILE"), SOURCE_OF(REMOTE),
                .help = "client certificate for the origin, PEM or PKCS#12 (.p12)"},
        {"client-key", 0, PATH(client_key, "FILE"), SOURCE_OF(REMOTE), .def = "in the same file",
                .help = "key of that certificate"},
        {"proxy", 0, STRING(proxy, "URL|none"), SOURCE_OF(REMOTE), .flags = PS_OPT_SECRET,
                .def = "http_proxy, https_proxy", .help = "connect through this proxy"},
        {"netrc-file", 0, PATH(netrc_file, "FILE"), SOURCE_OF(REMOTE), .def = "$NETRC or ~/.netrc",
                .help = "users and passwords by host"},
        {"tier", 0, CALL(set_tier, "URL,...|@FILE|dns+URL"), FIELD(tier), SOURCE_OF(TIERED),
                .flags = PS_OPT_MADE,
                .help = "fetch data through these HTTP caches, and from the origin if they fail"},
        {"tier-auth", 0, CALL(set_tier_auth, "cleartext"), SOURCE_OF(TIERED), .flags = PS_OPT_OPTIONAL,
                .help = "send secrets to tiers on this host or over mTLS; cleartext: to all tiers"},
        {"tier-cacert", 0, PATH(tier_cacert, "FILE"), SOURCE_OF(TIERED), .def = "the system's",
                .help = "trust these certificates for https:// tiers"},
        {"tier-cert", 0, PATH(tier_cert, "FILE"), SOURCE_OF(TIERED),
                .help = "client certificate for https:// tiers"},
        {"tier-key", 0, PATH(tier_key, "FILE"), SOURCE_OF(TIERED), .def = "in the same file",
                .help = "key of that certificate"},
        {"tier-verify", 0, CALL(set_tier_verify, "SHARE"), SOURCE_OF(TIERED), .def = "0%",
                .help = "compare this share of the bytes from tiers with the origin, such as 0.1%"},
        {"credentials", 0, PATH(credentials, "FILE"), SOURCE_OF(CREDENTIALS), .flags = PS_OPT_ONE_KIND,
                .def = "the environment",
                .help = "file with the JSON key (gs://), SAS (az://) or token (hf://)"},
        {"insecure", 0, FLAG(insecure), SOURCE_OF(REMOTE),
                .help = "do not verify TLS certificates of the origin"},
        {"endpoint", 0, STRING(endpoint, "URL"), SOURCE_OF(STORES), .def = "Amazon, or AWS_ENDPOINT_URL_S3",
                .help = "address of the store"},
        {"region", 0, STRING(region, "NAME"), SOURCE_OF(BUCKETS), .def = "AWS_REGION, or the store names it",
                .help = "region of the bucket"},
        {"profile", 0, STRING(profile, "NAME"), SOURCE_OF(BUCKETS), .def = "AWS_PROFILE",
                .help = "profile in ~/.aws/credentials and ~/.aws/config"},
        {"no-sign-request", 0, FLAG(no_sign_request), SOURCE_OF(STORES),
                .help = "use no credentials, for public buckets"},
        {"follow-redirects", 0, FLAG(follow_redirects), SOURCE_OF(S3),
                .help = "follow an S3 store's redirects to other hosts, without credentials"},
        {"request-payer", 0, FLAG(request_payer), SOURCE_OF(BUCKETS),
                .help = "agree to pay for requests to a requester-pays bucket"},
        {"version-by", 0, WORD(version_by, "version|size"), SOURCE, .def = "version",
                .help = "how to tell versions apart; size is for replicas that disagree"},
        {"checksums", 0, WORD(checksums, "verify|warn|off"), SOURCE, .def = "verify",
                .help = "what to do with data that does not match the origin's checksum"},
        {"addressing-style", 0, WORD(addressing, "auto|path|virtual"), SOURCE_OF(BUCKETS), .def = "auto",
                .help = "name the bucket in the path or in the host name"},
        {"pin-versions", 0, FLAG(pin_versions), SOURCE_OF(BUCKETS),
                .help = "read the versions that the bucket had when it was listed"},
        {"include", 0, CALL(add_include, "PATTERN"), SOURCE, .flags = PS_OPT_AGAIN,
                .help = "show only matching files; can be repeated"},
        {"exclude", 0, CALL(add_exclude, "PATTERN"), SOURCE, .flags = PS_OPT_AGAIN,
                .help = "hide matching files; can be repeated"},
        {"whole", 0, STRING(whole, "PATTERN|none"), .scope = PS_SCOPE_SOURCE, .commands = PS_CMD_MOUNT,
                .help = "fetch matching files whole at their first read; none: never"},
        {"raw", 0, FLAG(raw), SOURCE, .help = "show x.tar.zst, .gz and .lz4 unchanged, not as x.tar"},

        {"uid", 0, CALL(set_uid, "USER"), MOUNT, .flags = PS_OPT_LOCAL, .def = "you",
                .help = "owner of all files"},
        {"gid", 0, CALL(set_gid, "GROUP"), MOUNT, .flags = PS_OPT_LOCAL, .def = "yours",
                .help = "group of all files"},
        {"file-mode", 0, PS_OPT_MODE, FIELD(file_mode), MOUNT, .arg = "MODE", .def = "0444",
                .help = "permissions of files"},
        {"dir-mode", 0, PS_OPT_MODE, FIELD(dir_mode), MOUNT, .arg = "MODE", .def = "0555",
                .help = "permissions of folders"},
        {"allow_other", 0, FLAG(allow_other), MOUNT,
                .help = "let other users read, as far as permissions allow"},
        {"nonempty", 0, FLAG(nonempty), MOUNT, .help = "mount over a folder that contains files"},
        {"missing", 0, WORD(missing, "fail|warn"), MOUNT, .def = "warn",
                .help = "what to do if listed files do not exist at the origin"},
        {"refresh", 0, PS_OPT_TIME, FIELD(refresh_ms), MOUNT, .arg = "INTERVAL", .least = REFRESH_LEAST_MS,
                .form = "a time of a second or more, such as 10m", .def = "never",
                .help = "list the sources again at this interval, such as 10m"},
        {"no-passthrough", 0, FLAG(no_passthrough), MOUNT,
                .help = "read fully cached files through the daemon, not directly from the cache"},
        {"no-keeper", 0, FLAG(no_keeper), .scope = PS_SCOPE_DAEMON, .commands = PS_CMD_MOUNT,
                .help = "run no keeper: mounts end when their daemon is killed"},
        {"no-sandbox", 0, FLAG(no_sandbox), .scope = PS_SCOPE_DAEMON, .commands = PS_CMD_MOUNT,
                .help = "run the daemon without its sandbox"},
        {"cold-reads", 0, WORD(cold_reads, "auto|direct|cached"), MOUNT, .def = "auto",
                .flags = PS_OPT_HIDDEN, .help = "how to read files that are not cached yet"},
        {"members", 0, CALL(set_members, "yes|merge|both|no"), .scope = PS_SCOPE_MOUNT,
                .commands = PS_CMD_MOUNT | PS_CMD_WARM, .def = "no", .flags = PS_OPT_OPTIONAL,
                .help = "show the members of tar shards: one folder per shard, or one tree"},
        {"log", 0, CALL(set_log, "stderr|syslog|FILE"), .scope = PS_SCOPE_DAEMON, .commands = PS_CMD_MOUNT,
                .def = "syslog; stderr with -f", .help = "where the daemon writes its log"},
        {"log-level", 0, WORD(log_level, "error|warning|info|debug"), .scope = PS_SCOPE_DAEMON,
                .commands = PS_CMD_MOUNT, .def = "info", .help = "the least important messages to log"},
        {"owner", 0, PS_OPT_COUNT, FIELD(owner), COMMANDS(PS_CMD_MOUNT), .arg = "FD", .most = COUNT_MAX,
                .flags = PS_OPT_CLI_ONLY | PS_OPT_HIDDEN,
                .help = "share the mount, and unmount it when this socket is closed; no MOUNTPOINT"},
        {"serve", 0, FLAG(serve), COMMANDS(PS_CMD_MOUNT), .flags = PS_OPT_CLI_ONLY | PS_OPT_HIDDEN,
                .help = "mount nothing; run as the daemon of the cache in the foreground"},
        {"foreground", 'f', FLAG(foreground), COMMANDS(PS_CMD_MOUNT), .flags = PS_OPT_CLI_ONLY,
                .help = "stay in the foreground"},

        /* Options of 0.3. They go with the release after next. */
        {"gs-credentials", 0, CALL(set_old_credentials, "FILE"), SOURCE_OF(GS),
                .went = "write credentials=FILE (--credentials FILE)"},
        {"az-sas-file", 0, CALL(set_old_credentials, "FILE"), SOURCE_OF(AZ),
                .went = "write credentials=FILE (--credentials FILE)"},
        {"hf-token-file", 0, CALL(set_old_credentials, "FILE"), SOURCE_OF(HF),
                .went = "write credentials=FILE (--credentials FILE)"},
        {"header-file", 0, CALL(add_header, "FILE"), SOURCE_OF(REMOTE),
                .went = "write header=@FILE (--header @FILE)"},
        {"client-key-password-file", 0, PATH(client_key_password_file, "FILE"), SOURCE_OF(REMOTE),
                .went = "name a key without a password (openssl pkey -in KEY -out NEW), of mode 0600"},
        {0},
};

bool ps_opt_is_hidden(const struct ps_opt *opt)
{
	return opt->flags & PS_OPT_HIDDEN || (opt->went && !opt->went_value);
}

bool ps_opt_is(const struct ps_opt *opt, const char *name, size_t len)
{
	bool same = strlen(opt->name) == len;

	for (size_t i = 0; i < len && same; i++)
		same = opt->name[i] == name[i] || (strchr("-_", name[i]) && strchr("-_", opt->name[i]));
	return same;
}

const struct ps_opt *ps_options_find(const char *name)
{
	for (const struct ps_opt *opt = ps_options; opt->name; opt++)
		if (opt->scope != PS_SCOPE_COMMAND && ps_opt_is(opt, name, strlen(name)))
			return opt;
	return NULL;
}

/* Sources ------------------------------------------------------------------------------------------------ */

static unsigned kind_of(const char *source)
{
	static const struct {
		const char *prefix;
		unsigned kind;
	} prefixes[] = {{"@", ~0u}, {"http:", PS_KIND_HTTP}, {"https:", PS_KIND_HTTP}, {"s3:", PS_KIND_S3},
	        {"gs:", PS_KIND_GS}, {"az:", PS_KIND_AZ}, {"hf:", PS_KIND_HF}};

	for (size_t i = 0; i < PS_ARRAY_LEN(prefixes); i++)
		if (strncasecmp(source, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0)
			return prefixes[i].kind;
	return PS_KIND_FILES;
}

static const char *kinds_text(unsigned kinds)
{
	static const struct {
		unsigned kinds;
		const char *text;
	} texts[] = {{PS_KIND_BUCKETS, "buckets (s3://, gs://)"},
	        {PS_KIND_STORES, "buckets (s3://, gs://, az://)"},
	        {PS_KIND_TIERED, "remote sources but az://"}, {PS_KIND_S3, "s3:// sources"},
	        {PS_KIND_CREDENTIALS, "gs://, az:// and hf:// sources"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++)
		if (texts[i].kinds == kinds)
			return texts[i].text;
	return "sources that are not local";
}

bool ps_option_applies(const struct ps_opt *opt, const char *source)
{
	return !opt->kinds || opt->kinds & kind_of(source);
}

int ps_option_check_kinds(
        const struct ps_opt *opt, const char *const *sources, size_t nsources, struct ps_error *err)
{
	unsigned kinds = 0, known = 0;

	for (size_t i = 0; i < nsources; i++) {
		kinds |= kind_of(sources[i]);
		known |= sources[i][0] == '@' ? 0 : kind_of(sources[i]);
	}
	if (opt->flags & PS_OPT_ONE_KIND && __builtin_popcount(known & opt->kinds) > 1)
		return ps_error_set(err, EINVAL,
		        "option %s: the sources are of several kinds; set the option for each source in "
		        "penstock.conf(5)",
		        opt->name);
	if (!opt->kinds || opt->kinds & kinds)
		return 0;
	ps_autofree char *safe = nsources ? ps_source_canonical(sources[0], NULL) : NULL;
	const char *first = safe ? safe : "the source";
	if (nsources == 1)
		return ps_error_set(err, EINVAL, "option %s: it is for %s, which %.200s is not; leave it out",
		        opt->name, kinds_text(opt->kinds), first);
	return ps_error_set(err, EINVAL,
	        "option %s: it is for %s, which none of %zu sources is (%.200s, ...); leave it out",
	        opt->name, kinds_text(opt->kinds), nsources, first);
}
