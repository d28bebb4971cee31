"""Optimizers and their parameter groups: torch's AdamW, and the release's Adam without its usual bias correction.

Names of parameters mean something only through two callables, ``layer_of`` and ``decays``; the defaults fit this
library's models (``layers.3. …``, ``attention_biases.3. …``, ``word_embedding``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xlnet.errors import ConfigurationError, check_choice, known_keys
from xlnet.training.release_adam import ReleaseAdam

LayerOf = Callable[[str], int | None]
Decays = Callable[[str], bool]

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_SHARED_OR_LAYER_BIAS = re.compile(r"(?:^|\.)attention_biases\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:word_embedding|mask_embedding|mask_emb)(?:\.|$)")
_CHOICES = {"kind": ("adamw", "release"), "layer_decay_mode": ("lr", "gradient")}


@known_keys
@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How parameters are updated.

    Args:
        kind: ``adamw`` is torch's; ``release`` is the update of the official code: with a weight decay its
            ``AdamWeightDecayOptimizer``, which corrects no bias; without one TensorFlow's Adam.
        learning_rate: peak rate, reached at the end of the warm-up.
        weight_decay: decoupled decay, on the parameters that ``decays`` accepts.
        beta1: decay of the mean of gradients.
        beta2: decay of the mean of squared gradients.
        epsilon: added to the root of that mean (1e-6 in the paper, A.3).
        layer_decay: 1.0 is none; a layer m below the top gets ``layer_decay ** m`` of the rate (paper, table 8).
        layer_decay_mode: ``lr`` scales the rate, embeddings lowest, as the paper says; ``gradient`` scales the clipped
            gradient of the layers only, as the release does, which Adam nearly undoes.
    """

    kind: Literal["adamw", "release"] = "adamw"
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    layer_decay: float = 1.0
    layer_decay_mode: Literal["lr", "gradient"] = "lr"

    def __post_init__(self) -> None:
        for key, allowed in _CHOICES.items():
            value = getattr(self, key)
            check_choice(f"optimizer.{key}", value, allowed)
        for key in ("learning_rate", "weight_decay"):
            if not 0.0 <= getattr(self, key) < float("inf"):
                raise ConfigurationError(f"optimizer.{key}={getattr(self, key)} must be a number of at least 0.")
        for key in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, key) < 1.0:
                raise ConfigurationError(f"optimizer.{key}={getattr(self, key)} must lie in [0, 1).")
        if not 0.0 < self.epsilon < 1.0:
            raise ConfigurationError(f"optimizer.epsilon={self.epsilon} must lie between 0 and 1.")
        if not 0.0 < self.layer_decay <= 1.0:
            raise ConfigurationError(f"optimizer.layer_decay={self.layer_decay} must lie in (0, 1]; 1 is no decay.")


def native_layers(names: Iterable[str]) -> LayerOf:
    """The rule ``name -> layer`` for these names: -1 for embeddings, None for heads and for what layers share."""
    biases = {int(match[1]) for name in names if (match := _SHARED_OR_LAYER_BIAS.search(name))}
    tied = biases == {0} and any((match := _LAYER.search(name)) and int(match[1]) > 0 for name in names)

    def layer_of(name: str) -> int | None:
        if _EMBEDDING.search(name):
            return -1
        match = _LAYER.search(name) or (None if tied else _SHARED_OR_LAYER_BIAS.search(name))
        return int(match[1]) if match else None

    return layer_of


def released_layer_of(name: str) -> int | None:
    """As in the release: only what lies inside a layer there; not embeddings, heads, attention biases or segments."""
    match = _LAYER.search(name)
    return int(match[1]) if match and not name.endswith("segment_embedding") else None


def native_decays(name: str) -> bool:
    """Weight decay on everything but layer normalization and biases (those of attention included)."""
    parts = name.split(".")
    is_norm = any("norm" in part.lower() for part in parts)
    return not (is_norm or parts[-1].endswith("bias") or "attention_biases" in parts)


