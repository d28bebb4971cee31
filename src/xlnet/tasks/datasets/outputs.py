"""Predictions as files: JSONL, TSV, or a TREC run, one record for each example and in their order."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from xlnet.errors import InputError
from xlnet.tasks.contract import Prediction, Task
from xlnet.tasks.families.ranking import Ranking
from xlnet.training.run_files import write_text

Write = Callable[[Sequence[Prediction], TextIO], None]

_LINE_ENDS = {number: f"\\u{number:04x}" for number in (0x85, 0x2028, 0x2029)}


def write_jsonl(predictions: Sequence[Prediction], file: TextIO) -> None:
    """One JSON object a line, also for programs that take other characters than a newline for the end of a line."""
    for prediction in predictions:
        file.write(json.dumps(prediction, ensure_ascii=False).translate(_LINE_ENDS) + "\n")


def write_tsv(predictions: Sequence[Prediction], file: TextIO) -> None:
    """``id`` and ``label``, and ``score``: the probability of the label, where there is one."""
    file.write("id\tlabel\tscore\n")
    for prediction in predictions:
        label = prediction["label"]
        shown = _one_line("|".join(map(str, label)) if isinstance(label, list) else str(label))
        # By the name of a class, or by the number of a choice; several labels and numbers have no single one.
        probabilities = prediction.get("probabilities")
        named = isinstance(probabilities, dict) and isinstance(label, str)
        numbered = isinstance(probabilities, list) and isinstance(label, int)
        score = f"{probabilities[label]:.6f}" if probabilities and (named or numbered) else ""
        file.write(f"{_one_line(str(prediction['id']))}\t{shown}\t{score}\n")


def _one_line(text: str) -> str:
    """Text as one field: an answer cut from a passage may hold tabs and line ends."""
    return " ".join(text.splitlines()).replace("\t", " ")


def write_run(predictions: Sequence[Prediction], file: TextIO) -> None:
    """``query Q0 document rank score xlnet``, as trec_eval reads it.

    Raises:
        InputError: these are no rankings.
    """
    for prediction in predictions:
        if "ranking" not in prediction:
            raise InputError("Only rankings can be written as a .run file; use .jsonl or .tsv.")
        for rank, item in enumerate(prediction["ranking"], start=1):
            file.write(f"{prediction['id']} Q0 {item['id']} {rank} {item['score']:.9g} xlnet\n")


WRITERS: dict[str, Write] = {".jsonl": write_jsonl, ".json": write_jsonl, ".tsv": write_tsv, ".run": write_run}


def writer_of(path: Path) -> Write:
    """What writes the form that the ending of a name asks for.

    Raises:
        InputError: another ending.
    """
    if path.suffix not in WRITERS:
        raise InputError(f"{path}: predictions are written to names that end in {', '.join(WRITERS)}.")
    return WRITERS[path.suffix]


def check_predictions(task: Task, path: Path) -> None:
    """Whether a task's predictions can be written there; looked at before hours of work, and nothing is written.

    Raises:
        InputError: an ending without a writer, rankings asked of another task, or a folder that is not there.
    """
    writer_of(path)
    if path.suffix == ".run" and not isinstance(task, Ranking):
        raise InputError(f"{path}: only rankings can be written as a .run file; for {task.name} use .jsonl or .tsv.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} is not there; make it first.")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it.")


def write_predictions(predictions: Sequence[Prediction], path: Path) -> None:
    """In the form that the ending of the name asks for; a file that is there is replaced once the new one is whole.

    Raises:
        InputError: another ending, or rankings asked of other predictions.
    """
    write, text = writer_of(path), io.StringIO()
    write(predictions, text)
    write_text(path, text.getvalue())
