"""Encode pieces on all cores: the calling process reads the text and encodes as well, helper processes only encode.

Helpers are spawned (safe beside threads and CUDA), which takes a few seconds. A small corpus never needs them, and
until they are up the calling process spreads its own work over threads. What comes out is the same for any number.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from xlnet.errors import ConfigurationError, MachineError, XLNetError
from xlnet.pretraining.corpus.pieces import Piece, PieceCounts, PieceEncoder, PieceStore

_PIECES_BEFORE_HELPERS = 12
_PIECES_AHEAD = 2  # one that a helper works on, one that waits for it


class Encoding:
    """What one process needs: the encoder and the place of the results."""

    def __init__(self, encoder: PieceEncoder, folder: Path) -> None:
        self._encoder = encoder
        self._store = PieceStore(folder, encoder.dtype)

    def run(self, piece: Piece, threads: int = 1) -> PieceCounts:
        """Encode and save one piece, unless it is finished already."""
        encoded = self._store.load(piece.index, piece.digest)
        if encoded is None:
            encoded = self._encoder.encode(piece, threads)
            self._store.save(piece, encoded)
        return encoded.counts


def refuse_in_helper() -> None:
    """Stop a helper that imports a script which prepares a corpus without asking whether it is the main program.

    Raises:
        ConfigurationError: with the remedy.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigurationError(
            "A helper process has run your script from its start. Put the calls of the script under "
            "`if __name__ == '__main__':`, or set workers=1."
        )


def encode_all(pieces: Iterable[Piece], encoding: Encoding, workers: int) -> Iterator[tuple[Piece, PieceCounts]]:
    """Encode every piece with ``workers`` processes (this one included); yields in the order of completion.

    Raises:
        MachineError: a helper died (most often for want of memory), or the disk refuses.
    """
    helpers: list[_Helper] = []
    iterator = iter(pieces)
    try:
        for piece in itertools.islice(iterator, _PIECES_BEFORE_HELPERS if workers > 1 else None):
            yield piece, encoding.run(piece, workers)
        first = next(iterator, None)
        if first is not None:
            helpers = [_Helper(encoding) for _ in range(workers - 1)]
            yield from _share(itertools.chain([first], iterator), encoding, helpers)
    finally:
        for helper in helpers:
            helper.end()


def _share(pieces: Iterator[Piece], encoding: Encoding, helpers: list[_Helper]) -> Iterator[tuple[Piece, PieceCounts]]:
    for piece in pieces:
        for helper in helpers:
            yield from helper.finished()
        free = min(helpers, key=lambda helper: helper.load, default=None)
        if free is not None and free.load < _PIECES_AHEAD:
            free.send(piece)
        else:
            threads = 1 if all(helper.ready for helper in helpers) else len(helpers) + 1
            yield piece, encoding.run(piece, threads)
    while busy := [helper for helper in helpers if helper.waiting]:
        wait([helper.connection for helper in busy])
        for helper in busy:
            yield from helper.finished()


class _Helper:
    """One spawned process, as the calling process sees it."""

    def __init__(self, encoding: Encoding) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.waiting: dict[int, Piece] = {}
        self.ready = False
        self._process: BaseProcess = context.Process(target=_help, args=(theirs, encoding), daemon=True)
        with _interrupts_ignored():
            self._process.start()
        theirs.close()  # so that the end of the process is the end of the connection

    @property
    def load(self) -> int:
        """Pieces it holds; as if full until it is up."""
        return len(self.waiting) if self.ready else _PIECES_AHEAD

    def send(self, piece: Piece) -> None:
        """Hand over a piece."""
        self.waiting[piece.index] = piece
        try:
            self.connection.send(piece)
        except OSError as error:
            raise _died() from error

    def finished(self) -> Iterator[tuple[Piece, PieceCounts]]:
        """What has come back since the last call."""
        try:
            while self.connection.poll():
                index, result = self.connection.recv()
                self.ready = True
                if isinstance(result, XLNetError):
                    raise result
                if result is not None:
                    yield self.waiting.pop(index), result
        except (EOFError, OSError) as error:
            raise _died() from error

    def end(self) -> None:
        """Stop it, whatever it does; a piece is saved in one step, so none is left half-written."""
        self._process.terminate()
        self._process.join()
        self.connection.close()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A process started here ignores Ctrl-C from its first instruction on (the setting is inherited).

    Ctrl-C goes to the whole group of processes, but it is for the caller to decide what is done.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _died() -> MachineError:
    return MachineError(
        "A helper process ended by itself, most often because memory ran out. Finished parts are kept: run the same "
        "command again, with fewer workers."
    )


def _help(connection: Connection, encoding: Encoding) -> None:
    """Body of a helper process: say that it is up, then encode what comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    connection.send((-1, None))
    while True:
        piece = inbox.get()
        try:
            connection.send((piece.index, encoding.run(piece)))
        except XLNetError as error:
            connection.send((piece.index, error))


def _receive(connection: Connection, inbox: queue.SimpleQueue[Piece]) -> None:
    # A thread of its own, so that the caller never waits for a helper at work; and so that a helper whose caller was
    # killed ends with it.
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)
