#include "origin/az_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "credentials/credentials.h"
#include "base/bucket_url.h"
#include "base/env.h"
#include "base/url.h"

#define SAS_FILE_MAX_NBYTES 8192
/* The emulators' account; not secret. */
#define EMULATOR "devstoreaccount1"
#define EMULATOR_KEY "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

/* What the environment says. Strings are secret. */
struct given {
	char *account, *key, *sas, *endpoint, *suffix, *protocol;
};

static void given_fini(struct given *g)
{
	free(g->account);
	ps_secret_free(g->key);
	ps_secret_free(g->sas);
	free(g->endpoint);
	free(g->suffix);
	free(g->protocol);
}

#define autogiven __attribute__((cleanup(given_fini))) struct given

/* "Name=value;Name=value": a value may hold "=". */
static int take_part(struct given *g, const char *part, size_t n)
{
	const struct {
		const char *name;
		char **to;
	} names[] = {{"AccountName=", &g->account}, {"AccountKey=", &g->key}, {"SharedAccessSignature=", &g->sas},
	        {"BlobEndpoint=", &g->endpoint}, {"EndpointSuffix=", &g->suffix},
	        {"DefaultEndpointsProtocol=", &g->protocol}};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		size_t len = strlen(names[i].name);

		if (n <= len || strncmp(part, names[i].name, len) != 0)
			continue;
		ps_secret_free(*names[i].to);
		*names[i].to = strndup(part + len, n - len);
		return *names[i].to ? 0 : -ENOMEM;
	}
	return 0;
}

static int take_string(struct given *g, const char *string)
{
	static const char emulator[] = "AccountName=" EMULATOR ";AccountKey=" EMULATOR_KEY
	                               ";BlobEndpoint=http://127.0.0.1:10000/" EMULATOR;
	int rc = 0;

	if (strstr(string, "UseDevelopmentStorage=true"))
		string = emulator;
	for (const char *s = string; rc == 0 && *s; s += strcspn(s, ";"), s += *s == ';')
		rc = take_part(g, s, strcspn(s, ";"));
	return rc;
}

