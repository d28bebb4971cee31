"""The best of several answers to a question on a text: RACE, COPA, ReCoRD. The number of choices may vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError
from xlnet.model import XLNetForMultipleChoice
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.classification import softmax
from xlnet.tasks.families.sequences import Ids, encode_texts, join
from xlnet.tasks.families.text import UnreadLabel, column, record_id, whole_text
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Step

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Names of choices. A tuple: in a string the empty text and ``BC`` would be letters too."""


@dataclass(frozen=True)
class ChoiceExample:
    """A context and whole statements to choose from.

    Attributes:
        id: what it is called.
        context: the text; may be empty.
        choices: question and answer in one text each, as the model reads them.
        label: indices of the right choices (mostly one); None where not known, :class:`UnreadLabel` where not readable.
        names: what to call the choices in predictions; the answers alone, say.
        group: a part of the data that is also scored by itself (``middle``, ``high``).
        where: file and line, for messages.
    """

    id: str
    context: str
    choices: tuple[str, ...]
    label: tuple[int, ...] | UnreadLabel | None = None
    names: tuple[str, ...] = ()
    group: str = ""
    where: str = ""

    @property
    def right(self) -> tuple[int, ...]:
        """Indices of the right choices, none where they are not known."""
        return () if self.label is None or isinstance(self.label, UnreadLabel) else tuple(self.label)


