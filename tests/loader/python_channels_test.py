#!/usr/bin/python3
"""Pictures other than RGB in 8 bits, with channels= and dtype="u16", compared with Pillow and NumPy."""
import io
import struct
import zlib

import tap

tap.python_package()  # or SKIP

import numpy
import PIL.Image
import PIL.ImageFile

import penstock

W, H = 37, 29
RNG = numpy.random.default_rng(7)


def png(array, trns=b"", colour=None):
    """A PNG of 8 or 16 bits a channel, by the array's dtype; Pillow writes no RGB of 16 bits."""
    array = array.reshape(array.shape[0], array.shape[1], -1)
    if colour is None:
        colour = {1: 0, 2: 4, 3: 2, 4: 6}[array.shape[2]]
    rows = array.astype(">u2" if array.dtype == numpy.uint16 else "u1")
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 8 * array.itemsize, colour, 0, 0, 0))]
    chunks += [(b"tRNS", trns)] if trns else []
    chunks += [(b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks)


def saved(array, kind, **how):
    out = io.BytesIO()
    PIL.Image.fromarray(array).save(out, kind, **how)
    return out.getvalue()


def load(files, name="png", **options):
    options = {"size": (H, W), "crop": "none", "layout": "nhwc", "hflip": 0, "dtype": "u8", **options}
    if isinstance(files, bytes):
        files = [files]
    tap.make_tar("c.tar", [("%03d.%s" % (i, name), data) for i, data in enumerate(files)])
    fields = {"x": penstock.Image(name, **options)}
    return numpy.array(next(iter(penstock.Loader("c.tar", len(files), fields, order="none", format="numpy")))["x"])


def noise(*shape, dtype=numpy.uint8):
    return RNG.integers(0, numpy.iinfo(dtype).max, shape, dtype, endpoint=True)


def gray_of(rgb):
    r, g, b = (rgb[..., c].astype(numpy.uint64) for c in range(3))
    return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16


@tap.test
def channels_of_16_bits_are_kept():
    gray, rgb, rgba = noise(H, W, dtype=numpy.uint16), noise(H, W, 3, dtype=numpy.uint16), noise(H, W, 4, dtype=numpy.uint16)
    assert (load(png(gray), channels="gray", dtype="u16")[0, ..., 0] == gray).all()
    assert (load(png(rgb), dtype="u16")[0] == rgb).all()
    assert (load(png(rgba), channels="rgba", dtype="u16")[0] == rgba).all()
    assert (load(png(rgba), dtype="u16")[0] == rgba[..., :3]).all()
    assert (load(png(rgb), channels="gray", dtype="u16")[0, ..., 0] == gray_of(rgb)).all()
    tap.equal(load(png(gray), channels="gray", dtype="u16", layout="nchw").shape, (1, 1, H, W))
    pgm = b"P5 %d %d 65535\n" % (W, H) + gray.astype(">u2").tobytes()
    assert (load(pgm, "pgm", channels="gray", dtype="u16")[0, ..., 0] == gray).all()
    small = noise(H, W) % 101  # of a maxval of 100
    want = (small.astype(int) * 131070 + 100) // 200
    assert (load(b"P5 %d %d 100\n" % (W, H) + small.tobytes(), "pgm", channels="gray", dtype="u16")[0, ..., 0] == want).all()


@tap.test
def truncated_files_are_bad_or_as_pillow_decodes_them():
    rgb = noise(H, W, 3)
    whole = {"png": png(rgb), "jpg": saved(rgb, "jpeg", quality=90)}
    for name, data in whole.items():
        tap.make_tar("t.tar", [("0." + name, data), ("1." + name, data[:len(data) * 2 // 3])])
        options = {"size": (H, W), "crop": "none", "layout": "nhwc", "hflip": 0, "dtype": "u8"}
        for truncated in ("refuse", "allow"):
            fields = {"x": penstock.Image(name, truncated=truncated, **options)}
            with penstock.Loader("t.tar", 2, fields, order="none", format="numpy", on_error="skip") as loader:
                batch = next(iter(loader))
                allowed = int(truncated == "allow")
                tap.equal([loader.stats()["truncated"], loader.stats()["bad"], batch.valid], [allowed, 1 - allowed, 1 + allowed])
                x = numpy.array(batch["x"])
        PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            want = numpy.array(PIL.Image.open(io.BytesIO(data[:len(data) * 2 // 3])).convert("RGB"))
        finally:
            PIL.ImageFile.LOAD_TRUNCATED_IMAGES = False
        assert (x[1] == want).all() and not (x[1] == x[0]).all()
        assert (x[1][-1] == (0 if name == "png" else want[-1])).all()


@tap.test
def channels_of_8_bits_are_kept():
    rgb, rgba, gray = noise(H, W, 3), noise(H, W, 4), noise(H, W)
    for files, array in ((png(rgb), rgb), (png(rgba), rgba), (saved(rgba, "webp", lossless=True, exact=True), rgba)):
        name = "webp" if files[:4] == b"RIFF" else "png"
        got = load(files, name, channels="rgba")[0]
        assert (got[..., :3] == array[..., :3]).all() and (got[..., 3] == (array[..., 3] if array is rgba else 255)).all()
        assert (load(files, name, dtype="u16")[0] == array[..., :3].astype(int) * 257).all()
    assert (load(png(gray), channels="gray")[0, ..., 0] == gray).all()
    palette = PIL.Image.fromarray(rgb).convert("P", palette=PIL.Image.ADAPTIVE)
    out = io.BytesIO()
    palette.save(out, "png", transparency=5)
    want = numpy.asarray(PIL.Image.open(io.BytesIO(out.getvalue())).convert("RGBA"))
    assert (load(out.getvalue(), channels="rgba")[0] == want).all()
    keyed = noise(H, W, 3) // 128  # one colour of eight is transparent
    got = load(png(keyed, trns=struct.pack(">3H", 1, 0, 1)), channels="rgba")[0]
    assert (got[..., 3] == numpy.where((keyed == (1, 0, 1)).all(-1), 0, 255)).all() and (got[..., :3] == keyed).all()


@tap.test
def rgba_and_gray_of_a_jpeg_follow_from_its_rgb():
    for photo in tap.PHOTOS[:3]:
        data = tap.read(photo)
        rgb = load(data, "jpg")[0]
        got = load(data, "jpg", channels="rgba")[0]
        assert abs(got[..., :3].astype(int) - rgb).max() <= 1 and (got[..., 3] == 255).all()
        gray = load(data, "jpg", channels="gray")[0, ..., 0]
        assert abs(gray.astype(int) - gray_of(rgb).astype(int)).max() <= 1


@tap.test
def a_resize_is_near_pillows():
    rgba, gray = noise(90, 70, 4), noise(90, 70)
    rgba[:30, :, 3] = 255
    rgba[30:60, :, 3] = 0
    for size in (40, 30), (131, 117):
        for word, how in ("bilinear", PIL.Image.BILINEAR), ("bicubic", PIL.Image.BICUBIC):
            got = load(png(rgba), size=size, channels="rgba", interpolation=word)[0].astype(int)
            want = numpy.asarray(PIL.Image.fromarray(rgba).resize(size[::-1], how)).astype(int)
            assert abs(got[..., 3] - want[..., 3]).max() <= 1
            solid = want[..., 3] > 128  # with less alpha, Pillow's 8-bit weighted colours are too coarse
            assert abs(got - want)[solid].max() <= 4, abs(got - want)[solid].max()
            got = load(png(gray), size=size, channels="gray", interpolation=word)[0, ..., 0].astype(int)
            assert abs(got - numpy.asarray(PIL.Image.fromarray(gray).resize(size[::-1], how))).max() <= 1
    wide = noise(90, 70, dtype=numpy.uint16)
    got = load(png(wide), size=(40, 30), channels="gray", dtype="u16")[0, ..., 0].astype(float)
    want = numpy.asarray(PIL.Image.fromarray(wide.astype("f4"), "F").resize((30, 40), PIL.Image.BILINEAR))
    assert abs(got - want).max() <= 16, abs(got - want).max()  # of 65535: weights have 14 bits and more


@tap.test
def transparent_colours_do_not_bleed():
    rgba = numpy.zeros((64, 64, 4), numpy.uint8)
    rgba[...] = (255, 0, 0, 0)
    rgba[:, 32:] = (0, 0, 255, 255)
    got = load(png(rgba), size=(16, 15), channels="rgba")[0]
    seen = got[got[..., 3] > 0]
    assert (seen[:, :3] == (0, 0, 255)).all(), seen[(seen[:, :3] != (0, 0, 255)).any(-1)]


@tap.test
def crops_flips_and_views_of_rgba_equal_those_of_rgb():
    files = [png(noise(60, 80, 3)) for _ in range(8)]
    for options in (dict(crop="random", size=24), dict(crop="random", size=24, views=3), dict(crop="center", size=24),
                    dict(crop="random_crop", size=(64, 90), padding=4, padding_mode="reflect"),
                    dict(crop="random", size=24, vflip=0.5)):
        rgb = load(files, **options, hflip=0.5).astype(int)
        rgba = load(files, **options, hflip=0.5, channels="rgba").astype(int)
        assert abs(rgba[..., :3] - rgb).max() <= 1 and rgba.shape[-1] == 4
        planes = load(files, **{**options, "layout": "nchw"}, hflip=0.5, channels="rgba").astype(int)
        assert (numpy.moveaxis(planes, -3, -1) == rgba).all()


@tap.test
def padding_of_rgba_is_transparent():
    got = load(png(noise(20, 40, 3)), size=(40, 40), crop="letterbox", fill=114, channels="rgba")[0]
    assert (got[:10] == (114, 114, 114, 0)).all() and (got[30:] == (114, 114, 114, 0)).all() and (got[10:30, :, 3] == 255).all()
    got = load(png(noise(20, 40)), size=(40, 40), crop="letterbox", fill=114, channels="gray", dtype="u16")[0]
    assert (got[:10] == 114 * 257).all()
    got = load(png(noise(20, 40, 4)), size=(40, 40), crop="letterbox", padding_mode="edge", channels="rgba")[0]
    assert (got[:10] == got[10]).all()


@tap.test
def floats_of_all_channels_are_normalised():
    rgba = noise(H, W, 4, dtype=numpy.uint16)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2)
    got = load(png(rgba), channels="rgba", dtype="f32", mean=mean, std=std)[0]
    assert numpy.allclose(got, (rgba / 65535 - (*mean, 0)) / (*std, 1), atol=1e-6)
    half = load(png(rgba), channels="rgba", dtype="f16", mean=mean, std=std)[0]
    assert (half == got.astype("f2")).all()
    got = load(png(rgba[..., 0]), channels="gray", dtype="f32", mean=0.5, std=0.5)[0]
    assert numpy.allclose(got[..., 0], rgba[..., 0] / 65535 * 2 - 1, atol=1e-6)


@tap.test
def rgba_images_are_turned_by_their_exif_orientation():
    out = io.BytesIO()
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    PIL.Image.fromarray(noise(H, W, 4)).save(out, "png", exif=exif)
    options = dict(size=(W, H), orient=1)
    rgb, rgba = load(out.getvalue(), **options), load(out.getvalue(), **options, channels="rgba")
    assert (rgb == rgba[..., :3]).all() and (rgba != load(out.getvalue(), size=(W, H), channels="rgba")).any()


@tap.test
def fields_of_one_member_may_have_other_channels_and_be_mixed():
    files = [("%03d.png" % i, png(noise(60, 80, 4))) for i in range(8)]
    tap.make_tar("c.tar", files)
    image = dict(size=24, dtype="u8", layout="nhwc")
    fields = {"rgb": penstock.Image("png", **image), "deep": penstock.Image("png", follow="rgb", **{**image, "dtype": "u16"}),
              "rgba": penstock.Image("png", channels="rgba", follow="rgb", **image),
              "own": penstock.Image("png", channels="gray", **image)}
    for options in ({}, {"cutmix_alpha": 1}, {"mixup_alpha": 1}):
        batch = next(iter(penstock.Loader("c.tar", 8, fields, format="numpy", seed=5, **options)))
        rgb, deep, rgba = (numpy.array(batch[n]).astype(float) for n in ("rgb", "deep", "rgba"))
        # Colours of "rgba" are weighted by alpha and differ from "rgb": only "deep" is compared.
        assert abs(deep / 257 - rgb).max() <= 1.01, abs(deep / 257 - rgb).max()
        tap.equal((rgba.shape, batch["own"].shape), ((8, 24, 24, 4), (8, 24, 24, 1)))


@tap.test
def options_that_need_rgb_are_refused_with_a_reason():
    for options, words in ((dict(channels="rgba", jitter=1, hue=0.1), 'jitter needs channels="rgb"'),
                           (dict(dtype="u16", affine=1, degrees=9), 'affine needs channels="rgb"'),
                           (dict(channels="gray", blur=1), "blur needs channels"),
                           (dict(channels="gray", noise=1, noise_sigma=2), 'noise needs channels="rgb"'),
                           (dict(channels="gray", erase=1, dtype="f32"), "erase needs channels"),
                           (dict(channels="gray", gray=1), "gray needs channels"),
                           (dict(dtype="u16", mean=0.5), "u8 and u16 are not normalised"),
                           (dict(channels="cmyk"), "rgb"), (dict(dtype="i32"), "images are u8, u16, f32, f16")):
        try:
            load(png(noise(H, W, 3)), **options)
            raise AssertionError(options)
        except (ValueError, TypeError) as e:
            assert words in str(e), e
    fields = {"a": penstock.Image("png", affine=1, degrees=9), "b": penstock.Image("png", channels="gray", follow="a")}
    try:
        penstock.Loader("c.tar", 8, fields)
        raise AssertionError("a field that follows an affine was accepted")
    except ValueError as e:
        assert "follows field a, whose affine" in str(e), e


@tap.test
def a_state_of_other_channels_is_refused():
    tap.make_tar("c.tar", [("%03d.png" % i, png(noise(H, W, 3))) for i in range(8)])

    def made(**options):
        return penstock.Loader("c.tar", 2, {"x": penstock.Image("png", size=16, **options)}, format="numpy")

    load = made(channels="gray")
    next(iter(load))
    state = load.state_dict()
    made(channels="gray").load_state_dict(state)
    try:
        made().load_state_dict(state)
        raise AssertionError("a state of another form was accepted")
    except penstock.StateError as e:
        assert "other fields" in str(e), e


tap.main()
