#!/usr/bin/python3
"""The Python package: batches, fields, epochs, ranks, statistics, warnings and errors."""
import errno
import io
import json
import logging
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import warnings

import tap

tap.python_package()  # or SKIP

import numpy
import PIL.Image
import torch

import penstock
from python_fixture import FIELDS, labels, loader, shards


@tap.test
def a_mount_that_lacks_listed_files_is_warned_of_once():
    text = b"2 of 5 listed files are missing at the origin, first: a.tar, b.tar"
    try:
        os.setxattr(".", "user.penstock.missing", text)
    except OSError as e:
        return print("# no attributes here: %s" % e)
    pattern = shards()
    for given in (pattern, os.path.join(os.getcwd(), pattern), ["t-0.tar", "t-1.tar"]):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            penstock.Loader(given, 8, fields={"label": penstock.Int("cls")}, format="numpy")
        tap.equal([str(w.message).endswith(": " + text.decode()) for w in seen], [True])
    os.removexattr(".", "user.penstock.missing")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loader(format="numpy")
    tap.equal([str(w.message) for w in seen], [])


@tap.test
def epochs_have_every_sample_once():
    load = loader(format="numpy")
    want = sorted(100 * s + i for s in range(3) for i in range(10))
    first, second = labels(load), labels(load)
    tap.equal(sorted(first), want)
    tap.equal(sorted(second), want)
    assert first != second, "each epoch is shuffled differently"
    load.set_epoch(0)
    tap.equal(labels(load), first)
    tap.equal(labels(loader("t-{0..2}.tar", format="numpy", threads=7)), first)


@tap.test
def torch_numpy_and_dlpack_see_the_same_memory():
    load = loader()
    batch = next(iter(load))
    tap.equal(batch["image"].shape, (4, 3, 32, 32))
    tap.equal((batch["image"].dtype, batch["label"].dtype), ("f32", "i64"))
    tap.equal(batch["image"].nbytes, 4 * 3 * 32 * 32 * 4)
    tap.equal(repr(batch["image"]), "penstock.Tensor(shape=(4, 3, 32, 32), dtype=f32)")
    array, tensor = numpy.asarray(batch["image"]), torch.from_dlpack(batch["image"])
    tap.equal(array.__array_interface__["data"][0], tensor.data_ptr())
    assert tensor.dtype == torch.float32 and tensor.is_contiguous() and -3 < float(tensor.mean()) < 3
    tap.equal(list(batch), ["image", "label", "text"])
    tap.equal(batch["__valid__"].dtype, "u8")
    for name in "__key__", "__valid__", "__shard__", "__sample__":
        assert name in batch and batch.get(name) is not None and name not in list(batch), name
    assert "no" not in batch and batch.get("no") is None and batch.get("no", 3) == 3
    rebuilt = penstock.Batch(dict(batch))  # by a framework: it has only the fields
    assert "__valid__" not in rebuilt and rebuilt.get("__valid__") is None and list(batch) == list(rebuilt)
    tap.equal([len(k) for k in batch["__key__"]], [5] * 4)
    assert all(isinstance(k, str) for k in batch["__key__"])


@tap.test
def dlpack_makes_a_copy_if_asked():
    """Asks as from_dlpack(copy=True) of torch and numpy does, in versions that have the argument."""
    class Asks:
        def __init__(self, tensor, **how):
            self.tensor, self.how = tensor, how

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, **_):
            return self.tensor.__dlpack__(copy=True, **self.how)

    for layout in "nchw", "channels_last":
        load = loader(fields={"image": penstock.Image("jpg", 32, layout=layout)})
        batch = next(iter(load))
        there, want = torch.from_dlpack(batch["image"]), torch.from_dlpack(batch["image"]).clone()
        copies = [torch.from_dlpack(batch["image"].__dlpack__(copy=True)), torch.from_dlpack(Asks(batch["image"]))]
        copies += [torch.from_dlpack(batch["image"].__dlpack__(copy=False))]
        tap.equal([c.data_ptr() == there.data_ptr() for c in copies], [False, False, True])
        tap.equal(copies[0].stride(), there.stride())
        del copies[2]
        there.zero_()
        del there
        batch.release()  # copies keep no batch
        assert all(torch.equal(c, want) for c in copies)
        versioned = next(iter(load))["image"].__dlpack__(copy=True, max_version=(1, 1))
        assert "dltensor_versioned" in repr(versioned)


@tap.test
def format_columns_and_transform_decide_what_a_batch_is():
    load = loader(format="torch", columns=("image", "label"), transform=lambda pair: (pair[0] * 2, pair[1]))
    images, numbers = next(iter(load))
    assert isinstance(images, torch.Tensor) and numbers.dtype == torch.int64
    text = next(iter(loader("t-{0..2}.tar", format="numpy")))["text"]
    tap.equal(len(text), 4)
    for row, number in zip(text, numpy.asarray(next(iter(loader("t-{0..2}.tar")))["label"])):
        tap.equal(row, "ä".encode() * (number % 100))
    tap.equal(text.values.dtype, numpy.uint8)
    tap.equal(int(text.offsets[-1]), sum(len(row) for row in text))
    u8 = loader("t-{0..2}.tar", fields={"x": penstock.Image("jpg", (16, 48), dtype="u8", layout="nhwc")})
    tap.equal((next(iter(u8))["x"].shape, next(iter(u8))["x"].dtype), ((4, 16, 48, 3), "u8"))


@tap.test
def channels_last_has_the_shape_of_nchw():
    pattern = shards()
    fields = {layout: [penstock.Image("jpg", 16, layout=layout)] for layout in ("nchw", "channels_last")}
    images = {layout: next(iter(loader(pattern, fields=f, format="torch")))["jpg"] for layout, f in fields.items()}
    assert images["channels_last"].is_contiguous(memory_format=torch.channels_last)
    tap.equal(images["channels_last"].shape, (4, 3, 16, 16))
    assert torch.equal(images["nchw"], images["channels_last"])
    plain = next(iter(loader("t-{0..2}.tar", fields=fields["channels_last"])))["jpg"]
    assert numpy.array_equal(numpy.asarray(plain), images["nchw"].numpy())
    for wrong in ((0, 1, 2), (0, 0, 1, 2), (0, 1, 2, 9), ("x", 1, 2, 3)):
        try:
            plain.permute(*wrong)
            raise AssertionError(wrong)
        except ValueError:
            pass


def pictures(size, n=12):
    """A tar of PNGs of noise, and their pixels."""
    rng, files, arrays = numpy.random.default_rng(1), [], []
    for i in range(n):
        png = io.BytesIO()
        arrays.append(rng.integers(0, 256, (size[1], size[0], 3), numpy.uint8))
        PIL.Image.fromarray(arrays[-1]).save(png, "png")
        files.append(("%02d.png" % i, png.getvalue()))
    tap.make_tar("p.tar", files)
    return arrays


def u8(**options):
    fields = [penstock.Image("png", dtype="u8", layout="nhwc", hflip=0, **options)]
    return next(iter(penstock.Loader("p.tar", 12, fields, order="none", format="numpy")))["png"]


