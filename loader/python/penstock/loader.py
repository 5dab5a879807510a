"""The loader for Python: a resumable iterable of epochs, with batches as dicts of tensors."""
from __future__ import annotations

import base64
import functools
import hashlib
import html
import importlib.util
import inspect
import json
import logging
import os
import re
import sys
import warnings
import weakref
from collections.abc import Mapping as MappingABC
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Literal, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from . import _penstock, errors, nvjpeg, remote
from . import map as _map
from . import mix as _mix
from . import order as _order
from . import shapes as _shapes
from . import source as _source
from .fields import Field, Image, Int
from .keywords import OF_LOADER, keywords
from .rank import group_rank_and_world, rank_and_world, ranks_per_node
from .samples import Samples

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keywords import LoaderOptions

Path = Union[str, "os.PathLike[str]"]

_STATE_VERSION = 1
_NEW_MIX, _OTHER_FIELDS = 1, 2  # PENSTOCK_STATE_*
_LOST_LINES = 16
_LONGEST = 0xFFFFFFFF  # PENSTOCK_PAD_LONGEST
_MISSING_PATHS = 64
_IS_THE_DATALOADER = (
    "the loader is the DataLoader: iterate over it, without torch.utils.data.DataLoader around it (get() gives samples "
    "by their numbers; penstock.torch.DataLoader is for code that insists on a DataLoader)"
)
_log = logging.getLogger("penstock")
_OF_EVERY_BATCH = ("__key__", "__valid__", "__shard__", "__sample__")


class _Own:
    """A copy of a tensor's bytes, with the methods of a tensor that Ragged uses."""

    def __init__(self, tensor: "_penstock.Tensor", kind: str) -> None:
        self._bytes = b"" if kind == "array" else tensor.tobytes()
        self._each = len(self._bytes) // max(len(tensor), 1)
        self.dtype = tensor.dtype

    def tobytes(self, start: int, stop: int) -> bytes:
        return self._bytes[start * self._each : stop * self._each]


class Ragged:
    """A field whose rows differ in length: row i is values[offsets[i]:offsets[i + 1]].

    Indexing returns a row: str for a text field, bytes for a bytes field, and otherwise an array of the field's dtype (in
    the loader's format; a NumPy array for format None, and for JAX, which would compile a slice for each length).
    values and offsets are tensors of the loader's format.
    """

    def __init__(self, values: Any, offsets: Any, raw: "Tuple[Union[_penstock.Tensor, _Own], Sequence[int]]", kind: str) -> None:
        self.values = values
        self.offsets = offsets
        self._raw, self._at = raw
        self._kind = kind  # "text", "bytes", "array"

    def __len__(self) -> int:
        return len(self._at) - 1

    def __getitem__(self, row: int) -> Any:
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError("row %d of %d" % (row, len(self)))
        start, stop = self._at[row], self._at[row + 1]
        if self._kind == "array":
            return self._rows()[start:stop]
        data = self._raw.tobytes(start, stop)
        # a text field is UTF-8; a sample's name may have other bytes, which become surrogate escapes
        return data.decode(errors="surrogateescape") if self._kind == "text" else data

    def to(self, device: Any, non_blocking: bool = False) -> "Ragged":
        """Returns a copy on this torch device, or this object if it is on that device already."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Ragged":
        """Returns a copy in torch's pinned memory."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: "Callable[[Any], Any]") -> "Ragged":
        values = function(self.values)
        if values is self.values:
            return self
        raw = self._raw if isinstance(self._raw, _Own) else _Own(self._raw, self._kind)
        return Ragged(values, function(self.offsets), (raw, self._at), self._kind)

    def _rows(self) -> Any:
        """An array that can be sliced: `values`, or NumPy's view of it."""
        if type(self.values).__module__.partition(".")[0] not in ("jax", "jaxlib", "penstock"):
            return self.values
        import numpy

        return numpy.asarray(self.values)

    def __iter__(self) -> "Iterator[Any]":
        return (self[row] for row in range(len(self)))

    def tolist(self) -> "List[Any]":
        """Returns the rows as a list of str, bytes, or lists of numbers."""
        return [row.tolist() for row in self] if self._kind == "array" else list(self)

    to_list = tolist

    def to_padded(self, value: Any = 0, length: Optional[int] = None) -> Any:
        """Returns an array (of the format that rows have) of all rows, each padded with `value` to the longest row, or
        to `length`, at which longer rows are cut. Text and bytes become u8 values."""
        rows = self._rows()
        longest = max((b - a for a, b in zip(self._at, self._at[1:])), default=0) if length is None else length
        shape = (len(self), longest) + tuple(rows.shape[1:])
        if hasattr(rows, "new_full"):  # torch
            padded = rows.new_full(shape, value)
        else:
            padded = sys.modules[type(rows).__module__.partition(".")[0]].full(shape, value, dtype=rows.dtype)  # NumPy, CuPy
        for row, (a, b) in enumerate(zip(self._at, self._at[1:])):
            n = min(b - a, longest)
            padded[row, :n] = rows[a : a + n]
        return padded

    def to_nested(self) -> Any:
        """Returns a copy as a nested tensor of torch."""
        import torch

        rows = self.values if isinstance(self.values, torch.Tensor) else torch.as_tensor(self._rows())
        return torch.nested.nested_tensor([rows[a:b] for a, b in zip(self._at, self._at[1:])])

    def __repr__(self) -> str:
        return "penstock.Ragged(%d rows, %s)" % (len(self), self._raw.dtype)


class Spec(NamedTuple):
    """The shape of a batch's field, with None for a length that differs from row to row or from batch to batch, and
    its dtype, as in penstock.Tensor."""

    shape: Tuple[Optional[int], ...]
    dtype: str


def _offsets(tensor: "_penstock.Tensor") -> Sequence[int]:
    return memoryview(tensor.tobytes()).cast("q")


def _to_numpy(tensor: Any, copy: bool) -> Any:
    import numpy

    return numpy.array(tensor) if copy else numpy.asarray(tensor)


def _to_torch(tensor: Any, copy: bool) -> Any:
    from_dlpack, knows_bool, _ = _torch_import()
    if tensor.__dlpack_device__()[0] != 1:
        t = from_dlpack(tensor)  # makes the current stream of the device wait
    elif knows_bool or tensor.dtype != "bool":
        t = from_dlpack(tensor.__dlpack__())  # a capsule: torch makes no further calls, which halves the cost of a field
    else:
        import torch

        t = torch.from_numpy(_to_numpy(tensor, False))
    return t.clone() if copy else t


def _torch_device(device: Any) -> Any:
    """The device with the index that its tensors have."""
    import torch

    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    return where


@functools.lru_cache(maxsize=None)
def _torch_import() -> Tuple[Callable[[Any], Any], bool, Callable[[Any], Any]]:
    """torch's from_dlpack(); whether torch knows DLPack's bool (2.0 and later do); and the function that
    from_dlpack() calls with a capsule."""
    import torch as imported

    torch: Any = imported  # torch's type hints lack some of its exports
    return (torch.from_dlpack, int(torch.__version__.split(".")[0]) >= 2,
            getattr(torch._C, "_from_dlpack", torch.from_dlpack))


class _Copied:
    """A tensor in host memory whose consumer gets a copy, made before from_dlpack() returns. JAX itself copies later."""

    def __init__(self, tensor: "_penstock.Tensor") -> None:
        self._tensor = tensor

    def __dlpack__(self, **how: Any) -> Any:
        return self._tensor.__dlpack__(**{**how, "copy": True})

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._tensor.__dlpack_device__()


def _to_jax(tensor: Any, copy: bool) -> Any:
    import jax

    if copy and tensor.__dlpack_device__()[0] != 1:
        return jax.dlpack.from_dlpack(tensor).copy().block_until_ready()
    return jax.dlpack.from_dlpack(_Copied(tensor) if copy else tensor)


def _to_cupy(tensor: Any, copy: bool) -> Any:
    import cupy

    if tensor.__dlpack_device__()[0] == 1:
        return cupy.asarray(_to_numpy(tensor, False))  # the transfer to the device makes a copy
    t = cupy.from_dlpack(tensor)
    return t.copy() if copy else t


