"""Sample numbers as the order: arrays, and iterables of numbers or of batches of numbers, such as torch's samplers."""
from __future__ import annotations

import array
import collections
import copy
import operator
import zlib
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

from . import _penstock, errors

_NUMBERS = 4  # PENSTOCK_ORDER_NUMBERS
_BATCH = 64
_MASK = "order: sample numbers are needed, not true and false: numpy.flatnonzero(mask) gives those of a mask"


def is_numbers(order: Any) -> bool:
    """True if order= is not one of the words that name an order."""
    return order is not None and not isinstance(order, (str, int)) or isinstance(order, bool)


def _is_array(order: Any) -> bool:
    return isinstance(order, (SequenceABC, array.array)) or hasattr(order, "__array__")


def _is_batch(item: Any) -> bool:
    return _is_array(item) and getattr(item, "ndim", 1) > 0


def _number(value: Any) -> int:
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool"):
        raise TypeError(_MASK)
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError("order: %r is not a sample number" % (value,)) from None
    if not -(1 << 63) <= number < 1 << 63:
        raise IndexError("order: there is no sample %d" % number)
    return number


def _words(values: Any) -> bytes:
    """The numbers as bytes of int64."""
    if not hasattr(values, "__array__"):
        return array.array("q", map(_number, values)).tobytes()
    import numpy

    numbers = numpy.asarray(values)
    if numbers.dtype == bool:
        raise TypeError(_MASK)
    if numbers.dtype.kind not in "iu":
        raise TypeError("order: whole numbers are needed, not %s" % numbers.dtype)
    return numbers.astype(numpy.int64, copy=False).tobytes()


def _batch_words(batch: Any) -> bytes:
    if getattr(batch, "ndim", 1) != 1:
        raise ValueError("order: a batch of numbers has one dimension, not %d" % batch.ndim)
    return _words(batch)


def of_array(order: Any) -> Tuple[bytes, Optional[bytes], int]:
    """The numbers; the ends of the batches, if the order consists of batches; and the length of the longest batch."""
    ndim = getattr(order, "ndim", None)
    if ndim is not None and ndim not in (1, 2):
        raise ValueError("order: an array has one dimension (numbers) or two (batches of them), not %d" % ndim)
    if ndim == 2:
        rows, length = order.shape
        return _words(order), array.array("Q", range(length, (rows + 1) * length, length)).tobytes() if length else b"", length
    if ndim == 1 or len(order) == 0 or not _is_batch(order[0]):
        return _words(order), None, 0
    ends, longest, parts = array.array("Q"), 0, []
    for batch in order:
        if not _is_batch(batch):
            raise TypeError("order: %r comes among batches of numbers, but is not a batch" % (batch,))
        parts.append(_batch_words(batch))
        longest = max(longest, len(batch))
        ends.append(len(batch) + (ends[-1] if ends else 0))
    return b"".join(parts), ends.tobytes(), longest


def weights_of(weights: Any) -> bytes:
    """The weights as bytes of float64."""
    if not hasattr(weights, "__array__"):
        try:
            len(weights)  # an iterator would be used up
            return array.array("d", weights).tobytes()
        except TypeError:
            raise TypeError("weights: a column's name, or an array of numbers is needed, not %.100r" % (weights,)) from None
    import numpy

    numbers = numpy.asarray(weights)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise TypeError("weights: an array of numbers in one dimension is needed, not of %s in %d"
                        % (numbers.dtype, numbers.ndim))
    return numbers.astype(numpy.float64, copy=False).tobytes()


def options_of(order: Any, batch: Optional[int]) -> Tuple[Dict[str, Any], int, bool]:
    """Options for the library, the rows of a batch, and whether the order must be fed."""
    if _is_array(order):
        numbers, ends, longest = of_array(order)
        more = {"order": _NUMBERS, "numbers": numbers}
        if ends is not None:
            more["batch_ends"] = ends
        return more, batch or longest or _BATCH, False
    if not hasattr(order, "__iter__"):
        raise TypeError("order: a word, an array, a Sampler or another iterable is needed, not %r" % (order,))
    own = getattr(order, "batch_size", None)
    return {"order": _NUMBERS}, batch or (own if isinstance(own, int) and own > 0 else _BATCH), True


def text_of(order: Any) -> str:
    """A short repr()."""
    if _is_array(order):
        return "<%d numbers or batches>" % len(order)
    return repr(order)


