#!/usr/bin/python3
"""Contact sheets: the pixels are those of the batch, and the labels can be read."""
import base64
import importlib.util
import io
import os
import re
import resource
import subprocess
import sys
import types
import warnings

import tap

tap.python_package(needed=("numpy", "PIL"))

import numpy
import penstock
from PIL import Image

# The layout of a sheet, and the font.
GAP, LINES, LINE, LETTER = 8, 3, 13, 6
FONT = {tuple(int(n) for n in m[1].split(",")): chr(32 + i) for i, m in enumerate(
    re.finditer(r"^\s+\{([0-9, ]+)\}", tap.read(os.path.join(tap.SRC, "loader/sheet_font.h")).decode(), re.M))}
assert len(FONT) == 95, len(FONT)


def dataset():
    assert tap.run("make-dataset", "d").returncode == 0


def loader(fields=None, **options):
    label = {"cls": penstock.Int("cls")}
    return penstock.Loader("d/train", **{"format": "numpy", **options}, seed=3, fields={**(fields or {}), **label})


def sheet(png):
    return numpy.asarray(Image.open(io.BytesIO(png) if isinstance(png, bytes) else png).convert("RGB"))


def cells(pixels, width, height, rows, pictures=1):
    """For each row of the batch: its pictures, and the lines of text below them."""
    columns = next(c for c in range(1, 99) if c * c * pictures >= rows)
    for row in range(rows):
        left = GAP + row % columns * pictures * (width + GAP)
        top = GAP + row // columns * (height + LINES * LINE + GAP)
        shown = [pixels[top:top + height, left + i * (width + GAP):][:, :width] for i in range(pictures)]
        yield shown, [line(pixels[top + height + LINE * n:][:LINE, left:left + pictures * (width + GAP) - GAP]) for n in range(LINES)]