@tap.test
def random_crop_is_a_part_of_the_padded_image():
    arrays = pictures((24, 20))
    for mode in "constant", "edge", "reflect", "symmetric":
        starts = set()
        for picture, got in zip(arrays, u8(size=(16, 18), crop="random_crop", padding=(6, 4), padding_mode=mode)):
            padded = numpy.pad(picture, ((4, 4), (6, 6), (0, 0)), mode)
            found = [(y, x) for y in range(13) for x in range(19) if (padded[y:y + 16, x:x + 18] == got).all()]
            assert found, mode
            starts.update(found)
        assert len(starts) > 6
    for got in u8(size=40, crop="random_crop", fill=7):  # the picture is too small: padded as much as needed
        assert (got == 7).any() and (got != 7).sum() >= 24 * 20 * 3 * 0.9, (got != 7).sum()


def npy_tar(name, arrays, suffix="npy"):
    files = []
    for i, array in enumerate(arrays):
        data = io.BytesIO()
        if isinstance(array, bytes):
            data.write(array)
        else:
            numpy.save(data, array)
        files.append(("%02d.%s" % (i, suffix), data.getvalue()))
    tap.make_tar(name, files)


@tap.test
def an_array_without_a_shape_has_that_of_the_first_good_sample():
    npy_tar("n-0.tar", [b"\x93NUMPY\1\0", numpy.ones((2, 3), "f4"), numpy.ones((2, 3), "f4")])
    npy_tar("n-1.tar", [numpy.full((2, 3), 7, "f4"), numpy.ones((5,), "f4")])

    def made(shards=("n-0.tar", "n-1.tar"), **options):
        field = options.pop("field", penstock.Array("npy"))
        return penstock.Loader(list(shards), fields={"x": field}, batch=1, order="none", on_error="skip", format="numpy", **options)

    for rank in range(2):  # all ranks look at the first shard
        load = made(rank=rank, world=2, end="uneven")
        tap.equal(load.element_spec["x"].shape, (1, 2, 3))
        good = [batch["x"].shape for batch in load if batch.valid]
        assert good and set(good) == {(1, 2, 3)}, good
    state = load.state_dict()
    tap.equal(state["shapes"], {"x": [2, 3]})
    json.dumps(state)
    os.rename("n-0.tar", "away.tar")  # the state has the shape: no shard is looked at
    tap.make_tar("n-0.tar", [("00.txt", b"no array")])
    tap.equal(made(rank=1, world=2, end="uneven", state=state).state_dict()["shapes"], {"x": [2, 3]})
    try:
        made()
        raise AssertionError("a shape was found in a shard without arrays")
    except ValueError as e:
        assert "field x: no sample of the first shard has an array" in str(e) and "Array('npy', (3, 4))" in str(e), e
    os.rename("away.tar", "n-0.tar")
    again = pickle.loads(pickle.dumps(made()))
    tap.equal(again.element_spec["x"].shape, (1, 2, 3))
    tap.equal(made(field=penstock.Array("npy", pad_to=6), shards=["n-1.tar"]).state_dict().get("shapes"), None)
    try:
        next(iter(penstock.Loader("n-0.tar", fields={"x": penstock.Array("npy", (4, 3))}, batch=1, order="none", skip=1)))
        raise AssertionError("another shape was taken")
    except penstock.BadSampleError as e:
        assert "a first dimension of 0 takes any length" in str(e), e
    seen = []
    load = penstock.Loader("n-1.tar", fields={"x": penstock.Array("npy")}, batch=1, order="none", on_error="skip", format="numpy",
                           map=lambda sample: seen.append(sample["x"].shape))
    list(load)
    tap.equal(set(seen), {(2, 3)})
    npy_tar("s.tar", [numpy.float32(3)])
    tap.equal(next(iter(penstock.Loader("s.tar", fields=[penstock.Array("npy")], batch=1, format="numpy")))["npy"].shape, (1,))


@tap.test
def floats_are_rounded_to_the_nearest_if_asked():
    wide = numpy.random.default_rng(3).normal(size=(4, 50)).astype("f4")
    npy_tar("f.tar", [wide, numpy.array([[1e6]] * 200, "f4").reshape(4, 50)])

    def made(**options):
        return penstock.Loader("f.tar", fields={"x": penstock.Array("npy", (4, 50), **options)}, batch=1, order="none",
                               format="torch")

    got = next(iter(made(dtype="f16", rounding="nearest")))["x"]
    assert (got[0].numpy() == wide.astype("f2")).all()
    got = next(iter(made(dtype="bf16", rounding="nearest")))["x"]
    assert torch.equal(got[0], torch.from_numpy(wide).to(torch.bfloat16))
    for options, why in ((dict(dtype="f16"), "no exact value in f16; choose another dtype, or for rounding=\"nearest\""),
                         (dict(dtype="f16", rounding="nearest"), "its element 0, a f32, has no finite value in f16")):
        try:
            list(made(**options))
            raise AssertionError(options)
        except penstock.BadSampleError as e:
            assert why in str(e), e


@tap.test
def a_letterbox_is_near_pils_resize_with_padding():
    for shape in (90, 70), (70, 90), (30, 20), (64, 48):
        arrays = pictures(shape)
        scale = min(64 / shape[0], 48 / shape[1])
        width, height = (max(1, int(side * scale + 0.5)) for side in shape)
        left, above = (64 - width) // 2, (48 - height) // 2
        around = ((above, 48 - height - above), (left, 64 - width - left), (0, 0))
        for mode, more in ("constant", {"constant_values": 114}), ("edge", {}):
            options = dict(fill=114) if mode == "constant" else dict(padding_mode=mode)
            for picture, got in zip(arrays, u8(size=(48, 64), crop="letterbox", **options)):
                small = numpy.asarray(PIL.Image.fromarray(picture).resize((width, height), PIL.Image.BILINEAR)).astype(int)
                assert abs(numpy.pad(small, around, mode, **more) - got).max() <= 1, (shape, mode)


@tap.test
def resize_before_a_crop_is_near_pils():
    arrays = pictures((90, 70))
    for resize, size in ((48, (61, 48)), ((40, 50), (50, 40))):  # the shorter side, height and width
        want = [numpy.asarray(PIL.Image.fromarray(a).resize(size, PIL.Image.BILINEAR)).astype(int) for a in arrays]
        for w, got in zip(want, u8(size=32, crop="center", resize=resize)):
            y, x = round((size[1] - 32) / 2), round((size[0] - 32) / 2)
            assert abs(w[y:y + 32, x:x + 32] - got).max() <= 1
        for w, got in zip(want, u8(size=32, crop="random_crop", resize=resize)):
            assert any(abs(w[y:y + 32, x:x + 32] - got).max() <= 1
                       for y in range(size[1] - 31) for x in range(size[0] - 31))


