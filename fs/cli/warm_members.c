/* Waits until the tables of members are made, and shows the progress. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/warm.h"

#define POLL_MS 100
#define STATS_TRIES 50 /* after this many consecutive failures the daemon does not answer */

static json_int_t number(const json_t *stats, const char *key)
{
	return json_integer_value(json_object_get(stats, key));
}

/* Why the shards could not be examined or the merged tree could not be made; "" if neither failed. */
static const char *trouble_of(const json_t *stats)
{
	const char *text = json_string_value(json_object_get(stats, "trouble"));

	return text ? text : "";
}

/* True if nothing is left to do: no shard is being read, and the merged tree is made or cannot be made. */
static bool is_done(const json_t *stats, bool merges)
{
	if (json_is_true(json_object_get(stats, "looking")) || number(stats, "making") > 0)
		return false;
	if (*trouble_of(stats))
		return true;
	return !merges || json_is_true(json_object_get(stats, "merged")) ||
	       number(stats, "known") + number(stats, "failed") < number(stats, "shards");
}

static int conclude(const json_t *stats, const struct ps_warm_options *options)
{
	json_int_t nshards = number(stats, "shards"), nknown = number(stats, "known");
	json_int_t nhidden = number(stats, "hidden");

	if (!options->quiet)
		printf("%s in %s\n", PS_COUNTED(number(stats, "files"), "file"), PS_COUNTED(nknown, "shard"));
	if (!options->quiet && nhidden) {
		ps_autostrbuf struct ps_strbuf reason = {0};

		ps_strbuf_add_printable(&reason, json_string_value(json_object_get(stats, "hidden_reason")));
		printf("%s not shown; the first: %s\n", PS_COUNTED(nhidden, "more member"),
		        ps_strbuf_peek(&reason));
	}
	if (*trouble_of(stats))
		return ps_cli_fail(
		        "warm", PS_EXIT_FAILED, "some tables cannot be created: %s", trouble_of(stats));
	if (nknown == nshards)
		return PS_EXIT_OK;
	return ps_cli_fail("warm", PS_EXIT_FAILED,
	        "%s could not be read as a tar; for the reason see user.penstock.error of the shard's "
	        "folder, or the log",
	        PS_COUNTED(nshards - nknown, "shard"));
}

int ps_warm_members(
        json_t *(*stats_of)(void *ctx), void *ctx, bool merges, const struct ps_warm_options *options)
{
	struct ps_progress progress;
	json_int_t total = 0;
	unsigned nfailed = 0;
	char note[64];
	int code = -1;

	ps_progress_init(&progress, !options->quiet, 0);
	while (code < 0 && !*options->stop) {
		json_t *stats = stats_of(ctx);
		json_int_t left = number(stats, "unknown_bytes");

		if (!stats && ++nfailed == STATS_TRIES)
			code = ps_cli_fail("warm", PS_EXIT_FAILED, "the mount's daemon does not answer");
		nfailed = stats ? 0 : nfailed;
		total = PS_MAX(total, left);
		snprintf(note, sizeof(note), "%lld of %lld shards", (long long)number(stats, "known"),
		        (long long)number(stats, "shards"));
		if (stats && is_done(stats, merges)) {
			ps_progress_end(&progress);
			code = conclude(stats, options);
		} else if (stats) {
			ps_progress_update(&progress, (uint64_t)(total - left), (uint64_t)total, note);
		}
		json_decref(stats);
		if (code < 0)
			poll(NULL, 0, POLL_MS);
	}
	ps_progress_end(&progress);
	return code >= 0 ? code
	                 : ps_cli_fail("warm", PS_EXIT_FAILED,
	                           "interrupted; finished tables are kept: run the command again to resume");
}
