/* What a loader tells of itself. */
#include "config.h"

#include "loader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "image/jpeg.h"
#include "stats.h"

int penstock_loader_stats(struct penstock_loader *l, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error)
{
	struct ps_load_error err = {0};
	struct ps_pipeline_stats p;
	struct penstock_stats s = {0};
	int r = ps_opener_check(l->pid, &err);

	if (r < 0)
		return ps_give_error(error, r, &err);
	ps_pipeline_stats(l->pipeline, &p);
	s.samples = atomic_load_explicit(&l->samples, memory_order_relaxed);
	s.batches = atomic_load_explicit(&l->batches, memory_order_relaxed);
	s.bad = atomic_load_explicit(&l->bad, memory_order_relaxed);
	s.blank_batches = atomic_load_explicit(&l->blank, memory_order_relaxed);
	s.empty_epochs = p.empty_epochs;
	s.bytes_read = p.nbytes_read;
	s.reread = p.reread;
	s.shards_lost = ps_lost_count(&l->lost);
	s.jpeg_decoder = ps_jpeg_decoder();
	s.seconds = (double)(ps_clock_mono_ns() - l->open_ns) / 1e9;
	ps_stats_fill(&s, &p);
	if (l->device->ops->copies) {
		struct ps_device_copies copies;

		l->device->ops->copies(l->device, &copies);
		s.copied_bytes = copies.nbytes;
		s.copy_seconds = copies.seconds;
	}
	snprintf(s.pixels, sizeof(s.pixels), "%s%s%s", l->made ? l->device->ops->name : "cpu",
	        l->made_not ? ": " : "", l->made_not ? l->made_not : "");
	if (!l->gpu.nvjpeg)
		snprintf(s.gpu_decode_why, sizeof(s.gpu_decode_why), "%.*s",
		        (int)sizeof(s.gpu_decode_why) - 1, l->gpu.why.text);
	else
		snprintf(s.gpu_library, sizeof(s.gpu_library), "%s", ps_nvjpeg_path(l->gpu.nvjpeg));
	snprintf(s.gpu_refused, sizeof(s.gpu_refused), "%.*s", (int)sizeof(s.gpu_refused) - 1,
	        l->gpu.refused.text);
	memset(ret_stats, 0, size);
	memcpy(ret_stats, &s, PS_MIN(size, sizeof(s)));
	return 0;
}

int penstock_loader_lost(struct penstock_loader *l, uint64_t n, struct penstock_lost *ret_lost)
{
	int r = ps_opener_check(l->pid, NULL);

	return r < 0 ? r : ps_lost_get(&l->lost, n, ret_lost);
}

int penstock_loader_profile(struct penstock_loader *l, char *buf, size_t size, struct penstock_error *error)
{
	struct ps_load_error err = {0};
	ps_autofree char *text = NULL;
	size_t n = 0;
	int r = ps_opener_check(l->pid, &err);

	if (r == 0 && !l->profile)
		r = ps_load_error_set(&err, ENODATA, "the loader was opened without options.profile");
	if (r == 0)
		r = ps_profile_json(l->profile, &text, &n, &err);
	if (r == 0 && buf && size <= n)
		r = ps_load_error_set(
		        &err, ENOBUFS, "the profile has %zu bytes, but there is room for %zu", n + 1, size);
	if (r < 0)
		return ps_give_error(error, r, &err);
	if (buf)
		memcpy(buf, text, n + 1);
	return (int)n;
}