@tap.test
def erasing_noise_and_groups_change_the_right_pixels():
    arrays = pictures((32, 32))
    plain = u8(size=32, crop="none")
    assert (plain == numpy.stack(arrays)).all()
    erased = u8(size=32, crop="none", erase=1, erase_scale=(0.2, 0.3), erase_ratio=(0.5, 2), erase_fill=(1, 2, 3))
    for a, b in zip(plain, erased):
        ys, xs = numpy.nonzero((b == (1, 2, 3)).all(-1))
        assert (b[ys.min():ys.max() + 1, xs.min():xs.max() + 1] == (1, 2, 3)).all()
        assert 0.15 < len(ys) / 1024 < 0.35 and (a == b).all(-1).sum() + len(ys) == 1024
    mean = u8(size=32, crop="none", erase=1)
    assert all(((124, 116, 104) == picture).all(-1).sum() >= 10 for picture in mean)
    assert (u8(size=32, crop="none", erase=1, erase_fill="random") != plain).any()
    noise = u8(size=32, crop="none", noise=1, noise_sigma=(1, 60)).astype(int) - plain
    inside = (plain > 90) & (plain < 165)
    spread = [n[i].std() for n, i in zip(noise, inside)]
    assert min(spread) < 25 and max(spread) > 35, spread
    options = dict(size=32, crop="none", jitter=1, brightness=0.5, vflip=1)
    both = u8(groups=[penstock.RandomApply(["jitter", "vflip"], 0.5)], **options)
    always, never = (both == u8(**options)).all((1, 2, 3)), (both == plain).all((1, 2, 3))
    assert (always != never).all() and 0 < always.sum() < 12, (always, never)
    one = u8(size=32, crop="none", vflip=1, gray=1, groups=[penstock.OneOf(["vflip", "gray"], p=1)])
    flipped = (one == plain[:, ::-1]).all((1, 2, 3))
    gray = (one[..., 0] == one[..., 1]).all((1, 2))
    assert (flipped != gray).all() and 0 < gray.sum() < 12
    for wrong, says in ((dict(groups="one:2=gray"), "must be apply:PROBABILITY"), (dict(erase_fill=300), "levels are 0"),
                        (dict(padding=3), 'padding has no effect: take crop="random_crop"'), (dict(jitter_order="any"), "fixed, random")):
        try:
            u8(size=32, **wrong)
        except ValueError as e:
            assert says in str(e), (says, e)
        else:
            raise AssertionError(wrong)


@tap.test
def views_masks_boxes_and_mixes_are_tensors_of_a_batch():
    files = []
    for i in range(8):
        mask = io.BytesIO()
        PIL.Image.new("L", PIL.Image.open(tap.PHOTOS[i]).size, i).save(mask, "png")
        files += [("%d.jpg" % i, tap.read(tap.PHOTOS[i])), ("%d.cls" % i, b"%d" % i), ("%d.seg.png" % i, mask.getvalue()),
                  ("%d.json" % i, json.dumps({"boxes": [[0, 0, 9999, 9999]] * i}).encode())]
    tap.make_tar("t.tar", files)
    fields = {"image": penstock.Image("jpg", 16, jitter=1, brightness=0.4), "again": penstock.Image("jpg", 8, views=3),
              "mask": penstock.Mask("seg.png", follow="image"), "boxes": penstock.Boxes("json:boxes", follow="image"),
              "label": penstock.Int("cls")}
    load = penstock.Loader("t.tar", 8, fields, order="none", format="torch", mixup_alpha=0.2)
    batch = next(iter(load))
    tap.equal((batch["image"].shape, batch["again"].shape), ((8, 3, 16, 16), (8, 3, 3, 8, 8)))
    tap.equal(batch["mask"].shape, (8, 16, 16))
    tap.equal([int(m.max()) for m in batch["mask"]], list(range(8)))
    tap.equal(batch["boxes"].offsets.tolist(), [0, 0, 1, 3, 6, 10, 15, 21, 28])
    tap.equal(batch["boxes"].values[0].tolist(), [0, 0, 16, 16])
    tap.equal(batch["__mix_lambda__"].shape, (8,))
    tap.equal(batch["label:mix"].tolist(), [int(batch["label"][r]) for r in batch["__mix_row__"]])
    assert not torch.equal(batch["again"][0, 0], batch["again"][0, 1])


@tap.test
def a_random_crop_is_a_window_of_the_resized_image():
    """As torchvision's Resize (PIL's, antialiased) and RandomCrop: each picture is a window of the resized one."""
    rng = numpy.random.default_rng(4)
    small = rng.integers(0, 256, (9, 12, 3), numpy.uint8)
    image = PIL.Image.fromarray(small).resize((60, 45), PIL.Image.BICUBIC)
    out = io.BytesIO()
    image.save(out, "PNG")
    tap.make_tar("t.tar", [("%d.png" % i, out.getvalue()) for i in range(64)])
    for resize, size in (((24, 40), (40, 24)), (30, (40, 30))):  # height and width; the shorter side
        want = numpy.asarray(image.resize(size, PIL.Image.BILINEAR)).astype(int)
        field = penstock.Image("png", 16, crop="random_crop", resize=resize, hflip=0, dtype="u8", layout="nhwc")
        load = penstock.Loader("t.tar", 64, {"x": field}, format="numpy")
        places = set()
        for got in next(iter(load))["x"].astype(int):
            fits = [(y, x) for y in range(want.shape[0] - 15) for x in range(want.shape[1] - 15)
                    if numpy.abs(want[y:y + 16, x:x + 16] - got).max() <= 1]
            tap.equal(len(fits), 1)
            places.add(fits[0])
        assert len(places) > 40, places


@tap.test
def datasets_are_mixed_by_weight():
    for name, base in (("a", 0), ("b", 1000)):
        tap.make_tar(name + ".tar", [("%d.cls" % i, b"%d" % (base + i)) for i in range(40)])
    load = penstock.Loader(["a.tar", "b.tar"], 8, penstock.Int("cls"), mix=[3, 1], format="numpy")
    tap.equal([int((b["cls"] < 1000).sum()) for b in load][:5], [6] * 5)


@tap.test
def budget_profile_and_statistics_are_reported():
    budget = penstock.Budget("64M")
    load = loader(budget=budget, profile=1, format="numpy", epochs=1)
    assert 0 < budget.used <= 64 << 20, budget
    for batch in load:
        pass
    profile, stats = load.profile(), load.stats()
    tap.equal((stats["samples"], sorted(s["name"] for s in stats["stages"])), (30, ["consumer", "decode", "read"]))
    assert stats["bottleneck"] in ("storage", "read", "decode", "consumer"), stats
    assert "label" in json.dumps(profile), profile
    del batch
    load.close()
    tap.equal(budget.used, 0)
    try:
        loader("t-{0..2}.tar", budget=7)
        raise AssertionError("budget=7 was accepted")
    except (TypeError, ValueError):
        pass
    try:
        loader("t-{0..2}.tar").profile()
        raise AssertionError("a loader without profile=1 gave a profile")
    except penstock.UnknownLengthError:
        raise AssertionError("another error was raised")
    except penstock.Error as e:
        assert "profile" in str(e), e


