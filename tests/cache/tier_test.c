/* Tiers: which one is asked, how a list is read, when one is set aside, how many late requests leave their
 * tier. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "cache_test.h"
#include "tier/tier.h"
#include "tier/tier_private.h"

#define MAX 1000
#define STRIPES 20000

static void names_of(uint64_t *names, size_t n)
{
	char url[64];

	for (size_t i = 0; i < n; i++) {
		snprintf(url, sizeof(url), "http://10.0.%zu.%zu:8080", i / 250, i % 250);
		names[i] = ps_rendezvous_name(url);
	}
}

/* Daemons of different releases, on machines of different kinds, must choose the same tiers. */
static void the_choice_never_changes(void **state)
{
	uint64_t names[8];

	(void)state;
	names_of(names, 8);
	uint64_t object = ps_tier_object("data.example.org", "/shards/a.tar", NULL);
	size_t seen[8], want[8] = {2, 3, 4, 2, 6, 1, 5, 7};
	for (uint64_t s = 0; s < 8; s++)
		seen[s] = ps_rendezvous_choose(names, 8, NULL, object, s);
	assert_memory_equal(seen, want, sizeof(want));
	assert_true(ps_tier_object("h", "/a", "b") != ps_tier_object("h", "/a", NULL));
}

static void each_tier_has_its_share(void **state)
{
	static const size_t sizes[] = {1, 2, 8, 64, MAX};
	static uint64_t names[MAX];
	static unsigned counts[MAX];

	(void)state;
	for (size_t k = 0; k < PS_ARRAY_LEN(sizes); k++) {
		size_t n = sizes[k];
		double mean = (double)STRIPES * 10 / (double)n;

		names_of(names, n);
		memset(counts, 0, sizeof(counts));
		for (uint64_t s = 0; s < STRIPES; s++)
			for (uint64_t object = 0; object < 10; object++)
				counts[ps_rendezvous_choose(names, n, NULL, object * 7919, s)]++;
		for (size_t i = 0; i < n; i++) /* 6 standard deviations */
			assert_true(fabs(counts[i] - mean) <= 6 * sqrt(mean));
		if (n == MAX)
			break;
	}
}

static void a_tier_that_leaves_moves_its_own_stripes_only(void **state)
{
	uint64_t names[8];
	bool out[8] = {false};
	unsigned moved = 0, spread[8] = {0};

	(void)state;
	names_of(names, 8);
	out[3] = true;
	for (uint64_t s = 0; s < STRIPES; s++) {
		size_t before = ps_rendezvous_choose(names, 8, NULL, 1, s);
		size_t after = ps_rendezvous_choose(names, 8, out, 1, s);

		assert_int_not_equal(after, 3);
		if (before != 3)
			assert_int_equal(after, before);
		else
			spread[after]++;
		moved += before == 3;
	}
	for (size_t i = 0; i < 8; i++)
		assert_true(i == 3 ? spread[i] == 0 : spread[i] > moved / 14);
	memset(out, true, sizeof(out));
	assert_int_equal(ps_rendezvous_choose(names, 8, out, 1, 0), 8);
	/* The order of the list does not count. */
	uint64_t turned[8];
	for (size_t i = 0; i < 8; i++)
		turned[i] = names[7 - i];
	for (uint64_t s = 0; s < 100; s++)
		assert_int_equal(ps_rendezvous_choose(turned, 8, NULL, 1, s),
		        7 - ps_rendezvous_choose(names, 8, NULL, 1, s));
}

