#!/usr/bin/env bash
# penstock status tells people and, with --json, scripts what the mounts do.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq getfattr

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/" --cache-size 1G --no-passthrough # whose bytes the daemon does not see
read_tree 1m
penstock status "$MNT" --json >"$T/status.json"
check "--json is JSON" jq -e . "$T/status.json"
equal "the mount" "$MNT" "$(jq -r '.mounts[0].mountpoint // .mounts[0].path' "$T/status.json")"
equal "its source" "$ORIGIN/" "$(jq -r '.mounts[0].source' "$T/status.json")"
equal "the cache's folder" "$CACHE" "$(jq -r .cache.dir "$T/status.json")"
equal "its limit" $((1 << 30)) "$(jq .cache.limit_bytes "$T/status.json")"
total=$(find "$T/www" -type f -printf '%s\n' | awk '{s += $1} END {printf "%.0f\n", s}')
at_least "origin bytes" "$total" "$(jq .origin.bytes "$T/status.json")"
at_most "each once" $((total * 101 / 100)) "$(jq .origin.bytes "$T/status.json")"
at_least "bytes read" "$total" "$(jq .reads.bytes "$T/status.json")"
for field in .cache.used_bytes .cache.objects .origin.requests .origin.errors .origin.retries .reads.hit_bytes \
	.reads.stalled_seconds; do
	equal "$field is a number" number "$(jq -r "$field | type" "$T/status.json")"
done
equal "passthrough is told" boolean "$(jq -r '.passthrough.active | type' "$T/status.json")"
modes='.mounts[0].modes | .direct.opens + .cached.opens + .passed.opens'
equal "each open has a mode" "$(jq .mounts[0].opens "$T/status.json")" "$(jq "$modes" "$T/status.json")"
check "modes for people" grep -Eq 'opens +[0-9]+ passed through, [0-9]+ direct, [0-9]+ through the page cache' \
	<(penstock status "$MNT")
check "for people, too" grep -q passthrough <(penstock status "$MNT")

# Again and again.
for how in -w --watch=0.1 "--watch 0.1"; do
	rm -f "$T/watch"
	# shellcheck disable=SC2086
	penstock status "$MNT" $how >"$T/watch" &
	watcher=$!
	check "status $how tells of rates" wait_until 30 grep -Eq '^  now +[0-9.]+ (B|[KMG]iB)/s from the origin, .*/s to readers$' "$T/watch"
	kill "$watcher"
	wait "$watcher" 2>/dev/null || true
done
lines() { (($(wc -l <"$T/watch") >= 3)); }
rm "$T/watch"
penstock status "$MNT" --watch=0.1 --json >"$T/watch" &
watcher=$!
check "with --json a line each time" wait_until 30 lines
kill "$watcher"
wait "$watcher" 2>/dev/null || true
equal "each of them JSON" "$MNT" "$(head -n 3 "$T/watch" | jq -r '.mounts[0].mountpoint' | uniq)"
penstock pin "$MNT" 'sub/deep/1048576.bin' >"$T/out" 2>&1
check "what is pinned is told" grep -Eq '^  pinned +1 files, 1.0 MiB' <(penstock status "$MNT")
umount_penstock
check_not "status of what is not mounted" penstock status "$MNT"

# What comes slowly is counted as it comes: what of a file is in the cache came from the origin.
random_file "$T/www/slow.bin" 4000000
CACHE=$T/cache-slow
mount_penstock "$ORIGIN/slow/" --no-passthrough
cat "$MNT/slow.bin" >/dev/null 2>&1 &
reader=$!
arrived() { getfattr --absolute-names --only-values -n user.penstock.cached "$MNT/slow.bin"; }
some_arrived() { (($(arrived) > 0)); }
check "a slow file arrives bit by bit" wait_until 60 some_arrived
nbytes=$(arrived)
at_least "its bytes are counted by then" "$nbytes" "$(stats .origin.bytes)"
kill "$reader" 2>/dev/null || true
wait "$reader" || true
umount_penstock

# Names are bytes, JSON is UTF-8.
MNT=$T/caf$'\xe9'
CACHE=$T/cach$'\xe9'
mount_penstock "$ORIGIN/"
check "a mountpoint that is not UTF-8 has a status" penstock status "$MNT"
equal "with what can be shown of it" "$T/caf"$'\xef\xbf\xbd' "$(penstock status "$MNT" --json | jq -r '.mounts[0].mountpoint')"
check "and metrics" grep -q penstock_mount "$MNT/.penstock/metrics"
umount_penstock
