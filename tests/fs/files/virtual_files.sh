#!/usr/bin/env bash
# .penstock/stats is JSON with the fields that scripts rely on, .penstock/metrics and cache_metrics are
# Prometheus text. Each read shows the present, and no listing of the root shows .penstock.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/" --no-passthrough # the daemon does not see bytes that are read by passthrough
check "stats is JSON" jq -e . "$MNT/.penstock/stats"
for field in .cache.dir .cache.limit_bytes .cache.used_bytes .cache.objects .origin.bytes .origin.requests \
	.origin.errors .origin.retries .reads.bytes .reads.hit_bytes .reads.stalled_seconds; do
	check "stats has $field" jq -e "$field != null" "$MNT/.penstock/stats"
done
equal "no byte is read yet" 0 "$(stats .reads.bytes)"
dd if="$MNT/shard-000000.tar" of=/dev/null bs=1M 2>/dev/null
size=$(stat -c %s "$T/www/shard-000000.tar")
at_least "reads.bytes counts a read" "$size" "$(stats .reads.bytes)"
at_least "origin bytes count the read" "$size" "$(stats .origin.bytes)"
drop_page_cache
dd if="$MNT/shard-000000.tar" of=/dev/null bs=1M 2>/dev/null
at_least "reads.bytes counts a second read" $((2 * size)) "$(stats .reads.bytes)"
# Read-ahead may have fetched more than was read: hit_bytes is then 0, not negative.
check "hit_bytes are the bytes that were read and not fetched" jq -e \
	'.reads.hit_bytes == ([.reads.bytes - .reads.fetched_bytes, 0] | max) and .reads.fetched_bytes <= .origin.bytes' "$MNT/.penstock/stats"

equal "bytes that are passed through are unknown" null "$(stats .passthrough.bytes)"
for mode in passed direct cached; do
	equal "opens are counted: $mode" number "$(stats ".opens.$mode | type")"
done
check "hit_ratio is hit_bytes / bytes" jq -e \
	'.reads.hit_bytes / .reads.bytes - .reads.hit_ratio | fabs < 0.0001' "$MNT/.penstock/stats"
check "with one mount, its reads equal the sums" jq -e \
	'.mounts[0].reads == (.reads | del(.hit_bytes, .hit_ratio, .fetched_bytes))' "$MNT/.penstock/stats"
for file in metrics cache_metrics; do
	check "$file parses" "$python" "$(dirname "$0")/../commands/metrics_check.py" "$MNT/.penstock/$file"
done
equal "the .penstock folder is not listed in the root" "" "$(find "$MNT" -maxdepth 1 -name '.penstock*')"
equal "the .penstock folder lists its files" "cache_metrics metrics plan stats" \
	"$(find "$MNT/.penstock" -mindepth 1 -printf '%f\n' | sort | xargs)"
check_not ".penstock/stats is not writable" bash -c "echo x >'$MNT/.penstock/stats'"
