"""The fields of a batch: each is read from the members of one suffix."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence, Tuple, Union

from .errors import ConfigError
from .keywords import OF_FIELD, PAIRS, keywords

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keywords import (ArrayOptions, BoxesOptions, BytesOptions, FloatOptions, ImageOptions)
    from ._keywords import (IntOptions, JsonOptions, MaskOptions, OutputOptions, TextOptions, TokensOptions)


_DTYPES = {"half": "f16", "float": "f32", "double": "f64", "int": "i64", "long": "i64", "short": "i16", "byte": "u8", "bool_": "bool"}


def _dtype(dtype: Any) -> Any:
    """A dtype of NumPy, torch, JAX or Python, or its name, as libpenstock's word: float16 as f16."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    match = re.fullmatch(r"(u?int|float|bfloat)(8|16|32|64)", name)
    if match:
        return {"uint": "u", "int": "i", "float": "f", "bfloat": "bf"}[match[1]] + match[2]
    return _DTYPES.get(name, name)


class Field:
    """A field of any kind, with the names of penstock.h: Field("jpg", "image", image_width=64, crop="center").

    name: the member's suffix; alternatives separated by ';', of which the first that a sample has is taken: "jpg;jpeg".
    """

    def __init__(self, name: str, kind: str, **options: Any) -> None:
        self.name = name
        self.kind = kind
        self.options = {k: _dtype(v) if k in ("dtype", "source_dtype") else v for k, v in options.items() if v is not None}
        self.inferred = False  # the shape is taken from the first sample

    def with_shape(self, shape: Sequence[int]) -> "Field":
        return Field(self.name, self.kind, **{**self.options, "shape": tuple(shape)})

    @property
    def channels_last(self) -> bool:
        """True if the memory is NHWC and the tensor's dimensions are NCHW, as torch's channels_last."""
        return self.options.get("layout") == "channels_last"

    def as_dict(self, name: str) -> Dict[str, Any]:
        """The field as a dict for _penstock.Loader; `name`: the field's name in a batch."""
        more: Dict[str, Any] = {"layout": "nhwc"} if self.channels_last else {}
        if name != self.name and self.kind != "output":
            more["member"] = self.name
        return {"name": name, "kind": self.kind, **self.options, **more}

    def __repr__(self) -> str:
        rest = "".join(", %s=%r" % item for item in self.options.items())
        return "penstock.Field(%r, %r%s)" % (self.name, self.kind, rest)


