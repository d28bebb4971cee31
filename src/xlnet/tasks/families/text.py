"""What tasks on a text or a pair of texts share: examples, columns, features. The labels are up to the subclasses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import InputError, did_you_mean
from xlnet.model import XLNetForSequenceClassification
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.sequences import LongText, check_long_text, encode_texts, fit_sequences
from xlnet.tasks.metrics import Scored, check_metrics, score
from xlnet.text import XLNetTokenizer

_ID_KEYS = ("id", "idx", "index", "guid")


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts.

    Attributes:
        id: what it is called.
        text: the first text; may be empty.
        pair: the second text, if the task has pairs.
        label: class name, tuple of names, or number; None where not known.
        group: the question it belongs to, where several examples are scored together.
        where: file and line it comes from, for messages.
    """

    id: str
    text: str
    pair: str | None = None
    label: Any = None
    group: str = ""
    where: str = ""


def record_id(record: Mapping[str, Any], number: int) -> str:
    """What a record calls itself, else its number."""
    return next((str(record[key]) for key in _ID_KEYS if record.get(key) not in (None, "")), str(number))


def column(record: Mapping[str, Any], name: str, where: str) -> str:
    """A text value of a record.

    Raises:
        InputError: it is missing (names the columns present) or no text.
    """
    if name not in record:
        raise InputError(
            f"{where}: there is no column {name!r}; present are {', '.join(map(repr, record)) or 'none'}."
            + did_you_mean(name, list(record))
        )
    value = record[name]
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} must be a text, but is {value!r}.")
    return value


def plain_label(value: Any) -> str | None:
    """A label as text: JSON's true is ``true``, 1 is ``1``; None and the empty string are no label."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Base of the tasks on texts.

    Args:
        scores: metrics to report; the first decides which checkpoint is best.
        long_text: what is read of a text that is longer than ``max_length``.
        stride: pieces between the starts of windows, with ``long_text="windows"``; their outputs are averaged.
        text_column: name of the text in records and tables.
        pair_column: name of the second text; empty where there is none.
        label_column: name of the label.
    """

    model_class = XLNetForSequenceClassification
    scores: tuple[str, ...] = ("accuracy",)
    long_text: LongText = "head"
    stride: int = 64
    text_column: str = "text"
    pair_column: str = ""
    label_column: str = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics(self.scores)
        check_long_text(self.long_text, self.stride, self.max_length)

    @property
    def metric(self) -> str:
        """The first of ``scores``."""
        return self.scores[0]

    def example(self, record: Mapping[str, Any], where: str, number: int) -> TextExample:
        """From the columns ``text_column``, ``pair_column`` and ``label_column``; ``text`` and ``pair`` will do too."""
        text = "text" if self.text_column not in record and "text" in record else self.text_column
        pair = "pair" if self.pair_column not in record and "pair" in record else self.pair_column
        return TextExample(
            id=record_id(record, number),
            text=column(record, text, where),
            pair=column(record, pair, where) if self.pair_column else None,
            label=self.read_label(record.get(self.label_column), where),
            where=where,
        )

    @abstractmethod
    def read_label(self, value: Any, where: str) -> Any:
        """A label from a record, or None where it has none."""

    @abstractmethod
    def check_label(self, example: TextExample) -> None:
        """Refuse a label that the task does not have."""

    def check(self, examples: Sequence[TextExample], *, labelled: bool) -> None:
        """Every label is known, and there where it is needed."""
        for place, example in enumerate(examples):
            if labelled and example.label is None:
                raise InputError(
                    f"{example.where or f'row {place + 1}'}: there is no label, and training and evaluation need one. "
                    f"Is label_column={self.label_column!r} right? Use predict for rows without labels."
                )
            if labelled:
                self.check_label(example)

    def features(self, examples: Sequence[TextExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """``text <sep> <cls>`` or ``text <sep> pair <sep> <cls>``; one row each, or several windows."""
        texts = encode_texts(tokenizer, [example.text for example in examples])
        pairs = encode_texts(tokenizer, [example.pair or "" for example in examples])
        rows = []
        for place, example in enumerate(examples):
            # As released: a second text without a single piece counts as none.
            second = pairs[place] if len(pairs[place]) else None
            fitted = fit_sequences(texts[place], second, self.max_length, self.long_text, self.stride)
            rows += [Row(place, (sequence,), example.label) for sequence in fitted]
        return rows

    @abstractmethod
    def targets(self, rows: Sequence[Row]) -> Tensor:
        """Labels of rows as a tensor."""

    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """``targets``, where every row has a label."""
        return {} if any(row.label is None for row in rows) else {"targets": self.targets(rows)}

    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[NDArray[np.float32]]:
        """Logits of each row, float32 ``[num_labels]``."""
        return list(model(**batch.inputs).logits.float().cpu().numpy())

    def predictions(
        self, examples: Sequence[TextExample], rows: Sequence[Row], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """The logits of an example's windows are averaged, then read by :meth:`prediction`."""
        gathered: list[list[NDArray[np.float32]]] = [[] for _ in examples]
        for row, logits in zip(rows, outputs, strict=True):
            gathered[row.example].append(logits)
        means = [np.stack(parts).astype(np.float64).mean(axis=0) for parts in gathered]
        return [{"id": e.id, **self.prediction(m)} for e, m in zip(examples, means, strict=True)]

    @abstractmethod
    def prediction(self, logits: NDArray[np.float64]) -> Prediction:
        """A record from pooled logits, with the answer under ``label``."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels, where they have names."""
        return ()

    def metrics(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """The metrics named in ``scores``."""
        scored = Scored(
            gold=[example.label for example in examples],
            predicted=[self.read_label(prediction["label"], "prediction") for prediction in predictions],
            labels=self.names,
            groups=[example.group for example in examples],
        )
        return score(self.scores, scored)
