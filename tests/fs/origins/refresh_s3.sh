#!/usr/bin/env bash
# A bucket of a real S3 server that changes while it is mounted: penstock refresh and --refresh show the
# changes, and a loader keeps its list of shards for an epoch that has begun.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
requires mount loader jq python:numpy
requires_rgw

bucket() { "$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"; }
names() { find "$MNT" -type f -printf '%P\n' | sort | xargs; }
shows() { [[ $(names) == "$1" ]]; }
samples() { cat "${@/#/"$T/shards/"}" | tar -tf - -i | grep -c 'cls$'; }

start_rgw
make_shards "$T/shards" 5 300000
for i in 0 1 2; do bucket file data "train/shard-00000$i.tar" "$T/shards/shard-00000$i.tar"; done
check "a mount of a bucket succeeds" mount_penstock s3://data/train/ --endpoint "$S3"
equal "the bucket's objects are shown" "shard-000000.tar shard-000001.tar shard-000002.tar" "$(names)"
bucket file data train/shard-000003.tar "$T/shards/shard-000003.tar"
bucket delete data train/shard-000001.tar
bucket file data train/shard-000002.tar "$T/shards/shard-000004.tar" # overwritten
equal "refresh reports the bucket's changes" "3 files listed, 1 new, 1 gone" "$(penstock refresh "$MNT")"
equal "the mount shows the bucket's new names" "shard-000000.tar shard-000002.tar shard-000003.tar" "$(names)"
check "the new object is read" cmp "$MNT/shard-000003.tar" "$T/shards/shard-000003.tar"
check "the new version of another object is read" cmp "$MNT/shard-000002.tar" "$T/shards/shard-000004.tar"
umount_penstock

check "a mount with --refresh succeeds" \
	mount_penstock s3://data/train/ --endpoint "$S3" --refresh 1s --exclude '*.txt'
bucket put data train/notes.txt "no shard"
bucket file data train/shard-000001.tar "$T/shards/shard-000001.tar"
check "an object that is uploaded again is shown" wait_until 30 shows \
	"shard-000000.tar shard-000001.tar shard-000002.tar shard-000003.tar"

module=$top_builddir/loader/python/.libs/_penstock.so
if [[ ! -e $module ]] || sanitized "$module"; then
	skip "a loader's epoch" "the Python module was not built, or with a sanitizer"
	exit 0
fi
# An epoch that a loader has begun keeps its list of shards while names change; the next loader has the new
# names.
mkdir -p "$T/python/penstock"
ln -s "$module" "$top_srcdir"/loader/python/penstock/*.py "$T/python/penstock/"
cat >"$T/epochs.py" <<'PY'
import os, sys, time
import penstock

mnt, begun, go, ended, again = sys.argv[1:]


def loader():
    return penstock.Loader(mnt, batch=4, format="numpy", fields={"cls": penstock.Int("cls")}, seed=1, end="uneven", lanes=1)


def wait(path):
    while not os.path.exists(path):
        time.sleep(0.05)


batches = iter(loader())
n = len(next(batches)["cls"])
open(begun, "w").close()
wait(go)
n += sum(len(batch["cls"]) for batch in batches)
print(n, file=open(ended + ".tmp", "w"), flush=True)
os.rename(ended + ".tmp", ended)
wait(again)
print(sum(len(batch["cls"]) for batch in loader()))
PY
PYTHONPATH=$T/python timeout 120 "$python" "$T/epochs.py" "$MNT" "$T/begun" "$T/go" "$T/ended" \
	"$T/again" >"$T/out" 2>"$T/epochs.log" &
epochs=$!
check "an epoch begins" wait_until 60 test -e "$T/begun"
bucket file data train/shard-000004.tar "$T/shards/shard-000002.tar"
check "a new shard is shown during the epoch" wait_until 30 test -e "$MNT/shard-000004.tar"
touch "$T/go"
check "the epoch ends" wait_until 60 test -e "$T/ended"
equal "the epoch has the samples of the shards that it began with" \
	"$(samples shard-00000{0,1,4,3}.tar)" "$(cat "$T/ended")"
touch "$T/again"
rc=0
wait "$epochs" || rc=$?
equal "the program with another loader succeeds" 0 "$rc"
equal "the other loader has the samples of the new shard, too" \
	"$(samples shard-00000{0,1,4,3,2}.tar)" "$(cat "$T/out")"
umount_penstock
