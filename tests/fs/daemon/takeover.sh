#!/usr/bin/env bash
# Programs that read while their daemon is killed again and again see no error and no wrong byte: the keeper
# starts the next daemon.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-400}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root

release=$(uname -r)
release=${release%%-*}
[[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]] || skip_all "needs Linux 6.10 or later"
times=6
! long || times=200
# takeover [OPTION...]: writes the benchmark's line of JSON to $T/out.
takeover() {
	"$python" "$top_srcdir/tests/bench/takeover" --penstock "$top_builddir/penstock" --times "$times" "$@" \
		>"$T/out"
}
check "eight programs see no error in $times kills" takeover --seed 7
at_most "p99 of the pauses (s)" 2 "$(jq .pause_p99_s "$T/out")"
times=$((times / 2))
check "nor without passthrough" takeover --seed 8 --option=--no-passthrough
check "nor in a mount of members" takeover --seed 9 --members
