"""Held-out loss: the same batches, targets and orders each time, lanes walked with their memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from xlnet.batch import PretrainingBatch
from xlnet.configuration import XLNetConfig
from xlnet.float32 import float32_products
from xlnet.pretraining.objective import PermutationObjective


class HeldOutLoss:
    """Callable ``model -> {"loss", "perplexity"}`` for the training loop; nats per predicted token.

    Args:
        batches: finite and repeatable, see :func:`xlnet.pretraining.fixed_batches.evaluation_batches`.
        config: of the model.
        any_subset: any-subset batches, whose loss is reported beside as ``any_subset_loss``.
    """

    def __init__(
        self,
        batches: Iterable[PretrainingBatch],
        config: XLNetConfig,
        any_subset: Iterable[PretrainingBatch] | None = None,
    ) -> None:
        self.batches = batches
        self.any_subset = any_subset
        self.objective = PermutationObjective(config)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Mean negative log-likelihood over all targets, and its exponential."""
        mean = self._mean_loss(model, self.batches)
        metrics = {"loss": mean, "perplexity": math.exp(min(mean, 80.0))}
        if self.any_subset is not None:
            metrics["any_subset_loss"] = self._mean_loss(model, self.any_subset)
        return metrics

    def _mean_loss(self, model: nn.Module, batches: Iterable[PretrainingBatch]) -> float:
        loss, count, carried = 0.0, 0, None
        device = next(model.parameters()).device
        for batch in batches:
            step = self.objective(model, batch.to(device), carried)
            carried = step.carried
            loss += step.loss_sum.item()
            count += int(step.count)
        return loss / max(1, count)


@torch.no_grad()
def held_out_loss(model: nn.Module, batches: Iterable[PretrainingBatch], config: XLNetConfig) -> dict[str, float]:
    """:class:`HeldOutLoss` once, in eval mode; the mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        with float32_products("auto", next(model.parameters()).device):
            return HeldOutLoss(batches, config)(model)
    finally:
        model.train(training)