def statement(question: str, answer: str) -> str:
    """The answer in the gap of a cloze question (``_``), else after the question, in single spaces (run_race.py)."""
    whole = question.replace("_", answer) if "_" in question else f"{question} {answer}"
    return " ".join(whole.split())


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(Task):
    """One score a choice, softmax over the choices.

    Args:
        max_choice_length: pieces of a choice at most; longer ones lose their beginning, as released.
        answer_metrics: also report F1 and exact match of the chosen name with the best right one (ReCoRD).
    """

    family = "multiple_choice"
    model_class = XLNetForMultipleChoice
    max_length: int = 512
    max_choice_length: int = 128
    answer_metrics: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_choice_length <= self.max_length - 3:
            raise ConfigurationError(
                f"max_choice_length={self.max_choice_length} must lie between 1 and max_length - 3 = "
                f"{self.max_length - 3}. With a smaller max_length give a smaller max_choice_length too "
                "(task_settings)."
            )

    @property
    def metric(self) -> str:
        """``f1`` where answers are compared as text, else ``accuracy``."""
        return "f1" if self.answer_metrics else "accuracy"

    def example(self, record: Mapping[str, Any], where: str, number: int) -> ChoiceExample:
        """From ``context``, ``choices`` (a list), optional ``question`` and ``label`` (index, letter or answer)."""
        answers = record.get("choices")
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise InputError(f"{where}: choices must be a list of texts, but is {answers!r}.")
        question = column(record, "question", where) if "question" in record else ""
        return ChoiceExample(
            id=record_id(record, number),
            context=column(record, "context", where),
            choices=tuple(statement(question, answer) if question else answer for answer in answers),
            label=choice_label(record.get("label"), answers, where),
            names=tuple(answers),
            where=where,
        )

    def check(self, examples: Sequence[ChoiceExample], *, labelled: bool) -> None:
        """Texts can be read; there are at least two choices each, and a right one among them."""
        for example in examples:
            where = example.where or f"example {example.id}"
            whole_text(example.context, "context", where)
            for number, choice in enumerate(example.choices, start=1):
                whole_text(choice, f"choice {number}", where)
            if len(example.choices) < 2 and labelled:
                raise InputError(f"{where}: there are {len(example.choices)} choices; at least two are needed.")
            if not example.choices:
                raise InputError(f"{where}: there is nothing to choose from.")
            if labelled and isinstance(example.label, UnreadLabel):
                raise InputError(example.label.complaint)
            if labelled and not example.label:
                raise InputError(f"{where}: there is no label, and training and evaluation need one.")
            wrong = [i for i in example.right if not 0 <= i < len(example.choices)]
            if labelled and wrong:
                raise InputError(
                    f"{where}: label {wrong[0]} is not known; allowed are 0 to {len(example.choices) - 1}."
                )

    def split_key(self, example: ChoiceExample) -> Any:
        """Questions on one text stay together."""
        return example.context or super().split_key(example)

    def features(self, examples: Sequence[ChoiceExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """``context <sep> choice <sep> <cls>`` for each choice; the context is cut to what the choice leaves."""
        contexts = encode_texts(tokenizer, [example.context for example in examples])
        flat = encode_texts(tokenizer, [choice for example in examples for choice in example.choices])
        rows, start = [], 0
        for place, example in enumerate(examples):
            choices = flat[start : start + len(example.choices)]
            start += len(choices)
            sequences = tuple(self._sequence(contexts[place], choice) for choice in choices)
            rows.append(Row(place, sequences, example.right or None))
        return rows

    def _sequence(self, context: Ids, choice: Ids) -> Any:
        choice = choice[max(0, len(choice) - self.max_choice_length) :]
        return join(context[: self.max_length - 3 - len(choice)], choice)

    def collate(self, rows: Sequence[Row]) -> TaskBatch:
        """All choices of all rows side by side, each as a row of a single choice: ``[sum of choices, 1, L]``."""
        batch = super().collate(rows)
        return TaskBatch({key: value[:, None] for key, value in batch.inputs.items()}, batch.labels, batch.rows)

    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """``right``: bool ``[B, most choices]``; ``real``: where there is a choice."""
        if any(row.label is None for row in rows):
            return {}
        most = max(len(row.sequences) for row in rows)
        right = torch.zeros(len(rows), most, dtype=torch.bool)
        for i, row in enumerate(rows):
            right[i, list(row.label)] = True
        return {"right": right}

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Minus the log of the probability of the right choices together."""
        scores = spread_choices(model(**batch.inputs).logits[:, 0].float(), batch.rows)
        right = scores.masked_fill(~batch.labels["right"], -torch.inf)
        return Step((scores.logsumexp(dim=1) - right.logsumexp(dim=1)).sum(), len(batch.rows))

    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[NDArray[np.float32]]:
        """Scores of the choices of each row."""
        scores = model(**batch.inputs).logits[:, 0].float().cpu().numpy()
        ends = np.cumsum([len(row.sequences) for row in batch.rows])
        return np.split(scores, ends[:-1])

    def predictions(
        self, examples: Sequence[ChoiceExample], rows: Sequence[Row], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """``label``: index of the best choice; ``answer``: its name; ``probabilities``: a list."""
        records = []
        for example, scores in zip(examples, outputs, strict=True):
            probabilities = softmax(scores.astype(np.float64))
            best = int(probabilities.argmax())
            names = example.names or example.choices
            records.append(
                {"id": example.id, "label": best, "answer": names[best], "probabilities": probabilities.tolist()}
            )
        return records

    def metrics(self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """``accuracy``, also by group; with ``answer_metrics`` also ``f1`` and ``em``."""
        right = [p["label"] in e.right for e, p in zip(examples, predictions, strict=True)]
        found = {"accuracy": sum(right) / len(right)}
        groups = sorted({example.group for example in examples} - {""})
        for group in groups if len(groups) > 1 else ():
            own = [r for r, example in zip(right, examples, strict=True) if example.group == group]
            found[f"{group}_accuracy"] = sum(own) / len(own)
        if self.answer_metrics:
            found |= _answer_metrics(examples, predictions)
        return found


def spread_choices(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """``[sum of choices]`` to ``[B, most choices]``, minus infinity where a row has no such choice."""
    parts = scores.split([len(row.sequences) for row in rows])
    return nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=-torch.inf)


def choice_label(value: Any, answers: Sequence[str], where: str) -> tuple[int, ...] | UnreadLabel | None:
    """Which choices a label means: an index, a letter or an answer, or several of them in a list; never an error."""
    if value is None or value == "":
        return None
    if isinstance(value, list):
        found = [choice_label(item, answers, where) for item in value]
        unread = [label for label in found if isinstance(label, UnreadLabel)]
        return unread[0] if unread else tuple(i for label in found if isinstance(label, tuple) for i in label)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if value in answers:
        return (answers.index(value),)
    if isinstance(value, str) and value.isdecimal():
        return (int(value),)
    if value in LETTERS[: len(answers)]:
        return (LETTERS.index(value),)
    return UnreadLabel(
        f"{where}: label {value!r} is not known; allowed are an index from 0 to {len(answers) - 1}, "
        f"{letters_in_words(len(answers))}, or one of the choices."
    )


def letters_in_words(count: int) -> str:
    """``a letter from A to D``, for messages on ``count`` choices."""
    named = LETTERS[:count]
    return f"a letter from A to {named[-1]}" if named else "no letter, as there are no choices"


def _answer_metrics(examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]) -> dict[str, float]:
    from xlnet.tasks.answers import answer_f1, exact_match

    f1, em = [], []
    for example, prediction in zip(examples, predictions, strict=True):
        names = example.names or example.choices
        gold = [names[i] for i in example.right]
        f1.append(max((answer_f1(name, prediction["answer"]) for name in gold), default=0.0))
        em.append(max((exact_match(name, prediction["answer"]) for name in gold), default=0.0))
    return {"f1": float(np.mean(f1)), "em": float(np.mean(em))}
