#ifndef PS_CREDENTIALS_KEY_SOURCE_H
#define PS_CREDENTIALS_KEY_SOURCE_H

#include <jansson.h>

#include "base/secret.h"
#include "credentials/credentials.h"
#include "http/http.h"

/* Sources ------------------------------------------------------------------------------------------------ */

/* The sources of keys for credentials.h, and the helpers that they share.
 *
 * The provider's thread asks one source at a time. A source may block on files and the network, within its
 * own limits, and ends soon once context->stop is set. A source reads everything again each time, because
 * files are rotated.
 *
 * Ownership: the context is the provider's; a loaded key is the caller's. Threads: the provider's. Locks:
 * none. Errors: -ENOENT: this source is not configured; others: it is configured, and failed. Texts name
 * files, variables and servers, never a value that could be a secret. */

/* The user's environment and options at the time of the mount. */
struct ps_key_context {
	const struct ps_key_source *const *sources; /* only what these report can be read; NULL-terminated */
	char **env;                                 /* a copy, NULL-terminated */
	char *cwd; /* relative paths are resolved from here, because a daemon changes its working directory */
	char *profile;                /* NULL: $AWS_PROFILE, or "default" */
	char *region;                 /* NULL: from the environment or the profile */
	char *ca_file;                /* for servers that the user names */
	char *google_file;            /* --credentials */
	struct ps_http_access access; /* proxies and CA of the mounting process */
	/* The metadata server has answered once. After that, a missing answer is a failure; before, it means
	 * that there is no such server. */
	bool metadata_answered;
	_Atomic bool stop;
};

int ps_key_context_init(struct ps_key_context *x, const struct ps_credentials_options *options,
        struct ps_error *err) PS_MUST_USE;
void ps_key_context_fini(struct ps_key_context *x);

/* A file of credentials. */
struct ps_key_file {
	const char *variable; /* names the file, or the folder that has `below` in it; NULL: none does */
	const char *below;    /* NULL: the variable names the file itself */
	const char *usual;    /* where it is, or its folder, if the variable is not set; NULL: no file then */
	bool by_option;       /* context->google_file names it, nothing else does */
	bool is_token;        /* it is renewed, so its path counts as an input, and its content does not */
	bool names_elsewhere; /* it may name a command or a token file (PS_PROFILE_COMMAND, _TOKEN_FILE) */
};

/* A source of keys, with all of its inputs: the variables and files from which it learns whose keys it loads.
 *
 * The identity of an access is made of these inputs (ps_credentials_inputs()), and a source can read no others:
 * ps_key_env() and ps_key_file() return nothing that no source of the context reports. */
typedef int (*ps_key_load)(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err);
struct ps_key_source {
	ps_key_load load;
	const char *variables[8]; /* names ("HOME="), or beginnings of names ("AWS_"); NULL-terminated */
	const struct ps_key_file *files[4]; /* NULL-terminated */
};

/* The value of a variable, borrowed; NULL: not set, empty, or reported by no source. */
const char *ps_key_env(const struct ps_key_context *x, const char *name);
/* The path of a file. The caller frees it. NULL: nothing names it, no source reports it, or out of memory. */
char *ps_key_file(const struct ps_key_context *x, const struct ps_key_file *file);
/* Resolves a path that comes from reported inputs: "~/x" below $HOME, and "x" below context->cwd. The caller
 * frees it. NULL: out of memory. */
char *ps_key_path(const struct ps_key_context *x, const char *path);

/* ps_credentials_inputs() for these sources. */
int ps_key_inputs(const struct ps_key_source *const *sources, const struct ps_credentials_options *options,
        ps_input_fn add, void *arg) PS_MUST_USE;
/* Reads a file of keys or passwords (base/secret.h): its bytes, NUL-terminated, for ps_secret_free(). The
 * text of an error starts with the path. */