def released_decays(name: str) -> bool:
    """As in the release: like :func:`native_decays`, but the attention biases u, v and b do decay."""
    return "attention_biases" in name.split(".") or native_decays(name)


def parameter_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]],
    config: OptimizerConfig,
    layer_of: LayerOf | None = None,
    decays: Decays | None = None,
) -> list[dict[str, Any]]:
    """Trainable parameters grouped by layer and weight decay.

    Each group carries ``names``, ``weight_decay``, ``lr_scale`` (for :func:`set_learning_rate`) and ``gradient_scale``
    (for :func:`scale_gradients`). Their order follows from the order of the parameters alone.

    Raises:
        ConfigurationError: when no parameter is trainable.
    """
    trainable = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
    if not trainable:
        raise ConfigurationError(
            "The model has no trainable parameter (requires_grad is False everywhere): unfreeze some."
        )
    names = [name for name, _ in trainable]
    by_gradient = config.layer_decay_mode == "gradient"
    layer_of = layer_of or (released_layer_of if by_gradient else native_layers(names))
    decays = decays or (released_decays if config.kind == "release" else native_decays)
    top = max((layer for name in names if (layer := layer_of(name)) is not None), default=-1)

    groups: dict[tuple[int | None, bool], dict[str, Any]] = {}
    for name, parameter in trainable:
        layer = layer_of(name) if config.layer_decay != 1.0 else None
        decayed = config.weight_decay > 0.0 and decays(name)
        scale = 1.0 if layer is None else config.layer_decay ** (top - layer)
        group = groups.setdefault(
            (layer, decayed),
            {
                "params": [],
                "names": [],
                "weight_decay": config.weight_decay if decayed else 0.0,
                "lr_scale": 1.0 if by_gradient else scale,
                "gradient_scale": scale if by_gradient else 1.0,
            },
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, layer_of: LayerOf | None = None, decays: Decays | None = None
) -> Optimizer:
    """The optimizer of ``config`` for the trainable parameters of ``model``; see :func:`set_learning_rate` too."""
    groups = parameter_groups(model.named_parameters(), config, layer_of, decays)
    betas = (config.beta1, config.beta2)
    if config.kind == "release":
        return ReleaseAdam(groups, betas=betas, eps=config.epsilon, bias_correction=config.weight_decay == 0.0)
    # The fused kernel is one pass over memory on CPU and CUDA; other devices take torch's own choice.
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for g in groups for p in g["params"])
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon, fused=fused or None)


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Give every group its share of ``learning_rate``."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """The gradients that are there, in the order of the groups."""
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def clip_gradients(
    gradients: Sequence[Tensor], max_norm: float, norm: Tensor | float | None = None, scale: float = 1.0
) -> Tensor | float:
    """Multiply gradients in place by ``scale``, and further so that their global norm is at most ``max_norm``.

    Args:
        gradients: any shapes, floating.
        max_norm: limit of the Euclidean norm over all of them; 0 clips nothing.
        norm: norm of the gradients as given, where it is known already; measured otherwise.
        scale: say 1 / targets, where gradients are sums over targets.

    Returns:
        The norm after scaling and before clipping.
    """
    if norm is None:
        norm = nn.utils.get_total_norm(list(gradients))
    norm = norm * scale
    factor: Tensor | float = scale
    if max_norm > 0.0 and norm > max_norm:
        # Without the 1e-6 that torch adds to the norm: the release's rule to the last digit.
        factor = scale * max_norm / norm
    if isinstance(factor, Tensor) or factor != 1.0:
        torch._foreach_mul_(list(gradients), factor)
    return norm


def scale_gradients(optimizer: Optimizer) -> None:
    """The release's layer-wise decay: multiply (already clipped) gradients by the ``gradient_scale`` of their group."""
    for group in optimizer.param_groups:
        gradients = [p.grad for p in group["params"] if p.grad is not None]
        if group["gradient_scale"] != 1.0 and gradients:
            torch._foreach_mul_(gradients, group["gradient_scale"])
