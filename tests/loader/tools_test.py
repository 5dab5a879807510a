#!/usr/bin/python3
"""penstock-loader pack, split, cat and doctor: shards that other programs read, the same bytes every time, and
repairs that lose nothing."""
import base64
import contextlib
import glob
import hashlib
import gzip
import io
import json
import os
import resource
import re
import shutil
import subprocess
import tarfile
import zlib

import tap
from PIL import Image, ImageChops, ImageOps, ImageStat

SAMPLES = 24


def tool(*args, code=0, **kwargs):
    r = tap.run(*args, **kwargs)
    assert r.returncode == code, (args, r.returncode, r.stdout[-500:], r.stderr[-500:])
    return r


def members(path):
    """(name, bytes) as Python's tarfile reads them."""
    with tarfile.open(path) as t:
        return [(m.name, t.extractfile(m).read()) for m in t if m.isfile()]


def folder(root="in", n=SAMPLES, classes=3):
    """Makes an ImageFolder: root/CLASS/N.jpg, each with an N.json; and files that belong to no sample."""
    for i in range(n):
        place = os.path.join(root, "class%d" % (i % classes))
        os.makedirs(place, exist_ok=True)
        shutil.copy(tap.PHOTOS[i % len(tap.PHOTOS)], os.path.join(place, "%02d.jpg" % i))
        with open(os.path.join(place, "%02d.json" % i), "w") as f:
            json.dump({"i": i}, f)
    for extra in ("README", ".hidden.jpg", "class0/.DS_Store"):
        with open(os.path.join(root, extra), "w") as f:
            f.write("x")


def sums(pattern, n):
    return [hashlib.sha256(tap.read(pattern % i)).hexdigest() for i in range(n)]


@tap.test
def pack_writes_shards_that_tarfile_and_the_loader_read():
    folder()
    r = tool("pack", "--max-count", "10", "in", "out-%03d.tar")
    assert b"24 samples in 3 shards" in r.stdout, r.stdout
    assert b"left out 1 file without a suffix" in r.stderr, r.stderr
    got = [m for i in range(3) for m in members("out-%03d.tar" % i)]
    want = sorted(("class%d/%02d.%s" % (i % 3, i, s), tap.read("in/class%d/%02d.%s" % (i % 3, i, s)))
                  for i in range(SAMPLES) for s in ("jpg", "json"))
    tap.equal(got, want)
    listed, code, _ = tap.ls("out-{000..002}.tar")
    tap.equal((len(listed), code), (SAMPLES, 0))
    for i in range(3):
        subprocess.run(["tar", "-tf", "out-%03d.tar" % i], check=True, stdout=subprocess.DEVNULL)
        with tarfile.open("out-%03d.tar" % i) as t:
            for m in t:
                tap.equal((m.mtime, m.uid, m.gid, m.uname, m.mode), (0, 0, 0, "", 0o444))
    assert not [f for f in os.listdir(".") if "tmp" in f]


@tap.test
def pack_gives_the_same_bytes_for_any_threads_and_dates():
    folder()
    tool("pack", "--max-size", "300K", "--threads", "1", "in", "a-%d.tar")
    n = len([f for f in os.listdir(".") if f.startswith("a-")])
    assert n > 3, n
    for dirpath, _, files in os.walk("in"):
        for f in files:
            os.utime(os.path.join(dirpath, f), (1, 1))
    shutil.copytree("in", "again")
    tool("pack", "--max-size", "300K", "--threads", "7", "again", "b-%d.tar")
    tap.equal(sums("b-%d.tar", n), sums("a-%d.tar", n))
    for i in range(n):
        assert os.path.getsize("a-%d.tar" % i) <= 300 * 1024 + 1024 or len(members("a-%d.tar" % i)) == 2
    tool("pack", "--shuffle", "1", "in", "s-%d.tar")
    tool("pack", "--shuffle", "1", "in", "t-%d.tar")
    tool("pack", "--shuffle", "2", "in", "u-%d.tar")
    tap.equal(sums("s-%d.tar", 1), sums("t-%d.tar", 1))
    assert sums("s-%d.tar", 1) != sums("u-%d.tar", 1)
    tap.equal(sorted(members("s-0.tar")), sorted(members("u-0.tar")))


@tap.test
def pack_numbers_classes_in_the_order_of_names():
    folder()
    tool("pack", "--classes", "--index", "in", "out-%06d.tar")
    got = dict(members("out-000000.tar"))
    for i in range(SAMPLES):
        tap.equal(got["class%d/%02d.cls" % (i % 3, i)], b"%d" % (i % 3))
    tap.equal(tap.read("CLASSES.txt"), b"class0\nclass1\nclass2\n")
    assert os.path.exists("out-000000.tar.psx")
    r = tool("bench", "--json", "--image", "16", "--epochs", "1", "out-000000.tar")
    tap.equal(json.loads(r.stdout)["samples"], SAMPLES)


@tap.test
def pack_of_classes_makes_a_sample_of_each_image():
    def put(*names):
        shutil.rmtree("in", ignore_errors=True)
        for name in names:
            os.makedirs(os.path.dirname("in/" + name), exist_ok=True)
            shutil.copy(tap.PHOTOS[0], "in/" + name)

    def packed():
        r = tool("pack", "--force", "--classes", "in", "out-%d.tar")
        return [m[0] for m in members("out-0.tar")], r

    put("cat/Screenshot 2026-01-01 at 10.22.33.png", "cat/Screenshot 2026-01-01 at 10.22.41.png", "dog/2024.05.01_a.jpg",
        "dog/2024.05.02_b.jpg", "dog/2024.05.02_b.json", "dog/notes.txt", "dog/LICENSE", "list.csv", "dog/sub.d/x.1.JPG")
    got, r = packed()
    tap.equal(got, ["cat/Screenshot 2026-01-01 at 10_22_33.cls", "cat/Screenshot 2026-01-01 at 10_22_33.png",
                    "cat/Screenshot 2026-01-01 at 10_22_41.cls", "cat/Screenshot 2026-01-01 at 10_22_41.png",
                    "dog/2024_05_01_a.cls", "dog/2024_05_01_a.jpg", "dog/2024_05_02_b.cls", "dog/2024_05_02_b.jpg",
                    "dog/2024_05_02_b.json", "dog/sub.d/x_1.JPG", "dog/sub.d/x_1.cls"])
    assert b"5 samples in 1 shard" in r.stdout, r.stdout
    tap.equal(sorted(line.split(b"in/")[1] for line in r.stderr.splitlines() if b"in/" in line), [b"dog/LICENSE", b"dog/notes.txt", b"list.csv"])
    assert b"left out 3 files" in r.stderr, r.stderr
    for names in (("cat/a.b.jpg", "cat/a_b.jpg"), ("cat/a.b.jpg", "cat/a_b.png"), ("cat/a.jpg", "cat/a.png"), ("cat/a.jpg", "cat/a.JPG"),
                  ("cat/a.b.jpg", "cat/a_b.json"), ("cat/a.b.flac", "cat/a_b.json")):
        put(*names)
        r = tool("pack", "--force", "--classes", "in", "out-%d.tar", code=1)
        assert all(("in/" + name).encode() in r.stderr for name in names), r.stderr
    put("cat/a.b.flac", "cat/a.b.json", "dog/c.flac")  # no images: each stem is a sample
    tap.equal(packed()[0], ["cat/a_b.cls", "cat/a_b.flac", "cat/a_b.json", "dog/c.cls", "dog/c.flac"])


