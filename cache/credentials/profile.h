/* The AWS profile files: $AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and $AWS_CONFIG_FILE
 * (~/.aws/config).
 *
 * Ownership: profiles are the caller's, until ps_profiles_fini(), which wipes them; values are borrowed from
 * them. Threads: any. Blocks: on files. Errors: a file that is not there is empty; -EINVAL with file and
 * line. */
#ifndef PS_CREDENTIALS_PROFILE_H
#define PS_CREDENTIALS_PROFILE_H

#include "credentials/key_source.h"

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

/* --profile, $AWS_PROFILE, $AWS_DEFAULT_PROFILE or "default". ret_chosen: somebody named it. */
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
