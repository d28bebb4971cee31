"""A fine-tuned question-answering folder as one object that takes strings.

reader = Answerer.from_pretrained("runs/squad2/model")
found = reader.answer("Where is class H defined?", passage)
found.text, passage[found.start:found.end]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.contract import Prediction
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.squad.search import Candidate
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.training.config import Precision


@dataclass(frozen=True)
class FoundAnswer:
    """What a model says to a question.

    Attributes:
        text: the answer; empty where the passage holds none.
        start, end: where it stands, ``passage[start:end] == text``; None where the passage holds none.
        null_odds: log-odds that the passage holds no answer.
        candidates: the best stretches of the passage, best first, whatever the odds.
        probabilities: of the candidates, among themselves.
    """

    text: str
    start: int | None
    end: int | None
    null_odds: float
    candidates: tuple[Candidate, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Answerer:
    """Answers questions on passages of any length; each answer depends on its own question and passage alone.

    Attributes:
        tuned: a fine-tuned model of the task :class:`~xlnet.tasks.squad.task.QuestionAnswering`.
    """

    tuned: FineTuned

    def __post_init__(self) -> None:
        if not isinstance(self.tuned.task, QuestionAnswering):
            raise InputError(
                f"This model was fine-tuned for {self.tuned.task.family} ({self.tuned.task.name}), not to answer "
                "questions. Make one that does with: xlnet finetune squad2"
            )

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "auto", precision: Precision = "float32") -> Answerer:
        """Load a folder that ``xlnet finetune squad`` (or ``squad2``) wrote; see :meth:`FineTuned.from_pretrained`.

        Raises:
            CheckpointError: no fine-tuned folder, or a damaged one.
            InputError: one of another kind of task.
        """
        return cls(FineTuned.from_pretrained(folder, device=device, precision=precision))

    def answer(self, question: str, passage: str) -> FoundAnswer:
        """The answer to one question."""
        return self.answer_many([(question, passage)])[0]

    def answer_many(
        self, pairs: Sequence[tuple[str, str]], *, batch_size: int = 32, show_progress: bool | None = None
    ) -> list[FoundAnswer]:
        """The answer to each (question, passage), in their order.

        Args:
            pairs: any number; a passage that is given often is encoded once.
            batch_size: windows at once.
            show_progress: a bar on standard error; by default for long lists on a terminal.

        Raises:
            InputError: something that is no pair of texts; names the first.
        """
        for place, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise InputError(f"input {place} must be (question, passage), two texts, but is {pair!r}.")
        predictions = self.tuned.predict(list(pairs), batch_size=batch_size, show_progress=show_progress)
        return [_found(prediction) for prediction in predictions]


def _found(prediction: Prediction) -> FoundAnswer:
    entries = prediction["nbest"]
    answered = prediction["label"] != ""
    return FoundAnswer(
        text=prediction["label"],
        start=prediction["start"] if answered else None,
        end=prediction["end"] if answered else None,
        null_odds=prediction["null_odds"],
        candidates=tuple(
            Candidate(e["text"], e["start"], e["end"], e["start_log_prob"], e["end_log_prob"]) for e in entries
        ),
        probabilities=tuple(e["probability"] for e in entries),
    )
