"""The keywords of Loader() and of the kinds of field, for help(), editors and type checkers, from libpenstock's table.

After each change of the table, make the file for type checkers again:

    python3 -c 'import penstock.keywords as k; k.print_stub()' >_keywords.pyi
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, TypeVar

from . import _penstock
from .errors import likely

_Row = Tuple[
    Optional[List[str]], str, Any, Tuple[str, ...], str
]  # words, type, default, kinds of field, description
_Shown = TypeVar("_Shown", bound=Callable[..., Any])

OF_LOADER: Dict[str, _Row]
OF_FIELD: Dict[str, _Row]
# Options of fields that have gone, with what to do instead.
GONE: Dict[str, str]
OF_LOADER, OF_FIELD, GONE = _penstock.option_names()
GONE["resize_shorter"] = "write resize=, with a number"
GONE["resize_width"] = GONE["resize_height"] = "write resize=(height, width)"
GONE["padding_x"] = GONE["padding_y"] = "write padding=(left and right, above and below)"

# Two options of the table that may be given as one, (least, largest).
PAIRS = {
    "noise_sigma": ("noise_sigma", "noise_sigma_max"),
    "blur_size": ("blur_size", "blur_size_max"),
    "blur_sigma": ("blur_sigma_min", "blur_sigma_max"),
    "zoom": ("zoom_min", "zoom_max"),
    "erase_scale": ("erase_scale_min", "erase_scale_max"),
    "erase_ratio": ("erase_ratio_min", "erase_ratio_max"),
}
# Types of options for which Python takes more than the table says.
_TYPES = {
    "memory_budget": "Union[int, str]",
    "order": 'Union[Literal["none", "shards", "window", "permutation"], Iterable[int], Iterable[Sequence[int]]]',
    "weights": "Union[str, Iterable[float]]",
    "gpu_decode": 'Union[float, Literal["auto"]]',
    "index_dir": "Union[str, os.PathLike[str]]",
    "groups": "Union[str, Sequence[str]]",
    "erase_fill": 'Union[Literal["mean", "random"], int, Tuple[int, int, int]]',
    "floats": "Union[float, Sequence[float]]",
    "ints": "Sequence[int]",
    "mix": "Union[Sequence[float], Mapping[str, float], Sequence[Tuple[Any, ...]]]",
}
# Options that are given in another way: by the name of a field, the size of an image, order= and weights=.
_NOT_SHOWN = {
    "image_width",
    "image_height",
    "scale_min",
    "scale_max",
    "ratio_min",
    "ratio_max",
    "resize_shorter",
    "resize_width",
    "resize_height",
    "padding_x",
    "padding_y",
    "erase_levels",
    "member",
    "rename",
    "numbers",
    "batch_ends",
    "sample_weights",
    "mix_stages",
    "mix_names",
    "state_flags",
}


class Keyword(NamedTuple):
    name: str
    type: str
    default: Any  # None: a rule, which `text` describes
    text: str


def _own(function: Callable[..., Any]) -> Set[str]:
    code = inspect.unwrap(function).__code__
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def more_of(
    function: Callable[..., Any], table: Dict[str, _Row], kind: Optional[str] = None
) -> List[Keyword]:
    """The **options of a function: rows of the table (of a kind of field, by its word in penstock.h) that are not
    parameters."""
    hidden = _NOT_SHOWN | _own(function) | {name for pair in PAIRS.values() for name in pair} - set(PAIRS)
    if kind == "tokens":
        hidden.add("shape")  # given as `length`
    found: List[Keyword] = []
    for name, (words, simple, default, kinds, text) in table.items():
        if name in hidden or (kind and kind not in kinds):
            continue
        annotation = _TYPES.get(name) or _TYPES.get(simple, simple)
        if words and name not in _TYPES:
            annotation = "Literal[%s]" % ", ".join('"%s"' % word for word in words)
        if name in PAIRS:
            annotation = "Union[%s, Tuple[%s, %s]]" % (simple, simple, simple)
        found.append(
            Keyword(name, annotation if default is not None else "Optional[%s]" % annotation, default, text)
        )
    for name, (low, high) in PAIRS.items():
        if name not in table and low in table and (not kind or kind in table[low][3]):
            found.append(
                Keyword(
                    name,
                    "Union[None, float, Tuple[float, float]]",
                    None,
                    "%s; %s" % (table[low][4], table[high][4]),
                )
            )
    return sorted(found)


def keywords(
    table: Dict[str, _Row], kind: Optional[str] = None, lines: bool = True
) -> Callable[[_Shown], _Shown]:
    """Decorates a function that takes **options: its signature then names each option and, with `lines`, its help has
    a line for each."""

    def show(function: _Shown) -> _Shown:
        more = more_of(function, table, kind)
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters += [
            inspect.Parameter(k.name, inspect.Parameter.KEYWORD_ONLY, default=k.default, annotation=k.type)
            for k in more
        ]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = function.__doc__ or ""
        if lines and more:
            function.__doc__ += "\n\n" + "\n".join("    %s: %s" % (k.name, k.text) for k in more)
        if not kind:
            return function
        names = [parameter.name for parameter in parameters]
        known = {*names, *(name for name, row in table.items() if kind in row[3])}

        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            for name in options:
                if name in GONE:
                    raise TypeError("%s(): %s no longer exists: %s" % (function.__name__, name, GONE[name]))
                if name not in known:
                    like = likely(name, names) or "; help(penstock.%s) lists them" % function.__name__
                    raise TypeError("%s() has no option \"%s\"%s" % (function.__name__, name, like))
            return function(*args, **options)

        return checked  # type: ignore[return-value]

    return show


def print_stub() -> None:
    from . import fields, loader

    text = '"""Generated from the table of options by penstock.keywords, for type checkers: never imported."""\n'
    text += "import os\nfrom typing import Any, Iterable, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union\n\n"
    text += "from .loader import Budget\n"
    shown: List[Tuple[str, Callable[..., Any], Dict[str, _Row], Optional[str]]]
    shown = [("Loader", loader.Loader.__init__, OF_LOADER, None)]
    shown += [(function.__name__, function, OF_FIELD, kind) for kind, function in fields.KINDS.items()]
    for name, function, table, kind in shown:
        text += "\nclass %sOptions(TypedDict, total=False):\n" % name
        for keyword in more_of(function, table, kind):
            text += '    %s: %s\n    """%s"""\n' % (
                keyword.name,
                keyword.type,
                keyword.text.replace('"', "'"),
            )
    sys.stdout.write(text)