def line(pixels):
    text = ""
    for x in range(0, pixels.shape[1] // LETTER * LETTER, LETTER):
        ink = pixels[:, x:x + LETTER, 0] < 128
        text += FONT[tuple(int("".join("01"[int(v)] for v in row), 2) for row in ink)]
    return text.rstrip()


def levels(array, layout="nchw"):
    """An image of the batch as height x width x 3."""
    a = numpy.asarray(array)
    a = a if layout == "nhwc" else a.transpose(1, 2, 0)
    return numpy.repeat(a, 3, 2) if a.shape[2] == 1 else a[..., :3]


@tap.test
def the_pixels_of_a_sheet_are_those_of_the_batch():
    dataset()
    for options, same in (({"dtype": "u8"}, 0), ({}, 0), ({"dtype": "f16"}, 0), ({"dtype": "bf16", "layout": "nhwc"}, 1),
                          ({"dtype": "u8", "layout": "nhwc"}, 0), ({"channels": "gray"}, 0), ({"channels": "rgba"}, 0),
                          ({"dtype": "u16"}, 1), ({"mean": (0.1, 0.5, 0.9), "std": (2, 0.1, 1)}, 0)):
        image = {"size": 80, **options}
        form = "torch" if options.get("dtype") == "bf16" else "numpy"  # which has no such type
        if importlib.util.find_spec(form) is None:
            continue
        shown = next(iter(loader({"image": penstock.Image("jpg", **image)}, batch=10, format=form)))
        plain = {**{k: v for k, v in image.items() if k not in ("mean", "std")}, "dtype": "u8"}
        want = next(iter(loader({"image": penstock.Image("jpg", **plain)}, batch=10)))["image"]
        shown.show("sheet.png")
        got = list(cells(sheet("sheet.png"), 80, 80, 10))
        for ([picture], _), image in zip(got, want):
            away = numpy.abs(picture.astype(int) - levels(image, options.get("layout", "nchw")).astype(int)).max()
            assert away <= same, (options, away)


@tap.test
def large_images_are_shrunk_and_small_ones_enlarged_by_whole_numbers():
    dataset()
    for size, shown, factor in ((600, 200, 3), (32, 128, 4), (256, 256, 1), (64, 128, 2)):
        batch = next(iter(loader({"image": penstock.Image("jpg", size=size, dtype="u8")}, batch=2)))
        batch.show("sheet.png")
        for ([picture], _), image in zip(cells(sheet("sheet.png"), shown, shown, 2), batch["image"]):
            want = levels(image).astype(float)
            if size > shown:
                want = want.reshape(shown, factor, shown, factor, 3).mean((1, 3))
            else:
                want = want.repeat(factor, 0).repeat(factor, 1)
            assert numpy.abs(picture - want).max() <= 0.51


@tap.test
def labels_name_numbers_classes_texts_and_keys():
    dataset()
    batch = next(iter(loader({"image": penstock.Image("jpg", size=128, dtype="u8"), "text": penstock.Text("txt")}, batch=9)))
    batch.show("sheet.png")
    names = ["disc", "square", "triangle"]
    for i, (_, lines) in enumerate(cells(sheet("sheet.png"), 128, 128, 9)):
        label = int(batch["cls"][i])
        tap.equal(lines, [("text " + batch["text"][i])[:21], "cls %d %s" % (label, names[label]), batch["__key__"][i]])
    os.remove("d/train/CLASSES.txt")
    batch.show("sheet.png")
    tap.equal(next(cells(sheet("sheet.png"), 128, 128, 9))[1][1], "cls %d" % batch["cls"][0])


@tap.test
def views_and_several_fields_are_beside_each_other():
    dataset()
    batch = next(iter(loader({"a": penstock.Image("jpg", size=80, dtype="u8", views=2),
                              "b": penstock.Image("jpg", size=80, dtype="u8", crop="center", resize=90)}, batch=5)))
    batch.show("sheet.png")
    for i, (pictures, lines) in enumerate(cells(sheet("sheet.png"), 80, 80, 5, pictures=3)):
        for picture, image in zip(pictures, [batch["a"][i][0], batch["a"][i][1], batch["b"][i]]):
            assert (picture == levels(image)).all()
        tap.equal(lines[1], batch["__key__"][i])


@tap.test
def a_sheet_has_at_most_64_rows_and_marks_rows_that_are_not_valid():
    dataset()
    image = {"image": penstock.Image("jpg", size=16, dtype="u8")}
    batch = next(iter(loader(image, batch=100)))
    for most in None, 5:
        batch.show("sheet.png", **({"most": most} if most else {}))
        shown = list(cells(sheet("sheet.png"), 128, 128, most or 64))
        tap.equal([lines[1] for _, lines in shown], batch["__key__"].tolist()[:most or 64])
    files = [(k + "." + s, d) for k, photo in (("a", tap.read(tap.PHOTOS[0])), ("b", b"no picture"))
             for s, d in (("jpg", photo), ("cls", b"1"))]
    tap.make_tar("bad.tar", files)
    broken = penstock.Loader("bad.tar", batch=2, format="numpy", order="none", on_error="skip", fields={**image, "cls": penstock.Int("cls")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = next(iter(broken))
    batch.show("sheet.png")
    tap.equal([lines[0] for _, lines in cells(sheet("sheet.png"), 128, 128, 2)], ["cls 1", "not valid"])
    args = "show --image 16 --order none -o sheet.png bad.tar".split()
    r = tap.run(*args)
    assert r.returncode == 1 and b'sample "b"' in r.stderr and b"--on-error skip" in r.stderr, r
    tap.equal(tap.run(*args, "--on-error", "skip").returncode, 0)
    tap.equal([lines[0] for _, lines in cells(sheet("sheet.png"), 128, 128, 2)], ["cls 1", "not valid"])


@tap.test
def the_program_draws_the_batch_that_a_loader_gets():
    dataset()
    r = tap.run("show", "--image", "80", "--batch", "12", "--seed", "5", "--image-option", "jitter=1", "--image-option", "brightness=0.5",
                "-o", "sheet.png", "d/train")
    tap.equal((r.returncode, r.stdout, r.stderr), (0, b"sheet.png: 12 of the 12 samples of the first batch\n", b""))
    batch = next(iter(penstock.Loader("d/train", batch=12, format="numpy", seed=5, fields={
        "jpg": penstock.Image("jpg", size=80, dtype="u8", jitter=1, brightness=0.5), "cls": penstock.Int("cls")})))
    for i, ([picture], lines) in enumerate(cells(sheet("sheet.png"), 80, 80, 12)):
        assert (picture == levels(batch["jpg"][i])).all(), i
        tap.equal(lines[1], batch["__key__"][i])
    r = tap.run("show", "--image", "80", "--batch", "12", "--seed", "5", "--image-option", "jitter=1", "--image-option", "brightness=0.5",
                "-o", "-", "d/train")
    tap.equal(r.stdout, tap.read("sheet.png"))


@tap.test
def notebooks_get_a_picture_and_the_fields():
    dataset()
    batch = next(iter(loader({"image": penstock.Image("jpg", size=80, dtype="u8")}, batch=20)))
    html = batch._repr_html_()
    text, png = re.fullmatch(r'<pre>(.*)</pre><img src="data:image/png;base64,(.*)">', html).groups()
    tap.equal(text, repr(batch))
    for i, ([picture], _) in enumerate(cells(sheet(base64.b64decode(png)), 80, 80, 16)):
        assert (picture == levels(batch["image"][i])).all()
    # What show() does in a notebook, of which IPython is the kernel.
    displayed = []
    notebook = types.ModuleType("IPython.display")
    notebook.Image, notebook.display = (lambda data, format: (format, data)), displayed.append
    sys.modules["IPython"], sys.modules["IPython.display"] = types.SimpleNamespace(get_ipython=lambda: object(), display=notebook), notebook
    try:
        batch.show()
    finally:
        del sys.modules["IPython"], sys.modules["IPython.display"]
    batch.show("sheet.png")
    tap.equal(displayed, [("png", tap.read("sheet.png"))])
    tap.equal(next(iter(loader(batch=2)))._repr_html_(), "<pre>penstock.Batch(epoch 0, index 0: cls (2,) int64)</pre>")


def refused(function, says):
    try:
        function()
    except (ValueError, OSError, penstock.Error) as e:
        assert says in str(e), e
        return
    raise AssertionError("was not refused: " + says)


@tap.test
def what_cannot_be_shown_is_refused_with_a_reason():
    dataset()
    image = {"image": penstock.Image("jpg", size=16)}
    batch = next(iter(loader(image, batch=2)))
    refused(batch.show, "name a file")
    for most in 0, 65:
        refused(lambda: batch.show("s.png", most=most), "must be 1 to 64")
    refused(lambda: batch.show("no/such/s.png"), "No such file")
    refused(lambda: penstock.Batch({"x": 1}).show("s.png"), "is a copy")
    refused(lambda: next(iter(loader(image, batch=2, copy=True))).show("s.png"), "is a copy")
    refused(lambda: next(iter(loader(batch=2))).show("s.png"), "no field of images")
    batch.release()
    refused(lambda: batch.show("s.png"), "was released")
    tap.equal(os.listdir("."), ["d"])


@tap.test
def show_says_in_one_line_why_it_cannot():
    dataset()
    tap.write("noise.tar", b"hello " * 1000)
    tap.make_tar("text.tar", [("a.txt", b"1")])
    tap.make_tar("empty.tar", [])
    limited = {"restore_signals": False, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))}
    for args, code, says, options in (
            (["-o", "s.png"], 2, "no shards", {}), (["d/train"], 2, "needs -o FILE", {}), (["d/train", "-o"], 2, "option -o needs a value", {}),
            (["-o", "s.png", "nosuch.tar"], 1, "nosuch.tar: ", {}), (["-o", "s.png", "d"], 1, "no shards in this folder itself", {}),
            (["-o", "s.png", "noise.tar"], 1, "no tar header", {}), (["-o", "s.png", "text.tar"], 1, "it has .txt", {}),
            (["-o", "s.png", "empty.tar"], 1, "no sample", {}),
            (["-o", "s.png", "--field", "cls=int", "d/train"], 1, "the batch has no field of images", {}),
            (["-o", "no/such/s.png", "d/train"], 1, "no/such/s.png: cannot write: No such file or directory", {}),
            (["-o", "/dev/full", "d/train"], 1, "/dev/full: cannot write: No space left on device", {}),
            (["-o", "s.png", "d/train"], 1, "s.png: cannot write: File too large", limited),
            (["-o", "s.png", "--image", "0", "d/train"], 2, "--image 0: must be", {}),
            (["-o", "s.png", "-x", "d/train"], 2, "unknown option '-x'", {})):
        r = tap.run("show", *args, **options)
        err = r.stderr.decode()
        tap.equal((r.returncode, r.stdout), (code, b""), (args, err))
        assert err.startswith("penstock-loader show: ") and err.count("\n") == 1 and says in err, (args, err)
    with open("/dev/full", "w") as full:
        r = subprocess.run([tap.LOADER, "show", "-o", "-", "d/train"], stdout=full, stderr=subprocess.PIPE)
    tap.equal((r.returncode, r.stderr), (1, b"penstock-loader show: cannot write to stdout\n"))
    tap.equal(sorted(os.listdir(".")), ["d", "empty.tar", "noise.tar", "text.tar"], "no partial picture is left")


if __name__ == "__main__":
    tap.main()
