"""Rows that compare speed and CPU: warm and hot beside the native file, cold beside curl."""

import glob
import os

from .measure import MIB, drop_pages, remove, run_all, touch_memory
from .row import Row
from .tools import BareFuse, Penstock, Rclone, curl_shards, have
from .world import LINK

FAR_TEXT = f"{LINK['rtt_ms']} ms RTT, {LINK['bytes_per_s'] // 10**6} MB/s a connection"
PASSED_THROUGH = ()
NOT_PASSED_THROUGH = ("--no-passthrough",)


def native_paths(bench, names):
    return [bench.world.path(name) for name in names]


class Warmed:
    """penstock and (where there is one) rclone with all names in their caches. The caches are kept from row to
    row."""

    def __init__(self, bench, names, options, with_rclone):
        self.bench, self.names, self.mounts = bench, names, {}
        self.tools = [(Penstock, options)] + ([(Rclone, ())] if with_rclone and have("rclone") else [])

    def __enter__(self):
        world = self.bench.world
        try:
            for tool, options in self.tools:
                # Cached once, whatever the options of the rows that follow.
                cache = os.path.join(world.dir, f"warm-{tool.name}")
                with tool(world, world.near, cache, self.names[0]) as mount:
                    self.bench.reader(mount.paths(self.names))
                    mount.settle(self.names)
                self.mounts[tool.name] = tool(world, world.near, cache, self.names[0], options).__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for mount in self.mounts.values():
            mount.__exit__()
        self.mounts = {}

    def contestants(self, before=lambda: None, **options):
        def native():
            before()
            return self.bench.reader(native_paths(self.bench, self.names), **options)

        def reading(mount):
            def read():
                before()
                return self.bench.reader(mount.paths(self.names), daemon=mount.pid, **options)

            return read

        return {"native": native, **{name: reading(mount) for name, mount in self.mounts.items()}}


def heated(warmed, **options):
    """The contestants, whose files are in the page cache. All files were read into it: pages that a write
    left there are in larger folios, and are read faster."""
    contestants = warmed.contestants(**options)
    drop_pages()
    for function in contestants.values():
        function()
    return contestants


def note_passthrough(row, mount, wanted):
    passthrough = mount.stats()["passthrough"]
    if wanted and not passthrough["active"]:
        row.check(f"passed through: no, {passthrough['reason']}", 0, at_least=1)


def hot(bench):
    names, rows = bench.world.names[:2], []
    with Warmed(bench, names, PASSED_THROUGH, True) as warmed:
        for readers in 1, 2:
            row = Row(f"hot-{readers}", f"warm, page cache hot, 1 MiB reads, {readers} reader{'s' * (readers > 1)}")
            row.take_turns(heated(warmed, readers=readers), bench.turns, {"rclone": bench.few})
            note_passthrough(row, warmed.mounts["penstock"], True)
            row.check_ratio("penstock", "native", at_least=0.95)
            row.check_ratio("penstock", "native", "cpu_s_per_gb", at_most=1.05)
            row.check_ratio("penstock", "rclone")
            rows.append(row)
        row = Row("hot-small", "warm, page cache hot, 10 KiB reads (tarfile)")
        row.take_turns(heated(warmed, block=10240), bench.turns, {"rclone": bench.few})
        row.check_ratio("penstock", "native", at_least=0.75)
        row.check_ratio("penstock", "rclone", at_least=10)
        rows.append(row)
    return rows


def warm(bench):
    row, names = Row("warm", "warm, page cache dropped, 1 reader"), bench.world.names[:2]

    def before():
        drop_pages()
        touch_memory(2 * bench.nbytes(names))

    with Warmed(bench, names, PASSED_THROUGH, True) as warmed:
        row.take_turns(warmed.contestants(before), bench.turns, {"rclone": bench.few})
        note_passthrough(row, warmed.mounts["penstock"], True)
    row.check_ratio("penstock", "native", at_least=0.95)
    row.check_ratio("penstock", "native", "cpu_s_per_gb", at_most=1.25)
    row.check_ratio("penstock", "rclone")
    return [row]


