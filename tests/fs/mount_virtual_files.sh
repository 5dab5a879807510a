#!/usr/bin/env bash
# .penstock/stats is JSON with the fields that scripts rely on, .penstock/metrics is Prometheus text; both live, neither
# is in a listing of the root.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/" --no-passthrough # whose bytes the daemon does not see
check "stats is JSON" jq -e . "$MNT/.penstock/stats"
for field in .cache.dir .cache.limit_bytes .cache.used_bytes .cache.objects .origin.bytes .origin.requests \
	.origin.errors .origin.retries .reads.bytes .reads.hit_bytes .reads.stalled_seconds; do
	check "stats has $field" jq -e "$field != null" "$MNT/.penstock/stats"
done
equal "no byte is read yet" 0 "$(stats .reads.bytes)"
dd if="$MNT/shard-000000.tar" of=/dev/null bs=1M 2>/dev/null
size=$(stat -c %s "$T/www/shard-000000.tar")
at_least "a read counts" "$size" "$(stats .reads.bytes)"
at_least "as origin bytes" "$size" "$(stats .origin.bytes)"
drop_page_cache
dd if="$MNT/shard-000000.tar" of=/dev/null bs=1M 2>/dev/null
at_least "the second read counts, too" $((2 * size)) "$(stats .reads.bytes)"
# Other shards may have been fetched ahead: that is no debt.
check "hits are what was read and not fetched" jq -e \
	'.reads.hit_bytes == ([.reads.bytes - .origin.bytes, 0] | max)' "$MNT/.penstock/stats"

parse_metrics() {
	"$python" - "$MNT/.penstock/metrics" <<'PY'
import re, sys
typed, seen, last = set(), 0, None
for line in open(sys.argv[1]):
    if m := re.fullmatch(r"# (?:HELP ([a-zA-Z_:][\w:]*) .*|TYPE ([a-zA-Z_:][\w:]*) (?:counter|gauge|histogram))\n", line):
        if m[2] in typed:
            sys.exit(f"a second TYPE: {line}")
        typed.add(m[1] or m[2])
        last = m[2]
    elif m := re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{(?:\w+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)\n', line):
        float(m[2])
        seen += 1
        if m[1] != last:
            sys.exit(f"apart from its TYPE: {line}")
        if m[1] not in typed or not m[1].startswith("penstock_"):
            sys.exit(f"no TYPE before it, or another prefix: {line}")
    else:
        sys.exit(f"not a line of metrics: {line!r}")
sys.exit(0 if seen >= 5 else f"{seen} metrics")
PY
}
equal "bytes passed through are not known" null "$(stats .passthrough.bytes)"
check "what may fall is a gauge" grep -q '^# TYPE penstock_inflate_unpackers gauge' "$MNT/.penstock/metrics"
check_not "and nothing else that tells a time" grep -q '^# TYPE .*_at_total' "$MNT/.penstock/metrics"
check_not "and no metric" grep -q passthrough_bytes "$MNT/.penstock/metrics"
for mode in passed direct cached; do
	equal "opens are counted: $mode" number "$(stats ".opens.$mode | type")"
done
check "the hit ratio is what it says" jq -e \
	'([1 - .origin.bytes / .reads.bytes, 0] | max) - .reads.hit_ratio | fabs < 0.0001' "$MNT/.penstock/stats"
check "metrics parse" parse_metrics
equal "the folder is not listed" "" "$(find "$MNT" -maxdepth 1 -name '.penstock*')"
check_not "and not writable" bash -c "echo x >'$MNT/.penstock/stats'"
