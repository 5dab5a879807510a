#!/usr/bin/env bash
# When penstock mount has returned, the mount outlives its daemon: also one that is killed at that moment.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq
preload=$top_builddir/tests/fs/daemon/.libs/libpreload.so
[[ -e $preload ]] || skip_all "$preload is not built"
! sanitized "$top_builddir/penstock" || skip_all "the sanitizers want to be the first library"
release=$(uname -r)
release=${release%%-*}
[[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]] || skip_all "needs Linux 6.10 or later"

mkdir -p "$T/www"
random_file "$T/www/f.bin" 100000
start_nginx
n=10
! long || n=100
# round HOW: N mounts of one cache, and kill -9 right after the last. Sets lost.
round() {
	local i
	lost=0
	for ((i = 0; i < n; i++)); do
		mkdir -p "$T/m/$i"
		penstock mount "$ORIGIN/" "$T/m/$i" --cache-dir "$CACHE" --log "$T/penstock.log" \
			--cache-size 100M --min-free 0
	done
	kill -KILL "$(cat "$CACHE/lock")"
	for ((i = 0; i < n; i++)); do
		cmp -s "$T/m/$i/f.bin" "$T/www/f.bin" || lost=$((lost + 1))
	done
	for ((i = 0; i < n; i++)); do penstock umount "$T/m/$i"; done
	wait_until 20 no_daemon || die "the daemon ends"
}
rounds=2
! long || rounds=10
for ((r = 1; r <= rounds; r++)); do
	round
	equal "no mount is lost (round $r)" 0 "$lost"
done

# Each message to the keeper is late.
n=3
export PENSTOCK_TEST_SLOW_KEEPER=$T/slow
touch "$T/slow"
export LD_PRELOAD=$preload
round
equal "nor is one of a daemon that is slow to tell its keeper" 0 "$lost"
