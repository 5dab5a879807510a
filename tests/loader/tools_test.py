#!/usr/bin/python3
"""penstock-loader pack, split, cat and doctor: shards that other programs read, the same bytes every time, and
repairs that lose nothing."""
import hashlib
import io
import gzip
import json
import os
import shutil
import subprocess
import tarfile

import tap
from PIL import Image

SAMPLES = 24


def tool(*args, code=0, **kwargs):
    r = tap.run(*args, **kwargs)
    assert r.returncode == code, (args, r.returncode, r.stdout[-500:], r.stderr[-500:])
    return r


def members(path):
    """(name, bytes) as Python's tarfile sees them."""
    with tarfile.open(path) as t:
        return [(m.name, t.extractfile(m).read()) for m in t if m.isfile()]


def folder(root="in", n=SAMPLES, classes=3):
    """ImageFolder: root/CLASS/N.jpg with a N.json beside; what belongs to no sample, too."""
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
def pack_writes_what_tarfile_and_the_loader_read():
    folder()
    r = tool("pack", "--max-count", "10", "in", "out-%03d.tar")
    assert b"24 samples in 3 shards" in r.stdout, r.stdout
    assert b"1 file without a sample left out" in r.stderr, r.stderr
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
def pack_gives_the_same_bytes_whatever_threads_and_times():
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
def pack_of_classes_numbers_them_by_name():
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
def pack_of_a_list_names_samples_as_it_says():
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
def long_names_survive():
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
def compressed_shards_are_seekable_and_read_by_all():
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


@tap.test
def pack_refuses_what_it_cannot_do():
    folder()
    for args, code, word in [
            (("pack", "in", "out.tar"), 2, b"%06d"),
            (("pack", "in", "out-%d-%d.tar"), 2, b"one number"),
            (("pack", "in", "out-%s.tar"), 2, b"one number"),
            (("pack", "--zstd", "3", "in", "out-%d.tar"), 2, b".zst"),
            (("pack", "--zstd", "99", "in", "out-%d.tar.zst"), 2, b"1 to 19"),
            (("pack", "missing", "out-%d.tar"), 1, b"missing"),
            (("pack", "in/README", "out-%d.tar"), 1, b"@in/README"),
            (("pack", "@missing", "out-%d.tar"), 1, b"missing"),
            (("pack", "--classes", "@x", "out-%d.tar"), 2, b"--classes"),
            (("pack", "--classes", "in/class0", "out-%d.tar"), 1, b"no folders"),
            (("pack", "in", "no/where/out-%d.tar"), 1, b"no/where: cannot make this directory: No such file or directory; make the one above it first"),
            (("pack", "in"), 2, b"--help"),
    ]:
        r = tool(*args, code=code)
        assert word in r.stderr, (args, r.stderr)
    r = tool("pack", "@-", "out-%d.tar", code=1, input=b"in/class0/00.jpg\nin/class0\n")
    assert b"line 2: in/class0: is no ordinary file" in r.stderr, r.stderr
    with open("list.txt", "w") as f:
        f.write("in/class0/00.jpg\tk\nin/class0/03.jpg\tk\n")
    r = tool("pack", "@list.txt", "out-%d.tar", code=1)
    assert b"two files would be called k.jpg" in r.stderr, r.stderr
    tool("pack", "in", "out-%d.tar")
    before = tap.read("out-0.tar")
    r = tool("pack", "in", "out-%d.tar", code=1)
    assert b"--force" in r.stderr
    tap.equal(tap.read("out-0.tar"), before)
    os.symlink("..", "in/class0/loop")
    r = tool("pack", "--force", "in", "out-%d.tar", code=1)
    assert b"loop" in r.stderr, r.stderr
    tap.equal(sorted(f for f in os.listdir(".") if f.startswith("out")), ["out-0.tar"])


@tap.test
def split_by_size_parts_and_shares_keeps_every_sample():
    folder()
    tool("pack", "--max-count", "12", "in", "in-%d.tar")
    want = [m for i in range(2) for m in members("in-%d.tar" % i)]
    tool("split", "--max-count", "5", "in-{0..1}.tar", "a-%02d.tar")
    tap.equal([m for i in range(5) for m in members("a-%02d.tar" % i)], want)
    tap.equal([len(members("a-%02d.tar" % i)) for i in range(5)], [10, 10, 10, 10, 8])
    r = tool("split", "--json", "--parts", "4", "in-0.tar", "in-1.tar", "b-%d.tar.zst")
    tap.equal([json.loads(line)["samples"] for line in r.stdout.splitlines()], [6] * 4)
    tap.equal(sorted(s["key"] for i in range(4) for s in tap.ls("b-%d.tar.zst" % i)[0]),
              sorted(s["key"] for s in tap.ls("in-{0..1}.tar")[0]))
    tool("split", "--shares", "train=0.7,val=0.3", "in-{0..1}.tar", "{}-%d.tar")
    train, val = members("train-0.tar"), members("val-0.tar")
    tap.equal(sorted(train + val), sorted(want))
    assert 0 < len(val) < len(train)
    tool("split", "--shares", "train=0.7,val=0.3", "in-1.tar", "again-{}-%d.tar")
    assert set(members("again-val-0.tar")) <= set(val), "a key goes the same way whatever is beside it"
    for args, word in [(("--shares", "a=0.5", "in-0.tar", "{}-%d.tar"), b"less than 1"),
                       (("--shares", "a=0.5,b=0.6", "in-0.tar", "{}-%d.tar"), b"more than 1"),
                       (("--shares", "a=0.5,a=0.5", "in-0.tar", "{}-%d.tar"), b"comes twice"),
                       (("--shares", "a=x", "in-0.tar", "{}-%d.tar"), b"NAME=SHARE"),
                       (("--shares", "a=1", "in-0.tar", "x-%d.tar"), b"{}"),
                       (("--parts", "2", "--shares", "a=1", "in-0.tar", "{}-%d.tar"), b"exclude"),
                       (("in-0.tar",), b"--help")]:
        r = tool("split", *args, code=2)
        assert word in r.stderr, (args, r.stderr)
    r = tool("split", "--max-count", "5", "in-0.tar", "a-%02d.tar", code=1)
    assert b"--force" in r.stderr