static void lists_are_read(void **state)
{
	static const struct {
		const char *text, *want; /* want NULL: refused */
		const char *words;
	} cases[] = {
	        {"http://a:8080", "http://a:8080", ""},
	        {"http://b:81/,http://A:80", "http://a http://b:81", ""},
	        {"http://a\n# a comment, with http://c\nhttps://[::1]:8443", "http://a https://[::1]:8443",
	                ""},
	        {"http://a,http://a/", "http://a", ""},
	        {"http://a/path", NULL, "without a path"},
	        {"http://a/?x=1", NULL, "without a path"},
	        {"http://me:secret@a", NULL, "without a path"},
	        {"a:8080", NULL, "not a URL"},
	        {"me:secret@a:8080", NULL, "not a URL"},
	        {"file:///x", NULL, "neither"},
	        {"", NULL, "names no tier"},
	        {" , ,", NULL, "names no tier"},
	        {"@/nowhere/at/all", NULL, "No such file"},
	        {"dns+https://localhost", NULL, "certificates"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct ps_tier_urls urls = {0};
		struct ps_error err = {0};
		char seen[256] = "";
		int rc = ps_tier_list_read(cases[i].text, &urls, &err);

		for (size_t u = 0; u < urls.n; u++)
			snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s%s", u ? " " : "",
			        urls.v[u]);
		assert_int_equal(rc == 0, cases[i].want != NULL);
		if (cases[i].want)
			assert_string_equal(seen, cases[i].want);
		else
			assert_non_null(strstr(err.text, cases[i].words));
		assert_null(strstr(err.text, "secret"));
		ps_tier_urls_fini(&urls);
	}
	assert_true(ps_tier_url_is_protected("http://127.0.0.1:8080", false));
	assert_false(ps_tier_url_is_protected("http://10.0.0.1:8080", true));
	assert_false(ps_tier_url_is_protected("https://10.0.0.1:8080", false));
	assert_true(ps_tier_url_is_protected("https://10.0.0.1:8080", true));
}

static struct ps_tiers *tiers_new(const char *list, unsigned ppm)
{
	const struct ps_tier_options options = {.list = list, .verify_ppm = ppm};
	struct ps_tiers *all = NULL;
	struct ps_error err = {0};

	if (ps_tiers_new(&options, &all, &err) < 0)
		fail_msg("%s", err.text);
	return all;
}

static struct ps_tier_turn pick(struct ps_tiers *all, uint64_t offset)
{
	struct ps_tier_turn turn;

	ps_tiers_pick(all, 42, offset, false, &turn);
	return turn;
}

static json_int_t figure(struct ps_tiers *all, const char *name)
{
	json_t *doc = ps_tiers_stats(all);
	json_int_t n = json_integer_value(json_object_get(doc, name));

	json_decref(doc);
	return n;
}

static bool judge(struct ps_tiers *all, const struct ps_tier_turn *turn, enum ps_tier_failure failure,
        struct ps_tier_trial trial)
{
	return ps_tiers_judged(all, turn, failure, &trial);
}

static void a_tier_that_is_down_is_set_aside_and_tried_again(void **state)
{
	struct ps_tiers *all = tiers_new("http://a,http://b", 0);
	struct ps_tier_turn first = pick(all, 0), second;

	(void)state;
	assert_non_null(first.tier);
	ps_tiers_failed(all, &first, PS_TIER_DOWN, 0, "refused");
	assert_int_equal(figure(all, "aside"), 1);
	/* The next tier takes over its stripes, for all nodes. */
	assert_non_null(pick(all, 0).tier);
	assert_ptr_not_equal(pick(all, 0).tier, first.tier);
	usleep(1300000);
	/* One request is the probe, while the others still go elsewhere. */
	second = pick(all, 0);
	assert_ptr_equal(second.tier, first.tier);
	assert_true(second.probe);
	assert_ptr_not_equal(pick(all, 0).tier, first.tier);
	/* It fails, too: set aside for twice the time. */
	ps_tiers_failed(all, &second, PS_TIER_DOWN, 0, "refused");
	assert_non_null(pick(all, 0).tier);
	assert_ptr_not_equal(pick(all, 0).tier, first.tier);
	usleep(2600000);
	second = pick(all, 0);
	assert_ptr_equal(second.tier, first.tier);
	ps_tiers_answered(all, &second, 1000, PS_NS_PER_MS);
	assert_int_equal(figure(all, "aside"), 0);
	assert_ptr_equal(pick(all, 0).tier, first.tier);
	assert_false(pick(all, 0).probe);
	ps_tiers_free(all);
}

static void what_the_origin_does_not_answer_either_is_no_fault_of_the_tier(void **state)
{
	struct ps_tiers *all = tiers_new("http://a", 0);
	struct ps_tier_turn turn = pick(all, 0);

	(void)state;
	ps_tiers_failed(all, &turn, PS_TIER_WRONG, 0, "HTTP 404");
	judge(all, &turn, PS_TIER_WRONG, (struct ps_tier_trial){0});
	assert_int_equal(figure(all, "aside"), 0);
	/* The tier passes on a redirect of the origin, which no tier follows: that is no fault of the
	 * tier. */
	ps_tiers_failed(all, &turn, PS_TIER_REDIRECTED, 0, "HTTP 302");
	judge(all, &turn, PS_TIER_REDIRECTED, (struct ps_tier_trial){.answered = true});
	assert_int_equal(figure(all, "aside"), 0);
	ps_tiers_failed(all, &turn, PS_TIER_WRONG, 0, "HTTP 500");
	judge(all, &turn, PS_TIER_WRONG, (struct ps_tier_trial){.answered = true});
	assert_int_equal(figure(all, "aside"), 1);
	assert_int_equal(figure(all, "fallbacks"), 3);
	ps_tiers_free(all);
}

