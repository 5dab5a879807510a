"""One cell of the fault matrix: an origin, a mount, readers, and their outcomes. Each cell is a process of
its own, so that a hanging one can be ended alone.
"""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from faults.nginx import NginxOrigin
from faults.origin import NAME, Origin, random_data, versions_of

CHUNK = 65536
READ = 256 * 1024


class Reader(threading.Thread):
    """Opens the file and reads it from beginning to end, each call timed, until one fails."""

    def __init__(self, path, versions):
        super().__init__(daemon=True)
        self.path, self.versions = path, versions
        self.outcome, self.slowest, self.busy_since = None, 0.0, None

    def timed(self, call, *args):
        self.busy_since = time.monotonic()
        try:
            return call(*args)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - self.busy_since)
            self.busy_since = None

    def run(self):
        got = bytearray()
        try:
            fd = self.timed(os.open, self.path, os.O_RDONLY)
            try:
                while part := self.timed(os.pread, fd, READ, len(got)):
                    got += part
            finally:
                os.close(fd)
            self.outcome = "right" if any(got == v for v in self.versions) else "WRONG"
        except OSError as e:
            whole = any(v.startswith(got) for v in self.versions)
            self.outcome = errno.errorcode.get(e.errno, str(e.errno)) if whole else "WRONG"
            self.where = f"{e.filename or chr(112)}@{len(got)}"


class Cell:
    def __init__(self, spec):
        self.spec = spec
        self.dir = tempfile.mkdtemp(prefix="fault-", dir=spec["tmp"])
        self.mnt = os.path.join(self.dir, "mnt")
        os.mkdir(self.mnt)
        self.data = random_data(spec["nbytes"], 1)
        self.other = random_data(spec["nbytes"], 2)
        self.path = os.path.join(self.mnt, NAME)
        kind = NginxOrigin if spec["fault"].startswith("nginx: ") else Origin
        if kind is NginxOrigin:
            self.origin = NginxOrigin(spec["nginx"], spec["fault"], os.path.basename(self.dir))
            self.other = self.data
        else:
            self.origin = Origin(self.data, self.other, spec["fault"])

    def penstock(self, *args, limit=30):
        start = time.monotonic()
        r = subprocess.run([self.spec["penstock"], *args], capture_output=True, text=True, timeout=limit)
        return r, time.monotonic() - start

    def mount(self):
        r, _ = self.penstock("mount", self.origin.url, self.mnt, "--cache-dir", os.path.join(self.dir, "cache"), "--log",
                             os.path.join(self.dir, "log"), "--timeout", f"{self.spec['timeout']}s", "--memory", "64M",
                             "--revalidate", "open")
        if r.returncode:
            raise RuntimeError(f"mount: {r.stderr.strip()}")

    def umount(self):
        r, seconds = self.penstock("umount", self.mnt)
        if r.returncode:
            raise RuntimeError(f"umount: {r.stderr.strip()}")
        return seconds

    def forget_pages(self):
        fd = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def cached(self):
        return int(os.getxattr(self.path, "user.penstock.cached"))

    def wait_cached(self, nbytes):
        end = time.monotonic() + 30
        while self.cached() < nbytes and time.monotonic() < end:
            time.sleep(0.02)
        if self.cached() < nbytes:
            raise RuntimeError(f"only {self.cached()} of {nbytes} bytes are cached")

    def cache_half(self):
        """Reads every other chunk, without the first ones, in random order, so that nothing is read
        ahead."""
        chunks = list(range(17, len(self.data) // CHUNK, 2))
        random.Random(3).shuffle(chunks)
        fd = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for c in chunks:
            if os.pread(fd, CHUNK, c * CHUNK) != self.data[c * CHUNK:(c + 1) * CHUNK]:
                raise RuntimeError("wrong bytes before the fault")
        os.close(fd)
        self.wait_cached(len(chunks) * CHUNK)
        self.forget_pages()

    def cache_all(self):
        with open(self.path, "rb") as f:
            if f.read() != self.data:
                raise RuntimeError("wrong bytes before the fault")
        self.wait_cached(len(self.data))
        self.forget_pages()

    def prepare(self):
        state = self.spec["state"]
        if state == "lookup":
            self.origin.arm()
            self.mount()
            return
        self.mount()
        os.stat(self.path)
        if state == "half":
            self.cache_half()
        elif state in ("cached", "restarted"):
            self.cache_all()
        if state == "restarted":
            self.umount()
            self.origin.arm()
            self.mount()
        self.origin.arm()

    def kill_daemon(self):
        """Kills the daemon while readers read, then kills the next one, which the keeper has started,
        while that takes over."""
        with open(os.path.join(self.dir, "cache", "lock")) as f:
            pid = int(f.read())
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            with open(os.path.join(self.dir, "cache", "lock")) as f:
                text = f.read()
            if text.endswith("\n") and int(text) != pid:
                os.kill(int(text), signal.SIGKILL)
                return
            time.sleep(0.001)

    def run(self):
        limit = self.spec["timeout"] + self.spec["grace"]
        self.prepare()
        versions = versions_of(self.spec["fault"], self.data, self.other)
        readers = [Reader(self.path, versions) for _ in range(self.spec["readers"])]
        start = time.monotonic()
        for r in readers:
            r.start()
        if self.spec["fault"] == "daemon killed":
            self.kill_daemon()
        _, status = self.penstock("status", self.mnt)
        listing = time.monotonic()
        names = os.listdir(self.mnt)
        status = max(status, time.monotonic() - listing)
        hung = False
        while any(r.is_alive() for r in readers) and not hung:
            time.sleep(0.02)
            now = time.monotonic()
            hung = any(r.busy_since and now - r.busy_since > limit for r in readers) or now - start > 170
        took = max(max(r.slowest, time.monotonic() - r.busy_since if r.busy_since else 0) for r in readers)
        outcomes = sorted({"HANG" if r.is_alive() else r.outcome for r in readers})
        if NAME not in names and not self.spec["fault"].endswith("404"):
            outcomes.append("NO-LISTING")
        why = ""
        try:
            why = os.getxattr(self.path, "user.penstock.error").decode(errors="replace")
        except OSError:
            pass
        if hung:
            umount = self.penstock("umount", "--force", self.mnt)[1]
        else:
            umount = self.umount()
        return {"where": [getattr(r, "where", "") for r in readers], "outcomes": outcomes, "seconds": took, "status": status, "umount": umount, "why": why}

    def end(self):
        self.origin.stop()
        with open("/proc/self/mountinfo") as f:
            if any(line.split()[4] == self.mnt for line in f):
                subprocess.run([self.spec["penstock"], "umount", "--force", self.mnt], capture_output=True, timeout=20)
        if not self.spec["keep"]:
            shutil.rmtree(self.dir, ignore_errors=True)


def main():
    spec = json.loads(sys.argv[1])
    cell = Cell(spec)
    try:
        result = cell.run()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        result = {"outcomes": ["FAILED"], "seconds": 0, "status": 0, "umount": 0, "why": f"{type(e).__name__}: {e}"}
    print(json.dumps(result), flush=True)
    cell.end()
    os._exit(0)  # hanging readers would keep the process


if __name__ == "__main__":
    main()
