#!/usr/bin/env bash
# A second mount on the same cache folder joins its daemon or says in one line why not; both keep their bytes.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/"
mkdir "$T/mnt2"
rc=0
timeout 30 penstock mount "$ORIGIN/sub/" "$T/mnt2" --cache-dir "$CACHE" --log "$T/penstock2.log" >"$T/out" 2>&1 || rc=$?
if ((rc == 0)); then
	check "the second mount serves" cmp "$T/mnt2/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
	check "and goes by itself" timeout 20 penstock umount "$T/mnt2"
else
	equal "the second mount fails in one line" 1 "$(wc -l <"$T/out")"
	check "that names the cache folder" grep -qF "$CACHE" "$T/out"
	check_not "and leaves nothing mounted" is_mounted "$T/mnt2"
fi
check "the first goes on" read_tree 1m
