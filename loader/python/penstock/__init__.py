"""Batches from WebDataset tar shards, decoded and shuffled by libpenstock's own threads.

    import penstock

    loader = penstock.Loader(
        "/mnt/imagenet/train-{000000..001281}.tar",
        batch=256,
        fields={"image": penstock.Image("jpg;jpeg", size=224), "label": penstock.Int("cls")},
        format="torch",
    )
    for epoch in range(90):
        for batch in loader:  # one epoch
            train(batch["image"], batch["label"])

The same options produce the same batches on any machine, for any number of threads. Loader describes all options.
"""
from ._penstock import Tensor, version
from .errors import (
    BadSampleError,
    BatchesHeldError,
    ConfigError,
    DamagedSampleError,
    Error,
    MissingFieldError,
    ShardChangedError,
    ShardDeniedError,
    ShardNotFoundError,
    ShardReadError,
    StateError,
    UnknownLengthError,
)
from .fields import Array, Boxes, Bytes, Field, Float, Image, Int, Json, Mask, OneOf, Output, RandomApply, Text, Tokens
from .loader import Batch, Budget, Loader, Ragged, Spec
from .plans import Plan, plan
from .rank import rank_and_world
from .remote import Mount, MountError, mount
from .samples import Samples
from .source import Parquet, Source
from .sweep import Sweep, sweep
from .writer import ShardWriter

__version__ = version()
__all__ = [
    "Array",
    "BadSampleError",
    "Batch",
    "BatchesHeldError",
    "Boxes",
    "Budget",
    "Bytes",
    "ConfigError",
    "DamagedSampleError",
    "Error",
    "Field",
    "Float",
    "Image",
    "Int",
    "Json",
    "Loader",
    "Mask",
    "MissingFieldError",
    "Mount",
    "MountError",
    "OneOf",
    "Output",
    "Parquet",
    "Plan",
    "Ragged",
    "RandomApply",
    "Samples",
    "ShardChangedError",
    "ShardDeniedError",
    "ShardNotFoundError",
    "ShardReadError",
    "ShardWriter",
    "Source",
    "Spec",
    "StateError",
    "Sweep",
    "Tensor",
    "Text",
    "Tokens",
    "UnknownLengthError",
    "mount",
    "plan",
    "rank_and_world",
    "sweep",
    "version",
]
