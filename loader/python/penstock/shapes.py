"""Shapes of arrays that the caller left out: those of the first sound sample of the list's first shard."""
from __future__ import annotations

import ast
import struct
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _penstock
from .fields import Field

Shape = Tuple[int, ...]

_SIZES = {"b1": 1, "u1": 1, "i1": 1, "u2": 2, "i2": 2, "f2": 2, "u4": 4, "i4": 4, "f4": 4, "u8": 8, "i8": 8, "f8": 8}


def _of_npy(data: bytes) -> Optional[Shape]:
    """The shape of a sound .npy file of numbers; None: the bytes are not such a file."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return None
    start, form = (10, "<H") if data[6] == 1 else (12, "<I")
    end = start + struct.unpack_from(form, data, 8)[0]
    try:
        head = ast.literal_eval(data[start:end].decode("utf-8"))
        shape, item = tuple(head["shape"]), _SIZES[head["descr"][-2:]]
    except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError):
        return None
    count = 1
    for n in shape:
        if not isinstance(n, int) or n < 1:
            return None
        count *= n
    return (shape or (1,)) if len(data) - end == count * item else None


def _bytes(tensor: Any) -> bytes:
    """The bytes of a tensor, or of a ragged field's only row."""
    data: bytes = (tensor[0] if isinstance(tensor, tuple) else tensor).tobytes()
    return data


def inferred(
    paths: Sequence[Any], fields: Mapping[str, Field], options: Mapping[str, Any], known: Mapping[str, Sequence[int]]
) -> Dict[str, Shape]:
    """The shape of each field whose shape is not given: from `known` (a state), or from the first sound sample. All
    ranks look at the same sample, whatever their own samples are. Reads the first shard up to that sample."""
    found = {name: tuple(known[name]) for name, field in fields.items() if field.inferred and name in known}
    missing = {name: field for name, field in fields.items() if field.inferred and name not in found}
    if not missing:
        return found
    some = {name: value for name, value in options.items() if name in ("index_dir", "memory_budget")}
    looked: List[Dict[str, Any]] = [{**Field(field.name, "bytes", optional=1).as_dict(name)} for name, field in missing.items()]
    raw = _penstock.Loader(paths, {**some, "batch": 1, "depth": 2, "threads": 1, "order": "none", "end": "uneven", "rank": 0,
                                   "world": 1, "on_error": "skip"}, looked, None)
    try:
        while missing:
            batch = raw.next()
            if batch is None or int.from_bytes(_bytes(batch.field("__shard__")), sys.byteorder, signed=True) > 0:
                break
            for name in list(missing):
                shape = _of_npy(_bytes(batch.field(name)))
                if shape is not None:
                    found[name] = shape
                    del missing[name]
    finally:
        raw.close()
    for name, field in missing.items():
        raise ValueError(
            "field %s: no sample of the first shard has an array to take the shape from; give it, as Array(%r, (3, 4)), or "
            "(0,) for rows of any length" % (name, field.name))
    return found
