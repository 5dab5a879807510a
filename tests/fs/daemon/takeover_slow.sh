#!/usr/bin/env bash
# A daemon that takes mounts over may take more than ten seconds while it makes progress, as with a large
# cache on a slow disk. A daemon that makes no progress is given up after ten.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-240}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root slow
preload=$top_builddir/tests/fs/daemon/.libs/libpreload.so
[[ -e $preload ]] || skip_all "$preload is not built"
! sanitized "$top_builddir/penstock" || skip_all "the sanitizers want to be the first library"
[[ $(stat -f -c %T "$T") != tmpfs ]] || skip_all "$T is in memory: nothing would be read from or written to a disk"
release=$(uname -r)
release=${release%%-*}
[[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]] || skip_all "needs Linux 6.10 or later"

# Each data file takes the next daemon 0.2 s.
nfiles=70
! long || nfiles=400
mkdir -p "$T/www"
for ((i = 0; i < nfiles; i++)); do echo "$i" >"$T/www/$i.txt"; done
start_nginx
# In the cache, the only place where the daemon may write.
export PENSTOCK_TEST_SLOW=$CACHE/slow
LD_PRELOAD=$preload mount_penstock "$ORIGIN/json/"
cat "$MNT"/*.txt >"$T/out"
cached() { (($(stats .cache.objects) == nfiles)); }
check "all files are cached" wait_until 20 cached

# read_one PATH: reads the file. Sets rc and seconds.
read_one() {
	local start=$EPOCHREALTIME
	rc=0
	timeout 90 cat "$1" >"$T/out" 2>"$T/err" || rc=$?
	seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN {print b - a}')
}
keeper=$(awk '/^PPid:/ {print $2}' "/proc/$(stats .pid)/status")
gone() { ! kill -0 "$keeper" 2>/dev/null; }

if ! long; then
	touch "$CACHE/slow"
	kill -KILL "$(stats .pid)"
	read_one "$MNT/3.txt"
	equal "a read waits for a daemon that makes progress" "0 3" "$rc $(cat "$T/out")"
	at_least "that daemon took longer than one that hangs may" 11 "$seconds"
	equal "one daemon was enough" 1 "$(stats .restarts)"
	rm "$CACHE/slow"
	mkdir "$CACHE/slow"
	kill -KILL "$(stats .pid)"
	read_one "$MNT/4.txt"
	equal "a daemon that makes no progress is given up" 1 "$rc"
	at_most "within the limit (s)" 40 "$seconds"
	rmdir "$CACHE/slow"
else
	touch "$CACHE/slow"
	kill -KILL "$(stats .pid)"
	read_one "$MNT/4.txt"
	equal "a daemon that makes progress but does not serve is given up" 1 "$rc"
	at_least "after a minute (s)" 55 "$seconds"
	rm "$CACHE/slow"
fi
check "the keeper ends" wait_until 10 gone
check_not "the mount is cleared away" is_mounted
check "the log has the reason" grep -q "keeper: no daemon has served" "$T/penstock.log"
check "the next mount serves" mount_penstock "$ORIGIN/json/"
check "its bytes are right" cmp "$MNT/2.txt" "$T/www/2.txt"
