"""Any number of labels for a text: each is a yes-no question of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError
from xlnet.model.classification import example_losses
from xlnet.tasks.contract import Prediction, Row, TaskBatch
from xlnet.tasks.families.classification import label_error
from xlnet.tasks.families.text import TextExample, TextTask, UnreadLabel
from xlnet.training.contracts import Step


@dataclass(frozen=True, kw_only=True)
class MultiLabelClassification(TextTask):
    """Several labels may hold at once, or none.

    In JSONL labels are a list of texts, those that hold; in tables they are joined by ``label_separator``, and an empty
    cell means none of them.

    Args:
        label_names: the labels in the order of their ids.
        threshold: a label holds where its probability is at least this.
        label_separator: stands between the labels of a table's cell.
    """

    family = "multi_label"
    known_scores: ClassVar[tuple[str, ...]] = ("accuracy", "micro_f1", "label_macro_f1")
    scores: tuple[str, ...] = ("micro_f1", "label_macro_f1")
    label_names: tuple[str, ...] = ("0", "1")
    threshold: float = 0.5
    label_separator: str = "|"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.label_names) < 2 or len(set(self.label_names)) != len(self.label_names):
            raise ConfigurationError(f"label_names={self.label_names} must be at least two different names.")
        if not 0.0 < self.threshold < 1.0:
            raise ConfigurationError(f"threshold={self.threshold} must lie between 0 and 1.")

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in the order of their ids."""
        return self.label_names

    def model_settings(self) -> dict[str, Any]:
        """One output a label."""
        return {"num_labels": len(self.label_names), "labels": self.label_names}

    def read_label(self, value: Any, where: str) -> tuple[str, ...] | UnreadLabel | None:
        """A tuple of names, from a list of texts or from one text. Numbers, of 0 and 1 say, do not tell which hold."""
        if value is None:
            return None
        if isinstance(value, str):
            value = value.split(self.label_separator)
        if not isinstance(value, Sequence | Set) or not all(isinstance(part, str) for part in value):
            return UnreadLabel(
                f"{where}: label {value!r} does not say which labels hold; it must be the list of their names, "
                f"{json.dumps(_as_names(value), ensure_ascii=False)} say, and [] where none holds."
            )
        return tuple(part.strip() for part in value if part.strip())

    def check_label(self, example: TextExample) -> None:
        """All are among ``label_names``."""
        where = example.where or f"example {example.id}"
        label = (example.label,) if isinstance(example.label, str) else self.read_label(example.label, where)
        if isinstance(label, UnreadLabel):
            raise InputError(label.complaint)
        if isinstance(example.label, str):
            raise InputError(f"{where}: label {example.label!r} must be a tuple of names, {label!r} say.")
        for name in label or ():
            if name not in self.label_names:
                raise label_error(name, self.label_names, where)

    def targets(self, rows: Sequence[Row]) -> Tensor:
        """``[B, num_labels]`` float32 zeros and ones."""
        return torch.tensor([[float(name in row.label) for name in self.label_names] for row in rows])

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Binary cross-entropy, averaged over labels."""
        losses = example_losses(model(**batch.inputs).logits.float(), batch.labels["targets"])
        return Step(losses.sum(), len(batch.rows))

    def prediction(self, logits: NDArray[np.float64]) -> Prediction:
        """``label``: the list of those that hold; ``probabilities`` by name."""
        probabilities = np.exp(-np.logaddexp(0.0, -logits))
        holding = [name for name, p in zip(self.label_names, probabilities, strict=True) if p >= self.threshold]
        return {"label": holding, "probabilities": dict(zip(self.label_names, probabilities.tolist(), strict=True))}


def _as_names(value: Any) -> list[str]:
    """What was probably meant by something that is no list of names."""
    if isinstance(value, Mapping):
        return [str(name) for name, holds in value.items() if holds]
    return ["spam", "toxic"] if isinstance(value, Sequence | Set) else [str(value)]
