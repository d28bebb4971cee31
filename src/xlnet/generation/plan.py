"""A plan says which tokens are given, which are to be decided, and in which order: one value for fill and generate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.generation.orders import decision_order

CONTEXT_ORDER = 0
_CONTEXTS = ("bidirectional", "left_to_right")


@dataclass(frozen=True)
class FillPlan:
    """Tokens of one text of L positions, and what to decide.

    Attributes:
        tokens: L ids; what stands at a target is ignored.
        targets: positions to decide, first decided first; they may lie beyond the given tokens.
        hidden: positions that are neither given nor decided; nobody sees them.
        allowed: position to ``[V]`` bool of the ids that may stand there; a position without an entry takes any.
        context: how the given tokens see each other: ``bidirectional``, as the context of a pretraining sequence does
            (XLNet §2.3: tokens that are not predicted all see each other), or ``left_to_right``.
    """

    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    hidden: frozenset[int] = frozenset()
    allowed: Mapping[int, Tensor] = field(default_factory=dict)
    context: str = "bidirectional"

    def __post_init__(self) -> None:
        if self.context not in _CONTEXTS:
            raise ConfigurationError(
                f"context={self.context!r} must be one of {', '.join(_CONTEXTS)}."
                + did_you_mean(self.context, _CONTEXTS)
            )
        if len(set(self.targets)) != len(self.targets):
            raise InputError(f"targets={list(self.targets)} names a position twice.")
        if any(place < 0 for place in self.targets):
            raise InputError(f"targets={list(self.targets)} must not be negative.")
        for place, mask in self.allowed.items():
            if not bool(mask.any()):
                raise InputError(f"The constraints of position {place} contradict each other: no piece is left.")

    @classmethod
    def of(
        cls,
        tokens: Sequence[int],
        blanks: Sequence[int],
        order: str | Sequence[int] = "lattice",
        *,
        seed: int = 0,
        allowed: Mapping[int, Tensor] | None = None,
        context: str = "bidirectional",
    ) -> FillPlan:
        """A plan that decides the ``blanks`` of a text in a named or given order.

        Raises:
            InputError: a blank outside the text, or an order that is no order of the blanks.
        """
        for place in blanks:
            if not 0 <= place < len(tokens):
                raise InputError(f"A blank at position {place} lies outside the text of {len(tokens)} tokens.")
        if len(set(blanks)) != len(blanks):
            raise InputError(f"blanks={list(blanks)} names a position twice.")
        targets = decision_order(order, blanks, seed=seed)
        return cls(tuple(int(t) for t in tokens), targets, allowed=allowed or {}, context=context)

    def given(self) -> list[tuple[int, int, int]]:
        """(position, order, id) of the given tokens."""
        decided = set(self.targets) | self.hidden
        places = [place for place in range(len(self.tokens)) if place not in decided]
        last = len(places) - 1
        return [
            (place, CONTEXT_ORDER if self.context == "bidirectional" else CONTEXT_ORDER - last + i, self.tokens[place])
            for i, place in enumerate(places)
        ]

    def order_of(self, rank: int) -> int:
        """Order of the target decided as number ``rank`` (0 first)."""
        return CONTEXT_ORDER + 1 + rank
