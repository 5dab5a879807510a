#!/usr/bin/python3
"""penstock-loader pack --from makes shards of Parquet rows; pack --classes makes them of one folder per
class, as in torchvision's ImageFolder."""
import json
import os
import subprocess
import sys
import tarfile

import tap

tap.python_environment(tap.DOCS[0], [], tap.DOCS[1], required=False)
tap.python_package()
os.environ["PENSTOCK_PYTHON"] = sys.executable

import penstock

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

PNG = b"\x89PNG\r\n\x1a\n rest"
WEBP = b"RIFF\x00\x00\x00\x00WEBP rest"


def table(path, rows, metadata=None, **how):
    if pyarrow is None:
        raise tap.Skip("needs pyarrow")
    t = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(t.replace_schema_metadata(metadata) if metadata else t, path, **how)


def photos(n, at=0):
    return [{"image": {"bytes": tap.read(tap.PHOTOS[i % len(tap.PHOTOS)]), "path": "x"}, "label": i % 3, "caption": "a %d" % i,
             "boxes": [[1.0, 2.0, 3.5, i]], "score": i / 4} for i in range(at, at + n)]


def pack(*args, rc=0):
    r = tap.run("pack", *args)
    tap.equal(r.returncode, rc, r.stderr)
    return (r.stdout if rc == 0 else r.stderr).decode()


def members(path):
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}


@tap.test
def parquet_images_and_labels_become_samples():
    table("x.parquet", photos(10), row_group_size=3)
    tap.equal(pack("--from", "x.parquet", "--max-count", "4", "--index", "image.bytes", "label", "out/t-%06d.tar"),
              "10 samples in 3 shards, %d bytes\n" % sum(os.path.getsize("out/t-%06d.tar" % i) for i in range(3)))
    tap.equal(sorted(os.listdir("out")), sorted("t-%06d.tar%s" % (i, x) for i in range(3) for x in ("", ".psx")))
    tap.equal(list(members("out/t-000002.tar")), ["%09d.%s" % (i, x) for i in (8, 9) for x in ("cls", "jpg")])
    batch = next(iter(penstock.Loader("out", 10, {"i": penstock.Bytes("jpg"), "y": penstock.Int("cls")}, order="none", format="numpy")))
    tap.equal(batch["y"].tolist(), [i % 3 for i in range(10)])
    tap.equal(list(batch["i"]) == [tap.read(tap.PHOTOS[i % len(tap.PHOTOS)]) for i in range(10)], True)
    pack("--from", "x.parquet", "--max-count", "4", "image.bytes", "label", "again/t-%06d.tar")
    for i in range(3):
        tap.equal(tap.read("out/t-%06d.tar" % i) == tap.read("again/t-%06d.tar" % i), True)


@tap.test
def parquet_files_in_a_folder_and_columns_of_all_kinds_are_read():
    os.mkdir("d")
    table("d/b.parquet", photos(3, 2))
    table("d/a.parquet", photos(2))
    said = json.loads(pack("--from", "d", "--json", "image.bytes=jpeg", "label=y.cls", "caption", "boxes", "score=float", "t-%d.tar.zst"))
    tap.equal(said, {"shards": 1, "samples": 5, "bytes": os.path.getsize("t-0.tar.zst")})
    tar = subprocess.run(["zstd", "-dc", "t-0.tar.zst"], capture_output=True, check=True).stdout
    tap.write("t.tar", tar)
    read = members("t.tar")
    tap.equal({k: v for k, v in read.items() if k.startswith("000000003.") and not k.endswith("jpeg")},
              {"000000003.float": b"0.75", "000000003.json": b"[[1.0, 2.0, 3.5, 3.0]]", "000000003.txt": b"a 3", "000000003.y.cls": b"0"})
    tap.equal(read["000000004.jpeg"], tap.read(tap.PHOTOS[4]))
    tap.equal(pack("--from", "d/*.parquet", "--force", "label", "t-%d.tar.zst").split(",")[0], "5 samples in 1 shard")
    table("m.parquet", [{"i": tap.read(tap.PHOTOS[0])}, {"i": PNG}, {"i": WEBP}])
    pack("--from", "m.parquet", "i", "m-%d.tar")
    tap.equal(list(members("m-0.tar")), ["000000000.jpg", "000000001.png", "000000002.webp"])


@tap.test
def parquet_rows_with_a_missing_value_are_left_out():
    rows = photos(4)
    rows[1]["label"] = None
    rows[2]["image"] = None
    table("x.parquet", rows)
    r = tap.run("pack", "--from", "x.parquet", "image.bytes", "label", "t-%d.tar")
    tap.equal((r.returncode, r.stderr), (0, b"penstock-loader pack: 2 rows that lack a value in some column are left out\n"))
    tap.equal(sorted(members("t-0.tar")), ["00000000%d.%s" % (i, x) for i in (0, 3) for x in ("cls", "jpg")])
    table("none.parquet", [{"a": None, "b": 1}])
    assert "no row has all of a, b" in pack("--from", "none.parquet", "a", "b", "n-%d.tar", rc=1)
    assert not os.path.exists("n-0.tar")


