"""Low-rank adaptation (Hu et al. 2021): W + B A, where only A and B are trained; merged into W before saving."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from xlnet.errors import ConfigurationError
from xlnet.model import PretrainedModel

ADAPTED = ("query", "key", "value", "output")


class LowRank(nn.Module):
    """Adds ``B A * alpha / rank`` to a weight ``[out, in]``; B starts at zero, so nothing changes at first."""

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        out, inner = weight.shape
        self.a = nn.Parameter(torch.empty(rank, inner, dtype=weight.dtype, device=weight.device))
        self.b = nn.Parameter(torch.zeros(out, rank, dtype=weight.dtype, device=weight.device))
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight as used."""
        return weight + self.b @ self.a * self.scale


def add_lora(model: PretrainedModel, rank: int, alpha: float | None = None) -> None:
    """Freeze the encoder and put low-rank additions on the attention matrices of all layers; the head trains as ever.

    Args:
        model: with an ``encoder``; changed in place.
        rank: of the additions, at most the width of the matrices.
        alpha: their weight; by default ``2 * rank``.

    Raises:
        ConfigurationError: a rank that is too large.
    """
    config = model.config
    limit = min(config.d_model, config.n_head * config.d_head)
    if not 1 <= rank <= limit:
        raise ConfigurationError(
            f"lora_rank={rank} must lie between 1 and {limit}, the width of the attention matrices."
        )
    model.get_submodule("encoder").requires_grad_(False)
    for number in range(config.n_layer):
        attention = model.get_submodule(f"encoder.layers.{number}.attention")
        for name in ADAPTED:
            linear = attention.get_submodule(name)
            weight = linear.get_parameter("weight")
            parametrize.register_parametrization(linear, "weight", LowRank(weight, rank, alpha or 2.0 * rank))


def merged(model: PretrainedModel) -> PretrainedModel:
    """The model with its additions multiplied into its weights, as an ordinary model; itself where it has none."""
    if not any(parametrize.is_parametrized(module) for module in model.modules()):
        return model
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return copied
