"""Measures mounts of many shards of small members: tables, listings, walks, memory, the index, the merged tree."""
import json
import os
import random
import statistics
import subprocess
import sys
import time

from readpath import world as worlds
from readpath.measure import MIB, BenchError, cpu_of, memory_of

CLASSES = 1000
SAMPLES = 300
END = bytes(1024)


def add_arguments(parser):
    parser.add_argument("--scale", type=int, default=0, metavar="SHARDS", help="measure mounts of this many shards instead")
    parser.add_argument("--scale-members", type=int, default=1000, metavar="N", help="members of each of these shards [%(default)s]")
    parser.add_argument("--scale-size", type=int, default=512, metavar="BYTES",
                        help="largest size of their members [%(default)s]")
    parser.add_argument("--scale-cache", default="4G", metavar="SIZE", help="size of the cache with --scale [%(default)s]")
    parser.add_argument("--scale-modes", default="plain,merge", metavar="MODES", help="modes of --scale, comma-separated [%(default)s]")


def scrambled(number):
    """A one-to-one map of the numbers below 2^64."""
    return number * 0x9E3779B97F4A7C15 & (1 << 64) - 1


def member_name(number):
    """Ten members of a class follow one another; a shard of 1,000 members has a tenth of the classes. The names are
    in no order, as hashes are: counted names would take a quarter of the space in the index."""
    return f"n{number // 10 * 7919 % CLASSES:04}/{scrambled(number):016x}.jpg"


