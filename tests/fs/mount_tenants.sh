#!/usr/bin/env bash
# Several users of one mount: others read and warm, but change nothing that is cached, and see their own mount only.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq root setpriv

make_shards "$T/www/a" 2 50000
make_shards "$T/www/b" 2 50000
start_nginx
chmod 711 "$T"
as_other() {
	setpriv --reuid=12345 --regid=12345 --clear-groups -- timeout 60 env HOME=/nonexistent "$@"
}
# refused WHAT COMMAND...: as another user; says who may.
refused() {
	local what=$1 rc=0
	shift
	as_other "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: refused" 1 "$rc"
	check "$what: it says who may" grep -q "only root and the owner of the mount may do this" "$T/out"
}
mount_penstock "$ORIGIN/a/" --allow_other
mkdir "$T/m2"
penstock mount "$ORIGIN/b/" "$T/m2" --cache-dir "$CACHE" --log "$T/penstock.log"

check "another user reads" as_other cmp "$MNT/shard-000000.tar" /dev/stdin <"$T/www/a/shard-000000.tar"
check "and warms" as_other penstock warm "$MNT"
check "all of it" jq -e '.cache.used_bytes > 90000' "$MNT/.penstock/stats"
refused "evicting" penstock evict "$MNT"
refused "pinning" penstock pin "$MNT" 'shard-000000.tar'
equal "nothing was pinned" no "$(getfattr --only-values -n user.penstock.pinned "$MNT/shard-000000.tar" 2>/dev/null)"
check "the owner pins" penstock pin "$MNT" 'shard-000000.tar'
refused "unpinning" penstock unpin "$MNT"
equal "it stays pinned" yes "$(getfattr --only-values -n user.penstock.pinned "$MNT/shard-000000.tar" 2>/dev/null)"
equal "nothing was evicted" 0 "$(stats .cache.evicted_objects)"

equal "the owner sees all mounts of the daemon" 2 "$(stats '.mounts | length')"
others=$(as_other cat "$MNT/.penstock/stats")
equal "another user sees this one" "1 $MNT" "$(jq -r '"\(.mounts | length) \(.mounts[0].mountpoint)"' <<<"$others")"
check_not "no word of another" grep -qF "$T/m2" <<<"$others"
check_not "nor in the metrics" grep -qF "$T/m2" <<<"$(as_other cat "$MNT/.penstock/metrics")"
check "which the owner has" grep -qF "$T/m2" "$MNT/.penstock/metrics"
check "status works for others" as_other penstock status "$MNT"

check "the owner unpins" penstock unpin "$MNT"
check "and evicts" penstock evict "$MNT"
penstock umount "$T/m2"
umount_penstock
