"""Dropout as a function: one place that every layer calls, with random bits that cost little.

A Bernoulli draw for every entry is the dearest part of a training step on CPU. One random 64-bit integer holds eight
bytes instead, and a byte decides about one entry: it is kept where ``byte >= threshold``. The rate is then a multiple
of 1/256; the rest is scaled by the inverse of the rate that is used, so the expectation is right for every rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model import pointwise
from xlnet.model.tracing import being_traced

LEVELS = 256
_INT64_LOWEST = -(2**63)


@dataclass(frozen=True)
class KeepRule:
    """How bytes decide: keep where ``byte >= threshold``, multiply what is kept by ``scale``."""

    threshold: int
    scale: float


def keep_rule(rate: float) -> KeepRule | None:
    """The rule for a dropout rate; None where the rate is too small for 256 levels and needs a plain draw."""
    if rate < 1 / LEVELS:
        return None
    threshold = min(round(rate * LEVELS), LEVELS - 1)
    return KeepRule(threshold, LEVELS / (LEVELS - threshold))


def scale_of(rate: float) -> float:
    """What kept entries are multiplied by."""
    rule = keep_rule(rate)
    return 1 / (1 - rate) if rule is None else rule.scale


def fill_keep(words: Tensor, count: int, rate: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``count`` decisions into the scratch ``words`` (int64, at least ``count / 8`` entries, contiguous).

    Returns:
        ``[count]`` uint8, 1 to keep and 0 to drop; it shares its memory with ``words``.
    """
    rule = keep_rule(rate)
    words = words[: word_count(count)]
    keep = words.view(torch.uint8)[:count]
    if rule is None:
        return keep.bernoulli_(1 - rate, generator=generator)
    words.random_(_INT64_LOWEST, None, generator=generator)  # the default range would leave one bit in 64 at zero
    return keep.clamp_(rule.threshold - 1, rule.threshold).sub_(rule.threshold - 1)


def word_count(count: int) -> int:
    """How many int64 words hold ``count`` decisions."""
    return -(-count // 8)


class ByteDropout(torch.autograd.Function):
    """Dropout that keeps one byte an entry for the backward pass."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rate: float) -> Tensor:
        words = torch.empty(word_count(states.numel()), dtype=torch.int64, device=states.device)
        keep = fill_keep(words, states.numel(), rate).view(states.shape)
        ctx.save_for_backward(keep)
        ctx.scale = scale_of(rate)
        return states.mul(keep).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient.mul(keep).mul_(ctx.scale), None


def dropout(states: Tensor, rate: float, training: bool) -> Tensor:
    """Zero entries with probability ``rate``, scale the rest up; the identity outside training.

    On CPU the rate is rounded to a multiple of 1/256 (and rates below that are drawn plainly); elsewhere, and under a
    compiler, the framework's own dropout is as cheap.
    """
    if not training or rate == 0.0:
        return states
    rule = keep_rule(rate)
    if states.device.type != "cpu" or rule is None or being_traced():
        return torch.nn.functional.dropout(states, rate)
    if pointwise.serves(states):
        return pointwise.activate_and_drop(states, False, rule.threshold, rule.scale)
    return ByteDropout.apply(states, rate)
