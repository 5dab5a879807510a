"""Rows that count: round trips, bytes, memory, the time of operations on names."""

import os
import random
import signal
import statistics
import subprocess
import time

from .measure import memory_of, remove
from .row import Row
from .tools import Penstock
from .world import LINK

RANDOM_READS = 200
RANDOM_NBYTES = 128 << 10
NAMES = 100_000
BUSY_NAMES = 4000


def curl_first_byte(url):
    words = ["curl", "-sf", "-r", "0-0", "-o", "/dev/null", "-w", "%{time_starttransfer}", url]
    return float(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


def seconds_to_first_byte(path):
    start = time.monotonic()
    fd = os.open(path, os.O_RDONLY)
    try:
        os.pread(fd, 4096, 0)
        return time.monotonic() - start
    finally:
        os.close(fd)


def first_byte(bench):
    """The first byte of shards whose sizes the listing gave, and of shards whose version each open asks
    for."""
    world, rtt = bench.world, LINK["rtt_ms"] / 1000
    far, row = world.far(), Row("first-byte", "first byte of a cold shard, in round trips of 40 ms")
    for what, options in ("listed", ()), ("asked by a HEAD", ("--revalidate", "open")):
        seconds, requests = [], []
        cache = os.path.join(world.dir, "first-byte")
        with Penstock(world, far, cache, world.names[0], options) as mount:
            time.sleep(4 * rtt)
            # Backwards, so that no shard is prefetched before it is opened.
            for path in mount.paths(world.names[::-1]):
                before = mount.stats()["origin"]["requests"]
                seconds.append(seconds_to_first_byte(path))
                requests.append(mount.stats()["origin"]["requests"] - before)
                time.sleep(4 * rtt)
        remove(cache)
        row.samples[f"penstock, {what}"] = [{"seconds": s, "requests": r} for s, r in zip(seconds, requests)]
        extra = 0 if what == "listed" else 1
        row.check(f"penstock, {what}", statistics.median(seconds) / rtt, at_most=2 + extra + 0.25)
    curl = [curl_first_byte(f"{far}/{name}") for name in world.names]
    row.samples["curl"] = [{"seconds": s} for s in curl]
    row.check("curl: handshake and request", statistics.median(curl) / rtt)
    return [row]


def fetched_per_read(bench, name, readers, **options):
    world = bench.world
    cache = os.path.join(world.dir, "bytes")
    before = world.served_bytes()
    with Penstock(world, world.near + "/logged", cache, name) as mount:
        out = bench.reader(mount.paths([name]), readers=readers, **options)
        nbytes = out["bytes_read"] if options else os.path.getsize(world.path(name))
        time.sleep(0.3)
    remove(cache)
    # nginx logs a request when it has ended; the end of the mount has ended all requests.
    time.sleep(0.3)
    return (world.served_bytes() - before) / nbytes


def origin_bytes(bench):
    row, world = Row("origin-bytes", "bytes fetched for each byte that is read, cold"), bench.world
    for readers in 1, 8:
        ratios = [fetched_per_read(bench, world.names[0], readers) for _ in range(bench.few)]
        row.check(f"in order, {readers} reader{'s' * (readers > 1)}", max(ratios), at_least=1.0, at_most=1.01)
    large = "large.bin"
    with open(world.path(large), "wb") as f:
        f.truncate(max(10**9, world.shard_nbytes))
    try:
        ratios = [fetched_per_read(bench, large, 1, block=RANDOM_NBYTES, random=RANDOM_READS, seed=turn + 1)
                  for turn in range(bench.few)]
    finally:
        os.unlink(world.path(large))
    row.check(f"{RANDOM_READS} random reads of 128 KiB of 1 GB", statistics.median(ratios), at_most=2.3)
    row.checks[-1]["all"] = ratios
    return [row]


def quantile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def busy_names(bench):
    """stat and open of listed names that the kernel does not know, while readers keep all connections busy."""
    world, row = bench.world, Row("busy-names", f"{BUSY_NAMES} listed names while 8 readers read cold shards from far")
    many = os.path.join(world.www, "many")
    names = [f"s-{number:06d}.tar" for number in range(BUSY_NAMES)]
    for name in names:
        with open(os.path.join(many, name), "wb") as f:
            f.truncate(1 << 20)
    cache = os.path.join(world.dir, "busy")
    with Penstock(world, world.far(), cache, world.names[0]) as mount:
        reader = subprocess.Popen([bench.reader.program, "--readers", "8", "--deal", *mount.paths(world.names)],
                                  stdout=subprocess.DEVNULL, start_new_session=True)
        time.sleep(0.5)
        times = {"stat": [], "open": []}
        for number, name in enumerate(names):
            path = os.path.join(mount.mnt, "many", name)
            begin = time.monotonic()
            if number % 2:
                os.stat(path)
            else:
                os.close(os.open(path, os.O_RDONLY))
            times["open" if number % 2 == 0 else "stat"].append(time.monotonic() - begin)
            if reader.poll() is not None:
                break
        row.check("names asked for before the readers ended", number + 1, at_least=BUSY_NAMES / 10)
        os.killpg(reader.pid, signal.SIGTERM)
        reader.wait()
        for what, seconds in times.items():
            row.check(f"{what}: median", statistics.median(seconds) * 1000, unit="ms")
            row.check(f"{what}: 99 %", quantile(seconds, 0.99) * 1000, at_most=5, unit="ms")
    remove(cache)
    for name in names:
        os.unlink(os.path.join(many, name))
    return [row]


def timed(command):
    start = time.monotonic()
    with open(os.devnull, "w") as nothing:
        subprocess.run(command, stdout=nothing, check=True)
    return time.monotonic() - start


def names(bench):
    """Many names, already listed by an earlier mount."""
    world, row = bench.world, Row("names", f"{NAMES:,} listed shards")
    many = os.path.join(world.www, "many")
    for number in range(NAMES):
        with open(os.path.join(many, f"s-{number:06d}.tar"), "wb") as f:
            f.truncate(1 << 30)
    cache, source = os.path.join(world.dir, "names"), f"{world.near}/many"
    first, last = "s-000000.tar", f"s-{NAMES - 1:06d}.tar"
    start = time.monotonic()
    with Penstock(world, source, cache, last) as mount:
        row.check("mount and listing, first time", time.monotonic() - start, unit="s")
    start = time.monotonic()
    with Penstock(world, source, cache, first) as mount:
        row.check("mount", time.monotonic() - start, at_most=1, unit="s")
        numbers = random.Random(1).sample(range(NAMES), 200)
        stats = []
        for number in numbers:
            path = os.path.join(mount.mnt, f"s-{number:06d}.tar")
            begin = time.monotonic()
            os.stat(path)
            stats.append(time.monotonic() - begin)
        row.check("stat of one", statistics.median(stats) * 1000, at_most=1, unit="ms")
        row.check("ls", timed(["ls", mount.mnt]), at_most=0.5, unit="s")
        row.check("ls -l", timed(["ls", "-l", mount.mnt]), at_most=5, unit="s")
        time.sleep(1)
        row.check("daemon's RSS, idle", mount.rss() / 2**20, at_most=64, unit="MiB")
        row.check("daemon's peak RSS", memory_of(mount.pid, "VmHWM") / 2**20, unit="MiB")
    for number in range(NAMES):
        os.unlink(os.path.join(many, f"s-{number:06d}.tar"))
    remove(cache)
    return [row]