class Feed:
    """Takes numbers from an iterable and feeds them to a loader, at most `depth` batches ahead.

    All of this happens in the thread that asks for batches, before the thread waits for the next one: the iterable is
    never touched by a thread of the library. Its exceptions are raised once the batches before them were delivered.

    `_ahead` has the batches that were fed and not delivered: the words of each batch, and the state of the sampler
    after that batch, if the sampler has one. So a saved state is that of the last batch delivered.
    """

    def __init__(self, order: Any, batch: int, *, drop_last: bool, steps: int, rank: int, world: int) -> None:
        self._order, self._batch, self._drop_last, self._steps = order, batch, drop_last, steps
        self._who = {"rank": rank, "world": world}
        self._once = hasattr(order, "__next__")  # an iterator continues in the next epoch
        self._of_batches: Optional[bool] = True if isinstance(getattr(order, "batch_size", None), int) else None
        self._raw: Any = None
        self._iterator: Optional[Iterator[Any]] = None
        self._ahead: Deque[Tuple[bytes, Any]] = collections.deque()
        self._again: Deque[Tuple[bytes, Any]] = collections.deque()
        self._error: Optional[Exception] = None
        self._used_up = False  # the iterable has ended in this epoch
        self.failed = False
        self._room = self._over = False
        self._done = True
        self._epoch = self._pulled = 0
        self._batches = self._hash = 0  # delivered in this iteration; and a hash of their numbers
        self._state: Any = None  # the sampler's state after the last batch delivered
        self._resume: Optional[MappingABC[str, Any]] = None
        self._told: Optional[MappingABC[str, Any]] = None  # what state() returns until a batch is delivered; None: a computed state

    def attach(self, raw: "_penstock.Loader") -> None:
        self._raw = raw

    # -- The iterable -------------------------------------------------------------------------------------

    def _sampler_state(self) -> Any:
        for of, what in (("iterator", self._iterator), ("sampler", self._order)):
            if hasattr(what, "state_dict") and hasattr(what, "load_state_dict"):
                return of, copy.deepcopy(what.state_dict()), self._used_up  # type: ignore[union-attr]
        return None

    def _pull(self) -> bytes:
        """The numbers of the next batch; b"": there is none."""
        iterator = self._iterator
        assert iterator is not None
        numbers = array.array("q")
        if self._used_up:
            return b""
        for item in iterator:
            if _is_batch(item):
                if numbers:
                    raise TypeError("order: a batch of numbers came after a number")
                self._of_batches = True
                words = _batch_words(item)
                if not words:
                    raise ValueError("order: batch %d of epoch %d has no numbers" % (self._pulled, self._epoch))
                return words
            self._of_batches = False
            numbers.append(_number(item))
            if len(numbers) == self._batch:
                return numbers.tobytes()
        self._used_up = True
        return b"" if self._drop_last and not self._of_batches else numbers.tobytes()

    def _next_words(self) -> Tuple[bytes, Any]:
        if self._again:
            return self._again.popleft()
        if self._steps and self._pulled >= self._steps:
            return b"", self._sampler_state()
        words = self._pull()
        return words, self._sampler_state()

    def _fill(self) -> None:
        """Feeds batches while there is room."""
        while self._room and not self._over:
            words, state = b"", None
            try:
                words, state = self._next_words()
                if not words and self._pulled == 0:
                    raise RuntimeError(
                        "order: the iterator is used up, so epoch %d has no batches: give a Sampler, an iterable that "
                        "begins again, or an array" % self._epoch if self._once and self._batches else
                        "order: the iterable gave no batch in epoch %d" % self._epoch)
                self._room = self._raw.feed(words)
            except Exception as e:
                self._error = e
                words = b""
                self._raw.feed(words)
            self._over = not words
            self._ahead.append((words, state))  # also at the end: the entry has the sampler's state there
            self._pulled += not self._over

    def _deliver(self) -> None:
        words, self._state = self._ahead.popleft()
        self._batches += 1
        self._told = None
        self._hash = zlib.crc32(words, zlib.crc32(b"%d" % len(words), self._hash))

    # -- The loader's side --------------------------------------------------------------------------------

    def _set_epoch(self) -> None:
        for what in (self._order, getattr(self._order, "sampler", None)):
            if what is not None and hasattr(what, "set_epoch"):
                what.set_epoch(self._epoch)
                break

    def begin(self, epoch: int) -> None:
        """Iterates again, or continues at a loaded state."""
        told = self.state() if self._done else None  # the loaded state, or the one at the end of the epoch before
        resume, self._resume = self._resume, None
        again = (*self._ahead, *self._again) if self._once and not resume else ()
        self._again = collections.deque(a for a in again if a[0])  # without the end of the epoch before
        self._ahead = collections.deque()
        self._error, self._room, self._over, self._done, self.failed = None, True, False, False, False
        self._used_up = bool(resume and resume.get("used_up"))
        self._epoch, self._pulled, self._state = epoch, 0, None
        self._set_epoch()
        if not self._once or resume:
            self._batches = self._hash = 0
        if resume and resume.get("of") == "sampler":
            self._order.load_state_dict(copy.deepcopy(resume["sampler"]))
            # The restored position may be the end of an epoch: the sampler then gives nothing, and begins an epoch afterwards.
            if resume["batches"] == 0 or self._used_up:
                for _ in self._order:  # it gave an item: the position was no end, and is restored again
                    self._order.load_state_dict(copy.deepcopy(resume["sampler"]))
                    break
            if resume["batches"] == 0:
                self._set_epoch()  # the state may contain the epoch before
        self._iterator = iter(self._order)
        if resume and resume.get("of") == "iterator":
            theirs: Any = self._iterator
            theirs.load_state_dict(copy.deepcopy(resume["sampler"]))
        if resume:
            self._skip(resume)
        self._told = told

    def _skip(self, resume: MappingABC[str, Any]) -> None:
        batches = resume["batches"]
        self._pulled = resume["of_epoch"]
        if "of" in resume:
            self._batches, self._hash = batches, resume["hash"]
            return
        for _ in range(batches):
            words = self._pull()
            if not words:
                break
            self._ahead.append((words, None))
            self._deliver()
        if self._batches < batches or (
                resume["hash"] != self._hash and all(resume[k] == self._who[k] for k in self._who)):
            raise errors.StateError(
                "order: its first %d batches have other numbers than when the state was saved, so the run cannot "
                "continue after them: seed the order by the epoch (set_epoch), or give it state_dict() and "
                "load_state_dict()" % batches)

    def next(self) -> Any:
        """As _penstock.Loader.next()."""
        if self._done:
            return None
        self._fill()
        raw = self._raw.next()
        if raw is not None:
            self._deliver()
            self._room = True
            return raw
        self._done, self._told = True, None
        self._state = self._ahead[-1][1] if self._ahead else None
        self._ahead.clear()
        error, self._error = self._error, None
        if error is not None:
            self.failed = True
            try:
                raise error
            finally:
                del error  # its traceback would keep this frame, and the callers' batches
        return None

    def length(self) -> Tuple[Optional[int], Optional[int]]:
        """The numbers of samples and batches of an epoch; None: not known."""
        try:
            n = len(self._order)
        except TypeError:
            return (None, self._steps) if self._steps else (None, None)
        if self._of_batches:
            return None, min(n, self._steps or n)
        batches = n // self._batch if self._drop_last else -(-n // self._batch)
        batches = min(batches, self._steps or batches)
        return min(n, batches * self._batch), batches

    def state(self) -> Dict[str, Any]:
        """The state as plain types, except for the sampler's own state."""
        told = self._told if self._resume is None else self._resume
        if told is not None:
            return dict(told)  # nothing was delivered since then
        begun = not self._done
        state: Dict[str, Any] = {"batches": self._batches if begun or self._once else 0,
                                 "of_epoch": self._pulled - sum(1 for words, _ in self._ahead if words) if begun else 0,
                                 "hash": self._hash if begun or self._once else 0, **self._who}
        if self._state is not None and (begun or self._state[0] == "sampler"):
            state["of"], state["sampler"], state["used_up"] = self._state
            state["used_up"] = state["used_up"] and begun
        return state

    def go(self, resume: Optional[MappingABC[str, Any]]) -> None:
        """Makes the next begin() continue at a state; None: at an epoch's beginning."""
        self._resume, self._told, self._state, self._done = resume, None, None, True

    def read(self, state: Any) -> Dict[str, Any]:
        """Checks a result of state(), for go()."""
        try:
            resume = {k: state[k] for k in ("batches", "of_epoch", "hash", "rank", "world")}
            if not all(isinstance(v, int) and v >= 0 for v in resume.values()):
                raise TypeError("no numbers")
            if "of" in state:
                resume.update(of=state["of"], sampler=state["sampler"], used_up=bool(state["used_up"]))
        except (KeyError, TypeError) as e:
            raise errors.StateError("this state is damaged: order: %s" % e) from None
        if "of" in resume and any(resume[k] != self._who[k] for k in self._who):
            raise errors.StateError(
                "the state has the sampler of rank %d of world %d, and this is rank %d of world %d: each rank "
                "continues with its own state" % (resume["rank"], resume["world"], self._who["rank"], self._who["world"]))
        if "of" in resume and resume["of"] == "sampler" and not hasattr(self._order, "load_state_dict"):
            raise errors.StateError("the state has a sampler's own state, but this order has no load_state_dict()")
        return resume