@keywords(OF_FIELD, "image", lines=False)
def Image(
    name: str = "jpg;jpeg",
    size: Union[int, Tuple[int, int]] = 224,
    *,
    crop: str = "random",
    scale: Tuple[float, float] = (0.08, 1.0),
    ratio: Tuple[float, float] = (3 / 4, 4 / 3),
    resize: Union[None, int, Tuple[int, int]] = None,
    padding: Union[int, Tuple[int, int]] = 0,
    hflip: Optional[float] = None,
    interpolation: str = "bilinear",
    dtype: Any = "f32",
    layout: str = "nchw",
    mean: Union[float, Sequence[float]] = (0.485, 0.456, 0.406),
    std: Union[float, Sequence[float]] = (0.229, 0.224, 0.225),
    **more_options: Unpack[ImageOptions],
) -> Field:
    """An image, cropped, resized, flipped and normalised.

    size: size of the result: (height, width), or one number for both.
    crop: "random" (RandomResizedCrop with `scale` and `ratio`), "center" (resized, then the middle), "random_crop"
          (RandomCrop: resized if `resize` is given, then a random part), "none" (the complete image, stretched),
          "letterbox" (the complete image with its aspect ratio, as large as fits, centred in padding).
    resize: the size before "center" or "random_crop": (height, width), or a number for the shorter side.
          By default "center" uses 8/7 of the size.
    padding: with "random_crop", pixels added on each side, or (left and right, top and bottom). Images that are too
          small get more. padding_mode="constant" (level `fill`), "edge", "reflect" or "symmetric", also for "letterbox".
    hflip: probability of a horizontal flip; by default 0.5 with a random crop, otherwise 0.
    layout: "nchw", "nhwc", or "channels_last": NCHW dimensions with NHWC memory, the fastest form for torch's convolutions.
    interpolation: how images are resized: "bilinear" or "bicubic", antialiased.
    dtype: float types are (value / 255 - mean) / std; "u8" and "u16" are not normalised ("u16": 0 to 65535).
    channels: "rgb", "rgba" or "gray". Pictures with channels other than "rgb", or of dtype "u16", are resized in 16
          bits, so that 16-bit PNGs keep their values; affine and the operations after it need "rgb" in 8 bits.
    mean, std: mean and standard deviation of the channels, one number or three, for values from 0 to 1; std 0.000001 to
          1000000.
    max_pixels: an image with more pixels is a bad sample, and so is one that needs more than 8 bytes of memory per
          pixel, or 256 MiB if that is more; by default 2^27.
    follow: the name of an earlier image field, whose crop, flips and affine map this field shares.

    More options. Each operation has a probability, 0 to 1, by default 0. An option that describes an operation is refused
    without the operation's probability, because it would have no effect. (min, max) means that a value is drawn from this
    range for each picture. A number or pair after the last semicolon of a line is the default. The operations are applied
    in this order.

    views               pictures made from one decoded image, 1 to 64, each with its own random choices, in an
                        additional dimension; 0: one picture, without that dimension
    orient              1: rotated as EXIF or XMP says, as by Pillow's exif_transpose; 0
    dct_scale           1: large JPEGs are decoded at 1/2, 1/4, 1/8 if that is enough: faster, but other pixels; 0
    scale, ratio        share of the area, above 0 to 1, and width / height, 0.001 to 1000
    resize              pixels, 1 to 16384
    padding             pixels, 0 to less than the size
    padding_mode        "constant", "edge", "reflect", "symmetric"
    channels            "rgb", "rgba", "gray"
    fill                level of pixels outside the image (affine, constant padding), 0 to 255; 0
    hflip, vflip        probability
    affine              probability of a map of all these:
      degrees           maximum rotation each way, 0 to 180 degrees
      translate_x, translate_y  maximum shift each way, as a share of the side, 0 to 1
      zoom              zoom factor (min, max), 0.01 to 100; (1, 1)
      shear_x, shear_y  maximum shear each way, 0 to 80 degrees
    jitter              probability of a change of colours by all these:
      brightness, contrast, saturation  a factor from max(0, 1 - x) to 1 + x, x 0 to 7
      hue               maximum hue shift each way, as a share of the circle, 0 to 0.5
      jitter_order      "fixed" (as above), or "random", as in torchvision's ColorJitter
    gray                probability of conversion to gray
    blur                probability of a Gaussian blur:
      blur_sigma        pixels, (min, max), 0.01 to 100; (0.1, 2)
      blur_size         size of the kernel along each axis, odd, 1 to 255 and less than twice the size, or (min, max);
                        a tenth of the width
    noise               probability of Gaussian noise:
      noise_sigma       standard deviation of the noise in levels, 0 to 255, or (min, max): Albumentations'
                        GaussNoise(std_range), times 255
    erase               probability of erasing a rectangle:
      erase_scale       the rectangle's share of the picture, (min, max), above 0 to 1; (0.02, 0.33)
      erase_ratio       the rectangle's height / width, (min, max), 0.001 to 1000; (0.3, 3.3)
      erase_fill        "mean" (of the field: 0 when normalised), "random" (noise of its mean and std), a level or (r, g, b)
    groups              operations that share a probability: [RandomApply(...), OneOf(...)]
    truncated           "refuse": an image file that lacks its end is a bad sample; "allow": JPEG and PNG files are decoded
                        as far as they reach, as by Pillow with LOAD_TRUNCATED_IMAGES; stats()["truncated"] counts them
    hidden              1: the field is only for Loader(map=), and not part of batches; 0
    """
    options: Dict[str, Any] = dict(more_options)
    height, width = (size, size) if isinstance(size, int) else size
    if hflip is None and not options.get("follow"):
        hflip = 0.5 if crop in ("random", "random_crop") else 0.0
    if isinstance(resize, int):
        options["resize_shorter"] = resize
    elif resize is not None:
        options["resize_height"], options["resize_width"] = resize
    if padding:
        options["padding_x"], options["padding_y"] = (padding, padding) if isinstance(padding, int) else padding
    _ranges(options)
    return Field(
        name,
        "image",
        image_height=height,
        image_width=width,
        crop=crop,
        scale_min=scale[0],
        scale_max=scale[1],
        ratio_min=ratio[0],
        ratio_max=ratio[1],
        hflip=hflip,
        interpolation=interpolation,
        dtype=dtype,
        layout=layout,
        mean=mean,
        std=std,
        **options,
    )


def RandomApply(operations: Sequence[str], p: float = 0.5) -> str:
    """A group for Image(groups=). With probability p, each operation is applied with its own probability; otherwise
    none is: Image(jitter=1, gray=0.2, groups=[RandomApply(["jitter", "gray"], 0.8)]). Each of these operations can be in at
    most one group: hflip, vflip, affine, jitter, gray, blur, noise, erase."""
    return _group("apply", operations, p)


def OneOf(operations: Sequence[str], p: float = 0.5) -> str:
    """A group for Image(groups=). With probability p one operation is applied, chosen in proportion to their own
    probabilities: Image(blur=1, noise=2 / 3, groups=[OneOf(["blur", "noise"], 0.5)])."""
    return _group("one", operations, p)


