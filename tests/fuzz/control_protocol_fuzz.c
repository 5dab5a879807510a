/* Messages from the control socket: a decoded request stays the same when it is encoded and decoded again,
 * and its options are accepted or refused. */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct ps_given *a, const struct ps_given *b)
{
	bool all = a->n == b->n;

	for (size_t i = 0; all && i < a->n; i++)
		all = strcmp(a->v[i].name, b->v[i].name) == 0 &&
		      strcmp(a->v[i].value ? a->v[i].value : "", b->v[i].value ? b->v[i].value : "") == 0;
	return all;
}

static void try_options(const struct ps_mount_request *r)
{
	for (size_t i = 0; i < r->nsources && i < 4; i++) {
		struct ps_mount_options o;
		struct ps_error err = {0};

		if (ps_request_options(r, &r->sources[i], &o, &err) < 0 && !err.text[0])
			abort();
		ps_mount_options_fini(&o);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_given message = {0}, again = {0}, third = {0};
	struct ps_mount_request r = {0}, copy = {0};
	struct ps_error err = {0};

	if (ps_control_decode((const char *)data, size, &message) < 0)
		return 0;
	int rc = ps_request_decode(&message, &r, &err);
	if (rc < 0 && !err.text[0])
		abort();
	if (rc == 0) {
		if (ps_request_encode(&r, &again) < 0 || ps_request_decode(&again, &copy, &err) < 0 ||
		        ps_request_encode(&copy, &third) < 0 || !same(&again, &third))
			abort();
		try_options(&r);
	}
	ps_given_fini(&message);
	ps_given_fini(&again);
	ps_given_fini(&third);
	ps_request_fini(&r);
	ps_request_fini(&copy);
	return 0;
}
