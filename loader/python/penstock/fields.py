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

    def as_dict(self) -> Dict[str, Any]:
        return {"name": self.name, "kind": self.kind, **self.options}

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
    dtype: float types are (value / 255 - mean) / std; "u8" is left as it is.
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


def Int(name: str = "cls", *, optional: bool = False, missing_value: int = -1, **options: Any) -> Field:
    """An integer in decimal digits, as in .cls files. optional: a sample without it has `missing_value`."""
    return Field(name, "int64", optional=int(optional), missing_value=missing_value, **options)


def Bytes(name: str, *, optional: bool = False, **options: Any) -> Field:
    """Bytes as they are, of any length."""
    return Field(name, "bytes", optional=int(optional), **options)


def Text(name: str = "txt", *, optional: bool = False, **options: Any) -> Field:
    """UTF-8, handed out as str."""
    return Field(name, "text", optional=int(optional), **options)
