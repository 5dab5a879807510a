/* Keys of the environment. */
#include <errno.h>

#include "credentials/key_source.h"

int ps_key_from_env(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *access_key = ps_key_env(x, "AWS_ACCESS_KEY_ID"),
	           *secret = ps_key_env(x, "AWS_SECRET_ACCESS_KEY");

	/* A profile that was asked for on the command line is meant. */
	if (x->profile || (!access_key && !secret))
		return -ENOENT;
	if (!access_key || !secret)
		return ps_error_set(err, EACCES, "AWS_%s is set, but AWS_%s is not",
		        access_key ? "ACCESS_KEY_ID" : "SECRET_ACCESS_KEY",
		        access_key ? "SECRET_ACCESS_KEY" : "ACCESS_KEY_ID");
	int rc = ps_key_checked(access_key, secret, ps_key_env(x, "AWS_SESSION_TOKEN"), NULL, 0, ret, err);
	return rc ? ps_error_prefix(err, "AWS_ACCESS_KEY_ID and its companions") : 0;
}