@tap.test
def pack_of_classes_leaves_out_images_that_no_loader_decodes():
    def put(*names):
        shutil.rmtree("in", ignore_errors=True)
        for name in names:
            os.makedirs(os.path.dirname("in/" + name), exist_ok=True)
            shutil.copy(tap.PHOTOS[0], "in/" + name)

    put("cat/a.jpg", "cat/b.HEIC", "cat/b.json", "cat/c.jpg", "cat/c.heic", "dog/d.png", "dog/e.tiff")
    r = tool("pack", "--force", "--classes", "in", "out-%d.tar")
    tap.equal([m[0] for m in members("out-0.tar")], ["cat/a.cls", "cat/a.jpg", "cat/c.cls", "cat/c.jpg", "dog/d.cls", "dog/d.png"])
    assert b"left out 3 images that the loader cannot decode, such as in/cat/b.HEIC; convert them to JPEG" in r.stderr, r.stderr
    assert b"left out 1 file that is not of an image:" in r.stderr and b"in/cat/b.json" in r.stderr, r.stderr
    put("cat/a.heic", "dog/b.heic", "dog/b.json")  # for a decoder of the user's own
    r = tool("pack", "--force", "--classes", "in", "out-%d.tar")
    tap.equal([m[0] for m in members("out-0.tar")], ["cat/a.cls", "cat/a.heic", "dog/b.cls", "dog/b.heic", "dog/b.json"])
    assert b"packed 2 images that the loader cannot decode, such as in/" in r.stderr and b"decode=" in r.stderr, r.stderr


@tap.test
def pack_and_show_count_images_that_exif_rotates():
    def says(r):
        return [line for line in r.stderr.splitlines() if b"EXIF" in line]

    folder(n=6)
    for name, orientation in (("class1/01", 6), ("class2/02", 3), ("class0/03", 1)):
        photo = Image.open("in/%s.jpg" % name)
        exif = photo.getexif()
        exif[0x112] = orientation
        exif[0x10e] = "x" * 60000  # a long segment, as with a preview
        photo.save("in/%s.jpg" % name, exif=exif)
    r = tool("pack", "--classes", "in", "out-%d.tar")
    assert len(says(r)) == 1 and b"2 of 6 images are rotated by EXIF" in r.stderr and b"orient=1" in r.stderr, r.stderr
    r = tool("show", "--image", "16", "-o", "sheet.png", "out-0.tar")
    assert len(says(r)) == 1 and b"2 of 6 images are rotated by EXIF" in r.stderr and b"--resize" in r.stderr, r.stderr
    tap.equal(says(tool("show", "--image", "16", "--image-option", "orient=1", "-o", "sheet.png", "out-0.tar")), [])
    tap.equal(says(tool("pack", "--force", "--classes", "--resize", "64", "in", "out-%d.tar")), [])  # these were rotated
    tap.equal(says(tool("show", "--image", "16", "-o", "sheet.png", "out-0.tar")), [])
    r = tool("pack", "--force", "--classes", "--resize", "10000", "in", "out-%d.tar")  # and these stay as they are
    assert b"2 of 6 images are rotated by EXIF" in r.stderr, r.stderr


@tap.test
def pack_takes_names_and_labels_from_a_list():
    folder()
    with open("list.txt", "w") as f:
        f.write("# a comment\n\nin/class0/00.jpg\tfirst\t7\nin/class0/00.json\tfirst\nin/class1/01.jpg\n")
    tool("pack", "@list.txt", "out-%d.tar")
    tap.equal([m[0] for m in members("out-0.tar")], ["first.cls", "first.jpg", "first.json", "in/class1/01.jpg"])
    tap.equal(dict(members("out-0.tar"))["first.cls"], b"7")
    tool("pack", "--force", "@-", "out-%d.tar", input=b"in/class2/02.jpg\n")
    tap.equal([m[0] for m in members("out-0.tar")], ["in/class2/02.jpg"])
    os.makedirs("elsewhere")
    with open("elsewhere/list.txt", "w") as f:
        f.write("../in/class2/02.jpg\tk\n")
    tool("pack", "--force", "@elsewhere/list.txt", "out-%d.tar")
    tap.equal([m[0] for m in members("out-0.tar")], ["k.jpg"])


@tap.test
def pack_takes_one_label_for_each_sample():
    folder()
    with open("x.txt", "w") as f, open("list.txt", "w") as to:
        f.write("x")
        to.write("in/class0/00.jpg\tk\t7\nin/class0/00.json\tk\nx.txt\tk\t7\n")
    tool("pack", "@list.txt", "out-%d.tar")
    tap.equal([m[0] for m in members("out-0.tar")], ["k.cls", "k.jpg", "k.json", "k.txt"])
    with open("list.txt", "w") as f:
        f.write("in/class0/00.jpg\tk\t7\nin/class0/00.json\tk\t8\n")
    r = tool("pack", "--force", "@list.txt", "out-%d.tar", code=1)
    assert b"sample k has two labels: 7 (" in r.stderr, r.stderr


@tap.test
def pack_keeps_long_names():
    deep = "d" * 120 + "/" + "e" * 90
    os.makedirs("in/" + deep)
    names = [deep + "/x.txt", deep + "/" + "n" * 200 + ".txt", "d" * 120 + "/short.txt", "ü" * 60 + ".txt"]
    for i, name in enumerate(names):
        with open("in/" + name, "w") as f:
            f.write(str(i))
    tool("pack", "in", "out-%d.tar")
    tap.equal(dict(members("out-0.tar")), {name: b"%d" % i for i, name in enumerate(names)})
    tap.equal(len(tap.ls("out-0.tar")[0]), 4)


@tap.test
def pack_writes_seekable_zstd_shards():
    folder(n=60)
    tool("pack", "in", "plain-%d.tar")
    tool("pack", "--zstd", "1", "in", "out-%d.tar.zst")
    whole = subprocess.run(["zstd", "-dc", "out-0.tar.zst"], check=True, capture_output=True).stdout
    assert whole == tap.read("plain-0.tar")
    tap.equal(tool("ls", "--json", "out-0.tar.zst").stdout.count(b"\n"), 60)
    data = tap.read("out-0.tar.zst")
    tap.equal(data[-4:], bytes.fromhex("b1ea928f"))
    frames = int.from_bytes(data[-9:-5], "little")
    table = data[-9 - 8 * frames:-9]
    tap.equal(sum(int.from_bytes(table[8 * i + 4:8 * i + 8], "little") for i in range(frames)), len(whole))
    tap.equal(sum(int.from_bytes(table[8 * i:8 * i + 4], "little") for i in range(frames)),
              len(data) - 8 * frames - 9 - 8)


