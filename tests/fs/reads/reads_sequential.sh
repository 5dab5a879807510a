#!/usr/bin/env bash
# Every file read in pieces of 10 KiB and 1 MiB has the origin's bytes: cold, warm, with a cold page cache and
# after a restart.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
for mode in 10k 1m; do
	CACHE=$T/cache-$mode
	check "a mount on a new cache succeeds ($mode)" mount_penstock "$ORIGIN/"
	check "reads of cold files have the right bytes ($mode)" read_tree "$mode"
	check "reads of warm files have the right bytes ($mode)" read_tree "$mode"
	drop_page_cache
	check "reads of cached files without the page cache have the right bytes ($mode)" read_tree "$mode"
	check "umount succeeds ($mode)" umount_penstock
	check "a mount on the used cache succeeds ($mode)" mount_penstock "$ORIGIN/"
	origin_forget
	check "reads after a restart have the right bytes ($mode)" read_tree "$mode"
	equal "nothing is fetched after a restart ($mode)" 0 \
		"$(awk '$1 == "GET" && /\.(tar|bin) /' "$T/nginx/access.log" | wc -l)"
	check "the second umount succeeds ($mode)" umount_penstock
done
