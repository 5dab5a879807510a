#!/usr/bin/python3
"""Compares penstock-loader ls with webdataset on small tars: valid shards give the same samples, damaged ones an error
and whole samples only."""
import base64
import json
import os
import zlib

import tap

GOLDEN = json.load(open(os.path.join(tap.SRC, "tests/data/webdataset/golden.json")))["cases"]
DAMAGED = ("trunc_", "badsum_", "empty_file", "dup_")

# What the damaged shards held before they were damaged.
WHOLE = [
    {"a": {"jpg": b"x" * 600, "cls": b"1"}, "b": {"jpg": b"y" * 600, "cls": b"2"}},
    {"b": {"cls": b"7"}, "c": {"cls": b"8"}},
]


def unpack(case):
    shards = []
    for i, text in enumerate(case["shards"]):
        shards.append(tap.write("u%d" % i, zlib.decompress(base64.b64decode(text))))
    return shards


def sound(case):
    def check():
        samples, rc, err = tap.ls(*unpack(case))
        want = [
            (s["__key__"], s["__url__"], {k: base64.b64decode(v["b64"]) for k, v in s.items() if not k.startswith("__")})
            for s in case["samples"]
        ]
        tap.equal([(s["key"], s["shard"], tap.field_bytes(s)) for s in samples], want)
        tap.equal((rc, err), (0, ""))

    return check


def damaged(case):
    def check():
        samples, rc, err = tap.ls(*unpack(case))
        if case["name"].startswith("trunc_5632"):  # the first of two blocks of zeros is there: all samples are whole
            tap.equal((rc, [s["key"] for s in samples]), (0, ["a", "b", "b", "c"]))
            return
        # Cut between two members, a tar looks like one without an end mark: what is there is delivered.
        if case["name"].startswith(("trunc_2560", "trunc_4096", "trunc_5120")):
            tap.equal((rc, err), (0, ""))
            for s in samples:
                whole = WHOLE[int(s["shard"][1])][s["key"]]
                assert tap.field_bytes(s).items() <= whole.items(), s
            return
        tap.equal(rc, 1, "a damaged shard is an error")
        assert len(err.splitlines()) == 1 and "u0: " in err, err
        if case["name"].startswith("dup_"):
            want = {"b": {"jpg": b"3"}}
            tap.equal({s["key"]: tap.field_bytes(s) for s in samples}, want)
            return
        for s in samples:
            tap.equal(tap.field_bytes(s), WHOLE[int(s["shard"][1])].get(s["key"]), "a sample is whole: " + s["key"])
        tap.equal([s["key"] for s in samples if s["shard"] == "u1"], ["b", "c"][: 2 * (len(case["shards"]) > 1)],
                  "the shard after a damaged one is complete")

    return check


for case in GOLDEN:
    make = damaged if case["name"].startswith(DAMAGED) else sound
    function = make(case)
    function.__name__ = "loader-ls-as-webdataset-" + case["name"].replace("_", "-")
    tap.test(function)

if __name__ == "__main__":
    tap.main()
