#!/usr/bin/env bash
# A file three times as large as the cache: cached piece by piece within the quota, right bytes in order and
# at random, also after the daemon was killed in the midst; read by the kernel itself only when it fits and is
# pinned.
. "$(dirname "$0")/../lib.sh"
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
# What the data files occupy at most, until there is no $T/watching: the peak stands in $T/peak when this has
# ended.
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

for policy in scan lru; do
	mount_penstock "$ORIGIN/" --cache-size "$quota" --policy "$policy"
	touch "$T/watching"
	watch_quota &
	watcher=$!
	check "$policy: in order" same large.bin
	check "$policy: at random" at_random 1
	at_most "$policy: within the quota" "$quota" "$(stats .cache.used_bytes)"
	rm "$T/watching"
	wait "$watcher"
	at_most "$policy: on disk, too, all the time" "$quota" "$(cat "$T/peak")"
	at_least "$policy: on disk, too, when it was watched" $((quota / 3)) "$(cat "$T/peak")"
	at_least "$policy: a good part of it used" $((quota / 3)) "$(stats .cache.used_bytes)"
	origin_forget
	if [[ $policy == scan ]]; then
		drop_page_cache
		check "scan: once more" same large.bin
		at_most "scan: what came first was kept" $((2 * quota + (20 << 20))) "$(origin_bytes)"
	else
		at_least "lru: evicted by extents" 3 "$(stats .cache.evicted_extents)"
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
check "after a kill: at random" at_random 2
check "after a kill: in order" same large.bin
at_most "within the quota" "$quota" "$(used)"

check "a large file that fits" same half.bin
equal "is not the kernel's business" 0 "$(stats .opens.passed)"
check_not "pinning more than fits is refused" penstock pin "$MNT"
penstock pin "$MNT" 2>"$T/refused" || true
check "with the sum" grep -Eq "2 files take 46[0-9].*holds 128" "$T/refused"
equal "and nothing is pinned" 0 "$(stats .cache.pinned_bytes)"
equal "pin tells what it did" "1 file pinned" "$(penstock pin "$MNT" half.bin | cut -d , -f 1)"
equal "once" "0 files pinned" "$(penstock pin "$MNT" half.bin | cut -d , -f 1)"
equal "it is counted" 1 "$(stats .cache.pinned_objects)"
check "it is fetched where it is not cached" penstock warm "$MNT" half.bin --quiet
check "read" same half.bin
if [[ $(stats .passthrough.active) == true ]]; then
	at_least "by the kernel itself" 1 "$(stats .opens.passed)"
fi
check "and stays while the other passes by" same large.bin
penstock evict "$MNT" >/dev/null
umount_penstock
mount_penstock "$ORIGIN/" --cache-size "$quota" --policy lru
origin_forget
check "over a restart" same half.bin
at_most "without the origin" 100000 "$(origin_bytes)"
equal "unpinned" "1 file unpinned" "$(penstock unpin "$MNT" | cut -d , -f 1)"
check "it can be evicted" penstock evict "$MNT" half.bin
equal "nothing is left of it" 0 "$(getfattr --absolute-names --only-values -n user.penstock.cached "$MNT/half.bin")"
check "it is read once more" same half.bin
umount_penstock
check "what a cache at rest holds is pinned" penstock pin --cache-dir "$CACHE" 'half*'
check "and unpinned" penstock unpin --cache-dir "$CACHE" 'half*'
check_not "not twice" penstock unpin --cache-dir "$CACHE" 'half*'
check "verify finds nothing wrong" penstock verify --cache-dir "$CACHE"