def _as_is(tensor: Any, copy: bool) -> Any:
    return tensor


_FORMATS: Dict[Optional[str], Callable[[Any, bool], Any]] = {
    None: _as_is,
    "numpy": _to_numpy,
    "torch": _to_torch,
    "jax": _to_jax,
    "cupy": _to_cupy,
}


# The packages that have a library, of Debian and of pip; None: Debian has none.
_PACKAGES: Dict[str, Tuple[Optional[str], str]] = {
    "numpy": ("python3-numpy", "numpy"), "torch": ("python3-torch", "torch"), "jax": (None, "jax"), "cupy": (None, "cupy-cuda12x")}


def _need_library(name: str, what: str) -> None:
    """Raises an error if this Python does not have the library. Does not import it."""
    if sys.modules.get(name) is not None or importlib.util.find_spec(name) is not None:
        return
    apt, pip = _PACKAGES[name]
    raise ModuleNotFoundError(
        "%s needs the Python package %s, which this Python (%s) does not have. Install it: %s%s -m pip install %s" % (
            what, name, sys.executable,
            "`apt install %s` for Debian's and Ubuntu's own Python, or in a virtual environment " % apt if apt else
            "in a virtual environment ", sys.executable, pip), name=name)


def _profiler_look() -> bool:
    """True if torch's profiler records; makes later queries cheap once torch is imported."""
    global _profiler, _profiler_asks
    autograd = getattr(sys.modules.get("torch"), "autograd", None)
    profiler: Any = getattr(autograd, "profiler", None)
    if hasattr(profiler, "_is_profiler_enabled"):
        _profiler, _profiler_asks = profiler, None
        return bool(profiler._is_profiler_enabled)
    enabled = getattr(autograd, "_profiler_enabled", None)
    if enabled is None:
        return False
    _profiler_asks = enabled
    return bool(enabled())


_profiler: Any = None  # torch's module with the flag that its profiler records; torch 2.1 and later have it
# Asks the same of older versions, and before torch is imported; None: the flag is read instead.
_profiler_asks: Optional[Callable[[], bool]] = _profiler_look
_dict_new: Callable[..., Any] = dict.__new__


class _Copy:
    """Takes the place of the library's batch where a Batch has copies of its tensors: has the numbers alone."""

    def __init__(self, batch: "Batch") -> None:
        self.epoch, self.index = batch.epoch, batch.index
        self.rows, self.bad, self.valid = batch.rows, batch.bad, batch.valid

    def release(self) -> None:
        pass


class Batch(Dict[str, Any]):
    """A batch: a dict of field names to tensors of the loader's format, or Ragged. Some fields have additional tensors,
    with names such as "tokens:y", "text:mask" and "text:lengths".

    Every batch also has these, over which you do not iterate: "__key__" (Ragged of str), "__valid__" (u8: 0 for a row that
    repeats another one, because its sample is bad, as padding, or because this rank has no sample left), "__shard__" and
    "__sample__" (i64: the place of each sample). epoch, index, rows, bad and valid are numbers; bad_samples() lists the bad
    samples with the reasons. If no sample of a batch is good (on_error="skip"), the rows are blank: zeros, `missing_value`
    in optional integer fields, and "__valid__" 0. Weight your loss by "__valid__", so that such rows do not count.

    The memory belongs to the loader, which reuses it once neither the batch nor one of its tensors is in use. With
    Loader(copy=True) the tensors are your own, and the batch holds no memory of the loader. On a GPU (device="cuda"), the
    stream that was current when a tensor was taken waits for the batch, and the memory is reused only after the work that
    was queued on this stream before the last tensor was dropped; name other streams by record_stream(). format="numpy"
    returns the batch's copy in host memory. Frameworks that move a batch to a device rebuild it as Batch(dict), which
    has only the fields.
    """

    __slots__ = ("_raw", "_loader", "__dict__", "__weakref__")
    _raw: "_penstock.Batch"
    _loader: "Loader"
    _kept: Optional[Dict[str, Any]] = None  # with copy=True: the tensors that every batch has
    _bad: List[Dict[str, Any]]

    @classmethod
    def _of(cls, loader: "Loader", raw: "_penstock.Batch") -> "Batch":
        batch: Batch = _dict_new(cls)
        batch._loader = loader
        batch._raw = raw
        if loader._plain is None or not raw.fill(batch, loader._plain, loader._take):
            batch._complete()
        if loader._copy and loader._convert is not _as_is:
            batch._let_go()
        return batch

    def _let_go(self) -> None:
        """Called when all fields were copied: keeps what may still be requested, and releases the memory."""
        self._kept = {name: self._make(name) for name in _OF_EVERY_BATCH}
        self._bad = self.bad_samples() if self._raw.bad else []
        try:
            self._raw.release()
        except BufferError:  # a framework drops its tensors a little later, on a thread of its own
            pass

    def _complete(self) -> None:
        loader = self._loader
        if self._raw.bad:
            loader._tell_bad(self._raw)
            if loader._map:
                self._bad = self._raw.bad_samples()
                for bad in self._bad:
                    failure = loader._map.take(bad["shard"], bad["key"])
                    if failure:
                        bad["traceback"] = failure.text
        for name in loader._names or loader._learn(self._raw):
            if dict.get(self, name) is None:
                self[name] = self._make(name)

    epoch = property(lambda self: self._raw.epoch, doc="The batch's epoch.")
    index = property(lambda self: self._raw.index, doc="The batch's place in the epoch, on this rank.")
    rows = property(lambda self: self._raw.rows, doc="The number of samples.")
    bad = property(lambda self: self._raw.bad, doc="Rows whose sample was bad.")
    valid = property(
        lambda self: self._raw.valid, doc="Rows that are valid: neither bad nor repeated. 0: the batch is blank or repeats a row.")

    def bad_samples(self) -> List[Dict[str, Any]]:
        """Returns a dict (row, shard, key, offset, reason) for each bad sample. If a map refused the sample, the dict also
        has the traceback."""
        return list(self._bad) if hasattr(self, "_bad") else self._raw.bad_samples()

    def show(self, path: Optional[Path] = None, most: int = 64) -> None:
        """Shows the images with their labels and keys, after all augmentation: in a notebook, or written to `path` as a
        PNG. At most `most` rows, up to 64. Images are shown as they were before they were normalised. A class of a
        member .cls is named, if CLASSES.txt is beside the shard."""
        png = self._sheet(most)
        if path is not None:
            with open(path, "wb") as f:
                f.write(png)
            return
        ipython = sys.modules.get("IPython")
        if ipython is None or ipython.get_ipython() is None:
            raise ValueError('no notebook is running: name a file, as show("sheet.png")')
        from IPython.display import Image, display
        display(Image(data=png, format="png"))

    def _sheet(self, most: int) -> bytes:
        if not isinstance(getattr(self, "_raw", None), _penstock.Batch) or self._kept is not None:
            raise ValueError("this batch is a copy (copy=True, or of a framework), which holds no images of the loader: "
                             "show one of a loader without copy=True")
        if not 1 <= most <= 64:
            raise ValueError("most=%r: must be 1 to 64" % (most,))
        return self._raw.sheet(most)

    def _repr_html_(self) -> str:
        """For notebooks: the fields, and the first 16 images."""
        text = "<pre>%s</pre>" % html.escape(repr(self))
        try:
            return text + '<img src="data:image/png;base64,%s">' % base64.b64encode(self._sheet(16)).decode()
        except (ValueError, OSError, errors.Error):  # no images, or not in this memory
            return text

    def release(self) -> None:
        """Releases the memory now. Drop all tensors that you took from the batch first."""
        self.clear()
        self._raw.release()

    def to(self, device: Any, non_blocking: bool = False) -> "Batch":
        """Returns a copy with all tensors (torch's) on this device, which holds no memory of the loader. Returns this batch
        if its tensors are already there or are not torch's. The copy also has the tensors that every batch has
        ("__valid__" ...), and the numbers. From memory that is not pinned, the copy is complete when this returns,
        whatever non_blocking is: see pin_memory()."""
        where = _torch_device(device)
        return self._map(lambda tensor: tensor.to(where, non_blocking=non_blocking), where)

    def pin_memory(self) -> "Batch":
        """Returns a copy in torch's pinned memory, from which to(device, non_blocking=True) copies while the program
        continues. Without CUDA it returns this batch. DataLoader(pin_memory=True) calls it. (With device="cuda" you need
        neither pin_memory() nor to(): batches are sent while others are decoded.)"""
        import torch

        here = self._any_tensor()
        if not torch.cuda.is_available() or here is None or here.device.type != "cpu":
            return self
        return self._map(lambda tensor: tensor.pin_memory(), None)

    def _any_tensor(self) -> Any:
        tensors = (value.values if isinstance(value, Ragged) else value for value in self.values())
        return next((tensor for tensor in tensors if hasattr(tensor, "pin_memory")), None)

    def _map(self, function: Callable[[Any], Any], where: Any) -> "Batch":
        here = self._any_tensor()
        if here is None or here.device == where:
            return self

        def moved(value: Any) -> Any:
            if isinstance(value, Ragged):
                return value._map(function)
            return function(value) if hasattr(value, "pin_memory") else value

        fields = {name: moved(value) for name, value in self.items()}
        if not hasattr(self, "_raw"):  # a framework rebuilt it
            return Batch(fields)
        batch: Batch = _dict_new(type(self))
        batch._loader = self._loader
        copy: Any = _Copy(self)
        batch._raw = copy
        batch._bad = self.bad_samples() if self.bad else []
        batch._kept = {name: moved(self[name]) for name in _OF_EVERY_BATCH}
        batch.update(fields)
        return batch

    def record_stream(self, stream: Any) -> None:
        """Names another stream (torch's, CuPy's, or its address) that works with the batch. Later work on the stream waits
        for the batch, and the memory is reused only after all work that was queued on the stream before the release.
        Does nothing with copy=True, because the copies belong to the framework."""
        if self._kept is None:
            self._raw.record_stream(stream)

    def synchronize(self) -> None:
        """Waits until the batch has arrived on its device. Does nothing with copy=True."""
        if self._kept is None:
            self._raw.synchronize()

    def __missing__(self, name: str) -> Any:
        if name not in _OF_EVERY_BATCH or not hasattr(self, "_raw"):
            raise KeyError(self._lacks(name))
        return self._make(name) if self._kept is None else self._kept[name]

    def __contains__(self, name: Any) -> bool:
        return dict.__contains__(self, name) or (name in _OF_EVERY_BATCH and hasattr(self, "_raw"))

    def get(self, name: str, default: Any = None) -> Any:
        """batch[name], or `default` if the batch has no such field."""
        return self[name] if name in self else default

    def _lacks(self, name: Any) -> str:
        if isinstance(name, (int, slice)):
            first = next(iter(self), "image")
            return ("a batch is a dict of fields: batch[%r][%s] is a row of one; Loader(columns=[...]) gives tuples"
                    % (first, name if isinstance(name, int) else "..."))
        return "the batch has no %r, only %s%s" % (name, ", ".join(map(str, self)), errors.likely(name, list(self)))

    def __getattr__(self, name: str) -> Any:
        if name in self:
            raise AttributeError("a batch is a dict of fields: write batch[%r]" % name)
        raise AttributeError("%r object has no attribute %r" % (type(self).__name__, name))

    def _make(self, name: str) -> Any:
        raw = self._raw.field(name)
        convert, copy = self._loader._convert, self._loader._copy
        if isinstance(raw, int):
            return raw
        if not isinstance(raw, tuple):
            if name in self._loader._channels_last:
                n = len(raw.shape)
                raw = raw.permute(*range(n - 3), n - 1, n - 3, n - 2)
            return convert(raw, copy)
        values, offsets = raw
        kind = "text" if name == "__key__" else self._loader._kinds.get(name, "array")
        own = copy and convert is not _as_is
        return Ragged(
            convert(values, copy), convert(offsets, copy), (_Own(values, kind) if own else values, _offsets(offsets)), kind)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        which = "epoch %d, index %d: " % (self.epoch, self.index) if hasattr(self, "_raw") else ""  # rebuilt
        return "penstock.Batch(%s%s)" % (which, ", ".join(
            "%s %r" % (name, value) if isinstance(value, Ragged) or not hasattr(value, "shape")
            else "%s %s %s" % (name, tuple(value.shape), str(value.dtype).replace("torch.", "")) for name, value in self.items()))


