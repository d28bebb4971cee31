"""Any-subset training: batches hide a random part of a text and ask for it from left to right (arXiv 2504.20456).

A model that is to give p(any tokens | any other tokens) must meet all shares of hidden tokens. An any-subset batch is
the text of an ordinary batch with another question: its targets are random whole words of the whole sequence, its order
is the lattice (what is shown first, then the targets in ascending order), and what it hides nothing gives away: it
starts without memory, and leaves none, because its states have seen what the next sequence will ask for.

The share of hidden tokens, the *rate*, is drawn from an interval that widens with the steps: easy questions first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xlnet.errors import ConfigurationError, known_keys
from xlnet.pretraining.draws import Draws

_KEY = "any_subset"
_NEEDS = (
    ("low", "share"), ("high", "share"), ("start", "share"), ("widen_steps", "share"), ("start", "widen_steps"),
)  # fmt: skip


@known_keys
@dataclass(frozen=True, kw_only=True)
class AnySubsetConfig:
    """How many batches are any-subset ones, and how much they hide.

    Args:
        share: of the micro-batches; 0 is none, 1 is all. The others follow ``order_kind``.
        low: smallest share of the tokens that a batch hides, once the interval is wide.
        high: largest share of the tokens that a batch hides, once the interval is wide.
        start: share of the tokens that the first batch hides.
        widen_steps: steps in which the interval widens linearly from ``start`` to ``low`` and ``high``; 0 is at once.

    Raises:
        ConfigurationError: for values that are out of range or contradict each other.
    """

    share: float = 0.0
    low: float = 0.05
    high: float = 1.0
    start: float = 0.15
    widen_steps: int = 0

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.low > self.high:
            raise ConfigurationError(
                f"{_KEY}.low={self.low} is above {_KEY}.high={self.high}: rates are drawn between the two, so low must "
                "be at most high."
            )
        for key, needed in _NEEDS:
            value, default = getattr(self, key), getattr(AnySubsetConfig, key)
            if getattr(self, needed) == 0 and value != default:
                raise ConfigurationError(
                    f"{_KEY}.{key}={value!r} has no effect while {_KEY}.{needed}=0: set {_KEY}.{needed} above 0, or "
                    f"{_KEY}.{key} to its default {default}."
                )

    def at_full_width(self) -> AnySubsetConfig:
        """The same without the widening, for evaluation."""
        return AnySubsetConfig(share=self.share, low=self.low, high=self.high) if self.share else self

    def interval(self, step: int) -> tuple[float, float]:
        """The rates of ``step``, counted from 0 over all epochs."""
        progress = min(1.0, step / self.widen_steps) if self.widen_steps else 1.0
        low, high = (self.start + (end - self.start) * progress for end in (self.low, self.high))
        return low, high

    def rates(self, step: int, micro_batches: int, draws: Draws) -> list[float | None]:
        """Rate of each micro-batch of a step; None for one that follows ``order_kind``.

        The number of any-subset batches is ``share * micro_batches``, rounded up or down at random so that its mean is
        right. The interval is cut into as many equal bins, one for each of them: a step then meets easy and hard
        questions alike, which makes its gradient vary less than with independent draws.

        Args:
            step: counted from 0 over all epochs.
            micro_batches: of the step.
            draws: random numbers of the step.
        """
        count = min(micro_batches, math.floor(self.share * micro_batches + draws.uniform()))
        low, high = self.interval(step)
        rates: list[float | None] = [low + (high - low) * (place + draws.uniform()) / count for place in range(count)]
        rates += [None] * (micro_batches - count)
        return [rates[place] for place in draws.permutation(micro_batches).tolist()]

    def describe(self) -> str:
        """One sentence for people."""
        first = f" ({self.start:.0%} at first, all from step {self.widen_steps:,} on)" if self.widen_steps else ""
        return (
            f"{self.share:.0%} of the micro-batches hide random words, {self.low:.0%} to {self.high:.0%} of the tokens"
            f"{first}."
        )

    def _check_numbers(self) -> None:
        for key, least in (("share", "0"), ("low", "above 0"), ("high", "above 0"), ("start", "above 0")):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0.0 <= value <= 1.0 and (value > 0.0 or key == "share")):
                raise ConfigurationError(f"{_KEY}.{key}={value!r} must be a share from {least} to 1.")
        if not isinstance(self.widen_steps, int) or isinstance(self.widen_steps, bool) or self.widen_steps < 0:
            raise ConfigurationError(f"{_KEY}.widen_steps={self.widen_steps!r} must be a whole number of at least 0.")
