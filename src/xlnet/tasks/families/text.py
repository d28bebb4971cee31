"""What tasks on a text or a pair of texts share: examples, columns, features. The labels are up to the subclasses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import InputError, did_you_mean
from xlnet.model import XLNetForSequenceClassification
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.sequences import LongText, check_long_text, encode_texts, fit_sequences
from xlnet.tasks.metrics import GROUPED, METRICS, Scored, check_metrics, score
from xlnet.text import XLNetTokenizer

_ID_KEYS = ("id", "idx", "index", "guid")


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts.

    Attributes:
        id: what it is called.
        text: the first text; may be empty.
        pair: the second text, if the task has pairs.
        label: class name, tuple of names, or number; None where not known, :class:`UnreadLabel` where not readable.
        group: what it belongs to, where several examples are scored together (answers to one question) or ask about
            the same text; empty where there is no such thing.
        where: file and line it comes from, for messages.
    """

    id: str
    text: str
    pair: str | None = None
    label: Any = None
    group: str = ""
    where: str = ""


@dataclass(frozen=True)
class UnreadLabel:
    """A label that could not be read: no matter for prediction, and refused where labels are needed.

    Attributes:
        complaint: file and line, the value and the rule.
    """

    complaint: str


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
    return whole_text(record[name], name, where)


def whole_text(value: Any, name: str, where: str) -> str:
    """A value that must be a text the tokenizer can read.

    Raises:
        InputError: it is something else, or holds half a surrogate pair (JSON's escapes can say so).
    """
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} must be a text, but is {value!r}.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where}: {name} holds half a surrogate pair (U+{ord(value[error.start]):04X}) at character "
            f"{error.start}; it was cut in the middle of a character, or read with the wrong encoding."
        ) from None
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
    known_scores: ClassVar[tuple[str, ...]] = tuple(METRICS)
    scores: tuple[str, ...] = ("accuracy",)
    long_text: LongText = "head"
    stride: int = 64
    text_column: str = "text"
    pair_column: str = ""
    label_column: str = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics(self.scores, self.known_scores, self.family)
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
        """A label from a record, None where it has none, or :class:`UnreadLabel`; never an error."""

    @abstractmethod
    def check_label(self, example: TextExample) -> None:
        """Refuse a label that the task does not have."""

    def check(self, examples: Sequence[TextExample], *, labelled: bool) -> None:
        """Texts can be read; every label is known, and there where it is needed."""
        for place, example in enumerate(examples):
            where = example.where or f"row {place + 1}"
            whole_text(example.text, self.text_column, where)
            whole_text(example.pair or "", self.pair_column, where)
            if labelled:
                self._check_labelled(example, where)

    def _check_labelled(self, example: TextExample, where: str) -> None:
        if example.label is None:
            raise InputError(
                f"{where}: there is no label, and training and evaluation need one. "
                f"Is label_column={self.label_column!r} right? Use predict for rows without labels."
            )
        if isinstance(example.label, UnreadLabel):
            raise InputError(example.label.complaint)
        self.check_label(example)
        if self.metric in GROUPED and not example.group:
            raise InputError(
                f"{where}: the first of scores is {self.metric}, which compares the examples of a group (a question, a "
                "pair), but this one belongs to none. Name another metric first."
            )

    def split_key(self, example: TextExample) -> Any:
        """Examples of a group stay with all others on the same first text; any other example is by itself."""
        return example.text if example.group else super().split_key(example)

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