def _fields_of(fields: Any) -> Dict[str, Field]:
    """The fields, by their names in a batch."""
    if fields is None:
        return {"jpg": Image("jpg;jpeg"), "cls": Int("cls", optional=True)}
    if isinstance(fields, (Field, str)):
        fields = [fields]
    if isinstance(fields, Mapping):
        named = dict(fields)
    else:
        named = {}
        for field in fields:
            name = field.name.split(";")[0] if isinstance(field, Field) else str(field)
            if name in named:
                raise errors.ConfigError("two fields are called %r: give them names, fields={...}" % name)
            named[name] = field
    for name, field in named.items():
        if not isinstance(field, Field):
            suffix = field if isinstance(field, str) else name
            raise TypeError("field %r: a penstock.Field is needed, as Image(%r), Int(%r) or Bytes(%r), not %r"
                            % (name, suffix, suffix, suffix, field))
    return named


def _bytes_of_size(value: Any) -> Any:
    """200G, 64MiB and 1.5T as bytes; numbers as they are."""
    if not isinstance(value, str):
        return value
    text = value.strip().upper().rstrip("B").rstrip("I")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    try:
        return int(float(text if factor == 1 else text[:-1]) * factor)
    except (OverflowError, ValueError):
        raise errors.ConfigError("%r is not a size: 512M, 2GiB and 1000000 are" % value) from None


def _state_of(
    state: Mapping[str, Any], transform_version: Union[int, str], map_version: Union[None, int, str]
) -> Tuple[bytes, int]:
    """The contents of a state_dict(): libpenstock's state, and the epoch. Versions are compared here, since
    libpenstock has only their hashes."""
    if not isinstance(state, MappingABC) or state.get("version") != _STATE_VERSION:
        raise errors.StateError("this is not a state of a penstock.Loader, or it is from a newer one")
    theirs = state.get("transform_version", transform_version)
    if theirs != transform_version:
        raise errors.StateError("the state was saved by a loader with transform_version %r, but this one has %r; open it with the "
                                   "transform that the state was saved with" % (theirs, transform_version))
    theirs = state.get("map_version", map_version)
    if theirs != map_version:
        raise errors.StateError("the state was saved by a loader with %s, but this one has %s; open it with the map that the state "
                                   "was saved with" % tuple("no map" if v is None else "map_version %r" % v for v in (theirs, map_version)))
    try:
        return base64.b64decode(state["state"], validate=True), int(state["epoch"])
    except (KeyError, TypeError, ValueError) as e:
        raise errors.StateError("this state is damaged: %s" % e) from None


class Budget:
    """A limit of the bytes that several loaders hold together: pass it to each as Loader(..., budget=budget).

    A copy in another process, such as that of a pickled loader, is a budget of its own.
    """

    def __init__(self, size: Union[int, str]) -> None:
        self.size = _bytes_of_size(size)
        self._capsule = _penstock.budget_new(self.size)

    used = property(lambda self: _penstock.budget_used(self._capsule), doc="The bytes taken from the budget.")

    def __reduce__(self) -> Any:
        return Budget, (self.size,)

    def __repr__(self) -> str:
        return "penstock.Budget(%d)" % self.size


def _number_of(version: Union[int, str]) -> int:
    """A version as a number of 64 bits; for a text, its hash."""
    if isinstance(version, int):
        return version
    return int.from_bytes(hashlib.sha256(version.encode()).digest()[:8], "little") or 1


def _warn(text: str) -> None:
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals is globals():  # the warning is for the caller's line
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _warn_added(batches: int, index: int, epoch: int, holds: int) -> None:
    """Called by _penstock.Loader.next() for the first batch that it adds to the `depth` batches."""
    _warn("all %d batches are held (the oldest, batch %d of epoch %d, by %d tensors, arrays or Batch objects), so "
          "more batches are made from now on, within memory_budget. A framework that works asynchronously, as JAX, "
          "needs them; otherwise drop batches, or keep copies (copy=True)" % (batches, index, epoch, holds))


