#!/usr/bin/env bash
# A second mount on the same cache folder joins its daemon: they share cache and limits, and each ends by
# itself.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
mkdir "$T/mnt2" "$T/mnt3" "$T/mnt4"
join() {
	timeout 30 penstock mount "$@" --cache-dir "$CACHE"
}

mount_penstock "$ORIGIN/" --cache-size 100M
pid=$(stats .pid)
check "another dataset joins" join "$ORIGIN/sub/" "$T/mnt2"
equal "the same daemon" "$pid" "$(jq .pid "$T/mnt2/.penstock/stats")"
check "it serves" cmp "$T/mnt2/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
equal "each mount tells of itself first, and of the other" "$T/mnt2 $MNT $MNT $T/mnt2" \
	"$(jq -r '.mounts[].mountpoint' "$T/mnt2/.penstock/stats" "$MNT/.penstock/stats" | xargs)"
equal "and counts its own reads" "7654321 0" \
	"$(jq -r '.mounts[].reads.bytes' "$T/mnt2/.penstock/stats" | xargs)"
origin_forget
check "what one has fetched, the other has, too" cmp "$MNT/sub/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
at_most "it is not fetched again, but for a byte that proves that it may be read" 1 "$(origin_bytes)"
equal "they share the limit" "$((100 << 20))" "$(jq .cache.limit_bytes "$T/mnt2/.penstock/stats")"

check "the same dataset joins, too" join "$ORIGIN/" "$T/mnt3"
check "and serves" read_tree 1m "$T/mnt3"
join "$ORIGIN/" "$T/mnt4" --cache-size 50M --log "$T/penstock.log" >"$T/out" 2>&1
equal "an option that is the daemon's is told of, and holds" "1 $((100 << 20))" \
	"$(grep -c -- '--cache-size.*100M' "$T/out") $(jq .cache.limit_bytes "$T/mnt4/.penstock/stats")"
equal "one that says the same is not" 1 "$(wc -l <"$T/out")"
rc=0
join "$ORIGIN/nothing/" "$T/mnt4" -o nonempty >"$T/out" 2>&1 || rc=$?
equal "a mounted folder is refused as ever" "1 1" "$rc $(grep -c "already a penstock mount" "$T/out")"
check "status knows them all" [ "$(penstock status --json | jq "[.daemons[] | select(.pid == $pid)] | length")" = 4 ]

mkdir "$T/mnt5"
rc=0
join "$ORIGIN/nothing/" "$T/mnt5" >"$T/out" 2>&1 || rc=$?
equal "a source that is not there fails in one line" "1 1" "$rc $(wc -l <"$T/out")"
check_not "and leaves nothing mounted" is_mounted "$T/mnt5"
check_not "it is not counted" grep -q mnt5 "$MNT/.penstock/stats"

exec 9<"$T/mnt4/sub/deep/7654321.bin"
check "the first one goes by itself" timeout 20 penstock umount "$MNT"
check "the daemon does not" kill -0 "$pid"
check "the others go on" read_tree 1m "$T/mnt3"
check "also the first can come back" mount_penstock "$ORIGIN/"
equal "to the same daemon" "$pid" "$(stats .pid)"
for dir in "$MNT" "$T/mnt2" "$T/mnt3"; do
	check "${dir##*/} goes" timeout 20 penstock umount "$dir"
done
check "a file that was open all the while is whole" cmp - "$T/www/sub/deep/7654321.bin" <&9
exec 9<&-
check "the last one goes" timeout 20 penstock umount "$T/mnt4"
check "and the daemon with it: the cache is free" penstock verify --cache-dir "$CACHE"
check_not "its socket, too" test -e "$CACHE/control"
