#!/usr/bin/env bash
# .penstock/stats is JSON with the fields that scripts rely on, .penstock/metrics is Prometheus text; both live, neither
# is in a listing of the root.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/"
check "stats is JSON" jq -e . "$MNT/.penstock/stats"
for field in .cache.dir .cache.limit_bytes .cache.used_bytes .cache.objects .origin.bytes .origin.requests \
	.origin.errors .origin.retries .reads.bytes .reads.hit_bytes .reads.stalled_seconds; do
	check "stats has $field" jq -e "$field != null" "$MNT/.penstock/stats"
done
equal "no byte is read yet" 0 "$(stats .reads.bytes)"
# As long as a file that was not complete is open, its reads come to the daemon.
exec 7<"$MNT/shard-000000.tar"
dd if="$MNT/shard-000000.tar" of=/dev/null bs=1M 2>/dev/null
size=$(stat -c %s "$T/www/shard-000000.tar")
at_least "a read counts" "$size" "$(stats .reads.bytes)"
at_least "as origin bytes" "$size" "$(stats .origin.bytes)"
drop_page_cache
hits=$(stats .reads.hit_bytes)
# By the old handle: a new one would be passed through.
dd of=/dev/null bs=1M <&7 2>/dev/null
at_least "the second read counts as hits" $((hits + size)) "$(stats .reads.hit_bytes)"

parse_metrics() {
	"$python" - "$MNT/.penstock/metrics" <<'PY'
import re, sys
typed, seen = set(), 0
for line in open(sys.argv[1]):
    if m := re.fullmatch(r"# (?:HELP ([a-zA-Z_:][\w:]*) .*|TYPE ([a-zA-Z_:][\w:]*) (?:counter|gauge|histogram))\n", line):
        typed.add(m[1] or m[2])
    elif m := re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{(?:\w+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)\n', line):
        float(m[2])
        seen += 1
        if m[1] not in typed or not m[1].startswith("penstock_"):
            sys.exit(f"no TYPE before it, or another prefix: {line}")
    else:
        sys.exit(f"not a line of metrics: {line!r}")
sys.exit(0 if seen >= 5 else f"{seen} metrics")
PY
}
check "metrics parse" parse_metrics
equal "the folder is not listed" "" "$(find "$MNT" -maxdepth 1 -name '.penstock*')"
check_not "and not writable" bash -c "echo x >'$MNT/.penstock/stats'"
