"""stress_modes.py MNT REAL SECONDS WORKERS: opens, reads, maps and closes the files of MNT in every way at once, from
many processes, while others warm and evict them. No call may fail, and every byte must be that of the same file in REAL.
"""

import errno
import fcntl
import mmap
import os
import random
import sys
import time
import traceback

WARM = 0xD701  # _IO(0xd7, 1)
EVICT = 0x8008D702  # _IOR(0xd7, 2, uint64_t)

mnt, real, seconds, workers = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
names = sorted(os.listdir(real))
want = {name: open(os.path.join(real, name), "rb").read() for name in names}


def read_all(fd, data, size):
    at = 0
    while True:
        piece = os.read(fd, size)
        assert piece == data[at : at + len(piece)], f"wrong bytes at {at}"
        # A read may be short only at the end of the file: programs take a short read for the end.
        assert len(piece) == min(size, len(data) - at), f"a short read at {at}"
        if not piece:
            return
        at += len(piece)


def read_somewhere(fd, data, rng):
    for _ in range(8):
        at, n = rng.randrange(len(data)), rng.choice((1, 512, 4096, 10240, 131072, 3 << 20))
        assert os.pread(fd, n, at) == data[at : at + n], f"wrong bytes at {at}"


def map_it(fd, data, rng, flags):
    with mmap.mmap(fd, 0, flags=flags, prot=mmap.PROT_READ) as view:
        assert len(view) == len(data)
        for _ in range(8):
            at, n = rng.randrange(len(data)), rng.choice((1, 4096, 100000))
            assert view[at : at + n] == data[at : at + n], f"wrong mapped bytes at {at}"


def send_it(fd, data):
    sink = os.memfd_create("sink")
    at = 0
    while n := os.sendfile(sink, fd, at, 1 << 20):
        at += n
    assert at == len(data) and os.pread(sink, len(data), 0) == data, "sendfile"
    os.close(sink)


def warm(fd):
    try:
        fcntl.ioctl(fd, WARM)
    except OSError as e:
        if e.errno != errno.ENOSPC:  # an evicted file is not admitted again while it is open
            raise


def one(rng):
    name = rng.choice(names)
    data, path = want[name], os.path.join(mnt, name)
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(rng.choice((1, 1, 3))):
            what = rng.randrange(9)
            if what == 0:
                read_all(fd, data, 1 << 20)
            elif what == 1:
                read_all(fd, data, 10240)
            elif what == 2:
                read_somewhere(fd, data, rng)
            elif what == 3:
                map_it(fd, data, rng, mmap.MAP_SHARED)
            elif what == 4:
                map_it(fd, data, rng, mmap.MAP_PRIVATE)
            elif what == 5:
                send_it(fd, data)
            elif what == 6:  # opens the same inode again, not by its name
                again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
                read_somewhere(again, data, rng)
                os.close(again)
            elif what == 7:
                warm(fd)
            elif rng.random() < 0.5:
                fcntl.ioctl(fd, EVICT, bytearray(8))
            os.lseek(fd, 0, os.SEEK_SET)
            assert os.fstat(fd).st_ino == os.stat(path).st_ino, "st_ino"
    finally:
        os.close(fd)


def worker(seed):
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    n = 0
    while time.monotonic() < end:
        one(rng)
        n += 1
    return n


pids = []
for i in range(workers):
    pid = os.fork()
    if pid == 0:
        try:
            worker(i)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    pids.append(pid)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in pids]))
