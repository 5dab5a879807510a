/* A loader's fingerprint: what an experiment's log needs to tell whether two runs had the same data. */
#include "config.h"

#include "loader.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/fnv.h"

/* Samples and a hash of each shard's count, by indexes or catalogue. False: not all are known. */
static bool counts_hash(struct penstock_loader *l, uint64_t *ret_samples, uint64_t *ret_hash)
{
	*ret_samples = 0;
	*ret_hash = PS_HASH_BEGIN;
	for (uint32_t i = 0; i < l->schedule.nshards; i++) {
		uint64_t n;

		if (ps_indexes_count(l->indexes, i, &n, NULL) < 0)
			return false;
		*ret_samples += n;
		n = htole64(n);
		*ret_hash = ps_hash(*ret_hash, &n, sizeof(n));
	}
	return true;
}

static int text_make(struct penstock_loader *l, char **ret_text, size_t *ret_n, struct ps_load_error *err)
{
	uint64_t samples, counts, digest;
	FILE *out;
	int r = ps_state_print_make(&l->print, &l->options, err);

	if (r < 0)
		return r;
	out = open_memstream(ret_text, ret_n);
	if (!out)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	digest = ps_state_print_show(&l->print, NULL);
	fprintf(out, "{\"digest\": \"%016" PRIx64 "\", \"version\": \"%s\", ", digest, PACKAGE_VERSION);
	if (counts_hash(l, &samples, &counts))
		fprintf(out, "\"samples\": %" PRIu64 ", \"counts\": \"%016" PRIx64 "\", ", samples, counts);
	else
		fputs("\"samples\": null, \"counts\": null, ", out);
	fprintf(out, "\"world\": %u, ", l->options.o.world);
	(void)ps_state_print_show(&l->print, out);
	fputs("}", out);
	if (fclose(out) == 0)
		return 0;
	free(ps_steal_ptr(ret_text));
	return ps_load_error_set(err, ENOMEM, "out of memory");
}

int penstock_loader_fingerprint(struct penstock_loader *l, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	ps_autofree char *text = NULL;
	size_t n = 0;
	int r = ps_opener_check(l->pid, &err);

	if (r == 0)
		r = text_make(l, &text, &n, &err);
	if (r == 0 && buf && size <= n)
		r = ps_load_error_set(
		        &err, ENOBUFS, "the fingerprint has %zu bytes, but there is room for %zu", n + 1, size);
	if (r < 0)
		return ps_give_error(error, r, &err);
	if (buf)
		memcpy(buf, text, n + 1);
	return (int)n;
}
