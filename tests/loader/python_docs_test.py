#!/usr/bin/python3
"""Runs each ```python block of docs/python/ and docs/guides/; the blocks of a page run one after the other.

A page's blocks share names and a folder, which holds:

    train/shard-{000000..000003}.tar   8 samples and an index each; members jpg, cls (0 to 2), txt, json
                                       (caption, boxes, size), npy (3 x 4 f32), seq.npy (n x 2 f32), seg.png
                                       (levels 0 to 2), bin (65 u16 tokens)
    val/shard-000000.tar               the same, without an index
    photos/CLASS/*.jpg                 classes bird and boat
    photos.parquet                     columns image (struct of bytes and path) and label; if pyarrow is installed

A block that imports a package that is not installed is skipped, and so are later blocks that use names which
the skipped block defines. What a block prints must be what a ```text block right after it shows. A comment
before a block may be a directive:

    <!-- test: skip WHY -->            the block is not run, only parsed
    <!-- test: file train.py -->       the block is written to this file in the page's folder
    <!-- test: torchrun 2 -->          the block is run by that many processes, as by torchrun
    <!-- test: shell -->               the ```sh block is run, with penstock-loader and this Python in PATH
    <!-- test: shell about -->         likewise; the numbers that it prints may differ from those that are shown
    <!-- test: about -->               the same for a block of Python

quick-start.md, tutorial.md and imagenet.md get an empty folder, as their readers do: `penstock-loader make-dataset` is their first
command. All their blocks are run.

remote.md needs a server, and quick-start.md a mount: tests/fs/programs/python_docs.sh runs them. tokens.md needs an S3
server: tests/fs/programs/tokens_guide.sh runs it. trainers.md needs packages that
python_trainers_test.py installs: that test runs it, too.

Arguments name the pages to run: python_docs_test.py tutorial.md."""
import ast
import contextlib
import glob
import importlib.util
import io
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types

import tap

tap.python_environment(tap.DOCS[0], [], tap.DOCS[1], required=False)
tap.python_package()

DOCS = os.path.join(tap.SRC, "docs")
ORIGIN = os.environ.get("PENSTOCK_DOCS_ORIGIN")  # replaces https://data.example.org
BIN = tempfile.TemporaryDirectory(prefix="penstock-docs-bin-")
MOUNTS = "remote.md", "quick-start.md", "tokens.md"
EMPTY = "quick-start.md", "tutorial.md", "imagenet.md"
BLOCK = re.compile(r"^(?:<!-- test: (?P<how>[^\n]*?) -->\n+)?```(?P<language>python|sh)\n(?P<code>.*?)^```\n"
                   r"(?:\n*```text\n(?P<shows>.*?)^```\n)?", re.M | re.S)


def data_make():
    """Makes the files of a page's folder."""
    import numpy
    from PIL import Image

    os.makedirs("train")
    os.makedirs("val")
    for s in range(5):
        files = []
        for i in range(8):
            n, photo = 8 * s + i, tap.read(tap.PHOTOS[(8 * s + i) % len(tap.PHOTOS)])
            width, height = Image.open(io.BytesIO(photo)).size
            png, one, seq = io.BytesIO(), io.BytesIO(), io.BytesIO()
            Image.fromarray(numpy.full((height, width), n % 3, "u1")).save(png, "png")
            numpy.save(one, numpy.full((3, 4), n, "f4"))
            numpy.save(seq, numpy.full((1 + n % 5, 2), n, "f4"))
            key = "%06d" % n
            files += [(key + ".jpg", photo), (key + ".cls", b"%d" % (n % 3)), (key + ".txt", b"photograph %d" % n),
                      (key + ".json", b'{"caption": "photograph %d", "boxes": [[10, 20, 110, 120]%s], "size": [%d, %d]}'
                       % (n, b", [0, 0, 50, 60]" * (n % 2), width, height)),
                      (key + ".npy", one.getvalue()), (key + ".seq.npy", seq.getvalue()), (key + ".seg.png", png.getvalue()),
                      (key + ".bin", struct.pack("<65H", *(range(n, n + 65))))]
        tap.make_tar("train/shard-%06d.tar" % s if s < 4 else "val/shard-000000.tar", files)
    assert tap.run("index", *sorted(glob.glob("train/*.tar"))).returncode == 0
    for i, photo in enumerate(tap.PHOTOS[:6]):
        os.makedirs("photos/%s" % ("bird", "boat")[i % 2], exist_ok=True)
        shutil.copy(photo, "photos/%s/%d.jpg" % (("bird", "boat")[i % 2], i))
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet
        rows = [{"image": {"bytes": tap.read(p), "path": os.path.basename(p)}, "label": i % 2} for i, p in enumerate(tap.PHOTOS[:6])]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "photos.parquet")


