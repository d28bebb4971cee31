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
from xlnet.tasks.families.multiple_choice import (
    LETTERS,
    ChoiceExample,
    MultipleChoice,
    letters_in_words,
    statement,
)
from xlnet.tasks.families.text import UnreadLabel, whole_text

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
        options, answers = values["options"], values.get("answers")
        answers = [None] * len(questions) if answers is None else answers
        if any(isinstance(part, str) for part in (questions, options, answers)):
            raise TypeError("questions, options and answers must be lists")
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
    """One question with its choices; an empty answer is none.

    Raises:
        InputError: a text is none, or the choices are no list.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"{where}: options must be a list of texts, but is {names!r}.")
    for name in names:
        whole_text(name, "options", where)
    question = whole_text(question, "question", where)
    return ChoiceExample(
        id=identity,
        context=re.sub(r"\s+", " ", whole_text(article, "article", where)),
        choices=tuple(statement(question, name) for name in names),
        label=_letter(answer, len(names), where),
        names=tuple(names),
        group=level,
        where=where,
    )


def _letter(answer: str | None, count: int, where: str) -> tuple[int, ...] | UnreadLabel | None:
    if answer is None or answer == "":
        return None
    if answer not in LETTERS[:count]:
        return UnreadLabel(f"{where}: answer {answer!r} must be {letters_in_words(count)}.")
    return (LETTERS.index(answer),)


def _benchmark(name: str, levels: tuple[str, ...]) -> Benchmark:
    task = MultipleChoice(name=name, max_length=512, max_choice_length=128)
    summary = f"reading comprehension, {' and '.join(levels)} school (accuracy)"
    return Benchmark(summary, task, RaceReader(levels), final=("test",), test=())


RACE: dict[str, Benchmark] = {
    "race": _benchmark("race", _LEVELS),
    "race-middle": _benchmark("race-middle", ("middle",)),
    "race-high": _benchmark("race-high", ("high",)),
}
