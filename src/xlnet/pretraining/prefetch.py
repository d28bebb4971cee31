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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import fields
from multiprocessing.connection import Connection, wait
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
        context = multiprocessing.get_context("spawn")
        self._end_heard, self._end = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start_worker, initargs=(source, self._end_heard)
        )

    def __next__(self) -> PretrainingBatch:
        try:
            with _signals_held():  # for this is where workers are started
                while len(self._waiting) < self._depth:
                    self._waiting.append(self._pool.submit(_arrays, self._next))
                    self._next += 1
            arrays = self._waiting.popleft().result()
        except BrokenProcessPool as error:
            self._end.send_bytes(b"end")  # the pool sends SIGTERM to the workers that are left, which is not heard
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
        self._end.close()
        self._end_heard.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """What is started within hears neither Ctrl-C nor SIGTERM from its first instruction on; this process, afterwards.

    Both go to the whole group of processes, but what is done about them is for this one to decide: it saves the run,
    and it needs its workers until then.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_source: Indexed | None = None  # of a worker process; the main process never sets it


def _start_worker(source: Indexed, end: Connection) -> None:
    global _source
    _source = source
    for number in _GROUP_SIGNALS:  # where they could not be held back, and those that came meanwhile
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    _when_ready([end] if parent is None else [end, parent.sentinel], lambda: os._exit(1))


def _when_ready(signs: list[Connection | int], act: Callable[[], None]) -> None:
    """Act as soon as the main process says so or is gone: killed, it must not leave workers behind.

    None reads what it says, so that all workers see it.
    """

    def watch() -> None:
        wait(signs)
        act()

    threading.Thread(target=watch, daemon=True).start()


def _arrays(index: int) -> list[NDArray[Any]]:
    """A batch as plain arrays: tensors would travel as shared files, whose number is limited."""
    if _source is None:
        raise RuntimeError("a worker was asked before it was started")
    batch = _source[index]
    return [np.ascontiguousarray(getattr(batch, field.name).numpy()) for field in fields(batch)]
