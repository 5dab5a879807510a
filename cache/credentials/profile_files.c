#include "credentials/key_source.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/secret.h"
#include "base/ini.h"

#define ENTRIES_MAX 20000

struct reading {
	struct ps_profiles *all;
	bool is_config;
	struct ps_error *err;
};

/* "profile 'my name'" → "my name", in place. NULL if `s` does not begin with the word. */
static const char *after_word(char *s, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(s, word, n) != 0 || (s[n] != ' ' && s[n] != '\t'))
		return NULL;
	s += n;
	s += strspn(s, " \t");
	n = strlen(s);
	if (n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n - 1] == s[0]) {
		s[n - 1] = '\0';
		s++;
	}
	return s;
}

static enum ps_profile_kind kind_of(bool is_config, char *section, const char **ret_name)
{
	*ret_name = section;
	if (!is_config)
		return PS_PROFILE_KEYS;
	const char *profile = after_word(section, "profile"), *sso = after_word(section, "sso-session");
	if (profile || sso) {
		*ret_name = profile ? profile : sso;
		return profile ? PS_PROFILE_CONFIG : PS_PROFILE_SSO;
	}
	return strcmp(section, "default") == 0 ? PS_PROFILE_CONFIG : PS_PROFILE_OTHER;
}

static void entry_fini(struct ps_profile_entry *e)
{
	free(e->section);
	free(e->key);
	ps_secret_free(e->value);
}

static int take_entry(void *arg, const struct ps_ini_entry *entry)
{
	struct reading *r = arg;
	struct ps_profiles *all = r->all;
	char section[PS_INI_NAME_LEN];
	const char *name;
	struct ps_profile_entry e = {0};

	if (all->n == all->cap) {
		size_t cap = all->cap ? 2 * all->cap : 32;
		struct ps_profile_entry *v = cap > ENTRIES_MAX ? NULL : realloc(all->v, cap * sizeof(*v));

		if (!v)
			return ps_error_set(r->err, ENOMEM, "line %u: too many entries", entry->line);
		all->v = v;
		all->cap = cap;
	}
	memcpy(section, entry->section, strlen(entry->section) + 1);
	e.kind = kind_of(r->is_config, section, &name);
	e.section = strdup(name);
	e.key = entry->key ? strdup(entry->key) : NULL;
	e.value = entry->key ? strdup(entry->value) : NULL;
	if (!e.section || (entry->key && (!e.key || !e.value))) {
		entry_fini(&e);
		return ps_no_memory(r->err);
	}
	all->v[all->n++] = e;
	return 0;
}

static int read_file(struct ps_profiles *all, const char *path, bool is_config, struct ps_error *err)
{
	const struct ps_secret_file kind = {
	        .max_nbytes = PS_CREDENTIALS_FILE_MAX_NBYTES, .is_shared = is_config};
	struct reading r = {.all = all, .is_config = is_config, .err = err};
	char *text = NULL;
	size_t n = 0;
	int rc = ps_secret_file_read(path, &kind, &text, &n, err);

	if (rc == -ENOENT || rc == -ENOTDIR)
		return 0;
	if (rc)
		return rc;
	rc = ps_ini_parse(text, n, take_entry, &r, err);
	OPENSSL_cleanse(text, n); /* the parser has cut the text into strings */
	free(text);
	return rc ? ps_error_prefix(err, rc, "%s", path) : 0;
}

const struct ps_key_file ps_profile_keys = {
        .variable = "AWS_SHARED_CREDENTIALS_FILE", .usual = "~/.aws/credentials", .names_elsewhere = true};
const struct ps_key_file ps_profile_config = {
        .variable = "AWS_CONFIG_FILE", .usual = "~/.aws/config", .names_elsewhere = true};

int ps_profiles_read(const struct ps_key_context *x, struct ps_profiles *ret, struct ps_error *err)
{
	ps_autoprofiles struct ps_profiles all = {
	        .keys_path = ps_key_file(x, &ps_profile_keys),
	        .config_path = ps_key_file(x, &ps_profile_config),
	};
	struct ps_error mine = {0};
	int rc;

	err = err ? err : &mine;
	if (!all.keys_path || !all.config_path)
		return ps_no_memory(err);
	rc = read_file(&all, all.config_path, true, err);
	if (!rc)
		rc = read_file(&all, all.keys_path, false, err);
	if (rc)
		return rc;
	*ret = all;
	all = (struct ps_profiles){0};
	return 0;
}

void ps_profiles_fini(struct ps_profiles *all)
{
	for (size_t i = 0; i < all->n; i++)
		entry_fini(&all->v[i]);
	free(all->v);
	free(all->keys_path);
	free(all->config_path);
	*all = (struct ps_profiles){0};
}

const char *ps_profile_name(const struct ps_key_context *x, bool *ret_chosen)
{
	const char *name = x->profile;

	if (!name)
		name = ps_key_env(x, "AWS_PROFILE");
	if (!name)
		name = ps_key_env(x, "AWS_DEFAULT_PROFILE");
	*ret_chosen = name;
	return name ? name : "default";
}

bool ps_profiles_have(const struct ps_profiles *all, const char *name)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->v[i].kind <= PS_PROFILE_CONFIG && strcmp(all->v[i].section, name) == 0)
			return true;
	return false;
}

/* If a key is given several times in a file, the last one counts. */
const char *ps_profiles_get(
        const struct ps_profiles *all, enum ps_profile_kind kind, const char *name, const char *key)
{
	for (size_t i = all->n; i-- > 0;) {
		const struct ps_profile_entry *e = &all->v[i];

		if (e->kind == kind && e->key && strcmp(e->section, name) == 0 && strcmp(e->key, key) == 0)
			return *e->value ? e->value : NULL;
	}
	return NULL;
}

const char *ps_profiles_find(const struct ps_profiles *all, const char *name, const char *key)
{
	const char *value = ps_profiles_get(all, PS_PROFILE_KEYS, name, key);

	return value ? value : ps_profiles_get(all, PS_PROFILE_CONFIG, name, key);
}

char *ps_profile_region(const struct ps_key_context *x)
{
	ps_autoprofiles struct ps_profiles all = {0};
	const char *region = x->region;
	bool chosen;

	if (!region)
		region = ps_key_env(x, "AWS_REGION");
	if (!region)
		region = ps_key_env(x, "AWS_DEFAULT_REGION");
	if (!region && ps_profiles_read(x, &all, NULL) == 0)
		region = ps_profiles_find(&all, ps_profile_name(x, &chosen), "region");
	return region ? strdup(region) : NULL;
}
