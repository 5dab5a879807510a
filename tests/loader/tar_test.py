#!/usr/bin/python3
"""Compares the tar walker with Python's tarfile and GNU tar; tars that are damaged on purpose."""
import gzip
import io
import json
import os
import subprocess
import tarfile

import tap

DATA = bytes(range(256)) * 5
FILES = [("d/%03d.%s" % (i, ext), DATA[: i * 37 + j]) for i in range(8) for j, ext in enumerate(("jpg", "cls"))]


def files_of(samples):
    return [(s["key"] + "." + k, v) for s in samples for k, v in tap.field_bytes(s).items()]


def check_same(path, files=None):
    samples, rc, err = tap.ls(path)
    tap.equal((rc, err), (0, ""))
    with tarfile.open(path) as tar:
        want = [(m.name, tar.extractfile(m).read()) for m in tar if m.isreg() or m.islnk()]
    tap.equal(files_of(samples), want, "as read by tarfile")
    if files is not None:
        tap.equal(want, files, "as written")


add = sum


def octal(value, width):
    return b"%0*o\0" % (width - 1, value)


def header(name, size=0, type=b"0", magic=b"ustar\00000", prefix=b"", sum=None, size_field=None):
    """One header block; sum: computes the checksum of its bytes."""
    h = bytearray(512)
    h[0 : len(name)] = name
    h[100:108] = octal(0o644, 8)
    h[124:136] = size_field if size_field is not None else octal(size, 12)
    h[136:148] = octal(0, 12)
    h[156:157] = type
    h[257 : 257 + len(magic)] = magic
    h[345 : 345 + len(prefix)] = prefix
    h[148:156] = b" " * 8
    total = (sum or add)(h)
    h[148:156] = b"%06o\0 " % total
    return bytes(h)


def pad(data):
    return data + bytes(-len(data) % 512)


def member(name, data, **kwargs):
    return header(name, len(data), **kwargs) + pad(data)


END = bytes(1024)


def pax(records, type=b"x"):
    body = b"".join(records)
    return header(b"pax", len(body), type=type) + pad(body)


def record(key, value):
    n = len(key) + len(value) + 3
    while len(b"%d" % n) + len(key) + len(value) + 3 != n:
        n = len(b"%d" % n) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (n, key, value)


def ls_raw(data):
    return tap.ls(tap.write("raw.tar", data))


def check_sound(data, want):
    samples, rc, err = ls_raw(data)
    tap.equal((rc, err), (0, ""))
    tap.equal(files_of(samples), want)


def check_damaged(data, word, keys=()):
    samples, rc, err = ls_raw(data)
    tap.equal(rc, 1)
    assert word in err and len(err.splitlines()) == 1, err
    tap.equal([s["key"] for s in samples], list(keys))


for name, fmt in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):

    def formats(fmt=fmt):
        check_same(tap.make_tar("a.tar", FILES, fmt), FILES)

    formats.__name__ = "loader-tar-reads-" + name
    tap.test(formats)

for kind in ("v7", "oldgnu", "gnu", "ustar", "posix"):

    def gnu_tar(kind=kind):
        os.mkdir("d")
        for name, data in FILES:
            tap.write(name, data)
        os.symlink("000.jpg", "d/link.jpg")
        os.link("d/000.cls", "d/zz.hard")
        os.mkdir("d/empty.folder")
        subprocess.run(["tar", "--format=" + kind, "--sort=name", "-cf", "a.tar", "d"], check=True)
        check_same("a.tar")

    gnu_tar.__name__ = "loader-tar-reads-gnu-tar-" + kind
    tap.test(gnu_tar)


@tap.test
def long_names_are_read():
    files = [("p/" + "n" * n + ".jpg", b"%d" % n) for n in (90, 94, 95, 96, 150, 250, 254, 255, 256, 1000, 5000)]
    for fmt in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        check_same(tap.make_tar("a.tar", files, fmt), files)


