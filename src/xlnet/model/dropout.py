"""Dropout as a function: one place that every layer calls, so that a faster source of bits serves all of them."""

from __future__ import annotations

import torch
from torch import Tensor


def dropout(states: Tensor, rate: float, training: bool) -> Tensor:
    """Zero entries with probability ``rate``, scale the rest by ``1 / (1 - rate)``; the identity outside training."""
    if not training or rate == 0.0:
        return states
    return torch.nn.functional.dropout(states, rate)
