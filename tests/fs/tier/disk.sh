#!/usr/bin/env bash
# One disk, two caches: the mount subtracts what the node's own tier holds from --cache-size, and does not
# write again what the tier has.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

make_shards "$T/www" 6 20000000
start_nginx
start_tiers 1
good=$(sha_manifest "$T/www")
size=$(du -cb "$T"/www/*.tar | awk 'END {print $1}')
du_of() { du -csB1 "$@" | awk 'END {print $1}'; }

# The only tier is this node's: all blocks are its own.
mount_penstock "$ORIGIN/" --tier "$TIERS" --tier-cache "$T/tier1/cache" --cache-size 400M
equal "right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
at_least "the tier has them" "$size" "$(du_of "$T/tier1/cache")"
at_most "they are not written a second time" $((size / 4)) "$(stats .cache.used_bytes)"
origin_forget
drop_page_cache
equal "read again: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
at_most "read again: nothing leaves the origin" 1000 "$(origin_bytes)"
check "what is warmed is written all the same" penstock warm "$MNT" shard-000000.tar
at_least "a warmed shard is in the cache" 19000000 "$(stats .cache.used_bytes)"
umount_penstock

# A tier that keeps on growing: the mount gives way.
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --tier-cache "$T/grows" --cache-size 300M
sha_manifest "$MNT" >/dev/null
at_least "without tiers the mount keeps all" "$((size * 9 / 10))" "$(stats .cache.used_bytes)"
mkdir "$T/grows"
head -c 220M /dev/zero >"$T/grows/slice"
gave_way() { (($(du_of "$CACHE" "$T/grows") <= 300 << 20)); }
check "the mount gives way within seconds" wait_until 15 gave_way
says_so() { (($(stats .cache.limit_bytes) <= 90 << 20)); }
check "its limit says so" wait_until 15 says_so
equal "right bytes then, too" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
rm "$T/grows/slice"
took_back() { (($(stats .cache.limit_bytes) >= 299 << 20)); }
check "and takes the room back" wait_until 15 took_back
umount_penstock