def _look() -> None:
    """Called by _penstock.Loader.next() while it waits, on a Python without a GIL: on entering any Python function, a
    thread frees those of its objects that other threads dropped."""


class _Epoch:
    """An iterator over the rest of one epoch. Only the newest iterator of a loader is valid."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader
        self._mark = loader._newest

    def __iter__(self) -> "_Epoch":
        return self

    # After a model's step no code or data of this is in a CPU cache, so it uses few calls and little memory.
    def __next__(self) -> Any:
        loader = self._loader
        if self._mark is not loader._newest:
            if self._mark is None:
                raise StopIteration  # the epoch has ended
            raise RuntimeError("this iterator is no longer valid: another one was begun, or its loader was moved "
                               "(set_epoch, load_state_dict)")
        batch: Any
        asks = _profiler_asks  # read once: another thread may reset it
        try:
            if asks() if asks else _profiler._is_profiler_enabled:
                batch = loader._next_recorded()
            else:
                batch = loader._raw_next()
                if batch is not None:
                    loader._at = batch.index
                    batch = loader._hand_out(batch)
        except StopIteration as error:  # of the caller's own code; here it would end the epoch
            raise RuntimeError("transform, collate, map_factory or order raised StopIteration") from error
        if batch is None:
            self._mark = None
            loader._tell_end()
            loader._over = True
            loader._current = loader._next_epoch  # the position, which a state saves
            raise StopIteration
        return batch


def _missing_of(shards: Sequence[Path]) -> List[str]:
    """The reports of the penstock mounts of these shards about listed files that their origins do not have."""
    texts: Dict[str, str] = {}
    for name in [part for path in shards[:_MISSING_PATHS] for part in os.fsdecode(path).split("::")]:
        plain = re.split(r"[{*?\[]", name, maxsplit=1)[0]
        folder = plain if os.path.isdir(plain) else os.path.dirname(plain) or "."
        try:
            text = os.getxattr(folder, "user.penstock.missing").decode(errors="replace")
        except OSError:
            continue
        texts.setdefault(text, "%s: %s" % (folder, text))
    return list(texts.values())


def _needs_indexes(options: Mapping[str, Any]) -> bool:
    """True if, with these options, the loader refuses shards without an index beside them."""
    if options.get("index_dir"):
        return False
    counted = int(options.get("world") or 1) > 1 and options.get("end") not in ("uneven", 0)
    counted = counted and not options.get("steps")
    order = options.get("order")
    ordered = _order.is_numbers(order) or (isinstance(order, str) and order == "permutation")
    return counted or ordered or any(options.get(name) is not None for name in ("filter", "weights", "balance"))


class Loader:
    """Batches from WebDataset shards. Iterating over the loader once is one epoch.

    shards: a path, folder or pattern, or several of them (with mix=[...] each is a dataset, and the numbers are the
        weights): "/data/train-{000000..001281}.tar", "/data/train-*.tar", "/data/train", "a.tar::b.tar", "@list.txt".
        Or URLs (s3://, gs://, az://, hf://, https://): "s3://bucket/train/{000000..001281}.tar", "s3://bucket/train/". The
        program `penstock` mounts them as long as the loader exists; see penstock.mount(). Names that end in .parquet are
        Parquet files, whose rows are samples; see penstock.Source.
    batch: samples per batch on this rank; by default 64, or as many as the batches of `order` have.
    fields: a dict of names to penstock.Field (Image(), Int(), Bytes(), ...), or a list of fields, which are named by
        their suffixes. By default an image "jpg" and an optional integer "cls".
    format: the type of the tensors: "torch", "numpy", "jax", "cupy", or None for penstock.Tensor, which all of these
        accept through DLPack. No bytes are copied (except to a device).
    copy: True: tensors are your own. False: they are in the loader's memory, which is reused once you have dropped the
        tensors. If you hold all `depth` batches (default 4), the loader waits for a moment, then creates another batch and
        warns once; when memory_budget is used up, it raises BatchesHeldError.
    columns: a list of names; batches are then tuples of these fields instead of dicts.
    transform: a callable that gets each batch (or tuple) and returns what you get.
    transform_version: a number or text that identifies the version of the transform. Change it when the results of the
        callable change. It is part of the fingerprint, and a state that was saved with another version is refused.
    map: a function that gets each sample on the loader's threads, before batches are assembled: a dict of the decoded
        fields (NumPy arrays, numbers, str, bytes) and, if it has a second parameter, a numpy.random.Generator for this
        sample. It changes the dict or returns another one, from which the fields of fixed shape and `outputs` are taken.
        Fields with hidden=1 are only for the map. The numbers drawn from the generator are the same for any number of
        threads and after a resume. An exception makes the sample bad.
    map_factory: creates such a function for each thread. Its set_random_seed(), which Albumentations' pipelines have, is
        called for each sample.
    map_serial: such a function, which only one thread at a time calls. Python's, NumPy's and torch's global generators
        are seeded for each sample, as torchvision's v2 transforms need.
    decode: functions by field, or by suffix of members. With decode={"pth": f}, f gets the bytes, and its result is the
        value of the sample.
    outputs: a dict of names to Output(shape, dtype): values that the map returns in addition to fields, or instead.
    map_version: like transform_version, for map and decode.
    collate: a callable that gets a list of the rows, a dict each, and returns what you get.
    profile_against: a profile (a dict from profile(), or its JSON file) with which the data is compared at the end of each
        epoch. Each difference is warned of once, and is in drift() and stats()["drift"].
    rank, world: the number of this process and the number of processes. By default the loader asks torch.distributed,
        jax.distributed or the environment of the launcher (see rank_and_world()), and also sets ranks_per_node from
        LOCAL_WORLD_SIZE. A loader that was created before the process group asks again at the first iter(), len(),
        samples(), state_dict() or load_state_dict() after the group exists; if the rank has changed and a batch was
        already delivered, it raises RuntimeError. Values that you pass are never compared with a group.
    source: what the shards contain: "tar", "lines", "tokens", or "auto" (decided by their names). Or a penstock.Source, which
        reads the rows of units, whose names are given as `shards`; with mix=, a list of units for each dataset.
    mount: options of penstock.mount() for shards that are URLs, such as {"endpoint": "https://minio.example.org"}.
    state: a state_dict() to resume from; the beginning of the epoch is not read then.
    gpu_decode: with device="cuda": the share of JPEGs that the GPU decodes, 0 to 1, or "auto". The GPU's pixels
        differ slightly from the processor's.
    order: "window" (default), "shards", "none", "permutation" (all samples are shuffled with each other), or sample
        numbers, counted from 0 through the list of shards as for get(): see SAMPLERS.
    Each other option has a line under __init__() below.

    With world > 1, all ranks have the same number of batches (end="split"), so that DDP and other synchronous training
    never wait for a rank that has finished. For this the loader needs the number of samples in each shard, from its index
    (`penstock-loader index`), or steps=, the batches per epoch. Without either it refuses to open, unless end="uneven"
    allows ranks to differ.

    The loader replaces torch's DataLoader: iterate over it, and do not wrap it in a DataLoader. For code that insists on a
    DataLoader, use penstock.torch.DataLoader (Accelerate, Hugging Face's Trainer) or penstock.torch.Dataset.

    SAMPLERS. order= accepts the sample numbers of this rank, which are not split among ranks; numbers may repeat. Each
    shard needs an index (`penstock-loader index`, or index="make"), and shards of a penstock mount must be in its cache,
    unless permute_remote=1. filter, weights, balance, mix, skip, take and repeat cannot be combined with it; steps=
    ends an epoch early.
      An array (list, range, NumPy array, tensor) of numbers, or of batches of numbers (list of lists, two dimensions): the
        same in each epoch; 8 bytes per number. The state contains its hash, and is refused with another array, rank or
        world.
      An iterable of numbers or of batches of numbers, such as torch's RandomSampler, WeightedRandomSampler,
        DistributedSampler or a batch_sampler. It is iterated again in each epoch, after its set_epoch(epoch), if it (or its
        .sampler) has one. The thread that asks for batches takes at most `depth` batches ahead from it. An exception of the
        iterable is raised when its turn comes. A batch of numbers has at most `batch` rows, by default the iterable's
        batch_size. state_dict() contains the state of the iterable (or of its iterator) if that has state_dict() and
        load_state_dict(). Otherwise a resumed run skips as many batches, and raises StateError if their numbers are not
        the same as before. A state of another world size is refused. An iterator continues in the next epoch; one that
        never ends needs steps=, because otherwise the epoch does not end.

    weights= accepts a list or array with the weights of all samples (8 bytes each), or the name of an index column.
    With an array, or with a column and draws=N, each pass of an epoch has exactly `draws` samples over all ranks (by
    default as many as the shards have). A sample of weight w appears draws * w / sum times, rounded up or down, at its
    place in the order; with order="permutation" all draws are independent instead. With a column and no draws=, w is the
    probability that a sample appears, or with replacement=1 how often it appears on average. A state contains a hash of
    the weights.

    MIXES. mix= draws from several datasets by weight: shards is a list with one item for each dataset and mix a list of
    weights, or shards is a dict {name: shards} and mix a dict {name: weight}. A list of stages changes the weights in the
    course of an epoch: (step, weights) changes them at that step, and (step, weights, "linear") linearly from the start of
    the stage before to that step; the first stage begins at 0. A dataset of weight 0, or one that the weights by name leave
    out, waits. Starts count steps of the run's first global batch; (row, weights, "rows") counts rows over all ranks. Each
    epoch begins with the first stage. load_state_dict(state, mix="new") begins another mix in the middle of an epoch.

    A loader is pickled as its options and its position, so you can send it to a spawned process. A forked process must
    create its own loader. Only one thread at a time may use a loader.
    """

    @keywords(OF_LOADER)
    def __init__(
        self,
        shards: Union[Path, Sequence[Union[Path, Sequence[str]]], Mapping[str, Union[Path, Sequence[Path]]]],
        batch: Optional[int] = None,
        fields: Union[None, Field, Sequence[Field], Mapping[str, Field]] = None,
        *,
        format: Optional[str] = None,
        copy: bool = False,
        columns: Optional[Sequence[str]] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        transform_version: Union[int, str] = 0,
        map: Optional[Callable[..., Any]] = None,
        map_factory: Optional[Callable[[], Callable[..., Any]]] = None,
        map_serial: Optional[Callable[..., Any]] = None,
        decode: Optional[Mapping[str, Callable[..., Any]]] = None,
        outputs: Optional[Mapping[str, Field]] = None,
        map_version: Union[int, str] = 0,
        collate: Optional[Callable[[List[Dict[str, Any]]], Any]] = None,
        profile_against: Union[None, Path, Mapping[str, Any]] = None,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        state: Optional[Mapping[str, Any]] = None,
        mount: Optional[Mapping[str, Any]] = None,
        source: Union[None, str, int, _source.Source] = None,
        **more_options: Unpack[LoaderOptions],
    ) -> None:
        """The options that the help of the class does not explain:"""
        options: Dict[str, Any] = dict(more_options)
        if format not in _FORMATS:
            raise errors.ConfigError("format: %r is none of %s%s" % (
                format, ", ".join(repr(f) for f in _FORMATS), errors.likely(format, ["numpy", "torch", "jax", "cupy"])))
        if format is not None:
            _need_library(format, "format=%r" % format)
        if map or map_factory or map_serial or decode:
            _need_library("numpy", "a map" if map or map_factory or map_serial else "decode")
        if (rank is None) != (world is None):
            raise errors.ConfigError("rank and world belong together: pass both, or neither")
        # Without rank=, the loader asks again when a process group appears: see _settle().
        self._asks = rank is None and group_rank_and_world() is None
        self._defaults = ["rank", "world"] + ["ranks_per_node"] * ("ranks_per_node" not in options)
        if rank is None:
            rank, world = rank_and_world()
            options.setdefault("ranks_per_node", ranks_per_node(world))
        self._shards: List[Any]
        self._shards, self._set_names = _mix.sources_of(shards)
        if "memory_budget" in options:
            options["memory_budget"] = _bytes_of_size(options["memory_budget"])
        self._fields = _fields_of(fields)
        given, paths = self._fields, None
        rows = self._source_of(source)
        if rows is None and source is not None:
            options["source"] = source
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        if any(field.inferred for field in given.values()):
            paths = self._local(mount, {**options, "rank": rank, "world": world}, rows)
            known = state.get("shapes", {}) if isinstance(state, MappingABC) else {}
            self._shapes = _shapes.inferred(paths, given, options, known, self._calls)
            self._fields = {name: field.with_shape(self._shapes[name]) if field.inferred else field
                            for name, field in given.items()}
        self._channels_last = {name for name, field in self._fields.items() if field.channels_last}
        self._kinds = {name: field.kind for name, field in self._fields.items() if field.kind in ("text", "bytes")}
        self._kinds.update({name: "bytes" for name, field in self._fields.items() if field.kind == "json"
                            and field.options.get("dtype", "u8") == "u8" and not field.options.get("shape")})
        self._convert = _FORMATS[format]
        self._copy = copy
        self._columns = tuple(columns) if columns is not None else None
        self._map: Optional[_map.Map] = None
        if outputs and not (map or map_factory or map_serial or decode):
            raise errors.ConfigError("outputs: there is no map that returns them")
        if map or map_factory or map_serial or decode:
            self._map = _map.Map(map, map_factory, map_serial, decode or {}, _map.inputs_of(self._fields, decode or {}), outputs or {})
            self._map_version: Union[None, int, str] = map_version
        else:
            self._map_version = None
            if map_version:
                raise errors.ConfigError("map_version: there is no map")
            for name, field in self._fields.items():
                if _map.is_hidden(field):
                    raise errors.ConfigError("field %s: hidden has no effect: there is no map that sees it" % name)
        if collate and columns is not None:
            raise errors.ConfigError("collate gets dicts of all fields: leave columns out")
        self._collate = collate
        for name in self._columns or ():
            if name.split(":")[0] not in {**self._fields, **(outputs or {})} and not name.startswith("__"):
                raise errors.ConfigError("columns: there is no field %r, only %s" % (name, ", ".join(self._fields)))
        self._transform = transform
        self._transform_version = transform_version
        if transform_version or map_version:
            options["transform_version"] = _number_of(
                "%s, map %s" % (transform_version, map_version) if map_version else transform_version)
        self._was: Optional[str] = None
        if profile_against is not None:
            options["profile"] = 1
            if isinstance(profile_against, Mapping):
                self._was = json.dumps(profile_against)
            else:
                with open(profile_against, encoding="utf-8", errors="surrogateescape") as file:
                    self._was = file.read()
            _penstock.profile_drift(self._was, '{"fields": {}}')  # raises an error if it is not a profile
        if format == "numpy":
            options.setdefault("device_pixels", "off")  # NumPy reads host memory
        more: Dict[str, Any] = _mix.options_of(options.get("mix"), self._set_names, len(self._shards))
        self._feed: Optional[_order.Feed] = None
        if _order.is_numbers(options.get("order")):
            world_of = int(world or 1)
            if options.get("global_batch"):
                batch = int(options["global_batch"]) // world_of
            more, batch, fed = _order.options_of(options["order"], batch)
            if fed:
                self._feed = _order.Feed(
                    options["order"], batch, drop_last=options.get("end") in ("drop_last", 1),
                    steps=int(options.get("steps") or 0), rank=int(rank or 0), world=world_of)
        if options.get("weights") is not None and not isinstance(options["weights"], str):
            more.update(weights=None, sample_weights=_order.weights_of(options["weights"]))
        self._options = {"batch": 64 if batch is None else batch, "rank": rank, "world": world, **options}
        self._arguments = {
            "fields": given, "format": format, "copy": copy, "columns": columns, "transform": transform,
            "transform_version": transform_version, "mount": mount, "map": map, "map_factory": map_factory,
            "map_serial": map_serial, "decode": decode, "outputs": outputs, "map_version": map_version, "collate": collate,
            "profile_against": None if self._was is None else json.loads(self._was), "source": source}
        self._names: Optional[List[str]] = None  # names of a batch's tensors, from the first batch, and ...
        self._plain: Any = None  # ... those that Batch.fill() can pass to `_take`; None: it is not used
        self._take: Any = None
        self._newest = object()  # the mark of the newest iterator, as long as that is valid
        self._running: Callable[[], Optional[_Epoch]] = lambda: None
        self._began = 0  # batches delivered before the newest iterator
        self._base: Optional[int] = 0  # `num_samples` of the state at the beginning of that iterator
        self._over = True  # the newest iterator has ended
        self._next_epoch = self._current = int(options.get("epoch") or 0)
        self._pending = state  # the state to begin with, as the caller gave it, until a batch was delivered
        self._peeked = 0  # batches that peek() took
        self._gathers = False  # it is the loader of a penstock.torch.DataLoader
        self._answered = ""  # "len()" or "samples()", if that was answered while the rank may still change
        self._at = -1  # the index in its epoch of the batch that was delivered last
        self._told = 0  # lost shards that were reported
        self._warned: Set[str] = set()
        self._fresh = True  # the next iterator continues from the current position: the beginning, or a loaded state
        if isinstance(options.get("budget"), Budget):
            more["budget"] = options["budget"]._capsule
        if options.get("gpu_decode"):
            nvjpeg.load()
            if options["gpu_decode"] == "auto":
                more["gpu_decode"] = -1.0
        if state is not None:
            more["state"], self._next_epoch = _state_of(state, transform_version, self._map_version)
            if self._feed:
                self._feed.go(self._feed.read(state.get("order")))
        if paths is None:
            paths = self._local(mount, self._options, rows)
        self._raw = _penstock.Loader(
            paths, {**self._options, **more},
            self._map.fields() if self._map else [field.as_dict(name) for name, field in self._fields.items()],
            self._map, self._calls)
        self._raw_next = self._raw.next
        if self._feed:
            self._feed.attach(self._raw)
            self._raw_next = self._next_fed
        if self._map:
            self._raw_next = functools.partial(self._explained, self._raw_next)
        packs = any("pack" in field.options for field in self._fields.values())
        left_out = self._raw.stats()["tokens_warning"] if packs else ""
        for text in [*(_missing_of(paths) if rows is None else ()), *([left_out] if left_out else [])]:
            warnings.warn(text, stacklevel=2)

    options = property(
        lambda self: dict(self._options),
        doc="The options that were given. help(penstock.Loader.__init__) explains them, and help(penstock.Image) and those of the\n"
        "other kinds explain the options of fields.",
    )

    def _source_of(self, source: Any) -> Optional[_source.Source]:
        """The source of columns, if the shards are units of one."""
        self._calls: Optional[_source.Calls] = None
        if source is None or source in ("auto", 0):
            return _source.Parquet() if _source.is_parquet(self._shards) else None
        return None if isinstance(source, (str, int)) else _source.check(source)

    def _local(self, mount: Optional[Mapping[str, Any]], options: Mapping[str, Any], rows: Optional[_source.Source]) -> List[Any]:
        """The paths of the shards, with URLs mounted; of a source the units."""
        self._mounts: List[remote.Mount] = []
        if rows is None or isinstance(rows, _source.Parquet):
            paths, self._mounts = remote.local(
                self._shards, mount or {}, rows is None and _needs_indexes(options),
                any(field.kind == "tokens" for field in self._fields.values()))
            if rows is None:
                return paths
        else:
            paths = self._shards
        try:
            calls = self._calls = _source.Calls(rows)
            units = _source.units(rows, paths, options.get("index_dir"))
            if isinstance(rows, _source.Parquet):
                calls.ranges = rows.ranges([unit for one in units for unit in one.split("\n")])
            return units
        except BaseException:
            for one in self._mounts:
                one.close()
            raise

    # -- Ranks --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Asks for rank and world again if they were not given, and a process group has appeared since the loader was
        made, as in Lightning's scripts and with mp.spawn. If they differ, opens again at the same place."""
        found = group_rank_and_world() if self._asks else None
        if found is None:
            return
        was, answered = (self._options["rank"], self._options["world"]), self._answered
        if found != was:
            if self._delivered():
                raise RuntimeError(
                    "this loader has delivered batches as rank %d of %d, but this process is rank %d of %d of a process "
                    "group that was made later: make the loader after the process group, or pass rank= and world="
                    % (was + found))
            nodes = {"ranks_per_node": ranks_per_node(found[1])} if "ranks_per_node" in self._defaults else {}
            self._reopen(rank=found[0], world=found[1], **nodes, **self._end_of(found[1]))
            if answered:
                _warn("%s of this loader was answered for rank %d of %d, before there was a process group; this "
                      "process is rank %d of %d, so the answer has changed" % ((answered,) + was + found))
        self._asks = False

    def _sources(self) -> Any:
        """The shards as they were given."""
        return self._shards if self._set_names is None else dict(zip(self._set_names, self._shards))

    def _delivered(self) -> int:
        return int(self._raw.stats()["batches"]) - self._peeked

    def _own_arguments(self) -> Dict[str, Any]:
        arguments = {**self._options, **self._arguments}
        for name in self._defaults if self._asks else ():
            del arguments[name]
        return arguments

    def _reopen(self, **changes: Any) -> None:
        """Opens again, with these options, at the same place. If that fails, the loader stays as it was."""
        epoch, mounts, warned, gathers, shards = self.epoch, self._mounts, self._warned, self._gathers, self._sources()
        state = self.state_dict() if self._delivered() else self._pending
        was, asks, defaults = {**self._options, **self._arguments}, self._asks, self._defaults
        arguments = {**self._own_arguments(), **changes}

        def make(arguments: Dict[str, Any]) -> None:
            Loader.__init__(self, shards, state=state, **arguments)
            self._warned, self._gathers = warned, gathers
            if state is None and epoch != self.epoch:
                self.set_epoch(epoch)

        self._raw.close()  # withdraws the plan
        try:
            make(arguments)
        except BaseException:
            make(was)
            self._asks, self._defaults = asks, defaults
            raise
        finally:
            for mount in mounts:
                mount.close()

    def _gather(self) -> None:
        """For penstock.torch.DataLoader: from now on the end of an epoch is as gather_for_metrics() needs it."""
        gathers, self._gathers = self._gathers, True
        try:
            self._settle()
            end = self._end_of(self._options["world"])
            if end:
                self._reopen(**end)
        except errors.StateError as e:
            self._gathers = gathers
            raise errors.StateError(
                "penstock.torch.DataLoader deals the last step of an epoch otherwise (end=\"gather\"), so it cannot go on in an "
                "epoch that was begun with another end: make it before the loader's first batch, or give the loader "
                "end=\"gather\"; a state of another end is for the loader without penstock.torch.DataLoader") from e
        except BaseException:
            self._gathers = gathers
            raise

    def _end_of(self, world: int) -> Dict[str, Any]:
        """The end "gather" in place of one that gives all samples and the same number of batches to each rank."""
        replaced = world > 1 and self._options.get("end", "split") in ("split", "pad", 2, 3)
        return {"end": "gather"} if self._gathers and replaced and not _order.is_numbers(self._options.get("order")) else {}

    # -- Epochs -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch if the loader was just made, or moved by a state or set_epoch(); else the epoch after
        the last one of which a batch was taken. (Lightning calls iter() once only to see whether that works.)"""
        self._settle()
        with self._raw:
            untouched = not self._fresh and self._taken() == 0
            if not untouched:
                self._base = self._pending_samples() if self._fresh else 0
            if untouched:
                self._next_epoch = self._current
            elif not self._fresh:
                self._pending = None
                self._warn_left()
                self._raw.set_epoch(self._next_epoch)
            self._fresh = False
            self._over = False
            self._began = self._raw.stats()["batches"]
            self._newest = object()
            if self._feed and not untouched:
                self._feed.begin(self._next_epoch)
            epoch = _Epoch(self)
            self._current = self._next_epoch
            self._next_epoch += 1
            self._running = weakref.ref(epoch)
            return epoch

    def _pending_samples(self) -> Optional[int]:
        return self._pending.get("num_samples") if self._pending else 0

    def _num_samples(self) -> Optional[int]:
        taken = self._taken()
        if self._fresh or taken is None:
            return self._pending_samples() if self._fresh else 0
        whole = int(self._options.get("global_batch") or int(self._options["batch"]) * int(self._options.get("world") or 1))
        return None if self._base is None else self._base + taken * whole

    def _taken(self) -> Optional[int]:
        """Batches of the current epoch that were delivered; None: there is no current epoch."""
        return None if self._over else self._raw.stats()["batches"] - self._began

    def _warn_left(self) -> None:
        if self._taken() == 1:
            self._warn_once("left", "epoch %d was left after one batch, and epoch %d begins; peek() and element_spec "
                                    "show what batches hold without using one up" % (self._current, self._next_epoch))

    def peek(self) -> Any:
        """A copy of the next batch, without taking that batch: of the current epoch as long as its iterator exists,
        else the first of the next epoch. None at the end of an epoch. Samples that were read ahead are read again,
        and count in stats() and profile()."""
        raw = self._peek()
        return None if raw is None else self._hand_out(raw)

    @property
    def element_spec(self) -> Dict[str, Spec]:
        """The shape and dtype of each field in the next batch: a dict of names to Spec. An epoch's last batch may
        have fewer rows."""
        raw = self._raw.get([0]) if self._feed else self._peek()
        if raw is None:
            raise ValueError("element_spec: the epoch is over")
        specs = {}
        for name in self._names or self._learn(raw):
            tensor = raw.field(name)
            rows = (int(self._options["batch"]) if self._feed else raw.rows,)
            field, _, what = name.partition(":")
            if isinstance(tensor, int):
                specs[name] = Spec((), "i64")
                continue
            if what in ("cu", "document") and "pack" in self._fields[field].options:
                parts = self._fields[field].options.get("cu_pad")
                specs[name] = Spec((parts and parts + (what == "cu"),), tensor.dtype)  # type: ignore[union-attr]
                continue
            if isinstance(tensor, tuple):
                specs[name] = Spec(rows + (None,) + tensor[0].shape[1:], tensor[0].dtype)
                continue
            shape = tensor.shape
            if name in self._channels_last:
                shape = shape[:-3] + (shape[-1],) + shape[-3:-1]
            longest = self._fields[field].options.get("pad_to") == _LONGEST if field in self._fields else False
            if longest and what in ("", "mask"):
                shape = shape[:1] + (None,) + shape[2:]
            specs[name] = Spec(rows + shape[1:], tensor.dtype)
        return specs

    def _peek(self) -> Any:
        self._settle()
        if self._feed:
            raise ValueError("peek: with an `order` that is iterated the next batch is not known before it is taken; "
                             "element_spec has its shapes")
        with self._raw:  # otherwise another thread's next() could take the next batch
            state = self._raw.state_save()
            try:
                if not self._fresh and not self._is_running():
                    try:
                        self._raw.set_epoch(self._next_epoch)
                    except ValueError:  # that was the last epoch
                        return None
                raw = self._explained(self._raw.next) if self._map else self._raw.next()
                self._began += raw is not None  # this batch does not count as delivered
                self._peeked += raw is not None
                return raw
            finally:
                self._raw.state_load(state)

    def _is_running(self) -> bool:
        """True if the newest iterator exists and is not at its end."""
        epoch = self._running()
        return epoch is not None and epoch._mark is self._newest

    def _learn(self, raw: "_penstock.Batch") -> List[str]:
        """Finds the names of batches' tensors, from the first batch."""
        self._names = [name for name in raw.names() if name not in _OF_EVERY_BATCH]
        if self._convert is not _to_torch or self._copy:
            return self._names
        _, knows_bool, self._take = _torch_import()
        plain: List[Any] = []
        for name in self._names:
            tensor = raw.field(name)
            other = isinstance(tensor, tuple) or name in self._channels_last
            boolean = not isinstance(tensor, (tuple, int)) and tensor.dtype == "bool"
            plain.append((name,) if other or (boolean and not knows_bool) else name)
        self._plain = tuple(plain)
        return self._names

    # -- Samples one at a time ----------------------------------------------------------------------------

    def samples_iter(self) -> Samples:
        """The samples one at a time, for programs that were written for such a stream (WebDataset, Hugging Face's streaming
        datasets): dicts of "__key__" and the fields. Bad samples and padding are left out. See penstock.Samples."""
        for name, value in (("transform", self._transform), ("collate", self._collate), ("columns", self._columns)):
            if value is not None:
                raise errors.ConfigError("samples_iter: this loader has %s=, which is for batches: leave it out, and use map= or "
                                         "rename()" % name)
        for name, field in self._fields.items():
            whole = {"cu", "document"}.intersection((field.options.get("parts") or "").split(","))
            if whole:
                raise errors.ConfigError("samples_iter: field %r has the part %r, which is of a whole batch: leave it out of "
                                         "parts=, or take batches" % (name, min(whole)))
        return Samples(self)

    def select(self, predicate: Callable[[Dict[str, Any]], Any]) -> Samples:
        """samples_iter().select(predicate): the samples for which the predicate is true. To leave samples out before they are
        read, use filter= or take=."""
        return self.samples_iter().select(predicate)

    def rename(self, keep: bool = True, **names: Union[str, Sequence[str]]) -> Samples:
        """samples_iter().rename(...): samples with other names. For batches, fields={"image": Image("jpg;png")} names them."""
        return self.samples_iter().rename(keep, **names)

    def _explained(self, call: Callable[..., Any], *args: Any) -> Any:
        """Calls the library, and raises the map's exception in place of the library's error."""
        assert self._map is not None
        try:
            return call(*args)
        except (errors.Error, MemoryError) as error:
            explained = self._map.explain(error)
            if explained is error:
                raise
        raise explained

    def _next_fed(self) -> Any:
        assert self._feed is not None
        with self._raw:
            try:
                return self._feed.next()
            finally:
                if self._feed.failed:
                    self._current = self._next_epoch  # the exception ended the epoch

    def _next_recorded(self) -> Any:
        record = sys.modules["torch"].autograd.profiler.record_function
        with record("penstock.next"):
            with record("penstock.wait"):
                raw = self._raw_next()
            if raw is None:
                return None
            self._at = raw.index
            return self._hand_out(raw)

    def _hand_out(self, raw: "_penstock.Batch") -> Any:
        batch: Any = Batch._of(self, raw)
        if self._columns is not None:
            batch = tuple(batch[name] for name in self._columns)
        if self._collate:
            batch = _map.collated(self._collate, batch)
        return self._transform(batch) if self._transform else batch

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _warn(text)

    def _tell_bad(self, raw: "_penstock.Batch") -> None:
        """Logs each shard that was lost since the last call, the first ones by name; warns of the first blank batch."""
        lost = self._raw.stats()["lost"]
        for shard, reason in lost[self._told : _LOST_LINES]:
            _log.warning("penstock: lost shard %s: %s", shard, reason)
        if self._told <= _LOST_LINES < len(lost):
            _log.warning("penstock: more shards were lost; stats() counts them, but they are not listed")
        self._told = len(lost)
        if not raw.valid:
            first = raw.bad_samples()[0]
            self._warn_once("blank", "batch %d of epoch %d has no good sample: its rows are blank (zeros, __valid__ 0); "
                            "the first is %r of %s: %s" % (raw.index, raw.epoch, first["key"], first["shard"], first["reason"]))

    def _tell_end(self) -> None:
        for text in self.drift() if self._was is not None else ():
            self._warn_once("drift " + text.split(" is ")[0], "drift: %s" % text)
        if self._raw.stats()["empty_epochs"]:
            self._warn_once("empty", "epoch %d had no batch on this rank: the shards hold no samples, or (end=\"drop_last\") "
                            "too few for a global batch; penstock-loader ls shows their samples" % self._current)

    @property
    def epoch(self) -> int:
        """The current epoch, or the epoch that the next iterator returns."""
        return self._next_epoch if self._fresh else self._current

    @property
    def dataset(self) -> Any:
        """Hugging Face's Trainer and Accelerate look for this member of a DataLoader, and so do many training scripts."""
        raise AttributeError(
            "a loader has no dataset: for len(loader.dataset) write loader.samples() (of this rank), for loader.dataset[i] "
            "loader.get([i]). Code that needs a DataLoader (Trainer, Accelerate's skip_first_batches) takes "
            "penstock.torch.DataLoader(loader)")

    batch_sampler = None  # Lightning looks for it in whatever has a sampler

    @property
    def sampler(self) -> "_Sampler":
        """An object whose set_epoch() training loops call at the beginning of each epoch, as of a DataLoader's
        DistributedSampler. Unlike Loader.set_epoch(), it leaves a loader as it is that has this epoch next or
        has just loaded a state in the middle of it."""
        return _Sampler(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterator return this epoch from its beginning."""
        with self._raw:
            self._raw.set_epoch(epoch)
            if self._feed:
                self._feed.go(None)
            self._newest = object()
            self._next_epoch = epoch
            self._fresh = True
            self._pending = None

    def __len__(self) -> int:
        """The number of batches of the current epoch, or of the next one. Raises UnknownLengthError, a TypeError, if
        a shard has no index (`penstock-loader index`)."""
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch.utils.data."):
            raise TypeError(_IS_THE_DATALOADER)
        return self._length(1)

    def __getitem__(self, number: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch.utils.data."):
            raise TypeError(_IS_THE_DATALOADER)
        raise TypeError("a loader has no loader[%s]: write loader.get([%s]) for a batch of samples by number, peek() or "
                        "next(iter(loader)) for a batch" % ((number, number) if isinstance(number, int) else ("...", "...")))

    def samples(self) -> int:
        """The number of samples of the current epoch, or of the next one, on this rank; errors as for len()."""
        return self._length(0)

    def _length(self, what: int) -> int:
        self._settle()
        if self._asks:
            self._answered = "len()" if what == 1 else "samples()"
        if self._feed:
            n = self._feed.length()[what % 2]
            if n is None:
                raise errors.UnknownLengthError(
                    "the length is not known: order is an iterable without a len() that gives it")
            return n
        return self._raw.length(self._next_epoch if self._fresh else self._current)[what]

    def get(self, numbers: Sequence[int]) -> Any:
        """A batch of the samples with these numbers, counted from 0 through the list of shards, whatever the order
        is. Needs an index of each shard. Samples are decoded on the calling thread; the current epoch is not changed."""
        if hasattr(numbers, "tolist"):  # a tensor, an array
            numbers = numbers.tolist()
        raw = self._explained(self._raw.get, numbers) if self._map else self._raw.get(numbers)
        return self._hand_out(raw)

    # -- State --------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """The consumer's position: batches that were delivered, not those that were read ahead. Plain types, for
        torch.save(), JSON, or torchdata. `epoch` and `num_samples` are for people and other programs: num_samples is the
        number of samples that all ranks received in the epoch, where each batch counts as a full one."""
        self._settle()
        return self._state_now()

    def _state_now(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {"version": _STATE_VERSION}
        with self._raw:
            state.update(epoch=self.epoch, state=base64.b64encode(self._raw.state_save()).decode("ascii"))
            state.update(transform_version=self._transform_version, map_version=self._map_version)
            if self._num_samples() is not None:  # not after a state of 0.3
                state["num_samples"] = self._num_samples()
            if self._shapes:
                state["shapes"] = {name: list(shape) for name, shape in self._shapes.items()}
            if self._feed:
                state["order"] = self._feed.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, mix: Optional[Literal["new"]] = None,
                        ignore: Optional[Literal["fields"]] = None) -> None:
        """Moves to the position of a saved state. The next iterator returns the remaining batches of that epoch.

        With another global batch the run goes on after the samples that were delivered. mix="new": another mix begins
        here; each dataset goes on after the samples that it has given, a new one begins at its first. ignore="fields":
        fields, transforms and maps may differ from those of the state."""
        if mix not in (None, "new"):
            raise errors.ConfigError("load_state_dict: mix is \"new\" or None, not %r; give the weights to Loader()" % (mix,))
        if ignore not in (None, "fields"):
            raise errors.ConfigError("load_state_dict: ignore is \"fields\" or None, not %r" % (ignore,))
        self._settle()
        flags = (_NEW_MIX if mix else 0) | (_OTHER_FIELDS if ignore else 0)
        raw, epoch = _state_of(state, *(state.get(name, None) for name in ("transform_version", "map_version"))) \
            if ignore and isinstance(state, MappingABC) else _state_of(state, self._transform_version, self._map_version)
        resume = self._feed.read(state.get("order")) if self._feed else None
        with self._raw:
            if self._map:
                self._map.forget()
            self._raw.state_load(raw, flags)
            if self._feed:
                self._feed.go(resume)
            self._newest = object()
            self._next_epoch = epoch
            self._fresh = True
            self._pending = state
            if flags:  # a state of this loader, which it can load without exceptions
                self._pending = self._state_now()

    # -- The rest -----------------------------------------------------------------------------------------

    def stats(self) -> Dict[str, Any]:
        """Counts, how long each stage's threads worked and waited, which one is the bottleneck, and advice.
        shards_lost counts shards that could not be opened or read; lost lists the first of them: (shard, reason).
        With profile_against, drift counts the differences found so far."""
        stats = self._raw.stats()
        if self._was is not None:
            stats["drift"] = len(self.drift())
        return stats

    def drift(self) -> List[str]:
        """With profile_against: the differences between that profile and the batches so far, a line each: labels that
        are new or moved, means and deviations. After few batches a difference may be due to chance."""
        if self._was is None:
            raise ValueError("drift() needs profile_against")
        return _penstock.profile_drift(self._was, self._raw.profile()).splitlines()

    def fingerprint(self) -> Dict[str, Any]:
        """A fingerprint of this run's data and order, for an experiment's log: `digest` is a hash of the shards' names, the
        order's options, and the fields with their transforms (and transform_version), the same for any number of ranks
        with the same global batch. The dict also has the hashed values one by one, and, if all shards have indexes,
        `samples` and a hash of their `counts`. Reads no shard."""
        fingerprint: Dict[str, Any] = json.loads(self._raw.fingerprint())
        return fingerprint

    def profile(self) -> Dict[str, Any]:
        """Statistics of the batches so far (with profile=1): channels' means and deviations, sizes, labels."""
        profile: Dict[str, Any] = json.loads(self._raw.profile())
        return profile

    def close(self) -> None:
        """Stops the threads and releases the mounts. The memory is freed as soon as no tensor is in use."""
        self._raw.close()
        for mount in self._mounts:
            mount.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        self._settle()
        state = self.state_dict() if self._delivered() or not self._asks else self._pending
        return _rebuild, (self._sources(), self._own_arguments(), state, self.epoch)

    def __repr__(self) -> str:
        return "penstock.Loader(%r, %s)" % (
            self._shards[0] if len(self._shards) == 1 else self._shards,
            ", ".join("%s=%s" % (k, _order.text_of(v) if k == "order" and _order.is_numbers(v) else repr(v))
                      if k == "order" or k != "weights" or isinstance(v, (str, type(None))) else "%s=<%d weights>" % (k, len(v))
                      for k, v in self._options.items()),
        )


class _Signature:
    """inspect.signature(Loader): all options by their names. That of __init__() is short, so that help(Loader) shows
    them once."""

    def __init__(self, function: Callable[..., None]) -> None:
        full = inspect.signature(function)
        self._of, self._full = function, full.replace(parameters=list(full.parameters.values())[1:])
        short = [p for name, p in full.parameters.items() if name in ("self", "shards")]
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*short, inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)])

    def __get__(self, loader: Any, owner: Any = None) -> inspect.Signature:
        if owner.__init__ is not self._of:
            raise AttributeError("__signature__")  # a class derived from Loader, with arguments of its own
        return self._full


Loader.__signature__ = _Signature(Loader.__init__)  # type: ignore[attr-defined]


class _Sampler:
    """See Loader.sampler."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterator return this epoch from its beginning, or from the position of a loaded state."""
        loader = self._loader
        loader._settle()
        if epoch != loader.epoch or (not loader._fresh and loader._taken() != 0):
            loader.set_epoch(epoch)


def _rebuild(
    shards: Any, arguments: Dict[str, Any], state: Optional[Mapping[str, Any]], epoch: int
) -> Loader:
    loader = Loader(shards, state=state, **arguments)
    if epoch != loader.epoch:
        loader.set_epoch(epoch)
    return loader
