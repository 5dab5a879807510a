#!/usr/bin/env bash
# penstock status shows people and, with --json, scripts what the mounts do.
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
for field in .cache.used_bytes .cache.objects .origin.requests .origin.errors .origin.retries \
	.reads.hit_bytes \
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
	check "status $how tells of rates" wait_until 30 grep \
		-Eq '^  now +[0-9.]+ (B|[KMG]iB)/s from the origin, .*/s through the daemon, [0-9.]+ opens/s served by the kernel$' "$T/watch"
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
check "what came from the cache is told, as long as it is known" \
	grep -Eq '^  cache .* objects, hit ratio [0-9.]+ %, in ' <(penstock status "$MNT")
check "and what was read" grep -Eq '^  reads +[0-9.]+ MiB through the daemon, [0-9.]+ % without waiting; waited [0-9.]+ s, 0 waiting now$' \
	<(penstock status "$MNT")
penstock pin "$MNT" 'sub/deep/1048576.bin' >"$T/out" 2>&1
check "what is pinned is told" grep -Eq '^  pinned +1 file, 1.0 MiB' <(penstock status "$MNT")
umount_penstock
check_not "status of what is not mounted" penstock status "$MNT"

# For monitoring: a line, and the exit codes of Nagios.
checked() { # WHAT CODE TEXT ARGUMENT...
	local rc=0
	penstock status --check "${@:4}" >"$T/out" 2>"$T/err" || rc=$?
	equal "--check, $1: the code, and one line" "$2 1" "$rc $(wc -l <"$T/out")"
	check "--check, $1: what it says" grep -Eq "^penstock $3" "$T/out"
	rc=0
	penstock status --check --json "${@:4}" >"$T/out" 2>"$T/err" || rc=$?
	equal "--check --json, $1: the same" "$2 $2" "$rc $(jq .exit_code "$T/out")"
}

# What was warmed is a hit, though it came from the origin.
CACHE=$T/cache-warm
mount_penstock "$ORIGIN/" --no-passthrough
check "a file is warmed" penstock warm -q "$MNT" shard-000000.tar
check "and read" cmp "$T/www/shard-000000.tar" "$MNT/shard-000000.tar"
equal "all of it came from the cache" 1 "$(stats '.reads.hit_ratio | floor')"
mv "$T/www/sub/deep/7654321.bin" "$T/aside"
check_not "a file that the origin lost is not read" cmp "$T/aside" "$MNT/sub/deep/7654321.bin"
checked "a read failed" 1 "warning: $MNT: degraded: a read failed [0-9]+ s ago: " "$MNT"
mv "$T/aside" "$T/www/sub/deep/7654321.bin"
umount_penstock

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
# Of 4 MB there are a few hundred KB so far.
reserved() { jq -e '.cache | .used_bytes < 3500000 and .used_bytes + .reserved_bytes >= 4000000' \
	"$MNT/.penstock/stats"; }
check "room for the rest is reserved, not used" wait_until 10 reserved
check "df says so, too" [ "$(df -B 1 --output=used "$MNT" | tail -n 1)" -lt 4000000 ]
check "so do people's words" grep -Eq '^  cache .* used \([0-9.]+ [KM]iB reserved for what is being fetched\), ' \
	<(penstock status "$MNT")
kill "$reader" 2>/dev/null || true
wait "$reader" || true
umount_penstock

# Readers that wait together wait once.
random_file "$T/www/stuck.bin" 40000000
CACHE=$T/cache-waits
mount_penstock "$ORIGIN/stall/" --no-passthrough --timeout 60
: >"$T/nginx/stall"
start=$(date +%s%N)
readers=()
for i in 1 2 3 4 5 6 7 8; do
	dd if="$MNT/stuck.bin" of=/dev/null bs=4k count=1 skip=$((i * 1000)) 2>/dev/null &
	readers+=($!)
done
all_wait() { (($(stats .reads.waiting) >= 8)); }
check "eight readers wait" wait_until 30 all_wait
sleep 2
waited=$(stats .mounts[0].reads.stalled_seconds)
at_most "no longer than the clock says" "$(awk -v from="$start" -v to="$(date +%s%N)" 'BEGIN {print (to - from) / 1e9}')" "$waited"
at_least "and as long as they do" 2 "$waited"
rm "$T/nginx/stall"
kill "${readers[@]}" 2>/dev/null || true
wait "${readers[@]}" 2>/dev/null || true
umount_penstock

# For monitoring.
mkdir "$T/small"
if ((EUID == 0)) && mount -t tmpfs -o size=48m none "$T/small" 2>/dev/null; then
	CACHE=$T/small/cache
	mount_penstock "$ORIGIN/" --min-free 1M
	checked "all is well" 0 "ok: 1 mount$" "$MNT"
	checked "of a daemon" 0 "ok: 1 mount$" --cache-dir "$CACHE"
	dd if=/dev/zero of="$T/small/others" bs=1M 2>/dev/null || true
	cat "$MNT/sub/deep/7654321.bin" >/dev/null
	checked "the disk is full" 1 "warning: $MNT: full: No space left on device" "$MNT"
	pid=$(stats .pid)
	kill -STOP "$pid"
	start=$SECONDS
	checked "the daemon hangs" 2 "critical: $MNT: down: its daemon does not answer" "$MNT"
	at_most "it does not hang with it" 20 $((SECONDS - start))
	kill -CONT "$pid"
	umount_penstock
	umount "$T/small"
else
	skip "--check, the disk is full" "no file system of its own"
fi
checked "not mounted" 2 "critical: $MNT: down: .*not a penstock mount" "$MNT"
checked "no daemon" 2 "critical: $CACHE: down: .*no daemon serves it" --cache-dir "$CACHE"
rc=0
penstock status --check --watch >"$T/out" 2>&1 || rc=$?
equal "--check, a command line that makes no sense: unknown" 3 "$rc"
CACHE=$T/cache-gone
mount_penstock "$ORIGIN/" --revalidate 1s --timeout 3
cat "$MNT/shard-000000.tar" >/dev/null
kill_nginx
offline() { cat "$MNT/shard-000000.tar" >/dev/null 2>&1; [[ $(stats '.mounts[0].offline') == true ]]; }
check "the origin goes" wait_until 30 offline
checked "the origin does not answer" 2 "critical: $MNT: offline: the origin does not answer" "$MNT"
restart_nginx
umount_penstock

# Names are bytes, JSON is UTF-8.
MNT=$T/caf$'\xe9'
CACHE=$T/cach$'\xe9'
mount_penstock "$ORIGIN/"
check "a mountpoint that is not UTF-8 has a status" penstock status "$MNT"
equal "with what can be shown of it" "$T/caf"$'\xef\xbf\xbd' \
	"$(penstock status "$MNT" --json | jq -r '.mounts[0].mountpoint')"
check "and metrics" grep -q penstock_mount "$MNT/.penstock/metrics"
umount_penstock
