/* Which storage account, where it is, and by which right it is read: an account key (SharedKey), a shared access signature (SAS),
 * or nothing.
 *
 * The first of these that there is: --no-sign-request; the SAS of the source; --az-sas-file; AZURE_STORAGE_CONNECTION_STRING;
 * AZURE_STORAGE_KEY; AZURE_STORAGE_SAS_TOKEN. The last three count for the account that they, or AZURE_STORAGE_ACCOUNT, name.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, over the SAS, for a copy; the file is read
 * without it. Blocks: init and refused on disk. Errors: -EINVAL, -EACCES with what to do; no text holds a secret. */
#ifndef PS_ORIGIN_AZ_STORE_H
#define PS_ORIGIN_AZ_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "origin/origin.h"
#include "origin/source.h"

#define PS_AZ_KEY_MAX_LEN 256 /* decoded; accounts have 64 bytes */

struct ps_az_store {
	char *account;
	char *root;     /* scheme://host[:port], and a path where the account is not in the host's name */
	char *identity; /* the same if it is not Azure's public cloud, for objects' URLs; else NULL */
	unsigned char key[PS_AZ_KEY_MAX_LEN]; /* secret */
	size_t nkey; /* 0: none */
	char *sas_file;
	pthread_mutex_t lock;
	char *sas; /* secret; NULL: none */
	_Atomic int64_t clock_off_s; /* the store's clock is ahead of ours by so much */
};

int ps_az_store_init(struct ps_az_store *store, const struct ps_source *source, const struct ps_origin_options *options,
        struct ps_error *err) PS_MUST_USE;
void ps_az_store_fini(struct ps_az_store *store);

/* A copy, for ps_secret_free(); NULL: there is none, or (*ret_rc) no memory. */
char *ps_az_store_sas(struct ps_az_store *store, int *ret_rc);
/* The store refused `sas`. True: the file has another one by now. */
bool ps_az_store_refused(struct ps_az_store *store, const char *sas);

/* What tells stores apart, as `identity`; the caller frees it. NULL: the public cloud. */
char *ps_az_endpoint(const char *canonical, const struct ps_origin_options *options);

#endif
