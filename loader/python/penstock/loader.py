"""The loader as Python sees it: an iterable of epochs, resumable, with batches as dicts of tensors."""
from __future__ import annotations

import base64
import functools
import hashlib
import json
import logging
import os
import re
import sys
import warnings
import weakref
from collections.abc import Mapping as MappingABC
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from . import _penstock, nvjpeg, remote
from . import map as _map
from . import order as _order
from . import shapes as _shapes
from .fields import Field, Image, Int
from .keywords import OF_FIELD, OF_LOADER, keywords
from .rank import rank_and_world, ranks_per_node

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keywords import LoaderOptions

Path = Union[str, "os.PathLike[str]"]

_STATE_VERSION = 1
_LOST_LINES = 16
_LONGEST = 0xFFFFFFFF  # PENSTOCK_PAD_LONGEST
_MISSING_PATHS = 64
_IS_THE_DATALOADER = (
    "the loader is the DataLoader: iterate over it, without torch.utils.data.DataLoader around it (get() gives samples "
    "by their numbers; penstock.torch.Dataset is for code that insists on a DataLoader)"
)
_log = logging.getLogger("penstock")
_OF_ORDER = ("numbers", "batch_ends", "sample_weights")  # made of order= and weights=
_OF_EVERY_BATCH = ("__key__", "__valid__", "__shard__", "__sample__")


class _Own:
    """What Ragged asks of a tensor, of a copy of its bytes."""

    def __init__(self, tensor: "_penstock.Tensor", kind: str) -> None:
        self._bytes = b"" if kind == "array" else tensor.tobytes()
        self._each = len(self._bytes) // max(len(tensor), 1)
        self.dtype = tensor.dtype

    def tobytes(self, start: int, stop: int) -> bytes:
        return self._bytes[start * self._each : stop * self._each]


class Ragged:
    """A field whose rows differ in length: row i is values[offsets[i]:offsets[i + 1]].

    Indexing gives a row: of a text field as str, of a bytes field as bytes, else as an array of the field's dtype (of the
    loader's format; NumPy's for JAX, which would compile a slice for each length). values and offsets are tensors of the
    loader's format.
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
        return data.decode() if self._kind == "text" else data

    def to(self, device: Any, non_blocking: bool = False) -> "Ragged":
        """A copy on this device (of torch), or this one if it is there."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Ragged":
        """A copy in pinned memory (of torch)."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: "Callable[[Any], Any]") -> "Ragged":
        values = function(self.values)
        if values is self.values:
            return self
        raw = self._raw if isinstance(self._raw, _Own) else _Own(self._raw, self._kind)
        return Ragged(values, function(self.offsets), (raw, self._at), self._kind)

    def _rows(self) -> Any:
        """What can be sliced: values, or NumPy's view of it."""
        if type(self.values).__module__.partition(".")[0] not in ("jax", "jaxlib", "penstock"):
            return self.values
        import numpy

        return numpy.asarray(self.values)

    def __iter__(self) -> "Iterator[Any]":
        return (self[row] for row in range(len(self)))

    def tolist(self) -> "List[Any]":
        """The rows: str, bytes, or lists of numbers."""
        return [row.tolist() for row in self] if self._kind == "array" else list(self)

    to_list = tolist

    def to_padded(self, value: Any = 0, length: Optional[int] = None) -> Any:
        """An array (of the format that rows have) of all rows, each filled up with `value` to the longest, or to `length`,
        at which longer ones are cut. Of text and bytes: their u8."""
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
        """A nested tensor of torch, a copy."""
        import torch

        rows = self.values if isinstance(self.values, torch.Tensor) else torch.as_tensor(self._rows())
        return torch.nested.nested_tensor([rows[a:b] for a, b in zip(self._at, self._at[1:])])

    def __repr__(self) -> str:
        return "penstock.Ragged(%d rows, %s)" % (len(self), self._raw.dtype)


class Spec(NamedTuple):
    """Of a field of a batch: its shape, with None for a length that differs from row to row or from batch to batch; its
    dtype, as penstock.Tensor says it."""

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
        t = from_dlpack(tensor)  # tells the stream that is current there
    elif knows_bool or tensor.dtype != "bool":
        t = from_dlpack(tensor.__dlpack__())  # a capsule: torch asks no more, which halves what a field costs
    else:
        import torch

        t = torch.from_numpy(_to_numpy(tensor, False))
    return t.clone() if copy else t


