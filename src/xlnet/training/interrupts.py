"""Ctrl-C and SIGTERM become a flag that the loop reads between micro-batches."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the first signal sets ``pending``; a second one stops at once with KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, nothing is caught.
    """

    def __init__(self) -> None:
        self.pending: str = ""
        self._previous: dict[signal.Signals, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            self._release()
            raise KeyboardInterrupt
        self.pending = signal.Signals(number).name

    def _release(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # getsignal is None where a handler was not installed from Python and cannot be put back.
                if signal.getsignal(number) is not None:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