def _group(kind: str, operations: Sequence[str], p: float) -> str:
    if isinstance(operations, str) or not 0 <= p <= 1:
        raise ConfigError("a group: a list of names and a probability are needed, not %r, %r" % (operations, p))
    return "%s:%.12f=%s" % (kind, p, ",".join(operations))


def _ranges(options: Dict[str, Any]) -> None:
    """Replaces pairs, levels and groups by the options that they stand for."""
    for name, (low, high) in PAIRS.items():
        value = options.get(name)
        if isinstance(value, (tuple, list)):
            options.pop(name)
            options[low], options[high] = value
        elif value is not None and low != name:
            options.pop(name)
            options[low] = options[high] = value
    fill = options.get("erase_fill")
    if fill is not None and not isinstance(fill, str):
        r, g, b = (fill, fill, fill) if isinstance(fill, int) else fill
        if not all(0 <= level <= 255 for level in (r, g, b)):
            raise ConfigError("erase_fill: levels are 0 to 255, not %r" % (fill,))
        options.update(erase_fill="levels", erase_levels=r << 16 | g << 8 | b)
    groups = options.get("groups")
    if groups is not None and not isinstance(groups, str):
        options["groups"] = ";".join(groups)


@keywords(OF_FIELD, "mask")
def Mask(
    name: str = "seg.png", *, follow: Optional[str] = None, dtype: Any = "i64", **options: Unpack[MaskOptions],
) -> Field:
    """A label image that follows an image field (by default the first one): it gets the same crop, resize and flips,
    and each pixel is one label."""
    return Field(name, "mask", follow=follow, dtype=dtype, **options)


@keywords(OF_FIELD, "boxes")
def Boxes(
    name: str,
    *,
    follow: Optional[str] = None,
    box_format: str = "xyxy",
    pad_to: Union[None, int, str] = None,
    optional: bool = False,
    **options: Unpack[BoxesOptions],
) -> Field:
    """Boxes as n x 4 floats, x0 y0 x1 y1 in pixels of the image field that they follow. They are read from a .npy, a JSON
    value ("json:boxes") or text. box_format: "xyxy", "xywh" (COCO) or "cxcywh" (YOLO). box_shares=1: the coordinates are
    shares of the image's sides.

    min_area, min_visible: boxes with less than min_area square pixels in the picture are dropped, and boxes with less than
    min_visible (0 to 1) of their area in it. With either of them, boxes without area are dropped, too. A field with one
    item for each box names the boxes, and drops the items of the same boxes: Json("json:labels", shape=(0,), dtype="i64",
    follow="boxes")."""
    return Field(
        name, "boxes", follow=follow, box_format=box_format, pad_to=_pad(pad_to), optional=int(optional), **options)


@keywords(OF_FIELD, "int64")
def Int(
    name: str = "cls", *, dtype: Any = "i64", optional: bool = False, missing_value: int = -1,
    **options: Unpack[IntOptions],
) -> Field:
    """An integer in decimal digits, as in .cls files, or at a path in a JSON member: Int("json:meta.height").

    optional: a sample without the number gets `missing_value`.
    """
    return Field(name, "int64", dtype=dtype, optional=int(optional), missing_value=missing_value, **options)


@keywords(OF_FIELD, "float")
def Float(name: str, *, dtype: Any = "f32", optional: bool = False, **options: Unpack[FloatOptions]) -> Field:
    """A number as text, or at a path in a JSON member, rounded to `dtype`. optional: a sample without the number
    gets NaN."""
    return Field(name, "float", dtype=dtype, optional=int(optional), **options)


@keywords(OF_FIELD, "bytes")
def Bytes(
    name: str, *, optional: bool = False, pad_to: Union[None, int, str] = None, **options: Unpack[BytesOptions],
) -> Field:
    """The bytes of the member, of any length: Ragged, or with pad_to (a length, or "longest") a u8 tensor."""
    return Field(name, "bytes", optional=int(optional), pad_to=_pad(pad_to), **options)


@keywords(OF_FIELD, "text")
def Text(name: str = "txt", *, optional: bool = False, **options: Unpack[TextOptions]) -> Field:
    """UTF-8 text, returned as str; or a string at a path in a JSON member: Text("json:caption")."""
    return Field(name, "text", optional=int(optional), **options)


_OF_RAGGED = ("max_bytes", "overflow", "add_offset_of", "pad_multiple", "pad_value")


