"""Initial weights, as the release draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from xlnet.configuration import XLNetConfig


def initialize(module: nn.Module, config: XLNetConfig) -> None:
    """Draw all parameters of a module; see :func:`draw`."""
    draw(module.named_parameters(), config)


@torch.no_grad()
def draw(named: Iterable[tuple[str, Tensor]], config: XLNetConfig) -> None:
    """Fill tensors in place by their native names.

    Normal(0, ``initializer_range``) for every weight, attention bias and segment embedding; zero for other biases; one
    for layer-norm gains. The mask embedding takes the release's Glorot range, since it was given no initializer.
    """
    for name, parameter in named:
        owner, _, leaf = name.rpartition(".")
        if leaf == "mask_embedding":
            limit = math.sqrt(6.0 / (1 + config.d_model))
            parameter.uniform_(-limit, limit)
        elif owner.endswith("norm"):
            parameter.fill_(1.0 if leaf == "weight" else 0.0)
        elif leaf in ("bias", "lm_bias"):
            parameter.zero_()
        else:
            parameter.normal_(0.0, config.initializer_range)
