"""Named arrays that stay on disk until they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from xlnet.errors import CheckpointError, did_you_mean


@dataclass(frozen=True)
class Entry:
    """One array: what is known without reading it, and how to read it.

    Attributes:
        shape: its shape.
        dtype: its element type as stored.
        read: returns the tensor; every call reads anew, so nothing is kept alive. What comes from a file has memory
            of its own (no view of a mapped file), so that it may be kept without a copy and the file be replaced.
        origin: its name where it is stored, for messages.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]
    origin: str

    @classmethod
    def of(cls, tensor: Tensor, origin: str) -> Entry:
        """The entry of a tensor that is in memory already."""
        return cls(tuple(tensor.shape), tensor.dtype, lambda: tensor, origin)

    @property
    def byte_count(self) -> int:
        """Size in bytes."""
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


class LazyTensors(Mapping[str, Tensor]):
    """A mapping of names to tensors; a tensor is read when it is looked up, and not kept.

    Raises:
        CheckpointError: on looking up a name that is not there (offers the nearest), or a damaged array.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.entry(name).read()
        if tuple(tensor.shape) != self._entries[name].shape:
            raise CheckpointError(
                f"{name}: {list(tensor.shape)} was read where {list(self._entries[name].shape)} was announced."
            )
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, name: str) -> Entry:
        """Shape, type and origin of an array, without reading it."""
        if name not in self._entries:
            raise CheckpointError(f"No array is called {name!r}.{did_you_mean(name, self._entries)}")
        return self._entries[name]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """All shapes, without reading anything."""
        return {name: entry.shape for name, entry in self._entries.items()}


def as_lazy(tensors: Mapping[str, Tensor]) -> LazyTensors:
    """Any mapping of tensors as :class:`LazyTensors`."""
    if isinstance(tensors, LazyTensors):
        return tensors
    return LazyTensors({name: Entry.of(tensor, name) for name, tensor in tensors.items()})
