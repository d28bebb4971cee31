"""One class for a text or a pair of texts: sentiment, topic, entailment, acceptability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.tasks.contract import Prediction, Row, TaskBatch
from xlnet.tasks.families.text import TextExample, TextTask, UnreadLabel, plain_label
from xlnet.training.contracts import Step

_SHOWN_LABELS = 20


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def label_error(value: Any, allowed: Sequence[str], where: str) -> InputError:
    """The complaint about a label that a task does not have."""
    shown = ", ".join(map(repr, allowed[:_SHOWN_LABELS])) + (", ..." if len(allowed) > _SHOWN_LABELS else "")
    return InputError(f"{where}: label {value!r} is not known; allowed are {shown}.{did_you_mean(str(value), allowed)}")


def label_names(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """The labels that occur, in the order of numbers where all are numbers, else of the alphabet.

    Raises:
        InputError: fewer than two, or one that could not be read.
    """
    for example in examples:
        if isinstance(example.label, UnreadLabel):
            raise InputError(example.label.complaint)
    found = {
        name for e in examples if e.label is not None for name in ([e.label] if isinstance(e.label, str) else e.label)
    }
    if len(found) < 2:
        raise InputError(
            f"The training data holds {len(found)} different labels ({', '.join(sorted(found)) or 'none'}); "
            "a classifier needs at least two. Is the label column right?"
        )
    numbers = all(name.lstrip("-").isdecimal() for name in found)
    return tuple(sorted(found, key=lambda name: (int(name), name)) if numbers else sorted(found))


def balanced_weights(examples: Sequence[TextExample], labels: Sequence[str]) -> tuple[float, ...]:
    """Weights in inverse proportion to how often each label occurs, 1 on average over the examples.

    A label that never occurs gets 1.
    """
    counts = Counter(example.label for example in examples)
    present = sum(1 for name in labels if counts[name])
    return tuple(len(examples) / (present * counts[name]) if counts[name] else 1.0 for name in labels)


@dataclass(frozen=True, kw_only=True)
class TextClassification(TextTask):
    """Exactly one of several labels.

    Args:
        label_names: the labels in the order of their ids.
        class_weights: what the loss of each label is multiplied by; empty for none.
        label_smoothing: share of the target spread over all labels alike.
    """

    family = "text_classification"
    known_scores: ClassVar[tuple[str, ...]] = (
        "accuracy", "f1", "macro_f1", "matthews", "f1a", "em", "gender_parity",
    )  # fmt: skip
    label_names: tuple[str, ...] = ("0", "1")
    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.label_names) < 2 or len(set(self.label_names)) != len(self.label_names):
            raise ConfigurationError(f"label_names={self.label_names} must be at least two different names.")
        if self.class_weights and len(self.class_weights) != len(self.label_names):
            raise ConfigurationError(
                f"{len(self.class_weights)} class_weights are given for {len(self.label_names)} labels."
            )
        if any(not 0.0 <= weight < float("inf") for weight in self.class_weights):
            raise ConfigurationError(f"class_weights={self.class_weights} must be numbers of at least 0.")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ConfigurationError(f"label_smoothing={self.label_smoothing} must lie in [0, 1).")

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in the order of their ids."""
        return self.label_names

    def model_settings(self) -> dict[str, Any]:
        """One output a label."""
        return {"num_labels": len(self.label_names), "labels": self.label_names}

    def read_label(self, value: Any, where: str) -> str | UnreadLabel | None:
        """The name of a class."""
        if isinstance(value, Mapping | Sequence | Set) and not isinstance(value, str):
            return UnreadLabel(
                f"{where}: label {value!r} must be the name of one class (a text). "
                "Texts with several labels are the task multilabel."
            )
        return plain_label(value)

    def check_label(self, example: TextExample) -> None:
        """One of ``label_names``."""
        if example.label not in self.label_names:
            raise label_error(example.label, self.label_names, example.where or f"example {example.id}")

    def targets(self, rows: Sequence[Row]) -> Tensor:
        """``[B]`` int64 ids."""
        ids = {name: i for i, name in enumerate(self.label_names)}
        return torch.tensor([ids[row.label] for row in rows])

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Cross-entropy, weighted and smoothed as set; the mean over rows is transformers' loss where neither is."""
        logits = model(**batch.inputs).logits.float()
        weights = torch.tensor(self.class_weights, device=logits.device) if self.class_weights else None
        targets = batch.labels["targets"]
        loss = nn.functional.cross_entropy(
            logits, targets, weights, reduction="sum", label_smoothing=self.label_smoothing
        )
        return Step(loss, len(batch.rows))

    def prediction(self, logits: NDArray[np.float64]) -> Prediction:
        """``label``, and ``probabilities`` by name."""
        probabilities = softmax(logits)
        return {
            "label": self.label_names[int(probabilities.argmax())],
            "probabilities": dict(zip(self.label_names, probabilities.tolist(), strict=True)),
        }
