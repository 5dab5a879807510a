/* Where huggingface_hub keeps a user's token: the same places count here. And which endpoint it asks.
 *
 * Ownership: strings handed out are the caller's; a token is for ps_secret_free(). env: as
 * for ps_env_get(). Threads: any. Blocks: on disk. Errors: a text without the token. */
#ifndef PS_CREDENTIALS_HUB_TOKEN_H
#define PS_CREDENTIALS_HUB_TOKEN_H

#include "base/error.h"

#define PS_HF_ENDPOINT "https://huggingface.co"
#define PS_HF_TOKEN_MAX_NBYTES 4096

/* file, if given (then it must be readable); else HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH,
 * $HF_HOME/token, $XDG_CACHE_HOME/huggingface/token or ~/.cache/huggingface/token. *ret NULL: there is none. -EINVAL:
 * what is there is no token. */
int ps_hf_token_find(
        const char *const *env, const char *file, char **ret, struct ps_error *err) PS_MUST_USE;

/* An endpoint as HF_ENDPOINT tells it (NULL or "": the usual one), canonical, without "/" at its end. -EINVAL: no http or
 * https URL. */
int ps_hf_endpoint_parse(const char *text, char **ret, struct ps_error *err) PS_MUST_USE;

#endif
