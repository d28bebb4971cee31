"""In which order tokens are decided: an order is a list of positions, first decided first.

Different orders give a model's joint probability different values (they are different models of the same text), so
every likelihood is reported with its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from xlnet.errors import ConfigurationError, InputError, did_you_mean

OrderName = Literal["left_to_right", "right_to_left", "lattice", "random"]
_NAMES = ("left_to_right", "right_to_left", "lattice", "random")


def decision_order(
    order: str | Sequence[int], targets: Sequence[int], *, seed: int = 0, draw: int = 0
) -> tuple[int, ...]:
    """The targets in the order of their decision.

    Args:
        order: ``left_to_right``; ``right_to_left``; ``lattice``: what is given first, then the targets, each part in
            ascending position (arXiv 2205.13554), so the same as ``left_to_right`` once the given tokens are context;
            ``random``: a permutation drawn from (seed, draw); or the positions themselves.
        targets: positions to decide.
        seed, draw: which random permutation.

    Raises:
        ConfigurationError: an order of unknown name.
        InputError: given positions that are no permutation of the targets.
    """
    ascending = sorted(int(place) for place in targets)
    if isinstance(order, str):
        if order in ("left_to_right", "lattice"):
            return tuple(ascending)
        if order == "right_to_left":
            return tuple(reversed(ascending))
        if order == "random":
            return tuple(int(place) for place in np.random.default_rng((seed, draw)).permutation(ascending))
        raise ConfigurationError(
            f"order={order!r} is not known; it must be one of {', '.join(_NAMES)}, or a list of positions."
            + did_you_mean(order, _NAMES)
        )
    given = tuple(int(place) for place in order)
    if sorted(given) != ascending:
        missing = sorted(set(ascending) - set(given))
        extra = sorted(set(given) - set(ascending))
        twice = sorted({place for place in given if given.count(place) > 1})
        problem = next(
            text
            for found, text in (
                (missing, f"lacks position(s) {missing}"),
                (extra, f"holds position(s) {extra} that are not to be decided"),
                (twice, f"holds position(s) {twice} more than once"),
            )
            if found
        )
        raise InputError(f"order={list(given)} {problem}: it must name each position to decide exactly once.")
    return given