@keywords(OF_FIELD, "npy")
def Array(
    name: str = "npy",
    shape: Optional[Sequence[int]] = None,
    dtype: Any = "f32",
    *,
    optional: bool = False,
    pad_to: Union[None, int, str] = None,
    **options: Unpack[ArrayOptions],
) -> Field:
    """A .npy member whose array has this shape. A first dimension of 0 stands for a length that differs from sample to
    sample: the field is Ragged, or with pad_to (items, or "longest") a padded tensor with NAME:mask and NAME:lengths. By
    default the shape is that of the first good sample of the first shard, on all ranks, and is stored in the state; if
    pad_to, max_bytes or another option of ragged rows is given, it is (0,)."""
    ragged = pad_to is not None or any(name in options for name in _OF_RAGGED)
    field = Field(name, "npy", shape=(0,) if shape is None else tuple(shape), dtype=dtype, optional=int(optional),
                  pad_to=_pad(pad_to), **options)
    field.inferred = shape is None and not ragged
    return field


@keywords(OF_FIELD, "json")
def Json(
    name: str = "json",
    *,
    dtype: Any = "u8",
    shape: Optional[Sequence[int]] = None,
    optional: bool = False,
    pad_to: Union[None, int, str] = None,
    **options: Unpack[JsonOptions],
) -> Field:
    """A checked JSON member as text, or the value at a path: Json("json:boxes", dtype="f32", shape=(0, 4))."""
    return Field(
        name,
        "json",
        dtype=dtype,
        shape=None if shape is None else tuple(shape),
        optional=int(optional),
        pad_to=_pad(pad_to),
        **options,
    )


@keywords(OF_FIELD, "tokens")
def Tokens(
    name: Optional[str] = None,
    length: Optional[int] = None,
    *,
    dtype: Any = "i64",
    source_dtype: Any = None,
    pack: str = "none",
    parts: Union[str, Sequence[str]] = (),
    long_documents: Optional[str] = None,
    end_token: Optional[int] = None,
    vocab: Optional[int] = None,
    cu_pad: Optional[int] = None,
    **options: Unpack[TokensOptions],
) -> Field:
    """Rows of `length` tokens, and in NAME:y the token after each.

    name: the member in tar shards. Files of tokens (.bin, .ds, .npy) have none.
    source_dtype: the type of raw tokens. By default it is that of the .idx beside a .bin (Megatron's format) or of the
          header of a .npy; without these "u16", or with `pack` an error.
    pack: how the documents of token files become rows. "none": windows of length + 1 tokens, whatever documents there
          are. "concat": shuffled documents one after the other, cut into full rows. "fit": documents are placed where they
          fit, so that few are cut, and about 0.1 % of a row is padding. "whole": no document is cut that fits in a row.
    parts: further tensors of packed rows: "positions" (i32, from 0 in each part), "segments" (i32, the number of the part
          in its row, from 1; 0: padding), "mask" (u8, 0 where y is not a token of the same document), "cu" (i32, where
          the parts begin in the batch, as flash-attention takes it, with the int NAME:longest) and "document" (i64, the
          number of each part's document in its file; -1: padding).
    long_documents: with "whole", what happens to a document of more than `length` tokens: "split", "truncate", "drop".
    end_token: the token at the end of each document, for files without an index of their documents.
    vocab: a row with a token of this or more is a bad sample.
    cu_pad: the number of parts in each batch's cu, for CUDA graphs; a batch with more is an error.
    """
    if length is None:
        raise TypeError("Tokens() needs length=, the tokens of a row")
    names = parts if isinstance(parts, str) else ",".join(parts)
    return Field(name or "tokens", "tokens", shape=(length,), dtype=dtype, source_dtype=source_dtype,
                 pack=None if pack == "none" else pack, parts=names or None, long_documents=long_documents,
                 end_token=end_token, vocab=vocab, cu_pad=cu_pad, **options)


@keywords(OF_FIELD, "output")
def Output(
    shape: Sequence[int] = (),
    dtype: Any = "f32",
    *,
    max_bytes: Optional[int] = None,
    pad_to: Union[None, int, str] = None,
    **options: Unpack[OutputOptions],
) -> Field:
    """The shape and dtype of a value that a map returns, in Loader(outputs={"name": Output((512,))}). A first
    dimension of 0 has the length that each sample has, up to max_bytes: Ragged, or with pad_to padded, as an
    Array."""
    return Field("", "output", shape=tuple(shape) or None, dtype=dtype, max_bytes=max_bytes, pad_to=_pad(pad_to), **options)


def _pad(pad_to: Union[None, int, str]) -> Optional[int]:
    if pad_to == "longest":
        return 0xFFFFFFFF  # PENSTOCK_PAD_LONGEST
    if pad_to is not None and not isinstance(pad_to, int):
        raise ConfigError('pad_to: %r is neither a number nor "longest"' % (pad_to,))
    return pad_to


KINDS: Dict[str, Callable[..., Field]] = {
    "image": Image, "mask": Mask, "boxes": Boxes, "int64": Int, "float": Float, "bytes": Bytes, "text": Text,
    "npy": Array, "json": Json, "tokens": Tokens, "output": Output}
