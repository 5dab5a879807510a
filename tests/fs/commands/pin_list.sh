#!/usr/bin/env bash
# penstock pin --list shows which files are pinned, how large they are and how much of them is cached: for a
# mount, for all mounts and for a cache at rest.
. "$(dirname "$0")/../../lib.sh"
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

equal "at first nothing is listed" '[]' "$(list "$MNT")"
equal "without --json, an empty list says so" "nothing is pinned" "$(penstock pin --list "$MNT")"
equal "at first a file's attribute says that it is not pinned" no "$(pinned val/b.bin)"
check "pin with a glob succeeds" penstock pin "$MNT" 'val/*'
equal "pinned files are listed in order" '[["val/b.bin",5000000,0],["val/c d.bin",1000,0]]' "$(list "$MNT")"
equal "a pinned file's attribute says that it is pinned" yes "$(pinned val/b.bin)"
equal "another file's attribute says that it is not pinned" no "$(pinned train/a.bin)"
equal "the list can be limited by a glob" '[["val/c d.bin",1000,0]]' "$(list "$MNT" 'c*')"
equal "a glob that matches no pinned file gives an empty list" '[]' "$(list "$MNT" 'train/*')"
check "warm fetches a pinned file" penstock warm -q "$MNT" 'val/b.bin'
equal "the list shows the cached bytes" \
	'[["val/b.bin",5000000,5000000],["val/c d.bin",1000,0]]' "$(list "$MNT")"
equal "without --json, the list shows what is cached" \
	"cached 0" "$(penstock pin --list "$MNT" | sed -n "s|.* \\(cached\\)  $MNT/val/b.bin\$|\\1|p; s|.* \\(0\\) %  $MNT/val/c d.bin\$|\\1|p" | paste -s -d ' ')"
equal "the list ends with a sum" "2 files pinned" "$(penstock pin --list "$MNT" | tail -n 1 | cut -d , -f 1)"
equal "the list has the URL" \
	"$ORIGIN/val/b.bin" "$(penstock pin --list --json "$MNT" | jq -r '.files[0].url')"
mkdir "$T/second"
check "another mount of the cache" penstock mount "$ORIGIN/val/" "$T/second" --cache-dir "$CACHE" \
	--log "$T/second.log"
equal "the list of all mounts has the files of both mounts" "$MNT/val/b.bin $T/second/b.bin" \
	"$(penstock pin --list --json | jq -r ".files[] | select(.mountpoint | startswith(\"$T/\")) | .mountpoint + \"/\" + .path" |
		grep 'b\.bin' | sort | paste -s -d ' ')"
penstock umount "$T/second"
equal "evict keeps pinned files and says so" "0 files evicted, 0 B; 2 pinned files kept" \
	"$(penstock evict "$MNT" 'val/*')"
check "unpin of one file succeeds" penstock unpin "$MNT" 'val/b.bin'
equal "the other file stays pinned" '[["val/c d.bin",1000,0]]' "$(list "$MNT")"
rc=0
penstock pin --list --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "--cache-dir is refused while a mount serves the cache" \
	"1 1" "$rc $(grep -c "is served by the mount on $MNT" "$T/out")"
rc=0
penstock pin --json "$MNT" >"$T/out" 2>&1 || rc=$?
equal "--json alone pins nothing" "2 no" "$rc $(pinned train/a.bin)"
check "pin of another file succeeds" penstock pin "$MNT" 'a.bin'
check "warm fetches the other pinned file" penstock warm -q "$MNT" 'a.bin'
check "pin of a file whose name is not UTF-8 succeeds" penstock pin "$MNT" 'latin-*'
equal "JSON lists the file whose name is not UTF-8" \
	'["train/latin-�.bin",1000,0]' "$(list "$MNT" 'latin-*' | jq -c '.[0]')"
check "unpin of that file succeeds" penstock unpin "$MNT" 'latin-*'
umount_penstock
equal "the list of a cache at rest has all pinned files" "$ORIGIN/train/a.bin $ORIGIN/val/c%20d.bin" \
	"$(penstock pin --list --json --cache-dir "$CACHE" | jq -r '.files[].url' | paste -s -d ' ')"
equal "the list of a cache at rest can be limited by a glob" \
	"[[\"$ORIGIN/train/a.bin\",3000000,3000000]]" "$(list --cache-dir "$CACHE" 'a*')"
equal "evict of a cache at rest keeps pinned files and says so" "0 files evicted, 0 B; 1 pinned file kept" \
	"$(penstock evict --cache-dir "$CACHE" 'a*')"
check_not "evict with a glob that matches nothing fails" penstock evict --cache-dir "$CACHE" 'b.bin.x'
equal "a pinned file that was never fetched is listed with the room that it will take" \
	"$(($(penstock pin --list --json --cache-dir "$CACHE" | jq .bytes) - 3000000)),0" \
	"$(list --cache-dir "$CACHE" 'c*' | jq -r '.[0][1:] | join(",")')"
