"""A daemon in foreign hands: sends its keeper what a daemon may send, with foreign descriptors and numbers.

foreign_messages.py DAEMON KEEPER FOLDER

Begins a FUSE mount of another program on FOLDER, sends the messages through the daemon's own socket, and then
prints a line for each line of its input: "connected" or "ended", for the other program's mount.
"""

import array
import ctypes
import os
import select
import socket
import struct
import sys
import time

LOCK, SETUP, REQUEST, STATE, CLIENT, OWNER, SESSION = range(1, 8)
UPGRADE, DONE, UNKNOWN = 13, 14, 99
LIBC = ctypes.CDLL(None, use_errno=True)


def other_mount(folder):
    """A mount whose requests nobody answers but INIT."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
    if LIBC.mount(b"other", folder.encode(), b"fuse.other", 6, options) < 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    unique = struct.unpack_from("=IIQ", os.read(fuse, 1 << 20))[2]
    init = struct.pack("=IIIIHHIIHHI28x", 7, 31, 131072, 0, 12, 9, 131072, 1, 32, 0, 0)
    os.write(fuse, struct.pack("=IiQ", 16 + len(init), 0, unique) + init)
    # A stat() would wait for this process.
    for line in open("/proc/self/mountinfo"):
        if line.split()[4] == folder:
            major, minor = line.split()[2].split(":")
            return fuse, os.makedev(int(major), int(minor))
    sys.exit("the other mount is not in mountinfo")


def take(pid, wanted):
    """The daemon's first descriptor for which `wanted` is true."""
    pidfd = os.pidfd_open(pid)
    for name in sorted(os.listdir(f"/proc/{pid}/fd"), key=int):
        fd = LIBC.syscall(438, pidfd, int(name), 0)
        if fd >= 0 and wanted(fd):
            return fd
        if fd >= 0:
            os.close(fd)
    sys.exit("the daemon has no such descriptor")


def is_keepers(fd):
    try:
        with socket.socket(fileno=os.dup(fd)) as s:
            return s.type == socket.SOCK_SEQPACKET
    except OSError:
        return False


def main():
    daemon, keeper, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    fuse, device = other_mount(folder)
    link = socket.socket(fileno=take(daemon, is_keepers))
    own = take(daemon, lambda fd: os.readlink(f"/proc/self/fd/{fd}") == "/dev/fuse")
    pipe, _pipe = os.pipe()

    def send(kind, mount, fd, owner=0, here=1, dev=0, number=0, text=b""):
        body = struct.pack("=IIQQQQQ", kind, here, mount, owner, 0, dev, number) + text + b"\0"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        for _ in range(2000):
            try:
                return link.sendmsg([body], rights, socket.MSG_DONTWAIT)
            except BlockingIOError:
                select.select([], [link], [], 0.01)
        sys.exit("the keeper does not read")

    # Foreign descriptors, with the number and the place of the other program's mount.
    for mount, fd in enumerate([pipe, os.open("/dev/null", os.O_RDWR), own, fuse], 70):
        send(SESSION, mount, fd, dev=device, number=1, text=folder.encode())
    # The keeper takes no other lock, no options and no program from a daemon.
    for kind in (LOCK, SETUP, UPGRADE, DONE, UNKNOWN, 2**32 - 1):
        for mount in (0, 1, 70):
            send(kind, mount, pipe, text=folder.encode())
    # A flood that is to leave no descriptor for the next daemon: of a mount that the keeper has, and of the
    # first of those above.
    limits = open(f"/proc/{keeper}/limits")
    limit = int(next(x for x in limits if x.startswith("Max open files")).split()[3])
    for i in range(limit - len(os.listdir(f"/proc/{keeper}/fd")) - 6):
        send(OWNER, 1 if i % 2 else 70, pipe, owner=1000 + i)
    have = -1
    while have != (have := len(os.listdir(f"/proc/{keeper}/fd"))):
        time.sleep(0.5)
    sys.stdout.write(f"{have} {limit}\n")
    sys.stdout.flush()
    poll = select.poll()
    poll.register(fuse, 0)
    for _ in sys.stdin:
        sys.stdout.write("ended\n" if poll.poll(0) else "connected\n")
        sys.stdout.flush()


main()
