#!/usr/bin/env python3
"""Compares decode and resize with PIL: pixels of a JPEG are equal, after a resize they are within one level."""
import os
import random
import subprocess
import sys
import tempfile

try:
    from PIL import Image, features
except ImportError as e:
    print(f"1..0 # SKIP python3 has no PIL ({e}): pixels are not compared with it")
    sys.exit(0)

BUILD = os.environ.get("top_builddir", ".")
SOURCE = os.environ.get("top_srcdir", ".")
RAW = os.path.join(BUILD, "tests/loader/image_raw")
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def run(*args, data=b""):
    return subprocess.run([RAW, *map(str, args)], input=data, stdout=subprocess.PIPE, check=True).stdout


def worst(a, b):
    assert len(a) == len(b), f"{len(a)} bytes, not {len(b)}"
    return 0 if a == b else max(abs(x - y) for x, y in zip(a, b))


def picture(rng, width, height):
    """A gradient, noise, or the hardest case for a cubic: noise of full contrast."""
    kind = rng.randrange(3)
    if kind == 0:
        data = bytes(rng.choice((0, 255)) for _ in range(width * height * 3))
    elif kind == 1:
        data = rng.randbytes(width * height * 3)
    else:
        data = bytes((x * 7 + y * 3 + c * 40) % 256 for y in range(height) for x in range(width) for c in range(3))
    return Image.frombytes("RGB", (width, height), data)


def check_resize(name):
    rng = random.Random(name)
    for n in range(60):
        width, height = rng.randint(1, 160), rng.randint(1, 120)
        image = picture(rng, width, height)
        box_w, box_h = rng.randint(1, width), rng.randint(1, height)
        x, y = rng.randint(0, width - box_w), rng.randint(0, height - box_h)
        out = rng.randint(1, 140), rng.randint(1, 140)
        got = run("resize", width, height, x, y, box_w, box_h, *out, name, data=image.tobytes())
        want = image.crop((x, y, x + box_w, y + box_h)).resize(out, FILTERS[name]).tobytes()
        assert worst(got, want) <= 1, f"case {n}: {box_w}x{box_h} to {out}: {worst(got, want)} levels"


def check_photos_resized():
    folder = os.path.join(SOURCE, "tests/data/photos")
    names = sorted(f for f in os.listdir(folder) if f.endswith(".jpg"))[:6]
    for f in names:
        image = Image.open(os.path.join(folder, f)).convert("RGB")
        for name in FILTERS:
            got = run("resize", *image.size, 0, 0, *image.size, 224, 224, name, data=image.tobytes())
            bad = worst(got, image.resize((224, 224), FILTERS[name]).tobytes())
            assert bad <= 1, f"{f}, {name}: {bad} levels"


def same_library():
    return features.version("libjpeg_turbo") == run("version").decode().strip()


def check_decoded(path):
    """Asserts equal pixels, or one level of difference if PIL has another libjpeg-turbo."""
    header, rgb = run("decode", path).split(b"\n", 1)
    image = Image.open(path)
    assert header == b"%d %d" % image.size, header
    bad = worst(rgb, image.convert("RGB").tobytes())
    assert bad <= (0 if same_library() else 1), f"{os.path.basename(path)}: {bad} levels"


def check_photos_decoded():
    folder = os.path.join(SOURCE, "tests/data/photos")
    for f in sorted(os.listdir(folder)):
        if f.endswith(".jpg"):
            check_decoded(os.path.join(folder, f))


def check_modes_decoded():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("L", "RGB", "CMYK"):
            for subsampling in (0, 1, 2):
                for progressive in (False, True):
                    bands = [picture(rng, 90, 61).convert("L") for _ in range(len(mode) if mode != "L" else 1)]
                    image = Image.merge(mode, bands)
                    path = os.path.join(folder, "a.jpg")
                    image.save(path, quality=92, subsampling=subsampling, progressive=progressive)
                    check_decoded(path)
        check_decoded(os.path.join(SOURCE, "tests/data/odd/jpeg-decoder/tests_reftest_images_mozilla_jpg-cmyk-1.jpg"))


TESTS = [
    ("bilinear_is_within_one_level_of_pil", lambda: check_resize("bilinear")),
    ("bicubic_is_within_one_level_of_pil", lambda: check_resize("bicubic")),
    ("photos_resized_are_within_one_level_of_pil", check_photos_resized),
    ("photos_are_decoded_as_pil_does", check_photos_decoded),
    ("gray_rgb_and_cmyk_are_decoded_as_pil_does", check_modes_decoded),
]

print(f"1..{len(TESTS)}")
failed = 0
for number, (title, test) in enumerate(TESTS, 1):
    try:
        test()
        print(f"ok {number} - {title}", flush=True)
    except (AssertionError, subprocess.CalledProcessError) as e:
        failed += 1
        print(f"not ok {number} - {title}\n# {e}", flush=True)
sys.exit(failed > 0)