@tap.test
def cat_joins_shards_and_takes_fields_out():
    folder()
    tool("pack", "--max-count", "12", "in", "in-%d.tar.zst")
    with open("all.tar", "wb") as f:
        f.write(tool("cat", "in-0.tar.zst", "in-1.tar.zst").stdout)
    tap.equal(sorted(m[0] for m in members("all.tar")),
              sorted("class%d/%02d.%s" % (i % 3, i, s) for i in range(SAMPLES) for s in ("jpg", "json")))
    r = tool("cat", "--key", "class1/04", "--field", "JPG", "all.tar")
    tap.equal(r.stdout, tap.read("in/class1/04.jpg"))
    lines = tool("cat", "--field", "json", "--lines", "all.tar").stdout.splitlines()
    tap.equal(sorted(json.loads(line)["i"] for line in lines), list(range(SAMPLES)))
    with open("one.tar", "wb") as f:
        f.write(tool("cat", "--key", "class1/04", "all.tar").stdout)
    tap.equal([m[0] for m in members("one.tar")], ["class1/04.jpg", "class1/04.json"])
    r = tool("cat", "--key", "nobody", "all.tar", code=1)
    assert b"no sample nobody" in r.stderr, r.stderr
    tap.equal(r.stdout, b"", "nothing is written before it is found")
    for args in ((), ("--key", "class1/04")):
        r = tool("cat", *args, "--field", "zzz", "all.tar", code=1)
        tap.equal(r.stdout, b"")
        assert b"no field .zzz" in r.stderr and b"there are .jpg, .json" in r.stderr, r.stderr
    with open("cut.tar", "wb") as f:
        f.write(tap.read("all.tar")[:100000])
    r = tool("cat", "--field", "json", "cut.tar", code=1)
    assert b"cut.tar" in r.stderr, r.stderr


@tap.test
def directories_that_are_named_are_made():
    folder()
    assert b"24 samples in 1 shard, " in tool("pack", "in", "new/out-%d.tar").stdout
    r = tool("split", "--parts", "1", "new/out-0.tar", "parts/p-%d.tar")
    tap.equal(r.stdout, b"24 samples in 1 shard\n")
    tool("split", "--shares", "a=0.5,b=0.5", "new/out-0.tar", "{}/x-%d.tar")
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


@tap.test
def doctor_finds_nothing_in_sound_shards():
    folder()
    tool("pack", "in", "out-%d.tar")
    tap.equal(findings("out-0.tar"), [{}])
    assert b"24 samples, sound" in tool("doctor", "out-0.tar").stdout


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
            tap.equal(after[name], before[name], name)  # what is damaged stays as it is
            continue
        a, b = Image.open(io.BytesIO(before[name])), Image.open(io.BytesIO(after[name]))
        assert a.info.get("progressive") and not b.info.get("progressive"), name
        tap.equal((a.mode, a.tobytes()), (b.mode, b.tobytes()), name)
        tap.equal(a.info.get("exif"), b.info.get("exif"), name)


@tap.test
def doctor_keeps_a_jpeg_that_cannot_be_rewritten():
    data = bytearray(progressive(tap.PHOTOS[0]))
    # The first scan alone, its numbers moved up by 8 bits: more than a baseline file can hold. The header's
    # markers, longer than libjpeg's first buffer, are written before it finds out.
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
def doctor_mends_order_and_duplicates_and_keeps_clashes():
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
    assert not os.path.exists("fixed/clash.tar")
    r = tool("doctor", "--fix", ".", "t.tar", code=1)
    assert b"another folder" in r.stderr, r.stderr
    tap.equal(len(members("t.tar")), 6)


@tap.test
def doctor_sees_garbage_behind_compressed_shards():
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
        assert b"garbage behind the end" in r.stderr, r.stderr
        findings("bad-" + name, fix="fixed")
        fixed = "fixed/bad-" + (name[:-3] if name.endswith("gz") else name)
        tap.equal(len(tap.ls(fixed)[0]), SAMPLES, "none is lost")
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
def doctor_takes_pax_bloat_away():
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


if __name__ == "__main__":
    tap.main()
