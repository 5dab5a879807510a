"""A daemon in foreign hands: sends its keeper and its helper every message that a daemon may send, with foreign
paths, descriptors and numbers.

raw_messages.py DAEMON KEEPER FOLDER CACHES_MOUNT LOG FOREIGN_FILE

Begins a FUSE mount of another program on FOLDER. CACHES_MOUNT is a mount of another penstock cache. First
prints "helper OK" or "helper TEXT", what the helper did against the rules; then the numbers of descriptors that
the keeper has and may have; then a line for each line of its input: "connected" or "ended", for the other
program's mount.
"""

import array
import ctypes
import errno
import os
import re
import select
import socket
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def kinds(source, name, handled):
    """The messages of an enum; this script must know what to send as each of them."""
    text = open(os.path.join(TOP, source)).read()
    body = re.sub(r"/\*.*?\*/", "", re.search(name + r" \{(.*?)\}", text, re.S).group(1), flags=re.S)
    names = [x.split("=")[0].strip() for x in body.split(",") if x.strip()]
    if set(names) != set(handled):
        sys.exit(f"{source}: enum {name} and this script differ: {sorted(set(names) ^ set(handled))}")
    return {x: i for i, x in enumerate(names, 1)}


# Which messages make the keeper keep their descriptor.
KEEPER = {
    **dict.fromkeys("LOCK SETUP DROP_OWNER DROP READY SERVING BUSY UPGRADE DONE PROGRESS".split(), False),
    **dict.fromkeys("REQUEST STATE CLIENT OWNER SESSION".split(), True),
}
KEEPER_KINDS = kinds(
    "fs/daemon/daemon_private.h", "enum ps_keeper_kind", ["PS_KEEPER_" + x for x in KEEPER]
)
HELPER_KINDS = kinds(
    "fs/daemon/helper.c", "enum kind", ["BACKING_OPEN", "BACKING_CLOSE", "MOUNT", "DETACH", "LOG"]
)
UNKNOWN = (0, 99, 2**32 - 1)


def find_mount(folder):
    """The device and the number of the mount. A stat() could wait for a daemon."""
    for line in open("/proc/self/mountinfo"):
        if line.split()[4] == folder:
            major, minor = line.split()[2].split(":")
            fd = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
            buffer = ctypes.create_string_buffer(256)
            # AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID_UNIQUE
            if LIBC.statx(fd, b"", 0x5000, 0x4000, buffer) < 0:
                sys.exit("statx")
            os.close(fd)
            return os.makedev(int(major), int(minor)), struct.unpack_from("=Q", buffer, 144)[0]
    return None


def other_mount(folder):
    """A mount whose requests nobody answers but INIT."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
    if LIBC.mount(b"other", folder.encode(), b"fuse.other", 6, options) < 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    unique = struct.unpack_from("=IIQ", os.read(fuse, 1 << 20))[2]
    init = struct.pack("=IIIIHHIIHHI28x", 7, 31, 131072, 0, 12, 9, 131072, 1, 32, 0, 0)
    os.write(fuse, struct.pack("=IiQ", 16 + len(init), 0, unique) + init)
    return fuse


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


def is_helpers(fd):
    try:
        with socket.socket(fileno=os.dup(fd)) as s:
            patience = struct.unpack("=QQ", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
            return (s.family, s.type, s.getsockname(), patience) == (
                socket.AF_UNIX, socket.SOCK_STREAM, "", (10, 0)
            )  # fmt: skip
    except OSError:
        return False


def rights(fds):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


class Helper:
    """The requests that must be refused, and those that must not do more than they should."""

    def __init__(self, sock, own, other, foreign):
        self.sock, self.own, self.other, self.foreign = sock, own, other, foreign
        self.wrong = []

    def send(self, kind, fds, text="", number=0, mount=(0, 0), file=(0, 0)):
        text = os.fsencode(text)
        head = struct.pack("=IIiIQQQQ", kind, len(text), number, 0, *mount, *file)
        self.sock.sendmsg([head + text], rights(fds))

    def backing(self, what, *args, **kwargs):
        self.send(*args, **kwargs)
        answer = struct.unpack("=i", self.sock.recv(4))[0]
        if answer >= 0:
            self.wrong.append(f"{what}: {answer}")

    def slow(self, what, kind, fds=(), **kwargs):
        """Returns the descriptor that came with the answer; None and the error: none did."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        self.send(kind, [theirs.fileno(), *fds], **kwargs)
        theirs.close()
        try:
            answer, control, _, _ = ours.recvmsg(8192, 64)
        except TimeoutError:
            self.wrong.append(f"{what}: no answer")
            return None, 0
        errnum = struct.unpack_from("=IIQQQQQ", answer)[3] if answer else errno.EPIPE
        return (array.array("i", control[0][2])[0] if control else None), errnum

    def refused(self, what, *args, **kwargs):
        fd, errnum = self.slow(what, *args, **kwargs)
        if fd is not None or not errnum:
            self.wrong.append(f"{what}: done")

    def run(self, folder, caches_mount, log):
        null = os.open("/dev/null", os.O_RDWR)
        fresh = os.open("/dev/fuse", os.O_RDWR)
        st = os.stat(self.foreign)
        file = (st.st_dev, st.st_ino)
        up = "../" * 20 + self.foreign[1:]
        for name in (self.foreign, up, "/proc/self/fd/0"):
            for fuse in (self.own, self.other):
                self.backing(f"a backing id of {name}", HELPER_KINDS["BACKING_OPEN"], [fuse], name, file=file)
        for fds in ([null], [], [null, self.own]):
            for kind in ("BACKING_OPEN", "BACKING_CLOSE"):
                self.backing(f"{kind} with {len(fds)} others", HELPER_KINDS[kind], fds, number=1)
        self.backing("an unknown id", HELPER_KINDS["BACKING_CLOSE"], [self.own], number=12345)
        before = open("/proc/self/mountinfo").read()
        for text in (self.foreign, "x,allow_other,user_id=1", "/etc"):
            self.refused("a second mount", HELPER_KINDS["MOUNT"], [self.own], text=text)
        if open("/proc/self/mountinfo").read() != before:
            self.wrong.append("mounts have changed")
        for kind in UNKNOWN:
            self.refused(f"request {kind}", kind, [self.own], text=self.foreign)
        own = next(x.split()[4] for x in open("/proc/self/mountinfo") if " fuse.penstock " in x)
        for where, mount in ((folder, find_mount(folder)), (caches_mount, find_mount(caches_mount))):
            places = {"": (where, mount), ", number 0": (where, (mount[0], 0)), ", elsewhere": (own, mount)}
            for how, (text, number) in places.items():
                # Before Linux 6.17 the kernel does not report the number of a descriptor's connection.
                proofs = {"no descriptor": [], "a new one": [fresh], "another's": [null]}
                if "fuse_connection" in open(f"/proc/self/fdinfo/{self.own}").read():
                    proofs["an own one"] = [self.own]
                for proof, fds in proofs.items():
                    what = f"the end of {os.path.basename(where)}{how}, {proof}"
                    # What the helper asks the other mount is not answered here: it does not get that far.
                    self.refused(what, HELPER_KINDS["DETACH"], fds, text=text, mount=number)
            if find_mount(where) != mount:
                self.wrong.append(f"{where} has ended")
        fd, errnum = self.slow("the log", HELPER_KINDS["LOG"], text=self.foreign)
        if errnum or not os.path.samestat(os.fstat(fd), os.stat(log)):
            self.wrong.append("the log is another file")
        now = os.stat(self.foreign)
        if (now.st_size, now.st_mtime_ns, now.st_mode) != (st.st_size, st.st_mtime_ns, st.st_mode):
            self.wrong.append("the foreign file has changed")
        for fd in (null, fresh):
            os.close(fd)