def write_shard(path, first, count, nbytes):
    """From header to header only the name, the size and the checksum differ."""
    template = bytearray(512)
    template[100:108], template[108:116], template[116:124] = b"0000644\0", b"0001750\0", b"0001750\0"
    template[136:148], template[148:156], template[156:157] = b"%011o\0" % 1_700_000_000, b" " * 8, b"0"
    template[257:265] = b"ustar\00000"
    base, zeros, parts = sum(template), bytes(nbytes + 511), []
    for number in range(first, first + count):
        name, size = member_name(number).encode(), 1 + (scrambled(number) >> 20) % nbytes
        digits = b"%011o" % size
        template[:len(name)] = name
        template[124:135] = digits
        template[148:156] = b"%06o\0 " % (base + sum(name) + sum(digits))
        parts += (bytes(template), zeros[:(size + 511) // 512 * 512])
    with open(path, "wb") as f:
        f.write(b"".join(parts) + END)


class Shards(worlds.World):
    def __init__(self, folder, args):
        super().__init__(folder, 0, args.scale, None)
        self.args = args

    def open(self):
        os.makedirs(self.www)
        for shard, name in enumerate(self.names):
            write_shard(self.path(name), shard * self.args.scale_members, self.args.scale_members, self.args.scale_size)
        self.start_nginx()


class Daemon:
    """A mount with its daemon in the background: `penstock mount` returns once the mount is ready."""

    def __init__(self, args, world, *options):
        self.args, self.mnt, cache = args, os.path.join(world.dir, "mnt"), os.path.join(world.dir, "cache")
        os.makedirs(self.mnt, exist_ok=True)
        subprocess.run([args.penstock, "mount", world.near + "/", self.mnt, "--cache-dir", cache, "--log",
                        f"{cache}.log", *options], check=True)
        self.pid = self.stats()["pid"]

    def stats(self):
        with open(os.path.join(self.mnt, ".penstock", "stats")) as f:
            return json.load(f)

    def end(self):
        subprocess.run([self.args.penstock, "umount", "--force", self.mnt], check=True)


class Scale:
    def __init__(self, args, world):
        self.args, self.world, self.results, self.prefix, self.mount = args, world, {}, "", None
        self.nmembers = args.scale * args.scale_members

    def note(self, name, value, unit):
        self.results[self.prefix + name] = value
        print(f"{self.prefix + name:36}{value:>12.4g} {unit}", flush=True)

    def timed(self, name, work):
        """Calls work(), and notes its seconds and the daemon's CPU seconds. Returns its result."""
        cpu, start = cpu_of(self.mount.pid), time.monotonic()
        result = work()
        self.note(name + "_seconds", time.monotonic() - start, "s")
        self.note(name + "_cpu_seconds", cpu_of(self.mount.pid) - cpu, "s")
        return result

    def memory(self, name):
        time.sleep(3)
        self.note(name + "_rss_mib", memory_of(self.mount.pid, "VmRSS") / MIB, "MiB")
        self.note(name + "_peak_rss_mib", memory_of(self.mount.pid, "VmHWM") / MIB, "MiB")

    def index(self, name):
        folder = os.path.join(self.world.dir, "cache", "index")
        nbytes = sum(os.stat(os.path.join(folder, entry)).st_blocks * 512 for entry in os.listdir(folder))
        self.note(name + "_index_mib_per_million", nbytes / MIB / (self.nmembers / 1e6), "MiB")

    def open_mount(self, mode):
        """Mounts the shards. Returns the time at which the mount command began."""
        start = time.monotonic()
        self.mount = Daemon(self.args, self.world, "--cache-size", self.args.scale_cache, mode)
        return start

    def close_mount(self):
        start = time.monotonic()
        self.mount.end()
        self.mount = None
        self.note("umount_seconds", time.monotonic() - start, "s")

    def members(self):
        return self.mount.stats()["mounts"][0]["members"]

    def warm(self):
        subprocess.run([self.args.penstock, "warm", "--quiet", "--members", self.mount.mnt], check=True)
        found = self.members()
        if found["known"] != self.args.scale or found["files"] != self.nmembers:
            raise BenchError(f"tables: {json.dumps(found)}")

    def walk(self, folders):
        """Runs `find` over some folders, with the attributes of every file. Returns the number of files."""
        paths = [os.path.join(self.mount.mnt, folder) for folder in folders]
        command = ["find", *paths, "-type", "f", "-size", "+0", "-printf", "."]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return len(done.stdout)

    def walk_row(self, name, folders):
        n = self.timed(name, lambda: self.walk(folders))
        self.note(name + "_files_per_s", n / self.results[self.prefix + name + "_seconds"], "files a second")

    def stats_of_files(self, path_of):
        """Times stat() of random files whose names the kernel has not cached."""
        chosen, took = random.Random(7).sample(range(self.nmembers), min(SAMPLES, self.nmembers)), []
        for number in chosen:
            path = os.path.join(self.mount.mnt, path_of(number))
            start = time.monotonic()
            os.stat(path)
            took.append((time.monotonic() - start) * 1000)
        self.note("stat_median_ms", statistics.median(took), "ms")
        self.note("stat_p99_ms", sorted(took)[len(took) * 99 // 100], "ms")

    def run_plain(self):
        self.prefix = ""
        folders = [name.removesuffix(".tar") for name in self.world.names]
        start = self.open_mount("--members")
        os.listdir(self.mount.mnt)
        self.note("first_ls_seconds", time.monotonic() - start, "s")
        self.timed("warm_members", self.warm)
        self.memory("warmed")
        self.close_mount()
        self.index("warmed")
        start = self.open_mount("--members")
        self.note("again_mount_seconds", time.monotonic() - start, "s")
        if len(os.listdir(self.mount.mnt)) < self.args.scale:
            raise BenchError("shards are missing")
        self.note("again_ls_seconds", time.monotonic() - start, "s")
        os.listdir(os.path.join(self.mount.mnt, folders[len(folders) // 2]))
        self.note("again_ls_shard_seconds", time.monotonic() - start, "s")
        self.memory("again")
        self.stats_of_files(lambda n: f"{folders[n // self.args.scale_members]}/{member_name(n)}")
        self.walk_row("find_10_shards", random.Random(5).sample(folders, min(10, len(folders))))
        self.walk_row("find_200_shards", random.Random(6).sample(folders, min(200, len(folders))))
        self.memory("found")
        self.close_mount()

    def run_merge(self):
        self.prefix = "merge_"
        start = self.open_mount("--members=merge")
        self.warm()
        if not self.members()["merged"]:
            raise BenchError("the tree is not merged")
        self.note("mount_and_merge_seconds", time.monotonic() - start, "s")
        self.note("mount_and_merge_cpu_seconds", cpu_of(self.mount.pid), "s")
        self.memory("warmed")
        self.close_mount()
        self.index("warmed")
        start = self.open_mount("--members=merge")
        self.note("again_mount_seconds", time.monotonic() - start, "s")
        classes = [name for name in os.listdir(self.mount.mnt) if name.startswith("n")]
        self.note("again_ls_seconds", time.monotonic() - start, "s")
        if len(classes) != min(CLASSES, self.nmembers // 10):
            raise BenchError(f"{len(classes)} classes are shown")
        names = self.timed("ls_class", lambda: os.listdir(os.path.join(self.mount.mnt, member_name(0).split("/")[0])))
        self.note("class_files", len(names), "")
        self.stats_of_files(member_name)
        self.walk_row("find_10_classes", random.Random(5).sample(classes, 10))
        self.memory("found")
        self.close_mount()


def run(args, folder):
    world = Shards(os.path.join(folder, "scale"), args)
    os.mkdir(world.dir)
    scale = Scale(args, world)
    try:
        start = time.monotonic()
        world.open()
        print(f"{scale.nmembers} members of at most {args.scale_size} bytes in {args.scale} shards, written in "
              f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        for mode in args.scale_modes.split(","):
            {"plain": scale.run_plain, "merge": scale.run_merge}[mode]()
    except BaseException:
        if scale.mount:
            scale.mount.end()
        raise
    finally:
        world.close()
    return scale.results
