"""Small random models in float64 for the tests of properties, and how to compare what they give."""

from __future__ import annotations

import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.model import XLNetLMHeadModel, XLNetModel

SMALL = XLNetConfig(
    vocab_size=50, n_layer=3, d_model=24, n_head=3, d_head=6, d_inner=32, dropout=0.0, dropatt=0.0,
    initializer_range=0.5, summary_dropout=0.0,
)  # fmt: skip


def encoder(seed: int = 0, **changes: object) -> XLNetModel:
    torch.manual_seed(seed)
    return XLNetModel(SMALL.replace(**changes)).double().eval()


def language_model(seed: int = 0, **changes: object) -> XLNetLMHeadModel:
    torch.manual_seed(seed)
    return XLNetLMHeadModel(SMALL.replace(**changes)).double().eval()


def same(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < tolerance)


def gradients_of(model: torch.nn.Module) -> list[Tensor]:
    """Copies; a parameter that took no part (segments not given) counts as zero."""
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


ORDER = torch.tensor([[1, 3, 0, 5, 2, 4]])  # place of each position in the factorization 2, 0, 4, 1, 5, 3
