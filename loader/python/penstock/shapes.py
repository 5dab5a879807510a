"""Shapes of arrays that the caller left out: those of the first sound sample of the list's first shard."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _penstock
from .fields import Field

Shape = Tuple[int, ...]

def _bytes(tensor: Any) -> bytes:
    """The bytes of a tensor, or of a ragged field's only row."""
    data: bytes = (tensor[0] if isinstance(tensor, tuple) else tensor).tobytes()
    return data


def inferred(
    paths: Sequence[Any], fields: Mapping[str, Field], options: Mapping[str, Any], known: Mapping[str, Sequence[int]],
    calls: Any = None,
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
                                   "world": 1, "on_error": "skip"}, looked, None, calls)
    try:
        while missing:
            batch = raw.next()
            if batch is None or int.from_bytes(_bytes(batch.field("__shard__")), sys.byteorder, signed=True) > 0:
                break
            for name in list(missing):
                shape = _penstock.npy_shape(_bytes(batch.field(name)))
                if shape is not None and 0 not in shape:
                    found[name] = shape
                    del missing[name]
    finally:
        raw.close()
    for name, field in missing.items():
        raise ValueError(
            "field %s: no sample of the first shard has an array to take the shape from; give it, as Array(%r, (3, 4)), or "
            "(0,) for rows of any length" % (name, field.name))
    return found
