#!/usr/bin/env bash
# The webdataset package feeds a PyTorch DataLoader with two workers from shards on a mount: every sample
# once, right.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq slow python:torch

webdataset_python
make_shards "$T/www" 4 2000000
start_nginx
mount_penstock "$ORIGIN/shard-{000000..000003}.tar"
epoch() {
	"$python" - "$T/www" "$MNT" <<'PY'
import glob, hashlib, sys, tarfile
import torch, webdataset as wds
www, mnt = sys.argv[1:]
wanted = {}
for path in glob.glob(f"{www}/*.tar"):
    with tarfile.open(path) as tar:
        for m in tar:
            if m.name.endswith(".jpg"):
                wanted[m.name[:-4]] = hashlib.sha256(tar.extractfile(m).read()).hexdigest()
def simplify(sample):
    return sample["__key__"], hashlib.sha256(sample["jpg"]).hexdigest(), int(sample["cls"])
dataset = wds.WebDataset(mnt + "/shard-{000000..000003}.tar", shardshuffle=4, seed=1).shuffle(50).map(simplify)
loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2)
seen = {}
for keys, digests, classes in loader:
    for key, digest in zip(keys, digests):
        assert key not in seen, key
        seen[key] = digest
assert seen == wanted, (len(seen), len(wanted))
print(len(seen), "samples")
PY
}
check "an epoch of webdataset has each sample once (cold)" epoch
check "an epoch of webdataset has each sample once (warm)" epoch

# The shards of an epoch are announced as a plan before webdataset reads them.
has_penstock_python || {
	skip "webdataset reads shards along a plan" "$no_python"
	exit 0
}
umount_penstock
rm -rf "$CACHE"
mount_penstock "$ORIGIN/shard-{000000..000003}.tar"
planned() {
	"$python" - "$MNT" <<'PY'
import random, sys
import penstock, webdataset as wds
shards = [f"{sys.argv[1]}/shard-{i:06d}.tar" for i in range(4)]
random.Random(3).shuffle(shards)
with penstock.plan(sys.argv[1], shards):
    n = sum(1 for _ in wds.WebDataset(shards, shardshuffle=False))
print(n, "samples")
PY
}
check "webdataset reads shards along a plan" planned
# The first shard may be opened before the daemon knows which version the plan means.
at_least "the plan had announced the opens" 3 "$(stats .plans.foreseen_opens)"
