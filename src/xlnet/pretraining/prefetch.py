"""Batches prepared ahead in background processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import DataLoader, Dataset, Sampler

from xlnet.batch import PretrainingBatch
from xlnet.errors import MachineError, XLNetError


class Indexed(Protocol):
    """Batches by number; must survive pickling."""

    def __getitem__(self, index: int, /) -> PretrainingBatch: ...


class _Batches(Dataset[PretrainingBatch | XLNetError]):
    def __init__(self, source: Indexed) -> None:
        self._source = source

    def __getitem__(self, index: int) -> PretrainingBatch | XLNetError:
        try:
            return self._source[index]
        except XLNetError as error:  # travels as a value, because the loader would wrap it in a traceback
            return error


class _CountingUp(Sampler[int]):
    def __init__(self, start: int) -> None:
        self._start = start

    def __iter__(self) -> Iterator[int]:
        index = self._start
        while True:
            yield index
            index += 1


class Prefetcher:
    """The batches ``source[start]``, ``source[start + 1]`` ... in order, computed by ``workers`` processes.

    Processes are spawned, not forked, because a fork of a process with running threads may hang.
    """

    def __init__(self, source: Indexed, start: int, workers: int, ahead: int = 4) -> None:
        loader = DataLoader(
            _Batches(source),
            batch_size=None,
            sampler=_CountingUp(start),
            num_workers=workers,
            prefetch_factor=ahead,
            multiprocessing_context="spawn",
        )
        self._batches: Any = iter(loader)

    def __next__(self) -> PretrainingBatch:
        try:
            batch = next(self._batches)
        except RuntimeError as error:  # the loader's word for a worker that died
            self.close()
            raise MachineError(
                f"A background worker that prepares batches ended by itself ({error}). It may have run out of memory: "
                "use fewer workers, or workers=0 to prepare batches in this process. No text is lost."
            ) from error
        if isinstance(batch, XLNetError):
            raise batch
        return batch

    def close(self) -> None:
        """Stop the workers; the loader does so when its iterator is dropped."""
        self._batches = iter(())
