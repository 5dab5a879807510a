#!/usr/bin/env python3
"""make_shards.py DIR COUNT NBYTES [SEED]: DIR/shard-000000.tar ... of at least NBYTES each.

Samples of .jpg, .cls and .txt with pseudo-random content; the same arguments give the same bytes.
"""

import io
import os
import random
import sys
import tarfile


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mtime = 1_600_000_000
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(data))


def make(path, shard, nbytes, seed):
    rng = random.Random(f"{seed}/{shard}")
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        sample = 0
        while tar.offset < nbytes:
            key = f"s{shard:03d}-{sample:06d}"
            left = max(1, nbytes - tar.offset)
            add(tar, f"{key}.jpg", rng.randbytes(min(left, rng.randrange(20_000, 200_000))))
            add(tar, f"{key}.cls", b"%d" % rng.randrange(1000))
            add(tar, f"{key}.txt", f"shard {shard} sample {sample}".encode())
            sample += 1


def main():
    where, count, nbytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed = sys.argv[4] if len(sys.argv) > 4 else "0"
    os.makedirs(where, exist_ok=True)
    for shard in range(count):
        make(os.path.join(where, f"shard-{shard:06d}.tar"), shard, nbytes, seed)


main()
