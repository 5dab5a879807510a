#!/usr/bin/env python3
"""raw_ioctls.py MOUNT FILE: sends invalid ioctls to the mount, and prints "NAME ERRNO" (or "NAME ok") for
each."""

import errno
import fcntl
import os
import struct
import sys

TYPE = 0xD7
TEXT = 8184
PLAN = 1 << 30 | (4 + TEXT) << 16 | TYPE << 8 | 6


def ask(name, path, request, argument, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        fcntl.ioctl(fd, request, argument)
        word = "ok"
    except OSError as e:
        word = errno.errorcode[e.errno]
    finally:
        os.close(fd)
    print(name, word, flush=True)


def main():
    mount, file = sys.argv[1:]
    plan = os.path.join(mount, ".penstock", "plan")
    stats = os.path.join(mount, ".penstock", "stats")
    file = os.path.join(mount, file)
    for name, n in (("text-one-too-long", TEXT + 1), ("text-all", 2**32 - 1), ("text-sign", 2**31)):
        text = b"x" * TEXT if n > TEXT else b"\n" * TEXT
        ask(name, plan, PLAN, bytearray(struct.pack("I", n) + text))
    ask("text-empty", plan, PLAN, bytearray(struct.pack("I", 0) + b"x" * TEXT))
    # The same number with another size is another request.
    for size in (0, 4, 4 + 4096, 16383):
        ask(f"plan-of-{size}", plan, 1 << 30 | size << 16 | TYPE << 8 | 6, bytearray(max(size, 1)))
    ask("plan-of-a-file", file, PLAN, bytearray(4 + TEXT))
    ask("plan-of-stats", stats, PLAN, bytearray(4 + TEXT))
    ask("plan-of-a-folder", mount, PLAN, bytearray(4 + TEXT))
    refresh = 2 << 30 | 24 << 16 | TYPE << 8 | 7
    ask("refresh-of-a-file", file, refresh, bytearray(24))
    for number in (0, 8, 99, 255):
        for direction in (0, 1, 2, 3):
            ask(f"unknown-{number}-{direction}", file, direction << 30 | 8 << 16 | TYPE << 8 | number, bytearray(8))
    for number in range(1, 6):
        ask(f"short-{number}", file, 2 << 30 | 4 << 16 | TYPE << 8 | number, bytearray(4))
        ask(f"of-stats-{number}", stats, 2 << 30 | 8 << 16 | TYPE << 8 | number, bytearray(8))


main()
