#!/usr/bin/python3
"""penstock-loader index; its files are read by a second implementation of the format (base/psx.h)."""
import glob
import hashlib
import io
import json
import os
import random
import struct
import subprocess
import tarfile

import tap


def shards(n=3, per=10):
    for s in range(n):
        files = []
        for i in range(per):
            photo = tap.read(tap.PHOTOS[(s * per + i) % len(tap.PHOTOS)])
            files += [("s%d/%d.jpg" % (s, i), photo), ("s%d/%d.cls" % (s, i), b"%d" % (i % 3))]
        tap.make_tar("t-%d.tar" % s, files)
    return "t-{0..%d}.tar" % (n - 1)


class Bytes:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def varint(self):
        v = shift = 0
        while True:
            c = self.data[self.at]
            self.at += 1
            v |= (c & 127) << shift
            shift += 7
            if c < 128:
                return v

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]


def texts(data, at, n):
    b = Bytes(data, at + (n + 63) // 64 * 8)
    return [b.take(b.varint()) for _ in range(n)]


def column(data, n, detail):
    name = data[1 : 1 + data[0]].decode()
    at = (1 + data[0] + 7) // 8 * 8
    there = [data[at + i // 8] >> i % 8 & 1 for i in range(n)]
    at += ((n + 7) // 8 + 7) // 8 * 8
    kind, width = detail & 255, detail >> 8
    if kind == 3:
        values = [t.decode() for t in texts(data, at, n)]
    else:
        code = {(1, 1): "b", (1, 2): "h", (1, 4): "i", (1, 8): "q", (2, 4): "f", (2, 8): "d"}[kind, width]
        values = struct.unpack_from("<%d%s" % (n, code), data, at)
    return name, [v if t else None for v, t in zip(values, there)]


def index_read(path):
    """The header; for each sample key, offset, bad, {suffix: (offset, size)} or None; columns; how many bytes
    the offsets take."""
    data = tap.read(path)
    magic, size, plain, n, bad, flags, nsections, _, first, _sum, sha = struct.unpack_from("<8sQQQQIHHQQ32s", data)
    tap.equal(magic, b"PSINDEX3")
    head = {"size": size, "plain": plain, "samples": n, "bad": bad, "flags": flags, "first": first, "sha256": sha.hex()}
    table, sections, columns = 96, {}, {}
    for i in range(nsections):
        kind, detail, at, nbytes, _ = struct.unpack_from("<IIQQQ", data, table + 32 * i)
        if kind == 4:
            name, values = column(data[at : at + nbytes], n, detail)
            columns[name] = values
        else:
            sections[kind] = data[at : at + nbytes]
    b = Bytes(sections[1])
    shapes = []
    for _ in range(b.varint()):
        shapes.append([])
        for _ in range(b.varint()):
            lead = b.varint()
            shapes[-1].append((lead, b.take(b.varint()).decode()))
            tap.equal(b.take(1), b"\0")
    unit = 1 if flags & 2 else 512
    b = Bytes(sections[2], (n + 63) // 64 * 16)
    samples, end = [], 0
    for i, key in enumerate(texts(sections[3], 0, n)):
        if i % 64 == 0:
            tap.equal(struct.unpack_from("<QQ", sections[2], i // 64 * 16), (end, b.at - (n + 63) // 64 * 16), "a mark")
        what = b.varint()
        end += b.varint() * unit if what & 1 else 0
        begin, members = end, None
        if what >> 2:
            members = {}
            for lead, suffix in shapes[(what >> 2) - 1]:
                end += lead * unit
                members[suffix] = (end, b.varint())
                end += (members[suffix][1] + unit - 1) // unit * unit
            end += unit == 1
        else:
            end += b.varint() * unit
        samples.append((key.decode(), begin, bool(what & 2), members))
    return head, samples, columns, len(sections[2])


def sum_of(before, data):
    """The format's checksum, continued from `before`."""
    mask, prime = 2**64 - 1, 0x9E3779B97F4A7C15
    x = (before ^ len(data)) * prime & mask
    for i in range(0, len(data) - 7, 8):
        x = (x ^ struct.unpack_from("<Q", data, i)[0]) * prime & mask
        x ^= x >> 29
    rest = data[len(data) // 8 * 8 :]
    x = (x ^ struct.unpack("<Q", rest.ljust(8, b"\0"))[0]) * prime & mask
    return x ^ x >> 32


def head_seal(data):
    """Corrects the checksum of the head and the table."""
    nsections, = struct.unpack_from("<H", data, 44)
    total = sum_of(sum_of(0, bytes(data[:56])), bytes(data[64 : 96 + 32 * nsections]))
    struct.pack_into("<Q", data, 56, total)


def forget_sources(path):
    """Makes an index look like one of a version that did not store where columns come from: the section's kind becomes unknown."""
    data = bytearray(tap.read(path))
    nsections, = struct.unpack_from("<H", data, 44)
    kinds = [struct.unpack_from("<I", data, 96 + 32 * i)[0] for i in range(nsections)]
    struct.pack_into("<I", data, 96 + 32 * kinds.index(5), 99)
    head_seal(data)
    tap.write(path, bytes(data))


def members_by_ls(*paths):
    listed, rc, _ = tap.ls(*paths)
    tap.equal(rc, 0)
    return [(s["key"], {k: (f["offset"], f["size"]) for k, f in s["fields"].items()}) for s in listed]


@tap.test
def index_has_the_place_of_every_member():
    shards(2, 5)
    for args in ([], ["--dir", "indexes"]):
        if args:
            os.mkdir("indexes")
        r = tap.run("index", "--json", *args, "t-{0..1}.tar")
        tap.equal((r.returncode, r.stderr), (0, b""))
        tap.equal([json.loads(line) for line in r.stdout.splitlines()],
                  [{"shard": "t-%d.tar" % s, "samples": 5, "bad": 0, "written": True} for s in range(2)])
        path = glob.glob("indexes/t-1.tar-*.psx")[0] if args else "t-1.tar.psx"
        head, samples, _, _ = index_read(path)
        shard = tap.read("t-1.tar")
        tap.equal(head, {"size": len(shard), "plain": len(shard), "samples": 5, "bad": 0, "flags": 0,
                         "first": sum_of(0, shard[:512]), "sha256": "00" * 32})
        tap.equal(os.path.basename(path), "t-1.tar-%d-%016x.psx" % (len(shard), head["first"]) if args else "t-1.tar.psx")
        tap.equal([(key, members) for key, _, _, members in samples], members_by_ls("t-1.tar"))
        tap.equal([s[1] for s in samples], [min(o for o, _ in s[3].values()) - 512 for s in samples])
        r = tap.run("index", *args, "t-{0..1}.tar")
        tap.equal(r.stdout, b"t-0.tar\t5 samples, up to date\nt-1.tar\t5 samples, up to date\n")
    assert not glob.glob("*.psx.*") and not glob.glob("indexes/*.psx.*"), "no temporary file is left"


def notes(name, files=None):
    if files is not None:
        tap.make_tar(name, files)
    tap.run("index", "--force", name)
    both = struct.unpack_from("<H", tap.read(name + ".psx"), 46)[0]
    tap.equal(both & ~1, 2)  # hard links are in it
    return both & 1


@tap.test
def an_index_of_version_0_3_that_may_lack_hard_links_is_made_again():
    plain = [("a/1.jpg", b"1"), ("a/1.cls", b"2")]
    for what, files, again in ("all members", plain, False), ("others", [*plain, ("README", b"x")], True):
        tap.make_tar("t.tar", files)
        tap.run("index", "--force", "t.tar")
        data = bytearray(tap.read("t.tar.psx"))
        data[46] &= ~2
        head_seal(data)
        tap.write("t.tar.psx", data)
        r = tap.run("index", "t.tar")
        tap.equal((r.returncode, b"up to date" in r.stdout), (0, not again), what)
        tap.equal(tap.read("t.tar.psx")[46] & 2, 2 * again, what)
        r = tap.run("index", "t.tar")
        assert b"up to date" in r.stdout, r


@tap.test
def an_index_says_if_it_has_all_members_of_the_tar():
    plain = [("a/1.jpg", b"1"), ("a/1.cls", b"2"), ("a/2.seg.png", b"3")]
    tap.equal(notes("all.tar", plain), 1)
    tap.equal(notes("none.tar", []), 1, "the index of an empty tar has all its members")
    for what, files in {
        "of no sample": [("README", b"")],
        "without a key": [(".hidden", b"x")],
        "of a name for tools": [("__meta__/x.json", b"x")],
        "with capital letters in its suffix": [("b/1.JPG", b"1")],
        "of a dropped sample": [("b/1.__bad__", b"why"), ("b/1.jpg", b"1")],
        "of a sample that is bad": [("b/1.jpg", b"1"), ("b/1.jpg", b"1")],
    }.items():
        for at in range(len(plain) + 1):
            tap.equal(notes("n.tar", plain[:at] + files + plain[at:]), 0, "a member %s, at %d" % (what, at))
    tap.equal(notes("key.tar", [("A/B1.jpg", b"1")]), 1, "capital letters of a key are kept")
    for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        with tarfile.open("k.tar", "w") as t:
            for name, data in plain:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
            info = tarfile.TarInfo("a/3.jpg")
            info.type, info.linkname = kind, "a/1.jpg"
            t.addfile(info)
        tap.equal(notes("k.tar"), 0, "a member of kind %s" % kind)
    data = tap.read("all.tar")
    tap.write("all.tar", data[:-1024].rstrip(b"\0") + b"\0" * 511)
    tap.equal(notes("all.tar"), 0, "a tar without its end mark")


@tap.test
def offsets_take_at_most_16_bytes_a_sample():
    rng = random.Random(5)
    for members in (1, 2, 3, 5, 12):
        files, per = [], 1000
        for i in range(per):
            if rng.random() < 0.1:
                files.append(("README", b"belongs to no sample"))
            files += [("%06d.%d" % (i, j), bytes(rng.randrange(2000))) for j in range(members)]
        tap.make_tar("m.tar", files)
        tap.equal(tap.run("index", "--force", "m.tar").returncode, 0)
        _, samples, _, nbytes = index_read("m.tar.psx")
        assert nbytes <= 16 * per, (members, nbytes / per)
        for (key, _, _, have), (want_key, want) in zip(samples, members_by_ls("m.tar")):
            tap.equal((key, have or want), (want_key, want))
        tap.equal(all(s[3] for s in samples), members <= 5, "members are stored while they fit")


@tap.test
def declared_columns_are_stored():
    rows = [("0", {"h": 1, "s": "a", "f": 0.5, "m": {"x": -70000}}), ("7", {"h": 2.5, "s": "\u00e9", "f": 2}),
            ("-3", None), ("x", {"h": 4, "s": 5, "f": 1e300, "m": {"x": True}}), (None, {"m": 3, "s": "z" * 300})]
    files = []
    for i, (cls, data) in enumerate(rows):
        files.append(("%d.txt" % i, b"t"))
        files += [("%d.cls" % i, b" " + cls.encode() + b"\n")] if cls is not None else []
        files += [("%d.json" % i, json.dumps(data).encode())] if data is not None else [("%d.json" % i, b"{no json")]
    tap.make_tar("c.tar", files)
    args = ["--column", "label=cls", "--column", "h=json:h", "--column", "s=JSON:s", "--column", "json:m.x",
            "--column", "f=json:f", "--column", "none=nosuch"]
    tap.equal(tap.run("index", "c.tar").returncode, 0)
    r = tap.run("index", *args, "c.tar")
    tap.equal((r.returncode, r.stderr, r.stdout), (0, b"", b"c.tar\t5 samples\n"), "the index is made again")
    _, _, columns, _ = index_read("c.tar.psx")
    tap.equal(columns, {"label": ["0", "7", "-3", "x", None], "h": [1.0, 2.5, None, 4.0, None],
                        "s": ["a", "\u00e9", None, "5", None], "json:m.x": [-70000, None, None, 1, None],
                        "f": [0.5, 2.0, None, 1e300, None], "none": [None] * 5})
    assert b"up to date" in tap.run("index", *args, "c.tar").stdout


@tap.test
def a_stale_or_damaged_index_is_made_again():
    shards(1, 3)
    run = lambda *a: json.loads(tap.run("index", "--json", *a, "t-0.tar").stdout)
    tap.equal(run()["written"], True)
    tap.equal(run()["written"], False)
    tap.equal(run("--force")["written"], True)
    os.utime("t-0.tar", (2**32, 2**32))
    tap.equal(run()["written"], True, "the shard is younger than its index")
    shards(1, 4)
    tap.equal(run(), {"shard": "t-0.tar", "samples": 4, "bad": 0, "written": True})
    good = tap.read("t-0.tar.psx")
    head = [good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :] for i in range(192)]
    for damaged in (b"", good[:40], good[:-1], good + b"x", b"PSINDEX2" + good[8:], *head):
        tap.write("t-0.tar.psx", damaged)
        tap.equal(run()["written"], True)
    tap.equal(tap.read("t-0.tar.psx"), good)


def hashed(path):
    return hashlib.sha256(tap.read(path)).hexdigest()


def files_make(folder="f", n=40):
    os.mkdir(folder)
    for i in range(n):
        tap.write("%s/%03d.cls" % (folder, i), b"%d" % (i % 3))
        tap.write("%s/%03d.txt" % (folder, i), b"x" * (i * 37 % 900))


def catalogue(path="out/SHARDS.psc"):
    text = tap.read(path)
    lines = text.decode().splitlines()
    tap.equal((lines[0], lines[-1]), ("penstock-shards 1", "sum %016x" % sum_of(0, text[: text.rindex(b"sum ")])))
    return [line.split(" ", 6) for line in lines[1:-1]]


@tap.test
def pack_makes_indexes_with_a_hash_and_a_catalogue():
    files_make()
    for pattern in ("out/t-%03d.tar", "out/z-%03d.tar.zst"):
        r = tap.run("pack", "--index", "--column", "label=cls", "--max-count", "15", "f", pattern)
        tap.equal((r.returncode, r.stderr), (0, b""))
    want = []
    for kind, n in [("t-%03d.tar", 3), ("z-%03d.tar.zst", 3)]:
        for i in range(n):
            name = kind % i
            plain = len(tap.read("out/" + "t-%03d.tar" % i))
            want.append([hashed("out/" + name), str(os.path.getsize("out/" + name)), str(plain),
                         "15" if i < 2 else "10", "0", "tar", name])
            head, _, columns, _ = index_read("out/%s.psx" % name)
            tap.equal((head["sha256"], head["plain"]), (want[-1][0], plain))
            tap.equal(columns["label"][:4], [0, 1, 2, 0])
    tap.equal(catalogue(), want)
    os.remove("out/t-001.tar")
    tap.equal(tap.run("pack", "--index", "--force", "--max-count", "40", "f", "out/t-%03d.tar").returncode, 0)
    tap.equal([(e[6], e[3]) for e in catalogue()],
              [("t-000.tar", "40"), ("t-002.tar", "10")] + [("z-%03d.tar.zst" % i, e) for i, e in enumerate(("15", "15", "10"))],
              "the replaced shard has its new count, the removed one is gone")
    assert os.listdir("out").count("SHARDS.psc") == 1 and not [n for n in os.listdir("out") if n.startswith("SHARDS.psc.")]
    tap.equal(tap.run("pack", "--column", "cls", "f", "x-%d.tar").returncode, 2)


@tap.test
def index_makes_a_catalogue_of_existing_shards():
    files_make()
    tap.equal(tap.run("pack", "--index", "--max-count", "15", "f", "out/t-%03d.tar").returncode, 0)
    want = catalogue()
    for name in os.listdir("out"):
        if not name.endswith(".tar"):
            os.remove("out/" + name)
    tap.equal(tap.run("index", "--catalogue", "out").returncode, 0)
    tap.equal(catalogue(), want)
    good = tap.read("out/SHARDS.psc")
    for data, word in ((b"x" + good, b"damaged, or not a catalogue"), (good[:-1], b"damaged, or not a catalogue")):
        tap.write("out/SHARDS.psc", data)
        r = tap.run("index", "--verify", "out")
        assert r.returncode == 1 and b"SHARDS.psc: " + word in r.stderr, r.stderr
    tap.write("out/SHARDS.psc", good)
    tap.equal(tap.run("index", "--catalogue", "--dir", "i", "out").returncode, 2)


def folder(path):
    return {name: tap.read(os.path.join(path, name)) for name in os.listdir(path) if not name.endswith(".lock")}


@tap.test
def parts_that_run_in_parallel_make_the_files_of_one_run():
    files_make()
    pack = ["pack", "--index", "--classes", "--column", "cls", "--max-count", "3", "--shuffle", "4"]
    os.mkdir("source")
    os.rename("f", "source/f")
    for name in glob.glob("source/f/*.cls"):
        os.remove(name)
    tap.equal(tap.run(*pack, "source", "one/t-%03d.tar").returncode, 0)
    want = folder("one")
    assert len(want) > 12 and "CLASSES.txt" in want, sorted(want)
    for n in 1, 2, 7, 40:  # 40: more than there are shards
        out = "parts-%d" % n
        jobs = [subprocess.Popen([tap.LOADER, *pack, "--part", "%d/%d" % (k, n), "source", out + "/t-%03d.tar"],
                                 stdout=subprocess.PIPE) for k in range(1, n + 1)]
        said = [job.communicate()[0].split() for job in jobs]
        tap.equal([job.returncode for job in jobs], [0] * n)
        tap.equal(sum(int(words[0]) for words in said), 40, "the samples that the parts report")
        tap.equal(folder(out), want)
        for name in want:
            if not name.endswith(".tar"):
                os.remove(os.path.join(out, name))
        jobs = [subprocess.Popen([tap.LOADER, "index", "--catalogue", "--column", "cls", "--part", "%d/%d" % (k, n), out],
                                 stdout=subprocess.DEVNULL) for k in range(1, n + 1)]
        tap.equal([job.wait() for job in jobs], [0] * n)
        tap.equal(folder(out), {name: data for name, data in want.items() if name != "CLASSES.txt"})
        lines = [tap.run("index", "--verify", "--part", "%d/%d" % (k, n), out).stdout.splitlines() for k in range(1, n + 1)]
        tap.equal(sum(lines, []), tap.run("index", "--verify", out).stdout.splitlines())
        assert max(map(len, lines)) - min(map(len, lines)) <= 1
    for part in "0/3", "4/3", "1/0", "x", "1", "1/", "1/2/3", "-1/2", "1/2000000":
        r = tap.run("index", "--part", part, out)
        assert r.returncode == 2 and b"--part %s: must be K/N" % part.encode() in r.stderr, r.stderr


@tap.test
def verify_finds_a_shard_that_was_changed():
    files_make()
    tap.equal(tap.run("pack", "--index", "--column", "cls", "--max-count", "15", "f", "out/t-%03d.tar").returncode, 0)
    tap.equal(tap.run("index", "--dir", "d", "--column", "cls", "out").returncode, 0)

    def verify(*args):
        r = tap.run("index", "--verify", "--json", *args, "out")
        return r.returncode, [json.loads(line)["verified"] for line in r.stdout.splitlines()], r.stderr

    for args in ([], ["--dir", "d"]):
        tap.equal(verify(*args), (0, [True] * 3, b""))
    good = tap.read("out/t-001.tar")
    at = good.index(b"015.cls") + 512  # a label: headers and sizes stay the same
    tap.write("out/t-001.tar", good[:at] + b"9" + good[at + 1 :])
    for args in ([], ["--dir", "d"]):
        rc, verified, text = verify(*args)
        tap.equal((rc, verified), (1, [True, False, True]))
        assert b"t-001.tar" in text and b"was changed" in text, text
        # The command that the error advises repairs the index.
        advice = text.decode().split("penstock-loader ")[-1].strip().split()
        tap.equal(advice[1:2], ["--force"] if args else ["--catalogue"])
        advice = [a.replace("...", "cls") for a in advice]
        tap.equal(tap.run(*advice).returncode, 0)
        tap.equal(verify(*args), (0, [True] * 3, b""))
    tap.write("out/t-001.tar", good + bytes(10240))  # of another size
    text = verify()[2].decode()
    assert text.count("\n") == 1 and text.strip().endswith("index --catalogue out/t-001.tar"), text
    tap.equal(tap.run("index", "--catalogue", "out/t-001.tar").returncode, 0)
    tap.equal(verify(), (0, [True] * 3, b""))
    os.remove("out/SHARDS.psc")
    tap.write("out/t-001.tar", good)
    text = verify()[2].decode()
    assert text.strip().endswith("index --force out/t-001.tar"), text
    tap.equal(tap.run("index", "--force", "out/t-001.tar").returncode, 0)
    tap.equal(verify(), (0, [True] * 3, b""))
    os.rename("out/t-001.tar", "out/x"), os.rename("out/t-000.tar", "out/t-001.tar"), os.rename("out/x", "out/t-000.tar")
    rc, verified, text = verify()
    tap.equal((rc, verified[2]), (1, True))
    assert not verified[0] and not verified[1]


@tap.test
def index_counts_bad_samples_as_the_loader_does():
    shards(1, 4)
    tap.write("cut.tar", tap.read("t-0.tar")[:-1500 - 10240])
    r = tap.run("index", "--json", "cut.tar")
    tap.equal(r.returncode, 1)
    result = json.loads(r.stdout)
    tap.equal((result["bad"], result["written"]), (1, True))
    assert b"truncated" in r.stderr and r.stderr.count(b"\n") == 1, r.stderr
    head, samples, _, _ = index_read("cut.tar.psx")
    tap.equal((head["bad"], [s[2] for s in samples]), (1, [False] * (result["samples"] - 1) + [True]))
    r = tap.run("bench", "--json", "--image", "32", "--epochs", "1", "--on-error", "skip", "cut.tar")
    tap.equal(json.loads(r.stdout)["samples"], result["samples"])


@tap.test
def options_that_are_gone_say_what_to_do():
    for option, word in ("--dali", b"wds2idx"), ("--from-dali", b"index reads the shards"):
        r = tap.run("index", option, "t-0.tar")
        tap.equal((r.returncode, r.stderr.count(b"\n"), word in r.stderr), (2, 1, True), r.stderr)
        assert option.encode() not in tap.run("index", "--help").stdout


@tap.test
def columns_come_from_the_members_that_are_named():
    tap.make_tar("c.tar", [m for i in range(4) for m in [("%d.cls" % i, b"%d" % i), ("%d.h" % i, b"%d" % (100 + i)),
                                                         ("%d.json" % i, b'{"h": %d}' % (200 + i))]])

    def taken(*columns):
        r = tap.run("index", *[a for c in columns for a in ("--column", c)], "c.tar")
        tap.equal((r.returncode, r.stderr), (0, b""))
        return b"up to date" not in r.stdout, index_read("c.tar.psx")[2]

    tap.equal(taken("a=cls"), (True, {"a": [0, 1, 2, 3]}))
    tap.equal(taken("a=CLS"), (False, {"a": [0, 1, 2, 3]}), "the same member")
    tap.equal(taken("a=h"), (True, {"a": [100, 101, 102, 103]}))
    tap.equal(taken("a=json:h"), (True, {"a": [200, 201, 202, 203]}))
    tap.equal(taken("b=h", "a=json:h")[0], True)
    tap.equal(taken("a=json:h"), (False, {"b": [100, 101, 102, 103], "a": [200, 201, 202, 203]}))
    r = tap.run("index", "--column", "a=h", "--column", "a=cls", "c.tar")
    tap.equal((r.returncode, r.stdout), (2, b""))
    assert b"different name" in r.stderr, r.stderr


@tap.test
def an_index_without_the_sources_of_its_columns_is_made_again():
    tap.make_tar("c.tar", [m for i in range(4) for m in [("%d.cls" % i, b"%d" % i), ("%d.h" % i, b"%d" % (100 + i))]])
    tap.equal(tap.run("index", "--column", "a=cls", "c.tar").returncode, 0)
    forget_sources("c.tar.psx")
    tap.equal(index_read("c.tar.psx")[2], {"a": [0, 1, 2, 3]})
    assert b"up to date" in tap.run("index", "c.tar").stdout, "without --column the index is up to date"
    r = tap.run("index", "--column", "a=cls", "c.tar")
    tap.equal((r.returncode, r.stdout), (0, b"c.tar\t4 samples\n"))


if __name__ == "__main__":
    tap.main()
