"""The tools compared: penstock, rclone mount, curl with ranges. Reading a local file ("native") needs no code here."""

import json
import os
import shutil
import subprocess

from .measure import cpu_of, memory_of, remove, run_all, say, wait_for


class Mount:
    """A mount's daemon. `with` starts it and ends it; its cache folder is kept."""

    def __init__(self, world, origin, cache, first_name, options=()):
        self.world, self.source, self.cache, self.first_name = world, origin + self.listing, cache, first_name
        self.options = list(options)
        self.mnt = f"{cache}.mnt"
        self.process = None

    def __enter__(self):
        os.makedirs(self.mnt, exist_ok=True)
        os.makedirs(self.cache, exist_ok=True)
        self.process = subprocess.Popen(self.command())
        first = os.path.join(self.mnt, self.first_name)
        try:
            wait_for(f"{self.name} mounts", lambda: os.path.ismount(self.mnt) and os.path.exists(first))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(self.umount_command(), check=False)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            say(f"{self.name} does not end; killed")
            self.process.kill()
            self.process.wait()
            subprocess.run(["umount", "-l", self.mnt], check=False)

    @property
    def pid(self):
        return self.process.pid

    def cpu(self):
        return cpu_of(self.pid)

    def rss(self):
        return memory_of(self.pid, "VmRSS")

    def paths(self, names):
        return [os.path.join(self.mnt, name) for name in names]

    def settle(self, names):
        """Waits until what was read is in the cache. A tool that has nothing to wait for does not override it."""


class Penstock(Mount):
    name = "penstock"
    program = "penstock"
    listing = "/"

    def command(self):
        return [self.program, "mount", "-f", self.source, self.mnt, "--cache-dir", self.cache, "--log",
                f"{self.cache}.log", "--cacert", self.world.ca, *self.options]

    def umount_command(self):
        return [self.program, "umount", "--force", self.mnt]

    def stats(self):
        with open(os.path.join(self.mnt, ".penstock", "stats")) as f:
            return json.load(f)

    def __enter__(self):
        super().__enter__()
        self.daemon = self.stats()["pid"]  # the process that was started is its keeper
        return self

    @property
    def pid(self):
        return self.daemon

    def settle(self, names):
        def cached():
            return all(os.getxattr(path, "user.penstock.state") == b"cached" for path in self.paths(names))

        wait_for("penstock has cached what was read", cached)


class BareFuse:
    """tests/bench/bare_fuse: the file `data` as MNT/file."""

    def __init__(self, program, data, mnt, *options):
        self.command, self.mnt, self.path = [program, data, mnt, *options], mnt, os.path.join(mnt, "file")

    def __enter__(self):
        os.makedirs(self.mnt, exist_ok=True)
        self.process = subprocess.Popen(self.command)
        wait_for("bare_fuse mounts", lambda: os.path.ismount(self.mnt) and os.path.exists(self.path))
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.mnt], check=False)
        self.process.wait()

    @property
    def pid(self):
        return self.process.pid


class Rclone(Mount):
    name = "rclone"
    listing = "/html/"

    def command(self):
        return ["rclone", "mount", ":http:", self.mnt, "--http-url", self.source, "--config", "", "--read-only",
                "--ca-cert", self.world.ca, "--vfs-cache-mode", "full", "--cache-dir", self.cache, "--log-file",
                f"{self.cache}.log", *self.options]

    def umount_command(self):
        return ["umount", self.mnt] if os.geteuid() == 0 else ["fusermount3", "-u", self.mnt]


def curl_ranges(world, origin, name, ranges, folder):
    """Commands that fetch one shard: a curl for each range, each to its own file (folder None: /dev/null)."""
    nbytes = os.path.getsize(world.path(name))
    cuts = [nbytes * i // ranges for i in range(ranges + 1)]
    return [["curl", "-sf", "--cacert", world.ca, "-r", f"{a}-{z - 1}", "-o",
             os.path.join(folder, f"{name}.{a}") if folder else "/dev/null", f"{origin}/{name}"]
            for a, z in zip(cuts, cuts[1:])]


def curl_shards(world, origin, names, ranges, folder):
    """Shards one after another, each in ranges; the parts are removed when the clock has been stopped."""
    os.makedirs(folder, exist_ok=True)
    try:
        nbytes = sum(os.path.getsize(world.path(name)) for name in names)
        samples = [run_all(curl_ranges(world, origin, name, ranges, folder), 1) for name in names]
        seconds = sum(sample["seconds"] for sample in samples)
        cpu = sum(sample["cpu_s_per_gb"] for sample in samples) / 1e9
        return {"gb_per_s": nbytes / seconds / 1e9, "cpu_s_per_gb": cpu / nbytes * 1e9, "seconds": seconds}
    finally:
        remove(folder)


def have(program):
    return shutil.which(program) is not None