@tap.test
def filters_choose_by_columns_of_the_index():
    pattern = shards()
    assert tap.run("index", "--column", "label=cls", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    some = labels(loader(pattern, filter="label >= 100 && label < 105", format="numpy"))
    tap.equal(sorted(some), list(range(100, 105)))
    try:
        labels(loader(pattern, filter="label >=", format="numpy"))
        raise AssertionError("an incomplete filter was accepted")
    except ValueError as e:
        assert "filter" in str(e), e


@tap.test
def get_gives_samples_by_number():
    load = loader(format="numpy")
    try:
        load.get([0])
        raise AssertionError("get() gave a sample without an index")
    except penstock.UnknownLengthError as e:
        assert "index" in str(e), e
    assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    load = loader("t-{0..2}.tar", format="numpy")
    batch = load.get([29, 0, numpy.int64(10), 0])
    tap.equal(batch["label"].tolist(), [209, 0, 100, 0])
    tap.equal(labels(load), labels(loader("t-{0..2}.tar", format="numpy")), "get() does not change the epoch")
    for wrong, kind in (([30], IndexError), ([-1], IndexError), (["x"], TypeError), (7, TypeError)):
        try:
            load.get(wrong)
            raise AssertionError(wrong)
        except kind:
            pass


@tap.test
def lines_of_jsonl_are_samples():
    with open("t.jsonl", "w") as f:
        f.writelines(json.dumps({"t": "line %d" % i, "n": i}) + "\n" for i in range(10))
    fields = {"text": penstock.Text("json:t"), "n": penstock.Int("json:n")}
    load = penstock.Loader("t.jsonl", 5, fields, order="none", format="numpy")
    batch = next(iter(load))
    tap.equal((batch["text"].tolist(), batch["n"].tolist()), (["line %d" % i for i in range(5)], list(range(5))))


@tap.test
def length_is_known_with_an_index_only():
    load = loader()
    try:
        len(load)
        raise AssertionError("len() gave a length without an index")
    except TypeError as e:
        assert isinstance(e, penstock.UnknownLengthError) and "index" in str(e), e
    assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    tap.equal((len(load), load.samples()), (8, 30))


@tap.test
def help_and_manual_have_units_and_ranges_of_all_options_of_images():
    other_kinds = {"optional", "missing_value", "shape", "pad_to", "pad_multiple", "overflow", "pad_value", "max_bytes",
                   "add_offset_of", "source_dtype", "member", "box_format", "box_shares", "min_area", "min_visible", "rounding",
                   "pack", "parts", "long_documents", "cu_pad", "end_token", "vocab"}
    words = {"dtype", "layout", "crop", "interpolation", "follow", "orient", "dct_scale", "padding_mode", "groups", "truncated"}
    # The name of a Python keyword that stands for two options.
    pairs = {"image": "size", "padding_x": "padding", "padding_y": "padding", "erase_levels": "erase_fill",
             "resize_shorter": "resize"}
    manual = tap.read(os.path.join(tap.SRC, "man/penstock_field_init.3")).decode()
    table = re.sub(r"\\f.", "", manual)
    for name in set(penstock.keywords.OF_FIELD) - other_kinds:
        short = re.sub("_(min|max|width|height)$", "", name) if not name.startswith("max_") else name
        assert re.search(r"^ *(\w+, )*%s(, \w+)*[: ] *\S" % pairs.get(short, short), penstock.Image.__doc__, re.M), name
        assert name in words or re.search(r"^(.*[,;] )?%s\b.* \(default " % name, table, re.M), name


@tap.test
def an_iterator_that_gave_no_batch_uses_up_no_epoch():
    pattern = shards()
    want = [labels(load) for load in [loader(pattern)] for _ in range(2)]
    load = loader(pattern)
    for _ in range(3):
        iter(load)
    seen = labels(load)
    iter(load)
    tap.equal([seen, labels(load)], want)
    assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    for order in ("window", [3, 1, 4, 15, 9, 2, 6, 5], torch.utils.data.SequentialSampler(range(20))):
        first = loader(pattern, order=order)
        steps = iter(first)
        had = labels([next(steps)])
        again = loader(pattern, order=order, state=first.state_dict())
        iter(again)
        iter(again)
        tap.equal(had + labels(again), labels(loader(pattern, order=order)), repr(order))


@tap.test
def batch_to_moves_the_tensors_and_holds_no_batch():
    fields = {"x": penstock.Image("jpg", size=8), "n": penstock.Int("cls"), "t": penstock.Text("txt")}
    load = loader(fields=fields, format="torch", depth=2)
    moved = [batch.to("meta", non_blocking=True) for batch in load]
    tap.equal([(b["x"].device.type, b["t"].values.device.type) for b in moved], [("meta", "meta")] * len(moved))
    tap.equal([b.index for b in moved], list(range(len(moved))))
    here = loader(fields=fields, format="torch", copy=True)
    want = [(list(b["__key__"]), list(b["t"]), b.rows, b.valid) for b in here]
    tap.equal([(list(b["__key__"]), list(b["t"]), b.rows, b.valid) for b in moved], want)
    tap.equal((moved[0]["__valid__"].device.type, moved[0]["__sample__"].shape), ("meta", (4,)))
    tap.equal((type(moved[0]), moved[0].bad_samples()), (penstock.Batch, []))
    moved[0].synchronize()
    moved[0].release()
    tap.equal(dict(moved[0]), {})
    rebuilt = penstock.Batch(moved[1])
    assert "meta" not in repr(rebuilt) and "x (4, 3, 8, 8)" in repr(rebuilt), rebuilt
    batch = next(iter(loader(fields=fields, format="torch")))
    assert batch.to("cpu") is batch and penstock.Batch(batch).to("meta")["x"].device.type == "meta"
    assert batch.to("cpu")["x"].data_ptr() == batch["x"].data_ptr()
    plain = next(iter(loader(format="numpy")))
    assert plain.to("cuda:0") is plain if torch.cuda.is_available() else plain.to("cpu") is plain


@tap.test
def pin_memory_copies_tensors_if_there_is_cuda():
    batch = next(iter(loader(format="torch")))
    if not torch.cuda.is_available():
        assert batch.pin_memory() is batch
    there, pin = torch.cuda.is_available, torch.Tensor.pin_memory
    torch.cuda.is_available, torch.Tensor.pin_memory = lambda: True, lambda tensor: tensor.clone()
    try:
        pinned = batch.pin_memory()
    finally:
        torch.cuda.is_available, torch.Tensor.pin_memory = there, pin
    for name in ("image", "label"):
        assert pinned[name].data_ptr() != batch[name].data_ptr() and (pinned[name] == batch[name]).all(), name
    tap.equal([pinned["text"][i] for i in range(4)], [batch["text"][i] for i in range(4)])


@tap.test
def wrong_arguments_are_named():
    pattern = shards(1)
    cases = [
        (lambda: loader(pattern, batch=0), ValueError, "batch"),
        (lambda: loader(pattern, threds=2), TypeError, '"threds"; did you mean "threads"?'),
        (lambda: loader(pattern, num_workers=2), TypeError, '"num_workers"; did you mean "threads"?'),
        (lambda: loader(pattern, shuffle=True), TypeError, '"shuffle"; did you mean "order"?'),
        (lambda: loader(pattern, xyzzy=2), TypeError, "help(penstock.Loader)"),
        (lambda: loader(pattern, order="random"), ValueError, "window"),
        (lambda: loader(pattern, batch="many"), TypeError, "batch"),
        (lambda: loader(pattern, seed=-1), ValueError, "seed"),
        (lambda: loader(pattern, rank=1), ValueError, "world"),
        (lambda: loader(pattern, rank=3, world=2), ValueError, "rank"),
        (lambda: loader(pattern, format="tf"), ValueError, "torch"),
        (lambda: loader(pattern, columns=["picture"]), ValueError, "picture"),
        (lambda: loader(pattern, fields=["jpg"]), TypeError, "field 'jpg': a penstock.Field is needed, as Image('jpg')"),
        (lambda: loader(pattern, fields="jpg"), TypeError, "field 'jpg': a penstock.Field is needed"),
        (lambda: loader(pattern, drop_last=True), TypeError, 'no option "drop_last"; did you mean end="drop_last"?'),
        (lambda: loader(pattern, fields=[penstock.Image(dct_skale=3)]), TypeError, '"dct_skale"; did you mean "dct_scale"?'),
        (lambda: loader(pattern, fields=[penstock.Image(mean=(1, 2))]), ValueError, "mean"),
        (lambda: loader(pattern, fields=[penstock.Image(noise_sigma=(5, 9))]), ValueError, "add noise, its probability"),
        (lambda: loader(pattern, fields=[penstock.Image(crop="center", scale=(0.1, 1))]), ValueError, 'take crop="random"'),
        (lambda: loader(pattern, fields=[penstock.Image(resize=300)]), ValueError, 'take crop="center" or "random_crop"'),
        (lambda: penstock.Image(crop="center", resize_shorter=256), TypeError, "resize_shorter no longer exists: write resize="),
        (lambda: penstock.Image(crop="center", resize_width=256), TypeError, "write resize=(height, width)"),
        (lambda: penstock.Image(crop="random_crop", padding_x=4), TypeError, "write padding="),
        (lambda: penstock.Image(max_scans=5), TypeError, "max_scans no longer exists: a progressive JPEG"),
        (lambda: penstock.Mask("png", max_memory=5), TypeError, "max_memory no longer exists: raise max_pixels"),
        (lambda: loader(pattern, write_index=1), ValueError, "write_index no longer exists: index=\"make\" creates"),
        (lambda: loader(pattern, plan_epochs=2), ValueError, "plan_epochs no longer exists: the loader always announces 8 epochs"),
        (lambda: loader(pattern, fields={"x": penstock.Image("jpg"), "y": penstock.Image("jpg", follow="x", crop="none")}),
         ValueError, "field y: crop has no effect: this field follows field x"),
        (lambda: loader(pattern, memory_budget="much"), ValueError, "much"),
        (lambda: penstock.Loader([]), ValueError, "no shards"),
        (lambda: penstock.Loader(7), TypeError, ""),
        (lambda: next(iter(loader(pattern)))["nothing"], KeyError, "nothing"),
        (lambda: type(next(iter(loader(pattern)))["image"])(), TypeError, ""),
        (lambda: loader("missing.tar"), FileNotFoundError, "missing.tar"),
        (lambda: loader("https://127.0.0.1/x.tar"), penstock.MountError, "https://127.0.0.1"),
        (lambda: next(iter(loader(pattern, fields={"picture": penstock.Int("txtt")}))), penstock.BadSampleError,
         "has no field .txtt; it has .jpg, .cls, .txt;"),
    ]
    for call, kind, word in cases:
        try:
            call()
        except kind as e:
            assert word in str(e), (word, e)
        else:
            raise AssertionError("no %s about %r was raised" % (kind.__name__, word))


@tap.test
def the_package_knows_every_option_of_the_header():
    header = open(os.path.join(tap.SRC, "loader/include/penstock.h")).read()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    # Members for C alone: sizes, lists, and options that Python takes in another way.
    own = {"size", "name", "kind", "ndim", "fields", "nfields", "state_nbytes", "transform", "transform_ctx", "transform_unit",
           "nmix", "nmix_stages", "nnumbers", "nbatch_ends", "nsample_weights", "columns"}
    own |= {"write_index", "plan_epochs", "max_memory", "max_scans"}  # have gone
    for struct, known in zip(("penstock_options", "penstock_field"), penstock._penstock.option_names()):
        body = re.search(r"struct %s \{(.*?)\n\};" % struct, header, re.S).group(1)
        members = {m for line in re.findall(r"[\w*][^;]*;", body)
                   for m in re.findall(r"(\w+)(?:\[[^\]]*\])?\s*[,;]", line)}
        members = {m for m in members if not m.startswith("reserved")} - own
        tap.equal(sorted(members - set(known)), [], struct)
        tap.equal(sorted(set(known) - members), [], struct)


@tap.test
def arrays_texts_and_tokens_have_the_form_of_their_fields():
    def npy(array):
        buf = io.BytesIO()
        numpy.save(buf, array)
        return buf.getvalue()

    files = []
    for i in range(1, 4):
        files += [("%d.npy" % i, npy(numpy.arange(i * 2, dtype="f4").reshape(i, 2))), ("%d.txt" % i, b"x\xc3\xa4" * i),
                  ("%d.json" % i, json.dumps({"a": {"n": i, "f": i / 2}, "t": "t%d" % i}).encode()),
                  ("%d.bin" % i, numpy.arange(i, i + 5, dtype="u2").tobytes())]
    tap.make_tar("t.tar", files)
    fields = {
        "points": penstock.Array("npy", (0, 2)), "text": penstock.Text("txt"), "n": penstock.Int("json:a.n", dtype="i32"),
        "title": penstock.Text("json:t"), "x": penstock.Float("json:a.f"), "n_again": penstock.Float("json:a.n"), "tokens": penstock.Tokens("bin", 4),
    }
    load = penstock.Loader("t.tar", 3, fields, order="none", format="torch")
    batch = next(iter(load))
    tap.equal(batch["text"].tolist(), ["xä", "xäxä", "xäxäxä"])
    tap.equal(batch["title"].tolist(), ["t1", "t2", "t3"])
    tap.equal((batch["n"].tolist(), batch["n"].dtype, batch["x"].tolist()),
              ([1, 2, 3], torch.int32, [0.5, 1.0, 1.5]))
    tap.equal(batch["n_again"].tolist(), [1.0, 2.0, 3.0])
    tap.equal(batch["points"].offsets.tolist(), [0, 1, 3, 6])
    tap.equal(batch["points"].values.shape, (6, 2))
    tap.equal((batch["tokens"].tolist()[1], batch["tokens:y"].tolist()[1]), ([2, 3, 4, 5], [3, 4, 5, 6]))
    fields = {"points": penstock.Array("npy", (0, 2), pad_to="longest", pad_value=7)}
    batch = next(iter(penstock.Loader("t.tar", 3, fields, order="none", format="torch")))
    tap.equal(sorted(batch), ["points", "points:lengths", "points:mask"])
    tap.equal((batch["points"].shape, batch["points"][0].tolist()), ((3, 3, 2), [[0, 1], [7, 7], [7, 7]]))
    tap.equal((batch["points:mask"].dtype, batch["points:mask"].sum(1).tolist()), (torch.bool, [1, 2, 3]))


@tap.test
def arrays_without_dimensions_are_a_number_a_row():
    def npy(array):
        buf = io.BytesIO()
        numpy.save(buf, array)
        return buf.getvalue()

    def first(field, **options):
        return next(iter(penstock.Loader("t.tar", batch=4, fields={"x": field}, order="none", format="numpy", **options)))["x"]

    tap.make_tar("t.tar", [("%d.npy" % i, npy(numpy.float32(i))) for i in range(4)])
    for field in (penstock.Array("npy"), penstock.Array("npy", ()), penstock.Array("npy", (), dtype="i64")):
        tap.equal(first(field).tolist(), [0, 1, 2, 3])
    tap.equal(first(penstock.Array("npy", (1,))).tolist(), [[0], [1], [2], [3]])
    tap.equal(first(penstock.Array("npy", (0,))).values.tolist(), [0, 1, 2, 3])
    tap.equal(first(penstock.Array("npy"), map=lambda s: {"x": s["x"] + 0.5}).tolist(), [0.5, 1.5, 2.5, 3.5])
    load = penstock.Loader("t.tar", batch=2, fields={"x": penstock.Array("npy")}, order="none", format="numpy")
    tap.equal(load.element_spec["x"].shape, (2,))
    next(iter(load))
    again = penstock.Loader("t.tar", batch=2, fields={"x": penstock.Array("npy")}, order="none", format="numpy", state=load.state_dict())
    tap.equal(next(iter(again))["x"].tolist(), [2, 3])
    tap.make_tar("t.tar", [("%d.npy" % i, npy(numpy.zeros(1, "f4"))) for i in range(4)])
    try:
        raise AssertionError(first(penstock.Array("npy", ())))
    except penstock.BadSampleError as error:
        assert "has shape (1), but the field has ()" in str(error), error
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }".ljust(117) + b"\n"
    tap.make_tar("t.tar", [("%d.npy" % i, b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head + bytes(24)) for i in range(4)])
    tap.equal(first(penstock.Array("npy")).shape, (4, 2, 3))  # as Python 2 wrote it


