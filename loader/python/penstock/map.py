"""Calls a Python function for each sample, on the loader's threads, before batches are put together."""
from __future__ import annotations

import atexit
import functools
import inspect
import os
import random
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _penstock
from .fields import Bytes, Field

_DTYPES = {"u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8",
           "f16": "f2", "f32": "f4", "f64": "f8", "bool": "?"}
_KEPT = 64  # failures that keep their frames
_MOST = 65536

Function = Callable[..., Any]

_serial = threading.RLock()  # guards the global generators, for all loaders; recursive, since a map may call another loader
_atexit = threading.Lock()  # so that maps_finish() is registered once


class Failure(NamedTuple):
    error: BaseException
    text: str  # the traceback


def is_hidden(field: Field) -> bool:
    return bool(field.options.get("hidden"))


def _takes_rng(function: Function) -> bool:
    """True if the function has a second parameter that must be given, or that is called rng."""
    try:
        parameters = [p for p in inspect.signature(function).parameters.values()
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):  # not a Python function
        return False
    return len(parameters) > 1 and (parameters[1].name == "rng" or parameters[1].default is inspect.Parameter.empty)


def _by_keywords(compose: Function) -> Function:
    """Wraps a pipeline of Albumentations, which takes a sample's fields as keywords."""
    return lambda sample: compose(**sample)


class _Own(threading.local):
    """The data of one thread: its function, generators, arrays that are used again."""

    def __init__(self) -> None:
        self.function: Optional[Function] = None
        self.reseed: Optional[Function] = None
        self.takes_rng = False
        self.arrays: Dict[str, Any] = {}
        self.rng: Any = None
        self.key: Any = None


def _references(arrays: Dict[str, Any], name: str) -> int:
    return sys.getrefcount(arrays[name])


class _Globals:
    """The global generators of Python, NumPy and torch: seeded for each sample, and restored after a unit."""

    def __init__(self) -> None:
        self._numpy = sys.modules.get("numpy")
        torch = sys.modules.get("torch")
        self._torch = getattr(torch, "default_generator", None)

    def __enter__(self) -> "_Globals":
        self._state = random.getstate()
        self._numpy_state = self._numpy.random.get_state() if self._numpy else None
        self._torch_state = self._torch.get_state() if self._torch else None
        return self

    def seed(self, number: int) -> None:
        random.seed(number)
        if self._numpy:
            self._numpy.random.seed(number & 0xFFFFFFFF)
        if self._torch:
            self._torch.manual_seed(number & 0x7FFFFFFFFFFFFFFF)

    def __exit__(self, *exc: Any) -> None:
        random.setstate(self._state)
        if self._numpy:
            self._numpy.random.set_state(self._numpy_state)
        if self._torch:
            self._torch.set_state(self._torch_state)


