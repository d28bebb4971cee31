"""Cross-entropy over a large vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from xlnet.batch import IGNORED_LABEL


def vocabulary_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Summed negative log-likelihood in nats of ``labels`` under ``softmax(states weight^T + bias)``.

    Args:
        states: ``[B, P, D]``.
        weight: ``[V, D]``.
        bias: ``[V]``.
        labels: ``[B, P]`` int64; -100 does not count.

    Returns:
        A scalar, computed in at least float32; exactly 0 where no label counts.
    """
    logits = nn.functional.linear(states, weight.to(states.dtype), bias.to(states.dtype)).flatten(0, 1)
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    return nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")