static int copy(char **to, const char *value)
{
	if (!value || *to)
		return 0;
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

static int read_environment(const struct ps_origin_options *options, struct given *ret)
{
	const char *string = ps_env_get(options->http.env, "AZURE_STORAGE_CONNECTION_STRING");
	int rc = string ? take_string(ret, string) : 0;

	/* One that says by what right needs no other word. */
	if (rc == 0 && !ret->key && !ret->sas) {
		rc = copy(&ret->key, ps_env_get(options->http.env, "AZURE_STORAGE_KEY"));
		if (rc == 0 && !ret->key)
			rc = copy(&ret->sas, ps_env_get(options->http.env, "AZURE_STORAGE_SAS_TOKEN"));
	}
	return rc == 0 ? copy(&ret->account, ps_env_get(options->http.env, "AZURE_STORAGE_ACCOUNT")) : rc;
}

static char *account_of(const char *url)
{
	const char *account = strstr(url, "://") + 3;

	return strndup(account, strcspn(account, "/"));
}

/* With an endpoint of the user's own: the account is in its host's name, or in its path. */
static int own_root(const char *account, const char *endpoint, char **ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autourl struct ps_url u = {0};
	struct ps_strbuf b = {0};
	size_t n = strlen(account);
	int rc = ps_url_parse(endpoint, &u, err);

	if (rc)
		return ps_error_prefix(err, "endpoint");
	if (strncmp(u.scheme, "http", 4) != 0 || u.user || u.query || u.signature)
		return ps_error_set(err, EINVAL, "endpoint %s: not of the form https://HOST[:PORT]", ps_url_redact(endpoint, safe));
	size_t npath = strlen(u.path);
	while (npath && u.path[npath - 1] == '/')
		u.path[--npath] = '\0';
	ps_autofree char *authority = ps_url_authority(&u);
	if (!authority)
		return ps_error_set(err, ENOMEM, "out of memory");
	bool in_host = strncmp(u.host, account, n) == 0 && u.host[n] == '.';
	bool in_path = npath > n && u.path[npath - n - 1] == '/' && strcmp(u.path + npath - n, account) == 0;
	ps_strbuf_addf(&b, "%s%s", authority, u.path);
	if (!in_host && !in_path)
		ps_strbuf_addf(&b, "/%s", account);
	*ret = ps_strbuf_take(&b);
	return *ret ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

/* *ret is NULL for the public cloud. */
static int find_root(const char *account, const struct given *given, const struct ps_origin_options *options, char **ret,
        struct ps_error *err)
{
	bool ours = !given->account || strcmp(given->account, account) == 0;
	struct ps_strbuf b = {0};

	*ret = NULL;
	if (options->endpoint)
		return own_root(account, options->endpoint, ret, err);
	if (ours && given->endpoint)
		return own_root(account, given->endpoint, ret, err);
	if (!given->suffix || strcmp(given->suffix, "core.windows.net") == 0)
		return 0;
	ps_strbuf_addf(&b, "%s://%s.blob.%s", given->protocol ? given->protocol : "https", account, given->suffix);
	ps_autofree char *endpoint = ps_strbuf_take(&b);
	return endpoint ? own_root(account, endpoint, ret, err) : ps_error_set(err, ENOMEM, "out of memory");
}

char *ps_az_endpoint(const char *canonical, const struct ps_origin_options *options)
{
	autogiven given = {0};
	ps_autofree char *account = account_of(canonical);
	char *root = NULL;

	if (!account || read_environment(options, &given) < 0 || find_root(account, &given, options, &root, NULL) < 0)
		return NULL; /* whoever opens the origin says what is wrong */
	return root;
}

/* As it is found in the wild: with a question mark in front. */
static int take_sas(struct ps_az_store *store, const char *text, struct ps_error *err)
{
	char *sas = NULL;
	int rc = ps_secret_token(text[0] == '?' ? text + 1 : text, &sas);

	if (rc == -ENOMEM)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (rc < 0 || !sas || strpbrk(sas, "#?/\"<>") || !strstr(sas, "sig=")) {
		ps_secret_free(sas);
		return ps_error_set(err, EINVAL, "that is no shared access signature (sv=...&sig=...)");
	}
	PS_LOCK_SCOPE(&store->lock);
	ps_secret_free(store->sas);
	store->sas = sas;
	return 0;
}

static int read_file(const char *path, char **ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {.what = "SAS file", .max_nbytes = SAS_FILE_MAX_NBYTES};

	return ps_secret_file_line(path, &kind, ret, err);
}

static int take_file(struct ps_az_store *store, const char *path, struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	int rc = read_file(path, &text, err);

	if (rc == 0 && take_sas(store, text, err) < 0)
		rc = ps_error_prefix(err, "SAS file %s", path);
	if (rc == 0 && !(store->sas_file = strdup(path)))
		rc = ps_error_set(err, ENOMEM, "out of memory");
	return rc;
}

static int take_key(struct ps_az_store *store, const char *text, struct ps_error *err)
{
	size_t n = strlen(text), pad = 0;

	while (pad < n && text[n - 1 - pad] == '=')
		pad++;
	if (n == 0 || n % 4 || pad > 2 || n / 4 * 3 > sizeof store->key)
		n = 0;
	int len = n ? EVP_DecodeBlock(store->key, (const unsigned char *)text, (int)n) : -1;
	if (len < (int)pad)
		return ps_error_set(err, EINVAL, "the account key of %s is not one: it is base64", store->account);
	store->nkey = (size_t)len - pad;
	return 0;
}

static int find_right(struct ps_az_store *store, const struct ps_source *source, const struct given *given,
        const struct ps_origin_options *options, struct ps_error *err)
{
	if (options->no_sign_request)
		return 0;
	if (source->sas)
		return take_sas(store, source->sas, err);
	if (options->az_sas_file)
		return take_file(store, options->az_sas_file, err);
	if ((given->key || given->sas) && given->account && strcmp(given->account, store->account) != 0)
		return ps_error_set(err, EACCES,
		        "az://%s: the credentials of the environment are for the account %.24s; give --az-sas-file, or "
		        "--no-sign-request for a public container",
		        store->account, given->account);
	if (given->key)
		return take_key(store, given->key, err);
	if (given->sas)
		return take_sas(store, given->sas, err);
	return ps_error_set(err, EACCES,
	        "az://%s: no credentials: set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, give "
	        "--az-sas-file, or --no-sign-request for a public container",
	        store->account);
}

int ps_az_store_init(struct ps_az_store *store, const struct ps_source *source, const struct ps_origin_options *options,
        struct ps_error *err)
{
	autogiven given = {0};

	*store = (struct ps_az_store){.account = account_of(source->first)};
	pthread_mutex_init(&store->lock, NULL);
	if (!store->account || read_environment(options, &given) < 0)
		return ps_error_set(err, ENOMEM, "out of memory");
	int rc = find_root(store->account, &given, options, &store->identity, err);
	if (rc == 0) {
		struct ps_strbuf b = {0};

		if (store->identity)
			ps_strbuf_add(&b, store->identity);
		else
			ps_strbuf_addf(&b, "https://%s.blob.core.windows.net", store->account);
		store->root = ps_strbuf_take(&b);
		rc = store->root ? 0 : ps_error_set(err, ENOMEM, "out of memory");
	}
	return rc == 0 ? find_right(store, source, &given, options, err) : rc;
}

void ps_az_store_fini(struct ps_az_store *store)
{
	OPENSSL_cleanse(store->key, sizeof store->key);
	ps_secret_free(store->sas);
	free(store->sas_file);
	free(store->account);
	free(store->root);
	free(store->identity);
	pthread_mutex_destroy(&store->lock);
}

char *ps_az_store_sas(struct ps_az_store *store, int *ret_rc)
{
	PS_LOCK_SCOPE(&store->lock);
	char *sas = store->sas ? strdup(store->sas) : NULL;

	*ret_rc = store->sas && !sas ? -ENOMEM : 0;
	return sas;
}

bool ps_az_store_refused(struct ps_az_store *store, const char *sas)
{
	ps_autosecret char *text = NULL, *now = NULL;
	struct ps_error err = {0};
	int rc;

	if (!store->sas_file || !sas)
		return false;
	rc = read_file(store->sas_file, &text, &err);
	if (rc == 0)
		rc = take_sas(store, text, &err);
	if (rc < 0)
		ps_log_warning("credentials: %s: %s", store->sas_file, err.text);
	now = ps_az_store_sas(store, &rc);
	return now && strcmp(now, sas) != 0;
}
