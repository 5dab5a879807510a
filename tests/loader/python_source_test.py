#!/usr/bin/python3
"""Sources of columns: Parquet files through pyarrow, and sources of a program's own."""
import errno
import gc
import io
import json
import os
import pickle
import random
import subprocess
import sys
import threading
import time

import tap

tap.python_environment(tap.DOCS[0], [], tap.DOCS[1], required=False)
tap.python_package(needed=("numpy",))

import numpy

import penstock

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    tap.skip_all("needs pyarrow")

GROUPS = ((5, 12, 3), (9,), (1, 7, 8, 4), (6, 6))  # rows of the row groups of each file
N = sum(map(sum, GROUPS))
FIELDS = {"y": penstock.Int("label"), "text": penstock.Text("text")}


def text_of(i):
    return "ä%d" % i * (i % 4)


def files(more=lambda i: {}, groups=GROUPS, prefix="x"):
    """Parquet files with these row groups; the label of each row is its number."""
    number = 0
    for f, sizes in enumerate(groups):
        tables = []
        for n in sizes:
            tables.append(pyarrow.Table.from_pylist(
                [{"label": i, "text": text_of(i), **more(i)} for i in range(number, number + n)]))
            number += n
        with pyarrow.parquet.ParquetWriter("%s-%d.parquet" % (prefix, f), tables[0].schema) as out:
            for table in tables:
                out.write_table(table)
    return prefix + "-*.parquet"


def tars(groups=GROUPS):
    """The same samples in tars, one for each row group, with indexes."""
    number = 0
    names = []
    for n in (n for sizes in groups for n in sizes):
        names.append("t-%03d.tar" % len(names))
        tap.make_tar(names[-1], [member for i in range(number, number + n) for member in (
            ("%03d.label" % i, b"%d" % i), ("%03d.text" % i, text_of(i).encode()))])
        number += n
    subprocess.run([tap.LOADER, "index", *names], check=True, capture_output=True)
    return names


def loader(shards, batch=4, **options):
    return penstock.Loader(shards, batch, **{"fields": FIELDS, "format": "numpy", "rank": 0, "world": 1, **options})


def rows(batch):
    return [(int(y), t, int(v), int(s), int(n)) for y, t, v, s, n in zip(
        batch["y"], batch["text"], batch["__valid__"], batch["__shard__"], batch["__sample__"])]


def raises(kind, function, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), "%r is not in %r" % (word, str(error))
        return error
    raise AssertionError("%s was not raised" % kind.__name__)


def drain(load):
    with load:
        return [rows(batch) for batch in load]


# -- The order is that of tars ----------------------------------------------------------------------------