@tap.test
def parquet_class_names_are_written_to_classes_txt():
    features = {"info": {"features": {"label": {"names": ["bird", "boat", "cat"], "_type": "ClassLabel"}}}}
    table("x.parquet", photos(3), {"huggingface": json.dumps(features)})
    os.mkdir("o")
    pack("--from", "x.parquet", "image.bytes", "label", "o/t-%d.tar")
    tap.equal(tap.read("o/CLASSES.txt"), b"bird\nboat\ncat\n")


@tap.test
def parquet_errors_say_what_to_do():
    table("x.parquet", photos(2))
    for args, text in [
        (["nosuch.parquet", "a"], "--from nosuch.parquet: there is no such file"),
        ([".", "nosuch"], "x.parquet: there is no column nosuch; there are image, label, caption, boxes, score"),
        (["x.parquet", "image.nosuch"], "there is nothing at image.nosuch in its columns"),
        (["x.parquet", "image"], "column image: the image is in image.bytes: name that"),
        (["x.parquet", "label", "label"], "two columns would be .cls, the second one label: give one of them another suffix, as label=SUFFIX"),
        (["x.parquet", "label="], "COLUMN or COLUMN=SUFFIX is needed"),
    ]:
        said = pack("--from", *args, "o-%d.tar", rc=1)
        assert text in said, (args, said)
    table("y.parquet", [{"b": b"some bytes"}])
    assert "its bytes are not a JPEG, PNG or WebP: give their suffix by b=SUFFIX" in pack("--from", "y.parquet", "b", "o-%d.tar", rc=1)
    tap.write("z.parquet", b"no parquet")
    assert pack("--from", "z.parquet", "b", "o-%d.tar", rc=1).startswith("penstock-loader pack: ")
    assert "--from needs columns" in pack("--from", "x.parquet", "o-%d.tar", rc=2)
    assert "--from goes with --max-size" in pack("--from", "x.parquet", "--classes", "label", "o-%d.tar", rc=2)
    assert "--from goes with --max-size" in pack("--from", "x.parquet", "--resize", "10", "label", "o-%d.tar", rc=2)
    assert "o-%d-%d.tar" in pack("--from", "x.parquet", "label", "o-%d-%d.tar", rc=2)
    pack("--from", "x.parquet", "label", "o-%d.tar")
    assert "o-0.tar exists already" in pack("--from", "x.parquet", "label", "o-%d.tar", rc=1)


@tap.test
def parquet_errors_name_what_python_lacks():
    def run(**environment):
        return tap.run("pack", "--from", "x.parquet", "a", "o-%d.tar", env={**os.environ, **environment})

    r = run(PENSTOCK_PYTHON="/nosuch/python")
    tap.equal((r.returncode, r.stderr), (1, b"penstock-loader pack: --from needs Python: /nosuch/python: No such file or directory\n"))
    r = run(PYTHONPATH="")
    tap.equal(r.returncode, 1)
    assert b"--from needs the Python package penstock, which" in r.stderr, r.stderr
    os.makedirs("hide/pyarrow")
    tap.write("hide/pyarrow/__init__.py", b"raise ImportError('hidden')")
    r = run(PYTHONPATH=os.path.abspath("hide") + ":" + os.environ["PYTHONPATH"])
    tap.equal(r.returncode, 1)
    assert b"reads Parquet with pyarrow, which" in r.stderr and b"-m pip install pyarrow" in r.stderr, r.stderr


@tap.test
def class_folders_become_labels():
    for i, photo in enumerate(tap.PHOTOS[:6]):
        os.makedirs("f/%s/more" % "cba"[i % 3], exist_ok=True)
        tap.write("f/%s/%s%d.JPEG" % ("cba"[i % 3], "more/" * (i // 3), i), tap.read(photo))
    pack("--classes", "--index", "f", "o/t-%d.tar")
    tap.equal(tap.read("o/CLASSES.txt"), b"a\nb\nc\n")
    batch = next(iter(penstock.Loader("o", 6, {"i": penstock.Bytes("jpg;jpeg"), "y": penstock.Int("cls")}, order="none", format="numpy")))
    tap.equal(list(batch["__key__"]), ["a/2", "a/more/5", "b/1", "b/more/4", "c/0", "c/more/3"])
    tap.equal(batch["y"].tolist(), [0, 0, 1, 1, 2, 2])
    tap.equal(list(batch["i"]) == [tap.read(tap.PHOTOS[i]) for i in (2, 5, 1, 4, 0, 3)], True)


if __name__ == "__main__":
    tap.main()
