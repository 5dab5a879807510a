#!/usr/bin/python3
"""Compressed shards whose data are not those that a checksum was made of."""
import gzip
import os
import subprocess
import threading

import python_fixture  # noqa: F401
import tap

import warnings

import numpy

import penstock

warnings.simplefilter("ignore")

SAMPLES = 60


def program(name):
    return lambda data: subprocess.run([name, "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


# how a shard is compressed, and the place of the checksum from the end
PACKERS = {"t.tar.gz": (lambda data: gzip.compress(data, 1), -8), "t.tar.zst": (program("zstd"), -4), "t.tar.lz4": (program("lz4"), -4)}


def write(name, wrong, frames=1, nbytes=1000, data=None):
    """A shard of SAMPLES samples in `frames` frames; the checksums of those in `wrong` are changed."""
    pack, at = PACKERS[name]
    rng = numpy.random.default_rng(0)
    if data is None:
        tap.make_tar("t.tar", [("%03d.txt" % i, b"%03d" % i + rng.bytes(nbytes // 2).hex().encode()) for i in range(SAMPLES)])
        data = tap.read("t.tar")
    per = len(data) // SAMPLES
    if name.startswith("t.tar"):
        per -= per % 512  # the blocks at the end are fewer than the samples
    out = b""
    for i in range(frames):
        one = bytearray(pack(data[20 * i * per:20 * (i + 1) * per if i + 1 < frames else len(data)]))
        if i in wrong:
            one[at] ^= 1
        out += one
    tap.write(name, out)


def epochs(name, n=2, fields=penstock.Text("txt"), **options):
    """What each epoch gave as good, and the others with the reason."""
    found = []
    sound = tap.make_tar("sound.tar", [("s.txt", b"999")])
    if name.endswith("txt.zst"):
        sound = tap.write("sound.txt", b"999")
    with penstock.Loader([name, sound], fields=fields, on_error="skip", epochs=n,
                         **{"batch": 4, "order": "none", "lanes": 1, **options}) as loader:
        for _ in range(n):
            good, bad = [], {}
            for batch in loader:
                good += [int(text[:3]) for text, valid in zip(batch["txt"], numpy.asarray(batch["__valid__"])) if valid]
                bad.update((int(one["key"].split("-")[-1]), one["reason"]) for one in batch.bad_samples())
            tap.equal(len(good) + len(bad), SAMPLES + 1)
            good.remove(999)
            found.append((good, bad))
    return found


@tap.test
def a_wrong_checksum_makes_bad_what_it_covers():
    for name in PACKERS:
        write(name, {0}, nbytes=300000)  # much more than what is read ahead
        for threads in 1, 4:
            (good, bad), (good2, bad2) = epochs(name, threads=threads, readers=threads)
            assert 20 < len(good) < SAMPLES and good == list(range(len(good))), good
            assert "also covers the %d samples before this one" % (SAMPLES - 1) in bad[SAMPLES - 1], bad
            tap.equal((good2, len(bad2)), ([], SAMPLES))
            assert all("checksum" in text and "also covers" not in text for text in bad2.values()), bad2


@tap.test
def a_wrong_checksum_of_a_frame_leaves_the_others():
    for name in PACKERS:
        for nbytes in 1000, 300000:
            write(name, {1}, 3, nbytes)
            for threads in 1, 4:
                (good, bad), (good2, bad2) = epochs(name, threads=threads, readers=threads)
                tap.equal(good2, [*range(20), *range(40, 60)])
                tap.equal(sorted(bad2), list(range(20, 40)))
                assert set(bad) <= set(bad2) and 39 in bad, bad
                tap.equal(["also covers the 19 samples" in text for text in bad.values()].count(True), int(len(bad) < 20))


@tap.test
def samples_of_the_same_window_are_bad_at_once():
    for name in PACKERS:
        write(name, {0}, nbytes=300000)
        for threads in 1, 4:
            good, bad = epochs(name, 1, order="window", shuffle_window=256, threads=threads, readers=threads)[0]
            tap.equal(sorted(bad), list(range(31, SAMPLES)))  # the first blocks are of 4, 4, 8, and 16 samples


@tap.test
def lines_are_bad_like_members():
    data = b"".join(b"%03d %s\n" % (i, b"x" * 300) for i in range(SAMPLES))
    PACKERS["t.txt.zst"] = PACKERS["t.tar.zst"]
    write("t.txt.zst", {2}, 3, data=data)
    (good, bad), (good2, bad2) = epochs("t.txt.zst", source="lines")
    tap.equal((good2, good, len(bad2)), (list(range(40)), good, 20))
    assert 59 in bad, bad


def texts(name, kind, source, sound):
    """The number of good samples in two epochs, without those of the shard `sound`, and why others are bad."""
    found = []
    with penstock.Loader([name, sound], 1, kind, order="none", lanes=1, on_error="skip", source=source, epochs=2) as loader:
        for _ in range(2):
            good, bad = -1, []
            for batch in loader:
                good += int(numpy.asarray(batch["__valid__"]).sum())
                bad += [one["reason"] for one in batch.bad_samples()]
            found.append((good, bad))
    return found


@tap.test
def bytes_of_no_sample_before_the_checksum():
    lines = b"".join(b'{"i": %d, "x": "%s"}\n' % (i, b"x" * 300) for i in range(SAMPLES))
    tap.write("sound.jsonl", b"{}\n")
    tap.write("sound.bin", bytes(2 * 65))
    shards = (("t.jsonl.zst", penstock.Json("json"), "lines", lines + b"\n", SAMPLES),
              ("t.bin.zst", penstock.Tokens("tokens", 64), "tokens", bytes(2 * (64 * 50 + 21)), 50))
    for name, kind, source, data, n in shards:
        PACKERS[name] = PACKERS["t.tar.zst"]
        sound = "sound." + name.split(".")[1]
        write(name, {}, data=data)
        tap.equal(texts(name, kind, source, sound), [(n, [])] * 2, name)
        write(name, {0}, data=data)
        (_, bad), (good2, bad2) = texts(name, kind, source, sound)
        assert "checksum of the compressed data before it" in bad[-1] and "%d samples" % n in bad[-1], bad
        assert good2 == 0 and len(bad2) >= n, (name, good2, bad2)
    out = b""
    for data, wrong in (lines + b"\n", True), (lines, False):
        packed = bytearray(PACKERS["t.tar.zst"][0](data))
        packed[-4] ^= wrong
        out += packed
    tap.write("t.jsonl.zst", out)
    (_, bad), (good2, bad2) = texts("t.jsonl.zst", penstock.Json("json"), "lines", "sound.jsonl")
    assert any("before it does not match; it covers the %d samples" % SAMPLES in text for text in bad), bad
    tap.equal((good2, len(bad2)), (SAMPLES, SAMPLES))


@tap.test
def a_pipe_has_other_bytes_each_time():
    write("t.tar.zst", {0})
    data = tap.read("t.tar.zst")
    write("t.tar.zst", {})
    os.mkfifo("p.tar.zst")
    with penstock.Loader("p.tar.zst", 4, penstock.Text("txt"), order="none", lanes=1, on_error="skip", epochs=2,
                         source="tar") as loader:
        for content, wrong in (data, True), (tap.read("t.tar.zst"), False):
            feed = threading.Thread(target=tap.write, args=("p.tar.zst", content))
            feed.start()
            tap.equal(sum(len(batch.bad_samples()) for batch in loader) > 0, wrong)
            feed.join()


@tap.test
def the_run_ends_with_the_cause():
    for name in PACKERS:
        write(name, {0})
        try:
            for _ in penstock.Loader(name, 4, penstock.Text("txt"), order="none"):
                pass
        except penstock.DamagedSampleError as e:
            assert "checksum" in str(e) and e.shard == name, e
        else:
            raise AssertionError(name)


@tap.test
def samples_by_number_are_bad_once_it_is_known():
    write("t.tar.zst", {1}, 3, 300000)
    tap.run("index", "t.tar.zst")
    with penstock.Loader("t.tar.zst", 4, penstock.Text("txt"), order="none", on_error="skip", epochs=1) as loader:
        loader.get([25]).release()  # known or not: the epoch is read ahead since the loader was opened
        list(loader)
        batch = loader.get([19, 20, 39, 40])
        tap.equal([int(one["key"]) for one in batch.bad_samples()], [20, 39])
        batch.release()


@tap.test
def another_file_by_that_name_is_good():
    write("t.tar.zst", {1}, frames=3)
    with penstock.Loader(["t.tar.zst"], 4, penstock.Text("txt"), order="none", on_error="skip") as loader:
        assert sum(len(batch.bad_samples()) for batch in loader) > 0
        was = os.stat("t.tar.zst")
        for epoch, wrong, same_time in (5, {}, False), (10, {1}, False), (15, {}, True):  # 6 is read ahead
            write("t.tar.zst", wrong, frames=3)
            if same_time:  # as a copy that keeps times
                tap.equal(os.stat("t.tar.zst").st_size, was.st_size)
                os.utime("t.tar.zst", ns=(was.st_atime_ns, was.st_mtime_ns))
            was = os.stat("t.tar.zst")
            loader.set_epoch(epoch)
            tap.equal(sum(len(batch.bad_samples()) for batch in loader) > 0, bool(wrong))


@tap.test
def doctor_names_it():
    write("t.tar.zst", {1}, frames=3)
    r = tap.run("doctor", "t.tar.zst")
    assert r.returncode == 1 and b"checksum of the compressed data" in r.stdout and b"t.tar.zst" in r.stdout, r


@tap.test
def pack_repack_refuses_it():
    for name in PACKERS:
        if not name.startswith("t.tar"):
            continue
        for wrong in {0}, {2}:
            write(name, wrong, 3, 1024 if 0 in wrong else 300000)
            for out in "-", "o-%d.tar":
                r = tap.run("pack", "--repack", *(["--force"] if out != "-" else []), name, out)
                assert r.returncode == 1 and b"checksum" in r.stderr and name.encode() in r.stderr, (name, r.returncode, r.stderr)
        write(name, {}, 3)
        tap.equal(tap.run("pack", "--repack", name, "-").returncode, 0)


@tap.test
def memory_does_not_grow_with_frames():
    n = 400000
    line = b'{"a": 1}\n'
    tap.write("one.jsonl.gz", gzip.compress(line * n, 1))
    tap.write("many.jsonl.gz", gzip.compress(line, 1) * n)
    most = []
    for name in "one.jsonl.gz", "many.jsonl.gz":
        with subprocess.Popen([tap.LOADER, "ls", "--json", name], stdout=subprocess.PIPE) as process:
            for i, _ in enumerate(process.stdout):
                if i == n - n // 20:  # it waits for its output to be read
                    status = tap.read("/proc/%d/status" % process.pid).decode()
        tap.equal((i, process.returncode), (n - 1, 0))
        most.append(int(status.split("VmHWM:")[1].split()[0]))
    assert most[1] < most[0] + 3000, most  # KiB; the places of all frames are 5900


tap.main()
