"""From logits to a law to draw from, and the random stream that draws.

One deterministic transform serves sequential sampling, drafts and their verification alike: that is all that exact
parallel decoding asks for. Forbidden pieces are masked before the softmax, so ratios of laws stay right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from xlnet.errors import ConfigurationError, InputError, known_keys


@known_keys
@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a token is chosen from its distribution.

    Args:
        temperature: divides the logits; None takes the most probable token always (greedy).
        top_k: keep the k most probable tokens; None keeps all.
        top_p: keep the smallest set of most probable tokens whose mass reaches p; None keeps all.
        repetition_penalty: logits of tokens already in the text are divided by it where positive and multiplied where
            negative (CTRL, arXiv 1909.05858 §4.1); 1 is none.
        banned: ids that are never chosen.
        allowed: ids that may be chosen; None is all.
        seed: start of the random streams; sample i of a call has its own stream (seed, i), whatever it is batched with.
    """

    temperature: float | None = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    banned: tuple[int, ...] = ()
    allowed: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "banned", tuple(self.banned))
        if self.allowed is not None:
            object.__setattr__(self, "allowed", tuple(self.allowed))
        if self.temperature is not None and not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ConfigurationError(
                f"temperature={self.temperature} must be positive; for the most probable token use temperature=None."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigurationError(f"top_k={self.top_k} must be at least 1; None keeps every token.")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise ConfigurationError(f"top_p={self.top_p} must lie in (0, 1]; None keeps every token.")
        if not (self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty)):
            raise ConfigurationError(f"repetition_penalty={self.repetition_penalty} must be positive; 1 is none.")
        if self.seed < 0:
            raise ConfigurationError(f"seed={self.seed} must not be negative.")
        if self.allowed is not None and not set(self.allowed) - set(self.banned):
            raise ConfigurationError(
                "allowed and banned together leave no token to choose: every allowed id is banned."
            )

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken always."""
        return self.temperature is None


GREEDY = SamplingConfig(temperature=None)


def permitted(config: SamplingConfig, vocab_size: int, extra_banned: Sequence[int] = ()) -> Tensor | None:
    """``[V]`` bool of the ids that may be chosen, or None for all.

    Raises:
        InputError: an id that the vocabulary does not hold.
        ConfigurationError: nothing is left.
    """
    banned = (*config.banned, *extra_banned)
    for name, ids in (("banned", config.banned), ("allowed", config.allowed or ())):
        for value in ids:
            if not 0 <= value < vocab_size:
                raise InputError(f"{name} holds id {value}, but ids run from 0 to {vocab_size - 1}.")
    if not banned and config.allowed is None:
        return None
    mask = torch.ones(vocab_size, dtype=torch.bool)
    if config.allowed is not None:
        mask.zero_()
        mask[list(config.allowed)] = True
    mask[[value for value in banned if 0 <= value < vocab_size]] = False
    if not bool(mask.any()):
        raise ConfigurationError("Nothing may be chosen: the allowed ids are all banned.")
    return mask


def adjust(logits: Tensor, config: SamplingConfig, seen: Sequence[int], mask: Tensor | None) -> Tensor:
    """Logits ``[V]`` after repetition penalty, mask and temperature, in at least float32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if config.repetition_penalty != 1.0 and len(seen):
        index = torch.tensor(sorted(set(seen)), device=logits.device)
        chosen = logits[index]
        chosen = torch.where(chosen > 0, chosen / config.repetition_penalty, chosen * config.repetition_penalty)
        logits = logits.index_copy(0, index, chosen)
    if mask is not None:
        logits = logits.masked_fill(~mask.to(logits.device), -torch.inf)
    if config.temperature is not None and config.temperature != 1.0:
        logits = logits / config.temperature
    return logits


def law(logits: Tensor, config: SamplingConfig, seen: Sequence[int] = (), mask: Tensor | None = None) -> Tensor:
    """The distribution that a token is drawn from.

    Args:
        logits: ``[V]`` of the model.
        config: temperature, top-k, top-p, repetition penalty.
        seen: ids already in the text as this token sees it.
        mask: ``[V]`` bool of the ids that may be chosen; None is all.

    Returns:
        ``[V]`` probabilities; a single 1 at the best token where the choice is greedy (lowest id among equals).
    """
    logits = adjust(logits, config, seen, mask)
    if config.greedy:
        return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
    size = logits.shape[0]
    if config.top_k is not None and config.top_k < size:
        best, index = logits.topk(config.top_k)
        logits = torch.full_like(logits, -torch.inf).index_copy_(0, index, best)
    probabilities = logits.softmax(dim=-1)
    if config.top_p is not None and config.top_p < 1.0:
        ordered, index = probabilities.sort(descending=True, stable=True)
        before = ordered.cumsum(0) - ordered
        ordered = ordered.masked_fill(before >= config.top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).index_copy_(0, index, ordered / ordered.sum())
    return probabilities


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """What is left of the target law where the draft law gave too little: ``(q - p)+``, normalized, ``[V]``."""
    left = (target - draft).clamp(min=0)
    total = left.sum()
    return left / total if float(total) > 0 else target


class Chooser(Protocol):
    """The two random decisions that decoding makes; a test may enumerate them instead of drawing."""

    def choose(self, probabilities: Tensor) -> int:
        """An index of ``probabilities [V]``, drawn from them."""
        ...

    def accept(self, probability: float) -> bool:
        """True with the given probability."""
        ...


class RandomStream:
    """Random decisions of one sample, from a seed and the sample's number alone."""

    def __init__(self, seed: int, sample: int) -> None:
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, sample))))

    def choose(self, probabilities: Tensor) -> int:
        """By inversion: the first index at which the cumulative law exceeds one uniform number."""
        cumulative = probabilities.detach().cpu().to(torch.float64).cumsum(0).numpy()
        place = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        if place < len(cumulative):
            return place
        return int(probabilities.nonzero()[-1])  # the product above was rounded up to the whole mass

    def accept(self, probability: float) -> bool:
        """True where a uniform number falls below ``probability``."""
        return bool(self._random.random() < probability)
