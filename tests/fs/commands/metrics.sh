#!/usr/bin/env bash
# What Prometheus reads: the metrics files of several mounts and caches, and penstock metrics, which has all
# of them. Neither has a series twice, and neither waits for a daemon that does not answer.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

check_py=$(cd "$(dirname "$0")" && pwd)/metrics_check.py
metrics() { "$python" "$check_py" "$@"; }
make_tree "$T/www"
start_nginx
mkdir "$T/mnt2" "$T/mnt3"
mount_penstock "$ORIGIN/" --no-passthrough
check "a second mount of the daemon" penstock mount "$ORIGIN/sub/" "$T/mnt2" --cache-dir "$CACHE"
check "a mount of another cache" penstock mount "$ORIGIN/" "$T/mnt3" --cache-dir "$T/cache3" --no-passthrough
check "the first mount is read" read_tree 1m
check "the mount of another cache is read" cmp "$T/www/shard-000000.tar" "$T/mnt3/shard-000000.tar"

# Each file is copied once, as the mounts go on counting.
for dir in "$MNT" "$T/mnt2" "$T/mnt3"; do
	cat "$dir/.penstock/metrics" >"$T/${dir##*/}.prom"
done
cat "$T/mnt2/.penstock/cache_metrics" >"$T/cache.prom"
cat "$T/mnt3/.penstock/cache_metrics" >"$T/cache3.prom"
files=("$T/${MNT##*/}.prom" "$T/mnt2.prom" "$T/mnt3.prom" "$T/cache.prom" "$T/cache3.prom")
check "the files of three mounts and two caches are a valid scrape" metrics "${files[@]}"
metrics "${files[@]}" >"$T/together"
check_not "the cache_metrics of two mounts of one daemon have the same series" metrics \
	<(cat "$MNT/.penstock/cache_metrics") <(cat "$T/mnt2/.penstock/cache_metrics")
check_not "each series has the label cache_dir" grep -v 'cache_dir="' "$T/together"
check_not "series of a mount have the label mount" grep '^penstock_mount' <(grep -v ' mount="' "$T/together")
equal "each mount has a series" 3 "$(grep -c '^penstock_mount_files ' "$T/together")"
equal "each cache has a series" 2 "$(grep -c '^penstock_cache_used_bytes ' "$T/together")"
for histogram in reads_latency origin_latency mount_reads_latency; do
	check "the histogram penstock_${histogram}_seconds counts" grep \
		-Eq "^penstock_${histogram}_seconds_count .* [1-9][0-9]*$" "$T/together"
done

# Each number of the stats is in one of the files.
numbers() { # FILE FILTER: the paths of the numbers in what jq's FILTER selects
	jq -r "$2 | del(.mounts, .pid, .opens, .passthrough.opens, .passthrough.open, .sources) |
		paths(type == \"number\" or type == \"boolean\") | map(tostring) | join(\"_\")" "$1" |
		grep -v '_seconds_\(buckets\|sum\|count\)' | sort
}
for path in $(numbers "$MNT/.penstock/stats" . | grep -v '^passthrough_') \
	$(numbers "$MNT/.penstock/stats" '.mounts[0]' | grep -v '^modes_upgrades\|^opens$' | sed 's/^/mount_/'); do
	grep -Eq "^penstock_$path(_total)? " "$T/together" || missing=${missing-}$path' '
done
equal "each number of stats is a metric" "" "${missing-}"
if command -v promtool >/dev/null; then
	for file in "${files[@]}"; do
		equal "promtool finds nothing in ${file##*/}" "" "$(promtool check metrics <"$file" 2>&1)"
	done
fi

# The whole node.
only_ours() { grep -F "\"$T/"; } # other tests mount as well
penstock metrics >"$T/node.prom"
check "the output of penstock metrics is a valid scrape" metrics "$T/node.prom"
series() { sed 's/ [0-9.]*$//' | sort; }
equal "penstock metrics has the same series, and penstock_up of each mount" "$(series <"$T/together")" \
	"$(metrics "$T/node.prom" | only_ours | grep -v '^penstock_up ' | series)"
up() { penstock metrics 2>/dev/null | only_ours | grep '^penstock_up' | sed 's/.*\/\([^/]*\)"} /\1 /' | sort |
	xargs; }
equal "all mounts are up" "${MNT##*/} 1 mnt2 1 mnt3 1" "$(up)"
penstock metrics --cache-dir "$CACHE" >"$T/daemon.prom"
equal "--cache-dir: the mounts of one daemon" 2 \
	"$(metrics "$T/daemon.prom" | grep -c '^penstock_mount_files ')"
rc=0
penstock metrics --cache-dir "$T/nothing" >"$T/out" 2>&1 || rc=$?
equal "--cache-dir of no daemon: an error in one line" "1 1" "$rc $(grep -c 'no daemon serves it' "$T/out")"

pid3=$(jq .pid "$T/mnt3/.penstock/stats")
kill -STOP "$pid3"
start=$SECONDS
equal "a daemon that hangs is not up, and the others are" "${MNT##*/} 1 mnt2 1 mnt3 0" "$(up)"
at_most "penstock metrics does not wait for the daemon that hangs (s)" 20 $((SECONDS - start))
check_not "the series of the daemon that hangs are left out" grep -F "$T/cache3" <(penstock metrics)
kill -CONT "$pid3"
kill_daemon "$pid3"
dead() { [[ $(up) == "${MNT##*/} 1 mnt2 1 mnt3 0" ]]; }
check "a dead daemon is not up" wait_until 20 dead
check "umount removes the dead daemon's mount" penstock umount "$T/mnt3"
check "the second mount is unmounted" penstock umount "$T/mnt2"
umount_penstock

# Bytes that the kernel reads by passthrough are unknown, so there is no hit ratio.
mount_penstock "$ORIGIN/"
if jq -e .passthrough.active "$MNT/.penstock/stats" >/dev/null; then
	check "a complete file is read" cmp "$T/www/shard-000000.tar" "$MNT/shard-000000.tar"
	passed() { cat "$MNT/shard-000000.tar" >/dev/null && (($(stats .opens.passed) > 0)); }
	check "the file is passed through" wait_until 20 passed
	equal "hit_ratio is null after passthrough" null "$(stats .reads.hit_ratio)"
	check_not "hit_ratio is not a metric" grep -q hit_ratio "$MNT/.penstock/cache_metrics"
	penstock status "$MNT" >"$T/out"
	check "status shows opens by passthrough and bytes through the daemon" grep -Eq \
		'^  reads +[1-9][0-9]* opens? served straight from the cache \(kernel\), .* through the daemon' "$T/out"
	check_not "status shows no hit ratio after passthrough" grep -q 'hit ratio' "$T/out"
	check "another mount joins the daemon" penstock mount "$ORIGIN/sub/" "$T/mnt2" --cache-dir "$CACHE" \
		--no-passthrough
	check "the other mount is read through the daemon" grep -rq . "$T/mnt2"
	check "the mount with passthrough is unmounted" penstock umount "$MNT"
	equal "the sums still count its reads, and the hit ratio stays unknown" "null true" \
		"$(jq -r '"\(.reads.hit_ratio) \(.reads.bytes > 0)"' "$T/mnt2/.penstock/stats")"
	check "the other mount is unmounted" penstock umount "$T/mnt2"
	mount_penstock "$ORIGIN/"
else
	skip "hit_ratio is null after passthrough" "no passthrough: $(stats -r .passthrough.reason)"
fi
