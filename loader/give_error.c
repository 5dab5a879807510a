/* Errors of the public interface. */
#include "config.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "public.h"

static_assert(
        (int)PS_CAUSE_OPTIONS == (int)PENSTOCK_CAUSE_OPTIONS, "ps_cause has the values of penstock_cause");

/* The newest error of this thread. */
static _Thread_local struct {
	struct penstock_error_detail detail; /* code 0: there was none */
	char shard[PATH_MAX], key[1024];
} newest;

static const char *keep(char *to, size_t room, const char *text)
{
	if (text)
		snprintf(to, room, "%s", text);
	return text ? to : NULL;
}

int ps_give_error(struct penstock_error *error, int r, const struct ps_error *err)
{
	newest.detail = (struct penstock_error_detail){.cause = err->cause,
	        .code = err->storage ? err->storage : -r,
	        .shard = keep(newest.shard, sizeof(newest.shard), err->shard),
	        .key = keep(newest.key, sizeof(newest.key), err->key),
	        .offset = err->offset};
	if (!error)
		return r;
	error->code = -r;
	snprintf(error->text, sizeof(error->text), "%s", err->text[0] ? err->text : strerror(-r));
	for (char *p = error->text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return r;
}

int penstock_error_detail(struct penstock_error_detail *ret_detail, size_t size)
{
	if (newest.detail.code == 0)
		return -ENODATA;
	memcpy(ret_detail, &newest.detail, size < sizeof(newest.detail) ? size : sizeof(newest.detail));
	return 0;
}