/* The origin's answer to a trial of `ndone` bytes, at a rate at which a whole slice takes slice_ns. */
static struct ps_tier_trial trial_of(uint64_t ndone, uint64_t slice_ns)
{
	return (struct ps_tier_trial){.answered = true,
	        .ns = slice_ns * ndone / PS_TIER_SLICE_NBYTES,
	        .nbytes = ndone,
	        .ndone = ndone,
	        .nmissing = PS_TIER_SLICE_NBYTES - ndone};
}

static void leave_late(struct ps_tiers *all, struct ps_tier_turn *turn)
{
	ps_tiers_heard(turn->tier, ps_clock_mono_ns()); /* by a ping: it is alive */
	assert_int_equal(ps_tiers_waits(all, turn, 20 * PS_NS_PER_S), PS_TIER_LEAVE);
	turn->idle_ns = turn->late_ns;
	ps_tiers_failed(all, turn, PS_TIER_LATE, 0, "late");
}

static void a_slow_origin_is_not_asked_twice(void **state)
{
	struct ps_tiers *all = tiers_new("http://a", 0);
	struct ps_tier_turn turn = pick(all, 0), other = pick(all, PS_TIER_STRIPE_NBYTES);
	uint64_t late_ns = turn.late_ns;

	(void)state;
	ps_tiers_heard(turn.tier, ps_clock_mono_ns());
	assert_int_equal(ps_tiers_waits(all, &turn, late_ns - 1), PS_TIER_STAY);
	/* One trial at a time. */
	leave_late(all, &turn);
	assert_int_equal(ps_tiers_waits(all, &other, late_ns), PS_TIER_STAY);
	/* At the origin's rate a slice takes more than half of the late limit: the limit rises for all
	 * tiers. */
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, late_ns * 3 / 4)));
	assert_int_equal(figure(all, "aside"), 0);
	assert_int_equal(pick(all, 0).late_ns, late_ns * 9 / 4);
	assert_int_equal(ps_tiers_waits(all, &other, late_ns * 9 / 4 - 1), PS_TIER_STAY);
	/* There was credit for two trials, and no more. A cancelled trial gives no credit back. */
	late_ns = late_ns * 9 / 4;
	assert_int_equal(ps_tiers_waits(all, &other, late_ns), PS_TIER_LEAVE);
	ps_tiers_left(all, &other);
	assert_int_equal(ps_tiers_waits(all, &other, late_ns), PS_TIER_STAY);
	/* A share of the bytes that tiers answer becomes credit for further trials. */
	for (int i = 0; i < 51; i++)
		ps_tiers_answered(all, &turn, PS_TIER_SLICE_NBYTES, PS_NS_PER_S);
	leave_late(all, &other);
	/* The tier answered other requests meanwhile, so it is not set aside for one late request. */
	ps_tiers_answered(all, &turn, 1, PS_NS_PER_S);
	assert_false(judge(all, &other, PS_TIER_LATE, trial_of(PS_TIER_SLICE_NBYTES, 1)));
	assert_int_equal(figure(all, "aside"), 0);
	/* Quick answers lower the late limit again. */
	for (int i = 0; i < 1000; i++)
		ps_tiers_answered(all, &turn, PS_TIER_SLICE_NBYTES, 1);
	assert_int_equal(pick(all, 0).late_ns, turn.late_ns);
	ps_tiers_free(all);
}

/* Even a busy origin answers a small part quickly. So the tier is set aside only after the origin has given
 * all bytes that the tier was asked for. */