def count(pid):
    """The descriptors of a process that has handled what was sent to it."""
    n = -1
    while n != (n := len(os.listdir(f"/proc/{pid}/fd"))):
        time.sleep(0.3)
    return n


def main():
    daemon, keeper, folder, caches_mount, log, foreign = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    fuse = other_mount(folder)
    device = find_mount(folder)[0]
    link = socket.socket(fileno=take(daemon, is_keepers))
    own = take(daemon, lambda fd: os.readlink(f"/proc/self/fd/{fd}") == "/dev/fuse")
    helper = Helper(socket.socket(fileno=take(daemon, is_helpers)), own, fuse, foreign)
    helper.run(folder, caches_mount, log)
    print("helper", "; ".join(helper.wrong) or "OK", flush=True)
    pipe, _pipe = os.pipe()

    def send(kind, mount, fd, owner=0, here=1, dev=0, number=0, text=b""):
        body = struct.pack("=IIQQQQQ", kind, here, mount, owner, 0, dev, number) + text + b"\0"
        for _ in range(2000):
            try:
                return link.sendmsg([body], rights([fd]), socket.MSG_DONTWAIT)
            except BlockingIOError:
                select.select([], [link], [], 0.01)
        sys.exit("the keeper does not read")

    # Foreign descriptors, with the number and the place of another program's and another cache's mount.
    cache_dev, cache_number = find_mount(caches_mount)
    places = ((folder, device, 1), (caches_mount, cache_dev, cache_number))
    session = KEEPER_KINDS["PS_KEEPER_SESSION"]
    for mount, fd in enumerate([pipe, os.open("/dev/null", os.O_RDWR), own, fuse, os.open("/dev/fuse", 2)], 70):
        for place, dev, number in places:
            send(session, mount, fd, dev=dev, number=number, text=place.encode())
    # What the keeper does not keep, of a mount that it has and of others. It forgets an own mount if the
    # daemon says so (DROP).
    had = count(keeper)
    for name, kept in KEEPER.items():
        for mount in (0, 1, 70, 2**64 - 1):
            for owner in (0, 1):
                if not kept and (name, mount) != ("DROP", 1):
                    send(KEEPER_KINDS["PS_KEEPER_" + name], mount, pipe, owner, dev=device, number=1,
                         text=folder.encode())  # fmt: skip
    for kind in UNKNOWN:
        send(kind, 1, pipe, text=folder.encode())
    if count(keeper) > had:
        sys.exit(f"the keeper has {count(keeper)} descriptors, and had {had}")
    # A flood that is to leave no descriptor for the next daemon: of a mount that the keeper has, and of the
    # first of those above.
    limits = open(f"/proc/{keeper}/limits")
    limit = int(next(x for x in limits if x.startswith("Max open files")).split()[3])
    for i in range(limit - len(os.listdir(f"/proc/{keeper}/fd")) - 6):
        name = ("OWNER", "CLIENT", "REQUEST", "STATE")[i % 4]
        send(KEEPER_KINDS["PS_KEEPER_" + name], 1 if i % 8 < 4 else 70, pipe, owner=1000 + i)
    print(count(keeper), limit, flush=True)
    poll = select.poll()
    poll.register(fuse, 0)
    for _ in sys.stdin:
        print("ended" if poll.poll(0) else "connected", flush=True)


main()