def not_passed_through(bench):
    names = bench.world.names[:2]
    hot_row = Row("daemon-hot", "warm, page cache hot, without passthrough")
    data_row = Row("daemon-data", "warm, only the data files' pages hot, without passthrough")
    cold_row = Row("daemon-warm", "warm, page cache dropped, without passthrough")

    def before():
        drop_pages()
        touch_memory(2 * bench.nbytes(names))

    with Warmed(bench, names, NOT_PASSED_THROUGH, False) as warmed:
        hot_row.take_turns(heated(warmed), bench.turns)
        cold_row.take_turns(warmed.contestants(before), bench.turns)
        mount = warmed.mounts["penstock"]

        def only_data_pages():
            # A new process reads each file, so the mount opens it through the page cache. Then the file's
            # pages are dropped.
            for path in mount.paths(names):
                bench.reader([path])
                with open(path, "rb") as f:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for path in native_paths(bench, names):
                bench.reader([path])

        data_row.take_turns(warmed.contestants(only_data_pages), bench.turns)
    hot_row.check_ratio("penstock", "native", at_least=0.85)
    data_row.check_ratio("penstock", "native", at_least=0.55)
    data_row.check_ratio("penstock", "native", "cpu_s_per_gb")
    cold_row.check_ratio("penstock", "native", at_least=0.65)
    return [hot_row, data_row, cold_row]


