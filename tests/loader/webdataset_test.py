#!/usr/bin/python3
"""Random tars, also with odd names: the loader reads the same samples as the webdataset package, or both refuse."""
import io
import os
import random
import tarfile
import warnings

import tap

tap.python_environment("webdataset", ["webdataset"], ["webdataset", "braceexpand", "pyyaml"])
warnings.simplefilter("ignore")
import webdataset

NAMES = ["a", "b", "A", "dir/a", "dir.x/a", "dir/.hid", "__meta__", "__x__/y", ".dot", "a.b", "./a", "a/", "\u00e9", "x y", ""]
SUFFIXES = ["jpg", "JPG", "cls", "seg.png", "json", ".jpg", "Txt", "tar.gz", ""]
TYPES = [tarfile.REGTYPE] * 18 + [tarfile.DIRTYPE, tarfile.SYMTYPE]


def tar_make(rng):
    with tarfile.open("t.tar", "w", format=rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])) as tar:
        for _ in range(rng.randrange(1, 9)):
            info = tarfile.TarInfo(rng.choice(NAMES) + rng.choice(["", ".", "."]) + rng.choice(SUFFIXES))
            info.type = rng.choice(TYPES)
            info.linkname = "a" if info.type == tarfile.SYMTYPE else ""
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(20))) if info.isreg() else b""
            info.size = len(data)
            if info.name:
                tar.addfile(info, io.BytesIO(data))


def theirs():
    try:
        samples = list(webdataset.WebDataset("t.tar", shardshuffle=False, empty_check=False))
    except ValueError:
        return None
    return [(s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")}) for s in samples]


def ours():
    samples, rc, _ = tap.ls("t.tar")
    return None if rc else [(s["key"], tap.field_bytes(s)) for s in samples]


@tap.test
def random_tars_give_the_samples_of_the_webdataset_package():
    rng = random.Random(7)
    sound = 0
    for i in range(300):
        tar_make(rng)
        want = theirs()
        with tarfile.open("t.tar") as tar:
            tap.equal(ours(), want, "tar %d: %r" % (i, tar.getnames()))
        sound += want is not None
    assert sound > 100, sound


@tap.test
def tars_of_the_webdataset_writer_are_read():
    with webdataset.TarWriter("w.tar") as sink:
        for i in range(20):
            sink.write({"__key__": "dir/%03d" % i, "txt": "text %d" % i, "cls": i, "json": {"a": i}})
    samples, rc, err = tap.ls("w.tar")
    tap.equal((rc, err), (0, ""))
    want = [(s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")})
            for s in webdataset.WebDataset("w.tar", shardshuffle=False)]
    tap.equal([(s["key"], tap.field_bytes(s)) for s in samples], want)


if __name__ == "__main__":
    tap.main()
