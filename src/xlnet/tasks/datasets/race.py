"""RACE: reading comprehension from examinations, a JSON file for each passage (run_race.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlnet.errors import InputError
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.tables import NoSplit, read_text
from xlnet.tasks.families.multiple_choice import LETTERS, ChoiceExample, MultipleChoice, statement

_LEVELS = ("middle", "high")


@dataclass(frozen=True)
class RaceReader:
    """Reads ``train``, ``dev`` and ``test`` of one level or both."""

    levels: tuple[str, ...] = _LEVELS

    def __call__(self, folder: Path, split: str) -> list[ChoiceExample]:
        """One example a question; files in the order of their numbers.

        Raises:
            InputError: no such folder, no file in it, or a file that is no RACE passage.
        """
        place = next((p for p in (folder / split, folder / "RACE" / split) if p.is_dir()), None)
        if place is None:
            raise NoSplit(f"{folder} has no folder {split!r} with {' and '.join(self.levels)} in it, as RACE has.")
        found: list[ChoiceExample] = []
        for level in self.levels:
            for path in sorted((place / level).glob("*.txt"), key=_number):
                found += read_passage(path, level)
        if not found:
            raise InputError(f"{place} holds no {'/*.txt or '.join(self.levels)}/*.txt.")
        return found


def _number(path: Path) -> tuple[int, str]:
    digits = re.sub(r"\D", "", path.stem)
    return int(digits) if digits else 0, path.name


def read_passage(path: Path, level: str) -> list[ChoiceExample]:
    """The questions of one file.

    Raises:
        InputError: names the file and what is wrong.
    """
    try:
        values: dict[str, Any] = json.loads(read_text(path))
        article, questions = values["article"], values["questions"]
        options, answers = values["options"], values.get("answers", [None] * len(questions))
        asked = list(zip(questions, options, answers, strict=True))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no RACE passage ({type(error).__name__}: {error}).") from error
    return [
        race_question(article, *parts, f"{level}{path.stem}-{number}", level, f"{path}, question {number + 1}")
        for number, parts in enumerate(asked)
    ]


def race_question(
    article: str, question: str, names: Sequence[str], answer: str | None, identity: str, level: str, where: str
) -> ChoiceExample:
    """One question with its choices.

    Raises:
        InputError: ``answer`` is no letter of a choice.
    """
    if answer is not None and answer not in LETTERS[: len(names)]:
        raise InputError(f"{where}: answer {answer!r} must be a letter from A to {LETTERS[len(names) - 1]}.")
    return ChoiceExample(
        id=identity,
        context=re.sub(r"\s+", " ", article),
        choices=tuple(statement(question, name) for name in names),
        label=None if answer is None else (LETTERS.index(answer),),
        names=tuple(names),
        group=level,
        where=where,
    )


def _benchmark(name: str, levels: tuple[str, ...]) -> Benchmark:
    task = MultipleChoice(name=name, max_length=512, max_choice_length=128)
    summary = f"reading comprehension, {' and '.join(levels)} school (accuracy)"
    return Benchmark(summary, task, RaceReader(levels), final=("test",), test=())


RACE: dict[str, Benchmark] = {
    "race": _benchmark("race", _LEVELS),
    "race-middle": _benchmark("race-middle", ("middle",)),
    "race-high": _benchmark("race-high", ("high",)),
}
