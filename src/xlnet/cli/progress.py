"""Progress of long work on standard error: a live bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from xlnet.pretraining.corpus.prepare import PrepareProgress

_SECONDS_BETWEEN_LINES = 10.0


def say(text: str) -> None:
    """One line of news for the person at the screen (standard output stays for results)."""
    print(text, file=sys.stderr, flush=True)


class PrepareDisplay:
    """Shows how far corpus preparation has come: bytes, rate, time left, tokens."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self._live,
        )
        self._task = self._progress.add_task("preparing", total=None)
        self._last_line = time.monotonic()
        self._notes = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, news: PrepareProgress) -> None:
        """Receive news from :func:`xlnet.pretraining.corpus.prepare.prepare`."""
        for note in news.notes[self._notes :]:
            self._progress.console.print(note, highlight=False) if self._live else say(note)
        self._notes = len(news.notes)
        text = f"{news.stage}: {news.tokens:,} tokens, {news.duplicates:,} duplicates removed"
        self._progress.update(self._task, completed=news.done_bytes, total=news.total_bytes, description=text)
        if not self._live and time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            share = f" ({news.done_bytes / news.total_bytes:.0%})" if news.total_bytes else ""
            say(text + share)
