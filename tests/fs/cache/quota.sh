#!/usr/bin/env bash
# The folder of the cache, index and reserve included, never takes more than --cache-size: while a dataset of
# twice that size is read twice (and its bytes are right), and while an index grows.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq slow

mkdir -p "$T/www"
for i in {10..25}; do
	random_file "$T/www/$i.bin" 8000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
mount_penstock "$ORIGIN/" --cache-size 64M

# Writes the folder's largest size in bytes to $T/most, until $T/done exists.
watch() {
	local most=0 now
	rm -f "$T/done" "$T/most"
	while [[ ! -e $T/done ]]; do
		now=$(du -s --block-size=1 "$CACHE" 2>/dev/null | cut -f 1) || true
		((${now:-0} > most)) && most=$now && echo "$most" >"$T/most"
		sleep 0.05
	done
}
watch &
watcher=$!
check "bytes of the first epoch are right" read_tree 1m "$MNT" 2
drop_page_cache
origin_forget
check "bytes of the second epoch are right" read_tree 1m
second=$(origin_bytes)
drop_page_cache
check "four random readers get the right bytes" read_tree random "$MNT" 4
touch "$T/done"
wait "$watcher" || true
at_most "the folder stayed within the quota" $((64 << 20)) "$(cat "$T/most")"
at_least "the folder took half of the quota or more" $((32 << 20)) "$(cat "$T/most")"
at_most "the second epoch fetched at most 70 % of the dataset" $((128000000 * 70 / 100)) \
	"$second"
equal "the statistics have the limit" $((64 << 20)) "$(stats .cache.limit_bytes)"
at_most "used bytes are within the limit" $((64 << 20)) "$(stats .cache.used_bytes)"
at_most "used bytes and index together are within the limit" \
	$((64 << 20)) "$(stats '.cache.used_bytes + .cache.index_bytes')"
umount_penstock

# So many names that data must be evicted for them; then more names than there is room for.
list() { # N: prints a manifest of N names; the origin has only the first file
	local url=$ORIGIN/f
	awk -v n="$1" -v url="$url" 'BEGIN {srand(7); for (i = 0; i < n; i++) printf "%s/%06d-%08x%08x.bin 1000\n", url, i, rand() * 2^32, rand() * 2^32}'
}
mkdir -p "$T/www/f" "$T/m2"
list 40000 >"$T/some.txt"
list 150000 >"$T/many.txt"
head -c 1000 /dev/zero >"$T/www/f/$(basename "$(head -n 1 "$T/some.txt" | cut -d ' ' -f 1)")"
for size in 30M 16M; do
	CACHE=$T/cache-$size
	limit=$((${size%M} << 20))
	mount_penstock "$ORIGIN/" --cache-size "$size"
	watch &
	watcher=$!
	read_tree 1m >/dev/null
	evicted=$(stats .cache.evicted_bytes)
	if [[ $size == 30M ]]; then
		check "$size: a mount with many names succeeds" \
			penstock mount "@$T/some.txt" "$T/m2" --cache-dir "$CACHE"
		equal "$size: all names are listed" 40000 \
			"$(jq '.mounts[0] | .files + .missing' "$T/m2/.penstock/stats")"
		at_least "$size: data was evicted for the names" \
			$((evicted + (1 << 20))) "$(stats .cache.evicted_bytes)"
		penstock umount "$T/m2"
	else
		rc=0
		penstock mount "@$T/many.txt" "$T/m2" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
		equal "$size: too many names are refused" "1 1" \
			"$rc $(grep -c "needs more room than --cache-size leaves" "$T/out")"
	fi
	check "$size: files can still be read" cmp -n 1000000 "$MNT/10.bin" "$T/www/10.bin"
	touch "$T/done"
	wait "$watcher" || true
	at_most "$size: the folder stayed within the quota" "$limit" "$(cat "$T/most")"
	umount_penstock
	check "$size: verify finds no error" penstock verify --cache-dir "$CACHE"
	at_most "$size: the folder is within the quota after the end" \
		"$limit" "$(du -s --block-size=1 "$CACHE" | cut -f 1)"
done

CACHE=$T/cache-16M
rc=0
mount_penstock "$ORIGIN/" --cache-size 8M >"$T/out" 2>&1 || rc=$?
equal "a size below what the index needs is refused with the least size" "2 1" \
	"$rc $(grep -c "the minimum is 16" "$T/out")"
CACHE=$T/cache-large
mount_penstock "$ORIGIN/" --cache-size 900T 2>"$T/out"
check "a size larger than the disk gives a warning" grep \
	-q "warning: .*the limit is 900.0 TiB, but the disk has room for" "$T/out"
check "status shows how much the disk allows" grep -q "^  reach " <(penstock status "$MNT")
free=$(df -B 1 --output=avail "$CACHE" | tail -n 1)
at_most "the statistics allow no more than df" "$free" "$(stats .cache.reachable_bytes)"
