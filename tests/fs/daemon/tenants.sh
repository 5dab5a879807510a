#!/usr/bin/env bash
# Several users of one machine: others can read and warm a shared mount, but not change what is cached, and
# see only that mount. A cache is in a folder that only its owner may read, whatever others put in its place.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq root setpriv

make_shards "$T/www/a" 2 50000
make_shards "$T/www/b" 2 50000
start_nginx
chmod 711 "$T"
as_other() {
	setpriv --reuid=12345 --regid=12345 --clear-groups -- timeout 60 env HOME=/nonexistent "$@"
}
# refused WHAT COMMAND...: runs the command as another user; it must fail and say which users may run it.
refused() {
	local what=$1 rc=0
	shift
	as_other "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: refused" 1 "$rc"
	check "$what: the error says which users may" \
		grep -q "only root and the owner of the mount may do this" "$T/out"
}
mount_penstock "$ORIGIN/a/" --allow_other
mkdir "$T/m2"
penstock mount "$ORIGIN/b/" "$T/m2" --cache-dir "$CACHE" --log "$T/penstock.log"

check "another user reads a shared mount" \
	as_other cmp "$MNT/shard-000000.tar" /dev/stdin <"$T/www/a/shard-000000.tar"
check "another user warms a shared mount" as_other penstock warm "$MNT"
check "warm of another user fetches all files" jq -e '.cache.used_bytes > 90000' "$MNT/.penstock/stats"
check "the statistics have the cached bytes of each dataset" \
	jq -e '[.mounts[].cached_bytes] | .[0] > 90000 and .[1] == 0' "$MNT/.penstock/stats"
equal "status shows the cached bytes" 1 \
	"$(penstock status "$MNT" | grep -cE '^  files +2, [0-9.]+ KiB of them cached')"
cat "$T/m2/shard-000000.tar" >/dev/null
check "the cached bytes of the other dataset grow" \
	jq -e '[.mounts[].cached_bytes] | .[0] > 90000 and .[1] > 40000' "$MNT/.penstock/stats"
equal "the metrics have both datasets" 2 \
	"$(penstock metrics | grep -c "^penstock_mount_cached_bytes{.*cache_dir=\"$CACHE\"")"
# Files that several mounts show count for each of them, whichever read them.
mkdir "$T/m4"
penstock mount "$ORIGIN/a/" "$T/m4" --include 'shard-000000.tar' --cache-dir "$CACHE" --log "$T/penstock.log"
cat "$T/m4/shard-000000.tar" >/dev/null
counted() { jq -e '[.mounts[] | select(.mountpoint | endswith("'"$1"'")) | .cached_bytes] | .[0] >= '"$2" "$MNT/.penstock/stats"; }
check "a mount that shows one of two cached files has its bytes" wait_until 10 counted /m4 45000
check "the mount that shows both still has the bytes of both" wait_until 10 counted "/${MNT##*/}" 90000
penstock umount "$T/m4"

refused "evicting" penstock evict "$MNT"
refused "pinning" penstock pin "$MNT" 'shard-000000.tar'
equal "nothing was pinned" no "$(getfattr --only-values -n user.penstock.pinned "$MNT/shard-000000.tar" 2>/dev/null)"
check "the owner pins" penstock pin "$MNT" 'shard-000000.tar'
refused "unpinning" penstock unpin "$MNT"
equal "the file stays pinned" \
	yes "$(getfattr --only-values -n user.penstock.pinned "$MNT/shard-000000.tar" 2>/dev/null)"
equal "nothing was evicted" 0 "$(stats .cache.evicted_objects)"

# A file of a third mount fails its checksum.
mkdir "$T/m3"
random_file "$T/www/private.bin" 1000
echo "$ORIGIN/private.bin 1000 sha256:$(printf '0%.0s' {1..64})" >"$T/list"
penstock mount "@$T/list" "$T/m3" --cache-dir "$CACHE" --log "$T/penstock.log"
mismatched() {
	cat "$T/m3/private.bin" >/dev/null 2>&1
	jq -e '.cache.checksum_error | contains("private.bin")' "$MNT/.penstock/stats"
}
check "the owner sees the failed checksum of another mount" wait_until 10 mismatched
check_not "another user does not see it" grep -q private.bin <<<"$(as_other cat "$MNT/.penstock/stats")"
equal "another user's check of the shared mount does not report it" 0 \
	"$(as_other penstock status --check "$MNT" | grep -c checksum)"
penstock umount "$T/m3"

equal "the owner sees all mounts of the daemon" 2 "$(stats '.mounts | length')"
others=$(as_other cat "$MNT/.penstock/stats")
equal "another user sees only the shared mount" "1 $MNT" \
	"$(jq -r '"\(.mounts | length) \(.mounts[0].mountpoint)"' <<<"$others")"
check_not "another user does not see other mounts in the statistics" grep -qF "$T/m2" <<<"$others"
check_not "another user does not see other mounts in the metrics" \
	grep -qF "$T/m2" <<<"$(as_other cat "$MNT/.penstock/metrics")"
check "status works for others" as_other penstock status "$MNT"

check "the owner unpins" penstock unpin "$MNT"
check "the owner evicts" penstock evict "$MNT"
penstock umount "$T/m2"
umount_penstock