def _torch_device(device: Any) -> Any:
    """With the index that tensors there have."""
    import torch

    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    return where


@functools.lru_cache(maxsize=None)
def _torch_import() -> Tuple[Callable[[Any], Any], bool, Callable[[Any], Any]]:
    """torch's from_dlpack(), whether it knows DLPack's bool, as 2.0 and later do, and what from_dlpack() gives a capsule
    to."""
    import torch as imported

    torch: Any = imported  # its types lack some of what it exports
    return (torch.from_dlpack, int(torch.__version__.split(".")[0]) >= 2,
            getattr(torch._C, "_from_dlpack", torch.from_dlpack))


class _Copied:
    """A tensor in host memory whose consumer gets a copy, made before from_dlpack() returns. JAX's own are made later."""

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
        return cupy.asarray(_to_numpy(tensor, False))  # on its way to the device it is a copy
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


def _profiler_look() -> bool:
    """Whether torch's profiler records; sees to it that this is asked for little from now on, once torch is there."""
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


_profiler: Any = None  # torch's module with a flag for it, as of 2.1; asked where there is no ...
_profiler_asks: Optional[Callable[[], bool]] = _profiler_look  # ... function to ask, as before
_dict_new: Callable[..., Any] = dict.__new__


class _Copy:
    """What is left of a batch whose tensors were copied elsewhere."""

    def __init__(self, batch: "Batch") -> None:
        self.epoch, self.index = batch.epoch, batch.index
        self.rows, self.bad, self.valid = batch.rows, batch.bad, batch.valid

    def release(self) -> None:
        pass


class Batch(Dict[str, Any]):
    """A batch: a dict of field names to tensors of the loader's format, or Ragged. What belongs to a field has
    its name and more: "tokens:y", "text:mask", "text:lengths".

    Beside the fields, and not iterated over: "__key__" (Ragged of str), "__valid__" (u8: 0 for a row that
    repeats another, as of a bad sample or padding), "__shard__" and "__sample__" (i64: where each sample
    stands). epoch, index, rows, bad and valid are numbers; bad_samples() lists which and why. Where no sample
    of a batch is good (on_error="skip"), or none is left for this rank, its rows are blank: zeros, `missing_value` in
    optional integer fields, and "__valid__" 0, so that a loss weighted by it is not touched.

    Its memory is the loader's, and is used again once neither the batch nor one of its tensors is in use. With
    Loader(copy=True) tensors are the caller's own, and the batch holds no memory of the loader. On a GPU (device="cuda") the stream that was current when a
    tensor was taken waits for the batch, and the memory for what that stream was given before the last tensor
    went; other streams are named by record_stream(). "numpy" gives what was copied there, in host memory. Frameworks that move a batch to a device rebuild it, as
    Batch(dict): that one has the fields alone.
    """

    __slots__ = ("_raw", "_loader", "__dict__", "__weakref__")
    _raw: "_penstock.Batch"
    _loader: "Loader"
    _kept: Optional[Dict[str, Any]] = None  # with copy=True: what belongs to every batch
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
        """All is copied: keeps what may still be asked for, and gives the memory back."""
        self._kept = {name: self._make(name) for name in _OF_EVERY_BATCH}
        self._bad = self.bad_samples() if self._raw.bad else []
        try:
            self._raw.release()
        except BufferError:  # a framework lets go a little later, on a thread of its own
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
            if self.get(name) is None:
                self[name] = self._make(name)

    epoch = property(lambda self: self._raw.epoch, doc="The epoch it belongs to.")
    index = property(lambda self: self._raw.index, doc="Its place in the epoch, on this rank.")
    rows = property(lambda self: self._raw.rows, doc="Samples in it.")
    bad = property(lambda self: self._raw.bad, doc="Rows whose sample was bad.")
    valid = property(
        lambda self: self._raw.valid, doc="Rows that are valid: neither bad nor padding. 0: the batch is blank.")

    def bad_samples(self) -> List[Dict[str, Any]]:
        """A dict (row, shard, key, offset, reason) for each bad sample; of one that a map refused with its traceback."""
        return list(self._bad) if hasattr(self, "_bad") else self._raw.bad_samples()

    def release(self) -> None:
        """Gives the memory back now. Tensors that were taken from it must be gone."""
        self.clear()
        self._raw.release()

    def to(self, device: Any, non_blocking: bool = False) -> "Batch":
        """A copy with all tensors (torch's) on this device, which holds no memory of the loader, or this one if they
        are there or are not torch's. What belongs to every batch ("__valid__" ...) and the numbers go with it. From memory that is not
        pinned the copy is made before this returns, whatever non_blocking is: see pin_memory()."""
        where = _torch_device(device)
        return self._map(lambda tensor: tensor.to(where, non_blocking=non_blocking), where)

    def pin_memory(self) -> "Batch":
        """A copy in pinned memory of torch's own, from which to(device, non_blocking=True) copies while the program
        goes on. Without CUDA this batch. DataLoader(pin_memory=True) calls it. (device="cuda" needs neither: its
        batches are sent while others are decoded.)"""
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
        """Another stream (torch's, CuPy's, or its address) that works with the batch: what it is given from now on
        waits for the batch, and the batch's memory for what it was given before the release. Nothing with copy=True:
        the copies are the framework's own."""
        if self._kept is None:
            self._raw.record_stream(stream)

    def synchronize(self) -> None:
        """Waits until the batch has arrived on its device. Nothing with copy=True."""
        if self._kept is None:
            self._raw.synchronize()

    def __missing__(self, name: str) -> Any:
        if name not in _OF_EVERY_BATCH or not hasattr(self, "_raw"):
            raise KeyError(name)
        return self._make(name) if self._kept is None else self._kept[name]

    def _make(self, name: str) -> Any:
        raw = self._raw.field(name)
        convert, copy = self._loader._convert, self._loader._copy
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
    """By the name that a batch gives them."""
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
                raise ValueError("two fields are called %r: give them names, fields={...}" % name)
            named[name] = field
    for name, field in named.items():
        if not isinstance(field, Field):
            raise TypeError("field %r: a penstock.Field is needed, as Image(%r), Int(%r) or Bytes(%r), not %r"
                            % (name, name, name, name, field))
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
        raise ValueError("%r is not a size: 512M, 2GiB and 1000000 are" % value) from None


