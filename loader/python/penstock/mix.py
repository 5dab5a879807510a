"""The argument `mix` of a loader: weights of datasets, by number or by name, and stages in which they change."""

import os
from collections.abc import Mapping as MappingABC
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors

Path = Union[str, "os.PathLike[str]"]
Weights = Union[Sequence[float], Mapping[str, float]]

_WORDS = {"linear": 1, "rows": 2}  # PENSTOCK_STAGE_* of penstock.h


def sources_of(shards: Any) -> Tuple[List[Path], Optional[List[str]]]:
    """The paths of a loader, one for each dataset if they have names; and the names."""
    if isinstance(shards, (str, os.PathLike)):
        return [shards], None
    if not isinstance(shards, MappingABC):
        return list(shards), None
    paths: List[Path] = []
    for name, of in shards.items():
        if not isinstance(name, str):
            raise errors.ConfigError("shards: the name of a dataset is a text, not %r" % (name,))
        if isinstance(of, (str, os.PathLike)):
            paths.append(of)
        else:
            paths.append("::".join(os.fsdecode(path) for path in of))
    return paths, list(shards)


def _weights_of(weights: Any, names: Optional[List[str]], n: int, where: str) -> List[float]:
    if isinstance(weights, MappingABC):
        if names is None:
            raise errors.ConfigError("mix: %s has weights by name, but the datasets have no names; pass the shards as "
                                     "a dict {name: shards}" % where)
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise errors.ConfigError("mix: %s has a weight for %r, but there are only the datasets %s"
                                     % (where, unknown[0], ", ".join(names)))
        return [float(weights.get(name, 0)) for name in names]
    try:
        numbers = [float(weight) for weight in weights]
    except (TypeError, ValueError):
        raise errors.ConfigError("mix: %s has no weights, but %r" % (where, weights)) from None
    if len(numbers) != n:
        raise errors.ConfigError("mix: %d weights for %d strings of shards; each string is a dataset and needs one"
                                 % (len(numbers), n))
    return numbers


def _stage_of(stage: Any, names: Optional[List[str]], n: int, number: int) -> Tuple[int, int, List[float]]:
    where = "stage %d" % number
    if not isinstance(stage, (tuple, list)) or len(stage) < 2 or not isinstance(stage[0], int):
        raise errors.ConfigError("mix: %s is %r; a stage is (start, weights), (start, weights, \"linear\"), or "
                                 "(start, weights, \"rows\")" % (where, stage))
    flags = 0
    for word in stage[2:]:
        if word not in _WORDS:
            raise errors.ConfigError("mix: %s has %r; a stage may have \"linear\" and \"rows\"" % (where, word))
        flags |= _WORDS[word]
    if stage[0] < 0:
        raise errors.ConfigError("mix: %s begins at %d; a stage begins at 0 or later" % (where, stage[0]))
    return stage[0], flags, _weights_of(stage[1], names, n, where)


def options_of(mix: Any, names: Optional[List[str]], n: int) -> Dict[str, Any]:
    """The options of libpenstock for `mix`, of n datasets."""
    if mix is None:
        if names is not None and n > 1:
            raise errors.ConfigError("shards: a dict of datasets needs mix=, their weights by name")
        return {}
    found: Dict[str, Any] = {"mix": None}
    stages = not isinstance(mix, MappingABC) and len(mix) > 0 and not all(isinstance(item, (int, float)) for item in mix)
    if stages:
        found["mix_stages"] = [_stage_of(stage, names, n, number) for number, stage in enumerate(mix)]
    else:
        found["mix"] = _weights_of(mix, names, n, "mix")
    if names is not None:
        found["mix_names"] = names
    return found
