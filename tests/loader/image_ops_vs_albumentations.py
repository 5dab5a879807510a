"""Compares blur, noise and OneOf with Albumentations; images_vs_albumentations.sh runs it."""
import albumentations as A
import numpy
from albumentations.augmentations.blur import functional as blurs

import tap
from image_ops_vs_torchvision import draws, picture, run, same_distribution, share, within

tap._tests.clear()  # the tests of the module that is imported for its helpers


@tap.test
def blur_is_within_two_levels_of_albumentations():
    for seed in range(6):
        image = picture(seed)
        for size, sigma in ((3, 0.5), (5, 0.7), (9, 2.0), (23, 1.1), (23, 3.0)):
            kernel = blurs.create_gaussian_kernel_1d(sigma=sigma, ksize=size)
            want = A.GaussianBlur(p=1).apply(numpy.asarray(image), kernel=kernel)
            within(run("blur", image, float(size), sigma), want, 2)


@tap.test
def sizes_and_sigmas_of_blur_are_distributed_as_in_albumentations():
    rows, theirs = draws(6000), A.GaussianBlur(blur_limit=(3, 7), sigma_limit=(0.5, 3), p=1)
    theirs.set_random_seed(5)
    drawn, made = [], blurs.create_gaussian_kernel_1d
    blurs.create_gaussian_kernel_1d = lambda sigma, ksize: drawn.append((ksize, sigma)) or made(sigma, ksize)
    for _ in range(3000):
        theirs(image=numpy.zeros((8, 8, 3), numpy.uint8))
    blurs.create_gaussian_kernel_1d = made
    # Albumentations draws even sizes, too, and adds 1 to each. Its odd draws alone are as uniform as ours.
    same_distribution([int(r[7]) for r in rows], [size for size, _ in drawn if size % 2])
    same_distribution([float(r[9]) for r in rows], [sigma for _, sigma in drawn])


@tap.test
def sigmas_of_noise_are_distributed_as_in_albumentations():
    theirs = A.GaussNoise(std_range=(5 / 255, 25 / 255), p=1)
    theirs.set_random_seed(6)
    gray = numpy.full((64, 64, 3), 128, numpy.uint8)
    sigmas = [(theirs(image=gray)["image"].astype(float) - 128).std() for _ in range(1500)]
    same_distribution([float(r[8]) for r in draws(6000)], sigmas)


@tap.test
def noise_of_one_sigma_is_near_that_of_albumentations():
    gray = picture(0, (200, 200)).point(lambda v: 128)
    for sigma in (20.0, 40.0):  # Albumentations cuts off fractions, so its noise is a little narrower
        theirs = A.GaussNoise(std_range=(sigma / 255, sigma / 255), p=1)
        theirs.set_random_seed(7)
        want = theirs(image=numpy.asarray(gray))["image"].astype(int) - 128
        got = run("noise", gray, sigma, 12345.0) - 128
        assert abs(got.mean() - want.mean()) < 1 and abs(got.std() / want.std() - 1) < 0.03, (got.std(), want.std())
        for levels in (0.5, 1, 2):
            inside = [(numpy.abs(noise) <= levels * sigma).mean() for noise in (got, want)]
            assert abs(inside[0] - inside[1]) < 0.04, (sigma, levels, inside)


class Mark(A.ImageOnlyTransform):
    def __init__(self, level, p):
        super().__init__(p=p)
        self.level = level

    def apply(self, img, **_):
        return numpy.full_like(img, self.level)


@tap.test
def one_of_picks_operations_as_often_as_albumentations():
    rows = [list(map(int, r[10:])) for r in draws(6000)]
    theirs = A.OneOf([Mark(1, 0.2), Mark(2, 0.4), Mark(3, 0.2)], p=0.8)
    theirs.set_random_seed(8)
    black = numpy.zeros((2, 2, 3), numpy.uint8)
    levels = [int(theirs(image=black)["image"][0, 0, 0]) for _ in range(6000)]
    for level, column in ((1, 4), (2, 5), (3, 6)):  # gray, blur, noise
        of_theirs = levels.count(level) / len(levels)
        share(rows, lambda r, column=column: r[column], 0.8 * (0.5 if level == 2 else 0.25))
        share(levels, lambda v, level=level: v == level, 0.8 * (0.5 if level == 2 else 0.25))
        assert abs(of_theirs - sum(r[column] for r in rows) / len(rows)) < 0.03, level


if __name__ == "__main__":
    tap.main()
