#!/usr/bin/env bash
# penstock evict drops the files that match, of a mount or of a cache at rest; open readers keep their bytes.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx getfattr jq

mkdir -p "$T/www"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 8000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
state() { getfattr --absolute-names --only-values -n user.penstock.state "$MNT/$1"; }
used() { du -s --block-size=1 "$CACHE/data" | cut -f 1; }

mount_penstock "$ORIGIN/"
read_tree 1m
sleep 1
full=$(used)
exec 7<"$MNT/1.bin"
dd bs=100 count=1 <&7 >/dev/null 2>&1
check "evict with a glob" timeout 20 penstock evict "$MNT" '[12].bin'
check "an evicted file is not cached" \
	wait_until 5 bash -c "[ \"\$(getfattr --absolute-names --only-values -n user.penstock.state '$MNT/2.bin')\" = remote ]"
equal "a file that does not match stays cached" cached "$(state 3.bin)"
equal "an open reader reads on" "$(tail -c +101 "$T/www/1.bin" | sha256sum)" "$(sha256sum <&7)"
exec 7<&-
at_most "evict frees the space" $((full - 7000000)) "$(used)"
check "evicted files are fetched again and right" read_tree 1m
umount_penstock

check "evict of a cache at rest" timeout 20 penstock evict --cache-dir "$CACHE"
at_most "evict of a cache at rest leaves no data" 100000 "$(used)"
mount_penstock "$ORIGIN/"
# Each of the commands pin, unpin and evict opens one file after the other, as a reader does.
fetched() { jq .origin.bytes "$MNT/.penstock/stats"; }
before=$(fetched)
penstock pin "$MNT" >/dev/null
penstock unpin "$MNT" >/dev/null
penstock evict "$MNT" >/dev/null
penstock unpin "$MNT" >/dev/null
equal "pin, unpin and evict fetch nothing" "$before" "$(fetched)"
before=$(jq '.mounts[0].opens' "$MNT/.penstock/stats")
penstock unpin "$MNT" >/dev/null
penstock evict "$MNT" >/dev/null
equal "unpin opens no unpinned file, evict none that is not cached" "$before" \
	"$(jq '.mounts[0].opens' "$MNT/.penstock/stats")"
check "files are right after all of this" read_tree 1m
