"""The official code's two Adam updates, which differ from torch's in bias correction and in where epsilon stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class ReleaseAdam(Optimizer):
    """Adam as the release computes it (``model_utils.py`` there).

    With ``bias_correction`` it is TensorFlow's Adam: the rate is multiplied by sqrt(1 - beta2^t) / (1 - beta1^t), and
    epsilon is added to the uncorrected root. Without, it is the release's ``AdamWeightDecayOptimizer``: no correction
    at all, and ``lr * weight_decay * parameter`` is subtracted too.

    Args:
        params: parameters or groups; a group may set ``weight_decay`` and ``lr``.
        lr: learning rate.
        betas: decay of the running means of the gradient and of its square.
        eps: added to the root of the second mean.
        weight_decay: decoupled decay.
        bias_correction: see above.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = False,
    ) -> None:
        # `updates` counts per group, as the release counts per run: a parameter without gradient does not lag behind.
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "bias_correction": bias_correction, "updates": 0,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["updates"] += 1
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        parameters = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)
                }  # fmt: skip
        gradients = [p.grad for p in parameters]
        means = [self.state[p]["exp_avg"] for p in parameters]
        squares = [self.state[p]["exp_avg_sq"] for p in parameters]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(means, gradients, 1.0 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)

        rate = group["lr"]
        if group["bias_correction"]:
            t = group["updates"]
            rate *= math.sqrt(1.0 - beta2**t) / (1.0 - beta1**t)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["eps"])
        if group["weight_decay"]:
            # Both terms read the parameter as it was before the step, so the decay may come first.
            torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_addcdiv_(parameters, means, denominators, -rate)