@tap.test
def the_order_is_that_of_tars():
    shards = (files(), tars())
    for options in ({"order": "none"}, {"order": "shards"}, {"shuffle_window": 16}, {"lanes": 3, "shuffle_window": 9}, {"epoch": 5},
                    {"order": "permutation"}, {"skip": 7, "take": 40}, {"repeat": 2}, {"bucket": 2, "shuffle_window": 16},
                    {"order": list(range(N - 1, -1, -2))}, {"steps": 30}, {"homes": 2, "lanes": 4}):
        for end in ("split", "drop_last"):
            for world in (1, 3):
                if world > 1 and isinstance(options.get("order"), list):
                    continue
                for rank in range(world):
                    seen = [drain(loader(s, seed=7, end=end, rank=rank, world=world, **options)) for s in shards]
                    tap.equal(seen[0], seen[1], "%r %s %d/%d" % (options, end, rank, world))
    for s in shards:
        with loader(s, lanes=2) as load:
            tap.equal((len(load), load.samples()), (-(-N // 4), N))
            tap.equal([int(y) for y in load.get([0, N - 1, 17])["y"]], [0, N - 1, 17])


@tap.test
def a_state_continues_at_the_same_row_in_any_world():
    shards = (files(), tars())
    for at in (0, 1, 3, 6, 11):
        states = []
        for s in shards:
            with loader(s, global_batch=4, seed=3, shuffle_window=12) as load:
                it = iter(load)
                for _ in range(at):
                    next(it)
                states.append(json.loads(json.dumps(load.state_dict())))
                rest = [rows(b) for b in it]
            tap.equal(drain(loader(s, global_batch=4, seed=3, shuffle_window=12, state=states[-1])), rest, at)
        for world in (2, 4):
            for rank in range(world):
                seen = [drain(loader(s, global_batch=4, seed=3, shuffle_window=12, rank=rank, world=world, state=state))
                        for s, state in zip(shards, states)]
                tap.equal(seen[0], seen[1], (at, world, rank))
                assert seen[0]


@tap.test
def a_mix_of_datasets_is_that_of_tars():
    a, b = files(), files(groups=((20,), (4, 4, 30)), prefix="z")
    names = tars()
    more = ["u/" + name for name in names[:4]]
    os.mkdir("u")
    number = 0
    for name, n in zip(more, (20, 4, 4, 30)):
        tap.make_tar(name, [m for i in range(number, number + n) for m in (("%d.label" % i, b"%d" % i), ("%d.text" % i, text_of(i).encode()))])
        number += n
    subprocess.run([tap.LOADER, "index", *more], check=True, capture_output=True)
    seen = [drain(loader(s, mix=[3, 1], seed=2)) for s in ([a, b], ["::".join(names), "::".join(more)])]
    tap.equal(seen[0], seen[1])


@tap.test
def sample_weights_count_rows():
    weights = [float(i % 3) for i in range(N)]
    seen = [drain(loader(s, weights=weights, seed=2)) for s in (files(), tars())]
    tap.equal(seen[0], seen[1])
    raises(penstock.ConfigError, lambda: loader(files(), filter="label == 3"), "filter: not possible with columns")


# -- Values -------------------------------------------------------------------------------------------------


def members(table, wanted, n, **how):
    """The members of each row as bytes; none if there is no member."""
    pyarrow.parquet.write_table(table, "m.parquet", **how)
    fields = {name: penstock.Bytes(name, optional=1) for name in wanted}
    with loader("m.parquet", batch=5, fields=fields, order="none") as load:
        rows_of = [tuple(b[name][i] for name in wanted) for b in load for i in range(b.rows) if b["__valid__"][i]]
    tap.equal(len(rows_of), n)
    return {name: [row[k] for row in rows_of] for k, name in enumerate(wanted)}


def dtype_of(kind):
    """NumPy's type of Arrow's; to_pandas_dtype() needs pandas in some versions."""
    return numpy.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(str(kind), str(kind)))


def parsed(data):
    return numpy.load(io.BytesIO(data)) if data else None


@tap.test
def columns_of_all_types_are_members():
    n = 37
    r = random.Random(1)

    def some(make):
        return [None if r.random() < 0.3 else make(i) for i in range(n)]

    data = {
        "text": pyarrow.array(some(lambda i: "é%d" % i)), "large": pyarrow.array(some(lambda i: "L%d" % i), pyarrow.large_string()),
        "bin": pyarrow.array(some(lambda i: b"\0%d" % i)), "lbin": pyarrow.array(some(lambda i: b"x" * i), pyarrow.large_binary()),
        "fix": pyarrow.array(some(lambda i: b"%04d" % i), pyarrow.binary(4)),
        "dict": pyarrow.array(some(lambda i: "abc"[i % 3])).dictionary_encode(),
        "struct": pyarrow.array(some(lambda i: {"bytes": b"B%d" % i if i % 3 else None, "Deep": {"path": "p%d" % i}}))}
    for name, kind in (("i8", pyarrow.int8()), ("u8", pyarrow.uint8()), ("i16", pyarrow.int16()), ("u16", pyarrow.uint16()),
                       ("i32", pyarrow.int32()), ("u32", pyarrow.uint32()), ("i64", pyarrow.int64()), ("u64", pyarrow.uint64())):
        unsigned = name[0] == "u"
        bits = int(name[1:])
        data[name] = pyarrow.array(some(lambda i: r.randrange(0 if unsigned else -(1 << bits - 1), 1 << bits - (not unsigned))), kind)
    data["f32"] = pyarrow.array(some(lambda i: r.choice([r.random(), float("inf"), -0.0, 1e-42])), pyarrow.float32())
    data["f64"] = pyarrow.array(some(lambda i: r.choice([r.random(), float("-inf"), float("nan"), 5e-324])), pyarrow.float64())
    data["f16"] = pyarrow.array(some(lambda i: numpy.float16(i / 7)), pyarrow.float16())
    data["bool"] = pyarrow.array(some(lambda i: i % 3 == 0))
    lists = {"list": pyarrow.list_(pyarrow.int32()), "llist": pyarrow.large_list(pyarrow.uint16()), "fl": pyarrow.list_(pyarrow.float32(), 3),
             "bl": pyarrow.list_(pyarrow.bool_())}
    for name, kind in lists.items():
        size = (lambda i: 3) if name == "fl" else (lambda i: i % 5)
        each = (lambda make: [make(i) for i in range(n)]) if name == "fl" else some  # pyarrow writes no nulls of that type
        data[name] = pyarrow.array(each(lambda i: [bool(k % 2) if name == "bl" else k + i for k in range(size(i))]), kind)
    table = pyarrow.table(data)
    plain = [name for name in data if name != "struct" and name not in lists]
    wanted = [*plain, *lists, "struct.bytes", "struct.deep.path"]
    for how in ({}, {"row_group_size": 10}, {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False}):
        got = members(table, wanted, n, **how)
        for name in plain:
            for value, data_of in zip(table[name].to_pylist(), got[name]):
                if value is None:
                    tap.equal(data_of, b"", name)
                elif isinstance(value, str):
                    tap.equal(data_of.decode(), value, name)
                elif isinstance(value, bytes):
                    tap.equal(data_of, value, name)
                else:
                    text = data_of.decode()
                    number = dtype_of(table[name].type).type(float(text))
                    same = number == value or value != value and number != number
                    assert int(text) == value if isinstance(value, int) else same, (name, value, text)
        for name, kind in lists.items():
            for value, data_of in zip(table[name].to_pylist(), got[name]):
                array = parsed(data_of)
                tap.equal(None if array is None else array.tolist(), value, name)
                assert array is None or array.dtype == dtype_of(kind.value_type), (name, array.dtype)
        for value, b, p in zip(table["struct"].to_pylist(), got["struct.bytes"], got["struct.deep.path"]):
            tap.equal(b, (value or {}).get("bytes") or b"")
            tap.equal(p.decode(), value["Deep"]["path"] if value else "")


@tap.test
def fields_read_numbers_lists_and_images():
    photo = tap.read(tap.PHOTOS[0])
    rows_of = [{"image": {"bytes": photo, "path": "a"}, "label": i, "score": i / 3, "tokens": list(range(i, i + 9)), "box": [1.0, 2.0 + i]}
               for i in range(6)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows_of), "i.parquet", row_group_size=4)
    tap.make_tar("i.tar", [("%d.jpg" % i, photo) for i in range(6)])
    fields = {"image": penstock.Image("image.bytes", 32, crop="center"), "y": penstock.Int("label"),
              "s": penstock.Float("score", dtype="f64"), "t": penstock.Tokens("tokens", length=8), "b": penstock.Array("box")}
    with loader("i.parquet", batch=6, fields=fields, order="none") as load:
        batch = next(iter(load))
        tap.equal(batch["y"].tolist(), list(range(6)))
        tap.equal(batch["s"].tolist(), [i / 3 for i in range(6)])
        tap.equal(batch["t"].tolist(), [list(range(i, i + 8)) for i in range(6)])
        tap.equal(batch["b"].tolist(), [[1.0, 2.0 + i] for i in range(6)])
        tap.equal(list(batch["__key__"])[4], "i.parquet#1-0")
        with loader("i.tar", batch=6, fields={"image": penstock.Image("jpg", 32, crop="center")}, order="none") as tar:
            assert (batch["image"] == next(iter(tar))["image"]).all()


@tap.test
def rows_are_those_that_the_datasets_library_reads():
    try:
        import datasets
    except ImportError:
        raise tap.Skip("needs datasets") from None
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    images = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    photos = [tap.read(photo) for photo in tap.PHOTOS]
    made = {
        "images": datasets.Dataset.from_list([{"image": {"bytes": photos[i % len(photos)], "path": "p%d" % i}, "label": i % 2}
                                              for i in range(40)], features=images),
        "text": datasets.Dataset.from_list([{"text": "ß" * (i % 50), "id": i, "meta": {"url": "u%d" % i, "tags": ["x"]}} for i in range(900)]),
        "numbers": datasets.Dataset.from_list([{"x": i / 7, "n": -i, "tokens": list(range(i % 20)), "ok": i % 3 == 0} for i in range(700)])}
    fields = {
        "images": {"image.bytes": penstock.Bytes("image.bytes"), "image.path": penstock.Text("image.path"), "label": penstock.Int("label")},
        "text": {"text": penstock.Text("text"), "id": penstock.Int("id"), "meta.url": penstock.Text("meta.url")},
        "numbers": {"x": penstock.Float("x", dtype="f64"), "n": penstock.Int("n"), "ok": penstock.Int("ok"),
                    "tokens": penstock.Array("tokens", (0,), dtype="i64")}}
    for name, data in made.items():
        for k in range(3):
            data.shard(3, k, contiguous=True).to_parquet("%s-%d.parquet" % (name, k), batch_size=100)
        if name == "images":
            data = data.cast_column("image", datasets.Image(decode=False))
        theirs = datasets.load_dataset("parquet", data_files="%s-*.parquet" % name, cache_dir="cache", split="train")
        if name == "images":
            theirs = theirs.cast_column("image", datasets.Image(decode=False))
        tap.equal(len(theirs), len(data))
        with loader("%s-*.parquet" % name, 7, fields=fields[name], order="none") as load:
            tap.equal(load.samples(), len(theirs))
            at = 0
            for batch in load:
                for i in range(batch.rows):
                    if not batch["__valid__"][i]:
                        continue
                    row = theirs[at]
                    for field in fields[name]:
                        want = row
                        for part in field.split("."):
                            want = want[part]
                        have = batch[field][i]
                        tap.equal(have.tolist() if hasattr(have, "tolist") else have, want, (name, at, field))
                    at += 1
            tap.equal(at, len(theirs))


@tap.test
def other_types_are_refused_by_name():
    import datetime
    import decimal

    data = {"when": [datetime.datetime(2020, 1, 1)], "day": [datetime.date(2020, 1, 1)], "price": [decimal.Decimal("1.5")],
            "words": [["a", "b"]], "nested": [[[1]]], "y": [3]}
    pyarrow.parquet.write_table(pyarrow.table(data), "w.parquet")
    for name, kind in (("when", "timestamp"), ("day", "date"), ("price", "decimal"), ("words", "list of string"), ("nested", "list of list")):
        raises(penstock.Error, lambda: drain_any(loader("w.parquet", 1, fields={"f": penstock.Bytes(name)})),
               "column %s has the type %s" % (name, kind))
    with loader("w.parquet", 1, fields={"f": penstock.Int("y")}) as load:  # others are not read
        tap.equal(next(iter(load))["f"].tolist(), [3])
    pyarrow.parquet.write_table(pyarrow.table({"v": pyarrow.array([[1, None, 2]])}), "v.parquet")
    raises(penstock.DamagedSampleError, lambda: drain_any(loader("v.parquet", 1, fields={"f": penstock.Bytes("v")})),
           "column v: a list with a null in it")
    raises(penstock.MissingFieldError, lambda: drain_any(loader("w.parquet", 1, fields={"f": penstock.Int("nosuch")})), ".nosuch")


def drain_any(load):
    with load:
        return list(load)


# -- Files ----------------------------------------------------------------------------------------------------


@tap.test
def footers_are_read_once_and_kept_by_version():
    pattern = files()
    from penstock import source

    read, real = [], source._footer_read

    def counted(path, size):
        read.append(path)
        return real(path, size)

    source._footer_read = counted
    try:
        tap.equal(sorted(r[0] for b in drain(loader(pattern, index_dir="ix")) for r in b if r[2]), list(range(N)))
        tap.equal(sorted(read), ["x-%d.parquet" % i for i in range(4)])
        del read[:]
        tap.equal(len(drain(loader(pattern, index_dir="ix"))), -(-N // 4))
        tap.equal(read, [])
        os.utime("x-2.parquet", (1, 1))
        drain(loader(pattern, index_dir="ix"))
        tap.equal(read, ["x-2.parquet"])
        for name in os.listdir("ix"):
            tap.write(os.path.join("ix", name), b"damaged")
        tap.equal(len(drain(loader(pattern, index_dir="ix"))), -(-N // 4))
    finally:
        source._footer_read = real


@tap.test
def a_thousand_footers_of_a_slow_store_take_few_seconds():
    from penstock import source

    pyarrow.parquet.write_table(pyarrow.table({"label": [1]}), "one.parquet")
    for i in range(1000):
        os.link("one.parquet", "l-%04d.parquet" % i)
    real, source._pread = source._pread, lambda *how: (time.sleep(0.04), real(*how))[1]
    try:
        begin = time.monotonic()
        with loader("l-*.parquet", fields={"y": penstock.Int("label")}, steps=1) as load:
            next(iter(load))
        took = time.monotonic() - begin
        assert took < 4 * tap_slow(), took
    finally:
        source._pread = real


def tap_slow():
    return 5 if os.environ.get("LD_PRELOAD") else 1


@tap.test
def a_footer_larger_than_the_first_read_is_read():
    table = pyarrow.table({"label": list(range(3000)), "text": ["x"] * 3000, **{"c%d" % i: [0] * 3000 for i in range(60)}})
    pyarrow.parquet.write_table(table, "big.parquet", row_group_size=100)
    with open("big.parquet", "rb") as f:
        f.seek(-8, 2)
        assert int.from_bytes(f.read(4), "little") > 64 << 10
    tap.equal(sorted(r[0] for b in drain(loader("big.parquet", 64)) for r in b if r[2]), list(range(3000)))


@tap.test
def files_that_cannot_be_read_are_named():
    files()
    raises(penstock.ShardNotFoundError, lambda: loader("nosuch.parquet"), "nosuch.parquet")
    raises(penstock.Error, lambda: loader("nosuch-*.parquet"), "no file matches")
    tap.write("cut.parquet", tap.read("x-0.parquet")[:-9])
    raises(penstock.ShardReadError, lambda: loader("cut.parquet"), "cut.parquet", "PAR1")
    raises(penstock.ConfigError, lambda: loader(["x-0.parquet", "y.tar"]), "cannot be in one loader")
    raises(penstock.ConfigError, lambda: loader("x-0.parquet", source=penstock.Parquet(), filter="a == 1"), "filter")
    os.rename("x-0.parquet", "x-0")
    tap.equal(len(drain(loader("x-0", source=penstock.Parquet()))), 5)
    load = loader("x-1.parquet", order="none")
    load.close()
    os.makedirs("folder/a")
    os.rename("x-1.parquet", "folder/a/x.parquet")
    os.rename("x-2.parquet", "folder/y.parquet")
    tap.equal(len(drain(loader("folder", source=penstock.Parquet()))), 8)


@tap.test
def a_file_that_is_replaced_is_noticed():
    pattern = files(groups=((50,), (50,)))
    load = loader(pattern, order="none", depth=2, lanes=1)
    next(iter(load))
    with open("x-1.parquet", "ab") as f:
        f.write(b"more")
    raises(penstock.Error, lambda: [list(load), list(load)], "x-1.parquet#0", "replaced")
    load.close()


@tap.test
def rows_after_damage_are_bad_and_counts_hold():
    pattern = files(more=lambda i: {"pad": os.urandom(3000)}, groups=((40, 40), (40,)))
    data = bytearray(tap.read("x-0.parquet"))
    group = pyarrow.parquet.ParquetFile("x-0.parquet").metadata.row_group(1)
    at = group.column(1).data_page_offset
    data[at : at + 30] = os.urandom(30)
    tap.write("x-0.parquet", bytes(data))
    fields = {**FIELDS, "pad": penstock.Bytes("pad")}
    with loader(pattern, 10, fields=fields, on_error="skip", max_bad=1000, world=2, rank=0) as one:
        with loader(pattern, 10, fields=fields, on_error="skip", max_bad=1000, world=2, rank=1) as two:
            both = [list(one), list(two)]
            tap.equal(len(both[0]), len(both[1]))
            bad = sum(b.bad for batches in both for b in batches)
            good = sorted(int(y) for batches in both for b in batches for y, ok in zip(b["y"], b["__valid__"]) if ok)
            tap.equal(good, [*range(40), *range(80, 120)])
            tap.equal(bad, 40)
    raises(penstock.Error, lambda: drain_any(loader(pattern, 10, fields=fields)), "x-0.parquet#1")


MUTANTS = r"""
import os, random, sys
import penstock

base, seed, n = open("base.parquet", "rb").read(), int(sys.argv[1]), int(sys.argv[2])
footer = len(base) - 8 - int.from_bytes(base[-8:-4], "little")
fields = {"y": penstock.Int("label"), "text": penstock.Text("text"), "t": penstock.Array("tokens", (0,), dtype="i32"),
          "c": penstock.Text("kind"), "b": penstock.Bytes("image.bytes", optional=1)}
want = {i: ("t%d" % i * (i % 5), list(range(i % 7)), "abc"[i % 3], b"i%d" % i * 40 if i % 4 else b"") for i in range(120)}
right = wrong = refused = bad = 0
for k in range(n):
    r = random.Random(seed * 100000 + k)
    data = bytearray(base)
    where = r.random()
    in_footer = where < 0.5
    for _ in range(r.choice([1, 1, 2, 8])):
        at = r.randrange(footer, len(base)) if in_footer else r.randrange(footer)
        data[at] = r.choice([data[at] ^ 1 << r.randrange(8), 0, 255, r.randrange(256)])
    if r.random() < 0.1:
        cut = r.randrange(len(data))
        del data[cut : cut + r.randrange(1, 50)]
    open("mutant.parquet", "wb").write(data)
    try:
        with penstock.Loader("mutant.parquet", 16, fields, format="numpy", on_error="skip", max_bad=10000, rank=0, world=1,
                             threads=1, readers=1) as load:
            for _, batch in zip(range(40), load):
                bad += batch.bad
                for i in range(batch.rows):
                    if not batch["__valid__"][i]:
                        continue
                    y = int(batch["y"][i])
                    same = want.get(y) == (batch["text"][i], batch["t"][i].tolist(), batch["c"][i], batch["b"][i])
                    right += same
                    if not same:
                        wrong += 1
                        assert in_footer, (k, y)  # pages have checksums, a footer has none
    except (penstock.Error, OSError, ValueError, MemoryError) as e:
        refused += 1
    os.remove("mutant.parquet")
print(right, wrong, refused, bad)
"""


@tap.test
def mutants_of_a_file_give_errors_or_right_rows():
    table = pyarrow.table({
        "label": list(range(120)), "text": ["t%d" % i * (i % 5) for i in range(120)],
        "tokens": pyarrow.array([list(range(i % 7)) for i in range(120)], pyarrow.list_(pyarrow.int32())),
        "kind": pyarrow.array(["abc"[i % 3] for i in range(120)]).dictionary_encode(),
        "image": [{"bytes": b"i%d" % i * 40 if i % 4 else None} for i in range(120)]})
    pyarrow.parquet.write_table(table, "base.parquet", row_group_size=50, write_page_checksum=True)
    n = 500 if os.environ.get("PENSTOCK_TEST_LONG") == "1" or not os.environ.get("LD_PRELOAD") else 50
    r = subprocess.run([sys.executable, "-c", MUTANTS, "1", str(n)], capture_output=True, text=True, timeout=1200)
    tap.equal(r.returncode, 0, r.stderr[-2000:])
    right, wrong, refused, bad = map(int, r.stdout.split())
    assert right > 0 and refused > 0 and bad > 0, r.stdout


# -- Sources of a program ----------------------------------------------------------------------------------


class Table(penstock.Source):
    """Units u-K with `rows` rows each."""

    def __init__(self, rows=10, wrong=None):
        self.rows, self.wrong, self.seen = rows, wrong or {}, []

    def count(self, unit):
        if "count" in self.wrong:
            raise self.wrong["count"]
        return self.rows

    def read(self, unit, members, row):
        self.seen.append((unit, tuple(members), row))
        if "read" in self.wrong:
            raise self.wrong["read"]
        first = int(unit.split("-")[1]) * self.rows
        numbers = range(first + row, first + self.rows)
        return pyarrow.table({"LABEL": list(numbers), "text": [text_of(i) for i in numbers]})


@tap.test
def a_source_of_ones_own_is_read():
    units = ["u-%d" % i for i in range(6)]
    source = Table()
    with loader(units, source=source) as load:
        tap.equal(sorted(r[0] for b in load for r in rows(b) if r[2]), list(range(60)))
        tap.equal(len(load), 15)
        tap.equal(source.seen[0][1], ("label", "text"))
    both = [[r[0] for b in drain(loader(units, source=Table(), rank=rank, world=2)) for r in b if r[2]] for rank in (0, 1)]
    tap.equal(sorted(both[0] + both[1]), list(range(60)))
    with loader([units[:2], units[2:]], source=Table(), mix=[1, 2], steps=10) as load:
        tap.equal(len(list(load)), 10)
    again = pickle.loads(pickle.dumps(loader(units, source=Table(7))))
    tap.equal(again.samples(), 42)
    again.close()

    class Stream(Table):  # batches made by Python code as they are read
        def read(self, unit, members, row):
            table = Table.read(self, unit, members, row)
            return pyarrow.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=3)))

    tap.equal(sorted(r[0] for b in drain(loader(units, source=Stream())) for r in b if r[2]), list(range(60)))


@tap.test
def errors_of_a_source_are_told():
    def fails(source, *words, **options):
        raises(penstock.Error, lambda: drain(loader(["u-0", "u-1"], source=source, **options)), *words)

    fails(Table(wrong={"read": ValueError("no such table")}), "u-", "ValueError: no such table")
    fails(Table(wrong={"read": OSError(5, "the disk is on fire")}), "the disk is on fire")
    fails(Table(wrong={"count": RuntimeError("who knows")}), "who knows", world=2, rank=0)
    # what a reader that is told to stop returns; what is no errno; what is no UTF-8; what is no Exception
    fails(Table(wrong={"read": OSError(errno.ECANCELED, "the request was cancelled")}), "the request was cancelled")
    fails(Table(wrong={"read": OSError(-5, "less than nothing")}), "less than nothing")
    fails(Table(wrong={"read": OSError("five", "no number")}), "no number")
    fails(Table(wrong={"read": ValueError("no file \udcff")}), "no file \\udcff")
    fails(Table(wrong={"read": SystemExit("enough")}), "SystemExit: enough")

    class Less(Table):
        def held(self, unit, members):
            return -1

    fails(Less(), "held() returned -1")

    class Wrong(Table):
        def read(self, unit, members, row):
            return [1, 2]

    fails(Wrong(), "no __arrow_c_stream__")

    class Fewer(Table):
        def read(self, unit, members, row):
            return Table.read(self, unit, members, row).slice(0, 3)

    fails(Fewer(), "its source says 10", world=2, rank=0)
    for iterable in (iter([1]), [{"label": 1}], (i for i in range(3))):
        raises(TypeError, lambda: loader(["u-0"], source=iterable), "cannot be shuffled, divided among ranks or resumed")
    raises(TypeError, lambda: loader(["u-0"], source=object()), "count() and read()")
    raises(penstock.ConfigError, lambda: loader(["u\n0"], source=Table()), "line ends")
    raises(penstock.ConfigError, lambda: loader([], source=Table()), "no unit")
    with open("line\nend.parquet", "wb"):
        raises(penstock.ConfigError, lambda: loader("line*.parquet"), "line ends")
    os.unlink("line\nend.parquet")


@tap.test
def what_a_source_holds_counts_in_the_budget():
    class Holds(Table):
        def held(self, unit, members):
            return 100 << 20

    used = []
    for kind in (Table, Holds):
        budget = penstock.Budget("512M")
        with loader(["u-%d" % i for i in range(4)], source=kind(3000), lanes=1, shuffle_window=16, budget=budget) as load:
            next(iter(load))
            used.append(budget.used)
        gc.collect()
    assert used[1] - used[0] >= 90 << 20, used


@tap.test
def a_source_cannot_call_its_loader():
    ready, over, made, said = threading.Event(), threading.Event(), [], []

    class Calls(Table):
        def read(self, unit, members, row):
            assert ready.wait(20)
            try:
                made[0].set_epoch(3)
            except RuntimeError as error:
                said.append(str(error))
            over.set()
            return Table.read(self, unit, members, row)

    made.append(loader(["u-%d" % i for i in range(4)], source=Calls()))
    ready.set()
    assert over.wait(20)
    tap.equal(said[:1], ["a map or source cannot call its own loader, which waits for it"])
    tap.equal(len(list(made[0])), 10)
    made[0].close()


@tap.test
def a_loader_closes_while_its_source_reads():
    gate, began = threading.Event(), threading.Event()

    class Waits(Table):
        def read(self, unit, members, row):
            began.set()
            gate.wait(20)
            return Table.read(self, unit, members, row)

    load = loader(["u-0", "u-1"], source=Waits())
    began.wait(20)
    threading.Timer(0.3, gate.set).start()
    load.close()
    gc.collect()


ENDS = r"""
import sys, time, threading
import pyarrow, penstock

class Slow(penstock.Source):
    def count(self, unit):
        return 1000
    def read(self, unit, members, row):
        def batches():
            for i in range(row, 1000):
                time.sleep(0.001)
                yield pyarrow.record_batch({"label": [i]})
        return pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("label", pyarrow.int64())]), batches())

load = penstock.Loader(["a", "b", "c"], 4, {"y": penstock.Int("label")}, source=Slow(), rank=0, world=1)
it = iter(load)
next(it)
if sys.argv[1] == "thread":
    threading.Thread(target=lambda: [None for _ in it], daemon=True).start()
    time.sleep(0.1)
if sys.argv[1] == "fork":
    import os, warnings
    warnings.simplefilter("ignore")
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print("over")
"""


@tap.test
def the_interpreter_ends_while_a_source_is_read():
    for how in ("plain", "thread", "fork"):
        r = subprocess.run([sys.executable, "-c", ENDS, how], capture_output=True, text=True, timeout=100)
        tap.equal((r.returncode, r.stdout), (0, "over\n"), r.stderr)


@tap.test
def without_pyarrow_the_error_says_what_to_install():
    files()
    os.makedirs("hide/pyarrow")
    tap.write("hide/pyarrow/__init__.py", b"raise ImportError('hidden')")
    r = subprocess.run([sys.executable, "-c", "import penstock; penstock.Loader('x-*.parquet')"], capture_output=True, text=True,
                       env={**os.environ, "PYTHONPATH": os.path.abspath("hide") + ":" + os.environ["PYTHONPATH"]})
    assert "-m pip install pyarrow" in r.stderr and "Parquet files are read with pyarrow" in r.stderr, r.stderr


if __name__ == "__main__":
    tap.main()
