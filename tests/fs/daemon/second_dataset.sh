#!/usr/bin/env bash
# A second mount on the same cache folder joins its daemon: the mounts share cache and limits, and each ends
# on its own.
. "$(dirname "$0")/../../lib.sh"
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
equal "the same daemon serves it" "$pid" "$(jq .pid "$T/mnt2/.penstock/stats")"
check "the joined mount serves its file" cmp "$T/mnt2/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
equal "each mount's statistics list itself first, and the other" "$T/mnt2 $MNT $MNT $T/mnt2" \
	"$(jq -r '.mounts[].mountpoint' "$T/mnt2/.penstock/stats" "$MNT/.penstock/stats" | xargs)"
equal "each mount counts its own reads" "7654321 0" \
	"$(jq -r '.mounts[].reads.bytes' "$T/mnt2/.penstock/stats" | xargs)"
origin_forget
check "bytes that one mount has fetched are read by the other" \
	cmp "$MNT/sub/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
at_most "only the byte that proves the access is fetched" 1 "$(origin_bytes)"
equal "two mounts share the limit of the cache" "$((100 << 20))" "$(jq .cache.limit_bytes "$T/mnt2/.penstock/stats")"

check "a mount of the same dataset joins" join "$ORIGIN/" "$T/mnt3"
check "the mount of the same dataset serves its files" read_tree 1m "$T/mnt3"
join "$ORIGIN/" "$T/mnt4" --cache-size 50M --log "$T/penstock.log" >"$T/out" 2>&1
equal "another value of a daemon's option is reported and not used" "1 $((100 << 20))" \
	"$(grep -c -- '--cache-size.*100M' "$T/out") $(jq .cache.limit_bytes "$T/mnt4/.penstock/stats")"
equal "an option with the daemon's value is not reported" 1 "$(wc -l <"$T/out")"
rc=0
join "$ORIGIN/nothing/" "$T/mnt4" -o nonempty >"$T/out" 2>&1 || rc=$?
equal "a folder that is mounted already is refused" "1 1" "$rc $(grep -c "already a penstock mount" "$T/out")"
check "status lists all four mounts" \
	[ "$(penstock status --json | jq "[.daemons[] | select(.pid == $pid)] | length")" = 4 ]

mkdir "$T/mnt5"
rc=0
join "$ORIGIN/nothing/" "$T/mnt5" >"$T/out" 2>&1 || rc=$?
equal "a source that is not there fails in one line" "1 1" "$rc $(wc -l <"$T/out")"
check_not "the missing source leaves no mount" is_mounted "$T/mnt5"
check_not "the statistics do not list it" grep -q mnt5 "$MNT/.penstock/stats"

exec 9<"$T/mnt4/sub/deep/7654321.bin"
check "the first mount is unmounted alone" timeout 20 penstock umount "$MNT"
check "the daemon stays" kill -0 "$pid"
check "the other mounts still serve" read_tree 1m "$T/mnt3"
check "the first source can be mounted again" mount_penstock "$ORIGIN/"
equal "the same daemon serves it again" "$pid" "$(stats .pid)"
for dir in "$MNT" "$T/mnt2" "$T/mnt3"; do
	check "${dir##*/} is unmounted" timeout 20 penstock umount "$dir"
done
check "a file that stayed open is read completely" cmp - "$T/www/sub/deep/7654321.bin" <&9
exec 9<&-
check "the last mount is unmounted" timeout 20 penstock umount "$T/mnt4"
check "the daemon ends with it: verify can open the cache" penstock verify --cache-dir "$CACHE"
check_not "the control socket is removed" test -e "$CACHE/control"
