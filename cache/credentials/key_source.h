#ifndef PS_CREDENTIALS_KEY_SOURCE_H
#define PS_CREDENTIALS_KEY_SOURCE_H

#include <jansson.h>

#include "base/secret.h"
#include "credentials/credentials.h"
#include "http/http.h"

/* Sources ------------------------------------------------------------------------------------------------ */

/* Where keys come from: the sources of credentials.h, and what they look at.
 *
 * A source is asked by the provider's thread, one at a time; it may block on files and the network, within
 * its own limits, and ends soon once context->stop is set. It reads everything again each time: files
 * rotate.
 *
 * Ownership: the context is the provider's; a key that was loaded is the caller's. Threads: the provider's.
 * Locks: none. Errors: -ENOENT: nothing says that this source is to be used; others: it is, and failed. Texts
 * name files, variables and servers, never a value that could be a secret. */

/* What the user's shell said when the mount was asked for. */
struct ps_key_context {
	char **env;                   /* a copy, NULL-terminated */
	char *cwd;                    /* relative paths start here; a daemon leaves it */
	char *profile;                /* NULL: $AWS_PROFILE, or "default" */
	char *region;                 /* NULL: as environment and profile say */
	char *ca_file;                /* of servers that the user names */
	char *google_file;            /* --gs-credentials */
	struct ps_http_access access; /* proxies and CA of the mounting process */
	bool metadata_answered;       /* once: from then on its silence is a failure, not an absence */
	_Atomic bool stop;
};

int ps_key_context_init(struct ps_key_context *x, const struct ps_credentials_options *options,
        struct ps_error *err) PS_MUST_USE;
void ps_key_context_fini(struct ps_key_context *x);

/* A variable; NULL: not set, or empty. Borrowed. */
const char *ps_key_env(const struct ps_key_context *x, const char *name);
/* "~/x" below $HOME, "x" below the folder where the mount was asked for. NULL: out of memory. The caller
 * frees it. */
char *ps_key_path(const struct ps_key_context *x, const char *path);
/* A file of keys or passwords (base/secret.h): its bytes, NUL-terminated, for ps_secret_free(). The text
 * of an error starts with the path. */
int ps_key_read_file(const char *path, char **ret, size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;
/* A file that holds a token: without the blanks at its ends, and without control characters (-EINVAL). */
int ps_key_read_token(const char *path, char **ret, struct ps_error *err) PS_MUST_USE;
/* An error with `retryable`: the network, or a server that is busy. */
int ps_key_fail_status(
        const struct ps_answer *answer, const char *who, const char *what, struct ps_error *err);

/* Which members of a JSON answer are what. object: "": they are at the top. */
struct ps_key_shape {
	const char *object, *access_key, *secret, *token, *expires;
	int version; /* what "Version" must be; 0: anything */
};
/* -EPROTO: not such an answer; the text names the missing member. */
int ps_key_from_json(const char *text, size_t nbytes, const struct ps_key_shape *shape, struct ps_key **ret,
        struct ps_error *err) PS_MUST_USE;
/* A key of these strings, once it is sure that they can go into a header. -EPROTO. */
int ps_key_checked(const char *access_key, const char *secret, const char *session_token, const char *bearer,
        int64_t expires_s, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

typedef int (*ps_key_load)(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err);

/* AWS, in the order in which they are asked. */
int ps_key_from_env(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
int ps_key_from_profile(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
int ps_key_from_web_identity(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
int ps_key_from_container(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
/* -ENOENT, with the reason in err, too where no such service answers. */
int ps_key_from_imds(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

struct ps_sts_role {
	const char *arn, *session_name; /* session_name NULL: one is made up */
	const char *token;              /* of a web identity; NULL: `key` assumes the role */
	const struct ps_key *key;
	const char *external_id, *duration_s; /* NULL: none, and the service's default */
};
/* Asks STS for the keys of a role. */
int ps_key_from_sts(struct ps_key_context *x, const struct ps_sts_role *role, struct ps_key **ret,
        struct ps_error *err) PS_MUST_USE;
struct ps_profiles;
/* The role `arn` for the token in `file`; session_name may be NULL. */
int ps_key_from_token_file(struct ps_key_context *x, const char *file, const char *arn,
        const char *session_name, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* Google, in the order in which they are asked. */
int ps_key_from_google_file(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
/* An HMAC key: of --profile, $GS_ACCESS_KEY_ID, ~/.boto or the environment of AWS. */
int ps_key_from_google_hmac(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;
int ps_key_from_google_metadata(
        struct ps_key_context *x, struct ps_key **ret, struct ps_error *err) PS_MUST_USE;

/* JSON with secrets in it: jansson does not wipe what it frees.
 *
 * Ownership: a document is its holder's; texts are borrowed from it. Threads: one a document. Blocks: never.
 */
#define ps_autosecretjson __attribute__((cleanup(ps_cleanup_secret_json)))
void ps_cleanup_secret_json(json_t **j);

/* A member that is a text. NULL: not there, another type, or empty; also for name NULL and j NULL. */
const char *ps_json_text(const json_t *j, const char *name);

/* Profiles ----------------------------------------------------------------------------------------------- */

/* The AWS profile files: $AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and $AWS_CONFIG_FILE
 * (~/.aws/config).
 *
 * Ownership: profiles are the caller's, until ps_profiles_fini(), which wipes them; values are borrowed from
 * them. Threads: any. Blocks: on files. Errors: a file that is not there is empty; -EINVAL with file and
 * line. */

enum ps_profile_kind {
	PS_PROFILE_KEYS,   /* [NAME] of the credentials file */
	PS_PROFILE_CONFIG, /* [profile NAME], [default] of the config file */
	PS_PROFILE_SSO,    /* [sso-session NAME] */
	PS_PROFILE_SERVICES,
	PS_PROFILE_OTHER,
};

struct ps_profiles {
	struct ps_profile_entry {
		enum ps_profile_kind kind;
		char *section, *key, *value; /* key NULL: the section itself */
	} * v;
	size_t n, cap;
	char *keys_path, *config_path; /* where was looked */
};

int ps_profiles_read(
        const struct ps_key_context *x, struct ps_profiles *ret, struct ps_error *err) PS_MUST_USE;
void ps_profiles_fini(struct ps_profiles *all);
#define ps_autoprofiles __attribute__((cleanup(ps_profiles_fini)))

/* --profile, $AWS_PROFILE, $AWS_DEFAULT_PROFILE or "default". ret_chosen: it was named. */
const char *ps_profile_name(const struct ps_key_context *x, bool *ret_chosen);

/* Is there such a section in either file? */
bool ps_profiles_have(const struct ps_profiles *all, const char *name);
/* NULL: not there, or empty. */
const char *ps_profiles_get(
        const struct ps_profiles *all, enum ps_profile_kind kind, const char *name, const char *key);
/* From the credentials file, else from the config file. */
const char *ps_profiles_find(const struct ps_profiles *all, const char *name, const char *key);

/* --region, $AWS_REGION, $AWS_DEFAULT_REGION, or the profile's; NULL: none, or no sound file. The caller
 * frees it. */
char *ps_profile_region(const struct ps_key_context *x);

#endif
