"""For code that insists on PyTorch's classes."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import torch.utils.data

from .loader import Loader


class Dataset(torch.utils.data.IterableDataset[Any]):
    """Whole batches of a Loader, for torch.utils.data.DataLoader(Dataset(loader), batch_size=None).

    num_workers must be 0: the loader has threads of its own, and workers would each deliver every batch.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        worker_info: Callable[[], Any] = torch.utils.data.get_worker_info
        if worker_info() is not None:
            raise RuntimeError(
                "penstock.torch.Dataset in a DataLoader worker: use num_workers=0; the loader has threads of its own"
            )
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)
