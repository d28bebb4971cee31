"""A progress bar on standard error for long lists."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xlnet.tasks.predicting import Advance

LONG = 200
"""From this many items on a bar is shown unless one says otherwise."""


@contextmanager
def progress_bar(label: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """What to call with the number of items done.

    Args:
        label: what is being done.
        total: number of items.
        show: True or False; by default a bar is drawn for long lists, on a terminal.
    """
    visible = (total >= LONG and sys.stderr.isatty()) if show is None else show
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not visible, transient=True) as progress:
        task = progress.add_task(label, total=total)
        # Windows of long texts are several rows an item: the bar stops at its end rather than beyond.
        yield lambda count: progress.advance(task, count)
