#!/usr/bin/env bash
# Eight readers at once, each of all files and each beginning at another one, get the origin's bytes; in all
# ways.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
for mode in 10k 1m random mmap; do
	CACHE=$T/cache-$mode
	mount_penstock "$ORIGIN/"
	check "cold, $mode" read_tree "$mode" "$MNT" 8
	drop_page_cache
	check "from the cache's files, $mode" read_tree "$mode" "$MNT" 8
	umount_penstock
done
