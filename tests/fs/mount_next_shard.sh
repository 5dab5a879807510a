#!/usr/bin/env bash
# A reader that opens shards in order finds the next one begun; a single shard, and shards in no order, begin
# nothing.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in 0 1 2 3 4 5 6 7; do
	random_file "$T/www/s-$i.tar" 8388608
done
start_nginx

asked_for() { # SHARD...: bytes of these that the origin has sent
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
equal "and nothing of the others is fetched" 0 "$(asked_for 1 2 3 4 5 6 7)"
check "the second is read" read_shard 1
check "the third is begun" wait_until 10 begun 2
sleep 0.3
equal "by an eighth, and none after it" 1048576 "$(asked_for 2 3 4 5 6 7)"
check "the third is read" read_shard 2
check "the fourth is begun" wait_until 10 begun 3
sleep 0.3
equal "by a quarter: the first start was of use" 2097152 "$(asked_for 3 4 5 6 7)"
for i in 3 4 5 6 7; do
	check "shard $i is read" read_shard "$i"
done
umount_penstock
equal "each byte came once" $((8 * 8388608)) "$(asked_for 0 1 2 3 4 5 6 7)"

CACHE=$T/cache2
origin_forget
mount_penstock "$ORIGIN/json/"
for i in 6 4 3 1; do
	check "shard $i is read" read_shard "$i"
done
umount_penstock
equal "backwards nothing is begun" 0 "$(asked_for 0 2 5 7)"

CACHE=$T/cache3
origin_forget
mount_penstock "$ORIGIN/json/"
for i in 0 2 4; do
	check "shard $i is read" read_shard "$i"
done
check "every other one: the stride is learned" wait_until 10 begun 6
umount_penstock
equal "and those between are left alone" 0 "$(asked_for 1 3 5 7)"