@tap.test
def prefixes_of_ustar_names_are_read():
    files = [("q" * 100 + "/" + "n" * 90 + ".jpg", b"1")]
    check_same(tap.make_tar("a.tar", files, tarfile.USTAR_FORMAT), files)
    check_sound(member(b"a.jpg", b"1", prefix=b"x/y") + END, [("x/y/a.jpg", b"1")])
    check_sound(member(b"a.jpg", b"1", magic=b"ustar  \0", prefix=b"14005") + END, [("a.jpg", b"1")])


@tap.test
def size_fields_of_every_form_are_read_or_refused():
    one = [("a.jpg", b"1")]
    for size_field in (b"\x80" + bytes(10) + b"\x01", b"          1 ", b"00000000001 ", b"1\0" + b"7" * 10, b" 1" + bytes(10)):
        check_sound(header(b"a.jpg", size_field=size_field) + pad(b"1") + END, one)
    for size_field in (b"\xff" * 12, b"\xc0" + bytes(11), b"\x80" + b"\xff" * 11, b"0000000000x\0", b"-0000000001\0"):
        check_damaged(header(b"a.jpg", size_field=size_field) + pad(b"1") + END, "damaged tar at offset 0")
    check_sound(header(b"a.jpg", size_field=bytes(12)) + END, [("a.jpg", b"")])


@tap.test
def signed_checksums_are_accepted():
    name = "\u00e9.jpg".encode("latin-1")
    h = header(name, 1, sum=lambda h: sum(b - 256 * (b > 127) for b in h))
    samples, rc, err = ls_raw(h + pad(b"1") + END)
    tap.equal((rc, err), (0, ""))
    tap.equal([s["key"] for s in samples], ["\udce9"])


@tap.test
def pax_paths_and_sizes_are_applied():
    two = record(b"path", b"x/long.jpg") + record(b"mtime", b"1.5")
    check_sound(pax([two]) + member(b"short.jpg", b"1") + END, [("x/long.jpg", b"1")])
    check_sound(pax([record(b"size", b"3")]) + header(b"a.jpg", 0) + pad(b"abc") + END, [("a.jpg", b"abc")])
    check_sound(pax([record(b"path", b"g.jpg")], b"g") + member(b"a.jpg", b"1") + END, [("g.jpg", b"1")])
    check_sound(
        pax([record(b"path", b"g.jpg")], b"g") + pax([record(b"path", b"l.cls")]) + member(b"a.jpg", b"1") + END,
        [("l.cls", b"1")],
    )
    big = record(b"comment", b"c" * 200000) + record(b"path", b"p.jpg")
    check_sound(pax([big]) + member(b"a.jpg", b"1") + END, [("p.jpg", b"1")])


@tap.test
def hostile_pax_headers_are_damage():
    rest = member(b"a.jpg", b"1") + END
    for body in (
        b"999999999 path=x\n",
        record(b"mtime", b"1.5") + b"0 x=y\n",
        b"3 a\n",
        b"0 path=x\n",
        b"11 path=x.y\x00",
        b"path=x\n",
        b"-5 path=x\n",
        b"99999999999999999999 path=x\n",
        b"12 pathxxxx1\n"[:12] + b"\n",
        record(b"size", b"-1"),
        record(b"size", b"99999999999999999999"),
        record(b"size", b"1x"),
        record(b"path", b"a\0b.jpg"),
        record(b"path", b"x" * 20000),
    ):
        check_damaged(pax([body]) + rest, "damaged tar at offset 0")
    check_damaged(header(b"pax", 2 << 20, type=b"x") + bytes(4 << 20), "the archive ends after an extended header")
    check_damaged(pax([record(b"path", b"x" * (3 << 20))]) + rest, "a pax path that is too long")
    check_damaged(pax([record(b"comment", b"x" * (3 << 20))])[: 1 << 20], "truncated: the tar ends")
    check_damaged(header(b"l", 1 << 20, type=b"L") + bytes(2 << 20), "16 KiB")
    check_damaged(header(b"l", 1 << 20, type=b"K") + bytes(2 << 20), "16 KiB")
    check_damaged(pax([record(b"size", b"999999999999999999")]) + rest, "truncated")
    check_damaged(pax([record(b"path", b"a.jpg")]) + END, "the archive ends after an extended header")


