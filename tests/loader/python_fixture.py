"""Shards and loaders that the tests of the Python package share."""
import tap

tap.python_package()  # or SKIP

import numpy

import penstock

FIELDS = {"image": penstock.Image("jpg", size=32), "label": penstock.Int("cls"), "text": penstock.Bytes("txt")}


def shards(n=3, per=10):
    for s in range(n):
        files = []
        for i in range(per):
            files += [("s%d/%02d.jpg" % (s, i), tap.read(tap.PHOTOS[(s * per + i) % len(tap.PHOTOS)])),
                      ("s%d/%02d.cls" % (s, i), b"%d" % (100 * s + i)),
                      ("s%d/%02d.txt" % (s, i), "ä".encode() * i)]
        tap.make_tar("t-%d.tar" % s, files)
    return "t-{0..%d}.tar" % (n - 1)


def loader(pattern=None, **options):
    return penstock.Loader(pattern or shards(), **{"batch": 4, "fields": FIELDS, **options})


def labels(batches):
    return [int(x) for b in batches for x in numpy.asarray(b["label"])]