static void a_tier_is_slow_if_the_origin_brings_the_whole_slice(void **state)
{
	struct ps_tiers *all = tiers_new("http://a", 0);
	struct ps_tier_turn turn = pick(all, 0), other = pick(all, PS_TIER_STRIPE_NBYTES);

	(void)state;
	leave_late(all, &turn);
	assert_true(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, turn.late_ns / 4)));
	assert_true(judge(all, &turn, PS_TIER_LATE, trial_of(4 * PS_TIER_TRIAL_NBYTES, turn.late_ns / 4)));
	assert_int_equal(figure(all, "aside"), 0);
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_SLICE_NBYTES, turn.late_ns / 4)));
	assert_int_equal(figure(all, "aside"), 1);
	/* All requests that wait for this tier leave it at once. */
	assert_int_equal(ps_tiers_waits(all, &other, 1), PS_TIER_LEAVE);
	/* Their trials do not change the late limit. */
	uint64_t late_ns = pick(all, 0).late_ns;
	judge(all, &other, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, 10 * other.late_ns));
	assert_int_equal(pick(all, 0).late_ns, late_ns);
	ps_tiers_free(all);

	/* A busy origin, and one slice that is late: the tier's connection may be unlucky. */
	all = tiers_new("http://a", 0);
	turn = pick(all, 0);
	leave_late(all, &turn);
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, turn.late_ns)));
	for (int i = 0; i < 2; i++) {
		ps_tiers_answered(all, &turn, 1, 20 * PS_NS_PER_S);
		turn = pick(all, 0);
		leave_late(all, &turn);
		assert_false(
		        judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_SLICE_NBYTES, turn.late_ns / 4)));
		assert_int_equal(figure(all, "aside"), 0);
	}
	/* The next slice is late, too, without an answer in between: the tier is set aside. */
	turn = pick(all, 0);
	leave_late(all, &turn);
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_SLICE_NBYTES, turn.late_ns / 4)));
	assert_int_equal(figure(all, "aside"), 1);
	ps_tiers_free(all);

	/* Each part of a trial uses up credit. */
	all = tiers_new("http://a", 0);
	turn = pick(all, 0);
	leave_late(all, &turn);
	assert_true(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, 1)));
	assert_int_equal(ps_tiers_waits(all, &turn, turn.late_ns), PS_TIER_STAY);
	ps_tiers_free(all);
}

static void a_tier_that_answers_no_ping_is_mute(void **state)
{
	struct ps_tiers *all = tiers_new("http://a", 0);
	struct ps_tier_turn turn = pick(all, 0), other = pick(all, PS_TIER_STRIPE_NBYTES);
	uint64_t idle_ns = PS_TIER_PING_MS * PS_NS_PER_MS;

	(void)state;
	/* A tier that answered a moment ago is not pinged yet. There is one ping at a time. */
	ps_tiers_heard(turn.tier, ps_clock_mono_ns());
	assert_int_equal(ps_tiers_waits(all, &turn, idle_ns), PS_TIER_STAY);
	ps_tiers_heard(turn.tier, 0);
	assert_int_equal(ps_tiers_waits(all, &turn, idle_ns), PS_TIER_PING);
	assert_int_equal(ps_tiers_waits(all, &other, idle_ns), PS_TIER_STAY);
	/* For 450 ms the ping may wait for its answer, and there is no trial. Then the tier is mute, and the
	 * request leaves it without credit. */
	ps_tiers_asked(turn.tier, ps_clock_mono_ns());
	assert_int_equal(ps_tiers_waits(all, &turn, turn.late_ns), PS_TIER_STAY);
	usleep(460000);
	assert_int_equal(ps_tiers_waits(all, &turn, turn.late_ns), PS_TIER_LEAVE);
	assert_true(turn.mute);
	ps_tiers_failed(all, &turn, PS_TIER_LATE, 0, "late");
	/* The origin does not answer either: the cause may be this node's network. */
	assert_false(judge(all, &turn, PS_TIER_LATE, (struct ps_tier_trial){0}));
	assert_int_equal(figure(all, "aside"), 0);
	/* The tier answers the ping late, while the origin is asked. */
	ps_tiers_heard(turn.tier, ps_clock_mono_ns());
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, 1)));
	assert_int_equal(figure(all, "aside"), 0);
	/* A mute tier is set aside, however slow the origin is. */
	ps_tiers_heard(turn.tier, 0);
	assert_false(judge(all, &turn, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, 100 * turn.late_ns)));
	assert_int_equal(figure(all, "aside"), 1);
	assert_int_equal(ps_tiers_waits(all, &other, idle_ns), PS_TIER_LEAVE);
	/* A ping that was sent before a request began, and is over, does not make the tier mute for that
	 * request. */
	usleep(1300000);
	struct ps_tier_turn probe = pick(all, 0);
	assert_true(probe.probe);
	ps_tiers_pinged(probe.tier);
	assert_int_equal(ps_tiers_waits(all, &probe, idle_ns), PS_TIER_PING);
	assert_false(probe.mute);
	/* Its time is not that of the ping that is about to be sent now. */
	assert_int_equal(ps_tiers_waits(all, &probe, idle_ns), PS_TIER_STAY);
	/* But a ping that is under way does. */
	ps_tiers_asked(probe.tier, ps_clock_mono_ns() - 500 * PS_NS_PER_MS);
	probe.began_ns = ps_clock_mono_ns() - 300 * PS_NS_PER_MS;
	assert_int_equal(ps_tiers_waits(all, &probe, idle_ns), PS_TIER_LEAVE);
	assert_true(probe.mute);
	/* The tier answers, and is pinged again before the origin answers: it is alive. */
	ps_tiers_failed(all, &probe, PS_TIER_LATE, 0, "late");
	ps_tiers_heard(probe.tier, ps_clock_mono_ns());
	ps_tiers_asked(probe.tier, ps_clock_mono_ns() + 1);
	uint64_t strikes = figure(all, "failures");
	assert_false(judge(all, &probe, PS_TIER_LATE, trial_of(PS_TIER_TRIAL_NBYTES, 1)));
	assert_int_equal(figure(all, "failures"), strikes);
	ps_tiers_free(all);
}

