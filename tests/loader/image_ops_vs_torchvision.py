#!/usr/bin/python3
"""Compares affine maps, colours, blur, crops, erasing and random parameters with PIL and torchvision."""
import itertools
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
    """Asserts that all values but a share of `few` are within `levels`."""
    off = numpy.abs(got - numpy.asarray(want).astype(int))
    share = (off > levels).mean()
    assert share <= few, f"{share:.4%} of the values are off by more than {levels}, up to {off.max()}"


@tap.test
def brightness_contrast_and_saturation_are_within_a_level_of_pil():
    for seed in range(6):
        image = picture(seed)
        for factor in (0.2, 0.6, 1.0, 1.4, 1.9):
            within(run("jitter", image, factor, 0.0, 0.0, 0.0), ImageEnhance.Brightness(image).enhance(factor), 1)
            within(run("jitter", image, 0.0, factor, 0.0, 0.0), ImageEnhance.Contrast(image).enhance(factor), 1)
            within(run("jitter", image, 0.0, 0.0, factor, 0.0), ImageEnhance.Color(image).enhance(factor), 1)


@tap.test
def gray_equals_that_of_pil():
    for seed in range(4):
        within(run("gray", picture(seed)), picture(seed).convert("L").convert("RGB"), 0)


@tap.test
def hue_is_within_two_levels_of_torchvision():
    if not F:
        return
    for seed in range(6):
        image = picture(seed)
        tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        for turn in (-0.5, -0.2, -0.03, 0.1, 0.33, 0.5):
            want = F.adjust_hue(tensor, turn).permute(1, 2, 0).numpy()
            within(run("jitter", image, 0.0, 0.0, 0.0, turn), want, 2)


@tap.test
def hue_turned_and_turned_back_is_near_the_image_and_gray_stays():
    for seed in range(4):
        image = picture(seed)
        once = run("jitter", image, 0.0, 0.0, 0.0, 0.2)
        back = run("jitter", Image.fromarray(once.astype(numpy.uint8)), 0.0, 0.0, 0.0, -0.2)
        within(back, image, 2)
        gray = image.convert("L").convert("RGB")
        within(run("jitter", gray, 0.0, 0.0, 0.0, 0.3), gray, 0)


@tap.test
def affine_is_within_two_levels_of_torchvision():
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
def affine_identity_half_turn_and_shift_are_exact():
    image = picture(1)
    within(run("affine", image, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 9.0), image, 0)
    half = run("affine", image, -1.0, 0.0, float(WIDTH), 0.0, -1.0, float(HEIGHT), 9.0)
    within(half, image.transpose(Image.ROTATE_180), 0)
    shifted = run("affine", image, 1.0, 0.0, 3.0, 0.0, 1.0, -2.0, 9.0)
    want = numpy.full((HEIGHT, WIDTH, 3), 9)
    want[2:, :WIDTH - 3] = numpy.asarray(image)[:HEIGHT - 2, 3:]
    within(shifted, want, 0)


@tap.test
def blur_is_within_a_level_of_torchvision():
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


STEPS = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue) if F else ()


@tap.test
def jitter_in_any_order_is_near_torchvision():
    if not F:
        return
    factors = (1.3, 0.7, 1.4, 0.06)
    for n, order in enumerate(itertools.permutations(range(4))):
        image = picture(n, (63, 45))
        packed = sum(step << 4 * i for i, step in enumerate(order))
        want = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        for step in order:
            want = STEPS[step](want, factors[step])
        got = run("jitter", image, *factors, float(packed))
        # Each step rounds where torch cuts off fractions, and the next step enlarges the difference.
        want = want.permute(1, 2, 0).numpy()
        within(got, want, 8)
        assert numpy.abs(got - want).mean() < 3, numpy.abs(got - want).mean()
        if order[0] > order[1]:  # another order gives other pixels
            assert (run("jitter", image, *factors) != got).any()


MODES = (("constant", {"constant_values": 9}), ("edge", {}), ("reflect", {}), ("symmetric", {}))


@tap.test
def crops_beyond_the_edges_equal_those_of_numpy_and_torchvision():
    image, out = picture(0, (23, 17)), (31, 27)
    for mode, (name, more) in enumerate(MODES):
        padded = numpy.pad(numpy.asarray(image), ((40, 40), (40, 40), (0, 0)), name, **more)
        if F:
            tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
            # torch refuses to reflect more than once
            once = F.pad(tensor, [15, 12], fill=9, padding_mode=name).permute(1, 2, 0).numpy()
            assert (once == padded[28:-28, 25:-25]).all()
        for x, y in ((-30, -20), (-5, -8), (0, -10), (3, 4), (-3, 16), (22, -26), (22, 16)):
            for flips in range(4):
                want = padded[40 + y:40 + y + out[1], 40 + x:40 + x + out[0]]
                want = want[::-1 if flips & 2 else 1, ::-1 if flips & 1 else 1]
                args = [float(v) for v in (x, y, *out, mode, 9, flips & 1, flips & 2)]
                done = subprocess.run([RAW, "pad", *map(str, image.size), *map(repr, args)], input=image.tobytes(),
                                      stdout=subprocess.PIPE, check=True)
                got = numpy.frombuffer(done.stdout, numpy.uint8).reshape(out[1], out[0], 3)
                assert (got == want).all(), (name, x, y, flips)