def _state_of(
    state: Mapping[str, Any], transform_version: Union[int, str], map_version: Union[None, int, str]
) -> Tuple[bytes, int]:
    """What state_dict() holds: libpenstock's state, and the epoch. Of a text libpenstock knows a hash alone."""
    if not isinstance(state, MappingABC) or state.get("version") != _STATE_VERSION:
        raise _penstock.StateError("this is no state of a penstock.Loader, or of a newer one")
    theirs = state.get("transform_version", transform_version)
    if theirs != transform_version:
        raise _penstock.StateError("the state is of a loader with transform_version %r, but this one has %r; open it with the "
                                   "transform that it was saved with" % (theirs, transform_version))
    theirs = state.get("map_version", map_version)
    if theirs != map_version:
        raise _penstock.StateError("the state is of a loader with %s, but this one has %s; open it with the map that it was saved "
                                   "with" % tuple("no map" if v is None else "map_version %r" % v for v in (theirs, map_version)))
    try:
        return base64.b64decode(state["state"], validate=True), int(state["epoch"])
    except (KeyError, TypeError, ValueError) as e:
        raise _penstock.StateError("this state is damaged: %s" % e) from None


class Budget:
    """Bytes that several loaders may hold together: Loader(..., budget=budget) for each.

    A copy in another process, as of a pickled loader, is a budget of its own.
    """

    def __init__(self, size: Union[int, str]) -> None:
        self.size = _bytes_of_size(size)
        self._capsule = _penstock.budget_new(self.size)

    used = property(lambda self: _penstock.budget_used(self._capsule), doc="Bytes that are taken from it.")

    def __reduce__(self) -> Any:
        return Budget, (self.size,)

    def __repr__(self) -> str:
        return "penstock.Budget(%d)" % self.size


def _number_of(version: Union[int, str]) -> int:
    """A version as a number of 64 bits; texts by their hash."""
    if isinstance(version, int):
        return version
    return int.from_bytes(hashlib.sha256(version.encode()).digest()[:8], "little") or 1


def _warn(text: str) -> None:
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals is globals():  # the line to blame is the caller's
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _warn_added(batches: int, index: int, epoch: int, holds: int) -> None:
    """Called by _penstock.Loader.next(), of the first batch that it made beside `depth`."""
    _warn("all %d batches are held (the oldest, batch %d of epoch %d, by %d tensors, arrays or Batch objects), so there are "
          "more from now on, within memory_budget. A framework that works asynchronously, as JAX, needs them; else let go "
          "of batches, or keep copies (copy=True)" % (batches, index, epoch, holds))


