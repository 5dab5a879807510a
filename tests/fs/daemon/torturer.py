#!/usr/bin/env python3
"""torturer.py FAULTS MOUNT CACHE SOURCE: sends each kind of request to the daemon of MOUNT, again and again; each
time a later allocation fails in the daemon. FAULTS is the file that the daemon's PENSTOCK_FAULTS names. Prints lines
"NAME  ANSWER-WITHOUT-FAULTS  TIMES  ANSWER". ANSWER begins with "then" if the same request, repeated without the
fault, had another answer than before.
torturer.py --client FAULTS COMMAND...: the same for a command that is started again for each allocation. Prints
lines "TIMES  STATUS LAST-LINE".
torturer.py --clock FAULTS SECONDS: from now on the daemon's wall clock is off by SECONDS."""

import collections
import errno
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import sys

TYPE = 0xD7
TEXT = 8184
ALLOCATION, KIND_NBYTES = 0, 40
ALL = os.environ.get("PENSTOCK_TEST_LONG") == "1"


class Faults:
    """struct faults of tests/faults.c."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4 * KIND_NBYTES + 16)

    def put(self, at, value):
        struct.pack_into("q", self.map, at, value)

    def fail(self, nth, last=None):
        for at, value in ((0, 0), (8, 0), (32, 0), (16, errno.ENOMEM), (24, 0), (8, last or nth), (0, nth)):
            self.put(ALLOCATION * KIND_NBYTES + at, value)

    def end(self):
        """Ends the faults. Returns whether an allocation has failed."""
        self.put(0, 0)
        return struct.unpack_from("q", self.map, 32)[0] != 0


def following(n):
    return n + 1 + (0 if ALL else n // 8)


def ioctl(path, number, nbytes=0, direction=2, argument=None):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, (direction if nbytes else 0) << 30 | nbytes << 16 | TYPE << 8 | number,
                    argument if argument is not None else bytearray(nbytes))
    finally:
        os.close(fd)
    return "ok"


def tell(mount):
    names = ", ".join(f'"f{i}.bin"' for i in range(3))
    text = (f'{{"penstock_plan": 1, "job": "j", "rank": 0, "world": 1, "epoch": 1, "files": [{names}]}}\n'
            '{"penstock_position": 1, "job": "j", "rank": 0, "epoch": 1, "files_done": 1}\n').encode()
    return ioctl(os.path.join(mount, ".penstock", "plan"), 6, 4 + TEXT, 1,
                 bytearray(struct.pack(f"I{TEXT}s", len(text), text)))


def read(path, at):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        data = os.pread(fd, 50000, at)
        return "ok" if data == bytes([data[0]]) * 50000 else "other bytes"
    finally:
        os.close(fd)


def read_text(path):
    with open(path, "rb") as f:
        return "ok" if f.read() else "nothing"


def say(cache, *pairs):
    """Sends a message to the daemon's control socket. Returns the answer."""
    body = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in pairs)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(20)
        here = os.getcwd()
        os.chdir(cache)
        sock.connect("control")
        os.chdir(here)
        sock.sendall(b"penstock" + struct.pack("II", PROTOCOL, len(body)) + body)
        head = sock.recv(16, socket.MSG_WAITALL)
        if len(head) < 16:
            return "no answer"
        words = sock.recv(struct.unpack_from("I", head, 12)[0], socket.MSG_WAITALL).split(b"\0")
        said = dict(zip(words[0::2], words[1::2]))
        return said[b"do"].decode() + (": " + said[b"text"].decode() if b"text" in said else "")
    finally:
        sock.close()


def requests(mount, cache, source):
    file = os.path.join(mount, "f0.bin")
    missing = [0]

    def lookup():
        missing[0] += 1
        try:
            os.stat(os.path.join(mount, f"no-{missing[0]}"))
        except FileNotFoundError:
            return "ok"
        return "found"

    yield "warm", lambda: ioctl(file, 1)
    yield "pin-and-unpin", lambda: ioctl(file, 3, 8) and ioctl(file, 4, 8)
    yield "pin-again", lambda: ioctl(file, 3, 8)
    yield "pin-nbytes", lambda: ioctl(file, 5, 8)
    yield "evict", lambda: ioctl(os.path.join(mount, "f2.bin"), 2, 8)
    yield "read", lambda: read(os.path.join(mount, "f2.bin"), 60000)
    yield "evict-and-read", lambda: ioctl(os.path.join(mount, "f2.bin"), 2, 8) and read(os.path.join(mount, "f2.bin"), 1100000)
    yield "plan", lambda: tell(mount)
    yield "refresh", lambda: ioctl(mount, 7, 24)
    yield "list", lambda: "ok" if len(os.listdir(mount)) == 3 else "other names"
    yield "lookup", lookup
    yield "xattr", lambda: "ok" if os.listxattr(file) and os.getxattr(file, "user.penstock.cached") else "nothing"
    for name in ("stats", "metrics", "cache_metrics", "plan"):
        yield name + "-file", lambda name=name: read_text(os.path.join(mount, ".penstock", name))
    if cache:
        yield "say-status", lambda: say(cache, ("do", "status"))
        yield "say-wait", lambda: say(cache, ("do", "wait"), ("mount", "0:1 1"))
        yield "say-mount", lambda: say(cache, ("do", "mount"), ("mountpoint", "/nowhere"), ("name", ""),
                                       ("source", source), ("identity", ""), ("option", "uid=0"), ("option", "gid=0"))


def run(request):
    try:
        return request()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))


def main():
    faults = Faults(sys.argv[1])
    for name, request in requests(*sys.argv[2:]):
        answers = collections.Counter()
        sound, n, places = run(request), 1, 0
        while True:
            faults.fail(n)
            answer = run(request)
            if not faults.end():
                break
            places += 1
            answers[answer] += 1
            again = run(request)
            if again != sound:
                answers[f"then {again}"] += 1
            n = following(n)
        for answer, times in sorted(answers.items()):
            print(f"{name}\t{sound}\t{times} of {places}\t{answer}", flush=True)


def client():
    faults = Faults(sys.argv[2])
    answers, n = collections.Counter(), 1
    while True:
        faults.fail(n)
        done = subprocess.run(sys.argv[3:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        if not faults.end():
            break
        answers[f"{done.returncode} {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ''}"] += 1
        n = following(n)
    for answer, times in sorted(answers.items()):
        print(f"{times}\t{answer}")


PROTOCOL = 2
if sys.argv[1] == "--client":
    client()
elif sys.argv[1] == "--clock":
    Faults(sys.argv[2]).put(4 * KIND_NBYTES, int(sys.argv[3]))
else:
    main()
