"""make_compressed.py DIR PLAIN [NBYTES]: writes compressed shards of every form to DIR, and the contents of
each to PLAIN under the name that the mount shows.

make_compressed.py --one FORM IN OUT: writes one shard, with the contents of the file IN."""
import gzip
import os
import random
import struct
import subprocess
import sys
import tempfile


def text(nbytes, seed):
    """70 % words, 30 % noise: compresses about two to one."""
    rng = random.Random(seed)
    words = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(3, 12))) for _ in range(500)]
    out = bytearray()
    while len(out) < nbytes:
        out += rng.randbytes(3000) if rng.random() < 0.3 else b" ".join(rng.choices(words, k=400))
    return bytes(out[:nbytes])


def zstd(data, *options, declared=True):
    """One frame; with its size in the header if zstd reads a file, not if it reads a pipe."""
    if not declared:
        return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        return subprocess.run(["zstd", "-q", "-c", *options, f.name], stdout=subprocess.PIPE, check=True).stdout


def skippable(data):
    return struct.pack("<II", 0x184D2A5E, len(data)) + data


def pieces(data, nbytes):
    return [data[i : i + nbytes] for i in range(0, len(data), nbytes)]


def seekable(data, frame):
    frames = [(zstd(p), len(p)) for p in pieces(data, frame)]
    table = b"".join(struct.pack("<II", len(packed), plain) for packed, plain in frames)
    return b"".join(p for p, _ in frames) + skippable(table + struct.pack("<IBI", len(frames), 0, 0x8F92EAB1))


FORMS = {
    "one.tar.zst": zstd,
    "piped.tar.zst": lambda d: zstd(d, declared=False),
    "unchecked.tar.zst": lambda d: zstd(d, "--no-check"),
    "window.tar.zst": lambda d: zstd(d, "--long=24"),
    "frames.tar.zst": lambda d: b"".join(zstd(p) for p in pieces(d, 700001)),
    "piped-frames.tar.zst": lambda d: b"".join(zstd(p, declared=False) for p in pieces(d, 700001)),
    "seekable.tar.zst": lambda d: seekable(d, 1 << 20),
    "odd-seekable.tzst": lambda d: seekable(d, 300007),
    "skippable.tar.zst": lambda d: skippable(b"before") + zstd(d[:999]) + skippable(b"") + zstd(d[999:]) + skippable(b"x"),
    "plain.tar.gz": lambda d: gzip.compress(d, 1),
    "members.tgz": lambda d: gzip.compress(d[:700001], 1) + gzip.compress(b"") + gzip.compress(d[700001:], 1) + bytes(512),
}


def shown(name):
    for suffix, by in ((".tar.zst", ".tar"), (".tar.gz", ".tar"), (".tzst", ".tar"), (".tgz", ".tar")):
        if name.endswith(suffix):
            return name[: -len(suffix)] + by
    return name


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def main():
    if sys.argv[1] == "--one":
        with open(sys.argv[3], "rb") as f:
            write(sys.argv[4], FORMS[sys.argv[2]](f.read()))
        return
    packed, plain = sys.argv[1:3]
    data = text(int(sys.argv[3]) if len(sys.argv) > 3 else 2_500_001, 7)
    os.makedirs(packed, exist_ok=True)
    os.makedirs(plain, exist_ok=True)
    for name, make in FORMS.items():
        write(f"{packed}/{name}", make(data))
        write(f"{plain}/{shown(name)}", data)
    write(f"{packed}/empty.tar.zst", zstd(b""))
    write(f"{plain}/empty.tar", b"")
    write(f"{packed}/small.tar.zst", zstd(data[:1000]))
    write(f"{plain}/small.tar", data[:1000])
    # Not a shard: the mount shows it as it is.
    for folder in (packed, plain):
        write(f"{folder}/notes.json.gz", gzip.compress(b"{}", mtime=0))


if __name__ == "__main__":
    main()
