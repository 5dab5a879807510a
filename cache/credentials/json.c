/* Keys as metadata servers, commands and SSO tell them: a JSON object. */
#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "credentials/json.h"
#include "credentials/key_source.h"

static void wipe(json_t *j)
{
	const char *name;
	json_t *value;

	json_object_foreach(j, name, value)
	{
		if (json_is_string(value))
			OPENSSL_cleanse((char *)json_string_value(value), json_string_length(value));
		else if (json_is_object(value))
			wipe(value);
	}
}

void ps_cleanup_secret_json(json_t **j)
{
	if (*j)
		wipe(*j);
	json_decref(*j);
}

const char *ps_json_text(const json_t *j, const char *name)
{
	const char *text = name ? json_string_value(json_object_get(j, name)) : NULL;

	return text && *text ? text : NULL;
}

/* RFC 3339, or milliseconds since the epoch. 0: none. */
static int take_expiry(const json_t *j, const char *name, int64_t *ret, struct ps_error *err)
{
	const json_t *value = json_object_get(j, name);
	const char *text = json_string_value(value);
	int64_t t = 0;

	if (json_is_integer(value))
		t = json_integer_value(value) / 1000;
	else if (text && *text)
		t = ps_clock_parse_rfc3339(text);
	else if (value && !json_is_null(value) && !text)
		t = -1;
	if (t < 0 || (json_is_integer(value) && t == 0))
		return ps_error_set(err, EPROTO, "%s is no time", name);
	*ret = t;
	return 0;
}

int ps_key_from_json(const char *text, size_t nbytes, const struct ps_key_shape *shape, struct ps_key **ret,
        struct ps_error *err)
{
	ps_autosecretjson json_t *whole = json_loadb(text, nbytes, 0, NULL);
	const json_t *j = *shape->object ? json_object_get(whole, shape->object) : whole;
	int64_t expires_s = 0;

	if (!json_is_object(j))
		return ps_error_set(err, EPROTO, "the answer is no JSON object with credentials");
	if (shape->version && json_integer_value(json_object_get(j, "Version")) != shape->version)
		return ps_error_set(err, EPROTO, "the answer is not of \"Version\": %d", shape->version);
	const char *access_key = ps_json_text(j, shape->access_key), *secret = ps_json_text(j, shape->secret);
	if (!access_key || !secret) {
		const char *code = ps_json_text(j, "Code"), *message = ps_json_text(j, "Message");

		if (!code)
			code = ps_json_text(j, "code");
		if (!message)
			message = ps_json_text(j, "message");
		if (code || message)
			return ps_error_set(err, EPROTO, "the answer says: %.80s%s%.200s", code ? code : "",
			        code && message ? ": " : "", message ? message : "");
		return ps_error_set(
		        err, EPROTO, "the answer has no %s", access_key ? shape->secret : shape->access_key);
	}
	int rc = take_expiry(j, shape->expires, &expires_s, err);
	if (rc)
		return rc;
	return ps_key_checked(access_key, secret, ps_json_text(j, shape->token), NULL, expires_s, ret, err);
}
