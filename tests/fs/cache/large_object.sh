#!/usr/bin/env bash
# A file three times as large as the cache is cached in extents within the quota. Its bytes are right in order
# and at random, also after the daemon was killed. A large file that fits is passed through only if it is
# pinned.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq python3

quota=$((128 << 20))
mkdir -p "$T/www"
random_file "$T/www/large.bin" $((quota + 4321)) 1
cat "$T/www/large.bin" "$T/www/large.bin" "$T/www/large.bin" >"$T/www/thrice" &&
	mv "$T/www/thrice" "$T/www/large.bin"
random_file "$T/www/half.bin" $((80 << 20)) 2
start_nginx
used() { du -s --block-size=1 "$CACHE/data" | cut -f 1; }
same() { cmp "$MNT/$1" "$T/www/$1"; }
# Watches how much the data files occupy while $T/watching exists, and then writes the peak to $T/peak.
watch_quota() {
	local now peak=0
	while [[ -e $T/watching ]]; do
		now=$(used 2>/dev/null || echo 0)
		((now <= peak)) || peak=$now
		sleep 0.05
	done
	echo "$peak" >"$T/peak"
}
at_random() {
	"$python" - "$MNT/large.bin" "$T/www/large.bin" "$1" <<'PY'
import os, random, sys
rng = random.Random(int(sys.argv[3]))
a, b = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
size = os.fstat(b).st_size
for _ in range(600):
    at = rng.randrange(size)
    n = rng.choice([1, 4096, 100000])
    if os.pread(a, n, at) != os.pread(b, n, at):
        sys.exit(f"{n} bytes at {at} differ")
PY
}

for policy in plan lru; do
	mount_penstock "$ORIGIN/" --cache-size "$quota" --policy "$policy"
	touch "$T/watching"
	watch_quota &
	watcher=$!
	check "$policy: bytes are right in order" same large.bin
	check "$policy: bytes are right at random" at_random 1
	at_most "$policy: the cache is within its quota" "$quota" "$(stats .cache.used_bytes)"
	rm "$T/watching"
	wait "$watcher"
	at_most "$policy: data files are within the quota all the time" "$quota" "$(cat "$T/peak")"
	at_least "$policy: data files use a good part of the quota" $((quota / 3)) "$(cat "$T/peak")"
	at_least "$policy: the cache uses a good part of the quota" \
		$((quota / 3)) "$(stats .cache.used_bytes)"
	origin_forget
	if [[ $policy == plan ]]; then
		drop_page_cache
		check "plan: bytes are right when read again" same large.bin
		at_most "plan: the beginning of the file was kept" \
			$((2 * quota + (20 << 20))) "$(origin_bytes)"
	else
		at_least "lru: extents were evicted" 3 "$(stats .cache.evicted_extents)"
	fi
	umount_penstock
done

mount_penstock "$ORIGIN/" --cache-size "$quota" --policy lru
same large.bin >/dev/null 2>&1 &
reader=$!
sleep 0.7
kill_penstock
wait "$reader" || true
mount_penstock "$ORIGIN/" --cache-size "$quota" --policy lru
check "after a kill: bytes are right at random" at_random 2
check "after a kill: bytes are right in order" same large.bin
at_most "after a kill: data files are within the quota" "$quota" "$(used)"

check "a large file that fits is right" same half.bin
equal "a large file that is not pinned is not passed through" 0 "$(stats .opens.passed)"
check_not "pinning more than fits is refused" penstock pin "$MNT"
penstock pin "$MNT" 2>"$T/refused" || true
check "the error has the sum of the sizes" grep -Eq "2 files take 46[0-9].*holds 128" "$T/refused"
equal "nothing is pinned after the refusal" 0 "$(stats .cache.pinned_bytes)"
equal "pin reports one file" "1 file pinned" "$(penstock pin "$MNT" half.bin | cut -d , -f 1)"
equal "pinning again reports no file" "0 files pinned" "$(penstock pin "$MNT" half.bin | cut -d , -f 1)"
equal "the statistics count one pinned file" 1 "$(stats .cache.pinned_objects)"
check "warm fetches the pinned file" penstock warm "$MNT" half.bin --quiet
check "the pinned file is right" same half.bin
if [[ $(stats .passthrough.active) == true ]]; then
	at_least "the pinned file is passed through" 1 "$(stats .opens.passed)"
fi
check "the larger file is right beside the pinned one" same large.bin
penstock evict "$MNT" >/dev/null
umount_penstock
mount_penstock "$ORIGIN/" --cache-size "$quota" --policy lru
origin_forget
check "the pinned file is right after a restart" same half.bin
at_most "the pinned file is not fetched again" 100000 "$(origin_bytes)"
equal "unpin reports one file" "1 file unpinned" "$(penstock unpin "$MNT" | cut -d , -f 1)"
check "the unpinned file can be evicted" penstock evict "$MNT" half.bin
equal "nothing of the evicted file is cached" \
	0 "$(getfattr --absolute-names --only-values -n user.penstock.cached "$MNT/half.bin")"
check "the evicted file is right when read again" same half.bin
umount_penstock
check "pin works on a cache at rest" penstock pin --cache-dir "$CACHE" 'half*'
check "unpin works on a cache at rest" penstock unpin --cache-dir "$CACHE" 'half*'
check_not "unpin of a file that is not pinned fails" penstock unpin --cache-dir "$CACHE" 'half*'
check "verify finds nothing wrong" penstock verify --cache-dir "$CACHE"
