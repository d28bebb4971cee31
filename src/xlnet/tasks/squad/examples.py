"""A question on a passage, and where its answers stand in the passage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from xlnet.errors import InputError

TOLERATED_SHARE = 0.01
"""Share of answers that may stand elsewhere than they say they do; more is the sign of a damaged file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A stretch of the passage.

    Attributes:
        text: the answer.
        start: its first character in the passage; None where not known.
    """

    text: str
    start: int | None = None


@dataclass(frozen=True)
class SquadExample:
    """One question.

    Attributes:
        id: what it is called in ``predictions.json``.
        question: its text; may be empty.
        passage: the text that may hold the answer.
        answers: as people gave them, empty where the passage holds none; None where not known.
        title: the article that the passage comes from.
        where: file and path into the JSON, for messages.
    """

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...] | None = None
    title: str = ""
    where: str = ""

    @property
    def label(self) -> tuple[str, ...] | None:
        """Texts of the answers."""
        return None if self.answers is None else tuple(answer.text for answer in self.answers)


def locate(passage: str, answer: Answer) -> tuple[int, int] | None:
    """First character of an answer and the one after its last, without white space at its ends.

    An answer that does not stand where it says is taken from where it does stand, if that is one place only.

    Returns:
        None where the answer does not stand in the passage, or nobody can say where.
    """
    text = answer.text.strip()
    if not text:
        return None
    if answer.start is not None:
        # The offset is that of the text as given, with the white space it may begin with.
        start = answer.start + len(answer.text) - len(answer.text.lstrip())
        if passage.startswith(text, start):
            return start, start + len(text)
    start = passage.find(text)
    if start < 0 or passage.find(text, start + 1) >= 0:
        return None
    return start, start + len(text)


def check_answers(name: str, examples: Sequence[SquadExample]) -> None:
    """Count the answers that are not in their passage: a few are reported, many refused.

    One that says no place may stand at several: it can be scored, and training leaves it out and says so.

    Args:
        name: of the task, for messages.
        examples: all of a split, with known answers.

    Raises:
        InputError: more than :data:`TOLERATED_SHARE` of them; names the first.
    """
    answers = [(example, answer) for example in examples for answer in example.answers or ()]
    lost = [
        (example, answer)
        for example, answer in answers
        if locate(example.passage, answer) is None and (answer.start is not None or answer.text not in example.passage)
    ]
    if not lost:
        return
    example, answer = lost[0]
    found = f"it stands there {count} times" if (count := example.passage.count(answer.text)) else "it is nowhere in it"
    text = (
        f"{name}: {len(lost)} of {len(answers)} answers do not stand in their passage where they say. The first is in "
        f"{example.where or f'question {example.id}'}: {answer.text!r} at answer_start={answer.start} ({found})."
    )
    if len(lost) > TOLERATED_SHARE * len(answers):
        raise InputError(
            f"{text} More than {TOLERATED_SHARE:.0%} are refused: answer_start counts characters (not bytes) of the "
            "passage from 0 on, and the text must be copied from the passage letter by letter."
        )
    _log.warning("%s Nothing can be learnt from these.", text)
