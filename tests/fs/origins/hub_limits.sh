#!/usr/bin/env bash
# The mount keeps to the Hub's rate limits: when no requests are left, it waits, for listings and for files,
# and sends no requests meanwhile.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount

start_hub
main=$(commit a)
for i in 0 1 2 3 4 5 6 7; do random_file "$main/$i.tar" 100000; done
sha_manifest "$main" >"$T/manifest"
point main a
tell page-size 1

# Four requests, then none for two seconds.
tell limit-api "4 0 2"
mount_penstock hf://acme/shards
equal "all pages are listed in the end" 8 "$(find "$MNT" -type f | wc -l)"
equal "no request for a page was refused" 0 "$(asked HUB GET /tree/ 429)"
check "the log says that the mount waited for the limit" \
	grep -q "waiting .* s, as the Hub's limit" "$T/penstock.log"
umount_penstock

# A refused request is sent again when the limit allows it.
rm -rf "$CACHE"
tell limit-api "0 0 2"
mount_penstock hf://acme/shards
equal "all pages are listed after a refusal" 8 "$(find "$MNT" -type f | wc -l)"
at_most "at most one request was refused" 1 "$(asked HUB GET "" 429)"

tell limit-resolvers "3 0 2"
check "all files are read under a limit" read_tree 1m "$MNT" 8
at_most "only requests that were in flight together were refused" 8 "$(asked HUB HEAD /resolve/ 429)"
umount_penstock
