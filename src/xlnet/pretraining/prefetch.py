"""Batches prepared ahead in background processes.

Processes are spawned, not forked: a fork of a process with running threads may hang. The loader of
``torch.utils.data`` is not used: when a worker dies, its signal handler raises wherever the main program happens to be.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from multiprocessing.connection import wait
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xlnet.batch import PretrainingBatch
from xlnet.errors import MachineError


class Indexed(Protocol):
    """Batches by number; must survive pickling."""

    def __getitem__(self, index: int, /) -> PretrainingBatch: ...


class Prefetcher:
    """The batches ``source[start]``, ``source[start + 1]`` ... in order, computed by ``workers`` processes.

    Args:
        source: where the batches come from.
        start: number of the first batch.
        workers: number of processes.
        ahead: batches that wait per process.
    """

    def __init__(self, source: Indexed, start: int, workers: int, ahead: int = 4) -> None:
        self._next = start
        self._depth = workers * ahead
        self._waiting: deque[Future[list[NDArray[Any]]]] = deque()
        self._pool = ProcessPoolExecutor(
            workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(source,)
        )

    def __next__(self) -> PretrainingBatch:
        try:
            while len(self._waiting) < self._depth:
                self._waiting.append(self._pool.submit(_arrays, self._next))
                self._next += 1
            arrays = self._waiting.popleft().result()
        except BrokenProcessPool as error:
            self.close()
            raise MachineError(
                "A background worker that prepares batches ended by itself; it may have run out of memory. "
                "Use fewer workers, or workers=0 to prepare batches in this process. No text is lost."
            ) from error
        return PretrainingBatch(*map(torch.from_numpy, arrays))

    def close(self) -> None:
        """Stop the workers and wait for them."""
        self._waiting.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)


_source: Indexed | None = None  # of a worker process; the main process never sets it


def _start_worker(source: Indexed) -> None:
    global _source
    _source = source
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle; it then stops the workers
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        _when_ready(parent.sentinel, lambda: os._exit(1))


def _when_ready(sentinel: int, act: Callable[[], None]) -> None:
    """Act as soon as the process behind ``sentinel`` is gone: a killed main process must not leave workers behind."""

    def watch() -> None:
        wait([sentinel])
        act()

    threading.Thread(target=watch, daemon=True).start()


def _arrays(index: int) -> list[NDArray[Any]]:
    """A batch as plain arrays: tensors would travel as shared files, whose number is limited."""
    if _source is None:
        raise RuntimeError("a worker was asked before it was started")
    batch = _source[index]
    return [np.ascontiguousarray(getattr(batch, field.name).numpy()) for field in fields(batch)]