# Whose folder a cache may be in. whose WHAT TEXT COMMAND...: the command must fail with TEXT.
whose() {
	local what=$1 text=$2 rc=0
	shift 2
	"$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: refused" 1 "$rc"
	check "$what: the error has the reason" grep -qE "$text" "$T/out"
}
mkdir -m 755 "$T/theirs"
chown 12345 "$T/theirs"
for command in "mount $ORIGIN/a/ $MNT" "warm $ORIGIN/a/" verify evict pin unpin "pin --list" status; do
	# shellcheck disable=SC2086
	whose "root, another user's folder, $command" "belongs to another user \(uid 12345\)" \
		penstock $command --cache-dir "$T/theirs"
done
equal "nothing was written to another user's folder" "" "$(ls -A "$T/theirs")"
mkdir "$T/roots"
chmod 755 "$T/roots"
whose "a user, root's folder" "Permission denied" as_other penstock warm "$T/www/a/" --cache-dir "$T/roots"
ln -s "$T/roots" "$T/link"
chown -h 12345 "$T/link"
whose "another user's link" "is a link that another user made" penstock warm "$T/www/a/" --cache-dir "$T/link"

chmod a+rX -R "$T/www"
for mode in 1777 777; do # /tmp, and what a container gets as an empty volume
	open=$T/open-$mode
	mkdir "$open"
	chmod "$mode" "$open"
	check "$mode: root warms" penstock warm "$T/www/a/" --cache-dir "$open"
	check "$mode: another user warms" as_other penstock warm "$T/www/a/" --cache-dir "$open"
	equal "$mode: each user has their own folder" "penstock-0 0 700 penstock-12345 12345 700" \
		"$(cd "$open" && stat -c '%n %u %a' -- * | xargs)"
	equal "$mode: only owners may read their folders" "" \
		"$(find "$open" -mindepth 2 \( -perm /077 -o -type l \))"
	check "$mode: verify uses the user's folder" \
		grep -q "^2 objects" <(penstock verify --cache-dir "$open")
	check "$mode: pin uses the user's folder" \
		grep -q "^2 files" <(as_other penstock pin --cache-dir "$open")
	check "$mode: evict uses the user's folder" grep -q \
		"0 files evicted.*2 pinned" <(as_other penstock evict --cache-dir "$open")
	CACHE=$open mount_penstock "$ORIGIN/a/"
	equal "$mode: a mount uses the user's folder" "$open/penstock-0" "$(stats .cache.dir)"
	check "$mode: status finds its daemon" grep -q "$MNT" <(penstock status --cache-dir "$open")
	mkdir -p "$T/m3"
	check "$mode: a second mount joins" penstock mount "$ORIGIN/b/" "$T/m3" --cache-dir "$open"
	penstock umount "$T/m3"
	whose "$mode: verify names the mount" "is served by the mount on $MNT" penstock verify \
		--cache-dir "$open"
	umount_penstock
done
rm -r "$T/open-777/penstock-0"
mkdir "$T/open-777/penstock-0"
chown 12345 "$T/open-777/penstock-0"
whose "a folder penstock-0 that another user has made" "belongs to another user" penstock warm "$T/www/a/" \
	--cache-dir "$T/open-777"
rmdir "$T/open-777/penstock-0"
mkdir -m 700 "$T/elsewhere"
ln -s "$T/elsewhere" "$T/open-777/penstock-0"
whose "a link penstock-0 that another user has made" "Too many levels of symbolic links|Not a directory" penstock warm "$T/www/a/" \
	--cache-dir "$T/open-777"
equal "nothing was written to the link's target" "" "$(ls -A "$T/elsewhere")"

# A link in place of the index or the data, made by a user who could write there before.
for name in index data; do
	CACHE=$T/cache-$name
	penstock warm -q "$T/www/a/" --cache-dir "$CACHE"
	mv "$CACHE/$name" "$T/elsewhere/"
	ln -s "$T/elsewhere/$name" "$CACHE/$name"
	whose "a link as $name" "$name: (Too many levels of symbolic links|Not a directory)" penstock verify \
		--cache-dir "$CACHE"
done
CACHE=$T/cache-mode
mkdir -m 755 "$CACHE"
penstock warm -q "$T/www/a/" --cache-dir "$CACHE"
chmod 755 "$CACHE/index" "$CACHE/data"
penstock verify --cache-dir "$CACHE" >/dev/null
equal "wrong modes are corrected" "700 700" "$(stat -c %a "$CACHE/index" "$CACHE/data" | xargs)"

# Users that may write to the parent folder may rename the cache's folder: the daemon keeps the folder that it
# opened.
mkdir "$T/moving"
chmod 777 "$T/moving"
CACHE=$T/moving mount_penstock "$ORIGIN/a/"
as_other mv "$T/moving/penstock-0" "$T/moving/moved" && as_other mkdir "$T/moving/penstock-0"
check "files are read after the rename" cmp "$MNT/shard-000001.tar" "$T/www/a/shard-000001.tar"
check "data is written to the renamed folder" wait_until 10 jq -e .cache.synced "$MNT/.penstock/stats"
equal "nothing is written to the folder with the old name" "" "$(find "$T/moving/penstock-0" -mindepth 1)"
pid=$(stats .pid)
umount_penstock || true
check "the daemon ends" wait_until 20 bash -c "! kill -0 $pid 2>/dev/null"
check "verify finds the file in the renamed folder" \
	grep -q "^1 object," <(mv "$T/moving/moved" "$T/kept" && penstock verify --cache-dir "$T/kept")