class Map:
    """The object that _penstock.Loader calls for each unit of rows.

    At most one of function, factory (makes a function for each thread) and serial (one call at a time) is given; none
    of them if there is only `decode`. inputs: fields by the names that functions see, with their names in the
    library; outputs: the declared outputs. Threads: any number at once.
    """

    def __init__(self, function: Optional[Function], factory: Optional[Callable[[], Function]], serial: Optional[Function],
                 decode: Mapping[str, Function], fields: Mapping[str, Field], outputs: Mapping[str, Field]) -> None:
        import numpy

        given = [f for f in (function, factory, serial) if f is not None]
        if len(given) > 1:
            raise ValueError("map, map_factory and map_serial exclude each other")
        for f in [*given, *decode.values()]:
            if not callable(f):
                raise TypeError("map, map_factory, map_serial and decode take functions, not %r" % (f,))
        self._numpy = numpy
        self._function = function or serial or (None if factory else self._identity)
        self._factory = factory
        self._decode = dict(decode)
        self._takes_rng = bool(given) and not factory and _takes_rng(given[0])
        self._serial = serial is not None
        self._lock = threading.Lock()  # guards `failures` and `fatal` alone
        self._making = threading.RLock()  # one factory call at a time: factories may share data
        self._own = _Own()
        # names that functions see, and names in the library: in batches an output replaces the input of the same name
        self.inputs: Dict[str, Tuple[str, Field]] = {}
        for name, field in fields.items():
            self.inputs[name] = (name + "@in" if name in outputs else name, field)
        self._outputs = dict(outputs)
        for name, field in self._outputs.items():
            if field.options.get("dtype", "f32") not in _DTYPES:
                raise ValueError("outputs: %s: NumPy has no dtype %r; take f32" % (name, field.options["dtype"]))
        self.failures: Dict[Tuple[str, str], Failure] = {}
        self.fatal: Optional[BaseException] = None
        probe = {"": numpy.empty(1)}
        self._unshared = _references(probe, "")
        at_exit()

    @staticmethod
    def _identity(sample: Any) -> Any:
        return sample

    def fields(self) -> List[Dict[str, Any]]:
        """The fields as dicts for _penstock.Loader."""
        seen_as = {name: inside for name, (inside, _) in self.inputs.items()}
        found = []
        for name, (inside, field) in self.inputs.items():
            entry = field.as_dict(inside)
            entry.setdefault("member", field.name)
            if inside != name:
                entry["hidden"] = 1
            for option in ("follow", "add_offset_of"):
                if entry.get(option) in seen_as:
                    entry[option] = seen_as[entry[option]]
            found.append(entry)
        return found + [field.as_dict(name) for name, field in self._outputs.items()]

    # -- A unit -------------------------------------------------------------------------------------------

    def __call__(self, unit: "_penstock.Unit") -> bool:
        """Runs the map for a unit of rows. False: the batch must fail."""
        try:
            if self._serial:
                with _serial, _Globals() as generators:
                    self._run(unit, generators)
            else:
                self._run(unit, None)
            return True
        except BaseException as error:  # not a bad sample: next() raises the error
            with self._lock:
                self.fatal = self.fatal or error
            return False

    def _prepare(self) -> Function:
        own = self._own
        if own.function is None:
            if self._factory:
                with self._making:
                    function: Optional[Function] = self._factory()
            else:
                function = self._function
            assert function is not None
            own.reseed = getattr(function, "set_random_seed", None) if self._factory else None
            own.takes_rng = _takes_rng(function) if self._factory else self._takes_rng
            if type(function).__module__.partition(".")[0] == "albumentations":
                function = _by_keywords(function)
            own.function = function
        return own.function

    def _run(self, unit: "_penstock.Unit", generators: Optional[_Globals]) -> None:
        function = self._prepare()
        own = self._own
        for i in range(len(unit)):
            # No variable refers to an earlier sample here; otherwise its arrays could not be used again.
            failed = self._sample(unit, i, function, own, generators)
            if failed is not None:
                self._keep(unit, i, failed)

    def _sample(self, unit: "_penstock.Unit", i: int, function: Function, own: _Own,
                generators: Optional[_Globals]) -> Optional[Exception]:
        try:
            seed = unit.info(i)[5] if own.takes_rng or own.reseed or generators else 0
            if own.reseed:
                own.reseed(seed & 0x7FFFFFFF)
            if generators:
                generators.seed(seed)
            sample = self._read(unit, i, own)
            given = dict(sample)  # the map may put other values into `sample`
            result = function(sample, self._rng(own, seed)) if own.takes_rng else function(sample)
            self._write(unit, i, given, sample if result is None else result)
            return None
        except MemoryError:
            raise
        except Exception as error:
            return error

    def _rng(self, own: _Own, seed: int) -> Any:
        """A generator of NumPy's Philox, at the beginning of the sample's own stream."""
        numpy = self._numpy
        if own.rng is None or sys.getrefcount(own.rng) > 2:
            own.key = numpy.random.Philox(key=0)
            own.rng = numpy.random.Generator(own.key)
        state = own.key.state
        state["state"] = {"counter": numpy.zeros(4, numpy.uint64), "key": numpy.array([seed, 0], numpy.uint64)}
        state.update(buffer_pos=4, has_uint32=0, uinteger=0)
        own.key.state = state
        return own.rng

    def _array(self, own: _Own, name: str, dtype: str, shape: Tuple[int, ...]) -> Any:
        """An array that nothing else refers to: the thread's array, unless a map kept that."""
        array = own.arrays.get(name)
        if array is not None:
            fits = array.shape == shape and array.dtype == _DTYPES[dtype] and array.flags.c_contiguous and array.flags.writeable
            del array
            if fits and _references(own.arrays, name) == self._unshared:
                return own.arrays[name]
        array = own.arrays[name] = self._numpy.empty(shape, _DTYPES[dtype])
        return array

    def _read(self, unit: "_penstock.Unit", i: int, own: _Own) -> Dict[str, Any]:
        sample: Dict[str, Any] = {}
        for name, (inside, field) in self.inputs.items():
            dtype, shape = unit.look(i, inside)
            if field.kind in ("bytes", "text") or (field.kind == "json" and dtype == "u8"):
                data = unit.bytes(i, inside)
                sample[name] = data if field.kind == "bytes" else data.decode()
                if name in self._decode:
                    sample[name] = self._decode[name](sample[name])
                continue
            if dtype not in _DTYPES:
                raise TypeError("field %s is %s, which NumPy does not have: give the field dtype f32, and declare an Output "
                                "for its %s" % (name, dtype, dtype))
            if shape:
                sample[name] = self._array(own, name, dtype, shape)
                unit.read(i, inside, sample[name])
            else:
                sample[name] = self._numpy.frombuffer(unit.bytes(i, inside), _DTYPES[dtype])[0].item()
        return sample

    def _write(self, unit: "_penstock.Unit", i: int, given: Mapping[str, Any], result: Any) -> None:
        if not isinstance(result, Mapping):
            raise TypeError("a map returns a dict of fields, not %s" % type(result).__name__)
        for name, field in self._outputs.items():
            if name not in result:
                raise KeyError("the map returned no %r, which outputs= declares" % name)
            shape = tuple(field.options.get("shape") or ())
            ragged = bool(shape and shape[0] == 0)
            value = self._value(name, result[name], field.options.get("dtype", "f32"), shape[1:] if ragged else shape, ragged)
            room = unit.write(i, name, value)
            if room is not None:
                raise ValueError("%s has %d items, and there is room for %d (max_bytes or pad_to of its Output)"
                                 % (name, len(value), room))
        for name, value in result.items():
            if name in self._outputs:
                continue
            entry = self.inputs.get(name)
            if entry is not None and self._is_written(entry[1]):
                dtype, shape = unit.look(i, entry[0])
                unit.write(i, entry[0], self._value(name, value, dtype, shape, False))
            elif name not in given or value is not given[name]:
                raise ValueError("the map returned %s %r, which outputs= does not declare: outputs={%r: penstock.Output(...)}"
                                 % ("another" if name in given else "a", name, name))

    @staticmethod
    def _is_written(field: Field) -> bool:
        """True if a map may return another value for the field without declaring an output."""
        if is_hidden(field) or field.kind not in ("image", "mask", "int64", "float", "npy"):
            return False
        return not (field.kind == "npy" and field.options.get("shape", (0,))[:1] == (0,))

    def _value(self, name: str, value: Any, dtype: str, shape: Tuple[int, ...], ragged: bool) -> Any:
        """Returns the value as an array of the declared dtype and shape."""
        numpy = self._numpy
        if isinstance(value, str):
            value = value.encode()
        array = numpy.frombuffer(value, "u1") if isinstance(value, (bytes, bytearray, memoryview)) else numpy.asarray(value)
        array = self._cast(name, value, array, dtype)
        have = array.shape[1:] if ragged and array.ndim > 0 else array.shape
        if have != shape or (ragged and array.ndim == 0):
            raise ValueError("%s has the shape %r, and was declared as %r"
                             % (name, array.shape, (0, *shape) if ragged else shape))
        return numpy.ascontiguousarray(array)

    def _cast(self, name: str, value: Any, array: Any, dtype: str) -> Any:
        """Converts the array, made of `value`, to the dtype. Each element must have a value there: an integer or bool
        the same one, a float the nearest one, which is infinite only if the element is."""
        numpy = self._numpy
        want = numpy.dtype(_DTYPES[dtype])
        if array.dtype == want:
            return array
        if array.dtype.kind not in "biuf" and not numpy.can_cast(array.dtype, want, "same_kind"):
            raise TypeError("%s is of dtype %s, and was declared as %s" % (name, array.dtype, dtype))
        with numpy.errstate(all="ignore"):
            cast = array.astype(want)
            if numpy.can_cast(array.dtype, want, "safe"):
                return cast
            wrong = self._misfits(value, array, cast)
        if wrong.any():
            at = numpy.unravel_index(int(wrong.argmax()), array.shape)
            raise ValueError("%s: %s%s has no value in %s" % (
                name, "element %s, " % ", ".join(str(int(n)) for n in at) if at else "", array[at], dtype))
        return cast

    def _misfits(self, value: Any, array: Any, cast: Any) -> Any:
        """Which elements of `array`, made of `value`, have no value in the dtype of `cast`."""
        numpy = self._numpy
        if cast.dtype.kind == "f":
            return numpy.isinf(cast) & ~numpy.isinf(array.astype("f8"))
        if array.dtype.kind != "f":  # the sign, since conversion to and fro hides that 2**63 became negative
            return (cast.astype(array.dtype) != array) | ((cast < 0) != (array < 0))
        if not hasattr(value, "dtype"):  # NumPy made floats of a list that may also hold large integers: compare its own elements
            return numpy.array(value, dtype=object) != cast.astype(object)
        if cast.dtype.kind == "b":
            return cast.astype(array.dtype) != array
        # as a float, the largest integer + 1 is exact
        return (cast.astype(array.dtype) != array) | (array >= float(numpy.iinfo(cast.dtype).max) + 1)

    # -- Failures --------------------------------------------------------------------------------------

    def _keep(self, unit: "_penstock.Unit", i: int, error: Exception) -> None:
        key, shard = unit.info(i)[:2]
        where = ""
        own = os.path.abspath(__file__)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) != own]
        if frames:
            where = " (%s:%s, in %s)" % (os.path.basename(frames[-1].filename), frames[-1].lineno, frames[-1].name)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        with self._lock:
            if len(self.failures) >= _KEPT:
                traceback.clear_frames(error.__traceback__)  # frames may refer to large objects
            if len(self.failures) >= _MOST:
                del self.failures[next(iter(self.failures))]  # the oldest failure, of a batch that was never delivered
            self.failures[shard, key] = Failure(error, text)
        line = " ".join(str(error).split()) or "no text"
        unit.fail(i, ("map: %s: %s" % (type(error).__name__, line)).encode()[: 250 - len(where.encode())].decode(errors="ignore") + where)

    def take(self, shard: str, key: str) -> Optional[Failure]:
        with self._lock:
            return self.failures.pop((shard, key), None)

    def forget(self) -> None:
        """Called when a state is loaded: drops failures of samples that were read ahead, which come again or never."""
        with self._lock:
            self.failures.clear()
            self.fatal = None

    def explain(self, error: BaseException) -> BaseException:
        """The exception to raise in place of the library's error."""
        with self._lock:
            fatal, self.fatal = self.fatal, None
            if fatal is not None and getattr(error, "errno", None) not in (None, 125):  # ECANCELED
                self.fatal, fatal = fatal, None
            where = (getattr(error, "shard", None), getattr(error, "key", None))
            found = [] if fatal else [k for k in self.failures if k[:2] == where]
            failure = self.failures.pop(found[0]) if found else None
        if fatal is not None:
            return fatal
        if failure is not None:
            error.__cause__ = failure.error
        return error


def at_exit() -> None:
    """Before Python ends, calls of Python code by loaders' threads end."""
    with _atexit:
        atexit.unregister(_penstock.maps_finish)
        atexit.register(_penstock.maps_finish)  # called before functions that were registered earlier


def collated(function: Callable[[List[Dict[str, Any]]], Any], batch: Mapping[str, Any]) -> Any:
    """The result of the function for a batch's rows, which it gets as torch's collate_fn does."""
    rows = len(batch["__key__"])
    return function([{name: value[row] for name, value in batch.items()} for row in range(rows)])


def inputs_of(fields: Mapping[str, Field], decode: Mapping[str, Function]) -> Dict[str, Field]:
    """Adds the members that functions decode, as fields of bytes that only the functions see."""
    found = dict(fields)
    for name in decode:
        if name not in found:
            found[name] = Bytes(name, hidden=1)
        elif found[name].kind not in ("bytes", "text"):
            raise ValueError("decode: field %r must be Bytes or Text" % name)
    return found
