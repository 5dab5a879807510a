#!/usr/bin/env bash
# penstock status shows what the mounts do; with --json, for scripts.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/" --cache-size 1G --no-passthrough # the daemon does not see bytes that are read by passthrough
read_tree 1m
penstock status "$MNT" --json >"$T/status.json"
check "--json is JSON" jq -e . "$T/status.json"
equal "--json has the mountpoint" \
	"$MNT" "$(jq -r '.mounts[0].mountpoint // .mounts[0].path' "$T/status.json")"
equal "--json has the source" "$ORIGIN/" "$(jq -r '.mounts[0].source' "$T/status.json")"
equal "--json has the cache's folder" "$CACHE" "$(jq -r .cache.dir "$T/status.json")"
equal "--json has the cache's limit" $((1 << 30)) "$(jq .cache.limit_bytes "$T/status.json")"
total=$(find "$T/www" -type f -printf '%s\n' | awk '{s += $1} END {printf "%.0f\n", s}')
at_least "--json counts all bytes from the origin" "$total" "$(jq .origin.bytes "$T/status.json")"
at_most "each byte was fetched once" $((total * 101 / 100)) "$(jq .origin.bytes "$T/status.json")"
at_least "--json counts the bytes read" "$total" "$(jq .reads.bytes "$T/status.json")"
for field in .cache.used_bytes .cache.objects .origin.requests .origin.errors .origin.retries \
	.reads.hit_bytes \
	.reads.stalled_seconds; do
	equal "$field is a number" number "$(jq -r "$field | type" "$T/status.json")"
done
equal "--json says whether passthrough is active" \
	boolean "$(jq -r '.passthrough.active | type' "$T/status.json")"
modes='.mounts[0].modes | .direct.opens + .cached.opens + .passed.opens'
equal "each open has a mode" "$(jq .mounts[0].opens "$T/status.json")" "$(jq "$modes" "$T/status.json")"
check "status shows the modes of opens" \
	grep -Eq 'opens +[0-9]+ passed through, [0-9]+ direct, [0-9]+ through the page cache' \
	<(penstock status "$MNT")
check "status shows passthrough" grep -q passthrough <(penstock status "$MNT")

# Status with --watch.
for how in -w --watch=0.1 "--watch 0.1"; do
	rm -f "$T/watch"
	# shellcheck disable=SC2086
	penstock status "$MNT" $how >"$T/watch" &
	watcher=$!
	check "status $how shows rates" wait_until 30 grep \
		-Eq '^  now +[0-9.]+ (B|[KMG]iB)/s from the origin, .*/s through the daemon, [0-9.]+ opens/s served by the kernel$' "$T/watch"
	kill "$watcher"
	wait "$watcher" 2>/dev/null || true
done
lines() { (($(wc -l <"$T/watch") >= 3)); }
rm "$T/watch"
penstock status "$MNT" --watch=0.1 --json >"$T/watch" &
watcher=$!
check "--watch --json prints a line each time" wait_until 30 lines
kill "$watcher"
wait "$watcher" 2>/dev/null || true
equal "each line of --watch --json is JSON" \
	"$MNT" "$(head -n 3 "$T/watch" | jq -r '.mounts[0].mountpoint' | uniq)"
check "status shows the hit ratio if it is known" \
	grep -Eq '^  cache .* objects, hit ratio [0-9.]+ %, in ' <(penstock status "$MNT")
check "status shows the bytes read and the waiting time" \
	grep -Eq '^  reads +[0-9.]+ MiB through the daemon, [0-9.]+ % without waiting; waited [0-9.]+ s, 0 waiting now$' \
	<(penstock status "$MNT")
penstock pin "$MNT" 'sub/deep/1048576.bin' >"$T/out" 2>&1
check "status shows pinned files" grep -Eq '^  pinned +1 file, 1.0 MiB' <(penstock status "$MNT")
umount_penstock
check_not "status of a folder that is not mounted fails" penstock status "$MNT"

# For monitoring: a line, and the exit codes of Nagios.
checked() { # WHAT CODE TEXT ARGUMENT...: checks exit code and text of status --check
	local rc=0
	penstock status --check "${@:4}" >"$T/out" 2>"$T/err" || rc=$?
	equal "--check, $1: the code, and one line" "$2 1" "$rc $(wc -l <"$T/out")"
	check "--check, $1: the text" grep -Eq "^penstock $3" "$T/out"
	rc=0
	penstock status --check --json "${@:4}" >"$T/out" 2>"$T/err" || rc=$?
	equal "--check --json, $1: the same code" "$2 $2" "$rc $(jq .exit_code "$T/out")"
}

