#!/usr/bin/env bash
# Every file read in 10 KiB and in 1 MiB pieces is the origin's: cold, warm, with a cold page cache, after a
# restart.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
for mode in 10k 1m; do
	CACHE=$T/cache-$mode
	check "mounts on a new cache ($mode)" mount_penstock "$ORIGIN/"
	check "cold, $mode" read_tree "$mode"
	check "warm, $mode" read_tree "$mode"
	drop_page_cache
	check "from the cache's files, $mode" read_tree "$mode"
	check "unmounts" umount_penstock
	check "mounts again" mount_penstock "$ORIGIN/"
	origin_forget
	check "after a restart, $mode" read_tree "$mode"
	equal "a restart costs the origin nothing" 0 \
		"$(awk '$1 == "GET" && /\.(tar|bin) /' "$T/nginx/access.log" | wc -l)"
	check "unmounts again" umount_penstock
done