def shrunk(size, to):
    w, h = size
    if min(w, h) <= to:
        return size
    return (to, to * h // w) if w <= h else (to * w // h, to)


@tap.test
def pack_resizes_and_converts_images():
    folder(n=6)
    Image.new("RGB", (40, 30), (200, 10, 10)).save("in/class0/small.jpg")  # smaller than --resize asks for
    shutil.copy("in/class0/00.jpg", "in/class0/left.front.JPEG")
    turned = Image.open("in/class1/01.jpg")
    exif = turned.getexif()
    exif[0x112] = 6  # a quarter turn clockwise
    turned.save("in/class0/turned.jpg", exif=exif, quality=95)
    Image.new("P", (300, 300), 5).save("in/class0/small.seg.png")
    plain = {os.path.relpath(os.path.join(d, f), "in"): os.path.join(d, f)
             for d, _, files in os.walk("in") for f in files if f not in ("README", ".DS_Store", ".hidden.jpg")}
    for args, kind in ((("--to", "webp"), "WEBP"), (("--to", "jpeg", "--quality", "95"), "JPEG"), ((), "JPEG")):
        tool("pack", "--force", "--resize", "64", *args, "in", "out-%d.tar")
        got = dict(members("out-0.tar"))
        want = {}
        for name, path in plain.items():
            base, ext = os.path.splitext(name)
            if ext.lower() in (".jpg", ".jpeg") and kind == "WEBP":
                ext = ".webp"
            want[base + ext] = path
        tap.equal(sorted(got), sorted(want))
        for name, path in want.items():
            if not path.lower().endswith((".jpg", ".jpeg")):
                assert got[name] == tap.read(path), name
                continue
            image, before = Image.open(io.BytesIO(got[name])), ImageOps.exif_transpose(Image.open(path)).convert("RGB")
            size = shrunk(before.size, 64)
            tap.equal((image.format, image.size, len(image.getexif())), (kind, size, 0), name)
            if name.endswith("small.jpg"):
                assert got[name] == tap.read(path)  # small enough, so it stays as it is
            off = ImageStat.Stat(ImageChops.difference(image.convert("RGB"), before.resize(size, Image.BILINEAR))).mean
            assert max(off) < 9, (name, off)
    # The bytes are the same for any number of threads, and a loader reads the shards.
    for n, threads in (("a", "1"), ("b", "3")):
        tool("pack", "--resize", "50", "--to", "webp", "--max-count", "2", "--threads", threads, "in", n + "-%d.tar")
    assert sums("a-%d.tar", 4) == sums("b-%d.tar", 4)
    out = tool("bench", "--json", "--image", "32", "--batch", "2", "--epochs", "1", "--field", "webp;front.webp=image",
               "a-1.tar").stdout
    tap.equal(json.loads(out)["skipped"], 0)


@tap.test
def pack_names_the_image_that_it_cannot_convert():
    os.mkdir("in")
    tap.write("in/a.jpg", b"no picture")
    r = tool("pack", "--resize", "64", "in", "out-%d.tar", code=1)
    assert b"in/a.jpg: image: unknown format" in r.stderr, r.stderr
    assert not os.path.exists("out-0.tar")
    tool("pack", "in", "out-%d.tar")  # without image options a .jpg is not decoded
    Image.new("RGB", (99, 99)).save("in/a.jpg", "png")
    r = tool("pack", "--force", "--resize", "64", "in", "out-%d.tar", code=1)
    assert b"in/a.jpg: neither JPEG nor WebP" in r.stderr and b"--to jpeg or --to webp" in r.stderr, r.stderr
    tool("pack", "--force", "--resize", "64", "--to", "jpeg", "in", "out-%d.tar")
    Image.new("RGB", (9, 9)).save("in/a.webp")
    r = tool("pack", "--force", "--to", "webp", "in", "out-%d.tar", code=1)
    assert b"two files would be called a.webp" in r.stderr, r.stderr
    tool("pack", "--force", "--to", "webp", "--images", "none", "in", "out-%d.tar")
    os.mkdir("wide")
    Image.new("RGB", (16384, 1)).save("wide/a.jpg")
    r = tool("pack", "--to", "webp", "wide", "wide-%d.tar", code=1)
    assert b"16384 x 1: cannot become a WebP (at most 16383 a side)" in r.stderr, r.stderr


@tap.test
def pack_refuses_wrong_arguments_with_a_reason():
    folder()
    os.mkdir("folder-0.tar")
    for args, code, word in [
            (("pack", "in", "out.tar"), 2, b"%06d"),
            (("pack", "in", "out-%d-%d.tar"), 2, b"one number"),
            (("pack", "in", "out-%s.tar"), 2, b"one number"),
            (("pack", "--zstd", "3", "in", "out-%d.tar"), 2, b".zst"),
            (("pack", "--zstd", "99", "in", "out-%d.tar.zst"), 2, b"1 to 19"),
            (("pack", "--resize", "0", "in", "out-%d.tar"), 2, b"--resize 0"),
            (("pack", "--to", "png", "in", "out-%d.tar"), 2, b"jpeg|webp"),
            (("pack", "--quality", "101", "in", "out-%d.tar"), 2, b"--quality 101"),
            (("pack", "missing", "out-%d.tar"), 1, b"missing"),
            (("pack", "in/README", "out-%d.tar"), 1, b"@in/README"),
            (("pack", "@missing", "out-%d.tar"), 1, b"missing"),
            (("pack", "--classes", "@x", "out-%d.tar"), 2, b"--classes"),
            (("pack", "--classes", "in/class0", "out-%d.tar"), 1, b"no folders"),
            (("pack", "in", "no/where/out-%d.tar"), 1, b"no/where: cannot make this directory: No such file or directory; make the one above it first"),
            (("pack", "in"), 2, b"--help"),
            (("pack", "in", "x" * 245 + "-%d.tar"), 1, b": cannot create: File name too long"),
            (("pack", "--force", "in", "folder-%d.tar"), 1, b"folder-0.tar: cannot finish it: Is a directory"),
            (("index", *["--column", "c"] * 65, "x.tar"), 2, b"--column"),
    ]:
        r = tool(*args, code=code)
        assert word in r.stderr, (args, r.stderr)
    r = tool("pack", "@-", "out-%d.tar", code=1, input=b"in/class0/00.jpg\nin/class0\n")
    assert b"line 2: in/class0: is not an ordinary file" in r.stderr, r.stderr
    r = tool("pack", "@-", "out-%d.tar", code=1, input=b"in/class0/00.jpg\tk\t-1\n")
    assert b'line 1: label "-1" is not a number of 0 or more' in r.stderr, r.stderr
    with open("list.txt", "w") as f:
        f.write("in/class0/00.jpg\tk\nin/class0/03.jpg\tk\n")
    r = tool("pack", "@list.txt", "out-%d.tar", code=1)
    assert b"two files would be called k.jpg" in r.stderr, r.stderr
    tool("pack", "in", "out-%d.tar")
    before = tap.read("out-0.tar")
    r = tool("pack", "in", "out-%d.tar", code=1)
    assert b"out-0.tar exists already; --force overwrites it" in r.stderr, r.stderr
    tap.equal(tap.read("out-0.tar"), before)
    os.symlink("..", "in/class0/loop")
    r = tool("pack", "--force", "in", "out-%d.tar", code=1)
    assert b"loop" in r.stderr, r.stderr
    tap.equal(sorted(f for f in os.listdir(".") if f.startswith("out")), ["out-0.tar"])


@tap.test
def repack_reads_hard_links():
    def make(name, target, mode="w"):
        with tarfile.open(name, mode) as t:
            for member in "a.txt", "b.txt", "LICENSE":
                info = tarfile.TarInfo(member)
                if member == "a.txt":
                    info.size = 4
                else:
                    info.type, info.linkname = tarfile.LNKTYPE, target if member == "b.txt" else "elsewhere"
                t.addfile(info, io.BytesIO(b"text"))

    make("h.tar", "./a.txt")
    tool("pack", "--repack", "--force", "h.tar", "out-%d.tar")
    tap.equal(members("out-0.tar"), [("a.txt", b"text"), ("b.txt", b"text")])
    tap.equal(tool("pack", "--repack", "--field", "txt", "h.tar", "-").stdout, b"texttext")
    make("h.tar", "nosuch.txt")
    assert b'b.txt: a hard link to "nosuch.txt"' in tool("pack", "--repack", "--force", "h.tar", "out-%d.tar", code=1).stderr
    make("h.tar.gz", "a.txt", "w:gz")
    assert b"compressed shard" in tool("pack", "--repack", "--force", "h.tar.gz", "out-%d.tar", code=1).stderr


@tap.test
def repack_by_size_parts_and_shares_keeps_every_sample():
    folder()
    tool("pack", "--max-count", "12", "in", "in-%d.tar")
    want = [m for i in range(2) for m in members("in-%d.tar" % i)]
    tool("pack", "--repack", "--max-count", "5", "in-{0..1}.tar", "a-%02d.tar")
    tap.equal([m for i in range(5) for m in members("a-%02d.tar" % i)], want)
    tap.equal([len(members("a-%02d.tar" % i)) for i in range(5)], [10, 10, 10, 10, 8])
    r = tool("pack", "--repack", "--json", "--parts", "4", "in-0.tar", "in-1.tar", "b-%d.tar.zst")
    tap.equal([json.loads(line)["samples"] for line in r.stdout.splitlines()], [6] * 4)
    tap.equal(sorted(s["key"] for i in range(4) for s in tap.ls("b-%d.tar.zst" % i)[0]),
              sorted(s["key"] for s in tap.ls("in-{0..1}.tar")[0]))
    tool("pack", "--repack", "--shares", "train=0.7,val=0.3", "in-{0..1}.tar", "{}-%d.tar")
    train, val = members("train-0.tar"), members("val-0.tar")
    tap.equal(sorted(train + val), sorted(want))
    assert 0 < len(val) < len(train)
    tool("pack", "--repack", "--shares", "train=0.7,val=0.3", "in-1.tar", "again-{}-%d.tar")
    assert set(members("again-val-0.tar")) <= set(val), "the share of a key does not depend on other keys"
    for args, word in [(("--shares", "a=0.5", "in-0.tar", "{}-%d.tar"), b"less than 1"),
                       (("--shares", "a=0.5,b=0.6", "in-0.tar", "{}-%d.tar"), b"more than 1"),
                       (("--shares", "a=0.5,a=0.5", "in-0.tar", "{}-%d.tar"), b"given twice"),
                       (("--shares", "a=x", "in-0.tar", "{}-%d.tar"), b"NAME=SHARE"),
                       (("--shares", "a=1", "in-0.tar", "x-%d.tar"), b"{}"),
                       (("--parts", "2", "--shares", "a=1", "in-0.tar", "{}-%d.tar"), b"cannot be used together"),
                       (("in-0.tar",), b"--help")]:
        r = tool("pack", "--repack", *args, code=2)
        assert word in r.stderr, (args, r.stderr)
    r = tool("pack", "--repack", "--max-count", "5", "in-0.tar", "a-%02d.tar", code=1)
    assert b"--force" in r.stderr


@tap.test
def repack_to_standard_output_joins_shards_and_extracts_fields():
    folder()
    tool("pack", "--max-count", "12", "in", "in-%d.tar.zst")
    with open("all.tar", "wb") as f:
        f.write(tool("pack", "--repack", "in-0.tar.zst", "in-1.tar.zst", "-").stdout)
    tap.equal(sorted(m[0] for m in members("all.tar")),
              sorted("class%d/%02d.%s" % (i % 3, i, s) for i in range(SAMPLES) for s in ("jpg", "json")))
    r = tool("pack", "--repack", "--key", "class1/04", "--field", "JPG", "all.tar", "-")
    tap.equal(r.stdout, tap.read("in/class1/04.jpg"))
    lines = tool("pack", "--repack", "--field", "json", "--lines", "all.tar", "-").stdout.splitlines()
    tap.equal(sorted(json.loads(line)["i"] for line in lines), list(range(SAMPLES)))
    with open("one.tar", "wb") as f:
        f.write(tool("pack", "--repack", "--key", "class1/04", "all.tar", "-").stdout)
    tap.equal([m[0] for m in members("one.tar")], ["class1/04.jpg", "class1/04.json"])
    r = tool("pack", "--repack", "--key", "nobody", "all.tar", "-", code=1)
    assert b"no sample nobody" in r.stderr, r.stderr
    tap.equal(r.stdout, b"", "nothing is written before the sample is found")
    for args in ((), ("--key", "class1/04")):
        r = tool("pack", "--repack", *args, "--field", "zzz", "all.tar", "-", code=1)
        tap.equal(r.stdout, b"")
        assert b"no field .zzz" in r.stderr and b"fields are .jpg, .json" in r.stderr, r.stderr
    with open("cut.tar", "wb") as f:
        f.write(tap.read("all.tar")[:100000])
    r = tool("pack", "--repack", "--field", "json", "cut.tar", "-", code=1)
    assert b"cut.tar" in r.stderr, r.stderr


@tap.test
def make_dataset_draws_the_same_dataset_every_time():
    for place in "a", "b":
        r = tool("make-dataset", place)
    tap.equal(r.stdout, b"b/train: 256 samples in 4 shards\nb/val: 64 samples in 1 shard\n"
                        b"b/photos: 24 pictures in a folder for each of 3 classes\n")
    made = sorted(glob.glob("a/**/*", recursive=True))
    files = [path for path in made if os.path.isfile(path)]
    tap.equal([p[1:] for p in made], [p[1:] for p in sorted(glob.glob("b/**/*", recursive=True))])
    tap.equal([tap.read(p) for p in files], [tap.read("b" + p[1:]) for p in files])
    shards = sorted(glob.glob("a/*/*.tar"))
    assert tool("doctor", "--decode", *shards).stdout.count(b": 64 samples, sound") == 5
    tap.equal([os.path.exists(s + ".psx") for s in shards], [True] * 5)
    seen = set()
    for name, data in sum((members(s) for s in shards), []):
        key, suffix = name.split(".", 1)
        if suffix == "jpg":
            picture = Image.open(io.BytesIO(data)).convert("RGB")
        elif suffix == "cls":
            label = int(data)
            tap.equal(label, int(key) % 3)
        elif suffix == "txt":
            assert data.decode().rstrip("s").endswith(["disc", "square", "triangle"][label]), data
        elif suffix == "json":
            facts = json.loads(data)
            tap.equal(facts["size"], list(picture.size))
        elif suffix == "seg.png":
            mask = Image.open(io.BytesIO(data))
            tap.equal(sorted(set(mask.getdata())), [0, label + 1])
            # The boxes are those of the shapes, and the picture differs where they are.
            boxes = facts["boxes"]
            tap.equal(mask.getbbox(), (min(b[0] for b in boxes), min(b[1] for b in boxes),
                                       max(b[2] for b in boxes) + 1, max(b[3] for b in boxes) + 1))
            seen.add(picture.getpixel((sum(boxes[0][::2]) // 2, sum(boxes[0][1::2]) // 2)))
    assert len(seen) > 50, seen
    tap.equal(tap.read("a/train/CLASSES.txt"), b"disc\nsquare\ntriangle\n")
    tap.equal(sorted(os.listdir("a/photos")), ["disc", "square", "triangle"])


@tap.test
def make_dataset_says_why_it_cannot():
    tool("make-dataset", "a")
    before = tap.read("a/train/shard-000000.tar")
    for args, code, says in ((["a"], 1, b"a/train: exists already"), (["no/such"], 1, b"no/such: cannot make this directory"),
                             ([], 2, b"needs one directory"), (["a", "b"], 2, b"needs one directory")):
        r = tool("make-dataset", *args, code=code)
        assert says in r.stderr and r.stderr.count(b"\n") == 1 and not r.stdout, r
    tap.equal(tap.read("a/train/shard-000000.tar"), before)
    # A file that cannot grow is what a full disk is to the program.
    r = tool("make-dataset", "c", code=1, restore_signals=False,
             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
    assert re.fullmatch(rb"penstock-loader make-dataset: c/train/shard-000000.tar.*: .*File too large\n", r.stderr), r.stderr


@tap.test
def a_lack_of_memory_ends_the_program_with_one_line():
    """A member of 3 GiB, which is not written to the disk, and address space for 2 GiB."""
    def limited(*args):
        r = subprocess.run([tap.LOADER, *args], capture_output=True,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
        return r.returncode, [line for line in r.stderr.splitlines() if b"warning: the address space" not in line]

    if limited("--version")[0] != 0:
        raise tap.Skip("a sanitizer needs more address space")
    os.mkdir("in")
    with open("big.tar", "wb") as tar, open("in/a.jpg", "wb") as jpg:
        info = tarfile.TarInfo("a.bin")
        info.size = 3 << 30
        tar.write(info.tobuf())
        tar.truncate(info.size + 2048)
        jpg.truncate(info.size)
    for args in (("pack", "--resize", "9", "in", "o-%d.tar"), ("pack", "--repack", "big.tar", "o-%d.tar"), ("doctor", "big.tar")):
        tap.equal(limited(*args), (1, [b"penstock-loader %s: out of memory" % args[0].encode()]), args)


@tap.test
def missing_output_directories_are_made():
    folder()
    assert b"24 samples in 1 shard, " in tool("pack", "in", "new/out-%d.tar").stdout
    r = tool("pack", "--repack", "--parts", "1", "new/out-0.tar", "parts/p-%d.tar")
    tap.equal(r.stdout, b"24 samples in 1 shard\n")
    tool("pack", "--repack", "--shares", "a=0.5,b=0.5", "new/out-0.tar", "{}/x-%d.tar")
    tap.equal(sum(len(tap.ls(d + "/x-0.tar")[0]) for d in "ab"), SAMPLES)
    tool("index", "--dir", "indexes", "new/out-0.tar")
    tap.equal((len(os.listdir("indexes")), os.listdir("new")), (1, ["out-0.tar"]))
    tool("doctor", "--fix", "fixed", "new/out-0.tar")
    tap.equal(members("fixed/out-0.tar"), members("new/out-0.tar"))
    tap.make_tar("one.tar", [("a.txt", b"1")])
    assert b"\t1 sample\n" in tool("index", "one.tar").stdout


def findings(*shards, code=0, fix=None):
    r = tool("doctor", "--json", *(["--fix", fix] if fix else []), *shards, code=code)
    return [{f["kind"]: f["count"] for f in json.loads(line)["findings"]} for line in r.stdout.splitlines()]


def machine(*args, limits=None):
    r = subprocess.run(["sh", "-c", (limits or "") + ' exec "$0" doctor --machine "$@"', tap.LOADER, *args],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, r.stdout, r.stderr


@tap.test
def doctor_machine_reports_what_hinders_loading():
    rc, out, err = machine("--json", ".")
    found = json.loads(out)
    checks = {c["check"]: c for c in found["machine"]}
    assert {"open-files", "shm", "memlock", "passthrough", "huge-pages", "numa", "read-ahead", "disk"} <= set(checks), checks
    hinders = [c for c in found["machine"] if c["state"] == "hinders"]
    tap.equal((found["hinders"], rc, err), (len(hinders), 1 if hinders else 0, b""))
    assert all(c["mend"] for c in hinders) and all(c["found"] for c in found["machine"]), found
    assert all(c["state"] in ("ok", "hinders", "unknown") for c in found["machine"]), found
    assert "GB/s read" in checks["disk"]["found"] or checks["disk"]["state"] == "unknown", checks["disk"]
    tap.equal([n for n in os.listdir(".") if "doctor" in n], [], "no file is left")
    rc, out, _ = machine("--json", ".", limits="ulimit -Sn 500; ulimit -l 64;")
    checks = {c["check"]: c for c in json.loads(out)["machine"]}
    tap.equal((rc, checks["open-files"]["state"], checks["memlock"]["state"]), (1, "hinders", "hinders"))
    assert checks["open-files"]["mend"].startswith("ulimit -n "), checks["open-files"]
    rc, out, _ = machine(".", limits="ulimit -Sn 500;")
    assert rc == 1 and b"!!  open-files   500 files may be open" in out and b"\n                  ulimit -n " in out, out
    tap.equal([machine(*a)[0] for a in (("a", "b"), ("nosuch",), ("--decode",))], [2, 2, 2])


@tap.test
def doctor_finds_nothing_in_sound_shards():
    folder()
    tool("pack", "in", "out-%d.tar")
    tap.equal(findings("out-0.tar"), [{}])
    assert b"24 samples, sound" in tool("doctor", "out-0.tar").stdout


@tap.test
def doctor_hints_at_shards_of_one_sample_and_of_many_gigabytes():
    for i in range(3):
        tap.make_tar("one-%d.tar" % i, [("%d.cls" % i, b"1")])
    tap.make_tar("two.tar", [("0.cls", b"1"), ("1.cls", b"1")])
    assert b"hint: 2 of 3 shards hold at most one sample" in tool("doctor", "one-0.tar", "one-1.tar", "two.tar").stderr
    assert b"hint" not in tool("doctor", "one-0.tar").stderr  # a dataset of one sample
    assert b"hint" not in tool("doctor", "one-0.tar", "two.tar").stderr
    os.truncate("two.tar", 9 << 30)  # sparse
    done = tool("doctor", "--json", "one-0.tar", "two.tar")
    assert b"hint: 1 shard has more than 8 GiB, the first is two.tar" in done.stderr, done
    os.remove("two.tar")


def progressive(photo):
    out = io.BytesIO()
    Image.open(photo).save(out, "jpeg", progressive=True, quality=85, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    return out.getvalue()


@tap.test
def doctor_rewrites_progressive_jpegs_to_the_same_pixels():
    gray = io.BytesIO()
    Image.open(tap.PHOTOS[0]).convert("L").save(gray, "jpeg", progressive=True)
    cmyk = io.BytesIO()
    Image.open(tap.PHOTOS[0]).convert("CMYK").save(cmyk, "jpeg", progressive=True)
    files = [("%d.jpg" % i, progressive(p)) for i, p in enumerate(tap.PHOTOS[:4])]
    files += [("gray.jpg", gray.getvalue()), ("cmyk.jpg", cmyk.getvalue()), ("base.jpg", tap.read(tap.PHOTOS[0]))]
    files += [("cut.jpg", progressive(tap.PHOTOS[0])[:-2000])]
    tap.make_tar("t.tar", files)
    os.mkdir("fixed")
    tap.equal(findings("t.tar"), [{"progressive": 7}])
    tap.equal(findings("t.tar", fix="fixed"), [{"progressive": 7}])
    before, after = dict(members("t.tar")), dict(members("fixed/t.tar"))
    tap.equal(list(before), list(after))
    for name in before:
        if name in ("base.jpg", "cut.jpg"):
            tap.equal(after[name], before[name], name)  # baseline and damaged files stay as they are
            continue
        a, b = Image.open(io.BytesIO(before[name])), Image.open(io.BytesIO(after[name]))
        assert a.info.get("progressive") and not b.info.get("progressive"), name
        tap.equal((a.mode, a.tobytes()), (b.mode, b.tobytes()), name)
        tap.equal(a.info.get("exif"), b.info.get("exif"), name)


@tap.test
def doctor_keeps_a_jpeg_that_cannot_be_rewritten():
    data = bytearray(progressive(tap.PHOTOS[0]))
    # Only the first scan, with its coefficients shifted by 8 bits: more than a baseline file can hold. libjpeg finds
    # out after it has written the header's markers, which are longer than its first buffer.
    scan = data.index(b"\xff\xda")
    end = data.index(b"\xff\xc4", scan)
    data[scan + 1 + data[scan + 3]] = 8
    comment = b"\xff\xfe\xea\x62" + b"c" * 60000
    bad = bytes(data[:2] + comment + data[2:end]) + b"\xff\xd9"
    tap.make_tar("t.tar", [("bad.jpg", bad)])
    os.mkdir("fixed")
    tap.equal(findings("t.tar", fix="fixed"), [{"progressive": 1}])
    tap.equal(members("fixed/t.tar"), [("bad.jpg", bad)])


@tap.test
def doctor_repairs_order_and_duplicates_and_refuses_clashes():
    files = [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3"), ("c.txt", b"4"), ("c.txt", b"4"), ("README", b"x")]
    tap.make_tar("t.tar", files)
    os.mkdir("fixed")
    want = {"scattered": 1, "duplicate": 1, "no_sample": 1, "missing_field": 0}
    got = findings("t.tar", code=1)[0]
    tap.equal({k: got.get(k, 0) for k in want}, want)
    findings("t.tar", fix="fixed")
    tap.equal(members("fixed/t.tar"), [("a.txt", b"1"), ("a.cls", b"3"), ("b.txt", b"2"), ("c.txt", b"4")])
    tap.make_tar("clash.tar", [("a.txt", b"1"), ("a.txt", b"2")])
    tap.equal(findings("clash.tar", fix="fixed", code=1), [{"clash": 1}])
    r = tool("doctor", "--fix", "fixed", "clash.tar", code=1)
    assert b"members that come twice, with different bytes; remove the wrong one" in r.stdout, r.stdout
    assert not os.path.exists("fixed/clash.tar")
    r = tool("doctor", "--fix", ".", "t.tar", code=1)
    assert b"t.tar: --fix would write over the shard itself: name another folder" in r.stderr, r.stderr
    tap.equal(len(members("t.tar")), 6)


@tap.test
def doctor_finds_garbage_after_compressed_shards():
    folder()
    tool("pack", "in", "in-%d.tar")
    tool("pack", "in", "in-%d.tar.zst")
    with open("in-0.tar.gz", "wb") as f:
        f.write(gzip.compress(tap.read("in-0.tar")))
    os.mkdir("fixed")
    for name in ("in-0.tar.gz", "in-0.tar.zst"):
        tap.equal(findings(name), findings("in-0.tar"))
        with open("bad-" + name, "wb") as f:
            f.write(tap.read(name) + b"garbage")
        tap.equal(findings("bad-" + name, code=1)[0].get("truncated"), 1, name)
        r = tool("bench", "--field", "json=bytes", "--epochs", "1", "bad-" + name, code=1)
        assert b"garbage after the end" in r.stderr, r.stderr
        findings("bad-" + name, fix="fixed")
        fixed = "fixed/bad-" + (name[:-3] if name.endswith("gz") else name)
        tap.equal(len(tap.ls(fixed)[0]), SAMPLES, "no sample is lost")
    with open("text.tar.gz", "w") as f:
        f.write("no gzip")
    r = tool("doctor", "text.tar.gz", code=1)
    assert b"nor gzip" in r.stdout, r.stdout


@tap.test
def doctor_keeps_the_whole_samples_of_a_damaged_shard():
    folder()
    tool("pack", "in", "out-%d.tar")
    tool("pack", "in", "z-%d.tar.zst")
    whole = members("out-0.tar")
    os.mkdir("fixed")
    for name in ("out-0.tar", "z-0.tar.zst"):
        data = tap.read(name)
        with open("cut-" + name, "wb") as f:
            f.write(data[:len(data) // 2])
        got = findings("cut-" + name, code=1)[0]
        tap.equal(got.get("truncated"), 1, name)
        findings("cut-" + name, fix="fixed")
        tap.equal(tap.ls("fixed/cut-" + name)[1], 0)
        keys = [s["key"] for s in tap.ls("fixed/cut-" + name)[0]]
        tap.equal(keys, sorted(keys))
    rest = members("fixed/cut-out-0.tar")
    tap.equal(rest, whole[:len(rest)])
    assert len(rest) % 2 == 0 and len(rest) >= SAMPLES / 2
    with open("text.tar", "w") as f:
        f.write("no tar at all\n" * 100)
    tap.equal(findings("text.tar", code=1), [{"not_a_tar": 1}])
    r = tool("doctor", "missing.tar", code=1)
    assert b"missing.tar" in r.stderr, r.stderr


@tap.test
def doctor_removes_needless_pax_headers():
    with tarfile.open("t.tar", "w", format=tarfile.PAX_FORMAT) as t:
        for i in range(50):
            m = tarfile.TarInfo("%03d.cls" % i)
            m.size, m.mtime = 1, 1.5 + i
            m.pax_headers = {"comment": "x" * 100}
            t.addfile(m, io.BytesIO(b"1"))
    os.mkdir("fixed")
    tap.equal(findings("t.tar", fix="fixed"), [{"bloat": 1}])
    tap.equal(members("fixed/t.tar"), members("t.tar"))
    assert os.path.getsize("fixed/t.tar") * 2 < os.path.getsize("t.tar")


def sparse_tar(path, format):
    tap.write("h.bin", b"")
    os.truncate("h.bin", 1 << 20)
    with open("h.bin", "r+b") as f:
        f.seek(1 << 19)
        f.write(b"x" * 4096)
    for name in ("a.bin", "b.cls", "a.cls"):
        if name == "a.bin":
            os.replace("h.bin", name)
        else:
            tap.write(name, b"1")
    tap.write("b.bin", b"whole")
    subprocess.run(["tar", "--format=" + format, "-Scf", path, "a.bin", "a.cls", "b.bin", "b.cls"], check=True)
    return path


def odd_tars():
    """Shards of every kind that a loader may get; the expected result is that of `ls`."""
    yield sparse_tar("sparse-gnu.tar", "gnu")
    yield sparse_tar("sparse-pax.tar", "posix")
    base = [("%d.%s" % (i, ext), b"%d" % i) for i in range(4) for ext in ("txt", "cls")]
    odd = {
        "sound": base,
        "twice": base[:2] + [("0.txt", b"0")] + base[2:],
        "clash": base[:2] + [("0.txt", b"1")] + base[2:],
        "case": base[:2] + [("0.TXT", b"0")] + base[2:],
        "case-clash": base[:2] + [("0.TXT", b"1")] + base[2:],
        "many": base + [("many.%d" % i, b"") for i in range(1024)] + [("z.txt", b""), ("z.cls", b"1")],
        "too-many": base + [("many.%d" % i, b"") for i in range(1025)],
        "too-many-and-twice": [("many.%d" % i, b"") for i in range(1025)] + [("many.3", b"")] + base,
        "too-many-scattered": [("m.%d" % i, b"") for i in range(600)] + base + [("m.x%d" % i, b"") for i in range(600)],
        "reserved": base + [("k.__key__", b"k"), ("k.txt", b"k")],
        "marked": base + [("m.txt", b"m"), ("m.__bad__", b"1")],
        "scattered": base[::2] + base[1::2],
        "no-samples": [("README", b"x"), (".hidden", b"y"), ("__meta__/x.txt", b"z")],
        "empty": [],
        "extras": [("README", b"x")] + base + [("notes", b"x")],
        "empty-files": [("e%d.txt" % i, b"") for i in range(3)],
        "long": [("n" * 300 + ".txt", b"1"), ("d/" * 100 + "x.txt", b"2")],
        "control": [("a\n\x1b.txt", b"1"), ('q"\udcff.txt', b"2")],
    }
    for name, files in odd.items():
        for fmt in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            yield tap.make_tar("%s-%d.tar" % (name, fmt), files, fmt)
    whole = tap.read("sound-%d.tar" % tarfile.GNU_FORMAT)
    for i, cut in enumerate(list(range(0, 5000, 487)) + [512 * n for n in range(1, 17, 3)]):
        yield tap.write("cut-%d.tar" % i, whole[:cut])
    for i in range(0, 4096, 397):
        yield tap.write("flip-%d.tar" % i, whole[:i] + bytes([whole[i] ^ 0x40]) + whole[i + 1:])
    yield tap.write("packed.tar.gz", gzip.compress(whole))
    yield tap.write("packed-garbage.tar.gz", gzip.compress(whole) + b"garbage")
    yield tap.write("packed-sum.tar.gz", gzip.compress(whole)[:-8] + bytes(8))
    yield tap.write("lines.jsonl", b'{"a": 1}\n\n{"a": 2}\n')
    yield tap.write("lines.txt", b"one\ntwo\n")
    os.mkdir("folder.tar")
    yield "folder.tar"
    yield "absent.tar"
    with open(os.path.join(tap.SRC, "tests/data/webdataset/golden.json")) as f:
        cases = json.load(f)["cases"]
    for i, case in enumerate(cases):
        for j, data in enumerate(case["shards"]):
            yield tap.write("golden-%d-%d.tar" % (i, j), zlib.decompress(base64.b64decode(data)))
    for path in sorted(glob.glob(os.path.join(tap.SRC, "tests/fuzz/corpus/tar/*"))):
        os.symlink(os.path.abspath(path), "fuzz-" + os.path.basename(path) + ".tar")
        yield "fuzz-" + os.path.basename(path) + ".tar"


@tap.test
def doctor_agrees_with_the_loader():
    """A shard is sound exactly if a loader reads it without an error. The exception is a key that comes back: a loader
    reads two samples, each without the other's fields."""
    counts = [0, 0]
    for path in odd_tars():
        listed, ls_code, ls_err = tap.ls(path)
        doctor = tap.run("doctor", "--json", path)
        keys = [s["key"] for s in listed]
        common = set.intersection(*(set(s["fields"]) for s in listed)) if listed else set()
        field = min((f for f in common if f.isalnum()), default="")
        found = []
        if doctor.stdout:
            report = json.loads(doctor.stdout)
            found = [f["kind"] for f in report["findings"] if f["error"]]
            tap.equal(report["samples"], len(listed), path)
        what = (path, ls_code, ls_err[:300], doctor.returncode, found, doctor.stderr[:300])
        assert doctor.returncode in (0, 1), what
        tap.equal(doctor.returncode, 1 if found or doctor.stderr else 0, what)
        if ls_code == 0 and doctor.returncode != 0:
            cut = found == ["no_end_mark"]
            assert cut or len(set(keys)) < len(keys) and set(found) <= {"scattered", "duplicate", "clash", "refused"}, what
        else:
            tap.equal(doctor.returncode, ls_code, what)
        if field:
            r = tap.run("bench", "--field", field + "=bytes", "--epochs", "1", "--on-error", "fail", path)
            tap.equal(r.returncode, ls_code, (what, r.stderr[:300]))
        shutil.rmtree("fixed", ignore_errors=True)
        tap.run("doctor", "--fix", "fixed", path)
        for fixed in glob.glob("fixed/*"):
            tap.equal(tap.ls(fixed)[1:], (0, ""), what)
            assert [s["key"] for s in tap.ls(fixed)[0]] == list(dict.fromkeys(k for k in keys)) or ls_code != 0, what
            # The repaired shard has all members of a key, or none.
            with contextlib.suppress(tarfile.ReadError):
                whole = {}
                with tarfile.open(path) as t:
                    for m in t:
                        cut = re.match(r"((?:.*/|)[^.]+)[.]([^/]*)$", m.name)
                        if cut and m.isfile():
                            whole.setdefault(cut[1], set()).add(cut[2].lower())
                for s in tap.ls(fixed)[0]:
                    tap.equal(set(s["fields"]), whole.get(s["key"], set(s["fields"])), (what, s))
        counts[doctor.returncode] += 1
    assert min(counts) > 30, counts


@tap.test
def doctor_never_writes_a_partial_sample():
    for fmt in ("gnu", "posix"):
        sparse_tar("s.tar", fmt)
        r = tool("doctor", "--fix", "fixed", "s.tar", code=1)
        assert b"s.tar: error: refused (1): samples that loaders refuse; first: a: field .bin is a sparse file" in r.stdout, r.stdout
        assert b"s.tar: --fix did not write it: refused" in r.stderr, r.stderr
        tap.equal(os.listdir("fixed"), [])
    tap.make_tar("case.tar", [("a.jpg", b"1"), ("a.JPG", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("b.cls", b"4")])
    tap.equal(findings("case.tar", code=1, fix=None), [{"duplicate": 1}])
    findings("case.tar", fix="fixed")
    tap.equal([(s["key"], list(s["fields"])) for s in tap.ls("fixed/case.tar")[0]], [("a", ["jpg", "cls"]), ("b", ["jpg", "cls"])])
    tap.make_tar("clash.tar", [("a.jpg", b"1"), ("a.JPG", b"2")])
    tap.equal(findings("clash.tar", code=1, fix="fixed"), [{"clash": 1}])
    # Each part of sample m is within the limit of members, but together they are over it.
    tap.make_tar("m.tar", [("m.%d" % i, b"") for i in range(600)] + [("b.x", b"")] + [("m.x%d" % i, b"") for i in range(600)])
    tap.equal(findings("m.tar", code=1, fix="fixed"), [{"scattered": 1, "refused": 1}])
    tap.equal(sorted(os.listdir("fixed")), ["case.tar"])


@tap.test
def doctor_reports_how_many_samples_it_wrote():
    folder()
    tool("pack", "in", "out-%d.tar")
    with open("cut.tar", "wb") as f:
        f.write(tap.read("out-0.tar")[:-(10 << 10)])
    n = len(tap.ls("cut.tar")[0])
    r = tool("doctor", "--fix", "fixed", "cut.tar")
    assert b"cut.tar: %d samples, written to fixed/cut.tar" % n in r.stdout, r.stdout
    tap.equal(tool("doctor", "fixed/cut.tar").stdout, b"fixed/cut.tar: %d samples, sound\n" % n)
    tap.make_tar("one.tar", [("a.txt", b"1")])
    tap.equal(tool("doctor", "one.tar").stdout, b"one.tar: 1 sample, sound\n")


def npy(*shape):
    body = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}" % b"".join(b"%d," % n for n in shape)
    body += b" " * (117 - len(body)) + b"\n"
    n = 4
    for d in shape:
        n *= d
    return b"\x93NUMPY\x01\x00\x76\x00" + body + bytes(n)


@tap.test
def doctor_decode_finds_members_that_do_not_decode():
    photo = tap.read(tap.PHOTOS[0])
    good = [("g%03d.%s" % (i, ext), data) for i in range(40) for ext, data in (
        ("jpg", photo), ("cls", b"%d" % i), ("json", b'{"a": 1}'), ("emb.npy", npy(3, 4)), ("txt", "\u00e9".encode()))]
    tap.make_tar("good.tar", good)
    tap.equal(findings("good.tar"), [{}])
    r = tool("doctor", "--decode", "good.tar")
    tap.equal(r.stdout, b"good.tar: 40 samples, sound\n")
    bad = {"jpg": b"junk", "JPG": photo[:len(photo) // 2], "cls": b"cat", "json": b'{"a": ', "emb.npy": npy(3, 4)[:-1],
           "npy": b"", "txt": b"\xff", "json.zst": b"no zstd", "seg.png": b"\x89PNG\r\n\x1a\n" + bytes(40)}
    for ext, data in bad.items():
        tap.make_tar("bad.tar", good + [("zz." + ext, data)])
        assert not {"undecodable", "refused"} & set(findings("bad.tar")[0]), ext
        r = tool("doctor", "--decode", "bad.tar", code=1)
        assert b"bad.tar: error: undecodable (1): " in r.stdout and b"first: zz" in r.stdout, (ext, r.stdout)
        r = tool("doctor", "--decode", "--fix", "fixed", "bad.tar", code=1)
        tap.equal(dict(members("fixed/bad.tar"))["zz." + ext], data, "the member stays as it is")
    # A shard of bad members alone, and a photograph with one wrong bit in its headers.
    tap.make_tar("all.tar", [("%d.jpg" % i, b"junk") for i in range(100)])
    tap.equal([json.loads(x)["findings"][0]["count"] for x in tool("doctor", "--json", "--decode", "all.tar", code=1).stdout.splitlines()], [100])
    at = photo.index(b"\xff\xc0") + 9
    tap.make_tar("flip.tar", [("a.jpg", photo[:at] + bytes([photo[at] ^ 0x80]) + photo[at + 1:])])
    assert b"undecodable (1)" in tool("doctor", "--decode", "flip.tar", code=1).stdout
    # A sample that a loader refuses anyway is reported once.
    sparse_tar("s.tar", "gnu")
    got = json.loads(tool("doctor", "--json", "--decode", "s.tar", code=1).stdout)["findings"]
    tap.equal([(f["kind"], f["count"]) for f in got], [("refused", 1)])
    tap.write("lines.jsonl", b'{"a": 1}\n{"a":\n')
    tap.equal(tool("doctor", "lines.jsonl").stdout, b"lines.jsonl: 2 samples, sound\n")
    assert b"undecodable (1)" in tool("doctor", "--decode", "lines.jsonl", code=1).stdout


if __name__ == "__main__":
    tap.main()