@tap.test
def a_name_that_is_not_utf8_has_surrogate_escapes():
    with tarfile.open("t.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        for name, data in (("caf\xe9.cls", b"1"), ("b.cls", b"2")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    batch = next(iter(penstock.Loader("t.tar", 2, penstock.Int("cls"), order="none", format="numpy")))
    tap.equal(list(batch["__key__"]), ["caf\udce9", "b"])
    tap.equal(batch["__key__"].tolist()[0].encode(errors="surrogateescape"), b"caf\xe9")


@tap.test
def hard_links_are_read_in_any_order_and_after_a_resume():
    with tarfile.open("t.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for i in range(20):
            info = tarfile.TarInfo("%02d.cls" % i)
            if i % 3:
                info.type, info.linkname = tarfile.LNKTYPE, "%02d.cls" % (i - 1)
            info.size = 0 if i % 3 else 2
            tar.addfile(info, None if i % 3 else io.BytesIO(b"%02d" % i))
    want = [i - i % 3 for i in range(20)]
    for indexed in (False, True):
        if indexed:
            subprocess.run([tap.LOADER, "index", "t.tar"], check=True, capture_output=True)
        for optional in (False, True):
            fields = {"y": penstock.Int("cls", optional=optional), "raw": penstock.Bytes("cls")}
            load = penstock.Loader("t.tar", 4, fields, order="none", format="numpy")
            it = iter(load)
            got = next(it)["y"].tolist() + next(it)["y"].tolist()
            load = penstock.Loader("t.tar", 4, fields, order="none", format="numpy", state=load.state_dict())
            got += [y for batch in load for y in batch["y"].tolist()]
            tap.equal(got, want)
    load = penstock.Loader("t.tar", 4, fields, order="permutation", format="numpy")
    tap.equal(sorted(y for batch in load for y in batch["y"].tolist()), want)
    tap.equal(load.get([19, 4, 0])["y"].tolist(), [18, 3, 0])
    tap.equal([bytes(raw) for raw in load.get([19, 4, 0])["raw"]], [b"18", b"03", b"00"])


@tap.test
def a_lone_surrogate_in_json_concerns_its_text_alone():
    def first(field):
        try:
            return list(next(iter(penstock.Loader("t.tar", 2, {"x": field}, order="none", format="numpy")))["x"])
        except penstock.BadSampleError as error:
            return str(error)

    texts = [b'{"caption":"cut \\ud83d","label":5,"\\udc00":"\\ud83d\\u0041"}', b'{"caption":"\\ud83d\\ude00","label":6}']
    tap.make_tar("t.tar", [("%d.json" % i, text) for i, text in enumerate(texts)])
    tap.equal(first(penstock.Int("json:label")), [5, 6])
    tap.equal([json.loads(text) for text in first(penstock.Json("json"))], [json.loads(text) for text in texts])
    for field in (penstock.Text("json:caption"), penstock.Json("json:caption")):
        assert "at caption has a lone surrogate" in first(field), first(field)


@tap.test
def a_mean_of_values_up_to_255_is_refused():
    for mean, std in (((123.7, 116.3, 103.5), (58.4, 57.1, 57.4)), (127.5, 127.5), ((0.5, 0.5, 1.5), 0.2)):
        for dtype in ("f32", "f16"):
            try:
                raise AssertionError(penstock.Loader("t.tar", 2, penstock.Image("jpg", mean=mean, std=std, dtype=dtype)))
            except ValueError as error:
                assert "values are 0 to 1: divide by 255" in str(error), error
    tap.make_tar("t.tar", [("a.jpg", tap.read(tap.PHOTOS[0]))])
    for mean, std in ((0, 255), (1, 1), (0.5, 1 / 255)):
        penstock.Loader("t.tar", 1, penstock.Image("jpg", size=8, mean=mean, std=std), format="numpy").close()


@tap.test
def tokens_have_the_type_of_the_index_beside_them():
    def megatron(name, code, dtype):
        tokens.astype(dtype).tofile(name + ".bin")
        tap.write(name + ".idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 1, 2) + bytes(4 + 8 + 16))

    def first(files, **options):
        load = penstock.Loader(files, batch=1, fields={"x": penstock.Tokens("bin", 4, **options)}, order="none", format="numpy")
        return [batch["x"].tolist()[0] for batch in load]

    def refused(files, **options):
        try:
            return "got %r" % first(files, **options)
        except (ValueError, penstock.BadSampleError) as error:
            return str(error)

    tokens = numpy.arange(100, 109)
    want = [[100, 101, 102, 103], [104, 105, 106, 107]]
    for code, dtype in ((1, "u1"), (8, "u2"), (4, "i4"), (5, "i8")):
        megatron("t", code, "<" + dtype)
        tap.equal(first("t.bin"), want, dtype)
        tap.equal(first("t.bin", source_dtype=dtype[0] + str(8 * int(dtype[1]))), want, dtype)
    assert "source_dtype=\"u16\", but the .idx beside t.bin says that its tokens are i64" in refused("t.bin", source_dtype="u16")
    megatron("f", 7, "<f4")
    told = refused("f.bin")
    assert "the .idx beside it says that its tokens are f32" in told, told
    megatron("a", 4, "<i4")
    megatron("b", 8, "<u2")
    told = refused(["a.bin", "b.bin"])
    assert "tokens are u16, but the field reads i32" in told, told
    megatron("a", 1, "u1")
    for other in "u16", "i64":
        assert "but the .idx beside a.bin says that its tokens are u8" in refused("a.bin", source_dtype=other), other
    megatron("t", 4, "<i4")
    assert "source_dtype=\"u8\", but the .idx beside t.bin says that its tokens are i32" in refused("t.bin", source_dtype="u8")
    tokens.astype("<u2").tofile("plain.bin")
    tap.equal(first("plain.bin"), want)
    tap.write("plain.idx", b"of another program")
    tap.equal(first("plain.bin"), want)
    tokens.astype("u1").tofile("plain.bin")
    for dtype in "u8", "uint8", numpy.uint8:
        tap.equal(first("plain.bin", source_dtype=dtype), want, dtype)
    assert "source_dtype" in refused("plain.bin", source_dtype="f32")


@tap.test
def bad_samples_are_reported_with_their_batch():
    tap.make_tar("t.tar", [("a.cls", b"1"), ("b.cls", b"x"), ("c.cls", b"3")])
    load = penstock.Loader("t.tar", 3, penstock.Int("cls"), order="none", on_error="skip", format="numpy")
    batch = next(iter(load))
    tap.equal(batch["cls"].tolist(), [1, 3, 3])
    tap.equal((batch.bad, batch["__valid__"].tolist()), (1, [1, 0, 1]))
    bad = batch.bad_samples()[0]
    tap.equal((bad["row"], bad["shard"], bad["key"]), (1, "t.tar", "b"))
    assert bad["offset"] == 1024 and bad["reason"], bad


@tap.test
def a_batch_without_a_good_sample_is_blank_with_one_warning():
    good = [("%02d.cls" % i, b"%d" % i) for i in range(32)]
    tap.make_tar("t.tar", good + [("32.cls", b"junk")])
    fields = {"label": penstock.Int("cls"), "other": penstock.Int("cls2", optional=True, missing_value=-7)}
    for batch, blank in (32, 1), (1, 1), (7, 0):
        for end in "uneven", "pad", "split":
            load = penstock.Loader("t.tar", batch, fields, order="none", on_error="skip", end=end, format="numpy", epochs=2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for epoch in range(2):
                    batches = [(b["label"].tolist(), b["other"].tolist(), b["__valid__"].tolist(), b.bad, b.valid, b.rows)
                               for b in load]
                    tap.equal(len(batches), (33 + batch - 1) // batch)
                    tap.equal(sum(b[4] for b in batches), 32)
                    if blank:
                        n = batch if end == "pad" else 1
                        tap.equal(batches[-1], ([0] * n, [-7] * n, [0] * n, 1, 0, n))
            texts = [str(w.message) for w in caught]
            tap.equal(len(texts), blank, texts)
            if blank:
                assert "no good sample" in texts[0] and "'32' of t.tar" in texts[0] and "not an integer" in texts[0], texts
                tap.equal(caught[0].filename, __file__, "the warning is of the caller's line")
            tap.equal((load.stats()["blank_batches"], load.stats()["bad"]), (2 * blank, 2))


@tap.test
def an_epoch_without_samples_is_warned_of():
    tap.make_tar("t.tar", [("nodots", b"x")])
    tap.make_tar("few.tar", [("a.cls", b"1")])
    for shard, options in ("t.tar", {}), ("few.tar", {"end": "drop_last"}):
        load = penstock.Loader(shard, 4, penstock.Int("cls"), **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for epoch in range(3):
                tap.equal(len(list(load)), 0)
        tap.equal([str(w.message).split(":")[0] for w in caught], ["epoch 0 had no batch on this rank"])
        tap.equal(load.stats()["empty_epochs"], 3)
    load = penstock.Loader("few.tar", 1, penstock.Int("cls"))
    list(load)
    end = load.state_dict()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load.load_state_dict(end)
        tap.equal(len(list(load)), 1, "the epoch after the first")
        iterator = iter(load)
        next(iterator)
        load.load_state_dict(load.state_dict())
        tap.equal(len(list(load)), 0, "the empty rest of an epoch")
    tap.equal([str(w.message) for w in caught], [])


@tap.test
def lost_shards_are_counted_and_logged():
    tap.make_tar("t.tar", [("a.cls", b"1"), ("b.cls", b"2")])
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("penstock").addHandler(handler)
    try:
        load = penstock.Loader(["t.tar", "gone.tar"], 3, penstock.Int("cls"), on_error="skip", format="numpy")
        for _ in range(2):
            tap.equal(sum(batch.rows - batch.bad for batch in load), 2)
    finally:
        logging.getLogger("penstock").removeHandler(handler)
    stats = load.stats()
    assert stats["jpeg_decoder"] == "penstock" or stats["jpeg_decoder"].startswith("libjpeg: "), stats
    tap.equal((stats["shards_lost"], [shard for shard, _ in stats["lost"]]), (1, ["gone.tar"]))
    tap.equal(lines, ["penstock: lost shard gone.tar: " + stats["lost"][0][1]])


@tap.test
def ranks_come_from_the_launcher_unless_they_are_given():
    of = penstock.rank_and_world
    tap.equal(of({}), (0, 1))
    tap.equal(of({"RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "16"}), (2, 4))
    tap.equal(of({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}), (1, 2))
    tap.equal(of({"PMI_RANK": "1", "PMI_SIZE": "2"}), (1, 2))
    tap.equal(of({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}), (0, 1), "an sbatch script is not a task of a step")
    tap.equal(of({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}), (3, 8))
    for wrong in ({"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "x", "WORLD_SIZE": "4"}):
        try:
            of(wrong)
            raise AssertionError(wrong)
        except ValueError as e:
            assert "RANK" in str(e), e
    pattern = shards()
    os.environ.update(RANK="1", WORLD_SIZE="2")
    try:
        mine = labels(loader(pattern, end="uneven"))
        tap.equal(labels(loader(pattern, rank=1, world=2, end="uneven")), mine)
        assert not set(mine) & set(labels(loader(pattern, rank=0, world=2, end="uneven")))
        torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("rendezvous"), rank=0,
                                             world_size=1)
        tap.equal(len(labels(loader(pattern))), 30, "torch.distributed has precedence over the environment")
        torch.distributed.destroy_process_group()
    finally:
        del os.environ["RANK"], os.environ["WORLD_SIZE"]


DDP = """
import datetime, os, sys, torch, penstock
torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath(sys.argv[2]), rank=int(sys.argv[1]),
                                     world_size=2, timeout=datetime.timedelta(seconds=60))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 * 8 * 8, 1))
loader = penstock.Loader("t-{0..2}.tar", batch=4, format="torch", seed=1, on_error="skip", index_dir=sys.argv[3],
                         fields={"image": penstock.Image("jpg;jpeg", size=8), "label": penstock.Int("cls")})
batches = []
for epoch in range(2):
    batches.append(0)
    for batch in loader:
        model(batch["image"].flatten(1)).sum().backward()
        batches[-1] += 1
print("batches", *batches, flush=True)
"""


def ddp(store, index_dir):
    """Runs two ranks as torchrun does: (exit code, stdout, stderr) of each. Debian's torchrun fails on its Python."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    environment["OMP_NUM_THREADS"] = "1"
    ranks = [subprocess.Popen([sys.executable, "ddp.py", str(rank), store, index_dir], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment) for rank in range(2)]
    try:
        outputs = [rank.communicate(timeout=100) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, *output) for rank, output in zip(ranks, outputs)]


@tap.test
def ddp_with_a_plain_loop_never_hangs():
    shards(n=2, per=7)
    tap.make_tar("t-2.tar", [("%d.%s" % (i, e), data if i < 6 else b"junk") for i in range(7)
                             for e, data in (("jpg", tap.read(tap.PHOTOS[i])), ("cls", b"1"))])
    tap.write("ddp.py", DDP.encode())
    os.mkdir("idx")
    for code, out, err in ddp("store0", "idx"):
        assert code != 0 and "batches" not in out, (code, out, err)
        for word in "penstock.ConfigError: ", "penstock-loader index", "steps=", 'end="uneven"':
            assert word in err, (word, err)
    tap.equal(tap.run("index", "--dir", "idx", "t-0.tar", "t-1.tar", "t-2.tar").returncode, 0)
    # The ranks have 11 and 10 of the 21 samples: each has two batches of 4 and a shorter third one.
    tap.equal([(code, out) for code, out, _ in ddp("store1", "idx")], [(0, "batches 3 3\n")] * 2)


@tap.test
def an_error_about_a_name_that_is_not_utf8_keeps_its_type():
    for on_error, kind in ("fail", FileNotFoundError), ("skip", penstock.BadSampleError):  # over max_bad=0
        try:
            next(iter(penstock.Loader([b"no-\xff.tar"], batch=1, on_error=on_error, max_bad=0)))
            raise AssertionError("opened")
        except kind as e:
            assert "no-\\xff.tar" in str(e), e


@tap.test
def a_replaced_shard_raises_shard_changed_error():
    tap.make_tar("replaced.tar", [("%d.cls" % i, b"1") for i in range(4)])
    tap.equal(tap.run("index", "replaced.tar").returncode, 0)
    tap.make_tar("replaced.tar", [("x%d.cls" % i, b"1") for i in range(4)])
    with loader("replaced.tar", fields={"label": penstock.Int("cls")}, world=2, rank=0, batch=1) as l:
        try:
            labels(l)
            raise AssertionError("read")
        except penstock.ShardChangedError as e:
            assert "the shard was changed since" in str(e) and e.errno == errno.ESTALE, e
    assert not issubclass(penstock.ShardChangedError, penstock.StateError)


@tap.test
def tobytes_of_a_permuted_tensor_gives_the_permuted_bytes():
    files = []
    for i in range(2):
        buf = io.BytesIO()
        numpy.save(buf, numpy.arange(i, i + 3, dtype="i4").reshape(1, 3))
        files.append(("%d.npy" % i, buf.getvalue()))
    tap.make_tar("wide.tar", files)
    field = penstock.Array("npy", shape=(1, 3), dtype="i32")
    raw = next(iter(penstock.Loader("wide.tar", batch=2, fields={"x": field}, order="none")))["x"]
    want = numpy.asarray(raw).transpose(1, 0, 2)
    tap.equal(raw.permute(1, 0, 2).tobytes(), want.tobytes())


@tap.test
def drift_is_warned_of_once_and_counted():
    pattern = shards()
    with loader(pattern, profile=1) as l:
        labels(l)
        was = l.profile()
    tap.write("p.json", json.dumps(was).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with loader(pattern, profile_against="p.json") as l:
            labels(l)
            tap.equal((l.drift(), l.stats()["drift"]), ([], 0))
    other = json.loads(json.dumps(was))
    other["fields"]["label"]["labels"] = {"5": 30}
    with loader(pattern, profile_against=other, order="none") as l:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            labels(l), labels(l)
        told = [str(w.message) for w in caught]
        assert "drift: field label: label 0 is new" in told and len(told) == len(set(told)), told
        assert any("of the samples have other labels" in t for t in told), told
        tap.equal(l.stats()["drift"], len(l.drift()))
        again = pickle.loads(pickle.dumps(l))
        again.drift()
        again.close()
    for bad in ({"x": 1}, "nosuch.json"):
        try:
            loader(pattern, profile_against=bad)
            assert False, bad
        except (ValueError, OSError, penstock.Error):
            pass


@tap.test
def a_fingerprint_depends_on_data_and_order():
    pattern = shards()

    def of(pattern=pattern, **options):
        with loader(pattern, **options) as l:
            return l.fingerprint()

    one = of()
    tap.equal((one["shards"], one["samples"], one["counts"]), (3, None, None), "without an index counts are not known")
    tap.equal(of(threads=1, depth=2), one)
    assert one["digest"] != of(seed=1)["digest"] and one["names"] == of(seed=1)["names"]
    assert one["digest"] != of("t-{0..1}.tar")["digest"]
    assert one["fields"] != of(fields={**FIELDS, "image": penstock.Image("jpg", size=16)})["fields"]
    tap.equal(of(batch=2, rank=1, world=2, end="uneven", lanes=2)["digest"], of(batch=4, lanes=2, end="uneven")["digest"])
    tap.equal(tap.run("index", pattern).returncode, 0)
    counted = of()
    tap.equal((counted["digest"], counted["samples"]), (one["digest"], 30))
    for i in range(3):
        os.remove("t-%d.tar.psx" % i)
    versions = [of(transform=lambda b: b, transform_version=v) for v in (0, 3, "crop-v2", "crop-v3")]
    tap.equal(len({v["digest"] for v in versions}), 4)
    tap.equal((versions[0]["digest"], versions[1]["transform_version"]), (one["digest"], 3))


@tap.test
def a_state_of_another_transform_version_is_refused():
    pattern = shards()
    with loader(pattern, transform_version="a") as l:
        next(iter(l))
        state = l.state_dict()
    with loader(pattern, transform_version="a", state=state) as l:
        labels(l)
    try:
        loader(pattern, transform_version="b", state=state)
        assert False
    except penstock.StateError as e:
        assert "transform_version 'a', but this one has 'b'" in str(e), e
    with loader(pattern, transform_version="a") as l:
        again = pickle.loads(pickle.dumps(l))
        again.load_state_dict(state)
        del state["transform_version"]
        try:
            loader(pattern, transform_version=7).load_state_dict(state)
            assert False
        except penstock.StateError as e:
            assert "transform_version" in str(e) and "but this one has 7; open it with" in str(e), e


@tap.test
def index_make_makes_the_indexes_of_local_shards():
    pattern = shards()
    for folder in (None, "made"):
        more = {"index_dir": folder} if folder else {}
        with loader(pattern, rank=1, world=2, batch=2, index="make", **more) as l:
            tap.equal(len(l), 8)
        made = [n for n in os.listdir(folder or ".") if n.endswith(".psx")]
        tap.equal(len(made), 3)
        assert not [n for n in os.listdir(folder or ".") if "lock" in n]
        for n in made:
            os.remove(os.path.join(folder or ".", n))
    # Several ranks at once: one makes the indexes, the others wait for it.
    program = ("import sys, penstock\n"
               "l = penstock.Loader(%r, rank=int(sys.argv[1]), world=4, batch=2, index='make',\n"
               "                    fields=[penstock.Int('cls')])\nprint(len(l))" % pattern)
    runs = [subprocess.Popen([sys.executable, "-c", program, str(r)], stdout=subprocess.PIPE) for r in range(4)]
    tap.equal([r.communicate()[0] for r in runs], [b"4\n"] * 4)
    try:
        loader(pattern, rank=0, world=2, batch=2)
        for n in range(3):
            os.remove("t-%d.tar.psx" % n)
        loader(pattern, rank=0, world=2, batch=2)
        assert False
    except ValueError as e:
        assert 'index="make"' in str(e), e
    try:
        loader(pattern, index="nosuch")
        assert False
    except ValueError:
        pass


if __name__ == "__main__":
    tap.main()
