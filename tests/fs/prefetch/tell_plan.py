#!/usr/bin/env python3
"""tell_plan.py PLAN: sends the lines of standard input to PLAN (MOUNT/.penstock/plan), one by one, and prints
"ok" or the name of the error for each. Keeps PLAN open until standard input ends."""

import errno
import fcntl
import os
import struct
import sys

TEXT = 8184
PS_IOC_PLAN = 1 << 30 | (4 + TEXT) << 16 | 0xD7 << 8 | 6


def tell(fd, line):
    worst = "ok"
    for i in range(0, len(line), TEXT):
        part = line[i : i + TEXT]
        try:
            fcntl.ioctl(fd, PS_IOC_PLAN, bytearray(struct.pack(f"I{TEXT}s", len(part), part)))
        except OSError as e:
            worst = errno.errorcode[e.errno]
    return worst


def main():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    for line in sys.stdin.buffer:
        print(tell(fd, line), flush=True)


main()
