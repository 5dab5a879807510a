#!/usr/bin/python3
"""Boxes that a crop leaves too little of are dropped, with the labels that belong to them."""
import io
import json
import random

import tap

tap.python_package(needed=("numpy",))  # or SKIP

import numpy

import penstock


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


@tap.test
def boxes_below_a_size_are_dropped_with_what_belongs_to_them():
    rng = random.Random(4)
    side, size = 64, 32  # the crop shows 16 to 48
    samples = []
    for i in range(12):
        boxes = []
        for _ in range(rng.randrange(9)):
            x, y = rng.uniform(-5, 60), rng.uniform(-5, 60)
            boxes.append([x, y, x + rng.uniform(0, 30), y + rng.uniform(0, 30)])
        samples.append(boxes)
    files = []
    for i, boxes in enumerate(samples):
        labels = list(range(100 * i, 100 * i + len(boxes)))
        files += [("%02d.ppm" % i, b"P6 %d %d 255\n" % (side, side) + bytes(side * side * 3)),
                  ("%02d.json" % i, json.dumps({"b": boxes, "l": labels, "pair": [[v, -v] for v in labels], "bad": [1]}).encode()),
                  ("%02d.npy" % i, npy(numpy.array(labels, dtype=numpy.int32)))]
    tap.make_tar("boxes.tar", files)

    def kept(boxes, min_area, min_visible):
        # as Albumentations' filter_bboxes: the area within the picture, and its share of the whole
        found = []
        for i, (x0, y0, x1, y1) in enumerate(boxes):
            a, b, c, d = (min(max(v - 16, 0), size) for v in (x0, y0, x1, y1))
            area = (c - a) * (d - b)
            if area > 0 and area >= min_area and area >= min_visible * (x1 - x0) * (y1 - y0):
                found.append((i, [a, b, c, d]))
        return found

    def load(pad, **options):
        return penstock.Loader("boxes.tar", 12, {
            "x": penstock.Image("ppm", size, crop="center", resize=side, dtype="u8"),
            "boxes": penstock.Boxes("json:b", **options, **pad),
            "l": penstock.Json("json:l", shape=(0,), dtype="i64", follow="boxes", **pad),
            "pair": penstock.Json("json:pair", shape=(0, 2), dtype="f32", follow="boxes", **pad),
            "npy": penstock.Array("npy", (0,), "i32", follow="boxes", **pad)}, order="none", format="numpy")

    dropped = 0
    for min_area, min_visible in ((30, 0), (0, 0.6), (100, 0.3), (0.001, 0), (0, 1)):
        want = [kept(boxes, min_area, min_visible) for boxes in samples]
        dropped += sum(len(b) - len(k) for b, k in zip(samples, want))
        for pad in ({}, {"pad_to": 9}, {"pad_to": "longest"}, {"pad_to": 2, "overflow": "truncate"}):
            batch = next(iter(load(pad, min_area=min_area, min_visible=min_visible)))
            for i, row in enumerate(want):
                row = row[:2] if pad.get("pad_to") == 2 else row
                n = len(row)
                have = {k: (numpy.array(batch[k][i]) if not pad else batch[k][i][:batch[k + ":lengths"][i]])
                        for k in ("boxes", "l", "pair", "npy")}
                tap.equal([len(v) for v in have.values()], [n] * 4)
                numbers = [100 * i + place for place, _ in row]
                tap.equal(have["l"].tolist(), numbers)
                tap.equal(have["npy"].tolist(), numbers)
                tap.equal(have["pair"].tolist(), [[v, -v] for v in numbers])
                assert numpy.allclose(have["boxes"], numpy.array([b for _, b in row]).reshape(n, 4), atol=1e-4)
    assert dropped > 50
    # boxes within the picture are all visible, however their coordinates are rounded
    within = [[box for box in boxes if min(box) >= 0 and max(box) <= side] for boxes in samples]
    tap.make_tar("within.tar", [item for i, boxes in enumerate(within) for item in (
        ("%02d.ppm" % i, b"P6 %d %d 255\n" % (side, side) + bytes(side * side * 3)), ("%02d.json" % i, json.dumps({"b": boxes}).encode()))])
    small = penstock.Loader("within.tar", 12, {"x": penstock.Image("ppm", 45, crop="center", resize=45),
                                               "boxes": penstock.Boxes("json:b", min_visible=1)}, order="none", format="numpy")
    tap.equal([len(row) for row in next(iter(small))["boxes"]], [len(b) for b in within])
    # without the options nothing is dropped, and labels need none
    plain = penstock.Loader("boxes.tar", 12, {"x": penstock.Image("ppm", size), "boxes": penstock.Boxes("json:b")}, order="none", format="numpy")
    tap.equal([len(row) for row in next(iter(plain))["boxes"]], [len(b) for b in samples])
    image = {"x": penstock.Image("ppm", size), "boxes": penstock.Boxes("json:b", min_area=1)}
    for field, why in ((penstock.Json("json:bad", shape=(0,), dtype="i64", follow="boxes"), "1 items, but"),
                       (penstock.Json("json:bad", shape=(1,), dtype="i64", follow="boxes"), "leading 0"),
                       (penstock.Array("npy", (0,), "i32", follow="x"), "min_area"),
                       (penstock.Array("npy", (0,), "i32", follow="nothing"), "min_area")):
        try:
            next(iter(penstock.Loader("boxes.tar", 12, {**image, "l": field}, order="none", format="numpy")))
        except (penstock.ConfigError, penstock.DamagedSampleError) as error:
            assert why in str(error), error
        else:
            raise AssertionError(why)
    for options in ({"min_visible": 1.5}, {"min_area": -1}, {"min_area": float("nan")}):
        try:
            load({}, **options)
        except penstock.ConfigError as error:
            assert list(options)[0] in str(error), error
        else:
            raise AssertionError(options)


if __name__ == "__main__":
    tap.main()
