#!/usr/bin/python3
"""Compressed shards whose data are not those that a checksum was made of."""
import gzip
import subprocess

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
        tap.equal(loader.get([25]).bad_samples(), [])
        list(loader)
        batch = loader.get([19, 20, 39, 40])
        tap.equal([int(one["key"]) for one in batch.bad_samples()], [20, 39])
        batch.release()


@tap.test
def another_file_by_that_name_is_good():
    write("t.tar.zst", {1}, frames=3)
    with penstock.Loader(["t.tar.zst"], 4, penstock.Text("txt"), order="none", on_error="skip") as loader:
        assert sum(len(batch.bad_samples()) for batch in loader) > 0
        write("t.tar.zst", {})
        loader.set_epoch(5)
        tap.equal(sum(len(batch.bad_samples()) for batch in loader), 0)


@tap.test
def doctor_names_it():
    write("t.tar.zst", {1}, frames=3)
    r = tap.run("doctor", "t.tar.zst")
    assert r.returncode == 1 and b"checksum of the compressed data" in r.stdout and b"t.tar.zst" in r.stdout, r


tap.main()
