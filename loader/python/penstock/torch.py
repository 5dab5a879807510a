"""Adapters for code that requires PyTorch's classes."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch.utils.data

from . import order as _order
from .errors import UnknownLengthError
from .loader import Loader


def _check_not_dispatched() -> None:
    """Raises if Accelerate distributes the batches of a dataset that are this rank's share already."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "accelerate.data_loader":
        frame = frame.f_back
    if frame is not None and sys.modules["accelerate"].PartialState().num_processes > 1:
        raise RuntimeError(
            "penstock.torch.Dataset in a DataLoader that Accelerate has prepared, with %d processes: Accelerate would "
            "divide batches that are one rank's share already. Use penstock.torch.DataLoader(loader), which prepare() "
            "leaves as it is" % sys.modules["accelerate"].PartialState().num_processes)


class Dataset(torch.utils.data.IterableDataset[Any]):
    """Whole batches of a Loader, for torch.utils.data.DataLoader(Dataset(loader), batch_size=None).

    num_workers must be 0: the loader has threads of its own, and workers would each deliver every batch. With
    Accelerate and Hugging Face's Trainer use penstock.torch.DataLoader instead.

    torchdata's StatefulDataLoader(Dataset(loader), batch_size=None) saves and loads the loader's state with its own,
    so a run continues in the middle of an epoch without reading its beginning.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        worker_info: Callable[[], Any] = torch.utils.data.get_worker_info
        if worker_info() is not None:
            raise RuntimeError(
                "penstock.torch.Dataset in a DataLoader worker: use num_workers=0; the loader has threads of its own"
            )
        _check_not_dispatched()
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterator give this epoch from its beginning. After load_state_dict() of a state of the same
        epoch it gives the rest of the epoch, since training loops call this also for the epoch that they continue."""
        self.loader.sampler.set_epoch(epoch)

    def state_dict(self) -> Dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)


class _Samples(torch.utils.data.IterableDataset[Any]):
    """The `dataset` of a DataLoader: its length is that of the epoch on all ranks, as that of a dataset whose samples a
    sampler deals to ranks. skip_first_batches() iterates over it: that gives this rank's batches."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return self._loader._length(2)

    def set_epoch(self, epoch: int) -> None:
        self._loader.sampler.set_epoch(epoch)


class DataLoader(torch.utils.data.DataLoader[Any]):
    """A Loader in the form of a DataLoader that Accelerate has prepared: Accelerator.prepare() leaves it as it is, and
    Hugging Face's Trainer takes it from get_train_dataloader() and get_eval_dataloader().

    Each process decodes its own share of the samples. With several processes all batches are full. In the last step
    the lowest ranks have the samples that are left; the rows after those repeat samples ("__valid__" is 0), and
    Accelerator.gather_for_metrics() drops them, so it returns each sample once. (That is end="gather" of the loader,
    which takes the place of "split" and "pad".)

    Gradient accumulation ends with the epoch, and batches come on Accelerate's device. Accelerator.save_state() and
    load_state() save and load the position; skip_first_batches() reads the batches that it drops.

    len() is the number of batches on this rank, len(dataset) the number of samples on all ranks.
    """

    _is_accelerate_prepared = True
    use_stateful_dataloader = True  # save_state() saves state_dict()
    end_of_dataloader = False
    remainder = -1  # samples of the last step; 0: it is full; -1: not known

    # skip_first_batches() builds a DataLoaderShard with these, `device` and `iteration`.
    rng_types: Optional[List[str]] = None
    synchronized_generator: Any = None

    def __init__(self, loader: Loader) -> None:
        torch.utils.data.DataLoader.__init__(self, _Samples(loader), batch_size=None)
        self.loader = loader
        self._ahead: Optional[Dict[str, Any]] = None  # the position, while one batch more was taken
        loader._gather()

    # For skip_first_batches(), which by this builds a DataLoaderShard that knows of epochs and of their end.
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return getattr(sys.modules.get("accelerate.data_loader"), "DataLoaderShard", DataLoader)

    def __iter__(self) -> Any:
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        accelerate = sys.modules.get("accelerate")
        gradients = accelerate.state.GradientState() if accelerate else None
        self.end_of_dataloader = False
        steps = iter(self.loader)
        self.remainder = self._remainder()
        if gradients:
            gradients._add_dataloader(self)
        try:
            for batch, self.end_of_dataloader in self._steps(steps):
                yield accelerate.utils.send_to_device(batch, self.device) if accelerate and self.device else batch
        finally:
            self._ahead = None
            if gradients:
                gradients._remove_dataloader(self)

    def _steps(self, steps: Iterator[Any]) -> Iterator[Tuple[Any, bool]]:
        """Batches, and whether each is the last one."""
        try:
            length = len(self.loader)
        except UnknownLengthError:  # then one batch more is taken to find out
            batch = next(steps, None)
            while batch is not None:
                self._ahead = self.loader.state_dict()
                following = next(steps, None)
                yield batch, following is None
                batch = following
            return
        for batch in steps:
            yield batch, self.loader._at + 1 == length

    @property
    def device(self) -> Any:
        """The device of this process that Accelerate has chosen; None: Accelerate is not in use."""
        state = getattr(sys.modules.get("accelerate"), "PartialState", None)
        return state().device if state and state._shared_state else None

    def _remainder(self) -> int:
        options = self.loader._options
        if options["world"] > 1 and (options.get("end") in ("uneven", 0) or _order.is_numbers(options.get("order"))):
            return -1
        try:
            return self.total_dataset_length % self.total_batch_size
        except UnknownLengthError:
            return -1

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def total_dataset_length(self) -> int:
        """The number of samples in an epoch on all ranks together."""
        return self.loader._length(2)

    @property
    def total_batch_size(self) -> int:
        """The number of rows in a step on all ranks together."""
        self.loader._settle()
        return int(self.loader._options["batch"]) * int(self.loader._options["world"])

    @property
    def iteration(self) -> int:
        """The epoch, by the name that Accelerate has for it."""
        return self.loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Like Dataset.set_epoch()."""
        self.loader.sampler.set_epoch(epoch)

    def state_dict(self) -> Dict[str, Any]:
        return self.loader.state_dict() if self._ahead is None else self._ahead

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ahead = None
        self.loader.load_state_dict(state)

    def __reduce__(self) -> Any:
        return DataLoader, (self.loader,)
