"""For code that insists on PyTorch's classes."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping

import torch.utils.data

from .loader import Loader


class Dataset(torch.utils.data.IterableDataset[Any]):
    """Whole batches of a Loader, for torch.utils.data.DataLoader(Dataset(loader), batch_size=None).

    num_workers must be 0: the loader has threads of its own, and workers would each deliver every batch.

    torchdata's StatefulDataLoader(Dataset(loader), batch_size=None) saves and loads the loader's state with its own,
    so a run continues in the middle of an epoch without reading its beginning.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._resumed = False  # a state was loaded, and no batch was taken since then

    def __iter__(self) -> Iterator[Any]:
        worker_info: Callable[[], Any] = torch.utils.data.get_worker_info
        if worker_info() is not None:
            raise RuntimeError(
                "penstock.torch.Dataset in a DataLoader worker: use num_workers=0; the loader has threads of its own"
            )
        self._resumed = False
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterator give this epoch from its beginning. After load_state_dict() of a state of the same
        epoch it gives the rest of the epoch, since training loops call this also for the epoch that they continue."""
        if not (self._resumed and epoch == self.loader.epoch):
            self.loader.set_epoch(epoch)
        self._resumed = False

    def state_dict(self) -> Dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)
        self._resumed = True
