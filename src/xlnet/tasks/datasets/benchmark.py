"""A benchmark: a task, how its official files are read, and what is learnt from and chosen by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlnet.tasks.contract import Prediction, Task

Read = Callable[[Path, str], list[Any]]
"""Examples of a split (``train``, ``dev`` ...) of the data in a folder (or of a file)."""

Write = Callable[[Sequence[Prediction], Path], None]


@dataclass(frozen=True)
class Benchmark:
    """What a name such as ``sst2`` stands for.

    Attributes:
        summary: one line for help.
        task: with its settings.
        read: its files.
        train: the split to learn from; empty where there is none (AX).
        held_out: splits to choose by; empty where a share of ``train`` is taken.
        final: labelled splits that are measured once, at the end.
        test: splits without labels, for the server.
        submission: name of the file that the server expects, by test split.
        write: writes that file.
    """

    summary: str
    task: Task
    read: Read
    train: str = "train"
    held_out: tuple[str, ...] = ("dev",)
    final: tuple[str, ...] = ()
    test: tuple[str, ...] = ("test",)
    submission: tuple[str, ...] = ()
    write: Write | None = None