def _look() -> None:
    """Called by _penstock.Loader.next() as long as it waits, where there is no GIL. On the way into any function
    a thread frees what others dropped of its objects."""


class _Epoch:
    """The rest of one epoch. Only the newest one of a loader goes on."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader
        self._mark = loader._newest

    def __iter__(self) -> "_Epoch":
        return self

    # Between steps of a model nothing of this is in a cache: it calls and touches as little as it can.
    def __next__(self) -> Any:
        loader = self._loader
        if self._mark is not loader._newest:
            if self._mark is None:
                raise StopIteration  # it is over
            raise RuntimeError("this iterator is no longer valid: another one of its loader was begun")
        batch: Any
        asks = _profiler_asks  # once: another thread may take it away
        if asks() if asks else _profiler._is_profiler_enabled:
            batch = loader._next_recorded()
        else:
            batch = loader._raw_next()
            if batch is not None:
                batch = loader._hand_out(batch)
        if batch is None:
            self._mark = None
            loader._tell_end()
            loader._over = True
            loader._current = loader._next_epoch  # that is where it stands, and what a state is of
            raise StopIteration
        return batch


def _missing_of(shards: Sequence[Path]) -> List[str]:
    """What penstock mounts that these shards are on say of listed files that their origins have not."""
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
    """Of shards that have none the loader would refuse these."""
    if options.get("index_dir"):
        return False
    counted = int(options.get("world") or 1) > 1 and options.get("end") not in ("uneven", 0)
    counted = counted and not options.get("steps")
    order = options.get("order")
    ordered = _order.is_numbers(order) or (isinstance(order, str) and order == "permutation")
    return counted or ordered or any(options.get(name) is not None for name in ("filter", "weights", "balance"))


class Loader:
    """Batches from WebDataset shards; iterating over it once is one epoch.

    shards: a path, folder or pattern, or several (with mix=[...] each is a dataset, and these are their weights):
        "/data/train-{000000..001281}.tar", "/data/train-*.tar", "/data/train", "a.tar::b.tar", "@list.txt".
        Or URLs (s3://, gs://, az://, hf://, https://), which the program `penstock` mounts for as long as the
        loader is there: "s3://bucket/train/{000000..001281}.tar", "s3://bucket/train/". See penstock.mount().
    batch: rows of a batch on this rank; by default 64, or as many as the batches of `order` have.
    fields: a dict of names to penstock.Field (Image(), Int(), Bytes(), ...), or a list of fields, called by
        their suffix. By default an image "jpg" and an optional integer "cls".
    format: what tensors come as: "torch", "numpy", "jax", "cupy", or None for penstock.Tensor, which all of
        them take through DLPack. No bytes are copied (but to a device).
    copy: True: tensors are the caller's own. False: they are in the loader's memory, which is used again once
        they are gone. While all `depth` batches (default 4) are held the next one waits for a moment, and then takes
        memory for one more, with one warning; BatchesHeldError is raised when memory_budget is used up.
    columns: names; batches come as tuples of these fields instead of dicts.
    transform: a callable that gets each batch (or tuple) and returns what is handed out.
    transform_version: a number or text that belongs to it: change it with what the callable does. It is in the fingerprint,
        and a state saved with another one is refused.
    map: a function that gets each sample on the loader's threads, before batches are put together: a dict of its decoded
        fields (NumPy arrays, numbers, str, bytes), and as a second argument, if it has one, a numpy.random.Generator of the
        sample's own. It changes the dict, or returns another: fields of a fixed shape are taken from it, and `outputs`.
        Fields with hidden=1 are for it alone. What it draws from that generator is the same for any number of threads and
        after a resume. What it raises makes the sample bad.
    map_factory: makes such a function for each thread; its set_random_seed(), as Albumentations' pipelines have, is called
        for each sample.
    map_serial: such a function of which one call runs at a time, with Python's, NumPy's and torch's global generators
        seeded for each sample, as torchvision's v2 transforms need them.
    decode: functions by fields, or by suffixes of members: decode={"pth": f} gets the bytes, and what it returns is the
        sample's value.
    outputs: a dict of names to Output(shape, dtype): what the map returns beside fields, or in place of them.
    map_version: as transform_version, of the map and of decode.
    collate: a callable that gets a list of the rows, a dict each, and returns what is handed out.
    profile_against: a profile (a dict of profile(), or its JSON file) that the data is compared with at the end of each
        epoch; what differs is a warning, once, and in drift() and stats()["drift"].
    rank, world: this process's share; by default those of torch.distributed or of the launcher's environment
        (see rank_and_world()); then ranks_per_node is LOCAL_WORLD_SIZE, too.
    mount: options of penstock.mount() for shards that are URLs, as {"endpoint": "https://minio.example.org"}.
    state: a state_dict() to begin with, so that nothing is read of the epoch's beginning.
    gpu_decode: with device="cuda": the share of JPEGs that the GPU decodes, 0 to 1, or "auto". Its pixels are not
        quite the processor's.
    order: "window" (default), "shards", "none", "permutation" (all samples with all others); or sample numbers, counted
        from 0 through the list of shards, as get() does: see SAMPLERS.
    All other options have a line each under __init__() below.

    With world > 1 all ranks have the same number of batches (end="split"), so that DDP and other synchronous training
    never wait for a rank that is done. That takes the number of samples of each shard, from its index
    (`penstock-loader index`), or steps=, the batches of an epoch; without them the loader refuses to open, unless
    end="uneven" says that ranks may differ.

    It is itself what torch's DataLoader is: iterate over it, and do not wrap it in one. For code that insists on a
    DataLoader there is penstock.torch.Dataset.

    SAMPLERS. order= takes this rank's sample numbers, and no world splits them again; numbers may repeat. Each shard needs an
    index (`penstock-loader index`, or index="make"), and shards of a penstock mount must be in its cache, unless
    permute_remote=1. filter, weights, balance, mix, skip, take and repeat do not go with it; steps= ends an epoch early.
      An array (list, range, NumPy array, tensor) of numbers, or of batches of numbers (list of lists, two dimensions): the
        same in each epoch; 8 bytes a number. Its hash is in the state, which another array, rank or world is refused.
      An iterable, as torch's RandomSampler, WeightedRandomSampler, DistributedSampler or a batch_sampler, of numbers or of
        batches of numbers: iterated again in each epoch, after its set_epoch(epoch), if it (or its .sampler) has that. The
        thread that asks for batches takes `depth` batches ahead from it at most; what it raises is raised when its turn
        comes. A batch of numbers has `batch` rows at most, by default its batch_size. state_dict() has its own state, if
        it (or its iterator) has state_dict() and load_state_dict(); else as many batches are skipped, and if they are
        not the same numbers as before, StateError is raised. Another world is refused. An iterator goes on in the next
        epoch; one that never ends needs steps=, or its epoch does not end either.

    weights= takes a list or array of the weights of all samples, or the name of a column of the indexes. An array (8 bytes a
    sample), and a column with draws=N, are resampled systematically: an epoch (each pass of it) has exactly `draws` samples
    over all ranks (by default as many as there are), a sample of weight w comes draws * w / sum times, rounded up or down,
    in its own place of the order; with order="permutation" draws are independent. A column without draws= keeps w as a
    probability, or with replacement=1 as how often a sample comes on average. A state has a hash of the weights.

    A loader pickles as its options and its position, so it can be sent to a spawned process; a forked one must
    make its own. Threads: one at a time.
    """

    @keywords(OF_LOADER)
    def __init__(
        self,
        shards: Union[Path, Sequence[Path]],
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
        **more_options: Unpack[LoaderOptions],
    ) -> None:
        """What the class's help does not explain:"""
        options: Dict[str, Any] = dict(more_options)
        if format not in _FORMATS:
            raise ValueError("format: %r is none of %s" % (format, ", ".join(repr(f) for f in _FORMATS)))
        if (rank is None) != (world is None):
            raise ValueError("rank and world belong together: pass both, or neither")
        if rank is None:
            rank, world = rank_and_world()
            options.setdefault("ranks_per_node", ranks_per_node(world))
        self._shards: List[Path] = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
        if "memory_budget" in options:
            options["memory_budget"] = _bytes_of_size(options["memory_budget"])
        self._fields = _fields_of(fields)
        given, paths = self._fields, None
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        if any(field.inferred for field in given.values()):
            paths, self._mounts = remote.local(self._shards, mount or {}, _needs_indexes({**options, "rank": rank, "world": world}))
            known = state.get("shapes", {}) if isinstance(state, MappingABC) else {}
            self._shapes = _shapes.inferred(paths, given, options, known)
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
            raise ValueError("outputs: there is no map that returns them")
        if map or map_factory or map_serial or decode:
            self._map = _map.Map(map, map_factory, map_serial, decode or {}, _map.inputs_of(self._fields, decode or {}), outputs or {})
            self._map_version: Union[None, int, str] = map_version
        else:
            self._map_version = None
            if map_version:
                raise ValueError("map_version: there is no map")
            for name, field in self._fields.items():
                if _map.is_hidden(field):
                    raise ValueError("field %s: hidden has no effect: there is no map that sees it" % name)
        if collate and columns is not None:
            raise ValueError("collate gets dicts of all fields: leave columns out")
        self._collate = collate
        for name in self._columns or ():
            if name.split(":")[0] not in {**self._fields, **(outputs or {})} and not name.startswith("__"):
                raise ValueError("columns: there is no field %r, only %s" % (name, ", ".join(self._fields)))
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
            _penstock.profile_drift(self._was, '{"fields": {}}')  # or it is no profile
        if format == "numpy":
            options.setdefault("device_pixels", "off")  # it looks at host memory
        more: Dict[str, Any] = {}
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
            "profile_against": None if self._was is None else json.loads(self._was)}
        self._names: Optional[List[str]] = None  # of what a batch holds; its first one tells, and ...
        self._plain: Any = None  # ... which of them Batch.fill() can take for `_take`; None: it is not used
        self._take: Any = None
        self._newest = object()  # what the newest iterator has, too, as long as it goes on
        self._running: Callable[[], Optional[_Epoch]] = lambda: None
        self._began = 0  # batches before it
        self._over = True  # it came to its end
        self._next_epoch = self._current = int(options.get("epoch") or 0)
        self._told = 0  # shards lost
        self._warned: Set[str] = set()
        self._fresh = True  # the next iterator goes on from here, be it the beginning or a loaded state
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
            paths, self._mounts = remote.local(self._shards, mount or {}, _needs_indexes(self._options))
        self._raw = _penstock.Loader(
            paths, {**self._options, **more},
            self._map.fields() if self._map else [field.as_dict(name) for name, field in self._fields.items()], self._map)
        self._raw_next = self._raw.next
        if self._feed:
            self._feed.attach(self._raw)
            self._raw_next = self._next_fed
        if self._map:
            self._raw_next = functools.partial(self._explained, self._raw_next)
        for text in _missing_of(paths):
            warnings.warn(text, stacklevel=2)

    options = property(
        lambda self: dict(self._options),
        doc="The options that were given. There are:\n\n"
        + "\n".join("  %s: %s" % (k, row[-1]) for k, row in sorted(OF_LOADER.items()) if k not in _OF_ORDER)
        + "\n\nand for each field:\n\n"
        + "\n".join("  %s: %s" % (k, row[-1]) for k, row in sorted(OF_FIELD.items())),
    )

    # -- Epochs -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch where the loader was just made, resumed or set; else the one after the last
        that a batch was taken of. (Lightning calls iter() once only to see whether that works.)"""
        with self._raw:
            untouched = not self._fresh and self._taken() == 0
            if untouched:
                self._next_epoch = self._current
            elif not self._fresh:
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

    def _taken(self) -> Optional[int]:
        """Batches of the epoch under way; None: there is none."""
        return None if self._over else self._raw.stats()["batches"] - self._began

    def _warn_left(self) -> None:
        if self._taken() == 1:
            self._warn_once("left", "epoch %d was left after one batch, and epoch %d begins; peek() and element_spec show what "
                            "batches hold, and use up nothing" % (self._current, self._next_epoch))

    def peek(self) -> Any:
        """A copy of the batch that comes next, which it still is: of the epoch under way as long as its iterator is there,
        else the first of the next epoch. None at the end of an epoch. What was read ahead is read again, and
        stats() and profile() count it."""
        raw = self._peek()
        return None if raw is None else self._hand_out(raw)

    @property
    def element_spec(self) -> Dict[str, Spec]:
        """The shape and dtype of each field as the next batch has them: a dict of names to Spec. An epoch's last batch may
        have fewer rows."""
        raw = self._raw.get([0]) if self._feed else self._peek()
        if raw is None:
            raise ValueError("element_spec: the epoch is over")
        specs = {}
        for name in self._names or self._learn(raw):
            tensor = raw.field(name)
            rows = (int(self._options["batch"]) if self._feed else raw.rows,)
            if isinstance(tensor, tuple):
                specs[name] = Spec(rows + (None,) + tensor[0].shape[1:], tensor[0].dtype)
                continue
            shape = tensor.shape
            if name in self._channels_last:
                shape = shape[:-3] + (shape[-1],) + shape[-3:-1]
            field, _, what = name.partition(":")
            longest = self._fields[field].options.get("pad_to") == _LONGEST if field in self._fields else False
            if longest and what in ("", "mask"):
                shape = shape[:1] + (None,) + shape[2:]
            specs[name] = Spec(rows + shape[1:], tensor.dtype)
        return specs

    def _peek(self) -> Any:
        if self._feed:
            raise ValueError("peek: with an `order` that is iterated the next batch is not known before it is taken; "
                             "element_spec has its shapes")
        with self._raw:  # or another thread's next() would take what comes next
            state = self._raw.state_save()
            try:
                if not self._fresh and not self._is_running():
                    try:
                        self._raw.set_epoch(self._next_epoch)
                    except ValueError:  # that was the last one
                        return None
                raw = self._explained(self._raw.next) if self._map else self._raw.next()
                self._began += raw is not None  # it does not count as one that was handed out
                return raw
            finally:
                self._raw.state_load(state)

    def _is_running(self) -> bool:
        """The newest iterator is there, and not at the end."""
        epoch = self._running()
        return epoch is not None and epoch._mark is self._newest

    def _learn(self, raw: "_penstock.Batch") -> List[str]:
        """What batches hold, of the first of them."""
        self._names = [name for name in raw.names() if name not in _OF_EVERY_BATCH]
        if self._convert is not _to_torch or self._copy:
            return self._names
        _, knows_bool, self._take = _torch_import()
        plain: List[Any] = []
        for name in self._names:
            tensor = raw.field(name)
            other = isinstance(tensor, tuple) or name in self._channels_last
            plain.append((name,) if other or (tensor.dtype == "bool" and not knows_bool) else name)  # type: ignore[union-attr]
        self._plain = tuple(plain)
        return self._names

    def _explained(self, call: Callable[..., Any], *args: Any) -> Any:
        """What the library raises of a map, with what the map raised."""
        assert self._map is not None
        try:
            return call(*args)
        except (_penstock.Error, MemoryError) as error:
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
                    self._current = self._next_epoch  # what was raised ended the epoch

    def _next_recorded(self) -> Any:
        record = sys.modules["torch"].autograd.profiler.record_function
        with record("penstock.next"):
            with record("penstock.wait"):
                raw = self._raw_next()
            return None if raw is None else self._hand_out(raw)

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
        """Logs each shard that was lost since, the first ones by name; warns of the first blank batch."""
        lost = self._raw.stats()["lost"]
        for shard, reason in lost[self._told : _LOST_LINES]:
            _log.warning("penstock: lost shard %s: %s", shard, reason)
        if self._told <= _LOST_LINES < len(lost):
            _log.warning("penstock: further lost shards are counted in stats(), not named")
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
                            "too few for a global batch; penstock-loader ls shows what is in them" % self._current)

    @property
    def epoch(self) -> int:
        """The epoch under way, or the one that the next iterator gives."""
        return self._next_epoch if self._fresh else self._current

    @property
    def dataset(self) -> Any:
        """Hugging Face's Trainer and Accelerate look for a DataLoader's when they skip what a run has had."""
        raise AttributeError(
            "to skip the beginning of an epoch (resume_from_checkpoint, skip_first_batches) a DataLoader is needed: "
            "torch.utils.data.DataLoader(penstock.torch.Dataset(loader), batch_size=None)")

    def set_epoch(self, epoch: int) -> None:
        """The next iterator gives this epoch, from its beginning."""
        with self._raw:
            self._raw.set_epoch(epoch)
            if self._feed:
                self._feed.go(None)
            self._newest = object()
            self._next_epoch = epoch
            self._fresh = True

    def __len__(self) -> int:
        """Batches of the epoch that is under way, or comes next. Needs an index of each shard (`penstock-loader
        index`), or UnknownLengthError, which is a TypeError, is raised."""
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch.utils.data."):
            raise TypeError(_IS_THE_DATALOADER)
        return self._length(1)

    def __getitem__(self, number: Any) -> Any:
        raise TypeError(_IS_THE_DATALOADER)

    def samples(self) -> int:
        """Samples of that epoch on this rank; as len()."""
        return self._length(0)

    def _length(self, what: int) -> int:
        if self._feed:
            n = self._feed.length()[what]
            if n is None:
                raise _penstock.UnknownLengthError(
                    "the length is not known: order is iterated, and its len() does not tell it")
            return n
        return self._raw.length(self._next_epoch if self._fresh else self._current)[what]

    def get(self, numbers: Sequence[int]) -> Any:
        """A batch of the samples with these numbers, counted from 0 through the list of shards, whatever the order
        is. Needs an index of each shard. Samples are decoded here and now, beside the epoch under way."""
        raw = self._explained(self._raw.get, numbers) if self._map else self._raw.get(numbers)
        return self._hand_out(raw)

    # -- State --------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Where the consumer stands: counts what was handed out, not what was read ahead. Plain types, for
        torch.save(), JSON, or torchdata."""
        state: Dict[str, Any] = {"version": _STATE_VERSION}
        with self._raw:
            state.update(epoch=self.epoch, state=base64.b64encode(self._raw.state_save()).decode("ascii"))
            state.update(transform_version=self._transform_version, map_version=self._map_version)
            if self._shapes:
                state["shapes"] = {name: list(shape) for name, shape in self._shapes.items()}
            if self._feed:
                state["order"] = self._feed.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where a state was saved; the next iterator gives the rest of that epoch."""
        raw, epoch = _state_of(state, self._transform_version, self._map_version)
        resume = self._feed.read(state.get("order")) if self._feed else None
        with self._raw:
            if self._map:
                self._map.forget()
            self._raw.state_load(raw)
            if self._feed:
                self._feed.go(resume)
            self._newest = object()
            self._next_epoch = epoch
            self._fresh = True

    # -- The rest -----------------------------------------------------------------------------------------

    def stats(self) -> Dict[str, Any]:
        """Counts, how long each stage's threads worked and waited, which one is the bottleneck, and advice.
        shards_lost counts shards that could not be opened or read; lost names the first: (shard, reason). With
        profile_against, drift counts the differences found so far."""
        stats = self._raw.stats()
        if self._was is not None:
            stats["drift"] = len(self.drift())
        return stats

    def drift(self) -> List[str]:
        """With profile_against: what differs from that profile in the batches so far, a line each: labels that are new or
        moved, means and deviations. A few batches differ by chance."""
        if self._was is None:
            raise ValueError("drift() needs profile_against")
        return _penstock.profile_drift(self._was, self._raw.profile()).splitlines()

    def fingerprint(self) -> Dict[str, Any]:
        """What this run's data and order come from, for an experiment's log: `digest` is a hash of the shards' names, the
        order's options, and the fields with their transforms (and transform_version), the same for any number of ranks
        with the same global batch. Beside it these one by one, and of shards with indexes `samples` and a hash of their
        `counts`. Reads no shard."""
        fingerprint: Dict[str, Any] = json.loads(self._raw.fingerprint())
        return fingerprint

    def profile(self) -> Dict[str, Any]:
        """What the batches held (with profile=1): channels' means and deviations, sizes, labels."""
        profile: Dict[str, Any] = json.loads(self._raw.profile())
        return profile

    def close(self) -> None:
        """Ends the threads and frees the memory as soon as no tensor of it is in use. Lets go of mounts."""
        self._raw.close()
        for mount in self._mounts:
            mount.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _rebuild, (self._shards, {**self._options, **self._arguments}, self.state_dict())

    def __repr__(self) -> str:
        return "penstock.Loader(%r, %s)" % (
            self._shards[0] if len(self._shards) == 1 else self._shards,
            ", ".join("%s=%s" % (k, _order.text_of(v) if k == "order" and _order.is_numbers(v) else repr(v))
                      if k == "order" or k != "weights" or isinstance(v, (str, type(None))) else "%s=<%d weights>" % (k, len(v))
                      for k, v in self._options.items()),
        )


def _rebuild(shards: Sequence[Path], arguments: Dict[str, Any], state: Mapping[str, Any]) -> Loader:
    return Loader(shards, state=state, **arguments)
