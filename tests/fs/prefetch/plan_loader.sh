#!/usr/bin/env bash
# A dataset of twice the cache's size that is shuffled again each epoch: the loader announces its plan, and
# half of each epoch comes from the cache.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx jq

epochs=4
make_shards "$T/www" 60 700000
total=$(du -bc "$T"/www/*.tar | tail -n 1 | cut -f 1)
start_nginx
# The cache has room for half of the dataset and for the index. The memory is too small to keep what the disk
# does not, and the kernel keeps no pages.
mount_penstock "$ORIGIN/shard-{000000..000059}.tar" --cache-size $((total / 2 + 60 * 8192 + (11 << 20))) \
	--memory 8M --cold-reads direct
bench() {
	timeout 100 penstock-loader bench "$MNT/shard-{000000..000059}.tar" --field cls=int64 --batch 16 \
		--lanes 4 --readers 2 \
		--shuffle-window 16 --epochs "$1" --json >"$T/bench.json" 2>"$T/bench.err"
}
check "the first epoch succeeds" bench 1
origin_forget
check "$epochs more epochs succeed" bench "$epochs"
at_least "the plan had announced opens" 1 "$(stats .plans.foreseen_opens)"
equal "no plan was refused" 0 "$(stats .plans.refused)"
equal "the plan ended with the loader" 0 "$(stats .plans.active)"
at_most "at most 0.62 of the dataset is fetched an epoch" 0.62 \
	"$(awk "BEGIN {print $(origin_bytes) / $total / $epochs}")"
at_most "the cache is within its quota" "$(stats .cache.limit_bytes)" "$(stats .cache.used_bytes)"
umount_penstock

# A permutation has more lanes than there are shards.
few="$MNT/shard-{000000..000003}.tar"
CACHE=$T/cache-few mount_penstock "$ORIGIN/shard-{000000..000003}.tar"
check "four shards are cached" penstock warm "$MNT"
mkdir "$T/indexes"
check "an index of them is made" penstock-loader index --dir "$T/indexes" "$few"
check "a permutation of them is read" timeout 100 penstock-loader bench "$few" --index-dir "$T/indexes" \
	--field cls=int64 --batch 16 --order permutation --lanes 64 --steps 4 --epochs 1
