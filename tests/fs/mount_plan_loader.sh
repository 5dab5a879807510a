#!/usr/bin/env bash
# A dataset of twice the cache, shuffled again each epoch: the loader's plan is taken, and half of each epoch
# comes from the cache.
. "$(dirname "$0")/../lib.sh"
requires mount loader nginx jq

epochs=4
make_shards "$T/www" 60 700000
total=$(du -bc "$T"/www/*.tar | tail -n 1 | cut -f 1)
start_nginx
# Half of it, and what the index needs. Too little memory to keep in it what the disk does not take, and no
# pages that the kernel keeps.
mount_penstock "$ORIGIN/shard-{000000..000059}.tar" --cache-size $((total / 2 + 60 * 8192 + (11 << 20))) \
	--memory 8M --cold-reads direct
bench() {
	timeout 100 penstock-loader bench "$MNT/shard-{000000..000059}.tar" --field cls=int64 --batch 16 \
		--lanes 4 --readers 2 \
		--shuffle-window 16 --epochs "$1" --json >"$T/bench.json" 2>"$T/bench.err"
}
check "one epoch" bench 1
origin_forget
check "$epochs more" bench "$epochs"
at_least "opens were foreseen" 1 "$(stats .plans.foreseen_opens)"
equal "none was refused" 0 "$(stats .plans.refused)"
equal "the plan went with the loader" 0 "$(stats .plans.active)"
at_most "the origin gave about half of the dataset an epoch" 0.62 \
	"$(awk "BEGIN {print $(origin_bytes) / $total / $epochs}")"
at_most "within the quota" "$(stats .cache.limit_bytes)" "$(stats .cache.used_bytes)"
