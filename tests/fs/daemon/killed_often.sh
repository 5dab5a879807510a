#!/usr/bin/env bash
# kill -9 again and again under load: no byte is wrong, nothing that was cached is lost.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root

times=25
! long || times=100
kills() {
	"$python" "$top_srcdir/tests/bench/kill9" --times "$times" --penstock "$top_builddir/penstock"
}
check "no byte is wrong or lost after $times kills at random moments" kills
