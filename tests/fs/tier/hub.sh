#!/usr/bin/env bash
# Tiers in front of the Hub's CDN: its URLs are signed, so they need --tier-auth. No tier gets the token.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

start_hub
main=$(commit a)
mkdir -p "$main/data"
for i in 0 1 2 3; do random_file "$main/data/train-0000$i.tar" $((9000000 + i)); done
point main a
# A tier for the CDN keeps slices by path: each URL has another signature.
# shellcheck disable=SC2016
TIER_KEY='$http_host$uri$slice_range' start_tiers 2 "$(cat "$hub/cdn")"
size=36000000
good=$(sha_manifest "$main")
tier() { stats ".mounts[0].tier.$1"; }

mount_penstock hf://datasets/acme/shards --tier "$TIERS"
equal "signed URLs are not sent to tiers: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
equal "signed URLs are not sent to tiers" "" "$(cat "$T"/tier[12]/access.log)"
at_least "the status counts them" 1 "$(tier withheld)"
umount_penstock

for turn in first second; do
	rm -rf "$CACHE"
	forget requests.log
	tiers_forget 1 2
	mount_penstock hf://datasets/acme/shards --tier "$TIERS" --tier-auth
	equal "$turn node with --tier-auth: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
	at_least "$turn node: they come from tiers" $((size - 100000)) "$(tier_bytes 1 2)"
	equal "$turn node: no tier failed" 0 "$(tier fallbacks)"
	direct=$(($(stats .origin.bytes) - $(stats .origin.hedged_bytes)))
	umount_penstock
done
at_most "the second node has some first bytes from the CDN, and all else from tiers" 500000 "$direct"
equal "no tier saw the token" 0 "$(grep -ciE 'bearer' "$T"/tier[12]/access.log | awk -F: '{n += $2} END {print n}')"

rm -rf "$CACHE"
mount_penstock hf://datasets/acme/shards --tier "$TIERS" --tier-auth --tier-verify 1%
equal "with --tier-verify: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
compared() { (($(tier verified_bytes) > 0)); }
wait_until 20 compared || true
at_least "with --tier-verify: a share is compared with the CDN's" 65536 "$(tier verified_bytes)"
equal "with --tier-verify: equal bytes are no difference" "0 0" "$(tier mismatches) $(tier aside)"
umount_penstock

# The CDN's ETag is learned from the CDN itself: a tier with another file under that path is noticed.
rm -rf "$CACHE"
find "$T"/tier[12]/cache -type f -exec sed -i 's/^ETag: "/ETag: "x/' {} +
mount_penstock hf://datasets/acme/shards --tier "$TIERS" --tier-auth
equal "another ETag than the CDN's: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
umount_penstock

# Several wrong answers at once: the CDN's ETag is learned from none of them.
second=$(commit b)
random_file "$second/big.tar" 40000000
for i in 1 2 3 4 5; do random_file "$second/more$i.tar" $((9000000 + i)); done
point main b
mkdir "$T/liar"
echo together >"$T/liar/mode"
cdn=$(cat "$hub/cdn")
"$python" "$top_srcdir/tests/fs/tier/lying_tier.py" "$T/liar" "${cdn#*://}" >"$T/liar.log" 2>&1 &
wait_until 20 test -s "$T/liar/port" || die "the lying tier starts" "$(cat "$T/liar.log")"
rm -rf "$CACHE"
mount_penstock hf://datasets/acme/shards --tier "http://127.0.0.1:$(cat "$T/liar/port")" --tier-auth --timeout 20s
for file in big more1 more2 more3 more4 more5; do
	equal "wrong answers that come together: right bytes" "$(sha256sum <"$second/$file.tar")" \
		"$(sha256sum <"$MNT/$file.tar")"
	(($(tier 'tiers[0].wrong') < 2)) || break
	sleep 2 # a tier that is late on a busy machine is asked again
done
at_least "wrong answers that come together: several came" 2 "$(tier 'tiers[0].wrong')"
equal "wrong answers that come together: none is used" 0 "$(tier bytes)"
umount_penstock

# Other bytes under the right header: both --tier-verify and the Hub's checksum of the file find them.
echo wrong >"$T/liar/mode"
rm -rf "$CACHE"
mount_penstock hf://datasets/acme/shards --tier "http://127.0.0.1:$(cat "$T/liar/port")" --tier-auth \
	--timeout 20s --tier-verify 1%
differed() { (($(tier mismatches) > 0)); }
for file in big more1 more2 more3 more4 more5; do
	cat "$MNT/$file.tar" >"$T/wrong" 2>/dev/null || true
	! wait_until 5 differed || break
done
at_least "other bytes than the CDN's: --tier-verify finds them" 1 "$(tier mismatches)"
equal "other bytes than the CDN's: the tier is set aside" aside "$(tier 'tiers[0].state')"
found() { (($(stats .cache.checksum_errors) > 0)); }
check "other bytes than the CDN's: the file's checksum finds them, too" wait_until 30 found
umount_penstock