def hit(bench):
    """Random reads of one large file that the daemon answers from the data file's pages, beside a daemon that
    does nothing else."""
    rows, names = [], bench.world.names[:1]

    def forget(path):
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def reading(path, pid, **options):
        def read():
            forget(path)
            return bench.reader([path], daemon=pid, **options)

        return read

    with Warmed(bench, names, NOT_PASSED_THROUGH, False) as warmed:
        mount = warmed.mounts["penstock"]
        path = mount.paths(names)[0]
        data = max(glob.glob(os.path.join(mount.cache, "data", "*", "*")), key=os.path.getsize)
        bench.reader([data])
        with BareFuse(bench.bare_fuse, data, os.path.join(bench.world.dir, "bare")) as bare:
            for readers in 1, 8, 64:
                row = Row(f"hit-{readers}", f"hits by the daemon, random reads of 16 KiB, {readers} at once")
                options = {"readers": readers, "block": 16384, "random": 40000 // readers}
                row.take_turns({"penstock": reading(path, mount.pid, **options),
                                "bare FUSE": reading(bare.path, bare.pid, **options)}, bench.turns)
                row.check_ratio("penstock", "bare FUSE", at_least=0.9)
                row.check_ratio("penstock", "bare FUSE", "cpu_s_per_gb", at_most=1.1)
                rows.append(row)
    return rows


def loader(bench):
    """The loader on one mount without passthrough: root reads the data files, another user the mount."""
    names = bench.world.make_samples()
    hot_row = Row("loader-hot", "the loader, page cache hot, without passthrough")
    warm_row = Row("loader-warm", "the loader, page cache dropped, without passthrough")

    def contestants(mount, epochs, before=lambda: None):
        def run(paths, **options):
            before()
            return bench.loader(paths, epochs, **options)

        return {"native": lambda: run(native_paths(bench, names)),
                "data files": lambda: run(mount.paths(names), daemon=mount.pid),
                "mount": lambda: run(mount.paths(names), daemon=mount.pid, user=65534)}

    def before():
        drop_pages()
        touch_memory(2 * bench.nbytes(names))

    with Warmed(bench, names, (*NOT_PASSED_THROUGH, "--allow-other"), False) as warmed:
        mount = warmed.mounts["penstock"]
        drop_pages()
        for function in contestants(mount, 1).values():
            function()
        hot_row.take_turns(contestants(mount, 8), bench.turns)
        warm_row.take_turns(contestants(mount, 1, before), bench.turns)
    for row in hot_row, warm_row:
        row.check_ratio("data files", "native", at_least=0.95)
        row.check_ratio("data files", "native", "cpu_s_per_gb")
        row.check_ratio("mount", "native")
        row.check_ratio("mount", "native", "cpu_s_per_gb")
    return [hot_row, warm_row]


# Cold -------------------------------------------------------------------------------------------------------


def read_cold(bench, tool, origin, names, options=(), **reading):
    """A fresh mount with an empty cache, read once; the CPU is counted until all is in the cache."""
    world = bench.world
    cache = os.path.join(world.dir, f"cold-{tool.name}")
    remove(cache)
    with tool(world, origin, cache, names[0], options) as mount:
        drop_pages()
        world.warm_origin(names)
        touch_memory(3 * bench.nbytes(names))
        sample = bench.reader(mount.paths(names), daemon=mount.pid, settle=lambda: mount.settle(names), **reading)
        if isinstance(mount, Penstock):
            stats = mount.stats()
            sample["budget_bytes"] = stats["memory"]["limit_bytes"]
            sample["requests"] = stats["origin"]["requests"]
    remove(cache)
    return sample


def copy_by_curl(bench, origin, names, ranges):
    drop_pages()
    bench.world.warm_origin(names)
    touch_memory(3 * bench.nbytes(names))
    return curl_shards(bench.world, origin, names, ranges, os.path.join(bench.world.dir, "parts"))


def cold_row(bench, name, title, origin, names, ranges, rclone_names):
    row = Row(name, title)
    curl = f"curl-{ranges}"
    contestants = {"penstock": lambda: read_cold(bench, Penstock, origin, names),
                   curl: lambda: copy_by_curl(bench, origin, names, ranges)}
    if have("rclone"):
        contestants["rclone"] = lambda: read_cold(bench, Rclone, origin, rclone_names)
    row.take_turns(contestants, bench.turns, {"rclone": bench.few})
    row.check_ratio("penstock", curl, at_least=0.85)
    peaks = [sample["peak_rss_bytes"] - sample["budget_bytes"] for sample in row.samples["penstock"]]
    row.peak_over_budget = max(peaks)
    return row, curl


def cold(bench):
    rows = []
    for name, title, origin in (("cold", "cold, nginx on loopback, cache written, 1 reader", bench.world.near),
                                ("cold-tls", "the same over HTTPS", bench.world.tls)):
        row, curl = cold_row(bench, name, title, origin, bench.world.names[:2], 8, bench.world.names[:2])
        row.check_ratio("penstock", curl, "cpu_s_per_gb", at_most=1.3)
        row.check_ratio("penstock", "rclone", at_least=3 if name == "cold" else None)
        row.check("daemon's peak RSS beyond its budget", row.peak_over_budget / 2**20, at_most=64, unit="MiB")
        rows.append(row)
    return rows


def cold_modes(bench):
    """The two ways to read files that are not completely cached, for large reads and for small ones."""
    rows, names = [], bench.world.names[:2]
    for name, block in ("large", 1 << 20), ("small", 10240):
        row = Row(f"cold-modes-{name}", f"cold, nginx on loopback, reads of {block // 1024} KiB, --cold-reads")
        row.take_turns({how: lambda how=how: read_cold(bench, Penstock, bench.world.near, names,
                                                       ("--cold-reads", how), block=block)
                        for how in ("direct", "cached")}, bench.turns)
        row.check_ratio("direct", "cached")
        row.check_ratio("direct", "cached", "cpu_s_per_gb")
        rows.append(row)
    return rows


def far(bench):
    names = bench.world.names
    row, curl = cold_row(bench, "cold-far", f"cold, 40 ms RTT, 50 MB/s a connection, {len(names)} shards in order",
                         bench.world.far(), names, 32, names[:1])
    row.check_ratio("penstock", curl, "cpu_s_per_gb")
    row.check_ratio("penstock", "rclone", at_least=10)
    row.check("daemon's peak RSS beyond its budget", row.peak_over_budget / 2**20, at_most=64, unit="MiB")
    return [row]


def read_first_file(bench, readers=1, second=False, options=(), **reading):
    """One file of a fresh mount; the bytes that the origin sent are counted. second: the file after it."""
    world, cache = bench.world, os.path.join(bench.world.dir, "far-one")
    names = bench.world.names[:2]
    remove(cache)
    with Penstock(world, world.far(), cache, names[0], options) as mount:
        drop_pages()
        world.warm_origin(names)
        touch_memory(3 * bench.nbytes(names))
        if second:
            bench.reader(mount.paths(names[:1]))
        name = names[1 if second else 0]
        settle = None if options else lambda: mount.settle([name])
        sample = bench.reader(mount.paths([name]), daemon=mount.pid, settle=settle, readers=readers, **reading)
        stats = mount.stats()
    remove(cache)
    nbytes = os.path.getsize(world.path(name))
    sample["gb_per_s"] = nbytes / sample["seconds"] / 1e9
    sample["requests"] = stats["origin"]["requests"]
    if not second:
        sample["origin_bytes_a_byte"] = stats["origin"]["bytes"] / nbytes
    return sample


def scattered(bench):
    """A mapped file that is read here and there, as programs that map a model do, beside curl for the whole file."""
    world = bench.world
    row = Row("scattered", f"300 random faults in one cold mapped file, {FAR_TEXT}")
    row.take_turns({
        "penstock": lambda: read_first_file(bench, map=True, random=300),
        "not-whole": lambda: read_first_file(bench, options=["--whole", "none"], map=True, random=300),
        "curl-32": lambda: copy_by_curl(bench, world.far(), world.names[:1], 32),
    }, bench.turns)
    row.check_ratio("penstock", "curl-32", at_least=0.4)
    row.check_ratio("not-whole", "curl-32")
    row.check("origin bytes a byte of the file",
              max(sample["origin_bytes_a_byte"] for sample in row.samples["penstock"]), at_most=1.005)
    return [row]


SMALL, SMALL_READERS = 1000, 16


def far_small(bench):
    """Many small shards, dealt out to processes, beside curl with as many connections."""
    world, row = bench.world, Row("far-small", f"{SMALL} cold shards of 1 MiB, {SMALL_READERS} processes, {FAR_TEXT}")
    folder, cache, to = (os.path.join(world.dir, name) for name in ("www/small", "far-small", "small-parts"))
    os.makedirs(folder)
    names = [f"s-{number:04d}.tar" for number in range(SMALL)]
    for name in names:
        with open(os.path.join(folder, name), "wb") as f:
            f.write(os.urandom(MIB))

    def penstock(*options):
        remove(cache)
        with Penstock(world, world.far() + "/small", cache, names[0], options) as mount:
            drop_pages()
            world.warm_origin([f"small/{name}" for name in names])
            touch_memory(3 * SMALL * MIB)
            sample = bench.reader(mount.paths(names), daemon=mount.pid, readers=SMALL_READERS, deal=True,
                                  settle=lambda: mount.settle(names))
            stats = mount.stats()["origin"]
        remove(cache)
        return {**sample, "requests": stats["requests"], "origin_bytes_a_byte": stats["bytes"] / SMALL / MIB}

    def curl():
        drop_pages()
        world.warm_origin([f"small/{name}" for name in names])
        touch_memory(3 * SMALL * MIB)
        os.makedirs(to)
        try:
            return run_all([["curl", "-sf", "--no-progress-meter", "--parallel", "--parallel-max", str(SMALL_READERS), "--output-dir", to,
                             "--remote-name-all", f"{world.far()}/small/s-[0000-{SMALL - 1:04d}].tar"]], SMALL * MIB)
        finally:
            remove(to)

    row.take_turns({"penstock": penstock, "curl-16": curl,
                    "16 connections": lambda: penstock("--max-connections", "16")}, bench.turns)
    remove(folder)
    row.check_ratio("16 connections", "curl-16", at_least=0.85)
    row.check_ratio("penstock", "curl-16", at_least=0.85)
    row.check_ratio("penstock", "curl-16", "cpu_s_per_gb")
    most = max(sample["origin_bytes_a_byte"] for sample in row.samples["penstock"])
    row.check("origin bytes a byte read", most, at_most=1.005)
    return [row]


def far_one(bench):
    """One cold file right after the mount, beside curl in ranges, which opens all its connections at once."""
    world = bench.world
    row = Row("far-one", f"one cold file right after the mount, {FAR_TEXT}")
    row.take_turns({
        "penstock": lambda: read_first_file(bench),
        "curl-32": lambda: copy_by_curl(bench, world.far(), world.names[:1], 32),
        "mapped": lambda: read_first_file(bench, readers=8, map=True),
        "mapped-4": lambda: read_first_file(bench, readers=8, map=True, parts=4),
        "second": lambda: read_first_file(bench, second=True),
    }, bench.turns)
    row.check_ratio("penstock", "curl-32", at_least=0.9)
    row.check_ratio("second", "curl-32", at_least=0.9)
    row.check_ratio("penstock", "curl-32", "cpu_s_per_gb")
    for mapped in "mapped", "mapped-4":
        row.check_ratio(mapped, "curl-32", at_least=0.85)
    for name in "penstock", "mapped", "mapped-4":
        most = max(sample["origin_bytes_a_byte"] for sample in row.samples[name])
        row.check(f"{name}: origin bytes a byte of the file", most, at_most=1.005)
    return [row]
