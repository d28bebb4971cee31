"""Cross-entropy over a large vocabulary, a few rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from xlnet.batch import IGNORED_LABEL
from xlnet.model.tracing import being_traced

CHUNK_ROWS = 128


def vocabulary_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Summed negative log-likelihood in nats of ``labels`` under ``softmax(states weight^T + bias)``.

    Only rows whose label counts are multiplied with the vocabulary, 128 at a time, and their gradients are formed at
    once: the ``[P, V]`` logits never exist as a whole.

    Args:
        states: ``[B, P, D]``.
        weight: ``[V, D]``.
        bias: ``[V]``.
        labels: ``[B, P]`` int64; -100 does not count.

    Returns:
        A scalar, computed in at least float32; exactly 0 where no label counts.
    """
    if being_traced():
        return plain_cross_entropy(states, weight.to(states.dtype), bias.to(states.dtype), labels)
    device = states.device.type
    if torch.is_autocast_enabled(device):
        # Autocast does not reach into a function with a backward of its own: cast here, once, as it would have done.
        states = states.to(torch.get_autocast_dtype(device))
    weight, bias = weight.to(states.dtype), bias.to(states.dtype)
    counted = labels != IGNORED_LABEL
    if bool(counted.all()):
        states, labels = states.flatten(0, 1), labels.flatten()
    else:
        states, labels = states[counted], labels[counted]
    with torch.autocast(device, enabled=False):
        return ChunkedCrossEntropy.apply(states, weight, bias, labels)


def plain_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """The same in one piece: what the chunks are tested against, and what a compiler can trace."""
    logits = nn.functional.linear(states, weight, bias).flatten(0, 1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum over rows ``[R, D]``; a sum has gradients that only await one factor, so forward can form them."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
        wanted = any(ctx.needs_input_grad)
        compute = torch.promote_types(states.dtype, torch.float32)
        total = torch.zeros((), dtype=compute, device=states.device)
        state_gradient, weight_gradient = torch.zeros_like(states), None
        bias_gradient = torch.zeros(bias.shape, dtype=compute, device=bias.device)
        for first in range(0, len(labels), CHUNK_ROWS):
            rows, places = states[first : first + CHUNK_ROWS], labels[first : first + CHUNK_ROWS, None]
            score = torch.addmm(bias, rows, weight.t()).to(compute)
            score.sub_(score.amax(dim=-1, keepdim=True))
            chosen = score.gather(1, places)
            denominator = score.exp_().sum(dim=-1, keepdim=True)
            total += (denominator.log() - chosen).sum()
            if not wanted:
                continue
            score.div_(denominator)
            score.scatter_add_(1, places, score.new_full((1, 1), -1.0).expand(places.shape))
            bias_gradient += score.sum(dim=0)
            error = score.to(states.dtype)
            torch.mm(error, weight, out=state_gradient[first : first + CHUNK_ROWS])
            if weight_gradient is None:
                weight_gradient = torch.mm(error.t(), rows)
            else:
                weight_gradient.addmm_(error.t(), rows)
        if wanted:
            ctx.save_for_backward(
                state_gradient,
                torch.zeros_like(weight) if weight_gradient is None else weight_gradient,
                bias_gradient.to(bias.dtype),
            )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (*(saved * gradient.to(saved.dtype) for saved in ctx.saved_tensors), None)
