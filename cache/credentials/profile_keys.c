/* Keys of a profile: its own, a command's, SSO's, or those of a role that another profile's keys assume. */
#include <errno.h>
#include <string.h>

#include "credentials/key_source.h"
#include "credentials/profile.h"

#define CHAIN_MAX 8 /* profiles that refer to each other */

struct chain {
	struct ps_key_context *x;
	const struct ps_profiles *all;
	const char *names[CHAIN_MAX];
	unsigned n;
};

static int from_profile(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err);

static int own_keys(const struct ps_profiles *all, enum ps_profile_kind kind, const char *name,
        struct ps_key **ret, struct ps_error *err)
{
	const char *access_key = ps_profiles_get(all, kind, name, "aws_access_key_id"),
	           *secret = ps_profiles_get(all, kind, name, "aws_secret_access_key");

	if (!access_key && !secret)
		return -ENOENT;
	if (!access_key || !secret)
		return ps_error_set(err, EACCES,
		        "%s: aws_access_key_id without aws_secret_access_key, or the other way round",
		        kind == PS_PROFILE_KEYS ? all->keys_path : all->config_path);
	return ps_key_checked(
	        access_key, secret, ps_profiles_get(all, kind, name, "aws_session_token"), NULL, 0, ret, err);
}

/* Ec2InstanceMetadata, EcsContainer or Environment: what the keys that assume a role may be, too. */
static int from_named_source(
        struct chain *chain, const char *source, struct ps_key **ret, struct ps_error *err)
{
	static const struct {
		const char *name;
		ps_key_load load;
	} sources[] = {{"Ec2InstanceMetadata", ps_key_from_imds}, {"EcsContainer", ps_key_from_container},
	        {"Environment", ps_key_from_env}};

	for (size_t i = 0; i < PS_ARRAY_LEN(sources); i++) {
		if (strcmp(source, sources[i].name) != 0)
			continue;
		int rc = sources[i].load(chain->x, ret, err);
		return rc == -ENOENT ? ps_error_set(err, EACCES, "credential_source = %s, but there are none",
		                               source)
		                     : rc;
	}
	return ps_error_set(err, EACCES,
	        "credential_source = %.40s is none of Ec2InstanceMetadata, EcsContainer, Environment",
	        source);
}

static int from_role(
        struct chain *chain, const char *name, const char *arn, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	const char *source = ps_profiles_find(all, name, "source_profile"),
	           *named = ps_profiles_find(all, name, "credential_source"),
	           *file = ps_profiles_find(all, name, "web_identity_token_file");
	ps_autokey struct ps_key *key = NULL;
	struct ps_sts_role role = {.arn = arn,
	        .session_name = ps_profiles_find(all, name, "role_session_name"),
	        .external_id = ps_profiles_find(all, name, "external_id"),
	        .duration_s = ps_profiles_find(all, name, "duration_seconds")};
	int rc;

	if (file)
		return ps_key_from_token_file(chain->x, file, arn, role.session_name, ret, err);
	if (ps_profiles_find(all, name, "mfa_serial"))
		return ps_error_set(err, EACCES,
		        "mfa_serial: a mount cannot ask for a code; use credential_process, or keys of a "
		        "session");
	if (source && strcmp(source, name) == 0) {
		rc = own_keys(all, PS_PROFILE_KEYS, name, &key, err);
		if (rc == -ENOENT)
			rc = own_keys(all, PS_PROFILE_CONFIG, name, &key, err);
		if (rc == -ENOENT)
			rc = ps_error_set(err, EACCES, "is its own source_profile, but has no keys");
	} else if (source) {
		rc = from_profile(chain, source, &key, err);
	} else if (named) {
		rc = from_named_source(chain, named, &key, err);
	} else {
		rc = ps_error_set(err, EACCES,
		        "role_arn without source_profile, credential_source or web_identity_token_file");
	}
	if (rc)
		return rc;
	role.key = key;
	return ps_key_from_sts(chain->x, &role, ret, err);
}

/* -ENOENT: there is nothing about credentials in it. */
static int from_section(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	const char *arn = ps_profiles_find(all, name, "role_arn"),
	           *command = ps_profiles_find(all, name, "credential_process");
	int rc;

	if (arn)
		return from_role(chain, name, arn, ret, err);
	rc = ps_key_from_sso(chain->x, all, name, ret, err);
	if (rc == -ENOENT)
		rc = own_keys(all, PS_PROFILE_KEYS, name, ret, err);
	if (rc == -ENOENT && command) {
		rc = ps_key_from_process(chain->x, command, ret, err);
		if (rc)
			ps_error_prefix(err, "credential_process");
		return rc == -ENOENT ? -EACCES : rc;
	}
	if (rc == -ENOENT)
		rc = own_keys(all, PS_PROFILE_CONFIG, name, ret, err);
	return rc;
}

static int from_profile(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	int rc;

	for (unsigned i = 0; i < chain->n; i++)
		if (strcmp(chain->names[i], name) == 0)
			return ps_error_set(
			        err, EACCES, "profile %.100s: refers to itself by source_profile", name);
	if (chain->n == CHAIN_MAX)
		return ps_error_set(
		        err, EACCES, "profile %.100s: more than %d profiles in a row", name, CHAIN_MAX);
	chain->names[chain->n++] = name;
	if (!ps_profiles_have(all, name))
		return ps_error_set(err, EACCES, "profile %.100s: neither in %.150s nor in %.150s", name,
		        all->keys_path, all->config_path);
	rc = from_section(chain, name, ret, err);
	if (rc == -ENOENT)
		return ps_error_set(err, EACCES,
		        "profile %.100s: no credentials in it (looked in %.150s and %.150s)", name,
		        all->keys_path, all->config_path);
	return rc ? ps_error_prefix(err, "profile %.100s", name) : 0;
}

int ps_key_from_profile(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	ps_autoprofiles struct ps_profiles all = {0};
	struct chain chain = {.x = x, .all = &all};
	bool chosen;
	const char *name = ps_profile_name(x, &chosen);
	int rc = ps_profiles_read(x, &all, err);

	if (rc)
		return rc;
	/* Nobody asked for "default": it need not have any. */
	if (!chosen) {
		rc = ps_profiles_have(&all, name) ? from_section(&chain, name, ret, err) : -ENOENT;
		return rc && rc != -ENOENT ? ps_error_prefix(err, "profile %s", name) : rc;
	}
	return from_profile(&chain, name, ret, err);
}