# Reads of a warmed file are hits, although the bytes came from the origin.
CACHE=$T/cache-warm
mount_penstock "$ORIGIN/" --no-passthrough
check "a file is warmed" penstock warm -q "$MNT" shard-000000.tar
check "the warmed file is read" cmp "$T/www/shard-000000.tar" "$MNT/shard-000000.tar"
equal "the hit ratio of the warmed file is 1" 1 "$(stats '.reads.hit_ratio | floor')"
mv "$T/www/sub/deep/7654321.bin" "$T/aside"
check_not "a file that is missing at the origin cannot be read" cmp "$T/aside" "$MNT/sub/deep/7654321.bin"
checked "a read failed" 1 "warning: $MNT: degraded: a read failed [0-9]+ s ago: " "$MNT"
mv "$T/aside" "$T/www/sub/deep/7654321.bin"
umount_penstock

# Bytes of a slow file are counted as they arrive.
random_file "$T/www/slow.bin" 4000000
CACHE=$T/cache-slow
mount_penstock "$ORIGIN/slow/" --no-passthrough
cat "$MNT/slow.bin" >/dev/null 2>&1 &
reader=$!
arrived() { getfattr --absolute-names --only-values -n user.penstock.cached "$MNT/slow.bin"; }
some_arrived() { (($(arrived) > 0)); }
check "a slow file arrives bit by bit" wait_until 60 some_arrived
nbytes=$(arrived)
at_least "the arrived bytes are counted as origin bytes" "$nbytes" "$(stats .origin.bytes)"
# Of 4 MB there are a few hundred KB so far.
reserved() { jq -e '.cache | .used_bytes < 3500000 and .used_bytes + .reserved_bytes >= 4000000' \
	"$MNT/.penstock/stats"; }
check "room for the rest is reserved, not used" wait_until 10 reserved
check "status shows the reserved room" \
	grep -Eq '^  cache .* used \([0-9.]+ [KM]iB reserved for files that are being fetched\), ' \
	<(penstock status "$MNT")
kill "$reader" 2>/dev/null || true
wait "$reader" || true
umount_penstock

# Waiting time of readers that wait together is counted once.
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
at_most "the waiting time is at most the elapsed time (s)" \
	"$(awk -v from="$start" -v to="$(date +%s%N)" 'BEGIN {print (to - from) / 1e9}')" "$waited"
at_least "the waiting time is at least 2 s" 2 "$waited"
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
	checked "a daemon's mounts are well" 0 "ok: 1 mount$" --cache-dir "$CACHE"
	dd if=/dev/zero of="$T/small/others" bs=1M 2>/dev/null || true
	cat "$MNT/sub/deep/7654321.bin" >/dev/null
	checked "the disk is full" 1 "warning: $MNT: full: No space left on device" "$MNT"
	pid=$(stats .pid)
	kill -STOP "$pid"
	start=$SECONDS
	checked "the daemon hangs" 2 "critical: $MNT: down: its daemon does not answer" "$MNT"
	at_most "--check does not hang with the daemon (s)" 20 $((SECONDS - start))
	kill -CONT "$pid"
	umount_penstock
	umount "$T/small"
else
	skip "--check, the disk is full" "no small file system can be mounted"
fi
checked "not mounted" 2 "critical: $MNT: down: .*not a penstock mount" "$MNT"
checked "no daemon" 2 "critical: $CACHE: down: .*no daemon serves it" --cache-dir "$CACHE"
rc=0
penstock status --check --watch >"$T/out" 2>&1 || rc=$?
equal "--check, a wrong command line: the code of unknown" 3 "$rc"
CACHE=$T/cache-gone
mount_penstock "$ORIGIN/" --revalidate 1s --timeout 3
cat "$MNT/shard-000000.tar" >/dev/null
kill_nginx
offline() { cat "$MNT/shard-000000.tar" >/dev/null 2>&1; [[ $(stats '.mounts[0].offline') == true ]]; }
check "the mount notices that the origin is gone" wait_until 30 offline
checked "the origin does not answer" 2 "critical: $MNT: offline: the origin does not answer" "$MNT"
restart_nginx
umount_penstock

# Names are arbitrary bytes, but JSON is UTF-8.
MNT=$T/caf$'\xe9'
CACHE=$T/cach$'\xe9'
mount_penstock "$ORIGIN/"
check "a mountpoint that is not UTF-8 has a status" penstock status "$MNT"
equal "JSON replaces the bytes that are not UTF-8" "$T/caf"$'\xef\xbf\xbd' \
	"$(penstock status "$MNT" --json | jq -r '.mounts[0].mountpoint')"
check "a mountpoint that is not UTF-8 has metrics" grep -q penstock_mount "$MNT/.penstock/metrics"
umount_penstock