class Page:
    def __init__(self, path):
        self.name = os.path.basename(path)
        self.where = os.path.relpath(path, tap.SRC)
        self.text = tap.read(path).decode()
        self.folder = None
        # Each page has its own module, so that functions and classes of a block can be pickled.
        self.module = types.ModuleType("page")
        self.lost = {}  # names that a skipped block would have bound, and why

    def blocks(self):
        for m in BLOCK.finditer(self.text):
            yield self.text.count("\n", 0, m.start("code")), m

    def enter(self):
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="penstock-docs-")
            os.chdir(self.folder)
            if self.name not in EMPTY:
                data_make()
        os.chdir(self.folder)
        sys.modules["page"] = self.module


def lacking(tree):
    """Packages that the code imports and that are not installed."""
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return sorted(n for n in {name.split(".")[0] for name in names} - {"penstock"} if importlib.util.find_spec(n) is None)


def run_block(page, line, m):
    how, _, argument = (m["how"] or "run").partition(" ")
    code, shows = m["code"], m["shows"]
    if page.name in MOUNTS and not ORIGIN:
        raise tap.Skip("tests/fs/programs/python_docs.sh runs this page")
    code = code.replace("https://data.example.org", ORIGIN or "")
    page.enter()
    where = page.where
    if m["language"] == "sh":
        have = run_command(["bash", "-euc", code])
        if argument == "about":
            have, shows = about(have), about(shows)
        return tap.equal(have, have if shows is None else shows, "%s:%d" % (where, line))
    tree = ast.parse("\n" * line + code, where)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    why = argument if how == "skip" else "needs " + ", ".join(lacking(tree)) if lacking(tree) else next(
        (page.lost[name] for name in sorted(used) if name in page.lost), None)
    if why:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                page.lost[node.id] = why
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                page.lost[node.name] = why
        raise tap.Skip(why)
    if how in ("file", "torchrun"):
        name = argument if how == "file" else "torchrun.py"
        with open(name, "w") as f:
            f.write(code)
        have = "" if how == "file" else run_ranks(int(argument), name)
    else:
        assert how in ("run", "about"), "%s:%d: no such directive: %s" % (where, line, how)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, where, "exec"), page.module.__dict__)
        have = printed.getvalue()
    if how == "about":
        have, shows = about(have), about(shows)
    tap.equal(have, have if shows is None else shows, "%s:%d" % (where, line))


def about(text):
    """The text without its numbers, and with single spaces."""
    return re.sub(r" +", " ", re.sub(r"\b[0-9]+(\.[0-9]+)?\b", "N", text))


def run_ranks(n, *script):
    """Runs the script as n ranks; returns what rank 0 prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, *script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(n),
                                   "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                   "USE_LIBUV": "0"})  # Debian's torch has none
             for i in range(n)]
    try:
        said = [p.communicate(timeout=300)[0] for p in ranks]
    finally:
        for p in ranks:
            p.kill()
    assert all(p.returncode == 0 for p in ranks), [s[-3000:] for s in said]
    return said[0]


# What torchrun does on one machine. (Debian 12's torchrun does not start on its Python.)
TORCHRUN = """#!%s
import sys
sys.path.insert(0, %r)
import python_docs_test as docs
print(docs.run_ranks(int(sys.argv[2]), *sys.argv[3:]), end="")
"""


def run_command(command):
    """Runs a command; returns what it prints."""
    bins = [BIN.name, os.path.abspath(tap.BUILD), os.path.dirname(sys.executable)]
    with open(BIN.name + "/torchrun", "w") as f:
        f.write(TORCHRUN % (sys.executable, os.path.dirname(os.path.abspath(__file__))))
        os.chmod(f.name, 0o755)
    r = subprocess.run(command, capture_output=True, text=True, timeout=300,
                       env={**os.environ, "PATH": os.pathsep.join([*bins, os.environ["PATH"]])})
    assert r.returncode == 0, (r.returncode, r.stdout[-1000:], r.stderr[-3000:])
    return r.stdout


def page_add(path):
    page = Page(path)
    runs = [(line, m) for line, m in page.blocks() if m["language"] == "python" or (m["how"] or "").startswith("shell")]
    if page.name in EMPTY:
        tap.equal(len(runs), len(re.findall(r"^```(?:python|sh)$", page.text, re.M)), page.where + ": blocks that are run")
    for line, m in runs:
        function = lambda page=page, line=line, m=m: run_block(page, line, m)
        function.__name__ = "docs_%s_line_%d" % (page.name[:-3], line + 1)
        function.in_place = True  # a loader of an earlier block may still be reading its files
        tap.test(function)
    return page


@tap.test
def docs_blocks_that_fail_are_found():
    tap.write("a.md", b"""text