@tap.test
def erasing_equals_that_of_torchvision():
    image = picture(1)
    got = run("erase", image, 5.0, 7.0, 30.0, 21.0, 99.0)
    want = numpy.array(image).astype(int)
    want[7:21, 5:30] = 99
    within(got, want, 0)
    if F:
        tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        within(got, F.erase(tensor, 7, 5, 14, 25, torch.tensor(99)).permute(1, 2, 0).numpy(), 0)


def draws(n):
    out = subprocess.run([RAW, "draw", "7", str(n)], stdout=subprocess.PIPE, check=True).stdout.decode()
    return [line.split() for line in out.splitlines()]


def same_distribution(ours, theirs):
    """Asserts that the Kolmogorov-Smirnov distance of two samples is within what chance allows (1 in 10,000)."""
    ours, theirs = numpy.sort(ours), numpy.sort(theirs)
    at = numpy.concatenate([ours, theirs])
    distance = numpy.abs(numpy.searchsorted(ours, at, "right") / len(ours)
                         - numpy.searchsorted(theirs, at, "right") / len(theirs)).max()
    assert distance < 2.23 * math.sqrt(1 / len(ours) + 1 / len(theirs)), distance


def even(values, choices):
    n = len(values) / len(choices)
    chi2 = sum((values.count(c) - n) ** 2 / n for c in choices)
    assert len(set(values) - set(choices)) == 0 and chi2 < len(choices) + 6 * math.sqrt(2 * len(choices)), chi2


@tap.test
def random_parameters_are_distributed_as_in_torchvision():
    rows = draws(6000)
    even([int(r[0]) for r in rows], range(-10, 100 + 10 - 64 + 1))
    even([int(r[1]) for r in rows], range(-10, 80 + 10 - 48 + 1))
    even([r[6] for r in rows], ["%d%d%d%d" % o for o in itertools.permutations(range(4))])
    even([r[7] for r in rows], ["3", "5", "7"])
    sigmas = numpy.array([float(r[8]) for r in rows])
    same_distribution(sigmas, numpy.linspace(5, 25, 6000))
    if not F:
        return
    from torchvision.transforms import GaussianBlur, RandomCrop, RandomErasing

    torch.manual_seed(3)
    same_distribution(numpy.array([float(r[9]) for r in rows]), numpy.array([GaussianBlur.get_params(0.5, 3) for _ in range(3000)]))
    theirs = [RandomErasing.get_params(torch.zeros(3, 48, 64), (0.02, 0.33), (0.3, 3.3), [0.0]) for _ in range(3000)]
    x0, y0, x1, y1 = (numpy.array([int(r[i]) for r in rows]) for i in (2, 3, 4, 5))
    for ours, column in ((y0, 0), (x0, 1), (y1 - y0, 2), (x1 - x0, 3)):
        same_distribution(ours, numpy.array([t[column] for t in theirs]))
    theirs = [RandomCrop.get_params(torch.zeros(3, 80 + 20, 100 + 20), (48, 64)) for _ in range(3000)]
    for column in (0, 1):
        same_distribution([int(r[1 - column]) + 10 for r in rows], numpy.array([t[column] for t in theirs]))


def share(rows, condition, want):
    got = sum(map(condition, rows)) / len(rows)
    assert abs(got - want) < 4 * math.sqrt(want * (1 - want) / len(rows)), (got, want)


@tap.test
def groups_act_as_random_apply_and_one_of():
    rows = [list(map(int, r[10:])) for r in draws(6000)]  # hflip, vflip, affine, jitter, gray, blur, noise, erase
    share(rows, lambda r: r[0], 0.3)  # 0.6 for the group, times 0.5 for the flip itself
    share(rows, lambda r: r[1], 0.3)
    share(rows, lambda r: r[0] and r[1], 0.15)  # not 0.09: both flips share the group's draw
    share(rows, lambda r: r[4] or r[5] or r[6], 0.8)
    assert all(r[4] + r[5] + r[6] <= 1 for r in rows)
    share(rows, lambda r: r[4], 0.2)
    share(rows, lambda r: r[5], 0.4)
    share(rows, lambda r: r[6], 0.2)
    assert all(r[3] and r[7] and not r[2] for r in rows)  # in no group


@tap.test
def noise_is_nearly_gaussian_and_depends_on_its_key():
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
