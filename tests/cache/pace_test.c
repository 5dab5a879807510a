/* Which requests are slow among those of their client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/size.h"
#include "http/http.h"

#define S PS_NS_PER_S
#define TICK (S / 10)
#define START (100 * S)

/* A request that brings `rate` bytes a second since START, looked at ten times a second from from_ns to to_ns,
 * while each second another request brings `other` bytes within other_ns; 0: there is none. Returns when the request was
 * found slow; 0: never. */
static uint64_t found(struct ps_http_paces *all, struct ps_http_pace *pace, uint64_t from_ns, uint64_t to_ns,
        uint64_t rate, uint64_t other, uint64_t other_ns)
{
	if (!pace->since_ns)
		ps_http_pace_begin(pace, from_ns, 0);
	for (uint64_t now = from_ns + TICK; now <= to_ns; now += TICK) {
		uint64_t nbytes = (now - START) / TICK * rate / 10;

		if (other && now % S == 0) {
			struct ps_http_pace another = {0};

			ps_http_pace_begin(&another, now - other_ns, 0);
			ps_http_pace_end(&another, all, now, other, true);
		}
		if (ps_http_pace_is_slow(pace, all, now, nbytes))
			return now;
	}
	return 0;
}

static void a_request_is_slow_only_if_others_are_ten_times_faster(void **state)
{
	static const struct {
		uint64_t rate, other, other_ns;
		bool slow;
		const char *what;
	} rows[] = {
	        {1000, 0, 0, false, "there are no others"},
	        {1000, 1 << 20, S / 100, true, "a trickle among fast requests"},
	        {100000, 1 << 20, S / 100, true, "a tenth of a million a second, which is less"},
	        {110000, 1 << 20, S / 100, false, "a little more than a tenth"},
	        {200000, 200000, S / 1000, false, "a server that sends the first second's share at once"},
	        {200000, 16 << 20, 80 * S, false, "a limited rate, long requests"},
	        {1000, 5000, 5 * S, false, "all trickle"},
	        {0, 1 << 20, S / 100, true, "nothing comes any more"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_http_paces all;
		struct ps_http_pace pace = {0};

		ps_http_paces_init(&all);
		uint64_t at =
		        found(&all, &pace, START, 120 * S, rows[i].rate, rows[i].other, rows[i].other_ns);
		if ((at > 0) != rows[i].slow || (at && (at < 105 * S || at > 106 * S)))
			fail_msg("%s: at %.1f s", rows[i].what, (double)at / 1e9);
		ps_http_paces_fini(&all);
	}
}

/* Many slow requests, of which each brings little, do not hide that one request was answered fast. */
static void many_trickles_are_found_once_one_request_is_fast(void **state)
{
	struct ps_http_paces all;
	struct ps_http_pace paces[30] = {0}, fast = {0};

	(void)state;
	ps_http_paces_init(&all);
	for (size_t i = 0; i < PS_ARRAY_LEN(paces); i++)
		assert_int_equal(found(&all, &paces[i], START, 112 * S, 1000, 0, 0), 0);
	ps_http_pace_begin(&fast, 112 * S, 0);
	ps_http_pace_end(&fast, &all, 112 * S + TICK, 65536, true);
	for (size_t i = 0; i < PS_ARRAY_LEN(paces); i++)
		assert_true(found(&all, &paces[i], 112 * S + TICK, 113 * S, 1000, 0, 0));
	/* That was long ago. */
	for (size_t i = 0; i < PS_ARRAY_LEN(paces); i++)
		assert_int_equal(found(&all, &paces[i], 118 * S, 130 * S, 1000, 0, 0), 0);
	ps_http_paces_fini(&all);
}

static void a_new_connection_is_tried_once_in_five_seconds(void **state)
{
	struct ps_http_paces all;

	(void)state;
	ps_http_paces_init(&all);
	assert_true(ps_http_paces_try(&all, 100 * S));
	assert_false(ps_http_paces_try(&all, 104 * S));
	assert_true(ps_http_paces_try(&all, 105 * S));
	ps_http_paces_fini(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_request_is_slow_only_if_others_are_ten_times_faster),
	        cmocka_unit_test(many_trickles_are_found_once_one_request_is_fast),
	        cmocka_unit_test(a_new_connection_is_tried_once_in_five_seconds),
	};

	return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
