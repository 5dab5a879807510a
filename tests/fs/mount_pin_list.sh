#!/usr/bin/env bash
# penstock pin --list shows which files are pinned, how large they are and how much of them is there: of a
# mount, of all of them, of a cache at rest.
. "$(dirname "$0")/../lib.sh"
requires mount nginx getfattr jq

mkdir -p "$T/www/train" "$T/www/val"
random_file "$T/www/train/a.bin" 3000000
random_file "$T/www/val/b.bin" 5000000
random_file "$T/www/val/c d.bin" 1000
random_file "$T/www/train/"$'latin-\xff.bin' 1000
start_nginx
mount_penstock "$ORIGIN/"
list() { penstock pin --list --json "$@" | jq -c '[.files[] | [.path // .url, .bytes, .cached_bytes]]'; }
pinned() { getfattr --absolute-names --only-values -n user.penstock.pinned "$MNT/$1"; }

equal "nothing at first" '[]' "$(list "$MNT")"
equal "in words" "nothing is pinned" "$(penstock pin --list "$MNT")"
equal "nor does a file say so" no "$(pinned val/b.bin)"
check "pin" penstock pin "$MNT" 'val/*'
equal "what is pinned, in order" '[["val/b.bin",5000000,0],["val/c d.bin",1000,0]]' "$(list "$MNT")"
equal "a file says so" yes "$(pinned val/b.bin)"
equal "others do not" no "$(pinned train/a.bin)"
equal "what matches alone" '[["val/c d.bin",1000,0]]' "$(list "$MNT" 'c*')"
equal "none of what matches may be pinned" '[]' "$(list "$MNT" 'train/*')"
check "one is fetched" penstock warm -q "$MNT" 'val/b.bin'
equal "which shows" '[["val/b.bin",5000000,5000000],["val/c d.bin",1000,0]]' "$(list "$MNT")"
equal "in words" "cached 0" "$(penstock pin --list "$MNT" | sed -n "s|.* \\(cached\\)  $MNT/val/b.bin\$|\\1|p; s|.* \\(0\\) %  $MNT/val/c d.bin\$|\\1|p" | paste -s -d ' ')"
equal "with a sum" "2 files pinned" "$(penstock pin --list "$MNT" | tail -n 1 | cut -d , -f 1)"
equal "and the URL" "$ORIGIN/val/b.bin" "$(penstock pin --list --json "$MNT" | jq -r '.files[0].url')"
mkdir "$T/second"
check "another mount of the cache" penstock mount "$ORIGIN/val/" "$T/second" --cache-dir "$CACHE" \
	--log "$T/second.log"
equal "of all mounts, theirs" "$MNT/val/b.bin $T/second/b.bin" \
	"$(penstock pin --list --json | jq -r ".files[] | select(.mountpoint | startswith(\"$T/\")) | .mountpoint + \"/\" + .path" |
		grep 'b\.bin' | sort | paste -s -d ' ')"
penstock umount "$T/second"
equal "evict leaves them, and says so" "0 files dropped, 0 B; 2 pinned ones stay" \
	"$(penstock evict "$MNT" 'val/*')"
check "unpin one" penstock unpin "$MNT" 'val/b.bin'
equal "the other is left" '[["val/c d.bin",1000,0]]' "$(list "$MNT")"
rc=0
penstock pin --list --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "the cache of a mount is not at rest" "1 1" "$rc $(grep -c "is served by the mount on $MNT" "$T/out")"
rc=0
penstock pin --json "$MNT" >"$T/out" 2>&1 || rc=$?
equal "--json alone pins nothing" "2 no" "$rc $(pinned train/a.bin)"
check "pin another" penstock pin "$MNT" 'a.bin'
check "and fetch it" penstock warm -q "$MNT" 'a.bin'
check "pin one whose name is not UTF-8" penstock pin "$MNT" 'latin-*'
equal "JSON tells of it all the same" '["train/latin-�.bin",1000,0]' "$(list "$MNT" 'latin-*' | jq -c '.[0]')"
check "unpin it" penstock unpin "$MNT" 'latin-*'
umount_penstock
equal "of a cache at rest" "$ORIGIN/train/a.bin $ORIGIN/val/c%20d.bin" \
	"$(penstock pin --list --json --cache-dir "$CACHE" | jq -r '.files[].url' | paste -s -d ' ')"
equal "what matches" "[[\"$ORIGIN/train/a.bin\",3000000,3000000]]" "$(list --cache-dir "$CACHE" 'a*')"
equal "evict leaves what is pinned, and says so" "0 files dropped, 0 B; 1 pinned one stays" \
	"$(penstock evict --cache-dir "$CACHE" 'a*')"
check_not "what is not there does not match" penstock evict --cache-dir "$CACHE" 'b.bin.x'
equal "of what was never fetched, its share of the pins" \
	"$(($(penstock pin --list --json --cache-dir "$CACHE" | jq .bytes) - 3000000)),0" \
	"$(list --cache-dir "$CACHE" 'c*' | jq -r '.[0][1:] | join(",")')"
