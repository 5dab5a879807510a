#!/usr/bin/env bash
# Orders of sample numbers on a mount: they are refused if they would fetch at random, unless permute_remote
# is set. The shards of the numbers are announced in order of first use, as far as the numbers are known.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx jq python:numpy
penstock_python

mkdir "$T/files"
"$python" - "$T/files" <<'PY'
import random, sys
for i in range(200):
    open(f"{sys.argv[1]}/{i:05d}.cls", "w").write(str(i))
    open(f"{sys.argv[1]}/{i:05d}.bin", "wb").write(random.Random(i).randbytes(150000))
PY
check "pack makes 10 shards of 20 samples and 3 MB" penstock-loader pack --index --max-count 20 "$T/files" \
	"$T/www/t-%03d.tar"
start_nginx
mount_penstock "$ORIGIN/"

check "orders of sample numbers in Python" timeout 100 "$python" - "$MNT" <<'PY'
import glob, json, os, sys, time
import penstock
mnt = sys.argv[1]
def state(shard):
    return os.getxattr(f"{mnt}/t-{shard:03d}.tar", "user.penstock.state").decode()
def ranks():
    return [(r["job"], r["files"]) for r in json.load(open(f"{mnt}/.penstock/plan"))["ranks"]]
def until(what, seconds=30):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, (ranks(), [state(s) for s in range(10)])
        time.sleep(0.05)
def loader(order, **options):
    return penstock.Loader(mnt, fields=[penstock.Int("cls")], order=order, format="numpy", **options)
def refused(order):
    try:
        loader(order)
    except ValueError as e:
        assert "not in the cache of their mount" in str(e) and "permute_remote" in str(e), e
    else:
        assert False

numbers = [141, 142, 45, 143, 41, 7]  # of the shards 7, 2 and 0
refused(numbers)
with loader(numbers, batch=3, permute_remote=1, job="array") as load:
    assert [x for b in load for x in b["cls"]] == numbers
    until(lambda: all(state(s) == "cached" for s in (7, 2, 0)))  # whole shards, also unused samples
    until(lambda: ranks() == [("array", 3 * 8)])  # of 8 epochs
assert [state(s) for s in (1, 3, 4, 5, 6, 8, 9)] == ["remote"] * 7, [state(s) for s in range(10)]
refused(numbers + [20])
with loader(numbers, batch=3) as load:  # these are cached now
    assert [x for b in load for x in b["cls"]] == numbers

class Sampler:
    def __iter__(self):
        return iter([[81], [82], [121, 83], [84], [85], [80]] + [[120]] * 10)
refused(Sampler())
with loader(Sampler(), permute_remote=1, job="fed", depth=2) as load:
    it = iter(load)
    assert ranks() == []  # nothing is known yet
    next(it).release()
    until(lambda: ranks() == [("fed", 1)])
    until(lambda: state(4) == "cached")
    assert state(6) == "remote"
    next(it).release()
    until(lambda: ranks() == [("fed", 2)])
    until(lambda: state(6) == "cached")
    assert sum(1 for batch in it) == 14
assert [state(s) for s in (1, 3, 5, 8, 9)] == ["remote"] * 5
PY