```python
x = 1
print(x)
```

```text
1
```

```python
assert x == 2
```

<!-- test: torchrun 2 -->
```python
import os
assert os.environ["WORLD_SIZE"] == "2"
```

```python
import nosuchpackage
y = 3
```

```python
print(y)
```

```python
print("a")
```
```text
b
```

<!-- test: shell -->
```sh
penstock-loader ls train/shard-000000.tar | wc -l
test -e nosuch
```

<!-- test: shell about -->
```sh
echo "12 samples,   3.5 s"
```
```text
8 samples, 21 s
```

<!-- test: shell about -->
```sh
echo "12 samples"
```
```text
12 shards
```
""")
    page, results = Page("a.md"), []
    for line, m in page.blocks():
        try:
            run_block(page, line, m)
            results.append("ok")
        except tap.Skip as e:
            results.append(str(e))
        except AssertionError:
            results.append("failed")
    shutil.rmtree(page.folder)
    tap.equal(results, ["ok", "failed", "ok", "needs nosuchpackage", "needs nosuchpackage", "failed", "failed", "ok", "failed"])


@tap.test
def the_recipe_for_imagenet_resumes_exactly_where_it_was_killed():
    """Also with another number of ranks: then the sums of the ranks are rounded otherwise."""
    import torch

    [code] = [m["code"] for _, m in Page(os.path.join(DOCS, "guides/imagenet.md")).blocks() if m["how"] == "file train.py"]
    tap.write("train.py", code.encode())
    run_command(["penstock-loader", "make-dataset", "."])
    options = "--train train --val val --classes 3 --model small --size 32 --batch 32 --epochs 4 --save-every 3".split()
    command = [sys.executable, "train.py", *options, "--checkpoint"]
    results = lambda text: re.findall(r"epoch (\d+): loss ([0-9.]+), .*?, ([0-9.]+)%", text)
    whole = results(run_command([*command, "whole.pt"]))
    tap.equal([epoch for epoch, _, _ in whole], ["0", "1", "2", "3"])
    with subprocess.Popen([*command, "cut.pt"], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline().startswith("epoch 0: "), "the first epoch"
        deadline, step = time.monotonic() + 120, 0
        while time.monotonic() < deadline and (step < 9 or step % 8 == 0):  # in the middle of an epoch
            step = torch.load("cut.pt")["step"]
        p.kill()
    step = torch.load("cut.pt")["step"]
    for path in "same.pt", "two.pt":
        shutil.copy("cut.pt", path)
    said = run_command([*command, "same.pt"])
    assert said.startswith("resumes at step %d of 32\n" % step), said
    tap.equal(results(said)[1:], whole[int(results(said)[0][0]) + 1:], "the epochs after the resumed one")
    two = run_ranks(2, *command[1:], "two.pt")
    assert two.startswith("resumes at step %d of 32\n" % step), two
    assert abs(float(results(two)[-1][1]) - float(whole[-1][1])) < 0.2, (two, whole)
    weights = [torch.load(path)["model"] for path in ("whole.pt", "same.pt")]
    tap.equal([name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])], [])


if __name__ == "__main__":
    wanted = sys.argv[1:]
    found = sorted(glob.glob(os.path.join(DOCS, "python/*.md")) + glob.glob(os.path.join(DOCS, "guides/*.md")))
    pages = [page_add(path) for path in found if not wanted or os.path.basename(path) in wanted]
    assert len(pages) == len(wanted) if wanted else pages, "no page of that name"
    try:
        tap.main()
    finally:
        for page in pages:
            if page.folder:
                shutil.rmtree(page.folder, ignore_errors=True)