@tap.test
def members_that_are_no_files_are_skipped():
    parts = b"".join(header(b"x.%d" % i, 512 * 7, type=b"%d" % i) for i in range(2, 7))
    check_sound(member(b"a.jpg", b"1") + parts + member(b"a.cls", b"2") + END, [("a.jpg", b"1"), ("a.cls", b"2")])
    unknown = member(b"u.jpg", DATA, type=b"V")
    check_sound(member(b"a.jpg", b"1") + unknown + member(b"a.cls", b"2") + END, [("a.jpg", b"1"), ("a.cls", b"2")])
    check_sound(member(b"a.jpg", b"1") + header(b"d.x/", type=b"\0") + END, [("a.jpg", b"1")])
    check_sound(member(b"c.jpg", b"1", type=b"7") + END, [("c.jpg", b"1")])
    link = header(b"l.jpg", type=b"2")
    for before in (  # what is said of a link is no reason to refuse a shard
        pax([record(b"linkpath", b"x" * 20000)]),
        pax([record(b"linkpath", b"x" * 20000)], b"g"),
        pax([record(b"linkpath", b"a\0b")]),
        pax([record(b"mtime", b"-1x")]),
        header(b"k", 0, type=b"K"),
        header(b"k", 16384, type=b"K") + bytes(16384),
    ):
        check_sound(before + link + member(b"a.jpg", b"1") + END, [("a.jpg", b"1")])
        check_sound(before + member(b"a.jpg", b"1") + END, [("a.jpg", b"1")])


@tap.test
def long_pax_records_that_say_nothing_of_a_member_are_skipped():
    plain = member(b"a.txt", b"1") + member(b"b.txt", b"2") + END
    want = [("a.txt", b"1"), ("b.txt", b"2")]
    for size in (60000, 65536, 3_000_000):
        for type in (b"x", b"g"):
            check_sound(pax([record(b"comment", b"x" * size)], type) + plain, want)
            check_sound(pax([record(b"comment", b"x" * size), record(b"mtime", b"1.5")], type) + plain, want)
    many = [record(b"SCHILY.xattr.user.%d" % i, b"y" * (i % 700)) for i in range(5000)]  # 1.8 MB
    check_sound(pax([*many, record(b"path", b"z.txt")]) + plain, [("z.txt", b"1"), ("b.txt", b"2")])
    check_sound(pax([record(b"path", b"z.txt"), record(b"comment", b"x" * 200000), record(b"size", b"1")]) + plain, [("z.txt", b"1"), ("b.txt", b"2")])


def link(name, target):
    h = bytearray(header(name, type=b"1"))
    h[157 : 157 + len(target)] = target
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % add(h)
    return bytes(h)


@tap.test
def hard_links_have_the_bytes_of_an_earlier_member():
    first = member(b"a.cls", b"7") + member(b"a.txt", DATA) + member(b"LICENSE", b"free")
    data = first + link(b"b.cls", b"a.cls") + link(b"b.txt", b"./a.txt") + link(b"c.cls", b"b.cls") + link(b"d.txt", b"LICENSE")
    data += member(b"a.cls", b"8") + link(b"e.cls", b"a.cls") + END  # the last of that name before the link
    want = [("a.cls", b"7"), ("a.txt", DATA), ("b.cls", b"7"), ("b.txt", DATA), ("c.cls", b"7"), ("d.txt", b"free"), ("a.cls", b"8"),
            ("e.cls", b"8")]
    check_sound(data, want)
    for wrong, name in ((link(b"x.cls", b"x.cls"), "x.cls"), (link(b"x.cls", b"nosuch"), "nosuch"), (link(b"x.cls", b"later.cls"), "later.cls"),
                        (link(b"x.cls", b""), ""), (header(b"s.cls", type=b"2") + link(b"x.cls", b"s.cls"), "s.cls")):
        samples, rc, err = ls_raw(first + wrong + member(b"later.cls", b"9") + END)
        tap.equal((rc, [s["key"] for s in samples]), (1, ["a", "later"]))
        assert 'field .cls is a hard link to "%s", which is not an ordinary file before it' % name in err, err
    for suffix, packed in ((".gz", gzip.compress(data)),):
        samples, rc, err = tap.ls(tap.write("raw.tar" + suffix, packed))
        tap.equal((rc, [s["key"] for s in samples]), (1, ["a", "a"]))
        assert "cannot be read again in a pipe or a compressed shard" in err, err
    done = tap.run("doctor", tap.write("raw.tar", data))
    assert b"hint: hard_link (5)" in done.stdout and done.returncode == 1, done  # 1: two samples of one key
    done = tap.run("doctor", tap.write("raw.tar", first + link(b"b.cls", b"a.cls") + END), "--fix", "fixed")
    assert b"hint: hard_link (1)" in done.stdout and done.returncode == 0, done
    with tarfile.open("fixed/raw.tar") as tar:
        tap.equal([(m.name, m.isreg(), tar.extractfile(m).read()) for m in tar if m.name == "b.cls"], [("b.cls", True, b"7")])


