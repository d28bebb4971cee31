"""Low-rank adaptation (Hu et al. 2021): W + B A, where only A and B are trained; merged into W before saving."""

from __future__ import annotations

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
    adapted = {n: m for n, m in model.named_modules() if parametrize.is_parametrized(m, "weight")}
    if not adapted:
        return model
    # A fresh model takes the weights: taking the additions off a deep copy would break the original, with which the
    # copy shares its classes.
    with torch.device("meta"):
        plain = type(model)(model.config)
    state = {name: value.clone() for name, value in model.state_dict().items() if ".parametrizations." not in name}
    state |= {f"{name}.weight": _weight(module).clone() for name, module in adapted.items()}
    plain.load_state_dict(state, assign=True)
    return plain.train(model.training)


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    if not isinstance(weight, Tensor):
        raise TypeError(f"{type(module).__name__}.weight is no tensor.")
    return weight.detach()
