#!/usr/bin/env bash
# Faults of an origin: right bytes or a clean error in time, never wrong bytes or a hang. `make faultmatrix`
# runs the whole matrix, with one reader and with eight.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx slow

# The cells mostly wait for timeouts, so many run at once. The slack, and the longer timeout where retries
# help, allow for that and for other tests.
matrix() {
	timeout -k 5 250 "$python" "$top_srcdir/tests/bench/faultmatrix" --penstock "$top_builddir/penstock" \
		--tmp "$T" \
		--timeout 2 --heal-timeout 20 --slack 30 --size 3 --jobs 10 "$@" >"$T/table" 2>"$T/bad"
}
show() {
	local rc=0
	matrix "$@" || rc=$?
	sed 's/^/# /' "$T/table"
	((rc == 0)) || cat "$T/bad" >&2
	return "$rc"
}

check "all faults, with eight readers of a half cached file" show --states half --readers 8
check "faults of answers, with a reader of a file that is not cached" show --states cold --readers 1 \
	--faults "reset,body,20,range,Content-Range,gzip"
check "faults of lookups that need a HEAD" show --states lookup --readers 8 \
	--faults "silent,black,DNS,500,429,reset,garbage,twice"
release=$(uname -r)
if [[ $(printf '%s\n' 6.10 "${release%%-*}" | sort -V | head -n 1) == 6.10 ]]; then
	check "a daemon that is killed twice, whatever is cached" show --states cold,half,cached,lookup --readers 8 \
		--faults "daemon killed"
else
	skip "a daemon that is killed twice" "needs Linux 6.10 or later"
fi
check "cached files are read after a new mount, whatever the origin does" \
	show --states restarted --readers 1 \
	--faults "refused,silent,black,DNS,drip,reset,503,500,garbage,gzip,ETag,shrunk"
