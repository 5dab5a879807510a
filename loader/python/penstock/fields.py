"""What a batch holds: each field is read from the members of one suffix."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union


class Field:
    """A field of any kind, by the names of penstock.h: Field("jpg", "image", image_width=64, crop="center").

    name: the member's suffix; alternatives by ';', the first that a sample has counts: "jpg;jpeg".
    """

    def __init__(self, name: str, kind: str, **options: Any) -> None:
        self.name = name
        self.kind = kind
        self.options = {k: v for k, v in options.items() if v is not None}

    @property
    def channels_last(self) -> bool:
        """The memory is NHWC, the tensor's dimensions are NCHW: what torch calls channels_last."""
        return self.options.get("layout") == "channels_last"

    def as_dict(self, name: str) -> Dict[str, Any]:
        """What _penstock.Loader takes; `name`: what the field is called in a batch."""
        more: Dict[str, Any] = {"layout": "nhwc"} if self.channels_last else {}
        if name != self.name:
            more["member"] = self.name
        return {"name": name, "kind": self.kind, **self.options, **more}

    def __repr__(self) -> str:
        rest = "".join(", %s=%r" % item for item in self.options.items())
        return "penstock.Field(%r, %r%s)" % (self.name, self.kind, rest)


def Image(
    name: str = "jpg;jpeg",
    size: Union[int, Tuple[int, int]] = 224,
    *,
    crop: str = "random",
    scale: Tuple[float, float] = (0.08, 1.0),
    ratio: Tuple[float, float] = (3 / 4, 4 / 3),
    resize_shorter: Optional[int] = None,
    hflip: Optional[float] = None,
    interpolation: str = "bilinear",
    dtype: str = "f32",
    layout: str = "nchw",
    mean: Union[float, Sequence[float]] = (0.485, 0.456, 0.406),
    std: Union[float, Sequence[float]] = (0.229, 0.224, 0.225),
    **options: Any,
) -> Field:
    """An image, cropped, resized, flipped and normalised.

    size: of the result, one side or (height, width).
    crop: "random" (RandomResizedCrop of `scale` and `ratio`), "center" (the shorter side to `resize_shorter`,
          then the middle), "none" (the whole image, stretched).
    hflip: probability of a horizontal flip; by default 0.5 with a random crop, else 0.
    layout: "nchw", "nhwc", or "channels_last": NCHW to look at and NHWC in memory, as torch's convolutions like it.
    dtype: float types are (value / 255 - mean) / std; "u8" is left as it is.
    options: vflip, affine, jitter, gray, blur, noise and their ranges, views, follow, orient, ... as in penstock.h.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if hflip is None:
        hflip = 0.5 if crop == "random" else 0.0
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
        resize_shorter=resize_shorter,
        hflip=hflip,
        interpolation=interpolation,
        dtype=dtype,
        layout=layout,
        mean=mean,
        std=std,
        **options,
    )


def Mask(name: str = "seg.png", *, follow: Optional[str] = None, dtype: str = "i64", **options: Any) -> Field:
    """A label image that follows an image field (by default the first one): the same crop, resize and flips, each
    pixel one label."""
    return Field(name, "mask", follow=follow, dtype=dtype, **options)


def Boxes(
    name: str,
    *,
    follow: Optional[str] = None,
    box_format: str = "xyxy",
    pad_to: Union[None, int, str] = None,
    optional: bool = False,
    **options: Any,
) -> Field:
    """n x 4 floats, x0 y0 x1 y1 in pixels of the image field that they follow, from a .npy, a JSON value
    ("json:boxes") or text; box_format "xyxy", "xywh" (COCO) or "cxcywh" (YOLO); box_shares=1: given as shares of
    the sides."""
    return Field(
        name, "boxes", follow=follow, box_format=box_format, pad_to=_pad(pad_to), optional=int(optional), **options)


def Int(
    name: str = "cls", *, dtype: str = "i64", optional: bool = False, missing_value: int = -1, **options: Any
) -> Field:
    """A number in decimal digits, as in .cls files, or at a path of a JSON member: Int("json:meta.height").

    optional: a sample without it has `missing_value`.
    """
    return Field(name, "int64", dtype=dtype, optional=int(optional), missing_value=missing_value, **options)


def Float(name: str, *, dtype: str = "f32", optional: bool = False, **options: Any) -> Field:
    """A number as text, or at a path of a JSON member, rounded to `dtype`. optional: a sample without it has
    not-a-number."""
    return Field(name, "float", dtype=dtype, optional=int(optional), **options)


def Bytes(name: str, *, optional: bool = False, pad_to: Union[None, int, str] = None, **options: Any) -> Field:
    """Bytes as they are, of any length: Ragged, or with pad_to (a length, or "longest") a u8 tensor."""
    return Field(name, "bytes", optional=int(optional), pad_to=_pad(pad_to), **options)


def Text(name: str = "txt", *, optional: bool = False, **options: Any) -> Field:
    """UTF-8, handed out as str; also a string at a path of a JSON member: Text("json:caption")."""
    return Field(name, "text", optional=int(optional), **options)


def Array(
    name: str = "npy",
    shape: Sequence[int] = (0,),
    dtype: str = "f32",
    *,
    optional: bool = False,
    pad_to: Union[None, int, str] = None,
    **options: Any,
) -> Field:
    """A .npy member whose array has this shape. A first dimension of 0 is as long as each sample has it: Ragged,
    or with pad_to (items, or "longest") a padded tensor with NAME:mask and NAME:lengths beside it."""
    return Field(name, "npy", shape=tuple(shape), dtype=dtype, optional=int(optional), pad_to=_pad(pad_to), **options)


def Json(
    name: str = "json",
    *,
    dtype: str = "u8",
    shape: Optional[Sequence[int]] = None,
    optional: bool = False,
    pad_to: Union[None, int, str] = None,
    **options: Any,
) -> Field:
    """A checked JSON member as text, or what stands at a path: Json("json:boxes", dtype="f32", shape=(0, 4))."""
    return Field(
        name,
        "json",
        dtype=dtype,
        shape=None if shape is None else tuple(shape),
        optional=int(optional),
        pad_to=_pad(pad_to),
        **options,
    )


def Tokens(name: str, length: int, *, dtype: str = "i64", source_dtype: str = "u16", **options: Any) -> Field:
    """length + 1 tokens: NAME is the first `length` of them, NAME:y the last."""
    return Field(name, "tokens", shape=(length,), dtype=dtype, source_dtype=source_dtype, **options)


def _pad(pad_to: Union[None, int, str]) -> Optional[int]:
    if pad_to == "longest":
        return 0xFFFFFFFF  # PENSTOCK_PAD_LONGEST
    if pad_to is not None and not isinstance(pad_to, int):
        raise ValueError('pad_to: %r is neither a number nor "longest"' % (pad_to,))
    return pad_to