static void secrets_are_withheld(void **state)
{
	struct ps_tier_options options = {.list = "http://192.0.2.1"};
	struct ps_tiers *all = NULL;
	struct ps_error err = {0};
	struct ps_tier_turn turn;

	(void)state;
	assert_int_equal(ps_tiers_new(&options, &all, &err), 0);
	ps_tiers_pick(all, 1, 0, true, &turn);
	assert_null(turn.tier);
	ps_tiers_pick(all, 1, 0, false, &turn);
	assert_non_null(turn.tier);
	assert_int_equal(figure(all, "withheld"), 1);
	ps_tiers_free(all);
	options.auth = PS_TIER_AUTH_PROTECTED;
	assert_int_equal(ps_tiers_new(&options, &all, &err), -EINVAL);
	assert_non_null(strstr(err.text, "--tier-auth=cleartext"));
	options.auth = PS_TIER_AUTH_CLEARTEXT;
	assert_int_equal(ps_tiers_new(&options, &all, &err), 0);
	ps_tiers_pick(all, 1, 0, true, &turn);
	assert_non_null(turn.tier);
	ps_tiers_free(all);
}

static void a_share_of_the_bytes_is_compared(void **state)
{
	struct ps_tiers *all = tiers_new("http://a", 1000); /* 0.1 % */
	struct ps_tier_turn turn = pick(all, 0);
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < 1600; i++)
		n += ps_tiers_samples(all, PS_TIER_SLICE_NBYTES);
	assert_int_equal(n, 1600 * (PS_TIER_SLICE_NBYTES / 1000) / PS_TIER_SAMPLE_NBYTES);
	ps_tiers_compared(all, turn.tier, PS_TIER_SAMPLE_NBYTES, true, "");
	assert_int_equal(figure(all, "mismatches"), 0);
	ps_tiers_compared(all, turn.tier, PS_TIER_SAMPLE_NBYTES, false, "others");
	assert_int_equal(figure(all, "mismatches"), 1);
	assert_int_equal(figure(all, "aside"), 1);
	assert_int_equal(figure(all, "verified_bytes"), 2 * PS_TIER_SAMPLE_NBYTES);
	ps_tiers_free(all);
	all = tiers_new("http://a", 0);
	assert_false(ps_tiers_samples(all, UINT32_MAX));
	ps_tiers_free(all);
}

