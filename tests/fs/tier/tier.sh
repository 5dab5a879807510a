#!/usr/bin/env bash
# Tiers: bytes come from them, each byte leaves the origin once, and statistics count tiers and origin apart.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

make_shards "$T/www" 4 20000000
start_nginx
start_tiers 3
good=$(sha_manifest "$T/www")
size=$(du -cb "$T"/www/*.tar | awk 'END {print $1}')

tier() { stats ".mounts[0].tier.$1"; }

mount_penstock "$ORIGIN/" --tier "$TIERS"
equal "shards through three tiers are the origin's" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
origin_first=$(origin_bytes)
at_least "the tiers sent nearly all of it" $((size - 1000000)) "$(tier_bytes 1 2 3)"
at_most "each byte left the origin once" $((size + size / 20)) "$origin_first"
for i in 1 2 3; do
	at_most "tier $i alone does not have all" $((size - 1000000)) "$(tier_bytes "$i")"
done
at_most "the figures of the origin do not have the tiers' bytes" 1000000 "$(stats .origin.bytes)"
at_least "they have figures of their own" $((size - 1000000)) "$(tier bytes)"
check "status prints them" grep -E "^  tiers     3, 0 set aside: " <(penstock status "$MNT")
check "metrics have them" grep -E "^penstock_mount_tier_bytes_total.* [1-9]" <(penstock metrics)
umount_penstock

rm -r "$CACHE"
origin_forget
tiers_forget 1 2 3
mount_penstock "$ORIGIN/" --tier "$TIERS"
equal "another node's first epoch" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
at_most "comes from the tiers alone" 100000 "$(origin_bytes)"
umount_penstock
