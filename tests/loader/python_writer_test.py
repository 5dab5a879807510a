#!/usr/bin/python3
"""penstock.ShardWriter: members, shards, and the files that are there after a crash."""
import gc
import glob
import io
import os
import signal
import subprocess
import sys
import tarfile
import warnings

import tap

tap.python_environment("webdataset", ["webdataset"], ["webdataset", "braceexpand", "pyyaml"], required=False)
tap.python_package()

import numpy
import torch
from PIL import Image

import penstock


def samples(n=10):
    for i in range(n):
        yield {"__key__": "s/%03d" % i, "jpg": tap.read(tap.PHOTOS[i % len(tap.PHOTOS)]), "cls": i, "txt": "ä" * i,
               "npy": numpy.full((2, i + 1), i, "f4"), "json": {"a": i}, "_note": "left out", "nothing": None}


def write(pattern, what=None, **options):
    with penstock.ShardWriter(pattern, **options) as sink:
        for sample in samples() if what is None else what:
            sink.write(sample)
    return sorted(glob.glob(os.path.join(os.path.dirname(pattern) or ".", "*")))


def error(kind, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError("no %s" % kind.__name__)


def contents(path):
    return {os.path.basename(name): tap.read(name) for name in glob.glob(path + "/*")}


@tap.test
def the_same_samples_give_the_same_bytes():
    write("a/t-%06d.tar", maxcount=4)
    write("b/t-%06d.tar", [dict(reversed(list(s.items()))) for s in samples()], maxcount=4)
    tap.equal(sorted(contents("a")), sorted("t-%06d.tar%s" % (i, x) for i in range(3) for x in ("", ".psx")))
    for name, data in contents("a").items():
        assert name.endswith(".psx") or data == contents("b")[name], name


@tap.test
def a_writer_gives_the_same_bytes_as_pack():
    for s in samples():
        for suffix in ("jpg", "txt"):
            path = "f/%s.%s" % (s["__key__"], suffix)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            tap.write(path, s[suffix] if suffix == "jpg" else s[suffix].encode())
    for end in ("tar", "tar.zst"):
        r = tap.run("pack", "--index", "--max-count", "3", "f", "p/t-%06d." + end)
        tap.equal(r.returncode, 0, r.stderr)
        write("w/t-%06d." + end, [{k: s[k] for k in ("__key__", "jpg", "txt")} for s in samples()], maxcount=3)
    packed = {k: v for k, v in contents("p").items() if not k.endswith((".psx", ".psc"))}
    tap.equal({k: v for k, v in contents("w").items() if not k.endswith(".psx")} == packed, True)
    tap.equal(len(packed), 8)


@tap.test
def tarfile_reads_written_shards():
    write("t-%d.tar")
    with tarfile.open("t-0.tar") as tar:
        members = tar.getmembers()
        tap.equal([m.name for m in members[:6]],
                  ["s/000.cls", "s/000.jpg", "s/000.json", "s/000.npy", "s/000.txt", "s/001.cls"])
        tap.equal({(m.mtime, m.uid, m.gid, m.uname, m.mode, m.isreg()) for m in members}, {(0, 0, 0, "", 0o444, True)})
        read = {m.name: tar.extractfile(m).read() for m in members}
    tap.equal((read["s/007.cls"], read["s/007.json"], read["s/007.txt"].decode()), (b"7", b'{"a": 7}', "ä" * 7))
    tap.equal(read["s/003.jpg"], tap.read(tap.PHOTOS[3]))
    tap.equal(numpy.load(io.BytesIO(read["s/007.npy"])).tolist(), [[7] * 8] * 2)


@tap.test
def webdataset_reads_written_shards():
    try:
        import webdataset
    except ImportError as e:
        raise tap.Skip(str(e)) from e
    warnings.simplefilter("ignore")
    write("t-%06d.tar", maxcount=4)
    read = list(webdataset.WebDataset("t-{000000..000002}.tar", shardshuffle=False).decode("pil"))
    tap.equal([(s["__key__"], s["cls"], s["txt"], s["json"], s["npy"].tolist()) for s in read],
              [(s["__key__"], s["cls"], s["txt"], s["json"], s["npy"].tolist()) for s in samples()])
    tap.equal([s["jpg"].size for s in read], [Image.open(io.BytesIO(s["jpg"])).size for s in samples()])


@tap.test
def the_loader_reads_written_shards_and_their_indexes():
    for end in ("tar", "tar.zst"):
        names = write(end + "/t-%06d." + end, maxcount=4)
        shards = [name for name in names if name.endswith(end)]
        tap.equal(len(shards), 3)
        loader = penstock.Loader(end, 5, {"y": penstock.Int("cls"), "t": penstock.Text("txt")}, order="none", format="numpy")
        tap.equal((len(loader), loader.samples()), (2, 10))
        batches = list(loader)
        tap.equal([int(y) for b in batches for y in b["y"]], list(range(10)))
        tap.equal([t for b in batches for t in b["t"]], ["ä" * i for i in range(10)])
        os.mkdir(end + "-later")
        tap.equal(tap.run("index", "--dir", end + "-later", *shards).returncode, 0)
        later = [data for name, data in sorted(contents(end + "-later").items()) if name.endswith(".psx")]
        tap.equal(len(later), 3)
        assert later == [tap.read(name + ".psx") for name in shards]


@tap.test
def zstd_reads_written_shards():
    write("t-%d.tar")
    write("t-%d.tar.zst", level=7)
    whole = subprocess.run(["zstd", "-dc", "t-0.tar.zst"], capture_output=True, check=True).stdout
    tap.equal(whole == tap.read("t-0.tar"), True)


@tap.test
def shards_end_at_maxcount_and_maxsize():
    def counts(sizes, **options):
        for name in glob.glob("m/*"):
            os.remove(name)
        done = []
        with penstock.ShardWriter("m/t-%d.tar", post=lambda name: done.append((name, os.path.exists(name + ".psx"))), **options) as sink:
            for i, size in enumerate(sizes):
                sink.write({"__key__": str(i), "bin": b"x" * size})
        tap.equal(done, [("m/t-%d.tar" % i, True) for i in range(len(done))])
        tap.equal(sink.total, len(sizes))
        return [len(tarfile.open(name).getmembers()) for name, _ in done]

    tap.equal(counts([1] * 5, maxcount=2), [2, 2, 1])
    tap.equal(counts([1] * 4, maxcount=2), [2, 2])
    tap.equal(counts([512] * 5, maxsize=2048), [2, 2, 1])
    tap.equal(counts([512] * 5, maxsize=2047), [1] * 5)
    tap.equal(counts([512, 5000, 512], maxsize=2048), [1, 1, 1])
    tap.equal(write("n/t-%d.tar", start_shard=7, index=False), ["n/t-7.tar"])
    tap.equal(write("none/t-%d.tar", []), [])


@tap.test
def a_shard_has_its_name_once_it_is_whole():
    def failing():
        for i, s in enumerate(samples()):
            if i == 6:
                tap.equal(sorted(n for n in contents("e") if "tmp" not in n), ["t-0.tar", "t-0.tar.psx"])
                tap.equal(len(contents("e")), 3)
                raise KeyError("no more")
            yield s

    error(KeyError, write, "e/t-%d.tar", failing(), maxcount=4)
    tap.equal(sorted(contents("e")), ["t-0.tar", "t-0.tar.psx"])
    code = """if 1:
        import os, penstock
        sink = penstock.ShardWriter("k/t-%d.tar", maxcount=4)
        for i in range(6):
            sink.write({"__key__": str(i), "bin": b"x" * 3000000})
        os.kill(os.getpid(), 9)"""
    tap.equal(subprocess.run([sys.executable, "-c", code]).returncode, -signal.SIGKILL)
    tap.equal(sorted(n.partition(".tmp-")[0] for n in contents("k")), ["t-0.tar", "t-0.tar.psx", "t-1.tar"])
    assert not os.path.exists("k/t-1.tar")
    loader = penstock.Loader("k", 4, {"b": penstock.Bytes("bin")})
    tap.equal(len(loader), 1)


@tap.test
def a_writer_that_is_not_closed_warns():
    sink = penstock.ShardWriter("t-%d.tar")
    sink.write({"__key__": "a", "cls": 1})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del sink
        gc.collect()
    assert any(w.category is ResourceWarning and "t-0.tar was not written" in str(w.message) for w in told), told
    tap.equal(glob.glob("*"), [])


@tap.test
def values_of_all_kinds_become_members():
    cases = [
        ("cls", True, b"1"), ("cls", numpy.int64(-3), b"-3"), ("cls", torch.tensor(5), b"5"), ("cls", 2**70, str(2**70).encode()),
        ("float", 0.1, b"0.1"), ("float", numpy.float64(1e300), b"1e+300"), ("txt", "€", "€".encode()),
        ("json", ["ä", None, 1.5], '["ä", null, 1.5]'.encode()), ("json", "{}", b"{}"), ("bin", bytearray(b"ab"), b"ab"),
        ("bin", memoryview(b"abc")[1:], b"bc"), ("a.JSON", 3, b"3"), ("bin", b"", b"")]
    for i, (suffix, value, want) in enumerate(cases):
        write("v-%d.tar", [{"__key__": str(i), suffix: value}], overwrite=True)
        with tarfile.open("v-0.tar") as tar:
            tap.equal([(m.name, tar.extractfile(m).read()) for m in tar], [("%d.%s" % (i, suffix), want)])
    pixels = numpy.arange(48, dtype="u1").reshape(4, 4, 3)
    with penstock.ShardWriter("i-%d.tar", encoder=lambda suffix, value: b"mine" if suffix == "pth" else NotImplemented) as sink:
        sink.write({"__key__": "a", "png": pixels, "seg.png": pixels[:, :, 0], "jpg": Image.fromarray(pixels), "pth": object(),
                    "npy": torch.ones(2), "webp": pixels})
    with tarfile.open("i-0.tar") as tar:
        files = {m.name[2:]: tar.extractfile(m).read() for m in tar}
    tap.equal((numpy.asarray(Image.open(io.BytesIO(files["png"]))) == pixels).all(), True)
    tap.equal((numpy.asarray(Image.open(io.BytesIO(files["seg.png"]))) == pixels[:, :, 0]).all(), True)
    tap.equal([Image.open(io.BytesIO(files[name])).format for name in ("jpg", "webp")], ["JPEG", "WEBP"])
    tap.equal((numpy.load(io.BytesIO(files["npy"])).tolist(), files["pth"]), ([1, 1], b"mine"))


@tap.test
def wrong_samples_and_patterns_are_refused_with_a_reason():
    sink = penstock.ShardWriter("t-%d.tar")
    for sample, text in [
        ({"jpg": b""}, '"__key__" must be a text without a dot'), ({"__key__": "a.b", "cls": 1}, "without a dot"),
        ({"__key__": "", "cls": 1}, "without a dot"), ({"__key__": "/a", "cls": 1}, "without a dot"),
        ({"__key__": "a/", "cls": 1}, "without a dot"), ({"__key__": 7, "cls": 1}, "not 7"),
        ({"__key__": "__meta__/a", "cls": 1}, "belong to no sample"), ({"__key__": "a"}, "sample 'a' has no member"),
        ({"__key__": "a", "jpg": b"", "JPG": b""}, "has .jpg twice"), ({"__key__": "a", "": b""}, "'' is not a suffix"),
        ({"__key__": "a", "b/c": b""}, "'b/c' is not a suffix"),
    ]:
        said = error(ValueError, sink.write, sample)
        assert text in said, (sample, said)
    said = error(TypeError, sink.write, {"__key__": "a", "pth": object()})
    assert "write: sample 'a': .pth: there is no rule to write a object as .pth" in said, said
    sink.write({"__key__": "dir.x/a", "cls": 1})
    assert "would be one sample" in error(ValueError, sink.write, {"__key__": "dir.x/a", "cls": 2})
    sink.close()
    assert "closed" in error(ValueError, sink.write, {"__key__": "b", "cls": 1})
    tap.equal(sorted(contents(".")), ["t-0.tar", "t-0.tar.psx"])
    for pattern, text in [("t.tar", "one %d"), ("t-%d-%d.tar", "one %d"), ("t-%s.tar", "one %d"), ("100%-%d.tar", "one %d"),
                          ("t-%d.zip", "must end in .tar")]:
        assert text in error(ValueError, penstock.ShardWriter, pattern), pattern
    assert "must end in .zst" in error(ValueError, penstock.ShardWriter, "t-%d.tar", level=3)
    assert "level must be 1 to 19" in error(ValueError, write, "z-%d.tar.zst", level=20)
    shard = penstock._penstock.Shard("c.tar", 0)
    for name in ("a", "/a.b", ".b", "a/b", "dir.x/.b"):
        said = error(ValueError, shard.add, name, b"")
        tap.equal(said, 'c.tar: the member "%s" would belong to no sample: its name must be KEY.SUFFIX' % name)
    shard.add("a.b", b"1")
    shard.finish(False)
    assert "finished" in error(ValueError, shard.add, "a.b", b"")
    with tarfile.open("c.tar") as tar:
        tap.equal(tar.getnames(), ["a.b"])
    assert "at least 1" in error(ValueError, penstock.ShardWriter, "t-%d.tar", 0)


@tap.test
def existing_shards_are_kept_without_overwrite():
    write("t-%d.tar", list(samples(2)))
    before = tap.read("t-0.tar")
    said = error(FileExistsError, write, "t-%d.tar", list(samples(3)))
    assert "t-0.tar exists already; overwrite=True replaces it" in said, said
    tap.equal(tap.read("t-0.tar") == before, True)
    write("t-%d.tar", list(samples(3)), overwrite=True)
    tap.equal(len(penstock.Loader("t-0.tar", 1, {"y": penstock.Int("cls")})), 3)


if __name__ == "__main__":
    tap.main()
