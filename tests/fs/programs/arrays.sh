#!/usr/bin/env bash
# h5py, np.memmap and LMDB (lock=False) open and read files of a mount, at random; cold and warm.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx python:h5py python:lmdb python:numpy

mkdir -p "$T/www"
"$python" - "$T/www" <<'PY'
import sys
import h5py, lmdb, numpy as np
www = sys.argv[1]
rng = np.random.default_rng(1)
a = rng.integers(0, 256, (1000, 64, 64), dtype=np.uint8)
np.save(f"{www}/a.npy", a)
a.tofile(f"{www}/a.raw")
with h5py.File(f"{www}/a.h5", "w") as f:
    f.create_dataset("plain", data=a)
    f.create_dataset("chunked", data=a, chunks=(16, 64, 64), compression="gzip", compression_opts=1)
env = lmdb.open(f"{www}/a.lmdb", subdir=False, lock=False, map_size=1 << 26)
with env.begin(write=True) as txn:
    for i in range(1000):
        txn.put(b"%06d" % i, a[i].tobytes())
env.close()
PY
start_nginx
mount_penstock "$ORIGIN/"
arrays() {
	HDF5_USE_FILE_LOCKING=${2-BEST_EFFORT} "$python" - "$1" "$T/www" "$MNT" <<'PY'
import sys
import h5py, lmdb, numpy as np
what, www, mnt = sys.argv[1:]
a = np.load(f"{www}/a.npy")
order = np.random.default_rng(2).permutation(1000)
if what == "h5py":
    with h5py.File(f"{mnt}/a.h5", "r") as f:
        for i in order[:300]:
            assert (f["plain"][i] == a[i]).all() and (f["chunked"][i] == a[i]).all()
        assert (f["chunked"][:] == a).all()
elif what == "memmap":
    m = np.memmap(f"{mnt}/a.raw", dtype=np.uint8, mode="r", shape=a.shape)
    for i in order:
        assert (m[i] == a[i]).all()
    assert (np.load(f"{mnt}/a.npy", mmap_mode="r") == a).all()
else:
    env = lmdb.open(f"{mnt}/a.lmdb", subdir=False, readonly=True, lock=False, readahead=False)
    with env.begin() as txn:
        for i in order:
            assert txn.get(b"%06d" % i) == a[i].tobytes()
        assert sum(1 for _ in txn.cursor()) == 1000
PY
}
for state in cold warm; do
	check "h5py reads the right values ($state)" arrays h5py
	check "np.memmap reads the right values ($state)" arrays memmap
	check "LMDB reads the right values ($state)" arrays lmdb
	drop_page_cache
done
