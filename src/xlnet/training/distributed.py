"""The one file that touches the distributed engine: one process by default, several under ``torchrun``.

Every process runs the same loop on its own share of the lanes; only process 0 writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from xlnet.errors import ConfigurationError
from xlnet.training.contracts import Batches

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Place of this process among all: ``rank`` of ``size``, and ``local_rank`` on its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls) -> World:
        """Read what ``torchrun`` sets; a single process where it sets nothing.

        Raises:
            ConfigurationError: when the variables contradict each other.
        """
        values = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
        if all(value is None for value in values):
            return cls()
        try:
            rank, size, local = (int(value or 0) for value in values)
        except ValueError:
            rank = size = local = -1
        if not 0 <= rank < size or local < 0:
            raise ConfigurationError(
                f"RANK={values[0]!r}, WORLD_SIZE={values[1]!r}, LOCAL_RANK={values[2]!r} make no sense together. "
                "Start with torchrun, which sets all three, or unset them."
            )
        return cls(rank, size, local)

    @property
    def is_main(self) -> bool:
        """True in the process that writes."""
        return self.rank == 0

    @contextmanager
    def connect(self, device: torch.device) -> Iterator[None]:
        """Join the process group for the time of the run; does nothing for a single process or where it is joined."""
        if self.size == 1 or dist.is_initialized():
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=self.rank, world_size=self.size)
        try:
            yield
            # Nobody leaves while another still speaks: a peer that is gone can keep the rest waiting for ever.
            dist.barrier()
        finally:
            dist.destroy_process_group()

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model whose backward averages gradients over processes; the model itself for a single one."""
        if self.size == 1:
            return model
        return DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def synchronize(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel with the ``last`` micro-batch of a step only."""
        if last or not isinstance(wrapped, DistributedDataParallel):
            return nullcontext()
        return wrapped.no_sync()

    def sum(self, values: Tensor) -> Tensor:
        """Element-wise sum over processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: T) -> list[T]:
        """The values of all processes in order of rank, at process 0; an empty list elsewhere."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, values, dst=0)
        return values or []

    def broadcast(self, value: T) -> T:
        """What process 0 holds, everywhere."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


class Shard:
    """Every ``size``-th item of a stream, beginning with the ``rank``-th: the share of one process.

    A stream that can itself start from a share of its lanes is cheaper; this one reads and drops what is not its own.
    Its lanes stay apart because item n of the whole belongs to process ``n % size`` for good.

    Raises:
        ConfigurationError: when the lane groups of the stream cannot be dealt out evenly.
    """

    def __init__(self, batches: Batches, world: World) -> None:
        self.batches = batches
        self.world = world
        groups = getattr(batches, "lane_groups", None)
        if groups is not None:
            if groups % world.size:
                raise ConfigurationError(
                    f"{groups} groups of lanes cannot be dealt out to {world.size} processes: make it a multiple."
                )
            self.lane_groups = groups // world.size

    def __next__(self) -> Any:
        own = None
        for rank in range(self.world.size):
            item = next(self.batches)
            if rank == self.world.rank:
                own = item
        return own

    def state(self) -> dict[str, Any]:
        """Position of the whole stream, which always lies between rounds."""
        return self.batches.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position that :meth:`state` gave."""
        self.batches.restore(state)
