#!/usr/bin/env bash
# An origin that is busy: good tiers wait for it, and are not set aside. A stopped tier is, within seconds.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

make_shards "$T/www" 1 12000000
start_nginx
size=$(stat -c %s "$T/www/shard-000000.tar")
right=$(sha256sum <"$T/www/shard-000000.tar")
mkdir "$T/link"
"$python" "$top_srcdir/tests/fs/reads/narrow_link.py" "$T/link" "${ORIGIN#*://}" >"$T/link.log" 2>&1 &
wait_until 20 test -s "$T/link/port" || die "the narrow link starts" "$(cat "$T/link.log")"
FAR=http://127.0.0.1:$(cat "$T/link/port")

mount_node() { # I TIERS
	mkdir -p "$T/mnt$1"
	penstock mount "$FAR/" "$T/mnt$1" --cache-dir "$T/cache$1" --log "$T/penstock$1.log" --tier "$2"
}
umount_node() {
	timeout 30 penstock umount "$T/mnt$1" || true
	rm -rf "$T/cache$1"
}
tier() { jq -r ".mounts[0].tier.$2" "$T/mnt$1/.penstock/stats"; }
read_shard() { sha256sum <"$T/mnt$1/shard-000000.tar" >"$T/sum$1"; }

# Three nodes want the same slices, and each slice takes seconds: two of the three nodes get no byte of a
# slice until the tier has the whole slice. A trial of a node asks the origin for 256 KiB of what is late.
start_tiers 3 "$FAR"
echo 1500000 >"$T/link/rate"
readers=()
for i in 1 2 3; do
	mount_node "$i" "$TIERS"
done
for i in 1 2 3; do
	read_shard "$i" &
	readers+=("$!")
done
wait "${readers[@]}"
trials=0
for i in 1 2 3; do
	equal "a busy origin: right bytes on node $i" "$right" "$(cat "$T/sum$i")"
	equal "a busy origin: node $i sets no good tier aside" 0 "$(tier "$i" 'tiers | map(.strikes) | add')"
	trials=$((trials + $(tier "$i" fallback_bytes)))
done
at_most "a busy origin: it sends each byte once, and what trials ask for" \
	$((size + size / 50 + trials)) "$(origin_bytes)"
at_most "a busy origin: trials are a few" $((3 * 3 << 20)) "$trials"
for i in 1 2 3; do umount_node "$i"; done

# The same origin, and a tier that accepts and says nothing.
mkdir "$T/liar"
echo silent >"$T/liar/mode"
"$python" "$top_srcdir/tests/fs/tier/lying_tier.py" "$T/liar" "${ORIGIN#*://}" >"$T/liar.log" 2>&1 &
wait_until 20 test -s "$T/liar/port" || die "the lying tier starts" "$(cat "$T/liar.log")"
mount_node 1 "http://127.0.0.1:$(cat "$T/liar/port")"
stat "$T/mnt1/shard-000000.tar" >/dev/null
read_shard 1 &
reader=$!
is_aside() { [[ $(tier 1 'tiers[0].state') == aside ]]; }
# (Each waiting request then asks the origin for 256 KiB, which takes half a second here.)
ms=$(milliseconds wait_until 20 is_aside)
at_most "a stopped tier in front of a busy origin is set aside soon" 4000 "$ms"
check "the log says why" grep -q "it does not answer; set aside" "$T/penstock1.log"
wait "$reader"
equal "a stopped tier in front of a busy origin: right bytes" "$right" "$(cat "$T/sum1")"
umount_node 1
