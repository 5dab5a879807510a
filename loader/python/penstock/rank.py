"""Finds this process's rank and the world size."""
from __future__ import annotations

import os
import sys
from typing import Mapping, Optional, Tuple

# Variables for (rank, world) of the launchers, the most explicit first. Slurm sets SLURM_STEP_NUM_TASKS only within
# a step. Lightning's own launcher sets WORLD_SIZE and LOCAL_RANK, but not RANK: its processes are known by torch's
# process group alone.
_ENVIRONMENTS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def _from_torch() -> Optional[Tuple[int, int]]:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_jax() -> Optional[Tuple[int, int]]:
    # jax.process_index() would start JAX's backend, and so occupy the GPUs; this module only has the numbers that
    # jax.distributed.initialize() was given.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None:
        return None
    rank, world = getattr(state, "process_id", None), getattr(state, "num_processes", None)
    return (rank, world) if isinstance(rank, int) and isinstance(world, int) else None


def group_rank_and_world() -> Optional[Tuple[int, int]]:
    """(rank, world) of the process group that this process belongs to: torch's, or that of jax.distributed. None if
    neither is initialised. Imports nothing."""
    return _from_torch() or _from_jax()


def rank_and_world(environ: Optional[Mapping[str, str]] = None) -> Tuple[int, int]:
    """(rank, world) of torch.distributed or jax.distributed if one is initialised, else of the launcher's environment,
    else (0, 1).

    The rank is the global one. If data and model parallelism are mixed, pass the data-parallel rank to Loader.
    """
    if environ is None:
        of_group = group_rank_and_world()
        if of_group:
            return of_group
        environ = os.environ
    for rank_name, world_name in _ENVIRONMENTS:
        if rank_name not in environ or world_name not in environ:
            continue
        try:
            rank, world = int(environ[rank_name]), int(environ[world_name])
        except ValueError:
            rank, world = -1, 0
        if not 0 <= rank < world:
            raise ValueError(
                "%s=%s and %s=%s are not a valid rank and world: correct them, or pass rank= and world="
                % (rank_name, environ[rank_name], world_name, environ[world_name])
            )
        return rank, world
    return 0, 1


def ranks_per_node(world: int, environ: Optional[Mapping[str, str]] = None) -> int:
    """How many of `world` ranks run on this machine, as torchrun sets it (LOCAL_WORLD_SIZE); 1 if it is not set."""
    text = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    local = int(text) if text.isdigit() else 1
    return local if local > 0 and world % local == 0 else 1
