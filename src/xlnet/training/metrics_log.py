"""The record of a run: one JSON object a line in ``metrics.jsonl``, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from xlnet.errors import InputError
from xlnet.training.run_files import disk_errors, write_text

Record = dict[str, Any]


def read_metrics(path: Path) -> Iterator[Record]:
    """The records of a log in order; a last line that a killed process left unfinished is passed over.

    Raises:
        InputError: names file and line that is not a JSON object.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if number == len(lines):
                return
            raise InputError(f"{path}:{number} is not a JSON object: {line[:60]!r}. Remove the line.") from error
        yield record


class MetricsLog:
    """Appends records; every line is on its way to the disk before the call returns.

    Args:
        folder: where ``metrics.jsonl`` and ``tensorboard/`` lie.
        after_step: records of later steps are dropped, because the run is about to make them again.
        tensorboard: also write event files.
    """

    def __init__(self, folder: Path, after_step: int = -1, tensorboard: bool = True) -> None:
        self.path = folder / "metrics.jsonl"
        if self.path.exists():
            kept = [record for record in read_metrics(self.path) if record.get("step", 0) <= after_step]
            write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))
        with disk_errors(self.path):
            self._file: TextIO = self.path.open("a", encoding="utf-8")
        self._board: Any = None
        if tensorboard:
            # Here and not above: the import takes a second that a run without it need not wait.
            from torch.utils.tensorboard import SummaryWriter

            with disk_errors(folder / "tensorboard"):
                purge = after_step + 1 if after_step >= 0 else None
                self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Append ``{"kind": kind, "step": step, **values}``; numbers that JSON cannot hold become null.

        Raises:
            MachineError: when the disk refuses.
        """
        finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
        with disk_errors(self.path):
            self._file.write(json.dumps({"kind": kind, "step": step, **finite}) + "\n")
            self._file.flush()
        if self._board is not None:
            for key, value in values.items():
                self._board.add_scalar(f"{kind}/{key}", value, step)

    def close(self) -> None:
        """Close all files."""
        with disk_errors(self.path):
            self._file.close()
        if self._board is not None:
            self._board.close()
