#!/usr/bin/env bash
# The Hub's limits (RateLimit) are kept: when no requests are left, the mount waits until there are more, for
# listings and for files, and does not go on asking.
. "$(dirname "$0")/../lib.sh"
. "$top_srcdir/tests/fs/hub.sh"
requires mount

start_hub
main=$(commit a)
for i in 0 1 2 3 4 5 6 7; do random_file "$main/$i.tar" 100000; done
sha_manifest "$main" >"$T/manifest"
point main a
tell page-size 1

# Three pages, then none for some seconds.
tell limit-api "4 0 2"
mount_penstock hf://acme/shards
equal "all pages are there in the end" 8 "$(find "$MNT" -type f | wc -l)"
equal "without a request that was refused" 0 "$(asked HUB GET /tree/ 429)"
check "the log says what was waited for" grep -q "waiting .* s, as the Hub's limit" "$T/penstock.log"
umount_penstock

# One that is refused all the same is sent again when it may be.
rm -rf "$CACHE"
tell limit-api "0 0 2"
mount_penstock hf://acme/shards
equal "all pages after a refusal" 8 "$(find "$MNT" -type f | wc -l)"
at_most "after which was waited" 1 "$(asked HUB GET "" 429)"

tell limit-resolvers "3 0 2"
check "all files can be read, later" read_tree 1m "$MNT" 8
at_most "none was refused but those that were under way together" 8 "$(asked HUB HEAD /resolve/ 429)"
umount_penstock
