"""Rows that compare speed and CPU: warm and hot beside the native file, cold beside curl."""

import glob
import os

from .measure import drop_pages, remove, touch_memory
from .row import Row
from .tools import BareFuse, Penstock, Rclone, curl_shards, have

PASSED_THROUGH = ()
NOT_PASSED_THROUGH = ("--no-passthrough",)


def native_paths(bench, names):
    return [bench.world.path(name) for name in names]


class Warmed:
    """penstock and (where there is one) rclone with all names in their caches. Kept from row to row."""

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
            # Each file is read by a process of its own, so through the page cache, which then forgets it.
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
