"""Any number of labels for a text: each is a yes-no question of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError
from xlnet.model.classification import example_losses
from xlnet.tasks.contract import Prediction, Row, TaskBatch
from xlnet.tasks.families.classification import label_error
from xlnet.tasks.families.text import TextExample, TextTask
from xlnet.training.contracts import Step


@dataclass(frozen=True, kw_only=True)
class MultiLabelClassification(TextTask):
    """Several labels may hold at once, or none.

    In JSONL labels are a list; in tables they are joined by ``label_separator``, and an empty cell means none of them.

    Args:
        label_names: the labels in the order of their ids.
        threshold: a label holds where its probability is at least this.
        label_separator: stands between the labels of a table's cell.
    """

    family = "multi_label"
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

    def read_label(self, value: Any, where: str) -> tuple[str, ...] | None:
        """A tuple of names."""
        if value is None:
            return None
        parts = value.split(self.label_separator) if isinstance(value, str) else list(value)
        return tuple(str(part).strip() for part in parts if str(part).strip())

    def check_label(self, example: TextExample) -> None:
        """All are among ``label_names``."""
        for name in example.label:
            if name not in self.label_names:
                raise label_error(name, self.label_names, example.where or f"example {example.id}")

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