int ps_key_read_file(const char *path, char **ret, size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;
/* Reads a file that holds a token, and strips blanks at both ends. -EINVAL: it is empty, or holds what
 * ps_secret_token() refuses. */
int ps_key_read_token(const char *path, char **ret, struct ps_error *err) PS_MUST_USE;
/* Fills in err for an answer that is not a success; `retryable` if the server is busy. */
int ps_key_fail_status(
        const struct ps_answer *answer, const char *who, const char *what, struct ps_error *err);

/* The names of members in a JSON answer. object: the member that contains the others; "": they are at the
 * top level. */
struct ps_key_shape {
	const char *object, *access_key, *secret, *token, *expires;
	int version; /* required "Version"; 0: any */
};
/* -EPROTO: the answer does not have this shape; the text names the missing member. */
int ps_key_from_json(const char *text, size_t nbytes, const struct ps_key_shape *shape, struct ps_key **ret,
        struct ps_error *err) PS_MUST_USE;
/* Makes a key of these strings. -EPROTO: one of them cannot be put into a header. */
int ps_key_checked(const char *access_key, const char *secret, const char *session_token, const char *bearer,
        int64_t expires_s, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* All sources: those of Amazon's in the order in which they are asked, then Google's. NULL-terminated. */
extern const struct ps_key_source *const ps_key_sources[];

/* ps_key_imds also returns -ENOENT, with the reason in err, if no such service answers. */
extern const struct ps_key_source ps_key_environment, ps_key_profile, ps_key_web_identity, ps_key_container,
        ps_key_imds;
/* Google's. An HMAC key is from --profile, $GS_ACCESS_KEY_ID, ~/.boto or the environment of AWS. */
extern const struct ps_key_source ps_key_google_hmac, ps_key_google_file, ps_key_google_metadata;

struct ps_sts_role {
	const char *arn, *session_name; /* session_name NULL: it is generated */
	const char *token;              /* a web identity's token; NULL: `key` assumes the role */
	const struct ps_key *key;
	const char *external_id, *duration_s; /* NULL: none; the service's default */
};
/* Gets the keys of a role from STS. */
int ps_key_from_sts(struct ps_key_context *x, const struct ps_sts_role *role, struct ps_key **ret,
        struct ps_error *err) PS_MUST_USE;
struct ps_profiles;
/* Gets the keys of the role `arn` with the token in `file`; session_name may be NULL. */
int ps_key_from_token_file(struct ps_key_context *x, const char *file, const char *arn,
        const char *session_name, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* JSON with secrets: jansson does not wipe the memory that it frees, so this does.
 *
 * Ownership: a document is its holder's; texts are borrowed from it. Threads: one for each document. Never
 * blocks. */
#define ps_autosecretjson __attribute__((cleanup(ps_cleanup_secret_json)))
void ps_cleanup_secret_json(json_t **j);

/* The text of a member. NULL: it is missing, of another type, or empty; also for name NULL and j NULL. */
const char *ps_json_text(const json_t *j, const char *name);

/* Profiles ----------------------------------------------------------------------------------------------- */

/* The AWS profile files: $AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and $AWS_CONFIG_FILE
 * (~/.aws/config).
 *
 * Ownership: profiles are the caller's, until ps_profiles_fini(), which wipes them; values are borrowed
 * from them. Threads: any. Blocks on files. Errors: a missing file counts as empty; -EINVAL with file and
 * line. */

extern const struct ps_key_file ps_profile_keys, ps_profile_config;
/* Keys of a profile that name where else its credentials come from. */
#define PS_PROFILE_COMMAND "credential_process"
#define PS_PROFILE_TOKEN_FILE "web_identity_token_file"

enum ps_profile_kind {
	PS_PROFILE_KEYS,   /* [NAME] of the credentials file */
	PS_PROFILE_CONFIG, /* [profile NAME], [default] of the config file */
	PS_PROFILE_SSO,    /* [sso-session NAME] */
	PS_PROFILE_OTHER,
};

struct ps_profiles {
	struct ps_profile_entry {
		enum ps_profile_kind kind;
		char *section, *key, *value; /* key NULL: the section itself */
	} * v;
	size_t n, cap;
	char *keys_path, *config_path; /* the files that were read */
};

int ps_profiles_read(
        const struct ps_key_context *x, struct ps_profiles *ret, struct ps_error *err) PS_MUST_USE;
void ps_profiles_fini(struct ps_profiles *all);
#define ps_autoprofiles __attribute__((cleanup(ps_profiles_fini)))

/* --profile, $AWS_PROFILE, $AWS_DEFAULT_PROFILE or "default". *ret_chosen: false for the default. */
const char *ps_profile_name(const struct ps_key_context *x, bool *ret_chosen);

/* True if either file has such a section. */
bool ps_profiles_have(const struct ps_profiles *all, const char *name);
/* The value of `key` in the section `name`, borrowed. NULL: missing, or empty. */
const char *ps_profiles_get(
        const struct ps_profiles *all, enum ps_profile_kind kind, const char *name, const char *key);
/* As ps_profiles_get(): from the credentials file, else from the config file. */
const char *ps_profiles_find(const struct ps_profiles *all, const char *name, const char *key);

/* --region, $AWS_REGION, $AWS_DEFAULT_REGION, or the profile's; NULL: none, or the files cannot be read.
 * The caller frees it. */
char *ps_profile_region(const struct ps_key_context *x);

#endif
