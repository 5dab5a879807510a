#!/usr/bin/env bash
# Eight readers at once, each of which reads all files and begins at another one, get the origin's bytes in
# every access pattern.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
for mode in 10k 1m random mmap; do
	CACHE=$T/cache-$mode
	mount_penstock "$ORIGIN/"
	check "eight readers of cold files get the right bytes ($mode)" read_tree "$mode" "$MNT" 8
	drop_page_cache
	check "eight readers of cached files get the right bytes ($mode)" read_tree "$mode" "$MNT" 8
	umount_penstock
done
