"""Tars whose members have names that are hostile or unusual, in GNU's format and in pax.

make_members.py make FOLDER       writes the tars
make_members.py compare FOLDER    compares what FOLDER, a mount of the tars with --members, shows with what it should
make_members.py hidden            prints how many members that mount should hide"""

import io
import os
import sys
import tarfile


def member(name, kind=tarfile.REGTYPE, data=b"", link="", mtime=1700000000):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mtime = kind, len(data), link, mtime
    return info, data


FILE, DIR, SYM, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
LONG = "n" * 255
DEEP = "/".join(["d" * 200] * 10)

# name of the tar: members, what is shown
TARS = {
    "names": (
        [
            member("plain.txt", data=b"plain"),
            member("./dot/./slash//x", data=b"x"),
            member("/absolute", data=b"abs"),
            member("../outside", data=b"no"),
            member("a/../../outside", data=b"no"),
            member("a/..", data=b"no"),
            member("new\nline", data=b"nl"),
            member("sp ace", data=b"sp"),
            member("not-utf8-\udcff", data=b"u"),
            member(LONG, data=b"long"),
            member("n" * 256, data=b"no"),
            member(f"{DEEP}/leaf", data=b"deep"),
            member("/".join(["d" * 200] * 21) + "/leaf", data=b"no"),
            member("x" * 65536, data=b"no"),
            member("after", data=b"after the long name"),
            member(".hidden", data=b"h"),
            member("-dash", data=b"d"),
            member("empty"),
            member("./", DIR),
            member("emptydir/", DIR),
        ],
        {
            "plain.txt": b"plain",
            "dot/slash/x": b"x",
            "absolute": b"abs",
            "new\nline": b"nl",
            "sp ace": b"sp",
            "not-utf8-\udcff": b"u",
            LONG: b"long",
            f"{DEEP}/leaf": b"deep",
            "after": b"after the long name",
            ".hidden": b"h",
            "-dash": b"d",
            "empty": b"",
            "emptydir": DIR,
        },
        6,  # hidden
    ),
    "twice": (
        [
            member("f", data=b"first"),
            member("f", data=b"second"),
            member("was-file", data=b"1"),
            member("was-file/in-folder", data=b"2"),
            member("folder/x", data=b"3"),
            member("folder", data=b"hidden by the folder"),
            member("again/", DIR),
            member("again/", DIR),
            member("again/y", data=b"4"),
        ],
        {"f": b"second", "was-file/in-folder": b"2", "folder/x": b"3", "again/y": b"4"},
        3,
    ),
    "links": (
        [
            member("data/a", data=b"AAA"),
            member("hard", HARD, link="data/a"),
            member("hard-of-hard", HARD, link="hard"),
            member("hard-missing", HARD, link="nowhere"),
            member("hard-out", HARD, link="../../etc/passwd"),
            member("sym", SYM, link="data/a"),
            member("data/up", SYM, link="../data/./a"),
            member("data/root", SYM, link=".."),
            member("sym-of-sym", SYM, link="sym"),
            member("sym-folder", SYM, link="data"),
            member("through", SYM, link="sym-folder/a"),
            member("absolute", SYM, link="/etc/passwd"),
            member("out", SYM, link="../outside"),
            member("out-later", SYM, link="data/../../outside"),
            member("trick/dot", SYM, link="."),
            member("trick2", SYM, link="trick/dot/../../outside"),
            member("dangling", SYM, link="nothing"),
            member("loop1", SYM, link="loop2"),
            member("loop2", SYM, link="loop1"),
        ],
        {
            "data/a": b"AAA",
            "hard": b"AAA",
            "hard-of-hard": b"AAA",
            "sym": b"AAA",
            "data/up": b"AAA",
            "data/root": SYM,
            "sym-of-sym": b"AAA",
            "sym-folder": SYM,
            "through": b"AAA",
            "trick/dot": SYM,
        },
        9,
    ),
    "devices": (
        [
            member("fifo", tarfile.FIFOTYPE),
            member("null", tarfile.CHRTYPE),
            member("disk", tarfile.BLKTYPE),
            member("file", data=b"f"),
        ],
        {"file": b"f"},
        3,
    ),
}


FORMATS = {"": tarfile.GNU_FORMAT, "-pax": tarfile.PAX_FORMAT}


def make(folder):
    for name, (members, _, _) in TARS.items():
        for suffix, kind in FORMATS.items():
            path = f"{folder}/{name}{suffix}.tar"
            with tarfile.open(path, "w", format=kind, errors="surrogateescape") as tar:
                for info, data in members:
                    tar.addfile(info, io.BytesIO(data))


def shown(top):
    """What a folder shows: the bytes of files and of links to them, the kind of the rest."""
    found = {}
    for path, folders, files in os.walk(top):
        for name in folders + files:
            whole = os.path.join(path, name)
            short = os.path.relpath(whole, top)
            if os.path.islink(whole):
                real = os.path.realpath(whole)
                assert real == top or real.startswith(top + "/"), f"{short} leads to {real}"
            if os.path.isfile(whole):
                with open(whole, "rb") as file:
                    found[short] = file.read()
            elif os.path.islink(whole):
                found[short] = SYM
            elif not os.listdir(whole):
                found[short] = DIR
    return found


def compare(mount):
    for name, expected in [(name + suffix, tar[1]) for name, tar in TARS.items() for suffix in FORMATS]:
        found = shown(os.path.realpath(f"{mount}/{name}"))
        for path in sorted(set(found) | set(expected)):
            if found.get(path) != expected.get(path):
                sys.exit(f"{name}: {path!r} is {found.get(path)!r}, not {expected.get(path)!r}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    elif sys.argv[1] == "hidden":
        print(len(FORMATS) * sum(hidden for _, _, hidden in TARS.values()))
    else:
        compare(sys.argv[2])
