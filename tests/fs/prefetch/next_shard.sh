#!/usr/bin/env bash
# For a reader that opens shards in order the next shard is prefetched; for a single shard, or shards in no
# order, nothing is prefetched.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in 0 1 2 3 4 5 6 7; do
	random_file "$T/www/s-$i.tar" 8388608
done
start_nginx

asked_for() { # SHARD...: prints how many bytes of these shards the origin has sent
	local i sum=0
	for i in "$@"; do
		sum=$((sum + $(origin_bytes "/json/s-$i.tar")))
	done
	echo "$sum"
}
begun() { (($(asked_for "$1") >= 1048576)); }
read_shard() { cmp "$MNT/s-$1.tar" "$T/www/s-$1.tar"; }

mount_penstock "$ORIGIN/json/"
check "the first shard is read" read_shard 0
sleep 0.3
equal "nothing of other shards is fetched after one shard" 0 "$(asked_for 1 2 3 4 5 6 7)"
check "the second is read" read_shard 1
check "the beginning of the third is prefetched" wait_until 10 begun 2
sleep 0.3
equal "an eighth of the third is prefetched, and nothing of later shards" 1048576 "$(asked_for 2 3 4 5 6 7)"
check "the third is read" read_shard 2
check "the beginning of the fourth is prefetched" wait_until 10 begun 3
sleep 0.3
equal "a quarter of the fourth is prefetched, as the first prefetch was used" 2097152 "$(asked_for 3 4 5 6 7)"
for i in 3 4 5 6 7; do
	check "shard $i is read" read_shard "$i"
done
umount_penstock
equal "each byte was fetched once" $((8 * 8388608)) "$(asked_for 0 1 2 3 4 5 6 7)"

CACHE=$T/cache2
origin_forget
mount_penstock "$ORIGIN/json/"
for i in 6 4 3 1; do
	check "shard $i is read" read_shard "$i"
done
umount_penstock
equal "nothing is prefetched for shards in backward order" 0 "$(asked_for 0 2 5 7)"

CACHE=$T/cache3
origin_forget
mount_penstock "$ORIGIN/json/"
for i in 0 2 4; do
	check "shard $i is read" read_shard "$i"
done
check "with every other shard read, the next but one is prefetched" wait_until 10 begun 6
umount_penstock
equal "the shards between are not fetched" 0 "$(asked_for 1 3 5 7)"
