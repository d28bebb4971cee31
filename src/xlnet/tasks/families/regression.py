"""A number for a text or a pair of texts: similarity (STS-B), rating, price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError
from xlnet.model.classification import example_losses
from xlnet.tasks.contract import Prediction, Row, TaskBatch
from xlnet.tasks.families.text import TextExample, TextTask, UnreadLabel
from xlnet.training.contracts import Step


@dataclass(frozen=True, kw_only=True)
class TextRegression(TextTask):
    """A number, trained with squared error.

    Args:
        mean: what the model's 0 stands for; the release trains on raw numbers (0).
        scale: what the model's 1 stands for beyond that; the release has 1. See :meth:`standardized`.
        lowest: predictions are never below; None for no limit.
        highest: predictions are never above; None for no limit.
    """

    family = "text_regression"
    known_scores: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "negative_rmse")
    scores: tuple[str, ...] = ("pearson", "spearman", "negative_rmse")
    mean: float = 0.0
    scale: float = 1.0
    lowest: float | None = None
    highest: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.mean) and math.isfinite(self.scale) and self.scale > 0.0):
            raise ConfigurationError(f"mean={self.mean} must be finite and scale={self.scale} positive.")

    def standardized(self, examples: Sequence[TextExample]) -> TextRegression:
        """With mean and scale of these examples, so that the model learns numbers around 0 whatever their unit."""
        values = [example.label for example in examples]
        spread = float(np.std(values))
        return replace(self, mean=float(np.mean(values)), scale=spread if spread > 0.0 else 1.0)

    def model_settings(self) -> dict[str, Any]:
        """A single output."""
        return {"num_labels": 1, "labels": ()}

    def read_label(self, value: Any, where: str) -> float | UnreadLabel | None:
        """A finite number."""
        if value is None or value == "":
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            return UnreadLabel(f"{where}: label {value!r} is no number, which this task predicts.")
        return number

    def check_label(self, example: TextExample) -> None:
        """A number, as read."""
        label = self.read_label(example.label, example.where or f"example {example.id}")
        if isinstance(label, UnreadLabel):
            raise InputError(label.complaint)

    def targets(self, rows: Sequence[Row]) -> Tensor:
        """``[B]`` float32, standardized."""
        return torch.tensor([(row.label - self.mean) / self.scale for row in rows], dtype=torch.float32)

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Squared error."""
        losses = example_losses(model(**batch.inputs).logits.float(), batch.labels["targets"])
        return Step(losses.sum(), len(batch.rows))

    def prediction(self, logits: NDArray[np.float64]) -> Prediction:
        """``label``: the number."""
        value = float(logits[0]) * self.scale + self.mean
        if self.lowest is not None:
            value = max(self.lowest, value)
        if self.highest is not None:
            value = min(self.highest, value)
        return {"label": value}
