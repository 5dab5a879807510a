#!/usr/bin/env python3
"""read_tree.py MODE DIR MANIFEST [READERS]: reads every file of MANIFEST ("SHA256  ./PATH" lines) below DIR and
compares it with its checksum.

MODE is 10k or 1m (sequential reads of that size), random (preads of odd sizes at odd offsets in random order that
together cover the file) or mmap (pages touched in random order). Each of READERS processes reads all files, beginning
at another one. Silent and 0 if all bytes are right.
"""

import hashlib
import mmap
import os
import random
import sys


def sequential(fd, size, step):
    out = bytearray()
    while True:
        data = os.read(fd, step)
        if not data:
            return out
        out += data


def scattered(fd, size, rng):
    out = bytearray(size)
    cuts, at = [], 0
    while at < size:
        n = rng.choice((1, 512, 4095, 4096, 65537, 131072, 1 << 20, (1 << 20) + 1, rng.randrange(1, 300_000)))
        cuts.append((at, min(n, size - at)))
        at += n
    rng.shuffle(cuts)
    for at, n in cuts:
        data = os.pread(fd, n, at)
        if len(data) != n:
            raise OSError(f"pread({n}, {at}) gave {len(data)} bytes")
        out[at : at + n] = data
    return out


def mapped(fd, size, rng):
    if size == 0:
        return b""
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
        pages = list(range(0, size, 4096))
        rng.shuffle(pages)
        first = {at: m[at] for at in pages}
        data = m[:]
    if any(data[at] != byte for at, byte in first.items()):
        raise OSError("a mapped page changed under us")
    return data


def read(path, mode, rng):
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if mode == "random":
            return scattered(fd, size, rng)
        if mode == "mmap":
            return mapped(fd, size, rng)
        return sequential(fd, size, {"10k": 10240, "1m": 1 << 20}[mode])
    finally:
        os.close(fd)


def reader(number, readers, mode, top, wanted):
    rng = random.Random(number)
    start = number * len(wanted) // readers
    bad = 0
    for digest, name in wanted[start:] + wanted[:start]:
        try:
            data = read(os.path.join(top, name), mode, rng)
            seen = hashlib.sha256(data).hexdigest()
            if seen != digest:
                print(f"reader {number}: {name}: sha256 {seen} of {len(data)} bytes, expected {digest}")
                bad = 1
        except OSError as e:
            print(f"reader {number}: {name}: {e}")
            bad = 1
    sys.stdout.flush()
    return bad


def main():
    mode, top, manifest = sys.argv[1:4]
    readers = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    with open(manifest) as f:
        wanted = [tuple(line.rstrip("\n").split("  ", 1)) for line in f]
    children = []
    for number in range(readers):
        pid = os.fork()
        if pid == 0:
            os._exit(reader(number, readers, mode, top, wanted))
        children.append(pid)
    bad = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    sys.exit(1 if bad or not wanted else 0)


main()