@tap.test
def a_tar_without_an_end_mark_is_delivered():
    data = member(b"a.jpg", b"1") + member(b"a.cls", b"2") + member(b"b.jpg", b"3") + member(b"b.cls", b"4")
    want = [("a.jpg", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("b.cls", b"4")]
    check_sound(data, want)
    done = tap.run("doctor", "raw.tar", "--json")
    found = json.loads(done.stdout)["findings"]
    tap.equal((done.returncode, [(f["kind"], f["error"]) for f in found]), (1, [("no_end_mark", True)]))
    assert found[0]["first"] == "complete up to byte 4096, or cut there", found
    done = tap.run("doctor", "raw.tar", "--fix", "fixed")
    tap.equal(done.returncode, 0)
    check_same("fixed/raw.tar", want)
    tap.equal(tap.read("fixed/raw.tar")[-1024:], END)
    tap.equal(tap.run("doctor", "fixed/raw.tar").returncode, 0)
    # an index that has no more is no reason, one that has more is
    tap.run("index", "raw.tar", check=True)
    check_same("raw.tar", want)
    for longer in (member(b"c.jpg", b"5"), member(b"b.txt", b"5")):
        tap.write("raw.tar", data + longer + END)
        tap.run("index", "--force", "raw.tar", check=True)
        check_damaged(data, "its index has more", ["a"])
        tap.equal(tap.run("doctor", "raw.tar").returncode, 1)


@tap.test
def sparse_members_are_bad():
    tap.write("hole.bin", b"")
    os.truncate("hole.bin", 1 << 20)
    with open("hole.bin", "r+b") as f:
        for at in range(0, 1 << 20, 1 << 16):
            f.seek(at)
            f.write(b"x")
    for kind in ("oldgnu", "posix"):
        subprocess.run(["tar", "--format=" + kind, "-Scf", "a.tar", "hole.bin"], check=True)
        subprocess.run(["tar", "--format=" + kind, "-rf", "a.tar", tap.write("z.txt", b"hi")], check=True)
        samples, rc, err = tap.ls("a.tar")
        tap.equal((rc, files_of(samples)), (1, [("z.txt", b"hi")]))
        assert 'sample "hole" at offset 0: field .bin is a sparse file' in err, "the error has the wrong name: " + err


@tap.test
def the_name_of_a_skipped_sparse_member_is_not_used_for_the_next_member():
    hole = pax([record(b"GNU.sparse.name", b"hole.bin")]) + member(b"x/hole.bin", b"1")
    samples, rc, err = ls_raw(hole + pax([record(b"path", b"z/long.txt")]) + member(b"cut.txt", b"hi") + END)
    tap.equal((rc, files_of(samples)), (1, [("z/long.txt", b"hi")]))


@tap.test
def bad_checksums_are_damage():
    data = bytearray(b"".join(member(n.encode(), d) for n, d in FILES[:4]) + END)
    first = 512 + len(pad(FILES[0][1]))
    data[first + 3] ^= 1
    check_damaged(bytes(data), "bad header checksum")
    check_damaged(b"x" * 2048, "no tar header")
    check_damaged(b"\x1f\x8b" + b"x" * 2048, "no tar header")


@tap.test
def a_tar_truncated_anywhere_gives_whole_samples_only():
    whole = tap.read(tap.make_tar("whole.tar", FILES))
    want = {s["key"]: tap.field_bytes(s) for s in tap.ls("whole.tar")[0]}
    ends = [i for i in range(0, len(whole), 512)] + [i + d for i in range(0, len(whole), 1536) for d in (1, 100, 511)]
    end_mark = whole.rindex(FILES[-1][1]) + len(FILES[-1][1])
    end_mark += -end_mark % 512
    with tarfile.open("whole.tar") as tar:
        between = {m.offset for m in tar} - {0} | {end_mark}  # no member is cut there, but a sample may be
    for end in sorted(ends):
        samples, rc, err = ls_raw(whole[:end])
        tap.equal(rc, 0 if end >= end_mark + 512 or end in between else 1, "cut at %d" % end)
        assert (rc == 0) == (err == ""), err
        if 0 < end < end_mark and end % 512 == 0 and end not in between:
            assert "truncated: the tar ends at offset" in err, err
        for s in samples if end not in between else samples[:-1]:
            tap.equal(tap.field_bytes(s), want[s["key"]], "cut at %d" % end)


@tap.test
def members_after_the_end_mark_are_ignored():
    check_sound(member(b"a.jpg", b"1") + bytes(512) + b"garbage", [("a.jpg", b"1")])
    check_sound(member(b"a.jpg", b"1") + END + member(b"b.jpg", b"1") + END, [("a.jpg", b"1")])


@tap.test
def keys_and_suffixes_are_cut_as_by_webdataset():
    table = [  # name; key and suffix as cut by webdataset's regular expression, or None
        ("a.jpg", ("a", "jpg")),
        ("a.B.JPG", ("a", "b.jpg")),
        ("A.Jpg", ("A", "jpg")),
        ("noext", None),
        (".hidden", None),
        ("d/.hidden", ("d/", "hidden")),
        ("d.e/.hidden", None),
        ("d//.x", ("d//", "x")),
        ("d.e/f", None),
        ("d.e/f.g", ("d.e/f", "g")),
        ("..jpg", None),
        ("a..jpg", ("a", ".jpg")),
        ("a.", ("a", "")),
        ("/a.x", ("/a", "x")),
        ("__meta__", None),
        ("__meta__/a.x", None),
        ("__meta__.x", ("__meta__", "x")),
        ("d/__meta__.x", ("d/__meta__", "x")),
        ("____/a.x", None),
        ("__/a.x", ("__/a", "x")),
        ("\u00e9/\u00e9.\u00c9", ("\u00e9/\u00e9", "\u00c9")),
    ]
    for name, want in table:
        samples, rc, err = tap.ls(tap.make_tar("a.tar", [(name, b"1")]))
        tap.equal((rc, err), (0, ""), name)
        tap.equal([(s["key"], list(s["fields"])) for s in samples], [(want[0], [want[1]])] if want else [], name)


@tap.test
def a_key_that_comes_back_is_another_sample():
    files = [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")]
    samples, rc, _ = tap.ls(tap.make_tar("a.tar", files))
    tap.equal((rc, [(s["key"], list(s["fields"])) for s in samples]), (0, [("a", ["x"]), ("b", ["x"]), ("a", ["y"])]))


@tap.test
def reserved_suffixes_make_a_sample_bad():
    for suffix in ("__key__", "__url__"):
        samples, rc, err = tap.ls(tap.make_tar("a.tar", [("a." + suffix, b"1"), ("b.x", b"2")]))
        tap.equal((rc, [s["key"] for s in samples]), (1, ["b"]))


if __name__ == "__main__":
    tap.main()
