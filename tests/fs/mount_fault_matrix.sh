#!/usr/bin/env bash
# Every fault of an origin: right bytes or a clean error in time, never wrong ones, nor a hang. The whole of
# it, with one reader and with eight: make faultmatrix.
. "$(dirname "$0")/../lib.sh"
requires mount nginx slow

# What it takes is waiting for timeouts, so many cells run at once; slack and the longer timeout where
# repeating helps are for that and for other tests.
matrix() {
	timeout -k 5 250 "$python" "$top_srcdir/tests/bench/faultmatrix" --penstock "$top_builddir/penstock" \
		--tmp "$T" \
		--timeout 2 --heal-timeout 20 --slack 30 --size 3 --jobs 10 "$@" >"$T/table" 2>"$T/bad"
}
tell() {
	local rc=0
	matrix "$@" || rc=$?
	sed 's/^/# /' "$T/table"
	((rc == 0)) || cat "$T/bad" >&2
	return "$rc"
}

check "eight readers of a half cached file" tell --states half --readers 8
check "a reader of a file that is not cached" tell --states cold --readers 1 \
	--faults "reset,body,20,range,Content-Range,gzip"
check "lookups that need a HEAD" tell --states lookup --readers 8 \
	--faults "silent,black,DNS,500,429,reset,garbage,twice"
check "what is cached, whatever the origin does, also after a new mount" tell --states restarted --readers 1 \
	--faults "refused,silent,black,DNS,drip,reset,503,500,garbage,ETag,shrunk"
