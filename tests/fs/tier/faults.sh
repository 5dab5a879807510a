#!/usr/bin/env bash
# A tier that is killed, slow, or sends an answer that is visibly wrong: readers get the right bytes soon, the
# mount gets each byte once, and the tier is set aside.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

make_shards "$T/www" 1 12000000
start_nginx
mkdir "$T/liar"
"$python" "$top_srcdir/tests/fs/tier/lying_tier.py" "$T/liar" "${ORIGIN#*://}" >"$T/liar.log" 2>&1 &
wait_until 20 test -s "$T/liar/port" || die "the lying tier starts" "$(cat "$T/liar.log")"
LIAR=http://127.0.0.1:$(cat "$T/liar/port")
right=$(sha256sum <"$T/www/shard-000000.tar")
size=$(stat -c %s "$T/www/shard-000000.tar")
tier() { stats ".mounts[0].tier.$1"; }
mount_tiers() {
	rm -rf "$CACHE"
	origin_forget
	mount_penstock "$ORIGIN/" --tier "$1" --timeout 20s "${@:2}"
}
read_shard() { sha256sum <"$MNT/shard-000000.tar" >"$T/sum"; }

# lie MODE COUNTER: what the tier does, and as what it is counted.
lie() {
	local ms
	echo "$1" >"$T/liar/mode"
	: >"$T/liar/log"
	: >"$T/liar/fetched"
	mount_tiers "$LIAR"
	ms=$(milliseconds read_shard)
	equal "a tier: $1: right bytes" "$right" "$(cat "$T/sum")"
	at_most "a tier: $1: they come soon" 1900 "$ms"
	[[ $2 == - ]] || at_least "a tier: $1: it is counted ($2)" 1 "$(tier "tiers[0].$2")"
	[[ $2 == - ]] || equal "a tier: $1: it is set aside" aside "$(tier 'tiers[0].state')"
	[[ $2 == - ]] || check "a tier: $1: status says so" grep -q "^  aside     $LIAR, for " <(penstock status "$MNT")
	sleep 0.1
	at_most "a tier: $1: the mount had each byte once" $((size + size / 50)) \
		$(($(origin_bytes) - $(awk '{n += $1} END {print n + 0}' "$T/liar/fetched") + $(tier bytes)))
	at_most "a tier: $1: no request failed" 0 "$(stats .origin.errors)"
	umount_penstock
}
lie ok -
at_most "the tier that does as it should was asked for slices" 8 "$(grep -c '^ok' "$T/liar/log")"
for how in status refuses missing other-version etag no-etag range unranged long cut reset garbage; do
	lie "$how" wrong
done
lie short -
lie redirect -
lie encoded - # its bytes are in their place
for how in silent stalls drips drips-header hints; do
	lie "$how" late
done

# A tier that was stopped: it accepts, and never answers. The origin answers each request 150 ms, or 1 s,
# late.
mkdir "$T/far"
"$python" "$top_srcdir/tests/fs/reads/narrow_link.py" "$T/far" "${ORIGIN#*://}" >"$T/far.log" 2>&1 &
wait_until 20 test -s "$T/far/port" || die "the far origin starts" "$(cat "$T/far.log")"
echo silent >"$T/liar/mode"
for delay in 0.15 1; do
	echo "$delay" >"$T/far/delay"
	rm -rf "$CACHE"
	mount_penstock "http://127.0.0.1:$(cat "$T/far/port")/" --tier "$LIAR" --timeout 20s
	ms=$(milliseconds read_shard)
	equal "a stopped tier, the origin $delay s away: right bytes" "$right" "$(cat "$T/sum")"
	at_most "a stopped tier, the origin $delay s away: in a few seconds" \
		"$(awk -v d="$delay" 'BEGIN {print int(5000 + 7000 * d)}')" "$ms"
	equal "a stopped tier, the origin $delay s away: it is set aside" aside "$(tier 'tiers[0].state')"
	umount_penstock
done

# It comes back by itself.
echo status >"$T/liar/mode"
mount_tiers "$LIAR"
read_shard
echo ok >"$T/liar/mode"
sleep 1.5
penstock evict "$MNT" >/dev/null
drop_page_cache
read_shard
equal "a tier that answers again is asked again" up "$(tier 'tiers[0].state')"
equal "with right bytes" "$right" "$(cat "$T/sum")"
umount_penstock

# Wrong bytes under the right header are found by comparing a share.
echo wrong >"$T/liar/mode"
mount_tiers "$LIAR" --tier-verify 1%
read_shard
differed() { (($(tier mismatches) > 0)); }
wait_until 5 differed || true
at_least "wrong bytes under the right header are found by --tier-verify" 1 "$(tier mismatches)"
equal "the tier that sent them is set aside" aside "$(tier 'tiers[0].state')"
check "the log says so" grep -q "tier: $LIAR: other bytes than the origin's under the same ETag" "$T/penstock.log"
umount_penstock
echo ok >"$T/liar/mode"
mount_tiers "$LIAR" --tier-verify 1%
read_shard
compared() { (($(tier verified_bytes) > 0)); }
wait_until 5 compared || true
at_least "a share is compared" 65536 "$(tier verified_bytes)"
equal "equal bytes are no difference" 0 "$(tier mismatches)"
umount_penstock

# A real one that is killed while it sends.
TIER_CONF="limit_rate 3m;" start_tiers 1
mount_tiers "$TIERS"
(sleep 0.7 && kill_tier 1) &
ms=$(milliseconds read_shard)
wait "$!"
equal "a tier killed in mid-read: right bytes" "$right" "$(cat "$T/sum")"
at_most "a tier killed in mid-read: at most a second later" 1900 "$ms"
at_least "a tier killed in mid-read: some bytes came from it" 500000 "$(tier bytes)"
equal "a tier killed in mid-read: it is set aside" aside "$(tier 'tiers[0].state')"
umount_penstock
mount_tiers "$TIERS"
ms=$(milliseconds read_shard)
equal "a tier that is down: right bytes" "$right" "$(cat "$T/sum")"
at_most "a tier that is down: soon" 1000 "$ms"
at_least "a tier that is down: it is counted" 1 "$(tier 'tiers[0].down')"
umount_penstock

# A new version at the origin while the tier has the old one.
start_tiers 1
mount_tiers "$TIERS" --revalidate open
read_shard
make_shards "$T/new" 1 12000000 7
cat "$T/new/shard-000000.tar" >"$T/www/shard-000000.tar"
touch -d '3 seconds' "$T/www/shard-000000.tar"
right=$(sha256sum <"$T/www/shard-000000.tar")
drop_page_cache
read_shard || read_shard
equal "a new version is read, whatever the tier has of the old one" "$right" "$(cat "$T/sum")"
umount_penstock
