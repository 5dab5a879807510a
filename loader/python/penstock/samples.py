"""Samples one at a time, for programs that were written for such a stream."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Sequence, Tuple, Union

from . import errors

if TYPE_CHECKING:
    from .loader import Loader

Sample = Dict[str, Any]
_Step = Callable[[Sample], "Sample | None"]


class Samples:
    """The samples of a loader, one at a time. Each iteration is one epoch, like that of the loader.

    A sample is a dict of "__key__" and the fields. A value is the row of a batch: a tensor of the loader's format (of no
    dimension for a number), or str or bytes. Rows that are not valid (bad samples, padding) are left out. The tensors
    are in the memory of their batch: pass copy=True to the loader if you keep samples.

    Samples are still read in batches. A state that is saved between two samples resumes after the batch that holds the
    first of them, so save states at multiples of `batch` samples.
    """

    def __init__(self, loader: "Loader", steps: Tuple[_Step, ...] = ()) -> None:
        self._loader = loader
        self._steps = steps

    def select(self, predicate: Callable[[Sample], Any]) -> "Samples":
        """The samples for which the predicate is true, as WebDataset's select()."""
        return Samples(self._loader, self._steps + (lambda sample: sample if predicate(sample) else None,))

    def rename(self, keep: bool = True, **names: Union[str, Sequence[str]]) -> "Samples":
        """Samples with other names, as WebDataset's rename(): rename(image="jpg;png", label="cls"). Of several old names
        the first that the sample has is taken. keep=False: other fields are dropped."""
        olds = {new: old.split(";") if isinstance(old, str) else list(old) for new, old in names.items()}
        replaced = {one for old in olds.values() for one in old}

        def renamed(sample: Sample) -> Sample:
            result = {name: value for name, value in sample.items() if keep and name not in replaced}
            for new, old in olds.items():
                found = [one for one in old if one in sample]
                if not found:
                    raise errors.ConfigError("rename: a sample has no %r, only %s%s" % (
                        ";".join(old), ", ".join(sample), errors.likely(old[0], list(sample))))
                result[new] = sample[found[0]]
            return result

        return Samples(self._loader, self._steps + (renamed,))

    def __iter__(self) -> Iterator[Sample]:
        for batch in self._loader:
            keys, valid = batch["__key__"], batch["__valid__"].tolist()
            for row in (row for row, good in enumerate(valid) if good):
                sample: "Sample | None" = {"__key__": keys[row], **{
                    name: value if isinstance(value, int) else value[row] for name, value in batch.items()}}
                for step in self._steps:
                    sample = sample and step(sample)
                if sample:
                    yield sample
