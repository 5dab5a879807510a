#!/usr/bin/env bash
# scripts/prewarm fetches a list of sources and globs into the cache before they are mounted, and reports
# failures.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

make_shards "$T/www/a" 3 300000
make_shards "$T/www/b" 3 300000 7
start_nginx
prewarm() { XDG_RUNTIME_DIR=$T timeout 120 "$top_srcdir/scripts/prewarm" --cache-dir "$CACHE" "$@"; }
{
	echo "# two datasets"
	echo "$ORIGIN/a/shard-{000000..000002}.tar"
	echo
	echo "$ORIGIN/b/ *-000001.tar"
} >"$T/list"
check "prewarm of a list succeeds" prewarm --list "$T/list"
mount_penstock "$ORIGIN/a/shard-{000000..000002}.tar"
origin_forget
check "a source of the list is read" bash -c "cat '$MNT'/*.tar >'$T/all'"
equal "a source of the list is read from the cache alone" 0 "$(origin_bytes)"
check "a source of the list has the right bytes" cmp "$T/all" <(cat "$T"/www/a/*.tar)
umount_penstock
wait_until 10 no_daemon
mount_penstock "$ORIGIN/b/"
equal "of the other source only files that match the glob are cached" "remote cached remote" \
	"$(for i in 0 1 2; do getfattr --only-values -n user.penstock.state "$MNT/shard-00000$i.tar" 2>/dev/null; echo; done | xargs)"
check "prewarm of a mountpoint succeeds" env XDG_RUNTIME_DIR="$T" "$top_srcdir/scripts/prewarm" "$MNT"
equal "prewarm of a mountpoint fetches all files" \
	cached "$(getfattr --only-values -n user.penstock.state "$MNT/shard-000002.tar" 2>/dev/null)"
origin_forget
check "prewarm of a source succeeds while a mount serves the cache" \
	prewarm --option --jobs=2 "$ORIGIN/json/a/" \
	'*-000000.tar' 2>"$T/err"
equal "the daemon has no other mount afterwards" "${ORIGIN}/b/" \
	"$(jq -r '.mounts | map(.source) | unique | join(" ")' "$MNT/.penstock/stats")"
check "no private mountpoint is left" test "$(ls -d "$T"/prewarm-* 2>/dev/null)" = ''
mkdir "$T/two"
check "a mount of the prewarmed source succeeds" \
	penstock mount "$ORIGIN/json/a/" "$T/two" --cache-dir "$CACHE"
equal "the prewarmed file is cached" "cached remote" \
	"$(for i in 0 1; do getfattr --only-values -n user.penstock.state "$T/two/shard-00000$i.tar" 2>/dev/null; echo; done | xargs)"
penstock umount "$T/two"
umount_penstock
wait_until 10 no_daemon
# The first pause would be 10 s.
for source in none/x.tar 403/a/shard-000000.tar none/; do
	rc=0
	timeout 9 "$top_srcdir/scripts/prewarm" --cache-dir "$CACHE" "$ORIGIN/$source" 2>"$T/err" || rc=$?
	equal "a missing or refused file fails at once ($source)" 1 "$rc"
	equal "a missing or refused file is not tried again ($source)" 0 "$(grep -c "again in" "$T/err" || true)"
done
rc=0
timeout 9 "$top_srcdir/scripts/prewarm" --cache-dir "$CACHE" --option \
	--timeout=1s http://127.0.0.1:1/x.tar 2>"$T/err" || rc=$?
check "a source that does not answer is tried again" grep -q "again in 10 s" "$T/err"
rc=0
prewarm 2>"$T/err" || rc=$?
equal "a wrong command line gives exit code 2" 2 "$rc"
units=$("$top_srcdir/scripts/prewarm" --list "$T/list" --timer nightly)
check "--timer prints a timer" grep -q "OnCalendar" <<<"$units"
check "the timer's service has the same list" grep -q -- "prewarm \"--list\" \"$T/list\"" <<<"$units"
origin_forget
rm -rf "$CACHE"
mkdir "$CACHE"
check "--background returns at once" prewarm --background "$ORIGIN/a/shard-000000.tar"
check "--background fetches the file" wait_until 30 bash \
	-c "awk '\$1 == \"GET\" {n += \$4} END {exit n < 300000}' '$T/nginx/access.log'"
wait_until 10 no_daemon
