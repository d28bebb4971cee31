"""What a task is: examples + features + head + loss + predictions + metrics.

The engine (``finetune``, ``evaluate``, ``predict``) knows nothing else about a task. One walk through it::

    examples --features--> rows --collate--> TaskBatch --loss-------------------------------> training
                                                       --outputs--> one output a row
    examples + rows + outputs --predictions--> one record an example --metrics--> numbers

* An *example* is what a person would call one: a review, a question with its passage, a query with its documents. It
  has an ``id``; all else is the family's own business.
* A *row* is what the model reads: an example gives one row or several (windows of a long text, spans of a passage), and
  a row holds one sequence or several (choices, documents of a query). Rows say which example they come from.
* A *prediction* is a plain record ready for JSON, one for each example and in the order of the examples, always.

A family is a frozen dataclass derived from :class:`Task`; its fields are the settings that a fine-tuned folder keeps in
``task.json``, so they are plain values. Data is no part of it: files are read by ``xlnet.tasks.datasets``. A family is
made known to saved folders by a line in ``xlnet.tasks.catalog.FAMILIES``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.model import PretrainedModel
from xlnet.text import XLNetTokenizer
from xlnet.text.symbols import PAD_ID, SEGMENT_PAD
from xlnet.training.contracts import Step

Prediction = dict[str, Any]


class Example(Protocol):
    """Whatever a family reads; the engine only needs to name it."""

    @property
    def id(self) -> str:
        """What the user calls this example; it is repeated in its prediction."""
        ...


@dataclass(frozen=True)
class TokenSequence:
    """One sequence without padding.

    Attributes:
        input_ids: ``[L]`` int32.
        token_type_ids: ``[L]`` uint8, segments as in the release (0, 1, and 2 for ``<cls>``).
    """

    input_ids: NDArray[np.int32]
    token_type_ids: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class Row:
    """What the model reads at once for one example.

    Attributes:
        example: index of the example among those given to ``features``.
        sequences: one, or several where they are compared (choices, documents).
        label: of the family's own kind; None where not known.
        extra: what ``predictions`` needs again later (offsets, positions), opaque to the engine.
    """

    example: int
    sequences: tuple[TokenSequence, ...]
    label: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Of the longest sequence."""
        return max(map(len, self.sequences))


@dataclass(frozen=True)
class TaskBatch:
    """Some rows as tensors.

    Attributes:
        inputs: keyword arguments of the model.
        labels: what the loss compares with, by name; empty where no label is known.
        rows: where the tensors come from.
    """

    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]
    rows: tuple[Row, ...]

    def to(self, device: torch.device | str) -> TaskBatch:
        """The same batch on another device."""
        return TaskBatch(
            {key: value.to(device, non_blocking=True) for key, value in self.inputs.items()},
            {key: value.to(device, non_blocking=True) for key, value in self.labels.items()},
            self.rows,
        )

    @property
    def token_count(self) -> int:
        """Positions with padding, the unit of tokens per second."""
        return self.inputs["input_ids"].numel()


def pad_sequences(sequences: Sequence[TokenSequence], multiple: int = 8) -> dict[str, Tensor]:
    """``input_ids``, ``attention_mask`` and ``token_type_ids``, each ``[B, L]``, padded on the left as released.

    Args:
        sequences: B sequences.
        multiple: the length is rounded up to a multiple of this, so that few shapes occur.
    """
    longest = max(map(len, sequences))
    width = -(-longest // multiple) * multiple
    ids = np.full((len(sequences), width), PAD_ID, dtype=np.int64)
    segments = np.full((len(sequences), width), SEGMENT_PAD, dtype=np.int64)
    mask = np.zeros((len(sequences), width), dtype=np.bool_)
    for i, sequence in enumerate(sequences):
        ids[i, width - len(sequence) :] = sequence.input_ids
        segments[i, width - len(sequence) :] = sequence.token_type_ids
        mask[i, width - len(sequence) :] = True
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A kind of problem, with its settings. Subclasses are frozen dataclasses with plain fields.

    Args:
        name: what the user calls it, in messages and file names.
        max_length: tokens of a sequence at most, ``<sep>`` and ``<cls>`` included.
    """

    family: ClassVar[str]
    model_class: ClassVar[type[PretrainedModel]]
    name: str = "task"
    max_length: int = 128

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise ConfigurationError(f"max_length={self.max_length} must be at least 8.")

    @property
    @abstractmethod
    def metric(self) -> str:
        """The metric that decides which checkpoint is best; larger is better."""

    def model_settings(self) -> dict[str, Any]:
        """Configuration keys that the head needs (``num_labels``, ``labels`` ...)."""
        return {}

    @abstractmethod
    def example(self, record: Mapping[str, Any], where: str, number: int) -> Any:
        """An example from a record of the user's: a line of JSONL, or a row of a table by its column names.

        Args:
            record: the values; the label may be absent.
            where: file and line, for messages.
            number: place of the record, the ``id`` where the record has none.

        Raises:
            InputError: a value is missing or of the wrong kind; names those present.
        """

    def check(self, examples: Sequence[Any], *, labelled: bool) -> None:  # noqa: B027  a task may have nothing to check
        """Refuse examples that cannot be used, before any work.

        Args:
            examples: all of a split.
            labelled: whether labels are needed (training, evaluation) or only text (prediction).

        Raises:
            InputError: names file and row, the value, and what is allowed.
        """

    @abstractmethod
    def features(self, examples: Sequence[Any], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """Rows of all examples, at least one each, in the order of the examples.

        Args:
            examples: checked ones.
            tokenizer: gives ids.
            training: leave out what only predictions need, or what cannot be learnt from; never refuse an example.
        """

    def collate(self, rows: Sequence[Row]) -> TaskBatch:
        """Tensors of some rows: all their sequences as ``[B, L]``, and :meth:`labels`."""
        inputs = pad_sequences([sequence for row in rows for sequence in row.sequences])
        return TaskBatch(inputs, self.labels(rows), tuple(rows))

    @abstractmethod
    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """What :meth:`loss` compares with; an empty dict where a row has no label."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Summed loss of a batch and the number of targets. Calls ``model`` as a function only (it may be wrapped)."""

    @abstractmethod
    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[Any]:
        """One output a row: plain NumPy values on the host, small (called in eval mode, without gradients)."""

    @abstractmethod
    def predictions(self, examples: Sequence[Any], rows: Sequence[Row], outputs: Sequence[Any]) -> list[Prediction]:
        """One record for each example, in their order, with its ``id``.

        Args:
            examples: all of them.
            rows: from :meth:`features` with ``training=False``.
            outputs: one for each row.
        """

    @abstractmethod
    def metrics(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Numbers as the official scorers give them, among them :attr:`metric`; all examples are labelled."""

    def split_key(self, example: Any) -> Any:
        """Examples with equal keys stay together where held-out data is split off; by default each is by itself."""
        return id(example)

    def calibrated(self, metrics: Mapping[str, float]) -> Task:
        """The task with what only held-out data can tell (a threshold), from its metrics; by default as it is."""
        return self

    def settings(self) -> dict[str, Any]:
        """Plain values, for ``task.json``."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> Task:
        """The reverse of :meth:`settings`.

        Raises:
            ConfigurationError: for an unknown key.
        """
        known = [item.name for item in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigurationError(
                    f"{cls.family} has no setting {key!r}; it has {', '.join(known)}.{did_you_mean(key, known)}"
                )
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**given)
