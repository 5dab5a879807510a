#include "base/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_strong(const char *etag)
{
	return etag[0] == '"';
}

static const char *opaque(const char *etag)
{
	return strncmp(etag, "W/", 2) == 0 ? etag + 2 : etag;
}

bool ps_remote_same_version(const struct ps_remote *known, const struct ps_remote *seen)
{
	if (known->size != PS_SIZE_UNKNOWN && seen->size != PS_SIZE_UNKNOWN && known->size != seen->size)
		return false;
	if (ps_remote_is_by_size(known) || ps_remote_is_by_size(seen))
		return true;
	if (is_strong(known->etag) && is_strong(seen->etag))
		return strcmp(known->etag, seen->etag) == 0;
	if (known->etag[0] && seen->etag[0] && strcmp(opaque(known->etag), opaque(seen->etag)) != 0)
		return false;
	return known->mtime_s < 0 || seen->mtime_s < 0 || known->mtime_s == seen->mtime_s;
}

bool ps_remote_versionless(const struct ps_remote *remote)
{
	return (!remote->etag[0] || ps_remote_is_marked(remote)) && remote->mtime_s < 0;
}

static const char by_size[] = "by-size", stated[] = "stated-size:";

void ps_remote_by_size(struct ps_remote *remote)
{
	memcpy(remote->etag, by_size, sizeof(by_size));
}

bool ps_remote_is_by_size(const struct ps_remote *remote)
{
	return strcmp(remote->etag, by_size) == 0;
}

void ps_remote_state_size(struct ps_remote *remote, uint64_t size)
{
	remote->size = PS_SIZE_UNKNOWN;
	if (size != PS_SIZE_UNKNOWN)
		snprintf(remote->etag, sizeof(remote->etag), "%s%" PRIu64, stated, size);
}

uint64_t ps_remote_stated_size(const struct ps_remote *remote)
{
	size_t n = sizeof(stated) - 1;

	return strncmp(remote->etag, stated, n) == 0 ? strtoull(remote->etag + n, NULL, 10) : PS_SIZE_UNKNOWN;
}

static const char mark[] = "first64k:";

bool ps_remote_is_marked(const struct ps_remote *remote)
{
	return strncmp(remote->etag, mark, sizeof(mark) - 1) == 0;
}

void ps_remote_mark(struct ps_remote *remote, uint64_t crc64nvme)
{
	snprintf(remote->etag, sizeof(remote->etag), "%s%016" PRIx64, mark, crc64nvme);
}