static void a_file_is_read_again(void **state)
{
	char path[4096], list[4200], other[4200];
	struct stat st;

	snprintf(path, sizeof(path), "%s/tiers", (const char *)*state);
	FILE *f = fopen(path, "w");
	fputs("http://a\nhttp://b\n", f);
	fclose(f);
	snprintf(list, sizeof(list), "@%s", path);
	struct ps_tiers *all = tiers_new(list, 0);
	assert_int_equal(figure(all, "known"), 2);
	f = fopen(path, "w");
	fputs("http://b\nnonsense\n", f);
	fclose(f);
	stat(path, &st);
	sleep(6);
	assert_int_equal(figure(all, "known"), 2); /* the list stays as it was */
	/* A file that could not be parsed is read again, even if its time is the same. */
	f = fopen(path, "w");
	fputs("http://b\nhttp://c\nhttp://d\n", f);
	fclose(f);
	utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0);
	for (int i = 0; i < 100 && figure(all, "known") != 3; i++)
		usleep(100000);
	assert_int_equal(figure(all, "known"), 3);
	/* Another file in its place, of the same date. */
	snprintf(other, sizeof(other), "%s.other", path);
	f = fopen(other, "w");
	fputs("http://e\n", f);
	fclose(f);
	utimensat(AT_FDCWD, other, (struct timespec[]){st.st_atim, st.st_mtim}, 0);
	assert_int_equal(rename(other, path), 0);
	for (int i = 0; i < 100 && figure(all, "known") != 1; i++)
		usleep(100000);
	assert_int_equal(figure(all, "known"), 1);
	ps_tiers_free(all);
}

static void write_list(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
}

/* A tier whose bytes differ from the origin's is set aside until it was removed from the list and added
 * again. */
static void a_tier_that_is_proven_wrong_stays_aside(void **state)
{
	char path[4096], list[4200];

	snprintf(path, sizeof(path), "%s/wrong", (const char *)*state);
	snprintf(list, sizeof(list), "@%s", path);
	write_list(path, "http://a\nhttp://b\n");
	struct ps_tiers *all = tiers_new(list, 0);
	struct ps_tier_turn turn = pick(all, 0);
	const struct ps_tier *wrong = turn.tier;
	const char *other = strcmp(ps_tier_url(wrong), "http://a") == 0 ? "http://b\n" : "http://a\n";

	ps_tiers_compared(all, turn.tier, PS_TIER_SAMPLE_NBYTES, false, "others");
	ps_tiers_answered(all, &turn, 1000, 1);               /* by a request that was under way */
	ps_tiers_failed(all, &turn, PS_TIER_LATE, 0, "late"); /* by another one */
	assert_int_equal(figure(all, "aside"), 1);
	json_t *doc = ps_tiers_stats(all), *tiers = json_object_get(doc, "tiers");
	size_t nbarred = 0;
	for (size_t i = 0; i < 2; i++) {
		const json_t *tier = json_array_get(tiers, i);

		if (!json_is_null(json_object_get(tier, "retry_seconds")))
			continue;
		nbarred++;
		assert_string_equal(json_string_value(json_object_get(tier, "last_error")), "others");
	}
	assert_int_equal(nbarred, 1);
	json_decref(doc);
	write_list(path, other);
	for (int i = 0; i < 100 && figure(all, "known") != 1; i++)
		usleep(100000);
	assert_ptr_not_equal(pick(all, 0).tier, wrong);
	write_list(path, "http://a\nhttp://b\n");
	for (int i = 0; i < 100 && figure(all, "known") != 2; i++)
		usleep(100000);
	assert_ptr_equal(pick(all, 0).tier, wrong);
	ps_tiers_free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_choice_never_changes),
	        cmocka_unit_test(each_tier_has_its_share),
	        cmocka_unit_test(a_tier_that_leaves_moves_its_own_stripes_only),
	        cmocka_unit_test(lists_are_read),
	        cmocka_unit_test(a_tier_that_is_down_is_set_aside_and_tried_again),
	        cmocka_unit_test(what_the_origin_does_not_answer_either_is_no_fault_of_the_tier),
	        cmocka_unit_test(a_slow_origin_is_not_asked_twice),
	        cmocka_unit_test(a_tier_is_slow_if_the_origin_brings_the_whole_slice),
	        cmocka_unit_test(a_tier_that_answers_no_ping_is_mute),
	        cmocka_unit_test(secrets_are_withheld),
	        cmocka_unit_test(a_share_of_the_bytes_is_compared),
	        cmocka_unit_test_setup_teardown(a_file_is_read_again, test_dir_setup, test_dir_teardown),
	        cmocka_unit_test_setup_teardown(
	                a_tier_that_is_proven_wrong_stays_aside, test_dir_setup, test_dir_teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
