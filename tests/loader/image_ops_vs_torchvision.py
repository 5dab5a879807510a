#!/usr/bin/python3
"""Affine maps, colours and blur against PIL and torchvision: within a level or two where they do the same."""
import math
import os
import random
import subprocess
import sys

import tap

try:
    import numpy
    from PIL import Image, ImageEnhance
except ImportError as e:
    print(f"1..0 # SKIP python3 lacks {e.name}: pixels are not compared")
    sys.exit(0)
try:
    import torch
    from torchvision.transforms import functional as F
    from torchvision.transforms import InterpolationMode
except ImportError:
    F = None

RAW = os.path.join(os.environ.get("top_builddir", "."), "tests/loader/image_raw")
WIDTH, HEIGHT = 57, 41


def picture(seed, size=(WIDTH, HEIGHT)):
    rng = random.Random(seed)
    if seed % 2:
        return Image.frombytes("RGB", size, rng.randbytes(size[0] * size[1] * 3))
    return Image.frombytes("RGB", (9, 7), rng.randbytes(9 * 7 * 3)).resize(size, Image.BICUBIC)


def run(operation, image, *args):
    done = subprocess.run([RAW, operation, *map(str, image.size), *map(repr, args)], input=image.tobytes(),
                          stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(done.stdout, numpy.uint8).reshape(image.size[1], image.size[0], 3).astype(int)


def within(got, want, levels, few=0.0):
    """All but `few` of the values."""
    off = numpy.abs(got - numpy.asarray(want).astype(int))
    share = (off > levels).mean()
    assert share <= few, f"{share:.4%} of the values are off by more than {levels}, up to {off.max()}"


@tap.test
def brightness_contrast_saturation_as_pil():
    for seed in range(6):
        image = picture(seed)
        for factor in (0.2, 0.6, 1.0, 1.4, 1.9):
            within(run("jitter", image, factor, 0.0, 0.0, 0.0), ImageEnhance.Brightness(image).enhance(factor), 1)
            within(run("jitter", image, 0.0, factor, 0.0, 0.0), ImageEnhance.Contrast(image).enhance(factor), 1)
            within(run("jitter", image, 0.0, 0.0, factor, 0.0), ImageEnhance.Color(image).enhance(factor), 1)


@tap.test
def gray_as_pil():
    for seed in range(4):
        within(run("gray", picture(seed)), picture(seed).convert("L").convert("RGB"), 0)


@tap.test
def hue_as_torchvision():
    if not F:
        return
    for seed in range(6):
        image = picture(seed)
        tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        for turn in (-0.5, -0.2, -0.03, 0.1, 0.33, 0.5):
            want = F.adjust_hue(tensor, turn).permute(1, 2, 0).numpy()
            within(run("jitter", image, 0.0, 0.0, 0.0, turn), want, 2)


@tap.test
def hue_turned_and_back_is_near_and_gray_stays():
    for seed in range(4):
        image = picture(seed)
        once = run("jitter", image, 0.0, 0.0, 0.0, 0.2)
        back = run("jitter", Image.fromarray(once.astype(numpy.uint8)), 0.0, 0.0, 0.0, -0.2)
        within(back, image, 2)
        gray = image.convert("L").convert("RGB")
        within(run("jitter", gray, 0.0, 0.0, 0.0, 0.3), gray, 0)


@tap.test
def affine_as_torchvision():
    if not F:
        return
    rng = random.Random(4)
    for seed in range(8):
        image = picture(seed)
        angle, zoom = rng.uniform(-180, 180), rng.uniform(0.5, 2)
        shift, shear = [rng.randint(-9, 9), rng.randint(-9, 9)], [rng.uniform(-30, 30), rng.uniform(-30, 30)]
        center = [WIDTH * 0.5, HEIGHT * 0.5]
        matrix = F._get_inverse_affine_matrix(center, angle, shift, zoom, shear)
        want = F.affine(image, angle, shift, zoom, shear, interpolation=InterpolationMode.BILINEAR, fill=77)
        # PIL cuts off fractions; pixels whose centre is at an edge to the last bit may fall on either side.
        within(run("affine", image, *matrix, 77.0), want, 2, few=0.001)


@tap.test
def affine_that_changes_nothing_and_whole_turns():
    image = picture(1)
    within(run("affine", image, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 9.0), image, 0)
    half = run("affine", image, -1.0, 0.0, float(WIDTH), 0.0, -1.0, float(HEIGHT), 9.0)
    within(half, image.transpose(Image.ROTATE_180), 0)
    shifted = run("affine", image, 1.0, 0.0, 3.0, 0.0, 1.0, -2.0, 9.0)
    want = numpy.full((HEIGHT, WIDTH, 3), 9)
    want[2:, :WIDTH - 3] = numpy.asarray(image)[:HEIGHT - 2, 3:]
    within(shifted, want, 0)


@tap.test
def blur_as_torchvision():
    if not F:
        return
    for seed in range(6):
        image = picture(seed)
        for size, sigma in ((3, 0.5), (5, 0.1), (9, 2.0), (23, 1.1), (23, 7.0), (1, 1.0), (79, 30.0)):
            want = F.gaussian_blur(torch.from_numpy(numpy.array(image)).permute(2, 0, 1), [size, size], [sigma, sigma])
            within(run("blur", image, float(size), sigma), want.permute(1, 2, 0).numpy(), 1)


@tap.test
def blur_keeps_one_colour():
    flat = Image.new("RGB", (300, 40), (255, 0, 77))
    within(run("blur", flat, 23.0, 3.0), flat, 0)


@tap.test
def noise_is_near_to_gaussian_and_of_its_key():
    flat = Image.new("RGB", (200, 200), (128, 128, 128))
    for sigma in (3.0, 20.0):
        noise = run("noise", flat, sigma, 12345.0) - 128
        assert abs(noise.mean()) < sigma / 30 and abs(noise.std() - sigma) < sigma / 20, (noise.mean(), noise.std())
        inside = (numpy.abs(noise) <= sigma).mean()
        assert abs(inside - math.erf(math.sqrt(0.5))) < (0.1 if sigma < 5 else 0.03), inside
        assert (run("noise", flat, sigma, 12345.0) - 128 == noise).all()
        assert (run("noise", flat, sigma, 12346.0) - 128 != noise).any()
        assert abs(numpy.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]) < 0.03


if __name__ == "__main__":
    tap.main()
