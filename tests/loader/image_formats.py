#!/usr/bin/python3
"""Compares PNG, WebP, PGM, PPM and EXIF orientation with PIL, and parts of images with the whole; damaged files."""
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

import tap

try:
    from PIL import Image, ImageFile, ImageOps, __version__ as PIL_VERSION, features
except ImportError as e:
    print(f"1..0 # SKIP python3 has no PIL ({e}): pixels are not compared with it")
    sys.exit(0)

RAW = os.path.join(os.environ.get("top_builddir", "."), "tests/loader/image_raw")
FOLDER = tempfile.TemporaryDirectory()
WIDTH, HEIGHT = 61, 43


def run(*args, data=b""):
    return subprocess.run([RAW, *map(str, args)], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def path(name):
    return os.path.join(FOLDER.name, name)


def photo(seed=1, size=(WIDTH, HEIGHT)):
    rng = random.Random(seed)
    small = Image.frombytes("RGB", (9, 7), rng.randbytes(9 * 7 * 3))
    return small.resize(size, Image.BICUBIC)


def reads(*args):
    done = run(*args)
    assert done.returncode == 0, done.stderr.decode()
    header, rest = done.stdout.split(b"\n", 1)
    return tuple(map(int, header.split())), rest


def same(args, image, levels=0):
    size, rgb = reads(*args)
    tap.equal(size, image.size)
    worst = max(abs(a - b) for a, b in zip(rgb, image.tobytes()))
    assert len(rgb) == len(image.tobytes()) and worst <= levels, f"{args}: {worst} levels"


def lacks(format):
    """Whether this build was made without the format's library."""
    done = run("decode", path("probe." + format))
    return b"this build" in done.stderr


def probe(format):
    photo().save(path("probe." + format))
    if lacks(format):
        print(f"# no {format} in this build")
        return False
    return True


def write_png(name, width, height, depth, colour, rows, palette=b"", interlace=0):
    """Writes a PNG of any kind; PIL cannot write all kinds."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    with open(path(name), "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"") +
                chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b""))


@tap.test
def png_of_every_mode_is_what_pil_converts_to_rgb():
    if not probe("png"):
        return
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        image = photo().convert("RGBA").convert(mode) if mode != "P" else photo().quantize(17)
        image.save(path("a.png"))
        same(("decode", path("a.png")), image.convert("RGB"))


@tap.test
def png_of_1_2_4_and_16_bits_is_decoded():
    if not probe("png"):
        return
    rng = random.Random(3)
    for depth in (1, 2, 4):
        width = 37
        values = [[rng.randrange(1 << depth) for _ in range(width)] for _ in range(5)]
        rows = []
        for row in values:
            bits = "".join(format(v, "0%db" % depth) for v in row)
            bits += "0" * (-len(bits) % 8)
            rows.append(bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)))
        write_png("g.png", width, 5, depth, 0, rows)
        want = bytes(v * 255 // ((1 << depth) - 1) for row in values for v in row for _ in range(3))
        tap.equal(reads("decode", path("g.png")), ((width, 5), want))
        labels = b"".join(struct.pack("=H", v) for row in values for v in row)
        tap.equal(reads("labels", path("g.png")), ((width, 5), labels), "labels are the numbers as stored")
        write_png("p.png", width, 5, depth, 3, rows, palette=rng.randbytes(3 << depth))
        tap.equal(reads("labels", path("p.png")), ((width, 5), labels), "labels are places in the palette")
    deep = [[rng.randrange(65536) for _ in range(3 * 11)] for _ in range(4)]
    write_png("d.png", 11, 4, 16, 2, [struct.pack(">33H", *row) for row in deep])
    tap.equal(reads("decode", path("d.png"))[1], bytes(v >> 8 for row in deep for v in row))
    write_png("e.png", 33, 4, 16, 0, [struct.pack(">33H", *row) for row in deep])
    tap.equal(reads("labels", path("e.png"))[1], b"".join(struct.pack("=H", v) for row in deep for v in row))


def adam7(image):
    """Rows of the seven passes."""
    pixels, (width, height) = image.load(), image.size
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for y in range(y0, height, dy):
            row = b"".join(bytes(pixels[x, y]) for x in range(x0, width, dx))
            if row:
                yield row


@tap.test
def interlaced_png_equals_the_plain_one():
    if not probe("png"):
        return
    write_png("i.png", WIDTH, HEIGHT, 8, 2, adam7(photo()), interlace=1)
    same(("decode", path("i.png")), photo())
    same(("region", path("i.png"), 5, 9, 20, 30), photo().crop((5, 9, 25, 39)))


@tap.test
def webp_equals_what_pil_decodes():
    if not features.check("webp") or not probe("webp"):
        return
    for options in ({"lossless": True}, {"quality": 40}, {"quality": 90}):
        for mode in ("RGB", "RGBA"):
            photo().convert(mode).save(path("a.webp"), **options)
            same(("decode", path("a.webp")), Image.open(path("a.webp")).convert("RGB"))
    for options in ({"lossless": True}, {"quality": 90}):
        photo().save(path("m.webp"), save_all=True, append_images=[photo(2)], duration=100, **options)
        same(("decode", path("m.webp")), Image.open(path("m.webp")).convert("RGB"))  # the first frame
        same(("region", path("m.webp"), 5, 9, 20, 30), Image.open(path("m.webp")).convert("RGB").crop((5, 9, 25, 39)))


@tap.test
def pgm_and_ppm_of_any_depth_are_decoded():
    for mode in ("L", "RGB"):
        photo().convert(mode).save(path("a.ppm"))
        same(("decode", path("a.ppm")), photo().convert(mode).convert("RGB"))
    with open(path("b.pgm"), "wb") as f:
        f.write(b"P5 # comment\n3\t1 # and another\n\n1000\n" + struct.pack(">3H", 0, 500, 1000))
    tap.equal(reads("decode", path("b.pgm")), ((3, 1), bytes((0,) * 3 + (128,) * 3 + (255,) * 3)))
    tap.equal(reads("labels", path("b.pgm")), ((3, 1), struct.pack("=3H", 0, 500, 1000)))
    for bad in (b"P6 1 1 255\n\0\0", b"P5 0 4 255\n", b"P5 1 1 65536\n\0\0", b"P3 1 1 255\n1 1 1", b"P6 99999999 1 255\n", b"P6 4"):
        with open(path("bad.ppm"), "wb") as f:
            f.write(bad)
        done = run("decode", path("bad.ppm"))
        assert done.returncode == 1 and done.stderr.startswith(b"image_raw: PNM: "), (bad, done)


@tap.test
def regions_equal_those_of_the_whole_image():
    rng = random.Random(5)
    for name, options in (("a.png", {}), ("a.ppm", {}), ("a.webp", {"quality": 60}), ("b.webp", {"lossless": True}),
                          ("a.jpg", {"quality": 80}), ("b.jpg", {"quality": 80, "progressive": True})):
        if name.split(".")[1] in ("png", "webp") and not probe(name.split(".")[1]):
            continue
        photo().save(path(name), **options)
        whole = Image.frombytes("RGB", (WIDTH, HEIGHT), reads("decode", path(name))[1])
        for _ in range(25):
            w, h = rng.randint(1, WIDTH), rng.randint(1, HEIGHT)
            x, y = rng.randint(0, WIDTH - w), rng.randint(0, HEIGHT - h)
            same(("region", path(name), x, y, w, h), whole.crop((x, y, x + w, y + h)))


@tap.test
def images_are_turned_by_their_exif_orientation():
    for name in ("a.jpg", "a.png", "a.webp"):
        if name != "a.jpg" and not probe(name[2:]):
            continue
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            photo().save(path(name), exif=exif, quality=95, lossless=True)
            upright = ImageOps.exif_transpose(Image.open(path(name))).convert("RGB")
            same(("upright", path(name)), upright, 0 if name != "a.jpg" else 1)
            whole = Image.frombytes("RGB", upright.size, reads("upright", path(name))[1])
            w, h = upright.size
            for box in ((0, 0, 7, 11), (w - 9, 2, w, h), (3, h - 5, w - 3, h), (11, 13, 12, 14)):
                same(("region", path(name), box[0], box[1], box[2] - box[0], box[3] - box[1]), whole.crop(box))


XMP = ('<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
       'tiff:Orientation="%d"/></rdf:RDF></x:xmpmeta>')
XMP_ELEMENT = "<x:xmpmeta><tiff:Orientation>%d</tiff:Orientation></x:xmpmeta>"


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def with_png_chunks(data, chunks, last=False):
    """A PNG with more chunks: before the pixels, or with `last` after them."""
    at = data.index(b"IEND" if last else b"IDAT") - 4
    new = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return data[:at] + new + data[at:]


def raw_profile(exif):
    """As ImageMagick writes it."""
    digits = exif.hex()
    return ("\nexif\n%8d\n" % len(exif) + "\n".join(digits[i:i + 72] for i in range(0, len(digits), 72)) + "\n").encode()


def xmp_text(xmp, packed=False):
    return b"XML:com.adobe.xmp\0" + bytes((packed, 0)) + b"\0\0" + (zlib.compress(xmp.encode()) if packed else xmp.encode())


@tap.test
def png_is_turned_by_xmp_and_by_a_raw_exif_profile_as_pil_does():
    if not probe("png"):
        return
    photo().save(path("plain.png"))
    plain = open(path("plain.png"), "rb").read()
    turned = 0
    for o in range(0, 10):
        if 1 <= o <= 8:
            profile = raw_profile(exif_of(o))
        for name, chunks in (
                ("xmp", [(b"iTXt", xmp_text(XMP % o))]), ("element", [(b"iTXt", xmp_text(XMP_ELEMENT % o))]),
                ("compressed", [(b"iTXt", xmp_text(XMP % o, True))]), ("raw", [(b"tEXt", b"Raw profile type exif\0" + profile)] if o else []),
                ("zTXt", [(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile))] if o else []),
                ("raw before xmp", [(b"iTXt", xmp_text(XMP % 3)), (b"tEXt", b"Raw profile type exif\0" + profile)] if o else []),
                ("eXIf before raw", [(b"tEXt", b"Raw profile type exif\0" + raw_profile(exif_of(6))), (b"eXIf", exif_of(max(1, min(o, 8)))[6:])]),
                ("last counts", [(b"iTXt", xmp_text(XMP % 3)), (b"iTXt", xmp_text(XMP % o))])):
            for last in (False, True):
                with open(path("x.png"), "wb") as f:
                    f.write(with_png_chunks(plain, chunks, last))
                want = ImageOps.exif_transpose(Image.open(path("x.png")))
                turned += want.tobytes() != photo().tobytes()
                tap.equal(reads("upright", path("x.png")), (want.size, want.tobytes()), "%s, orientation %d" % (name, o))
    assert turned > 100, turned  # PIL saw them


@tap.test
def jpeg_and_webp_are_turned_by_xmp():
    """As Pillow 11 does; older ones see XMP in PNG only. EXIF goes before XMP."""
    for name in ("a.jpg", "a.webp"):
        if name != "a.jpg" and not probe(name[2:]):
            continue
        for o in range(1, 9):
            photo().save(path("exif." + name), exif=exif_of(o), quality=95, lossless=True)
            photo().save(path("both." + name), exif=exif_of(o), quality=95, lossless=True, xmp=(XMP % 3).encode())
            photo().save(path(name), quality=95, lossless=True, xmp=(XMP % o).encode())
            if name == "a.jpg":  # older ones cannot write it
                for each in ("both.a.jpg", "a.jpg"):
                    data, body = open(path(each), "rb").read(), b"http://ns.adobe.com/xap/1.0/\0" + (XMP % (3 if each != name else o)).encode()
                    with open(path(each), "wb") as f:
                        f.write(data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:])
            want = reads("upright", path("exif." + name))
            tap.equal(reads("upright", path(name)), want, "XMP of orientation %d" % o)
            tap.equal(reads("upright", path("both." + name)), want, "EXIF goes first")
            if int(PIL_VERSION.split(".")[0]) >= 11:
                tap.equal(want[0], ImageOps.exif_transpose(Image.open(path(name))).size)


@tap.test
def damaged_texts_turn_nothing():
    if not probe("png"):
        return
    photo().save(path("plain.png"))
    plain = open(path("plain.png"), "rb").read()
    for kind, text in ((b"tEXt", b"Raw profile type exif\0"), (b"tEXt", b"Raw profile type exif\0\nexif\n"),
                       (b"tEXt", b"Raw profile type exif\0\nexif\n 4\nzz\n"), (b"zTXt", b"Raw profile type exif\0\0damage"),
                       (b"iTXt", b"XML:com.adobe.xmp\0"), (b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0damage"),
                       (b"iTXt", xmp_text('tiff:Orientation="')), (b"iTXt", xmp_text("tiff:Orientation=6")),
                       (b"iTXt", xmp_text("tiff:Orientation"))):
        with open(path("x.png"), "wb") as f:
            f.write(with_png_chunks(plain, [(kind, text)]))
        tap.equal(reads("upright", path("x.png")), reads("decode", path("plain.png")), "%r %r" % (kind, text))


@tap.test
def damaged_exif_is_ignored():
    photo().save(path("plain.jpg"))
    plain = open(path("plain.jpg"), "rb").read()
    for tiff in (b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x09\0\0",
                 b"II*\0\x08\0\0\0\xff\xff", b"XX*\0\x08\0\0\0"):
        body = b"Exif\0\0" + tiff
        with open(path("x.jpg"), "wb") as f:
            f.write(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:])
        tap.equal(reads("upright", path("x.jpg")), reads("decode", path("plain.jpg")))


@tap.test
def truncated_files_are_refused():
    rng = random.Random(8)
    for name in ("a.jpg", "a.png", "a.webp", "a.ppm"):
        if name[2:] in ("png", "webp") and not probe(name[2:]):
            continue
        photo().save(path(name))
        data = open(path(name), "rb").read()
        for n in [1, 3, 11, 13, len(data) - 1] + [rng.randrange(len(data)) for _ in range(30)]:
            with open(path("t"), "wb") as f:
                f.write(data[:n])
            done = run("decode", path("t"))
            assert done.returncode == 1 and done.stderr.count(b"\n") == 1, (name, n, done.returncode, done.stderr)


def truncated_as_pil(data, levels=0):
    """Compares a file without its end with Pillow's pixels for it. Returns whether it was decoded."""
    with open(path("t"), "wb") as f:
        f.write(data)
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        image = Image.open(path("t"))
        image.load()
    except (OSError, SyntaxError, ValueError, struct.error) as e:
        done = run("truncated", path("t"))
        assert done.returncode == 1, "Pillow cannot read %d bytes (%s), and penstock can" % (len(data), e)
        return False
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    same(("truncated", path("t")), image.convert("RGB"), levels)
    w, h = image.size
    same(("truncated-region", path("t"), 5, h // 2, w - 9, h - h // 2), image.convert("RGB").crop((5, h // 2, w - 4, h)), levels)
    if image.format == "PNG" and image.mode != "I;16":
        wide = reads("truncated-rgba", path("t"))[1]
        tap.equal(wide[::2], image.convert("RGBA").tobytes())
    return True


def cuts(rng, data, n):
    """Lengths of files that lack something: an end, most of the pixels, and a few at random."""
    return sorted({len(data) - 1, len(data) - 2, len(data) - 12, len(data) - 13, *(rng.randrange(1, len(data)) for _ in range(n))})


@tap.test
def truncated_jpegs_are_decoded_as_pil_does():
    rng = random.Random(10)
    same_library = features.version("libjpeg_turbo") == run("version").stdout.decode().strip()
    levels = 0 if same_library else 1
    decoded = 0
    for mode in ("RGB", "L", "CMYK"):
        for options in ({"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"subsampling": 2, "progressive": True},
                        {"restart_marker_rows": 1}):
            if options.get("progressive") and not same_library:
                continue  # the libraries smooth unfinished files in different ways
            photo(size=(150, 130)).convert(mode).save(path("a.jpg"), quality=85, **options)
            data = open(path("a.jpg"), "rb").read()
            decoded += sum(truncated_as_pil(data[:n], levels) for n in cuts(rng, data, 20))
            same(("truncated", path("a.jpg")), Image.open(path("a.jpg")).convert("RGB"), levels)  # a complete file
    assert decoded > (200 if same_library else 100), decoded


@tap.test
def truncated_pngs_are_decoded_as_pil_does():
    if not probe("png"):
        return
    rng = random.Random(11)
    decoded = 0
    for mode, options in (("1", {}), ("L", {}), ("LA", {}), ("P", {}), ("P", {"transparency": 0}), ("RGB", {}), ("RGBA", {}),
                          ("RGB", {"transparency": (0, 0, 0)}), ("RGB", {"transparency": (1, 2, 3)}), ("L", {"transparency": 0})):
        image = photo().convert("RGBA").convert(mode) if mode != "P" else photo().quantize(17)
        image.save(path("a.png"), **options)
        data = open(path("a.png"), "rb").read()
        decoded += sum(truncated_as_pil(data[:n]) for n in cuts(rng, data, 15))
        same(("truncated", path("a.png")), Image.open(path("a.png")).convert("RGB"))  # a complete file
    write_png("i.png", WIDTH, HEIGHT, 8, 2, adam7(photo()), interlace=1)
    data = open(path("i.png"), "rb").read()
    decoded += sum(truncated_as_pil(data[:n]) for n in cuts(rng, data, 30))
    write_png("short.png", 20, 9, 8, 2, [bytes(range(60))] * 5)  # fewer rows than the header says, and an end
    decoded += truncated_as_pil(open(path("short.png"), "rb").read())
    assert decoded > 120, decoded


@tap.test
def truncated_files_of_other_formats_are_refused_as_always():
    photo().save(path("a.ppm"))
    files = [("a.ppm", open(path("a.ppm"), "rb").read())]
    if probe("webp"):
        photo().save(path("a.webp"))
        files.append(("a.webp", open(path("a.webp"), "rb").read()))
    for name, data in files:
        for n in (len(data) // 2, len(data) - 3):
            with open(path("t"), "wb") as f:
                f.write(data[:n])
            done = run("truncated", path("t"))
            assert done.returncode == 1 and b"truncated" in done.stderr, (name, done.stderr)


@tap.test
def damage_in_the_middle_is_refused_also_where_truncation_is_allowed():
    photo(size=(200, 150)).save(path("a.jpg"), quality=85)
    data = open(path("a.jpg"), "rb").read()
    middle = len(data) // 2
    for bad in (data[:middle] + data[middle + 500:], data[:middle] + b"\xff\xd0" + data[middle:]):
        with open(path("t"), "wb") as f:
            f.write(bad)
        done = run("truncated", path("t"))
        assert done.returncode == 1 and b"JPEG: " in done.stderr, done.stderr


@tap.test
def damaged_bytes_never_crash():
    rng = random.Random(9)
    for name in ("a.jpg", "a.png", "a.webp", "a.ppm"):
        if name[2:] in ("png", "webp") and not probe(name[2:]):
            continue
        photo().save(path(name))
        data = bytearray(open(path(name), "rb").read())
        for _ in range(40):
            bad = bytearray(data)
            for _ in range(rng.randint(1, 6)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            with open(path("t"), "wb") as f:
                f.write(bad)
            for mode in ("decode", "upright", "labels"):
                assert run(mode, path("t")).returncode in (0, 1)


@tap.test
def an_unknown_format_is_reported_with_its_first_bytes():
    with open(path("t"), "wb") as f:
        f.write(b"GIF8xx" + bytes(20))
    done = run("decode", path("t"))
    assert done.returncode == 1 and b"unknown format (first bytes 47 49 46 38)" in done.stderr, done.stderr


@tap.test
def another_format_is_named():
    picture = Image.new("RGB", (5, 4))
    for name, want in (("TIFF", "a TIFF image"), ("BMP", "a BMP image"), ("GIF", "a GIF image"), ("TGA", "a TGA image"), ("ICO", "an icon"),
                       ("JPEG2000", "a JPEG 2000 image"), ("DDS", "a DDS image")):
        picture.save(path("t"), name)
        done = run("decode", path("t"))
        assert done.returncode == 1 and ("image: %s" % want).encode() in done.stderr and b'decode={"' in done.stderr, done.stderr


if __name__ == "__main__":
    tap.main()
