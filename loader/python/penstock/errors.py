"""The exceptions: one class for each cause."""
from __future__ import annotations

import difflib
import errno as _errno
import functools
import re
from typing import Any, Dict, Optional, Sequence, Set, Tuple, Type


class Error(RuntimeError):
    """An error of libpenstock."""

    errno: Optional[int] = None  #: the kind of error, as in the module errno
    shard: Optional[str] = None  #: the shard that the error is about
    key: Optional[str] = None  #: the key of the sample that it is about, and ...
    offset: Optional[int] = None  #: ... that sample's place in the shard, in bytes


class ConfigError(Error, ValueError):
    """An option is wrong, or contradicts another one or the shards."""

    errno = _errno.EINVAL


class BadSampleError(Error, ValueError):
    """A sample cannot be used (on_error="fail"), or too many cannot. The loader raises one of the classes below."""

    errno = _errno.EBADMSG


class DamagedSampleError(BadSampleError):
    """A sample is damaged, or does not fit the kind of its field."""


class MissingFieldError(BadSampleError):
    """A sample lacks a field that is not optional."""


class ShardChangedError(BadSampleError):
    """A shard was replaced after it was opened, indexed or saved in a state."""

    errno = _errno.ESTALE


class ShardReadError(BadSampleError, OSError):
    """A shard cannot be read. `errno` is that of its storage; on a penstock mount, that of the origin."""

    # Error's own would be found first.
    __new__ = OSError.__new__  # type: ignore[assignment]
    __init__ = OSError.__init__
    errno = OSError.errno  # type: ignore[assignment]


class ShardNotFoundError(ShardReadError, FileNotFoundError):
    """A shard does not exist, or a pattern matches none."""


class ShardDeniedError(ShardReadError, PermissionError):
    """The storage refuses access to a shard."""


class BatchesHeldError(Error):
    """All batches are still in use, and memory_budget has no room for another one. See copy=True."""

    errno = _errno.EBUSY


class StateError(Error, ValueError):
    """A saved state is damaged, or belongs to other shards or options."""

    errno = _errno.ESTALE


class UnknownLengthError(Error, TypeError):
    """The number of samples is not known: a shard has no index."""

    errno = _errno.ENODATA


for _class in [value for value in globals().values() if isinstance(value, type) and issubclass(value, Exception)]:
    _class.__module__ = "penstock"

_BY_CAUSE: Dict[int, Type[Exception]] = {  # enum penstock_cause
    1: DamagedSampleError, 2: MissingFieldError, 3: ShardReadError, 4: ShardChangedError, 5: ConfigError}
_BY_ERRNO: Dict[int, Type[Exception]] = {
    _errno.EBADMSG: BadSampleError, _errno.EBUSY: BatchesHeldError, _errno.ESTALE: StateError,
    _errno.EINVAL: ConfigError, _errno.E2BIG: ConfigError, _errno.ENOMEM: MemoryError, _errno.ERANGE: IndexError,
    _errno.ENOENT: OSError, _errno.EACCES: OSError, _errno.EIO: OSError, _errno.EMFILE: OSError, _errno.ENFILE: OSError}
_OF_SHARDS: Dict[int, Type[Exception]] = {
    _errno.ENOENT: ShardNotFoundError, _errno.EACCES: ShardDeniedError, _errno.EPERM: ShardDeniedError}


# What others call a word or an option: frameworks' names and spellings that are not similar.
_ELSEWHERE = {
    "shuffle": "window", "shuffled": "window", "random": "permutation", "sequential": "none", "pt": "torch", "pytorch": "torch",
    "np": "numpy", "flip": "hflip", "horizontal_flip": "hflip", "vertical_flip": "vflip", "color_jitter": "jitter",
    "normalize": "mean", "rotation": "degrees", "default": "missing_value", "max_length": "pad_to", "max_len": "pad_to"}


def likely(name: Any, names: Sequence[str]) -> str:
    """The most similar name as a question, to be appended to a text; "": none is similar."""
    if not isinstance(name, str):
        return ""
    lower = {one.lower(): one for one in names}
    known = _ELSEWHERE.get(name.lower())
    found = [known] if known in names else [lower[one] for one in difflib.get_close_matches(name.lower(), list(lower), 1)]
    return '; did you mean "%s"?' % found[0] if found else ""


def made(code: int, text: str, cause: int, shard: Optional[str], key: Optional[str], offset: int) -> Exception:
    """The exception for an error of libpenstock. Called by _penstock."""
    text = in_python(text)
    kind = _BY_CAUSE.get(cause) or _BY_ERRNO.get(code, Error)
    if kind is ShardReadError:
        kind = _OF_SHARDS.get(code, kind)
    error: Any = kind(code, text) if issubclass(kind, OSError) else kind(text)
    if isinstance(error, Error):
        error.errno, error.shard, error.key = code, shard, key
        error.offset = offset if key is not None else None
    return error  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=None)
def _spellings() -> "Tuple[re.Pattern[str], Dict[str, str], Dict[str, Set[str]]]":
    """Names of libpenstock that Python spells in another way, and options whose values are words."""
    from .keywords import OF_FIELD, OF_LOADER, PAIRS

    names = {"resize_shorter": "resize", "resize_width": "resize", "resize_height": "resize", "image_width": "size",
             "image_height": "size", "padding_x": "padding", "padding_y": "padding", "scale_min": "scale", "scale_max": "scale",
             "ratio_min": "ratio", "ratio_max": "ratio", "erase_levels": "erase_fill"}
    names.update((part, name) for name, pair in PAIRS.items() for part in pair if part != name)
    words = {name: set(row[0]) for table in (OF_FIELD, OF_LOADER) for name, row in table.items() if row[0]}
    either = "|".join(sorted([*names, *words], key=len, reverse=True))
    return re.compile(r"(?<![\w/.\"'])(%s)(?![\w/.\"'])(?:([ =])(\w+(?:(?:, | or )\w+)*))?" % either), names, words


def in_python(text: str) -> str:
    """The text with options as Python spells them: on_error skip as on_error="skip"."""
    pattern, names, words = _spellings()

    def spelled(match: "re.Match[str]") -> str:
        name, between, rest = match.groups()
        known = words.get(name, set())
        if rest is None or rest.split(" ")[0].rstrip(",") not in known:
            return names.get(name, name) + ("" if rest is None else between + rest)
        return str(name) + "=" + re.sub(r"\w+", lambda word: '"%s"' % word[0] if word[0] in known else word[0], rest)

    return pattern.sub(spelled, text)
